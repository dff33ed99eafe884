//! An open database's life: made or opened, started, closed.
//!
//! Start-up order: storage, store, log (analysis), pool, redo, dictionary, undo, threads.
//! Shutdown is the reverse, with a checkpoint in between that leaves nothing to redo.
//!
//! Invariant: from the moment there is a log, a sync that fails, of whichever file, ends the
//! process before anything else is acknowledged.
//!
//! Locking: the directory is locked for this process from `open` to `close`.

use crate::catalog::dictionary::{Dictionary, NextIds};
use crate::snapshots::rewind;
use crate::startup::assemble::{stop_at_failed_sync, Parts, Start};
use crate::startup::crash_recovery::Found;
use crate::state::callbacks::{Callbacks, LogLevel};
use crate::state::config::Config;
use crate::state::engine::Engine;
use crate::state::snapshots::Snapshots;
use crate::state::undo_area::{self, UndoArea};
use ferrite_io::{Storage, Watched};
use ferrite_redo::Log;
use ferrite_store::Store;
use ferrite_sync::atomic::Ordering;
use ferrite_sync::{time, Arc};
use ferrite_types::{Csn, Error, Lsn, Result, TxnId};
use std::collections::BTreeMap;

/// Files of which a failed sync may have lost what nobody writes again. The log knows of its own;
/// all others are written whole.
fn changed_in_place(name: &str) -> bool {
    ferrite_store::is_store_file(name) || name == undo_area::NAME
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
        rewind::none_pending(&storage)?;
        let storage = Arc::new(Watched::new(storage, changed_in_place));
        let started = time::now_us();
        let start = Start {
            config,
            storage: storage.clone(),
            callbacks: callbacks.clone(),
            lock,
        };
        match Store::open(storage.clone(), start.store_config()) {
            // Also a creation that was broken off: its remains are removed.
            Err(Error::NotFound) => Engine::create(start),
            Err(e) => Err(e),
            Ok((store, checkpoint)) => {
                store.creation_is_over()?;
                start.begin_second_tier(&store);
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
                Engine::recover(start, found)
                    .map_err(|e| named_with_its_cause(e, &*storage, passed_over))
            }
        }
    }

    fn create(start: Start) -> Result<Arc<Engine>> {
        let storage = &start.storage;
        let store = Arc::new(Store::begin_creation(
            storage.clone(),
            start.store_config(),
        )?);
        start.begin_second_tier(&store);
        let log = Log::create(storage.clone(), Lsn::ZERO, start.log_config())?;
        stop_at_failed_sync(storage, &log);
        let pool = start.make_pool(&store, &log)?;
        Dictionary::create(&pool)?;
        let txns = start.make_txns(TxnId(1), Csn(1));
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
        let engine = Engine::assemble(start, parts);
        // The superblock comes last: a creation that dies before it is begun anew.
        if ferrite_sync::mutant!("engine.superblock_too_early") {
            engine.store.end_creation()?;
        }
        engine.checkpoint()?;
        engine.store.end_creation()?;
        engine.start();
        Ok(engine)
    }

    /// Clean shutdown: everything committed is durable, a checkpoint leaves nothing to redo.
    ///
    /// # Errors
    /// `DiskFull` or `Io` of the last checkpoint: recovery will repeat what is missing.
    pub fn close(&self) -> Result<()> {
        self.purge_before_end();
        if self.stop.swap(true, Ordering::SeqCst) {
            return Ok(());
        }
        self.end_work("the server was shut down");
        let end = self.log.current_lsn();
        self.log.flush_to(end);
        debug_assert!(self.log.durable_lsn() >= end, "closed and not on disk");
        // What fails is tried again, alone.
        let _ = self.pool.flush_all_below(Lsn::MAX);
        self.join_threads();
        let again = self.pool.flush_all_below(Lsn::MAX);
        // What could not be merged or written is redone.
        if let Err(Error::DiskFull(why)) = &again {
            self.note_left_in_log(why);
        }
        let checkpoint = self.checkpoint();
        self.end_second_tier();
        let result = again.and(checkpoint);
        self.save_warm(true);
        if result.is_ok() {
            self.scrub_before_end();
            self.give_back_space();
            self.close_second_tier();
        }
        self.log.stop_threads();
        if result.is_ok() {
            self.scrub_log();
        }
        self.versions.remove_scratch();
        drop(self.lock.lock().take());
        result
    }

    /// Nothing is lost by that.
    fn note_left_in_log(&self, why: &str) {
        let kept = self.pool.change_buffer().pages();
        let text = format!(
            "disk full: {why}. The newest changes of {} pages are in the log only: the next start repeats them",
            self.pool.dirty_pages() + kept
        );
        self.callbacks.log(LogLevel::Note, &text);
    }

    /// The thread of the second tier ends, after those that write pages.
    fn end_second_tier(&self) {
        debug_assert!(self.threads.lock().is_empty(), "threads go on");
        self.store.end_second_tier();
        if let Some(handle) = self.tier_thread.lock().take() {
            let _ = handle.join();
        }
    }

    /// What cannot be saved is not there after the next start, and is told.
    fn close_second_tier(&self) {
        debug_assert!(self.tier_thread.lock().is_none(), "its thread goes on");
        if let Err(e) = self.store.close_second_tier() {
            let text = format!("the second tier begins empty at the next start: {e}");
            self.callbacks.log(LogLevel::Warning, &text);
        }
    }

    /// Lets go of a database whose disk is gone: threads end, nothing more is written. What
    /// was acknowledged is on the disk by definition.
    pub fn abandon(&self) {
        self.stop.store(true, Ordering::SeqCst);
        self.end_work("the database was abandoned");
        self.join_threads();
        self.end_second_tier();
        self.log.stop_threads();
        drop(self.lock.lock().take());
    }

    /// Threads are told that the database closes; who waits for one of them is woken.
    fn end_work(&self, why: &str) {
        self.end_backup(None, why);
        self.backup.join();
        self.versions.wind_up();
        self.housekeeping.set();
        self.pool.wake_merging();
        self.purge.wake();
    }

    fn join_threads(&self) {
        self.pool.stop_writer();
        self.pool.stop_read_ahead();
        // Not under the mutex: one of them may be about to start another (`wake_rollback`), which sees the stop behind it.
        let threads = std::mem::take(&mut *self.threads.lock());
        for handle in threads {
            self.purge.wake();
            let _ = handle.join();
        }
        debug_assert!(self.threads.lock().is_empty(), "threads go on");
    }
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
