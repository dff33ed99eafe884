//! Applying the operations that name a key, not a slot: they were made without their page, and are applied when it is
//! read, or at redo.
//!
//! Invariants: those of `apply`. With versions or without, the slots are the same afterwards.
//!
//! Locking: none; the caller owns the bytes.

use crate::op::{self, disagree, Op, Ops, ERASE, MARK, PUT, TAKE_BACK};
use crate::record::{Header, Record};
use crate::{node, record};
use ferrite_types::{Error, Result, TxnId, VersionAddr};

/// Makes the version that keeps the state of a record which a PUT or MARK replaces: its address. See
/// [`apply_kept`].
pub type KeepState<'a> = dyn FnMut(&Record<'_>, &Record<'_>) -> Result<VersionAddr> + 'a;

/// The header of what a PUT or MARK that is taken back had replaced, its version told from the value that is there
/// and stays. None: nothing that anybody needs. See [`apply_kept`].
pub type RestoreState<'a> = dyn FnMut(&Record<'_>) -> Result<Option<Header>> + 'a;

/// Applies a PUT, MARK, ERASE or TAKE_BACK to the page that it was made without. `keep` is called with the
/// record in the place of a PUT or MARK, if there is one, and the new one; `restore` with the record that is
/// taken back: redo needs no versions, but readers may. `came_to` gets the same change as an operation of this page
/// that names slots and versions. True if the page may be sparse now.
///
/// # Errors
/// `Corrupt`, as [`crate::apply::apply`], or what `keep` or `restore` returns: the page is as before.
pub fn apply_kept(
    bytes: &[u8],
    page: &mut [u8],
    keep: &mut KeepState<'_>,
    restore: &mut RestoreState<'_>,
    came_to: &mut Vec<u8>,
) -> Result<bool> {
    let op = Ops::new(bytes).next();
    let op = op.ok_or_else(|| Error::Corrupt("a change without an operation".into()))??;
    if node::index(page) != op.index || !node::is_node(page) {
        return Err(disagree(&op, "a change that was put off"));
    }
    apply_by_key(&op, page, keep, restore)?.encode(&op, page, came_to);
    Ok(op.erases())
}

/// Applies one of them at redo: there are no versions.
pub(crate) fn apply_without_versions(op: &Op<'_>, page: &mut [u8]) -> Result<()> {
    let keep: &mut KeepState<'_> = &mut |_, _| Ok(VersionAddr::NONE);
    apply_by_key(op, page, keep, &mut |_| Ok(None)).map(|_| ())
}

fn apply_by_key(
    op: &Op<'_>,
    page: &mut [u8],
    keep: &mut KeepState<'_>,
    restore: &mut RestoreState<'_>,
) -> Result<CameTo> {
    match op.code {
        PUT => apply_put_op(op, page, keep),
        MARK => apply_mark(op, page, keep),
        ERASE => apply_erase(op, page),
        TAKE_BACK => apply_take_back_op(op, page, restore),
        _ => Err(disagree(op, "no change that is put off")),
    }
}

/// What an operation that names a key has done to the page: to which slot.
enum CameTo {
    Inserted(usize),
    Replaced(usize),
    Removed(usize),
}

impl CameTo {
    /// The operation that does the same to the page as it was.
    fn encode(self, op: &Op<'_>, page: &[u8], out: &mut Vec<u8>) {
        let (id, index) = (op.page, op.index);
        match self {
            CameTo::Inserted(slot) => op::insert(id, index, slot, node::raw(page, slot), out),
            CameTo::Replaced(slot) => {
                op::replace(id, index, slot, node::raw(page, slot), (0, 0), out);
            }
            CameTo::Removed(slot) => op::remove(id, index, slot, out),
        }
        debug_assert!(!out.is_empty(), "{id}: a change that is none");
    }
}

/// Of a PUT the record stays, delete-marked: what it has replaced, or that it has replaced something, is not
/// known to redo, and the slots and their values must be the same: later operations keep parts of them. Of a MARK it
/// is live again.
fn apply_take_back_op(
    op: &Op<'_>,
    page: &mut [u8],
    restore: &mut RestoreState<'_>,
) -> Result<CameTo> {
    let txn = TxnId(record::u48(op.operands));
    let Ok(slot) = node::find(page, op.whole_key()) else {
        return Err(disagree(op, "nothing to take back"));
    };
    let old = node::record(page, slot);
    if node::level(page) > 0 || old.header.txn != txn {
        return Err(disagree(op, "another's record is taken back"));
    }
    let before = Header {
        deleted: !old.header.deleted,
        ..Header::default()
    };
    let header = restore(&old)?.unwrap_or(before);
    assert!(
        header.deleted == before.deleted,
        "{}: what comes back",
        op.page
    );
    let mut rec = Vec::new();
    record::encode(&header, old.suffix, old.value, &mut rec);
    if !node::could_replace(page, slot, rec.len()) {
        return Err(disagree(op, "what comes back does not fit"));
    }
    node::replace(page, slot, &rec);
    Ok(CameTo::Replaced(slot))
}

fn apply_mark(op: &Op<'_>, page: &mut [u8], keep: &mut KeepState<'_>) -> Result<CameTo> {
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
    Ok(CameTo::Replaced(slot))
}

/// It is not told by its stamp which one goes: who erases knows that the last change of that key was the
/// delete-mark that everybody sees.
fn apply_erase(op: &Op<'_>, page: &mut [u8]) -> Result<CameTo> {
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
    Ok(CameTo::Removed(slot))
}

