//! What the change buffer keeps, by page; see `change_buffer` for what it is, its invariants and its
//! locks.

use crate::collected::{CollectedRedo, Deferred};
use ferrite_sync::atomic::{AtomicU16, AtomicU64, AtomicUsize, Ordering};
use ferrite_sync::{Arc, Counter, Event, Mutex, OnceLock};
use ferrite_types::{IndexId, Lsn, PageId, Result, PAGE_BYTES};
use std::collections::{BTreeMap, BTreeSet};

/// Locks of their own for the pages whose ids have the same remainder.
const SHARDS: usize = 256;
/// What a page costs here beside its operations, in bytes: its place in two trees, of which a third is empty.
const PAGE_COST_BYTES: usize = 160;
const _: () =
    assert!(3 * (size_of::<(PageId, Kept)>() + size_of::<(Lsn, PageId)>()) <= 2 * PAGE_COST_BYTES);
/// Bytes before an operation: where its record ends in the log, and its length.
const OP_PREFIX_BYTES: usize = 8 + 4;
/// Pages of one piece of the table of rooms.
const ROOM_CHUNK: usize = 1 << 18;

/// Applies one operation that was kept to the page's bytes. The same as an operation of the page as it was, with
/// what only this life knows, is appended to the last.
pub type ApplyKept = Box<dyn Fn(&mut [u8], &[u8], &mut Vec<u8>) -> Result<()> + Send + Sync>;

/// Applies the operations of one log record to the page's bytes.
pub type ApplyRedo = Box<dyn Fn(&mut [u8], &[u8]) -> Result<()> + Send + Sync>;

/// What a page takes in memory whose redo is put off in copies: of so many records, with so many bytes of operations in all.
pub fn bytes_of_copies(records: usize, ops_bytes: usize) -> usize {
    debug_assert!(records > 0, "redo of no record");
    PAGE_COST_BYTES + size_of::<Deferred>() + records * OP_PREFIX_BYTES + ops_bytes
}

/// What is kept for one page.
pub(crate) struct Kept {
    pub(crate) index: IndexId,
    /// Not above the first record's begin.
    pub(crate) rec: Lsn,
    /// Where the last record ends: the page's LSN once it has them.
    pub(crate) end: Lsn,
    /// Room that the operations take on the page, in bytes, at the most.
    pub(crate) room: usize,
    /// Each with its prefix.
    pub(crate) ops: Vec<u8>,
    /// Redo that was put off, before all of `ops`.
    pub(crate) redo: Option<Box<Deferred>>,
}

impl Kept {
    /// Before anything is kept of a page of that index, whose first record does not begin before `rec`.
    pub(crate) fn nothing_of(index: IndexId, rec: Lsn) -> Kept {
        Kept {
            index,
            rec,
            end: Lsn::ZERO,
            room: 0,
            ops: Vec::new(),
            redo: None,
        }
    }

    pub(crate) fn cost_bytes(&self) -> usize {
        let deferred = self.redo.as_ref().map_or(0, |_| size_of::<Deferred>());
        PAGE_COST_BYTES + deferred + self.ops.capacity()
    }

    /// The page gets its whole content from what is kept: its blob, if it has one, is of no use.
    pub(crate) fn creates(&self) -> bool {
        self.redo.as_ref().is_some_and(|redo| redo.creates)
    }

    /// The operations in the order of the log, each with the end of its record.
    pub(crate) fn each(&self) -> impl Iterator<Item = (Lsn, &[u8])> {
        let mut rest = self.ops.as_slice();
        let redo = self.redo.iter().flat_map(|redo| redo.each());
        redo.chain(std::iter::from_fn(move || {
            if rest.is_empty() {
                return None;
            }
            let (prefix, more) = rest.split_at(OP_PREFIX_BYTES);
            let end = u64::from_le_bytes(prefix[..8].try_into().expect("eight bytes"));
            let len = u32::from_le_bytes(prefix[8..].try_into().expect("four bytes"));
            let (op, more) = more.split_at(len as usize);
            rest = more;
            Some((Lsn(end), op))
        }))
    }

