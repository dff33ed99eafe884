//! A transaction's undo list.
//!
//! A list is a run of bytes read backwards. The older part of a long one lies in chunks in a file (`undo_area`); the
//! tail is in memory. A checkpoint
//! copies the tail and names the chunks, so that even a transaction of millions of rows
//! neither pins the log nor is written again by each checkpoint.
//!
//! Invariant: whatever of a list is in chunks is whole chunks, the oldest first.
//!
//! Locking: a list is under its transaction's slot mutex. No latch may be
//! held when a list spills or reads a chunk back.

use crate::state::slot_figures::SlotFigures;
use crate::state::undo_area::{Chunk, UndoArea, CHUNK_BYTES};
use ferrite_sync::Arc;
use ferrite_types::{ByteReader, Error, Result, UndoPosition};

/// A tail of so many bytes spills its oldest chunk.
const SPILL_BYTES: usize = 2 * CHUNK_BYTES;
/// A tail of so many bytes takes no more of a transaction whose changes can be refused.
const MOST_TAIL_BYTES: usize = 3 * CHUNK_BYTES;
// What is left after a spill is less than what may be, and a full tail has been due before.
const _: () = assert!(SPILL_BYTES > CHUNK_BYTES && MOST_TAIL_BYTES > SPILL_BYTES);

/// A transaction's undo list.
#[derive(Default)]
pub(crate) struct UndoList {
    /// The older part, oldest first.
    chunks: Vec<Chunk>,
    /// The rest.
    tail: Vec<u8>,
    /// Bytes of the tail before which it is not spilled, if it need not be: there was no space.
    spill_again_at: usize,
    /// Where its size is told, of the list of a slot.
    figures: Option<Arc<SlotFigures>>,
}

impl UndoList {
    /// Its size is told there from here on.
    pub(super) fn tell(&mut self, figures: Arc<SlotFigures>) {
        debug_assert!(self.figures.is_none(), "a list of two slots");
        self.figures = Some(figures);
        self.tell_size();
    }

    #[inline]
    fn tell_size(&self) {
        if let Some(figures) = &self.figures {
            figures.set_undo(self.position().0, self.memory_bytes());
        }
    }

    /// The file has a place for every chunk of the list. What is in a chunk is found out by who needs it.
    ///
    /// # Errors
    /// `Corrupt` naming the file, which is missing or too short; `Io`.
    pub(crate) fn has_places(&self, area: &UndoArea) -> Result<()> {
        self.chunks
            .iter()
            .try_for_each(|c| area.place_of(*c).map(drop))
    }

    /// A list from its parts (checkpoint).
    pub(crate) fn from_parts(chunks: Vec<Chunk>, tail: Vec<u8>) -> UndoList {
        UndoList {
            chunks,
            tail,
            spill_again_at: 0,
            figures: None,
        }
    }

    /// Its parts, for a checkpoint.
    pub(crate) fn parts(&self) -> (&[Chunk], &[u8]) {
        (&self.chunks, &self.tail)
    }

