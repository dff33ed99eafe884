//! Lock modes and which of them go together.
//!
//! What an owner holds on one key is a set of bits; what it asks for is a set too.
//!
//! Invariants (as InnoDB): shared goes with shared; gap locks never conflict with gap
//! locks; an insert intention waits for gap locks of others and blocks nobody; a next-key
//! lock is a record lock and a gap lock; IX and IS go together, S and X mean the table.

use ferrite_types::IndexId;

/// Strength of a row lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Others may read-lock too.
    Shared,
    /// Nobody else may lock.
    Exclusive,
}

/// What of a key's surroundings a lock covers. The gap is the one before the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Span {
    /// The record, not the gap before it.
    Record,
    /// The gap before the key, not the record. Protects against inserts only.
    Gap,
    /// Record and gap.
    NextKey,
    /// About to insert into the gap before the key. Waits for gap locks of others; nothing
    /// is kept once it is granted.
    InsertIntention,
}

/// A row lock that somebody asks for: on which key, how strong, and how far around it.
#[derive(Clone, Copy, Debug)]
pub struct LockRequest<'a> {
    /// The index of the key.
    pub index: IndexId,
    /// The encoded key.
    pub key: &'a [u8],
    /// How strong.
    pub mode: Mode,
    /// What around the key.
    pub span: Span,
}

impl<'a> LockRequest<'a> {
    /// A request.
    #[inline]
    pub const fn new(index: IndexId, key: &'a [u8], mode: Mode, span: Span) -> LockRequest<'a> {
        LockRequest {
            index,
            key,
            mode,
            span,
        }
    }

    #[inline]
    pub(crate) fn mask(&self) -> Mask {
        row_mask(self.mode, self.span)
    }
}

/// Lock on a whole table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TableMode {
    /// Rows will be read-locked.
    IntentShared,
    /// Rows will be changed.
    IntentExclusive,
    /// Nobody may change rows (LOCK TABLES ... READ).
    Shared,
    /// Nobody else may do anything (LOCK TABLES ... WRITE).
    Exclusive,
}

/// A set of locks on one key.
pub(crate) type Mask = u16;

pub(crate) const REC_S: Mask = 1;
pub(crate) const REC_X: Mask = 1 << 1;
pub(crate) const GAP_S: Mask = 1 << 2;
pub(crate) const GAP_X: Mask = 1 << 3;
pub(crate) const INSERT: Mask = 1 << 4;
pub(crate) const TAB_IS: Mask = 1 << 5;
pub(crate) const TAB_IX: Mask = 1 << 6;
pub(crate) const TAB_S: Mask = 1 << 7;
pub(crate) const TAB_X: Mask = 1 << 8;

pub(crate) const REC: Mask = REC_S | REC_X;
pub(crate) const GAP: Mask = GAP_S | GAP_X;
pub(crate) const TAB: Mask = TAB_IS | TAB_IX | TAB_S | TAB_X;

/// Debug builds look at the whole of sets of locks that are no longer than this.
pub(crate) const CHECKED_MOST: usize = 64;

/// The bits of a row lock.
#[inline]
pub(crate) fn row_mask(mode: Mode, span: Span) -> Mask {
    let (rec, gap) = match mode {
        Mode::Shared => (REC_S, GAP_S),
        Mode::Exclusive => (REC_X, GAP_X),
    };
    match span {
        Span::Record => rec,
        Span::Gap => gap,
        Span::NextKey => rec | gap,
        Span::InsertIntention => INSERT,
    }
}

/// The bit of a table lock.
#[inline]
pub(crate) fn table_mask(mode: TableMode) -> Mask {
    match mode {
        TableMode::IntentShared => TAB_IS,
        TableMode::IntentExclusive => TAB_IX,
        TableMode::Shared => TAB_S,
        TableMode::Exclusive => TAB_X,
    }
}

/// Must a request wait while another owner holds (or waits for) `held`?
#[inline]
pub(crate) const fn conflicts(asked: Mask, held: Mask) -> bool {
    if asked & REC_X != 0 && held & REC != 0 {
        return true;
    }
    if asked & REC_S != 0 && held & REC_X != 0 {
        return true;
    }
    if asked & INSERT != 0 && held & GAP != 0 {
        return true;
    }
    asked & TAB != 0 && table_conflicts(asked, held)
}

const fn table_conflicts(asked: Mask, held: Mask) -> bool {
    let mut against = 0;
    if asked & TAB_IS != 0 {
        against |= TAB_X;
    }
    if asked & TAB_IX != 0 {
        against |= TAB_S | TAB_X;
    }
    if asked & TAB_S != 0 {
        against |= TAB_IX | TAB_X;
    }
    if asked & TAB_X != 0 {
        against |= TAB;
    }
    against & held != 0
}

