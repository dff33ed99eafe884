//! The buffer pool: frames in memory, their latches, replacement and write-back.
//!
//! # What is where
//! - `reserved`: addresses of which a growing part is memory. `arena`: the memory of all frames.
//! - `frame`: one frame's header words and their named transitions. `frames`: the headers of all.
//! - `guard`: what a caller holds: a shared or exclusive latch on a leaf, or a reference
//!   to an immutable inner node under an epoch pin.
//! - `pool`: frames and directory, loading. `access`: from a page id to a guard.
//! - `change`: logging, new pages, replacing inner nodes, freeing. `changes`,
//!   `leaf_changes`: what has changed in a leaf since it was written. `kept_deltas`: the same of leaves that have left memory.
//! - `evict`: free frames, the clock hand. `free_frames`, `resize`: more or fewer frames, while all
//!   work goes on.
//! - `ahead_state`, `read_ahead`: pages read before
//!   they are asked for.
//! - `kept`, `change_buffer`, `merge_kept`: changes of leaves that are not in memory, and the reading of those leaves in time.
//! - `row_cache`, `single_row`: single rows of leaves that are not in memory.
//! - `dirty_queue`: what is written first. `writer_state`, `write_copy`, `write`: write-back in batches, map
//!   deltas, the writer thread; `flush`: in the caller's. `room`: the same on a full disk.
//!
//! # Invariants
//! 1. A page's directory word names its frame while it is resident; only the holder of the
//!    frame's exclusive latch changes that word.
//! 2. A leaf's bytes are read under its shared latch and changed under its exclusive one.
//! 3. An inner node's bytes never change once published. It is replaced: a new frame is
//!    filled, the word is swapped, the old frame is reused only when no epoch pin can still
//!    see it.
//! 4. Before a change reserves its place in the log, its frame carries a `rec_lsn` not above
//!    that place. Hence a checkpointer that reads the log position first and the frames
//!    afterwards misses no change below the position.
//! 5. **No thread waits for a frame or reads a page while it holds an exclusive latch.** The
//!    writer thread takes shared latches to make frames free, so the opposite could hang.
//! 6. A page that goes to a new place, a page id that becomes unused and an extent that gets
//!    an owner are logged and applied under the map lock; a map dump reads its base position
//!    under that lock, so nothing logged before it can be missing from the dump. (The pages of a
//!    dropped index go before their record, in batches: see [`Pool::drop_index`].)
//!
//! 7. **No thread waits for a frame or reads a page while it is pinned.** Retired frames become
//!    free when nobody is: two who waited for a frame under a pin would wait for each other.
//!
//! # Lock order
//! structure lock of a tree > frame latches (left to right, parent never latched) > map lock >
//! store's own locks > log ring. Frame latches > a shard of the change buffer > log ring. The free list, the dirty queue and the queue of pages to read
//! ahead are leaves.

mod access;
mod ahead_state;
mod arena;
mod change;
mod change_buffer;
mod changes;
mod collected;
mod deferred;
#[cfg(test)]
mod delta_tests;
mod dirty_queue;
mod evict;
mod flush;
mod frame;
mod frames;
mod free_frames;
mod guard;
mod kept;
mod kept_deltas;
mod leaf_changes;
mod merge_kept;
mod packing;
mod pool;
mod priorities;
mod read_ahead;
mod recover;
mod reserved;
mod resize;
#[cfg(test)]
mod resize_tests;
mod room;
mod row_cache;
mod single_row;
mod warm;
mod write;
mod write_copy;
#[cfg(test)]
mod write_tests;
mod writer_state;

pub use access::Keep;
pub use ahead_state::{misses_here, MissRate};
pub use change_buffer::AwayPage;
pub use collected::{CollectedRedo, RedoOf};
pub use deferred::Shares;
pub use evict::{is_for_want_of_a_frame, is_patient, patiently, patiently_unless};
pub use free_frames::Resized;
pub use guard::{ExclusiveGuard, InnerRef, NewFrame, Node, SharedGuard};
pub use kept::{bytes_of_copies, ApplyKept, ApplyRedo, ChangeBuffer};
pub use merge_kept::Merging;
pub use pool::{Pool, PoolConfig, PoolStats, WriteFilter};
pub use recover::{BlobState, RedoStep};
pub use row_cache::RowCache;
pub use writer_state::WriterState;

/// What this crate must know of a page's bytes; the tree owns the rest of the layout.
///
/// A page opens with: `[0..4)` index id, `[4]` level (0 = leaf), `[5]` page kind,
/// `[6..8)` end of the head area, `[8..10)` start of the tail area. Bytes between the two
/// areas carry nothing and are not written. In a leaf `[12..14)` says how many bytes of the tail area
/// carry nothing, too.
pub mod page_prefix {
    /// Page kind: a node of a tree.
    pub const KIND_NODE: u8 = 1;
    /// Page kind: a part of an overflow value.
    pub const KIND_OVERFLOW: u8 = 2;

    /// Index id at the front of the page.
    pub fn index(page: &[u8]) -> u32 {
        u32::from_le_bytes([page[0], page[1], page[2], page[3]])
    }
    /// Level: 0 for leaves and overflow pages.
    pub fn level(page: &[u8]) -> u8 {
        page[4]
    }
    /// (end of head area, start of tail area); the tail runs to the end of the page.
    pub fn used(page: &[u8]) -> (usize, usize) {
        let head = u16::from_le_bytes([page[6], page[7]]) as usize;
        let tail = u16::from_le_bytes([page[8], page[9]]) as usize;
        (head, tail)
    }
    /// Bytes of a leaf that carry something: what it is long when it is written, or a little more.
    pub fn live_bytes(page: &[u8]) -> usize {
        let (head, tail) = used(page);
        let garbage = u16::from_le_bytes([page[12], page[13]]) as usize;
        (head + page.len() - tail).saturating_sub(garbage)
    }
}
