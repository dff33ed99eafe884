//! A page that cannot be read, or undo that cannot, of a transaction that is to be rolled back: that one stays, and all
//! others go on, whether its connection goes, a deadlock ends it or a start finds it.

use crate::common::{
    check, config, create, delete, give_up, insert, scan, update, wait_until, xid, Rows,
};
use ferrite_engine::{Callbacks, Config, Cursor, DdlCaller, Engine, Isolation, LogLevel};
use ferrite_engine::{ReadMode, References, Session, Table, WaitMode};
use ferrite_io::sim::SimStorage;
use ferrite_io::Storage;
use ferrite_sync::random::Rng;
use ferrite_sync::{thread, Arc, Mutex};
use ferrite_types::Error;

const ROWS: u64 = 300;
const TEXT: [u8; 700] = [b'x'; 700];
/// Its page is damaged.
const DAMAGED: u64 = 150;
/// Its text begins so, whoever wrote it.
const MARK: &[u8] = b"<the row of the damaged page>";

/// What the server is told. The process must not end.
#[derive(Default)]
struct Told(Mutex<Vec<String>>);

impl Told {
    fn has(&self, what: &str) -> bool {
        self.0.lock().iter().any(|text| text.contains(what))
    }
}

impl Callbacks for Told {
    fn log(&self, level: LogLevel, text: &str) {
        if level == LogLevel::Error {
            self.0.lock().push(text.to_owned());
        }
    }
    fn fatal(&self, text: &str) {
        panic!("{text}");
    }
}

fn marked(end: u8) -> Vec<u8> {
    let mut text = MARK.to_vec();
    text.resize(TEXT.len(), end);
    text
}

fn boot_as(settings: Config, disk: &SimStorage) -> (Arc<Engine>, Arc<Told>) {
    let told = Arc::new(Told::default());
    let engine = Engine::open(settings, Arc::new(disk.boot()), told.clone()).unwrap();
    (engine, told)
}

fn boot(disk: &SimStorage) -> (Arc<Engine>, Arc<Told>) {
    boot_as(config(), disk)
}

/// What has failed is tried again soon.
fn hurried() -> Config {
    Config {
        retry_rollback_ms: 100,
        ..config()
    }
}

const NOWAIT: DdlCaller = DdlCaller {
    thd: 0,
    wait_ms: 0,
    references: References::Any,
};

/// Two tables, one of them with a page that will be damaged.
struct World {
    disk: SimStorage,
    engine: Arc<Engine>,
    told: Arc<Told>,
    t: Arc<Table>,
    other: Arc<Table>,
    before: [Rows; 2],
}

fn world(seed: u64) -> World {
    world_of(config(), seed)
}

fn world_of(settings: Config, seed: u64) -> World {
    let disk = SimStorage::new(seed);
    let (engine, told) = boot_as(settings, &disk);
    let (t, other) = (create(&engine, "d/t"), create(&engine, "d/other"));
    let mut s = Session::new(&engine, 0, 1);
    for n in 0..ROWS {
        let text = match n {
            DAMAGED => marked(b'a'),
            _ => TEXT.to_vec(),
        };
        insert(&mut s, &t, n, &text).unwrap();
    }
    for n in 0..10 {
        insert(&mut s, &other, n, &TEXT).unwrap();
    }
    s.commit(false).unwrap();
    let before = [scan(&mut s, &t, 0), scan(&mut s, &other, 0)];
    s.commit(false).unwrap();
    World {
        disk,
        engine,
        told,
        t,
        other,
        before,
    }
}

/// A transaction with changes before, in and behind the page that will be damaged, and in the other table.
fn change(w: &World) -> Session {
    let mut s = Session::new(&w.engine, 0, 2);
    s.begin_statement(Isolation::RepeatableRead);
    update(&mut s, &w.other, 1, &TEXT, b"changed").unwrap();
    update(&mut s, &w.t, 10, &TEXT, b"changed").unwrap();
    update(&mut s, &w.t, DAMAGED, &marked(b'a'), &marked(b'b')).unwrap();
    update(&mut s, &w.t, 200, &TEXT, b"changed").unwrap();
    s.end_statement();
    s
}

