//! Which snapshots there are, at a start, before free space is known.
//!
//! A snapshot of which it cannot be read what it holds is lost: its manifest gets another name before
//! anything is written, so that nobody believes it again when what it held was written over. The
//! database opens all the same.
//!
//! It would be lost for good. So files that the system has not let us read (no open file or memory to give, no rights)
//! are no reason for that: the start is refused, and whoever repairs that has the snapshot. A disk that does not give
//! its bytes is asked again, for a moment: it must not keep the database from opening.
//!
//! Locking: none; nothing else runs yet.

use super::{files_of, manifest, read_runs, Manifest, PREFIX};
use crate::backup::sealed;
use crate::state::callbacks::{Callbacks, LogLevel};
use crate::state::snapshots::{KeptInfo, Snapshots};
use ferrite_io::Storage;
use ferrite_store::{GranuleRuns, Store};
use ferrite_sync::{kill_point, thread, Arc};
use ferrite_types::{Error, Result};
use std::collections::BTreeSet;

/// A disk that does not give the bytes of a snapshot's files is asked again after each of these pauses, in ms.
const PAUSES_MS: [u64; 5] = [10, 30, 100, 300, 600];

/// Finds the snapshots; the store holds what they hold.
///
/// # Errors
/// `Io`, `DiskFull`: a lost one cannot be marked as such. `Shortage`, `Io` for want of rights: one cannot be read now, and
/// nothing was changed.
pub(crate) fn load(
    storage: &Arc<dyn Storage>,
    store: &Store,
    callbacks: &dyn Callbacks,
) -> Result<Snapshots> {
    let mut kept: Vec<KeptInfo> = Vec::new();
    for name in names(&**storage)? {
        let from = files_of(storage, &name);
        if !from.exists(manifest::NAME)? {
            match from.exists(manifest::LOST)? {
                true => kept.push(lost_before(&*from, &name)),
                // One that was being taken, or dropped.
                false => drop(super::remove_files(&*from)),
            }
            continue;
        }
        match read(&*from, store, &name) {
            Ok(info) => kept.push(info),
            Err(e) if !is_damage(&e) => return Err(e),
            Err(e) => kept.push(lose(&*from, &name, &e, callbacks)?),
        }
    }
    kept.sort_by_key(|k| k.number);
    // Lost ones whose number is not known are the oldest.
    let unknown = kept.iter().take_while(|k| k.number == 0).count();
    debug_assert!(kept[unknown..]
        .windows(2)
        .all(|k| k[0].number < k[1].number));
    if kept.is_empty() {
        // If it stays, older programs do not open the database; nothing else.
        let _ = store.note_snapshots(false);
    }
    Ok(Snapshots::new(kept))
}

fn names(storage: &dyn Storage) -> Result<BTreeSet<String>> {
    let all = storage.list()?;
    let name = |file: &String| Some(file.strip_prefix(PREFIX)?.split_once('.')?.0.to_owned());
    let names = all.iter().filter_map(name);
    Ok(names.filter(|n| super::check_name(n).is_ok()).collect())
}

fn read(from: &dyn Storage, store: &Store, name: &str) -> Result<KeptInfo> {
    let (manifest, runs) = look_patiently(from)?;
    if manifest.uuid != store.uuid() || manifest.info.name != name {
        return Err(Error::Corrupt(format!(
            "{}: of another snapshot",
            manifest::NAME
        )));
    }
    if !ferrite_sync::mutant!("snapshot.not_held_at_start") {
        store.hold(&runs)?;
    }
    Ok(manifest.info)
}

/// The fault may be one of reading: then it passes.
fn look_patiently(from: &dyn Storage) -> Result<(Manifest, GranuleRuns)> {
    let mut found = look(from).or_else(|_| look(from));
    for pause_ms in PAUSES_MS {
        match &found {
            Err(e @ Error::Io(_)) if is_damage(e) => thread::sleep_ms(pause_ms),
            _ => break,
        }
        found = look(from);
    }
    found
}

/// The files are damaged, or not there, or the disk does not give their bytes.
fn is_damage(e: &Error) -> bool {
    match e {
        Error::Corrupt(_) | Error::Format(_) | Error::NotFound => true,
        Error::Io(_) => !ferrite_io::is_for_want_of_rights(e),
        _ => false,
    }
}

fn look(from: &dyn Storage) -> Result<(Manifest, GranuleRuns)> {
    let manifest = Manifest::read(from)?;
    let runs = read_runs(from, &manifest)?;
    Ok((manifest, runs))
}

fn lose(from: &dyn Storage, name: &str, e: &Error, callbacks: &dyn Callbacks) -> Result<KeptInfo> {
    debug_assert!(from.exists(manifest::NAME)?, "{name} is not there");
    from.rename(manifest::NAME, manifest::LOST)?;
    from.sync_dir()?;
    kill_point!("snapshot.lost");
    let text = format!("snapshot {name} is lost: {e}");
    callbacks.log(LogLevel::Error, &text);
    let mut info = lost_before(from, name);
    info.lost = e.to_string();
    Ok(info)
}

/// One that an earlier start found damaged.
fn lost_before(from: &dyn Storage, name: &str) -> KeptInfo {
    let text = sealed::read(from, manifest::LOST);
    let known = text.and_then(|text| Manifest::decode(&text));
    let info = known.map(|m| m.info).unwrap_or_default();
    debug_assert!(info.lost.is_empty(), "a manifest says what was found later");
    KeptInfo {
        name: name.to_owned(),
        lost: "its files were damaged at an earlier start".into(),
        ..info
    }
}
