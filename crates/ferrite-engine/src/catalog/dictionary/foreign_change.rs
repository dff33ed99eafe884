//! Changes of foreign keys on disk: with their table, alone, and when a parent gets another name.
//!
//! The constraints of a table lie in chunks of one of two generations; the table's definition says
//! in which. Names of parents and their columns are in the children's constraints. A parent's
//! change of them is in its definition (`pending`), in the same write as the change itself, until all
//! children are rewritten; a start goes on with it.
//!
//! Locking: all under the dictionary's `state`.

use super::foreign::{AlterForeign, NewForeign};
use super::index_change::NewIndex;
use super::referring::{folded, Owned};
use super::{Dictionary, State};
use crate::catalog::describe::Description;
use crate::catalog::foreign::{
    chunk_key, chunks, decode, encode, is_alter_original, is_copy, same_name, table_of, ForeignKey,
    ForeignPlace, Pending,
};
use crate::catalog::spec::{record_key, TableSpec};
use ferrite_sync::{kill_point, mutant, Arc};
use ferrite_types::{Error, Lsn, Result, TableId};
use std::collections::{BTreeMap, BTreeSet};

/// Chunks found when the dictionary is loaded: table, generation, number.
pub(super) type Chunks = BTreeMap<(TableId, u8, u16), Vec<u8>>;

/// What of other tables' constraints keeps a table from being dropped or emptied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum References {
    /// Any that refers to it.
    #[default]
    Any,
    /// Any of another database: this one goes as a whole.
    OtherDatabases,
    /// None (`foreign_key_checks=0`).
    None,
    /// Any that refers to it, unless there is a copy that is to take its place: the server finishes what
    /// a crash has broken off, a DROP that would have been refused as well as the end of an ALTER.
    UnlessReplaced,
}

/// A new name for a table, and what its constraints have to do with it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Renaming<'n> {
    /// Old and new name as users see them, without the database: names of constraints begin with it.
    pub shown: Option<(&'n str, &'n str)>,
    /// The constraints of a copy are to fit (`foreign_key_checks`).
    pub checks: bool,
}

/// What follows the table's name in the name of a constraint that nobody named.
const GENERATED: &str = "_ibfk_";

impl State {
    /// Takes over the constraints found on disk; what belongs to none is a stray.
    pub(super) fn load_foreign(&mut self, mut found: Chunks) -> Result<()> {
        let specs: Vec<TableSpec> = self.specs.values().cloned().collect();
        for spec in &specs {
            let Some(place) = spec.foreign else {
                continue;
            };
            let keys = place.read(|generation, n| found.remove(&(spec.id, generation, n)));
            let fault = || {
                Error::Corrupt(format!(
                    "foreign keys of table {} are unreadable",
                    spec.name
                ))
            };
            let owned: Vec<Owned> = keys
                .ok_or_else(fault)?
                .into_iter()
                .map(Owned::new)
                .collect();
            debug_assert!(
                self.foreign.of(spec.id).is_empty(),
                "{} is loaded twice",
                spec.name
            );
            self.take_names(spec.id, &spec.name, &owned);
            self.foreign.set(&spec.name, spec.id, owned);
        }
        let strays = found.into_keys();
        let strays = strays.map(|(id, generation, n)| chunk_key(id, generation, n).to_vec());
        self.strays.extend(strays);
        specs.iter().for_each(|spec| self.load_pending(spec));
        Ok(())
    }

    /// What those that refer to a table have yet to follow, when the dictionary is loaded.
    fn load_pending(&mut self, spec: &TableSpec) {
        let replaces = spec.replaces.as_ref();
        if replaces.is_some_and(|replaced| is_copy(&spec.name) || self.names.contains_key(replaced))
        {
            return self.note_held(spec);
        }
        if spec.pending.is_none() && replaces.is_none() || mutant!("foreign.pending_not_finished") {
            return;
        }
        if replaces.is_some() {
            self.release(spec.id);
        } else {
            self.foreign.unfinished.insert(spec.id);
        }
        if let Some(spec) = self.specs.get(&spec.id).cloned() {
            self.follow(&spec);
        }
    }

