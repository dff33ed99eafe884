//! Where the engine's memory is.
//!
//! The parts that can grow are told by those who have them; what the allocator has given out beyond
//! them is one more part, so that the parts add up to all there is.
//!
//! Locking: that of the parts, one after the other; none of them is held over a wait for the log or the disk.

use crate::maintenance::background::SWEEP_ROUNDS;
use crate::state::engine::Engine;
use ferrite_sync::memory::heap_bytes;
use ferrite_sync::observed;

/// Memory of one part of the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryPart {
    /// What it is called.
    pub name: &'static str,
    /// What it takes, in bytes.
    pub bytes: u64,
    /// What it may take, in bytes; 0: there is no limit of its own.
    pub limit_bytes: u64,
    /// What is in it.
    pub meaning: &'static str,
}

const fn part(
    name: &'static str,
    bytes: u64,
    limit_bytes: u64,
    meaning: &'static str,
) -> MemoryPart {
    MemoryPart {
        name,
        bytes,
        limit_bytes,
        meaning,
    }
}

impl Engine {
    /// Memory by parts, the largest first as a rule; they add up to all that the core has. Looks at every
    /// connection: for users, not for a loop.
    pub fn memory(&self) -> Vec<MemoryPart> {
        let (pages, headers) = self.pool.memory_bytes();
        debug_assert!(pages > 0 && headers > 0, "a pool without frames");
        let mut parts = self.heap_parts();
        let known: u64 = parts.iter().map(|p| p.bytes).sum();
        let rest = heap_bytes().saturating_sub(known);
        parts.push(part(
            "other",
            rest,
            0,
            "buffers of sessions and threads, open tables, statistics",
        ));
        let pool = [
            part(
                "buffer pool",
                pages,
                self.pool.size_bytes(),
                "pages of tables and indexes",
            ),
            part(
                "page headers",
                headers,
                0,
                "state and latch of each page of the buffer pool",
            ),
        ];
        pool.into_iter().chain(parts).collect()
    }

    /// Tells who watches the process what each part has, every few seconds; `rounds` of the history
    /// thread so far.
    pub(crate) fn tell_memory(&self, rounds: u64) {
        /// 5 s.
        const EVERY: u64 = 100;
        const _: () = assert!(EVERY % SWEEP_ROUNDS == 0);
        debug_assert!(rounds % SWEEP_ROUNDS == 0, "round {rounds}");
        if rounds % EVERY == 0 && observed::wants_memory() {
            for part in self.memory() {
                observed::memory(part.name, part.bytes);
            }
        }
    }

    /// All memory that the core has, in bytes.
    pub(crate) fn memory_bytes(&self) -> u64 {
        let (pages, headers) = self.pool.memory_bytes();
        debug_assert!(headers > 0, "a pool without frames");
        pages + headers + heap_bytes()
    }

    /// The parts that are in the heap.
    fn heap_parts(&self) -> Vec<MemoryPart> {
        let ring = self.versions.memory_bytes() as u64;
        let directory = self.store.directory().memory_bytes() as u64;
        let log = self.log.ring_bytes();
        let status = self.txns.ring_memory_bytes() as u64;
        let locks = (
            self.locks.memory_bytes() as u64,
            self.locks.limit_bytes() as u64,
        );
        vec![
            part(
                "row versions",
                self.versions.bytes(),
                ring,
                "row versions for consistent reads",
            ),
            part(
                "deleted rows",
                self.archived().1 + self.purge.held_bytes().0,
                0,
                "deleted rows, and values out of line, that old snapshots need",
            ),
            part(
                "purge",
                self.purge.memory_bytes(),
                0,
                "what committed transactions have left to purge",
            ),
            part("locks", locks.0, locks.1, "row locks and gap locks"),
            part(
                "change buffer",
                self.pool.change_buffer().memory_bytes() as u64,
                self.pool.change_buffer_limit_bytes() as u64,
                "index entries whose page is not in memory",
            ),
            part(
                "row cache",
                self.pool.row_cache().memory_bytes() as u64,
                self.pool.row_cache().limit_bytes() as u64,
                "rows whose page is not in memory",
            ),
            part(
                "page changes",
                (self.pool.change_bytes() + self.pool.kept_delta_bytes()) as u64,
                (self.pool.change_limit_bytes() + self.pool.kept_delta_limit_bytes()) as u64,
                "what has changed in pages since they were written as a whole",
            ),
            part(
                "second tier",
                (self.store.second_tier_stats()).map_or(0, |tier| tier.memory_bytes),
                0,
                "which pages are in the second tier, and what is to be written to it",
            ),
            part(
                "undo",
                self.undo_memory_bytes(),
                0,
                "undo of running transactions, and of those from before a restart for readers",
            ),
            part(
                "dictionary",
                self.dict.memory_bytes(),
                0,
                "definitions of tables",
            ),
            part("page directory", directory, 0, "where each page is"),
            part("log buffer", log, log, "redo log that is not yet written"),
            part(
                "transaction status",
                status,
                status,
                "commit numbers of transactions",
            ),
        ]
    }

    /// Undo that is not in the file.
    fn undo_memory_bytes(&self) -> u64 {
        let slots = self.all_slots();
        let each = slots.iter().map(|slot| slot.figures.undo_memory_bytes());
        each.sum::<u64>() + self.unsettled.known_bytes_now()
    }
}
