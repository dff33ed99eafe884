//! A prepared transaction without a session, in the list of those (`Engine::prepared`). What is done
//! with them is in `decide`.
//!
//! Locking: none of its own.

use crate::purge_queue::Garbage;
use crate::slot::TxnSlot;
use ferrite_sync::Arc;

/// One of them, or several with the same xid.
pub(crate) struct Prepared {
    pub slot: Arc<TxnSlot>,
    pub garbage: Vec<(u64, Garbage)>,
    /// Somebody is committing it or rolling it back.
    pub deciding: bool,
    /// One with the same xid, decided after this one.
    pub next: Option<Box<Prepared>>,
}

impl Prepared {
    pub(crate) fn append(&mut self, last: Prepared) {
        let mut end = &mut self.next;
        while let Some(prepared) = end {
            end = &mut prepared.next;
        }
        *end = Some(Box::new(last));
    }
}
