//! Snapshots that are kept over restarts and crashes, rewound to, dropped and lost.

use crate::common::*;
use ferrite_engine::snapshots::{rewind, ServerState};
use ferrite_engine::{DdlCaller, Engine, Session, Table};
use ferrite_io::sim::{FileDamage, IoEvent, IoOp, SimStorage};
use ferrite_io::Storage;
use ferrite_sync::atomic::{AtomicU64, Ordering};
use ferrite_sync::random::Rng;
use ferrite_sync::{Arc, Mutex};
use ferrite_types::Error;

/// Rows change, in transactions of some rows.
fn change(s: &mut Session, t: &Arc<Table>, rows: &mut Rows, rng: &mut Rng, times: usize) {
    many_of(2000, s, t, rows, rng, times);
}

/// Back to a snapshot, the present kept under that name.
fn go_to(disk: &SimStorage, name: &str, present: &str) {
    let engine = open(disk);
    take(&engine, present).unwrap();
    engine.close().unwrap();
    drop(engine);
    let storage: Arc<dyn Storage> = Arc::new(disk.boot());
    rewind::prepare(&storage, name, present, None).unwrap();
    let went = rewind::finish(&storage, None).unwrap();
    assert_eq!(went, Some((name.to_owned(), present.to_owned())));
}

fn names(engine: &Engine) -> Vec<String> {
    let all = engine.kept_snapshots();
    assert!(all.iter().all(|k| k.lost.is_empty()), "{all:?}");
    all.into_iter().map(|k| k.name).collect()
}

#[test]
fn back_and_forth_over_crashes() {
    for seed in 1..=3 {
        let (disk, engine, t, mut s) = database(seed);
        let (mut rows, mut rng) = (Rows::new(), Rng::new(seed));
        let mut at: Vec<Rows> = Vec::new();
        change(&mut s, &t, &mut rows, &mut rng, 40);
        let (mut engine, mut t, mut s) = (engine, t, s);
        for n in 0..4 {
            take(&engine, &format!("s{n}")).unwrap();
            at.push(rows.clone());
            change(&mut s, &t, &mut rows, &mut rng, 30);
            // What is open then is not in it.
            engine.checkpoint().unwrap();
            drop((s, t));
            match n % 2 {
                0 => {
                    // All pages are written.
                    engine.close().unwrap();
                    engine.check_space().unwrap();
                }
                _ => {
                    engine.abandon();
                    disk.crash_clean();
                }
            }
            engine = open(&disk);
            assert_eq!(engine.kept_snapshots().len(), n + 1);
            t = engine.dict().open_table("d/t").unwrap();
            s = Session::new(&engine, 0, 1);
            assert_eq!(rows_of(&engine, "d/t"), rows);
        }
        drop((s, t));
        engine.close().unwrap();
        engine.check_space().unwrap();
        for (i, n) in [1, 3, 0, 2].into_iter().enumerate() {
            go_to(&disk, &format!("s{n}"), &format!("p{i}"));
            let engine = open(&disk);
            assert_eq!(rows_of(&engine, "d/t"), at[n], "snapshot {n}");
            // It goes on from there.
            let t = engine.dict().open_table("d/t").unwrap();
            let mut s = Session::new(&engine, 0, 1);
            let mut mine = at[n].clone();
            change(&mut s, &t, &mut mine, &mut rng, 30);
            assert_eq!(rows_of(&engine, "d/t"), mine);
            drop((s, t));
            engine.close().unwrap();
            engine.check_space().unwrap();
        }
        go_to(&disk, "p0", "last");
        let engine = open(&disk);
        assert_eq!(rows_of(&engine, "d/t"), rows, "forth again");
        engine.close().unwrap();
    }
}

