//! The verifier: everything about a database that can be checked without a server.
//!
//! | stage | what is checked |
//! | --- | --- |
//! | open | superblock, checkpoints, map, log; the map names no granule twice and none outside |
//! | blobs | every blob the directory names: checksum, page, index, length, codec |
//! | trees | every tree: order, fences, levels, links, counts; values out of line |
//! | indexes | each index has exactly the live rows of its table, by their primary keys |
//!
//! What transactions without an end changed counts as not made. Whether an entry's key has the
//! right bytes for its row takes the server's collations: that is CHECK TABLE's part.
//!
//! Invariants: nothing is written; a fault stops nothing but the comparison it spoils; memory does not grow with the
//! number of faults.
//! Locking: the caller keeps servers out.

use crate::compare;
use crate::in_order::InOrder;
use crate::progress::Progress;
use crate::tree::{primary_key, Tree};
use crate::work::in_parallel;
use ferrite_engine::offline::{MapFrom, Offline, OpenReport, Settled, StoredTable, TreeWalk};
use ferrite_engine::{overflow_references, OverflowRef};
use ferrite_io::Storage;
use ferrite_sync::Arc;
use ferrite_tree::node;
use ferrite_types::{Faults, IndexId, PageId, Result, TableId, PAGE_BYTES};
use std::collections::{HashMap, HashSet};

/// Blobs per job.
const BLOBS: usize = 256;

/// What a check found.
#[derive(Debug, Default)]
pub struct Report {
    /// Faults: each is damage.
    pub faults: Faults,
    /// What is worth knowing and no damage.
    pub notes: Vec<String>,
    /// What opening found.
    pub open: OpenReport,
    /// Tables.
    pub tables: u64,
    /// Trees.
    pub trees: u64,
    /// Blobs read.
    pub blobs: u64,
    /// Bytes of them.
    pub blob_bytes: u64,
    /// Pages of trees.
    pub nodes: u64,
    /// Live rows.
    pub rows: u64,
    /// Live entries of secondary indexes.
    pub entries: u64,
    /// Values out of line.
    pub values: u64,
    /// Bytes free for new pages.
    pub free_bytes: u64,
    /// Bytes of the store's files.
    pub file_bytes: u64,
}

impl Report {
    /// True when nothing is damaged.
    pub fn is_sound(&self) -> bool {
        self.faults.is_empty()
    }
}

/// Checks a whole database.
///
/// # Errors
/// When it cannot be opened at all: `NotFound`, `Format`, `Corrupt`.
pub fn check(storage: &Arc<dyn Storage>, progress: &Arc<Progress>) -> Result<Report> {
    let offline = Arc::new(Offline::open(storage, MapFrom::Checkpoint)?);
    let mut report = Report {
        open: offline.report().clone(),
        faults: offline.report().damage.clone(),
        ..Report::default()
    };
    check_blobs(&offline, progress, &mut report);
    let tables = offline.tables(&mut |text| report.faults.push(text));
    report.tables = tables.len() as u64;
    check_trees(&offline, tables, progress, &mut report);
    let store = offline.store();
    report.free_bytes = store.free_bytes();
    report.file_bytes = store.file_bytes();
    if report.blob_bytes + report.free_bytes != report.file_bytes {
        report.faults.push(format!(
            "free space: {} bytes of blobs and {} free bytes do not make {} bytes of files",
            report.blob_bytes, report.free_bytes, report.file_bytes
        ));
    }
    progress.done();
    Ok(report)
}

// ---- blobs ---------------------------------------------------------------------------------

/// Reads every blob that the directory names, in the order they lie on disk.
fn check_blobs(offline: &Arc<Offline>, progress: &Arc<Progress>, report: &mut Report) {
    let mut places: Vec<(u64, PageId)> = (1..offline.store().directory().end())
        .map(PageId)
        .filter_map(|page| Some((offline.location(page)?.granule(), page)))
        .collect();
    places.sort_unstable();
    let bytes = |page: &PageId| {
        let delta = offline.store().delta_of(*page).bytes() as u64;
        offline.location(*page).map_or(0, |at| at.bytes() as u64) + delta
    };
    report.blobs = places.len() as u64;
    report.blob_bytes = places.iter().map(|(_, page)| bytes(page)).sum();
    progress.stage("blobs", report.blobs);
    let jobs: Vec<(usize, Vec<PageId>)> = places
        .chunks(BLOBS)
        .map(|chunk| chunk.iter().map(|(_, page)| *page).collect())
        .enumerate()
        .collect();
    let (offline, progress) = (offline.clone(), progress.clone());
    let faults = Arc::new(InOrder::default());
    let all = faults.clone();
    in_parallel(jobs, move |(number, pages)| {
        let mut buf = vec![0; PAGE_BYTES];
        let found = pages
            .iter()
            .filter_map(|page| check_blob(&offline, *page, &mut buf));
        all.add(*number, found.collect());
        progress.step(pages.len() as u64);
    });
    report.faults.append(faults.take());
}

