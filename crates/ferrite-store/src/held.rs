//! Blobs that snapshots hold: they stay where they are when their pages have moved on.
//!
//! A snapshot's *runs* are all granules of the blobs that the map named at its point in time. A
//! granule is *held* if it is in the runs of a snapshot, and *kept* if it is held and would be free
//! otherwise.
//!
//! Invariants: what is held is never given out, since it is in use or kept, and what is kept counts
//! as in use in `runs.rs`. A blob is held wholly or not at all. Runs come from disk at a start,
//! before free space is known (`Store::hold`, then `free_space_known`).
//!
//! What is on disk if we die: nothing of this; the next start reads the snapshots' runs.
//!
//! Locking: under the space lock, but for the runs themselves.

use std::collections::BTreeMap;

use crate::word::{Location, GRANULE_BYTES};

/// Most granules of a run, so that its length is a u32.
const MOST_RUN: u64 = 1 << 30;
/// Runs are joined once there are so many.
const LEAST_JOINED: usize = 4096;

/// Beyond so many runs bits may be shorter.
const FEW_RUNS: usize = 16_000;

/// Granules of many blobs: runs, ascending, with gaps between them.
#[derive(Clone)]
pub struct GranuleRuns {
    form: Form,
}

/// What takes less memory, about.
#[derive(Clone)]
enum Form {
    Runs(Vec<(u64, u32)>),
    Bits(Bits),
}

impl Default for GranuleRuns {
    fn default() -> GranuleRuns {
        GranuleRuns {
            form: Form::Runs(Vec::new()),
        }
    }
}

impl PartialEq for GranuleRuns {
    fn eq(&self, other: &GranuleRuns) -> bool {
        self.runs().eq(other.runs())
    }
}

impl Eq for GranuleRuns {}

impl std::fmt::Debug for GranuleRuns {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.runs()).finish()
    }
}

/// Runs that are being gathered: the places of blobs come one by one, in any order. Those side by side are joined on
/// the way: of blobs that were written in long runs next to nothing is in memory, of others twice the runs at most
/// that those have made which have come. Once a bit for each granule around them is shorter, they are bits.
#[derive(Default)]
pub struct GatheredRuns {
    /// The first `joined` are ascending and joined.
    runs: Vec<(u64, u32)>,
    joined: usize,
    /// Then `runs` is empty.
    bits: Option<Bits>,
}

impl GatheredRuns {
    /// One more blob; nothing for [`Location::NONE`].
    pub fn add(&mut self, at: Location) {
        if !at.is_none() {
            self.add_run(at.granule(), at.granules());
        }
    }

    fn add_run(&mut self, granule: u64, n: u32) {
        if let Some(bits) = &mut self.bits {
            bits.set(granule, n);
            return;
        }
        if self.runs.len() >= LEAST_JOINED.max(2 * self.joined) {
            self.join();
            // Before the next look there may be twice as many.
            let twice = 2 * self.runs.len();
            if twice > FEW_RUNS && Bits::bytes_for(&self.runs) <= bytes_of(twice) {
                let mut bits = Bits::default();
                let runs = std::mem::take(&mut self.runs);
                runs.iter().for_each(|(at, n)| bits.set(*at, *n));
                bits.set(granule, n);
                self.bits = Some(bits);
                return;
            }
        }
        self.runs.push((granule, n));
    }

    /// Of all of them.
    pub fn finish(mut self) -> GranuleRuns {
        if let Some(bits) = self.bits {
            debug_assert!(self.runs.is_empty(), "runs beside bits");
            // What came last may have closed the gaps.
            let form = match bytes_of(bits.runs_from(0).count()) < bits.bytes() {
                true => Form::Runs(bits.runs_from(0).collect()),
                false => Form::Bits(bits),
            };
            return GranuleRuns { form };
        }
        self.join();
        self.runs.shrink_to_fit();
        GranuleRuns {
            form: Form::Runs(self.runs),
        }
    }

