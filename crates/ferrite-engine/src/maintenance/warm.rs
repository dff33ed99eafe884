//! The warm restart: which pages are in memory is noted with checkpoints and at shutdown, and they are
//! read back after the next start, hottest first, into frames that nobody needs.
//!
//! The file, `warm.pages`: "FERRWARM", version u32, count u32, as many page ids u32, CRC32C u32 of all before.
//! It is written under another name and renamed, and never synced: what a power failure damages is
//! not used. Whatever goes wrong with it costs a cold start and nothing else.
//!
//! Locking: none of its own; one thread saves at a time (the checkpoint's mutex, or the shutdown after it).

use crate::state::callbacks::LogLevel;
use crate::state::engine::Engine;
use ferrite_buffer::Merging;
use ferrite_io::{OpenMode, Storage};
use ferrite_sync::atomic::Ordering;
use ferrite_sync::{kill_point, time};
use ferrite_types::{PageId, Result};

const NAME: &str = "warm.pages";
const ASIDE: &str = "warm.new";
const MAGIC: &[u8; 8] = b"FERRWARM";
const VERSION: u32 = 1;
const HEAD_BYTES: usize = 16;
const CRC_BYTES: usize = 4;
/// Pages of a list, at the most: 1 TiB of them.
const MOST_PAGES: usize = 1 << 26;
/// Between two notes of which pages are in memory, in us, but at shutdown.
const SAVE_US: u64 = 60_000_000;
/// Pages that are put in the order of the disk at a time.
const TOGETHER: usize = 1024;

fn encode(pages: &[PageId]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(HEAD_BYTES + 4 * pages.len() + CRC_BYTES);
    bytes.extend_from_slice(MAGIC);
    bytes.extend_from_slice(&VERSION.to_le_bytes());
    bytes.extend_from_slice(&(pages.len() as u32).to_le_bytes());
    for page in pages {
        bytes.extend_from_slice(&page.0.to_le_bytes());
    }
    bytes.extend_from_slice(&crc32c::crc32c(&bytes).to_le_bytes());
    debug_assert_eq!(decode(&bytes).as_deref(), Some(pages), "{NAME}");
    bytes
}

/// None: it is not what [`encode`] has made.
fn decode(bytes: &[u8]) -> Option<Vec<PageId>> {
    let word = |b: &[u8]| b.try_into().ok().map(u32::from_le_bytes);
    let (body, crc) = bytes.split_at_checked(bytes.len().checked_sub(CRC_BYTES)?)?;
    let (head, ids) = body.split_at_checked(HEAD_BYTES)?;
    let count = word(&head[12..])? as usize;
    let whole = head[..8] == *MAGIC
        && word(&head[8..12]) == Some(VERSION)
        && ids.len() == 4 * count
        && word(crc) == Some(crc32c::crc32c(body));
    let id = |b: &[u8]| word(b).map(PageId);
    whole.then(|| ids.chunks_exact(4).filter_map(id).collect())
}

fn write(storage: &dyn Storage, bytes: &[u8]) -> Result<()> {
    if storage.exists(ASIDE)? {
        storage.remove(ASIDE)?;
    }
    let file = storage.open(ASIDE, OpenMode::CreateNew, false)?;
    file.write_at(bytes, 0)?;
    drop(file);
    kill_point!("warm.written");
    storage.rename(ASIDE, NAME)
}

/// Empty if the file cannot be as long as its head says.
fn read(storage: &dyn Storage) -> Result<Vec<u8>> {
    let file = storage.open(NAME, OpenMode::ReadOnly, false)?;
    let len = file.len()?;
    let mut head = [0; HEAD_BYTES];
    file.read_at(&mut head, 0)?;
    let count = u32::from_le_bytes(head[12..].try_into().expect("four bytes")) as usize;
    let whole = HEAD_BYTES + 4 * count + CRC_BYTES;
    if count > MOST_PAGES || len != whole as u64 {
        return Ok(Vec::new());
    }
    let mut bytes = vec![0; whole];
    file.read_at(&mut bytes, 0)?;
    Ok(bytes)
}

/// Pages of the life before that are still to be read.
pub(super) struct Warming {
    pages: Vec<PageId>,
    next: usize,
    read: usize,
    begun_us: u64,
}

