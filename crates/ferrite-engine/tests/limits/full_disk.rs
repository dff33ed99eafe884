//! A start on a disk that is full, on the simulated one.

use crate::common::{
    check, config, create, delete, give_up, insert, metric, scan, update, wait_for_still_log,
    wait_until, xid,
};
use ferrite_engine::snapshots::ServerState;
use ferrite_engine::{Callbacks, Config, DdlCaller, Engine, LogLevel, Session, Table};
use ferrite_io::sim::{Fault, SimStorage};
use ferrite_io::Storage;
use ferrite_sync::atomic::{AtomicBool, Ordering};
use ferrite_sync::random::Rng;
use ferrite_sync::{thread, Arc, Mutex};
use ferrite_types::Error;

const ROWS: u64 = 20_000;
const TEXT: [u8; 900] = [b'x'; 900];

#[derive(Default)]
struct Heard(Mutex<Vec<String>>);

impl Callbacks for Heard {
    fn log(&self, level: LogLevel, text: &str) {
        if level != LogLevel::Note {
            self.0.lock().push(text.to_owned());
        }
    }
    fn fatal(&self, _text: &str) {}
}

/// Nothing makes a checkpoint but the start and the end.
fn start(disk: &SimStorage, heard: &Arc<Heard>) -> Result<Arc<Engine>, Error> {
    let config = Config {
        buffer_pool_size_bytes: 64 << 20,
        log_budget_bytes: 4 << 30,
        log_segment_bytes: 8 << 20,
        store_segment_bytes: 8 << 20,
        ..config()
    };
    Engine::open(config, Arc::new(disk.boot()), heard.clone())
}

fn fill(s: &mut Session, t: &Arc<Table>, rows: std::ops::Range<u64>) -> Result<(), Error> {
    for n in rows {
        let result = insert(s, t, n, &TEXT);
        if n % 100 == 99 || result.is_err() {
            s.commit(true).unwrap();
        }
        result?;
    }
    Ok(())
}

/// The map has grown since its last dump, and there is no room for the next one.
#[test]
fn a_database_opens_on_a_full_disk() {
    for killed in [false, true] {
        let disk = SimStorage::new(51);
        let heard = Arc::new(Heard::default());
        let engine = start(&disk, &heard).unwrap();
        let t = create(&engine, "d/t");
        let mut s = Session::new(&engine, 0, 1);
        fill(&mut s, &t, 0..ROWS).unwrap();
        disk.set_capacity(Some(disk.used_bytes()));
        // What is left of the files is used up.
        let full = fill(&mut s, &t, ROWS..50 * ROWS);
        assert!(matches!(full, Err(Error::DiskFull(_))), "{full:?}");
        let before = scan(&mut s, &t, 0);
        s.commit(false).unwrap();
        if killed {
            engine.flush_log();
            disk.crash(&mut Rng::new(14));
            std::mem::forget(s);
            give_up(&engine);
        } else {
            drop(s);
            let end = engine.close();
            assert!(matches!(end, Err(Error::DiskFull(_))), "{end:?}");
        }
        drop((t, engine));
        disk.set_capacity(Some(disk.used_bytes()));

        // Twice: nothing is lost by a start that could not write.
        for _ in 0..2 {
            heard.0.lock().clear();
            let engine = start(&disk, &heard).unwrap();
            let said = heard.0.lock().clone();
            assert!(
                said.iter().any(|text| text.contains("disk full")),
                "{said:?}"
            );
            let t = engine.dict().open_table("d/t").unwrap();
            let mut s = Session::new(&engine, 0, 1);
            assert_eq!(scan(&mut s, &t, 0), before, "killed: {killed}");
            s.commit(false).unwrap();
            let full = insert(&mut s, &t, 60 * ROWS, &TEXT);
            assert!(matches!(full, Err(Error::DiskFull(_))), "{full:?}");
            s.rollback().unwrap();
            drop(s);
            assert!(engine.close().is_err());
        }

        {
            let engine = start(&disk, &heard).unwrap();
            let t = engine.dict().open_table("d/t").unwrap();
            let mut s = Session::new(&engine, 0, 1);
            disk.set_capacity(Some(disk.used_bytes() + (64 << 20)));
            wait_until("a change", || insert(&mut s, &t, 60 * ROWS, &TEXT).is_ok());
            s.rollback().unwrap();
            disk.crash(&mut Rng::new(16));
            std::mem::forget(s);
            give_up(&engine);
        }
        let changed = change_and_die(&disk, &heard);
        let engine = start(&disk, &heard).unwrap();
        for (name, rows) in [("d/t", changed), ("d/new", ROWS as usize / 10)] {
            let t = engine.dict().open_table(name).unwrap();
            let mut s = Session::new(&engine, 0, 1);
            assert_eq!(scan(&mut s, &t, 0).len(), rows, "{name}, killed: {killed}");
            drop(s);
            check(&engine, &t);
        }
        assert!(engine.dict().open_table("d/gone").is_err());
        engine.close().unwrap();
    }
}

