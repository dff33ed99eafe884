//! The store's files as far as they are there, for tools that only read.
//!
//! A server that opened a store with a gap would take lost pages for free space; who salvages wants all that is not lost.
//! So a file that is missing, and what a short one lacks, reads as zeros, in which there is no blob: pages that were there
//! cannot be read, and no others.
//!
//! Invariants: nothing is written; whatever is not there is told. Locking: none.

use ferrite_types::{Error, Faults, Result};

use crate::deps::{Arc, OpenMode, Storage, StorageFile};
use crate::files::{file_name, Files, Geometry};
use crate::word::{BLOCK_BYTES, GRANULE_BYTES, MAX_GRANULES};

/// More files than this, and than there are, are not missing: the last one's name is not to be believed.
const MOST_MISSING: usize = 1000;

/// As [`Files::open`]; what is wrong goes to `damage`.
///
/// # Errors
/// `Corrupt`: there are hardly any. Those of the directory; `Shortage`.
pub(crate) fn open(
    storage: &Arc<dyn Storage>,
    geometry: Geometry,
    damage: &mut Faults,
) -> Result<(Files, u64)> {
    let mut found = Vec::new();
    for number in Files::numbers(storage)? {
        found.push((number, Part::open(storage, number, damage)?));
    }
    let whole_steps = |len: u64| {
        let len = len.min(geometry.file_bytes);
        len - len % geometry.step_bytes()
    };
    // As after a crash: see `files`.
    while found
        .last()
        .is_some_and(|(_, part)| whole_steps(part.len) == 0)
    {
        found.pop();
    }
    check_last(&found, geometry)?;
    let mut open: Vec<Arc<dyn StorageFile>> = Vec::new();
    let mut bytes = 0;
    let last = found.last().map(|(number, _)| *number);
    for (number, part) in found {
        while open.len() < number {
            damage.push(format!("{} is missing", file_name(open.len())));
            open.push(Arc::new(Part::missing(open.len())));
        }
        let is_last = last == Some(number);
        if !is_last && part.len < geometry.file_bytes && part.file.is_some() {
            let (name, len) = (&part.name, part.len);
            let whole = geometry.file_bytes;
            damage.push_with(|| format!("{name} is too short: {len} bytes of {whole}"));
        }
        let len = match is_last {
            true => whole_steps(part.len),
            false => geometry.file_bytes,
        };
        assert!(open.len() == number, "file {number} behind {}", open.len());
        bytes = number as u64 * geometry.file_bytes + len;
        open.push(Arc::new(part));
    }
    let files = Files::of(storage, geometry, false, (open, bytes));
    Ok((files, bytes / GRANULE_BYTES as u64))
}

/// Would so many files be missing that it is rather one too many?
fn check_last(found: &[(usize, Part)], geometry: Geometry) -> Result<()> {
    let Some((last, part)) = found.last() else {
        return Ok(());
    };
    debug_assert!(found.len() <= last + 1, "{} files", found.len());
    let missing = last + 1 - found.len();
    let beyond = *last as u64 >= MAX_GRANULES * GRANULE_BYTES as u64 / geometry.file_bytes;
    if beyond || missing > MOST_MISSING.max(found.len()) {
        let (name, n) = (&part.name, found.len());
        return Err(Error::Corrupt(format!(
            "{missing} files before {name} are missing, {n} are there"
        )));
    }
    Ok(())
}

/// A file, as far as it is there. Zeros follow.
struct Part {
    name: String,
    file: Option<Arc<dyn StorageFile>>,
    /// Whole blocks, in bytes.
    len: u64,
}

impl Part {
    fn missing(number: usize) -> Part {
        Part {
            name: file_name(number),
            file: None,
            len: 0,
        }
    }

    /// One that cannot be opened is missing.
    fn open(storage: &Arc<dyn Storage>, number: usize, damage: &mut Faults) -> Result<Part> {
        let name = file_name(number);
        let opened = storage.open(&name, OpenMode::ReadOnly, false);
        match opened.and_then(|file| Ok((file.len()?, file))) {
            Ok((len, file)) => Ok(Part {
                name,
                file: Some(file),
                len: len - len % BLOCK_BYTES as u64,
            }),
            Err(e @ Error::Shortage(_)) => Err(e),
            Err(e) => {
                damage.push(format!("{name} cannot be opened: {e}"));
                Ok(Part::missing(number))
            }
        }
    }

    fn refused<T>(&self) -> Result<T> {
        Err(Error::Bug(format!("{} is only read", self.name)))
    }
}

