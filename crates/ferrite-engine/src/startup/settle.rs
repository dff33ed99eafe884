//! Transactions of before a crash whose rows are settled while the database is open: those beyond the smallest, of
//! which as many are settled before anybody comes as have `Config::background_undo_bytes` of undo in all. What had not
//! prepared is rolled back, and so is what the server has decided to roll back while it started
//! (`transaction::decide_at_start`). What had prepared waits for its decision, and the versions of its rows are made again.
//!
//! Of one that is left the rows stay locked by its id, as they were; writers wait for it as for any other holder.
//! Versions of its rows died with the process; a reader who needs an earlier state finds it in the
//! undo list, which is read for that first (`known_undo`), or waits until all of it is settled (of one that is rolled
//! back: the row) if that is too large. A stop in the middle is harmless: each step of a rollback is logged, and the next
//! start goes on; versions that life makes from the beginning, this one each once (`made_again`). One that cannot be settled (a damaged page) stays as it
//! is, and who waits for it gets the reason. So does a transaction of this life whose connection goes, or whose name the server
//! forgets, and whose rollback fails. From time to time they are tried again: the fault may have been a passing one, or the table dropped.
//!
//! Locking: none of its own.

use crate::state::callbacks::LogLevel;
use crate::state::engine::Engine;
use crate::state::garbage::GarbageList;
use crate::state::known_undo::KnownUndo;
use crate::state::slot::TxnSlot;
use crate::state::transaction::{Phase, Transaction};
use crate::state::unsettled::{Awaited, Claim};
use crate::transaction::restore_versions::NoRoom;
use crate::transaction::rollback::Undoes;
use crate::transaction::session::Session;
use ferrite_sync::atomic::Ordering;
use ferrite_sync::waits::Sliced;
use ferrite_sync::{kill_point, thread, time, Arc};
use ferrite_types::{Error, Result, TxnId, UndoPosition};
use std::rc::Rc;

/// Between two looks of a waiting reader, in ms.
const LOOK_MS: u64 = 2;
/// After so long without a turn the thread that tries again waits for one.
const RETRY_LATE_US: u64 = 1_000_000;
/// Transactions of less undo are rolled back without a word: there may be many.
const TOLD_BYTES: u64 = 1 << 20;
/// Undo that is kept in memory for readers: at most one part in so many of the buffer pool's size ...
const KNOWN_PART: u64 = 4;
/// ... and so many bytes, since nobody is served while it is read.
const KNOWN_MOST_BYTES: u64 = 1 << 30;

impl Engine {
    /// Rolls one back and ends it. `has_versions`: all that it needs are there.
    ///
    /// # Errors
    /// `Interrupted` by a stop; a page that cannot be read. It can be rolled back again.
    pub(crate) fn roll_back_loser(&self, slot: &Arc<TxnSlot>, has_versions: bool) -> Result<()> {
        let mut loser = Transaction::recovered(slot.clone(), GarbageList::default());
        assert_eq!(
            loser.phase(),
            Phase::Active,
            "a prepared transaction is rolled back"
        );
        let end = loser.roll_back(self, Undoes::of_before(has_versions))?;
        debug_assert_eq!(
            slot.state.lock().undo.position(),
            UndoPosition::START,
            "changes are left"
        );
        self.log.request_flush(end);
        Ok(())
    }

    /// Reads what they had changed, so that readers need not wait until they are settled.
    pub(crate) fn learn_undo(&self) {
        let most = (self.pool.size_bytes() / KNOWN_PART).min(KNOWN_MOST_BYTES);
        let mut left = most.saturating_sub(self.unsettled.known_bytes() as u64);
        for (txn, slot) in self.unsettled.unknown() {
            let (bytes, list) = {
                let state = slot.state.lock();
                // A prepared one may be decided meanwhile.
                if state.txn != txn || state.undo.position() == UndoPosition::START {
                    continue;
                }
                (state.undo.position().0, state.undo.backwards())
            };
            // With the places of its entries, 16 bytes for one of 12 or more.
            if bytes + bytes * 4 / 3 > left || self.stop.load(Ordering::SeqCst) {
                return;
            }
            let (known, fault) = KnownUndo::read(list, &self.undo_area);
            // What cannot be read now is not known: the rollback will say so.
            if fault.is_none() {
                left = left.saturating_sub(known.memory_bytes() as u64);
                self.unsettled.learn(txn, known);
                kill_point!("rollback.undo_known");
            }
        }
    }

