//! Applying the operations of module `op` to a page: at redo, and when a page is read for which some are kept.
//!
//! Invariants: a good page stays good, whatever the operation says. Applying is deterministic in what the
//! slots hold, but for stamps (see `op`): with versions or without, the slots are the same.
//!
//! Locking: none; the caller owns the bytes.

use crate::op::{
    Op, Ops, ERASE, FREE, GC, GC_REMOVE, IMAGE, INSERT, MARK, PUT, REMOVE, REPLACE, SET_RIGHT,
    TAKE_BACK, TRUNCATE,
};
use crate::record::{Header, Record};
use crate::{node, record};
use ferrite_buffer::page_prefix;
use ferrite_types::{Error, PageId, Result, TxnId, VersionAddr, PAGE_BYTES};

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
        MARK => apply_mark(op, page, &mut |_, _| Ok(VersionAddr::NONE)),
        ERASE => apply_erase(op, page),
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

/// Makes the version that keeps the state of a record which a PUT or MARK replaces: its address. See
/// [`apply_kept`].
pub type KeepState<'a> = dyn FnMut(&Record<'_>, &Record<'_>) -> Result<VersionAddr> + 'a;

/// What a PUT or MARK that is taken back had replaced: the header is returned, the value is put into the
/// buffer. None: nothing that anybody needs. See [`apply_kept`].
pub type RestoreState<'a> = dyn FnMut(&Record<'_>, &mut Vec<u8>) -> Result<Option<Header>> + 'a;

/// Applies a PUT, MARK, ERASE or TAKE_BACK to the page that it was made without. `keep` is called with the
/// record in the place of a PUT or MARK, if there is one, and the new one; `restore` with the record that is
/// taken back: redo needs no versions, but readers may. True if the page may be sparse now.
///
/// # Errors
/// `Corrupt`, as [`apply`], or what `keep` or `restore` returns: the page is as before.
pub fn apply_kept(
    bytes: &[u8],
    page: &mut [u8],
    keep: &mut KeepState<'_>,
    restore: &mut RestoreState<'_>,
) -> Result<bool> {
    let op = Ops::new(bytes).next();
    let op = op.ok_or_else(|| Error::Corrupt("a change without an operation".into()))??;
    if node::index(page) != op.index || !node::is_node(page) {
        return Err(disagree(&op, "a change that was put off"));
    }
    match op.code {
        PUT => apply_put_op(&op, page, keep)?,
        MARK => apply_mark(&op, page, keep)?,
        ERASE => apply_erase(&op, page)?,
        TAKE_BACK => apply_take_back_op(&op, page, restore)?,
        _ => return Err(disagree(&op, "no change that is put off")),
    }
    Ok(op.erases())
}

/// Of a PUT the record stays, delete-marked: what it has replaced, or that it has replaced something, is not
/// known to redo, and the slots must be the same. Of a MARK it is live again.
fn apply_take_back_op(op: &Op<'_>, page: &mut [u8], restore: &mut RestoreState<'_>) -> Result<()> {
    let txn = TxnId(record::u48(op.operands));
    let Ok(slot) = node::find(page, op.whole_key()) else {
        return Err(disagree(op, "nothing to take back"));
    };
    let old = node::record(page, slot);
    if node::level(page) > 0 || old.header.txn != txn {
        return Err(disagree(op, "another's record is taken back"));
    }
    let mut value = old.value.to_vec();
    let before = Header {
        deleted: !old.header.deleted,
        ..Header::default()
    };
    let header = restore(&old, &mut value)?.unwrap_or(before);
    assert!(
        header.deleted == before.deleted,
        "{}: what comes back",
        op.page
    );
    let mut rec = Vec::new();
    record::encode(&header, node::suffix(page, slot), &value, &mut rec);
    if !node::could_replace(page, slot, rec.len()) {
        return Err(disagree(op, "what comes back does not fit"));
    }
    node::replace(page, slot, &rec);
    Ok(())
}