/// Nothing is in memory, and the page has another byte wherever it was written. Called again it is whole again.
fn turn(disk: &SimStorage) {
    let mut places = 0;
    for name in disk.list().unwrap() {
        if !name.starts_with("store.") {
            continue;
        }
        let bytes = disk.contents(&name).unwrap();
        let is_mark = |at: &usize| bytes[*at] == MARK[0] && bytes[*at..].starts_with(MARK);
        for at in (0..bytes.len()).filter(is_mark) {
            disk.corrupt(&name, (at + MARK.len()) as u64, 1).unwrap();
            places += 1;
        }
    }
    assert!(places > 0, "the row is nowhere");
}

fn damage(w: &World) {
    w.engine.make_cold().unwrap();
    turn(&w.disk);
}

fn nowait(engine: &Arc<Engine>) -> Session {
    let mut s = Session::new(engine, 0, 3);
    s.set_lock_wait_timeout_ms(0);
    s.begin_statement(Isolation::RepeatableRead);
    s
}

/// Others read and write; what the transaction has changed and kept is locked, and read as it was.
fn others_go_on(engine: &Arc<Engine>, other: &Arc<Table>, before: &Rows) {
    let mut s = nowait(engine);
    assert_eq!(scan(&mut s, other, 0), *before);
    insert(&mut s, other, 50, b"of others").unwrap();
    update(&mut s, other, 2, &TEXT, b"of others").unwrap();
    let locked = update(&mut s, other, 1, &TEXT, b"of others");
    assert_eq!(locked, Err(Error::LockTimeout));
    s.rollback_statement().unwrap();
    insert(&mut s, other, 50, b"of others").unwrap();
    s.commit(false).unwrap();
    delete(&mut s, other, 50, b"of others").unwrap();
    s.commit(false).unwrap();
    assert_eq!(engine.trx_rows().len(), 1);
    engine.checkpoint().unwrap();
}

/// Everything of it is rolled back, and nothing else.
fn ends_as_before(disk: &SimStorage, before: &[Rows; 2]) {
    let (engine, told) = boot(disk);
    wait_until("the end of the rollback", || engine.trx_rows().is_empty());
    let mut s = Session::new(&engine, 0, 1);
    for (name, rows) in ["d/t", "d/other"].into_iter().zip(before) {
        let table = engine.dict().open_table(name).unwrap();
        assert_eq!(scan(&mut s, &table, 0), *rows, "{name}");
        check(&engine, &table);
    }
    s.commit(false).unwrap();
    drop(s);
    engine.close().unwrap();
    assert_eq!(*told.0.lock(), Vec::<String>::new());
}

/// A client is told, and can do nothing with what is left, not even read.
fn client_rolls_back(w: &World, s: &mut Session) {
    for _ in 0..2 {
        let failed = s.rollback();
        assert!(matches!(failed, Err(Error::Corrupt(_))), "{failed:?}");
        let mut cursor = Cursor::new(&w.other, 0, ReadMode::Snapshot, WaitMode::Wait);
        assert_eq!(cursor.first(s).map(|_| ()), Err(Error::RolledBack));
        s.begin_statement(Isolation::ReadUncommitted);
        assert_eq!(cursor.first(s).map(|_| ()), Err(Error::RolledBack));
        let more = insert(s, &w.other, 60, b"more");
        assert_eq!(more, Err(Error::RolledBack));
        assert_eq!(s.commit(false), Err(Error::RolledBack));
    }
    assert!(
        !w.told.has("cannot be rolled back"),
        "it may be tried again"
    );
}

