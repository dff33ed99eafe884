//! A latched leaf: reading it, and editing it so that log and page agree.

use crate::record::{self, Header, Record};
use crate::{apply, node, op};
use ferrite_buffer::{ExclusiveGuard, Pool, SharedGuard};
use ferrite_redo::Appended;
use ferrite_types::{IndexId, Lsn, PageId};
use std::ops::Deref;

/// Longest value of a row that the row cache keeps, in bytes.
const MOST_ROW_BYTES: usize = 1024;

/// A leaf under its shared latch. Derefs to the page.
pub struct LeafRef<'p> {
    pub(crate) guard: SharedGuard<'p>,
}

impl Deref for LeafRef<'_> {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.guard
    }
}

impl LeafRef<'_> {
    /// Which page this is.
    pub fn page_id(&self) -> PageId {
        self.guard.page_id()
    }

    /// Equal values on the same page mean equal bytes.
    pub fn lsn(&self) -> Lsn {
        self.guard.lsn()
    }

    /// Position of a key, see [`node::find`].
    pub fn find(&self, key: &[u8]) -> Result<usize, usize> {
        node::find(self, key)
    }

    /// Records on the leaf.
    pub fn count(&self) -> usize {
        node::count(self)
    }

    /// The record in a slot.
    pub fn record(&self, slot: usize) -> Record<'_> {
        node::record(self, slot)
    }

    /// The leaf had to be read for the record of this key, in this slot: the row cache may keep that.
    pub fn keep_row(&self, key: &[u8], slot: usize) {
        debug_assert_eq!(self.find(key), Ok(slot), "the key of slot {slot}");
        let rec = self.record(slot);
        if rec.value.len() > MOST_ROW_BYTES {
            return;
        }
        let mut copy = Vec::new();
        record::encode(&rec.header, key, rec.value, &mut copy);
        self.guard.keep_row(key, &copy);
    }
}

/// A leaf under its exclusive latch. Derefs to the page.
///
/// Every edit takes `prelude`: the opening of the mini-transaction's body (flags and undo),
/// which the caller encodes and this module does not interpret.
pub struct LeafMut<'p> {
    pub(crate) guard: ExclusiveGuard<'p>,
    pub(crate) pool: &'p Pool,
    pub(crate) index: IndexId,
}

impl Deref for LeafMut<'_> {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.guard
    }
}

/// Calls `f` with the first key at or after `slot` of a latched leaf, looking at the leaves to the
/// right if need be; None: there is no such key in the whole tree. `key` is a buffer. Reads nothing
/// from disk. The leaves between, and the one that has the key, stay latched over `f`: nothing is
/// inserted before that key meanwhile.
///
/// # Errors
/// The page that must be read in first; the caller gives its latch back for that.
pub(crate) fn with_successor<R>(
    pool: &Pool,
    leaf: &[u8],
    slot: usize,
    key: &mut Vec<u8>,
    f: impl FnOnce(Option<&[u8]>) -> R,
) -> Result<R, PageId> {
    key.clear();
    if slot < node::count(leaf) {
        node::key_into(leaf, slot, key);
        return Ok(f(Some(key)));
    }
    let mut passed: Vec<SharedGuard<'_>> = Vec::new();
    let mut right = node::right(leaf);
    while right != PageId::NONE {
        let next = pool.shared_resident(right).ok_or(right)?;
        debug_assert!(node::index(&next) == node::index(leaf) && node::level(&next) == 0);
        right = node::right(&next);
        let found = node::count(&next) > 0;
        if found {
            node::key_into(&next, 0, key);
            debug_assert!(node::high(leaf).is_some_and(|high| high <= key.as_slice()));
        }
        passed.push(next);
        if found {
            return Ok(f(Some(key)));
        }
    }
    Ok(f(None))
}

/// Buffers an edit needs; kept by the caller so that edits allocate nothing.
#[derive(Default)]
pub struct Scratch {
    pub(crate) ops: Vec<u8>,
    pub(crate) rec: Vec<u8>,
}

