//! The file of an exported table: blocks, each with its checksum, written front to back.
//!
//! ```text
//! block    kind u8 | last u8 | index u16 | body bytes u32 | CRC-32C of the 8 bytes before and the body u32 | body
//! Head     magic "FERRXPRT" | version u32 | layout u64 | written (seconds since 1970) u64
//!          | AUTO_INCREMENT u64 | hidden row id u8 | server (text16) | table (text16)
//!          | columns: bytes u32, then for each a text and a zero byte
//!          | indexes u16, each: unique u8 | declared key parts u32 | name (text16)
//! Entries  of one index, ascending: key bytes u16 | value bytes u16 | key | value
//! Value    a piece of a value out of line; `last`: it ends with this piece
//! End      indexes u16, each: entries u64 | sum of their rows u64
//! ```
//! Numbers are little-endian; text16 is a length u16 and UTF-8. First Head, then the entries of the
//! clustered index, then those of the others in turn, then End. The values out of line that a row names
//! come right before the block that begins with the row, in the order of its references; the references in
//! the row are those of the table that was exported and mean nothing elsewhere but their number and lengths.
//!
//! Invariant: nothing read is believed before its checksum was right, and no more is kept in memory than one
//! block and one value. Locking: none.

use crate::backup::files::Output;
use ferrite_io::{OpenMode, Storage, StorageFile};
use ferrite_sync::Arc;
use ferrite_types::{put_text16, ByteReader, Error, Result};

const MAGIC: u64 = 0x5452_5058_5252_4546;
/// Of the format; a later one is refused.
const VERSION: u32 = 1;
/// Bytes of entries after which a block ends, and of a piece of a value.
const BLOCK_BYTES: usize = 256 << 10;
/// No body is longer but the head's: one entry more.
const MOST_BYTES: usize = BLOCK_BYTES + (64 << 10);
/// The server allows 4,096 columns.
const MOST_HEAD_BYTES: usize = 4 << 20;
const HEAD_BYTES: usize = 12;
/// Bytes of an entry before its key.
const ENTRY_HEAD_BYTES: usize = 4;
/// An index's number has 16 bits; the server allows 64 indexes.
const MOST_INDEXES: usize = 1 << 10;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(super) enum Kind {
    Head = 1,
    Entries = 2,
    Value = 3,
    End = 4,
}

impl Kind {
    /// No body of that kind is longer.
    fn most_bytes(self) -> usize {
        match self {
            Kind::Head => MOST_HEAD_BYTES,
            _ => MOST_BYTES,
        }
    }

    fn of(number: u8) -> Option<Kind> {
        [Kind::Head, Kind::Entries, Kind::Value, Kind::End]
            .into_iter()
            .find(|kind| *kind as u8 == number)
    }
}

/// An index as the file has it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct IndexHead {
    pub unique: bool,
    pub key_parts: u32,
    pub name: String,
}

/// What the file begins with.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Head {
    /// The plugin's number of how rows and keys are laid out: equal numbers, equal layouts.
    pub layout: u64,
    pub written_unix_s: u64,
    pub auto_increment: u64,
    pub hidden_row_id: bool,
    /// Version of the server that wrote it.
    pub server: String,
    /// "db/table".
    pub table: String,
    /// What each column is, in words of the plugin's; a zero byte ends each.
    pub columns: Vec<u8>,
    pub indexes: Vec<IndexHead>,
}

/// What an index has in all: the same rows in each of a table's indexes.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(super) struct Sum {
    pub entries: u64,
    rows: u64,
}

impl Sum {
    /// One more entry, of the row with that clustered key. In any order.
    pub(super) fn add(&mut self, pk: &[u8]) {
        let crc = u64::from(crc32c::crc32c(pk));
        let mixed = (crc ^ (pk.len() as u64) << 40).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.rows = self.rows.wrapping_add(mixed ^ mixed >> 31);
        self.entries += 1;
    }
}