#[test]
fn a_connection_that_goes_takes_nobody_along() {
    for (seed, told_first, crash) in [(1, false, false), (2, true, false), (3, false, true)] {
        let w = world(seed);
        let mut s = change(&w);
        damage(&w);
        if told_first {
            client_rolls_back(&w, &mut s);
        }
        drop(s);
        let text = "of connection 2 cannot be rolled back";
        assert!(w.told.has(text) && w.told.has("store."), "{:?}", w.told.0);
        others_go_on(&w.engine, &w.other, &w.before[1]);
        let World {
            disk,
            engine,
            before,
            t,
            other,
            ..
        } = w;
        drop((t, other));
        match crash {
            true => {
                disk.crash(&mut Rng::new(seed));
                give_up(&engine);
            }
            false => engine.close().unwrap(),
        }
        drop(engine);

        // The start does not end at the page either.
        let (engine, told) = boot(&disk);
        wait_until("the word", || told.has("cannot be rolled back"));
        let other = engine.dict().open_table("d/other").unwrap();
        others_go_on(&engine, &other, &before[1]);
        drop(other);
        engine.close().unwrap();
        drop(engine);
        turn(&disk);
        ends_as_before(&disk, &before);
    }
}

/// What is damaged can be dropped; the rest of the transaction is rolled back by the next start.
#[test]
fn the_damaged_table_can_be_dropped() {
    let w = world(4);
    let s = change(&w);
    damage(&w);
    drop(s);
    drop(w.t);
    w.engine.drop_table("d/t", &DdlCaller::default()).unwrap();
    others_go_on(&w.engine, &w.other, &w.before[1]);
    drop(w.other);
    w.engine.close().unwrap();
    let (engine, told) = boot(&w.disk);
    wait_until("the end of the rollback", || engine.trx_rows().is_empty());
    let other = engine.dict().open_table("d/other").unwrap();
    let mut s = Session::new(&engine, 0, 1);
    assert_eq!(scan(&mut s, &other, 0), w.before[1]);
    drop(s);
    check(&engine, &other);
    drop(other);
    engine.close().unwrap();
    assert_eq!(*told.0.lock(), Vec::<String>::new());
}

/// One that is to give way in a deadlock, and cannot: it waits no more, and who waits for it does until its time is up.
#[test]
fn a_victim_that_cannot_be_rolled_back_keeps_what_it_has() {
    let w = world(5);
    let mut victim = change(&w);
    let mut heavy = Session::new(&w.engine, 0, 4);
    heavy.set_lock_wait_timeout_ms(3000);
    for n in 250..ROWS {
        update(&mut heavy, &w.t, n, &TEXT, b"of the other").unwrap();
    }
    damage(&w);
    let t = w.t.clone();
    let waits = thread::spawn("heavy", move || {
        let waited = update(&mut heavy, &t, 10, &TEXT, b"of the other");
        heavy.rollback().unwrap();
        waited
    });
    thread::sleep_ms(200);
    let given_way = update(&mut victim, &w.t, 260, &TEXT, b"mine");
    assert_eq!(given_way, Err(Error::Deadlock));
    assert!(w.told.has("deadlock"), "{:?}", w.told.0);
    let more = insert(&mut victim, &w.other, 60, b"more");
    assert_eq!(more, Err(Error::RolledBack));
    assert_eq!(waits.join().unwrap(), Err(Error::LockTimeout));
    // The client's next try, on a page that can be read again.
    turn(&w.disk);
    victim.rollback().unwrap();
    let mut s = Session::new(&w.engine, 0, 1);
    assert_eq!(scan(&mut s, &w.t, 0), w.before[0]);
    assert_eq!(scan(&mut s, &w.other, 0), w.before[1]);
    drop((s, victim));
    check(&w.engine, &w.t);
    w.engine.close().unwrap();
}

const UNDO: &str = "undo.spill";

/// [`change`], and so much more that the older part of the undo is in the file.
fn change_much(w: &World) -> Session {
    let mut s = change(w);
    let mut old = TEXT;
    for round in 0..40 {
        let new = [b'a' + round; TEXT.len()];
        for n in 0..DAMAGED - 20 {
            if n != 10 {
                update(&mut s, &w.t, n, &old, &new).unwrap();
            }
        }
        for n in ROWS..ROWS + 20 {
            insert(&mut s, &w.t, n + 100 * u64::from(round), &TEXT).unwrap();
        }
        old = new;
    }
    s
}

