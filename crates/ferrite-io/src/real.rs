//! The real disk: pread, pwrite, fdatasync, fallocate, flock.
//!
//! Invariants: a name is one path component, so that nothing outside of the directory can
//! be reached; every loop ends at an error, at the end of the file, or with all bytes done;
//! the directory is held open from the beginning on, so that who is short of open files can still
//! make names durable.
//! Locking: none; the kernel's.

use std::ffi::CString;
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read, Seek, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use ferrite_sync::observed::{self, FileCall, FileClass};
use ferrite_sync::{may_wait, time, Arc};
use ferrite_types::{Error, Result};

use crate::{Descriptor, IoStats, LockGuard, OpenMode, Storage, StorageFile};

/// The file that [`Storage::lock_exclusive`] locks; it holds the owner's process id.
const LOCK_FILE: &str = "ferrite.lock";

/// A directory of the real file system.
pub struct RealStorage {
    dir: PathBuf,
    /// The directory, to sync it.
    held: File,
    stats: Arc<IoStats>,
}

struct RealFile {
    file: File,
    name: String,
    path: PathBuf,
    direct: bool,
    stats: Arc<IoStats>,
    /// None: nobody follows its calls.
    class: Option<FileClass>,
}

fn is_full(e: &std::io::Error) -> bool {
    matches!(e.raw_os_error(), Some(libc::ENOSPC) | Some(libc::EDQUOT))
}

fn failed(call: &str, path: &Path, at: Option<u64>, e: &std::io::Error) -> Error {
    let place = at.map_or(String::new(), |o| format!(" at offset {o}"));
    let text = format!("{call} {}{place}: {e}", path.display());
    if is_full(e) {
        Error::DiskFull(text)
    } else {
        Error::Io(text)
    }
}

/// Did the system refuse that for want of rights? The text is one of [`failed`]'s.
pub fn is_for_want_of_rights(e: &Error) -> bool {
    let Error::Io(text) = e else {
        return false;
    };
    let is_for = |code| {
        let why = std::io::Error::from_raw_os_error(code).to_string();
        debug_assert!(why.contains(&code.to_string()), "{why}: which one?");
        text.contains(&why)
    };
    [libc::EACCES, libc::EPERM].into_iter().any(is_for)
}

/// As [`failed`], of a call that takes an open file more.
fn not_opened(call: &str, path: &Path, e: &std::io::Error) -> Error {
    match e.raw_os_error() {
        Some(libc::EMFILE | libc::ENFILE | libc::ENOMEM) => {
            Error::Shortage(format!("{call} {}: {e}", path.display()))
        }
        _ => failed(call, path, None, e),
    }
}

/// Repeats a call that a signal interrupted.
fn retry(mut call: impl FnMut() -> libc::c_int) -> std::io::Result<()> {
    loop {
        if call() == 0 {
            return Ok(());
        }
        let e = std::io::Error::last_os_error();
        if e.kind() != ErrorKind::Interrupted {
            return Err(e);
        }
    }
}

impl RealStorage {
    /// The directory at `dir`, created if missing (its parent must be there).
    pub fn new(dir: &Path) -> Result<RealStorage> {
        match RealStorage::fresh(dir) {
            Err(Error::Exists) => RealStorage::at(dir),
            other => other,
        }
    }

    /// The directory at `dir`, which this call creates (its parent must be there).
    ///
    /// # Errors
    /// `Exists`: something has that name already.
    pub fn fresh(dir: &Path) -> Result<RealStorage> {
        match std::fs::create_dir(dir) {
            Ok(()) => {
                if let Some(parent) = dir.parent().filter(|p| !p.as_os_str().is_empty()) {
                    sync_directory(parent)?;
                }
            }
            Err(e) if e.kind() == ErrorKind::AlreadyExists => return Err(Error::Exists),
            Err(e) => return Err(failed("create directory", dir, None, &e)),
        }
        RealStorage::at(dir)
    }

    /// The directory at `dir`, which must be there.
    pub fn existing(dir: &Path) -> Result<RealStorage> {
        if let Err(e) = std::fs::metadata(dir) {
            if e.kind() == ErrorKind::PermissionDenied {
                return Err(failed("look up", dir, None, &e));
            }
        }
        RealStorage::at(dir)
    }

