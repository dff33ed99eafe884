//! A disk in memory that forgets, tears, fails and lies on demand; one seed, one behaviour.
//!
//! A [`SimStorage`] is a handle to one disk; clones share it. Programs use it through
//! [`Storage`]; the test that owns it cuts the power ([`crash`](SimStorage::crash)), plans
//! faults ([`inject`](SimStorage::inject)) and looks at what happened.
//!
//! Invariants:
//! - Each crash, power cut or restore begins a new life of the machine; handles and locks
//!   of an earlier life fail at every call and change nothing, so that whatever still runs
//!   of the crashed program (destructors, stray threads) is harmless.
//! - Random choices come from the seed alone (or the generator given to `crash`), in the
//!   order of calls.
//!
//! Locking: one mutex around the disk, held within a call only; hooks run outside of it.

mod disk;
mod faults;
mod file;
mod image;
mod machine;

use ferrite_sync::random::Rng;
use ferrite_sync::Arc;
use ferrite_types::{Error, Result};

use crate::{IoStats, LockGuard, OpenMode, Storage, StorageFile};
pub use disk::Survival;
use disk::{Disk, FileState, NameChange};
pub use faults::{Fault, IoEvent, IoOp};
use file::SimFile;
pub use machine::Hook;
use machine::{Due, Machine};

/// A simulated disk; clones share it.
#[derive(Clone)]
pub struct SimStorage {
    machine: Arc<Machine>,
    /// Calls of this handle fail when the machine is in another life.
    life: Option<u64>,
}

/// The whole state of a disk at one time, to be restored later, any number of times.
#[derive(Clone)]
pub struct SimSnapshot {
    disk: Disk,
}

/// What [`SimStorage::damage_file`] does to a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileDamage {
    /// It is gone.
    Lost,
    /// It is cut to this length.
    Cut {
        /// Bytes that stay.
        keep_bytes: u64,
    },
    /// This range reads as zero; the length stays (`0, u64::MAX`: the whole file).
    Zeroes {
        /// Where, in bytes.
        offset: u64,
        /// How much, in bytes.
        len: u64,
    },
}

impl SimStorage {
    /// An empty disk of unlimited size; all random choices come from the seed.
    pub fn new(seed: u64) -> SimStorage {
        SimStorage {
            machine: Arc::new(Machine::new(seed)),
            life: None,
        }
    }

    /// A handle for the program of this life: after a crash it fails at every call, where
    /// the handle it was made from goes on with the next life.
    pub fn boot(&self) -> SimStorage {
        let life = Some(self.machine.state().life);
        SimStorage {
            machine: self.machine.clone(),
            life,
        }
    }

    /// A new disk with the contents of a snapshot.
    pub fn from_snapshot(snapshot: &SimSnapshot, seed: u64) -> SimStorage {
        let storage = SimStorage::new(seed);
        storage.restore(snapshot);
        storage
    }

    /// The power goes: every call fails from now on. Calls the power-off hook once.
    pub fn power_off(&self) {
        self.machine.power_off();
    }

    /// The power goes at the `n`th I/O call from now (1 = the next); that call may or may
    /// not still happen, and its caller gets an error.
    pub fn power_off_after(&self, n: u64) {
        let calls = self.calls();
        self.machine.state().off_at = Some(calls + n.max(1));
    }

    /// Called whenever the power goes, outside of all locks.
    pub fn set_power_off_hook(&self, hook: impl Fn() + Send + Sync + 'static) {
        self.machine.state().off_hook = Some(Arc::new(hook));
    }

    /// False after the power went and before a crash or restore brought it back.
    pub fn powered(&self) -> bool {
        self.machine.state().powered
    }

    /// The power goes and comes back: an arbitrary part of what was not synced survives, in
    /// any order, torn at 512 bytes; of the name changes that were not synced, any part.
    /// Faults still planned stay planned.
    pub fn crash(&self, rng: &mut Rng) {
        self.crash_with(Survival::Anything, rng);
    }

    /// The power goes and comes back: only what was synced is left.
    pub fn crash_clean(&self) {
        self.crash_with(Survival::Nothing, &mut Rng::new(0));
    }

    /// The power goes and comes back, with that much surviving.
    pub fn crash_with(&self, survival: Survival, rng: &mut Rng) {
        self.power_off();
        let mut state = self.machine.state();
        state.disk.crash(survival, rng);
        Machine::power_on(&mut state);
    }

    /// The state now, synced or not.
    pub fn snapshot(&self) -> SimSnapshot {
        let mut disk = self.machine.state().disk.clone();
        disk.detach();
        SimSnapshot { disk }
    }

    /// Goes back to a snapshot; a new life begins.
    pub fn restore(&self, snapshot: &SimSnapshot) {
        self.power_off();
        let mut state = self.machine.state();
        state.disk = snapshot.disk.clone();
        state.disk.detach();
        Machine::power_on(&mut state);
    }

