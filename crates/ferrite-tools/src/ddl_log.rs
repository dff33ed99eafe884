//! The server's own log of DDL, `ddl_recovery.log`: what a server that was killed in the middle of a statement does
//! again or undoes at its next start. A server that is shut down removes it.
//!
//! Blocks of a length that the first one names; integers are little-endian. The first block: four bytes of
//! magic, length of a block u16. Each other block is an entry, its first byte the kind: 1 begins the work of a
//! statement that has not ended, and others are steps of it, or of no use any more (MariaDB's
//! `sql/ddl_log.cc`, the same in 10.11 and 11.8).
//!
//! Invariant: the file is only read. Locking: none.

use ferrite_types::{Error, Result};
use std::io::{ErrorKind, Read};
use std::path::Path;

/// Its name in the data directory, unless the server has the option `log_ddl_recovery`.
pub const NAME: &str = "ddl_recovery.log";
const MAGIC: [u8; 4] = [254, 254, 11, 2];
/// Of the first block.
const HEAD: usize = 6;
/// The kind of an entry that begins the work of a statement.
const EXECUTE: u8 = 1;

/// Does the next start of the server go on with a statement? Not if the file is not there, or none of its.
///
/// # Errors
/// `Io`: it cannot be read.
pub fn has_open_entries(path: &Path) -> Result<bool> {
    let failed = |e: std::io::Error| Error::Io(format!("read {}: {e}", path.display()));
    let mut bytes = Vec::new();
    match std::fs::File::open(path) {
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(false),
        file => file
            .map_err(failed)?
            .read_to_end(&mut bytes)
            .map_err(failed)?,
    };
    Ok(is_open(&bytes))
}

fn is_open(file: &[u8]) -> bool {
    let Some(head) = file.get(..HEAD).filter(|head| head[..4] == MAGIC) else {
        return false;
    };
    let block = usize::from(u16::from_le_bytes([head[4], head[5]]));
    debug_assert!(head.len() == HEAD, "the head's bytes");
    block >= HEAD && file.chunks(block).skip(1).any(|entry| entry[0] == EXECUTE)
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
        assert_eq!(has_open_entries(Path::new("/no/such/file")), Ok(false));
    }
}