    fn at(dir: &Path) -> Result<RealStorage> {
        if !dir.is_dir() {
            return Err(Error::Io(format!("{} is not a directory", dir.display())));
        }
        let held = File::open(dir).map_err(|e| not_opened("open directory", dir, &e))?;
        Ok(RealStorage {
            dir: dir.to_owned(),
            held,
            stats: Arc::new(IoStats::new()),
        })
    }

    /// The directory at `dir`, empty, created if missing; also whether it was.
    ///
    /// # Errors
    /// `BadConfig` naming what is there.
    pub fn empty(dir: &Path) -> Result<(RealStorage, bool)> {
        let missing = !dir.exists();
        let storage = RealStorage::new(dir)?;
        let bad = |e: std::io::Error| not_opened("list directory", dir, &e);
        if let Some(entry) = std::fs::read_dir(dir).map_err(bad)?.next() {
            let name = entry.map_err(bad)?.file_name();
            let text = format!(
                "{} is not empty: {} is there",
                dir.display(),
                name.to_string_lossy()
            );
            return Err(Error::BadConfig(text));
        }
        Ok((storage, missing))
    }

    /// Makes everything that was written to the directory's file system durable, by whomever.
    ///
    /// # Errors
    /// `Io`.
    pub fn sync_file_system(&self) -> Result<()> {
        may_wait("sync of a file system");
        let fd = self.held.as_raw_fd();
        // SAFETY: the descriptor is open for the call.
        retry(|| unsafe { libc::syncfs(fd) })
            .map_err(|e| failed("sync the file system of", &self.dir, None, &e))
    }

    /// Removes the directory if it is empty.
    ///
    /// # Errors
    /// `Io`: it is not.
    pub fn remove_empty(dir: &Path) -> Result<()> {
        std::fs::remove_dir(dir).map_err(|e| failed("remove directory", dir, None, &e))
    }

    /// Names of the directories in `dir`, sorted.
    ///
    /// # Errors
    /// `Io`.
    pub fn directories(dir: &Path) -> Result<Vec<String>> {
        let bad = |e: std::io::Error| not_opened("list directory", dir, &e);
        let mut names = Vec::new();
        for entry in std::fs::read_dir(dir).map_err(bad)? {
            let entry = entry.map_err(bad)?;
            if entry.path().is_dir() {
                names.extend(entry.file_name().into_string());
            }
        }
        names.sort_unstable();
        Ok(names)
    }

    /// Whether this process has the rights to list the directory and to open what is in it.
    pub fn may_list(dir: &Path) -> bool {
        let denied = |e: std::io::Error| e.kind() == ErrorKind::PermissionDenied;
        !std::fs::read_dir(dir).is_err_and(denied) && !dir.join(".").metadata().is_err_and(denied)
    }

    /// Keeps others from taking the directory while it is read, and writes nothing. None when
    /// nobody ever locked it.
    ///
    /// # Errors
    /// `InUse` when a process has it.
    pub fn lock_shared(&self) -> Result<Option<LockGuard>> {
        let path = self.dir.join(LOCK_FILE);
        let mut file = match File::open(&path) {
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
            other => other.map_err(|e| not_opened("open", &path, &e))?,
        };
        self.take_lock(&mut file, &path, libc::LOCK_SH)?;
        Ok(Some(LockGuard::new(file)))
    }

    fn take_lock(&self, file: &mut File, path: &Path, kind: libc::c_int) -> Result<()> {
        let fd = file.as_raw_fd();
        // SAFETY: the descriptor is open for the call.
        let Err(e) = retry(|| unsafe { libc::flock(fd, kind | libc::LOCK_NB) }) else {
            return Ok(());
        };
        if e.kind() != ErrorKind::WouldBlock {
            return Err(failed("lock", path, None, &e));
        }
        let mut holder = String::new();
        let _ = file.read_to_string(&mut holder);
        let who = match holder.trim() {
            "" => "another process".to_owned(),
            pid => format!("process {pid}"),
        };
        Err(Error::InUse(format!(
            "{} is in use by {who}",
            self.dir.display()
        )))
    }

    /// The directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Is the directory that is held still the one that names are looked up in? Another may have
    /// been put in its place.
    fn is_in_place(&self) -> bool {
        let of = |m: std::io::Result<std::fs::Metadata>| m.ok().map(|m| (m.dev(), m.ino()));
        let held = of(self.held.metadata());
        held.is_some() && held == of(self.dir.metadata())
    }

