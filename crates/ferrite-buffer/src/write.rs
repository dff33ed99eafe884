//! Write-back: dirty pages are copied into a batch under shared latches, written as blobs to
//! new places with one sync, and then said to live there by one map-delta record.
//!
//! Stages of a batch, and what is on disk if we die after each:
//!
//! | stage | on disk |
//! | --- | --- |
//! | copied | nothing |
//! | written | blobs nobody points to; their space is free again |
//! | synced | the same |
//! | delta appended | the same, while the delta is not durable |
//! | delta durable | the pages live at their new places; the old ones may be reused now |
//!
//! The delta follows every record the blobs contain in the log, so a durable delta implies
//! that those are durable: the log needs no flush before the blobs are written.

use crate::dirty_queue::First;
use crate::frame::Kind;
use crate::pool::Pool;
use crate::writer_state::Watch;
use ferrite_store::{Batch, Location, Placed, Store, StoredBlob};
use ferrite_sync::atomic::Ordering;
use ferrite_sync::{kill_point, Arc};
use ferrite_types::format::record_kind;
use ferrite_types::{Lsn, PageId, Result, PAGE_BYTES};

/// Longest pause of the writer thread, in microseconds ...
const PAUSE_US: u64 = 20_000;
/// ... and once so many rounds in a row had no work: an idle server hardly wakes its threads. Who needs
/// frames or room wakes the writer.
const IDLE_ROUNDS: u32 = 25;
const IDLE_PAUSE_US: u64 = 200_000;
const _: () = assert!(IDLE_PAUSE_US > PAUSE_US);
/// Retired bytes that make the writer ask for a log flush so that they can be reused, rather than
/// that the files grow by them: this share of what is in use ...
const RETIRED_SHARE: u64 = 8;
/// ... within these bounds.
const RETIRED_LEAST_BYTES: u64 = 8 << 20;
const RETIRED_MOST_BYTES: u64 = 64 << 20;

/// One page of a batch between copy and completion.
pub(crate) struct Copied {
    pub(crate) page: PageId,
    /// Of this copy alone: a batch may have a page, and another one that has got the id of it since.
    pub(crate) ticket: u64,
    pub(crate) lsn: Lsn,
    /// Any change after the copy lies at or above this position.
    pub(crate) next_rec: Lsn,
    /// Its changes alone are written.
    pub(crate) is_delta: bool,
    /// Length of the page, not packed, if it is written as a whole.
    pub(crate) whole_bytes: usize,
    /// What was written, if it was the whole page.
    pub(crate) whole: Option<StoredBlob>,
}

/// A batch being filled: the store's buffer and what it holds.
pub(crate) struct WriteBatch {
    pub(crate) blobs: Batch,
    pub(crate) copied: Vec<Copied>,
    delta: Vec<u8>,
    placed: Vec<Placed>,
    /// One page as it is written.
    pub(crate) tidied: Box<[u8]>,
    /// The changes of one page.
    pub(crate) changes: Vec<u8>,
    /// Pages of this and earlier batches whose tickets could not be released: their latches were
    /// wanted by others.
    late: Vec<Late>,
}

impl WriteBatch {
    /// Pages in it.
    pub(crate) fn pages(&self) -> usize {
        self.copied.len()
    }
}

/// A page that was written, whose frame still has the copy's ticket.
struct Late {
    copied: Copied,
    written: bool,
}

impl Pool {
    pub(crate) fn new_write_batch(&self) -> WriteBatch {
        WriteBatch {
            blobs: self.store.new_batch(),
            copied: Vec::new(),
            delta: Vec::new(),
            placed: Vec::new(),
            tidied: vec![0; PAGE_BYTES].into(),
            changes: Vec::new(),
            late: Vec::new(),
        }
    }

