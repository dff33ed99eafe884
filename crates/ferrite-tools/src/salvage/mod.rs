//! The rescue: every row that can be read, in files that LOAD DATA takes.
//!
//! For each table `NAME.txt` (the rows), `NAME.sql` (CREATE TABLE and the statement that loads
//! the rows) and, for all of them, `load.sql`. The map comes from the checkpoint, or from a scan
//! of the blobs where that is lost. Rows are found through the tree; where an inner node is
//! lost, leaves of the same index whose keys lie in the gap are taken, the newest first. Changes
//! of transactions without an end are left out. Of prepared ones nothing here says whether they were
//! committed: whoever asks for the salvage decides, or it is not whole. Of what an ALTER TABLE was amid see `alter`.
//!
//! Invariants: a row is written once and whole, or counted as lost; the database's directory is
//! not written to; files appear only in the directory asked for, which must not hold a salvage
//! already. Locking: the caller keeps servers out.

mod alter;
mod leaves;
mod output;
mod sql;

use crate::describe::Description;
use crate::progress::Progress;
use crate::row::{self, Value};
use crate::text;
use alter::{Alters, Left};
use ferrite_engine::offline::{MapFrom, Offline, Prepared, Settled, StoredTable};
use ferrite_engine::whole_table;
use ferrite_io::Storage;
use ferrite_sync::Arc;
use ferrite_tree::node;
use ferrite_types::{Error, Faults, IndexId, Result};
pub use output::{DirOutput, Output};
use std::collections::{BTreeMap, BTreeSet};

/// What became of one table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TableResult {
    /// "db/table" as the engine calls it.
    pub name: String,
    /// Rows written.
    pub rows: u64,
    /// Rows that were seen and could not be written.
    pub lost_rows: u64,
    /// Ranges of keys whose rows cannot be reached.
    pub holes: u64,
    /// Leaves taken without a way to them.
    pub loose_leaves: u64,
    /// What went wrong, in words; the first of each kind.
    pub faults: Vec<String>,
}

/// What is to be salvaged.
#[derive(Clone, Copy, Debug, Default)]
pub struct Plan {
    /// The map is not used even if it is there.
    pub scan: bool,
    /// What becomes of prepared transactions; None: nobody has decided, and their changes are left out.
    pub prepared: Option<Prepared>,
}

/// What a salvage did.
#[derive(Debug, Default)]
pub struct Salvage {
    /// What was wrong with the database as a whole.
    pub faults: Faults,
    /// By table.
    pub tables: Vec<TableResult>,
    /// What is worth knowing of tables that an ALTER TABLE was copying.
    pub notes: Vec<String>,
    /// The blobs were scanned because the map is lost.
    pub scanned: bool,
    /// Transactions without an end, whose changes were left out.
    pub unfinished: u64,
    /// Prepared ones.
    pub prepared: u64,
    /// What became of those, if somebody has decided it.
    pub decided: Option<Prepared>,
}

impl Salvage {
    /// True when nothing is known to be missing.
    pub fn is_whole(&self) -> bool {
        let whole = |t: &TableResult| t.lost_rows == 0 && t.holes == 0 && t.faults.is_empty();
        self.faults.is_empty() && self.tables.iter().all(whole) && !self.is_undecided()
    }

    /// Changes of prepared transactions were left out although they may have been committed.
    pub fn is_undecided(&self) -> bool {
        self.prepared > 0 && self.decided.is_none()
    }

    /// True when keys are missing between those that were found.
    pub fn misses_pages(&self) -> bool {
        self.tables.iter().any(|t| t.holes > 0)
    }
}

/// Faults of a table that are kept in words.
const FAULTS_KEPT: usize = 20;

