//! What the tests of the log share: bodies that can be checked, small logs, readers.
//!
//! Invariant: a body is a function of its number, so that what comes back proves itself.
#![allow(dead_code)]

use ferrite_io::sim::SimStorage;
use ferrite_io::Storage;
use ferrite_redo::{Appended, Log, LogConfig};
use ferrite_sync::random::Rng;
use ferrite_sync::Arc;
use ferrite_types::{Lsn, Result};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The tests run one after the other: named places, where some make a log die or wait, and the hook of panics are
/// global to a process. Held from a test's first line to its end.
pub fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    // Of a test that failed nothing is left but this.
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A log small enough to wrap everything quickly.
pub fn small() -> LogConfig {
    LogConfig {
        ring_bytes: 64 << 10,
        segment_bytes: 64 << 10,
        direct: true,
    }
}

/// The body of record `n` with that length: its number, then bytes that depend on it.
pub fn body(n: u64, len: usize) -> Vec<u8> {
    let mut b = n.to_le_bytes().to_vec();
    let mut rng = Rng::new(n ^ 0x5eed);
    b.resize(len.max(8), 0);
    rng.fill(&mut b[8..]);
    b
}

/// The number of a record, when its body is intact.
pub fn number(body_read: &[u8]) -> u64 {
    let n = u64::from_le_bytes(body_read[..8].try_into().expect("8 bytes"));
    assert_eq!(
        body_read,
        &body(n, body_read.len())[..],
        "record {n} is damaged"
    );
    n
}

/// Appends record `n`, cut into a few parts.
pub fn put(log: &Log, n: u64, len: usize) -> Appended {
    let b = body(n, len);
    let (x, y) = (b.len() / 3, b.len() / 2);
    log.append((n % 7) as u8, &[&b[..x], &b[x..y], &[], &b[y..]])
}

/// A new log whose death is a panic of those who ask for durability.
pub fn create(storage: Arc<dyn Storage>, start: Lsn, cfg: LogConfig) -> Result<Arc<Log>> {
    let log = Log::create(storage, start, cfg)?;
    log.set_fatal(Box::new(|_| ()));
    Ok(log)
}

/// What a scan hands out: where each record is, and its number.
pub type Found = Vec<(Lsn, Lsn, u64)>;

/// Opens a log and collects its records.
pub fn reopen(storage: Arc<dyn Storage>, from: Lsn, cfg: LogConfig) -> Result<(Arc<Log>, Found)> {
    let mut found = Found::new();
    let log = Log::open(storage, from, cfg, &mut |r| {
        let n = number(r.body);
        assert_eq!(r.kind, (n % 7) as u8);
        found.push((r.start, r.end, n));
        Ok(())
    })?;
    log.set_fatal(Box::new(|_| ()));
    Ok((log, found))
}

/// Collects [from, to) of an open log.
pub fn rescan(log: &Log, from: Lsn, to: Lsn) -> Found {
    let mut found = Found::new();
    log.scan(from, to, &mut |r| {
        found.push((r.start, r.end, number(r.body)));
        Ok(())
    })
    .expect("scan");
    found
}

/// A disk in memory, as a trait object of its present life.
pub fn boot(disk: &SimStorage) -> Arc<dyn Storage> {
    Arc::new(disk.boot())
}

/// A length: mostly small, sometimes several blocks, seldom as long as allowed.
pub fn some_len(rng: &mut Rng, max: usize) -> usize {
    match rng.below(20) {
        0 => rng.between(8, max as u64) as usize,
        1..=3 => rng.between(400, 6000) as usize,
        _ => rng.between(8, 300) as usize,
    }
}
