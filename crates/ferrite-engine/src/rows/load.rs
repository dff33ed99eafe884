//! Filling a table that nobody else can see (ALTER TABLE by copy): no undo, no locks, no
//! transaction id. The server drops such a table as a whole when anything goes wrong, and so
//! does recovery; when all went well, the record that gives it its name follows in the log.
//!
//! Entries of non-unique indexes are gathered and inserted sorted, a buffer full at a time:
//! each leaf is then touched once per buffer instead of once per row.
//!
//! Locking: `Table::load` (the buffer) is held over the insertion of a full buffer; leaves
//! are latched under it. One session fills a table at a time, and nobody else takes it: that
//! session may pause with it in hand.

use crate::catalog::load_buffer::LoadBuffer;
use crate::catalog::table::Table;
use crate::log_records::undo::NO_UNDO;
use crate::rows::entry::check_size;
use crate::rows::write::{entry_value, full_key, DupInfo, Entry, ENTRY_PREFIX_BYTES};
use crate::transaction::session::Session;
use ferrite_sync::atomic::Ordering;
use ferrite_sync::Arc;
use ferrite_tree::record::Header;
use ferrite_tree::{node, LeafMut, Scratch, Tree};
use ferrite_types::{Error, PageId, Result, PAGE_BYTES};

/// Bytes of entries gathered before they are inserted.
const BUFFER_BYTES: usize = 32 << 20;
/// Entries that are inserted without a look at the log.
pub(crate) const ENTRIES_PER_PAUSE: usize = 64;

/// Inserts everything gathered, index by index, in key order. `pause` is called once in a while,
/// under no latch.
fn insert_all(
    buffer: &mut LoadBuffer,
    table: &Table,
    mut pause: impl FnMut() -> Result<()>,
) -> Result<()> {
    for (number, run) in buffer.runs.iter_mut().enumerate() {
        let mut entries = std::mem::take(&mut run.entries);
        entries.sort_unstable_by(|a, b| run.key(a).cmp(run.key(b)));
        debug_assert!(
            entries
                .iter()
                .map(|(_, key, value)| key + value)
                .sum::<u32>() as usize
                == run.bytes.len(),
            "entries of index {number} are lost"
        );
        let mut leaf = None;
        for (n, entry) in entries.iter().enumerate() {
            if n % ENTRIES_PER_PAUSE == 0 {
                drop(leaf.take());
                pause()?;
            }
            let (key, value) = (run.key(entry), run.value(entry));
            leaf = match put(table.tree(number), key, value, leaf, &mut buffer.scratch)? {
                Put::Done(leaf) => Some(leaf),
                Put::Occupied => return Err(twice(table, number)),
            };
        }
        run.bytes.clear();
    }
    buffer.bytes = 0;
    Ok(())
}

fn twice(table: &Table, number: usize) -> Error {
    Error::Corrupt(format!(
        "table {} index {number}: an entry of a new row is there already",
        table.id()
    ))
}

pub(crate) enum Put<'p> {
    /// It is in this leaf.
    Done(LeafMut<'p>),
    Occupied,
}

/// Bytes left free on a leaf that is filled in key order, 1/16 of it as InnoDB does: entries get stamps when they are
/// changed, and a leaf without room for them would be split by the first change.
const LEFT_FREE_BYTES: usize = PAGE_BYTES / 16;
/// With fewer entries, what is left free would be less than one of them.
const FULL_COUNT: usize = 16;

/// An entry in `slot` is the last one of the whole index, and the leaf has several.
fn appends(leaf: &LeafMut<'_>, slot: usize) -> bool {
    slot == leaf.count() && slot >= FULL_COUNT && node::right(leaf) == PageId::NONE
}

/// Inserts one frozen entry; `leaf` is where the one before went.
pub(crate) fn put<'p>(
    tree: &'p Tree,
    key: &[u8],
    value: &[u8],
    leaf: Option<LeafMut<'p>>,
    scratch: &mut Scratch,
) -> Result<Put<'p>> {
    put_near(tree, key, value, leaf, PageId::NONE, scratch)
}

/// The same; without a leaf, `near` is looked at first.
fn put_near<'p>(
    tree: &'p Tree,
    key: &[u8],
    value: &[u8],
    mut leaf: Option<LeafMut<'p>>,
    near: PageId,
    scratch: &mut Scratch,
) -> Result<Put<'p>> {
    let header = Header::default();
    let room = node::room_for(key.len(), value.len());
    loop {
        let mut here = match leaf.take().filter(|l| node::covers(l, key)) {
            Some(leaf) => leaf,
            None => tree.leaf_mut_near(key, near)?,
        };
        let Err(slot) = here.find(key) else {
            return Ok(Put::Occupied);
        };
        let (need, fits) = match appends(&here, slot) {
            true => (
                room + LEFT_FREE_BYTES,
                node::has_room(&here, room + LEFT_FREE_BYTES),
            ),
            false => (room, here.has_room(&header, key, value)),
        };
        if fits {
            here.insert(NO_UNDO, slot, &header, key, value, scratch);
            debug_assert_eq!(here.find(key), Ok(slot), "an entry that is not found");
            return Ok(Put::Done(here));
        }
        drop(here);
        tree.check_page_ids()?;
        tree.make_room(key, need, NO_UNDO)?;
    }
}

