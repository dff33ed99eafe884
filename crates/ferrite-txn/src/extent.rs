//! What memory knows of an extent: where its records are and which of them are dead.
//!
//! Two kinds. A *whole* extent is a young segment as it was: a record is where its address
//! says, and the map of dead records is made only when the first one dies, so that such a
//! segment costs a few hundred bytes of memory. A *compact* extent has only what survived,
//! in the order of addresses, and a list of where each is: six bytes for each.
//!
//! Invariants: the bytes on disk never change; `live` is the number of records that are not
//! dead here. Who was dead when a segment was written is dead here.
//!
//! Locking: none of its own; the old generation's shard guards it.

use crate::scratch::Place;
use crate::version::{room_of, state_of, SEGMENT_BYTES, UNIT, VERSION_HEADER_BYTES};

const DEAD_WORDS: usize = SEGMENT_BYTES / UNIT / 64;
const _: () = assert!(
    DEAD_WORDS * 64 * UNIT == SEGMENT_BYTES,
    "a bit for each unit"
);
/// In a compact extent: this record is dead.
const NOWHERE: u32 = u32::MAX;

#[derive(Clone)]
enum Index {
    Whole { dead: Option<Box<[u64]>> },
    Compact { units: Box<[u16]>, at: Box<[u32]> },
}

/// See the head of the file.
#[derive(Clone)]
pub(crate) struct Extent {
    pub place: Place,
    index: Index,
    pub live: u32,
    written: u32,
}

/// A record in a scratch file.
pub(crate) struct Spot {
    pub place: Place,
    pub at: usize,
}

/// Where the records of a segment copied as it was are, dead or alive; after the last come
/// zeros or nothing.
fn records_of(bytes: &[u8]) -> impl Iterator<Item = usize> + '_ {
    let mut next = 0;
    core::iter::from_fn(move || {
        let at = next;
        let rec = bytes
            .get(at..)
            .filter(|r| r.len() >= VERSION_HEADER_BYTES)?;
        next += room_of(rec);
        (next > at).then_some(at)
    })
}

impl Extent {
    /// A segment copied as it was.
    pub fn whole(place: Place, bytes: &[u8]) -> Extent {
        assert!(
            bytes.len() <= SEGMENT_BYTES,
            "{} bytes of a segment",
            bytes.len()
        );
        let mut extent = Extent {
            place,
            index: Index::Whole { dead: None },
            live: 0,
            written: 0,
        };
        for at in records_of(bytes) {
            extent.live += 1;
            extent.written += 1;
            if state_of(&bytes[at..]) != 0 {
                extent.kill((at / UNIT) as u16);
            }
        }
        debug_assert!(extent.live <= extent.written);
        extent
    }

    /// Records in the order of their units, and where each is.
    pub fn compact(place: Place, (units, at): (Vec<u16>, Vec<u32>)) -> Extent {
        let live = units.len() as u32;
        assert_eq!(units.len(), at.len(), "units and places");
        debug_assert!(
            units.is_sorted_by(|a, b| a < b) && at.is_sorted_by(|a, b| a < b),
            "a compact extent out of order"
        );
        Extent {
            place,
            index: Index::Compact {
                units: units.into(),
                at: at.into(),
            },
            live,
            written: live,
        }
    }

    fn find(&self, unit: u16) -> Option<usize> {
        match &self.index {
            Index::Whole { dead } => {
                let (word, bit) = (usize::from(unit) / 64, unit % 64);
                let is_dead = dead.as_ref().is_some_and(|d| d[word] >> bit & 1 != 0);
                (!is_dead).then_some(usize::from(unit) * UNIT)
            }
            Index::Compact { units, at } => {
                let at = at[units.binary_search(&unit).ok()?];
                (at != NOWHERE).then_some(at as usize)
            }
        }
    }

    /// Where the record is, if it is alive.
    pub fn spot(&self, unit: u16) -> Option<Spot> {
        let at = self.find(unit)?;
        let place = self.place.clone();
        Some(Spot { place, at })
    }

    /// The record is dead from now on; false if it was not alive.
    pub fn kill(&mut self, unit: u16) -> bool {
        if self.find(unit).is_none() {
            return false;
        }
        assert!(self.live > 0, "more records die than there were");
        self.live -= 1;
        match &mut self.index {
            Index::Whole { dead } => {
                let dead = dead.get_or_insert_with(|| vec![0; DEAD_WORDS].into());
                dead[usize::from(unit) / 64] |= 1 << (unit % 64);
            }
            Index::Compact { units, at } => {
                if let Ok(found) = units.binary_search(&unit) {
                    at[found] = NOWHERE;
                }
            }
        }
        debug_assert!(self.find(unit).is_none(), "unit {unit} is still alive");
        true
    }

    /// The live records in `bytes`, the extent's own, by unit.
    pub fn records<'b>(&self, bytes: &'b [u8]) -> Vec<(u16, &'b [u8])> {
        let mut found = Vec::with_capacity(self.live as usize);
        let mut take = |unit: u16, at: usize| {
            found.push((unit, &bytes[at..at + room_of(&bytes[at..])]));
        };
        match &self.index {
            Index::Whole { .. } => {
                for at in records_of(bytes) {
                    let unit = (at / UNIT) as u16;
                    if self.find(unit).is_some() {
                        take(unit, at);
                    }
                }
            }
            Index::Compact { units, at } => {
                for (unit, at) in units.iter().zip(at.iter()) {
                    if *at != NOWHERE {
                        take(*unit, *at as usize);
                    }
                }
            }
        }
        debug_assert_eq!(found.len(), self.live as usize, "records alive");
        found
    }

    /// Less than half of it is alive: worth writing again. Under random updates files then hold
    /// 1.4 times what is alive (ln 2 / (1 - 1/2)); a quarter would make it 1.9.
    pub fn is_sparse(&self) -> bool {
        self.live * 2 < self.written
    }

    /// Memory taken by what is known of it.
    pub fn memory(&self) -> usize {
        let index = match &self.index {
            Index::Whole { dead } => dead.as_ref().map_or(0, |d| d.len() * 8),
            Index::Compact { units, .. } => units.len() * 6,
        };
        index + self.place.memory()
    }
}
