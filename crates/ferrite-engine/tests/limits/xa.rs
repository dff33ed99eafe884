//! Prepared transactions whose session is gone, on the simulated disk: DDL beside them, tables
//! that are gone when they are decided.

use crate::common::{
    check, config, create, create_as, database, delete, give_up, insert, key, metric, open,
    rows_of, scan, update, wait_until, xid,
};

use ferrite_engine::{
    Config, Cursor, DdlCaller, Engine, Isolation, ReadMode, References, SeekMode,
};
use ferrite_engine::{Session, SilentCallbacks, Table, WaitMode, Xid};
use ferrite_io::sim::{Fault, SimStorage};
use ferrite_sync::random::Rng;
use ferrite_sync::{thread, Arc};
use ferrite_types::Error;
use std::collections::BTreeMap;

const NOWAIT: DdlCaller = DdlCaller {
    thd: 0,
    wait_ms: 0,
    references: References::Any,
};

fn decide(engine: &Engine, xid: &Xid, commit: bool) {
    match commit {
        true => engine.commit_by_xid(xid).unwrap(),
        false => engine.rollback_by_xid(xid).unwrap(),
    }
}

/// The machine dies, or the database is closed; it opens again.
fn again(disk: &SimStorage, engine: Arc<Engine>, crash: bool) -> Arc<Engine> {
    if crash {
        engine.flush_log();
        disk.crash(&mut Rng::new(1));
        give_up(&engine);
    } else {
        engine.close().unwrap();
    }
    drop(engine);
    open(disk)
}

fn refused(engine: &Engine, name: &str) {
    assert_eq!(engine.drop_table(name, &NOWAIT), Err(Error::LockTimeout));
    let truncated = engine.truncate_table(name, 1, &NOWAIT);
    assert_eq!(truncated, Err(Error::LockTimeout));
    let renamed = engine.rename_table(name, "d/else", &NOWAIT);
    assert_eq!(renamed, Err(Error::LockTimeout));
}

/// DDL waits for a prepared transaction that changed the table: in its session, without one,
/// and after a restart. It does not wait for others.
#[test]
fn ddl_waits_for_prepared_transactions() {
    for commit in [false, true] {
        let (disk, engine, t, mut s) = database(31);
        create(&engine, "d/other");
        insert(&mut s, &t, 1, b"one").unwrap();
        s.commit(false).unwrap();
        drop(t);
        let t = engine.dict().open_table("d/t").unwrap();
        update(&mut s, &t, 1, b"one", b"first").unwrap();
        s.prepare(&xid("x")).unwrap();
        refused(&engine, "d/t");
        drop((s, t));
        refused(&engine, "d/t");
        let engine = again(&disk, engine, true);
        refused(&engine, "d/t");
        engine.truncate_table("d/other", 1, &NOWAIT).unwrap();
        engine.rename_table("d/other", "d/o", &NOWAIT).unwrap();
        engine.drop_table("d/o", &NOWAIT).unwrap();
        assert_eq!(engine.drop_table("d/o", &NOWAIT), Err(Error::NotFound));

        let waiter = {
            let engine = engine.clone();
            let patient = DdlCaller {
                thd: 0,
                wait_ms: 60_000,
                ..NOWAIT
            };
            thread::spawn("ddl", move || engine.drop_table("d/t", &patient).unwrap())
        };
        thread::sleep_ms(30);
        assert!(engine.dict().exists("d/t"), "it did not wait");
        decide(&engine, &xid("x"), commit);
        waiter.join().unwrap();
        assert!(!engine.dict().exists("d/t"));
        engine.close().unwrap();
    }
}

