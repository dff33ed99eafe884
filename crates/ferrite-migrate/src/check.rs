//! `ferrite-migrate check`: what a conversion would do, table by table. Nothing but the trial database is changed.

use crate::error::{Error, Result};
use crate::server::{Login, Server};
use crate::sql::{alteration, statements, Create};
use crate::tables::{find, groups, Table};
use crate::trial::{Trial, Verdict};
use clap::Args;
use std::path::PathBuf;

/// Options of `check`.
#[derive(Args, Debug)]
pub struct Options {
    #[command(flatten)]
    login: Login,
    /// All tables of this database; may be repeated. Without --database and --table: all but the server's own
    #[arg(long = "database", value_name = "NAME")]
    databases: Vec<String>,
    /// This table; may be repeated
    #[arg(long = "table", value_name = "DATABASE.TABLE")]
    tables: Vec<String>,
    /// The engine to convert to; InnoDB looks at the way back
    #[arg(long, value_name = "ENGINE", default_value = "FERRITE")]
    to: String,
    /// MB per second for the estimated time: rows and indexes of the old table, copied by ALTER TABLE
    #[arg(long, value_name = "MB", default_value_t = 40.0)]
    rate: f64,
    /// Look at the CREATE TABLE, ALTER TABLE and CREATE INDEX statements of this SQL file instead of the server's tables
    #[arg(long, value_name = "FILE", conflicts_with_all = ["databases", "tables"])]
    dump: Option<PathBuf>,
}

/// Tells of each table what would happen; false if one is refused.
pub fn check(options: &Options) -> Result<bool> {
    let mut server = Server::connect(&options.login)?;
    let engine = known_engine(&mut server, &options.to)?;
    match &options.dump {
        Some(file) => check_dump(&mut server, &engine, file),
        None => check_server(&mut server, &engine, options),
    }
}

/// The engine's name as the server writes it.
fn known_engine(server: &mut Server, engine: &str) -> Result<String> {
    let sql = "SELECT ENGINE FROM information_schema.ENGINES WHERE SUPPORT IN ('YES', 'DEFAULT') AND ENGINE = ";
    let found = server.value(&format!("{sql}{}", crate::sql::text(engine)))?;
    if found.is_empty() {
        return Err(Error::Refused(format!(
            "the server has no engine {engine}: its plugin is not loaded"
        )));
    }
    Ok(found)
}

fn check_server(server: &mut Server, engine: &str, options: &Options) -> Result<bool> {
    let tables = find(server, engine, &options.databases, &options.tables)?;
    let groups = groups(&tables);
    let mut trial = Trial::new(server, engine)?;
    let (mut refused, mut bytes) = (0, 0);
    for (number, group) in groups.iter().enumerate() {
        let members: Vec<&Table> = group.iter().map(|i| &tables[*i]).collect();
        let verdicts = trial.group(&members)?;
        if members.len() > 1 {
            println!(
                "group {}: {} tables connected by foreign keys, to be converted together",
                number + 1,
                members.len()
            );
        }
        for (table, verdict) in members.iter().zip(&verdicts) {
            print(table, verdict, Some(options.rate));
            refused += usize::from(!verdict.refused.is_empty());
            bytes += if verdict.refused.is_empty() {
                table.bytes
            } else {
                0
            };
        }
    }
    let time = seconds(bytes, options.rate);
    println!(
        "{} tables: {} convert, {refused} refused; {}, about {time}",
        tables.len(),
        tables.len() - refused,
        size(bytes)
    );
    Ok(refused == 0)
}

fn check_dump(server: &mut Server, engine: &str, file: &PathBuf) -> Result<bool> {
    let bytes =
        std::fs::read(file).map_err(|e| Error::Refused(format!("{}: {e}", file.display())))?;
    // Names and definitions are UTF-8; rows may hold anything, and are not looked at.
    let sql = String::from_utf8_lossy(&bytes);
    let (mut tables, mut alterations) = (Vec::new(), Vec::new());
    for statement in statements(&sql) {
        if let Some(create) = Create::parse(statement) {
            let (database, table) = (
                create.database.clone().unwrap_or_default(),
                create.table.clone(),
            );
            tables.push(Table {
                database,
                table,
                engine: String::new(),
                rows: 0,
                bytes: 0,
                create,
            });
        } else if alteration(statement).is_some() {
            alterations.push(statement.to_owned());
        }
    }
    let verdicts = Trial::new(server, engine)?.dump(&tables, &alterations)?;
    for (table, verdict) in tables.iter().zip(&verdicts) {
        print(table, verdict, None);
    }
    let refused = verdicts.iter().filter(|v| !v.refused.is_empty()).count();
    println!(
        "{} tables: {} convert, {refused} refused",
        tables.len(),
        tables.len() - refused
    );
    Ok(refused == 0)
}

/// One table; sizes and time only if there is a rate.
fn print(table: &Table, verdict: &Verdict, rate: Option<f64>) {
    let word = match (verdict.refused.is_empty(), verdict.changes.is_empty()) {
        (false, _) => "refused",
        (true, true) => "converts",
        (true, false) => "converts with changes",
    };
    let label = if table.database.is_empty() {
        table.table.clone()
    } else {
        table.label()
    };
    match rate {
        Some(rate) => println!(
            "{label}: {word}; {}, about {} rows, {}, about {}",
            table.engine,
            table.rows,
            size(table.bytes),
            seconds(table.bytes, rate)
        ),
        None => println!("{label}: {word}"),
    }
    if !verdict.refused.is_empty() {
        println!("    {}", verdict.refused);
    }
    for change in &verdict.changes {
        println!("    {change}");
    }
}

fn size(bytes: u64) -> String {
    match bytes {
        0..=1_048_575 => format!("{} KiB", bytes.div_ceil(1024)),
        _ => format!("{} MiB", bytes.div_ceil(1 << 20)),
    }
}

fn seconds(bytes: u64, rate: f64) -> String {
    let time = bytes as f64 / (rate.max(0.001) * 1e6);
    match time {
        t if t < 120.0 => format!("{:.0} s", t.ceil()),
        t => format!("{:.0} min", (t / 60.0).ceil()),
    }
}
