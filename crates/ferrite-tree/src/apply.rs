//! Applying the operations of module `op` to a page: at redo, and when a page is read for which some are kept.
//!
//! Invariants: a good page stays good, whatever the operation says. Applying is deterministic in what the
//! slots hold, but for stamps (see `op`): with versions or without, the slots are the same.
//!
//! Locking: none; the caller owns the bytes.

use crate::op::{
    disagree, Op, Ops, ERASE, FREE, GC, GC_REMOVE, IMAGE, INSERT, MARK, PUT, REMOVE, REPLACE,
    SET_RIGHT, TAKE_BACK, TRUNCATE,
};
use crate::{by_key, node, record};
use ferrite_buffer::page_prefix;
use ferrite_types::{PageId, Result, PAGE_BYTES};

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
        PUT | MARK | ERASE | TAKE_BACK => by_key::apply_without_versions(op, page),
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
        || !node::could_replace(page, slot, new.len())
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

/// Applies all operations of the page's delta to its bytes.
///
/// # Errors
/// As [`apply_all`]; `Corrupt` also when one is of another page, or makes or frees one.
pub fn apply_changes(page: PageId, ops: &[u8], bytes: &mut [u8]) -> Result<()> {
    debug_assert!(bytes.len() == PAGE_BYTES, "{page} is not whole");
    for op in Ops::new(ops) {
        let op = op?;
        if op.page != page || op.creates() || op.frees() {
            return Err(disagree(&op, "a delta of something else"));
        }
        apply(&op, bytes)?;
    }
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
pub(crate) mod tests {
    use super::*;
    use crate::op::{gc, image, remove, replace, truncate, GC_FREEZE};
    use crate::record::Header;
    use ferrite_sync::random::Rng;
    use ferrite_types::{IndexId, TxnId, VersionAddr};

    /// Bytes of key suffix and value that are the same at the head and at the tail.
    fn common(old: &[u8], new: &[u8]) -> (usize, usize) {
        let (old, new) = (record::body(old), record::body(new));
        let head = old.iter().zip(new).take_while(|(a, b)| a == b).count();
        let most = old.len().min(new.len()) - head;
        let pairs = old.iter().rev().zip(new.iter().rev()).take(most);
        (head, pairs.take_while(|(a, b)| a == b).count())
    }

    pub(crate) fn sample_page() -> Vec<u8> {
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

    /// In memory each record is replaced by one of the same length; on the page at rest the old ones are shorter.
    #[test]
    fn operations_apply_to_a_full_page_at_rest() {
        let (id, index) = (PageId(4), IndexId(3));
        for spare in 0..60 {
            let stamped = |key: &[u8], txn: u64| {
                let header = Header {
                    deleted: false,
                    txn: TxnId(txn),
                    version: VersionAddr(7),
                };
                let mut bytes = Vec::new();
                record::encode(&header, key, b"value-one", &mut bytes);
                bytes
            };
            let mut page = vec![0u8; PAGE_BYTES];
            node::init(&mut page, IndexId(3), 0, b"", None, PageId::NONE);
            let keys: Vec<String> = (0..20).map(|i| format!("k{i:03}")).collect();
            for (slot, key) in keys.iter().enumerate() {
                node::insert(&mut page, slot, &stamped(key.as_bytes(), 3));
            }
            // A split may leave so little.
            let (mut filler, header) = (Vec::new(), Header::default());
            let gap = node::free_bytes(&page) + 40 - spare - 6;
            record::encode(&header, b"z", &vec![1; gap - 20], &mut filler);
            let longer = gap - filler.len();
            filler.clear();
            record::encode(&header, b"z", &vec![1; gap - 20 + longer], &mut filler);
            node::insert(&mut page, keys.len(), &filler);
            let mut rest = vec![0; PAGE_BYTES];
            assert!(node::strip_for_write(&page, TxnId(9), &mut rest));
            let mut log = Vec::new();
            for (slot, key) in keys.iter().enumerate() {
                let (old, new) = (node::raw(&page, slot).to_vec(), stamped(key.as_bytes(), 10));
                assert!(node::can_replace(&page, slot, new.len()));
                replace(id, index, slot, &new, common(&old, &new), &mut log);
                node::replace(&mut page, slot, &new);
            }
            apply_all(&log, &mut rest).unwrap_or_else(|e| panic!("{spare} bytes unused: {e}"));
            node::validate(&rest, id).unwrap();
            let same = |slot| node::raw(&page, slot) == node::raw(&rest, slot);
            assert!((0..node::count(&page)).all(same), "{spare} bytes unused");
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
                bytes[0] = 1 + (bytes[0] % 13);
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