/// A transaction changed a temporary table beside a permanent one. Its client goes, and the
/// temporary table with it, at once. Before or after a restart the transaction is decided.
#[test]
fn temporary_tables_go_under_a_prepared_transaction() {
    for case in 0..8 {
        let (commit, crash, restart) = (case & 1 != 0, case & 2 != 0, case & 4 != 0);
        let (disk, engine, t, mut s) = database(40 + case);
        let temporary = create_as(&engine, "d/#sql-temporary", true);
        for n in 0..3 {
            insert(&mut s, &t, n, b"old").unwrap();
            insert(&mut s, &temporary, n, b"old").unwrap();
        }
        s.commit(false).unwrap();
        update(&mut s, &temporary, 0, b"old", b"changed").unwrap();
        update(&mut s, &t, 0, b"old", b"changed").unwrap();
        delete(&mut s, &temporary, 1, b"old").unwrap();
        delete(&mut s, &t, 1, b"old").unwrap();
        insert(&mut s, &temporary, 7, b"new").unwrap();
        insert(&mut s, &t, 7, b"new").unwrap();
        update(&mut s, &temporary, 7, b"new", b"newer").unwrap();
        s.prepare(&xid("x")).unwrap();
        let row = |text: &[u8]| text.to_vec();
        let before = BTreeMap::from([(0, row(b"old")), (1, row(b"old")), (2, row(b"old"))]);
        let after = BTreeMap::from([(0, row(b"changed")), (2, row(b"old")), (7, row(b"new"))]);
        drop((s, temporary));
        if case != 5 {
            // (Otherwise the restart drops it.)
            engine.drop_table("d/#sql-temporary", &NOWAIT).unwrap();
        }
        drop(t);
        let mut engine = engine;
        if restart {
            engine = again(&disk, engine, crash);
            let t = engine.dict().open_table("d/t").unwrap();
            let mut reader = Session::new(&engine, 0, 2);
            assert_eq!(scan(&mut reader, &t, 0), before, "case {case}");
        }
        decide(&engine, &xid("x"), commit);
        let engine = again(&disk, engine, crash);
        let t = engine.dict().open_table("d/t").unwrap();
        let mut reader = Session::new(&engine, 0, 2);
        let expected = if commit { &after } else { &before };
        assert_eq!(&scan(&mut reader, &t, 0), expected, "case {case}");
        drop(reader);
        check(&engine, &t);
        engine.close().unwrap();
    }
}

/// Ids of tables that are gone are not given again: not after a clean restart, nor when the
/// machine dies before the next checkpoint.
#[test]
fn ids_are_never_used_again() {
    let (disk, mut engine, t, s) = database(50);
    let mut last = (t.id(), t.spec.indexes[2].id);
    drop((t, s));
    for life in 0..6 {
        let t = create(&engine, "d/gone");
        let ids = (t.id(), t.spec.indexes[0].id);
        assert!(ids > last, "life {life}: {ids:?} after {last:?}");
        last = (t.id(), t.spec.indexes[2].id);
        drop(t);
        engine.truncate_table("d/gone", 1, &NOWAIT).unwrap();
        let t = engine.dict().open_table("d/gone").unwrap();
        assert!(t.spec.indexes[0].id > last.1, "life {life}");
        last.1 = t.spec.indexes[2].id;
        drop(t);
        if life == 3 {
            engine.checkpoint().unwrap();
        }
        engine.drop_table("d/gone", &NOWAIT).unwrap();
        engine = again(&disk, engine, life % 2 == 0);
    }
    engine.close().unwrap();
}

/// A transaction inserted into a table that was dropped nevertheless (here: before it was
/// prepared). Another table of the same shape, made after a restart, keeps its rows.
#[test]
fn a_rollback_touches_no_other_table() {
    for crash in [false, true] {
        let (disk, engine, t, mut s) = database(60);
        insert(&mut s, &t, 5, b"of the old table").unwrap();
        drop(t);
        engine.drop_table("d/t", &NOWAIT).unwrap();
        s.prepare(&xid("x")).unwrap();
        drop(s);
        let engine = again(&disk, engine, crash);
        let t = create(&engine, "d/new");
        let mut s = Session::new(&engine, 0, 1);
        for n in [1, 5] {
            insert(&mut s, &t, n, b"of the new table").unwrap();
        }
        s.commit(false).unwrap();
        engine.rollback_by_xid(&xid("x")).unwrap();
        assert_eq!(scan(&mut s, &t, 0).len(), 2);
        drop(s);
        check(&engine, &t);
        engine.close().unwrap();
    }
}

