//! Clocks. In a simulation both are virtual: they stand still while a task can run and jump
//! to the next deadline when none can. Under loom [`now_us`] is the model's.
//!
//! Invariant: [`now_us`] never goes back, and is the clock of every deadline in this crate.

use crate::hook;

fn clock(id: libc::clockid_t) -> u64 {
    let mut t = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `t` is a valid timespec that the call fills.
    let rc = unsafe { libc::clock_gettime(id, &mut t) };
    assert_eq!(rc, 0, "clock_gettime({id}) failed");
    t.tv_sec as u64 * 1_000_000 + t.tv_nsec as u64 / 1000
}

/// Microseconds on a clock that only goes forward (its zero means nothing).
#[inline]
pub fn now_us() -> u64 {
    #[cfg(loom)]
    return crate::futex::now_us();
    #[cfg(not(loom))]
    hook::now_us().unwrap_or_else(|| clock(libc::CLOCK_MONOTONIC))
}

/// Microseconds since 1970 (wall clock; may jump).
#[inline]
pub fn unix_us() -> u64 {
    /// Where the simulated wall clock begins.
    const SIM_EPOCH_US: u64 = 1_700_000_000_000_000;
    hook::now_us().map_or_else(|| clock(libc::CLOCK_REALTIME), |us| us + SIM_EPOCH_US)
}

/// Processor time of all threads of this process so far, in microseconds. Not for hot paths:
/// the system adds up the threads. In a simulation one of its processors is always busy.
pub fn process_cpu_us() -> u64 {
    hook::now_us().unwrap_or_else(|| clock(libc::CLOCK_PROCESS_CPUTIME_ID))
}

/// Processor time of this thread so far, in microseconds: what its work has cost, whatever else the machine did. In a
/// simulation as [`process_cpu_us`].
pub fn thread_cpu_us() -> u64 {
    hook::now_us().unwrap_or_else(|| clock(libc::CLOCK_THREAD_CPUTIME_ID))
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn clocks_move() {
        let a = now_us();
        crate::thread::sleep_ms(2);
        assert!(now_us() >= a + 2000);
        assert!(unix_us() > 1_600_000_000_000_000);
    }

    #[test]
    fn work_takes_processor_time() {
        for cpu_us in [process_cpu_us, thread_cpu_us] {
            let (before_us, begun_us) = (cpu_us(), now_us());
            while cpu_us() < before_us + 1000 {
                assert!(
                    now_us() < begun_us + 60_000_000,
                    "a minute's work took none"
                );
            }
        }
    }

    #[test]
    fn a_thread_that_sleeps_takes_no_processor_time() {
        let before_us = thread_cpu_us();
        crate::thread::sleep_ms(100);
        assert!(thread_cpu_us() < before_us + 50_000);
    }
}
