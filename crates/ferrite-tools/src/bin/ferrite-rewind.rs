//! `ferrite-rewind`: Ferrite's part of a stopped server goes back to a snapshot, or forth again.
//!
//! Exit codes: 0 done, 1 a snapshot is damaged, 2 could not run: then nothing has changed, unless it
//! says otherwise.
//! Invariants: the present is kept as a snapshot before anything changes; the change is one step
//! (`ferrite-engine/src/snapshots/rewind.rs`). Locking: a lock on the directory of the data while it is
//! not open.

use clap::Parser;
use ferrite_engine::snapshots::server_files::{self, DataDirectory, RealDirectory};
use ferrite_engine::snapshots::{beside, rewind, ServerState};
use ferrite_engine::{Callbacks, Config, Engine, LogLevel};
use ferrite_io::RealStorage;
use ferrite_sync::{time, Arc};
use ferrite_tools::keys::{self, KeyOptions};
use ferrite_types::{Error, Result};
use std::path::PathBuf;
use std::process::ExitCode;

/// Takes a stopped server's Ferrite tables back to a kept snapshot
///
/// The present becomes a snapshot, too. Tables of other engines stay as they are.
#[derive(Parser)]
#[command(
    name = "ferrite-rewind",
    version,
    after_help = "Exit code: 0 done, 1 a snapshot is damaged, 2 cannot run."
)]
struct Options {
    /// The server's data directory
    #[arg(value_name = "DATADIR")]
    dir: PathBuf,
    /// The snapshot to go to
    #[arg(value_name = "SNAPSHOT", required_unless_present_any = ["list", "finish"])]
    to: Option<String>,
    /// Name of the snapshot that the present becomes (default: before-rewind-TIME)
    #[arg(long, value_name = "NAME")]
    keep_as: Option<String>,
    /// Print the names of the snapshots that there are, the oldest first
    #[arg(long)]
    list: bool,
    #[command(flatten)]
    keys: KeyOptions,
    /// Only finish a rewind that was cut off
    #[arg(long, conflicts_with_all = ["list", "to"])]
    finish: bool,
}

fn main() -> ExitCode {
    match run(&Options::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("ferrite-rewind: {e}");
            match e {
                Error::Corrupt(_) => ExitCode::from(1),
                _ => ExitCode::from(2),
            }
        }
    }
}

/// Messages of the database go to stderr.
struct Told;

impl Callbacks for Told {
    fn log(&self, level: LogLevel, text: &str) {
        if level != LogLevel::Note {
            eprintln!("ferrite-rewind: {text}");
        }
    }

    fn fatal(&self, text: &str) {
        eprintln!("ferrite-rewind: {text}");
        std::process::abort();
    }
}

fn run(options: &Options) -> Result<()> {
    let begun_us = time::now_us();
    let real = RealStorage::existing(&options.dir.join("#ferrite"))?;
    let storage = keys::open(real, &*options.keys.read()?)?;
    let server = RealDirectory::new(&options.dir);
    let lock = storage.lock_exclusive()?;
    beside::check_none(&*storage)?;
    if let Some((to, _)) = rewind::finish(&storage, Some(&server))? {
        println!("finished a rewind to {to} that had been cut off");
    }
    drop(lock);
    if options.finish {
        return Ok(());
    }
    let engine = Engine::open(Config::default(), storage.clone(), Arc::new(Told))?;
    let done = match (&options.to, options.list) {
        (Some(to), false) => keep_present(&engine, &server, options, to).map(Some),
        _ => {
            for kept in engine.kept_snapshots() {
                println!(
                    "{}{}",
                    kept.name,
                    if kept.lost.is_empty() { "" } else { " (lost)" }
                );
            }
            Ok(None)
        }
    };
    let closed = engine.close();
    drop(engine);
    let (Some(present), Some(to)) = (done?, &options.to) else {
        return closed;
    };
    closed?;
    let lock = storage.lock_exclusive()?;
    rewind::prepare(&storage, to, &present, Some(&server))?;
    rewind::finish(&storage, Some(&server))?;
    drop(lock);
    println!(
        "the database is {to} now; what it was before is kept as snapshot {present} ({} ms)",
        (time::now_us() - begun_us) / 1000
    );
    Ok(())
}

/// The present becomes a snapshot: its name.
fn keep_present(
    engine: &Arc<Engine>,
    server: &dyn DataDirectory,
    options: &Options,
    to: &str,
) -> Result<String> {
    let there = engine.kept_snapshots();
    let Some(found) = there.iter().find(|k| k.name == to) else {
        return Err(Error::BadConfig(format!("there is no snapshot {to}")));
    };
    if !found.lost.is_empty() {
        return Err(Error::Corrupt(format!(
            "snapshot {to} is lost: {}",
            found.lost
        )));
    }
    let now_s = time::unix_us() / 1_000_000;
    let name = (options.keep_as.clone()).unwrap_or_else(|| format!("before-rewind-{now_s}"));
    let state = ServerState {
        files: server_files::collect(server, &engine.dict().table_names())?,
        ..ServerState::default()
    };
    let mut job = engine.begin_snapshot(&name)?;
    job.fix();
    job.finish(&state)?;
    if engine.kept_snapshots().iter().all(|k| k.name != to) {
        let text = "it was dropped: all snapshots took more than they may";
        return Err(Error::BadConfig(text.into()));
    }
    Ok(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_that_go_together() {
        let parse = |line: &str| Options::try_parse_from(line.split(' '));
        assert!(parse("ferrite-rewind /d monday").is_ok());
        assert!(parse("ferrite-rewind /d monday --keep-as now").is_ok());
        assert!(parse("ferrite-rewind /d --list").is_ok());
        assert!(parse("ferrite-rewind /d --finish").is_ok());
        for wrong in ["", "/d", "/d a b", "/d a --finish"] {
            let fault = parse(&format!("ferrite-rewind {wrong}")).err();
            assert_eq!(fault.map(|e| e.exit_code()), Some(2), "{wrong}");
        }
    }
}
