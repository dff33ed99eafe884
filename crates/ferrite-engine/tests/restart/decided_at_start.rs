//! Large prepared transactions that the server decides while it starts: the start waits for nothing that takes as long
//! as the transaction took, and what it has decided holds, whoever dies when.

use crate::common::{
    check, config, create, database, delete, entries, give_up, insert, key, metric, open, scan,
    scan_back, update, wait_for_still_log, wait_until, xid, Heard, Rows,
};
use ferrite_engine::{Callbacks, Config, DdlCaller, DupInfo, Engine, Isolation, LogLevel};
use ferrite_engine::{RowChange, Session, SilentCallbacks, Table};
use ferrite_io::sim::{Fault, SimStorage};
use ferrite_sync::atomic::{AtomicBool, Ordering};
use ferrite_sync::random::Rng;
use ferrite_sync::{thread, Arc};
use ferrite_types::Error;
use std::cell::Cell;

const ROWS: u64 = 300;

fn old(n: u64) -> Vec<u8> {
    vec![b'a' + (n % 20) as u8; 30 + (n % 7) as usize]
}

/// Where the undo of a transaction is to go.
#[derive(Clone, Copy, PartialEq)]
enum Undo {
    /// Into memory, for readers.
    Known,
    /// Into the file, in part: more than is kept for readers.
    Much,
}

/// Rows that are committed, and a prepared transaction that changes them in every way: what was before it, and what
/// it makes of that.
fn prepared(seed: u64, undo: Undo) -> (SimStorage, Rows, Rows) {
    let (disk, engine, t, mut s) = database(seed);
    for n in 0..ROWS {
        insert(&mut s, &t, n, &old(n)).unwrap();
    }
    s.commit(false).unwrap();
    let before = scan(&mut s, &t, 0);
    let mut after = before.clone();
    s.commit(false).unwrap();
    s.begin_statement(Isolation::RepeatableRead);
    for n in 0..ROWS {
        change(&mut s, &t, n, &mut after);
    }
    if undo == Undo::Much {
        for n in 10 * ROWS..10 * ROWS + 700 {
            insert(&mut s, &t, n, &[b'm'; 3000]).unwrap();
            update(&mut s, &t, n, &[b'm'; 3000], b"less").unwrap();
            after.insert(n, b"less".to_vec());
        }
    }
    s.prepare(&xid("x")).unwrap();
    // A checkpoint has some of it, and names it.
    if seed % 2 == 0 {
        engine.checkpoint().unwrap();
    }
    die(&disk, engine, s, seed);
    (disk, before, after)
}

fn die(disk: &SimStorage, engine: Arc<Engine>, s: Session, seed: u64) {
    disk.crash(&mut Rng::new(seed));
    s.abandon();
    give_up(&engine);
}

/// The machine goes, and nobody's session with it.
fn die_alone(disk: &SimStorage, engine: Arc<Engine>, seed: u64) {
    disk.crash(&mut Rng::new(seed));
    give_up(&engine);
}

fn change(s: &mut Session, t: &Arc<Table>, n: u64, after: &mut Rows) {
    match n % 6 {
        0 => {
            update(s, t, n, &old(n), b"other").unwrap();
            after.insert(n, b"other".to_vec());
        }
        1 => {
            delete(s, t, n, &old(n)).unwrap();
            after.remove(&n);
        }
        2 => {
            update(s, t, n, &old(n), b"other").unwrap();
            update(s, t, n, b"other", b"and another").unwrap();
            after.insert(n, b"and another".to_vec());
        }
        3 => {
            delete(s, t, n, &old(n)).unwrap();
            insert(s, t, n, b"again").unwrap();
            after.insert(n, b"again".to_vec());
        }
        4 => {
            insert(s, t, ROWS + n, b"new").unwrap();
            after.insert(ROWS + n, b"new".to_vec());
        }
        _ => {}
    }
}

/// More than 100 bytes of undo are too much for the start. `held`: no thread settles anything.
fn settings(held: bool) -> Config {
    Config {
        manual_background: held,
        background_undo_bytes: 100,
        lock_wait_timeout_ms: 10,
        ..config()
    }
}

fn restart(disk: &SimStorage, held: bool) -> Arc<Engine> {
    let storage = Arc::new(disk.boot());
    Engine::open(settings(held), storage, Arc::new(SilentCallbacks)).unwrap()
}

