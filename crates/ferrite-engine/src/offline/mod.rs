//! A database that nobody has open, read as it would be after recovery, without writing.
//!
//! For the verifier, for salvage and for tests. The map comes from the newest checkpoint or,
//! where that is lost, from a scan of all blobs. The log is applied in memory: pages that it
//! changes are kept here as redo leaves them; what transactions without an end changed is
//! told from the undo they left ([`Offline::settled`]); the caller may take prepared ones as committed. Of a page that is on disk as the log leaves it only that is
//! kept. Damage of one page is that page's
//! alone: everything else can still be read.
//!
//! Invariants: nothing is written; no content of the files makes this panic; after `open`
//! everything is immutable, so that any number of threads may read.
//! Locking: none; the caller keeps servers out (`RealStorage::lock_shared`).

mod dictionary;
mod undone;
mod walk;

use crate::log_records::undo;
use crate::maintenance::checkpoint::EngineState;
use crate::startup::recovery::{Analysis, Unfinished};
use crate::state::undo_area::UndoArea;
use ferrite_buffer::page_prefix;
use ferrite_io::Storage;
use ferrite_redo::{Log, LogRecord, LogSpan};
use ferrite_store::{rebuild_by_scan, Checkpoint, Location, MapBase, ScanResult};
use ferrite_store::{Store, Survey};
use ferrite_sync::Arc;
use ferrite_tree::op::{Op, Ops};
use ferrite_tree::{apply, node, record::Record};
use ferrite_types::format::record_kind;
use ferrite_types::{Error, Faults, IndexId, Lsn, OverflowRef, PageId, Result, TxnId, PAGE_BYTES};
use std::collections::HashMap;

pub use crate::state::known_undo::Settled;
pub use dictionary::StoredTable;
use undone::Unsettled;
pub use walk::{Hole, TreeWalk};

/// Where the map comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MapFrom {
    /// The dump that the newest checkpoint names.
    Checkpoint,
    /// The blobs themselves.
    Scan,
}

/// What becomes of prepared transactions, of which only the server's binary log or its clients know the end.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Prepared {
    /// Their changes count as not made.
    #[default]
    RolledBack,
    /// Their changes count as committed.
    Committed,
}

/// What opening found.
#[derive(Clone, Debug, Default)]
pub struct OpenReport {
    /// Faults of files that a server would need or has in reserve.
    pub damage: Faults,
    /// Log applied: from here ...
    pub log_start: Lsn,
    /// ... to here.
    pub log_end: Lsn,
    /// Records in it.
    pub log_records: u64,
    /// Pages it changed.
    pub pages_redone: u64,
    /// Transactions without an end: their changes count as not made.
    pub unfinished: u64,
    /// Of them, prepared ones, which the server would ask its binary log about: see [`Prepared`].
    pub prepared: u64,
    /// What the scan of the blobs found, if it was needed.
    pub scan: Option<ScanResult>,
}

/// A page as redo left it.
struct Redone {
    bytes: Box<[u8]>,
    lsn: Lsn,
}

/// One database, read only. See the head of the file.
pub struct Offline {
    store: Store,
    redone: HashMap<PageId, Redone>,
    /// Of them, those without a blob, which no list of the store has, by index.
    made: HashMap<IndexId, Vec<PageId>>,
    /// Pages that the log names and whose blobs have what it says of them, with the blob's position.
    current: HashMap<PageId, Lsn>,
    lost: HashMap<PageId, String>,
    unsettled: Unsettled,
    prepared: Prepared,
    report: OpenReport,
}

impl Offline {
    /// Reads everything but the pages. Prepared transactions count as rolled back.
    ///
    /// # Errors
    /// `NotFound`: no database. `Format`: not of this program. `Corrupt`: nothing can be
    /// read this way; with [`MapFrom::Scan`] that is only so without a superblock.
    pub fn open(storage: &Arc<dyn Storage>, map: MapFrom) -> Result<Offline> {
        Offline::open_deciding(storage, map, Prepared::RolledBack)
    }

