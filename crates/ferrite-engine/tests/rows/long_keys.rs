//! Keys and rows near the longest that there may be: pages of few records.

use crate::common::{check, give_up, open, wait_until};
use ferrite_engine::{DupInfo, Engine, Entry, IndexSpec, RowChange, Session, Table, TableSpec};
use ferrite_io::sim::SimStorage;
use ferrite_sync::random::Rng;
use ferrite_sync::Arc;
use ferrite_tree::node;
use std::collections::BTreeMap;

fn create(engine: &Engine, indexes: &[(&str, bool)]) -> Arc<Table> {
    let index = |(name, unique): &(&str, bool)| IndexSpec::new(name, *unique, 1);
    let spec = TableSpec {
        definition: b"definition".to_vec(),
        ..TableSpec::new("d/long", indexes.iter().map(index).collect())
    };
    engine.dict().create_table(spec, 1).unwrap()
}

fn insert(s: &mut Session, t: &Arc<Table>, pk: &[u8], payload: &[u8], key: &[u8]) {
    let entry = Entry {
        index_no: 1,
        check_unique: false,
        key,
        payload: b"",
    };
    let dup = &mut DupInfo::default();
    s.insert_row(t, Some(pk), payload, &[entry], false, dup)
        .unwrap();
}

/// Groups of keys with long equal beginnings: within a group the separators are as long, between two groups
/// they are short.
struct Groups {
    fillers: Vec<usize>,
}

impl Groups {
    fn new(rng: &mut Rng) -> Groups {
        let groups = 20 + rng.below(21);
        let least = [2700, 2850, 2950][rng.below(3) as usize];
        let fillers = (0..groups).map(|_| least + rng.below(281) as usize);
        Groups {
            fillers: fillers.collect(),
        }
    }

    fn key(&self, rng: &mut Rng) -> Vec<u8> {
        let group = rng.below(self.fillers.len() as u64) as usize;
        let mut key = format!("{group:04}").into_bytes();
        key.resize(4 + self.fillers[group], b'f');
        key.extend(format!("{:08}", rng.below(100_000_000)).bytes());
        key
    }
}

fn keys_of(t: &Arc<Table>, number: usize) -> BTreeMap<Vec<u8>, bool> {
    let mut found = BTreeMap::new();
    let each = &mut |key: &[u8], rec: ferrite_tree::record::Record<'_>| {
        assert!(found.insert(key.to_vec(), rec.header.deleted).is_none());
        Ok(())
    };
    t.tree(number).check(each).unwrap();
    found
}

/// Separators of nearly a fifth of a page, which become fences of what is split around them.
#[test]
fn long_keys_with_equal_beginnings_split_inner_nodes() {
    for seed in 0..6 {
        let mut rng = Rng::new(seed);
        let disk = SimStorage::new(seed);
        let engine = open(&disk);
        let t = create(&engine, &[("PRIMARY", true), ("k", false)]);
        let mut s = Session::new(&engine, 0, 1);
        let groups = Groups::new(&mut rng);
        let mut model = BTreeMap::new();
        for n in 0..1500u64 {
            let mut key = groups.key(&mut rng);
            insert(&mut s, &t, &n.to_be_bytes(), b"\0row", &key);
            // An entry's key ends with its row's.
            key.extend_from_slice(&n.to_be_bytes());
            model.insert(key, false);
            if n % 50 == 0 {
                s.commit(false).unwrap();
            }
            if n % 250 == 0 {
                assert!(keys_of(&t, 1) == model, "seed {seed}");
            }
        }
        s.commit(true).unwrap();
        assert!(keys_of(&t, 1) == model, "seed {seed}");
        assert!(t.tree(1).height().unwrap() > 3, "seed {seed}");
        // What was logged of it leads to the same.
        disk.power_off();
        give_up(&engine);
        drop((s, t, engine));
        disk.crash(&mut rng);
        let engine = open(&disk);
        let t = engine.dict().open_table("d/long").unwrap();
        check(&engine, &t);
        assert!(keys_of(&t, 1) == model, "seed {seed}");
        engine.close().unwrap();
    }
}

fn long_row(s: &mut Session, t: &Arc<Table>, pk: &[u8], payload_bytes: usize) {
    let payload = vec![0; payload_bytes];
    s.insert_row(t, Some(pk), &payload, &[], false, &mut DupInfo::default())
        .unwrap();
}

fn lengthen(s: &mut Session, t: &Arc<Table>, pk: &[u8], payload_bytes: usize) {
    let change = RowChange {
        old_pk: pk,
        new_pk: pk,
        payload: &vec![0; payload_bytes],
        removed: &[],
        added: &[],
    };
    s.update_row(t, &change, &mut DupInfo::default()).unwrap();
}

/// What was in the way of a longer row has gone: its page need not be split, and with that row alone could
/// not be.
#[test]
fn a_row_of_half_a_page_gets_longer_where_its_neighbour_goes() {
    let disk = SimStorage::new(1);
    let engine = open(&disk);
    let t = create(&engine, &[("PRIMARY", true)]);
    let mut s = Session::new(&engine, 0, 1);
    engine.set("purge_paused", 1).unwrap();
    let (a, b) = ([b'a'; 150], [b'b'; 150]);
    long_row(&mut s, &t, &a, 7950);
    long_row(&mut s, &t, &b, 7950);
    s.commit(false).unwrap();
    s.delete_row(&t, &b, &[]).unwrap();
    s.commit(false).unwrap();
    // Then nobody needs what was deleted. (To look at them makes the list of snapshots anew.)
    wait_until("the end of all snapshots", || {
        engine.snapshot_rows().is_empty()
    });
    assert_eq!(keys_of(&t, 0).len(), 2);
    lengthen(&mut s, &t, &a, 8040);
    assert!(keys_of(&t, 0) == BTreeMap::from([(a.to_vec(), false)]));
    assert_eq!(t.tree(0).height(), Ok(1));
    s.rollback().unwrap();
    lengthen(&mut s, &t, &a, 8050);
    s.commit(false).unwrap();
    engine.set("purge_paused", 0).unwrap();
    check(&engine, &t);
    engine.close().unwrap();
}

#[test]
fn a_longest_record_alone_on_its_page_has_room() {
    let disk = SimStorage::new(2);
    let engine = open(&disk);
    let t = create(&engine, &[("PRIMARY", true)]);
    let mut s = Session::new(&engine, 0, 1);
    let key = [b'k'; 150];
    long_row(&mut s, &t, &key, 8050);
    s.commit(false).unwrap();
    let tree = t.tree(0);
    let need = node::room_for(key.len(), 8050);
    tree.make_room(&key, need, b"").unwrap();
    assert_eq!(tree.height(), Ok(1));
    // A second one has none.
    tree.make_room(&[b'l'; 150], need, b"").unwrap();
    assert_eq!(tree.height(), Ok(2));
    engine.close().unwrap();
}
