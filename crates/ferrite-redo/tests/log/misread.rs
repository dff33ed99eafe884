//! Reads that lie once: opening the log gives an error or every acknowledged record, and what
//! it writes on the way does no harm to them.

use crate::common::*;
use ferrite_io::sim::{Fault, SimStorage};
use ferrite_types::Lsn;

#[test]
fn a_misread_costs_no_record() {
    let _turn = turn();
    for fault in [Fault::FlipBit, Fault::MisdirectedRead, Fault::FailRead] {
        for seed in 0..30 {
            for nth in 1..8 {
                misread(fault, seed, nth);
            }
        }
    }
}

/// Twice in a row what was there before the last sync: the two reads agree. The scan cannot know
/// better, but what it has seen is not to be written over with an older state.
#[test]
fn two_stale_reads_damage_nothing() {
    let _turn = turn();
    let mut complete = 0;
    for seed in 0..60 {
        for nth in 1..8 {
            let disk = SimStorage::new(seed);
            disk.keep_stale(true);
            let log = create(boot(&disk), Lsn(0), small()).unwrap();
            let mut end = Lsn(0);
            for n in 0..4 + seed {
                end = put(&log, n, 100 + (seed as usize * 37) % 900).end;
            }
            log.flush_to(end);
            drop(log);
            disk.crash_clean();
            disk.inject_in(Fault::StaleRead, nth, "redo");
            disk.inject_in(Fault::StaleRead, nth + 1, "redo");
            let first = reopen(boot(&disk), Lsn(0), small());
            let seen = |found: &Found| found.last().is_some_and(|r| r.1 == end);
            let fooled = first.is_ok_and(|(_, found)| !seen(&found));
            disk.clear_faults();
            disk.crash_clean();
            if fooled {
                continue;
            }
            let (_, found) = reopen(boot(&disk), Lsn(0), small())
                .unwrap_or_else(|e| panic!("seed {seed} read {nth}: does not open any more: {e}"));
            assert!(seen(&found), "seed {seed} read {nth}: records are gone");
            complete += 1;
        }
    }
    assert!(complete > 200, "{complete}");
}

fn misread(fault: Fault, seed: u64, nth: u64) {
    let disk = SimStorage::new(seed);
    let log = create(boot(&disk), Lsn(0), small()).unwrap();
    let mut end = Lsn(0);
    for n in 0..20 + seed * 3 {
        end = put(&log, n, 100 + (seed as usize * 37) % 900).end;
    }
    log.flush_to(end);
    drop(log);
    disk.crash_clean();
    disk.inject_in(fault, nth, "redo");
    let first = reopen(boot(&disk), Lsn(0), small());
    let complete = |found: &Found| found.last().is_some_and(|r| r.1 == end);
    if let Ok((_, found)) = &first {
        assert!(
            complete(found),
            "{fault:?} seed {seed} read {nth}: records are lost"
        );
    }
    drop(first);
    disk.clear_faults();
    disk.crash_clean();
    let (_, found) = reopen(boot(&disk), Lsn(0), small()).unwrap_or_else(|e| {
        panic!("{fault:?} seed {seed} read {nth}: does not open any more: {e}");
    });
    assert!(
        complete(&found),
        "{fault:?} seed {seed} read {nth}: records are gone"
    );
}
