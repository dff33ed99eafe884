//! Whole files of a database lost, cut or read as zeroes, one at a time and in pairs.
//!
//! The property throughout: the start is refused with a message that names a damaged file, or
//! everything committed is there. A damaged store file may also show later, as an error of the
//! statement that reads the page, which names it too. Never fewer rows, never a new database.

use crate::common::{config, create, give_up, insert, update};
use ferrite_engine::{
    Config, Cursor, Engine, Isolation, ReadMode, Session, SilentCallbacks, WaitMode,
};
use ferrite_io::sim::{FileDamage, SimSnapshot, SimStorage};
use ferrite_io::Storage;
use ferrite_sync::random::Rng;
use ferrite_sync::{Arc, Mutex};
use ferrite_types::Error;
use std::collections::BTreeMap;

type Rows = BTreeMap<u64, Vec<u8>>;

const WHOLE: FileDamage = FileDamage::Zeroes {
    offset: 0,
    len: u64::MAX,
};

fn small() -> Config {
    Config {
        manual_background: true,
        log_segment_bytes: 256 << 10,
        store_segment_bytes: 1 << 20,
        store_file_bytes: 1 << 20,
        ..config()
    }
}

fn start(disk: &SimStorage) -> Result<Arc<Engine>, Error> {
    let storage: Arc<dyn Storage> = Arc::new(disk.boot());
    Engine::open(small(), storage, Arc::new(SilentCallbacks))
}

fn rows_of(engine: &Arc<Engine>) -> Result<Rows, Error> {
    let t = engine.dict().open_table("d/t")?;
    let mut s = Session::new(engine, 0, 1);
    s.begin_statement(Isolation::RepeatableRead);
    let mut cursor = Cursor::new(&t, 0, ReadMode::Snapshot, WaitMode::Wait);
    let mut rows = Rows::new();
    let mut more = cursor.first(&mut s).map(|_| ());
    while more.is_ok() {
        let pk = u64::from_be_bytes(cursor.current().unwrap().pk.try_into().unwrap());
        rows.insert(pk, cursor.fetch_row(&mut s)?.payload[1..].to_vec());
        more = cursor.next(&mut s).map(|_| ());
    }
    match more {
        Err(Error::NotFound) => Ok(rows),
        Err(e) => Err(e),
        Ok(()) => unreachable!(),
    }
}

/// A database with several log and store files, both checkpoints and both maps. With `open`, it
/// dies with a transaction whose undo fills chunks of undo.spill.
fn sample(open: bool) -> (SimSnapshot, Rows) {
    let disk = SimStorage::new(1);
    let engine = start(&disk).unwrap();
    let t = create(&engine, "d/t");
    let mut s = Session::new(&engine, 0, 1);
    let text = [b'a'; 600];
    for n in 0..3000u64 {
        insert(&mut s, &t, n, &text).unwrap();
        if n % 100 == 99 {
            s.commit(false).unwrap();
        }
        if n == 1500 {
            engine.checkpoint().unwrap();
        }
    }
    drop(s);
    // Pages go to their files.
    engine.close().unwrap();
    let engine = start(&disk).unwrap();
    let t = engine.dict().open_table("d/t").unwrap();
    let mut s = Session::new(&engine, 0, 1);
    if open {
        let mut other = Session::new(&engine, 0, 2);
        let texts = [text, [b'b'; 600], [b'c'; 600]];
        for step in texts.windows(2) {
            for n in 0..2800u64 {
                update(&mut other, &t, n, &step[0], &step[1]).unwrap();
            }
        }
        std::mem::forget(other);
    }
    insert(&mut s, &t, 10_000, b"the last one").unwrap();
    s.commit(false).unwrap();
    drop(s);
    let mut rows: Rows = (0..3000).map(|n| (n, text.to_vec())).collect();
    rows.insert(10_000, b"the last one".to_vec());
    if open {
        engine.checkpoint().unwrap();
        disk.crash_clean();
        give_up(&engine);
    } else {
        engine.close().unwrap();
    }
    (disk.snapshot(), rows)
}

fn damages(bytes: u64) -> [FileDamage; 5] {
    let half = bytes / 2;
    [
        FileDamage::Lost,
        FileDamage::Cut { keep_bytes: 0 },
        FileDamage::Cut { keep_bytes: half },
        WHOLE,
        FileDamage::Zeroes {
            offset: 0,
            len: half,
        },
    ]
}

/// Opens what is left; the name in the message, if it does not.
fn judge(disk: &SimStorage, names: &[&str], rows: &Rows, what: &str) -> bool {
    let said = |e: Error| {
        let text = e.to_string();
        let named = names.iter().any(|n| text.contains(n)) || names.len() > 1;
        let all_logs = names.iter().any(|n| n.starts_with("redo.")) && text.contains("redo.*");
        assert!(named || all_logs, "{what}: {text}");
    };
    let engine = match start(disk) {
        Err(e) => {
            said(e);
            return false;
        }
        Ok(engine) => engine,
    };
    let found = rows_of(&engine);
    give_up(&engine);
    match found {
        Ok(found) => {
            assert!(found == *rows, "{what}: {} rows", found.len());
            assert!(names != ["undo.spill"], "{what}: nobody misses it");
        }
        Err(e) => said(e),
    }
    true
}

