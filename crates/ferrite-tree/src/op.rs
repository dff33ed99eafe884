//! Changes of one page as log operations, and applying them at redo.
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
//! 11 TAKE_BACK  txn u48, len u16, whole key                       (a PUT of that transaction: delete-marked from here on)
//! ```
//! Applying is deterministic in what the slots hold, which is all later operations refer to.
//! Stamps are the exception: the written page may lack some that the page in memory has
//! ([`node::strip_for_write`]), so no operation refers to those of a record that it finds. (3 was a
//! REPLACE that did.)

use crate::record::{Header, Record};
use crate::{node, record};
use ferrite_buffer::page_prefix;
use ferrite_types::{Error, IndexId, PageId, Result, TxnId, VersionAddr, PAGE_BYTES};

const IMAGE: u8 = 1;
const INSERT: u8 = 2;
const REMOVE: u8 = 4;
const FREE: u8 = 5;
const TRUNCATE: u8 = 6;
const SET_RIGHT: u8 = 7;
const GC: u8 = 8;
const REPLACE: u8 = 9;
const PUT: u8 = 10;
const TAKE_BACK: u8 = 11;

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

/// What `txn` has put under that key is taken back; made without the page, as a PUT.
pub fn take_back(page: PageId, index: IndexId, txn: TxnId, key: &[u8], out: &mut Vec<u8>) {
    let start = out.len();
    assert!(!txn.is_frozen() && txn.0 < 1 << 48, "{txn} takes back");
    begin(TAKE_BACK, page, index, out);
    record::put_u48(out, txn.0);
    push16(out, key.len());
    out.extend_from_slice(key);
    debug_assert!(reads_back(out, start, page), "the take back in {page}");
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
    code: u8,
    operands: &'a [u8],
}

impl Op<'_> {
    /// True if the page's older content does not matter.
    pub fn creates(&self) -> bool {
        self.code == IMAGE
    }

    /// True if it puts a record of that key and transaction.
    pub fn puts(&self, key: &[u8], txn: TxnId) -> bool {
        if self.code != PUT || record::length(&self.operands[2..]).is_none() {
            return false;
        }
        let rec = record::decode(&self.operands[2..]);
        rec.suffix == key && rec.header.txn == txn
    }

    /// True if the page is no more after this.
    pub fn frees(&self) -> bool {
        self.code == FREE
    }
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

fn num(b: &[u8], at: usize) -> usize {
    u16::from_le_bytes([b[at], b[at + 1]]) as usize
}

/// Applies an operation to the page's bytes. A good page stays good, whatever the operation.
///
/// # Errors
/// `Corrupt` when the operation does not fit the page: page and log disagree. After a failed
/// IMAGE the page holds neither the old nor the new content.
pub fn apply(op: &Op<'_>, page: &mut [u8]) -> Result<()> {
    let o = op.operands;
    match op.code {
        IMAGE => return apply_image(op, page),
        FREE => return Ok(()),
        _ => {}
    }
    if node::index(page) != op.index {
        return Err(disagree(op, "another index"));
    }
    if op.code == SET_RIGHT {
        node::set_right(page, PageId(u32::from_le_bytes([o[0], o[1], o[2], o[3]])));
        return Ok(());
    }
    if page[5] != page_prefix::KIND_NODE {
        return Err(disagree(op, "no node of a tree"));
    }
    let sound = cfg!(debug_assertions) && node::is_sound(page);
    let result = apply_to_node(op, page);
    debug_assert!(
        !sound || node::is_sound(page),
        "{} is spoilt by redo",
        op.page
    );
    result
}

