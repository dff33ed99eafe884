//! Pages in and out, space, and what happens when the disk refuses.

use crate::common::{check_page, disk, page_bytes, small, write_many, Engine};
use ferrite_io::sim::{Fault, SimStorage};
use ferrite_io::{OpenMode, RealStorage, Storage};
use ferrite_store::{
    Ahead, Location, PageImage, Pushed, Store, StoreConfig, Word, BLOB_HEADER_BYTES, GRANULE_BYTES,
};
use ferrite_sync::atomic::Ordering;
use ferrite_sync::random::Rng;
use ferrite_sync::{thread, Arc};
use ferrite_types::format::{Codec, Packing};
use ferrite_types::{Error, IndexId, Lsn, PageId, PAGE_BYTES};

fn store() -> (SimStorage, Store) {
    let sim = SimStorage::new(1);
    let store = Store::create(disk(&sim), small()).unwrap();
    (sim, store)
}

fn write_one(store: &Store, image: PageImage<'_>, codec: Codec) -> Location {
    write_packed(store, image, Packing::of(codec))
}

fn write_packed(store: &Store, image: PageImage<'_>, packing: Packing) -> Location {
    let mut batch = store.new_batch();
    let pushed = batch.push(PageId(9), IndexId(3), Lsn(4), image, packing);
    let mut placed = Vec::new();
    store.write_batch(&mut batch, &mut placed).unwrap();
    assert_eq!(placed.len(), 1);
    let at = placed[0].location;
    let packed = at.codec() != Some(Codec::None);
    assert_eq!(pushed, Some(Pushed { packed }));
    at
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
                (len + BLOB_HEADER_BYTES).div_ceil(GRANULE_BYTES)
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
fn compression_only_where_it_saves_a_granule_and_an_eighth() {
    let (_sim, store) = store();
    let mut page = vec![0; PAGE_BYTES];
    Rng::new(3).fill(&mut page);
    page[5000..].fill(1);
    for codec in [Codec::Lz4, Codec::Zstd] {
        let at = write_one(&store, PageImage::whole(&page), codec);
        assert_eq!(at.codec(), Some(codec));
        assert!((5..=6).contains(&at.granules()), "{at:?}");
        let mut out = vec![0; PAGE_BYTES];
        store.read_page(PageId(9), at, &mut out).unwrap();
        assert!(out == page);
        // One granule cannot become less.
        let at = write_one(&store, PageImage::with_gap(&page, 0, 15500), codec);
        assert_eq!((at.codec(), at.granules()), (Some(Codec::None), 1));
        // 9% is too little, although it would save a granule.
        let mut hard = page.clone();
        Rng::new(4).fill(&mut hard[..14900]);
        let at = write_one(&store, PageImage::whole(&hard), codec);
        assert_eq!((at.codec(), at.granules()), (Some(Codec::None), 17));
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
    let image = PageImage::whole(&page);
    let none = Packing::NONE;
    while (batch.push(PageId(n + 1), IndexId(1), Lsn(1), image, none)).is_some() {
        n += 1;
    }
    assert!(batch.is_full());
    assert_eq!((batch.pages(), batch.len()), (60, 60 * 17 * GRANULE_BYTES));
    let mut placed = Vec::new();
    store.write_batch(&mut batch, &mut placed).unwrap();
    assert_eq!(placed.len(), 60);
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
        Err(Error::DiskFull(_)) | Ok(Ahead::Enough)
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
        while engine.store.grow_ahead().unwrap() == Ahead::Grown {}
    }
    let stats = engine.store.stats();
    assert_eq!(stats.grown_in_foreground, 0, "the background kept ahead");
    assert!(sim.contents("store.0001").is_ok());
    let before = engine.store.file_bytes();
    pages[1..].iter().for_each(|page| engine.free(*page));
    engine.flush();
    while engine.store.shrink().unwrap() > 0 {}
    assert!(
        engine.store.file_bytes() < before,
        "free space at the end went"
    );
    assert_eq!(
        engine.store.grow_ahead().unwrap(),
        Ahead::Enough,
        "it does not come back at once"
    );
    engine.check(&engine.model(engine.log.len()));
}

/// A store with so many pages.
fn filled(file_bytes: u64, segment_bytes: u64, count: usize) -> (SimStorage, Engine, Vec<PageId>) {
    let sim = SimStorage::new(1);
    let cfg = StoreConfig {
        direct: true,
        file_bytes,
        segment_bytes,
    };
    let mut engine = Engine::create(&sim, cfg).unwrap();
    let pages: Vec<PageId> = (0..count).map(|_| engine.alloc(IndexId(2))).collect();
    engine.write(&pages).unwrap();
    (sim, engine, pages)
}

#[test]
fn long_free_runs_are_punched() {
    let (sim, mut engine, pages) = filled(8 << 20, 4 << 20, 200);
    let allocated = sim.used_bytes();
    pages[..199].iter().for_each(|page| engine.free(*page));
    engine.flush();
    assert!(engine.store.shrink().unwrap() >= 1 << 20);
    assert!(sim.used_bytes() < allocated - (1 << 20));
    assert_eq!(engine.store.shrink().unwrap(), 0, "not again");
    engine.write(&pages[199..]).unwrap();
    engine.check(&engine.model(engine.log.len()));
}

/// What becomes free later in a segment goes back as well; a part of it stays if it is to.
#[test]
fn free_runs_are_punched_as_they_come() {
    let (sim, mut engine, pages) = filled(16 << 20, 16 << 20, 600);
    let parts = [&pages[..200], &pages[200..400], &pages[400..599]];
    for (n, part) in parts.iter().enumerate() {
        part.iter().for_each(|page| engine.free(*page));
        engine.flush();
        let before = sim.used_bytes();
        let given = match n {
            0 | 1 => engine.store.shrink().unwrap(),
            _ => engine.store.shrink_but(2).unwrap(),
        };
        assert!(given >= 1 << 20, "part {n}: {given} bytes");
        assert!(sim.used_bytes() <= before - (1 << 20), "part {n}");
    }
    engine.write(&pages[599..]).unwrap();
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
            let packing = Packing::of(Codec::Lz4);
            assert!((batch.push(page, index, Lsn(version), image, packing)).is_some());
        }
        placed.clear();
        store.write_batch(&mut batch, &mut placed).unwrap();
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
    // 100 K pages of 16 granules lie in two files.
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
        let at = Location::new(u64::from(page) * 16, 16, Codec::None);
        store.set_location(PageId(page), at);
    }
    store.finish_recovery().unwrap();
    let us = ferrite_sync::time::now_us() - begin;
    assert_eq!(store.page_count(IndexId(2)), 100_000 - 64);
    println!("100 K pages: {us} us");
    // Half a second on an idle machine; what is quadratic takes minutes.
    assert!(us < 10_000_000, "{us} us");
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

