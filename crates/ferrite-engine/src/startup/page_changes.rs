//! Page operations collected from the log in memory of a given size, and put in order by page.
//!
//! A record may change several pages (a split changes three), but what it does to one page depends
//! on that page alone: it is taken apart, a piece for each page. Only the order of the pieces of
//! one page counts.
//!
//! Locking: none; one thread fills, then many read.

use crate::log_records::undo;
use crate::startup::page_fates::{Hasher, PageFates};
use ferrite_buffer::CollectedRedo;
use ferrite_redo::LogRecord;
use ferrite_store::Store;
use ferrite_tree::op::{Op, Ops};
use ferrite_types::format::record_kind;
use ferrite_types::{Error, IndexId, Lsn, PageId, Result};
use std::collections::HashMap;
use std::ops::Range;

/// Bytes that are allocated at a time.
const CHUNK_BYTES: usize = 1 << 20;

/// What one record does to one page.
#[derive(Clone, Copy)]
pub(crate) struct Piece {
    pub page: PageId,
    pub index: IndexId,
    pub start: Lsn,
    /// Of the record in the log.
    record_bytes: u32,
    chunk: u32,
    at: u32,
    /// The length, and whether it gives the page its whole content.
    len_creates: u32,
}

// Millions of them are in memory at a time.
const _: () = assert!(size_of::<Piece>() == 32);

impl Piece {
    /// Where the record ends.
    pub(crate) fn end(&self) -> Lsn {
        Lsn(self.start.0 + u64::from(self.record_bytes))
    }

    fn len(&self) -> usize {
        (self.len_creates >> 1) as usize
    }

    /// The page has its whole content from this.
    pub(crate) fn creates(&self) -> bool {
        self.len_creates & 1 == 1
    }
}

/// One operation of a record that is being taken apart.
struct Part {
    page: PageId,
    index: IndexId,
    bytes: Range<usize>,
    creates: bool,
    taken: bool,
}

/// What a page lacks.
pub(crate) struct PagePieces {
    pub page: PageId,
    pub index: IndexId,
    /// Of the order by page: see [`PageChanges::piece`].
    nths: Range<usize>,
    /// Of these, pieces before the last one that gives the page its whole content: with it they are gone.
    gone: usize,
    /// There is one such.
    pub creates: bool,
    /// Where the first record of those that are needed begins, and the last one ends.
    pub span: (Lsn, Lsn),
    /// Of their operations.
    pub bytes: usize,
    /// It cannot be put off: they are of two indexes (redo will say that they disagree with the page).
    pub at_once: bool,
}

/// What it takes for a piece to put them in order by page: its page's place and its own.
const ORDER_BYTES: usize = 2 * size_of::<u32>();

/// Of a piece that its page does not lack.
const NOT_MISSING: u32 = u32::MAX;

impl PagePieces {
    /// Nothing of the piece's page yet.
    fn none_of(piece: &Piece) -> PagePieces {
        PagePieces {
            page: piece.page,
            index: piece.index,
            nths: 0..0,
            gone: 0,
            creates: false,
            span: (piece.start, piece.start),
            bytes: 0,
            at_once: false,
        }
    }

    /// One more, the next in the log.
    fn add(&mut self, piece: &Piece) {
        assert!(self.span.1 <= piece.start, "{}: out of order", self.page);
        debug_assert!(self.page == piece.page, "{} of {}", piece.page, self.page);
        if self.nths.is_empty() || piece.creates() {
            (self.index, self.span.0) = (piece.index, piece.start);
            (self.gone, self.bytes, self.at_once) = (self.nths.len(), 0, false);
        }
        self.creates |= piece.creates();
        self.span.1 = piece.end();
        self.nths.end += 1;
        self.bytes += piece.len();
        self.at_once |= self.index != piece.index;
    }

    /// Those that are needed, of the order by page: see [`PageChanges::piece`].
    pub(crate) fn needed(&self) -> Range<usize> {
        debug_assert!(self.gone < self.nths.len(), "{} needs nothing", self.page);
        self.nths.start + self.gone..self.nths.end
    }
}