impl StorageFile for Part {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        let block = BLOCK_BYTES as u64;
        debug_assert!(offset % block == 0, "{}: at {offset}", self.name);
        debug_assert!(self.len % block == 0, "{} bytes of {}", self.len, self.name);
        let there = self.len.saturating_sub(offset).min(buf.len() as u64);
        let (first, rest) = buf.split_at_mut(there as usize);
        rest.fill(0);
        match &self.file {
            Some(file) if there > 0 => file.read_at(first, offset),
            _ => Ok(()),
        }
    }

    fn write_at(&self, _buf: &[u8], _offset: u64) -> Result<()> {
        self.refused()
    }

    fn sync_data(&self) -> Result<()> {
        self.refused()
    }

    /// Of what is there.
    fn len(&self) -> Result<u64> {
        Ok(self.len)
    }

    fn allocate(&self, _offset: u64, _len: u64) -> Result<()> {
        self.refused()
    }

    fn truncate(&self, _len: u64) -> Result<()> {
        self.refused()
    }

    fn punch_hole(&self, _offset: u64, _len: u64) -> Result<()> {
        self.refused()
    }

    fn name(&self) -> &str {
        &self.name
    }

    fn direct_io_active(&self) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ferrite_io::sim::{FileDamage, SimStorage};

    const GEOMETRY: Geometry = Geometry {
        segment_bytes: 1 << 20,
        file_bytes: 2 << 20,
    };

    /// Files 0 to 3, the last one half as long, each byte its number + 1.
    fn disk() -> SimStorage {
        let disk = SimStorage::new(1);
        for n in 0..4 {
            let file = disk
                .open(&file_name(n), OpenMode::CreateNew, false)
                .unwrap();
            let bytes = vec![n as u8 + 1; (2 << 20) / (1 + n / 3)];
            file.write_at(&bytes, 0).unwrap();
        }
        disk
    }

    fn opened(disk: &SimStorage) -> Result<(Files, u64, Vec<String>)> {
        let storage: Arc<dyn Storage> = Arc::new(disk.clone());
        let mut damage = Faults::default();
        let (files, granules) = open(&storage, GEOMETRY, &mut damage)?;
        assert_eq!(damage.unnamed(), 0);
        Ok((files, granules, damage.texts().to_vec()))
    }

    /// The bytes at a granule.
    fn at(files: &Files, granule: u64) -> u8 {
        let mut block = [9; BLOCK_BYTES];
        files.read(granule, &mut block).unwrap();
        assert!(block.iter().all(|b| *b == block[0]));
        block[0]
    }

    const PER_FILE: u64 = (2 << 20) / GRANULE_BYTES as u64;

    #[test]
    fn what_is_there_is_read() {
        let (files, granules, damage) = opened(&disk()).unwrap();
        assert_eq!((files.count(), granules), (4, 7 * PER_FILE / 2));
        assert_eq!(damage, [""; 0]);
        let lost = disk();
        lost.damage_file("store.0001", FileDamage::Lost).unwrap();
        let cut = FileDamage::Cut {
            keep_bytes: (1 << 20) + 5000,
        };
        lost.damage_file("store.0002", cut).unwrap();
        let (files, granules, damage) = opened(&lost).unwrap();
        assert_eq!((files.count(), granules), (4, 7 * PER_FILE / 2));
        let short = "store.0002 is too short: 1052672 bytes of 2097152";
        assert_eq!(damage, ["store.0001 is missing", short]);
        let places = [0, 1, 2, 3].map(|n| at(&files, n * PER_FILE));
        assert_eq!(places, [1, 0, 3, 4]);
        let end = 2 * PER_FILE + 1024;
        assert_eq!((at(&files, end), at(&files, end + 4)), (3, 0));
        let lens = [0, 1, 2, 3].map(|n| files.len(n).unwrap());
        assert_eq!(lens, [2 << 20, 0, (1 << 20) + 4096, 1 << 20]);
        assert!(files.write(0, &[0; BLOCK_BYTES]).is_err());
    }

    #[test]
    fn a_name_that_is_not_to_be_believed() {
        let disk = disk();
        let file = disk.open("store.3000", OpenMode::CreateNew, false).unwrap();
        // A crash may leave that.
        let (files, _, damage) = opened(&disk).unwrap();
        assert_eq!((files.count(), damage.len()), (4, 0));
        file.write_at(&[1; 2 << 20], 0).unwrap();
        let text = "2996 files before store.3000 are missing, 5 are there";
        let refused = opened(&disk).map(|(files, ..)| files.count());
        assert_eq!(refused, Err(Error::Corrupt(text.into())));
    }
}
