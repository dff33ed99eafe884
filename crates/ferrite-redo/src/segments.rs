//! The files of the log: preparing them ahead of need, recycling them, finding one. Those that are there at a start
//! are in `directory`.
//!
//! A segment is `redo.NNNNNNNN`, always of full length, allocated and written with zeroes
//! (or with stale content of an earlier number) and durable under its name before anything
//! of value is written to it: a commit never extends a file. A new file is built as
//! `redo.tmp` and renamed when it is complete. A file whose content nobody needs becomes the
//! next future segment by a rename; its old content cannot be taken for new, because every
//! sector carries its number.
//!
//! Invariants: the segments on disk are first..ready, without gaps; `ready` grows only
//! after the directory is durable; `first` never passes the segment that holds the last
//! byte before the oldest needed position (the epoch is read from there); `ready` falls only
//! over segments above `handed`, which nobody was ever given to write to. A file whose rename or removal fails is a
//! segment still, for another try: no file is in the directory that nobody knows of.
//! Locking: `preparing` (held over file operations) before `open` (a map, held briefly); `clean`,
//! `why_tight` and `news` are leaves. Who needs a file waits for `preparing` or for news of it.

mod directory;

pub(crate) use directory::wipe;

use crate::format::{sector_of, segment_name, Geometry, BLOCK, BLOCK_SECTORS};
use crate::pace::Pace;
use ferrite_io::{AlignedBuf, OpenMode, Storage, StorageFile};
use ferrite_sync::atomic::{AtomicBool, AtomicU64, Ordering};
use ferrite_sync::{kill_point, Arc, Condvar, Counter, Mutex};
use ferrite_types::{Error, Result};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// Where a new segment is built.
const TEMP_NAME: &str = "redo.tmp";
/// Segments kept ready beyond the one being written.
pub(crate) const MIN_SPARE: u64 = 2;
/// Recycled segments beyond this number are removed.
const MAX_SPARE: u64 = 8;
/// Bytes of zeroes per write while a file is built.
const ZERO_BYTES: usize = 256 << 10;
/// Somebody else is preparing files: how long to wait for news of it, in us, before it is asked whether
/// there is still anybody.
const NEWS_US: u64 = 10_000;

pub(crate) type File = Arc<dyn StorageFile>;

/// See the head of the file.
pub(crate) struct Segments {
    storage: Arc<dyn Storage>,
    direct: bool,
    geometry: Geometry,
    open: Mutex<BTreeMap<u64, File>>,
    preparing: Mutex<()>,
    first: AtomicU64,
    ready: AtomicU64,
    needed: AtomicU64,
    /// The last segment given out for writing; changed under `open`.
    handed: AtomicU64,
    /// Bytes that all files together may take.
    budget: AtomicU64,
    /// Log that may be appended at any moment by who has been admitted long ago, in bytes: files for it are kept ready.
    promised: AtomicU64,
    scrubs: AtomicBool,
    /// Ready segments that were zeroes when they became ready; a leaf.
    clean: Mutex<BTreeSet<u64>>,
    /// What the last attempt to prepare a segment failed with.
    why_tight: Mutex<Option<Error>>,
    /// See the function.
    why_stays: Mutex<Option<Error>>,
    /// Somebody stands still until a segment is there, or nobody does.
    pace: Pace,
    /// Told whenever a segment becomes ready.
    news: Mutex<()>,
    grown: Condvar,
    /// Files built from nothing.
    pub(crate) created: Counter,
    /// Files renamed to a future segment.
    pub(crate) recycled: Counter,
    /// Files removed.
    pub(crate) removed: Counter,
    /// Bytes of old content overwritten with zeroes.
    pub(crate) scrubbed_bytes: Counter,
}

impl Segments {
    /// A log without files, which will begin with segment `first`.
    pub(crate) fn empty(
        storage: Arc<dyn Storage>,
        direct: bool,
        geometry: Geometry,
        first: u64,
    ) -> Segments {
        let length = geometry.segment_bytes;
        assert!(length > 0 && length % BLOCK as u64 == 0, "{length} bytes");
        Segments {
            storage,
            direct,
            geometry,
            open: Mutex::new(BTreeMap::new()),
            preparing: Mutex::new(()),
            first: AtomicU64::new(first),
            ready: AtomicU64::new(first),
            needed: AtomicU64::new(first),
            handed: AtomicU64::new(first),
            budget: AtomicU64::new(u64::MAX),
            promised: AtomicU64::new(0),
            scrubs: AtomicBool::new(false),
            clean: Mutex::new(BTreeSet::new()),
            why_tight: Mutex::new(None),
            why_stays: Mutex::new(None),
            pace: Pace::default(),
            news: Mutex::new(()),
            grown: Condvar::new(),
            created: Counter::new(),
            recycled: Counter::new(),
            removed: Counter::new(),
            scrubbed_bytes: Counter::new(),
        }
    }

