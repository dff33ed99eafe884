//! The second tier's file.
//!
//! Layout: a head of 4 KiB, from 1 MiB on the ring's segments of 1 MiB, behind them the saved index. The head,
//! little-endian: 0 magic "FERRTIER", 8 version, 12 CRC32C of bytes 16..88, 16 uuid of the database, 32 segments,
//! 36 the segment that is filled next, 40 entries of the index, 48 CRC32C of the index, 52 one if the index
//! counts, 56 state of the store: number of the checkpoint, 64 redo start, 72 map LSN, 80 map checksum. An entry
//! of the index: 0 page, 4 first granule in the ring, 8 location in the store.
//!
//! Invariants: the index counts only from its end to the next start, which says so, durably, before anything is
//! overwritten. Nothing is written to a file that is not empty and has another magic, but for a block
//! of zeros.
//! Locking: none.

use ferrite_types::{Error, Lsn, PageId, Result};

use super::index::Entry;
use super::TierConfig;
use crate::deps::{kill_point, AlignedBuf, Arc, OpenMode, Storage, StorageFile};
use crate::slots::StateId;
use crate::wire::{get_u32, get_u64, put_u32, put_u64};
use crate::word::{Location, BLOCK_BYTES, GRANULE_BYTES};

pub(super) const SEGMENT_BYTES: usize = 1 << 20;
pub(super) const SEGMENT_GRANULES: u32 = (SEGMENT_BYTES / GRANULE_BYTES) as u32;
const MAGIC: u64 = 0x5245_4954_5252_4546;
const VERSION: u32 = 1;
const HEAD_BYTES: usize = 88;
const ENTRY_BYTES: usize = 16;
const _: () = assert!(HEAD_BYTES <= BLOCK_BYTES && SEGMENT_BYTES % ENTRY_BYTES == 0);

/// Whose the file is, and how long.
pub(super) struct Owner {
    pub(super) uuid: [u8; 16],
    pub(super) state: StateId,
    pub(super) segments: u32,
}

/// What an earlier life left that counts.
#[derive(Default)]
pub(super) struct Saved {
    pub(super) next: u32,
    pub(super) entries: Vec<(PageId, Entry)>,
}

struct Head {
    uuid: [u8; 16],
    segments: u32,
    next: u32,
    entries: u64,
    index_crc: u32,
    counts: bool,
    state: StateId,
}

/// Where the segment begins in the file, in bytes; the index behind the last one.
pub(super) fn offset_of_segment(number: u32) -> u64 {
    (u64::from(number) + 1) * SEGMENT_BYTES as u64
}

pub(super) fn offset_of_place(granule: u32) -> u64 {
    offset_of_segment(0) + u64::from(granule) * GRANULE_BYTES as u64
}

/// Opens the file, or makes an empty one.
pub(super) fn open(config: &TierConfig) -> Result<Arc<dyn StorageFile>> {
    let open = |mode| config.storage.open(&config.name, mode, config.direct);
    match open(OpenMode::ReadWrite) {
        Err(Error::NotFound) => open(OpenMode::CreateNew).map_err(|e| match e {
            Error::Exists => Error::BadConfig(format!("{} leads nowhere", config.name)),
            other => other,
        }),
        other => other,
    }
}

fn encode(head: &Head) -> AlignedBuf {
    let mut b = AlignedBuf::zeroed(BLOCK_BYTES);
    put_u64(&mut b, 0, MAGIC);
    put_u32(&mut b, 8, VERSION);
    b[16..32].copy_from_slice(&head.uuid);
    put_u32(&mut b, 32, head.segments);
    put_u32(&mut b, 36, head.next);
    put_u64(&mut b, 40, head.entries);
    put_u32(&mut b, 48, head.index_crc);
    put_u32(&mut b, 52, head.counts.into());
    put_u64(&mut b, 56, head.state.sequence);
    put_u64(&mut b, 64, head.state.redo_start.0);
    put_u64(&mut b, 72, head.state.map_lsn.0);
    put_u32(&mut b, 80, head.state.map_crc);
    let crc = crc32c::crc32c(&b[16..HEAD_BYTES]);
    put_u32(&mut b, 12, crc);
    debug_assert!(decode(&b).is_some(), "a head that cannot be read");
    b
}

/// None: it is damaged, or of another version.
fn decode(b: &[u8]) -> Option<Head> {
    let sane = get_u64(b, 0)? == MAGIC && get_u32(b, 8)? == VERSION;
    if !sane || get_u32(b, 12)? != crc32c::crc32c(b.get(16..HEAD_BYTES)?) {
        return None;
    }
    Some(Head {
        uuid: b[16..32].try_into().ok()?,
        segments: get_u32(b, 32)?,
        next: get_u32(b, 36)?,
        entries: get_u64(b, 40)?,
        index_crc: get_u32(b, 48)?,
        counts: get_u32(b, 52)? == 1,
        state: StateId {
            sequence: get_u64(b, 56)?,
            redo_start: Lsn(get_u64(b, 64)?),
            map_lsn: Lsn(get_u64(b, 72)?),
            map_crc: get_u32(b, 80)?,
        },
    })
}

