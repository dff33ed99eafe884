//! Every thread the engine itself runs; the log has its own.
//!
//! | thread | does | pace |
//! | --- | --- | --- |
//! | `ferrite-write` | write-back, free frames | as needed, every 20 ms at least, 200 ms while nothing is to do |
//! | `ferrite-ahead` | pages that scans will come to, read before they do | as asked |
//! | `ferrite-chkpt` | checkpoints by log produced; free space scrubbed, and given back | 100 ms, or by log (`brake.rs`) |
//! | `ferrite-purge` | purge after commits | as needed |
//! | `ferrite-merge` | pages with changes in the change buffer, read in time (`merges.rs`); after the start pages that lack redo, and those that were in memory before (`warm.rs`) | as needed, every 100 ms |
//! | `ferrite-redo` | helps `ferrite-merge` after the start, as long as pages lack redo | without a pause |
//! | `ferrite-tier` | writes the second tier, if there is one | as needed |
//! | `ferrite-snaps` | frees what a snapshot held whose dropper was killed; drops the oldest ones beyond `ferrite_snapshot_max_bytes`, and for dirty pages that find no room | started for it by `ferrite-chkpt`, and ends with it |
//! | `ferrite-hist` | versions: retirement, spilling, old generation; what could not be rolled back is given to `ferrite-undo` again (`settle`) | 50 ms / 1 s / 1 min |

use crate::maintenance::cleaner::Cleaner;
use crate::maintenance::index_ids::IndexIds;
use crate::maintenance::trouble::{Trouble, Work, RETRY_US};
use crate::state::callbacks::LogLevel;
use crate::state::engine::Engine;
use crate::state::throttle::Marks;
use ferrite_sync::atomic::Ordering;
use ferrite_sync::thread::{self, JoinHandle};
use ferrite_sync::{memory, time, Arc};
use ferrite_types::{Error, Lsn, Result};

/// Longest time between checkpoints while there is enough that is new, in us.
const CHECKPOINT_US: u64 = 30_000_000;
/// Rounds of 50 ms between two looks at what is kept for old snapshots.
pub(crate) const SWEEP_ROUNDS: u64 = 5;
/// Of these, so many pass at most without a look at all of it.
const SWEEP_LOOKS: u32 = 40;
/// Looking through all that is kept takes no more than one part of so many of a processor: with
/// short snapshots some have ended at every look.
const SWEEP_SHARE: u64 = 50;
/// For that a look counts as no longer than this, us, unless the one before it took longer, too: one that takes a minute
/// for once was stopped meanwhile (SIGSTOP, a frozen machine), and history must not grow for an hour because of it.
const SWEEP_SURE_US: u64 = 600_000;
/// Memory of old versions and archived entries that is worth giving back to the system.
const GIVE_BACK_BYTES: u64 = 8 << 20;
/// Calls of the checkpointer, 100 ms each, after which it looks at the frames in any case.
const LOOK_CALLS: u32 = 10;
/// The checkpointer rests that long between two looks, in us, and as often as long as a look took.
const REST_US: u64 = 5_000;
const REST_FACTOR: u64 = 3;
const _: () = assert!(REST_US < CHECKPOINT_US && RETRY_US < CHECKPOINT_US);
/// Threads that read ahead.
const READ_AHEAD_THREADS: usize = 4;
/// Pause of a purge thread without work, in us.
const PURGE_PAUSE_US: u64 = 20_000;

pub(crate) fn start(engine: &Arc<Engine>) -> Vec<JoinHandle<()>> {
    let mut threads = Vec::new();
    let writers = match engine.config().write_threads {
        // They mostly wait for the disk: with fewer, frames are not free in time.
        0 => (thread::processors() / 4).clamp(4, 8),
        n => n as usize,
    };
    for _ in 0..writers {
        let pool = engine.pool.clone();
        threads.push(thread::spawn("ferrite-write", move || pool.run_writer()));
    }
    for _ in 0..READ_AHEAD_THREADS {
        let pool = engine.pool.clone();
        let read = move || pool.run_read_ahead();
        threads.push(thread::spawn("ferrite-ahead", read));
    }
    let e = engine.clone();
    threads.push(thread::spawn("ferrite-chkpt", move || e.run_checkpoints()));
    let e = engine.clone();
    threads.push(thread::spawn("ferrite-merge", move || e.run_merges()));
    let purgers = match engine.config().purge_threads {
        0 => (thread::processors() / 4).clamp(1, 4),
        n => n as usize,
    };
    for _ in 0..purgers {
        let e = engine.clone();
        threads.push(thread::spawn("ferrite-purge", move || e.run_purge()));
    }
    let e = engine.clone();
    threads.push(thread::spawn("ferrite-hist", move || e.run_history()));
    threads
}

