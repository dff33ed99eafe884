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
//! Cost: only who is wanted walks (see `wait`). Of a line, all who stand in front of the walker and
//! whom it waits for, directly or by way of others in the same line, are found in one pass; a
//! second pass over the same part of it is not made. So a walk takes as many steps as there are
//! entries in the queues it meets.

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};

use ferrite_sync::atomic::Ordering;
use ferrite_sync::{time, Arc};
use ferrite_types::IndexId;

use crate::hooks::WaitHooks;
use crate::journal::{Deadlock, DeadlockMember};
use crate::mode::{conflicts, Mask};
use crate::owner::{Handle, Owner, VICTIM};
use crate::queue::Queue;
use crate::table::LockTable;
use crate::table_locks::words_of;

/// Members of one of them that are told, the walker first.
const MEMBERS_TOLD: usize = 16;
/// A wait may close several cycles at once; beyond this many the ticker goes on.
const CYCLES_AT_ONCE: usize = 16;

struct Node {
    owner: Arc<Owner>,
    sequence: u64,
    at: Handle,
    parent: usize,
    /// Found in a line in front of another: what it waits for was found with it.
    seen_in_line: bool,
}

/// A waiter of the line being walked, in front of whom others are looked for.
struct Asker {
    node: usize,
    place: usize,
    mask: Mask,
    /// What it holds on the key: who waits for that is not in its way.
    own: Mask,
}

impl Asker {
    fn waits_for_waiter(&self, asked: Mask) -> bool {
        conflicts(self.mask, asked) && !conflicts(asked, self.own)
    }
}

type Hasher = foldhash::fast::FixedState;

#[derive(Default)]
struct Walk {
    nodes: Vec<Node>,
    seen: HashSet<usize, Hasher>,
    /// Of lines walked: modes asked for, and the place below which all that a waiter who asks for
    /// them waits for is known, with those who hold the lock.
    known: HashMap<(u32, u32), Vec<(Mask, usize)>, Hasher>,
    /// Entries looked at.
    steps: u64,
}

impl Walk {
    /// All that these ask for is known from the first `before` places of the line.
    fn knows_all(&self, at: Handle, askers: &[Asker], before: usize) -> bool {
        let Some(known) = self.known.get(&(at.shard, at.slot)) else {
            return false;
        };
        let is_known = |a: &Asker| {
            let one = |(m, p): &(Mask, usize)| a.mask & !m == 0 && before <= *p;
            a.own == 0 && known.iter().any(one)
        };
        askers.iter().all(is_known)
    }

    /// What these ask for is known from their places on.
    fn know(&mut self, at: Handle, askers: &[Asker]) {
        let known = self.known.entry((at.shard, at.slot)).or_default();
        for a in askers.iter().filter(|a| a.own == 0) {
            known.retain(|(m, p)| m & !a.mask != 0 || *p > a.place);
            known.push((a.mask, a.place));
        }
    }

    fn add(
        &mut self,
        owner: &Arc<Owner>,
        sequence: u64,
        at: Handle,
        parent: usize,
    ) -> Option<usize> {
        if !self.seen.insert(Arc::as_ptr(owner) as usize) {
            return None;
        }
        debug_assert!(
            parent < self.nodes.len() || (parent == usize::MAX && self.nodes.is_empty()),
            "a way from nowhere"
        );
        self.nodes.push(Node {
            owner: owner.clone(),
            sequence,
            at,
            parent,
            seen_in_line: false,
        });
        Some(self.nodes.len() - 1)
    }

    /// Adds those whom node `n` waits for in a queue where it stands at `place`. The node that
    /// waits for `start`, if one does.
    fn pass(
        &mut self,
        q: &Queue,
        at: Handle,
        n: usize,
        place: usize,
        start: &Arc<Owner>,
    ) -> Option<usize> {
        debug_assert!(place < q.waiting.len(), "place {place}");
        let owner = self.nodes[n].owner.clone();
        let first = Asker {
            node: n,
            place,
            mask: q.waiting.get(place)?.mask,
            own: q.held_by(&owner),
        };
        // Modes asked for by those who hold nothing here.
        let mut plain = if first.own == 0 { first.mask } else { 0 };
        let mut askers = vec![first];
        for ahead in (0..place).rev() {
            if self.knows_all(at, &askers, ahead + 1) {
                self.know(at, &askers);
                return None;
            }
            self.steps += 1;
            let w = q.waiting.get(ahead)?;
            let Some(by) = askers.iter().find(|a| a.waits_for_waiter(w.mask)) else {
                continue;
            };
            if Arc::ptr_eq(&w.owner, start) {
                return Some(by.node);
            }
            // Who was told to give way stands there until it comes to leave: nobody waits for it.
            if (w.holds || w.mask & !plain != 0) && w.owner.wait_sequence() == Some(w.sequence) {
                let by = by.node;
                if let Some(node) = self.add(&w.owner, w.sequence, at, by) {
                    self.nodes[node].seen_in_line = true;
                    let own = if w.holds { q.held_by(&w.owner) } else { 0 };
                    plain |= if own == 0 { w.mask } else { 0 };
                    askers.push(Asker {
                        node,
                        place: ahead,
                        mask: w.mask,
                        own,
                    });
                }
            }
        }
        for g in q.granted.iter() {
            self.steps += 1;
            let in_the_way = |a: &&Asker| {
                conflicts(a.mask, g.mask) && !Arc::ptr_eq(&self.nodes[a.node].owner, &g.owner)
            };
            let Some(by) = askers.iter().find(in_the_way).map(|a| a.node) else {
                continue;
            };
            if Arc::ptr_eq(&g.owner, start) {
                return Some(by);
            }
            if let Some(sequence) = g.owner.wait_sequence() {
                self.add(&g.owner, sequence, at, by);
            }
        }
        self.know(at, &askers);
        None
    }
}

