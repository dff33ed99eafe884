//! A start that finds a database: what the log has since the last checkpoint is done again, and what had no end is
//! rolled back. After a clean shutdown the log has nothing.
//!
//! A function for each stage of docs/internals/recovery.md. Each can be repeated after a crash in it.
//!
//! Locking: the caller has the directory's lock; from `load` on threads run beside.

use crate::catalog::dictionary::foreign_change::References;
use crate::catalog::dictionary::Dictionary;
use crate::ddl::{DdlCaller, Reach};
use crate::maintenance::checkpoint::{not_shut_down, EngineState};
use crate::rows::sort::remove_leftovers;
use crate::snapshots::startup as kept_snapshots;
use crate::startup::assemble::{stop_at_failed_sync, Parts, Start};
use crate::startup::collector::Collector;
use crate::startup::page_changes::Retained;
use crate::startup::page_redo::{self, RedoWriter};
use crate::startup::progress::Progress;
use crate::startup::recovery::{self, Analysis};
use crate::startup::settle::had_room;
use crate::state::callbacks::LogLevel;
use crate::state::engine::Engine;
use crate::state::garbage::GarbageList;
use crate::state::slot::TxnSlot;
use crate::state::snapshots::Snapshots;
use crate::state::transaction::Transaction;
use crate::state::undo_area::UndoArea;
use crate::transaction::restore_versions::NoRoom;
use ferrite_buffer::Pool;
use ferrite_io::Storage;
use ferrite_lock::Owner;
use ferrite_redo::{Log, LogSpan};
use ferrite_store::{Checkpoint, Store};
use ferrite_sync::atomic::Ordering;
use ferrite_sync::{kill_point, thread, time, Arc};
use ferrite_tree::apply;
use ferrite_types::{Error, IndexId, Lsn, OverflowRef, Result, TxnId};

/// A database that is there.
pub(super) struct Found {
    pub store: Arc<Store>,
    pub checkpoint: Checkpoint,
    pub started_us: u64,
}

/// What the log says.
struct Analysed {
    log: Arc<Log>,
    /// Where the pass over it began.
    from: Lsn,
    undo_area: UndoArea,
    analysis: Analysis,
    progress: Progress,
}

/// One pass over the log since the checkpoint. With what it says come the operations on pages.
fn analyse(
    start: &Start,
    store: &Arc<Store>,
    checkpoint: Checkpoint,
) -> Result<(Analysed, Retained)> {
    let mut state = EngineState::decode(&checkpoint.state)?;
    if let Some(newer) = store.passed_over() {
        // It knows of more of the log that must be there.
        let newer = EngineState::decode(&newer.checkpoint.state)?;
        state.log_durable = state.log_durable.max(newer.log_durable);
    }
    let undo_area = UndoArea::new(start.storage.clone());
    undo_area.adopt(state.active.iter().flat_map(|a| &a.chunks).copied());
    let from = checkpoint.redo_start;
    let span = LogSpan {
        from,
        durable: state.log_durable,
    };
    let log_unreadable = state.log_unreadable;
    let mut analysis = Analysis::new(checkpoint.map, state);
    let limits = start.config.redo_limits();
    let mut collector = Collector::start(Retained::new(limits.limit_bytes));
    let mut progress = Progress::new(start.callbacks.clone(), from);
    let storage = &start.storage;
    let log = Log::open(storage.clone(), span, start.log_config(), &mut |rec| {
        if log_unreadable {
            return Err(not_shut_down());
        }
        analysis.visit(store, &undo_area, &rec)?;
        progress.read_to(rec.end, || Log::guess_end(storage.clone(), from));
        collector.take(&rec, &analysis.fates)
    })?;
    let retained = collector.finish()?;
    for (txn, found) in &analysis.unfinished {
        assert!(!txn.is_frozen(), "an unfinished transaction has an id");
        // Without its file all undo would be lost, and a new one written in its place. A chunk that cannot be read is a
        // matter of its transaction.
        found.undo.has_places(&undo_area)?;
    }
    undo_area.give_unused_back();
    stop_at_failed_sync(storage, &log);
    let analysed = Analysed {
        log,
        from,
        undo_area,
        analysis,
        progress,
    };
    Ok((analysed, retained))
}

