//! The frames without a page, and what becomes of their number.
//!
//! Invariant: a frame is in one of the lists at most, and once. Locking: under the pool's lock `free`.

/// Lists no longer than this are searched for what must not be in them.
const CHECKED_MOST: usize = 4096;

/// Frames without a page.
pub(crate) struct FreeFrames {
    /// To be had.
    pub(crate) list: Vec<u32>,
    /// Not to be had any more.
    pub(crate) parked: Vec<u32>,
}

impl FreeFrames {
    pub(crate) fn of(count: usize) -> FreeFrames {
        FreeFrames {
            list: (0..count as u32).rev().collect(),
            parked: Vec::new(),
        }
    }

    pub(crate) fn park(&mut self, f: u32) {
        debug_assert!(!self.list.contains(&f) || self.list.len() > CHECKED_MOST);
        self.parked.push(f);
    }

    /// Those below the limit can be had, the others cannot.
    pub(crate) fn divide(&mut self, limit: usize) {
        let before = self.list.len() + self.parked.len();
        let kept = |f: &u32| (*f as usize) < limit;
        let (list, mut parked): (Vec<u32>, _) = self.list.drain(..).partition(kept);
        let (back, still): (Vec<u32>, _) = self.parked.drain(..).partition(kept);
        parked.extend(still);
        let all = list.len() + back.len() + parked.len();
        assert!(all >= before, "{all} of {before} frames are left");
        self.list = list;
        self.list.extend(back);
        self.parked = parked;
    }
}

/// A change of the pool's size that has come to its end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Resized {
    /// Size before, in bytes.
    pub from_bytes: u64,
    /// Size now, in bytes.
    pub to_bytes: u64,
}