impl Head {
    fn encode(&self) -> Vec<u8> {
        let is_ended = matches!(self.columns.last(), None | Some(0));
        assert!(is_ended, "the last column has no end");
        let mut out = MAGIC.to_le_bytes().to_vec();
        out.extend_from_slice(&VERSION.to_le_bytes());
        for number in [self.layout, self.written_unix_s, self.auto_increment] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        out.push(u8::from(self.hidden_row_id));
        put_text16(&self.server, &mut out);
        put_text16(&self.table, &mut out);
        out.extend_from_slice(&(self.columns.len() as u32).to_le_bytes());
        out.extend_from_slice(&self.columns);
        out.extend_from_slice(&(self.indexes.len() as u16).to_le_bytes());
        for index in &self.indexes {
            out.push(u8::from(index.unique));
            out.extend_from_slice(&index.key_parts.to_le_bytes());
            put_text16(&index.name, &mut out);
        }
        debug_assert_eq!(Head::decode(&out).ok().flatten().as_ref(), Some(self));
        out
    }

    /// None: it is cut off, or not such a head.
    fn decode(body: &[u8]) -> std::result::Result<Option<Head>, u32> {
        let mut r = ByteReader::new(body);
        if r.u64() != Some(MAGIC) {
            return Ok(None);
        }
        match r.u32() {
            Some(VERSION) => Ok(Head::fields(&mut r)),
            Some(version) => Err(version),
            None => Ok(None),
        }
    }

    fn fields(r: &mut ByteReader<'_>) -> Option<Head> {
        let (layout, written_unix_s, auto_increment) = (r.u64()?, r.u64()?, r.u64()?);
        let hidden_row_id = r.u8()? != 0;
        let (server, table) = (r.text16()?, r.text16()?);
        let columns = r.bytes32()?.to_vec();
        let mut indexes = Vec::new();
        for _ in 0..r.u16()? {
            indexes.push(IndexHead {
                unique: r.u8()? != 0,
                key_parts: r.u32()?,
                name: r.text16()?,
            });
        }
        let few = (1..=MOST_INDEXES).contains(&indexes.len());
        few.then_some(Head {
            layout,
            written_unix_s,
            auto_increment,
            hidden_row_id,
            server,
            table,
            columns,
            indexes,
        })
    }
}

/// The file while it is written.
pub(super) struct Writer {
    out: Output,
    index: u16,
    body: Vec<u8>,
}

impl Writer {
    /// # Errors
    /// `Exists`; `DiskFull`, an I/O error: the file is cut off, as after all that follow.
    pub(super) fn create(to: &dyn Storage, name: &str, head: &Head) -> Result<Writer> {
        assert!(
            (1..=MOST_INDEXES).contains(&head.indexes.len()),
            "{} indexes",
            head.indexes.len()
        );
        let mut writer = Writer {
            out: Output::create(to, name)?,
            index: 0,
            body: Vec::with_capacity(MOST_BYTES),
        };
        writer.block(Kind::Head, false, &head.encode())?;
        Ok(writer)
    }

    fn block(&mut self, kind: Kind, last: bool, body: &[u8]) -> Result<()> {
        assert!(body.len() <= kind.most_bytes(), "{} bytes", body.len());
        let mut head = [0; HEAD_BYTES];
        head[0] = kind as u8;
        head[1] = u8::from(last);
        head[2..4].copy_from_slice(&self.index.to_le_bytes());
        head[4..8].copy_from_slice(&(body.len() as u32).to_le_bytes());
        let crc = crc32c::crc32c_append(crc32c::crc32c(&head[..8]), body);
        head[8..].copy_from_slice(&crc.to_le_bytes());
        self.out.put(&head)?;
        self.out.put(body)
    }

    /// The block of entries ends.
    pub(super) fn end_block(&mut self) -> Result<()> {
        if self.body.is_empty() {
            return Ok(());
        }
        let body = std::mem::take(&mut self.body);
        self.block(Kind::Entries, false, &body)?;
        self.body = body;
        self.body.clear();
        Ok(())
    }