/// Pages get the changes that they lack, or will when they are read. The writer thread is needed until the
/// dictionary is loaded, in case the pages do not fit in the pool.
fn redo(
    start: &Start,
    store: &Arc<Store>,
    found: &mut Analysed,
    retained: Retained,
    end: Lsn,
) -> Result<(Arc<Pool>, RedoWriter)> {
    let from = found.from;
    assert!(from <= end, "redo from {from}, the log ends at {end}");
    let pool = start.make_pool(store, &found.log)?;
    pool.set_apply_redo(Box::new(|page, ops| apply::apply_all(ops, page)));
    let writer = RedoWriter::start(&pool);
    let fates = found.analysis.fates.clone();
    let limits = start.config.redo_limits();
    let (pages, span) = ((&pool, &*found.log), (from, end));
    found.analysis.redone =
        page_redo::run(pages, retained, &fates, span, limits, &mut found.progress)?;
    found.analysis.pages_read = pool.stats.reads.get();
    Ok((pool, writer))
}

/// The dictionary, and with it the last of an engine's parts.
fn load(
    start: &Start,
    store: Arc<Store>,
    pool: Arc<Pool>,
    found: Analysed,
    snapshots: Snapshots,
) -> Result<(Parts, Analysis)> {
    let Analysed {
        log,
        undo_area,
        mut analysis,
        ..
    } = found;
    let next_txn = analysis.next_txn;
    assert!(
        analysis.unfinished.keys().all(|txn| *txn < next_txn),
        "the id of an unfinished transaction would be given out again"
    );
    let carried = std::mem::take(&mut analysis.carried);
    let txns = start.make_txns(next_txn, analysis.next_csn);
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
    Ok((parts, analysis))
}

/// A start that finds no frame because no page can be written says what gives it space.
fn with_what_helps(e: Error, snapshots: &Snapshots) -> Error {
    let Error::DiskFull(text) = e else {
        return e;
    };
    let names: Vec<String> = snapshots.all().into_iter().map(|kept| kept.name).collect();
    let or_drop = match names.is_empty() {
        true => String::new(),
        false => format!(
            ", or drop kept snapshots, which may hold what is needed ({}): a start drops NAME if the file \
             snapshot.NAME.manifest is gone",
            names.join(", ")
        ),
    };
    Error::DiskFull(format!(
        "{text}. The pages that lack changes of the log find no room: make space on the disk{or_drop}"
    ))
}

impl Engine {
    pub(super) fn recover(start: Start, found: Found) -> Result<Arc<Engine>> {
        let Found {
            store,
            checkpoint,
            started_us,
        } = found;
        let (mut found, retained) = analyse(&start, &store, checkpoint)?;
        // What they hold is not free.
        let all: Arc<dyn Storage> = start.storage.clone();
        let snapshots = kept_snapshots::load(&all, &store, &*start.callbacks)?;
        store.free_space_known()?;
        let (from, end) = (found.from, found.log.current_lsn());
        let redone = redo(&start, &store, &mut found, retained, end);
        let (pool, writer) = redone.map_err(|e| with_what_helps(e, &snapshots))?;
        store.finish_recovery()?;
        let (parts, analysis) = load(&start, store, pool, found, snapshots)?;
        debug_assert!(parts.log.current_lsn() >= end, "the log got shorter");
        let engine = Engine::assemble(start, parts);
        engine.checkpoint_lsn.store(from.0, Ordering::SeqCst);
        drop(writer);
        match engine.finish_recovery(analysis, end.0 - from.0, started_us) {
            Ok(()) => Ok(engine),
            Err(e) => {
                // Its threads must not go on, nor the directory stay locked.
                engine.abandon();
                Err(e)
            }
        }
    }

