//! A leaf that is not in memory, and a record that goes to it without reading it: the tree's side of
//! the change buffer (see `ferrite_buffer`'s module `change_buffer`).
//!
//! Invariant: between the second look at the way down and the end of the [`LeafAway`] the leaf covers
//! the key. A split or merge of it would need it in memory, and publishes the new ways before it
//! lets go of its latch.
//!
//! Locking: the leaf's shard of the change buffer, while the [`LeafAway`] lives. The way down is
//! looked at again under it, with a pin and without waiting for anything.

use crate::leaf::Scratch;
use crate::op::KeptChange;
use crate::record::{self, Header};
use crate::tree::{Goal, Obstacle, Tree};
use crate::{node, op};
use ferrite_buffer::AwayPage;
use ferrite_redo::Appended;
use ferrite_sync::kill_point;
use ferrite_types::format::record_kind;
use ferrite_types::{IndexId, PageId, Result, TxnId};

/// Longest key and value, in bytes, of a record that is kept for its page.
const MOST_BYTES: usize = 1024;
/// A delete-mark makes a record larger by so many bytes at the most: its stamps.
const MARK_ROOM_BYTES: usize = record::MAX_HEADER_BYTES - record::FIXED_BYTES;

/// A leaf on disk that gets a record. The record's key lies between its fences.
pub struct LeafAway<'t> {
    away: AwayPage<'t>,
    index: IndexId,
}

impl Tree {
    /// The page of the leaf that covers `key`, to be tried first: it may have been split since.
    ///
    /// # Errors
    /// A page that cannot be read.
    pub fn leaf_of(&self, key: &[u8]) -> Result<PageId> {
        self.leaf_page(Goal::Covers(key))
    }

    /// The leaf `page`, which was found for `key`, if it is not in memory and can get a record of that key and
    /// so long a value there.
    pub fn leaf_away(&self, page: PageId, key: &[u8], value_bytes: usize) -> Option<LeafAway<'_>> {
        if key.len() + value_bytes > MOST_BYTES {
            return None;
        }
        self.away_with_room(page, key, node::room_for(key.len(), value_bytes))
    }

    /// As [`Tree::leaf_away`], for a delete-mark of that key's record.
    pub fn leaf_away_to_mark(&self, page: PageId, key: &[u8]) -> Option<LeafAway<'_>> {
        if key.len() > MOST_BYTES {
            return None;
        }
        self.away_with_room(page, key, MARK_ROOM_BYTES)
    }

    fn away_with_room(&self, page: PageId, key: &[u8], room: usize) -> Option<LeafAway<'_>> {
        if !self.pool.is_away(page) {
            return None;
        }
        kill_point!("tree.leaf_is_away");
        let away = self.pool.away_page(page, self.index, room)?;
        let pin = self.pool.pin();
        let now = self.path(Goal::Covers(key), &pin, |_| {});
        drop(pin);
        let same = matches!(now, Ok(now) if now == page);
        let same = same || ferrite_sync::mutant!("tree.kept_for_another_leaf");
        same.then_some(LeafAway {
            away,
            index: self.index,
        })
    }
}

impl Tree {
    /// The record of the whole key `key`, key and all, in place of what is in `out`, if its leaf is not in memory and
    /// the row cache has it. It is what stands on the page at this moment; it may be delete-marked. False: the leaf
    /// must be read.
    pub fn cached_row(&self, key: &[u8], out: &mut Vec<u8>) -> bool {
        if !self.pool.row_cache().is_on() {
            return false;
        }
        let pin = self.pool.pin();
        let found = self.path(Goal::Covers(key), &pin, |_| {});
        drop(pin);
        let page = match found {
            Ok(page) => page,
            // It may be a leaf itself.
            Err(Obstacle::Away(page)) if page == self.root() => page,
            Err(_) => return false,
        };
        out.clear();
        // The leaf may have been split since. Then it has been in memory, and the copies that came after that are of
        // what it has now.
        let got = self.pool.cached_row(page, self.index, key, out);
        assert!(
            !got || record::suffix_of(out) == key,
            "another row of {page}"
        );
        got
    }
}