    /// How sectors fall into files.
    pub(crate) fn geometry(&self) -> Geometry {
        self.geometry
    }

    /// The first segment on disk.
    pub(crate) fn first(&self) -> u64 {
        self.first.load(Ordering::SeqCst)
    }

    /// The first segment that is not ready.
    pub(crate) fn ready(&self) -> u64 {
        self.ready.load(Ordering::SeqCst)
    }

    /// First position without a ready segment.
    #[inline]
    pub(crate) fn ready_lsn(&self) -> u64 {
        self.geometry
            .segment_start(self.ready.load(Ordering::Relaxed))
    }

    /// The last attempt to prepare a segment failed.
    pub(crate) fn tight(&self) -> bool {
        self.why_tight.lock().is_some()
    }

    /// Why it failed, if it did.
    pub(crate) fn why_tight(&self) -> Option<Error> {
        self.why_tight.lock().clone()
    }

    /// An open file.
    pub(crate) fn get(&self, segment: u64) -> Option<File> {
        self.open.lock().get(&segment).cloned()
    }

    /// A ready segment's file, through the system's cache. Writes of both kinds and reads
    /// of one file agree: the system sees to that at each of them.
    pub(crate) fn open_cached(&self, segment: u64) -> Result<File> {
        if !self.direct {
            return self.get_or_prepare(segment);
        }
        self.storage
            .open(&segment_name(segment), OpenMode::ReadWrite, false)
    }

    /// The open files are first..ready, without gaps. Under `preparing`, or before there is
    /// anybody else.
    fn is_run(&self, open: &BTreeMap<u64, File>) -> bool {
        let (first, ready) = (self.first(), self.ready());
        open.len() as u64 == ready - first
            && open.keys().next().is_none_or(|s| *s == first)
            && open.keys().next_back().is_none_or(|s| *s + 1 == ready)
    }

    /// An open file, to write to.
    fn hand(&self, segment: u64) -> Option<File> {
        let open = self.open.lock();
        let file = open.get(&segment).cloned();
        if file.is_some() {
            // It is in the map: it leaves that before `first` passes it.
            assert!(segment >= self.first(), "{segment} was given back");
            self.handed.fetch_max(segment, Ordering::SeqCst);
        }
        file
    }

    /// An open file to write to, prepared now if need be.
    pub(crate) fn get_or_prepare(&self, segment: u64) -> Result<File> {
        loop {
            if let Some(f) = self.hand(segment) {
                return Ok(f);
            }
            let _hurry = self.pace.hurry();
            let _guard = self.preparing.lock();
            if segment < self.first() {
                let name = segment_name(segment);
                return Err(Error::Bug(format!("redo log: {name} was given back")));
            }
            if self.ready() <= segment {
                self.extend(segment)?;
            }
        }
    }

    /// Segments before this one will not be read again.
    pub(crate) fn set_needed(&self, segment: u64) {
        self.needed.fetch_max(segment, Ordering::SeqCst);
    }

    /// Log that has been promised and is not there yet, in bytes.
    #[inline]
    pub(crate) fn promised(&self) -> u64 {
        self.promised.load(Ordering::Relaxed)
    }

    /// So many bytes more; true: they need a file more.
    pub(crate) fn promise(&self, bytes: u64) -> bool {
        let before = self.promised.fetch_add(bytes, Ordering::SeqCst);
        assert!(before <= u64::MAX - bytes, "{bytes} bytes beside {before}");
        self.files_for(before) < self.files_for(before + bytes)
    }

    /// So many of them are in the log, or will not come.
    pub(crate) fn unpromise(&self, bytes: u64) {
        let before = self.promised.fetch_sub(bytes, Ordering::SeqCst);
        assert!(bytes <= before, "{bytes} bytes of {before} promised ones");
    }