    /// Has the constraints of all children follow the parent's pending change, in memory. Gives the
    /// children that have it now.
    pub(super) fn follow(&mut self, parent: &TableSpec) -> Vec<TableId> {
        let Some(pending) = &parent.pending else {
            return Vec::new();
        };
        debug_assert!(pending.stamp != 0, "{}", parent.name);
        let before = self.foreign.children_of(&pending.from);
        let mut children: Vec<TableId> = before
            .chain(self.foreign.children_of(&parent.name))
            .collect();
        children.sort_unstable();
        children.dedup();
        for child in &children {
            let mut keys = self.foreign.of(*child).to_vec();
            let mut changed = false;
            for owned in &mut keys {
                changed |= pending.apply(Arc::make_mut(&mut owned.key), &parent.name);
            }
            let name = self.specs.get(child).map(|spec| spec.name.clone());
            if let Some(name) = name.filter(|_| changed) {
                self.foreign.set(&name, *child, keys);
                let stands =
                    self.foreign.is_stand_in(*child) || self.foreign.replaced.contains_key(&name);
                if is_alter_original(&name) && stands {
                    self.foreign.keep_names(&name, *child);
                }
            }
        }
        let has = |child: &TableId| {
            let mut keys = self.foreign.of(*child).iter();
            keys.any(|owned| owned.key.stamp == pending.stamp)
        };
        children.into_iter().filter(has).collect()
    }

    /// ALTER TABLE has read the constraints that it carries over some time ago, and holds nothing that
    /// keeps their parents: the original's say what those are called now.
    fn name_parents_anew(&self, new: &mut NewForeign) {
        let Some(original) = new.original.as_ref() else {
            return;
        };
        let Some(id) = self.names.get(original) else {
            return;
        };
        for (key, _) in new.keys.iter_mut().filter(|(_, carried)| *carried) {
            let mut current = self.foreign.of(*id).iter().map(|owned| &owned.key);
            let Some(now) = current.find(|now| same_name(&now.name, &key.name)) else {
                continue;
            };
            key.stamp = now.stamp;
            if now.parent == *original {
                continue;
            }
            key.parent.clone_from(&now.parent);
            let pairs = key.columns.iter_mut().zip(&now.columns);
            pairs.for_each(|((_, other), (_, now))| other.clone_from(now));
        }
    }
}

impl Owned {
    fn new(key: ForeignKey) -> Owned {
        Owned {
            key: Arc::new(key),
            carried: false,
        }
    }
}

fn sorted(mut keys: Vec<Owned>) -> Vec<Owned> {
    keys.sort_by(|a, b| a.key.name.cmp(&b.key.name));
    keys
}

/// Characters of the longest name that the server reads.
const MAX_NAME_CHARS: usize = 64;

/// The name of a constraint after its table got another one, if it follows it: not if that would make it
/// too long for a dump to be loaded.
fn generated_name(name: &str, from: &str, to: &str) -> Option<String> {
    let number = name.strip_prefix(from)?.strip_prefix(GENERATED)?;
    let name = format!("{to}{GENERATED}{number}");
    (name.chars().count() <= MAX_NAME_CHARS).then_some(name)
}

impl Dictionary {
    /// Checks the constraints of a table to be made.
    pub(super) fn admit_new(
        &self,
        state: &mut State,
        spec: &TableSpec,
        mut new: NewForeign,
    ) -> Result<Vec<Owned>> {
        self.finish_pending(state)?;
        state.name_parents_anew(&mut new);
        if new.keys.is_empty() && state.referring_to(&spec.name).next().is_none() {
            return Ok(Vec::new());
        }
        let mut known = super::foreign::Descriptions::default();
        self.check_new(state, &spec.name, &spec.definition, &new, &mut known)?;
        if let Some(own) = Description::decode(&spec.definition) {
            for (key, _) in &mut new.keys {
                self.spell(state, &spec.name, &own, key, &mut known);
            }
        }
        let owned = |(key, carried)| Owned {
            key: Arc::new(key),
            carried,
        };
        Ok(sorted(new.keys.into_iter().map(owned).collect()))
    }

