//! The files `checkpoint.0` and `checkpoint.1`: where recovery starts. The newer valid one
//! counts; a new one goes over the other.
//!
//! Layout (little-endian): 0 magic "FERRCKPT", 8 version, 12 CRC32C of bytes 0..12 and
//! 16..length, 16 length, 24 sequence, 32 uuid, 48 redo start, 56 map slot (u64), 64 map
//! LSN, 72 map sequence, 80 map bytes, 88 map checksum (u32), 92 low half of the state's
//! length (u32), 96 the engine's state. What the file has behind that is space kept for a longer one (`reserve`).

use ferrite_types::{Error, Lsn, Result};

use crate::deps::{kill_point, AlignedBuf, OpenMode, Storage};
use crate::map::MapBase;
use crate::reserve;
use crate::wire::{get_u32, get_u64, put_u32, put_u64};

const MAGIC: u64 = 0x5450_4b43_5252_4546;
const VERSION: u32 = 1;
const HEAD: usize = 96;

/// Where recovery starts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Checkpoint {
    /// All changes before it are in the pages on disk.
    pub redo_start: Lsn,
    /// The map to start from. Map changes are replayed from `map.lsn`, which may lie before
    /// `redo_start`: the log is needed from the lower of the two.
    pub map: MapBase,
    /// What the engine wants back; not looked at here.
    pub state: Vec<u8>,
}

pub(crate) fn name(slot: u8) -> String {
    format!("checkpoint.{slot}")
}

pub(crate) fn encode(c: &Checkpoint, sequence: u64, uuid: &[u8; 16]) -> Vec<u8> {
    assert!(c.map.slot < 2, "map.{}", c.map.slot);
    assert!(sequence > 0, "the first checkpoint is number 1");
    let mut b = Vec::with_capacity(HEAD + c.state.len());
    b.resize(HEAD, 0);
    put_u64(&mut b, 0, MAGIC);
    put_u32(&mut b, 8, VERSION);
    put_u64(&mut b, 16, (HEAD + c.state.len()) as u64);
    put_u64(&mut b, 24, sequence);
    b[32..48].copy_from_slice(uuid);
    put_u64(&mut b, 48, c.redo_start.0);
    put_u64(&mut b, 56, u64::from(c.map.slot));
    put_u64(&mut b, 64, c.map.lsn.0);
    put_u64(&mut b, 72, c.map.sequence);
    put_u64(&mut b, 80, c.map.bytes);
    put_u32(&mut b, 88, c.map.crc);
    put_u32(&mut b, 92, low_half(c.state.len()));
    b.extend_from_slice(&c.state);
    assert_eq!(b.len(), HEAD + c.state.len(), "bytes behind the state");
    let crc = checksum(&b);
    put_u32(&mut b, 12, crc);
    debug_assert!(decode(&b, uuid).is_ok_and(|(read, n)| read == *c && n == sequence));
    b
}

/// What the field for the state's length has of it. The whole length follows from the file's: however much
/// undo there is to be named, a checkpoint can be written.
fn low_half(state_bytes: usize) -> u32 {
    (state_bytes as u64 & u64::from(u32::MAX)) as u32
}

fn checksum(b: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&b[..12]), &b[16..])
}

/// Takes a checkpoint file apart: the checkpoint and its sequence number.
pub(crate) fn decode(
    b: &[u8],
    uuid: &[u8; 16],
) -> std::result::Result<(Checkpoint, u64), &'static str> {
    let u64_at = |at| get_u64(b, at).unwrap_or(0);
    if b.len() < HEAD || u64_at(0) != MAGIC {
        return Err("not a checkpoint");
    }
    let b = match usize::try_from(u64_at(16)) {
        Ok(len) if len >= HEAD => b.get(..len).ok_or("cut short")?,
        _ => return Err("impossible length"),
    };
    if Some(checksum(b)) != get_u32(b, 12) {
        return Err("checksum differs");
    }
    if get_u32(b, 8) != Some(VERSION) {
        return Err("checkpoint of a later format");
    }
    if b[32..48] != *uuid {
        return Err("checkpoint of another database");
    }
    if get_u32(b, 92) != Some(low_half(b.len() - HEAD)) || u64_at(56) > 1 {
        return Err("impossible length or slot");
    }
    let map = MapBase {
        slot: u64_at(56) as u8,
        lsn: Lsn(u64_at(64)),
        sequence: u64_at(72),
        bytes: u64_at(80),
        crc: get_u32(b, 88).unwrap_or(0),
    };
    let checkpoint = Checkpoint {
        redo_start: Lsn(u64_at(48)),
        map,
        state: b[HEAD..].to_vec(),
    };
    Ok((checkpoint, u64_at(24)))
}

