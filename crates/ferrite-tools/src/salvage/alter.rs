//! Tables with the names that ALTER TABLE gives while it copies: what it was amid when the server died.
//!
//! It fills `#sql-alter-X-Y`, gives the table the name `#sql-backup-X-Y` and the copy the table's own, and drops what it has
//! put aside. Original and copy have the same constraints by name, which a database has once: only one of them gets them
//! here, or the statements that load the rows would end there.
//!
//! Of a partitioned table it renames one partition after the other: amid that some have the table's own name, and some
//! do not.
//!
//! Invariant: rows of all of them are written; what is not loaded is a copy of a table that is there. Locking: none.

use ferrite_engine::offline::StoredTable;
use ferrite_engine::{is_alter_copy, is_alter_original, original_of, whole_table};
use std::collections::{BTreeMap, BTreeSet};

/// What a table is that has such a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Left {
    /// A copy of that table, which is there.
    Copy(String),
    /// A copy of a table that is not there by its name, if that is known.
    OnlyCopy(Option<String>),
    /// A table that was put aside, and its name, if that is known. Its copy is there.
    PutAside(Option<String>),
    /// The copy of that partitioned table, or what was put aside for it, while partitions were renamed: some
    /// are there by their own names.
    AmidRenames(String),
    /// A table whose place another one has taken.
    Replaced,
}

impl Left {
    /// Is it in its files only, and not among what is loaded?
    pub(super) fn is_left_out(&self) -> bool {
        matches!(self, Left::Copy(_))
    }

    /// Does it have its foreign keys?
    pub(super) fn keeps_foreign_keys(&self) -> bool {
        matches!(self, Left::PutAside(_))
    }

    /// What is said of it.
    pub(super) fn text(&self) -> String {
        let of = |name: &Option<String>| name.clone().unwrap_or_else(|| "a table".into());
        match self {
            Left::Copy(of) => format!(
                "not in load.sql: an ALTER TABLE was filling it to take the place of {of}, which is there"
            ),
            Left::OnlyCopy(name) => format!(
                "an ALTER TABLE was filling it to take the place of {}, which is not there by that name; its foreign \
                 keys are left out",
                of(name)
            ),
            Left::PutAside(name) => format!(
                "it is {}, which an ALTER TABLE has put aside for its copy",
                of(name)
            ),
            Left::AmidRenames(of) => format!(
                "an ALTER TABLE was renaming the partitions of {of}: some of its rows are there by that name, and all \
                 of them together with those here and in the other table that it has left"
            ),
            Left::Replaced => "an ALTER TABLE has put it aside, and what takes its place is there; its foreign keys are \
                               left out"
                .into(),
        }
    }
}

/// All tables by name, as far as ALTER TABLE is concerned. Names are of whole tables, not of partitions.
pub(super) struct Alters<'t> {
    there: BTreeSet<&'t str>,
    /// Copies, and what they take the place of: of a partitioned table any partition says it, or none.
    copies: BTreeMap<&'t str, Option<&'t str>>,
    /// What was put aside for them, and its name.
    aside: BTreeMap<String, Option<&'t str>>,
}

