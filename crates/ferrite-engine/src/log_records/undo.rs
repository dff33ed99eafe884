//! The undo entry: how to take one change of one index entry back, and the opening of a
//! mini-transaction's body that carries it.
//!
//! ```text
//! body of MINI_TXN:  kind u8 | ... | page operations (ferrite_tree::op)
//!   kind 0  nothing more
//!   kind 1  txn u48 | undo length u32 | undo entry          (a change)
//!   kind 2  txn u48 | undo left u64                         (a change taken back)
//! undo entry:
//!   kind 1 INSERT    index u32 | key length u16 | key
//!   kind 2 UPDATE    index u32 | key length u16 | key | prior flags u8 | prior txn u48
//!                    | keep head u16 | keep tail u16 | mid length u16 | mid
//!   kind 3 OVERFLOW  index u32 | page u32
//!   kind 4 PUT       index u32 | key length u16 | key
//!   kind 5 MARK      index u32 | key length u16 | key
//! ```
//! The prior value is `new[..keep head] + mid + new[len - keep tail..]`.
//! In a transaction's undo list (see the `undo_list` room) every entry is followed by its length
//! (u32), so that the list is read backwards; a position in it (savepoint, "undo left") counts
//! bytes.

use ferrite_types::{ByteReader, Error, IndexId, PageId, Result, TxnId, UndoPosition};

const PLAIN: u8 = 0;
const CHANGE: u8 = 1;
const UNDONE: u8 = 2;

const INSERT: u8 = 1;
const UPDATE: u8 = 2;
const OVERFLOW: u8 = 3;
const PUT: u8 = 4;
const MARK: u8 = 5;

/// Opening of a mini-transaction that needs no undo.
pub const NO_UNDO: &[u8] = &[PLAIN];

/// One entry, decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Undo<'a> {
    /// The entry was not there: remove it.
    Insert {
        /// Index.
        index: IndexId,
        /// Whole key.
        key: &'a [u8],
    },
    /// The entry was there in another state: restore it.
    Update {
        /// Index.
        index: IndexId,
        /// Whole key.
        key: &'a [u8],
        /// State before.
        prior: Prior<'a>,
    },
    /// A page of an overflow value was made: free it.
    Overflow {
        /// Index.
        index: IndexId,
        /// The page.
        page: PageId,
    },
    /// The entry was made without a look at its place: remove it, or restore what its version says.
    Put {
        /// Index.
        index: IndexId,
        /// Whole key.
        key: &'a [u8],
    },
    /// The entry, which another transaction had made, was delete-marked without a look at it: make it live
    /// again, as its version says, or for everybody.
    Mark {
        /// Index.
        index: IndexId,
        /// Whole key.
        key: &'a [u8],
    },
}

impl Undo<'_> {
    /// Index the change was made in.
    pub fn index(&self) -> IndexId {
        match *self {
            Undo::Insert { index, .. } | Undo::Update { index, .. } => index,
            Undo::Put { index, .. } | Undo::Mark { index, .. } => index,
            Undo::Overflow { index, .. } => index,
        }
    }
}

/// The state of an entry before a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prior<'a> {
    /// It was delete-marked.
    pub deleted: bool,
    /// Who had made it.
    pub txn: TxnId,
    /// Bytes the value shares with the new one at the front.
    pub keep_head: u16,
    /// ... and at the end.
    pub keep_tail: u16,
    /// What was between.
    pub mid: &'a [u8],
}

impl Prior<'_> {
    /// The prior value, from the value that replaced it.
    pub fn value(&self, newer: &[u8], out: &mut Vec<u8>) -> Result<()> {
        let (head, tail) = (self.keep_head as usize, self.keep_tail as usize);
        if head + tail > newer.len() {
            return Err(Error::Corrupt("undo entry does not fit its record".into()));
        }
        out.clear();
        out.extend_from_slice(&newer[..head]);
        out.extend_from_slice(self.mid);
        out.extend_from_slice(&newer[newer.len() - tail..]);
        Ok(())
    }
}

fn put_u48(n: u64, out: &mut Vec<u8>) {
    assert!(n < 1 << 48, "{n} would be cut off in the log");
    out.extend_from_slice(&n.to_le_bytes()[..6]);
}

fn put_key(kind: u8, index: IndexId, key: &[u8], out: &mut Vec<u8>) {
    assert!(key.len() <= usize::from(u16::MAX), "a key of {}", key.len());
    debug_assert!(index.0 != 0, "a change in no index");
    out.push(kind);
    out.extend_from_slice(&index.0.to_le_bytes());
    out.extend_from_slice(&(key.len() as u16).to_le_bytes());
    out.extend_from_slice(key);
}

/// Encodes an entry.
pub fn encode(undo: &Undo<'_>, out: &mut Vec<u8>) {
    let start = out.len();
    match *undo {
        Undo::Insert { index, key } => put_key(INSERT, index, key, out),
        Undo::Put { index, key } => put_key(PUT, index, key, out),
        Undo::Mark { index, key } => put_key(MARK, index, key, out),
        Undo::Update { index, key, prior } => {
            let mid = prior.mid.len();
            assert!(mid <= usize::from(u16::MAX), "{mid} bytes of a value");
            put_key(UPDATE, index, key, out);
            out.push(u8::from(prior.deleted));
            put_u48(prior.txn.0, out);
            out.extend_from_slice(&prior.keep_head.to_le_bytes());
            out.extend_from_slice(&prior.keep_tail.to_le_bytes());
            out.extend_from_slice(&(prior.mid.len() as u16).to_le_bytes());
            out.extend_from_slice(prior.mid);
        }
        Undo::Overflow { index, page } => {
            assert!(page != PageId::NONE, "a value on no page");
            out.push(OVERFLOW);
            out.extend_from_slice(&index.0.to_le_bytes());
            out.extend_from_slice(&page.0.to_le_bytes());
        }
    }
    debug_assert_eq!(decode(&out[start..]).ok(), Some(*undo), "reads differently");
}

