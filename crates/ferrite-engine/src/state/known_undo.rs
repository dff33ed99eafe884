//! What an undo list says of entries, looked up by key: the states before a transaction without an end, for
//! those who read beside its rollback or without one.
//!
//! Rollback takes a list from its end and looks at all of it; a reader wants what it says of one key. A place
//! in `by_key` is where a change of the key ends in the list, so that the changes of one key stand in the
//! order in which they were made. Two keys of one hash are told apart by the entries themselves.
//!
//! Invariant: nothing in it changes once it is read. Positions are those of the list it was read from.
//!
//! Locking: none.

use crate::log_records::undo::{self, Undo};
use crate::state::undo_area::UndoArea;
use crate::state::undo_list::{entry_before, Backwards};
use ferrite_tree::record::Record;
use ferrite_types::{Error, IndexId, Result, UndoPosition};
use std::borrow::Cow;
use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hasher};

/// What an entry is without the changes of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Settled {
    /// As it is in the page.
    Same,
    /// It was not there.
    Gone,
    /// It was there with another value, and this delete mark.
    Other(bool, Vec<u8>),
}

/// Where a change of a key ends in the list.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    hash: u64,
    end: UndoPosition,
}

/// See the head of the file.
#[derive(Default)]
pub(crate) struct KnownUndo {
    /// Where `bytes` begin in the list.
    from: UndoPosition,
    bytes: Vec<u8>,
    by_key: Vec<Place>,
    indexes: BTreeSet<IndexId>,
}

impl KnownUndo {
    /// Reads a list, and says what kept it from being read to its beginning: then older changes are not
    /// known.
    pub(crate) fn read(list: Backwards, area: &UndoArea) -> (KnownUndo, Option<Error>) {
        let (from, bytes, mut fault) = list.all(area);
        let by_key = Vec::with_capacity(count_entries(&bytes));
        let mut known = KnownUndo {
            from,
            bytes,
            by_key,
            ..KnownUndo::default()
        };
        let mut at = known.bytes.len();
        while let Some((start, entry)) = entry_before(&known.bytes, at) {
            match undo::decode(entry) {
                Ok(undo) => {
                    let end = UndoPosition(from.0 + at as u64);
                    let key = key_of(&undo);
                    known.indexes.extend(key.map(|(index, _)| index));
                    let hash = key.map(|(index, key)| hash_of(index, key));
                    known.by_key.extend(hash.map(|hash| Place { hash, end }));
                }
                Err(e) => fault = fault.or(Some(e)),
            }
            at = start;
        }
        if at > 0 && fault.is_none() {
            fault = Some(Error::Corrupt(format!("{at} bytes of undo are no entries")));
        }
        debug_assert!(
            fault.is_some() || from == UndoPosition::START,
            "a part of the undo"
        );
        known.by_key.sort_unstable();
        (known, fault)
    }

    /// Has the transaction changed something in that index?
    pub(crate) fn concerns(&self, index: IndexId) -> bool {
        self.indexes.contains(&index)
    }

    /// Memory that it takes, in bytes.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.bytes.capacity() + self.by_key.capacity() * size_of::<Place>()
    }

    /// What the entry, `rec` on its page, is without those changes of it that end at `left` or before; those
    /// behind are undone on the page. The oldest is not, or the entry would not bear the transaction's id, so
    /// `left` is asked for only if there are several.
    ///
    /// # Errors
    /// `Corrupt`: they do not fit the entry.
    pub(crate) fn before(
        &self,
        left: &dyn Fn() -> UndoPosition,
        (index, key): (IndexId, &[u8]),
        rec: &Record<'_>,
    ) -> Result<Settled> {
        debug_assert!(index.0 != 0, "an entry of no index");
        let mut value = Cow::Borrowed(rec.value);
        let (mut deleted, mut is_known) = (rec.header.deleted, false);
        let places = self.places(hash_of(index, key));
        let left = match places.len() {
            0 | 1 => UndoPosition::END,
            _ => left(),
        };
        for place in places.iter().rev() {
            if place.end > left {
                continue;
            }
            let undo = undo::decode(self.entry(place.end)?)?;
            if key_of(&undo) != Some((index, key)) {
                continue;
            }
            if is_known && ferrite_sync::mutant!("undo.known_newest_only") {
                break;
            }
            is_known = true;
            match undo {
                Undo::Insert { .. } | Undo::Put { .. } => return Ok(Settled::Gone),
                Undo::Mark { .. } => deleted = false,
                Undo::Update { prior, .. } => {
                    let mut before = Vec::new();
                    prior.value(&value, &mut before)?;
                    value = Cow::Owned(before);
                    deleted = prior.deleted;
                }
                Undo::Overflow { .. } => {}
            }
        }
        Ok(match is_known {
            true => Settled::Other(deleted, value.into_owned()),
            false => Settled::Same,
        })
    }

    /// The changes of all keys of that hash, the oldest first.
    fn places(&self, hash: u64) -> &[Place] {
        debug_assert!(
            self.by_key.first() <= self.by_key.last(),
            "places are looked up"
        );
        let from = self.by_key.partition_point(|p| p.hash < hash);
        let rest = &self.by_key[from..];
        &rest[..rest.partition_point(|p| p.hash == hash)]
    }

    fn entry(&self, end: UndoPosition) -> Result<&[u8]> {
        assert!(end > self.from, "{end} is before {}", self.from);
        let found = entry_before(&self.bytes, (end.0 - self.from.0) as usize);
        let lost = || Error::Corrupt(format!("no undo ends at position {end}"));
        found.map(|(_, entry)| entry).ok_or_else(lost)
    }
}

/// Entries of a list whose bytes these are.
fn count_entries(bytes: &[u8]) -> usize {
    let (mut at, mut count) = (bytes.len(), 0);
    while let Some((start, _)) = entry_before(bytes, at) {
        debug_assert!(start < at, "an entry of no length ends at {at}");
        (at, count) = (start, count + 1);
    }
    count
}

/// Of a change of an entry.
pub(crate) fn key_of<'a>(undo: &Undo<'a>) -> Option<(IndexId, &'a [u8])> {
    match *undo {
        Undo::Insert { index, key }
        | Undo::Update { index, key, .. }
        | Undo::Put { index, key }
        | Undo::Mark { index, key } => Some((index, key)),
        Undo::Overflow { .. } => None,
    }
}

pub(crate) fn hash_of(index: IndexId, key: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write_u32(index.0);
    hasher.write(key);
    hasher.finish()
}
