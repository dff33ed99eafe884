//! One open database: owns every part, knows every session, takes settings.
//!
//! Locking: `slots` and `prepared` are held for moments and under no latch.

use crate::catalog::dictionary::Dictionary;
use crate::log_records::xid::Xid;
use crate::state::backup::BackupState;
use crate::state::callbacks::Callbacks;
use crate::state::config::{
    Config, SMALLEST_BUDGET_BYTES, SMALLEST_POOL_BYTES, SMALLEST_RING_BYTES,
};
use crate::state::counters::Counters;
use crate::state::deciding::Deciding;
use crate::state::making_room::MakingRoom;
use crate::state::prepared::Prepared;
use crate::state::prepared_on::PreparedOn;
use crate::state::purge_queue::PurgeQueue;
use crate::state::slot::TxnSlot;
use crate::state::snapshots::Snapshots;
use crate::state::undo_area::UndoArea;
use crate::state::unsettled::Unsettled;
use ferrite_buffer::Pool;
use ferrite_io::{LockGuard, Storage};
use ferrite_lock::LockTable;
use ferrite_redo::Log;
use ferrite_store::{PinOwner, Store};
use ferrite_sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use ferrite_sync::thread::JoinHandle;
use ferrite_sync::{time, Arc, Event, Mutex};
use ferrite_txn::{TxnSystem, VersionStore};
use ferrite_types::{Error, PageId, Result, TxnId};
use std::collections::BTreeMap;

/// Versions take no more than one part of the memory budget of so many.
const RING_SHARE: u64 = 4;

/// Whether the statement was killed for which somebody waits.
pub(crate) type IsKilled<'a> = &'a dyn Fn() -> bool;

/// One open database.
pub struct Engine {
    pub(crate) config: Config,
    pub(crate) callbacks: Arc<dyn Callbacks>,
    pub(crate) storage: Arc<dyn Storage>,
    pub(crate) store: Arc<Store>,
    pub(crate) log: Arc<Log>,
    pub(crate) pool: Arc<Pool>,
    pub(crate) txns: Arc<TxnSystem>,
    pub(crate) versions: VersionStore,
    pub(crate) locks: LockTable,
    pub(crate) dict: Dictionary,
    pub(crate) purge: PurgeQueue,
    pub(crate) undo_area: UndoArea,
    pub(crate) backup: BackupState,
    pub(crate) snapshots: Snapshots,
    pub(crate) counters: Counters,
    /// Stamp of the next value out of line.
    pub(crate) value_stamp: AtomicU32,
    pub(crate) flush_mode: AtomicU32,
    pub(crate) log_budget: AtomicU64,
    pub(crate) max_history_bytes: AtomicU64,
    /// All memory of the engine is to stay within so many bytes; 0: no such limit.
    pub(crate) memory_budget_bytes: AtomicU64,
    /// ferrite_row_cache_size.
    pub(crate) row_cache_bytes: AtomicU64,
    /// What versions may take of memory, as it was set.
    pub(crate) history_ring_bytes: AtomicU64,
    /// What was set is handed on to the versions, and to the row cache, by one at a time: what was set last counts.
    pub(crate) giving_to_versions: Mutex<()>,
    pub(crate) giving_to_rows: Mutex<()>,
    pub(crate) checkpointing: Mutex<()>,
    /// Taken by who makes room on a full disk, before `checkpointing`. Held for long while a snapshot goes, so that
    /// nobody waits for it who does not look whether it was killed: [`Engine::turn_to_make_room`].
    pub(crate) making_room: Mutex<MakingRoom>,
    /// How often there was none to be made.
    pub(crate) vain_attempts: AtomicU64,
    pub(crate) checkpoint_lsn: AtomicU64,
    /// Length of the last page map that a checkpoint wrote; 0 before the first one.
    pub(crate) map_bytes: AtomicU64,
    /// Where somebody who changes rows has to look at the log's age (`throttle.rs`).
    pub(crate) attention_lsn: AtomicU64,
    /// The last checkpoint failed.
    pub(crate) checkpoint_fails: AtomicBool,
    /// Changes in the change buffer hold the log, and their page cannot be read.
    pub(crate) merges_fail: AtomicBool,
    /// Which pages are in memory is noted, and they are read after the next start.
    pub(crate) warm_start: AtomicBool,
    /// When that was noted last.
    pub(crate) warm_saved_us: AtomicU64,
    /// Nothing is merged that nobody asks for: for tests.
    pub(crate) merges_held: AtomicBool,
    /// The pages of the last note are still being read.
    pub(crate) is_warming: AtomicBool,
    /// What was deleted is overwritten in the files; read by the pool when it writes a page.
    pub(crate) scrub: Arc<AtomicBool>,
    /// Versions of running transactions take all memory there is for them.
    pub(crate) history_full: AtomicBool,
    /// Each deadlock goes to the server's log.
    pub(crate) print_deadlocks: AtomicBool,
    pub(crate) stop: AtomicBool,
    pub(crate) housekeeping: Event,
    /// Every session's transaction, and those without a session.
    pub(crate) slots: Mutex<Vec<Arc<TxnSlot>>>,
    pub(crate) prepared: Mutex<BTreeMap<Xid, Prepared>>,
    pub(crate) prepared_on: Arc<PreparedOn>,
    pub(crate) unsettled: Arc<Unsettled>,
    /// The first id that a transaction of this life gets.
    pub(crate) first_txn: TxnId,
    /// The time at the last tick of a background thread, seconds since 1970.
    pub(crate) now_s: AtomicU64,
    /// Begun and ended commits of prepared transactions by their xids, of those that have changed tables which
    /// could not be opened; see [`Engine::decided_commits`](crate::Engine::decided_commits).
    pub(crate) decided_unknown: AtomicU64,
    /// Such commits, of all tables, while they go on.
    pub(crate) deciding: Deciding,
    pub(crate) threads: Mutex<Vec<JoinHandle<()>>>,
    pub(crate) tier_thread: Mutex<Option<JoinHandle<()>>>,
    pub(crate) lock: Mutex<Option<LockGuard>>,
}

