//! The brake: what keeps the log near its budget when rows are changed faster than pages are
//! written.
//!
//! | age of the log | a row change |
//! | --- | --- |
//! | up to 80% of the budget | goes on |
//! | from there to 100% | pauses 1 ms, as often as the log has grown by an allowance since the session's last pause: 256 KiB at first, nothing at the end |
//! | beyond | waits in steps of 1 ms until the log is shorter, for a second at most |
//!
//! Rolling back, purge and the versions of prepared transactions after a restart are not refused where others are. They
//! pause as row changes do, for 32 KiB of log at the least: beyond the budget up to 100 ms for each of those.
//! Recovery before the threads run, and commits, are not braked.
//!
//! A row change asks with one load beside the log's position: `attention_lsn` is where anything is
//! to be done at all, be it only to wake the checkpointer. It may be lower than it need be, never
//! higher: the checkpointer moves it at each look, and every checkpoint does.
//!
//! A rollback that finds five eighths of the log's reserve gone waits, without an end but a shutdown's, for room: the
//! rest is for commits and the checkpoint that makes room.
//!
//! Invariants: no pause is taken under a latch or a mutex of the lock table or of a transaction's
//! slot, so what makes the log shorter (writing pages, a checkpoint) never waits for one who
//! pauses. Every pause but that ends by itself. Nobody else is kept beyond 1 ms by a log that cannot get shorter
//! at the moment, and not at all by one that is kept for a damaged page: admission decides then.

use crate::state::engine::Engine;
use ferrite_sync::atomic::{AtomicBool, Ordering};
use ferrite_sync::thread;
use ferrite_sync::waits::{waiting, Of, Reason, Sliced};
use ferrite_types::{Error, Result};

/// Log between two pauses of a session where the brake begins, in bytes.
const ALLOWANCE_BYTES: u64 = 256 << 10;
/// The same at the least for what has to go on.
const BACKGROUND_ALLOWANCE_BYTES: u64 = 32 << 10;
const _: () = assert!(BACKGROUND_ALLOWANCE_BYTES <= ALLOWANCE_BYTES);
/// A row change waits no longer than this, in steps of 1 ms.
const LONGEST_MS: u32 = 1000;
/// What has to go on, no longer than this.
const BACKGROUND_LONGEST_MS: u32 = 100;
/// Log that a rollback produces between two attempts to make room for it, in bytes.
const ROOM_BYTES: u64 = 256 << 10;

/// Between two looks of a rollback that waits for room in the log, in ms.
const LOOK_MS: u64 = 10;
/// Looks between two attempts to make room.
const LOOKS_PER_ATTEMPT: u64 = 100;

/// The value of `attention_lsn` while nobody looks after the log's age.
pub(crate) const UNWATCHED: u64 = u64::MAX;

/// Positions at which a piece of background work last paused, and last asked for room.
#[derive(Clone, Copy, Default)]
pub(crate) struct Eased {
    paused_at: u64,
    asked_at: u64,
}

/// Ages of the log that matter, in bytes.
pub(crate) struct Marks {
    /// The writer keeps the log shorter than this if it can.
    pub keep: u64,
    /// Pauses begin.
    pub brake: u64,
    /// Nobody goes on beyond.
    pub stop: u64,
    /// Between two looks of the checkpointer.
    step: u64,
}

impl Marks {
    pub(crate) fn of(budget: u64) -> Marks {
        Marks {
            keep: budget / 10 * 4,
            brake: budget / 10 * 8,
            stop: budget,
            step: budget / 16,
        }
    }

    /// Log that may be produced between two pauses at that age.
    fn allowance(&self, age: u64) -> u64 {
        assert!(
            self.keep < self.brake && self.brake < self.stop,
            "marks at {}, {} and {}",
            self.keep,
            self.brake,
            self.stop
        );
        let left = self.stop.saturating_sub(age);
        let all = self.stop - self.brake;
        (u128::from(left.min(all)) * u128::from(ALLOWANCE_BYTES) / u128::from(all)) as u64
    }
}

impl Engine {
    pub(crate) fn marks(&self) -> Marks {
        Marks::of(self.log_budget.load(Ordering::Relaxed))
    }

    /// From here on the log's age is looked after.
    pub(crate) fn watch_log(&self) {
        self.attention_lsn.store(0, Ordering::Relaxed);
    }

