//! A database that opens before its pages are redone: what is read is right, a checkpoint waits for
//! the last page, and a page that cannot be read keeps nobody else from anything.

use crate::common::{
    check, config, create, give_up, insert, key, metric, scan, update, wait_until,
};
use ferrite_engine::{
    Config, Cursor, DdlCaller, Engine, ReadMode, References, SeekMode, Session, SilentCallbacks,
    Table, WaitMode,
};
use ferrite_io::sim::{Fault, SimStorage};
use ferrite_io::{OpenMode, Storage};
use ferrite_sync::random::Rng;
use ferrite_sync::Arc;
use ferrite_types::Error;
use std::collections::BTreeMap;

const ROWS: u64 = 3000;
/// Updated so often that its page's redo is not put off.
const HOT: u64 = 1500;
/// Of updates of the hot row.
const HOT_UPDATES: usize = 3000;

const CALLER: DdlCaller = DdlCaller {
    thd: 0,
    wait_ms: 0,
    references: References::Any,
};

fn no_sweep() -> Config {
    Config {
        buffer_pool_size_bytes: 32 << 20,
        log_budget_bytes: 64 << 20,
        manual_background: true,
        recovery_puts_off: Some(true),
        ..config()
    }
}

fn open(disk: &SimStorage, config: Config) -> Arc<Engine> {
    Engine::open(config, Arc::new(disk.boot()), Arc::new(SilentCallbacks)).unwrap()
}

fn text(version: u8) -> Vec<u8> {
    vec![version; 200 + usize::from(version)]
}

fn crash(disk: &SimStorage, seed: u64, engine: Arc<Engine>) {
    engine.flush_log();
    disk.crash(&mut Rng::new(seed));
    give_up(&engine);
}

/// A new table with all rows in version 1.
fn fill(engine: &Arc<Engine>) -> Arc<Table> {
    let t = create(engine, "d/t");
    let mut s = Session::new(engine, 0, 1);
    for n in 0..ROWS {
        insert(&mut s, &t, n, &text(1)).unwrap();
    }
    s.commit(false).unwrap();
    t
}

/// A new database with all rows in version 1, shut down.
fn filled(disk: &SimStorage) {
    let engine = open(disk, no_sweep());
    fill(&engine);
    engine.close().unwrap();
}

/// A transaction is cut off that has changed row 7 from this version.
fn cut_off(engine: &Arc<Engine>, t: &Arc<Table>, version: u8) {
    let mut cut = Session::new(engine, 0, 2);
    update(&mut cut, t, 7, &text(version), &text(4)).unwrap();
    engine.flush_log();
    cut.abandon();
}

/// A crash after every row was updated, to version 2, and none of their pages written. One
/// transaction is cut off.
fn crashed(disk: &SimStorage) {
    crashed_beside_page_of(disk, 0);
}

/// As [`crashed`]. Gives the place in the store of the page that has row `n`, in bytes.
fn crashed_beside_page_of(disk: &SimStorage, n: u64) -> u64 {
    filled(disk);
    let engine = open(disk, no_sweep());
    let t = engine.dict().open_table("d/t").unwrap();
    let page = t.tree(0).leaf_of(&key(n)).unwrap();
    let at = t.tree(0).pool().store().directory().get(page).as_location();
    let at = at.expect("it has not been read").granule() * 1024;
    let mut s = Session::new(&engine, 0, 1);
    for n in 0..ROWS {
        update(&mut s, &t, n, &text(1), &text(2)).unwrap();
    }
    for _ in 0..HOT_UPDATES / 2 {
        update(&mut s, &t, HOT, &text(2), &text(3)).unwrap();
        update(&mut s, &t, HOT, &text(3), &text(2)).unwrap();
    }
    s.commit(false).unwrap();
    cut_off(&engine, &t, 2);
    drop((s, t));
    crash(disk, 5, engine);
    at
}

fn all(version: u8) -> BTreeMap<u64, Vec<u8>> {
    (0..ROWS).map(|n| (n, text(version))).collect()
}

/// What the row is, by its key.
fn row(s: &mut Session, t: &Arc<Table>, n: u64) -> Result<Vec<u8>, Error> {
    let mut cursor = Cursor::new(t, 0, ReadMode::Snapshot, WaitMode::Wait);
    cursor.seek(s, &key(n), SeekMode::AtOrAfter, true)?;
    let payload = cursor.fetch_row(s)?.payload[1..].to_vec();
    Ok(payload)
}

/// The table has these rows, by both indexes that a scan goes by; it is shut down.
fn has_rows(engine: &Arc<Engine>, rows: &BTreeMap<u64, Vec<u8>>) {
    let t = engine.dict().open_table("d/t").unwrap();
    let mut s = Session::new(engine, 0, 1);
    for index in 0..2 {
        assert_eq!(&scan(&mut s, &t, index), rows);
    }
    s.commit(false).unwrap();
    check(engine, &t);
    engine.close().unwrap();
}

