//! Tables that travel: a table's rows and index entries in one file, and back into a table of another
//! server.
//!
//! `format`: the file. `export`: writing it, from one snapshot. `import`: filling new trees from it,
//! which then take the place of an empty table's.
//!
//! Locking: see each file; the server's metadata locks keep writers away from a table that is exported,
//! and everybody from one that is imported.

mod export;
mod format;
mod import;

pub use export::ExportAbout;
pub use import::ImportFrom;
