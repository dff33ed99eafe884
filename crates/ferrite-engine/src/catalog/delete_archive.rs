//! The delete_archive of an index: delete-marked entries that only old snapshots still need, out of
//! the way of everybody else. In memory only: snapshots die with the process.
//!
//! An entry moves here under its leaf's exclusive latch, first in here, then out of the leaf.
//! A reader who looks at a leaf and, still under the leaf's latch, at the keys of that leaf
//! in here therefore misses nothing and sees nothing twice: of a key's states in tree and
//! delete_archive at most one is visible to a snapshot. (What the reader's own transaction has made
//! is no part of its snapshot; where the leaf has it, the reader leaves the archived entry alone.)
//!
//! A snapshot opened after the last burial sees every delete in here and need not look.
//!
//! Locking: one mutex per delete_archive, taken under a leaf's latch, over a walk of versions. It
//! takes the place of the leaf's latch for the chains of what lies here. No latch is taken and no
//! page is read under it: who archives waits for it with an exclusive latch.

use ferrite_sync::atomic::{AtomicBool, AtomicU64, Ordering};
use ferrite_sync::{Arc, Mutex};
use ferrite_tree::record::{Header, Record};
use ferrite_txn::TxnSystem;
use ferrite_types::{Csn, TxnId};
use std::collections::BTreeMap;
use std::ops::Bound;

/// Accounted per archived entry besides key and value: tree node (half full, for keys mostly come in
/// order), header, and what the allocator adds to three pieces (bytes).
const ENTRY_BYTES: usize = 160;

/// Keys looked at under one hold of the mutex.
const SWEEP_BATCH: usize = 128;

/// One delete-marked entry.
struct Archived {
    /// Who deleted it, and the chain of its earlier states.
    header: Header,
    value: Box<[u8]>,
}

impl Archived {
    fn record(&self) -> Record<'_> {
        Record {
            header: self.header,
            suffix: &[],
            value: &self.value,
        }
    }
}

/// Does any snapshot need an earlier state of the entry with this header and value? Prunes the chain.
pub(crate) type Needed<'n> = dyn Fn(&mut Header, &[u8]) -> bool + 'n;

type ArchivedEntries = BTreeMap<Box<[u8]>, Vec<Archived>>;

/// What all delete archives of an engine hold, those of tables that are dropped and still in use included. Read without
/// any lock: by who shows it, and by who limits it.
#[derive(Default)]
pub(crate) struct ArchivedTotal {
    count: AtomicU64,
    bytes: AtomicU64,
}

impl ArchivedTotal {
    /// Entries, and their bytes.
    pub(crate) fn get(&self) -> (u64, u64) {
        let count = self.count.load(Ordering::Relaxed);
        (count, self.bytes.load(Ordering::Relaxed))
    }

