//! Values out of line: a chain of pages of their own, written once, freed when the last row
//! version that names them is gone.
//!
//! ```text
//! page: the prefix every page has (index id, level 0, kind 2, used areas) | 16 next page u32
//!       | 20 transaction that made the value u48, on its first page | 28 stamp u32 | 40 data
//! ```
//! Every page is logged with an undo entry of its own, so a rollback frees exactly what was
//! made, however far it got. When a committed change lets go of a value, its reference goes
//! into the commit record; after a crash those records say what is still to be freed.
//!
//! # Invariants
//! - A value is written once and never changed. Each has a stamp of its own, in its reference
//!   and on each of its pages: bytes read from pages that bear the reference's stamp are that
//!   value's, whoever frees or reuses pages meanwhile. (Values of before there were stamps have
//!   stamp 0, and so have their pages.)
//! - Values belong to the row change that follows them: if that fails, its undo begins before
//!   the first of them. What no row, needed version or purge piece names is free
//!   ([`Engine::check_values`], in `account.rs`).
//!
//! Locking: one page latch at a time, shared for reading; `cut_chain` takes two neighbours.

use crate::catalog::table::Table;
use crate::log_records::undo::{self, Undo};
use crate::state::engine::Engine;
use crate::state::purge_work::Garbage;
use crate::state::slot::Isolation;
use crate::transaction::session::Session;
use ferrite_buffer::{page_prefix, NewFrame};
use ferrite_sync::atomic::Ordering;
use ferrite_sync::{kill_point, Arc};
use ferrite_tree::{node, op};
use ferrite_types::{
    ByteReader, Error, IndexId, OverflowRef, PageId, Result, TxnId, UndoPosition,
    OVERFLOW_REF_BYTES, PAGE_BYTES,
};

const DATA_AT: usize = node::HEADER_BYTES;
const MAKER: std::ops::Range<usize> = 20..26;
const STAMP: std::ops::Range<usize> = 28..32;
const DATA_BYTES: usize = PAGE_BYTES - DATA_AT;
// The head of a page is before its data, and positions on a page fit its words.
const _: () = assert!(MAKER.end <= STAMP.start && STAMP.end <= DATA_AT);
const _: () = assert!(PAGE_BYTES <= u16::MAX as usize && DATA_BYTES > 0);
const _: () = assert!(OVERFLOW_REF_BYTES == 16, "a reference in a payload");
/// A longer value has no reference.
const MAX_VALUE_BYTES: usize = u32::MAX as usize;
/// Between so many pages of a value it is asked again whether there is space: one value may take more
/// of the log than is kept for what already runs.
const PAGES_ADMITTED: usize = 16;
/// Who frees a value lets others at its table after so many pages of it.
const PART_PAGES: usize = 64;

/// Opens a payload with more references than fit one byte: then count u16, [`MANY_MARK`].
pub const MANY_OVERFLOW_REFS: u8 = 255;
/// The upper half of a page id that no page has: before there could be more, 255 references
/// followed their count at once, and the first began with a page id.
const MANY_MARK: u16 = 0xffff;

/// How many references a row payload opens with, and where they begin.
pub fn reference_head(payload: &[u8]) -> (usize, usize) {
    let mut r = ByteReader::new(payload);
    match (r.u8(), r.u16(), r.u16()) {
        (Some(MANY_OVERFLOW_REFS), Some(count), Some(MANY_MARK)) => (usize::from(count), 5),
        (count, ..) => (usize::from(count.unwrap_or(0)), 1),
    }
}

/// The references a row payload opens with.
pub fn references(payload: &[u8]) -> impl Iterator<Item = OverflowRef> + '_ {
    let (count, at) = reference_head(payload);
    let end = (at + count * OVERFLOW_REF_BYTES).min(payload.len());
    payload[at.min(end)..end]
        .chunks_exact(OVERFLOW_REF_BYTES)
        .map(|c| OverflowRef::from_bytes(c.try_into().expect("chunks are of this size")))
}

