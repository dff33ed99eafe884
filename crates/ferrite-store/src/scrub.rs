//! Scrubbing: free space is overwritten with zeroes, so that what was deleted is not left in the
//! files.
//!
//! What is stale (free, and never overwritten since) is known from `runs.rs`. A round takes some
//! of it, as if for blobs, overwrites it, syncs, and gives it back as free. While scrubbing is on
//! every blob is padded to the end of its block ([`Store::keep_blocks_apart`]), or what is left of
//! an old blob beside a live one could not be overwritten before that moves. So a run that is in
//! use, or retired and not yet free, is never touched, and one that is being scrubbed is never
//! handed out. After a start nothing is known of free space: it is read first, and each block that is
//! zeroes already is left alone. So is what was given back to the file system, where a write
//! would take space again, of which there may be none. A block that cannot be read is written: that is what makes a bad
//! sector good again.
//!
//! What cannot be overwritten stays stale, and its next turn comes behind everything else: one bad block keeps no other
//! from being overwritten.
//!
//! What is on disk if we die: more or fewer zeroes in space that nobody's map names. The next
//! start looks through all free space again.
//!
//! Locking: growth lock > space lock, as in `space.rs`: a writer that finds no room waits for the
//! round to end before it adds a segment. Rounds are therefore short: where blocks cannot be read, for which a device may take
//! seconds each, a round ends after the first of them beyond a tenth of a second, and the next one goes on there.

use ferrite_types::Result;

use std::ops::Range;

use crate::deps::{kill_point, time, AlignedBuf, Ordering};
use crate::runs::StaleRun;
use crate::store::{Store, LOADING};
use crate::word::{BLOCK_BYTES, BLOCK_GRANULES, GRANULE_BYTES};

/// Bytes written at once.
const WRITE_BYTES: usize = 1 << 20;
/// Bytes a round takes at most.
pub(crate) const ROUND_BYTES: usize = 8 << 20;
/// A round in which something cannot be read, where a device may try for seconds, ends after so long, in us, if others need
/// longer files meanwhile.
const UNREADABLE_US: u64 = 100_000;

/// What was overwritten, or could not be.
type Piece = (Range<u64>, Result<()>);
/// What there was no time for.
type Rest = Vec<Range<u64>>;

/// What one round has at hand, and has done.
struct Overwriting {
    zeroes: AlignedBuf,
    /// What was read.
    there: AlignedBuf,
    /// Files that are to be synced.
    touched: Vec<usize>,
    /// Granules to which nothing was written.
    blank: Vec<Range<u64>>,
    since_us: u64,
    /// How long it goes on after what cannot be read.
    unreadable_us: u64,
}

impl Overwriting {
    fn new(unreadable_us: u64) -> Overwriting {
        Overwriting {
            zeroes: AlignedBuf::zeroed(WRITE_BYTES),
            there: AlignedBuf::zeroed(WRITE_BYTES),
            touched: Vec::new(),
            blank: Vec::new(),
            since_us: time::now_us(),
            unreadable_us,
        }
    }
}

/// The first granules of the blocks from that one on.
fn blocks_from(granule: u64) -> impl Iterator<Item = u64> {
    debug_assert!(granule % u64::from(BLOCK_GRANULES) == 0, "{granule}");
    (granule..).step_by(BLOCK_GRANULES as usize)
}

/// What is written at once, or not at all.
fn pieces_of(run: &StaleRun) -> impl Iterator<Item = (&StaleRun, Range<u64>)> {
    let end = run.granule + u64::from(run.granules);
    let starts = (run.granule..end).step_by(WRITE_BYTES / GRANULE_BYTES);
    starts.map(move |at| (run, at..end.min(at + (WRITE_BYTES / GRANULE_BYTES) as u64)))
}

impl Store {
    /// Whether blobs to come share no block with another: what is freed can then be overwritten at
    /// once. It takes space.
    pub fn keep_blocks_apart(&self, on: bool) {
        self.blocks_apart.store(on, Ordering::SeqCst);
    }

    /// See [`Store::keep_blocks_apart`].
    pub fn keeps_blocks_apart(&self) -> bool {
        self.blocks_apart.load(Ordering::SeqCst)
    }

    /// Overwrites some of the free space that may still hold what was deleted, and makes that
    /// durable. The bytes looked at; 0 when nothing is stale.
    ///
    /// # Errors
    /// `Io`, `DiskFull`: a part of it is free again and still stale. The next round goes on behind it.
    pub fn scrub_round(&self) -> Result<u64> {
        if self.phase.load(Ordering::Acquire) == LOADING {
            return Ok(0);
        }
        self.scrub_retired_too_early();
        let _growth = self.growth.lock();
        let found = {
            let mut from = self.scrub_from.lock();
            let begun = *from;
            let found = self.take_stale(&mut from);
            if found.is_empty() && begun > 0 {
                *from = 0;
                self.take_stale(&mut from)
            } else {
                found
            }
        };
        let (looked, goes_on) = self.scrub(&found, UNREADABLE_US);
        if let Some(granule) = goes_on {
            *self.scrub_from.lock() = granule;
        }
        looked
    }

