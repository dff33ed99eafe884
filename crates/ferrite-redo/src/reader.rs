//! Reading the log back: from sectors on disk to whole records.
//!
//! A scan accepts sectors as long as each is whole, carries its own number and an epoch not
//! lower than its predecessor's; the first that does not, or one that is not full, ends the
//! log. A record counts when it lies entirely before that end. Where the log is expected to
//! reach further (`until`), an early end is corruption.
//!
//! A torn end is told from damage in the middle: every sector says from which sector on the
//! log was not yet durable when it was written. If a later sector claims that the bad one
//! had been durable, acknowledged records were lost, and the scan reports corruption
//! instead of silently cutting the log. Such a sector is looked for in the rest of the segment
//! and in every later segment that was begun, however much is missing between. After a power cut
//! there is none, whatever part of the unsynced writes has survived in whatever order: a sector
//! claims only what a sync had made durable before the sector was built.
//!
//! Invariants: never panics on any content of the files. Locking: none of its own. A thread reads ahead of a
//! scan (`read_ahead`) and ends with it.

use crate::format::{
    check, le64, parse_envelope, sector_of, sector_start, word_in_sector, Geometry, SectorHeader,
    BLOCK, BLOCK_SECTORS, MAX_BODY, PAYLOAD, SECTOR, SECTOR_WORDS,
};
use crate::format::{segment_name, HEADER};
use crate::read_ahead::ReadAhead;
use crate::segments::Segments;
use crate::LogRecord;
use ferrite_io::AlignedBuf;
use ferrite_types::{Error, Lsn, Result};

/// Bytes per read.
const READ_BYTES: usize = 1 << 20;
/// How far behind a torn end a later, contradicting sector is looked for in any case; more than
/// two rounds of the writer.
const PROBE_SECTORS: u64 = (16 << 20) / SECTOR as u64;

/// A block is believed when two reads of it in a row agree; after so many it is not.
const READS: usize = 6;

/// Where the log ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tail {
    /// First position after the last whole record.
    pub end: u64,
    /// Epoch of the last valid sector; 0 when there is none.
    pub epoch: u32,
    /// Where the scan met what does not fit, if that is not where the last record ends.
    pub stop: u64,
    /// The scan ended because a file is missing.
    pub at_gap: bool,
    /// The first sector that the scan has taken in; of those before it nothing is known.
    pub first_sector: u64,
}

impl Tail {
    /// The end of a log that holds nothing yet.
    pub(crate) fn of_nothing(start: u64) -> Tail {
        Tail {
            end: start,
            epoch: 0,
            stop: start,
            at_gap: false,
            first_sector: u64::MAX,
        }
    }

    /// Does the block that holds the end have what the scan saw there? Whole sectors up to that of
    /// the end, and there all that comes before it.
    fn is_in(&self, block: &[u8]) -> bool {
        debug_assert_eq!(block.len(), BLOCK);
        let last = sector_of(self.end);
        let base = last - last % BLOCK_SECTORS as u64;
        (base.max(self.first_sector)..=last).all(|sector| {
            let at = (sector - base) as usize * SECTOR;
            let used = check(&block[at..at + SECTOR], sector).map_or(0, |h| usize::from(h.used));
            match sector == last {
                true => used >= word_in_sector(self.end),
                false => used == SECTOR_WORDS,
            }
        })
    }
}

/// A read position in the sectors.
struct Sectors<'a> {
    segs: &'a Segments,
    buf: AlignedBuf,
    /// Sector of the first and after the last sector in `buf`.
    have: (u64, u64),
    /// The sector after the last ones that were read.
    next: u64,
    /// The last one that is asked for.
    last: u64,
    /// While they are read in order.
    ahead: Option<ReadAhead>,
}

