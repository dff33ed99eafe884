//! Leaves written as deltas, and when they are not.

use crate::frame::Kind;
use crate::write_tests::{pool_on, INDEX};
use crate::Pool;
use ferrite_io::sim::{Fault, SimStorage};
use ferrite_store::Location;
use ferrite_sync::Arc;
use ferrite_types::format::record_kind;
use ferrite_types::{Error, Lsn, PageId, Result, PAGE_BYTES};

/// An operation is a place (u16) and a byte.
fn apply(_: PageId, ops: &[u8], page: &mut [u8]) -> Result<()> {
    for op in ops.chunks_exact(3) {
        page[usize::from(u16::from_le_bytes([op[0], op[1]]))] = op[2];
    }
    Ok(())
}

fn pool_with_leaf() -> (Arc<Pool>, PageId) {
    pool_with_leaf_on(&SimStorage::new(1))
}

fn pool_with_leaf_on(sim: &SimStorage) -> (Arc<Pool>, PageId) {
    let pool = pool_on(sim);
    pool.store().set_apply(apply);
    let page = new_leaf(&pool);
    flush(&pool);
    (pool, page)
}

fn frame_of(pool: &Pool, page: PageId) -> u32 {
    pool.store().directory().get(page).as_frame().unwrap()
}

fn new_leaf(pool: &Pool) -> PageId {
    let page = pool.alloc_page(INDEX);
    let mut frame = pool.reserve(1).unwrap().pop().unwrap();
    let bytes = frame.bytes_mut();
    bytes[..10].fill(0);
    bytes[0..4].copy_from_slice(&INDEX.0.to_le_bytes());
    bytes[6..8].copy_from_slice(&8000u16.to_le_bytes());
    bytes[8..10].copy_from_slice(&(PAGE_BYTES as u16).to_le_bytes());
    bytes[10..8000].fill(1);
    pool.append(record_kind::MINI_TXN, &[b"leaf"], &[frame.frame_no()]);
    pool.publish_new(page, frame);
    page
}

fn flush(pool: &Pool) {
    pool.flush_all_below(Lsn::MAX).unwrap();
    pool.check_space().unwrap();
}

fn change(pool: &Pool, page: PageId, at: u16, byte: u8) {
    let [a, b] = at.to_le_bytes();
    let mut guard = pool.exclusive(page).unwrap().unwrap();
    pool.append_change(b"", &[a, b, byte], guard.frame_no());
    guard.bytes_mut()[usize::from(at)] = byte;
}

fn put_away(pool: &Pool, page: PageId) {
    let frame = pool.store().directory().get(page).as_frame().unwrap();
    pool.give_back(pool.evict_clean(frame, Kind::Leaf).expect("it is clean"));
    assert!(pool.is_away(page));
}

/// Bytes 100 to 102 of the page.
fn text(pool: &Pool, page: PageId) -> [u8; 3] {
    let guard = pool.shared(page).unwrap().unwrap();
    [guard[100], guard[101], guard[102]]
}

#[test]
fn a_small_change_is_written_as_a_delta_which_the_next_one_includes() {
    let (pool, page) = pool_with_leaf();
    let whole = pool.stats.bytes_written.get();
    change(&pool, page, 100, 7);
    flush(&pool);
    assert_eq!(pool.stats.deltas_written.get(), 1);
    assert_eq!(pool.stats.bytes_written.get() - whole, 1024);
    put_away(&pool, page);
    assert_eq!(pool.change_bytes(), 0);
    assert_eq!(text(&pool, page), [7, 1, 1]);
    // What was read with the page is part of the next delta.
    change(&pool, page, 101, 8);
    flush(&pool);
    put_away(&pool, page);
    assert_eq!(text(&pool, page), [7, 8, 1]);
    assert_eq!(pool.stats.deltas_written.get(), 2);
    assert_eq!(pool.store().stats().deltas_live, 1);
}

#[test]
fn a_change_that_is_not_kept_has_the_page_written_as_a_whole() {
    let (pool, page) = pool_with_leaf();
    change(&pool, page, 100, 7);
    flush(&pool);
    {
        let mut guard = pool.exclusive(page).unwrap().unwrap();
        let frame = guard.frame_no();
        pool.append(record_kind::MINI_TXN, &[b"split"], &[frame]);
        guard.bytes_mut()[101] = 8;
    }
    change(&pool, page, 102, 9);
    flush(&pool);
    assert_eq!(pool.stats.deltas_written.get(), 1);
    assert!(pool.store().delta_of(page).is_none(), "of the old blob");
    put_away(&pool, page);
    assert_eq!(text(&pool, page), [7, 8, 9]);
    // From there on changes are known again.
    change(&pool, page, 100, 6);
    flush(&pool);
    put_away(&pool, page);
    assert_eq!(text(&pool, page), [6, 8, 9]);
    assert_eq!(pool.stats.deltas_written.get(), 2);
}