#[test]
fn pages_are_redone_when_they_are_read() {
    let disk = SimStorage::new(31);
    crashed(&disk);
    let engine = open(&disk, no_sweep());
    let left = metric(&engine, "recovery_pages_left");
    assert!(left > 30, "{left} pages are left");
    let t = engine.dict().open_table("d/t").unwrap();
    // The hot page's redo has been done, and the one that the rollback needed.
    let hot = t.tree(0).leaf_of(&key(HOT)).unwrap();
    assert!(!t.tree(0).pool().is_away(hot), "left for its reader");
    let redone = metric(&engine, "recovery_pages_redone");
    assert!(redone >= 2, "{redone}");
    let mut s = Session::new(&engine, 0, 1);
    assert_eq!(row(&mut s, &t, 7), Ok(text(2)));
    assert_eq!(row(&mut s, &t, 2000), Ok(text(2)));
    assert!(metric(&engine, "recovery_pages_left") < left);
    assert_eq!(scan(&mut s, &t, 0), all(2));
    assert_eq!(scan(&mut s, &t, 1), all(2));
    s.commit(false).unwrap();
    check(&engine, &t);
    engine.close().unwrap();
    drop((s, t, engine));
    let engine = open(&disk, no_sweep());
    assert_eq!(metric(&engine, "recovery_log_bytes"), 0);
    assert_eq!(metric(&engine, "recovery_pages_left"), 0);
    engine.close().unwrap();
}

/// The rows of some pages are changed again, a checkpoint is taken, and the next crash comes while others still
/// are what they were before the first.
#[test]
fn a_checkpoint_keeps_what_pages_still_lack() {
    let disk = SimStorage::new(32);
    crashed(&disk);
    let mut rows = all(2);
    for (round, version) in [(0, 5), (1, 6), (2, 7)] {
        let engine = open(&disk, no_sweep());
        let t = engine.dict().open_table("d/t").unwrap();
        let mut s = Session::new(&engine, 0, 1);
        for n in (round * 400)..(round * 400 + 300) {
            update(&mut s, &t, n, &text(2), &text(version)).unwrap();
            rows.insert(n, text(version));
        }
        s.commit(false).unwrap();
        engine.checkpoint().unwrap();
        assert!(metric(&engine, "recovery_pages_left") > 10);
        drop((s, t));
        crash(&disk, 40 + round, engine);
    }
    let engine = open(&disk, config());
    wait_until("the sweep", || metric(&engine, "recovery_pages_left") == 0);
    has_rows(&engine, &rows);
}

/// A crash after a table was made and filled, of which nothing was written.
fn crashed_unwritten(disk: &SimStorage) {
    let engine = open(disk, no_sweep());
    let t = fill(&engine);
    cut_off(&engine, &t, 1);
    drop(t);
    crash(disk, 6, engine);
}

/// Pages that are nowhere on disk are made of the log when they are read. Checkpoints and crashes come while some are not;
/// nobody gets their ids.
#[test]
fn pages_that_are_nowhere_on_disk_come_from_the_log() {
    let disk = SimStorage::new(37);
    crashed_unwritten(&disk);
    let mut rows = all(1);
    for round in 0..3 {
        let engine = open(&disk, no_sweep());
        let left = metric(&engine, "recovery_pages_left");
        assert!(left > 20, "{left} pages are left");
        assert!(metric(&engine, "recovery_pages_read") < left);
        let t = engine.dict().open_table("d/t").unwrap();
        let mut s = Session::new(&engine, 0, 1);
        assert_eq!(row(&mut s, &t, 2000), Ok(text(1)));
        for n in (round * 300)..(round * 300 + 200) {
            update(&mut s, &t, n, &text(1), &text(5)).unwrap();
            rows.insert(n, text(5));
        }
        for n in (ROWS + round * 100)..(ROWS + round * 100 + 100) {
            insert(&mut s, &t, n, &text(6)).unwrap();
            rows.insert(n, text(6));
        }
        s.commit(false).unwrap();
        engine.checkpoint().unwrap();
        assert!(metric(&engine, "recovery_pages_left") > 10);
        drop((s, t));
        crash(&disk, 50 + round, engine);
    }
    let engine = open(&disk, config());
    wait_until("the sweep", || metric(&engine, "recovery_pages_left") == 0);
    has_rows(&engine, &rows);
}