/// Pieces in the order of the log, and (see [`PageChanges::in_order`]) their order by page.
#[derive(Default)]
pub(crate) struct PageChanges {
    chunks: Vec<Vec<u8>>,
    pub pieces: Vec<Piece>,
    /// Places in `pieces`.
    order: Vec<u32>,
    bytes: usize,
    parts: Vec<Part>,
}

impl PageChanges {
    /// Takes in what the record does to pages, as far as `wanted` says so.
    ///
    /// # Errors
    /// `Corrupt`: the record cannot be read.
    pub(crate) fn add(
        &mut self,
        rec: &LogRecord<'_>,
        wanted: &mut dyn FnMut(&Op<'_>) -> bool,
    ) -> Result<()> {
        if rec.kind != record_kind::MINI_TXN {
            return Ok(());
        }
        let last = self.pieces.last().map_or(Lsn::ZERO, Piece::end);
        assert!(last <= rec.start, "a record at {} after {last}", rec.start);
        let (_, body) = undo::open_body(rec.body)?;
        self.parts.clear();
        let mut ops = Ops::new(body);
        let mut from = 0;
        while let Some(op) = ops.next() {
            let op = op?;
            let to = body.len() - ops.rest().len();
            if !op.frees() && wanted(&op) {
                self.parts.push(Part {
                    page: op.page,
                    index: op.index,
                    bytes: from..to,
                    creates: op.creates(),
                    taken: false,
                });
            }
            from = to;
        }
        self.take_apart(rec, body)
    }

    fn take_apart(&mut self, rec: &LogRecord<'_>, body: &[u8]) -> Result<()> {
        let mut parts = std::mem::take(&mut self.parts);
        for i in 0..parts.len() {
            if parts[i].taken {
                continue;
            }
            let page = parts[i].page;
            let len = parts[i..].iter().filter(|p| p.page == page);
            let len: usize = len.map(|p| p.bytes.len()).sum();
            let (chunk, at) = self.room(len)?;
            let piece = Piece {
                page,
                index: parts[i].index,
                start: rec.start,
                record_bytes: (rec.end.0 - rec.start.0) as u32,
                chunk,
                at,
                len_creates: (len as u32) << 1 | u32::from(parts[i].creates),
            };
            debug_assert_eq!((piece.end(), piece.len()), (rec.end, len));
            for part in parts[i..].iter_mut().filter(|p| p.page == page) {
                part.taken = true;
                self.chunks[chunk as usize].extend_from_slice(&body[part.bytes.clone()]);
            }
            assert!(self.ops_of(&piece).len() == len, "{page} at {}", rec.start);
            self.pieces.push(piece);
            self.bytes += len;
        }
        self.parts = parts;
        Ok(())
    }

    /// Room for so many bytes: which chunk, and where in it.
    fn room(&mut self, len: usize) -> Result<(u32, u32)> {
        let fits = |c: &Vec<u8>| c.capacity() - c.len() >= len;
        if !self.chunks.last().is_some_and(fits) {
            let small = self.chunks.is_empty() && len < CHUNK_BYTES / 64;
            let bytes = if small { CHUNK_BYTES / 16 } else { CHUNK_BYTES };
            self.chunks.push(Vec::with_capacity(bytes.max(len)));
        }
        let chunk = self.chunks.len() - 1;
        let at = self.chunks[chunk].len();
        match (u32::try_from(chunk), u32::try_from(at)) {
            (Ok(chunk), Ok(at)) if self.pieces.len() < u32::MAX as usize => Ok((chunk, at)),
            _ => Err(Error::Bug(format!(
                "too many page changes in memory: {chunk}"
            ))),
        }
    }

    /// Bytes of memory in use.
    pub(crate) fn memory(&self) -> usize {
        self.bytes + self.pieces.len() * (size_of::<Piece>() + ORDER_BYTES)
    }

    /// The piece's operations, encoded.
    pub(crate) fn ops_of(&self, piece: &Piece) -> &[u8] {
        let at = piece.at as usize;
        &self.chunks[piece.chunk as usize][at..at + piece.len()]
    }

    /// Throws away what no page lacks, by what is known now; the memory can be used again.
    pub(crate) fn compact(&mut self, fates: &PageFates) {
        let before = self.memory();
        let old = std::mem::take(&mut self.chunks);
        let pieces = std::mem::take(&mut self.pieces);
        self.bytes = 0;
        let mut old: Vec<Option<Vec<u8>>> = old.into_iter().map(Some).collect();
        let mut at_chunk = 0;
        for mut piece in pieces {
            // In the order of the log, so in that of the chunks: those behind us are done with.
            let chunk = piece.chunk as usize;
            assert!(at_chunk <= chunk, "chunk {chunk} after {at_chunk}");
            old[at_chunk..chunk].fill(None);
            at_chunk = chunk;
            if !fates.is_missing(piece.page, piece.index, piece.end()) {
                continue;
            }
            let (from, len) = (piece.at as usize, piece.len());
            let bytes = old[chunk].as_ref().map(|c| &c[from..from + len]);
            let bytes = bytes.unwrap_or_else(|| panic!("chunk {chunk} is gone"));
            let fits = |c: &Vec<u8>| c.capacity() - c.len() >= len;
            if !self.chunks.last().is_some_and(fits) {
                self.chunks.push(Vec::with_capacity(CHUNK_BYTES.max(len)));
            }
            let target = self.chunks.len() - 1;
            piece.chunk = target as u32;
            piece.at = self.chunks[target].len() as u32;
            self.chunks[target].extend_from_slice(bytes);
            self.bytes += len;
            self.pieces.push(piece);
        }
        assert!(self.memory() <= before, "{} of {before}", self.memory());
    }

    /// The nth piece in the order by page.
    pub(crate) fn piece(&self, nth: usize) -> &Piece {
        &self.pieces[self.order[nth] as usize]
    }

    /// Puts what pages lack in order by page, the pieces of one page as in the log. Gives the pages, in the
    /// order in which they lie on disk; behind those the ones that are nowhere: each of these needs a place that nobody leaves,
    /// and where there is none those on disk, one after the other, need not wait for it.
    ///
    /// Counted, not sorted: the pieces are passed over in the order in which they lie in memory.
    pub(crate) fn in_order(&mut self, store: &Store, fates: &PageFates) -> Vec<PagePieces> {
        let (mut pages, page_of) = self.by_page(fates);
        let mut from = 0;
        for of in &mut pages {
            let count = of.nths.len();
            of.nths = from..from;
            from += count;
        }
        self.order = vec![0; from];
        for (place, page) in page_of.into_iter().enumerate() {
            if page != NOT_MISSING {
                let nths = &mut pages[page as usize].nths;
                self.order[nths.end] = place as u32;
                nths.end += 1;
            }
        }
        pages.retain(|of| !of.nths.is_empty());
        if ferrite_sync::mutant!("recovery.page_of_two_workers") {
            pages = pages.into_iter().flat_map(|of| self.halves(of)).collect();
        }
        let place = |of: &PagePieces| {
            let word = store.directory().get(of.page);
            if word.as_frame().is_some() {
                // An earlier batch has left it in memory: before others take its frame.
                return 0;
            }
            let on_disk = word.as_location().filter(|at| !at.is_none());
            on_disk.map_or(u64::MAX, |at| at.granule() + 1)
        };
        pages.sort_by_cached_key(place);
        let all: usize = pages.iter().map(|of| of.nths.len()).sum();
        assert!(all == self.order.len(), "{all} pieces of pages");
        pages
    }

    /// The pages, with the number of pieces that they lack, and for each piece its page's place among them,
    /// or [`NOT_MISSING`].
    fn by_page(&self, fates: &PageFates) -> (Vec<PagePieces>, Vec<u32>) {
        let mut places: HashMap<PageId, u32, Hasher> = HashMap::default();
        let (mut pages, mut fate_of) = (Vec::new(), Vec::new());
        let mut page_of = Vec::with_capacity(self.pieces.len());
        for piece in &self.pieces {
            let place = *places.entry(piece.page).or_insert_with(|| {
                fate_of.push(fates.of(piece.page));
                pages.push(PagePieces::none_of(piece));
                (pages.len() - 1) as u32
            });
            let is_missing = fate_of[place as usize].is_missing(piece.index, piece.end());
            page_of.push(if is_missing { place } else { NOT_MISSING });
            if is_missing {
                pages[place as usize].add(piece);
            }
        }
        assert_eq!(page_of.len(), self.pieces.len(), "pieces without a page");
        (pages, page_of)
    }

    /// Wrong: see where it is planted.
    fn halves(&self, of: PagePieces) -> Vec<PagePieces> {
        assert!(!of.nths.is_empty(), "{} lacks nothing", of.page);
        let (from, to) = (of.nths.start, of.nths.end);
        let mid = from + of.nths.len() / 2;
        if mid == from {
            return vec![of];
        }
        let part = |nths: Range<usize>| {
            let mut part = PagePieces::none_of(self.piece(nths.start));
            nths.clone().for_each(|nth| part.add(self.piece(nth)));
            PagePieces { nths, ..part }
        };
        vec![part(from..mid), part(mid..to)]
    }
}

impl CollectedRedo for PageChanges {
    fn record(&self, nth: usize) -> (Lsn, &[u8]) {
        let piece = self.piece(nth);
        (piece.end(), self.ops_of(piece))
    }

