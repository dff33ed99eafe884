//! Races of locking scans at the ends of leaves, as small specs: story, order of stops, expected
//! result. One test at a time: the places where they stop belong to the process.

mod common;

use common::{config, open_as};
use ferrite_engine::{
    Callbacks, Config, Cursor, DupInfo, Engine, Entry, IndexSpec, Isolation, LogLevel, ReadMode,
    SeekMode, Session, Table, TableSpec, WaitMode,
};
use ferrite_io::sim::SimStorage;
use ferrite_sync::stop::{arm_nth, disarm, hits, Action};
use ferrite_sync::Arc;
use ferrite_types::Error;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard};

fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(|e| e.into_inner())
}

fn open_with(disk: &SimStorage, callbacks: Arc<Killer>) -> Arc<Engine> {
    let config = Config {
        lock_fold_after: 3,
        ..config()
    };
    Engine::open(config, Arc::new(disk.boot()), callbacks).unwrap()
}

fn create_with_index(engine: &Engine) -> Arc<Table> {
    let indexes = vec![
        IndexSpec::new("PRIMARY", true, 1),
        IndexSpec::new("k", false, 1),
    ];
    let spec = TableSpec::new("d/t", indexes);
    engine.dict().create_table(spec, 1).unwrap()
}

fn number(pk: &[u8]) -> u64 {
    u64::from_be_bytes(pk.try_into().unwrap())
}

fn create(engine: &Engine) -> Arc<Table> {
    let spec = TableSpec::new("d/t", vec![IndexSpec::new("PRIMARY", true, 1)]);
    engine.dict().create_table(spec, 1).unwrap()
}

fn insert(s: &mut Session, t: &Arc<Table>, n: u64) -> Result<(), Error> {
    let mut dup = DupInfo::default();
    s.insert_row(t, Some(&n.to_be_bytes()), &[0; 2000], &[], false, &mut dup)
        .map(|_| ())
}

fn locked(s: &mut Session, t: &Arc<Table>) -> Vec<u64> {
    let mut c = Cursor::new(t, 0, ReadMode::Shared, WaitMode::Wait);
    let mut rows = Vec::new();
    let mut moved = c.first(s).map(|_| ());
    while moved.is_ok() {
        rows.push(u64::from_be_bytes(
            c.current().unwrap().pk.try_into().unwrap(),
        ));
        moved = c.next(s).map(|_| ());
    }
    assert_eq!(moved, Err(Error::NotFound));
    rows
}

/// Story: a scan with gap locks is between two leaves; another session inserts at the end of
/// the leaf that the scan has left, and commits.
/// Stops: scan at `cursor.leaf_left`; insert; commit; scan goes on.
/// Expected: the scan has the row, and a second scan has the same rows as the first.
#[test]
fn a_row_at_the_end_of_a_leaf_is_not_missed() {
    let _alone = alone();
    let disk = SimStorage::new(1);
    let engine = open_as(&disk, config());
    let t = create(&engine);
    let mut s = Session::new(&engine, 0, 1);
    (0..30).for_each(|n| insert(&mut s, &t, n * 10).unwrap());
    s.commit(false).unwrap();
    let (e, table) = (engine.clone(), t.clone());
    let leave = move || {
        disarm("cursor.leaf_left");
        let mut other = Session::new(&e, 0, 2);
        other.begin_statement(Isolation::RepeatableRead);
        other.set_lock_wait_timeout_ms(0);
        // Behind whatever row was the last on its leaf: only one of these gaps is not locked.
        for n in (0..30).map(|n| n * 10 + 5) {
            match insert(&mut other, &table, n) {
                Ok(()) => break,
                Err(e) => assert_eq!(e, Error::LockTimeout),
            }
        }
        other.commit(false).unwrap();
    };
    arm_nth("cursor.leaf_left", 1, Action::callback(leave));
    s.begin_statement(Isolation::RepeatableRead);
    let first = locked(&mut s, &t);
    assert_eq!(hits("cursor.leaf_left"), 0, "the place is disarmed by then");
    let second = locked(&mut s, &t);
    assert_eq!(first, second);
    assert_eq!(first.len(), 31);
    s.commit(false).unwrap();
    drop(s);
    engine.close().unwrap();
}

