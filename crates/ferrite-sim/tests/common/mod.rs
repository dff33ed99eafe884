//! A small database on a simulated disk, for the specs beside.
#![allow(dead_code)]

use ferrite_engine::{Config, Engine, NoCallbacks};
use ferrite_io::sim::SimStorage;
use ferrite_io::Storage;
use ferrite_sync::Arc;

pub fn config() -> Config {
    Config {
        buffer_pool_size_bytes: 4 << 20,
        log_budget_bytes: 4 << 20,
        log_segment_bytes: 1 << 20,
        log_ring_bytes: 1 << 20,
        direct_io: false,
        ..Config::default()
    }
}

pub fn open(disk: &SimStorage) -> Arc<Engine> {
    open_as(disk, config())
}

pub fn open_as(disk: &SimStorage, config: Config) -> Arc<Engine> {
    let storage: Arc<dyn Storage> = Arc::new(disk.boot());
    Engine::open(config, storage, Arc::new(NoCallbacks)).unwrap()
}
