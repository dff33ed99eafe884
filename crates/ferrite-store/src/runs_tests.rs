//! Free space against a model, and case by case.

use super::*;
use crate::held::GranuleRuns;
use crate::word::Location;
use ferrite_sync::random::Rng;
use ferrite_types::format::Codec;
use std::collections::{BTreeMap, BTreeSet};

impl FreeRuns {
    fn take_pages(&mut self, pages: impl Iterator<Item = u32>, runs: &mut Vec<Run>) -> bool {
        self.take(pages, std::iter::empty(), For::Pages, runs)
    }
}

#[test]
fn fills_in_address_order_and_splits() {
    let mut f = FreeRuns::new(64, 64);
    assert!(f.mark(8, 12) && f.mark(40, 4));
    assert!(!f.mark(16, 8) && !f.mark(62, 3) && !f.mark(64, 1));
    let mut runs = Vec::new();
    assert!(f.take_pages([7, 15, 5, 18].into_iter(), &mut runs));
    let got: Vec<_> = runs
        .iter()
        .map(|r| (r.granule, r.granules, r.blobs))
        .collect();
    assert_eq!(got, [(0, 7, 1), (20, 20, 2), (44, 18, 1)]);
    assert_eq!(runs[2].written(), 20);
    assert_eq!(f.free(), 64 - 16 - 45);
}

#[test]
fn a_block_with_a_live_granule_is_not_handed_out() {
    let mut f = FreeRuns::new(64, 64);
    assert!(f.mark(5, 1) && f.mark(14, 3) && f.mark(24, 40));
    assert_eq!((f.free(), f.usable()), (20, 4 + 4 + 4));
    let mut runs = Vec::new();
    assert!(!f.take_pages([5].into_iter(), &mut runs));
    assert!(f.take_pages([3, 2, 4].into_iter(), &mut runs));
    let at: Vec<_> = runs.iter().map(|r| r.granule).collect();
    assert_eq!(at, [0, 8, 20]);
    assert_eq!((f.free(), f.usable()), (11, 0));
    f.give(5, 1);
    assert_eq!(f.usable(), 4);
}

#[test]
fn failure_takes_nothing() {
    let mut f = FreeRuns::new(64, 64);
    let mut runs = Vec::new();
    assert!(!f.take_pages([20; 4].into_iter(), &mut runs));
    assert!(runs.is_empty());
    assert_eq!(f.free(), 64);
    f.add_to(128);
    assert!(f.take_pages([20; 4].into_iter(), &mut runs));
    assert_eq!(runs.len(), 2);
    assert_eq!(f.cut_free_tail(64, 128), None);
}

#[test]
fn prefers_the_emptiest_segment() {
    let mut f = FreeRuns::new(128, 384);
    assert!(f.mark(0, 128) && f.mark(128, 100) && f.mark(256, 20));
    let mut runs = Vec::new();
    assert!(f.take_pages([4].into_iter(), &mut runs));
    assert_eq!(runs[0].granule, 276);
}

#[test]
fn grows_and_shrinks_within_a_segment() {
    let mut f = FreeRuns::new(64, 16);
    assert_eq!((f.total(), f.free(), f.segment_end()), (16, 16, 64));
    assert!(!f.contains(12, 5) && !f.mark(12, 5) && f.mark(12, 4));
    f.add_to(32);
    f.add_to(64);
    f.add_to(80);
    assert_eq!((f.total(), f.free(), f.usable()), (80, 76, 76));
    assert_eq!(f.cut_free_tail(16, 8), None, "no step may go");
    assert_eq!(f.cut_free_tail(16, 100), Some(64));
    assert!(f.mark(33, 1));
    assert_eq!(f.cut_free_tail(16, 100), Some(48));
    f.give(33, 1);
    assert_eq!(f.cut_free_tail(16, 16), Some(32));
    assert_eq!(f.cut_free_tail(16, 100), Some(16), "up to what is in use");
    f.give(12, 4);
    assert_eq!(f.cut_free_tail(16, 100), None, "one step stays");
    f.add_to(32);
    assert_eq!((f.total(), f.free()), (32, 32));
}