/// A table whose pages are nowhere goes, and one with the same name comes.
#[test]
fn a_table_of_pages_that_are_nowhere_is_dropped() {
    let disk = SimStorage::new(38);
    crashed_unwritten(&disk);
    let engine = open(&disk, no_sweep());
    assert!(metric(&engine, "recovery_pages_left") > 20);
    engine.drop_table("d/t", &CALLER).unwrap();
    assert_eq!(metric(&engine, "recovery_pages_left"), 0);
    let t = create(&engine, "d/t");
    let mut s = Session::new(&engine, 0, 1);
    for n in 0..500 {
        insert(&mut s, &t, n, &text(9)).unwrap();
    }
    s.commit(false).unwrap();
    let rows: BTreeMap<u64, Vec<u8>> = (0..500).map(|n| (n, text(9))).collect();
    drop((s, t));
    crash(&disk, 60, engine);
    has_rows(&open(&disk, no_sweep()), &rows);
}

/// The log cannot get shorter for a damaged page: nobody waits for that.
fn writes_beyond_the_budget(disk: &SimStorage) {
    let engine = open(disk, config());
    let t = create(&engine, "d/other");
    let mut s = Session::new(&engine, 0, 1);
    let mut waits = [0; 3];
    for (round, waited) in waits.iter_mut().enumerate() {
        let before = metric(&engine, "waits_log_budget");
        for n in 0..8000 {
            insert(&mut s, &t, round as u64 * 8000 + n, &text(1)).unwrap();
        }
        s.commit(false).unwrap();
        *waited = metric(&engine, "waits_log_budget") - before;
    }
    assert!(metric(&engine, "checkpoint_age") > config().log_budget_bytes);
    // One or two, while rounds of merging that did not meet the page said that they go well.
    assert!(waits[2] < 10, "{waits:?}");
    drop((s, t));
    let closed = engine.close();
    assert!(matches!(closed, Err(Error::Corrupt(_))), "{closed:?}");
}

/// Writes a granule of the store, and gives what was there.
fn write_granule(storage: &dyn Storage, at: u64, bytes: &[u8; 1024]) -> [u8; 1024] {
    let file = storage.open("store.0000", OpenMode::ReadWrite, false);
    let file = file.unwrap();
    let mut before = [0; 1024];
    file.read_at(&mut before, at).unwrap();
    file.write_at(bytes, at).unwrap();
    file.sync_data().unwrap();
    before
}

/// A database that opened although the page of a row could not be read.
struct Damaged {
    engine: Arc<Engine>,
    storage: Arc<dyn Storage>,
    row: u64,
    /// What belongs there.
    granule: (u64, [u8; 1024]),
}

impl Damaged {
    fn open(seed: u64, row: u64, config: Config) -> Damaged {
        let disk = SimStorage::new(seed);
        let at = crashed_beside_page_of(&disk, row);
        let storage: Arc<dyn Storage> = Arc::new(disk.boot());
        let granule = (at, write_granule(&*storage, at, &[0xee; 1024]));
        let engine = Engine::open(config, storage.clone(), Arc::new(SilentCallbacks)).unwrap();
        Damaged {
            engine,
            storage,
            row,
            granule,
        }
    }

    /// The page can be read again, and has all of its changes then.
    fn repair(self) {
        let t = self.engine.dict().open_table("d/t").unwrap();
        let mut s = Session::new(&self.engine, 0, 1);
        let read = row(&mut s, &t, self.row);
        assert!(matches!(read, Err(Error::Corrupt(_))), "{read:?}");
        write_granule(&*self.storage, self.granule.0, &self.granule.1);
        assert_eq!(row(&mut s, &t, self.row), Ok(text(2)));
        s.commit(false).unwrap();
        check(&self.engine, &t);
        drop((s, t));
        self.engine.close().unwrap();
    }
}

/// When the sweep is over the pages that are left have copies of their redo, and the rest of it is given back.
#[test]
fn a_page_that_can_be_read_again_after_the_sweep_is_redone() {
    let sweeps = Config {
        manual_background: false,
        ..no_sweep()
    };
    let damaged = Damaged::open(35, 2000, sweeps);
    let t = damaged.engine.dict().open_table("d/t").unwrap();
    let changes = t.tree(0).pool().change_buffer();
    wait_until("copies of the redo", || {
        metric(&damaged.engine, "recovery_pages_left") == 1 && changes.bytes() > 200
    });
    let (own, all) = (changes.bytes(), changes.memory_bytes());
    let (engine, pool) = (damaged.engine.clone(), t.tree(0).pool().clone());
    drop(t);
    damaged.repair();
    let left = pool.change_buffer().memory_bytes();
    assert_eq!(left, all - own, "more than copies");
    assert_eq!(metric(&engine, "recovery_pages_left"), 0);
}

