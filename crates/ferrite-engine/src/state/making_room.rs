//! Making room on a full disk: what is asked before each change, and what is done before one is refused.
//!
//! What was freed is made available first; then the backup and the oldest snapshots give way, one at a time: the next one
//! only if the page writer has looked at the room since the last one went, and found too little all the same. Whoever
//! lets one go notes that for the next one ([`MakingRoom`]).
//!
//! Rollbacks and readers that wait for a frame ask nobody for room: for them something gives way when dirty pages have
//! found none for a while (`give_way_for_pages`).
//!
//! Invariants: no wait here is deaf to KILL; nothing gives way to want of room but under `making_room`. Locking: that is
//! held by who makes room, for as long as that takes, and only tried by others.

use crate::state::engine::{Engine, IsKilled};
use ferrite_buffer::Pool;
use ferrite_sync::atomic::Ordering;
use ferrite_sync::waits::{Of, Reason, Sliced};
use ferrite_sync::{thread, time, MutexGuard};
use ferrite_types::{Error, Result};

/// After room could not be made on a full disk, and nothing was freed since, how long it is not
/// tried again, in us.
const RETRY_US: u64 = 500_000;

/// What makes room on a full disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum GivenWay {
    /// The backup that ran has ended.
    Backup,
    /// The oldest snapshot is dropped.
    Snapshot,
}

/// After something gave way it is not waited any longer for the page writer to look at the room, in us.
const LOOK_WAIT_US: u64 = 1_000_000;
/// The log is given so long for a checkpoint, and for new files, until the next thing gives way for its sake.
const LOG_WAIT_US: u64 = 100_000;

/// Between two looks of who waits, in ms.
const MOMENT_MS: u64 = 5;
/// Pages that could not be written for so long cost a backup and a snapshot, in us: before who waits for a frame gives up.
const PAGES_WITHOUT_ROOM_US: u64 = 500_000;
/// Why a backup is ended.
const WHY_BACKUP: &str = "the server's disk is full, and what the backup keeps is needed";

/// What those who make room, one at a time, leave to the next one.
#[derive(Default)]
pub(crate) struct MakingRoom {
    /// When it was tried in vain last, in us, and the bytes free and retired then.
    vain: Option<(u64, (u64, u64))>,
    /// Something has given way, and the page writer was asked whether that suffices.
    given: Option<Asked>,
}

/// A look at the room that was asked for.
#[derive(Clone, Copy)]
struct Asked {
    look: u64,
    at_us: u64,
}

impl Asked {
    fn now(pool: &Pool) -> Asked {
        Asked {
            look: pool.look_soon(),
            at_us: time::now_us(),
        }
    }

    /// May it be that there is room, and the page writer has not seen it yet?
    fn is_awaited(&self, pool: &Pool, deletes: bool) -> bool {
        let since_us = time::now_us().saturating_sub(self.at_us);
        match pool.refusal(deletes) {
            Some(_) => since_us < LOOK_WAIT_US && !pool.has_looked(self.look),
            // It is the log that lacks room.
            None => since_us < LOG_WAIT_US,
        }
    }
}

impl Engine {
    /// May rows be changed now?
    ///
    /// # Errors
    /// `DiskFull` while neither log nor store can grow, nor row versions be written out; `Interrupted` when the
    /// statement is killed that waits for room.
    #[inline]
    pub(crate) fn admission(&self, is_killed: IsKilled<'_>) -> Result<()> {
        self.admission_of(false, is_killed)
    }

    /// As [`Engine::admission`]; what `deletes` is let in where others are not.
    #[inline]
    pub(crate) fn admission_of(&self, deletes: bool, is_killed: IsKilled<'_>) -> Result<()> {
        if self.history_full.load(Ordering::Relaxed) {
            let text = "row versions of running transactions cannot be written to scratch files";
            return Err(Error::DiskFull(text.into()));
        }
        match self.room(deletes) {
            Err(Error::DiskFull(_)) => self.make_room(deletes, is_killed),
            other => other,
        }
    }