/// A start that could write no checkpoint, changes of all kinds, and the end of the
/// machine: all of it follows from the checkpoint of two lives before. Returns the rows of `d/t`.
fn change_and_die(disk: &SimStorage, heard: &Arc<Heard>) -> usize {
    disk.set_capacity(None);
    disk.inject_in(Fault::Full, 1, "map.");
    let engine = start(disk, heard).unwrap();
    assert_eq!(metric(&engine, "checkpoints"), 0);
    let t = engine.dict().open_table("d/t").unwrap();
    let mut s = Session::new(&engine, 0, 1);
    for n in 0..ROWS / 2 {
        match n % 2 {
            0 => delete(&mut s, &t, n, &TEXT).unwrap(),
            _ => update(&mut s, &t, n, &TEXT, b"short").unwrap(),
        }
        if n % 100 == 99 {
            s.commit(true).unwrap();
        }
    }
    s.commit(false).unwrap();
    for name in ["d/gone", "d/new"] {
        let new = create(&engine, name);
        fill(&mut s, &new, 0..ROWS / 10).unwrap();
    }
    let caller = DdlCaller::default();
    engine.drop_table("d/gone", &caller).unwrap();
    let rows = scan(&mut s, &t, 0).len();
    s.commit(false).unwrap();
    // Not committed: it does not come back.
    insert(&mut s, &t, 61 * ROWS, &TEXT).unwrap();
    engine.flush_log();
    assert_eq!(metric(&engine, "checkpoints"), 0);
    disk.crash(&mut Rng::new(15));
    std::mem::forget(s);
    give_up(&engine);
    rows
}

/// A server that is told to end while no page can be written.
#[derive(Default)]
struct Ending {
    ends: AtomicBool,
    said: Mutex<Vec<String>>,
}

impl Callbacks for Ending {
    fn is_shutting_down(&self) -> bool {
        self.ends.load(Ordering::SeqCst)
    }
    fn log(&self, _level: LogLevel, text: &str) {
        self.said.lock().push(text.to_owned());
    }
    fn fatal(&self, text: &str) {
        panic!("{text}");
    }
}

/// The log is long enough for all that a test does.
fn without_checkpoints() -> Config {
    Config {
        log_budget_bytes: 1 << 30,
        log_segment_bytes: 64 << 20,
        ..config()
    }
}

/// An open transaction changes all rows, and from here on no page can be written.
fn change_all_and_fill_the_disk(s: &mut Session, t: &Arc<Table>, disk: &SimStorage) {
    for n in 0..ROWS {
        update(s, t, n, &TEXT, b"short").unwrap();
    }
    disk.inject_lasting(Fault::Full, "store.0");
}

