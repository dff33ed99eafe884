//! A look at the other table of a foreign key (`rows/reference.rs`) whose answer is to stay.
//!
//! Locking: as a locking cursor, without a wait while the table is entered: its DROP would wait as
//! well. What the cursor is refused is waited for outside, in the lock table, where deadlocks are
//! found and the server is told who waits for whom (a parallel replica kills who has come too
//! early).

use super::{Cursor, ReadMode, Row, SeekMode, WaitMode};
use crate::catalog::links::Peer;
use crate::rows::reference::{Look, Role};
use crate::state::slot::Isolation;
use crate::transaction::session::Session;
use ferrite_lock::{LockRequest, Mode, Span};
use ferrite_types::{Error, Result, TxnId};

/// The lock that a cursor was refused which does not wait; its key is in `Session::buffers.reference`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Refused {
    /// Of the index.
    number: usize,
    /// Who holds it by having written the entry; none: a lock of the lock table is in the way.
    holder: Option<TxnId>,
    mode: Mode,
    span: Span,
}

impl Refused {
    pub(super) fn new(number: usize, holder: Option<TxnId>, mode: Mode, span: Span) -> Refused {
        Refused {
            number,
            holder,
            mode,
            span,
        }
    }
}

impl Cursor {
    /// Notes what it was refused, and gives the error to end with.
    pub(super) fn refuse(&mut self, session: &mut Session, key: &[u8], refused: Refused) -> Error {
        debug_assert!(
            self.wait != WaitMode::Wait,
            "a cursor that waits is refused"
        );
        let kept = &mut session.buffers.reference;
        kept.clear();
        kept.extend_from_slice(key);
        self.refused = Some(refused);
        Error::LockTimeout
    }
}

impl Session {
    /// As [`Session::is_there`], and from REPEATABLE READ on the answer stays as it is until the transaction
    /// ends. For statements that pass over the row and go on (IGNORE): a replica that runs them again, in
    /// the order of commits, must pass over the same.
    ///
    /// # Errors
    /// As [`Session::is_there`].
    pub fn is_there_to_stay(&mut self, peer: &Peer, prefix: &[u8], role: Role) -> Result<bool> {
        loop {
            let there = self.is_there(peer, prefix, role)?;
            if self.isolation <= Isolation::ReadCommitted {
                return Ok(there);
            }
            let Some(entered) = peer.table.enter() else {
                return Err(Error::TableChanged);
            };
            let refused = match self.lock_entries(peer, prefix) {
                // No cursor reads a table that is newer than the snapshot; a look does.
                Ok(None) | Err(Error::TableChanged) => match self.look(peer, prefix, role)? {
                    Look::There => return Ok(true),
                    Look::Nowhere => return Ok(false),
                    Look::Depends(..) => continue,
                },
                Ok(Some(refused)) => refused,
                Err(e) => return Err(e),
            };
            drop(entered);
            self.wait_where_refused(peer, refused)?;
        }
    }

    /// Waits for a lock that a cursor was refused, and takes it.
    fn wait_where_refused(&mut self, peer: &Peer, refused: Refused) -> Result<()> {
        let index = peer.table.tree(refused.number).index();
        let key = std::mem::take(&mut self.buffers.reference);
        debug_assert!(!key.is_empty(), "refused nowhere");
        let request = LockRequest::new(index, &key, refused.mode, refused.span);
        let result = self.wait_for_either(refused.holder, request);
        self.buffers.reference = key;
        result
    }

    /// Locks entries with the key up to the first that lives; if there is none, also where one could come.
    /// What it was refused, if anything.
    fn lock_entries(&mut self, peer: &Peer, prefix: &[u8]) -> Result<Option<Refused>> {
        let number = peer.index_no as usize;
        let mut cursor = Cursor::new(&peer.table, number, ReadMode::Shared, WaitMode::NoWait);
        let lives = |row: Row<'_>| match &peer.row_end {
            None => true,
            Some(end) => !end.is_in_row() && end.lives_by_key(row.key),
        };
        let mut found = cursor.seek(self, prefix, SeekMode::Exact, false).map(lives);
        while found == Ok(false) {
            found = cursor.next_same(self, prefix).map(lives);
        }
        match found {
            Ok(_) | Err(Error::NotFound) => Ok(None),
            Err(Error::LockTimeout) if cursor.refused.is_some() => Ok(cursor.refused),
            Err(e) => Err(e),
        }
    }
}
