//! Start: a new database, or the one that is there.
//!
//! | stage | what |
//! | --- | --- |
//! | `Opened` | superblock, newest checkpoint, its map |
//! | `Analysed` | one pass over the log: where pages live, who was active, what they changed |
//! | `Redone` | changes that the pages on disk do not have (`page_redo`) |
//! | `Loaded` | dictionary read |
//! | `Undone` | transactions without a commit are rolled back; prepared ones wait for word |
//! | `Ready` | leftovers of broken-off DDL dropped, a checkpoint taken |
//!
//! Dying in any stage is harmless: every one can be repeated.

use crate::catalog::dictionary::{Carried, NextIds};
use crate::log_records::undo::{self, Opening};
use crate::log_records::values::decode_values;
use crate::log_records::xid::{decode_xid, Xid};
use crate::maintenance::checkpoint::EngineState;
use crate::startup::page_fates::{Hasher, PageFates};
use crate::startup::page_redo::Redone;
use crate::state::undo_area::UndoArea;
use crate::state::undo_list::UndoList;
use ferrite_redo::LogRecord;
use ferrite_store::{MapBase, Store};
use ferrite_sync::Arc;
use ferrite_tree::op::Ops;
use ferrite_types::format::record_kind;
use ferrite_types::{Error, IndexId, Lsn, OverflowRef, PageId, Result, TableId, TxnId};
use std::collections::{BTreeMap, HashMap, HashSet};

/// Undo lists that are kept for other transactions, and the most memory of one, in bytes.
const SPARE_LISTS: usize = 64;
const SPARE_BYTES: usize = 64 << 10;

/// A transaction found in the log without an end.
pub(crate) struct Unfinished {
    /// Undo of records that begin before this is in the list already.
    exact_at: Lsn,
    pub undo: UndoList,
    pub xid: Option<Xid>,
    /// Values that become garbage when it commits; known from its prepare.
    pub garbage: Vec<(IndexId, OverflowRef)>,
}

/// What the first pass over the log finds.
pub(crate) struct Analysis {
    map: MapBase,
    pub unfinished: HashMap<TxnId, Unfinished, Hasher>,
    /// Empty lists of transactions that ended, to be used again.
    spare: Vec<UndoList>,
    pub next_txn: TxnId,
    pub next_csn: ferrite_types::Csn,
    /// Above every id that a checkpoint or the log names, of tables that are gone as well.
    pub next_ids: NextIds,
    /// Values that became garbage, and where in the log.
    pub overflow: Vec<(IndexId, OverflowRef, Lsn)>,
    pub carried: BTreeMap<TableId, Carried>,
    /// Shared with nobody while the log is read.
    pub fates: Arc<PageFates>,
    pub records: u64,
    pub redone: Redone,
    /// Pages that the redo has read.
    pub pages_read: u64,
    /// Where the last record ends.
    read_to: Lsn,
}

fn txn_of(body: &[u8]) -> Result<TxnId> {
    let b = body
        .get(..6)
        .ok_or_else(|| Error::Corrupt("log: a transaction record is cut off".into()))?;
    Ok(TxnId(u64::from_le_bytes([
        b[0], b[1], b[2], b[3], b[4], b[5], 0, 0,
    ])))
}

impl Analysis {
    pub(crate) fn new(map: MapBase, state: EngineState) -> Analysis {
        // 0.2.0 could write a checkpoint that names a transaction which began meanwhile, with an
        // id that was not below the next one.
        let above_active = state.active.iter().map(|a| TxnId(a.txn.0 + 1)).max();
        let next_txn = state.next_txn.max(above_active.unwrap_or(TxnId(0)));
        let unfinished = state
            .active
            .into_iter()
            .map(|a| {
                let found = Unfinished {
                    exact_at: a.exact_at,
                    undo: UndoList::from_parts(a.chunks, a.tail),
                    xid: a.xid,
                    garbage: a.garbage,
                };
                (a.txn, found)
            })
            .collect();
        Analysis {
            map,
            unfinished,
            spare: Vec::new(),
            next_txn,
            next_csn: state.next_csn,
            next_ids: state.next_ids,
            overflow: state
                .overflow
                .into_iter()
                .map(|(i, r)| (i, r, map.lsn))
                .collect(),
            carried: state.carried,
            fates: Arc::default(),
            records: 0,
            redone: Redone::default(),
            pages_read: 0,
            read_to: Lsn::ZERO,
        }
    }

