//! The server's own log of DDL, `ddl_recovery.log`: what a server that was killed in the middle of a statement does
//! again or undoes at its next start. A server that is shut down removes it. The option `log_ddl_recovery` gives it another name,
//! which is not known when the server does not run: so every file in the data directory is looked at that may be one.
//!
//! Blocks of a length that the first one names; integers are little-endian. The first block: four bytes of
//! magic, length of a block u16. Each other block is an entry, its first byte the kind: 1 begins the work of a
//! statement that has not ended, and others are steps of it, or of no use any more (MariaDB's
//! `sql/ddl_log.cc`, the same in 10.11 and 11.8).
//!
//! Invariant: files are only read. Locking: none.

use ferrite_types::{Error, Result};
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};

/// Its name in the data directory, unless the server has the option `log_ddl_recovery`.
pub const NAME: &str = "ddl_recovery.log";
/// How all names end.
const EXTENSION: &str = "log";
/// How the name of its copy ends that a start makes of it before it goes on with what is in it, and that stays.
const COPY: &str = "-backup.log";
const MAGIC: [u8; 4] = [254, 254, 11, 2];
/// Of the first block.
const HEAD: usize = 6;
/// The kind of an entry that begins the work of a statement.
const EXECUTE: u8 = 1;

/// A log with a statement that the next start of the server goes on with: `name`, as the option gives it, or any in `dir`,
/// the data directory.
///
/// # Errors
/// `Io`: one cannot be read.
pub fn with_open_entries(dir: &Path, name: &Path) -> Result<Option<PathBuf>> {
    let mut paths = vec![dir.join(of_server(name))];
    paths.extend(all_in(dir)?);
    for path in paths {
        let failed = |e: std::io::Error| Error::Io(format!("read {}: {e}", path.display()));
        if has_open_entries(&path).map_err(failed)? {
            return Ok(Some(path));
        }
    }
    Ok(None)
}

/// The name that the server makes of its option: what follows the first point gives way.
fn of_server(name: &Path) -> PathBuf {
    let file = name.file_name().unwrap_or_default().to_string_lossy();
    let stem = file.split('.').next().unwrap_or_default();
    name.with_file_name(format!("{stem}.{EXTENSION}"))
}

/// The files of a directory that have such a name, and that the server could read.
fn all_in(dir: &Path) -> Result<Vec<PathBuf>> {
    let failed = |e: std::io::Error| Error::Io(format!("list {}: {e}", dir.display()));
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        let is_copy = path.to_string_lossy().ends_with(COPY);
        // A named pipe would be waited for.
        if path.extension().is_some_and(|e| e == EXTENSION) && !is_copy && path.is_file() {
            match File::open(&path) {
                Err(e) if e.kind() == ErrorKind::PermissionDenied => {}
                _ => found.push(path),
            }
        }
    }
    Ok(found)
}

/// Does the next start of the server go on with a statement? Not if the file is not there, or none of its.
fn has_open_entries(path: &Path) -> std::io::Result<bool> {
    let mut file = match File::open(path) {
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(false),
        file => file?,
    };
    // A log of another kind may be long.
    let mut bytes = Vec::new();
    file.by_ref().take(HEAD as u64).read_to_end(&mut bytes)?;
    if block_bytes(&bytes).is_some() {
        file.read_to_end(&mut bytes)?;
    }
    Ok(is_open(&bytes))
}

/// The length of a log's blocks; None: it is no log of DDL.
fn block_bytes(file: &[u8]) -> Option<usize> {
    let head = file.get(..HEAD).filter(|head| head[..4] == MAGIC)?;
    debug_assert!(head.len() == HEAD, "the head's bytes");
    let block = usize::from(u16::from_le_bytes([head[4], head[5]]));
    (block >= HEAD).then_some(block)
}

fn is_open(file: &[u8]) -> bool {
    let Some(block) = block_bytes(file) else {
        return false;
    };
    file.chunks(block).skip(1).any(|entry| entry[0] == EXECUTE)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log(kinds: &[u8]) -> Vec<u8> {
        let mut file = vec![0; 4096 * (1 + kinds.len())];
        file[..4].copy_from_slice(&MAGIC);
        file[4..6].copy_from_slice(&4096u16.to_le_bytes());
        for (n, kind) in kinds.iter().enumerate() {
            file[4096 * (n + 1)] = *kind;
        }
        file
    }

    #[test]
    fn an_unfinished_statement_is_found() {
        for (kinds, open) in [
            (&[][..], false),
            (&[3, 2, 0], false),
            (&[2, 1], true),
            (&[1, 2, 3], true),
        ] {
            assert_eq!(is_open(&log(kinds)), open, "{kinds:?}");
        }
        let whole = log(&[2, 1]);
        for cut in [0, 3, 5, 6, 4096, 4097] {
            assert!(!is_open(&whole[..cut]), "{cut} bytes");
        }
        assert!(is_open(&whole[..8193]), "the last entry is cut");
        let mut other = whole.clone();
        other[3] = 3;
        assert!(!is_open(&other), "of an older server");
        other = whole;
        other[4..6].fill(0);
        assert!(!is_open(&other), "blocks of no length");
        assert!(!has_open_entries(Path::new("/no/such/file")).unwrap());
    }

    #[test]
    fn names_that_the_server_makes() {
        for (option, name) in [
            ("ddl_recovery.log", "ddl_recovery.log"),
            ("ddl", "ddl.log"),
            ("ddl.recovery.bin", "ddl.log"),
            ("/a.b/ddl.x", "/a.b/ddl.log"),
            ("a.b/ddl", "a.b/ddl.log"),
        ] {
            assert_eq!(of_server(Path::new(option)), Path::new(name), "{option}");
        }
    }
}
