//! The store of pages: configuration, pages in and out, page ids, figures.
//!
//! Invariants: see the crate's front page. `phase` only goes forward: `LOADING` (the
//! directory is being filled, no space is known), `WRITABLE` (free space is known, blobs may
//! be written and freed), `OPEN` (page ids are known too).
//!
//! Locking: `runs` (the space lock), `scratch` and `pair_readers` are leaves, held for memory work only.

use ferrite_sync::random;
use ferrite_types::format::FEATURE_ENCRYPTED;
use ferrite_types::{Error, IndexId, Lsn, PageId, Result, PAGE_BYTES};

use crate::batch::{Batch, Packed, Placed, BATCH_BYTES};
use crate::blob::{self, PageHeader, MAX_BLOB_GRANULES};
use crate::delta::{self, decode_extent, ExtentChange};
use crate::deps::{
    kill_point, AlignedBuf, Arc, AtomicBool, AtomicU32, AtomicU64, Counter, Mutex, OnceLock,
    Ordering,
};
use crate::directory::Directory;
use crate::extents::{Extents, Replay};
use crate::files::Files;
use crate::held::GranuleRuns;
use crate::pack::Unpacker;
use crate::page_delta::{ApplyChanges, PageRead};
use crate::retired::Retired;
use crate::runs::{FreeRuns, Run};
use crate::scratch::Scratch;
use crate::slots::{PassedOver, Slots};
use crate::superblock::Superblock;
use crate::tier::Tier;
use crate::together_plan::{TogetherReader, Wanted};
use crate::word::{Location, BLOCK_BYTES, BLOCK_GRANULES, GRANULE_BYTES};

/// How a store is made and opened.
#[derive(Clone, Debug)]
pub struct StoreConfig {
    /// Bypass the operating system's cache for page blobs.
    pub direct: bool,
    /// Largest size of one `store.NNNN`; fixed at creation.
    pub file_bytes: u64,
    /// Size of a segment, which no blob crosses; fixed at creation. A multiple of 256 KiB, and
    /// `file_bytes` a multiple of it. Files grow in smaller steps.
    pub segment_bytes: u64,
}

impl Default for StoreConfig {
    fn default() -> Self {
        StoreConfig {
            direct: false,
            file_bytes: 1 << 30,
            segment_bytes: 64 << 20,
        }
    }
}

/// Figures since opening.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct StoreStats {
    /// Pages read from disk.
    pub pages_read: u64,
    /// Bytes read for them.
    pub bytes_read: u64,
    /// Pages written.
    pub pages_written: u64,
    /// Bytes written for them (whole granules).
    pub bytes_written: u64,
    /// Of the pages written, those packed with a codec.
    pub pages_packed: u64,
    /// Of the pages written, those of which only the changes were.
    pub deltas_written: u64,
    /// Deltas read with their pages.
    pub deltas_read: u64,
    /// Pages that have a delta now.
    pub deltas_live: u64,
    /// Batches written.
    pub batches: u64,
    /// Runs the batches went to: one write each.
    pub runs: u64,
    /// Flushes of store files.
    pub syncs: u64,
    /// How often the files were made longer.
    pub segments_grown: u64,
    /// Of these, added by a writer that found no room.
    pub grown_in_foreground: u64,
    /// Bytes given back to the file system.
    pub bytes_given_back: u64,
    /// Bytes of free space overwritten with zeroes.
    pub bytes_scrubbed: u64,
    /// Pages that failed their checks.
    pub corrupt_pages: u64,
}

