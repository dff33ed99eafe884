//! Deleted rows are not left in the files (`ferrite_scrub`), and scrubbing takes nothing else.

use crate::common::{
    self, check, config, create, delete, give_up, insert, key, metric, scan, update, wait_until,
    Heard,
};
use ferrite_engine::{Callbacks, Config, DdlCaller, Engine, Session, SilentCallbacks};
use ferrite_io::sim::{Fault, SimStorage};
use ferrite_io::Storage;
use ferrite_sync::random::Rng;
use ferrite_sync::Arc;
use std::collections::BTreeMap;

fn start(disk: &SimStorage, scrub: bool) -> Arc<Engine> {
    start_with(disk, scrub, Arc::new(SilentCallbacks))
}

fn start_with(disk: &SimStorage, scrub: bool, callbacks: Arc<dyn Callbacks>) -> Arc<Engine> {
    let storage: Arc<dyn Storage> = Arc::new(disk.boot());
    let config = Config {
        scrub,
        store_segment_bytes: 1 << 20,
        log_segment_bytes: 256 << 10,
        log_budget_bytes: 1 << 20,
        ..config()
    };
    Engine::open(config, storage, callbacks).unwrap()
}

fn secret(n: u64) -> Vec<u8> {
    format!("SECRET of row {n} {}", "x".repeat(n as usize % 300)).into_bytes()
}

fn kept(n: u64) -> Vec<u8> {
    format!("kept {n} {}", "y".repeat(n as usize % 200)).into_bytes()
}

/// Files that hold something of a deleted row.
fn telling(disk: &SimStorage) -> Vec<String> {
    let holds = |name: &String| {
        let bytes = disk.contents(name).unwrap();
        bytes.windows(6).any(|w| w == b"SECRET")
    };
    disk.list().unwrap().into_iter().filter(holds).collect()
}

/// The same, and all of it is purged.
fn live(engine: &Arc<Engine>) -> BTreeMap<u64, Vec<u8>> {
    let rows = change(engine);
    wait_until("purged", || metric(engine, "history_list_length") == 0);
    rows
}

/// Rows deleted one by one between others, updated, in a dropped table, out of line, rolled back.
fn change(engine: &Arc<Engine>) -> BTreeMap<u64, Vec<u8>> {
    let t = create(engine, "d/t");
    let gone = create(engine, "d/gone");
    let mut s = Session::new(engine, 0, 1);
    for n in 0..4000u64 {
        let text = if n % 4 == 0 { kept(n) } else { secret(n) };
        insert(&mut s, &t, n, &text).unwrap();
        insert(&mut s, &gone, n, &secret(n)).unwrap();
        if n % 100 == 99 {
            s.commit(false).unwrap();
        }
    }
    let long = b"SECRET and long ".repeat(800);
    let reference = s.write_overflow(&gone, &long).unwrap();
    let mut payload = vec![1u8];
    payload.extend_from_slice(reference.bytes());
    let (k, u) = (key(1), key(5_000 * 7));
    let entries = common::entries(&k, &u);
    s.insert_row(
        &gone,
        Some(&key(5_000)),
        &payload,
        &entries,
        false,
        &mut ferrite_engine::DupInfo::default(),
    )
    .unwrap();
    s.commit(false).unwrap();
    engine.checkpoint().unwrap();
    // A transaction with chunks in undo.spill and its undo in a checkpoint, rolled back.
    for n in (0..4000u64).filter(|n| n % 4 == 1) {
        update(
            &mut s,
            &t,
            n,
            &secret(n),
            &"SECRET again ".repeat(60).into_bytes(),
        )
        .unwrap();
    }
    engine.checkpoint().unwrap();
    s.rollback().unwrap();
    for n in (0..4000u64).filter(|n| n % 4 != 0) {
        match n % 4 {
            1 => update(&mut s, &t, n, &secret(n), &kept(n)).unwrap(),
            _ => delete(&mut s, &t, n, &secret(n)).unwrap(),
        }
        if n % 100 == 99 {
            s.commit(false).unwrap();
        }
    }
    s.commit(false).unwrap();
    drop(gone);
    engine.drop_table("d/gone", &DdlCaller::default()).unwrap();
    let rows = scan(&mut s, &t, 0);
    s.commit(false).unwrap();
    drop(s);
    rows
}

