//! A full disk does not keep a checkpoint from being written: its space was kept for it.

use crate::common::{disk, small};
use ferrite_io::sim::SimStorage;
use ferrite_io::OpenMode;
use ferrite_store::{Checkpoint, Store};
use ferrite_sync::random::Rng;
use ferrite_types::{Error, IndexId, Lsn};

fn checkpoint(store: &Store, state: &[u8]) -> Result<(), Error> {
    let map = store.dump_map(Lsn(8), &|_, _| None)?;
    store.write_checkpoint(&Checkpoint {
        redo_start: Lsn(8),
        map,
        state: state.to_vec(),
    })
}

fn state_of(sim: &SimStorage) -> Vec<u8> {
    Store::open(disk(sim), small()).unwrap().1.state
}

fn full(sim: &SimStorage) {
    sim.set_capacity(Some(sim.used_bytes()));
}

#[test]
fn a_checkpoint_on_a_full_disk_grows_into_its_space() {
    let sim = SimStorage::new(3);
    let store = Store::create(disk(&sim), small()).unwrap();
    // Both slots have been written.
    checkpoint(&store, b"first").unwrap();
    checkpoint(&store, b"second").unwrap();
    full(&sim);
    // 20,000 pages more in the map, and megabytes more of state.
    let pages: Vec<_> = (0..20_000)
        .map(|_| store.alloc_page(IndexId(1), &mut |_| ()))
        .collect();
    assert!(pages.len() == 20_000);
    for bytes in [1 << 20, 4 << 20, 3 << 20, 4 << 20] {
        checkpoint(&store, &vec![7; bytes]).unwrap();
        assert_eq!(state_of(&sim), vec![7; bytes]);
    }
    // Beyond it the one before stays.
    let beyond = checkpoint(&store, &vec![8; 12 << 20]);
    assert!(matches!(beyond, Err(Error::DiskFull(_))), "{beyond:?}");
    assert_eq!(state_of(&sim), vec![7; 4 << 20]);
    checkpoint(&store, b"small").unwrap();
    assert_eq!(state_of(&sim), b"small");
    // With room, space for twice as much is kept, and no more than that for long.
    sim.set_capacity(None);
    checkpoint(&store, &vec![9; 12 << 20]).unwrap();
    full(&sim);
    checkpoint(&store, &vec![5; 24 << 20]).unwrap();
    sim.set_capacity(None);
    checkpoint(&store, &vec![6; 100 << 20]).unwrap();
    for _ in 0..4 {
        checkpoint(&store, b"small").unwrap();
    }
    for slot in 0..2 {
        let used = sim.used_bytes_of(&format!("checkpoint.{slot}")).unwrap();
        assert!(used < 16 << 20, "{used} bytes kept in slot {slot}");
    }
}

/// Rows in an earlier, longer checkpoint do not stay behind the end of a shorter one, whatever
/// became of the server between them.
#[test]
fn nothing_of_a_longer_checkpoint_stays() {
    let sim = SimStorage::new(4);
    let mut store = Store::create(disk(&sim), small()).unwrap();
    let secret = b"the row of a transaction".repeat(50_000);
    for restart in [false, true] {
        checkpoint(&store, &secret).unwrap();
        checkpoint(&store, &secret).unwrap();
        if restart {
            drop(store);
            sim.crash(&mut Rng::new(1));
            store = Store::open(disk(&sim), small()).unwrap().0;
            store.finish_recovery().unwrap();
        }
        checkpoint(&store, b"short").unwrap();
        checkpoint(&store, b"short").unwrap();
        for name in ["checkpoint.0", "checkpoint.1"] {
            let bytes = sim.contents(name).unwrap();
            let found = bytes.windows(24).any(|w| w == &secret[..24]);
            assert!(!found, "{name} after restart: {restart}");
        }
    }
}

/// A database of before: its files end where their content ends.
#[test]
fn files_without_a_reserve_are_read_and_get_one() {
    let sim = SimStorage::new(5);
    let store = Store::create(disk(&sim), small()).unwrap();
    checkpoint(&store, b"old").unwrap();
    let map = Store::open(disk(&sim), small()).unwrap().1.map;
    drop(store);
    let storage = disk(&sim);
    for (name, len) in [
        (format!("map.{}", map.slot), map.bytes),
        ("checkpoint.0".to_owned(), 96 + 3),
        ("checkpoint.1".to_owned(), 96 + 3),
    ] {
        let file = storage.open(&name, OpenMode::ReadWrite, false).unwrap();
        file.truncate(len).unwrap();
        file.sync_data().unwrap();
    }
    assert_eq!(state_of(&sim), b"old");
    let store = Store::open(disk(&sim), small()).unwrap().0;
    store.finish_recovery().unwrap();
    checkpoint(&store, b"new").unwrap();
    full(&sim);
    checkpoint(&store, &vec![1; 4 << 20]).unwrap();
    assert_eq!(state_of(&sim), vec![1; 4 << 20]);
}
