//! Which tables there are, and which of them hang together by foreign keys.

use crate::error::{Error, Result};
use crate::server::{field, Server};
use crate::sql::{refers_to, text, Create};
use std::collections::BTreeMap;

/// Databases whose tables are the server's own, or this program's.
const SYSTEM: &str =
    "'mysql','information_schema','performance_schema','sys','ferrite_migrate_trial'";

/// A table and what is known of it before anything is tried.
#[derive(Clone, Debug)]
pub struct Table {
    /// Its database.
    pub database: String,
    /// Its name.
    pub table: String,
    /// Its engine.
    pub engine: String,
    /// Rows, as the engine estimates them.
    pub rows: u64,
    /// Bytes of rows and indexes, likewise.
    pub bytes: u64,
    /// Its definition.
    pub create: Create,
}

impl Table {
    /// `database.table` without quotes.
    pub fn label(&self) -> String {
        format!("{}.{}", self.database, self.table)
    }
}

/// Which tables are asked for: all but the server's own if nothing is given.
fn condition(databases: &[String], tables: &[String]) -> Result<String> {
    let mut wanted: Vec<String> = databases
        .iter()
        .map(|d| format!("TABLE_SCHEMA = {}", text(d)))
        .collect();
    for table in tables {
        let (database, name) = table
            .split_once('.')
            .ok_or_else(|| Error::Refused(format!("--table {table}: give it as DATABASE.TABLE")))?;
        wanted.push(format!(
            "(TABLE_SCHEMA = {} AND TABLE_NAME = {})",
            text(database),
            text(name)
        ));
    }
    Ok(if wanted.is_empty() {
        "TRUE".into()
    } else {
        format!("({})", wanted.join(" OR "))
    })
}

/// The tables asked for that are not of this engine.
pub fn find(
    server: &mut Server,
    engine: &str,
    databases: &[String],
    tables: &[String],
) -> Result<Vec<Table>> {
    let sql = format!(
        "SELECT TABLE_SCHEMA, TABLE_NAME, ENGINE, IFNULL(TABLE_ROWS, 0), IFNULL(DATA_LENGTH + INDEX_LENGTH, 0) \
           FROM information_schema.TABLES WHERE TABLE_TYPE IN ('BASE TABLE', 'SYSTEM VERSIONED', 'SEQUENCE') \
            AND TABLE_SCHEMA NOT IN ({SYSTEM}) AND ENGINE <> {} AND {} ORDER BY 1, 2",
        text(engine),
        condition(databases, tables)?
    );
    let mut found = Vec::new();
    for row in server.rows(&sql)? {
        let (database, table) = (field(&row, 0), field(&row, 1));
        let sql = server.create_statement(&crate::sql::full(&database, &table))?;
        let create = Create::parse(&sql).ok_or_else(|| {
            Error::Refused(format!(
                "{database}.{table}: this definition is not understood:\n{sql}"
            ))
        })?;
        let number = |at| field(&row, at).parse().unwrap_or(0);
        found.push(Table {
            database,
            table,
            engine: field(&row, 2),
            rows: number(3),
            bytes: number(4),
            create,
        });
    }
    Ok(found)
}

/// The tables as groups connected by foreign keys, in the order of the tables; as positions.
pub fn groups(tables: &[Table]) -> Vec<Vec<usize>> {
    let place: BTreeMap<(String, String), usize> = tables
        .iter()
        .enumerate()
        .map(|(i, t)| ((t.database.to_lowercase(), t.table.to_lowercase()), i))
        .collect();
    let mut leader: Vec<usize> = (0..tables.len()).collect();
    for (i, table) in tables.iter().enumerate() {
        for (database, parent) in table.create.foreign.iter().filter_map(|f| refers_to(f)) {
            let database = database.unwrap_or_else(|| table.database.clone());
            if let Some(other) = place.get(&(database.to_lowercase(), parent.to_lowercase())) {
                let (a, b) = (leader[i], leader[*other]);
                leader
                    .iter_mut()
                    .filter(|l| **l == a.max(b))
                    .for_each(|l| *l = a.min(b));
            }
        }
    }
    let mut found: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for (i, l) in leader.iter().enumerate() {
        found.entry(*l).or_default().push(i);
    }
    found.into_values().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(name: &str, parents: &[&str]) -> Table {
        let keys: String = parents
            .iter()
            .map(|p| format!(", FOREIGN KEY (a) REFERENCES {p} (a)"))
            .collect();
        let create = Create::parse(&format!("CREATE TABLE {name} (a INT{keys})")).unwrap();
        Table {
            database: "d".into(),
            table: name.into(),
            engine: "InnoDB".into(),
            rows: 0,
            bytes: 0,
            create,
        }
    }

    #[test]
    fn chains_circles_and_strangers() {
        let all = [
            table("a", &["c"]),
            table("b", &[]),
            table("c", &["D.e"]),
            table("e", &["e", "a"]),
            table("f", &["gone"]),
        ];
        assert_eq!(groups(&all), [vec![0, 2, 3], vec![1], vec![4]]);
    }
}
