//! The foreign keys of a table in use: what a change of a row finds without asking the dictionary.
//!
//! A table's version of its links is 0 when it has none, so that all others pay for one load. Each
//! change of a table that is concerned gives it another version, and the links are made anew by who
//! asks next (`dictionary::foreign`).
//!
//! Invariant: links never change once they are made. A version is not given twice.
//!
//! Locking: `Table::links` for a moment, after the dictionary's state.

use crate::catalog::describe::{Column, Description, Kind, Part, PartKind};
use crate::catalog::foreign::ForeignKey;
use crate::catalog::table::Table;
use ferrite_sync::Arc;

/// Most levels of weights that the server's collations have.
const MAX_LEVELS: usize = 6;

/// How the weights of a text are cut into groups, level by level.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Levels {
    count: u8,
    each: [(u8, bool); MAX_LEVELS],
}

impl Levels {
    fn of(part: &Part) -> Levels {
        debug_assert!(part.levels.len() <= MAX_LEVELS, "{}", part.levels.len());
        let mut levels = Levels::default();
        for (to, level) in levels.each.iter_mut().zip(&part.levels) {
            *to = *level;
            levels.count += 1;
        }
        levels
    }

    /// Bytes in a group, padded with spaces.
    pub(crate) fn each(&self) -> &[(u8, bool)] {
        debug_assert!(usize::from(self.count) <= MAX_LEVELS);
        &self.each[..usize::from(self.count)]
    }
}

/// How a key part is encoded (`plugin/key_format.h`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Encoding {
    /// Which encoding.
    pub kind: PartKind,
    /// A NULL marker comes first.
    pub nullable: bool,
    /// All bytes are complemented.
    pub descending: bool,
    /// Bytes of a part of fixed width; of a CHAR whose padding counts, with it; else 0.
    pub width: u32,
    /// Of a text.
    pub levels: Levels,
}

impl Encoding {
    pub(crate) fn of(part: &Part, column: &Column) -> Encoding {
        let text = part.kind == PartKind::Text;
        debug_assert!(
            !text || part.width == 0,
            "{}: a text of fixed width",
            column.name
        );
        Encoding {
            kind: part.kind,
            nullable: part.nullable,
            descending: part.descending,
            width: match text && column.kind == Kind::Char && column.is_no_pad() {
                true => column.length,
                false => part.width,
            },
            levels: Levels::of(part),
        }
    }
}

/// A column of a constraint, and its key part, on both sides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkPart {
    /// Number of the own column.
    pub own_column: u16,
    /// Number of the other table's.
    pub other_column: u16,
    /// In the own index.
    pub own: Encoding,
    /// In the other one's.
    pub other: Encoding,
}

impl LinkPart {
    /// Are equal values equal bytes on both sides? A CHAR's padding may count in one key, and not in
    /// the other, or be longer there.
    pub(crate) fn same_padding(&self) -> bool {
        self.own.kind != PartKind::Text || self.own.width == self.other.width
    }

    /// As the other side sees it.
    pub(crate) fn turned(&self) -> LinkPart {
        LinkPart {
            own_column: self.other_column,
            other_column: self.own_column,
            own: self.other,
            other: self.own,
        }
    }
}

/// Where the end of a row's life stands, in a table that keeps its history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowEnd {
    /// In the keys of the index.
    Key {
        /// Bytes behind it.
        behind: usize,
        /// The column is.
        descending: bool,
    },
    /// In the row alone: the table has no primary key, so that the server has put the column into none of
    /// the keys that are not unique.
    Row {
        /// So many bytes behind the references of the payload.
        at: usize,
    },
}

/// A TIMESTAMP(6) as a key or a row has it.
const ROW_END_BYTES: usize = 7;
/// The last moment there is, of servers before and after 11.5: rows that live end there.
const LAST_MOMENTS: [[u8; ROW_END_BYTES]; 2] = [
    [0x7f, 0xff, 0xff, 0xff, 0x0f, 0x42, 0x3f],
    [0xff, 0xff, 0xff, 0xff, 0x0f, 0x42, 0x3f],
];
/// Bytes of a row id.
pub(crate) const ROW_ID_BYTES: usize = 8;
/// The version of a row's layout, before its columns.
const LAYOUT_VERSION_BYTES: usize = 1;

