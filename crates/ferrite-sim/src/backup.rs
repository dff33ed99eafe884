//! Hot backups: begun before the clients work, fixed when they have ended, copied while pages move.
//! The next life finds what was restored from it in place of its disk, so that `verify` proves it.
//!
//! Between point in time and end nothing changes that the model knows of: tables of a database that
//! it does not know are filled and emptied, so that pages are written and places used again.
//!
//! Locking: none over a call of the engine.

use crate::environment::Environment;
use crate::guarded::Guarded;
use crate::plan::FaultMode;
use ferrite_engine::{BackupLimits, BackupPhase, BackupPlace, Chain, DdlCaller, DupInfo, Engine};
use ferrite_engine::{IndexSpec, TableSpec};
use ferrite_io::sim::SimStorage;
use ferrite_sync::random::Rng;
use ferrite_sync::{sim, thread, Arc};
use ferrite_types::Error;

/// The table that nobody else knows.
const CHURN: &str = "churn/x";
/// Rounds of churn that a backup may take.
const MOST_ROUNDS: u64 = 400;

/// A backup that waits for its point in time.
pub struct Begun {
    to: SimStorage,
    rng: Rng,
}

/// Begins one if the run has backups.
pub fn begin(
    environment: &Environment,
    engine: &Arc<Engine>,
    seed: u64,
) -> Result<Option<Begun>, Error> {
    let mut rng = Rng::new(seed);
    // What is known of a damaged disk is not known of its copy.
    let extra = &environment.plan.extra;
    let damaged = extra.lost_writes || extra.file_damage;
    let sound = environment.plan.faults == FaultMode::PowerOnly && !damaged;
    if !extra.backup || !sound || rng.chance(1, 3) {
        return Ok(None);
    }
    let to = SimStorage::new(seed);
    let place = BackupPlace {
        storage: environment.view(to.clone()),
        name: "backup".to_owned(),
    };
    let limits = BackupLimits {
        kept_bytes: 0,
        bytes_per_s: rng.between(1, 8) << 21,
    };
    engine.begin_backup(place, None, limits, 1)?;
    Ok(Some(Begun { to, rng }))
}

/// Fixes it, now that nobody works, and waits for its end: what is restored from it.
pub fn finish(
    environment: &Environment,
    engine: &Arc<Engine>,
    begun: Option<Begun>,
) -> Result<Option<SimStorage>, Error> {
    let Some(Begun { to, mut rng }) = begun else {
        return Ok(None);
    };
    engine.fix_backup()?;
    sim::note("backup fixed");
    let mut rounds = 0;
    while engine.backup_info().phase == BackupPhase::Copying {
        churn(engine, &mut rng)?;
        rounds += 1;
        assert!(rounds < MOST_ROUNDS, "the backup does not end");
    }
    engine.wait_for_backup();
    let info = engine.backup_info();
    assert!(
        info.phase == BackupPhase::Complete,
        "backup: {}",
        info.error
    );
    assert!(
        (info.kept_log_bytes, info.withheld_bytes) == (0, 0),
        "kept behind its end: {info:?}"
    );
    restored(environment, &to).map(Some)
}

fn restored(environment: &Environment, from: &SimStorage) -> Result<SimStorage, Error> {
    let chain = Chain::open(vec![("backup".to_owned(), environment.view(from.clone()))])?;
    chain.verify(&mut |_| {})?;
    let copy = SimStorage::new(1);
    chain.restore(&environment.view(copy.clone()), &mut |_| {})?;
    // What is not durable is not there.
    copy.crash_clean();
    sim::note("backup restored");
    Ok(copy)
}

/// Pages are written to wherever there is room, by a table that is filled and dropped.
fn churn(engine: &Arc<Engine>, rng: &mut Rng) -> Result<(), Error> {
    let spec = TableSpec::new(CHURN, vec![IndexSpec::new("PRIMARY", true, 1)]);
    match engine.drop_table(CHURN, &DdlCaller::default()) {
        Ok(()) | Err(Error::NotFound) => {}
        Err(e) => return Err(e),
    }
    let table = engine.dict().create_table(spec, 1)?;
    // A crash unwinds through here, perhaps in the middle of a commit.
    let mut session = Guarded::new(engine, 1);
    let payload = vec![0; 3000];
    for n in 0..rng.between(5, 40) {
        let key = n.to_be_bytes();
        session.get().insert_row(
            &table,
            Some(&key),
            &payload,
            &[],
            false,
            &mut DupInfo::default(),
        )?;
    }
    match rng.chance(1, 2) {
        true => session.get().commit(false)?,
        false => session.get().rollback()?,
    }
    drop((session, table));
    engine.checkpoint()?;
    thread::sleep_us(rng.below(100_000));
    match engine.drop_table(CHURN, &DdlCaller::default()) {
        Ok(()) | Err(Error::NotFound) => Ok(()),
        Err(e) => Err(e),
    }
}
