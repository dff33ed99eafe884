//! A table's rows and entries from a file that [`Session::export_table`] has written, on this server or
//! another one. New trees are filled, and take the place of the empty table's in one step.
//!
//! | stage | the table | after a crash |
//! | --- | --- | --- |
//! | begun, filled | empty; trees without a table | empty; the trees go at the next start |
//! | taken | has all rows | has all rows: their records are before the definition's in the log |
//!
//! What is read is checked beyond its checksums: entries ascend, keys and rows fit a page, each row
//! comes with the values that it names, and all indexes have the same rows. Whether a row's columns
//! mean what the table's do, the layout's number says.
//!
//! The caller keeps everybody away from the table; a prepared transaction that has changed it is
//! waited for.
//!
//! Locking: none of its own; see `fill`.

use super::fill::fill;
use super::format::{Head, Reader, Sum};
use crate::catalog::dictionary::Carried;
use crate::catalog::spec::{IndexSpec, TableSpec};
use crate::catalog::table::Table;
use crate::cursor::{Cursor, ReadMode, WaitMode};
use crate::ddl::DdlCaller;
use crate::transaction::session::Session;
use ferrite_io::Storage;
use ferrite_sync::atomic::Ordering;
use ferrite_sync::{kill_point, Arc};
use ferrite_types::{Error, Result};

/// Where an exported table is read from.
#[derive(Clone, Copy)]
pub struct ImportFrom<'a> {
    /// The directory.
    pub storage: &'a dyn Storage,
    /// The file.
    pub name: &'a str,
    /// How the rows and keys of the table that takes it are laid out with its indexes in that order.
    pub layout: &'a dyn Fn(&[u32]) -> u64,
    /// What each column of that table is, as the file's were written ([`super::ExportAbout`]).
    pub columns: &'a [u8],
    /// Why rows of a server of that version would mean something else to this one; None: they do not.
    pub unfit: &'a dyn Fn(&str) -> Option<String>,
}

/// Trees that no table has yet; they go if none takes them.
struct Filling {
    /// Its indexes are in the order of the file's.
    table: Arc<Table>,
    /// Their numbers in the table that takes them.
    order: Vec<u32>,
    taken: bool,
}

impl Session {
    /// Fills the empty table of that name from a file. Durable on return.
    ///
    /// # Errors
    /// `NotFound`: there is no such file, or no such table. `Exists`: the table has rows. `Format`: the file is
    /// of a table with other columns or keys (the text says what differs), or of a later version. `Corrupt`:
    /// it is damaged. `LockTimeout` while a prepared transaction has changed the table, `Interrupted`,
    /// `DiskFull`, an I/O error. The table is as it was.
    pub fn import_table(
        &mut self,
        table_name: &str,
        from: &ImportFrom<'_>,
        caller: &DdlCaller,
    ) -> Result<()> {
        let engine = self.engine.clone();
        engine.admission(&|| engine.callbacks.is_killed(caller.thd))?;
        engine.wait_for_prepared(table_name, caller)?;
        let table = engine.dict.open_table(table_name)?;
        self.check_empty(&table)?;
        let (mut reader, head) = Reader::open(from.storage, from.name)?;
        let mut spec = table.spec.clone();
        let names = engine.dict.index_names(&table);
        for (index, name) in spec.indexes.iter_mut().zip(names) {
            index.name = name;
        }
        let order = check_fits(&spec, &head, from)?;
        let mut filling = self.begin_filling(spec, order)?;
        let filled = fill(self, &mut reader, &filling.table);
        // What was written without undo goes with the trees, or is the rows'.
        self.row_values.forget();
        let filled = match filled {
            Ok(sum) => self.take_over(table_name, &filling, &head, sum),
            Err(e) => Err(e),
        };
        filling.taken = filled.is_ok();
        if !filling.taken {
            for index in &filling.table.spec.indexes {
                engine.pool.drop_index(index.id);
            }
        }
        filled
    }

    /// No row is there that a transaction from now on would see.
    fn check_empty(&mut self, table: &Arc<Table>) -> Result<()> {
        let mut cursor = Cursor::new(table, 0, ReadMode::Snapshot, WaitMode::Wait);
        let first = cursor.first(self).map(|_| ());
        self.close_snapshot();
        match first {
            Err(Error::NotFound) => Ok(()),
            Ok(()) => Err(Error::Exists),
            other => other,
        }
    }

    /// Trees for all indexes of the table with that definition.
    fn begin_filling(&mut self, spec: TableSpec, order: Vec<u32>) -> Result<Filling> {
        let engine = &self.engine;
        let mut made: Vec<IndexSpec> = Vec::new();
        for index in order.iter().map(|no| &spec.indexes[*no as usize]) {
            match engine.dict.make_tree_for(spec.id, index.clone()) {
                Ok(spec) => made.push(spec),
                Err(e) => {
                    for spec in &made {
                        engine.pool.drop_index(spec.id);
                    }
                    return Err(e);
                }
            }
        }
        let is_old = |new: &IndexSpec| spec.indexes.iter().any(|old| old.id == new.id);
        assert!(!made.iter().any(is_old));
        assert_eq!(made.len(), spec.indexes.len(), "an index has no tree");
        kill_point!("import.trees_made");
        let spec = TableSpec {
            indexes: made,
            ..spec
        };
        let filling = Table::new(spec, &engine.pool, engine.dict.archived());
        filling.loading.store(true, Ordering::SeqCst);
        Ok(Filling {
            table: Arc::new(filling),
            order,
            taken: false,
        })
    }

