//! Reading ahead: what lies together comes together, and what changed since it was asked for is
//! not touched.

use super::*;
use crate::ahead_state::QUEUE_SHARE;
use crate::frame::Kind;
use crate::write_tests::{pool_on, INDEX};
use ferrite_io::sim::{Fault, SimStorage};
use ferrite_io::Storage;
use ferrite_sync::{thread, Arc};
use ferrite_types::format::record_kind;
use ferrite_types::{IndexId, Lsn, PAGE_BYTES};

/// A new leaf whose bytes say `text`.
fn new_leaf(pool: &Pool, text: u8) -> PageId {
    new_leaf_of(pool, INDEX, text)
}

pub(crate) fn new_leaf_of(pool: &Pool, index: IndexId, text: u8) -> PageId {
    let page = pool.alloc_page(index);
    let mut frame = pool.reserve(1).unwrap().pop().unwrap();
    let bytes = frame.bytes_mut();
    bytes[..10].fill(0);
    bytes[0..4].copy_from_slice(&index.0.to_le_bytes());
    bytes[5] = crate::page_prefix::KIND_NODE;
    bytes[6..8].copy_from_slice(&8000u16.to_le_bytes());
    bytes[8..10].copy_from_slice(&(PAGE_BYTES as u16).to_le_bytes());
    bytes[10..8000].fill(text);
    pool.append(record_kind::MINI_TXN, &[b"leaf"], &[frame.frame_no()]);
    pool.publish_new(page, frame);
    page
}

/// The page is on disk and not in memory.
pub(crate) fn put_away(pool: &Pool, page: PageId) {
    pool.flush_all_below(Lsn::MAX).unwrap();
    let frame = pool.store().directory().get(page).as_frame().unwrap();
    pool.give_back(pool.evict_clean(frame, Kind::Leaf).expect("it is clean"));
    assert!(pool.is_away(page));
}

fn new_work(pool: &Pool) -> Work {
    Work {
        ids: Vec::new(),
        claims: Vec::new(),
        wanted: Vec::new(),
        reader: pool.store.together_reader(),
    }
}

/// What the reading threads would do with the queue as it is.
fn read_all(pool: &Pool) {
    let mut work = new_work(pool);
    while !pool.read_ahead.queue.lock().ids.is_empty() {
        assert!(pool.next_ids(&mut work.ids));
        pool.claim(&mut work);
        pool.read_claimed(&mut work);
    }
}

fn text_of(pool: &Pool, page: PageId) -> u8 {
    pool.shared(page).unwrap().expect("there is a leaf")[100]
}

#[test]
fn what_lies_together_is_read_together_and_only_once() {
    let disk = SimStorage::new(1);
    let pool = pool_on(&disk);
    let pages: Vec<PageId> = (0..8).map(|n| new_leaf(&pool, n)).collect();
    pages.iter().for_each(|page| put_away(&pool, *page));
    let free = pool.free_frames();
    let before = disk.stats().reads.get();
    pool.read_ahead(&pages);
    read_all(&pool);
    let reads = disk.stats().reads.get() - before;
    assert!(reads <= 2, "8 pages side by side took {reads} reads");
    assert_eq!(pool.stats.read_ahead.get(), 8);
    assert_eq!(pool.free_frames(), free - 8);
    for (n, page) in pages.iter().enumerate() {
        assert_eq!(text_of(&pool, *page), n as u8);
        assert_eq!(pool.stats.read_ahead_used.get(), n as u64 + 1);
    }
    assert_eq!(text_of(&pool, pages[0]), 0);
    assert_eq!(pool.stats.read_ahead_used.get(), 8, "the first use counts");
    assert_eq!(disk.stats().reads.get() - before, reads, "read again");
}

/// The id was freed, and is another page's by the time its turn comes.
#[test]
fn an_id_used_again_gives_the_page_that_it_names_now() {
    let pool = pool_on(&SimStorage::new(1));
    let page = new_leaf(&pool, 1);
    put_away(&pool, page);
    pool.read_ahead(&[page]);
    let guard = pool.exclusive(page).unwrap().unwrap();
    pool.free_pages(&[b"freed"], &[], vec![guard]);
    read_all(&pool);
    assert!(pool.shared(page).unwrap().is_none(), "a freed page is back");
    let again = new_leaf(&pool, 2);
    pool.read_ahead(&[page]);
    if again == page {
        read_all(&pool);
        assert_eq!(text_of(&pool, page), 2);
        assert!(pool.flush_all_below(Lsn::MAX).is_ok());
    }
    assert_eq!(pool.stats.read_ahead.get(), 0);
    assert_eq!(text_of(&pool, again), 2);
}

