//! The files `map.0` and `map.1`: the page directory as it was around some log position.
//!
//! A dump is a row of chunks, each a 64-byte header and a body, padded to 4 KiB. Header
//! (little-endian): 0 magic, 4 CRC32C of bytes 8.. to the body's end, 8 version (u8),
//! 9 kind (u8), 12 chunk number, 16 dump sequence, 24 base LSN, 32 first id, 36 count,
//! 40 uuid, 56 zeros. Kinds: 1 extent owners (u32 each), 2 locations (u64 each), 3 end
//! (count = chunks before it), 4 places of deltas (u64 each). Ids not mentioned have no owner, no
//! location and no delta.
//!
//! Invariants: deltas come before locations: a page that went in between (with its delta, which goes
//! last) has no location, and then its delta does not count. Any other change in between is in the
//! log from the dump's position on. Owners come before locations, so that a page's extent has its owner when a
//! location for it is in the dump or when the log names it later. A dump counts only when a
//! checkpoint names its length and the checksum over its chunks' checksums. The slot of the
//! last checkpoint's map is never written to.

use ferrite_types::format::MAP_CHUNK_MAGIC;
use ferrite_types::{Error, IndexId, Lsn, PageId, Result};

use crate::deps::{kill_point, yield_now, AlignedBuf, Arc, OpenMode, Storage, StorageFile};
use crate::directory::{Directory, EXTENT_PAGES};
use crate::wire::{get_u32, get_u64, put_u32, put_u64};
use crate::word::Location;

const VERSION: u8 = 1;
const HEAD: usize = 64;
const ALIGN: usize = 4096;
/// Longest body.
const BODY: usize = 16 * ALIGN - HEAD;
/// Written at once.
const FLUSH: usize = 1 << 20;

const OWNERS: u8 = 1;
const LOCATIONS: u8 = 2;
const END: u8 = 3;
const DELTAS: u8 = 4;

/// Which map dump a checkpoint starts from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MapBase {
    /// `map.0` or `map.1`.
    pub slot: u8,
    /// Map changes logged at or after this position are not necessarily in it.
    pub lsn: Lsn,
    /// Number of the dump, ascending.
    pub sequence: u64,
    /// Length of the dump.
    pub bytes: u64,
    /// Checksum over the chunks' checksums.
    pub crc: u32,
}

pub(crate) fn name(slot: u8) -> String {
    format!("map.{slot}")
}

/// What marks the chunks of one dump.
#[derive(Clone, Copy)]
pub(crate) struct Mark {
    pub(crate) slot: u8,
    pub(crate) sequence: u64,
    pub(crate) lsn: Lsn,
    pub(crate) uuid: [u8; 16],
}

struct Writer {
    file: Arc<dyn StorageFile>,
    mark: Mark,
    pending: Vec<u8>,
    written: u64,
    chunks: u32,
    crc: u32,
}