    pub(crate) fn push(&mut self, end: Lsn, op: &[u8]) {
        assert!(self.end < end, "a change at {end} after {}", self.end);
        self.add_op(end, op);
        self.end = end;
    }

    /// The redo that was put off is copied, so that the rest of what it was collected with can go.
    pub(crate) fn own_redo(&mut self) {
        let later = std::mem::take(&mut self.ops);
        let records = self.redo.as_mut().and_then(|redo| redo.records.take());
        // Of a whole recovery they are many: no more than they need.
        let copies = records.iter().flat_map(|records| records.each());
        let copies: usize = copies.map(|(_, ops)| OP_PREFIX_BYTES + ops.len()).sum();
        self.ops.reserve_exact(copies + later.len());
        for (end, ops) in records.iter().flat_map(|records| records.each()) {
            self.add_op(end, ops);
        }
        self.ops.extend_from_slice(&later);
        debug_assert!(self.end > self.rec, "{} to {}", self.rec, self.end);
    }

    fn add_op(&mut self, end: Lsn, op: &[u8]) {
        self.ops.extend_from_slice(&end.0.to_le_bytes());
        self.ops.extend_from_slice(&(op.len() as u32).to_le_bytes());
        self.ops.extend_from_slice(op);
    }
}

#[derive(Default)]
pub(crate) struct Shard {
    pub(crate) pages: BTreeMap<PageId, Kept>,
    pub(crate) by_age: BTreeSet<(Lsn, PageId)>,
    /// Of `pages`, in bytes.
    pub(crate) bytes: usize,
}

pub(crate) struct ShardOf {
    pub(crate) shard: Mutex<Shard>,
    /// See invariant 3; the greatest number: nothing is kept.
    pub(crate) oldest: AtomicU64,
}

impl ShardOf {
    pub(crate) fn show_oldest(&self, shard: &Shard) {
        debug_assert_eq!(shard.by_age.len(), shard.pages.len(), "pages and ages");
        let oldest = shard.by_age.first().map_or(u64::MAX, |(rec, _)| rec.0);
        self.oldest.store(oldest, Ordering::SeqCst);
    }
}

/// The room that pages had when they left memory, in bytes; 0: not known.
pub(crate) struct Rooms {
    chunks: Box<[OnceLock<Box<[AtomicU16]>>]>,
}

impl Rooms {
    fn new() -> Rooms {
        let chunks = (1usize << 32) / ROOM_CHUNK;
        Rooms {
            chunks: (0..chunks).map(|_| OnceLock::new()).collect(),
        }
    }

    pub(crate) fn get(&self, page: PageId) -> usize {
        let at = page.0 as usize;
        let chunk = self.chunks[at / ROOM_CHUNK].get();
        chunk.map_or(0, |c| {
            usize::from(c[at % ROOM_CHUNK].load(Ordering::SeqCst))
        })
    }

    pub(crate) fn set(&self, page: PageId, bytes: usize) {
        debug_assert!(bytes <= PAGE_BYTES, "{page} has room for {bytes}");
        let at = page.0 as usize;
        let zero = || (0..ROOM_CHUNK).map(|_| AtomicU16::new(0)).collect();
        let chunk = self.chunks[at / ROOM_CHUNK].get_or_init(zero);
        chunk[at % ROOM_CHUNK].store(bytes as u16, Ordering::SeqCst);
    }

    fn memory_bytes(&self) -> usize {
        let there = self.chunks.iter().filter(|c| c.get().is_some()).count();
        size_of_val(&*self.chunks) + there * ROOM_CHUNK * size_of::<AtomicU16>()
    }
}

