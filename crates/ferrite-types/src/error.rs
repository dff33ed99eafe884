//! What can go wrong, as values. Broken invariants are not here: they panic, and the
//! boundary turns a panic into an abort.

/// Result of the core.
pub type Result<T> = core::result::Result<T, Error>;

/// An operating error. Each says what is true afterwards.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Nothing has such a key, name or id. Nothing changed.
    #[error("not found")]
    NotFound,
    /// A value out of line that a row names is not there, or cannot be read: the row was changed since, or it
    /// is damaged; the text says what was found in its place.
    #[error("a row names a value out of line that is not there: {0}")]
    ValueGone(String),
    /// A table of that name is there. Nothing changed.
    #[error("already exists")]
    Exists,
    /// A unique key would be violated. Nothing of the row remains.
    #[error("duplicate key")]
    Duplicate,
    /// A lock was not granted in time. The statement is to be rolled back.
    #[error("lock wait timeout exceeded")]
    LockTimeout,
    /// This transaction was chosen to break a cycle; its caller rolls it back.
    #[error("deadlock found; this transaction is rolled back")]
    Deadlock,
    /// KILL, or the server asked a wait to end. The statement is to be rolled back.
    #[error("interrupted")]
    Interrupted,
    /// A row is locked and the caller did not want to wait (NOWAIT is a timeout of 0).
    #[error("row is locked by another transaction")]
    Skipped,
    /// The transaction was rolled back earlier, or in part, and only a rollback is left of it.
    #[error("transaction was already rolled back, or in part: only a rollback is possible")]
    RolledBack,
    /// Snapshot isolation: the row changed after the snapshot was taken.
    #[error("record changed since the snapshot was taken")]
    RecordChanged,
    /// The snapshot was ended to keep history within its limit.
    #[error("snapshot too old: history limit reached")]
    SnapshotTooOld,
    /// No space is left on the device. Nothing changed; reads go on.
    #[error("disk full: {0}")]
    DiskFull(String),
    /// The system has no open file, or no memory for one, to give for now. Nothing was tried and
    /// nothing changed; what is open goes on.
    #[error("short of a system resource: {0}")]
    Shortage(String),
    /// The operating system refused an operation; the text names file and call.
    #[error("I/O error: {0}")]
    Io(String),
    /// Bytes read back fail their checks; the text names file and place.
    #[error("corrupt data: {0}")]
    Corrupt(String),
    /// Files of another format, or not Ferrite's. Nothing was written.
    #[error("format: {0}")]
    Format(String),
    /// Another process holds the files.
    #[error("in use: {0}")]
    InUse(String),
    /// A setting was refused; the text names it.
    #[error("bad setting: {0}")]
    BadConfig(String),
    /// The row does not fit a page.
    #[error("row too big")]
    RowTooBig,
    /// A key is longer than the format allows.
    #[error("key too long")]
    KeyTooLong,
    /// The lock table reached its memory limit.
    #[error("lock table is full")]
    LockTableFull,
    /// The table was redefined after the read view was opened.
    #[error("table definition changed since the snapshot")]
    TableChanged,
    /// The feature is not there.
    #[error("not supported: {0}")]
    Unsupported(String),
    /// A foreign key does not fit its tables. Nothing changed.
    #[error("foreign key constraint {} is incorrectly formed", .0.key)]
    ForeignKey(Box<ForeignMisfit>),
    /// Other tables' foreign keys refer to the table; the text names one. Nothing changed.
    #[error("referenced by a foreign key of table {0}")]
    Referenced(String),
    /// The update would change nothing.
    #[error("nothing changed")]
    Same,
    /// The caller broke a rule of the boundary.
    #[error("internal misuse: {0}")]
    Bug(String),
}

/// What is wrong with a foreign key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForeignMisfit {
    /// Its number among those asked for; `u32::MAX`: it is another table's, or was there before.
    pub at: u32,
    /// Why, as a number of the boundary.
    pub reason: u32,
    /// Its name.
    pub key: String,
    /// The child's column.
    pub column: String,
    /// The parent's column.
    pub other: String,
}