impl Writer {
    fn chunk(&mut self, kind: u8, first: u32, count: u32, body: &[u8]) -> Result<()> {
        let at = self.pending.len();
        let end = at + HEAD + body.len();
        assert!(at % ALIGN == 0, "a chunk at {at}");
        assert!(body.len() <= BODY, "a chunk of {} bytes", body.len());
        self.pending.resize(end.next_multiple_of(ALIGN), 0);
        let b = &mut self.pending[at..end];
        put_u32(b, 0, MAP_CHUNK_MAGIC);
        b[8] = VERSION;
        b[9] = kind;
        put_u32(b, 12, self.chunks);
        put_u64(b, 16, self.mark.sequence);
        put_u64(b, 24, self.mark.lsn.0);
        put_u32(b, 32, first);
        put_u32(b, 36, count);
        b[40..56].copy_from_slice(&self.mark.uuid);
        b[HEAD..].copy_from_slice(body);
        let crc = crc32c::crc32c(&b[8..]);
        put_u32(b, 4, crc);
        self.crc = crc32c::crc32c_append(self.crc, &crc.to_le_bytes());
        self.chunks += 1;
        if self.pending.len() >= FLUSH {
            self.flush()?;
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<()> {
        if self.pending.is_empty() {
            return Ok(());
        }
        let (at, len) = (self.written, self.pending.len());
        assert!(
            at % ALIGN as u64 == 0 && len % ALIGN == 0,
            "{len} bytes at {at}"
        );
        self.file
            .write_at(&AlignedBuf::copy_of(&self.pending), at)?;
        self.written += self.pending.len() as u64;
        self.pending.clear();
        Ok(())
    }

    /// Writes ids `0..end` with the bytes `value` gives, without chunks that are all zero.
    fn ids<const N: usize>(
        &mut self,
        kind: u8,
        end: u64,
        value: impl Fn(u32) -> [u8; N],
    ) -> Result<()> {
        assert!(end <= 1 << 32, "ids up to {end}");
        let per_chunk = (BODY / N) as u64;
        let mut body = Vec::with_capacity(BODY);
        let mut first = 0;
        while first < end {
            let next = (first + per_chunk).min(end);
            body.clear();
            (first..next).for_each(|id| body.extend_from_slice(&value(id as u32)));
            let zeros = body.iter().rev().take_while(|b| **b == 0).count();
            let count = (body.len() - zeros).div_ceil(N);
            if count > 0 {
                self.chunk(kind, first as u32, count as u32, &body[..count * N])?;
            }
            first = next;
        }
        Ok(())
    }
}

/// Writes the directory to the slot's file, synced with its name.
pub(crate) fn dump(
    storage: &dyn Storage,
    dir: &Directory,
    mark: Mark,
    home_of: &dyn Fn(PageId, u32) -> Option<Location>,
) -> Result<MapBase> {
    assert!(mark.slot < 2 && mark.sequence > 0, "map.{}", mark.slot);
    let name = name(mark.slot);
    let file = match storage.open(&name, OpenMode::ReadWrite, false) {
        Err(Error::NotFound) => storage.open(&name, OpenMode::CreateNew, false)?,
        other => other?,
    };
    let mut w = Writer {
        file,
        mark,
        pending: Vec::new(),
        written: 0,
        chunks: 0,
        crc: 0,
    };
    w.ids(OWNERS, u64::from(dir.extents()), |extent| {
        dir.extent_owner(extent).0.to_le_bytes()
    })?;
    w.ids(DELTAS, u64::from(dir.end()), |page| {
        dir.delta(PageId(page)).raw().to_le_bytes()
    })?;
    // The end as it is now: extents that came since the owners were dumped are in the log.
    w.ids(LOCATIONS, u64::from(dir.end()), |page| {
        location_of(dir, PageId(page), home_of).raw().to_le_bytes()
    })?;
    let chunks = w.chunks;
    w.chunk(END, 0, chunks, &[])?;
    w.flush()?;
    assert!(w.pending.is_empty() && w.written > 0, "{} bytes", w.written);
    kill_point!("store.map_before_sync");
    if !ferrite_sync::mutant!("store.skip_map_sync") {
        w.file.sync_data()?;
    }
    storage.sync_dir()?;
    kill_point!("store.map_dumped");
    Ok(MapBase {
        slot: mark.slot,
        lsn: mark.lsn,
        sequence: mark.sequence,
        bytes: w.written,
        crc: w.crc,
    })
}

/// Where the page is on disk at this moment.
fn location_of(
    dir: &Directory,
    page: PageId,
    home_of: &dyn Fn(PageId, u32) -> Option<Location>,
) -> Location {
    loop {
        let word = dir.get(page);
        let Some(frame) = word.as_frame() else {
            return word.as_location().map_or(Location::NONE, Location::stored);
        };
        if let Some(home) = home_of(page, frame) {
            debug_assert!(Location::checked(home.raw()).is_some(), "{page}: {home:?}");
            return home;
        }
        // The word changed meanwhile; whoever changes it is in the middle of it.
        yield_now();
    }
}

/// Loads a dump into an empty directory.
///
/// # Errors
/// `Corrupt` naming file and chunk.
pub(crate) fn load(
    storage: &dyn Storage,
    dir: &Directory,
    base: &MapBase,
    uuid: [u8; 16],
) -> Result<()> {
    assert!(dir.end() == 0, "ids up to {} before the map", dir.end());
    let name = name(base.slot);
    let file = match storage.open(&name, OpenMode::ReadOnly, false) {
        Err(Error::NotFound) => return Err(Error::Corrupt(format!("{name}: missing"))),
        other => other?,
    };
    let len = file.len()?;
    if len < base.bytes {
        let need = base.bytes;
        return Err(Error::Corrupt(format!(
            "{name}: {len} bytes, checkpoint says {need}"
        )));
    }
    let mut reader = Reader {
        base: *base,
        uuid,
        crc: 0,
        chunks: 0,
        ended: false,
    };
    let mut at = 0;
    while at < base.bytes {
        let mut b = AlignedBuf::zeroed((HEAD + BODY).min((base.bytes - at) as usize));
        file.read_at(&mut b, at)?;
        match reader.chunk(&b, dir) {
            Ok(used) => at += used.next_multiple_of(ALIGN) as u64,
            Err(what) => {
                let n = reader.chunks;
                return Err(Error::Corrupt(format!(
                    "{name}: chunk {n} at offset {at}: {what}"
                )));
            }
        }
    }
    if !reader.ended || reader.crc != base.crc || at != base.bytes {
        return Err(Error::Corrupt(format!(
            "{name}: not the dump the checkpoint names"
        )));
    }
    Ok(())
}

/// Applies a chunk that marks itself as the first of a dump (for fuzz targets).
pub(crate) fn decode_chunk(b: &[u8], dir: &Directory) {
    let mut uuid = [0; 16];
    if let Some(own) = b.get(40..56) {
        uuid.copy_from_slice(own);
    }
    let base = MapBase {
        slot: 0,
        lsn: Lsn(get_u64(b, 24).unwrap_or(0)),
        sequence: get_u64(b, 16).unwrap_or(0),
        bytes: b.len() as u64,
        crc: 0,
    };
    let mut reader = Reader {
        base,
        uuid,
        crc: 0,
        chunks: get_u32(b, 12).unwrap_or(0).min(u32::MAX - 1),
        ended: false,
    };
    let _ = reader.chunk(b, dir);
}

struct Reader {
    base: MapBase,
    uuid: [u8; 16],
    crc: u32,
    chunks: u32,
    ended: bool,
}

impl Reader {
    /// Checks the chunk that `b` opens with and applies it; its length.
    fn chunk(&mut self, b: &[u8], dir: &Directory) -> std::result::Result<usize, &'static str> {
        let u32_at = |at| get_u32(b, at).unwrap_or(0);
        if self.ended {
            return Err("a chunk after the end");
        }
        if b.len() < HEAD || u32_at(0) != MAP_CHUNK_MAGIC {
            return Err("no chunk magic");
        }
        let (kind, first, count) = (b[9], u32_at(32), u32_at(36));
        let width = match kind {
            OWNERS => 4,
            LOCATIONS | DELTAS => 8,
            _ => 0,
        };
        let len = HEAD as u64 + u64::from(count) * width;
        let b = match usize::try_from(len) {
            Ok(len) => b.get(..len).ok_or("impossible length")?,
            Err(_) => return Err("impossible length"),
        };
        if crc32c::crc32c(&b[8..]) != u32_at(4) {
            return Err("checksum differs");
        }
        if b[8] != VERSION {
            return Err("chunk of a later format");
        }
        if b[40..56] != self.uuid {
            return Err("chunk of another database");
        }
        let same = get_u64(b, 16) == Some(self.base.sequence)
            && get_u64(b, 24) == Some(self.base.lsn.0)
            && u32_at(12) == self.chunks;
        if !same {
            return Err("chunk of another dump");
        }
        match kind {
            OWNERS => owners(dir, first, &b[HEAD..])?,
            DELTAS => locations(dir, first, &b[HEAD..], true)?,
            LOCATIONS => locations(dir, first, &b[HEAD..], false)?,
            END if count == self.chunks => self.ended = true,
            _ => return Err("unknown kind"),
        }
        self.crc = crc32c::crc32c_append(self.crc, &u32_at(4).to_le_bytes());
        self.chunks += 1;
        Ok(b.len())
    }
}

fn owners(dir: &Directory, first: u32, body: &[u8]) -> std::result::Result<(), &'static str> {
    for (i, owner) in body.chunks_exact(4).enumerate() {
        let extent = u64::from(first) + i as u64;
        if extent > u64::from(u32::MAX / EXTENT_PAGES) {
            return Err("extent beyond the last page id");
        }
        let owner = get_u32(owner, 0).unwrap_or(0);
        dir.set_extent_owner(extent as u32, IndexId(owner));
    }
    Ok(())
}

