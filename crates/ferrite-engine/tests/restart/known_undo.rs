//! Readers beside a large transaction from before a restart, while it is rolled back or, if it had prepared, given its
//! versions again: they see what was before it, and wait for nothing.

use crate::common::{
    self, config, database, delete, give_up, insert, metric, open, scan, scan_back, update,
    wait_until, xid, Rows,
};
use ferrite_engine::{Config, DdlCaller, Engine, Isolation, References, Session};
use ferrite_engine::{SilentCallbacks, Table};
use ferrite_io::sim::{Fault, IoEvent, IoOp, SimStorage};
use ferrite_sync::atomic::{AtomicU64, Ordering};
use ferrite_sync::random::Rng;
use ferrite_sync::Arc;
use ferrite_types::Error;

const ROWS: u64 = 400;

fn text(n: u64) -> Vec<u8> {
    vec![b'a' + (n % 20) as u8; 40 + (n % 7) as usize]
}

/// Changes that take more undo than is kept for readers: a quarter of the pool.
fn change_much(s: &mut Session, t: &Arc<Table>) {
    for n in 0..500 {
        insert(s, t, 10 * ROWS + n, &[b'm'; 3000]).unwrap();
        update(s, t, 10 * ROWS + n, &[b'm'; 3000], b"less").unwrap();
    }
}

/// Rows that are committed, and a transaction that changes them in every way. `cold`: the changes of its
/// entries are put off. `much`: and more than is kept for readers.
fn cut_off(seed: u64, cold: bool, much: bool) -> (SimStorage, Rows) {
    crash(seed, cold, much, false)
}

/// The same, and it may be prepared.
fn crash(seed: u64, cold: bool, much: bool, prepare: bool) -> (SimStorage, Rows) {
    crash_behind(|_| (), seed, cold, much, prepare)
}

/// The same; `committed` is called between the two.
fn crash_behind(
    committed: impl FnOnce(&Engine),
    seed: u64,
    cold: bool,
    much: bool,
    prepare: bool,
) -> (SimStorage, Rows) {
    let (disk, engine, t, mut s) = database(seed);
    for n in 0..ROWS {
        insert(&mut s, &t, n, &text(n)).unwrap();
    }
    for n in (0..ROWS).step_by(10) {
        delete(&mut s, &t, n, &text(n)).unwrap();
    }
    s.commit(false).unwrap();
    let before = scan(&mut s, &t, 0);
    s.commit(false).unwrap();
    committed(&engine);
    let chill = || cold.then(|| engine.make_cold().unwrap());
    s.begin_statement(Isolation::RepeatableRead);
    for n in 0..ROWS {
        if n % 20 == 0 {
            chill();
        }
        change(&mut s, &t, n);
    }
    if much {
        change_much(&mut s, &t);
    }
    match prepare {
        true => s.prepare(&xid("x")).unwrap(),
        false => engine.flush_log(),
    }
    disk.crash(&mut Rng::new(seed));
    s.abandon();
    give_up(&engine);
    drop((t, engine));
    (disk, before)
}

/// Of ten rows the first is not there.
fn change(s: &mut Session, t: &Arc<Table>, n: u64) {
    match n % 10 {
        0 => insert(s, t, n, b"new").unwrap(),
        1 => delete(s, t, n, &text(n)).unwrap(),
        2 => update(s, t, n, &text(n), b"other").unwrap(),
        3 => {
            update(s, t, n, &text(n), b"other").unwrap();
            update(s, t, n, b"other", &text(n + 1)).unwrap();
            update(s, t, n, &text(n + 1), b"and another").unwrap();
        }
        4 => {
            delete(s, t, n, &text(n)).unwrap();
            insert(s, t, n, b"again").unwrap();
        }
        5 => {
            update(s, t, n, &text(n), b"other").unwrap();
            delete(s, t, n, b"other").unwrap();
        }
        6 => {
            insert(s, t, ROWS + n, b"beyond").unwrap();
            delete(s, t, ROWS + n, b"beyond").unwrap();
        }
        7 => insert(s, t, ROWS + n, b"beyond").unwrap(),
        _ => {}
    }
}

/// Undo of more than some bytes is left to the thread that rolls back. `held`: there is none.
fn restart(disk: &SimStorage, held: bool) -> Arc<Engine> {
    let config = Config {
        manual_background: held,
        background_undo_bytes: 100,
        lock_wait_timeout_ms: 10,
        ..config()
    };
    Engine::open(config, Arc::new(disk.boot()), Arc::new(SilentCallbacks)).unwrap()
}

