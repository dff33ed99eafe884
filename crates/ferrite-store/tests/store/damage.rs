//! Damage in any file is an error that names the file, or harmless; never a panic, never
//! other bytes.

use std::collections::BTreeMap;

use crate::common::{corrupt, disk, page_bytes, small, Engine, Model};
use ferrite_io::sim::SimStorage;
use ferrite_store::{rebuild_by_scan, Location, Store, GRANULE_BYTES};
use ferrite_sync::random::Rng;
use ferrite_types::{Error, IndexId, Lsn, PageId, Result, PAGE_BYTES};

/// A store with some history, closed after a checkpoint that holds everything.
fn sample() -> (SimStorage, Model) {
    let sim = SimStorage::new(9);
    let mut engine = Engine::create(&sim, small()).unwrap();
    let mut rng = Rng::new(9);
    (0..150).for_each(|_| engine.step(&mut rng).unwrap());
    // A page in the second file.
    let second = small().file_bytes / GRANULE_BYTES as u64;
    loop {
        let page = engine.alloc(IndexId(1));
        engine.write(&[page]).unwrap();
        let at = engine.store.directory().get(page).as_location();
        if at.unwrap().granule() >= second {
            break;
        }
    }
    // Both slots of both kinds are in use.
    engine.checkpoint().unwrap();
    engine.checkpoint().unwrap();
    let model = engine.model(engine.log.len());
    assert!(model.len() > 20);
    (sim, model)
}

/// Opens the store and reads every page; which pages could not be read.
fn read_all(sim: &SimStorage, model: &Model) -> Result<BTreeMap<PageId, String>> {
    let (store, _) = Store::open(disk(sim), small())?;
    store.finish_recovery()?;
    let mut bad = BTreeMap::new();
    for (&page, &(_, version)) in model {
        let at = store.directory().get(page).as_location().unwrap();
        let mut out = vec![0; PAGE_BYTES];
        match store.read_page(page, at, &mut out) {
            Ok(_) => assert!(out == page_bytes(page, version).0),
            Err(Error::Corrupt(text)) => {
                bad.insert(page, text);
            }
            Err(e) => panic!("{e}"),
        }
    }
    assert_eq!(store.stats().corrupt_pages, bad.len() as u64);
    Ok(bad)
}

#[test]
fn every_byte_of_a_blob() {
    let (sim, model) = sample();
    let (store, _) = Store::open(disk(&sim), small()).unwrap();
    let (&page, _) = model
        .iter()
        .find(|(p, _)| store.directory().get(**p).as_location().unwrap().granules() > 1)
        .unwrap();
    let at = store.directory().get(page).as_location().unwrap();
    drop(store);
    let (name, offset) = place(at);
    let mut noticed = 0;
    for i in (0..200).chain((200..at.bytes() as u64).step_by(331)) {
        sim.corrupt(&name, offset + i, 0x20).unwrap();
        let bad = read_all(&sim, &model).unwrap();
        if let Some(text) = bad.get(&page) {
            noticed += 1;
            assert!(
                text.contains(&name) && text.contains(&offset.to_string()),
                "{text}"
            );
            assert!(text.contains(&format!("page {page} ")), "{text}");
        }
        assert!(bad.keys().all(|p| *p == page), "{bad:?}");
        assert!(
            i >= 200 || bad.len() == 1,
            "byte {i} of the header or body was not noticed"
        );
        sim.corrupt(&name, offset + i, 0x20).unwrap();
    }
    assert!(noticed > 200);
}

fn place(at: Location) -> (String, u64) {
    let offset = at.granule() * GRANULE_BYTES as u64;
    let file = offset / small().file_bytes;
    (format!("store.{file:04}"), offset % small().file_bytes)
}

/// What is said of damage by a start that finds all pages whole, or by one that is refused.
fn told(sim: &SimStorage, model: &Model) -> Option<String> {
    match Store::open(disk(sim), small()) {
        Ok((store, _)) => {
            assert!(read_all(sim, model).unwrap().is_empty());
            store.passed_over().map(|p| p.why.clone())
        }
        Err(e) => Some(corrupt::<()>(Err(e))),
    }
}

#[test]
fn every_byte_of_the_map() {
    let (sim, model) = sample();
    // The last checkpoint's map.
    let (slot, len) = live_map(&sim);
    // What comes behind it is space kept for a longer one, and means nothing.
    assert!(sim.contents(&slot).unwrap().len() as u64 > len);
    sim.overwrite(&slot, len, &[0xff; 4096]).unwrap();
    assert!(read_all(&sim, &model).unwrap().is_empty());
    let headers = (0..len).filter(|i| i % 4096 < 64);
    for i in headers.chain((0..len).step_by(61)) {
        sim.corrupt(&slot, i, 4).unwrap();
        match told(&sim, &model) {
            None => assert!(i % 4096 >= 64, "a header's byte {i} was not noticed"),
            Some(text) => assert!(text.contains(&slot), "{text}"),
        }
        sim.corrupt(&slot, i, 4).unwrap();
    }
    // Lost altogether, or shorter.
    let before = sim.snapshot();
    disk(&sim).remove(&slot).unwrap();
    assert!(told(&sim, &model).unwrap().contains(&slot));
    sim.restore(&before);
    let file = disk(&sim).open(&slot, ferrite_io::OpenMode::ReadWrite, false);
    file.unwrap().truncate(4096).unwrap();
    assert!(told(&sim, &model).unwrap().contains(&slot));
    // And the other one with it: the database does not open, and both are named.
    let other = ["map.1", "map.0"][usize::from(slot == "map.1")];
    sim.corrupt(other, 0, 4).unwrap();
    let text = corrupt(read_all(&sim, &model));
    assert!(text.contains(&slot) && text.contains(other), "{text}");
}