    /// Writes constraints to the generation that is not in use and has `spec` refer to them.
    pub(super) fn put_keys(&self, spec: &mut TableSpec, keys: &[Owned]) -> Result<()> {
        let generation = spec.foreign.map_or(0, |place| 1 - place.generation.min(1));
        assert!(generation <= 1, "generation {generation} of {}", spec.name);
        debug_assert_ne!(spec.foreign.map(|place| place.generation), Some(generation));
        // What a broken-off change may have left there.
        self.delete_chunks(spec.id, generation)?;
        if keys.is_empty() {
            spec.foreign = None;
            return Ok(());
        }
        let keys: Vec<ForeignKey> = keys.iter().map(|o| (*o.key).clone()).collect();
        let bytes = encode(&keys).ok_or(Error::RowTooBig)?;
        debug_assert!(decode(&bytes).as_deref() == Some(&keys[..]), "other keys");
        for (chunk, value) in chunks(&bytes) {
            self.put(&chunk_key(spec.id, generation, chunk), value)?;
        }
        assert!(u32::try_from(bytes.len()).is_ok(), "{} bytes", bytes.len());
        let place = ForeignPlace {
            generation,
            length: bytes.len() as u32,
            checksum: crc32c::crc32c(&bytes),
        };
        debug_assert_eq!(
            place.read(|generation, n| self.read(&chunk_key(spec.id, generation, n)).ok()),
            Some(keys),
            "constraints of {} read differently",
            spec.name
        );
        spec.foreign = Some(place);
        kill_point!("dict.foreign.chunks");
        Ok(())
    }

    /// The last one first, so that what a crash leaves is found by the next one to remove them.
    pub(super) fn delete_chunks(&self, id: TableId, generation: u8) -> Result<()> {
        let there = |chunk: &u16| self.read(&chunk_key(id, generation, *chunk)).is_ok();
        let chunks: Vec<u16> = (0..=u16::MAX).take_while(there).collect();
        for chunk in chunks.into_iter().rev() {
            self.delete(&chunk_key(id, generation, chunk))?;
        }
        debug_assert!(!there(&0), "keys of {id} are left");
        Ok(())
    }

    /// What is in the generation that was in use before `spec` was written.
    fn delete_old_chunks(&self, old: &TableSpec) -> Result<()> {
        match old.foreign {
            Some(place) => self.delete_chunks(old.id, place.generation),
            None => Ok(()),
        }
    }

    /// Writes the constraints of a child as they are in memory.
    pub(super) fn rewrite_child(&self, state: &mut State, child: TableId) -> Result<()> {
        let Some(old) = state.specs.get(&child).cloned() else {
            return Ok(());
        };
        let mut spec = old.clone();
        let keys = state.foreign.of(child);
        let lost = usize::from(mutant!("foreign.lost_in_rewrite"));
        self.put_keys(&mut spec, &keys[lost.min(keys.len())..])?;
        assert_eq!(spec.id, child, "another table's definition");
        self.put(&record_key(child, 0), &spec.encode())?;
        state.specs.insert(child, spec);
        kill_point!("dict.foreign.child");
        self.delete_old_chunks(&old)
    }

    /// Has the children of all changed parents follow, on disk: what earlier changes, or those of an
    /// earlier life, have not done.
    pub(crate) fn finish_pending_changes(&self) -> Result<()> {
        self.finish_pending(&mut self.state.lock())
    }

    fn finish_pending(&self, state: &mut State) -> Result<()> {
        while let Some(id) = state.foreign.unfinished.first().copied() {
            self.finish_one(state, id)?;
        }
        debug_assert!(state.foreign.unfinished.is_empty());
        Ok(())
    }

