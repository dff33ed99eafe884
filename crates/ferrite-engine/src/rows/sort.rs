//! Sorting more entries than fit in memory: runs of them, each sorted in memory, go to a scratch file
//! and are merged when all are there.
//!
//! A run lies in the file as records, one after the other; it is checked by a sum for each block of it,
//! kept in memory, so that damage is an error and never another entry. The file is not synced and
//! not logged: it goes with the sorter, and what an earlier process left goes at the start of the next.
//!
//! ```text
//! record   key length u16 | value length u16 | key | value     (little-endian)
//! ```
//!
//! Memory: the buffer while entries come in; while they are merged one block for each run, so 16 KiB
//! for each buffer full.
//!
//! Locking: none; a sorter has one user.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use ferrite_io::{OpenMode, Storage, StorageFile};
use ferrite_sync::Arc;
use ferrite_types::{Error, Result};

/// Unit of checking and of reading while runs are merged (bytes).
const BLOCK_BYTES: usize = 16 << 10;
/// A run is written only while so much more than itself is free: the log and the pages come first.
const LEAVE_FREE_BYTES: u64 = 64 << 20;
/// Bytes of a record before key and value.
const HEAD_BYTES: usize = 4;
/// Accounted per entry in memory besides its bytes.
const ENTRY_BYTES: usize = std::mem::size_of::<Start>();
const _: () = assert!(ENTRY_BYTES == 16);

const PREFIX: &str = "sort.";
const SUFFIX: &str = ".tmp";

fn sum_of(block: &[u8]) -> u32 {
    crc32c::crc32c(block)
}

/// Removes the files of an earlier process. What cannot be removed now is tried again when its name
/// is wanted.
pub(crate) fn remove_leftovers(storage: &dyn Storage) {
    for name in storage.list().unwrap_or_default() {
        if name.starts_with(PREFIX) && name.ends_with(SUFFIX) {
            let _ = storage.remove(&name);
        }
    }
}

/// A run in the file.
struct Spilled {
    offset: u64,
    bytes: u64,
    sums: Vec<u32>,
}

/// The scratch file; it goes with its owner.
struct SortFile {
    storage: Arc<dyn Storage>,
    name: String,
    file: Arc<dyn StorageFile>,
}

impl Drop for SortFile {
    fn drop(&mut self) {
        // What stays goes at the next start.
        let _ = self.storage.remove(&self.name);
    }
}

/// Where a record begins, and the first bytes of its key as a number, zeroes behind a short one: most comparisons of a
/// sort need no more, and so do not go to the record, which lies elsewhere in memory.
#[derive(Clone, Copy)]
struct Start {
    /// Bytes 0 to 7.
    head: u64,
    /// Bytes 8 to 11.
    next: u32,
    at: u32,
}

impl Start {
    fn new(key: &[u8], at: usize) -> Start {
        let mut first = [0u8; 12];
        let known = key.len().min(first.len());
        first[..known].copy_from_slice(&key[..known]);
        let [a, b, c, d, e, f, g, h, next @ ..] = first;
        Start {
            head: u64::from_be_bytes([a, b, c, d, e, f, g, h]),
            next: u32::from_be_bytes(next),
            at: at as u32,
        }
    }

    fn at(self) -> usize {
        self.at as usize
    }

    /// In the order of their keys; `bytes` has the records.
    fn cmp(&self, other: &Start, bytes: &[u8]) -> Ordering {
        let known = (self.head, self.next).cmp(&(other.head, other.next));
        known.then_with(|| record(bytes, self.at()).0.cmp(record(bytes, other.at()).0))
    }
}

/// In the order of keys each record lies elsewhere in memory: has the one of a little later loaded into the processor's
/// cache meanwhile.
#[inline]
fn load_ahead(bytes: &[u8], starts: &[Start], now: usize) {
    const AHEAD: usize = 12;
    if let Some(start) = starts.get(now + AHEAD) {
        std::hint::black_box(bytes[start.at()]);
    }
}

/// Gathers entries. Keys are unique.
pub(crate) struct Sorter {
    storage: Arc<dyn Storage>,
    name: String,
    /// Records; `starts` says where each begins.
    bytes: Vec<u8>,
    starts: Vec<Start>,
    most_bytes: usize,
    file: Option<SortFile>,
    end: u64,
    spilled: Vec<Spilled>,
}

fn length(bytes: &[u8], at: usize) -> usize {
    usize::from(u16::from_le_bytes([bytes[at], bytes[at + 1]]))
}

/// Key and value of the record that begins at `at`.
fn record(bytes: &[u8], at: usize) -> (&[u8], &[u8]) {
    let (key, value) = (length(bytes, at), length(bytes, at + 2));
    let body = at + HEAD_BYTES;
    (
        &bytes[body..body + key],
        &bytes[body + key..body + key + value],
    )
}

