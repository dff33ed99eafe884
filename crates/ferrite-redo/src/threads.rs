//! The two threads of the log: the flusher, and the keeper of segments.
//!
//! The flusher sleeps until a position is requested, then flushes whenever the device is
//! free until nothing is requested any more, or lets a group grow first if the processors
//! are busy (`group_wait.rs`). The interval only bounds how long a record that nobody waits
//! for stays in memory. The keeper prepares segments ahead of need and recycles old ones, so
//! that a flush finds its next file ready.
//!
//! Invariants: while `flusher.running`, deferred acknowledgements are released by the
//! flusher alone. Both threads end when `stop` is set (after a last flush) or the log dies.
//! Locking: as in `flush.rs`.

use crate::group_wait::GroupWait;
use crate::log::Log;
use ferrite_sync::atomic::Ordering;
use ferrite_sync::{kill_point, thread, time, Arc};
use ferrite_types::Lsn;

/// The keeper's pause while segments cannot be prepared, and otherwise.
const RETRY_US: u64 = 500_000;
const IDLE_US: u64 = 10_000_000;

impl Log {
    /// Starts the flusher and the keeper. `flush_interval_ms` as in
    /// [`set_flush_interval_ms`](Self::set_flush_interval_ms).
    pub fn start_threads(self: &Arc<Self>, flush_interval_ms: u32) {
        let mut threads = self.threads.lock();
        if !threads.is_empty() {
            return;
        }
        assert!(!self.flusher.running(), "a second flusher of one log");
        self.set_flush_interval_ms(flush_interval_ms);
        self.flusher.stop.store(false, Ordering::SeqCst);
        self.flusher.running.store(true, Ordering::SeqCst);
        let log = self.clone();
        threads.push(thread::spawn("fe-log-flush", move || log.flusher_main()));
        let log = self.clone();
        threads.push(thread::spawn("fe-log-files", move || log.keeper_main()));
        self.keeper.set();
    }

    /// How long a record may stay in memory when nobody waits for it; 0: until somebody
    /// does.
    pub fn set_flush_interval_ms(&self, ms: u32) {
        self.flusher.interval_ms.store(ms, Ordering::SeqCst);
        self.flusher.wake();
    }

    /// Flushes what was appended, releases what waits, and ends the threads. Nobody may
    /// commit meanwhile.
    pub fn stop_threads(&self) {
        let threads = std::mem::take(&mut *self.threads.lock());
        if threads.is_empty() {
            return;
        }
        if !self.dead.load(Ordering::SeqCst) {
            self.flush_to(self.current_lsn());
        }
        self.flusher.stop.store(true, Ordering::SeqCst);
        self.flusher.event.set();
        self.segs.set_stopping(true);
        self.keeper.set();
        for t in threads {
            // A thread that ended by panic has said so itself.
            let _ = t.join();
        }
        self.segs.set_stopping(false);
        self.flusher.running.store(false, Ordering::SeqCst);
        if !self.dead.load(Ordering::SeqCst) {
            self.flush_to(Lsn(self.requested.load(Ordering::SeqCst)));
            self.release_acks();
            self.run_notices();
        }
    }

    fn ended(&self) -> bool {
        self.flusher.stop.load(Ordering::SeqCst) || self.dead.load(Ordering::SeqCst)
    }

    fn wanted(&self) -> bool {
        self.requested.load(Ordering::SeqCst) > self.durable()
    }

    fn flusher_main(&self) {
        let mut group_wait = GroupWait::new();
        while !self.ended() {
            self.release_acks();
            self.run_notices();
            if self.wanted() {
                self.flush_greedily(&mut group_wait);
            } else {
                self.flusher_sleep();
            }
        }
    }

    /// Leads until nothing is requested any more.
    fn flush_greedily(&self, group_wait: &mut GroupWait) {
        {
            let mut gate = self.gate.lock();
            if gate.leading {
                gate.flusher_waits = true;
                drop(gate);
                self.flusher.event.wait();
                return;
            }
            gate.leading = true;
        }
        loop {
            let before = self.durable();
            self.let_group_grow(group_wait);
            if self.dead.load(Ordering::SeqCst) {
                // The lead stays taken: nothing is acknowledged any more.
                return;
            }
            let since_us = time::now_us();
            self.round();
            let ended_us = time::now_us();
            let more = self.give_lead(true);
            group_wait.flushed(since_us, ended_us, &self.release_acks());
            self.run_notices();
            if !more {
                return;
            }
            if self.durable() == before {
                // The next record is still being copied by its appender.
                thread::yield_now();
            }
        }
    }

    /// Waits before a flush if that saves more than it costs; who stops the flusher ends it.
    fn let_group_grow(&self, group_wait: &GroupWait) {
        let waiting = self.pending.load(Ordering::SeqCst) as u64;
        let wait_us = group_wait.wait_us(waiting);
        // Who waits for the flush itself, or for the ring, does not wait for company.
        let urgent = || {
            self.space_waiters.load(Ordering::SeqCst) > 0 || !self.gate.lock().waiters.is_empty()
        };
        if wait_us > 0 && !urgent() {
            kill_point!("redo.before_group_wait");
            self.stats.group_waits.inc();
            self.flusher.event.wait_timeout_us(wait_us);
        }
    }

    fn flusher_sleep(&self) {
        kill_point!("redo.before_sleep");
        self.flusher.sleeping.store(true, Ordering::SeqCst);
        kill_point!("redo.asleep");
        let interval = u64::from(self.flusher.interval_ms.load(Ordering::SeqCst));
        let mut in_time = true;
        if !self.wanted() && self.pending.load(Ordering::SeqCst) == 0 && !self.ended() {
            if interval == 0 {
                self.flusher.event.wait();
            } else {
                in_time = self.flusher.event.wait_timeout_us(interval * 1000);
            }
        }
        self.flusher.sleeping.store(false, Ordering::SeqCst);
        if !in_time {
            self.requested.fetch_max(self.ring.next(), Ordering::SeqCst);
        }
    }

    /// Has the segments brought into order: by the keeper, or here when there is none.
    pub(crate) fn keep_segments(&self) {
        if self.flusher.running() {
            self.keeper.set();
        } else {
            self.maintain();
        }
    }

    fn maintain(&self) {
        // A failure shows as `tight`: writers are refused before it can hurt the flusher,
        // which tries for itself and reports what it cannot live with.
        let _ = self.segs.maintain(self.writing_segment());
    }

    fn keeper_main(&self) {
        while !self.ended() {
            self.maintain();
            let pause = if self.segs.tight() { RETRY_US } else { IDLE_US };
            self.keeper.wait_timeout_us(pause);
        }
    }
}