#[test]
fn definitions_come_back_and_unfinished_changes_do_not() {
    let (disk, engine, t, mut s) = database(7);
    let mut rows = Rows::new();
    change(&mut s, &t, &mut rows, &mut Rng::new(7), 10);
    let u = create(&engine, "d/u");
    // Long enough to be spilled, and not committed.
    let mut other = Session::new(&engine, 0, 2);
    for n in 0..6000 {
        insert(&mut other, &u, n, &[3; 600]).unwrap();
    }
    take(&engine, "s").unwrap();
    other.commit(false).unwrap();
    drop((other, u, s, t));
    engine.drop_table("d/t", &DdlCaller::default()).unwrap();
    create(&engine, "d/new");
    engine.close().unwrap();
    drop(engine);
    go_to(&disk, "s", "before");
    let engine = open(&disk);
    assert_eq!(engine.dict().table_names(), ["d/t", "d/u"]);
    assert_eq!(rows_of(&engine, "d/t"), rows);
    assert!(rows_of(&engine, "d/u").is_empty());
    engine.close().unwrap();
    drop(engine);
    go_to(&disk, "before", "again");
    let engine = open(&disk);
    assert_eq!(engine.dict().table_names(), ["d/new", "d/u"]);
    assert_eq!(rows_of(&engine, "d/u").len(), 6000);
    engine.close().unwrap();
}

#[test]
fn what_is_dropped_gives_its_space_back() {
    let (disk, engine, t, mut s) = database(9);
    let (mut rows, mut rng) = (Rows::new(), Rng::new(9));
    change(&mut s, &t, &mut rows, &mut rng, 60);
    for name in ["a", "b", "c"] {
        take(&engine, name).unwrap();
        change(&mut s, &t, &mut rows, &mut rng, 60);
        engine.checkpoint().unwrap();
    }
    assert_eq!(names(&engine), ["a", "b", "c"]);
    assert_eq!(take(&engine, "b").err(), Some(Error::Exists));
    for wrong in ["", "a/b", "a.b", "ä"] {
        assert!(
            matches!(take(&engine, wrong), Err(Error::BadConfig(_))),
            "{wrong}"
        );
    }
    let changed = engine.kept_snapshots()[0].changed_bytes;
    assert!(changed > 0 && engine.snapshot_bytes() > changed);
    engine.drop_snapshot("b").unwrap();
    assert_eq!(engine.drop_snapshot("b").err(), Some(Error::NotFound));
    engine.drop_snapshot("a").unwrap();
    assert_eq!(names(&engine), ["c"]);
    // Too much: the oldest goes.
    take(&engine, "d").unwrap();
    engine.set("snapshot_max_bytes", 1).unwrap();
    wait_until("room", || names(&engine).is_empty());
    assert_eq!(engine.snapshot_bytes(), 0);
    drop((s, t));
    engine.close().unwrap();
    engine.check_space().unwrap();
    let left = disk.boot().list().unwrap();
    assert!(left.iter().all(|f| !f.starts_with("snapshot.")), "{left:?}");
    let engine = open(&disk);
    assert_eq!(rows_of(&engine, "d/t"), rows);
    engine.close().unwrap();
}

/// Its files go before it does, and the disk may take its time for that: nobody finds it damaged meanwhile.
#[test]
fn one_that_is_being_dropped_is_not_lost() {
    let (disk, engine, t, mut s) = database(10);
    let (mut rows, mut rng) = (Rows::new(), Rng::new(10));
    for name in ["a", "b"] {
        change(&mut s, &t, &mut rows, &mut rng, 10);
        take(&engine, name).unwrap();
    }
    let looks = Arc::new(Mutex::new(Vec::new()));
    let (looker, looked, files) = (engine.clone(), looks.clone(), disk.boot());
    disk.set_hook(Some(Arc::new(move |event: &IoEvent<'_>| {
        if event.op == IoOp::SyncDir && !files.exists("snapshot.a.manifest")? {
            looked.lock().push(looker.kept_snapshots());
        }
        Ok(())
    })));
    engine.drop_snapshot("a").unwrap();
    disk.set_hook(None);
    let looks = std::mem::take(&mut *looks.lock());
    assert!(!looks.is_empty(), "nobody has looked");
    for kept in looks {
        let kept: Vec<_> = (kept.iter()).map(|k| (&k.name[..], &k.lost[..])).collect();
        assert_eq!(kept, [("b", "")]);
    }
    assert_eq!(names(&engine), ["b"]);
    drop((s, t));
    engine.close().unwrap();
}