/// Writes all that can be read to `out`.
///
/// # Errors
/// When nothing at all can be read, or `out` cannot be written.
pub fn salvage(
    storage: &Arc<dyn Storage>,
    plan: Plan,
    out: &mut dyn Output,
    progress: &Progress,
) -> Result<Salvage> {
    let mut result = Salvage::default();
    let offline = open(storage, plan, &mut result)?;
    let found = offline.report();
    debug_assert!(found.prepared <= found.unfinished, "prepared and ended");
    result.faults.append(found.damage.clone());
    result.prepared = found.prepared;
    result.unfinished = found.unfinished - found.prepared;
    result.decided = plan.prepared;
    let tables = offline.tables(&mut |text| result.faults.push(text));
    write_tables(&offline, &tables, (out, progress), &mut result)?;
    progress.done();
    Ok(result)
}

fn write_tables(
    offline: &Offline,
    tables: &[StoredTable],
    (out, progress): (&mut dyn Output, &Progress),
    result: &mut Salvage,
) -> Result<()> {
    let pages = |t: &StoredTable| offline.store().page_count(t.spec.indexes[0].id);
    let vector_indexes: BTreeSet<&str> = tables
        .iter()
        .filter_map(|t| sql::indexed_by(&t.spec.name))
        .collect();
    let alters = Alters::new(tables);
    result.notes = notes(tables, &alters);
    let is_left_out = |name: &str| alters.left(name).is_some_and(|left| left.is_left_out());
    let with_rows = |t: &&StoredTable| {
        let (spec, name) = (&t.spec, t.spec.name.as_str());
        !spec.indexes.is_empty() && sql::indexed_by(name).is_none()
    };
    progress.stage("rows", tables.iter().filter(with_rows).map(pages).sum());
    let mut load = sql::load_header();
    for table in tables.iter().filter(with_rows) {
        let mut writer = Writer::new(offline, table);
        writer.has_vector_index = vector_indexes.contains(table.spec.name.as_str());
        writer.left = alters.left(&table.spec.name);
        let written = writer.run(out, progress)?;
        if !is_left_out(&written.name) {
            let stem = output::file_stem(&written.name);
            load.push_str(&format!("source {stem}.sql\n"));
        }
        result.tables.push(written);
    }
    out.file("load.sql", &mut |w| w.write_all(load.as_bytes()))
}

/// What is said of tables that an ALTER TABLE has left, once for all partitions of one.
fn notes(tables: &[StoredTable], alters: &Alters<'_>) -> Vec<String> {
    let mut notes: BTreeMap<&str, String> = BTreeMap::new();
    let with_rows = tables
        .iter()
        .filter(|t| sql::indexed_by(&t.spec.name).is_none());
    for name in with_rows.map(|t| t.spec.name.as_str()) {
        if let Some(left) = alters.left(name) {
            notes.insert(whole_table(name), left.text());
        }
    }
    let all = notes.into_iter();
    all.map(|(name, text)| format!("{name}: {text}")).collect()
}

fn open(storage: &Arc<dyn Storage>, plan: Plan, result: &mut Salvage) -> Result<Offline> {
    let prepared = plan.prepared.unwrap_or_default();
    if !plan.scan {
        match Offline::open_deciding(storage, MapFrom::Checkpoint, prepared) {
            Err(e @ (Error::Corrupt(_) | Error::Io(_))) => result.faults.push(e.to_string()),
            other => return other,
        }
    }
    result.scanned = true;
    Offline::open_deciding(storage, MapFrom::Scan, prepared)
}

/// Writes one table.
struct Writer<'o> {
    offline: &'o Offline,
    table: &'o StoredTable,
    description: Option<Description>,
    has_vector_index: bool,
    left: Option<Left>,
    result: TableResult,
}

