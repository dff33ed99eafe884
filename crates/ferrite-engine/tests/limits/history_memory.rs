//! Memory of history has an end where it cannot be written out: on a disk with no space for
//! scratch files, with many snapshots of different age, and with a transaction that changes more
//! rows than fit.

use crate::common::{
    check, config, create, delete, insert, metric, rows_of, update, wait_until, xid, Heard,
};
use ferrite_engine::{
    Callbacks, Config, Cursor, Engine, LogLevel, ReadMode, Session, SilentCallbacks, Table,
    WaitMode,
};
use ferrite_io::sim::{Fault, IoOp, SimStorage};
use ferrite_io::Storage;
use ferrite_sync::atomic::{AtomicBool, AtomicU64, Ordering};
use ferrite_sync::Arc;
use ferrite_types::Error;

const ROWS: u64 = 400;
const ROW_BYTES: usize = 1000;
const SNAPSHOTS: u64 = 70;
/// What may stay beyond the ring of 1 MiB.
const BEYOND_BYTES: u64 = 4 << 20;
/// What the threads of the engine may lag behind a writer.
const LAG_BYTES: u64 = 12 << 20;

/// A database whose disk has no room for scratch files (they leave 64 MiB free), but some for
/// everything else. `room`: whether it has room for those too.
fn database(seed: u64, room: bool) -> (SimStorage, Arc<Engine>, Arc<Table>) {
    let disk = SimStorage::new(seed);
    let storage: Arc<dyn Storage> = Arc::new(disk.boot());
    let config = Config {
        history_beyond_ring_bytes: BEYOND_BYTES,
        store_segment_bytes: 4 << 20,
        ..config()
    };
    let engine = Engine::open(config, storage, Arc::new(SilentCallbacks)).unwrap();
    let t = create(&engine, "d/t");
    if !room {
        disk.set_capacity(Some(disk.used_bytes() + (56 << 20)));
    }
    (disk, engine, t)
}

fn text(round: u64) -> Vec<u8> {
    // Another length each time, and another byte everywhere: a version has the whole row.
    vec![b'a' + (round % 26) as u8; ROW_BYTES + round as usize % 7]
}

fn first_row(s: &mut Session, t: &Arc<Table>) -> Result<Vec<u8>, Error> {
    let mut cursor = Cursor::new(t, 0, ReadMode::Snapshot, WaitMode::Wait);
    cursor.first(s)?;
    Ok(cursor.fetch_row(s)?.payload[1..].to_vec())
}

/// Changes all rows once per snapshot; `change(session, row, round)`: its text is then that of the
/// next round.
fn many_snapshots(engine: &Arc<Engine>, t: &Arc<Table>, change: impl Fn(&mut Session, u64, u64)) {
    let mut w = Session::new(engine, 0, 1);
    for n in 0..ROWS {
        insert(&mut w, t, n, &text(0)).unwrap();
    }
    w.commit(false).unwrap();
    let mut old = Vec::new();
    let mut most = 0;
    let limit = (1 << 20) + BEYOND_BYTES;
    for round in 0..SNAPSHOTS {
        let mut s = Session::new(engine, 0, 100 + round);
        s.open_snapshot();
        old.push((s, text(round)));
        for n in 0..ROWS {
            change(&mut w, n, round);
        }
        w.commit(false).unwrap();
        ferrite_sync::thread::sleep_ms(30);
        most = most.max(metric(engine, "history_bytes"));
        // On a busy machine the thread that ends snapshots comes late, round after round.
        wait_until("snapshots are ended", || {
            metric(engine, "history_bytes") <= limit + LAG_BYTES / 2
        });
    }
    assert!(most <= limit + LAG_BYTES, "history took {most} bytes");
    wait_until("memory within its limit", || {
        metric(engine, "history_bytes") <= limit + (2 << 20)
    });
    // The old ones were ended and say so; those that were not read what they saw.
    let mut ended = 0;
    for (s, seen) in &mut old {
        match first_row(s, t) {
            Ok(row) => assert_eq!(&row, seen),
            Err(e) => {
                assert_eq!(e, Error::SnapshotTooOld);
                ended += 1;
            }
        }
    }
    assert!(ended > 20, "{ended} snapshots were ended");
    assert!(ended < SNAPSHOTS, "all were ended");
    assert!(matches!(
        first_row(&mut old[0].0, t),
        Err(Error::SnapshotTooOld)
    ));
    // Writers and new readers go on.
    insert(&mut w, t, 1 << 40, b"new").unwrap();
    w.commit(false).unwrap();
    let mut s = Session::new(engine, 0, 2);
    s.open_snapshot();
    assert_eq!(first_row(&mut s, t).unwrap(), text(SNAPSHOTS));
}

