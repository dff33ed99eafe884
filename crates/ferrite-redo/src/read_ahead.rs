//! Reads the blocks of the log in order, some in advance, while the caller works on those before.
//!
//! A hint only: who gets nothing here reads for itself, and so does who doubts what it got. A piece may be older
//! than what is on disk by the time it is used, as any read may.
//!
//! Locking: `state` is a leaf, not held over reads.

use crate::format::{Geometry, SECTOR};
use crate::segments::{File, Segments};
use ferrite_io::AlignedBuf;
use ferrite_sync::{thread, Arc, Condvar, Mutex};
use std::collections::VecDeque;

/// Pieces that are read and not taken yet, at the most.
const MOST_READY: usize = 3;

/// Sectors that were read, from the first one up to the second.
type Blocks = ((u64, u64), AlignedBuf);

#[derive(Default)]
struct State {
    ready: VecDeque<Blocks>,
    spare: Vec<AlignedBuf>,
    /// Nothing more comes, or is wanted.
    over: bool,
}

struct Shared {
    state: Mutex<State>,
    /// Whenever that changes.
    change: Condvar,
}

/// See the head of the file.
pub(crate) struct ReadAhead {
    shared: Arc<Shared>,
    thread: Option<thread::JoinHandle<()>>,
}

impl ReadAhead {
    /// Begins at a sector that begins a block, reads so many bytes at a time, and ends with the piece that has
    /// the sector `last`.
    pub(crate) fn start(segs: &Segments, sector: u64, last: u64, bytes: usize) -> ReadAhead {
        let geometry = segs.geometry();
        let (segment, _) = geometry.place(sector);
        let end = segs.ready().min(geometry.place(last).0 + 1);
        let files = (segment..end).map_while(|s| segs.get(s));
        ReadAhead::of(files.collect(), geometry, (sector, last), bytes)
    }

    /// The first sector is in the first of these segments. Without a thread nothing is read ahead.
    fn of(
        files: Vec<File>,
        geometry: Geometry,
        (first, last): (u64, u64),
        bytes: usize,
    ) -> ReadAhead {
        debug_assert!(first <= last, "from {first} to {last}");
        let shared = Arc::new(Shared {
            state: Mutex::new(State::default()),
            change: Condvar::new(),
        });
        let of_thread = End(shared.clone());
        let thread = thread::try_spawn("ferrite-log-rd", move || {
            let mut sector = first;
            for file in files {
                if !of_thread
                    .0
                    .read_file(&file, geometry, (sector, last), bytes)
                {
                    return;
                }
                sector = geometry.first_sector(geometry.place(sector).0 + 1);
            }
        });
        ReadAhead { shared, thread }
    }

    /// Puts the next piece into `buf`, if it begins with that sector, and gives its first sector and the one
    /// after its last. None: read it yourself, from here on.
    pub(crate) fn take(&mut self, sector: u64, buf: &mut AlignedBuf) -> Option<(u64, u64)> {
        let mut state = self.shared.state.lock();
        while state.ready.is_empty() && !state.over {
            state = self.shared.change.wait(state);
        }
        let (have, mut read) = state.ready.pop_front().filter(|p| p.0 .0 == sector)?;
        debug_assert!(have.1 > sector, "nothing from {sector}");
        std::mem::swap(&mut read, buf);
        state.spare.push(read);
        drop(state);
        self.shared.change.notify_all();
        Some(have)
    }
}

/// Nothing more comes once this goes, however the thread ends, or if there is none.
struct End(Arc<Shared>);

impl Drop for End {
    fn drop(&mut self) {
        self.0.end();
    }
}

impl Drop for ReadAhead {
    fn drop(&mut self) {
        self.shared.end();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn end(&self) {
        self.state.lock().over = true;
        self.change.notify_all();
    }

    /// Reads the file from its first sector that is wanted to its end, or to the last that is. False: it cannot be
    /// read, or nobody wants more.
    fn read_file(
        &self,
        file: &File,
        geometry: Geometry,
        (mut sector, last): (u64, u64),
        bytes: usize,
    ) -> bool {
        let (_, mut offset) = geometry.place(sector);
        assert!(offset < geometry.segment_bytes, "{offset} in a segment");
        while offset < geometry.segment_bytes && sector <= last {
            let Some(buf) = self.buffer() else {
                return false;
            };
            let mut buf = buf.unwrap_or_else(|| AlignedBuf::zeroed(bytes));
            let n = (geometry.segment_bytes - offset).min(buf.len() as u64);
            if file.read_at(&mut buf[..n as usize], offset).is_err() {
                return false;
            }
            let end = sector + n / SECTOR as u64;
            self.state.lock().ready.push_back(((sector, end), buf));
            self.change.notify_all();
            (sector, offset) = (end, offset + n);
        }
        true
    }

    /// Waits until there is a use for one more. Some(None): none is left over. None: nobody wants more.
    fn buffer(&self) -> Option<Option<AlignedBuf>> {
        let mut state = self.state.lock();
        while state.ready.len() >= MOST_READY && !state.over {
            state = self.change.wait(state);
        }
        debug_assert!(state.spare.len() <= MOST_READY + 1, "buffers without end");
        (!state.over).then(|| state.spare.pop())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ferrite_io::{sim::SimStorage, OpenMode, Storage};

    /// Who asks for another place than the next one, or goes past the end, reads for himself.
    #[test]
    fn pieces_come_in_order_or_not_at_all() {
        let disk = SimStorage::new(1);
        let file = disk.boot().open("f", OpenMode::CreateNew, false).unwrap();
        let geometry = Geometry {
            segment_bytes: 40 << 10,
        };
        for at in 0..10u8 {
            file.write_at(&[at; 4096], u64::from(at) << 12).unwrap();
        }
        let start =
            |first, last| ReadAhead::of(vec![file.clone()], geometry, (first, last), 16 << 10);
        let mut buf = AlignedBuf::zeroed(16 << 10);
        let mut ahead = start(8, u64::MAX);
        for (from, to) in [(8, 40), (40, 72), (72, 80)] {
            assert_eq!(ahead.take(from, &mut buf), Some((from, to)));
            let whole = &buf[..(to - from) as usize * SECTOR];
            let right =
                |(n, byte): (usize, &u8)| usize::from(*byte) == n / 4096 + from as usize / 8;
            assert!(whole.iter().enumerate().all(right), "{from}");
        }
        assert_eq!(ahead.take(80, &mut buf), None);
        let mut ahead = start(0, u64::MAX);
        assert_eq!(ahead.take(8, &mut buf), None);
        // Nothing is read that is not wanted.
        let mut ahead = start(0, 31);
        assert_eq!(ahead.take(0, &mut buf), Some((0, 32)));
        assert_eq!(ahead.take(32, &mut buf), None);
    }
}
