//! Making room: splits, from the leaf up to wherever a parent has room, as one log record.
//!
//! Stages: path and frames are taken first (no latch held), then the leaf is latched, all new
//! pages and images are built aside, the record is appended, and everything is published:
//! new pages before the images that point to them. If we die before the record is durable,
//! nothing happened; after, all of it did.

use crate::tree::{Goal, Tree, Tries, SPLIT_PAGES};
use crate::{apply, node, op, record};
use ferrite_buffer::{ExclusiveGuard, InnerRef, NewFrame, Pool};
use ferrite_sync::kill_point;
use ferrite_types::format::record_kind;
use ferrite_types::{IndexId, PageId, Result, PAGE_BYTES};

/// What a structure change collects before it is logged and published.
struct Work<'p> {
    pool: &'p Pool,
    index: IndexId,
    spare: Vec<NewFrame<'p>>,
    ids: Vec<PageId>,
    new_pages: Vec<(PageId, NewFrame<'p>)>,
    images: Vec<(PageId, NewFrame<'p>)>,
    ops: Vec<u8>,
}

impl<'p> Work<'p> {
    fn frame(&mut self) -> NewFrame<'p> {
        self.spare
            .pop()
            .expect("frames were reserved for the whole path")
    }

    fn page_id(&mut self) -> PageId {
        self.ids.pop().expect("ids were taken for the whole path")
    }

    fn stamp_list(&self) -> Vec<u32> {
        self.new_pages
            .iter()
            .chain(&self.images)
            .map(|(_, frame)| frame.frame_no())
            .collect()
    }

    fn give_ids_back(&mut self) {
        for id in self.ids.drain(..) {
            self.pool.unalloc_page(id);
        }
    }
}

/// Shortest key that is above `left` and not above `right` (left < right).
fn separator(left: &[u8], right: &[u8]) -> Vec<u8> {
    debug_assert!(left < right, "{left:?} and {right:?}");
    let common = left.iter().zip(right).take_while(|(a, b)| a == b).count();
    let sep = &right[..(common + 1).min(right.len())];
    debug_assert!(left < sep && sep <= right, "{sep:?}");
    sep.to_vec()
}

fn whole_key(page: &[u8], slot: usize) -> Vec<u8> {
    let mut key = Vec::new();
    node::key_into(page, slot, &mut key);
    key
}

/// Where to cut a full page so that `key` gets room: (slots that stay left, separator).
fn cut(page: &[u8], key: &[u8]) -> (usize, Vec<u8>) {
    let n = node::count(page);
    let at = node::find(page, key).unwrap_or_else(|slot| slot);
    if at == n && n > 0 {
        let sep = separator(&whole_key(page, n - 1), key);
        if halves_fit(page, n, &sep) {
            return (n, sep);
        }
    }
    let first = whole_key(page, 0);
    if at == 0 && key < first.as_slice() {
        let sep = separator(key, &first);
        if halves_fit(page, 0, &sep) {
            return (0, sep);
        }
    }
    let middle = balanced(page).clamp(1, n.max(2) - 1);
    let mut places: Vec<usize> = (1..n).collect();
    places.sort_by_key(|s| s.abs_diff(middle));
    for s in places {
        let sep = separator(&whole_key(page, s - 1), &whole_key(page, s));
        if halves_fit(page, s, &sep) {
            return (s, sep);
        }
    }
    panic!("no place to split a page of {n} records: keys are longer than the format allows")
}

/// Both halves fit a page under their new fences. (A fence may be longer than the one it
/// replaces, so that even fewer records need not fit.)
fn halves_fit(page: &[u8], keep: usize, sep: &[u8]) -> bool {
    let n = node::count(page);
    let (low, high) = (node::low(page), node::high(page));
    node::part_fits(page, 0, keep, low, Some(sep)) && node::part_fits(page, keep, n, sep, high)
}

// Why `cut` finds a place. A page with one record is full for another key only, and is cut beside it. For more
// records the reason is that of `cut_inner`, below.
const _: () = assert!(
    node::HEADER_BYTES + 2 * node::MAX_KEY_BYTES + node::room_for(0, node::MAX_RECORD_BYTES)
        <= node::FULL_BYTES
        && PAGE_BYTES
            + node::HEADER_BYTES
            + 2 * node::MAX_KEY_BYTES
            + node::room_for(0, node::MAX_RECORD_BYTES)
            <= 2 * PAGE_BYTES
);

