//! Versions of a prepared transaction's changes, after a restart: readers must go on seeing the states before
//! them. Those of a large one are made while the database is open (`startup::settle`); until all of them are, its
//! undo tells readers the states before, and it is not decided.
//!
//! The server may decide it while it starts, beside this (`decide_at_start`): then this ends, one entry later at the
//! most. What it does to that entry is harmless: the address of a version that nobody asks for, under the id of the
//! transaction, or nothing if the entry bears another's id by then.
//!
//! Locking: the slot's mutex to copy the undo list, then a table's `in_use` and one leaf at a time.

use crate::catalog::table::Table;
use crate::log_records::undo::{self, Prior, Undo};
use crate::state::callbacks::LogLevel;
use crate::state::engine::Engine;
use crate::state::known_undo::{hash_of, key_of};
use crate::state::made_again::MadeAgain;
use crate::state::slot::TxnSlot;
use crate::state::throttle::Eased;
use crate::state::touched::Touched;
use crate::state::unsettled::Awaited;
use ferrite_sync::atomic::Ordering;
use ferrite_sync::waits::{Of, Reason, Sliced};
use ferrite_sync::{thread, Arc};
use ferrite_tree::record::Header;
use ferrite_tree::{node, LeafMut, Scratch};
use ferrite_txn::{diff, NewVersion, VERSION_DELETED};
use ferrite_types::{Error, IndexId, PageId, Result, TxnId, UndoPosition, VersionAddr};
use std::collections::HashMap;

/// Of the buffer pool's size one part in so many is kept of values ...
const VALUES_PART: u64 = 8;
/// ... and so many bytes at least, since each walk reads the pages of what it is about again, but no more than half.
const VALUES_LEAST_BYTES: u64 = 64 << 20;
/// With each value so many bytes are kept for its place.
const PLACE_BYTES: usize = 64;
/// Between two looks whether the log has space again, in ms.
const LOG_PAUSE_MS: u64 = 10;

/// Values of entries as the transaction had made them before what was looked at last: there are some of entries that it
/// has changed several times. If they get too many, what is left are those of the lower half of the hashes; the
/// others are for another walk over the undo list.
struct Values {
    of: HashMap<(IndexId, Vec<u8>), Vec<u8>>,
    bytes: usize,
    most_bytes: usize,
    /// The hashes of entries that this walk is about.
    hashes: std::ops::RangeInclusive<u64>,
}

impl Values {
    fn of_hashes(hashes: std::ops::RangeInclusive<u64>, most_bytes: usize) -> Values {
        assert!(most_bytes > 0 && !hashes.is_empty(), "a walk about nothing");
        Values {
            of: HashMap::new(),
            bytes: 0,
            most_bytes,
            hashes,
        }
    }

    /// The hashes that are left for other walks: no more to begin with than this one could do.
    fn rest(&self) -> Option<std::ops::RangeInclusive<u64>> {
        let (from, to) = self.hashes.clone().into_inner();
        let next = to.checked_add(1)?;
        debug_assert!(from <= to, "a walk about nothing");
        Some(next..=next.saturating_add(to - from))
    }

    fn take(&mut self, index: IndexId, key: &[u8]) -> Option<Vec<u8>> {
        let value = self.of.remove(&(index, key.to_vec()))?;
        let bytes = key.len() + value.len() + PLACE_BYTES;
        assert!(bytes <= self.bytes, "{bytes} of {}", self.bytes);
        self.bytes -= bytes;
        Some(value)
    }

    fn put(&mut self, index: IndexId, key: &[u8], value: Vec<u8>) {
        self.bytes += key.len() + value.len() + PLACE_BYTES;
        let before = self.of.insert((index, key.to_vec()), value);
        assert!(before.is_none(), "two values of one entry in index {index}");
        while self.bytes > self.most_bytes && self.hashes.start() < self.hashes.end() {
            let (from, to) = self.hashes.clone().into_inner();
            let to = from + (to - from) / 2;
            self.of.retain(|(index, key), _| hash_of(*index, key) <= to);
            let bytes = |((_, key), value): (&(IndexId, Vec<u8>), &Vec<u8>)| {
                key.len() + value.len() + PLACE_BYTES
            };
            self.bytes = self.of.iter().map(bytes).sum();
            self.hashes = from..=to;
            debug_assert!(from <= to && !self.hashes.is_empty(), "{from} to {to}");
        }
    }
}

