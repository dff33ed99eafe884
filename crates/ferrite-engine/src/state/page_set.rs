//! A set of leaves, by their page ids: all that is kept of the delete-marks of a large transaction.
//!
//! The pages of an index come in extents, so that the set is a bitmap for each extent: some 24 bytes
//! for a mebibyte of an index, in whatever order its leaves are put in.
//!
//! Invariant: no bitmap is empty, and `count` is the number of their bits.
//!
//! Locking: none; its owner's.

use ferrite_store::EXTENT_PAGES;
use ferrite_types::PageId;
use std::collections::BTreeMap;

// A bitmap has a bit for each page of an extent.
const _: () = assert!(EXTENT_PAGES == u64::BITS);
/// What an extent takes in the map, about.
const EXTENT_BYTES: usize = 24;

/// See the head of the file.
#[derive(Default)]
pub(crate) struct PageSet {
    extents: BTreeMap<u32, u64>,
    count: usize,
    /// The extent of the page put in last, and its bitmap: many marks are on one leaf.
    last: (u32, u64),
}

impl PageSet {
    pub(crate) fn insert(&mut self, page: PageId) {
        debug_assert!(page != PageId::NONE, "no page");
        let (extent, bit) = (page.0 / EXTENT_PAGES, 1 << (page.0 % EXTENT_PAGES));
        if self.last.0 == extent && self.last.1 & bit != 0 {
            return;
        }
        let bits = self.extents.entry(extent).or_default();
        self.count += usize::from(*bits & bit == 0);
        *bits |= bit;
        self.last = (extent, *bits);
        debug_assert!(self.count > 0 && self.extents.len() <= self.count);
    }

    /// Takes up to `most` of them out, those with the lowest ids first.
    pub(crate) fn take(&mut self, most: usize) -> Vec<PageId> {
        let mut pages = Vec::with_capacity(most.min(self.count));
        while pages.len() < most {
            let Some(mut extent) = self.extents.first_entry() else {
                break;
            };
            let number = *extent.key();
            let bits = extent.get_mut();
            while *bits != 0 && pages.len() < most {
                pages.push(PageId(number * EXTENT_PAGES + bits.trailing_zeros()));
                *bits &= *bits - 1;
            }
            if *bits == 0 {
                extent.remove();
            }
        }
        debug_assert!(pages.is_sorted_by(|a, b| a < b), "a page is taken twice");
        assert!(pages.len() <= self.count, "more pages than were counted");
        self.count -= pages.len();
        self.last = (0, 0);
        pages
    }

    pub(crate) fn len(&self) -> usize {
        self.count
    }

    pub(crate) fn is_empty(&self) -> bool {
        debug_assert_eq!(self.count == 0, self.extents.is_empty());
        self.count == 0
    }

    pub(crate) fn clear(&mut self) {
        *self = PageSet::default();
    }

    /// Memory that it takes, about.
    pub(crate) fn bytes(&self) -> usize {
        self.extents.len() * EXTENT_BYTES
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ferrite_sync::random::Rng;
    use std::collections::BTreeSet;

    #[test]
    fn it_is_a_set() {
        let mut rng = Rng::new(7);
        let (mut set, mut model) = (PageSet::default(), BTreeSet::new());
        for round in 0..20_000 {
            let page = PageId(1 + rng.below(3000) as u32);
            set.insert(page);
            model.insert(page);
            if round % 1000 == 999 {
                let most = rng.below(800) as usize;
                let expected: Vec<PageId> = model.iter().copied().take(most).collect();
                assert_eq!(set.take(most), expected);
                model.retain(|page| !expected.contains(page));
            }
            assert_eq!((set.len(), set.is_empty()), (model.len(), model.is_empty()));
        }
        assert_eq!(set.take(usize::MAX), Vec::from_iter(model));
        assert!(set.is_empty() && set.bytes() == 0 && set.take(1).is_empty());
        set.insert(PageId(u32::MAX));
        set.insert(PageId(1));
        assert_eq!(set.take(9), [PageId(1), PageId(u32::MAX)]);
    }
}
