//! One open database: owns every part, opens and closes them in order.
//!
//! Start-up order: storage, store, log (analysis), pool, redo, dictionary, undo, threads.
//! Shutdown is the reverse, with a checkpoint in between that leaves nothing to redo.

use crate::callbacks::{Callbacks, LogLevel};
use crate::checkpoint::EngineState;
use crate::config::Config;
use crate::dict::Dictionary;
use crate::losers::{Losers, BIG_LOSER_BYTES};
use crate::purge::{Garbage, PurgeQueue};
use crate::recovery::{self, Analysis};
use crate::session::{TxnSlot, Xid};
use crate::status::Counters;
use crate::undo_list::UndoArea;
use ferrite_buffer::{Pool, PoolConfig};
use ferrite_io::{LockGuard, Storage};
use ferrite_lock::{LockConfig, LockTable, Owner};
use ferrite_redo::{Log, LogConfig};
use ferrite_store::{Checkpoint, Store, StoreConfig};
use ferrite_sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use ferrite_sync::thread::JoinHandle;
use ferrite_sync::{thread, time, Arc, Event, Mutex};
use ferrite_txn::{TxnSystem, VersionConfig, VersionStore};
use ferrite_types::{Csn, Error, IndexId, Lsn, Result, TxnId};
use std::collections::BTreeMap;

/// A prepared transaction without a session.
pub(crate) struct Prepared {
    pub slot: Arc<TxnSlot>,
    pub garbage: Vec<(u64, Garbage)>,
}

/// One open database.
pub struct Engine {
    config: Config,
    pub(crate) callbacks: Arc<dyn Callbacks>,
    pub(crate) storage: Arc<dyn Storage>,
    pub(crate) store: Arc<Store>,
    pub(crate) log: Arc<Log>,
    pub(crate) pool: Arc<Pool>,
    pub(crate) txns: TxnSystem,
    pub(crate) versions: VersionStore,
    pub(crate) locks: LockTable,
    pub(crate) dict: Dictionary,
    pub(crate) purge: PurgeQueue,
    pub(crate) undo_area: UndoArea,
    pub(crate) counters: Counters,
    pub(crate) flush_mode: AtomicU32,
    pub(crate) log_budget: AtomicU64,
    pub(crate) max_history_bytes: AtomicU64,
    pub(crate) checkpointing: Mutex<()>,
    pub(crate) checkpoint_lsn: AtomicU64,
    /// The log is near its budget: statements are slowed a little.
    pub(crate) throttle: AtomicBool,
    /// Each deadlock goes to the server's log.
    pub(crate) print_deadlocks: AtomicBool,
    pub(crate) stop: AtomicBool,
    pub(crate) housekeeping: Event,
    /// Every session's transaction, and those without a session.
    slots: Mutex<Vec<Arc<TxnSlot>>>,
    pub(crate) prepared: Mutex<BTreeMap<Xid, Prepared>>,
    pub(crate) losers: Losers,
    threads: Mutex<Vec<JoinHandle<()>>>,
    lock: Mutex<Option<LockGuard>>,
}

impl Engine {
    /// Opens the database in `storage`, or makes one there.
    ///
    /// # Errors
    /// `BadConfig`, `InUse`, `Format`, `Corrupt`, `Io`, `DiskFull`: each names what and where;
    /// no thread runs, nothing was overwritten that recovery would not repeat.
    pub fn open(
        config: Config,
        storage: Arc<dyn Storage>,
        callbacks: Arc<dyn Callbacks>,
    ) -> Result<Arc<Engine>> {
        config.validate()?;
        let lock = storage.lock_exclusive()?;
        let started = time::now_us();
        match Store::open(storage.clone(), Engine::store_config(&config)) {
            // Also a creation that was broken off: its remains are removed.
            Err(Error::NotFound) => Engine::create(config, storage, callbacks, lock),
            Err(e) => Err(e),
            Ok((store, checkpoint)) => {
                let found = Found {
                    store: Arc::new(store),
                    checkpoint,
                    started_us: started,
                };
                Engine::recover(config, storage, callbacks, lock, found)
            }
        }
    }

