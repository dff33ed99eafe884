//! From a page id to its bytes, in memory or read in.
//!
//! The fast path of a resident page is one load of its directory word, the latch, and a check
//! that the frame still holds the page.

use crate::ahead_state::{note_miss, ReadAheadState};
use crate::arena::Arena;
use crate::changes::ChangeRoom;
use crate::dirty_queue::DirtyQueue;
use crate::frame::{Frame, Kind};
use crate::frames::Frames;
use crate::free_frames::{FreeFrames, Resized};
use crate::kept::ChangeBuffer;
use crate::kept_deltas::KeptDeltas;
use crate::packing::Packings;
use crate::page_prefix;
use crate::priorities::Priorities;
use crate::row_cache::RowCache;
use crate::writer_state::WriterState;
use ferrite_redo::Log;
use ferrite_store::{Location, PageRead, Store, Word};
use ferrite_sync::atomic::{AtomicUsize, Ordering};
use ferrite_sync::epoch::{EpochGuard, Epochs};
use ferrite_sync::waits::{waiting, Of, Reason};
use ferrite_sync::{Arc, Condvar, Counter, Mutex, OnceLock};
use ferrite_types::format::{CachePriority, Codec, Packing};
use ferrite_types::{Error, IndexId, Lsn, PageId, Result, PAGE_BYTES};
use std::collections::VecDeque;

/// Sizes of a pool.
pub struct PoolConfig {
    /// Memory for pages, in bytes; at least 256 pages are taken.
    pub size_bytes: u64,
    /// The largest size that [`Pool::resize`] may give it; addresses are reserved for so much. No
    /// less than `size_bytes` is taken.
    pub max_bytes: u64,
    /// Codec of pages written of an index without a setting ([`Pool::set_packing`]).
    pub codec: Codec,
    /// A delta is at most one part in so many of the blob beside which it is written; 0: there are
    /// none.
    pub delta_share: u32,
}

impl PoolConfig {
    /// Where nothing else is asked for.
    pub const DELTA_SHARE: u32 = 4;
}

/// Frames for the smallest pool that can work: deep splits plus a writer's batch.
const MIN_FRAMES: usize = 256;

/// Frames of a pool of that size.
pub(crate) fn frames_of(bytes: u64) -> usize {
    usize::try_from(bytes / PAGE_BYTES as u64).map_or(usize::MAX, |n| n.max(MIN_FRAMES))
}

/// What the pool counts.
#[derive(Default)]
pub struct PoolStats {
    /// Page requests that found no frame and read from disk.
    pub reads: Counter,
    /// Times a thread had to wait for a free frame.
    pub free_waits: Counter,
    /// Pages written.
    pub pages_written: Counter,
    /// Bytes of blobs written.
    pub bytes_written: Counter,
    /// Of the pages written, those of which only the changes were.
    pub deltas_written: Counter,
    /// Of the pages written, those that were packed.
    pub pages_packed: Counter,
    /// Attempts to pack a page that saved too little: it was written as it is.
    pub packed_in_vain: Counter,
    /// Batches written, each with one sync.
    pub batches: Counter,
    /// Pages dropped from memory while clean.
    pub evictions: Counter,
    /// Waits for a frame's latch.
    pub latch_waits: Counter,
    /// Pages read ahead of their use; of these, those used, and those dropped before.
    pub read_ahead: Counter,
    /// See `read_ahead`.
    pub read_ahead_used: Counter,
    /// See `read_ahead`.
    pub read_ahead_unused: Counter,
    /// Waits for a page that was being read ahead.
    pub read_ahead_waits: Counter,
}

/// Puts into the second page what is to be written of the first, if that is smaller (else
/// false). Called under the page's shared latch. The page in memory stays as it is, so redo must
/// come to the same from either.
pub type WriteFilter = Box<dyn Fn(&[u8], &mut [u8]) -> bool + Send + Sync>;

