//! The store's files: `store.0000`, `store.0001`, ... each a row of segments.
//!
//! Invariants: file n+1 is made only when file n is full; files go from the end only. A
//! segment of the store is a segment of exactly one file, so a blob never crosses files. The
//! last segment may be there in part: files grow and shrink in whole steps. Last files of less
//! than a step do not count: a crash left them when they were made or removed. They stay until they
//! are needed again, also while those before them go.
//!
//! Locking: the table of open files is a leaf, held to look up or to change an entry, never
//! over I/O on data. Growing and cutting are done by one thread at a time (the caller's
//! growth lock).

use ferrite_types::{Error, Result};

use crate::deps::{kill_point, Arc, OpenMode, RwLock, Storage, StorageFile};
use crate::word::{BLOCK_BYTES, GRANULE_BYTES, MAX_GRANULES};

const PREFIX: &str = "store.";
/// Lengths of files are multiples of this, in bytes.
const STEP_BYTES: u64 = 1 << 20;

/// How the store is divided; fixed at creation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Geometry {
    pub(crate) segment_bytes: u64,
    pub(crate) file_bytes: u64,
}

impl Geometry {
    /// None if the numbers cannot be a store's.
    pub(crate) fn checked(segment_bytes: u64, file_bytes: u64) -> Option<Geometry> {
        let unit = BLOCK_BYTES as u64 * 64;
        let sane = (unit..=1 << 30).contains(&segment_bytes)
            && segment_bytes % unit == 0
            && file_bytes >= segment_bytes
            && file_bytes % segment_bytes == 0
            && file_bytes <= 1 << 44;
        sane.then_some(Geometry {
            segment_bytes,
            file_bytes,
        })
    }

    pub(crate) fn segment_granules(&self) -> u32 {
        (self.segment_bytes / GRANULE_BYTES as u64) as u32
    }

    /// The least by which files grow, in bytes: it divides a segment.
    pub(crate) fn step_bytes(&self) -> u64 {
        match self.segment_bytes % STEP_BYTES {
            0 => STEP_BYTES,
            _ => BLOCK_BYTES as u64 * 64,
        }
    }

    /// The same in granules.
    pub(crate) fn step_granules(&self) -> u64 {
        self.step_bytes() / GRANULE_BYTES as u64
    }

    /// Number of the file and offset in it.
    pub(crate) fn place(&self, granule: u64) -> (usize, u64) {
        let per_file = self.file_bytes / GRANULE_BYTES as u64;
        let offset = granule % per_file * GRANULE_BYTES as u64;
        ((granule / per_file) as usize, offset)
    }

    /// "store.NNNN offset N", for messages.
    pub(crate) fn describe(&self, granule: u64) -> String {
        let (file, offset) = self.place(granule);
        format!("{} offset {offset}", file_name(file))
    }
}

pub(crate) fn file_name(n: usize) -> String {
    format!("{PREFIX}{n:04}")
}

/// Is that the name of one of the store's files?
pub fn is_store_file(name: &str) -> bool {
    file_number(name).is_some()
}

/// The number in a store file's name.
fn file_number(name: &str) -> Option<usize> {
    let n = name.strip_prefix(PREFIX)?.parse().ok()?;
    (file_name(n) == name).then_some(n)
}

pub(crate) struct Files {
    storage: Arc<dyn Storage>,
    geometry: Geometry,
    direct: bool,
    open: RwLock<Vec<Arc<dyn StorageFile>>>,
}

impl Files {
    /// Numbers of the files that are there, ascending.
    pub(crate) fn numbers(storage: &Arc<dyn Storage>) -> Result<Vec<usize>> {
        let names = storage.list()?;
        let mut numbers: Vec<usize> = names.iter().filter_map(|n| file_number(n)).collect();
        numbers.sort_unstable();
        debug_assert!(numbers.windows(2).all(|n| n[0] < n[1]), "a name twice");
        Ok(numbers)
    }

