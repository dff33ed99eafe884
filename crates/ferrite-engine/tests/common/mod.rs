//! What the tests of the engine on the simulated disk have in common: a table with rows of
//! number, text and two secondary indexes.

#![allow(dead_code)]

pub mod wide;

use ferrite_engine::snapshots::ServerState;
use ferrite_engine::{
    Callbacks, Config, Cursor, DupInfo, Engine, Entry, IndexSpec, LogLevel, ReadMode, RowChange,
    Session, SilentCallbacks, Table, TableSpec, WaitMode, Xid,
};
use ferrite_io::sim::SimStorage;
use ferrite_io::Storage;
use ferrite_sync::random::Rng;
use ferrite_sync::{Arc, Mutex};
use ferrite_types::format::Packing;
use ferrite_types::Error;
use std::collections::BTreeMap;

pub fn config() -> Config {
    Config {
        buffer_pool_size_bytes: 4 << 20,
        log_budget_bytes: 4 << 20,
        log_segment_bytes: 1 << 20,
        log_ring_bytes: 4 << 20,
        history_ring_bytes: 1 << 20,
        direct_io: false,
        ..Config::default()
    }
}

pub fn open(disk: &SimStorage) -> Arc<Engine> {
    let storage: Arc<dyn Storage> = Arc::new(disk.boot());
    Engine::open(config(), storage, Arc::new(SilentCallbacks)).unwrap()
}

/// A new database on a disk of that seed, its table `d/t`, and a session.
pub fn database(seed: u64) -> (SimStorage, Arc<Engine>, Arc<Table>, Session) {
    let disk = SimStorage::new(seed);
    let engine = open(&disk);
    let t = create(&engine, "d/t");
    let s = Session::new(&engine, 0, 1);
    (disk, engine, t, s)
}

pub fn index(name: &str, unique: bool) -> IndexSpec {
    IndexSpec::new(name, unique, 1)
}

pub fn create(engine: &Engine, name: &str) -> Arc<Table> {
    create_as(engine, name, false)
}

pub fn create_as(engine: &Engine, name: &str, temporary: bool) -> Arc<Table> {
    let spec = TableSpec {
        temporary,
        definition: b"definition".to_vec(),
        ..TableSpec::new(
            name,
            vec![index("PRIMARY", true), index("k", false), index("u", true)],
        )
    };
    engine.dict().create_table(spec, 1).unwrap()
}

pub fn create_packed(engine: &Engine, name: &str, packing: Packing) -> Arc<Table> {
    let indexes = vec![index("PRIMARY", true), index("k", false), index("u", true)];
    let spec = TableSpec {
        packing,
        ..TableSpec::new(name, indexes)
    };
    engine.dict().create_table(spec, 1).unwrap()
}

pub fn key(n: u64) -> [u8; 8] {
    n.to_be_bytes()
}

/// A row: payload without overflow references, `k` = payload's length, `u` = the number.
pub fn insert(s: &mut Session, t: &Arc<Table>, n: u64, text: &[u8]) -> Result<(), Error> {
    let mut payload = vec![0u8];
    payload.extend_from_slice(text);
    let (k, u) = (key(text.len() as u64), key(n * 7));
    let entries = entries(&k, &u);
    s.insert_row(
        t,
        Some(&key(n)),
        &payload,
        &entries,
        false,
        &mut DupInfo::default(),
    )
    .map(|_| ())
}

pub fn entries<'a>(k: &'a [u8], u: &'a [u8]) -> [Entry<'a>; 2] {
    let entry = |index_no, check_unique, key| Entry {
        index_no,
        check_unique,
        key,
        payload: b"",
    };
    [entry(1, false, k), entry(2, true, u)]
}

pub fn update(
    s: &mut Session,
    t: &Arc<Table>,
    n: u64,
    old: &[u8],
    text: &[u8],
) -> Result<(), Error> {
    let mut payload = vec![0u8];
    payload.extend_from_slice(text);
    let (k_old, k_new) = (key(old.len() as u64), key(text.len() as u64));
    let u = key(n * 7);
    let removed = entries(&k_old, &u);
    let added = entries(&k_new, &u);
    s.update_row(
        t,
        &RowChange {
            old_pk: &key(n),
            new_pk: &key(n),
            payload: &payload,
            removed: &removed[..1],
            added: &added[..1],
        },
        &mut DupInfo::default(),
    )
}

pub fn delete(s: &mut Session, t: &Arc<Table>, n: u64, old: &[u8]) -> Result<(), Error> {
    let (k, u) = (key(old.len() as u64), key(n * 7));
    s.delete_row(t, &key(n), &entries(&k, &u))
}

pub fn scan(s: &mut Session, t: &Arc<Table>, index_no: usize) -> BTreeMap<u64, Vec<u8>> {
    let mut cursor = Cursor::new(t, index_no, ReadMode::Snapshot, WaitMode::Wait);
    let mut rows = BTreeMap::new();
    let mut more = cursor.first(s).map(|_| ());
    while more.is_ok() {
        let pk = u64::from_be_bytes(cursor.current().unwrap().pk.try_into().unwrap());
        let text = cursor.fetch_row(s).unwrap().payload[1..].to_vec();
        assert!(rows.insert(pk, text).is_none(), "row {pk} twice");
        more = cursor.next(s).map(|_| ());
    }
    assert_eq!(more, Err(Error::NotFound));
    rows
}

