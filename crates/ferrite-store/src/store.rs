use ferrite_types::{Error, IndexId, Lsn, PageId, Result};

use crate::batch::{Batch, Placed};
use crate::blob::PageHeader;
use crate::deps::{Arc, Storage};
use crate::directory::Directory;
use crate::word::Location;

/// How a store is made and opened.
#[derive(Clone, Debug)]
pub struct StoreConfig {
    /// Bypass the operating system's cache for page blobs.
    pub direct: bool,
    /// Largest size of one `store.NNNN`; fixed at creation.
    pub file_bytes: u64,
    /// Size of a segment, the step in which files grow; fixed at creation.
    pub segment_bytes: u64,
    /// Identity of the database, fixed at creation.
    pub uuid: [u8; 16],
    /// Seconds since 1970, recorded at creation.
    pub created: u64,
}

impl Default for StoreConfig {
    fn default() -> Self {
        StoreConfig {
            direct: false,
            file_bytes: 1 << 30,
            segment_bytes: 64 << 20,
            uuid: [0; 16],
            created: 0,
        }
    }
}

/// Which map dump a checkpoint starts from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MapBase {
    /// `map.0` or `map.1`.
    pub slot: u8,
    /// Map changes logged at or after this position are not necessarily in it.
    pub lsn: Lsn,
    /// Number of the dump, ascending.
    pub sequence: u64,
    /// Length of the dump.
    pub bytes: u64,
    /// Checksum over the chunks' checksums.
    pub crc: u32,
}

/// Where recovery starts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Checkpoint {
    /// All changes before it are in the pages on disk.
    pub redo_start: Lsn,
    /// The map to start from.
    pub map: MapBase,
    /// What the engine wants back; not looked at here.
    pub state: Vec<u8>,
}

/// Figures since opening.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct StoreStats {
    /// Pages read from disk.
    pub pages_read: u64,
    /// Bytes read for them.
    pub bytes_read: u64,
    /// Pages written.
    pub pages_written: u64,
    /// Bytes written for them (whole granules).
    pub bytes_written: u64,
    /// Of the pages written, those packed with a codec.
    pub pages_packed: u64,
    /// Batches written.
    pub batches: u64,
    /// Runs the batches went to: one write each.
    pub runs: u64,
    /// Flushes of store files.
    pub syncs: u64,
    /// Segments added.
    pub segments_grown: u64,
    /// Segments added by a writer that found no room.
    pub grown_in_foreground: u64,
    /// Bytes given back to the file system.
    pub bytes_given_back: u64,
    /// Pages that failed their checks.
    pub corrupt_pages: u64,
}

/// The page store of one database.
pub struct Store {
    directory: Directory,
}

impl Store {
    /// Makes an empty store; refuses when there is one.
    pub fn create(_storage: Arc<dyn Storage>, _cfg: StoreConfig) -> Result<Store> {
        todo!()
    }
    /// Opens a store.
    pub fn open(_storage: Arc<dyn Storage>, _cfg: StoreConfig) -> Result<(Store, Checkpoint)> {
        todo!()
    }
    /// The page directory.
    #[inline]
    pub fn directory(&self) -> &Directory {
        &self.directory
    }
    /// A page id of that index, its word 0.
    pub fn alloc_page(&self, _index: IndexId, _log_extent: &mut dyn FnMut(&[u8])) -> PageId {
        todo!()
    }
    /// Gives an id back to its index. Its word is 0 already.
    pub fn page_unused(&self, _page: PageId) {
        todo!()
    }
    /// The index that owns the page's extent; 0 when nobody does.
    #[inline]
    pub fn index_of(&self, page: PageId) -> IndexId {
        self.directory.owner(page)
    }
    /// Ids of the index in use: those whose word is not 0, ascending.
    pub fn pages_of(&self, _index: IndexId) -> Vec<PageId> {
        todo!()
    }
    /// How many ids of the index are handed out.
    pub fn page_count(&self, _index: IndexId) -> u64 {
        todo!()
    }
    /// Takes all extents from an index.
    pub fn release_index(&self, _index: IndexId) {
        todo!()
    }
    /// All owners of extents, ascending.
    pub fn indexes(&self) -> Vec<IndexId> {
        todo!()
    }
    /// Replays the body of an EXTENT record.
    pub fn apply_extent(&self, _body: &[u8]) -> Result<()> {
        todo!()
    }
    /// Reads a page.
    pub fn read_page(&self, _page: PageId, _at: Location, _out: &mut [u8]) -> Result<PageHeader> {
        todo!()
    }
    /// A batch buffer.
    pub fn new_batch(&self) -> Batch {
        Batch {}
    }
    /// Writes and syncs a batch.
    pub fn write_batch(&self, _batch: &Batch, _placed: &mut Vec<Placed>) -> Result<()> {
        todo!()
    }
    /// Appends the body of a MAP_DELTA record to `out`.
    pub fn encode_map_delta(_placed: &[(PageId, Location)], _out: &mut Vec<u8>) {
        todo!()
    }
    /// Calls `each` for every entry of a MAP_DELTA body.
    pub fn decode_map_delta(_body: &[u8], _each: &mut dyn FnMut(PageId, Location)) -> Result<()> {
        Err(Error::NotFound)
    }
    /// The blob becomes free space once the durable position is past `after`.
    pub fn retire(&self, _old: Location, _after: Lsn) {
        todo!()
    }
    /// The blob is free space now.
    pub fn free_now(&self, _at: Location) {
        todo!()
    }
    /// Frees what was retired before `durable`.
    pub fn reclaim(&self, _durable: Lsn) {
        todo!()
    }
    /// Bytes retired and not free yet.
    pub fn retired_bytes(&self) -> u64 {
        todo!()
    }
    /// Bytes free for new blobs.
    pub fn free_bytes(&self) -> u64 {
        todo!()
    }
    /// Bytes of blobs: live, retired and being written.
    pub fn used_bytes(&self) -> u64 {
        todo!()
    }
    /// Bytes of all store files.
    pub fn file_bytes(&self) -> u64 {
        todo!()
    }
    /// Recovery: the page is there; [`Location::NONE`] clears.
    pub fn set_location(&self, _page: PageId, _at: Location) {
        todo!()
    }
    /// Recovery: the directory is complete.
    pub fn finish_recovery(&self) -> Result<()> {
        todo!()
    }
    /// Writes the map to the alternate map file.
    pub fn dump_map(
        &self,
        _base_lsn: Lsn,
        _home_of: &dyn Fn(PageId, u32) -> Option<Location>,
    ) -> Result<MapBase> {
        todo!()
    }
    /// Writes a checkpoint to the alternate slot.
    pub fn write_checkpoint(&self, _c: &Checkpoint) -> Result<()> {
        todo!()
    }
    /// Adds a segment when free space is low; true if it did.
    pub fn grow_ahead(&self) -> Result<bool> {
        todo!()
    }
    /// Gives free space back to the file system; the bytes given.
    pub fn shrink(&self) -> Result<u64> {
        todo!()
    }
    /// Figures since opening.
    pub fn stats(&self) -> StoreStats {
        todo!()
    }
}
