//! The status ring: transaction id -> state and commit number, one 64-bit word each.
//!
//! A word is `tag:13 | state:3 | csn:48`. The tag is the low part of the lap (id / ring
//! length), so that one load tells both whose word it is and what it says.
//!
//! Invariants:
//! - `floor <= any id whose word may be looked at`; `ready = floor + ring length`; an id is
//!   given its word only when it is below `ready`. So a word belongs to exactly one id at or
//!   above the floor, and 13 bits of tag are plenty.
//! - The words of a lap are never overwritten before `floor` has moved past them, and the
//!   floor moves only after what is still needed of them was carried away
//!   (`TxnSystem::retire_block`).
//! - A word only goes EMPTY/older lap -> ACTIVE -> [PREPARED] -> COMMITTING -> COMMITTED, or
//!   ACTIVE/PREPARED -> ABORTED, or ACTIVE/PREPARED -> MOVED (its state is in the side table).
//!
//! Locking: none; the floor is moved by one thread at a time.

use ferrite_sync::atomic::{AtomicU64, Ordering};
use ferrite_sync::CachePadded;
use ferrite_types::{Csn, TxnId};

const CSN_BITS: u32 = 48;
const STATE_BITS: u32 = 3;
const TAG_SHIFT: u32 = CSN_BITS + STATE_BITS;
const TAG_MASK: u64 = (1 << (64 - TAG_SHIFT)) - 1;
// Tags need not tell more laps apart than are in the ring at a time: two.
const _: () = assert!(TAG_MASK >= 1 && TAG_SHIFT < 64);
/// Largest commit number.
pub(crate) const CSN_MAX: u64 = (1 << CSN_BITS) - 1;
const _: () = assert!(CSN_BITS == 48, "a commit number has 48 bits everywhere");

/// What a word says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Word {
    /// The word is (still, or already) another id's.
    Other,
    Active,
    Prepared,
    Committing,
    Committed(Csn),
    Aborted,
    /// Ask the side table.
    Moved,
}

impl Word {
    fn pack(self) -> u64 {
        let (state, csn) = match self {
            Word::Other => (0, 0),
            Word::Active => (1, 0),
            Word::Prepared => (2, 0),
            Word::Committing => (3, 0),
            Word::Committed(csn) => (4, csn.get()),
            Word::Aborted => (5, 0),
            Word::Moved => (6, 0),
        };
        debug_assert!(csn <= CSN_MAX);
        debug_assert!(state < 1 << STATE_BITS);
        debug_assert!(
            self != Word::Committed(Csn(0)),
            "a number that means forgotten"
        );
        state << CSN_BITS | csn
    }

    fn unpack(word: u64) -> Word {
        match word >> CSN_BITS & ((1 << STATE_BITS) - 1) {
            1 => Word::Active,
            2 => Word::Prepared,
            3 => Word::Committing,
            4 => Word::Committed(Csn(word & CSN_MAX)),
            5 => Word::Aborted,
            6 => Word::Moved,
            _ => Word::Other,
        }
    }

    /// The life of a transaction allows this step.
    fn may_become(self, to: Word) -> bool {
        match self {
            Word::Active => matches!(
                to,
                Word::Prepared | Word::Committing | Word::Aborted | Word::Moved
            ),
            Word::Prepared => matches!(to, Word::Committing | Word::Aborted | Word::Moved),
            Word::Committing => matches!(to, Word::Committed(_)),
            Word::Other => to == Word::Active,
            Word::Committed(_) | Word::Aborted | Word::Moved => false,
        }
    }

    /// No change of this word can come any more (the side table may know more).
    pub fn is_ended(self) -> bool {
        matches!(self, Word::Committed(_) | Word::Aborted | Word::Moved)
    }
}

pub(crate) struct Ring {
    words: Box<[AtomicU64]>,
    bits: u32,
    /// Ids below have no word any more.
    floor: CachePadded<AtomicU64>,
    /// Ids below may use their word.
    ready: CachePadded<AtomicU64>,
}

impl Ring {
    pub fn new(bits: u32, first: TxnId) -> Ring {
        assert!(!first.is_frozen(), "the frozen id has no word");
        let len = 1u64 << bits;
        Ring {
            words: (0..len).map(|_| AtomicU64::new(0)).collect(),
            bits,
            floor: CachePadded::new(AtomicU64::new(first.get())),
            ready: CachePadded::new(AtomicU64::new(first.get() + len)),
        }
    }

    pub fn len(&self) -> u64 {
        1 << self.bits
    }

    #[inline]
    pub fn floor(&self) -> u64 {
        self.floor.load(Ordering::Acquire)
    }

    #[inline]
    pub fn ready(&self) -> u64 {
        self.ready.load(Ordering::Acquire)
    }

    /// Gives the words below `floor` free for the next lap.
    pub fn move_floor(&self, floor: u64) {
        let (before, ready) = (self.floor(), self.ready());
        assert!(
            before <= floor && floor <= ready,
            "the floor goes from {before} to {floor}, words are given out to {ready}"
        );
        assert_eq!(ready, before + self.len(), "words given out");
        self.floor.store(floor, Ordering::Release);
        self.ready.store(floor + self.len(), Ordering::Release);
    }

    #[inline]
    fn slot(&self, txn: u64) -> &AtomicU64 {
        &self.words[(txn & (self.len() - 1)) as usize]
    }

    #[inline]
    fn tagged(&self, txn: u64, word: Word) -> u64 {
        (txn >> self.bits & TAG_MASK) << TAG_SHIFT | word.pack()
    }

    /// What the ring says of an id.
    #[inline]
    pub fn get(&self, txn: TxnId) -> Word {
        let w = self.slot(txn.get()).load(Ordering::Acquire);
        if w >> TAG_SHIFT == txn.get() >> self.bits & TAG_MASK {
            Word::unpack(w)
        } else {
            Word::Other
        }
    }

    /// Writes an id's word; only its own transaction does so.
    #[inline]
    pub fn set(&self, txn: TxnId, word: Word) {
        debug_assert!(self.get(txn).may_become(word), "{txn} says {word:?}");
        debug_assert!(
            (self.floor()..self.ready()).contains(&txn.get()),
            "the word of {txn} is another's"
        );
        self.slot(txn.get())
            .store(self.tagged(txn.get(), word), Ordering::Release);
    }

    /// Changes an id's word if it still says `from`.
    pub fn change(&self, txn: TxnId, from: Word, to: Word) -> bool {
        debug_assert!(from.may_become(to), "{txn}: {from:?} to {to:?}");
        self.slot(txn.get())
            .compare_exchange(
                self.tagged(txn.get(), from),
                self.tagged(txn.get(), to),
                Ordering::AcqRel,
                Ordering::Acquire,
            )
            .is_ok()
    }
}
