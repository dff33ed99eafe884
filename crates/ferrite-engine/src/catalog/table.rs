//! One table in use: its trees and its counters.
//!
//! Counters are estimates kept per process and carried over by checkpoints; they never decide
//! about correctness, except `next_row_id` and `auto_increment`, which only ever rise.

use crate::catalog::delete_archive::{ArchivedTotal, DeleteArchive};
use crate::catalog::links::Links;
use crate::catalog::load_buffer::LoadBuffer;
use crate::catalog::open_index::OpenIndex;
use crate::catalog::spec::TableSpec;
use ferrite_buffer::Pool;
use ferrite_sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use ferrite_sync::{Arc, Mutex, MutexGuard, RwLock, RwLockReadGuard};
use ferrite_tree::node::MAX_KEY_BYTES;
use ferrite_tree::Tree;
use ferrite_types::{Csn, IndexId, Result, TableId};

/// The optimizer's sizes are counted again when one in so many changes is new.
const ESTIMATE_SHARE: u64 = 1024;

/// The key that stands for "after the last entry" in the lock table: longer than any key.
pub(crate) static SUPREMUM: [u8; MAX_KEY_BYTES + 1] = [0xff; MAX_KEY_BYTES + 1];
const _: () = assert!(SUPREMUM.len() > MAX_KEY_BYTES, "no key is above it");

/// Figures of a table, all estimates.
#[derive(Clone, Copy, Debug, Default)]
pub struct TableStats {
    /// Rows.
    pub rows: u64,
    /// Bytes of the clustered index's pages, overflow pages included.
    pub data_bytes: u64,
    /// Bytes of the other indexes' pages.
    pub index_bytes: u64,
    /// Bytes free for reuse in the store.
    pub free_bytes: u64,
    /// Creation, seconds since 1970.
    pub created_unix_s: u64,
    /// Last change since start; 0: none.
    pub updated_unix_s: u64,
    /// Rows changed since statistics were stored.
    pub changes_since_stats: u64,
    /// The number of rows is to be checked first: see [`Table::check_rows`].
    pub rows_doubtful: bool,
    /// Leaves of the clustered index.
    pub clustered_leaf_pages: u64,
}

/// An open table, shared by all who use it.
pub struct Table {
    /// What the dictionary says of it.
    pub spec: TableSpec,
    /// In the order of the definition; shared with the table as it was before its definition changed.
    indexes: Vec<Arc<OpenIndex>>,
    pub(crate) next_row_id: AtomicU64,
    pub(crate) auto_increment: AtomicU64,
    pub(crate) rows: AtomicI64,
    /// The counter is to be held against the rows before it is used.
    rows_doubtful: AtomicBool,
    pub(crate) changes: AtomicU64,
    /// Begun and ended commits, by their xids, of prepared transactions that have changed it; see
    /// [`Engine::decided_commits`](crate::Engine::decided_commits).
    pub(crate) decided_commits: AtomicU64,
    /// Figures for the optimizer: pages of the clustered index and of the others, and how
    /// many changes there had been when they were taken, plus one.
    estimate: [AtomicU64; 3],
    pub(crate) updated_unix_s: AtomicU64,
    pub(crate) stats_blob: Mutex<Vec<u8>>,
    /// Snapshots below this commit number are older than the table's contents, which came into
    /// being without a history; 0: all may read it. See [`Session::may_read`].
    usable_from: AtomicU64,
    /// Nobody else can see it yet: it is being filled, see the module `load`.
    pub(crate) loading: AtomicBool,
    pub(crate) load: Mutex<Option<LoadBuffer>>,
    /// Which links are the right ones; 0: it has no foreign keys and none refers to it.
    pub(crate) links_version: AtomicU64,
    pub(crate) links: Mutex<Option<Arc<Links>>>,
    /// Dropped, truncated away, or another one took its place: who looks up rows in it has to open it
    /// anew.
    pub(crate) dropped: AtomicBool,
    /// Held shared over a step by background work in the table, and taken exclusively, for a moment, before
    /// trees of it go: see [`Table::close_indexes`]. The same as of the table before its definition changed.
    in_use: Arc<RwLock<()>>,
}

