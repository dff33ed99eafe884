//! Statements that read, compared with the model row by row.
//!
//! A reader by snapshot must see exactly what the model has at the snapshot's commit number,
//! with its own changes on top. A locking reader must see what is committed at that instant,
//! and after a scan with gap locks the whole range must stay as it was read.

use crate::client::{After, Client, LockedRange};
use crate::corner::Corner;
use crate::model::TableNo;
use crate::rows::{describe, pattern, Row, Shape};
use ferrite_engine::{Cursor, Isolation, ReadMode, SeekMode, Table, WaitMode};
use ferrite_sync::{sim, Arc};
use ferrite_types::Error;

/// What a scan reads.
pub struct Scan {
    /// Table.
    pub no: TableNo,
    /// The same.
    pub table: Arc<Table>,
    /// How its rows look.
    pub shape: Shape,
    /// Index number.
    pub index_no: usize,
    /// Where it begins, and whither it goes.
    pub start: Start,
    /// Rows to deliver, at most.
    pub limit: u64,
    /// With locks: of a secondary index only the entries, not their rows.
    pub only_entries: bool,
}

/// Where a scan begins.
#[derive(Clone, Debug)]
pub enum Start {
    /// At the first entry.
    First,
    /// At the last one.
    Last,
    /// At a key.
    Seek(SeekMode, Vec<u8>),
}

/// An index as the model has it.
type Entries = Vec<(Vec<u8>, u64, Row)>;

/// Where in the entries a start lands.
fn place(entries: &Entries, start: &Start) -> Option<usize> {
    let below = |key: &[u8]| entries.partition_point(|e| e.0.as_slice() < key);
    let beyond =
        |key: &[u8]| entries.partition_point(|e| e.0.as_slice() < key || e.0.starts_with(key));
    let there = |at: usize| (at < entries.len()).then_some(at);
    match start {
        Start::First => there(0),
        Start::Last => entries.len().checked_sub(1),
        Start::Seek(SeekMode::AtOrAfter, key) => there(below(key)),
        Start::Seek(SeekMode::After, key) => there(beyond(key)),
        Start::Seek(SeekMode::Before, key) => below(key).checked_sub(1),
        Start::Seek(SeekMode::AtOrBefore, key) => beyond(key).checked_sub(1),
        Start::Seek(SeekMode::Exact, key) => {
            there(below(key)).filter(|at| entries[*at].0.starts_with(key))
        }
        Start::Seek(SeekMode::LastExact, key) => beyond(key)
            .checked_sub(1)
            .filter(|at| entries[*at].0.starts_with(key)),
    }
}

/// `is_whole`: the key is that of one row, and the cursor is told so.
pub(crate) fn start_cursor(
    c: &mut Cursor,
    client: &mut Client,
    start: &Start,
    is_whole: bool,
) -> Result<(), Error> {
    let s = client.s();
    match start {
        Start::First => c.first(s).map(|_| ()),
        Start::Last => c.last(s).map(|_| ()),
        Start::Seek(mode, key) => c.seek(s, key, *mode, is_whole).map(|_| ()),
    }
}

/// Does a scan from there go backward?
pub fn is_backward(start: &Start) -> bool {
    use SeekMode::{AtOrBefore, Before, LastExact};
    matches!(
        start,
        Start::Last | Start::Seek(AtOrBefore | Before | LastExact, _)
    )
}

impl Client {
    /// One statement that reads.
    pub fn read(&mut self) -> After {
        let Some(no) = self.any_table() else {
            return After::GoesOn;
        };
        let Some(table) = self.use_table(no) else {
            return After::GoesOn;
        };
        let shape = self.environment.model().table(no).shape.clone();
        let scan = self.some_scan(no, table, shape);
        self.statement();
        let corner = self.environment.plan.extra.corner;
        let often = 1 + u64::from(matches!(corner, Some(Corner::Ranges | Corner::Away)));
        let locking = self.environment.plan.locking_reads && self.rng.chance(often, 3);
        let (what, result) = if locking {
            ("locking scan", self.locking_scan(&scan))
        } else {
            ("scan", self.snapshot_scans(&scan))
        };
        match result {
            Ok(()) => {
                self.statement_ends();
                After::GoesOn
            }
            Err(e) => self.failed(&e, what),
        }
    }

