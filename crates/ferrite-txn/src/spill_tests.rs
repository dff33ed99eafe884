//! Versions in scratch files: the same model as in memory, with a budget so small that nearly
//! everything spills; faults of the files; and what memory and files hold.

use ferrite_io::sim::{Fault, IoOp, SimStorage};
use ferrite_io::Storage;
use ferrite_lock::Owner;
use ferrite_sync::atomic::{AtomicU64, Ordering};
use ferrite_sync::random::Rng;
use ferrite_sync::Arc;
use ferrite_types::{Csn, Error, IndexId, TxnId, VersionAddr};

use crate::version_tests::{read, sums_hold, undo, update, Record, World};
use crate::{
    NewVersion, SnapshotInfo, TxnSystem, VersionConfig, VersionStore, SEGMENT_BYTES, VERSION_FULL,
};

fn spilling(disk: &SimStorage, ring: usize, old: usize) -> VersionStore {
    let storage: Arc<dyn Storage> = Arc::new(disk.boot());
    let config = VersionConfig {
        ring_budget_bytes: ring,
        old_budget_bytes: old,
    };
    VersionStore::new(config, Some(storage))
}

fn scratch_files(disk: &SimStorage) -> Vec<String> {
    let names = disk.list().unwrap().into_iter();
    names.filter(|n| n.starts_with("history.")).collect()
}

/// Random schedules; faults, if wanted, are planned on the way and never change an answer.
fn run_model(seed: u64, old_budget: usize, fault: Option<Fault>) -> u64 {
    let mut rng = Rng::new(seed);
    let disk = SimStorage::new(seed);
    let mut w = World::new(6, &mut rng, spilling(&disk, 1 << 20, old_budget));
    for i in 0..3000 {
        if let Some(fault) = fault {
            if rng.chance(1, 10) {
                disk.inject_in(fault, 1 + rng.below(3), "history.");
            }
        }
        w.step(&mut rng);
        if i % 4 == 0 {
            disk.clear_faults();
            w.check();
        }
    }
    disk.clear_faults();
    let s = w.finish(&mut rng);
    let left = (s.young_bytes, s.old_bytes, s.old_versions, s.spilled_bytes);
    assert_eq!(left, (0, 0, 0, 0), "seed {seed}: {s:?}");
    assert_eq!(scratch_files(&disk), [""; 0], "seed {seed}");
    s.spilled
}

#[test]
fn every_snapshot_reads_the_same_when_nearly_all_is_spilled() {
    for seed in 0..15 {
        assert!(run_model(seed, 0, None) > 300);
    }
}

#[test]
fn every_snapshot_reads_the_same_when_some_is_spilled() {
    let spilled: u64 = (100..112).map(|seed| run_model(seed, 3000, None)).sum();
    assert!(spilled > 1000, "{spilled}");
}

/// Rows are changed at random, each many times, under one snapshot: memory and files together
/// follow the rows, whatever was spilled, moved and written again on the way.
#[test]
fn wide_updates_stay_within_the_bound() {
    wide_updates(2 << 20, 60_000);
    // Half of the rows change again while their versions are young: little reaches the files.
    wide_updates(4 << 20, 30_000);
}

fn wide_updates(memory: usize, row_count: usize) {
    const COLUMN: usize = 100;
    let disk = SimStorage::new(5);
    let storage: Arc<dyn Storage> = Arc::new(disk.boot());
    let vs = VersionStore::new(VersionConfig::with_memory(memory), Some(storage));
    let sys = TxnSystem::new(TxnId(1), Csn(1));
    let mut rng = Rng::new(5);
    let first = vec![1; 120];
    let mut rows: Vec<Record> = (0..row_count)
        .map(|_| Record {
            payload: first.clone(),
            ..Record::default()
        })
        .collect();
    let old = sys.open_snapshot(SnapshotInfo::default());
    let bound = (memory + row_count * (COLUMN + 48) * 3 / 2) as u64;
    for i in 0..10 * row_count {
        let txn = sys.begin(Owner::new(1, 0));
        let r = &mut rows[rng.below(row_count as u64) as usize];
        let mut payload = r.payload.clone();
        rng.fill(&mut payload[10..10 + COLUMN]);
        update(&sys, &vs, r, txn, payload, false, true);
        sys.commit(txn);
        if vs.needs_retire() {
            vs.retire(&sys);
        }
        if i % 1000 == 0 {
            let s = vs.stats();
            let bytes = s.young_bytes + s.old_bytes + s.spilled_bytes;
            assert!(bytes <= bound, "{i}: {bytes} of {bound}, {s:?}");
            let alive = s.old_versions * (COLUMN as u64 + 36);
            if i > 5 * row_count {
                let share = s.spilled_bytes as f64 / alive as f64;
                assert!(share < 1.6, "{i}: {share} times what is alive, {s:?}");
            }
        }
    }
    for r in rows.iter().step_by(97) {
        assert_eq!(read(&sys, &vs, r, &old), Some(first.clone()));
    }
}

