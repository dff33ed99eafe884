//! Filling the new trees: each index by one thread, the clustered one by the session's, the others by
//! whoever is free, it or a helper. Each thread reads its own part of the file.
//!
//! Invariants: a failure of one stops all, and the first one counts; the session's thread outlives the
//! helpers. A table is taken only when the sums of all indexes are equal and stand at the file's end.
//!
//! Locking: `Work::done` is a leaf; a leaf's latch for each entry, never over a wait.

use super::format::{entry_at, Kind, Reader, Sum};
use crate::catalog::table::Table;
use crate::rows::clustered_key;
use crate::rows::entry::check_size;
use crate::rows::load::{put, Put, ENTRIES_PER_PAUSE};
use crate::rows::overflow::{reference_head, references};
use crate::state::engine::Engine;
use crate::transaction::session::Session;
use ferrite_sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use ferrite_sync::{thread, Arc, Mutex};
use ferrite_tree::{LeafMut, Scratch};
use ferrite_types::{Error, OverflowRef, Result, OVERFLOW_REF_BYTES};

/// No more threads beside the session's: each has its own place in the file, which a slow disk jumps between.
const MOST_HELPERS: usize = 3;
/// Between two looks for KILL while helpers work.
const LOOK_MS: u64 = 2;

/// Out-of-line values that the next row will name.
#[derive(Default)]
struct Values {
    /// The value whose pieces are being read.
    piece: Vec<u8>,
    open: bool,
    stored: Vec<OverflowRef>,
}

/// What the threads that fill one table share.
struct Work {
    engine: Arc<Engine>,
    table: Arc<Table>,
    /// The next index that nobody fills.
    next: AtomicUsize,
    stop: AtomicBool,
    done: Mutex<Done>,
}

#[derive(Default)]
struct Done {
    sums: Vec<Option<Sum>>,
    failure: Option<Error>,
}

/// What differs between the session's thread and a helper.
trait Worker {
    /// Between a few entries, under no latch.
    fn pause(&mut self, work: &Work) -> Result<()>;
    /// Stores a value out of line.
    fn store(&mut self, table: &Arc<Table>, value: &[u8]) -> Result<OverflowRef>;
    /// What was stored is a row's.
    fn stored_is_named(&mut self);
}

impl Worker for Session {
    fn pause(&mut self, work: &Work) -> Result<()> {
        match work.stop.load(Ordering::Relaxed) {
            true => return Err(Error::Interrupted),
            false => self.check_killed()?,
        }
        self.may_go_on()
    }

    fn store(&mut self, table: &Arc<Table>, value: &[u8]) -> Result<OverflowRef> {
        self.write_overflow(table, value)
    }

    fn stored_is_named(&mut self) {
        self.row_values.forget();
    }
}

/// A thread without a session: it fills indexes whose entries name no values.
#[derive(Default)]
struct Helper {
    paused_at: u64,
}

impl Worker for Helper {
    fn pause(&mut self, work: &Work) -> Result<()> {
        let is_stopped = || work.stop.load(Ordering::Relaxed);
        if is_stopped() {
            return Err(Error::Interrupted);
        }
        work.engine.admission(&is_stopped)?;
        if work.engine.wants_attention() {
            work.engine.slow_down(&mut self.paused_at, &is_stopped);
        }
        Ok(())
    }

    fn store(&mut self, table: &Arc<Table>, _value: &[u8]) -> Result<OverflowRef> {
        let text = format!("a helper is given a value of table {}", table.id());
        Err(Error::Bug(text))
    }

    fn stored_is_named(&mut self) {}
}

/// Helpers at work; they end with this.
struct Helpers {
    work: Arc<Work>,
    threads: Vec<thread::JoinHandle<()>>,
}

impl Helpers {
    /// As many as there are processors and indexes for; none when the system has no threads.
    fn start(work: &Arc<Work>, from: &Reader) -> Helpers {
        let spare = work.table.index_count().min(thread::processors()) - 1;
        let one = |_| {
            let (work, mut reader) = (work.clone(), from.again());
            thread::try_spawn("ferrite-import", move || {
                work.fill_indexes(&mut Helper::default(), &mut reader);
            })
        };
        Helpers {
            work: work.clone(),
            threads: (0..spare.min(MOST_HELPERS)).map_while(one).collect(),
        }
    }

    /// Waits until they have ended.
    fn join(mut self, session: &Session) {
        while self.threads.iter().any(|t| !t.is_finished()) {
            if let Err(e) = session.check_killed() {
                self.work.fail(e);
            }
            thread::sleep_ms(LOOK_MS);
        }
        self.end();
    }

