//! The wait: enqueue, look for a cycle, sleep, and leave again.
//!
//! Steps: (1) under the shard's mutex: ask once more, else stand in line and publish where.
//! (2) Report whom we wait for. (3) Walk the wait-for graph. (4) Sleep until granted, told
//! to look again, interrupted, or out of time. (5) Whatever ended it, leave the line.
//!
//! Why no cycle stays unseen: who stands in line marks those who hold the lock as wanted, and
//! everybody who is wanted walks after standing in line. The last member of a cycle to stand in
//! line is wanted, for what the one before it waits for can only be something it holds; and it sees
//! all of the cycle. A lock that comes to stand before a waiter in any other way (made explicit,
//! moved from another key) marks its owner, which walks again if it waits. A slow ticker is the
//! safety net.
//!
//! Locking: hooks are called with no mutex held, but that a connection they name stays until they
//! return, in the transaction that is waited for.

use std::collections::HashMap;

use ferrite_sync::atomic::Ordering;
use ferrite_sync::waits::{booked_in, Of, Reason};
use ferrite_sync::{observed, time, Arc};
use ferrite_types::{Error, Result, TableId};

use crate::hooks::{WaitHooks, WaitPolicy};
use crate::mode::Mask;
use crate::owner::{Handle, Owner, GRANTED, GRANTED_NEW, INTERRUPTED, VICTIM};
use crate::queue::{Waiting, Wakes};
use crate::shard::{KeyRef, Outcome};
use crate::table::{note_entry, Attempt, LockTable};
use crate::table_locks::{table_of, TABLES};

/// State of a wait that ran out of time.
const TIMED_OUT: u64 = 6;
// A state of its own: a wait that is out of time is no victim.
const _: () = assert!(TIMED_OUT != VICTIM && TIMED_OUT != INTERRUPTED && TIMED_OUT < 8);

/// Of so many in its way a waiter tells the server: first those who hold the lock, then those who
/// stand nearest in front.
const REPORTED_MOST: usize = 256;

/// The safety net's interval grows to so many times what it begins with.
const TICKER_SLOWEST: u64 = 4;
/// The interval of who is in nobody's way, and whose waits the server does not hear of: no cycle goes
/// through it, and a KILL wakes it.
const TICKER_UNWANTED: u64 = 16;
const _: () = assert!(TICKER_UNWANTED >= TICKER_SLOWEST, "it has less to look for");

/// Owners, by address and number of the transaction. They are kept: no other owner gets the address of
/// one whose session has ended meanwhile.
type Reported = HashMap<(usize, u64), Arc<Owner>, foldhash::fast::FixedState>;

/// A place in a line.
#[derive(Clone, Copy)]
pub(crate) struct Ticket {
    pub at: Handle,
    pub sequence: u64,
    /// The server wants to know whom this waits for.
    pub reports: bool,
}

enum Line {
    Done(Outcome),
    /// A range is in the way: it must be made explicit for this key first.
    Folded,
    Standing(Ticket),
}

/// What a wait for that key is a wait for, in the journal's words.
fn waited_for(k: KeyRef<'_>, holder: u64) -> (Reason, Of) {
    if k.index == TABLES {
        let table = table_of(k.key).map_or(0, TableId::get);
        return (Reason::TableLock, Of::Table { table, holder });
    }
    let index = k.index.0;
    (Reason::RowLock, Of::Index { index, holder })
}

