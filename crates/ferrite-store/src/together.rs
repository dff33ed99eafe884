//! Many pages read at once: blobs that lie next to each other come with one read, and the reads
//! are in flight together.
//!
//! A bulk load writes leaves next to each other, and so does the writer of pages with those it
//! writes in one batch. One read of 256 KiB takes about three times as long as one of 16 KiB.
//!
//! Invariants: each page that is wanted is told exactly once. A blob's place counts as the
//! caller gave it: that it is still the page's is the caller's to see to.
//!
//! Locking: none but the file table's, not over I/O.

use ferrite_types::{Error, PageId, Result, PAGE_BYTES};

use crate::blob::{PageHeader, MAX_BLOB_GRANULES};
use crate::deps::{AlignedBuf, ReadPart, ReadQueue};
use crate::pack::Unpacker;
use crate::scratch::ONE_BLOB_BYTES;
use crate::store::Store;
use crate::word::{Location, GRANULE_BYTES};

/// Longest single read, in granules: 256 KiB.
const RUN_GRANULES: u64 = 256;
/// So many granules that nobody wants are read along rather than that a second read is made.
const GAP_GRANULES: u64 = 16;
const _: () = assert!(RUN_GRANULES as usize >= MAX_BLOB_GRANULES);

/// One thread's buffers for [`Store::read_together`]; reusable.
pub struct TogetherReader {
    queue: ReadQueue,
    buf: AlignedBuf,
    unpacker: Unpacker,
    /// Numbers of the wanted pages, by place.
    by_place: Vec<usize>,
    runs: Vec<Run>,
    /// For one blob of the second tier.
    tier_buf: AlignedBuf,
}

/// One read of whole blocks: `by_place[first..first + pages]`.
struct Run {
    granule: u64,
    granules: u64,
    first: usize,
    pages: usize,
}

/// A blob that was read and is not looked at yet.
pub struct Arrived<'r> {
    store: &'r Store,
    page: PageId,
    at: Location,
    blob: &'r [u8],
    unpacker: &'r mut Unpacker,
}

impl Arrived<'_> {
    /// Checks the blob, and makes the page of it in `out` (one page long).
    ///
    /// # Errors
    /// `Corrupt`. It is not counted as such: who wants the page reads it again, alone.
    pub fn restore(self, out: &mut [u8]) -> Result<PageHeader> {
        assert_eq!(out.len(), PAGE_BYTES, "a page is read whole");
        debug_assert!(self.blob.len() == self.at.bytes(), "{}", self.page);
        let at = match ferrite_sync::mutant!("store.ahead_stale") {
            true => self.at.with_mark(0),
            false => self.at,
        };
        self.store
            .restore((self.page, at), self.blob, out, self.unpacker)
            .map_err(|what| Error::Corrupt(format!("page {}: {what}", self.page)))
    }
}

impl TogetherReader {
    /// Puts the pages in `by_place` in the order of their places, and cuts them into runs.
    fn plan(&mut self, store: &Store, wanted: &[(PageId, Location)]) {
        self.by_place
            .sort_unstable_by_key(|&n| wanted[n].1.granule());
        self.runs.clear();
        for (i, &n) in self.by_place.iter().enumerate() {
            let at = wanted[n].1;
            let (begin, end) = at.blocks();
            if let Some(run) = self.runs.last_mut() {
                let so_far = run.granule + run.granules;
                let near = begin <= so_far + GAP_GRANULES;
                let short = end.max(so_far) - run.granule <= RUN_GRANULES;
                if near && short && store.files.number(run.granule) == store.files.number(end - 1) {
                    run.granules = end.max(so_far) - run.granule;
                    run.pages += 1;
                    continue;
                }
            }
            self.runs.push(Run {
                granule: begin,
                granules: end - begin,
                first: i,
                pages: 1,
            });
        }
        let planned: usize = self.runs.iter().map(|run| run.pages).sum();
        assert!(planned == self.by_place.len(), "{planned} pages in runs");
        debug_assert!(self.runs.iter().all(|run| run.granules <= RUN_GRANULES));
    }

