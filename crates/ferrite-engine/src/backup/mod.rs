//! Hot backups: begun, fixed to a point in time, copied while everything goes on.
//!
//! 1. [`Engine::begin_backup`] takes a checkpoint, copies its files and pins it: the log is kept
//!    from its start on, and the chunks of undo that it names are not written again.
//! 2. [`Engine::fix_backup`] chooses the point in time, the log's end at that moment, and pins the
//!    pages: what the map names at that position stays where it is (`ferrite-store/src/backup.rs`). The
//!    caller sees to it that other engines and the binary log have the same point.
//! 3. A thread copies, at any pace, the log from the checkpoint to the point, and every page that
//!    the map names at the point; of an increment only those pages whose blob the earlier backup
//!    does not have. The map at the point is the checkpoint's, brought up to date with the log as
//!    recovery does it.
//!
//! What is restored from it is a database as after a power failure at the point in time: ordinary
//! recovery opens it.
//!
//! `manifest`, `files`: what is in a backup's directory; `sealed`: texts with a checksum. `copy`:
//! step 3. `map`: the map at the point. `chain`: backups verified and restored.
//!
//! What is on disk if we die: nothing of the pins; a directory without a manifest, which is no
//! backup.
//!
//! Locking: `checkpointing`, then the pins' mutex; nothing is held while the thread copies.

pub mod chain;
pub(crate) mod copy;
pub(crate) mod files;
mod manifest;
pub(crate) mod map;
pub(crate) mod sealed;

use crate::state::callbacks::LogLevel;
use crate::state::engine::Engine;
use crate::BackupInfo;
use ferrite_io::Storage;
use ferrite_store::{CopiedFile, PinOwner};
use ferrite_sync::atomic::Ordering;
use ferrite_sync::{kill_point, random, thread, time, Arc, Mutex};
use ferrite_types::{Error, Lsn, Result};

pub use manifest::Manifest;

/// A directory of a backup.
#[derive(Clone)]
pub struct BackupPlace {
    /// Its files.
    pub storage: Arc<dyn Storage>,
    /// Its name, for messages.
    pub name: String,
}

/// What a backup may cost.
#[derive(Clone, Copy, Default, Debug)]
pub struct BackupLimits {
    /// Bytes of log and pages kept for it, beyond which it ends; 0: no limit.
    pub kept_bytes: u64,
    /// Bytes that it copies in a second; 0: no limit.
    pub bytes_per_s: u64,
}

/// A backup that was begun.
struct Job {
    to: BackupPlace,
    base: Option<(BackupPlace, Manifest)>,
    limits: BackupLimits,
    id: u64,
    begun_unix_s: u64,
    /// Where the kept log begins.
    log_start: Lsn,
    files: Vec<CopiedFile>,
}

impl Engine {
    /// Begins a backup into an empty directory, an increment of the one in `base` if that is given.
    /// `owner`: who may end it with [`end_backup`](Self::end_backup). It waits for
    /// [`fix_backup`](Self::fix_backup).
    ///
    /// # Errors
    /// `InUse`: a backup is running. `BadConfig`: the directory is not empty, or `base` is a backup
    /// of another database. `Corrupt`: `base` is no backup. `DiskFull`, `Io`.
    pub fn begin_backup(
        self: &Arc<Self>,
        to: BackupPlace,
        base: Option<BackupPlace>,
        limits: BackupLimits,
        owner: u64,
    ) -> Result<()> {
        let base = base.map(|b| self.base_of(b)).transpose()?;
        if let Some(name) = to.storage.list()?.first() {
            let text = format!("{} is not empty: {name} is there", to.name);
            return Err(Error::BadConfig(text));
        }
        let base_name = base.as_ref().map_or("", |(b, _)| &b.name);
        self.backup.claim(&to.name, base_name, owner)?;
        let mut job = Job {
            to,
            base,
            limits,
            id: random::next_u64().max(1),
            begun_unix_s: time::unix_us() / 1_000_000,
            log_start: Lsn::ZERO,
            files: Vec::new(),
        };
        assert!(job.id != 0, "0 stands for no backup");
        self.backup.set_id(job.id);
        if let Err(e) = self.pin_checkpoint(&mut job) {
            return self.finish_backup(&job, Err(e));
        }
        self.start_copier(job)
    }

    /// # Errors
    /// `Io`: the system refuses a thread. The backup has ended.
    fn start_copier(self: &Arc<Self>, job: Job) -> Result<()> {
        let job = Arc::new(Mutex::new(job));
        let (engine, of_thread) = (self.clone(), job.clone());
        let run = move || engine.run_backup(&mut of_thread.lock());
        if let Some(copier) = thread::try_spawn("ferrite-backup", run) {
            self.backup.set_thread(copier);
            return Ok(());
        }
        let refused = Error::Io("the system refuses a thread for the backup".to_owned());
        let job = job.lock();
        self.finish_backup(&job, Err(refused))
    }

