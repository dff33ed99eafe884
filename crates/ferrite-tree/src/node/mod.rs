//! Every byte of a node page: reading it, the room on it, parts of it for another page, and what must hold of one. Edits
//! are in `edit`, the form in which a leaf is written in `rest`.
//!
//! ```text
//! 0  index id u32      4 level u8        5 page kind u8 (1)   6 head end u16
//! 8  tail start u16   10 slots u16      12 garbage u16       14 prefix length u16
//! 16 right link u32   20 low len u16    22 high len u16      24 flags u8 (1 = no high fence)
//! 25 reserved .. 40
//! 40 low fence, high fence, slot 0, slot 1 ... -> head end
//! tail start -> records, newest lowest ... end of page
//! ```
//! A slot is six bytes: record offset u16, then the first four bytes of the key suffix,
//! big-endian and zero-padded, so that most comparisons never touch the record.
//! The prefix is the common start of both fences; records carry keys without it. Without a
//! high fence the prefix is empty.
//!
//! Leaves hold rows. An inner node's value is a child's page id (u32); its first key is its
//! low fence's suffix, and entry i covers the keys from its key to the next entry's.
//!
//! Space given up by records is counted as garbage and comes back by compaction, which any
//! edit may do; the order and content of slots is what redo reproduces, not the offsets.

mod edit;
mod rest;

use crate::record::{self, Record};
use ferrite_types::{Error, IndexId, PageId, Result, PAGE_BYTES};
use std::cmp::Ordering;

pub use edit::{belongs, compact, insert, remove, replace};
pub use rest::{strip_and_scrub_for_write, strip_for_write};

/// Bytes of the fixed header.
pub const HEADER_BYTES: usize = 40;
/// Bytes of a slot.
pub const SLOT_BYTES: usize = 6;
const FLAG_NO_HIGH: u8 = 1;
const KIND_NODE: u8 = 1;

/// Bytes of an inner entry's value: a child's page id.
pub(crate) const CHILD_BYTES: usize = 4;

/// Longest key of any tree, in bytes: three of them (two fences and a record) fit a page.
pub const MAX_KEY_BYTES: usize = 4000;
/// Largest key plus value of a record, in bytes.
pub const MAX_RECORD_BYTES: usize = 8200;

const _: () = assert!(
    HEADER_BYTES + 2 * MAX_KEY_BYTES + MAX_RECORD_BYTES + record::MAX_HEADER_BYTES + SLOT_BYTES
        <= PAGE_BYTES
);

#[inline]
fn get16(page: &[u8], at: usize) -> usize {
    u16::from_le_bytes([page[at], page[at + 1]]) as usize
}

#[inline]
fn put16(page: &mut [u8], at: usize, n: usize) {
    debug_assert!(n <= usize::from(u16::MAX), "{n} at byte {at}");
    page[at..at + 2].copy_from_slice(&(n as u16).to_le_bytes());
}

#[inline]
fn get32(page: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([page[at], page[at + 1], page[at + 2], page[at + 3]])
}

/// A page of a tree: the pages of values begin alike, and say other things behind that.
#[inline]
pub fn is_node(page: &[u8]) -> bool {
    page[5] == KIND_NODE
}
/// Index the page belongs to.
pub fn index(page: &[u8]) -> IndexId {
    IndexId(get32(page, 0))
}
/// 0 for leaves.
pub fn level(page: &[u8]) -> u8 {
    page[4]
}
/// Records (or children) on the page.
#[inline]
pub fn count(page: &[u8]) -> usize {
    get16(page, 10)
}
/// Next page to the right on the same level; NONE at the end.
pub fn right(page: &[u8]) -> PageId {
    PageId(get32(page, 16))
}
/// Sets the right link.
pub fn set_right(page: &mut [u8], right: PageId) {
    page[16..20].copy_from_slice(&right.0.to_le_bytes());
}
/// Smallest key the page may hold.
#[inline]
pub fn low(page: &[u8]) -> &[u8] {
    &page[HEADER_BYTES..HEADER_BYTES + get16(page, 20)]
}
/// First key beyond the page; None at the right edge of the tree.
#[inline]
pub fn high(page: &[u8]) -> Option<&[u8]> {
    if page[24] & FLAG_NO_HIGH != 0 {
        return None;
    }
    let at = HEADER_BYTES + get16(page, 20);
    Some(&page[at..at + get16(page, 22)])
}
/// What every key on the page starts with.
#[inline]
pub fn prefix(page: &[u8]) -> &[u8] {
    &page[HEADER_BYTES..HEADER_BYTES + get16(page, 14)]
}
/// True if `key` belongs on this page by its fences.
#[inline]
pub fn covers(page: &[u8], key: &[u8]) -> bool {
    low(page) <= key && high(page).is_none_or(|h| key < h)
}

