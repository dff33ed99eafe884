//! The row cache: single rows of leaves that are not in memory.
//!
//! In the buffer pool one row that is read often takes a whole page. A row that was read by its key, from a leaf
//! that had to be read from disk for it, is copied here. When the leaf leaves memory as it was then, its copies are
//! valid, and a reader of such a row reads no page. The leaf itself need not stay: it is as cold as before.
//!
//! # Invariants
//! 1. Copies of a leaf are valid only while its directory word says that it is on disk where it was when it
//!    left memory: a page that is not in memory cannot change. Who reads it in, after it has claimed the
//!    word, ends that ([`RowCache::came_in`]) before it lets go of the page's latch. When the page's id is freed
//!    the copies go ([`RowCache::forget`]).
//! 2. Rows are copied under the leaf's shared latch, and noted with its LSN. They become valid under its exclusive
//!    latch, if the page leaves memory with the same LSN ([`RowCache::left`]); otherwise they go.
//! 3. What the change buffer keeps for a page may concern any of its rows: while something is kept, its
//!    copies are not used.
//! 4. The rows of one page take no more than `MOST_BYTES`: of which more is wanted is better kept as a page.
//!
//! What does not fit goes by a clock, as in the pool: rows that were read again survive passes of the hand. Once it is nearly
//! full, a row is copied when it is missed for the second time within about as many misses as there are marks of missed
//! rows: most rows of a large table are read once (compare the doorkeeper of TinyLFU, Einziger et al., 2017).
//!
//! # Locking
//! Frame latch, map lock > a shard here. Nothing is taken under a shard. One who holds a copy holds nothing: the record may
//! be changed or rolled back meanwhile.

use ferrite_store::Location;
use ferrite_sync::atomic::{AtomicUsize, Ordering};
use ferrite_sync::{Counter, Mutex};
use ferrite_types::{IndexId, Lsn, PageId};
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Bound;

/// Locks of their own for the pages whose ids have the same remainder.
const SHARDS: usize = 64;
/// What a page costs here beside its rows, in bytes: its place in the tree of pages.
const PAGE_COST_BYTES: usize = 128;
/// Most bytes of rows of one page.
const MOST_BYTES: usize = 2048;
/// Before each row: the lengths of its key and its record, and its count of the clock.
const ROW_PREFIX_BYTES: usize = 5;
const HOT_AT: usize = 4;
/// There is a mark of a missed row for so many bytes of the limit, up to so many marks of a shard. They are not counted in it.
const BYTES_PER_MARK: usize = 32;
const MOST_MARKS: usize = 1 << 16;
/// Steps of the hand that one who copies a row makes at the most.
const STEPS: usize = 32;
/// So many passes of the hand a row survives at the most without being read.
const HOT_MAX: u8 = 3;

/// Rows of one page.
struct Rows {
    index: IndexId,
    /// The page's, when its rows were copied.
    lsn: Lsn,
    /// Where the page is while the copies are valid; else [`Location::NONE`].
    home: Location,
    /// Each with its prefix: key and record.
    bytes: Vec<u8>,
}

/// One row, where `at` is its prefix.
struct Row<'r> {
    at: usize,
    key: &'r [u8],
    record: &'r [u8],
}

fn row_bytes(key: &[u8], record: &[u8]) -> usize {
    ROW_PREFIX_BYTES + key.len() + record.len()
}

impl Row<'_> {
    fn end(&self) -> usize {
        self.at + row_bytes(self.key, self.record)
    }
}

impl Rows {
    fn cost_bytes(&self) -> usize {
        PAGE_COST_BYTES + self.bytes.capacity()
    }

