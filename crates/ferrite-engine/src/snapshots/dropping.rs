//! Snapshots go: who drops one, what is free then, and which give way to the limit and to a full disk.
//!
//! What is on disk if we die: the snapshot, or files without a manifest: no blob of it is free before the manifest's
//! end is durable ([`end`]). If that fails midway, it stays in the list, half gone (`state/snapshots.rs`), and comes to
//! its end before anything else is dropped for its space.
//!
//! Locking: the claim (`state/snapshots.rs`), then leaves. What the others hold is read with it, many seconds of a large
//! database.

use super::{files_of, manifest, read_runs, remove_files, Manifest};
use crate::state::callbacks::LogLevel;
use crate::state::engine::{Engine, IsKilled};
use crate::state::snapshots::{Freed, KeptInfo};
use ferrite_io::{LockGuard, Storage};
use ferrite_store::StillHeld;
use ferrite_sync::atomic::Ordering;
use ferrite_sync::{kill_point, thread, Arc};
use ferrite_types::{Error, Result};
use std::cell::Cell;

/// No other process opens the snapshot until the guard is dropped.
///
/// # Errors
/// `InUse`: one has it open. `Io`.
pub(super) fn alone(from: &dyn Storage, name: &str) -> Result<Vec<LockGuard>> {
    let mut guards = Vec::new();
    for head in [manifest::NAME, manifest::LOST] {
        match from.lock_file(head, true) {
            Ok(Some(guard)) => guards.push(guard),
            Ok(None) => {
                let text = format!("snapshot {name} is open in another server");
                return Err(Error::InUse(text));
            }
            Err(Error::NotFound) => {}
            Err(e) => return Err(e),
        }
    }
    Ok(guards)
}

/// It is no snapshot any more, durably: then what it held may be free. The caller is alone with it.
pub(super) fn end(from: &dyn Storage) -> Result<()> {
    for head in [manifest::NAME, manifest::LOST] {
        if from.exists(head)? {
            from.remove(head)?;
        }
    }
    kill_point!("snapshot.drop_begun");
    from.sync_dir()?;
    kill_point!("snapshot.drop_durable");
    debug_assert!(!from.exists(manifest::NAME)?, "it is not gone");
    Ok(())
}

/// Has it a manifest, of whatever name? One that cannot be looked for may be there.
fn has_manifest(from: &dyn Storage) -> bool {
    let heads = [manifest::NAME, manifest::LOST];
    heads.iter().any(|head| from.exists(head) != Ok(false))
}

impl Engine {
    /// Drops a snapshot: what it alone holds is free.
    ///
    /// # Errors
    /// `NotFound`; `InUse`; `Io`.
    pub fn drop_snapshot(&self, name: &str) -> Result<()> {
        self.drop_snapshot_of(name, 0)
    }

    /// As [`Engine::drop_snapshot`], and a KILL of connection `thd` (0: of none) ends the wait for others; if it comes later, it
    /// leaves it to a thread to find out what is free now.
    ///
    /// # Errors
    /// Also `Interrupted` by KILL: it is there still.
    pub fn drop_snapshot_of(&self, name: &str, thd: usize) -> Result<()> {
        let is_killed = || self.is_killed(thd);
        let _claim = self.snapshots.claim(&is_killed)?;
        self.drop_claimed(name, &is_killed)
    }

    /// The caller has the claim. Killed, it leaves it to a thread, or to who makes room next, to find out
    /// what is free now.
    fn drop_claimed(&self, name: &str, is_killed: IsKilled<'_>) -> Result<()> {
        if self.snapshots.find(name).is_none() {
            return Err(Error::NotFound);
        }
        let from = files_of(&self.storage, name);
        let _alone = alone(&*from, name)?;
        let early = ferrite_sync::mutant!("snapshot.freed_too_early");
        if early {
            self.hold_rest(name, &|| false);
            // Others write over what was freed.
            thread::sleep_ms(50);
        }
        let going = self.snapshots.begin_drop(name);
        if let Err(e) = end(&*from) {
            if !has_manifest(&*from) {
                self.snapshots.note_half_gone(name);
            }
            return Err(e);
        }
        self.snapshots.remove(name);
        drop(going);
        if !early {
            self.snapshots.note_unfreed(name);
            self.hold_rest(name, is_killed);
        }
        // What stays goes at the next start.
        let _ = remove_files(&*from);
        self.housekeeping.set();
        Ok(())
    }

