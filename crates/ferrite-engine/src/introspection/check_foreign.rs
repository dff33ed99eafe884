//! CHECK TABLE of a child: each row's parent is there.
//!
//! Both tables are read by one snapshot, which sees each constraint kept: what a transaction has
//! left is whole when it commits. The child's index is read in its order, and each key in it is
//! looked for in the parent's once, so that the work is that of the rows and nothing grows with
//! them.
//!
//! Locking: none but latches. The parent has no metadata lock: it is entered for each look, and if it is
//! dropped or emptied meanwhile, that constraint is not looked at any further.

use crate::catalog::links::{Link, LinkPart, Links, Peer, RowEnd};
use crate::catalog::table::Table;
use crate::catalog::turned_key::{turn, Turned};
use crate::cursor::{Cursor, ReadMode, Row, SeekMode, WaitMode};
use crate::rows::overflow;
use crate::state::slot::Isolation;
use crate::transaction::session::Session;
use ferrite_sync::waits::{Of, Reason, Sliced};
use ferrite_sync::Arc;
use ferrite_types::{Error, IndexId, Result};

/// Entries between two looks at KILL.
const KILL_CHECK: u64 = 1024;

/// What is wrong with a constraint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ForeignFault<'r> {
    /// The row of this clustered key has no parent; of several with the same key the first.
    Orphan(&'r [u8]),
    /// There is no parent, or no index to look in: it was made so under `foreign_key_checks=0`.
    NoParent,
    /// The parent is newer than the snapshot, or was dropped meanwhile.
    ParentChanged,
    /// Keys of a NO PAD collation, where one side is a CHAR and the other is not the same CHAR: not looked at.
    Padding,
}