    /// Memory that it takes, in bytes.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.tail.capacity() + self.chunks.capacity() * size_of::<Chunk>()
    }

    fn base(&self) -> u64 {
        (self.chunks.len() * CHUNK_BYTES) as u64
    }

    /// The position at its end, in bytes.
    pub(crate) fn position(&self) -> UndoPosition {
        UndoPosition(self.base() + self.tail.len() as u64)
    }

    /// Adds an entry.
    pub(crate) fn push(&mut self, entry: &[u8]) {
        self.tail.extend_from_slice(entry);
        assert!(u32::try_from(entry.len()).is_ok(), "{} bytes", entry.len());
        self.tail
            .extend_from_slice(&(entry.len() as u32).to_le_bytes());
        debug_assert_eq!(
            entry_before(&self.tail, self.tail.len()).map(|(_, last)| last),
            Some(entry),
            "the last entry reads differently"
        );
        self.tell_size();
    }

    /// The tail has grown long: call [`UndoList::spill`].
    #[inline]
    pub(crate) fn spill_due(&self) -> bool {
        self.tail.len() >= SPILL_BYTES
    }

    /// The tail is as long as it may be, unless it can be spilled.
    pub(crate) fn tail_is_full(&self) -> bool {
        self.tail.len() >= MOST_TAIL_BYTES
    }

    /// Moves the older part of the tail into the file.
    ///
    /// # Errors
    /// `DiskFull`, `Io`: what could not be moved stays in memory.
    pub(crate) fn spill(&mut self, area: &UndoArea) -> Result<()> {
        self.spill_from(SPILL_BYTES, area)
    }

    /// The same down to less than a chunk: many lists that are too short for [`UndoList::spill`] are much
    /// together. On a full disk the tail stays as it is.
    ///
    /// # Errors
    /// `Io`.
    pub(crate) fn spill_all_chunks(&mut self, area: &UndoArea) -> Result<()> {
        match self.spill_from(CHUNK_BYTES, area) {
            Err(Error::DiskFull(_)) => Ok(()),
            other => other,
        }
    }

    /// Moves chunks while the tail has so many bytes.
    fn spill_from(&mut self, least_bytes: usize, area: &UndoArea) -> Result<()> {
        let position = self.position();
        assert!(least_bytes >= CHUNK_BYTES, "a part of a chunk");
        let (mut moved, mut result) = (0, Ok(()));
        while self.tail.len() - moved >= least_bytes && !area.read_only && result.is_ok() {
            match area.write(&self.tail[moved..moved + CHUNK_BYTES]) {
                Ok(chunk) => {
                    self.chunks.push(chunk);
                    moved += CHUNK_BYTES;
                }
                Err(e) => result = Err(e),
            }
        }
        // All at once: a tail that could not be spilled for long is long.
        self.tail.drain(..moved);
        assert_eq!(self.position(), position, "undo is lost by spilling it");
        self.tell_size();
        result
    }

    /// The same for a list that may stay in memory: on a full disk it does, and it is tried again when the
    /// tail is half as long again.
    ///
    /// # Errors
    /// `Io`.
    pub(crate) fn spill_if_it_goes(&mut self, area: &UndoArea) -> Result<()> {
        if self.tail.len() < self.spill_again_at {
            return Ok(());
        }
        let result = self.spill(area);
        let again = result.is_err();
        self.spill_again_at = if again { self.tail.len() / 2 * 3 } else { 0 };
        match result {
            Err(Error::DiskFull(_)) => Ok(()),
            other => other,
        }
    }

    /// Takes the youngest chunk back into memory; false if there is none.
    fn recall(&mut self, area: &UndoArea) -> Result<bool> {
        let Some(&chunk) = self.chunks.last() else {
            return Ok(false);
        };
        let position = self.position();
        let mut bytes = area.read(chunk)?;
        bytes.append(&mut self.tail);
        self.tail = bytes;
        self.chunks.pop();
        assert_eq!(self.position(), position, "undo is lost by reading it back");
        area.release(chunk);
        self.tell_size();
        Ok(true)
    }

    /// The last entry and the position before it; both are in memory from here on.
    ///
    /// # Errors
    /// A chunk that cannot be read.
    pub(crate) fn last(&mut self, area: &UndoArea) -> Result<Option<(&[u8], UndoPosition)>> {
        while entry_before(&self.tail, self.tail.len()).is_none() {
            if !self.recall(area)? {
                return Ok(None);
            }
        }
        let base = self.base();
        Ok(entry_before(&self.tail, self.tail.len())
            .map(|(start, entry)| (entry, UndoPosition(base + start as u64))))
    }

    /// The entry that ends at `end`, and where it begins, if it is in memory.
    pub(crate) fn in_memory_before(&self, end: UndoPosition) -> Option<(UndoPosition, &[u8])> {
        debug_assert!(end <= self.position(), "{end} is beyond the list");
        let base = self.base();
        let end = end.0.checked_sub(base)? as usize;
        let (start, entry) = entry_before(&self.tail, end)?;
        Some((UndoPosition(base + start as u64), entry))
    }

    /// Forgets the entry that [`UndoList::last`] gave, `left` being the position before it.
    pub(crate) fn drop_last(&mut self, left: UndoPosition) {
        debug_assert!(left.0 >= self.base(), "an entry that is not in memory");
        let keep = left.0.saturating_sub(self.base());
        self.tail.truncate(keep as usize);
        self.tell_size();
    }

    /// Forgets everything after a position.
    ///
    /// # Errors
    /// A chunk that cannot be read; nothing was forgotten of it.
    pub(crate) fn truncate(&mut self, position: UndoPosition, area: &UndoArea) -> Result<()> {
        while position.0 < self.base() {
            if position.0 <= self.base() - CHUNK_BYTES as u64 {
                self.tail.clear();
                self.chunks.pop().into_iter().for_each(|c| area.release(c));
            } else {
                self.recall(area)?;
            }
        }
        self.drop_last(position);
        debug_assert!(self.position() <= position, "{} is left", self.position());
        Ok(())
    }

    /// Forgets everything; keeps a modest buffer for the next transaction.
    pub(crate) fn clear(&mut self, area: &UndoArea) {
        self.tail.clear();
        self.spill_again_at = 0;
        if self.tail.capacity() > 1 << 20 {
            self.tail = Vec::new();
        }
        self.chunks.drain(..).for_each(|c| area.release(c));
        debug_assert_eq!(self.position(), UndoPosition::START, "undo is left");
        self.tell_size();
    }

    /// Reads the list backwards without changing it.
    pub(crate) fn backwards(&self) -> Backwards {
        Backwards {
            chunks: self.chunks.clone(),
            bytes: self.tail.clone(),
        }
    }
}

/// See [`UndoList::backwards`].
pub(crate) struct Backwards {
    chunks: Vec<Chunk>,
    bytes: Vec<u8>,
}

