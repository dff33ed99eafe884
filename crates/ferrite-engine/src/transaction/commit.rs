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
//!
//! Every commit takes the same steps, [`Transaction::order`] and [`Transaction::finish_commit`]: in one
//! phase, in two, and of a prepared transaction whose session is gone (`decide`).
//!
//! Invariant: at each moment a value out of line that was let go of is known to a checkpoint from one
//! place at least: from its transaction's slot until it is in the purge queue, then from there. The
//! slot's list is exact at a log position like the undo list.
//!
//! Locking: the slot's mutex around each append.

use crate::log_records::ends::{commit_body, prepare_body, rollback_body};
use crate::log_records::values::{encode_values, AT_ONCE};
use crate::log_records::xid::Xid;
use crate::state::engine::Engine;
use crate::state::slot::Isolation;
use crate::state::transaction::{Phase, Transaction};
use crate::transaction::session::Session;
use ferrite_lock::{AtPrepare, Owner};
use ferrite_redo::CommitAck;
use ferrite_sync::atomic::Ordering;
use ferrite_sync::{kill_point, Arc, NoWait};
use ferrite_types::format::record_kind;
use ferrite_types::{Error, Lsn, Result};

impl Transaction {
    /// Stages `Logged` and `Visible`; returns where the commit record ends. It waits for nothing but
    /// space in the log's ring.
    pub(crate) fn order(&mut self, engine: &Engine) -> Lsn {
        if self.phase() == Phase::Active {
            self.log_values(engine);
        }
        if ferrite_sync::mutant!("commit.visible_before_logged") {
            self.publish(engine);
            return self.log_commit(engine);
        }
        let end = self.log_commit(engine);
        self.publish(engine);
        end
    }

    /// Stage `Visible`.
    fn publish(&mut self, engine: &Engine) {
        assert!(
            matches!(self.phase(), Phase::Ordered(_)),
            "{} would be visible before its record is in the log: {:?}",
            self.id(),
            self.phase()
        );
        engine.txns.commit(self.id());
        self.changed.committed(engine.now_s.load(Ordering::Relaxed));
        kill_point!("commit.visible");
    }

    /// Stage `Logged`.
    fn log_commit(&mut self, engine: &Engine) -> Lsn {
        let mut state = self.slot.state.lock();
        assert_eq!(state.txn, self.id(), "the slot is of another transaction");
        debug_assert!(
            state.garbage.len() >= self.garbage.values().count(),
            "{}: values that no record names",
            self.id()
        );
        debug_assert_eq!(state.is_prepared(), self.phase() == Phase::Prepared);
        let body = commit_body(state.txn, state.garbage.len());
        let at = engine.log.append(record_kind::COMMIT, &[&body]);
        assert!(
            self.last_change <= at.start && at.start < at.end,
            "{}: committed at {at:?}, changed at {}",
            self.id(),
            self.last_change
        );
        state.end_of_list(&engine.undo_area);
        drop(state);
        self.ordered(at.end);
        kill_point!("commit.logged");
        at.end
    }

    /// What is to be purged goes to the queue, locks go (stage `Unlocked`), and the transaction is
    /// ready for the next one. Returns how many pieces, and leaves, are to be purged.
    pub(crate) fn finish_commit(&mut self, engine: &Engine) -> usize {
        assert!(
            matches!(self.phase(), Phase::Ordered(_)),
            "{:?}",
            self.phase()
        );
        // Purge asks who sees this transaction: it must have an answer.
        debug_assert!(engine.txns.is_committed(self.id()), "{}", self.id());
        let left = self.garbage.len();
        if left > 0 {
            let (pieces, leaves) = self.garbage.take();
            engine.purge.add(self.id(), pieces);
            engine.purge.add_leaves(self.id(), leaves);
            debug_assert!(self.garbage.is_empty(), "purged twice");
        }
        // Only now the slot lets go of the values: a checkpoint looks there first.
        self.release(engine);
        left
    }

    /// Snapshot and locks go, and the transaction ends.
    pub(crate) fn release(&mut self, engine: &Engine) {
        self.snapshot = None;
        self.may_unlock(engine);
        engine.locks.release_all(&self.owner);
        self.owner.transaction_ended();
        self.end(engine);
        debug_assert!(!self.has_changes() && self.phase() == Phase::Idle);
    }

    /// Locks go only after everybody is told that the transaction has ended: who makes an implicit
    /// lock explicit relies on it.
    fn may_unlock(&self, engine: &Engine) {
        debug_assert!(
            !self.has_changes() || !engine.txns.is_active(self.id()),
            "the locks of {} go before it has ended",
            self.id()
        );
    }