/// One walk over the undo list.
struct Walk<'a> {
    values: Values,
    made: &'a mut MadeAgain,
    /// It has come so far.
    down_to: UndoPosition,
}

/// What who makes versions does while the log has no space for them, or the memory for them is full.
#[derive(Clone, Copy, Debug)]
pub(crate) enum NoRoom {
    /// It fails.
    Fails,
    /// It waits, unless the connection is killed whose statement needs them; 0: nobody's, or of one to which a KILL
    /// must not get through.
    Waits { thd: usize },
}

impl Engine {
    /// After a restart the versions behind a prepared transaction's rows are gone, but readers
    /// must go on seeing the states before it: they are made again from its undo list. The new
    /// addresses are logged like any change: later records of the log are differences to them. While the log
    /// is nearly out of space, or versions fill the memory for them and cannot be written out, it waits or fails
    /// (`no_room`): what is left is for what already runs.
    ///
    /// # Errors
    /// `Interrupted` by a stop or a KILL, or once the transaction is decided; a page that cannot be read; `DiskFull`,
    /// unless it waits. Who tries again goes on from there (`made_again`).
    pub(crate) fn restore_versions(
        &self,
        txn: TxnId,
        slot: &TxnSlot,
        no_room: NoRoom,
    ) -> Result<()> {
        let pool = self.pool.size_bytes();
        let most_bytes = (pool / VALUES_PART).max(VALUES_LEAST_BYTES).min(pool / 2);
        let mut eased = Eased::default();
        let mut made = std::mem::take(&mut slot.state.lock().made_again);
        let before_each = &mut || {
            self.may_restore(&mut eased, no_room, || {
                let is_prepared = slot.state.lock().is_prepared_as(txn);
                is_prepared.then(|| self.unsettled.awaited(txn))
            })
        };
        let result = self.restore_rest((txn, slot), &mut made, most_bytes as usize, before_each);
        let mut state = slot.state.lock();
        if result.is_err() && state.is_prepared_as(txn) {
            state.made_again = made;
        }
        result
    }

    /// Those that are not made yet, in as many walks as it takes if values of so many bytes are kept.
    fn restore_rest(
        &self,
        (txn, slot): (TxnId, &TxnSlot),
        made: &mut MadeAgain,
        most_bytes: usize,
        before_each: &mut dyn FnMut() -> Result<()>,
    ) -> Result<()> {
        let mut hashes = made.rest();
        while let Some(now) = hashes {
            let mut walk = Walk {
                values: Values::of_hashes(now, most_bytes),
                made: &mut *made,
                down_to: UndoPosition::END,
            };
            let result = self.restore_of((txn, slot), &mut walk, before_each);
            let Walk {
                values, down_to, ..
            } = walk;
            made.note(values.hashes.clone(), down_to);
            result?;
            hashes = values.rest();
        }
        if made.lacks_tables {
            let text = format!(
                "transaction {txn} is prepared; some of its changes are in tables that no \
                 longer exist: its commit or rollback skips them"
            );
            self.callbacks.log(LogLevel::Warning, &text);
        }
        Ok(())
    }

    /// The brake of what can be put off, as of purge. No latch is held. `awaited`: what waits for it, of one that is still
    /// prepared. A commit has been promised by the server when it comes here: it is not held up by a full memory, which
    /// nothing may make less full than what it waits for.
    fn may_restore(
        &self,
        eased: &mut Eased,
        no_room: NoRoom,
        awaited: impl Fn() -> Option<Awaited>,
    ) -> Result<()> {
        let mut wait = Sliced::new(Reason::LogBudget, Of::Nothing);
        loop {
            let awaited = match awaited() {
                Some(Awaited::Rollback) | None => return Err(Error::Interrupted),
                Some(awaited) => awaited,
            };
            let is_killed = match no_room {
                NoRoom::Waits { thd } => self.is_killed(thd),
                NoRoom::Fails => false,
            };
            if is_killed || self.stop.load(Ordering::SeqCst) {
                return Err(Error::Interrupted);
            }
            self.ease_off(eased);
            let is_full = self.history_full.load(Ordering::Relaxed) && awaited != Awaited::Commit;
            let has_room = !self.log.is_nearly_out() && !is_full;
            // Without background threads nobody but ourselves makes room, which was just tried.
            if has_room || self.config.manual_background {
                return Ok(());
            }
            if matches!(no_room, NoRoom::Fails) {
                let text = "no space for the redo log, or for row versions";
                return Err(Error::DiskFull(text.into()));
            }
            let is_left = || self.unsettled.has_rollback() || self.unsettled.has_retried();
            let rollback_waits = awaited == Awaited::No && is_left();
            if rollback_waits || self.callbacks.is_shutting_down() {
                return Err(Error::Interrupted);
            }
            self.housekeeping.set();
            wait.slice(|| thread::sleep_ms(LOG_PAUSE_MS));
        }
    }