/// At every isolation by every index, both ways; who writes waits.
fn readers_see(engine: &Arc<Engine>, before: &Rows) {
    let t = engine.dict().open_table("d/t").unwrap();
    let mut s = Session::new(engine, 0, 1);
    for isolation in [Isolation::RepeatableRead, Isolation::ReadCommitted] {
        s.begin_statement(isolation);
        for index_no in 0..3 {
            assert_eq!(scan(&mut s, &t, index_no), *before, "index {index_no}");
            assert_eq!(scan_back(&mut s, &t, index_no), *before, "index {index_no}");
        }
        s.commit(false).unwrap();
    }
    let locked = update(&mut s, &t, 2, &text(2), b"mine");
    assert_eq!(locked, Err(Error::LockTimeout));
    s.rollback().unwrap();
}

/// The end of a test: these are the rows, and the table is whole.
fn all_is(engine: &Arc<Engine>, index_no: usize, rows: &Rows) {
    let t = engine.dict().open_table("d/t").unwrap();
    let mut s = Session::new(engine, 0, 1);
    assert_eq!(scan(&mut s, &t, index_no), *rows);
    s.commit(false).unwrap();
    common::check(engine, &t);
    drop((s, t));
    engine.close().unwrap();
}

/// Its rollback does not even begin.
#[test]
fn readers_see_what_was_before_a_transaction_that_is_not_rolled_back() {
    for (seed, cold) in [(1, false), (2, true)] {
        let (disk, before) = cut_off(seed, cold, false);
        let engine = restart(&disk, true);
        assert_eq!(metric(&engine, "active_transactions"), 1);
        readers_see(&engine, &before);
        engine.close().unwrap();

        let engine = open(&disk);
        wait_until("the end of the rollback", || engine.trx_rows().is_empty());
        all_is(&engine, 1, &before);
    }
}

/// The same while it is rolled back, and of one of which more is to be undone than readers could look up: they
/// wait for it.
#[test]
fn readers_beside_the_rollback_see_the_same() {
    for (seed, much) in [(3, false), (4, true)] {
        let (disk, before) = cut_off(seed, false, much);
        let engine = restart(&disk, false);
        let t = engine.dict().open_table("d/t").unwrap();
        let mut s = Session::new(&engine, 0, 1);
        assert_eq!(scan(&mut s, &t, 0), before);
        s.commit(false).unwrap();
        wait_until("the end of the rollback", || engine.trx_rows().is_empty());
        assert_eq!(scan_back(&mut s, &t, 2), before);
        s.commit(false).unwrap();
        common::check(&engine, &t);
        drop((s, t));
        engine.close().unwrap();
    }
}

/// What the transaction makes of the rows that were before it.
fn after(before: &Rows, much: bool) -> Rows {
    let mut rows = before.clone();
    for n in 0..ROWS {
        let new: &[u8] = match n % 10 {
            0 => b"new",
            2 => b"other",
            3 => b"and another",
            4 => b"again",
            1 | 5 => {
                rows.remove(&n);
                continue;
            }
            7 => {
                rows.insert(ROWS + n, b"beyond".to_vec());
                continue;
            }
            _ => continue,
        };
        rows.insert(n, new.to_vec());
    }
    if much {
        rows.extend((0..500).map(|n| (10 * ROWS + n, b"less".to_vec())));
    }
    rows
}

/// The versions of its rows are not made again yet.
#[test]
fn readers_see_what_was_before_a_large_prepared_transaction() {
    for (seed, cold) in [(11, false), (12, true)] {
        let (disk, before) = crash(seed, cold, false, true);
        let engine = restart(&disk, true);
        assert_eq!(engine.prepared_xids(), [xid("x")]);
        let caller = DdlCaller {
            thd: 0,
            wait_ms: 0,
            references: References::Any,
        };
        assert_eq!(engine.drop_table("d/t", &caller), Err(Error::LockTimeout));
        readers_see(&engine, &before);
        engine.close().unwrap();
    }
}

/// The same while they are made again, by a thread, and when it is decided then: a snapshot from before the decision
/// goes on seeing what was before it.
#[test]
fn a_large_prepared_transaction_is_decided_once_it_has_its_versions() {
    for (seed, much, commit) in [(13, false, true), (14, false, false), (15, true, true)] {
        let (disk, before) = crash(seed, seed == 13, much, true);
        let engine = restart(&disk, false);
        let t = engine.dict().open_table("d/t").unwrap();
        let mut old = Session::new(&engine, 0, 1);
        old.begin_statement(Isolation::RepeatableRead);
        assert_eq!(scan(&mut old, &t, 0), before);
        match commit {
            true => engine.commit_by_xid(&xid("x")).unwrap(),
            false => engine.rollback_by_xid(&xid("x")).unwrap(),
        }
        let mut new = Session::new(&engine, 0, 2);
        let expected = match commit {
            true => after(&before, much),
            false => before.clone(),
        };
        for index_no in 0..3 {
            old.begin_statement(Isolation::RepeatableRead);
            assert_eq!(scan(&mut old, &t, index_no), before, "index {index_no}");
            assert_eq!(
                scan_back(&mut old, &t, index_no),
                before,
                "index {index_no}"
            );
            assert_eq!(scan(&mut new, &t, index_no), expected, "index {index_no}");
        }
        old.commit(false).unwrap();
        new.commit(false).unwrap();
        common::check(&engine, &t);
        drop((old, new, t));
        engine.close().unwrap();
    }
}

