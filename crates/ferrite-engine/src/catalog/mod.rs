//! Which tables there are, and what each has in memory while it is in use.
//!
//! `spec`: a table's definition and its encoding. `describe`: what the plugin says in it of columns
//! and keys, `cache_priority`: what it says of the pages' stay in memory. `foreign`: foreign keys and their encoding. `matching`: do they fit two tables.
//! `table`: a table in use, with its counters and AUTO_INCREMENT, `open_index`: an index of it,
//! with its tree. `links`: the foreign keys of a table in use. `turned_key`: the key of one table
//! as the other one of a foreign key has it. `dictionary`: tables by name and id. `delete_archive`:
//! deleted entries that old snapshots need. `load_buffer`: rows of a table that is being filled.
//!
//! Locking: see each file; the dictionary's mutex is taken before a table's.

pub(crate) mod cache_priority;
pub(crate) mod delete_archive;
pub mod describe;
pub(crate) mod dictionary;
pub(crate) mod foreign;
pub(crate) mod links;
pub(crate) mod load_buffer;
pub(crate) mod matching;
pub(crate) mod open_index;
pub(crate) mod spec;
pub(crate) mod table;
pub(crate) mod turned_key;
