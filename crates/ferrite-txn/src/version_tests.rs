//! Chains of versions against an oracle that keeps the full history: each live snapshot
//! reads the same through pruning, retirement and sweeps, in random schedules and with
//! threads; and history stays within its bound.

use std::collections::{BTreeMap, BTreeSet};

use ferrite_lock::Owner;
use ferrite_sync::atomic::{AtomicBool, Ordering};
use ferrite_sync::random::Rng;
use ferrite_sync::{thread, Arc, Mutex};
use ferrite_types::{Csn, IndexId, TxnId, VersionAddr};

use crate::{
    apply, diff, NewVersion, Snapshot, SnapshotInfo, TxnSystem, VersionConfig, VersionStats,
    VersionStore, VERSION_DELETED,
};

/// A record on a page: its header and payload.
#[derive(Clone, Default)]
pub(crate) struct Record {
    pub txn: TxnId,
    pub next: VersionAddr,
    pub deleted: bool,
    pub payload: Vec<u8>,
}

pub(crate) fn store() -> VersionStore {
    VersionStore::new(VersionConfig::with_memory(1 << 20), None)
}

/// As an engine updates a row, under its page latch.
pub(crate) fn update(
    sys: &TxnSystem,
    vs: &VersionStore,
    r: &mut Record,
    txn: TxnId,
    payload: Vec<u8>,
    deleted: bool,
    prune: bool,
) {
    let next = if prune && r.txn != txn {
        vs.walk().prune(sys, r.next, &r.payload).0
    } else {
        r.next
    };
    let (head, tail) = diff(&r.payload, &payload);
    let addr = vs.add(NewVersion {
        begin: r.txn,
        end: txn,
        next,
        flags: if r.deleted { VERSION_DELETED } else { 0 },
        keep_head: head,
        keep_tail: tail,
        body: &r.payload[usize::from(head)..r.payload.len() - usize::from(tail)],
        index: IndexId(1),
    });
    *r = Record {
        txn,
        next: addr,
        deleted,
        payload,
    };
}

/// Takes the newest change back, as a rollback does.
pub(crate) fn undo(vs: &VersionStore, r: &mut Record) {
    let w = vs.walk();
    let mut body = Vec::new();
    let mut head = w.read(r.next, &mut body);
    while head.is_err() {
        // Planned faults happen once.
        head = w.read(r.next, &mut body);
    }
    let head = head.unwrap().expect("own change has a version");
    let mut old = Vec::new();
    apply(&r.payload, &head, &body, &mut old);
    w.drop_version(head.addr);
    *r = Record {
        txn: head.begin,
        next: head.next,
        deleted: head.is_deleted(),
        payload: old,
    };
}

/// As a reader follows a chain. `None`: the row is not there for this snapshot.
pub(crate) fn read(
    sys: &TxnSystem,
    vs: &VersionStore,
    r: &Record,
    s: &Snapshot,
) -> Option<Vec<u8>> {
    if sys.sees(s, r.txn, TxnId(0)) {
        return (!r.deleted).then(|| r.payload.clone());
    }
    let w = vs.walk();
    let (mut newer, mut older, mut body) = (r.payload.clone(), Vec::new(), Vec::new());
    let mut at = r.next;
    loop {
        body.clear();
        let head = w.read(at, &mut body).unwrap()?;
        apply(&newer, &head, &body, &mut older);
        if sys.sees(s, head.begin, TxnId(0)) {
            return (!head.is_deleted()).then_some(older);
        }
        core::mem::swap(&mut newer, &mut older);
        at = head.next;
    }
}

fn chain_len(vs: &VersionStore, r: &Record) -> usize {
    let w = vs.walk();
    let (mut n, mut at) = (0, r.next);
    while let Some(head) = w.read(at, &mut Vec::new()).unwrap() {
        n += 1;
        at = head.next;
    }
    n
}

