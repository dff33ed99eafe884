//! The redo of pages at start, by several threads: many reads are in flight at a time.
//!
//! What the first pass over the log has collected is the first batch; if it is not all, the rest of
//! the log is read again, a batch at a time, while the threads work on the batch before. In a
//! batch each page is there once, with all its changes in order, and one thread redoes it. The
//! next batch begins when the one before is finished, so a page's changes stay in order.
//!
//! The last batch, which most often is the only one, is put off as far as possible: what its pages lack is given
//! to the buffer pool, which redoes a page when it is read, and sweeps over them behind the start
//! (`ferrite_buffer`'s module `deferred`). Only pages that lack a lot, or that are in memory, are redone at once.
//!
//! Without a frame, because no dirty page can be written (a full disk), nobody goes on at once: once that has lasted for a while
//! the pages that are not in memory are put off, too, in copies, as many as there is memory for. A part of the frames is left
//! free for what reads pages before the page writers of the engine, and who drops snapshots for room, have started.
//!
//! Memory: `limit_bytes` for the first batch, half of it for each of two others. What is put off stays in memory until
//! the sweep is over. What is put off for want of frames: twice `limit_bytes` more, 64 MiB at least.
//!
//! Locking: `state` is a leaf, never held over work.

use crate::startup::page_changes::{PageChanges, PagePieces, Retained};
use crate::startup::page_fates::PageFates;
use crate::startup::progress::Progress;
use crate::state::config::RedoLimits;
use ferrite_buffer::{
    bytes_of_copies, is_for_want_of_a_frame, patiently_unless, Pool, RedoOf, RedoStep, Shares,
};
use ferrite_redo::{Log, LogRecord};
use ferrite_sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use ferrite_sync::{kill_point, thread, time, Arc, Condvar, Mutex};
use ferrite_tree::apply;
use ferrite_types::{Error, Lsn, PageId, Result};
use std::rc::Rc;

/// Between two looks at the clock of who waits, in ms.
const LOOK_MS: u64 = 500;

/// Of a page that lacks more than this, in bytes, the redo is not put off: its reader would wait for long.
const MOST_PUT_OFF_BYTES: usize = 256 << 10;

/// So long the redo of all pages waits for a frame while no page can be written, in us.
const WITHOUT_FRAMES_US: u64 = 2_000_000;
/// One frame of so many is left for what comes behind the redo, up to so many.
const LEFT_SHARE: usize = 16;
const MOST_LEFT: usize = 1024;
/// So many times the memory of a batch may be taken by what is put off because there is none, and so many bytes in any case.
const LIMITS_WITHOUT_FRAMES: usize = 2;
const LEAST_WITHOUT_FRAMES_BYTES: usize = 64 << 20;

/// What the redo of pages has done.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Redone {
    /// Pages that were changed.
    pub pages: u64,
    /// Pages that are redone when they are read.
    pub put_off: u64,
}

/// A batch that is being redone.
struct Batch {
    changes: Arc<PageChanges>,
    pages: Vec<PagePieces>,
    /// The next of `pages` that nobody has taken.
    next: AtomicUsize,
}

#[derive(Default)]
struct State {
    batch: Option<Arc<Batch>>,
    /// Number of the batch, for threads that have finished it.
    number: u64,
    /// Threads that work on it.
    busy: usize,
    failure: Option<ferrite_types::Error>,
    over: bool,
}

/// What a thread has for itself.
struct Own {
    steps: Vec<RedoStep>,
    /// [`Shared::has_waited`].
    has_waited: Rc<dyn Fn() -> bool>,
}

struct Shared {
    pool: Arc<Pool>,
    fates: Arc<PageFates>,
    state: Mutex<State>,
    /// For threads: a batch, or the end.
    work: Condvar,
    /// For the coordinator: nobody is busy.
    idle: Condvar,
    stop: AtomicBool,
    redone: AtomicU64,
    put_off: AtomicU64,
    /// Since when a thread has waited for a frame while no page could be written, in us; 0: none waits.
    without_frames_us: AtomicU64,
    /// Bytes that may be put off for want of a frame.
    may_put_off: AtomicUsize,
    /// Pages of which some were: a page may be in it several times.
    for_frames: Mutex<Vec<PageId>>,
}

/// The threads.
struct Workers {
    shared: Arc<Shared>,
    threads: Vec<thread::JoinHandle<()>>,
}

