//! The dictionary: which tables there are. Kept in a tree of its own (index 1, root page 1),
//! one record a table, outside all transactions: each change is one mini-transaction, made
//! durable before the call returns.
//!
//! Keys and values: `spec`, `foreign`; who refers to whom: `referring`. Changes: `change`, `foreign_change`.
//!
//! A table's trees are made before its record and dropped after it, so that a crash leaves
//! trees without a table, never a table without trees; such trees go at the next start.
//!
//! Locking: `state` is held over changes of the dictionary (rare; they wait for the log, on a full disk without end) and for
//! look-ups (short). What is shown to users does without it (`names`, `specs`).

mod change;
mod figures;
pub(crate) mod foreign;
pub(crate) mod foreign_change;
#[cfg(test)]
mod foreign_tests;
pub(crate) mod index_change;
pub(crate) mod names;
mod referring;
mod replaced;
#[cfg(test)]
mod replaced_tests;
mod specs;

use self::specs::{Sizes, Specs};
use crate::catalog::cache_priority::cache_priority;
use crate::catalog::delete_archive::ArchivedTotal;
use crate::catalog::foreign::split_chunk_key;
use crate::catalog::spec::{record_key, split_key, TableSpec, MAX_SPEC_BYTES};
use crate::catalog::table::Table;
use crate::log_records::undo::NO_UNDO;
use ferrite_buffer::Pool;
use ferrite_redo::Log;
use ferrite_sync::atomic::Ordering;
use ferrite_sync::{Arc, Mutex};
use ferrite_tree::record::Header;
use ferrite_tree::{node, Scratch, Tree};
use ferrite_txn::{diff, TxnSystem};
use ferrite_types::{Error, IndexId, Lsn, PageId, Result, TableId};
use std::collections::BTreeMap;

/// Index id of the dictionary itself.
pub const DICTIONARY: IndexId = IndexId(1);
/// First index id handed out to tables.
const FIRST_INDEX: u32 = 16;
/// No index has this id or a higher one.
pub(crate) const INDEX_IDS_END: u32 = u32::MAX;
const _: () = assert!(
    DICTIONARY.0 < FIRST_INDEX && FIRST_INDEX < INDEX_IDS_END,
    "the dictionary is no table's index"
);
/// Counters of a table that a checkpoint carries over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Carried {
    /// Next AUTO_INCREMENT value; 0: unknown.
    pub auto_increment: u64,
    /// Rows, estimated.
    pub rows: i64,
}

/// Ids not used yet. They only ever rise, over crashes, too: what the log, an undo list or a
/// statistic still says of a table that is gone must never mean another one. That is true of temporary tables,
/// too: a prepared transaction that has changed one outlives it, and any number of restarts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NextIds {
    /// Of tables.
    pub table: u64,
    /// Of indexes.
    pub index: u32,
}

impl NextIds {
    /// That table id is used.
    pub(crate) fn above_table(&mut self, id: TableId) {
        self.table = self.table.max(id.0.saturating_add(1));
    }

    /// That index id is used.
    pub(crate) fn above_index(&mut self, id: IndexId) {
        self.index = self.index.max(id.0.saturating_add(1));
    }
}

#[derive(Default)]
struct State {
    names: BTreeMap<String, TableId>,
    specs: Specs,
    open: BTreeMap<TableId, Arc<Table>>,
    by_index: BTreeMap<IndexId, TableId>,
    carried: BTreeMap<TableId, Carried>,
    next: NextIds,
    foreign: referring::Foreign,
    /// Keys of parts without a definition, found at the start.
    strays: Vec<Vec<u8>>,
    /// The carried row counters are from before a crash (`figures.rs`).
    rows_doubtful: bool,
}

impl State {
    /// # Errors
    /// `Unsupported`: all of them have been given out.
    fn new_index_id(&mut self) -> Result<IndexId> {
        let id = IndexId(self.next.index);
        assert!(id.0 >= FIRST_INDEX, "index {id} is no table's");
        if id.0 == INDEX_IDS_END {
            return Err(Error::Unsupported(
                "another index: all 2^32 index ids of this database are used up. What there is can be used as \
                 before. Dump the tables and load them into a new database"
                    .into(),
            ));
        }
        assert!(!self.by_index.contains_key(&id), "index {id} is in use");
        self.next.index += 1;
        Ok(id)
    }

