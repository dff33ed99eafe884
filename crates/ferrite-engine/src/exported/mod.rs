//! Tables that travel: a table's rows and index entries in one file, and back into a table of another
//! server.
//!
//! `format`: the file. `export`: writing it, from one snapshot. `import`: new trees that take the
//! place of an empty table's; `fill`: filling them from the file.
//!
//! Locking: see each file; the server's metadata locks keep writers away from a table that is exported,
//! and everybody from one that is imported.

mod export;
mod fill;
mod format;
mod import;

pub use export::ExportAbout;
pub use import::ImportFrom;
