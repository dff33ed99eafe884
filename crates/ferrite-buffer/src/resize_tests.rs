//! Pools that grow and shrink while they are used.

use crate::frame::Kind;
use crate::write_tests::{new_inner, pool_of};
use crate::{Pool, Resized};
use ferrite_io::sim::{Fault, SimStorage};
use ferrite_sync::atomic::{AtomicBool, Ordering};
use ferrite_sync::random::Rng;
use ferrite_sync::{thread, Arc};
use ferrite_types::{Error, Lsn, PageId, PAGE_BYTES};

const SMALL: u64 = 4 << 20;
const SMALL_FRAMES: usize = 256;
const LARGE: u64 = 32 << 20;
const LARGE_FRAMES: usize = 2048;

/// Runs `work` beside a writer thread.
fn with_writer(pool: &Arc<Pool>, work: impl FnOnce()) {
    let writer = {
        let pool = pool.clone();
        thread::spawn("writer", move || pool.run_writer())
    };
    work();
    pool.stop_writer();
    writer.join().unwrap();
}

fn wait_until_small(pool: &Pool, frames: usize) {
    for _ in 0..10_000 {
        if pool.frame_count() == frames {
            assert_eq!(pool.leaving_frames(), 0);
            return;
        }
        thread::sleep_ms(1);
    }
    panic!("{} frames are not cleared", pool.leaving_frames());
}

fn frame_of(pool: &Pool, page: PageId) -> Option<u32> {
    pool.store().directory().get(page).as_frame()
}

fn bytes_of(pool: &Pool, f: u32) -> Vec<u8> {
    // SAFETY: an inner node's image, and this thread alone works on the pool.
    unsafe { pool.arena().page(f) }.to_vec()
}

#[test]
fn new_frames_can_be_had_at_once() {
    let pool = pool_of(SMALL, &SimStorage::new(1));
    let pages: Vec<PageId> = (0..SMALL_FRAMES).map(|_| new_inner(&pool)).collect();
    assert_eq!(pool.free_frames(), 0);
    pool.resize(LARGE).unwrap();
    assert_eq!(pool.frame_count(), LARGE_FRAMES);
    assert_eq!(pool.free_frames(), LARGE_FRAMES - SMALL_FRAMES);
    for _ in SMALL_FRAMES..LARGE_FRAMES {
        new_inner(&pool);
    }
    assert_eq!(pool.dirty_pages(), LARGE_FRAMES);
    assert!(pages.iter().all(|page| frame_of(&pool, *page).is_some()));
    let told = Resized {
        from_bytes: SMALL,
        to_bytes: LARGE,
    };
    assert_eq!(pool.take_resized(), Some(told));
    assert_eq!(pool.take_resized(), None);
}

#[test]
fn no_page_is_lost_when_it_shrinks() {
    let pool = pool_of(LARGE, &SimStorage::new(1));
    let pages: Vec<PageId> = (0..LARGE_FRAMES).map(|_| new_inner(&pool)).collect();
    pool.resize(SMALL).unwrap();
    assert_eq!(pool.size_bytes(), SMALL);
    assert_eq!(pool.frame_count(), LARGE_FRAMES, "nothing is cleared yet");
    with_writer(&pool, || {
        wait_until_small(&pool, SMALL_FRAMES);
        let told = Resized {
            from_bytes: LARGE,
            to_bytes: SMALL,
        };
        assert_eq!(pool.take_resized(), Some(told));
        for page in &pages {
            assert!(pool.read_in(*page).is_ok(), "{page}");
            let f = frame_of(&pool, *page);
            assert!(
                f.is_none_or(|f| (f as usize) < SMALL_FRAMES),
                "{page}: {f:?}"
            );
        }
    });
    pool.resize(LARGE).unwrap();
    pool.reclaim_retired();
    assert_eq!(pool.frame_count(), LARGE_FRAMES);
    assert!(pool.free_frames() >= LARGE_FRAMES - SMALL_FRAMES);
}

/// A page that is in use goes on in memory, and is the same there.
#[test]
fn a_page_in_use_moves() {
    let pool = pool_of(SMALL, &SimStorage::new(1));
    let page = new_inner(&pool);
    pool.flush_all_below(Lsn::MAX).unwrap();
    let f = frame_of(&pool, page).unwrap();
    let (lsn, home) = (pool.frame(f).lsn(), pool.frame(f).home());
    let before = pool.pin();
    let old = bytes_of(&pool, f);
    let reads = pool.stats.reads.get();
    assert!(pool.move_page(f, Kind::Inner));
    let g = frame_of(&pool, page).expect("it is in memory");
    assert_ne!(f, g);
    assert_eq!((pool.frame(g).lsn(), pool.frame(g).home()), (lsn, home));
    assert_eq!(bytes_of(&pool, g), old);
    // Who came before still sees the old image.
    pool.reclaim_retired();
    assert_eq!(bytes_of(&pool, f), old);
    assert_eq!(pool.stats.reads.get(), reads);
    drop(before);
    // A dirty one does not move: its batch, or a checkpoint's scan, might miss it.
    let dirty = new_inner(&pool);
    let f = frame_of(&pool, dirty).unwrap();
    assert!(!pool.move_page(f, Kind::Inner));
    assert_eq!(frame_of(&pool, dirty), Some(f));
}

