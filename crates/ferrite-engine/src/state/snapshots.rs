//! What is known of kept snapshots: which there are, and who is at work on them.
//!
//! Invariant: `kept` is ordered by number, the oldest first, and names what is durable. One thread at
//! a time takes, drops or evicts ([`Snapshots::claim`]).
//!
//! A snapshot that is gone may still have its space: it takes a look at what all others hold to know which of it is
//! free. [`Snapshots::frees`] while somebody looks, [`Snapshots::unfreed`] until somebody has looked.
//!
//! If that cannot be found out, no other one is dropped for its space for a while ([`Snapshots::is_put_off`]): it would
//! be in vain, and so would be the next one.
//!
//! The files of one that is dropped go before it does: meanwhile it is [`Snapshots::is_gone`] for who looks at them.
//!
//! Dropping one may fail midway: its manifest is gone, and may be there again after a crash. Such a one is in the list
//! still, [`Snapshots::half_gone`]: nothing of it may be given out, nothing of any other one can be, as it is not known
//! what it holds, and so nothing is dropped for its space before that one has come to its end.
//!
//! Locking: `kept`, `going`, `half_gone`, `unfreed` and `told`, leaves held for moments.

use crate::state::engine::IsKilled;
use crate::state::log_floor::LogFloor;
use ferrite_sync::atomic::{AtomicBool, AtomicU64, Ordering};
use ferrite_sync::{thread, time, Counter, Mutex};
use ferrite_types::{Error, Lsn, Result};
use std::collections::BTreeSet;

/// A kept snapshot, as users see it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeptInfo {
    /// Its name.
    pub name: String,
    /// The later, the higher.
    pub number: u64,
    /// Why it cannot be used; empty: it can.
    pub lost: String,
    /// When it was taken, seconds since 1970.
    pub taken_unix_s: u64,
    /// Its point in time, a log position.
    pub position: Lsn,
    /// Bytes of its own files.
    pub file_bytes: u64,
    /// Bytes of pages that it holds and the present does not have any more.
    pub changed_bytes: u64,
    /// The binary log's file at its point in time; empty: there was none.
    pub binlog_file: String,
    /// The position in it.
    pub binlog_position: u64,
    /// The GTID position of the binary log.
    pub gtid: String,
    /// It was taken by the schedule.
    pub scheduled: bool,
}

/// So long after a failure no other one is dropped for its space.
const PUT_OFF_US: u64 = 10_000_000;

/// So many different texts are remembered at most, of several snapshots that cannot be dropped, or be read.
const MOST_TOLD: usize = 1000;

/// How it ended to find out what is free now that a snapshot is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Freed {
    /// It is free.
    All,
    /// Who looked was killed.
    Interrupted,
    /// What another one holds cannot be read.
    Unknown,
}

/// See the head of the file.
#[derive(Default)]
pub(crate) struct Snapshots {
    kept: Mutex<Vec<KeptInfo>>,
    busy: AtomicBool,
    /// So many wait for the claim.
    waiting: AtomicU64,
    /// The snapshot that is dropped now.
    going: Mutex<Option<String>>,
    /// Those whose dropping has begun, and failed before it was durable.
    half_gone: Mutex<Vec<String>>,
    /// The last snapshot that is gone, if what it held is still to be freed.
    unfreed: Mutex<Option<String>>,
    frees: AtomicBool,
    /// Dropping one, or finding out what is free then, has failed: not again before, lest all others go in vain, one
    /// after the other; 0: it has not. And what was said of it.
    not_before_us: AtomicU64,
    told: Mutex<BTreeSet<String>>,
    /// A thread frees what is left to be freed, and drops snapshots beyond `max_bytes`.
    is_looked_after: AtomicBool,
    log_floor: LogFloor,
    /// Bytes that all of them may take; 0: no limit.
    pub max_bytes: AtomicU64,
    /// Snapshots taken.
    pub taken: Counter,
    /// Snapshots dropped because they took more than they may, or the disk was full.
    pub evicted: Counter,
}

/// Who has it is alone at work on snapshots.
pub(crate) struct Claim<'a>(&'a Snapshots);

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        self.0.busy.store(false, Ordering::SeqCst);
    }
}

/// As long as it lives, that snapshot is being dropped.
pub(crate) struct Going<'a>(&'a Snapshots);

impl Drop for Going<'_> {
    fn drop(&mut self) {
        *self.0.going.lock() = None;
    }
}

impl Snapshots {
    pub(crate) fn new(kept: Vec<KeptInfo>) -> Snapshots {
        debug_assert!(kept.is_sorted_by_key(|k| k.number), "out of order");
        Snapshots {
            kept: Mutex::new(kept),
            ..Snapshots::default()
        }
    }