    fn join(&mut self) {
        let before = self.runs.len();
        self.runs.sort_unstable();
        let mut joined: usize = 0;
        for at in 0..before {
            let (granule, n) = self.runs[at];
            let last = joined.checked_sub(1).map(|last| &mut self.runs[last]);
            let end = last
                .as_ref()
                .map_or(0, |(start, len)| start + u64::from(*len));
            assert!(granule >= end, "two blobs at granule {granule}");
            match last {
                Some((_, len)) if granule == end && u64::from(*len) + u64::from(n) <= MOST_RUN => {
                    *len += n;
                }
                _ => {
                    self.runs[joined] = (granule, n);
                    joined += 1;
                }
            }
        }
        assert!(joined <= before, "{joined} runs of {before}");
        self.runs.truncate(joined);
        self.joined = joined;
    }
}

impl GranuleRuns {
    /// Of blobs at these places, in any order.
    pub fn of(places: impl Iterator<Item = Location>) -> GranuleRuns {
        let mut gathered = GatheredRuns::default();
        places.for_each(|at| gathered.add(at));
        gathered.finish()
    }

    /// Bytes of the blobs.
    pub fn bytes(&self) -> u64 {
        self.granules() * GRANULE_BYTES as u64
    }

    pub(crate) fn granules(&self) -> u64 {
        match &self.form {
            Form::Runs(runs) => runs.iter().map(|(_, n)| u64::from(*n)).sum(),
            Form::Bits(bits) => bits.count(),
        }
    }

    /// First granules and lengths, ascending.
    pub(crate) fn runs(&self) -> impl Iterator<Item = (u64, u32)> + '_ {
        let (runs, bits) = match &self.form {
            Form::Runs(runs) => (&runs[..], None),
            Form::Bits(bits) => (&[][..], Some(bits)),
        };
        let of_bits = bits.into_iter().flat_map(|bits| bits.runs_from(0));
        runs.iter().copied().chain(of_bits)
    }

    /// The same, one by one.
    pub(crate) fn into_runs(self) -> RunsLeft {
        let left = match self.form {
            Form::Runs(runs) => Left::Runs(runs.into_iter()),
            Form::Bits(bits) => Left::Bits(bits, 0),
        };
        RunsLeft { left }
    }

    /// One past the last granule.
    pub(crate) fn end(&self) -> u64 {
        match &self.form {
            Form::Runs(runs) => runs.last().map_or(0, |(start, n)| start + u64::from(*n)),
            Form::Bits(bits) => bits.end(),
        }
    }

    /// Each run as two numbers: granules since the end of the one before, and its length.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let mut end = 0;
        for (start, n) in self.runs() {
            debug_assert!(start >= end && n > 0, "{n} granules at {start}");
            put_number(start - end, &mut out);
            put_number(u64::from(n), &mut out);
            end = start + u64::from(n);
        }
        debug_assert_eq!(GranuleRuns::decode(&out).as_ref(), Some(self));
        out
    }

    /// None: not what [`encode`](Self::encode) writes.
    pub fn decode(mut bytes: &[u8]) -> Option<GranuleRuns> {
        let mut gathered = GatheredRuns::default();
        let mut end: u64 = 0;
        while !bytes.is_empty() {
            let start = end.checked_add(take_number(&mut bytes)?)?;
            let n = take_number(&mut bytes)?;
            if n == 0 || n > 2 * MOST_RUN || start >= 1 << 40 {
                return None;
            }
            gathered.add_run(start, n as u32);
            end = start + n;
        }
        Some(gathered.finish())
    }

    /// Calls `each` with every word of 64 granules and those of it that are in the runs.
    pub(crate) fn each_word(&self, mut each: impl FnMut(usize, u64)) {
        match &self.form {
            Form::Runs(runs) => {
                let words = runs.iter().flat_map(|(start, n)| words_of_run(*start, *n));
                words.for_each(|(word, mask)| each(word, mask));
            }
            Form::Bits(bits) => bits.words_from(0).for_each(|(word, set)| each(word, set)),
        }
    }
}

/// Runs that are taken out one by one.
pub(crate) struct RunsLeft {
    left: Left,
}

enum Left {
    Runs(std::vec::IntoIter<(u64, u32)>),
    /// From this granule on.
    Bits(Bits, u64),
}

