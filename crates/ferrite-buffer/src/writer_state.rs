//! What the writer threads share, and those who wake them.
//!
//! Who needs a writer wakes one ([`WriterState::wake`]), often: it costs one load while none sleeps. A writer takes a look
//! (what is there to be written, are there frames enough), writes what it found, and looks again; without work it sleeps,
//! for at most a pause.
//!
//! | a wake finds | then |
//! | --- | --- |
//! | no writer idle | each looks again before it sleeps |
//! | one called by another wake, or at a look that is `heard` | that one looks again: at once, or once its batch is written |
//! | else | it calls an idle one, whatever the others do |
//!
//! Invariant: a writer sleeps only after a look that found nothing, during which it was idle and that was not heard: who
//! came before it was seen by it, who came later has set the event. (A store before a wake may become visible after the
//! wake's loads, but not as late as a whole look; there is no fence, and the pause is the limit in any case.)
//!
//! Locking: `failure` is a leaf; `next_look_us`: see `room`.

use ferrite_sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use ferrite_sync::{Event, Mutex};
use ferrite_types::Error;

/// What the writer threads share.
pub struct WriterState {
    event: Event,
    /// Writers that sleep, or will unless a look finds something first.
    idle: AtomicUsize,
    /// Nobody need be called: somebody has been and has not looked yet, or is at a look that is heard.
    heard: AtomicBool,
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
    /// When the room may be looked at again, us; held by who looks (`room`).
    pub(crate) next_look_us: Mutex<u64>,
    /// How often it was asked for a look before that, and the last time that this was answered by a round of a writer
    /// which had begun since.
    pub(crate) asks: AtomicU64,
    pub(crate) answered: AtomicU64,
    /// Pages that may be merged until the next look, while there is little room.
    pub(crate) may_merge: AtomicUsize,
    pub(crate) failure: Mutex<Option<Error>>,
}

impl WriterState {
    pub(crate) fn new() -> WriterState {
        WriterState {
            event: Event::new(),
            idle: AtomicUsize::new(0),
            heard: AtomicBool::new(false),
            stop: AtomicBool::new(false),
            next_ticket: AtomicU64::new(1),
            flush_below: AtomicU64::new(0),
            redo_at: AtomicU64::new(u64::MAX),
            disk_full: AtomicBool::new(false),
            impatient: AtomicBool::new(false),
            trial: AtomicUsize::new(usize::MAX),
            little_room: AtomicBool::new(false),
            next_look_us: Mutex::new(0),
            asks: AtomicU64::new(0),
            answered: AtomicU64::new(0),
            may_merge: AtomicUsize::new(0),
            failure: Mutex::new(None),
        }
    }

    /// No page is written any more.
    pub(crate) fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::SeqCst)
    }

    /// Makes a writer look for work; cheap when all are awake.
    #[inline]
    pub(crate) fn wake(&self) {
        if self.idle.load(Ordering::Relaxed) > 0
            && !self.heard.load(Ordering::Relaxed)
            && !self.heard.swap(true, Ordering::SeqCst)
        {
            self.event.set();
        }
    }

    /// Lets all writers end.
    pub(crate) fn end_all(&self) {
        self.stop.store(true, Ordering::SeqCst);
        // It wakes one, which wakes the next.
        self.event.set();
    }

    pub(crate) fn begin_look(&self, watch: &Watch) {
        debug_assert!(watch.is_idle || watch.is_heard, "nobody would call it");
        if watch.is_heard {
            self.heard.store(true, Ordering::SeqCst);
        }
    }

    /// It has seen what there is, and may be long at writing it.
    pub(crate) fn end_look(&self) {
        self.heard.store(false, Ordering::SeqCst);
    }

    /// After a look, and what it led to: false: the writer has to look again.
    pub(crate) fn may_sleep(&self, watch: &mut Watch, worked: bool) -> bool {
        if worked {
            self.end_idle(watch);
            watch.is_heard = true;
            return false;
        }
        if !watch.is_idle {
            watch.is_idle = true;
            self.idle.fetch_add(1, Ordering::SeqCst);
        }
        !std::mem::take(&mut watch.is_heard)
    }

    /// True: it was called.
    pub(crate) fn sleep(&self, watch: &mut Watch, most_us: u64) -> bool {
        assert!(watch.is_idle, "nobody would call it");
        watch.is_heard = self.event.wait_timeout_us(most_us);
        watch.is_heard
    }

    fn end_idle(&self, watch: &mut Watch) {
        if std::mem::take(&mut watch.is_idle) {
            let before = self.idle.fetch_sub(1, Ordering::SeqCst);
            assert!(before > 0, "more writers wake than slept");
        }
    }

    /// That writer ends.
    pub(crate) fn leave(&self, mut watch: Watch) {
        self.end_idle(&mut watch);
        self.event.set();
    }
}

/// What of all this is one writer's.
pub(crate) struct Watch {
    /// It counts as idle.
    is_idle: bool,
    /// Its next look is heard.
    is_heard: bool,
}

impl Watch {
    pub(crate) fn new() -> Watch {
        Watch {
            is_idle: false,
            is_heard: true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A look that finds nothing, with what comes after it has seen all that there is.
    fn look(state: &WriterState, watch: &mut Watch, comes: impl FnOnce()) -> bool {
        state.begin_look(watch);
        comes();
        state.end_look();
        state.may_sleep(watch, false)
    }

    /// What comes behind a writer's back is seen before it sleeps, or wakes it.
    #[test]
    fn a_wake_amid_a_look_is_not_slept_through() {
        let (state, mut watch) = (WriterState::new(), Watch::new());
        let nothing = || {};
        // At the first look after work.
        assert!(!look(&state, &mut watch, || state.wake()), "not seen");
        assert!(look(&state, &mut watch, nothing));
        assert!(!state.sleep(&mut watch, 1000), "nobody has called it");
        // At the last look before it sleeps, and after it.
        assert!(look(&state, &mut watch, || state.wake()));
        assert!(state.sleep(&mut watch, 60_000_000));
        assert!(!look(&state, &mut watch, || state.wake()), "not seen");
        assert!(look(&state, &mut watch, nothing));
        state.wake();
        assert!(state.sleep(&mut watch, 60_000_000));
        // It has worked.
        state.begin_look(&watch);
        state.end_look();
        assert!(!state.may_sleep(&mut watch, true));
        assert_eq!(state.idle.load(Ordering::SeqCst), 0);
        state.wake();
        assert!(!state.event.is_set(), "nobody sleeps");
        state.leave(watch);
    }

    /// One that writes keeps nobody from calling another.
    #[test]
    fn a_wake_calls_another_while_one_writes() {
        let state = WriterState::new();
        let (mut busy, mut idle) = (Watch::new(), Watch::new());
        for watch in [&mut busy, &mut idle] {
            assert!(!look(&state, watch, || {}));
            assert!(look(&state, watch, || {}));
        }
        state.wake();
        assert!(state.sleep(&mut busy, 60_000_000));
        state.begin_look(&busy);
        state.wake();
        assert!(!state.event.is_set(), "one that looks is enough");
        state.end_look();
        state.wake();
        assert!(state.sleep(&mut idle, 60_000_000), "it is at a write");
        assert!(!state.may_sleep(&mut busy, true));
        assert!(!look(&state, &mut idle, || {}) && look(&state, &mut idle, || {}));
        assert_eq!(state.idle.load(Ordering::SeqCst), 1);
        state.leave(idle);
        state.leave(busy);
        assert_eq!(state.idle.load(Ordering::SeqCst), 0);
    }
}
