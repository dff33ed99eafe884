//! Which rows an index lacks and which of its entries have no row.
//!
//! Only called once the sums of an index and its rows differ: it reads both trees again and
//! keeps a hash of every primary key in memory.

use crate::tree::{primary_key, Tree};
use ferrite_engine::offline::{Offline, Settled};
use ferrite_tree::node;
use std::collections::HashMap;
use std::hash::BuildHasher;

/// Keys named in a message.
const NAMED: usize = 3;

/// A primary key's hash: the same in every run.
pub(crate) fn hash(pk: &[u8]) -> u64 {
    foldhash::fast::FixedState::with_seed(0).hash_one(pk)
}

/// Calls `each` with the primary key of every live entry.
fn live_keys(offline: &Offline, tree: &Tree, each: &mut dyn FnMut(&[u8])) {
    let index = tree.index();
    offline.tree(index, tree.root(), &mut |_, bytes| {
        let mut key = Vec::new();
        for slot in 0..node::count(bytes) {
            let rec = node::record(bytes, slot);
            key.clear();
            node::key_into(bytes, slot, &mut key);
            let settled = offline.settled(index, &key, &rec);
            let (deleted, value) = match &settled {
                Settled::Same => (rec.header.deleted, rec.value),
                Settled::Gone => continue,
                Settled::Other(deleted, value) => (*deleted, value.as_slice()),
            };
            if let Some(pk) = primary_key(tree.number, &key, value).filter(|_| !deleted) {
                each(pk);
            }
        }
    });
}

fn hex(key: &[u8]) -> String {
    key.iter().map(|b| format!("{b:02x}")).collect()
}

fn message(what: &str, index: &str, keys: &[String], count: u64) -> Option<String> {
    (count > 0).then(|| format!("{index}: {count} {what} (primary key {})", keys.join(", ")))
}

/// What differs between an index and the rows, in words.
pub(crate) fn differences(offline: &Offline, rows: &Tree, index: &Tree) -> Vec<String> {
    let mut counts: HashMap<u64, i64> = HashMap::new();
    live_keys(offline, rows, &mut |pk| {
        *counts.entry(hash(pk)).or_insert(0) += 1;
    });
    let (mut extra, mut extra_keys) = (0, Vec::new());
    live_keys(offline, index, &mut |pk| {
        let left = counts.entry(hash(pk)).or_insert(0);
        *left -= 1;
        if *left < 0 {
            extra += 1;
            if extra_keys.len() < NAMED {
                extra_keys.push(hex(pk));
            }
        }
    });
    let (mut missing, mut missing_keys) = (0, Vec::new());
    live_keys(offline, rows, &mut |pk| {
        if counts.get(&hash(pk)).is_some_and(|left| *left > 0) {
            missing += 1;
            if missing_keys.len() < NAMED {
                missing_keys.push(hex(pk));
            }
        }
    });
    let name = index.name();
    let missing = message("rows without an entry", &name, &missing_keys, missing);
    let extra = message("entries without a row", &name, &extra_keys, extra);
    missing.into_iter().chain(extra).collect()
}