    /// Whole ones: the rest fits the spare ones, and room is counted in bytes ([`Log::admission`](crate::Log::admission)).
    fn files_for(&self, bytes: u64) -> u64 {
        bytes / self.geometry.segment_payload()
    }

    /// Segments to be kept ready beyond the one being written.
    fn spare(&self) -> u64 {
        MIN_SPARE + self.files_for(self.promised())
    }

    /// All files together are to take no more than that.
    pub(crate) fn set_budget(&self, bytes: u64) {
        self.budget.store(bytes, Ordering::SeqCst);
    }

    /// From now on (not), old content is overwritten before a file is used again.
    pub(crate) fn set_scrub(&self, on: bool) {
        self.scrubs.store(on, Ordering::SeqCst);
    }

    /// A spare segment may hold something old. It may lie before clean ones: a file is recycled
    /// before another is made.
    fn stale_spare(&self, current: u64) -> bool {
        let written = current.max(self.handed.load(Ordering::SeqCst));
        let clean = self.clean.lock();
        self.scrubs.load(Ordering::SeqCst)
            && (written + 1..self.ready()).any(|spare| !clean.contains(&spare))
    }

    /// Files beyond what the budget allows.
    fn surplus(&self) -> u64 {
        let budget = self.budget.load(Ordering::SeqCst) / self.geometry.segment_bytes;
        let files = self.ready() - self.first();
        files.saturating_sub(budget.max(1).saturating_add(self.spare()))
    }

    /// Brings the files into order around the segment being written: recycles and removes
    /// what is not needed, prepares what is missing.
    pub(crate) fn maintain(&self, current: u64) -> Result<()> {
        let _guard = self.preparing.lock();
        let mut result = Ok(());
        while result.is_ok() && self.first() < self.needed.load(Ordering::SeqCst).min(current) {
            let most = current + self.spare().max(MAX_SPARE);
            result = if self.ready() <= most && self.surplus() == 0 {
                self.recycle_first()
            } else {
                self.remove_first()
            };
        }
        let too_many = || self.surplus() > 0 && self.ready() > current + 1 + self.spare();
        while result.is_ok() && (too_many() || self.stale_spare(current)) {
            match self.remove_last() {
                Ok(true) => {}
                Ok(false) => break,
                Err(e) => result = Err(e),
            }
        }
        debug_assert!(self.first() < self.ready(), "no file is left");
        *self.why_stays.lock() = result.clone().err();
        // A file that keeps its name is no reason not to have others.
        let mut made = Ok(());
        while made.is_ok() && self.ready() <= current + self.spare() && !self.pace.is_stopping() {
            made = self.extend(current);
        }
        *self.why_tight.lock() = made.clone().err();
        result.and(made)
    }

    /// Why a file stays that is not needed, and with it those behind it: the log grows beyond its budget.
    pub(crate) fn why_stays(&self) -> Option<Error> {
        self.why_stays.lock().clone()
    }

    /// The same without pauses; a failure shows as `tight`.
    pub(crate) fn maintain_now(&self, current: u64) {
        let _hurry = self.pace.hurry();
        let _ = self.maintain(current);
    }

    /// Segments up to position `end`, and no more of them than that needs, made by this thread or by the one
    /// that is at it; a failure shows as `tight`.
    pub(crate) fn make_ready(&self, current: u64, end: u64) {
        let begin = self.geometry.segment_start(current);
        assert!(end > begin, "room up to {end} was written before {begin}");
        let _hurry = self.pace.hurry();
        while self.ready_lsn() < end {
            if let Some(_guard) = self.preparing.try_lock() {
                let mut result = Ok(());
                while result.is_ok() && self.ready_lsn() < end {
                    result = self.extend(current);
                }
                *self.why_tight.lock() = result.err();
                return;
            }
            let news = self.news.lock();
            if self.ready_lsn() < end {
                drop(self.grown.wait_timeout_us(news, NEWS_US));
            }
            if self.tight() {
                return;
            }
        }
    }

    /// From now on (not), spare segments are made only for who waits for one: the log is being closed.
    pub(crate) fn set_stopping(&self, on: bool) {
        self.pace.set_stopping(on);
    }