fn mutate(rng: &mut Rng, from: &[u8]) -> Vec<u8> {
    let mut to = from.to_vec();
    for _ in 0..rng.between(1, 2) {
        let at = rng.below(to.len() as u64 + 1) as usize;
        let cut = rng.below(6).min((to.len() - at) as u64) as usize;
        let new: Vec<u8> = (0..rng.below(8)).map(|_| rng.below(256) as u8).collect();
        to.splice(at..at + cut, new);
    }
    if to.len() > 200 {
        to.truncate(60);
    }
    to
}

pub(crate) type Image = Vec<Option<Vec<u8>>>;

/// A row changed; by rebasing the version of an earlier change of the same transaction, if
/// the payload and delete-mark before are given.
pub(crate) struct Change {
    row: usize,
    rebased: Option<(Vec<u8>, bool)>,
}

/// One thread, many transactions, everything remembered.
pub(crate) struct World {
    pub sys: TxnSystem,
    pub vs: VersionStore,
    pub rows: Vec<Record>,
    /// What is committed now.
    committed: Image,
    /// Active transactions and what they changed, in order.
    pub active: BTreeMap<TxnId, Vec<Change>>,
    pub snapshots: Vec<(Snapshot, Image)>,
}

impl World {
    /// Everybody ends and nobody looks any more: everything goes. What is left.
    pub fn finish(&mut self, rng: &mut Rng) -> VersionStats {
        while !self.active.is_empty() {
            self.end(rng);
        }
        self.check();
        self.snapshots.clear();
        self.sys.refresh();
        self.vs.retire_down_to(&self.sys, 0);
        self.vs.sweep_old(&self.sys);
        self.vs.stats()
    }

    pub fn new(rows: usize, rng: &mut Rng, vs: VersionStore) -> World {
        let payloads: Vec<Vec<u8>> = (0..rows)
            .map(|_| {
                (0..rng.between(10, 80))
                    .map(|_| rng.below(256) as u8)
                    .collect()
            })
            .collect();
        World {
            sys: TxnSystem::with_ring_bits(TxnId(1), Csn(1), 7),
            vs,
            committed: payloads.iter().cloned().map(Some).collect(),
            rows: payloads
                .into_iter()
                .map(|payload| Record {
                    payload,
                    ..Record::default()
                })
                .collect(),
            active: BTreeMap::new(),
            snapshots: Vec::new(),
        }
    }

    fn change(&mut self, rng: &mut Rng, txn: TxnId) {
        let row = rng.below(self.rows.len() as u64) as usize;
        let holder = self.rows[row].txn;
        if holder != txn && self.active.contains_key(&holder) {
            return;
        }
        let deleted = rng.chance(1, 6);
        let payload = if deleted {
            self.rows[row].payload.clone()
        } else {
            mutate(rng, &self.rows[row].payload)
        };
        let r = &mut self.rows[row];
        let mut rebased = None;
        if holder == txn && rng.chance(2, 3) {
            let Ok(next) = self.vs.walk().rebase(r.next, &r.payload, &payload) else {
                return;
            };
            r.next = next;
            rebased = Some((core::mem::replace(&mut r.payload, payload), r.deleted));
            r.deleted = deleted;
        } else {
            let prune = rng.chance(3, 4);
            update(&self.sys, &self.vs, r, txn, payload, deleted, prune);
        }
        let change = Change { row, rebased };
        self.active.get_mut(&txn).unwrap().push(change);
    }

    pub fn end(&mut self, rng: &mut Rng) {
        let at = rng.below(self.active.len() as u64) as usize;
        let txn = *self.active.keys().nth(at).unwrap();
        let changes = self.active.remove(&txn).unwrap();
        if rng.chance(1, 5) {
            for change in changes.into_iter().rev() {
                let r = &mut self.rows[change.row];
                match change.rebased {
                    None => undo(&self.vs, r),
                    Some((before, deleted)) => {
                        let w = self.vs.walk();
                        let mut next = w.rebase(r.next, &r.payload, &before);
                        while next.is_err() {
                            next = w.rebase(r.next, &r.payload, &before);
                        }
                        r.next = next.unwrap();
                        (r.payload, r.deleted) = (before, deleted);
                    }
                }
            }
            self.sys.rolled_back(txn);
            return;
        }
        for Change { row, .. } in changes {
            let r = &self.rows[row];
            self.committed[row] = (!r.deleted).then(|| r.payload.clone());
        }
        self.sys.commit(txn);
    }

