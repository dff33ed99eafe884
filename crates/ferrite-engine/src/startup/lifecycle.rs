//! An open database's life: made or opened, recovered, started, closed.
//!
//! Start-up order: storage, store, log (analysis), pool, redo, dictionary, undo, threads.
//! Shutdown is the reverse, with a checkpoint in between that leaves nothing to redo.
//!
//! Invariant: from the moment there is a log, a sync that fails, of whichever file, ends the
//! process before anything else is acknowledged.

use crate::catalog::dictionary::foreign_change::References;
use crate::catalog::dictionary::{Dictionary, NextIds};
use crate::maintenance::checkpoint::{not_shut_down, EngineState};
use crate::rows::sort::remove_leftovers;
use crate::snapshots::{rewind, startup as kept_snapshots};
use crate::startup::collector::Collector;
use crate::startup::page_changes::Retained;
use crate::startup::page_redo::{self, RedoWriter};
use crate::startup::progress::Progress;
use crate::startup::recovery::{self, Analysis};
use crate::state::backup::BackupState;
use crate::state::callbacks::{Callbacks, LogLevel};
use crate::state::config::Config;
use crate::state::counters::Counters;
use crate::state::engine::Engine;
use crate::state::garbage::GarbageList;
use crate::state::losers::Losers;
use crate::state::purge_queue::PurgeQueue;
use crate::state::slot::TxnSlot;
use crate::state::snapshots::Snapshots;
use crate::state::transaction::Transaction;
use crate::state::undo_list::UndoArea;
use ferrite_buffer::{Pool, PoolConfig};
use ferrite_io::{LockGuard, Storage, Watched};
use ferrite_lock::{LockConfig, LockTable, Owner};
use ferrite_redo::{Ack, Log, LogConfig, LogSpan};
use ferrite_store::{Checkpoint, Store, StoreConfig};
use ferrite_sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use ferrite_sync::waits::{self, Reason};
use ferrite_sync::{kill_point, thread, time, Arc, Event, Mutex};
use ferrite_tree::{apply, node};
use ferrite_txn::{TxnSystem, VersionConfig, VersionStore};
use ferrite_types::{Csn, Error, IndexId, Lsn, OverflowRef, Result, TxnId};
use std::collections::BTreeMap;

