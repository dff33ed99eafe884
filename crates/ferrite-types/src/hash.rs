//! A hash for names and display, the same in every release: FNV-1a, 64 bits (Fowler, Noll, Vo 1991). Not for hash
//! tables that others fill with keys of their choice.
//!
//! Locking: none.

/// Where a hash begins.
pub const FNV_BASIS: u64 = 0xcbf2_9ce4_8422_2325;
const FNV_PRIME: u64 = 0x0100_0000_01b3;

/// Goes on from `hash`, [`FNV_BASIS`] at first, with these bytes.
pub fn fnv1a<'b>(hash: u64, bytes: impl IntoIterator<Item = &'b u8>) -> u64 {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(FNV_PRIME);
    bytes.into_iter().fold(hash, step)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Values of the authors' list.
    #[test]
    fn it_is_fnv1a() {
        assert_eq!(fnv1a(FNV_BASIS, b""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(fnv1a(FNV_BASIS, b"a"), 0xaf63_dc4c_8601_ec8c);
        assert_eq!(
            fnv1a(fnv1a(FNV_BASIS, b"foo"), b"bar"),
            fnv1a(FNV_BASIS, b"foobar")
        );
        assert_eq!(fnv1a(FNV_BASIS, b"foobar"), 0x8594_4171_f739_67e8);
    }
}