    pub fn step(&mut self, rng: &mut Rng) {
        match rng.below(100) {
            0..=9 if self.active.len() < 5 => {
                let txn = self.sys.begin(Owner::new(1, 0));
                self.active.insert(txn, Vec::new());
            }
            10..=69 if !self.active.is_empty() => {
                let at = rng.below(self.active.len() as u64) as usize;
                let txn = *self.active.keys().nth(at).unwrap();
                self.change(rng, txn);
            }
            70..=84 if !self.active.is_empty() => self.end(rng),
            85..=87 if self.snapshots.len() < 5 => {
                let s = self.sys.open_snapshot(SnapshotInfo::default());
                self.snapshots.push((s, self.committed.clone()));
            }
            88 if !self.snapshots.is_empty() => {
                let at = rng.below(self.snapshots.len() as u64) as usize;
                self.snapshots.swap_remove(at);
            }
            89..=92 => {
                self.vs.retire_down_to(&self.sys, 0);
            }
            93..=94 => {
                self.vs.sweep_old(&self.sys);
            }
            95..=96 => self.sys.refresh(),
            97 => {
                let row = rng.below(self.rows.len() as u64) as usize;
                let r = &mut self.rows[row];
                r.next = self.vs.walk().prune(&self.sys, r.next, &r.payload).0;
            }
            _ => {}
        }
    }

    pub fn check(&self) {
        for (s, image) in &self.snapshots {
            for (row, expected) in image.iter().enumerate() {
                let got = read(&self.sys, &self.vs, &self.rows[row], s);
                assert_eq!(got, *expected, "row {row} for {s:?}");
            }
        }
    }
}

#[test]
fn every_snapshot_reads_the_same_through_all_cleaning() {
    for seed in 0..30 {
        let mut rng = Rng::new(seed);
        let mut w = World::new(6, &mut rng, store());
        for i in 0..3000 {
            w.step(&mut rng);
            if i % 4 == 0 {
                w.check();
            }
        }
        let s = w.finish(&mut rng);
        assert_eq!(
            (s.young_bytes, s.old_bytes, s.old_versions),
            (0, 0, 0),
            "{s:?}"
        );
        assert!(s.made > 500 && s.pruned > 50 && s.moved > 50, "{s:?}");
        assert!(s.folded > 0, "{s:?}");
    }
}

#[test]
fn chains_are_as_long_as_there_are_snapshots_between() {
    let sys = TxnSystem::new(TxnId(1), Csn(1));
    let vs = store();
    let mut rng = Rng::new(3);
    let mut r = Record {
        payload: vec![7; 100],
        ..Record::default()
    };
    let mut open = Vec::new();
    for i in 0..400 {
        let txn = sys.begin(Owner::new(1, 0));
        let payload = mutate(&mut rng, &r.payload);
        sys.refresh();
        update(&sys, &vs, &mut r, txn, payload, false, true);
        sys.commit(txn);
        if i % 100 == 50 {
            open.push((
                sys.open_snapshot(SnapshotInfo::default()),
                r.payload.clone(),
            ));
        }
        assert!(chain_len(&vs, &r) <= open.len() + 1);
    }
    for (s, payload) in &open {
        assert_eq!(read(&sys, &vs, &r, s).as_ref(), Some(payload));
    }
    // Closing one in the middle shortens the chain at the next update.
    open.remove(1);
    sys.refresh();
    let (next, pruned) = vs.walk().prune(&sys, r.next, &r.payload);
    r.next = next;
    assert_eq!((pruned.kept, chain_len(&vs, &r)), (3, 3));
    for (s, payload) in &open {
        assert_eq!(read(&sys, &vs, &r, s).as_ref(), Some(payload));
    }
}