/// What follows the references of a row payload.
pub(crate) fn columns(payload: &[u8]) -> &[u8] {
    let (count, at) = reference_head(payload);
    let end = (at + count * OVERFLOW_REF_BYTES).min(payload.len());
    &payload[end..]
}

/// References of a row payload that its next state does not have. Allocates nothing for a row without
/// values out of line.
pub(crate) fn no_longer_named(payload: &[u8], next: &[u8]) -> Vec<OverflowRef> {
    if payload.first().is_none_or(|count| *count == 0) {
        return Vec::new();
    }
    let mut named: Vec<OverflowRef> = references(next).collect();
    named.sort_unstable();
    references(payload)
        .filter(|reference| named.binary_search(reference).is_err())
        .collect()
}

/// Is the page, of that index, a part of the value that the reference names?
fn is_part(page: &[u8], index: IndexId, reference: &OverflowRef) -> bool {
    let ours = page[5] == page_prefix::KIND_OVERFLOW && page_prefix::index(page) == index.0;
    ours && page[STAMP] == reference.stamp().to_le_bytes()
}

/// Who made the value whose first page this is; frozen on its other pages.
fn maker_of(page: &[u8]) -> TxnId {
    let mut bytes = [0; 8];
    bytes[..6].copy_from_slice(&page[MAKER]);
    TxnId(u64::from_le_bytes(bytes))
}

/// The data of a page that should be part of that value; None: it is not.
pub(crate) fn data_of<'p>(
    page: &'p [u8],
    index: IndexId,
    reference: &OverflowRef,
) -> Option<&'p [u8]> {
    let (end, _) = page_prefix::used(page);
    (is_part(page, index, reference) && end >= DATA_AT).then(|| page.get(DATA_AT..end))?
}

/// What a page of a value says besides its data.
struct PageOf {
    index: IndexId,
    next: PageId,
    maker: TxnId,
    stamp: u32,
}

fn build(page: &mut [u8], of: &PageOf, data: &[u8]) {
    let PageOf {
        index,
        next,
        maker,
        stamp,
    } = of;
    assert!(data.len() <= DATA_BYTES, "{} bytes on a page", data.len());
    assert!(
        maker.0 < 1 << 48 && *stamp != 0,
        "maker {maker}, stamp {stamp}"
    );
    page[..DATA_AT].fill(0);
    page[0..4].copy_from_slice(&index.0.to_le_bytes());
    page[5] = page_prefix::KIND_OVERFLOW;
    page[6..8].copy_from_slice(&((DATA_AT + data.len()) as u16).to_le_bytes());
    page[8..10].copy_from_slice(&(PAGE_BYTES as u16).to_le_bytes());
    page[16..20].copy_from_slice(&next.0.to_le_bytes());
    page[MAKER].copy_from_slice(&maker.0.to_le_bytes()[..6]);
    page[STAMP].copy_from_slice(&stamp.to_le_bytes());
    page[DATA_AT..DATA_AT + data.len()].copy_from_slice(data);
    debug_assert_eq!((maker_of(page), node::right(page)), (*maker, *next));
    debug_assert_eq!(page_prefix::used(page).0, DATA_AT + data.len());
    debug_assert_eq!(page_prefix::index(page), index.0);
}

/// A frame for page `number` of a value.
///
/// # Errors
/// `DiskFull`, `Io`: there is no space for it, or no frame. `Interrupted` by KILL, of who waits for space.
fn frame_of_value(engine: &Engine, thd: usize, number: usize) -> Result<NewFrame<'_>> {
    debug_assert!(number <= MAX_VALUE_BYTES / DATA_BYTES, "page {number}");
    if number % PAGES_ADMITTED == 0 {
        engine.admission(&|| engine.callbacks.is_killed(thd))?;
    }
    let mut frames = engine.pool.reserve(1)?;
    debug_assert_eq!(frames.len(), 1);
    Ok(frames.pop().expect("one was reserved"))
}