/// By every index, both ways.
fn sees(s: &mut Session, t: &Arc<Table>, rows: &Rows) {
    s.begin_statement(Isolation::RepeatableRead);
    for index_no in 0..3 {
        assert_eq!(scan(s, t, index_no), *rows, "index {index_no}");
        assert_eq!(scan_back(s, t, index_no), *rows, "index {index_no}");
    }
}

/// Nothing is left to be decided or rolled back, and these are the rows.
fn ends_as(engine: &Arc<Engine>, rows: &Rows) {
    assert_eq!(engine.prepared_xids(), []);
    assert_eq!(engine.commit_by_xid(&xid("x")), Err(Error::NotFound));
    wait_until("the end of the rollback", || engine.trx_rows().is_empty());
    let t = engine.dict().open_table("d/t").unwrap();
    let mut s = Session::new(engine, 0, 7);
    sees(&mut s, &t, rows);
    s.commit(false).unwrap();
    check(engine, &t);
    wait_until("the end of purge", || engine.purge_backlog() == 0);
    engine.check_values().unwrap();
}

/// Others see what was before it and wait for its rows, as for any that is being rolled back.
fn is_rolled_back_beside(engine: &Arc<Engine>, before: &Rows) {
    assert_eq!(engine.prepared_xids(), []);
    let states: Vec<_> = engine.trx_rows().iter().map(|row| row.state).collect();
    assert_eq!(states, ["ROLLING BACK"]);
    let t = engine.dict().open_table("d/t").unwrap();
    let mut s = Session::new(engine, 0, 1);
    sees(&mut s, &t, before);
    s.commit(false).unwrap();
    let locked = update(&mut s, &t, 0, &old(0), b"mine");
    assert_eq!(locked, Err(Error::LockTimeout));
    s.rollback().unwrap();
}

/// Not one of its changes is undone when that is answered; from there on it is one without an end, also after
/// another crash, and after one amid the rollback of the next start.
#[test]
fn a_rollback_is_answered_before_it_begins() {
    for (seed, lives) in [(1, 0), (2, 0), (3, 1), (4, 3)] {
        let (disk, before, _) = prepared(seed, Undo::Known);
        let engine = restart(&disk, true);
        engine.roll_back_recovered(&xid("x")).unwrap();
        assert_eq!(engine.roll_back_recovered(&xid("x")), Err(Error::NotFound));
        is_rolled_back_beside(&engine, &before);
        if seed % 2 == 0 {
            engine.checkpoint().unwrap();
        }
        die_alone(&disk, engine, seed);
        for life in 0..lives {
            let engine = restart(&disk, life % 2 == 0);
            assert_eq!(engine.prepared_xids(), []);
            die_alone(&disk, engine, seed + life);
        }
        let engine = restart(&disk, false);
        ends_as(&engine, &before);
        engine.close().unwrap();
    }
}

/// The thread goes on with it, whatever it was at: giving the transaction its versions again, reading its undo, or
/// nothing any more.
#[test]
fn a_rollback_goes_on_behind_the_start() {
    for seed in 11..19 {
        let undo = if seed % 4 < 2 {
            Undo::Known
        } else {
            Undo::Much
        };
        let (disk, before, _) = prepared(seed, undo);
        let engine = restart(&disk, false);
        thread::sleep_ms((seed - 11) % 3);
        engine.roll_back_recovered(&xid("x")).unwrap();
        let t = engine.dict().open_table("d/t").unwrap();
        let mut s = Session::new(&engine, 0, 1);
        sees(&mut s, &t, &before);
        s.commit(false).unwrap();
        drop((s, t));
        ends_as(&engine, &before);
        engine.close().unwrap();
    }
}

/// It has all its versions by then: snapshots from before that read them, and its rollback takes them along.
#[test]
fn one_that_has_its_versions_is_handed_over_too() {
    for seed in [21, 22] {
        let (disk, before, _) = prepared(seed, Undo::Much);
        let heard = Arc::new(Heard::default());
        let engine = Engine::open(settings(false), Arc::new(disk.boot()), heard.clone()).unwrap();
        wait_until("its versions", || heard.has("has its versions again"));
        let t = engine.dict().open_table("d/t").unwrap();
        let mut old = Session::new(&engine, 0, 1);
        sees(&mut old, &t, &before);
        engine.roll_back_recovered(&xid("x")).unwrap();
        sees(&mut old, &t, &before);
        if seed == 22 {
            old.abandon();
            drop(t);
            die_alone(&disk, engine, seed);
            let engine = restart(&disk, false);
            ends_as(&engine, &before);
            engine.close().unwrap();
            continue;
        }
        wait_until("the end of the rollback", || engine.trx_rows().is_empty());
        sees(&mut old, &t, &before);
        old.commit(false).unwrap();
        drop((old, t));
        ends_as(&engine, &before);
        engine.close().unwrap();
    }
}

