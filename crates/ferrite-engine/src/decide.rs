//! Prepared transactions without a session: detached from it, or found by a restart. They wait
//! for their xid to be decided.
//!
//! Invariant: one is in `Engine::prepared` until its decision is complete. Only one session
//! decides it at a time. A rollback that failed half way leaves it there: it can be rolled back
//! again, by this life or by the next start, but not committed.
//!
//! Locking: `prepared` for moments, never over the decision itself.

use crate::callbacks::LogLevel;
use crate::commit;
use crate::engine::Engine;
use crate::prepared::Prepared;
use crate::purge_queue::Garbage;
use crate::slot::{TxnSlot, Xid};
use ferrite_sync::{thread, Arc};
use ferrite_types::{Error, IndexId, Result};
use std::collections::btree_map::Entry;

/// Longest wait, in steps of 1 ms, for a connection to let go of its prepared transaction.
const LONGEST_DETACH_MS: u32 = 30_000;

impl Engine {
    /// A prepared transaction waits for its xid to be decided. The server gives an xid to one
    /// transaction at a time; should there be two all the same, both stay, with their locks, and
    /// are decided one after the other.
    pub(crate) fn adopt_prepared(&self, slot: Arc<TxnSlot>, garbage: Vec<(u64, Garbage)>) {
        let (xid, txn) = {
            let state = slot.state.lock();
            (state.xid.clone(), state.txn)
        };
        let Some(xid) = xid else {
            return;
        };
        let prepared = Prepared {
            slot,
            garbage,
            deciding: false,
            next: None,
        };
        let mut all = self.prepared.lock();
        let twin = match all.entry(xid) {
            Entry::Vacant(place) => {
                place.insert(prepared);
                None
            }
            Entry::Occupied(mut place) => {
                let first = place.get().slot.state.lock().txn;
                place.get_mut().append(prepared);
                Some(first)
            }
        };
        drop(all);
        if let Some(first) = twin {
            let text = format!(
                "transactions {first} and {txn} are prepared with the same xid: the next XA \
                 COMMIT or ROLLBACK applies to the first, another one to the second"
            );
            self.callbacks.log(LogLevel::Error, &text);
        }
    }

    /// What a recovered prepared transaction leaves when it commits. A table that is gone took
    /// its values along.
    ///
    /// # Errors
    /// A page that cannot be read.
    pub(crate) fn garbage_of(&self, slot: &TxnSlot) -> Result<Vec<(u64, Garbage)>> {
        let values = slot.state.lock().garbage.clone();
        let piece = |(index, reference): (IndexId, [u8; 16])| match self.dict.table_of_index(index)
        {
            Ok(table) => Some(Ok((0, Garbage::overflow_of(&table, reference)))),
            Err(Error::NotFound) => None,
            Err(e) => Some(Err(e)),
        };
        values.into_iter().filter_map(piece).collect()
    }

    /// Xids of prepared transactions without a session.
    pub fn prepared_xids(&self) -> Vec<Xid> {
        self.prepared.lock().keys().cloned().collect()
    }

    /// Commits a prepared transaction; durable on return.
    ///
    /// # Errors
    /// `NotFound` for an unknown xid; `InUse` while another session decides it; `RolledBack`
    /// when a part of it was rolled back already.
    pub fn commit_by_xid(&self, xid: &Xid) -> Result<()> {
        let slot = self.begin_decision(xid)?;
        if slot.state.lock().xid.is_none() {
            self.break_off_decision(xid);
            return Err(Error::RolledBack);
        }
        let mut prepared = self.prepared.lock();
        let garbage = prepared
            .get_mut(xid)
            .map(|p| std::mem::take(&mut p.garbage));
        drop(prepared);
        commit::commit_detached(self, &slot, garbage.unwrap_or_default());
        self.end_decision(xid, &slot);
        Ok(())
    }

    /// Rolls a prepared transaction back; durable on return. One that failed can be repeated.
    ///
    /// # Errors
    /// `NotFound` for an unknown xid; `InUse` while another session decides it; a page that
    /// cannot be read: the rest of the transaction stays, with its locks.
    pub fn rollback_by_xid(&self, xid: &Xid) -> Result<()> {
        let slot = self.begin_decision(xid)?;
        if let Err(e) = self.rollback_detached(&slot, false) {
            self.break_off_decision(xid);
            return Err(e);
        }
        self.log.flush_to(self.log.current_lsn());
        self.end_decision(xid, &slot);
        Ok(())
    }

    /// The server gives an xid of a connection that ends to others before it tells the engine that
    /// the connection has ended, and takes no answer for a decision done: so this waits for it.
    fn begin_decision(&self, xid: &Xid) -> Result<Arc<TxnSlot>> {
        let mut waited_ms = 0;
        loop {
            match self.try_begin_decision(xid) {
                Err(Error::NotFound) if waited_ms < LONGEST_DETACH_MS && self.is_prepared(xid) => {}
                result => return result,
            }
            thread::sleep_ms(1);
            waited_ms += 1;
        }
    }

    /// Is a transaction prepared under this xid, with or without its session?
    fn is_prepared(&self, xid: &Xid) -> bool {
        let is_it = |slot: &Arc<TxnSlot>| slot.state.lock().xid.as_ref() == Some(xid);
        self.all_slots().iter().any(is_it)
    }

    fn try_begin_decision(&self, xid: &Xid) -> Result<Arc<TxnSlot>> {
        let mut all = self.prepared.lock();
        let prepared = all.get_mut(xid).ok_or(Error::NotFound)?;
        if std::mem::replace(&mut prepared.deciding, true) {
            let text = "another session commits the prepared transaction or rolls it back";
            return Err(Error::InUse(text.into()));
        }
        Ok(prepared.slot.clone())
    }

    fn break_off_decision(&self, xid: &Xid) {
        if let Some(prepared) = self.prepared.lock().get_mut(xid) {
            assert!(prepared.deciding, "a decision that nobody began");
            prepared.deciding = false;
        }
    }

    fn end_decision(&self, xid: &Xid, slot: &Arc<TxnSlot>) {
        let mut all = self.prepared.lock();
        let ended = all.remove(xid).expect("nobody else ends a decision");
        assert!(ended.deciding, "a decision that nobody began");
        if let Some(next) = ended.next {
            all.insert(xid.clone(), *next);
        }
        drop(all);
        self.forget_slot(slot);
    }
}