    /// Of the entries that the walk is about, or those of them that it had room for.
    fn restore_of(
        &self,
        (txn, slot): (TxnId, &TxnSlot),
        walk: &mut Walk<'_>,
        before_each: &mut dyn FnMut() -> Result<()>,
    ) -> Result<()> {
        before_each()?;
        let mut entries = slot.state.lock().undo.backwards();
        loop {
            walk.down_to = entries.position();
            let Some(entry) = entries.prev(&self.undo_area)? else {
                return Ok(());
            };
            before_each()?;
            self.restore_entry(txn, undo::decode(&entry)?, entries.position(), walk)?;
        }
    }

    /// Of one change, which begins there in the list.
    fn restore_entry(
        &self,
        txn: TxnId,
        undo: Undo<'_>,
        at: UndoPosition,
        walk: &mut Walk<'_>,
    ) -> Result<()> {
        let Some((index, key)) = key_of(&undo) else {
            return Ok(());
        };
        let (hash, last) = (hash_of(index, key), *walk.values.hashes.end());
        if !walk.values.hashes.contains(&hash) {
            return Ok(());
        }
        // An older change of ours is a difference to the value before this one, whether that is done or not.
        let is_needed = matches!(&undo, Undo::Update { prior, .. } if prior.txn == txn);
        if walk.made.has(hash, at) && !is_needed {
            walk.values.take(index, key);
            return Ok(());
        }
        let is_there = match undo {
            Undo::Update { prior, .. } => {
                self.restore_version(txn, index, key, Some(&prior), &mut walk.values)?
            }
            Undo::Mark { .. } => self.restore_version(txn, index, key, None, &mut walk.values)?,
            Undo::Put { .. } => {
                walk.values.take(index, key);
                self.clear_version_of_put(txn, index, key)?
            }
            Undo::Insert { .. } | Undo::Overflow { .. } => {
                walk.values.take(index, key);
                true
            }
        };
        walk.made.lacks_tables |= !is_there;
        // What was too much is for another walk, which goes on from here.
        let now_last = *walk.values.hashes.end();
        if now_last < last {
            walk.made.note(now_last + 1..=last, at);
        }
        Ok(())
    }

    /// Which indexes a prepared transaction has changed, from its undo list alone.
    ///
    /// # Errors
    /// Undo that cannot be read: it may have changed any.
    pub(crate) fn find_touched(&self, slot: &TxnSlot) -> Result<()> {
        let mut entries = slot.state.lock().undo.backwards();
        let mut touched = Touched::default();
        let mut read = || -> Result<()> {
            while let Some(entry) = entries.prev(&self.undo_area)? {
                touched.add(undo::decode(&entry)?.index());
            }
            Ok(())
        };
        let result = read();
        if result.is_err() {
            touched.add_unknown(IndexId(self.dict.next_ids().index));
        }
        let mut state = slot.state.lock();
        assert!(state.is_prepared(), "{} is not prepared", state.txn);
        assert!(
            state.touched.all().is_empty(),
            "{} is recovered twice",
            state.txn
        );
        state.touched = touched;
        state.count_prepared(&self.prepared_on);
        result
    }