impl Sorter {
    /// `number` tells it from others that exist now; `most_bytes`: memory for entries.
    pub(crate) fn new(storage: Arc<dyn Storage>, number: u32, most_bytes: usize) -> Sorter {
        assert!(most_bytes > 0 && most_bytes <= 1 << 30, "{most_bytes}");
        Sorter {
            storage,
            name: format!("{PREFIX}{number}{SUFFIX}"),
            bytes: Vec::new(),
            starts: Vec::new(),
            most_bytes,
            file: None,
            end: 0,
            spilled: Vec::new(),
        }
    }

    /// One more entry.
    ///
    /// # Errors
    /// `DiskFull`: it is not in, and can be added again. An I/O error: entries are missing, the sorter is of no use
    /// any more.
    pub(crate) fn add(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        let most = usize::from(u16::MAX);
        assert!(key.len() <= most && value.len() <= most, "{}", key.len());
        let taken = self.bytes.len() + self.starts.len() * ENTRY_BYTES;
        if taken + HEAD_BYTES + key.len() + value.len() > self.most_bytes && taken > 0 {
            self.spill()?;
        }
        let start = self.bytes.len();
        self.starts.push(Start::new(key, start));
        for part in [key, value] {
            let bytes = part.len() as u16;
            self.bytes.extend_from_slice(&bytes.to_le_bytes());
        }
        self.bytes.extend_from_slice(key);
        self.bytes.extend_from_slice(value);
        debug_assert_eq!(record(&self.bytes, start), (key, value));
        Ok(())
    }

    fn sort(&mut self) {
        let bytes = &self.bytes;
        self.starts.sort_unstable_by(|a, b| a.cmp(b, bytes));
    }

    /// Writes what is in memory as one run.
    fn spill(&mut self) -> Result<()> {
        self.sort();
        let mut run = Vec::with_capacity(self.bytes.len());
        for (number, start) in self.starts.iter().enumerate() {
            load_ahead(&self.bytes, &self.starts, number);
            let from = start.at();
            let (key, value) = record(&self.bytes, from);
            run.extend_from_slice(&self.bytes[from..from + HEAD_BYTES + key.len() + value.len()]);
        }
        assert_eq!(run.len(), self.bytes.len(), "entries of a run are lost");
        let before = self.spilled.last().map_or(0, |r| r.offset + r.bytes);
        assert_eq!(before, self.end, "runs do not follow on each other");
        let free = self.storage.free_bytes()?;
        if free < LEAVE_FREE_BYTES + run.len() as u64 {
            let text = format!("{free} bytes are free: none left for sorting an index");
            return Err(Error::DiskFull(text));
        }
        if self.file.is_none() {
            // A file of that name is of an earlier life, and could not be removed then.
            if self.storage.exists(&self.name)? {
                self.storage.remove(&self.name)?;
            }
            let file = self.storage.open(&self.name, OpenMode::CreateNew, false)?;
            self.file = Some(SortFile {
                storage: self.storage.clone(),
                name: self.name.clone(),
                file,
            });
        }
        let Some(file) = &self.file else {
            return Err(Error::Bug("no file to sort in".into()));
        };
        file.file.write_at(&run, self.end)?;
        self.spilled.push(Spilled {
            offset: self.end,
            bytes: run.len() as u64,
            sums: run.chunks(BLOCK_BYTES).map(sum_of).collect(),
        });
        self.end += run.len() as u64;
        self.bytes.clear();
        self.starts.clear();
        Ok(())
    }

    /// All entries in the order of their keys.
    ///
    /// # Errors
    /// `DiskFull`, an I/O error: nothing comes of it.
    pub(crate) fn sorted(mut self) -> Result<Sorted> {
        self.sort();
        let mut sources = Vec::with_capacity(self.spilled.len() + 1);
        for run in std::mem::take(&mut self.spilled) {
            let Some(file) = &self.file else {
                return Err(Error::Bug("a run without a file".into()));
            };
            sources.push(Source::File(Reader::new(file.file.clone(), run)));
        }
        sources.push(Source::Memory {
            bytes: std::mem::take(&mut self.bytes),
            starts: std::mem::take(&mut self.starts),
            next: 0,
        });
        let mut sorted = Sorted {
            heap: BinaryHeap::with_capacity(sources.len()),
            sources,
            current: None,
            _file: self.file.take(),
        };
        for number in 0..sorted.sources.len() {
            sorted.advance(Head::of(number))?;
        }
        Ok(sorted)
    }
}