/// All pages in memory are dirty, and none can be written: a rollback waits for the disk, and gives up
/// when the server shuts down. The next start rolls back what is left, whatever the last checkpoint.
#[test]
fn a_shutdown_leaves_a_rollback_that_cannot_go_on_to_the_next_start() {
    for checkpoint in [false, true] {
        let disk = SimStorage::new(52);
        let server = Arc::new(Ending::default());
        let settings = without_checkpoints();
        let engine = Engine::open(settings.clone(), Arc::new(disk.boot()), server.clone()).unwrap();
        let t = create(&engine, "d/t");
        let mut s = Session::new(&engine, 0, 1);
        fill(&mut s, &t, 0..ROWS).unwrap();
        let before = scan(&mut s, &t, 0);
        s.commit(false).unwrap();
        change_all_and_fill_the_disk(&mut s, &t, &disk);
        let rolling = thread::spawn("rollback", move || {
            let result = s.rollback();
            (s, result)
        });
        wait_until("a write that fails", || {
            server.said.lock().clear();
            metric(&engine, "buffer_pool_pages_dirty") * 16 > 3 << 10
        });
        thread::sleep_ms(300);
        assert!(!rolling.is_finished(), "the pool holds all of the table");
        server.ends.store(true, Ordering::SeqCst);
        let (s, result) = rolling.join().unwrap();
        assert_eq!(result, Err(Error::Interrupted));
        drop(s);
        let said = server.said.lock().clone();
        assert!(
            said.iter().any(|text| text.contains("the next start")),
            "{said:?}"
        );
        if checkpoint {
            disk.clear_faults();
        }
        let closed = engine.close();
        assert_eq!(closed.is_ok(), checkpoint, "{closed:?}");
        drop((t, engine));
        disk.clear_faults();
        let engine =
            Engine::open(settings, Arc::new(disk.boot()), Arc::new(Ending::default())).unwrap();
        wait_until("the end of the rollback", || engine.trx_rows().is_empty());
        let t = engine.dict().open_table("d/t").unwrap();
        let mut s = Session::new(&engine, 0, 1);
        assert_eq!(scan(&mut s, &t, 0), before, "checkpoint: {checkpoint}");
        drop(s);
        check(&engine, &t);
        engine.close().unwrap();
    }
}

/// A rollback that waits for room is no change that is refused: for it, too, the snapshots go.
#[test]
fn snapshots_give_way_to_a_rollback_that_waits_for_room() {
    let disk = SimStorage::new(53);
    let server = Arc::new(Ending::default());
    let engine =
        Engine::open(without_checkpoints(), Arc::new(disk.boot()), server.clone()).unwrap();
    let t = create(&engine, "d/t");
    let mut s = Session::new(&engine, 0, 1);
    fill(&mut s, &t, 0..ROWS).unwrap();
    let before = scan(&mut s, &t, 0);
    s.commit(false).unwrap();
    for name in ["a", "b"] {
        let mut job = engine.begin_snapshot(name).unwrap();
        job.fix();
        job.finish(&ServerState::default()).unwrap();
    }
    change_all_and_fill_the_disk(&mut s, &t, &disk);
    let rolling = thread::spawn("rollback", move || (s.rollback(), s));
    let told = |name: &str| {
        let text = format!("snapshot {name} was dropped: the server's disk is full");
        server.said.lock().iter().filter(|t| **t == text).count()
    };
    wait_until("the end of the snapshots", || told("a") + told("b") >= 2);
    assert_eq!((told("a"), told("b")), (1, 1));
    assert!(engine.kept_snapshots().is_empty());
    disk.clear_faults();
    let (result, mut s) = rolling.join().unwrap();
    assert_eq!(result, Ok(()));
    assert_eq!(scan(&mut s, &t, 0), before);
    drop((s, t));
    engine.close().unwrap();
}

/// The file of undo needs room, too: what snapshots hold goes to it.
#[test]
fn snapshots_give_way_to_the_undo_of_a_long_transaction() {
    let disk = SimStorage::new(54);
    let server = Arc::new(Ending::default());
    let engine =
        Engine::open(without_checkpoints(), Arc::new(disk.boot()), server.clone()).unwrap();
    let t = create(&engine, "d/t");
    let mut s = Session::new(&engine, 0, 1);
    fill(&mut s, &t, 0..ROWS).unwrap();
    s.commit(false).unwrap();
    let mut text = TEXT;
    for name in ["a", "b"] {
        let mut job = engine.begin_snapshot(name).unwrap();
        job.fix();
        job.finish(&ServerState::default()).unwrap();
        let old = std::mem::replace(&mut text, [name.as_bytes()[0]; 900]);
        for n in 0..ROWS {
            update(&mut s, &t, n, &old, &text).unwrap();
            if n % 100 == 99 {
                s.commit(true).unwrap();
            }
        }
        s.commit(false).unwrap();
        engine.checkpoint().unwrap();
    }
    let before = scan(&mut s, &t, 0);
    s.commit(false).unwrap();
    disk.set_capacity(Some(disk.used_bytes() + (2 << 20)));
    // 9 MB of undo.
    for n in 0..ROWS / 2 {
        update(&mut s, &t, n, &text, b"short").unwrap();
    }
    let left = engine.kept_snapshots().len();
    assert!(left < 2, "{left} snapshots are left");
    disk.set_capacity(None);
    s.rollback().unwrap();
    assert_eq!(scan(&mut s, &t, 0), before);
    drop(s);
    check(&engine, &t);
    engine.close().unwrap();
}

