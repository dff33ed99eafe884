//! The external names this crate uses, in one place.

pub(crate) use ferrite_io::{
    AlignedBuf, LockGuard, OpenMode, ReadPart, ReadQueue, Storage, StorageFile,
};
pub(crate) use ferrite_sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
pub(crate) use ferrite_sync::thread::yield_now;
pub(crate) use ferrite_sync::{kill_point, time, Arc, Counter, Event, Mutex, OnceLock, RwLock};