/// What the word holds more than the place.
fn mark_bits(at: Location) -> u64 {
    at.raw() ^ Location::new(at.granule(), at.granules(), Codec::None).raw()
}

#[test]
fn an_older_state_of_the_same_page_is_noticed() {
    let (sim, store) = store();
    let older = write_one(&store, PageImage::whole(&[1; PAGE_BYTES]), Codec::None);
    // The tag of the store, which is random, is in the checksum: one in 255 has the same mark.
    let mut bodies = 2..;
    let newer = loop {
        let body = [bodies.next().unwrap(); PAGE_BYTES];
        let at = write_one(&store, PageImage::whole(&body), Codec::None);
        if mark_bits(at) != mark_bits(older) {
            break at;
        }
    };
    assert_eq!(older.granules(), newer.granules());
    let mut out = vec![0; PAGE_BYTES];
    store.read_page(PageId(9), newer, &mut out).unwrap();
    // As if the newer one's write had never come, or the read were stale.
    let file = sim.boot().open("store.0000", OpenMode::ReadWrite, false);
    let file = file.unwrap();
    let mut blob = vec![0; older.bytes()];
    file.read_at(&mut blob, older.granule() * GRANULE_BYTES as u64)
        .unwrap();
    file.write_at(&blob, newer.granule() * GRANULE_BYTES as u64)
        .unwrap();
    drop(store);
    let (store, _) = Store::open(disk(&sim), small()).unwrap();
    let read = store.read_page(PageId(9), newer, &mut out);
    let said = read.unwrap_err().to_string();
    assert!(said.contains("an older state of the page"), "{said}");
    // A location without a mark says nothing of it: databases of the time before.
    let unmarked = Location::new(newer.granule(), newer.granules(), Codec::None);
    store.read_page(PageId(9), unmarked, &mut out).unwrap();
}

