//! Cleaning up after commits: entries that stay delete-marked, and values out of line that
//! nobody names any more.
//!
//! A commit leaves its list here. A helper thread takes it up within 20 ms: what no snapshot needs
//! goes, though an old snapshot be open; what one needs waits 20 ms, for most snapshots
//! are short. After that an entry moves to its index's delete_archive, and a value is held until
//! its snapshots are gone. What is still there after that (an entry whose locks cannot be moved) is put
//! aside and looked at twice a second. So nothing queues behind an old snapshot or a lock. When the helpers cannot
//! keep up, committers clean up too, in proportion to what they leave.
//!
//! A crash loses the list: delete-marked entries are then found by whoever scans past them or
//! needs room on their page, overflow values through the commit records.
//!
//! The queue itself is in `purge_queue`.

use crate::catalog::table::{Table, SUPREMUM};
use crate::log_records::undo::NO_UNDO;
use crate::maintenance::cleaner::Cleaner;
use crate::state::engine::Engine;
use crate::state::purge_queue::{Batch, BATCH_PAGES, LONG_PAGES};
use crate::state::purge_work::{Garbage, Work, PIECES_AT_ONCE};
use ferrite_buffer::is_for_want_of_a_frame;
use ferrite_sync::atomic::Ordering;
use ferrite_sync::{time, Arc};
use ferrite_tree::op::{GC_FREEZE, GC_REMOVE};
use ferrite_tree::record::Header;
use ferrite_tree::{is_worth_merging, node, LeafMut, Scratch};
use ferrite_types::{Csn, Error, OverflowRef, PageId, Result, TxnId};
use std::ops::Range;

/// Works taken from the queue at a time.
const BATCH: usize = 64;
/// When the helpers are behind, a committer cleans up so many times what it leaves: others' large
/// transactions are not its to pay for, but those that leave much hold the queue down.
const SHARE_TIMES: usize = 2;
/// It takes so many pieces at a time, and works on so many at most.
const SHARE_PIECES: usize = 64;
const SHARE_MOST: usize = 2 * PIECES_AT_ONCE;
/// And frees values of so many pages together, or as many as pieces if those are more. It cannot be killed
/// meanwhile: longer values are the helpers' alone.
const SHARE_PAGES: usize = LONG_PAGES as usize;
const _: () = assert!(SHARE_PAGES <= SHARE_MOST);
/// Locks moved off the records of a leaf under one hold of its latch; beyond that a locked record
/// stays until the next visit.
const MOVES_AT_ONCE: usize = 256;
/// A payload of so many bytes is not kept in the archive of deleted entries.
const LONG_PAYLOAD_BYTES: usize = 512;
/// Snapshots that are remembered with the values of a work that they need.
const NEEDED_BY_MOST: usize = 8;
/// Readers do not add to a queue longer than this.
const FOUND_MOST: usize = 256;

/// There was no frame to be had, or no log to spare: the same may work later. An I/O error of another kind, or damage,
/// would come again and again.
pub(crate) fn is_passing(e: &Error) -> bool {
    matches!(e, Error::DiskFull(_) | Error::Interrupted) || is_for_want_of_a_frame(e)
}

impl Engine {
    /// One round of cleaning up. Returns pieces done, and leaves visited.
    pub(crate) fn purge_round(&self, by: &mut Cleaner) -> usize {
        if self.merge_sparse(by).is_err() {
            return 0;
        }
        let now_us = time::now_us();
        if self.purge.is_held_due(now_us) {
            self.purge.note_open(self.txns.listed_csns());
        }
        let batch = self.purge.take(now_us, BATCH);
        let full = batch.as_ref().is_some_and(|batch| batch.is_full(BATCH));
        let (done, stuck) = batch.map_or((0, false), |batch| self.purge_batch(batch, now_us, by));
        if stuck {
            return done;
        }
        done + self.purge_leaves(full, by)
    }

    /// Merges leaves that entries were erased from without a look at them. It is no part of anything: what
    /// cannot be merged stays.
    ///
    /// # Errors
    /// As [`Engine::before_step`]: some leaves are left for later.
    fn merge_sparse(&self, by: &mut Cleaner) -> Result<()> {
        let mut leaves = self.purge.take_sparse().into_iter();
        while let Some((index, key)) = leaves.next() {
            if let Err(e) = self.before_step(by) {
                self.purge.found_sparse(index, &key);
                leaves.for_each(|(index, key)| self.purge.found_sparse(index, &key));
                return Err(e);
            }
            let Ok(table) = self.dict.table_of_index(index) else {
                continue;
            };
            let Some(number) = table.number_of(index) else {
                continue;
            };
            let Some(_stays) = table.stay_in(number) else {
                continue;
            };
            debug_assert!(number > 0, "a row was erased without a look at it");
            let _ = table.tree(number).merge_at(&key, NO_UNDO);
        }
        Ok(())
    }