/// What a walk has found.
enum Search {
    /// No way leads back to the start.
    None,
    /// A way, but somebody on it does not wait any more. Others were not looked at.
    Stale,
    Cycle(Vec<Node>),
}

impl LockTable {
    /// The latest deadlocks, oldest first.
    pub fn deadlocks(&self) -> Vec<Deadlock> {
        self.journal.latest.lock().iter().cloned().collect()
    }

    /// The latest deadlock.
    pub fn last_deadlock(&self) -> Option<Deadlock> {
        self.journal.latest.lock().back().cloned()
    }

    /// The latest deadlock in which that connection gave way.
    pub fn last_deadlock_of(&self, thread_id: u64) -> Option<Deadlock> {
        let latest = self.journal.latest.lock();
        let gave_way = |m: &DeadlockMember| m.victim && m.thread_id == thread_id;
        let mut newest_first = latest.iter().rev();
        newest_first
            .find(|d| d.members.iter().any(gave_way))
            .cloned()
    }

    /// Whom the owner's wait number `sequence` waits for, up to `most` of them, each with the number of
    /// the wait that it is in itself; empty if that wait is over.
    pub(crate) fn waits_for(
        &self,
        owner: &Arc<Owner>,
        sequence: u64,
        most: usize,
    ) -> Vec<(Arc<Owner>, Option<u64>)> {
        let mut others = Vec::new();
        self.each_in_the_way(owner, sequence, &mut |other| {
            others.push((other.clone(), other.wait_sequence()));
            others.len() < most
        });
        others
    }

    /// Does the owner's wait number `sequence` wait for `other`?
    pub(crate) fn stands_in_the_way(
        &self,
        owner: &Arc<Owner>,
        sequence: u64,
        other: &Arc<Owner>,
    ) -> bool {
        let mut found = false;
        self.each_in_the_way(owner, sequence, &mut |one| {
            found = Arc::ptr_eq(one, other);
            !found
        });
        found
    }

    /// Calls `f` for each whom the owner's wait number `sequence` waits for, until it says no; under
    /// the shard's mutex.
    fn each_in_the_way(
        &self,
        owner: &Arc<Owner>,
        sequence: u64,
        f: &mut dyn FnMut(&Arc<Owner>) -> bool,
    ) {
        let at = owner.wait_place();
        let shard = self.shard(at.shard).lock();
        let Some(q) = shard.queue(at.slot) else {
            return;
        };
        let place = q.place_of(owner, sequence);
        if let Some((place, w)) = place.and_then(|p| Some((p, q.waiting.get(p)?))) {
            q.obstacles(owner, w.mask, place, f);
        }
    }

