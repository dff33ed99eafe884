//! Backups taken while rows change, restored and compared with what was committed at their point in
//! time.

use crate::common::*;
use ferrite_engine::{
    BackupInfo, BackupLimits, BackupPhase, BackupPlace, Chain, Engine, Session, Table,
};
use ferrite_io::sim::SimStorage;
use ferrite_io::Storage;
use ferrite_sync::random::Rng;
use ferrite_sync::Arc;
use ferrite_types::format::{Codec, Packing};
use ferrite_types::Error;

fn place(disk: &SimStorage, name: &str) -> BackupPlace {
    BackupPlace {
        storage: Arc::new(disk.clone()),
        name: name.to_owned(),
    }
}

fn slowly(bytes_per_s: u64) -> BackupLimits {
    BackupLimits {
        bytes_per_s,
        ..BackupLimits::default()
    }
}

fn begin(engine: &Arc<Engine>, to: &SimStorage, base: Option<&SimStorage>, limits: BackupLimits) {
    let base = base.map(|b| place(b, "base"));
    (engine.begin_backup(place(to, "to"), base, limits, 1)).unwrap();
}

fn ended(engine: &Engine) -> BackupInfo {
    engine.wait_for_backup();
    engine.backup_info()
}

fn chain(disks: &[&SimStorage]) -> Result<Chain, Error> {
    let dirs = disks.iter().enumerate().map(|(n, disk)| {
        let storage: Arc<dyn Storage> = Arc::new((*disk).clone());
        (format!("b{n}"), storage)
    });
    Chain::open(dirs.collect())
}

/// Verified, restored and opened.
fn restored(disks: &[&SimStorage]) -> (SimStorage, Arc<Engine>) {
    let chain = chain(disks).unwrap();
    let verified = chain.verify(&mut |_| {}).unwrap();
    let disk = SimStorage::new(77);
    let storage: Arc<dyn Storage> = Arc::new(disk.clone());
    let summary = chain.restore(&storage, &mut |_| {}).unwrap();
    assert_eq!(summary, verified);
    // What is not durable is gone.
    disk.crash_clean();
    let engine = open(&disk);
    (disk, engine)
}

/// Some rows change, in one transaction.
fn change_some(s: &mut Session, t: &Arc<Table>, rows: &mut Rows, rng: &mut Rng) {
    change_some_of(3000, s, t, rows, rng);
}

fn many(s: &mut Session, t: &Arc<Table>, rows: &mut Rows, rng: &mut Rng, times: usize) {
    many_of(3000, s, t, rows, rng, times);
}

#[test]
fn a_backup_is_what_was_committed_at_its_point() {
    for seed in 1..=4 {
        let (_disk, engine, t, mut s) = database(seed);
        let (mut rows, mut rng) = (Rows::new(), Rng::new(seed));
        many(&mut s, &t, &mut rows, &mut rng, 60);
        let to = SimStorage::new(seed + 50);
        begin(&engine, &to, None, slowly(4 << 20));
        // The log would be recycled without the pin.
        many(&mut s, &t, &mut rows, &mut rng, 150);
        engine.checkpoint().unwrap();
        // Not committed, and long enough to be spilled.
        let mut other = Session::new(&engine, 0, 2);
        let u = create(&engine, "d/u");
        for n in 0..3000 {
            insert(&mut other, &u, n, &[3; 600]).unwrap();
        }
        let at = engine.fix_backup().unwrap();
        let then = rows.clone();
        assert!(matches!(engine.fix_backup(), Err(Error::NotFound)));
        // Places would be used again without the pin.
        while engine.backup_info().phase == BackupPhase::Copying {
            change_some(&mut s, &t, &mut rows, &mut rng);
        }
        let info = ended(&engine);
        assert_eq!(info.phase, BackupPhase::Complete, "{}", info.error);
        assert_eq!(info.position, at);
        other.rollback().unwrap();
        let (_copy, again) = restored(&[&to]);
        assert!(rows_of(&again, "d/t") == then, "seed {seed}: other rows");
        let u = again.dict().open_table("d/u").unwrap();
        let mut look = Session::new(&again, 0, 3);
        assert!(scan(&mut look, &u, 0).is_empty(), "not committed");
        drop((look, u));
        // It goes on as a database of its own.
        let t2 = again.dict().open_table("d/t").unwrap();
        let mut then = then;
        let mut s2 = Session::new(&again, 0, 4);
        many(&mut s2, &t2, &mut then, &mut rng, 20);
        drop((s2, t2));
        assert!(rows_of(&again, "d/t") == then);
        again.close().unwrap();
        assert!(rows_of(&engine, "d/t") == rows, "the source is as it was");
        drop((s, other, t));
        engine.close().unwrap();
    }
}

