//! Some of a directory's files as a directory of their own: those whose names begin with a prefix,
//! under the rest of their names.
//!
//! Invariant: nothing else of the directory is seen or changed. Locking: none.

use ferrite_sync::Arc;
use ferrite_types::{Error, Result};

use crate::pass_on::pass_on_storage;
use crate::{LockGuard, OpenMode, Storage, StorageFile};

/// See the head of the file.
pub struct Prefixed {
    inner: Arc<dyn Storage>,
    prefix: String,
}

impl Prefixed {
    /// The files of `inner` whose names begin with `prefix`.
    pub fn new(inner: Arc<dyn Storage>, prefix: &str) -> Prefixed {
        assert!(!prefix.is_empty(), "all files are no part of a directory");
        Prefixed {
            inner,
            prefix: prefix.to_owned(),
        }
    }

    fn full(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }
}

impl Storage for Prefixed {
    fn open(&self, name: &str, mode: OpenMode, direct: bool) -> Result<Arc<dyn StorageFile>> {
        self.inner.open(&self.full(name), mode, direct)
    }

    fn exists(&self, name: &str) -> Result<bool> {
        self.inner.exists(&self.full(name))
    }

    fn remove(&self, name: &str) -> Result<()> {
        self.inner.remove(&self.full(name))
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        self.inner.rename(&self.full(from), &self.full(to))
    }

    fn list(&self) -> Result<Vec<String>> {
        let names = self.inner.list()?;
        let ours = names.iter().filter_map(|n| n.strip_prefix(&self.prefix));
        Ok(ours.map(str::to_owned).collect())
    }

    fn lock_exclusive(&self) -> Result<LockGuard> {
        Err(Error::Bug("a part of a directory is locked".into()))
    }

    fn lock_file(&self, name: &str, alone: bool) -> Result<Option<LockGuard>> {
        self.inner.lock_file(&self.full(name), alone)
    }

    pass_on_storage!(sync_dir, free_bytes, stats, key_check);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::SimStorage;

    #[test]
    fn only_its_own_files_are_there() {
        let disk = SimStorage::new(1);
        let all: Arc<dyn Storage> = Arc::new(disk);
        all.open("other", OpenMode::CreateNew, false).unwrap();
        let part = Prefixed::new(all.clone(), "a.");
        part.open("x", OpenMode::CreateNew, false).unwrap();
        part.open("y", OpenMode::CreateNew, false).unwrap();
        part.rename("y", "z").unwrap();
        assert_eq!(part.list().unwrap(), ["x", "z"]);
        assert!(!part.exists("other").unwrap() && part.exists("z").unwrap());
        part.remove("x").unwrap();
        assert_eq!(all.list().unwrap(), ["a.z", "other"]);
        assert!(part.lock_exclusive().is_err());
    }
}
