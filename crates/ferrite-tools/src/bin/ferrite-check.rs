//! `ferrite-check`: verifies a database that no server has open, or rescues its rows.
//!
//! Exit codes: 0 sound (or everything rescued), 1 damage found, 2 could not run, also because a rewind
//! is to be finished first.
//! Invariant: nothing is written into the data directory. Locking: a shared lock on the
//! directory for as long as it runs, so that no server starts meanwhile.

use clap::{Parser, ValueEnum};
use ferrite_engine::offline::Prepared;
use ferrite_engine::snapshots::{beside, rewind};
use ferrite_io::{ReadOnly, RealStorage, Storage};
use ferrite_sync::Arc;
use ferrite_tools::check::{check, summary};
use ferrite_tools::keys::{self, KeyOptions};
use ferrite_tools::progress::Progress;
use ferrite_tools::salvage::{salvage, DirOutput, Plan, Salvage};
use ferrite_tools::{say, tell};
use ferrite_types::{Error, Faults, Result};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Verifies the Ferrite database in DATADIR, or salvages its rows
///
/// No server may have the database open. Nothing is written to DATADIR.
#[derive(Parser)]
#[command(
    name = "ferrite-check",
    version,
    after_help = "Exit code: 0 no damage, 1 damage found, 2 cannot run."
)]
struct Options {
    /// The server's data directory
    #[arg(value_name = "DATADIR")]
    dir: PathBuf,
    /// Write every readable row to files in DIR, for LOAD DATA
    #[arg(long, value_name = "DIR")]
    salvage: Option<PathBuf>,
    /// With --salvage: scan all pages of the store, even if the page map is intact
    #[arg(long, requires = "salvage")]
    scan: bool,
    /// With --salvage: what becomes of the changes of prepared transactions
    #[arg(long, requires = "salvage", value_name = "WHAT")]
    prepared: Option<Decision>,
    #[command(flatten)]
    keys: KeyOptions,
    /// Print only faults, no progress and no summary
    #[arg(long)]
    quiet: bool,
}

/// What becomes of prepared transactions.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Decision {
    /// Their changes are written
    Commit,
    /// Their changes are left out
    Rollback,
}

impl From<Decision> for Prepared {
    fn from(decision: Decision) -> Prepared {
        match decision {
            Decision::Commit => Prepared::Committed,
            Decision::Rollback => Prepared::RolledBack,
        }
    }
}

fn main() -> ExitCode {
    let options = Options::parse();
    match run(&options) {
        Ok(code) => code,
        Err(e) => failed(&options, &e),
    }
}

/// The engine's own directory: below the server's data directory, or the one given.
fn engine_dir(dir: &Path) -> PathBuf {
    let below = dir.join("#ferrite");
    if below.is_dir() {
        below
    } else {
        dir.to_owned()
    }
}

fn run(options: &Options) -> Result<ExitCode> {
    let real = RealStorage::existing(&engine_dir(&options.dir))?;
    let _lock = real.lock_shared()?;
    beside::check_none(&real)?;
    let storage = keys::open(real, &*options.keys.read()?)?;
    let storage: Arc<dyn Storage> = Arc::new(ReadOnly::new(storage));
    if is_amid_rewind(options, &storage)? {
        return Ok(ExitCode::from(2));
    }
    let progress = Arc::new(match options.quiet {
        true => Progress::silent(),
        false => Progress::on_terminal(),
    });
    let is_whole = match &options.salvage {
        None => run_check(options, &storage, &progress)?,
        Some(to) => {
            let mut out = DirOutput::new(to)?;
            let plan = Plan {
                scan: options.scan,
                prepared: options.prepared.map(Prepared::from),
            };
            let result = salvage(&storage, plan, &mut out, &progress)?;
            print_salvage(options, &result);
            result.is_whole()
        }
    };
    Ok(ExitCode::from(u8::from(!is_whole)))
}

/// A database amid a rewind is neither what it was nor what it is to be: nothing can be said of it, and
/// that is no damage. Only a scan reads neither.
///
/// # Errors
/// `Corrupt`: the rewind cannot be finished. `Io`.
fn is_amid_rewind(options: &Options, storage: &Arc<dyn Storage>) -> Result<bool> {
    let text = match rewind::pending(storage) {
        Ok(None) => return Ok(false),
        Ok(Some(to)) => format!(
            "a rewind to {to} was cut off; the next start of the server finishes it, or \
             ferrite-rewind --finish"
        ),
        Err(Error::Corrupt(why)) => {
            let text = format!("a rewind was cut off and cannot be finished: {why}");
            if !options.scan {
                return Err(Error::Corrupt(text));
            }
            text
        }
        Err(e) => return Err(e),
    };
    match options.scan {
        true => say!(
            "ferrite-check: {text}. The newest state of each page is salvaged, whichever it is of"
        ),
        false => {
            say!("ferrite-check: {text}. Nothing was verified or salvaged: run this again then")
        }
    }
    Ok(!options.scan)
}

