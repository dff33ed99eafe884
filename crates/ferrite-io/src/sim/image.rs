//! Sparse contents of one simulated file, and a set of ranges.
//!
//! Invariants: chunks that are not there read as zero; no chunk starts at or after the
//! length, and bytes of the last chunk beyond the length are zero. Chunks are shared
//! between images (live, durable, snapshots) and copied when written.

use std::collections::BTreeMap;
use std::ops::Range;

use ferrite_sync::Arc;

/// Bytes of one chunk.
pub const CHUNK: u64 = 4096;

/// What a simulated device writes in one piece, or not at all.
pub const SECTOR: u64 = 512;

#[derive(Clone, Default)]
pub struct Image {
    chunks: BTreeMap<u64, Arc<[u8; CHUNK as usize]>>,
    len: u64,
}

impl Image {
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Parts of a byte range by chunk: chunk number, range within it, range within the
    /// whole.
    fn parts(offset: u64, len: usize) -> impl Iterator<Item = (u64, Range<usize>, Range<usize>)> {
        let mut done = 0usize;
        std::iter::from_fn(move || {
            if done == len {
                return None;
            }
            let at = offset + done as u64;
            let start = (at % CHUNK) as usize;
            let n = (CHUNK as usize - start).min(len - done);
            done += n;
            Some((at / CHUNK, start..start + n, done - n..done))
        })
    }

    /// Reads what is there; bytes beyond the length read as zero.
    pub fn read(&self, buf: &mut [u8], offset: u64) {
        for (chunk, within, whole) in Self::parts(offset, buf.len()) {
            match self.chunks.get(&chunk) {
                Some(bytes) => buf[whole].copy_from_slice(&bytes[within]),
                None => buf[whole].fill(0),
            }
        }
    }

    /// Writes, extending the length if need be.
    pub fn write(&mut self, bytes: &[u8], offset: u64) {
        for (chunk, within, whole) in Self::parts(offset, bytes.len()) {
            let c = self
                .chunks
                .entry(chunk)
                .or_insert_with(|| Arc::new([0; CHUNK as usize]));
            Arc::make_mut(c)[within].copy_from_slice(&bytes[whole]);
        }
        self.len = self.len.max(offset + bytes.len() as u64);
    }

    pub fn set_len(&mut self, len: u64) {
        if len < self.len {
            let keep = len.div_ceil(CHUNK);
            self.chunks.split_off(&keep);
            if len % CHUNK != 0 {
                if let Some(c) = self.chunks.get_mut(&(len / CHUNK)) {
                    Arc::make_mut(c)[(len % CHUNK) as usize..].fill(0);
                }
            }
        }
        self.len = len;
    }

    /// The range reads as zero; the length stays.
    pub fn punch(&mut self, offset: u64, len: u64) {
        let end = offset.saturating_add(len).min(self.len);
        if offset >= end {
            return;
        }
        let whole = offset.div_ceil(CHUNK)..end / CHUNK;
        if whole.start < whole.end {
            let tail = self.chunks.split_off(&whole.start);
            self.chunks
                .extend(tail.into_iter().filter(|(c, _)| *c >= whole.end));
        }
        let mut at = offset;
        while at < end {
            let stop = ((at / CHUNK + 1) * CHUNK).min(end);
            if let Some(c) = self.chunks.get_mut(&(at / CHUNK)) {
                let start = (at % CHUNK) as usize;
                Arc::make_mut(c)[start..start + (stop - at) as usize].fill(0);
                at = stop;
            } else {
                // Jump to the next chunk that is there.
                let next = self
                    .chunks
                    .range(at / CHUNK..)
                    .next()
                    .map_or(end, |(c, _)| c * CHUNK);
                at = next.max(stop);
            }
        }
    }

    /// The chunks that hold bytes.
    pub fn chunk_numbers(&self) -> impl Iterator<Item = u64> + '_ {
        self.chunks.keys().copied()
    }
}

