//! A tree of a table, as the verifier names it, and what its entries stand for.
//!
//! Invariant: none of its own. Locking: none.

use ferrite_engine::offline::StoredTable;
use ferrite_sync::Arc;
use ferrite_types::{IndexId, PageId};

/// Bytes in front of a secondary entry's payload: length of the declared key parts.
const ENTRY_PREFIX_BYTES: usize = 2;

/// One tree of one table.
pub(crate) struct Tree {
    pub(crate) table: Arc<StoredTable>,
    pub(crate) number: usize,
}

impl Tree {
    pub(crate) fn index(&self) -> IndexId {
        self.table.spec.indexes[self.number].id
    }

    pub(crate) fn root(&self) -> PageId {
        self.table.spec.indexes[self.number].root
    }

    /// How messages call it.
    pub(crate) fn name(&self) -> String {
        let spec = &self.table.spec;
        format!(
            "table {} index {}",
            spec.name, spec.indexes[self.number].name
        )
    }
}

/// The primary key that an entry stands for.
pub(crate) fn primary_key<'k>(number: usize, key: &'k [u8], value: &[u8]) -> Option<&'k [u8]> {
    if number == 0 {
        return Some(key);
    }
    let declared = value.get(..ENTRY_PREFIX_BYTES)?;
    key.get(usize::from(u16::from_le_bytes([declared[0], declared[1]]))..)
}
