//! Copies that take the place of their original: who refers to them, whose the names of constraints are, and what is when the drop
//! of the original fails.

use super::foreign::NewForeign;
use super::foreign_change::{References, Renaming};
use super::foreign_tests::{
    child, family_and_copy, foreign, links, make, misfit, new, parent, parents, rename, seen,
    ASIDE, COPY,
};
use crate::catalog::matching::Misfit;
use crate::catalog::spec::{IndexSpec, TableSpec};
use crate::ddl::DdlCaller;
use crate::state::touched::Touched;
use crate::testing::{described, open};
use crate::transaction::session::Session;
use crate::Engine;
use ferrite_io::sim::SimStorage;
use ferrite_sync::Arc;
use ferrite_types::{Error, Result};

const CHECKED: Renaming<'_> = Renaming {
    shown: None,
    checks: true,
};

fn copy_of(original: &str, follows: bool) -> NewForeign {
    NewForeign {
        original: Some(original.into()),
        follows,
        ..NewForeign::default()
    }
}

/// Whether a new constraint of that name is refused because another table of the database has it.
fn is_taken(engine: &Engine, table: &str, name: &str) -> bool {
    let key = foreign(name, "d/p", &[("a", "id")]);
    match make(engine, table, new(vec![key], false)) {
        Ok(_) => {
            engine.dict.drop_table(table, References::Any).unwrap();
            false
        }
        refused => misfit(refused) == Misfit::Name.parts().0,
    }
}

/// The server looks for children when an ALTER begins, and puts nothing aside if there are none. One that comes while rows are
/// copied kept the original, which it refers to, from being dropped: both stayed, and the server knew of the child alone.
#[test]
fn a_child_that_comes_beside_a_copy_follows_it() {
    for (follows, known_as) in [(true, "d/q"), (false, "d/p")] {
        let disk = SimStorage::new(1);
        let engine = open(&disk);
        parent(&engine, "d/p");
        make(&engine, COPY, copy_of("d/p", follows)).unwrap();
        child(&engine, "d/c", "d/p", true).unwrap();
        let refused = engine.dict.drop_table("d/p", References::Any);
        assert_eq!(refused, Err(Error::Referenced("d/c".into())), "no heir yet");
        rename(&engine, COPY, "d/q");
        let refused = engine.dict.truncate_table("d/p", 1, References::Any);
        assert_eq!(refused, Err(Error::Referenced("d/c".into())), "its rows");
        engine.dict.drop_table("d/p", References::Any).unwrap();
        let found = follows.then(|| "d/q".to_string());
        assert_eq!(seen(&engine, "d/c").1, [found]);
        assert_eq!(parents(&engine), [known_as]);
        assert_eq!(engine.dict.replaced_tables(), []);
        engine.close().unwrap();
        let engine = open(&disk);
        assert_eq!(parents(&engine), [known_as], "after a restart");
        assert!(!engine.dict.exists("d/p"));
        engine.close().unwrap();
    }
}

/// A drop of the original that fails, as for a transaction that might have changed it.
fn fail_to_drop(engine: &Arc<Engine>, name: &str) {
    let table = engine.dict.open_table(name).unwrap();
    let mut touched = Touched::default();
    touched.add(table.tree(0).index());
    let other = Session::new(engine, 0, 2);
    engine.prepared_on.add(&touched);
    let at_work = other.txn.slot.state.lock();
    let dropped = engine.drop_table(name, &DdlCaller::default());
    drop(at_work);
    engine.prepared_on.remove(&touched);
    assert_eq!(dropped, Err(Error::LockTimeout));
    assert!(engine.dict.exists(name));
}

/// The server goes on without an original that it could not drop. The children had that one as their parent until the next start:
/// they found none of the rows that came, and rows with children could go.
#[test]
fn children_follow_though_the_original_stays() {
    for aside in [true, false] {
        let disk = SimStorage::new(2);
        let engine = open(&disk);
        family_and_copy(&engine, true);
        let original = if aside { ASIDE } else { "d/p" };
        if aside {
            rename(&engine, "d/p", ASIDE);
        }
        rename(&engine, COPY, "d/q");
        fail_to_drop(&engine, original);
        let shown = |child: &str| seen(&engine, child).1;
        assert_eq!(shown("d/c"), [Some("d/q".to_string())], "{aside}");
        assert_eq!(shown("d/q"), [Some("d/q".to_string())], "{aside}");
        let incoming = seen(&engine, "d/q").0;
        assert!(incoming.contains(&"d/c".into()) && incoming.contains(&"d/q".into()));
        if aside {
            assert_eq!(incoming, ["d/c", "d/q"], "what is put aside is no child");
            let refused = misfit(child(&engine, "d/e", "d/p", true));
            assert_eq!(refused, Misfit::Parent.parts().0, "it is no parent");
            assert_eq!(links(&engine, ASIDE).incoming.len(), 0);
        }
        let replaced = [(original.to_string(), "d/q".to_string())];
        assert_eq!(
            engine.dict.replaced_tables(),
            if aside { &replaced[..] } else { &[] }
        );
        engine.close().unwrap();
        let engine = open(&disk);
        assert_eq!(seen(&engine, "d/c").1, [Some("d/q".to_string())]);
        let dropped = engine.drop_replaced(&|_| true).unwrap();
        assert_eq!(
            dropped,
            if aside {
                vec![ASIDE.to_string()]
            } else {
                vec![]
            }
        );
        if !aside {
            engine.dict.drop_table("d/p", References::Any).unwrap();
        }
        assert_eq!(parents(&engine), ["d/q", "d/q"]);
        assert_eq!(engine.dict.replaced_tables(), []);
        rename(&engine, "d/q", "d/r");
        assert_eq!(parents(&engine), ["d/r", "d/r"]);
        engine.close().unwrap();
    }
}

