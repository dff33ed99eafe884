//! Foreign keys in the dictionary: who finds whom, what is refused, and what a power failure leaves.

use super::foreign::{AlterForeign, NewForeign};
use super::foreign_change::{References, Renaming};
use crate::catalog::describe::{Description, PartKind};
use crate::catalog::foreign::{Action, ForeignKey};
use crate::catalog::links::{Links, NO_INDEX};
use crate::catalog::matching::{child_side, parent_side, without_child_index, Misfit};
use crate::catalog::spec::{IndexSpec, TableSpec};
use crate::catalog::table::Table;
use crate::testing::{described, open};
use crate::Engine;
use ferrite_io::sim::SimStorage;
use ferrite_sync::random::Rng;
use ferrite_sync::Arc;
use ferrite_types::{Error, Result};
use std::collections::BTreeMap;
use std::panic::{catch_unwind, AssertUnwindSafe};

/// `name (own columns) REFERENCES parent (columns)`.
pub(super) fn foreign(name: &str, parent: &str, columns: &[(&str, &str)]) -> ForeignKey {
    let pair = |(a, b): &(&str, &str)| (a.to_string(), b.to_string());
    ForeignKey {
        name: name.into(),
        parent: parent.into(),
        columns: columns.iter().map(pair).collect(),
        on_delete: Action::Restrict,
        on_update: Action::Cascade,
        stamp: 0,
    }
}

pub(super) fn new(keys: Vec<ForeignKey>, checks: bool) -> NewForeign {
    NewForeign {
        keys: keys.into_iter().map(|key| (key, false)).collect(),
        checks,
        ..NewForeign::default()
    }
}

/// A table (id, a, b?) with a primary key and an index on (a, b).
pub(super) fn make(engine: &Engine, name: &str, foreign: NewForeign) -> Result<Arc<Table>> {
    let indexes = vec![
        IndexSpec::new("PRIMARY", true, 1),
        IndexSpec::new("k", false, 2),
    ];
    let mut spec = TableSpec::new(name, indexes);
    spec.definition = described(&["id", "a", "b?"], &[&[0], &[1, 2]]);
    engine.dict.create_with_foreign(spec, 1, foreign)
}

pub(super) fn parent(engine: &Engine, name: &str) -> Arc<Table> {
    make(engine, name, NewForeign::default()).unwrap()
}

pub(super) fn child(engine: &Engine, name: &str, of: &str, checks: bool) -> Result<Arc<Table>> {
    let key = foreign(&format!("{}_ibfk_1", &name[2..]), of, &[("a", "id")]);
    make(engine, name, new(vec![key], checks))
}

pub(super) fn links(engine: &Engine, name: &str) -> Arc<Links> {
    let table = engine.dict.open_table(name).unwrap();
    engine.dict.links(&table).unwrap()
}

/// Names of who refers to the table, and to whom it refers with a table found.
pub(super) fn seen(engine: &Engine, name: &str) -> (Vec<String>, Vec<Option<String>>) {
    let links = links(engine, name);
    let incoming = links.incoming.iter().map(|l| l.other.clone());
    let found = |peer: &crate::catalog::links::Peer| engine.dict.name_of(peer.table.id()).unwrap();
    let outgoing = links.outgoing.iter().map(|l| l.peer.as_ref().map(found));
    (incoming.collect(), outgoing.collect())
}

pub(super) fn misfit(result: Result<Arc<Table>>) -> u32 {
    match result.map(|table| table.id()) {
        Err(Error::ForeignKey(misfit)) => misfit.reason,
        other => panic!("{other:?}"),
    }
}

pub(super) fn rename(engine: &Engine, from: &str, to: &str) {
    let how = Renaming {
        checks: true,
        ..Renaming::default()
    };
    engine.dict.rename_table(from, to, &how).unwrap();
}

