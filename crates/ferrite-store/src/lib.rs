//! Where a page lives is known here alone.
//!
//! One shared store of preallocated files `store.NNNN`, divided in segments of 1 KiB granules, four
//! to a block. A page is written as a checksummed, self-describing blob into a free run, out of
//! place, in batches of up to 1 MiB with one sync per batch. The page directory says for every page
//! id whether the page is in memory (frame number) or on disk (location).
//!
//! # What is where
//! - `word`, `directory`: locations, the 64-bit word, the array of words and extent owners.
//! - `blob`, `pack`, `batch`: one page's image on disk; compression; many in one buffer.
//! - `runs`, `segment`, `holes`, `retired`: free space; that the files have no space for; space that becomes free when a log position is durable.
//! - `extents`: page ids, handed out in extents of 64 to indexes.
//! - `files`: the segment files; growing and giving back. `damaged`: as far as they are there.
//! - `creation`: the mark that tells a broken-off creation from a database without superblock.
//! - `superblock`, `checkpoint`, `map`, `delta`, `page_lsns`: what else is on disk, and the log
//!   records.
//! - `reserve`: space kept for the next checkpoint.
//! - `store`, `lifecycle`, `space`: the crate's interface: pages and ids; open, recover and
//!   checkpoint; space.
//! - `marking`: free space at a start.
//! - `page_delta`, `deltas`: what has changed in a page since its blob was written.
//! - `together_plan`, `together`: many pages read at once.
//! - `tier`, `second_tier`: copies of blobs on a faster device.
//! - `backup`: the pin of a backup, what it copies, and the files laid out again from it.
//! - `held`, `keeping`: blobs that snapshots hold.
//! - `scrub`: free space overwritten with zeroes.
//! - `scan`: rebuilds the map from the blobs themselves.
//!
//! # Invariants
//! 1. A granule belongs to at most one of: the blob of a page, a retired blob, a batch being
//!    written, free space. All of it that is not free is known from the directory, and from
//!    snapshots, after a restart; nothing on disk describes free space.
//! 2. A blob is never overwritten before the record that says the page moved away is
//!    durable ([`Store::retire`], [`Store::reclaim`]).
//! 3. Nothing on disk is believed without a checksum; a failed check is a value naming the
//!    file and the place, never a panic.
//!
//! # The life of a page's move
//! 1. [`Store::write_batch`] puts new blobs into free runs and syncs them.
//! 2. The caller appends one record with [`Store::encode_map_delta`].
//! 3. Then it changes the words or homes, and retires each old blob with the record's end.
//! 4. When the log is durable up to there, [`Store::reclaim`] makes the old blobs free space.
//!
//! A caller that dies before 3 is durable finds the old blobs untouched.
//!
//! # Lock order
//! extent shard > extent pool. The space lock, the retired queue, the file table and the
//! checkpoint state are leaves, except that growing takes space lock after the growth lock.
//! The second tier's ring goes before a shard of its index. No lock is held over data reads and writes.
#![forbid(unsafe_code)]

mod areas;
mod backup;
mod batch;
mod blob;
mod checkpoint;
mod creation;
mod damaged;
mod delta;
mod deltas;
mod deps;
mod directory;
mod extents;
mod files;
#[doc(hidden)]
pub mod fuzz;
mod held;
mod holes;
mod image;
mod keeping;
mod lifecycle;
#[cfg(all(test, loom))]
mod loom_tests;
mod map;
mod marking;
mod pack;
mod page_delta;
mod page_lsns;
mod reserve;
mod retired;
mod runs;
mod scan;
mod scratch;
mod scrub;
mod second_tier;
mod segment;
mod slots;
mod space;
mod store;
mod superblock;
mod tier;
mod together;
mod together_plan;
mod wire;
mod word;

pub use backup::{BlobChecker, CopiedFile, Generation, Layout};
pub use batch::{Batch, Placed, Pushed, Staged, BATCH_BYTES};
pub use blob::{PageHeader, StoredBlob};
pub use checkpoint::Checkpoint;
pub use creation::may_create;
pub use directory::{Directory, EXTENT_PAGES};
pub use files::is_store_file;
pub use held::{GatheredRuns, GranuleRuns, StillHeld};
pub use image::{PageImage, BLOB_HEADER_BYTES};
pub use lifecycle::Survey;
pub use map::MapBase;
pub use page_delta::{changes_that_fit, ApplyChanges, PageRead, MAX_DELTA_BYTES};
pub use retired::PinOwner;
pub use scan::{rebuild_by_scan, FoundPage, ScanResult};
pub use slots::PassedOver;
pub use space::Ahead;
pub use store::{Store, StoreConfig, StoreStats};
pub use tier::{TierConfig, TierStats};
pub use together::Arrived;
pub use together_plan::{TogetherReader, Wanted};
pub use word::{Location, Word, GRANULE_BYTES};
