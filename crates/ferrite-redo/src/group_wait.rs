//! When the flusher lets a group of commits grow before it flushes.
//!
//! A flush costs processor time whatever it covers: two requests to the device, their
//! interrupts, and switches to the flusher and back. While the processors have nothing
//! better to do, the next flush begins as soon as the device is free. While they are busy,
//! that time is taken from the transactions that would have shared the flush: the flusher,
//! woken by the device, runs before them. Then it waits, at most as long as a flush takes,
//! until a quarter of the sessions wait for it; if more of them did, too few would be left to
//! keep the processors busy.
//!
//! Source of the idea: Helland, Sammer, Lyon, Carr, Garrett, Reuter: Group commit timers and
//! high volume transaction systems (1987), which derives the wait from the load of the
//! processors.
//!
//! Invariants: no wait is longer than `MAX_WAIT_US`; none without a commit that waits, and
//! none if groups do not grow by it. Locking: none, the flusher owns it.

use crate::gate::Ack;
use ferrite_sync::{thread, time};

/// The longest wait.
const MAX_WAIT_US: u64 = 500;
/// Of the sessions that commit, one in so many is to wait for a flush.
const SESSIONS_A_WAITER: u64 = 4;
/// A group of this many commits is not let grow: the cost of a flush is shared enough.
const LARGE_GROUP: u64 = 8;
/// How often load and sessions are counted: the first takes time with the number of threads.
const PERIOD_US: u64 = 50_000;
/// Processors are counted every so many periods.
const PERIODS_A_COUNT: u32 = 100;
/// This process keeps the processors busy if it uses at least this many percent of them:
/// with clients on the same machine, three quarters is all that it can get.
const BUSY_PERCENT: u64 = 50;
/// Means are kept in 1/256.
const UNIT: u64 = 256;
/// Sessions are told apart by so many bits; of more, fewer are counted than there are.
const SEEN_BITS: usize = 4096;

/// What the flusher knows about its groups.
pub(crate) struct GroupWait {
    /// When this period began, and the process's time then.
    begun_us: u64,
    cpu_us: u64,
    /// Processors that the process may use, and how many periods ago they were counted.
    processors: u64,
    counted: u32,
    busy: bool,
    /// Sessions whose commits were released in this period, by a hash of the token.
    seen: [u64; SEEN_BITS / 64],
    /// How many they were in the last period.
    sessions: u64,
    /// When the last flush that covered commits ended.
    flushed_us: u64,
    /// Moving means over these flushes: how many commits, the time of the flush, the time from
    /// one to the next.
    group: u64,
    flush_us: u64,
    cycle_us: u64,
}

fn moved(mean: u64, value: u64) -> u64 {
    /// Larger values mean nothing here, and would not fit.
    const MAX: u64 = 1 << 32;
    mean - mean / 8 + value.min(MAX) * UNIT / 8
}

impl GroupWait {
    pub(crate) fn new() -> GroupWait {
        GroupWait {
            begun_us: 0,
            cpu_us: 0,
            processors: thread::processors() as u64,
            counted: 0,
            busy: false,
            seen: [0; SEEN_BITS / 64],
            sessions: 0,
            flushed_us: 0,
            group: 0,
            flush_us: 0,
            cycle_us: 0,
        }
    }

    /// How long to wait before the next flush, in us; `waiting`: commits that it would cover.
    pub(crate) fn wait_us(&self, waiting: u64) -> u64 {
        let wanted = (self.sessions / SESSIONS_A_WAITER).min(LARGE_GROUP);
        if !self.busy || waiting == 0 || waiting >= wanted || self.group < 2 * UNIT {
            return 0;
        }
        let until_wanted_us = (wanted - waiting) * self.cycle_us / self.group;
        let wait_us = (self.flush_us / UNIT).min(until_wanted_us).min(MAX_WAIT_US);
        assert!(wait_us <= MAX_WAIT_US, "commits wait {wait_us} us");
        wait_us
    }

    /// A flush that began at `since_us` has ended and covered these commits.
    pub(crate) fn flushed(&mut self, since_us: u64, now_us: u64, released: &[Ack]) {
        self.covered(since_us, now_us, released);
        if now_us.saturating_sub(self.begun_us) >= PERIOD_US {
            self.count_processors();
            self.next_period(now_us, time::process_cpu_us());
        }
    }