/// Of the reads of pages from now on, all fail but the first ones.
fn fail_reads(disk: &SimStorage, but: u64) {
    let reads = AtomicU64::new(0);
    disk.set_hook(Some(Arc::new(move |event: &IoEvent<'_>| {
        let counts = event.op == IoOp::Read && event.name.starts_with("store.");
        match counts && reads.fetch_add(1, Ordering::SeqCst) >= but {
            true => Err(Error::Io("a read that fails".into())),
            false => Ok(()),
        }
    })));
}

/// A start that fails, before or in a rollback, lets go of the directory, and nothing goes on. It fails in a rollback only
/// if there is no thread to try that again.
#[test]
fn a_start_that_fails_can_be_tried_again() {
    // What the start reads is on disk, whatever the writer of pages has come to.
    let write = |engine: &Engine| {
        engine.make_cold().unwrap();
        engine.checkpoint().unwrap();
    };
    let (disk, before) = crash_behind(write, 18, false, true, false);
    let cut_off = disk.snapshot();
    let start = |but: u64, manual_background: bool| {
        disk.restore(&cut_off);
        fail_reads(&disk, but);
        let config = Config {
            manual_background,
            ..config()
        };
        let storage = Arc::new(disk.boot());
        Engine::open(config, storage, Arc::new(SilentCallbacks))
    };
    let tried_again = |failed: Error| {
        disk.set_hook(None);
        assert!(matches!(failed, Error::Io(_)), "{failed:?}");
        let engine = open(&disk);
        wait_until("the end of the rollback", || engine.trx_rows().is_empty());
        all_is(&engine, 0, &before);
    };
    let (mut failed, mut left, mut but) = (0, 0, 0);
    while left < 3 {
        match start(but, false) {
            Err(e) => {
                tried_again(e);
                failed += 1;
            }
            Ok(engine) => {
                let rows = engine.trx_rows();
                disk.set_hook(None);
                engine.close().unwrap();
                if rows.is_empty() {
                    break;
                }
                drop(engine);
                let of_rollback = start(but, true).err();
                tried_again(of_rollback.expect("nobody would try the rollback again"));
                left += 1;
            }
        }
        but += 1 + but / 4;
    }
    assert!(failed > 0, "no start has failed before the rollback");
    assert!(left > 0, "no rollback has failed");
}

/// So many rows of the first value, which are committed, and a prepared transaction that has given them the others one
/// after the other. The database is closed.
fn prepared(seed: u64, rows: u64, values: &[&[u8]]) -> (SimStorage, Rows) {
    let (disk, engine, t, mut s) = database(seed);
    for n in 0..rows {
        insert(&mut s, &t, n, values[0]).unwrap();
    }
    s.commit(false).unwrap();
    let before = scan(&mut s, &t, 1);
    s.commit(false).unwrap();
    for change in values.windows(2) {
        for n in 0..rows {
            update(&mut s, &t, n, change[0], change[1]).unwrap();
        }
    }
    s.prepare(&xid("x")).unwrap();
    drop((s, t));
    engine.close().unwrap();
    (disk, before)
}

/// Of rows that it has changed twice there are more values than are kept at a time: they take several walks.
#[test]
fn rows_that_a_large_prepared_transaction_has_changed_twice_get_their_versions() {
    let (disk, before) = prepared(17, 4000, &[&[b'x'; 700], &[b'y'; 700], b"short"]);
    let engine = restart(&disk, false);
    let t = engine.dict().open_table("d/t").unwrap();
    let mut old = Session::new(&engine, 0, 1);
    old.begin_statement(Isolation::RepeatableRead);
    assert_eq!(scan(&mut old, &t, 0), before);
    engine.commit_by_xid(&xid("x")).unwrap();
    for index_no in 0..3 {
        old.begin_statement(Isolation::RepeatableRead);
        assert_eq!(scan(&mut old, &t, index_no), before, "index {index_no}");
    }
    old.commit(false).unwrap();
    common::check(&engine, &t);
    drop((old, t));
    engine.close().unwrap();
}