impl Session {
    /// Looks for the parents of all rows of a table, by one snapshot. `report` gets the number of the
    /// constraint (of `links.outgoing`) and what is wrong; false: that is enough of this constraint.
    /// The statement is not one at READ UNCOMMITTED.
    ///
    /// # Errors
    /// `Interrupted` by KILL; `TableChanged` when the table is newer than the snapshot; `InUse`: rows of a transaction
    /// are in the way that could not be settled after the restart; a page that cannot be read.
    pub fn check_foreign(
        &mut self,
        table: &Arc<Table>,
        links: &Links,
        report: &mut dyn FnMut(usize, ForeignFault<'_>) -> bool,
    ) -> Result<()> {
        debug_assert!(
            self.isolation != Isolation::ReadUncommitted,
            "not by a snapshot"
        );
        // No wait for them while a parent is entered.
        let indexes = indexes_of(table, links);
        let mut wait = Sliced::new(Reason::Rollback, Of::Nothing);
        while self.engine.unsettled.is_awaited_in(&indexes) {
            self.look_again(&mut wait)?;
        }
        drop(wait);
        let result = self.check_links(table, links, report);
        result.map_err(|e| self.not_of_table(e))
    }

    /// Rows whose earlier state nobody can tell are no fault of the table's, nor need the page be the table's.
    fn not_of_table(&self, failed: Error) -> Error {
        let Some(txn) = self.engine.unsettled.failed_with(&failed) else {
            return failed;
        };
        debug_assert!(!txn.is_frozen(), "a row of nobody's");
        Error::InUse(format!(
            "transaction {txn} has changed rows of the table or of a parent and could not be settled: {failed}"
        ))
    }

    fn check_links(
        &mut self,
        table: &Arc<Table>,
        links: &Links,
        report: &mut dyn FnMut(usize, ForeignFault<'_>) -> bool,
    ) -> Result<()> {
        let rows = table.estimate().rows;
        let all = rows * links.outgoing.len() as u64;
        for (number, link) in links.outgoing.iter().enumerate() {
            debug_assert!(link.is_whole(), "{}", link.key.name);
            let Some(peer) = link.peer.as_ref().filter(|_| link.own_index().is_some()) else {
                report(number, ForeignFault::NoParent);
                continue;
            };
            if !link.parts.iter().all(LinkPart::same_padding) {
                report(number, ForeignFault::Padding);
                continue;
            }
            let orphan = &mut |pk: &[u8]| report(number, ForeignFault::Orphan(pk));
            let before = number as u64 * rows;
            let progress = &mut |session: &Session, seen: u64| {
                session.report_progress(before + seen.min(rows), all)
            };
            if !self.check_link(table, link, peer, orphan, progress)? {
                report(number, ForeignFault::ParentChanged);
            }
        }
        Ok(())
    }

    /// False: the parent is not what it was.
    fn check_link(
        &mut self,
        table: &Arc<Table>,
        link: &Link,
        peer: &Peer,
        orphan: &mut dyn FnMut(&[u8]) -> bool,
        progress: &mut dyn FnMut(&Session, u64) -> Result<()>,
    ) -> Result<bool> {
        let number = link.index_no as usize;
        debug_assert_eq!(link.parts.len(), link.key.columns.len());
        let mut child = Cursor::new(table, number, ReadMode::Snapshot, WaitMode::Wait);
        let mut parent = parent_cursor(peer);
        let (mut looked_for, mut prefix) = (Vec::new(), Vec::new());
        let mut moved = child.first(self).map(|_| ());
        for seen in 0u64.. {
            match moved {
                Err(Error::NotFound) => break,
                moved => moved?,
            }
            if seen % KILL_CHECK == 0 {
                progress(self, seen)?;
            }
            let same = |key: &[u8]| !looked_for.is_empty() && key.starts_with(&looked_for);
            let known = same(child.current()?.key);
            if !known && self.lives(&mut child, link.row_end.as_ref())? {
                let row = child.current()?;
                let front = turn(&link.parts, row.key, &mut prefix).ok_or_else(cut_short)?;
                debug_assert!(front.bytes > 0 && front.bytes <= row.key.len());
                looked_for.clear();
                looked_for.extend_from_slice(&row.key[..front.bytes]);
                let there = match front.turned {
                    Turned::Null => Ok(true),
                    Turned::Nowhere => Ok(false),
                    Turned::Key => self.has_parent(&mut parent, peer, &prefix),
                };
                if there == Err(Error::TableChanged) {
                    return Ok(false);
                }
                if !there? && !orphan(row.pk) {
                    break;
                }
            }
            moved = child.next(self).map(|_| ());
        }
        Ok(true)
    }

    /// Does the snapshot see a row of the parent whose key begins so?
    fn has_parent(&mut self, parent: &mut Cursor, peer: &Peer, prefix: &[u8]) -> Result<bool> {
        debug_assert!(!prefix.is_empty(), "a look for any row");
        let _entered = peer.table.enter().ok_or(Error::TableChanged)?;
        let begins = |row: Row<'_>| row.key.starts_with(prefix);
        let mut found = parent.seek(self, prefix, SeekMode::Exact, true).map(begins);
        loop {
            match found {
                Ok(true) if self.lives(parent, peer.row_end.as_ref())? => return Ok(true),
                Ok(true) => {}
                Ok(false) | Err(Error::NotFound) => return Ok(false),
                Err(e) => return Err(e),
            }
            found = parent.next_same(self, prefix).map(begins);
        }
    }

    /// Is the row that the cursor stands on none of the past?
    fn lives(&mut self, cursor: &mut Cursor, end: Option<&RowEnd>) -> Result<bool> {
        match end {
            None => Ok(true),
            Some(end) if !end.is_in_row() => Ok(end.lives_by_key(cursor.current()?.key)),
            Some(end) => match cursor.fetch_row(self) {
                Ok(row) => Ok(end.lives_by_row(overflow::columns(row.payload))),
                Err(Error::NotFound) => Ok(false),
                Err(e) => Err(e),
            },
        }
    }
}

/// All indexes of the table and of its parents.
fn indexes_of(table: &Table, links: &Links) -> Vec<IndexId> {
    let parents = links.outgoing.iter().filter_map(|link| link.peer.as_ref());
    let tables = std::iter::once(table).chain(parents.map(|peer| &*peer.table));
    tables
        .flat_map(|table| table.spec.indexes.iter().map(|index| index.id))
        .collect()
}

fn parent_cursor(peer: &Peer) -> Cursor {
    let number = peer.index_no as usize;
    Cursor::new(&peer.table, number, ReadMode::Snapshot, WaitMode::Wait)
}

fn cut_short() -> Error {
    Error::Corrupt("foreign key: an entry of the child's index is cut short".into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::dictionary::foreign::NewForeign;
    use crate::catalog::dictionary::foreign_change::References;
    use crate::catalog::foreign::{Action, ForeignKey};
    use crate::catalog::spec::{IndexSpec, TableSpec};
    use crate::rows::write::{DupInfo, Entry};
    use crate::testing::{described, open};
    use crate::Engine;
    use ferrite_io::sim::SimStorage;

    fn number(n: u32) -> Vec<u8> {
        (n ^ 0x8000_0000).to_be_bytes().to_vec()
    }

    fn may_be_null(n: Option<u32>) -> Vec<u8> {
        n.map_or(vec![0], |n| [vec![1], number(n)].concat())
    }

    fn foreign(name: &str, parent: &str, columns: &[(&str, &str)]) -> (ForeignKey, bool) {
        let pair = |(a, b): &(&str, &str)| (a.to_string(), b.to_string());
        let key = ForeignKey {
            name: name.into(),
            parent: parent.into(),
            columns: columns.iter().map(pair).collect(),
            on_delete: Action::Restrict,
            on_update: Action::Restrict,
            stamp: 0,
        };
        (key, false)
    }

    /// A table (id, a?, b) with a primary key and an index on (a, b).
    fn make(engine: &Engine, name: &str, keys: Vec<(ForeignKey, bool)>) -> Arc<Table> {
        let indexes = vec![
            IndexSpec::new("PRIMARY", true, 1),
            IndexSpec::new("k", false, 2),
        ];
        let mut spec = TableSpec::new(name, indexes);
        spec.definition = described(&["id", "a?", "b"], &[&[0], &[1, 2]]);
        let new = NewForeign {
            keys,
            ..NewForeign::default()
        };
        engine.dict.create_with_foreign(spec, 1, new).unwrap()
    }

    fn entry_key(a: Option<u32>, b: u32) -> Vec<u8> {
        [may_be_null(a), number(b)].concat()
    }

    fn insert(s: &mut Session, t: &Arc<Table>, id: u32, a: Option<u32>, b: u32) {
        let key = entry_key(a, b);
        let entry = Entry {
            index_no: 1,
            check_unique: false,
            key: &key,
            payload: &[],
        };
        let dup = &mut DupInfo::default();
        s.insert_row(t, Some(&number(id)), &[0], &[entry], false, dup)
            .unwrap();
    }

    fn delete(s: &mut Session, t: &Arc<Table>, id: u32, a: Option<u32>, b: u32) {
        let key = entry_key(a, b);
        let entry = Entry {
            index_no: 1,
            check_unique: false,
            key: &key,
            payload: &[],
        };
        s.delete_row(t, &number(id), &[entry]).unwrap();
    }

    /// What a session sees: constraint, and the id of a row or what else is wrong.
    fn seen(s: &mut Session, t: &Arc<Table>, most: usize) -> Vec<(usize, String)> {
        let links = s.engine().dict.links(t).unwrap();
        let mut found = Vec::new();
        s.check_foreign(t, &links, &mut |number, fault| {
            let text = match fault {
                ForeignFault::Orphan(pk) => {
                    let id = u32::from_be_bytes(pk.try_into().unwrap()) ^ 0x8000_0000;
                    id.to_string()
                }
                other => format!("{other:?}"),
            };
            found.push((number, text));
            found.len() < most
        })
        .unwrap();
        found
    }

    fn orphans(ids: &[u32]) -> Vec<(usize, String)> {
        ids.iter().map(|id| (0, id.to_string())).collect()
    }

    #[test]
    fn each_key_without_a_parent_is_found_once() {
        let engine = open(&SimStorage::new(1));
        let p = make(&engine, "d/p", Vec::new());
        let c = make(&engine, "d/c", vec![foreign("f", "d/p", &[("a", "id")])]);
        let mut s = Session::new(&engine, 0, 1);
        (0..3000).for_each(|n| insert(&mut s, &p, n * 2, None, 0));
        for n in 0..3000 {
            insert(&mut s, &c, n, Some(n / 3 * 2), n);
        }
        insert(&mut s, &c, 9000, None, 1);
        s.commit(false).unwrap();
        assert_eq!(seen(&mut s, &c, usize::MAX), []);
        for id in [4000, 4001] {
            insert(&mut s, &c, id, Some(77), id);
        }
        insert(&mut s, &c, 4002, Some(79), 0);
        insert(&mut s, &c, 4003, Some(9001), 0);
        s.commit(false).unwrap();
        assert_eq!(seen(&mut s, &c, usize::MAX), orphans(&[4000, 4002, 4003]));
        assert_eq!(seen(&mut s, &c, 2), orphans(&[4000, 4002]));
        drop(s);
        engine.close().unwrap();
    }

    /// Two columns, found in an index that is not unique; what one of them is NULL in refers to nothing.
    #[test]
    fn more_columns_than_one() {
        let engine = open(&SimStorage::new(2));
        let p = make(&engine, "d/p", Vec::new());
        let key = foreign("f", "d/p", &[("a", "a"), ("b", "b")]);
        let c = make(&engine, "d/c", vec![key]);
        let mut s = Session::new(&engine, 0, 1);
        insert(&mut s, &p, 1, Some(5), 6);
        insert(&mut s, &p, 2, Some(5), 6);
        insert(&mut s, &p, 3, None, 8);
        for (id, a, b) in [
            (1, Some(5), 6),
            (2, Some(5), 7),
            (3, None, 8),
            (4, Some(8), 6),
        ] {
            insert(&mut s, &c, id, a, b);
        }
        s.commit(false).unwrap();
        assert_eq!(seen(&mut s, &c, usize::MAX), orphans(&[2, 4]));
        drop(s);
        engine.close().unwrap();
    }

    /// One snapshot of both sides: what has not committed is as it was, and so is what came later.
    #[test]
    fn both_sides_are_as_of_one_moment() {
        let engine = open(&SimStorage::new(3));
        let p = make(&engine, "d/p", Vec::new());
        let c = make(&engine, "d/c", vec![foreign("f", "d/p", &[("a", "id")])]);
        let (mut s, mut other) = (Session::new(&engine, 0, 1), Session::new(&engine, 0, 2));
        (1..4).for_each(|id| insert(&mut s, &p, id, None, 0));
        insert(&mut s, &c, 1, Some(1), 0);
        s.commit(false).unwrap();
        delete(&mut other, &p, 1, None, 0);
        insert(&mut other, &c, 2, Some(9), 0);
        assert_eq!(seen(&mut s, &c, usize::MAX), []);
        other.commit(false).unwrap();
        assert_eq!(seen(&mut s, &c, usize::MAX), [], "its snapshot is older");
        s.commit(false).unwrap();
        assert_eq!(seen(&mut s, &c, usize::MAX), orphans(&[1, 2]));
        drop((s, other));
        engine.close().unwrap();
    }

    #[test]
    fn a_parent_that_is_not_there_or_newer_is_no_fault_of_a_row() {
        let engine = open(&SimStorage::new(4));
        let p = make(&engine, "d/p", Vec::new());
        let keys = vec![
            foreign("f", "d/p", &[("a", "id")]),
            foreign("g", "d/none", &[("a", "id")]),
        ];
        let c = make(&engine, "d/c", keys);
        let mut s = Session::new(&engine, 0, 1);
        insert(&mut s, &p, 1, None, 0);
        insert(&mut s, &c, 1, Some(1), 0);
        s.commit(false).unwrap();
        let none = (1, "NoParent".to_string());
        assert_eq!(seen(&mut s, &c, usize::MAX), std::slice::from_ref(&none));
        engine
            .dict
            .truncate_table("d/p", 1, References::None)
            .unwrap();
        let changed = (0, "ParentChanged".to_string());
        assert_eq!(seen(&mut s, &c, usize::MAX), [changed, none.clone()]);
        s.commit(false).unwrap();
        let orphan = (0, "1".to_string());
        assert_eq!(seen(&mut s, &c, usize::MAX), [orphan, none.clone()]);
        s.commit(false).unwrap();
        engine.dict.drop_table("d/p", References::None).unwrap();
        let gone = (0, "NoParent".to_string());
        assert_eq!(seen(&mut s, &c, usize::MAX), [gone, none]);
        drop((s, p));
        engine.close().unwrap();
    }

    /// What was given up is waited for by nobody, nor is what has changed other tables only. Rows in the way that it has
    /// changed are no fault of the table's.
    #[test]
    fn what_was_given_up_is_no_fault_of_the_table() {
        let engine = open(&SimStorage::new(5));
        let p = make(&engine, "d/p", Vec::new());
        let c = make(&engine, "d/c", vec![foreign("f", "d/p", &[("a", "id")])]);
        let elsewhere = make(&engine, "d/e", Vec::new());
        let (mut s, mut other) = (Session::new(&engine, 0, 1), Session::new(&engine, 0, 2));
        (1..4).for_each(|id| insert(&mut s, &p, id, None, 0));
        insert(&mut s, &c, 1, Some(1), 0);
        s.commit(false).unwrap();
        insert(&mut other, &elsewhere, 1, None, 0);
        let (txn, slot) = (other.txn.id(), other.txn.slot.clone());
        engine.unsettled.add(slot.clone());
        assert_eq!(engine.unsettled.next().map(|next| next.0), Some(txn));
        let damage = Error::Corrupt("page 7".into());
        engine.unsettled.fail(txn, &damage, true);
        assert_eq!(seen(&mut s, &c, usize::MAX), []);
        insert(&mut other, &c, 2, Some(2), 0);
        let links = engine.dict.links(&c).unwrap();
        let found = s.check_foreign(&c, &links, &mut |_, _| true);
        let of_other = |text: &String| text.contains("page 7") && text.contains(&txn.to_string());
        assert!(
            matches!(&found, Err(Error::InUse(text)) if of_other(text)),
            "{found:?}"
        );
        engine.unsettled.done(txn);
        other.rollback().unwrap();

        insert(&mut other, &elsewhere, 1, None, 0);
        let xid = crate::Xid {
            format_id: 1,
            gtrid_len: 1,
            data: b"x"[..].into(),
        };
        other.prepare(&xid).unwrap();
        let txn = other.txn.id();
        engine.unsettled.add(slot);
        assert_eq!(seen(&mut s, &c, usize::MAX), []);
        engine.unsettled.done(txn);
        other.commit(false).unwrap();
        drop((s, other));
        engine.close().unwrap();
    }
}
