//! Files, behind a trait: the real disk ([`RealStorage`]) and a simulated one with faults
//! ([`sim::SimStorage`]); [`ReadOnly`] is a view of either
//! for tools that must not write, [`Watched`] one that lets no failed sync go by, [`Prefixed`]
//! a part of one, [`Overlay`] one that is written to above another,
//! [`encryption::Encrypted`] one whose files are encrypted.
//!
//! A [`Storage`] is one directory with flat names. Everything above reads and writes
//! through it and nothing else touches files.
//!
//! Invariants:
//! - A write is durable only after a later `sync_data` of its file returned without error;
//!   a created, renamed or removed name only after a later `sync_dir`.
//! - A failed sync leaves unknown which of the earlier writes are durable, for ever: the
//!   caller must stop, never try again.
//! - Every error names the file, the offset and the system's text. No space is
//!   `Error::DiskFull`; nothing else is. A file that is not opened because the system has no more
//!   to give is `Error::Shortage`; nothing else is. To sync takes no file more than are open.
//! - Calls may be made from any number of threads; overlapping writes at the same time end
//!   as either of them, per 512-byte sector.

mod buf;
pub mod encryption;
mod overlay;
mod pass_on;
mod prefixed;
mod queue;
mod readonly;
mod real;
pub mod sim;
mod stats;
mod uring;
mod watched;

use ferrite_sync::Arc;
use ferrite_types::Result;

pub use buf::AlignedBuf;
pub use overlay::Overlay;
pub use prefixed::Prefixed;
pub use queue::{Descriptor, ReadPart, ReadQueue};
pub use readonly::ReadOnly;
pub use real::{is_for_want_of_rights, RealStorage};
pub use stats::IoStats;
pub use watched::Watched;

/// Direct I/O works in multiples of this, at addresses of this alignment, in bytes.
pub const BLOCK_BYTES: usize = 4096;

/// What to open a file for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenMode {
    /// Read and write; the file must be there (`Error::NotFound` if not).
    ReadWrite,
    /// Read and write; the file must not be there (`Error::Exists` if it is).
    CreateNew,
    /// Read only; the file must be there (`Error::NotFound` if not). Writes fail.
    ReadOnly,
}

/// One directory of files.
pub trait Storage: Send + Sync {
    /// Opens a file. With `direct`, past the system's cache: then buffers, offsets and
    /// lengths must be multiples of [`BLOCK_BYTES`] (see [`AlignedBuf`]). A file system
    /// that refuses direct I/O gets buffered I/O instead; `direct_io_active` of the file
    /// says so.
    fn open(&self, name: &str, mode: OpenMode, direct: bool) -> Result<Arc<dyn StorageFile>>;

    /// Whether a file of that name is there.
    fn exists(&self, name: &str) -> Result<bool>;

    /// Removes a file (`Error::NotFound` if it is not there). Open handles stay usable.
    fn remove(&self, name: &str) -> Result<()>;

    /// Renames a file, replacing any file called `to` in one step.
    fn rename(&self, from: &str, to: &str) -> Result<()>;

    /// The names of all files, sorted. The lock file is not among them.
    fn list(&self) -> Result<Vec<String>>;

    /// Makes all names as they are now durable.
    fn sync_dir(&self) -> Result<()>;

    /// Takes the directory for this process until the guard is dropped;
    /// `Error::InUse` names the holder if it can.
    fn lock_exclusive(&self) -> Result<LockGuard>;

    /// Keeps others from taking that file until the guard is dropped: all of them (`alone`), or those
    /// that want it alone. None: somebody has it. On a simulated disk, which one process has, it is nobody's.
    ///
    /// # Errors
    /// `NotFound`; `Io`.
    fn lock_file(&self, _name: &str, _alone: bool) -> Result<Option<LockGuard>> {
        Ok(Some(LockGuard::new(())))
    }

    /// Bytes that can still be allocated on the file system.
    fn free_bytes(&self) -> Result<u64>;

    /// What was read, written and synced through this object so far.
    fn stats(&self) -> &IoStats;

    /// If what is written here is encrypted beneath: a number that tells the key from others, never 0.
    fn key_check(&self) -> Option<u64> {
        None
    }
}

/// One open file.
pub trait StorageFile: Send + Sync {
    /// Fills the buffer from that offset. `Error::Corrupt` when the file ends before.
    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()>;

    /// Writes the buffer at that offset, extending the file if need be. After an error any
    /// part may have been written.
    fn write_at(&self, buf: &[u8], offset: u64) -> Result<()>;

    /// Makes everything written so far durable, and the length if it grew.
    fn sync_data(&self) -> Result<()>;

    /// Length in bytes.
    fn len(&self) -> Result<u64>;

    /// True if the file has no bytes.
    fn is_empty(&self) -> Result<bool> {
        Ok(self.len()? == 0)
    }

    /// Reserves space for that range and extends the file to its end; new bytes read as
    /// zero. `Error::DiskFull` when there is not enough.
    fn allocate(&self, offset: u64, len: u64) -> Result<()>;

    /// Cuts or extends (sparsely) to that length.
    fn truncate(&self, len: u64) -> Result<()>;

    /// Gives the space of that range back; it reads as zero, the length stays. Where the
    /// file system cannot, nothing happens and the call succeeds: do not rely on zeros.
    fn punch_hole(&self, offset: u64, len: u64) -> Result<()>;

    /// The name it was opened by.
    fn name(&self) -> &str;

    /// True if reads and writes pass by the system's cache.
    fn direct_io_active(&self) -> bool;

    /// The open file of the system behind it, if there is one (see [`ReadQueue`]).
    fn descriptor(&self) -> Option<Descriptor<'_>> {
        None
    }

    /// What was read through [`descriptor`](Self::descriptor), as [`read_at`](Self::read_at) would have given it.
    ///
    /// # Errors
    /// `Bug`: it is no such read.
    fn decode(&self, _buf: &mut [u8], _offset: u64) -> Result<()> {
        Ok(())
    }
}

/// Holds a directory for this process; see [`Storage::lock_exclusive`].
pub struct LockGuard {
    _held: Box<dyn std::any::Any + Send + Sync>,
}

impl LockGuard {
    pub(crate) fn new(held: impl std::any::Any + Send + Sync) -> LockGuard {
        LockGuard {
            _held: Box::new(held),
        }
    }
}

impl std::fmt::Debug for LockGuard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("LockGuard")
    }
}