/// The newest checkpoint could not be read for a moment; the start from the one before dumps its
/// map over the newest one's and dies. Then the newest checkpoint is whole and its map is not.
#[test]
fn a_checkpoint_whose_map_was_written_over_is_passed_over() {
    let sim = SimStorage::new(11);
    let mut engine = Engine::create(&sim, small()).unwrap();
    let mut rng = Rng::new(11);
    for _ in 0..3 {
        (0..40).for_each(|_| engine.step(&mut rng).unwrap());
        engine.checkpoint().unwrap();
    }
    let (log, version) = (engine.log.clone(), engine.version);
    drop(engine);
    let newest = format!("checkpoint.{}", newest_slot(&sim));
    sim.corrupt(&newest, 40, 4).unwrap();
    let mut engine = Engine::recover(&sim, &log, version).unwrap();
    let page = engine.alloc(IndexId(1));
    engine.write(&[page]).unwrap();
    engine.flush();
    engine.store.dump_map(engine.end(), &|_, _| None).unwrap();
    let (log, version) = (engine.log.clone(), engine.version);
    let model = engine.model(log.len());
    drop(engine);
    sim.corrupt(&newest, 40, 4).unwrap();

    let mut engine = Engine::recover(&sim, &log, version).unwrap();
    let why = engine.store.passed_over().unwrap().why.clone();
    assert!(
        why.contains(&newest) && why.contains("another dump"),
        "{why}"
    );
    engine.check(&model);
    // The next checkpoint takes its place.
    engine.checkpoint().unwrap();
    let (log, version) = (engine.log.clone(), engine.version);
    drop(engine);
    let engine = Engine::recover(&sim, &log, version).unwrap();
    assert!(engine.store.passed_over().is_none());
    engine.check(&model);
}

/// The slot of the checkpoint that a start begins at.
fn newest_slot(sim: &SimStorage) -> u8 {
    let newest = Store::open(disk(sim), small()).unwrap().1;
    let before = sim.snapshot();
    let is_in = |slot: u8| {
        disk(sim).remove(&format!("checkpoint.{slot}")).unwrap();
        let found = Store::open(disk(sim), small()).map(|s| s.1);
        sim.restore(&before);
        found.map_or(true, |found| found != newest)
    };
    u8::from(is_in(1))
}

/// The map file whose loss is noticed, and the bytes of it that count.
fn live_map(sim: &SimStorage) -> (String, u64) {
    let (_, checkpoint) = Store::open(disk(sim), small()).unwrap();
    let map = checkpoint.map;
    (format!("map.{}", map.slot), map.bytes)
}

#[test]
fn checkpoints_fall_back_and_then_fail() {
    let (sim, model) = sample();
    let newest = Store::open(disk(&sim), small()).unwrap().1;
    for slot in 0..2 {
        let name = format!("checkpoint.{slot}");
        for i in 0..96 {
            sim.corrupt(&name, i, 1).unwrap();
            let (_, found) = Store::open(disk(&sim), small()).unwrap();
            assert!(found.redo_start <= newest.redo_start);
            sim.corrupt(&name, i, 1).unwrap();
        }
    }
    sim.corrupt("checkpoint.0", 50, 1).unwrap();
    sim.corrupt("checkpoint.1", 60, 1).unwrap();
    let text = corrupt(read_all(&sim, &model));
    assert!(
        text.contains("checkpoint.0") && text.contains("checkpoint.1"),
        "{text}"
    );
    disk(&sim).remove("checkpoint.0").unwrap();
    let text = corrupt(read_all(&sim, &model));
    assert!(text.contains("checkpoint.0: missing"), "{text}");
}

#[test]
fn the_superblock_has_two_copies() {
    let (sim, model) = sample();
    for i in (0..80).chain((80..8192).step_by(61)) {
        sim.corrupt("superblock", i, 0x80).unwrap();
        assert!(read_all(&sim, &model).unwrap().is_empty(), "byte {i}");
        sim.corrupt("superblock", i, 0x80).unwrap();
    }
    for i in [0, 9, 12, 40, 4000] {
        sim.corrupt("superblock", i, 0x80).unwrap();
        sim.corrupt("superblock", 4096 + i, 0x80).unwrap();
        let error = read_all(&sim, &model).unwrap_err();
        assert!(matches!(error, Error::Format(_) | Error::Corrupt(_)));
        assert!(error.to_string().contains("superblock"), "{error}");
        let again = Store::create(disk(&sim), small()).map(|_| ());
        assert_eq!(again, Err(Error::Exists));
        sim.corrupt("superblock", i, 0x80).unwrap();
        sim.corrupt("superblock", 4096 + i, 0x80).unwrap();
    }
    // Lost: nothing is made in its place.
    disk(&sim).remove("superblock").unwrap();
    for left in ["checkpoint.1", "checkpoint.0", "store.0000", "map.1"] {
        let said = [
            corrupt(read_all(&sim, &model)),
            corrupt(Store::create(disk(&sim), small()).map(|_| ())),
        ];
        for text in said {
            let told = text.contains("superblock is missing") && text.contains("map.0");
            assert!(told, "{text}");
        }
        disk(&sim).remove(left).unwrap();
    }
}

