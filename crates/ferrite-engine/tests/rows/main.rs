//! What sessions read, write and lock: rows, values out of line, scans, ranges, gaps, and what is changed without being read.
//! One program: to compile and link each of its modules by itself would take several times as long.

#[path = "../common/mod.rs"]
mod common;

mod ahead;
mod change_buffer;
mod deltas;
mod gaps;
mod index_build;
mod long_keys;
mod many_values;
mod own_changes;
mod queue;
mod reads;
mod reference;
mod row_cache;
mod row_count;
mod semi_consistent;
mod undone_inserts;
mod values;
mod waits;