/// The thread that outlives the others: what they write is kept.
pub(crate) fn start_second_tier(engine: &Engine) -> Option<JoinHandle<()>> {
    let store = engine.store.clone();
    let write = move || store.run_second_tier();
    let wanted = engine.store.has_second_tier();
    wanted.then(|| thread::spawn("ferrite-tier", write))
}

/// The checkpointer's last walk over all frames: where the log ended then, how many pages had been
/// written, and calls since.
#[derive(Default)]
struct Looked {
    log_end: u64,
    pages_written: u64,
    calls: u32,
}

/// How much a checkpoint must be worth, in bytes of log. Each one writes the whole page map, 8 bytes a page: beside data of
/// terabytes more than all else that is written, if it does not wait for as much log as the budget allows.
struct Worth {
    /// After `CHECKPOINT_US`, by the log's age.
    timed: u64,
    /// By the log that it frees.
    freed: u64,
    /// The same once the age has reached `late`.
    freed_late: u64,
    late: u64,
}

impl Worth {
    fn of(budget: u64, map_bytes: u64) -> Worth {
        let worth = Worth {
            timed: map_bytes.min(budget / 8).max(64 << 10),
            freed: map_bytes.clamp(budget / 8, budget / 4),
            freed_late: budget / 32,
            late: budget / 2 + map_bytes.min(budget / 8),
        };
        // The writers keep the age at 40%; what is freed at most must come before the brake does.
        assert!(
            worth.late <= Marks::of(budget).brake,
            "late at {}",
            worth.late
        );
        worth
    }

    fn is_due(&self, age: u64, gain: u64) -> bool {
        gain > self.freed || (age > self.late && gain > self.freed_late)
    }
}

/// When all that is kept for old snapshots is looked through: when one has ended, and once in a
/// while for those that came and went between two looks.
#[derive(Default)]
struct Sweeps {
    /// Commit numbers of the snapshots at the last look, ascending.
    open: Vec<u64>,
    /// One has ended since the last sweep.
    ended: bool,
    /// Looks since the last sweep.
    looks: u32,
    /// How long that took, us.
    took_us: u64,
    /// Clock (us) before which there is no other one.
    not_before_us: u64,
}

impl Sweeps {
    /// Looks at the snapshots that are open; is it time to sweep?
    fn look(&mut self, now_us: u64, mut open: Vec<u64>) -> bool {
        open.sort_unstable();
        let has_ended = |csn: &u64| open.binary_search(csn).is_err();
        self.ended |= self.open.iter().any(has_ended);
        self.open = open;
        self.looks += 1;
        (self.ended || self.looks >= SWEEP_LOOKS) && now_us >= self.not_before_us
    }

    fn done(&mut self, begun_us: u64, now_us: u64) {
        debug_assert!(begun_us <= now_us && self.open.is_sorted());
        self.ended = false;
        self.looks = 0;
        let took_us = now_us - begun_us;
        let before_us = std::mem::replace(&mut self.took_us, took_us);
        let counted_us = took_us.min(before_us.max(SWEEP_SURE_US));
        self.not_before_us = now_us + counted_us * (SWEEP_SHARE - 1);
    }
}

impl Engine {
    pub(crate) fn stopping(&self) -> bool {
        self.stop.load(Ordering::SeqCst)
    }

    /// Is it the end of the server, or of the database? Who can leave its work to the next start does.
    pub(crate) fn is_ending(&self) -> bool {
        self.stopping() || self.callbacks.is_shutting_down()
    }

    fn run_checkpoints(self: &Arc<Self>) {
        let mut last_us = time::now_us();
        let mut looked = Looked::default();
        let mut trouble = Trouble::of(Work::Checkpoint);
        let mut scrub_trouble = Trouble::of(Work::Scrub);
        let mut told_of_ids = IndexIds::default();
        let mut told_of_files = None;
        let mut full_since_us = None;
        while !self.stopping() {
            self.housekeeping.wait_timeout_us(100_000);
            if self.stopping() {
                return;
            }
            let since_us = time::now_us();
            self.scrub_some(&mut scrub_trouble);
            if self.pace(last_us, &mut looked) && trouble.may_try(since_us) {
                let result = self.checkpoint();
                trouble.tell(self, &result, time::now_us());
                self.save_warm(false);
                self.give_back_space();
                last_us = time::now_us();
            }
            let lack_room = self.pages_lack_room(&mut full_since_us);
            let for_pages = lack_room && self.end_backup_for_pages();
            self.look_after_snapshots(for_pages);
            self.move_attention();
            self.tell_of_resize();
            self.tell_of_index_ids(&mut told_of_ids);
            self.tell_of_log_files(&mut told_of_files);
            // However often it is woken, the walks over all frames leave the memory to others.
            let took_us = time::now_us() - since_us;
            thread::sleep_us(REST_US.max(took_us.min(20 * REST_US) * REST_FACTOR));
        }
    }