fn apply_to_node(op: &Op<'_>, page: &mut [u8]) -> Result<()> {
    let o = op.operands;
    match op.code {
        INSERT => apply_insert(op, page),
        REPLACE => apply_replace(op, page),
        PUT => apply_put_op(op, page, &mut |_, _| Ok(VersionAddr::NONE)),
        TAKE_BACK => apply_take_back_op(op, page, &mut |_, _| Ok(None)),
        REMOVE if num(o, 0) < node::count(page) => {
            node::remove(page, num(o, 0));
            Ok(())
        }
        REMOVE => Err(disagree(op, "no such slot")),
        TRUNCATE => apply_truncate_op(op, page),
        GC => apply_gc_op(op, page),
        _ => Err(disagree(op, "unknown operation")),
    }
}

fn disagree(op: &Op<'_>, what: &str) -> Error {
    Error::Corrupt(format!(
        "log: page {} and its log record disagree: {what}",
        op.page
    ))
}

fn apply_image(op: &Op<'_>, page: &mut [u8]) -> Result<()> {
    let o = op.operands;
    let (head, tail) = (num(o, 0), num(o, 2));
    page[..head].copy_from_slice(&o[4..4 + head]);
    page[head..tail].fill(0);
    page[tail..].copy_from_slice(&o[4 + head..]);
    if node::index(page) != op.index || page_prefix::used(page) != (head, tail) {
        return Err(disagree(op, "an image of something else"));
    }
    match page[5] {
        page_prefix::KIND_OVERFLOW => Ok(()),
        _ => node::validate(page, op.page),
    }
}

fn apply_insert(op: &Op<'_>, page: &mut [u8]) -> Result<()> {
    let (slot, rec) = (num(op.operands, 0), &op.operands[4..]);
    if slot > node::count(page)
        || record::length(rec) != Some(rec.len())
        || !node::has_room(page, rec.len())
    {
        return Err(disagree(op, "insert does not fit"));
    }
    if !node::belongs(page, slot, rec) {
        return Err(disagree(op, "a key out of place"));
    }
    node::insert(page, slot, rec);
    Ok(())
}

fn apply_replace(op: &Op<'_>, page: &mut [u8]) -> Result<()> {
    let o = op.operands;
    let (slot, head, tail) = (num(o, 0), num(o, 2), num(o, 4));
    let fault = || Err(disagree(op, "replace does not fit"));
    if slot >= node::count(page) {
        return fault();
    }
    let old = record::body(node::raw(page, slot));
    let Some((header, mid)) = record::split_header(&o[8..]) else {
        return fault();
    };
    if head + tail > old.len() {
        return fault();
    }
    let mut new = Vec::with_capacity(head + tail + o.len());
    new.extend_from_slice(header);
    new.extend_from_slice(&old[..head]);
    new.extend_from_slice(mid);
    new.extend_from_slice(&old[old.len() - tail..]);
    if record::length(&new) != Some(new.len())
        || record::suffix_of(&new) != node::suffix(page, slot)
        || (node::level(page) > 0 && record::decode(&new).value.len() != node::CHILD_BYTES)
        || !node::can_replace(page, slot, new.len())
    {
        return fault();
    }
    node::replace(page, slot, &new);
    Ok(())
}

/// Applies all operations in `bytes`, which are of this page.
///
/// # Errors
/// As [`apply`]; the page is in between.
pub fn apply_all(bytes: &[u8], page: &mut [u8]) -> Result<()> {
    for op in Ops::new(bytes) {
        apply(&op?, page)?;
    }
    Ok(())
}

/// Makes the version that keeps the state of a record which a PUT replaces: its address. See
/// [`apply_kept`].
pub type KeepState<'a> = dyn FnMut(&Record<'_>, &Record<'_>) -> Result<VersionAddr> + 'a;

/// What a PUT that is taken back had replaced: the header is returned, the value is put into the
/// buffer. None: nothing that anybody needs. See [`apply_kept`].
pub type RestoreState<'a> = dyn FnMut(&Record<'_>, &mut Vec<u8>) -> Result<Option<Header>> + 'a;