    pub(super) fn finish_one(&self, state: &mut State, id: TableId) -> Result<()> {
        if let Some(end) = self.finish_logged(state, id)? {
            self.log.flush_to(end);
        }
        Ok(())
    }

    /// The same, up to the end of the log that this gives: nobody may see the state before that is flushed.
    pub(super) fn finish_logged(&self, state: &mut State, id: TableId) -> Result<Option<Lsn>> {
        let mut logged = None;
        if let Some(parent) = state.specs.get(&id).cloned() {
            for child in state.follow(&parent) {
                self.rewrite_child(state, child)?;
            }
            debug_assert!(
                parent.pending.is_some() || parent.is_held(),
                "{} has changed nothing",
                parent.name
            );
            kill_point!("dict.foreign.followed");
            // A child may be the table itself.
            let mut spec = state.specs.get(&id).ok_or(Error::NotFound)?.clone();
            (spec.pending, spec.replaces) = (None, None);
            logged = Some(self.put(&record_key(id, 0), &spec.encode())?);
            state.specs.insert(id, spec);
            state.foreign.replaced.retain(|_, heir| *heir != id);
        }
        state.foreign.unfinished.remove(&id);
        debug_assert!(state
            .specs
            .get(&id)
            .is_none_or(|spec| spec.pending.is_none()));
        Ok(logged)
    }

    /// Renames a table, durably.
    ///
    /// # Errors
    /// `NotFound`, `Exists`, `ForeignKey`; nothing changed. Already renamed is no error.
    pub(crate) fn rename_table(&self, from: &str, to: &str, how: &Renaming<'_>) -> Result<()> {
        let mut state = self.state.lock();
        let Some(&id) = state.names.get(from) else {
            return if state.names.contains_key(to) {
                Ok(())
            } else {
                Err(Error::NotFound)
            };
        };
        if state.names.contains_key(to) {
            return Err(Error::Exists);
        }
        self.finish_pending(&mut state)?;
        if !is_copy(to) && (how.checks || !is_copy(from)) {
            self.check_named(&state, id, to)?;
        }
        let taken_back = state.is_taken_back(id, to);
        if !taken_back {
            self.settle(&mut state, id)?;
        }
        let old = state.specs.get(&id).ok_or(Error::NotFound)?.clone();
        let mut spec = old.clone();
        spec.name = to.to_string();
        match taken_back {
            true => state.note_taken_back(&mut spec),
            false => state.note_place(&mut spec, from),
        }
        let keys = self.renamed_keys(&state, &spec, from, how)?;
        let linked = !is_copy(from) && !is_copy(to);
        if linked && state.foreign.children_of(from).next().is_some() {
            spec.pending = Some(Pending {
                stamp: self.log.current_lsn().0,
                from: from.to_string(),
                columns: Vec::new(),
            });
        }
        if keys.is_some() {
            let keys = keys.as_deref().unwrap_or_default();
            self.put_keys(&mut spec, keys)?;
        }
        let end = self.put(&record_key(id, 0), &spec.encode())?;
        kill_point!("dict.rename.logged");
        self.log.flush_to(end);
        debug_assert!(self.log.durable_lsn() >= end, "renamed and not on disk");
        debug_assert!(self.is_stored(&spec), "another definition is stored");
        kill_point!("dict.rename.durable");
        if keys.is_some() {
            let _ = self.delete_old_chunks(&old);
        }
        let keys = keys.unwrap_or_else(|| state.foreign.of(id).to_vec());
        self.note_renamed(&mut state, spec, from, keys);
        debug_assert_eq!(state.names.get(to), Some(&id), "{from} renamed");
        debug_assert!(!state.names.contains_key(from), "{from} is there twice");
        Ok(())
    }

