//! An engine of its parts, and its threads.
//!
//! Locking: nobody else knows the engine before `start`.

use crate::catalog::dictionary::Dictionary;
use crate::state::backup::BackupState;
use crate::state::callbacks::{Callbacks, LogLevel};
use crate::state::config::Config;
use crate::state::counters::Counters;
use crate::state::deciding::Deciding;
use crate::state::engine::Engine;
use crate::state::purge_queue::PurgeQueue;
use crate::state::snapshots::Snapshots;
use crate::state::throttle;
use crate::state::undo_area::UndoArea;
use ferrite_buffer::{Pool, PoolConfig};
use ferrite_io::{LockGuard, Watched};
use ferrite_lock::{LockConfig, LockTable};
use ferrite_redo::{Ack, Log, LogConfig};
use ferrite_store::{Store, StoreConfig};
use ferrite_sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use ferrite_sync::waits::{self, Reason};
use ferrite_sync::{time, Arc, Event, Mutex};
use ferrite_tree::{apply, node};
use ferrite_txn::{TxnSystem, VersionConfig, VersionStore};
use ferrite_types::{Csn, Result, TxnId};
use std::collections::BTreeMap;

/// Default of `change_buffer_max_size`, in per cent of the buffer pool.
const CHANGE_BUFFER_PERCENT: usize = 25;
/// A server that shuts down waits no longer for space for the log.
const LOG_PATIENCE_MS: u64 = 30_000;

/// What a start begins with: how, where, who is told, and the directory's lock.
pub(super) struct Start {
    pub config: Config,
    pub storage: Arc<Watched>,
    pub callbacks: Arc<dyn Callbacks>,
    pub lock: LockGuard,
}

impl Start {
    pub(super) fn log_config(&self) -> LogConfig {
        LogConfig {
            ring_bytes: self.config.log_ring_bytes,
            segment_bytes: self.config.log_segment_bytes,
            direct: self.config.direct_io,
        }
    }

    pub(super) fn store_config(&self) -> StoreConfig {
        StoreConfig {
            direct: self.config.direct_io,
            file_bytes: self.config.store_file_bytes,
            segment_bytes: self.config.store_segment_bytes,
        }
    }

    pub(super) fn make_pool(&self, store: &Arc<Store>, log: &Arc<Log>) -> Result<Arc<Pool>> {
        store.set_apply(apply::apply_changes);
        let pool_config = PoolConfig {
            size_bytes: self.config.buffer_pool_size_bytes,
            max_bytes: self.config.buffer_pool_size_max_bytes,
            codec: self.config.codec,
            delta_share: self.delta_share(store),
        };
        Ok(Arc::new(Pool::new(
            &pool_config,
            store.clone(),
            log.clone(),
        )?))
    }

    /// How long deltas may be: none are written unless the superblock says so. A second tier has whole pages: with one
    /// a page that it has would still be read from the volume for its delta.
    fn delta_share(&self, store: &Store) -> u32 {
        let share = self.config.page_delta_share;
        if share == 0 || store.has_second_tier() {
            return 0;
        }
        match store.note_deltas() {
            Ok(()) => share,
            Err(e) => {
                let text = format!("pages are written as a whole until the next start: {e}");
                self.callbacks.log(LogLevel::Warning, &text);
                0
            }
        }
    }

    /// From here on pages are read from the second tier where it has them. One that cannot be used keeps no
    /// database from being opened.
    pub(super) fn begin_second_tier(&self, store: &Store) {
        let Some(config) = &self.config.second_tier else {
            return;
        };
        if let Err(e) = store.use_second_tier(config) {
            let text = format!("there is no second tier until the next start: {e}");
            self.callbacks.log(LogLevel::Error, &text);
            return;
        }
        debug_assert!(store.has_second_tier(), "begun and not there");
        let callbacks = self.callbacks.clone();
        store.tell_of_second_tier(Box::new(move |text| callbacks.log(LogLevel::Error, text)));
    }

    pub(super) fn make_txns(&self, next_txn: TxnId, next_csn: Csn) -> Arc<TxnSystem> {
        let bits = self.config.txn_ring_bits;
        Arc::new(TxnSystem::with_ring_bits(next_txn, next_csn, bits))
    }
}

/// The parts of an engine that are made or recovered one after the other.
pub(super) struct Parts {
    pub store: Arc<Store>,
    pub log: Arc<Log>,
    pub pool: Arc<Pool>,
    pub dict: Dictionary,
    pub undo_area: UndoArea,
    pub txns: Arc<TxnSystem>,
    pub snapshots: Snapshots,
}

