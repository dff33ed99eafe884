//! Tables as wholes: DROP, TRUNCATE, RENAME and ALTER, beside prepared transactions.
//!
//! The server's metadata locks keep DDL away from every transaction that has a connection. A
//! prepared one outlives its connection and the metadata locks with it, so DDL waits for it
//! here, as InnoDB's waits for its table locks: until it is decided, KILL, or the time is up.
//! It waits also for one that is still in its session: when a client goes, its metadata locks
//! go a moment before its transaction is detached.
//!
//! Temporary tables go with their session, whatever it has prepared: nobody waits for them,
//! and the decision of the transaction passes over what it had changed there.
//!
//! Each change is durable on return: one without room in the log would wait for it with the dictionary's mutex, and
//! everybody with it. So what makes something new is admitted as a change of rows is, and a new definition goes on into
//! the log's reserve as far as purge does. What gives a table up may be what a full disk needs, and another name the end
//! of something larger, or its taking back, whose failure the server does not look at: both go on beyond what
//! purge and rollbacks may use. Then they wait. A KILL is heard only by who waits: the server takes back what it was at
//! with a connection that is killed, and so it drops the temporary tables of one that goes.
//!
//! Locking: `slots` for a moment; then one slot's mutex, tried only; nothing is held over the sleep.

use crate::catalog::dictionary::foreign::{AlterForeign, NewForeign};
use crate::catalog::dictionary::foreign_change::{References, Renaming};
use crate::catalog::dictionary::index_change::NewIndex;
use crate::catalog::foreign::{
    database_of, is_alter_copy, is_alter_original, original_of, table_of, whole_table,
};
use crate::catalog::spec::{IndexSpec, TableSpec};
use crate::catalog::table::Table;
use crate::rows::index_build::IndexBuild;
use crate::state::callbacks::LogLevel;
use crate::state::engine::Engine;
use crate::state::slot::{SlotState, TxnSlot};
use crate::transaction::session::Session;
use ferrite_sync::atomic::Ordering;
use ferrite_sync::waits::{Of, Reason, Sliced};
use ferrite_sync::{thread, time, Arc, MutexGuard};
use ferrite_types::{Error, IndexId, Result};
use std::collections::{HashMap, HashSet};

/// Between two looks of a waiting statement, in ms.
const LOOK_MS: u64 = 5;

/// So often, and that far apart in us, a slot is looked at that is in use.
const SLOT_LOOKS: u32 = 20;
const SLOT_LOOK_US: u64 = 50;
/// For a transaction of which it cannot be seen whether it has changed the table, everybody waits so long, in us.
const PERHAPS_US: u64 = 100_000;
/// ... and so long for one that is being committed, in us.
const COMMIT_US: u64 = 1_000_000;
const _: () = assert!(PERHAPS_US > 2 * (LOOK_MS * 1000 + SLOT_LOOKS as u64 * SLOT_LOOK_US));

/// Who keeps a table from being changed, by connection (0: of an earlier life).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Holder {
    /// A prepared transaction that has changed it.
    Known(u64),
    /// One whose slot is in use: perhaps.
    Perhaps(u64),
    /// A commit by xid that goes on: perhaps of one that has changed it.
    Commit,
}

/// Who asks for a change of a whole table.
#[derive(Clone, Copy, Debug, Default)]
pub struct DdlCaller {
    /// The server's connection, asked for KILL; 0: none.
    pub thd: usize,
    /// How long to wait for prepared transactions, in ms; 0: not at all.
    pub wait_ms: u64,
    /// What keeps a table from being dropped or emptied.
    pub references: References,
}

/// How far into the log's reserve a change of the dictionary goes before it waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reach {
    /// As far as purge.
    HalfReserve,
    /// To what only the ends of transactions and a checkpoint may use.
    AllButEnds,
}

/// Where an index of a table's new definition comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IndexSource {
    /// The index with this number in the old definition.
    Kept(usize),
    /// The index with this number in the build.
    Built(usize),
}

/// The indexes of a table's new definition, in order.
pub struct IndexesAfter<'b> {
    /// The first one is the clustered one, as before.
    pub sources: Vec<IndexSource>,
    /// Those that are new.
    pub build: Option<&'b mut IndexBuild>,
}

