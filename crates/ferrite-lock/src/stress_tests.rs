//! Random schedules: one thread against a naive model, and many threads with invariants
//! that they check themselves.

use std::collections::BTreeMap;

use ferrite_sync::atomic::{AtomicU64, Ordering};
use ferrite_sync::random::Rng;
use ferrite_sync::{thread, Arc, Mutex};
use ferrite_types::{Error, IndexId, TxnId};

use crate::mode::{conflicts, missing, row_mask, Mask, GAP, INSERT, REC};
use crate::{
    Attempt, Implicit, LockConfig, LockRequest, LockTable, Mode, NoHooks, Owner, RangeId, Span,
    WaitPolicy,
};

const IX: IndexId = IndexId(7);

fn table() -> Arc<LockTable> {
    table_with_sets(LockConfig::default().sets_after)
}

fn table_with_sets(sets_after: u64) -> Arc<LockTable> {
    Arc::new(LockTable::new(LockConfig {
        shards: 8,
        sets_after,
        ..LockConfig::default()
    }))
}

fn is_clean(t: &LockTable) {
    let s = t.stats();
    assert_eq!((s.keys, s.bytes, s.waiting), (0, 0, 0), "{s:?}");
    assert!(!t.has_gap_locks(IX));
}

fn pick(rng: &mut Rng) -> (Mode, Span) {
    let mode = if rng.chance(1, 2) {
        Mode::Shared
    } else {
        Mode::Exclusive
    };
    let span = match rng.below(5) {
        0 => Span::Gap,
        1 => Span::NextKey,
        2 => Span::InsertIntention,
        _ => Span::Record,
    };
    (mode, span)
}

#[test]
fn one_thread_agrees_with_a_naive_model() {
    compare_with_model(false, u64::MAX);
}

#[test]
fn so_it_does_with_sets() {
    compare_with_model(false, 0);
    compare_with_model(false, 3);
}

#[test]
fn so_it_does_with_ranges() {
    compare_with_model(true, u64::MAX);
}

#[test]
fn so_it_does_with_ranges_and_sets() {
    compare_with_model(true, 0);
    compare_with_model(true, 3);
}

/// A range of the model: which owner, its lock table's name, from key to key, what it gives.
struct ModelRange {
    owner: usize,
    id: Option<RangeId>,
    low: u8,
    high: u8,
    mask: Mask,
}

/// What an owner has on a key by its ranges.
fn in_ranges(ranges: &[ModelRange], owner: usize, key: u8) -> Mask {
    ranges
        .iter()
        .filter(|r| r.owner == owner && (r.low..=r.high).contains(&key))
        .fold(0, |mask, r| mask | r.mask)
}

fn grow_one(
    t: &LockTable,
    owners: &[Arc<Owner>],
    (o, mode): (usize, Mode),
    model: &BTreeMap<(usize, u8), Mask>,
    ranges: &mut Vec<ModelRange>,
    rng: &mut Rng,
) {
    let mask = row_mask(mode, Span::NextKey);
    let at = ranges.iter().position(|r| r.owner == o && r.mask == mask);
    let key = at.map_or(rng.below(12) as u8, |at| ranges[at].high + 1);
    let mut id = at.and_then(|at| ranges[at].id);
    let need = missing(mask, model.get(&(o, key)).copied().unwrap_or(0));
    let held = missing(mask, in_ranges(ranges, o, key)) == 0;
    let blocked = (0..owners.len()).filter(|p| *p != o).any(|p| {
        conflicts(need, model.get(&(p, key)).copied().unwrap_or(0))
            || conflicts(mask, in_ranges(ranges, p, key))
    });
    let got = t.try_lock_in_range(&owners[o], IX, &[key], mode, &mut id);
    assert_eq!(got.unwrap().is_granted(), held || !blocked);
    match at {
        _ if held || blocked => {}
        Some(at) => ranges[at].high = key,
        None => ranges.push(ModelRange {
            owner: o,
            id,
            low: key,
            high: key,
            mask,
        }),
    }
}