    /// The stages behind the dictionary. So many bytes of log were read.
    fn finish_recovery(
        self: &Arc<Self>,
        mut analysis: Analysis,
        log_bytes: u64,
        started_us: u64,
    ) -> Result<()> {
        let pending = self.hold_pending(analysis.pending_overflow());
        // Every unfinished transaction is known as such before anything else happens.
        let unfinished = self.restore_unfinished(&mut analysis);
        if log_bytes > 0 {
            self.dict.doubt_rows();
        }
        self.start();
        kill_point!("recovery.values_held");
        let rolled_back = self.end_unfinished(unfinished)?;
        self.free_pending(&pending);
        self.note_recovered(&analysis, log_bytes, started_us, rolled_back);
        self.await_frames();
        self.dict.drop_strays()?;
        remove_leftovers(&*self.storage);
        self.dict.finish_pending_changes()?;
        self.drop_leftovers()?;
        self.checkpoint_after_recovery()?;
        self.start_rollback();
        Ok(())
    }

    /// What follows needs frames, and does not wait for long. While no page can be written the snapshots go, one after the
    /// other: that is waited for, if there are any, as long as it goes on.
    fn await_frames(&self) {
        const LOOK_MS: u64 = 20;
        const VAIN_US: u64 = 5_000_000;
        let (mut left, mut since_us) = (self.snapshots.count(), time::now_us());
        while left > 0 && !self.config.manual_background && self.pool.lacks_frames() {
            thread::sleep_ms(LOOK_MS);
            let (before, now_us) = (left, time::now_us());
            left = self.snapshots.count();
            if left < before || self.snapshots.frees() {
                since_us = now_us;
            }
            if now_us - since_us > VAIN_US {
                return;
            }
        }
    }

    /// Trees without a table go, and temporary tables of an earlier life, of which there may be any number: as many as
    /// the log has room for. The others are no session's, and go at a later start.
    fn drop_leftovers(&self) -> Result<()> {
        let (orphans, temporary) = self.dict.leftovers();
        let mut left = temporary.len();
        for name in temporary {
            match self.wait_for_log(Reach::HalfReserve, &DdlCaller::default()) {
                Ok(()) => {}
                Err(e @ (Error::DiskFull(_) | Error::Shortage(_) | Error::Io(_))) => {
                    let text = format!("{left} temporary tables from before the restart stay: {e}");
                    self.callbacks.log(LogLevel::Warning, &text);
                    break;
                }
                Err(e) => return Err(e),
            }
            self.dict.drop_table(&name, References::None)?;
            left -= 1;
        }
        for index in orphans {
            self.pool.drop_index(index);
        }
        debug_assert_eq!(
            self.dict.leftovers().1.len(),
            left,
            "temporary tables of an earlier life are left"
        );
        Ok(())
    }

    /// Prepared transactions wait for their decision, with the versions of their rows; the others are rolled back.
    /// The small ones of both now, up to `Config::background_undo_bytes` of undo in all, and what is left by the thread
    /// for it: however much a crash cut off, nobody waits long for it. So are those from the first on for which a full
    /// disk leaves no room: the thread waits for it; and those with a page that cannot be read. Returns how many were
    /// rolled back.
    fn end_unfinished(&self, unfinished: Vec<Arc<TxnSlot>>) -> Result<u64> {
        let undo_bytes = |slot: &Arc<TxnSlot>| slot.state.lock().undo.position().0;
        let mut cut_off: Vec<_> = unfinished
            .into_iter()
            .map(|s| (undo_bytes(&s), s))
            .collect();
        cut_off.sort_by_key(|(bytes, _)| *bytes);
        let (mut now_bytes, mut rolled_back, mut has_room) = (0, 0, true);
        for (bytes, slot) in cut_off {
            debug_assert!(!slot.state.lock().txn.is_frozen(), "nothing to be undone");
            now_bytes += bytes;
            let later = !has_room || now_bytes > self.config.background_undo_bytes;
            if slot.state.lock().is_prepared() {
                has_room &= self.recover_prepared(slot, later)?;
                continue;
            }
            if later || !self.roll_back_at_start(&slot, &mut has_room)? {
                self.unsettled.add(slot);
                continue;
            }
            debug_assert!(
                slot.state.lock().txn.is_frozen(),
                "rolled back and unfinished"
            );
            self.forget_slot(&slot);
            rolled_back += 1;
        }
        debug_assert!(
            now_bytes <= self.config.background_undo_bytes || self.unsettled.count() > 0,
            "{now_bytes} bytes are rolled back before the start"
        );
        Ok(rolled_back)
    }

