//! One index of a table in use. The table's definition may change around it: every `Table` made of
//! the same table has the same `OpenIndex`, so that its tree has one structure lock and its deleted
//! entries are in one place.
//!
//! Invariant: once `gone`, always gone; it is set before the pages go, and whoever works in the index
//! in the background looks at it under the table's `in_use` (`Table::stay_in`), which is taken
//! exclusively between the two: who saw the index there is out of it when its pages go.

use crate::catalog::delete_archive::{ArchivedTotal, DeleteArchive};
use crate::catalog::spec::IndexSpec;
use ferrite_buffer::Pool;
use ferrite_sync::atomic::{AtomicBool, AtomicU64, Ordering};
use ferrite_sync::Arc;
use ferrite_tree::Tree;
use ferrite_types::{Csn, PageId};

/// See the head of the file.
pub(crate) struct OpenIndex {
    pub tree: Tree,
    pub archive: DeleteArchive,
    /// Snapshots below this commit number are older than the index, which was built without a
    /// history; 0: all may read it.
    usable_from: AtomicU64,
    gone: AtomicBool,
}

impl OpenIndex {
    pub(crate) fn new(
        spec: &IndexSpec,
        pool: &Arc<Pool>,
        archived: &Arc<ArchivedTotal>,
    ) -> OpenIndex {
        assert!(
            spec.root != PageId::NONE && spec.id.0 != 0,
            "index {} has no tree",
            spec.name
        );
        OpenIndex {
            tree: Tree::new(pool.clone(), spec.id, spec.root),
            archive: DeleteArchive::new(archived.clone()),
            usable_from: AtomicU64::new(0),
            gone: AtomicBool::new(false),
        }
    }

    /// Its pages are about to go.
    pub(crate) fn set_gone(&self) {
        self.gone.store(true, Ordering::SeqCst);
    }

    /// Its pages have gone, or are about to. To be asked under the table's `in_use`, which keeps them
    /// if not: see `Table::stay_in`.
    pub(crate) fn is_gone(&self) -> bool {
        self.gone.load(Ordering::SeqCst)
    }

    /// It is complete, and has no history before `csn`.
    pub(crate) fn set_usable_from(&self, csn: Csn) {
        assert!(csn.get() > 0, "0 means that all may read it");
        let before = self.usable_from.swap(csn.get(), Ordering::AcqRel);
        assert!(before < csn.get(), "usable from {before}, then from {csn}");
    }

    /// May a snapshot of everything up to `csn` read it?
    pub(crate) fn is_usable_by(&self, csn: Csn) -> bool {
        csn.get() >= self.usable_from.load(Ordering::Acquire)
            || ferrite_sync::mutant!("read.usable_from_ignored")
    }
}
