//! Values out of line: a chain of pages of their own, written once, freed when the last row
//! version that names them is gone.
//!
//! ```text
//! page: the prefix every page has (index id, level 0, kind 2, used areas) | 16 next page u32
//!       | 20 transaction that made the value u48, on its first page | 40 data
//! reference (16 bytes): first page u32 | pages u32 | length u64
//! ```
//! Every page is logged with an undo entry of its own, so a rollback frees exactly what was
//! made, however far it got. When a committed change lets go of a value, its reference goes
//! into the commit record; after a crash those records say what is still to be freed.

use crate::engine::Engine;
use crate::session::Session;
use crate::table::Table;
use crate::undo::{self, Undo};
use ferrite_buffer::page_prefix;
use ferrite_sync::atomic::Ordering;
use ferrite_sync::Arc;
use ferrite_tree::{node, op};
use ferrite_types::{Error, IndexId, PageId, Result, TxnId, PAGE_BYTES};

/// Bytes of a reference.
pub const OVERFLOW_REF_BYTES: usize = 16;
const DATA_AT: usize = node::HEADER_BYTES;
const MAKER: std::ops::Range<usize> = 20..26;
const DATA_BYTES: usize = PAGE_BYTES - DATA_AT;

/// The references a row payload opens with.
pub fn references(payload: &[u8]) -> impl Iterator<Item = [u8; 16]> + '_ {
    let count = payload.first().copied().unwrap_or(0) as usize;
    let end = (1 + count * OVERFLOW_REF_BYTES).min(payload.len());
    payload[1.min(end)..end]
        .chunks_exact(OVERFLOW_REF_BYTES)
        .map(|c| c.try_into().expect("chunks are of this size"))
}

/// First page, pages, length of a reference.
pub(crate) fn parts(reference: &[u8; 16]) -> (PageId, u32, u64) {
    let first = u32::from_le_bytes([reference[0], reference[1], reference[2], reference[3]]);
    let pages = u32::from_le_bytes([reference[4], reference[5], reference[6], reference[7]]);
    let mut len = [0; 8];
    len.copy_from_slice(&reference[8..]);
    (PageId(first), pages, u64::from_le_bytes(len))
}

/// Length of the value a reference names, in bytes.
pub fn length(reference: &[u8; 16]) -> u64 {
    parts(reference).2
}

pub(crate) fn first_page(reference: &[u8; 16]) -> PageId {
    parts(reference).0
}

/// The data of a page that should be part of a value of that index; None: it is not.
pub(crate) fn data_of(page: &[u8], index: IndexId) -> Option<&[u8]> {
    let (end, _) = page_prefix::used(page);
    let ours = page[5] == page_prefix::KIND_OVERFLOW && page_prefix::index(page) == index.0;
    (ours && end >= DATA_AT).then(|| page.get(DATA_AT..end))?
}

fn build(page: &mut [u8], index: IndexId, next: PageId, maker: TxnId, data: &[u8]) {
    page[..DATA_AT].fill(0);
    page[0..4].copy_from_slice(&index.0.to_le_bytes());
    page[5] = page_prefix::KIND_OVERFLOW;
    page[6..8].copy_from_slice(&((DATA_AT + data.len()) as u16).to_le_bytes());
    page[8..10].copy_from_slice(&(PAGE_BYTES as u16).to_le_bytes());
    page[16..20].copy_from_slice(&next.0.to_le_bytes());
    page[MAKER].copy_from_slice(&maker.0.to_le_bytes()[..6]);
    page[DATA_AT..DATA_AT + data.len()].copy_from_slice(data);
}