#[test]
fn a_page_that_changes_while_it_is_written_is_hot() {
    let (pool, page) = pool_with_leaf();
    change(&pool, page, 100, 7);
    let frame = pool.store().directory().get(page).as_frame().unwrap();
    let mut batch = pool.new_write_batch();
    assert!(pool.copy_into(frame, &mut batch));
    change(&pool, page, 101, 8);
    assert_eq!(pool.write_out(&mut batch).unwrap(), 1);
    assert!(!pool.store().delta_of(page).is_none());
    assert!(pool.frame(frame).is_dirty());
    flush(&pool);
    assert!(pool.store().delta_of(page).is_none());
    put_away(&pool, page);
    assert_eq!(text(&pool, page), [7, 8, 1]);
}

/// While a batch is filled a page may go, and another one get its id and be copied, too.
#[test]
fn a_delta_of_a_page_that_went_is_not_one_of_the_next_page_with_its_id() {
    let (pool, page) = pool_with_leaf();
    change(&pool, page, 100, 7);
    let mut batch = pool.new_write_batch();
    assert!(pool.copy_into(frame_of(&pool, page), &mut batch));
    let guard = pool.exclusive(page).unwrap().unwrap();
    pool.free_pages(&[b"merge"], &[], vec![guard]);
    let again = (0..100).map(|_| new_leaf(&pool)).find(|new| *new == page);
    assert_eq!(again, Some(page), "its id is given again");
    assert!(pool.copy_into(frame_of(&pool, page), &mut batch));
    assert_eq!(pool.write_out(&mut batch).unwrap(), 2);
    assert!(pool.store().delta_of(page).is_none(), "of the page before");
    flush(&pool);
    put_away(&pool, page);
    assert_eq!(text(&pool, page), [1, 1, 1]);
}

/// What was deleted would keep its space in the base.
#[test]
fn a_page_that_has_become_much_shorter_is_written_as_a_whole() {
    let (pool, page) = pool_with_leaf();
    // Bytes 12 and 13 say how much of the tail carries nothing.
    change(&pool, page, 13, 2);
    flush(&pool);
    assert_eq!(pool.stats.deltas_written.get(), 1, "by 300 bytes of 8000");
    change(&pool, page, 13, 28);
    flush(&pool);
    assert_eq!(pool.stats.deltas_written.get(), 1, "by 7000");
    assert!(pool.store().delta_of(page).is_none());
}

#[test]
fn many_changes_are_a_whole_page() {
    let (pool, page) = pool_with_leaf();
    for n in 0..3000u16 {
        change(&pool, page, 1000 + n, 3);
    }
    assert_eq!(pool.change_bytes(), 0, "too many to be kept");
    flush(&pool);
    assert_eq!(pool.stats.deltas_written.get(), 0);
}

#[test]
fn a_freed_page_leaves_no_delta_behind() {
    let (pool, page) = pool_with_leaf();
    change(&pool, page, 100, 7);
    flush(&pool);
    assert_ne!(pool.store().delta_of(page), Location::NONE);
    let guard = pool.exclusive(page).unwrap().unwrap();
    pool.free_pages(&[b"freed"], &[], vec![guard]);
    assert_eq!(pool.store().delta_of(page), Location::NONE);
    assert_eq!(pool.store().stats().deltas_live, 0);
    pool.check_space().unwrap();
    let (pool, page) = pool_with_leaf();
    change(&pool, page, 100, 7);
    flush(&pool);
    pool.drop_index(INDEX);
    assert_eq!(pool.store().delta_of(page), Location::NONE);
    pool.check_space().unwrap();
}

/// What was deleted is in the base of a delta.
#[test]
fn there_are_no_deltas_while_deleted_data_is_overwritten() {
    let (pool, page) = pool_with_leaf();
    pool.store().keep_blocks_apart(true);
    change(&pool, page, 100, 7);
    flush(&pool);
    assert_eq!(pool.stats.deltas_written.get(), 0);
    assert!(pool.store().delta_of(page).is_none());
}