impl LockTable {
    /// Asks for `mask`, waiting if need be. `forced`: an explicit lock of another was just
    /// put there; wait for it even if this owner's own entry covers the request.
    pub(crate) fn wait_in_line(
        &self,
        owner: &Arc<Owner>,
        k: KeyRef<'_>,
        mask: Mask,
        forced: bool,
        wait: WaitPolicy,
        hooks: &dyn WaitHooks,
    ) -> Result<Attempt> {
        assert!(mask != 0, "{owner:?} asks for nothing");
        debug_assert!(!owner.is_waiting(), "{owner:?} waits in two lines");
        let number = self.shard_of(k.hash);
        let wants_reports = hooks.wants_reports();
        let line = loop {
            match self.stand_in_line(owner, k, mask, forced, wait, wants_reports)? {
                Line::Folded => self.unfold(owner, k, mask),
                line => break line,
            }
        };
        match line {
            Line::Folded => Err(Error::Bug("a range was left in the way of a wait".into())),
            // The caller looks again, and perhaps comes here again: not for ever.
            Line::Done(Outcome::Free)
                if owner.interrupted.load(Ordering::SeqCst) || hooks.is_killed() =>
            {
                self.stats.interrupts.inc();
                Err(Error::Interrupted)
            }
            Line::Done(outcome) => Ok(self.settle_attempt(owner, number, outcome)),
            Line::Standing(ticket) => {
                let begun = time::now_us().max(1);
                owner.waiting_since_us.store(begun, Ordering::Relaxed);
                self.stats.waits.inc();
                self.stats.waiting.fetch_add(1, Ordering::Relaxed);
                hooks.begin();
                let mut holder = 0;
                debug_assert_eq!(ticket.at.shard, number, "another key's line");
                let verdict = observed::wait(waited_for(k, 0).0 as u32, || {
                    self.sleep(owner, ticket, begun, wait, hooks, &mut holder)
                });
                assert!(!owner.is_waiting(), "{owner:?} goes on in its wait");
                owner.leave_wait();
                let us = time::now_us().saturating_sub(begun);
                hooks.end(us);
                let waiting = self.stats.waiting.fetch_sub(1, Ordering::Relaxed);
                debug_assert!(waiting > 0, "more waits end than began");
                self.stats.wait_us.record_us(us);
                let (reason, of) = waited_for(k, holder);
                booked_in(reason, of, us, owner.txn.load(Ordering::Relaxed));
                owner.waiting_since_us.store(0, Ordering::Relaxed);
                verdict
            }
        }
    }

    fn stand_in_line(
        &self,
        owner: &Arc<Owner>,
        k: KeyRef<'_>,
        mask: Mask,
        forced: bool,
        wait: WaitPolicy,
        reports: bool,
    ) -> Result<Line> {
        let mut wakes = Wakes::default();
        let (number, mut shard) = self.lock_shard(k);
        if !forced {
            match self.ask(&mut shard, owner, k, mask, &mut wakes)? {
                Outcome::Blocked if !wait.may_wait() => return Err(wait.refusal()),
                Outcome::Blocked => {}
                done => {
                    drop(shard);
                    wakes.send();
                    return Ok(Line::Done(done));
                }
            }
        }
        if self.is_folded(&shard, owner, k, mask) {
            return Ok(Line::Folded);
        }
        let Some(slot) = shard.find(k) else {
            return Ok(Line::Done(Outcome::Free));
        };
        let q = shard.queue_mut(slot);
        debug_assert!(!q.is_empty() && q.index == k.index && q.key == k.key);
        let need = if forced { mask } else { q.missing(owner, mask) };
        if !q.has_obstacle(owner, need, q.waiting.len()) {
            // The holder has ended meanwhile; the caller looks again.
            return Ok(Line::Done(Outcome::Free));
        }
        if !wait.may_wait() {
            return Err(wait.refusal());
        }
        let at = Handle {
            shard: number,
            slot,
        };
        let holds = q.held_by(owner) != 0;
        // Taken under the shard's mutex: numbers rise along each line.
        let arrival = self.arrivals.fetch_add(1, Ordering::Relaxed) + 1;
        let sequence = owner.begin_wait(at, arrival);
        let w = Waiting {
            owner: owner.clone(),
            mask: need,
            sequence,
            arrival,
            holds,
            reports,
        };
        shard.enqueue(slot, w, &self.tally);
        let ticket = Ticket {
            at,
            sequence,
            reports,
        };
        Ok(Line::Standing(ticket))
    }

