//! The one who writes: takes whole records out of the ring, builds sectors, writes blocks.
//! One round = everything complete at its beginning, one or two writes. The leader then syncs
//! the files the round names, without the writer: commits that only want their records handed
//! to the system go on writing meanwhile.
//!
//! The write buffer begins with the block that holds the tail, exactly as it is on disk:
//! rewriting it leaves every byte that was durable as it was (see `format.rs`).
//!
//! A round may also be without a sync: what it wrote then survives the process, not the
//! machine. It writes through the system's cache, so that it costs a copy; and so do the other
//! rounds in a segment where there was such a one, lest they wait for the device with the
//! writer in their hands. If the file cannot be opened once more for that, the device is waited
//! for.
//!
//! Invariants: `pos` is where copying out of the ring stands, `written` what has been handed
//! to the files, and only the end of a round (when both are a record end) may become the
//! durable position, once every file written to until then is synced: `unsynced` are those
//! written to since a round took them along. A failed write or sync is final.
//! Locking: a `Writer` is owned by the leader of the moment (a mutex in `log.rs`); it takes
//! the locks of `segments.rs`.

use crate::format::{
    behind, envelope_words, seal, sector_of, word_in_sector, SectorHeader, BLOCK, BLOCK_SECTORS,
    HEADER, NO_RECORD, PAYLOAD, SECTOR, SECTOR_WORDS,
};
use crate::reader::{self, Tail};
use crate::ring::Ring;
use crate::segments::Segments;
use ferrite_io::{AlignedBuf, StorageFile};
use ferrite_sync::{kill_point, Arc};
use ferrite_types::Result;

/// Bytes of the write buffer: one write at most.
const WRITE_BYTES: usize = 1 << 20;
/// A round ends at the first record end after that many bytes.
const ROUND_BYTES: u64 = 4 << 20;

/// See the head of the file.
pub(crate) struct Writer {
    buf: AlignedBuf,
    /// First sector in `buf`; begins a block.
    base: u64,
    pos: u64,
    written: u64,
    /// Words still to come of the record being copied.
    rest: usize,
    epoch: u32,
    /// `first` of the tail sector.
    first: u8,
    file: Option<(u64, Arc<dyn StorageFile>)>,
    /// The same file through the system's cache.
    cached: Option<(u64, Arc<dyn StorageFile>)>,
    /// By segment.
    unsynced: Vec<(u64, Arc<dyn StorageFile>)>,
}

/// How far a position is to get.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Level {
    /// Handed to the system: it survives the end of the process.
    Written,
    /// Synced: it survives the end of the machine.
    Durable,
}

/// What a round did.
#[derive(Default)]
pub(crate) struct Round {
    /// Everything before it is in the files.
    pub written: u64,
    /// Bytes handed to the files.
    pub bytes: u64,
    /// Calls of write.
    pub writes: u64,
    /// To be synced before `written` is durable.
    pub to_sync: Vec<(u64, Arc<dyn StorageFile>)>,
}

/// The services a round needs from the log around it.
pub(crate) trait Desk {
    /// The ring gave space back.
    fn space(&self);
    /// The file of a segment; waits while the disk is full.
    fn segment(&self, segment: u64) -> Result<Arc<dyn StorageFile>>;
    /// The same file through the system's cache.
    fn cached_segment(&self, segment: u64) -> Result<Arc<dyn StorageFile>>;
}