/// The same bytes with magic, version, identity and checksum made right (for fuzz targets).
pub(crate) fn resealed(bytes: &[u8], uuid: &[u8; 16]) -> Vec<u8> {
    let mut b = bytes.to_vec();
    if b.len() < HEAD {
        return b;
    }
    put_u64(&mut b, 0, MAGIC);
    put_u32(&mut b, 8, VERSION);
    b[32..48].copy_from_slice(uuid);
    let len = usize::try_from(get_u64(&b, 16).unwrap_or(0)).unwrap_or(0);
    if (HEAD..=b.len()).contains(&len) {
        let crc = checksum(&b[..len]);
        put_u32(&mut b, 12, crc);
    }
    b
}

/// Writes a checkpoint into that slot, durable with its name. `before`: bytes of what the slot
/// holds, if that is known.
pub(crate) fn write(
    storage: &dyn Storage,
    slot: u8,
    bytes: &[u8],
    before: Option<u64>,
) -> Result<()> {
    assert!(slot < 2, "checkpoint.{slot}");
    assert!(
        bytes.len() >= HEAD,
        "{} bytes are no checkpoint",
        bytes.len()
    );
    let name = name(slot);
    let file = match storage.open(&name, OpenMode::ReadWrite, false) {
        Err(Error::NotFound) => storage.open(&name, OpenMode::CreateNew, false)?,
        other => other?,
    };
    let bytes = AlignedBuf::copy_of(bytes);
    let used = bytes.len() as u64;
    reserve::cut_surplus(&*file, used, reserve::CHECKPOINT_MARGIN_BYTES)?;
    file.write_at(&bytes, 0)?;
    // It holds rows: what an earlier, longer one left behind the end would stay for ever.
    reserve::clear_rest(&*file, used, before.unwrap_or(u64::MAX))?;
    kill_point!("store.checkpoint_before_sync");
    if !ferrite_sync::mutant!("store.skip_checkpoint_sync") {
        file.sync_data()?;
    }
    storage.sync_dir()?;
    kill_point!("store.checkpoint_written");
    Ok(())
}

/// A checkpoint found on disk.
pub(crate) struct Found {
    pub(crate) checkpoint: Checkpoint,
    pub(crate) sequence: u64,
    pub(crate) slot: u8,
}

/// The valid checkpoints, the newest first.
///
/// # Errors
/// `Corrupt`, saying of each slot why it does not count, when none is valid.
pub(crate) fn valid(storage: &dyn Storage, uuid: &[u8; 16]) -> Result<Vec<Found>> {
    let mut found = Vec::new();
    let mut why = Vec::new();
    for slot in 0..2 {
        let bytes = match read(storage, &name(slot))? {
            Some(bytes) => bytes,
            None => {
                why.push(format!("{}: missing", name(slot)));
                continue;
            }
        };
        match decode(&bytes, uuid) {
            Ok((checkpoint, sequence)) => found.push(Found {
                checkpoint,
                sequence,
                slot,
            }),
            Err(what) => why.push(format!("{}: {what}", name(slot))),
        }
    }
    found.sort_by_key(|f| std::cmp::Reverse(f.sequence));
    if found.is_empty() {
        let why = why.join("; ");
        return Err(Error::Corrupt(format!("no valid checkpoint ({why})")));
    }
    Ok(found)
}

