//! Models for loom of the real lock table, at its smallest: one shard, two or three threads, one
//! or two keys, time that passes only where a model says so.
//!
//! | model | what |
//! | --- | --- |
//! | hand-off | a release, a waiter, and one that comes meanwhile |
//! | fold, unfold | a range grows over a key that others ask for; takes in one that was locked before it began; is told for one key while it goes |
//! | end of a waiter | KILL, timeout, choice as a victim, just as somebody grants |
//! | gap moves | a record goes whose gap is locked; the lock's owner ends meanwhile |
//!
//! Invariants, in every order:
//! - Everybody's wait ends (loom reports threads that sleep for ever).
//! - Of a row's writers each sees what the one before it wrote: one holder at a time.
//! - In the end nothing is left in the table: a lock is held or given up, and then handed on.
//!
//! Run: `./ferrite test loom`.

use ferrite_sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};
use ferrite_sync::model::{check, pass_us, thread};
use ferrite_sync::{Arc, RwLock};
use ferrite_types::{Error, IndexId, Result};

use crate::{
    Attempt, LockConfig, LockRequest, LockTable, Mode, Owner, RangeId, Span, WaitHooks, WaitPolicy,
};
use Mode::{Exclusive, Shared};
use Span::{InsertIntention, NextKey, Record};

const IX: IndexId = IndexId(7);
const STACK_BYTES: usize = 1 << 17;
const SHORT: WaitPolicy = WaitPolicy::for_ms(10);
const LONG: WaitPolicy = WaitPolicy::for_ms(1_000_000);

/// The server wants to know nothing: fewer steps.
struct Quiet;

impl WaitHooks for Quiet {
    fn wants_reports(&self) -> bool {
        false
    }
}

/// What the threads of a model share.
struct World {
    table: LockTable,
    owners: [Arc<Owner>; 3],
    /// What the lock guards. Without a lock, or if the hand-off passed nothing on, a thread reads
    /// an old value and a write is lost.
    row: AtomicU32,
    /// The first owner has decided to end.
    ended: AtomicBool,
    /// The latch of the leaf with all keys.
    leaf: RwLock<()>,
}

const A: usize = 0;
const B: usize = 1;
const C: usize = 2;

impl World {
    /// In a thread of its own, as the table is too large for the small stacks of loom's threads
    /// before it finds its place in memory.
    fn new(deadlock_detect: bool) -> Arc<World> {
        let builder = thread::Builder::new().stack_size(STACK_BYTES);
        let made = builder.spawn(move || Arc::new(World::make(deadlock_detect)));
        made.unwrap().join().unwrap()
    }

    fn make(deadlock_detect: bool) -> World {
        World {
            table: LockTable::new(LockConfig {
                shards: 1,
                deadlock_detect,
                ticker_us: 3_600_000_000,
                ..LockConfig::default()
            }),
            owners: [1, 2, 3].map(|n| Owner::new(n, 0)),
            row: AtomicU32::new(0),
            ended: AtomicBool::new(false),
            leaf: RwLock::new(()),
        }
    }