    /// Log files that cannot go fill the disk in the end.
    fn tell_of_log_files(&self, told: &mut Option<Error>) {
        let why = self.log.why_files_stay();
        if let Some(e) = why.as_ref().filter(|e| told.as_ref() != Some(*e)) {
            let text = format!(
                "log files that are not needed any more stay, and the log grows beyond ferrite_log_budget: {e}"
            );
            self.callbacks.log(LogLevel::Warning, &text);
        }
        *told = why;
    }

    /// A buffer pool that has its new size is worth a line: a small one comes after a while.
    fn tell_of_resize(&self) {
        let done = self.pool.take_resized();
        // With a budget it changes all the time.
        if let Some(done) = done.filter(|_| !self.has_memory_budget()) {
            let mib = |bytes: u64| bytes >> 20;
            let text = format!(
                "the buffer pool has {} MiB now, it had {} MiB",
                mib(done.to_bytes),
                mib(done.from_bytes)
            );
            self.callbacks.log(LogLevel::Note, &text);
        }
    }

    /// What large deletes have freed goes back to the file system.
    pub(crate) fn give_back_space(&self) {
        self.store.reclaim(self.log.durable_lsn());
        self.told_of_space(self.store.shrink_if_half_free());
    }

    /// The same, however little it is, up to half: pages need places, too.
    pub(crate) fn give_back_some_space(&self) {
        self.store.reclaim(self.log.durable_lsn());
        self.told_of_space(self.store.shrink_but(2));
    }

    fn told_of_space(&self, given: Result<u64>) {
        if let Err(e) = given {
            let text = format!("cannot return free space to the file system: {e}");
            self.callbacks.log(LogLevel::Warning, &text);
        }
    }

    /// Sets the writer's mark from the log's age; true when a checkpoint is due.
    fn pace(&self, last_us: u64, looked: &mut Looked) -> bool {
        let budget = self.log_budget.load(Ordering::SeqCst);
        let start = self.checkpoint_lsn.load(Ordering::SeqCst);
        let now = self.log.current_lsn().0;
        assert!(
            start <= now,
            "a checkpoint from {start}, the log ends at {now}"
        );
        let age = now - start;
        let keep = self.marks().keep;
        if age > keep {
            self.pool.flush_below(Lsn(now - keep));
        }
        let worth = Worth::of(budget, self.map_bytes.load(Ordering::Relaxed));
        if age > worth.timed && time::now_us() - last_us > CHECKPOINT_US {
            return true;
        }
        // The walk costs memory bandwidth: not for a gain that cannot be, nor while nothing was
        // written and the log has hardly moved since the last one; once a second in any case.
        let written = self.pool.stats.pages_written.get();
        looked.calls += 1;
        let moved = now >= looked.log_end + budget / 64 || written != looked.pages_written;
        let still = !moved && looked.calls < LOOK_CALLS;
        if age <= budget / 8 || still {
            return false;
        }
        *looked = Looked {
            log_end: now,
            pages_written: written,
            calls: 0,
        };
        let gain = self.pool.oldest_rec_lsn().0.saturating_sub(start);
        worth.is_due(age, gain)
    }

    fn run_purge(&self) {
        let mut cleaner = Cleaner::default();
        while !self.stopping() {
            self.txns.refresh_if_stale();
            let put_off = self.purge.is_held_back() || self.before_step(&mut cleaner).is_err();
            if put_off || self.purge_round(&mut cleaner) == 0 {
                self.purge.wait(PURGE_PAUSE_US);
            }
        }
    }

    /// Row versions that cannot be spilled stay in memory; that is said once.
    fn warn_of_spill(&self, warned: &mut bool) {
        let Some(e) = self.versions.take_spill_error() else {
            return;
        };
        if !std::mem::replace(warned, true) {
            let text =
                format!("cannot write old row versions to scratch files, they stay in memory: {e}");
            self.callbacks.log(LogLevel::Warning, &text);
        }
    }

    /// Memory that versions and archived entries have given up goes back to the system once it is worth
    /// the walk over the allocator's lists. `most`: what they held at most since the last time.
    fn give_back(&self, most: &mut u64) {
        let now = self.versions.old_bytes() + self.archived().1;
        *most = now.max(*most);
        if *most - now >= GIVE_BACK_BYTES {
            *most = now;
            memory::give_back();
        }
    }