/// Redoes what pages lack of the log from `from` to `end`, or puts it off.
///
/// # Errors
/// A page or a record that cannot be read; they disagree.
pub(crate) fn run(
    (pool, log): (&Arc<Pool>, &Log),
    first: Retained,
    fates: &Arc<PageFates>,
    (from, end): (Lsn, Lsn),
    limits: RedoLimits,
    progress: &mut Progress,
) -> Result<Redone> {
    assert!(from <= end, "redo from {from} to {end}");
    let Retained {
        changes, resume_at, ..
    } = first;
    let resume = resume_at.unwrap_or(end);
    if changes.pieces.is_empty() && resume >= end {
        return Ok(Redone::default());
    }
    // However late the page writer finds out that it can write none, or how many threads take the last ones at a time.
    let left = pool.reserve((pool.frame_count() / LEFT_SHARE).clamp(1, MOST_LEFT))?;
    debug_assert!(!left.is_empty(), "no frame is left");
    let workers = Workers::start(pool, fates, limits);
    let last = |is_last| is_last && limits.puts_off;
    workers.submit(changes, from, last(resume >= end), progress)?;
    progress.redoing((from, resume), end);
    let mut next = PageChanges::default();
    let mut begun = resume;
    log.scan(resume, end, &mut |rec| {
        let before = next.pieces.len();
        next.add(&rec, &mut |op| fates.is_missing(op.page, op.index, rec.end))?;
        if next.memory() > limits.limit_bytes / 2 {
            if ferrite_sync::mutant!("recovery.batch_edge_lost") {
                next.pieces.truncate(before);
            }
            workers.submit(std::mem::take(&mut next), begun, false, progress)?;
            progress.redoing((begun, rec.end), end);
            begun = rec.end;
        }
        look_at(&rec, progress, &workers);
        Ok(())
    })?;
    if !next.pieces.is_empty() {
        workers.submit(next, begun, last(true), progress)?;
        progress.redoing((begun, end), end);
    }
    workers.wait(progress)?;
    drop(left);
    let shared = &workers.shared;
    // Else nobody would read them while the server is idle.
    let mut behind = std::mem::take(&mut *shared.for_frames.lock());
    behind.sort_unstable();
    behind.dedup();
    pool.sweep_last(&behind);
    Ok(Redone {
        pages: shared.redone.load(Ordering::Relaxed),
        put_off: shared.put_off.load(Ordering::Relaxed),
    })
}

/// What may be put off for want of frames, in bytes.
fn without_frames_bytes(limit_bytes: usize) -> usize {
    let most = limit_bytes.saturating_mul(LIMITS_WITHOUT_FRAMES);
    most.max(LEAST_WITHOUT_FRAMES_BYTES)
}

/// Does the redo fail because of that page alone?
fn is_of_a_page(e: &Error) -> bool {
    matches!(e, Error::Corrupt(_) | Error::Io(_)) && !is_for_want_of_a_frame(e)
}

fn look_at(rec: &LogRecord<'_>, progress: &mut Progress, workers: &Workers) {
    if progress.is_due(rec.end) {
        workers.tell(progress);
    }
}

impl Workers {
    fn start(pool: &Arc<Pool>, fates: &Arc<PageFates>, limits: RedoLimits) -> Workers {
        assert!(limits.threads > 0, "nobody redoes pages");
        let shared = Arc::new(Shared {
            pool: pool.clone(),
            fates: fates.clone(),
            state: Mutex::new(State::default()),
            work: Condvar::new(),
            idle: Condvar::new(),
            stop: AtomicBool::new(false),
            redone: AtomicU64::new(0),
            put_off: AtomicU64::new(0),
            without_frames_us: AtomicU64::new(0),
            may_put_off: AtomicUsize::new(without_frames_bytes(limits.limit_bytes)),
            for_frames: Mutex::new(Vec::new()),
        });
        let one = |_| {
            let shared = shared.clone();
            thread::spawn("ferrite-redo", move || shared.run())
        };
        let threads = (0..limits.threads).map(one).collect();
        Workers { shared, threads }
    }