    /// Rolls one back before anybody comes. False: there is no room for it, or a page or undo cannot be read. That is a
    /// matter of its own rows, and must not keep all others from a start: the thread tries again, and tells.
    fn roll_back_at_start(&self, slot: &Arc<TxnSlot>, has_room: &mut bool) -> Result<bool> {
        match had_room(self.roll_back_loser(slot, false)) {
            Ok(had_room) => {
                *has_room = had_room;
                Ok(had_room)
            }
            Err(e) if self.is_left_to_thread(&e) => Ok(false),
            Err(e) => Err(e),
        }
    }

    /// A page, or undo, that could not be read: the thread tries again, if there is to be one. Nobody else would ever say that it
    /// was given up, and readers would wait.
    fn is_left_to_thread(&self, failed: &Error) -> bool {
        let may_pass = matches!(
            failed,
            Error::Io(_) | Error::Corrupt(_) | Error::Shortage(_)
        );
        may_pass && !self.config.manual_background
    }

    /// It waits for its decision from here on; `later`, if there is no room for them, or if a page cannot be read,
    /// the thread makes its versions again. False: there was no room.
    fn recover_prepared(&self, slot: Arc<TxnSlot>, later: bool) -> Result<bool> {
        match self.find_touched(&slot) {
            Err(e) if !self.is_left_to_thread(&e) => return Err(e),
            // What it has changed is not known: DDL waits for it, of whichever table.
            Ok(()) | Err(_) => {}
        }
        let txn = slot.state.lock().txn;
        let (are_made, has_room) = match later {
            true => (false, true),
            false => match had_room(self.restore_versions(txn, &slot, NoRoom::Fails)) {
                Ok(had_room) => (had_room, had_room),
                Err(e) if self.is_left_to_thread(&e) => (false, true),
                Err(e) => return Err(e),
            },
        };
        if !are_made {
            self.unsettled.add(slot.clone());
        }
        // Of what is left out its commit tells the log, and nobody frees it in this life.
        let (garbage, _) = self.garbage_of(&slot);
        let garbage = GarbageList::recovered(garbage);
        self.adopt_prepared(Transaction::recovered(slot, garbage));
        Ok(has_room)
    }

