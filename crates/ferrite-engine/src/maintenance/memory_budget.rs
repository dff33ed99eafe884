//! The memory budget: everything the engine has stays within it.
//!
//! What changes with the work (row versions, locks, definitions of tables, undo) has the right of
//! way: the buffer pool gets what it leaves, smaller at once, larger when it is worth it.
//!
//! Invariant: without a budget the pool's size is the user's alone. Locking: none of its own; the
//! history thread alone calls it.

use crate::state::callbacks::LogLevel;
use crate::state::config::{SMALLEST_BUDGET_BYTES, SMALLEST_POOL_BYTES};
use crate::state::engine::Engine;
use ferrite_sync::atomic::Ordering;
use ferrite_sync::memory::heap_bytes;

/// The pool grows by no less than this share of the budget: what comes and goes within it is not
/// followed.
const SLACK_SHARE: u64 = 64;
/// Sizes of the pool are multiples of this.
const STEP_BYTES: u64 = 1 << 20;

impl Engine {
    /// Gives the buffer pool what everything else leaves of the budget. `told`: it was said that the
    /// rest alone is more than that.
    pub(crate) fn keep_memory_budget(&self, told: &mut bool) {
        let budget = self.memory_budget_bytes.load(Ordering::Relaxed);
        if budget == 0 {
            return;
        }
        debug_assert!(
            budget >= SMALLEST_BUDGET_BYTES,
            "a budget of {budget} bytes"
        );
        let (_, headers) = self.pool.memory_bytes();
        let rest = heap_bytes() + headers;
        let is_over = rest + SMALLEST_POOL_BYTES > budget;
        if is_over && !*told {
            let text = format!(
                "{} MiB of memory are in use beside the buffer pool, which has its smallest size: \
                 ferrite_memory, {} MiB, is too little (see information_schema.FERRITE_MEMORY)",
                rest >> 20,
                budget >> 20
            );
            self.callbacks.log(LogLevel::Warning, &text);
        }
        *told = is_over;
        // No more than there are addresses for.
        let within = budget.min(rest + self.pool.most_bytes());
        if let Some(bytes) = new_size(within, rest, self.pool.size_bytes()) {
            // The system may refuse it; then it stays as it is.
            let _ = self.pool.resize(bytes);
        }
    }
}

/// The size of a pool of `size` bytes beside `rest` bytes of other memory, if it is to be another.
fn new_size(budget: u64, rest: u64, size: u64) -> Option<u64> {
    let left = budget.saturating_sub(rest) / STEP_BYTES * STEP_BYTES;
    let wanted = left.max(SMALLEST_POOL_BYTES);
    let slack = (budget / SLACK_SHARE).max(STEP_BYTES);
    debug_assert!(
        wanted <= budget || wanted == SMALLEST_POOL_BYTES,
        "{wanted} of {budget}"
    );
    (wanted < size || wanted > size + slack).then_some(wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn the_pool_gets_what_is_left_and_follows_no_trifles() {
        assert_eq!(new_size(256 * MIB, 56 * MIB, 128 * MIB), Some(200 * MIB));
        assert_eq!(new_size(256 * MIB, 56 * MIB, 200 * MIB), None);
        assert_eq!(new_size(256 * MIB, 53 * MIB, 200 * MIB), None, "3 MiB more");
        assert_eq!(new_size(256 * MIB, 51 * MIB, 200 * MIB), Some(205 * MIB));
        assert_eq!(
            new_size(256 * MIB, 56 * MIB + 1, 200 * MIB),
            Some(199 * MIB),
            "less at once"
        );
        assert_eq!(
            new_size(256 * MIB, 300 * MIB, 199 * MIB),
            Some(SMALLEST_POOL_BYTES)
        );
        assert_eq!(new_size(256 * MIB, 300 * MIB, SMALLEST_POOL_BYTES), None);
    }
}