    /// The constraints of a table that gets another name, if they change with it.
    fn renamed_keys(
        &self,
        state: &State,
        spec: &TableSpec,
        from: &str,
        how: &Renaming<'_>,
    ) -> Result<Option<Vec<Owned>>> {
        if is_copy(&spec.name) || state.foreign.of(spec.id).is_empty() {
            return Ok(None);
        }
        let shown = how.shown.unwrap_or((table_of(from), table_of(&spec.name)));
        let mut changed = false;
        let mut names = BTreeSet::new();
        let mut keys = state.foreign.of(spec.id).to_vec();
        for owned in &mut keys {
            if let Some(name) = generated_name(&owned.key.name, shown.0, shown.1) {
                changed |= owned.key.name != name;
                Arc::make_mut(&mut owned.key).name = name;
            }
            let name = &owned.key.name;
            let owner = state.foreign.owner_of_name(&spec.name, name);
            let is_anothers = owner.is_some_and(|owner| owner != spec.id)
                && !state.has_name_from_original(spec, name);
            if is_anothers || !names.insert(folded(name)) {
                return Err(Error::Exists);
            }
        }
        debug_assert_eq!(keys.len(), state.foreign.of(spec.id).len());
        Ok(changed.then(|| sorted(keys)))
    }

    /// After a table is renamed on disk.
    fn note_renamed(&self, state: &mut State, spec: TableSpec, from: &str, mut keys: Vec<Owned>) {
        let (id, to) = (spec.id, spec.name.clone());
        let pending = spec.pending.is_some() && spec.replaces.is_none();
        let parents = state.parents_of(id);
        state.foreign.forget(from, id);
        let named = state.names.remove(from);
        assert_eq!(named, Some(id), "another table is renamed");
        let other = state.names.insert(to.clone(), id);
        assert!(other.is_none(), "{to} is there already");
        // An open instance stays (its trees' structure locks must have no twin); its own copy
        // of the definition keeps the old name, which nothing reads.
        state.give_names_back(id);
        state.foreign.replaced.retain(|_, heir| *heir != id);
        state.note_held(&spec);
        state.specs.insert(id, spec);
        if is_copy(&to) {
            state.foreign.set(&to, id, keys);
            if is_alter_original(&to) {
                state.foreign.keep_names(&to, id);
            }
            state.foreign.stands_in(from, id);
        } else {
            for owned in &mut keys {
                owned.carried = false;
            }
            state.take_names(id, &to, &keys);
            state.now_named(&to, id, keys);
        }
        if pending {
            state.foreign.unfinished.insert(id);
            // What fails here is tried again with the next change, and at the next start.
            let _ = self.finish_one(state, id);
        }
        state.stale_around(id, from);
        state.stale_around(id, &to);
        state.stale_all(&parents);
    }

    /// Gives a table other constraints, other names of its columns, other indexes (if any are given)
    /// and another definition, all or nothing of it, durably.
    ///
    /// # Errors
    /// `NotFound`, `ForeignKey`, `RowTooBig`; nothing changed.
    pub(crate) fn alter_table(
        &self,
        name: &str,
        definition: &[u8],
        alter: &AlterForeign,
        indexes: Option<&[NewIndex]>,
    ) -> Result<()> {
        let mut state = self.state.lock();
        self.finish_pending(&mut state)?;
        let id = *state.names.get(name).ok_or(Error::NotFound)?;
        self.settle(&mut state, id)?;
        let old = state.specs.get(&id).ok_or(Error::NotFound)?.clone();
        let mut spec = match indexes {
            Some(indexes) => Dictionary::with_new_indexes(&old, indexes)?,
            None => old.clone(),
        };
        // What can fail comes before the definition changes.
        let open = indexes.map(|_| self.open_id(&mut state, id)).transpose()?;
        for (index, name) in spec.indexes.iter_mut().zip(&alter.index_names) {
            index.name.clone_from(name);
        }
        spec.packing = alter.packing.unwrap_or(spec.packing);
        let parents = state.parents_of(id);
        let keys = self.altered_keys(&state, name, definition, alter, id)?;
        let known: Vec<(String, String)> = alter.renamed.clone();
        if !known.is_empty() && state.foreign.children_of(name).next().is_some() {
            spec.pending = Some(Pending {
                stamp: self.log.current_lsn().0,
                from: name.to_string(),
                columns: self.columns_referred_to(&state, name, known),
            });
        }
        self.put_keys(&mut spec, &keys)?;
        let pending = spec.pending.is_some();
        if let Some(open) = &open {
            self.forget_stats(open)?;
        }
        self.put_altered(&mut state, &old, spec, definition, alter.auto_increment)?;
        let _ = self.delete_old_chunks(&old);
        debug_assert!(state.specs.get(&id).is_some_and(|spec| spec.name == name));
        debug_assert!(keys.iter().all(|owned| !owned.key.columns.is_empty()));
        state.foreign.set(name, id, keys);
        let replaced = match (indexes, open) {
            (Some(indexes), Some(open)) => {
                Some(self.switch_indexes(&mut state, &old, open, indexes)?)
            }
            _ => None,
        };
        if pending {
            state.foreign.unfinished.insert(id);
            let _ = self.finish_one(&mut state, id);
        }
        state.stale_around(id, name);
        for parent in parents {
            if let Some(parent) = state.names.get(&parent).copied() {
                state.stale(parent);
            }
        }
        drop(state);
        if let Some(replaced) = &replaced {
            self.drop_replaced(replaced);
        }
        Ok(())
    }

