//! A rollback that stops half way, at a page that cannot be read: nothing may be built on what is
//! left, nor be committed, and the next rollback goes on.

use crate::common::{
    check, database, delete, give_up, insert, open, scan, update, wait_until, xid, Rows,
};
use ferrite_engine::{Engine, Isolation, Session, Table};
use ferrite_io::sim::{Fault, SimStorage};
use ferrite_sync::random::Rng;
use ferrite_sync::Arc;
use ferrite_types::{Error, UndoPosition};

const ROWS: u64 = 9_000;
const TEXT: [u8; 700] = [b'x'; 700];

/// What is undone in part.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Part {
    Statement,
    Savepoint,
    All,
}

/// Reads fail soon, one after the other: one may be of a page that a leaf could be merged with, which a rollback
/// does without.
fn fail_reads(disk: &SimStorage) {
    (40..48).for_each(|n| disk.inject_in(Fault::FailRead, n, "store."));
}

/// A transaction with a row before the statement that could not be undone, and the table without it.
fn half_undone(seed: u64, part: Part) -> (SimStorage, Arc<Engine>, Arc<Table>, Session, Rows) {
    let (disk, engine, t, mut s) = database(seed);
    // Those who read ahead would meet the faults, and say nothing.
    engine.set("read_ahead", 0).unwrap();
    for n in 0..ROWS {
        insert(&mut s, &t, n, &TEXT).unwrap();
    }
    s.commit(false).unwrap();
    let before = scan(&mut s, &t, 0);
    s.commit(false).unwrap();
    s.begin_statement(Isolation::RepeatableRead);
    insert(&mut s, &t, ROWS, b"of an earlier statement").unwrap();
    s.end_statement();
    let savepoint = s.savepoint().unwrap();
    s.begin_statement(Isolation::RepeatableRead);
    for n in 0..ROWS {
        update(&mut s, &t, n, &TEXT, b"short").unwrap();
    }
    // The pool holds a part of the table only: sooner or later a page cannot be read.
    fail_reads(&disk);
    let failed = match part {
        Part::Statement => s.rollback_statement(),
        Part::Savepoint => s.rollback_to(savepoint),
        Part::All => s.rollback(),
    };
    disk.clear_faults();
    assert!(matches!(failed, Err(Error::Io(_))), "{failed:?}");
    (disk, engine, t, s, before)
}

/// What a client may try is refused, with one error.
fn refused(s: &mut Session, t: &Arc<Table>) {
    let only_rollback = Err(Error::RolledBack);
    assert_eq!(s.prepare(&xid("x")), only_rollback);
    assert_eq!(s.commit(false), only_rollback);
    s.commit_ordered();
    assert_eq!(s.commit_finish(true), only_rollback);
    assert_eq!(s.savepoint(), Err(Error::RolledBack));
    assert_eq!(s.rollback_to(UndoPosition::START), only_rollback);
    s.begin_statement(Isolation::RepeatableRead);
    assert_eq!(insert(s, t, ROWS + 1, b"more"), only_rollback);
    assert_eq!(s.write_overflow(t, &[7; 9000]), Err(Error::RolledBack));
    assert_eq!(insert(s, t, ROWS + 1, b"more"), only_rollback);
    assert_eq!(update(s, t, 0, b"short", b"more"), only_rollback);
    assert_eq!(delete(s, t, ROWS - 1, &TEXT), only_rollback);
    // These statements have done nothing that were to be undone.
    assert_eq!(s.rollback_statement(), Ok(()));
    s.end_statement();
    assert!(s.has_changes());
    assert_eq!(s.engine().prepared_xids(), []);
}

#[test]
fn what_is_undone_in_part_can_be_rolled_back_only() {
    for (seed, part) in [(1, Part::Statement), (2, Part::Savepoint), (3, Part::All)] {
        let (disk, engine, t, mut s, before) = half_undone(seed, part);
        refused(&mut s, &t);
        // It fails again, and goes on from where it came.
        fail_reads(&disk);
        let failed = s.rollback();
        disk.clear_faults();
        assert!(matches!(failed, Err(Error::Io(_))), "{part:?}: {failed:?}");
        refused(&mut s, &t);
        s.rollback().unwrap();
        assert!(!s.has_changes() && !s.is_active());
        assert_eq!(scan(&mut s, &t, 0), before, "{part:?}");
        s.commit(false).unwrap();
        insert(&mut s, &t, ROWS, b"of the next one").unwrap();
        s.prepare(&xid("x")).unwrap();
        s.commit(false).unwrap();
        drop(s);
        check(&engine, &t);
        engine.close().unwrap();
    }
}

/// The session goes, or the machine: all of the transaction is undone.
#[test]
fn so_it_is_when_the_session_or_the_machine_goes() {
    for (seed, part) in [(4, Part::Statement), (5, Part::Savepoint), (6, Part::All)] {
        let (disk, engine, t, s, before) = half_undone(seed, part);
        drop(s);
        let mut s = Session::new(&engine, 0, 2);
        assert_eq!(scan(&mut s, &t, 0), before, "{part:?}");
        drop((s, t));
        engine.close().unwrap();
        drop((engine, disk));

        let (disk, engine, t, s, before) = half_undone(seed, part);
        engine.flush_log();
        disk.crash(&mut Rng::new(seed));
        std::mem::forget(s);
        give_up(&engine);
        drop((t, engine));
        let engine = open(&disk);
        wait_until("the end of the rollback", || engine.trx_rows().is_empty());
        let t = engine.dict().open_table("d/t").unwrap();
        let mut s = Session::new(&engine, 0, 1);
        assert_eq!(scan(&mut s, &t, 0), before, "{part:?}");
        drop(s);
        check(&engine, &t);
        engine.close().unwrap();
    }
}
