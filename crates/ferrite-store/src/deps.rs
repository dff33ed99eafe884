//! The outside names this room uses, in one place.

pub(crate) use crate::shim::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
pub(crate) use crate::shim::{AlignedBuf, OpenOptions, Storage, StorageFile};
pub(crate) use crate::shim::{Arc, Counter, Mutex, OnceLock};
