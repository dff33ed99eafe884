//! What the server's log is told of background work that fails: once for each reason, again after a while, and when it
//! succeeds again.
//!
//! Invariant: `failures` is 0, or `tried_us` is when the last of so many in a row came.
//!
//! Locking: none; its thread's own.

use crate::state::callbacks::LogLevel;
use crate::state::engine::Engine;
use ferrite_types::Result;

/// After a failure the next attempt comes that much later, in us.
pub(crate) const RETRY_US: u64 = 1_000_000;
/// That it goes on failing for the same reason is said again after that time, in us.
const REMIND_US: u64 = 60_000_000;
const _: () = assert!(RETRY_US < REMIND_US);

/// Work that may fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Work {
    /// `Engine::checkpoint`.
    Checkpoint,
    /// `Store::scrub_round`.
    Scrub,
}

impl Work {
    /// That it failed for that reason, so often in a row.
    fn failed(self, failures: u64, why: &str) -> String {
        match self {
            Work::Checkpoint => format!(
                "checkpoint failed ({failures} in a row); the previous one stays valid, and the log is \
                 kept from there: {why}"
            ),
            Work::Scrub => format!(
                "cannot overwrite deleted data ({failures} times in a row); it is tried again: {why}"
            ),
        }
    }

    fn succeeds(self, failures: u64) -> String {
        match self {
            Work::Checkpoint => format!("checkpoints succeed again after {failures} failures"),
            Work::Scrub => format!("deleted data is overwritten again after {failures} failures"),
        }
    }
}

/// See the head of the file.
pub(crate) struct Trouble {
    work: Work,
    /// The last reason, without its numbers.
    reason: String,
    /// Failures in a row.
    failures: u64,
    tried_us: u64,
    told_us: u64,
}

impl Trouble {
    pub(crate) fn of(work: Work) -> Trouble {
        Trouble {
            work,
            reason: String::new(),
            failures: 0,
            tried_us: 0,
            told_us: 0,
        }
    }

    pub(crate) fn may_try(&self, now_us: u64) -> bool {
        self.failures == 0 || now_us >= self.tried_us + RETRY_US
    }

    pub(crate) fn tell(&mut self, engine: &Engine, result: &Result<()>, now_us: u64) {
        if let Some((level, text)) = self.word(result, now_us) {
            engine.callbacks.log(level, &text);
        }
    }

    /// What is to be said of it.
    fn word(&mut self, result: &Result<()>, now_us: u64) -> Option<(LogLevel, String)> {
        let Err(e) = result else {
            let failures = std::mem::replace(self, Trouble::of(self.work)).failures;
            let text = self.work.succeeds(failures);
            return (failures > 0).then_some((LogLevel::Note, text));
        };
        self.failures += 1;
        assert!(self.told_us <= now_us, "told later than now");
        self.tried_us = now_us;
        let text = e.to_string();
        let reason: String = text.chars().filter(|c| !c.is_ascii_digit()).collect();
        if reason == self.reason && now_us < self.told_us + REMIND_US {
            return None;
        }
        self.told_us = now_us;
        self.reason = reason;
        Some((LogLevel::Warning, self.work.failed(self.failures, &text)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ferrite_types::Error;

    #[test]
    fn a_failing_checkpoint_is_told_once_and_again_after_a_minute() {
        let full = |at| {
            Err(Error::DiskFull(format!(
                "write map.1 at offset {at}: no space"
            )))
        };
        let mut trouble = Trouble::of(Work::Checkpoint);
        assert!(trouble.word(&Ok(()), 5).is_none());
        let first = trouble.word(&full(4096), 10).expect("the first is told");
        assert_eq!(first.0, LogLevel::Warning);
        assert!(!trouble.may_try(11) && trouble.may_try(10 + RETRY_US));
        assert!(trouble.word(&full(8192), RETRY_US).is_none(), "told twice");
        let other = Err(Error::Io("sync map.1".into()));
        assert!(
            trouble.word(&other, 2 * RETRY_US).is_some(),
            "another reason"
        );
        assert!(trouble.word(&other, 3 * RETRY_US).is_none());
        let again = trouble.word(&other, 2 * RETRY_US + REMIND_US);
        assert!(again.expect("a reminder").1.contains("5 in a row"));
        let ended = trouble
            .word(&Ok(()), 3 * REMIND_US)
            .expect("the end is told");
        assert_eq!(ended.0, LogLevel::Note);
        assert!(trouble.word(&Ok(()), 3 * REMIND_US).is_none());
        assert!(trouble.may_try(0));
    }
}