/// A set of numbers as ranges that neither overlap nor touch.
#[derive(Clone, Default)]
pub struct RangeSet {
    ranges: BTreeMap<u64, u64>,
    total: u64,
}

impl RangeSet {
    /// How many numbers are in the set.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// How many numbers of the range are not in the set.
    pub fn missing(&self, r: Range<u64>) -> u64 {
        let mut covered = 0;
        let before = self.ranges.range(..r.start).next_back();
        for (start, end) in before.into_iter().chain(self.ranges.range(r.clone())) {
            covered += (*end).min(r.end).saturating_sub((*start).max(r.start));
        }
        r.end.saturating_sub(r.start) - covered
    }

    pub fn insert(&mut self, r: Range<u64>) {
        if r.start >= r.end {
            return;
        }
        self.total += self.missing(r.clone());
        let (mut start, mut end) = (r.start, r.end);
        if let Some((s, e)) = self.ranges.range(..=start).next_back() {
            if *e >= start {
                start = *s;
                end = end.max(*e);
            }
        }
        while let Some((s, e)) = self.ranges.range(start..=end).next().map(|(s, e)| (*s, *e)) {
            self.ranges.remove(&s);
            end = end.max(e);
        }
        self.ranges.insert(start, end);
    }

    pub fn remove(&mut self, r: Range<u64>) {
        if r.start >= r.end {
            return;
        }
        self.total -= (r.end - r.start) - self.missing(r.clone());
        if let Some((s, e)) = self
            .ranges
            .range(..r.start)
            .next_back()
            .map(|(s, e)| (*s, *e))
        {
            if e > r.start {
                self.ranges.insert(s, r.start);
                if e > r.end {
                    self.ranges.insert(r.end, e);
                }
            }
        }
        while let Some((s, e)) = self.ranges.range(r.clone()).next().map(|(s, e)| (*s, *e)) {
            self.ranges.remove(&s);
            if e > r.end {
                self.ranges.insert(r.end, e);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ferrite_sync::random::Rng;

    #[test]
    fn image_is_like_a_vector() {
        let mut rng = Rng::new(3);
        let (mut image, mut model) = (Image::default(), Vec::<u8>::new());
        for step in 0..2000u64 {
            let at = rng.below(40_000);
            let n = rng.below(9_000) as usize;
            match rng.below(8) {
                0 => {
                    image.set_len(at);
                    model.resize(at as usize, 0);
                }
                1 => {
                    image.punch(at, n as u64);
                    let end = model.len().min(at as usize + n);
                    model
                        .get_mut(at as usize..end)
                        .map(|s| s.fill(0))
                        .unwrap_or(());
                }
                _ => {
                    let bytes = vec![step as u8; n.max(1)];
                    image.write(&bytes, at);
                    model.resize(model.len().max(at as usize + bytes.len()), 0);
                    model[at as usize..at as usize + bytes.len()].copy_from_slice(&bytes);
                }
            }
            assert_eq!(image.len(), model.len() as u64);
            let mut all = vec![1; model.len() + 100];
            image.read(&mut all, 0);
            assert!(all[..model.len()] == model[..] && all[model.len()..].iter().all(|b| *b == 0));
        }
    }

    #[test]
    fn ranges_are_like_a_set() {
        let mut rng = Rng::new(4);
        let (mut set, mut model) = (RangeSet::default(), std::collections::BTreeSet::new());
        for _ in 0..3000 {
            let start = rng.below(200);
            let r = start..start + rng.below(30);
            assert_eq!(
                set.missing(r.clone()),
                r.clone().filter(|n| !model.contains(n)).count() as u64
            );
            if rng.chance(1, 2) {
                set.insert(r.clone());
                model.extend(r);
            } else {
                set.remove(r.clone());
                model.retain(|n| !r.contains(n));
            }
            assert_eq!(set.total(), model.len() as u64);
        }
    }
}
