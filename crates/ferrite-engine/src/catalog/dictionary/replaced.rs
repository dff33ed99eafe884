//! Copies that ALTER TABLE gives another name than their original's (`RENAME TO`), and from when on those that refer to
//! the original refer to them.
//!
//! | step of the server's | the copy's definition | what the children have |
//! | --- | --- | --- |
//! | makes the copy | replaces the original; that they are to follow it is pending | the original |
//! | puts the original aside | | the original, which stands in for its name |
//! | gives the copy the new name | replaces the original, under the name that it has now | the original |
//! | drops the original | neither | the copy |
//! | cannot drop it, and goes on | replaces the original, and nothing is pending | the copy |
//!
//! Until it drops the original, the server may take everything back: it drops the copy, whatever that is called, or gives it
//! its old name before (the definition file could not be renamed), and gives the original its name. After a crash it only goes forward, and forgets what it has put aside: the copy's
//! definition proves that this has been replaced ([`Dictionary::replaced_tables`]). With `foreign_key_checks=0` it puts
//! nothing aside; after a crash it drops the original before the copy has its name.
//!
//! Invariant: what is pending in the definition of a table that replaces another one is nobody's to follow yet. The
//! original's own definition says what it was called when it was put aside.
//!
//! Locking: all under the dictionary's `state`.

use super::foreign_change::References;
use super::referring::{folded, Owned};
use super::{Dictionary, State};
use crate::catalog::foreign::{
    database_of, is_alter_copy, is_alter_original, is_copy, is_part, original_of, table_of, Pending,
};
use crate::catalog::spec::{record_key, TableSpec};
use ferrite_types::{Error, Lsn, Result, TableId};

impl TableSpec {
    /// The copy has its name, and its original is there: the server may still take it back.
    pub(super) fn is_held(&self) -> bool {
        self.replaces.is_some() && !is_copy(&self.name)
    }
}

impl State {
    /// What is pending for a new copy of that name: those that refer to `original` follow it to another name.
    pub(super) fn pending_for_copy(
        &self,
        copy: &str,
        original: &str,
        stamp: u64,
    ) -> Option<Pending> {
        // Whoever refers to it by then: one may come while the copy is filled.
        if is_part(copy) || !self.names.contains_key(original) {
            return None;
        }
        debug_assert!(is_copy(copy) && !is_copy(original), "{copy} of {original}");
        Some(Pending {
            stamp,
            from: original.to_string(),
            columns: Vec::new(),
        })
    }

    /// Has `spec`, the definition of a table that was called `from`, say what it takes the place of under its new name.
    pub(super) fn note_place(&self, spec: &mut TableSpec, from: &str) {
        if !is_copy(from) {
            debug_assert!(spec.replaces.is_none(), "{from} is not settled");
            spec.replaces = is_alter_original(&spec.name).then(|| from.to_string());
            return;
        }
        let replaced = spec.replaces.take();
        let is_copys = is_alter_copy(from) && !is_copy(&spec.name);
        match replaced.filter(|original| is_copys && *original != spec.name) {
            Some(original) => spec.replaces = self.original_now(from, &original),
            // It is called as they know it, or has nobody's place.
            None => spec.pending = None,
        }
        debug_assert!(spec.replaces.as_ref() != Some(&spec.name));
    }

    /// A copy that has its name, and is to be called `to`, has its old name again.
    pub(super) fn is_taken_back(&self, id: TableId, to: &str) -> bool {
        is_alter_copy(to) && self.specs.get(&id).is_some_and(TableSpec::is_held)
    }

    /// Has `spec`, the definition of a copy that is to have its old name again, say what it is to take the place of, as
    /// before it had another one.
    pub(super) fn note_taken_back(&self, spec: &mut TableSpec) {
        debug_assert!(is_alter_copy(&spec.name), "{} is no copy", spec.name);
        let replaced = spec.replaces.as_ref();
        let aside = replaced.and_then(|name| self.specs.get(self.names.get(name)?));
        let known_as = aside.and_then(|aside| aside.replaces.clone());
        spec.replaces = known_as.or_else(|| spec.replaces.take());
        debug_assert!(spec.replaces.as_deref().is_some_and(|name| !is_copy(name)));
    }

    /// What the original of a copy is called now, if it is there.
    fn original_now(&self, copy: &str, original: &str) -> Option<String> {
        if self.names.contains_key(original) {
            return Some(original.to_string());
        }
        let beside = original_of(copy)?;
        let aside = format!("{}/{}", database_of(original), table_of(&beside));
        debug_assert!(is_alter_original(&aside), "{aside}");
        let spec = self.specs.get(self.names.get(&aside)?)?;
        (spec.replaces.as_deref() == Some(original)).then_some(aside)
    }

    /// A table of that definition is there: it is to be told when what it replaces goes.
    pub(super) fn note_held(&mut self, spec: &TableSpec) {
        let Some(replaced) = spec.replaces.clone().filter(|_| spec.is_held()) else {
            return;
        };
        debug_assert!(replaced != spec.name, "{replaced} replaces itself");
        // The table itself rather than one of its parts, which say the same of it.
        if is_part(&spec.name) && self.foreign.replaced.contains_key(&replaced) {
            return;
        }
        self.foreign.replaced.insert(replaced, spec.id);
    }

