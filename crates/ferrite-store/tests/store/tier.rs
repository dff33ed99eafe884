//! The second tier: what is read from it is what the store has, whatever becomes of it.

use crate::common::{disk, page_bytes, small, Engine, Model};
use ferrite_io::sim::{Fault, SimStorage};
use ferrite_io::OpenMode;
use ferrite_store::{Location, PageImage, Store, TierConfig, TierStats, Wanted};
use ferrite_sync::random::Rng;
use ferrite_sync::{Arc, Mutex};
use ferrite_types::format::Packing;
use ferrite_types::{Error, IndexId, Lsn, PageId, PAGE_BYTES};

/// A ring of three segments.
const BYTES: u64 = 4 << 20;
const NAME: &str = "tier";

fn config(device: &SimStorage) -> TierConfig {
    TierConfig {
        storage: disk(device),
        name: NAME.into(),
        bytes: BYTES,
        direct: true,
    }
}

fn begun(seed: u64) -> (SimStorage, SimStorage, Engine) {
    let (sim, device) = (SimStorage::new(seed), SimStorage::new(seed + 1));
    let engine = Engine::create(&sim, small()).unwrap();
    engine.store.use_second_tier(&config(&device)).unwrap();
    engine.store.reuse_soon();
    (sim, device, engine)
}

fn figures(engine: &Engine) -> TierStats {
    engine.store.second_tier_stats().unwrap()
}

/// Random work, in which the device is behind now and then.
fn work(engine: &mut Engine, rng: &mut Rng, steps: u64) {
    for _ in 0..steps {
        engine.step(rng).unwrap();
        if rng.chance(1, 3) {
            engine.store.write_second_tier();
        }
        if rng.chance(1, 20) {
            engine.check(&engine.model(engine.log.len()));
        }
    }
    let model = engine.model(engine.log.len());
    engine.check(&model);
    check_together(engine, &model);
}

/// The same pages, read as a scan reads ahead.
fn check_together(engine: &Engine, model: &Model) {
    let directory = engine.store.directory();
    let wanted = |page: &PageId| Wanted {
        page: *page,
        at: directory.get(*page).as_location().unwrap(),
        delta: Location::NONE,
    };
    let wanted: Vec<_> = model.keys().map(wanted).collect();
    let mut reader = engine.store.together_reader();
    let (mut out, mut came) = (vec![0; PAGE_BYTES], 0);
    for some in wanted.chunks(20) {
        engine
            .store
            .read_together(&mut reader, some, &mut |n, arrived| {
                let page = some[n].page;
                let Ok(read) = arrived.unwrap().restore(&mut out) else {
                    // A damaged copy: it is read again, alone.
                    return;
                };
                came += 1;
                let header = read.header;
                assert_eq!((header.page, header.lsn), (page, Lsn(model[&page].1)));
                assert!(out == page_bytes(page, model[&page].1).0, "page {page}");
            });
    }
    let lost = model.len() - came;
    assert!(
        lost as u64 <= figures(engine).damaged,
        "{lost} did not come"
    );
}

fn end_cleanly(engine: &mut Engine) {
    engine.checkpoint().unwrap();
    engine.store.end_second_tier();
    engine.store.close_second_tier().unwrap();
}

fn again(sim: &SimStorage, device: &SimStorage, before: &Engine) -> Engine {
    let use_it = |store: &Store| store.use_second_tier(&config(device)).unwrap();
    let engine = Engine::recover_with(sim, &before.log, before.version, use_it).unwrap();
    engine.store.reuse_soon();
    engine
}

/// A stale blob would be told by its mark, and counted as a damaged one.
#[test]
fn what_is_read_is_what_was_written_last() {
    for seed in 0..3 {
        let (_sim, _device, mut engine) = begun(seed);
        let mut rng = Rng::new(seed);
        work(&mut engine, &mut rng, 1500);
        let now = figures(&engine);
        assert_eq!((now.on, now.damaged), (true, 0), "{now:?}");
        assert!(now.bytes_written > 2 * BYTES, "{now:?}");
        assert!(
            now.hits > 1000 && now.misses > 0 && now.skipped > 0,
            "{now:?}"
        );
    }
}