#[test]
fn each_file_of_a_database() {
    for open in [false, true] {
        let (state, rows) = sample(open);
        let names = SimStorage::from_snapshot(&state, 1).list().unwrap();
        let kinds = [
            "superblock",
            "checkpoint.0",
            "checkpoint.1",
            "map.0",
            "map.1",
        ];
        let more = ["store.0000", "store.0001", "redo."];
        for kind in kinds.iter().chain(&more) {
            assert!(names.iter().any(|n| n.starts_with(kind)), "{names:?}");
        }
        assert!(
            !open || names.iter().any(|n| n == "undo.spill"),
            "{names:?}"
        );
        let (mut opened, mut refused) = (0, 0);
        for name in &names {
            let bytes = SimStorage::from_snapshot(&state, 1)
                .contents(name)
                .unwrap()
                .len();
            for damage in damages(bytes as u64) {
                let disk = SimStorage::from_snapshot(&state, 1);
                disk.damage_file(name, damage).unwrap();
                let what = format!("open {open}: {name} {damage:?}");
                let ok = judge(&disk, &[name], &rows, &what);
                (opened, refused) = (opened + u32::from(ok), refused + u32::from(!ok));
                // Of an open transaction's undo nothing can be spared. Where the file is whole and its content is not,
                // that is a matter of the transaction: `judge` has looked that nobody reads what it has changed.
                let is_short = matches!(damage, FileDamage::Lost | FileDamage::Cut { .. });
                let keeps_back = name == "undo.spill" && open && is_short;
                assert!(!keeps_back || !ok, "{what}: opened");
            }
        }
        assert!(opened > 5 && refused > 15, "{opened} {refused}");
    }
}

#[test]
fn pairs_of_files() {
    let (state, rows) = sample(true);
    let names = SimStorage::from_snapshot(&state, 1).list().unwrap();
    for (i, a) in names.iter().enumerate() {
        for b in &names[..i] {
            // The newest checkpoint alone knows how far the last log file was durable.
            if a.starts_with("redo.") && b.starts_with("checkpoint.") {
                continue;
            }
            // Of the many log files some pairs are enough.
            let logs = |n: &str| n.strip_prefix("redo.").and_then(|n| n.parse::<u64>().ok());
            if logs(a).is_some_and(|n| n % 3 != 0) && logs(b).is_some_and(|n| n % 5 != 0) {
                continue;
            }
            for damage in [FileDamage::Lost, WHOLE] {
                let disk = SimStorage::from_snapshot(&state, 1);
                disk.damage_file(a, damage).unwrap();
                disk.damage_file(b, damage).unwrap();
                judge(&disk, &[a, b], &rows, &format!("{a} {b} {damage:?}"));
            }
        }
    }
}

/// Whatever of a database is there without its superblock: no new one is made over it, and
/// nothing is touched.
#[test]
fn no_database_is_made_over_the_remains_of_one() {
    let (state, _) = sample(true);
    let names = SimStorage::from_snapshot(&state, 1).list().unwrap();
    for kept in names.iter().filter(|n| *n != "superblock") {
        let disk = SimStorage::from_snapshot(&state, 1);
        for other in names.iter().filter(|n| *n != kept) {
            disk.damage_file(other, FileDamage::Lost).unwrap();
        }
        let before = disk.contents(kept).unwrap();
        let text = start(&disk).err().expect("refused").to_string();
        assert!(text.contains("superblock is missing"), "{kept}: {text}");
        assert!(text.contains(kept.as_str()), "{kept}: {text}");
        assert_eq!(disk.list().unwrap(), std::slice::from_ref(kept));
        assert!(disk.contents(kept).unwrap() == before);
    }
}

/// A creation that the power cut before any call is begun again, or was over and opens.
#[test]
fn a_creation_broken_off_anywhere() {
    let disk = SimStorage::new(1);
    let states = Arc::new(Mutex::new(Vec::new()));
    let (seen, kept) = (disk.clone(), states.clone());
    disk.set_hook(Some(Arc::new(move |_| {
        kept.lock().push(seen.snapshot());
        Ok(())
    })));
    give_up(&start(&disk).unwrap());
    let states = std::mem::take(&mut *states.lock());
    assert!(states.len() > 20, "only {} calls", states.len());
    for (n, state) in states.iter().enumerate() {
        let disk = SimStorage::from_snapshot(state, 1);
        disk.crash(&mut Rng::new(n as u64));
        let engine = start(&disk).unwrap_or_else(|e| panic!("cut at call {n}: {e}"));
        assert!(!disk.exists("creating").unwrap());
        create(&engine, "d/t");
        give_up(&engine);
    }
}