/// A constraint's name is taken once in a database, whatever way a table comes there: by RENAME TABLE, by a copy, or while
/// the table that has it is put aside.
#[test]
fn a_copy_takes_no_other_tables_name_of_a_constraint() {
    let engine = open(&SimStorage::new(3));
    parent(&engine, "d/p");
    let own = |name: &str| foreign(name, "d/p", &[("a", "id")]);
    make(&engine, "d/c", new(vec![own("f")], true)).unwrap();
    make(&engine, "e/x", new(vec![own("F")], true)).unwrap();
    let exists = |from: &str, to: &str| {
        let renamed = engine.dict.rename_table(from, to, &CHECKED);
        assert_eq!(renamed, Err(Error::Exists), "{from} to {to}");
    };
    exists("d/c", "e/c");
    let copy = |table: &str, key: &str| {
        let carried = NewForeign {
            keys: vec![(own(key), true)],
            ..copy_of("d/c", true)
        };
        make(&engine, table, carried).unwrap();
    };
    copy("e/#sql-alter-7-1", "f");
    rename(&engine, "d/c", ASIDE);
    assert!(is_taken(&engine, "d/y", "f"), "while it is put aside");
    exists("e/#sql-alter-7-1", "e/c");
    let drop = |name: &str| engine.dict.drop_table(name, References::Any).unwrap();
    drop("e/#sql-alter-7-1");
    rename(&engine, ASIDE, "d/c");
    assert!(is_taken(&engine, "d/y", "f"), "it is back");
    // A generated name that follows the table, which another one has.
    make(&engine, "d/z", new(vec![own("u_ibfk_1")], true)).unwrap();
    copy(COPY, "u_ibfk_1");
    rename(&engine, "d/c", ASIDE);
    exists(COPY, "d/u");
    drop(COPY);
    rename(&engine, ASIDE, "d/c");
    // Or itself.
    let both = new(vec![own("t_ibfk_1"), own("v_ibfk_1")], true);
    make(&engine, "d/t", both).unwrap();
    exists("d/t", "d/v");
    assert_eq!(seen(&engine, "d/p").0.len(), 5);
    engine.close().unwrap();
}

/// What is taken back has its names again; another table could have the same.
#[test]
fn an_alter_that_is_taken_back_leaves_the_names_of_constraints() {
    for (aside, by_name) in [(true, true), (true, false), (false, true), (false, false)] {
        let what = format!("put aside: {aside}, by its old name: {by_name}");
        let engine = open(&SimStorage::new(4));
        family_and_copy(&engine, true);
        if aside {
            rename(&engine, "d/p", ASIDE);
        }
        engine
            .dict
            .rename_table(COPY, "d/q", &Renaming::default())
            .unwrap();
        assert!(is_taken(&engine, "d/y", "own"), "{what}: the copy's");
        if by_name {
            rename(&engine, "d/q", COPY);
            assert!(is_taken(&engine, "d/y", "own"), "{what}: the original's");
        }
        let copy = if by_name { COPY } else { "d/q" };
        engine.dict.drop_table(copy, References::Any).unwrap();
        assert!(is_taken(&engine, "d/y", "own"), "{what}: without the copy");
        if aside {
            rename(&engine, ASIDE, "d/p");
        }
        assert!(is_taken(&engine, "d/y", "own"), "{what}: taken back");
        engine.dict.drop_table("d/p", References::None).unwrap();
        assert!(!is_taken(&engine, "d/y", "own"), "{what}: dropped");
        engine.close().unwrap();
    }
}

/// A table (id, a, b?) with these indexes.
fn made_with(engine: &Engine, name: &str, first: &[u16], foreign: NewForeign) {
    let indexes = vec![
        IndexSpec::new("PRIMARY", true, 1),
        IndexSpec::new("k", false, 2),
    ];
    let mut spec = TableSpec::new(name, indexes);
    spec.definition = described(&["id", "a", "b?"], &[first, &[1, 2]]);
    engine.dict.create_with_foreign(spec, 1, foreign).unwrap();
}