#[test]
fn it_is_there_after_a_clean_end_and_gone_after_a_crash() {
    let (sim, device, mut engine) = begun(30);
    let mut rng = Rng::new(30);
    for life in 0..12 {
        work(&mut engine, &mut rng, 200);
        assert_eq!(figures(&engine).damaged, 0);
        let clean = life % 3 != 2;
        if clean {
            end_cleanly(&mut engine);
        }
        let pages = figures(&engine).pages;
        assert!(pages > 20, "{pages} pages");
        engine = again(&sim, &device, &engine);
        let found = figures(&engine);
        match clean {
            // But for those where the next segment will be.
            true => assert!(found.pages > pages / 2 && found.on, "{found:?} of {pages}"),
            false => assert_eq!(found.pages, 0, "after a crash"),
        }
        engine.check(&engine.model(engine.log.len()));
        assert_eq!(figures(&engine).damaged, 0);
    }
}

/// What was written while nobody told the second tier is not taken from it.
#[test]
fn a_life_without_it_leaves_nothing_stale() {
    for (seed, with_checkpoint) in [(40, false), (41, true), (42, false)] {
        let (sim, device, mut engine) = begun(seed);
        let mut rng = Rng::new(seed);
        work(&mut engine, &mut rng, 400);
        end_cleanly(&mut engine);
        let mut engine = Engine::recover(&sim, &engine.log, engine.version).unwrap();
        engine.store.reuse_soon();
        for _ in 0..30 {
            let pages = engine.store.pages_of(IndexId(1));
            engine.write(&pages).unwrap();
            engine.flush();
        }
        if with_checkpoint {
            engine.checkpoint().unwrap();
        }
        let engine = again(&sim, &device, &engine);
        assert_eq!(figures(&engine).pages == 0, with_checkpoint);
        engine.check(&engine.model(engine.log.len()));
        assert_eq!(figures(&engine).damaged, 0, "seed {seed}");
    }
}

const PAGE: PageId = PageId(9);

/// Writes the page anew, always in as much space, and says where it is.
fn write_again(engine: &mut Engine, version: u64) -> Location {
    let bytes = [&version.to_le_bytes()[..], &[7; 500]].concat();
    let image = PageImage::with_gap(&bytes, bytes.len(), bytes.len());
    let mut batch = engine.store.new_batch();
    let pushed = batch.push(PAGE, IndexId(1), Lsn(version), image, Packing::NONE);
    assert!(pushed.is_some());
    let mut placed = Vec::new();
    engine.store.write_batch(&mut batch, &mut placed).unwrap();
    placed[0].location
}

fn version_at(store: &Store, at: Location) -> u64 {
    let mut out = vec![0; PAGE_BYTES];
    store.read_page(PAGE, at, &mut out).unwrap();
    u64::from_le_bytes(out[..8].try_into().unwrap())
}

/// A page that goes to and fro between two places is at times in the very location, mark and all, that it had
/// before.
#[test]
fn a_location_that_comes_again_is_of_another_blob() {
    let (_sim, _device, mut engine) = begun(80);
    let mut seen = std::collections::BTreeSet::new();
    let (mut again, mut old) = (0, Location::NONE);
    // Soon nothing can be kept any more, for nobody writes the second tier.
    for version in 1..8000 {
        let at = write_again(&mut engine, version);
        engine.store.free_now(old);
        again += u32::from(!seen.insert(at));
        assert_eq!(version_at(&engine.store, at), version);
        old = at;
    }
    assert!(figures(&engine).skipped > 1000 && again > 1000, "{again}");
}

#[test]
fn a_location_that_came_again_in_a_life_without_it_is_not_believed() {
    let (sim, device, mut engine) = begun(81);
    engine.alloc(IndexId(1));
    let kept = write_again(&mut engine, 1);
    end_cleanly(&mut engine);
    let mut engine = Engine::recover(&sim, &engine.log, engine.version).unwrap();
    engine.store.reuse_soon();
    let (mut version, mut at) = (1, Location::NONE);
    while at != kept {
        assert!(version < 100_000, "it never comes again");
        version += 1;
        let before = std::mem::replace(&mut at, write_again(&mut engine, version));
        engine.store.free_now(before);
    }
    let (store, _) = Store::open(disk(&sim), small()).unwrap();
    store.use_second_tier(&config(&device)).unwrap();
    assert!(store.second_tier_stats().unwrap().pages > 0);
    // As the log tells it.
    store.set_location(PAGE, at);
    assert_eq!(version_at(&store, at), version);
}