    /// The tables that take the place of `replaced`: one, and its partitions, or the parts of a VECTOR INDEX.
    pub(super) fn heirs_of(&self, replaced: &str) -> Vec<TableId> {
        if !self.foreign.replaced.contains_key(replaced) {
            return Vec::new();
        }
        let is_heir =
            |spec: &&TableSpec| spec.is_held() && spec.replaces.as_deref() == Some(replaced);
        let heirs: Vec<TableId> = self.specs.values().filter(is_heir).map(|s| s.id).collect();
        debug_assert!(!heirs.is_empty(), "nothing has replaced {replaced}");
        heirs
    }

    /// What goes when the table of that definition, which has been a copy, has its name: what that says, or what stands in
    /// for its name.
    fn original_behind(&self, spec: &TableSpec) -> Option<TableId> {
        let replaced = spec.replaces.as_ref().filter(|_| spec.is_held());
        let replaced = replaced.and_then(|name| self.names.get(name)).copied();
        let stands_in = || self.foreign.stand_in_for(&spec.name);
        let original = replaced.or_else(stands_in);
        debug_assert!(replaced != Some(spec.id), "{} replaces itself", spec.name);
        original.filter(|original| *original != spec.id)
    }

    /// The table that goes when copy `id` is called `to`, and the name that others know it by if they are to follow to `to`.
    pub(super) fn before_copy(&self, id: TableId, to: &str) -> (Option<TableId>, Option<String>) {
        let is_named_copy = |spec: &&TableSpec| is_alter_copy(&spec.name) && !is_copy(to);
        let Some(spec) = self.specs.get(&id).filter(is_named_copy) else {
            return (None, None);
        };
        let mut named = spec.clone();
        named.name = to.to_string();
        self.note_place(&mut named, &spec.name);
        let pending = named.pending.as_ref().filter(|_| named.is_held());
        let known_as = pending.map(|pending| pending.from.clone());
        debug_assert!(
            known_as.as_deref() != Some(to),
            "{to} is what it was called"
        );
        (self.original_behind(&named), known_as)
    }

    /// Whether the table of that definition has a constraint of that name because its original has it, too, in the same
    /// database: so the name is not taken by another one.
    pub(super) fn has_name_from_original(&self, spec: &TableSpec, name: &str) -> bool {
        let Some(original) = self.original_behind(spec) else {
            return false;
        };
        let same_database = database_of(self.name_of(original)) == database_of(&spec.name);
        let mut keys = self.foreign.of(original).iter();
        same_database && keys.any(|owned| folded(&owned.key.name) == folded(name))
    }

    /// The table `id`, called `name`, has constraints of the same names as what it has replaced, if that is there.
    pub(super) fn take_names(&mut self, id: TableId, name: &str, keys: &[Owned]) {
        let spec = self.specs.get(&id);
        if let Some(original) = spec.and_then(|spec| self.original_behind(spec)) {
            assert!(original != id, "{name} replaces itself");
            self.foreign.give_names(original, name, keys);
        }
    }

    /// The table `id` goes, or is a copy again: what it was to replace has the names of its constraints again.
    pub(super) fn give_names_back(&mut self, id: TableId) {
        debug_assert!(self.foreign.of(id).is_empty(), "{id} has names, too");
        let held = self
            .foreign
            .replaced
            .iter()
            .filter(|(_, heir)| **heir == id);
        let originals: Vec<String> = held.map(|(name, _)| name.clone()).collect();
        for name in originals {
            if let Some(original) = self.names.get(&name).copied() {
                self.foreign.keep_names(&name, original);
            }
        }
    }

    /// What `id` has replaced is gone: its children's turn. Not theirs who have another table of that name.
    pub(super) fn release(&mut self, id: TableId) {
        self.foreign.replaced.retain(|_, heir| *heir != id);
        let Some(mut spec) = self.specs.get(&id).cloned() else {
            return;
        };
        debug_assert!(spec.is_held(), "{} has its place", spec.name);
        let from = spec.pending.as_ref().map(|pending| &pending.from);
        if from.is_some_and(|from| self.names.contains_key(from)) {
            spec.pending = None;
            self.specs.insert(id, spec);
        }
        self.foreign.unfinished.insert(id);
    }

    /// Whether the table may be dropped. What another one has replaced may be: whoever refers to it, and may have come while it
    /// was copied, has that one then, or keeps the name.
    pub(super) fn check_droppable(&self, name: &str, references: References) -> Result<()> {
        debug_assert!(!name.is_empty(), "a table without a name");
        match self.foreign.replaced.contains_key(name) {
            true => Ok(()),
            false => self.check_unreferenced(name, references),
        }
    }

