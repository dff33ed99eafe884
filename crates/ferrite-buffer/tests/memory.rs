//! What the drop of a large index takes of the heap. Alone in its program: the allocator's figures are of all threads.

use ferrite_buffer::{Pool, PoolConfig};
use ferrite_io::sim::SimStorage;
use ferrite_io::Storage;
use ferrite_redo::{Log, LogConfig};
use ferrite_store::{Location, Store, StoreConfig, Word};
use ferrite_sync::atomic::{AtomicBool, Ordering};
use ferrite_sync::memory::{heap_bytes, Counted};
use ferrite_sync::Arc;
use ferrite_types::format::Codec;
use ferrite_types::{IndexId, Lsn};

#[global_allocator]
static COUNTED: Counted = Counted;

const INDEX: IndexId = IndexId(7);
const PAGES: u64 = 1 << 17;
/// Of a blob.
const GRANULES: u32 = 8;
/// Two words a page would be four times as much.
const MOST_BYTES: u64 = 512 << 10;

fn pool() -> Pool {
    let storage: Arc<dyn Storage> = Arc::new(SimStorage::new(1).boot());
    let config = StoreConfig {
        direct: false,
        ..StoreConfig::default()
    };
    let store = Arc::new(Store::create(storage.clone(), config).unwrap());
    let config = LogConfig {
        ring_bytes: 1 << 20,
        segment_bytes: 1 << 20,
        direct: false,
    };
    let log = Log::create(storage, Lsn::ZERO, config).unwrap();
    let config = PoolConfig {
        size_bytes: 4 << 20,
        max_bytes: 4 << 20,
        codec: Codec::None,
        delta_share: 1,
    };
    Pool::new(&config, store, log).unwrap()
}

/// The places of 1024 pages are side by side, in another order than their ids; then comes somebody else's.
fn place(n: u64) -> Location {
    let (part, at) = (n / 1024, n % 1024);
    let granule = part * 1025 + at * 389 % 1024;
    Location::new(granule * u64::from(GRANULES), GRANULES, Codec::None)
}

/// As after long use: no two are side by side, and neighbours have nothing to do with each other.
fn place_of_old(n: u64) -> Location {
    let at = n * 48_271 % PAGES;
    Location::new(2 * at * u64::from(GRANULES), GRANULES, Codec::None)
}

/// The heap's largest size while `work` goes on.
fn heap_during(work: impl FnOnce()) -> u64 {
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let watcher = scope.spawn(|| {
            let mut most = 0;
            while !ended.load(Ordering::Relaxed) {
                most = most.max(heap_bytes());
                std::thread::yield_now();
            }
            most
        });
        work();
        ended.store(true, Ordering::Relaxed);
        watcher.join().unwrap()
    })
}

#[test]
fn the_drop_of_an_index_takes_no_memory_for_each_page() {
    drops(place);
    drops(place_of_old);
}

fn drops(place: fn(u64) -> Location) {
    let pool = pool();
    for n in 0..PAGES {
        let page = pool.alloc_page(INDEX);
        let word = pool.store().directory().word(page);
        let before = word.swap(Word::on_disk(place(n)).0, Ordering::SeqCst);
        assert_eq!(before, Word::FREE.0, "{page} was in use");
    }
    let before = heap_bytes();
    assert!(before > 0, "the allocator is not counted");
    let mut dropped = 0;
    let during = heap_during(|| dropped = pool.drop_index(INDEX));
    assert_eq!(dropped as u64, PAGES);
    assert_eq!(pool.store().page_count(INDEX), 0);
    let retired = pool.store().retired_bytes();
    assert_eq!(retired, (PAGES * u64::from(GRANULES)) << 10);
    let (at_most, after) = (
        during.saturating_sub(before),
        heap_bytes().saturating_sub(before),
    );
    assert!(
        at_most < MOST_BYTES && after < MOST_BYTES,
        "{at_most} bytes during the drop of {PAGES} pages, {after} after it"
    );
}