#[test]
fn blobs_share_blocks_and_only_free_blocks_are_written_to() {
    let (_sim, store) = store();
    let seven = 7 * GRANULE_BYTES - BLOB_HEADER_BYTES;
    let places = write_many(&store, 1..6, seven);
    let granules: Vec<_> = places
        .iter()
        .map(|at| (at.granule(), at.granules()))
        .collect();
    assert_eq!(granules, [(0, 7), (7, 7), (14, 7), (21, 7), (28, 7)]);
    assert_eq!(store.used_bytes(), 35 * GRANULE_BYTES as u64);
    // Granules 7 to 13 are free: of their blocks, only 8 to 11 is wholly so.
    store.free_now(places[1]);
    let four = write_many(&store, 7..8, 4 * GRANULE_BYTES - BLOB_HEADER_BYTES);
    assert_eq!(four[0].granule(), 36, "in address order first");
    store.reuse_soon();
    let four = write_many(&store, 8..10, 4 * GRANULE_BYTES - BLOB_HEADER_BYTES);
    let granules: Vec<_> = four.iter().map(|at| at.granule()).collect();
    assert_eq!(granules, [8, 40]);
    let mut out = vec![0; PAGE_BYTES];
    for (page, at) in [(1, places[0]), (3, places[2]), (8, four[0]), (9, four[1])] {
        store.read_page(PageId(page), at, &mut out).unwrap();
    }
}

#[test]
fn blobs_apart_share_no_block() {
    let (sim, store) = store();
    store.keep_blocks_apart(true);
    let places = write_many(&store, 1..4, 5000);
    let granules: Vec<_> = places
        .iter()
        .map(|at| (at.granule(), at.granules()))
        .collect();
    assert_eq!(granules, [(0, 8), (8, 8), (16, 8)]);
    let mut out = vec![0; PAGE_BYTES];
    store.read_page(PageId(2), places[1], &mut out).unwrap();
    // What is freed can be overwritten whole, though its neighbours live.
    store.free_now(places[1]);
    while store.scrub_round().unwrap() > 0 {}
    let file = sim.contents("store.0000").unwrap();
    let at = 8 * GRANULE_BYTES;
    assert!(file[at..at + 8 * GRANULE_BYTES].iter().all(|b| *b == 0));
    store.read_page(PageId(3), places[2], &mut out).unwrap();
}

#[test]
fn what_was_written_in_blocks_is_read() {
    let (sim, store) = store();
    store.keep_blocks_apart(true);
    let places = write_many(&store, 1..3, 5000);
    let old = Location::in_blocks(2, 2, Codec::None);
    assert_eq!(old.granule(), places[1].granule());
    let mut out = vec![0; PAGE_BYTES];
    store.read_page(PageId(2), old, &mut out).unwrap();
    // The map has either unit, also after a restart, and nothing else is taken for free.
    let page = store.alloc_page(IndexId(1), &mut |_| ());
    store.set_location(page, old);
    store.free_now(places[0]);
    let map = store.dump_map(Lsn::ZERO, &|_, _| None).unwrap();
    let checkpoint = ferrite_store::Checkpoint {
        redo_start: Lsn::ZERO,
        map,
        state: Vec::new(),
    };
    store.write_checkpoint(&checkpoint).unwrap();
    drop(store);
    let (store, _) = Store::open(disk(&sim), small()).unwrap();
    store.finish_recovery().unwrap();
    assert_eq!(store.used_bytes(), 8192);
    assert_eq!(store.directory().get(page).as_location(), Some(old));
}

/// The setting of a table, the directory and the blob must agree: a blob with another codec than
/// the location says is another blob.
#[test]
fn a_blob_with_another_codec_is_refused() {
    let (_sim, store) = store();
    let page = vec![3; PAGE_BYTES];
    let at = write_one(&store, PageImage::whole(&page), Codec::Lz4);
    let mut out = vec![0; PAGE_BYTES];
    store.read_page(PageId(9), at, &mut out).unwrap();
    for codec in [Codec::None, Codec::Zstd] {
        let other = Location::new(at.granule(), at.granules(), codec);
        let said = store.read_page(PageId(9), other, &mut out).unwrap_err();
        assert!(said.to_string().contains("codec"), "{said}");
    }
}

#[test]
fn zstd_has_levels() {
    let (_sim, store) = store();
    let mut rng = Rng::new(12);
    let words: Vec<String> = (0..90).map(|_| format!("{}", rng.below(100_000))).collect();
    let mut page = String::new();
    while page.len() < PAGE_BYTES {
        page += &words[rng.below(90) as usize];
        page.push(' ');
    }
    let image = PageImage::whole(&page.as_bytes()[..PAGE_BYTES]);
    let sizes: Vec<_> = [1, 19, 1]
        .map(|level| {
            let codec = Codec::Zstd;
            let at = write_packed(&store, image, Packing { codec, level });
            let mut out = vec![0; PAGE_BYTES];
            let header = store.read_page(PageId(9), at, &mut out).unwrap();
            assert!(out == image.head);
            header.stored
        })
        .into();
    assert!(sizes[1] < sizes[0] && sizes[0] == sizes[2], "{sizes:?}");
}