impl Engine {
    /// Settings at open.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The dictionary.
    pub fn dict(&self) -> &Dictionary {
        &self.dict
    }

    /// The lock table.
    pub fn locks(&self) -> &LockTable {
        &self.locks
    }

    /// Ends the backup that runs, if it is `owner`'s (None: whosever), and lets go of what it
    /// keeps at once; true if there was one.
    pub fn end_backup(&self, owner: Option<u64>, why: &str) -> bool {
        let ended = self.backup.end(owner, why);
        if ended {
            self.unpin_backup();
            self.backup.wake();
        }
        ended
    }

    /// Bytes of log, and of pages that are not free, for the sake of a backup. Some of the latter
    /// would not be free without it either; what is free beside them in their blocks is not counted.
    pub(crate) fn kept_for_backup(&self) -> (u64, u64) {
        match self.backup.log_floor.kept_from() {
            Some(from) => {
                let log = self.log.current_lsn().0.saturating_sub(from.0);
                (log, self.store.retired_bytes())
            }
            None => (0, 0),
        }
    }

    /// What a backup kept is free again.
    pub(crate) fn unpin_backup(&self) {
        let _pins = self.backup.pins.lock();
        self.store.unpin(PinOwner::Backup);
        self.undo_area.hold(PinOwner::Backup, false);
        self.backup.log_floor.keep_from(None);
        assert!(self.backup.log_floor.kept_from().is_none(), "log is kept");
        self.housekeeping.set();
    }

    pub(crate) fn register_slot(&self, slot: &Arc<TxnSlot>) {
        let mut slots = self.slots.lock();
        debug_assert!(
            slots.len() > 64 || !slots.iter().any(|s| Arc::ptr_eq(s, slot)),
            "a checkpoint would name a transaction twice"
        );
        slots.push(slot.clone());
    }

    pub(crate) fn forget_slot(&self, slot: &Arc<TxnSlot>) {
        let mut slots = self.slots.lock();
        if let Some(at) = slots.iter().position(|s| Arc::ptr_eq(s, slot)) {
            slots.swap_remove(at);
        }
        debug_assert!(
            slots.len() > 64 || !slots.iter().any(|s| Arc::ptr_eq(s, slot)),
            "a checkpoint would name what has ended"
        );
    }

    pub(crate) fn all_slots(&self) -> Vec<Arc<TxnSlot>> {
        self.slots.lock().clone()
    }

    /// Was that connection killed, or its statement? 0: there is none.
    pub(crate) fn is_killed(&self, thd: usize) -> bool {
        thd != 0 && self.callbacks.is_killed(thd)
    }

    /// Tells commits the time.
    pub(crate) fn tick(&self) {
        self.purge.tick();
        self.now_s
            .store(time::unix_us() / 1_000_000, Ordering::Relaxed);
    }

    /// Makes the whole log durable.
    pub fn flush_log(&self) {
        self.log.flush_to(self.log.current_lsn());
    }

    /// Tells the server (`checkpoint_notify`) when all that committed so far is durable.
    pub fn checkpoint_request(&self, cookie: usize) {
        let callbacks = self.callbacks.clone();
        let now = self.log.current_lsn();
        self.log
            .notify_when_durable(now, Box::new(move || callbacks.checkpoint_notify(cookie)));
        self.log.request_flush(now);
    }