    /// Takes one record in.
    pub(crate) fn visit(
        &mut self,
        store: &Store,
        area: &UndoArea,
        rec: &LogRecord<'_>,
    ) -> Result<()> {
        // Out of order, or seen twice, it would end up in an undo list twice.
        assert!(
            self.read_to <= rec.start && rec.start < rec.end,
            "a record from {} to {} after one to {}",
            rec.start,
            rec.end,
            self.read_to
        );
        self.read_to = rec.end;
        self.records += 1;
        let map_counts = rec.start >= self.map.lsn;
        match rec.kind {
            record_kind::MINI_TXN => self.mini_txn(store, area, rec, map_counts)?,
            record_kind::MAP_DELTA if ferrite_sync::mutant!("recovery.forget_map_deltas") => {}
            record_kind::MAP_DELTA => self.map_delta(store, rec, map_counts)?,
            record_kind::PAGE_LSNS => self.page_lsns(rec.body)?,
            record_kind::EXTENT if ferrite_sync::mutant!("recovery.forget_extents") => {}
            record_kind::EXTENT if map_counts => store.apply_extent(rec.body)?,
            record_kind::INDEX_DROP => self.index_drop(store, rec, map_counts)?,
            record_kind::COMMIT => {
                let txn = txn_of(rec.body)?;
                let values = self.ended(txn, area);
                self.commit_values(rec, values)?;
            }
            record_kind::GARBAGE => {
                let txn = txn_of(rec.body)?;
                let (_, values) = decode_values(&rec.body[6..])?;
                let found = self.entry_of(txn);
                if rec.start >= found.exact_at {
                    found.garbage.extend(values);
                }
            }
            record_kind::ROLLBACK_END => {
                let txn = txn_of(rec.body)?;
                self.ended(txn, area);
            }
            record_kind::PREPARE => {
                let txn = txn_of(rec.body)?;
                let (xid, used) = decode_xid(&rec.body[6..])?;
                let (_, listed) = decode_values(&rec.body[6 + used..])?;
                let found = self.entry_of(txn);
                if rec.start >= found.exact_at {
                    found.xid = Some(xid);
                    found.garbage.extend(listed);
                }
            }
            record_kind::AUTO_INCREMENT => self.auto_increment(rec.body)?,
            _ => {}
        }
        Ok(())
    }

    fn seen(&mut self, txn: TxnId) {
        self.next_txn = self.next_txn.max(TxnId(txn.0 + 1));
    }

    /// Gives the values that it lets go of if it committed.
    fn ended(&mut self, txn: TxnId, area: &UndoArea) -> Vec<(IndexId, OverflowRef)> {
        self.seen(txn);
        let Some(mut found) = self.unfinished.remove(&txn) else {
            return Vec::new();
        };
        found.undo.clear(area);
        if self.spare.len() < SPARE_LISTS && found.undo.memory_bytes() <= SPARE_BYTES {
            self.spare.push(found.undo);
        }
        found.garbage
    }

    fn entry_of(&mut self, txn: TxnId) -> &mut Unfinished {
        self.seen(txn);
        let spare = &mut self.spare;
        self.unfinished.entry(txn).or_insert_with(|| Unfinished {
            exact_at: Lsn::ZERO,
            undo: spare.pop().unwrap_or_default(),
            xid: None,
            garbage: Vec::new(),
        })
    }

    fn mini_txn(
        &mut self,
        store: &Store,
        area: &UndoArea,
        rec: &LogRecord<'_>,
        map_counts: bool,
    ) -> Result<()> {
        let (opening, ops) = undo::open_body(rec.body)?;
        match opening {
            Opening::Plain => {}
            Opening::Change { txn, entry } => {
                let found = self.entry_of(txn);
                if rec.start >= found.exact_at || ferrite_sync::mutant!("recovery.undo_twice") {
                    found.undo.push(entry);
                    // In memory, rolled back, it takes no space on the disk.
                    found.undo.spill_if_it_goes(area)?;
                }
            }
            Opening::Undone { txn, left } => {
                let found = self.entry_of(txn);
                if rec.start >= found.exact_at {
                    found.undo.truncate(left, area)?;
                    // Nothing is undone after PREPARE but by the word to roll back.
                    if !ferrite_sync::mutant!("rollback.keep_xid") {
                        found.xid = None;
                    }
                }
            }
        }
        for op in Ops::new(ops) {
            let op = op?;
            self.next_ids.above_index(op.index);
            if op.frees() {
                self.fates().freed(op.page, rec.end);
                if map_counts {
                    store.set_location(op.page, ferrite_store::Location::NONE);
                }
            }
        }
        Ok(())
    }

    /// What the log tells about pages, to be added to.
    fn fates(&mut self) -> &mut PageFates {
        Arc::get_mut(&mut self.fates).expect("nobody reads it while the log is read")
    }

