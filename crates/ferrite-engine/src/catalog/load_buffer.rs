//! What a table that is being filled has gathered: entries of its non-unique indexes, to be sorted
//! and inserted a buffer full at a time (`load`).
//!
//! Locking: none of its own; behind `Table::load`.

use ferrite_tree::Scratch;

/// Accounted per entry besides its bytes.
const ENTRY_BYTES: usize = 12;

/// Entries of one index, waiting to be sorted.
#[derive(Default)]
pub(crate) struct Run {
    pub bytes: Vec<u8>,
    /// Start in `bytes`, key length, value length.
    pub entries: Vec<(u32, u32, u32)>,
}

impl Run {
    pub(crate) fn key(&self, entry: &(u32, u32, u32)) -> &[u8] {
        &self.bytes[entry.0 as usize..(entry.0 + entry.1) as usize]
    }

    pub(crate) fn value(&self, entry: &(u32, u32, u32)) -> &[u8] {
        let at = (entry.0 + entry.1) as usize;
        &self.bytes[at..at + entry.2 as usize]
    }
}

/// What a table being filled has gathered.
pub(crate) struct LoadBuffer {
    pub runs: Vec<Run>,
    pub bytes: usize,
    pub scratch: Scratch,
}

impl LoadBuffer {
    pub(crate) fn new(indexes: usize) -> LoadBuffer {
        LoadBuffer {
            runs: (0..indexes).map(|_| Run::default()).collect(),
            bytes: 0,
            scratch: Scratch::default(),
        }
    }

    pub(crate) fn add(&mut self, number: usize, key: &[u8], value: &[u8]) {
        let run = &mut self.runs[number];
        let start = run.bytes.len() as u32;
        assert!(
            run.bytes.len() + key.len() + value.len() <= u32::MAX as usize,
            "{} bytes are gathered",
            run.bytes.len()
        );
        run.bytes.extend_from_slice(key);
        run.bytes.extend_from_slice(value);
        let entry = (start, key.len() as u32, value.len() as u32);
        debug_assert_eq!((run.key(&entry), run.value(&entry)), (key, value));
        run.entries.push(entry);
        self.bytes += key.len() + value.len() + ENTRY_BYTES;
    }
}
