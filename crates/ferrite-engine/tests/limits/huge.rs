//! Transactions whose row versions do not fit memory: commit, rollback, and the snapshots that
//! read the old rows meanwhile.

use ferrite_engine::{
    Callbacks, Config, Cursor, DupInfo, Engine, IndexSpec, LogLevel, ReadMode, RowChange, Session,
    Table, TableSpec, WaitMode,
};
use ferrite_io::sim::{Fault, SimStorage};
use ferrite_io::Storage;
use ferrite_sync::{thread, time, Arc, Mutex};
use ferrite_types::Error;

const ROWS: u64 = 200_000;
const RING: u64 = 1 << 20;

#[derive(Default)]
struct Server {
    warnings: Mutex<Vec<String>>,
}

impl Callbacks for Server {
    fn log(&self, level: LogLevel, text: &str) {
        if matches!(level, LogLevel::Warning) {
            self.warnings.lock().push(text.into());
        }
    }
    fn fatal(&self, text: &str) {
        panic!("{text}");
    }
}

struct World {
    disk: SimStorage,
    server: Arc<Server>,
    engine: Arc<Engine>,
    table: Arc<Table>,
    rows: u64,
}

impl World {
    fn new(rows: u64) -> World {
        let disk = SimStorage::new(1);
        let server = Arc::new(Server::default());
        let config = Config {
            buffer_pool_size_bytes: 64 << 20,
            history_ring_bytes: RING,
            flush_log_at_commit: 0,
            direct_io: false,
            ..Config::default()
        };
        let storage: Arc<dyn Storage> = Arc::new(disk.boot());
        let engine = Engine::open(config, storage, server.clone()).unwrap();
        let primary = IndexSpec::new("PRIMARY", true, 1);
        let spec = TableSpec::new("t", vec![primary]);
        let table = engine.dict().create_table(spec, 1).unwrap();
        let world = World {
            disk,
            server,
            engine,
            table,
            rows,
        };
        let mut s = world.session();
        for n in 0..rows {
            let (row, mut dup) = (row(n, 0), DupInfo::default());
            s.insert_row(&world.table, Some(&key(n)), &row, &[], false, &mut dup)
                .unwrap();
        }
        s.commit(false).unwrap();
        world
    }

    fn session(&self) -> Session {
        Session::new(&self.engine, 0, 0)
    }

    /// A session whose snapshot is open.
    fn reader(&self) -> Session {
        let mut s = self.session();
        let mut cursor = Cursor::new(&self.table, 0, ReadMode::Snapshot, WaitMode::Wait);
        assert_eq!(cursor.get(&mut s, &key(0)).unwrap().payload, row(0, 0));
        s
    }

    fn update_all(&self, s: &mut Session, round: u8) {
        for n in 0..self.rows {
            let (row, mut dup) = (row(n, round), DupInfo::default());
            s.update_row(
                &self.table,
                &RowChange {
                    old_pk: &key(n),
                    new_pk: &key(n),
                    payload: &row,
                    removed: &[],
                    added: &[],
                },
                &mut dup,
            )
            .unwrap();
        }
    }

    /// Reads everything; the error that ended it, and how many rows were of that round.
    fn scan(&self, s: &mut Session, round: u8) -> (u64, Error) {
        let mut cursor = Cursor::new(&self.table, 0, ReadMode::Snapshot, WaitMode::Wait);
        let mut n = 0;
        let mut more = cursor.first(s).map(|_| ());
        loop {
            match more {
                // What was in memory when the cursor came there may have to be read by now.
                Ok(()) => match cursor.fetch_row(s) {
                    Ok(found) => {
                        assert_eq!(found.payload, row(n, round), "{n}");
                        n += 1;
                    }
                    Err(e) => return (n, e),
                },
                Err(e) => return (n, e),
            }
            more = cursor.next(s).map(|_| ());
        }
    }

    fn check(&self, s: &mut Session, round: u8) {
        assert_eq!(self.scan(s, round), (self.rows, Error::NotFound));
    }

    fn metric(&self, name: &str) -> u64 {
        let metrics = self.engine.metrics();
        let found = metrics.iter().find(|m| m.name == name);
        found.unwrap_or_else(|| panic!("no {name}")).value
    }

    /// Versions in memory once retirement has caught up.
    fn settled_bytes(&self) -> u64 {
        self.wait_for(|w| w.metric("history_ring_bytes") <= RING);
        self.metric("history_bytes")
    }

