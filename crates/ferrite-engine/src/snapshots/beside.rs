//! A snapshot opened by a second program, beside the one that has the database open.
//!
//! Its pages are read from the database's own store files: they stay where they are as long as the
//! snapshot is kept, and a lock on its manifest keeps it. Everything else is copied into a directory of
//! its own, and what the second program writes (recovery, and pages that it cleans) goes there, too
//! (`ferrite-io/src/overlay.rs`). Nothing of that outlives it: each opening begins anew.
//!
//! The file [`MARK`] tells that directory from one with a database of its own, which is never touched.
//!
//! Locking: the lock on the manifest, until the guard is dropped; the caller's on its own directory.

use super::rewind::{files_of_server, snapshot, write_log};
use super::server_files::DataDirectory;
use super::{check_name, files_of, manifest, rewind};
use crate::backup::chain::{copy_back, restore_undo};
use crate::backup::files::UNDO;
use ferrite_io::{LockGuard, OpenMode, Overlay, ReadOnly, Storage};
use ferrite_sync::Arc;
use ferrite_types::{Error, Result};

/// What the names of store files begin with.
const STORE: &str = "store.";
const SUPERBLOCK: &str = "superblock";
/// The directory is of a snapshot that was opened; empty.
const MARK: &str = "opened-snapshot";

/// A database that is the snapshot, and what keeps that.
pub struct Beside {
    /// To be opened.
    pub storage: Arc<dyn Storage>,
    /// Dropped when it is closed.
    pub guard: LockGuard,
}

/// The snapshot is not dropped until the guard is.
fn keep(of: &Arc<dyn Storage>, name: &str) -> Result<LockGuard> {
    check_name(name)?;
    match files_of(of, name).lock_file(manifest::NAME, false) {
        Ok(Some(guard)) => Ok(guard),
        Ok(None) => Err(Error::InUse(format!("snapshot {name} is being dropped"))),
        Err(Error::NotFound) => Err(Error::BadConfig(format!("there is no snapshot {name}"))),
        Err(e) => Err(e),
    }
}

/// A directory that is not to be opened but with the snapshot that it belongs to.
///
/// # Errors
/// `BadConfig`: it is such a one. `Io`.
pub fn check_none(own: &dyn Storage) -> Result<()> {
    match own.exists(MARK)? {
        false => Ok(()),
        true => Err(Error::BadConfig(
            "only a snapshot of another server was opened here: give ferrite_open_snapshot again, or \
             take another data directory"
                .to_owned(),
        )),
    }
}

/// Lays a snapshot of the database in `of` out in `own`, whose earlier content goes, and writes the
/// server's files of it.
///
/// # Errors
/// `BadConfig`: there is no such snapshot, or there is a database in `own`. `InUse`: it is being dropped. `Corrupt`, `DiskFull`, `Io`.
pub fn lay_out(
    of: &Arc<dyn Storage>,
    own: &Arc<dyn Storage>,
    name: &str,
    server: Option<&dyn DataDirectory>,
) -> Result<Beside> {
    if own.exists(SUPERBLOCK)? && !own.exists(MARK)? {
        let text = "there is a database already where the snapshot is to be opened".to_owned();
        return Err(Error::BadConfig(text));
    }
    let of: Arc<dyn Storage> = Arc::new(ReadOnly::new(of.clone()));
    let guard = keep(&of, name)?;
    let (from, manifest) = snapshot(&of, name)?;
    if !own.exists(MARK)? {
        own.open(MARK, OpenMode::CreateNew, false)?;
        own.sync_dir()?;
    }
    let ours = |n: &str| rewind::is_state(n) || n.starts_with(STORE) || n == SUPERBLOCK;
    for left in own.list()?.into_iter().filter(|n| ours(n)) {
        own.remove(&left)?;
    }
    for head in ["checkpoint.", "map."] {
        copy_back(&*from, manifest.file_starting(head)?, &**own)?;
    }
    if let Ok(undo) = manifest.file(UNDO) {
        restore_undo(&*from, undo, &**own)?;
    }
    write_log(&*from, &manifest, own)?;
    if let Some(server) = server {
        for (path, content) in files_of_server(&*from, &manifest)? {
            let (database, file) = path.split_once('/').unwrap_or(("", &path));
            server.write(database, file, &content)?;
        }
    }
    debug_assert!(!own.exists(SUPERBLOCK)?, "a database too soon");
    copy_back(&*from, manifest.file(SUPERBLOCK)?, &**own)?;
    own.sync_dir()?;
    Ok(Beside {
        storage: Arc::new(Overlay::new(of, own.clone(), STORE)),
        guard,
    })
}
