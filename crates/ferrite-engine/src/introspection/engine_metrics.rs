//! The engine's figures: each status variable `Ferrite_...` by name, with its meaning and its value now.
//!
//! Locking: none for long, and none that is held over a wait for the log or the disk: the server asks for all of them at any
//! SHOW STATUS, also while everything stands still. Sizes are read one after the other, so that sums of them may be of
//! different moments.

use crate::introspection::metric::{Metric, Subsystem};
use crate::introspection::wait_metrics;
use crate::state::engine::Engine;
use ferrite_sync::atomic::Ordering;
use ferrite_types::Error;

impl Engine {
    /// Every figure there is.
    pub fn metrics(&self) -> Vec<Metric> {
        let mut all = self.metrics_rows();
        all.extend(self.metrics_buffer());
        all.extend(self.metrics_store());
        all.extend(self.metrics_second_tier());
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
        let [transaction, dml, dictionary] = ["transaction", "dml", "dictionary"].map(Subsystem);
        vec![
            transaction.counter(
                "commits",
                c.commits.get(),
                "Number of transactions committed with changes",
            ),
            transaction.counter(
                "rollbacks",
                c.rollbacks.get(),
                "Number of transactions rolled back with changes",
            ),
            dml.counter(
                "rows_inserted",
                c.rows_inserted.get(),
                "Number of rows inserted",
            ),
            dml.counter(
                "rows_updated",
                c.rows_updated.get(),
                "Number of rows updated",
            ),
            dml.counter(
                "rows_deleted",
                c.rows_deleted.get(),
                "Number of rows deleted",
            ),
            transaction.gauge(
                "active_transactions",
                self.txns.active_count() as u64,
                "Number of active transactions with changes",
            ),
            dictionary.gauge(
                "tables",
                self.dict.table_count(),
                "Number of tables in the dictionary",
            ),
        ]
    }

    pub(super) fn metrics_store(&self) -> Vec<Metric> {
        let s = &self.pool.stats;
        let store = self.store.stats();
        let of = Subsystem("store");
        vec![
            of.counter(
                "pages_written",
                s.pages_written.get(),
                "Number of pages written",
            ),
            of.counter(
                "data_written",
                s.bytes_written.get(),
                "Bytes written to pages",
            ),
            of.counter(
                "pages_compressed",
                s.pages_packed.get(),
                "Number of pages written compressed",
            ),
            of.counter(
                "pages_compressed_in_vain",
                s.packed_in_vain.get(),
                "Number of pages written as they are because compression saved too little",
            ),
            of.counter("data_read", store.bytes_read, "Bytes read from pages"),
            of.counter(
                "data_fsyncs",
                store.syncs,
                "Number of fsync operations on the store's files",
            ),
            of.counter(
                "scrubbed_bytes",
                store.bytes_scrubbed + self.log.stats().scrubbed_bytes,
                "Bytes of deleted data and old log overwritten with zeroes",
            ),
            of.gauge(
                "store_file_bytes",
                self.store.file_bytes(),
                "Size of the store's files",
            ),
            of.gauge(
                "store_used_bytes",
                self.store.used_bytes(),
                "Bytes of the store in use",
            ),
            of.gauge(
                "store_free_bytes",
                self.store.free_bytes(),
                "Bytes of the store free for reuse",
            ),
            of.gauge(
                "disk_full",
                u64::from(self.is_disk_full()),
                "1 if the disk is full: changes are refused, or the log waits for space",
            ),
            of.gauge(
                "store_encrypted",
                u64::from(self.is_encrypted()),
                "1 if all files are encrypted",
            ),
        ]
    }

    /// When something was last to be written there was no space for it, of pages or of the log. Also while everybody
    /// waits for it: a wait counts when it has ended.
    fn is_disk_full(&self) -> bool {
        let pages = self.pool.refusal(false);
        matches!(pages, Some(Error::DiskFull(_))) || self.log.is_disk_full()
    }

