//! Statements that change rows, and what they must have met.

use crate::client::{After, Client, LockedRange, Tx};
use crate::corner::Corner;
use crate::model::TableNo;
use crate::rows::{describe, pattern, Big, Row, Shape};
use ferrite_engine::{
    Cursor, DupInfo, Entry, Isolation, ReadMode, RowChange, SeekMode, Table, WaitMode,
};
use ferrite_sync::Arc;
use ferrite_types::Error;

/// A secondary entry with its bytes.
pub struct Owned {
    index_no: usize,
    unique: bool,
    key: Vec<u8>,
    payload: Vec<u8>,
}

/// Secondary entries of a row.
pub fn entries_of(shape: &Shape, row: &Row) -> Vec<Owned> {
    (1..=shape.secondary.len())
        .map(|index_no| Owned {
            index_no,
            unique: shape.secondary[index_no - 1] == crate::rows::Secondary::Unique,
            key: shape.secondary_key(index_no, row),
            payload: shape.entry_payload(row),
        })
        .collect()
}

/// The same as the engine takes them.
pub fn borrowed(list: &[Owned]) -> Vec<Entry<'_>> {
    list.iter()
        .map(|e| Entry {
            index_no: e.index_no,
            check_unique: e.unique,
            key: &e.key,
            payload: &e.payload,
        })
        .collect()
}

impl Client {
    /// One statement that changes rows of one table.
    pub fn write(&mut self) -> After {
        match self.any_table() {
            Some(no) => self.write_to(no),
            None => After::GoesOn,
        }
    }

    /// The table is taken into use, and a statement that changes it begins.
    fn begin_write(&mut self, no: TableNo) -> Result<(Arc<Table>, Shape), After> {
        let table = self.use_table(no).ok_or(After::GoesOn)?;
        if let Err(e) = self.mark() {
            return Err(self.failed(&e, "mark"));
        }
        self.tx.touched.insert(no);
        let shape = self.environment.model().table(no).shape.clone();
        self.statement();
        Ok((table, shape))
    }

    /// One statement that inserts a row of that number.
    pub fn insert_into(&mut self, no: TableNo, n: u64) -> After {
        let (table, shape) = match self.begin_write(no) {
            Ok(begun) => begun,
            Err(after) => return after,
        };
        match self.insert(no, &table, &shape, n) {
            Ok(()) => {
                self.statement_ends();
                After::GoesOn
            }
            Err(e) => self.failed(&e, "insert"),
        }
    }

    /// One statement that changes rows of that table.
    pub fn write_to(&mut self, no: TableNo) -> After {
        let tables = self.environment.model();
        let is_kin = tables
            .tables
            .get(&no)
            .is_some_and(|t| t.shape.kin.is_some());
        drop(tables);
        if is_kin {
            return self.family_write(no);
        }
        let (table, shape) = match self.begin_write(no) {
            Ok(begun) => begun,
            Err(after) => return after,
        };
        let n = self.some_row(no, &shape);
        // Of ten; what is neither is a delete.
        let (inserts, updates) = match self.environment.plan.extra.corner {
            Some(Corner::Ranges) => (6, 2),
            // What is there goes, what is not there comes.
            Some(Corner::Marks) => match self.now(no, n) {
                Some(_) => (0, 1),
                None => (10, 0),
            },
            // Whose table has the keys of another one is to have them still.
            Some(Corner::Ids) if !self.environment.plan.ddl => (6, 4),
            _ => (4, 4),
        };
        let (what, result) = match self.rng.below(10) {
            chosen if chosen < inserts => ("insert", self.insert(no, &table, &shape, n)),
            chosen if chosen < inserts + updates => ("update", self.update(no, &table, &shape, n)),
            _ => ("delete", self.delete(no, &table, &shape, n)),
        };
        let serial = self.tx.serial;
        ferrite_sync::sim::note(&format!("tx {serial}: {what} {no}/{n}: {result:?}"));
        match result {
            Ok(()) => {
                self.statement_ends();
                After::GoesOn
            }
            Err(Error::Duplicate)
                if self.environment.plan.extra.ignore && self.rng.chance(1, 2) =>
            {
                // INSERT IGNORE, UPDATE IGNORE: the row is left out, the statement ends well.
                self.statement_ends();
                After::GoesOn
            }
            Err(e) => self.failed(&e, what),
        }
    }

