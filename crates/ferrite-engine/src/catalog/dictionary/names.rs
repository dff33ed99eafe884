//! Names of tables and indexes for display, for who must not wait for a change of the dictionary: one may wait for the
//! log, on a full disk without end, and what is shown then is what the user needs to see.
//!
//! Locking: `state`, for a look-up, if it can be had within some milliseconds; from then on it is not tried again.

use super::{Dictionary, State};
use crate::catalog::table::Table;
use ferrite_sync::{thread, Arc, MutexGuard};
use ferrite_types::{IndexId, TableId};
use std::cell::Cell;

/// Look-ups, and most changes, are over by then.
const MOST_LOOKS: u64 = 50;
const LOOK_MS: u64 = 1;

/// A name as it can be told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Named<T> {
    /// What it is called.
    As(T),
    /// There is no such thing any more.
    Gone,
    /// It is not known: the dictionary is being changed.
    Unknown,
}

impl<T> Named<T> {
    /// The name, if it is known.
    pub fn known(self) -> Option<T> {
        match self {
            Named::As(name) => Some(name),
            Named::Gone | Named::Unknown => None,
        }
    }
}

/// Names for one list of things that is shown; see the head of the file.
pub struct Names<'d> {
    dict: &'d Dictionary,
    is_busy: Cell<bool>,
}

impl Dictionary {
    /// For display.
    pub fn names(&self) -> Names<'_> {
        Names {
            dict: self,
            is_busy: Cell::new(false),
        }
    }
}

impl Names<'_> {
    fn state(&self) -> Option<MutexGuard<'_, State>> {
        for look in 0..MOST_LOOKS {
            if self.is_busy.get() {
                return None;
            }
            if let Some(state) = self.dict.state.try_lock() {
                return Some(state);
            }
            if look + 1 < MOST_LOOKS {
                thread::sleep_ms(LOOK_MS);
            }
        }
        self.is_busy.set(true);
        None
    }

    /// Every table that has been opened; none while that cannot be told.
    pub(crate) fn open_tables(&self) -> Vec<Arc<Table>> {
        let state = self.state();
        state.map_or_else(Vec::new, |state| state.open.values().cloned().collect())
    }

    /// Name of a table.
    pub fn table(&self, table: TableId) -> Named<String> {
        let Some(state) = self.state() else {
            return Named::Unknown;
        };
        let spec = state.specs.get(&table);
        debug_assert!(spec.is_none_or(|spec| spec.id == table));
        spec.map_or(Named::Gone, |spec| Named::As(spec.name.clone()))
    }

    /// Name of the table an index belongs to and the index's own.
    pub fn index(&self, index: IndexId) -> Named<(String, String)> {
        let Some(state) = self.state() else {
            return Named::Unknown;
        };
        let found = state.names_of_index(index);
        debug_assert!(found.is_some() || !state.by_index.contains_key(&index));
        found.map_or(Named::Gone, Named::As)
    }
}
