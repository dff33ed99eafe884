//! Entries as they are once transactions without an end are rolled back.
//!
//! Rollback would change pages; here the undo stays beside them and is applied to an entry
//! when it is looked at. An entry is changed by one such transaction at most (its id in the
//! record is its lock), so the order between transactions does not matter; within one, undo
//! goes from the newest to the oldest.
//!
//! Invariant: undo that cannot be read or does not fit leaves the entry as it is in the page.

use crate::log_records::undo::{self, Undo};
use crate::startup::recovery::Unfinished;
use crate::state::undo_list::UndoArea;
use ferrite_tree::record::Record;
use ferrite_types::{Error, IndexId, Result, TxnId};
use std::borrow::Cow;
use std::collections::HashMap;

/// What an entry is after rollback.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Settled {
    /// As it is in the page.
    Same,
    /// It was not there.
    Gone,
    /// It was there with another value, and this delete mark.
    Other(bool, Vec<u8>),
}

/// Undo by index and key, newest first.
#[derive(Default)]
pub(super) struct Unsettled {
    by_index: HashMap<IndexId, HashMap<Vec<u8>, Vec<Vec<u8>>>>,
}

impl Unsettled {
    /// Also the first fault of a list that cannot be read to its beginning.
    pub(super) fn new(
        unfinished: impl IntoIterator<Item = (TxnId, Unfinished)>,
        area: &UndoArea,
    ) -> (Unsettled, Option<Error>) {
        let mut all = Unsettled::default();
        let mut fault = None;
        for (_, found) in unfinished {
            if let Err(e) = all.add(&found, area) {
                fault.get_or_insert(e);
            }
        }
        (all, fault)
    }

    fn add(&mut self, found: &Unfinished, area: &UndoArea) -> Result<()> {
        let mut entries = found.undo.backwards();
        while let Some(entry) = entries.prev(area)? {
            if let Ok(
                Undo::Insert { index, key }
                | Undo::Update { index, key, .. }
                | Undo::Put { index, key }
                | Undo::Mark { index, key },
            ) = undo::decode(&entry)
            {
                let keys = self.by_index.entry(index).or_default();
                let list = keys.entry(key.to_vec()).or_default();
                list.push(entry);
            }
        }
        Ok(())
    }

    pub(super) fn concerns(&self, index: IndexId) -> bool {
        self.by_index.contains_key(&index)
    }

    pub(super) fn settle(&self, index: IndexId, key: &[u8], rec: &Record<'_>) -> Settled {
        let Some(entries) = self.by_index.get(&index).and_then(|keys| keys.get(key)) else {
            return Settled::Same;
        };
        let mut deleted = rec.header.deleted;
        let mut value = Cow::Borrowed(rec.value);
        for entry in entries {
            match undo::decode(entry) {
                Ok(Undo::Insert { .. } | Undo::Put { .. }) => return Settled::Gone,
                Ok(Undo::Mark { .. }) => deleted = false,
                Ok(Undo::Update { prior, .. }) => {
                    let mut before = Vec::new();
                    if prior.value(&value, &mut before).is_err() {
                        return Settled::Same;
                    }
                    value = Cow::Owned(before);
                    deleted = prior.deleted;
                }
                _ => {}
            }
        }
        Settled::Other(deleted, value.into_owned())
    }
}