    /// Plans a fault for the `nth` matching call from now (1 = the next), of any file.
    pub fn inject(&self, fault: Fault, nth: u64) {
        self.inject_in(fault, nth, "");
    }

    /// The same, counting only calls on files whose name begins with `prefix`.
    pub fn inject_in(&self, fault: Fault, nth: u64, prefix: &str) {
        self.machine.state().plan.add(fault, nth, prefix);
    }

    /// Each call on files whose name begins with `prefix` fails so from now on.
    pub fn inject_lasting(&self, fault: Fault, prefix: &str) {
        self.machine.state().plan.add_lasting(fault, prefix);
    }

    /// The `n`th sync from now fails (1 = the next).
    pub fn fail_sync(&self, n: u64) {
        self.inject(Fault::FailSync, n);
    }

    /// The `n`th write from now fails.
    pub fn fail_write(&self, n: u64) {
        self.inject(Fault::FailWrite, n);
    }

    /// The `n`th read from now fails.
    pub fn fail_read(&self, n: u64) {
        self.inject(Fault::FailRead, n);
    }

    /// Forgets all planned faults.
    pub fn clear_faults(&self) {
        self.machine.state().plan.clear();
    }

    /// How many planned faults have happened.
    pub fn faults_happened(&self) -> u64 {
        self.machine.state().plan.happened()
    }

    /// Calls `hook` before each I/O (`None`: no more).
    pub fn set_hook(&self, hook: Option<Hook>) {
        self.machine.state().hook = hook;
    }

    /// From now on (not), no file more can be opened: the program has as many as the system gives.
    pub fn refuse_opens(&self, refused: bool) {
        self.machine.state().opens_refused = refused;
    }

    /// Limits the bytes that all files together can have allocated (`None`: no limit).
    /// What is allocated already stays.
    pub fn set_capacity(&self, bytes: Option<u64>) {
        self.machine.state().disk.capacity = bytes;
    }

    /// Bytes allocated by all files.
    pub fn used_bytes(&self) -> u64 {
        self.machine.state().disk.used()
    }

    /// Bytes allocated by this file. `Error::NotFound` if there is none.
    pub fn used_bytes_of(&self, name: &str) -> Result<u64> {
        let state = self.machine.state();
        let number = state.disk.names.get(name).ok_or(Error::NotFound)?;
        let file = state.disk.files.get(number).ok_or(Error::NotFound)?;
        Ok(file.used())
    }

    /// Keeps, for stale reads, each file as it was before its last sync.
    pub fn keep_stale(&self, on: bool) {
        self.machine.state().disk.keep_previous = on;
    }

    /// I/O calls so far, in all lives.
    pub fn calls(&self) -> u64 {
        self.machine
            .calls
            .load(ferrite_sync::atomic::Ordering::Relaxed)
    }

    /// Decay: turns the given bits of one byte, for every reader and for good. Works
    /// without power. `Error::NotFound` if there is no such file.
    pub fn corrupt(&self, name: &str, offset: u64, xor: u8) -> Result<()> {
        self.patch(name, offset, 1, |b| b[0] ^= xor)
    }

    /// Overwrites bytes behind everybody's back, durable at once.
    pub fn overwrite(&self, name: &str, offset: u64, bytes: &[u8]) -> Result<()> {
        self.patch(name, offset, bytes.len(), |b| b.copy_from_slice(bytes))
    }

    /// Does to a whole file what an operator's slip, a broken file system or a bad restore does,
    /// behind everybody's back and durable at once. Open handles see it at their next call (those
    /// of a lost file go on with a file that has no name). Works without power.
    ///
    /// How to use it: stop the program ([`power_off`](Self::power_off) or a clean end), damage,
    /// start it again. A program that then opens must have everything it acknowledged; one that
    /// refuses must name the file. [`list`](Storage::list) names the candidates. `Error::NotFound`
    /// if there is no such file.
    pub fn damage_file(&self, name: &str, damage: FileDamage) -> Result<()> {
        let mut state = self.machine.state();
        let disk = &mut state.disk;
        let number = *disk.names.get(name).ok_or(Error::NotFound)?;
        if damage == FileDamage::Lost {
            disk.lose(name);
            return Ok(());
        }
        let file = disk.files.get_mut(&number).ok_or(Error::NotFound)?;
        file.pending.clear();
        for image in [&mut file.live, &mut file.durable] {
            let len = image.len();
            match damage {
                FileDamage::Lost => {}
                FileDamage::Cut { keep_bytes } => image.set_len(len.min(keep_bytes)),
                FileDamage::Zeroes { offset, len } => image.punch(offset, len),
            }
        }
        Ok(())
    }

    fn patch(&self, name: &str, at: u64, len: usize, f: impl Fn(&mut [u8])) -> Result<()> {
        let mut state = self.machine.state();
        let number = *state.disk.names.get(name).ok_or(Error::NotFound)?;
        let file = state.disk.files.get_mut(&number).ok_or(Error::NotFound)?;
        for image in [&mut file.live, &mut file.durable] {
            let mut bytes = vec![0; len];
            image.read(&mut bytes, at);
            f(&mut bytes);
            if at < image.len() {
                let n = (image.len() - at).min(len as u64) as usize;
                image.write(&bytes[..n], at);
            }
        }
        Ok(())
    }