/// A database that has filled its disk, with free space in short pieces: rows can be
/// deleted, all of them, and then there is room again.
#[test]
fn what_has_filled_its_disk_can_be_emptied() {
    let disk = SimStorage::new(53);
    let settings = Config {
        log_budget_bytes: 16 << 20,
        ..config()
    };
    let server = Arc::new(Ending::default());
    let engine = Engine::open(settings, Arc::new(disk.boot()), server).unwrap();
    let t = create(&engine, "d/t");
    let mut s = Session::new(&engine, 0, 1);
    let mut rng = Rng::new(7);
    let mut lengths = Vec::new();
    let long = [b'r'; 3000];
    disk.set_capacity(Some(disk.used_bytes() + (48 << 20)));
    // Until it is refused again and again: what is dirty has been written by then.
    let mut refused = 0;
    while refused < 20 {
        let n = lengths.len() as u64;
        let len = 500 + rng.below(2500) as usize;
        let mut result = insert(&mut s, &t, n, &long[..len]);
        if result.is_ok() {
            lengths.push(len);
            let of = rng.below(n + 1) as usize;
            let len = 500 + rng.below(2500) as usize;
            result = update(&mut s, &t, of as u64, &long[..lengths[of]], &long[..len]);
            if result.is_ok() {
                lengths[of] = len;
            }
        }
        s.commit(true).unwrap();
        match result {
            Ok(()) => refused = 0,
            Err(Error::DiskFull(_)) => refused += 1,
            Err(e) => panic!("{e}"),
        }
        if refused > 0 {
            disk.set_capacity(Some(disk.used_bytes()));
            thread::sleep_ms(50);
        }
    }
    for (n, len) in lengths.iter().enumerate() {
        wait_until("a deletion", || {
            let result = delete(&mut s, &t, n as u64, &long[..*len]);
            s.commit(true).unwrap();
            result.is_ok()
        });
    }
    wait_until("a new row", || insert(&mut s, &t, 1 << 40, &long).is_ok());
    s.commit(false).unwrap();
    drop(s);
    check(&engine, &t);
    engine.close().unwrap();
}

/// The undo of a transaction that a crash cut off is longer than what is kept in memory, and the disk has no
/// room for the rest of it.
#[test]
fn a_long_transaction_is_rolled_back_on_a_full_disk() {
    let disk = SimStorage::new(53);
    let heard = Arc::new(Heard::default());
    let engine = start(&disk, &heard).unwrap();
    let t = create(&engine, "d/t");
    let mut s = Session::new(&engine, 0, 1);
    fill(&mut s, &t, 0..ROWS / 2).unwrap();
    let before = scan(&mut s, &t, 0);
    s.commit(false).unwrap();
    engine.checkpoint().unwrap();
    for n in 0..ROWS / 2 {
        update(&mut s, &t, n, &TEXT, &[b'y'; 901]).unwrap();
    }
    engine.flush_log();
    assert!(metric(&engine, "undo_spilled_bytes") > 0);
    disk.crash(&mut Rng::new(3));
    s.abandon();
    give_up(&engine);
    drop((t, engine));
    // The log has it all since the checkpoint.
    let storage: Arc<dyn Storage> = Arc::new(disk.boot());
    storage.remove("undo.spill").unwrap();
    drop(storage);
    disk.set_capacity(Some(disk.used_bytes()));
    let engine = start(&disk, &heard).unwrap();
    wait_until("the rollback", || {
        metric(&engine, "active_transactions") == 0
    });
    disk.set_capacity(None);
    let t = engine.dict().open_table("d/t").unwrap();
    let mut s = Session::new(&engine, 0, 1);
    assert_eq!(scan(&mut s, &t, 0), before);
    s.commit(false).unwrap();
    check(&engine, &t);
    drop((s, t));
    engine.close().unwrap();
}

/// The versions of a large prepared transaction are made again while neither the log nor the store can grow: what
/// the log keeps for what already runs is not for them.
#[test]
fn versions_of_a_prepared_transaction_leave_the_log_what_it_needs() {
    restore_on_a_full_disk(0);
}

/// The same of one whose versions the start makes: it leaves them to the thread, and the database opens.
#[test]
fn a_start_does_not_insist_on_versions_for_which_there_is_no_room() {
    restore_on_a_full_disk(16 << 20);
}