/// Nobody works in the background in trees that are about to go, nor begins to; while this lives none of them
/// changes its structure.
pub(crate) struct Closed<'t> {
    _structures: Vec<MutexGuard<'t, u64>>,
}

/// While it lives the trees stay that were there when it began, whatever becomes of the table.
pub struct Entered<'t> {
    _in_use: RwLockReadGuard<'t, ()>,
}

impl Table {
    pub(crate) fn new(spec: TableSpec, pool: &Arc<Pool>, archived: &Arc<ArchivedTotal>) -> Table {
        let open = |i| Arc::new(OpenIndex::new(i, pool, archived));
        let indexes = spec.indexes.iter().map(open).collect();
        Table::of(spec, indexes)
    }

    fn of(spec: TableSpec, indexes: Vec<Arc<OpenIndex>>) -> Table {
        assert!(!indexes.is_empty(), "a table without a clustered index");
        assert!(
            spec.indexes.len() == indexes.len()
                && spec
                    .indexes
                    .iter()
                    .zip(&indexes)
                    .all(|(spec, open)| spec.id == open.tree.index()),
            "indexes of another table"
        );
        Table {
            spec,
            indexes,
            next_row_id: AtomicU64::new(0),
            auto_increment: AtomicU64::new(1),
            rows: AtomicI64::new(0),
            rows_doubtful: AtomicBool::new(false),
            changes: AtomicU64::new(0),
            decided_commits: AtomicU64::new(0),
            estimate: std::array::from_fn(|_| AtomicU64::new(0)),
            updated_unix_s: AtomicU64::new(0),
            stats_blob: Mutex::new(Vec::new()),
            usable_from: AtomicU64::new(0),
            loading: AtomicBool::new(false),
            load: Mutex::new(None),
            links_version: AtomicU64::new(0),
            links: Mutex::new(None),
            dropped: AtomicBool::new(false),
            in_use: Arc::new(RwLock::new(())),
        }
    }

    /// The table under another definition, which has these indexes; the caller sees to it that no
    /// session uses it. What this one has counted goes along.
    pub(crate) fn with_indexes(&self, spec: TableSpec, indexes: Vec<Arc<OpenIndex>>) -> Table {
        assert_eq!(spec.id, self.spec.id, "a definition of another table");
        assert!(
            Arc::ptr_eq(&indexes[0], &self.indexes[0]),
            "rows are copied with other statements"
        );
        let carried = |from: &AtomicU64| AtomicU64::new(from.load(Ordering::SeqCst));
        Table {
            next_row_id: carried(&self.next_row_id),
            auto_increment: carried(&self.auto_increment),
            rows: AtomicI64::new(self.rows.load(Ordering::SeqCst)),
            rows_doubtful: AtomicBool::new(self.rows_doubtful.load(Ordering::SeqCst)),
            changes: carried(&self.changes),
            decided_commits: carried(&self.decided_commits),
            updated_unix_s: carried(&self.updated_unix_s),
            usable_from: carried(&self.usable_from),
            links_version: carried(&self.links_version),
            stats_blob: Mutex::new(self.stats_blob.lock().clone()),
            in_use: self.in_use.clone(),
            ..Table::of(spec, indexes)
        }
    }

    /// Table id.
    pub fn id(&self) -> TableId {
        self.spec.id
    }

    /// The tree of an index by its number in the definition.
    pub fn tree(&self, index_no: usize) -> &Tree {
        &self.indexes[index_no].tree
    }

    /// Deleted entries of an index that old snapshots need.
    pub(crate) fn archive(&self, index_no: usize) -> &DeleteArchive {
        &self.indexes[index_no].archive
    }

    /// All of them.
    pub(crate) fn archives(&self) -> impl Iterator<Item = &DeleteArchive> {
        self.indexes.iter().map(|index| &index.archive)
    }

    /// An index for a table under another definition.
    pub(crate) fn index(&self, index_no: usize) -> &Arc<OpenIndex> {
        &self.indexes[index_no]
    }

    /// How many indexes it has.
    pub fn index_count(&self) -> usize {
        self.indexes.len()
    }