fn compare_with_model(with_ranges: bool, sets_after: u64) {
    for seed in 0..20 {
        let mut rng = Rng::new(seed);
        let t = table_with_sets(sets_after);
        let owners: Vec<_> = (0..5).map(|i| Owner::new(i, 0)).collect();
        let mut model: BTreeMap<(usize, u8), Mask> = BTreeMap::new();
        let mut ranges = Vec::new();
        for step in 0..4000 {
            let o = rng.below(5) as usize;
            let key = rng.below(12) as u8;
            let (mode, span) = pick(&mut rng);
            let mask = row_mask(mode, span);
            let own = model.get(&(o, key)).copied().unwrap_or(0);
            let need = missing(missing(mask, in_ranges(&ranges, o, key)), own);
            let unranged = missing(mask, in_ranges(&ranges, o, key));
            let blocked = model
                .iter()
                .any(|((p, k), held)| *p != o && *k == key && conflicts(need, *held))
                || (0..5).any(|p| p != o && conflicts(unranged, in_ranges(&ranges, p, key)));
            match rng.below(20) {
                0 => {
                    t.release_all(&owners[o]);
                    model.retain(|(p, _), _| *p != o);
                    ranges.retain(|r: &ModelRange| r.owner != o);
                }
                1 => {
                    t.unlock(&owners[o], IX, &[key], mode);
                    let left = own & !row_mask(mode, Span::Record);
                    if left == 0 {
                        model.remove(&(o, key));
                    } else {
                        model.insert((o, key), left);
                    }
                }
                2 => {
                    let to = rng.below(12) as u8;
                    t.inherit_gap(IX, &[key], &[to]);
                    for p in 0..5 {
                        let held = model.get(&(p, key)).copied().unwrap_or(0);
                        let gap = (held | in_ranges(&ranges, p, key)) & GAP;
                        let gap = missing(gap, in_ranges(&ranges, p, to));
                        let there = model.get(&(p, to)).copied().unwrap_or(0);
                        if missing(gap, there) != 0 {
                            model.insert((p, to), there | gap);
                        }
                    }
                }
                3 | 4 => assert_eq!(
                    t.conflicts(&owners[o], LockRequest::new(IX, &[key], mode, span)),
                    blocked
                ),
                5 | 6 if with_ranges => {
                    let who = (o, mode);
                    grow_one(&t, &owners, who, &model, &mut ranges, &mut rng);
                }
                _ => {
                    let got = t
                        .try_lock(&owners[o], LockRequest::new(IX, &[key], mode, span))
                        .unwrap();
                    let expected = if need == 0 {
                        Attempt::Held
                    } else if blocked {
                        Attempt::Blocked
                    } else if own & REC != 0 && need & REC != 0 {
                        Attempt::Stronger
                    } else if own & REC != 0 && need & INSERT == 0 {
                        Attempt::Held
                    } else {
                        Attempt::Granted
                    };
                    assert_eq!(got, expected, "seed {seed} step {step}");
                    if !blocked && need & !INSERT != 0 {
                        model.insert((o, key), own | need);
                    }
                }
            }
        }
        let held: usize = owners.iter().map(|o| o.locks_held() as usize).sum();
        // What is in a set is counted for each mode, and beside the gap lock in the key's queue.
        let with_sets = sets_after != u64::MAX && held >= model.len();
        assert!(held == model.len() || with_ranges || with_sets);
        owners.iter().for_each(|o| t.release_all(o));
        is_clean(&t);
    }
}

/// Rows with readers and a writer, watched from outside.
struct Rows(Vec<AtomicU64>);

impl Rows {
    const WRITER: u64 = 1 << 32;

    fn enter(&self, row: usize, mode: Mode) {
        let add = if mode == Mode::Exclusive {
            Self::WRITER
        } else {
            1
        };
        let before = self.0[row].fetch_add(add, Ordering::SeqCst);
        match mode {
            Mode::Exclusive => assert_eq!(before, 0, "a writer is not alone"),
            Mode::Shared => assert!(before < Self::WRITER, "a reader beside a writer"),
        }
    }

    fn leave(&self, row: usize, mode: Mode) {
        let sub = if mode == Mode::Exclusive {
            Self::WRITER
        } else {
            1
        };
        self.0[row].fetch_sub(sub, Ordering::SeqCst);
    }
}

#[test]
fn many_threads_wait_deadlock_and_time_out() {
    wait_deadlock_and_time_out(&table());
}

#[test]
fn so_they_do_with_sets() {
    wait_deadlock_and_time_out(&table_with_sets(0));
}

