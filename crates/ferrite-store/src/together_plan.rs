//! The reads for many pages: which blobs come with one read, and where each comes to lie.
//!
//! Invariants: each blob is in exactly one run; runs do not cross files, and have their places in the
//! buffer one behind the other.
//!
//! Locking: none; a reader belongs to one thread at a time.

use ferrite_types::{Error, PageId};

use crate::blob::MAX_BLOB_GRANULES;
use crate::deps::{AlignedBuf, ReadQueue};
use crate::files::Files;
use crate::pack::Unpacker;
use crate::page_delta::MAX_DELTA_GRANULES;
use crate::word::{Location, BLOCK_GRANULES, GRANULE_BYTES};

/// Longest single read, in granules: 256 KiB.
const RUN_GRANULES: u64 = 256;
/// So many granules that nobody wants are read along rather than that a second read is made.
const GAP_GRANULES: u64 = 16;
const _: () = assert!(RUN_GRANULES as usize >= MAX_BLOB_GRANULES);

/// One thread's buffers for [`Store::read_together`]; reusable.
pub struct TogetherReader {
    pub(crate) queue: ReadQueue,
    pub(crate) buf: AlignedBuf,
    pub(crate) unpacker: Unpacker,
    /// By place.
    pub(crate) blobs: Vec<Blob>,
    pub(crate) runs: Vec<Run>,
    /// Where in `buf` the two blobs of each wanted page with a delta are.
    pub(crate) pairs: Vec<Pair>,
    /// For one blob of the second tier.
    pub(crate) tier_buf: AlignedBuf,
}

/// A page that is wanted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Wanted {
    /// The page.
    pub page: PageId,
    /// Where its blob is.
    pub at: Location,
    /// Where its delta is; [`Location::NONE`]: it has none.
    pub delta: Location,
}

/// A blob to be read, of the wanted page of that number.
#[derive(Clone, Copy)]
pub(crate) struct Blob {
    pub(crate) n: usize,
    pub(crate) at: Location,
}

/// The two blobs of a page, as far as they have arrived.
#[derive(Clone, Default)]
pub(crate) struct Pair {
    pub(crate) base: Option<usize>,
    pub(crate) delta: Option<usize>,
    pub(crate) failed: Option<Error>,
}

/// One read of whole blocks: `blobs[first..first + count]`.
pub(crate) struct Run {
    pub(crate) granule: u64,
    pub(crate) granules: u64,
    /// Where in `buf`.
    pub(crate) from: usize,
    pub(crate) first: usize,
    pub(crate) count: usize,
}

impl TogetherReader {
    pub(crate) fn new() -> TogetherReader {
        TogetherReader {
            queue: ReadQueue::new(),
            buf: AlignedBuf::zeroed(0),
            unpacker: Unpacker::new(),
            blobs: Vec::new(),
            runs: Vec::new(),
            pairs: Vec::new(),
            tier_buf: AlignedBuf::zeroed(0),
        }
    }

    /// Puts the noted blobs of `wanted` pages in the order of their places, and cuts them into runs.
    pub(crate) fn plan(&mut self, files: &Files, wanted: usize) {
        self.blobs.sort_unstable_by_key(|blob| blob.at.granule());
        self.runs.clear();
        for (i, blob) in self.blobs.iter().enumerate() {
            let (begin, end) = blob.at.blocks();
            if let Some(run) = self.runs.last_mut() {
                let so_far = run.granule + run.granules;
                let near = begin <= so_far + GAP_GRANULES;
                let short = end.max(so_far) - run.granule <= RUN_GRANULES;
                if near && short && files.number(run.granule) == files.number(end - 1) {
                    run.granules = end.max(so_far) - run.granule;
                    run.count += 1;
                    continue;
                }
            }
            self.runs.push(Run {
                granule: begin,
                granules: end - begin,
                from: 0,
                first: i,
                count: 1,
            });
        }
        let planned: usize = self.runs.iter().map(|run| run.count).sum();
        assert!(planned == self.blobs.len(), "{planned} blobs in runs");
        debug_assert!(self.runs.iter().all(|run| run.granules <= RUN_GRANULES));
        self.pairs.clear();
        self.pairs.resize(wanted, Pair::default());
    }

    /// A buffer for all runs.
    pub(crate) fn make_room(&mut self) {
        let mut bytes = 0;
        for run in &mut self.runs {
            run.from = bytes;
            bytes += run.granules as usize * GRANULE_BYTES;
        }
        if self.buf.len() < bytes {
            self.buf = AlignedBuf::zeroed(bytes);
        }
        assert!(self.buf.len() >= bytes, "room for {bytes} bytes");
    }

    /// What became of the read of a run of which some pages have a delta.
    pub(crate) fn note(&mut self, run: usize, wanted: &[Wanted], failed: Option<&Error>) {
        let run = &self.runs[run];
        for blob in &self.blobs[run.first..run.first + run.count] {
            let pair = &mut self.pairs[blob.n];
            if wanted[blob.n].delta.is_none() {
                continue;
            }
            let from = run.from + (blob.at.granule() - run.granule) as usize * GRANULE_BYTES;
            match failed {
                Some(e) => pair.failed = Some(e.clone()),
                None if blob.at.is_delta() => pair.delta = Some(from),
                None => pair.base = Some(from),
            }
        }
    }
}

/// Can these be places of a page's blobs?
pub(crate) fn is_fit(wanted: &Wanted) -> bool {
    let (base, delta) = (wanted.at.granules(), wanted.delta.granules());
    (1..=MAX_BLOB_GRANULES).contains(&(base as usize))
        && delta <= (MAX_DELTA_GRANULES as u32).next_multiple_of(BLOCK_GRANULES)
}