/// A leaf on disk for which a record is kept.
pub struct LeafKept<'t> {
    away: AwayPage<'t>,
    index: IndexId,
}

/// What is kept of a key for the leaf that covers it.
pub enum KeptLeaf<'t> {
    /// The last change of it is one of those that were asked for.
    Kept(LeafKept<'t>),
    /// Nothing, or another change.
    Other,
    /// Something is kept, but the leaf is being read just now.
    There,
}

impl Tree {
    /// Looks for the last change of `key` that is kept for its leaf: is it one that `last` means?
    ///
    /// # Errors
    /// An inner node that cannot be read.
    pub fn leaf_kept(&self, key: &[u8], last: impl Fn(KeptChange) -> bool) -> Result<KeptLeaf<'_>> {
        let page = self.leaf_of(key)?;
        let Some(away) = self.pool.kept_page(page, self.index) else {
            // Where something is kept, somebody has been reading the page.
            return Ok(match self.pool.change_buffer().has(page) {
                true => KeptLeaf::There,
                false => KeptLeaf::Other,
            });
        };
        let mut found = None;
        away.each_kept(|bytes| {
            let changes = op::Ops::new(bytes).flatten();
            found = changes.filter_map(|op| op.change_of(key)).last().or(found);
        });
        let index = self.index;
        Ok(match found.is_some_and(last) {
            true => KeptLeaf::Kept(LeafKept { away, index }),
            false => KeptLeaf::Other,
        })
    }
}

impl LeafKept<'_> {
    /// What `txn` has put or delete-marked is taken back, without reading the leaf; `then` comes before anybody can.
    pub fn take_back(
        self,
        prelude: &[u8],
        txn: TxnId,
        key: &[u8],
        scratch: &mut Scratch,
        then: impl FnOnce(),
    ) {
        scratch.ops.clear();
        op::take_back(self.away.page_id(), self.index, txn, key, &mut scratch.ops);
        self.away
            .append_and(record_kind::MINI_TXN, prelude, &scratch.ops, then);
    }

    /// May a record of it be erased? Not while it lacks redo, whose operations name slots: they may concern
    /// the same record.
    pub fn can_erase(&self) -> bool {
        !self.away.lacks_redo()
    }

    /// The record of that key goes: the last change that is kept of it is its delete-mark.
    pub fn erase(self, prelude: &[u8], key: &[u8], scratch: &mut Scratch) {
        assert!(self.can_erase(), "{} lacks redo", self.away.page_id());
        scratch.ops.clear();
        op::erase(self.away.page_id(), self.index, key, &mut scratch.ops);
        self.away
            .append(record_kind::MINI_TXN, prelude, &scratch.ops);
    }
}

impl LeafAway<'_> {
    /// Which page this is.
    pub fn page_id(&self) -> PageId {
        self.away.page_id()
    }

    /// A record for the whole key `key` goes to the leaf; over a delete-marked one of that key.
    pub fn put(
        self,
        prelude: &[u8],
        header: &Header,
        key: &[u8],
        value: &[u8],
        scratch: &mut Scratch,
    ) -> Appended {
        assert!(!header.deleted && header.version.is_none(), "a new record");
        assert!(key.len() + value.len() <= MOST_BYTES, "{} bytes", key.len());
        scratch.rec.clear();
        scratch.ops.clear();
        record::encode(header, key, value, &mut scratch.rec);
        op::put(self.page_id(), self.index, &scratch.rec, &mut scratch.ops);
        self.away
            .append(record_kind::MINI_TXN, prelude, &scratch.ops)
    }

    /// `txn` delete-marks the live record of the whole key `key`, which another one has made.
    pub fn mark(self, prelude: &[u8], txn: TxnId, key: &[u8], scratch: &mut Scratch) -> Appended {
        assert!(key.len() <= MOST_BYTES, "{} bytes", key.len());
        scratch.ops.clear();
        op::mark(self.page_id(), self.index, txn, key, &mut scratch.ops);
        self.away
            .append(record_kind::MINI_TXN, prelude, &scratch.ops)
    }
}