    /// `prior` none: the entry was delete-marked without a look at it. False when there is nothing to restore:
    /// the table is gone (a temporary one went with its session), or the entry is somebody else's. That must
    /// not keep a database from opening.
    fn restore_version(
        &self,
        txn: TxnId,
        index: IndexId,
        key: &[u8],
        prior: Option<&Prior<'_>>,
        values: &mut Values,
    ) -> Result<bool> {
        let Some((table, number)) = self.table_if_there(index)? else {
            return Ok(false);
        };
        // Once the start has decided it, DDL need not wait for the transaction.
        let Some(_stays) = table.stay_in(number) else {
            return Ok(false);
        };
        let tree = table.tree(number);
        loop {
            let mut leaf = match tree.leaf_mut(key, PageId::NONE) {
                // Then nobody reads it.
                Err(Error::Corrupt(_)) if prior.is_none() => return Ok(true),
                other => other?,
            };
            let Some(at) = made_by(&leaf, txn, key) else {
                return Ok(false);
            };
            let rec = leaf.record(at);
            let now = rec.header;
            let keep = rec.value.to_vec();
            let largest = Header {
                version: VersionAddr::MAX,
                ..now
            };
            if !leaf.can_replace(at, &largest, keep.len()) {
                drop(leaf);
                let need = node::room_for(key.len(), keep.len());
                tree.make_room(key, need, undo::NO_UNDO)?;
                continue;
            }
            let newer = values.take(index, key);
            let newer = newer.unwrap_or_else(|| keep.clone());
            let marked = Prior {
                deleted: false,
                txn: TxnId::FROZEN,
                keep_head: newer.len() as u16,
                keep_tail: 0,
                mid: &[],
            };
            let before = prior.unwrap_or(&marked);
            let mut value = Vec::new();
            before.value(&newer, &mut value)?;
            if before.txn == txn {
                // An older change of ours is a difference to this value.
                values.put(index, key, value);
                return Ok(true);
            }
            // Of what replaced nothing that anybody saw there was no version, but of a mark that was put off.
            if prior.is_some() && now.version.is_none() {
                return Ok(true);
            }
            let before = (before.deleted, value.as_slice());
            let version = self.version_before_restart(txn, index, before, &keep);
            set_version(&mut leaf, at, version);
            return Ok(true);
        }
    }

    /// As a difference to what is on the page `now`, as it was before the restart: a deleted row is no longer
    /// than its header again.
    fn version_before_restart(
        &self,
        txn: TxnId,
        index: IndexId,
        (deleted, value): (bool, &[u8]),
        now: &[u8],
    ) -> VersionAddr {
        debug_assert!(!txn.is_frozen(), "a change of no transaction");
        let (keep_head, keep_tail) = diff(value, now);
        let (head, tail) = (usize::from(keep_head), usize::from(keep_tail));
        debug_assert!(head + tail <= value.len().min(now.len()), "{head} {tail}");
        self.versions.add(NewVersion {
            begin: TxnId::FROZEN,
            end: txn,
            next: VersionAddr::NONE,
            flags: if deleted { VERSION_DELETED } else { 0 },
            keep_head,
            keep_tail,
            body: &value[head..value.len() - tail],
            index,
        })
    }

    /// After a restart the version behind an entry of a prepared transaction is of an earlier life, and
    /// everybody sees that nothing was there before.
    fn clear_version_of_put(&self, txn: TxnId, index: IndexId, key: &[u8]) -> Result<bool> {
        let Some((table, number)) = self.table_if_there(index)? else {
            return Ok(false);
        };
        let Some(_stays) = table.stay_in(number) else {
            return Ok(false);
        };
        let mut leaf = match table.tree(number).leaf_mut(key, PageId::NONE) {
            // Then nobody reads it, and what is kept for it makes its version when it is merged.
            Err(Error::Corrupt(_)) => return Ok(true),
            other => other?,
        };
        let Some(at) = made_by(&leaf, txn, key) else {
            return Ok(false);
        };
        if !leaf.record(at).header.version.is_none() {
            set_version(&mut leaf, at, VersionAddr::NONE);
        }
        Ok(true)
    }

    /// The table of an index, and the index's number in it. None: it is gone.
    fn table_if_there(&self, index: IndexId) -> Result<Option<(Arc<Table>, usize)>> {
        let table = match self.dict.table_of_index(index) {
            Err(Error::NotFound) if !ferrite_sync::mutant!("recovery.version_of_gone_table") => {
                return Ok(None)
            }
            other => other?,
        };
        let number = table.number_of(index).ok_or(Error::NotFound)?;
        Ok(Some((table, number)))
    }
}