    /// Starts the thread that settles what is left to be settled, unless one is at it.
    pub(crate) fn wake_rollback(self: &Arc<Self>) {
        if self.config.manual_background {
            return;
        }
        // Who ends the threads says so first.
        let mut threads = self.threads.lock();
        if self.stop.load(Ordering::SeqCst) || !self.unsettled.needs_thread() {
            return;
        }
        let engine = self.clone();
        threads.retain(|thread| !thread.is_finished());
        match thread::try_spawn("ferrite-undo", move || engine.run_rollback()) {
            Some(started) => threads.push(started),
            // The next look tries again.
            None => self.unsettled.no_thread(),
        }
    }

    /// Called again and again: what was given up long enough ago, rollbacks and versions, is tried again.
    pub(crate) fn retry_given_up(self: &Arc<Self>, tried_us: &mut u64) {
        let now_us = time::now_us();
        let due_us = tried_us.saturating_add(self.config.retry_rollback_ms.saturating_mul(1000));
        if self.unsettled.count() == 0 || now_us < due_us {
            return;
        }
        // Who calls has other things to do than to wait, and comes again soon: it waits if that was in vain.
        let is_late = now_us - due_us > RETRY_LATE_US;
        if self.unsettled.retry(is_late) {
            *tried_us = now_us;
            self.wake_rollback();
        }
    }

    /// Body of the thread that settles them.
    fn run_rollback(&self) {
        self.learn_undo();
        while let Some((txn, slot)) = self.unsettled.next() {
            let is_prepared = {
                let state = slot.state.lock();
                (state.txn == txn).then(|| state.is_prepared())
            };
            let result = match is_prepared {
                Some(true) => self.settle_prepared(txn, &slot, 0).map(drop),
                Some(false) => self.settle_loser(txn, &slot),
                // It was committed a moment ago, by the start.
                None => Ok(()),
            };
            if result == Err(Error::Interrupted) {
                return;
            }
        }
    }

    fn settle_loser(&self, txn: TxnId, slot: &Arc<TxnSlot>) -> Result<()> {
        let result = ferrite_buffer::patiently(|| self.settle_loser_now(txn, slot));
        result.map_err(|e| self.give_up(txn, "cannot be rolled back", e))
    }

    /// Who calls has claimed it.
    ///
    /// # Errors
    /// As [`Engine::roll_back_loser`].
    fn settle_loser_now(&self, txn: TxnId, slot: &Arc<TxnSlot>) -> Result<()> {
        let since_us = time::now_us();
        let undo = slot.state.lock().undo.position();
        let was_told = self.unsettled.was_told(txn);
        self.roll_back_loser(slot, !self.unsettled.lacks_versions(txn))?;
        assert!(slot.state.lock().txn.is_frozen(), "{txn} has not ended");
        self.forget_slot(slot);
        kill_point!("rollback.settled");
        self.unsettled.done(txn);
        if was_told || undo.0 >= TOLD_BYTES {
            self.tell_of_settled(txn, "was rolled back", undo, since_us);
        }
        Ok(())
    }

    /// Rolls back one that the start has decided to roll back, and that nobody has claimed. What cannot be done now is
    /// left to the thread.
    pub(crate) fn roll_back_at_once(&self, txn: TxnId, slot: &Arc<TxnSlot>) {
        if self.unsettled.claim(txn) != Claim::Mine {
            return;
        }
        match had_room(self.settle_loser_now(txn, slot)) {
            Ok(true) => debug_assert!(slot.state.lock().txn.is_frozen(), "{txn} has not ended"),
            Ok(false) => self.unsettled.put_back(txn),
            Err(e) => drop(self.give_up(txn, "cannot be rolled back", e)),
        }
    }

