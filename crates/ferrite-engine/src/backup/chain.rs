//! A full backup and its increments, in order: verified, and made a database again.
//!
//! The last backup says which pages there are; a page's blob is in the newest backup that has it.
//! Which one that is is found once, when the chain is opened, from the newest backup back: of the earlier
//! ones' indexes one at a time is in memory, and what it has found is all that stays of it.
//! Log, undo, checkpoint and map are those of the last one. The restored log is written anew,
//! record by record, so that it ends exactly at the point in time; each record must come to lie at
//! the position it had.
//!
//! What is on disk if we die: the superblock is written last, and a directory without one is
//! refused.
//!
//! Locking: none.

use super::copy::UNDO_HEAD;
use super::files::{self, Index, KeptRecord, PageEntry, INDEX, LOG, PAGES, UNDO};
use super::manifest::Manifest;
use super::map::MapAt;
use super::named;
use crate::state::undo_area::{CHUNK_BYTES, NAME as UNDO_SPILL};
use ferrite_io::{OpenMode, ReadOnly, Storage, StorageFile, BLOCK_BYTES};
use ferrite_redo::{Log, LogConfig};
use ferrite_store::{BlobChecker, CopiedFile, Layout, StoredBlob, GRANULE_BYTES};
use ferrite_sync::Arc;
use ferrite_types::{ByteReader, Error, Lsn, Result};

/// Bytes of restored log between two flushes.
const LOG_FLUSH_BYTES: u64 = 2 << 20;

/// A backup's directory and what it says of itself.
pub struct Link {
    /// Its name, for messages.
    pub name: String,
    storage: Arc<dyn Storage>,
    /// What it says of itself.
    pub manifest: Manifest,
}

/// See the head of the file.
pub struct Chain {
    links: Vec<Link>,
    /// All pages of the last backup. The place of an entry is in the backup that `sources` names.
    index: Index,
    /// For each entry the backup that has its blob.
    sources: Vec<u32>,
}

/// What was verified or restored.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub struct ChainSummary {
    /// Pages.
    pub pages: u64,
    /// Bytes of them.
    pub page_bytes: u64,
    /// Bytes of log.
    pub log_bytes: u64,
    /// The point in time.
    pub position: Lsn,
}

impl Link {
    fn open(name: String, storage: Arc<dyn Storage>) -> Result<Link> {
        let manifest = Manifest::read(&*storage).map_err(|e| unreadable(&name, &*storage, e))?;
        Ok(Link {
            name,
            storage,
            manifest,
        })
    }

    fn index(&self) -> Result<Index> {
        let file = file_of(&self.manifest, INDEX);
        file.and_then(|file| Index::read(&*self.storage, self.manifest.id, file))
            .map_err(|e| unreadable(&self.name, &*self.storage, e))
    }
}

/// What is encrypted and has lost its key is no text.
fn unreadable(name: &str, storage: &dyn Storage, e: Error) -> Error {
    let why = match (&e, BlobChecker::of(storage)) {
        (Error::Corrupt(_), Err(first @ Error::Corrupt(_))) => first,
        _ => e,
    };
    named(name, why)
}

/// Finds for each entry of the last backup's index the newest backup that has its blob, and the place there.
fn resolve(links: &[Link], entries: &mut [PageEntry]) -> Result<Vec<u32>> {
    let newest = links.len() - 1;
    let mut sources = vec![newest as u32; entries.len()];
    let mut open: Vec<usize> = (0..entries.len())
        .filter(|i| entries[*i].place.is_none())
        .collect();
    for (number, link) in links.iter().enumerate().rev().skip(1) {
        if open.is_empty() {
            break;
        }
        let before = link.index()?;
        let mut left = Vec::new();
        for i in open {
            let wanted = &mut entries[i];
            let same = (before.find(wanted.page, wanted.at))
                .filter(|e| (e.at, e.crc, e.lsn) == (wanted.at, wanted.crc, wanted.lsn));
            let Some(found) = same else {
                return Err(in_none(&links[newest], wanted));
            };
            match found.place {
                Some(_) => (wanted.place, sources[i]) = (found.place, number as u32),
                None => left.push(i),
            }
        }
        open = left;
    }
    match open.first() {
        Some(i) => Err(in_none(&links[newest], &entries[*i])),
        None => Ok(sources),
    }
}

fn in_none(last: &Link, entry: &PageEntry) -> Error {
    Error::Corrupt(format!(
        "{}: index: page {} is in none of the backups",
        last.name, entry.page
    ))
}

fn file_of<'a>(manifest: &'a Manifest, name: &str) -> Result<&'a CopiedFile> {
    let missing = || Error::Corrupt(format!("manifest: names no file {name}"));
    manifest.file(name).ok_or_else(missing)
}

