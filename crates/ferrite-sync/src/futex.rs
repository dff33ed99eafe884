//! Waiting on a 32-bit word: the one place that calls the kernel's futex.
//!
//! `wait` sleeps only while the word still holds the expected value, which the kernel (or
//! the stand-in below) checks under the same lock that `wake` takes: a change of the word
//! followed by a wake is never missed. Masks keep kinds of waiters apart on one word.

use crate::atomic::AtomicU32;
#[cfg(not(loom))]
use crate::hook;

/// Sleeps while `*word == expected`, until a wake whose mask meets `mask`, or until the
/// deadline on the clock of [`crate::time::now_us`]. False only when the deadline passed.
/// May return early for no reason.
#[cfg(not(loom))]
pub(crate) fn wait(
    what: &'static str,
    word: &AtomicU32,
    expected: u32,
    mask: u32,
    deadline_us: Option<u64>,
) -> bool {
    let key = word as *const AtomicU32 as usize;
    if hook::simulated() {
        // Between the caller's look at the word and the kernel's: anything may happen.
        hook::yield_point("futex");
        if word.load(crate::atomic::Ordering::SeqCst) != expected {
            return true;
        }
        return hook::block(what, key, mask, deadline_us).unwrap_or(true);
    }
    let deadline = deadline_us.map(|us| libc::timespec {
        tv_sec: (us / 1_000_000) as libc::time_t,
        tv_nsec: ((us % 1_000_000) * 1000) as libc::c_long,
    });
    let deadline_ptr = deadline
        .as_ref()
        .map_or(std::ptr::null(), |t| t as *const libc::timespec);
    // SAFETY: the word lives for the call (it is borrowed), the time is null or points to a
    // local that outlives the call; the kernel only reads both.
    let rc = unsafe {
        libc::syscall(
            libc::SYS_futex,
            word.as_ptr(),
            libc::FUTEX_WAIT_BITSET | libc::FUTEX_PRIVATE_FLAG,
            expected,
            deadline_ptr,
            std::ptr::null::<u32>(),
            mask,
        )
    };
    rc == 0 || std::io::Error::last_os_error().raw_os_error() != Some(libc::ETIMEDOUT)
}

/// Wakes up to `n` sleepers whose mask meets `mask`; how many were woken.
#[cfg(not(loom))]
pub(crate) fn wake(word: &AtomicU32, mask: u32, n: usize) -> usize {
    if let Some(woken) = hook::wake(word as *const AtomicU32 as usize, mask, n) {
        hook::yield_quiet("futex wake");
        return woken;
    }
    // SAFETY: the kernel uses the address only as a key and reads nothing there.
    let rc = unsafe {
        libc::syscall(
            libc::SYS_futex,
            word.as_ptr(),
            libc::FUTEX_WAKE_BITSET | libc::FUTEX_PRIVATE_FLAG,
            n.min(i32::MAX as usize) as i32,
            std::ptr::null::<libc::timespec>(),
            std::ptr::null::<u32>(),
            mask,
        )
    };
    rc.max(0) as usize
}

#[cfg(loom)]
mod model {
    //! The futex under loom: one queue behind one modelled mutex.

    use super::AtomicU32;
    use loom::sync::{Condvar, Mutex};

    struct Queue {
        waiters: Mutex<(u64, Vec<(u64, usize, u32)>)>,
        changed: Condvar,
    }

    loom::lazy_static! {
        static ref QUEUE: Queue =
            Queue { waiters: Mutex::new((0, Vec::new())), changed: Condvar::new() };
    }

    pub(crate) fn wait(
        _what: &'static str,
        word: &AtomicU32,
        expected: u32,
        mask: u32,
        _deadline_us: Option<u64>,
    ) -> bool {
        let key = word as *const AtomicU32 as usize;
        let mut g = QUEUE.waiters.lock().unwrap();
        if word.load(loom::sync::atomic::Ordering::SeqCst) != expected {
            return true;
        }
        g.0 += 1;
        let ticket = g.0;
        g.1.push((ticket, key, mask));
        while g.1.iter().any(|w| w.0 == ticket) {
            g = QUEUE.changed.wait(g).unwrap();
        }
        true
    }

    pub(crate) fn wake(word: &AtomicU32, mask: u32, n: usize) -> usize {
        let key = word as *const AtomicU32 as usize;
        let mut g = QUEUE.waiters.lock().unwrap();
        let mut woken = 0;
        g.1.retain(|w| {
            let hit = woken < n && w.1 == key && w.2 & mask != 0;
            woken += usize::from(hit);
            !hit
        });
        if woken > 0 {
            QUEUE.changed.notify_all();
        }
        woken
    }
}

#[cfg(loom)]
pub(crate) use model::{wait, wake};