/// A run being read from its file.
struct Reader {
    file: Arc<dyn StorageFile>,
    run: Spilled,
    /// Next block to be read.
    block: usize,
    buffer: Vec<u8>,
    /// Where in `buffer` the next record begins.
    at: usize,
}

impl Reader {
    fn new(file: Arc<dyn StorageFile>, run: Spilled) -> Reader {
        Reader {
            file,
            run,
            block: 0,
            buffer: Vec::new(),
            at: 0,
        }
    }

    /// Has so many bytes in the buffer behind `at`; false at the end of the run.
    fn need(&mut self, bytes: usize) -> Result<bool> {
        while self.buffer.len() - self.at < bytes {
            let Some(sum) = self.run.sums.get(self.block).copied() else {
                return Ok(false);
            };
            self.buffer.drain(..self.at);
            self.at = 0;
            let from = (self.block * BLOCK_BYTES) as u64;
            let length = (self.run.bytes - from).min(BLOCK_BYTES as u64) as usize;
            let before = self.buffer.len();
            self.buffer.resize(before + length, 0);
            let place = &mut self.buffer[before..];
            self.file.read_at(place, self.run.offset + from)?;
            if sum_of(place) != sum {
                return Err(Error::Corrupt(format!(
                    "{} at byte {}: not what was written to it",
                    self.file.name(),
                    self.run.offset + from
                )));
            }
            self.block += 1;
        }
        Ok(true)
    }

    fn next(&mut self, head: &mut Head) -> Result<bool> {
        if !self.need(HEAD_BYTES)? {
            assert_eq!(self.at, self.buffer.len(), "a run ends in a record");
            return Ok(false);
        }
        let bytes = length(&self.buffer, self.at) + length(&self.buffer, self.at + 2);
        if !self.need(HEAD_BYTES + bytes)? {
            return Err(Error::Bug("a run ends in a record".into()));
        }
        head.take(record(&self.buffer, self.at));
        self.at += HEAD_BYTES + bytes;
        Ok(true)
    }
}

enum Source {
    Memory {
        bytes: Vec<u8>,
        starts: Vec<Start>,
        next: usize,
    },
    File(Reader),
}

impl Source {
    fn next(&mut self, head: &mut Head) -> Result<bool> {
        match self {
            Source::File(reader) => reader.next(head),
            Source::Memory {
                bytes,
                starts,
                next,
            } => {
                let Some(start) = starts.get(*next) else {
                    return Ok(false);
                };
                load_ahead(bytes, starts, *next);
                *next += 1;
                head.take(record(bytes, start.at()));
                Ok(true)
            }
        }
    }
}

/// The next entry of a source.
struct Head {
    key: Vec<u8>,
    value: Vec<u8>,
    source: usize,
}

impl Head {
    fn of(source: usize) -> Head {
        Head {
            key: Vec::new(),
            value: Vec::new(),
            source,
        }
    }

    fn take(&mut self, (key, value): (&[u8], &[u8])) {
        self.key.clear();
        self.key.extend_from_slice(key);
        self.value.clear();
        self.value.extend_from_slice(value);
    }
}

// The heap gives the greatest first: the smallest key is the greatest head.
impl Ord for Head {
    fn cmp(&self, other: &Head) -> Ordering {
        let turned = other.key.cmp(&self.key);
        turned.then(other.source.cmp(&self.source))
    }
}

