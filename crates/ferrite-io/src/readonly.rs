//! A directory that may be looked at and not touched, for tools.
//!
//! Invariants: whatever mode a file is asked for, it is opened for reading; every call that
//! would change something is an error and changes nothing. Locking: none.

use ferrite_sync::Arc;
use ferrite_types::{Error, Result};

use crate::pass_on::{pass_on_file, pass_on_storage};
use crate::{LockGuard, OpenMode, Storage, StorageFile};

/// Reads through to another storage; see the head of the file.
pub struct ReadOnly {
    inner: Arc<dyn Storage>,
}

struct ReadOnlyFile {
    inner: Arc<dyn StorageFile>,
}

fn refused<T>(call: &str, name: &str) -> Result<T> {
    Err(Error::Bug(format!(
        "{call} {name}: this directory is only read"
    )))
}

impl ReadOnly {
    /// A view of `inner` that cannot change it.
    pub fn new(inner: Arc<dyn Storage>) -> ReadOnly {
        ReadOnly { inner }
    }
}

impl Storage for ReadOnly {
    fn open(&self, name: &str, mode: OpenMode, direct: bool) -> Result<Arc<dyn StorageFile>> {
        if mode == OpenMode::CreateNew {
            return refused("create", name);
        }
        let inner = self.inner.open(name, OpenMode::ReadOnly, direct)?;
        Ok(Arc::new(ReadOnlyFile { inner }))
    }

    fn remove(&self, name: &str) -> Result<()> {
        refused("remove", name)
    }

    fn rename(&self, from: &str, _to: &str) -> Result<()> {
        refused("rename", from)
    }

    fn sync_dir(&self) -> Result<()> {
        refused("sync", "directory")
    }

    fn lock_exclusive(&self) -> Result<LockGuard> {
        refused("lock", "directory")
    }

    pass_on_storage!(exists, list, lock_file, free_bytes, stats, key_check);
}

impl StorageFile for ReadOnlyFile {
    fn write_at(&self, _buf: &[u8], _offset: u64) -> Result<()> {
        refused("write", self.name())
    }

    fn sync_data(&self) -> Result<()> {
        refused("sync", self.name())
    }

    fn allocate(&self, _offset: u64, _len: u64) -> Result<()> {
        refused("allocate", self.name())
    }

    fn truncate(&self, _len: u64) -> Result<()> {
        refused("truncate", self.name())
    }

    fn punch_hole(&self, _offset: u64, _len: u64) -> Result<()> {
        refused("punch hole", self.name())
    }

    pass_on_file!(read_at, len, name, direct_io_active, descriptor, decode);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::SimStorage;

    #[test]
    fn reads_pass_and_nothing_changes() {
        let disk = SimStorage::new(1);
        let file = disk.open("f", OpenMode::CreateNew, false).unwrap();
        file.write_at(b"abc", 0).unwrap();
        let view = ReadOnly::new(Arc::new(disk.clone()));
        let read = view.open("f", OpenMode::ReadWrite, false).unwrap();
        let mut buf = [0; 3];
        read.read_at(&mut buf, 0).unwrap();
        assert_eq!((&buf, read.len()), (b"abc", Ok(3)));
        for result in [
            read.write_at(b"x", 0),
            read.sync_data(),
            read.allocate(0, 10),
            read.truncate(0),
            read.punch_hole(0, 1),
            view.remove("f"),
            view.rename("f", "g"),
            view.sync_dir(),
            view.open("g", OpenMode::CreateNew, false).map(|_| ()),
            view.lock_exclusive().map(|_| ()),
        ] {
            assert!(matches!(result, Err(Error::Bug(_))));
        }
        assert_eq!(view.list().unwrap(), ["f"]);
        assert_eq!(disk.contents("f").unwrap(), b"abc");
    }
}
