//! A prepared transaction without a session, in the list of those (`Engine::prepared`). What is done
//! with them is in `transaction::decide`.
//!
//! Locking: none of its own.

use crate::state::transaction::Transaction;
use ferrite_types::TxnId;

/// One of them, or several with the same xid.
pub(crate) struct Prepared {
    pub id: TxnId,
    /// None while somebody commits it or rolls it back.
    pub transaction: Option<Transaction>,
    /// One with the same xid, decided after this one.
    pub next: Option<Box<Prepared>>,
}

impl Prepared {
    pub(crate) fn new(transaction: Transaction) -> Prepared {
        Prepared {
            id: transaction.id(),
            transaction: Some(transaction),
            next: None,
        }
    }

    pub(crate) fn append(&mut self, last: Prepared) {
        assert_ne!(self.id, last.id, "prepared under its xid twice");
        debug_assert!(last.next.is_none(), "one at a time");
        let mut end = &mut self.next;
        while let Some(prepared) = end {
            debug_assert_ne!(prepared.id, last.id, "prepared under its xid twice");
            end = &mut prepared.next;
        }
        *end = Some(Box::new(last));
    }
}
