//! The page writer on a full disk: how many pages it tries at a time, and whether changes are refused.
//!
//! Changes are refused ([`Pool::refusal`]) from a write that failed on, and when the files are
//! shorter than they should be and get no longer: what was let in is to be written out, and
//! rollbacks, which move pages, are to find places for them. Deletions make room in the end: they
//! are let in as long as the free space has places for all pages that are dirty and a few more, so
//! that a database that has filled its disk is not stuck. Writers look again and again, so
//! no refusal lasts much longer than its reason.
//!
//! Pages that are not in memory and lack changes (`change_buffer`, `deferred`) need places, too. One that is on disk
//! leaves its old place when it is written: a few places do for all of these, one after the other, as long as no more
//! of them are read at a time, and each is written before the next. So that is what `merge_kept` does here: it reads
//! what a look at the room has found places for beside what deletions need, and a few pages more only if recovery, or
//! the length of the log, waits for them. If it read none, nothing would ever come of the room that they leave.
//!
//! Who merges all of them, for a snapshot or at a shutdown ([`Pool::room_for_merging`]), does so as long as there is room
//! beside all that, and as pages leave places. Under a snapshot, or a backup, none becomes free: then there have to be places
//! for all of them at once. Of it nothing depends on getting done.
//!
//! An error that is no lack of room (`is_failing`) is over when a page was written, or when none is dirty, and not because
//! one of several writers had nothing to write: that one tries a page.
//!
//! A look goes over all frames and over the free space. One writer looks at a time, and what it has found holds for some
//! time, in proportion to how long it took.
//!
//! Invariant: `trial` is at least 1. Locking: `next_look_us` is tried, never waited for, and above the store's space lock;
//! `failure` is a leaf.

use crate::pool::Pool;
use crate::write::WriteBatch;
use ferrite_store::Ahead;
use ferrite_sync::atomic::{AtomicBool, Ordering};
use ferrite_sync::time;
use ferrite_types::format::{Codec, Packing};
use ferrite_types::{Error, Lsn, Result};

/// After a failure so many dirty pages are tried at a time: the frames of readers have to come from
/// clean ones. With each failure it is half as many, down to one page, which may find room where two
/// do not, and leaves its old place; with each success twice as many.
const TRIAL_PAGES: usize = 8;
/// Pages that may be read for the changes that they lack, between two looks at the room, if there are so many places more
/// than deletions need.
const MERGED_PAGES: usize = 64;
const _: () = assert!(TRIAL_PAGES <= MERGED_PAGES);
/// These take no more than one part in so many of the frames, half of what patient threads leave to others.
const MERGED_SHARE: usize = 64;
/// Who merges all reads so many pages, and writes them: half of what the files have ahead of need.
const ALL_AT_A_TIME: usize = 128;
/// ... and no more than one part in so many of the frames.
const ALL_SHARE: usize = 8;
/// For so many, or fewer, it looks for room where the files get no longer, so that it need not look each time.
const LOOKED_FOR: [usize; 3] = [4096, 512, MERGED_PAGES];
/// What a look has found holds so many times as long as the look took ...
const LOOK_FACTOR: u64 = 10;
/// ... but no longer than that, in us: a process that is stopped amid one must not refuse changes for an hour.
const LOOK_MOST_US: u64 = 1_000_000;

/// What a look at the room has found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Room {
    /// Places that what is to be written needs.
    needed: usize,
    /// There are so many, and some for deletions.
    is_enough: bool,
    /// No page is dirty.
    is_clean: bool,
}

/// What is to be written.
#[derive(Clone, Copy)]
struct ToWrite {
    /// Places that it needs at the same time.
    places: usize,
    /// Pages that are dirty.
    dirty: usize,
}

/// How many pages may be read for the changes that they lack.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct MergeAllowance {
    /// Whichever they are.
    pub(crate) any: usize,
    /// Of those that recovery or the log waits for: no fewer.
    pub(crate) pressing: usize,
}

impl Pool {
    /// So many pages were written, or could not be.
    pub(crate) fn note_trial(&self, tried: usize, written: bool) {
        let trial = &self.writer.trial;
        match (tried, written) {
            (0, _) => {}
            (_, true) => {
                let more = trial.load(Ordering::Relaxed).saturating_mul(2);
                trial.store(more, Ordering::Relaxed);
            }
            (n, false) => {
                trial.store((n / 2).clamp(1, TRIAL_PAGES), Ordering::Relaxed);
            }
        }
        debug_assert!(
            self.most_copied() > 0,
            "{tried} pages, and none the next time"
        );
    }

