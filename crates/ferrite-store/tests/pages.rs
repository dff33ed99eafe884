//! Pages in and out, space, and what happens when the disk refuses.

mod common;

use common::{check_page, disk, page_bytes, small, Engine};
use ferrite_io::sim::{Fault, SimStorage};
use ferrite_io::{OpenMode, RealStorage, Storage};
use ferrite_store::{Location, PageImage, Store, StoreConfig, Word, BLOB_HEADER_BYTES};
use ferrite_sync::atomic::Ordering;
use ferrite_sync::random::Rng;
use ferrite_sync::{thread, Arc};
use ferrite_types::format::Codec;
use ferrite_types::{Error, IndexId, Lsn, PageId, PAGE_BYTES};

fn store() -> (SimStorage, Store) {
    let sim = SimStorage::new(1);
    let store = Store::create(disk(&sim), small()).unwrap();
    (sim, store)
}

fn write_one(store: &Store, image: PageImage<'_>, codec: Codec) -> Location {
    let mut batch = store.new_batch();
    assert!(batch.push(PageId(9), IndexId(3), Lsn(4), image, codec));
    let mut placed = Vec::new();
    store.write_batch(&batch, &mut placed).unwrap();
    assert_eq!(placed.len(), 1);
    placed[0].location
}

#[test]
fn heads_tails_and_gaps_of_all_sizes() {
    let (_sim, store) = store();
    let mut page = vec![0; PAGE_BYTES];
    Rng::new(2).fill(&mut page);
    let full = PAGE_BYTES;
    let fits = PAGE_BYTES - BLOB_HEADER_BYTES;
    for (head, tail) in [
        (0, full),
        (full, full),
        (full, 0),
        (1, full - 1),
        (100, 8000),
        (fits, full),
        (4056, full),
        (4057, full),
    ] {
        let (head, tail) = (head.min(tail), tail);
        for codec in [Codec::None, Codec::Lz4, Codec::Zstd] {
            let at = write_one(&store, PageImage::with_gap(&page, head, tail), codec);
            let len = head + PAGE_BYTES - tail;
            assert_eq!(at.codec(), Some(Codec::None), "noise does not compress");
            assert_eq!(
                at.granules() as usize,
                (len + BLOB_HEADER_BYTES).div_ceil(4096)
            );
            let mut out = vec![1; PAGE_BYTES];
            let header = store.read_page(PageId(9), at, &mut out).unwrap();
            assert_eq!((header.index, header.lsn), (IndexId(3), Lsn(4)));
            assert!(out[..head] == page[..head] && out[tail..] == page[tail..]);
            assert!(out[head..tail].iter().all(|b| *b == 0));
            store.free_now(at);
        }
    }
    assert_eq!(store.used_bytes(), 0);
}

#[test]
fn compression_only_where_it_saves_a_granule_and_a_fifth() {
    let (_sim, store) = store();
    let mut page = vec![0; PAGE_BYTES];
    Rng::new(3).fill(&mut page);
    page[5000..].fill(1);
    for codec in [Codec::Lz4, Codec::Zstd] {
        let at = write_one(&store, PageImage::whole(&page), codec);
        assert_eq!((at.codec(), at.granules()), (Some(codec), 2));
        let mut out = vec![0; PAGE_BYTES];
        store.read_page(PageId(9), at, &mut out).unwrap();
        assert!(out == page);
        // One granule cannot become less.
        let at = write_one(&store, PageImage::with_gap(&page, 0, 13000), codec);
        assert_eq!((at.codec(), at.granules()), (Some(Codec::None), 1));
        // 14% is too little, although it would save a granule.
        let mut hard = page.clone();
        Rng::new(4).fill(&mut hard[..14000]);
        let at = write_one(&store, PageImage::whole(&hard), codec);
        assert_eq!((at.codec(), at.granules()), (Some(Codec::None), 5));
    }
    assert_eq!(store.stats().pages_packed, 2);
}

