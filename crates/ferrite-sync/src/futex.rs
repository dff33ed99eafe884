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
    //! The futex under loom: one queue behind one modelled mutex. Time stands still but for
    //! `pass_us`: a deadline passes where the model says so, at any moment in the other threads.

    use super::AtomicU32;
    use crate::atomic::{AtomicU64, Ordering};
    use loom::sync::{Condvar, Mutex};

    struct Waiter {
        ticket: u64,
        key: usize,
        mask: u32,
        deadline_us: Option<u64>,
    }

    #[derive(Default)]
    struct Line {
        tickets: u64,
        waiters: Vec<Waiter>,
        /// Tickets of those whose deadline has passed while they slept.
        late: Vec<u64>,
    }

    struct Queue {
        line: Mutex<Line>,
        changed: Condvar,
        /// Changed under the mutex, read without.
        now_us: AtomicU64,
    }

    loom::lazy_static! {
        static ref QUEUE: Queue = Queue {
            line: Mutex::new(Line::default()),
            changed: Condvar::new(),
            now_us: AtomicU64::new(1),
        };
    }

    pub(crate) fn now_us() -> u64 {
        QUEUE.now_us.load(Ordering::Relaxed)
    }

    pub(crate) fn wait(
        _what: &'static str,
        word: &AtomicU32,
        expected: u32,
        mask: u32,
        deadline_us: Option<u64>,
    ) -> bool {
        let key = word as *const AtomicU32 as usize;
        let mut g = QUEUE.line.lock().unwrap();
        if word.load(Ordering::SeqCst) != expected {
            return true;
        }
        if deadline_us.is_some_and(|us| us <= now_us()) {
            return false;
        }
        g.tickets += 1;
        let ticket = g.tickets;
        g.waiters.push(Waiter {
            ticket,
            key,
            mask,
            deadline_us,
        });
        while g.waiters.iter().any(|w| w.ticket == ticket) {
            g = QUEUE.changed.wait(g).unwrap();
        }
        !g.late.contains(&ticket)
    }

    pub(crate) fn wake(word: &AtomicU32, mask: u32, n: usize) -> usize {
        let key = word as *const AtomicU32 as usize;
        let mut g = QUEUE.line.lock().unwrap();
        let mut woken = 0;
        g.waiters.retain(|w| {
            let hit = woken < n && w.key == key && w.mask & mask != 0;
            woken += usize::from(hit);
            !hit
        });
        if woken > 0 {
            QUEUE.changed.notify_all();
        }
        woken
    }

    pub(crate) fn pass_us(us: u64) {
        let mut g = QUEUE.line.lock().unwrap();
        let now = QUEUE.now_us.fetch_add(us, Ordering::Relaxed) + us;
        let g = &mut *g;
        let asleep = g.waiters.len();
        g.waiters.retain(|w| {
            let late = w.deadline_us.is_some_and(|us| us <= now);
            if late {
                g.late.push(w.ticket);
            }
            !late
        });
        if g.waiters.len() < asleep {
            QUEUE.changed.notify_all();
        }
    }
}

#[cfg(loom)]
pub(crate) use model::{now_us, pass_us, wait, wake};