#[derive(Default)]
pub(crate) struct Counters {
    pub(crate) pages_read: Counter,
    pub(crate) bytes_read: Counter,
    pub(crate) pages_written: Counter,
    pub(crate) bytes_written: Counter,
    pub(crate) pages_packed: Counter,
    pub(crate) deltas_written: Counter,
    pub(crate) delta_bytes_written: Counter,
    pub(crate) deltas_read: Counter,
    pub(crate) deltas_live: AtomicU64,
    pub(crate) batches: Counter,
    pub(crate) runs: Counter,
    pub(crate) syncs: Counter,
    pub(crate) segments_grown: Counter,
    pub(crate) grown_in_foreground: Counter,
    pub(crate) bytes_given_back: Counter,
    pub(crate) bytes_scrubbed: Counter,
    pub(crate) corrupt_pages: Counter,
}

pub(crate) const LOADING: u32 = 0;
pub(crate) const WRITABLE: u32 = 1;
pub(crate) const OPEN: u32 = 2;

/// The page store of one database.
pub struct Store {
    pub(crate) directory: Directory,
    pub(crate) extents: Extents,
    /// While owners are replayed at a start; empty behind it.
    pub(crate) extents_replay: Mutex<Replay>,
    pub(crate) files: Files,
    pub(crate) runs: Mutex<FreeRuns>,
    /// Of late the file system had no room for what was to be written, or for a longer store.
    pub(crate) has_no_room: AtomicBool,
    /// Taken around adding and cutting segments, before `runs`.
    pub(crate) growth: Mutex<()>,
    /// The granule at which scrubbing goes on; a leaf under `growth`.
    pub(crate) scrub_from: Mutex<u64>,
    pub(crate) retired: Retired,
    pub(crate) superblock: Superblock,
    pub(crate) slots: Mutex<Slots>,
    pub(crate) phase: AtomicU32,
    /// The log replayed over the map dropped an index. Its pages may then be left over: a
    /// dump taken after the drop knows no owner any more for locations that the log, read
    /// from before the drop, brings back.
    pub(crate) drop_replayed: AtomicBool,
    pub(crate) counters: Box<Counters>,
    /// See [`Store::keep_blocks_apart`].
    pub(crate) blocks_apart: Arc<AtomicBool>,
    pub(crate) tier: OnceLock<Box<Tier>>,
    /// See [`Store::set_apply`].
    pub(crate) apply: OnceLock<ApplyChanges>,
    scratch: Mutex<Vec<Scratch>>,
    /// For a page and its delta. Each may have a ring of the kernel, which is a file: kept are a few.
    #[allow(clippy::vec_box)]
    pub(crate) pair_readers: Mutex<Vec<Box<TogetherReader>>>,
    /// Buffers of a batch's size, for [`Batch::run_bytes`].
    aside: Mutex<Vec<AlignedBuf>>,
    pub(crate) passed_over: Option<PassedOver>,
    /// Tells this opening of the store from all others: generations mean something in it alone.
    pub(crate) opening: u64,
}

// It is moved while it is made, by threads of the server with a small stack.
const _: () = assert!(size_of::<Store>() < 4096);

impl Store {
    pub(crate) fn assemble(superblock: Superblock, files: Files, end: u64, slots: Slots) -> Store {
        let granules = superblock.geometry.segment_granules();
        Store {
            directory: Directory::new(),
            extents: Extents::new(),
            extents_replay: Mutex::new(Replay::default()),
            files,
            runs: Mutex::new(FreeRuns::new(granules, end)),
            growth: Mutex::new(()),
            scrub_from: Mutex::new(0),
            retired: Retired::new(),
            superblock,
            slots: Mutex::new(slots),
            phase: AtomicU32::new(LOADING),
            drop_replayed: AtomicBool::new(false),
            counters: Box::default(),
            blocks_apart: Arc::new(AtomicBool::new(false)),
            tier: OnceLock::new(),
            apply: OnceLock::new(),
            has_no_room: AtomicBool::new(false),
            scratch: Mutex::new(Vec::new()),
            pair_readers: Mutex::new(Vec::new()),
            aside: Mutex::new(Vec::new()),
            passed_over: None,
            opening: random::next_u64(),
        }
    }