/// A large transaction without an end is rolled back beside the work of the next life; its
/// table goes meanwhile. Whatever is made of the same shape after the next restart keeps its
/// rows.
#[test]
fn a_large_rollback_touches_no_other_table() {
    const ROWS: u64 = 40_000;
    for (seed, truncate) in [(70, false), (71, true)] {
        let (disk, engine, t, mut s) = database(seed);
        for n in 0..ROWS {
            insert(&mut s, &t, n, &[b'x'; 400]).unwrap();
        }
        engine.flush_log();
        disk.crash(&mut Rng::new(seed));
        std::mem::forget(s);
        give_up(&engine);
        drop((t, engine));
        let engine = open(&disk);
        match truncate {
            true => engine.truncate_table("d/t", 1, &NOWAIT).unwrap(),
            false => engine.drop_table("d/t", &NOWAIT).unwrap(),
        }
        let engine = again(&disk, engine, truncate);
        let t = match truncate {
            true => engine.dict().open_table("d/t").unwrap(),
            false => create(&engine, "d/new"),
        };
        let mut s = Session::new(&engine, 0, 1);
        for n in 0..100 {
            insert(&mut s, &t, n, b"of the new table").unwrap();
        }
        s.commit(false).unwrap();
        wait_until("the end of the rollback", || engine.trx_rows().is_empty());
        assert_eq!(scan(&mut s, &t, 0).len(), 100);
        drop(s);
        check(&engine, &t);
        engine.close().unwrap();
    }
}

/// A prepared transaction without a session that has changed more than the pool holds, a page of which cannot be read
/// sooner or later while it is rolled back; and the rows before it.
fn rollback_will_fail(settings: Config) -> (SimStorage, Arc<Engine>, BTreeMap<u64, Vec<u8>>) {
    let disk = SimStorage::new(80);
    let storage = Arc::new(disk.boot());
    let engine = Engine::open(settings, storage, Arc::new(SilentCallbacks)).unwrap();
    let t = create(&engine, "d/t");
    let mut s = Session::new(&engine, 0, 1);
    let text = [b'x'; 700];
    for n in 0..12_000 {
        insert(&mut s, &t, n, &text).unwrap();
    }
    s.commit(false).unwrap();
    let before = scan(&mut s, &t, 0);
    s.commit(false).unwrap();
    for n in 0..12_000 {
        update(&mut s, &t, n, &text, b"short").unwrap();
    }
    s.prepare(&xid("x")).unwrap();
    drop((s, t));
    // Not all reads are needed: what was read ahead is read again, and an empty leaf whose neighbour cannot be read
    // stays.
    engine.set("read_ahead", 0).unwrap();
    for nth in 40..60 {
        disk.inject_in(Fault::FailRead, nth, "store.");
    }
    (disk, engine, before)
}

/// A rollback by xid that fails half way can be repeated; a commit is refused from there on.
#[test]
fn a_decision_that_failed_can_be_repeated() {
    let (disk, engine, before) = rollback_will_fail(config());
    let failed = engine.rollback_by_xid(&xid("x"));
    disk.clear_faults();
    assert!(matches!(failed, Err(Error::Io(_))), "{failed:?}");
    assert_eq!(engine.prepared_xids(), [xid("x")]);
    assert_eq!(engine.commit_by_xid(&xid("x")), Err(Error::RolledBack));
    // Nothing of it comes to anybody any more: what it cannot read may be dropped.
    engine.wait_for_prepared("d/t", &NOWAIT).unwrap();
    engine.rollback_by_xid(&xid("x")).unwrap();
    assert_eq!(engine.rollback_by_xid(&xid("x")), Err(Error::NotFound));
    assert_eq!(rows_of(&engine, "d/t"), before);
    engine.close().unwrap();
}

