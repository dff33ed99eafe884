//! Reads in flight together through the kernel's io_uring.
//!
//! Where the kernel, or what confines the process, does not allow it, there is no ring, and
//! the caller reads one part after the other.
//!
//! Invariant: what the kernel may still write to is not given back. [`Ring::read_all`] keeps count of
//! what is in flight, and returns, or unwinds, only when that is nothing.
//! Locking: none; a ring belongs to one thread at a time.

use io_uring::{opcode, types, IoUring};
use std::os::fd::RawFd;

use ferrite_sync::{may_wait, thread};

/// Most reads in flight.
pub(crate) const RING_ENTRIES: usize = 64;
/// Pause between two looks at a ring that cannot be waited for, in us.
const POLL_US: u64 = 100;

/// One read: where from, and the memory to fill.
pub(crate) struct Request {
    pub(crate) fd: RawFd,
    pub(crate) offset: u64,
    pub(crate) start: *mut u8,
    pub(crate) len: u32,
}

/// The kernel's ring, for reading.
pub(crate) struct Ring {
    ring: IoUring,
}

/// Submitted and not completed. Waits for all of it when it is dropped.
struct InFlight<'r> {
    ring: &'r mut IoUring,
    count: usize,
}

impl InFlight<'_> {
    /// Waits until something has completed.
    fn wait(&mut self) {
        if self.ring.submitter().submit_and_wait(1).is_err() {
            // Interrupted, or short of memory: what is done shows in the ring in any case.
            thread::sleep_us(POLL_US);
        }
    }

    fn next(&mut self) -> Option<(usize, i32)> {
        let done = self.ring.completion().next()?;
        assert!(self.count > 0, "a read has completed twice");
        self.count -= 1;
        Some((done.user_data() as usize, done.result()))
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        while self.count > 0 {
            while self.next().is_some() {}
            if self.count > 0 {
                self.wait();
            }
        }
    }
}

impl Ring {
    /// None where there is no io_uring for us. One may be made and not be used: it is tried.
    pub(crate) fn new() -> Option<Ring> {
        let mut ring = IoUring::new(RING_ENTRIES as u32).ok()?;
        // SAFETY: an entry that does nothing has nothing that must outlast it.
        unsafe { ring.submission().push(&opcode::Nop::new().build()) }.ok()?;
        ring.submit_and_wait(1).ok()?;
        let done = ring.completion().next()?;
        (done.result() >= 0).then_some(Ring { ring })
    }

    /// Reads all of them, at most [`RING_ENTRIES`]; `done` gets the number of each and how many bytes
    /// came, or a negative error number.
    ///
    /// # Safety
    /// Each request's memory is the caller's alone, and its file is open, until this returns.
    pub(crate) unsafe fn read_all(
        &mut self,
        requests: &[Request],
        done: &mut dyn FnMut(usize, i32),
    ) {
        may_wait("read of a file");
        assert!(requests.len() <= RING_ENTRIES, "{} reads", requests.len());
        debug_assert!(self.ring.submission().is_empty(), "reads are left over");
        for (n, request) in requests.iter().enumerate() {
            let entry = opcode::Read::new(types::Fd(request.fd), request.start, request.len)
                .offset(request.offset)
                .build()
                .user_data(n as u64);
            // SAFETY: by the caller's promise the memory and the file outlast the read, which
            // `InFlight` waits for.
            let pushed = unsafe { self.ring.submission().push(&entry) };
            pushed.expect("the ring has room for all");
        }
        // From here on they count as in flight: whoever waits submits what is not submitted yet.
        let mut in_flight = InFlight {
            ring: &mut self.ring,
            count: requests.len(),
        };
        while in_flight.count > 0 {
            match in_flight.next() {
                Some((n, result)) => done(n, result),
                None => in_flight.wait(),
            }
        }
    }
}
