//! The account of the pages that hold values out of line: what no row names is free.
//!
//! Every such page of an index belongs to exactly one value, and every value to exactly one
//! of: a live row; a purge piece (a committed change let go of it, and purge or an old snapshot
//! still has to); a prepared transaction's list of what becomes garbage with its commit. A page
//! of no value is a leak: nothing will ever free it.
//!
//! For tests, the simulator and debugging: it reads every page of every table into memory, and
//! does not look at KILL. Locking: each tree's structure lock while its rows are read, else one
//! page latch at a time. Purge may go on meanwhile: what it frees is not missed.

use crate::catalog::table::Table;
use crate::rows::overflow::references;
use crate::state::engine::Engine;
use ferrite_types::{Error, IndexId, OverflowRef, PageId, Result};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// What the pages of values out of line are for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ValueAccount {
    /// Values that live rows name.
    pub live: u64,
    /// Bytes of these.
    pub live_bytes: u64,
    /// Values still to be freed by purge, or by the commit of a prepared transaction.
    pub pending: u64,
    /// Pages of all of them.
    pub pages: u64,
}

impl Engine {
    /// Accounts for every page that holds a value out of line.
    ///
    /// The engine must be quiet: no transaction that has changed something, unless it is
    /// prepared, and no DDL. Open snapshots and a purge that is behind do no harm.
    ///
    /// # Errors
    /// `Corrupt` naming a page of no value, a page of two, or a value that is not whole; `Bug`
    /// when a transaction is at work; a page that cannot be read.
    pub fn check_values(&self) -> Result<ValueAccount> {
        // By index, and in order: the simulator repeats a run from its seed alone.
        let mut pending: BTreeMap<IndexId, BTreeSet<OverflowRef>> = BTreeMap::new();
        let mut add = |(index, value)| pending.entry(index).or_default().insert(value);
        for slot in self.all_slots() {
            let state = slot.state.lock();
            if !state.txn.is_frozen() && state.xid().is_none() {
                let text = format!("transaction {} is at work during an account", state.txn);
                return Err(Error::Bug(text));
            }
            for value in state.garbage.iter() {
                add(*value);
            }
        }
        for value in self.purge.pending_overflow() {
            add(value);
        }
        let none = BTreeSet::new();
        let mut account = ValueAccount::default();
        for table in self.dict.all_tables()? {
            let index = table.tree(0).index();
            let of_index = pending.get(&index).unwrap_or(&none);
            self.account_of(&table, of_index, &mut account)?;
        }
        Ok(account)
    }

    fn account_of(
        &self,
        table: &Table,
        pending: &BTreeSet<OverflowRef>,
        account: &mut ValueAccount,
    ) -> Result<()> {
        let tree = table.tree(0);
        let index = tree.index();
        let mut live: Vec<OverflowRef> = Vec::new();
        tree.check(&mut |_, rec| {
            if !rec.header.deleted {
                live.extend(references(rec.value));
            }
            Ok(())
        })?;
        let mut owners: HashMap<PageId, OverflowRef> = HashMap::new();
        for reference in &live {
            let whole = self.take_pages(index, reference, &mut owners)?;
            if !whole {
                return Err(fault(
                    index,
                    reference.first_page(),
                    "begins a value that is not whole",
                ));
            }
            account.live_bytes += reference.length();
        }
        for reference in pending {
            self.take_pages(index, reference, &mut owners)?;
        }
        for page in self.store.pages_of(index) {
            if !owners.contains_key(&page) && self.is_value_page(page)? {
                return Err(fault(index, page, "is of a value that nothing names"));
            }
        }
        debug_assert!(
            live.len() <= owners.len(),
            "each value has a page of its own"
        );
        account.live += live.len() as u64;
        account.pending += pending.len() as u64;
        account.pages += owners.len() as u64;
        Ok(())
    }

    /// Enters a value's pages; false when some are missing.
    fn take_pages(
        &self,
        index: IndexId,
        reference: &OverflowRef,
        owners: &mut HashMap<PageId, OverflowRef>,
    ) -> Result<bool> {
        let pages = self.value_pages(index, reference)?;
        for page in &pages {
            if owners.insert(*page, *reference).is_some() {
                return Err(fault(index, *page, "is of two values"));
            }
        }
        Ok(pages.len() == reference.pages() as usize)
    }
}

fn fault(index: IndexId, page: PageId, what: &str) -> Error {
    Error::Corrupt(format!("index {index}: page {page} {what}"))
}
