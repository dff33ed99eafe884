//! Looks at the other table of a foreign key: who waits for whom, and who does not. The parent is
//! `d/p`, found by its primary key or by its secondary index `k`; a child of parent n is a row of
//! `d/c` whose text has n bytes (index `k`).

use crate::common::{check, create, delete, give_up, insert, key, open, update, wait_until, xid};
use ferrite_engine::{DupInfo, Engine, Isolation, Peer, Role, RowChange, RowEnd, Session, Table};
use ferrite_io::sim::SimStorage;
use ferrite_sync::random::Rng;
use ferrite_sync::{thread, Arc};
use ferrite_types::{Error, Result};

struct Family {
    disk: SimStorage,
    engine: Arc<Engine>,
    parents: Arc<Table>,
    children: Arc<Table>,
}

/// Text of the child of a parent.
fn of(parent: u64) -> Vec<u8> {
    vec![b'c'; parent as usize]
}

impl Family {
    /// With the parents 1 to 3.
    fn new(seed: u64) -> Family {
        let disk = SimStorage::new(seed);
        let engine = open(&disk);
        let (parents, children) = (create(&engine, "d/p"), create(&engine, "d/c"));
        let family = Family {
            disk,
            engine,
            parents,
            children,
        };
        let mut s = family.session(1);
        for n in 1..4 {
            insert(&mut s, &family.parents, n, b"parent").unwrap();
        }
        s.commit(false).unwrap();
        family
    }

    /// With little patience.
    fn session(&self, id: u64) -> Session {
        let mut s = Session::new(&self.engine, 0, id);
        s.set_lock_wait_timeout_ms(20);
        s
    }

    fn parent(&self, s: &mut Session, n: u64) -> Result<bool> {
        let peer = Peer {
            table: self.parents.clone(),
            index_no: 0,
            row_end: None,
        };
        s.is_there(&peer, &key(n), Role::Parent)
    }

    fn child(&self, s: &mut Session, n: u64) -> Result<bool> {
        let peer = Peer {
            table: self.children.clone(),
            index_no: 1,
            row_end: None,
        };
        s.is_there(&peer, &key(n), Role::Child)
    }

    /// Asks in another thread, patiently.
    fn ask(&self, role: Role, n: u64) -> thread::JoinHandle<Result<bool>> {
        let (table, index_no) = match role {
            Role::Parent => (self.parents.clone(), 0),
            Role::Child => (self.children.clone(), 1),
        };
        let engine = self.engine.clone();
        thread::spawn("asks", move || {
            let mut s = Session::new(&engine, 0, 77);
            s.set_lock_wait_timeout_ms(60_000);
            let got = s.is_there(
                &Peer {
                    table,
                    index_no,
                    row_end: None,
                },
                &key(n),
                role,
            );
            assert_eq!(s.owner().locks_held(), 0, "a look leaves no lock");
            s.rollback().unwrap();
            got
        })
    }

    fn wait_for_waiter(&self) {
        wait_until("a waiter", || self.engine.locks().stats().waiting > 0);
    }
}

/// Live, committed or own: there. Deleted, by a committed transaction or the own one: not there.
#[test]
fn what_is_settled_needs_no_wait() {
    let f = Family::new(1);
    let (mut s, mut other) = (f.session(1), f.session(2));
    assert_eq!(f.parent(&mut s, 1), Ok(true));
    assert_eq!(f.parent(&mut s, 9), Ok(false));
    assert_eq!(f.child(&mut s, 1), Ok(false));
    insert(&mut s, &f.parents, 9, b"own").unwrap();
    delete(&mut s, &f.parents, 1, b"parent").unwrap();
    assert_eq!(f.parent(&mut s, 9), Ok(true));
    assert_eq!(f.parent(&mut s, 1), Ok(false));
    insert(&mut s, &f.children, 5, &of(2)).unwrap();
    assert_eq!(f.child(&mut s, 2), Ok(true));
    delete(&mut s, &f.children, 5, &of(2)).unwrap();
    assert_eq!(f.child(&mut s, 2), Ok(false));
    s.commit(false).unwrap();
    assert_eq!(f.parent(&mut other, 1), Ok(false));
    assert_eq!(f.parent(&mut other, 9), Ok(true));
    assert_eq!(f.child(&mut other, 2), Ok(false));
}