impl Chain {
    /// Opens the directories, the full backup first.
    ///
    /// # Errors
    /// `BadConfig`: they do not follow each other. `Corrupt`, `Format`: one is no backup, or damaged;
    /// the text names directory and file.
    pub fn open(dirs: Vec<(String, Arc<dyn Storage>)>) -> Result<Chain> {
        let mut links: Vec<Link> = Vec::new();
        for (name, storage) in dirs {
            let storage: Arc<dyn Storage> = Arc::new(ReadOnly::new(storage));
            let link = Link::open(name, storage)?;
            let before = links.last().map(|l| (l.manifest.id, l.manifest.position));
            if link.manifest.base != before {
                return Err(out_of_order(&link, links.last()));
            }
            links.push(link);
        }
        let Some(last) = links.last() else {
            return Err(Error::BadConfig("no backup is given".into()));
        };
        debug_assert!(
            links[0].manifest.base.is_none(),
            "a chain without a beginning"
        );
        let mut index = last.index()?;
        let sources = resolve(&links, &mut index.entries)?;
        assert!(
            sources.len() == index.entries.len(),
            "pages without a backup"
        );
        Ok(Chain {
            links,
            index,
            sources,
        })
    }

    /// The backups, the full one first.
    pub fn links(&self) -> &[Link] {
        &self.links
    }

    fn last(&self) -> &Link {
        self.links.last().expect("a chain has a link")
    }

    /// Reads every file of every backup: all are whole, and what the last one needs is there.
    /// `progress` is told the bytes read.
    ///
    /// # Errors
    /// `Corrupt` naming directory and file.
    pub fn verify(&self, progress: &mut dyn FnMut(u64)) -> Result<ChainSummary> {
        self.verify_from(0, progress)
    }

    /// The same of the last backup alone, which was just written. Of those before it the indexes name what it
    /// needs of them, and the files that have it are as long as they were: they were verified when they were written.
    ///
    /// # Errors
    /// As [`verify`](Self::verify).
    pub fn verify_last(&self, progress: &mut dyn FnMut(u64)) -> Result<ChainSummary> {
        self.verify_from(self.links.len() - 1, progress)
    }

    fn verify_from(&self, first: usize, progress: &mut dyn FnMut(u64)) -> Result<ChainSummary> {
        for link in &self.links[first..] {
            for file in &link.manifest.files {
                let read = &mut |bytes: &[u8]| progress(bytes.len() as u64);
                files::check_whole(&*link.storage, file, read).map_err(|e| named(&link.name, e))?;
            }
        }
        let last = self.last();
        let summary = self.verify_map().map_err(|e| named(&last.name, e))?;
        let checker = self.checker()?;
        self.each_blob(first, progress, &mut |entry, bytes| {
            self.check_entry(&checker, entry, bytes)
        })?;
        Ok(summary)
    }

    /// The blob is the one that the index names, and a delta belongs to the page's blob.
    fn check_entry(&self, checker: &BlobChecker, entry: &PageEntry, bytes: &[u8]) -> Result<()> {
        let page = entry.page;
        let found = checker.check(page, entry.at, bytes)?;
        if (found.crc, found.lsn) != (entry.crc, entry.lsn) {
            let text = format!("page {page}: not the blob that the index names");
            return Err(Error::Corrupt(text));
        }
        if !entry.at.is_delta() {
            return Ok(());
        }
        let base = (self.index.find_whole(page)).map(|e| StoredBlob {
            lsn: e.lsn,
            crc: e.crc,
        });
        match base.is_some() && base == checker.base_of(page, bytes) {
            true => Ok(()),
            false => Err(Error::Corrupt(format!(
                "page {page}: its delta belongs to another state of the page"
            ))),
        }
    }

    fn checker(&self) -> Result<BlobChecker> {
        let last = self.last();
        BlobChecker::of(&*last.storage).map_err(|e| named(&last.name, e))
    }

    /// The index names exactly the pages of the map at the point in time.
    fn verify_map(&self) -> Result<ChainSummary> {
        let last = self.last();
        let manifest = &last.manifest;
        let map = MapAt::of_checkpoint(last.storage.clone())?;
        if map.uuid() != manifest.uuid {
            return Err(Error::Corrupt("superblock: of another database".into()));
        }
        if map.checkpoint.redo_start != manifest.log_start {
            return Err(Error::Corrupt(
                "checkpoint: not that of the manifest".into(),
            ));
        }
        self.each_record(&mut |rec| map.visit(rec.start, rec.kind, rec.body))?;
        let pages = map.pages()?;
        let entries = &self.index.entries;
        let same = pages.len() == entries.len()
            && pages
                .iter()
                .zip(entries)
                .all(|((page, at), e)| (*page, *at) == (e.page, e.at));
        if !same {
            let text = format!("{INDEX}: does not name the pages that map and log name");
            return Err(Error::Corrupt(text));
        }
        Ok(ChainSummary {
            pages: entries.iter().filter(|e| !e.at.is_delta()).count() as u64,
            page_bytes: entries.iter().map(|e| e.at.bytes() as u64).sum(),
            log_bytes: manifest.position.0 - manifest.log_start.0,
            position: manifest.position,
        })
    }

