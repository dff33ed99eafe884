//! Statements on tables with foreign keys, in the order of `plugin/ha_ferrite_cascade.cc`: the row
//! is written, then the links are loaded, then the other table is looked at; what follows is done
//! row by row, each with its own looks before the next.
//!
//! # What is checked
//! - No commit leaves an orphan (`Model::check_families`).
//! - A child is not refused whose parent was there all the time.
//! - Nobody waits for a parent whose key nobody touches, in vain or into a deadlock.

use crate::client::{After, Client};
use crate::family::COLUMNS;
use crate::model::{TableNo, Writes};
use crate::rows::{Row, Shape, NULL};
use crate::write::{borrowed, entries_of};
use ferrite_engine::{Action, Link, LinkPart, Table};
use ferrite_sync::{mutant, sim, thread, Arc};
use ferrite_types::Error;
use std::collections::BTreeSet;

/// Why a row's change is taken back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The core's error.
    Core(Error),
    /// There is no parent.
    NoParent,
    /// There is a child.
    Referenced,
    /// A child is not open for the statement, or its links have changed within a cascade.
    NotOpen,
    /// The cascade is too deep.
    TooDeep,
    /// The links are to be had anew.
    LinksChanged,
}

impl From<Error> for Refusal {
    fn from(e: Error) -> Refusal {
        Refusal::Core(e)
    }
}

/// The rows of a statement.
type Rows<'r> = dyn FnMut(&mut Client, &Arc<Table>, &Shape) -> Result<(), Refusal> + 'r;

/// A row's change: of the state `old`, under the number `n`, into `new`, under `m`.
#[derive(Clone)]
pub(crate) struct Change {
    pub(crate) no: TableNo,
    pub(crate) table: Arc<Table>,
    pub(crate) shape: Shape,
    pub(crate) n: u64,
    pub(crate) old: Option<Row>,
    pub(crate) m: u64,
    pub(crate) new: Option<Row>,
}

impl Change {
    /// Does the row have another key in that index, or a new one?
    pub(crate) fn moves_entry(&self, index_no: usize) -> bool {
        let key = |n: u64, row: &Row| self.shape.index_key(index_no, n, row);
        let (old, new) = (self.old.as_ref(), self.new.as_ref());
        old.map(|row| key(self.n, row)) != new.map(|row| key(self.m, row))
    }

    /// Do the link's own columns change?
    pub(crate) fn changes(&self, link: &Link) -> bool {
        let (Some(old), Some(new)) = (&self.old, &self.new) else {
            return true;
        };
        let own = |part: &LinkPart| COLUMNS[usize::from(part.own_column)];
        let mut columns = link.parts.iter().map(own);
        columns.any(|column| column.of(self.n, old) != column.of(self.m, new))
    }
}

/// One step of a cascade; the first is the statement's own row.
pub(crate) struct Step<'s> {
    pub(crate) up: Option<&'s Step<'s>>,
    pub(crate) no: TableNo,
    pub(crate) updates: bool,
    pub(crate) depth: u32,
}

impl Step<'_> {
    pub(crate) fn updates_above(&self, no: TableNo) -> bool {
        let above = self.up.is_some_and(|up| up.updates_above(no));
        above || (self.no == no && self.updates)
    }
}

/// What a transaction had written and read with locks. A row that it had brought itself is locked by being
/// its own: once that is taken back, nothing of it is.
struct Before {
    writes: Writes,
    ranges: usize,
}

impl Before {
    fn of(client: &Client) -> Before {
        Before {
            writes: client.tx.writes.clone(),
            ranges: client.tx.ranges.len(),
        }
    }

    fn restore(self, client: &mut Client) {
        client.tx.writes = self.writes;
        client.tx.ranges.truncate(self.ranges);
    }
}

impl Client {
    // ---- statements ------------------------------------------------------------------------

    /// One statement that changes rows of a table with foreign keys.
    pub fn family_write(&mut self, no: TableNo) -> After {
        if self.rng.chance(1, 8) {
            let no = self.some_parent().unwrap_or(no);
            return self.revive(no);
        }
        let rows = self.rng.between(1, 3);
        self.family_statement(no, &mut |c, table, shape| {
            for _ in 0..rows {
                c.row_or_nothing(&mut |c| c.some_change(no, table, shape))?;
            }
            Ok(())
        })
    }

    /// The statement's frame: tables that a cascade may change are opened first; whatever fails goes with
    /// all of the statement.
    fn family_statement(&mut self, no: TableNo, rows: &mut Rows<'_>) -> After {
        let Some(table) = self.use_table(no) else {
            return After::GoesOn;
        };
        let mut opened = BTreeSet::new();
        if !self.open_children(no, &mut opened) {
            return After::GoesOn;
        }
        if let Err(e) = self.mark() {
            return self.failed(&e, "mark");
        }
        self.tx.touched.extend(opened);
        let shape = self.environment.model().table(no).shape.clone();
        let before = Before::of(self);
        self.statement();
        let result = rows(self, &table, &shape);
        let serial = self.tx.serial;
        sim::note(&format!("tx {serial}: a statement on {no}: {result:?}"));
        match result {
            Ok(()) => {
                self.statement_ends();
                After::GoesOn
            }
            Err(Refusal::Core(e)) => self.taken_back(&e, before),
            Err(_) => self.refused(before),
        }
    }

