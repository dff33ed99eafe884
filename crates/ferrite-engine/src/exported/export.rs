//! Writing a table to a file: the rows and entries that one snapshot sees.
//!
//! | stage | on disk | after a crash |
//! | --- | --- | --- |
//! | begun | a file under another name, `#export-HASH.ferrite.part` | it stays, and goes with the next export |
//! | written | the file under its name, durable | it stays until somebody removes it |
//!
//! The caller keeps writers away. What a prepared transaction has changed is not in the file, which
//! has the state before it.
//!
//! Locking: none; a cursor's latches.

use super::format::{Head, IndexHead, Sum, Writer};
use crate::catalog::table::Table;
use crate::cursor::{Cursor, ReadMode, WaitMode};
use crate::rows::overflow::references;
use crate::transaction::session::Session;
use ferrite_io::Storage;
use ferrite_sync::atomic::Ordering;
use ferrite_sync::{kill_point, time, Arc};
use ferrite_types::{fnv1a, Error, Result, FNV_BASIS};

/// Entries between two looks for KILL, so that a table of narrow rows is not interrupted late.
const ENTRIES_PER_LOOK: u64 = 1024;

/// What an exported table says of itself.
#[derive(Clone, Copy, Debug)]
pub struct ExportAbout<'a> {
    /// "db/table".
    pub table: &'a str,
    /// How its rows and keys are laid out, as a number of the plugin's.
    pub layout: u64,
    /// What each column is, in words of the plugin's, each ended by a zero byte: at most 3 MiB.
    pub columns: &'a [u8],
    /// The server's version.
    pub server: &'a str,
}

impl Session {
    /// Writes what a new snapshot sees of the table to the file, which must not be there. Returns its bytes.
    ///
    /// # Errors
    /// `Exists`; `Interrupted`; `DiskFull`, an I/O error, a page that cannot be read: there is no such file.
    pub fn export_table(
        &mut self,
        table: &Arc<Table>,
        to: &dyn Storage,
        name: &str,
        about: &ExportAbout<'_>,
    ) -> Result<u64> {
        assert!(about.columns.len() <= 3 << 20, "{name}: too many words");
        if to.exists(name)? {
            return Err(Error::Exists);
        }
        let aside = aside(name);
        // What an export that died has left.
        if to.exists(&aside)? {
            to.remove(&aside)?;
        }
        let written = self.write_export(table, to, &aside, about);
        let named = written.and_then(|bytes| {
            kill_point!("export.written");
            to.rename(&aside, name)?;
            to.sync_dir()?;
            Ok(bytes)
        });
        if named.is_err() {
            // The error says more than one of this would; what stays goes with the next export.
            let _ = to.remove(&aside);
        }
        named
    }

    fn write_export(
        &mut self,
        table: &Arc<Table>,
        to: &dyn Storage,
        aside: &str,
        about: &ExportAbout<'_>,
    ) -> Result<u64> {
        let spec = &table.spec;
        // An index may have been renamed since the table was opened.
        let names = self.engine().dict.index_names(table);
        debug_assert_eq!(names.len(), spec.indexes.len());
        let indexes = (spec.indexes.iter().zip(names)).map(|(index, name)| IndexHead {
            unique: index.unique,
            key_parts: index.key_parts,
            name,
        });
        let head = Head {
            layout: about.layout,
            written_unix_s: time::unix_us() / 1_000_000,
            auto_increment: table.auto_increment.load(Ordering::SeqCst),
            hidden_row_id: spec.hidden_row_id,
            server: about.server.to_owned(),
            table: about.table.to_owned(),
            columns: about.columns.to_vec(),
            indexes: indexes.collect(),
        };
        let mut writer = Writer::create(to, aside, &head)?;
        let mut sums = vec![Sum::default(); table.index_count()];
        for (number, sum) in sums.iter_mut().enumerate() {
            writer.begin_index(number)?;
            self.export_index(table, number, &mut writer, sum)?;
        }
        kill_point!("export.entries_written");
        if sums.iter().any(|sum| *sum != sums[0]) {
            let text = format!(
                "table {}: its indexes have other rows than it has",
                table.id()
            );
            return Err(Error::Corrupt(text));
        }
        writer.finish(&sums)
    }

    /// All that the snapshot sees of one index.
    fn export_index(
        &mut self,
        table: &Arc<Table>,
        number: usize,
        writer: &mut Writer,
        sum: &mut Sum,
    ) -> Result<()> {
        let mut cursor = Cursor::new(table, number, ReadMode::Snapshot, WaitMode::Wait);
        let mut value = Vec::new();
        let mut more = cursor.first(self).map(|_| ());
        while more.is_ok() {
            let row = cursor.current()?;
            debug_assert!(row.key.ends_with(row.pk), "an entry of another row");
            sum.add(row.pk);
            if number == 0 {
                for reference in references(row.payload) {
                    writer.end_block()?;
                    // A reference says 32 bits of length.
                    value.resize(reference.length() as usize, 0);
                    let read = self.read_value(&reference, &mut value);
                    read.map_err(|e| lost_value(table, e))?;
                    writer.value(&value)?;
                }
                writer.entry(row.key, [row.payload, &[]])?;
            } else {
                let declared = (row.key.len() - row.pk.len()) as u16;
                writer.entry(row.key, [&declared.to_le_bytes(), row.payload])?;
            }
            if sum.entries % ENTRIES_PER_LOOK == 0 {
                self.check_killed()?;
            }
            more = cursor.next(self).map(|_| ());
        }
        match more {
            Err(Error::NotFound) => Ok(()),
            other => other,
        }
    }
}

/// The name of the file while it is written: the table's own may be as long as a file's name can be.
fn aside(name: &str) -> String {
    let hash = fnv1a(FNV_BASIS, name.as_bytes());
    let aside = format!("#export-{hash:016x}.ferrite.part");
    debug_assert_ne!(aside, name, "the file itself");
    aside
}

/// Nobody changes the table: a value that has gone is damage at every isolation level.
fn lost_value(table: &Table, error: Error) -> Error {
    match error {
        Error::ValueGone(_) => Error::Corrupt(format!("table {}: {error}", table.id())),
        other => other,
    }
}