    /// Those of the columns that a constraint of another table names.
    fn columns_referred_to(
        &self,
        state: &State,
        name: &str,
        mut columns: Vec<(String, String)>,
    ) -> Vec<(String, String)> {
        let children = state.foreign.children_of(name);
        let keys = children.flat_map(|child| state.foreign.of(child));
        let referred: Vec<&String> = keys
            .filter(|owned| owned.key.parent == name)
            .flat_map(|owned| owned.key.columns.iter().map(|(_, there)| there))
            .collect();
        columns.retain(|(old, _)| referred.iter().any(|name| same_name(name, old)));
        debug_assert!(columns.len() <= referred.len() || referred.is_empty());
        columns
    }

    /// The constraints of a table after a change of them.
    fn altered_keys(
        &self,
        state: &State,
        name: &str,
        definition: &[u8],
        alter: &AlterForeign,
        id: TableId,
    ) -> Result<Vec<Owned>> {
        let dropped = |key: &ForeignKey| alter.drop.iter().any(|name| same_name(name, &key.name));
        let mut keys = state.foreign.of(id).to_vec();
        keys.retain(|owned| !dropped(&owned.key));
        for owned in &mut keys {
            for (own, _) in &mut Arc::make_mut(&mut owned.key).columns {
                if let Some((_, new)) = alter.renamed.iter().find(|(old, _)| same_name(old, own)) {
                    own.clone_from(new);
                }
            }
        }
        let mut new = alter.add.clone();
        let before = keys.iter().map(|owned| ((*owned.key).clone(), true));
        new.keys.extend(before);
        new.original = Some(name.to_string());
        let checked = NewForeign {
            checks: false,
            ..new
        };
        let mut known = super::foreign::Descriptions::default();
        self.check_new(state, name, definition, &checked, &mut known)?;
        keys.extend(
            alter
                .add
                .keys
                .iter()
                .map(|(key, _)| Owned::new(key.clone())),
        );
        if let Some(own) = Description::decode(definition) {
            for owned in &mut keys {
                self.spell(state, name, &own, Arc::make_mut(&mut owned.key), &mut known);
            }
        }
        Ok(sorted(keys))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generated_names_follow_their_table() {
        let follow = |name| generated_name(name, "t", "u");
        assert_eq!(follow("t_ibfk_12").as_deref(), Some("u_ibfk_12"));
        // As InnoDB's, whoever gave the name.
        assert_eq!(follow("t_ibfk_a").as_deref(), Some("u_ibfk_a"));
        assert_eq!(follow("t_x"), None);
        assert_eq!(generated_name("t_ibfk_1", "t", &"ü".repeat(58)), None);
        assert!(generated_name("t_ibfk_1", "t", &"ü".repeat(57)).is_some());
        assert_eq!(follow("tt_ibfk_1"), None);
    }
}