    /// Entries of that index follow.
    pub(super) fn begin_index(&mut self, number: usize) -> Result<()> {
        self.end_block()?;
        assert!(number < MOST_INDEXES && number >= usize::from(self.index));
        self.index = number as u16;
        Ok(())
    }

    /// The next entry.
    pub(super) fn entry(&mut self, key: &[u8], value: [&[u8]; 2]) -> Result<()> {
        let value_bytes = value[0].len() + value[1].len();
        let most = usize::from(u16::MAX);
        assert!(key.len() <= most && value_bytes <= most, "{}", key.len());
        self.body
            .extend_from_slice(&(key.len() as u16).to_le_bytes());
        self.body
            .extend_from_slice(&(value_bytes as u16).to_le_bytes());
        for bytes in [key, value[0], value[1]] {
            self.body.extend_from_slice(bytes);
        }
        match self.body.len() >= BLOCK_BYTES {
            true => self.end_block(),
            false => Ok(()),
        }
    }

    /// A value out of line of the row that begins the next block.
    pub(super) fn value(&mut self, value: &[u8]) -> Result<()> {
        debug_assert!(
            self.body.is_empty(),
            "the row before is in a block of its own"
        );
        let mut rest = value;
        loop {
            let (piece, after) = rest.split_at(rest.len().min(BLOCK_BYTES));
            self.block(Kind::Value, after.is_empty(), piece)?;
            if after.is_empty() {
                return Ok(());
            }
            rest = after;
        }
    }

    /// All of it is durable. Returns the bytes of the file.
    pub(super) fn finish(mut self, sums: &[Sum]) -> Result<u64> {
        self.end_block()?;
        let indexes = usize::from(self.index) + 1;
        assert_eq!(sums.len(), indexes, "not all indexes are written");
        let mut body = (sums.len() as u16).to_le_bytes().to_vec();
        for sum in sums {
            body.extend_from_slice(&sum.entries.to_le_bytes());
            body.extend_from_slice(&sum.rows.to_le_bytes());
        }
        self.block(Kind::End, true, &body)?;
        Ok(self.out.finish()?.bytes)
    }
}

/// The file while it is read.
pub(super) struct Reader {
    file: Arc<dyn StorageFile>,
    name: String,
    at: u64,
    bytes: u64,
    body: Vec<u8>,
}

/// A block that was read; its body is the reader's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Block {
    pub kind: Kind,
    pub last: bool,
    pub index: usize,
}

/// What stands before a block's body.
struct BlockHead {
    block: Block,
    len: usize,
    crc: u32,
    /// Of what is before the checksum.
    crc_before_body: u32,
}

impl Reader {
    /// # Errors
    /// `NotFound`: there is no such file. `Format`: it is of a later version. `Corrupt`: it is damaged, or
    /// something else. An I/O error.
    pub(super) fn open(from: &dyn Storage, name: &str) -> Result<(Reader, Head)> {
        let file = from.open(name, OpenMode::ReadOnly, false)?;
        let mut reader = Reader {
            bytes: file.len()?,
            file,
            name: name.to_owned(),
            at: 0,
            body: Vec::new(),
        };
        let first = reader.next()?;
        let head = match (first.kind, Head::decode(&reader.body)) {
            (Kind::Head, Ok(Some(head))) => head,
            (Kind::Head, Err(version)) => {
                let text = format!("{name}: an exported table of version {version}");
                return Err(Error::Format(text));
            }
            _ => return Err(reader.fault("not an exported table")),
        };
        Ok((reader, head))
    }

    /// The same file, read from the same place by another.
    pub(super) fn again(&self) -> Reader {
        Reader {
            file: self.file.clone(),
            name: self.name.clone(),
            at: self.at,
            bytes: self.bytes,
            body: Vec::new(),
        }
    }