    /// Index number of an index id.
    pub(crate) fn number_of(&self, index: IndexId) -> Option<usize> {
        let number = self.spec.indexes.iter().position(|i| i.id == index);
        debug_assert!(number.is_none_or(|n| self.tree(n).index() == index));
        number
    }

    /// A row was changed.
    pub(crate) fn note_change(&self) {
        self.changes.fetch_add(1, Ordering::Relaxed);
    }

    /// One row more or less. To be called beside each change of the clustered entry that makes or ends a live one, in
    /// both directions: what undoes the change knows nothing of the row that it belonged to.
    pub(crate) fn count_row(&self, delta: i64) {
        debug_assert!(delta.abs() == 1, "{delta} rows at once");
        self.rows.fetch_add(delta, Ordering::Relaxed);
    }

    /// Rows may have come and gone that were not counted: before a crash, after the checkpoint.
    pub(crate) fn doubt_rows(&self) {
        self.rows_doubtful.store(true, Ordering::Relaxed);
    }

    /// Holds the row counter against a sample of so many leaves: counted exactly if there are no more, else the
    /// counter is taken to be the better one unless it is far off. Changes meanwhile stay counted.
    ///
    /// # Errors
    /// A page that cannot be read; the counter stays.
    pub fn check_rows(&self, leaves: u32) -> Result<()> {
        let before = self.rows.load(Ordering::Relaxed);
        let (records, exact) = self.tree(0).live_records(leaves)?;
        let found = i64::try_from(records).unwrap_or(i64::MAX);
        let off = found.abs_diff(before);
        if exact || off > records.max(before.unsigned_abs()) / 3 {
            self.rows
                .fetch_add(found.wrapping_sub(before), Ordering::Relaxed);
        }
        self.rows_doubtful.store(false, Ordering::Relaxed);
        Ok(())
    }

    /// A transaction that changed rows has committed. Stored once a second at most, so that
    /// committers do not write the same memory over and over.
    #[inline]
    pub(crate) fn note_commit(&self, now_s: u64) {
        if self.updated_unix_s.load(Ordering::Relaxed) != now_s {
            self.updated_unix_s.store(now_s, Ordering::Relaxed);
        }
    }

