//! Several reads in flight together.
//!
//! [`ReadQueue::read_all`] starts all parts, and calls back for each as it arrives, in any order:
//! through io_uring (`uring`) where the kernel has it for us, else part by part. The simulated
//! disk is read part by part in an order drawn by chance, so that nobody gets used to one.
//!
//! Invariants: every part is told exactly once, and no buffer is touched after `read_all` has
//! returned. What io_uring does not read in full is read again the ordinary way, which says what is
//! wrong. Locking: none; a queue belongs to one thread at a time.

use ferrite_sync::observed::{self, FileCall, FileClass};
use ferrite_sync::{random, time, Arc};
use ferrite_types::{Error, Result};

use crate::uring::{Request, Ring, RING_ENTRIES};
use crate::{IoStats, StorageFile};

/// One of the reads of [`ReadQueue::read_all`].
pub struct ReadPart<'b> {
    /// The file.
    pub file: Arc<dyn StorageFile>,
    /// Where to begin, in bytes.
    pub offset: u64,
    /// What to fill.
    pub buf: &'b mut [u8],
}

/// An open file of the system, for reads that the kernel keeps in flight.
pub struct Descriptor<'f> {
    pub(crate) fd: std::os::fd::RawFd,
    pub(crate) stats: &'f IoStats,
    pub(crate) class: Option<FileClass>,
}

/// What is known of the kernel's ring.
enum Kernel {
    Unasked,
    Has(Box<Ring>),
    HasNone,
}

/// Keeps several reads in flight for one thread.
pub struct ReadQueue {
    kernel: Kernel,
    order: Vec<usize>,
}

impl Default for ReadQueue {
    fn default() -> ReadQueue {
        ReadQueue::new()
    }
}

impl ReadQueue {
    /// Nothing in flight.
    pub fn new() -> ReadQueue {
        ReadQueue {
            kernel: Kernel::Unasked,
            order: Vec::new(),
        }
    }