    fn spawn<R: 'static>(
        self: &Arc<World>,
        f: impl FnOnce(&World) -> R + 'static,
    ) -> thread::JoinHandle<R> {
        let world = self.clone();
        thread::spawn(move || f(&world))
    }

    fn take(&self, o: usize, key: &[u8], mode: Mode, span: Span) {
        let got = self
            .table
            .try_lock(&self.owners[o], LockRequest::new(IX, key, mode, span));
        assert_eq!(got, Ok(Attempt::Granted));
    }

    fn grow(&self, o: usize, key: &[u8], mode: Mode, range: &mut Option<RangeId>) -> Attempt {
        let owner = &self.owners[o];
        let got = self.table.try_lock_in_range(owner, IX, key, mode, range);
        got.unwrap()
    }

    fn absorb(&self, o: usize, key: &[u8], mode: Mode, range: Option<RangeId>) {
        let keys = core::iter::once(key);
        self.table
            .absorb(&self.owners[o], IX, mode, range.unwrap(), keys);
    }

    fn ask(
        &self,
        o: usize,
        key: &[u8],
        mode: Mode,
        span: Span,
        wait: WaitPolicy,
    ) -> Result<Attempt> {
        let owner = &self.owners[o];
        let got = self
            .table
            .lock_wait(owner, LockRequest::new(IX, key, mode, span), wait, &Quiet);
        assert!(got != Ok(Attempt::Blocked) && !owner.is_waiting());
        got
    }

    fn is_shut(&self, o: usize, key: &[u8]) -> bool {
        let owner = &self.owners[o];
        self.table
            .conflicts(owner, LockRequest::new(IX, key, Exclusive, InsertIntention))
    }

    fn release(&self, o: usize) {
        self.table.release_all(&self.owners[o]);
    }

    fn end_first(&self) {
        self.ended.store(true, Relaxed);
        self.release(A);
    }

    fn has_ended(&self) -> bool {
        self.ended.load(Relaxed)
    }

    /// By who holds the row.
    fn write(&self) {
        let was = self.row.load(Relaxed);
        self.row.store(was + 1, Relaxed);
    }

    /// A transaction that changes the row.
    fn change(&self, o: usize, wait: WaitPolicy) -> Result<()> {
        let got = self.ask(o, b"d", Exclusive, Record, wait);
        if got.is_ok() {
            self.write();
        }
        self.release(o);
        got.map(|_| ())
    }

    /// The same as the engine does it, where ranges are in the way: a wait for one that has just
    /// gone ends without the lock, and who has waited looks again in any case.
    fn look_and_change(&self, o: usize) {
        let owner = &self.owners[o];
        let try_lock = || {
            self.table
                .try_lock(owner, LockRequest::new(IX, b"d", Exclusive, Record))
        };
        while try_lock() == Ok(Attempt::Blocked) {
            assert!(self.ask(o, b"d", Exclusive, Record, LONG).is_ok());
        }
        self.write();
        self.release(o);
    }

    fn is_clean(&self, writes: usize) {
        assert_eq!(self.row.load(Relaxed) as usize, writes, "a write is lost");
        let s = self.table.stats();
        assert_eq!((s.keys, s.bytes, s.waiting), (0, 0, 0), "{s:?}");
        assert!(!self.table.has_gap_locks(IX));
        self.table.each_lock(&mut |lock| panic!("{lock:?}"));
        for o in &self.owners {
            assert_eq!(o.locks_held(), 0);
            let list = o.list.lock();
            assert!(list.locks.is_empty() && list.ranges.is_empty() && !list.closing);
        }
    }
}

/// A holder goes, while one waits, or is about to, and another comes.
#[test]
fn loom_hand_off() {
    check(3, || {
        let w = World::new(false);
        w.take(A, b"d", Exclusive, Record);
        let others = [B, C].map(|o| w.spawn(move |w| w.change(o, LONG)));
        w.write();
        w.release(A);
        for other in others {
            assert_eq!(other.join().unwrap(), Ok(()));
        }
        w.is_clean(3);
    });
}

/// The first of two waiters is killed, or runs out of time, as the holder goes.
fn end_of_a_waiter(wait: WaitPolicy, end: fn(&World), error: Error) {
    check(3, move || {
        let w = World::new(false);
        w.take(A, b"d", Exclusive, Record);
        let first = w.spawn(move |w| w.change(B, wait));
        let next = w.spawn(|w| w.change(C, LONG));
        w.write();
        end(&w);
        w.release(A);
        assert_eq!(next.join().unwrap(), Ok(()));
        match first.join().unwrap() {
            Ok(()) => w.is_clean(3),
            other => {
                assert_eq!(other, Err(error.clone()));
                w.is_clean(2);
            }
        }
    });
}