#[test]
fn short_runs_are_noticed() {
    let mut f = FreeRuns::new(64, 64);
    let mut runs = Vec::new();
    assert!(f.take_pages([20].into_iter(), &mut runs));
    assert_eq!(f.mean_run(), ONE_RUN);
    f.give(runs[0].granule, 20);
    (0..64).step_by(8).for_each(|at| assert!(f.mark(at, 4)));
    for _ in 0..20 {
        assert!(f.take_pages([4; 6].into_iter(), &mut runs));
        runs.iter().for_each(|r| f.give(r.granule, r.granules));
    }
    let short = f.mean_run();
    assert!(short < ONE_RUN / 8, "{short}");
    // A single page, as on a full disk, says nothing.
    for _ in 0..20 {
        assert!(f.take_pages([4].into_iter(), &mut runs));
        f.give(runs[0].granule, 4);
    }
    assert_eq!(f.mean_run(), short);
}

#[test]
fn long_runs_are_reported_once() {
    let mut f = FreeRuns::new(64, 64);
    assert!(f.mark(10, 1));
    let all = u64::MAX;
    assert_eq!(f.take_long_runs(12, 0, &mut 0), []);
    assert_eq!(f.take_long_runs(12, all, &mut 0), [(12, 52)]);
    assert_eq!((f.free(), f.allocated()), (11, 11));
    f.give_doubtful(12, 52);
    f.note_hole(12, 52);
    assert_eq!(f.take_long_runs(12, all, &mut 0), [], "a hole");
    assert_eq!((f.free(), f.allocated()), (63, 11));
    // Less than half of it is used again, and free again.
    assert!(f.mark(20, 8));
    f.give(20, 8);
    assert_eq!(f.allocated(), 19);
    assert_eq!(f.take_long_runs(12, all, &mut 0), [(12, 52)]);
    assert_eq!(f.allocated(), 11);
    // Nobody knows of what is added, but it is no hole.
    f.give_doubtful(12, 52);
    f.add_to(128);
    f.note_hole(12, 52);
    assert_eq!(f.take_long_runs(12, all, &mut 0), []);
    assert_eq!(f.allocated(), 64 + 11);
}

/// What is given back is taken piece by piece, and nothing of it twice.
#[test]
fn long_runs_are_taken_in_pieces() {
    let mut f = FreeRuns::new(64, 64 * 10);
    let (mut from, mut pieces, mut all) = (0, 0, Vec::new());
    loop {
        let found = f.take_long_runs(12, 128, &mut from);
        if found.is_empty() {
            break;
        }
        pieces += 1;
        for (granule, n) in found {
            f.give_doubtful(granule, n);
            f.note_hole(granule, n);
            all.push(granule);
        }
    }
    assert_eq!(all, (0..10).map(|n| n * 64).collect::<Vec<u64>>());
    assert_eq!((pieces, f.allocated()), (5, 0));
}

/// On a full disk space that the files have goes before holes, for a while.
#[test]
fn holes_go_last_once_the_disk_is_full() {
    let mut f = FreeRuns::new(64, 128);
    assert!(f.mark(100, 1));
    f.note_hole(0, 64);
    let mut runs = Vec::new();
    let place = |f: &mut FreeRuns, runs: &mut Vec<Run>| {
        assert!(f.take_pages([8].into_iter(), runs));
        runs[0].granule
    };
    assert_eq!(place(&mut f, &mut runs), 0);
    f.give_after_failure(&runs, 0, true);
    let places: Vec<u64> = (0..8).map(|_| place(&mut f, &mut runs)).collect();
    assert_eq!(places, [64, 72, 80, 88, 104, 112, 120, 0]);
}