    /// Makes the versions of a prepared one again. It stays, and may be decided then. False: the start has decided it
    /// meanwhile, or a rollback waits for it, and what was made is of no use; or it waited for room while others are to
    /// be rolled back, for the first time or again, or connection `thd` was killed (0: there is none), and it is put back.
    ///
    /// # Errors
    /// Why they cannot be made: until they can, it can only be rolled back. `Interrupted` by a stop.
    pub(crate) fn settle_prepared(
        &self,
        txn: TxnId,
        slot: &Arc<TxnSlot>,
        thd: usize,
    ) -> Result<bool> {
        let since_us = time::now_us();
        let undo = slot.state.lock().undo.position();
        let was_told = self.unsettled.was_told(txn);
        let has_had_enough = self.who_waits_no_more(txn, slot, thd);
        let result = ferrite_buffer::patiently_unless(has_had_enough, || {
            self.restore_versions(txn, slot, NoRoom::Waits { thd })
        });
        if result == Err(Error::Interrupted) && slot.state.lock().is_prepared_as(txn) {
            if self.unsettled.leave(txn) {
                return Ok(false);
            }
            // Whoever still waits for it finds it claimed by nobody.
            self.unsettled.put_back(txn);
            let ends = self.stop.load(Ordering::SeqCst) || self.callbacks.is_shutting_down();
            return match ends {
                true => Err(Error::Interrupted),
                false => Ok(false),
            };
        }
        kill_point!("rollback.settled");
        if !self.unsettled.end_of_versions(txn, &result) {
            return Ok(false);
        }
        match result {
            Ok(()) => {
                let what = "is prepared and has its versions again";
                if was_told || undo.0 >= TOLD_BYTES {
                    self.tell_of_settled(txn, what, undo, since_us);
                }
                Ok(true)
            }
            Err(e) => {
                let what = "cannot get its versions again, and cannot be committed until it can";
                self.tell_of_given_up(txn, what, &e);
                Err(e)
            }
        }
    }

    /// Ends a wait for a frame while versions are made: KILL of who asked for them, or a decision that does not need them.
    fn who_waits_no_more(
        &self,
        txn: TxnId,
        slot: &Arc<TxnSlot>,
        thd: usize,
    ) -> Rc<dyn Fn() -> bool> {
        let (callbacks, slot) = (self.callbacks.clone(), slot.clone());
        let unsettled = self.unsettled.clone();
        Rc::new(move || {
            let is_killed = thd != 0 && callbacks.is_killed(thd);
            is_killed
                || unsettled.awaited(txn) == Awaited::Rollback
                || !slot.state.lock().is_prepared_as(txn)
        })
    }

    /// Readers find what is in the pages from here on.
    fn tell_of_settled(&self, txn: TxnId, what: &str, undo: UndoPosition, since_us: u64) {
        let ms = (time::now_us() - since_us) / 1000;
        let origin = self.origin(txn);
        let text = format!("transaction {txn} {origin} {what}: {undo} bytes of undo in {ms} ms");
        self.callbacks.log(LogLevel::Note, &text);
    }

    fn origin(&self, txn: TxnId) -> &'static str {
        match txn < self.first_txn {
            true => "from before the restart",
            false => "of a connection that has left it",
        }
    }

    /// It stays as it is until it is tried again, unless a stop was in the way. Returns the reason.
    fn give_up(&self, txn: TxnId, what: &str, reason: Error) -> Error {
        if reason != Error::Interrupted {
            self.unsettled.fail(txn, &reason, true);
            self.tell_of_given_up(txn, what, &reason);
        }
        reason
    }

    fn tell_of_given_up(&self, txn: TxnId, what: &str, reason: &Error) {
        debug_assert!(*reason != Error::Interrupted, "{txn} goes on later");
        // It is tried again and again.
        if !self.unsettled.is_news(txn, reason) {
            return;
        }
        let origin = self.origin(txn);
        let text = format!(
            "transaction {txn} {origin} {what}; its rows stay locked: {reason}. It is tried again from time to time"
        );
        self.callbacks.log(LogLevel::Error, &text);
    }
}

impl Session {
    /// A row of that transaction is not settled yet: look again in a moment.
    ///
    /// # Errors
    /// `Interrupted` by KILL; the reason why that was given up.
    pub(crate) fn wait_for_rollback(&self, txn: TxnId, wait: &mut Sliced) -> Result<()> {
        debug_assert!(!txn.is_frozen(), "a row of nobody's");
        match self.engine.unsettled.failed(txn) {
            Some(reason) => Err(reason),
            None => self.look_again(wait),
        }
    }

    /// # Errors
    /// `Interrupted` by KILL.
    pub(crate) fn look_again(&self, wait: &mut Sliced) -> Result<()> {
        self.engine.unsettled.waits.inc();
        wait.slice(|| thread::sleep_ms(LOOK_MS));
        if self.engine.callbacks.is_killed(self.thd) {
            return Err(Error::Interrupted);
        }
        Ok(())
    }
}

