//! Many pages read at once: blobs that lie next to each other come with one read, and the reads
//! are in flight together.
//!
//! A bulk load writes leaves next to each other, and so does the writer of pages with those it
//! writes in one batch. One read of 256 KiB takes about three times as long as one of 16 KiB.
//!
//! Invariants: each page that is wanted is told exactly once, one with a delta when both blobs are
//! there. A blob's place counts as the caller gave it: that it is still the page's is the caller's
//! to see to.
//!
//! Locking: none but the file table's, not over I/O.

use ferrite_types::{Error, Result, PAGE_BYTES};

use crate::blob;
use crate::deps::{AlignedBuf, ReadPart};
use crate::pack::Unpacker;
use crate::page_delta::PageRead;
use crate::scratch::ONE_BLOB_BYTES;
use crate::store::Store;
use crate::together_plan::{is_fit, Blob, TogetherReader, Wanted};
use crate::word::{Location, GRANULE_BYTES};

/// A blob that was read and is not looked at yet.
pub struct Arrived<'r> {
    store: &'r Store,
    wanted: Wanted,
    blob: &'r [u8],
    delta: Option<&'r [u8]>,
    unpacker: &'r mut Unpacker,
}

impl Arrived<'_> {
    /// Checks the blob, and makes the page of it in `out` (one page long).
    ///
    /// # Errors
    /// `Corrupt`. It is not counted as such: who wants the page reads it again, alone.
    pub fn restore(self, out: &mut [u8]) -> Result<PageRead> {
        assert_eq!(out.len(), PAGE_BYTES, "a page is read whole");
        let Wanted { page, at, delta } = self.wanted;
        debug_assert!(self.blob.len() == at.bytes(), "{page}");
        let bad = |what: String| Error::Corrupt(format!("page {page}: {what}"));
        let unmarked = |at: Location| match ferrite_sync::mutant!("store.ahead_stale") {
            true => at.with_mark(0),
            false => at,
        };
        let base = self
            .store
            .restore((page, unmarked(at)), self.blob, out, self.unpacker)
            .map_err(bad)?;
        let Some(bytes) = self.delta else {
            return Ok(base);
        };
        let tag = self.store.superblock.tag();
        let bad_delta = |what: &str| {
            let place = self.store.superblock.geometry.describe(delta.granule());
            bad(format!("its delta at {place}: {what}"))
        };
        let (header, body) =
            blob::parse_at(bytes, tag, page, unmarked(delta)).map_err(bad_delta)?;
        self.store.counters.deltas_read.inc();
        let applied = self.store.apply_delta(base, &header, body, out);
        applied.map_err(|what| bad_delta(&what))
    }
}

impl Store {
    /// Buffers for [`Store::read_together`].
    pub fn together_reader(&self) -> TogetherReader {
        TogetherReader::new()
    }