/// A small one is gone when that is answered.
#[test]
fn a_small_one_is_rolled_back_at_once() {
    let (disk, before, _) = prepared(31, Undo::Known);
    let engine = open(&disk);
    engine.roll_back_recovered(&xid("x")).unwrap();
    assert!(engine.trx_rows().is_empty());
    ends_as(&engine, &before);
    engine.close().unwrap();
}

/// Nobody has seen the states before, nor will: it needs no versions. Its rows have addresses of the life before,
/// at which there are other rows' versions now.
#[test]
fn a_commit_makes_no_versions() {
    for (seed, held) in [(41, true), (42, true), (43, false), (44, false)] {
        let undo = if seed % 4 < 2 {
            Undo::Known
        } else {
            Undo::Much
        };
        let (disk, _, after) = prepared(seed, undo);
        let engine = restart(&disk, held);
        engine.commit_recovered(&xid("x")).unwrap();
        assert_eq!(engine.commit_recovered(&xid("x")), Err(Error::NotFound));
        if held {
            assert_eq!(metric(&engine, "history_bytes"), 0);
        }
        let t = engine.dict().open_table("d/t").unwrap();
        let (mut reader, mut s) = (Session::new(&engine, 0, 1), Session::new(&engine, 0, 2));
        sees(&mut reader, &t, &after);
        for (n, text) in &after {
            update(&mut s, &t, *n, text, b"of the next").unwrap();
        }
        sees(&mut reader, &t, &after);
        s.commit(false).unwrap();
        sees(&mut reader, &t, &after);
        reader.commit(false).unwrap();
        let rows = scan(&mut reader, &t, 0);
        assert!(rows.keys().eq(after.keys()) && rows.values().all(|text| text == b"of the next"));
        reader.commit(false).unwrap();
        check(&engine, &t);
        drop((reader, s, t));
        die_alone(&disk, engine, seed);
        let engine = restart(&disk, false);
        ends_as(&engine, &rows);
        engine.close().unwrap();
    }
}

/// Somebody has a snapshot already, whoever that is: it goes on seeing what was before.
#[test]
fn a_commit_makes_versions_for_a_snapshot() {
    for seed in [51, 52] {
        let (disk, before, after) = prepared(seed, Undo::Known);
        let engine = restart(&disk, false);
        let t = engine.dict().open_table("d/t").unwrap();
        let (mut old, mut new) = (Session::new(&engine, 0, 1), Session::new(&engine, 0, 2));
        sees(&mut old, &t, &before);
        engine.commit_recovered(&xid("x")).unwrap();
        sees(&mut old, &t, &before);
        sees(&mut new, &t, &after);
        old.commit(false).unwrap();
        new.commit(false).unwrap();
        drop((old, new, t));
        ends_as(&engine, &after);
        engine.close().unwrap();
    }
}

/// DDL of its table comes while it is rolled back, as beside any such: the rollback touches no other table.
#[test]
fn ddl_beside_the_rollback() {
    for (seed, truncate) in [(61, true), (62, false), (64, true), (65, false)] {
        let (disk, _, _) = prepared(seed, Undo::Much);
        let engine = restart(&disk, false);
        engine.roll_back_recovered(&xid("x")).unwrap();
        let caller = DdlCaller::default();
        match truncate {
            true => engine.truncate_table("d/t", 1, &caller).unwrap(),
            false => {
                engine.drop_table("d/t", &caller).unwrap();
                create(&engine, "d/t");
            }
        }
        let t = engine.dict().open_table("d/t").unwrap();
        let mut s = Session::new(&engine, 0, 1);
        for n in 0..10 {
            insert(&mut s, &t, n, b"of the new table").unwrap();
        }
        s.commit(false).unwrap();
        let rows = scan(&mut s, &t, 0);
        s.commit(false).unwrap();
        drop((s, t));
        ends_as(&engine, &rows);
        engine.close().unwrap();
    }
}

