//! What a commit leaves to be purged: pieces, and the works that they are handled in.
//!
//! Invariant: `values` of a work names the values out of line among its pieces, in their order, so that a checkpoint
//! need not look at the pieces.
//!
//! Locking: none; of whoever has the work, or of the queue's `lists`.

use crate::catalog::table::Table;
use crate::log_records::values::Value;
use ferrite_sync::Arc;
use ferrite_types::{Csn, IndexId, OverflowRef, TxnId};

/// Pieces of one work: a transaction that leaves more leaves several works.
pub(crate) const PIECES_AT_ONCE: usize = 512;
/// What a held value takes in memory: its piece, what that points to, and its place in the list for
/// checkpoints.
const HELD_VALUE_BYTES: u64 =
    (size_of::<Garbage>() + size_of::<(OverflowRef, TxnId)>() + 16 + size_of::<Value>()) as u64;

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
        /// Nothing else on its page is meant.
        alone: bool,
    },
    /// A value out of line.
    Overflow {
        /// Its table.
        table: Arc<Table>,
        /// Its reference.
        reference: OverflowRef,
    },
    /// A value out of line that a snapshot needs, and who made it: who looks again needs no page.
    Held {
        /// Its table.
        table: Arc<Table>,
        /// Its reference and its maker.
        value: Box<(OverflowRef, TxnId)>,
    },
}

impl Garbage {
    pub(crate) fn entry(table: &Arc<Table>, number: usize, key: &[u8], alone: bool) -> Garbage {
        assert!(
            number < table.index_count(),
            "index {number} of {}",
            table.id()
        );
        debug_assert!(u16::try_from(number).is_ok(), "index {number} is cut off");
        Garbage::Entry {
            table: table.clone(),
            number: number as u16,
            key: key.into(),
            alone,
        }
    }

    pub(crate) fn overflow_of(table: &Arc<Table>, reference: OverflowRef) -> Garbage {
        Garbage::Overflow {
            table: table.clone(),
            reference,
        }
    }

    /// The same value, of which is known now who made it.
    pub(crate) fn held(table: &Arc<Table>, reference: OverflowRef, maker: TxnId) -> Garbage {
        Garbage::Held {
            table: table.clone(),
            value: Box::new((reference, maker)),
        }
    }

    /// Clustered index and reference of a value out of line.
    pub(crate) fn overflow(&self) -> Option<(IndexId, &OverflowRef)> {
        match self {
            Garbage::Overflow { table, reference } => Some((table.tree(0).index(), reference)),
            Garbage::Held { table, value } => Some((table.tree(0).index(), &value.0)),
            Garbage::Entry { .. } => None,
        }
    }
}

/// The values out of line among a work's pieces, in their order.
#[derive(Clone)]
pub(super) struct Values {
    all: Arc<[Value]>,
    /// The first so many are left.
    left: usize,
    /// Pages of those.
    pages: u64,
}

impl Values {
    pub(super) fn of(pieces: &[Garbage]) -> Values {
        let values = pieces.iter().filter_map(Garbage::overflow);
        let all: Arc<[Value]> = values
            .map(|(index, reference)| (index, *reference))
            .collect();
        let left = all.len();
        let pages = all.iter().map(|(_, value)| u64::from(value.pages())).sum();
        Values { all, left, pages }
    }

    pub(super) fn get(&self) -> &[Value] {
        &self.all[..self.left]
    }
}

/// Memory of pieces, about.
fn bytes_of(pieces: &[Garbage]) -> usize {
    let own = |piece: &Garbage| match piece {
        Garbage::Entry { key, .. } => key.len(),
        Garbage::Overflow { .. } => size_of::<Value>(),
        Garbage::Held { .. } => HELD_VALUE_BYTES as usize - size_of::<Garbage>(),
    };
    size_of_val(pieces) + pieces.iter().map(own).sum::<usize>()
}