    /// A row number. In runs about ranges it is often one in a range that this transaction has locked,
    /// or one just before the last that somebody brought; in runs about leaves that are away one that this
    /// transaction has changed.
    fn some_row(&mut self, no: TableNo, shape: &Shape) -> u64 {
        if self.environment.plan.extra.corner == Some(Corner::Away) && self.rng.chance(1, 2) {
            let own = self.tx.writes.keys().filter(|(table, _)| *table == no);
            let own: Vec<u64> = own.map(|(_, n)| *n).collect();
            if !own.is_empty() {
                return own[self.rng.below(own.len() as u64) as usize];
            }
        }
        if self.environment.plan.extra.corner == Some(Corner::Marks) {
            // Beside those of others, so that nobody waits long for anybody.
            return self.rng.below(shape.keys / 4) * 4 + self.thd as u64 % 4;
        }
        if self.environment.plan.extra.corner != Some(Corner::Ranges) || self.rng.chance(1, 3) {
            return self.rng.below(shape.keys);
        }
        if self.rng.chance(1, 2) {
            let wide = |r: &LockedRange| r.high.as_ref() != Some(&r.low);
            let own = |r: &&LockedRange| r.table == no && r.index_no == 0 && wide(r);
            if let Some(range) = self.tx.ranges.iter().rev().find(own) {
                let number = |key: &[u8]| shape.number_of(key.get(..shape.key_prefix + 8)?);
                let low = number(&range.low).unwrap_or(0);
                let high = range.high.as_deref().and_then(number);
                let high = high.unwrap_or(u64::MAX).min(shape.keys - 1);
                return self.rng.between(low.min(high), high);
            }
        }
        let latest = self.environment.model().latest.min(shape.keys);
        latest.saturating_sub(self.rng.between(1, 3))
    }

    pub(crate) fn new_row(&mut self, table: &Arc<Table>, shape: &Shape) -> Result<Row, Error> {
        let has_value = shape.max_big > 0 && self.rng.chance(1, 3);
        self.row_with(table, shape, has_value)
    }

    /// A new state with a value out of line.
    pub fn row_with_value(&mut self, table: &Arc<Table>, shape: &Shape) -> Result<Row, Error> {
        self.row_with(table, shape, true)
    }

    fn row_with(
        &mut self,
        table: &Arc<Table>,
        shape: &Shape,
        has_value: bool,
    ) -> Result<Row, Error> {
        let stamp = self.environment.model().new_stamp();
        let mut big = None;
        if has_value {
            let len = match shape.same_big {
                true => shape.max_big as u32,
                false => self.rng.below(shape.max_big) as u32,
            };
            let value = pattern(stamp, len as usize);
            let reference = self.s().write_overflow(table, &value)?;
            big = Some(Big {
                reference,
                seed: stamp,
                len,
            });
        }
        Ok(Row {
            stamp,
            k: self.rng.below(shape.k_values),
            u: self.rng.below(shape.u_values),
            fill: self.rng.below(shape.max_fill + 1) as u32,
            big,
        })
    }

    pub(crate) fn now(&self, no: TableNo, n: u64) -> Option<Row> {
        self.environment.resolve(&self.engine);
        self.environment
            .model()
            .view(no, n, u64::MAX, &self.tx.writes)
    }

