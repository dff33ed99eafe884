//! How a position becomes durable: one flush at a time, led by whoever needs it.
//!
//! Alone, the caller leads: it writes and syncs for itself, with no other thread involved.
//! In company the flusher thread leads in a greedy loop and acknowledges whole groups.
//! To lead is to write, with the writer's mutex, and to sync, without it: who only wants its
//! records handed to the system takes that mutex, leads nothing and waits for no device.
//! Whoever comes while somebody leads parks on an event of its own; the leader wakes exactly
//! those its round has covered, and hands over only if somebody is left: to the flusher if
//! it waits, else to one of those left.
//!
//! Invariants: `gate.leading` is true while a thread is between taking the lead and giving
//! it back; a parked waiter is in `gate.waiters`, and whoever gives the lead back has looked
//! at that list under the gate, so that no waiter is left without a leader; a waiter raises
//! `requested` before it parks, so that a flusher that gets the lead uses it. A deferred
//! acknowledgement raises `requested` and `pending` before it looks whether the flusher
//! sleeps; the flusher says that it sleeps before it looks at them.
//! Locking: see `log.rs`; hooks (acknowledgements, notices, fatal) are called without locks.

use crate::gate::{Ack, AckFn, Deferred, Waiter};
use crate::log::Log;
use crate::writer::{Desk, Level, Round, Writer};
use crate::CommitAck;
use ferrite_io::StorageFile;
use ferrite_sync::atomic::Ordering;
use ferrite_sync::waits::{booked, waiting, Of, Reason};
use ferrite_sync::{kill_point, thread, time, Arc, Event};
use ferrite_types::{Error, Lsn, Result};

impl Desk for Log {
    fn space(&self) {
        if self.space_waiters.load(Ordering::SeqCst) > 0 {
            drop(self.space.lock());
            self.space_given.notify_all();
        }
    }

    fn segment(&self, segment: u64) -> Result<Arc<dyn StorageFile>> {
        /// Between two tries on a full disk, or without an open file to be had.
        const RETRY_MS: u64 = 50;
        let begun = self.segs.get(segment).is_none().then(|| {
            self.stats.waits_segment.inc();
            time::now_us()
        });
        let mut reason = Reason::LogSegment;
        let mut ending_since_us = None;
        loop {
            match self.segs.get_or_prepare(segment) {
                // Nothing is lost and nothing is acknowledged: stand still until there is
                // what is missing. Admission should have kept writers from coming this far.
                Err(e @ (Error::DiskFull(_) | Error::Shortage(_))) => {
                    if matches!(e, Error::DiskFull(_)) {
                        self.stats.waits_disk_full.inc();
                        reason = Reason::DiskFull;
                        self.stands_still.store(true, Ordering::Relaxed);
                    }
                    self.may_stand_still(&mut ending_since_us, e)?;
                    thread::sleep_ms(RETRY_MS);
                }
                result => {
                    if let Some(begun) = begun {
                        booked(reason, Of::Nothing, time::now_us() - begun);
                    }
                    self.stands_still.store(false, Ordering::Relaxed);
                    self.keeper.set();
                    return result;
                }
            }
        }
    }

    fn cached_segment(&self, segment: u64) -> Result<Arc<dyn StorageFile>> {
        self.segs.open_cached(segment)
    }
}

impl Log {
    /// There is no file to write to, because of `why`. Who writes holds up everybody else: also the checkpoint that
    /// would make room, and the end of the server.
    ///
    /// # Errors
    /// `why`, once the process is to end and that has helped nothing for as long as it may take.
    fn may_stand_still(&self, ending_since_us: &mut Option<u64>, why: Error) -> Result<()> {
        let Some((ms, is_ending)) = self.patience.read().clone() else {
            return Ok(());
        };
        if !is_ending() {
            *ending_since_us = None;
            return Ok(());
        }
        let now_us = time::now_us();
        let since_us = *ending_since_us.get_or_insert(now_us);
        if now_us - since_us < ms * 1000 {
            return Ok(());
        }
        let told = |text| {
            format!(
                "{text}; the server shuts down and cannot wait for it any longer: what it has not written was not \
                 acknowledged, and the next start recovers the rest"
            )
        };
        Err(match why {
            Error::Shortage(text) => Error::Shortage(told(text)),
            Error::DiskFull(text) => Error::DiskFull(told(text)),
            other => other,
        })
    }

    fn sync(&self, file: &dyn StorageFile) -> Result<()> {
        kill_point!("redo.before_sync");
        let since = time::now_us();
        if !ferrite_sync::mutant!("redo.skip_sync") {
            file.sync_data()?;
        }
        self.stats.sync.record_us(time::now_us() - since);
        Ok(())
    }