/// It is the transaction's undo that cannot be read.
#[test]
fn damaged_undo_is_a_matter_of_its_transaction() {
    let w = world(6);
    let s = change_much(&w);
    let length = w.disk.contents(UNDO).unwrap().len() as u64;
    let turn_undo = || {
        for at in (100..length).step_by(100_000) {
            w.disk.corrupt(UNDO, at, 1).unwrap();
        }
    };
    assert!(length > 0, "it is in memory");
    turn_undo();
    drop(s);
    assert!(w.told.has(UNDO), "{:?}", w.told.0);
    others_go_on(&w.engine, &w.other, &w.before[1]);
    turn_undo();
    drop((w.t, w.other));
    w.engine.close().unwrap();
    drop(w.engine);
    ends_as_before(&w.disk, &w.before);
}

/// A start that cannot give a prepared transaction its versions: it stays prepared, can only be rolled back, and keeps
/// nobody else from the start.
#[test]
fn a_start_goes_on_without_the_versions_of_a_damaged_page() {
    let w = world(7);
    let mut s = change(&w);
    s.prepare(&xid("x")).unwrap();
    damage(&w);
    drop((s, w.t, w.other));
    w.engine.close().unwrap();
    drop(w.engine);
    let (engine, told) = boot(&w.disk);
    wait_until("the word", || told.has("cannot be committed until"));
    let other = engine.dict().open_table("d/other").unwrap();
    others_go_on(&engine, &other, &w.before[1]);
    drop(other);
    let failed = engine.commit_by_xid(&xid("x"));
    assert!(matches!(failed, Err(Error::Corrupt(_))), "{failed:?}");
    assert_eq!(engine.prepared_xids(), [xid("x")]);
    let failed = engine.rollback_by_xid(&xid("x"));
    assert!(matches!(failed, Err(Error::Corrupt(_))), "{failed:?}");
    turn(&w.disk);
    engine.rollback_by_xid(&xid("x")).unwrap();
    engine.close().unwrap();
    drop(engine);
    ends_as_before(&w.disk, &w.before);
}

/// The page can be read again: who has promised the commit, as a server with a binary log, gets it without a restart.
#[test]
fn a_commit_that_failed_can_be_repeated() {
    let w = world(8);
    let mut s = change(&w);
    s.prepare(&xid("x")).unwrap();
    damage(&w);
    drop((s, w.t, w.other));
    w.engine.close().unwrap();
    drop(w.engine);
    let (engine, told) = boot(&w.disk);
    wait_until("the word", || told.has("cannot be committed until"));
    for _ in 0..2 {
        let failed = engine.commit_by_xid(&xid("x"));
        assert!(matches!(failed, Err(Error::Corrupt(_))), "{failed:?}");
        assert_eq!(engine.prepared_xids(), [xid("x")]);
    }
    let t = engine.dict().open_table("d/t").unwrap();
    let mut reader = Session::new(&engine, 0, 1);
    reader.open_snapshot();
    turn(&w.disk);
    engine.commit_by_xid(&xid("x")).unwrap();
    assert_eq!(scan(&mut reader, &t, 0), w.before[0]);
    reader.commit(false).unwrap();
    let mut after = w.before[0].clone();
    after.insert(10, b"changed".to_vec());
    after.insert(DAMAGED, marked(b'b'));
    after.insert(200, b"changed".to_vec());
    assert_eq!(scan(&mut reader, &t, 0), after);
    drop(reader);
    check(&engine, &t);
    assert_eq!(told.0.lock().len(), 1, "{:?}", told.0);
    drop(t);
    engine.close().unwrap();
}