/// The table whose VECTOR INDEX the server keeps as a table of that name, `TABLE#i#NUMBER`, without a
/// definition of its own; else the name itself. A user's name has no `#`: it is written as `@0023`.
fn without_index_mark(name: &str) -> &str {
    name.find("#i#").map_or(name, |end| &name[..end])
}

impl Engine {
    /// Makes a table; see [`Dictionary::create_with_foreign`](crate::catalog::dictionary::Dictionary::create_with_foreign).
    ///
    /// # Errors
    /// Also `DiskFull`, as of a change of rows; `Interrupted` by KILL while it waits for room.
    pub fn create_table(
        &self,
        spec: TableSpec,
        auto_increment: u64,
        foreign: NewForeign,
        caller: &DdlCaller,
    ) -> Result<Arc<Table>> {
        self.admission(&|| self.is_killed(caller.thd))?;
        self.dict.create_with_foreign(spec, auto_increment, foreign)
    }

    /// Gives a table other bytes of the plugin's; see
    /// [`Dictionary::redefine`](crate::catalog::dictionary::Dictionary::redefine).
    ///
    /// # Errors
    /// As [`Engine::create_table`].
    pub fn redefine_table(&self, name: &str, definition: &[u8], caller: &DdlCaller) -> Result<()> {
        self.admission(&|| self.is_killed(caller.thd))?;
        self.dict.redefine(name, definition)
    }

    /// Stores the plugin's statistics of a table, unless there is no room for the log: nobody needs them.
    ///
    /// # Errors
    /// `DiskFull`; as [`Dictionary::set_stats`](crate::catalog::dictionary::Dictionary::set_stats).
    pub fn store_statistics(&self, table: &Table, blob: &[u8]) -> Result<()> {
        self.log.admission()?;
        self.dict.set_stats(table, blob)
    }

    /// For what is not refused where changes of rows are; see the head of the file. Waits for room as long as for a
    /// prepared transaction. No lock of the engine's is held.
    ///
    /// # Errors
    /// `DiskFull`; `Interrupted` by KILL or a stop.
    pub(crate) fn wait_for_log(&self, reach: Reach, caller: &DdlCaller) -> Result<()> {
        let lacks_room = || match reach {
            Reach::HalfReserve => self.log.is_nearly_out(),
            Reach::AllButEnds => self.log.is_out(),
        };
        let begun_us = time::now_us();
        let mut wait = Sliced::new(Reason::DiskFull, Of::Nothing);
        while lacks_room() {
            let made = self.admission_of(true, &|| self.callbacks.is_killed(caller.thd));
            if !lacks_room() {
                break;
            }
            let ends = self.stop.load(Ordering::SeqCst) || self.callbacks.is_shutting_down();
            if ends || self.callbacks.is_killed(caller.thd) {
                return Err(Error::Interrupted);
            }
            if made.is_ok() {
                // It is not space that is missing: files follow what has been written.
                self.flush_log();
            } else if time::now_us() - begun_us >= caller.wait_ms.saturating_mul(1000) {
                return made;
            }
            wait.slice(|| thread::sleep_ms(LOOK_MS));
        }
        Ok(())
    }

    /// Drops a table, durably.
    ///
    /// # Errors
    /// `NotFound`; `Referenced` by foreign keys; `LockTimeout` while a prepared transaction has
    /// changed the table, `Interrupted` by KILL; `DiskFull`; a page that cannot be read.
    pub fn drop_table(&self, name: &str, caller: &DdlCaller) -> Result<()> {
        let dropped = self.drop_now(name, caller);
        if dropped.is_err() {
            self.dict.stays_replaced(name);
        }
        dropped
    }

    fn drop_now(&self, name: &str, caller: &DdlCaller) -> Result<()> {
        self.wait_for_log(Reach::AllButEnds, caller)?;
        let whole = without_index_mark(name);
        if whole != name && self.dict.exists(whole) {
            // DROP TABLE drops the index first (all else drops it last): what keeps the table keeps it, too.
            self.wait_for_prepared(whole, caller)?;
            self.dict.check_droppable(whole, caller.references)?;
        }
        self.wait_for_prepared(name, caller)?;
        self.dict.drop_table(name, caller.references)
    }