    /// The page directory.
    #[inline]
    pub fn directory(&self) -> &Directory {
        &self.directory
    }

    /// The database's identity.
    pub fn uuid(&self) -> [u8; 16] {
        self.superblock.uuid
    }

    /// Are its files encrypted?
    pub fn is_encrypted(&self) -> bool {
        self.superblock.features & FEATURE_ENCRYPTED != 0
    }

    /// When the database was made, in microseconds since 1970.
    pub fn created_us(&self) -> u64 {
        self.superblock.created_us
    }

    /// A page id of that index, its word 0: from the index's unused ids, or from a new
    /// extent. A new extent's record is appended through `log_extent` (kind EXTENT) before
    /// the id is returned.
    ///
    /// Locks: the index's shard, over `log_extent`.
    pub fn alloc_page(&self, index: IndexId, log_extent: &mut dyn FnMut(&[u8])) -> PageId {
        let phase = self.phase.load(Ordering::Acquire);
        assert!(phase == OPEN, "a page id before they are known: {phase}");
        self.extents.alloc(&self.directory, index, log_extent)
    }

    /// Are there ids for so many more pages? To be asked before a change of rows begins: ids for
    /// rollback, purge and the dictionary are left.
    ///
    /// # Errors
    /// `DiskFull`: nearly all page ids are in use.
    pub fn check_page_ids(&self, pages: usize) -> Result<()> {
        self.extents.check_room(pages)
    }

    /// Gives an id back to its index. Its word is 0 already.
    pub fn page_unused(&self, page: PageId) {
        self.extents.unused(&self.directory, page);
    }

    /// The index that owns the page's extent; 0 when nobody does.
    #[inline]
    pub fn index_of(&self, page: PageId) -> IndexId {
        self.directory.owner(page)
    }

    /// Ids of the index whose word is not 0, ascending. Known after recovery only.
    pub fn pages_of(&self, index: IndexId) -> Vec<PageId> {
        self.extents.pages(&self.directory, index)
    }

    /// Calls `each` with all of these, at most `most` at a time, and with no lock held. Nobody takes ids for the
    /// index meanwhile.
    pub fn each_page_of(&self, index: IndexId, most: usize, each: &mut dyn FnMut(&[PageId])) {
        self.extents.each_page(&self.directory, index, most, each);
    }

    /// How many ids of the index are handed out. Known after recovery only.
    pub fn page_count(&self, index: IndexId) -> u64 {
        self.extents.count(index)
    }

    /// Takes all extents from an index. The words of its ids are 0 already and the
    /// INDEX_DROP record is appended. During recovery (before [`Store::finish_recovery`])
    /// the words are cleared here: call it when the log is replayed over an INDEX_DROP.
    pub fn release_index(&self, index: IndexId) {
        if self.phase.load(Ordering::Acquire) == OPEN {
            self.extents.release(&self.directory, index);
        } else {
            self.replay_extents(ExtentChange::TakeBack { index });
        }
    }

    /// All owners of extents, ascending. Known after recovery only.
    pub fn indexes(&self) -> Vec<IndexId> {
        self.extents.indexes()
    }

    /// Recovery: replays the body of an EXTENT record.
    ///
    /// # Errors
    /// `Corrupt` when the body is not one.
    pub fn apply_extent(&self, body: &[u8]) -> Result<()> {
        self.replay_extents(decode_extent(body)?);
        Ok(())
    }

    fn replay_extents(&self, change: ExtentChange) {
        let phase = self.phase.load(Ordering::Acquire);
        assert!(
            phase == LOADING,
            "owners of extents are replayed before free space is known"
        );
        if matches!(change, ExtentChange::TakeBack { .. }) {
            self.drop_replayed.store(true, Ordering::Release);
        }
        let mut replay = self.extents_replay.lock();
        replay.change(&self.directory, change);
    }