    /// How many ms it took.
    fn wait_for(&self, what: impl Fn(&World) -> bool) -> u64 {
        let start = time::now_us();
        while !what(self) {
            assert!(time::now_us() - start < 60_000_000, "waited too long");
            thread::sleep_ms(5);
        }
        (time::now_us() - start) / 1000
    }
}

fn key(n: u64) -> [u8; 8] {
    n.to_be_bytes()
}

/// No part of it is the same in two rounds but the number in front.
fn row(n: u64, round: u8) -> Vec<u8> {
    let mut row = vec![round; 60];
    row[0] = 0;
    row[1..9].copy_from_slice(&key(n));
    row
}

#[test]
fn a_huge_update_is_bounded_and_its_commit_gives_everything_back() {
    let w = World::new(ROWS);
    let (mut old, mut s) = (w.reader(), w.session());
    let start = time::now_us();
    w.update_all(&mut s, 1);
    eprintln!("update: {} ms", (time::now_us() - start) / 1000);
    let bytes = w.settled_bytes();
    assert!(bytes <= 2 * RING, "{bytes}");
    assert!(w.metric("history_spilled_bytes") > ROWS * 70);
    assert!(w.metric("versions_spilled") > ROWS / 2);
    w.check(&mut old, 0);
    w.check(&mut s, 1);
    // The old snapshot keeps reading its rows after the commit, and keeps memory bounded.
    s.commit(false).unwrap();
    w.update_all(&mut s, 2);
    s.commit(false).unwrap();
    w.check(&mut old, 0);
    let bytes = w.settled_bytes();
    assert!(bytes <= 2 * RING, "{bytes}");
    old.commit(false).unwrap();
    let ms = w.wait_for(|w| w.metric("history_spilled_bytes") == 0);
    eprintln!("all given back after {ms} ms");
    w.check(&mut s, 2);
    w.engine.close().unwrap();
    assert!(!w
        .disk
        .list()
        .unwrap()
        .iter()
        .any(|n| n.starts_with("history.")));
}

#[test]
fn a_huge_rollback_restores_every_row() {
    let w = World::new(ROWS);
    let (mut old, mut s) = (w.reader(), w.session());
    w.update_all(&mut s, 1);
    w.check(&mut old, 0);
    let start = time::now_us();
    s.rollback().unwrap();
    eprintln!("rollback: {} ms", (time::now_us() - start) / 1000);
    w.check(&mut old, 0);
    w.check(&mut s, 0);
    s.commit(false).unwrap();
    old.commit(false).unwrap();
    w.wait_for(|w| w.metric("history_spilled_bytes") == 0);
    w.engine.close().unwrap();
}

#[test]
fn a_statement_that_changes_rows_again_and_its_rollback() {
    let w = World::new(ROWS / 8);
    let (mut old, mut s) = (w.reader(), w.session());
    w.update_all(&mut s, 1);
    let savepoint = s.undo_position();
    w.update_all(&mut s, 2);
    w.check(&mut old, 0);
    s.rollback_to(savepoint).unwrap();
    w.check(&mut old, 0);
    w.check(&mut s, 1);
    s.rollback().unwrap();
    w.check(&mut old, 0);
    w.engine.close().unwrap();
}

#[test]
fn a_failed_read_is_an_error_and_a_full_disk_is_not() {
    let w = World::new(ROWS / 8);
    let (mut old, mut s) = (w.reader(), w.session());
    w.check(&mut old, 0);
    w.update_all(&mut s, 1);
    w.wait_for(|w| w.metric("history_spilled_bytes") > 0 && w.metric("history_ring_bytes") <= RING);
    w.disk.inject_in(Fault::FailRead, 1, "history.");
    let (n, e) = w.scan(&mut old, 0);
    assert!(matches!(e, Error::Io(_)) && n < w.rows, "{n} {e:?}");
    w.check(&mut old, 0);
    s.commit(false).unwrap();
    for nth in 1..200 {
        w.disk.inject_in(Fault::Full, nth, "history.");
    }
    w.update_all(&mut s, 2);
    w.wait_for(|w| w.metric("history_spill_failures") > 0);
    w.check(&mut old, 0);
    w.wait_for(|w| !w.server.warnings.lock().is_empty());
    w.disk.clear_faults();
    s.rollback().unwrap();
    w.check(&mut old, 0);
    w.engine.close().unwrap();
    let warnings = w.server.warnings.lock().clone();
    assert!(
        warnings.len() == 1 && warnings[0].contains("disk full"),
        "{warnings:?}"
    );
}