    fn room(&self, deletes: bool) -> Result<()> {
        self.log.admission()?;
        match self.pool.refusal(deletes) {
            None => Ok(()),
            Some(Error::DiskFull(text)) => Err(Error::DiskFull(text)),
            Some(other) => Err(Error::DiskFull(other.to_string())),
        }
    }

    /// Is it space that is missing? What gives way helps in no other case.
    fn lacks_space(&self, deletes: bool) -> bool {
        match self.log.admission() {
            Ok(()) => matches!(self.pool.refusal(deletes), Some(Error::DiskFull(_))),
            Err(e) => matches!(e, Error::DiskFull(_)),
        }
    }

    /// Before a change is refused for want of space, what was freed is made available: dropped
    /// pages are free once the record that says so is durable, log files are once a checkpoint
    /// does without them, and what the one does not need the other may have. Takes a fraction of
    /// a second, or as long as it takes to drop snapshots, and is done by one thread at a time.
    #[cold]
    pub(crate) fn make_room(&self, deletes: bool, is_killed: IsKilled<'_>) -> Result<()> {
        let seen = self.vain_attempts.load(Ordering::SeqCst);
        self.make_room_since(seen, deletes, is_killed)
    }

    /// Waits until nobody else makes room: the right to do so, and how the disk is full; None: there is room.
    /// `seen_attempts`: those that had failed when the caller asked. One that has failed since counts for all who
    /// waited for it: a hundred who try it one after the other would take minutes.
    fn turn_to_make_room(
        &self,
        (seen_attempts, deletes): (u64, bool),
        wait: &mut Sliced,
        is_killed: IsKilled<'_>,
    ) -> Result<Option<(MutexGuard<'_, MakingRoom>, Error)>> {
        loop {
            let turn = self.making_room.try_lock();
            // Somebody else may have made room meanwhile.
            let full = match self.room(deletes) {
                Ok(()) => return Ok(None),
                Err(Error::DiskFull(text)) => Error::DiskFull(text),
                Err(other) => return Err(other),
            };
            if self.vain_attempts.load(Ordering::SeqCst) != seen_attempts {
                return Err(full);
            }
            if let Some(making) = turn {
                return Ok(Some((making, full)));
            }
            wait_a_moment(wait, is_killed)?;
        }
    }

    fn make_room_since(
        &self,
        seen_attempts: u64,
        deletes: bool,
        is_killed: IsKilled<'_>,
    ) -> Result<()> {
        /// How often what the writer has made of it is looked at, and looks between checkpoints.
        const LOOKS: u32 = 40;
        const CHECKPOINT_LOOKS: u32 = 16;
        let mut wait = wait_for_room();
        let turn = self.turn_to_make_room((seen_attempts, deletes), &mut wait, is_killed)?;
        let Some((mut making, full)) = turn else {
            return Ok(());
        };
        let now = (self.store.free_bytes(), self.store.retired_bytes());
        if (making.vain).is_some_and(|(at, seen)| seen == now && time::now_us() - at < RETRY_US) {
            return Err(full);
        }
        let end = self.log.current_lsn();
        // Not waited for without an end: it may be the log's own space that is missing, and a
        // checkpoint flushes the log, too.
        self.log.request_flush(end);
        let (mut durable_looks, mut looks) = (0, 0);
        let (mut asked, mut gave_way) = (None, false);
        while looks < LOOKS {
            if self.log.durable_lsn() >= end {
                self.store.reclaim(self.log.durable_lsn());
                asked = asked.or_else(|| Some(Asked::now(&self.pool)));
                let again = durable_looks % CHECKPOINT_LOOKS == 0 || gave_way;
                if again && self.pool.refusal(deletes).is_some() {
                    // What is dirty needs room as long as it is.
                    self.pool.flush_below(end);
                }
                if again && self.log.admission().is_err() {
                    // A failure leaves things as they are; the message of interest is `full`.
                    let _ = self.checkpoint();
                    match gave_way {
                        true => self.give_back_some_space(),
                        false => self.give_back_space(),
                    }
                    self.log.prepare_now();
                    self.pool.flush_below(end);
                }
                durable_looks += 1;
            }
            let awaits_look = asked.is_some_and(|a: Asked| a.is_awaited(&self.pool, deletes));
            // One at each look of the writer: what the last one gave may do.
            let next_one =
                durable_looks > 1 && !awaits_look && self.lacks_space(deletes) && !is_killed();
            gave_way = next_one && self.let_go(&mut making, is_killed).is_some();
            if gave_way {
                asked = making.given;
            }
            self.pool.wake_writer();
            if self.room(deletes).is_ok() {
                making.vain = None;
                return Ok(());
            }
            wait_a_moment(&mut wait, is_killed)?;
            // While somebody else frees what a snapshot held, it is no vain attempt.
            looks += u32::from(!self.snapshots.frees() && !awaits_look);
        }
        let left = (self.store.free_bytes(), self.store.retired_bytes());
        making.vain = Some((time::now_us(), left));
        self.vain_attempts.fetch_add(1, Ordering::SeqCst);
        Err(full)
    }