    /// Reads the page whose blob is at `at` into `out` (one page long), with the changes of the
    /// delta that the directory has for it.
    ///
    /// # Errors
    /// `Corrupt` naming page, file and offset when the blob is not that page's or fails its
    /// checks: the page is lost, or the caller's location is not current any more. `Io`.
    pub fn read_page(&self, page: PageId, at: Location, out: &mut [u8]) -> Result<PageHeader> {
        self.read_stored(page, at, self.directory.delta(page), out)
            .map(|read| read.header)
    }

    /// As [`Store::read_page`], with a delta from there ([`Location::NONE`]: without one), and what
    /// the page was made of.
    ///
    /// # Errors
    /// As [`Store::read_page`].
    pub fn read_stored(
        &self,
        page: PageId,
        at: Location,
        delta: Location,
        out: &mut [u8],
    ) -> Result<PageRead> {
        assert_eq!(out.len(), PAGE_BYTES, "a page is read whole");
        let granules = at.granules() as usize;
        if granules == 0 || granules > MAX_BLOB_GRANULES {
            return Err(self.bad_page(page, at, "not the length of a blob"));
        }
        if !delta.is_none() {
            return self.read_both(Wanted { page, at, delta }, out);
        }
        let kept = self.scratch.lock().pop();
        let mut scratch = kept.unwrap_or_else(Scratch::new);
        let result = self.read_with(&mut scratch, page, at, out);
        self.scratch.lock().push(scratch);
        result
    }

    fn read_with(
        &self,
        scratch: &mut Scratch,
        page: PageId,
        at: Location,
        out: &mut [u8],
    ) -> Result<PageRead> {
        let tier = self.tier.get();
        if let Some(read) = tier.and_then(|t| t.read(scratch, (page, at), out)) {
            return Ok(read);
        }
        // The blocks that the blob lies in.
        let before = at.granule() % u64::from(BLOCK_GRANULES);
        let lead = before as usize * GRANULE_BYTES;
        let buf = &mut scratch.buf[..(lead + at.bytes()).next_multiple_of(BLOCK_BYTES)];
        self.files
            .read(at.granule() - before, buf)
            .map_err(|e| match e {
                Error::Corrupt(what) => self.bad_page(page, at, &what),
                other => other,
            })?;
        self.counters.pages_read.inc();
        self.counters.bytes_read.add(buf.len() as u64);
        let blob = &buf[lead..lead + at.bytes()];
        let read = self
            .restore((page, at), blob, out, &mut scratch.unpacker)
            .map_err(|what| self.bad_page(page, at, &what))?;
        if let Some(tier) = tier {
            tier.keep(page, at, blob);
        }
        Ok(read)
    }

    /// Checks the blob that was read for `page` at `at`, and makes the page of it.
    ///
    /// # Errors
    /// What is wrong, in words.
    pub(crate) fn restore(
        &self,
        (page, at): (PageId, Location),
        blob: &[u8],
        out: &mut [u8],
        unpacker: &mut Unpacker,
    ) -> std::result::Result<PageRead, String> {
        let (header, body) = blob::parse_at(blob, self.superblock.tag(), page, at)?;
        blob::restore(&header, body, out, unpacker)?;
        Ok(PageRead::whole(header, blob))
    }

    pub(crate) fn bad_page(&self, page: PageId, at: Location, what: &str) -> Error {
        self.counters.corrupt_pages.inc();
        let place = self.superblock.geometry.describe(at.granule());
        Error::Corrupt(format!("page {page} at {place}: {what}"))
    }

    /// An empty batch for this store; reusable.
    pub fn new_batch(&self) -> Batch {
        Batch::new(self.superblock.tag(), self.blocks_apart.clone())
    }

