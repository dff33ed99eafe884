//! Keys and rows near the longest that there may be: pages of few records.

mod common;

use common::{check, give_up, open};
use ferrite_engine::{DupInfo, Engine, Entry, IndexSpec, Session, Table, TableSpec};
use ferrite_io::sim::SimStorage;
use ferrite_sync::random::Rng;
use ferrite_sync::Arc;
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