impl Backwards {
    /// Where the entry begins that was read last; at first, the end of the list.
    pub(crate) fn position(&self) -> UndoPosition {
        let older = self.chunks.len() * CHUNK_BYTES;
        UndoPosition((older + self.bytes.len()) as u64)
    }

    /// The entry before.
    ///
    /// # Errors
    /// A chunk that cannot be read.
    pub(crate) fn prev(&mut self, area: &UndoArea) -> Result<Option<Vec<u8>>> {
        loop {
            if let Some((start, entry)) = entry_before(&self.bytes, self.bytes.len()) {
                let entry = entry.to_vec();
                self.bytes.truncate(start);
                return Ok(Some(entry));
            }
            let Some(chunk) = self.chunks.pop() else {
                return Ok(None);
            };
            let mut bytes = area.read(chunk)?;
            bytes.append(&mut self.bytes);
            self.bytes = bytes;
        }
    }

    /// The whole list at once, as far back as it can be read: where that begins, its bytes, and what was in
    /// the way.
    pub(crate) fn all(self, area: &UndoArea) -> (UndoPosition, Vec<u8>, Option<Error>) {
        let older = self.chunks.len() * CHUNK_BYTES;
        let mut bytes = vec![0; older + self.bytes.len()];
        bytes[older..].copy_from_slice(&self.bytes);
        for (number, chunk) in self.chunks.iter().enumerate().rev() {
            let at = number * CHUNK_BYTES;
            match area.read(*chunk) {
                Ok(chunk) => bytes[at..at + CHUNK_BYTES].copy_from_slice(&chunk),
                Err(e) => {
                    let from = at + CHUNK_BYTES;
                    bytes.drain(..from);
                    return (UndoPosition(from as u64), bytes, Some(e));
                }
            }
        }
        (UndoPosition::START, bytes, None)
    }
}

/// The entry that ends at `end`, and where it begins.
pub(crate) fn entry_before(bytes: &[u8], end: usize) -> Option<(usize, &[u8])> {
    let length_at = end.checked_sub(4)?;
    let len = ByteReader::new(&bytes[length_at..end]).u32()? as usize;
    let start = length_at.checked_sub(len)?;
    Some((start, &bytes[start..length_at]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ferrite_io::sim::SimStorage;
    use ferrite_sync::random::Rng;

    fn entry(n: u64) -> Vec<u8> {
        let mut rng = Rng::new(n);
        let mut bytes = vec![0; 20 + rng.below(3000) as usize];
        rng.fill(&mut bytes);
        bytes
    }

    #[test]
    fn a_long_list_spills_and_comes_back() {
        let area = UndoArea::new(Arc::new(SimStorage::new(1)));
        let (mut list, mut model) = (UndoList::default(), Vec::new());
        let mut rng = Rng::new(5);
        for n in 0..12_000u64 {
            model.push((list.position(), entry(n)));
            list.push(&entry(n));
            list.spill(&area).unwrap();
            assert!(list.tail.len() < SPILL_BYTES);
            if rng.chance(1, 3000) {
                let keep = rng.below(model.len() as u64) as usize;
                list.truncate(model[keep].0, &area).unwrap();
                model.truncate(keep);
            }
        }
        assert!(list.chunks.len() > 3);
        let mut back = list.backwards();
        assert_eq!(back.position(), list.position());
        for (position, expected) in model.iter().rev() {
            assert_eq!(back.prev(&area).unwrap().as_ref(), Some(expected));
            assert_eq!(back.position(), *position);
        }
        assert_eq!(back.prev(&area).unwrap(), None);
        while let Some((position, expected)) = model.pop() {
            let (found, left) = list.last(&area).unwrap().unwrap();
            assert_eq!((found, left), (&expected[..], position));
            list.drop_last(left);
        }
        assert!(list.last(&area).unwrap().is_none());
        let released = area.begin_checkpoint();
        area.end_checkpoint(released, true);
        assert_eq!(area.bytes(), 0);
    }

    /// Recovery on a full disk: a list of a million entries is not a million attempts to write a chunk of it.
    #[test]
    fn a_list_that_cannot_be_spilled_is_tried_seldom() {
        let disk = SimStorage::new(3);
        let area = UndoArea::new(Arc::new(disk.clone()));
        disk.set_capacity(Some(0));
        let (mut list, mut attempts, mut before) = (UndoList::default(), 0, 0);
        for n in 0..20_000 {
            list.push(&entry(n));
            list.spill_if_it_goes(&area).unwrap();
            attempts += usize::from(list.spill_again_at != before);
            before = list.spill_again_at;
        }
        assert!(list.chunks.is_empty() && list.tail.len() > 20 << 20);
        assert!((2..12).contains(&attempts), "{attempts} attempts");
        disk.set_capacity(None);
        let position = list.position();
        list.spill(&area).unwrap();
        assert!(list.position() == position && list.tail.len() < SPILL_BYTES);
        for n in (0..20_000).rev() {
            let (found, left) = list.last(&area).unwrap().unwrap();
            assert_eq!(found, &entry(n)[..], "entry {n}");
            list.drop_last(left);
        }
    }
}