    fn row_at(&self, at: usize) -> Row<'_> {
        let rest = &self.bytes[at..];
        let len = |at| u16::from_le_bytes([rest[at], rest[at + 1]]) as usize;
        let (key, record) = rest[ROW_PREFIX_BYTES..].split_at(len(0));
        let record = &record[..len(2)];
        Row { at, key, record }
    }

    fn each(&self) -> impl Iterator<Item = Row<'_>> {
        let mut at = 0;
        std::iter::from_fn(move || {
            let row = (at < self.bytes.len()).then(|| self.row_at(at))?;
            at = row.end();
            Some(row)
        })
    }

    fn find(&self, key: &[u8]) -> Option<Row<'_>> {
        self.each().find(|row| row.key == key)
    }

    /// The hand passes: rows that were not read since it came so often go.
    fn cool(&mut self) {
        let (mut at, mut kept) = (0, 0);
        while at < self.bytes.len() {
            let end = self.row_at(at).end();
            if let Some(hot) = self.bytes[at + HOT_AT].checked_sub(1) {
                self.bytes[at + HOT_AT] = hot;
                self.bytes.copy_within(at..end, kept);
                kept += end - at;
            }
            at = end;
        }
        assert!(kept <= at, "{kept} of {at} bytes");
        self.bytes.truncate(kept);
        self.bytes.shrink_to_fit();
    }

    /// False: there is no space for it.
    fn add(&mut self, key: &[u8], record: &[u8]) -> bool {
        let more = row_bytes(key, record);
        if self.bytes.len() + more > MOST_BYTES {
            return false;
        }
        debug_assert!(self.find(key).is_none(), "a row twice");
        self.bytes.reserve_exact(more);
        for part in [key, record] {
            self.bytes
                .extend_from_slice(&(part.len() as u16).to_le_bytes());
        }
        self.bytes.push(0);
        self.bytes.extend_from_slice(key);
        self.bytes.extend_from_slice(record);
        debug_assert!(self.find(key).is_some_and(|row| row.record == record));
        true
    }
}

#[derive(Default)]
struct Shard {
    pages: BTreeMap<PageId, Rows>,
    /// The page that the hand of the clock came to last.
    hand: PageId,
    /// Of all pages, in bytes.
    bytes: usize,
    /// Each the mark of the row missed last of those that belong to its place.
    missed: Vec<u16>,
}

/// Of a row that its page was read for.
#[derive(PartialEq, Eq, Debug)]
pub(crate) enum Copied {
    /// It is here.
    Yes,
    /// It was missed once only.
    NotYet,
    /// It is too long, or there is no space beside the page's other rows.
    No,
}

impl Shard {
    /// Notes that the row is missed. Was it before?
    fn missed_again(&mut self, page: PageId, key: &[u8]) -> bool {
        let mut hasher = DefaultHasher::new();
        (page.0, key).hash(&mut hasher);
        let hash = hasher.finish();
        let places = self.missed.len() as u64;
        debug_assert!(places > 0, "a row is copied to a cache without a limit");
        // No mark is 0, which stands for none.
        let mark = (hash >> 48) as u16 | 1;
        std::mem::replace(&mut self.missed[(hash % places) as usize], mark) == mark
    }

    fn forget(&mut self, page: PageId) {
        let Some(rows) = self.pages.remove(&page) else {
            return;
        };
        assert!(rows.cost_bytes() <= self.bytes, "{} bytes", self.bytes);
        self.bytes -= rows.cost_bytes();
    }

    fn begin(&mut self, page: PageId, (index, lsn): (IndexId, Lsn)) {
        let rows = Rows {
            index,
            lsn,
            home: Location::NONE,
            bytes: Vec::new(),
        };
        self.bytes += rows.cost_bytes();
        let before = self.pages.insert(page, rows);
        assert!(before.is_none(), "{page} has rows already");
    }

    /// The hand goes on to the next page, after the last one to the first.
    fn next_page(&mut self) -> Option<(PageId, &mut Rows)> {
        let beyond = (Bound::Excluded(self.hand), Bound::Unbounded);
        let next = self.pages.range(beyond).next();
        let page = *next.or_else(|| self.pages.first_key_value())?.0;
        self.hand = page;
        self.pages.get_mut(&page).map(|rows| (page, rows))
    }

    /// Throws away rows that the hand comes to until no more than `limit` bytes are left, or after some steps of it.
    fn shrink_to(&mut self, limit: usize) {
        for _ in 0..STEPS {
            if self.bytes <= limit {
                return;
            }
            let (page, rows) = self.next_page().expect("bytes are those of pages");
            let before = rows.cost_bytes();
            rows.cool();
            let after = rows.cost_bytes();
            let is_empty = rows.bytes.is_empty();
            assert!(after <= before, "{after} bytes of {before}");
            self.bytes -= before - after;
            if is_empty {
                self.forget(page);
            }
        }
    }
}