fn restore_on_a_full_disk(background_undo_bytes: u64) {
    let disk = SimStorage::new(56);
    let heard = Arc::new(Heard::default());
    let settings = Config {
        buffer_pool_size_bytes: 64 << 20,
        log_budget_bytes: 256 << 20,
        log_segment_bytes: 1 << 20,
        background_undo_bytes,
        ..config()
    };
    let boot = || Engine::open(settings.clone(), Arc::new(disk.boot()), heard.clone()).unwrap();
    let engine = boot();
    let t = create(&engine, "d/t");
    let mut s = Session::new(&engine, 0, 1);
    let (old, new) = ([b'x'; 100], [b'y'; 100]);
    for n in 0..2 * ROWS {
        insert(&mut s, &t, n, &old).unwrap();
    }
    s.commit(false).unwrap();
    for n in 0..2 * ROWS {
        update(&mut s, &t, n, &old, &new).unwrap();
    }
    s.prepare(&xid("large")).unwrap();
    let mut small = Session::new(&engine, 0, 2);
    insert(&mut small, &t, 2 * ROWS, b"small").unwrap();
    small.prepare(&xid("small")).unwrap();
    disk.crash(&mut Rng::new(3));
    s.abandon();
    small.abandon();
    give_up(&engine);
    drop((t, engine));

    disk.set_capacity(Some(disk.used_bytes()));
    disk.inject_lasting(Fault::Full, "store.0");
    let engine = boot();
    wait_for_still_log(&engine);
    // What already runs can end.
    let done = Arc::new(AtomicBool::new(false));
    let other = {
        let (engine, done) = (engine.clone(), done.clone());
        thread::spawn("other", move || {
            engine.commit_by_xid(&xid("small")).unwrap();
            done.store(true, Ordering::SeqCst);
        })
    };
    wait_until("a commit", || done.load(Ordering::SeqCst));
    other.join().unwrap();
    disk.clear_faults();
    disk.set_capacity(None);
    engine.commit_by_xid(&xid("large")).unwrap();
    let t = engine.dict().open_table("d/t").unwrap();
    let mut s = Session::new(&engine, 0, 1);
    let after = scan(&mut s, &t, 0);
    assert_eq!(after.len() as u64, 2 * ROWS + 1);
    assert!(after
        .iter()
        .all(|(n, text)| *n == 2 * ROWS || text[..] == new));
    s.commit(false).unwrap();
    check(&engine, &t);
    drop((s, t));
    engine.close().unwrap();
}

/// One value is longer than all that the log keeps for what already runs: it is refused on the way, and the
/// commits of others go on.
#[test]
fn a_long_value_leaves_the_log_what_it_needs() {
    let disk = SimStorage::new(54);
    let heard = Arc::new(Heard::default());
    let engine = start(&disk, &heard).unwrap();
    let t = create(&engine, "d/t");
    let mut s = Session::new(&engine, 0, 1);
    fill(&mut s, &t, 0..100).unwrap();
    let before = scan(&mut s, &t, 0);
    s.commit(false).unwrap();
    disk.set_capacity(Some(disk.used_bytes() + (4 << 20)));
    let refused = Arc::new(AtomicBool::new(false));
    let worker = {
        let (engine, t, refused) = (engine.clone(), t.clone(), refused.clone());
        thread::spawn("value", move || {
            let mut s = Session::new(&engine, 0, 2);
            let written = s.write_overflow(&t, &vec![7; 64 << 20]);
            assert!(matches!(written, Err(Error::DiskFull(_))), "{written:?}");
            s.rollback().unwrap();
            refused.store(true, Ordering::SeqCst);
        })
    };
    wait_until("the value is refused", || refused.load(Ordering::SeqCst));
    worker.join().unwrap();
    disk.set_capacity(None);
    assert_eq!(scan(&mut s, &t, 0), before);
    // The log tries from time to time whether there is space again.
    wait_until("a value is written", || {
        let written = s.write_overflow(&t, &vec![7; 64 << 20]);
        s.rollback().unwrap();
        assert!(
            matches!(&written, Ok(_) | Err(Error::DiskFull(_))),
            "{:?}",
            written.err()
        );
        written.is_ok()
    });
    fill(&mut s, &t, 100..200).unwrap();
    check(&engine, &t);
    drop((s, t));
    engine.close().unwrap();
}