/// Where to cut a full inner node that gets an entry for `sep`: (entries that stay left, separator). Its
/// own entries are the places, and the new one, which is the first of the right half then.
fn cut_inner(page: &[u8], sep: &[u8]) -> (usize, Vec<u8>) {
    let n = node::count(page);
    let at = node::find(page, sep).expect_err("separator is there already");
    assert!(at > 0, "an entry before the low fence");
    // Places count the entries with the new one among them: so many are left of it.
    let keep = match at == n {
        true => n - 1,
        false => balanced(page).clamp(1, n - 1),
    };
    let wanted = keep + usize::from(keep >= at);
    let mut places: Vec<usize> = (1..=n).collect();
    places.sort_by_key(|place| place.abs_diff(wanted));
    for place in places {
        let keep = place - usize::from(place > at);
        let middle = match place == at {
            true => sep.to_vec(),
            false => whole_key(page, keep),
        };
        if inner_halves_fit(page, keep, &middle, sep) {
            return (keep, middle);
        }
    }
    panic!("no place to split an inner node of {n} entries: keys are longer than the format allows")
}

/// Largest inner entry, in bytes.
const ENTRY_MOST: usize =
    record::FIXED_BYTES + node::MAX_KEY_BYTES + node::CHILD_BYTES + node::SLOT_BYTES;

// Why `cut_inner` finds a place. The left half of one entry fits. Take the last place whose left half
// fits: if that is the last one, the right half has one entry and fits. If not, this place's right half and
// the next place's left half have together what the page had, one header more, two separators as fences
// (one each), the new entry, and the entry between the two places a second time. That is less than two
// pages hold, and the left half is more than one page holds: so the right half is less. (What a half has as
// prefix is no shorter than the page's, for its fences lie within the page's.)
const _: () = assert!(
    node::HEADER_BYTES + 2 * node::MAX_KEY_BYTES + ENTRY_MOST <= node::FULL_BYTES
        && PAGE_BYTES + node::HEADER_BYTES + 2 * node::MAX_KEY_BYTES + 2 * ENTRY_MOST
            <= 2 * node::FULL_BYTES
);

/// Both halves fit under their new fences, with the entry of `sep` in one of them.
fn inner_halves_fit(page: &[u8], keep: usize, middle: &[u8], sep: &[u8]) -> bool {
    let n = node::count(page);
    let (low, high) = (node::low(page), node::high(page));
    let left = node::part_bytes(page, 0, keep, low, Some(middle));
    let right = node::part_bytes(page, keep, n, middle, high);
    // Its key whole, though what it has in common with its half's fences is left out.
    let entry = ENTRY_MOST - node::MAX_KEY_BYTES + sep.len();
    let (left, right) = match sep < middle {
        true => (left + entry, right),
        false => (left, right + entry),
    };
    left.max(right) <= node::FULL_BYTES
}

/// The slot count that puts about half the bytes on each side.
fn balanced(page: &[u8]) -> usize {
    let half = node::used_bytes(page) / 2;
    let mut sum = 0;
    for slot in 0..node::count(page) {
        sum += node::raw(page, slot).len() + node::SLOT_BYTES;
        if sum >= half {
            return slot + 1;
        }
    }
    node::count(page)
}

fn child_record(page: &[u8], key: &[u8], child: PageId) -> Vec<u8> {
    assert!(child != PageId::NONE && node::level(page) > 0, "{child}");
    debug_assert!(key.starts_with(node::prefix(page)), "a key of another node");
    let mut out = Vec::new();
    let suffix = &key[node::prefix(page).len()..];
    record::encode(
        &record::Header::default(),
        suffix,
        &child.0.to_le_bytes(),
        &mut out,
    );
    out
}

impl Tree {
    /// Splits the leaf that covers `key` if a record of `record_bytes` for it would not fit
    /// there, in the place of the one it has if it has one. The caller holds no latch and looks again
    /// afterwards. If it was split: the two leaves that have its records now.
    ///
    /// # Errors
    /// A page that cannot be read; the tree is unchanged.
    pub fn make_room(
        &self,
        key: &[u8],
        record_bytes: usize,
        prelude: &[u8],
    ) -> Result<Option<(PageId, PageId)>> {
        let _structure = self.lock_structure()?;
        let pool: &Pool = &self.pool;
        let (depth, leaf_page) = self.levels_and_leaf(Goal::Covers(key))?;
        debug_assert!(2 * depth <= SPLIT_PAGES, "{depth} levels");
        let mut work = Work {
            pool,
            index: self.index,
            spare: pool.reserve(3 * depth)?,
            ids: (0..2 * depth)
                .map(|_| pool.alloc_page(self.index))
                .collect(),
            new_pages: Vec::new(),
            images: Vec::new(),
            ops: Vec::new(),
        };
        let mut tries = Tries::default();
        let result = loop {
            let mut leaf = match pool.exclusive(leaf_page) {
                Ok(leaf) => leaf.expect("the structure lock keeps the leaf"),
                Err(e) => break Err(e),
            };
            assert!(self.is_our_leaf(&leaf), "{leaf_page} is another tree's");
            assert!(node::covers(&leaf, key), "path and leaf disagree");
            if node::has_room_for(&leaf, key, record_bytes) {
                break Ok(None);
            }
            let pin = pool.pin();
            let mut path: Vec<InnerRef<'_>> = Vec::new();
            let found = self.path(Goal::Covers(key), &pin, |inner| path.push(inner));
            let Err(obstacle) = found else {
                break Ok(Some(
                    self.split_leaf(&mut work, &mut leaf, &path, key, prelude),
                ));
            };
            drop((leaf, pin));
            if let Err(e) = self.overcome(obstacle, &mut tries) {
                break Err(e);
            }
        };
        work.give_ids_back();
        result
    }

