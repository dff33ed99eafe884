//! The server's name of a distributed transaction, and its encoding in PREPARE records and
//! checkpoints.
//!
//! Locking: none.

use ferrite_types::{Error, Result};

/// The server's name of a distributed transaction.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Xid {
    /// Format id.
    pub format_id: i64,
    /// Length of the first part of `data`.
    pub gtrid_len: u32,
    /// gtrid and bqual, up to 128 bytes.
    pub data: Vec<u8>,
}

/// Appends an xid: format id i64, gtrid length u32, data length u32, data.
pub(crate) fn encode_xid(xid: &Xid, out: &mut Vec<u8>) {
    let start = out.len();
    out.extend_from_slice(&xid.format_id.to_le_bytes());
    out.extend_from_slice(&xid.gtrid_len.to_le_bytes());
    out.extend_from_slice(&(xid.data.len() as u32).to_le_bytes());
    out.extend_from_slice(&xid.data);
    debug_assert!(
        decode_xid(&out[start..]).is_ok_and(|(x, used)| x == *xid && used == out.len() - start),
        "an xid reads differently"
    );
}

/// Reads what [`encode_xid`] wrote; returns it and the bytes used.
pub(crate) fn decode_xid(bytes: &[u8]) -> Result<(Xid, usize)> {
    let fault = || Error::Corrupt("log: an xid cannot be read".into());
    let head = bytes.get(..16).ok_or_else(fault)?;
    let len = u32::from_le_bytes([head[12], head[13], head[14], head[15]]) as usize;
    let mut format = [0; 8];
    format.copy_from_slice(&head[..8]);
    let data = bytes.get(16..16 + len).ok_or_else(fault)?.to_vec();
    let xid = Xid {
        format_id: i64::from_le_bytes(format),
        gtrid_len: u32::from_le_bytes([head[8], head[9], head[10], head[11]]),
        data,
    };
    Ok((xid, 16 + len))
}
