//! The server's decisions about prepared transactions while it starts, before anybody can connect. Afterwards see
//! `decide`.
//!
//! A crash amid the commit of a large transaction leaves it prepared, and the start does not wait for what takes as
//! long as the transaction took:
//!
//! | decision | durable on return | left to the thread (`settle`) |
//! | --- | --- | --- |
//! | rollback | the word: a record as of a change taken back, which takes none back | taking its changes back, unless they are few |
//! | commit | the commit record | nothing: no versions are made, since nobody has seen a state before it, nor will |
//!
//! Why the word is a record, although the server would decide again as it did: it asks once. The next start may be
//! one without its binary log, or with an option that decides the other way, and the server gives its xids from the
//! beginning in each life: a later transaction of the same xid would be in the binary log.
//!
//! What is on disk if we die:
//!
//! | before the record is durable | after |
//! | --- | --- |
//! | it is prepared; the next start asks again, and nobody was answered | it has no xid: the next start rolls it back like any without an end, from where its undo list says |
//!
//! Invariant: from the record on, everything in memory is as if this start had found the transaction without a
//! PREPARE record: its rows are locked by its id, readers see what was before it, DDL does not wait for it.
//!
//! Locking: the slot's mutex around the record; `Unsettled` and `prepared` for moments.

use crate::log_records::undo;
use crate::log_records::xid::Xid;
use crate::state::engine::Engine;
use crate::state::slot::TxnSlot;
use crate::state::transaction::Phase;
use ferrite_sync::{kill_point, Arc};
use ferrite_types::format::record_kind;
use ferrite_types::{Error, Lsn, Result, TxnId, UndoPosition};

impl Engine {
    /// Commits a prepared transaction; durable on return. As long as this life has no snapshot and no change, no
    /// version of its rows is needed, and none is made; else this is [`Engine::commit_by_xid`].
    ///
    /// # Errors
    /// As there.
    pub fn commit_recovered(&self, xid: &Xid) -> Result<()> {
        let transaction = self.begin_decision(xid)?;
        let id = transaction.id();
        let lacks_versions = self.unsettled.lacks_versions(id);
        let is_early = transaction.phase() == Phase::Prepared && !self.has_begun();
        if lacks_versions && !is_early {
            self.break_off_decision(xid, transaction);
            return self.commit_by_xid(xid);
        }
        if transaction.phase() != Phase::Prepared {
            self.break_off_decision(xid, transaction);
            return Err(Error::RolledBack);
        }
        // First, so that whoever makes versions finds nothing to settle when the undo list is gone.
        self.unsettled.forget(id);
        self.commit_begun(xid, transaction, lacks_versions);
        Ok(())
    }

    /// Has anybody changed a row in this life, or a snapshot?
    fn has_begun(&self) -> bool {
        let mut has_snapshot = false;
        self.txns.each_snapshot(&mut |_| has_snapshot = true);
        let next = self.txns.next_txn();
        debug_assert!(next >= self.first_txn, "ids go back");
        has_snapshot || next > self.first_txn
    }

    /// Gives the word to roll a prepared transaction back; durable on return. It is rolled back by then if its undo,
    /// with that of others that were so, is no more than `Config::background_undo_bytes` and there is room for it;
    /// else the thread does it that rolls back what a crash has cut off.
    ///
    /// # Errors
    /// `NotFound` for an unknown xid; `InUse` while another session decides it.
    pub fn roll_back_recovered(self: &Arc<Self>, xid: &Xid) -> Result<()> {
        let transaction = self.begin_decision(xid)?;
        if transaction.phase() != Phase::Prepared {
            self.break_off_decision(xid, transaction);
            return self.rollback_by_xid(xid);
        }
        let (txn, slot) = (transaction.id(), transaction.slot.clone());
        debug_assert!(transaction.snapshot.is_none(), "{txn} reads");
        let (end, undo) = self.log_word(txn, &slot);
        kill_point!("decide.word_logged");
        self.log.flush_to(end);
        debug_assert!(self.log.durable_lsn() >= end, "decided and not on disk");
        self.no_longer_prepared(xid);
        self.unsettled.hand_over(txn, &slot, undo.0);
        kill_point!("decide.handed_over");
        if self
            .unsettled
            .is_within(self.config.background_undo_bytes, undo.0)
        {
            self.roll_back_at_once(txn, &slot);
        }
        self.wake_rollback();
        Ok(())
    }

    /// The word to roll it back is in the log buffer; where that ends, and where the undo list does.
    fn log_word(&self, txn: TxnId, slot: &TxnSlot) -> (Lsn, UndoPosition) {
        let mut body = Vec::new();
        let mut state = slot.state.lock();
        assert_eq!(state.txn, txn, "the slot is of another transaction");
        let all = state.undo.position();
        undo::encode_undone_header(txn, all, &mut body);
        let end = match ferrite_sync::mutant!("decide.word_not_logged") {
            true => self.log.current_lsn(),
            false => self.log.append(record_kind::MINI_TXN, &[&body]).end,
        };
        state.take_name();
        debug_assert_eq!(state.undo.position(), all, "{txn}: a change is taken back");
        (end, all)
    }
}