/// Values out of line that it has written go, and those that it has replaced stay; so after a crash amid that.
#[test]
fn values_out_of_line_go_with_it() {
    for (seed, crash) in [(71, false), (72, true)] {
        let (disk, engine, t, mut s) = database(seed);
        let put = |s: &mut Session, n: u64, byte: u8| {
            let value = s.write_overflow(&t, &vec![byte; 40_000]).unwrap();
            let payload = [&[1][..], value.bytes()].concat();
            let (k, u) = (key(1), key(n * 7));
            let dup = &mut DupInfo::default();
            match byte {
                1 => s
                    .insert_row(&t, Some(&key(n)), &payload, &entries(&k, &u), false, dup)
                    .map(drop),
                _ => {
                    let (old_pk, new_pk) = (&key(n)[..], &key(n)[..]);
                    let (removed, added) = (&[][..], &[][..]);
                    let change = RowChange {
                        old_pk,
                        new_pk,
                        payload: &payload,
                        removed,
                        added,
                    };
                    s.update_row(&t, &change, dup)
                }
            }
            .unwrap();
        };
        (0..40).for_each(|n| put(&mut s, n, 1));
        s.commit(false).unwrap();
        wait_until("the end of purge", || engine.purge_backlog() == 0);
        let pages = engine.check_values().unwrap().pages;
        (0..40).for_each(|n| put(&mut s, n, 2));
        (40..80).for_each(|n| put(&mut s, n, 1));
        s.prepare(&xid("x")).unwrap();
        drop(t);
        die(&disk, engine, s, seed);
        let mut engine = restart(&disk, crash);
        engine.roll_back_recovered(&xid("x")).unwrap();
        if crash {
            die_alone(&disk, engine, seed);
            engine = restart(&disk, false);
        }
        wait_until("the end of the rollback", || engine.trx_rows().is_empty());
        wait_until("the end of purge", || engine.purge_backlog() == 0);
        assert_eq!(engine.check_values().unwrap().pages, pages);
        let t = engine.dict().open_table("d/t").unwrap();
        check(&engine, &t);
        drop(t);
        engine.close().unwrap();
    }
}

/// The database is closed amid the rollback; the next start goes on.
#[test]
fn a_shutdown_comes_amid_the_rollback() {
    for (seed, wait) in [(81, false), (82, true), (83, true)] {
        let (disk, before, _) = prepared(seed, Undo::Much);
        let heard = Arc::new(Heard::default());
        let engine = Engine::open(settings(false), Arc::new(disk.boot()), heard.clone()).unwrap();
        if wait {
            wait_until("its versions", || heard.has("has its versions again"));
        }
        engine.roll_back_recovered(&xid("x")).unwrap();
        thread::sleep_ms(seed % 2);
        engine.close().unwrap();
        drop(engine);
        let engine = restart(&disk, false);
        ends_as(&engine, &before);
        engine.close().unwrap();
    }
}

/// A prepared transaction of many rows, on a disk that is full when the database opens: neither the log nor the store
/// can grow, and the thread that makes versions waits for that.
fn on_a_full_disk(seed: u64) -> (SimStorage, Arc<Engine>, Rows, Rows) {
    of_two_on_a_full_disk(seed, MANY, Arc::new(SilentCallbacks))
}

const MANY: u64 = 40_000;

/// A server, and what is said to it.
struct Server(Arc<dyn Callbacks>, Heard);

impl Callbacks for Server {
    fn log(&self, level: LogLevel, text: &str) {
        self.1.log(level, text);
    }
    fn is_killed(&self, thd: usize) -> bool {
        self.0.is_killed(thd)
    }
    fn is_shutting_down(&self) -> bool {
        self.0.is_shutting_down()
    }
    fn fatal(&self, text: &str) {
        self.0.fatal(text);
    }
}

/// The same of two of them: "x" has changed so many rows, and "y", which the thread comes to later, the others. None
/// has its versions.
fn of_two_on_a_full_disk(
    seed: u64,
    of_first: u64,
    callbacks: Arc<dyn Callbacks>,
) -> (SimStorage, Arc<Engine>, Rows, Rows) {
    /// How many files of the log are to spare on the full disk is a matter of chance: there may be room for all.
    const TRIES: u64 = 10;
    let tries = (0..TRIES).find_map(|n| {
        let server = Arc::new(Server(callbacks.clone(), Heard::default()));
        let made = try_two_on_a_full_disk(seed + 1000 * n, of_first, server.clone());
        if server.1.has("has its versions again") {
            has_room_again(&made.0);
            made.1.close().unwrap();
            return None;
        }
        Some(made)
    });
    tries.expect("the versions have had room each time")
}