    /// Opens what is there; also how many granules there are, in whole steps.
    pub(crate) fn open(
        storage: &Arc<dyn Storage>,
        geometry: Geometry,
        direct: bool,
        mode: OpenMode,
    ) -> Result<(Files, u64)> {
        let mut numbers = Files::numbers(storage)?;
        let step = geometry.step_bytes();
        let mut found: Vec<(Arc<dyn StorageFile>, u64)> = Vec::new();
        for &number in &numbers {
            let file = storage.open(&file_name(number), mode, direct)?;
            let len = file.len()?.min(geometry.file_bytes);
            found.push((file, len - len % step));
        }
        // What a crash leaves when the last file is made or removed: it is made again when needed.
        while found.last().is_some_and(|(_, len)| *len == 0) {
            found.pop();
        }
        numbers.truncate(found.len());
        if let Some((n, number)) = (0..).zip(&numbers).find(|(n, number)| n != *number) {
            let (name, later) = (file_name(n), file_name(*number));
            return Err(Error::Corrupt(format!(
                "{name} is missing but {later} is there"
            )));
        }
        let short = |(_, len): &(_, u64)| *len != geometry.file_bytes;
        if let Some(n) = found.iter().position(short).filter(|n| n + 1 < found.len()) {
            let (before, later) = (file_name(n), file_name(n + 1));
            return Err(Error::Corrupt(format!(
                "{before} is too short: {later} follows it"
            )));
        }
        let bytes: u64 = found.iter().map(|(_, len)| *len).sum();
        let open = found.into_iter().map(|(file, _)| file).collect();
        let files = Files::of(storage, geometry, direct, (open, bytes));
        Ok((files, bytes / GRANULE_BYTES as u64))
    }

    /// These are all, and have so many bytes.
    pub(crate) fn of(
        storage: &Arc<dyn Storage>,
        geometry: Geometry,
        direct: bool,
        (open, bytes): (Vec<Arc<dyn StorageFile>>, u64),
    ) -> Files {
        assert!(
            open.len() as u64 == bytes.div_ceil(geometry.file_bytes),
            "{} files of {bytes} bytes",
            open.len()
        );
        Files {
            storage: storage.clone(),
            geometry,
            direct,
            open: RwLock::new(open),
        }
    }

    /// Files open now.
    pub(crate) fn count(&self) -> usize {
        self.open.read().len()
    }

    fn file(&self, n: usize) -> Result<Arc<dyn StorageFile>> {
        let file = self.open.read().get(n).cloned();
        file.ok_or_else(|| Error::Corrupt(format!("{} does not exist", file_name(n))))
    }

    /// The file in which that granule is, and its offset there.
    pub(crate) fn place(&self, granule: u64) -> Result<(Arc<dyn StorageFile>, u64)> {
        let (n, offset) = self.geometry.place(granule);
        Ok((self.file(n)?, offset))
    }

    /// Number of the file in which that granule is.
    pub(crate) fn number(&self, granule: u64) -> usize {
        self.geometry.place(granule).0
    }

    /// Reads whole blocks.
    pub(crate) fn read(&self, granule: u64, buf: &mut [u8]) -> Result<()> {
        let (n, offset) = self.geometry.place(granule);
        let len = buf.len();
        debug_assert!(
            offset % BLOCK_BYTES as u64 == 0 && len % BLOCK_BYTES == 0,
            "{len} bytes at {offset}: within a block"
        );
        self.file(n)?.read_at(buf, offset)
    }

    /// Writes whole blocks; the number of the file that is to be synced.
    pub(crate) fn write(&self, granule: u64, bytes: &[u8]) -> Result<usize> {
        let (n, offset) = self.geometry.place(granule);
        let len = bytes.len();
        assert!(
            len > 0 && len % BLOCK_BYTES == 0 && offset % BLOCK_BYTES as u64 == 0,
            "{len} bytes at {offset}: within a block"
        );
        assert!(
            offset + len as u64 <= self.geometry.file_bytes,
            "{len} bytes at {offset} of {}: beyond its end",
            file_name(n)
        );
        self.file(n)?.write_at(bytes, offset)?;
        Ok(n)
    }