    /// Writes a batch into free runs and makes it durable; appends to `placed` where each
    /// page went: first those that were written whole, in the order of the batch, then the others. The
    /// pages live there when the caller says so (map delta logged, word or home changed); until then
    /// the old blobs count.
    ///
    /// Locks: the space lock, not over I/O. Several threads may write at once.
    ///
    /// # Errors
    /// `DiskFull` or `Io`: the space taken is free again, `placed` is as it was. After a
    /// failed sync (`Io`) the caller must stop.
    pub fn write_batch(&self, batch: &mut Batch, placed: &mut Vec<Placed>) -> Result<()> {
        batch.join_deltas();
        let batch = &*batch;
        if batch.is_empty() {
            return Ok(());
        }
        if self.phase.load(Ordering::Acquire) == LOADING {
            return Err(Error::Bug(
                "a batch is written before free space is known".into(),
            ));
        }
        let mut runs = Vec::new();
        self.take_runs(batch, &mut runs)?;
        if let Err((failed, e)) = self.write_runs(batch, &runs) {
            let is_full = matches!(e, Error::DiskFull(_));
            let mut free = self.runs.lock();
            free.give_after_failure(&runs, failed, is_full);
            self.has_no_room.fetch_or(is_full, Ordering::Relaxed);
            return Err(e);
        }
        let first = placed.len();
        let mut blobs = batch.blobs().iter();
        for run in &runs {
            let mut at = run.granule;
            for b in blobs.by_ref().take(run.blobs) {
                let mark = if self.superblock.has_marks() {
                    b.mark
                } else {
                    0
                };
                let location = match b.is_delta {
                    true => Location::of_delta(at, b.granules),
                    false => Location::new(at, b.granules, b.codec),
                };
                placed.push(Placed {
                    page: b.page,
                    location: location.with_mark(mark),
                    crc: b.crc,
                });
                at += u64::from(b.granules);
            }
            let end = run.granule + u64::from(run.granules);
            assert!(at == end, "blobs up to {at} in a run up to {end}");
        }
        let (pages, found) = (batch.pages(), placed.len() - first);
        assert!(found == pages, "{found} of {pages} pages are placed");
        self.keep_in_tier(batch, &placed[first..]);
        let plain = ferrite_types::format::Codec::None;
        let packed = batch.blobs().iter().filter(|b| b.codec != plain).count();
        self.counters.pages_packed.add(packed as u64);
        let deltas = batch.blobs().iter().filter(|b| b.is_delta);
        let granules = |b: &Packed| u64::from(b.granules);
        let (count, long) = deltas.fold((0, 0), |(n, all), b| (n + 1, all + granules(b)));
        self.counters.deltas_written.add(count);
        (self.counters.delta_bytes_written).add(long * GRANULE_BYTES as u64);
        self.counters.pages_written.add(batch.pages() as u64);
        self.counters.bytes_written.add(batch.len() as u64);
        self.counters.batches.inc();
        self.counters.runs.add(runs.len() as u64);
        Ok(())
    }

    /// What was written will be read, if not before it leaves memory.
    fn keep_in_tier(&self, batch: &Batch, placed: &[Placed]) {
        let Some(tier) = self.tier.get() else { return };
        let mut rest = batch.bytes();
        for p in placed {
            let (blob, behind) = rest.split_at(p.location.bytes());
            if !p.location.is_delta() {
                tier.keep(p.page, p.location, blob);
            }
            rest = behind;
        }
        assert!(rest.is_empty(), "{} bytes of no page", rest.len());
    }