/// A page with some of its rows cannot be read: the database opens, the transaction is not committed, however often that
/// is asked for, and can be rolled back once the page can be read. (Or committed: `damaged`.)
#[test]
fn a_prepared_transaction_that_cannot_get_its_versions_is_not_committed() {
    // More than the pool holds.
    let (disk, before) = prepared(16, 12_000, &[&[b'x'; 700], b"short"]);
    // Behind what the start itself reads.
    for nth in 60..5000 {
        disk.inject_in(Fault::FailRead, nth, "store.");
    }
    let engine = restart(&disk, false);
    for _ in 0..3 {
        let failed = engine.commit_by_xid(&xid("x"));
        assert!(matches!(failed, Err(Error::Io(_))), "{failed:?}");
        assert_eq!(engine.prepared_xids(), [xid("x")]);
    }
    disk.clear_faults();
    engine.rollback_by_xid(&xid("x")).unwrap();
    assert_eq!(engine.prepared_xids(), []);
    all_is(&engine, 1, &before);
}

/// Nobody decides it, and the fault passes: its versions are made then, as the error log has said.
#[test]
fn versions_that_could_not_be_made_are_made_when_the_fault_has_passed() {
    let (disk, before) = prepared(16, 12_000, &[&[b'x'; 700], b"short"]);
    for nth in 60..5000 {
        disk.inject_in(Fault::FailRead, nth, "store.");
    }
    let config = Config {
        background_undo_bytes: 100,
        retry_rollback_ms: 200,
        ..config()
    };
    let heard = Arc::new(common::Heard::default());
    let engine = Engine::open(config, Arc::new(disk.boot()), heard.clone()).unwrap();
    wait_until("the failure", || heard.has("cannot get its versions again"));
    assert!(heard.has("It is tried again from time to time"));
    disk.clear_faults();
    wait_until("its versions", || heard.has("has its versions again"));
    let t = engine.dict().open_table("d/t").unwrap();
    let mut s = Session::new(&engine, 0, 1);
    s.begin_statement(Isolation::RepeatableRead);
    assert_eq!(scan(&mut s, &t, 1), before);
    s.commit(false).unwrap();
    engine.commit_by_xid(&xid("x")).unwrap();
    common::check(&engine, &t);
    drop((s, t));
    engine.close().unwrap();
}

/// Nor is it rolled back, and the server has forgotten its name: that is tried again.
#[test]
fn a_rollback_that_nobody_can_ask_for_again_is_repeated_without_versions() {
    let (disk, before) = prepared(16, 12_000, &[&[b'x'; 700], b"short"]);
    for nth in 60..5000 {
        disk.inject_in(Fault::FailRead, nth, "store.");
    }
    let config = Config {
        background_undo_bytes: 100,
        retry_rollback_ms: 200,
        ..config()
    };
    let storage = Arc::new(disk.boot());
    let engine = Engine::open(config, storage, Arc::new(SilentCallbacks)).unwrap();
    let failed = engine.roll_back_forgotten(&xid("x"));
    assert!(matches!(failed, Err(Error::Io(_))), "{failed:?}");
    assert_eq!(engine.prepared_xids(), []);
    disk.clear_faults();
    wait_until("the rollback", || engine.trx_rows().is_empty());
    all_is(&engine, 1, &before);
}

/// Before the database opens as much is rolled back as it may take, the smallest transactions first, however many
/// they are.
#[test]
fn the_start_waits_for_the_smallest_transactions_only() {
    const WRITERS: u64 = 12;
    let (disk, engine, t, _first) = database(7);
    let mut writers = Vec::new();
    // The largest begins first.
    for w in (1..=WRITERS).rev() {
        let mut s = Session::new(&engine, 0, 10 + w);
        s.begin_statement(Isolation::RepeatableRead);
        for n in 0..w * 10 {
            insert(&mut s, &t, w * ROWS + n, b"of nobody").unwrap();
        }
        writers.push(s);
    }
    engine.flush_log();
    let of_each: Vec<u64> = (engine.trx_rows().iter().map(|r| r.undo_bytes)).collect();
    assert_eq!(of_each.len(), WRITERS as usize);
    disk.crash(&mut Rng::new(7));
    for s in writers {
        s.abandon();
    }
    give_up(&engine);
    drop((t, engine));

    let smallest = of_each.iter().min().unwrap();
    let config = Config {
        manual_background: true,
        // Of the smallest three, which are as long as six of the smallest.
        background_undo_bytes: smallest * 9,
        ..config()
    };
    let engine = Engine::open(config, Arc::new(disk.boot()), Arc::new(SilentCallbacks)).unwrap();
    let mut left: Vec<u64> = (engine.trx_rows().iter().map(|r| r.undo_bytes)).collect();
    left.sort_unstable();
    let mut expected = of_each;
    expected.sort_unstable();
    assert_eq!(left, expected[3..]);
    engine.close().unwrap();
}
