//! What the writer threads share, and those who wake them.
//!
//! Locking: `failure` is a leaf.

use ferrite_sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use ferrite_sync::{Event, Mutex};
use ferrite_types::Error;

/// What the writer threads share.
pub struct WriterState {
    pub(crate) event: Event,
    pub(crate) awake: AtomicBool,
    pub(crate) stop: AtomicBool,
    pub(crate) next_ticket: AtomicU64,
    /// Pages first changed before this position are to be written (set by the checkpointer).
    pub(crate) flush_below: AtomicU64,
    /// Start of the record that redo applies at this moment; the greatest number when there is
    /// no redo.
    pub(crate) redo_at: AtomicU64,
    /// All changes are refused: pages cannot be written, or no more than are dirty.
    pub(crate) disk_full: AtomicBool,
    /// Nobody waits without an end for pages to be written.
    pub(crate) impatient: AtomicBool,
    /// Pages that are tried at a time.
    pub(crate) trial: AtomicUsize,
    /// Changes are refused but deletions.
    pub(crate) little_room: AtomicBool,
    pub(crate) failure: Mutex<Option<Error>>,
}

impl WriterState {
    pub(crate) fn new() -> WriterState {
        WriterState {
            event: Event::new(),
            awake: AtomicBool::new(false),
            stop: AtomicBool::new(false),
            next_ticket: AtomicU64::new(1),
            flush_below: AtomicU64::new(0),
            redo_at: AtomicU64::new(u64::MAX),
            disk_full: AtomicBool::new(false),
            impatient: AtomicBool::new(false),
            trial: AtomicUsize::new(usize::MAX),
            little_room: AtomicBool::new(false),
            failure: Mutex::new(None),
        }
    }

    /// No page is written any more.
    pub(crate) fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::SeqCst)
    }

    /// Makes the writer look for work; cheap when it is awake.
    pub(crate) fn wake(&self) {
        if !self.awake.load(Ordering::Relaxed) && !self.awake.swap(true, Ordering::SeqCst) {
            self.event.set();
        }
    }
}
