//! What the log keeps for what already runs, on a disk that is full: whoever is not needed for making room leaves it
//! to the others, whose commits go on.

use crate::common::{
    check, config, create, create_as, give_up, index, insert, scan, update, wait_for_still_log,
    wait_until,
};
use ferrite_engine::{
    AlterForeign, Callbacks, Config, DdlCaller, Engine, LogLevel, NewForeign, Session, Table,
    TableSpec,
};
use ferrite_io::sim::{Fault, SimStorage};
use ferrite_sync::atomic::{AtomicBool, Ordering};
use ferrite_sync::random::Rng;
use ferrite_sync::{thread, Arc, Mutex};
use ferrite_types::{Error, UndoPosition};

const ROWS: u64 = 40_000;
const OLD: [u8; 100] = [b'x'; 100];
const NEW: [u8; 100] = [b'y'; 100];
/// A statement that may wait long.
const LONG_MS: u64 = 600_000;

/// A server that may be told to end, or to kill who asks.
#[derive(Default)]
struct Server {
    ends: AtomicBool,
    kills: AtomicBool,
    said: Mutex<Vec<String>>,
}

impl Callbacks for Server {
    fn is_killed(&self, _thd: usize) -> bool {
        self.kills.load(Ordering::SeqCst)
    }
    fn is_shutting_down(&self) -> bool {
        self.ends.load(Ordering::SeqCst)
    }
    fn log(&self, level: LogLevel, text: &str) {
        if level != LogLevel::Note {
            self.said.lock().push(text.to_owned());
        }
    }
    fn fatal(&self, _text: &str) {}
}

/// All pages fit the pool; of the log as much is kept as one of its files has.
fn start(disk: &SimStorage) -> (Arc<Engine>, Arc<Server>) {
    let config = Config {
        buffer_pool_size_bytes: 64 << 20,
        log_budget_bytes: 256 << 20,
        log_segment_bytes: 1 << 20,
        ..config()
    };
    let server = Arc::new(Server::default());
    let engine = Engine::open(config, Arc::new(disk.boot()), server.clone()).unwrap();
    (engine, server)
}

/// From here on neither a file nor a page can be written that has no place yet: no checkpoint makes the log shorter.
fn fill(disk: &SimStorage) {
    disk.set_capacity(Some(disk.used_bytes()));
    disk.inject_lasting(Fault::Full, "store.0");
}

fn empty(disk: &SimStorage) {
    disk.clear_faults();
    disk.set_capacity(None);
}

/// In a thread of its own, which has to come to its end.
fn ends<T: Send + 'static>(what: &str, f: impl FnOnce() -> T + Send + 'static) -> T {
    let worker = thread::spawn("worker", f);
    wait_until(what, || worker.is_finished());
    worker.join().unwrap()
}

/// A table with rows, all of which a transaction has changed, all but the first one behind the savepoint, and another
/// transaction, which has inserted one.
struct Scene {
    t: Arc<Table>,
    large: Session,
    savepoint: UndoPosition,
    small: Session,
}

fn scene(engine: &Arc<Engine>) -> Scene {
    let t = create(engine, "d/t");
    create(engine, "d/other");
    create_as(engine, "d/temporary", true);
    let mut large = Session::new(engine, 0, 1);
    for n in 0..ROWS {
        insert(&mut large, &t, n, &OLD).unwrap();
    }
    large.commit(false).unwrap();
    let mut savepoint = UndoPosition::START;
    for n in 0..ROWS {
        update(&mut large, &t, n, &OLD, &NEW).unwrap();
        if n == 0 {
            savepoint = large.savepoint().unwrap();
        }
    }
    let mut small = Session::new(engine, 0, 2);
    insert(&mut small, &t, ROWS, b"small").unwrap();
    Scene {
        t,
        large,
        savepoint,
        small,
    }
}

/// What the table has once the large transaction is undone, and the small one committed.
fn is_as_before(engine: &Arc<Engine>) {
    let t = engine.dict().open_table("d/t").unwrap();
    let mut s = Session::new(engine, 0, 3);
    let rows = scan(&mut s, &t, 0);
    assert_eq!(rows.len() as u64, ROWS + 1);
    assert!(rows.iter().all(|(n, text)| *n == ROWS || text[..] == OLD));
    s.commit(false).unwrap();
    check(engine, &t);
}

