//! Foreign keys in the dictionary: whether a new constraint fits, what its tables have at hand. Who refers to
//! whom: `referring`. Stored changes: `foreign_change`.
//!
//! Locking: all under the dictionary's `state`; a table's links after it.

use super::referring::{folded, Owned};
use super::{Dictionary, State};
use crate::catalog::describe::Description;
use crate::catalog::foreign::{database_of, is_copy, ForeignKey};
use crate::catalog::links::{Link, LinkPart, Links, Peer, RowEnd};
use crate::catalog::matching::{self, Misfit};
use crate::catalog::spec::record_key;
use crate::catalog::table::Table;
use ferrite_sync::atomic::Ordering;
use ferrite_sync::Arc;
use ferrite_types::format::Packing;
use ferrite_types::{Error, Result, TableId};
use std::collections::{BTreeMap, BTreeSet};

/// Constraints of a table that is made.
#[derive(Clone, Default)]
pub struct NewForeign {
    /// The constraints, and whether a table that this one is to replace has it.
    pub keys: Vec<(ForeignKey, bool)>,
    /// The table that this one is to replace.
    pub original: Option<String>,
    /// Those that refer to it are to refer to this one, if that gets another name than it has.
    pub follows: bool,
    /// Parents must exist, and whoever waits for the table must fit it (`foreign_key_checks`).
    pub checks: bool,
    /// NULL may not follow into a NOT NULL column (strict SQL mode).
    pub strict: bool,
}

/// A change of constraints without a change of rows.
#[derive(Clone, Default)]
pub struct AlterForeign {
    /// How the table's pages are packed from now on; None: as before.
    pub packing: Option<Packing>,
    /// Names of constraints that go.
    pub drop: Vec<String>,
    /// New ones.
    pub add: NewForeign,
    /// Columns of the table: old name, new name.
    pub renamed: Vec<(String, String)>,
    /// Names of all indexes, as they are then.
    pub index_names: Vec<String>,
    /// The next AUTO_INCREMENT value, which may be lower than before; None: as it is.
    pub auto_increment: Option<u64>,
}

/// A constraint for a list of all.
#[derive(Clone)]
pub struct ForeignRow {
    /// The child, "db/table".
    pub child: String,
    /// The constraint.
    pub key: Arc<ForeignKey>,
}

/// Descriptions read for one purpose.
#[derive(Default)]
pub(super) struct Descriptions(BTreeMap<TableId, Option<Arc<Description>>>);

impl State {
    /// Whether the names of a table's new constraints are free: no other table's, nor those of constraints that it has
    /// already, which are returned, folded.
    fn check_names(&self, name: &str, new: &NewForeign) -> Result<BTreeSet<String>> {
        let mut kept = BTreeSet::new();
        for (at, (key, carried)) in new.keys.iter().enumerate() {
            if *carried && !kept.insert(folded(&key.name)) {
                return Err(misfit(at, key, &Misfit::NameTwice));
            }
        }
        let original = new.original.as_ref().and_then(|o| self.names.get(o));
        for (at, (key, carried)) in new.keys.iter().enumerate() {
            // What a table of another engine has carries no name here.
            if *carried && original.is_some() {
                continue;
            }
            debug_assert!(!key.name.is_empty(), "a constraint of {name}");
            let owner = self.foreign.owner_of_name(name, &key.name);
            if owner.is_some_and(|owner| Some(&owner) != original) {
                return Err(misfit(at, key, &Misfit::Name));
            }
            if !carried && kept.contains(&folded(&key.name)) {
                return Err(misfit(at, key, &Misfit::NameOfOwn));
            }
        }
        Ok(kept)
    }
}

impl Dictionary {
    fn description(
        &self,
        state: &State,
        id: TableId,
        known: &mut Descriptions,
    ) -> Option<Arc<Description>> {
        let read = || {
            let mut spec = state.specs.get(&id)?.clone();
            let part = |part: u8| self.read(&record_key(id, part)).ok();
            spec.complete(part);
            Description::decode(&spec.definition).map(Arc::new)
        };
        known.0.entry(id).or_insert_with(read).clone()
    }