impl Session {
    /// Stores a value of the row that is inserted or updated next: it belongs to that change,
    /// and goes with it if it fails.
    ///
    /// # Errors
    /// `DiskFull`; `RowTooBig` for a value of 4 GiB; `Interrupted` by KILL, of a long one. Nothing of the row's values remains.
    pub fn write_overflow(&mut self, table: &Arc<Table>, value: &[u8]) -> Result<OverflowRef> {
        let position = self.undo_position();
        self.row_values.from.get_or_insert(position);
        self.throttle();
        let stored = self.store_value(table, value);
        if stored.is_err() {
            self.take_values_back()?;
        }
        stored
    }

    /// The undo position before the row change that follows: before the first of its values.
    pub(crate) fn row_begins(&mut self, table: &Table) -> UndoPosition {
        self.throttle();
        self.row_changes.add(table.id());
        let now = self.undo_position();
        let from = self.row_values.from.take().unwrap_or(now);
        debug_assert!(from <= now, "a row's values lie before it");
        self.row_undo = from;
        if ferrite_sync::mutant!("write.values_kept_after_failure") {
            return now;
        }
        from
    }

    /// The row change has ended well: the values are its row's.
    pub(crate) fn row_ends(&mut self) {
        debug_assert!(self.row_values.from.is_none(), "values of no row");
        if !self.row_values.loaded.is_empty() {
            self.row_values.loaded.clear();
        }
    }

    /// The row whose values were written will not be: they go.
    ///
    /// # Errors
    /// A page that cannot be read.
    pub fn take_values_back(&mut self) -> Result<()> {
        if let Some(from) = self.row_values.from.take() {
            if self.txn.has_changes() && self.undo_position() > from {
                self.rollback_to_inner(from)?;
            }
        }
        self.drop_loaded_values()
    }

    /// Frees what was written without undo. What cannot be freed now purge sees to, and what the log has no room for.
    ///
    /// # Errors
    /// The first one. Nothing is kept here for another attempt.
    pub(crate) fn drop_loaded_values(&mut self) -> Result<()> {
        let mut result = Ok(());
        for (table, reference) in std::mem::take(&mut self.row_values.loaded) {
            let index = table.tree(0).index();
            let engine = &self.engine;
            let mut go_on = || match engine.log.is_nearly_out() {
                true => Err(Error::Interrupted),
                false => Ok(true),
            };
            let freed =
                go_on().and_then(|_| engine.free_overflow_in_parts(index, &reference, &mut go_on));
            if let Err(e) = freed {
                let piece = Garbage::overflow_of(&table, reference);
                engine.purge.add(TxnId::FROZEN, vec![piece]);
                if e != Error::Interrupted {
                    result = result.and(Err(e));
                }
            }
        }
        debug_assert!(
            self.row_values.loaded.is_empty(),
            "values that nobody frees"
        );
        result
    }