/// The children would follow to a table that has no index for them.
#[test]
fn a_copy_without_the_childrens_index_gets_no_other_name() {
    let engine = open(&SimStorage::new(5));
    parent(&engine, "d/p");
    child(&engine, "d/c", "d/p", true).unwrap();
    made_with(&engine, COPY, &[1], copy_of("d/p", true));
    rename(&engine, "d/p", ASIDE);
    let name = |checks| {
        let how = Renaming {
            checks,
            ..Renaming::default()
        };
        engine.dict.rename_table(COPY, "d/q", &how)
    };
    let refused: Result<()> = name(true);
    assert!(matches!(refused, Err(Error::ForeignKey(_))), "{refused:?}");
    name(false).unwrap();
    engine.dict.drop_table(ASIDE, References::Any).unwrap();
    engine.close().unwrap();
}

/// What did not fit before the ALTER need not fit after it, of the child and of the parent.
#[test]
fn a_copy_need_fit_no_better_than_its_original() {
    let engine = open(&SimStorage::new(6));
    let key = foreign("f", "d/p", &[("a", "id")]);
    make(&engine, "d/c", new(vec![key.clone()], false)).unwrap();
    // It comes without the index, with foreign_key_checks=0.
    made_with(&engine, "d/p", &[1], NewForeign::default());
    for table in ["d/p", "d/c"] {
        let carried = NewForeign {
            keys: if table == "d/c" {
                vec![(key.clone(), true)]
            } else {
                vec![]
            },
            checks: true,
            ..copy_of(table, true)
        };
        let first: &[u16] = if table == "d/c" { &[0] } else { &[1] };
        made_with(&engine, COPY, first, carried);
        rename(&engine, table, ASIDE);
        rename(&engine, COPY, table);
        engine.dict.drop_table(ASIDE, References::Any).unwrap();
    }
    // One that fitted is still to fit.
    engine.dict.drop_table("d/p", References::None).unwrap();
    parent(&engine, "d/p");
    made_with(&engine, COPY, &[1], copy_of("d/p", true));
    rename(&engine, "d/p", ASIDE);
    let unfit = engine.dict.rename_table(COPY, "d/p", &CHECKED);
    assert!(matches!(unfit, Err(Error::ForeignKey(_))), "{unfit:?}");
    engine.close().unwrap();
}

/// A start drops also the table in which the server keeps the VECTOR INDEX of what it drops.
#[test]
fn a_vector_index_goes_with_what_was_put_aside() {
    let engine = open(&SimStorage::new(7));
    family_and_copy(&engine, true);
    let vectors = [format!("{ASIDE}#i#00"), format!("{ASIDE}#i#01")];
    for (no, name) in vectors.iter().enumerate() {
        parent(&engine, &format!("d/p#i#0{no}"));
        rename(&engine, &format!("d/p#i#0{no}"), name);
    }
    // Of another table, which stays.
    parent(&engine, "d/#sql-backup-7-10#i#00");
    rename(&engine, "d/p", ASIDE);
    rename(&engine, COPY, "d/q");
    let mut dropped = engine.drop_replaced(&|_| true).unwrap();
    dropped.sort_unstable();
    let [first, second] = vectors;
    assert_eq!(dropped, [ASIDE.to_string(), first, second]);
    assert!(engine.dict.exists("d/#sql-backup-7-10#i#00"));
    engine.close().unwrap();
}

/// All partitions of a copy say what it replaces, until that is gone.
#[test]
fn each_partition_of_a_copy_has_its_place() {
    for vectors in [false, true] {
        let engine = open(&SimStorage::new(8));
        parent(&engine, "d/p");
        let parts = match vectors {
            false => ["#P#p0", "#P#p1"],
            true => ["", "#i#00"],
        };
        for part in parts {
            make(&engine, &format!("{COPY}{part}"), copy_of("d/p", true)).unwrap();
        }
        child(&engine, "d/c", "d/p", true).unwrap();
        for part in parts {
            let unchecked = Renaming::default();
            let (from, to) = (format!("{COPY}{part}"), format!("d/q{part}"));
            engine.dict.rename_table(&from, &to, &unchecked).unwrap();
            let replaces = engine.dict.replaced_by(&to);
            assert_eq!(replaces.as_deref(), Some("d/p"));
        }
        engine.dict.drop_table("d/p", References::None).unwrap();
        for part in parts {
            assert_eq!(engine.dict.replaced_by(&format!("d/q{part}")), None);
        }
        let wanted = if vectors { "d/q" } else { "d/p" };
        assert_eq!(parents(&engine), [wanted], "the child follows the table");
        engine.close().unwrap();
    }
}