/// The buffer pool.
pub struct Pool {
    arena: Arena,
    pub(crate) frames: Frames,
    pub(crate) store: Arc<Store>,
    pub(crate) log: Arc<Log>,
    pub(crate) epochs: Epochs,
    pub(crate) free: Mutex<FreeFrames>,
    pub(crate) free_signal: Condvar,
    /// Length of `free.list`; changed with its lock held, or two changes might be stored in the wrong order.
    pub(crate) free_count: AtomicUsize,
    /// Frames taken out of use: reusable when their tag is quiet.
    pub(crate) retired: Mutex<VecDeque<(u64, u32)>>,
    /// See the crate's invariant 6.
    pub(crate) map_lock: Mutex<()>,
    pub(crate) hand: AtomicUsize,
    pub(crate) dirty_queue: DirtyQueue,
    /// Held while the number of frames changes; what has changed, until somebody asks.
    pub(crate) resizing: Mutex<Option<Resized>>,
    /// Where the writer goes on to clear the frames of a pool that shrinks.
    pub(crate) leaving_at: AtomicUsize,
    pub(crate) writer: WriterState,
    pub(crate) read_ahead: ReadAheadState,
    pub(crate) packings: Packings,
    pub(crate) priorities: Priorities,
    pub(crate) changes: ChangeBuffer,
    pub(crate) row_cache: RowCache,
    pub(crate) change_room: ChangeRoom,
    pub(crate) kept_deltas: KeptDeltas,
    pub(crate) delta_share: u32,
    pub(crate) write_filter: OnceLock<WriteFilter>,
    /// Counters, for status.
    pub stats: PoolStats,
}

impl Pool {
    /// An empty pool over `store` and `log`.
    pub fn new(cfg: &PoolConfig, store: Arc<Store>, log: Arc<Log>) -> Result<Pool> {
        let count = frames_of(cfg.size_bytes);
        let most = frames_of(cfg.max_bytes).max(count);
        if most > u32::MAX as usize / 2 {
            return Err(Error::BadConfig("buffer_pool_size is too large".into()));
        }
        let (arena, frames) = (Arena::new(most)?, Frames::new(most)?);
        arena.open_to(count)?;
        frames.make(count)?;
        frames.set_count(count);
        frames.set_limit(count);
        Ok(Pool {
            arena,
            frames,
            store,
            log,
            epochs: Epochs::new(),
            free: Mutex::new(FreeFrames::of(count)),
            free_signal: Condvar::new(),
            free_count: AtomicUsize::new(count),
            retired: Mutex::new(VecDeque::new()),
            map_lock: Mutex::new(()),
            hand: AtomicUsize::new(0),
            dirty_queue: DirtyQueue::default(),
            resizing: Mutex::new(None),
            leaving_at: AtomicUsize::new(0),
            writer: WriterState::new(),
            read_ahead: ReadAheadState::new(),
            packings: Packings::new(Packing::of(cfg.codec)),
            priorities: Priorities::new(),
            changes: ChangeBuffer::new(),
            row_cache: RowCache::new(),
            change_room: ChangeRoom::new(count * PAGE_BYTES),
            kept_deltas: KeptDeltas::new(count * PAGE_BYTES),
            delta_share: cfg.delta_share,
            write_filter: OnceLock::new(),
            stats: PoolStats::default(),
        })
    }

    /// From here on pages are written as `write_filter` makes them. The first call counts.
    pub fn set_write_filter(&self, write_filter: WriteFilter) {
        let _ = self.write_filter.set(write_filter);
    }

    /// How pages of the index are packed when they are written from now on. Those that are on disk
    /// stay as they are until they are written again.
    pub fn set_packing(&self, index: IndexId, packing: Packing) {
        self.packings.set(index, packing);
    }

    /// How long pages of the index stay in memory from now on, compared with others.
    pub fn set_cache_priority(&self, index: IndexId, priority: CachePriority) {
        self.priorities.set(index, priority);
    }

    pub(crate) fn arena(&self) -> &Arena {
        &self.arena
    }

