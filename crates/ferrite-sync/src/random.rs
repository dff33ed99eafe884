//! Randomness: good enough for choices and back-off, not for secrets.
//!
//! [`Rng`] is xoshiro256++ seeded by splitmix64; the same seed gives the same numbers on
//! every machine. [`next_u64`] draws from a generator per thread, in a simulation from the
//! run's seed.

use std::cell::RefCell;

use crate::hook;

/// A seeded generator.
#[derive(Clone, Debug)]
pub struct Rng {
    s: [u64; 4],
}

/// One step of splitmix64: a good scrambler for seeds and small hashes.
#[inline]
pub fn splitmix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

impl Rng {
    /// A generator; any seed is fine.
    pub fn new(seed: u64) -> Rng {
        let mut x = seed;
        Rng {
            s: std::array::from_fn(|_| splitmix(&mut x)),
        }
    }

    /// The next 64 bits.
    #[inline]
    pub fn next_u64(&mut self) -> u64 {
        let s = &mut self.s;
        let out = s[0].wrapping_add(s[3]).rotate_left(23).wrapping_add(s[0]);
        let t = s[1] << 17;
        s[2] ^= s[0];
        s[3] ^= s[1];
        s[1] ^= s[2];
        s[0] ^= s[3];
        s[2] ^= t;
        s[3] = s[3].rotate_left(45);
        out
    }

    /// Uniform in `0..n` (0 when `n` is 0).
    #[inline]
    pub fn below(&mut self, n: u64) -> u64 {
        ((u128::from(self.next_u64()) * u128::from(n)) >> 64) as u64
    }

    /// Uniform in `lo..=hi`; `lo` when the range is empty.
    #[inline]
    pub fn between(&mut self, lo: u64, hi: u64) -> u64 {
        lo + self.below(hi.saturating_sub(lo).saturating_add(1))
    }

    /// True `num` times out of `den`.
    #[inline]
    pub fn chance(&mut self, num: u64, den: u64) -> bool {
        self.below(den) < num
    }

    /// Puts a slice in random order.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for i in (1..items.len()).rev() {
            items.swap(i, self.below(i as u64 + 1) as usize);
        }
    }

    /// Fills a buffer with random bytes.
    pub fn fill(&mut self, buf: &mut [u8]) {
        for chunk in buf.chunks_mut(8) {
            let bytes = self.next_u64().to_le_bytes();
            chunk.copy_from_slice(&bytes[..chunk.len()]);
        }
    }
}

fn seed_from_system() -> u64 {
    let mut seed = 0u64;
    // SAFETY: the buffer is the eight bytes of `seed`, which outlives the call.
    let n = unsafe { libc::getrandom((&raw mut seed).cast(), 8, 0) };
    if n == 8 {
        seed
    } else {
        crate::time::unix_us() ^ (&raw const seed as u64)
    }
}

thread_local! {
    static OWN: RefCell<Rng> = RefCell::new(Rng::new(seed_from_system()));
}

/// 64 random bits from this thread's generator.
pub fn next_u64() -> u64 {
    if let Some(n) = hook::random_u64() {
        return n;
    }
    OWN.try_with(|r| r.borrow_mut().next_u64())
        .unwrap_or_else(|_| seed_from_system())
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn same_seed_same_numbers_and_bounds_hold() {
        let (mut a, mut b) = (Rng::new(1), Rng::new(1));
        for n in 1..2000u64 {
            assert_eq!(a.next_u64(), b.next_u64());
            assert!(a.below(n) < n && b.below(n) < n);
        }
        assert_eq!(a.below(0), 0);
        assert!((0..100).all(|_| a.chance(1, 1) && !a.chance(0, 5)));
        let hits = (0..10_000).filter(|_| a.chance(1, 4)).count();
        assert!((2200..2800).contains(&hits), "{hits}");
        assert_ne!(next_u64(), next_u64());
    }
}