#[test]
fn missing_and_short_store_files_are_named() {
    let (sim, model) = sample();
    assert!(
        sim.contents("store.0001").is_ok(),
        "the sample has two files"
    );
    let before = sim.snapshot();
    disk(&sim).remove("store.0000").unwrap();
    assert!(corrupt(read_all(&sim, &model)).contains("store.0000"));
    sim.restore(&before);
    let mode = ferrite_io::OpenMode::ReadWrite;
    let file = disk(&sim).open("store.0000", mode, false).unwrap();
    file.truncate(300_000).unwrap();
    assert!(corrupt(read_all(&sim, &model)).contains("store.0000"));
    sim.restore(&before);
    let mut last = 1;
    while sim.contents(&format!("store.{:04}", last + 1)).is_ok() {
        last += 1;
    }
    for n in (1..=last).rev() {
        disk(&sim).remove(&format!("store.{n:04}")).unwrap();
    }
    let text = corrupt(read_all(&sim, &model));
    assert!(text.contains("beyond the files"), "{text}");
}

#[test]
fn two_pages_in_one_place_are_named() {
    let (sim, model) = sample();
    let (store, _) = Store::open(disk(&sim), small()).unwrap();
    let mut pages = model.keys();
    let (a, b) = (*pages.next().unwrap(), *pages.next().unwrap());
    let at = store.directory().get(a).as_location().unwrap();
    store.set_location(b, at);
    let text = corrupt(store.finish_recovery());
    assert!(text.contains(&format!("pages {a} and {b} both")), "{text}");
    assert!(text.contains(&place(at).0), "{text}");
    // A page of nobody.
    let (store, _) = Store::open(disk(&sim), small()).unwrap();
    store.set_location(PageId(70_000), at);
    let text = corrupt(store.finish_recovery());
    assert!(
        text.contains("page 70000") && text.contains("no index"),
        "{text}"
    );
}

#[test]
fn a_scan_finds_what_the_map_says() {
    let (sim, model) = sample();
    let (store, _) = Store::open(disk(&sim), small()).unwrap();
    let found = rebuild_by_scan(&disk(&sim), Lsn::MAX).unwrap();
    for (page, (index, version)) in &model {
        let f = found.pages[page];
        assert_eq!((f.index, f.lsn), (*index, Lsn(*version)));
        assert_eq!(Some(f.location), store.directory().get(*page).as_location());
    }
    assert!(found.blobs >= found.pages.len() as u64 && found.granules > 0);
    // Without the newest part of the log, older blobs count or none.
    let half = Lsn(model.values().map(|(_, v)| *v).max().unwrap() / 2);
    let older = rebuild_by_scan(&disk(&sim), half).unwrap();
    assert!(older.pages.values().all(|f| f.lsn <= half));
    assert!(older.beyond_log > 0);
    // Neither maps nor checkpoints are needed, and damage only hides what it hit.
    for name in ["map.0", "map.1", "checkpoint.0", "checkpoint.1"] {
        disk(&sim).remove(name).unwrap();
    }
    let (page, f) = found.pages.iter().next().unwrap();
    let (name, offset) = place(f.location);
    sim.corrupt(&name, offset + 45, 1).unwrap();
    let after = rebuild_by_scan(&disk(&sim), Lsn::MAX).unwrap();
    assert!(after.broken > found.broken);
    assert!(after
        .pages
        .iter()
        .all(|(p, g)| p == page || found.pages[p] == *g));
}

#[test]
fn files_of_random_bytes_never_panic() {
    let (sim, _) = sample();
    let before = sim.snapshot();
    let mut rng = Rng::new(10);
    for round in 0..150 {
        sim.restore(&before);
        for name in [
            "superblock",
            "checkpoint.0",
            "checkpoint.1",
            "map.0",
            "map.1",
        ] {
            if rng.chance(1, 2) {
                continue;
            }
            let len = sim.contents(name).unwrap().len() as u64;
            let mut bytes = vec![0; rng.between(1, 300) as usize];
            rng.fill(&mut bytes);
            let at = rng.below(len.saturating_sub(300).max(1));
            sim.overwrite(name, at, &bytes).unwrap();
        }
        if let Ok((store, _)) = Store::open(disk(&sim), small()) {
            let _ = store.finish_recovery();
            let _ = store.pages_of(IndexId(round));
        }
        let _ = rebuild_by_scan(&disk(&sim), Lsn::MAX);
    }
}
