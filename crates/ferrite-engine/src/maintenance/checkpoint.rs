//! The checkpoint: a place in the log to start from, a map to start with, and what the engine
//! itself must know of the time before.
//!
//! Order of steps, and why dying between any two is harmless: (1) the position is chosen;
//! (2) the map is dumped into the file not in use; (3) the engine's state is copied: for each
//! active transaction its undo list, exact at a log position of its own (of long ones the
//! tail, and the names of the chunks in `undo.spill`, which are synced); (4) the log is made
//! durable up to here; (5) the checkpoint file not in use is written and synced: only from
//! here does a restart begin at the new position; (6) older log files are recycled.
//!
//! ```text
//! state: version u8 | next txn u64 | next csn u64
//!   | next table u64 | next index u32                 (since version 3)
//!   | count u32, each: txn u64, exact at u64, xid length u32, xid,
//!       garbage count u32, each: index u32, overflow reference 16 bytes,
//!       chunk count u32, each: slot u32, checksum u32, tail length u64, tail
//!   | count u32, each: index u32, overflow reference 16 bytes
//!   | count u32, each: table u64, auto increment u64, rows i64
//!   | log durable u64 (since version 4)
//! ```
//!
//! The last field is the position the log was durable up to when this checkpoint was written: a
//! log that ends before has lost a part, and the start is refused.

use crate::catalog::dictionary::{Carried, NextIds};
use crate::log_records::values::encode_values;
use crate::log_records::xid::{decode_xid, encode_xid, Xid};
use crate::state::engine::Engine;
use crate::state::undo_area::Chunk;
use crate::state::undo_list::UndoList;
use ferrite_store::Checkpoint;
use ferrite_sync::atomic::Ordering;
use ferrite_sync::kill_point;
use ferrite_types::{ByteReader, Csn, Error, IndexId, Lsn, OverflowRef, Result, TableId, TxnId};
use std::collections::BTreeMap;

const STATE_VERSION: u8 = 4;
/// The oldest version that is still read.
const OLDEST_VERSION: u8 = 1;
/// The first whose transactions and log can be read: before, undo and changes had another format.
/// A database shut down cleanly has neither, unless a transaction was prepared.
const VERSION_WITH_CHUNKS: u8 = 2;
/// The first with the ids of tables and indexes; before, the dictionary tells the least that they
/// can be.
const VERSION_WITH_IDS: u8 = 3;
/// The first that tells how far the log was durable.
const VERSION_WITH_LOG_END: u8 = 4;
const _: () =
    assert!(OLDEST_VERSION < VERSION_WITH_CHUNKS && VERSION_WITH_CHUNKS < VERSION_WITH_IDS);
const _: () =
    assert!(VERSION_WITH_IDS < VERSION_WITH_LOG_END && VERSION_WITH_LOG_END <= STATE_VERSION);

/// A transaction that was active when the state was copied.
pub(crate) struct ActiveTxn {
    pub txn: TxnId,
    /// Undo of records that begin before this is in `chunks` and `tail`.
    pub exact_at: Lsn,
    pub xid: Option<Xid>,
    pub garbage: Vec<(IndexId, OverflowRef)>,
    pub chunks: Vec<Chunk>,
    pub tail: Vec<u8>,
}

/// The engine's part of a checkpoint.
#[derive(Default)]
pub(crate) struct EngineState {
    pub next_txn: TxnId,
    pub next_csn: Csn,
    pub next_ids: NextIds,
    pub active: Vec<ActiveTxn>,
    pub overflow: Vec<(IndexId, OverflowRef)>,
    pub carried: BTreeMap<TableId, Carried>,
    /// The log was durable up to here; 0 when that is not known.
    pub log_durable: Lsn,
    /// The log after the checkpoint, if there is any, is of a format that this program cannot read.
    pub log_unreadable: bool,
}

