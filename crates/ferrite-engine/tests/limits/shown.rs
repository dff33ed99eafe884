//! What users look at while everything stands still: a change of the dictionary waits for the log, and so does a writer,
//! whose slot is locked. It is shown at once, for it is what tells them who waits.

use crate::common::{
    config, create, delete, insert, metric, scan, update, wait_for_still_log, wait_until,
};
use ferrite_engine::{Config, Engine, Named, Session, SilentCallbacks, Table};
use ferrite_io::sim::{IoOp, SimStorage};
use ferrite_sync::atomic::{AtomicBool, Ordering};
use ferrite_sync::{thread, Arc};
use ferrite_types::Error;

const WRITER: u64 = 7;
const ROWS: u64 = 100_000;

fn start(disk: &SimStorage) -> Arc<Engine> {
    let config = Config {
        buffer_pool_size_bytes: 64 << 20,
        log_budget_bytes: 256 << 20,
        log_ring_bytes: 1 << 20,
        ..config()
    };
    Engine::open(config, Arc::new(disk.boot()), Arc::new(SilentCallbacks)).unwrap()
}

/// The log's device takes nothing until that is set.
fn stall(disk: &SimStorage, goes_on: &Arc<AtomicBool>) {
    let goes_on = goes_on.clone();
    disk.set_hook(Some(Arc::new(move |io| {
        let of_log = io.name.starts_with("redo.") && matches!(io.op, IoOp::Write | IoOp::Sync);
        while of_log && !goes_on.load(Ordering::SeqCst) {
            thread::sleep_ms(1);
        }
        Ok(())
    })));
}

/// In a thread of its own, for it may hang.
fn shows<T: Send + 'static>(
    what: &str,
    engine: &Arc<Engine>,
    look: impl FnOnce(&Engine) -> T + Send + 'static,
) -> T {
    let same = engine.clone();
    let looking = thread::spawn("look", move || look(&same));
    wait_until(what, || looking.is_finished());
    looking.join().unwrap()
}

/// A row and the archived entry of another, which an open snapshot needs.
fn archived(engine: &Arc<Engine>, t: &Arc<Table>) -> Session {
    let mut s = Session::new(engine, 0, 1);
    insert(&mut s, t, 1, b"one").unwrap();
    insert(&mut s, t, 2, b"two").unwrap();
    s.commit(false).unwrap();
    let mut old = Session::new(engine, 0, 2);
    assert_eq!(scan(&mut old, t, 0).len(), 2);
    delete(&mut s, t, 2, b"two").unwrap();
    s.commit(false).unwrap();
    wait_until("an archived entry", || {
        metric(engine, "delete_archive_entries") > 0
    });
    old
}

#[test]
fn all_is_shown_while_the_log_stands_still() {
    let disk = SimStorage::new(71);
    let engine = start(&disk);
    let t = create(&engine, "d/t");
    let old = archived(&engine, &t);
    let before = metric(&engine, "delete_archive_bytes");
    let goes_on = Arc::new(AtomicBool::new(false));
    stall(&disk, &goes_on);

    let same = engine.clone();
    let ddl = thread::spawn("ddl", move || drop(create(&same, "d/other")));
    wait_until("a change of the dictionary that waits", || {
        engine.dict().names().table(t.id()) == Named::Unknown
    });
    let (same, of_writer) = (engine.clone(), t.clone());
    let writer = thread::spawn("writer", move || {
        let mut s = Session::new(&same, 0, WRITER);
        for n in 0..ROWS {
            let (old, new) = [(b"one", b"two"), (b"two", b"one")][n as usize % 2];
            update(&mut s, &of_writer, 1, old, new).unwrap();
        }
        s.commit(false).unwrap();
    });
    shows("a log that is full", &engine, {
        let same = engine.clone();
        move |_| wait_for_still_log(&same)
    });
    assert!(!writer.is_finished() && !ddl.is_finished(), "nothing waits");

    assert_eq!(shows("metrics", &engine, |e| metric(e, "tables")), 1);
    let kept = shows("metrics", &engine, |e| metric(e, "delete_archive_bytes"));
    assert_eq!(kept, before, "the archive is not counted");
    let rows = shows("transactions", &engine, Engine::trx_rows);
    let row = rows.iter().find(|row| row.thread_id == WRITER).unwrap();
    assert!(row.txn_id > 0 && row.undo_bytes > 0, "{row:?}");
    assert_eq!(row.state, "RUNNING");
    let parts = shows("memory", &engine, Engine::memory);
    let of = |name: &str| parts.iter().find(|p| p.name == name).unwrap().bytes;
    assert!(of("undo") >= row.undo_bytes && of("dictionary") > 0);
    assert!(!shows("sections", &engine, Engine::sections).is_empty());
    assert_eq!(shows("snapshots", &engine, Engine::snapshot_rows).len(), 1);
    shows("long waits", &engine, Engine::long_waits);
    shows("deadlocks", &engine, Engine::deadlock_rows);

    goes_on.store(true, Ordering::SeqCst);
    wait_until("the writer", || writer.is_finished());
    writer.join().unwrap();
    ddl.join().unwrap();
    drop(old);
    let named = engine.dict().names().table(t.id());
    assert_eq!(named, Named::As("d/t".into()));
    assert_eq!(metric(&engine, "tables"), 2);
    disk.set_hook(None);
    engine.close().unwrap();
}