    /// Whose rows a cascade may change, that table included; false: DDL has one.
    fn open_children(&mut self, no: TableNo, opened: &mut BTreeSet<TableNo>) -> bool {
        if !opened.insert(no) {
            return true;
        }
        let children: Vec<TableNo> = {
            let model = self.environment.model();
            let name = &model.table(no).name;
            let acts = |action: Action| matches!(action, Action::Cascade | Action::SetNull);
            let refers = |child: &TableNo| {
                let mut all = model.table(*child).constraints.iter();
                all.any(|c| c.parent == *name && (acts(c.on_delete) || acts(c.on_update)))
            };
            model
                .referring_to(name)
                .into_iter()
                .filter(refers)
                .collect()
        };
        children
            .into_iter()
            .all(|child| self.use_table(child).is_some() && self.open_children(child, opened))
    }

    fn taken_back(&mut self, e: &Error, before: Before) -> After {
        let after = self.failed(e, "family");
        if after == After::GoesOn {
            before.restore(self);
        }
        after
    }

    /// A foreign key is violated: the statement fails, the transaction goes on.
    fn refused(&mut self, before: Before) -> After {
        self.environment.statement_ends(self.thd);
        self.environment.tally().errors += 1;
        if self.rng.chance(1, 6) {
            return self.roll_back();
        }
        if let Err(e) = self.s().rollback_statement() {
            self.expect_injected(&e, "statement rollback");
            return self.roll_back();
        }
        before.restore(self);
        After::GoesOn
    }

    /// A table that others refer to.
    fn some_parent(&mut self) -> Option<TableNo> {
        let model = self.environment.model();
        let kin = model.tables.iter().filter(|(_, t)| t.shape.kin.is_some());
        let referred = kin.filter(|(_, t)| !model.referring_to(&t.name).is_empty());
        let all: Vec<TableNo> = referred.map(|(no, _)| *no).collect();
        drop(model);
        all.get(self.rng.below(all.len() as u64) as usize).copied()
    }

    /// A row is removed and brought back, with a savepoint between.
    fn revive(&mut self, no: TableNo) -> After {
        let mut gone = None;
        let after = self.family_statement(no, &mut |c, table, shape| {
            let n = c.some_number(no, shape, true);
            let mut old = None;
            c.row_or_nothing(&mut |c| {
                let change = c.deletion(no, table, shape, n)?;
                old = change.as_ref().and_then(|change| change.old);
                Ok(change)
            })?;
            let there = c.now(no, n).is_some();
            gone = old.filter(|_| !there).map(|row| (n, row));
            Ok(())
        });
        let Some((n, old)) = gone.filter(|_| after == After::GoesOn) else {
            return after;
        };
        let place = (self.session.get().undo_position(), self.tx.writes.clone());
        self.tx.saves.push(place);
        let after = self.family_statement(no, &mut |c, table, shape| {
            let row = Row {
                stamp: c.environment.model().new_stamp(),
                big: None,
                ..old
            };
            let new = (n, Some(row));
            let change = change_of(no, table, shape, (n, None), new);
            c.row_or_nothing(&mut |_| Ok(Some(change.clone())))
        });
        if after == After::Over {
            return after;
        }
        // Others look, and then the half of it that brought the row back is taken back.
        let us = self.rng.below(10_000);
        thread::sleep_us(us);
        match self.rng.chance(1, 2) {
            true => self.back_to(self.tx.saves.len() - 1),
            false => after,
        }
    }

    // ---- rows ------------------------------------------------------------------------------

    fn some_change(
        &mut self,
        no: TableNo,
        table: &Arc<Table>,
        shape: &Shape,
    ) -> Result<Option<Change>, Error> {
        let what = self.some_kind(no);
        let n = match what < 8 {
            true => self.rng.below(shape.keys),
            false => self.some_number(no, shape, true),
        };
        if what < 8 {
            let new = self.family_row(table, shape)?;
            return Ok(Some(change_of(no, table, shape, (n, None), (n, Some(new)))));
        }
        if what < 12 {
            return self.deletion(no, table, shape, n);
        }
        let Some(old) = self.locked_row(no, table, shape, n)? else {
            return Ok(None);
        };
        let mut new = self.family_row(table, shape)?;
        let moves = what >= 16;
        let m = match moves {
            true => self.some_number(no, shape, false),
            false => n,
        };
        if what < 14 || moves {
            // Other columns.
            (new.k, new.u) = (old.k, old.u);
        } else if self.rng.chance(2, 3) {
            new.u = old.u;
        }
        Ok(Some(change_of(
            no,
            table,
            shape,
            (n, Some(old)),
            (m, Some(new)),
        )))
    }

