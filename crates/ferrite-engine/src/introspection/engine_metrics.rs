//! The engine's figures: each status variable `Ferrite_...` by name, with its meaning and its value now.
//!
//! Locking: none for long; sizes are read one after the other, so that sums of them may be of different moments.

use crate::introspection::metric::{counter, gauge, Metric};
use crate::introspection::wait_metrics;
use crate::state::engine::Engine;
use ferrite_sync::atomic::{AtomicU64, Ordering};
use ferrite_sync::Counter;

impl Engine {
    /// Every figure there is.
    pub fn metrics(&self) -> Vec<Metric> {
        let mut all = self.metrics_rows();
        all.extend(self.metrics_buffer());
        all.extend(self.metrics_store());
        all.extend(self.metrics_log());
        all.extend(self.metrics_recovery());
        all.extend(self.metrics_versions());
        all.extend(self.metrics_purge());
        all.extend(self.metrics_locks());
        all.extend(self.metrics_backup());
        all.extend(self.metrics_snapshots());
        all.extend(wait_metrics::metrics());
        all
    }

    pub(super) fn metrics_rows(&self) -> Vec<Metric> {
        let c = &self.counters;
        vec![
            counter(
                "commits",
                c.commits.get(),
                "transaction",
                "Number of transactions committed with changes",
            ),
            counter(
                "rollbacks",
                c.rollbacks.get(),
                "transaction",
                "Number of transactions rolled back with changes",
            ),
            counter(
                "rows_inserted",
                c.rows_inserted.get(),
                "dml",
                "Number of rows inserted",
            ),
            counter(
                "rows_updated",
                c.rows_updated.get(),
                "dml",
                "Number of rows updated",
            ),
            counter(
                "rows_deleted",
                c.rows_deleted.get(),
                "dml",
                "Number of rows deleted",
            ),
            gauge(
                "active_transactions",
                self.txns.active_count() as u64,
                "transaction",
                "Number of active transactions with changes",
            ),
            gauge(
                "tables",
                self.dict.table_count() as u64,
                "dictionary",
                "Number of tables in the dictionary",
            ),
        ]
    }

    pub(super) fn metrics_buffer(&self) -> Vec<Metric> {
        let mut all = self.metrics_pool();
        all.extend(self.metrics_read_ahead());
        all.extend(self.metrics_beside_pages());
        all
    }

    fn metrics_pool(&self) -> Vec<Metric> {
        let s = &self.pool.stats;
        let total = self.pool.frame_count() as u64;
        let free = self.pool.free_frames() as u64;
        let data = total.saturating_sub(free) * ferrite_types::PAGE_BYTES as u64;
        let dirty = self.pool.dirty_pages() as u64;
        let gauge = |name, value, comment| gauge(name, value, "buffer", comment);
        let counter =
            |name, value: &Counter, comment| counter(name, value.get(), "buffer", comment);
        vec![
            gauge(
                "memory_bytes",
                self.memory_bytes(),
                "Bytes of memory that Ferrite has, the buffer pool included",
            ),
            gauge(
                "buffer_pool_pages_total",
                total,
                "Size of the buffer pool in pages",
            ),
            gauge(
                "buffer_pool_pages_leaving",
                self.pool.leaving_frames() as u64,
                "Number of pages that the buffer pool still has to clear before it is as small as \
                 ferrite_buffer_pool_size says",
            ),
            gauge(
                "buffer_pool_pages_free",
                free,
                "Number of free pages in the buffer pool",
            ),
            gauge(
                "buffer_pool_pages_dirty",
                dirty,
                "Number of dirty pages in the buffer pool",
            ),
            gauge(
                "buffer_pool_bytes_data",
                data,
                "Bytes in the buffer pool that contain data",
            ),
            counter(
                "buffer_pool_reads",
                &s.reads,
                "Number of pages read from disk",
            ),
            counter(
                "buffer_pool_wait_free",
                &s.free_waits,
                "Number of waits for a free page in the buffer pool",
            ),
            counter(
                "buffer_pool_evictions",
                &s.evictions,
                "Number of clean pages evicted from the buffer pool",
            ),
            counter(
                "buffer_pool_latch_waits",
                &s.latch_waits,
                "Number of waits for a page latch",
            ),
        ]
    }