    fn some_scan(&mut self, no: TableNo, table: Arc<Table>, shape: Shape) -> Scan {
        let rng = &mut self.rng;
        // Most of all: a few rows by their keys.
        let by_key = self.environment.plan.extra.row_cache && rng.chance(2, 3);
        let index_no = match by_key {
            true => 0,
            false => rng.below(shape.secondary.len() as u64 + 1) as usize,
        };
        let row = Row {
            stamp: 0,
            k: rng.below(shape.k_values),
            u: rng.below(shape.u_values),
            fill: 0,
            big: None,
        };
        let n = rng.below(if by_key {
            shape.keys.min(6)
        } else {
            shape.keys
        });
        let key = match index_no {
            0 => shape.pk(n),
            i if rng.chance(1, 2) => shape.secondary_key(i, &row),
            i => shape.index_key(i, n, &row),
        };
        let modes = [
            SeekMode::Exact,
            SeekMode::AtOrAfter,
            SeekMode::After,
            SeekMode::AtOrBefore,
            SeekMode::Before,
            SeekMode::LastExact,
        ];
        let start = match rng.below(8) {
            _ if by_key => Start::Seek(SeekMode::Exact, key),
            0 => Start::First,
            1 => Start::Last,
            _ => Start::Seek(modes[rng.below(6) as usize], key),
        };
        let limits = match self.environment.plan.extra.corner {
            // Others are to find gaps that nobody has locked.
            Some(Corner::Ranges | Corner::Away) => [1, 3, 5, 5],
            _ => [1, 5, 60, u64::MAX],
        };
        // Every change of a row then changes its entry.
        let of_entries = matches!(
            self.environment.plan.extra.corner,
            Some(Corner::Away | Corner::Marks)
        );
        let covering = of_entries && shape.covering;
        Scan {
            no,
            table,
            only_entries: index_no > 0 && covering && rng.chance(1, 2),
            shape,
            index_no,
            start,
            limit: limits[rng.below(4) as usize],
        }
    }

    // ---- by snapshot -----------------------------------------------------------------------

    /// Reads everything of a table by every index, both ways, by the snapshot.
    pub fn read_whole(&mut self, no: TableNo) -> Result<(), Error> {
        let Some(table) = self.use_table(no) else {
            return Ok(());
        };
        let shape = self.environment.model().table(no).shape.clone();
        for index_no in 0..=shape.secondary.len() {
            for start in [Start::First, Start::Last] {
                let (table, shape) = (table.clone(), shape.clone());
                let limit = u64::MAX;
                self.snapshot_scan(&Scan {
                    no,
                    table,
                    shape,
                    index_no,
                    start,
                    limit,
                    only_entries: false,
                })?;
            }
        }
        Ok(())
    }

    /// What came into being after the snapshot is refused to it, and nothing else is.
    fn check_age(&mut self, no: TableNo, result: &Result<(), Error>) {
        let Some(number) = self.s().snapshot_number() else {
            return;
        };
        let model = self.environment.model();
        let (number, table) = (number.get(), model.table(no));
        match result {
            Ok(()) | Err(Error::NotFound) => assert!(
                number > table.newer_than || table.newer_than == 0,
                "a snapshot of {number} reads a table that is newer than {}",
                table.newer_than
            ),
            Err(Error::TableChanged) => assert!(
                number < table.complete_at,
                "a snapshot of {number} may not read a table complete at {}",
                table.complete_at
            ),
            Err(_) => {}
        }
    }

    /// The model's entries for the snapshot that the session has open; None when it reads
    /// without one.
    fn expected(&mut self, scan: &Scan, fresh: bool, floor: u64) -> Option<Entries> {
        if self.isolation == Isolation::ReadUncommitted {
            return None;
        }
        let csn = self
            .s()
            .snapshot_number()
            .expect("a reader has a snapshot")
            .0;
        if fresh {
            assert!(
                csn >= floor,
                "a snapshot sees up to {csn}; {floor} was answered before"
            );
        }
        self.environment.resolve(&self.engine);
        let model = self.environment.model();
        Some(model.index(scan.no, scan.index_no, csn, &self.tx.writes))
    }