    /// None: somebody is at work.
    pub(crate) fn try_claim(&self) -> Option<Claim<'_>> {
        let free = self
            .busy
            .compare_exchange(false, true, Ordering::SeqCst, Ordering::SeqCst);
        // Not `then_some`: a claim that is made is given back.
        free.is_ok().then(|| Claim(self))
    }

    /// Waits for who is at work.
    ///
    /// # Errors
    /// `InUse`: it takes too long; `Interrupted`: killed.
    pub(crate) fn claim(&self, is_killed: IsKilled<'_>) -> Result<Claim<'_>> {
        const LOOK_MS: u64 = 5;
        const LOOKS: u32 = 12_000;
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let mut claim = self.try_claim();
        let mut killed = false;
        for _ in 0..LOOKS {
            killed = claim.is_none() && is_killed();
            if claim.is_some() || killed {
                break;
            }
            thread::sleep_ms(LOOK_MS);
            claim = self.try_claim();
        }
        let before = self.waiting.fetch_sub(1, Ordering::SeqCst);
        assert!(before > 0, "nobody waited");
        claim.ok_or_else(|| match killed {
            true => Error::Interrupted,
            false => Error::InUse("another snapshot is being taken or dropped".into()),
        })
    }

    /// Does somebody wait for the claim? Whose work can be put off gives way to a statement.
    pub(crate) fn is_awaited(&self) -> bool {
        self.waiting.load(Ordering::SeqCst) > 0
    }

    /// The claim of somebody whose work goes on in other calls; [`Snapshots::release`] ends it.
    pub(crate) fn hand_over(claim: Claim<'_>) {
        assert!(claim.0.busy.load(Ordering::SeqCst), "a claim of nobody");
        std::mem::forget(claim);
    }

    pub(crate) fn release(&self) {
        let before = self.busy.swap(false, Ordering::SeqCst);
        assert!(before, "released without a claim");
    }

    /// Log from that position on is kept; None: no longer.
    pub(crate) fn keep_log_from(&self, from: Option<Lsn>) {
        assert!(self.busy.load(Ordering::SeqCst), "nobody takes a snapshot");
        self.log_floor.keep_from(from);
    }

    /// Where the log is kept from.
    pub(crate) fn log_kept_from(&self) -> Option<Lsn> {
        self.log_floor.kept_from()
    }

    pub(crate) fn all(&self) -> Vec<KeptInfo> {
        self.kept.lock().clone()
    }

    pub(crate) fn count(&self) -> usize {
        self.kept.lock().len()
    }

    pub(crate) fn find(&self, name: &str) -> Option<KeptInfo> {
        self.kept.lock().iter().find(|k| k.name == name).cloned()
    }

    /// That one is being dropped. The caller has the claim.
    pub(crate) fn begin_drop(&self, name: &str) -> Going<'_> {
        assert!(self.busy.load(Ordering::SeqCst), "nobody drops {name}");
        let before = self.going.lock().replace(name.to_owned());
        assert!(before.is_none(), "{name} and {before:?} at a time");
        Going(self)
    }

    /// That one's dropping has begun, and nobody knows whether it is durable. The caller has the claim.
    pub(crate) fn note_half_gone(&self, name: &str) {
        assert!(self.busy.load(Ordering::SeqCst), "nobody drops {name}");
        debug_assert!(self.find(name).is_some(), "{name} is not there");
        let mut half_gone = self.half_gone.lock();
        if half_gone.iter().all(|n| n != name) {
            half_gone.push(name.to_owned());
        }
    }

    /// One whose dropping has to come to its end.
    pub(crate) fn half_gone(&self) -> Option<String> {
        self.half_gone.lock().first().cloned()
    }

    pub(crate) fn is_half_gone(&self, name: &str) -> bool {
        self.half_gone.lock().iter().any(|n| n == name)
    }

    /// Is there something that a dropped one leaves to be done?
    pub(crate) fn is_unfinished(&self) -> bool {
        self.half_gone().is_some() || self.unfreed().is_some()
    }

    /// It has been dropped since it was in the list, or is being dropped: what its files say means nothing.
    pub(crate) fn is_gone(&self, info: &KeptInfo) -> bool {
        // In this order: it leaves the list before its dropping has ended.
        let goes = self.going.lock().as_ref() == Some(&info.name);
        goes || self
            .find(&info.name)
            .is_none_or(|now| now.number != info.number)
    }

    pub(crate) fn next_number(&self) -> u64 {
        let kept = self.kept.lock();
        debug_assert!(kept.is_sorted_by_key(|k| k.number), "out of order");
        kept.last().map_or(1, |k| k.number + 1)
    }

    pub(crate) fn add(&self, info: KeptInfo) {
        let mut kept = self.kept.lock();
        assert!(
            kept.last().is_none_or(|last| last.number < info.number),
            "snapshot {} out of order",
            info.number
        );
        assert!(
            kept.iter().all(|k| k.name != info.name),
            "{} twice",
            info.name
        );
        kept.push(info);
    }

    pub(crate) fn remove(&self, name: &str) {
        let mut kept = self.kept.lock();
        let before = kept.len();
        kept.retain(|k| k.name != name);
        assert!(kept.len() + 1 >= before, "{name} twice");
        drop(kept);
        self.half_gone.lock().retain(|n| n != name);
        debug_assert!(!self.is_half_gone(name), "{name} is gone");
    }

    /// That one is gone, and what it held still is to be freed. The caller has the claim.
    pub(crate) fn note_unfreed(&self, name: &str) {
        assert!(self.busy.load(Ordering::SeqCst), "nobody drops {name}");
        debug_assert!(self.find(name).is_none(), "{name} is there");
        *self.unfreed.lock() = Some(name.to_owned());
    }

    /// The last one of which something is still to be freed.
    pub(crate) fn unfreed(&self) -> Option<String> {
        self.unfreed.lock().clone()
    }

    /// Does somebody find out at this moment what is free?
    pub(crate) fn frees(&self) -> bool {
        self.frees.load(Ordering::SeqCst)
    }

    /// Finds out what is free by `free`. The caller has the claim.
    pub(crate) fn free(&self, free: impl FnOnce() -> Freed) {
        assert!(self.busy.load(Ordering::SeqCst), "nobody drops a snapshot");
        let twice = self.frees.swap(true, Ordering::SeqCst);
        assert!(!twice, "two find out what is free");
        match free() {
            Freed::All => {
                *self.unfreed.lock() = None;
                self.not_before_us.store(0, Ordering::SeqCst);
                self.told.lock().clear();
            }
            Freed::Interrupted => {}
            Freed::Unknown => self.put_off(),
        }
        self.frees.store(false, Ordering::SeqCst);
    }

    /// None is dropped for its space, and nothing freed, for a while.
    pub(crate) fn put_off(&self) {
        let until_us = time::now_us() + PUT_OFF_US;
        self.not_before_us.store(until_us, Ordering::SeqCst);
        debug_assert!(self.is_put_off(), "not put off");
    }

    pub(crate) fn is_put_off(&self) -> bool {
        time::now_us() < self.not_before_us.load(Ordering::SeqCst)
    }

    /// Is it the first time that this is said?
    pub(crate) fn is_news(&self, text: &str) -> bool {
        let mut told = self.told.lock();
        if told.contains(text) {
            return false;
        }
        if told.len() >= MOST_TOLD {
            // Some are said once more, rather than one of them never.
            told.clear();
        }
        told.insert(text.to_owned())
    }

    #[cfg(test)]
    pub(crate) fn put_off_no_longer(&self) {
        self.not_before_us.store(0, Ordering::SeqCst);
    }

    /// False: a thread is at it.
    pub(crate) fn begin_looking_after(&self) -> bool {
        !self.is_looked_after.swap(true, Ordering::SeqCst)
    }

    /// The thread is done, or there is none.
    pub(crate) fn end_looking_after(&self) {
        let before = self.is_looked_after.swap(false, Ordering::SeqCst);
        assert!(before, "nobody looks after them");
    }

    /// Bytes of all their files.
    pub(crate) fn file_bytes(&self) -> u64 {
        self.kept.lock().iter().map(|k| k.file_bytes).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_at_a_time_and_the_oldest_first() {
        let s = Snapshots::default();
        let claim = s.try_claim().unwrap();
        assert!(s.try_claim().is_none());
        drop(claim);
        Snapshots::hand_over(s.claim(&|| false).unwrap());
        assert!(s.try_claim().is_none());
        s.release();
        for name in ["a", "b"] {
            let number = s.next_number();
            s.add(KeptInfo {
                name: name.into(),
                number,
                file_bytes: 10,
                ..KeptInfo::default()
            });
        }
        assert_eq!((s.file_bytes(), s.next_number()), (20, 3));
        assert_eq!(s.find("a").unwrap().number, 1);
        let a = s.find("a").unwrap();
        assert!(!s.is_gone(&a));
        {
            let _claim = s.try_claim().unwrap();
            let _going = s.begin_drop("a");
            assert!(s.is_gone(&a) && !s.is_gone(&s.find("b").unwrap()));
        }
        assert!(!s.is_gone(&a), "dropping it has failed");
        s.remove("a");
        assert!(s.is_gone(&a));
        assert_eq!(s.all().len(), 1);
        // Another one of the same name.
        s.add(KeptInfo {
            number: 3,
            ..a.clone()
        });
        assert!(s.is_gone(&a));
    }

    /// However many texts there are, they are told, and take no memory without end.
    #[test]
    fn what_was_said_is_remembered_within_bounds() {
        let s = Snapshots::default();
        for n in 0..3 * MOST_TOLD {
            assert!(s.is_news(&n.to_string()));
            assert!(!s.is_news(&n.to_string()));
            assert!(s.told.lock().len() <= MOST_TOLD);
        }
    }
}
