//! Rows with an entry in a secondary index that has long keys in no order: some twenty entries are a leaf.

use super::key;
use ferrite_engine::{DupInfo, Entry, Session, Table};
use ferrite_sync::Arc;

/// In no order.
pub fn place(n: u64) -> u64 {
    n.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

pub fn wide(n: u64) -> [u8; 200] {
    let mut key = [0; 200];
    key[..8].copy_from_slice(&place(n).to_be_bytes());
    key
}

pub fn entry(key: &[u8]) -> Entry<'_> {
    Entry {
        index_no: 1,
        check_unique: false,
        key,
        payload: b"",
    }
}

pub fn insert(s: &mut Session, t: &Arc<Table>, n: u64) {
    let k = wide(n);
    let mut dup = DupInfo::default();
    s.insert_row(t, Some(&key(n)), b"\0row", &[entry(&k)], false, &mut dup)
        .unwrap();
}

pub fn delete(s: &mut Session, t: &Arc<Table>, n: u64) {
    s.delete_row(t, &key(n), &[entry(&wide(n))]).unwrap();
}
