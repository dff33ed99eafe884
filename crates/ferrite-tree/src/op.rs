//! Changes of one page as log operations: how they are written and read. Module `apply` applies them.
//!
//! A mini-transaction's body ends with any number of these:
//! ```text
//! code u8 | page u32 | index u32 | operands
//! 1 IMAGE       head u16, tail u16, head bytes, tail bytes      (creates the page)
//! 2 INSERT      slot u16, len u16, record
//! 4 REMOVE      slot u16
//! 5 FREE                                                        (page id unused from here)
//! 6 TRUNCATE    slots kept u16, right u32, high len u16, high   (left half of a split)
//! 7 SET_RIGHT   right u32
//! 8 GC          count u16, then slot u16 + action u8 each       (1 freeze, 2 remove)
//! 9 REPLACE     slot u16, keep head u16, keep tail u16, len u16, new header, mid
//! 10 PUT        len u16, record with the whole key                (over a delete-marked one, if there is one)
//! 11 TAKE_BACK  txn u48, len u16, whole key                       (a PUT or MARK of that transaction: delete-marked, or live, from here on)
//! 12 MARK       txn u48, len u16, whole key                       (the live record of that key is delete-marked)
//! 13 ERASE      len u16, whole key                                (the delete-marked record of that key goes)
//! ```
//! PUT, TAKE_BACK, MARK and ERASE name no slot: they are made without a look at the page.
//!
//! Applying is deterministic in what the slots hold, which is all later operations refer to.
//! Stamps are the exception: the written page may lack some that the page in memory has
//! ([`node::strip_for_write`]), so no operation refers to those of a record that it finds. (3 was a
//! REPLACE that did.)

use crate::{node, record};
use ferrite_types::{Error, IndexId, PageId, Result, TxnId, PAGE_BYTES};

pub(crate) const IMAGE: u8 = 1;
pub(crate) const INSERT: u8 = 2;
pub(crate) const REMOVE: u8 = 4;
pub(crate) const FREE: u8 = 5;
pub(crate) const TRUNCATE: u8 = 6;
pub(crate) const SET_RIGHT: u8 = 7;
pub(crate) const GC: u8 = 8;
pub(crate) const REPLACE: u8 = 9;
pub(crate) const PUT: u8 = 10;
pub(crate) const TAKE_BACK: u8 = 11;
pub(crate) const MARK: u8 = 12;
pub(crate) const ERASE: u8 = 13;

/// Freeze the record in the slot: everybody sees it.
pub const GC_FREEZE: u8 = 1;
/// Remove the delete-marked record in the slot.
pub const GC_REMOVE: u8 = 2;

fn begin(code: u8, page: PageId, index: IndexId, out: &mut Vec<u8>) {
    debug_assert!(page != PageId::NONE && index.0 != 0, "{page} of {index}");
    out.push(code);
    out.extend_from_slice(&page.0.to_le_bytes());
    out.extend_from_slice(&index.0.to_le_bytes());
}

/// What was appended behind `start` is one operation for that page.
fn reads_back(out: &[u8], start: usize, page: PageId) -> bool {
    let mut ops = Ops::new(&out[start..]);
    let one = ops
        .next()
        .is_some_and(|op| op.is_ok_and(|op| op.page == page));
    one && ops.next().is_none()
}

fn push16(out: &mut Vec<u8>, n: usize) {
    debug_assert!(n <= usize::from(u16::MAX), "{n} in two bytes");
    out.extend_from_slice(&(n as u16).to_le_bytes());
}

/// The page's whole used content.
pub fn image(page: PageId, bytes: &[u8], out: &mut Vec<u8>) {
    let start = out.len();
    begin(IMAGE, page, node::index(bytes), out);
    let head = u16::from_le_bytes([bytes[6], bytes[7]]) as usize;
    let tail = u16::from_le_bytes([bytes[8], bytes[9]]) as usize;
    assert!(
        head <= tail && tail <= PAGE_BYTES,
        "{page}: gap {head}..{tail}"
    );
    assert!(bytes.len() == PAGE_BYTES, "{page}: {} bytes", bytes.len());
    push16(out, head);
    push16(out, tail);
    out.extend_from_slice(&bytes[..head]);
    out.extend_from_slice(&bytes[tail..]);
    debug_assert!(reads_back(out, start, page), "the image of {page}");
}

/// A record goes in before `slot`.
pub fn insert(page: PageId, index: IndexId, slot: usize, rec: &[u8], out: &mut Vec<u8>) {
    let start = out.len();
    debug_assert_eq!(record::length(rec), Some(rec.len()), "no record");
    begin(INSERT, page, index, out);
    push16(out, slot);
    push16(out, rec.len());
    out.extend_from_slice(rec);
    debug_assert!(reads_back(out, start, page), "the insert in {page}");
}

