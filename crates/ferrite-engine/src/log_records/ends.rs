//! Bodies of the records that say how a transaction ends.
//!
//! ```text
//! COMMIT:       txn u48 | count u32            (of an older version: and the values themselves)
//! PREPARE:      txn u48 | xid | count u32      (likewise)
//! ROLLBACK_END: txn u48
//! ```
//! `count`: the values out of line that the transaction lets go of; GARBAGE records before this one
//! name them (`values`).
//!
//! Locking: none.

use crate::log_records::values::decode_values;
use crate::log_records::xid::{encode_xid, Xid};
use ferrite_types::TxnId;

/// Body of a COMMIT record.
pub(crate) fn commit_body(txn: TxnId, values: usize) -> [u8; 10] {
    let mut body = [0; 10];
    body[..6].copy_from_slice(&rollback_body(txn));
    body[6..].copy_from_slice(&count(values));
    debug_assert!(decode_values(&body[6..]).is_ok_and(|(n, _)| n == values));
    body
}

/// Body of a PREPARE record.
pub(crate) fn prepare_body(txn: TxnId, xid: &Xid, values: usize) -> Vec<u8> {
    let mut body = Vec::with_capacity(26 + xid.data.len());
    body.extend_from_slice(&rollback_body(txn));
    encode_xid(xid, &mut body);
    body.extend_from_slice(&count(values));
    debug_assert!(decode_values(&body[body.len() - 4..]).is_ok_and(|(n, _)| n == values));
    body
}

/// Body of a ROLLBACK_END record; the others begin like it.
pub(crate) fn rollback_body(txn: TxnId) -> [u8; 6] {
    assert!(!txn.is_frozen(), "the end of no transaction");
    let mut body = [0; 6];
    assert!(
        txn.0 < 1 << 48,
        "transaction {txn} would be cut off in the log"
    );
    body.copy_from_slice(&txn.0.to_le_bytes()[..6]);
    body
}

fn count(values: usize) -> [u8; 4] {
    u32::try_from(values)
        .expect("fewer values than fit a word: each has a page")
        .to_le_bytes()
}