/// One scan, and where it is stopped.
#[derive(Clone, Copy, Debug)]
struct Case {
    index_no: usize,
    ascending: bool,
    /// Every third row is delete-marked.
    deleted: bool,
    /// The scan is killed there, too.
    killed: bool,
    /// At which leaf it is stopped.
    nth: u64,
}

/// A server on which a statement can be killed.
struct Killer(AtomicBool);

impl Callbacks for Killer {
    fn log(&self, _level: LogLevel, _text: &str) {}
    fn is_killed(&self, thd: usize) -> bool {
        thd == SCANNER && self.0.swap(false, Ordering::SeqCst)
    }
    fn fatal(&self, text: &str) {
        panic!("{text}");
    }
}

const SCANNER: usize = 7;
const ROWS: u64 = 60;

/// Both entries are large, so that there are many leaves.
fn secondary(n: u64) -> Vec<u8> {
    [&n.to_be_bytes()[..], &[0; 1200]].concat()
}

fn insert_both(s: &mut Session, t: &Arc<Table>, n: u64) -> Result<(), Error> {
    let key = secondary(n);
    let entry = Entry {
        index_no: 1,
        check_unique: false,
        key: &key,
        payload: b"",
    };
    let dup = &mut DupInfo::default();
    s.insert_row(t, Some(&n.to_be_bytes()), &[0; 2000], &[entry], false, dup)
        .map(|_| ())
}

fn delete_both(s: &mut Session, t: &Arc<Table>, n: u64) -> Result<(), Error> {
    let key = secondary(n);
    let entry = Entry {
        index_no: 1,
        check_unique: false,
        key: &key,
        payload: b"",
    };
    s.delete_row(t, &n.to_be_bytes(), &[entry])
}

impl Case {
    fn begin(&self, c: &mut Cursor, s: &mut Session) -> Result<u64, Error> {
        let row = match self.ascending {
            true => c.first(s),
            false => c.last(s),
        };
        row.map(|row| number(row.pk))
    }

    fn go_on(&self, c: &mut Cursor, s: &mut Session) -> Result<u64, Error> {
        let row = match self.ascending {
            true => c.next(s),
            false => c.prev(s),
        };
        row.map(|row| number(row.pk))
    }

    /// A session that has the entry of that row locked.
    fn lock(&self, e: &Arc<Engine>, t: &Arc<Table>, n: u64) -> Result<Session, Error> {
        let mut other = Session::new(e, 0, 3);
        other.set_lock_wait_timeout_ms(0);
        other.begin_statement(Isolation::RepeatableRead);
        let mut c = Cursor::new(t, self.index_no, ReadMode::Exclusive, WaitMode::Wait);
        let key = match self.index_no {
            0 => n.to_be_bytes().to_vec(),
            _ => secondary(n),
        };
        c.seek(&mut other, &key, SeekMode::Exact, true)?;
        Ok(other)
    }

    /// Two rows come into the open gap next to the scan, and a third session locks the second.
    fn interfere(&self, e: &Arc<Engine>, t: &Arc<Table>) -> Option<(u64, Session)> {
        let mut other = Session::new(e, 0, 2);
        other.set_lock_wait_timeout_ms(0);
        // What the scan has passed is closed, but for the end of the leaf that it has left.
        let all = (1..ROWS).map(|n| if self.ascending { n } else { ROWS - n } * 10);
        let free = all.into_iter().find(|n| {
            other.begin_statement(Isolation::RepeatableRead);
            let came = insert_both(&mut other, t, n + 5).and(insert_both(&mut other, t, n + 6));
            came.is_ok() || other.rollback().is_err()
        });
        other.commit(false).unwrap();
        let row = free? + 6;
        Some((row, self.lock(e, t, row).unwrap()))
    }