    fn log_config(config: &Config) -> LogConfig {
        LogConfig {
            ring_bytes: config.log_ring_bytes,
            segment_bytes: config.log_segment_bytes,
            direct: config.direct_io,
        }
    }

    fn store_config(config: &Config) -> StoreConfig {
        StoreConfig {
            direct: config.direct_io,
            file_bytes: config.store_file_bytes,
            segment_bytes: config.store_segment_bytes,
        }
    }

    fn create(
        config: Config,
        storage: Arc<dyn Storage>,
        callbacks: Arc<dyn Callbacks>,
        lock: LockGuard,
    ) -> Result<Arc<Engine>> {
        let store = Arc::new(Store::begin_creation(
            storage.clone(),
            Engine::store_config(&config),
        )?);
        let log = Log::create(storage.clone(), Lsn::ZERO, Engine::log_config(&config))?;
        let pool = Engine::make_pool(&config, &store, &log)?;
        Dictionary::create(&pool);
        let dict = Dictionary::load(pool.clone(), log.clone(), BTreeMap::new())?;
        let parts = Parts {
            store,
            log,
            pool,
            dict,
            undo_area: UndoArea::new(storage.clone()),
            next_txn: TxnId(1),
            next_csn: Csn(1),
        };
        let engine = Engine::assemble(config, storage, callbacks, lock, parts);
        // The superblock comes last: a creation that dies before it is begun anew.
        if ferrite_sync::mutant!("engine.superblock_too_early") {
            engine.store.end_creation()?;
        }
        engine.checkpoint()?;
        engine.store.end_creation()?;
        engine.start();
        Ok(engine)
    }

    fn make_pool(config: &Config, store: &Arc<Store>, log: &Arc<Log>) -> Result<Arc<Pool>> {
        let pool_config = PoolConfig {
            size_bytes: config.buffer_pool_size_bytes,
            codec: config.codec,
        };
        Ok(Arc::new(Pool::new(
            &pool_config,
            store.clone(),
            log.clone(),
        )?))
    }

    fn assemble(
        config: Config,
        storage: Arc<dyn Storage>,
        callbacks: Arc<dyn Callbacks>,
        lock: LockGuard,
        parts: Parts,
    ) -> Arc<Engine> {
        let lock_config = LockConfig {
            deadlock_detect: config.deadlock_detect,
            fold_after: config.lock_fold_after,
            ..LockConfig::default()
        };
        let version_config = VersionConfig::with_ring(config.history_ring_bytes as usize);
        let versions = VersionStore::new(version_config, Some(storage.clone()));
        let ack = callbacks.clone();
        parts.log.set_ack(Box::new(move |tokens| {
            for token in tokens {
                ack.async_done(*token);
            }
        }));
        if config.store_reuse_soon {
            parts.store.reuse_soon();
        }
        let fatal = callbacks.clone();
        parts.log.set_fatal(Box::new(move |text| fatal.fatal(text)));
        Arc::new(Engine {
            flush_mode: AtomicU32::new(config.flush_log_at_commit),
            log_budget: AtomicU64::new(config.log_budget_bytes),
            max_history_bytes: AtomicU64::new(config.max_history_bytes),
            callbacks,
            storage,
            store: parts.store,
            log: parts.log,
            pool: parts.pool,
            txns: TxnSystem::with_ring_bits(parts.next_txn, parts.next_csn, config.txn_ring_bits),
            versions,
            locks: LockTable::new(lock_config),
            dict: parts.dict,
            purge: PurgeQueue::default(),
            undo_area: parts.undo_area,
            counters: Counters::default(),
            checkpointing: Mutex::new(()),
            checkpoint_lsn: AtomicU64::new(0),
            throttle: AtomicBool::new(false),
            print_deadlocks: AtomicBool::new(false),
            stop: AtomicBool::new(false),
            housekeeping: Event::new(),
            slots: Mutex::new(Vec::new()),
            prepared: Mutex::new(BTreeMap::new()),
            losers: Losers::default(),
            threads: Mutex::new(Vec::new()),
            config,
            lock: Mutex::new(Some(lock)),
        })
    }