/// The record in `slot` changes to `new`: the header is logged whole, of key suffix and value only
/// what is between `head` bytes at their start and `tail` at their end, which stay as they are.
pub fn replace(
    page: PageId,
    index: IndexId,
    slot: usize,
    new: &[u8],
    (head, tail): (usize, usize),
    out: &mut Vec<u8>,
) {
    let start = out.len();
    begin(REPLACE, page, index, out);
    let (header, new) = new.split_at(new.len() - record::body(new).len());
    assert!(
        head + tail <= new.len(),
        "{head} and {tail} bytes of {}",
        new.len()
    );
    push16(out, slot);
    push16(out, head);
    push16(out, tail);
    let mid = &new[head..new.len() - tail];
    push16(out, header.len() + mid.len());
    out.extend_from_slice(header);
    out.extend_from_slice(mid);
    debug_assert!(reads_back(out, start, page), "the replace in {page}");
}

/// A record, encoded with its whole key, goes where its key belongs. It can be made without the page, for
/// it names no slot.
pub fn put(page: PageId, index: IndexId, rec: &[u8], out: &mut Vec<u8>) {
    let start = out.len();
    debug_assert_eq!(record::length(rec), Some(rec.len()), "no record");
    begin(PUT, page, index, out);
    push16(out, rec.len());
    out.extend_from_slice(rec);
    debug_assert!(reads_back(out, start, page), "the put in {page}");
}

fn of_txn(code: u8, page: PageId, index: IndexId, txn: TxnId, key: &[u8], out: &mut Vec<u8>) {
    let start = out.len();
    assert!(!txn.is_frozen() && txn.0 < 1 << 48, "{code} of {txn}");
    begin(code, page, index, out);
    record::put_u48(out, txn.0);
    push16(out, key.len());
    out.extend_from_slice(key);
    debug_assert!(reads_back(out, start, page), "{code} in {page}");
}

/// What `txn` has put or delete-marked under that key is taken back; made without the page, as a PUT.
pub fn take_back(page: PageId, index: IndexId, txn: TxnId, key: &[u8], out: &mut Vec<u8>) {
    of_txn(TAKE_BACK, page, index, txn, key, out);
}

/// `txn` delete-marks the live record of that key, which another transaction has made; made without the
/// page.
pub fn mark(page: PageId, index: IndexId, txn: TxnId, key: &[u8], out: &mut Vec<u8>) {
    of_txn(MARK, page, index, txn, key, out);
}

/// The delete-marked record of that key goes; made without the page.
pub fn erase(page: PageId, index: IndexId, key: &[u8], out: &mut Vec<u8>) {
    let start = out.len();
    begin(ERASE, page, index, out);
    push16(out, key.len());
    out.extend_from_slice(key);
    debug_assert!(reads_back(out, start, page), "the erasure in {page}");
}

/// The record in `slot` goes.
pub fn remove(page: PageId, index: IndexId, slot: usize, out: &mut Vec<u8>) {
    begin(REMOVE, page, index, out);
    push16(out, slot);
}

/// The page id names no page from here on.
pub fn free(page: PageId, index: IndexId, out: &mut Vec<u8>) {
    begin(FREE, page, index, out);
}

/// The page keeps its first `slots` slots and gets a new high fence and right link.
pub fn truncate(
    page: PageId,
    index: IndexId,
    slots: usize,
    right: PageId,
    high: &[u8],
    out: &mut Vec<u8>,
) {
    assert!(
        right != page && right != PageId::NONE,
        "{page} leads to {right}"
    );
    assert!(!high.is_empty(), "{page} would cover nothing");
    let start = out.len();
    begin(TRUNCATE, page, index, out);
    push16(out, slots);
    out.extend_from_slice(&right.0.to_le_bytes());
    push16(out, high.len());
    out.extend_from_slice(high);
    debug_assert!(reads_back(out, start, page), "the cut of {page}");
}

/// The right link changes.
pub fn set_right(page: PageId, index: IndexId, right: PageId, out: &mut Vec<u8>) {
    assert!(right != page, "{page} leads to itself");
    begin(SET_RIGHT, page, index, out);
    out.extend_from_slice(&right.0.to_le_bytes());
}

