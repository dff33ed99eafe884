//! The version store: adding, reading, and changing chains.
//!
//! A chain belongs to one record. It is read under the record's page latch (shared) and
//! changed under it (exclusive), and in both cases within a [`Walk`]. Segments retire at the
//! same time, without any page latch; they change places (young ring -> old generation) and
//! fold versions that nobody needs into older ones, but only while no walk is open. So a
//! walk sees a chain that holds still, and "not found" means that no older state exists
//! that anybody may read.
//!
//! Rule for rollback: the header a record gets back takes its version address from the
//! version that the change had added ([`VersionHead::next`]), not from the before-image:
//! pruning may have changed it.
//!
//! Locking: a walk (shared lock of the thread's shard), then a segment slot or an old
//! shard. Walks are short and do not nest; no page may be awaited within one. `add` needs
//! none.

use ferrite_io::Storage;
use ferrite_sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use ferrite_sync::waits::{waiting, Of, Reason};
use ferrite_sync::{Arc, CachePadded, Counter, Mutex, RwLock, RwLockReadGuard, RwLockWriteGuard};
use ferrite_types::{Result, VersionAddr};

use crate::old_generation::OldGeneration;
use crate::pruned::Pruned;
use crate::scratch::Scratch;
use crate::segment::{Found, Young};
use crate::version::{NewVersion, VersionHead, SEGMENT_BYTES};

const WALK_SHARDS: usize = 16;
const OPEN_SEGMENTS: usize = 16;
/// Slots for young segments: a ring that is made larger later shares them.
const LEAST_SLOTS: usize = 1024;

/// Sizes of the version store.
#[derive(Clone, Copy, Debug)]
pub struct VersionConfig {
    /// Memory for young versions (bytes); beyond it the oldest segments retire.
    pub ring_budget_bytes: usize,
    /// Memory for those that survive (bytes); beyond it they go to a scratch file.
    pub old_budget_bytes: usize,
}

impl VersionConfig {
    /// With so much memory (bytes) in all: two thirds of it for young versions, the rest for
    /// those that survive.
    pub fn with_memory(bytes: usize) -> VersionConfig {
        let old_budget_bytes = bytes / 3;
        VersionConfig {
            ring_budget_bytes: bytes - old_budget_bytes,
            old_budget_bytes,
        }
    }
}

impl Default for VersionConfig {
    fn default() -> VersionConfig {
        VersionConfig::with_memory(256 << 20)
    }
}

/// Lengths of chains that are counted apart; longer ones count as this.
const CHAIN_LENGTHS: usize = 64;

#[derive(Default)]
pub(crate) struct Counters {
    pub made: Counter,
    pub pruned: Counter,
    pub moved: Counter,
    pub folded: Counter,
    pub vanished: Counter,
    pub spilled: Counter,
    pub spill_failures: Counter,
}

/// Counters and sizes at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VersionStats {
    /// Versions added since the start.
    pub made: u64,
    /// Taken out of their chains by updaters.
    pub pruned: u64,
    /// Moved to the old generation.
    pub moved: u64,
    /// Dropped by giving their place to an older one that is needed.
    pub folded: u64,
    /// Dropped with nothing older left, at retirement or by the sweep.
    pub vanished: u64,
    /// Written to a scratch file (again, if it had to be written anew).
    pub spilled: u64,
    /// Writes to a scratch file that failed; their versions stayed in memory.
    pub spill_failures: u64,
    /// Versions behind a record after an update, this one's included: 99 of 100 updates since the
    /// start left no more. At most 64.
    pub chain_p99: u64,
    /// Bytes of scratch files in use.
    pub spilled_bytes: u64,
    /// Bytes of the young ring (whole segments).
    pub young_bytes: u64,
    /// Memory of the old generation, with what it knows of spilled versions.
    pub old_bytes: u64,
    /// Versions in the old generation, spilled ones included.
    pub old_versions: u64,
}

/// Versions of all rows of one database.
pub struct VersionStore {
    pub(crate) young: Young,
    pub(crate) old: OldGeneration,
    pub(crate) scratch: Option<Scratch>,
    walks: Box<[CachePadded<RwLock<()>>]>,
    ring_budget_bytes: AtomicUsize,
    old_budget_bytes: AtomicUsize,
    /// What the last failed write to a scratch file said.
    pub(crate) spill_error: Mutex<Option<String>>,
    /// The last attempt to write to a scratch file failed.
    pub(crate) spill_fails: AtomicBool,
    /// Memory of records of the old generation when it was last written out.
    pub(crate) unspilled: AtomicU64,
    pub(crate) retiring: Mutex<()>,
    /// Nothing is retired or swept any more.
    pub(crate) winding_up: AtomicBool,
    pub(crate) count: Counters,
    /// Updates that left a chain of `index + 1` versions, as far as those that looked tell.
    chains: Box<[Counter]>,
}