fn locations(
    dir: &Directory,
    first: u32,
    body: &[u8],
    deltas: bool,
) -> std::result::Result<(), &'static str> {
    for (i, raw) in body.chunks_exact(8).enumerate() {
        let Ok(page) = u32::try_from(u64::from(first) + i as u64) else {
            return Err("page beyond the last page id");
        };
        let at = get_u64(raw, 0)
            .and_then(Location::checked)
            .ok_or("not a location")?;
        if at.is_none() {
            continue;
        }
        if page == 0 {
            return Err("a location for page 0");
        }
        match (deltas, at.is_delta()) {
            (true, true) => drop(dir.swap_delta(PageId(page), at)),
            (false, false) => dir.load_location(PageId(page), at),
            _ => return Err("a delta among pages, or a page among deltas"),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use ferrite_sync::random::Rng;

    #[test]
    fn sealed_nonsense_is_an_error() {
        let mut rng = Rng::new(12);
        let base = MapBase {
            slot: 0,
            lsn: Lsn(5),
            sequence: 3,
            bytes: 1 << 20,
            crc: 0,
        };
        let dir = Directory::new();
        let mut accepted = 0;
        for _ in 0..3000 {
            let count = rng.below(20) as u32;
            let kind = rng.below(5) as u8;
            let width = [0, 4, 8, 0, 8][kind as usize];
            let mut b = vec![0; HEAD + (count * width) as usize];
            rng.fill(&mut b);
            put_u32(&mut b, 0, MAP_CHUNK_MAGIC);
            b[8] = VERSION;
            b[9] = kind;
            put_u32(&mut b, 12, 0);
            put_u64(&mut b, 16, 3);
            put_u64(&mut b, 24, 5);
            if rng.chance(1, 2) {
                put_u32(&mut b, 32, rng.below(70000) as u32);
            }
            put_u32(&mut b, 36, if rng.chance(9, 10) { count } else { u32::MAX });
            b[40..56].fill(1);
            let crc = crc32c::crc32c(&b[8..]);
            put_u32(&mut b, 4, crc);
            let mut reader = Reader {
                base,
                uuid: [1; 16],
                crc: 0,
                chunks: 0,
                ended: false,
            };
            if reader.chunk(&b, &dir).is_ok() {
                accepted += 1;
            }
            let cut = rng.below(b.len() as u64) as usize;
            assert!(reader.chunk(&b[..cut], &dir).is_err());
        }
        assert!(accepted > 0);
    }
}