impl Engine {
    /// Notes which pages are in memory, if that was not done a short time ago.
    pub(crate) fn save_warm(&self, now: bool) {
        let last_us = self.warm_saved_us.load(Ordering::Relaxed);
        let now_us = time::now_us();
        let due = now || now_us >= last_us + SAVE_US;
        // Until the last list is read it is the better one.
        let warms = self.is_warming.load(Ordering::Relaxed);
        if !due || warms || !self.warm_start.load(Ordering::Relaxed) {
            return;
        }
        self.warm_saved_us.store(now_us, Ordering::Relaxed);
        let mut pages = self.pool.resident_hottest_first();
        pages.truncate(MOST_PAGES);
        if write(&*self.storage, &encode(&pages)).is_err() {
            let _ = self.storage.remove(ASIDE);
        }
    }

    /// What there is to be read after the start.
    pub(super) fn warming(&self) -> Warming {
        let pages = read(&*self.storage).ok().and_then(|b| decode(&b));
        let pages = pages.unwrap_or_default();
        let any = !pages.is_empty() && self.warm_start.load(Ordering::Relaxed);
        self.is_warming.store(any, Ordering::Relaxed);
        Warming {
            pages,
            next: 0,
            read: 0,
            begun_us: time::now_us(),
        }
    }

    /// Reads some of them. Gives how long the caller is to do nothing, in us: half of the time is left
    /// to others. None: there is nothing more to be read.
    pub(super) fn warm_some(&self, warming: &mut Warming, merging: &mut Merging) -> Option<u64> {
        if warming.next >= warming.pages.len() {
            return None;
        }
        let from = warming.next;
        let to = (from + TOGETHER).min(warming.pages.len());
        debug_assert!(from < to, "nothing of {} pages", warming.pages.len());
        let begun_us = time::now_us();
        let on = self.warm_start.load(Ordering::Relaxed);
        let some = &warming.pages[from..to];
        let came = on.then(|| self.pool.warm_up(merging, some)).flatten();
        warming.next = to;
        warming.read += came.unwrap_or(0);
        self.counters.warmed.add(came.unwrap_or(0) as u64);
        if came.is_none() || to == warming.pages.len() {
            self.end_warming(warming, on);
            return None;
        }
        Some((time::now_us() - begun_us).max(1000))
    }

    fn end_warming(&self, warming: &mut Warming, on: bool) {
        let ms = (time::now_us() - warming.begun_us) / 1000;
        let all = warming.pages.len();
        assert!(warming.read <= all, "{} of {all} pages", warming.read);
        warming.pages = Vec::new();
        self.is_warming.store(false, Ordering::Relaxed);
        if on && warming.read > 0 {
            let text = format!(
                "{} of {all} pages that were in memory before the start were read again in {ms} ms",
                warming.read
            );
            self.callbacks.log(LogLevel::Note, &text);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ferrite_io::sim::SimStorage;

    /// A file that is longer than its head says is not even read.
    #[test]
    fn an_enormous_file_is_no_list() {
        let storage = SimStorage::new(1).boot();
        write(&storage, &encode(&[PageId(7)])).unwrap();
        assert_eq!(decode(&read(&storage).unwrap()), Some(vec![PageId(7)]));
        let file = storage.open(NAME, OpenMode::ReadWrite, false).unwrap();
        for byte in [0, 0xff] {
            file.write_at(&[byte], 5 << 20).unwrap();
            file.write_at(&[byte; 4], 12).unwrap();
            assert_eq!(read(&storage).unwrap(), Vec::<u8>::new());
        }
    }

    #[test]
    fn only_a_whole_list_is_read() {
        let pages = [PageId(7), PageId(1), PageId(u32::MAX)];
        let bytes = encode(&pages);
        assert_eq!(decode(&bytes).as_deref(), Some(&pages[..]));
        assert_eq!(decode(&encode(&[])), Some(Vec::new()));
        for len in 0..bytes.len() {
            assert_eq!(decode(&bytes[..len]), None, "{len} bytes");
        }
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 4;
            assert_eq!(decode(&damaged), None, "byte {at}");
        }
    }
}