#[test]
fn old_versions_on_a_full_disk_have_a_limit() {
    let (_disk, engine, t) = database(1, false);
    many_snapshots(&engine, &t, |w, n, round| {
        update(w, &t, n, &text(round), &text(round + 1)).unwrap();
    });
    engine.close().unwrap();
}

#[test]
fn deleted_rows_have_a_limit() {
    let (_disk, engine, t) = database(2, true);
    // Under another key each time: an insert would use the deleted entry again.
    many_snapshots(&engine, &t, |w, n, round| {
        delete(w, &t, round * ROWS + n, &text(round)).unwrap();
        insert(w, &t, (round + 1) * ROWS + n, &text(round + 1)).unwrap();
    });
    engine.close().unwrap();
}

/// A transaction whose own versions cannot be written out is refused more of them, and rolls back.
#[test]
fn a_large_writer_is_refused() {
    let (disk, engine, t) = database(3, false);
    refuse_a_large_writer(&disk, &engine, &t);
    drop(t);
    engine.close().unwrap();
}

/// The same while snapshots come and go: at each moment there are some. Nothing is kept for them, and
/// they are not ended.
#[test]
fn a_large_writer_is_refused_beside_short_readers() {
    let (disk, engine, t) = database(4, false);
    let (stop, read) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for reader in 0..3 {
            let (engine, t, stop, read) = (&engine, &t, &stop, &read);
            scope.spawn(move || {
                // Each ends after the next one has begun.
                let mut before = None;
                while !stop.load(Ordering::Relaxed) {
                    let mut s = Session::new(engine, 0, 10 + reader);
                    s.open_snapshot();
                    // The table is empty in the beginning.
                    let seen = first_row(&mut s, t);
                    read.fetch_add(u64::from(seen.is_ok()), Ordering::Relaxed);
                    before = Some(s);
                }
                drop(before);
            });
        }
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            refuse_a_large_writer(&disk, &engine, &t);
        }));
        stop.store(true, Ordering::Relaxed);
        if let Err(panic) = done {
            std::panic::resume_unwind(panic);
        }
    });
    assert!(read.load(Ordering::Relaxed) > 0, "nobody has read");
    drop(t);
    engine.close().unwrap();
}

fn refuse_a_large_writer(disk: &SimStorage, engine: &Arc<Engine>, t: &Arc<Table>) {
    let mut w = Session::new(engine, 0, 1);
    let rows = 14_000;
    for n in 0..rows {
        insert(&mut w, t, n, &text(0)).unwrap();
        if n % 100 == 99 {
            w.commit(false).unwrap();
        }
    }
    w.commit(false).unwrap();
    disk.set_capacity(Some(disk.used_bytes() + (56 << 20)));
    let mut changed = 0;
    let enough = (1 << 20) + BEYOND_BYTES + (2 << 20);
    let error = (0..rows).find_map(|n| {
        changed = n;
        // Once it should be refused, however long it takes until somebody has seen that.
        if n % 500 == 0 || n % 4 == 0 && metric(engine, "history_bytes") > enough {
            ferrite_sync::thread::sleep_ms(20);
        }
        update(&mut w, t, n, &text(0), &text(1)).err()
    });
    assert!(
        matches!(error, Some(Error::DiskFull(_))),
        "{error:?} after {changed} rows, {} bytes of history",
        metric(engine, "history_bytes")
    );
    w.rollback().unwrap();
    wait_until("writers go on", || {
        let done = update(&mut w, t, 0, &text(0), &text(1)).is_ok();
        w.rollback().unwrap();
        done
    });
}

