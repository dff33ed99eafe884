//! The redo log: every change of the database as a record, in one order, durable before it
//! is acknowledged.
//!
//! - `format` fixes the bytes on disk and says why a torn write loses nothing.
//! - `ring` is the memory between appenders and the writer.
//! - `writer` turns records into sectors and flushes them; `flush` decides who does it, and
//!   when commits are acknowledged; `threads` runs it in the background.
//! - `segments` prepares and recycles the files; `reader` scans them.
//! - `log` holds it all together: [`Log`] is what other crates use.
//!
//! Invariants: positions ([`Lsn`](ferrite_types::Lsn)) count payload bytes since the
//! beginning and are multiples of 8 at record boundaries; after any crash the log is a
//! prefix of what was appended that contains everything that was acknowledged durable;
//! a failed write or sync is final (see [`Log::set_fatal`]).
//! Locking: described in `log.rs`; nothing here is called with a lock of this crate held by
//! the caller, and hooks are called without locks of this crate.

mod flush;
mod format;
mod gate;
mod group_wait;
mod guess;
mod log;
#[cfg(all(test, loom))]
mod loom_tests;
mod pace;
mod read_ahead;
mod reader;
mod ring;
mod segments;
mod stats;
mod threads;
mod writer;

pub use gate::{Ack, AckFn};
pub use log::Log;
pub use stats::{Distribution, LogStats};

use ferrite_types::Lsn;

/// Makes the checksums of all sectors right, for fuzz targets: what is behind them is reached.
#[doc(hidden)]
pub fn reseal_for_fuzz(sectors: &mut [u8]) {
    for (number, sector) in sectors.chunks_exact_mut(format::SECTOR).enumerate() {
        format::reseal(sector, number as u64);
    }
}

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

impl LogConfig {
    /// Bytes of the files that have the log from one position to the other.
    pub fn file_bytes(&self, from: Lsn, to: Lsn) -> u64 {
        let geometry = format::Geometry {
            segment_bytes: self.segment_bytes,
        };
        debug_assert!(geometry.segment_payload() > 0, "files of no size");
        match geometry.segment_payload() {
            0 => 0,
            _ if from > to => 0,
            _ => (geometry.segment_of(to.0) - geometry.segment_of(from.0) + 1) * self.segment_bytes,
        }
    }
}

/// What is known of a log before it is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogSpan {
    /// Where to begin: a record start, or the very end.
    pub from: Lsn,
    /// The log was durable up to here once, by the word of somebody else (a checkpoint): a log
    /// that ends before has lost something. `from` when nothing is known.
    pub durable: Lsn,
}

impl From<Lsn> for LogSpan {
    fn from(from: Lsn) -> LogSpan {
        LogSpan {
            from,
            durable: from,
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
