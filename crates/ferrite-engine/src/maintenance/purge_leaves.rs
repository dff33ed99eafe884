//! The delete-marks of large transactions are purged leaf by leaf.
//!
//! Of what a transaction leaves beyond some number of marks only the leaves are kept (`page_set`). Each is
//! read and cleaned once, in the order of page ids, where a piece for each entry would read it again and
//! again. A page id says nothing certain: its page may have been freed since, or be another index's leaf
//! by now. That is as good a leaf to clean as any. Entries that went elsewhere with a split or merge by
//! others are left to readers and inserts, as after a crash.
//!
//! What a snapshot needs, or a lock holds, becomes a piece for its leaf and goes the way of all pieces.
//!
//! Locking: as for pieces, see `purge`.

use crate::maintenance::cleaner::Cleaner;
use crate::maintenance::purge::is_passing;
use crate::state::engine::Engine;
use crate::state::purge_work::Garbage;
use ferrite_sync::atomic::Ordering;
use ferrite_sync::time;
use ferrite_tree::node;
use ferrite_types::{Error, PageId, Result, TxnId};

/// Leaves visited in a round, and in one that is full of pieces.
const LEAVES_AT_ONCE: usize = 64;
const LEAVES_BESIDE: usize = 8;

impl Engine {
    /// Visits leaves that large transactions have left marks on; how many. `beside`: the round has much else
    /// to do.
    pub(crate) fn purge_leaves(&self, beside: bool, by: &mut Cleaner) -> usize {
        let most = match beside {
            true => LEAVES_BESIDE,
            false => LEAVES_AT_ONCE,
        };
        let Some(taken) = self.purge.take_leaves(most) else {
            return 0;
        };
        debug_assert!(self.txns.is_committed(taken.txn), "{}", taken.txn);
        let leaves = taken.leaves.iter().copied();
        let away: Vec<PageId> = leaves.filter(|page| self.pool.is_away(*page)).collect();
        self.pool.read_ahead(&away);
        let now_us = time::now_us();
        let (mut left, mut unvisited) = (Vec::new(), Vec::new());
        let mut stuck = false;
        for page in &taken.leaves {
            stuck = stuck || self.before_step(by).is_err();
            if stuck {
                unvisited.push(*page);
                continue;
            }
            match self.purge_leaf(taken.txn, *page, by) {
                Ok(piece) => left.extend(piece),
                Err(e) if is_passing(&e) => {
                    stuck = true;
                    unvisited.push(*page);
                }
                Err(e) => {
                    self.is_given_up(&e);
                }
            }
        }
        let visited = taken.leaves.len() - unvisited.len();
        self.purge.note_steps(visited as u64);
        let done = (visited - left.len()) as u64;
        self.purge.purged.fetch_add(done, Ordering::Relaxed);
        self.purge
            .put_leaves_back(taken, (&unvisited, left), now_us);
        visited
    }

    /// Cleans a leaf. What cannot go yet is the piece that is left of it.
    fn purge_leaf(&self, txn: TxnId, page: PageId, by: &mut Cleaner) -> Result<Option<Garbage>> {
        let Some(mut piece) = self.piece_of_leaf(page)? else {
            return Ok(None);
        };
        let gone = self.purge_piece(txn, &mut piece, false, by)?;
        Ok((!gone).then_some(piece))
    }

