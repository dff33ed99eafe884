//! `ferrite-migrate`: says what moving the tables of a running MariaDB server to Ferrite, or back, would do.
//!
//! Exit codes: 0 every table converts, 1 some table is refused, 2 could not run.
//! Invariant: `check` changes nothing but the database `ferrite_migrate_trial`, which it makes and drops.

mod check;
mod error;
mod server;
mod sql;
mod tables;
mod trial;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// Looks at tables of a MariaDB server before they are moved from InnoDB to Ferrite, or back
#[derive(Parser)]
#[command(
    name = "ferrite-migrate",
    version,
    after_help = "Exit code: 0 every table converts, 1 some table is refused, 2 cannot run."
)]
struct Options {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Say of each table whether it converts, what would be different, or why it is refused
    ///
    /// Each definition is tried without rows in the database `ferrite_migrate_trial`, which is made for this and dropped.
    Check(check::Options),
}

fn main() -> ExitCode {
    let Command::Check(options) = Options::parse().command;
    match check::check(&options) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(e) => {
            eprintln!("ferrite-migrate: {e}");
            ExitCode::from(2)
        }
    }
}
