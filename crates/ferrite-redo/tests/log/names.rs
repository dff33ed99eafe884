//! A directory that refuses to change names for a while: no file of the log is forgotten, and none is given up in vain.

use crate::common::*;
use ferrite_io::sim::{IoOp, SimStorage};
use ferrite_io::Storage;
use ferrite_redo::Log;
use ferrite_sync::Arc;
use ferrite_types::{Error, Lsn};

/// What is to be done with files that nobody needs, and cannot be.
#[derive(Clone, Copy, Debug, PartialEq)]
enum What {
    /// They become future files.
    Recycled,
    /// The same, and what they hold is overwritten first.
    Scrubbed,
    /// There are too many.
    Removed,
}

/// The numbers of the log's files.
fn files(storage: &Arc<dyn Storage>) -> Vec<u64> {
    let names = storage.list().unwrap();
    let mut files: Vec<u64> = names
        .iter()
        .filter_map(|name| name.strip_prefix("redo.")?.parse().ok())
        .collect();
    files.sort_unstable();
    files
}

fn is_run(files: &[u64]) -> bool {
    files.windows(2).all(|pair| pair[0] + 1 == pair[1])
}

fn fill(log: &Log, numbers: std::ops::Range<u64>) {
    for n in numbers {
        put(log, n, 400);
        if n % 10 == 9 {
            log.flush_to(Lsn::MAX);
        }
    }
}

/// A log with files that are about to go so.
fn filled(what: What) -> (SimStorage, Arc<dyn Storage>, Arc<Log>) {
    let disk = SimStorage::new(1);
    let storage = boot(&disk);
    let log = create(storage.clone(), Lsn(0), small()).unwrap();
    log.set_scrub(what == What::Scrubbed);
    fill(&log, 0..2000);
    if what == What::Removed {
        log.set_budget(small().segment_bytes);
    }
    log.prepare_now();
    (disk, storage, log)
}

#[test]
fn a_file_that_keeps_its_name_is_none_that_is_forgotten() {
    for what in [What::Recycled, What::Scrubbed, What::Removed] {
        let (disk, storage, log) = filled(what);
        let before = files(&storage);
        assert!(before.len() > 10 && is_run(&before), "{what:?}: {before:?}");

        disk.set_hook(Some(Arc::new(|event| match event.op {
            IoOp::Name => Err(Error::Io("the directory is read-only".into())),
            _ => Ok(()),
        })));
        let oldest = log.oldest_lsn();
        let needed = log.durable_lsn();
        log.set_oldest_needed(needed);
        for _ in 0..5 {
            log.prepare_now();
        }
        assert_eq!(log.oldest_lsn(), oldest, "{what:?}: files are given up");
        assert_eq!(files(&storage), before, "{what:?}");

        disk.set_hook(None);
        log.prepare_now();
        let after = files(&storage);
        assert!(is_run(&after), "{what:?}: {after:?}");
        assert!(after[0] > before[before.len() / 2], "{what:?}: {after:?}");
        // The log goes on, and so does the next process.
        let end = log.current_lsn();
        fill(&log, 2000..2100);
        drop(log);
        let (log, found) = reopen(boot(&disk), end, small()).unwrap();
        let numbers: Vec<u64> = found.iter().map(|r| r.2).collect();
        assert_eq!(numbers, (2000..2100).collect::<Vec<_>>(), "{what:?}");
        drop(log);
    }
}

/// One file that cannot be renamed or removed does not stop the log while there is space for new ones.
#[test]
fn the_log_goes_on_behind_a_file_that_keeps_its_name() {
    for what in [What::Recycled, What::Scrubbed, What::Removed] {
        let (disk, storage, log) = filled(what);
        let before = files(&storage);
        let stays = format!("redo.{:08}", before[0]);
        disk.set_hook(Some(Arc::new(move |event| match event.op {
            IoOp::Name if event.name == stays => Err(Error::Io("it keeps its name".into())),
            _ => Ok(()),
        })));
        log.set_oldest_needed(log.durable_lsn());
        for n in 20..40 {
            assert_eq!(log.admission(), Ok(()), "{what:?}");
            fill(&log, 100 * n..100 * n + 100);
            log.set_oldest_needed(log.durable_lsn());
        }
        let during = files(&storage);
        assert!(is_run(&during), "{what:?}: {during:?}");
        assert_eq!(during[0], before[0], "{what:?}: it is given up");
        assert!(during.len() > before.len(), "{what:?}: {during:?}");
        let why = log.why_files_stay();
        assert_eq!(why, Some(Error::Io("it keeps its name".into())), "{what:?}");

        disk.set_hook(None);
        log.prepare_now();
        assert_eq!(log.why_files_stay(), None, "{what:?}");
        let after = files(&storage);
        assert!(is_run(&after) && after.len() < 15, "{what:?}: {after:?}");
        let end = log.current_lsn();
        fill(&log, 4000..4100);
        drop(log);
        let (log, found) = reopen(boot(&disk), end, small()).unwrap();
        let numbers: Vec<u64> = found.iter().map(|r| r.2).collect();
        assert_eq!(numbers, (4000..4100).collect::<Vec<_>>(), "{what:?}");
        drop(log);
    }
}
