//! Secondary entries that a transaction has delete-marked: it must see them before it inserts them
//! again (see `rows::put_off`).
//!
//! Invariant: an entry that was marked and not forgotten with the whole transaction is always among
//! those that [`MarkedKeys::may_have`] names; others may be. Locking: none; a transaction's own.

use ferrite_types::IndexId;
use foldhash::fast::FixedState;
use std::collections::HashSet;
use std::hash::{BuildHasher, Hasher};

/// So many are looked through one by one.
const FEW: usize = 64;
/// So many are told apart; beyond, any entry may be one.
const MOST: usize = 100_000;

/// See the head of the file.
#[derive(Default)]
pub(crate) struct MarkedKeys {
    few: Vec<u64>,
    more: HashSet<u64, FixedState>,
    are_many: bool,
}

fn fingerprint(index: IndexId, key: &[u8]) -> u64 {
    let mut hasher = FixedState::default().build_hasher();
    hasher.write_u32(index.0);
    hasher.write(key);
    hasher.finish()
}

impl MarkedKeys {
    /// That entry was delete-marked.
    pub(crate) fn add(&mut self, index: IndexId, key: &[u8]) {
        if self.are_many {
            return;
        }
        if self.few.len() < FEW {
            self.few.push(fingerprint(index, key));
        } else if self.more.len() < MOST - FEW {
            self.more.insert(fingerprint(index, key));
        } else {
            self.are_many = true;
            self.more = HashSet::default();
        }
        debug_assert!(self.may_have(index, key), "a marked entry is forgotten");
    }

    /// False: that entry was not delete-marked.
    #[inline]
    pub(crate) fn may_have(&self, index: IndexId, key: &[u8]) -> bool {
        debug_assert!(self.few.len() <= FEW && self.more.len() <= MOST);
        if self.are_many || self.few.is_empty() {
            return self.are_many;
        }
        let this = fingerprint(index, key);
        self.few.contains(&this) || (!self.more.is_empty() && self.more.contains(&this))
    }

    /// The next transaction begins.
    pub(crate) fn clear(&mut self) {
        self.few.clear();
        if !self.more.is_empty() {
            self.more = HashSet::default();
        }
        self.are_many = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_marked_is_never_denied() {
        let mut marked = MarkedKeys::default();
        assert!(!marked.may_have(IndexId(3), b"a"));
        for n in 0..MOST as u32 {
            marked.add(IndexId(3), &n.to_be_bytes());
            for m in [0, n / 2, n] {
                assert!(marked.may_have(IndexId(3), &m.to_be_bytes()));
            }
            assert!(!marked.may_have(IndexId(4), &n.to_be_bytes()));
        }
        marked.add(IndexId(3), b"one more");
        assert!(marked.may_have(IndexId(4), b"anything"));
        marked.clear();
        assert!(!marked.may_have(IndexId(3), b"one more"));
    }
}
