//! How many index ids are left. None is given out twice (`catalog/dictionary.rs`), and without one no table can be
//! made, emptied or rebuilt: whoever runs the server is told in time.
//!
//! Locking: the dictionary's state for a moment, if nobody else has it: the checkpointer must not wait for a change
//! of the dictionary, which may wait for room that the checkpointer makes.

use crate::catalog::dictionary::INDEX_IDS_END;
use crate::state::callbacks::LogLevel;
use crate::state::engine::Engine;

/// The first warning comes when so many have been given out.
const WARN_FROM: u32 = INDEX_IDS_END / 4 * 3;
/// Ids from one warning to the next.
const STEP: u32 = INDEX_IDS_END / 32;
const _: () = assert!(STEP > 0 && WARN_FROM < INDEX_IDS_END - STEP);

/// What the server's log was told of them since the start.
pub(crate) struct IndexIds {
    /// The next id at which there is something to be said; None: all has been.
    warn_at: Option<u32>,
}

impl Default for IndexIds {
    fn default() -> IndexIds {
        IndexIds {
            warn_at: Some(WARN_FROM),
        }
    }
}

impl IndexIds {
    /// What is to be said when `next` is the next id.
    fn word(&mut self, next: u32) -> Option<String> {
        assert!(next > 0, "the counter of index ids is not set");
        if self.warn_at.is_none_or(|at| next < at) {
            return None;
        }
        let left = INDEX_IDS_END - next;
        self.warn_at = (left > 0).then(|| next + STEP.min(left));
        debug_assert!(self.warn_at.is_none_or(|at| at > next), "said twice");
        Some(format!(
            "{left} of 2^32 index ids are left. CREATE TABLE (of temporary tables, too), TRUNCATE TABLE, OPTIMIZE \
             TABLE, CREATE INDEX and ALTER TABLE take one for each index that they make, and none is used again. \
             When all are used up, these statements fail: before that, dump the tables and load them into a new \
             database"
        ))
    }
}

impl Engine {
    /// Tells the server's log when few are left.
    pub(crate) fn tell_of_index_ids(&self, told: &mut IndexIds) {
        let next = self.dict.next_ids_now().map(|next| next.index);
        if let Some(text) = next.and_then(|next| told.word(next)) {
            self.callbacks.log(LogLevel::Warning, &text);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_quarter_is_told_of_in_steps_and_the_end_once() {
        let mut ids = IndexIds::default();
        assert_eq!(ids.word(WARN_FROM - 1), None);
        let first = ids.word(WARN_FROM).unwrap();
        assert!(first.starts_with("1073741826 of 2^32"), "{first}");
        assert_eq!(ids.word(WARN_FROM + STEP - 1), None);
        assert!(ids.word(WARN_FROM + STEP).is_some());
        let next = INDEX_IDS_END - 5;
        assert!(ids.word(next).unwrap().starts_with("5 of"));
        assert_eq!(ids.word(next + 4), None);
        assert!(ids.word(INDEX_IDS_END).unwrap().starts_with("0 of"));
        assert_eq!(ids.word(INDEX_IDS_END), None);
        // A start tells it anew.
        assert!(IndexIds::default().word(INDEX_IDS_END).is_some());
    }
}
