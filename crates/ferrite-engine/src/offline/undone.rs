//! Entries as they are once transactions without an end are rolled back.
//!
//! Rollback would change pages; here the undo stays beside them and is applied to an entry
//! when it is looked at (`known_undo`). An entry is changed by one such transaction at most, whose id the record
//! bears (it is its lock): no other one's undo is looked at, and that of an entry that bears none says nothing.
//!
//! Invariant: undo that cannot be read or does not fit leaves the entry as it is in the page.

use crate::startup::recovery::Unfinished;
use crate::state::known_undo::{KnownUndo, Settled};
use crate::state::undo_area::UndoArea;
use ferrite_tree::record::Record;
use ferrite_types::{Error, IndexId, TxnId, UndoPosition};
use std::collections::HashMap;

/// The undo of all of them.
#[derive(Default)]
pub(super) struct Unsettled {
    lists: HashMap<TxnId, KnownUndo>,
}

impl Unsettled {
    /// Also the first fault of a list that cannot be read to its beginning.
    pub(super) fn new(
        unfinished: impl IntoIterator<Item = (TxnId, Unfinished)>,
        area: &UndoArea,
    ) -> (Unsettled, Option<Error>) {
        let mut all = Unsettled::default();
        let mut first = None;
        for (txn, found) in unfinished {
            debug_assert!(!txn.is_frozen(), "undo of no transaction");
            let (known, fault) = KnownUndo::read(found.undo.backwards(), area);
            let twin = all.lists.insert(txn, known);
            debug_assert!(twin.is_none(), "two lists of {txn}");
            first = first.or(fault);
        }
        (all, first)
    }

    pub(super) fn concerns(&self, index: IndexId) -> bool {
        self.lists.values().any(|list| list.concerns(index))
    }

    pub(super) fn settle(&self, index: IndexId, key: &[u8], rec: &Record<'_>) -> Settled {
        debug_assert!(index.0 != 0, "an entry of no index");
        let Some(list) = self.lists.get(&rec.header.txn) else {
            return Settled::Same;
        };
        list.before(&|| UndoPosition::END, (index, key), rec)
            .unwrap_or(Settled::Same)
    }
}
