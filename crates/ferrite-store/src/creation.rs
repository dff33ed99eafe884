//! Making a database, and telling the remains of a creation that never finished from a database
//! that lost its superblock.
//!
//! The first thing a creation makes durable is the file `creating`, the last but one the
//! superblock; then `creating` goes, before anything is acknowledged. So where the superblock is
//! missing, either `creating` is there and nothing was ever committed, or nothing of a database
//! is there, or a database has lost its superblock and must not be overwritten.
//!
//! What is on disk if we die: with the mark and without a superblock, remains that the next
//! attempt removes; with both, a whole database, whose next start removes the mark.
//!
//! Locking: none; one program has the directory.

use ferrite_types::{Error, Result};

use crate::checkpoint;
use crate::deps::{kill_point, AlignedBuf, OpenMode, Storage};
use crate::files::is_store_file;
use crate::map;
use crate::superblock::{self, Superblock};

/// The mark.
const NAME: &str = "creating";
/// What it says to whoever looks at it.
const TEXT: &[u8] = b"A Ferrite database is being created here. No data was committed yet.\n";
/// How names of a database's files begin, in all rooms.
const OURS: [&str; 10] = [
    "store.",
    "map.",
    "checkpoint.",
    "superblock",
    "redo.",
    "undo.spill",
    "history.",
    "snapshot.",
    "warm.",
    NAME,
];
/// Names told in a message.
const TOLD: usize = 4;

/// The superblock of a database that is there.
///
/// # Errors
/// `NotFound` when there is none: an empty directory, or a creation that was broken off.
/// `Corrupt` when there must have been one.
pub(crate) fn superblock_of(storage: &dyn Storage) -> Result<Superblock> {
    match Superblock::read(storage) {
        Err(Error::NotFound) => {
            refuse_lost(storage)?;
            Err(Error::NotFound)
        }
        other => other,
    }
}

/// Whether there is no database, and one may be made here. Nothing is read of what there is.
///
/// # Errors
/// `Corrupt` when there must have been one, with what is missing. `Io`.
pub fn may_create(storage: &dyn Storage) -> Result<bool> {
    if storage.exists(superblock::NAME)? {
        return Ok(false);
    }
    refuse_lost(storage).map(|()| true)
}

/// The superblock is missing: may a database be made here?
fn refuse_lost(storage: &dyn Storage) -> Result<()> {
    let names: Vec<String> = storage
        .list()?
        .into_iter()
        .filter(|n| OURS.iter().any(|ours| n.starts_with(ours)))
        .collect();
    let marked = names.iter().any(|n| n == NAME);
    // Creation writes checkpoint.0 once; a second one means that the database was in use.
    let used = names.contains(&checkpoint::name(1));
    let remains = names.is_empty() || marked && !used;
    if remains || ferrite_sync::mutant!("store.create_over_remains") {
        return Ok(());
    }
    let told = names.iter().filter(|n| *n != NAME).take(TOLD);
    let told: Vec<&str> = told.map(String::as_str).collect();
    let more = match names.len() - told.len() {
        0 => String::new(),
        n => format!(" and {n} more"),
    };
    Err(Error::Corrupt(format!(
        "{} is missing, but other files of a database exist ({}{more}): no new database is \
         created over them. Restore {} from a backup or from where it was moved to; if this \
         database is not needed, move its files away",
        superblock::NAME,
        told.join(", "),
        superblock::NAME,
    )))
}

/// A creation begins: marked, and without remains of an earlier one.
///
/// # Errors
/// `Exists` when there is a database. `Corrupt` when there was one. `DiskFull`, `Io`.
pub(crate) fn begin(storage: &dyn Storage) -> Result<()> {
    if !may_create(storage)? {
        return Err(Error::Exists);
    }
    let file = match storage.open(NAME, OpenMode::CreateNew, false) {
        Err(Error::Exists) => storage.open(NAME, OpenMode::ReadWrite, false)?,
        other => other?,
    };
    file.write_at(&AlignedBuf::copy_of(TEXT), 0)?;
    file.sync_data()?;
    storage.sync_dir()?;
    kill_point!("store.creation_marked");
    remove_remains(storage)
}

/// Removes what an earlier creation left.
fn remove_remains(storage: &dyn Storage) -> Result<()> {
    let ours = |n: &str| {
        is_store_file(n)
            || n == superblock::ASIDE
            || (0..2).any(|slot| n == map::name(slot) || n == checkpoint::name(slot))
    };
    let names: Vec<String> = storage.list()?.into_iter().filter(|n| ours(n)).collect();
    // Store files from the last to the first, so that a crash here leaves a row without gaps.
    for name in names.iter().rev() {
        storage.remove(name)?;
    }
    if !names.is_empty() {
        storage.sync_dir()?;
    }
    Ok(())
}

/// There is a database: the mark goes. Nothing happens when there is none.
pub(crate) fn end(storage: &dyn Storage) -> Result<()> {
    if !storage.exists(NAME)? {
        return Ok(());
    }
    storage.remove(NAME)?;
    storage.sync_dir()?;
    kill_point!("store.creation_unmarked");
    Ok(())
}