/// Of a batch for which the disk had no room the run that failed is doubted, not those that were written and those
/// that were not reached.
#[test]
fn a_failed_write_makes_no_holes_of_what_is_allocated() {
    let mut f = FreeRuns::new(64, 64);
    (0..64).step_by(16).for_each(|at| assert!(f.mark(at, 8)));
    f.note_hole(24, 8);
    let mut runs = Vec::new();
    assert!(f.take_pages([8; 4].into_iter(), &mut runs));
    let at: Vec<_> = runs.iter().map(|r| r.granule).collect();
    assert_eq!(at, [8, 24, 40, 56]);
    assert_eq!((f.free(), f.allocated()), (0, 0));
    f.give_after_failure(&runs, 1, true);
    assert_eq!((f.free(), f.allocated()), (32, 24));
    // What is allocated is found, one place after the other; a hole is not for the rest of a batch.
    assert!(!f.take_pages([8; 4].into_iter(), &mut runs) && runs.is_empty());
    let none = std::iter::empty::<u32>;
    assert!(!f.take([8; 4].into_iter(), none(), For::All, &mut runs));
    assert_eq!((f.free(), f.allocated()), (32, 24), "nothing was taken");
    assert!(f.take_pages([8; 3].into_iter(), &mut runs));
    let at: Vec<_> = runs.iter().map(|r| r.granule).collect();
    assert_eq!(at, [8, 40, 56]);
    assert!(f.take_pages([8].into_iter(), &mut runs), "the hole");
    assert_eq!((runs[0].granule, &runs[0].holes[..]), (24, &[(24, 8)][..]));
    // Nothing of it was written.
    f.give_after_failure(&runs, 0, false);
    assert_eq!((f.free(), f.allocated()), (8, 0));
    // Of places that nobody knew to be holes the one that failed is doubted, or all of them by a sync.
    [8, 40, 56].iter().for_each(|at| f.give(*at, 8));
    for (failed, allocated) in [(1, 16), (2, 0)] {
        assert!(f.take_pages([8; 2].into_iter(), &mut runs));
        f.give_after_failure(&runs, failed, true);
        assert_eq!(f.allocated(), allocated, "{failed}");
    }
}

#[test]
fn beside_a_hole_a_run_begins_on_a_block() {
    let mut f = FreeRuns::new(128, 128);
    f.note_hole(0, 44);
    f.give_after_failure(&[], 0, true);
    let mut runs = Vec::new();
    assert!(
        f.has_places(5, 16) && !f.has_places(6, 16),
        "no hole counts"
    );
    assert!(f.take_pages([13].into_iter(), &mut runs));
    assert_eq!((runs[0].granule, runs[0].granules), (48, 13));
}

#[test]
fn room_in_areas_goes_before_holes() {
    let mut f = FreeRuns::new(128, 128);
    let mut runs = Vec::new();
    assert!(f.take(std::iter::empty(), [1].into_iter(), For::Pages, &mut runs));
    let area = runs[0].granule;
    f.note_hole(64 - area, 64);
    f.give_after_failure(&[], 0, true);
    assert!(f.take_pages([16].into_iter(), &mut runs));
    assert_eq!(runs[0].granule / 64, area / 64);
    assert_eq!(f.usable(), u64::from(64 + 64 - 4 - 16u32), "no area");
}

#[test]
fn stale_is_what_was_freed_and_not_scrubbed() {
    let mut f = FreeRuns::new(64, 64);
    let mut from = 0;
    let runs = |f: &mut FreeRuns, most, from: &mut u64| -> Vec<(u64, u32, bool)> {
        let found = f.take_stale(most, from);
        found
            .iter()
            .for_each(|r| f.give_zeroed(r.granule, r.granules));
        let told = found.iter().map(|r| (r.granule, r.granules, r.doubtful));
        told.collect()
    };
    // After opening nothing is known of what is free. A block with a live blob waits.
    assert!(f.mark(12, 6));
    assert_eq!(runs(&mut f, 60, &mut from), [(0, 12, true), (20, 44, true)]);
    assert!(runs(&mut f, 60, &mut from).is_empty());
    f.give(12, 6);
    f.add_to(128);
    from = 0;
    assert!(f.mark(72, 4));
    f.give(72, 4);
    assert_eq!(runs(&mut f, 4, &mut from), [(12, 4, false)]);
    assert_eq!(runs(&mut f, 8, &mut from), [(16, 4, false), (72, 4, false)]);
    // What is in use again is not stale.
    assert!(f.mark(4, 4));
    f.give(4, 4);
    assert!(f.mark(4, 4));
    assert!(runs(&mut f, 64, &mut from).is_empty());
    assert_eq!(f.free(), 124);
}

