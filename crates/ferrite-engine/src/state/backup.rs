//! What is known of the backup that runs, or ran last: its phase, its pins, its figures.
//!
//! Phases: `Idle`, then `Waiting` (checkpoint and log are pinned, the point in time is not fixed
//! yet), `Copying` (it is fixed, the pages are pinned too), `Complete` or `Failed`; then again
//! `Waiting` with the next one.
//!
//! Invariants: a backup is complete only if it was not ended before: whoever ends one sets the
//! reason under the mutex and then takes the pins away, and the copier looks for a reason under
//! the same mutex when all is copied. So what was copied without a pin never counts.
//!
//! Locking: `pins`, then `run`, a leaf; both are held for moments.

use crate::state::log_floor::LogFloor;
use ferrite_store::Generation;
use ferrite_sync::atomic::{AtomicU64, Ordering};
use ferrite_sync::thread::JoinHandle;
use ferrite_sync::{time, Counter, Event, Mutex};
use ferrite_types::{Error, Lsn, Result};

/// How far a backup is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum BackupPhase {
    /// None was begun since the database was opened.
    #[default]
    Idle,
    /// Begun; its point in time is not fixed yet.
    Waiting,
    /// Its point in time is fixed; files are copied.
    Copying,
    /// All is on disk in its directory.
    Complete,
    /// It was ended, or failed; see the reason.
    Failed,
}

impl BackupPhase {
    /// As users see it.
    pub fn name(self) -> &'static str {
        match self {
            BackupPhase::Idle => "NONE",
            BackupPhase::Waiting => "WAITING",
            BackupPhase::Copying => "COPYING",
            BackupPhase::Complete => "COMPLETE",
            BackupPhase::Failed => "FAILED",
        }
    }

    fn is_active(self) -> bool {
        matches!(self, BackupPhase::Waiting | BackupPhase::Copying)
    }
}

/// What users see of a backup.
#[derive(Clone, Debug, Default)]
pub struct BackupInfo {
    /// How far it is.
    pub phase: BackupPhase,
    /// Its directory.
    pub dir: String,
    /// That of the backup it is an increment of; empty: it is full.
    pub base: String,
    /// Why it failed.
    pub error: String,
    /// Its id; 0 before it has one.
    pub id: u64,
    /// The connection it belongs to.
    pub owner: u64,
    /// When it was begun, seconds since 1970.
    pub started_unix_s: u64,
    /// Its point in time, a log position; 0 before it is fixed.
    pub position: Lsn,
    /// Bytes of pages to be copied; known while it copies them.
    pub page_bytes: u64,
    /// Bytes written to its directory.
    pub copied_bytes: u64,
    /// Bytes of log kept for it now.
    pub kept_log_bytes: u64,
    /// Bytes of pages that are not free for its sake, at most.
    pub withheld_bytes: u64,
}

#[derive(Default)]
struct Run {
    info: BackupInfo,
    /// Given by whoever ends it.
    ended: Option<String>,
    generation: Option<Generation>,
}

/// See the head of the file.
#[derive(Default)]
pub(crate) struct BackupState {
    /// Held while pins are set or taken away; before `run`.
    pub pins: Mutex<()>,
    run: Mutex<Run>,
    /// The point in time is fixed, or the backup was ended.
    go: Event,
    /// Where the log is kept from.
    pub log_floor: LogFloor,
    copied: AtomicU64,
    thread: Mutex<Option<JoinHandle<()>>>,
    /// Backups that are complete.
    pub completed: Counter,
    /// Backups that failed or were ended.
    pub failed: Counter,
}

impl BackupState {
    /// Takes the one place there is for a backup.
    ///
    /// # Errors
    /// `InUse`: one runs already.
    pub(crate) fn claim(&self, dir: &str, base: &str, owner: u64) -> Result<()> {
        let mut run = self.run.lock();
        if run.info.phase.is_active() {
            let text = format!("a backup into {} is running", run.info.dir);
            return Err(Error::InUse(text));
        }
        assert!(
            self.log_floor.kept_from().is_none(),
            "the backup before still keeps log"
        );
        self.copied.store(0, Ordering::SeqCst);
        let _ = self.go.reset();
        *run = Run::default();
        run.info = BackupInfo {
            phase: BackupPhase::Waiting,
            dir: dir.to_owned(),
            base: base.to_owned(),
            owner,
            started_unix_s: time::unix_us() / 1_000_000,
            ..BackupInfo::default()
        };
        Ok(())
    }

    pub(crate) fn set_id(&self, id: u64) {
        let mut run = self.run.lock();
        assert!(
            run.info.id == 0 && id != 0,
            "backup {id} is {}",
            run.info.id
        );
        run.info.id = id;
    }