    fn sleep(
        &self,
        owner: &Arc<Owner>,
        ticket: Ticket,
        begun_us: u64,
        wait: WaitPolicy,
        hooks: &dyn WaitHooks,
        holder: &mut u64,
    ) -> Result<Attempt> {
        let deadline = begun_us.saturating_add(wait.timeout_ms.saturating_mul(1000));
        let mut reported = Reported::default();
        let slowest_us = self.config.ticker_us * TICKER_SLOWEST;
        let mut tick_us = self.config.ticker_us;
        let mut look = true;
        loop {
            if let Some(outcome) = self.outcome(owner, ticket) {
                return outcome;
            }
            if owner.interrupted.load(Ordering::SeqCst) || hooks.is_killed() {
                owner.end_wait(ticket.sequence, INTERRUPTED);
                continue;
            }
            if look {
                look = false;
                if ticket.reports || *holder == 0 {
                    self.report(owner, ticket, &mut reported, hooks, holder);
                }
                // Who holds nothing that anybody waits for closes no cycle.
                let wanted = owner.wanted.load(Ordering::SeqCst);
                if !wanted {
                    let unwanted_us = self.config.ticker_us.saturating_mul(TICKER_UNWANTED);
                    tick_us = if ticket.reports {
                        slowest_us
                    } else {
                        unwanted_us
                    };
                }
                if wanted && self.deadlock_detect.load(Ordering::Relaxed) {
                    self.break_cycles(owner, ticket.sequence, hooks);
                }
                continue;
            }
            let now = time::now_us();
            if now >= deadline {
                owner.end_wait(ticket.sequence, TIMED_OUT);
                continue;
            }
            let nap = (deadline - now).min(tick_us);
            let woken = owner.event.wait_timeout_us(nap);
            look = owner.recheck.swap(false, Ordering::AcqRel) || !woken;
            if !woken {
                // A thousand that look around each second are work, too.
                tick_us = (tick_us * 2).min(slowest_us);
            }
        }
    }

    /// How the wait has ended, if it has; who has got nothing has left the line then.
    fn outcome(&self, owner: &Arc<Owner>, ticket: Ticket) -> Option<Result<Attempt>> {
        let (error, counter) = match owner.wait_state() {
            GRANTED => {
                debug_assert_eq!(owner.wait_number(), ticket.sequence);
                return Some(Ok(Attempt::Held));
            }
            GRANTED_NEW => {
                debug_assert_eq!(owner.wait_number(), ticket.sequence);
                note_entry(owner, ticket.at);
                return Some(Ok(Attempt::Granted));
            }
            VICTIM => (Error::Deadlock, None),
            INTERRUPTED => (Error::Interrupted, Some(&self.stats.interrupts)),
            TIMED_OUT => (Error::LockTimeout, Some(&self.stats.timeouts)),
            _ => return None,
        };
        self.leave_line(owner, ticket);
        if let Some(counter) = counter {
            counter.inc();
        }
        Some(Err(error))
    }

    /// Tells the server whom we wait for, each once, if it wants to know; and the journal one.
    fn report(
        &self,
        owner: &Arc<Owner>,
        ticket: Ticket,
        reported: &mut Reported,
        hooks: &dyn WaitHooks,
        holder: &mut u64,
    ) {
        let most = if ticket.reports { REPORTED_MOST } else { 1 };
        for (other, its_wait) in self.waits_for(owner, ticket.sequence, most) {
            if *holder == 0 {
                *holder = other.thread_id;
            }
            if !ticket.reports {
                continue;
            }
            let transaction = (Arc::as_ptr(&other) as usize, other.transactions_ended());
            if let Some(known) = reported.get(&transaction) {
                debug_assert!(Arc::ptr_eq(known, &other), "another has its address");
                continue;
            }
            if self.name(owner, ticket, &other, its_wait, hooks) {
                reported.insert(transaction, other);
            }
        }
    }

    /// Names one of those to the server: while it stays in the transaction that is waited for. The
    /// parallel applier may kill what the connection runs; that must not be the transaction after it,
    /// which has done nothing yet that could be tried again: replication would stop. False: it was
    /// not named. `its_wait`: who waits itself stays without a look at all who stand there.
    fn name(
        &self,
        owner: &Arc<Owner>,
        ticket: Ticket,
        other: &Arc<Owner>,
        its_wait: Option<u64>,
        hooks: &dyn WaitHooks,
    ) -> bool {
        let tell = |thd| hooks.waiting_for(thd);
        let told = its_wait.and_then(|wait| other.while_waiting(wait, tell));
        let in_the_way = || self.stands_in_the_way(owner, ticket.sequence, other);
        told.or_else(|| other.while_in_the_way(in_the_way, tell))
            .is_some()
    }

    fn leave_line(&self, owner: &Arc<Owner>, ticket: Ticket) {
        let mut wakes = Wakes::default();
        let mut shard = self.shard(ticket.at.shard).lock();
        shard.leave(
            ticket.at.slot,
            owner,
            ticket.sequence,
            &self.tally,
            &mut wakes,
        );
        drop(shard);
        wakes.send();
    }
}
