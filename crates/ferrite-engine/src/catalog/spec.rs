//! A table's definition and how it lies in the dictionary.
//!
//! ```text
//! key    table id u64 big-endian | part u8 (0 = definition, 1 = statistics,
//!        2.. = the rest of the plugin's bytes)
//! ```
//! Longer keys are of foreign keys: `foreign`.
//!
//! The plugin's bytes describe columns and may be long. Their beginning, which the server
//! needs, is in the definition; the rest, for tools, in parts of its own, with length and
//! checksum of the rest in the definition. A new definition's rest goes to the half of the
//! part numbers (from 2, or from 128) that the old one's does not use, so that the record of the
//! definition switches from one to the other. What a crash leaves of either in the wrong half
//! goes at the next start or with the next definition. A rest that does not fit its checksum:
//! then there is none.
//!
//! Invariant: decoding never panics; what it gives was encoded here, or bytes are damaged and
//! it says so. Locking: none.

use crate::catalog::foreign::{ForeignPlace, Pending};
use ferrite_types::format::Packing;
use ferrite_types::{ByteReader, Error, IndexId, PageId, Result, TableId};

/// Largest encoded definition.
pub(crate) const MAX_SPEC_BYTES: usize = 8000;
/// The plugin's bytes that are in the definition itself.
pub(crate) const INLINE_BYTES: usize = 1024;
/// Bytes of the rest in one record.
const PART_BYTES: usize = 4000;
/// First part of the rest.
pub(crate) const FIRST_PART: u8 = 2;
/// First part of the rest when it is in the second half.
pub(crate) const SECOND_HALF: u8 = 128;
/// Parts of a rest that fits a half.
pub(crate) const HALF_PARTS: usize = (SECOND_HALF - FIRST_PART) as usize;
/// Longest rest.
pub(crate) const MAX_REST_BYTES: usize = PART_BYTES * (u8::MAX - FIRST_PART) as usize;
/// Flag of a definition whose plugin's bytes go on in parts.
const HAS_REST: u8 = 8;
/// Flag: the parts are in the second half.
const IN_SECOND_HALF: u8 = 16;
/// Flag of a definition with constraints in records of their own.
const HAS_FOREIGN: u8 = 32;
/// Flag: its children have yet to follow a change of names.
const HAS_PENDING: u8 = 64;
/// Flag of a copy that says which table it is to take the place of.
const HAS_REPLACES: u8 = 128;
const _: () = assert!(
    FIRST_PART > 1 && FIRST_PART < SECOND_HALF,
    "0 and 1 are taken"
);
// Either half holds as many parts: a definition is replaced by turns.
const _: () = assert!(HALF_PARTS <= (u8::MAX - SECOND_HALF) as usize + 1);
const _: () = assert!(INLINE_BYTES < MAX_SPEC_BYTES && PART_BYTES <= MAX_SPEC_BYTES);

/// One index of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexSpec {
    /// Name as declared.
    pub name: String,
    /// Two live entries may not have the same declared key parts.
    pub unique: bool,
    /// Declared key parts.
    pub key_parts: u32,
    /// Tree.
    pub id: IndexId,
    /// Root page of the tree.
    pub root: PageId,
}

/// A table's definition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableSpec {
    /// Table id; given by the dictionary.
    pub id: TableId,
    /// "db/table".
    pub name: String,
    /// Gone at restart.
    pub temporary: bool,
    /// Row ids are handed out by the core.
    pub hidden_row_id: bool,
    /// Changes are their own transactions (SEQUENCE).
    pub no_rollback: bool,
    /// How its pages are to be packed.
    pub packing: Packing,
    /// Creation, seconds since 1970.
    pub created_unix_s: u64,
    /// Indexes; the first is the clustered one.
    pub indexes: Vec<IndexSpec>,
    /// The plugin's bytes; of a table of an earlier life, at least their beginning.
    pub definition: Vec<u8>,
    /// Length and checksum of what is missing at the end of them.
    pub rest: Option<(u32, u32)>,
    /// Where the parts are that the plugin's bytes go on in.
    pub in_second_half: bool,
    /// Where its foreign keys are.
    pub foreign: Option<ForeignPlace>,
    /// What those that refer to it have yet to follow.
    pub pending: Option<Pending>,
    /// Of a copy (`#sql-...`), and of one that has got another name as long as that is there: the table that
    /// it takes the place of, "db/table". Of a table that is put aside for one: what it was called.
    pub replaces: Option<String>,
}