    fn path(&self, name: &str) -> Result<PathBuf> {
        if name.is_empty() || name == "." || name == ".." || name.contains(['/', '\0']) {
            return Err(Error::Bug(format!(
                "file name {name:?} is not one path component"
            )));
        }
        Ok(self.dir.join(name))
    }

    fn open_file(&self, path: &Path, mode: OpenMode, flags: libc::c_int) -> std::io::Result<File> {
        let mut options = OpenOptions::new();
        options.read(true).write(mode != OpenMode::ReadOnly);
        options.create_new(mode == OpenMode::CreateNew).mode(0o660);
        // Opening a pipe would wait for its other end.
        if path.metadata().is_ok_and(|found| !found.is_file()) {
            return Err(std::io::Error::other("not a regular file"));
        }
        options.custom_flags(flags | libc::O_CLOEXEC).open(path)
    }
}

fn sync_directory(dir: &Path) -> Result<()> {
    let opened = File::open(dir).map_err(|e| not_opened("open directory", dir, &e))?;
    sync_opened(&opened, dir)
}

fn sync_opened(opened: &File, dir: &Path) -> Result<()> {
    opened
        .sync_all()
        .map_err(|e| failed("sync directory", dir, None, &e))
}

/// On NFS such a lock is one on the whole file, which who has it alone must have opened to write. Where
/// that is not allowed, a reader can have it on other file systems.
fn open_to_lock(path: &Path, alone: bool) -> std::io::Result<File> {
    if alone {
        let mut options = OpenOptions::new();
        let opened = options.read(true).write(true).open(path);
        match opened.as_ref().map_err(|e| e.raw_os_error()) {
            Err(Some(libc::EACCES | libc::EPERM | libc::EROFS)) => {}
            _ => return opened,
        }
    }
    File::open(path)
}

impl Storage for RealStorage {
    fn open(&self, name: &str, mode: OpenMode, direct: bool) -> Result<Arc<dyn StorageFile>> {
        let path = self.path(name)?;
        let mut direct_active = direct;
        let mut opened = self.open_file(&path, mode, if direct { libc::O_DIRECT } else { 0 });
        if direct && matches!(&opened, Err(e) if e.raw_os_error() == Some(libc::EINVAL)) {
            // Some file systems create the file before they refuse the flag.
            let again = if mode == OpenMode::CreateNew && path.exists() {
                OpenMode::ReadWrite
            } else {
                mode
            };
            direct_active = false;
            opened = self.open_file(&path, again, 0);
        }
        let file = opened.map_err(|e| match e.kind() {
            ErrorKind::NotFound => Error::NotFound,
            ErrorKind::AlreadyExists => Error::Exists,
            _ => not_opened("open", &path, &e),
        })?;
        Ok(Arc::new(RealFile {
            file,
            name: name.to_owned(),
            class: observed::file(&path),
            path,
            direct: direct_active,
            stats: self.stats.clone(),
        }))
    }

    fn exists(&self, name: &str) -> Result<bool> {
        let path = self.path(name)?;
        // A link that leads nowhere is in the way, too.
        match path.symlink_metadata() {
            Ok(_) => Ok(true),
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(false),
            Err(e) => Err(failed("look up", &path, None, &e)),
        }
    }

    fn remove(&self, name: &str) -> Result<()> {
        let path = self.path(name)?;
        std::fs::remove_file(&path).map_err(|e| match e.kind() {
            ErrorKind::NotFound => Error::NotFound,
            _ => failed("remove", &path, None, &e),
        })
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        let (from, to) = (self.path(from)?, self.path(to)?);
        std::fs::rename(&from, &to).map_err(|e| match e.kind() {
            ErrorKind::NotFound => Error::NotFound,
            _ => failed("rename", &from, None, &e),
        })
    }

    fn list(&self) -> Result<Vec<String>> {
        let bad = |e: std::io::Error| not_opened("list directory", &self.dir, &e);
        let mut names = Vec::new();
        for entry in std::fs::read_dir(&self.dir).map_err(bad)? {
            let entry = entry.map_err(bad)?;
            let is_file = entry.file_type().map_err(bad)?.is_file();
            match entry.file_name().into_string() {
                Ok(name) if is_file && name != LOCK_FILE => names.push(name),
                _ => {}
            }
        }
        names.sort_unstable();
        Ok(names)
    }

