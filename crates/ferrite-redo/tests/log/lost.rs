//! Whole segments and large parts of them that are gone: lost, cut, or read as zeroes.
//!
//! The property throughout: a log that opens holds everything that was known to be durable; one
//! that does not open names the damaged file, and is as it was.

use crate::common::*;
use ferrite_io::sim::{FileDamage, SimSnapshot, SimStorage};
use ferrite_io::Storage;
use ferrite_redo::{Log, LogConfig, LogSpan};
use ferrite_sync::random::Rng;
use ferrite_sync::Arc;
use ferrite_types::{Error, Lsn};

const SEGMENT: u64 = 64 << 10;

/// A log of several segments, all of it durable, every record flushed for itself: the disk, where
/// each record ends, and the segment written last.
fn sample(seed: u64, records: u64) -> (SimStorage, Vec<Lsn>, u64) {
    let disk = SimStorage::new(seed);
    let log = create(boot(&disk), Lsn(0), small()).expect("create");
    let mut rng = Rng::new(seed);
    let mut ends = Vec::new();
    for n in 0..records {
        ends.push(put(&log, n, rng.between(500, 4000) as usize).end);
        log.flush_to(Lsn::MAX);
    }
    // Files for what comes next.
    log.set_oldest_needed(Lsn(0));
    let last = log.current_lsn().0 / (128 * 488);
    (disk, ends, last)
}

/// Opens a copy of the disk with one file damaged.
fn damaged(
    state: &SimSnapshot,
    name: &str,
    damage: FileDamage,
    span: LogSpan,
) -> Result<Found, String> {
    let disk = SimStorage::from_snapshot(state, 1);
    disk.damage_file(name, damage).expect("damage");
    let before = disk.snapshot();
    let mut found = Found::new();
    let opened = Log::open(boot(&disk), span, small(), &mut |r| {
        found.push((r.start, r.end, number(r.body)));
        Ok(())
    });
    match opened {
        Ok(_) => Ok(found),
        Err(Error::Corrupt(text)) => {
            let untouched = SimStorage::from_snapshot(&before, 1);
            for file in untouched.list().expect("list") {
                assert_eq!(disk.contents(&file), untouched.contents(&file), "{file}");
            }
            Err(text)
        }
        Err(e) => panic!("{name} {damage:?}: {e}"),
    }
}

fn damages(bytes: u64) -> [FileDamage; 5] {
    [
        FileDamage::Lost,
        FileDamage::Cut { keep_bytes: 0 },
        FileDamage::Cut {
            keep_bytes: bytes / 2,
        },
        FileDamage::Zeroes {
            offset: 0,
            len: u64::MAX,
        },
        FileDamage::Zeroes {
            offset: 0,
            len: bytes / 2,
        },
    ]
}

#[test]
fn every_file_lost_cut_or_zeroed() {
    let _turn = turn();
    for seed in 0..4 {
        let (disk, ends, last) = sample(seed, 150);
        assert!(last >= 4);
        let state = disk.snapshot();
        let end = *ends.last().expect("records");
        let span = LogSpan {
            from: Lsn(0),
            durable: end,
        };
        for segment in 0..=last + 2 {
            let name = format!("redo.{segment:08}");
            for damage in damages(SEGMENT) {
                let what = format!("seed {seed} {name} {damage:?}");
                match damaged(&state, &name, damage, span) {
                    Ok(found) => {
                        assert!(segment > last, "{what}: opened");
                        assert_eq!(found.len(), ends.len(), "{what}");
                    }
                    Err(text) => assert!(text.contains(&name), "{what}: {text}"),
                }
                // Without the word of a checkpoint all but the last file's loss is noticed.
                let opened = damaged(&state, &name, damage, Lsn(0).into());
                assert!(opened.is_err() || segment >= last, "{what}: opened");
            }
        }
    }
}

