//! Files of a backup, written front to back and read back, with their checksums.
//!
//! `index` (little-endian): magic "FERRBIDX", version u32, zero u32, backup id u64, count u64, then for
//! each page, ascending: page u32, checksum of its blob u32, location u64, page LSN u64, place in
//! the file `pages` u64 (all ones: the blob is in the backup that this one is an increment of).
//! `log`: chunks, each: length u32, CRC-32C of what follows u32, position of the first record u64;
//! then records, each: length u32, kind u8, body. `pages`: blobs as they are in the store.
//! `undo`: chunks of `undo.spill`, each: slot u32, checksum u32, zeros up to 4 KiB; the bytes.
//!
//! Invariant: nothing read is believed before its checksum was right. Locking: none.

use ferrite_io::{AlignedBuf, OpenMode, Storage, StorageFile, BLOCK_BYTES};
use ferrite_redo::LogRecord;
use ferrite_store::{CopiedFile, Location};
use ferrite_sync::Arc;
use ferrite_types::{ByteReader, Error, Lsn, PageId, Result};

pub(crate) const INDEX: &str = "index";
pub(crate) const LOG: &str = "log";
pub(crate) const PAGES: &str = "pages";
pub(crate) const UNDO: &str = "undo";

const INDEX_MAGIC: u64 = 0x5844_4942_5252_4546;
const INDEX_VERSION: u32 = 1;
const INDEX_HEAD: usize = 32;
const INDEX_ENTRY: usize = 32;
const LOG_HEAD: usize = 16;
/// Bytes of records after which a chunk of the log ends.
const LOG_CHUNK: usize = 1 << 20;
/// No chunk is longer: one record more, of a MiB.
const LOG_MOST: usize = 3 << 20;
/// Bytes written at once.
const WRITE_BYTES: usize = 1 << 20;

/// A file that is being written, front to back.
pub(crate) struct Output {
    /// Past the system's cache: written back all at once, a cache full of backup delays the log.
    file: Arc<dyn StorageFile>,
    /// The same file through the cache, for an end that fills no block.
    tail: Arc<dyn StorageFile>,
    name: String,
    buf: AlignedBuf,
    filled: usize,
    at: u64,
    crc: u32,
}

impl Output {
    pub(crate) fn create(to: &dyn Storage, name: &str) -> Result<Output> {
        Ok(Output {
            file: to.open(name, OpenMode::CreateNew, true)?,
            tail: to.open(name, OpenMode::ReadWrite, false)?,
            name: name.to_owned(),
            buf: AlignedBuf::zeroed(WRITE_BYTES),
            filled: 0,
            at: 0,
            crc: 0,
        })
    }

    /// Bytes so far.
    pub(crate) fn position(&self) -> u64 {
        debug_assert!(self.filled < WRITE_BYTES, "full and not written");
        self.at + self.filled as u64
    }

    pub(crate) fn put(&mut self, mut bytes: &[u8]) -> Result<()> {
        while !bytes.is_empty() {
            let n = bytes.len().min(WRITE_BYTES - self.filled);
            let (now, rest) = bytes.split_at(n);
            self.buf[self.filled..self.filled + n].copy_from_slice(now);
            self.filled += n;
            bytes = rest;
            if self.filled == WRITE_BYTES {
                self.flush()?;
            }
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<()> {
        /// Written back so often that the end has little left to sync, in writes.
        const SYNC_EVERY: u64 = 32;
        assert!(
            self.filled > 0 && self.at % WRITE_BYTES as u64 == 0,
            "{} bytes at {}",
            self.filled,
            self.at
        );
        let bytes = &self.buf[..self.filled];
        self.crc = crc32c::crc32c_append(self.crc, bytes);
        let file = if bytes.len() % BLOCK_BYTES == 0 {
            &self.file
        } else {
            &self.tail
        };
        file.write_at(bytes, self.at)?;
        self.at += self.filled as u64;
        self.filled = 0;
        if (self.at / WRITE_BYTES as u64) % SYNC_EVERY == 0 {
            self.file.sync_data()?;
        }
        Ok(())
    }

    /// All of it is durable.
    pub(crate) fn finish(mut self) -> Result<CopiedFile> {
        if self.filled > 0 {
            self.flush()?;
        }
        assert!(self.filled == 0, "{} bytes are left", self.filled);
        self.file.sync_data()?;
        Ok(CopiedFile {
            name: self.name,
            bytes: self.at,
            crc: self.crc,
        })
    }
}

/// A blob of a backup: a page, or its delta.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct PageEntry {
    pub page: PageId,
    pub at: Location,
    pub crc: u32,
    pub lsn: Lsn,
    /// Where its blob is in `pages`; None: in an earlier backup.
    pub place: Option<u64>,
}

impl PageEntry {
    /// By id, and a page's delta behind its blob.
    fn key(&self) -> (PageId, bool) {
        (self.page, self.at.is_delta())
    }
}

/// All pages of a backup, by id, and their deltas.
#[derive(Default)]
pub(crate) struct Index {
    pub entries: Vec<PageEntry>,
}

impl Index {
    /// The page, or its delta if `like` is the place of one.
    pub(crate) fn find(&self, page: PageId, like: Location) -> Option<&PageEntry> {
        self.find_key((page, like.is_delta()))
    }

