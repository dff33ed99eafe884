//! Cleaning up after commits: entries that stay delete-marked, and values out of line that
//! nobody names any more.
//!
//! A commit leaves its list here; a helper thread takes it up when every snapshot sees the
//! commit. A crash loses the list: delete-marked entries are then found by whoever needs room
//! on their page, overflow values through the commit records.

use crate::engine::Engine;
use crate::table::Table;
use crate::undo::NO_UNDO;
use ferrite_sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use ferrite_sync::{Arc, Event, Mutex};
use ferrite_tree::op::{GC_FREEZE, GC_REMOVE};
use ferrite_tree::{is_sparse, node, LeafMut, Scratch};
use ferrite_types::{IndexId, PageId, Result, TxnId};
use std::collections::VecDeque;

/// Transactions taken from the queue at a time.
const BATCH: usize = 64;

/// One piece of work a commit leaves.
pub enum Garbage {
    /// A delete-marked entry.
    Entry {
        /// Its table.
        table: Arc<Table>,
        /// Index number.
        number: u16,
        /// Whole key.
        key: Box<[u8]>,
    },
    /// A value out of line.
    Overflow {
        /// Its table.
        table: Arc<Table>,
        /// Its reference.
        reference: [u8; 16],
    },
}

impl Garbage {
    pub(crate) fn entry(table: &Arc<Table>, number: usize, key: &[u8]) -> Garbage {
        Garbage::Entry {
            table: table.clone(),
            number: number as u16,
            key: key.into(),
        }
    }

    pub(crate) fn overflow_of(table: &Arc<Table>, reference: [u8; 16]) -> Garbage {
        Garbage::Overflow {
            table: table.clone(),
            reference,
        }
    }

    /// Clustered index and reference of a value out of line.
    pub(crate) fn overflow(&self) -> Option<(IndexId, &[u8; 16])> {
        match self {
            Garbage::Overflow { table, reference } => Some((table.tree(0).index(), reference)),
            Garbage::Entry { .. } => None,
        }
    }
}

/// What commits left, oldest first.
#[derive(Default)]
pub(crate) struct PurgeQueue {
    queue: Mutex<VecDeque<(TxnId, Vec<Garbage>)>>,
    length: AtomicUsize,
    sleeping: AtomicUsize,
    event: Event,
    pub purged: AtomicU64,
    /// Overflow values of the batches in work: a checkpoint must not miss them.
    working: Mutex<Vec<(IndexId, [u8; 16])>>,
}

impl PurgeQueue {
    pub(crate) fn add(&self, txn: TxnId, garbage: Vec<Garbage>) {
        self.queue.lock().push_back((txn, garbage));
        self.length.fetch_add(1, Ordering::Relaxed);
        if self.sleeping.load(Ordering::Relaxed) > 0 {
            self.event.set();
        }
    }

    /// Committed transactions not yet cleaned up.
    pub(crate) fn length(&self) -> usize {
        self.length.load(Ordering::Relaxed)
    }

    fn take(&self, ready: impl Fn(TxnId) -> bool, out: &mut Vec<(TxnId, Vec<Garbage>)>) {
        let mut queue = self.queue.lock();
        while out.len() < BATCH && queue.front().is_some_and(|(txn, _)| ready(*txn)) {
            out.extend(queue.pop_front());
        }
        let values = overflow_values(out);
        if !values.is_empty() {
            self.working.lock().extend(values);
        }
    }

    fn done(&self, batch: &[(TxnId, Vec<Garbage>)]) {
        self.length.fetch_sub(batch.len(), Ordering::Relaxed);
        let values = overflow_values(batch);
        if !values.is_empty() {
            self.working.lock().retain(|v| !values.contains(v));
        }
    }

    /// Sleeps until there may be work, at most so long.
    pub(crate) fn wait(&self, us: u64) {
        self.sleeping.fetch_add(1, Ordering::SeqCst);
        self.event.wait_timeout_us(us);
        self.sleeping.fetch_sub(1, Ordering::SeqCst);
    }

    /// Wakes a sleeping helper.
    pub(crate) fn wake(&self) {
        self.event.set();
    }