    // ---- recovery --------------------------------------------------------------------------

    fn recover(
        config: Config,
        storage: Arc<dyn Storage>,
        callbacks: Arc<dyn Callbacks>,
        lock: LockGuard,
        found: Found,
    ) -> Result<Arc<Engine>> {
        let Found {
            store,
            checkpoint,
            started_us,
        } = found;
        let state = EngineState::decode(&checkpoint.state)?;
        let undo_area = UndoArea::new(storage.clone());
        undo_area.adopt(state.active.iter().flat_map(|a| &a.chunks).copied());
        let mut analysis = Analysis::new(checkpoint.map, state);
        let log_config = Engine::log_config(&config);
        let from = checkpoint.redo_start;
        let log = Log::open(storage.clone(), from, log_config, &mut |rec| {
            analysis.visit(&store, &undo_area, &rec)
        })?;
        store.free_space_known()?;
        let end = log.current_lsn();
        let pool = Engine::make_pool(&config, &store, &log)?;
        Engine::redo(&pool, &log, &analysis, &checkpoint, end)?;
        store.finish_recovery()?;
        let carried = std::mem::take(&mut analysis.carried);
        let dict = Dictionary::load(pool.clone(), log.clone(), carried)?;
        let parts = Parts {
            store,
            log,
            pool,
            dict,
            undo_area,
            next_txn: analysis.next_txn,
            next_csn: analysis.next_csn,
        };
        let engine = Engine::assemble(config, storage, callbacks, lock, parts);
        engine.checkpoint_lsn.store(from.0, Ordering::SeqCst);
        engine.finish_recovery(analysis, from, end, started_us)?;
        Ok(engine)
    }

    /// Second pass, with a writer beside it in case the pool is smaller than the work.
    fn redo(
        pool: &Arc<Pool>,
        log: &Arc<Log>,
        analysis: &Analysis,
        checkpoint: &Checkpoint,
        end: Lsn,
    ) -> Result<()> {
        let writer = pool.clone();
        let handle = thread::spawn("ferrite-redo-wr", move || writer.run_writer());
        let result = log.scan(checkpoint.redo_start, end, &mut |rec| {
            recovery::redo(pool, analysis, &rec)
        });
        pool.stop_writer();
        let _ = handle.join();
        pool.restart_writer();
        result
    }

    fn finish_recovery(
        self: &Arc<Self>,
        mut analysis: Analysis,
        from: Lsn,
        end: Lsn,
        started_us: u64,
    ) -> Result<()> {
        let pending = analysis.pending_overflow();
        // Every unfinished transaction is known as such before anything else happens.
        let unfinished = self.restore_unfinished(&mut analysis);
        self.start();
        let mut rolled_back = 0;
        for slot in unfinished {
            if slot.state.lock().xid.is_some() {
                self.restore_versions(&slot)?;
                let garbage = self.garbage_of(&slot);
                self.adopt_prepared(slot, garbage);
            } else if slot.state.lock().undo.position() > BIG_LOSER_BYTES {
                self.losers.add(slot);
            } else {
                self.rollback_detached(&slot, true)?;
                self.forget_slot(&slot);
                rolled_back += 1;
            }
        }
        for (index, reference) in pending {
            self.free_overflow(index, &reference)?;
        }
        let ms = (time::now_us() - started_us) / 1000;
        let bytes = end.0 - from.0;
        if bytes > 0 {
            let text = format!(
                "recovered {bytes} bytes of log ({} records) in {ms} ms; rolled back \
                 {rolled_back} transactions, {} are prepared, {} are being rolled back",
                analysis.records,
                self.prepared.lock().len(),
                self.losers.count()
            );
            self.callbacks.log(LogLevel::Note, &text);
        }
        let (orphans, temporary) = self.dict.leftovers();
        for name in temporary {
            self.dict.drop_table(&name)?;
        }
        for index in orphans {
            self.pool.drop_index(index);
        }
        self.checkpoint()?;
        self.start_rollback();
        Ok(())
    }

