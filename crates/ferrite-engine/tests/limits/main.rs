//! What meets its limit: memory for versions and history, a full disk, prepared transactions without a session.
//! One program: to compile and link each of its modules by itself would take several times as long.

#[path = "../common/mod.rs"]
mod common;

mod delete_archive;
mod full_disk;
mod history_memory;
mod huge;
mod log_room;
mod shown;
mod throttle;
mod xa;