    fn sweep_when_due(&self, sweeps: &mut Sweeps) {
        let mut open = Vec::new();
        self.txns.each_snapshot(&mut |view| open.push(view.csn.0));
        let begun_us = time::now_us();
        if !sweeps.look(begun_us, open) {
            return;
        }
        // The list of who needs what must not be older than this look.
        self.txns.refresh();
        self.versions.sweep_old(&self.txns);
        self.sweep_archives();
        sweeps.done(begun_us, time::now_us());
    }

    fn run_history(self: &Arc<Self>) {
        let mut rounds = 0u64;
        let mut held_most = 0;
        let mut archived = 0;
        let mut sweeps = Sweeps::default();
        let mut warned = false;
        let mut memory = self.versions.memory_bytes();
        let mut is_over = false;
        let mut retried_us = time::now_us();
        while !self.stopping() {
            thread::sleep_ms(50);
            self.tick();
            // First: who waits for a frame may have what the others here wait for.
            if self.callbacks.is_shutting_down() {
                self.pool.end_patience();
            }
            self.retry_given_up(&mut retried_us);
            self.txns.refresh_if_stale();
            let now = self.versions.memory_bytes();
            if self.versions.needs_retire() || now < memory {
                // Beyond the limit, what can be done about it comes first: see below.
                let most = self.most_stuck_bytes();
                self.versions.retire_unless_stuck(&self.txns, most);
            }
            memory = now;
            self.warn_of_spill(&mut warned);
            self.limit_history();
            rounds += 1;
            let look = rounds % SWEEP_ROUNDS == 0;
            if look || self.is_worth_counting(archived) {
                archived = self.archived().1;
            }
            self.limit_history_memory(archived, look);
            if look {
                self.keep_memory_budget(&mut is_over);
                self.tell_memory(rounds);
                self.versions.free_seen(&self.txns);
                self.sweep_when_due(&mut sweeps);
                self.give_back(&mut held_most);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_checkpoint_is_worth_the_map_it_writes() {
        const MIB: u64 = 1 << 20;
        let small = Worth::of(1024 * MIB, MIB / 2);
        assert!(small.timed == MIB / 2 && small.is_due(200 * MIB, 129 * MIB));
        assert!(!small.is_due(512 * MIB, 33 * MIB) && small.is_due(514 * MIB, 33 * MIB));
        // 1 TiB of data: between two maps at least an eighth of the budget, and a quarter while there is time.
        let large = Worth::of(1024 * MIB, 700 * MIB);
        assert!(large.timed == 128 * MIB && !large.is_due(200 * MIB, 250 * MIB));
        assert!(large.is_due(300 * MIB, 257 * MIB) && large.is_due(641 * MIB, 33 * MIB));
        // However small the budget.
        let least = Worth::of(64, u64::MAX);
        assert!(least.late <= 48 && least.freed <= 16);
    }

    #[test]
    fn kept_history_is_looked_through_when_a_snapshot_has_ended() {
        let mut sweeps = Sweeps::default();
        assert!(!sweeps.look(1000, vec![7, 3]));
        assert!(!sweeps.look(2000, vec![3, 9, 7]));
        assert!(sweeps.look(3000, vec![9, 3]));
        sweeps.done(3000, 3010);
        // It took 10 us: the next one begins 500 us after this one at the earliest.
        assert!(!sweeps.look(3499, vec![3]), "too soon");
        assert!(sweeps.look(3500, vec![3]), "and not forgotten");
        sweeps.done(3500, 3500);
        for look in 1..SWEEP_LOOKS {
            assert!(!sweeps.look(4000 + u64::from(look), vec![3]));
        }
        assert!(sweeps.look(5000, vec![3]), "once in a while in any case");
    }

    /// The process was stopped for a minute amid a sweep: that is no reason to put the next one off for 49.
    #[test]
    fn a_stop_amid_a_sweep_does_not_put_the_next_one_off() {
        const SECOND: u64 = 1_000_000;
        let mut sweeps = Sweeps {
            ended: true,
            ..Sweeps::default()
        };
        let mut now_us = SECOND;
        sweeps.done(now_us, now_us + 60 * SECOND);
        now_us += 60 * SECOND;
        sweeps.ended = true;
        assert!(!sweeps.look(now_us + 20 * SECOND, Vec::new()), "no rest");
        assert!(sweeps.look(now_us + 30 * SECOND, Vec::new()), "put off");
        // The next one is as short as ever.
        now_us += 30 * SECOND;
        sweeps.done(now_us, now_us + SECOND / 10);
        assert_eq!(sweeps.not_before_us, now_us + 5 * SECOND);
        // Those that always take long leave the processor to others as they should.
        now_us = sweeps.not_before_us;
        sweeps.done(now_us, now_us + 2 * SECOND);
        now_us += 40 * SECOND;
        sweeps.done(now_us, now_us + 2 * SECOND);
        assert_eq!(sweeps.not_before_us, now_us + 100 * SECOND);
    }
}
