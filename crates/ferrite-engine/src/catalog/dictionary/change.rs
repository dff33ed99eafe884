//! Changes of the dictionary: CREATE, DROP, RENAME, TRUNCATE, another definition. Each is durable
//! when the call returns, and leaves everything as it was when it fails.
//!
//! Locking: `state` over the whole change, except that a dropped table's trees go after it.

use super::foreign::NewForeign;
use super::foreign_change::References;
use super::{log_auto_increment, set_page_options, Carried, Dictionary, State};
use crate::catalog::cache_priority::keep_cache_priority;
use crate::catalog::foreign::is_copy;
use crate::catalog::spec::{
    record_key, IndexSpec, TableSpec, FIRST_PART, HALF_PARTS, INLINE_BYTES, MAX_REST_BYTES,
    MAX_SPEC_BYTES, SECOND_HALF,
};
use crate::catalog::table::Table;
use crate::log_records::undo::NO_UNDO;
use ferrite_sync::atomic::Ordering;
use ferrite_sync::{kill_point, time, Arc, MutexGuard};
use ferrite_tree::Tree;
use ferrite_types::format::Packing;
use ferrite_types::{Error, IndexId, Lsn, PageId, Result, TableId};

impl Dictionary {
    /// Makes a table from `spec` (ids and roots are filled in here). Durable on return.
    ///
    /// # Errors
    /// `Exists`; `RowTooBig` for a definition that is too long; `Unsupported` when the index ids are used up;
    /// nothing remains of it.
    pub fn create_table(&self, spec: TableSpec, auto_increment: u64) -> Result<Arc<Table>> {
        self.create_with_foreign(spec, auto_increment, NewForeign::default())
    }

    /// As [`Dictionary::create_table`], with foreign keys.
    ///
    /// # Errors
    /// Also `ForeignKey` when one does not fit, or one that waits for the table does not.
    pub fn create_with_foreign(
        &self,
        mut spec: TableSpec,
        auto_increment: u64,
        foreign: NewForeign,
    ) -> Result<Arc<Table>> {
        let mut state = self.state.lock();
        if state.names.contains_key(&spec.name) {
            return Err(Error::Exists);
        }
        spec.replaces = foreign.original.clone().filter(|_| is_copy(&spec.name));
        let to_follow = spec.replaces.as_ref().filter(|_| foreign.follows);
        let stamp = self.log.current_lsn().0;
        spec.pending =
            to_follow.and_then(|original| state.pending_for_copy(&spec.name, original, stamp));
        let keys = self.admit_new(&mut state, &spec, foreign)?;
        spec.id = TableId(state.next.table);
        spec.created_unix_s = time::unix_us() / 1_000_000;
        state.next.table += 1;
        assert!(
            !state.specs.contains_key(&spec.id),
            "table {} is in use",
            spec.id
        );
        self.make_trees(&mut state, &mut spec)?;
        kill_point!("dict.create.trees_made");
        // Also tells a restart, before anything else does, that the table's id is used.
        log_auto_increment(&self.log, spec.id, auto_increment.max(1), true);
        let put = self.put_keys(&mut spec, &keys);
        let end = match put.and_then(|()| self.put_spec(&spec)) {
            Ok(end) => end,
            Err(e) => {
                self.drop_trees(&spec);
                return Err(e);
            }
        };
        if !ferrite_sync::mutant!("dict.create_not_durable") {
            self.log.flush_to(end);
        }
        debug_assert!(self.log.durable_lsn() >= end, "created and not on disk");
        debug_assert!(self.is_stored(&spec), "another definition is stored");
        kill_point!("dict.create.durable");
        for index in &spec.indexes {
            let other = state.by_index.insert(index.id, spec.id);
            assert!(other.is_none(), "index {} was given out twice", index.id);
        }
        let other = state.names.insert(spec.name.clone(), spec.id);
        assert!(other.is_none(), "{} is there already", spec.name);
        state.specs.insert(spec.id, spec.clone());
        set_page_options(&self.pool, &spec);
        let table = Arc::new(Table::new(spec, &self.pool, &self.archived));
        table.raise_auto_increment(auto_increment.max(1));
        table.set_usable_from(self.txns.mark());
        state.open.insert(table.id(), table.clone());
        state.now_named(&table.spec.name, table.id(), keys);
        debug_assert!(state.is_sound(), "after {} was created", table.id());
        Ok(table)
    }

    /// What a restart will read of the definition is what was meant.
    pub(super) fn is_stored(&self, spec: &TableSpec) -> bool {
        let read = self.read(&record_key(spec.id, 0));
        read.map_or(true, |bytes| bytes == spec.encode())
    }