    /// A reader passed over delete-marks that nobody needs: left by a crash, or once kept by a
    /// lock.
    #[cold]
    pub(crate) fn found_garbage(&self, table: &Arc<Table>, number: usize, key: &[u8]) {
        if self.purge.length() < FOUND_MOST {
            let piece = Garbage::entry(table, number, key, false);
            self.purge.add(TxnId::FROZEN, vec![piece]);
            self.purge.wake();
        }
    }

    /// A transaction has committed and left so many pieces to purge.
    pub(crate) fn committed(&self, left: usize, scratch: &mut Scratch) {
        self.counters.commits.inc();
        if self.purge.in_debt() {
            self.assist_purge(left, scratch);
        }
    }

    /// A committer's share of the work, when the helpers are behind. `left`: pieces that it left itself.
    #[cold]
    fn assist_purge(&self, left: usize, scratch: &mut Scratch) {
        if self.log.is_nearly_out() {
            return;
        }
        let mut share = left.saturating_mul(SHARE_TIMES).min(SHARE_MOST);
        if share > 0 {
            self.purge.helped.fetch_add(1, Ordering::Relaxed);
        }
        let mut pages = share.max(SHARE_PAGES) as u64;
        let mut by = Cleaner::committer(scratch);
        while share > 0 {
            let at_once = pages.min(SHARE_PAGES as u64);
            let Some(batch) = self.purge.take_share(share.min(SHARE_PIECES), at_once) else {
                break;
            };
            let (taken, freed) = batch.size();
            assert!((1..=share).contains(&taken), "{taken} pieces of {share}");
            (share, pages) = (share - taken, pages - freed);
            let (_, stuck) = self.purge_batch(batch, time::now_us(), &mut by);
            if stuck {
                // The next share would wait for a frame as long, or find as little log.
                break;
            }
        }
        *scratch = by.scratch;
    }

    /// Returns pieces done, and whether there was no frame for the others, or no log.
    fn purge_batch(&self, mut batch: Batch, now_us: u64, by: &mut Cleaner) -> (usize, bool) {
        let mut so_far = SoFar {
            done: 0,
            stuck: false,
            held_pages: BATCH_PAGES,
        };
        let held_from = batch.held_from;
        for (number, work) in batch.works.iter_mut().enumerate() {
            self.purge_work(work, number >= held_from, now_us, &mut so_far, by);
        }
        self.purge.put_back(batch);
        let SoFar { done, stuck, .. } = so_far;
        self.purge.purged.fetch_add(done as u64, Ordering::Relaxed);
        (done, stuck)
    }

    /// A work of a batch, or a part of it: what is left unseen because nothing can be done just now, or because enough
    /// of what `is_held` was freed, is as if it had not been taken.
    fn purge_work(
        &self,
        work: &mut Work,
        is_held: bool,
        now_us: u64,
        so_far: &mut SoFar,
        by: &mut Cleaner,
    ) {
        let (due, txn, all) = (work.seen_us != 0, work.txn, work.pieces.len());
        let mut seen = 0;
        work.pieces.retain_mut(|piece| {
            // Neither a shutdown nor the log waits for the end of a large transaction's list.
            so_far.stuck = so_far.stuck || self.before_step(by).is_err();
            if so_far.stuck || is_held && so_far.held_pages == 0 {
                return true;
            }
            seen += 1;
            debug_assert!(txn.is_frozen() || self.txns.is_committed(txn), "{txn}");
            let pages = piece.overflow().map_or(0, |(_, value)| value.pages());
            let gone = self.purge_piece(txn, piece, due, by).unwrap_or_else(|e| {
                so_far.stuck = is_passing(&e);
                !so_far.stuck && self.is_given_up(&e)
            });
            so_far.done += usize::from(gone);
            if is_held && gone {
                so_far.held_pages = so_far.held_pages.saturating_sub(u64::from(pages));
            }
            if by.is_helper() && !so_far.stuck {
                self.purge.gets_on();
            }
            // One that stays is looked at again, perhaps without an end.
            if gone || !due && !so_far.stuck {
                self.purge.note_steps(1);
            }
            !gone
        });
        debug_assert!(seen <= all, "{seen} of {all} pieces");
        if seen == 0 {
            return;
        }
        let whole = seen == all && !so_far.stuck;
        // What was broken off for others' sake comes first in the next batch; what nothing could be done with does not, for
        // that may be its own fault.
        if whole || so_far.stuck {
            work.looked_at(now_us, whole);
        }
        (work.needed_by, work.kept_for) = self.snapshots_needing(txn, &work.pieces);
    }

