//! Bodies of the log records of this module: map deltas and extents.
//!
//! MAP_DELTA: version (u8 = 1), count (u32), then count times page id (u32), location (u64;
//! 0 = the page is no more). EXTENT: version (u8 = 1), operation (u8), index id (u32),
//! extent (u32).
//!
//! Invariant: decoding checks everything before it hands out anything; bytes that this
//! version cannot have written are refused.

use ferrite_types::{Error, IndexId, PageId, Result};

use crate::directory::EXTENT_PAGES;
use crate::wire::{get_u32, get_u64};
use crate::word::Location;

const VERSION: u8 = 1;
const DELTA_HEAD: usize = 5;
const DELTA_ENTRY: usize = 12;
const EXTENT_BYTES: usize = 10;
const ASSIGN: u8 = 1;
const TAKE_BACK: u8 = 2;

pub(crate) fn encode_map_delta(moved: &[(PageId, Location)], out: &mut Vec<u8>) {
    // What decoding refuses is not written.
    debug_assert!(moved
        .iter()
        .all(|(page, at)| page.0 != 0 && Location::checked(at.raw()).is_some()));
    let end = out.len() + DELTA_HEAD + moved.len() * DELTA_ENTRY;
    out.reserve(end - out.len());
    out.push(VERSION);
    out.extend_from_slice(&(moved.len() as u32).to_le_bytes());
    for (page, at) in moved {
        out.extend_from_slice(&page.0.to_le_bytes());
        out.extend_from_slice(&at.raw().to_le_bytes());
    }
    assert!(
        out.len() == end,
        "{} entries end at {}",
        moved.len(),
        out.len()
    );
}

pub(crate) fn decode_map_delta(body: &[u8], each: &mut dyn FnMut(PageId, Location)) -> Result<()> {
    let bad = |what: &str| Error::Corrupt(format!("log: map delta record: {what}"));
    if body.first() != Some(&VERSION) {
        return Err(bad("unknown version"));
    }
    let count = get_u32(body, 1).ok_or_else(|| bad("too short"))? as usize;
    if (body.len() - DELTA_HEAD) as u64 != count as u64 * DELTA_ENTRY as u64 {
        return Err(bad("length and count differ"));
    }
    let entries = || body[DELTA_HEAD..].chunks_exact(DELTA_ENTRY).map(entry);
    if entries().any(|e| e.is_none()) {
        return Err(bad("not a page id and a location"));
    }
    entries().flatten().for_each(|(page, at)| each(page, at));
    Ok(())
}

fn entry(bytes: &[u8]) -> Option<(PageId, Location)> {
    let page = get_u32(bytes, 0).filter(|&p| p != 0)?;
    let at = Location::checked(get_u64(bytes, 4)?)?;
    Some((PageId(page), at))
}

/// What an EXTENT record says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ExtentChange {
    /// The extent's page ids belong to the index from here on.
    Assign {
        /// The new owner.
        index: IndexId,
        /// Number of the extent.
        extent: u32,
    },
    /// All extents of the index are nobody's.
    TakeBack {
        /// The former owner.
        index: IndexId,
    },
}

pub(crate) fn encode_extent(change: ExtentChange) -> [u8; EXTENT_BYTES] {
    let (op, index, extent) = match change {
        ExtentChange::Assign { index, extent } => (ASSIGN, index, extent),
        ExtentChange::TakeBack { index } => (TAKE_BACK, index, 0),
    };
    assert!(index.0 != 0, "index 0 owns no extent");
    assert!(extent <= u32::MAX / EXTENT_PAGES, "extent {extent}");
    let mut body = [0; EXTENT_BYTES];
    body[0] = VERSION;
    body[1] = op;
    body[2..6].copy_from_slice(&index.0.to_le_bytes());
    body[6..10].copy_from_slice(&extent.to_le_bytes());
    debug_assert_eq!(decode_extent(&body), Ok(change));
    body
}

pub(crate) fn decode_extent(body: &[u8]) -> Result<ExtentChange> {
    let bad = |what: &str| Error::Corrupt(format!("log: extent record: {what}"));
    if body.len() != EXTENT_BYTES || body[0] != VERSION {
        return Err(bad("unknown version or length"));
    }
    let index = IndexId(get_u32(body, 2).unwrap_or(0));
    let extent = get_u32(body, 6).unwrap_or(0);
    if index.0 == 0 {
        return Err(bad("no index"));
    }
    match body[1] {
        ASSIGN if extent <= u32::MAX / EXTENT_PAGES => Ok(ExtentChange::Assign { index, extent }),
        ASSIGN => Err(bad("extent beyond the last page id")),
        TAKE_BACK => Ok(ExtentChange::TakeBack { index }),
        op => Err(bad(&format!("unknown operation {op}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ferrite_sync::random::Rng;
    use ferrite_types::format::Codec;

    #[test]
    fn deltas_round_trip() {
        let moved = [
            (PageId(1), Location::new(9, 2, Codec::Lz4)),
            (PageId(u32::MAX), Location::NONE),
        ];
        for n in 0..=2 {
            let mut body = Vec::new();
            encode_map_delta(&moved[..n], &mut body);
            let mut back = Vec::new();
            decode_map_delta(&body, &mut |p, at| back.push((p, at))).unwrap();
            assert_eq!(back, moved[..n]);
            for cut in 0..body.len() {
                decode_map_delta(&body[..cut], &mut |_, _| panic!("half a record")).unwrap_err();
            }
        }
    }

    #[test]
    fn extents_round_trip() {
        let index = IndexId(7);
        for change in [
            ExtentChange::Assign { index, extent: 0 },
            ExtentChange::Assign {
                index,
                extent: u32::MAX / EXTENT_PAGES,
            },
            ExtentChange::TakeBack { index },
        ] {
            assert_eq!(decode_extent(&encode_extent(change)), Ok(change));
        }
        let mut beyond = encode_extent(ExtentChange::Assign { index, extent: 0 });
        beyond[6..10].copy_from_slice(&(u32::MAX / EXTENT_PAGES + 1).to_le_bytes());
        decode_extent(&beyond).unwrap_err();
        let mut nobody = encode_extent(ExtentChange::TakeBack { index });
        nobody[2..6].fill(0);
        decode_extent(&nobody).unwrap_err();
    }

    #[test]
    fn random_bytes_never_panic() {
        let mut rng = Rng::new(11);
        for _ in 0..50_000 {
            let mut body = vec![0; rng.below(64) as usize];
            rng.fill(&mut body);
            if let Some(b) = body.first_mut() {
                *b = rng.below(3) as u8;
            }
            if body.len() > 5 && rng.chance(1, 2) {
                let n = (body.len() - 5) as u32 / 12;
                body[1..5].copy_from_slice(&n.to_le_bytes());
            }
            let _ = decode_map_delta(&body, &mut |p, _| assert_ne!(p.0, 0));
            let _ = decode_extent(&body);
        }
    }
}
