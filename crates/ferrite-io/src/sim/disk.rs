//! The state of a simulated disk: what programs see, what would survive a power cut, and
//! what lies between the two.
//!
//! Invariants: the live image of a file is its durable image plus its pending changes in
//! order, unless a sync failed (then some changes are gone for ever, though they can still
//! be read until the power goes). Live names are durable names plus pending name changes.
//! Locking: none; `SimStorage` holds one mutex around all of it.

use std::collections::{BTreeMap, HashMap};

use ferrite_sync::random::Rng;
use ferrite_sync::Arc;

use super::image::{Image, RangeSet, CHUNK, SECTOR};

/// A change of a file that is not durable yet.
#[derive(Clone)]
pub enum Change {
    Write { offset: u64, bytes: Arc<[u8]> },
    Length(u64),
    Extend(u64),
    Punch { offset: u64, len: u64 },
}

impl Change {
    fn apply(&self, image: &mut Image) {
        match self {
            Change::Write { offset, bytes } => image.write(bytes, *offset),
            Change::Length(len) => image.set_len(*len),
            Change::Extend(len) => image.set_len(image.len().max(*len)),
            Change::Punch { offset, len } => image.punch(*offset, *len),
        }
    }
}

/// A change of the directory that is not durable yet.
#[derive(Clone)]
pub enum NameChange {
    Create(String, u64),
    Remove(String),
    Rename(String, String, u64),
}

#[derive(Clone, Default)]
pub struct FileState {
    pub live: Image,
    pub durable: Image,
    pub pending: Vec<Change>,
    /// The durable image as it was before the last sync, if stale reads are wanted.
    pub previous: Option<Image>,
    /// Allocated chunks.
    pub space: RangeSet,
    /// Handles hold clones.
    pub token: Arc<()>,
}

impl FileState {
    /// Bytes allocated.
    pub fn used(&self) -> u64 {
        self.space.total() * CHUNK
    }
}

/// How much of what was not synced survives a crash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Survival {
    /// Nothing: exactly the synced state.
    Nothing,
    /// Any part of it, in any order, torn at sectors.
    Anything,
    /// All of it (as when only the process dies).
    Everything,
}

#[derive(Clone, Default)]
pub struct Disk {
    pub files: HashMap<u64, FileState>,
    pub names: BTreeMap<String, u64>,
    pub durable_names: BTreeMap<String, u64>,
    pub pending_names: Vec<NameChange>,
    pub next_file: u64,
    pub capacity: Option<u64>,
    pub keep_previous: bool,
}

impl Disk {
    /// Bytes allocated by all files.
    pub fn used(&self) -> u64 {
        self.files.values().map(FileState::used).sum()
    }

    /// True if that range of the file can be allocated.
    pub fn fits(&self, file: u64, offset: u64, len: u64) -> bool {
        let Some(capacity) = self.capacity else {
            return true;
        };
        let more = self.files[&file].space.missing(chunks(offset, len)) * CHUNK;
        more == 0 || self.used() + more <= capacity
    }

    /// Allocates the range; its bytes stay as they are.
    pub fn reserve(&mut self, file: u64, offset: u64, len: u64) {
        let f = self.files.get_mut(&file).expect("open file has state");
        f.space.insert(chunks(offset, len));
    }

    /// Makes this copy independent of open handles.
    pub fn detach(&mut self) {
        for f in self.files.values_mut() {
            f.token = Arc::new(());
        }
        self.forget_unused();
    }

    pub fn change(&mut self, file: u64, change: Change) {
        let f = self.files.get_mut(&file).expect("open file has state");
        match &change {
            Change::Write { offset, bytes } => {
                f.space.insert(chunks(*offset, bytes.len() as u64));
            }
            Change::Length(len) => f.space.remove(len.div_ceil(CHUNK)..u64::MAX / CHUNK),
            Change::Extend(_) => {}
            Change::Punch { offset, len } => {
                let end = offset.saturating_add(*len);
                f.space.remove(offset.div_ceil(CHUNK)..end / CHUNK);
            }
        }
        change.apply(&mut f.live);
        f.pending.push(change);
    }

    pub fn sync(&mut self, file: u64) {
        let keep_previous = self.keep_previous;
        let f = self.files.get_mut(&file).expect("open file has state");
        if keep_previous && !f.pending.is_empty() {
            f.previous = Some(f.durable.clone());
        }
        for change in f.pending.drain(..) {
            change.apply(&mut f.durable);
        }
    }

    /// A sync that failed: a part became durable, the rest never will.
    pub fn sync_failed(&mut self, file: u64, rng: &mut Rng) {
        let f = self.files.get_mut(&file).expect("open file has state");
        let pending = std::mem::take(&mut f.pending);
        survive(&mut f.durable, pending, rng);
    }

    /// The name is gone, whatever was still to be synced of it.
    pub fn lose(&mut self, name: &str) {
        self.sync_names();
        self.names.remove(name);
        self.durable_names.remove(name);
        self.forget_unused();
    }