    pub(super) fn metrics_second_tier(&self) -> Vec<Metric> {
        let tier = self.store.second_tier_stats().unwrap_or_default();
        let of = Subsystem("second_tier");
        vec![
            of.gauge(
                "second_tier_on",
                u64::from(tier.on),
                "1 if a second tier is in use",
            ),
            of.counter(
                "second_tier_hits",
                tier.hits,
                "Number of pages read from the second tier",
            ),
            of.counter(
                "second_tier_misses",
                tier.misses,
                "Number of pages that were not in the second tier",
            ),
            of.counter(
                "second_tier_skipped",
                tier.skipped,
                "Number of pages not kept because the device was behind",
            ),
            of.counter(
                "second_tier_damaged",
                tier.damaged,
                "Number of damaged pages found in the second tier",
            ),
            of.counter(
                "second_tier_written",
                tier.bytes_written,
                "Bytes written to the second tier",
            ),
            of.gauge(
                "second_tier_pages",
                tier.pages,
                "Number of pages in the second tier",
            ),
        ]
    }

    pub(super) fn metrics_log(&self) -> Vec<Metric> {
        let log = self.log.stats();
        // The log only grows: what is read of it afterwards is not before the checkpoint.
        let start = self.checkpoint_lsn.load(Ordering::SeqCst);
        let now = self.log.current_lsn().0;
        debug_assert!(
            start <= now,
            "a checkpoint from {start}, the log ends at {now}"
        );
        let of = Subsystem("log");
        vec![
            of.gauge("lsn_current", now, "Current log sequence number"),
            of.gauge(
                "lsn_flushed",
                self.log.durable_lsn().0,
                "Log sequence number up to which the log is durable",
            ),
            of.gauge(
                "lsn_last_checkpoint",
                start,
                "Log sequence number at which crash recovery would begin",
            ),
            of.gauge(
                "checkpoint_age",
                now.saturating_sub(start),
                "Bytes of log that crash recovery would read",
            ),
            of.counter(
                "checkpoints",
                self.counters.checkpoints.get(),
                "Number of checkpoints",
            ),
            of.counter(
                "throttled_statements",
                self.counters.throttled.get(),
                "Number of row changes that waited for log space",
            ),
            of.counter("os_log_fsyncs", log.flushes, "Number of log flushes"),
            of.counter(
                "os_log_written",
                log.flushed_bytes,
                "Bytes written to the log",
            ),
        ]
    }

    /// Of the last start.
    fn metrics_recovery(&self) -> Vec<Metric> {
        let c = &self.counters;
        let changes = self.pool.change_buffer();
        let redone = c.recovery_pages_redone.get() + changes.redone.get();
        let of = Subsystem("recovery");
        vec![
            of.gauge(
                "recovery_time",
                c.recovery_ms.get(),
                "Duration of crash recovery at the last start, ms; 0 if there was none",
            ),
            of.gauge(
                "recovery_log_bytes",
                c.recovery_log_bytes.get(),
                "Bytes of log that crash recovery read at the last start",
            ),
            of.gauge(
                "recovery_pages_redone",
                redone,
                "Number of pages to which crash recovery has applied changes since the last start, in each of \
                 its batches",
            ),
            of.gauge(
                "recovery_pages_left",
                changes.pages_to_redo() as u64,
                "Number of pages that are redone when they are read, or in the background",
            ),
            of.gauge(
                "recovery_pages_read",
                c.recovery_pages_read.get(),
                "Number of pages that crash recovery read for it",
            ),
            of.gauge(
                "warm_start_pages",
                c.warmed.get(),
                "Number of pages read since the start because they were in memory before it",
            ),
        ]
    }

    fn metrics_backup(&self) -> Vec<Metric> {
        let info = self.backup.info();
        let (log, pages) = self.kept_for_backup();
        let of = Subsystem("backup");
        vec![
            of.counter(
                "backups_completed",
                self.backup.completed.get(),
                "Number of hot backups completed",
            ),
            of.counter(
                "backups_failed",
                self.backup.failed.get(),
                "Number of hot backups that failed or were ended",
            ),
            of.gauge(
                "backup_copied_bytes",
                info.copied_bytes,
                "Bytes copied by the hot backup that runs, or ran last",
            ),
            of.gauge(
                "backup_kept_bytes",
                log + pages,
                "Bytes of log and of replaced pages kept for a running hot backup",
            ),
        ]
    }