/// Between the look at the directory and the claim somebody else reads the page and changes it.
#[test]
fn a_page_changed_since_it_was_looked_up_is_left_alone() {
    let pool = pool_on(&SimStorage::new(1));
    let page = new_leaf(&pool, 1);
    put_away(&pool, page);
    let at = pool.store().directory().get(page).as_location().unwrap();
    let mut guard = pool.exclusive(page).unwrap().unwrap();
    guard.bytes_mut()[100] = 9;
    pool.append(record_kind::MINI_TXN, &[b"change"], &[guard.frame_no()]);
    drop(guard);
    let free = pool.free_frames();
    let frame = pool.take_frame_at_once().unwrap();
    assert!(!pool.begin_load(frame, page, at, true));
    assert_eq!(pool.free_frames(), free);
    assert_eq!(text_of(&pool, page), 9);
}

#[test]
fn a_failed_read_is_found_again_by_who_wants_the_page() {
    for fault in [Fault::FailRead, Fault::FlipBit, Fault::MisdirectedRead] {
        let disk = SimStorage::new(1);
        let pool = pool_on(&disk);
        let page = new_leaf(&pool, 1);
        put_away(&pool, page);
        let free = pool.free_frames();
        disk.inject(fault, 1);
        pool.read_ahead(&[page]);
        read_all(&pool);
        if pool.is_away(page) {
            assert_eq!(pool.stats.read_ahead.get(), 0);
            assert_eq!(pool.free_frames(), free, "{fault:?}: a frame is lost");
        }
        assert_eq!(text_of(&pool, page), 1, "{fault:?}");
        assert_eq!(pool.store().stats().corrupt_pages, 0, "{fault:?}");
    }
}

#[test]
fn without_a_free_frame_a_hint_is_forgotten() {
    let pool = pool_on(&SimStorage::new(1));
    let page = new_leaf(&pool, 1);
    put_away(&pool, page);
    let held: Vec<u32> = std::iter::from_fn(|| pool.take_frame_at_once()).collect();
    assert!(held.len() > 200, "{} frames", held.len());
    pool.read_ahead(&[page]);
    read_all(&pool);
    assert!(pool.is_away(page));
    held.into_iter().for_each(|frame| pool.give_back(frame));
    assert_eq!(text_of(&pool, page), 1);
}

#[test]
fn who_asks_for_a_page_on_its_way_waits_for_it() {
    let disk = SimStorage::new(1);
    let pool = pool_on(&disk);
    let page = new_leaf(&pool, 7);
    put_away(&pool, page);
    let mut work = new_work(&pool);
    work.ids.push(page);
    pool.claim(&mut work);
    let asking = Arc::clone(&pool);
    let asked = thread::spawn("asks", move || text_of(&asking, page));
    while pool.stats.read_ahead_waits.get() == 0 {
        thread::yield_now();
    }
    let before = disk.stats().reads.get();
    pool.read_claimed(&mut work);
    assert_eq!(asked.join().unwrap(), 7);
    assert_eq!(disk.stats().reads.get() - before, 1);
    assert_eq!(pool.stats.read_ahead_used.get(), 1);
}

#[test]
fn the_queue_is_bounded_and_may_be_switched_off() {
    let pool = pool_on(&SimStorage::new(1));
    let many: Vec<PageId> = (1..5000).map(PageId).collect();
    pool.read_ahead(&many);
    let queued = pool.read_ahead.queue.lock().ids.len();
    assert_eq!(queued, pool.frame_count() / QUEUE_SHARE);
    read_all(&pool);
    pool.set_read_ahead(false);
    assert_eq!(pool.read_ahead_window(), 0);
    pool.read_ahead(&many);
    assert!(pool.read_ahead.queue.lock().ids.is_empty());
}
