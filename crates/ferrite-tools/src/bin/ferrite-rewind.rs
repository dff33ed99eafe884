//! `ferrite-rewind`: Ferrite's part of a stopped server goes back to a snapshot, or forth again.
//!
//! Exit codes: 0 done, 1 a snapshot is damaged, 2 could not run: then nothing has changed, unless it
//! says otherwise.
//! Invariants: it runs with the rights of the data's owner, whose files it makes; the present is kept as a snapshot before anything changes, and not kept if nothing does; the
//! change is one step (`ferrite-engine/src/snapshots/rewind.rs`). Locking: a lock on the directory of the data while it is
//! not open.

use clap::Parser;
use ferrite_engine::snapshots::server_files::{self, DataDirectory, RealDirectory};
use ferrite_engine::snapshots::{beside, rewind, ServerState};
use ferrite_engine::{Callbacks, Config, Engine, LogLevel, Xid};
use ferrite_io::{RealStorage, Storage};
use ferrite_sync::{time, Arc};
use ferrite_tools::keys::{self, KeyOptions};
use ferrite_tools::{answer, ddl_log, owner, say, tell};
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
    /// The value of the server's option log_ddl_recovery; needed only if its log is not in DATADIR
    #[arg(long, value_name = "FILE", default_value = ddl_log::NAME)]
    ddl_log: PathBuf,
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
            say!("ferrite-rewind: {e}");
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
            say!("ferrite-rewind: {text}");
        }
    }

    fn fatal(&self, text: &str) {
        say!("ferrite-rewind: {text}");
        std::process::abort();
    }
}

fn run(options: &Options) -> Result<()> {
    let begun_us = time::now_us();
    let dir = options.dir.join("#ferrite");
    let real = RealStorage::existing(&dir)?;
    owner::check(&dir)?;
    let storage = keys::open(real, &*options.keys.read()?)?;
    let server = RealDirectory::new(&options.dir);
    let lock = storage.lock_exclusive()?;
    beside::check_none(&*storage)?;
    if let Some((to, _)) = rewind::finish(&storage, Some(&server))? {
        tell!("finished a rewind to {to} that had been cut off");
    }
    drop(lock);
    if options.finish {
        return Ok(());
    }
    let to = match &options.to {
        Some(to) if !options.list => to,
        _ => return list(&storage),
    };
    no_ddl_pending(options)?;
    let present = keep_present(&storage, &server, options, to)?;
    go(&storage, &server, to, &present)?;
    tell!(
        "the database is {to} now; what it was before is kept as snapshot {present} ({} ms)",
        (time::now_us() - begun_us) / 1000
    );
    Ok(())
}

/// The server goes on with a DDL statement at its next start. That must find the tables that the statement was
/// about, not those of the snapshot: it would drop or rename them.
fn no_ddl_pending(options: &Options) -> Result<()> {
    match ddl_log::with_open_entries(&options.dir, &options.ddl_log)? {
        None => Ok(()),
        Some(path) => Err(Error::InUse(format!(
            "the server was killed in the middle of a DDL statement, which its next start ends ({}): start and stop the \
             server once, with the options that it had, then rewind",
            path.display()
        ))),
    }
}

/// Transactions that the server has prepared on its own, for its binary log, are decided by its next start: by
/// the log that there is now. Kept in the snapshot of the present they would never be decided, and a server that
/// is taken back to that would not start.
fn none_for_the_binlog(engine: &Engine) -> Result<()> {
    let waiting = engine.prepared_xids();
    let count = waiting.iter().filter(|xid| is_of_server(xid)).count();
    match count {
        0 => Ok(()),
        _ => Err(Error::InUse(format!(
            "the server was killed, and its binary log is to say which of {count} transactions were committed: start \
             and stop the server once, then rewind"
        ))),
    }
}

/// The server's name for a transaction of its own: a word, its number, the transaction's.
fn is_of_server(xid: &Xid) -> bool {
    const WORD: &[u8] = b"MySQLXid";
    const BYTES: usize = 24;
    xid.data.starts_with(WORD) && xid.data.len() == BYTES && xid.gtrid_len as usize == BYTES
}

fn open(storage: &Arc<dyn Storage>) -> Result<Arc<Engine>> {
    Engine::open(Config::default(), storage.clone(), Arc::new(Told))
}

