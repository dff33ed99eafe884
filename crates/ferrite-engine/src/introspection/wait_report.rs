//! What the engine says of waits: sums by reason, and the journals of long ones and of deadlocks
//! with names instead of numbers.
//!
//! Locking: that of the journals; of the dictionary none that could be held for long (`names`): also what the server does
//! while a change of the dictionary waits can be looked at.

use crate::catalog::dictionary::names::{Named, Names};
use crate::state::engine::Engine;
use ferrite_lock::{Deadlock, DeadlockMember};
use ferrite_sync::waits::{self, LongWait, Of, Reason};
use ferrite_types::{IndexId, PageId, TableId};
use std::fmt::Write as _;

/// Bytes of a key that are shown.
const KEY_SHOWN: usize = 64;

/// Waits for one reason since the start of the process.
#[derive(Clone, Debug)]
pub struct WaitSum {
    /// Name of the reason.
    pub reason: &'static str,
    /// What it means.
    pub meaning: &'static str,
    /// How many.
    pub count: u64,
    /// Their sum, us.
    pub sum_us: u64,
    /// The longest, us.
    pub max_us: u64,
    /// Half of them stayed within, us, to a power of two.
    pub p50_us: u64,
    /// 99 of 100 stayed within, us, to a power of two.
    pub p99_us: u64,
}

/// A long wait.
#[derive(Clone, Debug)]
pub struct LongWaitRow {
    /// When it ended, us since 1970.
    pub ended_unix_us: u64,
    /// How long it was, us.
    pub us: u64,
    /// Name of the reason.
    pub reason: &'static str,
    /// Connection; 0 for a thread of the engine.
    pub thread_id: u64,
    /// Name of a thread of the engine.
    pub thread: String,
    /// Table, if the wait was for something of one that is still there.
    pub table: String,
    /// Index, likewise.
    pub index: String,
    /// Page; 0: for no page.
    pub page: u32,
    /// Connection that had the lock; 0: not known.
    pub holder_thread_id: u64,
    /// What the connection ran.
    pub query: Vec<u8>,
    /// In which transaction, if that is known and it had changed something; else 0.
    pub txn: u64,
}

/// A transaction in a deadlock, for display.
#[derive(Clone, Debug)]
pub struct DeadlockRow {
    /// The deadlock's number; they are counted from 1.
    pub number: u64,
    /// When, microseconds since 1970.
    pub at_unix_us: u64,
    /// Place in the ring, from 1: each waits for the next, the last for the first.
    pub position: usize,
    /// Table of the lock it waited for, if it is still there.
    pub table: String,
    /// Index, likewise; empty for a lock on the table.
    pub index: String,
    /// Who, with what it waited for and what it held.
    pub member: DeadlockMember,
}

impl Engine {
    /// Waits by reason, those that never happened included.
    pub fn wait_sums(&self) -> Vec<WaitSum> {
        let sum = |reason: Reason| {
            let times = waits::times(reason);
            WaitSum {
                reason: reason.name(),
                meaning: reason.meaning(),
                count: times.count(),
                sum_us: times.sum_us(),
                max_us: times.max_us(),
                p50_us: times.percentile(50.0),
                p99_us: times.percentile(99.0),
            }
        };
        Reason::ALL.into_iter().map(sum).collect()
    }

    /// Long waits, oldest first; of the last thousand or so.
    pub fn long_waits(&self) -> Vec<LongWaitRow> {
        let names = self.dict.names();
        let named = |wait: LongWait| self.named(wait, &names);
        waits::long_waits().into_iter().map(named).collect()
    }

    fn named(&self, wait: LongWait, names: &Names<'_>) -> LongWaitRow {
        let of_index = |index| names.index(index).known().unwrap_or_default();
        let ((table, index), page, holder_thread_id) = match wait.of {
            Of::Nothing => (Default::default(), 0, 0),
            Of::Index { index, holder } => (of_index(IndexId(index)), 0, holder),
            Of::Table { table, holder } => {
                let name = names.table(TableId(table)).known();
                ((name.unwrap_or_default(), String::new()), 0, holder)
            }
            Of::Page(page) => (of_index(self.store.index_of(PageId(page))), page, 0),
        };
        LongWaitRow {
            ended_unix_us: wait.ended_unix_us,
            us: wait.us,
            reason: wait.reason.name(),
            thread_id: wait.who.thread_id,
            thread: wait.who.thread,
            table,
            index,
            page,
            holder_thread_id,
            query: wait.who.query,
            txn: wait.txn,
        }
    }