/// A snapshot, of any isolation, changes nothing: what is committed counts.
#[test]
fn the_snapshot_does_not_matter() {
    let f = Family::new(2);
    for isolation in [
        Isolation::ReadUncommitted,
        Isolation::ReadCommitted,
        Isolation::RepeatableRead,
        Isolation::Serializable,
    ] {
        let (mut s, mut other) = (f.session(1), f.session(2));
        s.begin_statement(isolation);
        s.open_snapshot();
        insert(&mut other, &f.parents, 50, b"new").unwrap();
        delete(&mut other, &f.parents, 3, b"parent").unwrap();
        assert_eq!(f.parent(&mut s, 3), Err(Error::LockTimeout));
        assert_eq!(f.parent(&mut s, 50), Err(Error::LockTimeout));
        other.commit(false).unwrap();
        assert_eq!(f.parent(&mut s, 3), Ok(false));
        assert_eq!(f.parent(&mut s, 50), Ok(true));
        s.rollback().unwrap();
        delete(&mut other, &f.parents, 50, b"new").unwrap();
        insert(&mut other, &f.parents, 3, b"parent").unwrap();
        other.commit(false).unwrap();
    }
}

/// The hot parent: others change its other columns, and nobody waits for that.
#[test]
fn an_update_of_other_columns_does_not_hold_up_children() {
    let f = Family::new(3);
    let (mut s, mut other) = (f.session(1), f.session(2));
    update(&mut other, &f.parents, 1, b"parent", b"changed").unwrap();
    assert_eq!(f.parent(&mut s, 1), Ok(true));
    update(&mut other, &f.parents, 1, b"changed", b"again").unwrap();
    assert_eq!(f.parent(&mut s, 1), Ok(true));
    assert_eq!(s.owner().locks_held(), 0);
    other.rollback().unwrap();
    assert_eq!(f.parent(&mut s, 1), Ok(true));
}

/// Removed and brought back by one transaction: a savepoint may take back the half of it.
#[test]
fn a_parent_that_came_back_is_waited_for() {
    let f = Family::new(4);
    let (mut s, mut other) = (f.session(1), f.session(2));
    delete(&mut other, &f.parents, 1, b"parent").unwrap();
    let savepoint = other.undo_position();
    insert(&mut other, &f.parents, 1, b"parent").unwrap();
    assert_eq!(f.parent(&mut s, 1), Err(Error::LockTimeout));
    let asked = f.ask(Role::Parent, 1);
    f.wait_for_waiter();
    other.rollback_to(savepoint).unwrap();
    other.commit(false).unwrap();
    assert_eq!(asked.join().unwrap(), Ok(false));
    // The next transaction of that session has not removed anything.
    insert(&mut other, &f.parents, 1, b"parent").unwrap();
    other.commit(false).unwrap();
    update(&mut other, &f.parents, 1, b"parent", b"changed").unwrap();
    assert_eq!(f.parent(&mut s, 1), Ok(true));
    other.rollback().unwrap();
}

/// A savepoint brings a deleted parent or child back: its look waits for the end, not for that.
#[test]
fn a_savepoint_brings_it_back() {
    let f = Family::new(5);
    let mut other = f.session(2);
    insert(&mut other, &f.children, 8, &of(2)).unwrap();
    other.commit(false).unwrap();
    insert(&mut other, &f.parents, 40, b"something").unwrap();
    let savepoint = other.undo_position();
    delete(&mut other, &f.parents, 1, b"parent").unwrap();
    delete(&mut other, &f.children, 8, &of(2)).unwrap();
    let (parent, child) = (f.ask(Role::Parent, 1), f.ask(Role::Child, 2));
    wait_until("two waiters", || f.engine.locks().stats().waiting == 2);
    other.rollback_to(savepoint).unwrap();
    other.commit(false).unwrap();
    assert_eq!(parent.join().unwrap(), Ok(true));
    assert_eq!(child.join().unwrap(), Ok(true));
}

