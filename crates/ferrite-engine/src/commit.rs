//! The commit path.
//!
//! | stage | what happens | what is on disk if we die here |
//! | --- | --- | --- |
//! | `Logged` | the commit record is in the log buffer | maybe nothing: not acknowledged, undone |
//! | `Visible` | commit number published: new snapshots see it | as above |
//! | `Unlocked` | locks go (early lock release) | as above |
//! | `Durable` | the record is on disk, or its wait is handed to the log's flusher | all of it |
//! | `Acknowledged` | the caller answers its client | all of it |
//!
//! Whoever read what is visible but not durable commits later in the log, so its own
//! acknowledgement implies ours is durable.

use crate::purge_queue::Garbage;
use crate::session::Session;
use crate::slot::{Isolation, Xid};
use crate::values::commit_body;
use ferrite_redo::CommitAck;
use ferrite_sync::atomic::Ordering;
use ferrite_sync::{kill_point, NoWait};
use ferrite_types::format::record_kind;
use ferrite_types::{Error, Lsn, Result, TxnId};

impl Session {
    /// One-phase commit. Visible on return; durable on return unless `allow_async` and the
    /// server took the wait over.
    ///
    /// # Errors
    /// `RolledBack` if the transaction had been rolled back: it is ended then, unless it was
    /// prepared and its rollback stopped half way.
    pub fn commit(&mut self, allow_async: bool) -> Result<()> {
        if self.rolled_back {
            self.release_and_reset();
            return Err(Error::RolledBack);
        }
        if self.is_half_rolled_back() {
            return Err(Error::RolledBack);
        }
        if self.txn.is_frozen() {
            self.release_and_reset();
            return Ok(());
        }
        let end = self.log_and_publish();
        self.leave_garbage();
        self.make_durable(end, allow_async);
        Ok(())
    }

    /// Stages `Logged` and `Visible`, in this order.
    fn log_and_publish(&mut self) -> Lsn {
        if ferrite_sync::mutant!("commit.visible_before_logged") {
            self.make_visible();
            return self.log_commit();
        }
        let end = self.log_commit();
        self.make_visible();
        end
    }

    /// Stage `Logged`.
    fn log_commit(&mut self) -> Lsn {
        if !self.prepared {
            self.log_values();
        }
        let mut state = self.slot.state.lock();
        let body = commit_body(self.txn, state.garbage.len());
        let at = self.engine.log.append(record_kind::COMMIT, &[&body]);
        state.end_of_list(&self.engine.undo_area);
        drop(state);
        kill_point!("commit.logged");
        at.end
    }

    /// Stage `Visible`.
    fn make_visible(&mut self) {
        self.engine.txns.commit(self.txn);
        self.changed.committed(&self.engine);
        kill_point!("commit.visible");
    }

    /// What is to be purged goes to the queue, locks go (stage `Unlocked`), and the session is
    /// ready for its next transaction.
    fn leave_garbage(&mut self) {
        let txn = self.txn;
        if !self.garbage.is_empty() {
            let garbage = self.garbage.drain(..).map(|(_, g)| g).collect();
            self.engine.purge.add(txn, garbage);
        }
        // Only now the slot lets go of the values: a checkpoint looks there first.
        self.release_and_reset();
        self.engine.counters.commits.inc();
        if self.engine.purge.in_debt() {
            self.engine.pay_debt(&mut self.buffers.scratch);
        }
    }

    /// Stage `Durable`.
    fn make_durable(&mut self, end: Lsn, allow_async: bool) {
        let engine = &self.engine;
        match engine.flush_mode.load(Ordering::Relaxed) {
            1 => {
                let company =
                    || engine.log.pending_acks() > 0 || engine.txns.is_any_recent_active();
                let mut token = || {
                    if allow_async {
                        engine.callbacks.async_begin(self.thd)
                    } else {
                        None
                    }
                };
                match engine.log.commit(end, &company, &mut token) {
                    CommitAck::Done | CommitAck::Deferred => {}
                }
                kill_point!("commit.durable");
            }
            2 => engine.log.write_to(end),
            _ => {}
        }
    }

    /// Locks and snapshot go, the session is ready for the next transaction.
    pub(crate) fn release_and_reset(&mut self) {
        self.snapshot = None;
        self.engine.locks.release_all(&self.owner);
        self.reset();
    }

    // ---- two phases ----------------------------------------------------------------------

