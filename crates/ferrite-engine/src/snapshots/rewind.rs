//! The database goes back to a snapshot, or forth again, while nobody has it open.
//!
//! 1. [`prepare`] writes what the database is to be, checkpoint, map, log and undo, under names
//!    that begin with `rewind.`, and makes it durable. Nothing else has changed: the pages are
//!    where they were.
//! 2. The file `rewind.intent` gets its name. **This is the one step**: before it the database is what
//!    it was, after it what it is to be.
//! 3. [`finish`] puts the new files in place of the old ones and swaps the server's files; then the
//!    intent goes. Each of this can be repeated, and is by whoever opens the database next.
//!
//! The present must have been kept as a snapshot, so that its pages are held, and the way back is open.
//!
//! ```text
//! ferrite-rewind 1
//! to NAME
//! from NAME                           the snapshot of the present
//! file NAME                           for each file that takes its place
//! end CRC32C
//! ```
//!
//! Locking: the caller has the directory.

use super::dropping::{alone, end};
use super::server_files::{self, DataDirectory, ServerFiles};
use super::{check_name, files_of, manifest, remove_files, Manifest, PREFIX, SERVER};
use crate::backup::chain::{copy_back, restore_undo};
use crate::backup::files::{self, LOG, UNDO};
use crate::backup::sealed;
use crate::state::undo_area::NAME as UNDO_SPILL;
use ferrite_io::{OpenMode, Prefixed, Storage};
use ferrite_redo::{Log, LogConfig};
use ferrite_sync::{kill_point, Arc};
use ferrite_types::{Error, Result};

/// What the names of the files to be begin with.
const ASIDE: &str = "rewind.";
/// After that.
const INTENT: &str = "intent";
const VERSION: &str = "1";
/// Bytes of log between two flushes.
const LOG_FLUSH_BYTES: u64 = 2 << 20;

/// What is to be done.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Intent {
    to: String,
    from: String,
    files: Vec<String>,
}

impl Intent {
    fn encode(&self) -> String {
        let mut s = format!(
            "ferrite-rewind {VERSION}\nto {}\nfrom {}\n",
            self.to, self.from
        );
        self.files.iter().for_each(|f| s += &format!("file {f}\n"));
        sealed::seal(&mut s);
        debug_assert_eq!(Intent::decode(&s).as_ref(), Some(self));
        s
    }

    fn decode(text: &str) -> Option<Intent> {
        let mut lines = sealed::body(text)?.lines();
        let mut word = |key: &str| Some(lines.next()?.strip_prefix(key)?.to_owned());
        let version = word("ferrite-rewind ")?;
        let (to, from) = (word("to ")?, word("from ")?);
        let files: Option<Vec<String>> = lines
            .map(|l| Some(l.strip_prefix("file ")?.to_owned()))
            .collect();
        let files = files.filter(|f| f.iter().all(|f| is_state(f)))?;
        let sound = version == VERSION && check_name(&to).is_ok() && check_name(&from).is_ok();
        sound.then_some(Intent { to, from, files })
    }
}

/// Is it one of the files that say what the database is, beside its pages?
pub(super) fn is_state(name: &str) -> bool {
    ["checkpoint.", "map.", "redo."]
        .iter()
        .any(|p| name.starts_with(p))
        || name == UNDO_SPILL
}

fn aside(storage: &Arc<dyn Storage>) -> Arc<dyn Storage> {
    Arc::new(Prefixed::new(storage.clone(), ASIDE))
}

/// A rewind was begun and is not finished.
///
/// # Errors
/// `Io`.
pub fn is_pending(storage: &dyn Storage) -> Result<bool> {
    storage.exists(&format!("{ASIDE}{INTENT}"))
}

/// The snapshot that the database goes to when a rewind that was cut off is finished.
///
/// # Errors
/// `Corrupt`: it cannot be finished, because of a file that the text names. `Io`.
pub fn pending(storage: &Arc<dyn Storage>) -> Result<Option<String>> {
    Ok(intent_of(storage)?.map(|intent| intent.to))
}

