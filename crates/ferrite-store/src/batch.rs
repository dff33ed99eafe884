use ferrite_types::{format::Codec, IndexId, Lsn, PageId};

use crate::blob::PageImage;
use crate::word::Location;

/// Capacity of a batch.
pub const BATCH_BYTES: usize = 1 << 20;

/// Where a page of a batch was written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Placed {
    /// The page.
    pub page: PageId,
    /// Its new blob.
    pub location: Location,
}

/// Pages to be written together.
pub struct Batch {}

impl Batch {
    /// True when a page might not fit any more.
    pub fn is_full(&self) -> bool {
        todo!()
    }
    /// Pages in it.
    pub fn len(&self) -> usize {
        todo!()
    }
    /// True when nothing is in it.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Empties it.
    pub fn clear(&mut self) {}
    /// Packs a page; false (and nothing changed) when it does not fit any more.
    pub fn push(
        &mut self,
        _page: PageId,
        _index: IndexId,
        _lsn: Lsn,
        _image: PageImage<'_>,
        _codec: Codec,
    ) -> bool {
        todo!()
    }
}
