//! Waits as counters, for tools that read status variables only: for each reason how many and how long.
//!
//! Locking: none.

use crate::introspection::metric::{Metric, Subsystem};
use ferrite_sync::waits::{self, Reason};

const WAIT: Subsystem = Subsystem("wait");

fn counter(name: &'static str, value: u64) -> Metric {
    let comment = if name.starts_with("wait_time_") {
        "Time of the waits for this reason (see FERRITE_WAITS), in microseconds"
    } else {
        "Number of waits for this reason (see FERRITE_WAITS)"
    };
    WAIT.counter(name, value, comment)
}

/// For each reason two counters, and one of the long waits.
pub(crate) fn metrics() -> Vec<Metric> {
    let mut all = counts();
    all.extend(times());
    assert_eq!(
        all.len(),
        2 * Reason::ALL.len(),
        "a reason without counters"
    );
    all.push(WAIT.counter(
        "stalls",
        waits::long_count(),
        "Number of long waits (see ferrite_stall_threshold_ms)",
    ));
    all
}

fn counts() -> Vec<Metric> {
    let of = |reason| waits::times(reason).count();
    vec![
        counter("waits_row_lock", of(Reason::RowLock)),
        counter("waits_table_lock", of(Reason::TableLock)),
        counter("waits_page_latch", of(Reason::PageLatch)),
        counter("waits_page_read", of(Reason::PageRead)),
        counter("waits_free_frame", of(Reason::FreeFrame)),
        counter("waits_tree_structure", of(Reason::TreeStructure)),
        counter("waits_log_flush", of(Reason::LogFlush)),
        counter("waits_log_ring", of(Reason::LogRing)),
        counter("waits_log_segment", of(Reason::LogSegment)),
        counter("waits_log_budget", of(Reason::LogBudget)),
        counter("waits_disk_full", of(Reason::DiskFull)),
        counter("waits_rollback", of(Reason::Rollback)),
        counter("waits_history", of(Reason::History)),
    ]
}

fn times() -> Vec<Metric> {
    let of = |reason| waits::times(reason).sum_us();
    vec![
        counter("wait_time_row_lock", of(Reason::RowLock)),
        counter("wait_time_table_lock", of(Reason::TableLock)),
        counter("wait_time_page_latch", of(Reason::PageLatch)),
        counter("wait_time_page_read", of(Reason::PageRead)),
        counter("wait_time_free_frame", of(Reason::FreeFrame)),
        counter("wait_time_tree_structure", of(Reason::TreeStructure)),
        counter("wait_time_log_flush", of(Reason::LogFlush)),
        counter("wait_time_log_ring", of(Reason::LogRing)),
        counter("wait_time_log_segment", of(Reason::LogSegment)),
        counter("wait_time_log_budget", of(Reason::LogBudget)),
        counter("wait_time_disk_full", of(Reason::DiskFull)),
        counter("wait_time_rollback", of(Reason::Rollback)),
        counter("wait_time_history", of(Reason::History)),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reason_has_its_counters() {
        let all = metrics();
        for reason in Reason::ALL {
            for prefix in ["waits", "wait_time"] {
                let name = format!("{prefix}_{}", reason.name().replace(' ', "_"));
                let found = all.iter().filter(|m| m.name == name && m.is_counter);
                assert_eq!(found.count(), 1, "{name}");
            }
        }
    }
}