    /// Names, definitions and indexes agree, and no id in use will be given out.
    fn is_sound(&self) -> bool {
        let few = self.specs.len() <= 64;
        let indexes = |spec: &TableSpec| spec.indexes.len();
        self.names.len() == self.specs.len()
            && (!few || self.by_index.len() == self.specs.values().map(indexes).sum::<usize>())
            && self.open.len() <= self.specs.len()
            && (!few || self.names.iter().all(|(name, id)| self.is_named(*id, name)))
            && (!few
                || self
                    .by_index
                    .iter()
                    .all(|(index, id)| self.has_index(*id, *index)))
    }

    fn names_of_index(&self, index: IndexId) -> Option<(String, String)> {
        let spec = self.specs.get(self.by_index.get(&index)?)?;
        let named = spec.indexes.iter().find(|i| i.id == index)?;
        Some((spec.name.clone(), named.name.clone()))
    }

    fn is_named(&self, id: TableId, name: &str) -> bool {
        let spec = self.specs.get(&id);
        id.0 < self.next.table && spec.is_some_and(|spec| spec.name == *name && spec.id == id)
    }

    fn has_index(&self, id: TableId, index: IndexId) -> bool {
        let spec = self.specs.get(&id);
        index.0 < self.next.index
            && spec.is_some_and(|spec| spec.indexes.iter().any(|i| i.id == index))
    }
}

/// From now on the table's pages are packed as its definition says when they are written, and stay in
/// memory as long as it says.
fn set_page_options(pool: &Pool, spec: &TableSpec) {
    let priority = cache_priority(&spec.definition);
    for index in &spec.indexes {
        assert!(
            index.id.0 >= FIRST_INDEX,
            "{} is no table's index",
            index.id
        );
        pool.set_packing(index.id, spec.packing);
        pool.set_cache_priority(index.id, priority);
    }
}

/// The dictionary of one database.
pub struct Dictionary {
    pool: Arc<Pool>,
    log: Arc<Log>,
    txns: Arc<TxnSystem>,
    tree: Tree,
    state: Mutex<State>,
    sizes: Arc<Sizes>,
    /// Of all tables in use.
    archived: Arc<ArchivedTotal>,
}

impl Dictionary {
    /// Makes the dictionary's tree in a new database.
    ///
    /// # Errors
    /// As [`Pool::reserve`].
    pub fn create(pool: &Arc<Pool>) -> Result<()> {
        let root = Tree::create(pool, DICTIONARY, NO_UNDO)?;
        assert_eq!(root, PageId(1), "the dictionary's root is page 1");
        Ok(())
    }

    /// Reads all definitions. `next`: ids that are not used yet, as far as checkpoint and log
    /// know.
    ///
    /// # Errors
    /// A page or a definition that cannot be read.
    pub fn load(
        pool: Arc<Pool>,
        log: Arc<Log>,
        txns: Arc<TxnSystem>,
        carried: BTreeMap<TableId, Carried>,
        mut next: NextIds,
    ) -> Result<Dictionary> {
        let reused = ferrite_sync::mutant!("dict.index_id_reused")
            || ferrite_sync::mutant!("rollback.owner_not_checked");
        if reused {
            next = NextIds::default();
        }
        next.table = next.table.max(1);
        next.index = next.index.max(FIRST_INDEX);
        let tree = Tree::new(pool.clone(), DICTIONARY, PageId(1));
        let mut state = State {
            carried,
            next,
            ..State::default()
        };
        let mut chunks = foreign_change::Chunks::default();
        tree.check(&mut |key, rec| {
            if let Some((id, generation, chunk)) = split_chunk_key(key) {
                state.next.above_table(id);
                chunks.insert((id, generation, chunk), rec.value.to_vec());
                return Ok(());
            }
            let fault = || Error::Corrupt("dictionary: a key has the wrong length".into());
            let (id, part) = split_key(key).ok_or_else(fault)?;
            // Also of parts whose definition a crash kept from coming.
            state.next.above_table(id);
            if part == 0 {
                let spec = TableSpec::decode(id, rec.value)?;
                for index in &spec.indexes {
                    state.next.above_index(index.id);
                    state.by_index.insert(index.id, id);
                }
                state.names.insert(spec.name.clone(), id);
                state.specs.insert(id, spec);
            } else if !state.specs.contains_key(&id) {
                // The definition comes first in the order of keys.
                state.strays.push(key.to_vec());
            }
            Ok(())
        })?;
        for spec in state.specs.values() {
            set_page_options(&pool, spec);
        }
        state.load_foreign(chunks)?;
        // Trees without a table still own page ids: their index ids are not given again.
        for index in pool.store().indexes() {
            state.next.above_index(index);
        }
        assert!(state.next.table > 0 && state.next.index >= FIRST_INDEX);
        debug_assert!(state
            .by_index
            .keys()
            .all(|index| index.0 < state.next.index));
        Ok(Dictionary {
            pool,
            log,
            txns,
            tree,
            sizes: state.specs.sizes(),
            state: Mutex::new(state),
            archived: Arc::default(),
        })
    }