/// A passing fault ends with the fault, not with the server: of a connection that has gone, and of what a start has
/// found. It is told once.
#[test]
fn what_could_not_be_rolled_back_is_tried_again() {
    for restart in [false, true] {
        let mut w = world_of(hurried(), 9);
        let s = change(&w);
        damage(&w);
        drop(s);
        if restart {
            drop((w.t, w.other));
            w.engine.close().unwrap();
            drop(w.engine);
            (w.engine, w.told) = boot_as(hurried(), &w.disk);
            wait_until("the word", || w.told.has("cannot be rolled back"));
            w.t = w.engine.dict().open_table("d/t").unwrap();
            w.other = w.engine.dict().open_table("d/other").unwrap();
        }
        others_go_on(&w.engine, &w.other, &w.before[1]);
        // It is tried again meanwhile.
        thread::sleep_ms(500);
        others_go_on(&w.engine, &w.other, &w.before[1]);
        turn(&w.disk);
        wait_until("the rollback", || w.engine.trx_rows().is_empty());
        let mut s = nowait(&w.engine);
        assert_eq!(scan(&mut s, &w.t, 0), w.before[0]);
        assert_eq!(scan(&mut s, &w.other, 0), w.before[1]);
        update(&mut s, &w.other, 1, &TEXT, b"of others").unwrap();
        s.rollback().unwrap();
        drop(s);
        check(&w.engine, &w.t);
        assert_eq!(w.told.0.lock().len(), 1, "{:?}", w.told.0);
        drop((w.t, w.other));
        w.engine.close().unwrap();
        drop(w.engine);
        ends_as_before(&w.disk, &w.before);
    }
}

/// With the damaged table the reason goes.
#[test]
fn once_the_damaged_table_is_dropped_the_rest_is_rolled_back() {
    let w = world_of(hurried(), 10);
    let s = change(&w);
    damage(&w);
    drop((s, w.t));
    w.engine.drop_table("d/t", &NOWAIT).unwrap();
    wait_until("the rollback", || w.engine.trx_rows().is_empty());
    let mut s = nowait(&w.engine);
    update(&mut s, &w.other, 1, &TEXT, b"of others").unwrap();
    s.rollback().unwrap();
    assert_eq!(scan(&mut s, &w.other, 0), w.before[1]);
    drop((s, w.other));
    w.engine.close().unwrap();
}

/// A prepared transaction whose rollback has failed is decided: DDL takes what is damaged, and no start asks again.
#[test]
fn the_damaged_table_of_a_prepared_transaction_can_be_dropped() {
    for (seed, crash, in_session) in [(11, false, false), (12, true, false), (13, false, true)] {
        let w = world(seed);
        let mut s = change(&w);
        // The first change to be taken back is that of the damaged page.
        s.rollback_to(s.before_row()).unwrap();
        s.prepare(&xid("x")).unwrap();
        assert_eq!(w.engine.drop_table("d/t", &NOWAIT), Err(Error::LockTimeout));
        let failed = match in_session {
            true => {
                damage(&w);
                let failed = s.rollback();
                drop(s);
                failed
            }
            false => {
                drop(s);
                damage(&w);
                w.engine.rollback_by_xid(&xid("x"))
            }
        };
        assert!(matches!(failed, Err(Error::Corrupt(_))), "{failed:?}");
        assert!(w.engine.commit_by_xid(&xid("x")).is_err());
        drop((w.t, w.other));
        if crash {
            // What was answered stays: it is prepared no more.
            w.disk.crash(&mut Rng::new(seed));
            give_up(&w.engine);
            drop(w.engine);
            turn(&w.disk);
            let (engine, _) = boot(&w.disk);
            assert_eq!(engine.prepared_xids(), []);
            engine.close().unwrap();
            drop(engine);
            ends_as_before(&w.disk, &w.before);
            continue;
        }
        w.engine.drop_table("d/t", &NOWAIT).unwrap();
        if !in_session {
            w.engine.rollback_by_xid(&xid("x")).unwrap();
        }
        w.engine.close().unwrap();
        drop(w.engine);
        let (engine, told) = boot(&w.disk);
        wait_until("the end of the rollback", || engine.trx_rows().is_empty());
        let other = engine.dict().open_table("d/other").unwrap();
        let mut s = Session::new(&engine, 0, 1);
        assert_eq!(scan(&mut s, &other, 0), w.before[1]);
        drop(s);
        check(&engine, &other);
        drop(other);
        engine.close().unwrap();
        assert_eq!(*told.0.lock(), Vec::<String>::new());
    }
}