#[test]
fn a_batch_says_when_it_is_full() {
    let (_sim, store) = store();
    let mut batch = store.new_batch();
    assert!(batch.is_empty());
    let page = vec![1; PAGE_BYTES];
    let mut n = 0;
    while batch.push(
        PageId(n + 1),
        IndexId(1),
        Lsn(1),
        PageImage::whole(&page),
        Codec::None,
    ) {
        n += 1;
    }
    assert!(batch.is_full());
    assert_eq!((batch.pages(), batch.len()), (51, 51 * 5 * 4096));
    let mut placed = Vec::new();
    store.write_batch(&batch, &mut placed).unwrap();
    assert_eq!(placed.len(), 51);
    assert!(store.stats().grown_in_foreground > 0, "1 MiB into 256 KiB");
    batch.clear();
    assert!(batch.is_empty() && !batch.is_full());
}

#[test]
fn a_full_disk_is_an_error_and_nothing_is_taken() {
    let sim = SimStorage::new(1);
    let mut engine = Engine::create(&sim, small()).unwrap();
    sim.set_capacity(Some(sim.used_bytes() + (1 << 20)));
    let mut pages = Vec::new();
    let (used, error) = loop {
        let page = engine.alloc(IndexId(2));
        let used = engine.store.used_bytes();
        match engine.write(&[page]) {
            Ok(()) => pages.push(page),
            Err(e) => {
                engine.store.page_unused(page);
                break (used, e);
            }
        }
    };
    assert!(
        matches!(&error, Error::DiskFull(text) if text.contains("no room")),
        "{error}"
    );
    assert_eq!(engine.store.used_bytes(), used);
    assert!(matches!(
        engine.store.grow_ahead(),
        Err(Error::DiskFull(_)) | Ok(false)
    ));
    engine.check(&engine.model(engine.log.len()));
    // Space that comes free is used.
    pages.drain(..10).for_each(|page| engine.free(page));
    engine.flush();
    engine.write(&pages[..2]).unwrap();
    engine.check(&engine.model(engine.log.len()));
}

#[test]
fn failed_writes_and_syncs_give_their_space_back() {
    let sim = SimStorage::new(1);
    let mut engine = Engine::create(&sim, small()).unwrap();
    let pages: Vec<PageId> = (0..20).map(|_| engine.alloc(IndexId(2))).collect();
    engine.write(&pages).unwrap();
    for fault in [Fault::FailWrite, Fault::FailSync, Fault::Full] {
        let used = engine.store.used_bytes();
        sim.inject_in(fault, 1, "store.");
        let error = engine.write(&pages).unwrap_err();
        assert_eq!(matches!(error, Error::DiskFull(_)), fault == Fault::Full);
        assert_eq!(engine.store.used_bytes(), used);
        engine.check(&engine.model(engine.log.len()));
    }
}

#[test]
fn grows_ahead_and_gives_back() {
    let sim = SimStorage::new(1);
    let mut engine = Engine::create(&sim, small()).unwrap();
    let pages: Vec<PageId> = (0..150).map(|_| engine.alloc(IndexId(2))).collect();
    for chunk in pages.chunks(4) {
        engine.write(chunk).unwrap();
        while engine.store.grow_ahead().unwrap() {}
    }
    let stats = engine.store.stats();
    assert_eq!(stats.grown_in_foreground, 0, "the background kept ahead");
    assert!(sim.contents("store.0001").is_ok());
    assert!(engine.store.free_bytes() * 100 >= engine.store.file_bytes() * 15);
    let before = engine.store.file_bytes();
    pages[..149].iter().for_each(|page| engine.free(*page));
    engine.flush();
    while engine.store.shrink().unwrap() > 0 {}
    assert!(
        engine.store.file_bytes() < before,
        "free segments at the end went"
    );
    assert!(
        !engine.store.grow_ahead().unwrap(),
        "it does not come back at once"
    );
    engine.check(&engine.model(engine.log.len()));
}

#[test]
fn long_free_runs_are_punched() {
    let sim = SimStorage::new(1);
    let cfg = StoreConfig {
        direct: true,
        file_bytes: 8 << 20,
        segment_bytes: 4 << 20,
    };
    let mut engine = Engine::create(&sim, cfg).unwrap();
    let pages: Vec<PageId> = (0..200).map(|_| engine.alloc(IndexId(2))).collect();
    engine.write(&pages).unwrap();
    let allocated = sim.used_bytes();
    pages[..199].iter().for_each(|page| engine.free(*page));
    engine.flush();
    assert!(engine.store.shrink().unwrap() >= 1 << 20);
    assert!(sim.used_bytes() < allocated - (1 << 20));
    assert_eq!(engine.store.shrink().unwrap(), 0, "not again");
    engine.write(&pages[199..]).unwrap();
    engine.check(&engine.model(engine.log.len()));
}