impl EngineState {
    pub(crate) fn encode(&self) -> Vec<u8> {
        self.check();
        let tails: usize = self.active.iter().map(|txn| txn.tail.len()).sum();
        let mut out = Vec::with_capacity(tails + tails / 16 + 4096);
        out.push(STATE_VERSION);
        out.extend_from_slice(&self.next_txn.0.to_le_bytes());
        out.extend_from_slice(&self.next_csn.0.to_le_bytes());
        out.extend_from_slice(&self.next_ids.table.to_le_bytes());
        out.extend_from_slice(&self.next_ids.index.to_le_bytes());
        out.extend_from_slice(&(self.active.len() as u32).to_le_bytes());
        for txn in &self.active {
            out.extend_from_slice(&txn.txn.0.to_le_bytes());
            out.extend_from_slice(&txn.exact_at.0.to_le_bytes());
            let mut xid = Vec::new();
            if let Some(x) = &txn.xid {
                encode_xid(x, &mut xid);
            }
            out.extend_from_slice(&(xid.len() as u32).to_le_bytes());
            out.extend_from_slice(&xid);
            encode_values(&txn.garbage, &mut out);
            out.extend_from_slice(&(txn.chunks.len() as u32).to_le_bytes());
            for chunk in &txn.chunks {
                out.extend_from_slice(&chunk.slot.to_le_bytes());
                out.extend_from_slice(&chunk.crc.to_le_bytes());
            }
            out.extend_from_slice(&(txn.tail.len() as u64).to_le_bytes());
            out.extend_from_slice(&txn.tail);
        }
        encode_values(&self.overflow, &mut out);
        out.extend_from_slice(&(self.carried.len() as u32).to_le_bytes());
        for (table, carried) in &self.carried {
            out.extend_from_slice(&table.0.to_le_bytes());
            out.extend_from_slice(&carried.auto_increment.to_le_bytes());
            out.extend_from_slice(&carried.rows.to_le_bytes());
        }
        out.extend_from_slice(&self.log_durable.0.to_le_bytes());
        debug_assert!(
            EngineState::decode(&out).is_ok_and(|read| {
                read.active.len() == self.active.len()
                    && read.overflow == self.overflow
                    && read.log_durable == self.log_durable
                    && (read.next_txn, read.next_csn) == (self.next_txn, self.next_csn)
            }),
            "a checkpoint reads differently"
        );
        out
    }

    /// Ids that it names are not given out again, and each transaction is there once: what recovery
    /// relies on.
    fn check(&self) {
        for txn in &self.active {
            assert!(
                !txn.txn.is_frozen() && txn.txn < self.next_txn,
                "transaction {} in a checkpoint, the next id is {}",
                txn.txn,
                self.next_txn
            );
        }
        let last = self.carried.keys().next_back();
        assert!(
            last.is_none_or(|id| id.0 < self.next_ids.table),
            "table {last:?} in a checkpoint, the next id is {}",
            self.next_ids.table
        );
        let once = |txn: &ActiveTxn| self.active.iter().filter(|a| a.txn == txn.txn).count() == 1;
        debug_assert!(
            self.active.len() > 64 || self.active.iter().all(once),
            "twice"
        );
    }

    /// # Errors
    /// `Format` for a version that this program does not read; `Corrupt`.
    pub(crate) fn decode(bytes: &[u8]) -> Result<EngineState> {
        let mut r = ByteReader::new(bytes);
        let unreadable = || Error::Corrupt("checkpoint: the engine's state is unreadable".into());
        let version = r.u8().ok_or_else(unreadable)?;
        if !(OLDEST_VERSION..=STATE_VERSION).contains(&version) {
            return Err(Error::Format(format!(
                "the checkpoint's state has version {version}; this program reads \
                 {OLDEST_VERSION} to {STATE_VERSION}"
            )));
        }
        read_state(&mut r, version).ok_or_else(unreadable)?
    }
}

/// What is left by a version whose undo and log cannot be read.
#[cold]
pub(crate) fn not_shut_down() -> Error {
    Error::Format(
        "version 0.1.0 used this database last and left transactions open or prepared: start \
         that version again, commit or roll back what XA RECOVER shows, and shut it down \
         cleanly"
            .into(),
    )
}

/// None: cut off.
fn read_state(r: &mut ByteReader<'_>, version: u8) -> Option<Result<EngineState>> {
    let mut state = EngineState {
        next_txn: TxnId(r.u64()?),
        next_csn: Csn(r.u64()?),
        log_unreadable: version < VERSION_WITH_CHUNKS,
        ..EngineState::default()
    };
    if version >= VERSION_WITH_IDS {
        state.next_ids.table = r.u64()?;
        state.next_ids.index = r.u32()?;
    }
    let active = r.u32()?;
    if version < VERSION_WITH_CHUNKS && active > 0 {
        return Some(Err(not_shut_down()));
    }
    for _ in 0..active {
        state.active.push(read_active(r)?);
    }
    for _ in 0..r.u32()? {
        let index = IndexId(r.u32()?);
        state
            .overflow
            .push((index, OverflowRef::from_bytes(r.array()?)));
    }
    for _ in 0..r.u32()? {
        let table = TableId(r.u64()?);
        let carried = Carried {
            auto_increment: r.u64()?,
            rows: r.u64()? as i64,
        };
        state.carried.insert(table, carried);
    }
    if version >= VERSION_WITH_LOG_END {
        state.log_durable = Lsn(r.u64()?);
    }
    Some(Ok(state))
}