/// See the head of the file.
pub struct RowCache {
    shards: Box<[Mutex<Shard>]>,
    limit_bytes: AtomicUsize,
    bytes: AtomicUsize,
    pages: AtomicUsize,
    /// Rows copied so far.
    pub stored: Counter,
    /// Rows read from here.
    pub hits: Counter,
}

impl RowCache {
    pub(crate) fn new() -> RowCache {
        RowCache {
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            limit_bytes: AtomicUsize::new(0),
            bytes: AtomicUsize::new(0),
            pages: AtomicUsize::new(0),
            stored: Counter::default(),
            hits: Counter::default(),
        }
    }

    /// Are rows copied at all?
    #[inline]
    pub fn is_on(&self) -> bool {
        self.limit_bytes.load(Ordering::Relaxed) > 0
    }

    /// Most bytes that it may take.
    pub fn limit_bytes(&self) -> usize {
        self.limit_bytes.load(Ordering::Relaxed)
    }

    /// Bytes of the rows that it has now.
    pub fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Memory that it takes in all, in bytes.
    pub fn memory_bytes(&self) -> usize {
        let marks = SHARDS * Self::marks(self.limit_bytes()) * size_of::<u16>();
        self.bytes() + marks + size_of_val(&*self.shards)
    }

    /// Pages of which there are rows.
    pub fn pages(&self) -> usize {
        self.pages.load(Ordering::Relaxed)
    }

    /// It may take so many bytes from here on. 0: nothing is copied, and what was copied goes.
    pub fn set_limit(&self, bytes: usize) {
        self.limit_bytes.store(bytes, Ordering::SeqCst);
        let (limit, marks) = (bytes / SHARDS, Self::marks(bytes));
        for shard in &self.shards {
            let missed = vec![0; marks];
            let before = self.with(shard, |shard| {
                if marks == 0 {
                    return Some(std::mem::take(shard));
                }
                shard.missed = missed;
                None
            });
            // All at once it takes its time, and without the lock.
            drop(before);
            while self.with(shard, |shard| {
                shard.shrink_to(limit);
                shard.bytes > limit
            }) {}
        }
    }

    /// Marks of missed rows in a shard.
    fn marks(limit: usize) -> usize {
        limit.div_ceil(SHARDS * BYTES_PER_MARK).min(MOST_MARKS)
    }

    fn shard_of(&self, page: PageId) -> &Mutex<Shard> {
        &self.shards[page.0 as usize % SHARDS]
    }

    /// Runs `f` on the locked shard, and counts what it changes.
    fn with<R>(&self, shard: &Mutex<Shard>, f: impl FnOnce(&mut Shard) -> R) -> R {
        let mut shard = shard.lock();
        let (bytes, pages) = (shard.bytes, shard.pages.len());
        let result = f(&mut shard);
        debug_assert!(shard.bytes >= PAGE_COST_BYTES * shard.pages.len());
        let adjust = |total: &AtomicUsize, before: usize, after: usize| {
            // One addition, modulo the word: no reader sees less than nothing.
            total.fetch_add(after.wrapping_sub(before), Ordering::Relaxed);
        };
        adjust(&self.bytes, bytes, shard.bytes);
        adjust(&self.pages, pages, shard.pages.len());
        result
    }

    /// Nothing was ever copied, or all of it is gone: what happens to pages is of no interest.
    fn is_empty(&self) -> bool {
        self.pages.load(Ordering::SeqCst) == 0
    }