    /// What a change of a row of the table has to look at.
    ///
    /// # Errors
    /// `TableChanged` when it is dropped; a page that cannot be read.
    pub fn links(&self, table: &Table) -> Result<Arc<Links>> {
        let version = table.links_version();
        if version == 0 {
            return Ok(Arc::default());
        }
        let made = table.links.lock().clone();
        let is_fresh = |links: &Arc<Links>| {
            links.version == version || ferrite_sync::mutant!("foreign.stale_links")
        };
        if let Some(links) = made.filter(is_fresh) {
            return Ok(links);
        }
        let mut state = self.state.lock();
        if table.dropped.load(Ordering::SeqCst) {
            return Err(Error::TableChanged);
        }
        let version = table.links_version();
        let mut known = Descriptions::default();
        let links = Arc::new(Links {
            version,
            outgoing: self.outgoing(&mut state, table.id(), &mut known)?,
            incoming: self.incoming(&mut state, table.id(), &mut known)?,
        });
        debug_assert!(
            version != 0 || links.outgoing.is_empty() && links.incoming.is_empty(),
            "rows of table {} would not be checked",
            table.id()
        );
        *table.links.lock() = Some(links.clone());
        Ok(links)
    }

    fn outgoing(
        &self,
        state: &mut State,
        id: TableId,
        known: &mut Descriptions,
    ) -> Result<Vec<Link>> {
        let keys = state.foreign.of(id).to_vec();
        let mut links = Vec::with_capacity(keys.len());
        for owned in keys {
            let parent = state.parent_named(&owned.key.parent);
            links.push(self.link(state, (id, parent), true, owned, known)?);
        }
        debug_assert_eq!(links.len(), state.foreign.of(id).len());
        debug_assert!(links.iter().all(Link::is_whole), "parts of a link of {id}");
        Ok(links)
    }

    fn incoming(
        &self,
        state: &mut State,
        id: TableId,
        known: &mut Descriptions,
    ) -> Result<Vec<Link>> {
        let name = state.name_of(id).to_string();
        let children: Vec<TableId> = state.linked_to(&name).collect();
        debug_assert!(children.iter().all(|child| child.0 != 0));
        let mut links = Vec::new();
        for child in children {
            let keys = state.foreign.of(child).to_vec();
            for owned in keys.into_iter().filter(|o| o.key.parent == name) {
                links.push(self.link(state, (child, Some(id)), false, owned, known)?);
            }
        }
        let order = |l: &Link| (database_of(&l.other).to_string(), l.key.name.clone());
        links.sort_by_cached_key(order);
        debug_assert!(links.iter().all(|link| link.key.parent == name));
        debug_assert!(
            links.iter().all(Link::is_whole),
            "parts of a link to {name}"
        );
        Ok(links)
    }

    /// A constraint as its child has it, or as its parent has it. Without an index that serves it on both
    /// sides, or without a parent, it has no peer; but a child that has lost its index still has its
    /// parent, which cannot go (`docs/internals/foreign_keys.md`).
    fn link(
        &self,
        state: &mut State,
        (child, parent): (TableId, Option<TableId>),
        of_child: bool,
        owned: Owned,
        known: &mut Descriptions,
    ) -> Result<Link> {
        let other = match of_child {
            true => owned.key.parent.clone(),
            false => state.name_to_open(child).to_string(),
        };
        let mut link = Link {
            other,
            index_no: 0,
            parent_index: None,
            parts: Vec::new(),
            peer: None,
            row_end: None,
            carried: of_child && owned.carried,
            key: owned.key,
        };
        let Some(parent) = parent else {
            return Ok(link);
        };
        let described = self.description(state, child, known);
        let described = described.zip(self.description(state, parent, known));
        let fit = described.and_then(|(child, parent)| {
            let alone = || matching::without_child_index(&link.key, &child, &parent);
            let both = matching::fit(&link.key, &child, &parent);
            let fit = both.or_else(|| of_child.then(alone).flatten())?;
            let ends = (
                RowEnd::of(&child, fit.child_index),
                RowEnd::of(&parent, fit.parent_index),
            );
            Some((fit, ends))
        });
        let Some((fit, (child_end, parent_end))) = fit else {
            return Ok(link);
        };
        link.parent_index = state.index_name(parent, fit.parent_index);
        let of_the_child = (child, fit.child_index, child_end);
        let of_the_parent = (parent, fit.parent_index, parent_end);
        let (own, there) = match of_child {
            true => (of_the_child, of_the_parent),
            false => (of_the_parent, of_the_child),
        };
        (link.index_no, link.row_end) = (own.1, own.2);
        link.peer = Some(Peer {
            table: self.open_id(state, there.0)?,
            index_no: there.1,
            row_end: there.2,
        });
        link.parts = match of_child {
            true => fit.parts,
            false => fit.parts.iter().map(LinkPart::turned).collect(),
        };
        Ok(link)
    }

