//! Lock-free latency histogram: one bucket per power of two of microseconds.
//!
//! Bucket 0 holds 0 us, bucket k holds `2^(k-1) ..= 2^k - 1` us. All steps are relaxed: a
//! reader sees each record or not, and sums may differ from counts by those in flight.

// Statistics are no part of any model: the real atomics, under loom too.
use std::sync::atomic::{AtomicU64, Ordering};

/// Number of buckets; the last one holds everything above 2^38 us (three days).
pub const BUCKETS: usize = 40;

/// Latencies in microseconds, recorded by any number of threads.
pub struct Histogram {
    buckets: [AtomicU64; BUCKETS],
    sum_us: AtomicU64,
    max_us: AtomicU64,
}

impl Default for Histogram {
    fn default() -> Histogram {
        Histogram::new()
    }
}

impl Histogram {
    /// Number of buckets.
    pub const BUCKETS: usize = BUCKETS;

    /// Empty.
    pub const fn new() -> Histogram {
        Histogram {
            buckets: [const { AtomicU64::new(0) }; BUCKETS],
            sum_us: AtomicU64::new(0),
            max_us: AtomicU64::new(0),
        }
    }

    fn bucket(us: u64) -> usize {
        ((64 - us.leading_zeros()) as usize).min(BUCKETS - 1)
    }

    /// Largest latency (us) that falls into that bucket.
    pub fn bucket_limit_us(bucket: usize) -> u64 {
        if bucket >= BUCKETS - 1 {
            u64::MAX
        } else {
            (1 << bucket) - 1
        }
    }

    /// Records one latency.
    #[inline]
    pub fn record_us(&self, us: u64) {
        self.buckets[Self::bucket(us)].fetch_add(1, Ordering::Relaxed);
        self.sum_us.fetch_add(us, Ordering::Relaxed);
        if us > self.max_us.load(Ordering::Relaxed) {
            self.max_us.fetch_max(us, Ordering::Relaxed);
        }
    }

    /// How many were recorded.
    pub fn count(&self) -> u64 {
        self.buckets.iter().map(|b| b.load(Ordering::Relaxed)).sum()
    }

    /// Their sum.
    pub fn sum_us(&self) -> u64 {
        self.sum_us.load(Ordering::Relaxed)
    }

    /// The longest.
    pub fn max_us(&self) -> u64 {
        self.max_us.load(Ordering::Relaxed)
    }

    /// How many fell into each bucket.
    pub fn counts(&self) -> [u64; BUCKETS] {
        std::array::from_fn(|i| self.buckets[i].load(Ordering::Relaxed))
    }

    /// An upper bound (us) of the latency that `p` percent (0 to 100) stay within: the end
    /// of its bucket, but no more than the longest one. 0 when nothing was recorded.
    pub fn percentile(&self, p: f64) -> u64 {
        let counts = self.counts();
        let total: u64 = counts.iter().sum();
        let wanted = ((total as f64 * p.clamp(0.0, 100.0) / 100.0).ceil() as u64).max(1);
        let mut seen = 0;
        for (i, n) in counts.iter().enumerate() {
            seen += n;
            if seen >= wanted {
                return Self::bucket_limit_us(i).min(self.max_us());
            }
        }
        0
    }
}

impl std::fmt::Debug for Histogram {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (p50, p99) = (self.percentile(50.0), self.percentile(99.0));
        write!(
            f,
            "Histogram(n={} p50={p50}us p99={p99}us max={}us)",
            self.count(),
            self.max_us()
        )
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn percentiles_bound_what_was_recorded() {
        let h = Histogram::new();
        assert_eq!(h.percentile(99.0), 0);
        (0..100).for_each(|us| h.record_us(us));
        h.record_us(5000);
        assert_eq!(
            (h.count(), h.sum_us(), h.max_us()),
            (101, 4950 + 5000, 5000)
        );
        assert_eq!(h.percentile(0.0), 0);
        assert_eq!(h.percentile(50.0), 63);
        assert_eq!(h.percentile(99.0), 127);
        assert_eq!(h.percentile(100.0), 5000);
        h.record_us(u64::MAX);
        assert_eq!(h.percentile(100.0), u64::MAX);
    }
}
