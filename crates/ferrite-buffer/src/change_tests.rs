//! The pages of an index that is dropped, while others have some of them in their hands.

use super::*;
use crate::read_ahead::tests::{new_leaf_of, put_away};
use crate::write_tests::{pool_on, INDEX};
use ferrite_io::sim::SimStorage;
use ferrite_sync::Arc;

/// A page of the index is being read, which may take long: nobody else waits for that.
#[test]
fn a_drop_holds_nobody_up_while_it_waits_for_a_page_that_is_read() {
    for is_filled in [true, false] {
        let pool = pool_on(&SimStorage::new(41));
        let pages: Vec<PageId> = (0..4).map(|_| new_leaf_of(&pool, INDEX, 1)).collect();
        put_away(&pool, pages[1]);
        let at = pool.store().directory().get(pages[1]).as_location();
        let at = at.expect("it is on disk");
        let f = pool.take_frame_at_once().expect("a free frame");
        assert!(pool.begin_load(f, pages[1], at, true));

        let dropping = {
            let pool: Arc<Pool> = pool.clone();
            thread::spawn("drop", move || pool.drop_index(INDEX))
        };
        let others_went = || {
            let of = |page: &PageId| pool.store().directory().get(*page);
            (0..4).all(|n| n == 1 || of(&pages[n]).is_free())
        };
        let went = (0..2000).any(|_| {
            thread::sleep_ms(1);
            others_went()
        });
        // A split of another table, and the end of a write, need it.
        let free = (0..200).any(|_| {
            thread::sleep_ms(1);
            pool.map_lock.try_lock().is_some()
        });
        let was_waiting = !dropping.is_finished();
        let filled = is_filled && pool.fill(f, pages[1], at).is_ok();
        pool.end_load(f, pages[1], at, filled);
        assert_eq!(dropping.join().unwrap(), 4);
        assert!(was_waiting, "the page went while it was read");
        assert!(went, "the others stay");
        assert!(free, "the map lock waits for the read");
        pages.iter().for_each(|page| {
            assert!(pool.store().directory().get(*page).is_free(), "{page}");
        });
        // No place is lost.
        assert_eq!(pool.check_space(), Ok(()));
    }
}