    /// Drops the copies that an ALTER TABLE was filling at the moment of which this database is: it was
    /// rewound to that, or restored. After a crash the server knows of them and has dropped them by now.
    /// `is_defined`: the server has a definition of the table with that name, which stays then, with its
    /// partitions, as does the copy of what is put aside, and one whose original is not there: if the server
    /// failed to give it its name, it has the only rows. Returns the names of those that went.
    ///
    /// # Errors
    /// As [`Engine::drop_table`]; some may be left.
    pub fn drop_abandoned_copies(&self, is_defined: &dyn Fn(&str) -> bool) -> Result<Vec<String>> {
        let names = self.dict.table_names();
        let whole: HashSet<&str> = names.iter().map(|name| whole_table(name)).collect();
        let abandoned = names.iter().filter(|name| {
            original_of(name).is_some_and(|original| !whole.contains(&*original))
                && !is_defined(whole_table(name))
        });
        let abandoned: Vec<String> = abandoned.cloned().collect();
        let mut originals = HashMap::new();
        for name in &abandoned {
            if let Some(original) = self.dict.replaced_by(name) {
                originals.insert(without_index_mark(whole_table(name)), original);
            }
        }
        let mut dropped = self.drop_indexes_alone(&names)?;
        for name in abandoned.iter().filter(|name| self.dict.exists(name)) {
            debug_assert!(is_alter_copy(name), "{name} is no copy");
            match originals.get(without_index_mark(whole_table(name))) {
                Some(original) if whole.contains(original.as_str()) => {
                    self.dict.drop_table(name, References::Any)?;
                    dropped.push(name.clone());
                }
                original => self.tell_of_only_copy(name, original.map_or("?", |o| o)),
            }
        }
        debug_assert!(dropped.iter().all(|name| !self.dict.exists(name)));
        Ok(dropped)
    }

    /// Drops the tables of VECTOR indexes of copies, and of what was put aside, that are not there themselves: nobody can
    /// read them. Returns their names.
    fn drop_indexes_alone(&self, names: &[String]) -> Result<Vec<String>> {
        let mut dropped = Vec::new();
        for name in names {
            let whole = without_index_mark(name);
            let is_left = is_alter_copy(name) || is_alter_original(name);
            if whole != name && is_left && !self.dict.exists(whole) {
                self.dict.drop_table(name, References::None)?;
                dropped.push(name.clone());
            }
        }
        debug_assert!(dropped.iter().all(|name| !self.dict.exists(name)));
        Ok(dropped)
    }

    /// Drops what an ALTER TABLE with RENAME TO had put aside when the server was killed, which its log of DDL forgets: what a
    /// table of another name has replaced that the server knows of. Returns the names of those that went. After
    /// [`Engine::drop_abandoned_copies`].
    ///
    /// # Errors
    /// As [`Engine::drop_table`]; some may be left.
    pub fn drop_replaced(&self, is_defined: &dyn Fn(&str) -> bool) -> Result<Vec<String>> {
        let mut dropped = Vec::new();
        let all = self.dict.table_names();
        for (name, heir) in self.dict.replaced_tables() {
            let whole = without_index_mark(whole_table(&heir));
            if !is_defined(whole) || !self.dict.exists(&heir) {
                continue;
            }
            // Its VECTOR INDEX before it, of which nothing would tell whose it was.
            let is_mark = |other: &&String| **other != name && without_index_mark(other) == name;
            for part in all.iter().filter(is_mark).chain([&name]) {
                self.dict.drop_table(part, References::None)?;
                dropped.push(part.clone());
            }
        }
        debug_assert!(dropped.iter().all(|name| !self.dict.exists(name)));
        Ok(dropped)
    }