    /// Reads all parts; `arrived` gets the number of each with its bytes, or why there are none (as
    /// [`StorageFile::read_at`] says it). Returns when all have arrived.
    pub fn read_all(
        &mut self,
        parts: &mut [ReadPart<'_>],
        arrived: &mut dyn FnMut(usize, Result<&[u8]>),
    ) {
        let is_real = parts.iter().all(|part| part.file.descriptor().is_some());
        if parts.len() > 1 && is_real {
            if let Some(ring) = self.ring() {
                return read_through(ring, parts, arrived);
            }
        }
        self.order.clear();
        self.order.extend(0..parts.len());
        if parts.len() > 1 && !is_real {
            random::Rng::new(random::next_u64()).shuffle(&mut self.order);
        }
        for &n in &self.order {
            read_alone(n, &mut parts[n], arrived);
        }
    }

    fn ring(&mut self) -> Option<&mut Ring> {
        if matches!(self.kernel, Kernel::Unasked) {
            self.kernel = Ring::new().map_or(Kernel::HasNone, |ring| Kernel::Has(Box::new(ring)));
        }
        match &mut self.kernel {
            Kernel::Has(ring) => Some(ring),
            _ => None,
        }
    }
}

fn read_alone(n: usize, part: &mut ReadPart<'_>, arrived: &mut dyn FnMut(usize, Result<&[u8]>)) {
    let read = part.file.read_at(part.buf, part.offset);
    arrived(n, read.map(|()| &*part.buf));
}

/// Reads all parts, of open files of the system, through the ring.
fn read_through(
    ring: &mut Ring,
    parts: &mut [ReadPart<'_>],
    arrived: &mut dyn FnMut(usize, Result<&[u8]>),
) {
    let mut first = 0;
    for parts in parts.chunks_mut(RING_ENTRIES) {
        let began_us = time::now_us();
        let requests: Vec<Request> = parts
            .iter_mut()
            .map(|part| Request {
                fd: part.file.descriptor().map_or(-1, |file| file.fd),
                offset: part.offset,
                start: part.buf.as_mut_ptr(),
                len: part.buf.len() as u32,
            })
            .collect();
        let mut done = |n: usize, bytes: i32| {
            let part = &mut parts[n];
            if bytes < 0 || bytes as usize != part.buf.len() {
                return read_alone(first + n, part, arrived);
            }
            if let Some(file) = part.file.descriptor() {
                file.stats.reads.inc();
                file.stats.read_bytes.add(part.buf.len() as u64);
                file.stats.read_us.record_us(time::now_us() - began_us);
                // The time is nobody's: others were in flight beside it.
                let read = || Ok::<_, Error>(());
                let _ = observed::call(file.class, FileCall::Read, part.buf.len(), read);
            }
            let decoded = part.file.decode(part.buf, part.offset);
            arrived(first + n, decoded.map(|()| &*part.buf));
        };
        // SAFETY: the parts are borrowed for the whole call, with their buffers and open files; a
        // buffer is looked at only when its read is over.
        unsafe { ring.read_all(&requests, &mut done) };
        first += parts.len();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::{Fault, SimStorage};
    use crate::{AlignedBuf, OpenMode, RealStorage, Storage, BLOCK_BYTES};

    const BLOCKS: usize = 150;

    /// A file whose block n is full of n, and all its blocks wanted, one beyond its end with them.
    fn file(storage: &dyn Storage, direct: bool) -> Arc<dyn StorageFile> {
        let file = storage.open("f", OpenMode::CreateNew, direct).unwrap();
        let mut bytes = AlignedBuf::zeroed(BLOCKS * BLOCK_BYTES);
        for (n, block) in bytes.chunks_mut(BLOCK_BYTES).enumerate() {
            block.fill(n as u8);
        }
        file.write_at(&bytes, 0).unwrap();
        file
    }

    fn read_back(file: &Arc<dyn StorageFile>) -> Vec<usize> {
        let mut buf = AlignedBuf::zeroed((BLOCKS + 1) * BLOCK_BYTES);
        let mut parts: Vec<ReadPart<'_>> = buf
            .chunks_mut(BLOCK_BYTES)
            .enumerate()
            .map(|(n, buf)| ReadPart {
                file: file.clone(),
                offset: (n * BLOCK_BYTES) as u64,
                buf,
            })
            .collect();
        let mut came = Vec::new();
        ReadQueue::new().read_all(&mut parts, &mut |n, bytes| {
            match bytes {
                Ok(bytes) => assert!(bytes.iter().all(|b| *b == n as u8), "block {n}"),
                Err(e) => assert!(n == BLOCKS, "block {n}: {e}"),
            }
            came.push(n);
        });
        came
    }

    #[test]
    fn every_part_of_a_real_file_arrives_once() {
        let dir = std::env::temp_dir().join(format!("ferrite-queue-{}", std::process::id()));
        let storage = RealStorage::new(&dir).unwrap();
        let file = file(&storage, true);
        let before = storage.stats().reads.get();
        let mut came = read_back(&file);
        came.sort_unstable();
        assert!(came.into_iter().eq(0..=BLOCKS));
        assert_eq!(storage.stats().reads.get() - before, BLOCKS as u64);
        std::fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn a_simulated_disk_answers_in_any_order_and_fails_one() {
        let disk = SimStorage::new(3);
        let file = file(&disk, true);
        let mut came = read_back(&file);
        assert!(!came.is_sorted());
        came.sort_unstable();
        assert!(came.into_iter().eq(0..=BLOCKS));
        disk.inject(Fault::FailRead, 3);
        let mut failed = 0;
        let mut buf = AlignedBuf::zeroed(8 * BLOCK_BYTES);
        let mut parts: Vec<ReadPart<'_>> = buf
            .chunks_mut(BLOCK_BYTES)
            .map(|buf| ReadPart {
                file: file.clone(),
                offset: 0,
                buf,
            })
            .collect();
        ReadQueue::new().read_all(&mut parts, &mut |_, bytes| {
            failed += usize::from(bytes.is_err())
        });
        assert_eq!(failed, 1);
    }
}