    /// Tries what needs space in a file beside the store; on a full disk the backup and the oldest snapshot give
    /// way, and it is tried again, as long as the file system has more space for it each time. One thread at a
    /// time: who has waited tries before anything else gives way.
    ///
    /// # Errors
    /// What the last try says; `Interrupted` when the statement is killed that waits for room.
    pub(crate) fn with_room<T>(
        &self,
        is_killed: IsKilled<'_>,
        mut attempt: impl FnMut() -> Result<T>,
    ) -> Result<T> {
        let refused = |result: &Result<T>| matches!(result, Err(Error::DiskFull(_)));
        let first = attempt();
        if !refused(&first) {
            return first;
        }
        let mut wait = wait_for_room();
        let mut making = loop {
            match self.making_room.try_lock() {
                Some(making) => break making,
                None => wait_a_moment(&mut wait, is_killed)?,
            }
        };
        let mut last = attempt();
        while refused(&last) {
            let free = || self.storage.free_bytes().unwrap_or(0);
            let before = free();
            let freed_meanwhile = self.waits_for_what_a_snapshot_held(&mut wait, is_killed)?;
            let what = match freed_meanwhile {
                true => None,
                false => self.let_go(&mut making, is_killed),
            };
            if is_killed() {
                return Err(Error::Interrupted);
            }
            if what.is_none() && !freed_meanwhile {
                break;
            }
            self.give_back_some_space();
            last = attempt();
            // What a backup kept may be free in the store alone: a snapshot may have more.
            if refused(&last) && free() <= before && what == Some(GivenWay::Snapshot) {
                break;
            }
        }
        last
    }

    /// Ends the backup that runs, or, if there is none, drops the oldest snapshot: what has given way.
    fn let_go(&self, making: &mut MakingRoom, is_killed: IsKilled<'_>) -> Option<GivenWay> {
        let what = match self.end_backup(None, WHY_BACKUP) {
            true => Some(GivenWay::Backup),
            false => self.evict_for_room(is_killed).then_some(GivenWay::Snapshot),
        };
        if what.is_some() {
            self.store.reclaim(self.log.durable_lsn());
            making.given = Some(Asked::now(&self.pool));
        }
        what
    }

    /// Have dirty pages found no room for a while? `since_us`: since when the caller knows that they find none.
    pub(crate) fn pages_lack_room(&self, since_us: &mut Option<u64>) -> bool {
        if !self.pages_find_no_room() {
            *since_us = None;
            return false;
        }
        let now_us = time::now_us();
        let since_us = *since_us.get_or_insert(now_us);
        assert!(since_us <= now_us, "full since later than now");
        now_us - since_us >= PAGES_WITHOUT_ROOM_US
    }