    /// Writes what the batch holds and completes it. Returns pages written.
    ///
    /// # Errors
    /// `DiskFull` or `Io`: the pages stay dirty where they are.
    pub(crate) fn write_out(&self, batch: &mut WriteBatch) -> Result<usize> {
        self.release_late(batch);
        let count = batch.copied.len();
        assert!(
            batch.blobs.pages() == count,
            "{} blobs",
            batch.blobs.pages()
        );
        if count == 0 {
            return Ok(0);
        }
        batch.placed.clear();
        // As they will be placed.
        batch.copied.sort_by_key(|copied| copied.is_delta);
        let result = (self.store).write_batch(&mut batch.blobs, &mut batch.placed);
        match &result {
            Ok(()) => {
                let placed = batch.placed.len();
                assert!(placed == count, "{placed} of {count} pages are placed");
                kill_point!("buffer.after_blobs_synced");
                let mut deltas = 0;
                for (placed, copied) in batch.placed.iter().zip(&mut batch.copied) {
                    let (lsn, crc) = (copied.lsn, placed.crc);
                    match placed.location.is_delta() {
                        true => deltas += 1,
                        false => copied.whole = Some(StoredBlob { lsn, crc }),
                    }
                }
                self.stats.deltas_written.add(deltas);
                self.relocate(batch);
                self.stats.batches.inc();
                self.stats.pages_written.add(count as u64);
                self.stats.bytes_written.add(batch.blobs.len() as u64);
            }
            Err(_) => self.requeue(batch),
        }
        let written = result.is_ok();
        let done = batch.copied.drain(..);
        batch
            .late
            .extend(done.map(|copied| Late { copied, written }));
        self.release_late(batch);
        batch.blobs.clear();
        result.map(|()| count)
    }

    /// The pages live at their new places from here on.
    fn relocate(&self, batch: &mut WriteBatch) {
        let map = self.map_lock.lock();
        let mut moved: Vec<(PageId, Location)> = Vec::with_capacity(batch.placed.len());
        let mut frames: Vec<u32> = Vec::with_capacity(batch.placed.len());
        let mut written: Vec<(PageId, Lsn)> = Vec::with_capacity(batch.placed.len());
        for (placed, copied) in batch.placed.iter().zip(&batch.copied) {
            assert!(placed.page == copied.page, "{} is placed", placed.page);
            if placed.location.is_delta() && ferrite_sync::mutant!("buffer.lose_delta") {
                self.store.free_now(placed.location);
                continue;
            }
            if let Some(f) = self.ticketed_frame(copied) {
                moved.push((placed.page, placed.location));
                frames.push(f);
                // What the blob has; the page in memory may have more by now.
                let lsn = match ferrite_sync::mutant!("buffer.lsn_of_changed_page") {
                    true => self.frame(f).lsn(),
                    false => copied.lsn,
                };
                written.push((placed.page, lsn));
            } else {
                // Freed while it was written: nobody will ever point there.
                self.store.free_now(placed.location);
            }
        }
        if moved.is_empty() {
            return;
        }
        batch.delta.clear();
        let lost = usize::from(ferrite_sync::mutant!("buffer.lose_map_delta"));
        Store::encode_map_delta(&moved[..moved.len() - lost], &mut batch.delta);
        let at = self.log.append(record_kind::MAP_DELTA, &[&batch.delta]);
        // A durable delta implies that what the blobs contain is durable.
        debug_assert!(
            batch.copied.iter().all(|c| c.lsn <= at.start),
            "a page moves at {:?}, before its last change",
            at.start
        );
        kill_point!("buffer.after_delta_appended");
        // Behind the delta, and before anything else about these pages: the map lock is held.
        batch.delta.clear();
        Store::encode_page_lsns(&written, &mut batch.delta);
        self.log.append(record_kind::PAGE_LSNS, &[&batch.delta]);
        // Frames are replaced and freed under the map lock.
        for ((page, location), f) in moved.into_iter().zip(frames) {
            self.set_place(f, page, location, at.end);
        }
        drop(map);
    }

