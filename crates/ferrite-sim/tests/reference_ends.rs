//! Races of looks at the parent of a foreign key with parents that move between leaves. One test at a
//! time: the places where they stop belong to the process.

mod common;

use common::open;
use ferrite_engine::{
    DupInfo, Engine, Entry, IndexSpec, Peer, Role, RowChange, Session, Table, TableSpec,
};
use ferrite_io::sim::SimStorage;
use ferrite_sync::stop::{arm_nth, disarm, Action};
use ferrite_sync::Arc;
use std::sync::{Mutex, MutexGuard};

fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(|e| e.into_inner())
}

const PLACE: &str = "reference.leaf_left";
const ROWS: u64 = 60;
/// The parts that children refer to, before the one that tells rows apart.
const REFERRED: &[u8] = b"parent";

fn create(engine: &Engine) -> Arc<Table> {
    let indexes = vec![
        IndexSpec::new("PRIMARY", true, 1),
        IndexSpec::new("k", false, 2),
    ];
    let spec = TableSpec::new("d/p", indexes);
    engine.dict().create_table(spec, 1).unwrap()
}

/// So large that there are many leaves.
fn secondary(at: u64) -> Vec<u8> {
    [REFERRED, &at.to_be_bytes()[..], &[0; 1200]].concat()
}

fn entry(key: &[u8]) -> Entry<'_> {
    Entry {
        index_no: 1,
        check_unique: false,
        key,
        payload: b"",
    }
}

fn insert(s: &mut Session, t: &Arc<Table>, n: u64, at: u64) {
    let (pk, key) = (n.to_be_bytes(), secondary(at));
    let dup = &mut DupInfo::default();
    s.insert_row(t, Some(&pk), &[0; 100], &[entry(&key)], false, dup)
        .unwrap();
}

fn delete(s: &mut Session, t: &Arc<Table>, n: u64, at: u64) {
    let key = secondary(at);
    s.delete_row(t, &n.to_be_bytes(), &[entry(&key)]).unwrap();
}

/// How the parent's entry goes from one place to another.
#[derive(Clone, Copy, Debug)]
enum Way {
    /// A later part of the key changes.
    Part,
    /// The primary key behind it changes.
    PrimaryKey,
    /// The row goes, and another one with the same key comes.
    Another,
}

impl Way {
    fn go(self, engine: &Arc<Engine>, t: &Arc<Table>, from: (u64, u64), to: u64) -> (u64, u64) {
        let mut s = Session::new(engine, 0, 2);
        let dup = &mut DupInfo::default();
        let (old, new) = (secondary(from.1), secondary(to));
        let pk = match self {
            Way::Part => from.0,
            Way::PrimaryKey | Way::Another => from.0 + 1000,
        };
        let (was, is) = (from.0.to_be_bytes(), pk.to_be_bytes());
        match self {
            Way::Another => {
                insert(&mut s, t, pk, to);
                delete(&mut s, t, from.0, from.1);
            }
            Way::Part | Way::PrimaryKey => s
                .update_row(
                    t,
                    &RowChange {
                        old_pk: &was,
                        new_pk: &is,
                        payload: &[0; 100],
                        removed: &[entry(&old)],
                        added: &[entry(&new)],
                    },
                    dup,
                )
                .unwrap(),
        }
        s.commit(false).unwrap();
        (pk, to)
    }
}

/// Story: a parent is looked for on several leaves; all entries before and behind it are deleted. When the
/// look has left a leaf, the parent's entry moves behind it, or, a few times, back and forth.
/// Stops: look at the n-th `reference.leaf_left`; move; commit; the look goes on.
/// Expected: the parent is there, as it was at every moment.
#[test]
fn a_parent_that_moves_is_not_missed() {
    let _alone = alone();
    for way in [Way::Part, Way::PrimaryKey, Way::Another] {
        for nth in 1..=3 {
            let disk = SimStorage::new(nth);
            let engine = open(&disk);
            let t = create(&engine);
            engine.set("purge_paused", 1).unwrap();
            let mut s = Session::new(&engine, 0, 1);
            (1..=ROWS).for_each(|n| insert(&mut s, &t, n, n * 10));
            s.commit(false).unwrap();
            (1..ROWS).for_each(|n| delete(&mut s, &t, n, n * 10));
            let (e, table) = (engine.clone(), t.clone());
            let moves = Mutex::new((0, (ROWS, ROWS * 10)));
            let go = move || {
                let mut moves = moves.lock().unwrap();
                let (count, at) = &mut *moves;
                *count += 1;
                if *count <= 5 {
                    let to = if at.1 > 300 { 1 + *count } else { 600 + *count };
                    *at = way.go(&e, &table, *at, to);
                }
            };
            arm_nth(PLACE, nth, Action::callback(go));
            let peer = Peer {
                table: t.clone(),
                index_no: 1,
                row_end: None,
            };
            let found = s.is_there(&peer, REFERRED, Role::Parent);
            disarm(PLACE);
            assert_eq!(found, Ok(true), "{way:?} at leaf {nth}");
            s.rollback().unwrap();
            drop((s, t, peer));
            engine.close().unwrap();
        }
    }
}
