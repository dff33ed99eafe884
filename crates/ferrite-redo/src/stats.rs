//! Counters of the log and the picture of them that is given out.
//!
//! Invariants: none beyond monotony; a snapshot is not a cut through one instant.
//! Locking: none.

use ferrite_sync::{Counter, Histogram};

/// Live counters.
#[derive(Default)]
pub(crate) struct Counters {
    pub flushes: Counter,
    pub flushed_bytes: Counter,
    pub writes: Counter,
    pub records: Counter,
    pub inline_flushes: Counter,
    pub deferred: Counter,
    pub waits_ring_full: Counter,
    pub waits_flush: Counter,
    pub waits_segment: Counter,
    pub waits_disk_full: Counter,
    pub waits_admission: Counter,
    pub flusher_wakeups: Counter,
    pub group_waits: Counter,
    pub groups: Histogram,
    pub sync: Histogram,
}

/// A distribution, summed up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Distribution {
    /// Values recorded.
    pub count: u64,
    /// Their sum.
    pub sum: u64,
    /// The largest.
    pub max: u64,
    /// Median, to a power of two.
    pub p50: u64,
    /// 95th percentile, to a power of two.
    pub p95: u64,
    /// 99th percentile, to a power of two.
    pub p99: u64,
}

impl Distribution {
    fn of(h: &Histogram) -> Distribution {
        Distribution {
            count: h.count(),
            sum: h.sum_us(),
            max: h.max_us(),
            p50: h.percentile(50.0),
            p95: h.percentile(95.0),
            p99: h.percentile(99.0),
        }
    }
}

/// Counters of the log since it was opened.
#[derive(Clone, Copy, Debug, Default)]
pub struct LogStats {
    /// Rounds of write and sync that wrote something.
    pub flushes: u64,
    /// Bytes handed to the files, block headers and rewritten tails included.
    pub flushed_bytes: u64,
    /// Calls of write.
    pub writes: u64,
    /// Records appended.
    pub records: u64,
    /// Rounds led by the thread that needed them.
    pub inline_flushes: u64,
    /// Commits whose acknowledgement was deferred.
    pub deferred: u64,
    /// Appends that found the ring full.
    pub waits_ring_full: u64,
    /// Calls that parked until another thread's flush was done.
    pub waits_flush: u64,
    /// Times the writer found its next segment not ready.
    pub waits_segment: u64,
    /// Tries to prepare a segment the writer stood still for, on a full disk.
    pub waits_disk_full: u64,
    /// Times a writer found the prepared space short and helped to prepare more.
    pub waits_admission: u64,
    /// Times the sleeping flusher was woken.
    pub flusher_wakeups: u64,
    /// Times the flusher let a group of commits grow.
    pub group_waits: u64,
    /// Segment files built, recycled and removed.
    pub segments_created: u64,
    /// Segment files renamed to a future segment.
    pub segments_recycled: u64,
    /// Segment files removed.
    pub segments_removed: u64,
    /// Bytes of old content overwritten with zeroes.
    pub scrubbed_bytes: u64,
    /// Acknowledgements per round that released any.
    pub group_size: Distribution,
    /// Microseconds per sync.
    pub sync_us: Distribution,
}

impl Counters {
    pub(crate) fn picture(&self) -> LogStats {
        LogStats {
            flushes: self.flushes.get(),
            flushed_bytes: self.flushed_bytes.get(),
            writes: self.writes.get(),
            records: self.records.get(),
            inline_flushes: self.inline_flushes.get(),
            deferred: self.deferred.get(),
            waits_ring_full: self.waits_ring_full.get(),
            waits_flush: self.waits_flush.get(),
            waits_segment: self.waits_segment.get(),
            waits_disk_full: self.waits_disk_full.get(),
            waits_admission: self.waits_admission.get(),
            flusher_wakeups: self.flusher_wakeups.get(),
            group_waits: self.group_waits.get(),
            segments_created: 0,
            segments_recycled: 0,
            segments_removed: 0,
            scrubbed_bytes: 0,
            group_size: Distribution::of(&self.groups),
            sync_us: Distribution::of(&self.sync),
        }
    }
}
