//! The client of DDL: each time one of all the kinds of it, on a table that nobody uses.
//!
//! Its statements are those of `ddl`, `foreign_ddl` and `travel`. Locking: theirs.

use crate::ddl::{change, choose, copy, create, wait_ms, THD};
use crate::environment::Environment;
use crate::foreign_ddl::family_ddl;
use crate::model::{Ddl, TableModel};
use crate::travel::travel;
use ferrite_engine::{Engine, References};
use ferrite_sync::random::Rng;
use ferrite_sync::{thread, Arc};

/// DDL on tables that no session uses.
pub fn ddl_client(environment: &Arc<Environment>, engine: &Arc<Engine>, seed: u64) {
    let mut rng = Rng::new(seed);
    for _ in 0..rng.between(1, 6) {
        thread::sleep_us(rng.below(20_000));
        if environment.plan.has_families() {
            family_ddl(environment, engine, &mut rng);
            continue;
        }
        if rng.chance(1, 3) {
            let shape = environment.plan.new_shape(&mut rng);
            let no = environment.model().new_table();
            let table = TableModel::new(&format!("sim/n{no}"), shape);
            if let Err(e) = create(environment, engine, no, table) {
                assert!(environment.is_injected(&e), "create: {e}");
            }
            continue;
        }
        let Some(no) = choose(environment, &mut rng) else {
            continue;
        };
        if environment.plan.extra.travels && rng.chance(1, 2) {
            travel(environment, engine, no, THD, &mut rng);
            continue;
        }
        if environment.plan.extra.copies && rng.chance(1, 2) {
            copy(environment, engine, no, &mut rng);
            continue;
        }
        let what = match rng.below(3) {
            0 => Ddl::Drop,
            1 => Ddl::Truncate,
            _ => Ddl::Rename(format!("sim/r{no}_{}", environment.model().new_stamp())),
        };
        let _ = change(
            environment,
            engine,
            no,
            &what,
            wait_ms(environment, &mut rng),
            References::Any,
        );
    }
}