    /// # Errors
    /// With the number of the run that could not be written; all: they were, and a sync failed.
    fn write_runs(&self, batch: &Batch, runs: &[Run]) -> std::result::Result<(), (usize, Error)> {
        let mut touched: Vec<usize> = Vec::new();
        let kept = self.aside.lock().pop();
        let mut aside = kept.unwrap_or_else(|| AlignedBuf::zeroed(BATCH_BYTES));
        let mut at = 0;
        for (number, run) in runs.iter().enumerate() {
            let here = batch.run_bytes(at, run.granules, &mut aside);
            assert!(here.len() == run.written() as usize * GRANULE_BYTES);
            let written = self.files.write(run.granule, here);
            let file = written.map_err(|e| (number, e))?;
            if !touched.contains(&file) {
                touched.push(file);
            }
            at += run.granules as usize * GRANULE_BYTES;
        }
        self.aside.lock().push(aside);
        assert!(at == batch.len(), "{at} of {} bytes in runs", batch.len());
        kill_point!("store.after_write_before_sync");
        for file in touched {
            if ferrite_sync::mutant!("store.skip_page_sync") {
                continue;
            }
            self.files.sync(file).map_err(|e| (runs.len(), e))?;
            self.counters.syncs.inc();
        }
        kill_point!("store.after_sync");
        Ok(())
    }

    /// Appends the body of a MAP_DELTA record to `out`: these pages live there now, without a
    /// delta, or have that delta now and live where they did
    /// ([`Location::NONE`]: nowhere, the page is no more).
    pub fn encode_map_delta(moved: &[(PageId, Location)], out: &mut Vec<u8>) {
        delta::encode_map_delta(moved, out);
    }

    /// Calls `each` for every entry of a MAP_DELTA body, in order.
    ///
    /// # Errors
    /// `Corrupt` when the body is not one; `each` was not called then.
    pub fn decode_map_delta(body: &[u8], each: &mut dyn FnMut(PageId, Location)) -> Result<()> {
        delta::decode_map_delta(body, each)
    }

    /// The blob becomes free space as soon as the log is durable up to `moved`, the end of
    /// the record that says the page lives elsewhere (see [`Store::reclaim`]). Nothing for
    /// [`Location::NONE`].
    pub fn retire(&self, old: Location, moved: Lsn) {
        if !old.is_none() {
            self.retired.push(old, moved);
        }
    }

    /// As [`Store::retire`], of many blobs at once.
    pub fn retire_runs(&self, old: GranuleRuns, moved: Lsn) {
        self.retired.push_runs(old, moved);
    }

    /// Frees the retired blobs whose record ends at or before `durable`. One load when there
    /// is nothing to do.
    pub fn reclaim(&self, durable: Lsn) {
        let durable = if ferrite_sync::mutant!("store.free_run_early") {
            Lsn::MAX
        } else {
            durable
        };
        loop {
            let due = self.retired.take(durable);
            if due.is_empty() {
                return;
            }
            let mut free = self.runs.lock();
            for (granule, n) in due {
                free.give_run(granule, n);
            }
        }
    }

    /// From now on what is free is used again as soon as can be: what was freed too early is
    /// then overwritten at once. For the simulator; it makes short runs.
    pub fn reuse_soon(&self) {
        self.runs.lock().give_out_lowest_first();
    }

    /// The blob is free space now: no durable or logged word names it. Nothing for
    /// [`Location::NONE`].
    pub fn free_now(&self, at: Location) {
        if !at.is_none() {
            self.runs.lock().give(at.granule(), at.granules());
        }
    }

    /// Figures since opening.
    pub fn stats(&self) -> StoreStats {
        let c = &self.counters;
        StoreStats {
            pages_read: c.pages_read.get(),
            bytes_read: c.bytes_read.get(),
            pages_written: c.pages_written.get(),
            bytes_written: c.bytes_written.get(),
            pages_packed: c.pages_packed.get(),
            deltas_written: c.deltas_written.get(),
            deltas_read: c.deltas_read.get(),
            deltas_live: c.deltas_live.load(Ordering::Relaxed),
            batches: c.batches.get(),
            runs: c.runs.get(),
            syncs: c.syncs.get(),
            segments_grown: c.segments_grown.get(),
            grown_in_foreground: c.grown_in_foreground.get(),
            bytes_given_back: c.bytes_given_back.get(),
            bytes_scrubbed: c.bytes_scrubbed.get(),
            corrupt_pages: c.corrupt_pages.get(),
        }
    }
}