    /// Another row than `n` that has this value of the unique index.
    fn other_with(&self, no: TableNo, n: u64, u: u64) -> Option<u64> {
        self.environment.resolve(&self.engine);
        let model = self.environment.model();
        if !model
            .table(no)
            .shape
            .secondary
            .contains(&crate::rows::Secondary::Unique)
        {
            return None;
        }
        let all = model.view_all(no, u64::MAX, &self.tx.writes);
        all.iter()
            .find(|(m, row)| **m != n && row.u == u)
            .map(|(m, _)| *m)
    }

    fn insert(
        &mut self,
        no: TableNo,
        table: &Arc<Table>,
        shape: &Shape,
        n: u64,
    ) -> Result<(), Error> {
        let row = self.new_row(table, shape)?;
        self.insert_this(no, table, shape, n, row)
    }

    /// Inserts a state that was made for it.
    pub fn insert_this(
        &mut self,
        no: TableNo,
        table: &Arc<Table>,
        shape: &Shape,
        n: u64,
        row: Row,
    ) -> Result<(), Error> {
        self.environment.model().offer(no, n, row);
        let entries = entries_of(shape, &row);
        let (pk, payload) = (shape.pk(n), shape.payload(&row));
        let mut dup = DupInfo::default();
        let replace = self.rng.chance(1, 8);
        let result = self.s().insert_row(
            table,
            Some(&pk),
            &payload,
            &borrowed(&entries),
            replace,
            &mut dup,
        );
        self.brought(result.map(|_| ()), (no, n), shape, row, &dup)
    }

    /// A row came under the number `n`, or a duplicate was in its way.
    fn brought(
        &mut self,
        result: Result<(), Error>,
        (no, n): (TableNo, u64),
        shape: &Shape,
        row: Row,
        dup: &DupInfo,
    ) -> Result<(), Error> {
        match result {
            Ok(()) => {
                let was = self.now(no, n);
                assert!(was.is_none(), "row {n} came over {was:?}");
                self.check_unique(no, n, &row);
                self.tx.writes.insert((no, n), Some(row));
            }
            Err(Error::Duplicate) => self.check_duplicate(no, shape, dup, &row),
            Err(_) => {}
        }
        result
    }

    fn check_unique(&self, no: TableNo, n: u64, row: &Row) {
        if let Some(m) = self.other_with(no, n, row.u) {
            panic!(
                "rows {n} and {m} of table {no} have the unique value {}",
                row.u
            );
        }
    }

    /// The row in the way is there, and locked.
    fn check_duplicate(&self, no: TableNo, shape: &Shape, dup: &DupInfo, row: &Row) {
        let m = shape.number_of(&dup.pk);
        let m = m.unwrap_or_else(|| panic!("duplicate names a key that is none: {:?}", dup.pk));
        let there = self.now(no, m);
        let Some(there) = there else {
            panic!("row {m} of table {no} is called a duplicate and is not there");
        };
        if dup.index_no > 0 {
            assert_eq!(
                shape.secondary_key(dup.index_no, &there),
                shape.secondary_key(dup.index_no, row),
                "row {m} of table {no} is called a duplicate and has another value"
            );
        }
    }

    /// Reads a row for change: locked, and as the model has it.
    pub fn locked_row(
        &mut self,
        no: TableNo,
        table: &Arc<Table>,
        shape: &Shape,
        n: u64,
    ) -> Result<Option<Row>, Error> {
        let mut cursor = Cursor::new(table, 0, ReadMode::Exclusive, WaitMode::Wait);
        let found = cursor.seek(self.s(), &shape.pk(n), SeekMode::Exact, true);
        let found = match found {
            Ok(row) => Some(row.payload.to_vec()),
            Err(Error::NotFound) => None,
            Err(e) => return Err(e),
        };
        let expected = self.now(no, n);
        self.keep_row(no, shape.pk(n));
        match (found, expected) {
            (Some(payload), Some(row)) if shape.is_payload_of(&payload, &row) => Ok(Some(row)),
            (None, None) => Ok(None),
            // Without gap locks somebody may have inserted it meanwhile.
            (None, Some(_)) if self.isolation <= Isolation::ReadCommitted => Ok(None),
            (found, expected) => panic!(
                "row {n} of table {no}, locked: found {:?}, expected {expected:?}",
                found.map(|p| describe(&p))
            ),
        }
    }

