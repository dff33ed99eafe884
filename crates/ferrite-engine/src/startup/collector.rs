//! A thread that takes log records apart by page, beside the one that reads the log and analyses it.
//!
//! Records go to it in batches, in the order of the log. Only the pass over the log knows what happened to
//! pages as a whole, so it is the one that makes room when the memory for page changes is full.
//!
//! Memory: that of [`Retained`], and a few batches.
//!
//! Locking: `retained` and `state`, never both. The thread takes records apart with `retained` locked; who makes
//! room has waited until it has nothing to do.

use crate::startup::page_changes::Retained;
use crate::startup::page_fates::PageFates;
use ferrite_redo::LogRecord;
use ferrite_sync::atomic::{AtomicBool, Ordering};
use ferrite_sync::{thread, Arc, Condvar, Mutex};
use ferrite_types::format::record_kind;
use ferrite_types::{Error, Lsn, Result};

/// Bytes of records that are handed over together, at the most.
const BATCH_BYTES: usize = 256 << 10;
/// Batches that wait, at the most.
const MOST_WAITING: usize = 4;

/// Records, copied.
#[derive(Default)]
struct Batch {
    bodies: Vec<u8>,
    /// Where each begins and ends in the log, and where its body ends in `bodies`.
    records: Vec<(Lsn, Lsn, usize)>,
}

impl Batch {
    fn add(&mut self, rec: &LogRecord<'_>) {
        self.bodies.extend_from_slice(rec.body);
        self.records.push((rec.start, rec.end, self.bodies.len()));
    }

    fn each(&self) -> impl Iterator<Item = LogRecord<'_>> {
        let mut from = 0;
        self.records.iter().map(move |(start, end, to)| {
            let body = &self.bodies[from..*to];
            from = *to;
            LogRecord {
                start: *start,
                end: *end,
                kind: record_kind::MINI_TXN,
                body,
            }
        })
    }

    fn clear(&mut self) {
        debug_assert!(!self.records.is_empty(), "nothing was in it");
        self.bodies.clear();
        self.records.clear();
    }
}

#[derive(Default)]
struct State {
    waiting: Vec<Batch>,
    /// Empty ones, to be used again.
    spare: Vec<Batch>,
    /// The thread has one.
    busy: bool,
    failure: Option<Error>,
    over: bool,
}

struct Shared {
    retained: Mutex<Retained>,
    is_full: AtomicBool,
    state: Mutex<State>,
    /// For the thread: a batch, or the end.
    work: Condvar,
    /// For the other side: one batch less.
    less: Condvar,
}

/// See the head of the file.
pub(crate) struct Collector {
    shared: Arc<Shared>,
    thread: Option<thread::JoinHandle<()>>,
    batch: Batch,
    batch_bytes: usize,
    /// Where the last record ends that was taken.
    end: Lsn,
    /// No more is taken.
    over: bool,
}

impl Collector {
    pub(crate) fn start(retained: Retained) -> Collector {
        assert!(retained.resume_at.is_none(), "the memory is full already");
        // What waits is not much compared with what is retained.
        let batch_bytes = (retained.limit_bytes() / 16).clamp(1, BATCH_BYTES);
        let shared = Arc::new(Shared {
            retained: Mutex::new(retained),
            is_full: AtomicBool::new(false),
            state: Mutex::new(State::default()),
            work: Condvar::new(),
            less: Condvar::new(),
        });
        let of_thread = shared.clone();
        let thread = thread::spawn("ferrite-collect", move || of_thread.run());
        Collector {
            shared,
            thread: Some(thread),
            batch: Batch::default(),
            batch_bytes,
            end: Lsn::ZERO,
            over: false,
        }
    }

    /// Takes one record in, unless the memory is full. `fates` knows of the record already.
    ///
    /// # Errors
    /// `Corrupt`: a record, perhaps one of before, cannot be read.
    pub(crate) fn take(&mut self, rec: &LogRecord<'_>, fates: &PageFates) -> Result<()> {
        if self.over || rec.kind != record_kind::MINI_TXN {
            return Ok(());
        }
        assert!(self.end <= rec.start, "{} after {}", rec.start, self.end);
        self.batch.add(rec);
        self.end = rec.end;
        if self.batch.bodies.len() < self.batch_bytes {
            return Ok(());
        }
        self.hand_over()?;
        if self.shared.is_full.load(Ordering::Acquire) {
            self.make_room(fates)?;
        }
        Ok(())
    }

    fn hand_over(&mut self) -> Result<()> {
        let mut state = self.shared.state.lock();
        while state.waiting.len() >= MOST_WAITING && state.failure.is_none() {
            state = self.shared.less.wait(state);
        }
        if let Some(failure) = &state.failure {
            return Err(failure.clone());
        }
        let empty = state.spare.pop().unwrap_or_default();
        debug_assert!(empty.records.is_empty(), "records of before");
        state
            .waiting
            .push(std::mem::replace(&mut self.batch, empty));
        drop(state);
        self.shared.work.notify_one();
        Ok(())
    }

    /// The thread has done all that it was given.
    fn drain(&self) -> Result<()> {
        let mut state = self.shared.state.lock();
        while state.failure.is_none() && (state.busy || !state.waiting.is_empty()) {
            state = self.shared.less.wait(state);
        }
        state.failure.clone().map_or(Ok(()), Err)
    }

    fn make_room(&mut self, fates: &PageFates) -> Result<()> {
        self.drain()?;
        let mut retained = self.shared.retained.lock();
        assert!(self.batch.records.is_empty(), "fewer than were taken");
        retained.make_room(fates, self.end);
        self.over = retained.resume_at.is_some();
        debug_assert!(self.over || !retained.is_full(), "no room was made");
        self.shared.is_full.store(false, Ordering::Release);
        Ok(())
    }

    /// What was collected of all records.
    ///
    /// # Errors
    /// Those of [`Collector::take`].
    pub(crate) fn finish(mut self) -> Result<Retained> {
        if !self.batch.records.is_empty() {
            self.hand_over()?;
        }
        self.drain()?;
        assert!(
            self.batch.records.is_empty(),
            "records that nobody took apart"
        );
        let nothing = Retained::new(1);
        Ok(std::mem::replace(
            &mut *self.shared.retained.lock(),
            nothing,
        ))
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        self.shared.state.lock().over = true;
        self.shared.work.notify_all();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Shared {
    /// Body of the thread.
    fn run(&self) {
        while let Some(mut batch) = self.next() {
            let result = self.take_apart(&batch);
            batch.clear();
            let mut state = self.state.lock();
            assert!(std::mem::take(&mut state.busy), "who took the batch?");
            state.spare.push(batch);
            if let Err(e) = result {
                state.failure.get_or_insert(e);
            }
            drop(state);
            self.less.notify_all();
        }
    }

    /// The oldest batch that waits. None: nobody gives any more.
    fn next(&self) -> Option<Batch> {
        let mut state = self.state.lock();
        while !state.over && state.waiting.is_empty() {
            state = self.work.wait(state);
        }
        if state.over {
            return None;
        }
        assert!(!state.busy, "two batches at a time");
        state.busy = true;
        Some(state.waiting.remove(0))
    }

    fn take_apart(&self, batch: &Batch) -> Result<()> {
        let mut retained = self.retained.lock();
        batch.each().try_for_each(|rec| retained.take(&rec))?;
        if retained.is_full() {
            self.is_full.store(true, Ordering::Release);
        }
        Ok(())
    }
}
