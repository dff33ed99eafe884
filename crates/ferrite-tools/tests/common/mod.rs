//! A small database on the simulated disk, and what must be in it.

use ferrite_engine::offline::{MapFrom, Offline, Settled};
use ferrite_engine::{
    overflow_references, Config, Cursor, DupInfo, Engine, Entry, IndexSpec, Isolation, ReadMode,
    Session, SilentCallbacks, Table, TableSpec, WaitMode,
};
use ferrite_io::sim::SimStorage;
use ferrite_io::Storage;
use ferrite_sync::random::Rng;
use ferrite_sync::Arc;
use ferrite_tree::node;
use ferrite_types::{Error, Result};
use std::collections::BTreeMap;

/// Row payloads by key; a value out of line stands for its reference.
pub type Rows = BTreeMap<Vec<u8>, Vec<u8>>;

pub fn config() -> Config {
    Config {
        buffer_pool_size_bytes: 4 << 20,
        log_budget_bytes: 256 << 10,
        log_segment_bytes: 64 << 10,
        log_ring_bytes: 1 << 20,
        history_ring_bytes: 1 << 20,
        direct_io: false,
        manual_background: true,
        ..Config::default()
    }
}

pub fn open(disk: &SimStorage) -> Result<Arc<Engine>> {
    let storage: Arc<dyn Storage> = Arc::new(disk.boot());
    Engine::open(config(), storage, Arc::new(SilentCallbacks))
}

fn index(name: &str, unique: bool) -> IndexSpec {
    IndexSpec::new(name, unique, 1)
}

pub fn create(engine: &Engine, name: &str) -> Arc<Table> {
    let spec = TableSpec {
        definition: (0..3000).map(|i| (i % 251) as u8).collect(),
        ..TableSpec::new(name, vec![index("PRIMARY", true), index("k", false)])
    };
    engine.dict().create_table(spec, 1).unwrap()
}

/// The key of row `n`.
pub fn key(n: u64) -> [u8; 8] {
    n.to_be_bytes()
}

pub fn insert(s: &mut Session, t: &Arc<Table>, n: u64, text: &[u8]) {
    let mut payload = vec![0u8];
    if text.len() > 1000 {
        payload = vec![1u8];
        payload.extend_from_slice(s.write_overflow(t, text).unwrap().bytes());
    } else {
        payload.extend_from_slice(text);
    }
    let k = key(text.len() as u64);
    let entry = Entry {
        index_no: 1,
        check_unique: false,
        key: &k,
        payload: b"",
    };
    let mut dup = DupInfo::default();
    s.insert_row(t, Some(&key(n)), &payload, &[entry], false, &mut dup)
        .unwrap();
}

fn text(rng: &mut Rng, n: u64) -> Vec<u8> {
    let len = if n % 40 == 7 {
        20_000
    } else {
        20 + rng.below(200)
    };
    (0..len).map(|_| b'a' + rng.below(26) as u8).collect()
}

/// A database, the rows in it, and what they were before the last commit.
pub struct Sample {
    pub disk: SimStorage,
    pub rows: Rows,
    pub before_last: Rows,
}

/// Fills a database and closes it, or takes its power away with a log to apply and a
/// transaction that did not end. `rows`: about so many; a few have values out of line.
pub fn sample(seed: u64, clean: bool, rows: u64) -> Sample {
    let disk = SimStorage::new(seed);
    let mut rng = Rng::new(seed);
    let engine = open(&disk).unwrap();
    let t = create(&engine, "d/t");
    create(&engine, "d/empty");
    let mut s = Session::new(&engine, 0, 1);
    s.begin_statement(Isolation::RepeatableRead);
    for n in 0..rows {
        insert(&mut s, &t, n * 3, &text(&mut rng, n));
    }
    s.commit(false).unwrap();
    engine.checkpoint().unwrap();
    s.begin_statement(Isolation::RepeatableRead);
    for n in 0..rows / 6 {
        insert(&mut s, &t, n * 3 + 1, &text(&mut rng, n));
    }
    s.commit(false).unwrap();
    let before_last = read(&engine).unwrap();
    insert(&mut s, &t, 5000, b"the last one");
    s.commit(false).unwrap();
    let rows = read(&engine).unwrap();
    if clean {
        drop(s);
        engine.close().unwrap();
    } else {
        insert(&mut s, &t, 6000, b"never committed");
        engine.flush_log();
        disk.power_off();
        drop(s);
        // Whoever asks the log for durability without power panics: only in tests.
        let gone = std::panic::AssertUnwindSafe(|| engine.abandon());
        let _ = std::panic::catch_unwind(gone);
        disk.crash_clean();
    }
    Sample {
        disk,
        rows,
        before_last,
    }
}