    /// What ALTER TABLE has put aside, "db/#sql-backup-...": while none is at work, what a crash has left of which
    /// it is not known whether it is needed. In order, without partitions of the same table.
    pub fn tables_put_aside(&self) -> Vec<String> {
        let names = self.dict.table_names().into_iter();
        let aside = names.filter(|name| is_alter_original(name));
        let mut aside: Vec<String> = aside.map(|name| whole_table(&name).to_owned()).collect();
        aside.sort_unstable();
        aside.dedup();
        aside
    }

    fn tell_of_only_copy(&self, name: &str, original: &str) {
        let text = format!(
            "table {name}, which an ALTER TABLE had filled, stays: {original}, whose place it was to take, is not there"
        );
        self.callbacks.log(LogLevel::Warning, &text);
    }

    /// Tables that the server does not know, by what `is_defined` says of "db/table", each with the
    /// number of its partitions (0: it has none): left when the server was killed in DROP or CREATE
    /// TABLE of many partitions, or their definitions were lost. In order.
    pub fn unknown_tables(&self, is_defined: &dyn Fn(&str) -> bool) -> Vec<(String, usize)> {
        let mut unknown: Vec<(String, usize)> = Vec::new();
        let mut asked = String::new();
        let mut defined = true;
        for name in self.dict.table_names() {
            let whole = without_index_mark(whole_table(&name));
            let is_part = usize::from(whole != name);
            if asked == whole {
                if let Some(last) = unknown.last_mut().filter(|_| !defined) {
                    last.1 += is_part;
                }
                continue;
            }
            asked = whole.to_owned();
            // Names that the server gives for the time of a statement are its log's.
            defined = table_of(whole).starts_with("#sql") || is_defined(whole);
            if !defined {
                unknown.push((asked.clone(), is_part));
            }
        }
        debug_assert!(unknown.is_sorted(), "{unknown:?}");
        unknown
    }

    /// Drops what is left of partitions of a table that is not there itself, durably.
    ///
    /// # Errors
    /// `NotFound`: there are none. As [`Engine::drop_table`]; some may be left.
    pub fn drop_parts(&self, table: &str, caller: &DdlCaller) -> Result<()> {
        let names = self.dict.tables_of(database_of(table));
        let parts = names
            .iter()
            .filter(|name| *name != table && without_index_mark(whole_table(name)) == table);
        let mut dropped = Err(Error::NotFound);
        for part in parts {
            self.drop_table(part, caller)?;
            dropped = Ok(());
        }
        dropped
    }

    /// Empties a table, durably, and sets its AUTO_INCREMENT counter. A child of it may have come since the
    /// server has looked for one.
    ///
    /// # Errors
    /// As [`Engine::drop_table`]; nothing changed.
    pub fn truncate_table(
        &self,
        name: &str,
        auto_increment: u64,
        caller: &DdlCaller,
    ) -> Result<()> {
        self.wait_for_log(Reach::AllButEnds, caller)?;
        self.wait_for_prepared(name, caller)?;
        self.dict
            .truncate_table(name, auto_increment, caller.references)?;
        // Emptied it is in any case: whoever opens it next meets the error.
        if let Ok(table) = self.dict.open_table(name) {
            table.note_commit(self.now_s.load(Ordering::Relaxed));
        }
        Ok(())
    }

    /// Renames a table, durably.
    ///
    /// # Errors
    /// `Exists`, and as [`Engine::drop_table`]; nothing changed. Already renamed is no error.
    pub fn rename_table(&self, from: &str, to: &str, caller: &DdlCaller) -> Result<()> {
        self.rename_with_foreign(from, to, &Renaming::default(), caller)
    }

    /// As [`Engine::rename_table`], with what foreign keys have to know of it.
    ///
    /// # Errors
    /// Also `ForeignKey`, when the table does not fit one under its new name.
    pub fn rename_with_foreign(
        &self,
        from: &str,
        to: &str,
        how: &Renaming<'_>,
        caller: &DdlCaller,
    ) -> Result<()> {
        self.wait_for_log(Reach::AllButEnds, caller)?;
        match self.wait_for_prepared(from, caller) {
            Err(Error::NotFound) | Ok(()) => self.dict.rename_table(from, to, how),
            Err(e) => Err(e),
        }
    }

