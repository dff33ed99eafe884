//! `ferrite-backup`: verifies hot backups of Ferrite's data, and restores them. They are taken by
//! the server (ferrite_backup_dir).
//!
//! Exit codes: 0 done, 1 a backup is damaged, 2 could not run.
//! Invariants: nothing is written to a backup; what is restored is verified first; a directory that
//! is not restored completely cannot be opened by a server; nothing is removed but what this process
//! has made and locked. Locking: a lock on the restored directory while it is written, or removed.

use clap::{Args, Parser, Subcommand};
use ferrite_engine::{Chain, ChainSummary};
use ferrite_io::encryption::{Encryption, KeySource};
use ferrite_io::{RealStorage, Storage};
use ferrite_sync::{time, Arc};
use ferrite_tools::keys::{self, KeyOptions};
use ferrite_tools::{answer, say, tell};
use ferrite_types::{Error, Result};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Between two lines of progress, in us.
const PROGRESS_US: u64 = 5_000_000;

/// Verifies and restores hot backups of Ferrite's data
///
/// BACKUP is a directory that the server wrote (ferrite_backup_dir). Increments follow the full
/// backup, in order.
#[derive(Parser)]
#[command(
    name = "ferrite-backup",
    version,
    after_help = "Exit code: 0 done, 1 a backup is damaged, 2 cannot run."
)]
struct Options {
    #[command(flatten)]
    keys: KeyOptions,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Print what a backup is
    Info(One),
    /// Read every file: all are whole, and nothing is missing
    Verify(Verify),
    /// Make the directory #ferrite of a new data directory
    Restore(Restore),
}

#[derive(Args)]
struct One {
    /// The backup
    #[arg(value_name = "BACKUP")]
    dir: PathBuf,
}

#[derive(Args)]
struct Backups {
    /// The full backup, then its increments
    #[arg(value_name = "BACKUP", required = true)]
    dirs: Vec<PathBuf>,
    /// Print no progress
    #[arg(long)]
    quiet: bool,
}

#[derive(Args)]
struct Verify {
    #[command(flatten)]
    backups: Backups,
    /// Read the files of the last backup only; of those before it, look that they have what it needs
    #[arg(long)]
    last: bool,
}

#[derive(Args)]
struct Restore {
    #[command(flatten)]
    backups: Backups,
    /// A data directory without #ferrite
    #[arg(long, value_name = "DATADIR")]
    into: PathBuf,
    /// Encrypt what is restored with a new data key, which is kept with this key of the key file; without --encrypt and
    /// --decrypt it is encrypted as the backup is
    #[arg(long, value_name = "NUMBER", conflicts_with = "decrypt", value_parser = clap::value_parser!(u32).range(1..))]
    encrypt: Option<u32>,
    /// Do not encrypt what is restored
    #[arg(long)]
    decrypt: bool,
}

fn main() -> ExitCode {
    match run(&Options::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            say!("ferrite-backup: {e}");
            match e {
                Error::Corrupt(_) => ExitCode::from(1),
                _ => ExitCode::from(2),
            }
        }
    }
}

fn run(options: &Options) -> Result<()> {
    let keys = &*options.keys.read()?;
    match &options.command {
        Command::Info(one) => info(&one.dir, keys),
        Command::Verify(Verify { backups, last }) => {
            let (chain, mut progress) = (open(&backups.dirs, keys)?, progress(backups, "verified"));
            let summary = match last {
                true => chain.verify_last(&mut progress)?,
                false => chain.verify(&mut progress)?,
            };
            tell_done("verified", &summary);
            Ok(())
        }
        Command::Restore(options) => restore(options, keys),
    }
}

fn storage(dir: &Path, keys: &dyn KeySource) -> Result<Arc<dyn Storage>> {
    keys::open(RealStorage::existing(dir)?, keys)
}