    /// All bytes of a file as programs see them. Works without power.
    pub fn contents(&self, name: &str) -> Result<Vec<u8>> {
        let state = self.machine.state();
        let number = state.disk.names.get(name).ok_or(Error::NotFound)?;
        let file = state.disk.files.get(number).ok_or(Error::NotFound)?;
        let mut bytes = vec![0; file.live.len() as usize];
        file.live.read(&mut bytes, 0);
        Ok(bytes)
    }

    fn change_names<R>(&self, name: &str, f: impl FnOnce(&mut Disk) -> Result<R>) -> Result<R> {
        let event = IoEvent {
            op: IoOp::Name,
            name,
            offset: 0,
            len: 0,
        };
        let (mut state, _) = self.machine.begin(self.life, &event)?;
        f(&mut state.disk)
    }
}

impl Storage for SimStorage {
    fn open(&self, name: &str, mode: OpenMode, direct: bool) -> Result<Arc<dyn StorageFile>> {
        if name.is_empty() || name.contains(['/', '\0']) {
            return Err(Error::Bug(format!(
                "file name {name:?} is not one path component"
            )));
        }
        if self.machine.live(self.life)?.opens_refused {
            return Err(Error::Shortage(format!("open {name}: too many open files")));
        }
        let (number, token) = if mode == OpenMode::CreateNew {
            self.change_names(name, |disk| {
                if disk.names.contains_key(name) {
                    return Err(Error::Exists);
                }
                disk.next_file += 1;
                let number = disk.next_file;
                let file = FileState::default();
                let token = file.token.clone();
                disk.files.insert(number, file);
                disk.names.insert(name.to_owned(), number);
                disk.pending_names
                    .push(NameChange::Create(name.to_owned(), number));
                Ok((number, token))
            })?
        } else {
            let state = self.machine.live(self.life)?;
            let number = *state.disk.names.get(name).ok_or(Error::NotFound)?;
            let file = state.disk.files.get(&number).ok_or(Error::NotFound)?;
            (number, file.token.clone())
        };
        let life = self.machine.state().life;
        Ok(Arc::new(SimFile {
            machine: self.machine.clone(),
            life: self.life.unwrap_or(life),
            number,
            name: name.to_owned(),
            direct,
            read_only: mode == OpenMode::ReadOnly,
            _token: token,
        }))
    }

    fn exists(&self, name: &str) -> Result<bool> {
        Ok(self.machine.live(self.life)?.disk.names.contains_key(name))
    }

    fn remove(&self, name: &str) -> Result<()> {
        self.change_names(name, |disk| {
            disk.names.remove(name).ok_or(Error::NotFound)?;
            disk.pending_names.push(NameChange::Remove(name.to_owned()));
            Ok(())
        })
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        self.change_names(from, |disk| {
            let number = disk.names.remove(from).ok_or(Error::NotFound)?;
            disk.names.insert(to.to_owned(), number);
            disk.pending_names
                .push(NameChange::Rename(from.to_owned(), to.to_owned(), number));
            Ok(())
        })
    }

    fn list(&self) -> Result<Vec<String>> {
        Ok(self
            .machine
            .live(self.life)?
            .disk
            .names
            .keys()
            .cloned()
            .collect())
    }

    fn sync_dir(&self) -> Result<()> {
        let event = IoEvent {
            op: IoOp::SyncDir,
            name: "",
            offset: 0,
            len: 0,
        };
        let (mut state, due) = self.machine.begin(self.life, &event)?;
        if due != Due::Nothing {
            return Err(Error::Io("sync directory: injected failure".to_owned()));
        }
        self.machine.stats.dir_syncs.inc();
        state.disk.sync_names();
        Ok(())
    }

    fn lock_exclusive(&self) -> Result<LockGuard> {
        let mut state = self.machine.live(self.life)?;
        if state.locked {
            return Err(Error::InUse(
                "the simulated disk is held by a program".to_owned(),
            ));
        }
        state.locked = true;
        Ok(LockGuard::new(Held {
            machine: self.machine.clone(),
            life: state.life,
        }))
    }

    fn free_bytes(&self) -> Result<u64> {
        let state = self.machine.live(self.life)?;
        let capacity = state.disk.capacity.unwrap_or(1 << 50);
        Ok(capacity.saturating_sub(state.disk.used()))
    }

    fn stats(&self) -> &IoStats {
        &self.machine.stats
    }
}

struct Held {
    machine: Arc<Machine>,
    life: u64,
}

impl Drop for Held {
    fn drop(&mut self) {
        let mut state = self.machine.state();
        if state.life == self.life {
            state.locked = false;
        }
    }
}

#[cfg(test)]
mod tests;

#[cfg(test)]
mod crash_tests;