impl Session {
    /// Stores a value; its pages belong to the transaction.
    ///
    /// # Errors
    /// `DiskFull`; nothing remains after the statement's rollback.
    pub fn write_overflow(&mut self, table: &Arc<Table>, value: &[u8]) -> Result<[u8; 16]> {
        let loading = table.loading.load(Ordering::Relaxed);
        if !loading {
            self.writing()?;
        }
        let engine = self.engine.clone();
        let pool = &engine.pool;
        let index = table.tree(0).index();
        let count = value.len().div_ceil(DATA_BYTES).max(1);
        let ids: Vec<PageId> = (0..count).map(|_| pool.alloc_page(index)).collect();
        let mut chunks = value.chunks(DATA_BYTES);
        for (i, &page) in ids.iter().enumerate() {
            let data = chunks.next().unwrap_or(&[]);
            let next = ids.get(i + 1).copied().unwrap_or(PageId::NONE);
            let mut frame = pool.reserve(1).pop().expect("one was reserved");
            let maker = if i == 0 { self.txn } else { TxnId::FROZEN };
            build(frame.bytes_mut(), index, next, maker, data);
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
        let mut reference = [0u8; 16];
        reference[0..4].copy_from_slice(&ids[0].0.to_le_bytes());
        reference[4..8].copy_from_slice(&(count as u32).to_le_bytes());
        reference[8..].copy_from_slice(&(value.len() as u64).to_le_bytes());
        Ok(reference)
    }
}

impl Engine {
    /// Reads a value into `out`, which has its length.
    ///
    /// # Errors
    /// `Corrupt` when the chain is broken; a page that cannot be read.
    pub fn read_overflow(&self, reference: &[u8; 16], out: &mut [u8]) -> Result<()> {
        let (mut page, _, len) = parts(reference);
        if out.len() as u64 != len {
            return Err(Error::Bug("overflow value read into another length".into()));
        }
        let mut done = 0;
        while done < out.len() {
            let fault = || Error::Corrupt(format!("page {page}: overflow chain is broken"));
            let guard = self.pool.shared(page)?.ok_or_else(fault)?;
            let owner = IndexId(page_prefix::index(&guard));
            let data = data_of(&guard, owner).ok_or_else(fault)?;
            if data.is_empty() || data.len() > out.len() - done {
                return Err(fault());
            }
            out[done..done + data.len()].copy_from_slice(data);
            done += data.len();
            page = node::right(&guard);
        }
        Ok(())
    }

    /// Who made a value; frozen when that is long ago.
    pub(crate) fn overflow_maker(&self, reference: &[u8; 16]) -> Result<TxnId> {
        let Some(guard) = self.pool.shared(first_page(reference))? else {
            return Ok(TxnId::FROZEN);
        };
        let mut bytes = [0; 8];
        bytes[..6].copy_from_slice(&guard[MAKER]);
        Ok(TxnId(u64::from_le_bytes(bytes)))
    }

    /// Frees one page of a value at rollback; `under` runs the append under a lock of the
    /// caller's. A page that is not there any more was freed before a crash.
    pub(crate) fn free_overflow_page(
        &self,
        index: IndexId,
        page: PageId,
        prelude: &[u8],
        under: &mut dyn FnMut(&mut dyn FnMut()),
    ) -> Result<()> {
        let guard = self.pool.exclusive(page)?;
        let mut ops = Vec::new();
        let mut leaves = Vec::new();
        if let Some(guard) = guard {
            if page_prefix::index(&guard) == index.0 && guard[5] == page_prefix::KIND_OVERFLOW {
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

    /// Frees a value nobody needs any more, from its end to its first page.
    pub(crate) fn free_overflow(&self, index: IndexId, reference: &[u8; 16]) -> Result<()> {
        let (mut page, count, _) = parts(reference);
        let mut chain = Vec::with_capacity(count as usize);
        while page != PageId::NONE && chain.len() < count as usize {
            let Some(guard) = self.pool.shared(page)? else {
                break;
            };
            if page_prefix::index(&guard) != index.0 || guard[5] != page_prefix::KIND_OVERFLOW {
                break;
            }
            chain.push(page);
            page = node::right(&guard);
        }
        for i in (1..chain.len()).rev() {
            self.cut_chain(index, chain[i - 1], chain[i])?;
        }
        let Some(guard) = self.pool.exclusive(parts(reference).0)? else {
            return Ok(());
        };
        // A reference may outlive its index: the page is somebody else's then.
        if page_prefix::index(&guard) != index.0 || guard[5] != page_prefix::KIND_OVERFLOW {
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
        loop {
            drop(self.pool.shared(last)?);
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
            return Ok(());
        }
    }
}