impl<'a> Sectors<'a> {
    fn new(segs: &'a Segments, last: u64) -> Sectors<'a> {
        let bytes = (READ_BYTES as u64).min(segs.geometry().segment_bytes) as usize;
        Sectors {
            segs,
            buf: AlignedBuf::zeroed(bytes),
            have: (0, 0),
            next: u64::MAX,
            last,
            ahead: None,
        }
    }

    /// The bytes of a sector, or None where there is no file.
    fn get(&mut self, sector: u64) -> Result<Option<&[u8]>> {
        if !(self.have.0..self.have.1).contains(&sector) && !self.load(sector)? {
            return Ok(None);
        }
        debug_assert!((self.have.0..self.have.1).contains(&sector), "{sector}");
        let at = (sector - self.have.0) as usize * SECTOR;
        Ok(Some(&self.buf[at..at + SECTOR]))
    }

    fn load(&mut self, sector: u64) -> Result<bool> {
        let block_sector = sector - sector % BLOCK_SECTORS as u64;
        self.have = (0, 0);
        let ahead = self.ahead.take();
        let in_order = block_sector == self.next && block_sector <= self.last;
        let bytes = self.buf.len();
        let start = || ReadAhead::start(self.segs, block_sector, self.last, bytes);
        if let Some(mut ahead) = in_order.then(|| ahead.unwrap_or_else(start)) {
            if let Some(have) = ahead.take(block_sector, &mut self.buf) {
                (self.have, self.next, self.ahead) = (have, have.1, Some(ahead));
                return Ok(true);
            }
        }
        let (segment, offset) = self.segs.geometry().place(block_sector);
        let Some(file) = self.segs.get(segment) else {
            return Ok(false);
        };
        let left = self.segs.geometry().segment_bytes - offset;
        let n = left.min(self.buf.len() as u64) as usize;
        file.read_at(&mut self.buf[..n], offset)?;
        self.have = (block_sector, block_sector + (n / SECTOR) as u64);
        self.next = self.have.1;
        Ok(true)
    }

    /// What the log says at a sector, of this epoch or a later one.
    ///
    /// A bad sector is read again before it ends the log: the fault may be one of reading. One that
    /// is not full is read until two reads agree: an earlier state of it would end the log too soon.
    fn settled(
        &mut self,
        sector: u64,
        mut epoch: u32,
        reread: &mut dyn FnMut() -> bool,
    ) -> Result<Next> {
        let (mut again, mut last) = (false, None);
        loop {
            let Some(bytes) = self.get(sector)? else {
                return Ok(Next::Gap);
            };
            match check(bytes, sector).filter(|h| h.epoch >= epoch) {
                Some(h) => {
                    epoch = h.epoch;
                    let full = usize::from(h.used) == SECTOR_WORDS;
                    if full || last.replace(h.used) == Some(h.used) {
                        return Ok(Next::Sector(h));
                    }
                }
                None if reread() || !std::mem::replace(&mut again, true) => {}
                None => return Ok(Next::End),
            }
            self.have = (0, 0);
        }
    }
}

/// What stands where the log may go on.
enum Next {
    Sector(SectorHeader),
    /// Nothing that fits.
    End,
    /// There is no file.
    Gap,
}

/// Collects payload and cuts it into records.
struct Records {
    geometry: Geometry,
    bytes: Vec<u8>,
    /// Position of `bytes[0]`.
    at: u64,
    /// Bytes already handed out.
    done: usize,
    until: u64,
}

impl Records {
    fn bad(&self, start: u64, e: &Error) -> Error {
        let place = self.geometry.describe(start);
        Error::Corrupt(format!("redo log: {place}: {e}"))
    }

