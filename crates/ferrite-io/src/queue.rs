//! Several reads in flight together.
//!
//! [`ReadQueue::read_all`] starts all parts, and calls back for each as it arrives, in any order. A
//! file that stands for no open file of the system (the simulated disk) is read part by part in
//! an order drawn by chance, so that nobody gets used to one.
//!
//! Invariants: every part is told exactly once, and no buffer is touched after `read_all` has
//! returned. Locking: none; a queue belongs to one thread at a time.

use ferrite_sync::{random, Arc};
use ferrite_types::Result;

use crate::StorageFile;

/// One of the reads of [`ReadQueue::read_all`].
pub struct ReadPart<'b> {
    /// The file.
    pub file: Arc<dyn StorageFile>,
    /// Where to begin, in bytes.
    pub offset: u64,
    /// What to fill.
    pub buf: &'b mut [u8],
}

/// Keeps several reads in flight for one thread.
#[derive(Default)]
pub struct ReadQueue {
    order: Vec<usize>,
}

impl ReadQueue {
    /// Nothing in flight.
    pub fn new() -> ReadQueue {
        ReadQueue::default()
    }

    /// Reads all parts; `arrived` gets the number of each with its bytes, or why there are none (as
    /// [`StorageFile::read_at`] says it). Returns when all have arrived.
    pub fn read_all(
        &mut self,
        parts: &mut [ReadPart<'_>],
        arrived: &mut dyn FnMut(usize, Result<&[u8]>),
    ) {
        self.order.clear();
        self.order.extend(0..parts.len());
        if parts.len() > 1 {
            random::Rng::new(random::next_u64()).shuffle(&mut self.order);
        }
        for &n in &self.order {
            let part = &mut parts[n];
            let read = part.file.read_at(part.buf, part.offset);
            arrived(n, read.map(|()| &*part.buf));
        }
    }
}
