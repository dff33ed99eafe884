//! Other indexes for a table that has rows: trees for those that come, and the definition that has them
//! in place of those that go.
//!
//! On disk the definition's record switches from the old indexes to the new ones; trees that no
//! definition names go, at once or, after a crash, at the next start.
//!
//! Locking: `state` over the switch; trees that go do so after it.

use super::{Dictionary, State};
use crate::catalog::cache_priority::cache_priority;
use crate::catalog::open_index::OpenIndex;
use crate::catalog::spec::{IndexSpec, TableSpec};
use crate::catalog::table::Table;
use crate::log_records::undo::NO_UNDO;
use ferrite_sync::atomic::Ordering;
use ferrite_sync::{kill_point, Arc};
use ferrite_tree::Tree;
use ferrite_types::{Error, PageId, Result, TableId};

/// Where an index of a table's new definition comes from.
#[derive(Clone)]
pub(crate) enum NewIndex {
    /// It is the one with this number in the old definition.
    Kept(usize),
    /// It has just been built.
    Built(IndexSpec, Arc<OpenIndex>),
}

/// A table before its definition changed, and those of its indexes that go.
pub(super) struct Replaced {
    table: Arc<Table>,
    going: Vec<Arc<OpenIndex>>,
}

impl Dictionary {
    /// Gives an index an id and an empty tree, packed as those of `table`, that no table has yet.
    ///
    /// # Errors
    /// `NotFound`, `Unsupported` without ids, as `Tree::create`; nothing remains.
    pub(crate) fn make_tree_for(&self, table: TableId, mut spec: IndexSpec) -> Result<IndexSpec> {
        let mut state = self.state.lock();
        let of = state.specs.get(&table).ok_or(Error::NotFound)?;
        let (packing, priority) = (of.packing, cache_priority(&of.definition));
        spec.id = state.new_index_id()?;
        spec.root = Tree::create(&self.pool, spec.id, NO_UNDO)?;
        assert!(spec.root != PageId::NONE, "index {} has no root", spec.id);
        self.pool.set_packing(spec.id, packing);
        self.pool.set_cache_priority(spec.id, priority);
        Ok(spec)
    }

    /// The definition of `old` with these indexes. The clustered one stays what it is.
    pub(super) fn with_new_indexes(old: &TableSpec, indexes: &[NewIndex]) -> Result<TableSpec> {
        let mut spec = old.clone();
        spec.indexes.clear();
        for index in indexes {
            spec.indexes.push(match index {
                NewIndex::Kept(number) => old.indexes.get(*number).cloned().ok_or_else(|| {
                    Error::Bug(format!("{}: there is no index {number}", old.name))
                })?,
                NewIndex::Built(spec, _) => spec.clone(),
            });
        }
        let rows_stay = spec.indexes.first().map(|i| i.id) == old.indexes.first().map(|i| i.id);
        let mut ids: Vec<_> = spec.indexes.iter().map(|i| i.id).collect();
        ids.sort_unstable();
        ids.dedup();
        if !rows_stay || ids.len() != spec.indexes.len() {
            let text = format!("{}: indexes are given twice, or rows to be moved", old.name);
            return Err(Error::Bug(text));
        }
        Ok(spec)
    }

    /// The durable definition of table `id` has these indexes: so has the table in use.
    pub(super) fn switch_indexes(
        &self,
        state: &mut State,
        old: &TableSpec,
        before: Arc<Table>,
        indexes: &[NewIndex],
    ) -> Result<Replaced> {
        let id: TableId = old.id;
        let spec = state.specs.get(&id).ok_or(Error::NotFound)?.clone();
        assert_eq!(spec.indexes.len(), indexes.len(), "{}", spec.name);
        let mark = self.txns.mark();
        let open = indexes.iter().map(|index| match index {
            NewIndex::Kept(number) => before.index(*number).clone(),
            NewIndex::Built(_, open) => {
                open.set_usable_from(mark);
                open.clone()
            }
        });
        let after = Arc::new(before.with_indexes(spec, open.collect()));
        let stays = |index: &Arc<OpenIndex>| {
            (0..after.index_count()).any(|n| Arc::ptr_eq(index, after.index(n)))
        };
        let all = (0..before.index_count()).map(|n| before.index(n).clone());
        let going: Vec<_> = all.filter(|index| !stays(index)).collect();
        for index in &after.spec.indexes {
            let owner = state.by_index.insert(index.id, id);
            assert!(owner.is_none_or(|owner| owner == id), "index {}", index.id);
        }
        for index in &going {
            let owner = state.by_index.remove(&index.tree.index());
            assert_eq!(owner, Some(id), "an index of another table is dropped");
        }
        // Whoever looks up rows in it for a foreign key opens it anew.
        before.dropped.store(true, Ordering::SeqCst);
        *before.links.lock() = None;
        state.open.insert(id, after);
        debug_assert!(state.is_sound(), "after indexes of {id} changed");
        Ok(Replaced {
            table: before,
            going,
        })
    }

    /// Trees of indexes that a table had go; the dictionary does not name them any more.
    pub(super) fn drop_replaced(&self, replaced: &Replaced) {
        if replaced.going.is_empty() {
            return;
        }
        kill_point!("dict.index.dropped");
        let _alone = replaced.table.close_indexes(&replaced.going);
        for index in &replaced.going {
            self.pool.drop_index(index.tree.index());
        }
    }
}
