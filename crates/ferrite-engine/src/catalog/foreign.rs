//! Foreign keys as they are defined and stored: with their child, in records of their own.
//!
//! ```text
//! key     table id u64 big-endian | ff | generation u8 | chunk u16 big-endian
//! value   up to 4,000 bytes; those of all chunks together:
//!   version u8 | count u32, each constraint:
//!     on delete u8, on update u8 (Action) | stamp u64 | text name | text parent
//!     | count u16, each column: text own name, text parent's column
//!   text: length u16, bytes
//! ```
//! The child's definition says how long these bytes are, their checksum, and which of two
//! generations is theirs: a change writes the other one, then the definition, then removes the old
//! one.
//!
//! Invariant: decoding never panics and never makes more than the bytes can hold. Locking: none.

use ferrite_types::{put_text16, ByteReader, TableId};

/// Bytes in one chunk.
const CHUNK_BYTES: usize = 4000;
const VERSION: u8 = 1;
/// Longest encoded constraints of one table.
const MAX_BYTES: usize = CHUNK_BYTES * u16::MAX as usize;
/// What stands in a chunk's key where other records have their part.
const KEY_MARK: u8 = 0xff;

/// What becomes of the children of a row that is deleted, or whose key changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Action {
    /// The change is refused. Also what is meant when nothing is said.
    Restrict = 0,
    /// The same, said so.
    NoAction = 1,
    /// They go, or take the new key.
    Cascade = 2,
    /// Their columns become NULL.
    SetNull = 3,
}

impl Action {
    /// From its number.
    pub fn of(number: u8) -> Option<Action> {
        [
            Action::Restrict,
            Action::NoAction,
            Action::Cascade,
            Action::SetNull,
        ]
        .into_iter()
        .find(|a| *a as u8 == number)
    }
}

/// A constraint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForeignKey {
    /// Name, without the child's database.
    pub name: String,
    /// The table it refers to, "db/table".
    pub parent: String,
    /// Columns: the child's name, the parent's.
    pub columns: Vec<(String, String)>,
    /// When a parent row is deleted.
    pub on_delete: Action,
    /// When a parent row's key changes.
    pub on_update: Action,
    /// The last change of the parent's names it has followed (see [`Pending`]).
    pub stamp: u64,
}

/// A change of a parent's name or of its columns' that its children have to follow. Kept in the
/// parent's definition until all of them have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pending {
    /// No other change has it.
    pub stamp: u64,
    /// Name the children know.
    pub from: String,
    /// Columns: old name, new name.
    pub columns: Vec<(String, String)>,
}

/// What a child's definition says of its constraints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ForeignPlace {
    /// Which of the two generations of chunks.
    pub generation: u8,
    /// Bytes in all chunks.
    pub length: u32,
    /// CRC-32C of them.
    pub checksum: u32,
}

impl ForeignPlace {
    /// Chunks they take.
    fn chunks(&self) -> usize {
        (self.length as usize).div_ceil(CHUNK_BYTES)
    }

    /// The constraints, from their chunks by generation and number; None when these are not whole.
    pub(crate) fn read(
        &self,
        mut chunk: impl FnMut(u8, u16) -> Option<Vec<u8>>,
    ) -> Option<Vec<ForeignKey>> {
        let mut bytes = Vec::new();
        for n in (0..=u16::MAX).take(self.chunks()) {
            bytes.extend(chunk(self.generation, n)?);
        }
        let whole = bytes.len() == self.length as usize;
        (whole && crc32c::crc32c(&bytes) == self.checksum).then(|| decode(&bytes))?
    }
}

/// True for the copies that ALTER TABLE makes and leaves, and what CREATE OR REPLACE puts aside:
/// "db/#sql-...".
pub(crate) fn is_copy(table: &str) -> bool {
    let name = table.rsplit('/').next().unwrap_or(table);
    name.starts_with("#sql-")
}

/// How the names of tables begin that ALTER TABLE fills, and of what it has put aside for that.
const ALTER_COPY: &str = "#sql-alter-";
const ALTER_ORIGINAL: &str = "#sql-backup-";

/// True for a table, or a partition of one, that an ALTER TABLE fills: as long as it has this name, entries
/// of its indexes may be missing.
pub fn is_alter_copy(table: &str) -> bool {
    table_of(table).starts_with(ALTER_COPY)
}