    /// As [`Offline::open`], and says what becomes of prepared transactions.
    ///
    /// # Errors
    /// As [`Offline::open`].
    pub fn open_deciding(
        storage: &Arc<dyn Storage>,
        map: MapFrom,
        prepared: Prepared,
    ) -> Result<Offline> {
        let survey = Store::survey(&**storage)?;
        let mut report = OpenReport {
            damage: survey.damage.iter().cloned().collect(),
            ..OpenReport::default()
        };
        let (store, checkpoint) = match map {
            MapFrom::Checkpoint => {
                let (store, checkpoint, damage) = Store::open_damaged(storage.clone())?;
                report.damage.append(damage);
                (store, Some(checkpoint))
            }
            MapFrom::Scan => Offline::scan(storage, survey, &mut report)?,
        };
        store.set_apply(apply::apply_changes);
        let mut offline = Offline {
            store,
            redone: HashMap::new(),
            made: HashMap::new(),
            current: HashMap::new(),
            lost: HashMap::new(),
            unsettled: Unsettled::default(),
            prepared,
            report,
        };
        if let Some(checkpoint) = checkpoint {
            offline.apply_log(storage, &checkpoint)?;
        }
        if map == MapFrom::Scan {
            offline.suspect_claimed(Lsn::MAX);
        }
        offline.report.damage.append(offline.store.finish_damaged());
        offline.note_made();
        Ok(offline)
    }

    /// The map is complete, and the log applied: which pages has only the log?
    fn note_made(&mut self) {
        debug_assert!(self.made.is_empty(), "noted twice");
        let mut made: HashMap<IndexId, Vec<PageId>> = HashMap::new();
        for (page, redone) in &self.redone {
            if self.location(*page).is_none() {
                let index = IndexId(page_prefix::index(&redone.bytes));
                made.entry(index).or_default().push(*page);
            }
        }
        self.made = made;
    }

    fn scan(
        storage: &Arc<dyn Storage>,
        survey: Survey,
        report: &mut OpenReport,
    ) -> Result<(Store, Option<Checkpoint>)> {
        report
            .damage
            .extend(survey.no_checkpoint.map(|e| e.to_string()));
        let end = match &survey.checkpoint {
            Some(c) => Log::read(storage.clone(), c.redo_start, &mut |_| Ok(())),
            None => Ok(Lsn::MAX),
        };
        // A log that cannot be read to its end says nothing about pages beyond it.
        let found = rebuild_by_scan(storage, end.unwrap_or(Lsn::MAX))?;
        let store = Store::open_by_scan(storage.clone(), &found)?;
        report.damage.append(found.damage.clone());
        report.scan = Some(found);
        Ok((store, survey.checkpoint))
    }

    /// The log twice, as recovery reads it: what it says of the map and of transactions, then
    /// what it says of pages. Damage in it ends it there.
    fn apply_log(&mut self, storage: &Arc<dyn Storage>, checkpoint: &Checkpoint) -> Result<()> {
        let state = match EngineState::decode(&checkpoint.state) {
            Ok(state) => state,
            Err(e) if self.report.scan.is_none() => return Err(e),
            Err(e) => {
                self.report.damage.push(e.to_string());
                EngineState::default()
            }
        };
        let start = checkpoint.redo_start;
        let mut map = checkpoint.map;
        if self.report.scan.is_some() {
            // In place of the dump there are blobs: all that the log says of the map counts.
            map.lsn = start;
            self.suspect_claimed(start);
        }
        let area = UndoArea::read_only(storage.clone());
        let span = LogSpan {
            from: start,
            durable: state.log_durable,
        };
        let mut analysis = Analysis::new(map, state);
        self.report.log_start = start;
        let mut end = start;
        let store = &self.store;
        let read = Log::read(storage.clone(), span, &mut |rec| {
            analysis.visit(store, &area, &rec)?;
            end = rec.end;
            Ok(())
        });
        if let Err(e) = read {
            self.report.damage.push(e.to_string());
        }
        self.rejoin_deltas();
        self.report.log_end = end;
        self.report.log_records = analysis.records;
        let again = Log::read(storage.clone(), start, &mut |rec| {
            if rec.end <= end {
                self.redo(&analysis, &rec);
            }
            Ok(())
        });
        // The same damage as before, if any.
        drop(again);
        self.report.pages_redone = self.redone.len() as u64;
        self.settle(analysis.unfinished, &area);
        self.check_map_of(checkpoint.map);
        Ok(())
    }

    /// What transactions without an end have changed counts as not made, or as it is in the pages.
    fn settle<S>(&mut self, mut unfinished: HashMap<TxnId, Unfinished, S>, area: &UndoArea) {
        let all = unfinished.len();
        let is_prepared = |u: &Unfinished| u.xid.is_some();
        let prepared = unfinished.values().filter(|u| is_prepared(u)).count();
        if self.prepared == Prepared::Committed {
            unfinished.retain(|_, u| !is_prepared(u));
            debug_assert_eq!(unfinished.len(), all - prepared, "others are kept");
        }
        self.report.unfinished = all as u64;
        self.report.prepared = prepared as u64;
        let (unsettled, lost) = Unsettled::new(unfinished, area);
        self.unsettled = unsettled;
        self.report.damage.extend(lost.map(|e| e.to_string()));
    }

