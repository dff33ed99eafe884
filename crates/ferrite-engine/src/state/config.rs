//! Every setting of an open database, with its unit in its name.

use ferrite_buffer::PoolConfig;
use ferrite_lock::LockConfig;
use ferrite_store::TierConfig;
use ferrite_sync::thread;
use ferrite_types::format::Codec;
use ferrite_types::{Error, Result};

/// Settings at open. Dynamic ones can be changed with `Engine::set`.
#[derive(Clone, Debug)]
pub struct Config {
    /// Memory for pages.
    pub buffer_pool_size_bytes: u64,
    /// Largest size that the buffer pool may be given while the engine runs; 0: it stays as it is
    /// or gets smaller.
    pub buffer_pool_size_max_bytes: u64,
    /// Log that a checkpoint lets grow before it is recycled.
    pub log_budget_bytes: u64,
    /// Size of one log file.
    pub log_segment_bytes: u64,
    /// Memory for log records not yet written.
    pub log_ring_bytes: usize,
    /// Memory for versions before they are looked through.
    pub history_ring_bytes: u64,
    /// Memory beyond that for what cannot be written out, before snapshots end; 0: as much as
    /// the ring, and 256 MiB at least (1 GiB with deleted rows).
    pub history_beyond_ring_bytes: u64,
    /// Memory for versions at which the oldest snapshot is ended; 0: never.
    pub max_history_bytes: u64,
    /// 0 (about once a second), 1 (each commit is durable when it returns), 2 (each commit is
    /// handed to the system when it returns, flushed about once a second).
    pub flush_log_at_commit: u32,
    /// Pace of the background log flush, in ms.
    pub flush_interval_ms: u32,
    /// Default of new sessions, in ms.
    pub lock_wait_timeout_ms: u64,
    /// Threads that write pages back; 0: by processors.
    pub write_threads: u32,
    /// Threads that clean up after commits; 0: by processors.
    pub purge_threads: u32,
    /// Look for deadlocks as soon as somebody waits.
    pub deadlock_detect: bool,
    /// Pass by the system's cache.
    pub direct_io: bool,
    /// Codec of pages written.
    pub codec: Codec,
    /// Largest size of one store file; fixed at creation.
    pub store_file_bytes: u64,
    /// Step in which store files grow; fixed at creation.
    pub store_segment_bytes: u64,
    /// Copies of pages on a faster device.
    pub second_tier: Option<TierConfig>,
    /// The status ring remembers `2^bits` transactions.
    pub txn_ring_bits: u32,
    /// Start no background threads (simulator, tools).
    pub manual_background: bool,
    /// A locking scan tells its locks as a range after so many.
    pub lock_fold_after: u32,
    /// A transaction that holds so many locks gets further record locks in sets.
    pub lock_sets_after: u64,
    /// Free space in the store is used again as soon as can be (simulator).
    pub store_reuse_soon: bool,
    /// Of the transactions that a crash cut off so many bytes of undo are rolled back before the database
    /// opens, the smallest first, and the others beside its use. For some hundred thousand rows. As many again of those
    /// that the server decides to roll back while it starts.
    pub background_undo_bytes: u64,
    /// A rollback, or the making of versions, that has failed is tried again after so long.
    pub retry_rollback_ms: u64,
    /// A checkpoint copies so many bytes of undo that is in memory; of a transaction beyond that, whole
    /// chunks go to `undo.spill` before, once and for all.
    pub checkpoint_undo_bytes: u64,
    /// A transaction that has left so many delete-marks to purge keeps the leaves of further ones alone.
    pub purge_listed_marks: usize,
    /// What was deleted is overwritten in the files.
    pub scrub: bool,
    /// What has changed in a page is written instead of the page while it takes at most one part in
    /// so many of the page's blob; 0: never.
    pub page_delta_share: u32,
    /// Threads that redo pages at start, each with one read in flight; 0: by processors.
    pub recovery_threads: u32,
    /// Memory for changes of pages that are to be redone; 0: by the size of the buffer pool.
    pub recovery_memory_bytes: u64,
    /// Pages are redone when they are read, and behind the start; None: unless there are no background threads.
    pub recovery_puts_off: Option<bool>,
}

/// The smallest buffer pool.
pub(crate) const SMALLEST_POOL_BYTES: u64 = 4 << 20;
/// The smallest memory budget.
pub(crate) const SMALLEST_BUDGET_BYTES: u64 = 64 << 20;
/// The smallest memory for versions.
pub(crate) const SMALLEST_RING_BYTES: u64 = 1 << 20;

impl Default for Config {
    fn default() -> Config {
        Config {
            buffer_pool_size_bytes: 128 << 20,
            buffer_pool_size_max_bytes: 0,
            log_budget_bytes: 1 << 30,
            log_segment_bytes: 64 << 20,
            log_ring_bytes: 16 << 20,
            history_ring_bytes: 64 << 20,
            history_beyond_ring_bytes: 0,
            max_history_bytes: 0,
            flush_log_at_commit: 1,
            flush_interval_ms: 1000,
            lock_wait_timeout_ms: 50_000,
            write_threads: 0,
            purge_threads: 0,
            deadlock_detect: true,
            direct_io: true,
            codec: Codec::None,
            store_file_bytes: 1 << 30,
            store_segment_bytes: 64 << 20,
            second_tier: None,
            txn_ring_bits: 20,
            manual_background: false,
            scrub: false,
            page_delta_share: PoolConfig::DELTA_SHARE,
            lock_fold_after: LockConfig::default().fold_after,
            lock_sets_after: LockConfig::default().sets_after,
            store_reuse_soon: false,
            background_undo_bytes: 16 << 20,
            retry_rollback_ms: 60_000,
            checkpoint_undo_bytes: 64 << 20,
            // Some 2 MB, as much as a transaction may have undo in memory.
            purge_listed_marks: 20_000,
            recovery_threads: 0,
            recovery_memory_bytes: 0,
            recovery_puts_off: None,
        }
    }
}

impl Config {
    /// Refuses what cannot work.
    ///
    /// # Errors
    /// `BadConfig` naming the setting.
    pub fn validate(&self) -> Result<()> {
        let fault = |text: &str| Err(Error::BadConfig(text.into()));
        if self.buffer_pool_size_bytes < SMALLEST_POOL_BYTES {
            return fault("buffer_pool_size must be at least 4 MiB");
        }
        if self.flush_log_at_commit > 2 {
            return fault("flush_log_at_trx_commit must be 0, 1 or 2");
        }
        if self.log_budget_bytes < 4 * self.log_segment_bytes {
            return fault("log_budget must be at least four log files");
        }
        Ok(())
    }

    /// What the redo of pages may use. What is put off is there until the sweep over the pages is over.
    pub(crate) fn redo_limits(&self) -> RedoLimits {
        let threads = match self.recovery_threads {
            0 => (4 * thread::processors()).clamp(8, 32),
            n => n as usize,
        };
        let limit_bytes = match self.recovery_memory_bytes {
            0 => (self.buffer_pool_size_bytes / 2).clamp(32 << 20, 1 << 30) as usize,
            n => n as usize,
        };
        assert!(threads > 0 && limit_bytes > 0, "nothing to recover with");
        RedoLimits {
            threads,
            limit_bytes,
            puts_off: self.recovery_puts_off.unwrap_or(!self.manual_background),
        }
    }
}

/// How much the redo of pages at start may use.
#[derive(Clone, Copy)]
pub(crate) struct RedoLimits {
    pub threads: usize,
    pub limit_bytes: usize,
    /// The redo of pages may be put off until they are read.
    pub puts_off: bool,
}