/// What is wrong with checkpoint files that are there, for tools.
pub(crate) fn damaged_slots(storage: &dyn Storage, uuid: &[u8; 16]) -> Vec<String> {
    let mut damage = Vec::new();
    for slot in 0..2 {
        let what = match read(storage, &name(slot)) {
            Ok(None) => None,
            Ok(Some(bytes)) => decode(&bytes, uuid).err().map(str::to_owned),
            Err(e) => Some(e.to_string()),
        };
        damage.extend(what.map(|what| format!("{}: {what}", name(slot))));
    }
    damage
}

/// As [`damaged_slots`], and those that are not there.
pub(crate) fn useless_slots(storage: &dyn Storage, uuid: &[u8; 16]) -> Vec<String> {
    let mut useless = damaged_slots(storage, uuid);
    for slot in 0..2 {
        if let Ok(false) = storage.exists(&name(slot)) {
            useless.push(format!("{} is missing", name(slot)));
        }
    }
    useless
}

/// Bytes of the checkpoint in that slot, without the space kept behind it.
///
/// # Errors
/// `Corrupt`: there is none.
pub(crate) fn used_bytes(storage: &dyn Storage, slot: u8) -> Result<u64> {
    let bytes = read(storage, &name(slot))?.unwrap_or_default();
    match get_u64(&bytes, 16) {
        Some(used) if used >= HEAD as u64 && used <= bytes.len() as u64 => Ok(used),
        _ => Err(Error::Corrupt(format!("{}: impossible length", name(slot)))),
    }
}

fn read(storage: &dyn Storage, name: &str) -> Result<Option<Vec<u8>>> {
    let file = match storage.open(name, OpenMode::ReadOnly, false) {
        Err(Error::NotFound) => return Ok(None),
        other => other?,
    };
    let mut bytes = vec![0; file.len()? as usize];
    file.read_at(&mut bytes, 0)?;
    Ok(Some(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ferrite_sync::random::Rng;

    fn sample() -> Checkpoint {
        Checkpoint {
            redo_start: Lsn(77),
            map: MapBase {
                slot: 1,
                lsn: Lsn(60),
                sequence: 5,
                bytes: 8192,
                crc: 0xfeed,
            },
            state: b"open transactions".to_vec(),
        }
    }

    #[test]
    fn round_trip_and_every_flipped_byte() {
        let uuid = [3; 16];
        let bytes = encode(&sample(), 9, &uuid);
        assert_eq!(decode(&bytes, &uuid), Ok((sample(), 9)));
        let mut padded = bytes.clone();
        padded.resize(4096, 0xee);
        assert_eq!(decode(&padded, &uuid), Ok((sample(), 9)));
        assert!(decode(&bytes, &[4; 16]).is_err());
        for i in 0..bytes.len() {
            let mut bad = bytes.clone();
            bad[i] ^= 0x10;
            assert!(decode(&bad, &uuid).is_err(), "byte {i}");
            assert!(decode(&bytes[..i], &uuid).is_err(), "cut at {i}");
        }
    }

    /// A state of 4 GiB and more is one that can be written: nobody may die of undo.
    #[test]
    fn the_length_of_a_long_state_wraps() {
        const LONG: u64 = (4 << 30) + 77;
        assert_eq!(low_half(LONG as usize), 77);
        assert_eq!(low_half(77), 77);
    }

    #[test]
    fn random_bytes_never_panic() {
        let mut rng = Rng::new(5);
        let uuid = [3; 16];
        for _ in 0..5000 {
            let mut b = vec![0; rng.below(300) as usize];
            rng.fill(&mut b);
            if b.len() >= HEAD {
                put_u64(&mut b, 0, MAGIC);
                let len = rng.below(b.len() as u64 + 3);
                put_u64(&mut b, 16, len);
                if (16..=b.len() as u64).contains(&len) {
                    let crc = checksum(&b[..len as usize]);
                    put_u32(&mut b, 12, crc);
                }
            }
            let _ = decode(&b, &uuid);
        }
    }
}