/// Default of `change_buffer_max_size`, in per cent of the buffer pool.
const CHANGE_BUFFER_PERCENT: usize = 25;

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
        rewind::none_pending(&storage)?;
        let storage = Arc::new(Watched::new(storage));
        let started = time::now_us();
        match Store::open(storage.clone(), Engine::store_config(&config)) {
            // Also a creation that was broken off: its remains are removed.
            Err(Error::NotFound) => Engine::create(config, storage, callbacks, lock),
            Err(e) => Err(e),
            Ok((store, checkpoint)) => {
                store.creation_is_over()?;
                let passed_over = store.passed_over().map(|p| p.why.clone());
                if let Some(why) = &passed_over {
                    let text = format!("started from the older checkpoint, because {why}");
                    callbacks.log(LogLevel::Warning, &text);
                }
                let found = Found {
                    store: Arc::new(store),
                    checkpoint,
                    started_us: started,
                };
                Engine::recover(config, storage.clone(), callbacks, lock, found)
                    .map_err(|e| named_with_its_cause(e, &*storage, passed_over))
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
        storage: Arc<Watched>,
        callbacks: Arc<dyn Callbacks>,
        lock: LockGuard,
    ) -> Result<Arc<Engine>> {
        let store = Arc::new(Store::begin_creation(
            storage.clone(),
            Engine::store_config(&config),
        )?);
        let log = Log::create(storage.clone(), Lsn::ZERO, Engine::log_config(&config))?;
        stop_at_failed_sync(&storage, &log);
        let pool = Engine::make_pool(&config, &store, &log)?;
        Dictionary::create(&pool)?;
        let txns = Engine::make_txns(&config, TxnId(1), Csn(1));
        let dict = Dictionary::load(
            pool.clone(),
            log.clone(),
            txns.clone(),
            BTreeMap::new(),
            NextIds::default(),
        )?;
        assert_eq!(dict.table_count(), 0, "a new database has tables");
        let parts = Parts {
            store,
            log,
            pool,
            dict,
            undo_area: UndoArea::new(storage.clone()),
            txns,
            snapshots: Snapshots::default(),
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
            max_bytes: config.buffer_pool_size_max_bytes,
            codec: config.codec,
        };
        Ok(Arc::new(Pool::new(
            &pool_config,
            store.clone(),
            log.clone(),
        )?))
    }

    fn make_txns(config: &Config, next_txn: TxnId, next_csn: Csn) -> Arc<TxnSystem> {
        let bits = config.txn_ring_bits;
        Arc::new(TxnSystem::with_ring_bits(next_txn, next_csn, bits))
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
            sets_after: config.lock_sets_after,
            ..LockConfig::default()
        };
        let version_config = VersionConfig::with_memory(config.history_ring_bytes as usize);
        let versions = VersionStore::new(version_config, Some(storage.clone()));
        let ack = callbacks.clone();
        parts.log.set_ack(Box::new(move |released| {
            for Ack { token, waited_us } in released {
                waits::booked_for(Reason::LogFlush, *waited_us, || ack.deferred_by(*token));
                ack.async_done(*token);
            }
        }));
        if config.store_reuse_soon {
            parts.store.reuse_soon();
        }
        let fatal = callbacks.clone();
        parts.log.set_fatal(Box::new(move |text| fatal.fatal(text)));
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
            txns: parts.txns,
            versions,
            locks: LockTable::new(lock_config),
            dict: parts.dict,
            purge: PurgeQueue::new(),
            undo_area: parts.undo_area,
            backup: BackupState::default(),
            snapshots: parts.snapshots,
            counters: Counters::default(),
            checkpointing: Mutex::new(()),
            making_room: Mutex::new(None),
            vain_attempts: AtomicU64::new(0),
            checkpoint_lsn: AtomicU64::new(0),
            attention_lsn: AtomicU64::new(crate::state::throttle::UNWATCHED),
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
            losers: Losers::default(),
            now_s: AtomicU64::new(time::unix_us() / 1_000_000),
            decided_commits: AtomicU64::new(0),
            threads: Mutex::new(Vec::new()),
            config,
            lock: Mutex::new(Some(lock)),
        })
    }

    // ---- recovery --------------------------------------------------------------------------

    fn recover(
        config: Config,
        storage: Arc<Watched>,
        callbacks: Arc<dyn Callbacks>,
        lock: LockGuard,
        found: Found,
    ) -> Result<Arc<Engine>> {
        let Found {
            store,
            checkpoint,
            started_us,
        } = found;
        let mut state = EngineState::decode(&checkpoint.state)?;
        if let Some(newer) = store.passed_over() {
            // It knows of more of the log that must be there.
            let newer = EngineState::decode(&newer.checkpoint.state)?;
            state.log_durable = state.log_durable.max(newer.log_durable);
        }
        let undo_area = UndoArea::new(storage.clone());
        undo_area.adopt(state.active.iter().flat_map(|a| &a.chunks).copied());
        let span = LogSpan {
            from: checkpoint.redo_start,
            durable: state.log_durable,
        };
        let log_unreadable = state.log_unreadable;
        let mut analysis = Analysis::new(checkpoint.map, state);
        let log_config = Engine::log_config(&config);
        let from = checkpoint.redo_start;
        let limits = config.redo_limits();
        let mut collector = Collector::start(Retained::new(limits.limit_bytes));
        let mut progress = Progress::new(callbacks.clone(), from);
        let log = Log::open(storage.clone(), span, log_config, &mut |rec| {
            if log_unreadable {
                return Err(not_shut_down());
            }
            analysis.visit(&store, &undo_area, &rec)?;
            progress.read_to(rec.end, || Log::guess_end(storage.clone(), from));
            collector.take(&rec, &analysis.fates)
        })?;
        let retained = collector.finish()?;
        for found in analysis.unfinished.values() {
            undo_area.verify(&found.undo)?;
        }
        stop_at_failed_sync(&storage, &log);
        // What they hold is not free.
        let all: Arc<dyn Storage> = storage.clone();
        let snapshots = kept_snapshots::load(&all, &store, &*callbacks)?;
        store.free_space_known()?;
        let end = log.current_lsn();
        assert!(from <= end, "redo from {from}, the log ends at {end}");
        let pool = Engine::make_pool(&config, &store, &log)?;
        pool.set_apply_redo(Box::new(|page, ops| apply::apply_all(ops, page)));
        let writer = RedoWriter::start(&pool);
        let fates = analysis.fates.clone();
        let span = (from, end);
        let pages = (&pool, &*log);
        analysis.redone = page_redo::run(pages, retained, &fates, span, limits, &mut progress)?;
        analysis.pages_read = pool.stats.reads.get();
        store.finish_recovery()?;
        let carried = std::mem::take(&mut analysis.carried);
        assert!(
            analysis
                .unfinished
                .keys()
                .all(|txn| *txn < analysis.next_txn),
            "the id of an unfinished transaction would be given out again"
        );
        let txns = Engine::make_txns(&config, analysis.next_txn, analysis.next_csn);
        debug_assert!(log.current_lsn() >= end, "the log got shorter");
        let dict = Dictionary::load(
            pool.clone(),
            log.clone(),
            txns.clone(),
            carried,
            analysis.next_ids,
        )?;
        let parts = Parts {
            store,
            log,
            pool,
            dict,
            undo_area,
            txns,
            snapshots,
        };
        let engine = Engine::assemble(config, storage, callbacks, lock, parts);
        engine.checkpoint_lsn.store(from.0, Ordering::SeqCst);
        drop(writer);
        engine.finish_recovery(analysis, from, end, started_us)?;
        Ok(engine)
    }

    fn finish_recovery(
        self: &Arc<Self>,
        mut analysis: Analysis,
        from: Lsn,
        end: Lsn,
        started_us: u64,
    ) -> Result<()> {
        let pending = self.hold_pending(analysis.pending_overflow());
        // Every unfinished transaction is known as such before anything else happens.
        let unfinished = self.restore_unfinished(&mut analysis);
        self.start();
        kill_point!("recovery.values_held");
        let mut rolled_back = 0;
        for slot in unfinished {
            debug_assert!(!slot.state.lock().txn.is_frozen(), "nothing to be undone");
            if slot.state.lock().is_prepared() {
                self.restore_versions(&slot)?;
                let garbage = GarbageList::recovered(self.garbage_of(&slot)?);
                self.adopt_prepared(Transaction::recovered(slot, garbage));
            } else if slot.state.lock().undo.position().0 > self.config.background_undo_bytes {
                self.losers.add(slot);
            } else {
                self.roll_back_loser(&slot)?;
                debug_assert!(
                    slot.state.lock().txn.is_frozen(),
                    "rolled back and unfinished"
                );
                self.forget_slot(&slot);
                rolled_back += 1;
            }
        }
        self.free_pending(&pending)?;
        let ms = (time::now_us() - started_us) / 1000;
        let bytes = end.0 - from.0;
        if bytes > 0 {
            let text = format!(
                "recovered {bytes} bytes of log ({} records, {} pages redone, {} read for it, {} \
                 left to be redone when they are read) in {ms} ms; transactions: {rolled_back} rolled back, {} prepared, {} being rolled back",
                analysis.records,
                analysis.redone.pages,
                analysis.pages_read,
                analysis.redone.put_off,
                self.prepared.lock().len(),
                self.losers.count()
            );
            self.callbacks.log(LogLevel::Note, &text);
        }
        if bytes > 0 {
            self.counters.recovery_ms.add(ms);
        }
        self.counters.recovery_log_bytes.add(bytes);
        self.counters
            .recovery_pages_redone
            .add(analysis.redone.pages);
        self.counters.recovery_pages_read.add(analysis.pages_read);
        self.dict.drop_strays()?;
        remove_leftovers(&*self.storage);
        self.dict.finish_pending_changes()?;
        let (orphans, temporary) = self.dict.leftovers();
        for name in temporary {
            self.dict.drop_table(&name, References::None)?;
        }
        for index in orphans {
            self.pool.drop_index(index);
        }
        self.checkpoint_after_recovery()?;
        self.start_rollback();
        Ok(())
    }

    /// What was recovered need not be recovered again. On a full disk it will be, by the next start,
    /// as after a crash a moment ago: the checkpoint and the log from there on are still there.
    /// The checkpointer tries again, and so does who needs room.
    fn checkpoint_after_recovery(&self) -> Result<()> {
        match self.checkpoint() {
            Err(Error::DiskFull(why)) => {
                let text = format!(
                    "disk full: {why}. The database is open: data can be read, and changed \
                     once there is space. Until then, the next start repeats this recovery"
                );
                self.callbacks.log(LogLevel::Warning, &text);
                Ok(())
            }
            other => other,
        }
    }

    /// Values that committed transactions of an earlier life let go of are in a slot of no
    /// transaction until they are free: the checkpointer runs beside the rest of recovery, and a
    /// checkpoint that does not name them would lose them with the next crash.
    pub(crate) fn hold_pending(&self, values: Vec<(IndexId, OverflowRef)>) -> Arc<TxnSlot> {
        let slot = Arc::new(TxnSlot::new(Owner::new(0, 0)));
        debug_assert!(slot.state.lock().txn.is_frozen(), "of no transaction");
        slot.state.lock().garbage = values;
        if !ferrite_sync::mutant!("recovery.pending_not_named") {
            self.register_slot(&slot);
        }
        slot
    }

    /// What [`Engine::hold_pending`] holds goes to the purge queue, which names it from here on:
    /// there may be millions, and each takes reading its pages, so nobody waits for them.
    pub(crate) fn free_pending(&self, slot: &Arc<TxnSlot>) -> Result<()> {
        kill_point!("recovery.values_queued");
        debug_assert!(slot.state.lock().txn.is_frozen(), "of no transaction");
        self.purge.add(TxnId::FROZEN, self.garbage_of(slot)?);
        slot.state.lock().garbage = Vec::new();
        self.forget_slot(slot);
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
            // It began in an earlier life; nobody knows when.
            slot.started_us.store(time::now_us(), Ordering::Relaxed);
            assert!(!txn.is_frozen(), "an unfinished transaction has an id");
            self.txns.restore(txn, owner, found.xid.is_some());
            {
                let mut state = slot.state.lock();
                state.recover(txn, found.undo, found.xid);
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
        self.log.set_budget(self.log_budget.load(Ordering::SeqCst));
        self.filter_page_writes();
        self.take_up_put_off();
        self.pool.set_change_buffer(CHANGE_BUFFER_PERCENT);
        self.set_scrub(self.config.scrub);
        if self.config.manual_background {
            return;
        }
        *self.threads.lock() = crate::maintenance::background::start(self);
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

    /// Clean shutdown: everything committed is durable, a checkpoint leaves nothing to redo.
    ///
    /// # Errors
    /// `DiskFull` or `Io` of the last checkpoint: recovery will repeat what is missing.
    pub fn close(&self) -> Result<()> {
        if self.stop.swap(true, Ordering::SeqCst) {
            return Ok(());
        }
        self.end_backup(None, "the server was shut down");
        self.backup.join();
        self.versions.wind_up();
        self.housekeeping.set();
        self.pool.wake_merging();
        self.purge.wake();
        let end = self.log.current_lsn();
        self.log.flush_to(end);
        debug_assert!(self.log.durable_lsn() >= end, "closed and not on disk");
        let flushed = self.pool.flush_all_below(Lsn::MAX);
        self.pool.stop_writer();
        self.pool.stop_read_ahead();
        for handle in std::mem::take(&mut *self.threads.lock()) {
            self.purge.wake();
            let _ = handle.join();
        }
        debug_assert!(self.threads.lock().is_empty(), "threads go on");
        let again = self.pool.flush_all_below(Lsn::MAX);
        // What could not be merged or written is redone.
        let checkpoint = self.checkpoint();
        let result = flushed.and(again).and(checkpoint);
        self.save_warm(true);
        if result.is_ok() {
            self.scrub_before_end();
            self.give_back_space();
        }
        self.log.stop_threads();
        if result.is_ok() {
            self.scrub_log();
        }
        self.versions.remove_scratch();
        drop(self.lock.lock().take());
        result
    }

    /// Lets go of a database whose disk is gone: threads end, nothing more is written. What
    /// was acknowledged is on the disk by definition.
    pub fn abandon(&self) {
        self.stop.store(true, Ordering::SeqCst);
        self.end_backup(None, "the database was abandoned");
        self.backup.join();
        self.versions.wind_up();
        self.housekeeping.set();
        self.pool.wake_merging();
        self.purge.wake();
        self.pool.stop_writer();
        self.pool.stop_read_ahead();
        for handle in std::mem::take(&mut *self.threads.lock()) {
            self.purge.wake();
            let _ = handle.join();
        }
        self.log.stop_threads();
        drop(self.lock.lock().take());
    }
}

/// Durability is lost, of whichever file. The log itself deals with the syncs of its own files
/// after that.
fn stop_at_failed_sync(storage: &Watched, log: &Arc<Log>) {
    let log = Arc::downgrade(log);
    storage.on_failed_sync(move |text| {
        if let Some(log) = log.upgrade() {
            log.fail(&format!("data cannot be made durable: {text}"));
        }
    });
}

/// A start from the older of two checkpoints may miss what only that one needs: log files that
/// were recycled since. Then the newer checkpoint is what is damaged, and that is said too.
fn named_with_its_cause(e: Error, storage: &dyn Storage, passed_over: Option<String>) -> Error {
    let Error::Corrupt(text) = e else {
        return e;
    };
    let mut damage = Store::checkpoint_damage(storage);
    damage.extend(passed_over);
    if damage.is_empty() {
        return Error::Corrupt(text);
    }
    let damage = damage.join("; ");
    Error::Corrupt(format!(
        "{text} (started from the other checkpoint, because {damage})"
    ))
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
    txns: Arc<TxnSystem>,
    snapshots: Snapshots,
}