    pub(crate) fn sync(&self, n: usize) -> Result<()> {
        self.file(n)?.sync_data()
    }

    /// Length in bytes of file n (for scans).
    pub(crate) fn len(&self, n: usize) -> Result<u64> {
        self.file(n)?.len()
    }

    /// Makes the range, within one segment, exist on disk. On error nothing remains of it.
    pub(crate) fn grow(&self, from: u64, end: u64) -> Result<()> {
        self.extend(from, end, &|file, offset, len| file.allocate(offset, len))
    }

    /// Makes the range, within one segment, part of the files: a hole. On error nothing remains of it.
    pub(crate) fn lengthen(&self, from: u64, end: u64) -> Result<()> {
        self.extend(from, end, &|file, offset, len| file.truncate(offset + len))
    }

    fn extend(
        &self,
        from: u64,
        end: u64,
        by: &dyn Fn(&dyn StorageFile, u64, u64) -> Result<()>,
    ) -> Result<()> {
        let (n, offset) = self.geometry.place(from);
        let step = self.geometry.step_granules();
        assert!(
            from < end && (from % step, end % step) == (0, 0),
            "{from} to {end}"
        );
        if end > MAX_GRANULES {
            return Err(Error::DiskFull(
                "the store's address space is used up".into(),
            ));
        }
        let (name, files) = (file_name(n), self.count());
        assert!(n <= files, "{name} is made after {files} files");
        let fresh = n >= files;
        let file = if fresh {
            match self.storage.open(&name, OpenMode::CreateNew, self.direct) {
                Err(Error::Exists) => self.storage.open(&name, OpenMode::ReadWrite, self.direct)?,
                other => other?,
            }
        } else {
            self.file(n)?
        };
        if fresh {
            kill_point!("store.file_made");
        }
        let grown = by(&*file, offset, (end - from) * GRANULE_BYTES as u64)
            .and_then(|()| file.sync_data())
            .and_then(|()| {
                if fresh {
                    self.storage.sync_dir()
                } else {
                    Ok(())
                }
            });
        if let Err(e) = grown {
            // Best effort: a longer file than needed does no harm.
            let _ = file.truncate(offset);
            if fresh {
                let _ = self.storage.remove(&name);
            }
            return Err(e);
        }
        if fresh {
            let mut open = self.open.write();
            assert!(open.len() == n, "{name} is made twice");
            open.push(file);
        }
        Ok(())
    }

    /// Gives what lies behind `end`, within one segment, back to the file system.
    pub(crate) fn cut(&self, end: u64) -> Result<()> {
        let (n, offset) = self.geometry.place(end);
        assert!(end > 0, "all of the store is cut");
        let files = self.count();
        assert!(n + 1 == files, "file {n} of {files} is cut");
        let file = self.file(n)?;
        file.truncate(offset)?;
        // Should its name stay, it does not count.
        file.sync_data()?;
        if offset > 0 {
            return Ok(());
        }
        kill_point!("store.file_emptied");
        let last = self.open.write().pop();
        assert!(last.is_some(), "file {n} was not open");
        drop((file, last));
        self.storage.remove(&file_name(n))?;
        self.storage.sync_dir()
    }

