//! Which of the two slots of map and checkpoint count, and what was passed over at the start.
//!
//! Invariant: `map_slot` is the slot that the newest checkpoint names; a dump goes to the other one.
//! Locking: the store's mutex `slots` (`lifecycle.rs`).

use ferrite_types::Lsn;

use crate::checkpoint::{self, Checkpoint};
use crate::deps::{Arc, Storage};
use crate::{map, reserve};

/// Tells the state of a store that a checkpoint has written from all others.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct StateId {
    /// Of the checkpoint.
    pub(crate) sequence: u64,
    pub(crate) redo_start: Lsn,
    pub(crate) map_lsn: Lsn,
    pub(crate) map_crc: u32,
}

/// Which slots of map and checkpoint count now.
pub(crate) struct Slots {
    pub(crate) storage: Arc<dyn Storage>,
    /// Of the newest checkpoint.
    pub(crate) sequence: u64,
    pub(crate) slot: u8,
    /// Of the map that the newest checkpoint names, and that dump's number.
    pub(crate) map_slot: u8,
    pub(crate) map_named: u64,
    /// Where the log is needed from for it, and for its map.
    pub(crate) redo_start: Lsn,
    pub(crate) map_lsn: Lsn,
    pub(crate) map_crc: u32,
    /// Of the newest map dump.
    pub(crate) map_sequence: u64,
    /// Bytes of the newest map dump, and of the checkpoint in each slot where that is known.
    pub(crate) map_bytes: u64,
    pub(crate) checkpoint_bytes: [Option<u64>; 2],
}

impl Slots {
    /// That of the newest checkpoint.
    pub(crate) fn state(&self) -> StateId {
        StateId {
            sequence: self.sequence,
            redo_start: self.redo_start,
            map_lsn: self.map_lsn,
            map_crc: self.map_crc,
        }
    }

    /// Space for the checkpoints to come.
    pub(crate) fn keep_space(&self) {
        let most = self.checkpoint_bytes.iter().flatten().max();
        let most = most.copied().unwrap_or(0);
        for slot in 0..2 {
            let name = checkpoint::name(slot);
            reserve::keep(
                &*self.storage,
                &name,
                most,
                reserve::CHECKPOINT_MARGIN_BYTES,
            );
            let name = map::name(slot);
            reserve::keep(
                &*self.storage,
                &name,
                self.map_bytes,
                reserve::MAP_MARGIN_BYTES,
            );
        }
    }
}

/// A checkpoint that is whole but names a map that is not.
#[derive(Clone, Debug)]
pub struct PassedOver {
    /// It, newer than the one that the store was opened from.
    pub checkpoint: Checkpoint,
    /// The files' names, and what is wrong.
    pub why: String,
}