    /// First phase: durable on return; the transaction can still be committed or rolled back.
    ///
    /// # Errors
    /// `RolledBack` after a deadlock.
    pub fn prepare(&mut self, xid: &Xid) -> Result<()> {
        if self.rolled_back {
            return Err(Error::RolledBack);
        }
        if self.txn.is_frozen() {
            return Ok(());
        }
        let mut body = Vec::with_capacity(24 + xid.data.len());
        body.extend_from_slice(&self.txn.0.to_le_bytes()[..6]);
        encode_xid(xid, &mut body);
        self.log_values();
        let mut state = self.slot.state.lock();
        body.extend_from_slice(&(state.garbage.len() as u32).to_le_bytes());
        let at = self.engine.log.append(record_kind::PREPARE, &[&body]);
        state.xid = Some(xid.clone());
        state.prepared = true;
        drop(state);
        self.prepared = true;
        kill_point!("prepare.logged");
        self.engine.txns.prepare(self.txn);
        match self.engine.flush_mode.load(Ordering::Relaxed) {
            1 if ferrite_sync::mutant!("prepare.not_durable") => {}
            1 => self.engine.log.flush_to(at.end),
            2 => self.engine.log.write_to(at.end),
            _ => {}
        }
        kill_point!("prepare.durable");
        Ok(())
    }

    /// The prepared transaction may wait long for its decision, and reads nothing any more: locks
    /// that guard reads only go. Not for a two-phase commit that the server makes on its own, as
    /// with the binary log: others may change what was read as soon as these locks are gone, and
    /// must stand in the binary log after this transaction. Not at SERIALIZABLE either, where the
    /// order of commits is that of the locks.
    pub fn release_reads(&mut self) {
        let decided = self.commit_end.is_some() || self.txn.is_frozen();
        if self.prepared && !decided && self.isolation != Isolation::Serializable {
            self.engine.locks.release_at_prepare(&self.owner);
        }
    }

    /// Second phase in memory: never fails, and waits for nothing but space in the log's ring (the
    /// server holds the mutex that orders all commits). Call order is log order.
    pub fn commit_ordered(&mut self) {
        if self.txn.is_frozen() || self.rolled_back || self.commit_end.is_some() {
            return;
        }
        if self.is_half_rolled_back() {
            return;
        }
        let _promise = NoWait::begin("a commit in order");
        let end = self.log_and_publish();
        self.snapshot = None;
        self.engine.locks.release_all(&self.owner);
        // What the transaction leaves may be much: others need not wait in the order of commits
        // until it is in the purge queue.
        self.commit_end = Some(end);
    }

    /// Frees what is left after [`Session::commit_ordered`], or commits in one phase if that
    /// was not called.
    ///
    /// # Errors
    /// As [`Session::commit`].
    pub fn commit_finish(&mut self, wait_durable: bool) -> Result<()> {
        let Some(end) = self.commit_end.take() else {
            return self.commit(false);
        };
        if wait_durable {
            self.make_durable(end, false);
        }
        self.leave_garbage();
        Ok(())
    }

    /// A prepared transaction whose rollback has begun, and failed: it can only be rolled back.
    pub(crate) fn is_half_rolled_back(&self) -> bool {
        let undecided = self.prepared && self.commit_end.is_none() && !self.txn.is_frozen();
        undecided && self.slot.state.lock().xid.is_none()
    }

    /// The prepared transaction leaves the session and waits for its xid to be decided.
    pub fn detach_prepared(&mut self) {
        if !self.prepared || self.is_half_rolled_back() {
            return;
        }
        let garbage = std::mem::take(&mut self.garbage);
        self.engine.adopt_prepared(self.slot.clone(), garbage);
        // The connection may end before the transaction does.
        self.owner.forget_thd();
        // The session goes on with an owner and a slot of its own.
        let owner = ferrite_lock::Owner::new(self.thread_id, self.thd);
        let slot = ferrite_sync::Arc::new(crate::slot::TxnSlot::new(owner.clone()));
        self.engine.register_slot(&slot);
        self.owner = owner;
        self.slot = slot;
        self.txn = TxnId::FROZEN;
        self.reset();
    }
}

/// Appends an xid: format id i64, gtrid length u32, data length u32, data.
pub(crate) fn encode_xid(xid: &Xid, out: &mut Vec<u8>) {
    out.extend_from_slice(&xid.format_id.to_le_bytes());
    out.extend_from_slice(&xid.gtrid_len.to_le_bytes());
    out.extend_from_slice(&(xid.data.len() as u32).to_le_bytes());
    out.extend_from_slice(&xid.data);
}