fn read_active(r: &mut ByteReader<'_>) -> Option<ActiveTxn> {
    let txn = TxnId(r.u64()?);
    let exact_at = Lsn(r.u64()?);
    let xid = match r.bytes32()? {
        [] => None,
        xid => Some(decode_xid(xid).ok()?.0),
    };
    let mut garbage = Vec::new();
    for _ in 0..r.u32()? {
        garbage.push((IndexId(r.u32()?), OverflowRef::from_bytes(r.array()?)));
    }
    let mut chunks = Vec::new();
    for _ in 0..r.u32()? {
        let (slot, crc) = (r.u32()?, r.u32()?);
        chunks.push(Chunk { slot, crc });
    }
    let tail = r.bytes64()?.to_vec();
    Some(ActiveTxn {
        txn,
        exact_at,
        xid,
        garbage,
        chunks,
        tail,
    })
}

impl Engine {
    /// Takes a checkpoint now.
    ///
    /// # Errors
    /// `DiskFull` or `Io`: the one before stays valid.
    pub fn checkpoint(&self) -> Result<()> {
        let _one = self.checkpointing.lock();
        let result = self.take_checkpoint();
        self.checkpoint_fails
            .store(result.is_err(), Ordering::Relaxed);
        result
    }

    /// The caller holds `checkpointing`.
    pub(crate) fn take_checkpoint(&self) -> Result<()> {
        // Positions first, the rest after: see `copy_state` and the pool's invariant 4.
        let bound = self.log.current_lsn();
        let redo_start = if ferrite_sync::mutant!("checkpoint.forget_dirty_pages") {
            bound
        } else {
            self.pool.oldest_rec_lsn().min(bound)
        };
        let last = self.checkpoint_lsn.load(Ordering::SeqCst);
        // A change takes its page's redo position from the log before it comes into it, and may be
        // late with that: its record is behind whatever checkpoint has been taken meanwhile.
        let redo_start = redo_start.max(Lsn(last));
        let map = self.pool.dump_map()?;
        self.map_bytes.store(map.bytes, Ordering::Relaxed);
        assert!(
            redo_start <= bound,
            "redo from {redo_start}, the log ends at {bound}"
        );
        assert!(map.lsn <= self.log.current_lsn(), "a map of {}", map.lsn);
        kill_point!("checkpoint.map_dumped");
        let released = self.undo_area.begin_checkpoint();
        let mut state = self.copy_state();
        kill_point!("checkpoint.state_copied");
        let now = self.log.current_lsn();
        state.log_durable = now;
        if !ferrite_sync::mutant!("checkpoint.log_not_flushed") {
            self.log.flush_to(now);
        }
        let start = redo_start.min(map.lsn);
        assert!(
            last <= start.0 && start <= now,
            "a checkpoint from {start} after one from {last}, at {now}"
        );
        assert!(
            state.active.iter().all(|txn| txn.exact_at <= now),
            "undo of what comes after the checkpoint"
        );
        debug_assert!(
            self.log.durable_lsn() >= now || ferrite_sync::mutant!("checkpoint.log_not_flushed"),
            "a checkpoint of what is not in the log"
        );
        let encoded = state.encode();
        drop(state);
        let written = self.undo_area.sync().and_then(|()| {
            self.store.write_checkpoint(&Checkpoint {
                redo_start: start,
                map,
                state: encoded,
            })
        });
        self.undo_area.end_checkpoint(released, written.is_ok());
        written?;
        kill_point!("checkpoint.written");
        self.checkpoint_lsn.store(start.0, Ordering::SeqCst);
        self.move_attention();
        let needed = if ferrite_sync::mutant!("checkpoint.recycle_needed_log") {
            now
        } else {
            start
        };
        let kept = self.backup.log_floor.kept_from();
        let kept = kept.filter(|_| !ferrite_sync::mutant!("backup.log_recycled"));
        let copied = self.snapshots.log_kept_from().unwrap_or(needed);
        self.log
            .set_oldest_needed(needed.min(kept.unwrap_or(needed)).min(copied));
        self.counters.checkpoints.inc();
        Ok(())
    }

