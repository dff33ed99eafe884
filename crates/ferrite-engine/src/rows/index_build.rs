//! Indexes added to a table that has rows (ALTER TABLE ... ADD INDEX in place).
//!
//! The caller keeps writers away (a shared metadata lock) and reads every row by a snapshot opened
//! after that. Entries are sorted (`sort`) and inserted in the order of their keys, so that each leaf
//! is filled once. They have no history: older snapshots do not read the index
//! (`OpenIndex::set_usable_from`), and they are no part of a transaction.
//!
//! | stage | the index | after a crash |
//! | --- | --- | --- |
//! | begun | trees without a table | they go at the next start |
//! | filled | the same | the same |
//! | taken | in the definition (`Dictionary::alter_table`) | it is there, with all entries: their records are before the definition's in the log |
//!
//! A build that is dropped before a table takes it drops its trees.
//!
//! Rows of transactions that a crash cut short may still be being rolled back beside the build. The
//! snapshot gives their earlier states, which is what is there once that is done. Prepared transactions
//! may still commit what they have changed: the build waits for them.
//!
//! Locking: none of its own; a leaf's latch for each entry.

use crate::catalog::open_index::OpenIndex;
use crate::catalog::spec::IndexSpec;
use crate::rows::entry::check_size;
use crate::rows::load::{put, Put, ENTRIES_PER_PAUSE};
use crate::rows::sort::{Sorted, Sorter};
use crate::rows::write::{append_entry_value, full_key, DupInfo, Entry, ENTRY_PREFIX_BYTES};
use crate::state::engine::Engine;
use crate::transaction::session::Session;
use ferrite_sync::{kill_point, Arc};
use ferrite_tree::Scratch;
use ferrite_types::{Error, Result, TableId};

/// Memory for entries that are to be sorted, of all indexes of a build together (bytes).
const SORT_BYTES: usize = 32 << 20;
/// Before a value in the sorter: must the declared key parts be unique?
const CHECK_BYTES: usize = 1;

/// An index being built.
pub(crate) struct Part {
    pub spec: IndexSpec,
    pub open: Arc<OpenIndex>,
    /// None once its entries are in the tree.
    sorter: Option<Sorter>,
}

/// Indexes on their way into a table.
pub struct IndexBuild {
    engine: Arc<Engine>,
    /// The server's connection that builds, asked for KILL.
    thd: usize,
    pub(crate) parts: Vec<Part>,
    /// They are the table's now.
    taken: bool,
    /// Rows added.
    rows: u64,
    key: Vec<u8>,
    value: Vec<u8>,
}

impl Drop for IndexBuild {
    fn drop(&mut self) {
        if self.taken {
            return;
        }
        for part in &self.parts {
            part.open.set_gone();
            self.engine.pool.drop_index(part.spec.id);
        }
    }
}

