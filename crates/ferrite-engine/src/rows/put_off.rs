//! Changes of secondary indexes whose leaf is not in memory: they are put into the change buffer
//! (`ferrite_buffer`'s module `change_buffer`), and nothing is read. A new entry (PUT), the delete-mark of an old
//! one (MARK), and the end of a delete-marked one that nobody needs (ERASE).
//!
//! What is known without the leaf: no live entry of that key is there, for it ends with the row's primary
//! key, and the row is this transaction's. A delete-marked one may be there, left by an earlier
//! life of the row. If snapshots may still need it, it becomes a version when the leaf is read
//! ([`Engine::keep_replaced`]); until then nobody has looked at either. Nobody else holds the entry: who
//! made or marked it has held the row, too, and is gone.
//!
//! What cannot be known without the leaf is the next key, to which a gap lock belongs: as long as
//! anybody has a gap locked in the index, leaves are read.
//!
//! Undo of such an entry (`Undo::Put`) cannot tell what was in its place: the entry itself does, by its
//! version. That is so only as long as what it has replaced was not made by the same transaction:
//! keys that it has delete-marked are not put off ([`MarkedKeys`]).
//!
//! A delete-mark is put off if the row's state before this change was not this transaction's: then the entry
//! is not, either, for whoever changes an entry changes its row. What was before it becomes a version when the
//! leaf is read, as above, and undo (`Undo::Mark`) finds it there.
//!
//! An entry is erased without its leaf while its delete-mark is still kept for the leaf and is the last that is
//! kept of it: so it is known what is there, however the page on disk looks.
//!
//! Locking: the leaf's shard of the change buffer, over the lock table's and the log's.

use crate::catalog::table::Table;
use crate::log_records::undo::{self, Prior, Undo};
use crate::state::engine::Engine;
use crate::state::purge_work::Garbage;
use crate::transaction::session::Session;
use ferrite_sync::{kill_point, Arc};
use ferrite_tree::op::KeptChange;
use ferrite_tree::record::{Header, Record};
use ferrite_tree::{by_key, is_worth_merging, KeptLeaf, Scratch, Tree};
use ferrite_txn::diff;
use ferrite_types::{Error, IndexId, PageId, Result, TxnId, VersionAddr};

/// Delete-marks are put off until a transaction leaves so many pieces to purge.
const MARKS_MOST: usize = 100_000;

impl Session {
    /// Puts a new entry into the change buffer if its leaf, which was found on `page`, is not in
    /// memory. False: the leaf is to be latched.
    pub(crate) fn put_off(
        &mut self,
        table: &Table,
        number: usize,
        page: PageId,
        key: &[u8],
        value: &[u8],
    ) -> bool {
        assert!(number > 0, "a row is never put off");
        let tree = table.tree(number);
        let index = tree.index();
        if self.txn.marked.may_have(index, key) && !ferrite_sync::mutant!("put_off.own_mark") {
            return false;
        }
        let Some(leaf) = tree.leaf_away(page, key, value.len()) else {
            return false;
        };
        // Under the shard's lock: who locks a gap reads the leaf first, and who does so from now on waits.
        let locks = &self.engine.locks;
        let gaps = locks.has_gap_locks(index) && !ferrite_sync::mutant!("put_off.ignores_gaps");
        if gaps || !locks.is_untouched(index, key) {
            return false;
        }
        let txn = self.txn.id();
        assert!(self.owns(txn), "an insert of {txn}");
        let header = Header {
            txn,
            ..Header::default()
        };
        let undo = Undo::Put { index, key };
        self.logged(&undo, |prelude, scratch| {
            leaf.put(prelude, &header, key, value, scratch)
        });
        kill_point!("entry.put_off");
        true
    }

    /// Puts the delete-mark of an entry into the change buffer if its leaf, which was found on `page`, is not
    /// in memory. `made_by`: who had made the row's state before this change of it. False: the leaf is
    /// to be latched.
    pub(crate) fn put_off_mark(
        &mut self,
        table: &Arc<Table>,
        number: usize,
        page: PageId,
        key: &[u8],
        made_by: TxnId,
    ) -> bool {
        assert!(number > 0, "a row is never put off");
        let tree = table.tree(number);
        let index = tree.index();
        if self.owns(made_by) && !ferrite_sync::mutant!("put_off.mark_of_own") {
            return false;
        }
        // Each leaves a piece of garbage of its own, in memory.
        if self.txn.garbage.len() >= MARKS_MOST {
            return false;
        }
        let Some(leaf) = tree.leaf_away_to_mark(page, key) else {
            return false;
        };
        // Under the shard's lock, as above.
        let blind = ferrite_sync::mutant!("put_off.mark_ignores_locks");
        if !self.engine.locks.is_untouched(index, key) && !blind {
            return false;
        }
        let txn = self.txn.id();
        assert!(self.owns(txn), "a deletion of {txn}");
        let undo = Undo::Mark { index, key };
        self.logged(&undo, |prelude, scratch| {
            leaf.mark(prelude, txn, key, scratch)
        });
        self.txn.marked.add(index, key);
        let at = self.undo_position();
        let piece = Garbage::entry(table, number, key, true);
        self.txn.garbage.add(at, piece);
        kill_point!("entry.mark_put_off");
        true
    }
}

