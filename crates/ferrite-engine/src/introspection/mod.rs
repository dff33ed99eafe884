//! What users, tools and tests look at.
//!
//! `status`: transactions and snapshots as rows, SHOW ENGINE STATUS. `metric`, `engine_metrics`, `buffer_metrics`, `wait_metrics`: figures.
//! `memory`: memory by parts. `wait_report`: waits and deadlocks as rows. `check`: CHECK TABLE. `check_foreign`: its foreign
//! keys. `account`: who owns which page of values. `inspect`: for tests and the simulator.
//!
//! Locking: see each file.

pub(crate) mod account;
pub(crate) mod buffer_metrics;
pub(crate) mod check;
pub(crate) mod check_foreign;
pub(crate) mod engine_metrics;
pub(crate) mod inspect;
pub(crate) mod memory;
pub(crate) mod metric;
pub(crate) mod status;
pub(crate) mod wait_metrics;
pub(crate) mod wait_report;