/// The first entry whose declared key parts are `part`.
fn find_unique(table: &Table, number: usize, part: &[u8]) -> Result<Option<Vec<u8>>> {
    let tree = table.tree(number);
    let mut from = part.to_vec();
    loop {
        let leaf = tree.leaf(&from)?;
        let slot = leaf.find(&from).unwrap_or_else(|slot| slot);
        if slot < leaf.count() {
            let mut key = Vec::new();
            node::key_into(&leaf, slot, &mut key);
            return Ok(key.starts_with(part).then_some(key));
        }
        match node::high(&leaf) {
            Some(high) if high.starts_with(part) || high <= from.as_slice() => {
                from = high.to_vec();
            }
            _ => return Ok(None),
        }
    }
}

impl Session {
    /// The table is about to be filled and nobody else can see it.
    pub fn begin_load(&mut self, table: &Arc<Table>) {
        *table.load.lock() = Some(LoadBuffer::new(table.index_count()));
        table.loading.store(true, Ordering::SeqCst);
    }

    /// The table is full; from here on it is one like any other, and durable.
    ///
    /// # Errors
    /// `DiskFull`, a page that cannot be read or written: entries are missing, the table has
    /// to be dropped.
    pub fn end_load(&mut self, table: &Arc<Table>) -> Result<()> {
        table.loading.store(false, Ordering::SeqCst);
        if let Some(mut buffer) = table.load.lock().take() {
            insert_all(&mut buffer, table, || self.may_go_on())?;
            debug_assert!(buffer.bytes == 0 && buffer.runs.iter().all(|r| r.bytes.is_empty()));
            self.engine.flush_log();
            table.set_usable_from(self.engine.txns.mark());
            table.note_commit(self.engine.now_s.load(Ordering::Relaxed));
        }
        Ok(())
    }

    /// Between entries of a full buffer, which is more than a small log takes at once.
    pub(crate) fn may_go_on(&mut self) -> Result<()> {
        self.admitted(false)?;
        self.throttle();
        Ok(())
    }

    /// Inserts a row into a table that is being filled.
    ///
    /// # Errors
    /// `Duplicate` with `dup` filled, `KeyTooLong`, `RowTooBig`: nothing of the row remains but
    /// the values it brought, which the caller frees. Any other: the table has to be dropped.
    pub(crate) fn load_row(
        &mut self,
        table: &Arc<Table>,
        pk: &[u8],
        payload: &[u8],
        entries: &[Entry<'_>],
        dup: &mut DupInfo,
    ) -> Result<()> {
        self.admitted(false)?;
        check_size(0, pk.len(), payload.len())?;
        for entry in entries {
            let value_bytes = ENTRY_PREFIX_BYTES + entry.payload.len();
            check_size(entry.index_no, entry.key.len() + pk.len(), value_bytes)?;
        }
        let mut load = table.load.lock();
        let Some(buffer) = load.as_mut() else {
            return Err(Error::Bug("a table is filled without a buffer".into()));
        };
        let rows = table.tree(0);
        let near = self.last_leaf.hint(rows.index());
        match put_near(rows, pk, payload, None, near, &mut buffer.scratch)? {
            Put::Done(leaf) => self.last_leaf.note(rows.index(), leaf.page_id()),
            Put::Occupied => {
                dup.is_of(0, pk);
                return Err(Error::Duplicate);
            }
        }
        let mut key = Vec::new();
        for (done, entry) in entries.iter().enumerate() {
            let number = entry.index_no;
            full_key(entry.key, pk, &mut key);
            let value = entry_value(entry);
            if !table.spec.indexes[number].unique {
                buffer.add(number, &key, &value);
                continue;
            }
            let there = match entry.check_unique {
                true => find_unique(table, number, entry.key)?,
                false => None,
            };
            if let Some(there) = there {
                dup.is_of(number, &there[entry.key.len()..]);
                take_back(buffer, table, pk, &entries[..done])?;
                return Err(Error::Duplicate);
            }
            let tree = table.tree(number);
            if let Put::Occupied = put(tree, &key, &value, None, &mut buffer.scratch)? {
                return Err(twice(table, number));
            }
        }
        if buffer.bytes >= BUFFER_BYTES {
            insert_all(buffer, table, || self.may_go_on())?;
        }
        Ok(())
    }
}

/// Takes back the row `pk` and those of its entries that were brought in.
fn take_back(
    buffer: &mut LoadBuffer,
    table: &Table,
    pk: &[u8],
    entries: &[Entry<'_>],
) -> Result<()> {
    let mut key = Vec::new();
    for entry in entries.iter().rev() {
        full_key(entry.key, pk, &mut key);
        if table.spec.indexes[entry.index_no].unique {
            remove(table, entry.index_no, &key, &mut buffer.scratch)?;
            continue;
        }
        let run = &mut buffer.runs[entry.index_no];
        debug_assert!(
            run.entries
                .last()
                .is_some_and(|last| *run.key(last) == *key),
            "an entry of another row is taken back"
        );
        if let Some((start, _, _)) = run.entries.pop() {
            run.bytes.truncate(start as usize);
        }
    }
    remove(table, 0, pk, &mut buffer.scratch)
}

fn remove(table: &Table, number: usize, key: &[u8], scratch: &mut Scratch) -> Result<()> {
    let mut leaf = table.tree(number).leaf_mut(key, PageId::NONE)?;
    debug_assert!(leaf.find(key).is_ok(), "what was just put in is not there");
    if let Ok(slot) = leaf.find(key) {
        leaf.remove(NO_UNDO, slot, scratch);
    }
    Ok(())
}