    fn update(
        &mut self,
        no: TableNo,
        table: &Arc<Table>,
        shape: &Shape,
        n: u64,
    ) -> Result<(), Error> {
        let Some(old) = self.locked_row(no, table, shape, n)? else {
            return Ok(());
        };
        let mut row = self.new_row(table, shape)?;
        if self.rng.chance(1, 2) {
            row.k = old.k;
        }
        if self.rng.chance(2, 3) {
            row.u = old.u;
        }
        if row.big.is_none() && self.rng.chance(1, 2) {
            row.big = old.big;
        }
        let moves = self.rng.chance(1, 10);
        let m = if moves { self.rng.below(shape.keys) } else { n };
        self.update_this(no, table, shape, (n, m), old, row)
    }

    /// Replaces the state `old` of row `n` by one that was made for it, under the number `m`.
    pub fn update_this(
        &mut self,
        no: TableNo,
        table: &Arc<Table>,
        shape: &Shape,
        (n, m): (u64, u64),
        old: Row,
        row: Row,
    ) -> Result<(), Error> {
        self.environment.model().offer(no, m, row);
        let (removed, added) = changed_entries(shape, &old, &row, m != n);
        let mut dup = DupInfo::default();
        let result = self.s().update_row(
            table,
            &RowChange {
                old_pk: &shape.pk(n),
                new_pk: &shape.pk(m),
                payload: &shape.payload(&row),
                removed: &borrowed(&removed),
                added: &borrowed(&added),
            },
            &mut dup,
        );
        if result.is_ok() {
            self.tx.writes.insert((no, n), None);
        }
        self.brought(result, (no, m), shape, row, &dup)
    }

    /// Deletes a row, if it is there.
    pub fn delete(
        &mut self,
        no: TableNo,
        table: &Arc<Table>,
        shape: &Shape,
        n: u64,
    ) -> Result<(), Error> {
        let Some(old) = self.locked_row(no, table, shape, n)? else {
            return Ok(());
        };
        let entries = entries_of(shape, &old);
        self.s()
            .delete_row(table, &shape.pk(n), &borrowed(&entries))?;
        self.tx.writes.insert((no, n), None);
        Ok(())
    }

    /// Sets a savepoint, or goes back to one.
    pub fn savepoint(&mut self) -> After {
        let Tx {
            saves,
            writes,
            marked,
            ..
        } = &mut self.tx;
        if !*marked {
            return After::GoesOn;
        }
        if saves.is_empty() || self.rng.chance(1, 2) {
            let position = self.session.get().undo_position();
            saves.push((position, writes.clone()));
            return After::GoesOn;
        }
        let at = self.rng.below(saves.len() as u64) as usize;
        self.back_to(at)
    }

    /// Goes back to a savepoint, which stays.
    pub(crate) fn back_to(&mut self, at: usize) -> After {
        let saves = &mut self.tx.saves;
        saves.truncate(at + 1);
        let (position, then) = saves[at].clone();
        self.statement();
        self.environment.statement_ends(self.thd);
        match self.s().rollback_to(position) {
            Ok(()) => {
                self.tx.writes = then;
                After::GoesOn
            }
            Err(e) => self.failed(&e, "rollback to savepoint"),
        }
    }
}

/// Entries that an update removes and adds: those whose key or payload changed, or all of
/// them when the row moves.
fn changed_entries(shape: &Shape, old: &Row, new: &Row, moves: bool) -> (Vec<Owned>, Vec<Owned>) {
    let (mut removed, mut added) = (Vec::new(), Vec::new());
    for (a, b) in entries_of(shape, old)
        .into_iter()
        .zip(entries_of(shape, new))
    {
        if moves || a.key != b.key || a.payload != b.payload {
            removed.push(a);
            added.push(b);
        }
    }
    (removed, added)
}