    /// Commit numbers of open snapshots such that each of the pieces, all of them values that are held, is needed
    /// by one; empty: of some piece it is not known, or they are too many. And the oldest that needs one.
    fn snapshots_needing(&self, txn: TxnId, pieces: &[Garbage]) -> (Vec<Csn>, Option<Csn>) {
        let mut all = Vec::new();
        let mut is_known = true;
        let mut oldest: Option<Csn> = None;
        for piece in pieces {
            let needing = match piece {
                Garbage::Held { value, .. } => self.txns.oldest_needing(value.1, txn),
                Garbage::Entry { .. } | Garbage::Overflow { .. } => None,
            };
            oldest = oldest.into_iter().chain(needing).min();
            match needing {
                Some(csn) if all.contains(&csn) => {}
                Some(csn) if all.len() < NEEDED_BY_MOST => all.push(csn),
                Some(_) | None => is_known = false,
            }
        }
        if !is_known {
            all.clear();
        }
        debug_assert!(all.is_empty() || oldest.is_some(), "needed by nobody");
        (all, oldest)
    }

    /// A piece failed and is left for good.
    #[cold]
    pub(crate) fn is_given_up(&self, e: &Error) -> bool {
        let text = format!("purge failed: {e}");
        self.callbacks.log(crate::LogLevel::Warning, &text);
        true
    }

    /// True when the piece is done with. `due`: what is needed by a snapshot is archived now.
    pub(crate) fn purge_piece(
        &self,
        txn: TxnId,
        piece: &mut Garbage,
        due: bool,
        by: &mut Cleaner,
    ) -> Result<bool> {
        match piece {
            Garbage::Entry {
                table,
                number,
                key,
                alone,
            } => {
                let Some(_stays) = table.stay_in(*number as usize) else {
                    return Ok(true);
                };
                let clean = Clean {
                    freeze: false,
                    archive: due,
                };
                let number = *number as usize;
                let kept = self.pool.change_buffer().bytes() > 0;
                if kept && *alone && number > 0 && !txn.is_frozen() {
                    if let Some(gone) =
                        self.purge_unseen(table, number, key, (txn, due), &mut by.scratch)?
                    {
                        return Ok(gone);
                    }
                }
                self.purge_entry(table, number, key, *alone, clean, &mut by.scratch)
            }
            Garbage::Overflow { table, reference } => {
                let Some(maker) = self.purge_value(txn, table, (*reference, None), by)? else {
                    return Ok(true);
                };
                *piece = Garbage::held(table, *reference, maker);
                Ok(false)
            }
            Garbage::Held { table, value } => {
                let (reference, maker) = **value;
                let needed = self.purge_value(txn, table, (reference, Some(maker)), by)?;
                Ok(needed.is_none())
            }
        }
    }

    /// Frees a value that `txn` has replaced or deleted, if no snapshot needs it; else returns its maker,
    /// which stands on its first page if it is not known yet.
    fn purge_value(
        &self,
        txn: TxnId,
        table: &Table,
        (reference, maker): (OverflowRef, Option<TxnId>),
        by: &mut Cleaner,
    ) -> Result<Option<TxnId>> {
        let mut stays = table.stay_in(0);
        if stays.is_none() {
            return Ok(None);
        }
        let index = table.tree(0).index();
        if !self.txns.visible_to_all(txn) && !ferrite_sync::mutant!("purge.free_values_early") {
            let maker = match maker {
                Some(maker) => maker,
                None => self.overflow_maker(index, &reference)?,
            };
            if self.txns.version_needed(maker, txn) {
                return Ok(Some(maker));
            }
        }
        debug_assert!(!self.txns.is_active(txn), "{txn} may still be undone");
        // Who drops the table, or changes it beside us, waits for a part of a long value.
        let mut pause = || {
            drop(stays.take());
            self.amid_steps(by)?;
            if by.is_helper() {
                self.purge.gets_on();
            }
            self.purge.note_steps(1);
            stays = table.stay_in(0);
            Ok(stays.is_some())
        };
        self.free_overflow_in_parts(index, &reference, &mut pause)?;
        Ok(None)
    }

    /// Purges an entry whose delete-mark was put off and whose leaf has not been read since. `due`: as in
    /// [`Engine::purge_piece`]. None: its leaf is to be latched; false: it stays for now.
    fn purge_unseen(
        &self,
        table: &Table,
        number: usize,
        key: &[u8],
        (txn, due): (TxnId, bool),
        scratch: &mut Scratch,
    ) -> Result<Option<bool>> {
        let tree = table.tree(number);
        if self.txns.visible_to_all(txn) || ferrite_sync::mutant!("put_off.erased_too_early") {
            let erased = self.erase_put_off(tree, key, txn, scratch)?;
            return Ok(erased.then_some(true));
        }
        // What a short snapshot needs is not read for that.
        let waits = !due && self.is_mark_put_off(tree, key, txn)?;
        Ok(waits.then_some(false))
    }

