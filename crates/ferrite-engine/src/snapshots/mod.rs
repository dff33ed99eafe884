//! Snapshots that are kept: a checkpoint, the log from it to a point in time, and the pages that the
//! map names there, which stay where they are.
//!
//! Taking one is the beginning of a hot backup (`crate::backup`) whose pages are not copied:
//! 1. [`Engine::begin_snapshot`] takes a checkpoint, copies its files, and keeps the log from its
//!    start on.
//! 2. [`SnapshotJob::fix`] chooses the point in time, the log's end at that moment, and pins the
//!    pages. The caller sees to it that other things have the same point.
//! 3. [`SnapshotJob::finish`] copies the log up to the point, finds the map at the point, and
//!    writes which granules its blobs take (`held`). The store holds them from then on
//!    (`ferrite-store/src/held.rs`), the manifest makes the snapshot durable, and the pin goes.
//!
//! Its files are in the database's directory, `snapshot.NAME.` before their names: `superblock`,
//! `checkpoint.N`, `map.N`, `log`, `undo` as in a backup; `held`; `server`, what the server keeps
//! beside the database (`server_files`); `manifest`, the last.
//!
//! `manifest`: that file. `startup`: which snapshots there are. `dropping`: they go. `rewind`: the database goes back to
//! one. `beside`: a second program opens one. `server_files`: definitions of tables that the server has
//! in files of its own; `trigger_table`: which table one of them, a trigger's, belongs to.
//!
//! What is on disk if we die: while one is taken, files without a manifest, which the next start
//! removes. Once the manifest has its name, the snapshot, whose runs the next start holds before
//! anything is written: the store holds them, too, until the name is gone for good if it cannot be made durable. While one is dropped, the snapshot, or files without a manifest: no blob
//! of it is free before the manifest's end is durable.
//!
//! Locking: the claim (`state/snapshots.rs`), then `checkpointing`, then leaves.

pub mod beside;
mod dropping;
mod manifest;
pub mod rewind;
pub mod server_files;
pub(crate) mod startup;
mod trigger_table;

use crate::backup::files::{LogOutput, Output, UNDO};
use crate::backup::map::MapAt;
use crate::maintenance::checkpoint::EngineState;
use crate::state::engine::Engine;
use crate::state::snapshots::{KeptInfo, Snapshots};
use ferrite_io::{Prefixed, Storage};
use ferrite_store::{CopiedFile, GranuleRuns, PinOwner};
use ferrite_sync::atomic::Ordering;
use ferrite_sync::{kill_point, time, Arc};
use ferrite_types::{Error, Lsn, Result};
use manifest::Manifest;

/// The granules of its blobs.
const HELD: &str = "held";
/// Files of the server.
const SERVER: &str = "server";
/// What the names of all files begin with.
const PREFIX: &str = "snapshot.";
/// Longest name, in bytes.
const MOST_NAME: usize = 64;
/// No more log than this is copied with a snapshot, but for what is written meanwhile: older pages
/// are written first, in bytes.
const LOG_BYTES: u64 = 16 << 20;

/// What the server knows of the point in time.
#[derive(Clone, Debug, Default)]
pub struct ServerState {
    /// Its files: path in the data directory, content.
    pub files: Vec<(String, Vec<u8>)>,
    /// The binary log's file; empty: there is none.
    pub binlog_file: String,
    /// The position in it.
    pub binlog_position: u64,
    /// The GTID position of the binary log.
    pub gtid: String,
    /// Taken by the schedule.
    pub scheduled: bool,
}

/// A snapshot that is being taken. Dropped before [`SnapshotJob::finish`], there is none.
pub struct SnapshotJob {
    engine: Arc<Engine>,
    name: String,
    to: Arc<dyn Storage>,
    files: Vec<CopiedFile>,
    log_start: Lsn,
    position: Option<Lsn>,
}

/// # Errors
/// `BadConfig`: not a snapshot's name.
fn check_name(name: &str) -> Result<()> {
    let sound = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    match !name.is_empty() && name.len() <= MOST_NAME && name.chars().all(sound) {
        true => Ok(()),
        false => Err(Error::BadConfig(format!(
            "'{name}' is not the name of a snapshot: letters, digits, '-' and '_', at most {MOST_NAME}"
        ))),
    }
}

/// The files of a snapshot.
fn files_of(storage: &Arc<dyn Storage>, name: &str) -> Arc<dyn Storage> {
    debug_assert!(check_name(name).is_ok(), "{name}");
    Arc::new(Prefixed::new(storage.clone(), &format!("{PREFIX}{name}.")))
}

