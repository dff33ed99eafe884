//! One open log: making and opening it, appending, reading again, space on disk.
//!
//! Invariants: durable <= written <= consumed <= next; a position handed out by `append` is
//! never moved; after a failed write or sync nothing becomes durable any more (`dead`).
//! Locking: `gate` (who leads) is never held over I/O; the leader holds `writer` over its
//! round; `deferred` and `notices` are leaves. No lock is held over a hook.

use crate::format::{Geometry, BLOCK};
use crate::gate::{Ack, Deferred, Flusher, Gate, Notice};
use crate::reader::{self, Tail};
use crate::ring::Ring;
use crate::segments::{self, Segments};
use crate::stats::{Counters, LogStats};
use crate::writer::Writer;
use crate::{Appended, LogConfig, LogRecord, LogSpan};
use ferrite_io::Storage;
use ferrite_sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use ferrite_sync::thread::JoinHandle;
use ferrite_sync::waits::{waiting, Of, Reason};
use ferrite_sync::{exempt_from_no_wait, thread, Arc, CachePadded, Condvar, Event, Mutex, RwLock};
use ferrite_types::format::record_kind;
use ferrite_types::{Error, Lsn, Result};

/// Prepared log space below which writers are refused while no more can be prepared.
const RESERVE_BYTES: u64 = 32 << 20;
/// Smallest ring and segment.
const MIN_BYTES: u64 = 64 << 10;
/// A ring of so many bytes, which takes the longest bodies, is not made smaller for short segments.
const LEAST_RING_BYTES: u64 = 4 << 20;
/// Reads of a sector that is just being rewritten, before it counts as damaged.
const REREADS: u32 = 1000;

pub(crate) type AckHook = Arc<dyn Fn(&[Ack]) + Send + Sync>;
pub(crate) type FatalHook = Arc<dyn Fn(&str) + Send + Sync>;
pub(crate) type EndingHook = Arc<dyn Fn() -> bool + Send + Sync>;

/// The redo log. See the crate's page.
pub struct Log {
    pub(crate) ring: Ring,
    pub(crate) segs: Segments,
    pub(crate) writer: Mutex<Writer>,
    pub(crate) durable: CachePadded<AtomicU64>,
    /// Handed to the system; not behind `durable`.
    pub(crate) written: AtomicU64,
    pub(crate) requested: CachePadded<AtomicU64>,
    pub(crate) gate: Mutex<Gate>,
    pub(crate) deferred: Mutex<Vec<Deferred>>,
    pub(crate) pending: AtomicUsize,
    pub(crate) notices: Mutex<Vec<Notice>>,
    pub(crate) notice_count: AtomicUsize,
    pub(crate) ack: RwLock<Option<AckHook>>,
    pub(crate) fatal: RwLock<Option<FatalHook>>,
    /// How long the log stands still at the most while that is true, in ms.
    pub(crate) patience: RwLock<Option<(u64, EndingHook)>>,
    pub(crate) dead: AtomicBool,
    /// The hook `fatal` has returned from telling why the log is dead.
    pub(crate) told: AtomicBool,
    pub(crate) flusher: Flusher,
    pub(crate) keeper: Event,
    pub(crate) threads: Mutex<Vec<JoinHandle<()>>>,
    pub(crate) space: Mutex<()>,
    pub(crate) space_given: Condvar,
    pub(crate) space_waiters: AtomicUsize,
    /// Who writes the log stands still: the disk is full.
    pub(crate) stands_still: AtomicBool,
    pub(crate) stats: Counters,
}

impl Log {
    /// Begins a brand-new log at `start` (a multiple of 8). Files of an earlier log in the
    /// same place are removed.
    pub fn create(storage: Arc<dyn Storage>, start: Lsn, cfg: LogConfig) -> Result<Arc<Log>> {
        check_config(&cfg)?;
        if start.0 % 8 != 0 {
            return Err(Error::BadConfig(
                "the log must begin at a multiple of 8".into(),
            ));
        }
        segments::wipe(&*storage)?;
        let geometry = Geometry {
            segment_bytes: cfg.segment_bytes,
        };
        let first = geometry.segment_of(start.0);
        let segs = Segments::empty(storage, cfg.direct, geometry, first);
        Log::at(segs, Tail::of_nothing(start.0), &cfg)
    }