    /// Cleans the leaf of that key, or of the key alone; false if something has to stay for
    /// now: a snapshot needs it, or it is locked and its locks could not be moved.
    fn purge_entry(
        &self,
        table: &Arc<Table>,
        number: usize,
        key: &[u8],
        mut alone: bool,
        clean: Clean,
        scratch: &mut Scratch,
    ) -> Result<bool> {
        let tree = table.tree(number);
        let mut has_read = false;
        loop {
            let mut leaf = tree.leaf_mut(key, PageId::NONE)?;
            let slots = match leaf.find(key) {
                _ if !alone => 0..leaf.count(),
                Ok(slot) => slot..slot + 1,
                Err(_) => return Ok(true),
            };
            let cleaned = self.clean_leaf(table, number, &mut leaf, slots, scratch, clean);
            let sparse = is_worth_merging(&leaf);
            drop(leaf);
            debug_assert!(cleaned.left || cleaned.lacks.is_none(), "of no use");
            let merged = match cleaned.lacks {
                // Once: it may be gone again, or another one is needed by then.
                Some(page) if !has_read => {
                    has_read = true;
                    tree.load(page)?;
                    continue;
                }
                _ if sparse => tree.merge_at(key, NO_UNDO)?,
                _ => false,
            };
            if merged {
                // Marks may have come from a page that is gone, whose turn was still to come.
                alone = false;
                continue;
            }
            return Ok(!cleaned.left);
        }
    }

    /// Removes delete-marked records that nobody needs from those slots and, if asked, archives
    /// those that old snapshots need and drops the stamps of records everybody sees.
    pub(crate) fn clean_leaf(
        &self,
        table: &Table,
        number: usize,
        leaf: &mut LeafMut<'_>,
        slots: Range<usize>,
        scratch: &mut Scratch,
        clean: Clean,
    ) -> Cleaned {
        debug_assert!(slots.end <= leaf.count(), "{slots:?} of {}", leaf.count());
        let before = node::free_bytes(leaf);
        let mut left = false;
        let mut actions: Vec<(u16, u8)> = Vec::new();
        let mut way = Way {
            stays: slots.end,
            moves: MOVES_AT_ONCE,
            lacks: None,
        };
        let mut key = Vec::new();
        // From the last to the first, for the locks of what goes are inherited by what follows.
        for slot in slots.rev() {
            let header = leaf.record(slot).header;
            if header.deleted && self.txns.is_committed(header.txn) {
                key.clear();
                node::key_into(leaf, slot, &mut key);
                let marked = Marked {
                    table,
                    number,
                    leaf,
                    slot,
                    key: &key,
                    archive: clean.archive,
                };
                debug_assert!(way.stays > slot, "locks move to what goes before");
                if self.may_leave(&marked, &mut way) {
                    actions.push((slot as u16, GC_REMOVE));
                    continue;
                }
                left = true;
            }
            way.stays = slot;
            let stamped = !header.deleted && !header.txn.is_frozen();
            if clean.freeze && stamped && self.txns.visible_to_all(header.txn) {
                debug_assert!(!self.txns.is_active(header.txn), "{} is frozen", header.txn);
                actions.push((slot as u16, GC_FREEZE));
            }
        }
        let mut cleaned = Cleaned {
            bytes: 0,
            left,
            lacks: way.lacks,
        };
        if actions.is_empty() {
            return cleaned;
        }
        actions.reverse();
        debug_assert!(
            actions.is_sorted_by(|a, b| a.0 < b.0),
            "a record goes twice"
        );
        let count = leaf.count();
        leaf.gc(NO_UNDO, &actions, scratch);
        let gone = actions
            .iter()
            .filter(|(_, what)| *what == GC_REMOVE)
            .count();
        assert_eq!(leaf.count() + gone, count, "records of a leaf");
        assert!(node::free_bytes(leaf) >= before, "cleaning takes room");
        cleaned.bytes = node::free_bytes(leaf) - before;
        cleaned
    }

    /// May the record leave the tree, and its locks with it? They have become gap locks on what
    /// follows on return. The page that has that may not be in memory: then a locked record stays.
    fn may_leave(&self, marked: &Marked<'_>, way: &mut Way) -> bool {
        let index = marked.table.tree(marked.number).index();
        if !self.locks.is_anchor(index, marked.key) {
            return self.may_remove(marked);
        }
        if way.moves == 0 {
            return false;
        }
        let leaf = marked.leaf;
        let moved = leaf.with_successor(way.stays, &mut Vec::new(), |successor| {
            let goes = self.may_remove(marked);
            if goes {
                let successor = successor.unwrap_or(&SUPREMUM);
                let moved = self.locks.inherit_removed(index, marked.key, successor);
                way.moves = way.moves.saturating_sub(moved);
            }
            goes
        });
        moved.unwrap_or_else(|page| {
            debug_assert!(way.stays == leaf.count(), "its successor is on the leaf");
            way.lacks = Some(page);
            false
        })
    }