/// Removes all files there, the manifest first.
fn remove_files(from: &dyn Storage) -> Result<()> {
    let mut names = from.list()?;
    names.sort_by_key(|name| name != manifest::NAME);
    debug_assert!(names.iter().skip(1).all(|name| name != manifest::NAME));
    names.iter().try_for_each(|name| from.remove(name))
}

fn read_runs(from: &dyn Storage, manifest: &Manifest) -> Result<GranuleRuns> {
    let bytes = crate::backup::files::read_whole(from, manifest.file(HELD)?)?;
    let bad = || Error::Corrupt(format!("{HELD}: unreadable"));
    GranuleRuns::decode(&bytes).ok_or_else(bad)
}

fn write_runs(to: &dyn Storage, runs: &GranuleRuns) -> Result<CopiedFile> {
    let mut out = Output::create(to, HELD)?;
    let bytes = runs.encode();
    out.put(&bytes)?;
    assert!(out.position() == bytes.len() as u64, "a part of the runs");
    out.finish()
}

impl Engine {
    /// Begins to take a snapshot: checkpoint, copied. Waits for another one that is being taken.
    ///
    /// # Errors
    /// `BadConfig`: the name; `Exists`: there is such a snapshot. `InUse`, `DiskFull`, `Io`.
    pub fn begin_snapshot(self: &Arc<Self>, name: &str) -> Result<SnapshotJob> {
        self.begin_snapshot_of(name, 0)
    }

    /// As [`Engine::begin_snapshot`], and a KILL of connection `thd` (0: of none) ends the wait for others, for what those
    /// have left that were dropped, which takes as long as the database is large, and for pages that lack changes.
    ///
    /// # Errors
    /// Also `Interrupted` by KILL.
    pub fn begin_snapshot_of(self: &Arc<Self>, name: &str, thd: usize) -> Result<SnapshotJob> {
        check_name(name)?;
        let is_killed = || self.is_killed(thd);
        let claim = self.snapshots.claim(&is_killed)?;
        // Nobody else can as long as this one is being taken. It may be that one that is half gone.
        self.hold_rest_at_last(&is_killed);
        if is_killed() {
            return Err(Error::Interrupted);
        }
        if self.snapshots.find(name).is_some() {
            return Err(Error::Exists);
        }
        let to = files_of(&self.storage, name);
        remove_files(&*to)?;
        self.store.note_snapshots(true)?;
        kill_point!("snapshot.noted");
        Snapshots::hand_over(claim);
        // From here on its end lets go of everything.
        let mut job = SnapshotJob {
            engine: self.clone(),
            name: name.to_owned(),
            to,
            files: Vec::new(),
            log_start: Lsn::ZERO,
            position: None,
        };
        let end = self.log.current_lsn();
        if self.log_age() > LOG_BYTES {
            assert!(end.0 > LOG_BYTES, "a log that ends at {end}");
            let below = Lsn(end.0 - LOG_BYTES);
            self.pool.flush_all_below_unless(below, &is_killed)?;
        }
        job.copy_checkpoint()?;
        Ok(job)
    }

    /// Snapshots that are kept, the oldest first.
    ///
    /// # Errors
    /// None but those of reading their files.
    pub fn kept_snapshots(&self) -> Vec<KeptInfo> {
        let mut all = self.snapshots.all();
        all.retain_mut(|info| !info.lost.is_empty() || self.look_at(info));
        all
    }

    /// Fills in what its files say. False: it has been dropped meanwhile, or is being dropped.
    fn look_at(&self, info: &mut KeptInfo) -> bool {
        if self.snapshots.is_half_gone(&info.name) {
            "it is being dropped, which could not be finished yet".clone_into(&mut info.lost);
            return true;
        }
        let from = files_of(&self.storage, &info.name);
        match Manifest::read(&*from).and_then(|m| read_runs(&*from, &m)) {
            Ok(runs) => info.changed_bytes = self.store.kept_bytes_of(&runs),
            // Its files go before it does.
            Err(_) if self.snapshots.is_gone(info) => return false,
            Err(e) => info.lost = e.to_string(),
        }
        true
    }

    /// Bytes that snapshots take: their files, and pages that the present does not have any more.
    pub fn snapshot_bytes(&self) -> u64 {
        self.snapshots.file_bytes() + self.store.kept_bytes()
    }
}

impl SnapshotJob {
    /// Step 1.
    fn copy_checkpoint(&mut self) -> Result<()> {
        let engine = &self.engine;
        let _one = engine.checkpointing.lock();
        engine.undo_area.hold(PinOwner::Snapshot, true);
        engine.snapshots.keep_log_from(Some(Lsn::ZERO));
        engine.take_checkpoint()?;
        kill_point!("snapshot.checkpoint_pinned");
        self.log_start = Lsn(engine.checkpoint_lsn.load(Ordering::SeqCst));
        engine.snapshots.keep_log_from(Some(self.log_start));
        self.files = engine.store.copy_checkpoint(&*self.to)?;
        assert!(self.files.len() == 3, "{} files", self.files.len());
        assert!(
            self.log_start <= engine.log.durable_lsn(),
            "log kept from {}",
            self.log_start
        );
        Ok(())
    }