impl Writer {
    /// A writer behind `tail`: rewrites the tail block under the next epoch and syncs, so
    /// that nothing left over beyond it can ever fit.
    pub(crate) fn resume(segs: &Segments, tail: Tail) -> Result<Writer> {
        let bytes = (WRITE_BYTES as u64).min(segs.geometry().segment_bytes) as usize;
        assert!(
            bytes >= BLOCK && bytes % BLOCK == 0,
            "{bytes} to write with"
        );
        let sector = sector_of(tail.end);
        let base = sector - sector % BLOCK_SECTORS as u64;
        let file = segs.get_or_prepare(segs.geometry().place(base).0)?;
        let mut w = Writer {
            buf: AlignedBuf::zeroed(bytes),
            base,
            pos: tail.end,
            written: tail.end,
            rest: 0,
            epoch: tail.epoch + u32::from(!ferrite_sync::mutant!("redo.same_epoch")),
            first: NO_RECORD,
            file: None,
            cached: None,
            unsynced: Vec::new(),
        };
        reader::read_block_surely(segs, &tail, &mut w.buf[..BLOCK])?;
        if let Some(h) = crate::format::check(w.sector(sector), sector) {
            if usize::from(h.first) < word_in_sector(tail.end) {
                w.first = h.first;
            }
        }
        w.seal_tail(sector);
        let fenced = crate::format::check(w.sector(sector), sector);
        assert!(
            fenced.is_some_and(|h| h.epoch == w.epoch),
            "the tail at {} does not begin epoch {}",
            tail.end,
            w.epoch
        );
        kill_point!("redo.before_fence");
        file.write_at(&w.buf[..BLOCK], segs.geometry().place(base).1)?;
        kill_point!("redo.fence_before_sync");
        file.sync_data()?;
        Ok(w)
    }

    fn sector(&mut self, sector: u64) -> &mut [u8] {
        debug_assert!(sector >= self.base, "{sector} before {}", self.base);
        let at = (sector - self.base) as usize * SECTOR;
        &mut self.buf[at..at + SECTOR]
    }

    /// Copies complete records out of the ring until the buffer or the segment is full;
    /// true when it is.
    fn fill(&mut self, ring: &Ring, segs: &Segments, durable: u64) -> bool {
        // A sector says what was durable when it was written: never more than that.
        assert!(durable <= self.written, "{durable} of {}", self.written);
        let (_, offset) = segs.geometry().place(self.base);
        let room = (self.buf.len() as u64).min(segs.geometry().segment_bytes - offset);
        let end = self.base + room / SECTOR as u64;
        let durable_sector = sector_of(durable);
        let mut sector = sector_of(self.pos);
        let mut word = word_in_sector(self.pos);
        while sector < end {
            if self.rest == 0 {
                let envelope = ring.envelope_at(self.pos);
                if envelope == 0 {
                    break;
                }
                self.rest = envelope_words(envelope);
                if self.first == NO_RECORD {
                    self.first = word as u8;
                }
            }
            let n = self.rest.min(SECTOR_WORDS - word);
            let at = HEADER + word * 8;
            let pos = self.pos;
            debug_assert!(n > 0 && at + n * 8 <= SECTOR, "{n} words at {word}");
            ring.take(pos, &mut self.sector(sector)[at..at + n * 8]);
            self.pos += n as u64 * 8;
            self.rest -= n;
            word += n;
            if word == SECTOR_WORDS {
                self.seal(sector, word, durable_sector);
                (sector, word) = (sector + 1, 0);
                self.first = NO_RECORD;
            }
        }
        if sector < end && word > 0 {
            self.sector(sector)[HEADER + word * 8..].fill(0);
            self.seal(sector, word, durable_sector);
        }
        assert_eq!(
            (sector, word),
            (sector_of(self.pos), word_in_sector(self.pos))
        );
        self.clear_block_after(sector + u64::from(word > 0), end);
        ring.release(self.pos);
        sector == end
    }

    fn seal(&mut self, sector: u64, used: usize, durable_sector: u64) {
        let h = SectorHeader {
            number: sector,
            epoch: self.epoch,
            used: used as u8,
            first: self.first,
            behind: behind(sector, durable_sector),
        };
        seal(self.sector(sector), &h);
    }

    fn seal_tail(&mut self, sector: u64) {
        let word = word_in_sector(self.pos);
        self.sector(sector)[HEADER + word * 8..].fill(0);
        self.seal(sector, word, sector);
        self.clear_block_after(sector + 1, u64::MAX);
    }

    /// Zeroes the rest of the block that `sector` lies in, unless it begins one.
    fn clear_block_after(&mut self, sector: u64, end: u64) {
        let stop = sector.next_multiple_of(BLOCK_SECTORS as u64).min(end);
        for s in sector..stop {
            self.sector(s).fill(0);
        }
    }