    /// The manifest of one that was being taken could not be written, or not be made durable: then it may be there after
    /// a crash, and what it holds is not free before it is sure not to be. Until then it counts as half gone. The store
    /// holds what it holds; the caller has the claim.
    pub(super) fn take_back(&self, info: KeptInfo) {
        let name = info.name.clone();
        self.snapshots.add(info);
        self.snapshots.note_half_gone(&name);
        // If that fails the thread tries it again, and tells.
        let taken_back = self.drop_claimed(&name, &|| false);
        debug_assert!(taken_back.is_err() || self.snapshots.find(&name).is_none());
    }

    /// The store holds what the snapshots but that one hold. That takes a look at all of their runs, many seconds of
    /// a large database: if the caller is killed meanwhile, the store holds what it held. The caller has the claim.
    fn hold_rest(&self, gone: &str, is_killed: IsKilled<'_>) {
        let freed = || self.has_held_rest(gone, is_killed);
        self.snapshots.free(freed);
    }

    fn has_held_rest(&self, gone: &str, is_killed: IsKilled<'_>) -> Freed {
        let mut rest = StillHeld::default();
        // Otherwise it is not among them any more, and one that has its name is another.
        let early = ferrite_sync::mutant!("snapshot.freed_too_early");
        for info in self.snapshots.all() {
            if (early && info.name == gone) || !info.lost.is_empty() {
                continue;
            }
            if is_killed() {
                return Freed::Interrupted;
            }
            let from = files_of(&self.storage, &info.name);
            match Manifest::read(&*from).and_then(|m| read_runs(&*from, &m)) {
                Ok(runs) => rest.add(&runs),
                Err(e) => {
                    let text = format!(
                        "snapshot {gone} is dropped, but its space is not free before a restart, or until this can be \
                         read: of snapshot {} it is not known what it holds: {e}",
                        info.name
                    );
                    if self.snapshots.is_news(&text) {
                        self.callbacks.log(LogLevel::Warning, &text);
                    }
                    return Freed::Unknown;
                }
            }
        }
        self.store.hold_only(&rest);
        Freed::All
    }

    /// Goes on where somebody was killed, or where dropping one has failed midway; true if there was something. The
    /// caller has the claim.
    pub(super) fn hold_rest_at_last(&self, is_killed: IsKilled<'_>) -> bool {
        if self.snapshots.half_gone().is_some() {
            // That frees what others have left, too.
            self.end_half_gone(is_killed);
            return true;
        }
        let gone = self.snapshots.unfreed();
        if let Some(gone) = &gone {
            self.hold_rest(gone, is_killed);
        }
        gone.is_some()
    }

    /// The caller has the claim.
    fn end_half_gone(&self, is_killed: IsKilled<'_>) {
        while let Some(name) = self.snapshots.half_gone() {
            if let Err(e) = self.drop_claimed(&name, is_killed) {
                let text = format!(
                    "snapshot {name} is dropped, but not for good, nor is its space free: {e}"
                );
                if self.snapshots.is_news(&text) {
                    self.callbacks.log(LogLevel::Warning, &text);
                }
                self.snapshots.put_off();
                return;
            }
            let text = format!("snapshot {name} is dropped for good");
            self.callbacks.log(LogLevel::Note, &text);
        }
    }

    /// Called again and again: starts a thread that frees what somebody who was killed has left, ends what is half gone,
    /// and drops the oldest snapshots as long as all take more than they may; and the oldest one if it is to go
    /// `for_pages` that find no room. For each all runs of the others are read, which takes as long as the database is
    /// large: nobody waits for it but a shutdown, which it hears.
    pub(crate) fn look_after_snapshots(self: &Arc<Self>, for_pages: bool) {
        let is_due = self.snapshots.is_unfinished() || self.snapshot_bytes_beyond().is_some();
        if !is_due && !for_pages {
            return;
        }
        if self.snapshots.is_put_off() {
            return;
        }
        // Who ends the threads says so first.
        let mut threads = self.threads.lock();
        if self.stopping() || !self.snapshots.begin_looking_after() {
            return;
        }
        let engine = self.clone();
        threads.retain(|thread| !thread.is_finished());
        let started = thread::try_spawn("ferrite-snaps", move || {
            engine.free_what_snapshots_held();
            engine.evict_snapshots();
            if for_pages {
                engine.evict_for_pages();
            }
            engine.snapshots.end_looking_after();
        });
        match started {
            Some(started) => threads.push(started),
            // The next look tries again.
            None => self.snapshots.end_looking_after(),
        }
    }

