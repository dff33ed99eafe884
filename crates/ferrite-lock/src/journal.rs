//! The latest deadlocks, for display.
//!
//! Locking: one mutex, a leaf.

use std::collections::VecDeque;

use ferrite_sync::Mutex;
use ferrite_types::{IndexId, TxnId};

/// Deadlocks kept for display.
const JOURNAL_LEN: usize = 100;

/// One deadlock that was broken.
#[derive(Clone, Debug)]
pub struct Deadlock {
    /// Rises with each one, from 1.
    pub number: u64,
    /// When, microseconds since 1970.
    pub at_unix_us: u64,
    /// How many there were; of very many only some are told.
    pub size: usize,
    /// Each waits for the next, the last for the first.
    pub members: Vec<DeadlockMember>,
}

/// A transaction in a deadlock.
#[derive(Clone, Debug)]
pub struct DeadlockMember {
    /// Its id; frozen (0) if it had changed nothing.
    pub txn: TxnId,
    /// Its connection.
    pub thread_id: u64,
    /// Rows it had changed.
    pub changes: u64,
    /// The index it waited in; 0 with a key of table id and stripe for a table lock.
    pub index: IndexId,
    /// The key it waited for.
    pub key: Vec<u8>,
    /// The mode it waited for, in InnoDB's words.
    pub wanted: &'static str,
    /// The mode it held on what the one before it in the ring waited for; empty if it only stood in
    /// front of it.
    pub held: &'static str,
    /// What it ran, if the server told.
    pub query: Vec<u8>,
    /// This one gave way.
    pub victim: bool,
}

/// The latest deadlocks.
#[derive(Default)]
pub(crate) struct Journal {
    pub latest: Mutex<VecDeque<Deadlock>>,
}

impl Journal {
    pub(crate) fn push(&self, mut d: Deadlock) {
        let mut latest = self.latest.lock();
        d.number = latest.back().map_or(1, |last| last.number + 1);
        debug_assert!(latest.len() <= JOURNAL_LEN, "{} deadlocks", latest.len());
        debug_assert!(
            d.members.iter().filter(|m| m.victim).count() == 1,
            "one of a cycle gives way"
        );
        if latest.len() == JOURNAL_LEN {
            latest.pop_front();
        }
        latest.push_back(d);
    }
}