#[inline]
fn open_walk(walks: &RwLock<()>) -> RwLockReadGuard<'_, ()> {
    let wait = || waiting(Reason::History, Of::Nothing, || walks.read());
    walks.try_read().unwrap_or_else(wait)
}

impl VersionStore {
    /// An empty store. Scratch files go to `scratch` (what an earlier process left of them is
    /// removed); without it everything stays in memory.
    pub fn new(config: VersionConfig, scratch: Option<Arc<dyn Storage>>) -> VersionStore {
        let slots = (2 * config.ring_budget_bytes / SEGMENT_BYTES).clamp(LEAST_SLOTS, 1 << 16);
        VersionStore {
            young: Young::new(slots, OPEN_SEGMENTS),
            old: OldGeneration::new(),
            scratch: scratch.map(Scratch::new),
            walks: (0..WALK_SHARDS).map(|_| CachePadded::default()).collect(),
            ring_budget_bytes: AtomicUsize::new(config.ring_budget_bytes),
            old_budget_bytes: AtomicUsize::new(config.old_budget_bytes),
            spill_error: Mutex::new(None),
            spill_fails: AtomicBool::new(false),
            unspilled: AtomicU64::new(0),
            retiring: Mutex::new(()),
            winding_up: AtomicBool::new(false),
            count: Counters::default(),
            chains: (0..CHAIN_LENGTHS).map(|_| Counter::new()).collect(),
        }
    }

    /// From now on versions may take so much memory (bytes). What is beyond it is looked through, or
    /// written out, in the next rounds of [`retire`](Self::retire).
    pub fn set_memory(&self, bytes: usize) {
        let config = VersionConfig::with_memory(bytes);
        let (ring, old) = (config.ring_budget_bytes, config.old_budget_bytes);
        self.ring_budget_bytes.store(ring, Ordering::Relaxed);
        self.old_budget_bytes.store(old, Ordering::Relaxed);
        debug_assert_eq!(self.memory_bytes(), bytes, "set by two at a time");
    }

    /// Memory that versions may take (bytes).
    pub fn memory_bytes(&self) -> usize {
        self.ring_budget_bytes() + self.old_budget_bytes()
    }

    pub(crate) fn ring_budget_bytes(&self) -> usize {
        self.ring_budget_bytes.load(Ordering::Relaxed)
    }

    pub(crate) fn old_budget_bytes(&self) -> usize {
        self.old_budget_bytes.load(Ordering::Relaxed)
    }

    /// An update made its row's only version.
    #[inline]
    pub fn count_single(&self) {
        self.chains[0].inc();
    }

    /// An update added a version in front of those that its pruning has left.
    #[inline]
    pub fn count_chain(&self, pruned: &Pruned) {
        let longest = CHAIN_LENGTHS - 1;
        let updates = pruned.stands_for(longest as u32);
        if updates > 0 {
            self.chains[longest.min(pruned.kept as usize)].add(u64::from(updates));
        }
    }

    fn chain_p99(&self) -> u64 {
        let counts: Vec<u64> = self.chains.iter().map(Counter::get).collect();
        let most_above = counts.iter().sum::<u64>() / 100;
        let mut above = 0;
        for (index, count) in counts.iter().enumerate().rev() {
            above += count;
            if above > most_above {
                return index as u64 + 1;
            }
        }
        0
    }

    /// Adds a version and returns its address. Under the record's exclusive page latch (or
    /// before the record names it).
    ///
    /// # Panics
    /// If the body is longer than a page can hold (64 KiB).
    pub fn add(&self, v: NewVersion<'_>) -> VersionAddr {
        debug_assert!(!v.end.is_frozen(), "nobody has replaced the state");
        self.count.made.inc();
        // A small ring is not full of segments that have just been opened.
        let spread = self.ring_budget_bytes() / SEGMENT_BYTES;
        let addr = self.young.add(&v, spread);
        debug_assert!(!addr.is_none() && addr != v.next, "{addr:?} in a circle");
        addr
    }