    /// Logs the values out of line that it lets go of, and puts them into the slot. Nothing is locked
    /// for longer than one record takes. The log has kept room for them since they were let go of.
    fn log_values(&mut self, engine: &Engine) {
        let at_once = match ferrite_sync::mutant!("commit.values_unbounded") {
            true => usize::MAX,
            false => AT_ONCE,
        };
        let (mut part, mut body, mut logged) = (Vec::new(), Vec::new(), 0);
        loop {
            part.clear();
            part.extend(std::iter::from_fn(|| self.garbage.next_value(&mut logged)).take(at_once));
            if part.is_empty() {
                break;
            }
            body.clear();
            body.extend_from_slice(&rollback_body(self.id()));
            encode_values(&part, &mut body);
            let mut state = self.slot.state.lock();
            assert_eq!(state.txn, self.id(), "the slot is of another transaction");
            engine.log.append(record_kind::GARBAGE, &[&body]);
            state.garbage.extend_from_slice(&part);
            drop(state);
            kill_point!("commit.values_logged");
            // Nobody is refused for want of room for what has been written.
            self.owes_less(engine, (part.len() as u64).min(self.owed_values()));
        }
        self.owes_nothing(engine);
    }

    /// The PREPARE record is in the log buffer; returns where it ends.
    fn log_prepare(&mut self, engine: &Engine, xid: &Xid) -> Lsn {
        self.log_values(engine);
        let mut state = self.slot.state.lock();
        assert_eq!(state.txn, self.id(), "the slot is of another transaction");
        debug_assert_eq!(state.garbage.len(), self.garbage.values().count());
        let body = prepare_body(self.id(), xid, state.garbage.len());
        let at = engine.log.append(record_kind::PREPARE, &[&body]);
        assert!(
            self.last_change <= at.start && at.start < at.end,
            "{}: prepared at {at:?}, changed at {}",
            self.id(),
            self.last_change
        );
        state.count_prepared(&engine.prepared_on);
        state.prepare(xid.clone());
        debug_assert!(state.is_prepared() && state.xid() == Some(xid));
        drop(state);
        self.prepared();
        kill_point!("prepare.logged");
        engine.txns.prepare(self.id());
        at.end
    }
}

impl Session {
    /// One-phase commit. Visible on return; durable on return unless `allow_async` and the
    /// server took the wait over.
    ///
    /// # Errors
    /// `RolledBack` if the transaction had been rolled back: it is ended then, unless it was
    /// prepared and its rollback stopped half way.
    pub fn commit(&mut self, allow_async: bool) -> Result<()> {
        match self.txn.phase() {
            Phase::RollingBack => return Err(Error::RolledBack),
            Phase::Aborted => {
                self.release_and_reset();
                return Err(Error::RolledBack);
            }
            Phase::Idle => self.release_and_reset(),
            Phase::Active | Phase::Prepared => {
                let end = self.txn.order(&self.engine);
                self.finish_commit();
                self.make_durable(end, allow_async);
            }
            Phase::Ordered(end) => {
                self.make_durable(end, allow_async);
                self.finish_commit();
            }
        }
        Ok(())
    }

    fn finish_commit(&mut self) {
        let left = self.txn.finish_commit(&self.engine);
        debug_assert!(!self.txn.is_active(), "something is left of a commit");
        self.forget_statement();
        self.engine.committed(left, &mut self.buffers.scratch);
    }