/// A page cannot be read, and its records are in many batches: they are kept one after the other.
#[test]
fn a_damaged_page_of_many_batches_is_redone_once_it_can_be_read() {
    let in_batches = Config {
        recovery_memory_bytes: 32 << 10,
        ..no_sweep()
    };
    let damaged = Damaged::open(36, HOT, in_batches);
    let t = damaged.engine.dict().open_table("d/t").unwrap();
    let kept = t.tree(0).pool().change_buffer().bytes();
    assert!(kept > HOT_UPDATES * 20, "{kept} bytes are kept");
    drop(t);
    damaged.repair();
}

/// A read of a page fails while it is redone at the start: the database opens, and who reads the page redoes it.
#[test]
fn a_page_that_the_device_does_not_give_is_redone_when_it_does() {
    let disk = SimStorage::new(38);
    crashed(&disk);
    let at_once = Config {
        recovery_puts_off: Some(false),
        ..no_sweep()
    };
    for nth in [40, 60, 80] {
        disk.inject_in(Fault::FailRead, nth, "store.0000");
    }
    let engine = open(&disk, at_once);
    assert!(metric(&engine, "recovery_pages_left") > 0, "no read failed");
    disk.clear_faults();
    has_rows(&engine, &all(2));
}

#[test]
fn a_damaged_page_is_missed_by_who_needs_it_alone() {
    let disk = SimStorage::new(33);
    let at = crashed_beside_page_of(&disk, 2000);
    write_granule(&disk.boot(), at, &[0xee; 1024]);
    for config in [no_sweep(), config()] {
        let engine = open(&disk, config);
        let t = engine.dict().open_table("d/t").unwrap();
        let mut s = Session::new(&engine, 0, 1);
        assert_eq!(row(&mut s, &t, 7), Ok(text(2)));
        let read = row(&mut s, &t, 2000);
        assert!(matches!(read, Err(Error::Corrupt(_))), "{read:?}");
        // What is committed now survives, although the log cannot get shorter.
        update(&mut s, &t, 8, &text(2), &text(2)).unwrap();
        s.commit(false).unwrap();
        drop((s, t));
        let closed = engine.close();
        assert!(matches!(closed, Err(Error::Corrupt(_))), "{closed:?}");
    }
    writes_beyond_the_budget(&disk);
    let engine = open(&disk, config());
    engine.drop_table("d/t", &CALLER).unwrap();
    assert_eq!(metric(&engine, "recovery_pages_left"), 0);
    engine.close().unwrap();
    drop(engine);
    let engine = open(&disk, no_sweep());
    assert_eq!(metric(&engine, "recovery_log_bytes"), 0);
    engine.close().unwrap();
}

/// After a clean shutdown the pages that were in memory come back by themselves; a list that is damaged, or that
/// names pages which are no more, costs nothing but that.
#[test]
fn pages_that_were_in_memory_are_read_again() {
    let disk = SimStorage::new(34);
    filled(&disk);
    let sweeps = Config {
        manual_background: false,
        ..no_sweep()
    };
    let engine = open(&disk, sweeps.clone());
    wait_until("the warm start", || {
        metric(&engine, "warm_start_pages") > 30
    });
    let t = engine.dict().open_table("d/t").unwrap();
    let leaf = t.tree(0).leaf_of(&key(2000)).unwrap();
    wait_until("the leaf", || !t.tree(0).pool().is_away(leaf));
    let mut s = Session::new(&engine, 0, 1);
    assert_eq!(scan(&mut s, &t, 0), all(1));
    s.commit(false).unwrap();
    check(&engine, &t);
    engine.close().unwrap();
    drop((s, t, engine));
    // The list stays, the table goes.
    let list = disk.contents("warm.pages").unwrap();
    let engine = open(&disk, no_sweep());
    engine.drop_table("d/t", &CALLER).unwrap();
    engine.close().unwrap();
    drop(engine);
    let mut damaged = list.clone();
    damaged[30] ^= 1;
    for list in [list, damaged] {
        let storage = disk.boot();
        let file = storage
            .open("warm.pages", OpenMode::ReadWrite, false)
            .unwrap();
        file.truncate(0).unwrap();
        file.write_at(&list, 0).unwrap();
        drop((file, storage));
        let engine = open(&disk, sweeps.clone());
        let t = create(&engine, "d/u");
        let mut s = Session::new(&engine, 0, 1);
        for n in 0..ROWS {
            insert(&mut s, &t, n, &text(3)).unwrap();
        }
        s.commit(false).unwrap();
        check(&engine, &t);
        assert_eq!(scan(&mut s, &t, 0), all(3));
        s.commit(false).unwrap();
        drop((s, t));
        engine.drop_table("d/u", &CALLER).unwrap();
        assert_eq!(metric(&engine, "warm_start_pages"), 0);
        engine.close().unwrap();
    }
}