/// Each of the two waits for the other.
const fn conflict_both_ways(a: Mask, b: Mask) -> bool {
    conflicts(a, b) && conflicts(b, a)
}

/// Neither of the two waits for the other.
const fn go_together(a: Mask, b: Mask) -> bool {
    !conflicts(a, b) && !conflicts(b, a)
}

// The table of InnoDB, held at compile time: a wrong entry is a lost update or a phantom.
const _: () = assert!(go_together(REC_S, REC_S), "readers read together");
const _: () = assert!(conflict_both_ways(REC_X, REC_X), "one writer a row");
const _: () = assert!(conflict_both_ways(REC_X, REC_S), "no dirty locking read");
const _: () = assert!(go_together(GAP, GAP) && go_together(GAP, REC), "gaps");
const _: () = assert!(
    conflicts(INSERT, GAP_S) && conflicts(INSERT, GAP_X),
    "phantoms"
);
const _: () = assert!(!conflicts(REC | GAP | INSERT, INSERT), "it blocks nobody");
const _: () = assert!(go_together(INSERT, REC), "a row is not its gap");
const _: () = assert!(go_together(TAB_IS | TAB_IX, TAB_IS | TAB_IX), "intentions");
const _: () = assert!(go_together(TAB_IS, TAB_S) && go_together(TAB_S, TAB_S));
const _: () = assert!(
    conflict_both_ways(TAB_IX, TAB_S),
    "a table read-locked changes"
);
const _: () = assert!(conflict_both_ways(TAB_X, TAB_IS) && conflict_both_ways(TAB_X, TAB_IX));
const _: () = assert!(conflict_both_ways(TAB_X, TAB_S) && conflict_both_ways(TAB_X, TAB_X));
const _: () = assert!(
    go_together(TAB, REC | GAP | INSERT),
    "rows and tables apart"
);
const _: () = assert!(
    REC & GAP == 0 && (REC | GAP | INSERT) & TAB == 0,
    "own bits"
);
// What is held covers what it is as strong as, and an insert intention is asked each time.
const _: () = assert!(missing(REC_S, REC_X) == 0 && missing(REC_X, REC_S) == REC_X);
const _: () = assert!(missing(INSERT, Mask::MAX) == INSERT, "asked each time");
const _: () = assert!(missing(REC | GAP, REC) == GAP && missing(TAB, TAB_X) == 0);
const _: () = assert!(missing(TAB_X, TAB_S | TAB_IX) == TAB_X);

/// The part of a request that what the owner already holds does not cover. An insert
/// intention is never covered: the gap may have been locked since.
#[inline]
pub(crate) const fn missing(asked: Mask, held: Mask) -> Mask {
    let mut covered = held & !INSERT;
    if held & REC_X != 0 {
        covered |= REC_S;
    }
    if held & GAP != 0 {
        covered |= GAP;
    }
    if held & TAB_X != 0 {
        covered |= TAB;
    }
    if held & (TAB_S | TAB_IX) != 0 {
        covered |= TAB_IS;
    }
    asked & !covered
}

/// For display: the strongest mode in a set is exclusive.
pub(crate) fn is_exclusive(mask: Mask) -> bool {
    mask & (REC_X | INSERT | TAB_X | TAB_IX) != 0 || (mask & REC == 0 && mask & GAP_X != 0)
}

/// For display: InnoDB's words for a set.
pub(crate) fn words(mask: Mask) -> &'static str {
    if mask & TAB_X != 0 {
        return "X";
    }
    if mask & TAB_S != 0 {
        return if mask & TAB_IX != 0 { "S,IX" } else { "S" };
    }
    if mask & TAB_IX != 0 {
        return "IX";
    }
    if mask & TAB_IS != 0 {
        return "IS";
    }
    if mask & INSERT != 0 {
        return "X,GAP,INSERT_INTENTION";
    }
    let rec = mask & REC != 0;
    let gap = mask & GAP != 0;
    match (rec, gap, is_exclusive(mask)) {
        (true, true, true) => "X",
        (true, true, false) => "S",
        (true, false, true) => "X,REC_NOT_GAP",
        (true, false, false) => "S,REC_NOT_GAP",
        (false, _, true) => "X,GAP",
        (false, _, false) => "S,GAP",
    }
}
/// What goes when a transaction is prepared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AtPrepare {
    /// What guards reads only.
    Reads,
    /// All but what records themselves say. For a replica: its decision stands behind transactions
    /// that met only the locks of changes where they ran first, and would never come past others.
    AllButChanges,
}