    /// True if a row came in the way of the scan.
    fn run(&self) -> bool {
        let disk = SimStorage::new(3);
        let killer = Arc::new(Killer(AtomicBool::new(false)));
        let engine = open_with(&disk, killer.clone());
        let t = create_with_index(&engine);
        engine.set("purge_paused", 1).unwrap();
        let mut s = Session::new(&engine, SCANNER, 1);
        // Not in order, so that the leaves have room.
        (1..=ROWS).for_each(|n| insert_both(&mut s, &t, n * 22 % 61 * 10).unwrap());
        s.commit(false).unwrap();
        let gone = |n: &u64| self.deleted && n % 30 == 0;
        let dead = (1..=ROWS).map(|n| n * 10).filter(gone);
        dead.for_each(|n| delete_both(&mut s, &t, n).unwrap());
        s.commit(false).unwrap();
        let locker = Arc::new(Mutex::new(None));
        let (case, e, table, held) = (*self, engine.clone(), t.clone(), locker.clone());
        let leave = move || {
            disarm("cursor.leaf_left");
            *held.lock().unwrap() = case.interfere(&e, &table);
            killer.0.store(case.killed, Ordering::SeqCst);
        };
        s.begin_statement(Isolation::RepeatableRead);
        s.set_lock_wait_timeout_ms(20);
        arm_nth("cursor.leaf_left", self.nth, Action::callback(leave));
        let met = self.scan(&mut s, &t, &locker);
        disarm("cursor.leaf_left");
        let left = locker.lock().unwrap().take().map(|(row, _)| row);
        assert_eq!(left, None, "the row is not met: {self:?}");
        for (row, _) in met.iter().zip(1..).filter(|(_, n)| n % 5 == 0) {
            let got = self.lock(&engine, &t, *row).map(|_| ());
            assert_eq!(got, Err(Error::LockTimeout), "row {row} after {self:?}");
        }
        let came = met.iter().filter(|n| *n % 10 == 6).count();
        let dead = (1..=ROWS).map(|n| n * 10).filter(gone).count();
        assert_eq!(
            met.len() + dead,
            ROWS as usize + 2 * came,
            "{met:?} {self:?}"
        );
        s.rollback().unwrap();
        drop((s, t));
        engine.close().unwrap();
        came > 0
    }

    /// All rows that the scan meets. It goes on after it was killed, and after it had waited too
    /// long: at the row that is locked, which is let go then.
    fn scan(&self, s: &mut Session, t: &Arc<Table>, locker: &Locker) -> Vec<u64> {
        let mut c = Cursor::new(t, self.index_no, ReadMode::Exclusive, WaitMode::Wait);
        let mut met = Vec::new();
        let mut moved = self.begin(&mut c, s);
        loop {
            match moved {
                Ok(row) => {
                    let held = locker.lock().unwrap().as_ref().map(|(row, _)| *row);
                    assert_ne!(held, Some(row), "it is locked: {self:?}");
                    met.push(row);
                }
                Err(Error::Interrupted) => {}
                Err(Error::LockTimeout) => {
                    let (row, _) = locker
                        .lock()
                        .unwrap()
                        .take()
                        .expect("one that stands there");
                    moved = self.go_on(&mut c, s);
                    assert_eq!(moved, Ok(row), "after the wait: {self:?}");
                    continue;
                }
                Err(e) => {
                    assert_eq!(e, Error::NotFound);
                    return met;
                }
            }
            moved = self.go_on(&mut c, s);
        }
    }
}

/// Who has a row locked, and which.
type Locker = Mutex<Option<(u64, Session)>>;

/// Story: a scan keeps its locks in a range, and is between two leaves. Two rows come at the end of
/// the leaf that it has left, and somebody locks the second. The scan has locked the first row of the
/// next leaf by then, sees that the leaf has changed, and goes back.
/// Stops: scan at the n-th `cursor.leaf_left`; inserts; commit; the other's lock; scan goes on.
/// Expected: its range does not reach over the row that the other has locked: it waits for it. It
/// meets every row once and has them locked, however often it had to stop.
#[test]
fn a_range_does_not_reach_over_a_row_that_another_has_locked() {
    let _alone = alone();
    let mut came = 0;
    for variant in 0..16u64 {
        let bit = |n: u32| variant >> n & 1 == 1;
        for nth in 1..=4 {
            let case = Case {
                index_no: usize::from(bit(0)),
                ascending: bit(1),
                deleted: bit(2),
                killed: bit(3),
                nth: nth * 2 - variant % 2,
            };
            came += u32::from(case.run());
        }
    }
    assert!(came > 40, "{came}");
}