    /// Gives a table another definition, with what foreign keys have to know of it and, if given, other
    /// indexes; all or nothing of it, durably. No session uses the table.
    ///
    /// # Errors
    /// As [`Engine::drop_table`], and `ForeignKey`, `RowTooBig`; nothing changed.
    pub fn alter_table(
        &self,
        name: &str,
        definition: &[u8],
        alter: &AlterForeign,
        indexes: Option<IndexesAfter<'_>>,
        caller: &DdlCaller,
    ) -> Result<()> {
        self.wait_for_log(Reach::HalfReserve, caller)?;
        let Some(IndexesAfter { sources, build }) = indexes else {
            return self.dict.alter_table(name, definition, alter, None);
        };
        // What it has changed in an index that goes must not be missed when it is decided.
        self.wait_for_prepared(name, caller)?;
        let new_index = |source: &IndexSource| match source {
            IndexSource::Kept(number) => Ok(NewIndex::Kept(*number)),
            IndexSource::Built(number) => {
                let part = build.as_ref().and_then(|build| build.parts.get(*number));
                let part = part.ok_or_else(|| Error::Bug("an index that was not built".into()))?;
                Ok(NewIndex::Built(part.spec.clone(), part.open.clone()))
            }
        };
        let indexes = sources.iter().map(new_index).collect::<Result<Vec<_>>>()?;
        debug_assert!(build.as_ref().is_none_or(|build| build.is_filled()));
        self.dict
            .alter_table(name, definition, alter, Some(&indexes))?;
        if let Some(build) = build {
            build.set_taken();
        }
        Ok(())
    }

    /// Waits while a prepared transaction has changed the table, or is being committed.
    ///
    /// # Errors
    /// `LockTimeout`, `Interrupted`.
    pub fn wait_for_prepared(&self, name: &str, caller: &DdlCaller) -> Result<()> {
        let (mut since_us, mut wait, mut commits) = (None, None, None);
        let result = loop {
            let (table, indexes) = match self.dict.durable_indexes_of(name) {
                Ok(Some(found)) => found,
                Ok(None) => break Ok(()),
                Err(e) => break Err(e),
            };
            let Some(holder) = self.who_keeps(&indexes, &mut commits) else {
                break Ok(());
            };
            let now_us = time::now_us();
            let begun_us = *since_us.get_or_insert_with(|| {
                self.callbacks.lock_wait_begin(caller.thd);
                now_us
            });
            let wait_us = caller.wait_ms.saturating_mul(1000);
            let (holder, wait_us) = match holder {
                Holder::Known(thread) => (thread, wait_us),
                // Not for one that has nothing to do with it, whoever is not to wait at all.
                Holder::Perhaps(thread) => (thread, wait_us.max(PERHAPS_US)),
                Holder::Commit => (0, wait_us.max(COMMIT_US)),
            };
            if now_us - begun_us >= wait_us {
                break Err(Error::LockTimeout);
            }
            if self.callbacks.is_killed(caller.thd) || self.stop.load(Ordering::SeqCst) {
                break Err(Error::Interrupted);
            }
            let table = table.0;
            wait.get_or_insert_with(|| Sliced::new(Reason::TableLock, Of::Table { table, holder }))
                .slice(|| thread::sleep_ms(LOOK_MS));
        };
        drop(wait);
        if let Some(begun_us) = since_us {
            let waited_us = time::now_us() - begun_us;
            self.callbacks.lock_wait_end(caller.thd, waited_us);
        }
        result
    }

    /// Who keeps a table with these indexes from being changed. `commits`: those that had begun when nothing was
    /// prepared any more.
    fn who_keeps(&self, indexes: &[IndexId], commits: &mut Option<u64>) -> Option<Holder> {
        if let Some(holder) = self.prepared_holder(indexes) {
            *commits = None;
            return Some(holder);
        }
        // What was prepared a moment ago and is being committed by its xid is not seen by everybody yet, and
        // the caller may be about to read the table.
        let begun = *commits.get_or_insert_with(|| self.deciding.begun());
        (!self.deciding.have_ended(begun)).then_some(Holder::Commit)
    }

