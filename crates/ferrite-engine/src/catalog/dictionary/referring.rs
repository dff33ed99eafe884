//! Who refers to whom: the constraints of each child, the children of each parent's name, and what stands in for a
//! name while ALTER TABLE gives it to a copy; versions of the links that are made of them (`foreign`).
//!
//! Invariant: each constraint is found by its child, and by the name of its parent, whether there
//! is such a table or not. The names of constraints are taken once in a database. Copies
//! (`#sql-...`) are children of nobody and take no names; a table that is put aside under such a name is a
//! child until another one has its name, or rows of a parent could go between the two, and has its names as long, or
//! another table could take one, and neither copy nor original could have their name.
//!
//! Locking: all under the dictionary's `state`; a table's links after it.

use super::State;
use crate::catalog::foreign::{database_of, is_copy, ForeignKey};
use ferrite_sync::atomic::Ordering;
use ferrite_sync::Arc;
use ferrite_types::TableId;
use std::collections::{BTreeMap, BTreeSet};

/// A constraint of a table.
#[derive(Clone)]
pub(super) struct Owned {
    pub(super) key: Arc<ForeignKey>,
    /// The table is a copy, and the original has the constraint.
    pub(super) carried: bool,
}

/// Who refers to whom.
#[derive(Default)]
pub(super) struct Foreign {
    /// By child.
    pub(super) of: BTreeMap<TableId, Vec<Owned>>,
    /// By the parent's name.
    children: BTreeMap<String, BTreeSet<TableId>>,
    /// By database and name, folded.
    names: BTreeMap<(String, String), TableId>,
    /// A table under another name that is about to be replaced under this one.
    stand_ins: BTreeMap<String, TableId>,
    /// A table that goes when an ALTER TABLE is over, and the one that has its rows under another name.
    pub(super) replaced: BTreeMap<String, TableId>,
    /// Tables whose children have not all followed a change on disk.
    pub(super) unfinished: BTreeSet<TableId>,
    /// Versions of links given.
    versions: u64,
}

pub(super) fn folded(name: &str) -> String {
    name.to_lowercase()
}

fn name_key(table: &str, name: &str) -> (String, String) {
    debug_assert!(!name.is_empty(), "a constraint of {table} without a name");
    (folded(database_of(table)), folded(name))
}

impl Foreign {
    /// The constraints of a child.
    pub(super) fn of(&self, child: TableId) -> &[Owned] {
        self.of.get(&child).map_or(&[], Vec::as_slice)
    }

    /// All tables with constraints that refer to that name, copies too.
    pub(super) fn children_of(&self, parent: &str) -> impl Iterator<Item = TableId> + '_ {
        self.children.get(parent).into_iter().flatten().copied()
    }

    /// The table has these constraints now.
    pub(super) fn set(&mut self, name: &str, child: TableId, keys: Vec<Owned>) {
        self.forget(name, child);
        debug_assert!(
            !self.of.contains_key(&child),
            "{name} has constraints twice"
        );
        debug_assert!(keys.iter().all(|owned| !owned.key.columns.is_empty()));
        if keys.is_empty() {
            return;
        }
        for owned in &keys {
            let parent = owned.key.parent.clone();
            self.children.entry(parent).or_default().insert(child);
            if !is_copy(name) {
                let before = self.names.insert(name_key(name, &owned.key.name), child);
                debug_assert!(before.is_none_or(|before| before == child), "{name}");
            }
        }
        self.of.insert(child, keys);
    }

    /// A copy that is to be called `name` has these constraints, and so has its original, which is still there: their
    /// names are no longer the original's.
    pub(super) fn give_names(&mut self, original: TableId, name: &str, keys: &[Owned]) {
        for owned in keys {
            let taken = name_key(name, &owned.key.name);
            if self.names.get(&taken) == Some(&original) {
                self.names.remove(&taken);
            }
        }
    }

    /// The table called `name` has the names of its constraints, but for those that others have.
    pub(super) fn keep_names(&mut self, name: &str, id: TableId) {
        let keys = self.of(id).iter();
        let names: Vec<_> = keys.map(|owned| name_key(name, &owned.key.name)).collect();
        for taken in names {
            let owner = *self.names.entry(taken).or_insert(id);
            debug_assert!(owner.0 != 0, "{name} has a name of no table's");
        }
    }

    /// The table called `name` has none any more.
    pub(super) fn forget(&mut self, name: &str, child: TableId) {
        for owned in self.of.remove(&child).unwrap_or_default() {
            if let Some(children) = self.children.get_mut(&owned.key.parent) {
                children.remove(&child);
                debug_assert!(!children.contains(&child));
                if children.is_empty() {
                    self.children.remove(&owned.key.parent);
                }
            }
            let taken = name_key(name, &owned.key.name);
            if self.names.get(&taken) == Some(&child) {
                self.names.remove(&taken);
            }
        }
        debug_assert!(self.of(child).is_empty(), "{name} keeps constraints");
    }

    /// `id`, now called otherwise, is what `name` means until another table has that name.
    pub(super) fn stands_in(&mut self, name: &str, id: TableId) {
        let linked = self.children.contains_key(name) || self.of.contains_key(&id);
        if linked && !is_copy(name) {
            debug_assert!(id.0 != 0, "no table stands in for {name}");
            self.stand_ins.insert(name.to_string(), id);
        }
    }

    /// `name` means what is called so; and `id` stands in for nothing.
    pub(super) fn no_stand_in(&mut self, name: &str, id: TableId) {
        self.stand_ins.remove(name);
        self.stand_ins.retain(|_, other| *other != id);
        debug_assert!(!self.stand_ins.contains_key(name), "{name} is two tables");
    }

    /// The table that stands in for that name.
    pub(super) fn stand_in_for(&self, name: &str) -> Option<TableId> {
        debug_assert!(!name.is_empty(), "a table without a name");
        self.stand_ins.get(name).copied()
    }

    /// Whether the table stands in for a name.
    pub(super) fn is_stand_in(&self, id: TableId) -> bool {
        self.stood_in_for(id).is_some()
    }

    /// The name that the table stands in for.
    fn stood_in_for(&self, id: TableId) -> Option<&str> {
        debug_assert!(id.0 != 0, "no table");
        let mut names = self.stand_ins.iter().filter(|(_, other)| **other == id);
        names.next().map(|(name, _)| name.as_str())
    }

    /// Who has that constraint name in the table's database.
    pub(super) fn owner_of_name(&self, table: &str, name: &str) -> Option<TableId> {
        self.names.get(&name_key(table, name)).copied()
    }
}