/// The slot of that key's entry, if the transaction has made its present state.
fn made_by(leaf: &LeafMut<'_>, txn: TxnId, key: &[u8]) -> Option<usize> {
    debug_assert!(!txn.is_frozen(), "nobody's entry");
    let at = leaf.find(key).ok()?;
    (leaf.record(at).header.txn == txn).then_some(at)
}

/// Only the address changes. The leaf has room for it.
fn set_version(leaf: &mut LeafMut<'_>, at: usize, version: VersionAddr) {
    let rec = leaf.record(at);
    let header = Header {
        version,
        ..rec.header
    };
    let value = rec.value.to_vec();
    let same = (value.len() as u16, 0);
    leaf.replace(
        undo::NO_UNDO,
        at,
        &header,
        &value,
        same,
        &mut Scratch::default(),
    );
    debug_assert!(leaf.record(at).header == header && leaf.record(at).value == value);
}

#[cfg(test)]
mod tests {
    use crate::catalog::table::Table;
    use crate::testing::{config, create, open};
    use crate::{Callbacks, Config, LogLevel};
    use crate::{Cursor, DdlCaller, DupInfo, Engine, ReadMode, RowChange, Session, WaitMode, Xid};
    use ferrite_io::sim::{Fault, SimStorage};
    use ferrite_sync::atomic::{AtomicU64, Ordering};
    use ferrite_sync::Arc;
    use ferrite_types::Error;
    use std::collections::BTreeMap;

    const ROWS: u32 = 1000;

    fn row(n: u32, round: u8) -> Vec<u8> {
        let mut row = vec![7; 600];
        row[0] = 0;
        row[100..104].copy_from_slice(&n.to_be_bytes());
        row[300] = round;
        row
    }

    fn rows(engine: &Arc<Engine>, table: &Arc<Table>) -> BTreeMap<Vec<u8>, Vec<u8>> {
        let mut s = Session::new(engine, 0, 9);
        s.open_snapshot();
        rows_seen(&mut s, table)
    }

    fn rows_seen(s: &mut Session, table: &Arc<Table>) -> BTreeMap<Vec<u8>, Vec<u8>> {
        let mut cursor = Cursor::new(table, 0, ReadMode::Snapshot, WaitMode::Wait);
        let mut rows = BTreeMap::new();
        let mut more = cursor.first(s).map(|_| ());
        while more.is_ok() {
            let row = cursor.fetch_row(s).unwrap();
            rows.insert(row.pk.to_vec(), row.payload.to_vec());
            more = cursor.next(s).map(|_| ());
        }
        assert_eq!(more, Err(Error::NotFound));
        rows
    }

    fn name() -> Xid {
        Xid {
            format_id: 1,
            gtrid_len: 1,
            data: b"x"[..].into(),
        }
    }

    fn update(s: &mut Session, table: &Arc<Table>, n: u32, round: u8) {
        let (pk, payload) = (n.to_be_bytes(), row(n, round));
        let change = RowChange {
            old_pk: &pk,
            new_pk: &pk,
            payload: &payload,
            removed: &[],
            added: &[],
        };
        s.update_row(table, &change, &mut DupInfo::default())
            .unwrap();
    }

    /// What a prepared transaction has replaced takes the memory that it took before the restart.
    #[test]
    fn versions_are_made_again_as_differences() {
        for commit in [false, true] {
            let disk = SimStorage::new(4);
            let engine = open(&disk);
            let table = create(&engine);
            let mut s = Session::new(&engine, 0, 1);
            for n in 0..ROWS {
                let dup = &mut DupInfo::default();
                let (pk, payload) = (n.to_be_bytes(), row(n, 0));
                s.insert_row(&table, Some(&pk), &payload, &[], false, dup)
                    .unwrap();
            }
            s.commit(false).unwrap();
            let before = rows(&engine, &table);
            for n in 0..ROWS {
                match n % 4 {
                    0 => (1..4).for_each(|round| update(&mut s, &table, n, round)),
                    1 => update(&mut s, &table, n, 1),
                    _ => {}
                }
                if n % 4 > 0 {
                    s.delete_row(&table, &n.to_be_bytes(), &[]).unwrap();
                }
            }
            let xid = name();
            s.prepare(&xid).unwrap();
            let memory = engine.versions.stats().young_bytes;
            drop((s, table));
            engine.close().unwrap();
            let engine = open(&disk);
            let table = engine.dict.open_table("d/t").unwrap();
            assert_eq!(rows(&engine, &table), before);
            let stats = engine.versions.stats();
            assert_eq!(stats.made, u64::from(ROWS));
            assert!(stats.young_bytes <= memory, "{stats:?}, {memory} before");
            let old = (!commit).then(|| before.clone());
            match commit {
                true => engine.commit_by_xid(&xid).unwrap(),
                false => engine.rollback_by_xid(&xid).unwrap(),
            }
            let after = rows(&engine, &table);
            assert!(old.is_none_or(|old| old == after));
            let changed = after.values().filter(|row| row[300] == 3).count();
            let expected = if commit { ROWS as usize / 4 } else { 0 };
            assert_eq!(changed, expected);
            engine.drop_table("d/t", &DdlCaller::default()).unwrap();
            drop(table);
            engine.close().unwrap();
        }
    }