    /// Gives a range back to the file system; it stays part of the file.
    pub(crate) fn punch(&self, granule: u64, granules: u32) -> Result<()> {
        let (n, offset) = self.geometry.place(granule);
        let len = u64::from(granules) * GRANULE_BYTES as u64;
        assert!(
            len > 0 && offset + len <= self.geometry.file_bytes,
            "{len} bytes at {offset} of {}: beyond its end",
            file_name(n)
        );
        self.file(n)?.punch_hole(offset, len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ferrite_io::sim::SimStorage;

    const GEOMETRY: Geometry = Geometry {
        segment_bytes: 1 << 20,
        file_bytes: 2 << 20,
    };

    fn opened(disk: &SimStorage) -> Result<(Files, u64)> {
        let storage: Arc<dyn Storage> = Arc::new(disk.clone());
        Files::open(&storage, GEOMETRY, false, OpenMode::ReadWrite)
    }

    /// A crash between making a file and its first step, or between cutting it and its removal:
    /// what counts is what the files before it are, and they shrink and grow as without it.
    #[test]
    fn an_empty_last_file_does_not_count() {
        let step = GEOMETRY.step_granules();
        let disk = SimStorage::new(1);
        let (files, granules) = opened(&disk).unwrap();
        assert_eq!((files.count(), granules), (0, 0));
        files.grow(0, step).unwrap();
        files.grow(step, 2 * step).unwrap();
        for left in [1, 2] {
            disk.open(&file_name(left), OpenMode::CreateNew, false)
                .unwrap();
        }
        let (files, granules) = opened(&disk).unwrap();
        assert_eq!((files.count(), granules), (1, 2 * step));
        files.cut(step).unwrap();
        let (files, granules) = opened(&disk).unwrap();
        assert_eq!(
            (files.count(), granules),
            (1, step),
            "a short file before it"
        );
        files.grow(step, 2 * step).unwrap();
        files.grow(2 * step, 3 * step).unwrap();
        let (files, granules) = opened(&disk).unwrap();
        assert_eq!((files.count(), granules), (2, 3 * step));
        files.cut(2 * step).unwrap();
        assert_eq!(files.count(), 1);
    }

    /// The files before such a one go, and are made again.
    #[test]
    fn an_empty_last_file_may_stay_behind_a_gap() {
        let step = GEOMETRY.step_granules();
        let disk = SimStorage::new(2);
        let (files, _) = opened(&disk).unwrap();
        (0..4).for_each(|n| files.grow(n * step, (n + 1) * step).unwrap());
        disk.open(&file_name(3), OpenMode::CreateNew, false)
            .unwrap();
        let (files, granules) = opened(&disk).unwrap();
        assert_eq!((files.count(), granules), (2, 4 * step));
        (2..4).rev().for_each(|n| files.cut(n * step).unwrap());
        let (files, granules) = opened(&disk).unwrap();
        assert_eq!((files.count(), granules), (1, 2 * step));
        (2..7).for_each(|n| files.grow(n * step, (n + 1) * step).unwrap());
        let (files, granules) = opened(&disk).unwrap();
        assert_eq!((files.count(), granules), (4, 7 * step));
        drop(files);
        disk.remove(&file_name(1)).unwrap();
        let missing = opened(&disk).map(|(files, _)| files.count());
        let text = "store.0001 is missing but store.0002 is there";
        assert_eq!(missing, Err(Error::Corrupt(text.into())));
    }

    /// One whose name cannot be taken away has no content that a crash could bring back.
    #[test]
    fn a_file_that_stays_when_it_should_go_does_not_count() {
        let step = GEOMETRY.step_granules();
        for seed in 0..32 {
            let disk = SimStorage::new(3);
            let (files, _) = opened(&disk).unwrap();
            (0..3).for_each(|n| files.grow(n * step, (n + 1) * step).unwrap());
            let file = disk
                .open(&file_name(1), OpenMode::ReadWrite, false)
                .unwrap();
            file.write_at(&[7; 4096], 0).unwrap();
            disk.set_hook(Some(Arc::new(|event| match event.op {
                ferrite_io::sim::IoOp::Name => Err(Error::Io("it keeps its name".into())),
                _ => Ok(()),
            })));
            assert!(files.cut(2 * step).is_err());
            disk.set_hook(None);
            disk.crash(&mut ferrite_sync::random::Rng::new(seed));
            let disk = disk.boot();
            let (files, granules) = opened(&disk).unwrap();
            assert_eq!((files.count(), granules), (1, 2 * step));
        }
    }
}