    /// References of values still to be freed, for a checkpoint.
    pub(crate) fn pending_overflow(&self) -> Vec<(IndexId, [u8; 16])> {
        let queue = self.queue.lock();
        let mut values: Vec<_> = queue
            .iter()
            .flat_map(|(_, list)| list)
            .filter_map(|g| g.overflow().map(|(i, r)| (i, *r)))
            .collect();
        values.extend_from_slice(&self.working.lock());
        values
    }
}

fn overflow_values(batch: &[(TxnId, Vec<Garbage>)]) -> Vec<(IndexId, [u8; 16])> {
    batch
        .iter()
        .flat_map(|(_, list)| list)
        .filter_map(|g| g.overflow().map(|(i, r)| (i, *r)))
        .collect()
}

impl Engine {
    /// One round of cleaning up. Returns pieces done.
    pub(crate) fn purge_round(&self, scratch: &mut Scratch) -> usize {
        let mut batch = Vec::with_capacity(BATCH);
        self.purge
            .take(|txn| self.txns.visible_to_all(txn), &mut batch);
        let mut done = 0;
        for (_, list) in &batch {
            for piece in list {
                if let Err(e) = self.purge_piece(piece, scratch) {
                    let text = format!("cleanup after commit: {e}");
                    self.callbacks.log(crate::LogLevel::Warning, &text);
                }
                done += 1;
            }
        }
        self.purge.done(&batch);
        self.purge.purged.fetch_add(done as u64, Ordering::Relaxed);
        done
    }

    fn purge_piece(&self, piece: &Garbage, scratch: &mut Scratch) -> Result<()> {
        match piece {
            Garbage::Entry { table, number, key } => {
                let _use = table.in_use.read();
                if table.dropped.load(Ordering::SeqCst) {
                    return Ok(());
                }
                self.purge_entry(table, *number as usize, key, scratch)
            }
            Garbage::Overflow { table, reference } => {
                let _use = table.in_use.read();
                if table.dropped.load(Ordering::SeqCst) {
                    return Ok(());
                }
                self.free_overflow(table.tree(0).index(), reference)
            }
        }
    }

    fn purge_entry(
        &self,
        table: &Arc<Table>,
        number: usize,
        key: &[u8],
        scratch: &mut Scratch,
    ) -> Result<()> {
        let tree = table.tree(number);
        let mut leaf = tree.leaf_mut(key, PageId::NONE)?;
        let Ok(slot) = leaf.find(key) else {
            return Ok(());
        };
        let header = leaf.record(slot).header;
        if !header.deleted || !self.txns.visible_to_all(header.txn) {
            return Ok(());
        }
        if !self.locks.is_untouched(tree.index(), key) {
            // The key anchors somebody's lock: whoever comes by later removes it.
            return Ok(());
        }
        self.clean_leaf(table, number, &mut leaf, scratch, false);
        let sparse = is_sparse(&leaf);
        drop(leaf);
        if sparse {
            tree.merge_at(key, NO_UNDO)?;
        }
        Ok(())
    }

    /// Removes delete-marked records that nobody needs from the leaf and, if asked, drops the
    /// stamps of records everybody sees. Returns bytes gained.
    pub(crate) fn clean_leaf(
        &self,
        table: &Table,
        number: usize,
        leaf: &mut LeafMut<'_>,
        scratch: &mut Scratch,
        freeze: bool,
    ) -> usize {
        let index = table.tree(number).index();
        let before = node::free_bytes(leaf);
        let mut actions: Vec<(u16, u8)> = Vec::new();
        let mut key = Vec::new();
        for slot in 0..leaf.count() {
            let header = leaf.record(slot).header;
            if !header.deleted && (!freeze || header.txn.is_frozen()) {
                continue;
            }
            if !header.txn.is_frozen() && !self.txns.visible_to_all(header.txn) {
                continue;
            }
            if !header.deleted {
                actions.push((slot as u16, GC_FREEZE));
                continue;
            }
            key.clear();
            node::key_into(leaf, slot, &mut key);
            if self.locks.is_untouched(index, &key) {
                actions.push((slot as u16, GC_REMOVE));
            }
        }
        if actions.is_empty() {
            return 0;
        }
        leaf.gc(NO_UNDO, &actions, scratch);
        node::free_bytes(leaf) - before
    }
}