fn try_two_on_a_full_disk(
    seed: u64,
    of_first: u64,
    callbacks: Arc<dyn Callbacks>,
) -> (SimStorage, Arc<Engine>, Rows, Rows) {
    let disk = SimStorage::new(seed);
    let settings = Config {
        buffer_pool_size_bytes: 64 << 20,
        log_budget_bytes: 256 << 20,
        ..settings(false)
    };
    let boot = || {
        let storage = Arc::new(disk.boot());
        Engine::open(settings.clone(), storage, callbacks.clone()).unwrap()
    };
    let engine = boot();
    let t = create(&engine, "d/t");
    let mut s = Session::new(&engine, 0, 1);
    let (old, new) = ([b'x'; 100], [b'y'; 100]);
    for n in 0..MANY {
        insert(&mut s, &t, n, &old).unwrap();
    }
    s.commit(false).unwrap();
    for n in 0..of_first {
        update(&mut s, &t, n, &old, &new).unwrap();
    }
    s.prepare(&xid("x")).unwrap();
    if of_first < MANY {
        s.detach_prepared();
        for n in of_first..MANY {
            update(&mut s, &t, n, &old, &new).unwrap();
        }
        s.prepare(&xid("y")).unwrap();
    }
    drop(t);
    die(&disk, engine, s, seed);
    disk.set_capacity(Some(disk.used_bytes()));
    disk.inject_lasting(Fault::Full, "store.0");
    let engine = boot();
    wait_for_still_log(&engine);
    let rows = |text: [u8; 100]| (0..MANY).map(|n| (n, text.to_vec())).collect();
    (disk, engine, rows(old), rows(new))
}

fn has_room_again(disk: &SimStorage) {
    disk.clear_faults();
    disk.set_capacity(None);
}

/// In another thread, since it might not return.
fn is_answered(
    engine: &Arc<Engine>,
    decide: fn(&Arc<Engine>) -> Result<(), Error>,
) -> impl Fn() -> bool {
    let done = Arc::new(AtomicBool::new(false));
    let (engine, set) = (engine.clone(), done.clone());
    thread::spawn("decider", move || {
        decide(&engine).unwrap();
        set.store(true, Ordering::SeqCst);
    });
    move || done.load(Ordering::SeqCst)
}

/// A full disk holds neither decision up.
#[test]
fn a_full_disk_does_not_hold_a_decision_up() {
    for (seed, commit) in [(91, true), (92, false)] {
        let (disk, engine, before, after) = on_a_full_disk(seed);
        let answered = match commit {
            true => is_answered(&engine, |engine| engine.commit_recovered(&xid("x"))),
            false => is_answered(&engine, |engine| engine.roll_back_recovered(&xid("x"))),
        };
        let mut looks = 0;
        wait_until("the answer", || {
            looks += 1;
            assert!(looks < 2000, "it waits for room");
            answered()
        });
        assert_eq!(engine.prepared_xids(), []);
        has_room_again(&disk);
        ends_as(&engine, if commit { &after } else { &before });
        engine.close().unwrap();
    }
}

/// Somebody waits with a decision until the versions are made, and the database is closed: it can be decided after
/// the next start.
#[test]
fn a_shutdown_ends_the_wait_of_a_decision() {
    for (seed, commit) in [(93, true), (94, false)] {
        let (disk, engine, before, after) = on_a_full_disk(seed);
        let decide = move |engine: &Arc<Engine>| match commit {
            true => engine.commit_by_xid(&xid("x")),
            false => engine.rollback_by_xid(&xid("x")),
        };
        let waits = {
            let engine = engine.clone();
            thread::spawn("decider", move || decide(&engine))
        };
        thread::sleep_ms(50);
        assert!(!waits.is_finished(), "it does not wait");
        let closed = engine.close();
        assert!(
            matches!(closed, Ok(()) | Err(Error::DiskFull(_))),
            "{closed:?}"
        );
        assert_eq!(waits.join().unwrap(), Err(Error::Interrupted));
        assert_eq!(engine.prepared_xids(), [xid("x")]);
        drop(engine);
        has_room_again(&disk);
        let engine = restart(&disk, false);
        assert_eq!(engine.prepared_xids(), [xid("x")]);
        decide(&engine).unwrap();
        ends_as(&engine, if commit { &after } else { &before });
        engine.close().unwrap();
    }
}