/// A row with so many versions, each needed by one snapshot; no snapshot has ended of late.
fn row_of_many_snapshots(
    sys: &TxnSystem,
    vs: &VersionStore,
    snapshots: usize,
) -> (Record, Vec<(Snapshot, Vec<u8>)>) {
    let mut rng = Rng::new(6);
    let mut r = Record {
        payload: vec![7; 100],
        ..Record::default()
    };
    let mut open = Vec::new();
    for _ in 0..snapshots {
        let txn = sys.begin(Owner::new(1, 0));
        let payload = mutate(&mut rng, &r.payload);
        update(sys, vs, &mut r, txn, payload, false, false);
        sys.commit(txn);
        let snapshot = sys.open_snapshot(SnapshotInfo::default());
        open.push((snapshot, r.payload.clone()));
    }
    sys.settle();
    (r, open)
}

/// Updates a row and says how many versions the updates have looked at.
fn looked_at_in(updates: u32, sys: &TxnSystem, vs: &VersionStore, r: &mut Record) -> u32 {
    let mut rng = Rng::new(7);
    let mut looked = 0;
    for _ in 0..updates {
        sys.refresh();
        let (next, pruned) = vs.walk().prune_for_update(sys, r.next, &r.payload);
        looked += pruned.dropped + pruned.kept;
        r.next = next;
        let txn = sys.begin(Owner::new(1, 0));
        let payload = mutate(&mut rng, &r.payload);
        update(sys, vs, r, txn, payload, false, false);
        sys.commit(txn);
    }
    looked
}

/// Ten times the snapshots, and so ten times the versions of each row: an update looks at hardly
/// more of them.
#[test]
fn an_update_looks_at_as_many_versions_however_many_snapshots_there_are() {
    const UPDATES: u32 = 4000;
    let looked = [100, 1000].map(|snapshots| {
        let (sys, vs) = (TxnSystem::new(TxnId(1), Csn(1)), store());
        let (mut r, open) = row_of_many_snapshots(&sys, &vs, snapshots);
        let looked = looked_at_in(UPDATES, &sys, &vs, &mut r);
        for (s, payload) in &open {
            assert_eq!(read(&sys, &vs, &r, s).as_ref(), Some(payload));
        }
        looked
    });
    assert!(looked[1] < looked[0] * 3 / 2, "{looked:?}");
    assert!(looked[1] < UPDATES * 4, "{looked:?}");
}

/// What old snapshots needed goes soon after they have ended, though most updates see no reason to
/// look so far.
#[test]
fn updates_find_what_ended_behind_settled_versions() {
    let (sys, vs) = (TxnSystem::new(TxnId(1), Csn(1)), store());
    let (mut r, mut open) = row_of_many_snapshots(&sys, &vs, 200);
    // Every other one; the newest stays.
    let mut nth = 0;
    open.retain(|_| {
        nth += 1;
        nth % 2 == 0
    });
    sys.refresh();
    let just_ended = looked_at_in(200, &sys, &vs, &mut r);
    assert!(just_ended > 1000, "{just_ended}");
    assert!(chain_len(&vs, &r) < 130, "{}", chain_len(&vs, &r));
    open.drain(..50);
    sys.settle();
    looked_at_in(8000, &sys, &vs, &mut r);
    assert!(chain_len(&vs, &r) <= 52, "{}", chain_len(&vs, &r));
    for (s, payload) in &open {
        assert_eq!(read(&sys, &vs, &r, s).as_ref(), Some(payload));
    }
}