/// Bytes that rot, a device that fails, one that is gone: pages come from the store.
#[test]
fn a_bad_device_costs_nothing_but_time() {
    let (sim, device, mut engine) = begun(50);
    let mut rng = Rng::new(50);
    let told = Arc::new(Mutex::new(Vec::new()));
    let tell = told.clone();
    (engine.store).tell_of_second_tier(Box::new(move |text| tell.lock().push(text.to_string())));
    work(&mut engine, &mut rng, 300);
    for _ in 0..300 {
        let at = (1 << 20) + rng.below(BYTES - (1 << 20));
        device.corrupt(NAME, at, 1 << rng.below(8)).unwrap();
    }
    engine.check(&engine.model(engine.log.len()));
    assert!(figures(&engine).damaged > 0);
    end_cleanly(&mut engine);

    let mut engine = again(&sim, &device, &engine);
    let tell = told.clone();
    (engine.store).tell_of_second_tier(Box::new(move |text| tell.lock().push(text.to_string())));
    work(&mut engine, &mut rng, 100);
    assert!(told.lock().is_empty() && figures(&engine).on);
    device.power_off();
    work(&mut engine, &mut rng, 100);
    let now = figures(&engine);
    assert_eq!((now.on, now.pages), (false, 0), "{now:?}");
    assert_eq!(told.lock().len(), 1, "told once");
    assert!(told.lock()[0].contains(NAME));
    end_cleanly(&mut engine);
}

#[test]
fn a_saved_index_that_is_damaged_does_not_count() {
    let (sim, device, mut engine) = begun(60);
    let mut rng = Rng::new(60);
    for place in [20, 32, 41, 60, 70, BYTES + 7] {
        work(&mut engine, &mut rng, 100);
        end_cleanly(&mut engine);
        device.corrupt(NAME, place, 4).unwrap();
        engine = again(&sim, &device, &engine);
        assert_eq!(figures(&engine).pages, 0, "byte {place}");
    }
    // Nor does one that was not written to its end.
    work(&mut engine, &mut rng, 100);
    engine.checkpoint().unwrap();
    engine.store.end_second_tier();
    device.inject(Fault::FailSync, 2);
    engine.store.close_second_tier().unwrap_err();
    device.clear_faults();
    engine = again(&sim, &device, &engine);
    engine.check(&engine.model(engine.log.len()));
}

#[test]
fn what_cannot_be_one_is_refused() {
    let (sim, device) = (SimStorage::new(70), SimStorage::new(71));
    let engine = Engine::create(&sim, small()).unwrap();
    let refused = |config: &TierConfig| engine.store.use_second_tier(config).unwrap_err();
    let letter = disk(&device)
        .open(NAME, OpenMode::CreateNew, false)
        .unwrap();
    // An image of a disk may begin with zeros.
    let image = [[0; 8192], [7; 8192]].concat();
    for bytes in [&b"Dear Sir"[..], &[7; 8192][..], &image[..]] {
        letter.write_at(bytes, 0).unwrap();
        let text = refused(&config(&device)).to_string();
        assert!(text.contains("no second tier"), "{text}");
        assert_eq!(device.contents(NAME).unwrap()[..8], bytes[..8]);
    }
    disk(&device).remove(NAME).unwrap();
    for bytes in [0, BYTES - 1, u64::MAX] {
        let config = TierConfig {
            bytes,
            ..config(&device)
        };
        assert!(matches!(refused(&config), Error::BadConfig(_)), "{bytes}");
    }
    device.set_capacity(Some(1 << 20));
    assert!(matches!(refused(&config(&device)), Error::DiskFull(_)));
    assert_eq!(device.contents(NAME).unwrap().len(), 0, "it takes space");
    device.set_capacity(None);
    device.inject(Fault::Full, 2);
    assert!(matches!(refused(&config(&device)), Error::DiskFull(_)));
    assert_eq!(device.contents(NAME).unwrap().len(), 0, "it takes space");
    engine.store.use_second_tier(&config(&device)).unwrap();
}

/// A smaller one gives back what the larger one had, and the index behind the ring goes, too.
#[test]
fn the_file_is_as_long_as_was_said() {
    let (sim, device, mut engine) = begun(90);
    work(&mut engine, &mut Rng::new(90), 50);
    end_cleanly(&mut engine);
    assert!(device.contents(NAME).unwrap().len() as u64 > BYTES);
    for bytes in [BYTES, 3 * BYTES, BYTES, 2 * BYTES] {
        let config = TierConfig {
            bytes,
            ..config(&device)
        };
        let use_it = |store: &Store| store.use_second_tier(&config).unwrap();
        let engine = Engine::recover_with(&sim, &engine.log, engine.version, use_it).unwrap();
        assert_eq!(device.contents(NAME).unwrap().len() as u64, bytes);
        drop(engine);
    }
}