    fn memory_bytes(&self) -> usize {
        let chunks: usize = self.chunks.iter().map(Vec::capacity).sum();
        let pieces = self.pieces.capacity() * size_of::<Piece>();
        chunks + pieces + self.order.capacity() * size_of::<u32>()
    }
}

/// The pieces of the first pass over the log: all of them, or those before the memory was full.
pub(crate) struct Retained {
    pub changes: PageChanges,
    limit_bytes: usize,
    /// The first record that is not among them any more.
    pub resume_at: Option<Lsn>,
}

impl Retained {
    pub(crate) fn new(limit_bytes: usize) -> Retained {
        assert!(limit_bytes > 0, "no memory for page changes");
        Retained {
            changes: PageChanges::default(),
            limit_bytes,
            resume_at: None,
        }
    }

    /// Takes one record in; not after [`Retained::make_room`] has noted that the memory is full.
    ///
    /// # Errors
    /// `Corrupt`: the record cannot be read.
    pub(crate) fn take(&mut self, rec: &LogRecord<'_>) -> Result<()> {
        debug_assert!(self.resume_at.is_none(), "the memory is full");
        self.changes.add(rec, &mut |_| true)
    }

    pub(crate) fn limit_bytes(&self) -> usize {
        self.limit_bytes
    }

