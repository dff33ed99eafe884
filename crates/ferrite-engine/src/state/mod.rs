//! What an open database consists of: the parts below this crate, and the passive state that
//! everything above shares.
//!
//! `engine`: owns all of it. `config`, `callbacks`: what the server sets and answers. `counters`.
//! `transaction`: its id, phase and what it holds; of that, `slot`: what others see of it, and
//! `slot_figures`: what is shown of it;
//! `undo_list`, its file `undo_area`, and `known_undo`: by key; `touched` and `changed`: the indexes and tables it has changed; `garbage`: what it
//! will leave. `prepared` and `unsettled`: those without a session; `deciding`: commits of them that go on; `made_again`: how far the versions of one were made again; `prepared_on`: what prepared ones have changed. `purge_queue` and `purge_work`: what is to be
//! purged; `page_set`, `sweeps`: of large transactions. `backup`: what is known of the backup that runs; `snapshots`: of those that are kept;
//! `log_floor`: the log that either needs. `making_room`: what gives way on a full disk. `throttle`: what writes pay for the log's budget.
//!
//! Locking: see each file.

pub(crate) mod backup;
pub(crate) mod callbacks;
pub(crate) mod changed;
pub(crate) mod config;
pub(crate) mod counters;
pub(crate) mod deciding;
pub(crate) mod engine;
pub(crate) mod garbage;
pub(crate) mod known_undo;
pub(crate) mod log_floor;
pub(crate) mod made_again;
pub(crate) mod making_room;
pub(crate) mod marked_keys;
pub(crate) mod page_set;
pub(crate) mod prepared;
pub(crate) mod prepared_on;
pub(crate) mod purge_queue;
pub(crate) mod purge_work;
pub(crate) mod slot;
pub(crate) mod slot_figures;
pub(crate) mod snapshots;
pub(crate) mod sweeps;
pub(crate) mod throttle;
pub(crate) mod touched;
pub(crate) mod transaction;
pub(crate) mod undo_area;
pub(crate) mod undo_list;
pub(crate) mod unsettled;