    /// What somebody who was killed has left is freed, and what is half gone goes, unless the database is closed meanwhile,
    /// or somebody waits for the claim: dropping the one that cannot be read must not wait for what will not be known.
    fn free_what_snapshots_held(&self) {
        if !self.snapshots.is_unfinished() {
            return;
        }
        if let Some(_claim) = self.snapshots.try_claim() {
            let ends = Cell::new(false);
            self.hold_rest_at_last(&|| {
                ends.set(self.stopping() || self.snapshots.is_awaited());
                ends.get()
            });
            let is_left = ends.get() || self.snapshots.is_put_off();
            debug_assert!(is_left || !self.snapshots.is_unfinished());
        }
    }

    /// How much all snapshots take, if that is more than they may, and what they may; in bytes.
    fn snapshot_bytes_beyond(&self) -> Option<(u64, u64)> {
        let most = self.snapshots.max_bytes.load(Ordering::Relaxed);
        if most == 0 || self.snapshots.count() == 0 {
            return None;
        }
        let bytes = self.snapshot_bytes();
        (bytes > most).then_some((bytes, most))
    }

    /// Drops the oldest snapshots as long as all take more than they may. It lets go of the claim between two of them, and amid
    /// one it gives way to who waits for it: the rest follows when it is looked for the next time.
    fn evict_snapshots(&self) {
        let ends = Cell::new(false);
        let gives_way = || {
            ends.set(ends.get() || self.stopping() || self.snapshots.is_awaited());
            ends.get()
        };
        while !gives_way() && self.evict_one_beyond(&gives_way) {}
    }

    /// False: they take no more than they may, or nothing can be done about it now.
    fn evict_one_beyond(&self, gives_way: IsKilled<'_>) -> bool {
        if self.snapshots.is_put_off() || self.snapshot_bytes_beyond().is_none() {
            return false;
        }
        let Some(_claim) = self.snapshots.try_claim() else {
            return false;
        };
        // What is left to be freed must not count any more: else the next one would go for its sake.
        if self.hold_rest_at_last(gives_way) {
            return true;
        }
        let Some((bytes, most)) = self.snapshot_bytes_beyond() else {
            return false;
        };
        let why = format!(
            "all take {} MiB, more than ferrite_snapshot_max_bytes ({} MiB) allows",
            bytes >> 20,
            most >> 20
        );
        self.evict_oldest(&why, gives_way)
    }

    /// On a full disk: drops the oldest snapshot, or frees at last what the last one held; false if there is none, or
    /// nothing would be free.
    pub(crate) fn evict_for_room(&self, is_killed: IsKilled<'_>) -> bool {
        if self.snapshots.count() == 0 || self.snapshots.is_put_off() {
            return false;
        }
        let Some(_claim) = self.snapshots.try_claim() else {
            return false;
        };
        match self.hold_rest_at_last(is_killed) {
            true => !self.snapshots.is_put_off(),
            false => self.evict_oldest("the server's disk is full", is_killed),
        }
    }