/// False: the disk was full, or no page in memory could be written so that there was no frame. What was
/// begun goes on when that is over.
pub(super) fn had_room(result: Result<()>) -> Result<bool> {
    match result {
        Ok(()) => Ok(true),
        Err(e) if ferrite_buffer::is_for_want_of_a_frame(&e) => Ok(false),
        Err(Error::DiskFull(_)) => Ok(false),
        Err(e) => Err(e),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rows::write::{DupInfo, RowChange};
    use crate::testing::{config, create, open, open_with};
    use crate::{Config, Cursor, ReadMode, WaitMode};
    use ferrite_io::sim::SimStorage;
    use ferrite_lock::Owner;

    /// Whoever makes versions and waits for a frame hears that nobody needs them any more.
    #[test]
    fn who_makes_versions_hears_a_decision_that_needs_none() {
        let engine = open(&SimStorage::new(1));
        let (txn, slot) = (TxnId(5), Arc::new(TxnSlot::new(Owner::new(0, 0))));
        slot.state.lock().begin(txn);
        slot.state.lock().prepare(crate::Xid {
            format_id: 1,
            gtrid_len: 1,
            data: b"x"[..].into(),
        });
        engine.unsettled.add(slot.clone());
        assert_eq!(engine.unsettled.next().map(|next| next.0), Some(txn));
        let has_had_enough = engine.who_waits_no_more(txn, &slot, 0);
        assert!(!has_had_enough());
        for decision in [Awaited::Commit, Awaited::Rollback] {
            let claim = engine.unsettled.claim_or_await(txn, decision);
            assert_eq!(claim, Claim::Others);
            assert_eq!(has_had_enough(), decision == Awaited::Rollback);
            engine.unsettled.await_no_more(txn);
            assert!(!has_had_enough());
        }
        slot.state.lock().take_name();
        assert!(has_had_enough(), "the start has decided it");
        engine.unsettled.done(txn);
        engine.close().unwrap();
    }

    /// Who takes a change back has the slot and may wait for room: readers of what was before it do not wait for him, with
    /// everybody else behind them.
    #[test]
    fn readers_do_not_wait_for_who_rolls_back() {
        let disk = SimStorage::new(1);
        let engine = open(&disk);
        let t = create(&engine);
        let mut s = Session::new(&engine, 0, 1);
        let dup = &mut DupInfo::default();
        s.insert_row(&t, Some(b"key"), b"\0before", &[], false, dup)
            .unwrap();
        s.commit(false).unwrap();
        // Twice: how much of it is left to be undone matters then.
        for payload in [b"\0one", b"\0two"] {
            let change = RowChange {
                old_pk: b"key",
                new_pk: b"key",
                payload,
                removed: &[],
                added: &[],
            };
            s.update_row(&t, &change, dup).unwrap();
        }
        // A shutdown does not wait for it.
        std::mem::forget(s);
        engine.close().unwrap();
        drop((t, engine));
        let held = Config {
            manual_background: true,
            background_undo_bytes: 1,
            ..config()
        };
        let engine = open_with(&disk, held);
        let all = engine.unsettled.all();
        let [(txn, slot)] = &all[..] else {
            panic!("it was rolled back");
        };
        assert!(!engine.unsettled.is_unknown(*txn), "its undo is not known");
        let at_work = slot.state.lock();
        let same = engine.clone();
        let reader = thread::spawn("reader", move || {
            let t = same.dict.open_table("d/t").unwrap();
            let mut s = Session::new(&same, 0, 1);
            s.open_snapshot();
            let mut cursor = Cursor::new(&t, 0, ReadMode::Snapshot, WaitMode::Wait);
            cursor.first(&mut s).unwrap();
            cursor.fetch_row(&mut s).unwrap().payload.to_vec()
        });
        for _ in 0..2000 {
            if !reader.is_finished() {
                thread::sleep_ms(5);
            }
        }
        let is_finished = reader.is_finished();
        drop(at_work);
        let seen = reader.join().unwrap();
        assert!(is_finished, "it waits for the slot");
        assert_eq!(seen, b"\0before");
        engine.close().unwrap();
    }
}