impl TableSpec {
    /// Memory that it takes, in bytes, about.
    pub(crate) fn memory_bytes(&self) -> usize {
        let indexes = self
            .indexes
            .iter()
            .map(|i| size_of::<IndexSpec>() + i.name.len());
        let replaces = self.replaces.as_ref().map_or(0, String::len);
        size_of::<TableSpec>()
            + self.name.len()
            + self.definition.len()
            + replaces
            + indexes.sum::<usize>()
    }
}

impl IndexSpec {
    /// An index that has no tree yet.
    pub fn new(name: &str, unique: bool, key_parts: u32) -> IndexSpec {
        IndexSpec {
            name: name.into(),
            unique,
            key_parts,
            id: IndexId(0),
            root: PageId::NONE,
        }
    }
}

const SPEC_VERSION: u8 = 1;

fn put_str(s: &[u8], out: &mut Vec<u8>) {
    assert!(u32::try_from(s.len()).is_ok(), "{} bytes", s.len());
    out.extend_from_slice(&(s.len() as u32).to_le_bytes());
    out.extend_from_slice(s);
}

fn text(r: &mut ByteReader<'_>) -> Option<String> {
    String::from_utf8(r.bytes32()?.to_vec()).ok()
}

impl TableSpec {
    /// A durable table with its keys in the rows, without anything of the plugin's.
    pub fn new(name: &str, indexes: Vec<IndexSpec>) -> TableSpec {
        TableSpec {
            id: TableId(0),
            name: name.into(),
            temporary: false,
            hidden_row_id: false,
            no_rollback: false,
            packing: Packing::NONE,
            created_unix_s: 0,
            indexes,
            definition: Vec::new(),
            rest: None,
            in_second_half: false,
            foreign: None,
            pending: None,
            replaces: None,
        }
    }