    /// The page in that frame lives there from here on, or has that delta; the record that says so
    /// ends at `moved`. Caller holds the map lock.
    fn set_place(&self, f: u32, page: PageId, location: Location, moved: Lsn) {
        let frame = self.frame(f);
        let old = frame.home();
        assert!(frame.page() == page, "{page} moves in another's frame");
        if location.is_delta() {
            // The home is the delta's base: who has the ticket alone moves the page.
            assert!(!old.is_none(), "{page} has a delta and no blob");
            let before = self.store.swap_delta(page, location);
            self.store.retire(before, moved);
            return;
        }
        assert!(old != location, "{page} moves to where it is");
        frame.set_home(location);
        self.store.retire(old, moved);
        let kept = ferrite_sync::mutant!("buffer.stale_delta_kept")
            || ferrite_sync::mutant!("store.delta_of_other_base");
        if !kept {
            let delta = self.store.swap_delta(page, Location::NONE);
            self.store.retire(delta, moved);
        }
    }

    /// The frame that holds the page now, if it is the page of which the copy is.
    fn ticketed_frame(&self, copied: &Copied) -> Option<u32> {
        let f = self.store.directory().get(copied.page).as_frame()?;
        self.has_ticket_of(f, copied).then_some(f)
    }

    fn has_ticket_of(&self, f: u32, copied: &Copied) -> bool {
        assert!(copied.ticket > 0, "{} is copied without one", copied.page);
        self.frame(f).ticket.load(Ordering::SeqCst) == copied.ticket
    }

    /// Pages unchanged since the copy are clean now; the others stay dirty from then on. The writer
    /// waits for no latch here: a reader may hold one while it waits for a frame, somebody who wants
    /// it alone keeps others out, and the frame would have to come from the writer. Such a page
    /// keeps its ticket until the next call.
    fn release_late(&self, batch: &mut WriteBatch) {
        batch.late.retain(|late| !self.release_ticket(late));
    }

    /// False: the latch was not free.
    fn release_ticket(&self, late: &Late) -> bool {
        let copied = &late.copied;
        while let Some(f) = self.ticketed_frame(copied) {
            let frame = self.frame(f);
            if !frame.latch.try_shared() {
                return false;
            }
            let ours = frame.page() == copied.page && self.has_ticket_of(f, copied);
            if ours {
                // Only who has the ticket makes it clean, and no change goes back.
                assert!(frame.is_dirty(), "{} is clean already", copied.page);
                assert!(frame.lsn() >= copied.lsn, "{} went back", copied.page);
                let same = frame.lsn() == copied.lsn;
                if late.written && (same || ferrite_sync::mutant!("buffer.changed_page_is_clean")) {
                    frame.set_rec_lsn(None);
                    // A page that has changed meanwhile has forgotten its changes.
                    if let (Some(base), Kind::Leaf) = (copied.whole, frame.kind()) {
                        self.begin_changes(f, (base, copied.whole_bytes), Vec::new());
                    }
                } else {
                    if late.written {
                        let rec = copied.next_rec;
                        assert!(rec < frame.lsn(), "{}: {rec:?}", copied.page);
                        frame.set_rec_lsn(Some(rec));
                    }
                    // Who met it in the queue meanwhile took it off: it had a ticket.
                    self.dirty_queue.push(&self.frames, f);
                }
                frame.ticket.store(0, Ordering::SeqCst);
            }
            frame.latch.unlock_shared();
            if ours {
                return true;
            }
        }
        true
    }

    /// The batch goes: its tickets must not stay. Not for the writer while others need frames.
    pub(crate) fn end_batch(&self, mut batch: WriteBatch) {
        self.release_late(&mut batch);
        while !batch.late.is_empty() {
            ferrite_sync::thread::sleep_ms(1);
            self.release_late(&mut batch);
        }
    }

    fn requeue(&self, batch: &WriteBatch) {
        for copied in &batch.copied {
            if let Some(f) = self.store.directory().get(copied.page).as_frame() {
                self.dirty_queue.push(&self.frames, f);
            }
        }
    }