impl State {
    /// The table that a constraint with that parent refers to.
    pub(super) fn parent_named(&self, name: &str) -> Option<TableId> {
        let named = self.names.get(name);
        named.or(self.foreign.stand_ins.get(name)).copied()
    }

    pub(super) fn name_of(&self, id: TableId) -> &str {
        self.specs.get(&id).map_or("", |spec| &spec.name)
    }

    /// As it is called now: an open table keeps the name it was opened with.
    pub(super) fn index_name(&self, id: TableId, index_no: u32) -> Option<String> {
        let index = self.specs.get(&id)?.indexes.get(index_no as usize)?;
        Some(index.name.clone())
    }

    /// Tables with constraints that refer to that name, without copies.
    pub(super) fn referring_to<'a>(
        &'a self,
        parent: &'a str,
    ) -> impl Iterator<Item = TableId> + 'a {
        let children = self.foreign.children_of(parent);
        children.filter(|id| !is_copy(self.name_of(*id)))
    }

    /// Tables whose rows follow from rows of the table of that name: also what is put aside and not replaced yet.
    pub(super) fn linked_to<'a>(&'a self, parent: &'a str) -> impl Iterator<Item = TableId> + 'a {
        let is_child = |id: &TableId| !is_copy(self.name_to_open(*id));
        self.foreign.children_of(parent).filter(is_child)
    }

    /// The name that statements know the table by. Who opens what has that name waits for the server's lock of it, until a
    /// table that was put aside is replaced.
    pub(super) fn name_to_open(&self, id: TableId) -> &str {
        let stood_in_for = self.foreign.stood_in_for(id);
        stood_in_for.unwrap_or_else(|| self.name_of(id))
    }

    /// Its links are to be made anew.
    pub(super) fn stale(&mut self, id: TableId) {
        let Some(table) = self.open.get(&id) else {
            return;
        };
        let name = self.name_of(id);
        let linked = self.foreign.of.contains_key(&id) || self.linked_to(name).next().is_some();
        let version = match linked {
            true => self.foreign.versions + 1,
            false => 0,
        };
        debug_assert!(
            version == 0 || version > table.links_version(),
            "{name}: version {version} of its links is given twice"
        );
        table.links_version.store(version, Ordering::SeqCst);
        // They keep other tables.
        if !ferrite_sync::mutant!("foreign.stale_links") {
            *table.links.lock() = None;
        }
        self.foreign.versions += 1;
        debug_assert!(version <= self.foreign.versions);
    }

    /// Likewise of all that refer to `name` or that the table refers to.
    pub(super) fn stale_around(&mut self, id: TableId, name: &str) {
        let parents = self.foreign.of(id).iter();
        let mut around: Vec<TableId> = parents
            .filter_map(|owned| self.parent_named(&owned.key.parent))
            .collect();
        around.extend(self.foreign.children_of(name));
        around.push(id);
        around.sort_unstable();
        around.dedup();
        debug_assert!(around.binary_search(&id).is_ok());
        for id in around {
            self.stale(id);
        }
    }

    /// A table of that name and with these constraints is there.
    pub(super) fn now_named(&mut self, name: &str, id: TableId, keys: Vec<Owned>) {
        let replaced = self.foreign.stand_in_for(name);
        let parents = replaced.map_or(Vec::new(), |replaced| self.parents_of(replaced));
        self.foreign.no_stand_in(name, id);
        debug_assert_eq!(self.names.get(name), Some(&id), "{name}");
        self.foreign.set(name, id, keys);
        self.stale_around(id, name);
        self.stale_all(&parents);
    }

    /// The table is no more.
    pub(super) fn gone(&mut self, name: &str, id: TableId) {
        let parents: Vec<String> = self.parents_of(id);
        self.foreign.forget(name, id);
        self.foreign.no_stand_in("", id);
        self.foreign.unfinished.remove(&id);
        self.give_names_back(id);
        self.foreign.replaced.retain(|_, heir| *heir != id);
        debug_assert!(
            self.foreign.of(id).is_empty(),
            "{name} has gone, not its constraints"
        );
        self.stale_around(id, name);
        self.stale_all(&parents);
    }

    /// The links of the tables that have these names are to be made anew.
    pub(super) fn stale_all(&mut self, names: &[String]) {
        for name in names {
            debug_assert!(!name.is_empty(), "a parent without a name");
            if let Some(id) = self.names.get(name).copied() {
                self.stale(id);
            }
        }
    }

    pub(super) fn parents_of(&self, id: TableId) -> Vec<String> {
        let keys = self.foreign.of(id).iter();
        keys.map(|owned| owned.key.parent.clone()).collect()
    }
}