    /// The value of its record.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![SPEC_VERSION];
        let (inline, rest) = self.split();
        let flags = u8::from(self.temporary)
            | u8::from(self.hidden_row_id) << 1
            | u8::from(self.no_rollback) << 2
            | if rest.is_some() { HAS_REST } else { 0 }
            | if self.in_second_half {
                IN_SECOND_HALF
            } else {
                0
            }
            | self.foreign.map_or(0, |_| HAS_FOREIGN)
            | self.pending.as_ref().map_or(0, |_| HAS_PENDING)
            | self.replaces.as_ref().map_or(0, |_| HAS_REPLACES);
        out.push(flags);
        out.push(self.packing.to_u8());
        out.extend_from_slice(&self.created_unix_s.to_le_bytes());
        put_str(self.name.as_bytes(), &mut out);
        put_str(inline, &mut out);
        out.extend_from_slice(&(self.indexes.len() as u32).to_le_bytes());
        for index in &self.indexes {
            out.push(u8::from(index.unique));
            out.extend_from_slice(&index.key_parts.to_le_bytes());
            out.extend_from_slice(&index.id.0.to_le_bytes());
            out.extend_from_slice(&index.root.0.to_le_bytes());
            put_str(index.name.as_bytes(), &mut out);
        }
        if let Some((length, checksum)) = rest {
            out.extend_from_slice(&length.to_le_bytes());
            out.extend_from_slice(&checksum.to_le_bytes());
        }
        if let Some(place) = &self.foreign {
            out.push(place.generation);
            out.extend_from_slice(&place.length.to_le_bytes());
            out.extend_from_slice(&place.checksum.to_le_bytes());
        }
        if let Some(pending) = &self.pending {
            pending.put(&mut out);
        }
        if let Some(replaces) = &self.replaces {
            put_str(replaces.as_bytes(), &mut out);
        }
        debug_assert!(
            TableSpec::decode(self.id, &out).is_ok_and(|read| {
                (&read.name, &read.indexes, read.rest) == (&self.name, &self.indexes, rest)
                    && read.replaces == self.replaces
            }),
            "the definition of {} reads differently",
            self.name
        );
        out
    }

    /// The plugin's bytes that go into the definition, and what the rest is.
    fn split(&self) -> (&[u8], Option<(u32, u32)>) {
        match self.definition.split_at_checked(INLINE_BYTES) {
            Some((inline, rest)) if !rest.is_empty() => {
                (inline, Some((rest.len() as u32, crc32c::crc32c(rest))))
            }
            _ => (&self.definition, self.rest),
        }
    }

    /// Changes with each new definition, not with the names, constraints and trees of the table.
    pub(crate) fn definition_version(&self) -> u64 {
        let (inline, rest) = self.split();
        let (length, checksum) = rest.unwrap_or_default();
        let mut sum = crc32c::crc32c(&[u8::from(self.in_second_half)]);
        if self.packing != Packing::NONE {
            sum = crc32c::crc32c_append(sum, &[self.packing.to_u8()]);
        }
        for part in [length, checksum] {
            sum = crc32c::crc32c_append(sum, &part.to_le_bytes());
        }
        for index in &self.indexes {
            sum = crc32c::crc32c_append(sum, index.name.as_bytes());
        }
        u64::from(crc32c::crc32c(inline)) << 32 | u64::from(sum)
    }

    /// Number of the first part.
    pub(crate) fn first_part(&self) -> u8 {
        match self.in_second_half {
            true => SECOND_HALF,
            false => FIRST_PART,
        }
    }

    /// How many parts the rest takes.
    pub(crate) fn part_count(&self) -> usize {
        let rest_bytes = self.split().1.map_or(0, |(length, _)| length as usize);
        rest_bytes.div_ceil(PART_BYTES)
    }

    /// What goes into the parts.
    pub(crate) fn parts(&self) -> impl Iterator<Item = (u8, &[u8])> {
        let rest = self.definition.get(INLINE_BYTES..).unwrap_or(&[]);
        debug_assert!(
            self.part_count() <= usize::from(u8::MAX - self.first_part()) + 1
                || self.rest.is_some(),
            "{} parts from {} on",
            self.part_count(),
            self.first_part()
        );
        (self.first_part()..=u8::MAX).zip(rest.chunks(PART_BYTES))
    }

    /// Puts the plugin's bytes together again; false when the rest is not there.
    pub(crate) fn complete(&mut self, part: impl Fn(u8) -> Option<Vec<u8>>) -> bool {
        let Some((length, checksum)) = self.rest else {
            return true;
        };
        let mut rest = Vec::new();
        for chunk in (self.first_part()..=u8::MAX).map_while(part) {
            rest.extend_from_slice(&chunk);
            if rest.len() >= length as usize {
                break;
            }
        }
        if rest.len() != length as usize || crc32c::crc32c(&rest) != checksum {
            return false;
        }
        self.definition.extend_from_slice(&rest);
        self.rest = None;
        true
    }

    /// Decodes a dictionary record's value.
    ///
    /// # Errors
    /// `Corrupt` when it cannot be read.
    pub fn decode(id: TableId, bytes: &[u8]) -> Result<TableSpec> {
        Self::parse(id, bytes).ok_or_else(|| {
            Error::Corrupt(format!(
                "dictionary: definition of table {id} is unreadable"
            ))
        })
    }

    fn parse(id: TableId, bytes: &[u8]) -> Option<TableSpec> {
        let mut r = ByteReader::new(bytes);
        if r.u8()? != SPEC_VERSION {
            return None;
        }
        let flags = r.u8()?;
        // A later one that is not known here: as it is, which every program reads.
        let packing = Packing::from_u8(r.u8()?).unwrap_or(Packing::NONE);
        let created_unix_s = r.u64()?;
        let name = text(&mut r)?;
        let definition = r.bytes32()?.to_vec();
        let count = r.u32()?;
        let mut indexes = Vec::new();
        for _ in 0..count {
            indexes.push(IndexSpec {
                unique: r.u8()? != 0,
                key_parts: r.u32()?,
                id: IndexId(r.u32()?),
                root: PageId(r.u32()?),
                name: text(&mut r)?,
            });
        }
        let rest = match flags & HAS_REST {
            0 => None,
            _ => Some((r.u32()?, r.u32()?)),
        };
        let foreign = match flags & HAS_FOREIGN {
            0 => None,
            _ => Some(ForeignPlace {
                generation: r.u8()?,
                length: r.u32()?,
                checksum: r.u32()?,
            }),
        };
        let pending = match flags & HAS_PENDING {
            0 => None,
            _ => Some(Pending::read(&mut r)?),
        };
        let replaces = match flags & HAS_REPLACES {
            0 => None,
            _ => Some(text(&mut r)?),
        };
        Some(TableSpec {
            id,
            name,
            rest,
            temporary: flags & 1 != 0,
            hidden_row_id: flags & 2 != 0,
            no_rollback: flags & 4 != 0,
            in_second_half: flags & IN_SECOND_HALF != 0,
            packing,
            created_unix_s,
            indexes,
            definition,
            foreign,
            pending,
            replaces,
        })
    }
}