    /// # Errors
    /// `DiskFull`, at first or on the way, or `Interrupted`: the transaction's undo has the pages that were made.
    fn store_value(&mut self, table: &Arc<Table>, value: &[u8]) -> Result<OverflowRef> {
        let loading = table.loading.load(Ordering::Relaxed);
        if !loading {
            self.writing()?;
        }
        if value.len() > MAX_VALUE_BYTES {
            return Err(Error::RowTooBig);
        }
        let engine = self.engine.clone();
        let pool = &engine.pool;
        let index = table.tree(0).index();
        let stamp = engine.next_value_stamp();
        let count = value.len().div_ceil(DATA_BYTES).max(1);
        pool.store().check_page_ids(count)?;
        let ids: Vec<PageId> = (0..count).map(|_| pool.alloc_page(index)).collect();
        debug_assert!(
            ids.len() > 64
                || ids
                    .iter()
                    .all(|id| ids.iter().filter(|i| *i == id).count() == 1),
            "a page is given out twice"
        );
        let mut chunks = value.chunks(DATA_BYTES);
        for (i, &page) in ids.iter().enumerate() {
            let data = chunks.next().unwrap_or(&[]);
            let next = ids.get(i + 1).copied().unwrap_or(PageId::NONE);
            let may_go_on = match i > 0 && i % PAGES_ADMITTED == 0 {
                true => self.pause_amid_value(loading),
                false => Ok(()),
            };
            let mut frame = match may_go_on.and_then(|()| frame_of_value(&engine, self.thd, i)) {
                Ok(frame) => frame,
                Err(e) => {
                    ids[i..].iter().for_each(|id| pool.unalloc_page(*id));
                    return Err(e);
                }
            };
            let maker = if i == 0 { self.txn.id() } else { TxnId::FROZEN };
            assert!(
                page != PageId::NONE && page != next,
                "page {page} of a value"
            );
            debug_assert!(i > 0 || loading || !maker.is_frozen(), "made by nobody");
            let of = PageOf {
                index,
                next,
                maker,
                stamp,
            };
            build(frame.bytes_mut(), &of, data);
            let undo = Undo::Overflow { index, page };
            let frame_no = frame.frame_no();
            let write = |prelude: &[u8]| {
                let mut ops = Vec::with_capacity(PAGE_BYTES + 64);
                op::image(page, &frame, &mut ops);
                let kind = ferrite_types::format::record_kind::MINI_TXN;
                pool.append(kind, &[prelude, &ops], &[frame_no])
            };
            if loading {
                write(undo::NO_UNDO);
            } else {
                self.logged(&undo, |prelude, _| write(prelude));
            }
            pool.publish_new(page, frame);
        }
        debug_assert!(chunks.next().is_none(), "a value is cut off");
        let reference = OverflowRef::new(ids[0], count as u32, value.len() as u32, stamp);
        if loading {
            self.row_values.loaded.push((table.clone(), reference));
        }
        Ok(reference)
    }

    /// Between two pages of a value: one may be longer than the log's budget. What was written until here is in the
    /// undo, and goes with it. Where a table is loaded without undo it is not broken off.
    ///
    /// # Errors
    /// `Interrupted` by KILL.
    fn pause_amid_value(&mut self, loading: bool) -> Result<()> {
        self.throttle();
        match loading {
            true => Ok(()),
            false => self.check_killed(),
        }
    }

    /// Reads a value of a row that this session has just read into `out`, which has the
    /// value's length.
    ///
    /// # Errors
    /// `ValueGone` at READ UNCOMMITTED, and at READ COMMITTED, whose semi-consistent reads hold no
    /// lock: the row was changed or rolled back since, and the value went with it; who reads the
    /// row again finds another state, or the value is corrupt.
    /// `SnapshotTooOld`; `Corrupt`; a page that cannot be read.
    pub fn read_value(&self, reference: &OverflowRef, out: &mut [u8]) -> Result<()> {
        let result = self.engine.read_overflow(reference, out);
        // Its pages may have gone while we read, and with them the reason to believe an error.
        self.snapshot_holds()?;
        match result {
            Err(Error::Corrupt(found)) if self.isolation <= Isolation::ReadCommitted => {
                Err(Error::ValueGone(found))
            }
            other => other,
        }
    }
}

impl Engine {
    /// A stamp that no other value has; never 0. It wraps after 2^32 values: a reference of
    /// back then would have to name the same first page to be taken for the new value.
    fn next_value_stamp(&self) -> u32 {
        loop {
            let stamp = self.value_stamp.fetch_add(1, Ordering::Relaxed);
            if stamp != 0 {
                return stamp;
            }
        }
    }

    /// Reads a value into `out`, which has its length.
    ///
    /// # Errors
    /// `Corrupt` when the chain is broken or the value is not there any more; a page that
    /// cannot be read.
    pub fn read_overflow(&self, reference: &OverflowRef, out: &mut [u8]) -> Result<()> {
        let (mut page, count) = (reference.first_page(), reference.pages());
        let len = reference.length();
        if out.len() as u64 != len {
            return Err(Error::Bug("overflow value read into another length".into()));
        }
        let mut done = 0;
        let mut pages = 0;
        let mut owner = None;
        while done < out.len() {
            let fault = || Error::Corrupt(format!("page {page}: overflow chain is broken"));
            kill_point!("overflow.read_page");
            let guard = self.pool.shared(page)?.ok_or_else(fault)?;
            let index = *owner.get_or_insert(IndexId(page_prefix::index(&guard)));
            let data = if ferrite_sync::mutant!("overflow.owner_not_checked") {
                guard.get(DATA_AT..page_prefix::used(&guard).0)
            } else {
                data_of(&guard, index, reference)
            };
            let data = data.ok_or_else(fault)?;
            pages += 1;
            if data.is_empty() || data.len() > out.len() - done || pages > count {
                return Err(fault());
            }
            out[done..done + data.len()].copy_from_slice(data);
            done += data.len();
            page = node::right(&guard);
        }
        Ok(())
    }