/// What keeps its files from being read may pass, and the snapshot is there then: no open file to give, and no rights, refuse
/// the start; a disk that gives no bytes is asked again, and only for a moment.
#[test]
fn a_snapshot_that_cannot_be_read_for_once_is_not_lost() {
    let (disk, engine, t, mut s) = database(12);
    let (mut rows, mut rng) = (Rows::new(), Rng::new(12));
    change(&mut s, &t, &mut rows, &mut rng, 30);
    take(&engine, "a").unwrap();
    change(&mut s, &t, &mut rows, &mut rng, 30);
    drop((s, t));
    engine.close().unwrap();
    drop(engine);
    let denied = "read /srv/snapshot.a.held: Permission denied (os error 13)";
    let bad = || Error::Io("read snapshot.a.held at offset 0: bad sector".into());
    let refused = [
        Error::Shortage("open snapshot.a.held: too many open files".into()),
        Error::Io(denied.into()),
    ];
    for file in ["manifest", "held"] {
        let path = format!("snapshot.a.{file}");
        let fails = |times: u64, e: Error| {
            let left = AtomicU64::new(times);
            let (disk, path) = (disk.boot(), path.clone());
            disk.set_hook(Some(Arc::new(move |io: &IoEvent<'_>| {
                let hits = io.op == IoOp::Read && io.name == path;
                let minus = |left: u64| left.checked_sub(1);
                let order = Ordering::SeqCst;
                match hits && left.fetch_update(order, order, minus).is_ok() {
                    true => Err(e.clone()),
                    false => Ok(()),
                }
            })));
            let callbacks = Arc::new(ferrite_engine::SilentCallbacks);
            let opened = Engine::open(config(), Arc::new(disk.clone()), callbacks);
            disk.set_hook(None);
            opened
        };
        for e in refused.clone() {
            assert_eq!(fails(u64::MAX, e.clone()).err(), Some(e));
        }
        // Three times a bad sector.
        let engine = fails(3, bad()).unwrap();
        assert_eq!(names(&engine), ["a"]);
        engine.close().unwrap();
    }
    // Without an end: it must not keep the database from opening.
    let disk = disk.boot();
    disk.set_hook(Some(Arc::new(move |io: &IoEvent<'_>| {
        match io.op == IoOp::Read && io.name == "snapshot.a.held" {
            true => Err(bad()),
            false => Ok(()),
        }
    })));
    let engine = open(&disk);
    let all = engine.kept_snapshots();
    assert_eq!(all.len(), 1);
    assert!(all[0].lost.contains("bad sector"), "{all:?}");
    assert_eq!(rows_of(&engine, "d/t"), rows);
    engine.close().unwrap();
}

#[test]
fn a_damaged_snapshot_is_lost_and_the_database_opens() {
    for file in ["manifest", "held"] {
        let (disk, engine, t, mut s) = database(11);
        let (mut rows, mut rng) = (Rows::new(), Rng::new(11));
        change(&mut s, &t, &mut rows, &mut rng, 30);
        drop((s, t));
        // All pages are written.
        engine.close().unwrap();
        let engine = open(&disk);
        let t = engine.dict().open_table("d/t").unwrap();
        let mut s = Session::new(&engine, 0, 1);
        take(&engine, "a").unwrap();
        change(&mut s, &t, &mut rows, &mut rng, 30);
        take(&engine, "b").unwrap();
        drop((s, t));
        engine.close().unwrap();
        drop(engine);
        let path = format!("snapshot.a.{file}");
        let damage = FileDamage::Cut { keep_bytes: 1 };
        disk.damage_file(&path, damage).unwrap();
        for _ in 0..2 {
            let engine = open(&disk);
            let all = engine.kept_snapshots();
            let lost: Vec<bool> = all.iter().map(|k| !k.lost.is_empty()).collect();
            assert_eq!(lost, [true, false], "{all:?}");
            assert_eq!(rows_of(&engine, "d/t"), rows);
            engine.close().unwrap();
            engine.check_space().unwrap();
        }
        let storage: Arc<dyn Storage> = Arc::new(disk.boot());
        assert!(rewind::prepare(&storage, "a", "b", None).is_err());
        assert_eq!(rewind::finish(&storage, None), Ok(None));
        let engine = open(&disk);
        engine.drop_snapshot("a").unwrap();
        assert_eq!(names(&engine), ["b"]);
        engine.close().unwrap();
    }
}

