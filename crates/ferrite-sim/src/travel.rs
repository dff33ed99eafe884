//! Tables that travel: one is written to a file on a disk of its own, emptied, and taken in again.
//! It must be the table that it was, but for where its values out of line are, and after a crash in
//! between it is empty or whole.

use crate::ddl::{begin, change, done, renewed, wait_ms};
use crate::environment::Environment;
use crate::guarded::Guarded;
use crate::model::{Ddl, TableNo};
use crate::rows::{Row, Shape};
use ferrite_engine::{
    Cursor, DdlCaller, Engine, ExportAbout, ImportFrom, Isolation, OverflowRef, ReadMode,
    References, WaitMode, OVERFLOW_REF_BYTES,
};
use ferrite_io::sim::SimStorage;
use ferrite_sync::random::Rng;
use ferrite_sync::{sim, Arc};
use ferrite_types::Error;
use std::collections::BTreeMap;

const FILE: &str = "table";
/// Of all tables: a file is only read back into the table that it is of.
const LAYOUT: u64 = 1;

/// Where a crash is to come, in runs with tables that travel.
pub const PLACES: [&str; 5] = [
    "export.entries_written",
    "import.trees_made",
    "import.filled",
    "dict.truncate.durable",
    "buffer.after_delta_appended",
];

/// Rows by their numbers, each in the one state that it has.
pub type Rows = BTreeMap<u64, Row>;

/// There, and back.
pub(crate) fn travel(
    environment: &Arc<Environment>,
    engine: &Arc<Engine>,
    no: TableNo,
    thd: usize,
    rng: &mut Rng,
) {
    let Some(name) = begin(environment, no, &Ddl::Copied) else {
        return;
    };
    let seed = rng.next_u64();
    let files = SimStorage::new(seed);
    let exported = export(environment, engine, no, &name, thd, &files);
    done(environment, no, &Ddl::Copied, false);
    let Some(rows) = exported else {
        return;
    };
    let wait_ms = wait_ms(environment, rng);
    let any = References::Any;
    if change(environment, engine, no, &Ddl::Truncate, wait_ms, any).is_err() {
        return;
    }
    // Rows may have come meanwhile: then the file is refused.
    let back = Ddl::Import(rows);
    let Some(name) = begin(environment, no, &back) else {
        return;
    };
    match import(environment, engine, no, &name, thd, &files) {
        Ok(()) => read_back(environment, engine, no, &name, thd, &back),
        Err(e) => {
            sim::note(&format!("import of {name}: {e}"));
            let expected = environment.is_injected(&e)
                || matches!(e, Error::Exists | Error::LockTimeout | Error::Interrupted);
            assert!(expected, "import of {name}: {e}");
            done(environment, no, &back, false);
        }
    }
}

/// The rows in the file; None: nobody can say, or an injected fault.
fn export(
    environment: &Arc<Environment>,
    engine: &Arc<Engine>,
    no: TableNo,
    name: &str,
    thd: usize,
    files: &SimStorage,
) -> Option<Rows> {
    environment.resolve(engine);
    // What a prepared transaction does to the table may come between the file and the table's end.
    if !environment.model().holders(no, false).is_empty() {
        return None;
    }
    let rows = environment.model().view_all(no, u64::MAX, &BTreeMap::new());
    let about = ExportAbout {
        table: name,
        layout: LAYOUT,
        columns: b"",
        server: "sim",
    };
    let mut session = Guarded::new(engine, thd);
    let s = session.get();
    s.begin_statement(Isolation::ReadCommitted);
    let written = engine
        .dict()
        .open_table(name)
        .and_then(|table| s.export_table(&table, files, FILE, &about));
    s.close_snapshot();
    match written {
        Ok(_) => Some(rows),
        Err(e) => {
            let expected = environment.is_injected(&e) || e == Error::SnapshotTooOld;
            assert!(expected, "export of {name}: {e}");
            None
        }
    }
}

fn import(
    environment: &Arc<Environment>,
    engine: &Arc<Engine>,
    no: TableNo,
    name: &str,
    thd: usize,
    files: &SimStorage,
) -> Result<(), Error> {
    let from = ImportFrom {
        storage: files,
        name: FILE,
        layout: &|_| LAYOUT,
        columns: b"",
        unfit: &|_| None,
    };
    let number = engine.commit_number();
    let mut session = Guarded::new(engine, thd);
    let s = session.get();
    s.begin_statement(Isolation::ReadCommitted);
    s.import_table(name, &from, &DdlCaller::default())?;
    renewed(environment, engine, no, number);
    Ok(())
}

/// What is in the table now is what was there before it travelled.
fn read_back(
    environment: &Arc<Environment>,
    engine: &Arc<Engine>,
    no: TableNo,
    name: &str,
    thd: usize,
    back: &Ddl,
) {
    let Ddl::Import(rows) = back else {
        unreachable!("another DDL");
    };
    let shape = environment.model().table(no).shape.clone();
    let payloads = match payloads(engine, name, thd, &shape) {
        Ok(payloads) => payloads,
        Err(e) => {
            // Nobody uses the table until the next start sees what is in it.
            let expected = environment.is_injected(&e) || e == Error::SnapshotTooOld;
            assert!(expected, "rows of {name}, which was imported: {e}");
            return;
        }
    };
    sim::note(&format!("{name} has travelled, {} rows", rows.len()));
    let rows = placed(rows, &payloads).unwrap_or_else(|| panic!("{name} has other rows"));
    for (n, row) in &rows {
        let same = shape.is_payload_of(&payloads[n], row);
        assert!(
            same,
            "row {n} of {name}, which was imported, is not {row:?}"
        );
    }
    environment.model().imported(no, rows);
    done(environment, no, back, true);
}

fn payloads(
    engine: &Arc<Engine>,
    name: &str,
    thd: usize,
    shape: &Shape,
) -> Result<BTreeMap<u64, Vec<u8>>, Error> {
    let table = engine.dict().open_table(name)?;
    let mut session = Guarded::new(engine, thd);
    let s = session.get();
    s.begin_statement(Isolation::ReadCommitted);
    let mut cursor = Cursor::new(&table, 0, ReadMode::Snapshot, WaitMode::Wait);
    let mut found = BTreeMap::new();
    let mut moved = cursor.first(s).map(|_| ());
    while moved.is_ok() {
        let row = cursor.current()?;
        let n = shape.number_of(row.pk).expect("a key of the table");
        found.insert(n, row.payload.to_vec());
        moved = cursor.next(s).map(|_| ());
    }
    s.close_snapshot();
    match moved {
        Err(Error::NotFound) => Ok(found),
        other => other.map(|()| found),
    }
}

/// The rows with their values where the payloads say; None: other rows are there.
pub fn placed(rows: &Rows, payloads: &BTreeMap<u64, Vec<u8>>) -> Option<Rows> {
    let mut rows = rows.clone();
    if !rows.keys().eq(payloads.keys()) {
        return None;
    }
    for (n, row) in &mut rows {
        if let Some(big) = &mut row.big {
            let reference = payloads[n].get(1..=OVERFLOW_REF_BYTES)?.try_into().ok()?;
            big.reference = OverflowRef::from_bytes(reference);
        }
    }
    Some(rows)
}
