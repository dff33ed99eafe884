//! The directory of a log: which of its files are there, those that a start begins with, and the removal of what is in
//! its way.
//!
//! Invariant: what is adopted is an unbroken run of files of one length; nothing else of the log is left in the directory,
//! but what lies behind a gap, until the caller knows that nothing was ever written to it.
//!
//! Locking: none; a start is alone with its log.

use super::{Segments, TEMP_NAME};
use crate::format::{check, parse_segment_name, segment_name, Geometry, BLOCK, SECTOR};
use ferrite_io::{AlignedBuf, OpenMode, Storage};
use ferrite_sync::atomic::Ordering;
use ferrite_sync::Arc;
use ferrite_types::{Error, Result};

/// What is in the directory.
struct Listing {
    /// Numbers of the segment files, ascending.
    segments: Vec<u64>,
    /// An unfinished file is there.
    temp: bool,
}

/// Lists the segment files.
fn list(storage: &dyn Storage) -> Result<Listing> {
    let names = storage.list()?;
    let mut segments: Vec<u64> = names.iter().filter_map(|n| parse_segment_name(n)).collect();
    segments.sort_unstable();
    Ok(Listing {
        segments,
        temp: names.iter().any(|n| n == TEMP_NAME),
    })
}

/// Removes every file of a log.
pub(crate) fn wipe(storage: &dyn Storage) -> Result<()> {
    let found = list(storage)?;
    for s in &found.segments {
        storage.remove(&segment_name(*s))?;
    }
    if found.temp {
        storage.remove(TEMP_NAME)?;
    }
    storage.sync_dir()
}

impl Segments {
    /// [`Segments::find`], and files below the run are removed.
    pub(crate) fn adopt(
        storage: Arc<dyn Storage>,
        direct: bool,
        from: u64,
    ) -> Result<(Segments, Option<u64>)> {
        let (segs, beyond) = Segments::find(storage, direct, from)?;
        let found = list(&*segs.storage)?;
        if found.temp {
            segs.storage.remove(TEMP_NAME)?;
        }
        let below = |s: &&u64| **s < segs.first();
        for s in found.segments.iter().filter(below) {
            segs.storage.remove(&segment_name(*s))?;
        }
        Ok((segs, beyond))
    }

    /// Opens the unbroken run of files that holds position `from`, and changes nothing. Also
    /// the number of a file beyond a gap.
    pub(crate) fn find(
        storage: Arc<dyn Storage>,
        direct: bool,
        from: u64,
    ) -> Result<(Segments, Option<u64>)> {
        let found = list(&*storage)?;
        if found.segments.is_empty() {
            return Err(Error::Corrupt(format!(
                "redo log: every file redo.* is missing; the log is needed from position {from} on"
            )));
        }
        let length = common_length(&*storage, direct, &found.segments)?;
        let geometry = Geometry {
            segment_bytes: length,
        };
        let at = geometry.segment_of(from);
        let position = |s: u64| found.segments.binary_search(&s).ok();
        let mut index = position(at);
        if index.is_none() && at > 0 && from == geometry.segment_start(at) {
            // The log may end with its segment, before there is another.
            index = position(at - 1);
        }
        let Some(index) = index else {
            let name = segment_name(at);
            return Err(Error::Corrupt(format!(
                "redo log: {name} is missing; the log is needed from position {from} on"
            )));
        };
        let (mut low, mut high) = (index, index);
        while low > 0 && found.segments[low - 1] + 1 == found.segments[low] {
            low -= 1;
        }
        while high + 1 < found.segments.len()
            && found.segments[high] + 1 == found.segments[high + 1]
        {
            high += 1;
        }
        let segs = Segments::empty(storage, direct, geometry, found.segments[low]);
        for s in &found.segments[low..=high] {
            let f = segs
                .storage
                .open(&segment_name(*s), OpenMode::ReadWrite, direct)?;
            if f.len()? != length {
                return Err(bad_length(*s, f.len()?, length));
            }
            segs.open.lock().insert(*s, f);
        }
        segs.ready.store(found.segments[high] + 1, Ordering::SeqCst);
        assert!(segs.is_run(&segs.open.lock()), "gaps between the log files");
        Ok((segs, found.segments.get(high + 1).copied()))
    }

    /// A file beyond the run that something of a log at least as young as `epoch` was written to.
    pub(crate) fn begun_beyond(&self, epoch: u32) -> Result<Option<u64>> {
        let mut block = AlignedBuf::zeroed(BLOCK);
        let ready = self.ready();
        for s in list(&*self.storage)?.segments {
            let file = match s >= ready {
                true => self
                    .storage
                    .open(&segment_name(s), OpenMode::ReadWrite, self.direct)?,
                false => continue,
            };
            if file.len()? < BLOCK as u64 {
                continue;
            }
            file.read_at(&mut block, 0)?;
            let first = self.geometry.first_sector(s);
            let head = check(&block[..SECTOR], first);
            if head.is_some_and(|h| h.epoch >= epoch) {
                return Ok(Some(s));
            }
        }
        Ok(None)
    }

    /// Removes files beyond the run (nothing in them was ever part of this log).
    pub(crate) fn drop_beyond(&self) -> Result<()> {
        let ready = self.ready();
        for s in list(&*self.storage)?
            .segments
            .into_iter()
            .filter(|s| *s >= ready)
        {
            self.storage.remove(&segment_name(s))?;
        }
        self.storage.sync_dir()
    }
}

/// The length of the segments: what most files have. All were made alike, so the others are
/// damaged; of two lengths equally frequent the longer one is right, since files get cut.
///
/// # Errors
/// `Corrupt` naming the file when no length is possible.
fn common_length(storage: &dyn Storage, direct: bool, segments: &[u64]) -> Result<u64> {
    let mut lengths = Vec::with_capacity(segments.len());
    for s in segments {
        let file = storage.open(&segment_name(*s), OpenMode::ReadWrite, direct)?;
        lengths.push(file.len()?);
    }
    let possible = |length: &u64| *length > 0 && length % BLOCK as u64 == 0;
    let times = |length: u64| lengths.iter().filter(|l| **l == length).count();
    let common = lengths.iter().copied().filter(possible);
    common
        .max_by_key(|l| (times(*l), *l))
        .ok_or_else(|| bad_length(segments[0], lengths[0], 0))
}

fn bad_length(segment: u64, length: u64, expected: u64) -> Error {
    let name = segment_name(segment);
    let others = match expected {
        0 => String::new(),
        n => format!("; the log's files have {n}"),
    };
    Error::Corrupt(format!(
        "redo log: {name} has an impossible length of {length} bytes{others}"
    ))
}