    /// Indexes that own pages but belong to no table, and temporary tables of an earlier life.
    pub fn leftovers(&self) -> (Vec<IndexId>, Vec<String>) {
        let state = self.state.lock();
        let orphans = self
            .pool
            .store()
            .indexes()
            .into_iter()
            .filter(|i| *i != DICTIONARY && !state.by_index.contains_key(i))
            .collect();
        let temporary = state
            .specs
            .values()
            .filter(|s| s.temporary)
            .map(|s| s.name.clone())
            .collect();
        (orphans, temporary)
    }

    fn put(&self, key: &[u8], value: &[u8]) -> Result<Lsn> {
        if value.len() > MAX_SPEC_BYTES {
            return Err(Error::RowTooBig);
        }
        let (header, mut scratch) = (Header::default(), Scratch::default());
        let known = split_key(key).is_some() || split_chunk_key(key).is_some();
        debug_assert!(known, "a key of no definition");
        loop {
            let mut leaf = self.tree.leaf_mut(key, PageId::NONE)?;
            match leaf.find(key) {
                Ok(slot) if leaf.can_replace(slot, &header, value.len()) => {
                    let same = diff(leaf.record(slot).value, value);
                    let at = leaf.replace(NO_UNDO, slot, &header, value, same, &mut scratch);
                    debug_assert!(leaf.record(slot).value == value, "another definition");
                    return Ok(at.end);
                }
                Err(slot) if leaf.has_room(&header, key, value) => {
                    let at = leaf.insert(NO_UNDO, slot, &header, key, value, &mut scratch);
                    debug_assert_eq!(leaf.find(key), Ok(slot), "a definition is not found");
                    return Ok(at.end);
                }
                _ => {}
            }
            drop(leaf);
            self.tree
                .make_room(key, node::room_for(key.len(), value.len()), NO_UNDO)?;
        }
    }

    /// Removes what broken-off changes of definitions have left.
    ///
    /// # Errors
    /// A page that cannot be read.
    pub(crate) fn drop_strays(&self) -> Result<()> {
        let strays = std::mem::take(&mut self.state.lock().strays);
        for key in &strays {
            self.delete(key)?;
        }
        Ok(())
    }

    fn delete(&self, key: &[u8]) -> Result<Lsn> {
        let mut leaf = self.tree.leaf_mut(key, PageId::NONE)?;
        match leaf.find(key) {
            Ok(slot) => {
                let at = leaf.remove(NO_UNDO, slot, &mut Scratch::default());
                debug_assert!(leaf.find(key).is_err(), "a definition is there twice");
                Ok(at.end)
            }
            Err(_) => Ok(Lsn::ZERO),
        }
    }

    /// The table of that name, opened if it was not.
    ///
    /// # Errors
    /// `NotFound`; a page that cannot be read.
    pub fn open_table(&self, name: &str) -> Result<Arc<Table>> {
        let mut state = self.state.lock();
        let id = *state.names.get(name).ok_or(Error::NotFound)?;
        self.open_id(&mut state, id)
    }

