//! Values out of line that a transaction lets go of: how the log tells of them.
//!
//! They are freed after the commit, some time, so a restart must know them. A transaction may
//! let go of any number: they go into GARBAGE records of at most [`AT_ONCE`] values, before
//! the COMMIT or PREPARE, which only counts them. They mean something when a COMMIT follows;
//! a rollback drops them.
//!
//! ```text
//! GARBAGE: txn u48 | count u32 | each: index u32, reference 16 bytes
//! COMMIT:  txn u48 | count u32            (of an older version: and the values themselves)
//! PREPARE: txn u48 | xid | count u32      (likewise)
//! ```
//!
//! Invariant: at each moment a value is known to a checkpoint from one place at least: from its
//! transaction's slot until it is in the purge queue, then from there. The slot's list is exact
//! at a log position like the undo list.
//!
//! Locking: the slot's mutex for one record at a time.

use crate::purge_queue::Value;
use crate::session::Session;
use ferrite_sync::kill_point;
use ferrite_types::format::record_kind;
use ferrite_types::{ByteReader, Error, IndexId, Result, TxnId};

/// Values in one record: 8 KiB.
pub(crate) const AT_ONCE: usize = 400;
/// Bytes of one.
const VALUE_BYTES: usize = 20;

/// Appends references of values out of line: count u32, each: index u32, reference 16 bytes.
pub(crate) fn encode_values(values: &[Value], out: &mut Vec<u8>) {
    out.extend_from_slice(&(values.len() as u32).to_le_bytes());
    for (index, reference) in values {
        out.extend_from_slice(&index.0.to_le_bytes());
        out.extend_from_slice(reference);
    }
}

/// Body of a COMMIT record.
pub(crate) fn commit_body(txn: TxnId, values: usize) -> [u8; 10] {
    let mut body = [0; 10];
    body[..6].copy_from_slice(&txn.0.to_le_bytes()[..6]);
    body[6..].copy_from_slice(&(values as u32).to_le_bytes());
    body
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
            list.push((IndexId(r.u32()?), r.array()?));
        }
        Some((count, list))
    };
    read().ok_or_else(|| Error::Corrupt("log: a list of values cannot be read".into()))
}

impl Session {
    /// Logs what the transaction lets go of, and puts it into the slot. Nothing is locked for
    /// longer than one record takes.
    pub(crate) fn log_values(&self) {
        let at_once = match ferrite_sync::mutant!("commit.values_unbounded") {
            true => usize::MAX,
            false => AT_ONCE,
        };
        let overflow = self.garbage.iter().filter_map(|(_, g)| g.overflow());
        let mut values = overflow.map(|(index, reference)| (index, *reference));
        let (mut part, mut body) = (Vec::new(), Vec::new());
        loop {
            part.clear();
            part.extend(values.by_ref().take(at_once));
            if part.is_empty() {
                return;
            }
            body.clear();
            body.extend_from_slice(&self.txn.0.to_le_bytes()[..6]);
            encode_values(&part, &mut body);
            let mut state = self.slot.state.lock();
            self.engine.log.append(record_kind::GARBAGE, &[&body]);
            state.garbage.extend_from_slice(&part);
            drop(state);
            kill_point!("commit.values_logged");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_this_version_and_of_older_ones() {
        let values = [(IndexId(3), [7; 16]), (IndexId(4), [8; 16])];
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