    /// After a scan: the log may name a delta of a page without naming the blob it belongs to, while
    /// the scan has found a newer blob that the log does not know: that one, with its own delta. Where the log names a blob
    /// that cannot be read, as its file is lost, the page is lost: an older one that the scan has found is of the past.
    fn rejoin_deltas(&self) {
        let Some(scan) = &self.report.scan else {
            return;
        };
        for (page, found) in &scan.pages {
            let now = self.store.directory().get(*page).as_location();
            let delta = self.store.delta_of(*page);
            if now == Some(found.location) && delta != found.delta {
                self.store.set_location(*page, found.location);
                if !found.delta.is_none() {
                    self.store.set_location(*page, found.delta);
                }
            }
        }
    }

    /// Applies one record's page operations; a page that does not take them is lost.
    fn redo(&mut self, analysis: &Analysis, rec: &LogRecord<'_>) {
        if rec.kind != record_kind::MINI_TXN {
            return;
        }
        let Ok((_, ops)) = undo::open_body(rec.body) else {
            return;
        };
        let wanted = |op: &Op<'_>| !op.frees() && analysis.matters(op.page, op.index, rec.end);
        let ops: Vec<Op<'_>> = Ops::new(ops).flatten().filter(wanted).collect();
        for (i, op) in ops.iter().enumerate() {
            if ops[..i].iter().any(|before| before.page == op.page) {
                continue;
            }
            if let Err(e) = self.redo_page(&ops[i..], op.page, rec.end) {
                self.redone.remove(&op.page);
                self.lost.insert(op.page, e.to_string());
            }
        }
    }

