//! The leaves of a damaged tree: those that the tree leads to, then those that lie loose.
//!
//! A leaf below a lost inner node is still there, but so may be leaves that were merged away
//! long ago. Of leaves whose ranges of keys overlap, only the newest belongs to the tree: they
//! are taken from the newest to the oldest, each only if its range is free and lies within one
//! gap. A gap left by a lost leaf is not filled: its rows are gone, and what an older leaf says
//! of them is the past.
//!
//! Of a large table whose root is lost all leaves lie loose: each is compared with its neighbours alone.
//!
//! Invariant: no range of keys is visited twice, so no row is.

use ferrite_engine::offline::{Hole, Offline};
use ferrite_tree::node;
use ferrite_types::{Faults, IndexId, Lsn, PageId, PAGE_BYTES};
use std::collections::{BTreeMap, HashSet};
use std::ops::Bound;

/// What there was beside the leaves.
#[derive(Default)]
pub(super) struct Found {
    /// Gaps that no leaf was found for.
    pub(super) holes: u64,
    /// Leaves that lay loose.
    pub(super) loose: u64,
    /// Faults, in words.
    pub(super) faults: Faults,
}

struct Loose {
    page: PageId,
    lsn: Lsn,
    low: Vec<u8>,
    high: Option<Vec<u8>>,
}

/// Calls `each` with every leaf that belongs to the tree, until it returns false.
pub(super) fn each_leaf(
    offline: &Offline,
    index: IndexId,
    root: PageId,
    each: &mut dyn FnMut(&[u8]) -> bool,
) -> Found {
    let mut stopped = false;
    let walk = offline.tree_while(index, root, &mut |_, bytes| {
        stopped = !each(bytes);
        !stopped
    });
    let mut found = Found {
        faults: walk.faults,
        holes: walk.lost_leaves,
        ..Found::default()
    };
    if walk.holes.is_empty() || stopped {
        return found;
    }
    let mut page = vec![0; PAGE_BYTES];
    let gaps = Gaps::new(walk.holes);
    let mut taken = Taken::default();
    for leaf in loose_leaves(offline, index, &walk.pages) {
        if !gaps.have(&leaf) || !taken.is_free(&leaf) {
            continue;
        }
        if offline.node(index, leaf.page, &mut page).is_ok() {
            let goes_on = each(&page);
            taken.add(leaf);
            if !goes_on {
                break;
            }
        }
    }
    found.loose = taken.by_low.len() as u64;
    found.holes += gaps.0.iter().map(|gap| taken.open_ranges(gap)).sum::<u64>();
    found
}

/// Gaps of a tree, which do not overlap, in the order of their keys.
struct Gaps(Vec<Hole>);

impl Gaps {
    fn new(mut gaps: Vec<Hole>) -> Gaps {
        gaps.sort_by(|a, b| a.low.cmp(&b.low));
        Gaps(gaps)
    }

    /// Does the leaf lie within one of them?
    fn have(&self, leaf: &Loose) -> bool {
        let begun = self.0.partition_point(|gap| gap.low <= leaf.low);
        let last = begun.checked_sub(1).map(|at| &self.0[at]);
        last.is_some_and(|gap| within(&leaf.low, leaf.high.as_deref(), gap))
    }
}

/// Ranges of the leaves that were taken, which do not overlap: where each begins and ends.
#[derive(Default)]
struct Taken {
    by_low: BTreeMap<Vec<u8>, Option<Vec<u8>>>,
}

impl Taken {
    /// Does the leaf overlap none of them? A range overlaps one of its neighbours if it overlaps any.
    fn is_free(&self, leaf: &Loose) -> bool {
        let low = leaf.low.as_slice();
        let upto = (Bound::Unbounded, Bound::Included(low));
        let from = (Bound::Excluded(low), Bound::Unbounded);
        let before = self.by_low.range::<[u8], _>(upto).next_back();
        let behind = self.by_low.range::<[u8], _>(from).next();
        let ends = before
            .is_none_or(|(begin, end)| *begin != leaf.low && ends_by(end.as_deref(), Some(low)));
        ends && behind.is_none_or(|(begin, _)| ends_by(leaf.high.as_deref(), Some(begin)))
    }

    fn add(&mut self, leaf: Loose) {
        debug_assert!(self.is_free(&leaf), "a range of keys is taken twice");
        let twin = self.by_low.insert(leaf.low, leaf.high);
        assert!(twin.is_none(), "two leaves begin with the same key");
    }

