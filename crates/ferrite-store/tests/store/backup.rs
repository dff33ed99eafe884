//! What a backup asks of the store, where several blobs lie in one block.

use crate::common::{disk, small, write_many, Engine};
use ferrite_io::sim::SimStorage;
use ferrite_io::{OpenMode, Storage};
use ferrite_store::{Layout, Location, PinOwner, Store, StoreConfig, GRANULE_BYTES};
use ferrite_sync::random::Rng;
use ferrite_types::Lsn;

/// The blob at a place.
fn blob(store: &Store, at: Location) -> Vec<u8> {
    let (begin, end) = at.blocks();
    let mut buf = ferrite_io::AlignedBuf::zeroed((end - begin) as usize * GRANULE_BYTES);
    store.read_blocks(begin, &mut buf).unwrap();
    let from = (at.granule() - begin) as usize * GRANULE_BYTES;
    buf[from..from + at.bytes()].to_vec()
}

#[test]
fn a_place_used_again_within_its_block_is_noticed() {
    let store = Store::create(disk(&SimStorage::new(1)), small()).unwrap();
    store.reuse_soon();
    // Two granules each, two to a block.
    let before = write_many(&store, 1..9, 1500);
    assert_eq!(before[1].granule(), before[0].granule() + 2);
    assert_eq!(before[1].blocks(), before[0].blocks());
    let first = store.begin_generation();
    assert!(!before.iter().any(|&at| store.written_since(at, first)));
    // The second block becomes free in two steps, and is used again then.
    store.free_now(before[2]);
    let elsewhere = write_many(&store, 3..4, 1500)[0];
    assert_ne!(elsewhere.blocks(), before[2].blocks(), "a blob lives there");
    assert!(store.written_since(elsewhere, first));
    store.free_now(before[3]);
    let second = store.begin_generation();
    let again = write_many(&store, 3..5, 1500);
    assert_eq!(
        (again[0].granule(), again[1].granule()),
        (before[2].granule(), before[3].granule())
    );
    for (n, &at) in before.iter().enumerate() {
        let used_again = n == 2 || n == 3;
        assert_eq!(store.written_since(at, first), used_again, "blob {n}");
        assert_eq!(store.written_since(at, second), used_again, "blob {n}");
    }
    assert!(!store.written_since(elsewhere, second));
    let other = ferrite_store::Generation {
        opening: second.opening ^ 1,
        ..second
    };
    assert!(store.written_since(before[0], other), "not known");
}

#[test]
fn a_pinned_blob_keeps_its_block() {
    let store = Store::create(disk(&SimStorage::new(1)), small()).unwrap();
    store.reuse_soon();
    let before = write_many(&store, 1..5, 1500);
    let then: Vec<_> = before.iter().map(|&at| blob(&store, at)).collect();
    store.pin(PinOwner::Backup, Lsn(10));
    store.retire(before[0], Lsn(10));
    (1..4).for_each(|n| store.retire(before[n], Lsn(11)));
    store.reclaim(Lsn(20));
    assert_eq!(store.retired_bytes(), 3 * 2048);
    for page in 10..40 {
        let at = write_many(&store, page..page + 1, 900)[0];
        assert!(before.iter().all(|b| b.blocks() != at.blocks()), "{at:?}");
    }
    assert!((1..4).all(|n| blob(&store, before[n]) == then[n]));
    store.unpin(PinOwner::Backup);
    store.reclaim(Lsn(20));
    assert_eq!(store.retired_bytes(), 0);
    assert_eq!(
        write_many(&store, 5..6, 900)[0].granule(),
        before[0].granule()
    );
}

/// What is in a store is laid out again, in whatever order, and is a store.
#[test]
fn blobs_are_put_together_to_blocks() {
    for seed in 1..=12 {
        let (sim, mut rng) = (SimStorage::new(seed), Rng::new(seed));
        let mut engine = Engine::create(&sim, small()).unwrap();
        for _ in 0..rng.between(1, 250) {
            engine.step(&mut rng).unwrap();
        }
        engine.checkpoint().unwrap();
        let kept = SimStorage::new(seed);
        let files = engine.store.copy_checkpoint(&kept).unwrap();
        let mut blobs = Vec::new();
        for index in engine.store.indexes() {
            for page in engine.store.pages_of(index) {
                let at = engine.store.directory().get(page).as_location().unwrap();
                let bytes = blob(&engine.store, at);
                engine.store.check_blob(page, at, &bytes).unwrap();
                blobs.push((at, bytes));
            }
        }
        blobs.sort_unstable_by_key(|(at, _)| at.granule());
        match seed % 3 {
            0 => {}
            // As from two backups, each in order.
            1 => blobs.sort_by_key(|(at, _)| at.granule() % 5 < 2),
            _ => blobs.sort_by_cached_key(|_| rng.next_u64()),
        }
        let copy = SimStorage::new(seed);
        let mut layout = Layout::begin(&kept, disk(&copy)).unwrap();
        for (at, bytes) in &blobs {
            layout.put(*at, bytes).unwrap();
        }
        layout.sync().unwrap();
        for file in files.iter().filter(|f| f.name != "superblock") {
            let bytes = kept.contents(&file.name).unwrap();
            let to = copy.open(&file.name, OpenMode::CreateNew, false).unwrap();
            to.write_at(&bytes, 0).unwrap();
            to.sync_data().unwrap();
        }
        copy.sync_dir().unwrap();
        layout.finish().unwrap();
        copy.crash_clean();
        let again = Engine::recover(&copy, &engine.log, engine.version).unwrap();
        again.check(&engine.model(engine.log.len()));
        assert!(Layout::begin(&kept, disk(&copy)).is_err(), "not empty");
    }
}

/// What was given back to the file system is a hole in the copy, too, and nothing is behind the last blob.
#[test]
fn a_copy_takes_no_more_than_the_original() {
    let original = SimStorage::new(5);
    let config = StoreConfig {
        file_bytes: 4 << 20,
        segment_bytes: 2 << 20,
        ..small()
    };
    let store = Store::create(disk(&original), config).unwrap();
    let mut kept: Vec<Location> = (0..40)
        .flat_map(|n| write_many(&store, 1 + n * 50..51 + n * 50, 3000))
        .collect();
    kept.sort_by_key(|at| at.granule());
    let gone: Vec<Location> = kept.drain(20..1990).collect();
    gone.iter().for_each(|at| store.free_now(*at));
    let given = store.shrink().unwrap();
    assert!(given > 4 << 20, "{given} bytes");
    let store_bytes = |of: &SimStorage| -> u64 {
        let names = of.list().unwrap();
        let files = names.iter().filter(|n| n.starts_with("store."));
        files.map(|n| of.used_bytes_of(n).unwrap()).sum()
    };
    let room = store_bytes(&original);
    let copy = SimStorage::new(6);
    copy.set_capacity(Some(room));
    let mut layout = Layout::begin(&original, disk(&copy)).unwrap();
    for at in &kept {
        layout.put(*at, &blob(&store, *at)).unwrap();
    }
    layout.sync().unwrap();
    assert!(store_bytes(&copy) <= room, "{} bytes", store_bytes(&copy));
    copy.set_capacity(None);
    layout.finish().unwrap();
    // The copy is a store: both ends of the hole are in it.
    let length: u64 = (copy.list().unwrap().iter())
        .filter(|n| n.starts_with("store."))
        .map(|n| copy.contents(n).unwrap().len() as u64)
        .sum();
    let last = kept.last().unwrap().blocks().1 * GRANULE_BYTES as u64;
    assert!((last..last + (1 << 20)).contains(&length), "{length} bytes");
}