    fn pages_find_no_room(&self) -> bool {
        // Not while all that is dirty is written, and there is merely no room for more of it.
        matches!(self.pool.why_pages_wait(), Some(Error::DiskFull(_)))
    }

    /// The right to let something go for dirty pages that find no room. None: there is room, or may be (something has
    /// given way, and the page writer has not looked since, or not for as long as is waited at first), or somebody else
    /// makes some, or the server ends: then who waits for a frame gives up.
    fn turn_of_pages(&self) -> Option<MutexGuard<'_, MakingRoom>> {
        let making = self.making_room.try_lock()?;
        let may_do = |given: Asked| {
            let since_us = time::now_us().saturating_sub(given.at_us);
            since_us < PAGES_WITHOUT_ROOM_US || !self.pool.has_looked(given.look)
        };
        let is_due = self.pages_find_no_room() && !making.given.is_some_and(may_do);
        (is_due && !self.is_ending()).then_some(making)
    }

    /// Do pages find no room still, when the page writer has looked once more? Somebody may have dropped a snapshot
    /// meanwhile for another reason. Waits for that look, a second at most. The caller has `making_room`.
    fn is_still_full(&self) -> bool {
        let asked = Asked::now(&self.pool);
        while asked.is_awaited(&self.pool, true) && !self.is_ending() {
            thread::sleep_ms(MOMENT_MS);
        }
        self.pool.has_looked(asked.look) && self.pages_find_no_room()
    }

    /// Dirty pages have found no room for a while: the backup ends. True if there is none, and a snapshot has to go instead
    /// ([`Engine::evict_for_pages`]), which takes long.
    pub(crate) fn end_backup_for_pages(&self) -> bool {
        let Some(mut making) = self.turn_of_pages() else {
            return false;
        };
        if self.backup.log_floor.kept_from().is_none() {
            return self.snapshots.count() > 0 && !self.snapshots.is_put_off();
        }
        if self.is_still_full() && self.end_backup(None, WHY_BACKUP) {
            making.given = Some(Asked::now(&self.pool));
        }
        false
    }

    /// The oldest snapshot goes, unless there is room now.
    pub(crate) fn evict_for_pages(&self) {
        if let Some(mut making) = self.turn_of_pages() {
            if self.is_still_full() {
                self.let_go(&mut making, &|| self.is_ending());
            }
        }
    }

    /// Waits while somebody else finds out what is free now that a snapshot is gone; false if nobody did.
    fn waits_for_what_a_snapshot_held(
        &self,
        wait: &mut Sliced,
        is_killed: IsKilled<'_>,
    ) -> Result<bool> {
        let frees = self.snapshots.frees();
        while self.snapshots.frees() {
            wait_a_moment(wait, is_killed)?;
        }
        Ok(frees)
    }
}

/// All that somebody waits until there is room on a full disk.
fn wait_for_room() -> Sliced {
    Sliced::new(Reason::DiskFull, Of::Nothing)
}