/// What could not be overwritten is stale as before, and what lies behind it comes first.
#[test]
fn a_stale_run_that_comes_back_waits_for_its_next_turn() {
    let mut f = FreeRuns::new(64, 128);
    assert!(f.mark(12, 4));
    let mut from = 0;
    let mut take = |f: &mut FreeRuns, most| {
        let found = f.take_stale(most, &mut from);
        let [run] = &found[..] else {
            panic!("{found:?}");
        };
        assert!(run.doubtful);
        run.clone()
    };
    let bad = take(&mut f, 12);
    assert_eq!((bad.granule, bad.granules), (0, 12));
    f.give_doubtful(bad.granule, bad.granules);
    let rest = take(&mut f, 48);
    assert_eq!((rest.granule, rest.granules), (16, 48));
    f.give_zeroed(rest.granule, rest.granules);
    let next = take(&mut f, 64);
    assert_eq!((next.granule, next.granules), (64, 64));
    f.give_doubtful(next.granule, next.granules);
    assert!(f.take_stale(64, &mut from).is_empty(), "from the beginning");
    from = 0;
    let again = f.take_stale(128, &mut from);
    assert_eq!(again, [bad, next]);
    again
        .iter()
        .for_each(|run| f.give_zeroed(run.granule, run.granules));
    assert!(f.segments.iter().all(|segment| !segment.doubtful));
    // Known to be stale from now on.
    assert!(f.mark(0, 4));
    f.give(0, 4);
    from = 0;
    assert!(f.take_stale(64, &mut from).iter().all(|run| !run.doubtful));
}

#[test]
#[should_panic(expected = "freed twice")]
fn freeing_twice_is_a_bug() {
    let mut f = FreeRuns::new(64, 64);
    assert!(f.mark(3, 4));
    f.give(3, 4);
    f.give(5, 1);
}

/// Free space is exactly what the model has not handed out; nothing overlaps.
#[test]
fn agrees_with_a_naive_model() {
    for seed in 0..30 {
        let mut rng = Rng::new(seed);
        let (size, mut segments) = (256u64, 3u64);
        let mut f = FreeRuns::new(size as u32, size * segments);
        let mut used: BTreeSet<u64> = BTreeSet::new();
        let mut blobs: BTreeMap<u64, u32> = BTreeMap::new();
        let mut runs = Vec::new();
        for _ in 0..400 {
            if rng.chance(1, 2) {
                let lens: Vec<u32> = (0..=rng.below(40))
                    .map(|_| 1 + rng.below(18) as u32)
                    .collect();
                if f.take_pages(lens.iter().copied(), &mut runs) {
                    let mut next = lens.iter();
                    for run in &runs {
                        let mut at = run.granule;
                        assert_eq!(at % 4, 0);
                        let written = at..at + u64::from(run.written());
                        assert!(written.clone().all(|g| !used.contains(&g)), "{written:?}");
                        for n in next.by_ref().take(run.blobs) {
                            assert_eq!(at / size, (at + u64::from(*n) - 1) / size);
                            (at..at + u64::from(*n)).for_each(|g| assert!(used.insert(g)));
                            blobs.insert(at, *n);
                            at += u64::from(*n);
                        }
                        assert_eq!(at, run.granule + u64::from(run.granules));
                    }
                    assert!(next.next().is_none());
                } else if segments < 8 {
                    segments += 1;
                    f.add_to(size * segments);
                }
            } else {
                for _ in 0..rng.below(40) {
                    let Some((&at, &n)) = blobs.range(rng.below(size * segments)..).next() else {
                        continue;
                    };
                    blobs.remove(&at);
                    (at..at + u64::from(n)).for_each(|g| assert!(used.remove(&g)));
                    f.give(at, n);
                }
            }
            assert_eq!(f.total() - f.free(), used.len() as u64);
            for g in 0..size * segments {
                let (s, at) = f.split(g, 1).unwrap();
                let bit = f.segments[s].bits[at as usize / 64] >> (at % 64) & 1;
                assert_eq!(bit == 1, used.contains(&g));
            }
        }
    }
}