    /// A move from before the map was dumped tells of the blob as well: the map has the place of
    /// this move, or of a later one, which is in the log as well.
    fn map_delta(&mut self, store: &Store, rec: &LogRecord<'_>, map_counts: bool) -> Result<()> {
        let fates = self.fates();
        Store::decode_map_delta(rec.body, &mut |page, at| {
            fates.moved(page);
            if map_counts {
                store.set_location(page, at);
            }
        })
    }

    fn page_lsns(&mut self, body: &[u8]) -> Result<()> {
        let read_to = self.read_to;
        let fates = self.fates();
        let mut ahead = None;
        Store::decode_page_lsns(body, &mut |page, lsn| {
            fates.has(page, lsn);
            if lsn > read_to {
                ahead = Some(page);
            }
        })?;
        match ahead {
            None => Ok(()),
            Some(page) => Err(Error::Corrupt(format!(
                "log: page {page} was written with changes that come later"
            ))),
        }
    }

    fn index_drop(&mut self, store: &Store, rec: &LogRecord<'_>, map_counts: bool) -> Result<()> {
        let b: [u8; 4] = rec
            .body
            .try_into()
            .map_err(|_| Error::Corrupt("log: an index drop has the wrong length".into()))?;
        let index = IndexId(u32::from_le_bytes(b));
        if index.0 == 0 {
            return Err(Error::Corrupt("log: a drop of no index".into()));
        }
        self.next_ids.above_index(index);
        self.fates().dropped(index, rec.end);
        if map_counts {
            store.release_index(index);
        }
        Ok(())
    }

    /// `known`: from GARBAGE records and the checkpoint. There may be less than the record
    /// counts: of a transaction that ended before the checkpoint was taken, the first ones may
    /// lie before the log that is read; the checkpoint names those that matter.
    fn commit_values(
        &mut self,
        rec: &LogRecord<'_>,
        known: Vec<(IndexId, OverflowRef)>,
    ) -> Result<()> {
        let (count, listed) = decode_values(&rec.body[6..])?;
        if listed.is_empty() && count > 0 && known.len() > count {
            return Err(Error::Corrupt(format!(
                "log: a commit of {count} values, and {} before it",
                known.len()
            )));
        }
        let values = known.into_iter().chain(listed);
        self.overflow.extend(values.map(|(i, r)| (i, r, rec.end)));
        Ok(())
    }

    fn auto_increment(&mut self, body: &[u8]) -> Result<()> {
        if body.len() != 17 {
            return Err(Error::Corrupt(
                "log: an auto increment record is cut off".into(),
            ));
        }
        let number = |at: usize| {
            let mut b = [0; 8];
            b.copy_from_slice(&body[at..at + 8]);
            u64::from_le_bytes(b)
        };
        // Each table has such a record before its definition.
        self.next_ids.above_table(TableId(number(0)));
        let carried = self.carried.entry(TableId(number(0))).or_default();
        let next = number(8);
        carried.auto_increment = if body[16] == 1 {
            next
        } else {
            carried.auto_increment.max(next)
        };
        Ok(())
    }

    /// False when the page was freed, or its index dropped, later in the log.
    pub(crate) fn matters(&self, page: PageId, index: IndexId, end: Lsn) -> bool {
        self.fates.matters(page, index, end)
    }

    /// Values still to be freed, each once: those whose first page was not freed afterwards.
    pub(crate) fn pending_overflow(&self) -> Vec<(IndexId, OverflowRef)> {
        let mut pending: Vec<(IndexId, OverflowRef)> = Vec::new();
        let mut named = HashSet::with_capacity(self.overflow.len());
        for (index, reference, at) in &self.overflow {
            let first = reference.first_page();
            if self.fates.is_kept(first, *index, *at) && named.insert((*index, *reference)) {
                pending.push((*index, *reference));
            }
        }
        pending
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::maintenance::checkpoint::ActiveTxn;

    /// A transaction began while an earlier version took a checkpoint, waited for a lock, and had no
    /// record when the machine died: its id is not one of the future.
    #[test]
    fn the_next_transaction_comes_after_all_that_the_checkpoint_names() {
        let active = |id| ActiveTxn {
            txn: TxnId(id),
            exact_at: Lsn(64),
            xid: None,
            garbage: Vec::new(),
            chunks: Vec::new(),
            tail: Vec::new(),
        };
        let state = EngineState {
            next_txn: TxnId(30),
            active: vec![active(12), active(30), active(29)],
            ..EngineState::default()
        };
        let map = MapBase {
            slot: 0,
            lsn: Lsn(64),
            sequence: 1,
            bytes: 0,
            crc: 0,
        };
        let analysis = Analysis::new(map, state);
        assert_eq!(analysis.next_txn, TxnId(31));
        assert_eq!(analysis.unfinished.len(), 3);
    }
}