/// Reads what [`encode_xid`] wrote; returns it and the bytes used.
pub(crate) fn decode_xid(bytes: &[u8]) -> Result<(Xid, usize)> {
    let fault = || Error::Corrupt("log: an xid cannot be read".into());
    let head = bytes.get(..16).ok_or_else(fault)?;
    let len = u32::from_le_bytes([head[12], head[13], head[14], head[15]]) as usize;
    let mut format = [0; 8];
    format.copy_from_slice(&head[..8]);
    let data = bytes.get(16..16 + len).ok_or_else(fault)?.to_vec();
    let xid = Xid {
        format_id: i64::from_le_bytes(format),
        gtrid_len: u32::from_le_bytes([head[8], head[9], head[10], head[11]]),
        data,
    };
    Ok((xid, 16 + len))
}

/// Ends a transaction that has no session: recovered, or detached after prepare.
pub(crate) fn commit_detached(
    engine: &crate::engine::Engine,
    slot: &crate::slot::TxnSlot,
    garbage: Vec<(u64, Garbage)>,
) {
    let txn = slot.state.lock().txn;
    let touched = slot.touched_indexes();
    let mut state = slot.state.lock();
    let body = commit_body(txn, state.garbage.len());
    let at = engine.log.append(record_kind::COMMIT, &[&body]);
    state.end_of_list(&engine.undo_area);
    drop(state);
    engine.txns.commit(txn);
    engine.note_detached_commit(&touched);
    let pieces: Vec<Garbage> = garbage.into_iter().map(|(_, g)| g).collect();
    if !pieces.is_empty() {
        engine.purge.add(txn, pieces);
    }
    // From here the purge queue tells a checkpoint of the values.
    slot.state.lock().end(&engine.undo_area);
    engine.locks.release_all(&slot.owner);
    engine.log.flush_to(at.end);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{create, open};
    use crate::write::DupInfo;
    use ferrite_io::sim::SimStorage;

    /// Between the commit record and the purge queue a checkpoint finds the values still: the
    /// record may lie before the place where the next start begins to read.
    #[test]
    fn a_checkpoint_sees_values_at_each_moment_of_a_commit() {
        let engine = open(&SimStorage::new(1));
        engine.set("purge_paused", 1).unwrap();
        let t = create(&engine);
        let mut s = Session::new(&engine, 0, 1);
        let value = s.write_overflow(&t, &[7; 2000]).unwrap();
        let payload = [&[1u8][..], &value[..]].concat();
        let dup = &mut DupInfo::default();
        s.insert_row(&t, Some(b"k"), &payload, &[], false, dup)
            .unwrap();
        s.commit(false).unwrap();
        s.delete_row(&t, b"k", &[]).unwrap();
        let known = |what: &str| {
            let state = engine.copy_state();
            let named = state.overflow.iter().any(|(_, r)| *r == value);
            assert!(named, "{what}: lost");
            assert!(state.active.is_empty(), "{what}: still active");
        };
        s.log_commit();
        known("logged");
        s.make_visible();
        known("visible");
        s.leave_garbage();
        known("in the queue");
        drop(s);
        engine.close().unwrap();
    }

    /// What a commit of an earlier life let go of is freed after the start, beside the checkpointer:
    /// whatever checkpoint is taken meanwhile names what is not free yet.
    #[test]
    fn a_checkpoint_after_recovery_sees_values_to_be_freed() {
        let engine = open(&SimStorage::new(1));
        let t = create(&engine);
        let mut s = Session::new(&engine, 0, 1);
        let values = [7, 8].map(|byte| s.write_overflow(&t, &[byte; 2000]).unwrap());
        s.insert_row(&t, Some(b"k"), b"\0", &[], false, &mut DupInfo::default())
            .unwrap();
        s.commit(false).unwrap();
        engine.set("purge_paused", 1).unwrap();
        let index = t.tree(0).index();
        let slot = engine.hold_pending(values.map(|v| (index, v)).to_vec());
        let named = || {
            let mut named = engine.copy_state().overflow;
            named.sort_unstable();
            named
        };
        let both = values.map(|v| (index, v));
        assert_eq!(named(), both, "both are to be freed");
        engine.free_pending(&slot).unwrap();
        assert_eq!(named(), both, "nobody has freed them yet");
        engine.set("purge_paused", 0).unwrap();
        while !named().is_empty() {
            ferrite_sync::thread::sleep_ms(1);
        }
        assert_eq!(engine.check_values().unwrap().pages, 0);
        drop(s);
        engine.close().unwrap();
    }
}
