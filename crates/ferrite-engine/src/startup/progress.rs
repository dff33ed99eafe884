//! How far recovery has come: a note in the error log every five seconds.
//!
//! Where the log ends is known only once it was read. Until then the place is guessed, with a few
//! reads that a recovery of less than five seconds does not make.
//!
//! Locking: none.

use crate::state::callbacks::{Callbacks, LogLevel};
use ferrite_sync::{time, Arc};
use ferrite_types::Lsn;

/// Between two notes, in us.
const NOTE_US: u64 = 5_000_000;
/// Between two looks at the clock, in bytes of log.
const LOOK_BYTES: u64 = 256 << 10;

/// What recovery is at, and since when.
pub(crate) struct Progress {
    callbacks: Arc<dyn Callbacks>,
    /// Where the log begins that is read, and where it ends, once that is known or guessed.
    from: Lsn,
    end: Option<Lsn>,
    /// Part of the log whose pages are being redone.
    part: (Lsn, Lsn),
    /// The next look at the clock.
    look_at: Lsn,
    told_us: u64,
    stage_us: u64,
}

impl Progress {
    pub(crate) fn new(callbacks: Arc<dyn Callbacks>, from: Lsn) -> Progress {
        let now_us = time::now_us();
        Progress {
            callbacks,
            from,
            end: None,
            part: (from, from),
            look_at: Lsn(from.0 + LOOK_BYTES),
            told_us: now_us,
            stage_us: now_us,
        }
    }

    /// Has so much time passed that something is to be said?
    pub(crate) fn is_time(&self) -> bool {
        time::now_us() >= self.told_us + NOTE_US
    }

    /// The same, asked for each record.
    pub(crate) fn is_due(&mut self, at: Lsn) -> bool {
        if at < self.look_at {
            return false;
        }
        self.look_at = Lsn(at.0 + LOOK_BYTES);
        self.is_time()
    }

    /// The first pass has come to `at`. `guess_end` guesses where the log ends.
    pub(crate) fn read_to(&mut self, at: Lsn, guess_end: impl FnOnce() -> Option<Lsn>) {
        assert!(self.from <= at, "{at} is before {}", self.from);
        if !self.is_due(at) {
            return;
        }
        self.end = self.end.or_else(guess_end).map(|end| end.max(at));
        let done = (at.0 - self.from.0) >> 20;
        let how_far = match self.end {
            None => format!("{done} MiB"),
            Some(end) => {
                let all = (end.0 - self.from.0).max(1);
                let share = (at.0 - self.from.0) as f64 / all as f64;
                let left = self.left(share);
                format!(
                    "{:.0}% ({done} of {} MiB), {left}",
                    share * 100.0,
                    all >> 20
                )
            }
        };
        self.tell(&format!("recovery: reading the log: {how_far}"));
    }

    /// The pages of this part of the log are being redone from now on; the log ends at `end`.
    pub(crate) fn redoing(&mut self, part: (Lsn, Lsn), end: Lsn) {
        assert!(part.0 <= part.1 && part.1 <= end, "{part:?} of {end}");
        if part.0 == self.from {
            self.stage_us = time::now_us();
            self.look_at = part.1;
        }
        self.part = part;
        self.end = Some(end);
    }

    /// `share` of the pages of that part are redone, `redone` in all.
    pub(crate) fn tell_pages(&mut self, share: f64, redone: u64) {
        debug_assert!((0.0..=1.0).contains(&share), "{share}");
        let Some(end) = self.end else {
            return;
        };
        let all = (end.0 - self.from.0).max(1) as f64;
        let before = (self.part.0 .0 - self.from.0) as f64;
        let here = (self.part.1 .0 - self.part.0 .0) as f64;
        let share = ((before + here * share) / all).clamp(0.0, 1.0);
        let left = self.left(share);
        let percent = share * 100.0;
        self.tell(&format!(
            "recovery: redoing pages: {percent:.0}% ({redone} pages so far), {left}"
        ));
    }

    /// An estimate, from what the stage has taken so far.
    fn left(&self, share: f64) -> String {
        if share <= 0.0 {
            return "time left not known".into();
        }
        let taken_s = (time::now_us() - self.stage_us) as f64 / 1e6;
        format!("about {:.0} s left", taken_s * (1.0 - share) / share)
    }

    fn tell(&mut self, text: &str) {
        self.told_us = time::now_us();
        self.callbacks.log(LogLevel::Note, text);
    }
}