/// Freezes and removes records; slots as before the operation, ascending.
pub fn gc(page: PageId, index: IndexId, actions: &[(u16, u8)], out: &mut Vec<u8>) {
    debug_assert!(
        actions.windows(2).all(|a| a[0].0 < a[1].0),
        "gc out of order"
    );
    debug_assert!(actions
        .iter()
        .all(|(_, a)| [GC_FREEZE, GC_REMOVE].contains(a)));
    let start = out.len();
    begin(GC, page, index, out);
    push16(out, actions.len());
    for &(slot, action) in actions {
        push16(out, slot as usize);
        out.push(action);
    }
    debug_assert!(reads_back(out, start, page), "the gc in {page}");
}

/// One decoded operation.
pub struct Op<'a> {
    /// Page it changes.
    pub page: PageId,
    /// Index the page belongs to.
    pub index: IndexId,
    pub(crate) code: u8,
    pub(crate) operands: &'a [u8],
}

/// What an operation that was made without its page does to a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeptChange {
    /// Of that transaction, live.
    Put(TxnId),
    /// That transaction deletes it.
    Mark(TxnId),
    /// What that transaction has put or marked is taken back.
    TakeBack(TxnId),
    /// It goes.
    Erase,
}

impl Op<'_> {
    /// True if the page's older content does not matter.
    pub fn creates(&self) -> bool {
        self.code == IMAGE
    }

    /// What it does to the record of that key, if it was made without the page and is of that key.
    pub fn change_of(&self, key: &[u8]) -> Option<KeptChange> {
        let o = self.operands;
        let (of, change) = match self.code {
            PUT => {
                record::length(&o[2..])?;
                let rec = record::decode(&o[2..]);
                (rec.suffix, KeptChange::Put(rec.header.txn))
            }
            MARK => (&o[8..], KeptChange::Mark(TxnId(record::u48(o)))),
            TAKE_BACK => (&o[8..], KeptChange::TakeBack(TxnId(record::u48(o)))),
            ERASE => (&o[2..], KeptChange::Erase),
            _ => return None,
        };
        (of == key).then_some(change)
    }

    /// True if a record goes, and the page may be sparse afterwards.
    pub fn erases(&self) -> bool {
        self.code == ERASE
    }

    /// The key of an erasure or a delete-mark.
    pub(crate) fn whole_key(&self) -> &[u8] {
        match self.code {
            ERASE => &self.operands[2..],
            _ => &self.operands[8..],
        }
    }

    /// True if the page is no more after this.
    pub fn frees(&self) -> bool {
        self.code == FREE
    }
}

/// The operation does not fit its page.
pub(crate) fn disagree(op: &Op<'_>, what: &str) -> Error {
    Error::Corrupt(format!(
        "log: page {} and its log record disagree: {what}",
        op.page
    ))
}

/// Walks the operations of a mini-transaction.
pub struct Ops<'a> {
    rest: &'a [u8],
}

impl<'a> Ops<'a> {
    /// Operations encoded in `bytes`.
    pub fn new(bytes: &'a [u8]) -> Ops<'a> {
        Ops { rest: bytes }
    }

    /// What was not walked over yet.
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }

    fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        if self.rest.len() < len {
            return None;
        }
        let (taken, rest) = self.rest.split_at(len);
        self.rest = rest;
        Some(taken)
    }

    fn operand_len(code: u8, rest: &[u8]) -> Option<usize> {
        let at = |i: usize| -> Option<usize> {
            Some(u16::from_le_bytes([*rest.get(i)?, *rest.get(i + 1)?]) as usize)
        };
        Some(match code {
            IMAGE => {
                let (head, tail) = (at(0)?, at(2)?);
                if head > tail || tail > PAGE_BYTES {
                    return None;
                }
                4 + head + PAGE_BYTES - tail
            }
            INSERT => 4 + at(2)?,
            PUT => 2 + at(0)?,
            TAKE_BACK => 8 + at(6)?,
            MARK => 8 + at(6)?,
            ERASE => 2 + at(0)?,
            REPLACE => 8 + at(6)?,
            REMOVE => 2,
            FREE => 0,
            TRUNCATE => 8 + at(6)?,
            SET_RIGHT => 4,
            GC => 2 + 3 * at(0)?,
            _ => return None,
        })
    }
}

impl<'a> Iterator for Ops<'a> {
    type Item = Result<Op<'a>>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let parsed = (|| {
            let head = self.take(9)?;
            let code = head[0];
            let len = Self::operand_len(code, self.rest)?;
            Some(Op {
                page: PageId(u32::from_le_bytes([head[1], head[2], head[3], head[4]])),
                index: IndexId(u32::from_le_bytes([head[5], head[6], head[7], head[8]])),
                code,
                operands: self.take(len)?,
            })
        })();
        if parsed.is_none() {
            self.rest = &[];
        }
        Some(parsed.ok_or_else(|| Error::Corrupt("log: page operation cannot be read".into())))
    }
}