    /// With the row cache several times, each time with no leaf in memory.
    fn snapshot_scans(&mut self, scan: &Scan) -> Result<(), Error> {
        let more = match self.environment.plan.extra.row_cache {
            true => self.rng.below(4),
            false => 0,
        };
        for _ in 0..more {
            self.snapshot_scan(scan)?;
            // On a full disk nothing gets cold.
            let _ = self.engine.make_cold();
        }
        self.snapshot_scan(scan)
    }

    fn snapshot_scan(&mut self, scan: &Scan) -> Result<(), Error> {
        let fresh = self.s().snapshot_number().is_none();
        let floor = self.environment.model().answered_csn;
        let mut c = Cursor::new(
            &scan.table,
            scan.index_no,
            ReadMode::Snapshot,
            WaitMode::Wait,
        );
        let by_key = matches!(scan.start, Start::Seek(SeekMode::Exact, _)) && scan.index_no == 0;
        let is_whole = by_key && self.environment.plan.extra.row_cache;
        let mut moved = start_cursor(&mut c, self, &scan.start, is_whole);
        self.check_age(scan.no, &moved);
        if !matches!(moved, Ok(()) | Err(Error::NotFound)) {
            return moved;
        }
        let Some(entries) = self.expected(scan, fresh, floor) else {
            return self.dirty_scan(scan, &mut c, moved);
        };
        let mut at = place(&entries, &scan.start);
        let mut backward = is_backward(&scan.start);
        let turns = self.rng.chance(1, 4);
        for _ in 0..scan.limit {
            self.compare(scan, &mut c, &moved, at.map(|i| &entries[i]))?;
            let Some(here) = at else {
                break;
            };
            if turns && self.rng.chance(1, 6) {
                backward = !backward;
            }
            moved = if backward {
                at = here.checked_sub(1);
                c.prev(self.s()).map(|_| ())
            } else {
                at = Some(here + 1).filter(|i| *i < entries.len());
                c.next(self.s()).map(|_| ())
            };
        }
        Ok(())
    }

    /// The cursor stands where the model says.
    fn compare(
        &mut self,
        scan: &Scan,
        c: &mut Cursor,
        moved: &Result<(), Error>,
        expected: Option<&(Vec<u8>, u64, Row)>,
    ) -> Result<(), Error> {
        let place = || {
            format!(
                "table {} index {} from {:?}",
                scan.no, scan.index_no, scan.start
            )
        };
        match (moved, expected) {
            (Ok(()), Some(_)) => {}
            (Err(Error::NotFound), None) => return Ok(()),
            (Err(Error::NotFound), Some(e)) => {
                panic!("{}: row {} is not found: {:?}", place(), e.1, e.2)
            }
            (Err(e), _) => return Err(e.clone()),
            (Ok(()), None) => {
                let row = c.current()?;
                let n = scan.shape.number_of(row.pk);
                panic!(
                    "{}: row {n:?} should not be there: {}",
                    place(),
                    describe(row.payload)
                );
            }
        }
        let Some((key, n, row)) = expected else {
            return Ok(());
        };
        let got = c.current()?;
        assert!(
            got.key == key && got.pk == scan.shape.pk(*n),
            "{}: found row {:?}, expected {n} {row:?}",
            place(),
            scan.shape.number_of(got.pk)
        );
        self.environment.tally().rows += 1;
        if scan.index_no > 0 {
            assert_eq!(
                got.payload,
                scan.shape.entry_payload(row),
                "{}: row {n}",
                place()
            );
            if !self.rng.chance(1, 2) {
                return Ok(());
            }
            let full = c.fetch_row(self.s());
            if full.as_ref().is_err_and(|e| *e != Error::NotFound) {
                return full.map(|_| ());
            }
            let full = full.map(|r| r.payload.to_vec()).ok();
            self.check_payload(&scan.shape, *n, full.as_deref(), row, &place())
        } else {
            let payload = got.payload.to_vec();
            self.check_payload(&scan.shape, *n, Some(&payload), row, &place())
        }
    }