    /// Copies a row of the page, whose shared latch is held.
    pub(crate) fn put(
        &self,
        page: PageId,
        of: (IndexId, Lsn),
        key: &[u8],
        record: &[u8],
    ) -> Copied {
        let limit = self.limit_bytes() / SHARDS;
        self.with(self.shard_of(page), |shard| {
            if shard.missed.is_empty() || row_bytes(key, record) > MOST_BYTES {
                // It was switched off meanwhile; or there would never be space.
                return Copied::No;
            }
            if let Some(rows) = shard.pages.get_mut(&page) {
                assert!(
                    rows.home.is_none(),
                    "{page} is in memory, its copies are valid"
                );
                if (rows.index, rows.lsn) != of {
                    shard.forget(page);
                } else if rows.find(key).is_some() {
                    return Copied::Yes;
                }
            }
            if shard.bytes > limit / 8 * 7 && !shard.missed_again(page, key) {
                return Copied::NotYet;
            }
            if !shard.pages.contains_key(&page) {
                shard.begin(page, of);
            }
            let rows = shard.pages.get_mut(&page).expect("it was just begun");
            let before = rows.cost_bytes();
            let added = rows.add(key, record);
            let more = rows.cost_bytes() - before;
            shard.bytes += more;
            shard.shrink_to(limit);
            if shard.bytes > limit {
                // All that the hand came to is read all the time: this must do without.
                shard.forget(page);
            }
            if !added {
                return Copied::No;
            }
            self.stored.inc();
            Copied::Yes
        })
    }

    /// The page, whose exclusive latch is held, is about to leave memory as it is at `home`: its rows become valid.
    pub(crate) fn left(&self, page: PageId, lsn: Lsn, home: Location) {
        if self.is_empty() {
            return;
        }
        self.with(self.shard_of(page), |shard| {
            let Some(rows) = shard.pages.get_mut(&page) else {
                return;
            };
            assert!(rows.home.is_none(), "{page} was not in memory");
            if rows.lsn == lsn || ferrite_sync::mutant!("buffer.row_of_before") {
                rows.home = home.stored();
            } else {
                shard.forget(page);
            }
        });
    }

    /// The page comes into memory, and its exclusive latch is held: its copies are not valid any more.
    pub(crate) fn came_in(&self, page: PageId) {
        if self.is_empty() || ferrite_sync::mutant!("buffer.row_stays_valid") {
            return;
        }
        self.with(self.shard_of(page), |shard| {
            if let Some(rows) = shard.pages.get_mut(&page) {
                rows.home = Location::NONE;
            }
        });
    }

    /// The page's id names no page any more.
    pub(crate) fn forget(&self, page: PageId) {
        if !self.is_empty() {
            self.with(self.shard_of(page), |shard| shard.forget(page));
        }
    }