    /// Step 2: the point in time is now. Takes as long as a flush of the log.
    pub fn fix(&mut self) -> Lsn {
        assert!(self.position.is_none(), "fixed twice");
        let engine = &self.engine;
        // In this order: what was freed until the pin left the map before the point.
        engine
            .store
            .pin(PinOwner::Snapshot, engine.log.current_lsn());
        let end = engine.log.current_lsn();
        self.position = Some(end);
        engine.log.flush_to(end);
        assert!(
            engine.log.durable_lsn() >= end,
            "a point that is not durable"
        );
        kill_point!("snapshot.fixed");
        end
    }

    /// Step 3: all of it is durable when this returns.
    ///
    /// # Errors
    /// `Corrupt`, `DiskFull`, `Io`: there is no snapshot, or soon there is none.
    pub fn finish(mut self, server: &ServerState) -> Result<()> {
        let engine = self.engine.clone();
        let end = self
            .position
            .ok_or_else(|| Error::Bug("not fixed".into()))?;
        let map = self.copy_log(end)?;
        self.copy_undo(&map)?;
        let runs = GranuleRuns::of(map.pages()?.into_iter().map(|(_, at)| at));
        drop(map);
        self.files.push(write_runs(&*self.to, &runs)?);
        let names = server_files::write(&*self.to, SERVER, &server.files)?;
        self.files.push(names);
        kill_point!("snapshot.files_written");
        let info = KeptInfo {
            name: self.name.clone(),
            number: engine.snapshots.next_number(),
            taken_unix_s: time::unix_us() / 1_000_000,
            position: end,
            file_bytes: self.files.iter().map(|f| f.bytes).sum(),
            binlog_file: server.binlog_file.clone(),
            binlog_position: server.binlog_position,
            gtid: server.gtid.clone(),
            scheduled: server.scheduled,
            ..KeptInfo::default()
        };
        engine.store.hold(&runs)?;
        let manifest = Manifest {
            info: info.clone(),
            uuid: engine.store.uuid(),
            log_start: self.log_start,
            log_segment_bytes: engine.config.log_segment_bytes,
            files: std::mem::take(&mut self.files),
        };
        if let Err(e) = manifest.write(&*self.to) {
            engine.take_back(info);
            return Err(e);
        }
        kill_point!("snapshot.manifest_written");
        engine.snapshots.add(info);
        engine.snapshots.taken.inc();
        // It lets go of the claim, and calls who drops others beyond the limit: for each all that is held is read.
        drop(self);
        Ok(())
    }

    /// Copies the log from the checkpoint to the point; the map at the point.
    fn copy_log(&mut self, end: Lsn) -> Result<MapAt> {
        let map = MapAt::of_checkpoint(self.to.clone())?;
        let start = map.checkpoint.redo_start;
        assert!(start == self.log_start, "another checkpoint: {start}");
        assert!(start <= end, "log from {start} to {end}");
        let mut out = LogOutput::create(&*self.to, start)?;
        self.engine.log.scan(start, end, &mut |rec| {
            map.visit(rec.start, rec.kind, rec.body)?;
            out.put(&rec)
        })?;
        self.files.push(out.finish(end)?);
        Ok(map)
    }

    fn copy_undo(&mut self, map: &MapAt) -> Result<()> {
        let state = EngineState::decode(&map.checkpoint.state)?;
        let chunks = state
            .active
            .iter()
            .flat_map(|txn| txn.chunks.iter().copied());
        let mut chunks = chunks.peekable();
        if chunks.peek().is_none() {
            return Ok(());
        }
        let mut out = Output::create(&*self.to, UNDO)?;
        for chunk in chunks {
            let bytes = self.engine.undo_area.read_held(chunk)?;
            debug_assert!(!bytes.is_empty(), "an empty chunk");
            crate::backup::copy::put_undo(&mut out, chunk, &bytes)?;
        }
        self.files.push(out.finish()?);
        Ok(())
    }
}

impl Drop for SnapshotJob {
    fn drop(&mut self) {
        let engine = &self.engine;
        engine.store.unpin(PinOwner::Snapshot);
        engine.undo_area.hold(PinOwner::Snapshot, false);
        engine.snapshots.keep_log_from(None);
        if engine.snapshots.find(&self.name).is_none() {
            // What stays goes at the next start.
            let _ = remove_files(&*self.to);
        }
        engine.snapshots.release();
        engine.housekeeping.set();
    }
}