/// The disk is full and no word of the free space is wholly free, though much of it is: a delta finds a place, and no
/// more are to be written until the store has grown or there is a place for an area.
#[test]
fn a_full_disk_has_no_room_for_deltas_until_there_is_an_area() {
    let sim = SimStorage::new(1);
    let cfg = StoreConfig {
        direct: true,
        file_bytes: 1 << 30,
        segment_bytes: 4 << 20,
    };
    let store = Store::create(disk(&sim), cfg).unwrap();
    sim.set_capacity(Some(sim.used_bytes() + (12 << 20)));
    let mut places = Vec::new();
    let page = vec![1; 15 << 10];
    let write = |places: &mut Vec<_>| {
        let mut batch = store.new_batch();
        let image = PageImage::whole(&page);
        let _ = batch.push(PageId(1), IndexId(3), Lsn(4), image, Packing::NONE);
        store.write_batch(&mut batch, places)
    };
    while write(&mut places).is_ok() {}
    assert!(store.is_disk_full());
    // One page to a word of 64 granules stays.
    let mut words = std::collections::BTreeSet::new();
    let (kept, rest): (Vec<_>, Vec<_>) =
        (places.into_iter()).partition(|p| words.insert(p.location.granule() / 64));
    rest.iter().for_each(|p| store.free_now(p.location));
    assert!(store.free_bytes() > store.file_bytes() / 2);
    for _ in 0..3 {
        assert_eq!(store.grow_ahead(), Ok(Ahead::Enough));
        assert!(store.is_disk_full(), "no delta finds an area");
    }
    let mut batch = store.new_batch();
    let base = ferrite_store::StoredBlob {
        lsn: Lsn(4),
        crc: kept[0].crc,
    };
    assert!(batch.push_delta((PageId(1), IndexId(3)), Lsn(5), base, &[1, 2, 3]));
    store.write_batch(&mut batch, &mut Vec::new()).unwrap();
    let word = |p: &ferrite_store::Placed| p.location.granule() / 64;
    let last = kept.last().expect("some are kept");
    store.free_now(last.location);
    assert!(word(last) > word(&kept[0]), "another than the delta's");
    assert_eq!(store.grow_ahead(), Ok(Ahead::Enough));
    assert!(!store.is_disk_full(), "there is a place for an area");
}

/// Files of short segments grow by small steps; where the disk has not even room for one, what is there is used to
/// the end, and what comes free is used again.
#[test]
fn grows_in_steps_until_the_disk_is_full() {
    let sim = SimStorage::new(1);
    let cfg = StoreConfig {
        direct: true,
        file_bytes: 1 << 30,
        segment_bytes: 16 << 20,
    };
    let store = Store::create(disk(&sim), cfg.clone()).unwrap();
    let step = 4 << 20;
    assert_eq!(store.file_bytes(), 1 << 20);
    assert_eq!(store.grow_ahead().unwrap(), Ahead::Grown);
    // Room for three steps and a half: the last one is smaller.
    sim.set_capacity(Some(sim.used_bytes() + 3 * step + step / 2));
    let most = store.file_bytes() + 3 * step + step / 2;
    let mut places = Vec::new();
    let error = loop {
        let mut batch = store.new_batch();
        let page = vec![1; 15 << 10];
        for n in 1..60 {
            let image = PageImage::whole(&page);
            let _ = batch.push(PageId(n), IndexId(3), Lsn(4), image, Packing::NONE);
        }
        match store.write_batch(&mut batch, &mut places) {
            Ok(()) => assert!(store.free_bytes() < 2 * step, "{}", store.free_bytes()),
            Err(e) => break e,
        }
        let _ = store.grow_ahead();
    };
    assert!(matches!(&error, Error::DiskFull(_)), "{error}");
    assert!(
        store.file_bytes() + (1 << 20) > most,
        "{}",
        store.file_bytes()
    );
    assert_eq!(
        store.stats().grown_in_foreground,
        0,
        "the background kept ahead"
    );
    assert!(
        store.free_bytes() < 1 << 20,
        "{} are free",
        store.free_bytes()
    );
    places.drain(..100).for_each(|p| store.free_now(p.location));
    write_many(&store, 1..50, 15 << 10);
    let end = store.file_bytes();
    places.drain(20..).for_each(|p| store.free_now(p.location));
    assert!(store.shrink().unwrap() > step);
    let trimmed = store.file_bytes();
    assert!(trimmed < end, "{trimmed}");
    drop(store);
    let (store, _) = Store::open(disk(&sim), cfg).unwrap();
    store.finish_recovery().unwrap();
    assert_eq!(store.file_bytes(), trimmed);
}