    fn metrics_snapshots(&self) -> Vec<Metric> {
        let of = Subsystem("kept_snapshots");
        vec![
            of.gauge(
                "kept_snapshots",
                self.snapshots.count() as u64,
                "Number of snapshots that are kept",
            ),
            of.gauge(
                "kept_snapshots_bytes",
                self.snapshot_bytes(),
                "Bytes that they take: their files, and pages that have changed since",
            ),
            of.counter(
                "kept_snapshots_taken",
                self.snapshots.taken.get(),
                "Number of snapshots taken",
            ),
            of.counter(
                "kept_snapshots_evicted",
                self.snapshots.evicted.get(),
                "Number of snapshots dropped for ferrite_snapshot_max_bytes or on a full disk",
            ),
        ]
    }

    pub(super) fn metrics_purge(&self) -> Vec<Metric> {
        let (archived, archived_bytes) = self.archived();
        let purge = &self.purge;
        let of = Subsystem("history");
        vec![
            of.gauge(
                "delete_archive_entries",
                archived,
                "Number of deleted index entries in the delete archive, kept for old snapshots",
            ),
            of.gauge(
                "delete_archive_bytes",
                archived_bytes,
                "Size of the delete archive in bytes",
            ),
            of.counter(
                "entries_archived",
                purge.archived.load(Ordering::Relaxed),
                "Number of deleted index entries moved to the delete archive",
            ),
            of.gauge(
                "history_list_length",
                purge.length() as u64,
                "Number of committed transactions not yet purged",
            ),
            of.gauge(
                "purge_lag",
                purge.lag_us() / 1000,
                "Age of the oldest committed transaction not yet purged, ms",
            ),
            of.counter(
                "purged_entries",
                purge.purged.load(Ordering::Relaxed),
                "Number of index entries and out-of-line values purged",
            ),
            of.counter(
                "purge_by_committers",
                purge.helped.load(Ordering::Relaxed),
                "Number of commits that assisted purge because the purge threads lagged",
            ),
        ]
    }

    pub(super) fn metrics_versions(&self) -> Vec<Metric> {
        let v = self.versions.stats();
        let kept = v.young_bytes + v.old_bytes + self.archived().1;
        let snapshots = self.open_snapshots().len() as u64;
        let of = Subsystem("history");
        vec![
            of.gauge("open_snapshots", snapshots, "Number of open snapshots"),
            of.gauge(
                "history_bytes",
                kept,
                "Bytes of row versions and archived deleted entries in memory",
            ),
            of.gauge(
                "history_ring_bytes",
                v.young_bytes,
                "Bytes of row versions in the history ring",
            ),
            of.gauge(
                "history_old_bytes",
                v.old_bytes,
                "Bytes of row versions in memory kept for old snapshots and long transactions",
            ),
            of.gauge(
                "history_spilled_bytes",
                v.spilled_bytes,
                "Bytes of row versions in scratch files",
            ),
            of.gauge(
                "version_chain_p99",
                v.chain_p99,
                "Length of row version chains after updates, 99th percentile since server start",
            ),
            of.counter("versions_made", v.made, "Number of row versions created"),
            of.counter(
                "versions_pruned",
                v.pruned,
                "Number of row versions pruned by updates",
            ),
            of.counter(
                "versions_moved",
                v.moved,
                "Number of row versions moved out of the ring for old snapshots",
            ),
            of.counter(
                "versions_spilled",
                v.spilled,
                "Number of row versions written to scratch files",
            ),
            of.counter(
                "history_spill_failures",
                v.spill_failures,
                "Number of failed writes to scratch files (the versions stay in memory)",
            ),
            of.gauge(
                "undo_spilled_bytes",
                self.undo_area.bytes(),
                "Bytes of undo log of long transactions in the file undo.spill",
            ),
        ]
    }

    pub(super) fn metrics_locks(&self) -> Vec<Metric> {
        let l = self.locks.stats();
        let of = Subsystem("lock");
        vec![
            of.counter("row_lock_waits", l.waits, "Number of waits for row locks"),
            of.counter(
                "row_lock_time",
                l.wait_us_total / 1000,
                "Total time spent waiting for row locks, ms",
            ),
            of.gauge(
                "row_lock_current_waits",
                l.waiting,
                "Number of row and table locks waited for now",
            ),
            of.gauge(
                "row_lock_time_max",
                l.wait_us_max / 1000,
                "Maximum time to wait for a row lock, ms",
            ),
            of.counter("deadlocks", l.deadlocks, "Number of deadlocks"),
            of.counter(
                "lock_timeouts",
                l.timeouts,
                "Number of lock waits that timed out",
            ),
        ]
    }
}