/// Applies a PUT or a TAKE_BACK to the page that it was made without. `keep` is called with the delete-marked
/// record in the place of a PUT, if there is one, and the new one; `restore` with the record that is taken
/// back: redo needs no versions, but readers may.
///
/// # Errors
/// `Corrupt`, as [`apply`], or what `keep` or `restore` returns: the page is as before.
pub fn apply_kept(
    bytes: &[u8],
    page: &mut [u8],
    keep: &mut KeepState<'_>,
    restore: &mut RestoreState<'_>,
) -> Result<()> {
    let op = Ops::new(bytes).next();
    let op = op.ok_or_else(|| Error::Corrupt("a change without an operation".into()))??;
    if node::index(page) != op.index || !node::is_node(page) {
        return Err(disagree(&op, "a change that was put off"));
    }
    match op.code {
        PUT => apply_put_op(&op, page, keep),
        TAKE_BACK => apply_take_back_op(&op, page, restore),
        _ => Err(disagree(&op, "no change that is put off")),
    }
}

/// The record stays, delete-marked: what a PUT has replaced, or that it has replaced something, is not known
/// to redo, and the slots must be the same.
fn apply_take_back_op(op: &Op<'_>, page: &mut [u8], restore: &mut RestoreState<'_>) -> Result<()> {
    let (txn, key) = (TxnId(record::u48(op.operands)), &op.operands[8..]);
    let Ok(slot) = node::find(page, key) else {
        return Err(disagree(op, "nothing to take back"));
    };
    let old = node::record(page, slot);
    if node::level(page) > 0 || old.header.txn != txn {
        return Err(disagree(op, "another's record is taken back"));
    }
    let mut value = old.value.to_vec();
    let gone = Header {
        deleted: true,
        ..Header::default()
    };
    let header = restore(&old, &mut value)?.unwrap_or(gone);
    assert!(header.deleted, "{}: a live record comes back", op.page);
    let mut rec = Vec::new();
    record::encode(&header, node::suffix(page, slot), &value, &mut rec);
    if !node::can_replace(page, slot, rec.len()) {
        return Err(disagree(op, "what comes back does not fit"));
    }
    node::replace(page, slot, &rec);
    Ok(())
}

fn apply_put_op(op: &Op<'_>, page: &mut [u8], keep: &mut KeepState<'_>) -> Result<()> {
    let bytes = &op.operands[2..];
    if record::length(bytes) != Some(bytes.len()) || node::level(page) > 0 {
        return Err(disagree(op, "no record of a leaf"));
    }
    let whole = record::decode(bytes);
    if !node::covers(page, whole.suffix) {
        return Err(disagree(op, "a key of another page"));
    }
    let suffix = &whole.suffix[node::prefix(page).len()..];
    let mut rec = Vec::with_capacity(bytes.len() + record::U48_BYTES);
    match node::find(page, whole.suffix) {
        Err(slot) => {
            record::encode(&whole.header, suffix, whole.value, &mut rec);
            if !node::has_room(page, rec.len()) {
                return Err(disagree(op, "put does not fit"));
            }
            node::insert(page, slot, &rec);
        }
        Ok(slot) => {
            let old = node::record(page, slot);
            if !old.header.deleted {
                return Err(disagree(op, "an entry of this key is there"));
            }
            let header = Header {
                version: keep(&old, &whole)?,
                ..whole.header
            };
            record::encode(&header, suffix, whole.value, &mut rec);
            if !node::can_replace(page, slot, rec.len()) {
                return Err(disagree(op, "put does not fit"));
            }
            node::replace(page, slot, &rec);
        }
    }
    debug_assert!(
        node::find(page, whole.suffix).is_ok(),
        "it is not found again"
    );
    Ok(())
}