/// At each call of the disk after a rewind was decided, the power goes: it is finished by the next start.
/// (The simulator cuts what comes before.)
#[test]
fn a_rewind_that_is_cut_off_after_it_was_decided() {
    let (disk, engine, t, mut s) = database(13);
    let (mut rows, mut rng) = (Rows::new(), Rng::new(13));
    change(&mut s, &t, &mut rows, &mut rng, 10);
    take(&engine, "s").unwrap();
    let then = rows.clone();
    change(&mut s, &t, &mut rows, &mut rng, 10);
    take(&engine, "p").unwrap();
    drop((s, t));
    engine.close().unwrap();
    drop(engine);
    let storage: Arc<dyn Storage> = Arc::new(disk.boot());
    rewind::prepare(&storage, "s", "p", None).unwrap();
    disk.crash(&mut rng);
    let decided = disk.snapshot();
    let mut calls = 0;
    loop {
        disk.restore(&decided);
        disk.power_off_after(calls + 1);
        let storage: Arc<dyn Storage> = Arc::new(disk.boot());
        let done = rewind::finish(&storage, None);
        disk.power_off_after(u64::MAX / 2);
        disk.crash(&mut rng);
        let storage: Arc<dyn Storage> = Arc::new(disk.boot());
        rewind::finish(&storage, None).unwrap();
        let engine = open(&disk);
        assert_eq!(rows_of(&engine, "d/t"), then, "cut off at call {calls}");
        assert_eq!(names(&engine), ["s", "p"]);
        engine.close().unwrap();
        if done.is_ok() {
            break;
        }
        calls += 1;
        assert!(calls < 1000, "no end");
    }
    assert!(calls > 8, "{calls} calls");
}

fn remains(disk: &SimStorage) -> Vec<String> {
    let mut names = disk.boot().list().unwrap();
    names.retain(|n| n.starts_with("rewind."));
    names
}

/// At calls of the disk before a rewind was decided, the power goes: the next start removes what it left.
#[test]
fn what_a_rewind_left_before_it_was_decided_goes_at_a_start() {
    let (disk, rows) = two_snapshots(29);
    let mut rng = Rng::new(29);
    let closed = disk.snapshot();
    let (mut left, mut calls) = (0, 5);
    loop {
        disk.restore(&closed);
        disk.power_off_after(calls);
        let storage: Arc<dyn Storage> = Arc::new(disk.boot());
        let done = rewind::prepare(&storage, "s", "p", None);
        disk.power_off_after(u64::MAX / 2);
        disk.crash(&mut rng);
        if rewind::is_pending(&disk.boot()).unwrap() {
            break;
        }
        assert!(done.is_err(), "lost at call {calls}");
        left += remains(&disk).len();
        let engine = open(&disk);
        assert_eq!(remains(&disk), [""; 0], "cut off at call {calls}");
        assert_eq!(names(&engine), ["s", "p"]);
        assert_eq!(rows_of(&engine, "d/t"), rows);
        engine.close().unwrap();
        calls += 7;
        assert!(calls < 5000, "no end");
    }
    assert!(left > 0, "there was nothing to remove");
}

/// A database with the snapshots s and p, closed, and its rows.
fn two_snapshots(seed: u64) -> (SimStorage, Rows) {
    let (disk, engine, t, mut s) = database(seed);
    let (mut rows, mut rng) = (Rows::new(), Rng::new(seed));
    change(&mut s, &t, &mut rows, &mut rng, 10);
    take(&engine, "s").unwrap();
    change(&mut s, &t, &mut rows, &mut rng, 10);
    take(&engine, "p").unwrap();
    drop((s, t));
    engine.close().unwrap();
    (disk, rows)
}

/// What stops a rewind is known before the present becomes a snapshot, and nothing is written for that.
#[test]
fn a_target_is_checked_before_anything_is_written() {
    let (disk, _) = two_snapshots(31);
    let storage: Arc<dyn Storage> = Arc::new(disk.boot());
    let files = storage.list().unwrap();
    assert_eq!(rewind::check_target(&storage, "s", None), Ok(()));
    assert!(matches!(
        rewind::check_target(&storage, "none", None),
        Err(Error::BadConfig(_))
    ));
    disk.set_capacity(Some(disk.used_bytes() + (1 << 20)));
    let full = rewind::check_target(&storage, "s", None);
    assert!(matches!(full, Err(Error::DiskFull(_))), "{full:?}");
    disk.set_capacity(None);
    let whole = disk.snapshot();
    let of_it: Vec<&String> = (files.iter())
        .filter(|f| f.starts_with("snapshot.s.") && !f.ends_with("manifest"))
        .collect();
    assert!(of_it.len() >= 6, "{of_it:?}");
    for file in of_it {
        disk.restore(&whole);
        let storage: Arc<dyn Storage> = Arc::new(disk.boot());
        disk.corrupt(file, 0, 1).unwrap();
        match rewind::check_target(&storage, "s", None) {
            Err(Error::Corrupt(text)) => assert!(text.contains(file.as_str()), "{text}"),
            // As long as no page of it was written.
            Ok(()) if disk.contents(file).unwrap().is_empty() => {}
            other => panic!("{file}: {other:?}"),
        }
        disk.restore(&whole);
        let storage: Arc<dyn Storage> = Arc::new(disk.boot());
        storage.remove(file).unwrap();
        match rewind::check_target(&storage, "s", None) {
            Err(Error::Corrupt(text)) => assert!(text.contains(file.as_str()), "{text}"),
            other => panic!("{file}: {other:?}"),
        }
        assert_eq!(remains(&disk), [""; 0]);
    }
}