    /// Large transactions without a commit are rolled back while the database is open.
    fn start_rollback(self: &Arc<Self>) {
        if self.losers.count() == 0 || self.config.manual_background {
            return;
        }
        let engine = self.clone();
        let handle = thread::spawn("ferrite-undo", move || engine.run_rollback());
        self.threads.lock().push(handle);
    }

    /// Slots of the transactions without an end, youngest first.
    fn restore_unfinished(&self, analysis: &mut Analysis) -> Vec<Arc<TxnSlot>> {
        let mut unfinished: Vec<_> = analysis.unfinished.drain().collect();
        unfinished.sort_by_key(|(txn, _)| std::cmp::Reverse(*txn));
        let restore = |(txn, found): (TxnId, recovery::Unfinished)| {
            let owner = Owner::new(0, 0);
            owner.set_txn(txn);
            let slot = Arc::new(TxnSlot::new(owner.clone()));
            self.txns.restore(txn, owner, found.xid.is_some());
            {
                let mut state = slot.state.lock();
                state.txn = txn;
                state.undo = found.undo;
                state.xid = found.xid;
                state.garbage = found.garbage;
            }
            self.register_slot(&slot);
            slot
        };
        unfinished.into_iter().map(restore).collect()
    }

    // ---- threads ---------------------------------------------------------------------------

    fn start(self: &Arc<Self>) {
        self.log.start_threads(self.config.flush_interval_ms);
        if self.config.manual_background {
            return;
        }
        *self.threads.lock() = crate::background::start(self);
    }

    /// Background work that talks to the server ends; commits still work.
    pub fn pre_shutdown(&self) {}

    /// Clean shutdown: everything committed is durable, a checkpoint leaves nothing to redo.
    ///
    /// # Errors
    /// `DiskFull` or `Io` of the last checkpoint: recovery will repeat what is missing.
    pub fn close(&self) -> Result<()> {
        if self.stop.swap(true, Ordering::SeqCst) {
            return Ok(());
        }
        self.housekeeping.set();
        self.purge.wake();
        let end = self.log.current_lsn();
        self.log.flush_to(end);
        let flushed = self.pool.flush_all_below(Lsn::MAX);
        self.pool.stop_writer();
        for handle in std::mem::take(&mut *self.threads.lock()) {
            self.purge.wake();
            let _ = handle.join();
        }
        let result = flushed
            .and_then(|_| self.pool.flush_all_below(Lsn::MAX))
            .and_then(|_| self.checkpoint());
        self.log.stop_threads();
        self.versions.remove_scratch();
        drop(self.lock.lock().take());
        result
    }

    /// Lets go of a database whose disk is gone: threads end, nothing more is written. What
    /// was acknowledged is on the disk by definition.
    pub fn abandon(&self) {
        self.stop.store(true, Ordering::SeqCst);
        self.housekeeping.set();
        self.purge.wake();
        self.pool.stop_writer();
        for handle in std::mem::take(&mut *self.threads.lock()) {
            self.purge.wake();
            let _ = handle.join();
        }
        self.log.stop_threads();
        drop(self.lock.lock().take());
    }

    // ---- sessions and settings -------------------------------------------------------------

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

    /// May rows be changed now?
    ///
    /// # Errors
    /// `DiskFull` while neither log nor store can grow.
    pub(crate) fn admission(&self) -> Result<()> {
        self.log.admission()?;
        if let Some(text) = self.pool.write_failure() {
            return Err(Error::DiskFull(text));
        }
        Ok(())
    }