    /// Stage `Durable`.
    pub(super) fn make_durable(&mut self, end: Lsn, allow_async: bool) {
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
                    CommitAck::Done => debug_assert!(
                        engine.log.durable_lsn() >= end,
                        "a commit to {end} is answered, durable is {}",
                        engine.log.durable_lsn()
                    ),
                    CommitAck::Deferred => {}
                }
                kill_point!("commit.durable");
            }
            2 => engine.log.write_to(end),
            _ => {}
        }
    }

    /// Locks and snapshot go, the session is ready for the next transaction.
    pub(crate) fn release_and_reset(&mut self) {
        self.txn.release(&self.engine);
        self.forget_statement();
    }

    // ---- two phases ----------------------------------------------------------------------

    /// First phase: durable on return; the transaction can still be committed or rolled back.
    ///
    /// # Errors
    /// `RolledBack` after a deadlock.
    pub fn prepare(&mut self, xid: &Xid) -> Result<()> {
        match self.txn.phase() {
            Phase::Aborted | Phase::RollingBack => return Err(Error::RolledBack),
            Phase::Idle => return Ok(()),
            Phase::Prepared | Phase::Ordered(_) => {
                return Err(Error::Bug("a transaction is prepared a second time".into()))
            }
            Phase::Active => {}
        }
        let end = self.txn.log_prepare(&self.engine, xid);
        match self.engine.flush_mode.load(Ordering::Relaxed) {
            1 if ferrite_sync::mutant!("prepare.not_durable") => {}
            1 => self.engine.log.flush_to(end),
            2 => self.engine.log.write_to(end),
            _ => {}
        }
        kill_point!("prepare.durable");
        debug_assert_eq!(self.txn.phase(), Phase::Prepared);
        debug_assert!(
            self.engine.flush_mode.load(Ordering::Relaxed) != 1
                || self.engine.log.durable_lsn() >= end,
            "prepared and not on disk"
        );
        Ok(())
    }

    /// The prepared transaction may wait long for its decision, and reads nothing any more: locks
    /// that guard reads only go. Not for a two-phase commit that the server makes on its own, as
    /// with the binary log: others may change what was read as soon as these locks are gone, and
    /// must stand in the binary log after this transaction. Not at SERIALIZABLE either, where the
    /// order of commits is that of the locks.
    ///
    /// Of a transaction that has changed nothing all locks go: whatever it would commit elsewhere, it
    /// asks for no more of them. Its snapshot goes at each level.
    pub fn release_reads(&mut self) {
        let has_only_read = self.txn.phase() == Phase::Idle;
        if has_only_read {
            debug_assert!(!self.txn.has_changes());
            self.txn.snapshot = None;
        }
        if self.isolation == Isolation::Serializable {
            return;
        }
        match has_only_read {
            true => self.release_and_reset(),
            false => self.release_locks(AtPrepare::Reads),
        }
    }

    /// As [`Session::release_reads`], of a replica's worker: all explicit locks go. See [`AtPrepare`].
    pub fn release_all_but_changes(&mut self) {
        if self.txn.phase() == Phase::Idle {
            self.release_and_reset();
        }
        self.release_locks(AtPrepare::AllButChanges);
    }

    fn release_locks(&mut self, goes: AtPrepare) {
        debug_assert!(self.txn.phase() != Phase::Active, "its reads are not over");
        if self.txn.phase() == Phase::Prepared {
            self.engine.locks.release_at_prepare(&self.txn.owner, goes);
        }
    }

    /// Second phase in memory: never fails, and waits for nothing but space in the log's ring (the
    /// server holds the mutex that orders all commits). Call order is log order. False: nothing was
    /// changed, or the transaction can only be rolled back; [`Session::commit_finish`] says which.
    pub fn commit_ordered(&mut self) -> bool {
        if !matches!(self.txn.phase(), Phase::Active | Phase::Prepared) {
            return false;
        }
        let _promise = NoWait::begin("a commit in order");
        self.txn.order(&self.engine);
        self.txn.snapshot = None;
        // What the transaction leaves may be much: others need not wait in the order of commits
        // until it is in the purge queue.
        self.txn.may_unlock(&self.engine);
        self.engine.locks.release_all(&self.txn.owner);
        debug_assert!(matches!(self.txn.phase(), Phase::Ordered(_)));
        true
    }

    /// Frees what is left after [`Session::commit_ordered`], or commits in one phase if that
    /// was not called.
    ///
    /// # Errors
    /// As [`Session::commit`].
    pub fn commit_finish(&mut self, wait_durable: bool) -> Result<()> {
        let Phase::Ordered(end) = self.txn.phase() else {
            return self.commit(false);
        };
        if wait_durable {
            self.make_durable(end, false);
        }
        self.finish_commit();
        Ok(())
    }

    /// The prepared transaction leaves the session and waits for its xid to be decided.
    pub fn detach_prepared(&mut self) {
        // The connection may end before the transaction does.
        if let Some(owner) = self.detach() {
            owner.forget_thd();
        }
    }

    /// As [`Session::detach_prepared`], of a replica's worker: until the session ends, whoever waits for
    /// the transaction can still name its connection, for the server rolls back a worker that has come
    /// too early.
    pub fn detach_prepared_of_worker(&mut self) {
        debug_assert!(self.left_behind.is_none(), "it prepares twice");
        self.left_behind = self.detach();
    }

    /// Its owner, if there is one to detach.
    fn detach(&mut self) -> Option<Arc<Owner>> {
        if self.txn.phase() != Phase::Prepared {
            return None;
        }
        // The session goes on with an owner and a slot of its own.
        let owner = Owner::new(self.thread_id, self.thd);
        let next = Transaction::new(&self.engine, owner);
        let mut prepared = std::mem::replace(&mut self.txn, next);
        // It reads no more, and may wait for days.
        prepared.snapshot = None;
        debug_assert!(!prepared.id().is_frozen() && !self.txn.has_changes());
        let left = prepared.owner.clone();
        self.engine.adopt_prepared(prepared);
        self.forget_statement();
        Some(left)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rows::write::DupInfo;
    use crate::state::purge_work::Garbage;
    use crate::testing::{config, create, open, open_with};
    use crate::Config;
    use ferrite_io::sim::SimStorage;
    use ferrite_sync::thread;
    use ferrite_types::OverflowRef;

    /// Between the commit record and the purge queue a checkpoint finds the values still: the
    /// record may lie before the place where the next start begins to read.
    #[test]
    fn a_checkpoint_sees_values_at_each_moment_of_a_commit() {
        let engine = open(&SimStorage::new(1));
        engine.set("purge_paused", 1).unwrap();
        let t = create(&engine);
        let mut s = Session::new(&engine, 0, 1);
        let value = s.write_overflow(&t, &[7; 2000]).unwrap();
        let payload = [&[1u8][..], value.bytes()].concat();
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
        s.txn.log_values(&engine);
        s.txn.log_commit(&engine);
        known("logged");
        s.txn.publish(&engine);
        known("visible");
        s.finish_commit();
        known("in the queue");
        drop(s);
        engine.close().unwrap();
    }

    /// A transaction that lets go of values out of line is refused before the log has no room to tell of them all at once,
    /// at its commit or while it is prepared.
    #[test]
    fn values_that_are_let_go_of_have_room_in_the_log() {
        for prepares in [false, true] {
            let disk = SimStorage::new(2);
            let engine = open_with(
                &disk,
                Config {
                    log_budget_bytes: 64 << 20,
                    ..config()
                },
            );
            engine.set("purge_paused", 1).unwrap();
            let t = create(&engine);
            let mut s = Session::new(&engine, 0, 1);
            s.insert_row(&t, Some(b"k"), b"\0", &[], false, &mut DupInfo::default())
                .unwrap();
            disk.set_capacity(Some(disk.used_bytes()));
            let at = s.undo_position();
            let mut left = 0;
            // Ten times what the log's files have room for.
            while left < 1_500_000 && engine.log.admission().is_ok() {
                let value = Garbage::overflow_of(&t, OverflowRef::from_bytes([5; 16]));
                s.txn.leave_value(&engine, at, value);
                left += 1;
            }
            assert!(left > 10_000, "{left} values");
            let xid = Xid {
                format_id: 1,
                gtrid_len: 1,
                data: b"x".to_vec(),
            };
            let worker = thread::spawn("end", move || match prepares {
                false => s.commit(false),
                true => s.prepare(&xid).map(|()| s.abandon()),
            });
            for _ in 0..6000 {
                if worker.is_finished() {
                    break;
                }
                thread::sleep_ms(10);
            }
            assert!(worker.is_finished(), "no room for {left} values");
            worker.join().unwrap().unwrap();
            assert_eq!(engine.log.stats().waits_disk_full, 0);
            engine.abandon();
        }
    }

    /// What is undone has no need of it.
    #[test]
    fn values_that_are_not_let_go_of_need_no_room_in_the_log() {
        let engine = open(&SimStorage::new(3));
        let t = create(&engine);
        let mut s = Session::new(&engine, 0, 1);
        let value = || Garbage::overflow_of(&t, OverflowRef::from_bytes([5; 16]));
        let insert = |s: &mut Session, key: &[u8]| {
            let dup = &mut DupInfo::default();
            s.insert_row(&t, Some(key), b"\0", &[], false, dup).unwrap();
        };
        let promised = || engine.log.promised();
        insert(&mut s, b"a");
        let at = s.undo_position();
        s.txn.leave_value(&engine, at, value());
        let (savepoint, one) = (s.savepoint().unwrap(), promised());
        insert(&mut s, b"b");
        let at = s.undo_position();
        (0..9).for_each(|_| s.txn.leave_value(&engine, at, value()));
        assert_eq!(promised(), 10 * one);
        s.rollback_to(savepoint).unwrap();
        assert_eq!(promised(), one);
        s.rollback().unwrap();
        assert!(one > 0 && promised() == 0);
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
        engine.free_pending(&slot);
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