    /// The memory is full.
    pub(crate) fn is_full(&self) -> bool {
        self.changes.memory() > self.limit_bytes
    }

    /// Makes room, or notes that the next record, at `next`, is not taken. `fates` knows of all records that
    /// were taken.
    pub(crate) fn make_room(&mut self, fates: &PageFates, next: Lsn) {
        self.changes.compact(fates);
        // Each time a quarter is free again at least: the work is no more than linear.
        if self.changes.memory() > self.limit_bytes / 4 * 3 {
            self.resume_at = Some(next);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{create, insert, open, out_of_memory};
    use crate::transaction::session::Session;
    use ferrite_io::sim::SimStorage;
    use ferrite_tree::op;

    const INDEX: IndexId = IndexId(3);

    /// The body of a mini-transaction with so many changes of each of these pages, in turn.
    fn body(pages: &[u32], each: usize) -> Vec<u8> {
        let mut body = undo::NO_UNDO.to_vec();
        for slot in 0..each {
            for page in pages {
                op::remove(PageId(*page), INDEX, slot, &mut body);
            }
        }
        body
    }

    fn record(body: &[u8], nth: u64) -> LogRecord<'_> {
        LogRecord {
            start: Lsn(nth * 1000),
            end: Lsn((nth + 1) * 1000),
            kind: record_kind::MINI_TXN,
            body,
        }
    }

    /// The piece has so many changes of its page, in order, and nothing else.
    fn is_whole(changes: &PageChanges, piece: &Piece, each: usize) -> bool {
        let alone = body(&[piece.page.0], each);
        piece.index == INDEX && changes.ops_of(piece) == &alone[undo::NO_UNDO.len()..]
    }

    #[test]
    fn a_record_is_taken_apart_by_page() {
        let mut changes = PageChanges::default();
        let body = body(&[9, 7, 8], 2);
        changes
            .add(&record(&body, 1), &mut |op| op.page != PageId(8))
            .unwrap();
        let pages: Vec<PageId> = changes.pieces.iter().map(|p| p.page).collect();
        assert_eq!(pages, [PageId(9), PageId(7)]);
        for piece in &changes.pieces {
            assert!(is_whole(&changes, piece, 2));
            assert_eq!((piece.start, piece.end()), (Lsn(1000), Lsn(2000)));
        }
    }

    /// Memory is full: what pages have goes, what they lack stays as it is, and when that is too
    /// much, it is said where to go on.
    #[test]
    fn what_is_retained_is_needed_and_complete() {
        let mut fates = PageFates::default();
        let mut retained = Retained::new(20_000);
        let body = body(&[7, 8, 9], 3);
        let mut read = 0;
        while retained.resume_at.is_none() {
            read += 1;
            if read == 60 {
                // Two of the three pages are written.
                for page in [7, 8] {
                    fates.moved(PageId(page));
                    fates.has(PageId(page), Lsn(read * 1000));
                }
            }
            retained.take(&record(&body, read)).unwrap();
            if retained.is_full() {
                retained.make_room(&fates, Lsn((read + 1) * 1000));
            }
            assert!(
                retained.changes.memory() <= 20_000 + 3 * 100,
                "without bound"
            );
        }
        assert_eq!(retained.resume_at, Some(Lsn((read + 1) * 1000)));
        let changes = &retained.changes;
        for (page, from) in [(7, 60), (8, 60), (9, 1)] {
            let pieces = changes.pieces.iter().filter(|p| p.page == PageId(page));
            let starts: Vec<u64> = pieces.clone().map(|p| p.start.0 / 1000).collect();
            assert_eq!(starts, (from..=read).collect::<Vec<_>>(), "page {page}");
            pieces.for_each(|p| assert!(is_whole(changes, p, 3)));
        }
    }
    /// On a full disk these keep no page from being redone that leaves a place for its next.
    #[test]
    fn pages_that_are_nowhere_come_last() {
        let disk = SimStorage::new(1);
        let engine = open(&disk);
        let table = create(&engine);
        let mut s = Session::new(&engine, 0, 1);
        (0..2000).for_each(|n| insert(&mut s, &table, n, 1));
        s.commit(false).unwrap();
        let tree = table.tree(0);
        let keys = [1500u64, 1000, 500];
        let on_disk = keys.map(|key| tree.leaf(&key.to_be_bytes()).unwrap().page_id());
        on_disk
            .iter()
            .for_each(|page| out_of_memory(&engine, *page));
        let nowhere = engine.pool.alloc_page(tree.index());
        let pages = [nowhere, on_disk[0], on_disk[1], on_disk[2]];
        let mut changes = PageChanges::default();
        let body = body(&pages.map(|page| page.0), 1);
        changes.add(&record(&body, 1), &mut |_| true).unwrap();
        let in_order = changes.in_order(&engine.store, &PageFates::default());
        let in_order: Vec<PageId> = in_order.iter().map(|of| of.page).collect();
        let place = |page: &PageId| engine.store.directory().get(*page).as_location();
        let granules = in_order[..3]
            .iter()
            .map(|page| place(page).unwrap().granule());
        assert!(granules.is_sorted(), "not as they lie on disk");
        assert_eq!(in_order[3], nowhere);
        drop((s, table));
        engine.close().unwrap();
    }
}