#[test]
fn more_than_the_largest_is_refused() {
    let pool = pool_of(SMALL, &SimStorage::new(1));
    let fault = pool.resize(65 << 20).unwrap_err();
    assert!(
        matches!(&fault, Error::BadConfig(text) if text.contains("buffer_pool_size_max")),
        "{fault}"
    );
    assert_eq!(
        (pool.size_bytes(), pool.frame_count()),
        (SMALL, SMALL_FRAMES)
    );
    pool.resize(64 << 20).unwrap();
    pool.resize(1).unwrap();
    assert_eq!(pool.size_bytes(), SMALL_FRAMES as u64 * PAGE_BYTES as u64);
}

/// One latch holds the end up; a larger size in between gives back what is not cleared yet.
#[test]
fn it_waits_for_who_is_at_a_page_and_may_be_called_back() {
    let pool = pool_of(LARGE, &SimStorage::new(1));
    let pages: Vec<PageId> = (0..LARGE_FRAMES).map(|_| new_inner(&pool)).collect();
    pool.flush_all_below(Lsn::MAX).unwrap();
    let f = LARGE_FRAMES as u32 - 1;
    // Before the writer begins, which may free the frame: nobody waits for a frame without a page.
    assert!(pool.frame(f).latch.try_exclusive());
    assert!(pages.contains(&pool.frame(f).page()));
    with_writer(&pool, || {
        pool.resize(SMALL).unwrap();
        while pool.leaving_frames() > 1 {
            thread::sleep_ms(1);
        }
        thread::sleep_ms(50);
        assert_eq!(pool.frame_count(), LARGE_FRAMES);
        pool.resize(LARGE / 2).unwrap();
        assert_eq!(pool.leaving_frames(), 1);
        pool.resize(LARGE).unwrap();
        assert_eq!(pool.leaving_frames(), 0);
        pool.frame(f).latch.unlock_exclusive();
        pool.resize(SMALL).unwrap();
        wait_until_small(&pool, SMALL_FRAMES);
        assert!(pages.iter().all(|page| pool.read_in(*page).is_ok()));
    });
}

#[test]
fn a_full_disk_holds_it_up_and_no_longer() {
    let disk = SimStorage::new(3);
    let pool = pool_of(LARGE, &disk);
    let pages: Vec<PageId> = (0..LARGE_FRAMES).map(|_| new_inner(&pool)).collect();
    for nth in 1..5000 {
        disk.inject_in(Fault::Full, nth, "store.");
    }
    with_writer(&pool, || {
        pool.resize(SMALL).unwrap();
        for _ in 0..10_000 {
            if pool.write_failure().is_some() {
                break;
            }
            thread::sleep_ms(1);
        }
        assert!(pool.leaving_frames() > 0 && pool.write_failure().is_some());
        assert_eq!(pool.frame_count(), LARGE_FRAMES);
        disk.clear_faults();
        wait_until_small(&pool, SMALL_FRAMES);
        assert!(pages.iter().all(|page| pool.read_in(*page).is_ok()));
    });
}

#[test]
fn readers_go_on_beside_it() {
    let pool = pool_of(SMALL, &SimStorage::new(1));
    let stop = Arc::new(AtomicBool::new(false));
    with_writer(&pool, || {
        let pages: Arc<Vec<PageId>> = Arc::new((0..600).map(|_| new_inner(&pool)).collect());
        let readers: Vec<_> = (1..=3)
            .map(|seed| {
                let (pool, pages, stop) = (pool.clone(), pages.clone(), stop.clone());
                thread::spawn("reader", move || {
                    let mut rng = Rng::new(seed);
                    let mut reads = 0u64;
                    while !stop.load(Ordering::SeqCst) {
                        let page = pages[rng.below(600) as usize];
                        pool.read_in(page).unwrap();
                        reads += 1;
                    }
                    reads
                })
            })
            .collect();
        let mut rng = Rng::new(7);
        for _ in 0..40 {
            pool.resize(rng.between(SMALL >> 20, LARGE >> 20) << 20)
                .unwrap();
            thread::sleep_us(rng.below(20_000));
            if rng.chance(1, 3) {
                wait_until_small(&pool, (pool.size_bytes() / PAGE_BYTES as u64) as usize);
            }
        }
        stop.store(true, Ordering::SeqCst);
        let reads: u64 = readers.into_iter().map(|r| r.join().unwrap()).sum();
        assert!(reads > 1000, "{reads} reads");
    });
}