/// What is said of the lengths of chains is true although few updates see the end of one.
#[test]
fn long_chains_are_counted_by_those_who_look() {
    for (snapshots, expected) in [(0, 1..=2), (2, 2..=4), (40, 40..=42), (200, 64..=64)] {
        let (sys, vs) = (TxnSystem::new(TxnId(1), Csn(1)), store());
        let (mut r, _open) = row_of_many_snapshots(&sys, &vs, snapshots);
        let mut rng = Rng::new(8);
        for _ in 0..5000 {
            sys.refresh();
            let (next, pruned) = vs.walk().prune_for_update(&sys, r.next, &r.payload);
            vs.count_chain(&pruned);
            r.next = next;
            let txn = sys.begin(Owner::new(1, 0));
            let payload = mutate(&mut rng, &r.payload);
            update(&sys, &vs, &mut r, txn, payload, false, false);
            sys.commit(txn);
        }
        let p99 = vs.stats().chain_p99;
        assert!(expected.contains(&p99), "{snapshots} snapshots: {p99}");
    }
}

#[test]
fn with_many_snapshots_most_updates_look_at_few_versions() {
    let sys = TxnSystem::new(TxnId(1), Csn(1));
    let vs = store();
    let mut rng = Rng::new(5);
    let mut r = Record {
        payload: vec![7; 100],
        ..Record::default()
    };
    let mut open = Vec::new();
    let mut partly = 0;
    for i in 0..2000 {
        sys.refresh();
        let (next, pruned) = vs.walk().prune_for_update(&sys, r.next, &r.payload);
        r.next = next;
        partly += u32::from(pruned.partly);
        let txn = sys.begin(Owner::new(1, 0));
        let payload = mutate(&mut rng, &r.payload);
        update(&sys, &vs, &mut r, txn, payload, false, false);
        sys.commit(txn);
        if i % 40 == 20 {
            let snapshot = sys.open_snapshot(SnapshotInfo::default());
            open.push((snapshot, r.payload.clone()));
        }
        // What nobody needs stands in front of what somebody does.
        assert!(chain_len(&vs, &r) <= open.len() + 1);
    }
    assert!((1000..1900).contains(&partly), "{partly}");
    for (s, payload) in &open {
        assert_eq!(read(&sys, &vs, &r, s).as_ref(), Some(payload));
    }
    // What ends behind is found by the next update that looks at the whole chain.
    open.truncate(1);
    sys.refresh();
    for _ in 0..500 {
        let (next, _) = vs.walk().prune_for_update(&sys, r.next, &r.payload);
        r.next = next;
        let txn = sys.begin(Owner::new(1, 0));
        let payload = mutate(&mut rng, &r.payload);
        update(&sys, &vs, &mut r, txn, payload, false, false);
        sys.commit(txn);
        sys.refresh();
    }
    assert!(chain_len(&vs, &r) <= 2);
    let (snapshot, payload) = &open[0];
    assert_eq!(read(&sys, &vs, &r, snapshot).as_ref(), Some(payload));
}

#[test]
fn history_follows_distinct_rows_not_updates() {
    const ROWS: usize = 3000;
    const COLUMN: usize = 100;
    let sys = TxnSystem::new(TxnId(1), Csn(1));
    let vs = store();
    let mut rng = Rng::new(11);
    let mut rows: Vec<Record> = (0..ROWS)
        .map(|_| Record {
            payload: vec![1; 180],
            ..Record::default()
        })
        .collect();
    let old = sys.open_snapshot(SnapshotInfo::default());
    let bound = (1 << 20) + 16 * 256 * 1024 + ROWS * (COLUMN + 48) * 3 / 2;
    for i in 0..20 * ROWS {
        let txn = sys.begin(Owner::new(1, 0));
        let r = &mut rows[rng.below(ROWS as u64) as usize];
        let mut payload = r.payload.clone();
        rng.fill(&mut payload[40..40 + COLUMN]);
        update(&sys, &vs, r, txn, payload, false, true);
        sys.commit(txn);
        if vs.needs_retire() {
            vs.retire(&sys);
        }
        if i % 5000 == 0 {
            assert!(vs.bytes() <= bound as u64, "{i}: {:?}", vs.stats());
        }
    }
    vs.retire_down_to(&sys, 0);
    vs.sweep_old(&sys);
    let s = vs.stats();
    assert_eq!(s.old_versions, ROWS as u64, "{s:?}");
    assert!(
        s.old_bytes <= (ROWS * (COLUMN + 48) * 3 / 2) as u64,
        "{s:?}"
    );
    for r in &rows {
        assert_eq!(read(&sys, &vs, r, &old), Some(vec![1; 180]));
    }
    drop(old);
    vs.sweep_old(&sys);
    assert_eq!(vs.bytes(), 0);
    assert!(vs.count.made.get() >= 20 * ROWS as u64);
}

