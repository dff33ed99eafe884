//! Changes of rows.
//!
//! `write`: a row, across the indexes of its table. `entry`: one entry of one index. `conflict`: who is in its way, and
//! waits for them. `versions`: its state before a change. `put_off`: changes of entries whose leaf is away. `overflow`:
//! values out of line; `reference`: how rows name them. `load`: filling a table that nobody else sees. `index_build`:
//! adding indexes to a table that has rows. `sort`: more entries than fit in memory.
//!
//! Locking: see each file.

pub(crate) mod conflict;
pub(crate) mod entry;
pub(crate) mod index_build;
pub(crate) mod load;
pub(crate) mod overflow;
pub(crate) mod put_off;
pub(crate) mod reference;
pub(crate) mod sort;
pub(crate) mod versions;
pub(crate) mod write;

/// The clustered key in an entry of a secondary index; None: it is broken.
pub(crate) fn clustered_key<'k>(key: &'k [u8], value: &[u8]) -> Option<&'k [u8]> {
    let head = value.get(..write::ENTRY_PREFIX_BYTES)?;
    let declared = u16::from_le_bytes([head[0], head[1]]) as usize;
    key.get(declared..)
}