    /// A buffer for all runs.
    fn make_room(&mut self) {
        let granules: u64 = self.runs.iter().map(|run| run.granules).sum();
        let bytes = granules as usize * GRANULE_BYTES;
        if self.buf.len() < bytes {
            self.buf = AlignedBuf::zeroed(bytes);
        }
        assert!(self.buf.len() >= bytes, "room for {bytes} bytes");
    }
}

impl Store {
    /// Buffers for [`Store::read_together`].
    pub fn together_reader(&self) -> TogetherReader {
        TogetherReader {
            queue: ReadQueue::new(),
            buf: AlignedBuf::zeroed(0),
            unpacker: Unpacker::new(),
            by_place: Vec::new(),
            runs: Vec::new(),
            tier_buf: AlignedBuf::zeroed(0),
        }
    }

    /// Notes in `by_place` what is to be read from the store: what the second tier has comes from there, and what
    /// is no blob is told.
    fn take_from_tier(
        &self,
        reader: &mut TogetherReader,
        wanted: &[(PageId, Location)],
        each: &mut dyn FnMut(usize, Result<Arrived<'_>>),
    ) {
        let tier = self.tier.get();
        if tier.is_some() && reader.tier_buf.is_empty() {
            reader.tier_buf = AlignedBuf::zeroed(ONE_BLOB_BYTES);
        }
        reader.by_place.clear();
        for (n, &(page, at)) in wanted.iter().enumerate() {
            if !(1..=MAX_BLOB_GRANULES).contains(&(at.granules() as usize)) {
                let text = format!("page {page}: not the length of a blob");
                each(n, Err(Error::Corrupt(text)));
                continue;
            }
            match tier.and_then(|tier| tier.blob((page, at), &mut reader.tier_buf)) {
                Some(blob) => each(
                    n,
                    Ok(Arrived {
                        store: self,
                        page,
                        at,
                        blob,
                        unpacker: &mut reader.unpacker,
                    }),
                ),
                None => reader.by_place.push(n),
            }
        }
        debug_assert!(reader.by_place.len() <= wanted.len(), "more than is wanted");
    }

    /// Reads the blobs of these pages; `each` gets the number of each page with its blob as it
    /// arrives, in any order, or why there is none.
    pub fn read_together(
        &self,
        reader: &mut TogetherReader,
        wanted: &[(PageId, Location)],
        each: &mut dyn FnMut(usize, Result<Arrived<'_>>),
    ) {
        self.take_from_tier(reader, wanted, each);
        reader.plan(self, wanted);
        reader.make_room();
        let TogetherReader {
            queue,
            buf,
            unpacker,
            by_place,
            runs,
            ..
        } = reader;
        let mut parts = Vec::with_capacity(runs.len());
        let mut started: Vec<&Run> = Vec::with_capacity(runs.len());
        let mut rest: &mut [u8] = buf;
        for run in runs.iter() {
            let (here, behind) = rest.split_at_mut(run.granules as usize * GRANULE_BYTES);
            rest = behind;
            match self.files.place(run.granule) {
                Ok((file, offset)) => {
                    started.push(run);
                    let buf = here;
                    parts.push(ReadPart { file, offset, buf });
                }
                Err(e) => {
                    (0..run.pages).for_each(|i| each(by_place[run.first + i], Err(e.clone())))
                }
            }
        }
        queue.read_all(&mut parts, &mut |part, bytes| {
            let run = started[part];
            debug_assert!(run.pages > 0, "a read for nobody");
            for &n in &by_place[run.first..run.first + run.pages] {
                let (page, at) = wanted[n];
                let blob = bytes.as_ref().map_err(|e| e.clone()).map(|bytes| {
                    let from = (at.granule() - run.granule) as usize * GRANULE_BYTES;
                    self.counters.pages_read.inc();
                    self.counters.bytes_read.add(at.bytes() as u64);
                    Arrived {
                        store: self,
                        page,
                        at,
                        blob: &bytes[from..from + at.bytes()],
                        unpacker: &mut *unpacker,
                    }
                });
                each(n, blob);
            }
        });
    }
}
