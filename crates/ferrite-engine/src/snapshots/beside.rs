//! A snapshot opened by a second program, beside the one that has the database open.
//!
//! Its pages are read from the database's own store files: they stay where they are as long as the
//! snapshot is kept, and a lock on its manifest keeps it. Everything else is copied into a directory of
//! its own, and what the second program writes (recovery, and pages that it cleans) goes there, too
//! (`ferrite-io/src/overlay.rs`). Nothing of that outlives it: each opening begins anew.
//!
//! The file `opened-snapshot` tells that directory from one with a database of its own, which is never
//! touched, and says which snapshot it is for: of another one, the server's files would be mixed with
//! these. Text, sealed as other manifests:
//! ```text
//! ferrite-opened-snapshot 2
//! name NAME
//! number N
//! position N                          its point in time
//! taken N                             seconds since 1970
//! database 32 hex digits
//! end CRC32C
//! ```
//!
//! What is on disk if we die: the mark, durable, before anything else; the superblock last. With the
//! mark the next opening begins anew, whatever else there is.
//!
//! Locking: the own directory's lock from before the first look until the database is closed; the lock
//! on the manifest until the guard is dropped. Whoever drops the snapshot takes that alone, and never
//! waits for it.

use super::rewind::{files_of_server, snapshot, write_log};
use super::server_files::{databases_of, DataDirectory};
use super::{check_name, files_of, manifest, rewind, Manifest};
use crate::backup::chain::{copy_back, restore_undo};
use crate::backup::files::UNDO;
use crate::backup::sealed;
use ferrite_io::{LockGuard, Overlay, ReadOnly, Storage};
use ferrite_sync::{kill_point, Arc};
use ferrite_types::{Error, Result};

/// What the names of store files begin with.
const STORE: &str = "store.";
const SUPERBLOCK: &str = "superblock";
/// The directory is of a snapshot that was opened.
const MARK: &str = "opened-snapshot";
const VERSION: u32 = 2;

/// A database that is the snapshot, and what keeps that.
pub struct Beside {
    /// To be opened. It has the lock of the own directory.
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

/// What the mark says.
fn mark_of(manifest: &Manifest) -> String {
    let (info, uuid) = (&manifest.info, sealed::uuid_text(&manifest.uuid));
    // Names and numbers come again once all snapshots are dropped.
    let mut text = format!(
        "ferrite-{MARK} {VERSION}\nname {}\nnumber {}\nposition {}\ntaken {}\ndatabase {uuid}\n",
        info.name, info.number, info.position.0, info.taken_unix_s
    );
    sealed::seal(&mut text);
    text
}

/// The directory is this snapshot's alone from here on.
///
/// # Errors
/// `BadConfig`: there is a database, or it is another snapshot's. `DiskFull`, `Io`.
fn mark(own: &dyn Storage, manifest: &Manifest) -> Result<()> {
    let text = mark_of(manifest);
    if own.exists(MARK)? {
        return match sealed::read(own, MARK)? == text {
            true => Ok(()),
            false => Err(Error::BadConfig(format!(
                "another snapshot than this {} was opened here: take another data directory",
                manifest.info.name
            ))),
        };
    }
    if own.list()?.iter().any(|n| is_ours(n)) {
        let text = "there is a database already where the snapshot is to be opened".to_owned();
        return Err(Error::BadConfig(text));
    }
    sealed::write(own, "opened-snapshot.new", MARK, &text)?;
    kill_point!("beside.marked");
    debug_assert!(own.exists(MARK)?, "not marked");
    Ok(())
}

/// Is it one of the files that a database consists of?
fn is_ours(name: &str) -> bool {
    rewind::is_state(name) || name.starts_with(STORE) || name == SUPERBLOCK
}

/// A directory that is not to be opened but with the snapshot that it belongs to.
///
/// # Errors
/// `BadConfig`: it is such a one. `Io`.
pub fn check_none(own: &dyn Storage) -> Result<()> {
    match own.exists(MARK)? {
        false => Ok(()),
        true => Err(Error::BadConfig(
            "this data directory is not whole: a snapshot of another server was opened in it, and \
             can be again with ferrite_open_snapshot"
                .to_owned(),
        )),
    }
}

/// Lays a snapshot of the database in `of` out in `own`, whose earlier content goes, and writes the
/// server's files of it.
///
/// # Errors
/// `BadConfig`: there is no such snapshot, there is a database in `own`, or another snapshot was opened
/// there. `InUse`: it is being dropped, or `own` is open. `Corrupt`, `DiskFull`, `Io`.
pub fn lay_out(
    of: &Arc<dyn Storage>,
    own: &Arc<dyn Storage>,
    name: &str,
    server: Option<&dyn DataDirectory>,
) -> Result<Beside> {
    let lock = own.lock_exclusive()?;
    let of: Arc<dyn Storage> = Arc::new(ReadOnly::new(of.clone()));
    let guard = keep(&of, name)?;
    let (from, manifest) = snapshot(&of, name)?;
    assert!(manifest.info.name == name, "the manifest is of another one");
    mark(&**own, &manifest)?;
    for left in own.list()?.into_iter().filter(|n| is_ours(n)) {
        own.remove(&left)?;
    }
    kill_point!("beside.emptied");
    rewind::check_room(&**own, &manifest, 0)?;
    for head in ["checkpoint.", "map."] {
        copy_back(&*from, manifest.file_starting(head)?, &**own)?;
    }
    if let Ok(undo) = manifest.file(UNDO) {
        restore_undo(&*from, undo, &**own)?;
    }
    write_log(&*from, &manifest, own)?;
    if let Some(server) = server {
        for (database, files) in databases_of(&files_of_server(&*from, &manifest)?) {
            server.write(database, &files)?;
        }
    }
    kill_point!("beside.server_files_written");
    assert!(!own.exists(SUPERBLOCK)?, "a database too soon");
    copy_back(&*from, manifest.file(SUPERBLOCK)?, &**own)?;
    own.sync_dir()?;
    kill_point!("beside.laid_out");
    Ok(Beside {
        storage: Arc::new(Overlay::new(of, own.clone(), STORE, Some(lock))),
        guard,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use ferrite_io::sim::SimStorage;

    #[test]
    fn a_directory_is_one_snapshots_alone() {
        let own = SimStorage::new(1);
        let one = Manifest::sample("one");
        assert_eq!(check_none(&own), Ok(()));
        mark(&own, &one).unwrap();
        mark(&own, &one).unwrap();
        let again = |position: u64, taken_unix_s: u64| {
            let mut other = one.clone();
            other.info.position = ferrite_types::Lsn(position);
            other.info.taken_unix_s = taken_unix_s;
            other
        };
        let (position, taken_s) = (one.info.position.0, one.info.taken_unix_s);
        mark(&own, &again(position, taken_s)).unwrap();
        for other in [
            Manifest::sample("two"),
            again(position + 8, taken_s),
            again(position, taken_s + 1),
            Manifest {
                uuid: [9; 16],
                ..one.clone()
            },
        ] {
            assert!(matches!(mark(&own, &other), Err(Error::BadConfig(_))));
        }
        assert!(matches!(check_none(&own), Err(Error::BadConfig(_))));
        let full = SimStorage::new(2);
        full.open("store.0000", ferrite_io::OpenMode::CreateNew, false)
            .unwrap();
        assert!(matches!(mark(&full, &one), Err(Error::BadConfig(_))));
    }
}