    fn redo_page(&mut self, ops: &[Op<'_>], page: PageId, end: Lsn) -> Result<()> {
        let creates = ops[0].creates();
        if !self.redone.contains_key(&page) {
            if self.current.get(&page).is_some_and(|lsn| *lsn >= end) {
                return Ok(());
            }
            let Some(base) = self.redo_base(page, creates)? else {
                return Ok(());
            };
            if base.lsn >= end {
                // Most pages that a long log names are on disk as it leaves them: they are read there.
                self.current.insert(page, base.lsn);
                return Ok(());
            }
            self.current.remove(&page);
            self.redone.insert(page, base);
        }
        let Some(base) = self.redone.get_mut(&page) else {
            return Ok(());
        };
        if base.lsn >= end && !(creates && base.lsn == Lsn::ZERO) {
            return Ok(());
        }
        for op in ops.iter().filter(|op| op.page == page) {
            apply::apply(op, &mut base.bytes)?;
        }
        base.lsn = end;
        self.lost.remove(&page);
        Ok(())
    }

    /// The page before the first operation on it; None: it was freed later.
    fn redo_base(&self, page: PageId, creates: bool) -> Result<Option<Redone>> {
        let mut bytes = vec![0; PAGE_BYTES].into_boxed_slice();
        let at = self.store.directory().get(page).as_location();
        let read = at.map(|at| self.store.read_page(page, at, &mut bytes));
        match (read, creates) {
            (Some(Ok(header)), _) if !self.lost.contains_key(&page) => {
                let lsn = header.lsn;
                Ok(Some(Redone { bytes, lsn }))
            }
            (_, true) => {
                bytes.fill(0);
                let lsn = Lsn::ZERO;
                Ok(Some(Redone { bytes, lsn }))
            }
            (Some(Err(e)), false) => Err(e),
            _ => Ok(None),
        }
    }

    /// A dump that is not the one the checkpoint names would have been refused; with a scan
    /// in its place, say that it was not looked at.
    fn check_map_of(&mut self, map: MapBase) {
        if self.report.scan.is_some() {
            let text = format!("map.{}: not used; the blobs were scanned instead", map.slot);
            self.report.damage.push(text);
        }
    }

    /// After a scan: a page of which a damaged blob claims to be a newer copy, below `before`,
    /// is lost, unless the log made it anew. Its older copy would bring back rows of the past.
    ///
    /// A copy that was being written when the server died is damaged, too. But then the page
    /// changed behind the checkpoint, and what the damaged copy has stands in the log: hence
    /// first those before the log's start, and at last those that the log does not touch.
    fn suspect_claimed(&mut self, before: Lsn) {
        let Some(scan) = &self.report.scan else {
            return;
        };
        for (page, claimed) in &scan.claims {
            let Some(found) = scan.pages.get(page) else {
                continue;
            };
            let now = self.store.directory().get(*page).as_location();
            let same = now == Some(found.location);
            let newer = *claimed > found.lsn && *claimed < before;
            let touched = self.redone.contains_key(page) || self.current.contains_key(page);
            if same && newer && !touched {
                let text = format!(
                    "page {page}: its newest blob (position {claimed}) is damaged; an older \
                     copy is there"
                );
                self.lost.insert(*page, text);
            }
        }
    }

    /// What opening found.
    pub fn report(&self) -> &OpenReport {
        &self.report
    }

    /// The store, for its directory and figures.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// Reads a page as it is after recovery.
    ///
    /// # Errors
    /// `NotFound`: there is no such page. `Corrupt`, `Io`: it cannot be read.
    pub fn page(&self, page: PageId, out: &mut [u8]) -> Result<()> {
        if let Some(redone) = self.redone.get(&page) {
            out.copy_from_slice(&redone.bytes);
            return Ok(());
        }
        if let Some(why) = self.lost.get(&page) {
            return Err(Error::Corrupt(why.clone()));
        }
        let at = self.location(page).ok_or(Error::NotFound)?;
        self.store.read_page(page, at, out).map(|_| ())
    }

    /// Position of a page's newest change; None when the page cannot be read.
    pub fn page_lsn(&self, page: PageId) -> Option<Lsn> {
        if let Some(redone) = self.redone.get(&page) {
            return Some(redone.lsn);
        }
        let mut bytes = vec![0; PAGE_BYTES];
        let header = self.store.read_page(page, self.location(page)?, &mut bytes);
        header.ok().map(|h| h.lsn)
    }

    /// Reads a tree's page and checks everything about it that can be checked alone.
    ///
    /// # Errors
    /// Those of [`Offline::page`], and `Corrupt` with the fault.
    pub fn node(&self, index: IndexId, page: PageId, out: &mut [u8]) -> Result<()> {
        self.page(page, out)?;
        node::validate(out, page)?;
        if node::index(out) != index {
            let text = format!("page {page}: belongs to index {}", node::index(out));
            return Err(Error::Corrupt(text));
        }
        Ok(())
    }

    /// Where the page's blob is; None: it has none, or only the log has the page.
    pub fn location(&self, page: PageId) -> Option<Location> {
        self.store.directory().get(page).as_location()
    }

    /// All pages of an index, those that only the log has included, ascending.
    pub fn pages_of(&self, index: IndexId) -> Vec<PageId> {
        let mut pages = self.store.pages_of(index);
        pages.extend(self.made.get(&index).into_iter().flatten());
        pages.sort_unstable();
        pages.dedup();
        pages
    }

    /// The state of an entry once transactions without an end are rolled back.
    pub fn settled(&self, index: IndexId, key: &[u8], rec: &Record<'_>) -> Settled {
        self.unsettled.settle(index, key, rec)
    }

    /// True when transactions without an end changed something in the index.
    pub fn has_unsettled(&self, index: IndexId) -> bool {
        self.unsettled.concerns(index)
    }

    /// Reads a value out of line and the pages it lies on.
    ///
    /// # Errors
    /// `Corrupt` when the chain is broken; a page that cannot be read.
    pub fn overflow(
        &self,
        index: IndexId,
        reference: &OverflowRef,
        each: &mut dyn FnMut(PageId, &[u8]),
    ) -> Result<()> {
        let mut buf = vec![0; PAGE_BYTES];
        let (mut page, count) = (reference.first_page(), reference.pages());
        let len = reference.length();
        let (mut left, mut pages) = (len, 0);
        let broken = |page| Error::Corrupt(format!("page {page}: overflow chain is broken"));
        while left > 0 || pages == 0 {
            self.page(page, &mut buf)?;
            let data = crate::rows::overflow::data_of(&buf, index, reference);
            let data = data.ok_or_else(|| broken(page))?;
            pages += 1;
            let stuck = data.is_empty() && len > 0;
            if stuck || data.len() as u64 > left || pages > count {
                return Err(broken(page));
            }
            left -= data.len() as u64;
            each(page, data);
            page = node::right(&buf);
        }
        if pages != count || page != PageId::NONE {
            return Err(broken(page));
        }
        Ok(())
    }
}