    /// Returns when everything before `lsn` is durable. The caller may become the one who
    /// flushes; callers that come meanwhile share the next flush.
    pub fn flush_to(&self, lsn: Lsn) {
        let lsn = lsn.0.min(self.ring.next());
        if self.durable() < lsn {
            self.flush_waiting(lsn);
        }
    }

    /// Returns when everything before `lsn` has been handed to the system: it then survives
    /// the end of this process, and with the next flush that of the machine.
    pub fn write_to(&self, lsn: Lsn) {
        let lsn = lsn.0.min(self.ring.next());
        if self.written.load(Ordering::SeqCst) < lsn {
            waiting(Reason::LogFlush, Of::Nothing, || self.write_until(lsn));
        }
    }

    fn write_until(&self, lsn: u64) {
        assert!(lsn <= self.ring.next(), "{lsn} will never be written");
        while self.written.load(Ordering::SeqCst) < lsn {
            let before = {
                let mut writer = self.writer.lock();
                self.assert_alive();
                let before = self.written.load(Ordering::SeqCst);
                if before >= lsn {
                    return;
                }
                if let Err(e) = self.write_round(&mut writer, Level::Written) {
                    drop(writer);
                    self.die(&e);
                }
                before
            };
            if self.written.load(Ordering::SeqCst) == before {
                // The next record is still being copied by its appender.
                thread::yield_now();
            }
        }
    }

    fn flush_waiting(&self, lsn: u64) {
        waiting(Reason::LogFlush, Of::Nothing, || self.flush_or_wait(lsn));
    }

    fn flush_or_wait(&self, lsn: u64) {
        assert!(lsn <= self.ring.next(), "{lsn} will never be durable");
        loop {
            let mut gate = self.gate.lock();
            // Under the gate: `die` empties the list of waiters once.
            self.assert_alive();
            let before = self.durable();
            if before >= lsn {
                return;
            }
            if !gate.leading {
                gate.leading = true;
                drop(gate);
                self.stats.inline_flushes.inc();
                self.lead_once();
                if self.durable() == before {
                    // The next record is still being copied by its appender.
                    thread::yield_now();
                }
                continue;
            }
            self.stats.waits_flush.inc();
            // Whoever takes the lead next must see that there is something to do.
            self.requested.fetch_max(lsn, Ordering::SeqCst);
            let me = Arc::new(Waiter {
                lsn,
                woken: Event::new(),
            });
            gate.waiters.push(me.clone());
            drop(gate);
            me.woken.wait();
        }
    }

    /// One round by a thread that is not the flusher; `gate.leading` was taken.
    fn lead_once(&self) {
        self.round();
        self.give_lead(false);
        if self.pending.load(Ordering::SeqCst) > 0 {
            if self.flusher.running() {
                self.wake_flusher();
            } else {
                self.release_acks();
            }
        }
        self.run_notices();
    }

    /// Writes what is complete and syncs it; the caller leads.
    pub(crate) fn round(&self) {
        let mut writer = self.writer.lock();
        let result = self.write_round(&mut writer, Level::Durable);
        drop(writer);
        let synced = result.and_then(|round| {
            for (_, file) in &round.to_sync {
                self.sync(&**file)?;
            }
            Ok(round)
        });
        match synced {
            Ok(round) => {
                kill_point!("redo.after_sync_before_ack");
                // Only who leads changes `durable`; `written` may have gone on meanwhile.
                let (durable, end) = (self.durable(), round.written);
                assert!(end >= durable, "durable goes back: {durable} to {end}");
                let written = self.written.load(Ordering::SeqCst);
                assert!(end <= written, "durable {end}, written {written}");
                self.durable.store(end, Ordering::SeqCst);
                let any = !round.to_sync.is_empty();
                self.stats.flushes.add(u64::from(any));
            }
            Err(e) => self.die(&e),
        }
    }

    fn write_round(&self, writer: &mut Writer, level: Level) -> Result<Round> {
        let before = self.written.load(Ordering::SeqCst);
        let round = writer.round(&self.ring, &self.segs, self.durable(), level, self)?;
        let end = round.written;
        assert!(end >= before, "written goes back: {before} to {end}");
        assert!(end <= self.ring.consumed(), "{end} is still in the ring");
        assert!(
            level == Level::Durable || round.to_sync.is_empty(),
            "a round without a sync takes files along that nobody will sync"
        );
        self.written.store(end, Ordering::SeqCst);
        self.stats.flushed_bytes.add(round.bytes);
        self.stats.writes.add(round.writes);
        Ok(round)
    }