    /// The caller has the claim.
    fn evict_oldest(&self, why: &str, is_killed: IsKilled<'_>) -> bool {
        assert!(!why.is_empty(), "dropped for no reason");
        let mut fails = false;
        for KeptInfo { name, .. } in self.snapshots.all() {
            let result = self.drop_claimed(&name, is_killed);
            let fault = match &result {
                Ok(()) => None,
                // It goes when it is closed.
                Err(Error::InUse(_)) => continue,
                Err(e) => Some(format!("snapshot {name} cannot be dropped ({e})")),
            };
            let Some(fault) = fault else {
                let text = format!("snapshot {name} was dropped: {why}");
                self.callbacks.log(LogLevel::Warning, &text);
                self.snapshots.evicted.inc();
                return true;
            };
            if self.snapshots.is_news(&fault) {
                self.callbacks
                    .log(LogLevel::Warning, &format!("{fault}: {why}"));
            }
            fails = true;
            if self.snapshots.half_gone().is_some() {
                // Nothing of the next one would be free.
                break;
            }
            // The next one may be dropped all the same.
        }
        if fails {
            self.snapshots.put_off();
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::table::Table;
    use crate::snapshots::ServerState;
    use crate::state::callbacks::Callbacks;
    use crate::testing::{config, insert, open, open_with, three_snapshots, until, Heard};
    use crate::transaction::session::Session;
    use crate::Config;
    use ferrite_io::sim::{Fault, IoOp, SimStorage};
    use ferrite_sync::atomic::AtomicBool;
    use ferrite_sync::Mutex;

    fn with_three_snapshots(disk: &SimStorage) -> (Arc<Engine>, Arc<Table>, Session) {
        let engine = open(disk);
        let (t, s) = three_snapshots(&engine);
        (engine, t, s)
    }

    /// What the snapshots hold takes long to be read: checkpoints do not wait for that.
    #[test]
    fn checkpoints_go_on_while_it_is_found_out_what_is_free() {
        let disk = SimStorage::new(7);
        let (engine, t, mut s) = with_three_snapshots(&disk);
        let (is_read, goes_on) = (
            Arc::new(AtomicBool::new(false)),
            Arc::new(AtomicBool::new(false)),
        );
        let (read, go_on) = (is_read.clone(), goes_on.clone());
        disk.set_hook(Some(Arc::new(move |io| {
            if io.op == IoOp::Read && io.name == "snapshot.c.held" {
                read.store(true, Ordering::SeqCst);
                while !go_on.load(Ordering::SeqCst) {
                    thread::sleep_ms(1);
                }
            }
            Ok(())
        })));
        assert!(engine.evict_for_room(&|| true));
        until("nobody frees it", || is_read.load(Ordering::SeqCst));
        let checkpoint = || engine.checkpoint_lsn.load(Ordering::SeqCst);
        let (before, mut rows) = (checkpoint(), 0);
        until("no checkpoint comes", || {
            (0..100).for_each(|n| insert(&mut s, &t, (1 << 40) + rows + n, 9));
            s.commit(false).unwrap();
            rows += 100;
            checkpoint() > before
        });
        assert!(engine.snapshots.unfreed().is_some());
        goes_on.store(true, Ordering::SeqCst);
        until("it is not freed", || engine.snapshots.unfreed().is_none());
        disk.set_hook(None);
        drop((s, t));
        engine.close().unwrap();
    }

    /// Pages cannot be written, and it is not for want of space: no snapshot goes for that.
    #[test]
    fn an_error_of_the_disk_costs_no_snapshots() {
        let disk = SimStorage::new(9);
        let (engine, t, mut s) = with_three_snapshots(&disk);
        disk.inject_lasting(Fault::FailWrite, "store.");
        insert(&mut s, &t, 1 << 40, 9);
        s.commit(false).unwrap();
        let end = engine.log.current_lsn();
        until("all can be written", || {
            engine.pool.flush_below(end);
            engine.pool.write_failure().is_some()
        });
        let refused = engine.admission(&|| false);
        assert!(matches!(refused, Err(Error::DiskFull(_))), "{refused:?}");
        assert_eq!(engine.snapshots.all().len(), 3);
        disk.clear_faults();
        until("it is refused still", || {
            engine.admission(&|| false).is_ok()
        });
        drop((s, t));
        engine.close().unwrap();
    }

    /// What one holds cannot be read: its space is not known to be free, nor would that of the next one be. The limit
    /// and a full disk cost one snapshot, and not all of them.
    #[test]
    fn one_that_cannot_be_read_costs_no_others() {
        let disk = SimStorage::new(8);
        let (engine, t, s) = with_three_snapshots(&disk);
        disk.set_hook(Some(Arc::new(|io| match io.name == "snapshot.c.held" {
            true => Err(Error::Io("bad sector".into())),
            false => Ok(()),
        })));
        let left = || engine.snapshots.all().len();
        engine.snapshots.max_bytes.store(1, Ordering::SeqCst);
        until("none is dropped", || engine.snapshots.is_put_off());
        assert_eq!(left(), 2);
        for _ in 0..5 {
            assert!(!engine.evict_for_room(&|| false));
            engine.evict_snapshots();
        }
        assert_eq!((left(), engine.snapshots.unfreed()), (2, Some("a".into())));
        engine.snapshots.max_bytes.store(0, Ordering::SeqCst);
        disk.set_hook(None);
        engine.snapshots.put_off_no_longer();
        until("it is not freed", || engine.snapshots.unfreed().is_none());
        assert_eq!((left(), engine.snapshots.unfreed()), (2, None));
        drop((s, t));
        engine.close().unwrap();
        engine.check_space().unwrap();
    }

    /// The directory cannot be synced amid dropping one, for once: its manifest is gone, but perhaps not for good. Nothing
    /// of the others would be free, so none goes before that one has come to its end, which the engine sees to.
    #[test]
    fn one_that_is_half_dropped_goes_before_any_other() {
        let disk = SimStorage::new(10);
        let (engine, t, s) = with_three_snapshots(&disk);
        engine.flush_log();
        engine.store.reclaim(engine.log.durable_lsn());
        let kept = engine.store.kept_bytes();
        let names = || {
            let mut all = engine.snapshots.all();
            all.drain(..).map(|k| k.name).collect::<Vec<_>>()
        };
        let fails_once = |name: &'static str| {
            let (files, has_failed) = (disk.boot(), AtomicBool::new(false));
            let mine = std::thread::current().id();
            disk.set_hook(Some(Arc::new(move |io| {
                // Not that of a checkpoint.
                let is_mine = std::thread::current().id() == mine;
                let is_it = is_mine && io.op == IoOp::SyncDir && !files.exists(name)?;
                match is_it && !has_failed.swap(true, Ordering::SeqCst) {
                    true => Err(Error::Shortage("too many open files".into())),
                    false => Ok(()),
                }
            })));
        };
        fails_once("snapshot.a.manifest");
        assert!(!engine.evict_for_room(&|| false));
        assert_eq!(names(), ["a", "b", "c"], "others went for nothing");
        assert!(engine.snapshots.is_put_off() && engine.snapshots.unfreed().is_none());
        let lost: Vec<bool> = (engine.kept_snapshots().iter())
            .map(|k| !k.lost.is_empty())
            .collect();
        assert_eq!(lost, [true, false, false]);
        assert_eq!(engine.store.kept_bytes(), kept, "it is free too soon");
        engine.snapshots.put_off_no_longer();
        until("it does not go", || !engine.snapshots.is_unfinished());
        assert_eq!(names(), ["b", "c"]);
        let of_two = engine.store.kept_bytes();
        assert!(of_two < kept, "{of_two} bytes of {kept} are kept");
        // Nobody needs to do more if it was a person who dropped one.
        fails_once("snapshot.b.manifest");
        let dropped = engine.drop_snapshot("b");
        assert!(matches!(dropped, Err(Error::Shortage(_))), "{dropped:?}");
        until("it does not go", || names() == ["c"]);
        until("it is not freed", || !engine.snapshots.is_unfinished());
        assert!(engine.store.kept_bytes() < of_two);
        disk.set_hook(None);
        drop((s, t));
        engine.close().unwrap();
        engine.check_space().unwrap();
    }

    /// The manifest of a snapshot cannot be written, and it cannot be found out what is free then: it is when it can.
    #[test]
    fn what_one_that_could_not_be_taken_would_hold_is_free() {
        let disk = SimStorage::new(11);
        let (engine, t, mut s) = with_three_snapshots(&disk);
        for name in ["a", "b"] {
            engine.drop_snapshot(name).unwrap();
        }
        let of_c = engine.store.kept_bytes();
        disk.set_hook(Some(Arc::new(|io| match io.name {
            "snapshot.c.held" => Err(Error::Io("bad sector".into())),
            "snapshot.d.manifest.new" => Err(Error::DiskFull("no space".into())),
            _ => Ok(()),
        })));
        let mut job = engine.begin_snapshot("d").unwrap();
        job.fix();
        let taken = job.finish(&ServerState::default());
        assert!(matches!(taken, Err(Error::DiskFull(_))), "{taken:?}");
        assert_eq!(engine.snapshots.unfreed(), Some("d".into()));
        for n in 0..100 {
            insert(&mut s, &t, n << 8 | 7, 7);
        }
        s.commit(false).unwrap();
        engine.checkpoint().unwrap();
        engine
            .pool
            .flush_all_below(engine.log.current_lsn())
            .unwrap();
        engine.flush_log();
        engine.store.reclaim(engine.log.durable_lsn());
        assert!(engine.store.kept_bytes() > of_c, "it is held");
        disk.set_hook(None);
        engine.snapshots.put_off_no_longer();
        until("it is not freed", || engine.snapshots.unfreed().is_none());
        engine.drop_snapshot("c").unwrap();
        assert_eq!(engine.store.kept_bytes(), 0);
        drop((s, t));
        engine.close().unwrap();
        engine.check_space().unwrap();
    }

    /// The thread that drops reads what a snapshot holds until somebody waits to drop another one, and finds no limit then: one
    /// round is enough. Gives what it has read.
    fn held_until_another_is_dropped(
        disk: &SimStorage,
        engine: &Arc<Engine>,
    ) -> Arc<Mutex<Vec<String>>> {
        let reads = Arc::new(Mutex::new(Vec::new()));
        let (read, reader) = (reads.clone(), engine.clone());
        disk.set_hook(Some(Arc::new(move |io| {
            let is_held = io.op == IoOp::Read && io.name.ends_with(".held");
            if is_held && std::thread::current().name() == Some("ferrite-snaps") {
                read.lock().push(io.name.to_owned());
                reader.snapshots.max_bytes.store(0, Ordering::SeqCst);
                until("nobody drops another one", || reader.snapshots.is_awaited());
            }
            Ok(())
        })));
        reads
    }

    /// It takes long to find out what is free, as a disk that is about to fail reads: who drops another one does not wait
    /// until all is read.
    #[test]
    fn who_drops_one_does_not_wait_until_all_is_read() {
        let disk = SimStorage::new(13);
        let (engine, t, s) = with_three_snapshots(&disk);
        let reads = held_until_another_is_dropped(&disk, &engine);
        assert!(engine.evict_for_room(&|| true));
        until("nobody frees it", || !reads.lock().is_empty());
        engine.drop_snapshot("c").unwrap();
        assert_eq!(*reads.lock(), ["snapshot.b.held"], "it went on");
        disk.set_hook(None);
        assert!(!engine.snapshots.is_unfinished());
        drop((s, t));
        engine.close().unwrap();
        engine.check_space().unwrap();
    }

    /// Who takes one does not drop others for the limit's sake, which takes as long as the database is large.
    #[test]
    fn who_takes_one_drops_no_others() {
        let disk = SimStorage::new(14);
        let manual = Config {
            manual_background: true,
            ..config()
        };
        let engine = open_with(&disk, manual);
        let (t, s) = three_snapshots(&engine);
        engine.snapshots.max_bytes.store(1, Ordering::SeqCst);
        let mut job = engine.begin_snapshot("d").unwrap();
        job.fix();
        job.finish(&ServerState::default()).unwrap();
        assert_eq!(engine.snapshots.count(), 4, "it drops others");
        // As the thread does it.
        engine.evict_snapshots();
        let evicted = engine.snapshots.evicted.get();
        assert_eq!((engine.snapshots.count(), evicted), (0, 4));
        drop((s, t));
        engine.close().unwrap();
        engine.check_space().unwrap();
    }

    /// Nor does who drops one by hand wait until all others have gone for the limit's sake.
    #[test]
    fn the_limit_gives_way_to_who_drops_one() {
        let disk = SimStorage::new(15);
        let (engine, t, s) = with_three_snapshots(&disk);
        let reads = held_until_another_is_dropped(&disk, &engine);
        engine.snapshots.max_bytes.store(1, Ordering::SeqCst);
        until("none is dropped", || !reads.lock().is_empty());
        engine.drop_snapshot("c").unwrap();
        assert_eq!(*reads.lock(), ["snapshot.b.held"], "it went on");
        disk.set_hook(None);
        let left = engine.snapshots.all();
        assert_eq!((left.len(), &*left[0].name), (1, "b"));
        drop((s, t, left));
        engine.close().unwrap();
        engine.check_space().unwrap();
    }

    /// It takes long until others are done, and to find out what is free: who takes a snapshot, or drops one, hears KILL.
    #[test]
    fn who_waits_for_others_hears_kill() {
        let disk = SimStorage::new(16);
        let storage = Arc::new(disk.boot());
        let engine = Engine::open(config(), storage, Arc::new(Killed)).unwrap();
        let (t, s) = three_snapshots(&engine);
        {
            let _claim = engine.snapshots.claim(&|| false).unwrap();
            let begun = engine.begin_snapshot_of("d", KILLED).map(drop);
            assert_eq!(begun, Err(Error::Interrupted));
            let dropped = engine.drop_snapshot_of("a", KILLED);
            assert_eq!(dropped, Err(Error::Interrupted));
            engine.snapshots.note_unfreed("z");
            engine.snapshots.put_off();
        }
        let begun = engine.begin_snapshot_of("d", KILLED).map(drop);
        assert_eq!(begun, Err(Error::Interrupted));
        assert!(engine.snapshots.unfreed().is_some(), "it looked through");
        assert_eq!(engine.snapshots.count(), 3);
        // It goes, and what is free then is found out by others.
        engine.drop_snapshot_of("a", KILLED).unwrap();
        engine.snapshots.put_off_no_longer();
        until("nobody frees it", || !engine.snapshots.is_unfinished());
        drop((s, t));
        engine.close().unwrap();
        engine.check_space().unwrap();
    }

    /// A connection that is killed.
    const KILLED: usize = 7;
    struct Killed;

    impl Callbacks for Killed {
        fn log(&self, _level: LogLevel, _text: &str) {}
        fn is_killed(&self, thd: usize) -> bool {
            thd == KILLED
        }
        fn fatal(&self, text: &str) {
            panic!("{text}");
        }
    }

    /// Several cannot be dropped: each is told once, however often it is tried.
    #[test]
    fn each_that_cannot_be_dropped_is_told_once() {
        let disk = SimStorage::new(12);
        let heard = Arc::new(Heard::default());
        let engine = Engine::open(config(), Arc::new(disk.boot()), heard.clone()).unwrap();
        let (t, s) = three_snapshots(&engine);
        disk.set_hook(Some(Arc::new(|io| match io.op {
            IoOp::Name if io.name.ends_with(".manifest") => Err(Error::Io("broken".into())),
            _ => Ok(()),
        })));
        for _ in 0..4 {
            assert!(!engine.evict_for_room(&|| false));
            engine.snapshots.put_off_no_longer();
        }
        let said = std::mem::take(&mut *heard.0.lock());
        for name in ["a", "b", "c"] {
            let of = format!("snapshot {name} cannot be dropped");
            let times = said.iter().filter(|text| text.starts_with(&of)).count();
            assert_eq!(times, 1, "{name}: {said:?}");
        }
        disk.set_hook(None);
        // Once they can be, it is news the next time.
        assert!(engine.evict_for_room(&|| false));
        assert_eq!(engine.snapshots.count(), 2);
        assert!(engine.snapshots.is_news("snapshot b cannot be dropped"));
        drop((s, t));
        engine.close().unwrap();
    }

    /// Whoever drops a snapshot to make room and is killed meanwhile leaves no space behind that nobody has.
    #[test]
    fn what_a_snapshot_held_is_free_though_its_dropper_is_killed() {
        let (engine, t, s) = with_three_snapshots(&SimStorage::new(6));
        engine.flush_log();
        engine.store.reclaim(engine.log.durable_lsn());
        let kept = engine.store.kept_bytes();
        let left = || engine.snapshots.all().len();
        assert!(engine.evict_for_room(&|| true));
        assert_eq!(left(), 2);
        until("nobody frees it", || engine.snapshots.unfreed().is_none());
        let of_two = engine.store.kept_bytes();
        assert!(of_two < kept, "{of_two} bytes of {kept} are kept");
        // Who comes next goes on where the other was killed, unless the thread has.
        assert!(engine.evict_for_room(&|| true));
        {
            let _claim = engine.snapshots.claim(&|| false).unwrap();
            engine.hold_rest_at_last(&|| false);
            assert_eq!((left(), engine.snapshots.unfreed()), (1, None));
        }
        assert!(engine.store.kept_bytes() < of_two);
        engine.drop_snapshot("c").unwrap();
        assert_eq!((left(), engine.store.kept_bytes()), (0, 0));
        drop((s, t));
        engine.close().unwrap();
        engine.check_space().unwrap();
    }
}
