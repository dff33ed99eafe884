//! Reading numbers and byte strings from the front of a slice that may be too short.
//!
//! Every decoder of what lies on disk reads through this. Invariants: nothing panics, nothing
//! is allocated, nothing beyond the slice is looked at; after a None the position is where it
//! was. Numbers are little-endian. Locking: none.

/// The part of a slice that was not read yet.
#[derive(Clone, Copy, Debug)]
pub struct ByteReader<'a> {
    rest: &'a [u8],
}

impl<'a> ByteReader<'a> {
    /// Reads `bytes` from its start.
    #[inline]
    pub const fn new(bytes: &'a [u8]) -> ByteReader<'a> {
        ByteReader { rest: bytes }
    }

    /// What was not read yet.
    #[inline]
    pub const fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// True when everything was read.
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// The next `n` bytes.
    #[inline]
    pub fn take(&mut self, n: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(n)?;
        self.rest = rest;
        Some(taken)
    }

    /// The next `N` bytes, as an array.
    #[inline]
    pub fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    /// A byte.
    #[inline]
    pub fn u8(&mut self) -> Option<u8> {
        self.array::<1>().map(|b| b[0])
    }

    /// Two bytes.
    #[inline]
    pub fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }

    /// Four bytes.
    #[inline]
    pub fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    /// Six bytes.
    #[inline]
    pub fn u48(&mut self) -> Option<u64> {
        let low = self.array::<6>()?;
        let mut all = [0; 8];
        all[..6].copy_from_slice(&low);
        Some(u64::from_le_bytes(all))
    }

    /// Eight bytes.
    #[inline]
    pub fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    /// A length (u16) and so many bytes.
    #[inline]
    pub fn bytes16(&mut self) -> Option<&'a [u8]> {
        self.with_length(|r| r.u16().map(u64::from))
    }

    /// A length (u16) and so many bytes of UTF-8, as [`put_text16`] has put them.
    pub fn text16(&mut self) -> Option<String> {
        String::from_utf8(self.bytes16()?.to_vec()).ok()
    }

    /// A length (u32) and so many bytes.
    #[inline]
    pub fn bytes32(&mut self) -> Option<&'a [u8]> {
        self.with_length(|r| r.u32().map(u64::from))
    }

    /// A length (u64) and so many bytes.
    #[inline]
    pub fn bytes64(&mut self) -> Option<&'a [u8]> {
        self.with_length(ByteReader::u64)
    }

    #[inline]
    fn with_length(&mut self, length: impl Fn(&mut Self) -> Option<u64>) -> Option<&'a [u8]> {
        let mut at = *self;
        let n = usize::try_from(length(&mut at)?).ok()?;
        let bytes = at.take(n)?;
        *self = at;
        Some(bytes)
    }
}

/// Puts a length (u16) and the text.
pub fn put_text16(text: &str, out: &mut Vec<u8>) {
    assert!(
        u16::try_from(text.len()).is_ok(),
        "a text of {} bytes",
        text.len()
    );
    out.extend_from_slice(&(text.len() as u16).to_le_bytes());
    out.extend_from_slice(text.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_in_their_order() {
        let bytes: Vec<u8> = (1..=24).collect();
        let mut r = ByteReader::new(&bytes);
        assert_eq!(r.u8(), Some(1));
        assert_eq!(r.u16(), Some(0x0302));
        assert_eq!(r.u32(), Some(0x0706_0504));
        assert_eq!(r.u48(), Some(0x0d0c_0b0a_0908));
        assert_eq!(r.u64(), Some(0x1514_1312_1110_0f0e));
        assert_eq!(r.take(3), Some(&bytes[21..]));
        assert!(r.is_empty());
        assert_eq!(r.take(0), Some(&[][..]));
        assert_eq!(r.u8(), None);
    }

    #[test]
    fn strings_with_their_lengths() {
        let bytes = [2, 0, 7, 8, 1, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, 0];
        let mut r = ByteReader::new(&bytes);
        assert_eq!(r.bytes16(), Some(&[7, 8][..]));
        assert_eq!(r.bytes32(), Some(&[9][..]));
        assert_eq!(r.bytes64(), Some(&[][..]));
    }

    /// A cut or an impossible length gives None and leaves the position where it was.
    #[test]
    fn every_cut_and_every_length() {
        let all = [0xff; 16];
        for cut in 0..all.len() {
            let bytes = &all[..cut];
            let whole = |n: usize| cut >= n;
            let at = ByteReader::new(bytes);
            for (read, n) in [
                ((|r| r.u8().is_some()) as fn(&mut ByteReader) -> bool, 1),
                (|r| r.u16().is_some(), 2),
                (|r| r.u32().is_some(), 4),
                (|r| r.u48().is_some(), 6),
                (|r| r.u64().is_some(), 8),
            ] {
                let mut r = at;
                assert_eq!(read(&mut r), whole(n), "{n} of {cut}");
                assert_eq!(r.rest().len(), if whole(n) { cut - n } else { cut });
            }
            for read in [
                (|r| r.bytes16().is_some()) as fn(&mut ByteReader) -> bool,
                |r| r.bytes32().is_some(),
                |r| r.bytes64().is_some(),
                |r| r.take(usize::MAX).is_some(),
            ] {
                let mut r = at;
                assert!(!read(&mut r));
                assert_eq!(r.rest().len(), cut, "a length of all ones");
            }
        }
    }
}