    /// The pages of a value that are still there, in its order. A value that is being freed
    /// loses its last page first, so what is there is the beginning of it.
    pub(crate) fn value_pages(
        &self,
        index: IndexId,
        reference: &OverflowRef,
    ) -> Result<Vec<PageId>> {
        let all = self.value_pages_in_parts(index, reference, &mut || Ok(true))?;
        Ok(all.expect("nobody stops it"))
    }

    /// The same; `pause` is called after each part of them, with no latch held. None: it was false.
    fn value_pages_in_parts(
        &self,
        index: IndexId,
        reference: &OverflowRef,
        pause: &mut dyn FnMut() -> Result<bool>,
    ) -> Result<Option<Vec<PageId>>> {
        let (mut page, count) = (reference.first_page(), reference.pages());
        let mut chain = Vec::new();
        while page != PageId::NONE && chain.len() < count as usize {
            if chain.len() % PART_PAGES == PART_PAGES - 1 && !pause()? {
                return Ok(None);
            }
            let Some(guard) = self.pool.shared(page)? else {
                break;
            };
            // A reference may outlive its value: the page is somebody else's then.
            if !is_part(&guard, index, reference) {
                break;
            }
            debug_assert!(chain.first().is_none_or(|p| *p == reference.first_page()));
            chain.push(page);
            page = node::right(&guard);
        }
        Ok(Some(chain))
    }

    /// True when the id names a page of some value.
    pub(crate) fn is_value_page(&self, page: PageId) -> Result<bool> {
        let guard = self.pool.shared(page)?;
        Ok(guard.is_some_and(|guard| guard[5] == page_prefix::KIND_OVERFLOW))
    }

    /// Who made a value; frozen when that is long ago, or the value gone.
    pub(crate) fn overflow_maker(&self, index: IndexId, reference: &OverflowRef) -> Result<TxnId> {
        let guard = self.pool.shared(reference.first_page())?;
        let Some(guard) = guard.filter(|guard| is_part(guard, index, reference)) else {
            return Ok(TxnId::FROZEN);
        };
        Ok(maker_of(&guard))
    }

    /// Frees one page of a value at the rollback of the transaction that made it; `under` runs the
    /// append under a lock of the caller's. A page that is not there any more was freed before a
    /// crash; one that names another transaction as its maker is not ours. (The first page of a
    /// value names it, the others do not.)
    pub(crate) fn free_overflow_page(
        &self,
        (index, txn): (IndexId, TxnId),
        page: PageId,
        prelude: &[u8],
        under: &mut dyn FnMut(&mut dyn FnMut()),
    ) -> Result<()> {
        let guard = self.pool.exclusive(page)?;
        let mut ops = Vec::new();
        assert!(!txn.is_frozen(), "nobody's value is rolled back");
        let mut leaves = Vec::new();
        if let Some(guard) = guard {
            let of_index = page_prefix::index(&guard) == index.0;
            let maker = maker_of(&guard);
            let ours = maker == txn || maker.is_frozen();
            if of_index && guard[5] == page_prefix::KIND_OVERFLOW && ours {
                op::free(page, index, &mut ops);
                leaves.push(guard);
            }
        }
        under(&mut || {
            let leaves = std::mem::take(&mut leaves);
            self.pool.free_pages(&[prelude, &ops], &[], leaves);
        });
        Ok(())
    }