    /// May the record leave the tree? If an old snapshot needs it and `archive` is set, it is in the
    /// delete_archive on return.
    fn may_remove(&self, marked: &Marked<'_>) -> bool {
        let rec = marked.leaf.record(marked.slot);
        assert!(rec.header.deleted, "a live row is purged");
        debug_assert!(
            !self.txns.is_active(rec.header.txn),
            "an unfinished deletion is purged"
        );
        if self.txns.visible_to_all(rec.header.txn)
            || ferrite_sync::mutant!("purge.ignore_snapshots")
        {
            return true;
        }
        if !self.needed_by_snapshots(&rec.header) {
            // Its versions go with it.
            self.keep_needed(&mut rec.header.clone(), rec.value);
            return true;
        }
        if !marked.archive {
            return false;
        }
        let mut header = rec.header;
        if self.keep_needed(&mut header, rec.value) && !ferrite_sync::mutant!("purge.lose_archived")
        {
            let newest = self.txns.last_csn();
            debug_assert!(!header.version.is_none() && header.txn == rec.header.txn);
            let value = self.payload_to_archive(marked.number, &mut header, rec.value);
            let delete_archive = marked.table.archive(marked.number);
            delete_archive.archive(marked.key, header, value, newest);
            self.purge.archived.fetch_add(1, Ordering::Relaxed);
        }
        true
    }

    /// What is archived of a deleted entry's payload. That of a long row goes with the row's earlier
    /// state, which becomes a difference to nothing: versions go to scratch files where memory ends,
    /// the archive stays in it. The caller alone can reach the chain, and uses the header it leaves.
    fn payload_to_archive<'v>(
        &self,
        number: usize,
        header: &mut Header,
        payload: &'v [u8],
    ) -> &'v [u8] {
        debug_assert!(header.deleted && !header.version.is_none());
        // What an entry of another index says is its payload: where its key ends.
        if number != 0 || payload.len() < LONG_PAYLOAD_BYTES {
            return payload;
        }
        match self.rebase(header.version, payload, &[]) {
            Ok(version) if !version.is_none() => {
                header.version = version;
                &[]
            }
            // It cannot be read just now, or went a moment ago: nothing has changed.
            Ok(_) | Err(_) => payload,
        }
    }

    /// Lets go of archived entries that no snapshot needs any more; how many.
    pub(crate) fn sweep_archives(&self) -> u64 {
        let mut gone = 0;
        for table in self.dict.open_tables() {
            for delete_archive in table.archives() {
                gone += delete_archive
                    .sweep(&self.stop, &|header, value| self.keep_needed(header, value));
            }
        }
        gone
    }
}

/// How far a batch has come.
struct SoFar {
    /// Pieces done.
    done: usize,
    /// Nothing can be done just now.
    stuck: bool,
    /// Pages of values that were held which may still be freed.
    held_pages: u64,
}

/// A delete-marked record whose transaction has committed.
struct Marked<'m> {
    table: &'m Table,
    number: usize,
    leaf: &'m LeafMut<'m>,
    slot: usize,
    key: &'m [u8],
    /// What only snapshots need goes to the delete_archive.
    archive: bool,
}

/// How far a visit of a leaf has come, going down.
struct Way {
    /// The slot of the record passed last that stays.
    stays: usize,
    /// Locks that may still be moved.
    moves: usize,
    /// The page that a record's locks would move to, or one on the way there, is not in memory.
    lacks: Option<PageId>,
}

/// What came of cleaning a leaf.
pub(crate) struct Cleaned {
    /// Bytes gained.
    pub bytes: usize,
    /// A committed delete-mark is left.
    pub left: bool,
    /// It may go once this page is in memory.
    pub lacks: Option<PageId>,
}

/// What is to be done besides removing what nobody needs.
#[derive(Clone, Copy)]
pub(crate) struct Clean {
    /// Drop the stamps of records everybody sees.
    pub freeze: bool,
    /// Move what only snapshots need to the delete_archive.
    pub archive: bool,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rows::write::DupInfo;
    use crate::testing::{config, create, out_of_memory, until, Heard};
    use crate::Session;
    use ferrite_io::sim::{Fault, SimStorage};
    use ferrite_lock::{LockRequest, Mode, Span};

    struct World {
        disk: SimStorage,
        heard: Arc<Heard>,
        engine: Arc<Engine>,
        table: Arc<Table>,
        cleaner: Cleaner,
    }

    impl World {
        /// A database whose background is run by hand, but for the writer of pages, with a value
        /// out of line that a committed delete has let go of; its pages are clean.
        fn with_garbage() -> World {
            World::with_garbage_seen_by(|_| ())
        }

