//! Reading ahead of a rollback: the undo list says which leaves come next, in whatever order they lie.
//!
//! When pages were not in memory, the entries before the one that is undone are looked at, some
//! at a time, until so many pages are asked for that the disk has enough to do. Where everything is
//! in memory nothing is looked at.
//!
//! Invariants: hints only (see `ferrite_buffer::Pool::read_ahead`). No entry is looked at twice, none
//! below the position that is rolled back to, and none that would have to be read from the
//! file of the undo. Locking: the slot's mutex, the caller's, while entries are copied; nothing of it
//! while pages are looked for, which waits for nothing but a DROP that is about to end.

use crate::log_records::undo::{self, Undo};
use crate::state::engine::Engine;
use crate::state::undo_list::UndoList;
use ferrite_buffer::{MissRate, Pool};
use ferrite_types::{IndexId, PageId, UndoPosition};
use std::collections::VecDeque;
use std::ops::Range;

/// Entries looked at together, and how often that is done before their undo is waited for.
const LOOK_ENTRIES: usize = 32;
const LOOKS: usize = 64;
/// As long as fewer pages than that are ahead, or than half of what the pool takes, there is another look.
const WANTED_PAGES: usize = 64;

/// What one entry will need.
enum Need {
    /// The leaf of a key, which is at this place in `UndoAhead::keys`.
    Leaf(IndexId, Range<usize>),
    Page(PageId),
}

/// How far one rollback has read ahead.
pub(super) struct UndoAhead {
    rate: MissRate,
    /// Entries from here back have not been looked at.
    edge: UndoPosition,
    /// The looks that the rollback has not gone past: where each ended, and what it has asked for.
    looks: VecDeque<(UndoPosition, usize)>,
    needs: Vec<Need>,
    keys: Vec<u8>,
    pages: Vec<PageId>,
}

impl UndoAhead {
    pub(super) fn new() -> UndoAhead {
        UndoAhead {
            rate: MissRate::default(),
            edge: UndoPosition(u64::MAX),
            looks: VecDeque::new(),
            needs: Vec::new(),
            keys: Vec::new(),
            pages: Vec::new(),
        }
    }

    /// An entry was undone, with so many pages that were not in memory or were read ahead.
    pub(super) fn undone(&mut self, misses: u64) {
        debug_assert!(
            self.needs.is_empty(),
            "an entry is undone and not asked for"
        );
        self.rate.note(misses);
    }

    /// The entry that ends at `at` is undone next, and in the end those back to `until`: copies what
    /// the ones before it need. Under the slot's mutex.
    #[inline]
    pub(super) fn look(
        &mut self,
        pool: &Pool,
        list: &UndoList,
        at: UndoPosition,
        until: UndoPosition,
    ) {
        if self.rate.is_high() {
            let wanted = WANTED_PAGES.min(pool.read_ahead_window() / 2);
            self.look_at(wanted, list, at, until);
        }
    }

    #[cold]
    fn look_at(&mut self, wanted: usize, list: &UndoList, at: UndoPosition, until: UndoPosition) {
        while self.looks.front().is_some_and(|(end, _)| at <= *end) {
            self.looks.pop_front();
        }
        let ahead: usize = self.looks.iter().map(|(_, pages)| pages).sum();
        if ahead >= wanted || self.looks.len() >= LOOKS {
            return;
        }
        debug_assert!(self.needs.is_empty(), "needs of an earlier look");
        let mut edge = self.edge.min(at);
        while self.needs.len() < LOOK_ENTRIES && edge > until {
            let Some((start, entry)) = list.in_memory_before(edge) else {
                break;
            };
            debug_assert!(start < edge, "an entry of no length");
            edge = start;
            self.copy_need(entry);
        }
        self.edge = edge;
    }

    fn copy_need(&mut self, entry: &[u8]) {
        // What is damaged is told when it is undone.
        let need = match undo::decode(entry) {
            Ok(
                Undo::Insert { index, key }
                | Undo::Update { index, key, .. }
                | Undo::Put { index, key }
                | Undo::Mark { index, key },
            ) => {
                let start = self.keys.len();
                self.keys.extend_from_slice(key);
                Need::Leaf(index, start..self.keys.len())
            }
            Ok(Undo::Overflow { page, .. }) => Need::Page(page),
            Err(_) => return,
        };
        self.needs.push(need);
    }

    /// Asks for what was copied. The caller holds nothing.
    #[inline]
    pub(super) fn ask(&mut self, engine: &Engine) {
        if !self.needs.is_empty() {
            self.ask_for_needs(engine);
        }
    }

    #[cold]
    fn ask_for_needs(&mut self, engine: &Engine) {
        self.pages.clear();
        let mut needs = std::mem::take(&mut self.needs);
        for need in needs.drain(..) {
            match need {
                Need::Leaf(index, key) => self.note_leaf(engine, index, key),
                Need::Page(page) if engine.pool.is_away(page) => self.pages.push(page),
                Need::Page(_) => {}
            }
        }
        self.needs = needs;
        self.keys.clear();
        debug_assert!(
            self.pages.len() <= LOOK_ENTRIES,
            "{} pages",
            self.pages.len()
        );
        engine.pool.read_ahead(&self.pages);
        self.looks.push_back((self.edge, self.pages.len()));
        debug_assert!(self.looks.len() <= LOOKS, "{} looks", self.looks.len());
    }

    fn note_leaf(&mut self, engine: &Engine, index: IndexId, key: Range<usize>) {
        // What is wrong with a table is told when an entry of it is undone.
        let Ok(table) = engine.dict.table_of_index(index) else {
            return;
        };
        let Some(number) = table.number_of(index) else {
            return;
        };
        let Some(_stays) = table.stay_in(number) else {
            return;
        };
        let tree = table.tree(number);
        tree.note_if_away(&self.keys[key], &mut self.pages);
    }
}