fn open(dirs: &[PathBuf], keys: &dyn KeySource) -> Result<Chain> {
    let named = |dir: &PathBuf| Ok((dir.display().to_string(), storage(dir, keys)?));
    Chain::open(dirs.iter().map(named).collect::<Result<_>>()?)
}

fn info(dir: &Path, keys: &dyn KeySource) -> Result<()> {
    let manifest =
        ferrite_engine::BackupManifest::read(&*storage(dir, keys)?).map_err(|e| match e {
            Error::Corrupt(text) => Error::Corrupt(format!("{}: {text}", dir.display())),
            other => other,
        })?;
    let kind = match manifest.base {
        Some((id, _)) => format!("increment of {id:016x}"),
        None => "full".to_owned(),
    };
    let bytes: u64 = manifest.files.iter().map(|f| f.bytes).sum();
    answer(&format!(
        "id {:016x}\n{kind}\nposition {}\nbegun {} s after 1970\n{} MiB in {} files\n",
        manifest.id,
        manifest.position,
        manifest.taken_unix_s,
        bytes >> 20,
        manifest.files.len()
    ))
}

fn restore(options: &Restore, keys: &dyn KeySource) -> Result<()> {
    let into = options.into.join("#ferrite");
    if into.exists() {
        return Err(in_the_way(&into));
    }
    // What can be known is not found out after hours of verifying: where it is to go, and the key.
    if !options.into.is_dir() {
        let text = format!("{} is not a directory", options.into.display());
        return Err(Error::BadConfig(text));
    }
    let chain = open(&options.backups.dirs, keys)?;
    let encryption = encryption_of(options, keys)?;
    chain.verify(&mut progress(&options.backups, "verified"))?;
    let done = in_own_dir(&into, |real| {
        has_room(&real, &chain)?;
        restore_into(options, &chain, real, encryption)
    });
    tell_done("restored", &done?);
    Ok(())
}

/// Makes the directory and has it filled. If that fails, as on a full disk, nothing of it stays. It took hours to come here:
/// another restore, or a server, may have made the directory meanwhile, or may take it before it is locked. Then
/// everything there is theirs.
fn in_own_dir<T>(into: &Path, fill: impl FnOnce(RealStorage) -> Result<T>) -> Result<T> {
    let real = RealStorage::fresh(into).map_err(|e| match e {
        Error::Exists => in_the_way(into),
        other => other,
    })?;
    let _lock = real.lock_exclusive().inspect_err(|e| {
        if !matches!(e, Error::InUse(_)) {
            let _ = RealStorage::remove_empty(into);
        }
    })?;
    if !real.list()?.is_empty() {
        return Err(in_the_way(into));
    }
    let done = fill(real);
    if done.is_err() {
        let _ = std::fs::remove_dir_all(into);
    }
    done
}

/// Why nothing is restored over a directory.
fn in_the_way(into: &Path) -> Error {
    let whole = into.join("superblock").exists();
    let rest = match whole {
        true => "",
        false => " and has no whole database in it, as after a restore that was cut off: remove it, and restore again",
    };
    Error::BadConfig(format!("{} exists{rest}", into.display()))
}

/// A disk that is too small is told before it is full.
fn has_room(to: &dyn Storage, chain: &Chain) -> Result<()> {
    let (needed, free) = (chain.restored_bytes(), to.free_bytes()?);
    match needed <= free {
        true => Ok(()),
        false => Err(Error::DiskFull(format!(
            "{} MiB are restored, {} MiB are free",
            needed.div_ceil(1 << 20),
            free >> 20
        ))),
    }
}

fn restore_into(
    options: &Restore,
    chain: &Chain,
    real: RealStorage,
    encryption: Option<Encryption>,
) -> Result<ChainSummary> {
    let beneath: Arc<dyn Storage> = Arc::new(real);
    let to = match encryption {
        None => beneath,
        Some(encryption) => {
            encryption.share_with(&*beneath)?;
            Arc::new(encryption.view(beneath))
        }
    };
    chain.restore(&to, &mut progress(&options.backups, "restored"))
}