/// Each outcome of what is waited for: inserted or deleted, committed or rolled back, prepared before or
/// not, with purge in between.
#[test]
fn every_outcome_is_waited_for() {
    for case in 0..16u32 {
        let (insertion, commit, prepared, is_child) =
            (case & 1 != 0, case & 2 != 0, case & 4 != 0, case & 8 != 0);
        let f = Family::new(100 + u64::from(case));
        let mut other = f.session(2);
        let (role, n) = match is_child {
            false => (Role::Parent, 2),
            true => (Role::Child, 2),
        };
        if is_child && !insertion {
            insert(&mut other, &f.children, 8, &of(2)).unwrap();
            other.commit(false).unwrap();
        }
        if !is_child && insertion {
            delete(&mut other, &f.parents, 2, b"parent").unwrap();
            other.commit(false).unwrap();
        }
        match (is_child, insertion) {
            (true, true) => insert(&mut other, &f.children, 8, &of(2)).unwrap(),
            (true, false) => delete(&mut other, &f.children, 8, &of(2)).unwrap(),
            (false, true) => insert(&mut other, &f.parents, 2, b"parent").unwrap(),
            (false, false) => delete(&mut other, &f.parents, 2, b"parent").unwrap(),
        }
        if prepared {
            other.prepare(&xid("x")).unwrap();
            drop(other);
            let asked = f.ask(role, n);
            f.wait_for_waiter();
            match commit {
                true => f.engine.commit_by_xid(&xid("x")).unwrap(),
                false => f.engine.rollback_by_xid(&xid("x")).unwrap(),
            }
            assert_eq!(asked.join().unwrap(), Ok(insertion == commit), "{case}");
        } else {
            let asked = f.ask(role, n);
            f.wait_for_waiter();
            match commit {
                true => other.commit(false).unwrap(),
                false => other.rollback().unwrap(),
            }
            assert_eq!(asked.join().unwrap(), Ok(insertion == commit), "{case}");
        }
    }
}

/// A prepared transaction from before a crash: earlier states are gone, so even the update of other
/// columns is waited for.
#[test]
fn prepared_before_a_crash() {
    for commit in [false, true] {
        let f = Family::new(6);
        let mut other = f.session(2);
        delete(&mut other, &f.parents, 1, b"parent").unwrap();
        update(&mut other, &f.parents, 2, b"parent", b"changed").unwrap();
        other.prepare(&xid("x")).unwrap();
        f.engine.flush_log();
        f.disk.crash(&mut Rng::new(1));
        give_up(&f.engine);
        drop(other);
        let Family { disk, .. } = f;
        let engine = open(&disk);
        let f = Family {
            disk,
            parents: engine.dict().open_table("d/p").unwrap(),
            children: engine.dict().open_table("d/c").unwrap(),
            engine,
        };
        let mut s = f.session(1);
        assert_eq!(f.parent(&mut s, 1), Err(Error::LockTimeout));
        assert_eq!(f.parent(&mut s, 3), Ok(true));
        match commit {
            true => f.engine.commit_by_xid(&xid("x")).unwrap(),
            false => f.engine.rollback_by_xid(&xid("x")).unwrap(),
        }
        assert_eq!(f.parent(&mut s, 1), Ok(!commit));
        assert_eq!(f.parent(&mut s, 2), Ok(true));
        drop(s);
        f.engine.close().unwrap();
    }
}

/// Two sessions, each has written and looks for what the other one did: one of them gives way, and no
/// orphan is left, whoever it is.
#[test]
fn both_write_first_so_one_gives_way() {
    for round in 0..20 {
        let f = Family::new(200 + round);
        let delete_parent = {
            let (engine, parents, children) =
                (f.engine.clone(), f.parents.clone(), f.children.clone());
            thread::spawn("deletes", move || {
                let mut s = Session::new(&engine, 0, 11);
                let peer = Peer {
                    table: children,
                    index_no: 1,
                    row_end: None,
                };
                let done = delete(&mut s, &parents, 1, b"parent")
                    .and_then(|()| s.is_there(&peer, &key(1), Role::Child));
                end(&mut s, done == Ok(false))
            })
        };
        let mut s = Session::new(&f.engine, 0, 12);
        let done = insert(&mut s, &f.children, 8, &of(1)).and_then(|()| f.parent(&mut s, 1));
        let inserted = end(&mut s, done == Ok(true));
        let deleted = delete_parent.join().unwrap();
        assert!(!(inserted && deleted), "an orphan");
        check(&f.engine, &f.children);
        let (parent, child) = (f.parent(&mut s, 1), f.child(&mut s, 1));
        assert_eq!((parent, child), (Ok(!deleted), Ok(inserted)));
    }
}

fn end(s: &mut Session, good: bool) -> bool {
    match good {
        true => s.commit(false).unwrap(),
        false => s.rollback().unwrap(),
    }
    good
}

/// Entries with the same parts, on many leaves, most of them deleted: the one that is left is found; a table
/// that is dropped is none to look in.
#[test]
fn among_many_entries() {
    let f = Family::new(7);
    let mut s = f.session(1);
    for n in 0..3_000 {
        insert(&mut s, &f.children, n, &of(2)).unwrap();
    }
    s.commit(false).unwrap();
    for n in 0..2_999 {
        delete(&mut s, &f.children, n, &of(2)).unwrap();
    }
    assert_eq!(f.child(&mut s, 2), Ok(true));
    assert_eq!(f.child(&mut s, 1), Ok(false));
    delete(&mut s, &f.children, 2_999, &of(2)).unwrap();
    assert_eq!(f.child(&mut s, 2), Ok(false));
    s.commit(false).unwrap();
    assert_eq!(f.child(&mut s, 2), Ok(false));
    let caller = ferrite_engine::DdlCaller {
        thd: 0,
        wait_ms: 0,
        references: ferrite_engine::References::Any,
    };
    f.engine.drop_table("d/c", &caller).unwrap();
    assert_eq!(f.child(&mut s, 2), Err(Error::TableChanged));
}

