//! What the plugin wrote down about a table's columns and keys (`plugin/description.h`).
//!
//! Invariant: decoding never panics and never makes more than the bytes can hold. Locking: none.

use crate::catalog::foreign::same_name;
use ferrite_types::ByteReader;

/// The part of the plugin's bytes that servers read, in front of the description.
const FIXED_BYTES: usize = 24;
const MAGIC: &[u8] = b"FRc1";

const STORED: u8 = 1;
const NULLABLE: u8 = 2;
const UNSIGNED: u8 = 4;
const VIRTUAL: u8 = 8;
const AUTO_INCREMENT: u8 = 32;
const COMPRESSED: u8 = 64;
const ROW_END: u8 = 128;

/// How a column lies in a row.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Raw bytes of fixed length.
    Fixed,
    /// CHAR without its trailing spaces.
    Char,
    /// VARCHAR, VARBINARY.
    Var,
    /// BLOB, TEXT, JSON, GEOMETRY.
    Blob,
}

/// A column.
#[derive(Clone, Debug)]
pub struct Column {
    /// How it lies in a row.
    pub kind: Kind,
    flags: u8,
    /// The server's number of the type.
    pub server_type: u8,
    /// Digits behind the point.
    pub decimals: u8,
    /// The part of the primary key it comes back from.
    pub pk_part: Option<u16>,
    /// Bytes in the server's record, without length bytes.
    pub length: u32,
    /// Digits of a DECIMAL.
    pub precision: u32,
    /// Name.
    pub name: String,
    /// Type as CREATE TABLE has it.
    pub sql_type: String,
    /// Character set.
    pub charset: String,
    /// Collation; `binary` for what is no text.
    pub collation: String,
}

impl Column {
    /// Has a place in the row.
    pub fn stored(&self) -> bool {
        self.flags & STORED != 0
    }
    /// May be NULL.
    pub fn nullable(&self) -> bool {
        self.flags & NULLABLE != 0
    }
    /// Without negative numbers.
    pub fn unsigned(&self) -> bool {
        self.flags & UNSIGNED != 0
    }
    /// Computed when read: no row has it.
    pub fn is_virtual(&self) -> bool {
        self.flags & VIRTUAL != 0
    }
    /// Numbers itself.
    pub fn auto_increment(&self) -> bool {
        self.flags & AUTO_INCREMENT != 0
    }
    /// Trailing spaces count.
    pub fn is_no_pad(&self) -> bool {
        self.collation.contains("nopad")
    }
    /// Values are packed by the server.
    pub fn compressed(&self) -> bool {
        self.flags & COMPRESSED != 0
    }
    /// The end of the row's life, in a table that keeps its history.
    pub fn row_end(&self) -> bool {
        self.flags & ROW_END != 0
    }
    /// A column that is one.
    #[cfg(test)]
    pub(crate) fn becomes_row_end(&mut self) {
        self.flags |= ROW_END;
        self.length = 7;
    }
    /// A row or its key has the value.
    pub fn is_there(&self) -> bool {
        self.stored() || self.pk_part.is_some()
    }
}

/// How a part of a key is encoded (`plugin/key_format.h`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PartKind {
    /// Big-endian.
    Unsigned,
    /// Big-endian, sign flipped.
    Signed,
    /// As in the record.
    Bytes,
    /// Order-preserving image of a FLOAT or DOUBLE.
    Real,
    /// Groups of bytes.
    Binary,
    /// Groups of a collation's weights.
    Text,
}

/// A part of a key.
#[derive(Clone, Debug)]
pub struct Part {
    /// Number of the column.
    pub column: u16,
    /// Encoding.
    pub kind: PartKind,
    /// A NULL marker comes first.
    pub nullable: bool,
    /// All bytes are complemented.
    pub descending: bool,
    /// The whole column, no prefix.
    pub whole: bool,
    /// The column's value can be had back.
    pub recoverable: bool,
    /// Its maker would have said if the column were the end of a row's life.
    pub row_end_known: bool,
    /// Bytes of a part of fixed width.
    pub width: u32,
    /// Length of a prefix, in characters or, of binary columns, bytes.
    pub prefix: u32,
    /// Levels of weights: bytes in a group, padded with spaces.
    pub levels: Vec<(u8, bool)>,
}