fn apply_mark(op: &Op<'_>, page: &mut [u8], keep: &mut KeepState<'_>) -> Result<()> {
    let Ok(slot) = node::find(page, op.whole_key()) else {
        return Err(disagree(op, "nothing to delete"));
    };
    let old = node::record(page, slot);
    if node::level(page) > 0 || old.header.deleted {
        return Err(disagree(op, "a record is deleted a second time"));
    }
    let mut new = Record {
        header: Header {
            deleted: true,
            txn: TxnId(record::u48(op.operands)),
            version: VersionAddr::NONE,
        },
        ..old
    };
    new.header.version = keep(&old, &new)?;
    let mut rec = Vec::new();
    record::encode(&new.header, new.suffix, new.value, &mut rec);
    if !node::could_replace(page, slot, rec.len()) {
        return Err(disagree(op, "a delete-mark does not fit"));
    }
    node::replace(page, slot, &rec);
    debug_assert!(node::record(page, slot).header.deleted, "it is live");
    Ok(())
}

/// It is not told by its stamp which one goes: who erases knows that the last change of that key was the
/// delete-mark that everybody sees.
fn apply_erase(op: &Op<'_>, page: &mut [u8]) -> Result<()> {
    let Ok(slot) = node::find(page, op.whole_key()) else {
        return Err(disagree(op, "nothing to erase"));
    };
    if node::level(page) > 0 || !node::record(page, slot).header.deleted {
        return Err(disagree(op, "a live record is erased"));
    }
    node::remove(page, slot);
    debug_assert!(
        node::find(page, op.whole_key()).is_err(),
        "it is still there"
    );
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
            if !node::could_replace(page, slot, rec.len()) {
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
    use crate::op::{erase, gc, image, mark, put, remove, replace, take_back, truncate, GC_FREEZE};
    use ferrite_sync::random::Rng;
    use ferrite_types::IndexId;

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

    /// Delete-marked and taken back, or erased: with versions or without, the slots are the same.
    #[test]
    fn what_is_marked_and_erased_replays_to_the_same_slots() {
        let (id, index) = (PageId(4), IndexId(3));
        let mut page = sample_page();
        let mut redone = page.clone();
        let before = Header {
            txn: TxnId(5),
            version: VersionAddr(3),
            ..Header::default()
        };
        let keep = &mut |old: &Record<'_>, new: &Record<'_>| {
            assert!(!old.header.deleted && new.header.deleted && old.value == new.value);
            Ok(VersionAddr(11))
        };
        let restore = &mut |rec: &Record<'_>, _: &mut Vec<u8>| {
            assert_eq!(rec.header.version, VersionAddr(11));
            Ok(Some(before))
        };
        let mut ops = [const { Vec::new() }; 4];
        mark(id, index, TxnId(9), b"k003", &mut ops[0]);
        take_back(id, index, TxnId(9), b"k003", &mut ops[1]);
        mark(id, index, TxnId(9), b"k007", &mut ops[2]);
        erase(id, index, b"k007", &mut ops[3]);
        for bytes in &ops {
            let sparse = apply_kept(bytes, &mut page, keep, restore).unwrap();
            assert_eq!(sparse, *bytes == ops[3]);
            apply(&Ops::new(bytes).next().unwrap().unwrap(), &mut redone).unwrap();
        }
        assert_eq!(node::count(&page), 19);
        assert!(node::find(&page, b"k007").is_err());
        let slot = node::find(&page, b"k003").unwrap();
        assert_eq!(node::record(&page, slot).header, before);
        assert_eq!(node::record(&redone, slot).header, Header::default());
        for slot in 0..node::count(&page) {
            let (a, b) = (node::record(&page, slot), node::record(&redone, slot));
            assert_eq!(
                (a.suffix, a.value, a.header.deleted),
                (b.suffix, b.value, b.header.deleted)
            );
        }
        // Nothing is there, it is live, it is deleted already.
        let mut refused = [const { Vec::new() }; 3];
        mark(id, index, TxnId(9), b"k007", &mut refused[0]);
        erase(id, index, b"k003", &mut refused[1]);
        mark(id, index, TxnId(9), b"k004", &mut refused[2]);
        apply_kept(&refused[2], &mut page, keep, restore).unwrap();
        for bytes in &refused {
            let before = page.clone();
            assert!(apply_kept(bytes, &mut page, keep, restore).is_err());
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
