//! What goes on while the pages of a table or of an index go, which takes minutes for a large one.

mod common;

use common::open;
use ferrite_engine::{
    AlterForeign, DdlCaller, DupInfo, Engine, Entry, IndexSource, IndexSpec, IndexesAfter, Session,
    Table, TableSpec,
};
use ferrite_io::sim::SimStorage;
use ferrite_sync::stop::{arm, disarm, Action};
use ferrite_sync::Arc;
use ferrite_types::Result;
use std::sync::mpsc::{channel, Receiver};
use std::time::{Duration, Instant};

/// Longer than anything takes that does not wait for the drop.
const PATIENCE: Duration = Duration::from_secs(10);
const ROWS: u32 = 50;

fn create(engine: &Engine, name: &str) -> Arc<Table> {
    let indexes = ["PRIMARY", "k"].map(|name| IndexSpec::new(name, true, 1));
    let spec = TableSpec::new(name, indexes.into());
    engine.dict().create_table(spec, 1).unwrap()
}

/// Rows that come and go: purge has to see to their entries in both indexes.
fn leave_garbage(s: &mut Session, table: &Arc<Table>) {
    for delete in [false, true] {
        for n in 0..ROWS {
            let key = n.to_be_bytes();
            let entry = Entry {
                index_no: 1,
                check_unique: false,
                key: &key,
                payload: b"",
            };
            if delete {
                s.delete_row(table, &key, &[entry]).unwrap();
                continue;
            }
            let dup = &mut DupInfo::default();
            s.insert_row(table, Some(&key), &[0; 100], &[entry], false, dup)
                .unwrap();
        }
        s.commit(false).unwrap();
    }
}

fn length(engine: &Engine) -> u64 {
    let all = engine.metrics();
    let found = all.iter().find(|m| m.name == "history_list_length");
    found.expect("the metric").value
}

/// What comes of `f`, which another thread does.
fn start<T: Send + 'static>(f: impl FnOnce() -> T + Send + 'static) -> Receiver<T> {
    let (tell, told) = channel();
    std::thread::spawn(move || drop(tell.send(f())));
    told
}

fn drop_the_index(engine: &Engine) -> Result<()> {
    let after = IndexesAfter {
        sources: vec![IndexSource::Kept(0)],
        build: None,
    };
    let foreign = AlterForeign {
        index_names: vec!["PRIMARY".into()],
        ..AlterForeign::default()
    };
    let caller = DdlCaller::default();
    engine.alter_table("d/t", b"definition", &foreign, Some(after), &caller)
}

/// Story: a large table is dropped or emptied, or a large index of it dropped; others commit, and look for a parent in it.
/// Stops: the statement at `buffer.index_dropped`, before its first tree has gone for good, until all is asked.
/// Expected: purge does what there is for it in that table and in others; who looks for a parent finds the table, or that
/// it is gone, at once.
#[test]
fn nobody_waits_while_the_pages_of_a_table_go() {
    type Statement = fn(&Engine) -> Result<()>;
    let statements: [Statement; 3] = [
        |engine| engine.drop_table("d/t", &DdlCaller::default()),
        |engine| engine.truncate_table("d/t", 1, &DdlCaller::default()),
        drop_the_index,
    ];
    for (n, statement) in statements.into_iter().enumerate() {
        let disk = SimStorage::new(4);
        let engine = open(&disk);
        engine.set("purge_paused", 1).unwrap();
        let (t, other) = (create(&engine, "d/t"), create(&engine, "d/u"));
        let mut s = Session::new(&engine, 0, 1);
        leave_garbage(&mut s, &t);
        leave_garbage(&mut s, &other);
        assert!(length(&engine) >= 2, "nothing is left for purge");

        let (come, has_come) = channel();
        let (go, may_go) = channel::<()>();
        let (come, may_go) = (std::sync::Mutex::new(come), std::sync::Mutex::new(may_go));
        arm(
            "buffer.index_dropped",
            Action::callback(move || {
                // It is the only drop here; the sender is gone when all is asked.
                let _ = come.lock().unwrap().send(());
                let _ = may_go.lock().unwrap().recv();
            }),
        );
        let dropper = engine.clone();
        let done = start(move || statement(&dropper));
        let there = has_come.recv_timeout(PATIENCE);
        assert_eq!(there, Ok(()), "statement {n} does not come to the drop");

        engine.set("purge_paused", 0).unwrap();
        let since = Instant::now();
        while length(&engine) > 0 && since.elapsed() < PATIENCE {
            std::thread::sleep(Duration::from_millis(5));
        }
        let left = length(&engine);
        let (before, now) = (t.clone(), engine.dict().open_table("d/t"));
        let before = start(move || before.enter().is_some());
        let now = start(move || now.is_ok_and(|now| now.enter().is_some()));
        let entered = [before, now].map(|told| told.recv_timeout(PATIENCE));

        disarm("buffer.index_dropped");
        drop(go);
        assert_eq!(done.recv_timeout(PATIENCE), Ok(Ok(())), "statement {n}");
        let expected = [Ok(false), Ok(n > 0)];
        assert_eq!((left, entered), (0, expected), "statement {n}");
        drop((s, t, other));
        engine.close().unwrap();
    }
}