    /// Overwrites all of it, as far as it can be, once. While nothing is freed nothing is stale then.
    ///
    /// # Errors
    /// As [`Store::scrub_round`]; the first of several.
    pub fn scrub_all(&self) -> Result<()> {
        let (mut from, mut result) = (0, Ok(()));
        while self.phase.load(Ordering::Acquire) != LOADING {
            let _growth = self.growth.lock();
            let before = from;
            let found = self.take_stale(&mut from);
            if found.is_empty() {
                break;
            }
            assert!(from > before, "the same again at {before}");
            // Nobody waits for longer files by now.
            let (looked, goes_on) = self.scrub(&found, u64::MAX);
            from = goes_on.unwrap_or(from);
            assert!(from > before, "it does not go on at {before}");
            result = result.and(looked.map(drop));
        }
        result
    }

    fn take_stale(&self, from: &mut u64) -> Vec<StaleRun> {
        let most = (ROUND_BYTES / GRANULE_BYTES) as u32;
        self.runs.lock().take_stale(most, from)
    }

    /// Overwrites runs that were taken, and gives them back, piece by piece. Caller holds the growth lock. Gives the bytes
    /// looked at, and where it goes on if there was no time for the rest.
    fn scrub(&self, found: &[StaleRun], unreadable_us: u64) -> (Result<u64>, Option<u64>) {
        if found.is_empty() {
            return (Ok(0), None);
        }
        let mut at_work = Overwriting::new(unreadable_us);
        let (mut done, rest) = self.overwrite(found, &mut at_work);
        kill_point!("store.scrub_before_sync");
        let mut touched = at_work.touched.iter();
        if let Err(e) = touched.try_for_each(|file| self.files.sync(*file)) {
            done.iter_mut()
                .for_each(|(_, result)| *result = Err(e.clone()));
        }
        kill_point!("store.scrubbed");
        let granules = |piece: &Range<u64>| (piece.end - piece.start) as u32;
        let mut runs = self.runs.lock();
        let mut looked = 0;
        for (piece, result) in &done {
            looked += u64::from(granules(piece)) * GRANULE_BYTES as u64;
            match result {
                Ok(()) => runs.give_zeroed(piece.start, granules(piece)),
                // A part of it may be zeroes now.
                Err(_) => runs.give_doubtful(piece.start, granules(piece)),
            }
        }
        for piece in &rest {
            runs.give_doubtful(piece.start, granules(piece));
        }
        // Holes where nothing was written are holes still.
        for (granule, n) in found.iter().flat_map(|run| &run.holes) {
            let end = granule + u64::from(*n);
            for blank in at_work.blank.iter().chain(&rest) {
                let (from, to) = (blank.start.max(*granule), blank.end.min(end));
                if from < to {
                    runs.note_hole(from, (to - from) as u32);
                }
            }
        }
        assert!(
            0 < looked && looked <= ROUND_BYTES as u64,
            "{looked} bytes in a round"
        );
        let all = done.into_iter().try_for_each(|(_, result)| result);
        let goes_on = rest.first().map(|piece| piece.start);
        (all.map(|()| looked), goes_on)
    }

    /// Overwrites the runs, piece by piece: those that are done, with their results, and those for which there was no time.
    fn overwrite(&self, found: &[StaleRun], at_work: &mut Overwriting) -> (Vec<Piece>, Rest) {
        let (mut done, mut rest) = (Vec::new(), Rest::new());
        for (run, piece) in found.iter().flat_map(pieces_of) {
            if !rest.is_empty() {
                rest.push(piece);
                continue;
            }
            let (end, result) = match run.doubtful {
                true => self.overwrite_doubtful(piece.clone(), at_work),
                false => (piece.end, self.write_zeroes(piece.clone(), at_work)),
            };
            assert!(piece.start < end && end <= piece.end, "{piece:?} to {end}");
            done.push((piece.start..end, result));
            if end < piece.end {
                rest.push(end..piece.end);
            }
        }
        (done, rest)
    }