#[test]
fn increments_have_what_changed() {
    for codec in [Codec::None, Codec::Zstd] {
        increments_of(codec);
    }
}

/// Packed pages share blocks: they are more often used again, and in other pieces.
fn increments_of(codec: Codec) {
    let disk = SimStorage::new(9);
    let mut engine = open(&disk);
    let mut t = create_packed(&engine, "d/t", Packing::of(codec));
    let mut s = Session::new(&engine, 0, 1);
    let (mut rows, mut rng) = (Rows::new(), Rng::new(9));
    many(&mut s, &t, &mut rows, &mut rng, 120);
    // All of it goes to the store: what is only in memory is copied from the log, and not in `pages`.
    drop((s, t));
    engine.close().unwrap();
    engine = open(&disk);
    t = engine.dict().open_table("d/t").unwrap();
    s = Session::new(&engine, 0, 1);
    let disks: Vec<SimStorage> = (0..5).map(|n| SimStorage::new(100 + n)).collect();
    let mut states = Vec::new();
    for n in 0..disks.len() {
        if n == 3 {
            // What was written since is not known after a restart, but found out.
            drop((s, t));
            engine.close().unwrap();
            engine = open(&disk);
            t = engine.dict().open_table("d/t").unwrap();
            s = Session::new(&engine, 0, 1);
        }
        let base = n.checked_sub(1).map(|before| &disks[before]);
        begin(&engine, &disks[n], base, BackupLimits::default());
        many_of(300, &mut s, &t, &mut rows, &mut rng, 60);
        engine.fix_backup().unwrap();
        states.push(rows.clone());
        many_of(300, &mut s, &t, &mut rows, &mut rng, 60);
        let info = ended(&engine);
        assert_eq!(info.phase, BackupPhase::Complete, "{}", info.error);
    }
    let bytes = |n: usize| disks[n].contents("pages").unwrap().len();
    for n in 1..disks.len() {
        let increment = bytes(n);
        assert!(
            increment > 0 && increment < bytes(0) / 2,
            "{codec:?}: increment {n} has {increment} bytes, the full backup {}",
            bytes(0)
        );
    }
    for n in 0..disks.len() {
        let links: Vec<&SimStorage> = disks[..=n].iter().collect();
        let (_copy, again) = restored(&links);
        assert!(
            rows_of(&again, "d/t") == states[n],
            "{codec:?}: after increment {n}"
        );
        again.close().unwrap();
    }
    let refused = |links: &[&SimStorage], what: &str| match chain(links).map(|_| ()) {
        Err(Error::BadConfig(text)) => assert!(text.contains(what), "{text}"),
        other => panic!("{other:?}"),
    };
    refused(&[&disks[1]], "b0 is an increment of backup");
    refused(&[&disks[0], &disks[2]], "b1 is an increment of backup");
    refused(&[&disks[0], &disks[0]], "b1 is a full backup");
    drop((s, t));
    engine.close().unwrap();
}