    /// The page, not its delta.
    pub(crate) fn find_whole(&self, page: PageId) -> Option<&PageEntry> {
        self.find_key((page, false))
    }

    fn find_key(&self, key: (PageId, bool)) -> Option<&PageEntry> {
        debug_assert!(self.entries.len() > 64 || self.entries.is_sorted_by_key(PageEntry::key));
        let at = self.entries.binary_search_by_key(&key, PageEntry::key);
        at.ok().map(|at| &self.entries[at])
    }

    /// The entries are sorted here.
    pub(crate) fn write(&mut self, to: &dyn Storage, id: u64) -> Result<CopiedFile> {
        self.entries.sort_unstable_by_key(PageEntry::key);
        let twice = |pair: &[PageEntry]| pair[0].key() == pair[1].key();
        assert!(!self.entries.windows(2).any(twice), "a page is there twice");
        let mut out = Output::create(to, INDEX)?;
        out.put(&INDEX_MAGIC.to_le_bytes())?;
        out.put(&INDEX_VERSION.to_le_bytes())?;
        out.put(&[0; 4])?;
        out.put(&id.to_le_bytes())?;
        out.put(&(self.entries.len() as u64).to_le_bytes())?;
        for e in &self.entries {
            debug_assert!(Location::checked(e.at.raw()).is_some(), "{:?}", e.at);
            out.put(&e.page.0.to_le_bytes())?;
            out.put(&e.crc.to_le_bytes())?;
            out.put(&e.at.raw().to_le_bytes())?;
            out.put(&e.lsn.0.to_le_bytes())?;
            out.put(&e.place.unwrap_or(u64::MAX).to_le_bytes())?;
        }
        out.finish()
    }

    /// # Errors
    /// `Corrupt` naming the file.
    pub(crate) fn read(from: &dyn Storage, id: u64, file: &CopiedFile) -> Result<Index> {
        let bytes = read_whole(from, file)?;
        Index::decode(&bytes, id).ok_or_else(|| bad(INDEX, "unreadable"))
    }

    fn decode(bytes: &[u8], id: u64) -> Option<Index> {
        let mut r = ByteReader::new(bytes);
        let sound = r.u64()? == INDEX_MAGIC && r.u32()? == INDEX_VERSION && r.u32()? == 0;
        if !sound || r.u64()? != id {
            return None;
        }
        let count = usize::try_from(r.u64()?).ok()?;
        if bytes.len() != INDEX_HEAD + count.checked_mul(INDEX_ENTRY)? {
            return None;
        }
        let mut entries: Vec<PageEntry> = Vec::with_capacity(count);
        for _ in 0..count {
            let page = PageId(r.u32()?);
            let crc = r.u32()?;
            let at = Location::checked(r.u64()?).filter(|at| !at.is_none())?;
            let lsn = Lsn(r.u64()?);
            let place = Some(r.u64()?).filter(|place| *place != u64::MAX);
            let entry = PageEntry {
                page,
                at,
                crc,
                lsn,
                place,
            };
            let disordered = entries.last().is_some_and(|e| e.key() >= entry.key());
            if page == PageId::NONE || disordered {
                return None;
            }
            entries.push(entry);
        }
        Some(Index { entries })
    }
}

fn bad(name: &str, what: &str) -> Error {
    Error::Corrupt(format!("{name}: {what}"))
}

/// Opens a file that the manifest names.
///
/// # Errors
/// `Corrupt` when it is missing or has another length.
pub(crate) fn open(from: &dyn Storage, file: &CopiedFile) -> Result<Arc<dyn StorageFile>> {
    let opened = match from.open(&file.name, OpenMode::ReadOnly, false) {
        Err(Error::NotFound) => return Err(bad(&file.name, "missing")),
        other => other?,
    };
    let bytes = opened.len()?;
    if bytes != file.bytes {
        let text = format!("{bytes} bytes instead of {}", file.bytes);
        return Err(bad(&file.name, &text));
    }
    Ok(opened)
}

/// Reads a file of a size that memory can hold.
pub(crate) fn read_whole(from: &dyn Storage, file: &CopiedFile) -> Result<Vec<u8>> {
    let mut bytes = vec![0; file.bytes as usize];
    open(from, file)?.read_at(&mut bytes, 0)?;
    match crc32c::crc32c(&bytes) == file.crc {
        true => Ok(bytes),
        false => Err(bad(&file.name, "checksum differs")),
    }
}

/// Reads a file from front to back; `each` gets its pieces. Its checksum is right then.
pub(crate) fn check_whole(
    from: &dyn Storage,
    file: &CopiedFile,
    each: &mut dyn FnMut(&[u8]),
) -> Result<()> {
    let opened = open(from, file)?;
    let mut buf = AlignedBuf::zeroed(WRITE_BYTES);
    let (mut at, mut crc) = (0, 0);
    while at < file.bytes {
        let n = (file.bytes - at).min(WRITE_BYTES as u64) as usize;
        opened.read_at(&mut buf[..n], at)?;
        crc = crc32c::crc32c_append(crc, &buf[..n]);
        each(&buf[..n]);
        at += n as u64;
    }
    match crc == file.crc {
        true => Ok(()),
        false => Err(bad(&file.name, "checksum differs")),
    }
}

/// The log being written.
pub(crate) struct LogOutput {
    out: Output,
    chunk: Vec<u8>,
    first: Lsn,
    end: Lsn,
}

impl LogOutput {
    pub(crate) fn create(to: &dyn Storage, start: Lsn) -> Result<LogOutput> {
        Ok(LogOutput {
            out: Output::create(to, LOG)?,
            chunk: Vec::with_capacity(LOG_MOST),
            first: start,
            end: start,
        })
    }