#[test]
fn failed_writes_and_reads_of_the_files_change_no_answer() {
    let faults = [
        Fault::Full,
        Fault::FailWrite,
        Fault::FailRead,
        Fault::FlipBit,
    ];
    for (seed, fault) in (200..216).zip(faults.iter().cycle()) {
        run_model(seed, 0, Some(*fault));
    }
}

#[test]
fn sums_hold_for_every_snapshot_while_segments_spill() {
    sums_hold(spilling(&SimStorage::new(1), 1 << 20, 0));
}

/// Rows changed by one transaction that has not ended.
struct Wide {
    sys: TxnSystem,
    vs: VersionStore,
    rows: Vec<Record>,
    txn: TxnId,
    /// The most memory seen.
    peak: u64,
}

/// Rows of 100 bytes, each with a version of 128: seven times the ring.
const ROWS: usize = 60_000;
const RING: usize = 1 << 20;

fn wide(disk: &SimStorage) -> Wide {
    wide_in(TxnSystem::new(TxnId(1), Csn(1)), disk)
}

fn wide_in(sys: TxnSystem, disk: &SimStorage) -> Wide {
    let vs = spilling(disk, RING, RING / 2);
    let txn = sys.begin(Owner::new(1, 0));
    let mut wide = Wide {
        rows: vec![Record::default(); ROWS],
        sys,
        vs,
        txn,
        peak: 0,
    };
    for n in 0..ROWS {
        wide.rows[n].payload = payload(n, 0);
        wide.update(n, 1);
    }
    wide
}

fn payload(n: usize, round: u8) -> Vec<u8> {
    let mut p = vec![round; 100];
    p[..8].copy_from_slice(&n.to_le_bytes());
    p
}

impl Wide {
    fn update(&mut self, n: usize, round: u8) {
        let r = &mut self.rows[n];
        let (sys, vs) = (&self.sys, &self.vs);
        update(sys, vs, r, self.txn, payload(n, round), false, true);
        if vs.needs_retire() {
            vs.retire(sys);
            self.peak = self.peak.max(vs.bytes());
        }
    }

    fn check_memory(&self) {
        let s = self.vs.stats();
        let total = (ROWS * 128) as u64;
        assert!(
            total > 7 * RING as u64 && s.spilled_bytes > total / 2,
            "{s:?}"
        );
        assert!(
            self.peak <= (RING + RING / 2 + SEGMENT_BYTES) as u64,
            "{}",
            self.peak
        );
    }
}

#[test]
fn a_huge_transaction_stays_within_its_memory_and_its_commit_frees_unread() {
    let disk = SimStorage::new(2);
    let w = wide(&disk);
    w.check_memory();
    let reads = disk.stats().reads.get();
    w.sys.commit(w.txn);
    w.sys.refresh();
    assert!(w.vs.free_seen(&w.sys) > ROWS as u64 / 2);
    w.vs.retire_down_to(&w.sys, 0);
    assert_eq!(disk.stats().reads.get(), reads);
    assert_eq!((w.vs.bytes(), w.vs.stats().spilled_bytes), (0, 0));
    assert_eq!(scratch_files(&disk), [""; 0]);
}

