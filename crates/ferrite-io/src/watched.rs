//! A directory in which no failed sync goes by unnoticed.
//!
//! A sync that fails leaves unknown which earlier writes are durable, of any file: a device
//! reports a lost cache once, to whoever asks next. So whichever file it was, and whatever the
//! caller makes of the error, the hook hears of it first.
//!
//! Some file systems find out only then that the disk is full, and forget what they could not
//! write: the next sync succeeds without it. Who writes the whole file anew before it syncs again
//! may go on after that; a file that is `changed_in_place` has failed.
//!
//! Invariant: a failure before the hook is set is told when it is set.
//! Locking: one mutex, never held over a call of the hook or of the storage beneath.

use ferrite_sync::{Arc, Mutex};
use ferrite_types::{Error, Result};

use crate::pass_on::{pass_on_file, pass_on_storage};
use crate::{OpenMode, Storage, StorageFile};

type Hook = Arc<dyn Fn(&str) + Send + Sync>;

#[derive(Default)]
struct Alarm {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    hook: Option<Hook>,
    /// What failed before there was a hook.
    untold: Option<String>,
}

impl Alarm {
    /// `full_is_failed`: what the sync was for is not written again.
    fn check(&self, result: Result<()>, full_is_failed: bool) -> Result<()> {
        match &result {
            // Nothing was tried: no sync has failed.
            Ok(()) | Err(Error::Shortage(_)) => {}
            Err(Error::DiskFull(_)) if !full_is_failed => {}
            Err(e) => self.raise(e.to_string()),
        }
        result
    }

    fn raise(&self, text: String) {
        let mut state = self.state.lock();
        match state.hook.clone() {
            None => state.untold = Some(text),
            Some(hook) => {
                drop(state);
                hook(&text);
            }
        }
    }
}

/// Passes everything on to another storage; see the head of the file.
pub struct Watched {
    inner: Arc<dyn Storage>,
    changed_in_place: fn(&str) -> bool,
    alarm: Arc<Alarm>,
}

struct WatchedFile {
    inner: Arc<dyn StorageFile>,
    changed_in_place: bool,
    alarm: Arc<Alarm>,
}

impl Watched {
    /// A view of `inner` whose failed syncs are told. `changed_in_place`, by the file's name: after
    /// a failed sync nobody writes again what was written before it.
    pub fn new(inner: Arc<dyn Storage>, changed_in_place: fn(&str) -> bool) -> Watched {
        Watched {
            inner,
            changed_in_place,
            alarm: Arc::default(),
        }
    }

    /// From now on a failed sync calls `hook` with what failed, before the caller hears of it;
    /// at once if one has failed already.
    pub fn on_failed_sync(&self, hook: impl Fn(&str) + Send + Sync + 'static) {
        let untold = {
            let mut state = self.alarm.state.lock();
            state.hook = Some(Arc::new(hook));
            state.untold.take()
        };
        if let Some(text) = untold {
            self.alarm.raise(text);
        }
    }
}

impl Storage for Watched {
    fn open(&self, name: &str, mode: OpenMode, direct: bool) -> Result<Arc<dyn StorageFile>> {
        let inner = self.inner.open(name, mode, direct)?;
        let alarm = self.alarm.clone();
        Ok(Arc::new(WatchedFile {
            inner,
            changed_in_place: (self.changed_in_place)(name),
            alarm,
        }))
    }

    fn sync_dir(&self) -> Result<()> {
        self.alarm.check(self.inner.sync_dir(), false)
    }

    pass_on_storage!(
        exists,
        remove,
        rename,
        list,
        lock_exclusive,
        lock_file,
        free_bytes,
        stats,
        key_check,
    );
}

impl StorageFile for WatchedFile {
    fn sync_data(&self) -> Result<()> {
        self.alarm
            .check(self.inner.sync_data(), self.changed_in_place)
    }

    pass_on_file!(
        read_at,
        write_at,
        len,
        allocate,
        truncate,
        punch_hole,
        name,
        direct_io_active,
        descriptor,
        decode,
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::{Fault, SimStorage};

    #[test]
    fn each_failed_sync_is_told_once() {
        let disk = SimStorage::new(1);
        let view = Watched::new(Arc::new(disk.clone()), |_| false);
        let file = view.open("f", OpenMode::CreateNew, false).unwrap();
        disk.inject(Fault::FailSync, 1);
        assert!(file.sync_data().is_err());
        let told: Arc<Mutex<Vec<String>>> = Arc::default();
        let list = told.clone();
        view.on_failed_sync(move |text| list.lock().push(text.to_owned()));
        assert_eq!(told.lock().len(), 1, "what came before the hook");
        file.write_at(b"abc", 0).unwrap();
        file.sync_data().unwrap();
        view.sync_dir().unwrap();
        assert_eq!(told.lock().len(), 1);
        disk.inject(Fault::FailSync, 1);
        assert!(view.sync_dir().is_err());
        assert_eq!(told.lock().len(), 2);
        let first = told.lock()[0].clone();
        assert!(first.contains("sync f"), "{first}");
    }

    #[test]
    fn other_failures_are_the_callers_own() {
        let disk = SimStorage::new(1);
        let view = Watched::new(Arc::new(disk.clone()), |_| false);
        view.on_failed_sync(|text| panic!("{text}"));
        let file = view.open("f", OpenMode::CreateNew, false).unwrap();
        disk.inject(Fault::FailWrite, 1);
        assert!(file.write_at(b"abc", 0).is_err());
        assert!(view.open("g", OpenMode::ReadWrite, false).is_err());
    }

    /// A sync that finds the disk full has forgotten what it could not write.
    #[test]
    fn a_full_disk_is_a_failed_sync_of_what_is_changed_in_place() {
        let disk = SimStorage::new(1);
        let view = Watched::new(Arc::new(disk.clone()), |name| name == "page");
        let told: Arc<Mutex<Vec<String>>> = Arc::default();
        let list = told.clone();
        view.on_failed_sync(move |text| list.lock().push(text.to_owned()));
        for (name, failures) in [("whole", 0), ("page", 1)] {
            let file = view.open(name, OpenMode::CreateNew, false).unwrap();
            file.write_at(b"abc", 0).unwrap();
            disk.inject(Fault::FullSync, 1);
            assert!(matches!(file.sync_data(), Err(Error::DiskFull(_))));
            assert_eq!(told.lock().len(), failures, "{name}");
        }
    }
}