pub fn check(engine: &Arc<Engine>, t: &Arc<Table>) {
    let mut s = Session::new(engine, 0, 0);
    s.check_table(t, false, &mut |line| panic!("{line}"))
        .unwrap();
}

/// The machine is off: the log's threads notice and die.
pub fn give_up(engine: &Arc<Engine>) {
    let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| engine.abandon()));
}

pub fn metric(engine: &Engine, name: &str) -> u64 {
    let all = engine.metrics();
    all.iter().find(|m| m.name == name).expect(name).value
}

/// What the engine has said.
#[derive(Default)]
pub struct Heard(Mutex<Vec<String>>);

impl Heard {
    pub fn has(&self, what: &str) -> bool {
        self.0.lock().iter().any(|text| text.contains(what))
    }
}

impl Heard {
    /// How many lines have that.
    pub fn count(&self, what: &str) -> usize {
        self.0.lock().iter().filter(|t| t.contains(what)).count()
    }
}

impl Callbacks for Heard {
    fn log(&self, _level: LogLevel, text: &str) {
        self.0.lock().push(text.to_owned());
    }
    fn fatal(&self, _text: &str) {}
}

pub fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    for _ in 0..12_000 {
        if done() {
            return;
        }
        ferrite_sync::thread::sleep_ms(5);
    }
    panic!("{what} does not come");
}

/// Waits until the log has not grown for a second: what goes on in the background has ended, or waits.
pub fn wait_for_still_log(engine: &Engine) {
    let mut last = (metric(engine, "lsn_current"), 0);
    wait_until("a log that grows no more", || {
        ferrite_sync::thread::sleep_ms(50);
        let now = metric(engine, "lsn_current");
        last = (now, if now == last.0 { last.1 + 1 } else { 0 });
        last.1 > 20
    });
}

pub fn scan_back(s: &mut Session, t: &Arc<Table>, index_no: usize) -> BTreeMap<u64, Vec<u8>> {
    let mut cursor = Cursor::new(t, index_no, ReadMode::Snapshot, WaitMode::Wait);
    let mut rows = BTreeMap::new();
    let mut before: Option<Vec<u8>> = None;
    let mut more = cursor.last(s).map(|_| ());
    while more.is_ok() {
        let row = cursor.current().unwrap();
        let key = row.key.to_vec();
        assert!(before.is_none_or(|b| b > key), "out of order");
        before = Some(key);
        let pk = u64::from_be_bytes(row.pk.try_into().unwrap());
        let text = cursor.fetch_row(s).unwrap().payload[1..].to_vec();
        assert!(rows.insert(pk, text).is_none(), "row {pk} twice");
        more = cursor.prev(s).map(|_| ());
    }
    rows
}

/// The rows of a table by number.
pub type Rows = BTreeMap<u64, Vec<u8>>;

/// The table is sound; its rows as of now.
pub fn rows_of(engine: &Arc<Engine>, name: &str) -> Rows {
    let t = engine.dict().open_table(name).unwrap();
    check(engine, &t);
    let mut s = Session::new(engine, 0, 9);
    let rows = scan(&mut s, &t, 0);
    s.rollback().unwrap();
    rows
}

/// Some of the rows below that number change, vanish or come, in one transaction.
pub fn change_some_of(keys: u64, s: &mut Session, t: &Arc<Table>, rows: &mut Rows, rng: &mut Rng) {
    for _ in 0..40 {
        let n = rng.below(keys);
        let text = vec![rng.below(256) as u8; rng.between(10, 900) as usize];
        match rows.get(&n).cloned() {
            None => insert(s, t, n, &text).unwrap(),
            Some(old) if rng.chance(1, 5) => {
                delete(s, t, n, &old).unwrap();
                rows.remove(&n);
                continue;
            }
            Some(old) => match update(s, t, n, &old, &text) {
                Err(Error::Same) => {}
                other => other.unwrap(),
            },
        }
        rows.insert(n, text);
    }
    s.commit(false).unwrap();
}

/// The same, so many times.
pub fn many_of(
    keys: u64,
    s: &mut Session,
    t: &Arc<Table>,
    rows: &mut Rows,
    rng: &mut Rng,
    times: usize,
) {
    for _ in 0..times {
        change_some_of(keys, s, t, rows, rng);
    }
}

/// Takes a snapshot that is kept.
pub fn take(engine: &Arc<Engine>, name: &str) -> Result<(), Error> {
    let mut job = engine.begin_snapshot(name)?;
    job.fix();
    job.finish(&ServerState::default())
}

/// A name for a transaction to be prepared under.
pub fn xid(name: &str) -> Xid {
    Xid {
        format_id: 1,
        gtrid_len: name.len() as u32,
        data: name.into(),
    }
}