/// Before the database is opened: what was never decided goes.
///
/// # Errors
/// `InUse`: a rewind must be finished first. `Io`.
pub(crate) fn none_pending(storage: &Arc<dyn Storage>) -> Result<()> {
    if is_pending(&**storage)? {
        let text = "a rewind was begun and is not finished";
        return Err(Error::InUse(text.into()));
    }
    // What stays takes room and nothing else; the next start tries again.
    let _ = clear(storage);
    Ok(())
}

/// What was decided and is not finished. Each file of it is there, under either name.
fn intent_of(storage: &Arc<dyn Storage>) -> Result<Option<Intent>> {
    let new = aside(storage);
    if !new.exists(INTENT)? {
        return Ok(None);
    }
    let bad = || Error::Corrupt(format!("{ASIDE}{INTENT}: unreadable"));
    let text = sealed::read(&*new, INTENT)?;
    // The first time the fault may be one of reading.
    let intent = match Intent::decode(&text) {
        Some(intent) => intent,
        None => Intent::decode(&sealed::read(&*new, INTENT)?).ok_or_else(bad)?,
    };
    for name in &intent.files {
        if !new.exists(name)? && !storage.exists(name)? {
            return Err(Error::Corrupt(format!("{ASIDE}{name} is missing")));
        }
    }
    debug_assert!(intent.to != intent.from, "there and back");
    Ok(Some(intent))
}

pub(super) fn snapshot(
    storage: &Arc<dyn Storage>,
    name: &str,
) -> Result<(Arc<dyn Storage>, Manifest)> {
    check_name(name)?;
    let from = files_of(storage, name);
    let named = |e| match e {
        Error::NotFound => Error::BadConfig(format!("there is no snapshot {name}")),
        // The text begins with the file.
        Error::Corrupt(text) => {
            Error::Corrupt(format!("snapshot {name} is damaged: {PREFIX}{name}.{text}"))
        }
        other => other,
    };
    let manifest = Manifest::read(&*from).map_err(named)?;
    for file in &manifest.files {
        files::check_whole(&*from, file, &mut |_| {}).map_err(named)?;
    }
    Ok((from, manifest))
}

pub(super) fn files_of_server(from: &dyn Storage, manifest: &Manifest) -> Result<ServerFiles> {
    server_files::read(from, manifest.file(SERVER)?)
}

/// What [`prepare`] would refuse, before the present becomes a snapshot: nothing is written. `known`: the
/// server's files of the present.
///
/// # Errors
/// As [`prepare`].
pub fn check_target(
    storage: &Arc<dyn Storage>,
    to: &str,
    server: Option<(&dyn DataDirectory, &ServerFiles)>,
) -> Result<()> {
    let (from, manifest) = target(storage, to)?;
    if let Some((server, known)) = server {
        check_clashes(server, known, &*from, &manifest)?;
    }
    check_room(&**storage, &manifest, present_bytes(&**storage)?)
}

fn target(storage: &Arc<dyn Storage>, to: &str) -> Result<(Arc<dyn Storage>, Manifest)> {
    if is_pending(&**storage)? {
        return Err(Error::InUse("another rewind is not finished".into()));
    }
    let (from, manifest) = snapshot(storage, to)?;
    debug_assert!(manifest.log_start <= manifest.info.position, "{to}");
    Ok((from, manifest))
}

/// No table of the snapshot is another engine's now.
fn check_clashes(
    server: &dyn DataDirectory,
    known: &ServerFiles,
    from: &dyn Storage,
    manifest: &Manifest,
) -> Result<()> {
    let to = &manifest.info.name;
    let files = files_of_server(from, manifest)?;
    match server_files::clashes(server, known, &files)?.first() {
        None => Ok(()),
        Some(path) => Err(Error::BadConfig(format!(
            "{path} is of another engine now, and of FERRITE in snapshot {to}: rename or drop that \
             table first"
        ))),
    }
}