fn wait_deadlock_and_time_out(t: &Arc<LockTable>) {
    let rows = Arc::new(Rows((0..6).map(|_| AtomicU64::new(0)).collect()));
    let handles: Vec<_> = (0..8u64)
        .map(|n| {
            let (t, rows) = (t.clone(), rows.clone());
            thread::spawn("locker", move || {
                let me = Owner::new(n, n as usize + 1);
                let mut rng = Rng::new(n);
                let mut ends = [0u32; 4];
                for _ in 0..800 {
                    let end = one_transaction(&t, &rows, &me, &mut rng);
                    ends[end] += 1;
                }
                ends
            })
        })
        .collect();
    let mut ends = [0; 4];
    for h in handles {
        let e = h.join().unwrap();
        (0..4).for_each(|i| ends[i] += e[i]);
    }
    is_clean(t);
    assert!(ends[0] > 0 && ends[1] > 0, "{ends:?}");
    assert_eq!(u64::from(ends[1]), t.stats().deadlocks);
    assert!(t.stats().wait_us_max < 10_000_000, "{:?}", t.stats());
}

/// 0 committed, 1 deadlock, 2 timeout, 3 interrupted.
fn one_transaction(t: &LockTable, rows: &Rows, me: &Arc<Owner>, rng: &mut Rng) -> usize {
    let mut mine: Vec<(usize, Mode)> = Vec::new();
    let mut end = 0;
    for _ in 0..rng.between(1, 4) {
        let row = rng.below(6) as usize;
        if mine.iter().any(|(r, _)| *r == row) {
            continue;
        }
        let mode = if rng.chance(1, 3) {
            Mode::Shared
        } else {
            Mode::Exclusive
        };
        let wait = WaitPolicy::for_ms(if rng.chance(1, 50) { 1 } else { 20_000 });
        match t.lock_wait(
            me,
            LockRequest::new(IX, &[row as u8], mode, Span::Record),
            wait,
            &NoHooks,
        ) {
            Ok(_) => {
                rows.enter(row, mode);
                mine.push((row, mode));
            }
            Err(e) => {
                end = match e {
                    Error::Deadlock => 1,
                    Error::LockTimeout => 2,
                    _ => 3,
                };
                break;
            }
        }
        if rng.chance(1, 3) {
            thread::sleep_us(rng.below(60));
        }
    }
    for (row, mode) in mine {
        rows.leave(row, mode);
    }
    t.release_all(me);
    end
}

/// A page with row headers, and the statuses of transactions.
struct World {
    table: Arc<LockTable>,
    /// Row -> txid in its header; the mutex is the page latch.
    page: Mutex<Vec<u64>>,
    /// Active transactions.
    active: Mutex<BTreeMap<u64, Arc<Owner>>>,
    next: AtomicU64,
    rows: Rows,
}

impl World {
    fn is_active(&self, txn: u64) -> bool {
        self.active.lock().contains_key(&txn)
    }

    /// Takes a row implicitly, as an engine does.
    fn write(&self, me: &Arc<Owner>, row: usize) -> Result<(), Error> {
        let my = me.txn_id().get();
        let (x, rec) = (Mode::Exclusive, Span::Record);
        let key = [row as u8];
        let wait = WaitPolicy::for_ms(20_000);
        loop {
            let mut page = self.page.lock();
            let header = page[row];
            let holder = self.active.lock().get(&header).cloned();
            match holder {
                Some(h) if header != my => {
                    drop(page);
                    let active = || self.is_active(header);
                    self.table.wait_for_implicit(
                        me,
                        &Implicit {
                            holder: &h,
                            still_active: &active,
                        },
                        LockRequest::new(IX, &key, x, rec),
                        wait,
                        &NoHooks,
                    )?;
                }
                _ if !self.table.is_untouched(IX, &key)
                    && self.table.conflicts(me, LockRequest::new(IX, &key, x, rec)) =>
                {
                    drop(page);
                    self.table
                        .lock_wait(me, LockRequest::new(IX, &key, x, rec), wait, &NoHooks)?;
                }
                _ => {
                    page[row] = my;
                    return Ok(());
                }
            }
        }
    }