    /// New ids and empty trees for all indexes of a definition; none on failure.
    fn make_trees(&self, state: &mut State, spec: &mut TableSpec) -> Result<()> {
        for at in 0..spec.indexes.len() {
            let made = state.new_index_id().and_then(|id| {
                let root = Tree::create(&self.pool, id, NO_UNDO)?;
                assert!(root != PageId::NONE, "index {id} has no root");
                Ok((id, root))
            });
            match made {
                Ok(made) => (spec.indexes[at].id, spec.indexes[at].root) = made,
                Err(e) => {
                    spec.indexes.truncate(at);
                    self.drop_trees(spec);
                    return Err(e);
                }
            }
        }
        Ok(())
    }

    fn drop_trees(&self, spec: &TableSpec) {
        for index in &spec.indexes {
            self.pool.drop_index(index.id);
        }
    }

    /// A new definition: first what it goes on in, then itself.
    fn put_spec(&self, spec: &TableSpec) -> Result<Lsn> {
        check_size(spec)?;
        for (part, bytes) in spec.parts() {
            assert!(part >= FIRST_PART, "part {part} is the definition's own");
            self.put(&record_key(spec.id, part), bytes)?;
        }
        self.put(&record_key(spec.id, 0), &spec.encode())
    }

    /// Gives a table other bytes of the plugin's, durably: all of the old ones or all of the
    /// new ones, whenever the machine dies.
    ///
    /// # Errors
    /// `NotFound`; `RowTooBig` when there are too many.
    pub fn redefine(&self, name: &str, definition: &[u8]) -> Result<()> {
        let mut state = self.state.lock();
        let id = *state.names.get(name).ok_or(Error::NotFound)?;
        let old = state.specs.get(&id).ok_or(Error::NotFound)?.clone();
        self.put_redefined(&mut state, &old, old.clone(), Some(definition))
    }

    /// Says how a table's pages are to be packed when they are written from now on, durably.
    ///
    /// # Errors
    /// `NotFound`; a page that cannot be read.
    pub fn repack(&self, name: &str, packing: Packing) -> Result<()> {
        let mut state = self.state.lock();
        let id = *state.names.get(name).ok_or(Error::NotFound)?;
        let old = state.specs.get(&id).ok_or(Error::NotFound)?.clone();
        let spec = TableSpec {
            packing,
            ..old.clone()
        };
        self.put_redefined(&mut state, &old, spec, None)
    }

    /// Writes `spec` over `old` with another definition, and with another AUTO_INCREMENT counter if there is one. The
    /// counter comes first, so no crash leaves the definition without it. One may leave it with the old definition:
    /// no value of a row is above it, so that is right, too.
    pub(super) fn put_altered(
        &self,
        state: &mut State,
        old: &TableSpec,
        spec: TableSpec,
        definition: &[u8],
        counter: Option<u64>,
    ) -> Result<()> {
        let Some(next) = counter else {
            return self.put_redefined(state, old, spec, Some(definition));
        };
        let table = self.open_id(state, old.id)?;
        let before = self.set_counter(&table, next);
        kill_point!("dict.alter.counter");
        let put = self.put_redefined(state, old, spec, Some(definition));
        if put.is_err() {
            let failed = self.set_counter(&table, before);
            debug_assert_eq!(failed, next.max(1), "the counter moved in an ALTER");
        }
        put
    }

    /// Sets a table's counter, durable with the next flush. The one before. In memory first: a checkpoint behind the
    /// record is to carry this one.
    fn set_counter(&self, table: &Table, next: u64) -> u64 {
        let next = next.max(1);
        let before = table.auto_increment.swap(next, Ordering::SeqCst);
        log_auto_increment(&self.log, table.id(), next, true);
        debug_assert!(before > 0, "the counter begins at 1");
        before
    }

