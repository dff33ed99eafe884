//! Locks on whole tables: IS, IX, S, X.
//!
//! A table's lock is a queue like a key's, in index 0, but there are [`STRIPES`] of them:
//! intention locks take the stripe of their connection, so that sixteen writers of a table
//! do not meet in one queue; S and X (LOCK TABLES, rare) take all stripes in order.
//!
//! Beside the stripes a table has one more queue, for statements that give out its AUTO_INCREMENT
//! values alone until they end (`AUTO_INC`, as InnoDB calls it). It is of its own: it conflicts with
//! nothing but itself, and deadlocks through it are found as those of rows are.
//!
//! Invariant: an owner's `list.tables` names exactly what it has in the stripes; asking
//! again for what is there touches nothing else.

use ferrite_sync::Arc;
use ferrite_types::{IndexId, Result, TableId};

use crate::hooks::{WaitHooks, WaitPolicy};
use crate::mode::{missing, table_mask, words, Mask, TableMode, TAB, TAB_S, TAB_X};
use crate::owner::Owner;
use crate::table::LockTable;

const STRIPES: u8 = 16;
/// The queue of AUTO_INCREMENT, behind the stripes.
const AUTO_INC: u8 = STRIPES;
/// The index that table locks are filed under.
pub(crate) const TABLES: IndexId = IndexId(0);

fn stripe_key(table: TableId, stripe: u8) -> [u8; 9] {
    let mut key = [0; 9];
    key[..8].copy_from_slice(&table.get().to_be_bytes());
    key[8] = stripe;
    debug_assert_eq!(table_of(&key), Some(table), "the table of a stripe's key");
    key
}

/// The table of a key in index 0.
pub(crate) fn table_of(key: &[u8]) -> Option<TableId> {
    let id: [u8; 8] = key.get(..8)?.try_into().ok()?;
    Some(TableId(u64::from_be_bytes(id)))
}

/// Is it the queue of AUTO_INCREMENT, of keys in index 0?
pub(crate) fn is_auto_inc(key: &[u8]) -> bool {
    key.get(8) == Some(&AUTO_INC)
}

/// For display: InnoDB's words for a set of locks on that key.
pub(crate) fn words_of(index: IndexId, key: &[u8], mask: Mask) -> &'static str {
    if index == TABLES && is_auto_inc(key) {
        debug_assert_eq!(mask, TAB_X, "a mode that AUTO_INC does not have");
        return "AUTO_INC";
    }
    words(mask)
}

/// Which stripes a mode takes.
fn stripes(owner: &Owner, mask: Mask) -> core::ops::Range<u8> {
    if mask & (TAB_S | TAB_X) != 0 {
        return 0..STRIPES;
    }
    // S and X meet an intention in whichever stripe it is: they take them all.
    debug_assert!(mask & TAB != 0 && mask & !TAB == 0, "{mask:#x} of a table");
    let own = (owner.thread_id % u64::from(STRIPES)) as u8;
    own..own + 1
}

impl LockTable {
    /// Locks a table until [`release_all`](Self::release_all) or
    /// [`table_unlock`](Self::table_unlock). No latch may be held. Cheap when the owner has
    /// it already.
    ///
    /// # Errors
    /// As [`lock_wait`](Self::lock_wait). What was not held before is not held afterwards.
    pub fn table_lock(
        &self,
        owner: &Arc<Owner>,
        table: TableId,
        mode: TableMode,
        wait: WaitPolicy,
        hooks: &dyn WaitHooks,
    ) -> Result<()> {
        let mask = table_mask(mode);
        let held = table_held(owner, table);
        if missing(mask, held) == 0 {
            return Ok(());
        }
        let range = stripes(owner, mask);
        for stripe in range.clone() {
            let key = stripe_key(table, stripe);
            if let Err(e) =
                self.wait_in_line(owner, self.key(TABLES, &key), mask, false, wait, hooks)
            {
                // The bit itself was not held anywhere, so that it can be taken back.
                for done in range.start..stripe {
                    let key = stripe_key(table, done);
                    self.remove_modes(owner, self.key(TABLES, &key), mask);
                }
                return Err(e);
            }
        }
        let mut list = owner.list.lock();
        assert!(!list.closing, "{owner:?} locks a table while it ends");
        let held = list.tables.entry(table).or_default();
        *held |= mask;
        debug_assert_eq!(missing(mask, *held), 0, "locked and not held");
        Ok(())
    }

    /// Gives one mode of a table lock back before the transaction's end (UNLOCK TABLES).
    pub fn table_unlock(&self, owner: &Arc<Owner>, table: TableId, mode: TableMode) {
        let mask = table_mask(mode);
        {
            let mut list = owner.list.lock();
            let Some(held) = list.tables.get_mut(&table) else {
                return;
            };
            debug_assert!(*held != 0, "a table with no lock is listed");
            *held &= !mask;
            if *held == 0 {
                list.tables.remove(&table);
            }
        }
        for stripe in stripes(owner, mask) {
            let key = stripe_key(table, stripe);
            self.remove_modes(owner, self.key(TABLES, &key), mask);
        }
    }

    /// Locks the AUTO_INCREMENT values of a table, until [`auto_inc_unlock`](Self::auto_inc_unlock)
    /// or the transaction's end. No latch may be held. Nothing happens if the owner has it.
    ///
    /// # Errors
    /// As [`lock_wait`](Self::lock_wait). It is not held afterwards.
    pub fn auto_inc_lock(
        &self,
        owner: &Arc<Owner>,
        table: TableId,
        wait: WaitPolicy,
        hooks: &dyn WaitHooks,
    ) -> Result<()> {
        let key = stripe_key(table, AUTO_INC);
        debug_assert_eq!(words_of(TABLES, &key, TAB_X), "AUTO_INC");
        self.wait_in_line(owner, self.key(TABLES, &key), TAB_X, false, wait, hooks)?;
        debug_assert!(owner.locks_held() > 0, "granted and not counted");
        Ok(())
    }

    /// Gives the AUTO_INCREMENT values of a table to the next who waits. By the owner's thread;
    /// nothing happens if its transaction has ended since, or if it never had them.
    pub fn auto_inc_unlock(&self, owner: &Arc<Owner>, table: TableId) {
        if owner.locks_held() == 0 {
            return;
        }
        let key = stripe_key(table, AUTO_INC);
        self.remove_modes(owner, self.key(TABLES, &key), TAB_X);
        debug_assert!(!owner.is_waiting(), "{owner:?} unlocks while it waits");
    }
}

fn table_held(owner: &Owner, table: TableId) -> Mask {
    owner.list.lock().tables.get(&table).copied().unwrap_or(0)
}
