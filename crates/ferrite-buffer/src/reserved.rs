//! A range of addresses of which a growing front part is memory.
//!
//! The addresses are reserved once, for the largest size there may ever be, and never move: what
//! points into them stays right when the part in use grows or shrinks.
//!
//! Invariant: bytes `0..open` may be read and written; `open` never goes down. Locking: none here;
//! [`Reserved::open_to`] is called by one thread at a time.

use ferrite_sync::atomic::{AtomicUsize, Ordering};
use ferrite_types::{Error, Result};

/// The system's own pages, as large as on any platform that the engine runs on.
const GRAIN_BYTES: usize = 64 << 10;

pub(crate) struct Reserved {
    base: *mut u8,
    bytes: usize,
    open: AtomicUsize,
}

// SAFETY: plain memory; who hands out references into it serialises access.
unsafe impl Send for Reserved {}
// SAFETY: as above.
unsafe impl Sync for Reserved {}

impl Reserved {
    /// Addresses for `bytes` bytes, none of them memory yet.
    ///
    /// # Errors
    /// `BadConfig` when the system has no such range.
    pub(crate) fn new(bytes: usize) -> Result<Reserved> {
        assert!(bytes > 0, "nothing to reserve");
        let bytes = bytes.next_multiple_of(GRAIN_BYTES);
        // SAFETY: an anonymous private mapping without a fixed address has no preconditions.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                bytes,
                libc::PROT_NONE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(Error::BadConfig(format!(
                "buffer_pool_size: cannot map {bytes} bytes of memory"
            )));
        }
        // SAFETY: the range was just mapped. Not to be in a core file is a wish.
        unsafe { libc::madvise(base, bytes, libc::MADV_DONTDUMP) };
        Ok(Reserved {
            base: base.cast(),
            bytes,
            open: AtomicUsize::new(0),
        })
    }

    /// The front part up to `bytes` is memory from here on; it was zero if it never was before.
    ///
    /// # Errors
    /// `BadConfig` when the system refuses the memory; nothing has changed then.
    pub(crate) fn open_to(&self, bytes: usize) -> Result<()> {
        let to = bytes.next_multiple_of(GRAIN_BYTES);
        let from = self.open.load(Ordering::Relaxed);
        assert!(to <= self.bytes, "{to} of {} bytes", self.bytes);
        if to <= from {
            return Ok(());
        }
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: within the mapping; both ends are multiples of the system's page.
        let refused = unsafe { libc::mprotect(self.base.add(from).cast(), to - from, access) };
        if refused != 0 {
            return Err(Error::BadConfig(format!(
                "buffer_pool_size: the system refuses {} more bytes of memory",
                to - from
            )));
        }
        // SAFETY: as above. Huge pages are a wish; a refusal changes nothing.
        unsafe { libc::madvise(self.base.add(from).cast(), to - from, libc::MADV_HUGEPAGE) };
        self.open.store(to, Ordering::Release);
        Ok(())
    }

    /// The memory of these bytes goes back to the system; they stay readable, and their content is lost.
    ///
    /// # Safety
    /// Nobody has a reference into the range, and its content is not needed.
    pub(crate) unsafe fn give_back(&self, from: usize, to: usize) {
        let open = self.open.load(Ordering::Acquire);
        assert!(from <= to && to <= open, "{from}..{to} of {open}");
        let first = from.next_multiple_of(GRAIN_BYTES);
        if first < to {
            // SAFETY: in range; nobody looks, by the caller's promise.
            unsafe { libc::madvise(self.base.add(first).cast(), to - first, libc::MADV_DONTNEED) };
        }
    }

    /// Bytes that may be read and written.
    pub(crate) fn open_bytes(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }

    /// The first byte.
    pub(crate) fn base(&self) -> *mut u8 {
        self.base
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        // SAFETY: the mapping was made by `new` with this length and is dropped once.
        unsafe { libc::munmap(self.base.cast(), self.bytes) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_given_back_can_be_used_again() {
        let memory = Reserved::new(1 << 30).unwrap();
        memory.open_to(1 << 20).unwrap();
        memory.open_to(1 << 19).unwrap();
        assert_eq!(memory.open_bytes(), 1 << 20, "it does not shrink");
        // SAFETY: offsets below what is open.
        let at = |offset: usize| unsafe { memory.base().add(offset) };
        // SAFETY: open, and nobody else has the memory.
        unsafe {
            at(100).write(1);
            at((1 << 20) - 1).write(2);
            memory.give_back(1 << 19, 1 << 20);
            assert_eq!((at(100).read(), at((1 << 20) - 1).read()), (1, 0));
            at((1 << 20) - 1).write(3);
            assert_eq!(at((1 << 20) - 1).read(), 3);
        }
    }

    #[test]
    fn more_than_there_can_be_is_an_error() {
        let fault = Reserved::new(usize::MAX / 2).map(|_| ()).unwrap_err();
        assert!(fault.to_string().contains("cannot map"), "{fault}");
    }
}