    /// A deadlock in words: who waits for what, in a ring, and who gave way.
    pub(crate) fn deadlock_text(&self, deadlock: &Deadlock) -> String {
        let mut text = format!(
            "deadlock of {} transactions, each waits for the next and the last for the first",
            deadlock.size
        );
        let names = self.dict.names();
        for (i, m) in deadlock.members.iter().enumerate() {
            let end = if m.victim { " (rolled back)" } else { "" };
            let _ = write!(
                text,
                "\n  ({}) transaction {}{end}, connection {}, {} rows changed, waits for {} on {}",
                i + 1,
                m.txn,
                m.thread_id,
                m.changes,
                m.wanted,
                locked_thing(&names, m.index, &m.key),
            );
            if !m.query.is_empty() {
                let _ = write!(text, ": {}", String::from_utf8_lossy(&m.query));
            }
        }
        text
    }

    /// The latest deadlocks, oldest first, a row for each of their members.
    pub fn deadlock_rows(&self) -> Vec<DeadlockRow> {
        let names = self.dict.names();
        let mut rows = Vec::new();
        for deadlock in self.locks.deadlocks() {
            for (i, member) in deadlock.members.iter().enumerate() {
                let (table, index) = names_of_lock(&names, member.index, &member.key);
                let (table, index) = (table.known().unwrap_or_default(), index);
                rows.push(DeadlockRow {
                    number: deadlock.number,
                    at_unix_us: deadlock.at_unix_us,
                    position: i + 1,
                    table,
                    index,
                    member: member.clone(),
                });
            }
        }
        rows
    }

    /// SHOW ENGINE STATUS: reasons that happened, a line each.
    pub(crate) fn wait_lines(&self) -> String {
        let happened = |s: &WaitSum| s.count > 0;
        let line = |s: WaitSum| {
            format!(
                "{}: {} times, {} ms, longest {} us, median {} us, p99 {} us",
                s.reason,
                s.count,
                s.sum_us / 1000,
                s.max_us,
                s.p50_us,
                s.p99_us
            )
        };
        let sums = self.wait_sums().into_iter().filter(happened);
        sums.map(line).collect::<Vec<_>>().join("\n")
    }
}

/// Table and index of a lock; the latter empty for a lock on a table, and if the former is not known.
fn names_of_lock(names: &Names<'_>, index: IndexId, key: &[u8]) -> (Named<String>, String) {
    if index.0 != 0 {
        return match names.index(index) {
            Named::As((table, index)) => (Named::As(table), index),
            Named::Gone => (Named::Gone, String::new()),
            Named::Unknown => (Named::Unknown, String::new()),
        };
    }
    let id = key.get(..8).and_then(|id| id.try_into().ok());
    let id = id.map(|id| TableId(u64::from_be_bytes(id)));
    (id.map_or(Named::Gone, |id| names.table(id)), String::new())
}

/// What a lock is on. Index 0 has the locks of tables; their keys begin with the table's id.
fn locked_thing(names: &Names<'_>, index: IndexId, key: &[u8]) -> String {
    let (table, name) = names_of_lock(names, index, key);
    let mut text = match (index.0, table) {
        (0, Named::Gone) => return "table (dropped)".into(),
        (0, Named::Unknown) => {
            return "table (its name is not known: tables are being changed)".into()
        }
        (0, Named::As(table)) => return format!("table {table}"),
        (_, Named::Gone) => return "a dropped index".into(),
        (number, Named::Unknown) => format!("index number {number}, key 0x"),
        (_, Named::As(table)) => format!("index {name} of table {table}, key 0x"),
    };
    for byte in key.iter().take(KEY_SHOWN) {
        let _ = write!(text, "{byte:02x}");
    }
    text
}