    fn sync_dir(&self) -> Result<()> {
        self.stats.dir_syncs.inc();
        match self.is_in_place() {
            true => sync_opened(&self.held, &self.dir),
            false => sync_directory(&self.dir),
        }
    }

    fn lock_exclusive(&self) -> Result<LockGuard> {
        let path = self.dir.join(LOCK_FILE);
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o660)
            .custom_flags(libc::O_CLOEXEC)
            .open(&path)
            .map_err(|e| not_opened("open", &path, &e))?;
        self.take_lock(&mut file, &path, libc::LOCK_EX)?;
        let written = file
            .set_len(0)
            .and_then(|()| file.rewind())
            .and_then(|()| writeln!(file, "{}", std::process::id()));
        written.map_err(|e| failed("write", &path, None, &e))?;
        Ok(LockGuard::new(file))
    }

    fn lock_file(&self, name: &str, alone: bool) -> Result<Option<LockGuard>> {
        let path = self.path(name)?;
        let file = match open_to_lock(&path, alone) {
            Err(e) if e.kind() == ErrorKind::NotFound => return Err(Error::NotFound),
            other => other.map_err(|e| not_opened("open", &path, &e))?,
        };
        let kind = if alone { libc::LOCK_EX } else { libc::LOCK_SH };
        let fd = file.as_raw_fd();
        // SAFETY: the descriptor is open for the call.
        match retry(|| unsafe { libc::flock(fd, kind | libc::LOCK_NB) }) {
            Ok(()) => {}
            Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(None),
            Err(e) => return Err(failed("lock", &path, None, &e)),
        }
        // Whoever had it alone may have removed it.
        let inode = |m: std::io::Result<std::fs::Metadata>| m.ok().map(|m| (m.dev(), m.ino()));
        match inode(file.metadata()) == inode(std::fs::metadata(&path)) {
            true => Ok(Some(LockGuard::new(file))),
            false => Err(Error::NotFound),
        }
    }

    fn free_bytes(&self) -> Result<u64> {
        let path = CString::new(self.dir.as_os_str().as_bytes())
            .map_err(|_| Error::Bug("directory name holds a zero byte".to_owned()))?;
        // SAFETY: statvfs is plain numbers, for which all zeros are valid.
        let mut info: libc::statvfs = unsafe { std::mem::zeroed() };
        // SAFETY: the path ends with a zero byte and `info` is a valid place to fill.
        retry(|| unsafe { libc::statvfs(path.as_ptr(), &mut info) })
            .map_err(|e| failed("statvfs", &self.dir, None, &e))?;
        Ok(info.f_bavail as u64 * info.f_frsize as u64)
    }

    fn stats(&self) -> &IoStats {
        &self.stats
    }
}

impl RealFile {
    fn failed(&self, call: &str, at: Option<u64>, e: &std::io::Error) -> Error {
        failed(call, &self.path, at, e)
    }

    fn fd(&self) -> RawFd {
        self.file.as_raw_fd()
    }

    /// Reads until the buffer is full.
    fn fill(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        let mut done = 0;
        while done < buf.len() {
            match self.file.read_at(&mut buf[done..], offset + done as u64) {
                Ok(0) => {
                    return Err(Error::Corrupt(format!(
                        "{} ends at offset {} where {} more bytes were expected",
                        self.path.display(),
                        offset + done as u64,
                        buf.len() - done
                    )));
                }
                Ok(n) => done += n,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return Err(self.failed("read", Some(offset + done as u64), &e)),
            }
        }
        debug_assert!(done == buf.len(), "{done} bytes");
        Ok(())
    }

    /// Writes all of the buffer.
    fn put(&self, buf: &[u8], offset: u64) -> Result<()> {
        let mut done = 0;
        while done < buf.len() {
            match self.file.write_at(&buf[done..], offset + done as u64) {
                Ok(0) => {
                    let e = std::io::Error::from(ErrorKind::WriteZero);
                    return Err(self.failed("write", Some(offset + done as u64), &e));
                }
                Ok(n) => done += n,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return Err(self.failed("write", Some(offset + done as u64), &e)),
            }
        }
        debug_assert!(done == buf.len(), "{done} bytes");
        Ok(())
    }