/// Table and part of a key; None when it is not one of the dictionary's.
pub(crate) fn split_key(key: &[u8]) -> Option<(TableId, u8)> {
    let (id, part) = key.split_at_checked(8)?;
    let id = u64::from_be_bytes(id.try_into().ok()?);
    (part.len() == 1).then(|| (TableId(id), part[0]))
}

/// The key of a part.
pub(crate) fn record_key(id: TableId, part: u8) -> [u8; 9] {
    let mut key = [part; 9];
    key[..8].copy_from_slice(&id.0.to_be_bytes());
    debug_assert_eq!(split_key(&key), Some((id, part)));
    key
}

#[cfg(test)]
mod tests {
    use super::*;
    use ferrite_types::format::Codec;

    fn spec(definition: usize) -> TableSpec {
        let index = |n: u32| IndexSpec {
            name: format!("index {n}"),
            unique: n == 1,
            key_parts: n,
            id: IndexId(20 + n),
            root: PageId(70 + n),
        };
        TableSpec {
            id: TableId(9),
            hidden_row_id: true,
            packing: Packing {
                codec: Codec::Zstd,
                level: 19,
            },
            created_unix_s: 77,
            definition: (0..definition).map(|i| (i * 7) as u8).collect(),
            ..TableSpec::new("db/table", (1..4).map(index).collect())
        }
    }

    /// Short definitions lie in one record; long ones go on in parts, and are whole again when
    /// all parts are there, and only then.
    #[test]
    fn definitions_of_every_length() {
        for length in [
            0,
            24,
            INLINE_BYTES,
            INLINE_BYTES + 1,
            INLINE_BYTES + 3 * PART_BYTES,
        ] {
            let whole = spec(length);
            let parts: Vec<Vec<u8>> = whole.parts().map(|(_, b)| b.to_vec()).collect();
            let part = |n: u8| parts.get(usize::from(n - FIRST_PART)).cloned();
            let mut read = TableSpec::decode(whole.id, &whole.encode()).unwrap();
            assert_eq!(read.encode(), whole.encode());
            assert_eq!(
                read.definition[..],
                whole.definition[..length.min(INLINE_BYTES)]
            );
            if length > INLINE_BYTES {
                assert!(!read.clone().complete(|_| None), "a part is missing");
                let damaged = |n: u8| {
                    part(n).map(|mut b| {
                        b[0] ^= 1;
                        b
                    })
                };
                assert!(!read.clone().complete(damaged));
            }
            assert!(read.complete(part));
            assert_eq!(read, whole);
        }
    }

    #[test]
    fn every_cut_is_refused() {
        let copy = TableSpec {
            replaces: Some("db/t".into()),
            ..spec(INLINE_BYTES + 5)
        };
        let bytes = copy.encode();
        let read = TableSpec::decode(TableId(9), &bytes).unwrap();
        assert_eq!(read.replaces, copy.replaces);
        for cut in 0..bytes.len() {
            TableSpec::decode(TableId(9), &bytes[..cut]).unwrap_err();
        }
    }
}
