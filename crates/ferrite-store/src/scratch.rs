//! What the reading of one page needs besides the page; kept for the next one.
//!
//! Invariant: the buffer has room for the longest blob with the blocks that it lies in. Locking: none.

use crate::blob::MAX_BLOB_GRANULES;
use crate::deps::AlignedBuf;
use crate::pack::Unpacker;
use crate::word::{BLOCK_BYTES, GRANULE_BYTES};

/// Room for the longest blob with the blocks that it lies in.
pub(crate) const ONE_BLOB_BYTES: usize = MAX_BLOB_GRANULES * GRANULE_BYTES + BLOCK_BYTES;

/// See the head of the file.
pub(crate) struct Scratch {
    pub(crate) buf: AlignedBuf,
    pub(crate) unpacker: Unpacker,
}

impl Scratch {
    pub(crate) fn new() -> Scratch {
        Scratch {
            buf: AlignedBuf::zeroed(ONE_BLOB_BYTES),
            unpacker: Unpacker::new(),
        }
    }
}