impl IndexBuild {
    /// The entries of a row; `index_no` counts the indexes of the build.
    ///
    /// # Errors
    /// `KeyTooLong`, `DiskFull`, an I/O error: nothing comes of the build.
    pub fn add(&mut self, pk: &[u8], entries: &[Entry<'_>]) -> Result<()> {
        debug_assert!(!self.taken, "rows for an index that is in use");
        self.rows += 1;
        for entry in entries {
            let value_bytes = ENTRY_PREFIX_BYTES + entry.payload.len();
            // Those that are built are all secondary ones.
            check_size(1 + entry.index_no, entry.key.len() + pk.len(), value_bytes)?;
            full_key(entry.key, pk, &mut self.key);
            self.value.clear();
            self.value.push(u8::from(entry.check_unique));
            append_entry_value(entry, &mut self.value);
            let part = self.parts.get_mut(entry.index_no);
            let sorter = part.and_then(|part| part.sorter.as_mut());
            let sorter = sorter.ok_or_else(|| Error::Bug("a row for no index".into()))?;
            let (key, value) = (&self.key, &self.value);
            let (engine, thd) = (&self.engine, self.thd);
            let is_killed = || engine.callbacks.is_killed(thd);
            engine.with_room(&is_killed, || sorter.add(key, value))?;
        }
        Ok(())
    }

    /// All entries are in the trees, and nobody uses the table.
    pub(crate) fn is_filled(&self) -> bool {
        !self.taken && self.parts.iter().all(|part| part.sorter.is_none())
    }

    /// A table's durable definition names the trees.
    pub(crate) fn set_taken(&mut self) {
        assert!(self.is_filled(), "a table takes an index without entries");
        self.taken = true;
    }
}

impl Session {
    /// A build of these indexes, without a row yet. See `Session::begin_index_build`.
    ///
    /// # Errors
    /// `DiskFull`, a page that cannot be read; nothing remains.
    pub(crate) fn new_index_build(
        &mut self,
        table: TableId,
        specs: Vec<IndexSpec>,
    ) -> Result<IndexBuild> {
        assert!(!specs.is_empty(), "a build of no index");
        let engine = self.engine.clone();
        let most_bytes = SORT_BYTES / specs.len();
        let mut build = IndexBuild {
            engine: engine.clone(),
            thd: self.thd,
            parts: Vec::with_capacity(specs.len()),
            taken: false,
            rows: 0,
            key: Vec::new(),
            value: Vec::new(),
        };
        for spec in specs {
            let spec = engine.dict.make_tree_for(table, spec)?;
            let storage = engine.storage.clone();
            build.parts.push(Part {
                open: Arc::new(OpenIndex::new(&spec, &engine.pool, engine.dict.archived())),
                sorter: Some(Sorter::new(storage, spec.id.0, most_bytes)),
                spec,
            });
        }
        kill_point!("index.trees_made");
        Ok(build)
    }

    /// Every row has been added: fills the trees.
    ///
    /// # Errors
    /// `Duplicate` with `dup` filled, where `index_no` counts the indexes of the build; `Interrupted`;
    /// `DiskFull`, a page that cannot be read or written: nothing comes of the build.
    pub fn fill_indexes(&mut self, build: &mut IndexBuild, dup: &mut DupInfo) -> Result<()> {
        let (rows, total) = (build.rows, build.rows * build.parts.len() as u64);
        for number in 0..build.parts.len() {
            let part = &mut build.parts[number];
            let sorter = part.sorter.take();
            let sorter = sorter.ok_or_else(|| Error::Bug("an index is filled twice".into()))?;
            let done = number as u64 * rows;
            let mut report_progress =
                |session: &Session, count| session.report_progress(done + count, total);
            self.fill_index(part, sorter.sorted()?, number, &mut report_progress, dup)?;
            kill_point!("index.filled");
        }
        debug_assert!(build.is_filled());
        Ok(())
    }

    fn fill_index(
        &mut self,
        part: &Part,
        mut entries: Sorted,
        number: usize,
        report_progress: &mut dyn FnMut(&Session, u64) -> Result<()>,
        dup: &mut DupInfo,
    ) -> Result<()> {
        let tree = &part.open.tree;
        let mut scratch = Scratch::default();
        let mut leaf = None;
        // The declared key parts of the entry before.
        let mut before: Vec<u8> = Vec::new();
        let mut count = 0;
        while let Some((key, checked)) = entries.next()? {
            let (check, value) = checked.split_at(CHECK_BYTES);
            let declared = usize::from(u16::from_le_bytes([value[0], value[1]]));
            assert!(declared <= key.len(), "{declared} of {} bytes", key.len());
            let (declared, pk) = key.split_at(declared);
            // Values without NULL are never equal to one with, so that one flag speaks for both.
            let unique = part.spec.unique && check[0] != 0;
            if unique && count > 0 && before == declared {
                dup.is_of(number, pk);
                return Err(Error::Duplicate);
            }
            before.clear();
            before.extend_from_slice(declared);
            if count % ENTRIES_PER_PAUSE == 0 {
                drop(leaf.take());
                self.may_go_on()?;
                report_progress(self, count as u64)?;
            }
            count += 1;
            leaf = match put(tree, key, value, leaf, &mut scratch)? {
                Put::Done(leaf) => Some(leaf),
                Put::Occupied => {
                    let text = format!("index {}: two entries of one row", part.spec.name);
                    return Err(Error::Corrupt(text));
                }
            };
        }
        Ok(())
    }
}