    fn end(&mut self) {
        for thread in self.threads.drain(..) {
            if thread.join().is_err() {
                let text = "a thread that filled indexes has panicked";
                self.work.fail(Error::Bug(text.into()));
            }
        }
    }
}

impl Drop for Helpers {
    fn drop(&mut self) {
        self.work.stop.store(true, Ordering::Relaxed);
        self.end();
    }
}

impl Work {
    /// Everybody stops; the first failure counts.
    fn fail(&self, error: Error) {
        let mut done = self.done.lock();
        done.failure.get_or_insert(error);
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Indexes that nobody fills, until there is none left.
    fn fill_indexes(&self, worker: &mut dyn Worker, reader: &mut Reader) {
        while !self.stop.load(Ordering::Relaxed) {
            let index = self.next.fetch_add(1, Ordering::Relaxed);
            if index >= self.table.index_count() {
                return;
            }
            match self.fill_index(index, worker, reader) {
                Ok(sum) => {
                    let before = self.done.lock().sums[index].replace(sum);
                    assert!(before.is_none(), "index {index} is filled twice");
                }
                Err(e) => self.fail(e),
            }
        }
    }

    /// All entries of an index. Returns what it has.
    fn fill_index(
        &self,
        index: usize,
        worker: &mut dyn Worker,
        reader: &mut Reader,
    ) -> Result<Sum> {
        let mut part = Part {
            index,
            row_ids: index == 0 && self.table.spec.hidden_row_id,
            values: Values::default(),
            before: Vec::new(),
            sum: Sum::default(),
        };
        reader.skip_to(index)?;
        while !reader.is_past(index)? {
            let block = reader.next()?;
            match block.kind {
                Kind::Value if block.index == index && index == 0 => {
                    part.take_piece(reader, self, block.last, worker)?;
                }
                Kind::Entries if block.index == index => part.take_entries(reader, self, worker)?,
                _ => return Err(reader.fault("a block out of its order")),
            }
        }
        if part.values.open || !part.values.stored.is_empty() {
            return Err(reader.fault("a value without its row"));
        }
        Ok(part.sum)
    }
}

/// One index while it is filled.
struct Part {
    index: usize,
    /// Its keys are row ids.
    row_ids: bool,
    values: Values,
    /// The key of the latest entry.
    before: Vec<u8>,
    sum: Sum,
}

impl Part {
    /// A piece of a value out of line; the last one stores it.
    fn take_piece(
        &mut self,
        reader: &Reader,
        work: &Work,
        last: bool,
        worker: &mut dyn Worker,
    ) -> Result<()> {
        let values = &mut self.values;
        assert!(values.open || values.piece.is_empty(), "a value is left");
        if values.piece.len() + reader.body().len() > u32::MAX as usize {
            return Err(reader.fault("a value of more than 4 GiB"));
        }
        assert_eq!(self.index, 0, "a value of an index");
        values.piece.extend_from_slice(reader.body());
        values.open = !last;
        if last {
            worker.pause(work)?;
            let stored = worker.store(&work.table, &values.piece)?;
            values.stored.push(stored);
            values.piece.clear();
        }
        Ok(())
    }

    /// The entries of a block.
    fn take_entries(
        &mut self,
        reader: &Reader,
        work: &Work,
        worker: &mut dyn Worker,
    ) -> Result<()> {
        let body = reader.body();
        let tree = work.table.tree(self.index);
        let mut scratch = Scratch::default();
        let mut leaf: Option<LeafMut<'_>> = None;
        let mut own = Vec::new();
        let (mut at, mut count) = (0, 0);
        while let Some((key, value, next)) = entry_at(body, at) {
            self.check_entry(key, value, &mut own)
                .map_err(|what| reader.fault(what))?;
            if count % ENTRIES_PER_PAUSE == 0 {
                drop(leaf.take());
                worker.pause(work)?;
            }
            count += 1;
            let value = match own.is_empty() {
                true => value,
                false => own.as_slice(),
            };
            leaf = match put(tree, key, value, leaf, &mut scratch)? {
                Put::Done(leaf) => Some(leaf),
                Put::Occupied => return Err(reader.fault("an entry that is there twice")),
            };
            worker.stored_is_named();
            at = next;
        }
        if at != body.len() {
            return Err(reader.fault("an entry breaks off"));
        }
        Ok(())
    }