    /// Waits for the batch before and hands out this one. No record in it begins before `start`. What can
    /// be put off is, if it is the last one.
    fn submit(
        &self,
        mut changes: PageChanges,
        start: Lsn,
        is_last: bool,
        progress: &mut Progress,
    ) -> Result<()> {
        let first = changes.pieces.first().map(|p| p.start);
        assert!(first.is_none_or(|f| f >= start), "{first:?} before {start}");
        if !ferrite_sync::mutant!("recovery.batch_not_awaited") {
            self.wait(progress)?;
        }
        let mut pages = changes.in_order(self.shared.pool.store(), &self.shared.fates);
        let changes = Arc::new(changes);
        if is_last {
            self.shared.put_off_all(&changes, &mut pages);
        }
        kill_point!("recovery.batch_begins");
        // Before anybody has a page of it, and after everybody has finished with the last one.
        self.shared.pool.redo_from(start);
        let mut state = self.shared.state.lock();
        state.batch = Some(Arc::new(Batch {
            changes,
            pages,
            next: AtomicUsize::new(0),
        }));
        state.number += 1;
        state.busy = self.threads.len();
        drop(state);
        self.shared.work.notify_all();
        Ok(())
    }

    /// Nobody works on a batch any more.
    fn wait(&self, progress: &mut Progress) -> Result<()> {
        loop {
            let mut state = self.shared.state.lock();
            if state.busy == 0 || state.failure.is_some() {
                state.batch = None;
                return state.failure.clone().map_or(Ok(()), Err);
            }
            drop(self.shared.idle.wait_timeout_ms(state, LOOK_MS));
            if progress.is_time() {
                self.tell(progress);
            }
        }
    }

    /// A line in the error log.
    fn tell(&self, progress: &mut Progress) {
        let share = self.shared.state.lock().batch.as_ref().map(|batch| {
            let taken = batch.next.load(Ordering::Relaxed).min(batch.pages.len());
            taken as f64 / batch.pages.len().max(1) as f64
        });
        let redone = self.shared.redone.load(Ordering::Relaxed);
        progress.tell_pages(share.unwrap_or(1.0), redone);
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::SeqCst);
        self.shared.state.lock().over = true;
        self.shared.work.notify_all();
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

impl Shared {
    /// Body of a thread.
    fn run(self: &Arc<Self>) {
        let mut done = 0;
        let same = self.clone();
        let mut own = Own {
            steps: Vec::new(),
            has_waited: Rc::new(move || same.has_waited()),
        };
        loop {
            let batch = {
                let mut state = self.state.lock();
                while !state.over && (state.number == done || state.batch.is_none()) {
                    state = self.work.wait(state);
                }
                if state.over {
                    return;
                }
                done = state.number;
                state.batch.clone()
            };
            let result = batch.map_or(Ok(()), |batch| self.redo_batch(&batch, &mut own));
            let mut state = self.state.lock();
            if let Err(e) = result {
                self.stop.store(true, Ordering::SeqCst);
                state.failure.get_or_insert(e);
            }
            state.busy = state.busy.saturating_sub(1);
            let idle = state.busy == 0 || state.failure.is_some();
            drop(state);
            if idle {
                self.idle.notify_all();
            }
        }
    }

    /// Pages of the batch, until there is none left.
    fn redo_batch(&self, batch: &Batch, own: &mut Own) -> Result<()> {
        while !self.stop.load(Ordering::Relaxed) {
            let nth = batch.next.fetch_add(1, Ordering::Relaxed);
            let Some(of) = batch.pages.get(nth) else {
                return Ok(());
            };
            self.redo_page(&batch.changes, of, own)?;
        }
        Ok(())
    }

    /// Puts off what can be; the others of `pages` stay. Nobody works on a batch.
    fn put_off_all(&self, changes: &Arc<PageChanges>, pages: &mut Vec<PagePieces>) {
        let mut sweep = Vec::with_capacity(pages.len());
        let all = pages.len();
        pages.retain(|of| {
            let stays = of.bytes > MOST_PUT_OFF_BYTES || !self.put_off(changes, of, Shares::All);
            if !stays {
                sweep.push(of.page);
            }
            stays
        });
        assert_eq!(sweep.len() + pages.len(), all, "pages of the last batch");
        kill_point!("recovery.redo_put_off");
        self.put_off
            .fetch_add(sweep.len() as u64, Ordering::Relaxed);
        self.pool.sweep_in_order(sweep, changes.clone());
    }

    /// The page is redone when somebody reads it. False: it is in memory, or what it lacks cannot be put off.
    fn put_off(&self, changes: &Arc<PageChanges>, of: &PagePieces, shares: Shares) -> bool {
        if of.at_once {
            return false;
        }
        let redo = RedoOf {
            all: changes.clone(),
            nths: of.needed(),
            span: of.span,
            creates: of.creates,
        };
        self.pool
            .put_off_redo((of.page, of.index), self.fates.blob(of.page), redo, shares)
    }

