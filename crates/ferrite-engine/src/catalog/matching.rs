//! Whether a foreign key fits two tables, and which of their indexes serve it: InnoDB's rules.
//!
//! An index serves it whose first parts are the constraint's columns, in their order and whole. The
//! columns' types must be of one class: the same collation for text; the same width and sign for
//! integers; all that is compared as bytes is one class.
//!
//! Locking: none.

use crate::catalog::describe::{Column, Description, Index, Part, PartKind};
use crate::catalog::foreign::{same_name, Action, ForeignKey};
use crate::catalog::links::{Encoding, LinkPart, RowEnd, NO_INDEX};

/// Why a constraint does not fit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Misfit {
    /// The child has no such column.
    ChildColumn(String),
    /// No index of the child begins with the columns.
    ChildIndex,
    /// Only one on parts of their values.
    ChildPrefix,
    /// There is no such table.
    Parent,
    /// The parent has no such column.
    ParentColumn(String),
    /// No index of the parent begins with the columns.
    ParentIndex,
    /// Only one on parts of their values.
    ParentPrefix,
    /// Child's and parent's columns differ in type or collation.
    Types(String, String),
    /// SET NULL, and the column is NOT NULL.
    NotNull(String),
    /// Another constraint of the database has the name.
    Name,
    /// Another new constraint of the table has the name.
    NameTwice,
    /// One that the table has already has the name.
    NameOfOwn,
    /// An earlier version made the parent and did not describe it well enough.
    ParentOld,
    /// Under strict SQL mode: the parent's NULL would follow into a NOT NULL column.
    NullFollows(String),
}

impl Misfit {
    /// Number of the reason (`fe_fk_reason` in the header), the child's column and the parent's.
    pub fn parts(&self) -> (u32, &str, &str) {
        match self {
            Misfit::ChildColumn(column) => (1, column, ""),
            Misfit::ChildIndex => (2, "", ""),
            Misfit::ChildPrefix => (3, "", ""),
            Misfit::Parent => (4, "", ""),
            Misfit::ParentColumn(column) => (5, "", column),
            Misfit::ParentIndex => (6, "", ""),
            Misfit::ParentPrefix => (7, "", ""),
            Misfit::Types(column, other) => (8, column, other),
            Misfit::NotNull(column) => (9, column, ""),
            Misfit::Name => (10, "", ""),
            Misfit::NameTwice => (11, "", ""),
            Misfit::ParentOld => (12, "", ""),
            Misfit::NullFollows(column) => (13, column, ""),
            Misfit::NameOfOwn => (14, "", ""),
        }
    }
}

/// An index that serves one side of a constraint.
#[derive(Clone, Debug)]
pub(crate) struct Found<'d> {
    pub(crate) index_no: u32,
    parts: Vec<(&'d Part, &'d Column)>,
}

/// The two indexes of a constraint.
#[derive(Clone, Debug)]
pub(crate) struct Fit {
    pub(crate) child_index: u32,
    pub(crate) parent_index: u32,
    /// As the child sees them.
    pub(crate) parts: Vec<LinkPart>,
}

/// What two columns must have in common.
#[derive(PartialEq, Eq)]
enum Class<'d> {
    Text(&'d str),
    Bytes,
    Integer { signed: bool, width: u32 },
    Real { width: u32 },
}

fn class<'d>(part: &Part, column: &'d Column) -> Class<'d> {
    match part.kind {
        PartKind::Text => Class::Text(&column.collation),
        PartKind::Bytes | PartKind::Binary => Class::Bytes,
        PartKind::Unsigned => Class::Integer {
            signed: false,
            width: part.width,
        },
        PartKind::Signed => Class::Integer {
            signed: true,
            width: part.width,
        },
        PartKind::Real => Class::Real { width: part.width },
    }
}

/// What the search for an index came upon.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Miss {
    None,
    Prefix,
    Types(usize),
}

/// The parts of an index as its keys have them: those declared, and of a secondary one the primary
/// key's after them, unless it has some of these already.
fn parts_of<'d>(table: &'d Description, index: &'d Index) -> Vec<&'d Part> {
    let mut parts: Vec<&Part> = index.parts.iter().collect();
    if let Some(primary) = table.indexes.first().filter(|p| !std::ptr::eq(*p, index)) {
        let declared = |p: &&Part| parts.iter().any(|q| q.column == p.column);
        if !primary.parts.iter().any(|p| declared(&p)) {
            parts.extend(&primary.parts);
        }
    }
    parts
}

/// The first index that begins with `columns`; with `as_in`, of the same classes as that one's.
fn find<'d>(
    table: &'d Description,
    columns: &[&str],
    as_in: Option<&Found<'_>>,
) -> Result<Found<'d>, (Miss, Option<&'d Column>)> {
    debug_assert!(as_in.is_none_or(|other| other.parts.len() == columns.len()));
    let mut miss = (Miss::None, None);
    'next: for (no, index) in table.indexes.iter().enumerate() {
        let parts = parts_of(table, index);
        if parts.len() < columns.len() {
            continue;
        }
        let mut found = Vec::with_capacity(columns.len());
        for (at, (part, name)) in parts.iter().zip(columns).enumerate() {
            let column = &table.columns[usize::from(part.column)];
            if !same_name(&column.name, name) {
                continue 'next;
            }
            if !part.whole {
                miss = (Miss::Prefix, None);
                continue 'next;
            }
            let same = |other: &Found<'_>| {
                let (part_there, column_there) = other.parts[at];
                class(part, column) == class(part_there, column_there)
            };
            if !as_in.is_none_or(same) {
                miss = (Miss::Types(at), Some(column));
                continue 'next;
            }
            found.push((*part, column));
        }
        debug_assert_eq!(found.len(), columns.len(), "index {no}");
        return Ok(Found {
            index_no: no as u32,
            parts: found,
        });
    }
    Err(miss)
}