    fn metrics_read_ahead(&self) -> Vec<Metric> {
        let s = &self.pool.stats;
        let counter =
            |name, value: &Counter, comment| counter(name, value.get(), "buffer", comment);
        vec![
            counter(
                "buffer_pool_read_ahead",
                &s.read_ahead,
                "Number of pages read ahead of their use",
            ),
            counter(
                "buffer_pool_read_ahead_used",
                &s.read_ahead_used,
                "Number of pages read ahead that were used",
            ),
            counter(
                "buffer_pool_read_ahead_evicted",
                &s.read_ahead_unused,
                "Number of pages read ahead that were evicted before they were used",
            ),
            counter(
                "buffer_pool_read_ahead_waits",
                &s.read_ahead_waits,
                "Number of waits for a page that was being read ahead",
            ),
        ]
    }

    /// Changes and rows in memory whose pages are not.
    fn metrics_beside_pages(&self) -> Vec<Metric> {
        let (changes, rows) = (self.pool.change_buffer(), self.pool.row_cache());
        let gauge = |name, value, comment| gauge(name, value, "buffer", comment);
        let counter =
            |name, value: &Counter, comment| counter(name, value.get(), "buffer", comment);
        vec![
            gauge(
                "change_buffer_bytes",
                changes.bytes() as u64,
                "Bytes in the change buffer, after a crash those of pages to be redone among them",
            ),
            gauge(
                "change_buffer_pages",
                changes.pages().saturating_sub(changes.pages_to_redo()) as u64,
                "Number of pages with changes in the change buffer",
            ),
            counter(
                "change_buffer_changes",
                &changes.changes,
                "Number of index entries put into the change buffer",
            ),
            counter(
                "change_buffer_merged",
                &changes.merged,
                "Number of index entries merged from the change buffer",
            ),
            counter(
                "change_buffer_merges",
                &changes.merges,
                "Number of pages into which entries were merged from the change buffer",
            ),
            gauge(
                "row_cache_bytes",
                rows.bytes() as u64,
                "Bytes in the row cache",
            ),
            gauge(
                "row_cache_pages",
                rows.pages() as u64,
                "Number of pages with rows in the row cache",
            ),
            counter(
                "row_cache_stored",
                &rows.stored,
                "Number of rows put into the row cache",
            ),
            counter(
                "row_cache_hits",
                &rows.hits,
                "Number of rows read from the row cache, without their page",
            ),
        ]
    }

    pub(super) fn metrics_store(&self) -> Vec<Metric> {
        let s = &self.pool.stats;
        let store = self.store.stats();
        let gauge = |name, value, comment| gauge(name, value, "store", comment);
        let counter = |name, value, comment| counter(name, value, "store", comment);
        vec![
            counter(
                "pages_written",
                s.pages_written.get(),
                "Number of pages written",
            ),
            counter(
                "data_written",
                s.bytes_written.get(),
                "Bytes written to pages",
            ),
            counter(
                "pages_compressed",
                s.pages_packed.get(),
                "Number of pages written compressed",
            ),
            counter(
                "pages_compressed_in_vain",
                s.packed_in_vain.get(),
                "Number of pages written as they are because compression saved too little",
            ),
            counter("data_read", store.bytes_read, "Bytes read from pages"),
            counter(
                "data_fsyncs",
                store.syncs,
                "Number of fsync operations on the store's files",
            ),
            counter(
                "scrubbed_bytes",
                store.bytes_scrubbed + self.log.stats().scrubbed_bytes,
                "Bytes of deleted data and old log overwritten with zeroes",
            ),
            gauge(
                "store_file_bytes",
                self.store.file_bytes(),
                "Size of the store's files",
            ),
            gauge(
                "store_used_bytes",
                self.store.used_bytes(),
                "Bytes of the store in use",
            ),
            gauge(
                "store_free_bytes",
                self.store.free_bytes(),
                "Bytes of the store free for reuse",
            ),
            gauge(
                "store_encrypted",
                u64::from(self.is_encrypted()),
                "1 if all files are encrypted",
            ),
        ]
    }

