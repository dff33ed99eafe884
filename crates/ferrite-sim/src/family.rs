//! Foreign keys as the model has them: which there are, what they mean for rows, and what the core
//! is told of the tables' columns.
//!
//! Such a table has the columns `id` (its row number), `k` and `u`; its indexes are PRIMARY (id),
//! one on `k` and perhaps a unique one on `u`, each with `id` behind it. So a constraint may have
//! one column or two, and its parent's key may be unique or not.

use crate::rows::{Row, Secondary, Shape, NULL};
use ferrite_engine::{Action, ForeignKey, NewForeign};
use std::collections::{BTreeMap, BTreeSet};

/// A column.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Column {
    /// The row number.
    Id,
    /// See [`Row::k`].
    K,
    /// See [`Row::u`].
    U,
}

/// All of them, in the order of the table.
pub const COLUMNS: [Column; 3] = [Column::Id, Column::K, Column::U];

impl Column {
    /// Its name.
    pub fn name(self) -> &'static str {
        ["id", "k", "u"][self as usize]
    }

    /// Its value; None: NULL.
    pub fn of(self, n: u64, row: &Row) -> Option<u64> {
        match self {
            Column::Id => Some(n),
            Column::K => (row.k != NULL).then_some(row.k),
            Column::U => Some(row.u),
        }
    }
}

/// A foreign key of the plan.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Bond {
    /// Number of the child among the tables made at first.
    pub child: usize,
    /// Likewise of the parent.
    pub parent: usize,
    /// Columns: the child's, the parent's.
    pub columns: Vec<(Column, Column)>,
    /// When the parent goes.
    pub on_delete: Action,
    /// When the parent's key changes.
    pub on_update: Action,
}

/// A constraint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Constraint {
    /// Its name.
    pub name: String,
    /// Name of its parent, whether there is such a table or not.
    pub parent: String,
    /// Columns: the child's, the parent's.
    pub columns: Vec<(Column, Column)>,
    /// When the parent goes.
    pub on_delete: Action,
    /// When the parent's key changes.
    pub on_update: Action,
    /// All rows of the child were checked, and nobody has taken parents away unchecked.
    pub enforced: bool,
}

impl Constraint {
    /// A constraint of the plan.
    pub fn new(name: String, parent: String, bond: &Bond) -> Constraint {
        Constraint {
            name,
            parent,
            columns: bond.columns.clone(),
            on_delete: bond.on_delete,
            on_update: bond.on_update,
            enforced: true,
        }
    }

    /// As the core takes it.
    pub fn definition(&self) -> ForeignKey {
        let pair = |(own, there): &(Column, Column)| (own.name().into(), there.name().into());
        ForeignKey {
            name: self.name.clone(),
            parent: self.parent.clone(),
            columns: self.columns.iter().map(pair).collect(),
            on_delete: self.on_delete,
            on_update: self.on_update,
            stamp: 0,
        }
    }

    /// Is this what the core has?
    pub fn is_defined_by(&self, key: &ForeignKey) -> bool {
        let own = self.definition();
        own == ForeignKey {
            stamp: 0,
            ..key.clone()
        }
    }

    /// What a row refers to; None: a column is NULL.
    pub fn refers_to(&self, n: u64, row: &Row) -> Option<Vec<u64>> {
        self.columns.iter().map(|(own, _)| own.of(n, row)).collect()
    }

    /// What a row of the parent can be referred to by.
    fn referred_as(&self, n: u64, row: &Row) -> Option<Vec<u64>> {
        let there = self.columns.iter().map(|(_, there)| there.of(n, row));
        there.collect()
    }

    /// Its name and its parent's, after a table has another name.
    pub(crate) fn follow(&mut self, is_child: bool, from: &str, to: &str) {
        if self.parent == from {
            self.parent = to.to_owned();
        }
        let table = |name: &str| name.rsplit('/').next().unwrap_or(name).to_owned();
        let generated = format!("{}_ibfk_", table(from));
        if let Some(number) = self.name.strip_prefix(&generated).filter(|_| is_child) {
            self.name = format!("{}_ibfk_{number}", table(to));
        }
    }
}

/// Constraints for a table that is made or changed.
pub fn new_foreign(constraints: &[Constraint], checks: bool) -> NewForeign {
    let keys = constraints.iter().map(|c| (c.definition(), false));
    NewForeign {
        keys: keys.collect(),
        checks,
        ..NewForeign::default()
    }
}

/// What the core is told of the columns and indexes of a table (`plugin/description.h`).
pub fn description(shape: &Shape) -> Vec<u8> {
    const FIXED_BYTES: usize = 24;
    const STORED: u8 = 1;
    const NULLABLE: u8 = 2;
    const BYTES: u8 = 2;
    let kin = shape.kin.expect("a table with foreign keys");
    let nullable = |column: Column| column == Column::K && kin.nullable;
    let mut out = vec![0; FIXED_BYTES];
    out.extend_from_slice(b"FRc1");
    out.extend_from_slice(&(COLUMNS.len() as u16).to_le_bytes());
    for column in COLUMNS {
        let flags = STORED + NULLABLE * u8::from(nullable(column));
        out.extend_from_slice(&[0, flags, 0, 0, 0xff, 0xff]);
        out.extend_from_slice(&(shape.key_prefix as u32 + 8).to_le_bytes());
        out.extend_from_slice(&[0; 4]);
        for text in [column.name(), "binary", "binary", "binary"] {
            out.extend_from_slice(&(text.len() as u16).to_le_bytes());
            out.extend_from_slice(text.as_bytes());
        }
    }
    out.extend_from_slice(&(1 + shape.secondary.len() as u16).to_le_bytes());
    let of_index = |kind: &Secondary| match kind {
        Secondary::Plain => Column::K,
        Secondary::Unique => Column::U,
    };
    let indexes = std::iter::once(Column::Id).chain(shape.secondary.iter().map(of_index));
    for column in indexes {
        let descending = column == Column::K && kin.descending;
        // The column as a whole, to be had back; no prefix, no levels of weights.
        let flags = 12 + u8::from(nullable(column)) + 2 * u8::from(descending);
        out.extend_from_slice(&[0, 1, 0]);
        out.extend_from_slice(&(column as u16).to_le_bytes());
        out.extend_from_slice(&[BYTES, flags]);
        out.extend_from_slice(&(shape.key_prefix as u32 + 8).to_le_bytes());
        out.extend_from_slice(&[0; 5]);
    }
    out
}

/// Rows of a table that refer to nothing that is there.
pub fn orphans_of(
    constraint: &Constraint,
    child: &BTreeMap<u64, Row>,
    parent: &BTreeMap<u64, Row>,
) -> BTreeMap<Vec<u64>, u64> {
    let there: BTreeSet<Vec<u64>> = parent
        .iter()
        .filter_map(|(n, row)| constraint.referred_as(*n, row))
        .collect();
    let refers = child
        .iter()
        .filter_map(|(n, row)| Some((constraint.refers_to(*n, row)?, *n)));
    refers.filter(|(key, _)| !there.contains(key)).collect()
}