/// The oldest undo is damaged, and is still when the server starts again: what the transaction has changed cannot be
/// read, and is locked; all else goes on.
fn others_go_on_beside_damaged_undo(engine: &Arc<Engine>, before: &Rows) {
    let other = engine.dict().open_table("d/other").unwrap();
    let mut s = nowait(engine);
    insert(&mut s, &other, 50, b"of others").unwrap();
    update(&mut s, &other, 2, &TEXT, b"of others").unwrap();
    let locked = update(&mut s, &other, 1, &TEXT, b"of others");
    assert_eq!(locked, Err(Error::LockTimeout));
    s.rollback().unwrap();
    let mut s = nowait(engine);
    let mut cursor = Cursor::new(&other, 0, ReadMode::Snapshot, WaitMode::Wait);
    cursor.first(&mut s).unwrap();
    assert_eq!(cursor.fetch_row(&mut s).unwrap().payload[1..], before[&0]);
    let damaged = cursor.next(&mut s).map(|_| ());
    assert!(
        matches!(&damaged, Err(Error::Corrupt(text)) if text.contains(UNDO)),
        "{damaged:?}"
    );
    assert_eq!(engine.trx_rows().len(), 1);
    engine.checkpoint().unwrap();
}

#[test]
fn a_start_goes_on_beside_damaged_undo() {
    for (seed, prepared, crash) in [
        (14, false, false),
        (15, false, true),
        (16, true, false),
        (17, true, true),
    ] {
        let w = world(seed);
        let mut s = change_much(&w);
        if prepared {
            s.prepare(&xid("x")).unwrap();
        }
        w.engine.checkpoint().unwrap();
        let turn_undo = || w.disk.corrupt(UNDO, 100, 1).unwrap();
        turn_undo();
        drop((s, w.t, w.other));
        assert_eq!(w.told.has(UNDO), !prepared, "{:?}", w.told.0);
        match crash {
            true => {
                w.engine.flush_log();
                w.disk.crash(&mut Rng::new(seed));
                give_up(&w.engine);
            }
            false => w.engine.close().unwrap(),
        }
        drop(w.engine);
        for _ in 0..2 {
            let (engine, told) = boot(&w.disk);
            wait_until("the word", || told.has(UNDO));
            others_go_on_beside_damaged_undo(&engine, &w.before[1]);
            if prepared {
                let failed = engine.commit_by_xid(&xid("x"));
                assert!(matches!(failed, Err(Error::Corrupt(_))), "{failed:?}");
                // Nobody knows what it has changed.
                let ddl = engine.drop_table("d/other", &NOWAIT);
                assert_eq!(ddl, Err(Error::LockTimeout));
                assert_eq!(engine.prepared_xids(), [xid("x")]);
            }
            engine.close().unwrap();
        }
        turn_undo();
        if prepared {
            let (engine, _) = boot(&w.disk);
            engine.rollback_by_xid(&xid("x")).unwrap();
            engine.close().unwrap();
        }
        ends_as_before(&w.disk, &w.before);
    }
}

/// The server commits it while it starts, and needs no undo for it. Or its rollback is decided: then nothing waits for it.
#[test]
fn a_prepared_transaction_with_damaged_undo_can_be_decided() {
    for commit in [true, false] {
        let w = world(18);
        let mut s = change_much(&w);
        s.prepare(&xid("x")).unwrap();
        drop((s, w.t, w.other));
        w.engine.close().unwrap();
        drop(w.engine);
        w.disk.corrupt(UNDO, 100, 1).unwrap();
        let (engine, _) = boot(&w.disk);
        match commit {
            true => engine.commit_recovered(&xid("x")).unwrap(),
            false => {
                let failed = engine.rollback_by_xid(&xid("x"));
                assert!(matches!(failed, Err(Error::Corrupt(_))), "{failed:?}");
            }
        }
        assert_eq!(engine.trx_rows().is_empty(), commit);
        let t = engine.dict().open_table("d/t").unwrap();
        if commit {
            let mut s = Session::new(&engine, 0, 1);
            let rows = scan(&mut s, &t, 0);
            assert_eq!(rows[&10], b"changed");
            assert_eq!(rows[&DAMAGED], marked(b'b'));
            drop(s);
            check(&engine, &t);
        }
        drop(t);
        engine.drop_table("d/t", &NOWAIT).unwrap();
        engine.close().unwrap();
    }
}