/// An older transaction that has not ended needs nothing of what others replace: not the versions that
/// are spilled, nor those that retire later.
#[test]
fn an_idle_transaction_holds_back_no_versions_of_others() {
    for prepared in [false, true] {
        let disk = SimStorage::new(8);
        let sys = TxnSystem::new(TxnId(1), Csn(1));
        let idle = sys.begin(Owner::new(2, 0));
        if prepared {
            sys.prepare(idle);
        }
        let mut w = wide_in(sys, &disk);
        w.check_memory();
        let reads = disk.stats().reads.get();
        w.sys.commit(w.txn);
        w.sys.refresh();
        assert!(w.vs.free_seen(&w.sys) > ROWS as u64 / 2);
        assert_eq!(w.vs.stats().spilled_bytes, 0, "prepared: {prepared}");
        w.vs.retire_down_to(&w.sys, 0);
        assert_eq!((w.vs.bytes(), disk.stats().reads.get()), (0, reads));
        // What the idle one has replaced itself stays until it ends.
        w.txn = idle;
        if !prepared {
            w.update(0, 2);
            w.vs.retire_down_to(&w.sys, 0);
            assert_eq!(w.vs.stats().old_versions, 1);
            undo(&w.vs, &mut w.rows[0]);
            assert_eq!(w.rows[0].payload, payload(0, 1));
        }
        w.sys.rolled_back(idle);
        w.vs.retire_down_to(&w.sys, 0);
        assert_eq!((w.vs.bytes(), w.vs.stats().spilled_bytes), (0, 0));
    }
}

#[test]
fn a_huge_transaction_rolls_back_from_the_files() {
    let disk = SimStorage::new(3);
    let mut w = wide(&disk);
    w.check_memory();
    for n in (0..ROWS).rev() {
        undo(&w.vs, &mut w.rows[n]);
        assert_eq!(w.rows[n].payload, payload(n, 0));
    }
    w.sys.rolled_back(w.txn);
    w.vs.retire_down_to(&w.sys, 0);
    assert_eq!((w.vs.bytes(), w.vs.stats().spilled_bytes), (0, 0));
    assert_eq!(scratch_files(&disk), [""; 0]);
}

#[test]
fn an_old_snapshot_under_wide_updates_is_bounded_in_memory_and_file() {
    let disk = SimStorage::new(4);
    let mut w = wide(&disk);
    w.sys.commit(w.txn);
    let old = w.sys.open_snapshot(SnapshotInfo::default());
    let mut rng = Rng::new(4);
    for round in 0..3 * ROWS {
        let n = rng.below(ROWS as u64) as usize;
        w.txn = w.sys.begin(Owner::new(1, 0));
        w.update(n, 2 + (round / ROWS) as u8);
        w.sys.commit(w.txn);
        if round % 20_000 == 0 {
            w.vs.sweep_old(&w.sys);
        }
    }
    let s = w.vs.stats();
    assert!(w.peak <= 2 * RING as u64, "{} {s:?}", w.peak);
    // Distinct rows, not updates, and what compaction has not come to yet.
    assert!(s.spilled_bytes <= 3 * (ROWS * 160) as u64, "{s:?}");
    for (n, r) in w.rows.iter().enumerate() {
        assert_eq!(read(&w.sys, &w.vs, r, &old), Some(payload(n, 1)));
    }
    drop(old);
    w.vs.sweep_old(&w.sys);
    w.vs.retire_down_to(&w.sys, 0);
    assert_eq!((w.vs.bytes(), w.vs.stats().spilled_bytes), (0, 0));
}

#[test]
fn without_space_versions_stay_in_memory_and_are_counted() {
    let disk = SimStorage::new(5);
    disk.set_capacity(Some(1 << 20));
    let mut w = wide(&disk);
    let s = w.vs.stats();
    assert!(s.spilled == 0 && s.spill_failures > 0, "{s:?}");
    let text = w.vs.take_spill_error().expect("it is said");
    assert!(text.contains("disk full"), "{text}");
    for n in (0..ROWS).rev() {
        undo(&w.vs, &mut w.rows[n]);
        assert_eq!(w.rows[n].payload, payload(n, 0));
    }
}

#[test]
fn a_version_that_cannot_be_read_is_an_error_not_an_older_state() {
    let disk = SimStorage::new(6);
    let w = wide(&disk);
    let mut body = Vec::new();
    for (fault, corrupt) in [(Fault::FailRead, false), (Fault::FlipBit, true)] {
        disk.inject_in(fault, 1, "history.");
        // One of the rows in the middle, which are spilled.
        let got = w.vs.read(w.rows[ROWS / 2].next, &mut body);
        assert!(
            matches!(&got, Err(Error::Corrupt(_)) if corrupt)
                || matches!(&got, Err(Error::Io(_)) if !corrupt),
            "{fault:?}: {got:?}"
        );
    }
    assert!(body.is_empty());
    let head = w.vs.read(w.rows[ROWS / 2].next, &mut body).unwrap();
    assert_eq!(head.map(|h| h.end), Some(w.txn));
}

