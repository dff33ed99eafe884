//! Edits of the records of a node page: inserting, removing, replacing, moving them together.
//!
//! Invariants: the caller has checked that there is room; what is free in one piece, garbage and records always add up to
//! the page. Where a record lies is nobody's business but this module's: redo does the same edits on a page whose records
//! may lie elsewhere.
//!
//! Locking: none; the caller has the page to itself.

use super::{
    checked_unused_bytes, count, get16, head_of, high, level, low, prefix, put16, raw, slot_at,
    slots_at, suffix, unused_bytes, CHILD_BYTES, SLOT_BYTES,
};
use crate::record;
use ferrite_types::PAGE_BYTES;

/// Takes `len` bytes of record space, compacting if the middle gap is too small. The caller
/// checked `free_bytes` and keeps `head_extra` more bytes of the gap for slots.
fn take_space(page: &mut [u8], len: usize, head_extra: usize) -> usize {
    if get16(page, 8) - get16(page, 6) < len + head_extra {
        compact(page);
    }
    let at = get16(page, 8) - len;
    assert!(at >= get16(page, 6) + head_extra, "page edit without room");
    put16(page, 8, at);
    at
}

/// Moves all records together; garbage becomes free.
pub fn compact(page: &mut [u8]) {
    let mut copy = [0u8; PAGE_BYTES];
    copy.copy_from_slice(page);
    let mut tail = PAGE_BYTES;
    let head = get16(page, 6);
    for slot in 0..count(&copy) {
        let bytes = raw(&copy, slot);
        assert!(tail >= head + bytes.len(), "records reach into the slots");
        tail -= bytes.len();
        page[tail..tail + bytes.len()].copy_from_slice(bytes);
        let at = slot_at(page, slot);
        put16(page, at, tail);
    }
    put16(page, 8, tail);
    put16(page, 12, 0);
    debug_assert_eq!(unused_bytes(page), unused_bytes(&copy), "garbage");
}

fn write_slot(page: &mut [u8], slot: usize, offset: usize, suffix_head: u32) {
    let at = slot_at(page, slot);
    debug_assert!(
        offset >= at + SLOT_BYTES,
        "a record at {offset} in the slots"
    );
    put16(page, at, offset);
    page[at + 2..at + 6].copy_from_slice(&suffix_head.to_be_bytes());
}

/// True if an encoded record may stand before `slot`: its key between its neighbours and
/// within the fences, its value a child's id on inner nodes.
pub fn belongs(page: &[u8], slot: usize, bytes: &[u8]) -> bool {
    let key = record::suffix_of(bytes);
    let n = count(page);
    if level(page) > 0 && record::decode(bytes).value.len() != CHILD_BYTES {
        return false;
    }
    if slot > 0 && suffix(page, slot - 1) >= key || slot < n && suffix(page, slot) <= key {
        return false;
    }
    let at = prefix(page).len();
    let above_low = slot > 0 || key >= &low(page)[at..];
    let below_high = slot < n || high(page).is_none_or(|h| key < &h[at..]);
    above_low && below_high
}

/// Inserts an encoded record before `slot`. The caller checked [`has_room`].
pub fn insert(page: &mut [u8], slot: usize, bytes: &[u8]) {
    let n = count(page);
    assert!(slot <= n, "slot beyond the page");
    debug_assert_eq!(record::length(bytes), Some(bytes.len()), "no record");
    debug_assert!(
        belongs(page, slot, bytes),
        "a key out of place in slot {slot}"
    );
    let unused = checked_unused_bytes(page);
    let offset = take_space(page, bytes.len(), SLOT_BYTES);
    page[offset..offset + bytes.len()].copy_from_slice(bytes);
    let (from, end) = (slot_at(page, slot), slot_at(page, n));
    page.copy_within(from..end, from + SLOT_BYTES);
    write_slot(page, slot, offset, head_of(record::suffix_of(bytes)));
    put16(page, 10, n + 1);
    put16(page, 6, end + SLOT_BYTES);
    debug_assert_eq!(unused_bytes(page) + bytes.len() + SLOT_BYTES, unused);
    debug_assert_eq!(raw(page, slot), bytes, "slot {slot}");
}