    /// Writes `spec` over `old`, with another definition if there is one.
    pub(super) fn put_redefined(
        &self,
        state: &mut State,
        old: &TableSpec,
        mut spec: TableSpec,
        definition: Option<&[u8]>,
    ) -> Result<()> {
        let mut apart = false;
        if let Some(definition) = definition {
            spec.definition = definition.to_vec();
            keep_cache_priority(&mut spec.definition, &old.definition);
            spec.rest = None;
            // Before anything of the old one goes.
            check_size(&spec)?;
            // Longer ones (half a megabyte) are replaced where they are; a crash between may leave
            // their beginning only, which is all that the server needs.
            apart = old.part_count() <= HALF_PARTS && spec.part_count() <= HALF_PARTS;
            spec.in_second_half = apart && !old.in_second_half;
            if apart {
                // What a broken-off change may have left there.
                self.delete_parts(spec.id, spec.first_part())?;
            } else {
                self.delete_parts(spec.id, SECOND_HALF)?;
                self.delete_parts(spec.id, FIRST_PART)?;
            }
        }
        kill_point!("dict.redefine.begun");
        assert_eq!(spec.id, old.id, "a definition goes to another table");
        let end = match definition {
            Some(_) => self.put_spec(&spec)?,
            None => self.put(&record_key(spec.id, 0), &spec.encode())?,
        };
        debug_assert!(self.is_stored(&spec), "another definition is stored");
        kill_point!("dict.redefine.logged");
        self.log.flush_to(end);
        debug_assert!(self.log.durable_lsn() >= end, "redefined and not on disk");
        set_page_options(&self.pool, &spec);
        state.specs.insert(spec.id, spec);
        if apart {
            // The new definition is durable, whatever fails: what stays of the old one goes with the next.
            let _ = self.delete_parts(old.id, old.first_part());
        }
        Ok(())
    }

    /// Removes the parts of the half that begins with that number; the last one first, so that
    /// what a crash leaves is found by the next one to remove them.
    fn delete_parts(&self, id: TableId, first: u8) -> Result<()> {
        let there = |part: &u8| self.read(&record_key(id, *part)).is_ok();
        let half = match first {
            SECOND_HALF => SECOND_HALF..=u8::MAX,
            _ => FIRST_PART..=SECOND_HALF - 1,
        };
        let parts: Vec<u8> = half.take_while(there).collect();
        for part in parts.into_iter().rev() {
            self.delete(&record_key(id, part))?;
        }
        Ok(())
    }

    /// Whether foreign keys let a table be dropped. One that is not there does not keep anybody.
    ///
    /// # Errors
    /// `Referenced`.
    pub(crate) fn check_droppable(&self, name: &str, references: References) -> Result<()> {
        let state = self.state.lock();
        if !state.names.contains_key(name) {
            return Ok(());
        }
        state.check_droppable(name, references)
    }

    /// Drops a table: its record durably, then its trees.
    ///
    /// # Errors
    /// `NotFound`; `Referenced`; a page that cannot be read. The table is as it was.
    pub(crate) fn drop_table(&self, name: &str, references: References) -> Result<()> {
        let mut state = self.state.lock();
        let id = *state.names.get(name).ok_or(Error::NotFound)?;
        state.check_droppable(name, references)?;
        // With the table goes what its children have yet to follow.
        if state.foreign.unfinished.contains(&id) {
            self.finish_one(&mut state, id)?;
        }
        let end = self.delete(&record_key(id, 0))?;
        // From here on the table is gone, whatever fails.
        if let Some(table) = state.open.get(&id) {
            table.dropped.store(true, Ordering::SeqCst);
        }
        kill_point!("dict.drop.logged");
        self.delete_parts_of_dropped(id);
        if !ferrite_sync::mutant!("dict.drop_not_durable") {
            self.log.flush_to(end);
        }
        debug_assert!(self.log.durable_lsn() >= end, "dropped and not on disk");
        kill_point!("dict.drop.durable");
        let named = state.names.remove(name);
        assert_eq!(named, Some(id), "another table is dropped");
        let open = state.open.remove(&id);
        if let Some(table) = &open {
            *table.links.lock() = None;
        }
        let heirs = state.heirs_of(name);
        state.foreign.replaced.remove(name);
        state.gone(name, id);
        state.carried.remove(&id);
        let spec = state.specs.remove(id).ok_or(Error::NotFound)?;
        for index in &spec.indexes {
            let of = state.by_index.remove(&index.id);
            assert_eq!(of, Some(id), "an index of another table is dropped");
        }
        // Of a table that gets partitions there are thousands: one flush for all.
        let ends = heirs
            .into_iter()
            .filter_map(|heir| self.take_place(&mut state, heir, name));
        if let Some(end) = ends.max() {
            self.log.flush_to(end);
        }
        debug_assert!(state.is_sound(), "after {id} was dropped");
        drop(state);
        let _alone = open.as_ref().map(|t| t.close());
        for index in &spec.indexes {
            self.pool.drop_index(index.id);
        }
        Ok(())
    }