/// A part of it.
///
/// # Errors
/// `Interrupted`: killed.
fn wait_a_moment(wait: &mut Sliced, is_killed: IsKilled<'_>) -> Result<()> {
    if is_killed() {
        return Err(Error::Interrupted);
    }
    wait.slice(|| thread::sleep_ms(MOMENT_MS));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::dictionary::foreign::NewForeign;
    use crate::catalog::spec::{IndexSpec, TableSpec};
    use crate::ddl::DdlCaller;
    use crate::rows::write::DupInfo;
    use crate::state::callbacks::{Callbacks, LogLevel, SilentCallbacks};
    use crate::testing::{config, create, insert, open_with, three_snapshots, until};
    use crate::transaction::session::Session;
    use crate::Config;
    use ferrite_io::sim::{Fault, IoOp, SimStorage};
    use ferrite_sync::atomic::AtomicBool;
    use ferrite_sync::Arc;

    /// A database whose disk is full.
    fn full(seed: u64) -> (SimStorage, Arc<Engine>, Session) {
        full_with(seed, Arc::new(SilentCallbacks))
    }

    fn full_with(seed: u64, callbacks: Arc<dyn Callbacks>) -> (SimStorage, Arc<Engine>, Session) {
        let disk = SimStorage::new(seed);
        let engine = Engine::open(config(), Arc::new(disk.boot()), callbacks).unwrap();
        let t = create(&engine);
        let mut s = Session::new(&engine, 0, 1);
        disk.set_capacity(Some(disk.used_bytes() + (2 << 20)));
        for n in 0u64.. {
            let (key, dup) = (n.to_be_bytes(), &mut DupInfo::default());
            match s.insert_row(&t, Some(&key), &[0; 4000], &[], false, dup) {
                Err(Error::DiskFull(_)) => break,
                other => other.unwrap(),
            };
        }
        // Nor does what the page writer frees meanwhile make any room.
        disk.set_capacity(Some(0));
        (disk, engine, s)
    }

    /// Whoever waited while another thread tried to make room, in vain, does not try it again.
    #[test]
    fn a_vain_attempt_to_make_room_counts_for_those_who_waited() {
        let (disk, engine, mut s) = full(4);
        let attempts = || engine.vain_attempts.load(Ordering::SeqCst);
        assert!(attempts() > 0, "it was refused without an attempt");
        // What is free has changed since the last attempt.
        engine.making_room.lock().vain = Some((time::now_us(), (1, 1)));
        let before = attempts();
        let waited = engine.make_room_since(before - 1, false, &|| false);
        assert!(matches!(waited, Err(Error::DiskFull(_))), "{waited:?}");
        assert_eq!(attempts(), before, "who had waited tried again");
        assert!(engine.make_room_since(before, false, &|| false).is_err());
        assert_eq!(attempts(), before + 1, "who had not did not try");
        disk.set_capacity(None);
        s.rollback().unwrap();
        drop(s);
        engine.close().unwrap();
    }

    /// Whoever makes room may take long, dropping a snapshot: who waits for it hears KILL.
    #[test]
    fn who_waits_for_another_to_make_room_is_killed() {
        let (disk, engine, mut s) = full(5);
        let killed = Arc::new(AtomicBool::new(false));
        let attempts = engine.vain_attempts.load(Ordering::SeqCst);
        let at_work = engine.making_room.lock();
        let (of_waiter, is_killed) = (engine.clone(), killed.clone());
        let waiter = thread::spawn("waiter", move || {
            let is_killed = || is_killed.load(Ordering::SeqCst);
            let row = of_waiter.make_room_since(attempts, false, &is_killed);
            let file = of_waiter.with_room(&is_killed, || -> Result<()> {
                Err(Error::DiskFull("a file beside the store".into()))
            });
            (row, file)
        });
        thread::sleep_ms(50);
        assert!(!waiter.is_finished(), "it did not wait");
        killed.store(true, Ordering::SeqCst);
        until("deaf to KILL", || waiter.is_finished());
        let (row, file) = waiter.join().unwrap();
        assert_eq!(
            (row, file),
            (Err(Error::Interrupted), Err(Error::Interrupted))
        );
        drop(at_work);
        disk.set_capacity(None);
        s.rollback().unwrap();
        drop(s);
        engine.close().unwrap();
    }

    /// Dirty pages have found no room for long, beside who makes some: nothing goes for them as long as that one is at it,
    /// nor before the page writer has looked whether what that one has let go suffices.
    #[test]
    fn pages_without_room_cost_nothing_before_the_writer_has_looked() {
        let disk = SimStorage::new(7);
        let settings = Config {
            write_threads: 1,
            ..config()
        };
        let engine = open_with(&disk, settings);
        let (t, mut s) = three_snapshots(&engine);
        let left = || engine.snapshots.count();
        (0..100).for_each(|n| insert(&mut s, &t, n << 8 | 9, 9));
        s.commit(false).unwrap();
        let making = engine.making_room.lock();
        disk.inject_lasting(Fault::Full, "store.");
        let end = engine.log.current_lsn();
        until("all can be written", || {
            engine.pool.flush_below(end);
            engine.pages_find_no_room()
        });
        thread::sleep_ms(3 * PAGES_WITHOUT_ROOM_US / 1000);
        assert_eq!(left(), 3, "beside who makes room");
        let (hangs, goes_on) = (
            Arc::new(AtomicBool::new(false)),
            Arc::new(AtomicBool::new(false)),
        );
        let (hang, go_on) = (hangs.clone(), goes_on.clone());
        disk.set_hook(Some(Arc::new(move |io| {
            if io.op == IoOp::Write && io.name.starts_with("store.") {
                hang.store(true, Ordering::SeqCst);
                while !go_on.load(Ordering::SeqCst) {
                    thread::sleep_ms(1);
                }
            }
            Ok(())
        })));
        until("nothing is written", || hangs.load(Ordering::SeqCst));
        drop(making);
        thread::sleep_ms(3 * PAGES_WITHOUT_ROOM_US / 1000);
        assert_eq!(left(), 3, "somebody may have made room meanwhile");
        let mut making = engine.making_room.lock();
        let what = engine.let_go(&mut making, &|| false);
        assert_eq!(what, Some(GivenWay::Snapshot));
        drop(making);
        thread::sleep_ms(3 * PAGES_WITHOUT_ROOM_US / 1000);
        assert_eq!(left(), 2, "nobody has looked whether it suffices");
        goes_on.store(true, Ordering::SeqCst);
        until("nothing gives way", || left() < 2);
        disk.set_hook(None);
        disk.clear_faults();
        until("it is refused still", || {
            engine.admission(&|| false).is_ok()
        });
        drop((s, t));
        engine.close().unwrap();
        engine.check_space().unwrap();
    }

    /// Connection 7 may be killed.
    #[derive(Default)]
    struct Killer(AtomicBool);

    impl Callbacks for Killer {
        fn log(&self, _level: LogLevel, _text: &str) {}
        fn is_killed(&self, thd: usize) -> bool {
            thd == 7 && self.0.load(Ordering::SeqCst)
        }
        fn fatal(&self, text: &str) {
            panic!("{text}");
        }
    }

    /// DDL that makes something new waits for it as a change of rows does, and hears KILL as that does.
    #[test]
    fn ddl_that_waits_for_another_to_make_room_is_killed() {
        let killer = Arc::new(Killer::default());
        let (disk, engine, mut s) = full_with(6, killer.clone());
        let at_work = engine.making_room.lock();
        let changes: [fn(&Engine, &DdlCaller) -> Result<()>; 2] = [
            |engine, by| {
                let spec = TableSpec::new("d/u", vec![IndexSpec::new("PRIMARY", true, 1)]);
                let made = engine.create_table(spec, 1, NewForeign::default(), by);
                made.map(drop)
            },
            |engine, by| engine.redefine_table("d/t", b"other", by),
        ];
        for change in changes {
            let same = engine.clone();
            let waiter = thread::spawn("ddl", move || {
                let by = DdlCaller {
                    thd: 7,
                    ..DdlCaller::default()
                };
                change(&same, &by)
            });
            thread::sleep_ms(50);
            assert!(!waiter.is_finished(), "it did not wait");
            killer.0.store(true, Ordering::SeqCst);
            until("deaf to KILL", || waiter.is_finished());
            assert_eq!(waiter.join().unwrap(), Err(Error::Interrupted));
            killer.0.store(false, Ordering::SeqCst);
        }
        drop(at_work);
        disk.set_capacity(None);
        s.rollback().unwrap();
        assert!(!engine.dict.exists("d/u"));
        drop(s);
        engine.close().unwrap();
    }
}