    /// The backup that is to be incremented.
    fn base_of(&self, base: BackupPlace) -> Result<(BackupPlace, Manifest)> {
        let manifest = Manifest::read(&*base.storage).map_err(|e| named(&base.name, e))?;
        if manifest.uuid != self.store.uuid() {
            let text = format!("{} is a backup of another database", base.name);
            return Err(Error::BadConfig(text));
        }
        // A database that was restored goes on from an earlier position, and not the same way.
        if manifest.position > self.log.current_lsn() {
            let text = format!(
                "{} is newer than the database, which has gone back (a restore, a rewind): take a full \
                 backup, or an increment from one before that",
                base.name
            );
            return Err(Error::BadConfig(text));
        }
        Ok((base, manifest))
    }

    /// Step 1.
    fn pin_checkpoint(&self, job: &mut Job) -> Result<()> {
        let _one = self.checkpointing.lock();
        {
            let _pins = self.backup.pins.lock();
            self.backup.check()?;
            self.undo_area.hold(PinOwner::Backup, true);
            self.backup.log_floor.keep_from(Some(Lsn::ZERO));
        }
        self.take_checkpoint()?;
        kill_point!("backup.checkpoint_pinned");
        job.log_start = Lsn(self.checkpoint_lsn.load(Ordering::SeqCst));
        {
            let _pins = self.backup.pins.lock();
            self.backup.check()?;
            self.backup.log_floor.keep_from(Some(job.log_start));
        }
        job.files = self.store.copy_checkpoint(&*job.to.storage)?;
        assert!(job.files.len() == 3, "{} files", job.files.len());
        assert!(
            job.log_start <= self.log.durable_lsn(),
            "log kept from {}",
            job.log_start
        );
        Ok(())
    }

    /// Step 2: the point in time of the backup that waits is now. Takes as long as a flush of the log.
    ///
    /// # Errors
    /// `NotFound`: none waits. `Unsupported`: it was ended.
    pub fn fix_backup(&self) -> Result<Lsn> {
        let end = {
            let _pins = self.backup.pins.lock();
            if !self.backup.is_waiting() {
                return Err(Error::NotFound);
            }
            // In this order: what was freed until the pin left the map before the point.
            self.store.pin(PinOwner::Backup, self.log.current_lsn());
            let generation = self.store.begin_generation();
            let end = self.log.current_lsn();
            if !self.backup.fix(end, generation) {
                self.store.unpin(PinOwner::Backup);
                return Err(Error::Unsupported("the backup was ended".into()));
            }
            end
        };
        self.log.flush_to(end);
        assert!(self.log.durable_lsn() >= end, "a point that is not durable");
        kill_point!("backup.fixed");
        self.backup.wake();
        Ok(end)
    }

    /// A backup waits for its point in time.
    pub fn backup_waits(&self) -> bool {
        self.backup.is_waiting()
    }

    /// The backup that runs, or ran last.
    pub fn backup_info(&self) -> BackupInfo {
        let mut info = self.backup.info();
        (info.kept_log_bytes, info.withheld_bytes) = self.kept_for_backup();
        info
    }

    /// Waits until no backup runs. For tests.
    pub fn wait_for_backup(&self) {
        self.backup.join();
    }

    fn run_backup(self: &Arc<Self>, job: &mut Job) {
        let result = self.copy_backup(job);
        // The reason stands in the state, and in the server's log.
        let _ = self.finish_backup(job, result);
    }

    /// Lets go of the pins. Files of a backup that did not come about are removed.
    fn finish_backup(&self, job: &Job, result: Result<()>) -> Result<()> {
        self.unpin_backup();
        if result.is_err() || self.backup.check().is_err() {
            // What cannot be removed is no backup either, without its manifest.
            let _ = copy::remove_files(&*job.to.storage);
        }
        let result = self.backup.finish(result);
        debug_assert!(self.backup.log_floor.kept_from().is_none() || self.backup.is_waiting());
        let dir = &job.to.name;
        match &result {
            Ok(()) => {
                let text = format!("backup {:016x} into {dir} is complete", job.id);
                self.callbacks.log(LogLevel::Note, &text);
            }
            Err(_) => {
                let why = self.backup.info().error;
                let text = format!("backup into {dir} failed: {why}");
                self.callbacks.log(LogLevel::Warning, &text);
            }
        }
        result
    }

    /// # Errors
    /// `Unsupported`: it was ended, or keeps more than it may.
    fn check_backup(&self, job: &Job) -> Result<()> {
        self.backup.check()?;
        let info = self.backup_info();
        let kept = info.kept_log_bytes + info.withheld_bytes;
        if job.limits.kept_bytes > 0 && kept > job.limits.kept_bytes {
            return Err(Error::Unsupported(format!(
                "the backup kept {} MiB of log and {} MiB of old pages, more than \
                 ferrite_backup_max_kept_bytes ({} MiB) allows",
                info.kept_log_bytes >> 20,
                info.withheld_bytes >> 20,
                job.limits.kept_bytes >> 20,
            )));
        }
        Ok(())
    }
}

/// The same error, with the directory it is about.
fn named(dir: &str, e: Error) -> Error {
    match e {
        Error::Corrupt(text) => Error::Corrupt(format!("{dir}: {text}")),
        Error::Format(text) => Error::Format(format!("{dir}: {text}")),
        other => other,
    }
}
