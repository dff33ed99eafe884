//! The thread that empties the change buffer in time: see `ferrite_buffer`'s module `merge_kept`.
//!
//! Locking: none of its own.

use crate::state::callbacks::LogLevel;
use crate::state::engine::Engine;
use ferrite_sync::{thread, time};

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
            if let Some(e) = failed {
                let now_us = time::now_us();
                if told_us.is_none_or(|told| now_us >= told + REMIND_US) {
                    told_us = Some(now_us);
                    let text = format!("{e}; the log is kept from the first of these changes on");
                    self.callbacks.log(LogLevel::Error, &text);
                }
                thread::sleep_us(RETRY_US);
            } else if merged == 0 {
                self.pool.wait_for_kept(PAUSE_US);
            }
        }
    }
}