    /// Frees a value nobody needs any more, from its end to its first page, with a call of `pause` after each part
    /// of its pages, with no latch held: a value may have a quarter of a million. If it is false, the table is gone,
    /// and the rest of the value with it.
    ///
    /// # Errors
    /// Also those of `pause`: what is left of the value may be freed later.
    pub(crate) fn free_overflow_in_parts(
        &self,
        index: IndexId,
        reference: &OverflowRef,
        pause: &mut dyn FnMut() -> Result<bool>,
    ) -> Result<()> {
        let Some(chain) = self.value_pages_in_parts(index, reference, pause)? else {
            return Ok(());
        };
        debug_assert!(chain.len() <= reference.pages() as usize, "{}", chain.len());
        for i in (1..chain.len()).rev() {
            if i % PART_PAGES == 0 && !pause()? {
                return Ok(());
            }
            self.cut_chain(index, chain[i - 1], chain[i])?;
        }
        let Some(guard) = self.pool.exclusive(reference.first_page())? else {
            return Ok(());
        };
        if !is_part(&guard, index, reference) {
            return Ok(());
        }
        let mut ops = Vec::new();
        op::free(guard.page_id(), index, &mut ops);
        self.pool
            .free_pages(&[undo::NO_UNDO, &ops], &[], vec![guard]);
        Ok(())
    }