#[inline]
fn slots_at(page: &[u8]) -> usize {
    HEADER_BYTES + get16(page, 20) + get16(page, 22)
}

#[inline]
fn slot_at(page: &[u8], slot: usize) -> usize {
    slots_at(page) + slot * SLOT_BYTES
}

/// Raw bytes from the slot's record to the page's end.
#[inline(always)]
fn at_slot(page: &[u8], slot: usize) -> &[u8] {
    debug_assert!(slot < count(page), "slot {slot} of {}", count(page));
    &page[get16(page, slot_at(page, slot))..]
}

/// The record in a slot.
#[inline(always)]
pub fn record(page: &[u8], slot: usize) -> Record<'_> {
    record::decode(at_slot(page, slot))
}

/// The encoded bytes of the record in a slot.
pub fn raw(page: &[u8], slot: usize) -> &[u8] {
    let bytes = at_slot(page, slot);
    let len = record::length(bytes).expect("records of a checked page are whole");
    &bytes[..len]
}

/// The key suffix in a slot.
#[inline]
pub fn suffix(page: &[u8], slot: usize) -> &[u8] {
    record::suffix_of(at_slot(page, slot))
}

/// Appends the whole key of a slot to `out`.
pub fn key_into(page: &[u8], slot: usize, out: &mut Vec<u8>) {
    out.extend_from_slice(prefix(page));
    out.extend_from_slice(suffix(page, slot));
}

/// The child in an inner node's slot.
#[inline]
pub fn child(page: &[u8], slot: usize) -> PageId {
    debug_assert!(level(page) > 0, "a leaf has no child");
    PageId(get32(record(page, slot).value, 0))
}

#[inline]
fn head_of(suffix: &[u8]) -> u32 {
    if suffix.len() >= 4 {
        return u32::from_be_bytes([suffix[0], suffix[1], suffix[2], suffix[3]]);
    }
    let mut b = [0u8; 4];
    b[..suffix.len()].copy_from_slice(suffix);
    u32::from_be_bytes(b)
}

/// Position of a whole key: Ok(slot) if there, Err(slot where it would go). Keys outside the
/// fences give the edge they lie beyond.
pub fn find(page: &[u8], key: &[u8]) -> std::result::Result<usize, usize> {
    let n = count(page);
    let p = prefix(page);
    let common = p.len().min(key.len());
    match key[..common].cmp(&p[..common]) {
        Ordering::Less => return Err(0),
        Ordering::Greater => return Err(n),
        Ordering::Equal if key.len() < p.len() => return Err(0),
        Ordering::Equal => {}
    }
    let suffix_wanted = &key[p.len()..];
    let head = head_of(suffix_wanted);
    let base = slots_at(page);
    let (mut lo, mut hi) = (0, n);
    while lo < hi {
        let mid = (lo + hi) / 2;
        let at = base + mid * SLOT_BYTES;
        let mid_head = u32::from_be_bytes([page[at + 2], page[at + 3], page[at + 4], page[at + 5]]);
        let order = mid_head
            .cmp(&head)
            .then_with(|| record::suffix_of(&page[get16(page, at)..]).cmp(suffix_wanted));
        match order {
            Ordering::Less => lo = mid + 1,
            Ordering::Greater => hi = mid,
            Ordering::Equal => return Ok(mid),
        }
    }
    debug_assert!(lo == 0 || suffix(page, lo - 1) < suffix_wanted);
    debug_assert!(lo == n || suffix(page, lo) > suffix_wanted);
    Err(lo)
}

/// The slot of an inner node's child that covers `key`.
pub fn child_slot(page: &[u8], key: &[u8]) -> usize {
    match find(page, key) {
        Ok(slot) => slot,
        Err(slot) => slot.saturating_sub(1),
    }
}

/// The slot of the child that covers the keys just below `key` (for backward scans).
pub fn child_slot_below(page: &[u8], key: &[u8]) -> usize {
    match find(page, key) {
        Ok(slot) | Err(slot) => slot.saturating_sub(1),
    }
}