    fn split_leaf(
        &self,
        work: &mut Work<'_>,
        leaf: &mut ExclusiveGuard<'_>,
        path: &[InnerRef<'_>],
        key: &[u8],
        prelude: &[u8],
    ) -> (PageId, PageId) {
        let (keep, sep) = cut(leaf, key);
        let page = leaf.page_id();
        assert!(
            node::low(leaf) < sep.as_slice() && node::covers(leaf, &sep),
            "{page} is split at its edge"
        );
        debug_assert!(halves_fit(leaf, keep, &sep), "{page} is split at {keep}");
        let mut change = None;
        if path.is_empty() {
            grow_root(work, page, leaf, keep, &sep);
        } else {
            let right = work.page_id();
            let mut frame = work.frame();
            let (n, high, next) = (node::count(leaf), node::high(leaf), node::right(leaf));
            node::copy_part(leaf, keep, n, &sep, high, next, frame.bytes_mut());
            assert!(node::count(&frame) + keep == n, "{keep} of {n} are kept");
            debug_assert!(node::is_sound(&frame), "the right half of {page}");
            op::image(right, &frame, &mut work.ops);
            work.new_pages.push((right, frame));
            op::truncate(page, self.index, keep, right, &sep, &mut work.ops);
            insert_child(work, path, &sep, right);
            change = Some(right);
        }
        assert!(
            !work.new_pages.is_empty() && !work.images.is_empty(),
            "{page}"
        );
        // A root's content is on two new pages.
        let halves = match change {
            Some(right) => (page, right),
            None => (work.new_pages[0].0, work.new_pages[1].0),
        };
        let mut stamp = work.stamp_list();
        stamp.push(leaf.frame_no());
        kill_point!("tree.before_split_logged");
        let parts = [prelude, work.ops.as_slice()];
        work.pool.append(record_kind::MINI_TXN, &parts, &stamp);
        kill_point!("tree.after_split_logged");
        if let Some(right) = change {
            apply::apply_truncate(leaf.bytes_mut(), keep, right, &sep);
            assert!(node::high(leaf) == Some(&sep), "{page} ends elsewhere");
        }
        for (id, frame) in work.new_pages.drain(..) {
            work.pool.publish_new(id, frame);
        }
        for (id, frame) in work.images.drain(..) {
            let guard = (id == page).then_some(&*leaf);
            work.pool.publish_image(id, frame, guard);
        }
        debug_assert!(halves.0 != halves.1, "one half of {page}");
        halves
    }
}

/// The root keeps its id: its content moves to two new pages.
fn grow_root(work: &mut Work<'_>, root: PageId, bytes: &[u8], keep: usize, sep: &[u8]) {
    assert!(
        node::low(bytes).is_empty() && node::high(bytes).is_none(),
        "the root {root} has fences"
    );
    assert!(
        node::right(bytes) == PageId::NONE,
        "the root {root} has a neighbour"
    );
    let (left_id, right_id) = (work.page_id(), work.page_id());
    let (mut left, mut right, mut top) = (work.frame(), work.frame(), work.frame());
    let n = node::count(bytes);
    node::copy_part(bytes, 0, keep, b"", Some(sep), right_id, left.bytes_mut());
    node::copy_part(bytes, keep, n, sep, None, PageId::NONE, right.bytes_mut());
    let (kept, moved) = (node::count(&left), node::count(&right));
    assert!(kept + moved == n, "{kept} and {moved} of {n}");
    let level = node::level(bytes) + 1;
    node::init(top.bytes_mut(), work.index, level, b"", None, PageId::NONE);
    let entries = [
        child_record(&top, b"", left_id),
        child_record(&top, sep, right_id),
    ];
    node::insert(top.bytes_mut(), 0, &entries[0]);
    node::insert(top.bytes_mut(), 1, &entries[1]);
    assert!(node::child(&top, 0) == left_id && node::child(&top, 1) == right_id);
    debug_assert!([&left, &right, &top]
        .into_iter()
        .all(|page| node::is_sound(page)));
    op::image(left_id, &left, &mut work.ops);
    op::image(right_id, &right, &mut work.ops);
    op::image(root, &top, &mut work.ops);
    work.new_pages.push((left_id, left));
    work.new_pages.push((right_id, right));
    work.images.push((root, top));
}

/// The last node of `path` gets an entry for a new child; splits upward as needed.
fn insert_child(work: &mut Work<'_>, path: &[InnerRef<'_>], sep: &[u8], child: PageId) {
    let parent = path.last().expect("the root was handled apart");
    assert!(node::covers(parent, sep), "an entry beyond its node");
    let entry = child_record(parent, sep, child);
    let slot = match node::find(parent, sep) {
        Err(slot) => slot,
        Ok(_) => panic!("separator is there already"),
    };
    let page = parent.page_id();
    if node::has_room(parent, entry.len()) {
        let mut image = work.frame();
        image.bytes_mut().copy_from_slice(parent);
        node::insert(image.bytes_mut(), slot, &entry);
        debug_assert!(node::is_sound(&image), "the next image of {page}");
        op::insert(page, work.index, slot, &entry, &mut work.ops);
        work.images.push((page, image));
        return;
    }
    split_inner(work, path, sep, child);
}