    /// The table has the trees from here on.
    fn take_over(&mut self, name: &str, filling: &Filling, head: &Head, rows: Sum) -> Result<()> {
        kill_point!("import.filled");
        assert!(!filling.taken, "its trees are a table's");
        let engine = &self.engine;
        // Values below that may have been given away, or be kept for somebody.
        let table = engine.dict.open_table(name)?;
        let own = table.auto_increment.load(Ordering::SeqCst).max(1);
        let carried = Carried {
            auto_increment: head.auto_increment.max(own),
            rows: i64::try_from(rows.entries).unwrap_or(i64::MAX),
        };
        let mut trees = filling.table.spec.indexes.clone();
        for (tree, no) in filling.table.spec.indexes.iter().zip(&filling.order) {
            trees[*no as usize] = tree.clone();
        }
        engine.dict.take_filled(name, trees, carried)?;
        // It has the rows in any case: whoever opens it next meets the error.
        if let Ok(table) = engine.dict.open_table(name) {
            table.note_commit(engine.now_s.load(Ordering::Relaxed));
            // What statistics say is of the table that it was.
            table.changes.store(rows.entries, Ordering::Relaxed);
        }
        Ok(())
    }
}

/// The table's numbers of the file's indexes: the server lists the keys of the same table in one order or
/// another, and finds them by their names. Those of other names are taken as they come.
fn order_in(spec: &TableSpec, head: &Head) -> Vec<u32> {
    let name_of = |name: &str| name.to_lowercase();
    let ours: Vec<String> = spec.indexes.iter().map(|i| name_of(&i.name)).collect();
    let number = |name: &str| ours.iter().position(|own| *own == name_of(name));
    let found: Option<Vec<usize>> = head.indexes.iter().map(|i| number(&i.name)).collect();
    let all = 0..ours.len();
    let order = found.filter(|f| f[0] == 0 && all.clone().all(|no| f.contains(&no)));
    let order = order.unwrap_or_else(|| all.collect());
    debug_assert_eq!(order.len(), ours.len(), "an index is passed over");
    order.into_iter().map(|no| no as u32).collect()
}

/// The table's rows and keys are laid out as those in the file. Returns the table's numbers of its indexes.
fn check_fits(spec: &TableSpec, head: &Head, from: &ImportFrom<'_>) -> Result<Vec<u32>> {
    let misfit = |what: String| {
        let Head { table, server, .. } = head;
        let text = format!("{}: table {table} of server {server} {what}", from.name);
        Err(Error::Format(text))
    };
    if head.hidden_row_id != spec.hidden_row_id {
        let has = if head.hidden_row_id {
            "has no"
        } else {
            "has a"
        };
        return misfit(format!("{has} primary key"));
    }
    if head.indexes.len() != spec.indexes.len() {
        let (theirs, ours) = (head.indexes.len(), spec.indexes.len());
        return misfit(format!("has {theirs} indexes, not {ours}"));
    }
    let order = order_in(spec, head);
    for (theirs, no) in head.indexes.iter().zip(&order) {
        let ours = &spec.indexes[*no as usize];
        if (theirs.unique, theirs.key_parts) != (ours.unique, ours.key_parts) {
            let (theirs, ours) = (&theirs.name, &ours.name);
            return misfit(format!("has another index `{theirs}` than `{ours}`"));
        }
    }
    if let Some(what) = other_column(&head.columns, from.columns) {
        return misfit(what);
    }
    if let Some(why) = (from.unfit)(&head.server) {
        return misfit(why);
    }
    if head.layout != (from.layout)(&order) {
        return misfit("has other columns, keys or collations".into());
    }
    Ok(order)
}

/// How the first column that differs does, or their number.
fn other_column(theirs: &[u8], ours: &[u8]) -> Option<String> {
    let all = |columns: &[u8]| -> Vec<String> {
        let texts = columns.split(|byte| *byte == 0);
        let mut texts: Vec<String> = texts.map(|t| String::from_utf8_lossy(t).into()).collect();
        // A zero byte ends the last one.
        texts.pop();
        texts
    };
    let (theirs, ours) = (all(theirs), all(ours));
    let differs = theirs.iter().zip(&ours).find(|(a, b)| a != b);
    if let Some((a, b)) = differs {
        return Some(format!("has the column {a}, not {b}"));
    }
    let (a, b) = (theirs.len(), ours.len());
    (a != b).then(|| format!("has {a} columns, not {b}"))
}