#[test]
fn both_sides_find_each_other_and_forget() {
    let engine = open(&SimStorage::new(1));
    let p = parent(&engine, "d/p");
    assert_eq!(
        p.links_version(),
        0,
        "a table without constraints pays nothing"
    );
    let c = child(&engine, "d/c", "d/p", true).unwrap();
    assert_eq!(seen(&engine, "d/p").0, ["d/c"]);
    assert_eq!(seen(&engine, "d/c").1, [Some("d/p".into())]);
    let link = &links(&engine, "d/c").outgoing[0];
    assert_eq!(
        (link.index_no, link.peer.as_ref().unwrap().index_no),
        (1, 0)
    );
    assert_eq!(
        (link.parts[0].own_column, link.parts[0].other_column),
        (1, 0)
    );
    // The same links as long as nothing changes, others after TRUNCATE of the other side.
    assert!(Arc::ptr_eq(&links(&engine, "d/c"), &links(&engine, "d/c")));
    let before = c.links_version();
    let refused = engine.dict.truncate_table("d/p", 1, References::Any);
    assert!(matches!(refused, Err(Error::Referenced(by)) if by == "d/c"));
    assert_eq!(c.links_version(), before, "refused, and something changed");
    engine
        .dict
        .truncate_table("d/p", 1, References::None)
        .unwrap();
    assert_ne!(c.links_version(), before);
    assert!(
        p.enter().is_none()
            && !Arc::ptr_eq(
                &links(&engine, "d/c").outgoing[0]
                    .peer
                    .as_ref()
                    .unwrap()
                    .table,
                &p
            )
    );
    assert_eq!(engine.dict.links(&p).err(), Some(Error::TableChanged));
    assert!(matches!(
        engine.dict.drop_table("d/p", References::Any),
        Err(Error::Referenced(_))
    ));
    engine
        .dict
        .drop_table("d/p", References::OtherDatabases)
        .unwrap();
    assert_eq!(seen(&engine, "d/c").1, [None]);
    parent(&engine, "d/p");
    assert_eq!(seen(&engine, "d/c").1, [Some("d/p".into())]);
    // A table that is gone is kept by nobody.
    links(&engine, "d/p");
    let gone = Arc::downgrade(&engine.dict.open_table("d/c").unwrap());
    drop(c);
    engine.dict.drop_table("d/c", References::Any).unwrap();
    let p = engine.dict.open_table("d/p").unwrap();
    assert_eq!(p.links_version(), 0);
    assert!(gone.upgrade().is_none());
    engine.close().unwrap();
}

#[test]
fn what_does_not_fit_is_refused() {
    let engine = open(&SimStorage::new(2));
    parent(&engine, "d/p");
    let number = |why: Misfit| why.parts().0;
    let one = |columns: &[(&str, &str)], of: &str| {
        misfit(make(
            &engine,
            "d/c",
            new(vec![foreign("f", of, columns)], true),
        ))
    };
    assert_eq!(
        one(&[("x", "id")], "d/p"),
        number(Misfit::ChildColumn(String::new()))
    );
    assert_eq!(one(&[("b", "id")], "d/p"), number(Misfit::ChildIndex));
    assert_eq!(one(&[("a", "id")], "d/q"), number(Misfit::Parent));
    assert_eq!(
        one(&[("a", "x")], "d/p"),
        number(Misfit::ParentColumn(String::new()))
    );
    assert_eq!(one(&[("a", "b")], "d/p"), number(Misfit::ParentIndex));
    let mut null = foreign("f", "d/p", &[("a", "id")]);
    null.on_delete = Action::SetNull;
    let refused = misfit(make(&engine, "d/c", new(vec![null], true)));
    assert_eq!(refused, number(Misfit::NotNull(String::new())));
    let twice = vec![
        foreign("f", "d/p", &[("a", "id")]),
        foreign("F", "d/p", &[("a", "id")]),
    ];
    assert_eq!(
        misfit(make(&engine, "d/c", new(twice, true))),
        number(Misfit::NameTwice)
    );
    assert!(!engine.dict.exists("d/c"), "nothing of it remains");
    child(&engine, "d/c", "d/p", true).unwrap();
    let taken = new(vec![foreign("C_ibfk_1", "d/p", &[("a", "id")])], true);
    assert_eq!(misfit(make(&engine, "d/e", taken)), number(Misfit::Name));
    // A secondary index goes on with the primary key.
    let tail = new(
        vec![foreign("g", "d/p", &[("a", "a"), ("b", "b"), ("id", "id")])],
        true,
    );
    make(&engine, "d/g", tail).unwrap();
    engine.close().unwrap();
}