    /// Changes a dynamic setting.
    ///
    /// # Errors
    /// `BadConfig` when there is no such setting or the value cannot be.
    pub fn set(&self, name: &str, value: u64) -> Result<()> {
        match name {
            "flush_log_at_trx_commit" if value <= 2 => {
                self.flush_mode.store(value as u32, Ordering::SeqCst);
            }
            "flush_log_at_timeout" => {
                self.log.set_flush_interval_ms(value as u32 * 1000);
            }
            "print_all_deadlocks" => {
                self.print_deadlocks.store(value != 0, Ordering::SeqCst);
            }
            "log_budget" if value >= 16 << 20 => {
                self.log_budget.store(value, Ordering::SeqCst);
                self.log.set_budget(value);
                self.housekeeping.set();
            }
            "buffer_pool_size" if self.has_memory_budget() => {
                return Err(Error::BadConfig("ferrite_memory sets it".into()))
            }
            "buffer_pool_size" if value >= SMALLEST_POOL_BYTES => self.pool.resize(value)?,
            "memory" if value == 0 || value >= SMALLEST_BUDGET_BYTES => {
                self.memory_budget_bytes.store(value, Ordering::SeqCst);
                self.give_memory_to_versions();
                self.give_memory_to_rows();
            }
            "memory" => return Err(Error::BadConfig("the least is 64 MiB; 0: no budget".into())),
            "history_ring_size" if value >= SMALLEST_RING_BYTES => {
                self.history_ring_bytes.store(value, Ordering::SeqCst);
                self.give_memory_to_versions();
            }
            "stall_threshold_ms" if value > 0 => {
                ferrite_sync::waits::set_long_us(value.saturating_mul(1000))
            }
            "read_ahead" => self.pool.set_read_ahead(value != 0),
            "warm_start" => self.warm_start.store(value != 0, Ordering::SeqCst),
            "change_buffer_max_size" if value <= 50 => {
                self.pool.set_change_buffer(value as usize);
            }
            "row_cache_size" => {
                self.row_cache_bytes.store(value, Ordering::SeqCst);
                self.give_memory_to_rows();
            }
            "scrub" => self.set_scrub(value != 0),
            "snapshot_max_bytes" => {
                self.snapshots.max_bytes.store(value, Ordering::SeqCst);
                self.housekeeping.set();
            }
            "max_history_bytes" => self.max_history_bytes.store(value, Ordering::SeqCst),
            "purge_paused" => self.purge.hold_back(value != 0),
            "deadlock_detect" => self.locks.set_deadlock_detect(value != 0),
            "lock_wait_timeout"
            | "purge_threads"
            | "write_threads"
            | "rollback_on_timeout"
            | "compression"
            | "stats_sample_pages" => {
                return Err(Error::BadConfig(format!(
                    "{name} cannot be changed while the server runs"
                )))
            }
            _ => return Err(Error::BadConfig(format!("{name} = {value}"))),
        }
        Ok(())
    }

    /// The size of the buffer pool follows from the memory budget.
    pub(crate) fn has_memory_budget(&self) -> bool {
        self.memory_budget_bytes.load(Ordering::Relaxed) != 0
    }

    /// Versions get what was set for them, and no more than a part of the budget: they can be written
    /// out.
    fn give_memory_to_versions(&self) {
        let _turn = self.giving_to_versions.lock();
        let bytes = self.within_budget(self.history_ring_bytes.load(Ordering::SeqCst));
        debug_assert!(bytes >= SMALLEST_RING_BYTES, "{bytes} bytes for versions");
        self.versions.set_memory(bytes as usize);
    }

    /// The row cache gets what was set for it, and no more than a part of the budget.
    fn give_memory_to_rows(&self) {
        let _turn = self.giving_to_rows.lock();
        let bytes = self.within_budget(self.row_cache_bytes.load(Ordering::SeqCst));
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        self.pool.row_cache().set_limit(bytes);
    }

    /// What was set for one part of the memory, as far as the budget lets it have that.
    fn within_budget(&self, set: u64) -> u64 {
        let bytes = match self.memory_budget_bytes.load(Ordering::SeqCst) {
            0 => set,
            budget => set.min(budget / RING_SHARE),
        };
        debug_assert!(bytes <= set, "{bytes} bytes of {set}");
        bytes
    }

    /// Reads these pages in the background, as a scan does with those it will need. For tests.
    pub fn read_ahead(&self, pages: &[PageId]) {
        self.pool.read_ahead(pages);
    }

    /// Writes what is dirty and empties the buffer pool as far as nobody uses it. For tests.
    ///
    /// # Errors
    /// A page that cannot be written.
    pub fn make_cold(&self) -> Result<()> {
        self.pool.make_cold()
    }

    /// Nothing is merged from the change buffer that nobody asks for, until this is taken back. For tests.
    pub fn hold_merges(&self, hold: bool) {
        self.merges_held.store(hold, Ordering::Relaxed);
        self.pool.wake_merging();
    }

    /// The storage below, for tools and tests.
    pub fn storage(&self) -> &Arc<dyn Storage> {
        &self.storage
    }
}
