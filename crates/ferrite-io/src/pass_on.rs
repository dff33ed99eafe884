//! What a view of a directory, or of a file in it, passes on to what is beneath as it is: written once for all views,
//! each of which names the calls that it has nothing to add to.
//!
//! Locking: none.

/// Calls of [`Storage`](crate::Storage) that go to `self.inner`.
macro_rules! pass_on_storage {
    ($($call:ident),* $(,)?) => { $(pass_on_storage!(@ $call);)* };
    (@ exists) => {
        fn exists(&self, name: &str) -> Result<bool> {
            self.inner.exists(name)
        }
    };
    (@ remove) => {
        fn remove(&self, name: &str) -> Result<()> {
            self.inner.remove(name)
        }
    };
    (@ rename) => {
        fn rename(&self, from: &str, to: &str) -> Result<()> {
            self.inner.rename(from, to)
        }
    };
    (@ list) => {
        fn list(&self) -> Result<Vec<String>> {
            self.inner.list()
        }
    };
    (@ sync_dir) => {
        fn sync_dir(&self) -> Result<()> {
            self.inner.sync_dir()
        }
    };
    (@ lock_exclusive) => {
        fn lock_exclusive(&self) -> Result<$crate::LockGuard> {
            self.inner.lock_exclusive()
        }
    };
    (@ lock_file) => {
        fn lock_file(&self, name: &str, alone: bool) -> Result<Option<$crate::LockGuard>> {
            self.inner.lock_file(name, alone)
        }
    };
    (@ free_bytes) => {
        fn free_bytes(&self) -> Result<u64> {
            self.inner.free_bytes()
        }
    };
    (@ stats) => {
        fn stats(&self) -> &$crate::IoStats {
            self.inner.stats()
        }
    };
    (@ key_check) => {
        fn key_check(&self) -> Option<u64> {
            self.inner.key_check()
        }
    };
}

/// Calls of [`StorageFile`](crate::StorageFile) that go to `self.inner`.
macro_rules! pass_on_file {
    ($($call:ident),* $(,)?) => { $(pass_on_file!(@ $call);)* };
    (@ read_at) => {
        fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
            self.inner.read_at(buf, offset)
        }
    };
    (@ write_at) => {
        fn write_at(&self, buf: &[u8], offset: u64) -> Result<()> {
            self.inner.write_at(buf, offset)
        }
    };
    (@ sync_data) => {
        fn sync_data(&self) -> Result<()> {
            self.inner.sync_data()
        }
    };
    (@ len) => {
        fn len(&self) -> Result<u64> {
            self.inner.len()
        }
    };
    (@ allocate) => {
        fn allocate(&self, offset: u64, len: u64) -> Result<()> {
            self.inner.allocate(offset, len)
        }
    };
    (@ truncate) => {
        fn truncate(&self, len: u64) -> Result<()> {
            self.inner.truncate(len)
        }
    };
    (@ punch_hole) => {
        fn punch_hole(&self, offset: u64, len: u64) -> Result<()> {
            self.inner.punch_hole(offset, len)
        }
    };
    (@ name) => {
        fn name(&self) -> &str {
            self.inner.name()
        }
    };
    (@ direct_io_active) => {
        fn direct_io_active(&self) -> bool {
            self.inner.direct_io_active()
        }
    };
    (@ descriptor) => {
        fn descriptor(&self) -> Option<$crate::Descriptor<'_>> {
            self.inner.descriptor()
        }
    };
    (@ decode) => {
        fn decode(&self, buf: &mut [u8], offset: u64) -> Result<()> {
            self.inner.decode(buf, offset)
        }
    };
}

pub(crate) use {pass_on_file, pass_on_storage};