#[test]
fn loom_a_waiter_is_killed() {
    end_of_a_waiter(
        LONG,
        |w| w.table.interrupt(&w.owners[B]),
        Error::Interrupted,
    );
}

#[test]
fn loom_a_waiter_runs_out_of_time() {
    end_of_a_waiter(SHORT, |_| pass_us(20_000), Error::LockTimeout);
}

/// Behind a waiter that is killed stands one whom it alone kept from going on: the holder stays.
#[test]
fn loom_an_obstacle_is_killed() {
    check(3, || {
        let w = World::new(false);
        w.take(A, b"d", Shared, Record);
        let first = w.spawn(|w| w.ask(B, b"d", Exclusive, Record, LONG));
        let next = w.spawn(|w| {
            let got = w.ask(C, b"d", Shared, Record, LONG);
            w.release(C);
            got
        });
        w.table.interrupt(&w.owners[B]);
        assert_eq!(next.join().unwrap(), Ok(Attempt::Granted));
        assert_eq!(first.join().unwrap(), Err(Error::Interrupted));
        w.release(A);
        w.is_clean(0);
    });
}

impl World {
    /// The first two owners have a key each, and each asks for the other's. The first has less to
    /// lose and gives way, though it may sleep when the second finds them.
    fn cross(self: &Arc<World>) -> [thread::JoinHandle<Result<Attempt>>; 2] {
        self.take(A, b"a", Exclusive, Record);
        self.take(B, b"b", Exclusive, Record);
        self.owners[B].add_change();
        [(A, b"b"), (B, b"a")].map(|(o, key)| {
            self.spawn(move |w| {
                let got = w.ask(o, key, Exclusive, Record, LONG);
                w.release(o);
                got
            })
        })
    }
}

/// Two wait for each other: one gives way, whoever finds them, and the other goes on; so does a
/// third, who waits for the first.
#[test]
fn loom_one_of_two_gives_way() {
    check(2, || {
        let w = World::new(true);
        let waits = w.cross();
        assert!(w.ask(C, b"a", Exclusive, Record, LONG).is_ok());
        w.release(C);
        let ends = waits.map(|h| h.join().unwrap());
        assert_eq!(ends, [Err(Error::Deadlock), Ok(Attempt::Granted)]);
        w.is_clean(0);
    });
}

/// The same, and the second is killed just then: what it held is granted to the first, or to a
/// victim that has given up.
#[test]
fn loom_a_victim_is_granted() {
    check(2, || {
        let w = World::new(true);
        let waits = w.cross();
        w.table.interrupt(&w.owners[B]);
        assert!(w.ask(C, b"a", Exclusive, Record, LONG).is_ok());
        w.release(C);
        let [a, b] = waits.map(|h| h.join().unwrap());
        assert!(a.is_ok() || a == Err(Error::Deadlock), "{a:?}");
        assert!(b.is_ok() || b != a, "both gave way");
        w.is_clean(0);
    });
}

/// A scan's range grows over a key that has a lock of its own, which goes, and over the next one.
/// Others insert before the one and change the other.
#[test]
fn loom_fold() {
    check(3, || {
        let w = World::new(false);
        let mut range = None;
        assert_eq!(w.grow(A, b"b", Exclusive, &mut range), Attempt::Held);
        w.take(A, b"c", Exclusive, NextKey);
        let insert = w.spawn(|w| {
            let shut = {
                let _latch = w.leaf.write();
                w.is_shut(B, b"c")
            };
            assert!(shut || w.has_ended(), "the gap is open");
            assert!(w.ask(B, b"c", Exclusive, InsertIntention, LONG).is_ok());
            assert!(w.has_ended(), "the gap is open");
            w.release(B);
        });
        let change = w.spawn(|w| w.look_and_change(C));
        let got = {
            let _latch = w.leaf.read();
            let got = w.grow(A, b"d", Exclusive, &mut range);
            w.absorb(A, b"c", Exclusive, range);
            got
        };
        if got.is_granted() {
            w.write();
        }
        w.end_first();
        insert.join().unwrap();
        change.join().unwrap();
        w.is_clean(1 + usize::from(got.is_granted()));
    });
}

