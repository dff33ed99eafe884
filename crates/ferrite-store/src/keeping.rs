//! What snapshots ask of the store: their blobs are held (`held.rs`) until nobody holds them.
//!
//! Invariant: what is held and in no page's place is kept, from before anything is written on.
//!
//! What is on disk if we die: nothing of this but the note in the superblock.
//!
//! Locking: the space lock; the checkpoint state over the writing of the superblock.

use ferrite_types::format::FEATURE_SNAPSHOTS;
use ferrite_types::{Error, Result};

use crate::deps::kill_point;
use crate::held::{runs_of_word, GranuleRuns, StillHeld};
use crate::runs::FreeRuns;
use crate::store::Store;
use crate::superblock::Superblock;
use crate::word::GRANULE_BYTES;

impl Store {
    /// A snapshot holds these blobs: before free space is known, or while they are pinned.
    ///
    /// # Errors
    /// `Corrupt`: some lie beyond the files.
    pub fn hold(&self, runs: &GranuleRuns) -> Result<()> {
        let mut space = self.runs.lock();
        let (end, total) = (runs.end(), space.total());
        if end > total {
            let text = format!("granules up to {end} are held, and the files end at {total}");
            return Err(Error::Corrupt(text));
        }
        space.held.add(runs);
        Ok(())
    }

    /// At a start: what is held and in no page's place is kept. Caller has the space lock.
    pub(crate) fn keep_what_is_held(&self, runs: &mut FreeRuns) {
        for word in 0..runs.held.held.len() {
            let unnamed = runs.held.held[word] & !runs.used_word(word);
            for (bit, n) in runs_of_word(unnamed) {
                let marked = runs.mark(word as u64 * 64 + u64::from(bit), n);
                assert!(marked, "{n} granules in word {word} are free and in use");
            }
            runs.held.kept[word] |= unnamed;
            runs.held.kept_granules += u64::from(unnamed.count_ones());
        }
        debug_assert!(runs.held.is_sound(), "after a start");
    }

    /// From now on only these snapshots hold blobs; what was kept for others alone is free. Their
    /// end is durable.
    pub fn hold_only(&self, wanted: &StillHeld) {
        kill_point!("store.held_counted");
        let mut space = self.runs.lock();
        for word in 0..space.held.held.len() {
            let still = wanted.word(word);
            assert!(
                still & !space.held.held[word] == 0,
                "word {word} was not held"
            );
            let gone = space.held.kept[word] & !still;
            space.held.held[word] = still;
            space.held.kept[word] &= still;
            space.held.kept_granules -= u64::from(gone.count_ones());
            for (bit, n) in runs_of_word(gone) {
                space.give_back(word as u64 * 64 + u64::from(bit), n, true);
            }
        }
        debug_assert!(space.held.is_sound(), "after less is held");
    }

    /// May the place that a page leaves stay in use: for a snapshot, or for who has a pin?
    pub fn keeps_places(&self) -> bool {
        self.retired.has_pin() || self.runs.lock().held.held.iter().any(|word| *word != 0)
    }

    /// Bytes that would be free without snapshots.
    pub fn kept_bytes(&self) -> u64 {
        self.runs.lock().held.kept_granules * GRANULE_BYTES as u64
    }

    /// Of these, bytes that the snapshot with those runs holds, alone or with others.
    pub fn kept_bytes_of(&self, runs: &GranuleRuns) -> u64 {
        let space = self.runs.lock();
        let mut granules = 0;
        runs.each_word(|word, mask| {
            let kept = space.held.kept.get(word).copied().unwrap_or(0);
            granules += u64::from((kept & mask).count_ones());
        });
        granules * GRANULE_BYTES as u64
    }

    /// Notes in the superblock whether there are snapshots, durable: programs that do not know of
    /// them must not open the database.
    ///
    /// # Errors
    /// `DiskFull`, `Io`, `Corrupt`: what was noted before still is.
    pub fn note_snapshots(&self, there: bool) -> Result<()> {
        self.note_feature(FEATURE_SNAPSHOTS, there)
    }

    /// As [`Store::note_snapshots`], of any incompatible feature.
    pub(crate) fn note_feature(&self, feature: u64, there: bool) -> Result<()> {
        assert!(feature.is_power_of_two(), "features {feature:#x} at once");
        let slots = self.slots.lock();
        let storage = &*slots.storage;
        let superblock = Superblock::read(storage)?;
        assert!(superblock.uuid == self.superblock.uuid, "another database");
        let features = match there {
            true => superblock.features | feature,
            false => superblock.features & !feature,
        };
        if features == superblock.features {
            return Ok(());
        }
        Superblock {
            features,
            ..superblock
        }
        .write(storage)
    }
}