/// A transaction's rollback, or that of a part of it, needs more log than there is: it waits, and others commit. It
/// goes on when there is room, and a shutdown does not wait for it.
#[test]
fn a_rollback_leaves_the_log_what_commits_need() {
    for (in_part, ends_server) in [(false, false), (false, true), (true, false), (true, true)] {
        let disk = SimStorage::new(61);
        let (engine, server) = start(&disk);
        let Scene {
            t,
            mut large,
            savepoint,
            mut small,
        } = scene(&engine);
        fill(&disk);
        let rolling = thread::spawn("rollback", move || {
            let result = match in_part {
                true => large.rollback_to(savepoint),
                false => large.rollback(),
            };
            (large, result)
        });
        wait_for_still_log(&engine);
        assert!(!rolling.is_finished(), "there was room for all of it");

        what_gives_tables_up_goes_on(&engine, &server);
        let name = renamed_until_refused(&engine);
        ddl_waits_and_hears_a_kill(&engine, &server, name);
        ends("a commit", move || small.commit(false).unwrap());

        if ends_server {
            server.ends.store(true, Ordering::SeqCst);
            let (large, result) = ends("the end of the rollback", || rolling.join().unwrap());
            assert_eq!(result, Err(Error::Interrupted));
            drop((large, t));
            let same = engine.clone();
            ends("the shutdown", move || same.close()).unwrap_err();
            drop(engine);
            empty(&disk);
            let (engine, _) = start(&disk);
            wait_until("the rollback", || engine.trx_rows().is_empty());
            is_as_before(&engine);
            engine.close().unwrap();
            continue;
        }
        empty(&disk);
        let (mut large, result) = ends("the end of the rollback", || rolling.join().unwrap());
        assert_eq!(result, Ok(()));
        large.rollback().unwrap();
        drop((large, t));
        is_as_before(&engine);
        engine.drop_table(name, &DdlCaller::default()).unwrap();
        engine.close().unwrap();
    }
}

/// A rollback waits, and so would purge. What gives a table up, or takes back what the server was at, goes on, with a connection
/// that is killed or is about to go, too.
fn what_gives_tables_up_goes_on(engine: &Arc<Engine>, server: &Server) {
    let spare = TableSpec::new("d/refused", vec![index("PRIMARY", true)]);
    let made = engine.create_table(spare, 1, NewForeign::default(), &DdlCaller::default());
    assert!(matches!(made.map(drop), Err(Error::DiskFull(_))));
    server.kills.store(true, Ordering::SeqCst);
    let same = engine.clone();
    ends("changes that go on", move || {
        let by = DdlCaller::default();
        same.drop_table("d/temporary", &by).unwrap();
        same.rename_table("d/other", "d/#sql-backup-other", &by)
            .unwrap();
        same.rename_table("d/#sql-backup-other", "d/other", &by)
            .unwrap();
        same.truncate_table("d/other", 1, &by).unwrap();
    });
    server.kills.store(false, Ordering::SeqCst);
}

/// Renames a table until the log has no room for that, either; the name that it has then.
fn renamed_until_refused(engine: &Arc<Engine>) -> &'static str {
    let same = engine.clone();
    ends("renaming", move || {
        let (mut name, mut other) = ("d/other", "d/another");
        for _ in 0..1_000_000 {
            match same.rename_table(name, other, &DdlCaller::default()) {
                Ok(()) => (name, other) = (other, name),
                Err(Error::DiskFull(_)) => return name,
                Err(e) => panic!("{e}"),
            }
        }
        panic!("it is never refused");
    })
}

/// The log is out of what is kept for a change of the dictionary.
fn ddl_waits_and_hears_a_kill(engine: &Arc<Engine>, server: &Server, name: &'static str) {
    type Change = fn(&Engine, &str, &DdlCaller) -> Result<(), Error>;
    let changes: [Change; 4] = [
        |e, name, by| e.drop_table(name, by),
        |e, name, by| e.truncate_table(name, 1, by),
        |e, name, by| e.rename_table(name, "d/third", by),
        |e, name, by| e.alter_table(name, b"another", &AlterForeign::default(), None, by),
    ];
    for change in changes {
        let same = engine.clone();
        let at_once = ends("a change at once", move || {
            change(&same, name, &DdlCaller::default())
        });
        assert!(matches!(at_once, Err(Error::DiskFull(_))), "{at_once:?}");
        let same = engine.clone();
        let waiting = thread::spawn("ddl", move || {
            let caller = DdlCaller {
                wait_ms: LONG_MS,
                ..DdlCaller::default()
            };
            change(&same, name, &caller)
        });
        thread::sleep_ms(100);
        assert!(!waiting.is_finished(), "it does not wait");
        server.kills.store(true, Ordering::SeqCst);
        let killed = ends("a change that is killed", || waiting.join().unwrap());
        assert_eq!(killed, Err(Error::Interrupted));
        server.kills.store(false, Ordering::SeqCst);
        engine.dict().open_table(name).unwrap();
    }
}