    /// What stands for all delete-marks of a leaf. None: the id is no leaf's of a table by now.
    fn piece_of_leaf(&self, page: PageId) -> Result<Option<Garbage>> {
        let Some(leaf) = self.pool.shared(page)? else {
            return Ok(None);
        };
        if !node::is_node(&leaf) || node::level(&leaf) != 0 {
            return Ok(None);
        }
        let (index, low) = (node::index(&leaf), node::low(&leaf).to_vec());
        drop(leaf);
        let table = match self.dict.table_of_index(index) {
            Ok(table) => table,
            Err(Error::NotFound) => return Ok(None),
            Err(e) => return Err(e),
        };
        let number = table.number_of(index);
        Ok(number.map(|number| Garbage::entry(&table, number, &low, false)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::table::Table;
    use crate::testing::{config, open_with};
    use crate::{
        Config, Cursor, DdlCaller, DupInfo, Entry, IndexSpec, ReadMode, Session, TableSpec,
        WaitMode,
    };
    use ferrite_io::sim::{Fault, SimStorage};
    use ferrite_sync::Arc;

    const ROWS: u32 = 3000;
    const ROW: [u8; 60] = [0; 60];

    struct World {
        disk: SimStorage,
        engine: Arc<Engine>,
        table: Arc<Table>,
        session: Session,
    }

    /// Its place among the entries of the second index.
    fn second(n: u32) -> [u8; 4] {
        n.wrapping_mul(0x9E37_79B1).to_be_bytes()
    }

    impl World {
        /// A table with an index in no order, of that many rows; purge is done by hand.
        fn new(rows: u32) -> World {
            let disk = SimStorage::new(7);
            let config = Config {
                purge_listed_marks: 8,
                ..config()
            };
            let engine = open_with(&disk, config);
            engine.purge.hold_back(true);
            let indexes = ["PRIMARY", "k"].map(|name| IndexSpec::new(name, true, 1));
            let spec = TableSpec::new("d/t", indexes.into());
            let table = engine.dict.create_table(spec, 1).unwrap();
            let session = Session::new(&engine, 0, 1);
            let mut w = World {
                disk,
                engine,
                table,
                session,
            };
            for n in 0..rows {
                w.insert(2 * n);
            }
            w.session.commit(false).unwrap();
            w
        }

        fn with_k(n: u32, mut f: impl FnMut(&[u8], &[Entry<'_>])) {
            let key = second(n);
            let entry = Entry {
                index_no: 1,
                check_unique: false,
                key: &key,
                payload: b"",
            };
            f(&n.to_be_bytes(), &[entry]);
        }

        fn insert(&mut self, n: u32) {
            World::with_k(n, |pk, k| {
                let dup = &mut DupInfo::default();
                let s = &mut self.session;
                s.insert_row(&self.table, Some(pk), &ROW, k, false, dup)
                    .unwrap();
            });
        }

        fn delete(&mut self, rows: std::ops::Range<u32>) {
            rows.for_each(|n| self.delete_row(2 * n));
        }

        fn delete_row(&mut self, n: u32) {
            World::with_k(n, |pk, k| {
                self.session.delete_row(&self.table, pk, k).unwrap();
            });
        }

        /// Delete-marked records in all leaves.
        fn marks(&self) -> usize {
            let mut marks = 0;
            for number in 0..self.table.index_count() {
                let mut low = Vec::new();
                loop {
                    let leaf = self.table.tree(number).leaf_mut(&low, PageId::NONE);
                    let leaf = leaf.unwrap();
                    let slots = 0..leaf.count();
                    marks += slots.filter(|s| leaf.record(*s).header.deleted).count();
                    match node::high(&leaf) {
                        Some(high) => low = high.to_vec(),
                        None => break,
                    }
                }
            }
            marks
        }

        /// Purges until nothing is left.
        fn purge_all(&self) {
            let mut cleaner = Cleaner::default();
            self.engine.txns.refresh();
            for _ in 0..12_000 {
                self.engine.purge_round(&mut cleaner);
                if self.engine.purge.length() == 0 {
                    return;
                }
                ferrite_sync::thread::sleep_ms(5);
            }
            panic!("purge does not end");
        }

        fn rows_of(&self, s: &mut Session, number: usize) -> usize {
            let mut cursor = Cursor::new(&self.table, number, ReadMode::Snapshot, WaitMode::Wait);
            let mut rows = 0;
            let mut more = cursor.first(s).map(|_| ());
            while more.is_ok() {
                rows += 1;
                more = cursor.next(s).map(|_| ());
            }
            assert_eq!(more, Err(Error::NotFound));
            rows
        }

        fn end(self) {
            let World { engine, table, .. } = self;
            let mut s = Session::new(&engine, 0, 3);
            s.check_table(&table, false, &mut |line| panic!("{line}"))
                .unwrap();
            drop((s, table, self.session));
            engine.close().unwrap();
        }
    }

    /// What it leaves in memory does not grow with the rows, and all of its marks go.
    #[test]
    fn a_large_delete_is_purged_leaf_by_leaf() {
        let mut w = World::new(ROWS);
        w.delete(0..ROWS);
        w.session.commit(false).unwrap();
        assert_eq!(w.marks(), 2 * ROWS as usize);
        let bytes = w.engine.purge.memory_bytes();
        assert!((1..4000).contains(&bytes), "{bytes} bytes");
        w.purge_all();
        assert_eq!((w.marks(), w.engine.purge.memory_bytes()), (0, 0));
        w.end();
    }

    /// What an old snapshot needs stays readable, and goes with it.
    #[test]
    fn what_an_old_snapshot_needs_is_archived() {
        let mut w = World::new(ROWS);
        let mut old = Session::new(&w.engine, 0, 2);
        old.open_snapshot();
        w.delete(0..ROWS);
        w.session.commit(false).unwrap();
        let all = ROWS as usize;
        assert_eq!((w.rows_of(&mut old, 0), w.rows_of(&mut old, 1)), (all, all));
        w.purge_all();
        assert_eq!(w.marks(), 0);
        assert_eq!((w.rows_of(&mut old, 0), w.rows_of(&mut old, 1)), (all, all));
        drop(old);
        w.engine.txns.refresh();
        assert_eq!(w.engine.sweep_archives(), 2 * u64::from(ROWS));
        w.end();
    }

    /// What was undone is live; what was done before it, and after, is purged.
    #[test]
    fn marks_that_were_undone_stay_rows() {
        for kept in [3, ROWS / 2] {
            let mut w = World::new(ROWS);
            w.delete(0..kept);
            let savepoint = w.session.savepoint().unwrap();
            w.delete(kept..ROWS);
            w.session.rollback_to(savepoint).unwrap();
            w.delete(ROWS - 2..ROWS);
            w.session.commit(false).unwrap();
            w.purge_all();
            assert_eq!(w.marks(), 0, "{kept}");
            let mut s = Session::new(&w.engine, 0, 2);
            s.open_snapshot();
            assert_eq!(w.rows_of(&mut s, 1), (ROWS - kept - 2) as usize);
            drop(s);
            w.end();
        }
        let mut w = World::new(ROWS);
        w.delete(0..ROWS);
        w.session.rollback().unwrap();
        assert_eq!((w.marks(), w.engine.purge.length()), (0, 0));
        w.end();
    }

    /// Of a table that is gone, or is another one by now, nothing is left to do.
    #[test]
    fn leaves_of_a_table_that_is_gone_are_passed_over() {
        let mut w = World::new(ROWS);
        w.delete(0..ROWS);
        w.session.commit(false).unwrap();
        let caller = DdlCaller::default();
        w.engine.drop_table("d/t", &caller).unwrap();
        let indexes = ["PRIMARY", "k"].map(|name| IndexSpec::new(name, true, 1));
        let spec = TableSpec::new("d/u", indexes.into());
        w.table = w.engine.dict.create_table(spec, 1).unwrap();
        for n in 0..ROWS {
            w.insert(n);
        }
        w.session.commit(false).unwrap();
        w.purge_all();
        let mut s = Session::new(&w.engine, 0, 2);
        s.open_snapshot();
        assert_eq!(w.rows_of(&mut s, 1), ROWS as usize);
        drop(s);
        w.end();
    }

    /// Where there is no frame to be had, leaves wait for one.
    #[test]
    fn leaves_wait_while_no_frame_can_be_had() {
        let mut w = World::new(ROWS);
        w.delete(0..ROWS);
        w.session.commit(false).unwrap();
        let pool = w.engine.pool.clone();
        pool.flush_all_below(ferrite_types::Lsn::MAX).unwrap();
        for nth in 1..5000 {
            w.disk.inject_in(Fault::FailWrite, nth, "store.");
        }
        // So that the writers have something to write.
        w.insert(1);
        w.session.commit(false).unwrap();
        let mut held = Vec::new();
        while let Ok(frames) = pool.reserve(1) {
            held.extend(frames);
        }
        w.engine.txns.refresh();
        let mut cleaner = Cleaner::default();
        assert_eq!(w.engine.purge_leaves(false, &mut cleaner), 0);
        assert!(w.engine.purge.length() > 0 && w.engine.purge.lag_us() > 0);
        drop(held);
        w.disk.clear_faults();
        w.purge_all();
        assert_eq!(w.marks(), 0);
        w.end();
    }

    /// Leaves that a transaction splits without a mark on them are none to be looked at, whatever it has marked
    /// elsewhere.
    #[test]
    fn leaves_that_are_split_without_a_mark_are_not_visited() {
        let mut w = World::new(ROWS);
        w.delete_row(2 * (ROWS - 1));
        let before = w.session.txn.garbage.len();
        for n in 0..ROWS / 2 {
            w.insert(2 * n + 1);
        }
        let found = w.session.txn.garbage.len();
        assert!(found <= before + 2, "{found} pieces and leaves of {before}");
        w.session.commit(false).unwrap();
        assert_eq!(w.marks(), 2);
        w.purge_all();
        assert_eq!(w.marks(), 0);
        w.end();
    }

    /// Marks that come to another page when their leaf is split are purged there.
    #[test]
    fn marks_on_a_leaf_that_is_split_are_purged() {
        let mut w = World::new(0);
        (0..40).for_each(|n| w.insert(100 * n));
        w.session.commit(false).unwrap();
        (0..40).for_each(|n| w.delete_row(100 * n));
        (0..400).for_each(|n| w.insert(100 * (n % 40) + 1 + n / 40));
        w.session.commit(false).unwrap();
        assert_eq!(w.marks(), 80);
        w.purge_all();
        assert_eq!(w.marks(), 0);
        w.end();
    }
}