impl RunsLeft {
    /// Those that are left.
    pub(crate) fn all(&self) -> impl Iterator<Item = (u64, u32)> + '_ {
        let (runs, bits) = match &self.left {
            Left::Runs(runs) => (runs.as_slice(), None),
            Left::Bits(bits, from) => (&[][..], Some((bits, *from))),
        };
        let of_bits = bits
            .into_iter()
            .flat_map(|(bits, from)| bits.runs_from(from));
        runs.iter().copied().chain(of_bits)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.all().next().is_none()
    }
}

impl Iterator for RunsLeft {
    type Item = (u64, u32);

    fn next(&mut self) -> Option<(u64, u32)> {
        match &mut self.left {
            Left::Runs(runs) => runs.next(),
            Left::Bits(bits, from) => {
                let (granule, n) = bits.runs_from(*from).next()?;
                *from = granule + u64::from(n);
                Some((granule, n))
            }
        }
    }
}

/// Memory of so many runs.
fn bytes_of(runs: usize) -> usize {
    runs * size_of::<(u64, u32)>()
}

/// Words of 64 granules in a part.
const PART_WORDS: usize = 1024;
/// Granules of a part, 64 MiB of the store.
const PART_GRANULES: u64 = 64 * PART_WORDS as u64;

/// A bit for each granule, in parts; a part of which none is set is not there.
#[derive(Clone, Default)]
struct Bits {
    parts: BTreeMap<u64, Box<[u64; PART_WORDS]>>,
}

impl Bits {
    fn bytes(&self) -> usize {
        self.parts.len() * size_of::<[u64; PART_WORDS]>()
    }

    /// Memory that it takes with these runs, which are ascending.
    fn bytes_for(runs: &[(u64, u32)]) -> usize {
        let mut parts = 0;
        let mut next = 0;
        for (start, n) in runs {
            let (first, last) = (
                start / PART_GRANULES,
                (start + u64::from(*n) - 1) / PART_GRANULES,
            );
            debug_assert!(first + 1 >= next, "runs out of order");
            parts += (last + 1).saturating_sub(first.max(next));
            next = last + 1;
        }
        usize::try_from(parts).map_or(usize::MAX, |n| n.saturating_mul(8 * PART_WORDS))
    }

    fn set(&mut self, granule: u64, n: u32) {
        for (word, mask) in words_of_run(granule, n) {
            let part = self.parts.entry((word / PART_WORDS) as u64);
            let part = part.or_insert_with(|| Box::new([0; PART_WORDS]));
            let bits = &mut part[word % PART_WORDS];
            assert!(*bits & mask == 0, "two blobs at granule {granule}");
            *bits |= mask;
        }
    }

    /// Words of which bits are set, from the granule on, without those before it.
    fn words_from(&self, from: u64) -> impl Iterator<Item = (usize, u64)> + '_ {
        let first = from / PART_GRANULES;
        let first_word = (from / 64) as usize;
        let parts = self.parts.range(first..);
        let words = parts.flat_map(move |(part, words)| {
            let begin = *part as usize * PART_WORDS;
            let skip = first_word.saturating_sub(begin);
            let words = words.iter().enumerate().skip(skip);
            words.map(move |(at, bits)| (begin + at, *bits))
        });
        let words = words.map(move |(word, bits)| match word == first_word {
            true => (word, bits & (u64::MAX << (from % 64))),
            false => (word, bits),
        });
        words.filter(|(_, bits)| *bits != 0)
    }

    /// Runs, from the granule on.
    fn runs_from(&self, from: u64) -> impl Iterator<Item = (u64, u32)> + '_ {
        let in_word = |(word, bits): (usize, u64)| {
            runs_of_word(bits).map(move |(at, n)| (word as u64 * 64 + u64::from(at), n))
        };
        let mut pieces = self.words_from(from).flat_map(in_word).peekable();
        std::iter::from_fn(move || {
            let (start, mut n) = pieces.next()?;
            while let Some((_, more)) = pieces.next_if(|(at, more)| {
                *at == start + u64::from(n) && u64::from(n) + u64::from(*more) <= MOST_RUN
            }) {
                n += more;
            }
            Some((start, n))
        })
    }

    fn count(&self) -> u64 {
        let words = self.parts.values().flat_map(|words| words.iter());
        words.map(|bits| u64::from(bits.count_ones())).sum()
    }

    fn end(&self) -> u64 {
        let last = self.parts.iter().next_back().and_then(|(part, words)| {
            let at = words.iter().rposition(|bits| *bits != 0)?;
            Some((part * PART_WORDS as u64 + at as u64, words[at]))
        });
        last.map_or(0, |(word, bits)| {
            word * 64 + 64 - u64::from(bits.leading_zeros())
        })
    }
}

