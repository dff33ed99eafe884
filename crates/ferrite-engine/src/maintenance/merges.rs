//! The thread that empties the change buffer in time, and redoes behind the start what recovery has put off: see
//! `ferrite_buffer`'s modules `merge_kept` and `deferred`.
//!
//! Behind a start others help it (`Engine::sweep_beside`): one thread among many that serve clients would get little of the
//! processors. A helper ends when no page is left that nobody has taken, and at a page that cannot be read, which is then for
//! this thread to tell. While there is little room on the disk it rests.
//!
//! Locking: none of its own.

use crate::state::callbacks::LogLevel;
use crate::state::engine::Engine;
use ferrite_sync::atomic::Ordering;
use ferrite_sync::{thread, time, Arc};
use ferrite_types::PageId;

/// Longest pause between two looks, in us.
const PAUSE_US: u64 = 100_000;
/// Pause after a page that could not be read, in us.
const RETRY_US: u64 = 1_000_000;
/// Between two notes of how far the redo behind the start has come, in us.
const SWEEP_NOTE_US: u64 = 5_000_000;
/// That pages cannot be read is said again after that time, in us.
const REMIND_US: u64 = 60_000_000;

/// A helper for each so many pages that are to be redone behind the start, up to two for each processor.
const PAGES_PER_HELPER: usize = 64;
const MOST_HELPERS: usize = 8;

/// What is said of the redo behind the start.
struct Sweep {
    /// Pages at its begin.
    all: usize,
    begun_us: u64,
    told_us: u64,
    /// Pages that were left then: of those that cannot be read nothing more is said here.
    told_left: usize,
    is_over: bool,
}

impl Sweep {
    fn of(all: usize) -> Sweep {
        let now_us = time::now_us();
        Sweep {
            all,
            begun_us: now_us,
            told_us: now_us,
            told_left: all,
            is_over: all == 0,
        }
    }

    /// What is to be said now that so many pages are left.
    fn note(&mut self, left: usize) -> Option<String> {
        let now_us = time::now_us();
        let ms = (now_us - self.begun_us) / 1000;
        let waits = now_us < self.told_us + SWEEP_NOTE_US || left == self.told_left;
        if self.is_over || (left > 0 && waits) {
            return None;
        }
        self.told_us = now_us;
        self.told_left = left;
        self.is_over = left == 0;
        let all = self.all;
        let done = all.saturating_sub(left).max(1);
        debug_assert!(all > 0, "a sweep over no page");
        Some(match left {
            0 => format!("recovery: all pages are redone ({all} since the start, in {ms} ms)"),
            _ => format!(
                "recovery: redoing pages in the background: {:.0}% ({done} of {all} pages), about \
                 {:.0} s left",
                done as f64 * 100.0 / all as f64,
                ms as f64 / 1e3 * left as f64 / done as f64
            ),
        })
    }
}

impl Engine {
    pub(super) fn run_merges(self: &Arc<Self>) {
        let left = self.pool.change_buffer().pages_to_redo();
        let helpers = (left / PAGES_PER_HELPER).min((2 * thread::processors()).min(MOST_HELPERS));
        let start = |_| {
            let engine = self.clone();
            thread::try_spawn("ferrite-redo", move || engine.sweep_beside())
        };
        let helpers: Vec<_> = (0..helpers).filter_map(start).collect();
        self.merge_until_stopped(Sweep::of(left));
        for helper in helpers {
            let _ = helper.join();
        }
    }

    /// Body of a thread that helps behind a start.
    fn sweep_beside(&self) {
        let mut merging = self.pool.merging();
        let goes_on = || !self.stopping() && !self.merges_held.load(Ordering::Relaxed);
        while goes_on() {
            match self.pool.sweep_round(&mut merging) {
                None => return,
                Some(0) => thread::sleep_us(PAUSE_US),
                Some(_) => {}
            }
        }
    }

    fn merge_until_stopped(&self, mut sweep: Sweep) {
        let mut merging = self.pool.merging();
        let mut warming = self.warming();
        let mut told_us = None;
        while !self.stopping() {
            if self.merges_held.load(Ordering::Relaxed) {
                self.pool.wait_for_kept(PAUSE_US);
                continue;
            }
            let (merged, failed) = self.pool.merge_round(&mut merging);
            if let Some(text) = sweep.note(self.pool.change_buffer().pages_to_redo()) {
                self.callbacks.log(LogLevel::Note, &text);
            }
            // Who waits for a shorter log would wait in vain. A round that had nothing to do says nothing
            // of it, unless nothing is left: the index may have been dropped.
            let lacks_frames =
                matches!(&failed, Some((_, e)) if ferrite_buffer::is_for_want_of_a_frame(e));
            if lacks_frames {
                // Of no page in particular.
                self.pool.wait_for_kept(RETRY_US);
                continue;
            }
            if merged > 0 || self.pool.change_buffer().pages() == 0 {
                self.merges_fail.store(failed.is_some(), Ordering::Relaxed);
            }
            if let Some((page, e)) = failed {
                let now_us = time::now_us();
                if told_us.is_none_or(|told| now_us >= told + REMIND_US) {
                    told_us = Some(now_us);
                    let index = self.index_name(page);
                    let text = format!(
                        "{index}: {e}; the log is kept from the first of these changes on. If the page is \
                         damaged, drop the index and add it again, or restore or drop the table if it is its \
                         primary key"
                    );
                    self.callbacks.log(LogLevel::Error, &text);
                }
                self.pool.wait_for_kept(RETRY_US);
            } else if merged == 0 {
                let pause_us = self.warm_some(&mut warming, &mut merging);
                self.pool.wait_for_kept(pause_us.unwrap_or(PAUSE_US));
            }
        }
    }

    /// The index that a page belongs to, as a user knows it.
    fn index_name(&self, page: PageId) -> String {
        let id = self.store.directory().owner(page);
        debug_assert!(page != PageId::NONE, "no page");
        let Ok(table) = self.dict.table_of_index(id) else {
            return format!("index {id}");
        };
        let spec = table.spec.indexes.iter().find(|index| index.id == id);
        let name = spec.map_or("?", |index| index.name.as_str());
        format!("index {name} of table {}", table.spec.name)
    }
}

#[cfg(test)]
#[path = "merges_tests.rs"]
mod tests;
