//! Stand-ins until ferrite-sync and ferrite-io are there.
#![allow(missing_docs, dead_code)]

use ferrite_types::Result;
pub use std::sync::atomic;
pub use std::sync::{Arc, OnceLock};

pub struct Mutex<T>(std::sync::Mutex<T>);
impl<T> Mutex<T> {
    pub fn new(t: T) -> Self {
        Mutex(std::sync::Mutex::new(t))
    }
    pub fn lock(&self) -> std::sync::MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(|e| e.into_inner())
    }
}

#[derive(Default)]
pub struct Counter(atomic::AtomicU64);
impl Counter {
    pub fn new() -> Self {
        Counter::default()
    }
    pub fn add(&self, n: u64) {
        self.0.fetch_add(n, atomic::Ordering::Relaxed);
    }
    pub fn get(&self) -> u64 {
        self.0.load(atomic::Ordering::Relaxed)
    }
}

#[macro_export]
#[doc(hidden)]
macro_rules! kill_point {
    ($name:literal) => {};
}

pub struct AlignedBuf(Vec<u8>);
impl AlignedBuf {
    pub fn zeroed(n: usize) -> Self {
        AlignedBuf(vec![0; n])
    }
}
impl std::ops::Deref for AlignedBuf {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.0
    }
}
impl std::ops::DerefMut for AlignedBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.0
    }
}

#[derive(Clone, Copy, Default)]
pub struct OpenOptions {
    pub create: bool,
    pub direct: bool,
}
pub trait Storage: Send + Sync {
    fn open(&self, name: &str, options: OpenOptions) -> Result<Arc<dyn StorageFile>>;
    fn exists(&self, name: &str) -> Result<bool>;
    fn list(&self) -> Result<Vec<String>>;
    fn remove(&self, name: &str) -> Result<()>;
    fn rename(&self, from: &str, to: &str) -> Result<()>;
    fn sync_dir(&self) -> Result<()>;
}
pub trait StorageFile: Send + Sync {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<usize>;
    fn write_at(&self, offset: u64, buf: &[u8]) -> Result<()>;
    fn sync_data(&self) -> Result<()>;
    fn allocate(&self, offset: u64, len: u64) -> Result<()>;
    fn punch_hole(&self, offset: u64, len: u64) -> Result<()>;
    fn truncate(&self, len: u64) -> Result<()>;
    fn len(&self) -> Result<u64>;
}
