//! Looking at the other table of a foreign key, after a row is written: is the parent there, is a
//! child there?
//!
//! Each look reads the newest state of the index, whatever the session's snapshot or isolation, and
//! takes no lock on the other table: the row that was written before is the lock. Why no orphan
//! comes of that: `docs/internals/foreign_keys.md`.
//!
//! Invariant: the answer "there is none" rests on no entry of an active transaction. Nor does "there
//! is a parent", unless the parent is there however that transaction ends, rolled back in part or whole.
//!
//! Locking: one leaf, shared, for the look at it; the table is entered meanwhile, not over a wait.

use crate::catalog::links::{Peer, RowEnd};
use crate::catalog::table::Table;
use crate::rows::{clustered_key, overflow};
use crate::state::engine::Engine;
use crate::transaction::session::Session;
use ferrite_lock::{LockRequest, Mode, Span};
use ferrite_sync::atomic::Ordering;
use ferrite_sync::{kill_point, mutant};
use ferrite_tree::record::Header;
use ferrite_tree::{node, LeafRef};
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
#[derive(Clone, Copy)]
pub(crate) enum Look {
    /// One is there.
    There,
    /// None is.
    Nowhere,
    /// That transaction is to be waited for at the key `Session::buffers.reference` of the index of that
    /// number.
    Depends(TxnId, usize),
}

/// What comes after a leaf.
enum Step {
    /// Nothing: one is there.
    There,
    /// Nothing: no more entries have the key.
    End,
    /// The leaf with `Walk::from`.
    Leaf,
    /// The row of the entry `Walk::key`: the entry does not tell whether the row is of the past.
    Row,
}

/// From leaf to leaf over all entries with a key.
struct Walk<'a> {
    peer: &'a Peer,
    prefix: &'a [u8],
    role: Role,
    /// Entries from here on.
    from: Vec<u8>,
    /// The entry that it stands on.
    key: Vec<u8>,
    /// Where the clustered key begins in it, if its row is to be read.
    row_from: usize,
    depends: Option<(TxnId, usize)>,
    /// Latches of leaves, one after the other.
    visits: u32,
    /// Tells which pages were visited, in which states.
    pages: u64,
}