/// If the server has forgotten the name, nobody can repeat it: the engine does, or the next start.
#[test]
fn a_rollback_that_failed_and_that_nobody_can_ask_for_again_is_repeated() {
    for crash in [false, true] {
        let settings = Config {
            retry_rollback_ms: if crash { 60_000 } else { 200 },
            ..config()
        };
        let (disk, mut engine, before) = rollback_will_fail(settings);
        let failed = engine.roll_back_forgotten(&xid("x"));
        disk.clear_faults();
        assert!(matches!(failed, Err(Error::Io(_))), "{failed:?}");
        assert_eq!(engine.prepared_xids(), []);
        let again = engine.roll_back_forgotten(&xid("x"));
        assert_eq!(again, Err(Error::NotFound));
        engine.wait_for_prepared("d/t", &NOWAIT).unwrap();
        if crash {
            engine = self::again(&disk, engine, true);
            assert_eq!(engine.prepared_xids(), []);
        }
        wait_until("the rollback", || engine.trx_rows().is_empty());
        assert_eq!(rows_of(&engine, "d/t"), before);
        engine.close().unwrap();
    }
}

/// Whether another session could change row 1, which is "read", at once.
fn changed_by_another(engine: &Arc<Engine>, t: &Arc<Table>) -> Result<(), Error> {
    let mut other = Session::new(engine, 0, 2);
    other.set_lock_wait_timeout_ms(0);
    other.begin_statement(Isolation::RepeatableRead);
    let changed = update(&mut other, t, 1, b"read", b"other");
    other.rollback().unwrap();
    changed
}

/// A prepared transaction keeps what guards its reads until it is told that the decision may take
/// long; at SERIALIZABLE to its end.
#[test]
fn reads_are_guarded_over_a_prepare() {
    for level in [Isolation::RepeatableRead, Isolation::Serializable] {
        let (_disk, engine, t, mut s) = database(39);
        insert(&mut s, &t, 1, b"read").unwrap();
        s.commit(false).unwrap();
        s.begin_statement(level);
        let mut cursor = Cursor::new(&t, 0, ReadMode::Shared, WaitMode::Wait);
        cursor.seek(&mut s, &key(1), SeekMode::Exact, true).unwrap();
        insert(&mut s, &t, 2, b"made of it").unwrap();
        s.prepare(&xid("reads")).unwrap();
        let change = || changed_by_another(&engine, &t);
        assert_eq!(change(), Err(Error::LockTimeout));
        s.release_reads();
        let guarded = level == Isolation::Serializable;
        assert_eq!(change().is_err(), guarded, "{level:?}");
        s.commit_ordered();
        s.commit_finish(true).unwrap();
        change().unwrap();
        check(&engine, &t);
        drop((cursor, s));
        engine.close().unwrap();
    }
}

/// A commit in one phase may be put in order first, as of a worker of a replica: the next transaction
/// goes on before it is durable, and is durable after it.
#[test]
fn one_phase_in_order() {
    let (disk, engine, t, mut s) = database(42);
    insert(&mut s, &t, 1, b"none").unwrap();
    s.commit(false).unwrap();
    assert!(!s.commit_ordered(), "there is nothing to commit");
    update(&mut s, &t, 1, b"none", b"first").unwrap();
    let mut next = Session::new(&engine, 0, 2);
    next.set_lock_wait_timeout_ms(0);
    let change = |next: &mut Session| update(next, &t, 1, b"first", b"second");
    assert_eq!(change(&mut next), Err(Error::LockTimeout));
    next.rollback().unwrap();
    assert!(s.commit_ordered());
    assert!(!s.commit_ordered(), "it has its place");
    change(&mut next).unwrap();
    assert!(next.commit_ordered());
    next.commit_finish(true).unwrap();
    // The machine dies before the first one is answered.
    disk.crash(&mut Rng::new(1));
    give_up(&engine);
    s.abandon();
    next.abandon();
    drop((t, engine));
    let engine = open(&disk);
    let t = engine.dict().open_table("d/t").unwrap();
    let mut s = Session::new(&engine, 0, 1);
    assert_eq!(
        scan(&mut s, &t, 0),
        BTreeMap::from([(1, b"second".to_vec())])
    );
    drop((s, t));
    engine.close().unwrap();
}