/// See the head of the file.
pub struct ChangeBuffer {
    shards: Box<[ShardOf]>,
    pub(crate) rooms: Rooms,
    pub(crate) apply: OnceLock<ApplyKept>,
    /// For redo that was put off.
    pub(crate) apply_redo: OnceLock<ApplyRedo>,
    /// Pages whose redo was put off, the next one to be read last.
    pub(crate) sweep: Mutex<Vec<PageId>>,
    /// Pages whose redo is put off now.
    pub(crate) to_redo: AtomicUsize,
    /// Of these, those that are nowhere on disk.
    pub(crate) from_log: AtomicUsize,
    /// The redo that is put off, as long as pages share it: it is given back by who ends the sweep, not by who
    /// reads the last page.
    pub(crate) shared: Mutex<Option<Arc<dyn CollectedRedo>>>,
    pub(crate) bytes: AtomicUsize,
    pub(crate) pages: AtomicUsize,
    /// Per cent of the buffer pool that it may take beside it; 0: nothing is kept any more.
    pub(crate) percent: AtomicUsize,
    /// The next shard that is merged to make room.
    pub(crate) turn: AtomicUsize,
    /// The shard that is asked first for old changes the next time: its own count, for with one for both, which take turns,
    /// each would see every second shard only.
    pub(crate) turn_of_old: AtomicUsize,
    pub(crate) work: Event,
    /// Changes kept so far.
    pub changes: Counter,
    /// Of these, those applied to their page.
    pub merged: Counter,
    /// Pages to which some were applied.
    pub merges: Counter,
    /// Pages whose redo was put off, and that had it since.
    pub redone: Counter,
}

impl ChangeBuffer {
    pub(crate) fn new() -> ChangeBuffer {
        let shard = |_| ShardOf {
            shard: Mutex::new(Shard::default()),
            oldest: AtomicU64::new(u64::MAX),
        };
        ChangeBuffer {
            shards: (0..SHARDS).map(shard).collect(),
            rooms: Rooms::new(),
            apply: OnceLock::new(),
            apply_redo: OnceLock::new(),
            sweep: Mutex::new(Vec::new()),
            to_redo: AtomicUsize::new(0),
            from_log: AtomicUsize::new(0),
            shared: Mutex::new(None),
            bytes: AtomicUsize::new(0),
            pages: AtomicUsize::new(0),
            percent: AtomicUsize::new(0),
            turn: AtomicUsize::new(0),
            turn_of_old: AtomicUsize::new(0),
            work: Event::new(),
            changes: Counter::default(),
            merged: Counter::default(),
            merges: Counter::default(),
            redone: Counter::default(),
        }
    }

    pub(crate) fn of(&self, page: PageId) -> &ShardOf {
        &self.shards[page.0 as usize % SHARDS]
    }

    /// Bytes of what is kept now, without the redo that pages share.
    pub fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Pages for which something is kept now.
    pub fn pages(&self) -> usize {
        self.pages.load(Ordering::Relaxed)
    }

    /// Pages that lack changes of before the start.
    pub fn pages_to_redo(&self) -> usize {
        self.to_redo.load(Ordering::Relaxed)
    }

    /// Of these, pages that are nowhere on disk.
    pub(crate) fn pages_from_log(&self) -> usize {
        self.from_log.load(Ordering::Relaxed)
    }

    /// Memory that it takes in all, in bytes.
    pub fn memory_bytes(&self) -> usize {
        let shared = self.shared.lock().as_ref().map_or(0, |s| s.memory_bytes());
        self.bytes() + shared + self.rooms.memory_bytes() + size_of_val(&*self.shards)
    }

    /// What pages still share of redo that was put off is copied for each of them, and all of it given back. False:
    /// they share nothing.
    pub(crate) fn end_sharing(&self) -> bool {
        let Some(shared) = self.shared.lock().take() else {
            return false;
        };
        for of in &self.shards {
            let mut guard = of.shard.lock();
            let shard = &mut *guard;
            let shares = |kept: &&mut Kept| kept.redo.as_ref().is_some_and(|redo| redo.is_shared());
            for kept in shard.pages.values_mut().filter(shares) {
                let before = kept.cost_bytes();
                kept.own_redo();
                let after = kept.cost_bytes();
                shard.bytes = shard.bytes - before + after;
                self.bytes.fetch_add(after, Ordering::Relaxed);
                self.bytes.fetch_sub(before, Ordering::Relaxed);
            }
        }
        debug_assert!(shared.memory_bytes() > 0, "nothing was shared");
        drop(shared);
        true
    }

    /// Not above any record that is kept; None: nothing is.
    pub fn oldest(&self) -> Option<Lsn> {
        let all = self.shards.iter().map(|s| s.oldest.load(Ordering::SeqCst));
        all.min().filter(|lsn| *lsn != u64::MAX).map(Lsn)
    }