/// A shutdown waits for no look at all that is kept, and what is kept stays readable.
#[test]
fn winding_up_leaves_history_where_it_is() {
    let sys = TxnSystem::new(TxnId(1), Csn(1));
    let vs = store();
    let old = sys.open_snapshot(SnapshotInfo::default());
    let mut rows: Vec<Record> = (0..500u32)
        .map(|_| Record {
            payload: vec![1; 180],
            ..Record::default()
        })
        .collect();
    let mut update_all = || {
        for r in &mut rows {
            let txn = sys.begin(Owner::new(1, 0));
            let payload = vec![txn.get() as u8; 180];
            update(&sys, &vs, r, txn, payload, false, true);
            sys.commit(txn);
        }
    };
    update_all();
    assert!(vs.retire_down_to(&sys, 0).moved > 0);
    assert!(vs.sweep_old(&sys).seen > 0);
    update_all();
    vs.wind_up();
    assert_eq!(vs.retire_down_to(&sys, 0).segments, 0);
    assert_eq!(vs.sweep_old(&sys).seen, 0);
    for r in &rows {
        assert_eq!(read(&sys, &vs, r, &old), Some(vec![1; 180]));
    }
}

#[test]
fn a_segment_nobody_needs_is_freed_unread() {
    let sys = TxnSystem::new(TxnId(1), Csn(1));
    let vs = store();
    let mut r = Record {
        payload: vec![0; 1000],
        ..Record::default()
    };
    while vs.young_bytes() < 4 << 20 {
        let txn = sys.begin(Owner::new(1, 0));
        let payload = vec![txn.get() as u8; 1000];
        update(&sys, &vs, &mut r, txn, payload, false, false);
        sys.commit(txn);
    }
    assert!(vs.needs_retire());
    sys.refresh();
    let stats = vs.retire(&sys);
    assert_eq!(stats.segments, stats.unread);
    assert!(stats.segments >= 11 && stats.moved == 0, "{stats:?}");
    assert!(!vs.needs_retire());
    vs.retire_down_to(&sys, 0);
    assert!(!r.next.is_none());
    let (start, pruned) = vs.walk().prune(&sys, r.next, &r.payload);
    assert!(start.is_none(), "nothing is left to name");
    assert_eq!((pruned.dropped, pruned.kept), (0, 0));
}

/// Accounts with a constant sum in every committed state, with threads for everything.
pub(crate) struct Bank {
    sys: TxnSystem,
    vs: VersionStore,
    /// The mutex is the page latch. The txid in the header is the row lock.
    accounts: Vec<Mutex<Record>>,
    stop: AtomicBool,
}

const EACH: i64 = 1000;

fn balance(payload: &[u8]) -> i64 {
    let at = payload.len() / 2;
    i64::from_le_bytes(payload[at - 4..at + 4].try_into().unwrap())
}

fn with_balance(rng: &mut Rng, v: i64) -> Vec<u8> {
    let half = rng.between(4, 40) as usize;
    let mut p = vec![rng.below(256) as u8; 2 * half];
    p[half - 4..half + 4].copy_from_slice(&v.to_le_bytes());
    p
}