impl Engine {
    /// Erases a delete-marked entry, whose deletion by `txn` everybody sees, if its leaf is not in memory and
    /// the mark is kept for it. False: the leaf is to be latched.
    ///
    /// # Errors
    /// An inner node that cannot be read.
    pub(crate) fn erase_put_off(
        &self,
        tree: &Tree,
        key: &[u8],
        txn: TxnId,
        scratch: &mut Scratch,
    ) -> Result<bool> {
        debug_assert!(self.txns.is_committed(txn), "{txn} may be undone");
        let last = |change| change == KeptChange::Mark(txn);
        let KeptLeaf::Kept(leaf) = tree.leaf_kept(key, last)? else {
            return Ok(false);
        };
        // Under the shard's lock: who locks the entry reads its leaf first.
        if self.locks.is_anchor(tree.index(), key) || !leaf.can_erase() {
            return Ok(false);
        }
        leaf.erase(undo::NO_UNDO, key, scratch);
        kill_point!("purge.erase_put_off");
        Ok(true)
    }

    /// Is the entry's delete-mark by `txn` kept for its leaf, which is not in memory?
    ///
    /// # Errors
    /// An inner node that cannot be read.
    pub(crate) fn is_mark_put_off(&self, tree: &Tree, key: &[u8], txn: TxnId) -> Result<bool> {
        debug_assert!(!txn.is_frozen(), "nobody's deletion");
        let last = |change| change == KeptChange::Mark(txn);
        Ok(matches!(tree.leaf_kept(key, last)?, KeptLeaf::Kept(_)))
    }

    /// Applies a change that was put off to its leaf, which has been read.
    pub(crate) fn apply_put_off(
        &self,
        page: &mut [u8],
        bytes: &[u8],
        came_to: &mut Vec<u8>,
    ) -> Result<()> {
        let index = ferrite_tree::node::index(page);
        let keep = &mut |old: &Record<'_>, new: &Record<'_>| self.keep_replaced(index, old, new);
        let restore = &mut |rec: &Record<'_>| self.restore_replaced(rec);
        if by_key::apply_kept(bytes, page, keep, restore, came_to)? && is_worth_merging(page) {
            self.purge
                .found_sparse(index, ferrite_tree::node::low(page));
        }
        Ok(())
    }

    /// The state that a change which was put off replaces, for those who see what was before it.
    fn keep_replaced(
        &self,
        index: IndexId,
        old: &Record<'_>,
        new: &Record<'_>,
    ) -> Result<VersionAddr> {
        assert!(
            old.header.deleted != new.header.deleted,
            "index {index}: an entry stays {}",
            if old.header.deleted {
                "deleted"
            } else {
                "live"
            }
        );
        assert!(
            old.header.txn != new.header.txn,
            "index {index}: {} has put off what it had marked",
            new.header.txn
        );
        if ferrite_sync::mutant!("put_off.version_forgotten") {
            return Ok(VersionAddr::NONE);
        }
        // No version says of a deleted entry that for everybody it is not there.
        if new.header.deleted && self.txns.visible_to_all(new.header.txn) {
            return Ok(VersionAddr::NONE);
        }
        let (keep_head, keep_tail) = diff(old.value, new.value);
        let mid = &old.value[keep_head as usize..old.value.len() - keep_tail as usize];
        let prior = Prior {
            deleted: old.header.deleted,
            txn: old.header.txn,
            keep_head,
            keep_tail,
            mid,
        };
        self.version_for_change(
            &old.header,
            new.header.txn,
            index,
            old.value,
            new.value,
            &prior,
        )
    }

    /// The header of what a change which was put off has replaced, now that it is taken back. Its value does not
    /// come back: redo does not have it, and must find what later changes keep of the value. So the older versions
    /// are told from the value that is there; a delete-marked entry's own one nobody sees. They stay as they are, too:
    /// if the page fails to be read after this, it is read again as it was.
    fn restore_replaced(&self, rec: &Record<'_>) -> Result<Option<Header>> {
        let mut value = Vec::new();
        let before = self.replaced_unseen(rec, false, &mut value)?;
        let header = match before {
            Some(before) if !before.version.is_none() && value != rec.value => {
                let walk = self.versions.walk();
                let version = walk.rebased_copy(before.version, &value, rec.value)?;
                Some(Header { version, ..before })
            }
            other => other,
        };
        debug_assert!(
            header.is_none_or(|h| h.deleted || value == rec.value),
            "a live entry comes back with another value"
        );
        self.versions.drop_version(rec.header.version);
        Ok(header)
    }

    /// What a change which was put off and is taken back has replaced: the header,
    /// and in `value` the value. None: nothing that anybody needs. `stale`: its version is of an
    /// earlier life.
    ///
    /// # Errors
    /// A version that cannot be read.
    pub(crate) fn replaced_unseen(
        &self,
        rec: &Record<'_>,
        stale: bool,
        value: &mut Vec<u8>,
    ) -> Result<Option<Header>> {
        let at = rec.header.version;
        if stale || at.is_none() {
            return Ok(None);
        }
        let mut body = Vec::new();
        let Some(head) = self.versions.read(at, &mut body)? else {
            return Ok(None);
        };
        // As long as the entry is not committed, whoever comes needs the state before it.
        if head.is_deleted() == rec.header.deleted || head.end != rec.header.txn {
            let text = format!("an entry of {} has replaced another one", rec.header.txn);
            return Err(Error::Bug(text));
        }
        value.clear();
        ferrite_txn::apply(rec.value, &head, &body, value);
        let version = match head.begin.is_frozen() {
            true => VersionAddr::NONE,
            false => head.next,
        };
        Ok(Some(Header {
            deleted: head.is_deleted(),
            txn: head.begin,
            version,
        }))
    }

    /// The hook of the change buffer.
    pub(crate) fn take_up_put_off(self: &Arc<Self>) {
        let engine = Arc::downgrade(self);
        self.pool
            .set_apply_kept(Box::new(move |page, bytes, came_to| {
                let engine = engine.upgrade().ok_or(Error::Interrupted)?;
                engine.apply_put_off(page, bytes, came_to)
            }));
    }
}