    /// One more ready segment.
    fn extend(&self, current: u64) -> Result<()> {
        let first = self.first();
        if first < self.needed.load(Ordering::SeqCst).min(current) {
            let recycled = self.recycle_first();
            if recycled.is_ok() || self.first() != first {
                return recycled;
            }
            // It keeps its name, at each further try as well, and those behind it have to stay, too: there may be space
            // for one more.
            debug_assert!(self.open.lock().contains_key(&first), "{first} is lost");
        }
        self.prepare_next()
    }

    /// Something in it may be read again. What is not needed never becomes it again.
    fn is_needed(&self, segment: u64) -> bool {
        segment >= self.needed.load(Ordering::SeqCst)
    }

    fn recycle_first(&self) -> Result<()> {
        let (old, new) = (self.first(), self.ready());
        assert!(old < new, "{old} is recycled into {new}");
        assert!(!self.is_needed(old), "{old} is recycled and still needed");
        kill_point!("redo.before_recycle");
        let scrubs = self.scrubs.load(Ordering::SeqCst);
        let name = match scrubs {
            true => TEMP_NAME.to_owned(),
            false => segment_name(new),
        };
        self.first_leaves(self.storage.rename(&segment_name(old), &name))?;
        if scrubs {
            self.storage.sync_dir()?;
            kill_point!("redo.scrub_begun");
            let file = self
                .storage
                .open(TEMP_NAME, OpenMode::ReadWrite, self.direct)?;
            self.zero(&*file)?;
            file.sync_data()?;
            self.scrubbed_bytes.add(self.geometry.segment_bytes);
            self.storage.rename(TEMP_NAME, &segment_name(new))?;
        }
        kill_point!("redo.recycle");
        self.storage.sync_dir()?;
        self.publish(new, scrubs)?;
        self.recycled.inc();
        Ok(())
    }

    /// The first file was taken from its name: it is no segment any more. If that failed it is one still, as long as it is
    /// there: else each further try would give up another one, and leave a file that nobody knows of.
    fn first_leaves(&self, taken: Result<()>) -> Result<()> {
        let old = self.first();
        if taken.is_err() && self.is_there(old) {
            return taken;
        }
        let file = self.open.lock().remove(&old);
        assert!(file.is_some(), "{old} leaves and was not there");
        self.first.store(old + 1, Ordering::SeqCst);
        self.clean.lock().remove(&old);
        taken
    }

    /// Has a segment's file its name? If that cannot be said, it has.
    fn is_there(&self, segment: u64) -> bool {
        let name = segment_name(segment);
        self.storage.exists(&name).unwrap_or(true)
    }

    fn remove_first(&self) -> Result<()> {
        let old = self.first();
        assert!(old < self.ready(), "{old} is not there");
        assert!(!self.is_needed(old), "{old} is removed and still needed");
        self.first_leaves(self.storage.remove(&segment_name(old)))?;
        kill_point!("redo.removed");
        // Without this a crash could bring the file back below a gap; harmless, but then
        // the run would begin at another number than the running log believes.
        self.storage.sync_dir()?;
        self.removed.inc();
        Ok(())
    }

    /// Removes the last spare segment; false if somebody may write to it.
    fn remove_last(&self) -> Result<bool> {
        let last = self.ready() - 1;
        let file = {
            let mut open = self.open.lock();
            if self.handed.load(Ordering::SeqCst) >= last {
                return Ok(false);
            }
            assert!(last > self.first(), "{last}: the only segment");
            let file = open.remove(&last);
            self.ready.store(last, Ordering::SeqCst);
            debug_assert!(self.is_run(&open), "gaps below {last}");
            file.expect("it was there")
        };
        let was_clean = self.clean.lock().remove(&last);
        if let Err(e) = self.storage.remove(&segment_name(last)) {
            if self.is_there(last) {
                self.is_ready(last, file, was_clean);
            }
            return Err(e);
        }
        kill_point!("redo.spare_removed");
        self.storage.sync_dir()?;
        self.removed.inc();
        Ok(true)
    }

    fn prepare_next(&self) -> Result<()> {
        let new = self.ready();
        let built = self.build();
        if built.is_err() {
            // Give the space of an unfinished file back; the error of interest is `built`.
            let _ = self.storage.remove(TEMP_NAME);
            return built;
        }
        kill_point!("redo.segment_built");
        self.storage.rename(TEMP_NAME, &segment_name(new))?;
        self.storage.sync_dir()?;
        kill_point!("redo.segment_prepared");
        self.publish(new, true)?;
        self.created.inc();
        Ok(())
    }