fn check_blob(offline: &Offline, page: PageId, buf: &mut [u8]) -> Option<String> {
    let (store, at) = (offline.store(), offline.location(page)?);
    let header = match store.read_page(page, at, buf) {
        Ok(header) => header,
        Err(e) => return Some(e.to_string()),
    };
    let owner = store.index_of(page);
    (header.index != owner).then(|| {
        let index = header.index;
        format!("page {page}: its blob says index {index}, the map says index {owner}")
    })
}

// ---- trees ---------------------------------------------------------------------------------

/// What one tree holds.
#[derive(Default)]
struct Found {
    faults: Faults,
    notes: Vec<String>,
    nodes: u64,
    live: u64,
    /// Sum of the hashes of the primary keys of live entries.
    sum: u64,
    values: u64,
    /// Some of the tree could not be read: live and sum are not whole.
    holes: bool,
}

fn check_trees(
    offline: &Arc<Offline>,
    tables: Vec<StoredTable>,
    progress: &Arc<Progress>,
    report: &mut Report,
) {
    let tables: Vec<Arc<StoredTable>> = tables.into_iter().map(Arc::new).collect();
    owners_are_known(offline, &tables, report);
    let mut jobs = Vec::new();
    for table in &tables {
        for number in 0..table.spec.indexes.len() {
            let table = table.clone();
            jobs.push(Tree { table, number });
        }
    }
    report.trees = jobs.len() as u64;
    // The largest first: they take longest.
    jobs.sort_by_key(|t| std::cmp::Reverse(offline.store().page_count(t.index())));
    let jobs = Arc::new(jobs);
    let found = walk_trees(offline, &jobs, progress, report);
    for found in &found {
        report.notes.extend(found.notes.iter().cloned());
        report.nodes += found.nodes;
        report.values += found.values;
    }
    let mut by_table: HashMap<TableId, Vec<(&Tree, &Found)>> = HashMap::new();
    for (tree, found) in jobs.iter().zip(&found) {
        let trees = by_table.entry(tree.table.spec.id).or_default();
        trees.push((tree, found));
    }
    for table in &tables {
        let trees = by_table.remove(&table.spec.id).unwrap_or_default();
        debug_assert!(
            trees.len() == table.spec.indexes.len(),
            "two tables of an id"
        );
        compare_indexes(offline, &trees, report);
    }
}

/// What each tree has, without its faults: these are in the report.
fn walk_trees(
    offline: &Arc<Offline>,
    jobs: &Arc<Vec<Tree>>,
    progress: &Arc<Progress>,
    report: &mut Report,
) -> Vec<Found> {
    let numbers = (0..jobs.len()).collect();
    let pages: u64 = jobs
        .iter()
        .map(|t| offline.store().page_count(t.index()))
        .sum();
    progress.stage("trees", pages);
    let (off, trees, bar) = (offline.clone(), jobs.clone(), progress.clone());
    let faults = Arc::new(InOrder::default());
    let all = faults.clone();
    let found = in_parallel(numbers, move |n: &usize| {
        let mut found = check_tree(&off, &trees[*n], &bar);
        all.add(*n, std::mem::take(&mut found.faults));
        found
    });
    report.faults.append(faults.take());
    found
}

/// Pages that belong to no table's index: what a broken-off DDL leaves and the next start
/// removes.
fn owners_are_known(offline: &Offline, tables: &[Arc<StoredTable>], report: &mut Report) {
    let indexes = |t: &Arc<StoredTable>| t.spec.indexes.iter().map(|i| i.id).collect::<Vec<_>>();
    let known: HashSet<IndexId> = tables.iter().flat_map(indexes).collect();
    for index in offline.store().indexes() {
        if index != IndexId(1) && !known.contains(&index) {
            let pages = offline.store().page_count(index);
            let text = format!("index {index} ({pages} pages) belongs to no table");
            report.notes.push(text);
        }
    }
}

fn check_tree(offline: &Offline, tree: &Tree, progress: &Progress) -> Found {
    let (index, mut found) = (tree.index(), Found::default());
    let mut values = Values::default();
    let mut each = |page: PageId, bytes: &[u8]| {
        let mut key = Vec::new();
        for slot in 0..node::count(bytes) {
            let rec = node::record(bytes, slot);
            key.clear();
            node::key_into(bytes, slot, &mut key);
            let live = match offline.settled(index, &key, &rec) {
                Settled::Same => (!rec.header.deleted).then_some(rec.value),
                Settled::Gone | Settled::Other(true, _) => None,
                Settled::Other(false, ref value) => {
                    take_entry(offline, tree, page, &key, value, &mut found, &mut values);
                    None
                }
            };
            match live {
                Some(value) => {
                    take_entry(offline, tree, page, &key, value, &mut found, &mut values);
                }
                None if tree.number == 0 => values.note_dead(offline, index, rec.value),
                None => {}
            }
        }
        progress.step(1);
    };
    let walk = offline.tree(index, tree.root(), &mut each);
    found.nodes = walk.leaves + walk.inners;
    found.holes = !walk.is_whole();
    found.values = values.live;
    progress.step(walk.inners + values.pages.len() as u64);
    let name = tree.name();
    let named = walk.faults.texts().iter();
    found.faults.extend(named.map(|f| format!("{name}: {f}")));
    found.faults.push_unnamed(walk.faults.unnamed());
    note_strays(offline, tree, &walk, &values, &mut found);
    found
}