/// Removes a slot.
pub fn remove(page: &mut [u8], slot: usize) {
    let n = count(page);
    assert!(slot < n, "slot beyond the page");
    let len = raw(page, slot).len();
    let unused = checked_unused_bytes(page);
    let (from, end) = (slot_at(page, slot), slot_at(page, n));
    page.copy_within(from + SLOT_BYTES..end, from);
    put16(page, 10, n - 1);
    put16(page, 6, end - SLOT_BYTES);
    let garbage = get16(page, 12) + len;
    put16(page, 12, garbage);
    debug_assert_eq!(unused_bytes(page), unused + len + SLOT_BYTES);
    debug_assert!(
        garbage <= PAGE_BYTES - get16(page, 8),
        "{garbage} of garbage"
    );
}

/// Replaces the record in a slot by another one with the same key. The caller checked
/// [`can_replace`] or [`could_replace`].
pub fn replace(page: &mut [u8], slot: usize, bytes: &[u8]) {
    assert!(slot < count(page), "slot beyond the page");
    debug_assert_eq!(record::length(bytes), Some(bytes.len()), "no record");
    debug_assert_eq!(record::suffix_of(bytes), suffix(page, slot), "another key");
    let unused = match cfg!(debug_assertions) {
        true => unused_bytes(page) + raw(page, slot).len(),
        false => 0,
    };
    put_in_place(page, slot, bytes);
    debug_assert_eq!(unused_bytes(page) + bytes.len(), unused, "slot {slot}");
    debug_assert_eq!(raw(page, slot), bytes, "slot {slot}");
}

/// A record that grows moves to another place if that leaves room for more of its kind, else it grows where it is.
const APPENDED: usize = 8;

#[inline]
fn put_in_place(page: &mut [u8], slot: usize, bytes: &[u8]) {
    let old_len = raw(page, slot).len();
    let offset = get16(page, slot_at(page, slot));
    if bytes.len() <= old_len {
        page[offset..offset + bytes.len()].copy_from_slice(bytes);
        let garbage = get16(page, 12) + old_len - bytes.len();
        put16(page, 12, garbage);
        return;
    }
    let free = get16(page, 8) - get16(page, 6);
    if free >= APPENDED * bytes.len() {
        let garbage = get16(page, 12) + old_len;
        put16(page, 12, garbage);
        let at = take_space(page, bytes.len(), 0);
        page[at..at + bytes.len()].copy_from_slice(bytes);
        let slot_pos = slot_at(page, slot);
        put16(page, slot_pos, at);
        return;
    }
    if free >= bytes.len() - old_len {
        grow_in_place(page, slot, offset, bytes, old_len);
        return;
    }
    remove(page, slot);
    insert(page, slot, bytes);
}

/// The record in `slot`, at `offset`, becomes a longer one: what lies before it moves. It takes no more than the
/// difference of what is free in one piece; put at another place it takes its whole length there, and soon all records
/// have to be moved together.
fn grow_in_place(page: &mut [u8], slot: usize, offset: usize, bytes: &[u8], old_len: usize) {
    let more = bytes.len() - old_len;
    let start = get16(page, 8);
    assert!(
        start - get16(page, 6) >= more,
        "records reach into the slots"
    );
    debug_assert!(start <= offset, "a record before the first one");
    page.copy_within(start..offset, start - more);
    let at = offset - more;
    page[at..at + bytes.len()].copy_from_slice(bytes);
    put16(page, 8, start - more);
    let slots = slots_at(page)..slot_at(page, count(page));
    for place in page[slots].chunks_exact_mut(SLOT_BYTES) {
        let at = get16(place, 0);
        put16(place, 0, if at <= offset { at - more } else { at });
    }
    debug_assert_eq!(get16(page, slot_at(page, slot)), at, "slot {slot}");
}