/// What is counted without the dictionary's mutex is what there is, whatever becomes of tables.
#[test]
fn figures_of_the_dictionary_follow_its_changes() {
    let disk = SimStorage::new(72);
    let engine = start(&disk);
    let dictionary = |engine: &Engine| {
        let parts = engine.memory();
        let of = |name: &str| parts.iter().find(|p| p.name == name).unwrap().bytes;
        (metric(engine, "tables"), of("dictionary"))
    };
    let caller = ferrite_engine::DdlCaller::default();
    let empty = dictionary(&engine);
    assert_eq!(empty.0, 0);
    let t = create(&engine, "d/t");
    let one = dictionary(&engine);
    assert!(one.0 == 1 && one.1 > empty.1, "{one:?}");
    let old = archived(&engine, &t);
    drop(t);
    engine
        .rename_table("d/t", "d/a_longer_name", &caller)
        .unwrap();
    let renamed = dictionary(&engine);
    assert!(renamed.0 == 1 && renamed.1 > one.1, "{renamed:?}");
    engine.close().unwrap();
    drop(old);
    drop(engine);

    let engine = start(&disk);
    assert_eq!(dictionary(&engine), renamed, "after a restart");
    let t = engine.dict().open_table("d/a_longer_name").unwrap();
    let mut s = Session::new(&engine, 0, 1);
    insert(&mut s, &t, 3, b"three").unwrap();
    s.commit(false).unwrap();
    let mut old = Session::new(&engine, 0, 2);
    scan(&mut old, &t, 0);
    delete(&mut s, &t, 3, b"three").unwrap();
    s.commit(false).unwrap();
    wait_until("an archived entry", || {
        metric(&engine, "delete_archive_entries") > 0
    });
    drop((t, s, old));
    engine.drop_table("d/a_longer_name", &caller).unwrap();
    assert_eq!(dictionary(&engine), empty, "after all are dropped");
    // Purge may have the table in its hands for a moment.
    wait_until("an empty archive", || {
        metric(&engine, "delete_archive_bytes") == 0
    });
    assert_eq!(metric(&engine, "delete_archive_entries"), 0);
    engine.close().unwrap();
}

/// A wait for space is counted when it has ended: that there is none is told while it lasts.
#[test]
fn a_full_disk_is_told_while_it_is_full() {
    let disk = SimStorage::new(73);
    let engine = start(&disk);
    let t = create(&engine, "d/t");
    let mut s = Session::new(&engine, 0, 1);
    assert_eq!(metric(&engine, "disk_full"), 0);
    disk.set_capacity(Some(disk.used_bytes()));
    let refused = (0..ROWS).find_map(|n| {
        let result = insert(&mut s, &t, n, &[b'x'; 900]);
        s.commit(true).unwrap();
        result.err()
    });
    assert!(matches!(refused, Some(Error::DiskFull(_))), "{refused:?}");
    assert_eq!(metric(&engine, "disk_full"), 1);
    disk.set_capacity(None);
    wait_until("room", || metric(&engine, "disk_full") == 0);
    insert(&mut s, &t, ROWS, b"x").unwrap();
    s.commit(false).unwrap();
    engine.close().unwrap();
}