#[test]
fn blocks_remember_the_generation_that_took_them() {
    let mut f = FreeRuns::new(64, 128);
    let mut runs = Vec::new();
    assert!(f.take_pages([4].into_iter(), &mut runs));
    let first = f.next_generation();
    assert!(!f.taken_since(0, 4, first) && !f.taken_since(70, 1, first));
    // Granules 4 to 6 and 7 to 9: one blob in one block, one in two.
    assert!(f.take_pages([3, 3].into_iter(), &mut runs));
    assert!(f.taken_since(4, 3, first) && f.taken_since(7, 3, first));
    assert!(f.taken_since(3, 2, first) && !f.taken_since(0, 4, first));
    let second = f.next_generation();
    assert!(f.taken_since(7, 3, first) && !f.taken_since(7, 3, second));
    // The first block is used again, in other pieces; the blob beside it stays.
    f.give(4, 3);
    f.give_out_lowest_first();
    assert!(f.take_pages([2].into_iter(), &mut runs));
    assert_eq!(runs[0].granule, 12, "a blob lives in each block before");
    f.give(7, 3);
    assert!(f.take_pages([2, 2].into_iter(), &mut runs));
    assert_eq!((runs[0].granule, runs[0].blobs), (4, 2));
    assert!(f.taken_since(4, 2, second) && f.taken_since(6, 2, second));
    assert!(!f.taken_since(8, 2, second), "the next block was not");
    assert!(!f.taken_since(0, 4, second) && !f.taken_since(16, 48, second));
    assert!(f.taken_since(128, 1, second), "beyond the store");
    assert!(f.taken_since(62, 4, second), "not one segment's");
}

#[test]
fn a_segment_that_was_cut_off_forgets_its_generations() {
    let mut f = FreeRuns::new(64, 128);
    let mut runs = Vec::new();
    assert!(f.mark(0, 64));
    let first = f.next_generation();
    assert!(f.take_pages([5].into_iter(), &mut runs));
    assert!(f.taken_since(64, 5, first));
    f.give(64, 5);
    assert_eq!(f.cut_free_tail(64, 64), Some(64));
    assert!(f.taken_since(64, 5, first), "beyond the store");
    f.add_to(128);
    assert!(f.take_pages([5].into_iter(), &mut runs));
    assert!(f.taken_since(64, 5, first), "taken again");
}

#[test]
fn small_blobs_have_areas_of_their_own() {
    let mut f = FreeRuns::new(256, 256);
    let mut runs = Vec::new();
    let none = std::iter::empty::<u32>;
    // Pages of ten granules, and behind them three deltas: in an area, in one run.
    assert!(f.take(
        [10, 10].into_iter(),
        [1, 1, 2].into_iter(),
        For::Pages,
        &mut runs
    ));
    let places: Vec<_> = runs
        .iter()
        .map(|r| (r.granule, r.granules, r.blobs))
        .collect();
    assert_eq!(places, [(0, 20, 2), (64, 4, 3)]);
    assert_eq!((f.free(), f.usable()), (256 - 24, 256 - 20 - 64));
    // The next ones go behind them, pages elsewhere; a page that fills the rest leaves the area alone.
    assert!(f.take(none(), [1].into_iter(), For::Pages, &mut runs));
    assert_eq!(runs[0].granule, 68);
    assert!(f.take_pages([44, 128].into_iter(), &mut runs));
    assert_eq!((runs[0].granule, runs[1].granule), (20, 128));
    assert!(f.usable() == 0 && !f.take_pages([1].into_iter(), &mut runs));
    assert!(f.take(none(), [4; 14].into_iter(), For::Pages, &mut runs));
    assert!(!f.take(none(), [1].into_iter(), For::Pages, &mut runs) && runs.is_empty());
    // What is free of it again is for small ones, until all of it is.
    f.give(72, 56);
    assert!(f.usable() == 0 && f.take(none(), [4].into_iter(), For::Pages, &mut runs));
    f.give(runs[0].granule, 4);
    for (at, n) in [(64, 1), (65, 1), (66, 2), (68, 1)] {
        f.give(at, n);
    }
    assert_eq!(f.usable(), 64);
    assert!(f.take_pages([40].into_iter(), &mut runs) && runs[0].granule == 64);
}

#[test]
fn on_a_full_disk_pages_go_into_areas() {
    let mut f = FreeRuns::new(128, 128);
    let mut runs = Vec::new();
    let none = std::iter::empty::<u32>;
    assert!(f.take([56].into_iter(), [1].into_iter(), For::Pages, &mut runs));
    assert!(!f.take_pages([16].into_iter(), &mut runs));
    // 60 granules of the area are free, in one run.
    assert!(f.has_places(3, 16) && !f.has_places(4, 16));
    assert!(f.take([16].into_iter(), none(), For::All, &mut runs));
    assert_eq!((runs[0].granule, f.usable()), (68, 8 + 44));
    assert!(f.take_pages([40].into_iter(), &mut runs), "an area no more");
    assert!(!f.take([16].into_iter(), none(), For::All, &mut runs) && runs.is_empty());
    f.give(64, 1);
    assert_eq!(f.usable(), f.free());
}