/// Splits a full inner node, around its middle if it can be, with the new entry already in it.
fn split_inner(work: &mut Work<'_>, path: &[InnerRef<'_>], sep: &[u8], child: PageId) {
    let (parent, above) = path.split_last().expect("called with a parent");
    let page = parent.page_id();
    let n = node::count(parent);
    let (keep, middle) = cut_inner(parent, sep);
    assert!(
        keep > 0 && (keep < n || middle == sep),
        "{page}: {keep} of {n} entries are kept"
    );
    let mut full = vec![0u8; PAGE_BYTES];
    full.copy_from_slice(parent);
    if above.is_empty() {
        let before = work.new_pages.len();
        grow_root(work, page, &full, keep, &middle);
        // The two halves were just logged as images; the entry follows as an insert.
        let half = before + usize::from(sep >= middle.as_slice());
        let (id, frame) = &mut work.new_pages[half];
        add_entry(frame, *id, work.index, sep, child, &mut work.ops);
        return;
    }
    let right_id = work.page_id();
    let (mut left, mut right) = (work.frame(), work.frame());
    let (low, high, next) = (node::low(&full), node::high(&full), node::right(&full));
    node::copy_part(
        &full,
        0,
        keep,
        low,
        Some(&middle),
        right_id,
        left.bytes_mut(),
    );
    node::copy_part(&full, keep, n, &middle, high, next, right.bytes_mut());
    let (kept, moved) = (node::count(&left), node::count(&right));
    assert!(kept + moved == n, "{page}: {kept} and {moved} of {n}");
    assert!(
        node::high(&left) == Some(node::low(&right)),
        "a gap in {page}"
    );
    op::image(right_id, &right, &mut work.ops);
    op::image(page, &left, &mut work.ops);
    if sep < middle.as_slice() {
        add_entry(&mut left, page, work.index, sep, child, &mut work.ops);
    } else {
        add_entry(&mut right, right_id, work.index, sep, child, &mut work.ops);
    }
    work.new_pages.push((right_id, right));
    work.images.push((page, left));
    insert_child(work, above, &middle, right_id);
}

fn add_entry(
    frame: &mut NewFrame<'_>,
    page: PageId,
    index: IndexId,
    sep: &[u8],
    child: PageId,
    ops: &mut Vec<u8>,
) {
    assert!(node::covers(frame, sep), "an entry beyond {page}");
    let entry = child_record(frame, sep, child);
    assert!(node::has_room(frame, entry.len()), "half of {page} is full");
    let slot = match node::find(frame, sep) {
        Err(slot) => slot,
        Ok(_) => panic!("separator is there already"),
    };
    op::insert(page, index, slot, &entry, ops);
    node::insert(frame.bytes_mut(), slot, &entry);
    debug_assert!(node::is_sound(frame), "{page} with its new entry");
}

#[cfg(test)]
#[path = "split_tests.rs"]
mod tests;