    fn add(&self, count: u64, bytes: u64) {
        debug_assert!(bytes >= count, "{count} entries of {bytes} bytes");
        self.count.fetch_add(count, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    fn remove(&self, count: u64, bytes: u64) {
        let all = self.count.fetch_sub(count, Ordering::Relaxed);
        let all_bytes = self.bytes.fetch_sub(bytes, Ordering::Relaxed);
        assert!(
            all >= count && all_bytes >= bytes,
            "{count} entries of {bytes} bytes go of {all} of {all_bytes}"
        );
    }
}

/// See the head of the file.
pub(crate) struct DeleteArchive {
    archived: Mutex<ArchivedEntries>,
    count: AtomicU64,
    bytes: AtomicU64,
    /// Snapshots that see this commit number and more need not look.
    newest: AtomicU64,
    /// Where its entries are counted, too.
    total: Arc<ArchivedTotal>,
}

fn bytes_of(key: &[u8], value: &[u8]) -> u64 {
    (key.len() + value.len() + ENTRY_BYTES) as u64
}

impl DeleteArchive {
    /// An empty one.
    pub(crate) fn new(total: Arc<ArchivedTotal>) -> DeleteArchive {
        DeleteArchive {
            archived: Mutex::default(),
            count: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            newest: AtomicU64::new(0),
            total,
        }
    }

    /// May a snapshot of this commit number find anything?
    #[inline]
    pub(crate) fn concerns(&self, csn: Csn) -> bool {
        self.count.load(Ordering::Acquire) > 0 && csn.0 < self.newest.load(Ordering::Acquire)
    }

    /// Entries here.
    pub(crate) fn count(&self) -> u64 {
        self.count.load(Ordering::Relaxed)
    }

    /// Memory in use, about.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Takes an entry in. `newest`: the last commit number given out. The caller holds the
    /// leaf exclusively and removes the entry from it before letting go.
    pub(crate) fn archive(&self, key: &[u8], header: Header, value: &[u8], newest: Csn) {
        assert!(
            header.deleted && !header.txn.is_frozen() && !header.version.is_none(),
            "{header:?} is archived: no snapshot needs it"
        );
        let entry = Archived {
            header,
            value: value.into(),
        };
        let mut archived = self.archived.lock();
        // Nearly all keys have one state; an empty list would make room for four.
        let states = archived
            .entry(key.into())
            .or_insert_with(|| Vec::with_capacity(1));
        debug_assert!(states
            .iter()
            .all(|other| other.header.version != header.version));
        states.push(entry);
        self.newest.fetch_max(newest.0, Ordering::AcqRel);
        let bytes = bytes_of(key, value);
        self.total.add(1, bytes);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.count.fetch_add(1, Ordering::AcqRel);
    }

    /// Shows `f` the archived entries with keys between the bounds, ascending or descending, of so many
    /// keys at most, until it says false. All that a key has is shown, unless `f` ends it. The
    /// caller holds the leaf of those keys. Returns the last key shown if there may be more.
    pub(crate) fn visit(
        &self,
        (from, to): (Bound<&[u8]>, Bound<&[u8]>),
        ascending: bool,
        most_keys: usize,
        f: &mut dyn FnMut(&[u8], &Record<'_>) -> bool,
    ) -> Option<Vec<u8>> {
        if crossed(from, to) {
            return None;
        }
        debug_assert!(most_keys > 0, "all keys under one hold of the mutex");
        let archived = self.archived.lock();
        let mut range = archived.range::<[u8], _>((from, to));
        for seen in 1.. {
            let next = if ascending {
                range.next()
            } else {
                range.next_back()
            };
            let (key, states) = next?;
            let go_on = states.iter().all(|archived| f(key, &archived.record()));
            if !go_on || seen == most_keys {
                return Some(key.to_vec());
            }
        }
        None
    }

    /// Calls `f` for each archived entry: the oldest snapshot that needs it, and its bytes. Readers and
    /// buriers get in between every [`SWEEP_BATCH`] keys.
    pub(crate) fn each_held(&self, txns: &TxnSystem, f: &mut dyn FnMut(Csn, u64)) {
        let mut from: Option<Box<[u8]>> = None;
        while self.count() > 0 {
            let archived = self.archived.lock();
            let start = from.take().map_or(Bound::Unbounded, Bound::Excluded);
            for (key, states) in archived.range((start, Bound::Unbounded)).take(SWEEP_BATCH) {
                for archived in states {
                    let end = archived.header.txn;
                    if let Some(csn) = txns.oldest_needing(TxnId::FROZEN, end) {
                        f(csn, bytes_of(key, &archived.value));
                    }
                }
                from = Some(key.clone());
            }
            if from.is_none() {
                return;
            }
        }
    }

    /// Lets go of what no snapshot needs any more; how many entries went. `needed` prunes the chain
    /// of an entry's earlier states and tells whether any is left. Readers and buriers get in
    /// between every [`SWEEP_BATCH`] keys. A shutdown (`stop`) ends it there.
    pub(crate) fn sweep(&self, stop: &AtomicBool, needed: &Needed<'_>) -> u64 {
        let mut gone = 0;
        let mut from: Option<Box<[u8]>> = None;
        while self.count() > 0 && !stop.load(Ordering::Relaxed) {
            let mut archived = self.archived.lock();
            let start = from.take().map_or(Bound::Unbounded, Bound::Excluded);
            let mut empty: Vec<Box<[u8]>> = Vec::new();
            let range = archived.range_mut((start, Bound::Unbounded));
            for (key, states) in range.take(SWEEP_BATCH) {
                gone += self.sweep_states(needed, key, states);
                if states.is_empty() {
                    empty.push(key.clone());
                }
                from = Some(key.clone());
            }
            for key in &empty {
                let states = archived.remove(key);
                debug_assert!(states.is_some_and(|s| s.is_empty()), "states are lost");
            }
            if from.is_none() {
                break;
            }
        }
        gone
    }

    fn sweep_states(&self, needed: &Needed<'_>, key: &[u8], states: &mut Vec<Archived>) -> u64 {
        let before = states.len();
        states.retain_mut(|archived| {
            let stays = needed(&mut archived.header, &archived.value)
                && !ferrite_sync::mutant!("graveyard.sweep_needed");
            if !stays {
                let bytes = bytes_of(key, &archived.value);
                let before = self.bytes.fetch_sub(bytes, Ordering::Relaxed);
                assert!(before >= bytes, "{bytes} bytes go of {before}");
                self.total.remove(1, bytes);
            }
            stays
        });
        let gone = (before - states.len()) as u64;
        let count = self.count.fetch_sub(gone, Ordering::AcqRel);
        assert!(count >= gone, "{gone} archived entries go of {count}");
        gone
    }
}

impl Drop for DeleteArchive {
    fn drop(&mut self) {
        self.total.remove(self.count(), self.bytes());
    }
}

/// `BTreeMap::range` panics when the bounds are the wrong way round.
fn crossed(from: Bound<&[u8]>, to: Bound<&[u8]>) -> bool {
    match (from, to) {
        (Bound::Unbounded, _) | (_, Bound::Unbounded) => false,
        (Bound::Included(a), Bound::Included(b)) => a > b,
        (Bound::Included(a) | Bound::Excluded(a), Bound::Included(b) | Bound::Excluded(b)) => {
            a >= b
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{create, open};
    use ferrite_io::sim::SimStorage;
    use ferrite_types::VersionAddr;

    /// What a shutdown would throw away in a moment is not looked through before.
    #[test]
    fn a_shutdown_does_not_wait_for_a_sweep() {
        let engine = open(&SimStorage::new(12));
        let t = create(&engine);
        for n in 0..1000u32 {
            // Its chain has gone: nobody needs it.
            let header = Header {
                deleted: true,
                txn: TxnId(1),
                version: VersionAddr(1000 << 15),
            };
            t.archive(0).archive(&n.to_be_bytes(), header, b"v", Csn(1));
        }
        engine.stop.store(true, Ordering::SeqCst);
        let left = t.archive(0).count();
        assert!(left > 0);
        assert_eq!(engine.sweep_archives(), 0);
        engine.stop.store(false, Ordering::SeqCst);
        assert!(engine.sweep_archives() <= left);
        assert_eq!(t.archive(0).count(), 0);
        engine.close().unwrap();
    }
}