/// Room for the snapshot of the present: its checkpoint is written anew, and copied.
fn present_bytes(storage: &dyn Storage) -> Result<u64> {
    let mut names = storage.list()?;
    names.retain(|n| n.starts_with("checkpoint.") || n.starts_with("map."));
    debug_assert!(names.iter().all(|n| is_state(n)), "{names:?}");
    let bytes = |name: &String| match storage.open(name, OpenMode::ReadOnly, false) {
        // The database is open, and replaces them.
        Err(Error::NotFound) => Ok(0),
        file => file?.len(),
    };
    names.iter().map(bytes).sum()
}

/// Steps 1 and 2: the database is `to` from here on; `present` is the snapshot that was taken of it
/// just before. Call [`finish`] then; if it failed, [`give_up`].
///
/// # Errors
/// `BadConfig`: there is no such snapshot, or a table of it has become another engine's. `Corrupt`: it
/// is damaged. `InUse`: another rewind is not finished. `DiskFull`, `Io`. Nothing has changed, unless the
/// rewind is pending.
pub fn prepare(
    storage: &Arc<dyn Storage>,
    to: &str,
    present: &str,
    server: Option<&dyn DataDirectory>,
) -> Result<()> {
    assert!(to != present, "there and back");
    let (from, manifest) = target(storage, to)?;
    clear(storage)?;
    let (now, now_manifest) = snapshot(storage, present)?;
    if manifest.uuid != now_manifest.uuid {
        let text = format!("snapshot {to} is of another database");
        return Err(Error::Corrupt(text));
    }
    if let Some(server) = server {
        let known = files_of_server(&*now, &now_manifest)?;
        check_clashes(server, &known, &*from, &manifest)?;
    }
    check_room(&**storage, &manifest, 0)?;
    let into = aside(storage);
    for head in ["checkpoint.", "map."] {
        copy_back(&*from, manifest.file_starting(head)?, &*into)?;
    }
    if let Ok(undo) = manifest.file(UNDO) {
        restore_undo(&*from, undo, &*into)?;
    }
    write_log(&*from, &manifest, &into)?;
    into.sync_dir()?;
    kill_point!("rewind.prepared");
    let intent = Intent {
        to: to.to_owned(),
        from: present.to_owned(),
        files: into.list()?,
    };
    assert!(intent.files.len() >= 3, "only {:?}", intent.files);
    sealed::write(&*into, "intent.new", INTENT, &intent.encode())?;
    kill_point!("rewind.decided");
    Ok(())
}

/// There is room for copies of the snapshot's files, and its log with a file in reserve. `more`: bytes for something else.
pub(super) fn check_room(to: &dyn Storage, manifest: &Manifest, more: u64) -> Result<()> {
    let need = more + manifest.files.iter().map(|f| f.bytes).sum::<u64>();
    let room = to.free_bytes()?;
    debug_assert!(manifest.log_segment_bytes > 0, "a log of no size");
    match room < need + 2 * manifest.log_segment_bytes {
        true => Err(Error::DiskFull(format!(
            "{} MiB are needed for the snapshot's log and lists of pages, {} are free",
            (need + 2 * manifest.log_segment_bytes) >> 20,
            room >> 20
        ))),
        false => Ok(()),
    }
}

/// The log up to the snapshot's point, each record at its position.
pub(super) fn write_log(
    from: &dyn Storage,
    manifest: &Manifest,
    into: &Arc<dyn Storage>,
) -> Result<()> {
    let config = LogConfig {
        segment_bytes: manifest.log_segment_bytes,
        direct: false,
        ..LogConfig::default()
    };
    let (start, end) = (manifest.log_start, manifest.info.position);
    assert!(start <= end, "log from {start} to {end}");
    let log = Log::create(into.clone(), start, config)?;
    log.prepare_up_to(end)?;
    let mut flushed = start;
    let written = files::each_record(from, manifest.file(LOG)?, (start, end), &mut |rec| {
        let at = log.append(rec.kind, &[rec.body]);
        assert!(
            (at.start, at.end) == (rec.start, rec.end),
            "the record of {} comes to lie at {}",
            rec.start,
            at.start
        );
        if at.end.0 - flushed.0 >= LOG_FLUSH_BYTES {
            log.flush_to(at.end);
            flushed = at.end;
        }
        Ok(())
    });
    log.flush_to(log.current_lsn());
    log.stop_threads();
    assert!(
        written.is_err() || log.durable_lsn() == end,
        "a log without its end"
    );
    written
}