impl Engine {
    pub(super) fn assemble(start: Start, parts: Parts) -> Arc<Engine> {
        let Start {
            config,
            storage,
            callbacks,
            lock,
        } = start;
        connect_log(&parts.log, &callbacks);
        let lock_config = LockConfig {
            deadlock_detect: config.deadlock_detect,
            fold_after: config.lock_fold_after,
            sets_after: config.lock_sets_after,
            ..LockConfig::default()
        };
        let version_config = VersionConfig::with_memory(config.history_ring_bytes as usize);
        let versions = VersionStore::new(version_config, Some(storage.clone()));
        if config.store_reuse_soon {
            parts.store.reuse_soon();
        }
        Arc::new(Engine {
            value_stamp: AtomicU32::new(ferrite_sync::random::next_u64() as u32),
            flush_mode: AtomicU32::new(config.flush_log_at_commit),
            log_budget: AtomicU64::new(config.log_budget_bytes),
            max_history_bytes: AtomicU64::new(config.max_history_bytes),
            memory_budget_bytes: AtomicU64::new(0),
            row_cache_bytes: AtomicU64::new(0),
            history_ring_bytes: AtomicU64::new(config.history_ring_bytes),
            callbacks,
            storage,
            store: parts.store,
            log: parts.log,
            pool: parts.pool,
            first_txn: parts.txns.next_txn(),
            txns: parts.txns,
            versions,
            locks: LockTable::new(lock_config),
            dict: parts.dict,
            purge: PurgeQueue::new(),
            undo_area: parts.undo_area,
            backup: BackupState::default(),
            snapshots: parts.snapshots,
            counters: Counters::default(),
            giving_to_versions: Mutex::new(()),
            giving_to_rows: Mutex::new(()),
            checkpointing: Mutex::new(()),
            making_room: Mutex::default(),
            vain_attempts: AtomicU64::new(0),
            checkpoint_lsn: AtomicU64::new(0),
            map_bytes: AtomicU64::new(0),
            attention_lsn: AtomicU64::new(throttle::UNWATCHED),
            checkpoint_fails: AtomicBool::new(false),
            merges_fail: AtomicBool::new(false),
            warm_start: AtomicBool::new(true),
            warm_saved_us: AtomicU64::new(time::now_us()),
            merges_held: AtomicBool::new(false),
            is_warming: AtomicBool::new(false),
            scrub: Arc::new(AtomicBool::new(false)),
            history_full: AtomicBool::new(false),
            print_deadlocks: AtomicBool::new(false),
            stop: AtomicBool::new(false),
            housekeeping: Event::new(),
            slots: Mutex::new(Vec::new()),
            prepared: Mutex::new(BTreeMap::new()),
            prepared_on: Arc::default(),
            unsettled: Arc::default(),
            now_s: AtomicU64::new(time::unix_us() / 1_000_000),
            decided_unknown: AtomicU64::new(0),
            deciding: Deciding::default(),
            threads: Mutex::new(Vec::new()),
            tier_thread: Mutex::new(None),
            config,
            lock: Mutex::new(Some(lock)),
        })
    }

    pub(super) fn start(self: &Arc<Self>) {
        debug_assert!(self.threads.lock().is_empty(), "started twice");
        self.log.start_threads(self.config.flush_interval_ms);
        self.log.set_budget(self.log_budget.load(Ordering::SeqCst));
        self.filter_page_writes();
        self.take_up_put_off();
        self.pool.set_change_buffer(CHANGE_BUFFER_PERCENT);
        self.set_scrub(self.config.scrub);
        if self.config.manual_background {
            return;
        }
        *self.threads.lock() = crate::maintenance::background::start(self);
        *self.tier_thread.lock() = crate::maintenance::background::start_second_tier(self);
        self.watch_log();
    }

    /// Pages are written without the stamps of transactions that everybody sees. Unfinished
    /// transactions of an earlier life are known by now.
    fn filter_page_writes(&self) {
        let (txns, scrub) = (self.txns.clone(), self.scrub.clone());
        self.pool.set_write_filter(Box::new(move |page, out| {
            let settled = match ferrite_sync::mutant!("engine.freeze_unsettled") {
                true => TxnId((1 << 48) - 1),
                false => txns.all_visible_below(),
            };
            match scrub.load(Ordering::Relaxed) {
                true => node::strip_and_scrub_for_write(page, settled, out),
                false => node::strip_for_write(page, settled, out),
            }
        }));
    }
}

/// Whose commits became durable, and that the log failed, is told to the server.
fn connect_log(log: &Log, callbacks: &Arc<dyn Callbacks>) {
    let ack = callbacks.clone();
    log.set_ack(Box::new(move |released| {
        for Ack { token, waited_us } in released {
            waits::booked_for(Reason::LogFlush, *waited_us, || ack.deferred_by(*token));
            ack.async_done(*token);
        }
    }));
    let fatal = callbacks.clone();
    log.set_fatal(Box::new(move |text| fatal.fatal(text)));
    let ending = callbacks.clone();
    log.set_patience(LOG_PATIENCE_MS, Box::new(move || ending.is_shutting_down()));
}

/// Durability is lost, of whichever file. The log itself deals with the syncs of its own files
/// after that.
pub(super) fn stop_at_failed_sync(storage: &Watched, log: &Arc<Log>) {
    let log = Arc::downgrade(log);
    storage.on_failed_sync(move |text| {
        if let Some(log) = log.upgrade() {
            log.fail(&format!("data cannot be made durable: {text}"));
        }
    });
}