    /// The soft brake: a statement that changes rows while the log is near its budget waits
    /// for 1 ms, once.
    pub(crate) fn brake(&self) {
        if self.throttle.load(Ordering::Relaxed) {
            self.counters.throttled.inc();
            thread::sleep_ms(1);
        }
    }

    pub(crate) fn register_slot(&self, slot: &Arc<TxnSlot>) {
        self.slots.lock().push(slot.clone());
    }

    pub(crate) fn forget_slot(&self, slot: &Arc<TxnSlot>) {
        let mut slots = self.slots.lock();
        if let Some(at) = slots.iter().position(|s| Arc::ptr_eq(s, slot)) {
            slots.swap_remove(at);
        }
    }

    pub(crate) fn all_slots(&self) -> Vec<Arc<TxnSlot>> {
        self.slots.lock().clone()
    }

    /// A prepared transaction waits for its xid to be decided.
    pub(crate) fn adopt_prepared(&self, slot: Arc<TxnSlot>, garbage: Vec<(u64, Garbage)>) {
        let xid = slot.state.lock().xid.clone();
        if let Some(xid) = xid {
            self.prepared.lock().insert(xid, Prepared { slot, garbage });
        }
    }

    /// What a recovered prepared transaction leaves when it commits. A table that is gone took
    /// its values along.
    fn garbage_of(&self, slot: &TxnSlot) -> Vec<(u64, Garbage)> {
        let values = slot.state.lock().garbage.clone();
        let piece = |(index, reference): (IndexId, [u8; 16])| {
            let table = self.dict.table_of_index(index).ok()?;
            Some((0, Garbage::overflow_of(&table, reference)))
        };
        values.into_iter().filter_map(piece).collect()
    }

    /// Xids of prepared transactions without a session.
    pub fn prepared_xids(&self) -> Vec<Xid> {
        self.prepared.lock().keys().cloned().collect()
    }

    /// Commits a prepared transaction; durable on return.
    ///
    /// # Errors
    /// `NotFound` for an unknown xid.
    pub fn commit_by_xid(&self, xid: &Xid) -> Result<()> {
        let found = self.prepared.lock().remove(xid).ok_or(Error::NotFound)?;
        crate::commit::commit_detached(self, &found.slot, found.garbage);
        self.forget_slot(&found.slot);
        Ok(())
    }

    /// Rolls a prepared transaction back; durable on return.
    ///
    /// # Errors
    /// `NotFound` for an unknown xid; a page that cannot be read.
    pub fn rollback_by_xid(&self, xid: &Xid) -> Result<()> {
        let found = self.prepared.lock().remove(xid).ok_or(Error::NotFound)?;
        self.rollback_detached(&found.slot, false)?;
        self.forget_slot(&found.slot);
        self.log.flush_to(self.log.current_lsn());
        Ok(())
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
            "log_budget" if value >= 16 << 20 => self.log_budget.store(value, Ordering::SeqCst),
            "max_history_bytes" => self.max_history_bytes.store(value, Ordering::SeqCst),
            "deadlock_detect" => self.locks.set_deadlock_detect(value != 0),
            "lock_wait_timeout"
            | "purge_threads"
            | "write_threads"
            | "history_ring_size"
            | "rollback_on_timeout"
            | "compression"
            | "stats_sample_pages"
            | "buffer_pool_size" => {
                return Err(Error::BadConfig(format!(
                    "{name} cannot be changed while the server runs"
                )))
            }
            _ => return Err(Error::BadConfig(format!("{name} = {value}"))),
        }
        Ok(())
    }

    /// The storage below, for tools and tests.
    pub fn storage(&self) -> &Arc<dyn Storage> {
        &self.storage
    }
}

/// A database that is there.
struct Found {
    store: Arc<Store>,
    checkpoint: Checkpoint,
    started_us: u64,
}

struct Parts {
    store: Arc<Store>,
    log: Arc<Log>,
    pool: Arc<Pool>,
    dict: Dictionary,
    undo_area: UndoArea,
    next_txn: TxnId,
    next_csn: Csn,
}