fn apply_truncate_op(op: &Op<'_>, page: &mut [u8]) -> Result<()> {
    let o = op.operands;
    let (slots, high) = (num(o, 0), &o[8..]);
    if slots > node::count(page) {
        return Err(disagree(op, "no such slot"));
    }
    let mut last = Vec::new();
    if slots > 0 {
        node::key_into(page, slots - 1, &mut last);
    }
    let within = node::low(page) < high && node::high(page).is_none_or(|h| high <= h);
    let fits = node::part_fits(page, 0, slots, node::low(page), Some(high));
    if !within || !fits || (slots > 0 && last.as_slice() >= high) {
        return Err(disagree(op, "no place for the new fence"));
    }
    let right = PageId(u32::from_le_bytes([o[2], o[3], o[4], o[5]]));
    apply_truncate(page, slots, right, high);
    Ok(())
}

/// The left half of a split: also used when the split is made.
pub fn apply_truncate(page: &mut [u8], slots: usize, right: PageId, high: &[u8]) {
    let mut copy = [0u8; PAGE_BYTES];
    copy.copy_from_slice(page);
    let low = node::low(&copy);
    node::copy_part(&copy, 0, slots, low, Some(high), right, page);
    assert!(
        node::count(page) == slots,
        "{} of {slots}",
        node::count(page)
    );
    debug_assert!(node::is_sound(page), "the left half of a split");
}

fn apply_gc_op(op: &Op<'_>, page: &mut [u8]) -> Result<()> {
    let actions: Vec<(u16, u8)> = op.operands[2..]
        .chunks_exact(3)
        .map(|c| (u16::from_le_bytes([c[0], c[1]]), c[2]))
        .collect();
    let there = |slot: u16| usize::from(slot) < node::count(page);
    if !actions.iter().all(|&(slot, _)| there(slot)) {
        return Err(disagree(op, "gc of a slot it has not"));
    }
    if actions.windows(2).any(|pair| pair[0].0 >= pair[1].0) {
        return Err(disagree(op, "gc out of order"));
    }
    apply_gc(page, &actions);
    Ok(())
}