impl<'t> Alters<'t> {
    pub(super) fn new(tables: &'t [StoredTable]) -> Alters<'t> {
        let mut copies: BTreeMap<&str, Option<&str>> = BTreeMap::new();
        for spec in tables.iter().map(|t| &t.spec) {
            if is_alter_copy(&spec.name) {
                let of = copies.entry(whole_table(&spec.name)).or_default();
                *of = of.or(spec.replaces.as_deref().map(whole_table));
            }
        }
        let put_aside = |(copy, of): (&&str, &Option<&'t str>)| Some((original_of(copy)?, *of));
        Alters {
            there: tables.iter().map(|t| whole_table(&t.spec.name)).collect(),
            aside: copies.iter().filter_map(put_aside).collect(),
            copies,
        }
    }

    /// None: a table like any other.
    pub(super) fn left(&self, name: &str) -> Option<Left> {
        let whole = whole_table(name);
        debug_assert!(self.there.contains(whole), "{name} is another database's");
        if let Some(of) = self.copies.get(whole) {
            let of = of.map(str::to_owned);
            let is_there = |of: &String| self.there.contains(of.as_str());
            let aside_is_there = original_of(whole).is_some_and(|of| is_there(&of));
            return Some(match of {
                Some(of) if is_there(&of) && aside_is_there => Left::AmidRenames(of),
                Some(of) if is_there(&of) => Left::Copy(of),
                of => Left::OnlyCopy(of),
            });
        }
        if !is_alter_original(name) {
            return None;
        }
        let was = self.aside.get(whole).copied();
        let is_there = |was: &str| self.there.contains(was);
        Some(match was {
            Some(Some(was)) if is_there(was) => Left::AmidRenames(was.into()),
            Some(was) => Left::PutAside(was.map(str::to_owned)),
            None => Left::Replaced,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ferrite_engine::TableSpec;

    fn tables(names: &[(&str, Option<&str>)]) -> Vec<StoredTable> {
        let stored = |(name, replaces): &(&str, Option<&str>)| StoredTable {
            spec: TableSpec {
                replaces: replaces.map(Into::into),
                ..TableSpec::new(name, Vec::new())
            },
            foreign_keys: Vec::new(),
        };
        names.iter().map(stored).collect()
    }

    #[test]
    fn a_copy_of_what_is_there_is_left_out() {
        let tables = tables(&[
            ("d/t", None),
            ("d/#sql-alter-1-1", Some("d/t")),
            ("d/p#P#p0", None),
            ("d/#sql-alter-1-2#P#p0", None),
            ("d/#sql-alter-1-2#P#p1", Some("d/p")),
            ("d/#sql-alter-1-3", None),
        ]);
        let alters = Alters::new(&tables);
        let left = |n: usize| alters.left(&tables[n].spec.name);
        assert_eq!((left(0), left(2)), (None, None));
        assert_eq!(left(1), Some(Left::Copy("d/t".into())));
        assert_eq!(left(3), Some(Left::Copy("d/p".into())));
        assert_eq!(left(4), left(3));
        // An earlier version's does not say whose place it was to take.
        assert_eq!(left(5), Some(Left::OnlyCopy(None)));
    }

    /// One partition has been put aside, and one copy has taken a place: whichever, no rows are passed over.
    #[test]
    fn amid_the_partitions() {
        let tables = tables(&[
            ("d/t#P#p0", None),
            ("d/#sql-backup-1-1#P#p0", None),
            ("d/#sql-backup-1-1#P#p1", None),
            ("d/#sql-alter-1-1#P#p1", Some("d/t")),
        ]);
        let alters = Alters::new(&tables);
        assert_eq!(alters.left("d/t#P#p0"), None);
        for stored in &tables[1..] {
            let left = alters.left(&stored.spec.name).unwrap();
            assert_eq!(left, Left::AmidRenames("d/t".into()));
            assert!(!left.is_left_out() && !left.keeps_foreign_keys());
        }
    }

    #[test]
    fn between_the_two_renames() {
        let tables = tables(&[
            ("d/#sql-backup-1-1", None),
            ("d/#sql-alter-1-1", Some("d/t")),
            ("d/#sql-backup-1-2", None),
            ("d/#sql-alter-1-2", None),
            ("d/#sql-alter-1-3", Some("d/lost")),
            ("d/#sql-backup-1-4", None),
            ("d/u", None),
        ]);
        let alters = Alters::new(&tables);
        let left = |n: usize| alters.left(&tables[n].spec.name).unwrap();
        let t = Some("d/t".to_owned());
        assert_eq!(left(0), Left::PutAside(t.clone()));
        assert_eq!(left(1), Left::OnlyCopy(t));
        assert_eq!(left(2), Left::PutAside(None));
        assert_eq!(left(3), Left::OnlyCopy(None));
        assert_eq!(left(4), Left::OnlyCopy(Some("d/lost".into())));
        // Behind both: the copy has its name.
        assert_eq!(left(5), Left::Replaced);
        let keeps = (0..6).map(|n| left(n).keeps_foreign_keys());
        assert_eq!(
            keeps.collect::<Vec<_>>(),
            [true, false, true, false, false, false]
        );
        assert!((0..6).all(|n| !left(n).is_left_out()));
    }
}