/// Writes an empty node. `high` None: right edge.
pub fn init(
    page: &mut [u8],
    index: IndexId,
    level: u8,
    low: &[u8],
    high: Option<&[u8]>,
    right: PageId,
) {
    let high_bytes = high.unwrap_or(&[]);
    assert!(
        high.is_none_or(|high| low < high),
        "fences {low:?}, {high:?}"
    );
    assert!(
        HEADER_BYTES + low.len() + high_bytes.len() <= PAGE_BYTES,
        "fences of {} and {} bytes",
        low.len(),
        high_bytes.len()
    );
    let common = match high {
        Some(h) => low.iter().zip(h).take_while(|(a, b)| a == b).count(),
        None => 0,
    };
    page[..HEADER_BYTES].fill(0);
    page[0..4].copy_from_slice(&index.0.to_le_bytes());
    page[4] = level;
    page[5] = KIND_NODE;
    page[24] = if high.is_none() { FLAG_NO_HIGH } else { 0 };
    put16(page, 14, common);
    put16(page, 20, low.len());
    put16(page, 22, high_bytes.len());
    set_right(page, right);
    let at = HEADER_BYTES + low.len();
    page[HEADER_BYTES..at].copy_from_slice(low);
    page[at..at + high_bytes.len()].copy_from_slice(high_bytes);
    put16(page, 6, at + high_bytes.len());
    put16(page, 8, PAGE_BYTES);
    debug_assert!(is_sound(page), "an empty page");
}

/// [`validate`] finds no fault. For assertions.
pub(crate) fn is_sound(page: &[u8]) -> bool {
    validate(page, PageId::NONE).is_ok()
}

/// Bytes of a page that stay unused, so that a full page and its blob header still fit four
/// granules of the store.
const SPARE_BYTES: usize = 40;
/// Bytes of a page with nothing but those unused.
pub(crate) const FULL_BYTES: usize = PAGE_BYTES - SPARE_BYTES;

fn unused_bytes(page: &[u8]) -> usize {
    debug_assert!(get16(page, 8) >= get16(page, 6), "slots lie in the records");
    get16(page, 8) - get16(page, 6) + get16(page, 12)
}

/// [`unused_bytes`] where assertions ask for them before an edit; nothing is read elsewhere.
#[inline]
fn checked_unused_bytes(page: &[u8]) -> usize {
    match cfg!(debug_assertions) {
        true => unused_bytes(page),
        false => 0,
    }
}

/// Bytes an edit can use, garbage included.
pub fn free_bytes(page: &[u8]) -> usize {
    unused_bytes(page).saturating_sub(SPARE_BYTES)
}

/// Bytes taken by slots and live records.
pub fn used_bytes(page: &[u8]) -> usize {
    PAGE_BYTES - unused_bytes(page) - slots_at(page)
}

/// Room to ask for, in bytes, before a record of such a key and value goes into a leaf: its header
/// is not known yet, and what the key has in common with the page's other keys is not counted on.
#[inline]
pub const fn room_for(key_bytes: usize, value_bytes: usize) -> usize {
    const SPARE_BYTES: usize = 32;
    const { assert!(SPARE_BYTES >= record::MAX_HEADER_BYTES + SLOT_BYTES) }
    key_bytes + value_bytes + SPARE_BYTES
}

/// True if a record of `record_bytes` can be inserted.
pub fn has_room(page: &[u8], record_bytes: usize) -> bool {
    free_bytes(page) >= record_bytes + SLOT_BYTES
}

/// True if the record in `slot` can become one of `new_bytes` bytes.
pub fn can_replace(page: &[u8], slot: usize, new_bytes: usize) -> bool {
    free_bytes(page) + raw(page, slot).len() >= new_bytes
}

/// As [`can_replace`], of a change that was made to the page before it was written: then it may have had fewer bytes unused
/// than are to be spare, and the record in the slot may have been longer, by the stamp that was left out.
pub fn could_replace(page: &[u8], slot: usize, new_bytes: usize) -> bool {
    unused_bytes(page) + raw(page, slot).len() >= new_bytes
}

/// True if a record of `record_bytes` for the whole key `key` can be put: in the place of the one that is
/// there, or as a new one.
pub fn has_room_for(page: &[u8], key: &[u8], record_bytes: usize) -> bool {
    match find(page, key) {
        Ok(slot) => can_replace(page, slot, record_bytes),
        Err(_) => has_room(page, record_bytes),
    }
}

/// True if the part `[from, to)` of `page`'s slots fits a page with these fences.
pub fn part_fits(page: &[u8], from: usize, to: usize, low: &[u8], high: Option<&[u8]>) -> bool {
    part_bytes(page, from, to, low, high) <= PAGE_BYTES
}