impl LeafMut<'_> {
    /// Which page this is.
    pub fn page_id(&self) -> PageId {
        self.guard.page_id()
    }

    /// Position of a key, see [`node::find`].
    pub fn find(&self, key: &[u8]) -> Result<usize, usize> {
        node::find(self, key)
    }

    /// Records on the leaf.
    pub fn count(&self) -> usize {
        node::count(self)
    }

    /// The record in a slot.
    pub fn record(&self, slot: usize) -> Record<'_> {
        node::record(self, slot)
    }

    /// As [`with_successor`], for this leaf.
    ///
    /// # Errors
    /// The page that must be read in first; the caller gives its latch back for that.
    pub fn with_successor<R>(
        &self,
        slot: usize,
        key: &mut Vec<u8>,
        f: impl FnOnce(Option<&[u8]>) -> R,
    ) -> Result<R, PageId> {
        with_successor(self.pool, self, slot, key, f)
    }

    /// True if a record for `key` with this header and value can be inserted.
    pub fn has_room(&self, header: &Header, key: &[u8], value: &[u8]) -> bool {
        let suffix = key.len() - node::prefix(self).len();
        node::has_room(self, header.len() + suffix + value.len())
    }

    /// True if the record in `slot` can get this header and value.
    pub fn can_replace(&self, slot: usize, header: &Header, value_bytes: usize) -> bool {
        let suffix = node::suffix(self, slot).len();
        node::can_replace(self, slot, header.len() + suffix + value_bytes)
    }

    fn log(&self, prelude: &[u8], ops: &[u8]) -> Appended {
        debug_assert!(node::index(self) == self.index && node::level(self) == 0);
        self.pool.append_change(prelude, ops, self.guard.frame_no())
    }

    /// Inserts a record for the whole key `key` before `slot`; room was checked.
    pub fn insert(
        &mut self,
        prelude: &[u8],
        slot: usize,
        header: &Header,
        key: &[u8],
        value: &[u8],
        scratch: &mut Scratch,
    ) -> Appended {
        debug_assert!(node::covers(self, key), "key beyond the leaf's fences");
        let prefix = node::prefix(self).len();
        scratch.rec.clear();
        scratch.ops.clear();
        record::encode(header, &key[prefix..], value, &mut scratch.rec);
        // Before it is logged: redo would meet what this page cannot take.
        assert!(
            node::has_room(self, scratch.rec.len()),
            "no room for {} bytes",
            scratch.rec.len()
        );
        assert!(
            slot <= node::count(self),
            "slot {slot} of {}",
            node::count(self)
        );
        debug_assert!(node::belongs(self, slot, &scratch.rec), "slot {slot}");
        let page = self.page_id();
        op::insert(page, self.index, slot, &scratch.rec, &mut scratch.ops);
        let at = self.log(prelude, &scratch.ops);
        node::insert(self.guard.bytes_mut(), slot, &scratch.rec);
        debug_assert_eq!(self.find(key), Ok(slot), "it is not found again");
        at
    }

    /// Gives the record in `slot` another header and value; room was checked. Of the value so many
    /// bytes are the same at the head and at the tail: they are not logged.
    pub fn replace(
        &mut self,
        prelude: &[u8],
        slot: usize,
        header: &Header,
        value: &[u8],
        (head, tail): (u16, u16),
        scratch: &mut Scratch,
    ) -> Appended {
        scratch.rec.clear();
        scratch.ops.clear();
        let suffix = node::suffix(self, slot);
        let same = (suffix.len() + usize::from(head), usize::from(tail));
        debug_assert!({
            let old = node::record(self, slot).value;
            let (head, tail) = (usize::from(head), usize::from(tail));
            old[..head] == value[..head] && old[old.len() - tail..] == value[value.len() - tail..]
        });
        record::encode(header, suffix, value, &mut scratch.rec);
        debug_assert!(
            node::can_replace(self, slot, scratch.rec.len()),
            "no room for {} bytes in slot {slot}",
            scratch.rec.len()
        );
        let page = self.page_id();
        op::replace(page, self.index, slot, &scratch.rec, same, &mut scratch.ops);
        let at = self.log(prelude, &scratch.ops);
        node::replace(self.guard.bytes_mut(), slot, &scratch.rec);
        at
    }

    /// Removes the record in `slot`.
    pub fn remove(&mut self, prelude: &[u8], slot: usize, scratch: &mut Scratch) -> Appended {
        scratch.ops.clear();
        assert!(
            slot < node::count(self),
            "slot {slot} of {}",
            node::count(self)
        );
        op::remove(self.page_id(), self.index, slot, &mut scratch.ops);
        let at = self.log(prelude, &scratch.ops);
        node::remove(self.guard.bytes_mut(), slot);
        at
    }

    /// Freezes and removes records in one go (slots ascending, see [`op::gc`]).
    pub fn gc(&mut self, prelude: &[u8], actions: &[(u16, u8)], scratch: &mut Scratch) -> Appended {
        scratch.ops.clear();
        assert!(!actions.is_empty(), "nothing is frozen or removed");
        let last = actions.last().map_or(0, |(slot, _)| usize::from(*slot));
        assert!(
            last < node::count(self),
            "slot {last} of {}",
            node::count(self)
        );
        op::gc(self.page_id(), self.index, actions, &mut scratch.ops);
        let at = self.log(prelude, &scratch.ops);
        apply::apply_gc(self.guard.bytes_mut(), actions);
        at
    }
}