    /// Opens an existing log. Scans from the span's beginning, hands every whole valid record
    /// to `visit` and stops at the torn end; the log continues after the last valid record,
    /// under a new epoch that is durable before this returns. Segments keep the length they
    /// were created with.
    ///
    /// Errors: `Corrupt` when the beginning cannot be reached, when the log is damaged before
    /// its end, or ends before what is known to have been durable (the files are then as they
    /// were); whatever `visit` returns.
    pub fn open(
        storage: Arc<dyn Storage>,
        span: impl Into<LogSpan>,
        cfg: LogConfig,
        visit: &mut dyn FnMut(LogRecord<'_>) -> Result<()>,
    ) -> Result<Arc<Log>> {
        check_config(&cfg)?;
        let LogSpan { from, durable } = span.into();
        let (segs, beyond) = Segments::adopt(storage, cfg.direct, from.0)?;
        // What is read below must not vanish in another crash: it may still be in a cache.
        for s in segs.geometry().segment_of(from.0.saturating_sub(1))..segs.ready() {
            if let Some(f) = segs.get(s) {
                f.sync_data()?;
            }
        }
        let tail = reader::scan(&segs, from.0, u64::MAX, &mut || false, visit)?;
        check_end(&segs, &tail, beyond, durable)?;
        if beyond.is_some() {
            segs.drop_beyond()?;
        }
        Log::at(segs, tail, &cfg)
    }

    /// Reads a log that nobody has open, to its end, and changes nothing: for tools. Returns the end.
    ///
    /// Errors: as [`open`](Self::open); `visit` was called with what comes before the damage.
    pub fn read(
        storage: Arc<dyn Storage>,
        span: impl Into<LogSpan>,
        visit: &mut dyn FnMut(LogRecord<'_>) -> Result<()>,
    ) -> Result<Lsn> {
        let LogSpan { from, durable } = span.into();
        let (segs, beyond) = Segments::find(storage, false, from.0)?;
        let tail = reader::scan(&segs, from.0, u64::MAX, &mut || false, visit)?;
        check_end(&segs, &tail, beyond, durable)?;
        Ok(Lsn(tail.end))
    }

    fn at(segs: Segments, tail: Tail, cfg: &LogConfig) -> Result<Arc<Log>> {
        assert!(
            tail.end % 8 == 0,
            "the log ends within a word: {}",
            tail.end
        );
        let writer = Writer::resume(&segs, tail)?;
        assert!(
            tail.end < segs.ready_lsn() && tail.end >= segs.geometry().segment_start(segs.first()),
            "the log ends at {}, outside its files",
            tail.end
        );
        Ok(Arc::new(Log {
            ring: Ring::new(ring_bytes(cfg, segs.geometry().segment_bytes), tail.end),
            segs,
            writer: Mutex::new(writer),
            durable: CachePadded::new(AtomicU64::new(tail.end)),
            written: AtomicU64::new(tail.end),
            requested: CachePadded::new(AtomicU64::new(tail.end)),
            gate: Mutex::new(Gate::default()),
            deferred: Mutex::new(Vec::new()),
            pending: AtomicUsize::new(0),
            notices: Mutex::new(Vec::new()),
            notice_count: AtomicUsize::new(0),
            ack: RwLock::new(None),
            fatal: RwLock::new(None),
            patience: RwLock::new(None),
            dead: AtomicBool::new(false),
            told: AtomicBool::new(false),
            flusher: Flusher::default(),
            keeper: Event::new(),
            threads: Mutex::new(Vec::new()),
            space: Mutex::new(()),
            space_given: Condvar::new(),
            space_waiters: AtomicUsize::new(0),
            stands_still: AtomicBool::new(false),
            stats: Counters::default(),
        }))
    }

    /// Reads again the records that begin in [from, to), flushing first what is not yet on
    /// disk. `from` must be a record start that is still kept.
    pub fn scan(
        &self,
        from: Lsn,
        to: Lsn,
        visit: &mut dyn FnMut(LogRecord<'_>) -> Result<()>,
    ) -> Result<()> {
        let to = to.0.min(self.ring.next());
        if from.0 >= to {
            return Ok(());
        }
        self.flush_to(Lsn(to));
        let mut left = REREADS;
        // A sector may be read while it is rewritten: between two rounds it is whole.
        let mut reread = || {
            drop(self.writer.lock());
            thread::yield_now();
            left = left.saturating_sub(1);
            left > 0
        };
        let tail = reader::scan(&self.segs, from.0, to, &mut reread, visit)?;
        if tail.end < to {
            let place = self.segs.geometry().describe(tail.end);
            let text = format!("redo log: unreadable from {place} on");
            return Err(Error::Corrupt(text));
        }
        Ok(())
    }

    /// Appends one record whose body is the concatenation of `parts`. Waits for nothing
    /// but space in the ring. The record is durable when `durable_lsn() >= end`.
    ///
    /// # Panics
    /// When the body is longer than [`max_body`](Self::max_body), or when the ring is full
    /// and the log has failed.
    pub fn append(&self, kind: u8, parts: &[&[u8]]) -> Appended {
        let len = parts.iter().map(|p| p.len()).sum::<usize>();
        assert!(len <= self.ring.max_body(), "log record of {len} bytes");
        let total = 8 + len.next_multiple_of(8) as u64;
        let start = self.ring.reserve(total);
        let end = start + total;
        let used = end.saturating_sub(self.ring.consumed());
        if used > self.ring.capacity() / 2 {
            self.ring_filling(start, end, used);
        }
        debug_assert!(self.durable() <= start, "{start} was durable before");
        self.ring.fill(start, kind, len, parts);
        self.stats.records.inc();
        Appended {
            start: Lsn(start),
            end: Lsn(end),
        }
    }

    #[cold]
    fn ring_filling(&self, start: u64, end: u64, used: u64) {
        assert!(start < end && end - start < self.ring.capacity());
        if used > self.ring.capacity() {
            self.stats.waits_ring_full.inc();
            // The record has to go somewhere, whatever the caller has promised.
            exempt_from_no_wait(|| {
                waiting(Reason::LogRing, Of::Nothing, || {
                    self.wait_for_space(start, end - self.ring.capacity());
                });
            });
        } else if self.flusher.asleep() {
            self.request_flush(Lsn(start));
        }
    }

    /// Longest body that [`append`](Self::append) takes: 1 MiB, or a quarter of the ring.
    pub fn max_body(&self) -> usize {
        self.ring.max_body()
    }

    /// Memory in front of the log's files.
    pub fn ring_bytes(&self) -> u64 {
        self.ring.capacity()
    }

    /// Start of the next record. Sequentially consistent with the reservations of
    /// `append`: a record whose reservation has not yet happened begins here or later.
    pub fn current_lsn(&self) -> Lsn {
        Lsn(self.ring.next())
    }

    /// Everything before it survives a crash.
    pub fn durable_lsn(&self) -> Lsn {
        Lsn(self.durable())
    }

    pub(crate) fn durable(&self) -> u64 {
        self.durable.load(Ordering::SeqCst)
    }

    /// Nothing before `lsn` will be read again, in this life or after a crash. Segments
    /// wholly before it become future segments, or are removed when there are too many.
    pub fn set_oldest_needed(&self, lsn: Lsn) {
        let durable = self.durable();
        assert!(
            lsn.0 <= durable,
            "the log before {} is given back, and durable up to {durable}",
            lsn.0
        );
        self.segs
            .set_needed(self.segs.geometry().segment_of(lsn.0.saturating_sub(1)));
        self.keep_segments();
    }

    /// Bytes the log's files are to take together, two spare ones not counted. What is still
    /// needed is kept all the same; the rest goes at the next look at the files, soon.
    pub fn set_budget(&self, bytes: u64) {
        self.segs.set_budget(bytes);
        self.keep_segments();
    }

    /// From now on (not), a log file's old content is overwritten before the file is used again.
    pub fn set_scrub(&self, on: bool) {
        self.segs.set_scrub(on);
        self.keep_segments();
    }

    /// Appends so much that carries nothing that the last blocks hold nothing else, durably. For
    /// the end of a scrubbed log: the block a restart begins in has to stay as it is.
    pub fn pad(&self) {
        const PADS: usize = 3;
        let body = [0; BLOCK];
        const { assert!(PADS >= 2, "one may begin and end in the last block but one") };
        for _ in 0..PADS {
            self.append(record_kind::PADDING, &[&body]);
        }
        self.flush_to(self.current_lsn());
    }

    /// Overwrites what the files hold before `from`, where a restart is to begin, and behind the
    /// end. Nobody may append meanwhile, and the files are good for nothing but a restart.
    ///
    /// # Errors
    /// `Io`; a part is overwritten.
    pub fn scrub_before(&self, from: Lsn) -> Result<()> {
        let _writer = self.writer.lock();
        let end = self.ring.next();
        assert!(from.0 <= end, "a restart at {}, behind {end}", from.0);
        assert_eq!(end, self.ring.consumed(), "records are not written yet");
        self.segs.scrub(from.0, end)
    }

    /// The oldest position whose file is still kept (not necessarily a record start).
    pub fn oldest_lsn(&self) -> Lsn {
        Lsn(self.segs.geometry().segment_start(self.segs.first()))
    }

    /// An error while no further segment can be prepared and the space left in the prepared
    /// ones is needed for what already runs. Writers ask at the start of a row change. It is
    /// tried again in the background, so this clears itself.
    ///
    /// # Errors
    /// `DiskFull`; `Shortage`, `Io`: it is not space that is missing, and room need not be made.
    #[inline]
    pub fn admission(&self) -> Result<()> {
        let reserve = self.reserve();
        if self.has_left(reserve) {
            return Ok(());
        }
        self.admission_tight(reserve)
    }

    /// Half of what admission keeps for what already runs is gone. Work that can be put off has
    /// to be: the rest is for rolling back, and for the checkpoint that makes room.
    pub fn is_nearly_out(&self) -> bool {
        !self.has_left(self.reserve() / 2)
    }

    /// Five eighths of it are gone. Rollbacks have to wait, too: the rest is for what gives space back as a whole, for
    /// the ends of transactions, and for the checkpoint that makes room.
    pub fn is_short(&self) -> bool {
        !self.has_left(self.reserve() / 8 * 3)
    }

    /// Seven eighths of it are gone. Nothing goes on but the ends of transactions, and the checkpoint that makes room.
    /// Without that rest whoever writes the log would stand still, and everybody with it.
    pub fn is_out(&self) -> bool {
        !self.has_left(self.reserve() / 8)
    }

    /// What admission keeps for what already runs, in bytes.
    #[inline]
    fn reserve(&self) -> u64 {
        let reserve = RESERVE_BYTES.min(self.segs.geometry().segment_payload());
        debug_assert!(reserve >= 8, "its marks are eighths");
        reserve
    }

    /// Are there files for all that is in front of `lsn`? Then to write it waits for no room on the disk.
    pub fn has_files_for(&self, lsn: Lsn) -> bool {
        debug_assert!(lsn <= self.current_lsn(), "{lsn} is not written yet");
        lsn.0 < self.segs.ready_lsn()
    }

    /// The prepared files have room for so many bytes more, and for what was promised.
    #[inline]
    fn has_left(&self, bytes: u64) -> bool {
        self.ring.next() + self.segs.promised() + bytes <= self.segs.ready_lsn()
    }

    /// The caller, who has been admitted, will append so many bytes more without asking again, some time. There is room
    /// for them until it says that they are there ([`unpromise`](Self::unpromise)).
    pub fn promise(&self, bytes: u64) {
        if self.segs.promise(bytes) {
            self.keeper.set();
        }
    }

    /// Promised bytes that are not there yet.
    pub fn promised(&self) -> u64 {
        self.segs.promised()
    }

    /// So many of the promised bytes have been appended, or will not be.
    pub fn unpromise(&self, bytes: u64) {
        self.segs.unpromise(bytes);
    }

    #[cold]
    fn admission_tight(&self, reserve: u64) -> Result<()> {
        // The keeper is behind, or the disk is full, or there is no open file to be had, or
        // something else refuses. In the first case the caller helps;
        // in the others the keeper tries again from time to time.
        if !(self.segs.tight() && self.flusher.running()) {
            self.stats.waits_admission.inc();
            let end = self.ring.next() + self.segs.promised() + reserve;
            let make = || self.segs.make_ready(self.writing_segment(), end);
            waiting(Reason::LogSegment, Of::Nothing, make);
            // The keeper makes the spare ones.
            self.keeper.set();
        }
        if self.has_left(reserve) {
            return Ok(());
        }
        let told = |text| format!("no further file for the redo log: {text}");
        match self.segs.why_tight() {
            None => Ok(()),
            Some(Error::DiskFull(_)) => Err(Error::DiskFull("no space for the redo log".into())),
            Some(Error::Shortage(text)) => Err(Error::Shortage(told(text))),
            Some(Error::Io(text)) => Err(Error::Io(told(text))),
            Some(other) => Err(other),
        }
    }

    /// There was no space for a further file when one was last wanted, or the log stands still because there is none now.
    /// Waits for nobody.
    pub fn is_disk_full(&self) -> bool {
        let stands = self.stands_still.load(Ordering::Relaxed);
        stands || matches!(self.segs.why_tight(), Some(Error::DiskFull(_)))
    }

    /// Why the log grows beyond its budget: a file that is not needed can be neither renamed nor removed. None: it does not.
    pub fn why_files_stay(&self) -> Option<Error> {
        self.segs.why_stays()
    }

    /// Tries now what the background tries from time to time: to have files prepared again, after
    /// space was given back.
    pub fn prepare_now(&self) {
        self.segs.maintain_now(self.writing_segment());
    }

    /// The files that records before `end` go to are there from here on: a write to them finds no full disk, and
    /// does not wait for room. For a log that is written in one piece and that nobody serves: room is not
    /// going to be made.
    ///
    /// # Errors
    /// `DiskFull`, `Io`.
    pub fn prepare_up_to(&self, end: Lsn) -> Result<()> {
        let (from, last) = (
            self.writing_segment(),
            self.segs.geometry().segment_of(end.0),
        );
        assert!(from <= last, "{end} is before the end of the log");
        (from..=last).try_for_each(|segment| self.segs.get_or_prepare(segment).map(drop))?;
        debug_assert!(end.0 < self.segs.ready_lsn(), "{end} is in no file");
        Ok(())
    }

    /// The segment that is being written.
    pub(crate) fn writing_segment(&self) -> u64 {
        self.segs.geometry().segment_of(self.ring.consumed())
    }

    /// What happens when the log cannot be written or synced: called once with the reason.
    /// It must not return in production; when it does (tests), every thread that asks for
    /// durability panics, and nothing is acknowledged any more. Without a hook the process
    /// ends.
    pub fn set_fatal(&self, f: Box<dyn Fn(&str) + Send + Sync>) {
        *self.fatal.write() = Some(Arc::from(f));
    }

    /// Without a file to go on in, the log stands still, and with it everybody who waits for it. While `is_ending`,
    /// which must not wait, nobody is going to make room: after `ms` of that the log fails, as above.
    pub fn set_patience(&self, ms: u64, is_ending: Box<dyn Fn() -> bool + Send + Sync>) {
        assert!(ms > 0, "no patience at all");
        *self.patience.write() = Some((ms, Arc::from(is_ending)));
    }

    /// Counters since the log was opened.
    pub fn stats(&self) -> LogStats {
        let mut s = self.stats.picture();
        s.segments_created = self.segs.created.get();
        s.segments_recycled = self.segs.recycled.get();
        s.segments_removed = self.segs.removed.get();
        s.scrubbed_bytes = self.segs.scrubbed_bytes.get();
        s
    }
}

impl std::fmt::Debug for Log {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "Log(next {}, durable {})",
            self.ring.next(),
            self.durable()
        )
    }
}

/// A log that goes on behind a missing file has lost that file; one that ends before what was
/// durable once has lost what is between.
fn check_end(segs: &Segments, tail: &Tail, beyond: Option<u64>, durable: Lsn) -> Result<()> {
    if let Some(beyond) = beyond {
        let proof = match tail.at_gap {
            true => Some(beyond),
            false => segs.begun_beyond(tail.epoch)?,
        };
        if let Some(there) = proof {
            let (missing, there) = (segments::name_of(segs.ready()), segments::name_of(there));
            let text = format!("redo log: {missing} is missing, but {there} is there");
            return Err(Error::Corrupt(text));
        }
    }
    if tail.end < durable.0 && !ferrite_sync::mutant!("redo.later_segments_ignored") {
        let missing = match tail.at_gap {
            true => format!("; {} is missing", segments::name_of(segs.ready())),
            false => String::new(),
        };
        return Err(Error::Corrupt(format!(
            "redo log: the log ends in {}, but it was durable up to position {} when the last \
             checkpoint was taken: what lies between is lost{missing}",
            segs.geometry().describe(tail.stop),
            durable.0,
        )));
    }
    Ok(())
}

/// The ring's size. Two segments are kept ready behind the one that is being written, for what waits in the ring and for
/// what changes keep back for rollbacks and checkpoints, which is a segment at most: the ring is no larger than a segment,
/// or a full disk is noticed too late. Segments keep the length that the log was created with.
fn ring_bytes(cfg: &LogConfig, segment_bytes: u64) -> usize {
    let most = segment_bytes.max(LEAST_RING_BYTES);
    debug_assert!(cfg.ring_bytes.is_power_of_two(), "checked");
    cfg.ring_bytes.min(1 << most.ilog2())
}

fn check_config(cfg: &LogConfig) -> Result<()> {
    if !cfg.ring_bytes.is_power_of_two() || (cfg.ring_bytes as u64) < MIN_BYTES {
        let text = "the log buffer must be a power of two of at least 64 KiB";
        return Err(Error::BadConfig(text.into()));
    }
    if cfg.segment_bytes % BLOCK as u64 != 0 || cfg.segment_bytes < MIN_BYTES {
        let text = "a log segment must be a multiple of 4 KiB of at least 64 KiB";
        return Err(Error::BadConfig(text.into()));
    }
    Ok(())
}