    fn build(&self) -> Result<()> {
        let length = self.geometry.segment_bytes;
        if self.storage.exists(TEMP_NAME)? {
            self.storage.remove(TEMP_NAME)?;
        }
        let file = self
            .storage
            .open(TEMP_NAME, OpenMode::CreateNew, self.direct)?;
        file.allocate(0, length)?;
        self.zero(&*file)?;
        file.sync_data()
    }

    /// Overwrites a whole file with zeroes, with pauses while nobody waits for it.
    fn zero(&self, file: &dyn StorageFile) -> Result<()> {
        let length = self.geometry.segment_bytes;
        let zeroes = AlignedBuf::zeroed((ZERO_BYTES as u64).min(length) as usize);
        let mut at = 0;
        while at < length {
            let n = (length - at).min(zeroes.len() as u64);
            debug_assert!(n % BLOCK as u64 == 0, "{n} bytes past the cache");
            self.pace
                .paced(|| file.write_at(&zeroes[..n as usize], at))?;
            at += n;
        }
        Ok(())
    }

    /// Overwrites everything before the block that holds the byte before `from`, and everything
    /// behind the block that holds `end`; nobody writes meanwhile. A restart reads from `from` on.
    pub(crate) fn scrub(&self, from: u64, end: u64) -> Result<()> {
        let _guard = self.preparing.lock();
        let block_of = |lsn: u64| sector_of(lsn) / BLOCK_SECTORS as u64;
        let (head, tail) = (block_of(from.saturating_sub(1)), block_of(end) + 1);
        assert!(head < tail, "nothing is left between {from} and {end}");
        let blocks = self.geometry.segment_bytes / BLOCK as u64;
        for segment in self.first()..self.ready() {
            let (first, last) = (segment * blocks, (segment + 1) * blocks);
            let before = first..head.clamp(first, last);
            let behind = tail.clamp(first, last)..last;
            let clean = self.clean.lock().contains(&segment);
            let Some(file) = self.get(segment) else {
                continue;
            };
            self.zero_blocks(&*file, first, before)?;
            if !clean {
                self.zero_blocks(&*file, first, behind)?;
            }
            file.sync_data()?;
            kill_point!("redo.scrubbed");
        }
        Ok(())
    }

    /// Overwrites blocks of the log in the file that begins with block `first`.
    fn zero_blocks(&self, file: &dyn StorageFile, first: u64, range: Range<u64>) -> Result<()> {
        let zeroes = AlignedBuf::zeroed(ZERO_BYTES);
        let blocks = self.geometry.segment_bytes / BLOCK as u64;
        assert!(
            first <= range.start && range.end <= first + blocks,
            "blocks {range:?} in the file that begins with block {first}"
        );
        let mut at = range.start;
        while at < range.end {
            let n = (range.end - at).min((ZERO_BYTES / BLOCK) as u64);
            let bytes = n as usize * BLOCK;
            file.write_at(&zeroes[..bytes], (at - first) * BLOCK as u64)?;
            self.scrubbed_bytes.add(bytes as u64);
            at += n;
        }
        Ok(())
    }

    /// The file is ready; `clean`: it is zeroes. Said of no file before: one that fails to become
    /// ready may be replaced by a recycled one.
    fn publish(&self, segment: u64, clean: bool) -> Result<()> {
        let f = self
            .storage
            .open(&segment_name(segment), OpenMode::ReadWrite, self.direct)?;
        self.is_ready(segment, f, clean);
        Ok(())
    }

    /// See [`Segments::publish`].
    fn is_ready(&self, segment: u64, file: File, clean: bool) {
        let ready = self.ready();
        assert!(segment == ready, "{segment} becomes ready after {ready}");
        if clean {
            self.clean.lock().insert(segment);
        }
        let mut open = self.open.lock();
        let old = open.insert(segment, file);
        assert!(old.is_none(), "{segment} was ready before");
        let handed = self.handed.load(Ordering::SeqCst);
        assert!(
            handed <= segment,
            "{handed} was written to before it was ready"
        );
        self.ready.store(segment + 1, Ordering::SeqCst);
        debug_assert!(self.is_run(&open), "gaps below {segment}");
        drop(open);
        drop(self.news.lock());
        self.grown.notify_all();
    }
}

/// A segment's name, for messages.
pub(crate) fn name_of(segment: u64) -> String {
    segment_name(segment)
}