    /// Whether new constraints of a table called `name` and described by `definition` fit.
    pub(super) fn check_new(
        &self,
        state: &State,
        name: &str,
        definition: &[u8],
        new: &NewForeign,
        known: &mut Descriptions,
    ) -> Result<()> {
        let Some(own) = Description::decode(definition).map(Arc::new) else {
            return match new.keys.is_empty() {
                true => Ok(()),
                false => Err(Error::Unsupported("a foreign key without columns".into())),
            };
        };
        let mut names = BTreeSet::new();
        for (at, (key, _)) in added(new) {
            if !names.insert(folded(&key.name)) {
                return Err(misfit(at, key, &Misfit::NameTwice));
            }
            let fits = self.check_key(state, name, &own, key, new, known);
            fits.map_err(|why| misfit(at, key, &why))?;
        }
        // Last, as InnoDB, which finds them taken when it writes the constraints down.
        names.extend(state.check_names(name, new)?);
        debug_assert_eq!(names.len(), new.keys.len(), "a name twice in {name}");
        match new.checks {
            true => self.check_waiting(state, name, &own, None, known),
            false => Ok(()),
        }
    }

    fn check_key(
        &self,
        state: &State,
        name: &str,
        own: &Arc<Description>,
        key: &ForeignKey,
        new: &NewForeign,
        known: &mut Descriptions,
    ) -> std::result::Result<(), Misfit> {
        debug_assert!(!key.columns.is_empty(), "{} of {name}", key.name);
        let found = matching::child_side(key, own)?;
        let parent = match key.parent == name {
            true => Some(own.clone()),
            false => match state.parent_named(&key.parent) {
                Some(id) => Some(
                    self.description(state, id, known)
                        .ok_or(Misfit::ParentOld)?,
                ),
                None => None,
            },
        };
        match parent {
            Some(parent) => {
                let fit = matching::parent_side(key, &found, &parent)?;
                if new.strict {
                    matching::check_null_follows(key, &fit)?;
                }
            }
            None if new.checks => return Err(Misfit::Parent),
            None => {}
        }
        matching::check_nullable(key, &found)
    }

    /// Spells the columns of a constraint that fits as their tables do.
    pub(super) fn spell(
        &self,
        state: &State,
        name: &str,
        own: &Description,
        key: &mut ForeignKey,
        known: &mut Descriptions,
    ) {
        let parent = match key.parent == name {
            true => None,
            false => state.parent_named(&key.parent),
        };
        let parent = parent.and_then(|id| self.description(state, id, known));
        let itself = (key.parent == name).then_some(own);
        let there = itself.or(parent.as_deref());
        for (column, other) in &mut key.columns {
            own.spell(column);
            if let Some(there) = there {
                there.spell(other);
            }
        }
    }

    /// Whether the constraints that refer to `name` fit a table with that description. Those pass that do not fit the one
    /// `before`, either, whose place it takes.
    pub(super) fn check_waiting(
        &self,
        state: &State,
        name: &str,
        own: &Arc<Description>,
        before: Option<&Description>,
        known: &mut Descriptions,
    ) -> Result<()> {
        for child in state.referring_to(name) {
            let Some(there) = self.description(state, child, known) else {
                continue;
            };
            for owned in state.foreign.of(child) {
                if owned.key.parent != name || state.name_of(child) == name {
                    continue;
                }
                let Ok(found) = matching::child_side(&owned.key, &there) else {
                    // It has lost its index, and its rows have parents as long as these have theirs.
                    let has = |p| matching::without_child_index(&owned.key, &there, p).is_some();
                    if before.is_some_and(has) && !has(own) {
                        return Err(misfit(usize::MAX, &owned.key, &Misfit::ParentIndex));
                    }
                    continue;
                };
                let fits = |parent: &Description| matching::parent_side(&owned.key, &found, parent);
                let Err(why) = fits(own) else {
                    continue;
                };
                if before.is_none_or(|before| fits(before).is_ok()) {
                    return Err(misfit(usize::MAX, &owned.key, &why));
                }
            }
        }
        Ok(())
    }