    pub(super) fn metrics_log(&self) -> Vec<Metric> {
        let log = self.log.stats();
        let now = self.log.current_lsn().0;
        let start = self.checkpoint_lsn.load(Ordering::Relaxed);
        vec![
            gauge("lsn_current", now, "log", "Current log sequence number"),
            gauge(
                "lsn_flushed",
                self.log.durable_lsn().0,
                "log",
                "Log sequence number up to which the log is durable",
            ),
            gauge(
                "lsn_last_checkpoint",
                start,
                "log",
                "Log sequence number at which crash recovery would begin",
            ),
            gauge(
                "checkpoint_age",
                now - start,
                "log",
                "Bytes of log that crash recovery would read",
            ),
            counter(
                "checkpoints",
                self.counters.checkpoints.get(),
                "log",
                "Number of checkpoints",
            ),
            counter(
                "throttled_statements",
                self.counters.throttled.get(),
                "log",
                "Number of row changes that waited for log space",
            ),
            counter("os_log_fsyncs", log.flushes, "log", "Number of log flushes"),
            counter(
                "os_log_written",
                log.flushed_bytes,
                "log",
                "Bytes written to the log",
            ),
        ]
    }

    /// Of the last start.
    fn metrics_recovery(&self) -> Vec<Metric> {
        let c = &self.counters;
        let changes = self.pool.change_buffer();
        let redone = c.recovery_pages_redone.get() + changes.redone.get();
        let gauge = |name, value, comment| gauge(name, value, "recovery", comment);
        vec![
            gauge(
                "recovery_time",
                c.recovery_ms.get(),
                "Duration of crash recovery at the last start, ms; 0 if there was none",
            ),
            gauge(
                "recovery_log_bytes",
                c.recovery_log_bytes.get(),
                "Bytes of log that crash recovery read at the last start",
            ),
            gauge(
                "recovery_pages_redone",
                redone,
                "Number of pages to which crash recovery has applied changes since the last start, in each of \
                 its batches",
            ),
            gauge(
                "recovery_pages_left",
                changes.pages_to_redo() as u64,
                "Number of pages that are redone when they are read, or in the background",
            ),
            gauge(
                "recovery_pages_read",
                c.recovery_pages_read.get(),
                "Number of pages that crash recovery read for it",
            ),
            gauge(
                "warm_start_pages",
                c.warmed.get(),
                "Number of pages read since the start because they were in memory before it",
            ),
        ]
    }

    fn metrics_backup(&self) -> Vec<Metric> {
        let info = self.backup.info();
        let (log, pages) = self.kept_for_backup();
        let gauge = |name, value, comment| gauge(name, value, "backup", comment);
        vec![
            counter(
                "backups_completed",
                self.backup.completed.get(),
                "backup",
                "Number of hot backups completed",
            ),
            counter(
                "backups_failed",
                self.backup.failed.get(),
                "backup",
                "Number of hot backups that failed or were ended",
            ),
            gauge(
                "backup_copied_bytes",
                info.copied_bytes,
                "Bytes copied by the hot backup that runs, or ran last",
            ),
            gauge(
                "backup_kept_bytes",
                log + pages,
                "Bytes of log and of replaced pages kept for a running hot backup",
            ),
        ]
    }

    fn metrics_snapshots(&self) -> Vec<Metric> {
        let gauge = |name, value, comment| gauge(name, value, "kept_snapshots", comment);
        let counter = |name, value, comment| counter(name, value, "kept_snapshots", comment);
        vec![
            gauge(
                "kept_snapshots",
                self.snapshots.count() as u64,
                "Number of snapshots that are kept",
            ),
            gauge(
                "kept_snapshots_bytes",
                self.snapshot_bytes(),
                "Bytes that they take: their files, and pages that have changed since",
            ),
            counter(
                "kept_snapshots_taken",
                self.snapshots.taken.get(),
                "Number of snapshots taken",
            ),
            counter(
                "kept_snapshots_evicted",
                self.snapshots.evicted.get(),
                "Number of snapshots dropped for ferrite_snapshot_max_bytes or on a full disk",
            ),
        ]
    }