/// Connection 7 may be killed.
#[derive(Default)]
struct Killer(AtomicBool);

impl Callbacks for Killer {
    fn log(&self, _level: LogLevel, _text: &str) {}
    fn is_killed(&self, thd: usize) -> bool {
        thd == 7 && self.0.load(Ordering::SeqCst)
    }
    fn fatal(&self, _text: &str) {}
}

/// A commit that can be taken back waits until the versions are made: of "x" by the thread, of "y" by itself if the thread
/// has not come to it yet. KILL ends that, and it is as prepared as before; of one that cannot be taken back it does not.
#[test]
fn a_kill_ends_the_wait_of_a_commit_that_can_be_taken_back() {
    /// How many files of the log are to spare on the full disk is a matter of chance: there may be room for all.
    const TRIES: u64 = 10;
    for (name, of_first) in [("x", MANY), ("y", MANY / 2 - 100)] {
        let waited = (0..TRIES).any(|n| is_killed_while_it_waits(95 + n, name, of_first));
        assert!(waited, "{name}: it never waits");
    }
}

/// False: it did not wait.
fn is_killed_while_it_waits(seed: u64, name: &'static str, of_first: u64) -> bool {
    let killer = Arc::new(Killer::default());
    let (disk, engine, before, after) = of_two_on_a_full_disk(seed, of_first, killer.clone());
    let prepared = engine.prepared_xids();
    let commit = |thd| {
        let engine = engine.clone();
        thread::spawn("decider", move || engine.commit_by_xid_of(&xid(name), thd))
    };
    let waits = commit(7);
    thread::sleep_ms(300);
    let waited = !waits.is_finished();
    if waited {
        killer.0.store(true, Ordering::SeqCst);
        wait_until("the answer to the KILL", || waits.is_finished());
        assert_eq!(waits.join().unwrap(), Err(Error::Interrupted));
        assert_eq!(engine.prepared_xids(), prepared);
        let t = engine.dict().open_table("d/t").unwrap();
        let mut s = Session::new(&engine, 0, 1);
        assert_eq!(scan(&mut s, &t, 0), before);
        drop((s, t));
        let waits = commit(0);
        thread::sleep_ms(200);
        assert!(!waits.is_finished(), "{name}: it does not wait");
        has_room_again(&disk);
        waits.join().unwrap().unwrap();
    } else {
        waits.join().unwrap().unwrap();
        has_room_again(&disk);
    }
    for other in engine.prepared_xids() {
        engine.commit_by_xid_of(&other, 6).unwrap();
    }
    ends_as(&engine, &after);
    engine.close().unwrap();
    waited
}

thread_local! {
    static KNOWS_OF_SHUTDOWN: Cell<bool> = const { Cell::new(false) };
}

/// A server that begins to shut down: some threads find that before others do.
struct BeginsToShutDown;

impl Callbacks for BeginsToShutDown {
    fn log(&self, _level: LogLevel, _text: &str) {}
    fn fatal(&self, _text: &str) {}
    fn is_shutting_down(&self) -> bool {
        KNOWS_OF_SHUTDOWN.get()
    }
}

/// A rollback waits for whoever makes the versions, and gives up because of a shutdown, before that one lets go of it:
/// another connection, not ended yet, commits the transaction.
#[test]
fn a_commit_comes_after_a_rollback_that_gave_up() {
    let callbacks = Arc::new(BeginsToShutDown);
    let (disk, engine, _, after) = of_two_on_a_full_disk(97, MANY, callbacks);
    KNOWS_OF_SHUTDOWN.set(true);
    assert_eq!(engine.rollback_by_xid(&xid("x")), Err(Error::Interrupted));
    KNOWS_OF_SHUTDOWN.set(false);
    // Whoever makes versions looks at it.
    thread::sleep_ms(50);
    has_room_again(&disk);
    engine.commit_by_xid(&xid("x")).unwrap();
    ends_as(&engine, &after);
    engine.close().unwrap();
}