#[test]
fn every_damaged_file_is_named() {
    let (_disk, engine, t, mut s) = database(3);
    let (mut rows, mut rng) = (Rows::new(), Rng::new(3));
    many(&mut s, &t, &mut rows, &mut rng, 40);
    let to = SimStorage::new(4);
    begin(&engine, &to, None, BackupLimits::default());
    engine.fix_backup().unwrap();
    assert_eq!(ended(&engine).phase, BackupPhase::Complete);
    for name in to.list().unwrap() {
        let bytes = to.contents(&name).unwrap();
        if bytes.is_empty() {
            // No page was on disk yet: all of them are in the log.
            assert_eq!(name, "pages");
            continue;
        }
        let offset = rng.below(bytes.len() as u64);
        let copy = SimStorage::from_snapshot(&to.snapshot(), 1);
        copy.corrupt(&name, offset, 0x40).unwrap();
        let damaged = chain(&[&copy]).and_then(|c| c.verify(&mut |_| {}).map(|_| ()));
        match damaged {
            Err(Error::Corrupt(text) | Error::Format(text)) => {
                assert!(text.contains(&format!("b0: {name}")), "{text}");
            }
            other => panic!("{name} at {offset}: {other:?}"),
        }
        copy.corrupt(&name, offset, 0x40).unwrap();
        copy.remove(&name).unwrap();
        let missing = chain(&[&copy]).and_then(|c| c.verify(&mut |_| {}).map(|_| ()));
        match missing {
            Err(Error::Corrupt(text)) => assert!(text.contains(&name), "{text}"),
            other => panic!("{name}: {other:?}"),
        }
    }
    let full = SimStorage::new(5);
    full.open("there", ferrite_io::OpenMode::CreateNew, false)
        .unwrap();
    let refused = engine.begin_backup(place(&full, "to"), None, BackupLimits::default(), 1);
    assert!(matches!(refused, Err(Error::BadConfig(text)) if text.contains("to is not empty")));
    let storage: Arc<dyn Storage> = Arc::new(full);
    let refused = chain(&[&to]).unwrap().restore(&storage, &mut |_| {});
    assert!(matches!(refused, Err(Error::BadConfig(_))), "{refused:?}");
    drop((s, t));
    engine.close().unwrap();
}

/// Nothing is kept for a backup that is over, however it ended.
fn nothing_is_kept(engine: &Arc<Engine>, s: &mut Session, t: &Arc<Table>, rows: &mut Rows) {
    let mut rng = Rng::new(8);
    many(s, t, rows, &mut rng, 100);
    engine.flush_log();
    engine.checkpoint().unwrap();
    let info = engine.backup_info();
    assert_eq!((info.kept_log_bytes, info.withheld_bytes), (0, 0));
    assert!(!engine.backup_waits());
}

#[test]
fn a_backup_that_ends_leaves_nothing() {
    let (_disk, engine, t, mut s) = database(5);
    let (mut rows, mut rng) = (Rows::new(), Rng::new(5));
    many(&mut s, &t, &mut rows, &mut rng, 60);
    let failed = |to: &SimStorage, what: &str| {
        let info = ended(&engine);
        assert_eq!(info.phase, BackupPhase::Failed);
        assert!(info.error.contains(what), "{}", info.error);
        assert!(to.list().unwrap().is_empty(), "files are left");
    };
    // Ended by its owner while it waits, and while it copies.
    for fixed in [false, true] {
        let to = SimStorage::new(6);
        begin(&engine, &to, None, slowly(100_000));
        let second = engine.begin_backup(place(&to, "x"), None, slowly(0), 2);
        assert!(matches!(second, Err(Error::InUse(_) | Error::BadConfig(_))));
        if fixed {
            engine.fix_backup().unwrap();
        }
        many(&mut s, &t, &mut rows, &mut rng, 5);
        assert!(!engine.end_backup(Some(2), "another"));
        assert!(engine.end_backup(Some(1), "the connection was killed"));
        failed(&to, "the connection was killed");
        nothing_is_kept(&engine, &mut s, &t, &mut rows);
    }
    // It keeps too much.
    let to = SimStorage::new(6);
    let limits = BackupLimits {
        kept_bytes: 8 << 20,
        // It would take minutes.
        bytes_per_s: 20_000,
    };
    begin(&engine, &to, None, limits);
    engine.fix_backup().unwrap();
    while engine.backup_info().phase == BackupPhase::Copying {
        change_some(&mut s, &t, &mut rows, &mut rng);
    }
    failed(&to, "ferrite_backup_max_kept_bytes (8 MiB)");
    nothing_is_kept(&engine, &mut s, &t, &mut rows);
    // No space where it goes.
    let to = SimStorage::new(6);
    to.set_capacity(Some(1 << 20));
    begin(&engine, &to, None, slowly(0));
    engine.fix_backup().unwrap();
    failed(&to, "disk full");
    nothing_is_kept(&engine, &mut s, &t, &mut rows);
    // The server is shut down.
    let to = SimStorage::new(6);
    begin(&engine, &to, None, slowly(100_000));
    engine.fix_backup().unwrap();
    drop(t);
    drop(s);
    engine.close().unwrap();
    failed(&to, "shut down");
}

