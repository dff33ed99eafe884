//! Identities. Each is a number with one meaning; mixing two of them is a type error.

use core::fmt;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident, $repr:ty) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        #[repr(transparent)]
        pub struct $name(pub $repr);

        impl $name {
            /// The raw number.
            #[inline]
            pub const fn get(self) -> $repr {
                self.0
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({})"), self.0)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}", self.0)
            }
        }
    };
}

id!(
    /// A logical page. 0 is never a page; page 1 is the root of the dictionary tree.
    PageId,
    u32
);
id!(
    /// A B+tree. 0 is none, 1 is the dictionary.
    IndexId,
    u32
);
id!(
    /// A table. 0 is none.
    TableId,
    u64
);
id!(
    /// A position in the redo log: count of payload bytes written since the database was
    /// created (block headers are not counted).
    Lsn,
    u64
);
id!(
    /// A transaction that changed something; handed out at its first change, ascending.
    /// 0 means "committed before anybody who could ask" (frozen). 48 bits on disk.
    TxnId,
    u64
);
id!(
    /// How much of a transaction's undo list is before a point, in bytes: what a savepoint is.
    UndoPosition,
    u64
);
id!(
    /// Commit sequence number: the order in which transactions became visible.
    Csn,
    u64
);

id!(
    /// Where an older state of a row is kept, in memory. 48 bits; 0 is none. What the bits mean is
    /// the business of the version store alone.
    VersionAddr,
    u64
);

impl VersionAddr {
    /// No older state.
    pub const NONE: VersionAddr = VersionAddr(0);
    /// Largest address that fits the record header.
    pub const MAX: VersionAddr = VersionAddr((1 << 48) - 1);

    /// No older state?
    #[inline]
    pub const fn is_none(self) -> bool {
        self.0 == 0
    }
}

impl UndoPosition {
    /// Before all undo.
    pub const START: UndoPosition = UndoPosition(0);
    /// Behind all undo.
    pub const END: UndoPosition = UndoPosition(u64::MAX);
}

impl PageId {
    /// No page.
    pub const NONE: PageId = PageId(0);
}

impl TxnId {
    /// No transaction: the record is visible to everybody.
    pub const FROZEN: TxnId = TxnId(0);
    /// Largest id that fits the record header.
    pub const MAX: TxnId = TxnId((1 << 48) - 1);

    /// True for the frozen id.
    #[inline]
    pub const fn is_frozen(self) -> bool {
        self.0 == 0
    }
}

impl Lsn {
    /// The start of all logs.
    pub const ZERO: Lsn = Lsn(0);
    /// Later than every position.
    pub const MAX: Lsn = Lsn(u64::MAX);
}