    pub(super) fn metrics_purge(&self) -> Vec<Metric> {
        let (archived, archived_bytes) = self.archived();
        let purge = &self.purge;
        let gauge = |name, value, comment| gauge(name, value, "history", comment);
        let counter = |name, value: &AtomicU64, comment| {
            counter(name, value.load(Ordering::Relaxed), "history", comment)
        };
        vec![
            gauge(
                "delete_archive_entries",
                archived,
                "Number of deleted index entries in the delete archive, kept for old snapshots",
            ),
            gauge(
                "delete_archive_bytes",
                archived_bytes,
                "Size of the delete archive in bytes",
            ),
            counter(
                "entries_archived",
                &purge.archived,
                "Number of deleted index entries moved to the delete archive",
            ),
            gauge(
                "history_list_length",
                purge.length() as u64,
                "Number of committed transactions not yet purged",
            ),
            gauge(
                "purge_lag",
                purge.lag_us() / 1000,
                "Age of the oldest committed transaction not yet purged, ms",
            ),
            counter(
                "purged_entries",
                &purge.purged,
                "Number of index entries and out-of-line values purged",
            ),
            counter(
                "purge_by_committers",
                &purge.helped,
                "Number of commits that assisted purge because the purge threads lagged",
            ),
        ]
    }

    pub(super) fn metrics_versions(&self) -> Vec<Metric> {
        let v = self.versions.stats();
        let kept = v.young_bytes + v.old_bytes + self.archived().1;
        let snapshots = self.open_snapshots().len() as u64;
        let gauge = |name, value, comment| gauge(name, value, "history", comment);
        let counter = |name, value, comment| counter(name, value, "history", comment);
        vec![
            gauge("open_snapshots", snapshots, "Number of open snapshots"),
            gauge(
                "history_bytes",
                kept,
                "Bytes of row versions and archived deleted entries in memory",
            ),
            gauge(
                "history_ring_bytes",
                v.young_bytes,
                "Bytes of row versions in the history ring",
            ),
            gauge(
                "history_old_bytes",
                v.old_bytes,
                "Bytes of row versions in memory kept for old snapshots and long transactions",
            ),
            gauge(
                "history_spilled_bytes",
                v.spilled_bytes,
                "Bytes of row versions in scratch files",
            ),
            gauge(
                "version_chain_p99",
                v.chain_p99,
                "Length of row version chains after updates, 99th percentile since server start",
            ),
            counter("versions_made", v.made, "Number of row versions created"),
            counter(
                "versions_pruned",
                v.pruned,
                "Number of row versions pruned by updates",
            ),
            counter(
                "versions_moved",
                v.moved,
                "Number of row versions moved out of the ring for old snapshots",
            ),
            counter(
                "versions_spilled",
                v.spilled,
                "Number of row versions written to scratch files",
            ),
            counter(
                "history_spill_failures",
                v.spill_failures,
                "Number of failed writes to scratch files (the versions stay in memory)",
            ),
            gauge(
                "undo_spilled_bytes",
                self.undo_area.bytes(),
                "Bytes of undo log of long transactions in the file undo.spill",
            ),
        ]
    }

    pub(super) fn metrics_locks(&self) -> Vec<Metric> {
        let l = self.locks.stats();
        vec![
            counter(
                "row_lock_waits",
                l.waits,
                "lock",
                "Number of waits for row locks",
            ),
            counter(
                "row_lock_time",
                l.wait_us_total / 1000,
                "lock",
                "Total time spent waiting for row locks, ms",
            ),
            gauge(
                "row_lock_current_waits",
                l.waiting,
                "lock",
                "Number of row and table locks waited for now",
            ),
            gauge(
                "row_lock_time_max",
                l.wait_us_max / 1000,
                "lock",
                "Maximum time to wait for a row lock, ms",
            ),
            counter("deadlocks", l.deadlocks, "lock", "Number of deadlocks"),
            counter(
                "lock_timeouts",
                l.timeouts,
                "lock",
                "Number of lock waits that timed out",
            ),
        ]
    }
}