/// What one commit left, a part of it, or what is left of that.
pub(crate) struct Work {
    pub txn: TxnId,
    pub pieces: Vec<Garbage>,
    pub(super) values: Values,
    /// Memory that it takes, about.
    pub(super) bytes: usize,
    /// It stands for its transaction in the queue's length.
    pub(super) counts: bool,
    /// It is left of leaves that were visited, and not put aside yet.
    pub(super) of_leaves: bool,
    /// When it was left, us, as far as `now_us` tells.
    pub(super) left_us: u64,
    /// When it was last looked at, us; 0: not yet.
    pub seen_us: u64,
    /// How often all of it was looked at, and something was left.
    looks: u32,
    /// Commit numbers of snapshots that need all of it, each a part: while they are open, another look would
    /// be in vain. None: nobody knows.
    pub needed_by: Vec<Csn>,
    /// The oldest snapshot that needed one of its values when it was last looked at. While that is open, they are kept.
    pub kept_for: Option<Csn>,
}

impl Work {
    pub(super) fn new(txn: TxnId, pieces: Vec<Garbage>, counts: bool, left_us: u64) -> Work {
        Work {
            txn,
            bytes: bytes_of(&pieces),
            values: Values::of(&pieces),
            pieces,
            counts,
            of_leaves: false,
            left_us,
            seen_us: 0,
            looks: 0,
            needed_by: Vec::new(),
            kept_for: None,
        }
    }

    /// All of it has been looked at, or `whole` is false.
    pub(crate) fn looked_at(&mut self, now_us: u64, whole: bool) {
        debug_assert!(self.seen_us <= now_us, "the clock goes back");
        self.seen_us = now_us;
        self.looks = self.looks.saturating_add(u32::from(whole));
    }

    /// Another look soon would be in vain: a snapshot needs all of it, or something kept it when its
    /// snapshots kept it no more.
    pub(super) fn is_put_aside(&self) -> bool {
        self.values.left == self.pieces.len() || self.looks > 1
    }

    /// Are all of the snapshots that need it among those `open`?
    pub(super) fn is_needed_by(&self, open: &[Csn]) -> bool {
        debug_assert!(open.is_sorted(), "snapshots out of order");
        let is_open = |csn: &Csn| open.binary_search(csn).is_ok();
        !self.needed_by.is_empty() && self.needed_by.iter().all(is_open)
    }

    /// How many of its pieces, from the last one on, up to `most`, have so many pages of values at most.
    pub(super) fn last_pieces(&self, most: usize, mut pages: u64) -> usize {
        let last = self.pieces.iter().rev().take(most);
        let fits = |piece: &&Garbage| {
            let value = piece.overflow();
            let left = pages.checked_sub(value.map_or(0, |(_, value)| value.pages().into()));
            pages = left.unwrap_or(0);
            left.is_some()
        };
        last.take_while(fits).count()
    }

    /// Its last `count` pieces as a work of their own. Takes as long as these are many.
    pub(super) fn split_off(&mut self, count: usize) -> Work {
        assert!(
            count < self.pieces.len(),
            "{count} of {}",
            self.pieces.len()
        );
        let pieces = self.pieces.split_off(self.pieces.len() - count);
        let share = Work::new(self.txn, pieces, false, self.left_us);
        self.values.left -= share.values.left;
        self.values.pages -= share.values.pages;
        self.bytes = self.bytes.saturating_sub(share.bytes);
        debug_assert_eq!(
            share.values.get(),
            &self.values.all[self.values.left..][..share.values.left],
            "other values go than are named"
        );
        share
    }

    /// Pages of its values.
    pub(super) fn pages(&self) -> u64 {
        self.values.pages
    }

    /// Bytes of memory and of disk that its values take while they are held.
    pub(super) fn held_bytes(&self) -> (u64, u64) {
        let values = self.values.get();
        let disk = values.iter().map(|(_, value)| value.length());
        (values.len() as u64 * HELD_VALUE_BYTES, disk.sum())
    }

    /// Some pieces are done with.
    pub(super) fn settle(&mut self) {
        self.bytes = bytes_of(&self.pieces);
        if self.values.left > 0 {
            let before = self.values.left;
            self.values = Values::of(&self.pieces);
            debug_assert!(self.values.left <= before, "a value comes back");
        }
        debug_assert!(
            self.pieces
                .iter()
                .filter(|p| p.overflow().is_some())
                .count()
                == self.values.left,
            "a checkpoint would not name all values of {}",
            self.txn
        );
    }
}
