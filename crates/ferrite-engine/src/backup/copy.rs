//! Copying: log, undo and pages into the backup's directory, and the manifest at the end.
//!
//! Order: the log first, since it says which pages there are; then undo and pages; the index; the
//! manifest, once everything else is durable. Pages are read in the order of the store, many at
//! once where they lie close to each other, and each is checked before it is written: a damaged
//! page ends the backup with its name.
//!
//! What is on disk if we die: files without a manifest.
//!
//! Locking: none; the pins keep what is read.

use super::files::{Index, LogOutput, Output, PageEntry, PAGES, UNDO};
use super::manifest::{self, Manifest};
use super::map::MapAt;
use super::{named, Job};
use crate::maintenance::checkpoint::EngineState;
use crate::state::engine::Engine;
use crate::state::undo_area::Chunk;
use ferrite_io::{encryption, AlignedBuf, Storage};
use ferrite_store::{Generation, Location, GRANULE_BYTES};
use ferrite_sync::{kill_point, thread, time};
use ferrite_types::{Error, Lsn, PageId, Result};

/// Most that is read at once, in granules: 1 MiB.
const READ_GRANULES: u64 = (1 << 20) / GRANULE_BYTES as u64;
/// Gaps up to this are read along, in granules: 32 KiB.
const GAP_GRANULES: u64 = (32 << 10) / GRANULE_BYTES as u64;
const _: () = assert!(GAP_GRANULES < READ_GRANULES);
/// What stands before each chunk of undo, in bytes.
pub(super) const UNDO_HEAD: usize = 4096;

/// Removes what a backup that failed has written into its directory, which was empty.
pub(super) fn remove_files(from: &dyn Storage) -> Result<()> {
    let mut names = from.list()?;
    // Without it there is no backup any more, whatever else goes wrong.
    names.sort_by_key(|name| name != manifest::NAME);
    debug_assert!(names.iter().skip(1).all(|name| name != manifest::NAME));
    names.iter().try_for_each(|name| from.remove(name))?;
    // Not among the names of encrypted files; last, so that nothing is ever without its key.
    match from.remove(encryption::NAME) {
        Err(Error::NotFound) => {}
        other => other?,
    }
    from.sync_dir()
}

/// Writes a chunk of undo behind its head.
pub(crate) fn put_undo(out: &mut Output, chunk: Chunk, bytes: &[u8]) -> Result<()> {
    let mut head = [0; UNDO_HEAD];
    head[..4].copy_from_slice(&chunk.slot.to_le_bytes());
    head[4..8].copy_from_slice(&chunk.crc.to_le_bytes());
    debug_assert!(crc32c::crc32c(bytes) == chunk.crc, "another chunk");
    out.put(&head)?;
    out.put(bytes)
}

/// Keeps the pace that was asked for.
struct Pace {
    bytes_per_s: u64,
    begun_us: u64,
    bytes: u64,
}

impl Pace {
    fn new(bytes_per_s: u64) -> Pace {
        Pace {
            bytes_per_s,
            begun_us: time::now_us(),
            bytes: 0,
        }
    }

    /// So many bytes were copied. How long they were faster than they may be, in us.
    fn take(&mut self, bytes: u64) -> u64 {
        assert!(bytes <= 16 << 20, "{bytes} bytes between two rests");
        self.bytes += bytes;
        // In 128 bits: a backup has more than the 18 TB of which the product has 64.
        let due_us = (u128::from(self.bytes) * 1_000_000).checked_div(u128::from(self.bytes_per_s));
        let spent_us = u128::from(time::now_us() - self.begun_us);
        let early_us = due_us.map_or(0, |due_us| due_us.saturating_sub(spent_us));
        u64::try_from(early_us).unwrap_or(u64::MAX)
    }
}

impl Engine {
    /// So many bytes were copied: rests as long as that was too fast, and looks whether to go on.
    fn rest(&self, job: &Job, pace: &mut Pace, bytes: u64) -> Result<()> {
        const LOOK_US: u64 = 50_000;
        let mut left_us = pace.take(bytes);
        while left_us > 0 {
            self.check_backup(job)?;
            thread::sleep_us(left_us.min(LOOK_US));
            left_us = pace.take(0);
        }
        self.check_backup(job)
    }

    /// Step 3; waits for step 2 first.
    pub(super) fn copy_backup(&self, job: &mut Job) -> Result<()> {
        let (end, generation) = self.wait_for_point(job)?;
        let map = self.copy_log(job, end)?;
        kill_point!("backup.log_copied");
        self.copy_undo(job, &map)?;
        let pages = map.pages()?;
        drop(map);
        let mut index = self.copy_pages(job, pages)?;
        kill_point!("backup.pages_copied");
        // All is copied: was it there all the time?
        self.backup.check()?;
        assert!(
            self.backup.log_floor.kept_from() <= Some(job.log_start),
            "the log was kept from another position"
        );
        job.files.push(index.write(&*job.to.storage, job.id)?);
        let manifest = Manifest {
            id: job.id,
            uuid: self.store.uuid(),
            base: job.base.as_ref().map(|(_, m)| (m.id, m.position)),
            position: end,
            log_start: job.log_start,
            log_segment_bytes: self.config.log_segment_bytes,
            generation,
            taken_unix_s: job.begun_unix_s,
            files: std::mem::take(&mut job.files),
        };
        manifest.write(&*job.to.storage)?;
        kill_point!("backup.manifest_written");
        Ok(())
    }