    /// Wakes those who are covered. Gives the lead back, or (only the flusher, true) keeps
    /// it because there is more to do.
    pub(crate) fn give_lead(&self, flusher: bool) -> bool {
        let mut gate = self.gate.lock();
        assert!(gate.leading, "a lead is given back that nobody has");
        let durable = self.durable();
        let mut wake = Vec::new();
        if !gate.waiters.is_empty() {
            gate.waiters.retain(|w| {
                let left = w.lsn > durable;
                if !left {
                    wake.push(w.clone());
                }
                left
            });
        }
        let keep = flusher
            && (!gate.waiters.is_empty() || self.requested.load(Ordering::SeqCst) > durable);
        assert!(flusher || !keep, "only the flusher keeps the lead");
        gate.leading = keep;
        if !keep && gate.flusher_waits {
            gate.flusher_waits = false;
            self.flusher.event.set();
        } else if !keep && !gate.waiters.is_empty() {
            wake.push(gate.waiters.remove(0));
        }
        drop(gate);
        for w in wake {
            w.woken.set();
        }
        keep
    }

    /// Asks for everything before `lsn` to become durable soon, and does not wait. Without
    /// the flusher thread: by the next flush that somebody waits for.
    pub fn request_flush(&self, lsn: Lsn) {
        let lsn = lsn.0.min(self.ring.next());
        if self.durable() < lsn {
            self.requested.fetch_max(lsn, Ordering::SeqCst);
            self.wake_flusher();
        }
    }

    fn wake_flusher(&self) {
        if self.flusher.wake() {
            self.stats.flusher_wakeups.inc();
        }
    }

    /// Makes a commit durable whose last record ends at `lsn`.
    ///
    /// `company`: are other writers active? Asked only if the commit is not durable yet. Alone, the
    /// caller flushes for itself (`Done`).
    /// In company `make_token` is asked; with a token the commit is queued (`Deferred`) and
    /// the token is released through [`set_ack`](Self::set_ack) once the commit is durable,
    /// possibly before this returns. Without a token it waits (`Done`).
    pub fn commit(
        &self,
        lsn: Lsn,
        company: &dyn Fn() -> bool,
        make_token: &mut dyn FnMut() -> Option<usize>,
    ) -> CommitAck {
        let lsn = lsn.0.min(self.ring.next());
        if self.durable() >= lsn || ferrite_sync::mutant!("redo.ack_before_durable") {
            return CommitAck::Done;
        }
        if self.flusher.running() && company() {
            if let Some(token) = make_token() {
                kill_point!("redo.before_queue");
                self.requested.fetch_max(lsn, Ordering::SeqCst);
                // Its client waits from here on, though this thread does not.
                let since_us = time::now_us();
                {
                    let mut queue = self.deferred.lock();
                    queue.push(Deferred {
                        lsn,
                        token,
                        since_us,
                    });
                    let before = self.pending.fetch_add(1, Ordering::SeqCst);
                    assert!(before + 1 >= queue.len(), "{before} of {}", queue.len());
                }
                self.stats.deferred.inc();
                self.wake_flusher();
                return CommitAck::Deferred;
            }
        }
        self.flush_waiting(lsn);
        CommitAck::Done
    }

    /// How deferred tokens are released: called with a whole group, in LSN order within it,
    /// by the thread that flushes, without locks held.
    pub fn set_ack(&self, f: AckFn) {
        *self.ack.write() = Some(Arc::from(f));
    }

    /// Deferred tokens not yet released.
    pub fn pending_acks(&self) -> usize {
        self.pending.load(Ordering::SeqCst)
    }

    /// Releases every queued token whose commit is durable, and returns them.
    pub(crate) fn release_acks(&self) -> Vec<Ack> {
        if self.pending.load(Ordering::SeqCst) == 0 {
            return Vec::new();
        }
        let durable = self.durable();
        let mut group = {
            let mut queue = self.deferred.lock();
            let all = std::mem::take(&mut *queue);
            let pending = self.pending.load(Ordering::SeqCst);
            assert!(all.len() <= pending, "{} of {pending} deferred", all.len());
            let (group, rest): (Vec<_>, Vec<_>) = all.into_iter().partition(|a| a.lsn <= durable);
            *queue = rest;
            group
        };
        if group.is_empty() {
            return Vec::new();
        }
        group.sort_unstable();
        let now_us = time::now_us();
        let released = |d: &Deferred| Ack {
            token: d.token,
            waited_us: now_us.saturating_sub(d.since_us),
        };
        let acks: Vec<Ack> = group.iter().map(released).collect();
        self.stats.groups.record_us(acks.len() as u64);
        let hook = self.ack.read().clone();
        assert!(hook.is_some(), "deferred commits that nobody can release");
        if let Some(hook) = hook {
            hook(&acks);
        }
        let before = self.pending.fetch_sub(acks.len(), Ordering::SeqCst);
        assert!(before >= acks.len(), "{} of {before} released", acks.len());
        acks
    }