impl RowEnd {
    /// None: all rows of the table live. The server puts the column behind the declared ones of each
    /// unique key.
    pub(crate) fn of(table: &Description, index_no: u32) -> Option<RowEnd> {
        let number = table.columns.iter().position(Column::row_end)?;
        let primary = table.indexes.first()?;
        let (index, behind) = match primary.hidden {
            true => (table.indexes.get(index_no as usize)?, ROW_ID_BYTES),
            false => (primary, 0),
        };
        let in_key = |part: &&Part| {
            usize::from(part.column) == number
                && part.kind == PartKind::Bytes
                && !part.nullable
                && part.width as usize == ROW_END_BYTES
        };
        if let Some(part) = index.parts.last().filter(in_key) {
            let descending = part.descending;
            return Some(RowEnd::Key { behind, descending });
        }
        if !primary.hidden {
            return None;
        }
        let at = place_in_row(table, number)?;
        Some(RowEnd::Row { at })
    }

    /// Whether the description, of an earlier version, leaves it open if a row may be history.
    pub(crate) fn is_unknown(table: &Description) -> bool {
        let mut parts = table.indexes.iter().flat_map(|index| &index.parts);
        let may_end = |c: &Column| !c.nullable() && c.sql_type.starts_with("timestamp(6)");
        parts.any(|part| !part.row_end_known) && table.columns.iter().any(may_end)
    }

    /// Does the row of an entry with that key live? Yes if the key does not tell.
    pub(crate) fn lives_by_key(&self, key: &[u8]) -> bool {
        let RowEnd::Key { behind, descending } = *self else {
            return true;
        };
        let start = key.len().checked_sub(behind + ROW_END_BYTES);
        let Some(bytes) = start.and_then(|start| key.get(start..start + ROW_END_BYTES)) else {
            return true;
        };
        let flip = if descending { 0xff } else { 0 };
        let is = |last: &[u8; ROW_END_BYTES]| bytes.iter().zip(last).all(|(a, b)| a ^ flip == *b);
        LAST_MOMENTS.iter().any(is)
    }

    /// Does the row live whose payload goes on with `columns` behind its references? Yes if that does
    /// not tell.
    pub(crate) fn lives_by_row(&self, columns: &[u8]) -> bool {
        let RowEnd::Row { at } = *self else {
            return true;
        };
        let bytes = columns.get(at..at + ROW_END_BYTES);
        bytes.is_none_or(|bytes| LAST_MOMENTS.iter().any(|last| bytes == last))
    }
}

/// Where the row has a column of fixed length, behind its references (`plugin/row_format.h`).
fn place_in_row(table: &Description, number: usize) -> Option<usize> {
    debug_assert!(number < table.columns.len(), "column {number}");
    let stored = |c: &&Column| c.stored() && c.pk_part.is_none();
    let column = table.columns.get(number).filter(stored)?;
    if column.kind != Kind::Fixed || column.nullable() || column.length as usize != ROW_END_BYTES {
        return None;
    }
    let null_bits = table.columns.iter().filter(stored).filter(|c| c.nullable());
    let before = table.columns[..number].iter().filter(stored);
    let fixed = before.filter(|c| c.kind == Kind::Fixed);
    let fixed: usize = fixed.map(|c| c.length as usize).sum();
    Some(LAYOUT_VERSION_BYTES + null_bits.count().div_ceil(8) + fixed)
}

/// The other table of a link.
#[derive(Clone)]
pub struct Peer {
    /// It is kept, not guarded: it may be dropped any time ([`Table::enter`]).
    pub table: Arc<Table>,
    /// The index to look in.
    pub index_no: u32,
    /// What tells rows of the past, which do not count; None: there are none.
    pub row_end: Option<RowEnd>,
}

/// One constraint, as one of its tables sees it.
#[derive(Clone)]
pub struct Link {
    /// The definition.
    pub key: Arc<ForeignKey>,
    /// Name of the other table, "db/table".
    pub other: String,
    /// The own index that begins with the columns; of no use without `peer`.
    pub index_no: u32,
    /// Name of the parent's index; none without `peer`.
    pub parent_index: Option<String>,
    /// The constraint's columns in their order: so many parts open both indexes' keys. Empty without
    /// `peer`.
    pub parts: Vec<LinkPart>,
    /// The other table, if it is there and both have fitting indexes.
    pub peer: Option<Peer>,
    /// What tells own rows of the past, which refer to nothing; None: there are none.
    pub row_end: Option<RowEnd>,
    /// ALTER TABLE copies rows that satisfied the constraint in the original: no check while it does.
    pub carried: bool,
}

impl Link {
    /// With an other table, each column of the constraint has its part; else there are none.
    pub(crate) fn is_whole(&self) -> bool {
        match &self.peer {
            Some(_) => self.parts.len() == self.key.columns.len(),
            None => self.parts.is_empty(),
        }
    }
}

/// All constraints of a table.
#[derive(Clone, Default)]
pub struct Links {
    /// As they were then.
    pub version: u64,
    /// Those it has: it is the child.
    pub outgoing: Vec<Link>,
    /// Those that refer to it: it is the parent. One that refers to itself is in both.
    pub incoming: Vec<Link>,
}