    /// The table an index belongs to.
    ///
    /// # Errors
    /// `NotFound`; a page that cannot be read.
    pub fn table_of_index(&self, index: IndexId) -> Result<Arc<Table>> {
        let mut state = self.state.lock();
        let id = *state.by_index.get(&index).ok_or(Error::NotFound)?;
        self.open_id(&mut state, id)
    }

    /// Memory of all definitions, in bytes, about.
    pub(crate) fn memory_bytes(&self) -> u64 {
        self.sizes.bytes()
    }

    /// What the delete archives of all tables hold.
    pub(crate) fn archived(&self) -> &Arc<ArchivedTotal> {
        &self.archived
    }

    fn open_id(&self, state: &mut State, id: TableId) -> Result<Arc<Table>> {
        if let Some(table) = state.open.get(&id) {
            return Ok(table.clone());
        }
        let spec = state.specs.get(&id).ok_or(Error::NotFound)?.clone();
        assert_eq!(spec.id, id, "a definition of another table");
        let table = Table::new(spec, &self.pool, &self.archived);
        if let Some(carried) = state.carried.get(&id) {
            table.raise_auto_increment(carried.auto_increment);
            table.rows.store(carried.rows, Ordering::Relaxed);
        }
        if state.rows_doubtful {
            table.doubt_rows();
        }
        if table.spec.hidden_row_id {
            let last = table.tree(0).leaf_below(None, ferrite_tree::Keep::Yes)?;
            let highest = match last.count().checked_sub(1) {
                Some(slot) => {
                    let mut key = Vec::new();
                    node::key_into(&last, slot, &mut key);
                    let id = key.get(..8).and_then(|k| k.try_into().ok());
                    id.map_or(0, u64::from_be_bytes)
                }
                None => {
                    // The last leaf is empty: its low fence is above every id that was there.
                    let mut b = [0u8; 8];
                    let low = node::low(&last);
                    let n = low.len().min(8);
                    b[..n].copy_from_slice(&low[..n]);
                    u64::from_be_bytes(b)
                }
            };
            // An import of an earlier version took any id.
            let next = highest.saturating_add(1);
            table.next_row_id.store(next, Ordering::Relaxed);
        }
        if let Ok(slot_value) = self.read(&record_key(id, 1)) {
            *table.stats_blob.lock() = slot_value;
        }
        let table = Arc::new(table);
        let twin = state.open.insert(id, table.clone());
        assert!(
            twin.is_none(),
            "table {id} is open twice: its trees have two locks"
        );
        state.stale(id);
        Ok(table)
    }

    fn read(&self, key: &[u8]) -> Result<Vec<u8>> {
        let leaf = self.tree.leaf(key)?;
        let slot = leaf.find(key).map_err(|_| Error::NotFound)?;
        Ok(leaf.record(slot).value.to_vec())
    }

    /// True if there is a table of that name.
    pub fn exists(&self, name: &str) -> bool {
        self.state.lock().names.contains_key(name)
    }

    /// Another number with each new definition of the table; 0: there is no such table.
    pub fn definition_version(&self, name: &str) -> u64 {
        let state = self.state.lock();
        let spec = state.names.get(name).and_then(|id| state.specs.get(id));
        spec.map_or(0, TableSpec::definition_version)
    }

    /// Id and indexes of a table; None for a temporary one.
    ///
    /// # Errors
    /// `NotFound`.
    pub(crate) fn durable_indexes_of(&self, name: &str) -> Result<Option<(TableId, Vec<IndexId>)>> {
        let state = self.state.lock();
        let id = *state.names.get(name).ok_or(Error::NotFound)?;
        let spec = state.specs.get(&id).ok_or(Error::NotFound)?;
        let indexes = || (id, spec.indexes.iter().map(|i| i.id).collect());
        Ok((!spec.temporary).then(indexes))
    }