    pub fn sync_names(&mut self) {
        self.pending_names.clear();
        self.durable_names = self.names.clone();
        self.forget_unused();
    }

    /// Drops files that have no name, live or durable, and no handle.
    fn forget_unused(&mut self) {
        let named: std::collections::HashSet<u64> = self
            .names
            .values()
            .chain(self.durable_names.values())
            .copied()
            .collect();
        self.files
            .retain(|n, f| named.contains(n) || Arc::strong_count(&f.token) > 1);
    }

    /// The power goes and comes back.
    pub fn crash(&mut self, survival: Survival, rng: &mut Rng) {
        match survival {
            Survival::Nothing => self.pending_names.clear(),
            Survival::Everything => self.durable_names = self.names.clone(),
            Survival::Anything => {
                let changes = std::mem::take(&mut self.pending_names);
                for change in some_of(changes, rng) {
                    self.apply_name(change);
                }
            }
        }
        self.pending_names.clear();
        self.names = self.durable_names.clone();
        let mut kept: Vec<u64> = self.names.values().copied().collect();
        kept.sort_unstable();
        let mut old = std::mem::take(&mut self.files);
        for number in kept {
            let Some(mut f) = old.remove(&number) else {
                continue;
            };
            let pending = std::mem::take(&mut f.pending);
            match survival {
                Survival::Nothing => {}
                Survival::Everything => f.durable = f.live.clone(),
                Survival::Anything => survive(&mut f.durable, pending, rng),
            }
            f.live = f.durable.clone();
            f.space
                .remove(f.live.len().div_ceil(CHUNK)..u64::MAX / CHUNK);
            for c in f.live.chunk_numbers() {
                f.space.insert(c..c + 1);
            }
            f.token = Arc::new(());
            self.files.insert(number, f);
        }
    }

    fn apply_name(&mut self, change: NameChange) {
        match change {
            NameChange::Create(name, file) => {
                self.durable_names.insert(name, file);
            }
            NameChange::Remove(name) => {
                self.durable_names.remove(&name);
            }
            NameChange::Rename(from, to, file) => {
                self.durable_names.remove(&from);
                self.durable_names.insert(to, file);
            }
        }
    }
}

fn chunks(offset: u64, len: u64) -> std::ops::Range<u64> {
    if len == 0 {
        return 0..0;
    }
    offset / CHUNK..(offset + len).div_ceil(CHUNK)
}

/// In order: all, none, a prefix, or an arbitrary subset.
fn some_of<T>(items: Vec<T>, rng: &mut Rng) -> Vec<T> {
    match rng.below(4) {
        0 => items,
        1 => Vec::new(),
        2 => {
            let n = rng.below(items.len() as u64 + 1) as usize;
            items.into_iter().take(n).collect()
        }
        _ => items.into_iter().filter(|_| rng.chance(1, 2)).collect(),
    }
}

/// A part of a write that happens or does not: its offset, and a range of its bytes.
type Piece = (u64, Arc<[u8]>, std::ops::Range<usize>);

/// A write cut at sectors.
fn pieces_of(offset: u64, bytes: &Arc<[u8]>, pieces: &mut Vec<Piece>) {
    let mut at = 0usize;
    while at < bytes.len() {
        let here = offset + at as u64;
        let n = ((SECTOR - here % SECTOR) as usize).min(bytes.len() - at);
        pieces.push((here, bytes.clone(), at..at + n));
        at += n;
    }
}

/// Applies an arbitrary part of the pending changes: sectors of writes in any order and
/// any selection; changes of length and holes as a prefix, in order (file systems keep a
/// journal of those), with the writes staying on their side of them.
fn survive(durable: &mut Image, pending: Vec<Change>, rng: &mut Rng) {
    let journalled = pending
        .iter()
        .filter(|c| !matches!(c, Change::Write { .. }))
        .count();
    let mut journal_left = rng.below(journalled as u64 + 1);
    // How likely a sector survives is drawn for each crash, so that nearly all, nearly
    // none and half of them are all common.
    let keep = [0u64, 5, 50, 95, 100][rng.below(5) as usize];
    let in_order = rng.chance(1, 2);
    let flush = |pieces: &mut Vec<Piece>, durable: &mut Image, rng: &mut Rng| {
        if !in_order {
            rng.shuffle(pieces);
        }
        for (offset, bytes, range) in pieces.drain(..) {
            if rng.chance(keep, 100) {
                durable.write(&bytes[range], offset);
            }
        }
    };
    let mut pieces = Vec::new();
    for change in pending {
        match change {
            Change::Write { offset, bytes } => pieces_of(offset, &bytes, &mut pieces),
            other => {
                flush(&mut pieces, durable, rng);
                if journal_left > 0 {
                    journal_left -= 1;
                    other.apply(durable);
                }
            }
        }
    }
    flush(&mut pieces, durable, rng);
}