impl<'o> Writer<'o> {
    fn new(offline: &'o Offline, table: &'o StoredTable) -> Writer<'o> {
        let result = TableResult {
            name: table.spec.name.clone(),
            ..TableResult::default()
        };
        Writer {
            offline,
            table,
            description: Description::decode(&table.spec.definition),
            has_vector_index: false,
            left: None,
            result,
        }
    }

    fn index(&self) -> IndexId {
        self.table.spec.indexes[0].id
    }

    fn fault(&mut self, text: String) {
        if self.result.faults.len() < FAULTS_KEPT {
            self.result.faults.push(text);
        }
    }

    fn run(mut self, out: &mut dyn Output, progress: &Progress) -> Result<TableResult> {
        let stem = output::file_stem(&self.table.spec.name);
        if self.description.is_none() {
            self.fault("columns are not described: rows are written as key and row in hex".into());
        }
        for name in self.numbers_only() {
            self.fault(format!(
                "column {name}: its labels are too many to be described, their numbers are written"
            ));
        }
        out.file(&format!("{stem}.txt"), &mut |w| self.rows(w, progress))?;
        let about = sql::About {
            described: self.description.as_ref(),
            has_vector_index: self.has_vector_index,
            left: self.left.as_ref(),
        };
        let text = sql::table(self.table, &about, &stem);
        out.file(&format!("{stem}.sql"), &mut |w| {
            w.write_all(text.as_bytes())
        })?;
        Ok(self.result)
    }

    /// Columns of which nothing but numbers is known.
    fn numbers_only(&self) -> Vec<String> {
        let columns = self.description.iter().flat_map(|d| &d.columns);
        let found = columns.filter(|c| c.is_there() && text::is_number_only(c));
        found.map(|c| c.name.clone()).collect()
    }

    fn rows(&mut self, w: &mut dyn std::io::Write, progress: &Progress) -> std::io::Result<()> {
        let (offline, index) = (self.offline, self.index());
        let root = self.table.spec.indexes[0].root;
        let mut failed = Ok(());
        let mut each = |bytes: &[u8]| {
            failed = self.leaf(bytes, w);
            progress.step(1);
            failed.is_ok()
        };
        let found = leaves::each_leaf(offline, index, root, &mut each);
        failed?;
        self.result.holes = found.holes;
        self.result.loose_leaves = found.loose;
        for text in found.faults.texts() {
            self.fault(text.clone());
        }
        Ok(())
    }

    fn leaf(&mut self, bytes: &[u8], w: &mut dyn std::io::Write) -> std::io::Result<()> {
        let (mut key, mut line) = (Vec::new(), Vec::new());
        for slot in 0..node::count(bytes) {
            let rec = node::record(bytes, slot);
            key.clear();
            node::key_into(bytes, slot, &mut key);
            let settled = self.offline.settled(self.index(), &key, &rec);
            let (deleted, value) = match &settled {
                Settled::Same => (rec.header.deleted, rec.value),
                Settled::Gone => continue,
                Settled::Other(deleted, value) => (*deleted, value.as_slice()),
            };
            if deleted {
                continue;
            }
            line.clear();
            match self.line(&key, value, &mut line) {
                Ok(()) => {
                    line.push(b'\n');
                    w.write_all(&line)?;
                    self.result.rows += 1;
                }
                Err(why) => {
                    self.result.lost_rows += 1;
                    self.fault(format!("row {}: {why}", hex(&key)));
                }
            }
        }
        Ok(())
    }

    /// One row as a line without its end.
    fn line(
        &self,
        key: &[u8],
        payload: &[u8],
        out: &mut Vec<u8>,
    ) -> std::result::Result<(), String> {
        let Some(table) = &self.description else {
            out.extend_from_slice(format!("{}\t{}", hex(key), hex(payload)).as_bytes());
            return Ok(());
        };
        let values = row::decode(table, key, payload)?;
        let columns = table.columns.iter().filter(|c| c.is_there());
        for (i, (column, value)) in columns.zip(values).enumerate() {
            if i > 0 {
                out.push(b'\t');
            }
            let bytes = match value {
                Value::Null => {
                    out.extend_from_slice(text::NULL);
                    continue;
                }
                Value::Bytes(bytes) => bytes,
                Value::Far(reference) => self.far(&reference)?.into(),
            };
            text::render(column, &bytes, out)
                .ok_or_else(|| format!("column {} has no value of its type", column.name))?;
        }
        Ok(())
    }

    fn far(&self, reference: &ferrite_engine::OverflowRef) -> std::result::Result<Vec<u8>, String> {
        let mut value = Vec::new();
        let index = self.index();
        self.offline
            .overflow(index, reference, &mut |_, data| {
                value.extend_from_slice(data)
            })
            .map_err(|e| e.to_string())?;
        Ok(value)
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}