    /// Breaks every cycle through this waiter, by letting somebody give way.
    pub(crate) fn break_cycles(&self, owner: &Arc<Owner>, sequence: u64, hooks: &dyn WaitHooks) {
        for _ in 0..CYCLES_AT_ONCE {
            let cycle = match self.find_cycle(owner, sequence) {
                Search::None => return,
                // Another path may be a cycle all the same.
                Search::Stale => continue,
                Search::Cycle(cycle) => cycle,
            };
            let at = choose_victim(&cycle, hooks);
            let record = self.describe(&cycle, at, hooks);
            let victim = &cycle[at];
            assert!(
                Arc::ptr_eq(&cycle[0].owner, owner) && cycle.len() > 1,
                "{owner:?} breaks a cycle of {} that it is not in",
                cycle.len()
            );
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
    fn find_cycle(&self, start: &Arc<Owner>, sequence: u64) -> Search {
        if start.wait_sequence() != Some(sequence) {
            return Search::None;
        }
        let mut walk = Walk::default();
        walk.add(start, sequence, start.wait_place(), usize::MAX);
        let mut next = 0;
        let mut last = None;
        while next < walk.nodes.len() && last.is_none() {
            last = self.visit(&mut walk, next, start);
            next += 1;
        }
        self.stats.walked.fetch_add(walk.steps, Ordering::Relaxed);
        match last {
            Some(last) => take_cycle(walk, last),
            None => Search::None,
        }
    }

    /// Adds those whom node `n` waits for; who of them, or of those in the same line, waits for
    /// `start`.
    fn visit(&self, walk: &mut Walk, n: usize, start: &Arc<Owner>) -> Option<usize> {
        walk.steps += 1;
        let node = &mut walk.nodes[n];
        if node.seen_in_line || node.owner.wait_sequence() != Some(node.sequence) {
            return None;
        }
        let at = node.owner.wait_place();
        node.at = at;
        let (owner, sequence) = (node.owner.clone(), node.sequence);
        let shard = self.shard(at.shard).lock();
        let q = shard.queue(at.slot)?;
        let place = q.place_of(&owner, sequence)?;
        walk.pass(q, at, n, place, start)
    }

    fn describe(&self, cycle: &[Node], victim: usize, hooks: &dyn WaitHooks) -> Deadlock {
        let told = |i: &usize| *i < MEMBERS_TOLD || *i == victim;
        let members = (0..cycle.len())
            .filter(told)
            .map(|i| self.member(cycle, i, i == victim, hooks))
            .collect();
        Deadlock {
            number: 0,
            at_unix_us: time::unix_us(),
            size: cycle.len(),
            members,
        }
    }

    fn member(
        &self,
        cycle: &[Node],
        i: usize,
        victim: bool,
        hooks: &dyn WaitHooks,
    ) -> DeadlockMember {
        let node = &cycle[i];
        let before = &cycle[(i + cycle.len() - 1) % cycle.len()];
        let waited = {
            let shard = self.shard(node.at.shard).lock();
            shard.queue(node.at.slot).and_then(|q| {
                let place = q.place_of(&node.owner, node.sequence)?;
                let mask = q.waiting.get(place)?.mask;
                Some((q.index, q.key.clone(), words_of(q.index, &q.key, mask)))
            })
        };
        let held = {
            let shard = self.shard(before.at.shard).lock();
            let q = shard.queue(before.at.slot);
            q.map_or("", |q| match q.held_by(&node.owner) {
                0 => "",
                held => words_of(q.index, &q.key, held),
            })
        };
        let (index, key, wanted) = waited.unwrap_or((IndexId(0), Vec::new(), ""));
        let query = |thd| hooks.query_of(thd);
        DeadlockMember {
            txn: node.owner.txn_id(),
            thread_id: node.owner.thread_id,
            changes: node.owner.changes.load(Ordering::Relaxed),
            index,
            key,
            wanted,
            held,
            query: node
                .owner
                .while_waiting(node.sequence, query)
                .unwrap_or_default(),
            victim,
        }
    }
}

/// The path from the start to node `last`, if all on it are still in the same wait.
fn take_cycle(walk: Walk, last: usize) -> Search {
    let mut path = Vec::new();
    let mut at = last;
    while at != usize::MAX {
        assert!(path.len() < walk.nodes.len(), "a way that goes round");
        path.push(at);
        at = walk.nodes[at].parent;
    }
    path.reverse();
    let mut nodes: Vec<Option<Node>> = walk.nodes.into_iter().map(Some).collect();
    let len = path.len();
    let cycle: Vec<Node> = path.into_iter().filter_map(|i| nodes[i].take()).collect();
    assert_eq!(cycle.len(), len, "an owner is in a cycle twice");
    let real = cycle
        .iter()
        .all(|n| n.owner.wait_sequence() == Some(n.sequence));
    if real {
        Search::Cycle(cycle)
    } else {
        Search::Stale
    }
}

/// The server's preference first, then the fewest changes and locks, then the one that came last.
/// Several who find the same cycle at once choose the same.
fn choose_victim(cycle: &[Node], hooks: &dyn WaitHooks) -> usize {
    let mut best = 0;
    for (i, b) in cycle.iter().enumerate().skip(1) {
        let a = &cycle[best];
        let ask = |a_thd| {
            let asked = |b_thd| hooks.prefer_victim(a_thd, b_thd);
            b.owner.while_waiting(b.sequence, asked)
        };
        let asked = a.owner.while_waiting(a.sequence, ask);
        let preference = asked.flatten().unwrap_or(0);
        let weight = |n: &Node| (n.owner.weight(), Reverse(n.owner.arrival()));
        debug_assert!(
            !Arc::ptr_eq(&a.owner, &b.owner),
            "an owner waits for itself"
        );
        if preference > 0 || (preference == 0 && weight(b) < weight(a)) {
            best = i;
        }
    }
    best
}