/// A transaction that only reads before XA PREPARE has a snapshot and locks of nothing that will be
/// decided: they go, whoever decides and when. At SERIALIZABLE its locks stay.
#[test]
fn who_has_only_read_lets_go_at_prepare() {
    for level in [Isolation::RepeatableRead, Isolation::Serializable] {
        let (_disk, engine, t, mut s) = database(40);
        insert(&mut s, &t, 1, b"read").unwrap();
        s.commit(false).unwrap();
        s.begin_statement(level);
        s.open_snapshot();
        let mut cursor = Cursor::new(&t, 0, ReadMode::Exclusive, WaitMode::Wait);
        cursor.seek(&mut s, &key(1), SeekMode::Exact, true).unwrap();
        s.prepare(&xid("reads only")).unwrap();
        let snapshots = || engine.snapshot_rows().len();
        assert_eq!(snapshots(), 1);
        let change = || changed_by_another(&engine, &t);
        assert_eq!(change(), Err(Error::LockTimeout));
        s.release_reads();
        assert_eq!(snapshots(), 0, "{level:?}");
        let guarded = level == Isolation::Serializable;
        assert_eq!(change().is_err(), guarded, "{level:?}");
        assert!(!s.commit_ordered(), "there is nothing to commit");
        s.commit_finish(true).unwrap();
        change().unwrap();
        drop((cursor, s));
        engine.close().unwrap();
    }
}

/// A commit by xid is counted for the tables that it has changed, and for no others; a rollback for none.
#[test]
fn a_commit_by_xid_is_counted_for_its_tables() {
    let (disk, mut engine, t, s) = database(92);
    create(&engine, "d/other");
    drop((t, s));
    let counts = |engine: &Engine| ["d/t", "d/other"].map(|t| engine.decided_commits(t).unwrap());
    for crash in [None, Some(false), Some(true)] {
        for commit in [true, false] {
            let t = engine.dict().open_table("d/t").unwrap();
            let mut s = Session::new(&engine, 0, 1);
            insert(&mut s, &t, 7, b"prepared").unwrap();
            s.prepare(&xid("x")).unwrap();
            s.detach_prepared();
            drop((s, t));
            if let Some(crash) = crash {
                engine = again(&disk, engine, crash);
            }
            let before = counts(&engine);
            decide(&engine, &xid("x"), commit);
            let [of_changed, of_other] = counts(&engine);
            assert_eq!(of_changed != before[0], commit, "after a crash: {crash:?}");
            assert_eq!(of_other, before[1], "after a crash: {crash:?}");
            let t = engine.dict().open_table("d/t").unwrap();
            let mut s = Session::new(&engine, 0, 1);
            if commit {
                delete(&mut s, &t, 7, b"prepared").unwrap();
            }
            s.commit(false).unwrap();
        }
    }
    assert_eq!(engine.decided_commits("d/gone"), Err(Error::NotFound));
    engine.close().unwrap();
}

/// Two transactions under one xid: the server does not let that come, but none is lost.
#[test]
fn two_prepared_under_one_xid_are_decided_one_after_the_other() {
    let (_disk, engine, t, mut s) = database(91);
    let xid = xid("twice");
    for n in [1, 2] {
        let mut s = Session::new(&engine, 0, n);
        insert(&mut s, &t, n, b"row").unwrap();
        s.prepare(&xid).unwrap();
    }
    assert_eq!(engine.prepared_xids(), std::slice::from_ref(&xid));
    engine.commit_by_xid(&xid).unwrap();
    assert_eq!(engine.prepared_xids(), std::slice::from_ref(&xid));
    engine.rollback_by_xid(&xid).unwrap();
    assert_eq!(engine.prepared_xids(), []);
    assert_eq!(engine.commit_by_xid(&xid), Err(Error::NotFound));
    assert_eq!(scan(&mut s, &t, 0), BTreeMap::from([(1, b"row".to_vec())]));
    insert(&mut s, &t, 2, b"anew").unwrap();
    s.commit(false).unwrap();
    drop(s);
    check(&engine, &t);
    engine.close().unwrap();
}