    // ---- the writer thread -----------------------------------------------------------------

    /// Body of the writer thread; ends after [`Pool::stop_writer`].
    pub fn run_writer(self: &Arc<Self>) {
        let mut batch = self.new_write_batch();
        let mut idle_rounds = 0;
        let mut watch = Watch::new();
        while !self.writer.is_stopped() {
            self.writer.begin_look(&watch);
            let worked = self.writer_round(&mut batch);
            if worked {
                idle_rounds = 0;
            }
            if self.writer.may_sleep(&mut watch, worked) {
                let most_us = self.pause_us(idle_rounds);
                let woken = self.writer.sleep(&mut watch, most_us);
                idle_rounds = if woken { 0 } else { idle_rounds + 1 };
            }
        }
        self.writer.leave(watch);
        self.end_batch(batch);
    }

    /// The writer's pause after so many rounds without work. For room on a full disk it looks often.
    fn pause_us(&self, idle_rounds: u32) -> u64 {
        let waits_for_room = self.writer.disk_full.load(Ordering::Relaxed);
        match idle_rounds >= IDLE_ROUNDS && !waits_for_room {
            true => IDLE_PAUSE_US,
            false => PAUSE_US,
        }
    }

    /// Makes the writer thread look for work, and for room, now.
    pub fn wake_writer(&self) {
        self.writer.wake();
    }

    /// Ends the writer thread; the caller joins it.
    pub fn stop_writer(&self) {
        self.writer.end_all();
    }

    /// The writer may be run again: redo is over.
    pub fn restart_writer(&self) {
        self.writer.redo_at.store(u64::MAX, Ordering::SeqCst);
        self.writer.stop.store(false, Ordering::SeqCst);
    }

    /// Frames without a page.
    pub fn free_frames(&self) -> usize {
        self.free_count.load(Ordering::Relaxed)
    }

    /// One round: reclaim, old dirty pages, cold dirty pages. True if it wrote something.
    fn writer_round(&self, batch: &mut WriteBatch) -> bool {
        let asks = self.asks();
        self.reclaim_retired();
        self.store.reclaim(self.log.durable_lsn());
        let retired = self.store.retired_bytes();
        let short = self.writer.disk_full.load(Ordering::Relaxed) && retired > 0;
        let share = self.store.used_bytes() / RETIRED_SHARE;
        if short || retired > share.clamp(RETIRED_LEAST_BYTES, RETIRED_MOST_BYTES) {
            self.have_log_flushed(short);
        }
        self.collect_old(batch);
        self.collect_cold(batch);
        let cleared = self.collect_leaving(batch);
        self.collect_for_a_try(batch);
        // Before all that waits for the disk.
        self.writer.end_look();
        let grown = self.store.grow_ahead();
        let Ok(count) = self.write_trial(batch) else {
            // That says it, too.
            self.answer(asks);
            return false;
        };
        self.note_room(&grown, asks, count);
        count > 0 || cleared > 0
    }

    /// For the places that pages have left. Behind a crash, before the log has threads, the writer does it itself if it finds
    /// no other places; not where it would wait for a file of the log, for which nobody makes room yet.
    fn have_log_flushed(&self, short: bool) {
        let end = self.log.current_lsn();
        let redoes = self.writer.redo_at.load(Ordering::SeqCst) != u64::MAX;
        match redoes && short && self.log.has_files_for(end) {
            true => self.log.flush_to(end),
            false => self.log.request_flush(end),
        }
    }

    /// Pages first changed before the checkpointer's mark, oldest first.
    fn collect_old(&self, batch: &mut WriteBatch) {
        let below = Lsn(self.writer.flush_below.load(Ordering::SeqCst));
        for _ in 0..self.dirty_queue.len(&self.frames) {
            match self.dirty_queue.take_due(&self.frames, below) {
                First::Stale => {}
                First::Due(f) if self.copy_trial(f, batch) => {}
                First::Due(f) => return self.dirty_queue.push_first(&self.frames, f),
                First::None => return,
            }
        }
    }

