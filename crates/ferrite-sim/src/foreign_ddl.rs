//! Tables with foreign keys come and go, get other names, are emptied, and get other foreign keys, while
//! clients change rows of their parents and children: the server locks only the table itself.

use crate::ddl::{begin, change, choose, create_checked, done, wait_ms};
use crate::draw_corner;
use crate::environment::Environment;
use crate::family::{description, new_foreign, Constraint};
use crate::model::{Ddl, TableModel, TableNo, Writes, MARKS};
use crate::rows::{Secondary, Shape};
use ferrite_engine::{AlterForeign, DdlCaller, Engine, References};
use ferrite_sync::random::Rng;
use ferrite_sync::{sim, Arc};
use ferrite_types::Error;

/// One change of a table with foreign keys, or of these.
pub fn family_ddl(environment: &Arc<Environment>, engine: &Arc<Engine>, rng: &mut Rng) {
    let kind = rng.below(12);
    match kind {
        0 | 1 => return new_child(environment, engine, rng),
        2 => return awaited_parent(environment, engine, rng),
        3 | 4 => return constrain(environment, engine, rng),
        _ => {}
    }
    let Some(no) = choose(environment, rng) else {
        return;
    };
    let what = match kind {
        5 | 6 => Ddl::Drop,
        7 | 8 => Ddl::Truncate,
        _ => Ddl::Rename(format!("sim/r{no}_{}", environment.model().new_stamp())),
    };
    let references = match rng.chance(1, 10) {
        true => References::None,
        false => References::Any,
    };
    let wait_ms = wait_ms(environment, rng);
    let _ = change(environment, engine, no, &what, wait_ms, references);
}

/// A table with foreign keys, as any client sees it.
fn some_table(environment: &Environment, rng: &mut Rng) -> Option<(String, Shape)> {
    let model = environment.model();
    let kin = |(no, t): &(&TableNo, &TableModel)| **no != MARKS && t.shape.kin.is_some();
    let all: Vec<_> = model.tables.iter().filter(kin).collect();
    let (_, t) = all.get(rng.below(all.len().max(1) as u64) as usize)?;
    Some((t.name.clone(), t.shape.clone()))
}

fn some_shape(environment: &Environment, rng: &mut Rng) -> Shape {
    let shapes = &environment.plan.shapes;
    shapes[rng.below(shapes.len() as u64) as usize].clone()
}

/// Whatever may be referred to can be.
fn with_all_indexes(mut shape: Shape) -> Shape {
    if !shape.secondary.contains(&Secondary::Unique) {
        shape.secondary.push(Secondary::Unique);
    }
    shape
}

/// CREATE TABLE of a child, of a parent that rows come into and go from, or that there is not yet.
fn new_child(environment: &Arc<Environment>, engine: &Arc<Engine>, rng: &mut Rng) {
    let no = environment.model().new_table();
    let shape = some_shape(environment, rng);
    let waits = rng.chance(1, 5);
    let parent = match waits {
        true => Some((format!("sim/w{no}"), with_all_indexes(shape.clone()))),
        false => some_table(environment, rng),
    };
    let Some((parent, there)) = parent else {
        return;
    };
    let bond = draw_corner::bond(rng, &[shape.clone(), there], 0, 1);
    let table = TableModel {
        constraints: vec![Constraint::new(format!("n{no}_ibfk_1"), parent, &bond)],
        ..TableModel::new(&format!("sim/n{no}"), shape)
    };
    if let Err(e) = create_checked(environment, engine, no, table, !waits) {
        assert!(environment.is_injected(&e), "create child: {e}");
    }
}

/// CREATE TABLE of a name that a child refers to.
fn awaited_parent(environment: &Arc<Environment>, engine: &Arc<Engine>, rng: &mut Rng) {
    let name = {
        let model = environment.model();
        let all = model.tables.values().flat_map(|t| &t.constraints);
        let mut missing = all.filter(|c| model.named(&c.parent).is_none());
        missing.next().map(|c| c.parent.clone())
    };
    let Some(name) = name else {
        return;
    };
    let shape = with_all_indexes(some_shape(environment, rng));
    let no = environment.model().new_table();
    let table = TableModel::new(&name, shape);
    if let Err(e) = create_checked(environment, engine, no, table, true) {
        assert!(environment.is_injected(&e), "create parent: {e}");
    }
}

/// ALTER TABLE ... ADD FOREIGN KEY, DROP FOREIGN KEY, in place.
fn constrain(environment: &Arc<Environment>, engine: &Arc<Engine>, rng: &mut Rng) {
    let Some(no) = choose(environment, rng) else {
        return;
    };
    let Some((parent, there)) = some_table(environment, rng) else {
        return;
    };
    let (name, old, shape, is_empty) = {
        let model = environment.model();
        let t = model.table(no);
        if t.shape.kin.is_none() {
            return;
        }
        let rows = model.view_all(no, u64::MAX, &Writes::new());
        let is_empty = rows.is_empty() && model.holders(no, false).is_empty();
        (
            t.name.clone(),
            t.constraints.clone(),
            t.shape.clone(),
            is_empty,
        )
    };
    let (mut new, mut alter) = (old, AlterForeign::default());
    if !new.is_empty() && rng.chance(1, 2) {
        let gone = new.remove(rng.below(new.len() as u64) as usize);
        alter.drop.push(gone.name);
    }
    if alter.drop.is_empty() || rng.chance(1, 3) {
        let bond = draw_corner::bond(rng, &[shape.clone(), there], 0, 1);
        let stamp = environment.model().new_stamp();
        let added = Constraint {
            // Those that are there are not looked at.
            enforced: is_empty,
            ..Constraint::new(format!("a{stamp}"), parent, &bond)
        };
        alter.add = new_foreign(std::slice::from_ref(&added), false);
        new.push(added);
    }
    let what = Ddl::Constrain(new);
    if begin(environment, no, &what).is_none() {
        return;
    }
    let caller = DdlCaller::default();
    let result = engine.alter_table(&name, &description(&shape), &alter, None, &caller);
    sim::note(&format!("{what:?} of {name}: {result:?}"));
    done(environment, no, &what, result.is_ok());
    if let Err(e) = result {
        let may = environment.is_injected(&e) && !matches!(e, Error::ForeignKey(_));
        assert!(may, "foreign keys of {name}: {e}");
    }
}
