//! `ferrite-check`: verifies a database that no server has open, or rescues its rows.
//!
//! Exit codes: 0 sound (or everything rescued), 1 damage found, 2 could not run.
//! Invariant: nothing is written into the data directory. Locking: a shared lock on the
//! directory for as long as it runs, so that no server starts meanwhile.

use ferrite_io::{ReadOnly, RealStorage, Storage};
use ferrite_sync::Arc;
use ferrite_tools::check::{check, summary};
use ferrite_tools::progress::Progress;
use ferrite_tools::salvage::{salvage, DirOutput, Salvage};
use ferrite_types::{Error, Result};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

const USAGE: &str = "\
usage: ferrite-check [--quiet] DATADIR
       ferrite-check --salvage DIR [--scan] [--quiet] DATADIR

Verifies the Ferrite database below DATADIR (the server's data directory), which no server may
have open. Nothing is written there.

  --salvage DIR  write every row that can be read to files in DIR that LOAD DATA takes
  --scan         with --salvage: look at all blobs, even if the map is there
  --quiet        no progress, no summary; faults only

Exit code: 0 sound, 1 damage found, 2 could not run.";

/// Faults that are printed; the rest is counted.
const FAULTS_SHOWN: usize = 100;

struct Options {
    dir: PathBuf,
    salvage: Option<PathBuf>,
    scan: bool,
    quiet: bool,
}

fn main() -> ExitCode {
    let options = match parse(std::env::args().skip(1)) {
        Ok(Some(options)) => options,
        Ok(None) => {
            println!("{USAGE}");
            return ExitCode::SUCCESS;
        }
        Err(text) => {
            eprintln!("ferrite-check: {text}\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    match run(&options) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(e) => failed(&options, &e),
    }
}

fn parse(mut args: impl Iterator<Item = String>) -> std::result::Result<Option<Options>, String> {
    let mut dir = None;
    let (mut salvage, mut scan, mut quiet) = (None, false, false);
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "-h" | "--help" => return Ok(None),
            "--scan" => scan = true,
            "--quiet" => quiet = true,
            "--salvage" => {
                let to = args.next().ok_or("--salvage needs a directory")?;
                salvage = Some(PathBuf::from(to));
            }
            other if other.starts_with('-') => return Err(format!("unknown option {other}")),
            _ if dir.is_some() => return Err("more than one data directory".into()),
            _ => dir = Some(PathBuf::from(arg)),
        }
    }
    let dir = dir.ok_or("no data directory")?;
    if scan && salvage.is_none() {
        return Err("--scan goes with --salvage".into());
    }
    Ok(Some(Options {
        dir,
        salvage,
        scan,
        quiet,
    }))
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

fn run(options: &Options) -> Result<bool> {
    let real = RealStorage::existing(&engine_dir(&options.dir))?;
    let _lock = real.lock_shared()?;
    let storage: Arc<dyn Storage> = Arc::new(ReadOnly::new(Arc::new(real)));
    let progress = Arc::new(match options.quiet {
        true => Progress::silent(),
        false => Progress::on_terminal(),
    });
    match &options.salvage {
        None => run_check(options, &storage, &progress),
        Some(to) => {
            let mut out = DirOutput::new(to)?;
            let result = salvage(&storage, options.scan, &mut out, &progress)?;
            print_salvage(options, &result);
            Ok(result.is_whole())
        }
    }
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
            println!("note: {note}");
        }
        print!("{}", summary(&report));
        match report.faults.len() {
            0 => println!("sound"),
            n => println!(
                "{n} faults; ferrite-check --salvage DIR rescues the rows that can be read"
            ),
        }
    }
    Ok(report.is_sound())
}

fn print_faults(faults: &[String]) {
    for fault in faults.iter().take(FAULTS_SHOWN) {
        println!("fault: {fault}");
    }
    if faults.len() > FAULTS_SHOWN {
        println!("... and {} more faults", faults.len() - FAULTS_SHOWN);
    }
}

fn print_salvage(options: &Options, result: &Salvage) {
    print_faults(&result.faults);
    if options.quiet {
        return;
    }
    if result.scanned {
        println!("the map was rebuilt from the blobs");
    }
    for table in &result.tables {
        print!("{}: {} rows", table.name, table.rows);
        let others = [
            (table.lost_rows, "rows unreadable"),
            (table.holes, "ranges of keys missing"),
            (table.loose_leaves, "leaves found without their tree"),
        ];
        for (n, what) in others.iter().filter(|(n, _)| *n > 0) {
            print!(", {n} {what}");
        }
        println!();
        for fault in &table.faults {
            println!("  {fault}");
        }
    }
}

/// Says why nothing could be done; damage that stops everything is still damage found.
fn failed(options: &Options, e: &Error) -> ExitCode {
    let dir = options.dir.display();
    match e {
        Error::NotFound => eprintln!("ferrite-check: {dir} holds no Ferrite database"),
        Error::InUse(text) => eprintln!("ferrite-check: a server is running: {text}"),
        Error::Corrupt(_) if options.salvage.is_none() => {
            println!("fault: {e}");
            println!(
                "nothing more can be checked; ferrite-check --salvage DIR may still find rows"
            );
            return ExitCode::from(1);
        }
        e => eprintln!("ferrite-check: {e}"),
    }
    ExitCode::from(2)
}