/// Without it deleted rows can be read: the test looks at the right places. Now and then the
/// background has by chance used them all again.
#[test]
fn deleted_rows_are_left_without_it() {
    let looks_right = (0..10).any(|seed| {
        let disk = SimStorage::new(seed);
        let engine = start(&disk, false);
        live(&engine);
        engine.close().unwrap();
        let left = telling(&disk);
        let is_in = |files: &str| left.iter().any(|n| n.starts_with(files));
        is_in("store.") && is_in("redo.")
    });
    assert!(looks_right, "the test looks at the wrong places");
}

/// What ALTER TABLE ... FORCE does: a copy of the rows takes the table's place.
fn rebuild(engine: &Arc<Engine>, rows: &BTreeMap<u64, Vec<u8>>) {
    let copy = create(engine, "d/copy");
    let mut s = Session::new(engine, 0, 1);
    for (n, text) in rows {
        insert(&mut s, &copy, *n, text).unwrap();
        if n % 100 == 0 {
            s.commit(false).unwrap();
        }
    }
    s.commit(false).unwrap();
    let caller = DdlCaller::default();
    engine.drop_table("d/t", &caller).unwrap();
    engine.rename_table("d/copy", "d/t", &caller).unwrap();
}

#[test]
fn nothing_deleted_is_left_in_any_file() {
    for (scrub, later) in [(true, false), (false, true)] {
        let disk = SimStorage::new(7);
        let engine = start(&disk, scrub);
        let rows = live(&engine);
        assert_eq!(rows.len(), 2000);
        if later {
            // Switched on afterwards: what is in the files already goes, too, when the pages that
            // lie in a block with it are written elsewhere.
            engine.set("scrub", 1).unwrap();
            rebuild(&engine, &rows);
        }
        engine.close().unwrap();
        let left = telling(&disk);
        assert_eq!(left, Vec::<String>::new(), "later {later}");
        let engine = start(&disk, true);
        let t = engine.dict().open_table("d/t").unwrap();
        let mut s = Session::new(&engine, 0, 1);
        assert!(scan(&mut s, &t, 0) == rows);
        drop(s);
        check(&engine, &t);
        engine.close().unwrap();
        assert_eq!(telling(&disk), Vec::<String>::new());
    }
}

/// Nobody has waited for purge: the shutdown does, for many rows and for a transaction of which only the leaves are known.
#[test]
fn what_was_deleted_a_moment_ago_is_not_left_either() {
    for seed in 0..3 {
        let disk = SimStorage::new(seed);
        let engine = start(&disk, true);
        let rows = change(&engine);
        let t = engine.dict().open_table("d/t").unwrap();
        let mut s = Session::new(&engine, 0, 1);
        for n in 5000..9000 {
            insert(&mut s, &t, n, &secret(n)).unwrap();
        }
        s.commit(false).unwrap();
        engine.checkpoint().unwrap();
        for n in 5000..9000 {
            delete(&mut s, &t, n, &secret(n)).unwrap();
        }
        s.commit(false).unwrap();
        drop((s, t));
        engine.close().unwrap();
        assert_eq!(telling(&disk), Vec::<String>::new(), "seed {seed}");
        let engine = start(&disk, true);
        let t = engine.dict().open_table("d/t").unwrap();
        let mut s = Session::new(&engine, 0, 1);
        assert!(scan(&mut s, &t, 0) == rows, "seed {seed}");
        drop(s);
        check(&engine, &t);
        engine.close().unwrap();
    }
}