/// The words of 64 granules that a run lies in, and those of each that are in the run.
fn words_of_run(start: u64, n: u32) -> impl Iterator<Item = (usize, u64)> {
    let (mut at, end) = (start, start + u64::from(n));
    std::iter::from_fn(move || {
        if at == end {
            return None;
        }
        let here = (64 - at % 64).min(end - at);
        let mask = (u64::MAX >> (64 - here)) << (at % 64);
        let word = (at / 64) as usize;
        at += here;
        Some((word, mask))
    })
}

/// Seven bits a byte, the lowest first; the eighth says that more follow.
fn put_number(mut n: u64, out: &mut Vec<u8>) {
    while n >= 0x80 {
        out.push(n as u8 | 0x80);
        n >>= 7;
    }
    out.push(n as u8);
}

fn take_number(bytes: &mut &[u8]) -> Option<u64> {
    let mut n = 0;
    for shift in (0..63).step_by(7) {
        let (first, rest) = bytes.split_first()?;
        *bytes = rest;
        n |= u64::from(first & 0x7f) << shift;
        if first & 0x80 == 0 {
            return Some(n);
        }
    }
    None
}

/// The runs of bits that are set: first bit and length.
pub(crate) fn runs_of_word(mut word: u64) -> impl Iterator<Item = (u32, u32)> {
    std::iter::from_fn(move || {
        if word == 0 {
            return None;
        }
        let at = word.trailing_zeros();
        let n = (!(word >> at)).trailing_zeros();
        let mask = (u64::MAX >> (64 - n)) << at;
        word &= !mask;
        Some((at, n))
    })
}

/// Sets the bits of these granules.
fn set(words: &mut Vec<u64>, runs: &GranuleRuns) {
    let needed = runs.end().div_ceil(64) as usize;
    if words.len() < needed {
        words.resize(needed, 0);
    }
    runs.each_word(|word, mask| words[word] |= mask);
    debug_assert!(words.len() >= needed, "{needed} words");
}

/// What is held, of a store: a bit for each granule, 64 to a word.
#[derive(Default)]
pub(crate) struct Held {
    pub(crate) held: Vec<u64>,
    pub(crate) kept: Vec<u64>,
    pub(crate) kept_granules: u64,
}

/// What several snapshots hold: a bit for each granule, however many they are.
#[derive(Default)]
pub struct StillHeld {
    words: Vec<u64>,
}

impl StillHeld {
    /// One of them.
    pub fn add(&mut self, runs: &GranuleRuns) {
        set(&mut self.words, runs);
    }

    pub(crate) fn word(&self, word: usize) -> u64 {
        self.words.get(word).copied().unwrap_or(0)
    }
}

impl Held {
    pub(crate) fn add(&mut self, runs: &GranuleRuns) {
        set(&mut self.held, runs);
        self.kept.resize(self.held.len(), 0);
        debug_assert!(self.is_sound(), "after more is held");
    }

    /// What is kept is held, and counted.
    pub(crate) fn is_sound(&self) -> bool {
        let both = self.held.iter().zip(&self.kept);
        let kept: u64 = self.kept.iter().map(|w| u64::from(w.count_ones())).sum();
        self.held.len() == self.kept.len()
            && both.into_iter().all(|(held, kept)| kept & !held == 0)
            && kept == self.kept_granules
    }