fn cut_off() -> Error {
    Error::Corrupt("undo entry is cut off".into())
}

/// Decodes an entry.
///
/// # Errors
/// `Corrupt` when it cannot be read.
pub fn decode(bytes: &[u8]) -> Result<Undo<'_>> {
    if !matches!(
        bytes.first(),
        None | Some(&(INSERT | UPDATE | OVERFLOW | PUT | MARK))
    ) {
        return Err(Error::Corrupt("undo entry of an unknown kind".into()));
    }
    parse(&mut ByteReader::new(bytes)).ok_or_else(cut_off)
}

fn parse<'a>(r: &mut ByteReader<'a>) -> Option<Undo<'a>> {
    let kind = r.u8()?;
    let index = IndexId(r.u32()?);
    if kind == OVERFLOW {
        let page = PageId(r.u32()?);
        return Some(Undo::Overflow { index, page });
    }
    let key = r.bytes16()?;
    match kind {
        INSERT => return Some(Undo::Insert { index, key }),
        PUT => return Some(Undo::Put { index, key }),
        MARK => return Some(Undo::Mark { index, key }),
        _ => {}
    }
    let prior = Prior {
        deleted: r.u8()? != 0,
        txn: TxnId(r.u48()?),
        keep_head: r.u16()?,
        keep_tail: r.u16()?,
        mid: r.bytes16()?,
    };
    Some(Undo::Update { index, key, prior })
}

/// Opening of a change: `entry` is the encoded undo entry.
pub fn encode_undo_header(txn: TxnId, entry: &[u8], out: &mut Vec<u8>) {
    assert!(!txn.is_frozen(), "a change of no transaction");
    debug_assert!(decode(entry).is_ok(), "a change that cannot be undone");
    out.clear();
    out.push(CHANGE);
    put_u48(txn.0, out);
    out.extend_from_slice(&(entry.len() as u32).to_le_bytes());
    out.extend_from_slice(entry);
    debug_assert!(
        matches!(open_body(out), Ok((Opening::Change { txn: t, entry: e }, []))
            if t == txn && e == entry),
        "an opening reads differently"
    );
}

/// Opening of a change taken back; `left` bytes of the undo list remain to be undone.
pub fn encode_undone_header(txn: TxnId, left: UndoPosition, out: &mut Vec<u8>) {
    assert!(!txn.is_frozen(), "no transaction takes a change back");
    out.clear();
    out.push(UNDONE);
    put_u48(txn.0, out);
    out.extend_from_slice(&left.0.to_le_bytes());
    debug_assert!(
        matches!(open_body(out), Ok((Opening::Undone { txn: t, left: l }, []))
            if t == txn && l == left),
        "an opening reads differently"
    );
}

/// What a mini-transaction's body opens with.
pub enum Opening<'a> {
    /// No transaction's business.
    Plain,
    /// A change with its undo entry.
    Change {
        /// Who.
        txn: TxnId,
        /// Encoded entry.
        entry: &'a [u8],
    },
    /// A change taken back.
    Undone {
        /// Who.
        txn: TxnId,
        /// What is left of its undo.
        left: UndoPosition,
    },
}

/// Splits a mini-transaction's body into its opening and its page operations.
///
/// # Errors
/// `Corrupt` when it cannot be read.
pub fn open_body(body: &[u8]) -> Result<(Opening<'_>, &[u8])> {
    if !matches!(body.first(), None | Some(&(PLAIN | CHANGE | UNDONE))) {
        let text = "log: mini-transaction of an unknown kind";
        return Err(Error::Corrupt(text.into()));
    }
    let mut r = ByteReader::new(body);
    let opening = parse_opening(&mut r).ok_or_else(cut_off)?;
    Ok((opening, r.rest()))
}

fn parse_opening<'a>(r: &mut ByteReader<'a>) -> Option<Opening<'a>> {
    Some(match r.u8()? {
        PLAIN => Opening::Plain,
        CHANGE => Opening::Change {
            txn: TxnId(r.u48()?),
            entry: r.bytes32()?,
        },
        _ => Opening::Undone {
            txn: TxnId(r.u48()?),
            left: UndoPosition(r.u64()?),
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_round_trip_and_read_backwards() {
        let prior = Prior {
            deleted: true,
            txn: TxnId(77),
            keep_head: 2,
            keep_tail: 1,
            mid: b"mid",
        };
        let all = [
            Undo::Insert {
                index: IndexId(3),
                key: b"k",
            },
            Undo::Update {
                index: IndexId(4),
                key: b"key",
                prior,
            },
            Undo::Overflow {
                index: IndexId(5),
                page: PageId(6),
            },
            Undo::Put {
                index: IndexId(7),
                key: b"key",
            },
            Undo::Mark {
                index: IndexId(8),
                key: b"key",
            },
        ];
        for undo in &all {
            let mut bytes = Vec::new();
            encode(undo, &mut bytes);
            assert_eq!(decode(&bytes).unwrap(), *undo);
            for cut in 0..bytes.len() {
                assert!(decode(&bytes[..cut]).is_err());
            }
        }
        let mut value = Vec::new();
        prior.value(b"abXYZc", &mut value).unwrap();
        assert_eq!(value, b"abmidc");
    }
}