    /// Ranges within a gap that no leaf covers.
    fn open_ranges(&self, gap: &Hole) -> u64 {
        let (mut at, mut open) = (Some(gap.low.as_slice()), 0);
        for (low, high) in self.by_low.range(gap.low.clone()..) {
            if !within(low, high.as_deref(), gap) {
                break;
            }
            if at != Some(low.as_slice()) {
                open += 1;
            }
            at = high.as_deref();
        }
        open + u64::from(at != gap.high.as_deref())
    }
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

fn within(low: &[u8], high: Option<&[u8]>, gap: &Hole) -> bool {
    *low >= *gap.low && ends_by(high, gap.high.as_deref())
}

/// `a` ends at `b` or before.
fn ends_by(a: Option<&[u8]>, b: Option<&[u8]>) -> bool {
    match (a, b) {
        (_, None) => true,
        (None, Some(_)) => false,
        (Some(a), Some(b)) => a <= b,
    }
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
        }
    }

    fn overlap(a: &Loose, b: &Loose) -> bool {
        let begins_in = |x: &Loose, y: &Loose| y.high.as_ref().is_none_or(|high| x.low < *high);
        begins_in(a, b) && begins_in(b, a)
    }

    fn taken(leaves: Vec<Loose>) -> Taken {
        let mut taken = Taken::default();
        leaves.into_iter().for_each(|leaf| taken.add(leaf));
        taken
    }

    #[test]
    fn ranges() {
        assert!(overlap(&leaf("a", Some("c")), &leaf("b", None)));
        assert!(!overlap(&leaf("a", Some("b")), &leaf("b", None)));
        let whole = Gaps::new(vec![gap("m", None), gap("a", Some("c"))]);
        assert!(whole.have(&leaf("b", Some("c"))) && whole.have(&leaf("m", None)));
        assert!(!whole.have(&leaf("b", None)) && !whole.have(&leaf("b", Some("d"))));
        assert!(!whole.have(&leaf("", Some("b"))) && !whole.have(&leaf("d", Some("e"))));
    }

    #[test]
    fn what_stays_open() {
        let whole = || vec![leaf("m", None), leaf("", Some("m"))];
        let open = |leaves: Vec<Loose>| taken(leaves).open_ranges(&gap("", None));
        assert_eq!(open(whole()), 0);
        assert_eq!(open(whole().split_off(1)), 1);
        assert_eq!(open(whole().drain(..1).collect()), 1);
        assert_eq!(open(Vec::new()), 1);
        let apart = taken(vec![leaf("b", Some("c")), leaf("d", Some("e"))]);
        assert_eq!(apart.open_ranges(&gap("a", Some("f"))), 3);
        assert_eq!(apart.open_ranges(&gap("d", Some("e"))), 0);
    }

    /// Neighbours decide as all leaves together would.
    #[test]
    fn neighbours_are_enough() {
        let mut rng = ferrite_sync::random::Rng::new(1);
        for _ in 0..300 {
            let (mut all, mut taken) = (Vec::<Loose>::new(), Taken::default());
            for _ in 0..40 {
                let mut key = || char::from(b'a' + rng.below(20) as u8).to_string();
                let (a, b) = (key(), key());
                let new = match a.cmp(&b) {
                    std::cmp::Ordering::Less => leaf(&a, Some(&b)),
                    std::cmp::Ordering::Equal => leaf(&a, None),
                    std::cmp::Ordering::Greater => leaf(&b, Some(&a)),
                };
                let is_free = !all.iter().any(|old| overlap(old, &new));
                assert_eq!(taken.is_free(&new), is_free, "{:?} {:?}", new.low, new.high);
                if is_free {
                    all.push(leaf(
                        std::str::from_utf8(&new.low).unwrap(),
                        new.high.as_deref().map(|h| std::str::from_utf8(h).unwrap()),
                    ));
                    taken.add(new);
                }
            }
        }
    }

    /// So many that each could not be compared with all: this is done in a second, or not in a quarter of an hour.
    #[test]
    fn a_tree_that_has_lost_its_root() {
        const LEAVES: u32 = 300_000;
        let key = |n: u32| n.to_be_bytes().to_vec();
        let mut taken = Taken::default();
        let gaps = Gaps::new(
            (0..LEAVES / 3)
                .map(|n| Hole {
                    low: key(3 * n),
                    high: Some(key(3 * n + 3)),
                })
                .collect(),
        );
        for n in 0..LEAVES {
            // In no order.
            let n = (u64::from(n) * 7_919 % u64::from(LEAVES)) as u32;
            let leaf = Loose {
                page: PageId(1),
                lsn: Lsn(1),
                low: key(n),
                high: Some(key(n + 1)),
            };
            assert!(gaps.have(&leaf) && taken.is_free(&leaf), "{n}");
            taken.add(leaf);
        }
        let open: u64 = gaps.0.iter().map(|gap| taken.open_ranges(gap)).sum();
        assert_eq!(open, 0);
    }
}