#[test]
fn an_area_is_found_again_by_the_deltas_in_it() {
    let mut f = FreeRuns::new(192, 192);
    let mut runs = Vec::new();
    assert!(f.mark(0, 10) && f.mark_small(10, 1) && !f.mark_small(10, 1));
    assert!(f.mark_small(64, 1) && f.mark_small(70, 2));
    assert_eq!(f.usable(), 52 + 64, "a page shares a word with a delta");
    assert!(f.take([20].into_iter(), [1].into_iter(), For::Pages, &mut runs));
    assert_eq!((runs[0].granule, runs[1].granule), (12, 72));
    [64, 70, 71, 72].into_iter().for_each(|at| f.give(at, 1));
    assert_eq!(f.usable(), 32 + 64 + 64);
}

/// On a full disk nobody walks over all segments for each delta.
#[test]
fn a_segment_without_room_for_an_area_is_looked_at_once() {
    let mut f = FreeRuns::new(64, 64 * 100);
    (0..100).for_each(|n| assert!(f.mark(n * 64, 8)));
    let mut runs = Vec::new();
    let small = |f: &mut FreeRuns, runs: &mut Vec<Run>| {
        f.take(std::iter::empty(), [1].into_iter(), For::Pages, runs)
    };
    assert!(!small(&mut f, &mut runs), "that is for pages");
    assert!(!f.may_begin_area());
    assert!(f
        .segments
        .iter()
        .all(|s| !s.may_begin_area && s.areas.is_none()));
    f.give(64, 8);
    assert!(f.segments[1].may_begin_area && small(&mut f, &mut runs));
    assert_eq!(runs[0].granule, 64, "the new area");
}

/// Where the store gets no longer, a delta takes what is for pages.
#[test]
fn on_a_full_disk_small_blobs_go_anywhere() {
    let mut f = FreeRuns::new(64, 64 * 100);
    (0..100).for_each(|n| assert!(f.mark(n * 64, 8)));
    let mut runs = Vec::new();
    let none = std::iter::empty::<u32>;
    assert!(!f.take(none(), [1].into_iter(), For::Pages, &mut runs));
    assert!(f.take(none(), [1].into_iter(), For::All, &mut runs));
    assert_eq!((runs[0].granule, runs[0].granules), (8, 1));
    assert!(f.take([16].into_iter(), [1, 2].into_iter(), For::All, &mut runs));
    let blobs: usize = runs.iter().map(|run| run.blobs).sum();
    assert_eq!((blobs, f.free()), (3, 100 * 56 - 20));
    (0..100).for_each(|n| assert!(n == 0 || f.mark(n * 64 + 32, 32)));
    assert!(f.segments.iter().all(|s| s.areas.is_none()));
}

/// Blobs side by side lie in several segments, and snapshots hold some of them.
#[test]
fn a_run_of_blobs_is_given_back_in_parts() {
    for with_snapshot in [false, true] {
        let mut f = FreeRuns::new(64, 64 * 5);
        assert!(f.mark_run(10, 250) && !f.mark_run(250, 20));
        assert_eq!(f.free(), 320 - 250);
        if with_snapshot {
            let blob = |at, n| Location::new(at, n, Codec::None);
            let runs = [blob(60, 8), blob(130, 70), blob(300, 4)];
            f.held.add(&GranuleRuns::of(runs.into_iter()));
        }
        f.give_run(10, 250);
        let kept = [(60, 4), (64, 4), (130, 62), (192, 8)];
        let kept = if with_snapshot { &kept[..] } else { &[] };
        assert_eq!(f.held.kept_runs(), kept);
        let granules: u64 = kept.iter().map(|(_, n)| u64::from(*n)).sum();
        assert_eq!((f.free(), f.held.kept_granules), (320 - granules, granules));
        assert!(kept.iter().all(|(at, n)| !f.mark(*at, *n)), "in use");
    }
}
