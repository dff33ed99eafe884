//! A look at the other table of a foreign key (`rows/reference.rs`) whose answer is to stay.
//!
//! Locking: as a locking cursor, without a wait while the table is entered.

use super::{Cursor, ReadMode, Row, SeekMode, WaitMode};
use crate::catalog::links::{Peer, RowEnd};
use crate::rows::reference::{Look, Role};
use crate::state::slot::Isolation;
use crate::transaction::session::Session;
use ferrite_sync::thread;
use ferrite_types::{Error, Result};

impl Session {
    /// As [`Session::is_there`], and from REPEATABLE READ on the answer stays as it is until the transaction
    /// ends. For statements that pass over the row and go on (IGNORE): a replica that runs them again, in
    /// the order of commits, must pass over the same.
    ///
    /// # Errors
    /// As [`Session::is_there`].
    pub fn is_there_to_stay(&mut self, peer: &Peer, prefix: &[u8], role: Role) -> Result<bool> {
        let mut patience_ms = self.lock_timeout_ms;
        loop {
            let there = self.is_there(peer, prefix, role)?;
            if self.isolation <= Isolation::ReadCommitted {
                return Ok(there);
            }
            let Some(entered) = peer.table.enter() else {
                return Err(Error::TableChanged);
            };
            match self.lock_entries(peer, prefix) {
                // No cursor reads a table that is newer than the snapshot; a look does.
                Ok(()) | Err(Error::TableChanged) => match self.look(peer, prefix, role)? {
                    Look::There => return Ok(true),
                    Look::Nowhere => return Ok(false),
                    Look::Depends(..) => continue,
                },
                Err(Error::LockTimeout) if patience_ms > 0 => {}
                Err(e) => return Err(e),
            }
            // Somebody has a lock on a row that is not there, and changes nothing. That is not waited for
            // in the table: its DROP would wait as well.
            drop(entered);
            self.check_killed()?;
            thread::sleep_ms(1);
            patience_ms -= 1;
        }
    }

    /// Locks entries with the key up to the first that lives; if there is none, also where one could come.
    fn lock_entries(&mut self, peer: &Peer, prefix: &[u8]) -> Result<()> {
        let number = peer.index_no as usize;
        let mut cursor = Cursor::new(&peer.table, number, ReadMode::Shared, WaitMode::NoWait);
        let lives = |row: Row<'_>| match peer.row_end {
            None => true,
            Some(RowEnd::Row { .. }) => false,
            Some(end) => end.lives_by_key(row.key),
        };
        let mut found = cursor.seek(self, prefix, SeekMode::Exact, false).map(lives);
        while found == Ok(false) {
            found = cursor.next_same(self, prefix).map(lives);
        }
        match found {
            Ok(_) | Err(Error::NotFound) => Ok(()),
            Err(e) => Err(e),
        }
    }
}