/// A scan's range begins, and takes in a key of the leaf that the scan has left: no latch keeps
/// those away who insert before it.
#[test]
fn loom_fold_begins() {
    check(3, || {
        let w = World::new(false);
        w.take(A, b"c", Exclusive, NextKey);
        let insert = w.spawn(|w| {
            assert!(w.is_shut(B, b"c") || w.has_ended(), "the gap is open");
            assert!(w.ask(B, b"c", Exclusive, InsertIntention, LONG).is_ok());
            assert!(w.has_ended(), "the gap is open");
            w.release(B);
        });
        let mut range = None;
        assert_eq!(w.grow(A, b"d", Exclusive, &mut range), Attempt::Held);
        w.absorb(A, b"c", Exclusive, range);
        w.end_first();
        insert.join().unwrap();
        w.is_clean(0);
    });
}

/// The same, with a record whose gap moves to the next one just then.
#[test]
fn loom_fold_begins_where_a_gap_moves() {
    check(3, || {
        let w = World::new(false);
        w.take(A, b"c", Exclusive, NextKey);
        let removal = w.spawn(|w| w.table.inherit_removed(IX, b"c", b"k"));
        let mut range = None;
        assert_eq!(w.grow(A, b"d", Exclusive, &mut range), Attempt::Held);
        w.absorb(A, b"c", Exclusive, range);
        let heirs = removal.join().unwrap();
        assert!(heirs > 0 && w.is_shut(B, b"k"), "the gap is open");
        w.end_first();
        w.is_clean(0);
    });
}

/// Two ask for a key in a range, so that it is told for this one; its owner ends meanwhile.
#[test]
fn loom_unfold() {
    check(3, || {
        let w = World::new(false);
        let mut range = None;
        for key in [b"b", b"d"] {
            assert_eq!(w.grow(A, key, Exclusive, &mut range), Attempt::Held);
        }
        let insert = w.spawn(|w| {
            assert!(w.ask(B, b"d", Exclusive, InsertIntention, LONG).is_ok());
            assert!(w.has_ended(), "the gap is open");
            w.release(B);
        });
        let change = w.spawn(|w| w.look_and_change(C));
        w.write();
        w.end_first();
        insert.join().unwrap();
        change.join().unwrap();
        w.is_clean(2);
    });
}

/// The same with a range of shared locks, whose owner is prepared and stays.
#[test]
fn loom_unfold_at_prepare() {
    check(3, || {
        let w = World::new(false);
        let mut range = None;
        for key in [b"b", b"d"] {
            assert_eq!(w.grow(A, key, Shared, &mut range), Attempt::Held);
        }
        let others = [B, C].map(|o| w.spawn(move |w| w.look_and_change(o)));
        w.table
            .release_at_prepare(&w.owners[A], crate::AtPrepare::Reads);
        for other in others {
            other.join().unwrap();
        }
        w.release(A);
        w.is_clean(2);
    });
}

/// A record in the locked gap goes, and its gap joins the next one; the locks' owner ends
/// meanwhile, and another waits to insert there.
#[test]
fn loom_a_gap_moves() {
    check(3, || {
        let w = World::new(false);
        w.take(A, b"c", Exclusive, NextKey);
        let purge = w.spawn(|w| {
            {
                let _latch = w.leaf.write();
                w.table.inherit_removed(IX, b"c", b"d");
            }
            let shut = w.is_shut(B, b"d");
            assert!(shut || w.has_ended(), "the gap is open");
            assert!(w.ask(B, b"d", Exclusive, InsertIntention, LONG).is_ok());
            assert!(w.has_ended(), "the gap is open");
            w.release(B);
        });
        w.end_first();
        purge.join().unwrap();
        w.is_clean(0);
    });
}
