//! The leaves of a damaged tree: those that the tree leads to, then those that lie loose.
//!
//! A leaf below a lost inner node is still there, but so may be leaves that were merged away
//! long ago. Of leaves whose ranges of keys overlap, only the newest belongs to the tree: they
//! are taken from the newest to the oldest, each only if its range is free and lies within one
//! gap. A gap left by a lost leaf is not filled: its rows are gone, and what an older leaf says
//! of them is the past.
//!
//! Invariant: no range of keys is visited twice, so no row is.

use ferrite_engine::offline::{Hole, Offline};
use ferrite_tree::node;
use ferrite_types::{IndexId, Lsn, PageId, PAGE_BYTES};
use std::collections::HashSet;

/// What there was beside the leaves.
#[derive(Default)]
pub(super) struct Found {
    /// Gaps that no leaf was found for.
    pub(super) holes: u64,
    /// Leaves that lay loose.
    pub(super) loose: u64,
    /// Faults, in words.
    pub(super) faults: Vec<String>,
}

struct Loose {
    page: PageId,
    lsn: Lsn,
    low: Vec<u8>,
    high: Option<Vec<u8>>,
}

/// Calls `each` with every leaf that belongs to the tree.
pub(super) fn each_leaf(
    offline: &Offline,
    index: IndexId,
    root: PageId,
    each: &mut dyn FnMut(&[u8]),
) -> Found {
    let walk = offline.tree(index, root, &mut |_, bytes| each(bytes));
    let mut found = Found {
        faults: walk.faults,
        ..Found::default()
    };
    let (lost, gaps): (Vec<Hole>, Vec<Hole>) = walk.holes.into_iter().partition(|h| h.leaf);
    found.holes = lost.len() as u64;
    if gaps.is_empty() {
        return found;
    }
    let mut page = vec![0; PAGE_BYTES];
    let mut taken: Vec<Loose> = Vec::new();
    for leaf in loose_leaves(offline, index, &walk.pages) {
        let in_gap = gaps.iter().any(|gap| within(&leaf, gap));
        if !in_gap || taken.iter().any(|t| overlap(t, &leaf)) {
            continue;
        }
        if offline.node(index, leaf.page, &mut page).is_ok() {
            each(&page);
            taken.push(leaf);
        }
    }
    found.loose = taken.len() as u64;
    found.holes += gaps.iter().map(|gap| open_ranges(gap, &taken)).sum::<u64>();
    found
}

/// Sound leaves of the index that the tree does not lead to, the newest first.
fn loose_leaves(offline: &Offline, index: IndexId, known: &HashSet<PageId>) -> Vec<Loose> {
    let mut page = vec![0; PAGE_BYTES];
    let mut loose = Vec::new();
    for id in offline.pages_of(index) {
        let unknown = !known.contains(&id) && offline.node(index, id, &mut page).is_ok();
        if unknown && node::level(&page) == 0 {
            loose.push(Loose {
                page: id,
                lsn: offline.page_lsn(id).unwrap_or(Lsn::ZERO),
                low: node::low(&page).to_vec(),
                high: node::high(&page).map(<[u8]>::to_vec),
            });
        }
    }
    loose.sort_by_key(|leaf| std::cmp::Reverse(leaf.lsn));
    loose
}

fn within(leaf: &Loose, gap: &Hole) -> bool {
    leaf.low >= gap.low && ends_by(leaf.high.as_deref(), gap.high.as_deref())
}

/// `a` ends at `b` or before.
fn ends_by(a: Option<&[u8]>, b: Option<&[u8]>) -> bool {
    match (a, b) {
        (_, None) => true,
        (None, Some(_)) => false,
        (Some(a), Some(b)) => a <= b,
    }
}

fn overlap(a: &Loose, b: &Loose) -> bool {
    let begins_in = |x: &Loose, y: &Loose| y.high.as_ref().is_none_or(|high| x.low < *high);
    begins_in(a, b) && begins_in(b, a)
}

/// Ranges within a gap that no leaf covers.
fn open_ranges(gap: &Hole, taken: &[Loose]) -> u64 {
    let mut inside: Vec<&Loose> = taken.iter().filter(|leaf| within(leaf, gap)).collect();
    inside.sort_by(|a, b| a.low.cmp(&b.low));
    let (mut at, mut open) = (Some(gap.low.as_slice()), 0);
    for leaf in inside {
        if at != Some(leaf.low.as_slice()) {
            open += 1;
        }
        at = leaf.high.as_deref();
    }
    open + u64::from(at != gap.high.as_deref())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn leaf(low: &str, high: Option<&str>) -> Loose {
        Loose {
            page: PageId(1),
            lsn: Lsn(1),
            low: low.into(),
            high: high.map(Into::into),
        }
    }

    fn gap(low: &str, high: Option<&str>) -> Hole {
        Hole {
            low: low.into(),
            high: high.map(Into::into),
            leaf: false,
        }
    }

    #[test]
    fn ranges() {
        assert!(overlap(&leaf("a", Some("c")), &leaf("b", None)));
        assert!(!overlap(&leaf("a", Some("b")), &leaf("b", None)));
        assert!(within(&leaf("b", Some("c")), &gap("a", Some("c"))));
        assert!(!within(&leaf("b", None), &gap("a", Some("c"))));
    }

    #[test]
    fn what_stays_open() {
        let whole = [leaf("m", None), leaf("", Some("m"))];
        assert_eq!(open_ranges(&gap("", None), &whole), 0);
        assert_eq!(open_ranges(&gap("", None), &whole[..1]), 1);
        assert_eq!(open_ranges(&gap("", None), &whole[1..]), 1);
        assert_eq!(open_ranges(&gap("", None), &[]), 1);
        let apart = [leaf("b", Some("c")), leaf("d", Some("e"))];
        assert_eq!(open_ranges(&gap("a", Some("f")), &apart), 3);
    }
}