/// What a snapshot needs until the end holds the shutdown up no longer than a moment, and is told.
#[test]
fn what_a_snapshot_needs_at_the_end_stays_and_is_told() {
    let disk = SimStorage::new(4);
    let heard = Arc::new(Heard::default());
    let engine = start_with(&disk, true, heard.clone());
    let t = create(&engine, "d/t");
    let mut s = Session::new(&engine, 0, 1);
    let value = s.write_overflow(&t, &b"long ".repeat(8000)).unwrap();
    let mut payload = vec![1u8];
    payload.extend_from_slice(value.bytes());
    let (k, u) = (key(1), key(2));
    let entries = common::entries(&k, &u);
    let dup = &mut ferrite_engine::DupInfo::default();
    s.insert_row(&t, Some(&key(1)), &payload, &entries, false, dup)
        .unwrap();
    s.commit(false).unwrap();
    let mut reader = Session::new(&engine, 0, 2);
    reader.open_snapshot();
    s.delete_row(&t, &key(1), &entries).unwrap();
    s.commit(false).unwrap();
    drop((s, t));
    engine.close().unwrap();
    assert!(heard.has("could not be purged"));
    drop(reader);
}

/// A disk on which nothing can be overwritten is told of now and then, not ten times a second.
#[test]
fn trouble_with_the_disk_is_told_once() {
    let disk = SimStorage::new(5);
    let heard = Arc::new(Heard::default());
    let engine = start_with(&disk, true, heard.clone());
    live(&engine);
    let t = engine.dict().open_table("d/t").unwrap();
    let mut s = Session::new(&engine, 0, 1);
    for n in 5000..7000 {
        insert(&mut s, &t, n, &secret(n)).unwrap();
    }
    s.commit(false).unwrap();
    engine.checkpoint().unwrap();
    disk.inject_lasting(Fault::FailWrite, "store.");
    drop((s, t));
    engine.drop_table("d/t", &DdlCaller::default()).unwrap();
    let told = || heard.count("cannot overwrite deleted data");
    wait_until("a failure", || told() > 0);
    ferrite_sync::thread::sleep_ms(3000);
    assert_eq!(told(), 1);
    disk.clear_faults();
    wait_until("it goes on", || {
        heard.has("deleted data is overwritten again")
    });
    engine.close().unwrap();
    assert_eq!(telling(&disk), Vec::<String>::new());
}

/// Power cuts while everything is being scrubbed: all that was committed is there.
#[test]
fn power_cuts_while_it_scrubs() {
    for seed in 0..8 {
        let disk = SimStorage::new(seed);
        let mut rng = Rng::new(seed);
        let mut rows: BTreeMap<u64, Vec<u8>> = BTreeMap::new();
        for life in 0..4 {
            let engine = start(&disk, true);
            let t = match life {
                0 => create(&engine, "d/t"),
                _ => engine.dict().open_table("d/t").unwrap(),
            };
            let mut s = Session::new(&engine, 0, 1);
            assert!(scan(&mut s, &t, 0) == rows, "seed {seed} life {life}");
            s.commit(false).unwrap();
            for _ in 0..rng.between(200, 2000) {
                let n = rng.below(900);
                let text = vec![b'a' + (n % 20) as u8; rng.between(1, 900) as usize];
                match rows.remove(&n) {
                    Some(old) if rng.chance(1, 2) => delete(&mut s, &t, n, &old).unwrap(),
                    Some(old) => {
                        update(&mut s, &t, n, &old, &text).unwrap();
                        rows.insert(n, text);
                    }
                    None => {
                        insert(&mut s, &t, n, &text).unwrap();
                        rows.insert(n, text);
                    }
                }
                s.commit(false).unwrap();
                if rng.chance(1, 200) {
                    engine.checkpoint().unwrap();
                }
            }
            drop(s);
            if life == 2 {
                engine.close().unwrap();
            } else {
                disk.crash(&mut rng);
                give_up(&engine);
            }
        }
    }
}
