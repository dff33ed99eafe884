//! Every wait has a reason. For each reason: how often and how long; of long waits (50 ms and more,
//! unless another threshold is set) also when, who, and for what.
//!
//! One set per process, as a server has one engine. Sleeping until there is work is no wait.
//! The clock is asked only by those who have to wait anyway.
//!
//! Locking: the journal's mutex is a leaf, taken after a long wait and by who reads it.

use crate::{observed, time, Histogram};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
// Statistics are no part of any model: the real ones, under loom and in simulations too.
use std::sync::{Mutex, MutexGuard, OnceLock};

/// Waits this long or longer are kept in the journal, in us, until [`set_long_us`] says otherwise.
pub const LONG_US: u64 = 50_000;
/// Of how many long waits the journal tells.
const JOURNAL: usize = 1024;

/// What somebody waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// A row or gap that another transaction has locked.
    RowLock,
    /// A table that another transaction has locked.
    TableLock,
    /// A page that another thread is changing or copying.
    PageLatch,
    /// A page that is read from disk, by this thread or another.
    PageRead,
    /// A frame to read a page into: all are dirty or in use.
    FreeFrame,
    /// Another split or merge in the same tree.
    TreeStructure,
    /// The log to be written, or to be durable, up to a commit or a change.
    LogFlush,
    /// Space in the log's ring: changes come faster than they can be written.
    LogRing,
    /// The next file of the log to be made.
    LogSegment,
    /// The log is near its budget: pages must be written first.
    LogBudget,
    /// Space on the disk.
    DiskFull,
    /// A row that is still being rolled back since the last restart.
    Rollback,
    /// Versions of rows that change places.
    History,
}

impl Reason {
    /// All of them.
    pub const ALL: [Reason; 13] = [
        Reason::RowLock,
        Reason::TableLock,
        Reason::PageLatch,
        Reason::PageRead,
        Reason::FreeFrame,
        Reason::TreeStructure,
        Reason::LogFlush,
        Reason::LogRing,
        Reason::LogSegment,
        Reason::LogBudget,
        Reason::DiskFull,
        Reason::Rollback,
        Reason::History,
    ];

    /// Name for users.
    pub fn name(self) -> &'static str {
        match self {
            Reason::RowLock => "row lock",
            Reason::TableLock => "table lock",
            Reason::PageLatch => "page latch",
            Reason::PageRead => "page read",
            Reason::FreeFrame => "free frame",
            Reason::TreeStructure => "tree structure",
            Reason::LogFlush => "log flush",
            Reason::LogRing => "log ring",
            Reason::LogSegment => "log segment",
            Reason::LogBudget => "log budget",
            Reason::DiskFull => "disk full",
            Reason::Rollback => "rollback",
            Reason::History => "history",
        }
    }

    /// What it means, for users.
    pub fn meaning(self) -> &'static str {
        match self {
            Reason::RowLock => "another transaction holds a lock on the row or the gap",
            Reason::TableLock => "another transaction holds a lock on the table",
            Reason::PageLatch => "another thread holds the latch of the page, to change or copy it",
            Reason::PageRead => "the page is being read from disk",
            Reason::FreeFrame => "every page in the buffer pool is in use or must be written first",
            Reason::TreeStructure => "another thread splits or merges pages of the same index",
            Reason::LogFlush => "the log is being written or flushed for a commit",
            Reason::LogRing => {
                "the log buffer is full: changes arrive faster than the log is written"
            }
            Reason::LogSegment => "the next log file is being created",
            Reason::LogBudget => "the log is close to its budget: pages must be written",
            Reason::DiskFull => "the disk is full",
            Reason::Rollback => "the row is still being rolled back after the last restart",
            Reason::History => "row versions are being moved in memory",
        }
    }
}