    /// Whether the table may be dropped, or emptied.
    pub(super) fn check_unreferenced(&self, name: &str, references: References) -> Result<()> {
        let replaced = references == References::UnlessReplaced && self.is_replaced(name);
        if references == References::None || replaced {
            return Ok(());
        }
        let whole_database = references == References::OtherDatabases;
        for child in self.referring_to(name) {
            let child = self.specs.get(&child).map_or("", |spec| &spec.name);
            let apart = !whole_database || database_of(child) != database_of(name);
            if child != name && apart {
                return Err(Error::Referenced(child.to_string()));
            }
        }
        Ok(())
    }

    /// Whether there is a copy that is to take the table's place, or one that an earlier version made,
    /// which does not say of what. That of a VECTOR INDEX never says it, and those of partitions are of no parent.
    /// For a start only: looks at all tables.
    fn is_replaced(&self, name: &str) -> bool {
        debug_assert!(!name.is_empty(), "a table without a name");
        self.specs.values().any(|spec| match &spec.replaces {
            Some(replaced) => replaced == name && !is_alter_original(&spec.name),
            None => is_alter_copy(&spec.name) && !is_part(&spec.name),
        })
    }
}

impl Dictionary {
    /// The table that a copy is to take the place of, "db/table", if it says so.
    pub(crate) fn replaced_by(&self, copy: &str) -> Option<String> {
        let state = self.state.lock();
        let spec = state.specs.get(state.names.get(copy)?)?;
        debug_assert_eq!(spec.name, copy);
        spec.replaces.clone()
    }

    /// What an ALTER TABLE has put aside and a table has replaced under another name: that name with it. Only after a
    /// crash, when the server has finished what it knows of.
    pub(crate) fn replaced_tables(&self) -> Vec<(String, String)> {
        let state = self.state.lock();
        let all = state.foreign.replaced.iter();
        let aside = all.filter(|(replaced, _)| is_alter_original(replaced));
        let named = aside.map(|(replaced, heir)| (replaced.clone(), state.name_of(*heir).into()));
        named.collect()
    }

    /// The statement that gave the table its name is over, whatever has become of what it replaced.
    pub(super) fn settle(&self, state: &mut State, id: TableId) -> Result<()> {
        if !state.specs.get(&id).is_some_and(TableSpec::is_held) {
            return Ok(());
        }
        state.release(id);
        self.finish_one(state, id)
    }

    /// What other tables have replaced, called `name`, could not be dropped: nothing is taken back, the server goes on as if it
    /// had been. So whoever refers to it has the other one from here on. The next start drops it.
    pub(crate) fn stays_replaced(&self, name: &str) {
        let mut state = self.state.lock();
        let Some(original) = state.names.get(name).copied() else {
            return;
        };
        let heirs = state.heirs_of(name);
        if heirs.is_empty() && is_alter_original(name) && !state.foreign.is_stand_in(original) {
            // The copy has its name: nobody's child any more, it keeps no names from others.
            let parents = state.parents_of(original);
            state.foreign.forget(name, original);
            state.stale_all(&parents);
        }
        for heir in heirs {
            debug_assert!(heir != original, "{name} replaces itself");
            if self.pass_on(&mut state, heir, original).is_err() {
                // With the next change, or at the next start.
                state.foreign.unfinished.insert(heir);
            }
        }
    }

    /// Has those that refer to `original` follow to table `heir`, if they are to, which goes on to say what it has replaced.
    fn pass_on(&self, state: &mut State, heir: TableId, original: TableId) -> Result<()> {
        let spec = state.specs.get(&heir).cloned().ok_or(Error::NotFound)?;
        debug_assert!(spec.is_held(), "{} has its place", spec.name);
        let parents = state.parents_of(original);
        let known_as = state.name_to_open(original).to_string();
        // It is nobody's parent or child any more, and has no names.
        state.foreign.no_stand_in("", original);
        let name = state.name_of(original).to_string();
        state.foreign.forget(&name, original);
        let from = spec.pending.as_ref().map(|pending| &pending.from);
        let named = from.and_then(|from| state.names.get(from));
        let children = match named.is_none_or(|named| *named == original) {
            true => state.follow(&spec),
            false => Vec::new(),
        };
        state.stale_around(heir, &known_as);
        state.stale_around(heir, &spec.name);
        state.stale_all(&parents);
        for child in children {
            self.rewrite_child(state, child)?;
        }
        let mut spec = state.specs.get(&heir).cloned().ok_or(Error::NotFound)?;
        spec.pending = None;
        let end = self.put(&record_key(heir, 0), &spec.encode())?;
        self.log.flush_to(end);
        state.specs.insert(heir, spec);
        Ok(())
    }

    /// What table `id` has replaced was called `replaced`, and is gone. Gives what is to be flushed of the log, if that can
    /// wait for others.
    pub(super) fn take_place(&self, state: &mut State, id: TableId, replaced: &str) -> Option<Lsn> {
        let pending = state.specs.get(&id).and_then(|spec| spec.pending.clone());
        state.release(id);
        // What fails here is tried again with the next change, and at the next start.
        let end = self.finish_logged(state, id);
        let from = pending.map_or_else(|| replaced.to_string(), |pending| pending.from);
        let name = state.name_of(id).to_string();
        state.stale_around(id, &from);
        state.stale_around(id, &name);
        end.unwrap_or_default()
    }
}