    /// The prepared transaction that has changed one of the indexes, or, if none is known to have, a connection whose slot
    /// is in use for long. Nobody's slot is waited for: he may wait for room without end, and who asks is to hear KILL.
    fn prepared_holder(&self, indexes: &[IndexId]) -> Option<Holder> {
        if ferrite_sync::mutant!("ddl.ignores_prepared") {
            return None;
        }
        // A table may have thousands of partitions, and the server thousands of connections.
        if !indexes.iter().any(|i| self.prepared_on.may_have(*i)) {
            return None;
        }
        let mut in_use = None;
        for slot in self.all_slots() {
            let thread = slot.owner.thread_id;
            match state_soon(&slot) {
                Some(state) => {
                    if state.is_prepared() && indexes.iter().any(|i| state.touched.has(*i)) {
                        return Some(Holder::Known(thread));
                    }
                }
                None => in_use = Some(Holder::Perhaps(thread)),
            }
        }
        in_use
    }
}

/// Who has the slot for a change has it for a few microseconds, unless he waits for room: then it is not to be had.
fn state_soon(slot: &TxnSlot) -> Option<MutexGuard<'_, SlotState>> {
    let look = |n: u32| {
        if n > 0 {
            thread::sleep_us(SLOT_LOOK_US);
        }
        slot.state.try_lock()
    };
    (0..SLOT_LOOKS).find_map(look)
}