/// The name of what a table has already is taken, and not one that the statement has twice.
#[test]
fn a_new_constraint_takes_no_name_of_its_own_table() {
    let engine = open(&SimStorage::new(2));
    parent(&engine, "d/p");
    child(&engine, "d/c", "d/p", true).unwrap();
    let own = |name: &str| foreign(name, "d/p", &[("a", "id")]);
    let (has, again) = ((own("c_ibfk_1"), true), (own("C_ibfk_1"), false));
    let refused = |result: Result<()>| match result {
        Err(Error::ForeignKey(misfit)) => (misfit.at, misfit.reason),
        other => panic!("{other:?}"),
    };
    let taken = Misfit::NameOfOwn.parts().0;
    for (keys, at) in [
        (vec![has.clone(), again.clone()], 1),
        (vec![again.clone(), has], 0),
    ] {
        let copy = NewForeign {
            keys,
            original: Some("d/c".into()),
            checks: true,
            ..NewForeign::default()
        };
        let made = make(&engine, "d/#sql-alter-1-1", copy);
        assert_eq!(refused(made.map(|_| ())), (at, taken));
    }
    let alter = |drop: &[&str], add: Vec<ForeignKey>| {
        let change = AlterForeign {
            drop: drop.iter().map(|name| (*name).to_string()).collect(),
            add: new(add, false),
            ..AlterForeign::default()
        };
        let definition = described(&["id", "a", "b?"], &[&[0], &[1, 2]]);
        engine.dict.alter_table("d/c", &definition, &change, None)
    };
    assert_eq!(refused(alter(&[], vec![own("c_ibfk_1")])), (0, taken));
    let twice = vec![own("c_ibfk_1"), own("c_ibfk_1")];
    let number = Misfit::NameTwice.parts().0;
    assert_eq!(refused(alter(&["c_ibfk_1"], twice)), (1, number));
    // What is wrong with it otherwise is found first, as by InnoDB.
    let mut other = own("c_ibfk_1");
    other.parent = "d/x".into();
    let wrong = NewForeign {
        keys: vec![(other, false)],
        checks: true,
        ..NewForeign::default()
    };
    let number = Misfit::Parent.parts().0;
    assert_eq!(misfit(make(&engine, "d/e", wrong)), number);
    alter(&["c_ibfk_1"], vec![own("c_ibfk_1")]).unwrap();
    engine.close().unwrap();
}

/// The way of ALTER TABLE by copy, of the parent and of the child: children find the old table until
/// the new one has its name.
#[test]
fn a_copy_takes_the_place_of_its_original() {
    let engine = open(&SimStorage::new(3));
    parent(&engine, "d/p");
    child(&engine, "d/c", "d/p", true).unwrap();
    parent(&engine, "d/#sql-alter-1");
    rename(&engine, "d/p", "d/#sql-backup-1");
    assert_eq!(seen(&engine, "d/c").1, [Some("d/#sql-backup-1".into())]);
    rename(&engine, "d/#sql-alter-1", "d/p");
    assert_eq!(seen(&engine, "d/c").1, [Some("d/p".into())]);
    engine
        .dict
        .drop_table("d/#sql-backup-1", References::Any)
        .unwrap();
    assert_eq!(seen(&engine, "d/p").0, ["d/c"]);

    let key = foreign("c_ibfk_1", "d/p", &[("a", "id")]);
    let carried = NewForeign {
        keys: vec![(key, true)],
        original: Some("d/c".into()),
        checks: true,
        strict: true,
        ..NewForeign::default()
    };
    // ALTER TABLE has read that before the parent got another name.
    rename(&engine, "d/p", "d/q");
    make(&engine, "d/#sql-alter-2", carried).unwrap();
    assert_eq!(links(&engine, "d/#sql-alter-2").outgoing[0].other, "d/q");
    rename(&engine, "d/q", "d/p");
    assert_eq!(
        seen(&engine, "d/p").0,
        ["d/c"],
        "copies are nobody's children"
    );
    assert!(links(&engine, "d/#sql-alter-2").outgoing[0].carried);
    rename(&engine, "d/c", "d/#sql-backup-2");
    rename(&engine, "d/#sql-alter-2", "d/c");
    engine
        .dict
        .drop_table("d/#sql-backup-2", References::Any)
        .unwrap();
    assert_eq!(seen(&engine, "d/p").0, ["d/c"]);
    assert!(!links(&engine, "d/c").outgoing[0].carried);
    let taken = new(vec![foreign("c_ibfk_1", "d/p", &[("a", "id")])], true);
    misfit(make(&engine, "d/e", taken));
    engine.close().unwrap();
}

/// Names and columns that all constraints refer to, by child.
fn referred(engine: &Engine) -> BTreeMap<String, (String, String, String)> {
    let rows = engine.dict.all_foreign().into_iter();
    let row = |row: crate::catalog::dictionary::foreign::ForeignRow| {
        let column = row.key.columns[0].1.clone();
        (
            row.child,
            (row.key.name.clone(), row.key.parent.clone(), column),
        )
    };
    rows.map(row).collect()
}

/// Constraints as they lie on disk, by child.
fn stored(engine: &Engine) -> BTreeMap<String, (String, String, String)> {
    engine.checkpoint().unwrap();
    referred(engine)
}

