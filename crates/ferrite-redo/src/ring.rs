//! The ring between those who append and the one who writes: payload bytes in memory,
//! addressed by LSN.
//!
//! Reservation is one `fetch_add` on `next`. The appender copies its body into the ring and
//! publishes the record by storing its envelope word last (Release). The writer walks from
//! envelope to envelope (Acquire) and stops at the first word that is still zero, so it only
//! ever sees whole records in order, and no appender waits for another's copy. While it
//! copies, the writer stores zeroes behind itself and only then moves `consumed`, so that
//! every free word of the ring is zero when it is reserved again.
//!
//! Invariants: consumed <= next; next - consumed may exceed the ring while appenders wait
//! for space, but a word is written only after start + len - consumed <= ring. Words are
//! relaxed atomics (plain moves on the machine), which keeps this module free of `unsafe`.
//! Locking: none. `drain` is called by one thread at a time (the holder of the writer).

use crate::format::{envelope, MAX_BODY};
use ferrite_sync::atomic::{AtomicU64, Ordering};
use ferrite_sync::CachePadded;

/// See the head of the file.
pub(crate) struct Ring {
    words: Box<[AtomicU64]>,
    next: CachePadded<AtomicU64>,
    consumed: CachePadded<AtomicU64>,
}

impl Ring {
    /// An empty ring; the first record will begin at `start`.
    pub(crate) fn new(bytes: usize, start: u64) -> Ring {
        assert!(bytes.is_power_of_two() && start % 8 == 0);
        let words = (0..bytes / 8).map(|_| AtomicU64::new(0)).collect();
        Ring {
            words,
            next: CachePadded::new(AtomicU64::new(start)),
            consumed: CachePadded::new(AtomicU64::new(start)),
        }
    }

    /// Bytes it holds.
    pub(crate) fn capacity(&self) -> u64 {
        self.words.len() as u64 * 8
    }

    /// Largest body that may be appended.
    pub(crate) fn max_body(&self) -> usize {
        MAX_BODY.min(self.words.len() * 8 / 4)
    }

    /// Start of the next record. Sequentially consistent with reservations.
    pub(crate) fn next(&self) -> u64 {
        self.next.load(Ordering::SeqCst)
    }

    /// Everything before it has left the ring.
    pub(crate) fn consumed(&self) -> u64 {
        self.consumed.load(Ordering::Acquire)
    }

    /// Reserves `bytes` (a multiple of 8) of log.
    pub(crate) fn reserve(&self, bytes: u64) -> u64 {
        debug_assert!(
            bytes % 8 == 0 && (8..=self.capacity()).contains(&bytes),
            "a record of {bytes} bytes in a ring of {}",
            self.capacity()
        );
        self.next.fetch_add(bytes, Ordering::SeqCst)
    }

    #[inline]
    fn word(&self, lsn: u64) -> &AtomicU64 {
        &self.words[(lsn / 8) as usize & (self.words.len() - 1)]
    }

    /// Copies a body behind its (reserved, free) envelope and publishes the record.
    pub(crate) fn fill(&self, start: u64, kind: u8, len: usize, parts: &[&[u8]]) {
        let end = start + 8 + len.next_multiple_of(8) as u64;
        // The reservation is the caller's own: neither can the writer pass it, nor another fill it.
        debug_assert!(self.consumed() <= start, "written before filled: {start}");
        debug_assert!(end - self.consumed() <= self.capacity(), "no space: {end}");
        debug_assert_eq!(self.envelope_at(start), 0, "{start} is filled twice");
        let mut at = start + 8;
        let mut put = |w: u64| {
            self.word(at).store(w, Ordering::Relaxed);
            at += 8;
        };
        let (mut acc, mut bits) = (0u64, 0u32);
        for part in parts {
            let mut chunks = part.chunks_exact(8);
            for c in &mut chunks {
                let w = u64::from_le_bytes([c[0], c[1], c[2], c[3], c[4], c[5], c[6], c[7]]);
                if bits == 0 {
                    put(w);
                } else {
                    put(acc | w << bits);
                    acc = w >> (64 - bits);
                }
            }
            for &b in chunks.remainder() {
                acc |= u64::from(b) << bits;
                bits += 8;
                if bits == 64 {
                    put(acc);
                    (acc, bits) = (0, 0);
                }
            }
        }
        if bits > 0 {
            put(acc);
        }
        debug_assert_eq!(at, end, "a body of another length than {len}");
        self.word(start)
            .store(envelope(kind, len), Ordering::Release);
    }

    /// The envelope at `lsn` (a record boundary), or 0 while nothing is published there.
    pub(crate) fn envelope_at(&self, lsn: u64) -> u64 {
        self.word(lsn).load(Ordering::Acquire)
    }

    /// Copies published words out and clears them; `lsn + out.len()` must be published.
    pub(crate) fn take(&self, lsn: u64, out: &mut [u8]) {
        debug_assert_eq!(out.len() % 8, 0);
        debug_assert!(lsn >= self.consumed(), "{lsn} is taken twice");
        debug_assert!(lsn + out.len() as u64 <= self.next(), "{lsn}: not reserved");
        let mask = self.words.len() - 1;
        for (at, c) in ((lsn / 8) as usize..).zip(out.chunks_exact_mut(8)) {
            let word = &self.words[at & mask];
            c.copy_from_slice(&word.load(Ordering::Relaxed).to_le_bytes());
            word.store(0, Ordering::Relaxed);
        }
    }

    /// Gives everything before `lsn` back to the appenders.
    pub(crate) fn release(&self, lsn: u64) {
        assert!(lsn % 8 == 0, "{lsn} is within a word");
        assert!(lsn >= self.consumed(), "{lsn}: the ring goes back");
        assert!(lsn <= self.next(), "{lsn} was not reserved");
        self.consumed.store(lsn, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::envelope_words;

    #[test]
    fn parts_are_concatenated() {
        let ring = Ring::new(1 << 12, 4000);
        let data: Vec<u8> = (0..300).map(|i| i as u8).collect();
        for cut in 0..40 {
            for cut2 in [cut, cut + 3, cut + 8, 299] {
                let parts = [&data[..cut], &data[cut..cut2], &data[cut2..]];
                let start = ring.reserve(8 + 304);
                ring.fill(start, 3, 300, &parts);
                let w = ring.envelope_at(start);
                assert_eq!(envelope_words(w), 39);
                let mut out = vec![0u8; 39 * 8];
                ring.take(start, &mut out);
                ring.release(start + 312);
                assert_eq!(&out[8..308], &data[..]);
                assert_eq!(&out[308..], &[0; 4]);
                assert_eq!(ring.envelope_at(start), 0);
            }
        }
    }
}