#[test]
fn a_damaged_page_is_named_and_ends_the_backup() {
    let (disk, engine, t, mut s) = database(7);
    let (mut rows, mut rng) = (Rows::new(), Rng::new(7));
    many(&mut s, &t, &mut rows, &mut rng, 60);
    drop((s, t));
    engine.close().unwrap();
    let engine = open(&disk);
    // Every blob of the table: whichever is the first.
    for at in (0..(2 << 20)).step_by(1024) {
        let _ = disk.corrupt("store.0000", at + 100, 0xff);
    }
    let to = SimStorage::new(6);
    begin(&engine, &to, None, slowly(0));
    engine.fix_backup().unwrap();
    let info = ended(&engine);
    assert_eq!(info.phase, BackupPhase::Failed);
    let named = info.error.contains("page") && info.error.contains("store.0000 offset");
    assert!(named, "{}", info.error);
    assert!(to.list().unwrap().is_empty());
    give_up(&engine);
}

/// Of the backups before it, an increment needs their lists of pages and what they have of it.
#[test]
fn the_last_backup_is_verified_alone() {
    let (_disk, engine, t, mut s) = database(32);
    let (mut rows, mut rng) = (Rows::new(), Rng::new(32));
    let mut disks: Vec<SimStorage> = Vec::new();
    for n in 0..4 {
        // Whatever the threads that write pages do beside this: most of the rows are in the first one's pages, few
        // in those of the others, and all have some log.
        let keys = if n == 0 { 9000 } else { 300 };
        many_of(keys, &mut s, &t, &mut rows, &mut rng, 60);
        engine.make_cold().unwrap();
        engine.checkpoint().unwrap();
        let to = SimStorage::new(40 + n);
        begin(&engine, &to, disks.last(), slowly(0));
        many_of(300, &mut s, &t, &mut rows, &mut rng, 5);
        engine.fix_backup().unwrap();
        assert_eq!(ended(&engine).phase, BackupPhase::Complete);
        disks.push(to);
    }
    engine.close().unwrap();
    let of = |disks: &[SimStorage]| chain(&disks.iter().collect::<Vec<_>>()).unwrap();
    let read = |last: bool| {
        let (mut read, chain) = (0, of(&disks));
        let progress = &mut |bytes: u64| read += bytes;
        let summary = match last {
            true => chain.verify_last(progress),
            false => chain.verify(progress),
        };
        (summary.unwrap(), read)
    };
    let ((all, all_bytes), (last, last_bytes)) = (read(false), read(true));
    assert_eq!(all, last);
    assert!(last_bytes < all_bytes / 2, "{last_bytes} of {all_bytes}");
    let verify_last = |damage: &dyn Fn(&[SimStorage])| {
        let copy = |disk: &SimStorage| SimStorage::from_snapshot(&disk.snapshot(), 1);
        let copies: Vec<SimStorage> = disks.iter().map(copy).collect();
        damage(&copies);
        let chain = chain(&copies.iter().collect::<Vec<_>>());
        chain.and_then(|chain| chain.verify_last(&mut |_| {}))
    };
    // Bytes of an earlier one are for the full check.
    verify_last(&|disks| disks[0].corrupt("pages", 100, 1).unwrap()).unwrap();
    for (n, name) in [
        (0, "index"),
        (2, "index"),
        (3, "index"),
        (3, "pages"),
        (3, "log"),
    ] {
        let found = verify_last(&|disks| disks[n].corrupt(name, 100, 1).unwrap());
        let text = found.unwrap_err().to_string();
        assert!(text.contains(&format!("b{n}: {name}")), "{text}");
    }
    let found = verify_last(&|disks| disks[0].remove("pages").unwrap());
    assert!(found.unwrap_err().to_string().contains("b0: pages"));
}