/// Counts a live entry, and checks what can be checked of it alone.
fn take_entry(
    offline: &Offline,
    tree: &Tree,
    page: PageId,
    key: &[u8],
    value: &[u8],
    found: &mut Found,
    values: &mut Values,
) {
    let Some(pk) = primary_key(tree.number, key, value) else {
        let name = tree.name();
        let text = format!("{name}: page {page}: an entry without its primary key");
        return found.faults.push(text);
    };
    found.live += 1;
    found.sum = found.sum.wrapping_add(compare::hash(pk));
    if tree.number != 0 {
        return;
    }
    for reference in overflow_references(value) {
        values.live += 1;
        if let Err(e) = values.read(offline, tree.index(), &reference) {
            let name = tree.name();
            let text = format!("{name}: page {page}: a value out of line: {e}");
            found.faults.push(text);
        }
    }
}

/// Values out of line met on the way through a tree.
#[derive(Default)]
struct Values {
    live: u64,
    pages: HashSet<PageId>,
}

impl Values {
    fn read(&mut self, offline: &Offline, index: IndexId, reference: &OverflowRef) -> Result<()> {
        let mut twice = None;
        offline.overflow(index, reference, &mut |page, _| {
            if !self.pages.insert(page) {
                twice = Some(page);
            }
        })?;
        match twice {
            None => Ok(()),
            Some(page) => Err(ferrite_types::Error::Corrupt(format!(
                "page {page} belongs to two values"
            ))),
        }
    }

    /// Values of a deleted row: perhaps gone already, and no fault then.
    fn note_dead(&mut self, offline: &Offline, index: IndexId, value: &[u8]) {
        for reference in overflow_references(value) {
            let _ = offline.overflow(index, &reference, &mut |page, _| {
                self.pages.insert(page);
            });
        }
    }
}

/// Pages of the index that neither tree nor values name: space that nothing gives back.
fn note_strays(
    offline: &Offline,
    tree: &Tree,
    walk: &TreeWalk,
    values: &Values,
    found: &mut Found,
) {
    if found.holes {
        return;
    }
    let known = |page: &PageId| walk.pages.contains(page) || values.pages.contains(page);
    let strays = offline.pages_of(tree.index());
    let strays: Vec<PageId> = strays.into_iter().filter(|p| !known(p)).collect();
    if let Some(first) = strays.first() {
        let (name, n) = (tree.name(), strays.len());
        let text = format!("{name}: {n} pages are in no tree and in no row (the first: {first})");
        found.notes.push(text);
    }
}

// ---- indexes against rows ------------------------------------------------------------------

fn compare_indexes(offline: &Offline, trees: &[(&Tree, &Found)], report: &mut Report) {
    let Some((rows_tree, rows)) = trees.iter().find(|(tree, _)| tree.number == 0) else {
        return;
    };
    report.rows += rows.live;
    for (tree, entries) in trees.iter().filter(|(tree, _)| tree.number != 0) {
        report.entries += entries.live;
        if rows.holes || entries.holes {
            let text = format!("{}: not compared with the rows", tree.name());
            report.notes.push(text);
        } else if ferrite_engine::is_alter_copy(&tree.table.spec.name) {
            // Its entries come a buffer full at a time. The server drops it when it starts.
            let text = format!("{}: of an ALTER TABLE that is not finished", tree.name());
            report.notes.push(text);
        } else if (rows.live, rows.sum) != (entries.live, entries.sum) {
            let differences = compare::differences(offline, rows_tree, tree);
            report.faults.extend(differences);
        }
    }
}

/// The plain figures, for people.
pub fn summary(report: &Report) -> String {
    let mib = |bytes: u64| bytes >> 20;
    let mut text = format!(
        "{} tables, {} trees, {} rows, {} index entries, {} values out of line\n\
         {} pages in {} MiB of blobs, {} MiB free of {} MiB in files\n",
        report.tables,
        report.trees,
        report.rows,
        report.entries,
        report.values,
        report.blobs,
        mib(report.blob_bytes),
        mib(report.free_bytes),
        mib(report.file_bytes),
    );
    let open = &report.open;
    text.push_str(&format!(
        "log: {} records from position {} to {}, applied in memory to {} pages\n",
        open.log_records, open.log_start, open.log_end, open.pages_redone
    ));
    if open.unfinished > 0 {
        text.push_str(&format!(
            "{} unfinished transactions ({} prepared): checked as if rolled back\n",
            open.unfinished, open.prepared
        ));
    }
    text
}