#[test]
fn files_of_an_earlier_life_are_removed() {
    let disk = SimStorage::new(7);
    let w = wide(&disk);
    let before = scratch_files(&disk);
    assert!(!before.is_empty());
    drop(w);
    let vs = spilling(&disk, RING, 0);
    assert_eq!(scratch_files(&disk), [""; 0]);
    drop(vs);
}

/// What waits to be written out is not stuck while writing works: no snapshot ends for it.
#[test]
fn what_can_be_written_out_is_not_stuck() {
    let stuck = |disk: &SimStorage| {
        let sys = TxnSystem::new(TxnId(1), Csn(1));
        let vs = spilling(disk, RING, 8 * RING);
        let txn = sys.begin(Owner::new(1, 0));
        let mut rows = vec![Record::default(); 30_000];
        for (n, r) in rows.iter_mut().enumerate() {
            r.payload = payload(n, 0);
            update(&sys, &vs, r, txn, payload(n, 1), false, true);
            // Every second one is needed: the others' segments are not written as they are.
            if n % 2 == 1 {
                undo(&vs, r);
            }
            if vs.needs_retire() {
                vs.retire(&sys);
            }
        }
        let kept = vs.stats().old_bytes;
        assert!(kept > RING as u64 / 4, "{kept} bytes of survivors");
        vs.stuck_bytes()
    };
    assert_eq!(stuck(&SimStorage::new(9)), 0);
}

/// Four versions that nearly fill a segment, so that the next opens another one.
fn fill_segment(vs: &VersionStore, end: TxnId) {
    let body = vec![1; SEGMENT_BYTES / 4 - 4096];
    for _ in 0..4 {
        vs.add(NewVersion {
            begin: TxnId(0),
            end,
            next: VersionAddr::NONE,
            flags: VERSION_FULL,
            keep_head: 0,
            keep_tail: 0,
            body: &body,
            index: IndexId(1),
        });
    }
}

/// Where each segment costs a write that fails, writers may fill new ones as fast: a call ends all the
/// same, so that somebody looks at how much memory that is, and at once if it is too much.
#[test]
fn retiring_ends_beside_writers_that_are_as_fast() {
    // The test ends although retiring does not.
    const MOST_WRITES: u64 = 200;
    let disk = SimStorage::new(11);
    let sys = TxnSystem::new(TxnId(1), Csn(1));
    let txn = sys.begin(Owner::new(1, 0));
    let vs = Arc::new(spilling(&disk, RING, 0));
    (0..20).for_each(|_| fill_segment(&vs, txn));
    let (writers, writes) = (vs.clone(), AtomicU64::new(0));
    disk.set_hook(Some(Arc::new(move |event| {
        if event.op != IoOp::Write || !event.name.starts_with("history.") {
            return Ok(());
        }
        if writes.fetch_add(1, Ordering::Relaxed) < MOST_WRITES {
            (0..2).for_each(|_| fill_segment(&writers, txn));
        }
        Err(Error::DiskFull(event.name.to_owned()))
    })));
    let there = vs.young_bytes() / SEGMENT_BYTES as u64;
    let stats = vs.retire(&sys);
    assert!(there == 20 && stats.segments == there, "{stats:?}");
    assert!(vs.needs_retire() && vs.cannot_spill());
    let there = vs.young_bytes() / SEGMENT_BYTES as u64;
    let stats = vs.retire_unless_stuck(&sys, u64::MAX);
    assert!(
        there > 20 && stats.segments == there,
        "{stats:?} of {there}"
    );
    let stuck = vs.stuck_bytes();
    assert!(stuck > 60 * SEGMENT_BYTES as u64, "{stuck} bytes");
    assert_eq!(vs.retire_unless_stuck(&sys, stuck / 2).segments, 1);
    // Nothing fails any more: however much there is, it goes.
    disk.set_hook(None);
    let stats = vs.retire_unless_stuck(&sys, stuck / 2);
    assert!(stats.segments > 20 && stats.spilled > 80, "{stats:?}");
    assert!(!vs.needs_retire() && !vs.cannot_spill());
    assert!(vs.stuck_bytes() < stuck / 2, "{}", vs.stuck_bytes());
}