        /// The same; `before` is called before the delete.
        fn with_garbage_seen_by(before: impl FnOnce(&Arc<Engine>)) -> World {
            let disk = SimStorage::new(7);
            let heard = Arc::new(Heard::default());
            let engine = Engine::open(config(), Arc::new(disk.boot()), heard.clone()).unwrap();
            engine.purge.hold_back(true);
            let table = create(&engine);
            let mut s = Session::new(&engine, 0, 1);
            let value = s.write_overflow(&table, &[7; 100_000]).unwrap();
            let row = [&[1u8][..], value.bytes()].concat();
            s.insert_row(
                &table,
                Some(b"k"),
                &row,
                &[],
                false,
                &mut DupInfo::default(),
            )
            .unwrap();
            s.commit(false).unwrap();
            before(&engine);
            s.delete_row(&table, b"k", &[]).unwrap();
            s.commit(false).unwrap();
            drop(s);
            engine
                .pool
                .flush_all_below(ferrite_types::Lsn::MAX)
                .unwrap();
            engine.txns.refresh();
            assert_eq!(engine.purge.pending_overflow().len(), 1);
            let cleaner = Cleaner::default();
            World {
                disk,
                heard,
                engine,
                table,
                cleaner,
            }
        }

        /// Changes, until there are some that the writer cannot write any more: it may have written
        /// the first before the fault comes, and with the fault before the change there may be none.
        fn change_what_cannot_be_written(&self, fault: Fault) {
            let pool = &self.engine.pool;
            for n in 0..100 {
                self.change_a_row(n);
                self.disk.inject_lasting(fault, "store.");
                pool.flush_below(ferrite_types::Lsn::MAX);
                while pool.dirty_pages() > 0 {
                    if pool.write_failure().is_some() {
                        return;
                    }
                    ferrite_sync::thread::sleep_ms(1);
                }
                self.disk.clear_faults();
            }
            panic!("all changes were written at once");
        }

        /// A change, so that the writer has something to write.
        fn change_a_row(&self, n: u8) {
            let mut s = Session::new(&self.engine, 0, 1);
            s.insert_row(
                &self.table,
                Some(&[b'n', n]),
                &[0],
                &[],
                false,
                &mut DupInfo::default(),
            )
            .unwrap();
            s.commit(false).unwrap();
        }

        fn purge(&mut self) -> usize {
            self.engine.purge_round(&mut self.cleaner)
        }

        /// Purges until the row's entry is in the archive and the value is held for who sees it; how much was done.
        fn purge_until_held(&mut self) -> usize {
            let mut done = 0;
            for _ in 0..12_000 {
                done += self.purge();
                if done > 0 && self.engine.purge.held_bytes().1 >= 100_000 {
                    return done;
                }
                ferrite_sync::thread::sleep_ms(5);
            }
            panic!("it is not held");
        }

        /// Purges until nothing is left.
        fn purge_all(&mut self) {
            for _ in 0..12_000 {
                self.purge();
                if self.engine.purge.length() == 0 {
                    return;
                }
                ferrite_sync::thread::sleep_ms(5);
            }
            panic!("purge does not end");
        }
    }

    /// Where pages cannot be written there is no frame to be had: the value is freed later.
    #[test]
    fn garbage_is_kept_while_no_frame_can_be_had() {
        for fault in [Fault::FailWrite, Fault::Full] {
            let mut w = World::with_garbage();
            w.change_what_cannot_be_written(fault);
            let pool = w.engine.pool.clone();
            let mut held = Vec::new();
            let error = loop {
                match pool.reserve(1) {
                    Ok(frames) => held.extend(frames),
                    Err(e) => break e,
                }
            };
            let expected = match fault {
                Fault::Full => matches!(error, Error::DiskFull(_)),
                _ => matches!(error, Error::Io(_)),
            };
            assert!(expected, "{error:?}");
            w.purge();
            assert_eq!(*w.heard.0.lock(), Vec::<String>::new(), "given up");
            assert_eq!(w.engine.purge.pending_overflow().len(), 1, "{fault:?}");
            drop(held);
            w.disk.clear_faults();
            w.purge_all();
            assert_eq!(w.engine.check_values().unwrap().pages, 0);
            w.engine.close().unwrap();
        }
    }