    /// Pages could not be written, and there is nothing to be written in this round: one of any age, to see whether it can be
    /// now. Else nobody would find out.
    fn collect_for_a_try(&self, batch: &mut WriteBatch) {
        if batch.pages() > 0 || !self.is_failing() {
            return;
        }
        for _ in 0..self.dirty_queue.len(&self.frames) {
            match self.dirty_queue.take_due(&self.frames, Lsn::MAX) {
                First::Stale => {}
                First::Due(f) => {
                    let has_room = self.copy_trial(f, batch);
                    debug_assert!(has_room, "an empty batch has no room");
                    if batch.pages() > 0 {
                        return;
                    }
                }
                First::None => return,
            }
        }
    }

    /// Drops clean cold pages and copies dirty cold ones until enough frames are (or will be)
    /// free.
    fn collect_cold(&self, batch: &mut WriteBatch) {
        let target = self.free_target();
        let most = self.most_copied();
        let mut steps = self.frames.limit() * 3;
        while steps > 0 {
            // What is copied will be free, if it can be written.
            let coming = batch.copied.len().min(most);
            if self.free_count.load(Ordering::Relaxed) + coming >= target {
                return;
            }
            steps -= 1;
            let f = self.advance_hand();
            let frame = self.frame(f);
            let kind = frame.kind();
            if !matches!(kind, Kind::Leaf | Kind::Inner) || !self.is_to_go(f) {
                continue;
            }
            if frame.is_dirty() {
                let idle = frame.ticket.load(Ordering::SeqCst) == 0;
                if idle && batch.copied.len() < most && !self.copy_into(f, batch) {
                    return;
                }
            } else if let Some(f) = self.evict_clean(f, kind) {
                self.give_back(f);
            }
        }
    }

    // ---- for the checkpointer ----------------------------------------------------------------

    /// Pages first changed before `lsn` are to be written soon.
    pub fn flush_below(&self, lsn: Lsn) {
        self.writer.flush_below.store(lsn.0, Ordering::SeqCst);
        self.dirty_queue.put_overdue_first(&self.frames, lsn);
        self.writer.wake();
    }

    /// Where redo must start for what is dirty now. See the crate's invariant 4.
    pub fn oldest_rec_lsn(&self) -> Lsn {
        let bound = self.log.current_lsn();
        // Before the frames: from here changes go there, and never back.
        let kept = match ferrite_sync::mutant!("buffer.kept_not_held") {
            true => bound,
            false => self.changes.oldest().unwrap_or(bound),
        };
        let _pin = self.epochs.pin();
        self.frames()
            .iter()
            .filter_map(|frame| frame.rec_lsn())
            .fold(bound.min(kept), Lsn::min)
    }

    /// Dirty pages now (a walk over all frames).
    pub fn dirty_pages(&self) -> usize {
        self.frames().iter().filter(|f| f.is_dirty()).count()
    }

    /// Is the space that is not free exactly the space that pages and retired blobs take? Only
    /// while nothing is written.
    ///
    /// # Errors
    /// `Corrupt` naming a page or the difference.
    pub fn check_space(&self) -> Result<()> {
        self.store.check_space(&|f| self.frame(f).home())
    }

    /// Dumps where every page lives. Returns the base; deltas logged at or after its position
    /// are to be applied on top of it.
    ///
    /// # Errors
    /// `DiskFull` or `Io`: the older base stays valid.
    pub fn dump_map(&self) -> Result<ferrite_store::MapBase> {
        let base = {
            let _map = self.map_lock.lock();
            self.log.current_lsn()
        };
        self.store.dump_map(base, &|page, f| {
            let frame = self.frame(f);
            let home = frame.home();
            (frame.page() == page).then_some(home)
        })
    }
}