fn apply_put_op(op: &Op<'_>, page: &mut [u8], keep: &mut KeepState<'_>) -> Result<CameTo> {
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
    let came_to = match node::find(page, whole.suffix) {
        Err(slot) => {
            record::encode(&whole.header, suffix, whole.value, &mut rec);
            if !node::has_room(page, rec.len()) {
                return Err(disagree(op, "put does not fit"));
            }
            node::insert(page, slot, &rec);
            CameTo::Inserted(slot)
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
            CameTo::Replaced(slot)
        }
    };
    debug_assert!(
        node::find(page, whole.suffix).is_ok(),
        "it is not found again"
    );
    Ok(came_to)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apply::tests::sample_page;
    use crate::apply::{apply, apply_changes};
    use crate::op::{erase, mark, put, take_back};
    use ferrite_types::{IndexId, PageId};

    /// What the changes came to does to the page of before what they did, versions and all.
    fn assert_comes_to(mut begun: Vec<u8>, came_to: &[u8], page: &[u8]) {
        apply_changes(PageId(4), came_to, &mut begun).unwrap();
        node::validate(page, PageId(4)).unwrap();
        node::validate(&begun, PageId(4)).unwrap();
        let slots = |page: &[u8]| -> Vec<Vec<u8>> {
            let all = 0..node::count(page);
            all.map(|slot| node::raw(page, slot).to_vec()).collect()
        };
        assert_eq!(slots(&begun), slots(page));
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
        let (mut redone, mut came_to) = (page.clone(), Vec::new());
        let begun = page.clone();
        for (key, back) in [(&b"k0055"[..], false), (b"k005", true), (b"zz", true)] {
            let (put, take_back) = kept(key, 9);
            let ops = [Some(put), back.then_some(take_back)];
            for bytes in ops.iter().flatten() {
                let keep = &mut |old: &Record<'_>, new: &Record<'_>| {
                    assert_eq!((old.header, new.header.txn), (ghost, TxnId(9)));
                    Ok(VersionAddr(11))
                };
                let restore = &mut |rec: &Record<'_>| {
                    let has_replaced = !rec.header.version.is_none();
                    Ok(has_replaced.then_some(ghost))
                };
                apply_kept(bytes, &mut page, keep, restore, &mut came_to).unwrap();
                apply(&Ops::new(bytes).next().unwrap().unwrap(), &mut redone).unwrap();
            }
        }
        assert_comes_to(begun, &came_to, &page);
        node::validate(&redone, PageId(4)).unwrap();
        assert_eq!(node::count(&page), 22);
        for slot in 0..node::count(&page) {
            let (a, b) = (node::record(&page, slot), node::record(&redone, slot));
            assert_eq!(
                (a.suffix, a.value, a.header.deleted),
                (b.suffix, b.value, b.header.deleted)
            );
        }
        let slot = node::find(&page, b"k005").unwrap();
        let back = node::record(&page, slot);
        assert_eq!((back.header, back.value), (ghost, &b"new"[..]));
        let (put, take_back) = kept(b"k006", 9);
        let nothing = &mut |_: &Record<'_>, _: &Record<'_>| Ok(VersionAddr::NONE);
        let none = &mut |_: &Record<'_>| Ok(None);
        for bytes in [put, take_back] {
            let before = page.clone();
            let mut came_to = Vec::new();
            assert!(apply_kept(&bytes, &mut page, nothing, none, &mut came_to).is_err());
            assert_eq!(before, page, "a refused change changes the page");
            assert!(came_to.is_empty(), "it came to something");
        }
    }

    /// Delete-marked and taken back, or erased: with versions or without, the slots are the same.
    #[test]
    fn what_is_marked_and_erased_replays_to_the_same_slots() {
        let (id, index) = (PageId(4), IndexId(3));
        let mut page = sample_page();
        let (mut redone, mut came_to) = (page.clone(), Vec::new());
        let begun = page.clone();
        let before = Header {
            txn: TxnId(5),
            version: VersionAddr(3),
            ..Header::default()
        };
        let keep = &mut |old: &Record<'_>, new: &Record<'_>| {
            assert!(!old.header.deleted && new.header.deleted && old.value == new.value);
            Ok(VersionAddr(11))
        };
        let restore = &mut |rec: &Record<'_>| {
            assert_eq!(rec.header.version, VersionAddr(11));
            Ok(Some(before))
        };
        let mut ops = [const { Vec::new() }; 4];
        mark(id, index, TxnId(9), b"k003", &mut ops[0]);
        take_back(id, index, TxnId(9), b"k003", &mut ops[1]);
        mark(id, index, TxnId(9), b"k007", &mut ops[2]);
        erase(id, index, b"k007", &mut ops[3]);
        for bytes in &ops {
            let sparse = apply_kept(bytes, &mut page, keep, restore, &mut came_to).unwrap();
            assert_eq!(sparse, *bytes == ops[3]);
            apply(&Ops::new(bytes).next().unwrap().unwrap(), &mut redone).unwrap();
        }
        assert_comes_to(begun, &came_to, &page);
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
        apply_kept(&refused[2], &mut page, keep, restore, &mut came_to).unwrap();
        for bytes in &refused {
            let before = page.clone();
            assert!(apply_kept(bytes, &mut page, keep, restore, &mut came_to).is_err());
            assert_eq!(before, page, "a refused change changes the page");
        }
    }
}
