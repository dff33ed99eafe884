//! The power goes at every single I/O of a workload; what comes back is what the log says.

use crate::common::{self, small, Engine, Model};
use ferrite_io::sim::SimStorage;
use ferrite_store::Store;
use ferrite_sync::random::Rng;
use ferrite_types::{Error, Lsn};

/// Runs the workload until its end or an error.
fn work(engine: &mut Engine, rng: &mut Rng, steps: usize) -> Result<(), Error> {
    (0..steps).try_for_each(|_| engine.step(rng))
}

/// Power back, any part of what was not synced lost, any part of the log after its durable
/// end lost: the store is as that log says.
fn come_back(sim: &SimStorage, engine: Engine, rng: &mut Rng) -> Engine {
    let durable = engine
        .log
        .iter()
        .filter(|(end, _)| *end <= engine.durable)
        .count();
    let kept = rng.between(durable as u64, engine.log.len() as u64) as usize;
    let model = engine.model(kept);
    let (log, version) = (engine.log[..kept].to_vec(), engine.version);
    drop(engine);
    sim.crash(rng);
    let engine = Engine::recover(sim, &log, version).expect("recovery");
    engine.check(&model);
    engine
}

fn crash_at(seed: u64, call: u64, steps: usize) -> bool {
    let sim = SimStorage::new(seed);
    let mut engine = Engine::create(&sim, small()).unwrap();
    let mut rng = Rng::new(seed);
    sim.power_off_after(call);
    let died = work(&mut engine, &mut rng, steps).is_err();
    let mut crash_rng = Rng::new(seed * 1000 + call);
    let mut engine = come_back(&sim, engine, &mut crash_rng);
    // Life goes on, and another crash without any more I/O changes nothing.
    work(&mut engine, &mut crash_rng, 12).unwrap();
    come_back(&sim, engine, &mut crash_rng);
    died
}

#[test]
fn a_crash_at_every_io() {
    for seed in [1, 2] {
        let mut call = 1;
        while crash_at(seed, call, 60) {
            call += 1;
        }
        assert!(call > 100, "only {call} calls");
    }
}

#[test]
fn a_long_life_with_many_crashes() {
    let sim = SimStorage::new(77);
    let mut rng = Rng::new(77);
    let mut engine = Engine::create(&sim, small()).unwrap();
    for _ in 0..60 {
        sim.power_off_after(rng.between(1, 250));
        let _ = work(&mut engine, &mut rng, 80);
        engine = come_back(&sim, engine, &mut rng);
    }
}

#[test]
fn a_crash_at_every_io_of_creation() {
    for call in 1.. {
        let sim = SimStorage::new(call);
        sim.power_off_after(call);
        let created = Store::create(common::disk(&sim), small()).map(|_| ());
        sim.crash(&mut Rng::new(call));
        match Store::open(common::disk(&sim), small()) {
            Ok((store, checkpoint)) => {
                store.finish_recovery().unwrap();
                assert_eq!(checkpoint.redo_start, Lsn::ZERO);
                let again = Store::create(common::disk(&sim), small()).map(|_| ());
                assert_eq!(again, Err(Error::Exists));
            }
            Err(e) => {
                assert_eq!(e, Error::NotFound);
                assert!(created.is_err());
                let mut engine = Engine::create(&sim, small()).unwrap();
                work(&mut engine, &mut Rng::new(3), 20).unwrap();
            }
        }
        if created.is_ok() {
            assert!(call > 5);
            return;
        }
    }
}

/// An old blob keeps its bytes until the record that moves the page is durable.
#[test]
fn old_blobs_stay_until_the_move_is_durable() {
    let sim = SimStorage::new(4);
    let mut engine = Engine::create(&sim, small()).unwrap();
    let page = engine.alloc(ferrite_types::IndexId(1));
    engine.write(&[page]).unwrap();
    engine.flush();
    let first = engine.store.directory().get(page).as_location().unwrap();
    let durable = engine.durable;
    for _ in 0..200 {
        engine.write(&[page]).unwrap();
        engine.store.reclaim(durable);
        common::check_page(&engine.store, page, first, 1);
    }
    assert!(engine.store.retired_bytes() > 200 * 4096);
    engine.store.reclaim(Lsn(engine.end().0 - 1));
    let last_but_one = engine.store.retired_bytes();
    assert!(last_but_one > 0 && last_but_one <= 5 * 4096);
    engine.flush();
    assert_eq!(engine.store.retired_bytes(), 0);
    let model: Model = engine.model(engine.log.len());
    engine.check(&model);
}

/// The dump may run while pages move; with the log from its base on, it is exact.
#[test]
fn a_fuzzy_dump_and_the_log_agree() {
    let sim = SimStorage::new(5);
    let mut rng = Rng::new(5);
    let mut engine = Engine::create(&sim, small()).unwrap();
    work(&mut engine, &mut rng, 100).unwrap();
    for _ in 0..20 {
        let base = engine.end();
        work_quietly(&mut engine, &mut rng);
        let map = engine.store.dump_map(base, &|_, _| None).unwrap();
        engine.flush();
        let checkpoint = ferrite_store::Checkpoint {
            redo_start: base,
            map,
            state: Vec::new(),
        };
        engine.store.write_checkpoint(&checkpoint).unwrap();
        engine = come_back(&sim, engine, &mut rng);
    }
}

/// Steps without checkpoints of their own.
fn work_quietly(engine: &mut Engine, rng: &mut Rng) {
    for _ in 0..10 {
        let page = engine.alloc(ferrite_types::IndexId(2 + rng.below(3) as u32));
        engine.write(&[page]).unwrap();
        if rng.chance(1, 4) {
            engine.free(page);
        }
        if rng.chance(1, 10) {
            engine.drop_index(ferrite_types::IndexId(3));
        }
    }
}