    /// Calls `f` once everything before `lsn` is durable: at once, or from a thread that
    /// flushes. Asks for the flush.
    pub fn notify_when_durable(&self, lsn: Lsn, f: Box<dyn FnOnce() + Send>) {
        let at = lsn.0.min(self.ring.next());
        if self.durable() >= at {
            return f();
        }
        {
            // Counted under the lock: whoever takes it out finds it counted.
            let mut list = self.notices.lock();
            list.push((at, f));
            self.notice_count.fetch_add(1, Ordering::SeqCst);
        }
        self.request_flush(lsn);
        // The flush may have passed by between the look and the push, led by somebody who looks at no notices; and
        // then the flusher has nothing to do.
        self.run_notices();
    }

    /// Calls the notices that are due.
    pub(crate) fn run_notices(&self) {
        if self.notice_count.load(Ordering::SeqCst) == 0 {
            return;
        }
        let durable = self.durable();
        let mut due = Vec::new();
        {
            let mut list = self.notices.lock();
            let all = std::mem::take(&mut *list);
            for n in all {
                if n.0 <= durable {
                    due.push(n)
                } else {
                    list.push(n)
                }
            }
        }
        due.sort_by_key(|n| n.0);
        let before = self.notice_count.fetch_sub(due.len(), Ordering::SeqCst);
        assert!(before >= due.len(), "{} of {before} notices", due.len());
        for (_, f) in due {
            f();
        }
    }

    /// Waits until the ring has let go of everything before `upto`. `start` is the caller's
    /// own reservation, not yet filled.
    pub(crate) fn wait_for_space(&self, start: u64, upto: u64) {
        /// A lost wake-up costs no more than this.
        const PATIENCE_US: u64 = 1000;
        assert!(upto <= start, "{start} waits for itself: {upto}");
        // The flusher is to run in any case: it releases what a round here makes durable
        // (no hook may run in a thread that holds an unfilled reservation).
        self.request_flush(Lsn(start));
        while self.ring.consumed() < upto {
            self.assert_alive();
            let lead = {
                let mut gate = self.gate.lock();
                !std::mem::replace(&mut gate.leading, true)
            };
            if lead {
                let before = self.ring.consumed();
                self.round();
                self.give_lead(false);
                if self.ring.consumed() == before {
                    thread::yield_now();
                }
                continue;
            }
            self.space_waiters.fetch_add(1, Ordering::SeqCst);
            let guard = self.space.lock();
            if self.ring.consumed() < upto {
                drop(self.space_given.wait_timeout_us(guard, PATIENCE_US));
            } else {
                drop(guard);
            }
            self.space_waiters.fetch_sub(1, Ordering::SeqCst);
        }
    }

    /// A write or a sync of the log failed: nothing becomes durable any more.
    fn die(&self, e: &Error) {
        let text = format!("the redo log cannot be written: {e}");
        self.fail(&text);
        let waiters = std::mem::take(&mut self.gate.lock().waiters);
        for w in waiters {
            w.woken.set();
        }
        self.flusher.event.set();
        self.keeper.set();
        panic!("{text}");
    }

    /// Durability is lost, here or elsewhere (pages whose sync failed): the process ends through
    /// the hook of [`set_fatal`](Self::set_fatal). When that returns, nothing is acknowledged
    /// any more.
    pub fn fail(&self, text: &str) {
        self.dead.store(true, Ordering::SeqCst);
        let hook = self.fatal.read().clone();
        match hook {
            Some(hook) => hook(text),
            None => ferrite_sync::stop::fatal(text),
        }
        self.told.store(true, Ordering::SeqCst);
    }

    /// Panics when the log has failed, but not before the hook has told why: in production
    /// the process ends while this waits.
    pub(crate) fn assert_alive(&self) {
        if !self.dead.load(Ordering::SeqCst) {
            return;
        }
        while !self.told.load(Ordering::SeqCst) {
            thread::sleep_ms(1);
        }
        panic!("the redo log has failed earlier");
    }
}