/// The thing waited for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Of {
    /// Not one thing.
    #[default]
    Nothing,
    /// An index, and the connection that has the lock (0: none known).
    Index {
        /// Its id.
        index: u32,
        /// Connection of the holder.
        holder: u64,
    },
    /// A table, and the connection that has the lock (0: none known).
    Table {
        /// Its id.
        table: u64,
        /// Connection of the holder.
        holder: u64,
    },
    /// A page.
    Page(u32),
}

/// Who waited.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Who {
    /// Connection; 0 for a thread of the engine.
    pub thread_id: u64,
    /// Name of a thread of the engine.
    pub thread: String,
    /// What the connection ran.
    pub query: Vec<u8>,
}

/// One line of the journal.
#[derive(Clone, Debug)]
pub struct LongWait {
    /// When it ended, us since 1970.
    pub ended_unix_us: u64,
    /// How long it was, us.
    pub us: u64,
    /// Why.
    pub reason: Reason,
    /// For what.
    pub of: Of,
    /// By whom.
    pub who: Who,
    /// In which transaction; 0: not known, or it had changed nothing.
    pub txn: u64,
}

static TIMES: [Histogram; Reason::ALL.len()] = [const { Histogram::new() }; Reason::ALL.len()];
static LONG_COUNT: AtomicU64 = AtomicU64::new(0);
static LONG: AtomicU64 = AtomicU64::new(LONG_US);
static JOURNAL_OF: Mutex<VecDeque<LongWait>> = Mutex::new(VecDeque::new());
static CONNECTION: OnceLock<fn() -> Option<Who>> = OnceLock::new();

fn journal() -> MutexGuard<'static, VecDeque<LongWait>> {
    JOURNAL_OF.lock().unwrap_or_else(|e| e.into_inner())
}

/// Waits by calling `wait`, and books how long that took.
#[inline]
pub fn waiting<T>(reason: Reason, of: Of, wait: impl FnOnce() -> T) -> T {
    crate::may_wait(reason.name());
    let begun = time::now_us();
    let result = observed::wait(reason as u32, wait);
    booked(reason, of, time::now_us().saturating_sub(begun));
    result
}

/// A wait in slices, between which the thread looks whether it is over. It is booked as one, when this is dropped: from
/// the first slice on, whatever was done between them. Without a slice nothing is booked, and no clock is asked.
pub struct Sliced {
    reason: Reason,
    of: Of,
    begun_us: Option<u64>,
}

impl Sliced {
    /// Not begun yet.
    pub fn new(reason: Reason, of: Of) -> Sliced {
        Sliced {
            reason,
            of,
            begun_us: None,
        }
    }

    /// A slice of it.
    pub fn slice<T>(&mut self, wait: impl FnOnce() -> T) -> T {
        crate::may_wait(self.reason.name());
        self.begun_us.get_or_insert_with(time::now_us);
        observed::wait(self.reason as u32, wait)
    }
}

impl Drop for Sliced {
    fn drop(&mut self) {
        if let Some(begun_us) = self.begun_us {
            let took_us = time::now_us().saturating_sub(begun_us);
            booked(self.reason, self.of, took_us);
        }
    }
}

/// Books a wait that took so many microseconds and has just ended in this thread.
#[inline]
pub fn booked(reason: Reason, of: Of, us: u64) {
    booked_in(reason, of, us, 0);
}

/// As [`booked`], by that transaction.
#[inline]
pub fn booked_in(reason: Reason, of: Of, us: u64, txn: u64) {
    TIMES[reason as usize].record_us(us);
    if us >= LONG.load(Ordering::Relaxed) {
        note_long(reason, of, us, txn, this_thread());
    }
}

/// Books a wait that this thread ends for another connection. `who` is asked after a long one.
#[inline]
pub fn booked_for(reason: Reason, us: u64, who: impl FnOnce() -> Option<Who>) {
    TIMES[reason as usize].record_us(us);
    if us >= LONG.load(Ordering::Relaxed) {
        let who = who().unwrap_or_else(this_thread);
        note_long(reason, Of::Nothing, us, 0, who);
    }
}