    /// The point in time is `position`. False if the backup does not wait for one.
    pub(crate) fn fix(&self, position: Lsn, generation: Generation) -> bool {
        let mut run = self.run.lock();
        if run.info.phase != BackupPhase::Waiting || run.ended.is_some() {
            return false;
        }
        assert!(run.generation.is_none(), "fixed twice");
        run.info.phase = BackupPhase::Copying;
        run.info.position = position;
        run.generation = Some(generation);
        true
    }

    /// What was fixed; None: not yet.
    pub(crate) fn fixed(&self) -> Option<(Lsn, Generation)> {
        let run = self.run.lock();
        run.generation.map(|g| (run.info.position, g))
    }

    /// A backup waits for its point in time.
    pub(crate) fn is_waiting(&self) -> bool {
        let run = self.run.lock();
        run.info.phase == BackupPhase::Waiting && run.ended.is_none()
    }

    /// Lets the copier go on.
    pub(crate) fn wake(&self) {
        self.go.set();
    }

    /// Waits a moment for a word.
    pub(crate) fn wait_a_moment(&self) {
        const MOMENT_US: u64 = 50_000;
        self.go.wait_timeout_us(MOMENT_US);
    }

    /// Ends the backup that runs, if it is `owner`'s (None: whosever); true if there was one. The
    /// caller takes the pins away.
    pub(crate) fn end(&self, owner: Option<u64>, why: &str) -> bool {
        let mut run = self.run.lock();
        let theirs = owner.is_none_or(|owner| owner == run.info.owner);
        if !run.info.phase.is_active() || !theirs || run.ended.is_some() {
            return false;
        }
        assert!(!why.is_empty(), "a backup is ended for no reason");
        run.ended = Some(why.to_owned());
        true
    }

    /// # Errors
    /// `Unsupported` with the reason if the backup was ended.
    pub(crate) fn check(&self) -> Result<()> {
        match &self.run.lock().ended {
            Some(why) => Err(Error::Unsupported(why.clone())),
            None => Ok(()),
        }
    }

    /// The backup is over. An error counts before everything else; a backup that was ended is not
    /// complete.
    pub(crate) fn finish(&self, result: Result<()>) -> Result<()> {
        let mut run = self.run.lock();
        assert!(run.info.phase.is_active(), "it was over before");
        // Why it was ended says more than what failed for that reason.
        let error = match (&run.ended, result) {
            (Some(why), _) => Some(why.clone()),
            (None, Err(Error::Unsupported(why))) => Some(why),
            (None, Err(e)) => Some(e.to_string()),
            (None, Ok(())) => None,
        };
        assert!(
            error.is_some() || run.generation.is_some(),
            "complete without a point in time"
        );
        let copied = self.copied.load(Ordering::SeqCst);
        run.info.copied_bytes = copied;
        match error {
            None => {
                run.info.phase = BackupPhase::Complete;
                self.completed.inc();
                Ok(())
            }
            Some(why) => {
                run.info.phase = BackupPhase::Failed;
                run.info.error.clone_from(&why);
                self.failed.inc();
                Err(Error::Unsupported(why))
            }
        }
    }

    pub(crate) fn note_pages(&self, bytes: u64) {
        self.run.lock().info.page_bytes = bytes;
    }

    pub(crate) fn add_copied(&self, bytes: u64) {
        self.copied.fetch_add(bytes, Ordering::SeqCst);
    }

    /// What users see, but for what is kept for it.
    pub(crate) fn info(&self) -> BackupInfo {
        let mut info = self.run.lock().info.clone();
        if info.phase.is_active() {
            info.copied_bytes = self.copied.load(Ordering::SeqCst);
        }
        info
    }

    /// The thread that copies; the one before has ended and is waited for.
    pub(crate) fn set_thread(&self, thread: JoinHandle<()>) {
        let before = self.thread.lock().replace(thread);
        if let Some(before) = before {
            let _ = before.join();
        }
    }

    /// Waits for the thread.
    pub(crate) fn join(&self) {
        let thread = self.thread.lock().take();
        if let Some(thread) = thread {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_backup_that_was_ended_is_never_complete() {
        let state = BackupState::default();
        assert!(!state.end(None, "there is none"));
        state.claim("d", "", 7).unwrap();
        assert!(matches!(state.claim("e", "", 8), Err(Error::InUse(_))));
        assert!(!state.end(Some(8), "not theirs"));
        assert!(state.check().is_ok() && state.is_waiting());
        assert!(state.end(Some(7), "killed"));
        assert!(!state.is_waiting() && state.check().is_err());
        let generation = Generation {
            opening: 1,
            number: 1,
        };
        assert!(!state.fix(Lsn(8), generation), "fixed after its end");
        assert!(state.finish(Ok(())).is_err());
        let info = state.info();
        assert_eq!((info.phase, &*info.error), (BackupPhase::Failed, "killed"));
        state.claim("e", "", 8).unwrap();
        assert!(state.fix(Lsn(8), generation));
        assert!(state.finish(Ok(())).is_ok());
        assert_eq!(state.info().phase, BackupPhase::Complete);
    }
}
