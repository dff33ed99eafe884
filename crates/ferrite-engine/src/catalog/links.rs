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
use crate::catalog::turned_key;
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
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RowEnd {
    /// In the keys of the index, in front of nothing but parts of fixed width.
    Key {
        /// Bytes behind it.
        behind: usize,
        /// The column is.
        descending: bool,
    },
    /// In the keys of the index, in front of parts whose width is not fixed: found by those before it.
    Parts {
        /// They are.
        before: Arc<[Encoding]>,
        /// The column is.
        descending: bool,
    },
    /// In the row alone. The server puts the column into unique keys only, and not where the key names the
    /// start of the row's life.
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
    /// unique key that names neither end of the row's life, and the columns of a period behind that.
    pub(crate) fn of(table: &Description, index_no: u32) -> Option<RowEnd> {
        let number = table.columns.iter().position(Column::row_end)?;
        let primary = table.indexes.first()?;
        let index = table.indexes.get(index_no as usize)?;
        let (clustered, row_id): (&[Part], usize) = match (primary.hidden, index_no) {
            (true, _) => (&[], ROW_ID_BYTES),
            (false, 0) => (&[], 0),
            (false, _) => (&primary.parts, 0),
        };
        let parts: Vec<&Part> = index.parts.iter().chain(clustered).collect();
        match parts.iter().rposition(|part| is_row_end(part, number)) {
            Some(at) => RowEnd::in_key(table, &parts, at, row_id),
            None => place_in_row(table, number).map(|at| RowEnd::Row { at }),
        }
    }

    /// Part `at` of a key is it, and so many bytes follow the last part.
    fn in_key(table: &Description, parts: &[&Part], at: usize, last: usize) -> Option<RowEnd> {
        let descending = parts[at].descending;
        let is_fixed = |part: &&Part| {
            !part.nullable && part.kind != PartKind::Binary && part.kind != PartKind::Text
        };
        let after = &parts[at + 1..];
        if after.iter().all(is_fixed) {
            let behind = last + after.iter().map(|part| part.width as usize).sum::<usize>();
            return Some(RowEnd::Key { behind, descending });
        }
        let encoding = |part: &&Part| {
            let column = table.columns.get(usize::from(part.column))?;
            Some(Encoding::of(part, column))
        };
        let before: Option<Arc<[Encoding]>> = parts[..at].iter().map(encoding).collect();
        debug_assert!(before.is_some(), "parts of columns that are not there");
        before.map(|before| RowEnd::Parts { before, descending })
    }

    /// Whether the description, of an earlier version, leaves it open if a row may be history.
    pub(crate) fn is_unknown(table: &Description) -> bool {
        let mut parts = table.indexes.iter().flat_map(|index| &index.parts);
        let may_end = |c: &Column| !c.nullable() && c.sql_type.starts_with("timestamp(6)");
        parts.any(|part| !part.row_end_known) && table.columns.iter().any(may_end)
    }

    /// Only the row tells, not the key.
    pub(crate) fn is_in_row(&self) -> bool {
        matches!(self, RowEnd::Row { .. })
    }

    /// Does the row of an entry with that key live? Yes if the key does not tell.
    pub(crate) fn lives_by_key(&self, key: &[u8]) -> bool {
        let (start, descending) = match self {
            RowEnd::Row { .. } => return true,
            RowEnd::Key { behind, descending } => {
                (key.len().checked_sub(behind + ROW_END_BYTES), *descending)
            }
            RowEnd::Parts { before, descending } => (turned_key::skip(before, key), *descending),
        };
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

/// Is the part the column of that number, as the end of a row's life is encoded?
fn is_row_end(part: &Part, number: usize) -> bool {
    usize::from(part.column) == number
        && part.kind == PartKind::Bytes
        && !part.nullable
        && part.width as usize == ROW_END_BYTES
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

/// Number of no index.
pub const NO_INDEX: u32 = u32::MAX;

/// One constraint, as one of its tables sees it.
#[derive(Clone)]
pub struct Link {
    /// The definition.
    pub key: Arc<ForeignKey>,
    /// Name of the other table, "db/table".
    pub other: String,
    /// The own index that begins with the columns; of no use without `peer`. `NO_INDEX`: of a child that
    /// has lost it.
    pub index_no: u32,
    /// Name of the parent's index; none without `peer`.
    pub parent_index: Option<String>,
    /// The constraint's columns in their order: so many parts open both indexes' keys, or the parent's.
    /// Empty without `peer`.
    pub parts: Vec<LinkPart>,
    /// The other table, if it is there and both have fitting indexes; of a child, if the parent has.
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

    /// The own index; None: there is no other table, or no such index.
    pub fn own_index(&self) -> Option<usize> {
        debug_assert!(self.is_whole(), "{}", self.key.name);
        let there = self.peer.is_some() && self.index_no != NO_INDEX;
        there.then_some(self.index_no as usize)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::described;

    const NEVER: [u8; ROW_END_BYTES] = LAST_MOMENTS[1];
    const PAST: [u8; ROW_END_BYTES] = [0x5f, 0, 0, 0, 0, 0, 1];

    /// A table of (id, e, s, name, rs, re): numbers of four bytes, a string, a row's life.
    fn table(indexes: &[&[u16]]) -> Description {
        let columns = &["id", "e", "s", "name", "rs", "re"];
        let mut table = Description::decode(&described(columns, indexes)).unwrap();
        table.columns[5].becomes_row_end();
        table.columns[4].length = 7;
        for part in table.indexes[0].parts.iter() {
            table.columns[usize::from(part.column)].pk_part = Some(0);
        }
        for part in table.indexes.iter_mut().flat_map(|index| &mut index.parts) {
            match part.column {
                3 => (part.kind, part.width) = (PartKind::Binary, 0),
                4 | 5 => (part.kind, part.width) = (PartKind::Bytes, ROW_END_BYTES as u32),
                _ => {}
            }
        }
        table
    }

    /// The key of an entry: of the index, and of its row.
    fn key(table: &Description, index_no: usize, end: [u8; ROW_END_BYTES]) -> Vec<u8> {
        let mut key = vec![];
        let clustered = match index_no {
            0 => &[][..],
            _ => &table.indexes[0].parts,
        };
        for part in table.indexes[index_no].parts.iter().chain(clustered) {
            let from = key.len();
            match part.column {
                3 => key.extend_from_slice(b"abcdefgh\x09i\0\0\0\0\0\0\0\x01"),
                4 => key.extend_from_slice(&PAST),
                5 => key.extend_from_slice(&end),
                _ => key.extend_from_slice(&[0x80, 0, 0, 5]),
            }
            if part.descending {
                key[from..].iter_mut().for_each(|byte| *byte ^= 0xff);
            }
        }
        key
    }

    fn tells(table: &Description, index_no: u32) {
        let end = RowEnd::of(table, index_no).expect("a table with history");
        assert!(!end.is_in_row(), "{end:?}");
        let at = |moment| key(table, index_no as usize, moment);
        assert!(end.lives_by_key(&at(NEVER)), "{end:?}: it lives");
        assert!(!end.lives_by_key(&at(PAST)), "{end:?}: it does not");
        let whole = at(PAST);
        for cut in 0..whole.len() {
            end.lives_by_key(&whole[..cut]);
        }
    }

    /// Behind it come the columns of a period, or whatever the key declares.
    #[test]
    fn the_key_tells_wherever_the_column_is() {
        let keys: [&[u16]; 6] = [&[0, 5], &[0, 5, 1, 2], &[5, 0], &[5, 3], &[3, 5, 3], &[5]];
        for primary in keys {
            for other in [&[1][..], &[3], &[3, 0], &[1, 5]] {
                let mut of_both = table(&[primary, other]);
                tells(&of_both, 0);
                tells(&of_both, 1);
                for part in of_both
                    .indexes
                    .iter_mut()
                    .flat_map(|index| &mut index.parts)
                {
                    part.descending = true;
                }
                tells(&of_both, 0);
                tells(&of_both, 1);
            }
        }
    }

    /// The server puts nothing into a key that names the start of the row's life.
    #[test]
    fn where_no_key_tells_the_row_does() {
        let of_start = table(&[&[0, 4], &[1], &[1, 5]]);
        // A byte for the layout, and three numbers of four.
        let end = Some(RowEnd::Row { at: 1 + 12 });
        assert_eq!(RowEnd::of(&of_start, 0), end);
        assert_eq!(RowEnd::of(&of_start, 1), end);
        tells(&of_start, 2);
        let mut without = table(&[&[0], &[1], &[1, 5]]);
        without.indexes[0].hidden = true;
        without.columns[0].pk_part = None;
        let end = Some(RowEnd::Row { at: 1 + 16 + 7 });
        assert_eq!(RowEnd::of(&without, 1), end);
        let behind = ROW_ID_BYTES;
        let descending = false;
        let end = Some(RowEnd::Key { behind, descending });
        assert_eq!(RowEnd::of(&without, 2), end);
    }
}