    /// Goes on to the first block of that index, or of a later one, or to the end. What is passed over is
    /// not checked: it is somebody else's.
    pub(super) fn skip_to(&mut self, index: usize) -> Result<()> {
        loop {
            let head = self.head()?;
            if head.block.kind == Kind::End || head.block.index >= index {
                return Ok(());
            }
            self.at += (HEAD_BYTES + head.len) as u64;
        }
    }

    /// Has the next block nothing of that index, or of an earlier one?
    pub(super) fn is_past(&self, index: usize) -> Result<bool> {
        let next = self.head()?.block;
        Ok(next.kind == Kind::End || next.index > index)
    }

    /// An error that names the file and the place after the latest block.
    pub(super) fn fault(&self, what: &str) -> Error {
        Error::Corrupt(format!("file {} at {}: {what}", self.name, self.at))
    }

    /// The head of the next block, which is in the file as a whole; its checksum is not compared.
    fn head(&self) -> Result<BlockHead> {
        let mut bytes = [0; HEAD_BYTES];
        let left = self.bytes.saturating_sub(self.at);
        if left < HEAD_BYTES as u64 {
            return Err(self.fault("the file is cut off"));
        }
        self.file.read_at(&mut bytes, self.at)?;
        let [kind, last, i0, i1, l0, l1, l2, l3, c0, c1, c2, c3] = bytes;
        let len = u32::from_le_bytes([l0, l1, l2, l3]) as usize;
        let kind = Kind::of(kind).filter(|kind| len <= kind.most_bytes() && last <= 1);
        let Some(kind) = kind else {
            return Err(self.fault("not a block of an exported table"));
        };
        if left - (HEAD_BYTES as u64) < len as u64 {
            return Err(self.fault("the file is cut off"));
        }
        Ok(BlockHead {
            block: Block {
                kind,
                last: last != 0,
                index: usize::from(u16::from_le_bytes([i0, i1])),
            },
            len,
            crc: u32::from_le_bytes([c0, c1, c2, c3]),
            crc_before_body: crc32c::crc32c(&bytes[..8]),
        })
    }

    /// The next block.
    ///
    /// # Errors
    /// `Corrupt`: it is damaged or cut off. An I/O error.
    pub(super) fn next(&mut self) -> Result<Block> {
        let head = self.head()?;
        self.body.resize(head.len, 0);
        self.file
            .read_at(&mut self.body, self.at + HEAD_BYTES as u64)?;
        if crc32c::crc32c_append(head.crc_before_body, &self.body) != head.crc {
            return Err(self.fault("a block has the wrong checksum"));
        }
        self.at += (HEAD_BYTES + head.len) as u64;
        assert!(self.at <= self.bytes, "read beyond the end");
        Ok(head.block)
    }

    /// The body of the latest block.
    pub(super) fn body(&self) -> &[u8] {
        &self.body
    }

    /// Nothing follows the latest block.
    pub(super) fn is_at_end(&self) -> bool {
        self.at == self.bytes
    }

    /// The latest block, which ended the file, has these sums.
    pub(super) fn has_sums(&self, sums: &[Sum]) -> bool {
        let mut r = ByteReader::new(&self.body);
        let count = r.u16().map(usize::from);
        let mut sum = || {
            let (entries, rows) = (r.u64()?, r.u64()?);
            Some(Sum { entries, rows })
        };
        count == Some(sums.len()) && sums.iter().all(|s| sum() == Some(*s))
    }
}

/// The entry at `at` of a block's body and where the next one is; None: the body ends, or breaks off (then
/// `at` is not its end).
pub(super) fn entry_at(body: &[u8], at: usize) -> Option<(&[u8], &[u8], usize)> {
    let mut r = ByteReader::new(body.get(at..)?);
    let (key, value) = (usize::from(r.u16()?), usize::from(r.u16()?));
    let (key_at, end) = (at + ENTRY_HEAD_BYTES, at + ENTRY_HEAD_BYTES + key + value);
    let bytes = body.get(key_at..end)?;
    Some((&bytes[..key], &bytes[key..], end))
}
