//! What the unit tests of this crate have in common: a small database on a simulated disk.

use crate::catalog::spec::{IndexSpec, TableSpec};
use crate::catalog::table::Table;
use crate::rows::write::DupInfo;
use crate::snapshots::ServerState;
use crate::transaction::session::Session;
use crate::{Callbacks, Config, Engine, LogLevel, SilentCallbacks};
use ferrite_io::sim::SimStorage;
use ferrite_sync::{thread, time, Arc, Mutex};
use ferrite_types::{Lsn, PageId};

/// Warnings and errors that the engine has told the server.
#[derive(Default)]
pub(crate) struct Heard(pub Mutex<Vec<String>>);

impl Callbacks for Heard {
    fn log(&self, level: LogLevel, text: &str) {
        if level != LogLevel::Note {
            self.0.lock().push(text.to_owned());
        }
    }
    fn fatal(&self, text: &str) {
        panic!("{text}");
    }
}

pub(crate) fn config() -> Config {
    Config {
        buffer_pool_size_bytes: 4 << 20,
        log_budget_bytes: 4 << 20,
        log_segment_bytes: 1 << 20,
        log_ring_bytes: 1 << 20,
        direct_io: false,
        ..Config::default()
    }
}

pub(crate) fn open_with(disk: &SimStorage, config: Config) -> Arc<Engine> {
    let storage = Arc::new(disk.boot());
    Engine::open(config, storage, Arc::new(SilentCallbacks)).unwrap()
}

pub(crate) fn open(disk: &SimStorage) -> Arc<Engine> {
    open_with(disk, config())
}

/// A new table `d/t` with a primary key alone.
pub(crate) fn create(engine: &Engine) -> Arc<Table> {
    let spec = TableSpec::new("d/t", vec![IndexSpec::new("PRIMARY", true, 1)]);
    engine.dict.create_table(spec, 1).unwrap()
}

pub(crate) fn insert(s: &mut Session, t: &Arc<Table>, key: u64, value: u8) {
    let (key, dup) = (key.to_be_bytes(), &mut DupInfo::default());
    s.insert_row(t, Some(&key), &[value; 1000], &[], false, dup)
        .unwrap();
}

/// A table with rows, and snapshots "a", "b" and "c", each of which holds pages that the present does not have.
pub(crate) fn three_snapshots(engine: &Arc<Engine>) -> (Arc<Table>, Session) {
    let t = create(engine);
    let mut s = Session::new(engine, 0, 1);
    for (round, name) in [Some("a"), Some("b"), Some("c"), None]
        .into_iter()
        .enumerate()
    {
        for n in 0u64..100 {
            insert(&mut s, &t, n << 8 | round as u64, round as u8);
        }
        s.commit(false).unwrap();
        let end = engine.log.current_lsn();
        engine.pool.flush_all_below(end).unwrap();
        if let Some(name) = name {
            let mut job = engine.begin_snapshot(name).unwrap();
            job.fix();
            job.finish(&ServerState::default()).unwrap();
        }
    }
    (t, s)
}

/// Looks again and again, for 20 s; `what` is wrong if it does not come.
pub(crate) fn until(what: &str, mut done: impl FnMut() -> bool) {
    let since_us = time::now_us();
    while !done() {
        assert!(time::now_us() - since_us < 20_000_000, "{what}");
        thread::sleep_ms(1);
    }
}

/// Everything is written, and pages leave memory until that one has.
pub(crate) fn out_of_memory(engine: &Engine, page: PageId) {
    engine.pool.flush_all_below(Lsn::MAX).unwrap();
    let mut held = Vec::new();
    while engine.store.directory().get(page).as_frame().is_some() {
        held.extend(engine.pool.reserve(1).unwrap());
    }
}

/// What the plugin says of a table with INT columns (those that may be NULL end with `?`) and
/// indexes on them, the first one its primary key.
pub(crate) fn described(columns: &[&str], indexes: &[&[u16]]) -> Vec<u8> {
    let text = |text: &str, out: &mut Vec<u8>| {
        out.extend_from_slice(&(text.len() as u16).to_le_bytes());
        out.extend_from_slice(text.as_bytes());
    };
    let mut out = vec![0; 24];
    out.extend_from_slice(b"FRc1");
    out.extend_from_slice(&(columns.len() as u16).to_le_bytes());
    let nullable = |column: &str| column.ends_with('?');
    for column in columns {
        out.extend_from_slice(&[0, 1 + 2 * u8::from(nullable(column)), 3, 0]);
        out.extend_from_slice(&[0xff, 0xff, 4, 0, 0, 0, 0, 0, 0, 0]);
        for part in [column.trim_end_matches('?'), "int(11)", "binary", "binary"] {
            text(part, &mut out);
        }
    }
    out.extend_from_slice(&(indexes.len() as u16).to_le_bytes());
    for index in indexes {
        out.push(0);
        out.extend_from_slice(&(index.len() as u16).to_le_bytes());
        for part in *index {
            out.extend_from_slice(&part.to_le_bytes());
            let flags = 12 + u8::from(nullable(columns[usize::from(*part)]));
            out.extend_from_slice(&[1, flags, 4, 0, 0, 0, 0, 0, 0, 0, 0]);
        }
    }
    out
}