    /// What was to be written was, or there was nothing: may there be more of it? While changes are refused
    /// no page gets dirty: room alone must end that. `asks`: as of before it was asked for more room. `written`: so many pages
    /// were, all of them.
    pub(crate) fn note_room(&self, grown: &Result<Ahead>, asks: u64, written: usize) {
        if matches!(grown, Ok(Ahead::Busy)) {
            return;
        }
        // Somebody else may have in his hands what could not be written.
        let others = written == 0 && self.is_failing();
        // Free space enough, and pages find hardly any: that one did says little of the next.
        let tight = self.is_tight() && matches!(grown, Ok(Ahead::Enough));
        if !others && !tight && grown.is_ok() {
            self.note_success();
            return self.answer(asks);
        }
        let Some(room) = self.look_for_room(asks) else {
            // What was found last holds.
            return;
        };
        debug_assert!(asks <= self.asks(), "nobody has asked");
        match grown {
            _ if others && !room.is_clean => {}
            Err(e) if room.is_enough => self.note_little(e),
            Err(e) => self.note_failure(e),
            Ok(_) if tight && !room.is_enough && room.needed > 0 => {}
            Ok(_) => self.note_success(),
        }
        self.answer(asks);
    }

    /// Could all that is to be written be written now, and more? None: somebody else is looking, or has a short time ago,
    /// and nobody has asked since.
    fn look_for_room(&self, asks: u64) -> Option<Room> {
        let mut next_us = self.writer.next_look_us.try_lock()?;
        let begun_us = time::now_us();
        if begun_us < *next_us && self.has_looked(asks) {
            return None;
        }
        let room = self.find_room(self.to_write());
        let now_us = time::now_us();
        *next_us = next_look_us(begun_us, now_us);
        Some(room)
    }

    /// There may be more room now: it is looked for at once. Gives what [`Pool::has_looked`] takes.
    pub fn look_soon(&self) -> u64 {
        let ask = self.writer.asks.fetch_add(1, Ordering::SeqCst) + 1;
        self.wake_writer();
        ask
    }

    /// Has a writer that began after that looked for room, or tried to write and failed, and is known what came of it?
    pub fn has_looked(&self, ask: u64) -> bool {
        debug_assert!(ask <= self.asks(), "nobody has asked");
        self.writer.answered.load(Ordering::SeqCst) >= ask
    }

    pub(crate) fn asks(&self) -> u64 {
        self.writer.asks.load(Ordering::SeqCst)
    }

    pub(crate) fn answer(&self, asks: u64) {
        assert!(asks <= self.asks(), "nobody has asked");
        self.writer.answered.fetch_max(asks, Ordering::SeqCst);
    }

    /// Is there room for that, and for a few pages more? A walk over the free space. Says how many may be merged.
    #[cold]
    fn find_room(&self, of: ToWrite) -> Room {
        let needed = of.places;
        let has = |pages: usize| self.store.has_room_for(pages as u64);
        let merges = has(needed + MERGED_PAGES);
        let may_merge = if merges { MERGED_PAGES } else { 0 };
        self.writer.may_merge.store(may_merge, Ordering::Relaxed);
        Room {
            needed,
            is_enough: merges || has(needed),
            is_clean: of.dirty == 0,
        }
    }

    /// What is to be written: a walk over all frames. Of the pages that lack changes all that are nowhere on disk, and of the
    /// others as many as are read at a time.
    #[cold]
    fn to_write(&self) -> ToWrite {
        // Before the dirty ones, which they become: counted twice rather than not at all.
        let (waiting, nowhere) = (self.changes.pages(), self.changes.pages_from_log());
        let on_disk = waiting.saturating_sub(nowhere);
        let dirty = self.dirty_pages();
        ToWrite {
            places: dirty + nowhere + on_disk.min(TRIAL_PAGES),
            dirty,
        }
    }

    /// Is there so little room that pages are merged with care?
    pub(crate) fn is_short_of_room(&self) -> bool {
        let is = |flag: &AtomicBool| flag.load(Ordering::Relaxed);
        is(&self.writer.disk_full) || is(&self.writer.little_room) || self.is_tight()
    }

    /// How many pages may be read now for the changes that they lack; None: there is room, for as many as one likes. What
    /// this gives is taken: it is for one round, and each of them is to be written before the next
    /// ([`Pool::write_merged`]).
    pub(crate) fn allow_merges(&self) -> Option<MergeAllowance> {
        if !self.is_short_of_room() {
            return None;
        }
        // If they cannot be written after all, readers lack no more than these frames.
        let most = self.most_copied().min(self.frames.limit() / MERGED_SHARE);
        let any = self.writer.may_merge.swap(0, Ordering::Relaxed).min(most);
        let pressing = any.max(most.min(TRIAL_PAGES));
        assert!(pressing > 0, "changes are never merged");
        Some(MergeAllowance { any, pressing })
    }

