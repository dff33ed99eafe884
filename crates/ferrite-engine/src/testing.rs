//! What the unit tests of this crate have in common: a small database on a simulated disk.

use crate::catalog::spec::{IndexSpec, TableSpec};
use crate::catalog::table::Table;
use crate::{Config, Engine, SilentCallbacks};
use ferrite_io::sim::SimStorage;
use ferrite_sync::Arc;
use ferrite_types::{Lsn, PageId};

pub(crate) fn config() -> Config {
    Config {
        buffer_pool_size_bytes: 4 << 20,
        log_budget_bytes: 4 << 20,
        log_segment_bytes: 1 << 20,
        log_ring_bytes: 1 << 20,
        direct_io: false,
        ..Config::default()
    }
}

pub(crate) fn open_with(disk: &SimStorage, config: Config) -> Arc<Engine> {
    let storage = Arc::new(disk.boot());
    Engine::open(config, storage, Arc::new(SilentCallbacks)).unwrap()
}

pub(crate) fn open(disk: &SimStorage) -> Arc<Engine> {
    open_with(disk, config())
}

/// A new table `d/t` with a primary key alone.
pub(crate) fn create(engine: &Engine) -> Arc<Table> {
    let spec = TableSpec::new("d/t", vec![IndexSpec::new("PRIMARY", true, 1)]);
    engine.dict.create_table(spec, 1).unwrap()
}

/// Everything is written, and pages leave memory until that one has.
pub(crate) fn out_of_memory(engine: &Engine, page: PageId) {
    engine.pool.flush_all_below(Lsn::MAX).unwrap();
    let mut held = Vec::new();
    while engine.store.directory().get(page).as_frame().is_some() {
        held.extend(engine.pool.reserve(1).unwrap());
    }
}
