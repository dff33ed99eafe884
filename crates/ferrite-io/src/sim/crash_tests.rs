//! The simulated disk under the deterministic scheduler: a small log that acknowledges what
//! it has synced, crashed at every moment, again and again.

use ferrite_sync::random::Rng;
use ferrite_sync::sim::{self, Simulation};
use ferrite_sync::{thread, Arc, Mutex};

use super::*;

const RECORD: usize = 512;

/// Opens the log and returns its records; each is a sector filled with its number.
fn recover(s: &SimStorage) -> Result<(Arc<dyn StorageFile>, Vec<u8>)> {
    let log = match s.open("log", OpenMode::ReadWrite, false) {
        Err(Error::NotFound) => s.open("log", OpenMode::CreateNew, false)?,
        other => other?,
    };
    s.sync_dir()?;
    let whole = log.len()? / RECORD as u64;
    let mut records = Vec::new();
    for i in 0..whole {
        let mut sector = [0; RECORD];
        log.read_at(&mut sector, i * RECORD as u64)?;
        if sector[0] == 0 {
            break;
        }
        assert!(sector.iter().all(|b| *b == sector[0]));
        records.push(sector[0]);
    }
    Ok((log, records))
}

/// Appends records from several threads; `acked` gets each one after its sync. A wrong
/// program acknowledges before the sync.
fn program(s: SimStorage, acked: Arc<Mutex<Vec<u8>>>, wrong: bool) {
    let Ok((log, records)) = recover(&s) else {
        return;
    };
    let end = Arc::new(Mutex::new(records.len() as u64));
    let hs: Vec<_> = (0..3u8)
        .map(|_| {
            let (log, end, acked) = (log.clone(), end.clone(), acked.clone());
            thread::spawn("appender", move || {
                for _ in 0..4 {
                    let mut end = end.lock();
                    let n = *end as u8 + 1;
                    let at = *end * RECORD as u64;
                    if log.write_at(&[n; RECORD], at).is_err() {
                        return;
                    }
                    if wrong {
                        acked.lock().push(n);
                    }
                    if log.sync_data().is_err() {
                        return;
                    }
                    *end += 1;
                    if !wrong {
                        acked.lock().push(n);
                    }
                }
            })
        })
        .collect();
    hs.into_iter().for_each(|h| drop(h.join()));
}

/// Runs a few lives; true if nothing acknowledged was lost.
fn lives(seed: u64, wrong: bool) -> (bool, u64) {
    let out = Simulation::new(seed).run(move || {
        let mut rng = Rng::new(seed);
        let disk = SimStorage::new(seed);
        disk.set_power_off_hook(sim::crash);
        let d = disk.clone();
        sim::set_crash_hook(move || d.power_off());
        let mut good = true;
        // Not a lock of the program: it outlives the crash.
        let acked = Arc::new(Mutex::new(Vec::new()));
        for _ in 0..3 {
            let (s, a) = (disk.boot(), acked.clone());
            let h = sim::spawn("program", move || program(s, a, wrong));
            if rng.chance(1, 2) {
                sim::crash_after_steps(Some(1 + rng.below(400)));
            } else {
                disk.power_off_after(1 + rng.below(40));
            }
            let _ = h.join();
            sim::crash();
            disk.crash(&mut rng);
            let (_, records) = recover(&disk).unwrap();
            good &= acked.lock().iter().all(|n| records.contains(n));
        }
        good
    });
    let out = out.unwrap_or_else(|e| panic!("seed {seed}: {e}"));
    assert_eq!(out.report.leaked, 0);
    (out.value, out.report.trace_hash)
}

#[test]
fn acknowledged_records_survive_and_runs_repeat() {
    for seed in 0..150 {
        let first = lives(seed, false);
        assert!(first.0, "seed {seed}");
        assert_eq!(first, lives(seed, false), "seed {seed}");
    }
}

#[test]
fn early_acknowledgement_is_found() {
    let found = (0..100).filter(|seed| !lives(*seed, true).0).count();
    assert!(found > 5, "{found}");
}
