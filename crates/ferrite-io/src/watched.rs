//! A directory in which no failed sync goes by unnoticed.
//!
//! A sync that fails leaves unknown which earlier writes are durable, of any file: a device
//! reports a lost cache once, to whoever asks next. So whichever file it was, and whatever the
//! caller makes of the error, the hook hears of it first. A full disk is no failed sync: some
//! file systems find it out only then, and nothing that was durable is lost.
//!
//! Invariant: a failure before the hook is set is told when it is set.
//! Locking: one mutex, never held over a call of the hook or of the storage beneath.

use ferrite_sync::{Arc, Mutex};
use ferrite_types::{Error, Result};

use crate::{Descriptor, IoStats, LockGuard, OpenMode, Storage, StorageFile};

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
    fn check(&self, result: Result<()>) -> Result<()> {
        if let Err(e) = &result {
            if !matches!(e, Error::DiskFull(_)) {
                self.raise(e.to_string());
            }
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
    alarm: Arc<Alarm>,
}

struct WatchedFile {
    inner: Arc<dyn StorageFile>,
    alarm: Arc<Alarm>,
}

impl Watched {
    /// A view of `inner` whose failed syncs are told.
    pub fn new(inner: Arc<dyn Storage>) -> Watched {
        Watched {
            inner,
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
        Ok(Arc::new(WatchedFile { inner, alarm }))
    }

    fn exists(&self, name: &str) -> Result<bool> {
        self.inner.exists(name)
    }

    fn remove(&self, name: &str) -> Result<()> {
        self.inner.remove(name)
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        self.inner.rename(from, to)
    }

    fn list(&self) -> Result<Vec<String>> {
        self.inner.list()
    }

    fn sync_dir(&self) -> Result<()> {
        self.alarm.check(self.inner.sync_dir())
    }

    fn lock_exclusive(&self) -> Result<LockGuard> {
        self.inner.lock_exclusive()
    }

    fn lock_file(&self, name: &str, alone: bool) -> Result<Option<LockGuard>> {
        self.inner.lock_file(name, alone)
    }

    fn free_bytes(&self) -> Result<u64> {
        self.inner.free_bytes()
    }

    fn stats(&self) -> &IoStats {
        self.inner.stats()
    }

    fn key_check(&self) -> Option<u64> {
        self.inner.key_check()
    }
}

impl StorageFile for WatchedFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        self.inner.read_at(buf, offset)
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> Result<()> {
        self.inner.write_at(buf, offset)
    }

    fn sync_data(&self) -> Result<()> {
        self.alarm.check(self.inner.sync_data())
    }

    fn len(&self) -> Result<u64> {
        self.inner.len()
    }

    fn allocate(&self, offset: u64, len: u64) -> Result<()> {
        self.inner.allocate(offset, len)
    }

    fn truncate(&self, len: u64) -> Result<()> {
        self.inner.truncate(len)
    }

    fn punch_hole(&self, offset: u64, len: u64) -> Result<()> {
        self.inner.punch_hole(offset, len)
    }

    fn name(&self) -> &str {
        self.inner.name()
    }

    fn direct_io_active(&self) -> bool {
        self.inner.direct_io_active()
    }

    fn descriptor(&self) -> Option<Descriptor<'_>> {
        self.inner.descriptor()
    }

    fn decode(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        self.inner.decode(buf, offset)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::{Fault, SimStorage};

    #[test]
    fn each_failed_sync_is_told_once() {
        let disk = SimStorage::new(1);
        let view = Watched::new(Arc::new(disk.clone()));
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
        let view = Watched::new(Arc::new(disk.clone()));
        view.on_failed_sync(|text| panic!("{text}"));
        let file = view.open("f", OpenMode::CreateNew, false).unwrap();
        disk.inject(Fault::FailWrite, 1);
        assert!(file.write_at(b"abc", 0).is_err());
        assert!(view.open("g", OpenMode::ReadWrite, false).is_err());
    }
}
