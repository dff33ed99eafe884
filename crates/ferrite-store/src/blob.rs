use ferrite_types::{IndexId, Lsn, PageId};

/// Bytes before the body of a blob.
pub const BLOB_HEADER_BYTES: usize = 40;

/// A page's bytes: what opens it and what closes it; between them are zeros nobody needs.
#[derive(Clone, Copy)]
pub struct PageImage<'a> {
    /// From the first byte of the page.
    pub head: &'a [u8],
    /// Up to the last byte of the page.
    pub tail: &'a [u8],
}

/// What a blob says of itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PageHeader {
    /// The page.
    pub page: PageId,
    /// The index it belonged to when written.
    pub index: IndexId,
    /// Position of the newest change in it.
    pub lsn: Lsn,
}