impl Walk<'_> {
    fn begin(&mut self) {
        self.from.clear();
        debug_assert!(!self.prefix.is_empty(), "a look for any row");
        self.from.extend_from_slice(self.prefix);
        self.depends = None;
        self.visits = 0;
        self.pages = 0;
    }

    fn visit(&mut self, leaf: &LeafRef<'_>) {
        const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;
        debug_assert!(self.visits < u32::MAX);
        self.visits += 1;
        for part in [u64::from(leaf.page_id().0), leaf.lsn().0] {
            self.pages = (self.pages ^ part).wrapping_mul(SPREAD).rotate_left(31);
        }
    }

    /// The leaf has been read to its end.
    fn beyond(&mut self, leaf: &LeafRef<'_>) -> Step {
        match node::high(leaf) {
            Some(high) if high.starts_with(self.prefix) || high <= self.from.as_slice() => {
                self.from.clear();
                self.from.extend_from_slice(high);
                Step::Leaf
            }
            _ => Step::End,
        }
    }

    fn is_of_the_past(&self) -> bool {
        let end = self.peer.row_end.as_ref();
        end.is_some_and(|end| !end.lives_by_key(&self.key))
    }

    /// The row of the entry it stands on is to be read: the entry does not tell whether it lives.
    fn asks_row(&mut self, value: &[u8]) -> bool {
        if !self.peer.row_end.as_ref().is_some_and(RowEnd::is_in_row) {
            return false;
        }
        self.row_from = match self.peer.index_no {
            0 => 0,
            _ => {
                clustered_key(&self.key, value).map_or(self.key.len(), |k| self.key.len() - k.len())
            }
        };
        debug_assert!(self.row_from < self.key.len(), "an entry without its row");
        self.row_from < self.key.len()
    }
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
                Look::Depends(txn, number) => self.wait_for_outcome(table, number, txn)?,
            }
        }
    }

    /// Waits until a transaction ends that wrote the entry before `buffers.reference`.
    fn wait_for_outcome(&mut self, table: &Table, number: usize, txn: TxnId) -> Result<()> {
        let index = table.tree(number).index();
        let key = std::mem::take(&mut self.buffers.reference);
        debug_assert!(!key.is_empty(), "{txn} is to be waited for nowhere");
        debug_assert!(!self.owns(txn), "{txn} waits for itself");
        let result = self.wait_for_holder(
            txn,
            LockRequest::new(index, &key, Mode::Shared, Span::Record),
        );
        if result.is_ok() {
            // Nothing else has this key: the lock is the wait's own.
            let locks = &self.engine.locks;
            locks.unlock(&self.txn.owner, index, &key, Mode::Shared);
        }
        self.buffers.reference = key;
        result
    }

    /// One look, without a wait. The table is entered.
    pub(crate) fn look(&mut self, peer: &Peer, prefix: &[u8], role: Role) -> Result<Look> {
        let mut walk = Walk {
            peer,
            prefix,
            role,
            from: std::mem::take(&mut self.buffers.key),
            key: std::mem::take(&mut self.buffers.entry_key),
            row_from: 0,
            depends: None,
            visits: 0,
            pages: 0,
        };
        let look = self.look_by(&mut walk);
        self.buffers.key = walk.from;
        self.buffers.entry_key = walk.key;
        look
    }

    /// A parent's entry may move from a leaf that is yet to be read to one that was read, and that
    /// transaction may end meanwhile. So "there is none" counts only when nothing has changed from one
    /// walk to the next: then it was so between the two. A child that moves looks for its parent again.
    fn look_by(&mut self, walk: &mut Walk<'_>) -> Result<Look> {
        let mut look = self.walk(walk)?;
        while walk.role == Role::Parent && matches!(look, Look::Nowhere) && walk.visits > 1 {
            let before = walk.pages;
            look = self.walk(walk)?;
            if walk.pages == before {
                break;
            }
        }
        Ok(look)
    }

    fn walk(&mut self, walk: &mut Walk<'_>) -> Result<Look> {
        let peer = walk.peer;
        let tree = peer.table.tree(peer.index_no as usize);
        walk.begin();
        loop {
            let leaf = tree.leaf(&walk.from)?;
            walk.visit(&leaf);
            let step = self.leaf_says(walk, &leaf)?;
            drop(leaf);
            match step {
                Step::There => return Ok(Look::There),
                Step::End => break,
                Step::Leaf => kill_point!("reference.leaf_left"),
                Step::Row => {
                    if self.row_says(walk)? == Says::Yes {
                        return Ok(Look::There);
                    }
                    walk.from.clear();
                    walk.from.extend_from_slice(&walk.key);
                    walk.from.push(0);
                }
            }
            self.check_killed()?;
        }
        let depends = |(txn, number)| Look::Depends(txn, number);
        Ok(walk.depends.map_or(Look::Nowhere, depends))
    }

    fn leaf_says(&mut self, walk: &mut Walk<'_>, leaf: &LeafRef<'_>) -> Result<Step> {
        let first = leaf.find(&walk.from).unwrap_or_else(|slot| slot);
        for slot in first..leaf.count() {
            walk.key.clear();
            node::key_into(leaf, slot, &mut walk.key);
            if !walk.key.starts_with(walk.prefix) {
                return Ok(Step::End);
            }
            debug_assert!(walk.key >= walk.from, "the look goes back");
            if walk.is_of_the_past() {
                continue;
            }
            let record = leaf.record(slot);
            let header = record.header;
            match self.says(&header, walk.role)? {
                Says::No => {}
                Says::Depends => {
                    let number = walk.peer.index_no as usize;
                    self.note_dependence(walk, header.txn, number, 0);
                }
                Says::Yes if walk.asks_row(record.value) => return Ok(Step::Row),
                Says::Yes => return Ok(Step::There),
            }
        }
        Ok(walk.beyond(leaf))
    }

    /// What the row of the entry `Walk::key` says, where the entry does not tell whether the row is of
    /// the past. Rows of the past never come back to life.
    fn row_says(&mut self, walk: &mut Walk<'_>) -> Result<Says> {
        let start = walk.row_from;
        let pk = &walk.key[start..];
        debug_assert!(!pk.is_empty(), "no row to read");
        let leaf = walk.peer.table.tree(0).leaf(pk)?;
        let Ok(slot) = leaf.find(pk) else {
            return Ok(Says::No);
        };
        let row = leaf.record(slot);
        let txn = row.header.txn;
        let end = walk.peer.row_end.as_ref();
        let lives = !row.header.deleted
            && end.is_none_or(|end| end.lives_by_row(overflow::columns(row.value)));
        if !self.owns(txn) && self.engine.txns.is_active(txn) {
            drop(leaf);
            self.note_dependence(walk, txn, 0, start);
            return Ok(Says::Depends);
        }
        match lives {
            true => Ok(Says::Yes),
            false => Ok(Says::No),
        }
    }

    /// The first transaction that the answer depends on is waited for: behind its entry's key (that of the
    /// walk, without so many bytes in front), where no entry is. On the entry itself the lock that ends the
    /// wait could become one on the gap before it is given back, if purge takes the entry just then.
    fn note_dependence(&mut self, walk: &mut Walk<'_>, txn: TxnId, number: usize, skip: usize) {
        if walk.depends.is_none() {
            debug_assert!(!txn.is_frozen() && skip <= walk.key.len());
            walk.depends = Some((txn, number));
            let key = &mut self.buffers.reference;
            key.clear();
            key.extend_from_slice(&walk.key[skip..]);
            key.push(0);
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
        debug_assert!(!header.deleted && !header.txn.is_frozen());
        if self.unsettled.has(header.txn) {
            return Ok(false);
        }
        let Some(owner) = self.txns.owner_of(header.txn) else {
            return Ok(false);
        };
        if owner.revived.load(Ordering::Acquire) == header.txn.get() {
            return Ok(false);
        }
        body.clear();
        let before = self.versions.read(header.version, body)?;
        Ok(before.is_some_and(|v| v.end == header.txn && !v.is_deleted()))
    }
}