    /// The table is dropped, its trees are about to go: background work in it has ended when
    /// this returns, and whoever still has a handle gets `TableChanged`.
    pub(crate) fn close(&self) -> Closed<'_> {
        assert!(
            self.dropped.load(Ordering::SeqCst),
            "table {} is in use and its trees go",
            self.spec.id
        );
        self.close_indexes(&self.indexes)
    }

    /// As [`Table::close`], for those of its indexes that go. The table has another definition by now.
    pub(crate) fn close_indexes<'t>(&'t self, going: &'t [Arc<OpenIndex>]) -> Closed<'t> {
        assert!(
            self.dropped.load(Ordering::SeqCst),
            "who enters table {} would find trees of it gone",
            self.spec.id
        );
        for index in going {
            index.set_gone();
        }
        // Waits for those who are in it. Whoever comes in later sees `gone`, or `dropped`, and turns back: he has nothing
        // to wait for while the pages of a large tree go, which takes minutes.
        drop(self.in_use.write());
        debug_assert!(going.iter().all(|index| index.is_gone()), "it comes back");
        Closed {
            _structures: going.iter().map(|index| index.tree.close()).collect(),
        }
    }

    /// For background work in an index: while the guard lives its tree stays. None: it is gone, or about to be.
    pub(crate) fn stay_in(&self, index_no: usize) -> Option<Entered<'_>> {
        let index = &self.indexes[index_no];
        // Asked before as well: who drops it may still wait for another one, and nobody waits behind him.
        if index.is_gone() {
            return None;
        }
        let in_use = self.in_use.read();
        (!index.is_gone()).then_some(Entered { _in_use: in_use })
    }

    /// For who reads the table without the server's metadata lock; None: it is dropped or emptied, or
    /// just about to be. Not to be held over a wait for a lock: DDL waits for it.
    pub fn enter(&self) -> Option<Entered<'_>> {
        let is_dropped = || self.dropped.load(Ordering::SeqCst);
        // As in `stay_in`.
        if is_dropped() {
            return None;
        }
        let in_use = self.in_use.read();
        (!is_dropped()).then_some(Entered { _in_use: in_use })
    }

    /// Which links are the right ones now; 0: there are none. To be asked after a row is written,
    /// see `docs/internals/foreign_keys.md`.
    #[inline]
    pub fn links_version(&self) -> u64 {
        self.links_version.load(Ordering::SeqCst)
    }

    fn count_pages(&self) -> (u64, u64) {
        let pages = |tree: &Tree| tree.pool().store().page_count(tree.index());
        let others = self.indexes[1..].iter().map(|index| pages(&index.tree));
        (pages(self.tree(0)), others.sum())
    }

    /// The figures now.
    pub fn stats(&self) -> TableStats {
        let (data_pages, index_pages) = self.count_pages();
        self.figures(data_pages, index_pages)
    }

    /// Figures good enough for a plan: asked for by every statement, so that they share nothing
    /// that others write. Sizes are counted again at every change at first, ever more rarely as changes add up.
    pub fn estimate(&self) -> TableStats {
        let [data, index, taken] = &self.estimate;
        let now = self.changes.load(Ordering::Relaxed) + 1;
        let then = taken.load(Ordering::Acquire);
        if then == 0 || now.wrapping_sub(then) > now / ESTIMATE_SHARE {
            let (data_pages, index_pages) = self.count_pages();
            data.store(data_pages, Ordering::Relaxed);
            index.store(index_pages, Ordering::Relaxed);
            taken.store(now, Ordering::Release);
        }
        self.figures(data.load(Ordering::Relaxed), index.load(Ordering::Relaxed))
    }

    fn figures(&self, data_pages: u64, index_pages: u64) -> TableStats {
        let page = ferrite_types::PAGE_BYTES as u64;
        let updated = self.updated_unix_s.load(Ordering::Relaxed);
        TableStats {
            rows: self.rows.load(Ordering::Relaxed).max(0) as u64,
            data_bytes: data_pages * page,
            index_bytes: index_pages * page,
            free_bytes: 0,
            created_unix_s: self.spec.created_unix_s,
            updated_unix_s: updated,
            changes_since_stats: self.changes.load(Ordering::Relaxed),
            rows_doubtful: self.rows_doubtful.load(Ordering::Relaxed),
            clustered_leaf_pages: data_pages,
        }
    }

    /// The contents are complete, and have no history before `csn`, which no transaction has. A
    /// temporary table is its session's own, and that of a sequence is never rolled back: both
    /// are read as they are, whatever the snapshot.
    pub(crate) fn set_usable_from(&self, csn: Csn) {
        assert!(csn.get() > 0, "0 means that all may read it");
        if !self.spec.temporary && !self.spec.no_rollback {
            let before = self.usable_from.swap(csn.get(), Ordering::AcqRel);
            assert!(before < csn.get(), "usable from {before}, then from {csn}");
        }
    }

    /// May a snapshot of everything up to `csn` read it by that index?
    pub(crate) fn is_usable_by(&self, index_no: usize, csn: Csn) -> bool {
        let usable = csn.get() >= self.usable_from.load(Ordering::Acquire)
            || ferrite_sync::mutant!("read.usable_from_ignored");
        usable && self.indexes[index_no].is_usable_by(csn)
    }

    /// Raises the AUTO_INCREMENT counter to at least `next`. True if it moved.
    pub(crate) fn raise_auto_increment(&self, next: u64) -> bool {
        let before = self.auto_increment.fetch_max(next, Ordering::SeqCst);
        debug_assert!(before > 0, "the counter begins at 1");
        before < next
    }

    /// Next AUTO_INCREMENT value.
    pub fn auto_increment(&self) -> u64 {
        self.auto_increment.load(Ordering::SeqCst)
    }

    /// Pages of an index.
    pub fn index_pages(&self, index_no: usize) -> u64 {
        let tree = self.tree(index_no);
        tree.pool().store().page_count(tree.index())
    }

    /// The plugin's statistics.
    pub fn stats_blob(&self) -> Vec<u8> {
        self.stats_blob.lock().clone()
    }
}
