//! The definitions of all tables, and how many they are and what they take, for who must not wait.
//!
//! Invariant: a definition is replaced, never changed where it stands: what it is counted with when it comes is what it is
//! counted with when it goes.
//!
//! Locking: the definitions are under the dictionary's `state`; the sizes are read without it, also while a change of the
//! dictionary holds it and waits for the log.

use crate::catalog::spec::TableSpec;
use ferrite_sync::atomic::{AtomicU64, Ordering};
use ferrite_sync::Arc;
use ferrite_types::TableId;
use std::collections::BTreeMap;
use std::ops::Deref;

/// What a name's entry in a map takes beside the name, and a number's, in bytes.
const NAME_BYTES: usize = 48;
const NUMBER_BYTES: usize = 16;

/// See the head of the file.
#[derive(Default)]
pub(super) struct Sizes {
    tables: AtomicU64,
    bytes: AtomicU64,
}

impl Sizes {
    /// Tables there are.
    pub(super) fn tables(&self) -> u64 {
        self.tables.load(Ordering::Relaxed)
    }

    /// Memory of all definitions, in bytes, about.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    fn add(&self, spec: &TableSpec) {
        self.bytes.fetch_add(bytes_of(spec), Ordering::Relaxed);
        self.tables.fetch_add(1, Ordering::Relaxed);
    }

    fn remove(&self, spec: &TableSpec) {
        let bytes = self.bytes.fetch_sub(bytes_of(spec), Ordering::Relaxed);
        let tables = self.tables.fetch_sub(1, Ordering::Relaxed);
        assert!(
            tables > 0 && bytes >= bytes_of(spec),
            "table {}: one goes of {tables} of {bytes} bytes",
            spec.id
        );
    }
}

/// Each table's name stands in a map of its own, too, and each index's number.
fn bytes_of(spec: &TableSpec) -> u64 {
    let beside = NAME_BYTES + spec.name.len() + spec.indexes.len() * NUMBER_BYTES;
    (spec.memory_bytes() + beside) as u64
}

/// See the head of the file.
#[derive(Default)]
pub(super) struct Specs {
    all: BTreeMap<TableId, TableSpec>,
    sizes: Arc<Sizes>,
}

impl Specs {
    /// Of them as they will be.
    pub(super) fn sizes(&self) -> Arc<Sizes> {
        self.sizes.clone()
    }

    /// The table's definition is that one from here on.
    pub(super) fn insert(&mut self, id: TableId, spec: TableSpec) {
        assert_eq!(id, spec.id, "a definition of another table");
        self.sizes.add(&spec);
        if let Some(old) = self.all.insert(id, spec) {
            self.sizes.remove(&old);
        }
        debug_assert_eq!(self.all.len() as u64, self.sizes.tables());
    }

    pub(super) fn remove(&mut self, id: TableId) -> Option<TableSpec> {
        let old = self.all.remove(&id);
        if let Some(old) = &old {
            self.sizes.remove(old);
        }
        debug_assert_eq!(self.all.len() as u64, self.sizes.tables());
        old
    }
}

impl Deref for Specs {
    type Target = BTreeMap<TableId, TableSpec>;

    fn deref(&self) -> &Self::Target {
        &self.all
    }
}