    fn wait_for_point(&self, job: &Job) -> Result<(Lsn, Generation)> {
        loop {
            self.check_backup(job)?;
            if let Some(fixed) = self.backup.fixed() {
                assert!(job.log_start <= fixed.0, "log from {}", job.log_start);
                return Ok(fixed);
            }
            self.backup.wait_a_moment();
        }
    }

    /// Copies the log from the checkpoint to the point; the map at the point.
    fn copy_log(&self, job: &mut Job, end: Lsn) -> Result<MapAt> {
        /// Bytes of log between two looks.
        const LOOK_BYTES: u64 = 1 << 20;
        assert!(job.log_start <= end, "log from {} to {end}", job.log_start);
        let map = MapAt::of_checkpoint(job.to.storage.clone())?;
        let start = map.checkpoint.redo_start;
        assert!(start == job.log_start, "another checkpoint: {start}");
        let mut out = LogOutput::create(&*job.to.storage, start)?;
        let mut pace = Pace::new(job.limits.bytes_per_s);
        let mut looked = start;
        self.log.scan(start, end, &mut |rec| {
            map.visit(rec.start, rec.kind, rec.body)?;
            out.put(&rec)?;
            if rec.end.0 - looked.0 >= LOOK_BYTES {
                let bytes = rec.end.0 - looked.0;
                self.backup.add_copied(bytes);
                self.rest(job, &mut pace, bytes)?;
                looked = rec.end;
            }
            Ok(())
        })?;
        self.backup.add_copied(end.0 - looked.0);
        self.rest(job, &mut pace, end.0 - looked.0)?;
        job.files.push(out.finish(end)?);
        Ok(map)
    }

    /// Copies the chunks of undo that the checkpoint names.
    fn copy_undo(&self, job: &mut Job, map: &MapAt) -> Result<()> {
        let state = EngineState::decode(&map.checkpoint.state)?;
        let chunks: Vec<Chunk> = (state.active.iter())
            .flat_map(|txn| txn.chunks.iter().copied())
            .collect();
        if chunks.is_empty() {
            return Ok(());
        }
        let mut out = Output::create(&*job.to.storage, UNDO)?;
        for chunk in chunks {
            self.check_backup(job)?;
            let bytes = self.undo_area.read_held(chunk)?;
            debug_assert_eq!(crc32c::crc32c(&bytes), chunk.crc, "another chunk");
            put_undo(&mut out, chunk, &bytes)?;
            self.backup.add_copied((UNDO_HEAD + bytes.len()) as u64);
        }
        job.files.push(out.finish()?);
        Ok(())
    }

    fn copy_pages(&self, job: &mut Job, mut pages: Vec<(PageId, Location)>) -> Result<Index> {
        let base = match &job.base {
            Some((place, manifest)) => {
                let index = base_index(&*place.storage, manifest);
                Some((
                    index.map_err(|e| named(&place.name, e))?,
                    manifest.generation,
                ))
            }
            None => None,
        };
        let mut index = Index::default();
        index.entries.reserve(pages.len());
        if let Some((base, since)) = &base {
            pages.retain(
                |(page, at)| match self.unchanged(base, *since, *page, *at) {
                    Some(entry) => {
                        index.entries.push(entry);
                        false
                    }
                    None => true,
                },
            );
        }
        let bytes = pages.iter().map(|(_, at)| at.bytes() as u64).sum();
        self.backup.note_pages(bytes);
        pages.sort_unstable_by_key(|(_, at)| at.granule());
        debug_assert!(
            pages
                .windows(2)
                .all(|p| p[0].1 < p[1].1 || p[0].1.granule() < p[1].1.granule()),
            "two pages at one place"
        );
        let out = Output::create(&*job.to.storage, PAGES)?;
        let mut copy = PageCopy {
            out,
            buf: AlignedBuf::zeroed(READ_GRANULES as usize * GRANULE_BYTES),
            base: base.as_ref().map(|(index, _)| index),
            pace: Pace::new(job.limits.bytes_per_s),
        };
        let mut rest = &pages[..];
        while !rest.is_empty() {
            let (now, later) = rest.split_at(close_together(rest, |granule| {
                self.store.granules_to_file_end(granule)
            }));
            let bytes = self.copy_some(&mut copy, now, &mut index)?;
            self.rest(job, &mut copy.pace, bytes)?;
            rest = later;
        }
        job.files.push(copy.out.finish()?);
        Ok(index)
    }