    /// The blob would be free now: true, and it is kept from here on, if it is held.
    pub(crate) fn keeps(&mut self, granule: u64, n: u32) -> bool {
        if self.held.is_empty() || ferrite_sync::mutant!("store.held_ignored") {
            return false;
        }
        let of_word =
            |(word, mask): (usize, u64)| (self.held.get(word).unwrap_or(&0) & mask).count_ones();
        let found: u32 = words_of_run(granule, n).map(of_word).sum();
        assert!(
            found == 0 || found == n,
            "{found} of {n} granules at {granule} are held"
        );
        if found > 0 {
            for (word, mask) in words_of_run(granule, n) {
                assert!(self.kept[word] & mask == 0, "{granule}+{n} is freed twice");
                self.kept[word] |= mask;
            }
            self.kept_granules += u64::from(n);
        }
        found > 0
    }

    /// How many of these granules, from the first one on, are held like the first one: all or none.
    pub(crate) fn alike(&self, granule: u64, n: u32) -> u32 {
        if self.held.is_empty() {
            return n;
        }
        let held = |word: usize| self.held.get(word).copied().unwrap_or(0);
        let first = held((granule / 64) as usize) >> (granule % 64) & 1;
        let flip = if first == 1 { u64::MAX } else { 0 };
        let mut found = 0;
        for (word, mask) in words_of_run(granule, n) {
            let others = (held(word) ^ flip) & mask;
            if others != 0 {
                found += others.trailing_zeros() - mask.trailing_zeros();
                break;
            }
            found += mask.count_ones();
        }
        assert!(found > 0 && found <= n, "{found} of {n} at {granule}");
        found
    }

