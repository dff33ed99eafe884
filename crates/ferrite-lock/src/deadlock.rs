//! Deadlocks: the walk over "who waits for whom", the victim, the journal.
//!
//! An edge is read from the queue in which a waiter stands, under that shard's mutex, one at
//! a time, together with the sequence number of the wait that the other is in at that
//! moment (one that does not wait ends the path). An edge between two waiters cannot vanish
//! while both go on waiting: a waiter releases nothing. So a cycle whose members are all
//! still in those same waits after the walk is a real one. Taking the number any later would
//! not do: the other may have been served, and be waiting anew behind us. Only cycles
//! through the walker itself are looked for; others have their own walkers, and one that
//! begins to wait after the walk passed it walks itself.
//!
//! Cost: a line of N waiters is walked once per kind of request in it, not once per waiter
//! (see `Walk::known`), so a walk in a hot line is O(N).

use std::collections::HashSet;

use ferrite_sync::{time, Arc, Mutex};
use ferrite_types::{IndexId, TxnId};

use crate::mode::{words, Mask};
use crate::owner::{Handle, Owner, VICTIM};
use crate::table::LockTable;
use crate::wait::WaitHooks;

/// Deadlocks kept for display.
const JOURNAL_LEN: usize = 10;
/// A wait may close several cycles at once; beyond this many the ticker goes on.
const CYCLES_AT_ONCE: usize = 16;

/// One deadlock that was broken.
#[derive(Clone, Debug)]
pub struct Deadlock {
    /// When, microseconds since 1970.
    pub at_unix_us: u64,
    /// Each waits for the next, the last for the first.
    pub members: Vec<DeadlockMember>,
}

/// A transaction in a deadlock.
#[derive(Clone, Debug)]
pub struct DeadlockMember {
    /// Its id; frozen (0) if it had changed nothing.
    pub txn: TxnId,
    /// Its connection.
    pub thread_id: u64,
    /// Rows it had changed.
    pub changes: u64,
    /// The index it waited in; 0 with a key of table id and stripe for a table lock.
    pub index: IndexId,
    /// The key it waited for.
    pub key: Vec<u8>,
    /// The mode it waited for, in InnoDB's words.
    pub wanted: &'static str,
    /// This one gave way.
    pub victim: bool,
}

/// The latest deadlocks.
#[derive(Default)]
pub(crate) struct Journal {
    latest: Mutex<Vec<Deadlock>>,
}

impl Journal {
    fn push(&self, d: Deadlock) {
        let mut latest = self.latest.lock();
        if latest.len() == JOURNAL_LEN {
            latest.remove(0);
        }
        latest.push(d);
    }
}

struct Node {
    owner: Arc<Owner>,
    sequence: u64,
    at: Handle,
    parent: usize,
}

struct Walk {
    nodes: Vec<Node>,
    seen: HashSet<usize, foldhash::fast::FixedState>,
    /// Lines walked: queue, mode asked for, place. An earlier waiter of the same line that
    /// asks for the same modes waits for nobody else, provided that the later one holds
    /// nothing there itself.
    known: Vec<(Handle, Mask, usize)>,
}

impl Walk {
    fn is_known(&self, at: Handle, mask: Mask, place: usize) -> bool {
        self.known
            .iter()
            .any(|(h, m, p)| *h == at && *m == mask && place <= *p)
    }
}

impl LockTable {
    /// The latest deadlocks, oldest first.
    pub fn deadlocks(&self) -> Vec<Deadlock> {
        self.journal.latest.lock().clone()
    }

    /// Whom the owner's wait number `sequence` waits for; empty if that wait is over.
    pub(crate) fn waits_for(&self, owner: &Arc<Owner>, sequence: u64) -> Vec<Arc<Owner>> {
        let mut others = Vec::new();
        let at = owner.wait_place();
        let shard = self.shard(at.shard).lock();
        let Some(q) = shard.queue(at.slot) else {
            return others;
        };
        if let Some(place) = q.place_of(owner, sequence) {
            q.obstacles(owner, q.waiting[place].mask, place, &mut |other| {
                others.push(other.clone());
                true
            });
        }
        others
    }

    /// Breaks every cycle through this waiter, by letting somebody give way.
    pub(crate) fn break_cycles(&self, owner: &Arc<Owner>, sequence: u64, hooks: &dyn WaitHooks) {
        for _ in 0..CYCLES_AT_ONCE {
            let Some(cycle) = self.find_cycle(owner, sequence) else {
                return;
            };
            let at = choose_victim(&cycle, hooks);
            let record = self.describe(&cycle, at);
            let victim = &cycle[at];
            if !victim.owner.end_wait(victim.sequence, VICTIM) {
                // It was just freed by something else: look again.
                continue;
            }
            self.journal.push(record);
            self.stats.deadlocks.inc();
            victim.owner.event.set();
            if Arc::ptr_eq(&victim.owner, owner) {
                return;
            }
        }
        owner.wake_to_recheck();
    }

