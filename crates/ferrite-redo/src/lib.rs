//! The redo log: one file sequence, one atomic reservation, one flush at a time.

mod shim;

use ferrite_types::{Lsn, Result};
pub use shim::io::{OpenMode, Storage, StorageFile};
use std::sync::Arc;

/// Settings of the log.
#[derive(Clone, Debug)]
pub struct LogConfig {
    /// Bytes of the ring that records are copied into; a power of two.
    pub ring_bytes: usize,
    /// Length of a segment file. An existing log keeps the length it was created with.
    pub segment_bytes: u64,
    /// Bypass the page cache.
    pub direct: bool,
}

impl Default for LogConfig {
    fn default() -> Self {
        LogConfig {
            ring_bytes: 16 << 20,
            segment_bytes: 64 << 20,
            direct: true,
        }
    }
}

/// Where a record went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Appended {
    /// First byte of the record.
    pub start: Lsn,
    /// First byte after the record; the record is durable when `durable_lsn() >= end`.
    pub end: Lsn,
}

/// A record read back.
#[derive(Clone, Copy, Debug)]
pub struct LogRecord<'a> {
    /// First byte of the record.
    pub start: Lsn,
    /// First byte after the record.
    pub end: Lsn,
    /// Its kind (`ferrite_types::format::record_kind`).
    pub kind: u8,
    /// Its content.
    pub body: &'a [u8],
}

/// How a commit was acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommitAck {
    /// The position is durable.
    Done,
    /// The token will be released when the position is durable.
    Deferred,
}

/// Counters of the log.
#[derive(Clone, Debug, Default)]
pub struct LogStats {
    /// Rounds of write and sync.
    pub flushes: u64,
}

/// The log.
pub struct Log {}

#[allow(unused_variables)]
impl Log {
    /// A brand-new log that begins at `start` (a multiple of 8).
    pub fn create(storage: Arc<dyn Storage>, start: Lsn, cfg: LogConfig) -> Result<Arc<Log>> {
        todo!()
    }
    /// Opens an existing log: hands every whole valid record from `from` on to `visit` and
    /// continues after the last one.
    pub fn open(
        storage: Arc<dyn Storage>,
        from: Lsn,
        cfg: LogConfig,
        visit: &mut dyn FnMut(LogRecord<'_>) -> Result<()>,
    ) -> Result<Arc<Log>> {
        todo!()
    }
    /// Reads the records that start in [from, to).
    pub fn scan(
        &self,
        from: Lsn,
        to: Lsn,
        visit: &mut dyn FnMut(LogRecord<'_>) -> Result<()>,
    ) -> Result<()> {
        todo!()
    }
    /// Appends one record.
    pub fn append(&self, kind: u8, parts: &[&[u8]]) -> Appended {
        todo!()
    }
    /// Start of the next record.
    pub fn current_lsn(&self) -> Lsn {
        todo!()
    }
    /// Everything before it survives a crash.
    pub fn durable_lsn(&self) -> Lsn {
        todo!()
    }
    /// Returns when everything before `lsn` is durable.
    pub fn flush_to(&self, lsn: Lsn) {
        todo!()
    }
    /// Asks for a flush without waiting.
    pub fn request_flush(&self, lsn: Lsn) {
        todo!()
    }
    /// Makes a commit durable, alone or in company.
    pub fn commit(
        &self,
        lsn: Lsn,
        company: bool,
        make_token: &mut dyn FnMut() -> Option<usize>,
    ) -> CommitAck {
        todo!()
    }
    /// How deferred tokens are released.
    pub fn set_ack(&self, f: Box<dyn Fn(&[usize]) + Send + Sync>) {
        todo!()
    }
    /// Calls `f` once when everything before `lsn` is durable.
    pub fn notify_when_durable(&self, lsn: Lsn, f: Box<dyn FnOnce() + Send>) {
        todo!()
    }
    /// Deferred tokens not yet released.
    pub fn pending_acks(&self) -> usize {
        todo!()
    }
    /// Nothing before `lsn` will be read again.
    pub fn set_oldest_needed(&self, lsn: Lsn) {
        todo!()
    }
    /// The oldest position that can still be read.
    pub fn oldest_lsn(&self) -> Lsn {
        todo!()
    }
    /// Starts the flusher and the thread that prepares segments.
    pub fn start_threads(self: &Arc<Self>, flush_interval_ms: u32) {
        todo!()
    }
    /// How long a record may wait for a flush nobody asked for.
    pub fn set_flush_interval_ms(&self, ms: u32) {
        todo!()
    }
    /// Flushes everything and ends the threads.
    pub fn stop_threads(&self) {
        todo!()
    }
    /// Err(DiskFull) when the log has nearly no prepared space left.
    pub fn admission(&self) -> Result<()> {
        todo!()
    }
    /// What happens when the log cannot be written.
    pub fn set_fatal(&self, f: Box<dyn Fn(&str) + Send + Sync>) {
        todo!()
    }
    /// Counters.
    pub fn stats(&self) -> LogStats {
        todo!()
    }
}
