//! Models for loom: words of the directory that appear while others look.
//!
//! Run: `./ferrite test loom`.

use ferrite_sync::model::{check, thread};
use ferrite_sync::Arc;
use ferrite_types::format::Codec;
use ferrite_types::{IndexId, PageId};

use crate::deps::Ordering;
use crate::directory::{Directory, EXTENT_PAGES};
use crate::word::{Location, Word};

#[test]
fn loom_who_sees_the_end_sees_word_and_owner() {
    check(3, || {
        let d = Arc::new(Directory::new());
        // Loom does not follow the once-cell of a chunk: it is there before.
        d.set_extent_owner(0, IndexId(9));
        let makers = [1, 2].map(|extent| {
            let d = d.clone();
            thread::spawn(move || d.set_extent_owner(extent, IndexId(9 + extent)))
        });
        let end = d.end();
        assert!(end % EXTENT_PAGES == 0 && end <= 3 * EXTENT_PAGES);
        let last = PageId(end - 1);
        assert_eq!(d.owner(last), IndexId(9 + last.0 / EXTENT_PAGES));
        assert_eq!(d.word(last).load(Ordering::Acquire), Word::FREE.0);
        for m in makers {
            m.join().unwrap();
        }
        assert_eq!(d.end(), 3 * EXTENT_PAGES);
    });
}

#[test]
fn loom_a_moved_page_is_here_or_there() {
    check(3, || {
        let places = [1, 2, 3].map(|granule| Location::new(granule, 1, Codec::None));
        let d = Arc::new(Directory::new());
        let page = PageId(5);
        d.set_extent_owner(0, IndexId(9));
        d.set_location(page, places[0]);
        let movers = [1, 2].map(|to| {
            let d = d.clone();
            thread::spawn(move || {
                let word = d.word(page);
                let old = word.load(Ordering::Acquire);
                let new = Word::on_disk(places[to]).0;
                word.compare_exchange(old, new, Ordering::AcqRel, Ordering::Acquire)
                    .is_ok()
            })
        });
        let first = d.get(page);
        let second = d.get(page);
        let known: Vec<u64> = places.map(|p| Word::on_disk(p).0).to_vec();
        assert!(known.contains(&first.0) && known.contains(&second.0));
        assert!(second.0 != known[0] || first.0 == known[0], "it went back");
        let moved = movers.map(|m| m.join().unwrap());
        assert!(moved[0] || moved[1]);
    });
}