    /// Is something kept for the page?
    pub fn has(&self, page: PageId) -> bool {
        self.of(page).shard.lock().pages.contains_key(&page)
    }

    /// How many pages there are for which records that begin before `lsn` are kept.
    pub(crate) fn count_older_than(&self, lsn: Lsn) -> usize {
        let older = |of: &ShardOf| {
            let shard = of.shard.lock();
            let old = shard.by_age.iter().take_while(|(rec, _)| *rec < lsn);
            old.count()
        };
        self.shards.iter().map(older).sum()
    }

    /// Up to `most` pages for which records that begin before `lsn` are kept, the oldest of each shard first.
    pub(crate) fn older_than(&self, lsn: Lsn, most: usize, out: &mut Vec<PageId>) {
        // Not always the same first: pages that cannot be read stay.
        let turn = self.turn_of_old.fetch_add(1, Ordering::Relaxed);
        for n in 0..SHARDS {
            let of = &self.shards[(turn + n) % SHARDS];
            if of.oldest.load(Ordering::SeqCst) >= lsn.0 || out.len() >= most {
                continue;
            }
            let shard = of.shard.lock();
            assert!(out.len() < most, "{} pages", out.len());
            let left = most - out.len();
            let old = shard.by_age.iter().take_while(|(rec, _)| *rec < lsn);
            out.extend(old.take(left).map(|(_, page)| *page));
        }
        debug_assert!(out.len() <= most, "{} of {most} pages", out.len());
    }

    /// Pages of the next shard that hold at least as much as a page of it does on average: to
    /// read them gains most.
    pub(crate) fn fullest(&self, out: &mut Vec<PageId>) {
        for _ in 0..SHARDS {
            let turn = self.turn.fetch_add(1, Ordering::Relaxed) % SHARDS;
            let shard = self.shards[turn].shard.lock();
            if shard.pages.is_empty() {
                continue;
            }
            let mean: usize = shard
                .pages
                .values()
                .map(|kept| kept.ops.len())
                .sum::<usize>()
                / shard.pages.len();
            assert!(
                shard.bytes > 0,
                "{} pages without a byte",
                shard.pages.len()
            );
            let full = shard
                .pages
                .iter()
                .filter(|(_, kept)| kept.ops.len() >= mean);
            out.extend(full.map(|(page, _)| *page));
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collected::RedoOf;

    /// Records of two pages in turn, each of one byte.
    struct Records(Vec<u8>);

    impl CollectedRedo for Records {
        fn record(&self, nth: usize) -> (Lsn, &[u8]) {
            (Lsn(100 + nth as u64), &self.0[nth..=nth])
        }

        fn memory_bytes(&self) -> usize {
            self.0.len()
        }
    }

    /// The copies come before what was kept since, as the shared records did.
    #[test]
    fn redo_that_is_copied_stays_in_the_order_of_the_log() {
        let all = Arc::new(Records((0..10).collect()));
        let records = RedoOf {
            all: all.clone(),
            nths: 3..7,
            span: (Lsn(90), Lsn(106)),
            creates: false,
        };
        let mut kept = Kept {
            end: Lsn(106),
            redo: Some(Box::new(Deferred {
                least: Lsn(5),
                creates: false,
                is_nowhere: false,
                records: Some(records),
            })),
            ..Kept::nothing_of(IndexId(1), Lsn(90))
        };
        kept.push(Lsn(200), &[77, 78]);
        let ops = |kept: &Kept| -> Vec<(Lsn, Vec<u8>)> {
            kept.each().map(|(end, op)| (end, op.to_vec())).collect()
        };
        let shared = ops(&kept);
        assert_eq!(shared.len(), 5);
        assert_eq!(shared[0], (Lsn(103), vec![3]));
        assert_eq!(shared[4], (Lsn(200), vec![77, 78]));
        kept.own_redo();
        assert_eq!(Arc::strong_count(&all), 1, "it is shared still");
        assert_eq!(ops(&kept), shared);
        assert_eq!(kept.redo.map(|redo| redo.least), Some(Lsn(5)));
    }
}