/// True for a table, or a partition of one, that an ALTER TABLE has put aside: a copy takes its place.
pub fn is_alter_original(table: &str) -> bool {
    table_of(table).starts_with(ALTER_ORIGINAL)
}

/// "db/table" of what such a copy is to take the place of, if it is put aside meanwhile.
pub fn original_of(copy: &str) -> Option<String> {
    let rest = table_of(whole_table(copy)).strip_prefix(ALTER_COPY)?;
    Some(format!("{}/{ALTER_ORIGINAL}{rest}", database_of(copy)))
}

/// "db/table" of a partition of it, or of the table itself. On a volume that does not tell capitals apart,
/// the server writes the mark small.
pub fn whole_table(table: &str) -> &str {
    let end = table.find("#P#").or_else(|| table.find("#p#"));
    end.map_or(table, |end| &table[..end])
}

/// True for a partition of a table, and for the table that the server keeps a VECTOR INDEX in.
pub(crate) fn is_part(table: &str) -> bool {
    whole_table(table) != table || table.contains("#i#")
}

/// "db" of "db/table".
pub(crate) fn database_of(table: &str) -> &str {
    table.rsplit_once('/').map_or("", |(db, _)| db)
}

/// "table" of "db/table".
pub(crate) fn table_of(table: &str) -> &str {
    table.rsplit_once('/').map_or(table, |(_, name)| name)
}

fn put_pairs(pairs: &[(String, String)], out: &mut Vec<u8>) {
    assert!(
        u16::try_from(pairs.len()).is_ok(),
        "{} columns",
        pairs.len()
    );
    out.extend_from_slice(&(pairs.len() as u16).to_le_bytes());
    for (a, b) in pairs {
        put_text16(a, out);
        put_text16(b, out);
    }
}

fn pairs(r: &mut ByteReader<'_>) -> Option<Vec<(String, String)>> {
    let mut pairs = Vec::new();
    for _ in 0..r.u16()? {
        pairs.push((r.text16()?, r.text16()?));
    }
    Some(pairs)
}

/// The bytes of a table's constraints; None when they are too many.
pub(crate) fn encode(keys: &[ForeignKey]) -> Option<Vec<u8>> {
    assert!(
        u32::try_from(keys.len()).is_ok(),
        "{} constraints",
        keys.len()
    );
    let mut out = vec![VERSION];
    out.extend_from_slice(&(keys.len() as u32).to_le_bytes());
    for key in keys {
        out.extend_from_slice(&[key.on_delete as u8, key.on_update as u8]);
        out.extend_from_slice(&key.stamp.to_le_bytes());
        put_text16(&key.name, &mut out);
        put_text16(&key.parent, &mut out);
        put_pairs(&key.columns, &mut out);
    }
    debug_assert!(
        decode(&out).as_deref() == Some(keys),
        "constraints read differently"
    );
    (out.len() <= MAX_BYTES).then_some(out)
}

/// The constraints of a table; None when the bytes are damaged.
pub fn decode(bytes: &[u8]) -> Option<Vec<ForeignKey>> {
    let mut r = ByteReader::new(bytes);
    if r.u8()? != VERSION {
        return None;
    }
    let mut keys = Vec::new();
    for _ in 0..r.u32()? {
        let (on_delete, on_update) = (Action::of(r.u8()?)?, Action::of(r.u8()?)?);
        keys.push(ForeignKey {
            on_delete,
            on_update,
            stamp: r.u64()?,
            name: r.text16()?,
            parent: r.text16()?,
            columns: pairs(&mut r)?,
        });
    }
    Some(keys)
}

/// The chunks of encoded constraints, by number.
pub(crate) fn chunks(bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    assert!(
        bytes.len() <= MAX_BYTES,
        "{} bytes of constraints",
        bytes.len()
    );
    (0..=u16::MAX).zip(bytes.chunks(CHUNK_BYTES))
}

/// Key of a chunk.
pub(crate) fn chunk_key(id: TableId, generation: u8, chunk: u16) -> [u8; 12] {
    debug_assert!(id.0 != 0, "constraints of no table");
    let mut key = [KEY_MARK; 12];
    key[..8].copy_from_slice(&id.0.to_be_bytes());
    key[9] = generation;
    key[10..].copy_from_slice(&chunk.to_be_bytes());
    debug_assert_eq!(split_chunk_key(&key), Some((id, generation, chunk)));
    key
}