    /// Takes an explicit shared lock, as a locking reader does.
    fn read(&self, me: &Arc<Owner>, row: usize) -> Result<(), Error> {
        let my = me.txn_id().get();
        let (s, rec) = (Mode::Shared, Span::Record);
        let key = [row as u8];
        let wait = WaitPolicy::for_ms(20_000);
        loop {
            let page = self.page.lock();
            let header = page[row];
            let holder = self.active.lock().get(&header).cloned();
            match holder {
                Some(h) if header != my => {
                    drop(page);
                    let active = || self.is_active(header);
                    self.table.wait_for_implicit(
                        me,
                        &Implicit {
                            holder: &h,
                            still_active: &active,
                        },
                        LockRequest::new(IX, &key, s, rec),
                        wait,
                        &NoHooks,
                    )?;
                }
                _ => {
                    if self
                        .table
                        .try_lock(me, LockRequest::new(IX, &key, s, rec))?
                        .is_granted()
                    {
                        return Ok(());
                    }
                    drop(page);
                    self.table
                        .lock_wait(me, LockRequest::new(IX, &key, s, rec), wait, &NoHooks)?;
                }
            }
        }
    }

    fn transaction(&self, me: &Arc<Owner>, rng: &mut Rng) -> bool {
        let txn = self.next.fetch_add(1, Ordering::SeqCst);
        me.set_txn(TxnId(txn));
        self.active.lock().insert(txn, me.clone());
        let mut mine: BTreeMap<usize, Mode> = BTreeMap::new();
        let mut committed = true;
        for _ in 0..rng.between(1, 4) {
            let row = rng.below(self.rows.0.len() as u64) as usize;
            if mine.contains_key(&row) {
                continue;
            }
            let (mode, got) = if rng.chance(1, 4) {
                (Mode::Shared, self.read(me, row))
            } else {
                (Mode::Exclusive, self.write(me, row))
            };
            match got {
                Ok(()) => {
                    self.rows.enter(row, mode);
                    mine.insert(row, mode);
                    if rng.chance(1, 3) {
                        thread::sleep_us(rng.below(60));
                    }
                }
                Err(e) => {
                    assert_eq!(e, Error::Deadlock);
                    committed = false;
                    break;
                }
            }
        }
        for (row, mode) in mine {
            self.rows.leave(row, mode);
        }
        self.active.lock().remove(&txn);
        self.table.release_all(me);
        committed
    }
}

#[test]
fn implicit_locks_become_explicit_while_their_holders_end() {
    make_explicit_while_holders_end(table());
}

#[test]
fn so_they_do_beside_sets() {
    make_explicit_while_holders_end(table_with_sets(0));
}

fn make_explicit_while_holders_end(table: Arc<LockTable>) {
    let w = Arc::new(World {
        table,
        page: Mutex::new(vec![0; 5]),
        active: Mutex::default(),
        next: AtomicU64::new(1),
        rows: Rows((0..5).map(|_| AtomicU64::new(0)).collect()),
    });
    let handles: Vec<_> = (0..8u64)
        .map(|n| {
            let w = w.clone();
            thread::spawn("txn", move || {
                let me = Owner::new(n, 0);
                let mut rng = Rng::new(100 + n);
                (0..800).filter(|_| w.transaction(&me, &mut rng)).count()
            })
        })
        .collect();
    let committed: usize = handles.into_iter().map(|h| h.join().unwrap()).sum();
    assert!(committed > 2000, "{committed}");
    is_clean(&w.table);
    let s = w.table.stats();
    assert!(s.waits > 100 && s.deadlocks > 10, "{s:?}");
}

#[test]
fn a_hot_row_with_many_waiters_serves_all() {
    let t = table();
    let sum = Arc::new(AtomicU64::new(0));
    let handles: Vec<_> = (0..60u64)
        .map(|n| {
            let (t, sum) = (t.clone(), sum.clone());
            thread::spawn("hot", move || {
                let me = Owner::new(n, 0);
                for _ in 0..60 {
                    let wait = WaitPolicy::for_ms(20_000);
                    t.lock_wait(
                        &me,
                        LockRequest::new(IX, b"hot", Mode::Exclusive, Span::Record),
                        wait,
                        &NoHooks,
                    )
                    .unwrap();
                    let v = sum.load(Ordering::Relaxed);
                    if n % 4 == 0 {
                        thread::sleep_us(20);
                    }
                    sum.store(v + 1, Ordering::Relaxed);
                    t.release_all(&me);
                }
            })
        })
        .collect();
    handles.into_iter().for_each(|h| h.join().unwrap());
    assert_eq!(sum.load(Ordering::Relaxed), 3600);
    is_clean(&t);
    let s = t.stats();
    assert!(s.deadlocks == 0 && s.waits > 100, "{s:?}");
}