    /// What cannot be read is not tried again and again: it is said, and left.
    #[test]
    fn garbage_that_cannot_be_read_is_given_up() {
        // A flipped bit may be one behind the blob, in its last granule, where nothing is.
        for fault in [Fault::FailRead, Fault::MisdirectedRead] {
            let mut w = World::with_garbage();
            let (_, value) = w.engine.purge.pending_overflow()[0];
            out_of_memory(&w.engine, value.first_page());
            for nth in 1..100 {
                w.disk.inject_in(fault, nth, "store.");
            }
            w.purge();
            w.disk.clear_faults();
            let heard = w.heard.0.lock().clone();
            assert!(!heard.is_empty(), "{fault:?}: nothing is said");
            assert!(
                heard.iter().all(|text| text.contains("purge failed")),
                "{heard:?}"
            );
            assert_eq!(w.engine.purge.pending_overflow().len(), 0, "{fault:?}");
            w.purge_all();
            assert_eq!(w.heard.0.lock().len(), heard.len(), "said again");
            w.engine.close().unwrap();
        }
    }

    /// A value that a snapshot needs is looked at again and again: its page is read once for that.
    #[test]
    fn what_is_held_is_not_read_again() {
        let mut old = None;
        let mut w = World::with_garbage_seen_by(|engine| {
            let mut s = Session::new(engine, 0, 2);
            s.open_snapshot();
            old = Some(s);
        });
        assert_eq!(w.purge_until_held(), 1);
        let (_, value) = w.engine.purge.pending_overflow()[0];
        out_of_memory(&w.engine, value.first_page());
        for nth in 1..100 {
            w.disk.inject_in(Fault::FailRead, nth, "store.");
        }
        for _ in 0..2 {
            ferrite_sync::thread::sleep_ms(600);
            w.purge();
        }
        assert_eq!(*w.heard.0.lock(), Vec::<String>::new(), "it was read");
        assert_eq!(w.engine.purge.pending_overflow().len(), 1);
        w.disk.clear_faults();
        drop(old);
        w.engine.txns.refresh();
        w.purge_all();
        assert_eq!(w.engine.check_values().unwrap().pages, 0);
        w.engine.close().unwrap();
    }

    /// A locked entry goes though its locks move to a page that is not in memory: that is read once.
    #[test]
    fn the_leaf_that_a_removed_records_locks_move_to_is_read() {
        let engine = crate::testing::open(&SimStorage::new(8));
        engine.purge.hold_back(true);
        let table = create(&engine);
        let mut s = Session::new(&engine, 0, 1);
        let key = |n: u32| n.to_be_bytes();
        for n in 0..400 {
            let dup = &mut DupInfo::default();
            s.insert_row(&table, Some(&key(n)), &[0; 500], &[], false, dup)
                .unwrap();
        }
        s.commit(false).unwrap();
        let tree = table.tree(0);
        let (last, right) = {
            let leaf = tree.leaf_mut(&key(0), PageId::NONE).unwrap();
            (leaf.count() as u32 - 1, node::right(&leaf))
        };
        assert!(right != PageId::NONE, "there is one leaf");
        let other = Session::new(&engine, 0, 2);
        let owner = other.owner().clone();
        let (index, gap) = (tree.index(), Span::Gap);
        let on = key(last);
        let request = LockRequest::new(index, &on, Mode::Shared, gap);
        assert!(engine.locks.try_lock(&owner, request).unwrap().is_granted());
        s.delete_row(&table, &key(last), &[]).unwrap();
        s.commit(false).unwrap();
        out_of_memory(&engine, right);
        engine.txns.refresh();
        assert_eq!(engine.purge_round(&mut Cleaner::default()), 1, "it stays");
        assert_eq!(engine.purge.length(), 0);
        let leaf = tree.leaf_mut(&key(0), PageId::NONE).unwrap();
        assert!(leaf.find(&key(last)).is_err(), "the entry is there");
        drop(leaf);
        assert!(
            engine.locks.is_anchor(index, &key(last + 1)),
            "a lock is lost"
        );
        drop((s, other));
        engine.close().unwrap();
    }

    /// What is held for a snapshot counts in the configured limit, with the disk that it takes: beyond it
    /// the snapshot ends, and the value is freed.
    #[test]
    fn held_values_count_in_the_limit_of_history() {
        let mut old = None;
        let w = World::with_garbage_seen_by(|engine| {
            let mut s = Session::new(engine, 0, 2);
            s.open_snapshot();
            old = Some(s);
        });
        w.engine.purge.hold_back(false);
        let wait_until = |what: &str, done: &dyn Fn() -> bool| {
            for _ in 0..4000 {
                if done() {
                    return;
                }
                ferrite_sync::thread::sleep_ms(5);
            }
            panic!("{what}");
        };
        let held = || w.engine.purge.held_bytes();
        wait_until("it is held", &|| held().1 >= 100_000);
        assert!(held().0 > 0, "it takes no memory");
        w.engine.set("max_history_bytes", 1 << 20).unwrap();
        // Longer than a snapshot is spared.
        ferrite_sync::thread::sleep_ms(3000);
        assert_eq!(w.engine.snapshot_rows().len(), 1, "it is within the limit");
        w.engine.set("max_history_bytes", 90_000).unwrap();
        wait_until("the snapshot ends", &|| w.engine.snapshot_rows().is_empty());
        wait_until("it is freed", &|| {
            w.engine.purge.pending_overflow().is_empty()
        });
        assert_eq!(held(), (0, 0));
        assert_eq!(w.engine.check_values().unwrap().pages, 0);
        drop(old);
        w.engine.close().unwrap();
    }