impl Bank {
    /// False: a row was locked, and the transaction rolled back.
    fn transfer(&self, rng: &mut Rng) -> bool {
        let txn = self.sys.begin(Owner::new(1, 0));
        let n = self.accounts.len() as u64;
        let mut done = Vec::new();
        let amount = rng.below(100) as i64;
        let mut ok = true;
        for sign in [1, -1] {
            let row = rng.below(n) as usize;
            let mut r = self.accounts[row].lock();
            if r.txn != txn && self.sys.is_active(r.txn) {
                ok = false;
                break;
            }
            let payload = with_balance(rng, balance(&r.payload) + sign * amount);
            update(&self.sys, &self.vs, &mut r, txn, payload, false, true);
            drop(r);
            done.push(row);
            if rng.chance(1, 8) {
                thread::yield_now();
            }
        }
        if ok && rng.chance(9, 10) {
            self.sys.commit(txn);
            return true;
        }
        for row in done.into_iter().rev() {
            undo(&self.vs, &mut self.accounts[row].lock());
        }
        self.sys.rolled_back(txn);
        false
    }

    fn sum(&self, s: &Snapshot, rng: &mut Rng) -> i64 {
        let mut sum = 0;
        for a in &self.accounts {
            if rng.chance(1, 16) {
                thread::yield_now();
            }
            let r = a.lock();
            let p = read(&self.sys, &self.vs, &r, s).expect("no account is ever gone");
            sum += balance(&p);
        }
        sum
    }
}

#[test]
fn sums_hold_for_every_snapshot_while_segments_retire() {
    sums_hold(store());
}

pub(crate) fn sums_hold(vs: VersionStore) {
    let mut rng = Rng::new(5);
    let accounts = (0..24)
        .map(|_| {
            Mutex::new(Record {
                payload: with_balance(&mut rng, EACH),
                ..Record::default()
            })
        })
        .collect();
    let bank = Arc::new(Bank {
        sys: TxnSystem::with_ring_bits(TxnId(1), Csn(1), 9),
        vs,
        accounts,
        stop: AtomicBool::new(false),
    });
    let total = EACH * 24;
    let spawn = |name: &str, seed: u64, f: fn(&Bank, &mut Rng, i64)| {
        let bank = bank.clone();
        thread::spawn(name, move || f(&bank, &mut Rng::new(seed), total))
    };
    let mut helpers = Vec::new();
    for n in 0..3 {
        helpers.push(spawn("reader", 10 + n, |bank, rng, total| {
            while !bank.stop.load(Ordering::SeqCst) {
                let s = bank.sys.open_snapshot(SnapshotInfo::default());
                for _ in 0..rng.between(1, 30) {
                    assert_eq!(bank.sum(&s, rng), total, "{s:?}");
                }
            }
        }));
    }
    helpers.push(spawn("retire", 20, |bank, rng, _| {
        while !bank.stop.load(Ordering::SeqCst) {
            bank.vs.retire_down_to(&bank.sys, 0);
            if rng.chance(1, 4) {
                bank.vs.sweep_old(&bank.sys);
            }
            thread::sleep_us(rng.below(2000));
        }
    }));
    let writers: Vec<_> = (0..4)
        .map(|n| {
            let bank = bank.clone();
            thread::spawn("writer", move || {
                let mut rng = Rng::new(n);
                (0..4000).filter(|_| bank.transfer(&mut rng)).count()
            })
        })
        .collect();
    let committed: usize = writers.into_iter().map(|h| h.join().unwrap()).sum();
    bank.stop.store(true, Ordering::SeqCst);
    helpers.into_iter().for_each(|h| h.join().unwrap());
    assert!(committed > 1000, "{committed}");
    let s = bank.sys.open_snapshot(SnapshotInfo::default());
    assert_eq!(bank.sum(&s, &mut rng), total);
    drop(s);
    bank.sys.refresh();
    bank.vs.retire_down_to(&bank.sys, 0);
    bank.vs.sweep_old(&bank.sys);
    assert_eq!(bank.vs.bytes(), 0, "{:?}", bank.vs.stats());
    let distinct: BTreeSet<u64> = bank.accounts.iter().map(|a| a.lock().txn.get()).collect();
    assert!(distinct.len() > 1);
}