    fn check_payload(
        &mut self,
        shape: &Shape,
        n: u64,
        payload: Option<&[u8]>,
        row: &Row,
        place: &str,
    ) -> Result<(), Error> {
        let same = payload.is_some_and(|p| shape.is_payload_of(p, row));
        assert!(
            same,
            "{place}: row {n} is {:?}, expected {row:?}",
            payload.map(describe)
        );
        let Some(big) = &row.big else {
            return Ok(());
        };
        let mut value = vec![0; big.len as usize];
        self.engine.read_overflow(&big.reference, &mut value)?;
        assert!(
            value == pattern(big.seed, big.len as usize),
            "{place}: row {n}: its value out of line is wrong"
        );
        Ok(())
    }

    // ---- with locks ------------------------------------------------------------------------

    fn locking_scan(&mut self, scan: &Scan) -> Result<(), Error> {
        let mode = [ReadMode::Shared, ReadMode::Exclusive][self.rng.below(2) as usize];
        let wait = [
            WaitMode::Wait,
            WaitMode::Wait,
            WaitMode::SkipLocked,
            WaitMode::NoWait,
        ][self.rng.below(4) as usize];
        let mut c = Cursor::new(&scan.table, scan.index_no, mode, wait);
        if self.isolation <= Isolation::ReadCommitted && self.rng.chance(1, 2) {
            return self.update_scan(scan, &mut c);
        }
        let mut last: Option<Vec<u8>> = None;
        let mut first: Option<Vec<u8>> = None;
        let mut seen = 0u64;
        let mut moved = start_cursor(&mut c, self, &scan.start, false);
        let backward = is_backward(&scan.start);
        let ended = loop {
            match moved {
                Ok(()) => {}
                Err(Error::NotFound) => break true,
                Err(e) => return Err(e),
            }
            let key = self.check_locked(scan, &mut c)?;
            first.get_or_insert_with(|| key.clone());
            last = Some(key);
            seen += 1;
            if seen >= scan.limit {
                break false;
            }
            moved = if backward {
                c.prev(self.s())
            } else {
                c.next(self.s())
            }
            .map(|_| ());
        };
        let gaps = self.isolation >= Isolation::RepeatableRead && wait != WaitMode::SkipLocked;
        if gaps && !backward {
            self.keep_range(scan, seen, ended, last);
        } else if gaps {
            self.keep_range_below(scan, seen, ended, first, last);
        }
        Ok(())
    }

    /// The row the cursor has locked is what is committed, or this transaction's own.
    pub(crate) fn check_locked(&mut self, scan: &Scan, c: &mut Cursor) -> Result<Vec<u8>, Error> {
        let got = c.current()?;
        let (key, payload) = (got.key.to_vec(), got.payload.to_vec());
        let n = scan.shape.number_of(got.pk).unwrap_or(u64::MAX);
        let now = |client: &Client| {
            client.environment.resolve(&client.engine);
            client
                .environment
                .model()
                .view(scan.no, n, u64::MAX, &client.tx.writes)
        };
        let place = format!("table {} index {}, locked", scan.no, scan.index_no);
        let Some(row) = now(self) else {
            panic!(
                "{place}: row {n} should not be there: {}",
                describe(&payload)
            );
        };
        assert_eq!(
            key,
            scan.shape.index_key(scan.index_no, n, &row),
            "{place}: row {n}"
        );
        self.environment.tally().rows += 1;
        if scan.index_no == 0 {
            self.check_payload(&scan.shape, n, Some(&payload), &row, &place)?;
            return Ok(key);
        }
        assert_eq!(payload, scan.shape.entry_payload(&row), "{place}: row {n}");
        if scan.only_entries {
            return Ok(key);
        }
        match c.fetch_row(self.s()) {
            Ok(full) => {
                let full = full.payload.to_vec();
                let Some(row) = now(self) else {
                    panic!("{place}: row {n} went while its entry was locked");
                };
                self.check_payload(&scan.shape, n, Some(&full), &row, &place)?;
            }
            Err(Error::Skipped) => {}
            Err(Error::NotFound) => panic!("{place}: entry of row {n} without a row"),
            Err(e) => return Err(e),
        }
        Ok(key)
    }

