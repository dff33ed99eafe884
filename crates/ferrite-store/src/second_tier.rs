//! The store's second tier: begun and ended, and its thread. What it does is in `tier`.
//!
//! Invariant: it is there before a page is read or written, or not at all.
//! Locking: `slots`, not over I/O.

use ferrite_types::Result;

use crate::store::Store;
use crate::tier::{Tell, Tier, TierConfig, TierStats};

impl Store {
    /// From here on pages are read from a second tier where it has them. Before anything is read or written, and
    /// once.
    ///
    /// # Errors
    /// `BadConfig`: its size, or the file is something else. `InUse`, `DiskFull`, `Io`. The store goes on
    /// without.
    pub fn use_second_tier(&self, config: &TierConfig) -> Result<()> {
        assert!(self.tier.get().is_none(), "a second tier is there");
        let state = self.slots.lock().state();
        let database = (self.superblock.uuid, self.superblock.tag());
        let tier = Tier::open(config, database, state)?;
        let is_first = self.tier.set(Box::new(tier)).is_ok();
        assert!(is_first, "a second tier is there");
        Ok(())
    }

    /// Who is told that it was switched off, and why.
    pub fn tell_of_second_tier(&self, tell: Tell) {
        if let Some(tier) = self.tier.get() {
            tier.tell(tell);
        }
    }

    /// Body of the thread that writes it, until [`Store::end_second_tier`].
    pub fn run_second_tier(&self) {
        let Some(tier) = self.tier.get() else { return };
        while tier.wait_for_work() {
            self.write_second_tier();
        }
    }

    /// One round of that thread.
    pub fn write_second_tier(&self) {
        if let Some(tier) = self.tier.get() {
            while tier.write_full() {}
        }
    }

    /// Its thread ends.
    pub fn end_second_tier(&self) {
        if let Some(tier) = self.tier.get() {
            tier.end();
        }
    }

    /// What is in it is saved for the next start. After the last checkpoint; its thread has ended.
    ///
    /// # Errors
    /// `DiskFull`, `Io`: the next start begins with an empty one.
    pub fn close_second_tier(&self) -> Result<()> {
        let state = self.slots.lock().state();
        match self.tier.get() {
            Some(tier) => tier.close(state),
            None => Ok(()),
        }
    }

    /// Is there one, though it may be switched off?
    pub fn has_second_tier(&self) -> bool {
        self.tier.get().is_some()
    }

    /// Figures of the second tier; None: there is none.
    pub fn second_tier_stats(&self) -> Option<TierStats> {
        self.tier.get().map(|tier| tier.stats())
    }
}