/// How what is restored is to be encrypted.
fn encryption_of(options: &Restore, keys: &dyn KeySource) -> Result<Option<Encryption>> {
    let last = options.backups.dirs.last().expect("at least one");
    match (options.encrypt, options.decrypt) {
        (Some(id), _) => Encryption::new(keys, id).map(Some),
        (None, true) => Ok(None),
        (None, false) => Encryption::of(&RealStorage::existing(last)?, keys),
    }
}

fn tell_done(what: &str, summary: &ChainSummary) {
    tell!(
        "{what}: {} pages ({} MiB), {} MiB of log, up to position {}",
        summary.pages,
        summary.page_bytes >> 20,
        summary.log_bytes >> 20,
        summary.position
    );
}

/// Says now and then how much was done.
fn progress(backups: &Backups, what: &'static str) -> impl FnMut(u64) {
    let quiet = backups.quiet;
    let (mut bytes, mut told_us) = (0, time::now_us());
    move |more| {
        bytes += more;
        let now_us = time::now_us();
        if !quiet && now_us - told_us >= PROGRESS_US {
            told_us = now_us;
            say!("ferrite-backup: {what} {} MiB", bytes >> 20);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What others have made in the hours of verifying is not removed.
    #[test]
    fn only_its_own_directory_is_removed() {
        let at = std::env::temp_dir().join(format!("ferrite-restore-{}", std::process::id()));
        std::fs::create_dir(&at).unwrap();
        let into = at.join("#ferrite");
        let fails = |_: RealStorage| Err::<(), _>(Error::DiskFull("full".into()));
        let failed = in_own_dir(&into, fails);
        assert_eq!(failed, Err(Error::DiskFull("full".into())));
        assert!(!into.exists(), "nothing of it stays");
        std::fs::create_dir(&into).unwrap();
        std::fs::write(into.join("superblock"), "theirs").unwrap();
        let failed = in_own_dir(&into, fails);
        assert!(matches!(failed, Err(Error::BadConfig(_))), "{failed:?}");
        assert!(into.join("superblock").exists());
        std::fs::remove_dir_all(&into).unwrap();
        let done = in_own_dir(&into, |real| {
            let taken = RealStorage::existing(real.dir())?.lock_exclusive();
            assert!(matches!(taken, Err(Error::InUse(_))), "{taken:?}");
            Ok(())
        });
        assert_eq!((done, into.exists()), (Ok(()), true));
        std::fs::remove_dir_all(&at).unwrap();
    }

    /// Before a backup is read, which takes hours.
    #[test]
    fn a_place_that_is_not_there_is_said_first() {
        let words = "ferrite-backup restore /no/backup --into /no/place --encrypt 1";
        let Command::Restore(options) = Options::parse_from(words.split(' ')).command else {
            panic!("another command");
        };
        let refused = restore(&options, &ferrite_io::encryption::NoKeys);
        let wanted = Error::BadConfig("/no/place is not a directory".into());
        assert_eq!(refused, Err(wanted));
    }

    #[test]
    fn words_that_go_together() {
        let parse = |line: &str| Options::try_parse_from(line.split(' '));
        assert!(parse("ferrite-backup verify a b c").is_ok());
        assert!(parse("ferrite-backup verify --last a b c").is_ok());
        assert!(parse("ferrite-backup restore a b --into d").is_ok());
        assert!(parse("ferrite-backup restore a --into d --encrypt 1 --encryption-keys k").is_ok());
        for wrong in [
            "",
            "verify",
            "restore a",
            "info a b",
            "take a",
            "restore a --into d --encrypt 0",
            "restore a --into d --encrypt 1 --decrypt",
        ] {
            let fault = parse(&format!("ferrite-backup {wrong}")).err();
            assert_eq!(fault.map(|e| e.exit_code()), Some(2), "{wrong}");
        }
    }
}
