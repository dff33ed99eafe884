//! Where inner nodes are cut.

use super::*;
use ferrite_sync::random::Rng;

fn inner(low: &[u8], high: Option<&[u8]>) -> Vec<u8> {
    let mut page = vec![0; PAGE_BYTES];
    node::init(&mut page, IndexId(7), 1, low, high, PageId(99));
    let first = child_record(&page, low, PageId(1));
    node::insert(&mut page, 0, &first);
    page
}

/// False: it does not fit, or is there.
fn add(page: &mut [u8], key: &[u8], child: u32) -> bool {
    let entry = child_record(page, key, PageId(child));
    match node::find(page, key) {
        Err(slot) if node::has_room(page, entry.len()) => node::insert(page, slot, &entry),
        _ => return false,
    }
    true
}

/// Cuts the page for `sep` as a split does, and looks at what it has become.
fn cut_and_check(page: &[u8], sep: &[u8]) {
    let (keep, middle) = cut_inner(page, sep);
    let n = node::count(page);
    let (low, high) = (node::low(page), node::high(page));
    assert!(low < middle.as_slice() && node::covers(page, &middle));
    let (mut left, mut right) = (vec![0; PAGE_BYTES], vec![0; PAGE_BYTES]);
    node::copy_part(page, 0, keep, low, Some(&middle), PageId(98), &mut left);
    node::copy_part(page, keep, n, &middle, high, PageId(99), &mut right);
    let half = match sep < middle.as_slice() {
        true => &mut left,
        false => &mut right,
    };
    assert!(node::covers(half, sep) && add(half, sep, 97), "no room");
    let mut found = Vec::new();
    for half in [&left, &right] {
        node::validate(half, PageId(5)).unwrap();
        assert_eq!(whole_key(half, 0), node::low(half), "the first child's");
        found.extend((0..node::count(half)).map(|slot| whole_key(half, slot)));
    }
    let mut all: Vec<Vec<u8>> = (0..n).map(|slot| whole_key(page, slot)).collect();
    all.push(sep.to_vec());
    all.sort_unstable();
    assert!(found == all, "{} of {} entries", found.len(), all.len());
}

#[test]
fn a_separator_that_becomes_a_fence_fits_beside_the_new_entry() {
    let long = |first: u8, len: usize| {
        let mut key = vec![b'f'; len];
        key[0] = first;
        key
    };
    let mut page = inner(&long(10, 3000), None);
    for (first, len) in [(20, 2885), (30, 3000), (50, 3000)] {
        assert!(add(&mut page, &long(first, len), u32::from(first)));
    }
    for first in [15, 25, 40, 60] {
        cut_and_check(&page, &long(first, 3000));
        cut_and_check(&page, &long(first, 4000));
    }
}

#[test]
fn every_full_inner_node_can_be_cut() {
    for seed in 0..if cfg!(miri) { 5 } else { 200 } {
        let mut rng = Rng::new(seed);
        let shortest = [2, 2, 1000, 2900, 3990][rng.below(5) as usize];
        let equal = [0, 0, 500, 1999][rng.below(4) as usize].min(shortest);
        let key = |rng: &mut Rng| {
            let longest = node::MAX_KEY_BYTES - shortest;
            let len =
                shortest + [0, longest, rng.below(longest as u64) as usize][rng.below(3) as usize];
            let mut key = vec![b'f'; len];
            key[equal.min(len - 2)..]
                .iter_mut()
                .take(2)
                .for_each(|b| *b = rng.below(256) as u8);
            key
        };
        let mut fences = [key(&mut rng), key(&mut rng)];
        fences.sort_unstable();
        let [low, high] = fences;
        if low == high {
            continue;
        }
        let mut page = match rng.below(3) {
            0 => inner(b"", None),
            1 => inner(&low, None),
            _ => inner(&low, Some(&high)),
        };
        for child in 2..600 {
            let new = key(&mut rng);
            if !node::covers(&page, &new) || node::find(&page, &new).is_ok() {
                continue;
            }
            if !add(&mut page, &new, child) {
                cut_and_check(&page, &new);
            }
        }
    }
}