/// Table, generation and chunk of a key; None when it is none of a chunk.
pub(crate) fn split_chunk_key(key: &[u8]) -> Option<(TableId, u8, u16)> {
    let key: &[u8; 12] = key.try_into().ok()?;
    let id = u64::from_be_bytes(key[..8].try_into().ok()?);
    let chunk = u16::from_be_bytes([key[10], key[11]]);
    (key[8] == KEY_MARK).then_some((TableId(id), key[9], chunk))
}

impl Pending {
    /// Appends it to a definition.
    pub(crate) fn put(&self, out: &mut Vec<u8>) {
        let start = out.len();
        assert!(self.stamp != 0, "a change that no constraint could follow");
        out.extend_from_slice(&self.stamp.to_le_bytes());
        put_text16(&self.from, out);
        put_pairs(&self.columns, out);
        debug_assert_eq!(
            Pending::read(&mut ByteReader::new(&out[start..])).as_ref(),
            Some(self)
        );
    }

    /// Reads it from a definition.
    pub(crate) fn read(r: &mut ByteReader<'_>) -> Option<Pending> {
        Some(Pending {
            stamp: r.u64()?,
            from: r.text16()?,
            columns: pairs(r)?,
        })
    }

    /// Has `key`, whose parent is now called `to`, follow the change; false: it has, or does not
    /// refer to that parent.
    pub(crate) fn apply(&self, key: &mut ForeignKey, to: &str) -> bool {
        if key.parent != self.from || key.stamp == self.stamp {
            return false;
        }
        debug_assert!(!to.is_empty(), "{} loses its parent", key.name);
        key.parent = to.to_string();
        key.stamp = self.stamp;
        for (_, column) in &mut key.columns {
            if let Some((_, new)) = self.columns.iter().find(|(old, _)| same_name(old, column)) {
                *column = new.clone();
            }
        }
        debug_assert!(!self.clone().apply(&mut key.clone(), to), "followed twice");
        true
    }
}

/// Names of columns and constraints are compared without regard to case.
pub(crate) fn same_name(a: &str, b: &str) -> bool {
    a == b
        || a.chars()
            .flat_map(char::to_lowercase)
            .eq(b.chars().flat_map(char::to_lowercase))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(n: usize) -> ForeignKey {
        ForeignKey {
            name: format!("t_ibfk_{n}"),
            parent: "db/parent".into(),
            columns: vec![("a".into(), "b".into()), ("c".into(), "d".into())],
            on_delete: Action::Cascade,
            on_update: Action::SetNull,
            stamp: n as u64,
        }
    }

    #[test]
    fn constraints_come_back_and_every_cut_is_refused() {
        let keys: Vec<ForeignKey> = (0..3).map(key).collect();
        let bytes = encode(&keys).unwrap();
        assert_eq!(decode(&bytes), Some(keys));
        for cut in 0..bytes.len() {
            assert_eq!(decode(&bytes[..cut]), None, "{cut}");
        }
    }

    /// A change of names is followed once: columns that swap their names do not swap back.
    #[test]
    fn a_pending_change_is_followed_once() {
        let swap = |a: &str, b: &str| (a.to_string(), b.to_string());
        let change = Pending {
            stamp: 9,
            from: "db/parent".into(),
            columns: vec![swap("b", "d"), swap("D", "b")],
        };
        let mut key = key(1);
        assert!(change.apply(&mut key, "db/parent"));
        assert_eq!(key.columns, [swap("a", "d"), swap("c", "b")]);
        let once = key.clone();
        assert!(!change.apply(&mut key, "db/parent"));
        assert_eq!(key, once);
    }

    #[test]
    fn keys_of_chunks_are_none_of_parts() {
        use crate::catalog::spec::{record_key, split_key};
        let chunk = chunk_key(TableId(7), 1, 300);
        assert_eq!(split_chunk_key(&chunk), Some((TableId(7), 1, 300)));
        assert_eq!(split_key(&chunk), None);
        assert_eq!(split_chunk_key(&record_key(TableId(7), 255)), None);
        assert!(chunk[..] > record_key(TableId(7), 255)[..]);
        assert!(chunk[..] < record_key(TableId(8), 0)[..]);
    }
}