impl Session {
    /// Begins to build indexes for the table, on which no other session has changes that are not
    /// committed. The session reads on from the present: what its snapshot was for has been read.
    ///
    /// # Errors
    /// As [`Engine::drop_table`]: a prepared transaction is waited for; `DiskFull`.
    pub fn begin_index_build(
        &mut self,
        table: &Arc<Table>,
        specs: Vec<IndexSpec>,
        caller: &DdlCaller,
    ) -> Result<IndexBuild> {
        // A table that is in use may have another name than when it was opened.
        let names = self.engine.dict.names_of_index(table.spec.indexes[0].id);
        let (name, _) = names.ok_or(Error::NotFound)?;
        let engine = self.engine.clone();
        engine.admission(&|| engine.callbacks.is_killed(caller.thd))?;
        self.engine.wait_for_prepared(&name, caller)?;
        self.close_snapshot();
        self.new_index_build(table.id(), specs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::touched::Touched;
    use crate::testing::{create, open};
    use crate::Callbacks;
    use ferrite_io::sim::SimStorage;
    use ferrite_sync::atomic::AtomicBool;

    /// A look at each connection for each of a table's partitions would take long.
    #[test]
    fn a_table_that_nothing_prepared_has_changed_is_no_reason_to_look_at_all_connections() {
        let engine = open(&SimStorage::new(2));
        create(&engine);
        let s = Session::new(&engine, 0, 1);
        let looked_at = s.txn.slot.state.lock();
        let e = engine.clone();
        let ddl = thread::spawn("ddl", move || {
            e.wait_for_prepared("d/t", &DdlCaller::default()).unwrap();
        });
        for _ in 0..1000 {
            if !ddl.is_finished() {
                thread::sleep_ms(5);
            }
        }
        let is_finished = ddl.is_finished();
        drop(looked_at);
        ddl.join().unwrap();
        assert!(is_finished, "it waits for a connection's slot");
        drop(s);
        engine.close().unwrap();
    }

    /// Somebody has his slot, and waits for room without end: who waits for a prepared transaction of another hears that
    /// his time is up, and the KILL.
    #[test]
    fn a_change_of_a_table_does_not_wait_for_a_slot() {
        let disk = SimStorage::new(3);
        let storage = Arc::new(disk.boot());
        let killed = Arc::new(Killed::default());
        let engine = Engine::open(crate::testing::config(), storage, killed.clone()).unwrap();
        let table = create(&engine);
        let mut s = Session::new(&engine, 0, 1);
        let dup = &mut crate::rows::write::DupInfo::default();
        s.insert_row(&table, Some(b"k"), b"\0", &[], false, dup)
            .unwrap();
        let other = Session::new(&engine, 0, 2);
        let mut touched = Touched::default();
        touched.add(table.tree(0).index());
        for is_prepared in [false, true] {
            if is_prepared {
                let xid = crate::Xid {
                    format_id: 1,
                    gtrid_len: 1,
                    data: b"x"[..].into(),
                };
                s.prepare(&xid).unwrap();
            } else {
                // As one that is prepared and has changed an index which shares its count.
                engine.prepared_on.add(&touched);
            }
            for wait_ms in [0, 300, u64::MAX] {
                let at_work = other.txn.slot.state.lock();
                let e = engine.clone();
                let caller = DdlCaller {
                    thd: 7,
                    wait_ms,
                    ..DdlCaller::default()
                };
                let ddl = thread::spawn("ddl", move || e.wait_for_prepared("d/t", &caller));
                thread::sleep_ms(500);
                let is_over = ddl.is_finished();
                killed.0.store(true, Ordering::SeqCst);
                for _ in 0..2000 {
                    if !ddl.is_finished() {
                        thread::sleep_ms(5);
                    }
                }
                let is_finished = ddl.is_finished();
                drop(at_work);
                killed.0.store(false, Ordering::SeqCst);
                let expected = match wait_ms {
                    u64::MAX => Error::Interrupted,
                    _ => Error::LockTimeout,
                };
                assert_eq!(ddl.join().unwrap(), Err(expected));
                assert!(is_finished && is_over == (wait_ms < u64::MAX));
            }
            if !is_prepared {
                // A slot that is in use for a moment is nothing to wait for.
                let at_once = DdlCaller::default();
                engine.wait_for_prepared("d/t", &at_once).unwrap();
                engine.prepared_on.remove(&touched);
            }
        }
        s.rollback().unwrap();
        drop((s, other, table));
        engine.close().unwrap();
    }

    /// Connection 7 is killed, or not.
    #[derive(Default)]
    struct Killed(AtomicBool);

    impl Callbacks for Killed {
        fn log(&self, _level: LogLevel, _text: &str) {}
        fn is_killed(&self, thd: usize) -> bool {
            thd == 7 && self.0.load(Ordering::SeqCst)
        }
        fn fatal(&self, text: &str) {
            panic!("{text}");
        }
    }

    /// Such a commit is not prepared any more and not yet seen: who reads the table then would miss it.
    #[test]
    fn a_change_of_a_table_waits_for_commits_by_xid_that_go_on() {
        let engine = open(&SimStorage::new(1));
        create(&engine);
        let done = Arc::new(AtomicBool::new(false));
        let going_on = engine.deciding.begin();
        let (e, d) = (engine.clone(), done.clone());
        let waits = thread::spawn("ddl", move || {
            e.wait_for_prepared("d/t", &DdlCaller::default()).unwrap();
            d.store(true, Ordering::SeqCst);
        });
        thread::sleep_ms(50);
        assert!(!done.load(Ordering::SeqCst), "it did not wait");
        drop(going_on);
        waits.join().unwrap();
        engine.close().unwrap();
    }
    /// It may wait for room in the log without end: who waits for it hears that his time is up, and the KILL.
    #[test]
    fn who_waits_for_a_commit_by_xid_hears_kill() {
        let killed = Arc::new(Killed::default());
        let storage = Arc::new(SimStorage::new(2).boot());
        let engine = Engine::open(crate::testing::config(), storage, killed.clone()).unwrap();
        create(&engine);
        let going_on = engine.deciding.begin();
        for (wait_ms, expected) in [(0, Error::LockTimeout), (u64::MAX, Error::Interrupted)] {
            let caller = DdlCaller {
                thd: 7,
                wait_ms,
                ..DdlCaller::default()
            };
            let e = engine.clone();
            let ddl = thread::spawn("ddl", move || e.wait_for_prepared("d/t", &caller));
            thread::sleep_ms(300);
            assert!(!ddl.is_finished(), "it did not wait");
            killed.0.store(wait_ms > 0, Ordering::SeqCst);
            crate::testing::until("it waits on", || ddl.is_finished());
            assert_eq!(ddl.join().unwrap(), Err(expected));
        }
        drop(going_on);
        engine.close().unwrap();
    }
}
