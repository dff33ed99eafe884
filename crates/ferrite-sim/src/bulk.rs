//! One client whose transactions have very many values out of line: all of them written,
//! replaced or deleted at once, and then committed, rolled back, prepared or taken back to a
//! savepoint. No log record may grow with them: the log's ring is small in these runs, and a
//! record that does not fit a quarter of it is a panic.

use crate::client::{After, Client};
use crate::corner::Corner;
use crate::ddl::create;
use crate::environment::Environment;
use crate::model::{TableModel, TableNo, Writes};
use crate::plan::Extra;
use crate::rows::Shape;
use ferrite_engine::{Engine, Table};
use ferrite_sync::Arc;
use ferrite_types::Error;

/// Its connection.
pub const THD: usize = 13;
/// Rows that one statement changes.
const ROWS_OF_STATEMENT: u64 = 100;
/// Row numbers this far apart follow each other; no divisor of their count.
const SCATTER: u64 = 37;
/// Its table.
const NAME: &str = "sim/bulk";

/// Values are short: it is their number that counts. Rows are too, but where a recovery is to have
/// many leaves to change.
fn shape(extra: &Extra) -> Shape {
    let wide = extra.corner == Some(Corner::Restart);
    Shape {
        key_prefix: 0,
        max_fill: if wide { 2000 } else { 0 },
        max_big: 24,
        same_big: false,
        keys: extra.bulk,
        k_values: 1,
        u_values: 1,
        secondary: Vec::new(),
        covering: false,
        entry_fill: 0,
        kin: None,
    }
}

fn table_of(environment: &Environment) -> Option<TableNo> {
    let model = environment.model();
    let mut tables = model.tables.iter();
    tables.find(|(_, t)| t.name == NAME).map(|(no, _)| *no)
}

/// The client.
pub fn bulk_client(environment: &Arc<Environment>, engine: &Arc<Engine>, seed: u64, thd: usize) {
    assert_eq!(thd, THD);
    let no = table_of(environment).unwrap_or_else(|| {
        let no = environment.model().new_table();
        let table = TableModel {
            owner: Some(THD),
            ..TableModel::new(NAME, shape(&environment.plan.extra))
        };
        if let Err(e) = create(environment, engine, no, table) {
            assert!(environment.is_injected(&e), "create: {e}");
        }
        no
    });
    let mut c = Client::new(environment, engine, thd, seed);
    for _ in 0..c.rng.between(1, 3) {
        c.begin();
        c.isolation = ferrite_engine::Isolation::RepeatableRead;
        if c.bulk_transaction(no) == After::Over {
            continue;
        }
        match c.rng.below(6) {
            0 => {
                c.roll_back();
            }
            1 | 2 if environment.plan.prepare => c.two_phases(),
            _ => c.commit(),
        }
    }
    c.disconnect();
}

impl Client {
    fn bulk_transaction(&mut self, no: TableNo) -> After {
        let Some(table) = self.use_table(no) else {
            return After::GoesOn;
        };
        if let Err(e) = self.mark() {
            return self.failed(&e, "mark");
        }
        self.tx.touched.insert(no);
        let shape = self.environment.model().table(no).shape.clone();
        let there = self
            .environment
            .model()
            .view_all(no, u64::MAX, &self.tx.writes);
        let deletes = self.rng.chance(1, 2);
        // Who goes back to a savepoint has few values left: some never do.
        let has_savepoints = self.rng.chance(1, 3);
        let from = self.rng.below(shape.keys / 40);
        let mut before = Writes::new();
        // All over the leaves, where there are many.
        let scatter = if shape.max_fill > 0 { SCATTER } else { 1 };
        for n in from..shape.keys {
            if n == from || n % ROWS_OF_STATEMENT == 0 {
                self.statement();
                before.clone_from(&self.tx.writes);
            }
            let row = n * scatter % shape.keys;
            let result = match there.contains_key(&row) {
                true if deletes => self.delete(no, &table, &shape, row),
                true => self.update_value(no, &table, &shape, row),
                false => self.insert_value(no, &table, &shape, row),
            };
            match result {
                Ok(()) if n % ROWS_OF_STATEMENT == ROWS_OF_STATEMENT - 1 => {
                    self.statement_ends();
                }
                Ok(()) => {}
                Err(e) => {
                    let after = self.failed(&e, "bulk");
                    if after == After::GoesOn {
                        // The whole statement was taken back.
                        self.tx.writes = before;
                    }
                    return after;
                }
            }
            let saves = has_savepoints && n % (7 * ROWS_OF_STATEMENT) == 699;
            if saves && self.savepoint() == After::Over {
                return After::Over;
            }
        }
        self.statement_ends();
        After::GoesOn
    }

    fn insert_value(
        &mut self,
        no: TableNo,
        table: &Arc<Table>,
        shape: &Shape,
        n: u64,
    ) -> Result<(), Error> {
        let row = self.row_with_value(table, shape)?;
        self.insert_this(no, table, shape, n, row)
    }

    fn update_value(
        &mut self,
        no: TableNo,
        table: &Arc<Table>,
        shape: &Shape,
        n: u64,
    ) -> Result<(), Error> {
        let Some(old) = self.locked_row(no, table, shape, n)? else {
            return Ok(());
        };
        let row = self.row_with_value(table, shape)?;
        self.update_this(no, table, shape, (n, n), old, row)
    }
}