    pub(crate) fn put(&mut self, rec: &LogRecord<'_>) -> Result<()> {
        assert!(rec.start == self.end, "a gap at {}", self.end);
        assert!(rec.end > rec.start, "an empty record at {}", rec.start);
        self.chunk
            .extend_from_slice(&(rec.body.len() as u32).to_le_bytes());
        self.chunk.push(rec.kind);
        self.chunk.extend_from_slice(rec.body);
        self.end = rec.end;
        match self.chunk.len() >= LOG_CHUNK {
            true => self.end_chunk(),
            false => Ok(()),
        }
    }

    fn end_chunk(&mut self) -> Result<()> {
        let crc = crc32c::crc32c(&self.first.0.to_le_bytes());
        let crc = crc32c::crc32c_append(crc, &self.chunk);
        assert!(self.first < self.end, "an empty chunk at {}", self.first);
        assert!(self.chunk.len() <= LOG_MOST, "{} bytes", self.chunk.len());
        self.out.put(&(self.chunk.len() as u32).to_le_bytes())?;
        self.out.put(&crc.to_le_bytes())?;
        self.out.put(&self.first.0.to_le_bytes())?;
        self.out.put(&self.chunk)?;
        self.chunk.clear();
        self.first = self.end;
        Ok(())
    }

    pub(crate) fn finish(mut self, end: Lsn) -> Result<CopiedFile> {
        assert!(self.end == end, "the log ends at {}, not {end}", self.end);
        if !self.chunk.is_empty() {
            self.end_chunk()?;
        }
        self.out.finish()
    }
}

/// A record of a backup's log.
pub(crate) struct KeptRecord<'a> {
    pub start: Lsn,
    pub end: Lsn,
    pub kind: u8,
    pub body: &'a [u8],
}

/// Calls `each` with every record of the log from `start` to `end`.
///
/// # Errors
/// `Corrupt` naming the file; what `each` returns.
pub(crate) fn each_record(
    from: &dyn Storage,
    file: &CopiedFile,
    (start, end): (Lsn, Lsn),
    each: &mut dyn FnMut(&KeptRecord<'_>) -> Result<()>,
) -> Result<()> {
    assert!(start <= end, "log from {start} to {end}");
    let opened = open(from, file)?;
    let (mut at, mut position) = (0u64, start);
    let mut chunk = vec![0; LOG_MOST];
    while at < file.bytes {
        let mut head = [0; LOG_HEAD];
        opened.read_at(&mut head, at)?;
        let mut r = ByteReader::new(&head);
        let cut = || bad(LOG, "cut off");
        let len = r.u32().ok_or_else(cut)? as usize;
        let crc = r.u32().ok_or_else(cut)?;
        let first = Lsn(r.u64().ok_or_else(cut)?);
        if len > LOG_MOST || first != position {
            return Err(bad(LOG, &format!("no chunk at offset {at}")));
        }
        let chunk = &mut chunk[..len];
        opened.read_at(chunk, at + LOG_HEAD as u64)?;
        let found = crc32c::crc32c_append(crc32c::crc32c(&head[8..]), chunk);
        if found != crc {
            return Err(bad(LOG, &format!("checksum differs at offset {at}")));
        }
        position = records_of(chunk, position, each)?;
        at += (LOG_HEAD + len) as u64;
    }
    match position == end {
        true => Ok(()),
        false => Err(bad(LOG, &format!("ends at {position} instead of {end}"))),
    }
}

fn records_of(
    chunk: &[u8],
    mut position: Lsn,
    each: &mut dyn FnMut(&KeptRecord<'_>) -> Result<()>,
) -> Result<Lsn> {
    let mut r = ByteReader::new(chunk);
    while let Some(len) = r.u32() {
        let cut = || bad(LOG, "a record is cut off");
        let kind = r.u8().ok_or_else(cut)?;
        let body = r.take(len as usize).ok_or_else(cut)?;
        let end = Lsn(position.0 + 8 + u64::from(len).next_multiple_of(8));
        debug_assert!(end > position && body.len() == len as usize);
        each(&KeptRecord {
            start: position,
            end,
            kind,
            body,
        })?;
        position = end;
    }
    Ok(position)
}