    /// The members of a cycle, beginning with `start`.
    fn find_cycle(&self, start: &Arc<Owner>, sequence: u64) -> Option<Vec<Node>> {
        let mut walk = Walk {
            nodes: vec![Node {
                owner: start.clone(),
                sequence,
                at: start.wait_place(),
                parent: usize::MAX,
            }],
            seen: HashSet::default(),
            known: Vec::new(),
        };
        walk.seen.insert(Arc::as_ptr(start) as usize);
        let mut next = 0;
        while next < walk.nodes.len() {
            if self.visit(&mut walk, next, start) {
                return take_cycle(walk, next);
            }
            next += 1;
        }
        None
    }

    /// Adds those whom node `n` waits for; true if `start` is among them.
    fn visit(&self, walk: &mut Walk, n: usize, start: &Arc<Owner>) -> bool {
        let owner = walk.nodes[n].owner.clone();
        let sequence = walk.nodes[n].sequence;
        if owner.wait_sequence() != Some(sequence) {
            return false;
        }
        let at = owner.wait_place();
        walk.nodes[n].at = at;
        let shard = self.shard(at.shard).lock();
        let Some((q, place)) = shard
            .queue(at.slot)
            .and_then(|q| Some((q, q.place_of(&owner, sequence)?)))
        else {
            return false;
        };
        let mask = q.waiting[place].mask;
        if walk.is_known(at, mask, place) {
            return false;
        }
        if q.held_by(&owner) == 0 {
            walk.known.push((at, mask, place));
        }
        let mut closed = false;
        q.obstacles(&owner, mask, place, &mut |other| {
            if Arc::ptr_eq(other, start) {
                closed = true;
                return false;
            }
            let Some(sequence) = other.wait_sequence() else {
                return true;
            };
            if walk.seen.insert(Arc::as_ptr(other) as usize) {
                walk.nodes.push(Node {
                    owner: other.clone(),
                    sequence,
                    at,
                    parent: n,
                });
            }
            true
        });
        closed
    }

    fn describe(&self, cycle: &[Node], victim: usize) -> Deadlock {
        let members = cycle
            .iter()
            .enumerate()
            .map(|(i, node)| {
                let shard = self.shard(node.at.shard).lock();
                let waited = shard.queue(node.at.slot).and_then(|q| {
                    let place = q.place_of(&node.owner, node.sequence)?;
                    Some((q.index, q.key.clone(), words(q.waiting[place].mask)))
                });
                let (index, key, wanted) = waited.unwrap_or((IndexId(0), Vec::new(), ""));
                DeadlockMember {
                    txn: node.owner.txn_id(),
                    thread_id: node.owner.thread_id,
                    changes: node
                        .owner
                        .changes
                        .load(ferrite_sync::atomic::Ordering::Relaxed),
                    index,
                    key,
                    wanted,
                    victim: i == victim,
                }
            })
            .collect();
        Deadlock {
            at_unix_us: time::unix_us(),
            members,
        }
    }
}

/// The path from the start to node `last`, if all on it are still in the same wait.
fn take_cycle(walk: Walk, last: usize) -> Option<Vec<Node>> {
    let mut path = Vec::new();
    let mut at = last;
    while at != usize::MAX {
        path.push(at);
        at = walk.nodes[at].parent;
    }
    path.reverse();
    let mut nodes: Vec<Option<Node>> = walk.nodes.into_iter().map(Some).collect();
    let cycle: Vec<Node> = path.into_iter().filter_map(|i| nodes[i].take()).collect();
    let real = cycle
        .iter()
        .all(|n| n.owner.wait_sequence() == Some(n.sequence));
    real.then_some(cycle)
}

/// The server's preference first, then the fewest changes, then the walker, who stands first
/// in the list (nearly always the one that came last).
fn choose_victim(cycle: &[Node], hooks: &dyn WaitHooks) -> usize {
    let mut best = 0;
    for (i, node) in cycle.iter().enumerate().skip(1) {
        let (a, b) = (&cycle[best].owner, &node.owner);
        let preference = if a.thd != 0 && b.thd != 0 {
            hooks.prefer_victim(a.thd, b.thd)
        } else {
            0
        };
        if preference > 0 || (preference == 0 && b.weight() < a.weight()) {
            best = i;
        }
    }
    best
}