    /// Names of the tables of a database ("db/"). Temporary tables are their sessions' alone,
    /// whatever they are called.
    pub fn tables_of(&self, db: &str) -> Vec<String> {
        let prefix = format!("{db}/");
        let state = self.state.lock();
        let permanent = |id| state.specs.get(id).is_some_and(|spec| !spec.temporary);
        let tables = state.names.range(prefix.clone()..);
        tables
            .take_while(|(name, _)| name.starts_with(&prefix))
            .filter(|(_, id)| permanent(*id))
            .map(|(name, _)| name.clone())
            .collect()
    }

    /// Names of all tables that are not temporary, in order.
    pub fn table_names(&self) -> Vec<String> {
        let state = self.state.lock();
        let permanent = |id| state.specs.get(id).is_some_and(|spec| !spec.temporary);
        let names = state.names.iter().filter(|(_, id)| permanent(id));
        names.map(|(name, _)| name.clone()).collect()
    }

    /// Name of the table an index belongs to and the index's own. What is only shown asks [`Dictionary::names`].
    pub fn names_of_index(&self, index: IndexId) -> Option<(String, String)> {
        self.state.lock().names_of_index(index)
    }

    /// The names of a table's indexes in their order, as they are now: an open table keeps those that it was
    /// opened with.
    pub fn index_names(&self, table: &Table) -> Vec<String> {
        let state = self.state.lock();
        let spec = state.specs.get(&table.id()).unwrap_or(&table.spec);
        debug_assert_eq!(spec.id, table.id());
        spec.indexes.iter().map(|i| i.name.clone()).collect()
    }

    /// Name of a table.
    pub fn name_of(&self, table: TableId) -> Option<String> {
        Some(self.state.lock().specs.get(&table)?.name.clone())
    }

    /// Ids not used yet, for a checkpoint.
    pub(crate) fn next_ids(&self) -> NextIds {
        self.state.lock().next
    }

    /// The same for who must not wait for a change of the dictionary; None while there is one.
    pub(crate) fn next_ids_now(&self) -> Option<NextIds> {
        self.state.try_lock().map(|state| state.next)
    }

    /// Counters of all tables, for a checkpoint.
    pub fn carry(&self) -> BTreeMap<TableId, Carried> {
        let state = self.state.lock();
        let mut all = state.carried.clone();
        for (id, table) in &state.open {
            all.insert(*id, carried_of(table));
        }
        all.retain(|id, _| state.specs.contains_key(id));
        debug_assert!(all.keys().all(|id| id.0 < state.next.table));
        all
    }

    /// Every table that has been opened.
    pub(crate) fn open_tables(&self) -> Vec<Arc<Table>> {
        self.state.lock().open.values().cloned().collect()
    }

    /// Every table, opened if it was not.
    ///
    /// # Errors
    /// A page that cannot be read.
    pub(crate) fn all_tables(&self) -> Result<Vec<Arc<Table>>> {
        let mut state = self.state.lock();
        let ids: Vec<TableId> = state.specs.keys().copied().collect();
        ids.into_iter()
            .map(|id| self.open_id(&mut state, id))
            .collect()
    }

    /// Tables there are.
    pub fn table_count(&self) -> u64 {
        self.sizes.tables()
    }

    /// Tables that outlive the server.
    pub fn permanent_count(&self) -> usize {
        let state = self.state.lock();
        state.specs.values().filter(|s| !s.temporary).count()
    }
}

/// Appends an AUTO_INCREMENT record: table id u64, next value u64, set u8 (1: the counter is
/// set, 0: it is raised to at least that).
pub(crate) fn log_auto_increment(log: &Log, table: TableId, next: u64, set: bool) -> Lsn {
    assert!(next > 0 && table.0 > 0, "table {table} goes on at {next}");
    let mut body = [0u8; 17];
    body[..8].copy_from_slice(&table.0.to_le_bytes());
    body[8..16].copy_from_slice(&next.to_le_bytes());
    body[16] = u8::from(set);
    let kind = ferrite_types::format::record_kind::AUTO_INCREMENT;
    log.append(kind, &[&body]).end
}

/// The links of tables hold each other's tables.
impl Drop for Dictionary {
    fn drop(&mut self) {
        for table in self.state.lock().open.values() {
            *table.links.lock() = None;
        }
    }
}