/// The answer to the rollback of a prepared transaction holds, whoever gives it: the prepared state
/// was on disk, and a crash must not bring it back.
#[test]
fn an_answered_rollback_outlives_a_crash() {
    for by_xid in [false, true] {
        let (disk, engine, t, mut s) = database(37);
        insert(&mut s, &t, 1, b"one").unwrap();
        s.commit(false).unwrap();
        update(&mut s, &t, 1, b"one", b"first").unwrap();
        s.prepare(&xid("x")).unwrap();
        if by_xid {
            s.detach_prepared();
            engine.rollback_by_xid(&xid("x")).unwrap();
        } else {
            s.rollback().unwrap();
        }
        disk.crash(&mut Rng::new(2));
        give_up(&engine);
        drop((s, t, engine));
        let engine = open(&disk);
        let found = engine.commit_by_xid(&xid("x"));
        assert_eq!(found, Err(Error::NotFound), "by xid: {by_xid}");
        engine.close().unwrap();
    }
}

/// What a replica's worker has prepared keeps nothing but its changes, and keeps those from a waiter
/// that had stood behind a lock of its.
#[test]
fn a_replica_keeps_its_changes_alone() {
    let (_disk, engine, t, mut s) = database(40);
    for n in [1, 5, 9] {
        insert(&mut s, &t, n, b"row").unwrap();
    }
    s.commit(false).unwrap();
    s.begin_statement(Isolation::RepeatableRead);
    let mut cursor = Cursor::new(&t, 0, ReadMode::Exclusive, WaitMode::Wait);
    let mut more = cursor.first(&mut s).map(drop);
    while more.is_ok() {
        more = cursor.next(&mut s).map(drop);
    }
    update(&mut s, &t, 5, b"row", b"changed").unwrap();
    let waiter = {
        let (engine, t) = (engine.clone(), t.clone());
        thread::spawn("waiter", move || {
            let mut w = Session::new(&engine, 0, 2);
            w.set_lock_wait_timeout_ms(20_000);
            w.begin_statement(Isolation::RepeatableRead);
            update(&mut w, &t, 5, b"changed", b"after it").unwrap();
            w.commit(false).unwrap();
        })
    };
    wait_until("somebody waits", || {
        metric(&engine, "row_lock_current_waits") == 1
    });
    s.prepare(&xid("worker")).unwrap();
    s.release_all_but_changes();
    let mut other = Session::new(&engine, 0, 3);
    other.set_lock_wait_timeout_ms(0);
    other.begin_statement(Isolation::RepeatableRead);
    update(&mut other, &t, 1, b"row", b"free").unwrap();
    insert(&mut other, &t, 4, b"gap").unwrap();
    insert(&mut other, &t, 99, b"end").unwrap();
    assert_eq!(
        update(&mut other, &t, 5, b"changed", b"no"),
        Err(Error::LockTimeout)
    );
    other.commit(false).unwrap();
    thread::sleep_ms(50);
    assert!(!waiter.is_finished(), "it came past what is prepared");
    s.commit_ordered();
    s.commit_finish(true).unwrap();
    waiter.join().unwrap();
    let rows = scan(&mut s, &t, 0);
    assert_eq!(rows[&5], b"after it");
    s.commit(false).unwrap();
    check(&engine, &t);
    drop((cursor, s, other));
    engine.close().unwrap();
}

/// What waits for its decision reads no more: its snapshot must not keep history for days.
#[test]
fn a_prepared_transaction_without_a_session_holds_no_snapshot() {
    let (_disk, engine, t, mut s) = database(41);
    insert(&mut s, &t, 1, b"row").unwrap();
    s.commit(false).unwrap();
    s.begin_statement(Isolation::RepeatableRead);
    assert_eq!(scan(&mut s, &t, 0).len(), 1);
    insert(&mut s, &t, 2, b"row").unwrap();
    assert_eq!(engine.snapshot_rows().len(), 1);
    s.prepare(&xid("x")).unwrap();
    s.detach_prepared();
    assert_eq!(engine.snapshot_rows().len(), 0);
    s.commit_prepared(&xid("x")).unwrap();
    assert_eq!(s.commit_prepared(&xid("x")), Err(Error::NotFound));
    assert_eq!(scan(&mut s, &t, 0).len(), 2);
    s.commit(false).unwrap();
    check(&engine, &t);
    drop(s);
    engine.close().unwrap();
}