/// Bytes that the part `[from, to)` of `page`'s slots takes on a page with these fences.
pub(crate) fn part_bytes(
    page: &[u8],
    from: usize,
    to: usize,
    low: &[u8],
    high: Option<&[u8]>,
) -> usize {
    let common = |h: &[u8]| low.iter().zip(h).take_while(|(a, b)| a == b).count();
    let (old, new) = (prefix(page).len(), high.map_or(0, common));
    let mut need = HEADER_BYTES + low.len() + high.map_or(0, <[u8]>::len);
    for slot in from..to {
        need += raw(page, slot).len() + old + SLOT_BYTES - new;
    }
    need
}

/// Builds `out` as the part `[from, to)` of `page`'s slots under new fences.
pub fn copy_part(
    page: &[u8],
    from: usize,
    to: usize,
    low: &[u8],
    high: Option<&[u8]>,
    right: PageId,
    out: &mut [u8],
) {
    assert!(from <= to, "slots {from}..{to}");
    init(out, index(page), level(page), low, high, right);
    append_part(page, from, to, out);
}

/// Appends slots `[from, to)` of `page` after those of `out`, which has room and whose fences
/// cover them.
pub fn append_part(page: &[u8], from: usize, to: usize, out: &mut [u8]) {
    assert!(to <= count(page), "slots up to {to} of {}", count(page));
    assert!(level(page) == level(out) && index(page) == index(out));
    let before = count(out);
    let (old, new) = (prefix(page).len(), get16(out, 14));
    let mut key = Vec::new();
    let mut bytes = Vec::new();
    for slot in from..to {
        let rec = record(page, slot);
        bytes.clear();
        if old <= new {
            record::encode(&rec.header, &rec.suffix[new - old..], rec.value, &mut bytes);
        } else {
            key.clear();
            key.extend_from_slice(&prefix(page)[new..]);
            key.extend_from_slice(rec.suffix);
            record::encode(&rec.header, &key, rec.value, &mut bytes);
        }
        let at = count(out);
        insert(out, at, &bytes);
    }
    assert!(
        count(out) == before + (to - from),
        "{} of {from}..{to}",
        count(out)
    );
}

/// Checks everything about one page that can be checked without others: what a page read
/// from disk must satisfy before any function above may touch it.
///
/// # Errors
/// `Corrupt` with the fault.
pub fn validate(page: &[u8], id: PageId) -> Result<()> {
    let fault = |what: &str| Err(Error::Corrupt(format!("page {id}: {what}")));
    if page.len() != PAGE_BYTES || page[5] != KIND_NODE {
        return fault("is no tree node");
    }
    let (head, tail, n) = (get16(page, 6), get16(page, 8), count(page));
    let slots = slots_at(page);
    if slots > PAGE_BYTES || head != slots + n * SLOT_BYTES || tail < head || tail > PAGE_BYTES {
        return fault("head and tail areas do not fit");
    }
    if get16(page, 14) > get16(page, 20) || (high(page).is_some_and(|h| h <= low(page))) {
        return fault("fences are out of order");
    }
    let mut live = 0;
    for slot in 0..n {
        let offset = get16(page, slot_at(page, slot));
        if offset < tail || offset >= PAGE_BYTES {
            return fault("a slot points outside the record area");
        }
        let Some(len) = record::length(&page[offset..]) else {
            return fault("a record runs past the page");
        };
        if level(page) > 0 && record::decode(&page[offset..]).value.len() != CHILD_BYTES {
            return fault("an inner entry has no child");
        }
        live += len;
        if slot > 0 && suffix(page, slot - 1) >= suffix(page, slot) {
            return fault("keys are out of order");
        }
        let at = slot_at(page, slot);
        if page[at + 2..at + 6] != head_of(suffix(page, slot)).to_be_bytes() {
            return fault("a slot's key head differs from its record");
        }
    }
    if live + get16(page, 12) != PAGE_BYTES - tail {
        return fault("garbage count is wrong");
    }
    check_fences(page, id)
}

fn check_fences(page: &[u8], id: PageId) -> Result<()> {
    let n = count(page);
    if n == 0 {
        return Ok(());
    }
    let mut key = Vec::new();
    key_into(page, 0, &mut key);
    let low_ok = key.as_slice() >= low(page);
    key.clear();
    key_into(page, n - 1, &mut key);
    if !low_ok || high(page).is_some_and(|h| key.as_slice() >= h) {
        return Err(Error::Corrupt(format!(
            "page {id}: a key lies outside the fences"
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
