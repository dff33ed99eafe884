//! Values out of line that a transaction lets go of: how the log tells of them.
//!
//! They are freed after the commit, some time, so a restart must know them. A transaction may
//! let go of any number: they go into GARBAGE records of at most [`AT_ONCE`] values, before
//! the COMMIT or PREPARE, which only counts them. They mean something when a COMMIT follows;
//! a rollback drops them.
//!
//! ```text
//! GARBAGE: txn u48 | count u32 | each: index u32, reference 16 bytes
//! ```
//!
//! Locking: none.

use ferrite_types::{ByteReader, Error, IndexId, OverflowRef, Result};

/// A value out of line: its index and its reference.
pub(crate) type Value = (IndexId, OverflowRef);

/// Values in one record: 8 KiB.
pub(crate) const AT_ONCE: usize = 400;
/// Bytes of one.
const VALUE_BYTES: usize = 20;
/// Log that one takes, with its share of a full record.
pub(crate) const LOGGED_BYTES: u64 = 24;
const _: () = assert!(LOGGED_BYTES as usize * AT_ONCE >= 32 + VALUE_BYTES * AT_ONCE);

/// Appends references of values out of line: count u32, each: index u32, reference 16 bytes.
pub(crate) fn encode_values(values: &[Value], out: &mut Vec<u8>) {
    let start = out.len();
    assert!(
        u32::try_from(values.len()).is_ok(),
        "{} values",
        values.len()
    );
    out.extend_from_slice(&(values.len() as u32).to_le_bytes());
    for (index, reference) in values {
        out.extend_from_slice(&index.0.to_le_bytes());
        out.extend_from_slice(reference.bytes());
    }
    assert_eq!(out.len() - start, 4 + values.len() * VALUE_BYTES);
    debug_assert!(
        decode_values(&out[start..]).is_ok_and(|(n, list)| n == values.len() && list == values),
        "a list of values reads differently"
    );
}

/// What a COMMIT, PREPARE or GARBAGE record says of values: how many, and those it lists.
pub(crate) fn decode_values(bytes: &[u8]) -> Result<(usize, Vec<Value>)> {
    let mut r = ByteReader::new(bytes);
    let mut read = || -> Option<(usize, Vec<Value>)> {
        let count = r.u32()? as usize;
        let listed = bytes.len() - 4;
        // None, or all: nothing between.
        if listed != 0 && listed != count.checked_mul(VALUE_BYTES)? {
            return None;
        }
        let mut list = Vec::with_capacity(listed / VALUE_BYTES);
        for _ in 0..listed / VALUE_BYTES {
            list.push((IndexId(r.u32()?), OverflowRef::from_bytes(r.array()?)));
        }
        Some((count, list))
    };
    read().ok_or_else(|| Error::Corrupt("log: a list of values cannot be read".into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log_records::ends::commit_body;
    use ferrite_types::TxnId;

    #[test]
    fn lists_of_this_version_and_of_older_ones() {
        let values = [3, 4].map(|n| (IndexId(n), OverflowRef::from_bytes([n as u8; 16])));
        let mut listed = Vec::new();
        encode_values(&values, &mut listed);
        assert_eq!(decode_values(&listed).unwrap(), (2, values.to_vec()));
        let counted = commit_body(TxnId(5), 2);
        assert_eq!(decode_values(&counted[6..]).unwrap(), (2, Vec::new()));
        for cut in (0..listed.len()).filter(|cut| *cut != 4) {
            decode_values(&listed[..cut]).unwrap_err();
        }
        decode_values(&[255; 24]).unwrap_err();
    }
}