    /// What is kept: runs, ascending.
    pub(crate) fn kept_runs(&self) -> Vec<(u64, u32)> {
        let runs = |(at, word): (usize, &u64)| {
            runs_of_word(*word).map(move |(bit, n)| (at as u64 * 64 + u64::from(bit), n))
        };
        self.kept.iter().enumerate().flat_map(runs).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ferrite_types::format::Codec;

    fn runs(of: &[(u64, u32)]) -> GranuleRuns {
        GranuleRuns::of(of.iter().map(|(at, n)| Location::new(*at, *n, Codec::None)))
    }

    /// However they come, and however many are joined on the way.
    #[test]
    fn runs_are_gathered_in_any_order() {
        let mut order: Vec<u64> = (0..5 * LEAST_JOINED as u64).collect();
        order.retain(|n| n % 1000 != 7);
        let mut all = vec![(0, 7 * 8)];
        for n in 0..20 {
            all.push((n * 8000 + 64, 999 * 8));
        }
        all.push((20_000 * 8 + 64, (5 * LEAST_JOINED as u32 - 20_008) * 8));
        for shuffled in [false, true] {
            if shuffled {
                ferrite_sync::random::Rng::new(9).shuffle(&mut order);
            }
            let mut gathered = GatheredRuns::default();
            let mut most = 0;
            for n in &order {
                gathered.add(Location::new(n * 8, 8, Codec::None));
                gathered.add(Location::NONE);
                most = most.max(gathered.runs.len());
            }
            // In any order they are as many as can be when half of them have come.
            let joined = if shuffled { order.len() / 4 } else { 0 };
            let bound = LEAST_JOINED.max(joined * 9 / 4);
            assert!(most <= bound, "{most} runs in memory, more than {bound}");
            assert_eq!(gathered.finish().runs().collect::<Vec<_>>(), all);
        }
        assert_eq!(GatheredRuns::default().finish(), GranuleRuns::default());
    }

    /// Blobs with gaps between them take no more than a bit for each granule around them, and are the same runs.
    #[test]
    fn many_short_runs_are_bits() {
        const BLOBS: u64 = 50_000;
        let far = 1 << 30;
        let mut order: Vec<u64> = (0..BLOBS).collect();
        ferrite_sync::random::Rng::new(9).shuffle(&mut order);
        let blob = |at: u64, n: u32| Location::new(at, n, Codec::None);
        let gather = || {
            let mut gathered = GatheredRuns::default();
            order.iter().for_each(|n| gathered.add(blob(n * 20, 8)));
            gathered.add(blob(far, 1000));
            gathered
        };
        let mut all: Vec<(u64, u32)> = (0..BLOBS).map(|n| (n * 20, 8)).collect();
        all.push((far, 1000));
        let gathered = gather();
        let bits = gathered.bits.as_ref().expect("they are runs");
        assert!(gathered.runs.is_empty() && bits.bytes() < bytes_of(all.len()) / 4);
        let runs = gathered.finish();
        assert_eq!(runs.runs().collect::<Vec<_>>(), all);
        assert_eq!(
            (runs.granules(), runs.end()),
            (BLOBS * 8 + 1000, far + 1000)
        );
        let bytes = runs.encode();
        assert_eq!(GranuleRuns::decode(&bytes), Some(runs.clone()));
        let same = GranuleRuns {
            form: Form::Runs(all.clone()),
        };
        let words = |runs: &GranuleRuns| {
            let mut words = std::collections::BTreeMap::new();
            runs.each_word(|word, mask| *words.entry(word).or_insert(0) |= mask);
            words
        };
        assert!(runs == same && words(&runs) == words(&same));
        let mut left = runs.into_runs();
        for n in 0..all.len() {
            if n % 5000 == 1 {
                assert!(left.all().eq(all[n..].iter().copied()), "{n}");
            }
            assert_eq!((left.is_empty(), left.next()), (false, Some(all[n])));
        }
        assert_eq!((left.is_empty(), left.next()), (true, None));
        // Once the gaps are closed they are one run again.
        let mut gathered = gather();
        order
            .iter()
            .for_each(|n| gathered.add(blob(n * 20 + 8, 12)));
        let runs = gathered.finish();
        assert!(matches!(&runs.form, Form::Runs(runs) if runs.len() == 2));
        let expected = [(0, BLOBS as u32 * 20), (far, 1000)];
        assert_eq!(runs.runs().collect::<Vec<_>>(), expected);
    }

    #[test]
    #[should_panic(expected = "two blobs at granule 20")]
    fn no_blob_is_gathered_twice_among_bits() {
        let mut gathered = GatheredRuns::default();
        for n in 0..20_000 {
            gathered.add(Location::new(n * 20, 8, Codec::None));
        }
        assert!(gathered.bits.is_some());
        gathered.add(Location::new(20, 4, Codec::None));
    }

    #[test]
    #[should_panic(expected = "two blobs at granule 12")]
    fn no_blob_is_gathered_twice() {
        runs(&[(8, 8), (12, 4)]);
    }

    #[test]
    fn a_run_is_held_in_parts() {
        let mut held = Held::default();
        assert_eq!(held.alike(5, 300), 300, "nothing is held");
        held.add(&runs(&[(60, 10), (100, 100)]));
        let parts = |mut at: u64, end: u64| {
            let mut parts = Vec::new();
            while at < end {
                let n = held.alike(at, (end - at) as u32);
                parts.push((at, n));
                at += u64::from(n);
            }
            parts
        };
        let all = [(8, 52), (60, 10), (70, 30), (100, 100), (200, 312)];
        assert_eq!(parts(8, 512), all);
        assert_eq!(parts(64, 128), [(64, 6), (70, 30), (100, 28)]);
    }

    #[test]
    fn runs_are_put_together_and_read_back() {
        let all = runs(&[(300, 3), (4, 8), (12, 4), (1 << 33, 16)]);
        let expected = [(4, 12), (300, 3), (1 << 33, 16)];
        assert_eq!(all.runs().collect::<Vec<_>>(), expected);
        assert_eq!(all.bytes(), 31 * GRANULE_BYTES as u64);
        let bytes = all.encode();
        assert_eq!(GranuleRuns::decode(&bytes), Some(all));
        assert!(GranuleRuns::decode(&bytes[..bytes.len() - 1]).is_none());
        assert_eq!(GranuleRuns::decode(&[]), Some(GranuleRuns::default()));
        assert!(GranuleRuns::decode(&[1, 0]).is_none(), "an empty run");
        assert!(GranuleRuns::decode(&[0xff; 12]).is_none(), "too large");
    }

    #[test]
    fn what_is_held_is_kept_until_nobody_holds_it() {
        let mut held = Held::default();
        assert!(!held.keeps(8, 4));
        held.add(&runs(&[(8, 4), (60, 9)]));
        assert!(held.keeps(60, 9) && !held.keeps(12, 4) && !held.keeps(200, 8));
        assert_eq!(
            (held.kept_granules, held.kept_runs()),
            (9, vec![(60, 4), (64, 5)])
        );
    }
}