    /// What a definition has besides its first record, which is gone. What cannot be read now
    /// stays for the next start, which finds it as what a broken-off change has left.
    fn delete_parts_of_dropped(&self, id: TableId) {
        let _ = self.delete(&record_key(id, 1));
        let _ = self.delete_parts(id, SECOND_HALF);
        let _ = self.delete_parts(id, FIRST_PART);
        let _ = self.delete_chunks(id, 0);
        let _ = self.delete_chunks(id, 1);
    }

    /// Empties a table: new trees, then the record that names them, then the old trees go.
    ///
    /// # Errors
    /// `NotFound`; `Referenced`; `Unsupported` when the index ids are used up; nothing changed.
    pub(crate) fn truncate_table(
        &self,
        name: &str,
        auto_increment: u64,
        references: References,
    ) -> Result<()> {
        let mut state = self.state.lock();
        let id = *state.names.get(name).ok_or(Error::NotFound)?;
        state.check_unreferenced(name, references)?;
        let mut spec = state.specs.get(&id).ok_or(Error::NotFound)?.clone();
        self.make_trees(&mut state, &mut spec)?;
        let carried = Carried {
            auto_increment: auto_increment.max(1),
            rows: 0,
        };
        self.replace_trees(state, spec, carried)
    }

    /// Gives a table trees that have been filled for it, in the place of its own.
    ///
    /// # Errors
    /// `NotFound`; a page that cannot be read. Nothing changed, and the trees have gone.
    pub(crate) fn take_filled(
        &self,
        name: &str,
        trees: Vec<IndexSpec>,
        carried: Carried,
    ) -> Result<()> {
        let state = self.state.lock();
        let id = *state.names.get(name).ok_or(Error::NotFound)?;
        let mut spec = state.specs.get(&id).ok_or(Error::NotFound)?.clone();
        assert!(
            spec.indexes.len() == trees.len() && carried.auto_increment > 0,
            "table {id}: {} trees for {} indexes",
            trees.len(),
            spec.indexes.len()
        );
        spec.indexes = trees;
        self.replace_trees(state, spec, carried)
    }

    /// The table's definition is `spec` from here on, which names other trees. None of them remains if that
    /// fails.
    fn replace_trees(
        &self,
        mut state: MutexGuard<'_, State>,
        spec: TableSpec,
        carried: Carried,
    ) -> Result<()> {
        let (id, name) = (spec.id, spec.name.clone());
        let before = state.specs.get(&id).map(|spec| spec.indexes.iter());
        let old: Vec<IndexId> = before.into_iter().flatten().map(|i| i.id).collect();
        assert!(
            spec.indexes.len() == old.len() && spec.indexes.iter().all(|i| !old.contains(&i.id)),
            "table {id}: a tree that goes stays"
        );
        // Raised before the record that names the rows, and set after it: no crash leaves rows with a lower counter.
        log_auto_increment(&self.log, id, carried.auto_increment, false);
        if let Err(e) = self.put(&record_key(id, 0), &spec.encode()) {
            self.drop_trees(&spec);
            return Err(e);
        }
        let end = log_auto_increment(&self.log, id, carried.auto_increment, true);
        self.log.flush_to(end);
        debug_assert!(self.log.durable_lsn() >= end, "replaced and not on disk");
        kill_point!("dict.truncate.durable");
        let open = state.open.remove(&id);
        if let Some(table) = &open {
            *table.links.lock() = None;
            table.dropped.store(true, Ordering::SeqCst);
        }
        state.carried.insert(id, carried);
        for index in &old {
            let of = state.by_index.remove(index);
            assert_eq!(of, Some(id), "an index of another table is emptied");
        }
        for index in &spec.indexes {
            let other = state.by_index.insert(index.id, id);
            assert!(other.is_none(), "index {} was given out twice", index.id);
        }
        set_page_options(&self.pool, &spec);
        state.specs.insert(id, spec);
        debug_assert!(state.is_sound(), "after the trees of {id} were replaced");
        let fresh = self.open_id(&mut state, id);
        state.stale_around(id, &name);
        if let Ok(table) = &fresh {
            table.set_usable_from(self.txns.mark());
        }
        drop(state);
        let _alone = open.as_ref().map(|t| t.close());
        for index in old {
            self.pool.drop_index(index);
        }
        // Replaced they are: whoever opens the table next meets the error.
        drop(fresh);
        Ok(())
    }
}

/// Is it one that the dictionary can have?
///
/// # Errors
/// `RowTooBig`.
fn check_size(spec: &TableSpec) -> Result<()> {
    let fits = spec.definition.len() <= INLINE_BYTES + MAX_REST_BYTES;
    match fits && spec.encode().len() <= MAX_SPEC_BYTES {
        true => Ok(()),
        false => Err(Error::RowTooBig),
    }
}
