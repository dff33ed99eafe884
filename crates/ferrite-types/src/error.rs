//! What can go wrong, as values. Broken invariants are not here: they panic, and the
//! boundary turns a panic into an abort.

use core::fmt;

/// Result of the core.
pub type Result<T> = core::result::Result<T, Error>;

/// An operating error. Each says what is true afterwards.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Error {
    /// Nothing has such a key, name or id. Nothing changed.
    NotFound,
    /// A table of that name is there. Nothing changed.
    Exists,
    /// A unique key would be violated. Nothing of the row remains.
    Duplicate,
    /// A lock was not granted in time. The statement is to be rolled back.
    LockTimeout,
    /// This transaction was chosen to break a cycle; its caller rolls it back.
    Deadlock,
    /// KILL, or the server asked a wait to end. The statement is to be rolled back.
    Interrupted,
    /// A row is locked and the caller did not want to wait (NOWAIT is a timeout of 0).
    Skipped,
    /// The transaction was rolled back earlier and must be ended first.
    RolledBack,
    /// Snapshot isolation: the row changed after the snapshot was taken.
    RecordChanged,
    /// The snapshot was ended to keep history within its limit.
    SnapshotTooOld,
    /// No space is left on the device. Nothing changed; reads go on.
    DiskFull(String),
    /// The operating system refused an operation; the text names file and call.
    Io(String),
    /// Bytes read back fail their checks; the text names file and place.
    Corrupt(String),
    /// Files of another format, or not Ferrite's. Nothing was written.
    Format(String),
    /// Another process holds the files.
    InUse(String),
    /// A setting was refused; the text names it.
    BadConfig(String),
    /// The row does not fit a page.
    RowTooBig,
    /// A key is longer than the format allows.
    KeyTooLong,
    /// The lock table reached its memory limit.
    LockTableFull,
    /// The table was redefined after the read view was opened.
    TableChanged,
    /// The feature is not there.
    Unsupported(String),
    /// The update would change nothing.
    Same,
    /// The caller broke a rule of the boundary.
    Bug(String),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::NotFound => write!(f, "not found"),
            Error::Exists => write!(f, "already exists"),
            Error::Duplicate => write!(f, "duplicate key"),
            Error::LockTimeout => write!(f, "lock wait timeout exceeded"),
            Error::Deadlock => write!(f, "deadlock found; this transaction gives way"),
            Error::Interrupted => write!(f, "interrupted"),
            Error::Skipped => write!(f, "row is locked by another transaction"),
            Error::RolledBack => write!(f, "transaction was rolled back before"),
            Error::RecordChanged => write!(f, "record changed since the snapshot was taken"),
            Error::SnapshotTooOld => write!(f, "snapshot too old: history limit reached"),
            Error::RowTooBig => write!(f, "row too big"),
            Error::KeyTooLong => write!(f, "key too long"),
            Error::LockTableFull => write!(f, "lock table is full"),
            Error::TableChanged => write!(f, "table definition changed since the snapshot"),
            Error::Same => write!(f, "nothing changed"),
            Error::DiskFull(t) => write!(f, "disk full: {t}"),
            Error::Io(t) => write!(f, "I/O error: {t}"),
            Error::Corrupt(t) => write!(f, "corrupt data: {t}"),
            Error::Format(t) => write!(f, "format: {t}"),
            Error::InUse(t) => write!(f, "in use: {t}"),
            Error::BadConfig(t) => write!(f, "bad setting: {t}"),
            Error::Unsupported(t) => write!(f, "not supported: {t}"),
            Error::Bug(t) => write!(f, "internal misuse: {t}"),
        }
    }
}

impl std::error::Error for Error {}
