//! A salvage that cannot write what it reads, and one of tables that an ALTER TABLE was copying.

use crate::place::{create, no_program_starts, Place};
use ferrite_engine::{DupInfo, IndexSpec, Isolation, NewForeign, Session, TableSpec};
use ferrite_io::Storage;
use ferrite_sync::Arc;
use ferrite_tools::progress::Progress;
use ferrite_tools::salvage::{salvage, Output, Plan};
use ferrite_types::{Error, Result};
use std::io::{self, Write};

/// Takes so many bytes, and then nothing more.
struct Disk {
    free: usize,
}

impl Write for Disk {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.free < bytes.len() {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.free -= bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Output for Disk {
    fn file(
        &mut self,
        name: &str,
        fill: &mut dyn FnMut(&mut dyn Write) -> io::Result<()>,
    ) -> Result<()> {
        fill(self).map_err(|e| Error::Io(format!("write {name}: {e}")))
    }
}

/// Keeps what is written.
#[derive(Default)]
struct Files(Vec<(String, Vec<u8>)>);

impl Output for Files {
    fn file(
        &mut self,
        name: &str,
        fill: &mut dyn FnMut(&mut dyn Write) -> io::Result<()>,
    ) -> Result<()> {
        let mut bytes = Vec::new();
        fill(&mut bytes).unwrap();
        self.0.push((name.to_owned(), bytes));
        Ok(())
    }
}

/// Some hundred leaves.
fn database() -> Place {
    const ROWS: u64 = 20_000;
    let place = Place::new("no-room");
    let engine = place.open();
    create(&engine, "d/t");
    let t = engine.dict().open_table("d/t").unwrap();
    let mut session = Session::new(&engine, 0, 1);
    session.begin_statement(Isolation::RepeatableRead);
    let mut payload = [b'x'; 300];
    payload[0] = 0;
    for n in 0..ROWS {
        let mut dup = DupInfo::default();
        session
            .insert_row(&t, Some(&n.to_be_bytes()), &payload, &[], false, &mut dup)
            .unwrap();
    }
    session.commit(false).unwrap();
    drop(session);
    engine.close();
    place
}

/// How it ended, and how often the database was read.
fn salvaged(place: &Place, free: usize) -> (Result<()>, u64) {
    let _locks = no_program_starts();
    let storage: Arc<dyn Storage> = place.storage();
    let done = salvage(
        &storage,
        Plan::default(),
        &mut Disk { free },
        &Progress::silent(),
    );
    (done.map(drop), storage.stats().reads.get())
}

#[test]
fn a_full_disk_ends_it_at_once() {
    let place = database();
    let (whole, reads) = salvaged(&place, usize::MAX);
    assert_eq!(whole, Ok(()));
    assert!(reads > 300, "{reads} reads");
    let (cut_off, reads_of_some) = salvaged(&place, 100_000);
    assert!(matches!(cut_off, Err(Error::Io(_))), "{cut_off:?}");
    assert!(
        reads_of_some < reads / 2,
        "{reads_of_some} of {reads} reads"
    );
}

/// One that is copied, and one that is put aside for its copy.
#[test]
fn a_copy_is_not_loaded_if_its_table_is_there() {
    let place = Place::new("copies");
    let engine = place.open();
    create(&engine, "d/t");
    create(&engine, "d/#sql-backup-1-2");
    for (copy, original) in [("d/#sql-alter-1-1", "d/t"), ("d/#sql-alter-1-2", "d/u")] {
        let spec = TableSpec::new(copy, vec![IndexSpec::new("PRIMARY", true, 1)]);
        let foreign = NewForeign {
            original: Some(original.into()),
            ..NewForeign::default()
        };
        let made = engine.dict().create_with_foreign(spec, 1, foreign);
        assert!(made.is_ok(), "{copy}");
    }
    engine.close();
    let _locks = no_program_starts();
    let storage: Arc<dyn Storage> = place.storage();
    let mut files = Files::default();
    let done = salvage(&storage, Plan::default(), &mut files, &Progress::silent()).unwrap();
    let names = done.tables.iter().map(|t| t.name.as_str());
    assert_eq!(
        names.collect::<Vec<_>>(),
        [
            "d/t",
            "d/#sql-backup-1-2",
            "d/#sql-alter-1-1",
            "d/#sql-alter-1-2"
        ]
    );
    let load = files.0.iter().find(|(name, _)| name == "load.sql").unwrap();
    let loaded = String::from_utf8(load.1.clone()).unwrap();
    assert_eq!(loaded.matches("source ").count(), 3, "{loaded}");
    let written = |name: &&(String, Vec<u8>)| name.0.contains("alter-1-1");
    assert_eq!(
        files.0.iter().filter(written).count(),
        2,
        "rows and statements"
    );
    assert!(!loaded.contains("alter-1-1"), "{loaded}");
    let notes = [
        "d/#sql-alter-1-1: not in load.sql: an ALTER TABLE was filling it to take the place of d/t, ",
        "d/#sql-alter-1-2: an ALTER TABLE was filling it to take the place of d/u, which is not there",
        "d/#sql-backup-1-2: it is d/u, which an ALTER TABLE has put aside for its copy",
    ];
    assert_eq!(done.notes.len(), notes.len(), "{:?}", done.notes);
    for (note, wanted) in done.notes.iter().zip(notes) {
        assert!(note.starts_with(wanted), "{note}");
    }
}