    fn each_record(&self, each: &mut dyn FnMut(&KeptRecord<'_>) -> Result<()>) -> Result<()> {
        let last = self.last();
        let span = (last.manifest.log_start, last.manifest.position);
        if span.0 > span.1 {
            return Err(Error::Corrupt(
                "manifest: the log ends before it begins".into(),
            ));
        }
        files::each_record(&*last.storage, file_of(&last.manifest, LOG)?, span, each)
    }

    /// Calls `each` with the blob of every page of the last backup, if it is in backup `first` or a later one. All
    /// are in their file.
    fn each_blob(
        &self,
        first: usize,
        progress: &mut dyn FnMut(u64),
        each: &mut dyn FnMut(&PageEntry, &[u8]) -> Result<()>,
    ) -> Result<()> {
        let entries = &self.index.entries;
        // In the order of the files.
        let mut order: Vec<u32> = (0..entries.len() as u32).collect();
        order.sort_unstable_by_key(|i| (self.sources[*i as usize], entries[*i as usize].place));
        let of_one = order.chunk_by(|a, b| self.sources[*a as usize] == self.sources[*b as usize]);
        let mut bytes = Vec::new();
        for wanted in of_one {
            let number = self.sources[wanted[0] as usize] as usize;
            let link = &self.links[number];
            let file = file_of(&link.manifest, PAGES)?;
            let opened = files::open(&*link.storage, file).map_err(|e| named(&link.name, e))?;
            for entry in wanted.iter().map(|i| &entries[*i as usize]) {
                bytes.resize(entry.at.bytes(), 0);
                debug_assert!(!bytes.is_empty(), "page {} has no blob", entry.page);
                let place = place_in(entry, file).map_err(|e| named(&link.name, e))?;
                if number < first {
                    continue;
                }
                opened.read_at(&mut bytes, place)?;
                each(entry, &bytes).map_err(|e| in_pages(link, e))?;
                progress(bytes.len() as u64);
            }
        }
        Ok(())
    }

    /// Bytes that [`restore`](Self::restore) takes on disk, or a little more: the blocks of pages, the log in whole files, and
    /// what is copied as it is.
    pub fn restored_bytes(&self) -> u64 {
        let last = self.last();
        let manifest = &last.manifest;
        let log = log_config(manifest).file_bytes(manifest.log_start, manifest.position);
        let parts = [PAGES, LOG, INDEX];
        let copied = (manifest.files.iter()).filter(|f| !parts.contains(&f.name.as_str()));
        self.bytes_of_blocks()
            + log
            + copied
                .map(|f| f.bytes.next_multiple_of(BLOCK_BYTES as u64))
                .sum::<u64>()
    }

    /// Bytes of the blocks of the store that have a blob: several may be in one.
    fn bytes_of_blocks(&self) -> u64 {
        let entries = self.index.entries.iter();
        let mut blocks: Vec<(u64, u64)> = entries.map(|e| e.at.blocks()).collect();
        blocks.sort_unstable();
        let (mut granules, mut reached) = (0, 0);
        for (first, last) in blocks {
            granules += last.saturating_sub(reached.max(first));
            reached = reached.max(last);
        }
        debug_assert!(granules <= reached, "{granules} of {reached}");
        granules * GRANULE_BYTES as u64
    }

    /// Makes a database of it in `to`, an empty directory. Verify it first.
    ///
    /// # Errors
    /// `BadConfig`: the directory is not empty. `Corrupt` naming directory and file; `DiskFull`, `Io`.
    pub fn restore(
        &self,
        to: &Arc<dyn Storage>,
        progress: &mut dyn FnMut(u64),
    ) -> Result<ChainSummary> {
        if let Some(name) = to.list()?.first() {
            return Err(Error::BadConfig(format!("not empty: {name} is there")));
        }
        let last = self.last();
        let in_last = |e| named(&last.name, e);
        let summary = self.verify_map().map_err(in_last)?;
        let checker = self.checker()?;
        let mut layout = Layout::begin(&*last.storage, to.clone()).map_err(in_last)?;
        self.each_blob(0, progress, &mut |entry, bytes| {
            self.check_entry(&checker, entry, bytes)?;
            layout.put(entry.at, bytes)
        })?;
        layout.sync()?;
        let state_files =
            |f: &&CopiedFile| f.name.starts_with("checkpoint.") || f.name.starts_with("map.");
        for file in last.manifest.files.iter().filter(state_files) {
            copy_back(&*last.storage, file, &**to).map_err(in_last)?;
        }
        if let Some(undo) = last.manifest.file(UNDO) {
            restore_undo(&*last.storage, undo, &**to).map_err(in_last)?;
        }
        self.restore_log(to, progress)?;
        to.sync_dir()?;
        debug_assert!(!to.exists("superblock")?, "there is a database too soon");
        layout.finish()?;
        Ok(summary)
    }

    fn restore_log(&self, to: &Arc<dyn Storage>, progress: &mut dyn FnMut(u64)) -> Result<()> {
        let manifest = &self.last().manifest;
        let log = Log::create(to.clone(), manifest.log_start, log_config(manifest))?;
        log.prepare_up_to(manifest.position)?;
        let mut flushed = manifest.log_start;
        let written = self.each_record(&mut |rec| {
            let at = log.append(rec.kind, &[rec.body]);
            assert!(
                (at.start, at.end) == (rec.start, rec.end),
                "the record of {} comes to lie at {}",
                rec.start,
                at.start
            );
            if at.end.0 - flushed.0 >= LOG_FLUSH_BYTES {
                log.flush_to(at.end);
                progress(at.end.0 - flushed.0);
                flushed = at.end;
            }
            Ok(())
        });
        log.flush_to(log.current_lsn());
        assert!(
            written.is_err() || log.durable_lsn() == manifest.position,
            "the log ends at {}",
            log.durable_lsn()
        );
        written.map_err(|e| named(&self.last().name, e))
    }
}

fn log_config(manifest: &Manifest) -> LogConfig {
    LogConfig {
        segment_bytes: manifest.log_segment_bytes,
        direct: false,
        ..LogConfig::default()
    }
}

/// Where the blob is in the file of pages.
fn place_in(entry: &PageEntry, pages: &CopiedFile) -> Result<u64> {
    let end = |place: u64| place.checked_add(entry.at.bytes() as u64);
    let inside = |place: &u64| end(*place).is_some_and(|end| end <= pages.bytes);
    entry.place.filter(inside).ok_or_else(|| {
        let text = format!("{INDEX}: page {} is beyond {PAGES}", entry.page);
        Error::Corrupt(text)
    })
}

fn in_pages(link: &Link, e: Error) -> Error {
    match e {
        Error::Corrupt(text) => Error::Corrupt(format!("{}: {PAGES}: {text}", link.name)),
        other => other,
    }
}

fn out_of_order(link: &Link, before: Option<&Link>) -> Error {
    let name = &link.name;
    let text = match (link.manifest.base, before) {
        (Some((id, _)), None) => format!(
            "{name} is an increment of backup {id:016x}: give that one, and what it is an increment \
             of, before it"
        ),
        (None, _) => format!("{name} is a full backup: nothing stands before it"),
        (Some((id, _)), Some(before)) => format!(
            "{name} is an increment of backup {id:016x}, and {} is backup {:016x}",
            before.name, before.manifest.id
        ),
    };
    Error::BadConfig(text)
}

pub(crate) fn copy_back(from: &dyn Storage, file: &CopiedFile, to: &dyn Storage) -> Result<()> {
    let target = to.open(&file.name, OpenMode::CreateNew, false)?;
    let mut at = 0;
    let mut result = Ok(());
    files::check_whole(from, file, &mut |bytes| {
        if result.is_ok() {
            result = target.write_at(bytes, at);
            at += bytes.len() as u64;
        }
    })?;
    result?;
    target.sync_data()
}

pub(crate) fn restore_undo(from: &dyn Storage, file: &CopiedFile, to: &dyn Storage) -> Result<()> {
    let source = files::open(from, file)?;
    let target: Arc<dyn StorageFile> = to.open(UNDO_SPILL, OpenMode::CreateNew, false)?;
    let mut chunk = vec![0; UNDO_HEAD + CHUNK_BYTES];
    let mut at = 0;
    while at < file.bytes {
        source.read_at(&mut chunk, at)?;
        let (head, bytes) = chunk.split_at(UNDO_HEAD);
        let mut r = ByteReader::new(head);
        debug_assert!(bytes.len() == CHUNK_BYTES, "{} bytes", bytes.len());
        let (slot, crc) = (r.u32().unwrap_or(0), r.u32().unwrap_or(0));
        if crc32c::crc32c(bytes) != crc {
            return Err(Error::Corrupt(format!("{UNDO}: checksum differs at {at}")));
        }
        target.write_at(bytes, u64::from(slot) * CHUNK_BYTES as u64)?;
        at += chunk.len() as u64;
    }
    target.sync_data()
}
