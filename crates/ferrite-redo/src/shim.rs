//! A stand-in for the rooms below while they are being built; it disappears with them.
#![allow(missing_docs, dead_code)]

pub mod io {
    use ferrite_types::Result;
    use std::sync::Arc;

    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum OpenMode {
        Read,
        ReadWrite,
        Create,
    }

    pub trait StorageFile: Send + Sync {
        fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()>;
        fn write_at(&self, buf: &[u8], offset: u64) -> Result<()>;
        fn sync_data(&self) -> Result<()>;
        fn allocate(&self, len: u64) -> Result<()>;
        fn len(&self) -> Result<u64>;
    }

    pub trait Storage: Send + Sync {
        fn open(&self, name: &str, mode: OpenMode, direct: bool) -> Result<Arc<dyn StorageFile>>;
        fn remove(&self, name: &str) -> Result<()>;
        fn rename(&self, from: &str, to: &str) -> Result<()>;
        fn list(&self) -> Result<Vec<String>>;
        fn sync_dir(&self) -> Result<()>;
    }
}