    fn note_recovered(&self, found: &Analysis, bytes: u64, started_us: u64, rolled_back: u64) {
        let c = &self.counters;
        c.recovery_log_bytes.add(bytes);
        c.recovery_pages_redone.add(found.redone.pages);
        c.recovery_pages_read.add(found.pages_read);
        if bytes == 0 {
            return;
        }
        let ms = (time::now_us() - started_us) / 1000;
        c.recovery_ms.add(ms);
        let text = format!(
            "recovered {bytes} bytes of log ({} records, {} pages redone, {} read for it, {} \
             left to be redone when they are read) in {ms} ms; transactions: {rolled_back} rolled back, {} prepared, {} being rolled back",
            found.records,
            found.redone.pages,
            found.pages_read,
            found.redone.put_off,
            self.prepared.lock().len(),
            self.unsettled.cut_off()
        );
        self.callbacks.log(LogLevel::Note, &text);
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
    /// there may be millions, and each takes reading its pages, so nobody waits for them. Those of tables that cannot
    /// be opened stay in the slot, for the next start.
    pub(crate) fn free_pending(&self, slot: &Arc<TxnSlot>) {
        kill_point!("recovery.values_queued");
        debug_assert!(slot.state.lock().txn.is_frozen(), "of no transaction");
        let (pieces, unopened) = self.garbage_of(slot);
        self.purge.add(TxnId::FROZEN, pieces);
        let is_done = unopened.is_empty();
        slot.state.lock().garbage = unopened;
        if is_done {
            self.forget_slot(slot);
        }
    }

    /// Large transactions without a commit are settled while the database is open.
    fn start_rollback(self: &Arc<Self>) {
        if self.unsettled.count() == 0 {
            return;
        }
        match self.config.manual_background {
            true => self.learn_undo(),
            false => self.wake_rollback(),
        }
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
            debug_assert!(self.txns.owner_of(txn).is_none(), "{txn} is there twice");
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
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::spec::{IndexSpec, TableSpec};
    use crate::rows::write::DupInfo;
    use crate::testing::{config, create, out_of_memory, Heard};
    use crate::Session;
    use ferrite_io::sim::SimStorage;
    use ferrite_store::GRANULE_BYTES;
    use ferrite_sync::random::Rng;
    use ferrite_sync::thread;
    use std::panic::{catch_unwind, AssertUnwindSafe};

    fn start(disk: &SimStorage) -> (Result<Arc<Engine>>, Arc<Heard>) {
        let heard = Arc::new(Heard::default());
        let engine = Engine::open(config(), Arc::new(disk.boot()), heard.clone());
        (engine, heard)
    }

    /// Values that commits have let go of, of two tables; of one, which has no primary key, the last leaf is damaged.
    /// The start goes on without it, frees those of the other, and keeps these for a start that can.
    #[test]
    fn values_of_a_table_that_cannot_be_opened_wait_for_the_next_start() {
        let disk = SimStorage::new(9);
        let engine = start(&disk).0.unwrap();
        engine.purge.hold_back(true);
        let spec = TableSpec {
            hidden_row_id: true,
            ..TableSpec::new("d/h", vec![IndexSpec::new("GEN_CLUST_INDEX", true, 1)])
        };
        let tables = [create(&engine), engine.dict.create_table(spec, 1).unwrap()];
        let mut s = Session::new(&engine, 0, 1);
        let mut gone = Vec::new();
        for (table, pk) in [(&tables[0], Some(&b"k"[..])), (&tables[1], None)] {
            let value = s.write_overflow(table, &[7; 2000]).unwrap();
            let row = [&[1u8][..], value.bytes()].concat();
            let dup = &mut DupInfo::default();
            let id = s.insert_row(table, pk, &row, &[], false, dup).unwrap();
            gone.push(id.map_or(b"k".to_vec(), |id| id.to_vec()));
        }
        for _ in 0..200 {
            let (row, dup) = (&[0; 500][..], &mut DupInfo::default());
            s.insert_row(&tables[1], None, row, &[], false, dup)
                .unwrap();
        }
        s.commit(false).unwrap();
        let last = tables[1].tree(0).leaf_below(None, ferrite_tree::Keep::Yes);
        let last = last.unwrap().page_id();
        out_of_memory(&engine, last);
        let at = engine.store.directory().get(last).as_location().unwrap();
        engine.checkpoint().unwrap();
        for (table, pk) in tables.iter().zip(&gone) {
            s.delete_row(table, pk, &[]).unwrap();
        }
        s.commit(true).unwrap();
        drop((s, tables));
        disk.crash(&mut Rng::new(9));
        let _ = catch_unwind(AssertUnwindSafe(|| engine.abandon()));
        drop(engine);

        let flip = || {
            let byte = at.granule() * GRANULE_BYTES as u64 + 100;
            disk.corrupt("store.0000", byte, 0xff).unwrap();
        };
        flip();
        let (engine, heard) = start(&disk);
        let engine = engine.expect("a table that nobody asks for keeps the start back");
        let cannot = |text: &String| text.contains("cannot be opened");
        let said = heard.0.lock().clone();
        assert_eq!(
            said.iter().filter(|text| cannot(text)).count(),
            1,
            "{said:?}"
        );
        assert!(engine.dict.open_table("d/h").is_err(), "it is whole");
        while engine.purge.length() > 0 {
            thread::sleep_ms(1);
        }
        assert_eq!(engine.copy_state().overflow.len(), 1, "values to be freed");
        engine.close().unwrap();
        drop(engine);

        flip();
        let (engine, heard) = start(&disk);
        let engine = engine.unwrap();
        while !engine.copy_state().overflow.is_empty() {
            thread::sleep_ms(1);
        }
        assert_eq!(*heard.0.lock(), Vec::<String>::new());
        assert_eq!(engine.check_values().unwrap().pages, 0);
        engine.close().unwrap();
    }
}