#[test]
fn a_restore_onto_a_disk_too_small_for_the_log_is_refused() {
    let (_disk, engine, t, mut s) = database(30);
    let (mut rows, mut rng) = (Rows::new(), Rng::new(30));
    let to = SimStorage::new(8);
    begin(&engine, &to, None, slowly(0));
    many(&mut s, &t, &mut rows, &mut rng, 150);
    engine.fix_backup().unwrap();
    assert_eq!(ended(&engine).phase, BackupPhase::Complete);
    engine.close().unwrap();
    let chain = chain(&[&to]).unwrap();
    let restore = |capacity: Option<u64>| {
        let disk = SimStorage::new(78);
        disk.set_capacity(capacity);
        let storage: Arc<dyn Storage> = Arc::new(disk.clone());
        let result = chain.restore(&storage, &mut |_| {});
        (result, disk)
    };
    let (result, disk) = restore(None);
    let found = result.unwrap();
    assert!(found.log_bytes > 5 << 19, "{found:?}");
    let used = disk.used_bytes();
    let said = chain.restored_bytes();
    assert_eq!(said, used);
    for missing in [1, 3 << 19, 5 << 19] {
        let (result, disk) = restore(Some(used - missing));
        assert!(matches!(result, Err(Error::DiskFull(_))), "{result:?}");
        assert!(!disk.exists("superblock").unwrap(), "a database");
    }
    restore(Some(used)).0.unwrap();
}

#[test]
fn after_a_crash_in_the_middle_of_a_backup_both_are_sound() {
    for seed in 1..=6 {
        let (disk, engine, t, mut s) = database(seed + 20);
        let (mut rows, mut rng) = (Rows::new(), Rng::new(seed));
        many(&mut s, &t, &mut rows, &mut rng, 60);
        let to = SimStorage::new(6);
        begin(&engine, &to, None, slowly(1 << 20));
        many(&mut s, &t, &mut rows, &mut rng, 30);
        if seed % 2 == 0 {
            engine.fix_backup().unwrap();
        }
        many(&mut s, &t, &mut rows, &mut rng, 30);
        disk.power_off();
        to.power_off();
        drop((s, t));
        give_up(&engine);
        drop(engine);
        disk.crash(&mut rng);
        to.crash(&mut rng);
        let again = open(&disk);
        assert!(rows_of(&again, "d/t") == rows, "seed {seed}");
        let cut = chain(&[&to.boot()]).map(|_| ());
        assert!(
            matches!(&cut, Err(Error::Corrupt(text)) if text.contains("cut off")),
            "{cut:?}"
        );
        let next = SimStorage::new(7);
        begin(&again, &next, None, slowly(0));
        again.fix_backup().unwrap();
        assert_eq!(ended(&again).phase, BackupPhase::Complete);
        let (_copy, third) = restored(&[&next]);
        assert!(rows_of(&third, "d/t") == rows, "seed {seed}: other rows");
        third.close().unwrap();
        again.close().unwrap();
    }
}