    fn check_alignment(&self, buf: &[u8], offset: u64) {
        debug_assert!(
            !self.direct
                || (buf.as_ptr() as usize | buf.len() | offset as usize) % crate::BLOCK_BYTES == 0,
            "direct I/O on {} is not aligned: offset {offset}, {} bytes at {:p}",
            self.name,
            buf.len(),
            buf.as_ptr(),
        );
    }

    fn range(&self, offset: u64, len: u64) -> Result<(libc::off_t, libc::off_t)> {
        match (i64::try_from(offset), i64::try_from(len)) {
            (Ok(o), Ok(l)) if o.checked_add(l).is_some() => Ok((o, l)),
            _ => Err(Error::Bug(format!(
                "range {offset}+{len} of {} is too far",
                self.name
            ))),
        }
    }
}

impl StorageFile for RealFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        may_wait("read of a file");
        self.check_alignment(buf, offset);
        let (began, bytes) = (time::now_us(), buf.len());
        observed::call(self.class, FileCall::Read, bytes, || self.fill(buf, offset))?;
        self.stats.reads.inc();
        self.stats.read_bytes.add(bytes as u64);
        self.stats.read_us.record_us(time::now_us() - began);
        Ok(())
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> Result<()> {
        may_wait("write of a file");
        self.check_alignment(buf, offset);
        let began = time::now_us();
        observed::call(self.class, FileCall::Write, buf.len(), || {
            self.put(buf, offset)
        })?;
        self.stats.writes.inc();
        self.stats.write_bytes.add(buf.len() as u64);
        self.stats.write_us.record_us(time::now_us() - began);
        Ok(())
    }

    fn sync_data(&self) -> Result<()> {
        may_wait("sync of a file");
        let began = time::now_us();
        let fd = self.fd();
        observed::call(self.class, FileCall::Sync, 0, || {
            // SAFETY: the descriptor is open for the call. Not repeated after an error other
            // than an interruption: the kernel reports a lost write once.
            retry(|| unsafe { libc::fdatasync(fd) })
        })
        .map_err(|e| self.failed("sync", None, &e))?;
        self.stats.syncs.inc();
        self.stats.sync_us.record_us(time::now_us() - began);
        Ok(())
    }

    fn len(&self) -> Result<u64> {
        Ok(self
            .file
            .metadata()
            .map_err(|e| self.failed("stat", None, &e))?
            .len())
    }

    fn allocate(&self, offset: u64, len: u64) -> Result<()> {
        if len == 0 {
            return Ok(());
        }
        let (o, l) = self.range(offset, len)?;
        let fd = self.fd();
        // SAFETY: the descriptor is open for the call.
        match retry(|| unsafe { libc::fallocate(fd, 0, o, l) }) {
            Ok(()) => Ok(()),
            Err(e) if e.raw_os_error() == Some(libc::EOPNOTSUPP) => {
                // Nothing can be reserved there; at least the length is right.
                if self.len()? < offset + len {
                    self.truncate(offset + len)
                } else {
                    Ok(())
                }
            }
            Err(e) => Err(self.failed("allocate", Some(offset), &e)),
        }
    }

    fn truncate(&self, len: u64) -> Result<()> {
        self.file
            .set_len(len)
            .map_err(|e| self.failed("truncate", Some(len), &e))
    }

    fn punch_hole(&self, offset: u64, len: u64) -> Result<()> {
        if len == 0 {
            return Ok(());
        }
        let (o, l) = self.range(offset, len)?;
        let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
        let fd = self.fd();
        // SAFETY: the descriptor is open for the call.
        match retry(|| unsafe { libc::fallocate(fd, mode, o, l) }) {
            Err(e) if e.raw_os_error() != Some(libc::EOPNOTSUPP) => {
                Err(self.failed("punch hole", Some(offset), &e))
            }
            _ => Ok(()),
        }
    }

    fn name(&self) -> &str {
        &self.name
    }

    fn direct_io_active(&self) -> bool {
        self.direct
    }

    fn descriptor(&self) -> Option<Descriptor<'_>> {
        Some(Descriptor {
            fd: self.fd(),
            stats: &self.stats,
            class: self.class,
        })
    }
}

#[cfg(test)]
#[path = "real_tests.rs"]
mod tests;