/// From now on waits this long or longer are kept in the journal, in us.
pub fn set_long_us(us: u64) {
    assert!(us > 0, "every wait would be a long one");
    LONG.store(us, Ordering::Relaxed);
}

#[cold]
fn this_thread() -> Who {
    let connection = CONNECTION.get().and_then(|ask| ask());
    connection.unwrap_or_else(|| Who {
        thread: std::thread::current().name().unwrap_or("").to_string(),
        ..Who::default()
    })
}

#[cold]
fn note_long(reason: Reason, of: Of, us: u64, txn: u64, who: Who) {
    let line = LongWait {
        ended_unix_us: time::unix_us(),
        us,
        reason,
        of,
        who,
        txn,
    };
    LONG_COUNT.fetch_add(1, Ordering::Relaxed);
    let mut journal = journal();
    if journal.len() == JOURNAL {
        journal.pop_front();
    }
    journal.push_back(line);
}

/// How the journal learns for which connection the calling thread works (None: for none). The
/// first call counts. The function is called at the end of long waits, possibly under latches: it
/// must not wait.
pub fn set_connection(ask: fn() -> Option<Who>) {
    let _ = CONNECTION.set(ask);
}

/// How long waits for that reason took.
pub fn times(reason: Reason) -> &'static Histogram {
    &TIMES[reason as usize]
}

/// How many long waits there were, those that the journal has forgotten too.
pub fn long_count() -> u64 {
    LONG_COUNT.load(Ordering::Relaxed)
}

/// The long waits, oldest first.
pub fn long_waits() -> Vec<LongWait> {
    journal().iter().cloned().collect()
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn reasons_stand_at_their_place() {
        for (i, reason) in Reason::ALL.into_iter().enumerate() {
            assert_eq!(reason as usize, i);
        }
    }

    #[test]
    fn long_waits_are_told_and_short_ones_counted() {
        let before = times(Reason::LogSegment).count();
        let of = Of::Index {
            index: 7,
            holder: 9,
        };
        booked(Reason::LogSegment, of, LONG_US - 1);
        booked(Reason::LogSegment, of, LONG_US);
        assert_eq!(waiting(Reason::LogSegment, Of::Nothing, || 5), 5);
        assert_eq!(times(Reason::LogSegment).count(), before + 3);
        let told: Vec<LongWait> = long_waits().into_iter().filter(|w| w.of == of).collect();
        assert_eq!(told.len(), 1);
        assert_eq!((told[0].us, told[0].reason), (LONG_US, Reason::LogSegment));
        assert!(!told[0].who.thread.is_empty());
        let other = || {
            Some(Who {
                thread_id: 77,
                ..Who::default()
            })
        };
        let page = Of::Page(4);
        drop(Sliced::new(Reason::LogSegment, page));
        let mut sliced = Sliced::new(Reason::LogSegment, page);
        for _ in 0..8 {
            sliced.slice(|| std::thread::sleep(std::time::Duration::from_micros(LONG_US / 4)));
        }
        drop(sliced);
        assert_eq!(times(Reason::LogSegment).count(), before + 4);
        let told: Vec<LongWait> = long_waits().into_iter().filter(|w| w.of == page).collect();
        assert!(told.len() == 1 && told[0].us >= 2 * LONG_US, "{told:?}");
        booked_for(Reason::LogSegment, LONG_US - 1, other);
        booked_for(Reason::LogSegment, LONG_US, other);
        booked_in(Reason::LogSegment, Of::Nothing, LONG_US, 88);
        let mine = |w: &LongWait| w.who.thread_id == 77 || w.txn == 88;
        assert_eq!(long_waits().iter().filter(|w| mine(w)).count(), 2);
        for _ in 0..JOURNAL {
            booked(Reason::LogSegment, Of::Page(1), LONG_US);
        }
        assert_eq!(long_waits().len(), JOURNAL);
        assert!(long_waits().iter().all(|w| w.of != of));
    }
}