fn run_check(
    options: &Options,
    storage: &Arc<dyn Storage>,
    progress: &Arc<Progress>,
) -> Result<bool> {
    let report = check(storage, progress)?;
    print_faults(&report.faults);
    if !options.quiet {
        for note in &report.notes {
            tell!("note: {note}");
        }
        tell!("{}", summary(&report).trim_end());
        match report.faults.count() {
            0 => tell!("sound"),
            n => {
                tell!("{n} faults; ferrite-check --salvage DIR salvages the rows that can be read")
            }
        }
    }
    Ok(report.is_sound())
}

/// The first ones; the rest is counted.
fn print_faults(faults: &Faults) {
    for fault in faults.texts() {
        tell!("fault: {fault}");
    }
    if faults.unnamed() > 0 {
        tell!("... and {} more faults", faults.unnamed());
    }
}

fn print_salvage(options: &Options, result: &Salvage) {
    print_faults(&result.faults);
    if result.is_undecided() {
        tell!(
            "{} prepared transactions: only the server's binary log, or who has prepared them with XA, knows \
             whether they were committed. Their changes are left out; --prepared commit writes them, \
             --prepared rollback says that they are not wanted",
            result.prepared
        );
    }
    if options.quiet {
        return;
    }
    if let Some(decided) = result.decided.filter(|_| result.prepared > 0) {
        let what = match decided {
            Prepared::Committed => "written",
            Prepared::RolledBack => "left out",
        };
        tell!(
            "{} prepared transactions: their changes are {what}",
            result.prepared
        );
    }
    if result.unfinished > 0 {
        tell!(
            "{} unfinished transactions: their changes are left out",
            result.unfinished
        );
    }
    if result.scanned {
        tell!("the map was rebuilt from the blobs");
    }
    for note in &result.notes {
        tell!("note: {note}");
    }
    for table in &result.tables {
        let mut line = format!("{}: {} rows", table.name, table.rows);
        let others = [
            (table.lost_rows, "rows unreadable"),
            (table.holes, "ranges of keys missing"),
            (table.loose_leaves, "leaves found without their tree"),
        ];
        for (n, what) in others.iter().filter(|(n, _)| *n > 0) {
            line.push_str(&format!(", {n} {what}"));
        }
        tell!("{line}");
        for fault in &table.faults {
            tell!("  {fault}");
        }
    }
    if result.misses_pages() && !result.scanned {
        tell!("--scan looks for other copies of the pages that are lost; their rows may be older");
    }
}

/// Says why nothing could be done; damage that stops everything is still damage found.
fn failed(options: &Options, e: &Error) -> ExitCode {
    let dir = options.dir.display();
    match e {
        Error::NotFound => say!("ferrite-check: {dir} holds no Ferrite database"),
        Error::InUse(text) => say!("ferrite-check: a server is running: {text}"),
        Error::Corrupt(_) if options.salvage.is_none() => {
            tell!("fault: {e}");
            tell!("nothing more can be checked; ferrite-check --salvage DIR may still find rows");
            return ExitCode::from(1);
        }
        e => say!("ferrite-check: {e}"),
    }
    ExitCode::from(2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_that_go_together() {
        let parse = |line: &str| Options::try_parse_from(line.split(' '));
        let options = parse("ferrite-check --quiet --salvage to data").unwrap();
        assert_eq!(options.dir, Path::new("data"));
        assert_eq!(options.salvage.as_deref(), Some(Path::new("to")));
        assert!(options.quiet && !options.scan && options.prepared.is_none());
        let options = parse("ferrite-check --salvage to --prepared commit data").unwrap();
        assert_eq!(options.prepared, Some(Decision::Commit));
        for wrong in [
            "--scan data",
            "--prepared commit data",
            "--salvage",
            "one two",
            "--loud data",
            "",
        ] {
            let fault = parse(&format!("ferrite-check {wrong}")).err();
            assert_eq!(fault.map(|e| e.exit_code()), Some(2), "{wrong}");
        }
    }
}