/// A start finds the log as a rollback has left it: it waits for no room, neither for the rollback nor for temporary
/// tables, and neither does its end.
#[test]
fn a_start_waits_for_no_room_in_the_log() {
    // How many files of the log a crash leaves ready is a matter of chance: there may be room for all of it.
    assert!((62..70).any(starts_without_room), "there was always room");
}

/// False: there was room.
fn starts_without_room(seed: u64) -> bool {
    let disk = SimStorage::new(seed);
    let (engine, server) = start(&disk);
    let Scene {
        t,
        mut large,
        mut small,
        ..
    } = scene(&engine);
    fill(&disk);
    let rolling = thread::spawn("rollback", move || {
        assert_eq!(large.rollback(), Err(Error::Interrupted));
        large.abandon();
    });
    wait_for_still_log(&engine);
    small.commit(false).unwrap();
    server.ends.store(true, Ordering::SeqCst);
    ends("the end of the rollback", || rolling.join().unwrap());
    disk.crash(&mut Rng::new(5));
    give_up(&engine);
    drop((t, small, engine));

    fill(&disk);
    let same = disk.clone();
    let (again, server) = ends("a start", move || start(&same));
    let said = server.said.lock().clone();
    let named = |text: &String| text.contains("temporary tables from before the restart stay");
    let is_short = said.iter().any(named);
    wait_for_still_log(&again);
    let same = again.clone();
    let is_left = !again.trx_rows().is_empty();
    let closed = ends("the shutdown", move || same.close());
    assert!(!is_short || is_left, "it was rolled back");
    assert!(!is_short || closed.is_err(), "all of it was written");
    drop(again);
    empty(&disk);
    let (again, server) = start(&disk);
    let said = server.said.lock().clone();
    assert!(!again.dict().exists("d/temporary"), "{said:?}");
    wait_until("the rollback", || again.trx_rows().is_empty());
    is_as_before(&again);
    again.close().unwrap();
    is_short
}

/// Tables without end do not use up the log; those that are there can be dropped.
#[test]
fn tables_are_made_only_while_the_log_has_room() {
    let disk = SimStorage::new(63);
    let (engine, _) = start(&disk);
    let t = create(&engine, "d/t");
    let mut small = Session::new(&engine, 0, 2);
    insert(&mut small, &t, 1, b"small").unwrap();
    fill(&disk);
    let same = engine.clone();
    let made = ends("a table that is refused", move || {
        for n in 0..20_000 {
            let spec = TableSpec {
                temporary: true,
                ..TableSpec::new(&format!("d/{n}"), vec![index("PRIMARY", true)])
            };
            match same.create_table(spec, 1, NewForeign::default(), &DdlCaller::default()) {
                Ok(_) => {}
                Err(Error::DiskFull(_)) => return n,
                Err(e) => panic!("{e}"),
            }
        }
        panic!("all of them were made");
    });
    ends("a commit", move || small.commit(false).unwrap());
    let mut s = Session::new(&engine, 0, 3);
    let build = s.begin_index_build(&t, vec![index("new", false)], &DdlCaller::default());
    assert!(matches!(build, Err(Error::DiskFull(_))));
    let redefined = engine.redefine_table("d/t", b"other", &DdlCaller::default());
    assert!(matches!(redefined, Err(Error::DiskFull(_))));
    drop((build, s));
    for n in 0..made.min(100) {
        let caller = DdlCaller::default();
        engine.drop_table(&format!("d/{n}"), &caller).unwrap();
    }
    engine
        .truncate_table("d/t", 1, &DdlCaller::default())
        .unwrap();
    empty(&disk);
    drop(t);
    engine.close().unwrap();
}