    fn redo_page(&self, changes: &Arc<PageChanges>, of: &PagePieces, own: &mut Own) -> Result<()> {
        let steps = &mut own.steps;
        let page = of.page;
        steps.clear();
        steps.extend(of.needed().map(|nth| {
            let p = changes.piece(nth);
            debug_assert!(p.page == page, "{page} has a piece of {}", p.page);
            RedoStep {
                start: p.start,
                end: p.end(),
                creates: p.creates(),
            }
        }));
        let applied = match self.redo_with_frame(changes, of, own) {
            // The database opens without it: statements that need the page fail. Of a device, one bad sector.
            Err(e) if is_of_a_page(&e) && self.put_off(changes, of, Shares::Nothing) => 0,
            other => other?,
        };
        let steps = own.steps.len();
        assert!(applied <= steps, "{applied} of {steps} steps");
        if applied > 0 {
            self.redone.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Applies the steps, in a frame that is waited for; or puts the page off for want of one. Gives how many were applied.
    fn redo_with_frame(
        &self,
        changes: &Arc<PageChanges>,
        of: &PagePieces,
        own: &Own,
    ) -> Result<usize> {
        let (blob, from) = (self.fates.blob(of.page), of.needed().start);
        let redo = || {
            self.pool
                .redo(of.page, blob, &own.steps, &mut |nth, bytes| {
                    apply::apply_all(changes.ops_of(changes.piece(from + nth)), bytes)
                })
        };
        let redone = match self.lacks_frames() {
            true => Err(Error::Interrupted),
            false => patiently_unless(own.has_waited.clone(), redo),
        };
        match redone {
            Err(Error::Interrupted) if self.put_off_for_frames(changes, of) => Ok(0),
            // It is in memory, or has to come: one of the frames that were left does.
            Err(Error::Interrupted) => redo(),
            other => other,
        }
    }

    /// Has the redo waited long enough for a frame? Asked while one of its threads waits, and no page can be written.
    fn has_waited(&self) -> bool {
        let now_us = time::now_us();
        let since_us = &self.without_frames_us;
        let first = since_us.compare_exchange(0, now_us, Ordering::Relaxed, Ordering::Relaxed);
        first.is_err_and(|since_us| now_us.saturating_sub(since_us) >= WITHOUT_FRAMES_US)
    }

    /// Is there no frame, for so long that it is not waited for any more?
    fn lacks_frames(&self) -> bool {
        let since_us = self.without_frames_us.load(Ordering::Relaxed);
        if since_us == 0 {
            return false;
        }
        // Not how many are clean: that is a walk over all of them.
        if self.pool.write_failure().is_some() {
            return time::now_us().saturating_sub(since_us) >= WITHOUT_FRAMES_US;
        }
        self.without_frames_us.store(0, Ordering::Relaxed);
        false
    }

    /// As [`Shared::put_off`], for want of a frame, as long as there is memory for that.
    fn put_off_for_frames(&self, changes: &Arc<PageChanges>, of: &PagePieces) -> bool {
        let bytes = bytes_of_copies(of.needed().len(), of.bytes) + size_of::<PageId>();
        let less = |left: usize| left.checked_sub(bytes);
        let (may, relaxed) = (&self.may_put_off, Ordering::Relaxed);
        if may.fetch_update(relaxed, relaxed, less).is_err() {
            return false;
        }
        let is_put_off = self.put_off(changes, of, Shares::Nothing);
        match is_put_off {
            true => {
                self.put_off.fetch_add(1, relaxed);
                self.for_frames.lock().push(of.page);
            }
            false => drop(may.fetch_add(bytes, relaxed)),
        }
        is_put_off
    }
}

/// A page writer for the redo of pages and for the reading of the dictionary after it, in case the pool is smaller than the work: all frames may be dirty, and nobody else writes
/// pages before [`Engine::start`]. It ends with the value.
pub(crate) struct RedoWriter {
    pool: Arc<Pool>,
    thread: Option<thread::JoinHandle<()>>,
}

impl RedoWriter {
    pub(crate) fn start(pool: &Arc<Pool>) -> RedoWriter {
        let writer = pool.clone();
        let thread = thread::spawn("ferrite-redo-wr", move || writer.run_writer());
        RedoWriter {
            pool: pool.clone(),
            thread: Some(thread),
        }
    }
}

impl Drop for RedoWriter {
    fn drop(&mut self) {
        self.pool.stop_writer();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        self.pool.restart_writer();
    }
}

#[cfg(test)]
#[path = "page_redo_tests.rs"]
mod tests;
