//! The thread that empties the change buffer in time: see `ferrite_buffer`'s module `merge_kept`.
//!
//! Locking: none of its own.

use crate::state::callbacks::LogLevel;
use crate::state::engine::Engine;
use ferrite_sync::atomic::Ordering;
use ferrite_sync::time;
use ferrite_types::PageId;

/// Longest pause between two looks, in us.
const PAUSE_US: u64 = 100_000;
/// Pause after a page that could not be read, in us.
const RETRY_US: u64 = 1_000_000;
/// That pages cannot be read is said again after that time, in us.
const REMIND_US: u64 = 60_000_000;

impl Engine {
    pub(super) fn run_merges(&self) {
        let mut merging = self.pool.merging();
        let mut told_us = None;
        while !self.stopping() {
            let (merged, failed) = self.pool.merge_round(&mut merging);
            // Who waits for a shorter log would wait in vain. A round that had nothing to do says nothing
            // of it, unless nothing is left: the index may have been dropped.
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
                         damaged, drop the index and add it again"
                    );
                    self.callbacks.log(LogLevel::Error, &text);
                }
                self.pool.wait_for_kept(RETRY_US);
            } else if merged == 0 {
                self.pool.wait_for_kept(PAUSE_US);
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
