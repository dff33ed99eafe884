//! Ids, snapshots and bounds against a model that keeps everything, over random schedules
//! with a ring of 64 words, so that it wraps every few steps; and with threads.

use std::collections::{BTreeMap, BTreeSet};

use ferrite_lock::Owner;
use ferrite_sync::atomic::{AtomicBool, AtomicU64, Ordering};
use ferrite_sync::random::Rng;
use ferrite_sync::{thread, Arc, Mutex};
use ferrite_types::{Csn, TxnId};

use crate::long_running::LongRunningState;
use crate::status::Word;
use crate::{Snapshot, SnapshotInfo, Status, TxnSystem};

fn system(bits: u32) -> TxnSystem {
    TxnSystem::with_ring_bits(TxnId(1), Csn(1), bits)
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum End {
    Active,
    Prepared,
    Committed(u64),
    Aborted,
}

/// What a snapshot must see: exactly those committed before it was opened.
struct Seen {
    snapshot: Snapshot,
    own: TxnId,
    committed: BTreeSet<u64>,
    /// Rolled back before: no copy that the reader finds bears these ids.
    gone: BTreeSet<u64>,
}

#[derive(Default)]
struct Model {
    ends: BTreeMap<u64, End>,
    committed: BTreeSet<u64>,
    snapshots: Vec<Seen>,
}

impl Model {
    fn active(&self) -> Vec<u64> {
        let running = |e: &End| matches!(e, End::Active | End::Prepared);
        let ends = self.ends.iter();
        ends.filter(|(_, e)| running(e)).map(|(t, _)| *t).collect()
    }

    fn sees(&self, s: &Seen, txn: u64) -> bool {
        txn == 0 || txn == s.own.get() || s.committed.contains(&txn)
    }

    /// Ids that records may bear.
    fn borne(&self) -> Vec<u64> {
        let ends = self.ends.iter();
        ends.filter(|(_, e)| **e != End::Aborted)
            .map(|(t, _)| *t)
            .collect()
    }

    fn needed(&self, begin: u64, end: u64) -> bool {
        if !self.committed.contains(&end) {
            return true;
        }
        let apart =
            |s: &Seen| (begin == 0 || s.committed.contains(&begin)) && !s.committed.contains(&end);
        self.snapshots.iter().any(apart)
    }

    fn all_see(&self, txn: u64) -> bool {
        let all = |s: &Seen| s.committed.contains(&txn);
        self.committed.contains(&txn) && self.snapshots.iter().all(all)
    }
}

fn step(sys: &TxnSystem, m: &mut Model, rng: &mut Rng) {
    let active = m.active();
    let some = |rng: &mut Rng| TxnId(active[rng.below(active.len() as u64) as usize]);
    match rng.below(16) {
        0..=4 => {
            let txn = sys.begin(Owner::new(1, 0));
            m.ends.insert(txn.get(), End::Active);
        }
        5..=9 if !active.is_empty() => {
            let txn = some(rng);
            // Long runners: those whose id says so end seldom.
            if txn.get() % 50 == 0 && !rng.chance(1, 40) {
                return;
            }
            let csn = sys.commit(txn);
            m.ends.insert(txn.get(), End::Committed(csn.get()));
            m.committed.insert(txn.get());
        }
        10 if !active.is_empty() => {
            let txn = some(rng);
            sys.rolled_back(txn);
            m.ends.insert(txn.get(), End::Aborted);
        }
        11 if !active.is_empty() => {
            let txn = some(rng);
            if m.ends[&txn.get()] == End::Active {
                sys.prepare(txn);
                m.ends.insert(txn.get(), End::Prepared);
            }
        }
        12 | 13 if m.snapshots.len() < 6 => {
            let own = if active.is_empty() || rng.chance(1, 2) {
                TxnId(0)
            } else {
                some(rng)
            };
            let snapshot = sys.open_snapshot(SnapshotInfo::default());
            let committed = m.committed.clone();
            let aborted = m.ends.iter().filter(|(_, e)| **e == End::Aborted);
            let gone = aborted.map(|(t, _)| *t).collect();
            m.snapshots.push(Seen {
                snapshot,
                own,
                committed,
                gone,
            });
        }
        14 if !m.snapshots.is_empty() && rng.chance(1, 3) => {
            let at = rng.below(m.snapshots.len() as u64) as usize;
            m.snapshots.swap_remove(at);
        }
        15 => sys.refresh(),
        _ => {}
    }
}

fn check(sys: &TxnSystem, m: &Model, rng: &mut Rng, exact: bool) {
    let borne = m.borne();
    for s in &m.snapshots {
        for txn in borne.iter().rev().take(300).chain(borne.iter().take(20)) {
            let got = sys.sees(&s.snapshot, TxnId(*txn), s.own);
            assert_eq!(got, m.sees(s, *txn), "{:?} txn {txn}", s.snapshot);
        }
        let (last, first) = (m.ends.keys().rev().take(300), m.ends.keys().take(20));
        let long = m.ends.keys().filter(|txn| **txn % 50 == 0);
        for txn in last
            .chain(first)
            .chain(long)
            .filter(|t| !s.gone.contains(t))
        {
            let got = sys.sees_copy(&s.snapshot, TxnId(*txn), s.own);
            let sees = m.sees(s, *txn);
            assert!(!got || sees, "a copy by {txn}, {:?}", m.ends[txn]);
        }
    }
    for txn in borne.iter().rev().take(100) {
        let got = sys.visible_to_all(TxnId(*txn));
        let all = m.all_see(*txn);
        assert!(!got || all, "txn {txn} is not seen by all");
        assert!(!exact || got == all, "txn {txn} is seen by all");
        match (m.ends[txn], sys.status(TxnId(*txn))) {
            (End::Active, Status::Active) | (End::Prepared, Status::Prepared) => {}
            (End::Committed(c), Status::Committed(csn)) => {
                assert!(csn.get() == c || csn.get() == 0);
            }
            other => panic!("txn {txn}: {other:?}"),
        }
    }
    for _ in 0..60 {
        if borne.is_empty() {
            break;
        }
        let recent = borne.len().saturating_sub(200) as u64;
        let mut pick = || borne[rng.between(recent, borne.len() as u64 - 1) as usize];
        let (a, b) = (pick(), pick());
        let csn = |t: u64| match m.ends[&t] {
            End::Committed(c) => c,
            _ => u64::MAX,
        };
        let (begin, end) = if csn(a) < csn(b) { (a, b) } else { (0, a) };
        let got = sys.version_needed(TxnId(begin), TxnId(end));
        let needed = m.needed(begin, end);
        assert!(got || !needed, "{begin}..{end} is needed");
        assert!(!exact || got == needed, "{begin}..{end} is not needed");
    }
}

#[test]
fn snapshots_and_bounds_agree_with_a_model_over_many_wraps() {
    for seed in 0..12 {
        let mut rng = Rng::new(seed);
        let sys = system(6);
        let mut m = Model::default();
        for i in 0..4000 {
            step(&sys, &mut m, &mut rng);
            if i % 16 == 0 {
                let exact = rng.chance(1, 2);
                if exact {
                    sys.refresh();
                }
                check(&sys, &m, &mut rng, exact);
            }
            let active = m.active();
            if i % 7 == 0 {
                let oldest = active.first().copied().unwrap_or(sys.next_txn().get());
                assert_eq!(sys.oldest_active().get(), oldest);
                assert_eq!(sys.active_count(), active.len());
                if active.is_empty() {
                    assert!(!sys.is_any_recent_active());
                }
            }
        }
        assert!(sys.next_txn().get() > 64 * 8);
        // The end: nothing is left behind.
        for txn in m.active() {
            assert!(sys.owner_of(TxnId(txn)).is_some());
            sys.commit(TxnId(txn));
            assert!(sys.owner_of(TxnId(txn)).is_none());
        }
        m.snapshots.clear();
        sys.refresh();
        assert!(sys.long_running.is_empty());
        assert_eq!(sys.purge_floor(), sys.last_csn());
        assert_eq!(sys.all_visible_below(), sys.next_txn());
    }
}

#[test]
fn restored_transactions_are_invisible_until_they_commit() {
    let sys = TxnSystem::with_ring_bits(TxnId(1000), Csn(500), 6);
    let (loser, prepared) = (Owner::new(0, 0), Owner::new(0, 0));
    sys.restore(TxnId(20), loser, false);
    sys.restore(TxnId(30), prepared, true);
    assert_eq!(sys.oldest_active(), TxnId(20));
    let none = TxnId(0);
    let early = sys.open_snapshot(SnapshotInfo::default());
    for txn in [19, 21, 29, 31, 999] {
        assert!(sys.sees(&early, TxnId(txn), none) && sys.visible_to_all(TxnId(txn)));
        assert_eq!(sys.status(TxnId(txn)), Status::Committed(Csn(0)));
    }
    for txn in [20, 30, 1000] {
        assert!(!sys.sees(&early, TxnId(txn), none));
    }
    assert!(sys.version_needed(none, TxnId(30)));
    assert_eq!(sys.commit(TxnId(30)), Csn(500));
    sys.rolled_back(TxnId(20));
    // Of who is rolled back nothing is known any more: no record bears its id, but a copy may.
    assert!(!sys.sees_copy(&early, TxnId(20), none));
    assert!(sys.sees_copy(&early, TxnId(19), none));
    assert_eq!(sys.oldest_active(), TxnId(1000));
    let late = sys.open_snapshot(SnapshotInfo::default());
    assert!(!sys.sees(&early, TxnId(30), none) && sys.sees(&late, TxnId(30), none));
    sys.refresh();
    assert!(sys.version_needed(none, TxnId(30)) && !sys.visible_to_all(TxnId(30)));
    drop(early);
    sys.refresh();
    assert!(!sys.version_needed(none, TxnId(30)) && sys.visible_to_all(TxnId(30)));
    assert!(sys.long_running.is_empty());
    assert!(sys.sees(&late, TxnId(30), none));
}

#[test]
fn a_reader_waits_out_the_moment_between_number_and_word() {
    let sys = Arc::new(system(6));
    let txn = sys.begin(Owner::new(1, 0));
    // The steps of a commit, one by one.
    assert!(sys.ring.change(txn, Word::Active, Word::Committing));
    assert!(sys.is_active(txn) && sys.status(txn) == Status::Committing);
    let before = sys.open_snapshot(SnapshotInfo::default());
    let csn = sys.take_csn();
    let after = sys.open_snapshot(SnapshotInfo::default());
    let answered = Arc::new(AtomicBool::new(false));
    let ask = {
        let (sys, answered) = (sys.clone(), answered.clone());
        thread::spawn("reader", move || {
            let seen = [&before, &after].map(|s| sys.sees(s, txn, TxnId(0)));
            let needed = sys.version_needed(TxnId(0), txn);
            answered.store(true, Ordering::SeqCst);
            drop((before, after));
            (seen, needed)
        })
    };
    thread::sleep_ms(20);
    assert!(!answered.load(Ordering::SeqCst), "answered too early");
    sys.ring.set(txn, Word::Committed(csn));
    assert_eq!(ask.join().unwrap(), ([false, true], true));
}

#[test]
fn a_snapshot_can_be_ended_and_shown() {
    let sys = system(6);
    let a = sys.open_snapshot(SnapshotInfo {
        thread_id: 4,
        long: true,
    });
    for _ in 0..10 {
        let txn = sys.begin(Owner::new(1, 0));
        sys.commit(txn);
    }
    let b = sys.open_snapshot(SnapshotInfo::default());
    let mut shown = Vec::new();
    sys.each_snapshot(&mut |v| shown.push((v.info.thread_id, v.csn.get())));
    assert_eq!(shown, [(4, 0), (0, 10)]);
    assert_eq!(sys.expire_oldest().unwrap().info.thread_id, 4);
    assert!(a.is_expired() && !b.is_expired());
    assert_eq!(sys.purge_floor(), Csn(10));
    // It may still be asked, without hanging, after the ring has wrapped.
    for _ in 0..200 {
        let txn = sys.begin(Owner::new(1, 0));
        sys.commit(txn);
    }
    let _ = sys.sees(&a, TxnId(5), TxnId(0));
    drop((a, b));
    assert!(sys.expire_oldest().is_none());
}

/// Every transaction appends its id to every register; readers must find the registers
/// ending with the same id.
struct Registers {
    sys: TxnSystem,
    writer: Mutex<()>,
    all: Vec<Mutex<Vec<u64>>>,
    stop: AtomicBool,
    last_committed: AtomicU64,
}

impl Registers {
    fn write(&self, rng: &mut Rng) {
        let txn = self.sys.begin(Owner::new(1, 0));
        if rng.chance(1, 4) {
            thread::yield_now();
        }
        if rng.chance(1, 8) {
            self.sys.rolled_back(txn);
            return;
        }
        let row_locks = self.writer.lock();
        for r in &self.all {
            let mut r = r.lock();
            // Prune: state i began with entry i and ended with entry i + 1.
            let keep: Vec<bool> = (0..r.len())
                .map(|i| match r.get(i + 1) {
                    Some(end) => self.sys.version_needed(TxnId(r[i]), TxnId(*end)),
                    None => true,
                })
                .collect();
            let mut keep = keep.into_iter();
            r.retain(|_| keep.next().unwrap());
            r.push(txn.get());
        }
        if rng.chance(1, 4) {
            self.sys.prepare(txn);
        }
        self.sys.commit(txn);
        self.last_committed.store(txn.get(), Ordering::SeqCst);
        drop(row_locks);
    }

    fn read(&self, rng: &mut Rng) -> u64 {
        let before = self.last_committed.load(Ordering::SeqCst);
        let s = self.sys.open_snapshot(SnapshotInfo::default());
        assert!(
            before == 0 || self.sys.sees(&s, TxnId(before), TxnId(0)),
            "a commit that had returned is not seen"
        );
        let mut found = None;
        for _ in 0..rng.between(1, 5) {
            for r in &self.all {
                if rng.chance(1, 8) {
                    thread::yield_now();
                }
                let r = r.lock();
                let newest = r.iter().rev();
                let mut visible = newest.filter(|t| self.sys.sees(&s, TxnId(**t), TxnId(0)));
                let got = *visible.next().expect("its version was pruned");
                assert_eq!(*found.get_or_insert(got), got, "half a transaction: {s:?}");
            }
        }
        found.unwrap()
    }
}

#[test]
fn threads_see_whole_transactions_and_lose_no_version() {
    let w = Arc::new(Registers {
        sys: system(8),
        writer: Mutex::new(()),
        all: (0..4).map(|_| Mutex::new(vec![0])).collect(),
        stop: AtomicBool::new(false),
        last_committed: AtomicU64::new(0),
    });
    let mut handles = Vec::new();
    for n in 0..4 {
        let w = w.clone();
        handles.push(thread::spawn("writer", move || {
            let mut rng = Rng::new(n);
            for _ in 0..6000 {
                w.write(&mut rng);
            }
        }));
    }
    let mut readers = Vec::new();
    for n in 0..4 {
        let w = w.clone();
        readers.push(thread::spawn("reader", move || {
            let mut rng = Rng::new(50 + n);
            let mut reads = 0;
            while !w.stop.load(Ordering::SeqCst) {
                w.read(&mut rng);
                reads += 1;
            }
            reads
        }));
    }
    handles.into_iter().for_each(|h| h.join().unwrap());
    w.stop.store(true, Ordering::SeqCst);
    let reads: u32 = readers.into_iter().map(|h| h.join().unwrap()).sum();
    assert!(reads > 100, "{reads}");
    w.sys.refresh();
    assert_eq!(w.sys.active_count(), 0);
    assert_eq!(w.sys.purge_floor(), w.sys.last_csn());
    assert!(w.sys.long_running.is_empty());
    w.write(&mut Rng::new(1));
    assert!(
        w.all[0].lock().len() <= 3,
        "pruning leaves the last states only"
    );
}

/// While no snapshot comes or goes the list is the same one with another bound; when one does, a
/// long list is not put together again at once.
#[test]
fn a_list_of_many_snapshots_is_not_made_again_for_nothing() {
    let sys = TxnSystem::new(TxnId(1), Csn(1));
    let mut open: Vec<_> = (0..10_000)
        .map(|_| {
            sys.commit(sys.begin(Owner::new(1, 0)));
            sys.open_snapshot(SnapshotInfo::default())
        })
        .collect();
    sys.refresh();
    let place = sys.list_place();
    for _ in 0..100 {
        let before = sys.begin(Owner::new(1, 0));
        sys.commit(before);
        let txn = sys.begin(Owner::new(1, 0));
        sys.commit(txn);
        sys.refresh();
        assert!(!sys.version_needed(before, txn), "the bound has moved");
    }
    assert_eq!(sys.list_place(), place);
    // On a busy machine it may be late again as soon as the list has been made.
    let early = (0..20).find_map(|_| {
        sys.commit(sys.begin(Owner::new(1, 0)));
        open.push(sys.open_snapshot(SnapshotInfo::default()));
        sys.refresh();
        let place = sys.list_place();
        let csn = open.remove(5000).csn();
        (!sys.refresh_if_older(0)).then_some((csn, place))
    });
    let (csn, place) = early.expect("too early for so many");
    assert_eq!((sys.listed_snapshots(), open.len()), (10_001, 10_000));
    thread::sleep_ms(11);
    assert!(sys.refresh_if_older(0));
    assert_eq!(sys.listed_snapshots(), 10_000);
    assert_ne!(sys.list_place(), place);
    assert!(open.iter().all(|s| s.csn() != csn));
}

fn begin(system: &TxnSystem) -> TxnId {
    system.begin(Owner::new(0, 0))
}

/// A transaction commits between being carried to the side table and the end of its block: a
/// snapshot opened after that sees it, also when everybody did and the side table has forgotten it.
#[test]
fn a_commit_forgotten_by_the_side_table_is_seen() {
    let system = system(6);
    let moved = begin(&system);
    for _ in 0..8 {
        let txn = begin(&system);
        system.commit(txn);
    }
    system.retire_word(moved);
    system.commit(moved);
    let snapshot = system.open_snapshot(SnapshotInfo::default());
    system.refresh();
    assert!(system.sees(&snapshot, moved, TxnId::FROZEN));
    let from = system.ring.floor();
    system.retire_block(from, from + system.block);
    assert!(system.sees(&snapshot, moved, TxnId::FROZEN));
}

/// A transaction commits just before it is to be carried to the side table: for a moment it is
/// there, as active.
#[test]
fn a_commit_beside_the_move_to_the_side_table_is_seen() {
    let system = system(6);
    let late = begin(&system);
    for _ in 0..8 {
        let txn = begin(&system);
        system.commit(txn);
    }
    system.commit(late);
    system.refresh();
    system.long_running.insert(late, LongRunningState::Active);
    system.refresh();
    let snapshot = system.open_snapshot(SnapshotInfo::default());
    assert!(system.sees(&snapshot, late, TxnId::FROZEN));
    system.long_running.remove(late);
    system.refresh();
    assert!(system.sees(&snapshot, late, TxnId::FROZEN));
}
