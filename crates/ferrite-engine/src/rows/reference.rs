//! Looking at the other table of a foreign key, after a row is written: is the parent there, is a
//! child there?
//!
//! Each look reads the newest state of the index, whatever the session's snapshot or isolation, and takes no
//! lock on the other table: the row that was written before is the lock. Why no orphan comes of
//! that: `docs/internals/foreign_keys.md`.
//!
//! Invariant: the answer "there is none" rests on no entry of an active transaction. Nor does "there
//! is a parent", unless the parent is there however that transaction ends, rolled back in part or whole.
//!
//! Locking: one leaf, shared, for the look at it; the table is entered meanwhile, not over a wait.

use crate::catalog::links::Peer;
use crate::catalog::table::Table;
use crate::state::engine::Engine;
use crate::transaction::session::Session;
use ferrite_lock::{Mode, Span};
use ferrite_sync::atomic::Ordering;
use ferrite_sync::{kill_point, mutant};
use ferrite_tree::node;
use ferrite_tree::record::Header;
use ferrite_txn::VersionAddr;
use ferrite_types::{Error, Result, TxnId};

/// Who is looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// A row that is referred to.
    Parent,
    /// A row that refers.
    Child,
}

/// What an entry says.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Says {
    /// The row is there.
    Yes,
    /// It is not.
    No,
    /// That depends on a transaction that has not ended.
    Depends,
}

/// What all entries with a key say.
enum Look {
    There,
    Nowhere,
    /// `Session::buffers.reference` has the key of the entry of that transaction.
    Depends(TxnId),
}

impl Session {
    /// Is there a row in `peer` whose index entry begins with `prefix`? Waits for transactions that it
    /// depends on. The row that gives rise to the question is written already.
    ///
    /// # Errors
    /// `TableChanged`: the table is dropped or emptied, ask for the links again; those of a wait for a
    /// lock.
    pub fn is_there(&mut self, peer: &Peer, prefix: &[u8], role: Role) -> Result<bool> {
        let table = &peer.table;
        let number = peer.index_no as usize;
        loop {
            let look = {
                let Some(_entered) = table.enter() else {
                    return Err(Error::TableChanged);
                };
                self.look(peer, prefix, role)?
            };
            match look {
                Look::There => return Ok(true),
                Look::Nowhere => return Ok(false),
                Look::Depends(txn) => self.wait_for_outcome(table, number, txn)?,
            }
        }
    }

    /// Waits until a transaction ends that wrote the entry in `buffers.reference`.
    fn wait_for_outcome(&mut self, table: &Table, number: usize, txn: TxnId) -> Result<()> {
        let index = table.tree(number).index();
        let key = std::mem::take(&mut self.buffers.reference);
        let result = self.wait_for_holder(txn, index, &key, Mode::Shared, Span::Record);
        if result.is_ok() {
            // Nobody has had a lock on what another transaction wrote: this is the wait's own.
            let locks = &self.engine.locks;
            locks.unlock(&self.txn.owner, index, &key, Mode::Shared);
        }
        self.buffers.reference = key;
        result
    }

    fn look(&mut self, peer: &Peer, prefix: &[u8], role: Role) -> Result<Look> {
        let tree = peer.table.tree(peer.index_no as usize);
        let mut depends = None;
        let mut from = std::mem::take(&mut self.buffers.key);
        from.clear();
        from.extend_from_slice(prefix);
        let mut key = std::mem::take(&mut self.buffers.entry_key);
        let result = loop {
            let leaf = match tree.leaf(&from) {
                Ok(leaf) => leaf,
                Err(e) => break Err(e),
            };
            let first = leaf.find(&from).unwrap_or_else(|slot| slot);
            let mut end = None;
            for slot in first..leaf.count() {
                key.clear();
                node::key_into(&leaf, slot, &mut key);
                if !key.starts_with(prefix) {
                    end = Some(Ok(Look::Nowhere));
                    break;
                }
                if peer.row_end.is_some_and(|end| !end.lives(&key)) {
                    continue;
                }
                let header = leaf.record(slot).header;
                match self.says(&header, role) {
                    Ok(Says::Yes) => end = Some(Ok(Look::There)),
                    Ok(Says::Depends) if depends.is_none() => {
                        depends = Some(header.txn);
                        self.buffers.reference.clear();
                        self.buffers.reference.extend_from_slice(&key);
                    }
                    Ok(_) => {}
                    Err(e) => end = Some(Err(e)),
                }
                if end.is_some() {
                    break;
                }
            }
            if let Some(end) = end {
                break end;
            }
            match node::high(&leaf) {
                Some(high) if high.starts_with(prefix) || high <= from.as_slice() => {
                    from.clear();
                    from.extend_from_slice(high);
                }
                _ => break Ok(Look::Nowhere),
            }
            drop(leaf);
            kill_point!("reference.leaf_left");
            if let Err(e) = self.check_killed() {
                break Err(e);
            }
        };
        self.buffers.key = from;
        self.buffers.entry_key = key;
        match (result?, depends) {
            (Look::Nowhere, Some(txn)) => Ok(Look::Depends(txn)),
            (look, _) => Ok(look),
        }
    }

    /// Under the leaf's latch: who rolls a change back restores the entry before it ends.
    fn says(&mut self, header: &Header, role: Role) -> Result<Says> {
        let live = match header.deleted {
            true => Says::No,
            false => Says::Yes,
        };
        if self.owns(header.txn) || !self.engine.txns.is_active(header.txn) {
            return Ok(live);
        }
        if header.deleted && mutant!("foreign.deletion_not_awaited") {
            return Ok(Says::No);
        }
        if role == Role::Parent && !header.deleted {
            let body = &mut self.buffers.mid;
            if self.engine.outlives_its_writer(header, body)? {
                return Ok(Says::Yes);
            }
        }
        Ok(Says::Depends)
    }
}

impl Engine {
    /// Is the live entry of an active transaction there whatever becomes of that transaction? It was
    /// there before, and the transaction did not remove it in between: a savepoint could take back
    /// the half of that which brought it back.
    fn outlives_its_writer(&self, header: &Header, body: &mut Vec<u8>) -> Result<bool> {
        if self.losers.has(header.txn) {
            return Ok(false);
        }
        let Some(owner) = self.txns.owner_of(header.txn) else {
            return Ok(false);
        };
        if owner.revived.load(Ordering::Acquire) == header.txn.get() {
            return Ok(false);
        }
        body.clear();
        let before = self.versions.read(VersionAddr(header.version), body)?;
        Ok(before.is_some_and(|v| v.end == header.txn && !v.is_deleted()))
    }
}
