//! Temporary tables: one connection's own, transactional like any other, gone with the
//! connection and with the life, also when a prepared transaction has changed them.

use crate::client::{After, Client};
use crate::corner::Corner;
use crate::ddl::{create, drop_now};
use crate::model::{TableModel, TableNo};

impl Client {
    fn own_temporary(&self) -> Vec<TableNo> {
        let model = self.environment.model();
        let own = model.tables.iter();
        own.filter(|(_, t)| t.temporary && t.owner == Some(self.thd))
            .map(|(no, _)| *no)
            .collect()
    }

    /// CREATE or DROP TEMPORARY TABLE, or a statement that changes one: none of them ends the
    /// transaction.
    pub fn temporary(&mut self) -> After {
        let own = self.own_temporary();
        let Some(no) = own.first().copied().filter(|_| self.rng.chance(9, 10)) else {
            return self.create_temporary();
        };
        if self.rng.chance(1, 8) {
            self.drop_temporary(no);
            return After::GoesOn;
        }
        self.write_to(no)
    }

    fn create_temporary(&mut self) -> After {
        let mut shape = self.environment.plan.new_shape(&mut self.rng);
        shape.keys = shape.keys.min(30);
        let no = self.environment.model().new_table();
        let name = format!("tmp/#sql{}_{no}", self.thd);
        let table = TableModel {
            owner: Some(self.thd),
            temporary: true,
            ..TableModel::new(&name, shape)
        };
        match create(&self.environment, &self.engine, no, table) {
            Ok(()) if self.environment.plan.extra.corner == Some(Corner::Ids) => self.fill(no),
            Ok(()) => After::GoesOn,
            Err(e) => {
                self.expect_injected(&e, "create temporary table");
                After::GoesOn
            }
        }
    }

    /// Every row number of a new table, each by a statement of its own.
    fn fill(&mut self, no: TableNo) -> After {
        let keys = self.environment.model().table(no).shape.keys;
        for n in 0..keys {
            let after = self.insert_into(no, n);
            if after == After::Over {
                return after;
            }
        }
        After::GoesOn
    }

    fn drop_temporary(&mut self, no: TableNo) {
        if self.tx.tables.remove(&no).is_some() {
            self.environment
                .model()
                .tables
                .entry(no)
                .and_modify(|t| t.users -= 1);
        }
        self.tx.touched.remove(&no);
        self.tx.writes.retain(|(table, _), _| *table != no);
        for (_, writes) in &mut self.tx.saves {
            writes.retain(|(table, _), _| *table != no);
        }
        if let Err(e) = drop_now(&self.environment, &self.engine, no) {
            self.expect_injected(&e, "drop temporary table");
        }
    }

    /// The client goes, with its temporary tables, and another one comes in its place. No
    /// transaction is open.
    pub fn disconnect(&mut self) {
        for no in self.own_temporary() {
            self.drop_temporary(no);
        }
        self.new_session();
    }
}