    /// The next entry is one that may follow; `own` is the row with its own references, if it names values.
    fn check_entry(
        &mut self,
        key: &[u8],
        value: &[u8],
        own: &mut Vec<u8>,
    ) -> std::result::Result<(), &'static str> {
        if self.sum.entries > 0 && key <= self.before.as_slice() {
            return Err("entries out of their order");
        }
        if check_size(self.index, key.len(), value.len()).is_err() {
            return Err("an entry that fits no page");
        }
        if self.row_ids && !is_row_id(key) {
            return Err("a row id that no table gives out");
        }
        let pk = match self.index {
            0 => named_anew(key, value, &mut self.values, own),
            _ => clustered_key(key, value).filter(|pk| !pk.is_empty()),
        };
        let pk = pk.ok_or("an entry that is no row's")?;
        debug_assert!(key.ends_with(pk), "an entry of another row");
        self.sum.add(pk);
        self.before.clear();
        self.before.extend_from_slice(key);
        Ok(())
    }
}

/// Fills the trees of the table, which nobody sees, from the file whose head was read. Returns what each of
/// them has.
///
/// # Errors
/// `Corrupt`: the file is damaged. `Interrupted`, `DiskFull`, an I/O error. The trees have some entries, and no
/// thread is at work.
pub(super) fn fill(session: &mut Session, reader: &mut Reader, table: &Arc<Table>) -> Result<Sum> {
    let is_hidden = table.loading.load(Ordering::SeqCst);
    assert!(is_hidden, "somebody may see the table");
    let sums = vec![None; table.index_count()];
    let work = Arc::new(Work {
        engine: session.engine.clone(),
        table: table.clone(),
        // The session's thread has the clustered index.
        next: AtomicUsize::new(1),
        stop: AtomicBool::new(false),
        done: Mutex::new(Done {
            sums,
            failure: None,
        }),
    });
    let from = reader.again();
    let helpers = Helpers::start(&work, &from);
    match work.fill_index(0, session, reader) {
        Ok(sum) => {
            work.done.lock().sums[0] = Some(sum);
            work.fill_indexes(session, &mut from.again());
        }
        Err(e) => work.fail(e),
    }
    helpers.join(session);
    let done = std::mem::take(&mut *work.done.lock());
    if let Some(failure) = done.failure {
        return Err(failure);
    }
    let sums: Option<Vec<Sum>> = done.sums.into_iter().collect();
    all_equal(&mut from.again(), &sums.expect("every index is filled"))
}

/// All indexes have the same rows, as many as the file's end says.
fn all_equal(reader: &mut Reader, sums: &[Sum]) -> Result<Sum> {
    reader.skip_to(usize::MAX)?;
    let last = reader.next()?;
    if !reader.is_at_end() {
        return Err(reader.fault("something follows the end"));
    }
    if last.kind != Kind::End || !reader.has_sums(sums) {
        return Err(reader.fault("rows or entries are missing"));
    }
    if sums.iter().any(|sum| *sum != sums[0]) {
        return Err(reader.fault("the indexes have other rows than the table"));
    }
    Ok(sums[0])
}

/// A table counts its row ids up from 0, and goes on behind the highest: there is always a next one.
fn is_row_id(key: &[u8]) -> bool {
    let id = key.try_into().map(u64::from_be_bytes);
    id.is_ok_and(|id| id < 1 << 63)
}

/// The clustered key of a row whose references now name this table's values; `own` is the row then, and
/// empty for a row that names none. None: the row names other values than came before it.
fn named_anew<'k>(
    key: &'k [u8],
    payload: &[u8],
    values: &mut Values,
    own: &mut Vec<u8>,
) -> Option<&'k [u8]> {
    own.clear();
    let (count, at) = reference_head(payload);
    let end = at + count * OVERFLOW_REF_BYTES;
    let same = |old: OverflowRef, new: &OverflowRef| old.length() == new.length();
    let fits = !key.is_empty()
        && end <= payload.len()
        && count == values.stored.len()
        && !values.open
        && references(payload)
            .zip(&values.stored)
            .all(|(old, new)| same(old, new));
    if !fits {
        return None;
    }
    if count > 0 {
        own.extend_from_slice(&payload[..at]);
        for reference in values.stored.drain(..) {
            own.extend_from_slice(reference.bytes());
        }
        own.extend_from_slice(&payload[end..]);
        assert_eq!(own.len(), payload.len(), "a row has grown");
    }
    Some(key)
}