    /// Copies what a restart must know. Every transaction that is active now and has a record
    /// before the checkpoint's position is in it: it was registered before that record.
    pub(crate) fn copy_state(&self) -> EngineState {
        let mut state = EngineState {
            next_csn: Csn(self.txns.last_csn().0 + 1),
            carried: self.dict.carry(),
            ..EngineState::default()
        };
        // After the position was chosen, and after the tables were copied: every record before the
        // one and all that is named of the others have lower ids.
        state.next_ids = self.dict.next_ids();
        let mut tail_bytes = 0;
        for slot in self.all_slots() {
            let mut held = slot.state.lock();
            if held.txn.is_frozen() || ferrite_sync::mutant!("checkpoint.lose_undo") {
                state.overflow.extend_from_slice(&held.garbage);
                continue;
            }
            tail_bytes += held.undo.parts().1.len() as u64;
            if tail_bytes > self.config.checkpoint_undo_bytes {
                tail_bytes -= self.shorten_tail(&mut held.undo);
            }
            state.active.push(ActiveTxn {
                txn: held.txn,
                exact_at: self.log.current_lsn(),
                xid: held
                    .xid()
                    .cloned()
                    .filter(|_| !ferrite_sync::mutant!("checkpoint.lose_xid")),
                garbage: held.garbage.clone(),
                chunks: held.undo.parts().0.to_vec(),
                tail: held.undo.parts().1.to_vec(),
            });
        }
        // After the slots: one that began while they were copied has an id below it.
        state.next_txn = self.txns.next_txn();
        assert!(
            state.active.iter().all(|a| a.txn < state.next_txn),
            "a checkpoint names a transaction from the future"
        );
        // After the slots: a commit gives its values to the queue before its slot lets go of
        // them. Some may be in both.
        state.overflow.extend(self.purge.pending_overflow());
        state
    }

    /// A list that is one of too many for a checkpoint to have all that is in memory: what makes whole
    /// chunks leaves its tail. Returns by how many bytes. What cannot be written stays where it is, and
    /// this checkpoint has it; the transaction hears of it when its list is long.
    #[cold]
    fn shorten_tail(&self, undo: &mut UndoList) -> u64 {
        let before = undo.parts().1.len();
        let _ = undo.spill_all_chunks(&self.undo_area);
        let after = undo.parts().1.len();
        assert!(after <= before, "{after} bytes of {before} are left");
        (before - after) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rows::write::DupInfo;
    use crate::testing::{create, open};
    use crate::transaction::session::Session;
    use ferrite_io::sim::SimStorage;

    /// A checkpoint of an older version has no ids: they come from dictionary and log.
    #[test]
    fn the_state_of_an_older_version_is_read() {
        let mut state = EngineState {
            next_txn: TxnId(9),
            next_csn: Csn(8),
            overflow: vec![(IndexId(17), OverflowRef::from_bytes([5; 16]))],
            ..EngineState::default()
        };
        state.next_ids.table = 70;
        state.next_ids.index = 90;
        let now = state.encode();
        let read = EngineState::decode(&now).unwrap();
        assert_eq!(read.next_ids, state.next_ids);
        assert_eq!(read.overflow, state.overflow);
        let ids = 1 + 8 + 8..1 + 8 + 8 + 12;
        let mut before = [&now[..ids.start], &now[ids.end..]].concat();
        before[0] = OLDEST_VERSION;
        let read = EngineState::decode(&before).unwrap();
        assert_eq!(read.next_ids, NextIds::default());
        assert_eq!(
            (read.next_txn, read.overflow),
            (state.next_txn, state.overflow)
        );
        // So is one of 0.1.0 that was shut down cleanly; one with a transaction is refused.
        assert_eq!(before[0], OLDEST_VERSION);
        let active = 1 + 8 + 8;
        assert_eq!(before[active..active + 4], [0; 4]);
        before[active] = 1;
        for (version, word) in [(1, "XA RECOVER"), (STATE_VERSION + 1, "version 5")] {
            before[0] = version;
            match EngineState::decode(&before) {
                Err(Error::Format(text)) => assert!(text.contains(word), "{text}"),
                other => panic!("version {version}: {:?}", other.err()),
            }
        }
    }

    /// Who makes room on a full disk takes a checkpoint: a connection, deep inside a statement, on
    /// what is left of a stack of 292 KiB.
    #[test]
    fn a_checkpoint_fits_the_stack_of_a_connection() {
        let engine = open(&SimStorage::new(5));
        let t = create(&engine);
        let mut s = Session::new(&engine, 0, 1);
        for key in [b"k", b"l"] {
            let dup = &mut DupInfo::default();
            s.insert_row(&t, Some(key), b"\0", &[], false, dup).unwrap();
        }
        let same = engine.clone();
        std::thread::Builder::new()
            .stack_size(96 << 10)
            .spawn(move || same.checkpoint())
            .unwrap()
            .join()
            .unwrap()
            .unwrap();
        s.commit(false).unwrap();
        drop(s);
        engine.close().unwrap();
    }
}