/// What was saved by the same database in the same state.
///
/// # Errors
/// `BadConfig`: the file is something else. `Io`.
pub(super) fn load(file: &dyn StorageFile, name: &str, owner: &Owner) -> Result<Saved> {
    let bytes = file.len()?;
    let mut b = AlignedBuf::zeroed(BLOCK_BYTES);
    if bytes >= BLOCK_BYTES as u64 {
        file.read_at(&mut b, 0)?;
    }
    // Made by a life that ended before the head was there. What is longer and begins with zeros is somebody's.
    let is_new = bytes == 0 || bytes == BLOCK_BYTES as u64 && b.iter().all(|byte| *byte == 0);
    if !is_new && get_u64(&b, 0) != Some(MAGIC) {
        return Err(Error::BadConfig(format!(
            "{name} is no second tier, or one that is encrypted with another key: name another file, or remove it"
        )));
    }
    let of_owner = |head: &Head| {
        head.counts
            && (head.uuid, head.state) == (owner.uuid, owner.state)
            && head.segments == owner.segments
            && head.next < owner.segments
    };
    match decode(&b).filter(of_owner) {
        Some(head) => load_index(file, &head),
        None => Ok(Saved::default()),
    }
}

fn load_index(file: &dyn StorageFile, head: &Head) -> Result<Saved> {
    let start = offset_of_segment(head.segments);
    let granules = u64::from(head.segments) * u64::from(SEGMENT_GRANULES);
    let mut saved = Saved {
        next: head.next,
        entries: Vec::new(),
    };
    let (mut left, mut at, mut crc) = (head.entries, start, 0);
    if left > granules || start + left * ENTRY_BYTES as u64 > file.len()? {
        return Ok(Saved::default());
    }
    let mut buf = AlignedBuf::zeroed(SEGMENT_BYTES);
    while left > 0 {
        let here = left.min((SEGMENT_BYTES / ENTRY_BYTES) as u64);
        let bytes = here as usize * ENTRY_BYTES;
        let blocks = &mut buf[..bytes.next_multiple_of(BLOCK_BYTES)];
        file.read_at(blocks, at)?;
        crc = crc32c::crc32c_append(crc, &blocks[..bytes]);
        for b in blocks[..bytes].chunks_exact(ENTRY_BYTES) {
            saved.entries.extend(entry_of(b, granules));
        }
        at += blocks.len() as u64;
        left -= here;
    }
    let whole = crc == head.index_crc && saved.entries.len() as u64 == head.entries;
    Ok(if whole { saved } else { Saved::default() })
}

/// None: it cannot be one of a ring of so many granules.
fn entry_of(b: &[u8], granules: u64) -> Option<(PageId, Entry)> {
    let (page, place) = (get_u32(b, 0)?, get_u32(b, 4)?);
    let at = Location::checked(get_u64(b, 8)?).filter(|at| !at.is_none())?;
    let end = u64::from(place) + u64::from(at.granules());
    let one_segment =
        u64::from(place / SEGMENT_GRANULES) == (end - 1) / u64::from(SEGMENT_GRANULES);
    (page != 0 && end <= granules && one_segment).then_some((PageId(page), Entry { at, place }))
}

/// The file gets the length of the ring; from here on, durably, no index counts.
///
/// # Errors
/// `DiskFull`: it takes no space that it did not have. `Io`.
pub(super) fn reserve(storage: &dyn Storage, file: &dyn StorageFile, owner: &Owner) -> Result<()> {
    let (had, wanted) = (file.len()?, offset_of_segment(owner.segments));
    let free = storage.free_bytes()?;
    if wanted > had && wanted - had > free {
        let name = file.name();
        let text = format!("{name}: {wanted} bytes, and {free} are free beside its {had}");
        return Err(Error::DiskFull(text));
    }
    begin(file, owner)?;
    if let Err(e) = file.allocate(0, wanted) {
        // Nothing counts in it any more.
        let _ = file.truncate(0);
        return Err(e);
    }
    if file.len()? > wanted {
        file.truncate(wanted)?;
    }
    debug_assert!(file.len().is_ok_and(|len| len == wanted));
    Ok(())
}

/// From here on, durably, no index counts.
fn begin(file: &dyn StorageFile, owner: &Owner) -> Result<()> {
    let head = Head {
        uuid: owner.uuid,
        segments: owner.segments,
        next: 0,
        entries: 0,
        index_crc: 0,
        counts: false,
        state: owner.state,
    };
    file.write_at(&encode(&head), 0)?;
    file.sync_data()
}

/// The index is saved, and counts if the store is found in that state.
pub(super) fn save(
    file: &dyn StorageFile,
    owner: &Owner,
    next: u32,
    entries: &[(PageId, Entry)],
) -> Result<()> {
    let (mut at, mut crc) = (offset_of_segment(owner.segments), 0);
    let mut buf = AlignedBuf::zeroed(SEGMENT_BYTES);
    for some in entries.chunks(SEGMENT_BYTES / ENTRY_BYTES) {
        let bytes = some.len() * ENTRY_BYTES;
        for ((page, entry), b) in some.iter().zip(buf.chunks_exact_mut(ENTRY_BYTES)) {
            put_u32(b, 0, page.0);
            put_u32(b, 4, entry.place);
            put_u64(b, 8, entry.at.raw());
        }
        crc = crc32c::crc32c_append(crc, &buf[..bytes]);
        let blocks = &buf[..bytes.next_multiple_of(BLOCK_BYTES)];
        file.write_at(blocks, at)?;
        at += blocks.len() as u64;
    }
    file.sync_data()?;
    kill_point!("store.tier_index_written");
    let head = Head {
        uuid: owner.uuid,
        segments: owner.segments,
        next,
        entries: entries.len() as u64,
        index_crc: crc,
        counts: true,
        state: owner.state,
    };
    file.write_at(&encode(&head), 0)?;
    file.sync_data()
}