    /// So many pages may be read for the changes that they lack by who merges all that begins before `lsn`, until it asks again.
    /// No more than [`Pool::most_merged`] at a time, which are written before the next.
    ///
    /// # Errors
    /// Why there is room for none, `DiskFull` or `Io`: none should be read.
    pub(crate) fn room_for_merging(&self, lsn: Lsn) -> Result<usize> {
        let why = match self.store.grow_ahead() {
            Ok(_) => return Ok(ALL_AT_A_TIME),
            Err(Error::DiskFull(text)) => {
                Error::DiskFull(format!("no room for pages that lack changes: {text}"))
            }
            Err(e) => e,
        };
        if self.write_failure().is_some() {
            return Err(why);
        }
        // What those have left that were written.
        self.log.flush_to(self.log.current_lsn());
        self.store.reclaim(self.log.durable_lsn());
        let needed = self.to_write().places;
        // Those may be longer than the usual ones, and what deletions need is not for them.
        let has = |pages: &usize| self.store.has_room_for((needed + 2 * pages) as u64);
        if !self.store.keeps_places() {
            return LOOKED_FOR.into_iter().find(has).ok_or(why);
        }
        // Each page takes a place for good: all or none, or deletions would find no places in the end.
        let all = self.changes.count_older_than(lsn).max(1);
        match has(&all) {
            // It looks again halfway, or earlier, lest they are longer than that, or deletions take what there was.
            true => Ok(all.div_ceil(2).min(LOOKED_FOR[0])),
            false => Err(why),
        }
    }

    /// Who merges all reads so many pages at a time.
    pub(crate) fn most_merged(&self) -> usize {
        let (most, share) = match self.is_short_of_room() {
            true => (MERGED_PAGES, MERGED_SHARE),
            false => (ALL_AT_A_TIME, ALL_SHARE),
        };
        let frames = self.frames.limit() / share;
        most.min(self.most_copied()).min(frames).max(1)
    }

    /// Why dirty pages find no place, if they do not: a write of some has failed of late, and there are some.
    pub fn why_pages_wait(&self) -> Option<Error> {
        let why = self.write_failure()?;
        // Without that it may only be that there is no room for more of them.
        (self.is_tight() && self.dirty_pages() > 0).then_some(why)
    }

    /// Pages that are copied into a batch before it is written.
    pub(crate) fn most_copied(&self) -> usize {
        let most = self.writer.trial.load(Ordering::Relaxed);
        assert!(most > 0, "no page is tried");
        most
    }

    /// Pages could not be written the last time, and not for want of room.
    pub(crate) fn is_failing(&self) -> bool {
        let failure = self.write_failure();
        failure.is_some_and(|e| !matches!(e, Error::DiskFull(_)))
    }

    /// Of late pages could not be written.
    pub(crate) fn is_tight(&self) -> bool {
        self.most_copied() <= TRIAL_PAGES
    }

    /// As [`Pool::copy_into`]; few pages after none could be written.
    pub(crate) fn copy_trial(&self, f: u32, batch: &mut WriteBatch) -> bool {
        batch.pages() < self.most_copied() && self.copy_into(f, batch)
    }

    /// Writes the batch, and notes what came of it.
    ///
    /// # Errors
    /// As [`Pool::write_out`].
    pub(crate) fn write_trial(&self, batch: &mut WriteBatch) -> Result<usize> {
        let tried = batch.pages();
        let written = self.write_out(batch);
        self.note_trial(tried, written.is_ok());
        written.inspect_err(|e| self.note_failure(e))
    }

    pub(crate) fn note_failure(&self, error: &Error) {
        self.writer.disk_full.store(true, Ordering::SeqCst);
        *self.writer.failure.lock() = Some(error.clone());
    }

    fn note_little(&self, error: &Error) {
        debug_assert!(
            !matches!(error, Error::Interrupted),
            "no reason why files do not grow"
        );
        *self.writer.failure.lock() = Some(error.clone());
        self.writer.little_room.store(true, Ordering::SeqCst);
        self.writer.disk_full.store(false, Ordering::SeqCst);
    }

    fn note_success(&self) {
        let was_little = self.writer.little_room.swap(false, Ordering::SeqCst);
        if self.writer.disk_full.swap(false, Ordering::SeqCst) || was_little {
            *self.writer.failure.lock() = None;
        }
    }

    /// The reason why changes are refused at the moment, if so. `deletes`: those that make room in the
    /// end.
    pub fn refusal(&self, deletes: bool) -> Option<Error> {
        if deletes || !self.writer.little_room.load(Ordering::Relaxed) {
            return self.write_failure();
        }
        self.writer.failure.lock().clone()
    }

    /// The reason why pages cannot be written at the moment, if so.
    pub fn write_failure(&self) -> Option<Error> {
        if !self.writer.disk_full.load(Ordering::Relaxed) {
            return None;
        }
        self.writer.failure.lock().clone()
    }

    /// How a page is packed that is to be packed like that. With hardly any room left what is shorter
    /// may find some, whatever the table's setting.
    pub(crate) fn packing_with(&self, wish: Packing) -> Packing {
        match wish.codec == Codec::None && self.is_tight() {
            true => Packing::of(Codec::Lz4),
            false => wish,
        }
    }
}

/// When there may be the next look, us, after one from and to these times.
fn next_look_us(begun_us: u64, now_us: u64) -> u64 {
    debug_assert!(begun_us <= now_us, "{begun_us} to {now_us}");
    now_us + ((now_us - begun_us) * LOOK_FACTOR).min(LOOK_MOST_US)
}

#[cfg(test)]
#[path = "room_tests.rs"]
mod tests;