    /// The valid copy of a row of the page, appended to `out`. `now`: where the page is, asked for under the lock.
    pub(crate) fn find(
        &self,
        page: PageId,
        index: IndexId,
        key: &[u8],
        now: impl FnOnce() -> Option<Location>,
        out: &mut Vec<u8>,
    ) -> bool {
        let mut shard = self.shard_of(page).lock();
        let Some(rows) = shard.pages.get_mut(&page) else {
            return false;
        };
        if rows.home.is_none() || rows.index != index || now() != Some(rows.home) {
            return false;
        }
        let Some(row) = rows.find(key) else {
            return false;
        };
        out.extend_from_slice(row.record);
        let hot = row.at + HOT_AT;
        rows.bytes[hot] = (rows.bytes[hot] + 1).min(HOT_MAX);
        self.hits.inc();
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ferrite_types::format::Codec;

    const PAGE: PageId = PageId(77);
    const INDEX: IndexId = IndexId(5);

    fn at(n: u64) -> Location {
        Location::new(n * 16, 16, Codec::None)
    }

    fn find(cache: &RowCache, key: &[u8], now: Location) -> Option<Vec<u8>> {
        let mut out = Vec::new();
        let found = cache.find(PAGE, INDEX, key, || Some(now), &mut out);
        found.then_some(out)
    }

    fn cache() -> RowCache {
        let cache = RowCache::new();
        cache.set_limit(1 << 20);
        cache
    }

    #[test]
    fn a_copy_is_valid_from_when_the_page_leaves_until_it_comes_in() {
        let cache = cache();
        assert_eq!(cache.put(PAGE, (INDEX, Lsn(9)), b"k", b"row"), Copied::Yes);
        assert_eq!(
            cache.put(PAGE, (INDEX, Lsn(9)), b"l", b"other"),
            Copied::Yes
        );
        assert_eq!(find(&cache, b"k", at(1)), None, "the page is in memory");
        cache.left(PAGE, Lsn(9), at(1));
        assert_eq!(find(&cache, b"k", at(1)).as_deref(), Some(&b"row"[..]));
        assert_eq!(find(&cache, b"l", at(1)).as_deref(), Some(&b"other"[..]));
        assert_eq!(find(&cache, b"m", at(1)), None);
        assert_eq!(find(&cache, b"k", at(2)), None, "the page is elsewhere");
        cache.came_in(PAGE);
        assert_eq!(find(&cache, b"k", at(1)), None, "the page is in memory");
        cache.left(PAGE, Lsn(9), at(1));
        assert!(find(&cache, b"k", at(1)).is_some(), "it was not changed");
        cache.forget(PAGE);
        assert_eq!(find(&cache, b"k", at(1)), None);
        assert_eq!((cache.bytes(), cache.pages()), (0, 0));
    }

    #[test]
    fn a_page_that_was_changed_leaves_no_copy() {
        let cache = cache();
        assert_eq!(cache.put(PAGE, (INDEX, Lsn(9)), b"k", b"row"), Copied::Yes);
        cache.left(PAGE, Lsn(10), at(1));
        assert_eq!(find(&cache, b"k", at(1)), None);
        assert_eq!((cache.bytes(), cache.pages()), (0, 0));
        // What is copied of another state takes the place of what was there.
        assert_eq!(
            cache.put(PAGE, (INDEX, Lsn(11)), b"k", b"before"),
            Copied::Yes
        );
        assert_eq!(
            cache.put(PAGE, (INDEX, Lsn(12)), b"l", b"after"),
            Copied::Yes
        );
        cache.left(PAGE, Lsn(12), at(1));
        assert_eq!(find(&cache, b"k", at(1)), None);
        assert!(find(&cache, b"l", at(1)).is_some());
    }

    #[test]
    fn it_keeps_to_its_limit_and_keeps_what_is_used() {
        let cache = cache();
        let miss = |n: u32| {
            let page = PageId(n + 100);
            let copied = cache.put(page, (INDEX, Lsn(9)), &n.to_be_bytes(), &[7; 100]);
            cache.left(page, Lsn(9), at(1));
            assert!(cache.bytes() <= 1 << 20, "{} bytes", cache.bytes());
            copied
        };
        let read = |n: u32| {
            let key = n.to_be_bytes();
            let now = || Some(at(1));
            cache.find(PageId(n + 100), INDEX, &key, now, &mut Vec::new())
        };
        let mut once = 0;
        for n in 0..100_000 {
            if miss(n) == Copied::NotYet {
                once += 1;
                assert_eq!(miss(n), Copied::Yes, "the second time");
            }
            // The first one is wanted all the time.
            assert!(read(0), "after {n} others");
        }
        assert!(once > 90_000, "{once} were not copied at once");
        assert!(cache.bytes() > 1 << 19, "{} bytes", cache.bytes());
        // What is read once does not push out the others.
        let first = cache.stored.get();
        (200_000..300_000).for_each(|n| assert_ne!(miss(n), Copied::No));
        let stored = cache.stored.get() - first;
        assert!(stored < 2000, "{stored} of 100000");
        cache.set_limit(0);
        assert_eq!((cache.bytes(), cache.pages()), (0, 0));
        assert_eq!(miss(1), Copied::No, "it is off");
    }

    #[test]
    fn many_rows_of_a_page_are_not_kept() {
        let cache = cache();
        let put = |n: u32| cache.put(PAGE, (INDEX, Lsn(9)), &n.to_be_bytes(), &[7; 100]);
        let kept = (0..100).take_while(|n| put(*n) == Copied::Yes).count();
        assert!((10..=20).contains(&kept), "{kept} rows");
        assert_eq!(put(0), Copied::Yes, "it is there");
        let long = cache.put(PAGE, (INDEX, Lsn(9)), b"long", &[7; 3000]);
        assert_eq!(long, Copied::No);
    }
}
