//! What is on disk, whoever ends when: restarts, crashes, recovery, dropped tables, backups, snapshots, exported tables, checks.
//! One program: to compile and link each of its modules by itself would take several times as long.

#[path = "../common/mod.rs"]
mod common;

mod backup;
mod beside;
mod check_beside;
mod damaged;
mod decided_at_start;
mod dropped;
mod exported;
mod files;
mod half_undone;
mod known_undo;
mod life;
mod offline;
mod redo_of_batches;
mod redo_put_off;
mod scrub;
mod snapshots;