/// The configured limit ends a snapshot that something is kept for, and none for what a running
/// transaction has changed.
#[test]
fn the_configured_limit_ends_only_snapshots_that_hold_something() {
    let (_disk, engine, t) = database(9, true);
    let mut writer = Session::new(&engine, 0, 1);
    for n in 0..ROWS {
        insert(&mut writer, &t, n, &text(0)).unwrap();
    }
    writer.commit(false).unwrap();
    engine.set("max_history_bytes", 64 << 10).unwrap();
    let mut reader = Session::new(&engine, 0, 2);
    reader.open_snapshot();
    let holds = |reader: &mut Session| {
        let mut cursor = Cursor::new(&t, 0, ReadMode::Snapshot, WaitMode::Wait);
        cursor.first(reader).map(drop)
    };
    for round in 0..20 {
        for n in 0..ROWS {
            update(&mut writer, &t, n, &text(round), &text(round + 1)).unwrap();
        }
    }
    // Longer than a snapshot is spared.
    ferrite_sync::thread::sleep_ms(1500);
    assert_eq!(holds(&mut reader), Ok(()), "nothing would go with it");
    writer.commit(false).unwrap();
    wait_until("the end of the snapshot", || {
        holds(&mut reader) == Err(Error::SnapshotTooOld)
    });
    drop((reader, writer, t));
    engine.close().unwrap();
}

/// A restart with a large prepared transaction, and no room in scratch files: as many of its versions as fit are there.
fn versions_without_room() -> (SimStorage, Arc<Engine>) {
    let (disk, engine, t) = database(7, true);
    prepare_large(&engine, &t);
    drop(t);
    engine.close().unwrap();
    drop(engine);
    no_scratch(&disk);
    let heard = Arc::new(Heard::default());
    let engine = open_again(&disk, heard.clone());
    wait_for_room(&disk, &engine, &heard);
    (disk, engine)
}

/// Rows of that transaction.
const MANY: u64 = 30_000;

fn prepare_large(engine: &Arc<Engine>, t: &Arc<Table>) {
    let mut s = Session::new(engine, 0, 1);
    for n in 0..MANY {
        insert(&mut s, t, n, &text(0)).unwrap();
    }
    s.commit(false).unwrap();
    for n in 0..MANY {
        update(&mut s, t, n, &text(0), &text(1)).unwrap();
    }
    s.prepare(&xid("x")).unwrap();
}

/// No room in scratch files, whatever else there is.
fn no_scratch(disk: &SimStorage) {
    disk.inject_lasting(Fault::Full, "history.");
}

/// All but the smallest transactions are left to the thread, which tries again after a second.
fn open_again(disk: &SimStorage, callbacks: Arc<dyn Callbacks>) -> Arc<Engine> {
    let config = Config {
        history_beyond_ring_bytes: BEYOND_BYTES,
        background_undo_bytes: 100,
        retry_rollback_ms: 1000,
        store_segment_bytes: 4 << 20,
        ..config()
    };
    // Who makes versions reads the rows' pages: on a busy machine, too, it is no faster than the thread that looks at
    // how much they are.
    disk.set_hook(Some(Arc::new(|event| {
        if event.op == IoOp::Read && event.name.starts_with("store.") {
            ferrite_sync::thread::sleep_ms(1);
        }
        Ok(())
    })));
    Engine::open(config, Arc::new(disk.boot()), callbacks).unwrap()
}