    /// The limit of history ends the snapshot that values are held for, and none for what that one held, however long
    /// purge takes to free it.
    #[test]
    fn no_other_snapshot_ends_for_what_an_ended_one_held() {
        let mut old = None;
        let mut w = World::with_garbage_seen_by(|engine| {
            let mut s = Session::new(engine, 0, 2);
            s.open_snapshot();
            old = Some(s);
        });
        w.purge_until_held();
        let mut young = Session::new(&w.engine, 0, 3);
        young.open_snapshot();
        w.change_a_row(0);
        let engine = w.engine.clone();
        let open = || engine.snapshot_rows().len();
        assert_eq!(open(), 2);
        // Versions are counted in whole segments.
        let of = engine.versions.stats();
        let others = of.young_bytes + of.old_bytes + of.spilled_bytes + engine.archived().1;
        engine.set("max_history_bytes", others + 50_000).unwrap();
        until("none is ended", || open() != 2);
        // Longer than a snapshot is spared, and purge has not come to it yet.
        ferrite_sync::thread::sleep_ms(3000);
        assert_eq!((open(), w.engine.purge.pending_overflow().len()), (1, 1));
        w.purge_all();
        ferrite_sync::thread::sleep_ms(1500);
        assert_eq!((open(), w.engine.purge.held_bytes()), (1, (0, 0)));
        drop((old, young, engine));
        w.engine.close().unwrap();
    }

    /// A batch frees no more of what is held than of what is fresh, and what is left comes in the next ones.
    #[test]
    fn what_is_held_is_freed_in_small_batches() {
        let engine = crate::testing::open(&SimStorage::new(7));
        engine.purge.hold_back(true);
        let table = create(&engine);
        // They are gone already.
        let value = |n: u32| {
            let reference = OverflowRef::new(PageId(1000 + n), 3000, 1, 0);
            Garbage::overflow_of(&table, reference)
        };
        for n in 0..4 {
            let values = vec![value(2 * n), value(2 * n + 1)];
            engine.purge.add(TxnId::FROZEN, values);
            let batch = engine.purge.take(1, BATCH).unwrap();
            engine.purge.put_back(batch);
        }
        let left = || engine.purge.pending_overflow().len();
        assert!(left() == 8 && engine.purge.held_bytes().0 > 0);
        let mut cleaner = Cleaner::default();
        let mut round = || (engine.purge_round(&mut cleaner), left());
        assert_eq!([(); 3].map(|()| round()), [(3, 5), (3, 2), (2, 0)]);
        assert_eq!(engine.purge.held_bytes(), (0, 0));
        engine.close().unwrap();
    }

    /// A committer pays for what it leaves, not for the large transaction of another one.
    #[test]
    fn a_share_is_in_proportion() {
        let disk = SimStorage::new(7);
        let engine = crate::testing::open(&disk);
        engine.purge.hold_back(true);
        let table = create(&engine);
        let piece = |_| Garbage::entry(&table, 0, b"nothing has this key", true);
        engine
            .purge
            .add(TxnId::FROZEN, (0..2000).map(piece).collect());
        let mut scratch = Scratch::default();
        let mut share = |left| {
            let before = engine.purge.purged.load(Ordering::Relaxed);
            engine.assist_purge(left, &mut scratch);
            engine.purge.purged.load(Ordering::Relaxed) - before
        };
        assert_eq!([0, 1, 7, 200].map(&mut share), [0, 2, 14, 400]);
        assert_eq!(engine.purge.length(), 1);
        let most = SHARE_MOST as u64;
        assert_eq!(share(5000), most, "however much it left");
        assert_eq!([5000, 5000].map(&mut share), [2000 - 416 - most, 0]);
        assert_eq!(engine.purge.length(), 0);
        // Values that are gone already.
        let add = |count: u32, pages| {
            let value = |n| {
                let reference = OverflowRef::new(PageId(1000 + n), pages, 1, 0);
                Garbage::overflow_of(&table, reference)
            };
            engine
                .purge
                .add(TxnId::FROZEN, (0..count).map(value).collect());
        };
        add(20, 40);
        assert_eq!([9, 40].map(&mut share), [1, 2], "of 64 pages, and of 80");
        add(5, 65);
        assert_eq!(
            [5000, 5000].map(&mut share),
            [17, 0],
            "long ones are the helpers'"
        );
        engine.close().unwrap();
    }
}
