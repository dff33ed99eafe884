//! Which tables there are, and what each has in memory while it is in use.
//!
//! `spec`: a table's definition and its encoding. `table`: a table in use, with its trees, counters and
//! AUTO_INCREMENT. `dictionary`: tables by name and id. `delete_archive`: deleted entries that old
//! snapshots need. `load_buffer`: rows of a table that is being filled.
//!
//! Locking: see each file; the dictionary's mutex is taken before a table's.

pub(crate) mod delete_archive;
pub(crate) mod dictionary;
pub(crate) mod load_buffer;
pub(crate) mod spec;
pub(crate) mod table;