    /// A row was read with a lock, and there or not there: it stays so.
    pub(crate) fn keep_row(&mut self, table: TableNo, pk: Vec<u8>) {
        if self.isolation >= Isolation::RepeatableRead {
            let since = self.environment.model().tick();
            self.keep(LockedRange {
                table,
                index_no: 0,
                low: pk.clone(),
                high: Some(pk),
                since,
            });
        }
    }

    fn keep(&mut self, range: LockedRange) {
        let number = |key: &[u8]| key.last_chunk().map(|b| u64::from_be_bytes(*b));
        sim::note(&format!(
            "tx {}: keeps table {} index {} from {:?} to {:?}",
            self.tx.serial,
            range.table,
            range.index_no,
            number(&range.low),
            range.high.as_deref().map(number)
        ));
        self.tx.ranges.push(range);
    }

    /// A forward scan with gap locks is over: its range is what the model has, and stays so.
    fn keep_range(&mut self, scan: &Scan, seen: u64, ended: bool, last: Option<Vec<u8>>) {
        self.environment.resolve(&self.engine);
        let mut model = self.environment.model();
        let entries = model.index(scan.no, scan.index_no, u64::MAX, &self.tx.writes);
        let from = place(&entries, &scan.start).unwrap_or(entries.len());
        let exact = match &scan.start {
            Start::Seek(SeekMode::Exact, key) => Some(key),
            _ => None,
        };
        if exact.is_none() || seen > 0 {
            let there = entries[from..]
                .iter()
                .take_while(|e| ended || last.as_ref().is_some_and(|l| e.0 <= *l));
            assert_eq!(
                there.count() as u64,
                seen,
                "table {} index {} from {:?}: a locked scan missed rows",
                scan.no,
                scan.index_no,
                scan.start
            );
        }
        let low = match &scan.start {
            Start::Seek(SeekMode::AtOrAfter | SeekMode::Exact, key) => key.clone(),
            Start::Seek(_, key) => {
                let mut end = key.clone();
                end.extend_from_slice(&[0xff; 16]);
                end
            }
            _ => Vec::new(),
        };
        let high = match (exact, seen, ended) {
            // Only the gap at the key itself is locked.
            (Some(key), 0, _) => {
                let mut end = key.clone();
                end.extend_from_slice(&[0xff; 720]);
                Some(end)
            }
            (_, _, true) => None,
            (_, _, false) => last,
        };
        let since = model.tick();
        drop(model);
        self.keep(LockedRange {
            table: scan.no,
            index_no: scan.index_no,
            low,
            high,
            since,
        });
    }

    /// The same of a backward scan: from the last row it delivered up to where it began, the gap
    /// above its start included.
    fn keep_range_below(
        &mut self,
        scan: &Scan,
        seen: u64,
        ended: bool,
        first: Option<Vec<u8>>,
        last: Option<Vec<u8>>,
    ) {
        self.environment.resolve(&self.engine);
        let mut model = self.environment.model();
        let entries = model.index(scan.no, scan.index_no, u64::MAX, &self.tx.writes);
        let is_exact = matches!(&scan.start, Start::Seek(SeekMode::LastExact, _));
        if is_exact && seen == 0 {
            return;
        }
        let below = place(&entries, &scan.start).map_or(0, |at| at + 1);
        let there = entries[..below].iter().rev();
        let there = there.take_while(|e| ended || last.as_ref().is_some_and(|l| e.0 >= *l));
        assert_eq!(
            there.count() as u64,
            seen,
            "table {} index {} from {:?} down: a locked scan missed rows",
            scan.no,
            scan.index_no,
            scan.start
        );
        let high = match &scan.start {
            Start::Seek(SeekMode::AtOrBefore | SeekMode::LastExact, key) => {
                let mut end = key.clone();
                end.extend_from_slice(&[0xff; 720]);
                Some(end)
            }
            // Keys before the one that was sought; nobody can tell which is the next lower one.
            Start::Seek(_, _) => match first {
                Some(first) => Some(first),
                None => return,
            },
            Start::First | Start::Last => None,
        };
        let low = last.filter(|_| !ended).unwrap_or_default();
        let since = model.tick();
        drop(model);
        self.keep(LockedRange {
            table: scan.no,
            index_no: scan.index_no,
            low,
            high,
            since,
        });
    }
}