    /// Hands out every whole record; true when `until` is reached.
    fn deliver(&mut self, visit: &mut dyn FnMut(LogRecord<'_>) -> Result<()>) -> Result<bool> {
        loop {
            let start = self.at + self.done as u64;
            if start >= self.until {
                return Ok(true);
            }
            let rest = &self.bytes[self.done..];
            if rest.len() < 8 {
                break;
            }
            let (kind, len) = parse_envelope(le64(rest, 0)).map_err(|e| self.bad(start, &e))?;
            let total = 8 + len.next_multiple_of(8);
            if rest.len() < total {
                break;
            }
            let end = Lsn(start + total as u64);
            visit(LogRecord {
                start: Lsn(start),
                end,
                kind,
                body: &rest[8..8 + len],
            })?;
            self.done += total;
        }
        debug_assert!(
            self.bytes.len() - self.done < 8 + MAX_BODY.next_multiple_of(8),
            "a whole record is left"
        );
        self.bytes.drain(..self.done);
        self.at += self.done as u64;
        self.done = 0;
        Ok(false)
    }
}

/// A scan under way.
struct Scan<'a> {
    sectors: Sectors<'a>,
    records: Records,
    tail: Tail,
    /// The next one.
    sector: u64,
    /// Of its payload, what lies before the scan's begin.
    skip: usize,
    /// Something of the log is there: the position a scan begins at was durable once.
    reached: bool,
    /// The last sector was not full: the log ends in it.
    ended: bool,
}

impl<'a> Scan<'a> {
    fn new(segs: &'a Segments, from: u64, until: u64) -> Result<Scan<'a>> {
        let mut scan = Scan {
            sectors: Sectors::new(segs, sector_of(until)),
            records: Records {
                geometry: segs.geometry(),
                bytes: Vec::with_capacity(2 * READ_BYTES),
                at: from,
                done: 0,
                until,
            },
            tail: Tail {
                first_sector: sector_of(from),
                ..Tail::of_nothing(from)
            },
            sector: sector_of(from),
            skip: (from % PAYLOAD as u64) as usize,
            reached: false,
            ended: false,
        };
        if scan.skip == 0 {
            scan.look_before()?;
        }
        Ok(scan)
    }

    /// The predecessor's epoch bounds the first sector's.
    fn look_before(&mut self) -> Result<()> {
        let Some(before) = self.sector.checked_sub(1) else {
            return Ok(());
        };
        let bytes = self.sectors.get(before)?;
        if let Some(h) = bytes.and_then(|bytes| check(bytes, before)) {
            self.tail.epoch = h.epoch;
            self.reached = usize::from(h.used) == SECTOR_WORDS;
        }
        Ok(())
    }

    /// Takes the next sector in; false: the log ends before it.
    fn take_sector(&mut self, reread: &mut dyn FnMut() -> bool) -> Result<bool> {
        let h = match self.sectors.settled(self.sector, self.tail.epoch, reread)? {
            Next::Sector(h) => h,
            Next::End => return Ok(false),
            Next::Gap => {
                self.tail.at_gap = true;
                return Ok(false);
            }
        };
        assert!(h.epoch >= self.tail.epoch, "the epoch of {} fell", h.number);
        self.tail.epoch = h.epoch;
        let used = usize::from(h.used) * 8;
        if used < self.skip {
            return Ok(false);
        }
        if let Some(bytes) = self.sectors.get(self.sector)? {
            let payload = &bytes[HEADER + self.skip..HEADER + used];
            self.records.bytes.extend_from_slice(payload);
            let have = self.records.at + self.records.bytes.len() as u64;
            assert_eq!(have, sector_start(self.sector) + used as u64);
        }
        self.skip = 0;
        self.reached = true;
        self.ended = usize::from(h.used) != SECTOR_WORDS;
        self.sector += 1;
        Ok(true)
    }
}

/// Reads records from `from` (a record start) up to `until` or the end of the log.
/// `reread` is asked when a sector does not fit: true to have it read again.
pub(crate) fn scan(
    segs: &Segments,
    from: u64,
    until: u64,
    reread: &mut dyn FnMut() -> bool,
    visit: &mut dyn FnMut(LogRecord<'_>) -> Result<()>,
) -> Result<Tail> {
    if from % 8 != 0 {
        return Err(Error::Bug(format!("redo log: {from} is no record start")));
    }
    let mut scan = Scan::new(segs, from, until)?;
    while !scan.ended && scan.take_sector(reread)? {
        // Where `until` is the end of a sector, the next one may be none yet.
        let enough = scan.records.at + scan.records.bytes.len() as u64 >= until;
        let due = scan.ended || enough || scan.records.bytes.len() >= READ_BYTES;
        if due && scan.records.deliver(visit)? {
            break;
        }
    }
    scan.records.deliver(visit)?;
    let (mut sectors, mut tail) = (scan.sectors, scan.tail);
    tail.end = scan.records.at + scan.records.done as u64;
    let end_sector = scan.sector - u64::from(scan.ended);
    tail.stop = tail.end.max(sector_start(end_sector));
    if !scan.reached {
        return Err(unreadable(segs, from));
    }
    assert!(
        tail.end >= from && tail.end % 8 == 0,
        "{} of {from}",
        tail.end
    );
    assert!(
        tail.end <= sector_start(scan.sector),
        "records up to {} in the sectors before {}",
        tail.end,
        scan.sector
    );
    if until == u64::MAX {
        probe(&mut sectors, end_sector, tail.epoch)?;
    }
    Ok(tail)
}

/// The log was durable up to `from` once, and there is nothing of it there.
fn unreadable(segs: &Segments, from: u64) -> Error {
    let place = segs.geometry().describe(from);
    let (here, _) = segs.geometry().place(sector_of(from));
    let before = match sector_of(from).checked_sub(1) {
        // At a sector's start either of the two may be the damaged one.
        Some(sector) if from == sector_start(sector + 1) => segs.geometry().place(sector).0,
        _ => here,
    };
    let or = match before == here {
        true => String::new(),
        false => format!(" or at the end of {}", segment_name(before)),
    };
    Error::Corrupt(format!(
        "redo log: {place}: the log cannot be read from here, where recovery begins: it is \
         damaged there{or}"
    ))
}

/// Looks behind the end of the log for a sector that proves it should reach further: in what
/// follows it closely, in the rest of its segment, and in every later segment that was begun.
fn probe(sectors: &mut Sectors<'_>, end: u64, epoch: u32) -> Result<()> {
    let (geometry, ready) = (sectors.segs.geometry(), sectors.segs.ready());
    let (segment, _) = geometry.place(end);
    if ferrite_sync::mutant!("redo.later_segments_ignored") {
        // A quarter of a segment, as it was when segments had 64 MiB: the simulator's are smaller.
        let quarter = geometry.segment_bytes / SECTOR as u64 / 4;
        return probe_range(sectors, end, end + 1..end + quarter, epoch);
    }
    let near = (end + PROBE_SECTORS).max(geometry.first_sector(segment + 1));
    probe_range(sectors, end, end + 1..near, epoch)?;
    for later in segment + 1..ready {
        let all = geometry.first_sector(later)..geometry.first_sector(later + 1);
        if all.end > near && begun(sectors, all.start)? {
            probe_range(sectors, end, all.start.max(near)..all.end, epoch)?;
        }
    }
    Ok(())
}

/// Something of this log was written to the segment: its first block holds a sector of its own.
fn begun(sectors: &mut Sectors<'_>, first: u64) -> Result<bool> {
    for s in first..first + BLOCK_SECTORS as u64 {
        if sectors
            .get(s)?
            .is_some_and(|bytes| check(bytes, s).is_some())
        {
            return Ok(true);
        }
    }
    Ok(false)
}

fn probe_range(
    sectors: &mut Sectors<'_>,
    end: u64,
    range: std::ops::Range<u64>,
    epoch: u32,
) -> Result<()> {
    debug_assert!(range.start > end, "{range:?}: not behind {end}");
    for s in range {
        let Some(bytes) = sectors.get(s)? else {
            return Ok(());
        };
        let proof = |h: &SectorHeader| h.epoch >= epoch && h.claims() > end;
        if check(bytes, s).filter(proof).is_some() {
            let geometry = sectors.segs.geometry();
            let (segment, offset) = geometry.place(end);
            let (later, at) = geometry.place(s);
            return Err(Error::Corrupt(format!(
                "redo log: {} is damaged at byte {offset} (position {}), but later parts of \
                 the log are there ({} at byte {at})",
                segment_name(segment),
                sector_start(end),
                segment_name(later),
            )));
        }
    }
    Ok(())
}

/// Reads the block that holds the log's end, as it is on disk: until two reads in a row agree with
/// each other and with the scan, since its caller writes it back.
///
/// # Errors
/// `Corrupt` when no two reads do.
pub(crate) fn read_block_surely(segs: &Segments, tail: &Tail, block: &mut [u8]) -> Result<()> {
    let lsn = tail.end;
    let mut other = AlignedBuf::zeroed(BLOCK);
    read_block(segs, lsn, block)?;
    for _ in 1..READS {
        read_block(segs, lsn, &mut other)?;
        if ferrite_sync::mutant!("redo.tail_read_once") {
            return Ok(());
        }
        if other[..] == *block && tail.is_in(block) {
            return Ok(());
        }
        block.copy_from_slice(&other);
    }
    Err(Error::Corrupt(format!(
        "redo log: the block at position {lsn} is not read twice as it was before"
    )))
}

/// Reads the block that holds `lsn`, once.
fn read_block(segs: &Segments, lsn: u64, block: &mut [u8]) -> Result<()> {
    debug_assert_eq!(block.len(), BLOCK);
    let sector = sector_of(lsn);
    let (segment, offset) = segs
        .geometry()
        .place(sector - sector % BLOCK_SECTORS as u64);
    match segs.get(segment) {
        Some(f) => f.read_at(block, offset),
        None => Err(Error::Corrupt(format!(
            "redo log: {} is missing",
            segment_name(segment)
        ))),
    }
}