    /// The age was just looked at, or a checkpoint was taken: where to look next.
    pub(crate) fn move_attention(&self) {
        if self.attention_lsn.load(Ordering::Relaxed) == UNWATCHED {
            return;
        }
        let marks = self.marks();
        let start = self.checkpoint_lsn.load(Ordering::SeqCst);
        let next = self.log.current_lsn().0 + marks.step;
        let at = next.max(start + marks.keep).min(start + marks.brake);
        debug_assert!(at != UNWATCHED && at >= start, "looks at {at}");
        self.attention_lsn.store(at, Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn wants_attention(&self) -> bool {
        self.log.current_lsn().0 > self.attention_lsn.load(Ordering::Relaxed)
    }

    /// Neither pages nor checkpoints can be written: the log does not get shorter by waiting.
    fn log_is_stuck(&self) -> bool {
        let fails = |flag: &AtomicBool| flag.load(Ordering::Relaxed);
        fails(&self.checkpoint_fails)
            || fails(&self.merges_fail)
            || self.pool.write_failure().is_some()
    }

    /// Before a row change. `paused_at`: the log's position after the session's last pause.
    #[cold]
    pub(crate) fn slow_down(&self, paused_at: &mut u64, is_killed: &dyn Fn() -> bool) {
        let (age, marks) = (self.log_age(), self.marks());
        if age <= marks.brake {
            self.housekeeping.set();
            return;
        }
        debug_assert!(*paused_at <= self.log.current_lsn().0, "of another log");
        if self.merges_fail.load(Ordering::Relaxed) {
            // For a page that cannot be read the log is kept until somebody drops its index.
            self.housekeeping.set();
            return;
        }
        if self.log.current_lsn().0 < *paused_at + marks.allowance(age) {
            return;
        }
        self.housekeeping.set();
        self.counters.throttled.inc();
        waiting(Reason::LogBudget, Of::Nothing, || {
            self.wait_within_budget(LONGEST_MS, is_killed);
        });
        *paused_at = self.log.current_lsn().0;
    }

    /// Between two steps of work that cannot be refused. No latch is held, and nobody's commit
    /// waits for it.
    #[inline]
    pub(crate) fn ease_off(&self, eased: &mut Eased) {
        if self.wants_attention() {
            self.ease_off_now(eased);
        }
        if self.log.admission().is_err() {
            self.make_room_for_log(eased);
        }
    }

    /// Before a step of a rollback, which also has to leave the log what others need. No latch is held, but all locks of
    /// the transaction are. `may_stop`: a stop ends it.
    ///
    /// # Errors
    /// `Interrupted` by a stop, or by a shutdown while there is no room for the log; `DiskFull`: there is none, and who
    /// rolls back does not wait ([`ferrite_buffer::patiently`]).
    pub(crate) fn may_undo(&self, may_stop: bool, eased: &mut Eased) -> Result<()> {
        let mut wait = Sliced::new(Reason::DiskFull, Of::Nothing);
        for look in 0u64.. {
            if look % LOOKS_PER_ATTEMPT == 1 {
                // What could not be made before is tried again.
                eased.asked_at = 0;
            }
            self.ease_off(eased);
            if may_stop && self.stop.load(Ordering::SeqCst) {
                return Err(Error::Interrupted);
            }
            // Without background threads nobody but ourselves makes room, which was just tried.
            if !self.log.is_short() || self.config.manual_background {
                break;
            }
            if !ferrite_buffer::is_patient() {
                return Err(Error::DiskFull("no space for the redo log".into()));
            }
            if self.callbacks.is_shutting_down() {
                return Err(Error::Interrupted);
            }
            // Files follow what has been written.
            self.log.request_flush(self.log.current_lsn());
            wait.slice(|| thread::sleep_ms(LOOK_MS));
        }
        Ok(())
    }

    #[cold]
    fn ease_off_now(&self, eased: &mut Eased) {
        let (age, marks) = (self.log_age(), self.marks());
        let now = self.log.current_lsn().0;
        let allowance = marks.allowance(age).max(BACKGROUND_ALLOWANCE_BYTES);
        debug_assert!(eased.paused_at <= now, "of another log");
        if age > marks.brake && now < eased.paused_at + allowance {
            return;
        }
        self.housekeeping.set();
        if age > marks.brake && !self.log_is_stuck() {
            waiting(Reason::LogBudget, Of::Nothing, || self.pause_for_log());
            eased.paused_at = self.log.current_lsn().0;
        }
    }

    /// 1 ms, or until the log keeps to its budget; not long, as it may hold locks and others may make the log longer.
    fn pause_for_log(&self) {
        // Without background threads the log gets no shorter while we look.
        let ends = || self.config.manual_background || self.is_ending();
        self.wait_within_budget(BACKGROUND_LONGEST_MS, &ends);
    }

    /// 1 ms, or until the log keeps to its budget, or cannot, or `ends`.
    fn wait_within_budget(&self, longest_ms: u32, ends: &dyn Fn() -> bool) {
        for _ in 0..longest_ms {
            thread::sleep_ms(1);
            if self.log_age() <= self.marks().stop || self.log_is_stuck() || ends() {
                return;
            }
        }
    }

    /// What cannot be refused lives on what admission keeps of the log. That must not run out:
    /// a checkpoint needs the log to be written. Who goes on without room looks itself at how much is left. Nothing gives
    /// way to it while the server ends, nor does it wait then: what finds no room is done by the next start.
    #[cold]
    fn make_room_for_log(&self, eased: &mut Eased) {
        let now = self.log.current_lsn().0;
        if now >= eased.asked_at + ROOM_BYTES {
            let _ = self.make_room(true, &|| self.is_ending());
            eased.asked_at = now;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::callbacks::{Callbacks, LogLevel};
    use crate::testing::{config, three_snapshots, until};
    use ferrite_io::sim::{Fault, SimStorage};
    use ferrite_sync::Arc;
    use ferrite_types::format::record_kind;

    /// A server that may be told to end.
    #[derive(Default)]
    struct Server(AtomicBool);

    impl Callbacks for Server {
        fn is_shutting_down(&self) -> bool {
            self.0.load(Ordering::SeqCst)
        }
        fn log(&self, _level: LogLevel, _text: &str) {}
        fn fatal(&self, text: &str) {
            panic!("{text}");
        }
    }

    /// Purge, or a rollback, finds no room in the log while the server ends: it does not wait for who makes some, and no
    /// snapshot gives way to it.
    #[test]
    fn at_the_end_of_the_server_nothing_gives_way_to_the_log() {
        let disk = SimStorage::new(9);
        let server = Arc::new(Server::default());
        let engine = Engine::open(config(), Arc::new(disk.boot()), server.clone()).unwrap();
        let (t, s) = three_snapshots(&engine);
        // No checkpoint recycles log.
        disk.inject_lasting(Fault::Full, "map.");
        let at_work = engine.making_room.lock();
        while engine.log.admission().is_ok() {
            disk.set_capacity(Some(disk.used_bytes()));
            engine.log.append(record_kind::GARBAGE, &[&[0; 1000]]);
        }
        let same = engine.clone();
        let waiter = thread::spawn("purge", move || same.ease_off(&mut Eased::default()));
        thread::sleep_ms(200);
        assert!(!waiter.is_finished(), "it did not wait");
        server.0.store(true, Ordering::SeqCst);
        until("deaf to the shutdown", || waiter.is_finished());
        waiter.join().unwrap();
        drop(at_work);
        for _ in 0..5 {
            engine.ease_off(&mut Eased::default());
        }
        assert_eq!(engine.snapshots.count(), 3);
        assert!(engine.log.admission().is_err(), "there is room");
        disk.set_capacity(None);
        disk.clear_faults();
        drop((s, t));
        engine.close().unwrap();
    }

    #[test]
    fn the_allowance_falls_to_nothing_at_the_budget() {
        for budget in [4u64 << 20, 16 << 20, 1 << 30, 1 << 60] {
            let marks = Marks::of(budget);
            assert!(marks.keep < marks.brake && marks.brake < marks.stop);
            assert_eq!(marks.allowance(marks.brake), ALLOWANCE_BYTES);
            assert_eq!(marks.allowance(marks.stop), 0);
            assert_eq!(marks.allowance(u64::MAX), 0);
            let half = marks.allowance(marks.brake / 2 + marks.stop / 2);
            assert!(half.abs_diff(ALLOWANCE_BYTES / 2) <= 1, "{half}");
        }
    }
}
