//! Entries of secondary indexes whose leaf is not in memory: they are put into the change buffer
//! (`ferrite_buffer`'s module `change_buffer`), and nothing is read.
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
//! Locking: the leaf's shard of the change buffer, over the lock table's and the log's.

use crate::catalog::table::Table;
use crate::log_records::undo::{self, Prior, Undo};
use crate::state::engine::Engine;
use crate::transaction::session::Session;
use ferrite_sync::{kill_point, Arc};
use ferrite_tree::op;
use ferrite_tree::record::{Header, Record};
use ferrite_txn::diff;
use ferrite_types::{Error, IndexId, PageId, Result, TxnId, VersionAddr};

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
}

impl Engine {
    /// Applies an entry that was put off to its leaf, which has been read.
    pub(crate) fn apply_put_off(&self, page: &mut [u8], bytes: &[u8]) -> Result<()> {
        let index = ferrite_tree::node::index(page);
        let keep = &mut |old: &Record<'_>, new: &Record<'_>| self.keep_replaced(index, old, new);
        let restore = &mut |rec: &Record<'_>, value: &mut Vec<u8>| {
            let before = self.replaced_by_put(rec, false, value)?;
            self.versions.drop_version(rec.header.version);
            Ok(before)
        };
        op::apply_kept(bytes, page, keep, restore)
    }

    /// The delete-marked entry that a new one replaces, for those who see what was before it.
    fn keep_replaced(
        &self,
        index: IndexId,
        old: &Record<'_>,
        new: &Record<'_>,
    ) -> Result<VersionAddr> {
        assert!(
            old.header.deleted,
            "index {index}: a live entry is replaced"
        );
        assert!(
            old.header.txn != new.header.txn,
            "index {index}: {} has put off what it had marked",
            new.header.txn
        );
        if ferrite_sync::mutant!("put_off.version_forgotten") {
            return Ok(VersionAddr::NONE);
        }
        let (keep_head, keep_tail) = diff(old.value, new.value);
        let mid = &old.value[keep_head as usize..old.value.len() - keep_tail as usize];
        let prior = Prior {
            deleted: true,
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

    /// What an entry which was put off and is taken back has replaced: its header,
    /// and in `value` its value. None: nothing that anybody needs. `stale`: its version is of an
    /// earlier life.
    ///
    /// # Errors
    /// A version that cannot be read.
    pub(crate) fn replaced_by_put(
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
        if !head.is_deleted() || head.end != rec.header.txn {
            let text = format!(
                "an entry of {} has not replaced a deleted one",
                rec.header.txn
            );
            return Err(Error::Bug(text));
        }
        value.clear();
        ferrite_txn::apply(rec.value, &head, &body, value);
        let version = match head.begin.is_frozen() {
            true => VersionAddr::NONE,
            false => head.next,
        };
        Ok(Some(Header {
            deleted: true,
            txn: head.begin,
            version,
        }))
    }

    /// After a restart the version behind an entry of a prepared transaction is of an earlier life, and
    /// everybody sees that nothing was there before.
    pub(crate) fn clear_version_of_put(
        &self,
        txn: TxnId,
        index: IndexId,
        key: &[u8],
    ) -> Result<bool> {
        let table = match self.dict.table_of_index(index) {
            Err(Error::NotFound) => return Ok(false),
            other => other?,
        };
        let number = table.number_of(index).ok_or(Error::NotFound)?;
        let mut leaf = match table.tree(number).leaf_mut(key, PageId::NONE) {
            // Then nobody reads it, and what is kept for it makes its version when it is merged.
            Err(Error::Corrupt(_)) => return Ok(true),
            other => other?,
        };
        let Ok(at) = leaf.find(key) else {
            return Ok(false);
        };
        let rec = leaf.record(at);
        if rec.header.txn != txn {
            return Ok(false);
        }
        if !rec.header.version.is_none() {
            let header = Header {
                version: VersionAddr::NONE,
                ..rec.header
            };
            let value = rec.value.to_vec();
            let same = (value.len() as u16, 0);
            let scratch = &mut ferrite_tree::Scratch::default();
            leaf.replace(undo::NO_UNDO, at, &header, &value, same, scratch);
            debug_assert_eq!(leaf.record(at).header, header, "index {index}");
        }
        Ok(true)
    }

    /// The hook of the change buffer.
    pub(crate) fn take_up_put_off(self: &Arc<Self>) {
        let engine = Arc::downgrade(self);
        self.pool.set_apply_kept(Box::new(move |page, bytes| {
            let engine = engine.upgrade().ok_or(Error::Interrupted)?;
            engine.apply_put_off(page, bytes)
        }));
    }
}