/// Until no more versions are made, for want of room.
fn wait_for_room(disk: &SimStorage, engine: &Engine, heard: &Heard) {
    let bytes = || metric(engine, "history_bytes");
    let (mut most, mut last) = (0, (0, 0));
    wait_until("the limit", || {
        most = most.max(bytes());
        heard.has("row changes are refused")
    });
    wait_until("no more versions", || {
        ferrite_sync::thread::sleep_ms(20);
        most = most.max(bytes());
        last = (bytes(), if last.0 == bytes() { last.1 + 1 } else { 0 });
        most > BEYOND_BYTES && last.1 > 20
    });
    disk.set_hook(None);
    let limit = (1 << 20) + BEYOND_BYTES + LAG_BYTES;
    assert!(most <= limit, "history took {most} bytes");
    // Less than all of them.
    assert!(most < MANY * ROW_BYTES as u64 / 4 * 3);
}

/// The first rollback that fails ends the faults, but for scratch files.
struct Heals(SimStorage, Arc<Heard>);

impl Callbacks for Heals {
    fn log(&self, level: LogLevel, text: &str) {
        self.1.log(level, text);
        if text.contains("cannot be rolled back") {
            self.0.clear_faults();
            no_scratch(&self.0);
        }
    }
    fn fatal(&self, text: &str) {
        panic!("{text}");
    }
}

/// A transaction that was cut off, whose rollback fails at first, beside a prepared one that waits for room without end: it
/// is rolled back.
#[test]
fn a_rollback_is_tried_again_beside_versions_that_wait_for_room() {
    const CUT_OFF: u64 = 12_000;
    let (disk, engine, t) = database(8, true);
    let other = create(&engine, "d/other");
    let mut cut_off = Session::new(&engine, 0, 2);
    for n in 0..CUT_OFF {
        insert(&mut cut_off, &other, n, &text(0)).unwrap();
    }
    prepare_large(&engine, &t);
    // A shutdown does not wait for it.
    std::mem::forget(cut_off);
    drop((t, other));
    engine.close().unwrap();
    drop(engine);
    no_scratch(&disk);
    // Behind what the start itself reads.
    for nth in 60..5000 {
        disk.inject_in(Fault::FailRead, nth, "store.");
    }
    let heard = Arc::new(Heard::default());
    let engine = open_again(&disk, Arc::new(Heals(disk.clone(), heard.clone())));
    assert_eq!(engine.trx_rows().len(), 2);
    wait_for_room(&disk, &engine, &heard);
    wait_until("the rollback", || engine.trx_rows().len() == 1);
    assert_eq!(engine.prepared_xids(), [xid("x")]);
    assert!(rows_of(&engine, "d/other").is_empty());
    engine.rollback_by_xid(&xid("x")).unwrap();
    is_whole_with(&engine, text(0));
    engine.close().unwrap();
}

/// Whole, and without prepared transactions, with that text in its first row.
fn is_whole_with(engine: &Arc<Engine>, text: Vec<u8>) {
    assert_eq!(engine.prepared_xids(), []);
    let t = engine.dict().open_table("d/t").unwrap();
    check(engine, &t);
    assert_eq!(first_row(&mut Session::new(engine, 0, 2), &t), Ok(text));
}

/// The versions of a large prepared transaction, made again after a restart: no more of them than fit are, until they
/// can be written out. Readers find the states before without them.
#[test]
fn versions_made_after_a_restart_have_a_limit() {
    let (disk, engine) = versions_without_room();
    disk.clear_faults();
    engine.commit_by_xid(&xid("x")).unwrap();
    is_whole_with(&engine, text(1));
    engine.close().unwrap();
}

/// Its rollback needs no versions, and frees those that have taken the room: it does not wait for more of them.
#[test]
fn a_rollback_waits_for_no_versions() {
    let (_disk, engine) = versions_without_room();
    engine.rollback_by_xid(&xid("x")).unwrap();
    is_whole_with(&engine, text(0));
    engine.close().unwrap();
}

/// Its commit needs them, and nothing else may make room for them: they exceed the limit.
#[test]
fn a_commit_has_its_versions_whatever_room_there_is() {
    let (_disk, engine) = versions_without_room();
    engine.commit_by_xid(&xid("x")).unwrap();
    is_whole_with(&engine, text(1));
    engine.close().unwrap();
}