    /// Overwrites the blocks of a piece that are not zeroes, or cannot be read. Gives where it ended: earlier than the piece if
    /// it cannot be read at once, and there was no time for all of its blocks.
    fn overwrite_doubtful(
        &self,
        piece: Range<u64>,
        at_work: &mut Overwriting,
    ) -> (u64, Result<()>) {
        let bytes = (piece.end - piece.start) as usize * GRANULE_BYTES;
        let there = &mut at_work.there[..bytes];
        let mut end = piece.end;
        if self.files.read(piece.start, there).is_err() {
            for (granule, block) in blocks_from(piece.start).zip(there.chunks_mut(BLOCK_BYTES)) {
                if self.files.read(granule, block).is_err() {
                    block.fill(u8::MAX);
                }
                if time::now_us() - at_work.since_us > at_work.unreadable_us {
                    end = granule + u64::from(BLOCK_GRANULES);
                    break;
                }
            }
        }
        let there = &there[..(end - piece.start) as usize * GRANULE_BYTES];
        let mut parts: Vec<(Range<u64>, bool)> = Vec::new();
        let zeroes = &at_work.zeroes[..BLOCK_BYTES];
        for (granule, block) in blocks_from(piece.start).zip(there.chunks(BLOCK_BYTES)) {
            let (end, is_blank) = (granule + u64::from(BLOCK_GRANULES), block == zeroes);
            match parts.last_mut().filter(|last| last.1 == is_blank) {
                Some(last) => last.0.end = end,
                None => parts.push((granule..end, is_blank)),
            }
        }
        debug_assert!(parts.last().is_some_and(|last| last.0.end == end));
        let mut result = Ok(());
        for (part, is_blank) in parts {
            match is_blank {
                true => at_work.blank.push(part),
                false => result = result.and(self.write_zeroes(part, at_work)),
            }
        }
        (end, result)
    }

    fn write_zeroes(&self, piece: Range<u64>, at_work: &mut Overwriting) -> Result<()> {
        let bytes = (piece.end - piece.start) as usize * GRANULE_BYTES;
        let file = self.files.write(piece.start, &at_work.zeroes[..bytes])?;
        self.counters.bytes_scrubbed.add(bytes as u64);
        if !at_work.touched.contains(&file) {
            at_work.touched.push(file);
        }
        Ok(())
    }