    /// What is done with a row, of twenty: inserts are below 8, deletions below 12, updates below 16, the
    /// others have another number afterwards. In runs about children that move these do it more often, and
    /// their parents come and go.
    fn some_kind(&mut self, no: TableNo) -> u64 {
        let any = self.rng.below(20);
        if !self.environment.plan.extra.movers || any % 4 == 0 {
            return any;
        }
        let is_child = !self.environment.model().table(no).constraints.is_empty();
        match is_child {
            true if any < 5 => 0,
            true if any < 8 => 8,
            true => 16,
            false if any < 6 => 0,
            false => 8,
        }
    }

    /// Often one that is there, or one that is not.
    fn some_number(&mut self, no: TableNo, shape: &Shape, there: bool) -> u64 {
        let any = self.rng.below(shape.keys);
        let found = (0..shape.keys).map(|n| (n + any) % shape.keys);
        let found = found
            .into_iter()
            .find(|n| self.now(no, *n).is_some() == there);
        found.filter(|_| self.rng.chance(3, 4)).unwrap_or(any)
    }

    fn family_row(&mut self, table: &Arc<Table>, shape: &Shape) -> Result<Row, Error> {
        let mut row = self.new_row(table, shape)?;
        let latest = self.environment.model().latest;
        let movers = self.environment.plan.extra.movers;
        if !movers && latest < shape.keys && self.rng.chance(1, 3) {
            row.k = latest;
        }
        let nullable = shape.kin.is_some_and(|kin| kin.nullable);
        if nullable && self.rng.chance(1, 4) {
            row.k = NULL;
        }
        Ok(row)
    }

    fn deletion(
        &mut self,
        no: TableNo,
        table: &Arc<Table>,
        shape: &Shape,
        n: u64,
    ) -> Result<Option<Change>, Error> {
        let old = self.locked_row(no, table, shape, n)?;
        Ok(old.map(|old| change_of(no, table, shape, (n, Some(old)), (n, None))))
    }

    /// A row with all that follows, its values out of line included, or nothing of it. IGNORE goes on with
    /// the next row.
    fn row_or_nothing(
        &mut self,
        make: &mut dyn FnMut(&mut Client) -> Result<Option<Change>, Error>,
    ) -> Result<(), Refusal> {
        let place = self.s().undo_position();
        let before = Before::of(self);
        let Some(change) = &make(self)? else {
            return Ok(());
        };
        let first = Step {
            up: None,
            no: change.no,
            updates: change.new.is_some(),
            depth: 0,
        };
        let result = self.change_row(change, &first);
        let Err(why) = &result else {
            return Ok(());
        };
        if matches!(why, Refusal::Core(Error::Deadlock | Error::RolledBack)) {
            return result;
        }
        self.s().undo_row(place)?;
        before.restore(self);
        match why {
            Refusal::Core(Error::Duplicate) | Refusal::NoParent | Refusal::Referenced
                if self.rng.chance(1, 3) =>
            {
                Ok(())
            }
            _ => result,
        }
    }

    /// Writes first, looks afterwards.
    pub(crate) fn change_row(&mut self, change: &Change, step: &Step<'_>) -> Result<(), Refusal> {
        self.disturbs(change);
        let early = mutant!("foreign.look_before_write");
        match early {
            true => self.look(change, step)?,
            false => self.put(change)?,
        }
        if self.rng.chance(1, 4) {
            let us = self.rng.below(3000);
            thread::sleep_us(us);
        }
        match early {
            true => Ok(self.put(change)?),
            false => self.look(change, step),
        }
    }

    fn put(&mut self, change: &Change) -> Result<(), Error> {
        let Change { no, n, m, .. } = *change;
        let (table, shape) = (&change.table, &change.shape);
        let k = |row: Option<Row>| row.map(|row| row.k);
        sim::note(&format!(
            "tx {}: table {no}: row {n} with k {:?} becomes {m} with {:?}",
            self.tx.serial,
            k(change.old),
            k(change.new)
        ));
        match (change.old, change.new) {
            (None, Some(new)) => self.insert_this(no, table, shape, m, new),
            (Some(old), Some(new)) => self.update_this(no, table, shape, (n, m), old, new),
            (Some(old), None) => {
                let entries = entries_of(shape, &old);
                self.s()
                    .delete_row(table, &shape.pk(n), &borrowed(&entries))?;
                self.tx.writes.insert((no, n), None);
                Ok(())
            }
            (None, None) => Ok(()),
        }
    }
}

pub(crate) fn change_of(
    no: TableNo,
    table: &Arc<Table>,
    shape: &Shape,
    (n, old): (u64, Option<Row>),
    (m, new): (u64, Option<Row>),
) -> Change {
    Change {
        no,
        table: table.clone(),
        shape: shape.clone(),
        n,
        old,
        m,
        new,
    }
}