    /// Connection 7 is killed when it has asked so often.
    #[derive(Default)]
    struct Killer(AtomicU64);

    impl Callbacks for Killer {
        fn log(&self, _level: LogLevel, _text: &str) {}
        fn is_killed(&self, thd: usize) -> bool {
            let (order, less) = (Ordering::SeqCst, |left: u64| left.checked_sub(1));
            thd == 7 && self.0.fetch_update(order, order, less).is_err()
        }
        fn fatal(&self, text: &str) {
            panic!("{text}");
        }
    }

    /// A prepared transaction that has changed twice as many rows as there is room for values of, and then a few others
    /// once: its versions take several walks, of which the first comes by all of those.
    fn changed_twice(disk: &SimStorage) -> BTreeMap<Vec<u8>, Vec<u8>> {
        let engine = open(disk);
        let table = create(&engine);
        let mut s = Session::new(&engine, 0, 1);
        for n in 0..6 * ROWS {
            let (pk, payload) = (n.to_be_bytes(), row(n, 0));
            s.insert_row(
                &table,
                Some(&pk),
                &payload,
                &[],
                false,
                &mut DupInfo::default(),
            )
            .unwrap();
        }
        s.commit(false).unwrap();
        let before = rows(&engine, &table);
        for round in 1..3 {
            (0..4 * ROWS).for_each(|n| update(&mut s, &table, n, round));
        }
        (4 * ROWS..6 * ROWS).for_each(|n| update(&mut s, &table, n, 2));
        s.prepare(&name()).unwrap();
        drop((s, table));
        engine.close().unwrap();
        before
    }

    /// However often somebody begins to make them and is interrupted, and however many walks it takes: each is made
    /// once.
    #[test]
    fn versions_are_made_once_however_often_that_is_begun() {
        let (disk, killer) = (SimStorage::new(5), Arc::new(Killer::default()));
        let before = changed_twice(&disk);
        let config = Config {
            manual_background: true,
            background_undo_bytes: 100,
            ..config()
        };
        let engine = Engine::open(config, Arc::new(disk.boot()), killer.clone()).unwrap();
        let table = engine.dict.open_table("d/t").unwrap();
        let mut old = Session::new(&engine, 0, 1);
        old.open_snapshot();
        let commit = |thd| engine.commit_by_xid_of(&name(), thd);
        let made = || engine.versions.stats().made;
        // A page cannot be read.
        (30..5000).for_each(|nth| disk.inject_in(Fault::FailRead, nth, "store."));
        let mut made_before = 0;
        for attempt in 0..3 {
            let failed = commit(0);
            assert!(matches!(failed, Err(Error::Io(_))), "{failed:?}");
            assert!(made() > 0 && (attempt == 0 || made() == made_before));
            made_before = made();
        }
        disk.clear_faults();
        // Each gets a little further.
        for asks in (500..60_000).step_by(500) {
            killer.0.store(asks, Ordering::SeqCst);
            match commit(7) {
                Err(Error::Interrupted) => {}
                other => {
                    other.unwrap();
                    break;
                }
            }
            assert!(made() >= made_before && made() <= 6 * u64::from(ROWS));
            made_before = made();
        }
        assert_eq!(made(), 6 * u64::from(ROWS));
        assert_eq!(engine.prepared_xids(), []);
        assert_eq!(rows_seen(&mut old, &table), before);
        let after = rows(&engine, &table);
        assert!(after.values().all(|row| row[300] == 2));
        drop((old, table));
        engine.close().unwrap();
    }
}