    /// The deliberate fault `scrub.too_early`: what is retired goes before it is free.
    fn scrub_retired_too_early(&self) {
        if !ferrite_sync::mutant!("scrub.too_early") {
            return;
        }
        for (granule, n) in self.retired.all() {
            // The whole blocks in it.
            let blocks = u64::from(BLOCK_GRANULES);
            let start = granule.next_multiple_of(blocks);
            let end = granule + u64::from(n);
            let bytes = (end - end % blocks).saturating_sub(start) as usize * GRANULE_BYTES;
            if bytes > 0 {
                let _ = self.files.write(start, &AlignedBuf::zeroed(bytes));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{PageImage, Placed, StoreConfig};
    use ferrite_io::sim::{IoEvent, IoOp, SimStorage};
    use ferrite_sync::atomic::{AtomicBool, AtomicU32};
    use ferrite_sync::{thread, Arc};
    use ferrite_types::format::Packing;
    use ferrite_types::{Error, IndexId, Lsn, PageId};

    const PAGE: [u8; 15 << 10] = [1; 15 << 10];

    fn store_on(disk: &SimStorage) -> Store {
        let cfg = StoreConfig {
            direct: true,
            file_bytes: 1 << 30,
            segment_bytes: 16 << 20,
        };
        Store::create(Arc::new(disk.clone()), cfg).unwrap()
    }

    /// Pages that are not free yet.
    fn written(store: &Store) -> Vec<Placed> {
        let mut placed = Vec::new();
        for _ in 0..8 {
            let mut batch = store.new_batch();
            for n in 1..60 {
                let image = PageImage::whole(&PAGE);
                let _ = batch.push(PageId(n), IndexId(3), Lsn(4), image, Packing::NONE);
            }
            store.write_batch(&mut batch, &mut placed).unwrap();
        }
        placed
    }

    /// Bytes of pages that can be read in the file.
    fn left(disk: &SimStorage) -> usize {
        let bytes = disk.contents("store.0000").unwrap();
        bytes.chunks(64).filter(|c| **c == PAGE[..64]).count() * 64
    }

    /// All is free, and all but the last page of it a hole.
    fn with_holes(disk: &SimStorage) -> (Store, u64) {
        let store = store_on(disk);
        let placed = written(&store);
        // What is free amid the files becomes a hole, but for a little.
        let last = placed.len() - 1;
        placed[..last]
            .iter()
            .for_each(|p| store.free_now(p.location));
        assert!(store.shrink().unwrap() > 4 << 20);
        store.free_now(placed[last].location);
        let allocated = store.runs.lock().allocated();
        let holes = store.runs.lock().free() - allocated;
        let piece = (WRITE_BYTES / GRANULE_BYTES) as u64;
        assert!(holes > 2 * piece, "{holes} granules of holes");
        (store, allocated)
    }

    /// Free space that was given back to the file system reads as zeroes: it is looked at, and is a hole as before. Nor does
    /// what lies beside the last page of it take space, of which there is none.
    #[test]
    fn holes_stay_holes() {
        for is_full in [false, true] {
            let disk = SimStorage::new(1);
            let (store, allocated) = with_holes(&disk);
            if is_full {
                disk.set_capacity(Some(disk.used_bytes()));
            }
            while store.scrub_round().unwrap() > 0 {}
            assert_eq!(store.runs.lock().allocated(), allocated);
            assert!(store.stats().bytes_scrubbed > 0, "the last page was there");
            assert_eq!(left(&disk), 0);
        }
    }

    /// One block that cannot be overwritten keeps no other from that, in the background or at the end.
    #[test]
    fn a_bad_block_keeps_no_other_from_being_overwritten() {
        for at_once in [false, true] {
            let disk = SimStorage::new(1);
            let store = store_on(&disk);
            for placed in written(&store) {
                store.free_now(placed.location);
            }
            assert!(left(&disk) > 6 << 20);
            let bad = |io: &IoEvent<'_>| (io.offset..io.offset + io.len).contains(&(2 << 20));
            disk.set_hook(Some(Arc::new(move |io| {
                match io.op == IoOp::Write && bad(io) {
                    true => Err(Error::Io("bad block".into())),
                    false => Ok(()),
                }
            })));
            match at_once {
                true => assert!(store.scrub_all().is_err()),
                false => (0..4).for_each(|_| drop(store.scrub_round())),
            }
            let of_one_piece = left(&disk);
            assert!((4 << 10..1 << 20).contains(&of_one_piece), "{of_one_piece}");
            assert!(store.scrub_round().is_err(), "it is tried again");
            // It is good again.
            disk.set_hook(None);
            store.scrub_all().unwrap();
            assert_eq!((left(&disk), store.scrub_round()), (0, Ok(0)));
        }
    }

    /// To write is what makes a bad sector good again, and needs no reading.
    #[test]
    fn what_cannot_be_read_is_overwritten() {
        let disk = SimStorage::new(1);
        let (store, _) = with_holes(&disk);
        let last = disk.contents("store.0000").unwrap();
        let last = last.chunks(4096).rposition(|c| c[100..] == PAGE[100..4096]);
        let bad = last.expect("the last page is there") as u64 * 4096;
        let is_bad = AtomicBool::new(true);
        disk.set_hook(Some(Arc::new(move |io| {
            if (io.offset..io.offset + io.len).contains(&bad) {
                match io.op {
                    IoOp::Write => is_bad.store(false, Ordering::SeqCst),
                    IoOp::Read if is_bad.load(Ordering::SeqCst) => {
                        return Err(Error::Io("bad sector".into()))
                    }
                    _ => {}
                }
            }
            Ok(())
        })));
        while store.scrub_round().unwrap() > 0 {}
        assert_eq!(left(&disk), 0);
    }

    /// Nothing of a long stretch can be read, and the device takes its time to say so: who needs a longer store does not wait
    /// for all of it. What was a hole, and was not looked at, is one still.
    #[test]
    fn a_round_over_a_bad_stretch_is_short() {
        for at_once in [false, true] {
            let disk = SimStorage::new(1);
            let (store, allocated) = with_holes(&disk);
            let reads = Arc::new(AtomicU32::new(0));
            let read = reads.clone();
            disk.set_hook(Some(Arc::new(move |io| {
                if io.op == IoOp::Read {
                    read.fetch_add(1, Ordering::SeqCst);
                    thread::sleep_ms(2);
                    return Err(Error::Io("bad sector".into()));
                }
                Ok(())
            })));
            let (mut rounds, all) = (0, ROUND_BYTES / BLOCK_BYTES);
            store.scrub_round().unwrap();
            let in_one = reads.load(Ordering::SeqCst) as usize;
            assert!(in_one < all / 4, "{in_one} reads of blocks in a round");
            let of_a_piece = (WRITE_BYTES / GRANULE_BYTES) as u64;
            assert!(store.runs.lock().allocated() < allocated + of_a_piece);
            if at_once {
                store.scrub_all().unwrap();
            }
            while store.scrub_round().unwrap() > 0 {
                rounds += 1;
            }
            assert!(at_once == (rounds == 0), "{rounds} rounds");
            assert_eq!(left(&disk), 0);
        }
    }
}