    /// Whether a table that takes a name fits its own constraints and those that refer to the name, and a copy those that follow
    /// to it. What did not fit the copy's original need not fit now, as where InnoDB copies nothing; nor need a table that
    /// gets another name fit a parent that is another table, as before.
    pub(super) fn check_named(&self, state: &State, id: TableId, to: &str) -> Result<()> {
        let (original, known_as) = state.before_copy(id, to);
        let referred_to = |name: &str| state.referring_to(name).next().is_some();
        let is_parent = referred_to(to) || known_as.as_deref().is_some_and(referred_to);
        if state.foreign.of(id).is_empty() && !is_parent {
            return Ok(());
        }
        debug_assert!(
            state.specs.contains_key(&id),
            "no table is to be called {to}"
        );
        let mut known = Descriptions::default();
        let Some(own) = self.description(state, id, &mut known) else {
            return self.refuse_undescribed(state, to);
        };
        let before = original.and_then(|id| self.description(state, id, &mut known));
        let is_renamed = !is_copy(state.name_of(id));
        for owned in state.foreign.of(id) {
            let itself = owned.key.parent == to || known_as.as_ref() == Some(&owned.key.parent);
            let parent = state.parent_named(&owned.key.parent).filter(|_| !itself);
            let parent = parent.and_then(|id| self.description(state, id, &mut known));
            let fits = |own: &Description| check_whole(&owned.key, own, itself, parent.as_deref());
            let Err(why) = fits(&own) else {
                continue;
            };
            if is_renamed && !itself {
                continue;
            }
            if before.as_ref().is_none_or(|before| fits(before).is_ok()) {
                return Err(misfit(usize::MAX, &owned.key, &why));
            }
        }
        let before = before.as_deref();
        self.check_waiting(state, to, &own, before, &mut known)?;
        match known_as {
            Some(name) => self.check_waiting(state, &name, &own, before, &mut known),
            None => Ok(()),
        }
    }

    /// A table that an earlier version made cannot be looked up by the constraints that refer to its name.
    fn refuse_undescribed(&self, state: &State, name: &str) -> Result<()> {
        let children = state.referring_to(name);
        let mut keys = children.flat_map(|child| state.foreign.of(child));
        match keys.find(|owned| owned.key.parent == name) {
            Some(owned) => Err(misfit(usize::MAX, &owned.key, &Misfit::ParentOld)),
            None => Ok(()),
        }
    }

    /// All constraints, without those of copies.
    pub fn all_foreign(&self) -> Vec<ForeignRow> {
        let state = self.state.lock();
        let mut rows = Vec::new();
        for (child, keys) in &state.foreign.of {
            let child = state.name_of(*child);
            if is_copy(child) {
                continue;
            }
            rows.extend(keys.iter().map(|owned| ForeignRow {
                child: child.to_string(),
                key: owned.key.clone(),
            }));
        }
        let order = |r: &ForeignRow| (database_of(&r.child).to_string(), r.key.name.clone());
        rows.sort_by_cached_key(order);
        debug_assert!(rows.iter().all(|row| !is_copy(&row.child)));
        rows
    }

    /// The constraints of a table.
    pub fn foreign_keys_of(&self, name: &str) -> Vec<Arc<ForeignKey>> {
        let state = self.state.lock();
        let id = state.names.get(name);
        let keys = id.map_or(&[][..], |id| state.foreign.of(*id));
        keys.iter().map(|owned| owned.key.clone()).collect()
    }
}

/// Whether a constraint fits the table that has it, and its parent: `itself`, or another one if there is one.
fn check_whole(
    key: &ForeignKey,
    own: &Description,
    itself: bool,
    parent: Option<&Description>,
) -> std::result::Result<(), Misfit> {
    debug_assert!(!itself || parent.is_none(), "two parents of {}", key.name);
    let found = matching::child_side(key, own)?;
    matching::check_nullable(key, &found)?;
    match parent.or(itself.then_some(own)) {
        Some(parent) => matching::parent_side(key, &found, parent).map(|_| ()),
        None => Ok(()),
    }
}

/// Those of a table's constraints that it has not had before, with their numbers.
fn added(new: &NewForeign) -> impl Iterator<Item = (usize, &(ForeignKey, bool))> {
    let all = new.keys.iter().enumerate();
    all.filter(|(_, (_, carried))| !carried)
}

/// The error for a constraint that does not fit; `at`: its number among the new ones.
fn misfit(at: usize, key: &ForeignKey, why: &Misfit) -> Error {
    debug_assert!(
        at == usize::MAX || at < u32::MAX as usize,
        "constraint {at}"
    );
    let (reason, column, other) = why.parts();
    Error::ForeignKey(Box::new(ferrite_types::ForeignMisfit {
        at: at as u32,
        reason,
        key: key.name.clone(),
        column: column.to_string(),
        other: other.to_string(),
    }))
}