    pub(crate) fn frame(&self, f: u32) -> &Frame {
        self.frames.get(f)
    }

    pub(crate) fn frames(&self) -> &[Frame] {
        self.frames.all()
    }

    /// Frames in the pool; while it shrinks, those that are to go among them.
    pub fn frame_count(&self) -> usize {
        self.frames.count()
    }

    /// The log that changes go to.
    pub fn log(&self) -> &Arc<Log> {
        &self.log
    }

    /// The store below.
    pub fn store(&self) -> &Arc<Store> {
        &self.store
    }

    /// Protects inner nodes found while it lives.
    pub fn pin(&self) -> EpochGuard<'_> {
        self.epochs.pin()
    }

    /// What the latched frame holds of `page`; None when it holds another page by now.
    pub(crate) fn latched_kind(&self, f: u32, page: PageId) -> Option<Kind> {
        let frame = self.frame(f);
        debug_assert!(
            frame.latch.is_held(),
            "{page} is looked at without its latch"
        );
        if frame.page() != page {
            return None;
        }
        match frame.kind() {
            Kind::Free | Kind::Loading => None,
            kind => Some(kind),
        }
    }

    /// Frame of the page, read in if need be. None: no such page.
    pub(crate) fn resident(&self, page: PageId) -> Result<Option<u32>> {
        loop {
            let word = self.store.directory().get(page);
            if let Some(f) = word.as_frame() {
                return Ok(Some(f));
            }
            let Some(at) = word.as_location() else {
                return Ok(None);
            };
            if let Some(f) = self.load(page, at)? {
                return Ok(Some(f));
            }
        }
    }

    /// Reads the page at `at` into a frame. None when somebody was faster.
    fn load(&self, page: PageId, at: Location) -> Result<Option<u32>> {
        assert!(!self.epochs.is_pinned_here(), "a page is read under a pin");
        assert!(at != Location::NONE, "{page} is nowhere");
        let f = self.take_frame()?;
        if !self.begin_load(f, page, at, false) {
            return Ok(None);
        }
        note_miss();
        let result = self.fill(f, page, at);
        self.end_load(f, page, at, result.is_ok());
        result.map(|()| Some(f))
    }

    /// The unused frame is to get the page that is at `at`: the directory names it from here on,
    /// and its exclusive latch is held until [`Pool::end_load`]. False: the page is not there any
    /// more, or somebody was faster; the frame is given back.
    pub(crate) fn begin_load(&self, f: u32, page: PageId, at: Location, is_ahead: bool) -> bool {
        let frame = self.frame(f);
        frame.latch.exclusive();
        frame.assign(page, 0, at.stored());
        if is_ahead {
            frame.set_ahead();
        }
        frame.set_kind(Kind::Loading);
        let word = self.store.directory().word(page);
        let (old, new) = (Word::on_disk(at).0, Word::resident(f).0);
        let mut claimed = word
            .compare_exchange(old, new, Ordering::SeqCst, Ordering::SeqCst)
            .is_ok();
        if is_ahead && ferrite_sync::mutant!("buffer.ahead_not_claimed") {
            word.store(new, Ordering::SeqCst);
            claimed = true;
        }
        if claimed {
            self.row_cache.came_in(page);
        } else {
            frame.clear();
            frame.latch.unlock_exclusive();
            self.give_back(f);
        }
        claimed
    }

    /// The page is in the frame, or cannot be read: then it is where it was.
    pub(crate) fn end_load(&self, f: u32, page: PageId, at: Location, is_filled: bool) {
        let frame = self.frame(f);
        assert!(frame.page() == page && frame.latch.is_exclusive(), "{page}");
        if !is_filled {
            let (old, new) = (Word::on_disk(at).0, Word::resident(f).0);
            let word = self.store.directory().word(page);
            let before = word.swap(old, Ordering::SeqCst);
            assert!(
                before == new,
                "{page} went to {before:#x} while it was read"
            );
            frame.clear();
        }
        frame.latch.unlock_exclusive();
        if !is_filled {
            self.give_back(f);
        }
    }

    /// The latched leaf may leave memory now: the room on it is noted for the change buffer.
    pub(crate) fn note_room_of(&self, f: u32) {
        let frame = self.frame(f);
        let page = frame.page();
        debug_assert!(frame.latch.is_exclusive(), "{page} is not latched");
        // SAFETY: the exclusive latch is held.
        let bytes = unsafe { self.arena.page(f) };
        let (head, tail) = page_prefix::used(bytes);
        assert!(head <= tail && tail <= PAGE_BYTES, "gap {head}..{tail}");
        let is_node = bytes[5] == page_prefix::KIND_NODE;
        let room = if is_node { tail - head } else { 0 };
        self.changes.rooms.set(page, room);
    }

    /// The loading frame gets its bytes and its kind.
    pub(crate) fn fill(&self, f: u32, page: PageId, at: Location) -> Result<()> {
        self.fill_from(f, page, |bytes| {
            let (wanted, kept) = self.wanted(page, at);
            let read = |delta, bytes: &mut [u8]| {
                let read = || self.store.read_stored(page, at, delta, bytes);
                waiting(Reason::PageRead, Of::Page(page.0), read)
            };
            let was_kept = kept.is_some();
            let base = read(wanted.delta, bytes)?;
            match self.with_kept(base, kept, bytes) {
                // What was kept is on disk, too.
                Err(Error::Corrupt(_)) if was_kept => read(self.store.delta_of(page), bytes),
                done => done,
            }
        })
    }

    /// As `fill`, with what reads the page.
    pub(crate) fn fill_from(
        &self,
        f: u32,
        page: PageId,
        read: impl FnOnce(&mut [u8]) -> Result<PageRead>,
    ) -> Result<()> {
        let frame = self.frame(f);
        assert!(
            frame.kind() == Kind::Loading && frame.latch.is_exclusive(),
            "{page}"
        );
        // SAFETY: kind Loading under the exclusive latch: nobody else looks at the bytes.
        let bytes = unsafe { self.arena.page_mut(f) };
        if self.comes_from_log(page) {
            bytes.fill(0);
            frame.set_lsn(Lsn::ZERO);
            self.kept_deltas.forget(page);
        } else {
            self.read_to(f, bytes, read)?;
        }
        assert!(!frame.is_dirty(), "{page} is changed while it is read");
        self.merge_kept(f, bytes)?;
        frame.set_kind(kind_of(bytes));
        if frame.is_dirty() {
            self.dirty_queue.push(&self.frames, f);
        }
        Ok(())
    }

    /// The loading frame gets the bytes of its page's blob and delta.
    fn read_to(
        &self,
        f: u32,
        bytes: &mut [u8],
        read: impl FnOnce(&mut [u8]) -> Result<PageRead>,
    ) -> Result<()> {
        let (frame, page) = (self.frame(f), self.frame(f).page());
        self.stats.reads.inc();
        let PageRead {
            header,
            base,
            changes,
        } = read(bytes)?;
        assert!(header.page == page, "{} is read for {page}", header.page);
        if page_prefix::index(bytes) != header.index.0 {
            return Err(Error::Corrupt(format!(
                "page {page}: body names index {}, its blob index {}",
                page_prefix::index(bytes),
                header.index
            )));
        }
        frame.set_index(header.index.0);
        frame.set_lsn(header.lsn);
        if kind_of(bytes) == Kind::Leaf {
            let base_bytes = usize::from(header.head) + usize::from(header.tail);
            self.begin_changes(f, (base, base_bytes), changes);
        }
        Ok(())
    }
}

/// The frame kind for a page's bytes.
pub(crate) fn kind_of(bytes: &[u8]) -> Kind {
    if page_prefix::level(bytes) == 0 {
        Kind::Leaf
    } else {
        Kind::Inner
    }
}