    /// Frees the last page of a chain and ends the chain before it, in one record: a crash
    /// never leaves a link to a page that may belong to somebody else by then.
    fn cut_chain(&self, index: IndexId, before: PageId, last: PageId) -> Result<()> {
        assert!(
            last != PageId::NONE && before != PageId::NONE,
            "no page is cut off"
        );
        loop {
            if self.pool.shared(last)?.is_none() {
                return Ok(());
            }
            let Some(mut prev) = self.pool.exclusive(before)? else {
                return Ok(());
            };
            let Some(guard) = self.pool.exclusive_resident(last) else {
                continue;
            };
            let mut ops = Vec::new();
            op::set_right(before, index, PageId::NONE, &mut ops);
            op::free(last, index, &mut ops);
            let frame = prev.frame_no();
            self.pool
                .free_pages(&[undo::NO_UNDO, &ops], &[frame], vec![guard]);
            node::set_right(prev.bytes_mut(), PageId::NONE);
            debug_assert_eq!(node::right(&prev), PageId::NONE, "a link to a free page");
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rows::write::DupInfo;
    use crate::testing::{create, open, out_of_memory};
    use ferrite_io::sim::SimStorage;

    /// An undo list that does not fit the table must not free values of others.
    #[test]
    fn a_rollback_frees_no_value_of_another_transaction() {
        let engine = open(&SimStorage::new(5));
        let t = create(&engine);
        let mut s = Session::new(&engine, 0, 1);
        let value = s.write_overflow(&t, &[7; 2000]).unwrap();
        let row = [&[1u8][..], value.bytes()].concat();
        s.insert_row(&t, Some(b"k"), &row, &[], false, &mut DupInfo::default())
            .unwrap();
        let (index, maker, page) = (t.tree(0).index(), s.txn.id(), value.first_page());
        s.commit(false).unwrap();
        let undo = |txn| {
            let append = &mut |append: &mut dyn FnMut()| append();
            engine
                .free_overflow_page((index, txn), page, undo::NO_UNDO, append)
                .unwrap();
            engine.is_value_page(page).unwrap()
        };
        assert!(undo(TxnId(maker.0 + 1)), "another one's value went");
        assert!(!undo(maker), "its own did not");
        drop(s);
        engine.close().unwrap();
    }

    /// One value of a failed row cannot be read: the others go all the same, and it goes later.
    #[test]
    fn a_value_that_cannot_be_freed_does_not_keep_the_others() {
        let disk = SimStorage::new(6);
        let engine = open(&disk);
        engine.purge.hold_back(true);
        let t = create(&engine);
        let index = t.tree(0).index();
        let mut s = Session::new(&engine, 0, 1);
        s.begin_load(&t);
        let mut write = |byte| s.write_overflow(&t, &[byte; 100_000]).unwrap();
        let values = [write(1), write(2), write(3)];
        out_of_memory(&engine, values[0].first_page());
        disk.inject_in(ferrite_io::sim::Fault::FailRead, 1, "store.");
        let failed = s.take_values_back();
        assert!(matches!(failed, Err(Error::Io(_))), "{failed:?}");
        let pages = || values.map(|value| engine.value_pages(index, &value).unwrap().len());
        assert_eq!(pages()[1..], [0, 0], "pages of the others");
        assert!(pages()[0] > 0, "the fault was of another page");
        s.end_load(&t).unwrap();
        engine.purge_round(&mut Default::default());
        assert_eq!(pages(), [0, 0, 0]);
        drop(s);
        engine.close().unwrap();
    }

    /// Between parts of a long value others may go on; what was broken off is freed later.
    #[test]
    fn a_long_value_is_freed_in_parts() {
        let engine = open(&SimStorage::new(8));
        engine.purge.hold_back(true);
        let t = create(&engine);
        let index = t.tree(0).index();
        let mut s = Session::new(&engine, 0, 1);
        let count = 3 * PART_PAGES + 8;
        let value = s.write_overflow(&t, &vec![7; count * DATA_BYTES]).unwrap();
        let row = [&[1u8][..], value.bytes()].concat();
        s.insert_row(&t, Some(b"k"), &row, &[], false, &mut DupInfo::default())
            .unwrap();
        s.commit(false).unwrap();
        let pages = || engine.value_pages(index, &value).unwrap().len();
        let free = |most: usize, then: Result<bool>| -> Result<usize> {
            let mut parts = 0;
            let mut pause = || {
                parts += 1;
                match parts > most {
                    true => then.clone(),
                    false => Ok(true),
                }
            };
            engine.free_overflow_in_parts(index, &value, &mut pause)?;
            Ok(parts)
        };
        // Three parts are looked for, then freed.
        assert_eq!(free(2, Err(Error::Interrupted)), Err(Error::Interrupted));
        assert_eq!(free(2, Ok(false)), Ok(3));
        assert_eq!(pages(), count);
        assert_eq!(free(4, Err(Error::Interrupted)), Err(Error::Interrupted));
        assert_eq!(pages(), 2 * PART_PAGES + 1);
        // Purge does the rest, though somebody else may be at the table amid it.
        s.delete_row(&t, b"k", &[]).unwrap();
        s.commit(false).unwrap();
        engine.txns.refresh();
        engine.purge_round(&mut Default::default());
        assert_eq!((pages(), engine.purge.length()), (0, 0));
        drop(s);
        engine.close().unwrap();
    }

    fn payload(head: &[u8], count: usize) -> Vec<u8> {
        let mut payload = head.to_vec();
        for n in 0..count {
            let mut reference = [0u8; OVERFLOW_REF_BYTES];
            reference[..4].copy_from_slice(&(n as u32 + 0x1_0000).to_le_bytes());
            payload.extend_from_slice(&reference);
        }
        payload.extend_from_slice(b"the rest");
        payload
    }

    #[test]
    fn few_and_many_references() {
        let many = |n: u16| {
            let n = n.to_le_bytes();
            [255, n[0], n[1], 0xff, 0xff]
        };
        let cases = [
            (payload(&[0], 0), 0),
            (payload(&[3], 3), 3),
            (payload(&[254], 254), 254),
            // As rows of 255 were written before.
            (payload(&[255], 255), 255),
            (payload(&many(255), 255), 255),
            (payload(&many(400), 400), 400),
        ];
        for (payload, count) in cases {
            let found: Vec<_> = references(&payload).collect();
            assert_eq!(found.len(), count);
            for (n, reference) in found.iter().enumerate() {
                assert_eq!(reference.first_page(), PageId(n as u32 + 0x1_0000));
            }
            let (n, at) = reference_head(&payload);
            assert_eq!(&payload[at + n * OVERFLOW_REF_BYTES..], b"the rest");
        }
        assert_eq!(references(&[]).count(), 0);
        assert_eq!(references(&many(400)).count(), 0);
        assert_eq!(references(&[255, 1]).count(), 0);
    }
}