/// The n-th call of the disk fails, those of the log left out: it would end the process. Reads are none of
/// them, and what was asked of the disk before this stays.
fn fail_call(disk: &SimStorage, n: u64) {
    let calls = AtomicU64::new(0);
    disk.set_hook(Some(Arc::new(move |event: &IoEvent<'_>| {
        let counts = event.op != IoOp::Read && !event.name.starts_with("rewind.redo");
        match counts && calls.fetch_add(1, Ordering::SeqCst) == n {
            true => Err(Error::Io("a call that fails".into())),
            false => Ok(()),
        }
    })));
}

/// The preparation fails at each call of the disk in turn and is given up, until the power goes at some call
/// of that. The snapshot of the present is gone then, or the rewind is decided: never both.
#[test]
fn one_that_is_given_up_is_not_decided() {
    let (disk, rows) = two_snapshots(37);
    let closed = disk.snapshot();
    let mut rng = Rng::new(37);
    let (mut dropped, mut decided) = (0, 0);
    for n in 0.. {
        assert!(n < 500, "no end");
        disk.restore(&closed);
        let storage: Arc<dyn Storage> = Arc::new(disk.boot());
        fail_call(&disk, n);
        let done = rewind::prepare(&storage, "s", "p", None);
        disk.set_hook(None);
        if done.is_ok() {
            break;
        }
        let whole = rng.chance(1, 2);
        disk.power_off_after(if whole { 5000 } else { rng.between(1, 30) });
        let gave_up = rewind::give_up(&storage, "p");
        disk.power_off_after(u64::MAX / 2);
        disk.crash(&mut rng);
        let storage: Arc<dyn Storage> = Arc::new(disk.boot());
        let went = rewind::finish(&storage, None).unwrap().is_some();
        let engine = open(&disk);
        let kept = names(&engine);
        if whole && !went && gave_up != Ok(false) {
            assert_eq!((gave_up, kept.len()), (Ok(true), 1), "call {n}");
            dropped += 1;
        } else if went || gave_up == Ok(false) {
            assert_ne!(gave_up, Ok(true), "call {n}");
            assert_eq!(kept, ["s", "p"], "call {n}: no way back");
            decided += 1;
        }
        assert_eq!(kept[0], "s", "call {n}");
        assert!(went || rows_of(&engine, "d/t") == rows, "call {n}");
        engine.close().unwrap();
        engine.check_space().unwrap();
    }
    assert!(dropped > 5 && decided > 0, "{dropped}, {decided}");
}

/// Beside a backup, one begun before the other either way.
#[test]
fn beside_a_backup() {
    use ferrite_engine::{BackupLimits, BackupPhase, BackupPlace};
    let (disk, engine, t, mut s) = database(17);
    let (mut rows, mut rng) = (Rows::new(), Rng::new(17));
    change(&mut s, &t, &mut rows, &mut rng, 40);
    let to = SimStorage::new(18);
    let place = BackupPlace {
        storage: Arc::new(to),
        name: "to".into(),
    };
    let job = engine.begin_snapshot("a").unwrap();
    (engine.begin_backup(place, None, BackupLimits::default(), 1)).unwrap();
    change(&mut s, &t, &mut rows, &mut rng, 20);
    engine.fix_backup().unwrap();
    let mut job = job;
    job.fix();
    let at_a = rows.clone();
    change(&mut s, &t, &mut rows, &mut rng, 20);
    job.finish(&ServerState::default()).unwrap();
    engine.wait_for_backup();
    assert_eq!(engine.backup_info().phase, BackupPhase::Complete);
    drop((s, t));
    engine.close().unwrap();
    engine.check_space().unwrap();
    drop(engine);
    go_to(&disk, "a", "p");
    let engine = open(&disk);
    assert_eq!(rows_of(&engine, "d/t"), at_a);
    engine.close().unwrap();
}

