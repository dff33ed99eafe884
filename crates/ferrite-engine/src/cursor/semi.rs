//! Semi-consistent reads: at READ COMMITTED and below an UPDATE that scans the clustered index looks
//! at the newest committed state of a row that another transaction has locked, and waits for the
//! row only if that state matches.
//!
//! The cursor delivers such a state without a lock and says so (`was_semi_consistent`). If the row
//! matches, the server just asks for the next row: the same entry is looked at again, and this time
//! waited for. If not, the server says so (`unlock_row`) and the scan goes on behind it. A row that
//! is not there in its committed state (an insert of another transaction) is passed over.
//!
//! What is read here is nothing to build on: it may be replaced, and its values out of line freed,
//! the moment the latch is given up.

use super::locking::Step;
use super::{Cursor, Item, WaitMode};
use crate::state::slot::Isolation;
use crate::transaction::session::Session;
use crate::transaction::visible::View;
use ferrite_lock::Mode;
use ferrite_tree::LeafRef;
use ferrite_types::Result;

#[derive(Default)]
pub(super) struct Semi {
    /// The statement asks for it.
    wanted: bool,
    /// The row delivered last is a committed state, without a lock.
    did: bool,
    /// The row that was delivered so before this call is asked for again: it is waited for.
    again: bool,
    /// Key of that row.
    key: Vec<u8>,
}

impl Semi {
    /// The cursor is asked for a row.
    pub(super) fn call_begins(&mut self) {
        self.again = self.did;
        self.did = false;
    }
}

impl Cursor {
    /// Whether locked rows are read in their committed state. Ends with [`Cursor::reset`].
    pub fn try_semi_consistent(&mut self, yes: bool) {
        self.semi.wanted = yes;
    }

    /// The row delivered last is the committed state of a row that another transaction has locked:
    /// it may not be changed, and the next call delivers it again, locked, unless
    /// [`Cursor::unlock_row`] says that it does not match.
    pub fn was_semi_consistent(&self) -> bool {
        self.semi.did
    }

    /// Is the entry at `key`, which is not free, to be read without a lock?
    pub(super) fn reads_semi_consistent(
        &self,
        session: &Session,
        mode: Mode,
        unique_exact: bool,
        key: &[u8],
    ) -> bool {
        let semi = &self.semi;
        semi.wanted
            && !unique_exact
            && self.number == 0
            && mode == Mode::Exclusive
            && self.wait == WaitMode::Wait
            && session.isolation <= Isolation::ReadCommitted
            && !(semi.again && semi.key == key)
    }

    /// Delivers the committed state of the entry in a slot, whose key is `key`, or passes over the
    /// entry if it has none. None: its earlier states are not known, wait for it.
    pub(super) fn read_committed(
        &mut self,
        session: &Session,
        leaf: &LeafRef<'_>,
        at: usize,
        key: &[u8],
    ) -> Result<Option<Step<'static>>> {
        debug_assert!(self.items.is_empty() && !self.semi.did);
        let rec = leaf.record(at);
        let engine = &session.engine;
        if engine.is_unsettled(&rec, View::Committed) {
            return Ok(None);
        }
        self.data.clear();
        self.data.extend_from_slice(key);
        let of = (self.table.tree(0).index(), key);
        let (work, out) = (&mut self.work, &mut self.data);
        let there = engine.entry_value(of, &rec, View::Committed, work, out)?;
        self.stop_at(leaf, at);
        if !there {
            self.data.clear();
            return Ok(Some(Step::Again));
        }
        debug_assert!(self.data.starts_with(key), "another key is delivered");
        self.push_item(Item {
            key: 0..key.len(),
            value: key.len()..self.data.len(),
        });
        self.semi.did = true;
        self.semi.key.clear();
        self.semi.key.extend_from_slice(key);
        Ok(Some(Step::Delivered))
    }

    /// The row delivered last was not locked and matches: the scan looks at it again.
    pub(super) fn stand_before_semi(&mut self) {
        let key = std::mem::take(&mut self.semi.key);
        self.stand_before(&key);
        self.semi.key = key;
    }

    /// The row delivered last does not match. True if it was not locked.
    pub(super) fn pass_semi(&mut self) -> bool {
        std::mem::take(&mut self.semi.did)
    }
}
