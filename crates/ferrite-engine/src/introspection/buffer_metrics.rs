//! The figures of the buffer pool, and of what is kept beside its pages; part of `engine_metrics`.
//!
//! Locking: as there.

use crate::introspection::metric::{Metric, Subsystem};
use crate::state::engine::Engine;

impl Engine {
    pub(super) fn metrics_buffer(&self) -> Vec<Metric> {
        let mut all = self.metrics_pool();
        all.extend(self.metrics_read_ahead());
        all.extend(self.metrics_beside_pages());
        all.extend(self.metrics_deltas());
        all
    }

    /// Pages of which only the changes are written.
    fn metrics_deltas(&self) -> Vec<Metric> {
        let (pool, store) = (&self.pool, self.store.stats());
        let of = Subsystem("buffer");
        vec![
            of.counter(
                "page_deltas_written",
                pool.stats.deltas_written.get(),
                "Number of pages of which only the changes were written",
            ),
            of.counter(
                "page_deltas_read",
                store.deltas_read,
                "Number of pages read with changes that were written apart",
            ),
            of.counter(
                "page_deltas_in_memory",
                pool.kept_delta_hits(),
                "Number of pages read whose changes, written apart, were still in memory",
            ),
            of.gauge(
                "page_deltas",
                store.deltas_live,
                "Pages whose changes are written apart now",
            ),
            of.gauge(
                "page_change_bytes",
                pool.change_bytes() as u64,
                "Bytes of memory for changes of pages that may be written apart",
            ),
            of.gauge(
                "page_delta_bytes",
                pool.kept_delta_bytes() as u64,
                "Bytes of memory for changes, written apart, of pages that are not in memory",
            ),
        ]
    }

    fn metrics_pool(&self) -> Vec<Metric> {
        let s = &self.pool.stats;
        let total = self.pool.frame_count() as u64;
        let free = self.pool.free_frames() as u64;
        let data = total.saturating_sub(free) * ferrite_types::PAGE_BYTES as u64;
        let dirty = self.pool.dirty_pages() as u64;
        let of = Subsystem("buffer");
        vec![
            of.gauge(
                "memory_bytes",
                self.memory_bytes(),
                "Bytes of memory that Ferrite has, the buffer pool included",
            ),
            of.gauge(
                "buffer_pool_pages_total",
                total,
                "Size of the buffer pool in pages",
            ),
            of.gauge(
                "buffer_pool_pages_leaving",
                self.pool.leaving_frames() as u64,
                "Number of pages that the buffer pool still has to clear before it is as small as \
                 ferrite_buffer_pool_size says",
            ),
            of.gauge(
                "buffer_pool_pages_free",
                free,
                "Number of free pages in the buffer pool",
            ),
            of.gauge(
                "buffer_pool_pages_dirty",
                dirty,
                "Number of dirty pages in the buffer pool",
            ),
            of.gauge(
                "buffer_pool_bytes_data",
                data,
                "Bytes in the buffer pool that contain data",
            ),
            of.counter(
                "buffer_pool_reads",
                s.reads.get(),
                "Number of pages read from disk",
            ),
            of.counter(
                "buffer_pool_wait_free",
                s.free_waits.get(),
                "Number of waits for a free page in the buffer pool",
            ),
            of.counter(
                "buffer_pool_evictions",
                s.evictions.get(),
                "Number of clean pages evicted from the buffer pool",
            ),
            of.counter(
                "buffer_pool_latch_waits",
                s.latch_waits.get(),
                "Number of waits for a page latch",
            ),
        ]
    }

    fn metrics_read_ahead(&self) -> Vec<Metric> {
        let s = &self.pool.stats;
        let of = Subsystem("buffer");
        vec![
            of.counter(
                "buffer_pool_read_ahead",
                s.read_ahead.get(),
                "Number of pages read ahead of their use",
            ),
            of.counter(
                "buffer_pool_read_ahead_used",
                s.read_ahead_used.get(),
                "Number of pages read ahead that were used",
            ),
            of.counter(
                "buffer_pool_read_ahead_evicted",
                s.read_ahead_unused.get(),
                "Number of pages read ahead that were evicted before they were used",
            ),
            of.counter(
                "buffer_pool_read_ahead_waits",
                s.read_ahead_waits.get(),
                "Number of waits for a page that was being read ahead",
            ),
        ]
    }

    /// Changes and rows in memory whose pages are not.
    fn metrics_beside_pages(&self) -> Vec<Metric> {
        let (changes, rows) = (self.pool.change_buffer(), self.pool.row_cache());
        let of = Subsystem("buffer");
        vec![
            of.gauge(
                "change_buffer_bytes",
                changes.bytes() as u64,
                "Bytes in the change buffer, after a crash those of pages to be redone among them",
            ),
            of.gauge(
                "change_buffer_pages",
                changes.pages().saturating_sub(changes.pages_to_redo()) as u64,
                "Number of pages with changes in the change buffer",
            ),
            of.counter(
                "change_buffer_changes",
                changes.changes.get(),
                "Number of index entries put into the change buffer",
            ),
            of.counter(
                "change_buffer_merged",
                changes.merged.get(),
                "Number of index entries merged from the change buffer",
            ),
            of.counter(
                "change_buffer_merges",
                changes.merges.get(),
                "Number of pages into which entries were merged from the change buffer",
            ),
            of.gauge(
                "row_cache_bytes",
                rows.bytes() as u64,
                "Bytes in the row cache",
            ),
            of.gauge(
                "row_cache_pages",
                rows.pages() as u64,
                "Number of pages with rows in the row cache",
            ),
            of.counter(
                "row_cache_stored",
                rows.stored.get(),
                "Number of rows put into the row cache",
            ),
            of.counter(
                "row_cache_hits",
                rows.hits.get(),
                "Number of rows read from the row cache, without their page",
            ),
        ]
    }
}