/// The power fails at any write while a parent with many children gets another name, or a column
/// of it: after the restart the table and all its children have the old name, or all have the new one.
#[test]
fn a_parent_is_renamed_as_a_whole() {
    const CHILDREN: usize = 5;
    let mut seen = [0; 2];
    for seed in 0..80u64 {
        let disk = SimStorage::new(seed);
        let engine = open(&disk);
        parent(&engine, "d/p");
        for n in 0..CHILDREN {
            child(&engine, &format!("d/c{n}"), "d/p", true).unwrap();
        }
        let own = foreign("own", "d/s", &[("a", "id")]);
        make(&engine, "d/s", new(vec![own], true)).unwrap();
        let column = seed % 2 == 1;
        disk.power_off_after(1 + seed / 2 % 12);
        let done = catch_unwind(AssertUnwindSafe(|| change_parents(&engine, column).is_ok()));
        disk.crash(&mut Rng::new(seed));
        let _ = catch_unwind(AssertUnwindSafe(|| engine.abandon()));
        drop(engine);
        let engine = open(&disk);
        let found = stored(&engine);
        let is_new = match column {
            true => found["d/c0"].2 == "key",
            false => engine.dict.exists("d/q"),
        };
        assert!(is_new || !matches!(done, Ok(true)), "seed {seed}: lost");
        let parent = if is_new && !column { "d/q" } else { "d/p" };
        let column = if is_new && column { "key" } else { "id" };
        for n in 0..CHILDREN {
            let (_, of, of_column) = &found[&format!("d/c{n}")];
            assert_eq!(
                (&**of, &**of_column),
                (parent, column),
                "seed {seed}: a mixture"
            );
        }
        assert_eq!(
            links(&engine, parent).incoming.len(),
            CHILDREN,
            "seed {seed}"
        );
        engine.close().unwrap();
        let engine = open(&disk);
        assert_eq!(referred(&engine), found, "seed {seed}: another restart");
        engine.close().unwrap();
        seen[usize::from(is_new)] += 1;
    }
    assert!(seen[0] > 5 && seen[1] > 5, "{seen:?}");
}

fn change_parents(engine: &Engine, column: bool) -> Result<()> {
    if !column {
        return engine.dict.rename_table("d/p", "d/q", &Renaming::default());
    }
    let renamed = AlterForeign {
        renamed: vec![("id".into(), "key".into())],
        ..AlterForeign::default()
    };
    let definition = described(&["key", "a", "b?"], &[&[0], &[1, 2]]);
    engine.dict.alter_table("d/p", &definition, &renamed, None)
}

/// The power fails at any write while a table's constraints change: all old ones or all new ones.
#[test]
fn constraints_change_as_a_whole() {
    let many = |name: &str, count: usize| {
        let one = |n| foreign(&format!("{name}{n:04}"), "d/p", &[("a", "id")]);
        (0..count).map(one).collect::<Vec<_>>()
    };
    let mut seen = [0; 2];
    for seed in 0..36u64 {
        let disk = SimStorage::new(seed);
        let engine = open(&disk);
        parent(&engine, "d/p");
        let (old, add) = (
            [1, 2000, 40][seed as usize % 3],
            [1700, 1][seed as usize / 3 % 2],
        );
        make(&engine, "d/c", new(many("old", old), true)).unwrap();
        let change = AlterForeign {
            drop: many("old", old).into_iter().map(|key| key.name).collect(),
            add: new(many("new", add), false),
            ..AlterForeign::default()
        };
        disk.power_off_after(1 + seed % 6);
        let definition = described(&["id", "a", "b?"], &[&[0], &[1, 2]]);
        let done = catch_unwind(AssertUnwindSafe(|| {
            engine
                .dict
                .alter_table("d/c", &definition, &change, None)
                .is_ok()
        }));
        disk.crash(&mut Rng::new(seed));
        let _ = catch_unwind(AssertUnwindSafe(|| engine.abandon()));
        drop(engine);
        let engine = open(&disk);
        let keys = engine.dict.foreign_keys_of("d/c");
        let is_new = keys[0].name.starts_with("new");
        let wanted = if is_new {
            many("new", add)
        } else {
            many("old", old)
        };
        assert!(
            keys.iter().map(|key| &**key).eq(wanted.iter()),
            "seed {seed}"
        );
        assert!(is_new || !matches!(done, Ok(true)), "seed {seed}: lost");
        engine.dict.drop_table("d/c", References::Any).unwrap();
        engine.close().unwrap();
        seen[usize::from(is_new)] += 1;
    }
    assert!(seen[0] > 5 && seen[1] > 5, "{seen:?}");
}