fn missing<'a>(table: &Description, names: impl Iterator<Item = &'a String>) -> Option<String> {
    let there = |name: &str| table.columns.iter().any(|c| same_name(&c.name, name));
    let mut names = names.filter(|name| !there(name));
    names.next().cloned()
}

/// The child's index.
pub(crate) fn child_side<'d>(
    key: &ForeignKey,
    child: &'d Description,
) -> Result<Found<'d>, Misfit> {
    let own = || key.columns.iter().map(|(own, _)| own);
    if let Some(column) = missing(child, own()) {
        return Err(Misfit::ChildColumn(column));
    }
    let columns: Vec<&str> = own().map(String::as_str).collect();
    let found = find(child, &columns, None).map_err(|(miss, _)| match miss {
        Miss::Prefix => Misfit::ChildPrefix,
        _ => Misfit::ChildIndex,
    })?;
    Ok(found)
}

/// SET NULL needs columns that may be NULL.
pub(crate) fn check_nullable(key: &ForeignKey, child: &Found<'_>) -> Result<(), Misfit> {
    if key.on_delete != Action::SetNull && key.on_update != Action::SetNull {
        return Ok(());
    }
    debug_assert_eq!(child.parts.len(), key.columns.len(), "{}", key.name);
    match child.parts.iter().find(|(_, c)| !c.nullable()) {
        Some((_, column)) => Err(Misfit::NotNull(column.name.clone())),
        None => Ok(()),
    }
}

/// ON UPDATE CASCADE needs a child that takes the NULL that its parent may have; as in InnoDB, not if there
/// is an action ON DELETE too, be it NO ACTION. The update that makes it NULL is refused then.
pub(crate) fn check_null_follows(key: &ForeignKey, fit: &Fit) -> Result<(), Misfit> {
    assert_eq!(fit.parts.len(), key.columns.len(), "{}", key.name);
    let refused = |part: &LinkPart| part.other.nullable && !part.own.nullable;
    match fit.parts.iter().position(refused) {
        Some(at) if key.on_update == Action::Cascade && key.on_delete == Action::Restrict => {
            Err(Misfit::NullFollows(key.columns[at].0.clone()))
        }
        _ => Ok(()),
    }
}

/// The parent's index, and all that is known of both.
pub(crate) fn parent_side(
    key: &ForeignKey,
    child: &Found<'_>,
    parent: &Description,
) -> Result<Fit, Misfit> {
    let there = || key.columns.iter().map(|(_, there)| there);
    if let Some(column) = missing(parent, there()) {
        return Err(Misfit::ParentColumn(column));
    }
    let columns: Vec<&str> = there().map(String::as_str).collect();
    let found = find(parent, &columns, Some(child)).map_err(|(miss, column)| match miss {
        Miss::None => Misfit::ParentIndex,
        Miss::Prefix => Misfit::ParentPrefix,
        Miss::Types(at) => Misfit::Types(
            key.columns[at].0.clone(),
            column.map_or(String::new(), |c| c.name.clone()),
        ),
    })?;
    if RowEnd::is_unknown(parent) {
        return Err(Misfit::ParentOld);
    }
    assert_eq!(child.parts.len(), found.parts.len(), "{}", key.name);
    let parts = child.parts.iter().zip(&found.parts);
    Ok(Fit {
        child_index: child.index_no,
        parent_index: found.index_no,
        parts: parts
            .map(|(own, other)| LinkPart {
                own_column: own.0.column,
                other_column: other.0.column,
                own: Encoding::of(own.0, own.1),
                other: Encoding::of(other.0, other.1),
            })
            .collect(),
    })
}

/// The parent's index, for a child that has lost its own (`foreign_key_checks=0`). What a part of the child's would be
/// is not known without it: whoever looks up a value compares the types, which nobody has since.
pub(crate) fn without_child_index(
    key: &ForeignKey,
    child: &Description,
    parent: &Description,
) -> Option<Fit> {
    let lost = child_side(key, child).err()?;
    let there: Vec<&str> = key
        .columns
        .iter()
        .map(|(_, there)| there.as_str())
        .collect();
    if !matches!(lost, Misfit::ChildIndex | Misfit::ChildPrefix) || RowEnd::is_unknown(parent) {
        return None;
    }
    let found = find(parent, &there, None).ok()?;
    debug_assert_eq!(found.parts.len(), key.columns.len(), "{}", key.name);
    let part = |((own, _), (part, column)): (&(String, String), &(&Part, &Column))| {
        let at = child.columns.iter().position(|c| same_name(&c.name, own))?;
        if part.kind == PartKind::Text && child.columns[at].collation != column.collation {
            return None;
        }
        let other = Encoding::of(part, column);
        // InnoDB takes a side without an index for one that may be NULL.
        let own = Encoding {
            nullable: true,
            ..other
        };
        Some(LinkPart {
            own_column: at as u16,
            other_column: part.column,
            own,
            other,
        })
    };
    let parts: Option<Vec<LinkPart>> = key.columns.iter().zip(&found.parts).map(part).collect();
    Some(Fit {
        child_index: NO_INDEX,
        parent_index: found.index_no,
        parts: parts?,
    })
}

/// Both sides at once, if they fit.
pub(crate) fn fit(key: &ForeignKey, child: &Description, parent: &Description) -> Option<Fit> {
    let found = child_side(key, child).ok()?;
    parent_side(key, &found, parent).ok()
}