    /// Blocks that hold something: bytes to write.
    fn filled_bytes(&self) -> usize {
        debug_assert!(sector_of(self.pos) >= self.base, "{}", self.pos);
        let sectors = self.pos.div_ceil(PAYLOAD as u64) - self.base;
        (sectors as usize * SECTOR).next_multiple_of(BLOCK)
    }

    /// Writes everything complete, and says what is to be synced if `level` asks for that.
    pub(crate) fn round(
        &mut self,
        ring: &Ring,
        segs: &Segments,
        durable: u64,
        level: Level,
        desk: &dyn Desk,
    ) -> Result<Round> {
        let mut done = Round::default();
        loop {
            let more = self.fill(ring, segs, durable);
            desk.space();
            if self.pos > self.written {
                self.write(segs, level, desk, &mut done)?;
            }
            if !more || (self.rest == 0 && done.bytes >= ROUND_BYTES) {
                break;
            }
        }
        assert!(self.rest == 0, "{} ends within a record", self.pos);
        assert!(self.written == self.pos, "{} of {}", self.written, self.pos);
        if level == Level::Durable {
            done.to_sync = std::mem::take(&mut self.unsynced);
        }
        done.written = self.written;
        Ok(done)
    }

    fn write(
        &mut self,
        segs: &Segments,
        level: Level,
        desk: &dyn Desk,
        done: &mut Round,
    ) -> Result<()> {
        let (segment, offset) = segs.geometry().place(self.base);
        if self.file.as_ref().is_none_or(|(s, _)| *s != segment) {
            kill_point!("redo.next_segment");
            self.file = Some((segment, desk.segment(segment)?));
        }
        if level == Level::Written && self.cached.as_ref().is_none_or(|(s, _)| *s != segment) {
            // It is tried again in the next round.
            let opened = desk.cached_segment(segment).ok();
            self.cached = opened.map(|file| (segment, file));
        }
        debug_assert!(self.is_sealed(), "unsealed sectors up to {}", self.pos);
        let cached = self.cached.as_ref().filter(|(s, _)| *s == segment);
        let file = cached.or(self.file.as_ref());
        let n = self.filled_bytes();
        assert!(file.is_some(), "no file for segment {segment}");
        assert!(self.pos > self.written, "nothing to write: {}", self.pos);
        assert!(n > 0 && n <= self.buf.len(), "{n} of {}", self.buf.len());
        assert!(
            offset + n as u64 <= segs.geometry().segment_bytes,
            "{n} bytes at {offset}: outside the segment"
        );
        kill_point!("redo.before_write");
        if let Some((_, file)) = file {
            file.write_at(&self.buf[..n], offset)?;
        }
        self.unsynced_in(segment);
        kill_point!("redo.after_write_before_sync");
        if n > BLOCK {
            kill_point!("redo.blocks_written");
        }
        self.written = self.pos;
        done.bytes += n as u64;
        done.writes += 1;
        self.roll();
        Ok(())
    }

    /// Every sector that something new was put into is whole and has its number and epoch.
    fn is_sealed(&mut self) -> bool {
        let (epoch, end) = (self.epoch, self.pos.div_ceil(PAYLOAD as u64));
        (sector_of(self.written)..end).all(|sector| {
            let header = crate::format::check(self.sector(sector), sector);
            header.is_some_and(|h| h.epoch == epoch)
        })
    }

    /// Moves the block with the tail to the front of the buffer.
    fn roll(&mut self) {
        let sector = sector_of(self.pos);
        let base = sector - sector % BLOCK_SECTORS as u64;
        assert!(base >= self.base, "block {base} after {}", self.base);
        let at = (base - self.base) as usize * SECTOR;
        self.base = base;
        if sector == base && word_in_sector(self.pos) == 0 {
            self.buf[..BLOCK].fill(0);
        } else if at > 0 {
            self.buf.copy_within(at..at + BLOCK, 0);
        }
    }

    fn unsynced_in(&mut self, segment: u64) {
        let file = self.file.as_ref().map(|(s, _)| *s);
        assert_eq!(file, Some(segment), "another file is to be synced");
        if self.unsynced.last().is_none_or(|(s, _)| *s != segment) {
            self.unsynced.extend(self.file.clone());
        }
    }
}