/// The power fails at any write while a table's definition and its AUTO_INCREMENT counter change: the counter is there if
/// the definition is. The other way round no value is given twice.
#[test]
fn a_counter_comes_with_its_definition() {
    let mut seen = [0; 2];
    for seed in 0..60u64 {
        let disk = SimStorage::new(seed);
        let engine = open(&disk);
        parent(&engine, "d/p").raise_auto_increment(7);
        let change = AlterForeign {
            auto_increment: Some([1000, 3][seed as usize % 2]),
            ..AlterForeign::default()
        };
        let definition = described(&["id", "a", "b?"], &[&[0], &[2, 1]]);
        disk.power_off_after(1 + seed % 3);
        let done = catch_unwind(AssertUnwindSafe(|| {
            engine
                .dict
                .alter_table("d/p", &definition, &change, None)
                .is_ok()
        }));
        disk.crash(&mut Rng::new(seed));
        let _ = catch_unwind(AssertUnwindSafe(|| engine.abandon()));
        drop(engine);
        let engine = open(&disk);
        let table = engine.dict.open_table("d/p").unwrap();
        let is_new = table.spec.definition == definition;
        let counter = table.auto_increment();
        let wanted = change.auto_increment;
        assert!(
            !is_new || Some(counter) == wanted,
            "seed {seed}: the definition came with the counter at {counter}, not {wanted:?}"
        );
        assert!(is_new || !matches!(done, Ok(true)), "seed {seed}: lost");
        drop(table);
        engine.close().unwrap();
        seen[usize::from(is_new)] += 1;
    }
    assert!(seen[0] > 5 && seen[1] > 5, "{seen:?}");
}

/// An ALTER that is refused leaves the counter as it was, also over a restart.
#[test]
fn a_refused_change_leaves_the_counter() {
    let disk = SimStorage::new(6);
    let engine = open(&disk);
    parent(&engine, "d/p").raise_auto_increment(7);
    let change = AlterForeign {
        auto_increment: Some(3),
        ..AlterForeign::default()
    };
    let long = vec![2; 1 << 24];
    let refused = engine.dict.alter_table("d/p", &long, &change, None);
    assert!(matches!(refused, Err(Error::RowTooBig)), "{refused:?}");
    let counter = |engine: &Engine| engine.dict.open_table("d/p").unwrap().auto_increment();
    assert_eq!(counter(&engine), 7);
    engine.close().unwrap();
    assert_eq!(counter(&open(&disk)), 7);
}

/// A table's definition has another version after each change, also if the new one reads as the old one did.
#[test]
fn each_definition_has_another_version() {
    let engine = open(&SimStorage::new(7));
    parent(&engine, "d/p");
    let definition = described(&["id", "a", "b?"], &[&[0], &[1, 2]]);
    for _ in 0..4 {
        let before = engine.dict.definition_version("d/p");
        let change = AlterForeign::default();
        engine
            .dict
            .alter_table("d/p", &definition, &change, None)
            .unwrap();
        assert_ne!(engine.dict.definition_version("d/p"), before);
    }
    engine.close().unwrap();
}

/// Names made by the engine follow their table; a table that other names wait for takes them over.
#[test]
fn a_renamed_child_keeps_its_parent() {
    let disk = SimStorage::new(5);
    let engine = open(&disk);
    parent(&engine, "d/p");
    child(&engine, "d/c", "d/p", true).unwrap();
    child(&engine, "d/w", "e/x", false).unwrap();
    rename(&engine, "d/c", "e/x");
    engine.close().unwrap();
    let engine = open(&disk);
    let found = referred(&engine);
    assert_eq!(found["e/x"].0, "x_ibfk_1");
    assert_eq!(seen(&engine, "d/p").0, ["e/x"]);
    assert_eq!(seen(&engine, "d/w").1, [Some("e/x".into())]);
    engine.close().unwrap();
}

/// Thousands of children of one parent: each costs the same.
#[test]
fn many_children() {
    let engine = open(&SimStorage::new(6));
    parent(&engine, "d/p");
    for n in 0..600 {
        child(&engine, &format!("d/c{n}"), "d/p", true).unwrap();
    }
    assert_eq!(links(&engine, "d/p").incoming.len(), 600);
    rename(&engine, "d/p", "d/q");
    assert_eq!(links(&engine, "d/q").incoming.len(), 600);
    engine.close().unwrap();
}

/// A table of an earlier version has no description, or one that does not tell history from living
/// rows: it is not taken for a parent, whether it is there first or comes to the name later.
#[test]
fn parents_of_earlier_versions_are_to_be_rebuilt() {
    const OLD: u32 = 12;
    let engine = open(&SimStorage::new(5));
    let bare = |name: &str| {
        let spec = TableSpec::new(name, vec![IndexSpec::new("PRIMARY", true, 1)]);
        engine.dict.create_table(spec, 1).unwrap();
    };
    bare("d/old");
    assert_eq!(misfit(child(&engine, "d/c", "d/old", false)), OLD);
    child(&engine, "d/c", "d/later", false).unwrap();
    match engine
        .dict
        .rename_table("d/old", "d/later", &Renaming::default())
    {
        Err(Error::ForeignKey(misfit)) => assert_eq!(misfit.reason, OLD),
        other => panic!("{other:?}"),
    }
    engine
        .dict
        .rename_table("d/old", "d/other", &Renaming::default())
        .unwrap();

    let of = |columns: &[&str], indexes: &[&[u16]]| {
        Description::decode(&described(columns, indexes)).unwrap()
    };
    let (c, mut p) = (
        of(&["id", "a"], &[&[0], &[1]]),
        of(&["id", "e"], &[&[0, 1]]),
    );
    let key = foreign("f", "d/p", &[("a", "id")]);
    let found = child_side(&key, &c).unwrap();
    assert!(parent_side(&key, &found, &p).is_ok());
    p.columns[1].sql_type = "timestamp(6)".into();
    assert_eq!(parent_side(&key, &found, &p).err(), Some(Misfit::ParentOld));
    for part in &mut p.indexes[0].parts {
        part.row_end_known = true;
    }
    assert!(parent_side(&key, &found, &p).is_ok());
}