#[test]
fn many_writers_and_readers() {
    let sim = SimStorage::new(1);
    let store = Arc::new(Store::create(disk(&sim), small()).unwrap());
    let threads: Vec<_> = (0..4u32)
        .map(|t| {
            let store = store.clone();
            thread::spawn("writer", move || writer(&store, IndexId(t + 1)))
        })
        .collect();
    let written: Vec<_> = threads
        .into_iter()
        .flat_map(|t| t.join().unwrap())
        .collect();
    for &(page, at, version) in &written {
        check_page(&store, page, at, version);
    }
    let live: u64 = written.iter().map(|(_, at, _)| at.bytes() as u64).sum();
    assert_eq!(store.used_bytes(), live + store.retired_bytes());
    store.reclaim(Lsn::MAX);
    assert_eq!(store.used_bytes(), live);
}

fn writer(store: &Store, index: IndexId) -> Vec<(PageId, Location, u64)> {
    let pages: Vec<PageId> = (0..20)
        .map(|_| store.alloc_page(index, &mut |_| ()))
        .collect();
    let (mut batch, mut placed) = (store.new_batch(), Vec::new());
    for version in 1..=25 {
        for &page in &pages {
            let (bytes, head, tail) = page_bytes(page, version);
            let image = PageImage::with_gap(&bytes, head, tail);
            assert!(batch.push(page, index, Lsn(version), image, Codec::Lz4));
        }
        placed.clear();
        store.write_batch(&batch, &mut placed).unwrap();
        batch.clear();
        for p in &placed {
            let word = store.directory().word(p.page);
            let old = Word(word.swap(p.location.raw(), Ordering::SeqCst));
            store.retire(old.as_location().unwrap_or(Location::NONE), Lsn(version));
            check_page(store, p.page, p.location, version);
        }
        store.reclaim(Lsn(version - 1));
    }
    placed.iter().map(|p| (p.page, p.location, 25)).collect()
}

#[test]
fn resident_pages_are_dumped_at_their_homes() {
    let sim = SimStorage::new(1);
    let mut engine = Engine::create(&sim, small()).unwrap();
    let pages: Vec<PageId> = (0..3).map(|_| engine.alloc(IndexId(1))).collect();
    engine.write(&pages[..2]).unwrap();
    let words = engine.store.directory();
    let homes: Vec<Location> = pages[..2]
        .iter()
        .map(|p| words.get(*p).as_location().unwrap())
        .collect();
    words
        .word(pages[0])
        .store(Word::resident(70).0, Ordering::SeqCst);
    words
        .word(pages[2])
        .store(Word::resident(72).0, Ordering::SeqCst);
    let asked = ferrite_sync::atomic::AtomicU32::new(0);
    let map = engine
        .store
        .dump_map(engine.end(), &|page, frame| match (page, frame) {
            // The first answer: the frame has changed hands.
            (p, 70) if p == pages[0] && asked.fetch_add(1, Ordering::SeqCst) == 0 => None,
            (p, 70) if p == pages[0] => Some(homes[0]),
            (p, 72) if p == pages[2] => Some(Location::NONE),
            other => panic!("{other:?}"),
        })
        .unwrap();
    let checkpoint = ferrite_store::Checkpoint {
        redo_start: engine.end(),
        map,
        state: b"state".to_vec(),
    };
    engine.store.write_checkpoint(&checkpoint).unwrap();
    drop(engine);
    let (store, read) = Store::open(disk(&sim), small()).unwrap();
    assert_eq!(read, checkpoint);
    store.finish_recovery().unwrap();
    assert_eq!(
        store.directory().get(pages[0]).as_location(),
        Some(homes[0])
    );
    assert_eq!(
        store.directory().get(pages[1]).as_location(),
        Some(homes[1])
    );
    assert!(store.directory().get(pages[2]).is_free());
    assert_eq!(store.pages_of(IndexId(1)), &pages[..2]);
    assert_eq!(store.alloc_page(IndexId(1), &mut |_| panic!()), pages[2]);
}