/// An index.
#[derive(Clone, Debug)]
pub struct Index {
    /// The key is a number the engine gave.
    pub hidden: bool,
    /// Declared parts.
    pub parts: Vec<Part>,
}

/// A table's columns and indexes.
#[derive(Clone, Debug)]
pub struct Description {
    /// In the order of the table.
    pub columns: Vec<Column>,
    /// The clustered one first.
    pub indexes: Vec<Index>,
}

impl Description {
    /// Writes a column's name as the table does; of a column that is not there, leaves it.
    pub(crate) fn spell(&self, name: &mut String) {
        if let Some(column) = self.columns.iter().find(|c| same_name(&c.name, name)) {
            name.clone_from(&column.name);
        }
    }

    /// From the plugin's bytes; None: it has none (made by an earlier version) or it is cut.
    pub fn decode(definition: &[u8]) -> Option<Description> {
        let mut r = ByteReader::new(definition.get(FIXED_BYTES..)?);
        if r.take(MAGIC.len())? != MAGIC {
            return None;
        }
        let mut columns = Vec::new();
        for _ in 0..r.u16()? {
            columns.push(column(&mut r)?);
        }
        let mut indexes = Vec::new();
        for _ in 0..r.u16()? {
            indexes.push(index(&mut r, columns.len())?);
        }
        let inside = |part: &Part| usize::from(part.column) < columns.len();
        debug_assert!(indexes.iter().all(|index| index.parts.iter().all(inside)));
        let whole = !indexes.is_empty();
        whole.then_some(Description { columns, indexes })
    }
}

fn column(r: &mut ByteReader<'_>) -> Option<Column> {
    let kind = match r.u8()? {
        0 => Kind::Fixed,
        1 => Kind::Char,
        2 => Kind::Var,
        3 => Kind::Blob,
        _ => return None,
    };
    Some(Column {
        kind,
        flags: r.u8()?,
        server_type: r.u8()?,
        decimals: r.u8()?,
        pk_part: r.u16().map(|n| (n != u16::MAX).then_some(n))?,
        length: r.u32()?,
        precision: r.u32()?,
        name: r.text16()?,
        sql_type: r.text16()?,
        charset: r.text16()?,
        collation: r.text16()?,
    })
}

fn index(r: &mut ByteReader<'_>, columns: usize) -> Option<Index> {
    let hidden = r.u8()? != 0;
    let mut parts = Vec::new();
    for _ in 0..r.u16()? {
        let part = part(r)?;
        if usize::from(part.column) >= columns {
            return None;
        }
        parts.push(part);
    }
    Some(Index { hidden, parts })
}

fn part(r: &mut ByteReader<'_>) -> Option<Part> {
    let column = r.u16()?;
    let kind = match r.u8()? {
        0 => PartKind::Unsigned,
        1 => PartKind::Signed,
        2 => PartKind::Bytes,
        3 | 4 => PartKind::Real,
        5 => PartKind::Binary,
        6 => PartKind::Text,
        _ => return None,
    };
    let flags = r.u8()?;
    let (width, prefix) = (r.u32()?, r.u32()?);
    let mut levels = Vec::new();
    for _ in 0..r.u8()? {
        levels.push((r.u8()?, r.u8()? != 0));
    }
    Some(Part {
        column,
        kind,
        nullable: flags & 1 != 0,
        descending: flags & 2 != 0,
        whole: flags & 4 != 0,
        recoverable: flags & 8 != 0,
        row_end_known: flags & 16 != 0,
        width,
        prefix,
        levels,
    })
}