/// A child that has lost its index finds its parent by the parent's; a parent that has lost its own has no
/// children, and texts of other collations never meet.
#[test]
fn a_child_without_its_index_has_its_parent() {
    let of = |columns: &[&str], indexes: &[&[u16]]| {
        Description::decode(&described(columns, indexes)).unwrap()
    };
    let (c, mut p) = (
        of(&["id", "b", "a"], &[&[0]]),
        of(&["id", "k", "l?"], &[&[0], &[2, 1]]),
    );
    let key = foreign("f", "d/p", &[("a", "l"), ("b", "k")]);
    assert_eq!(child_side(&key, &c).err(), Some(Misfit::ChildIndex));
    let fit = without_child_index(&key, &c, &p).unwrap();
    assert_eq!((fit.child_index, fit.parent_index), (NO_INDEX, 1));
    let columns = fit.parts.iter().map(|p| (p.own_column, p.other_column));
    assert_eq!(columns.collect::<Vec<_>>(), [(2, 2), (1, 1)]);
    assert_eq!(fit.parts[0].other.nullable, p.indexes[1].parts[0].nullable);
    let with_its_own = of(&["id", "b", "a"], &[&[0], &[2, 1]]);
    assert!(without_child_index(&key, &with_its_own, &p).is_none());
    (p.indexes[1].parts[1].kind, p.indexes[1].parts[1].width) = (PartKind::Text, 0);
    assert!(without_child_index(&key, &c, &p).is_some());
    p.columns[1].collation = "latin1_bin".into();
    assert!(without_child_index(&key, &c, &p).is_none());
    p.indexes.pop();
    assert!(without_child_index(&key, &c, &p).is_none());
}

/// A DROP that a crash broke off may be one that would have been refused, whatever other ALTER there was:
/// only a table that a copy is to take the place of may go although others refer to it.
#[test]
fn a_start_drops_a_parent_only_for_its_copy() {
    let disk = SimStorage::new(7);
    let engine = open(&disk);
    for name in ["d/p", "d/q"] {
        parent(&engine, name);
    }
    child(&engine, "d/c", "d/p", true).unwrap();
    child(&engine, "d/e", "d/q", true).unwrap();
    let copy_of = |original: &str| NewForeign {
        original: Some(original.into()),
        ..NewForeign::default()
    };
    // The copy may be in the database that the table goes to.
    make(&engine, "f/#sql-alter-1-2", copy_of("d/q")).unwrap();
    make(&engine, "d/other", copy_of("d/p")).unwrap();
    let _ = catch_unwind(AssertUnwindSafe(|| engine.abandon()));
    drop(engine);
    let engine = open(&disk);
    let drop_after_crash = |name| engine.dict.drop_table(name, References::UnlessReplaced);
    let is_refused = |result| matches!(result, Err(Error::Referenced(_)));
    assert!(is_refused(drop_after_crash("d/p")));
    drop_after_crash("d/q").unwrap();
    rename(&engine, "f/#sql-alter-1-2", "d/q");
    assert!(is_refused(drop_after_crash("d/q")), "the copy is in place");
    rename(&engine, "d/q", "d/#sql-backup-1-2");
    assert!(is_refused(drop_after_crash("d/p")), "no copy of it");
    // A copy's VECTOR INDEX, which a crash has left.
    make(&engine, "d/#sql-alter-1-4#i#01", NewForeign::default()).unwrap();
    assert!(is_refused(drop_after_crash("d/p")), "no copy of it");
    // An earlier version made it, and did not say of what.
    make(&engine, "d/#sql-alter-1-3", NewForeign::default()).unwrap();
    drop_after_crash("d/p").unwrap();
    engine.close().unwrap();
}