    /// The page as the base knows it, if its blob is the same for sure.
    fn unchanged(
        &self,
        base: &Index,
        since: Generation,
        page: PageId,
        at: Location,
    ) -> Option<PageEntry> {
        assert!(page != PageId::NONE && !at.is_none(), "{page} at {at:?}");
        let before = base.find(page, at).filter(|before| before.at == at)?;
        (!self.store.written_since(at, since)).then_some(PageEntry {
            place: None,
            ..*before
        })
    }

    /// Copies pages that lie close together; the bytes read.
    fn copy_some(
        &self,
        copy: &mut PageCopy<'_>,
        pages: &[(PageId, Location)],
        index: &mut Index,
    ) -> Result<u64> {
        let (Some((_, first)), Some((_, last))) = (pages.first(), pages.last()) else {
            return Ok(0);
        };
        let (begin, end) = (first.blocks().0, last.blocks().1);
        let granules = end - begin;
        assert!(granules <= READ_GRANULES, "{granules} granules at once");
        let buf = &mut copy.buf[..granules as usize * GRANULE_BYTES];
        self.store.read_blocks(begin, buf)?;
        for (page, at) in pages {
            let from = (at.granule() - begin) as usize * GRANULE_BYTES;
            let bytes = &buf[from..from + at.bytes()];
            debug_assert_eq!(bytes.len() % GRANULE_BYTES, 0, "{page} at {at:?}");
            let blob = self.check_pinned(*page, *at, bytes)?;
            let mut entry = PageEntry {
                page: *page,
                at: *at,
                crc: blob.crc,
                lsn: blob.lsn,
                place: None,
            };
            // After a restart nobody knows what was written since; the blobs tell.
            let known = copy.base.and_then(|base| base.find(*page, *at));
            let same = known.is_some_and(|k| (k.at, k.crc, k.lsn) == (*at, blob.crc, blob.lsn));
            if !same {
                entry.place = Some(copy.out.position());
                copy.out.put(bytes)?;
                self.backup.add_copied(bytes.len() as u64);
            }
            index.entries.push(entry);
        }
        Ok(buf.len() as u64)
    }

    /// A blob that is not what the map says may be gone because the backup was ended meanwhile.
    fn check_pinned(
        &self,
        page: PageId,
        at: Location,
        bytes: &[u8],
    ) -> Result<ferrite_store::StoredBlob> {
        self.store.check_blob(page, at, bytes).or_else(|e| {
            self.backup.check()?;
            // The fault may be one of reading.
            let (begin, end) = at.blocks();
            let mut again = AlignedBuf::zeroed((end - begin) as usize * GRANULE_BYTES);
            self.store.read_blocks(begin, &mut again)?;
            let from = (at.granule() - begin) as usize * GRANULE_BYTES;
            match again[from..from + at.bytes()] == *bytes {
                true => Err(e),
                false => Err(Error::Io(format!("{e}; a second read gave something else"))),
            }
        })
    }
}

/// What copying pages needs.
struct PageCopy<'a> {
    out: Output,
    buf: AlignedBuf,
    base: Option<&'a Index>,
    pace: Pace,
}

fn base_index(from: &dyn Storage, manifest: &Manifest) -> Result<Index> {
    let missing = || Error::Corrupt("manifest: names no index".into());
    assert!(manifest.id != 0, "a backup without an id");
    let file = manifest.file(super::files::INDEX).ok_or_else(missing)?;
    Index::read(from, manifest.id, file)
}

/// How many of the first pages are read at once.
fn close_together(pages: &[(PageId, Location)], to_file_end: impl Fn(u64) -> u64) -> usize {
    assert!(!pages.is_empty(), "nothing is read");
    let (begin, _) = pages[0].1.blocks();
    let most = READ_GRANULES.min(to_file_end(begin));
    let mut end = begin;
    let mut n = 0;
    for (_, at) in pages {
        let (_, next) = at.blocks();
        debug_assert!(at.granule() >= begin, "{at:?} before {begin}");
        if at.granule() > end + GAP_GRANULES || next - begin > most {
            break;
        }
        end = next;
        n += 1;
    }
    assert!(n > 0, "a blob of more than {most} granules");
    n
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of 19 TiB with 1 GiB/s the rest is five hours and more, not a number that has wrapped.
    #[test]
    fn the_pace_of_a_large_backup() {
        let mut pace = Pace::new(1 << 30);
        pace.bytes = 19 << 40;
        let hours = pace.take(1 << 20) / 3_600_000_000;
        assert_eq!(hours, 5);
        let mut slow = Pace::new(1);
        slow.bytes = u64::MAX >> 1;
        assert_eq!(slow.take(1), u64::MAX);
        assert_eq!(Pace::new(0).take(16 << 20), 0, "no limit");
    }
}