#[test]
fn one_that_is_given_up_leaves_nothing() {
    let (disk, engine, t, mut s) = database(19);
    let (mut rows, mut rng) = (Rows::new(), Rng::new(19));
    change(&mut s, &t, &mut rows, &mut rng, 20);
    let mut job = engine.begin_snapshot("a").unwrap();
    job.fix();
    drop(job);
    assert!(engine.kept_snapshots().is_empty());
    take(&engine, "a").unwrap();
    drop((s, t));
    engine.close().unwrap();
    engine.check_space().unwrap();
    let left = disk.boot().list().unwrap();
    assert!(left.iter().any(|f| f == "snapshot.a.manifest"), "{left:?}");
}

/// The name of a manifest cannot be made durable, nor be taken away again: whoever took the snapshot is told that there is
/// none. After a crash it is there for all that, and then it is whole: nothing has been written over what it holds.
#[test]
fn a_manifest_that_stays_against_all_will_tells_the_truth() {
    let (disk, engine, t, mut s) = database(20);
    let (mut rows, mut rng) = (Rows::new(), Rng::new(20));
    change(&mut s, &t, &mut rows, &mut rng, 60);
    engine.make_cold().unwrap();
    let mut job = engine.begin_snapshot("a").unwrap();
    job.fix();
    let at_a = rows.clone();
    let (files, has_failed) = (disk.boot(), AtomicU64::new(0));
    disk.set_hook(Some(Arc::new(move |event: &IoEvent<'_>| {
        let name = "snapshot.a.manifest";
        let is_named = files.exists(name)?;
        let fails = match event.op {
            IoOp::SyncDir => is_named && has_failed.fetch_add(1, Ordering::SeqCst) == 0,
            IoOp::Name => event.name == name,
            _ => false,
        };
        match fails {
            true => Err(Error::Shortage("too many open files".into())),
            false => Ok(()),
        }
    })));
    let taken = job.finish(&ServerState::default());
    assert!(matches!(taken, Err(Error::Shortage(_))), "{taken:?}");
    for _ in 0..4 {
        // Pages leave their places, and others come there if they can.
        change(&mut s, &t, &mut rows, &mut rng, 60);
        engine.make_cold().unwrap();
        engine.checkpoint().unwrap();
    }
    engine.abandon();
    disk.crash_clean();
    disk.set_hook(None);
    drop((s, t, engine));
    let engine = open(&disk);
    assert_eq!(names(&engine), ["a"]);
    assert_eq!(rows_of(&engine, "d/t"), rows);
    engine.close().unwrap();
    engine.check_space().unwrap();
    drop(engine);
    go_to(&disk, "a", "p");
    let engine = open(&disk);
    assert_eq!(rows_of(&engine, "d/t"), at_a);
    engine.close().unwrap();
}

/// Snapshots give way before a write fails, whatever it is that finds no room.
#[test]
fn on_a_full_disk_the_oldest_go() {
    for left in [0, 3 << 20] {
        snapshots_go_before_a_write_fails(left);
    }
}

fn snapshots_go_before_a_write_fails(left: u64) {
    let (disk, engine, t, mut s) = database(23);
    let (mut rows, mut rng) = (Rows::new(), Rng::new(23));
    change(&mut s, &t, &mut rows, &mut rng, 60);
    for name in ["a", "b"] {
        take(&engine, name).unwrap();
        change(&mut s, &t, &mut rows, &mut rng, 60);
    }
    let u = create(&engine, "d/u");
    disk.set_capacity(Some(disk.used_bytes() + left));
    for n in 0.. {
        match insert(&mut s, &u, n, &[5; 4000]) {
            Err(Error::DiskFull(_)) => break,
            other => other.unwrap(),
        }
    }
    assert!(
        engine.kept_snapshots().is_empty(),
        "{left} bytes were left: a write failed before they went"
    );
    disk.set_capacity(None);
    s.rollback().unwrap();
    drop((s, t, u));
    engine.close().unwrap();
    engine.check_space().unwrap();
    let engine = open(&disk);
    assert_eq!(rows_of(&engine, "d/t"), rows);
    engine.close().unwrap();
}