/// ALTER TABLE puts a child aside, and the copy takes its name: the parent has a child all the while.
#[test]
fn a_child_that_is_put_aside_is_one_until_the_copy_has_its_name() {
    let engine = open(&SimStorage::new(6));
    let p = parent(&engine, "d/p");
    child(&engine, "d/c", "d/p", true).unwrap();
    child(&engine, "d/#sql-alter-1-1", "d/p", true).unwrap();
    assert_eq!(seen(&engine, "d/p").0, ["d/c"]);
    rename(&engine, "d/c", "d/#sql-backup-1-1");
    assert_ne!(p.links_version(), 0, "rows of the parent go without a look");
    // Called as the server's locks are, whatever is opened under that name in the end.
    assert_eq!(seen(&engine, "d/p").0, ["d/c"]);
    let aside = links(&engine, "d/p").incoming[0].peer.clone().unwrap();
    let name = engine.dict.name_of(aside.table.id()).unwrap();
    assert_eq!(name, "d/#sql-backup-1-1");
    rename(&engine, "d/#sql-alter-1-1", "d/c");
    assert_eq!(seen(&engine, "d/p").0, ["d/c"]);
    engine
        .dict
        .drop_table("d/#sql-backup-1-1", References::Any)
        .unwrap();
    assert_eq!(seen(&engine, "d/p").0, ["d/c"]);
    // An ALTER that is taken back, and one that leaves the constraint out.
    rename(&engine, "d/c", "d/#sql-backup-1-2");
    rename(&engine, "d/#sql-backup-1-2", "d/c");
    assert_eq!(seen(&engine, "d/p").0, ["d/c"]);
    rename(&engine, "d/c", "d/#sql-backup-1-3");
    parent(&engine, "d/c");
    assert_eq!(seen(&engine, "d/p").0, [] as [&str; 0]);
    assert_eq!(p.links_version(), 0);
    engine.close().unwrap();
}

pub(super) const COPY: &str = "d/#sql-alter-7-1";
pub(super) const ASIDE: &str = "d/#sql-backup-7-1";

/// A parent with a child, one that refers to itself, and a copy of it.
pub(super) fn family_and_copy(engine: &Engine, follows: bool) {
    let own = |carried| NewForeign {
        keys: vec![(foreign("own", "d/p", &[("a", "id")]), carried)],
        ..NewForeign::default()
    };
    make(engine, "d/p", own(false)).unwrap();
    child(engine, "d/c", "d/p", true).unwrap();
    let copy = NewForeign {
        original: Some("d/p".into()),
        follows,
        ..own(true)
    };
    make(engine, COPY, copy).unwrap();
}

/// The last steps of ALTER TABLE p ..., RENAME TO q. `aside`: with foreign_key_checks the original is put aside.
fn take_the_name(engine: &Engine, aside: bool) -> Result<()> {
    let rename = |from, to| engine.dict.rename_table(from, to, &Renaming::default());
    if aside {
        rename("d/p", ASIDE)?;
    }
    rename(COPY, "d/q")?;
    let (original, references) = match aside {
        true => (ASIDE, References::Any),
        false => ("d/p", References::None),
    };
    engine.dict.drop_table(original, references)
}

pub(super) fn parents(engine: &Engine) -> Vec<String> {
    referred(engine).into_values().map(|key| key.1).collect()
}

/// ALTER TABLE gives a copy another name than its original's: who refers to the original refers to the copy from when the
/// original is dropped, after which the server takes nothing back.
#[test]
fn children_follow_a_copy_when_its_original_goes() {
    for aside in [true, false] {
        let disk = SimStorage::new(8);
        let engine = open(&disk);
        family_and_copy(&engine, true);
        take_the_name(&engine, aside).unwrap();
        assert_eq!(parents(&engine), ["d/q", "d/q"], "{aside}");
        assert_eq!(seen(&engine, "d/q").0, ["d/c", "d/q"]);
        assert_eq!(seen(&engine, "d/c").1, [Some("d/q".into())]);
        assert_eq!(engine.dict.replaced_tables(), []);
        // The copy is a table as any other.
        rename(&engine, "d/q", "d/r");
        engine.close().unwrap();
        let engine = open(&disk);
        assert_eq!(parents(&engine), ["d/r", "d/r"], "{aside}: after a restart");
        engine.close().unwrap();
    }
}

/// With ALGORITHM=COPY they keep the name, as in InnoDB.
#[test]
fn children_keep_the_name_if_a_copy_was_asked_for() {
    let engine = open(&SimStorage::new(9));
    family_and_copy(&engine, false);
    take_the_name(&engine, true).unwrap();
    assert_eq!(parents(&engine), ["d/p", "d/p"]);
    assert_eq!(seen(&engine, "d/c").1, [None]);
    assert_eq!(engine.dict.replaced_tables(), []);
    engine.close().unwrap();
}

/// The server takes the statement back after the copy has its name: the original comes back to its children.
#[test]
fn an_alter_that_is_taken_back_leaves_the_children() {
    // The copy may have its old name again first.
    for by_name in [false, true] {
        take_it_back(by_name);
    }
}