fn carried_of(table: &Table) -> Carried {
    Carried {
        auto_increment: table.auto_increment.load(Ordering::SeqCst),
        rows: table.rows.load(Ordering::Relaxed),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::dictionary::foreign_change::References;
    use crate::catalog::spec::{IndexSpec, FIRST_PART, HALF_PARTS, INLINE_BYTES, MAX_REST_BYTES};
    use crate::offline::{MapFrom, Offline};
    use crate::rows::write::DupInfo;
    use crate::testing::{config, create, open, Heard};
    use crate::transaction::session::Session;
    use crate::Engine;
    use ferrite_io::sim::SimStorage;
    use ferrite_io::Storage;
    use ferrite_sync::random::Rng;
    use ferrite_sync::thread;
    use std::panic::{catch_unwind, AssertUnwindSafe};

    /// The table's definition with its rest, and how many records the table has.
    fn whole(dict: &Dictionary) -> (Option<Vec<u8>>, usize) {
        let state = dict.state.lock();
        let id = state.names["d/t"];
        let mut spec = state.specs[&id].clone();
        let part = |part: u8| dict.read(&record_key(id, part)).ok();
        let there = spec.complete(part);
        let records = (0..=u8::MAX).filter(|p| part(*p).is_some()).count();
        (there.then_some(spec.definition), records)
    }

    /// A part that is not there is a fault, for whoever reads the database without a server.
    #[test]
    fn a_missing_part_is_told() {
        let disk = SimStorage::new(3);
        let engine = open(&disk);
        for name in ["d/t", "d/u"] {
            let mut spec = TableSpec::new(name, vec![IndexSpec::new("PRIMARY", true, 1)]);
            spec.definition = vec![1; INLINE_BYTES + 9000];
            engine.dict.create_table(spec, 1).unwrap();
        }
        let faults = |disk: &SimStorage| {
            let storage: Arc<dyn Storage> = Arc::new(disk.boot());
            let offline = Offline::open(&storage, MapFrom::Checkpoint).unwrap();
            let mut faults = Vec::new();
            let tables = offline.tables(&mut |text| faults.push(text));
            assert_eq!(tables.len(), 2);
            faults
        };
        let id = engine.dict.state.lock().names["d/t"];
        engine.close().unwrap();
        drop(engine);
        assert!(faults(&disk).is_empty());
        let engine = open(&disk);
        engine.dict.delete(&record_key(id, FIRST_PART)).unwrap();
        engine.close().unwrap();
        drop(engine);
        let found = faults(&disk);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].contains("definition of table d/t"), "{found:?}");
    }

    /// The machine dies at any write of a change of the definition: the old one or the new one
    /// is there, with all its parts and no others.
    #[test]
    fn a_definition_changes_as_a_whole() {
        let bytes = |of: u8, parts: usize| vec![of; INLINE_BYTES + 1 + (parts - 1) * 4000];
        let mut seen = [0; 2];
        for seed in 0..60u64 {
            let disk = SimStorage::new(seed);
            let engine = open(&disk);
            let mut spec = TableSpec::new("d/t", vec![IndexSpec::new("PRIMARY", true, 1)]);
            let sizes = [1, 3, HALF_PARTS];
            let (old, new) = (sizes[seed as usize % 3], sizes[seed as usize / 3 % 3]);
            spec.definition = bytes(1, old);
            engine.dict.create_table(spec, 1).unwrap();
            if seed % 2 == 1 {
                engine.dict.redefine("d/t", &bytes(1, old)).unwrap();
            }
            disk.power_off_after(1 + seed % 5);
            let changed = catch_unwind(AssertUnwindSafe(|| {
                engine.dict.redefine("d/t", &bytes(2, new)).is_ok()
            }));
            disk.crash(&mut Rng::new(seed));
            let _ = catch_unwind(AssertUnwindSafe(|| engine.abandon()));
            drop(engine);
            let engine = open(&disk);
            let (definition, records) = whole(&engine.dict);
            let definition = definition.unwrap_or_else(|| panic!("seed {seed}: parts are missing"));
            let is_new = definition == bytes(2, new);
            assert!(
                is_new || definition == bytes(1, old),
                "seed {seed}: a mixture"
            );
            assert!(is_new || !matches!(changed, Ok(true)), "seed {seed}: lost");
            let parts = if is_new { new } else { old };
            // What was broken off goes with the next change.
            assert!(records > parts, "seed {seed}: {records} records");
            let before = engine.dict.definition_version("d/t");
            engine.dict.redefine("d/t", &bytes(3, 2)).unwrap();
            assert_ne!(engine.dict.definition_version("d/t"), before);
            assert_eq!(whole(&engine.dict), (Some(bytes(3, 2)), 3), "seed {seed}");
            engine.dict.drop_table("d/t", References::Any).unwrap();
            engine.close().unwrap();
            seen[usize::from(is_new)] += 1;
        }
        assert!(seen[0] > 5 && seen[1] > 5, "{seen:?}");
    }

    /// A definition that is too long is refused before anything of the old one goes, which is long, too: it has no half of
    /// its own.
    #[test]
    fn a_definition_that_is_too_long_leaves_the_old_one() {
        let disk = SimStorage::new(61);
        let mut engine = open(&disk);
        let mut spec = TableSpec::new("d/t", vec![IndexSpec::new("PRIMARY", true, 1)]);
        let old = vec![1; INLINE_BYTES + (HALF_PARTS + 3) * 4000];
        spec.definition = old.clone();
        engine.dict.create_table(spec, 1).unwrap();
        let before = whole(&engine.dict);
        assert_eq!(before.0.as_ref(), Some(&old));
        for restarted in [false, true] {
            if restarted {
                engine.close().unwrap();
                drop(engine);
                engine = open(&disk);
            }
            let long = vec![2; INLINE_BYTES + MAX_REST_BYTES + 1];
            let refused = engine.dict.redefine("d/t", &long);
            assert!(matches!(refused, Err(Error::RowTooBig)), "{refused:?}");
            assert!(
                whole(&engine.dict) == before,
                "parts of the old one are gone"
            );
        }
        engine.close().unwrap();
    }

    /// The last index id is given out: whatever needs another one is refused, what there is goes on, and a restart
    /// changes nothing. The server is told before.
    #[test]
    fn without_index_ids_tables_go_on() {
        let disk = SimStorage::new(62);
        let heard = Arc::new(Heard::default());
        let mut engine = Engine::open(config(), Arc::new(disk.boot()), heard.clone()).unwrap();
        create(&engine);
        engine.dict.state.lock().next.index = INDEX_IDS_END - 3;
        let told = |start: &str| heard.0.lock().iter().any(|text| text.starts_with(start));
        while !told("3 of 2^32 index ids are left") {
            thread::sleep_ms(10);
        }
        let with_three = |name: &str| {
            let index = |name: &str| IndexSpec::new(name, true, 1);
            TableSpec::new(name, vec![index("PRIMARY"), index("a"), index("b")])
        };
        engine.dict.create_table(with_three("d/u"), 1).unwrap();
        for restarted in [false, true] {
            if restarted {
                engine.close().unwrap();
                drop(engine);
                engine = open(&disk);
            }
            let dict = &engine.dict;
            let id_of_t = dict.state.lock().names["d/t"];
            let refused = [
                dict.create_table(with_three("d/v"), 1).err(),
                dict.truncate_table("d/u", 1, References::Any).err(),
                dict.make_tree_for(id_of_t, IndexSpec::new("c", false, 1))
                    .err(),
            ];
            for error in refused {
                let text = error.map_or("nothing".into(), |e| e.to_string());
                assert!(
                    text.contains("index ids of this database are used up"),
                    "{text}"
                );
            }
            assert!(dict.exists("d/u") && !dict.exists("d/v"));
            let t = dict.open_table("d/t").unwrap();
            let mut s = Session::new(&engine, 0, 1);
            let (key, dup) = ([u8::from(restarted)], &mut DupInfo::default());
            s.insert_row(&t, Some(&key), b"row", &[], false, dup)
                .unwrap();
            s.commit(false).unwrap();
        }
        engine.dict.drop_table("d/u", References::Any).unwrap();
        engine.close().unwrap();
    }
}
