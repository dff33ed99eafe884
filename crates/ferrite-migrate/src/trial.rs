//! A trial: each definition is given to the server under the other engine, in a database of its own, without rows.

use crate::error::{Error, Result};
use crate::server::Server;
use crate::sql::{alteration, full, name, refers_to, with_reference, Create};
use crate::tables::Table;

/// The database in which definitions are tried.
pub const DATABASE: &str = "ferrite_migrate_trial";

/// What the server makes of a definition under the other engine.
#[derive(Clone, Debug, Default)]
pub struct Verdict {
    /// Why it cannot be; empty if it can.
    pub refused: String,
    /// What would be different.
    pub changes: Vec<String>,
}

/// A trial database, dropped at the end.
pub struct Trial<'a> {
    server: &'a mut Server,
    engine: String,
    next: usize,
}

/// The name of a tried table: short, so that generated names fit.
fn trial_name(number: usize) -> String {
    format!("t{number}")
}

impl<'a> Trial<'a> {
    /// An empty trial database.
    pub fn new(server: &'a mut Server, engine: &str) -> Result<Trial<'a>> {
        server.run(&format!("DROP DATABASE IF EXISTS {DATABASE}"))?;
        server.run(&format!("CREATE DATABASE {DATABASE}"))?;
        server.run(&format!("USE {DATABASE}"))?;
        Ok(Trial {
            server,
            engine: engine.to_owned(),
            next: 0,
        })
    }

    /// Tries tables that belong together: their foreign keys refer to each other's trial tables.
    pub fn group(&mut self, group: &[&Table]) -> Result<Vec<Verdict>> {
        let first = self.next;
        self.next += group.len();
        let verdicts = (0..group.len())
            .map(|i| self.one(group, i, first))
            .collect::<Result<Vec<_>>>()?;
        for i in first..self.next {
            self.server.run(&format!(
                "DROP TABLE IF EXISTS {}",
                full(DATABASE, &trial_name(i))
            ))?;
        }
        Ok(verdicts)
    }

    fn one(&mut self, group: &[&Table], at: usize, first: usize) -> Result<Verdict> {
        let table = group[at];
        let mut create = table.create.clone();
        create.set_engine(&self.engine);
        let foreign: Vec<String> = create
            .foreign
            .iter()
            .map(|f| among_trials(f, table, group, first))
            .collect();
        let wanted = create.sql(&name(&trial_name(first + at)), &foreign);
        let mut verdict = Verdict::default();
        if let Err(e) = self.server.run(&wanted) {
            verdict.refused = self.reason(e)?;
            return Ok(verdict);
        }
        for (code, message) in self.server.warnings()? {
            verdict.changes.push(format!("warning {code}: {message}"));
        }
        let made = self
            .server
            .create_statement(&full(DATABASE, &trial_name(first + at)))?;
        if let Some(made) = Create::parse(&made) {
            verdict
                .changes
                .extend(differences(&create, &foreign, &made));
        }
        Ok(verdict)
    }

    /// The server's words for a refusal, with the warnings that say why. A lost connection is no refusal.
    fn reason(&mut self, e: Error) -> Result<String> {
        let Error::Server { code, .. } = &e else {
            return Err(e);
        };
        let mut told = e.to_string();
        let code = code.to_string();
        for (number, message) in self
            .server
            .warnings()?
            .iter()
            .filter(|(number, _)| *number != code)
        {
            told += &format!("; {number}: {message}");
        }
        Ok(told)
    }

    /// Tries an ALTER TABLE or CREATE INDEX of a dump on the trial table with this number.
    pub fn alter(&mut self, sql: &str, number: usize) -> Result<Option<String>> {
        let Some((_, head, tail)) = alteration(sql) else {
            return Ok(None);
        };
        match self
            .server
            .run(&format!("{head}{}{tail}", name(&trial_name(number))))
        {
            Ok(()) => Ok(None),
            Err(e) => self.reason(e).map(Some),
        }
    }

    /// Tries the tables of a dump and what it alters afterwards, all at once.
    pub fn dump(&mut self, tables: &[Table], alterations: &[String]) -> Result<Vec<Verdict>> {
        let all: Vec<&Table> = tables.iter().collect();
        let mut verdicts = (0..all.len())
            .map(|i| self.one(&all, i, 0))
            .collect::<Result<Vec<_>>>()?;
        for sql in alterations {
            let Some((table, ..)) = alteration(sql) else {
                continue;
            };
            let Some(at) = tables
                .iter()
                .rposition(|t| t.table.eq_ignore_ascii_case(&table))
            else {
                continue;
            };
            if !verdicts[at].refused.is_empty() {
                continue;
            }
            if let Some(reason) = self.alter(sql, at)? {
                verdicts[at].refused = format!(
                    "{}: {reason}",
                    sql.split_whitespace().collect::<Vec<_>>().join(" ")
                );
            }
        }
        Ok(verdicts)
    }
}

impl Drop for Trial<'_> {
    fn drop(&mut self) {
        // If this fails, the connection is lost; the next trial begins with the same statement.
        let _ = self
            .server
            .run(&format!("DROP DATABASE IF EXISTS {DATABASE}"));
    }
}

/// A foreign key's clause that refers to the trial table of its parent. A parent that is not in the group is missing in the
/// trial; without checks of foreign keys that is no error.
fn among_trials(clause: &str, table: &Table, group: &[&Table], first: usize) -> String {
    let Some((database, parent)) = refers_to(clause) else {
        return clause.to_owned();
    };
    let database = database.unwrap_or_else(|| table.database.clone());
    let found = group.iter().position(|t| {
        t.table.eq_ignore_ascii_case(&parent) && t.database.eq_ignore_ascii_case(&database)
    });
    match found {
        Some(at) => with_reference(clause, &name(&trial_name(first + at))),
        None => with_reference(clause, &name(&parent)),
    }
}

/// Lines that the server shows otherwise than they were given.
fn differences(given: &Create, foreign: &[String], made: &Create) -> Vec<String> {
    let mut found = Vec::new();
    let before: Vec<&String> = given.parts.iter().chain(foreign).collect();
    let after: Vec<&String> = made.parts.iter().chain(&made.foreign).collect();
    found.extend(
        before
            .iter()
            .filter(|p| !after.contains(p))
            .map(|p| format!("without: {p}")),
    );
    found.extend(
        after
            .iter()
            .filter(|p| !before.contains(p))
            .map(|p| format!("with: {p}")),
    );
    if given.options != made.options {
        found.push(format!("options {}, not {}", made.options, given.options));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_are_told_part_by_part() {
        let given =
            Create::parse("CREATE TABLE t (`a` int, KEY (`a`)) ENGINE=FERRITE DATA DIRECTORY='/x'")
                .unwrap();
        let made = Create::parse("CREATE TABLE t (`a` int, KEY `a` (`a`)) ENGINE=FERRITE").unwrap();
        assert_eq!(
            differences(&given, &[], &made),
            [
                "without: KEY (`a`)",
                "with: KEY `a` (`a`)",
                "options ENGINE=FERRITE, not ENGINE=FERRITE DATA DIRECTORY='/x'"
            ]
        );
        assert!(differences(&made, &[], &made).is_empty());
    }
}