fn take_it_back(by_name: bool) {
    let disk = SimStorage::new(10);
    let engine = open(&disk);
    family_and_copy(&engine, true);
    rename(&engine, "d/p", ASIDE);
    engine
        .dict
        .rename_table(COPY, "d/q", &Renaming::default())
        .unwrap();
    assert_eq!(seen(&engine, "d/c").1, [Some(ASIDE.into())]);
    assert_eq!(
        engine.dict.replaced_tables(),
        [(ASIDE.to_string(), "d/q".to_string())]
    );
    let copy = if by_name { COPY } else { "d/q" };
    if by_name {
        rename(&engine, "d/q", COPY);
        assert_eq!(engine.dict.replaced_by(COPY).as_deref(), Some("d/p"));
    }
    assert_eq!(
        engine.dict.replaced_tables().is_empty(),
        by_name,
        "before it goes"
    );
    engine.dict.drop_table(copy, References::Any).unwrap();
    assert_eq!(engine.dict.replaced_tables(), []);
    rename(&engine, ASIDE, "d/p");
    assert_eq!(parents(&engine), ["d/p", "d/p"]);
    assert_eq!(seen(&engine, "d/p").0, ["d/c", "d/p"]);
    engine.close().unwrap();
    let engine = open(&disk);
    assert_eq!(parents(&engine), ["d/p", "d/p"], "after a restart");
    engine.close().unwrap();
}

/// What the server's start does with such a statement that a crash has cut off after the copy was filled, and then the
/// engine's.
fn recover_alter(engine: &Engine) -> Vec<String> {
    match engine.dict.drop_table("d/p", References::UnlessReplaced) {
        Ok(()) | Err(Error::NotFound) => {}
        other => panic!("{other:?}"),
    }
    let how = Renaming::default();
    engine.dict.rename_table(COPY, "d/q", &how).unwrap();
    engine.drop_replaced(&|_| true).unwrap()
}

/// The power fails at any write of these steps: after the server's recovery the children have the copy, and nothing is left.
#[test]
fn a_crash_leaves_no_child_without_the_copy() {
    let (mut whole, mut left) = (0, 0);
    for seed in 0..80u64 {
        let disk = SimStorage::new(seed);
        let engine = open(&disk);
        family_and_copy(&engine, true);
        let aside = seed % 4 != 0;
        disk.power_off_after(1 + seed / 4 % 16);
        let done = catch_unwind(AssertUnwindSafe(|| take_the_name(&engine, aside).is_ok()));
        whole += usize::from(matches!(done, Ok(true)));
        disk.crash(&mut Rng::new(seed));
        let _ = catch_unwind(AssertUnwindSafe(|| engine.abandon()));
        drop(engine);
        let engine = open(&disk);
        left += recover_alter(&engine).len();
        assert_eq!(stored(&engine).len(), 2, "seed {seed}");
        assert_eq!(parents(&engine), ["d/q", "d/q"], "seed {seed}");
        assert_eq!(seen(&engine, "d/q").0, ["d/c", "d/q"], "seed {seed}");
        assert_eq!(engine.tables_put_aside(), [] as [&str; 0], "seed {seed}");
        engine.close().unwrap();
        let engine = open(&disk);
        assert_eq!(parents(&engine), ["d/q", "d/q"], "seed {seed}: again");
        engine.close().unwrap();
    }
    assert!(whole > 5 && left > 5, "{whole} whole, {left} left");
}

/// What is put aside and nobody has replaced may be all that there is of a table.
#[test]
fn what_nobody_has_replaced_stays() {
    let engine = open(&SimStorage::new(11));
    family_and_copy(&engine, true);
    rename(&engine, "d/p", ASIDE);
    assert_eq!(engine.drop_replaced(&|_| true).unwrap(), [] as [&str; 0]);
    engine.dict.drop_table(COPY, References::Any).unwrap();
    assert_eq!(engine.drop_replaced(&|_| true).unwrap(), [] as [&str; 0]);
    assert_eq!(engine.tables_put_aside(), [ASIDE]);
    // The server does not know the table that has replaced it.
    make(&engine, "d/x", NewForeign::default()).unwrap();
    let copy = NewForeign {
        original: Some("d/x".into()),
        ..NewForeign::default()
    };
    make(&engine, "d/#sql-alter-8-1", copy).unwrap();
    rename(&engine, "d/x", "d/#sql-backup-8-1");
    rename(&engine, "d/#sql-alter-8-1", "d/y");
    assert_eq!(engine.drop_replaced(&|_| false).unwrap(), [] as [&str; 0]);
    assert_eq!(
        engine.drop_replaced(&|_| true).unwrap(),
        ["d/#sql-backup-8-1"]
    );
    engine.close().unwrap();
}