impl PartialOrd for Head {
    fn partial_cmp(&self, other: &Head) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Head {
    fn eq(&self, other: &Head) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Head {}

/// Entries in the order of their keys.
pub(crate) struct Sorted {
    sources: Vec<Source>,
    heap: BinaryHeap<Head>,
    current: Option<Head>,
    _file: Option<SortFile>,
}

impl Sorted {
    fn advance(&mut self, mut head: Head) -> Result<()> {
        if self.sources[head.source].next(&mut head)? {
            self.heap.push(head);
        }
        Ok(())
    }

    /// The next entry.
    ///
    /// # Errors
    /// An I/O error, `Corrupt`.
    pub(crate) fn next(&mut self) -> Result<Option<(&[u8], &[u8])>> {
        if let Some(last) = self.current.take() {
            self.advance(last)?;
        }
        self.current = self.heap.pop();
        let follows = |head: &Head| self.heap.peek().is_none_or(|next| head.key < next.key);
        debug_assert!(self.current.as_ref().is_none_or(follows), "a key twice");
        let entry = self.current.as_ref();
        Ok(entry.map(|head| (head.key.as_slice(), head.value.as_slice())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ferrite_io::sim::{Fault, SimStorage};

    fn key_of(n: u64) -> Vec<u8> {
        let scattered = n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut key = scattered.to_be_bytes().to_vec();
        key.resize(8 + (n % 300) as usize, 7);
        key
    }

    fn all(mut sorted: Sorted) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
        let mut found = Vec::new();
        while let Some((key, value)) = sorted.next()? {
            found.push((key.to_vec(), value.to_vec()));
        }
        Ok(found)
    }

    fn expected(count: u64) -> Vec<(Vec<u8>, Vec<u8>)> {
        let entry = |n: u64| (key_of(n), vec![n as u8; (n % 70) as usize]);
        let mut entries: Vec<_> = (0..count).map(entry).collect();
        entries.sort();
        entries
    }

    /// Keys that are shorter than what is compared first, that differ behind it, and with zeroes at their end.
    #[test]
    fn keys_of_any_length_are_in_order() {
        let storage: Arc<dyn Storage> = Arc::new(SimStorage::new(3).boot());
        let mut keys = Vec::new();
        for length in 0..20 {
            for last in [0, 1, 0x7f, 0x80, 0xff] {
                let mut key = vec![0x41; length];
                key.push(last);
                keys.push(key.clone());
                key.push(0);
                keys.push(key);
            }
        }
        keys.push(Vec::new());
        let mut sorter = Sorter::new(storage, 7, 1 << 20);
        for key in keys.iter().rev() {
            sorter.add(key, b"v").unwrap();
        }
        let found = all(sorter.sorted().unwrap()).unwrap();
        let found: Vec<_> = found.into_iter().map(|(key, _)| key).collect();
        keys.sort();
        assert_eq!(found, keys);
    }

    fn filled(storage: &Arc<dyn Storage>, count: u64, most_bytes: usize) -> Sorter {
        let mut sorter = Sorter::new(storage.clone(), 7, most_bytes);
        for n in 0..count {
            let value = vec![n as u8; (n % 70) as usize];
            sorter.add(&key_of(n), &value).unwrap();
        }
        sorter
    }

    /// Who makes room adds the entry that was refused, and none is missing.
    #[test]
    fn an_entry_that_a_full_disk_has_refused_can_be_added_again() {
        let disk = SimStorage::new(4);
        let storage: Arc<dyn Storage> = Arc::new(disk.boot());
        let mut sorter = Sorter::new(storage, 7, 5_000);
        let mut refused = 0;
        for n in 0..2_000 {
            let value = vec![n as u8; (n % 70) as usize];
            if n % 3 == 0 {
                disk.inject(Fault::Full, 1);
            }
            while let Err(e) = sorter.add(&key_of(n), &value) {
                assert!(matches!(e, Error::DiskFull(_)), "{e}");
                refused += 1;
            }
            disk.clear_faults();
        }
        assert!(refused > 10, "{refused} were refused");
        assert_eq!(all(sorter.sorted().unwrap()).unwrap(), expected(2_000));
    }

    #[test]
    fn entries_come_in_order_whatever_fits_in_memory() {
        for most_bytes in [1, 100, 5_000, 100_000, 1 << 20] {
            let storage: Arc<dyn Storage> = Arc::new(SimStorage::new(3));
            let count = if most_bytes < 100 { 50 } else { 2_000 };
            let sorter = filled(&storage, count, most_bytes);
            assert_eq!(sorter.spilled.is_empty(), most_bytes == 1 << 20);
            assert_eq!(all(sorter.sorted().unwrap()).unwrap(), expected(count));
            assert!(storage.list().unwrap().is_empty(), "a file is left");
        }
    }

    #[test]
    fn nothing_is_sorted_too() {
        let storage: Arc<dyn Storage> = Arc::new(SimStorage::new(3));
        let sorter = Sorter::new(storage, 1, 100);
        assert!(sorter.sorted().unwrap().next().unwrap().is_none());
    }

    #[test]
    fn damage_in_the_file_is_told() {
        let storage: Arc<dyn Storage> = Arc::new(SimStorage::new(3));
        let sorter = filled(&storage, 2_000, 50_000);
        let file = &sorter.file.as_ref().unwrap().file;
        let mut byte = [0];
        file.read_at(&mut byte, 40_000).unwrap();
        file.write_at(&[byte[0] ^ 1], 40_000).unwrap();
        let found = sorter.sorted().and_then(all);
        assert!(matches!(found, Err(Error::Corrupt(_))), "{found:?}");
    }

    #[test]
    fn files_of_an_earlier_process_go() {
        let storage: Arc<dyn Storage> = Arc::new(SimStorage::new(3));
        storage
            .open("sort.9.tmp", OpenMode::CreateNew, false)
            .unwrap();
        storage
            .open("undo.spill", OpenMode::CreateNew, false)
            .unwrap();
        remove_leftovers(&*storage);
        assert_eq!(storage.list().unwrap(), ["undo.spill"]);
    }
}