#[test]
fn a_hundred_thousand_pages_come_back_fast() {
    let sim = SimStorage::new(1);
    let cfg = StoreConfig::default();
    let store = Store::create(disk(&sim), cfg.clone()).unwrap();
    let extents = 100_000u32.div_ceil(64);
    let mut bodies = Vec::new();
    for _ in 0..extents * 64 {
        store.alloc_page(IndexId(2), &mut |b| bodies.push(b.to_vec()));
    }
    drop(store);
    // 100 K pages of 4 granules lie in two files.
    let storage = disk(&sim);
    let first = storage
        .open("store.0000", OpenMode::ReadWrite, false)
        .unwrap();
    first.truncate(1 << 30).unwrap();
    let second = storage
        .open("store.0001", OpenMode::CreateNew, false)
        .unwrap();
    second.truncate(1 << 30).unwrap();
    let begin = ferrite_sync::time::now_us();
    let (store, _) = Store::open(disk(&sim), cfg).unwrap();
    bodies.iter().for_each(|b| store.apply_extent(b).unwrap());
    for page in 64..100_000 {
        let at = Location::new(u64::from(page) * 4, 4, Codec::None);
        store.set_location(PageId(page), at);
    }
    store.finish_recovery().unwrap();
    let us = ferrite_sync::time::now_us() - begin;
    assert_eq!(store.page_count(IndexId(2)), 100_000 - 64);
    println!("100 K pages: {us} us");
    assert!(us < 1_000_000, "{us} us");
}

#[test]
fn checkpoints_name_only_maps_that_are_there() {
    let sim = SimStorage::new(1);
    let engine = Engine::create(&sim, small()).unwrap();
    let dump = || engine.store.dump_map(Lsn::ZERO, &|_, _| None).unwrap();
    let write = |map| {
        engine.store.write_checkpoint(&ferrite_store::Checkpoint {
            redo_start: Lsn::ZERO,
            map,
            state: Vec::new(),
        })
    };
    let (first, second) = (dump(), dump());
    assert!(matches!(write(first), Err(Error::Bug(_))), "dumped over");
    write(second).unwrap();
    let third = dump();
    write(second).unwrap();
    write(third).unwrap();
    write(dump()).unwrap();
    assert!(matches!(write(second), Err(Error::Bug(_))));
}

#[test]
fn a_real_disk_does_as_well() {
    let name = format!("ferrite-store-test-{}", std::process::id());
    let dir = std::env::temp_dir().join(name);
    let storage: Arc<dyn Storage> = Arc::new(RealStorage::new(&dir).unwrap());
    let cfg = small();
    let store = Store::create(storage.clone(), cfg.clone()).unwrap();
    let mut engine = Engine::over(store);
    let mut rng = Rng::new(6);
    (0..120).for_each(|_| engine.step(&mut rng).unwrap());
    let model = engine.model(engine.log.len());
    engine.check(&model);
    engine.checkpoint().unwrap();
    drop(engine);
    let (store, _) = Store::open(storage, cfg).unwrap();
    store.finish_recovery().unwrap();
    Engine::over(store).check(&model);
    std::fs::remove_dir_all(&dir).unwrap();
}

#[test]
fn an_older_state_of_the_same_page_is_noticed() {
    let (sim, store) = store();
    let older = write_one(&store, PageImage::whole(&[1; PAGE_BYTES]), Codec::None);
    let newer = write_one(&store, PageImage::whole(&[2; PAGE_BYTES]), Codec::None);
    assert_eq!(older.granules(), newer.granules());
    let mut out = vec![0; PAGE_BYTES];
    store.read_page(PageId(9), newer, &mut out).unwrap();
    // As if the newer one's write had never come, or the read were stale.
    let file = sim.boot().open("store.0000", OpenMode::ReadWrite, false);
    let file = file.unwrap();
    let mut blob = vec![0; older.bytes()];
    file.read_at(&mut blob, older.granule() * 4096).unwrap();
    file.write_at(&blob, newer.granule() * 4096).unwrap();
    drop(store);
    let (store, _) = Store::open(disk(&sim), small()).unwrap();
    let read = store.read_page(PageId(9), newer, &mut out);
    let said = read.unwrap_err().to_string();
    assert!(said.contains("an older state of the page"), "{said}");
    // A location without a mark says nothing of it: databases of the time before.
    let unmarked = Location::new(newer.granule(), newer.granules(), Codec::None);
    store.read_page(PageId(9), unmarked, &mut out).unwrap();
}