    /// Notes which blobs are to be read from the store: what the second tier has of pages without a delta comes from
    /// there, and what is no blob is told.
    fn take_from_tier(
        &self,
        reader: &mut TogetherReader,
        wanted: &[Wanted],
        each: &mut dyn FnMut(usize, Result<Arrived<'_>>),
    ) {
        let tier = self.tier.get();
        if tier.is_some() && reader.tier_buf.is_empty() {
            reader.tier_buf = AlignedBuf::zeroed(ONE_BLOB_BYTES);
        }
        reader.blobs.clear();
        for (n, &wanted) in wanted.iter().enumerate() {
            let Wanted { page, at, delta } = wanted;
            if !is_fit(&wanted) {
                let text = format!("page {page}: not the length of a blob");
                each(n, Err(Error::Corrupt(text)));
                continue;
            }
            let tier = tier.filter(|_| delta.is_none());
            match tier.and_then(|tier| tier.blob((page, at), &mut reader.tier_buf)) {
                Some(blob) => each(
                    n,
                    Ok(Arrived {
                        store: self,
                        wanted,
                        blob,
                        delta: None,
                        unpacker: &mut reader.unpacker,
                    }),
                ),
                None => {
                    let both = [at, delta].into_iter().filter(|at| !at.is_none());
                    reader.blobs.extend(both.map(|at| Blob { n, at }));
                }
            }
        }
        debug_assert!(
            reader.blobs.len() <= 2 * wanted.len(),
            "more than is wanted"
        );
    }

    /// Reads the blobs of these pages; `each` gets the number of each page with its blobs as they
    /// arrive, in any order, or why there are none.
    pub fn read_together(
        &self,
        reader: &mut TogetherReader,
        wanted: &[Wanted],
        each: &mut dyn FnMut(usize, Result<Arrived<'_>>),
    ) {
        self.take_from_tier(reader, wanted, each);
        reader.plan(&self.files, wanted.len());
        reader.make_room();
        let done = self.read_runs(reader, wanted, each);
        for (run, failed) in done.iter().enumerate() {
            reader.note(run, wanted, failed.as_ref());
        }
        self.tell_pairs(reader, wanted, each);
    }

    /// Reads the runs, and tells of the pages without a delta. Why a run could not be read.
    fn read_runs(
        &self,
        reader: &mut TogetherReader,
        wanted: &[Wanted],
        each: &mut dyn FnMut(usize, Result<Arrived<'_>>),
    ) -> Vec<Option<Error>> {
        let TogetherReader {
            queue,
            buf,
            unpacker,
            blobs,
            runs,
            ..
        } = reader;
        let mut done: Vec<Option<Error>> = vec![None; runs.len()];
        let mut parts = Vec::with_capacity(runs.len());
        let mut started: Vec<usize> = Vec::with_capacity(runs.len());
        let mut rest: &mut [u8] = buf;
        for (nth, run) in runs.iter().enumerate() {
            let (here, behind) = rest.split_at_mut(run.granules as usize * GRANULE_BYTES);
            rest = behind;
            match self.files.place(run.granule) {
                Ok((file, offset)) => {
                    started.push(nth);
                    let buf = here;
                    parts.push(ReadPart { file, offset, buf });
                }
                Err(e) => {
                    let of_run = &blobs[run.first..run.first + run.count];
                    let alone = of_run.iter().filter(|b| wanted[b.n].delta.is_none());
                    alone.for_each(|b| each(b.n, Err(e.clone())));
                    done[nth] = Some(e);
                }
            }
        }
        queue.read_all(&mut parts, &mut |part, bytes| {
            let run = &runs[started[part]];
            debug_assert!(run.count > 0, "a read for nobody");
            done[started[part]] = bytes.as_ref().err().cloned();
            for blob in &blobs[run.first..run.first + run.count] {
                let wanted = wanted[blob.n];
                if !wanted.delta.is_none() {
                    continue;
                }
                let arrived = bytes.as_ref().map_err(|e| e.clone()).map(|bytes| {
                    let from = (blob.at.granule() - run.granule) as usize * GRANULE_BYTES;
                    self.counters.pages_read.inc();
                    self.counters.bytes_read.add(blob.at.bytes() as u64);
                    Arrived {
                        store: self,
                        wanted,
                        blob: &bytes[from..from + blob.at.bytes()],
                        delta: None,
                        unpacker: &mut *unpacker,
                    }
                });
                each(blob.n, arrived);
            }
        });
        done
    }

    /// Tells of the pages with a delta: everything has arrived.
    fn tell_pairs(
        &self,
        reader: &mut TogetherReader,
        wanted: &[Wanted],
        each: &mut dyn FnMut(usize, Result<Arrived<'_>>),
    ) {
        let with_delta = |(n, w): &(usize, &Wanted)| {
            let found = is_fit(w) && !w.delta.is_none();
            debug_assert!(found || reader.pairs[*n].base.is_none(), "{}", w.page);
            found
        };
        for (n, w) in wanted.iter().enumerate().filter(with_delta) {
            let pair = &reader.pairs[n];
            if let Some(e) = &pair.failed {
                each(n, Err(e.clone()));
                continue;
            }
            let (Some(base), Some(delta)) = (pair.base, pair.delta) else {
                panic!("page {}: a blob never arrived", w.page);
            };
            self.counters.pages_read.inc();
            let bytes = w.at.bytes() + w.delta.bytes();
            self.counters.bytes_read.add(bytes as u64);
            let arrived = Arrived {
                store: self,
                wanted: *w,
                blob: &reader.buf[base..base + w.at.bytes()],
                delta: Some(&reader.buf[delta..delta + w.delta.bytes()]),
                unpacker: &mut reader.unpacker,
            };
            each(n, Ok(arrived));
        }
    }
}