    /// Begins to follow or change a chain, with the record's page latch held. Do not nest.
    #[inline]
    pub fn walk(&self) -> Walk<'_> {
        let shard = ferrite_sync::shard_index() % WALK_SHARDS;
        Walk {
            store: self,
            _shared: open_walk(&self.walks[shard]),
        }
    }

    /// Waits until no walk is open and keeps new ones out.
    pub(crate) fn pause_walks(&self) -> Vec<RwLockWriteGuard<'_, ()>> {
        self.walks.iter().map(|w| w.write()).collect()
    }

    /// One step of a walk by itself: see [`Walk::read`]. Enough where only the first
    /// version is looked at; a longer chain needs one [`Walk`] over all its steps.
    ///
    /// # Errors
    /// As [`Walk::read`].
    pub fn read(&self, addr: VersionAddr, body: &mut Vec<u8>) -> Result<Option<VersionHead>> {
        self.walk().read(addr, body)
    }

    /// See [`Walk::drop_version`].
    pub fn drop_version(&self, addr: VersionAddr) {
        self.walk().drop_version(addr);
    }

    pub(crate) fn get(&self, addr: VersionAddr, body: &mut Vec<u8>) -> Result<Option<VersionHead>> {
        if addr.is_none() {
            return Ok(None);
        }
        match self.young.read(addr, body) {
            Found::Here(head) => {
                debug_assert_ne!(head.next, addr, "a version in a circle");
                Ok(Some(head))
            }
            Found::Dead => Ok(None),
            Found::Elsewhere => self.old.read(addr, body),
        }
    }

    /// Memory of all versions.
    pub fn bytes(&self) -> u64 {
        self.young_bytes() + self.old_bytes()
    }

    /// Bytes of the young ring, in whole segments.
    pub fn young_bytes(&self) -> u64 {
        self.young.bytes() as u64
    }

    /// Memory of the old generation.
    pub fn old_bytes(&self) -> u64 {
        self.old.bytes()
    }

    /// The young ring is over its budget: somebody should call `retire`.
    pub fn needs_retire(&self) -> bool {
        self.young.bytes() > self.ring_budget_bytes()
    }

    /// Counters and sizes now.
    pub fn stats(&self) -> VersionStats {
        VersionStats {
            made: self.count.made.get(),
            pruned: self.count.pruned.get(),
            moved: self.count.moved.get(),
            folded: self.count.folded.get(),
            vanished: self.count.vanished.get(),
            spilled: self.count.spilled.get(),
            spill_failures: self.count.spill_failures.get(),
            chain_p99: self.chain_p99(),
            spilled_bytes: self.old.file_bytes(),
            young_bytes: self.young_bytes(),
            old_bytes: self.old_bytes(),
            old_versions: self.old.len(),
        }
    }
}

/// Following or changing one chain. Keep it short: retirement waits for it.
#[must_use]
pub struct Walk<'a> {
    pub(crate) store: &'a VersionStore,
    _shared: RwLockReadGuard<'a, ()>,
}

impl Walk<'_> {
    /// Copies a version out: the head by value, the body appended to `body`. `None`: no
    /// older state exists that any snapshot may read.
    ///
    /// # Errors
    /// The version is in a scratch file that cannot be read, or does not give back what was
    /// written.
    pub fn read(&self, addr: VersionAddr, body: &mut Vec<u8>) -> Result<Option<VersionHead>> {
        self.store.get(addr, body)
    }

    /// Makes sure that `set_next` can be done: a spilled version comes back to memory. Under
    /// the record's exclusive page latch.
    ///
    /// # Errors
    /// As [`Walk::read`]; nothing changed.
    pub(crate) fn make_changeable(&self, addr: VersionAddr) -> Result<()> {
        self.store.old.bring_back(addr)
    }

    /// Changes the `next` of a version made changeable in this walk. Under the record's
    /// exclusive page latch.
    pub(crate) fn set_next(&self, addr: VersionAddr, next: VersionAddr) {
        debug_assert!(!addr.is_none() && addr != next, "{addr:?} in a circle");
        if let Found::Elsewhere = self.store.young.set_next(addr, next) {
            let done = self.store.old.set_next(addr, next);
            debug_assert!(done, "{addr:?} is not in memory");
        }
    }

    /// The version was taken out of its chain, or its change was rolled back. Under the
    /// record's exclusive page latch.
    pub fn drop_version(&self, addr: VersionAddr) {
        if addr.is_none() {
            return;
        }
        self.store.count.pruned.inc();
        if let Found::Elsewhere = self.store.young.kill(addr) {
            self.store.old.remove(addr);
        }
    }
}