/// Recovery begins in the middle of the log: the files before it do not matter, the others do.
#[test]
fn from_a_later_beginning() {
    let _turn = turn();
    let (disk, ends, last) = sample(9, 150);
    let state = disk.snapshot();
    let from = ends[70];
    let first = from.0.saturating_sub(1) / (128 * 488);
    assert!(first > 0 && first < last);
    for segment in 0..=last {
        let name = format!("redo.{segment:08}");
        for damage in damages(SEGMENT) {
            let what = format!("{name} {damage:?}");
            let span = LogSpan {
                from,
                durable: ends[149],
            };
            match damaged(&state, &name, damage, span) {
                Ok(found) => assert_eq!(found.len(), 79, "{what}"),
                Err(text) => assert!(text.contains(&name), "{what}: {text}"),
            }
        }
    }
}

/// Two files at a time: refused, or all is there.
#[test]
fn pairs_of_files() {
    let _turn = turn();
    let (disk, ends, last) = sample(5, 120);
    let state = disk.snapshot();
    let span = LogSpan {
        from: Lsn(0),
        durable: ends[119],
    };
    for (a, b) in (0..=last + 2).flat_map(|a| (0..a).map(move |b| (a, b))) {
        for damage in damages(SEGMENT) {
            let disk = SimStorage::from_snapshot(&state, 1);
            let name = |n: u64| format!("redo.{n:08}");
            disk.damage_file(&name(a), damage).expect("damage");
            let both = disk.snapshot();
            match damaged(&both, &name(b), damage, span) {
                Ok(found) => assert_eq!(found.len(), 120, "{a} {b} {damage:?}"),
                Err(text) => assert!(text.contains("redo."), "{a} {b} {damage:?}: {text}"),
            }
        }
    }
}

#[test]
fn damage_where_recovery_begins_names_file_and_offset() {
    let _turn = turn();
    let (disk, ends, _) = sample(3, 150);
    let from = ends[70];
    let sector = from.0 / 488;
    let name = format!("redo.{:08}", sector / 128);
    let offset = sector % 128 * 512;
    let whole = FileDamage::Zeroes { offset, len: 512 };
    let text = damaged(&disk.snapshot(), &name, whole, from.into()).expect_err("opened");
    assert!(text.contains(&format!("{name} at byte {offset}")), "{text}");
}

/// Segments longer than what is looked at behind every torn end. A whole one reads as zeroes, or
/// a hole in one is longer than that.
#[test]
fn long_segments() {
    let _turn = turn();
    const LONG: u64 = 20 << 20;
    let cfg = LogConfig {
        ring_bytes: 4 << 20,
        segment_bytes: LONG,
        direct: true,
    };
    let disk = SimStorage::new(1);
    let log = create(boot(&disk), Lsn(0), cfg.clone()).expect("create");
    let bytes = vec![7; 500 << 10];
    let mut ends = Vec::new();
    while log.current_lsn().0 < LONG * 5 / 2 {
        ends.push(log.append(1, &[&bytes]).end);
        log.flush_to(Lsn::MAX);
    }
    drop(log);
    let state = disk.snapshot();
    for (segment, offset, len) in [
        (0, 0, LONG),
        (1, 0, LONG),
        (0, 1 << 20, 18 << 20),
        (1, 1 << 20, 17 << 20),
    ] {
        let disk = SimStorage::from_snapshot(&state, 1);
        let name = format!("redo.{segment:08}");
        let hole = FileDamage::Zeroes { offset, len };
        disk.damage_file(&name, hole).expect("damage");
        let from = if segment == 0 && offset == 0 {
            ends[1]
        } else {
            Lsn(0)
        };
        let r = Log::open(boot(&disk), from, cfg.clone(), &mut |_| Ok(()));
        match r {
            Err(Error::Corrupt(text)) => assert!(text.contains(&name), "{text}"),
            other => panic!("{name} {hole:?}: {other:?}"),
        }
        let storage: Arc<dyn Storage> = boot(&disk);
        assert!(Log::read(storage, from, &mut |_| Ok(())).is_err());
    }
}