/// Removes what a rewind has left that was never decided.
fn clear(storage: &Arc<dyn Storage>) -> Result<()> {
    let left = aside(storage);
    let names = left.list()?;
    assert!(
        names.iter().all(|n| n != INTENT),
        "what was decided is removed"
    );
    names.iter().try_for_each(|name| left.remove(name))?;
    match names.is_empty() {
        true => Ok(()),
        false => left.sync_dir(),
    }
}

/// After [`prepare`] failed: what it has left goes, and the snapshot of the present with it. False: the
/// rewind is decided all the same, and the snapshot stays: it is the way back.
///
/// # Errors
/// `InUse`: the snapshot is open in another server. `Io`. It is dropped or whole.
pub fn give_up(storage: &Arc<dyn Storage>, present: &str) -> Result<bool> {
    check_name(present)?;
    if is_pending(&**storage)? {
        return Ok(false);
    }
    // What stays of either goes at the next start.
    let _ = clear(storage);
    let now = files_of(storage, present);
    let _alone = alone(&*now, present)?;
    end(&*now)?;
    let _ = remove_files(&*now);
    debug_assert!(!is_pending(&**storage)?, "decided after it was given up");
    Ok(true)
}

/// Files of the present go, those that were prepared take their names. Can be repeated.
fn put_in_place(storage: &Arc<dyn Storage>, intent: &Intent) -> Result<()> {
    let new = aside(storage);
    for name in storage.list()? {
        let stays = ferrite_sync::mutant!("rewind.old_files_stay");
        if is_state(&name) && !intent.files.contains(&name) && !stays {
            storage.remove(&name)?;
        }
    }
    kill_point!("rewind.old_removed");
    for name in &intent.files {
        if new.exists(name)? {
            storage.rename(&format!("{ASIDE}{name}"), name)?;
        } else if !storage.exists(name)? {
            return Err(Error::Corrupt(format!("{ASIDE}{name} is missing")));
        }
    }
    storage.sync_dir()?;
    kill_point!("rewind.in_place");
    debug_assert!(is_pending(&**storage)?, "the intent goes last");
    Ok(())
}

/// Step 3, if a rewind was decided: the snapshots it goes to, and that of what was the present. Before
/// the database is opened.
///
/// # Errors
/// `Corrupt`: a file of it is damaged or missing. `DiskFull`, `Io`: it can be repeated.
pub fn finish(
    storage: &Arc<dyn Storage>,
    server: Option<&dyn DataDirectory>,
) -> Result<Option<(String, String)>> {
    let Some(intent) = intent_of(storage)? else {
        clear(storage)?;
        return Ok(None);
    };
    put_in_place(storage, &intent)?;
    if let Some(server) = server {
        let read = |name: &str| {
            let from = files_of(storage, name);
            let manifest = Manifest::read(&*from)?;
            files_of_server(&*from, &manifest)
        };
        server_files::swap(server, &read(&intent.from)?, &read(&intent.to)?)?;
        kill_point!("rewind.server_files_swapped");
    }
    aside(storage).remove(INTENT)?;
    // Before anything is written: with an intent that comes back, this would be done again.
    storage.sync_dir()?;
    kill_point!("rewind.done");
    debug_assert!(
        !storage.exists(manifest::NAME)?,
        "a manifest without a snapshot"
    );
    Ok(Some((intent.to, intent.from)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_changed_byte_of_an_intent_is_noticed() {
        let intent = Intent {
            to: "monday".into(),
            from: "before".into(),
            files: vec!["checkpoint.0".into(), "redo.000001".into()],
        };
        let text = intent.encode();
        assert_eq!(Intent::decode(&text), Some(intent));
        for i in 0..text.len() {
            let mut bytes = text.clone().into_bytes();
            bytes[i] ^= 1;
            let changed = String::from_utf8(bytes).unwrap();
            assert!(Intent::decode(&changed).is_none(), "byte {i}: {changed}");
        }
    }
}