const NO_END: [u8; 7] = [0x7f, 0xff, 0xff, 0xff, 0x0f, 0x42, 0x3f];

/// Nor does a primary key that names the start of the row's life: here the entries are the rows.
#[test]
fn rows_of_the_past_behind_a_primary_key_that_does_not_tell() {
    let f = Family::new(9);
    let t = f.children.clone();
    let peer = Peer {
        table: t.clone(),
        index_no: 0,
        row_end: Some(RowEnd::Row { at: 0 }),
    };
    let (mut s, mut other) = (f.session(1), f.session(2));
    let past = [[1; 7], [2; 7]].concat();
    insert(&mut s, &t, 40, &past).unwrap();
    s.commit(false).unwrap();
    assert_eq!(s.is_there(&peer, &key(40), Role::Parent), Ok(false));
    let whole = key(40);
    assert_eq!(s.is_there(&peer, &whole[..7], Role::Parent), Ok(false));
    insert(&mut s, &t, 41, &[NO_END, [2; 7]].concat()).unwrap();
    assert_eq!(s.is_there(&peer, &key(41), Role::Parent), Ok(true), "own");
    assert_eq!(s.is_there(&peer, &whole[..7], Role::Parent), Ok(true));
    let looked = other.is_there(&peer, &key(41), Role::Parent);
    assert_eq!(looked, Err(Error::LockTimeout), "not committed");
    s.commit(false).unwrap();
    assert_eq!(other.is_there(&peer, &key(41), Role::Parent), Ok(true));
}

/// A table that keeps its history and has no primary key: the entries do not tell which rows are of the
/// past, the rows do.
#[test]
fn rows_of_the_past_behind_entries_that_do_not_tell() {
    for role in [Role::Parent, Role::Child] {
        let f = Family::new(8);
        let t = f.children.clone();
        let text = |number: u8, lives: bool| match lives {
            true => [&NO_END[..], &[number; 20]].concat(),
            false => [&[1; 7][..], &[number; 20]].concat(),
        };
        let peer = Peer {
            table: t.clone(),
            index_no: 1,
            row_end: Some(RowEnd::Row { at: 0 }),
        };
        let prefix = key(27);
        let (mut s, mut other) = (f.session(1), f.session(2));
        for n in 0..200 {
            insert(&mut s, &t, n, &text(n as u8, false)).unwrap();
        }
        assert_eq!(s.is_there(&peer, &prefix, role), Ok(false), "own past");
        s.commit(false).unwrap();
        assert_eq!(s.is_there(&peer, &prefix, role), Ok(false), "past");
        insert(&mut s, &t, 150_000, &text(1, true)).unwrap();
        assert_eq!(s.is_there(&peer, &prefix, role), Ok(true), "own");
        let looked = other.is_there(&peer, &prefix, role);
        assert_eq!(looked, Err(Error::LockTimeout), "not committed");
        s.commit(false).unwrap();
        assert_eq!(other.is_there(&peer, &prefix, role), Ok(true), "live");
        // The row becomes one of the past: its entry stays as it is.
        let ends = |s: &mut Session| {
            let payload = [&[0][..], &text(1, false)].concat();
            let (pk, dup) = (key(150_000), &mut DupInfo::default());
            s.update_row(
                &t,
                &RowChange {
                    old_pk: &pk,
                    new_pk: &pk,
                    payload: &payload,
                    removed: &[],
                    added: &[],
                },
                dup,
            )
            .unwrap();
        };
        ends(&mut s);
        assert_eq!(s.is_there(&peer, &prefix, role), Ok(false), "own deletion");
        let looked = other.is_there(&peer, &prefix, role);
        assert_eq!(looked, Err(Error::LockTimeout), "by an active one");
        s.rollback().unwrap();
        assert_eq!(other.is_there(&peer, &prefix, role), Ok(true), "came back");
        ends(&mut s);
        s.commit(false).unwrap();
        assert_eq!(other.is_there(&peer, &prefix, role), Ok(false), "gone");
        assert_eq!(other.owner().locks_held(), 0, "a look leaves no lock");
    }
}