fn list(storage: &Arc<dyn Storage>) -> Result<()> {
    let engine = open(storage)?;
    let mut names = String::new();
    for kept in engine.kept_snapshots() {
        let lost = if kept.lost.is_empty() { "" } else { " (lost)" };
        names.push_str(&format!("{}{lost}\n", kept.name));
    }
    engine.close()?;
    answer(&names)
}

/// The present becomes a snapshot: its name.
fn keep_present(
    storage: &Arc<dyn Storage>,
    server: &dyn DataDirectory,
    options: &Options,
    to: &str,
) -> Result<String> {
    let engine = open(storage)?;
    let kept = take_present(&engine, storage, server, options, to);
    let closed = engine.close();
    drop(engine);
    let present = kept?;
    if let Err(e) = closed {
        match storage.lock_exclusive() {
            Ok(_lock) => give_up(storage, to, &present),
            Err(why) => left_over(&present, &why),
        }
        return Err(e);
    }
    Ok(present)
}

/// What would stop the rewind is looked for first.
fn take_present(
    engine: &Arc<Engine>,
    storage: &Arc<dyn Storage>,
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
    none_for_the_binlog(engine)?;
    let names: Vec<&str> = there.iter().map(|k| k.name.as_str()).collect();
    let now_s = time::unix_us() / 1_000_000;
    let name = present_name(options.keep_as.as_deref(), &names, now_s)?;
    let state = ServerState {
        files: server_files::collect(server, &engine.dict().table_names())?,
        ..ServerState::default()
    };
    rewind::check_target(storage, to, Some((server, &state.files)))?;
    let mut job = engine.begin_snapshot(&name)?;
    job.fix();
    job.finish(&state)?;
    if engine.kept_snapshots().iter().all(|k| k.name != to) {
        if let Err(e) = engine.drop_snapshot(&name) {
            left_over(&name, &e);
        }
        let text = format!("snapshot {to} was dropped, because the disk is full");
        return Err(Error::DiskFull(text));
    }
    Ok(name)
}

/// The name asked for, or one of the time that no snapshot has.
fn present_name(asked: Option<&str>, there: &[&str], now_s: u64) -> Result<String> {
    match asked {
        Some(name) if there.contains(&name) => Err(Error::BadConfig(format!(
            "there is a snapshot {name} already: give another name with --keep-as, or drop that one \
             first (SET GLOBAL ferrite_snapshot_drop = '{name}')"
        ))),
        Some(name) => Ok(name.to_owned()),
        None => {
            // Rewinds of the same second.
            let mut name = format!("before-rewind-{now_s}");
            let mut n = 2;
            while there.contains(&name.as_str()) {
                name = format!("before-rewind-{now_s}-{n}");
                n += 1;
            }
            Ok(name)
        }
    }
}

/// The database becomes the snapshot.
fn go(
    storage: &Arc<dyn Storage>,
    server: &dyn DataDirectory,
    to: &str,
    present: &str,
) -> Result<()> {
    let _lock = storage
        .lock_exclusive()
        .inspect_err(|e| left_over(present, e))?;
    rewind::prepare(storage, to, present, Some(server))
        .inspect_err(|_| give_up(storage, to, present))?;
    // From here on the snapshot of the present is the way back, whatever fails.
    rewind::finish(storage, Some(server)).inspect_err(|_| decided(to))?;
    Ok(())
}

/// The rewind failed: the snapshot of the present goes, unless it is the way back. The caller has the
/// directory.
fn give_up(storage: &Arc<dyn Storage>, to: &str, present: &str) {
    match rewind::give_up(storage, present) {
        Ok(true) => {}
        Ok(false) => decided(to),
        Err(e) => left_over(present, &e),
    }
}

fn decided(to: &str) {
    say!(
        "ferrite-rewind: the rewind to {to} is decided: the next start of the server, or \
         ferrite-rewind --finish, finishes it"
    );
}

fn left_over(present: &str, why: &Error) {
    say!(
        "ferrite-rewind: nothing has changed, but snapshot {present} of the present stays ({why}): drop it"
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_the_present() {
        let there = ["a", "before-rewind-7", "before-rewind-7-2"];
        let name = |asked, now_s| present_name(asked, &there, now_s);
        assert_eq!(name(None, 6).unwrap(), "before-rewind-6");
        assert_eq!(name(None, 7).unwrap(), "before-rewind-7-3");
        assert_eq!(name(Some("b"), 7).unwrap(), "b");
        let refused = name(Some("a"), 7).unwrap_err().to_string();
        assert!(refused.contains("a snapshot a already"), "{refused}");
    }

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