/// A page that moves to another frame, because the pool shrinks, takes its changes along.
#[test]
fn changes_move_with_their_page() {
    let (pool, page) = pool_with_leaf();
    change(&pool, page, 100, 7);
    flush(&pool);
    let (f, kept) = (frame_of(&pool, page), pool.change_bytes());
    assert!(kept > 0 && pool.frame(f).knows_changes());
    assert!(pool.move_page(f, Kind::Leaf));
    let g = frame_of(&pool, page);
    assert!(g != f && pool.frame(g).knows_changes() && !pool.frame(f).knows_changes());
    assert_eq!(pool.change_bytes(), kept);
    change(&pool, page, 101, 8);
    flush(&pool);
    assert_eq!(pool.stats.deltas_written.get(), 2, "not as a whole");
    put_away(&pool, page);
    assert_eq!(text(&pool, page), [7, 8, 1]);
    put_away(&pool, page);
    assert_eq!(pool.change_bytes(), 0);
}

/// Frames that a larger pool has got keep changes, and so does what is left of a smaller one.
#[test]
fn changes_of_a_pool_that_grows_and_shrinks() {
    let (pool, first) = pool_with_leaf();
    let small = pool.size_bytes();
    pool.resize(small * 3).unwrap();
    let pages: Vec<PageId> = (0..pool.free_frames()).map(|_| new_leaf(&pool)).collect();
    flush(&pool);
    for page in &pages {
        (0..100).for_each(|_| change(&pool, *page, 100, 7));
    }
    assert!(
        pool.change_bytes() > small as usize / 16,
        "its larger share"
    );
    assert!(pages
        .iter()
        .any(|p| frame_of(&pool, *p) as u64 * (PAGE_BYTES as u64) >= small));
    flush(&pool);
    let deltas = pool.store().stats().deltas_live;
    assert!(deltas > 0 && deltas == pool.stats.deltas_written.get());
    pool.resize(small).unwrap();
    let mut batch = pool.new_write_batch();
    while pool.leaving_frames() > 0 {
        // The pool is full of pages in use: those that do not move are dropped.
        for frame in pool.frames() {
            frame.cool();
        }
        pool.collect_leaving(&mut batch);
        pool.write_out(&mut batch).unwrap();
    }
    assert!(pool.change_bytes() <= small as usize / 16);
    for page in pages.iter().chain([&first]) {
        if pool.is_away(*page) {
            continue;
        }
        assert!((frame_of(&pool, *page) as u64) < small / PAGE_BYTES as u64);
        change(&pool, *page, 101, 8);
    }
    flush(&pool);
    for page in &pages {
        if !pool.is_away(*page) {
            put_away(&pool, *page);
        }
        let [a, b, _] = text(&pool, *page);
        assert!(a == 7 && (b == 8 || b == 1), "{page}: {a} {b}");
        put_away(&pool, *page);
    }
    put_away_all(&pool, &[first]);
    assert_eq!(pool.change_bytes(), 0, "nothing is in memory");
}

fn put_away_all(pool: &Pool, pages: &[PageId]) {
    for page in pages.iter().filter(|page| !pool.is_away(**page)) {
        put_away(pool, *page);
    }
}

/// What could not be written is written next time, with what has come since: as a delta, unless the disk was full, for
/// then the page is written as a whole.
#[test]
fn changes_outlive_failed_writes() {
    for (fault, deltas) in [(Fault::FailWrite, 1), (Fault::Full, 0)] {
        let sim = SimStorage::new(1);
        let (pool, page) = pool_with_leaf_on(&sim);
        for n in 0..3u16 {
            change(&pool, page, 100 + n, 7 + n as u8);
            sim.inject_in(fault, 1, "store.");
            let refused = pool.flush_all_below(Lsn::MAX);
            let is_full = matches!(refused, Err(Error::DiskFull(_)));
            assert_eq!(is_full, fault == Fault::Full, "{refused:?}");
            assert!(refused.is_err(), "{fault:?}");
            sim.clear_faults();
            assert!(pool.frame(frame_of(&pool, page)).is_dirty());
        }
        flush(&pool);
        assert_eq!(pool.stats.deltas_written.get(), deltas, "{fault:?}");
        put_away(&pool, page);
        assert_eq!(text(&pool, page), [7, 8, 9]);
    }
}