/// All rows through a session, values out of line read.
pub fn read(engine: &Arc<Engine>) -> Result<Rows> {
    let t = engine.dict().open_table("d/t")?;
    let mut s = Session::new(engine, 0, 2);
    s.begin_statement(Isolation::RepeatableRead);
    let mut rows = Rows::new();
    for index_no in 0..2 {
        let mut cursor = Cursor::new(&t, index_no, ReadMode::Snapshot, WaitMode::Wait);
        let mut found = Rows::new();
        let mut more = cursor.first(&mut s).map(|_| ());
        while more.is_ok() {
            let pk = cursor.current().map(|row| row.pk.to_vec());
            let payload = cursor.fetch_row(&mut s)?.payload.to_vec();
            let whole = with_values(&payload, &mut |reference, out| {
                engine.read_overflow(reference, out)
            })?;
            let twice = found.insert(pk.unwrap_or_default(), whole);
            assert!(twice.is_none(), "a row twice");
            more = cursor.next(&mut s).map(|_| ());
        }
        match more {
            Err(Error::NotFound) if index_no == 0 => rows = found,
            Err(Error::NotFound) => assert_eq!(found, rows, "the index has other rows"),
            Err(e) => return Err(e),
            Ok(()) => unreachable!("the loop ends with an error"),
        }
    }
    s.commit(false)?;
    Ok(rows)
}

/// Reads the value that a reference names into a buffer of its length.
type Fetch<'f> = dyn FnMut(&ferrite_engine::OverflowRef, &mut [u8]) -> Result<()> + 'f;

fn with_values(payload: &[u8], fetch: &mut Fetch<'_>) -> Result<Vec<u8>> {
    let count = usize::from(payload.first().copied().unwrap_or(0));
    let mut whole = payload.get(1 + 16 * count..).unwrap_or(&[]).to_vec();
    for reference in overflow_references(payload) {
        let length = reference.length();
        if length > 1 << 20 {
            return Err(Error::Corrupt("a value of impossible length".into()));
        }
        let mut value = vec![0; length as usize];
        fetch(&reference, &mut value)?;
        whole.extend_from_slice(&value);
    }
    Ok(whole)
}

/// All rows as the offline reader sees them; None: something is damaged.
pub fn read_offline(storage: &Arc<dyn Storage>, from: MapFrom) -> Option<Rows> {
    let offline = Offline::open(storage, from).ok()?;
    let mut whole = offline.report().damage.is_empty();
    let tables = offline.tables(&mut |_| whole = false);
    let table = tables.iter().find(|t| t.spec.name == "d/t")?;
    let index = table.spec.indexes[0].id;
    let mut rows = Rows::new();
    let walk = offline.tree(index, table.spec.indexes[0].root, &mut |_, bytes| {
        for slot in 0..node::count(bytes) {
            let rec = node::record(bytes, slot);
            let mut key = Vec::new();
            node::key_into(bytes, slot, &mut key);
            let payload = match offline.settled(index, &key, &rec) {
                Settled::Same if !rec.header.deleted => rec.value.to_vec(),
                Settled::Other(false, value) => value,
                _ => continue,
            };
            let value = with_values(&payload, &mut |reference, out| {
                let mut all = Vec::new();
                offline.overflow(index, reference, &mut |_, data| all.extend_from_slice(data))?;
                out.copy_from_slice(&all);
                Ok(())
            });
            match value {
                Ok(value) => drop(rows.insert(key, value)),
                Err(_) => whole = false,
            }
        }
    });
    (whole && walk.faults.is_empty()).then_some(rows)
}