    fn covered(&mut self, since_us: u64, now_us: u64, released: &[Ack]) {
        assert!(since_us <= now_us, "a flush from {since_us} to {now_us}");
        if released.is_empty() {
            return;
        }
        self.group = moved(self.group, released.len() as u64);
        self.flush_us = moved(self.flush_us, now_us - since_us);
        self.cycle_us = moved(self.cycle_us, now_us.saturating_sub(self.flushed_us));
        self.flushed_us = now_us;
        for ack in released {
            let bit = (ack.token as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) as usize >> 52;
            self.seen[bit / 64] |= 1 << (bit % 64);
        }
    }

    /// They may change while the server runs; to count them takes several system calls.
    fn count_processors(&mut self) {
        self.counted += 1;
        if self.counted >= PERIODS_A_COUNT {
            self.counted = 0;
            self.processors = thread::processors() as u64;
        }
        assert!(self.processors > 0, "no processors");
    }

    /// Load and sessions of the period that ends now; after a pause the load was not high.
    fn next_period(&mut self, now_us: u64, cpu_us: u64) {
        let passed_us = now_us.saturating_sub(self.begun_us);
        let used_us = cpu_us.saturating_sub(self.cpu_us);
        let first = self.begun_us == 0;
        self.busy = !first && used_us * 100 >= passed_us * self.processors * BUSY_PERCENT;
        self.sessions = self.seen.iter().map(|w| u64::from(w.count_ones())).sum();
        self.seen = [0; SEEN_BITS / 64];
        (self.begun_us, self.cpu_us) = (now_us, cpu_us);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A flusher whose groups of `group` commits, of `sessions` in turn, take 400 of 800 us
    /// each, while the process uses `cpu_percent` of two processors.
    fn run(sessions: usize, group: usize, cpu_percent: u64) -> GroupWait {
        let mut wait = GroupWait::new();
        wait.processors = 2;
        let mut token = 0;
        for round in 1..=300u64 {
            let now_us = round * 800;
            let acks: Vec<Ack> = (0..group)
                .map(|_| {
                    token = (token + 1) % sessions;
                    let address = 0x7f00_0000_0000 + token * 0x6240;
                    Ack {
                        token: address,
                        waited_us: 600,
                    }
                })
                .collect();
            wait.covered(now_us - 400, now_us, &acks);
            if now_us - wait.begun_us >= PERIOD_US {
                wait.next_period(now_us, now_us * 2 * cpu_percent / 100);
            }
        }
        wait
    }

    #[test]
    fn a_group_grows_to_a_quarter_of_the_sessions() {
        let wait = run(16, 2, 75);
        assert_eq!(wait.sessions, 16);
        // Two more come in the time of a flush.
        let us = wait.wait_us(2);
        assert!((300..=400).contains(&us), "{us}");
        assert!((300..=400).contains(&wait.wait_us(3)));
        assert_eq!(wait.wait_us(4), 0, "a quarter waits");
        assert_eq!(wait.wait_us(0), 0, "nobody waits");
    }

    #[test]
    fn no_wait_when_it_gains_nothing() {
        assert_eq!(run(16, 2, 40).wait_us(2), 0, "processors are free");
        assert_eq!(run(4, 2, 75).wait_us(1), 0, "few sessions");
        assert_eq!(run(100, 1, 75).wait_us(1), 0, "groups do not grow");
        assert_eq!(run(1000, 12, 75).wait_us(9), 0, "large groups");
    }

    #[test]
    fn a_pause_ends_it() {
        let mut wait = run(16, 2, 75);
        let at_us = wait.begun_us + 10_000_000;
        wait.next_period(at_us, wait.cpu_us + 100_000);
        assert_eq!(wait.wait_us(2), 0);
    }

    #[test]
    fn absurd_times_do_no_harm() {
        let mut wait = run(16, 2, 75);
        wait.covered(0, u64::MAX, &[]);
        assert!(wait.wait_us(2) <= MAX_WAIT_US);
    }
}