/// Freezes and removes; from the last slot down, so that the numbers stay right.
pub fn apply_gc(page: &mut [u8], actions: &[(u16, u8)]) {
    let mut bytes = Vec::new();
    let (before, mut removed) = (node::count(page), 0);
    for &(slot, action) in actions.iter().rev() {
        let slot = slot as usize;
        if action == GC_REMOVE {
            node::remove(page, slot);
            removed += 1;
            continue;
        }
        let rec = node::record(page, slot);
        let header = record::Header {
            deleted: rec.header.deleted,
            ..record::Header::default()
        };
        bytes.clear();
        record::encode(&header, rec.suffix, rec.value, &mut bytes);
        node::replace(page, slot, &bytes);
    }
    let left = node::count(page);
    assert!(
        left + removed == before,
        "{left} of {before}, {removed} removed"
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use ferrite_sync::random::Rng;

    /// Bytes of key suffix and value that are the same at the head and at the tail.
    fn common(old: &[u8], new: &[u8]) -> (usize, usize) {
        let (old, new) = (record::body(old), record::body(new));
        let head = old.iter().zip(new).take_while(|(a, b)| a == b).count();
        let most = old.len().min(new.len()) - head;
        let pairs = old.iter().rev().zip(new.iter().rev()).take(most);
        (head, pairs.take_while(|(a, b)| a == b).count())
    }

    fn sample_page() -> Vec<u8> {
        let mut page = vec![0u8; PAGE_BYTES];
        node::init(&mut page, IndexId(3), 0, b"", None, PageId::NONE);
        for i in 0..20u32 {
            let mut rec = Vec::new();
            let key = format!("k{i:03}");
            record::encode(&Header::default(), key.as_bytes(), b"value-one", &mut rec);
            node::insert(&mut page, i as usize, &rec);
        }
        page
    }

    #[test]
    fn operations_replay_to_the_same_slots() {
        let mut page = sample_page();
        let mut replayed = vec![0u8; PAGE_BYTES];
        let mut log = Vec::new();
        let (id, index) = (PageId(4), IndexId(3));
        image(id, &page, &mut log);
        let old = node::raw(&page, 5).to_vec();
        let mut new = Vec::new();
        record::encode(&Header::default(), b"k005", b"value-two", &mut new);
        replace(id, index, 5, &new, common(&old, &new), &mut log);
        node::replace(&mut page, 5, &new);
        remove(id, index, 0, &mut log);
        node::remove(&mut page, 0);
        gc(id, index, &[(1, GC_FREEZE), (3, GC_REMOVE)], &mut log);
        apply_gc(&mut page, &[(1, GC_FREEZE), (3, GC_REMOVE)]);
        truncate(id, index, 10, PageId(8), b"k015", &mut log);
        apply_truncate(&mut page, 10, PageId(8), b"k015");
        for op in Ops::new(&log) {
            apply(&op.unwrap(), &mut replayed).unwrap();
        }
        node::validate(&replayed, id).unwrap();
        assert_eq!(node::count(&page), node::count(&replayed));
        for slot in 0..node::count(&page) {
            assert_eq!(node::raw(&page, slot), node::raw(&replayed, slot));
        }
    }

    fn kept(key: &[u8], txn: u64) -> (Vec<u8>, Vec<u8>) {
        let header = Header {
            txn: TxnId(txn),
            ..Header::default()
        };
        let (mut rec, mut op_put, mut op_back) = (Vec::new(), Vec::new(), Vec::new());
        record::encode(&header, key, b"new", &mut rec);
        put(PageId(4), IndexId(3), &rec, &mut op_put);
        take_back(PageId(4), IndexId(3), TxnId(txn), key, &mut op_back);
        (op_put, op_back)
    }

    /// With versions or without, as redo does it, the slots are the same.
    #[test]
    fn what_is_put_off_replays_to_the_same_slots() {
        let mut page = sample_page();
        let ghost = Header {
            deleted: true,
            txn: TxnId(7),
            version: VersionAddr::NONE,
        };
        let mut rec = Vec::new();
        record::encode(&ghost, b"k005", b"before", &mut rec);
        node::replace(&mut page, 5, &rec);
        let mut redone = page.clone();
        for (key, back) in [(&b"k0055"[..], false), (b"k005", true), (b"zz", true)] {
            let (put, take_back) = kept(key, 9);
            let ops = [Some(put), back.then_some(take_back)];
            for bytes in ops.iter().flatten() {
                let keep = &mut |old: &Record<'_>, new: &Record<'_>| {
                    assert_eq!((old.header, new.header.txn), (ghost, TxnId(9)));
                    Ok(VersionAddr(11))
                };
                let restore = &mut |rec: &Record<'_>, value: &mut Vec<u8>| {
                    if rec.header.version.is_none() {
                        return Ok(None);
                    }
                    *value = b"before".to_vec();
                    Ok(Some(ghost))
                };
                apply_kept(bytes, &mut page, keep, restore).unwrap();
                apply(&Ops::new(bytes).next().unwrap().unwrap(), &mut redone).unwrap();
            }
        }
        node::validate(&page, PageId(4)).unwrap();
        node::validate(&redone, PageId(4)).unwrap();
        assert_eq!(node::count(&page), 22);
        for slot in 0..node::count(&page) {
            let (a, b) = (node::record(&page, slot), node::record(&redone, slot));
            assert_eq!((a.suffix, a.header.deleted), (b.suffix, b.header.deleted));
        }
        let slot = node::find(&page, b"k005").unwrap();
        let back = node::record(&page, slot);
        assert_eq!((back.header, back.value), (ghost, &b"before"[..]));
        let (put, take_back) = kept(b"k006", 9);
        let nothing = &mut |_: &Record<'_>, _: &Record<'_>| Ok(VersionAddr::NONE);
        let none = &mut |_: &Record<'_>, _: &mut Vec<u8>| Ok(None);
        for bytes in [put, take_back] {
            let before = page.clone();
            assert!(apply_kept(&bytes, &mut page, nothing, none).is_err());
            assert_eq!(before, page, "a refused change changes the page");
        }
    }

    /// A leaf with stamped records of many transactions, and garbage.
    fn stamped_page(rng: &mut Rng) -> Vec<u8> {
        let mut page = sample_page();
        for slot in 0..20 {
            let bytes = stamped(rng, format!("k{slot:03}").as_bytes());
            node::replace(&mut page, slot, &bytes);
        }
        page
    }

    fn stamped(rng: &mut Rng, key: &[u8]) -> Vec<u8> {
        let header = Header {
            deleted: rng.below(5) == 0,
            txn: TxnId(rng.below(20)),
            version: VersionAddr(rng.below(3)),
        };
        let value = vec![rng.below(3) as u8; rng.below(40) as usize];
        let mut bytes = Vec::new();
        record::encode(&header, key, &value, &mut bytes);
        bytes
    }

    #[test]
    fn operations_apply_to_the_page_at_rest() {
        let (id, index) = (PageId(4), IndexId(3));
        for seed in 0..if cfg!(miri) { 5 } else { 200 } {
            let mut rng = Rng::new(seed);
            let mut page = stamped_page(&mut rng);
            let settled = TxnId(rng.below(20));
            let mut rest = vec![0xab; PAGE_BYTES];
            if !node::strip_for_write(&page, settled, &mut rest) {
                continue;
            }
            node::validate(&rest, id).unwrap();
            assert!(node::free_bytes(&rest) >= node::free_bytes(&page));
            let mut log = Vec::new();
            for _ in 0..rng.below(10) {
                let slot = rng.below(node::count(&page) as u64) as usize;
                let old = node::raw(&page, slot).to_vec();
                if rng.below(3) == 0 {
                    let actions = [(slot as u16, GC_FREEZE)];
                    gc(id, index, &actions, &mut log);
                    apply_gc(&mut page, &actions);
                    continue;
                }
                let new = stamped(&mut rng, record::suffix_of(&old));
                replace(id, index, slot, &new, common(&old, &new), &mut log);
                node::replace(&mut page, slot, &new);
            }
            for op in Ops::new(&log) {
                apply(&op.unwrap(), &mut rest).unwrap();
            }
            for slot in 0..node::count(&page) {
                let (mine, theirs) = (node::record(&page, slot), node::record(&rest, slot));
                assert_eq!((mine.suffix, mine.value), (theirs.suffix, theirs.value));
                let lost = theirs.header == Header::default() && mine.header.txn < settled;
                assert!(mine.header == theirs.header || lost && !mine.header.deleted);
            }
        }
    }

    #[test]
    fn a_page_at_rest_has_no_settled_stamp_and_no_garbage() {
        let mut rng = Rng::new(3);
        let page = stamped_page(&mut rng);
        let mut rest = vec![0; PAGE_BYTES];
        assert!(node::strip_for_write(&page, TxnId(20), &mut rest));
        for slot in 0..node::count(&rest) {
            let header = node::record(&rest, slot).header;
            assert!(header.deleted || header == Header::default());
        }
        let mut again = vec![0; PAGE_BYTES];
        assert!(!node::strip_for_write(&rest, TxnId(20), &mut again));
    }

    #[test]
    fn random_bytes_never_panic() {
        let mut rng = Rng::new(11);
        for _ in 0..if cfg!(miri) { 30 } else { 20_000 } {
            let len = rng.below(60) as usize;
            let mut bytes: Vec<u8> = (0..len).map(|_| rng.next_u64() as u8).collect();
            if len > 10 {
                bytes[0] = 1 + (bytes[0] % 11);
                bytes[5..9].copy_from_slice(&3u32.to_le_bytes());
                bytes[10] = 0;
            }
            let mut page = sample_page();
            for op in Ops::new(&bytes).flatten() {
                if apply(&op, &mut page).is_err() {
                    break;
                }
                node::validate(&page, PageId(0)).unwrap();
            }
        }
    }
}
