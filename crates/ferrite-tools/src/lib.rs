//! Tools that read a database without a server: the verifier and the rescue of rows.
//!
//! # Modules
//! - `check`: verifies blobs, trees, indexes against rows, free space.
//! - `compare`: which rows and entries differ, once their sums do.
//! - `salvage`: writes the rows that can be read to files that LOAD DATA takes.
//! - `row`: a row's columns from key and payload; `text`: one value as LOAD DATA wants it.
//! - `ddl_log`: whether a server was killed in the middle of a DDL statement.
//! - `owner`: whether a program has the rights of the data's owner.
//! - `work`: many small jobs on all processors.
//! - `in_order`: the faults that these find.
//! - `keys`: keys of an encrypted database.
//! - `progress`: what is shown while one waits.
//!
//! # Invariants
//! 1. Nothing is written into the database's directory.
//! 2. Damage is reported with its place and costs what lies there, nothing else; no content
//!    of the files makes a tool panic.
#![forbid(unsafe_code)]

use ferrite_types::{Error, Result};

/// A line on standard error, or none: a program must not end in the middle because its log is on a disk that is full.
#[macro_export]
macro_rules! say {
    ($($words:tt)*) => {{
        use std::io::Write as _;
        let _ = writeln!(std::io::stderr(), $($words)*);
    }};
}

/// A line on standard output, or none: what is done is done, whoever hears of it.
#[macro_export]
macro_rules! tell {
    ($($words:tt)*) => {{
        use std::io::Write as _;
        let _ = writeln!(std::io::stdout(), $($words)*);
    }};
}

/// Writes the answer of a program that does nothing else. Whoever reads it may have closed the pipe.
///
/// # Errors
/// `Io`: it cannot be written.
pub fn answer(text: &str) -> Result<()> {
    use std::io::{ErrorKind, Write};
    let mut out = std::io::stdout();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(e) if e.kind() != ErrorKind::BrokenPipe => {
            Err(Error::Io(format!("write standard output: {e}")))
        }
        _ => Ok(()),
    }
}

pub mod check;
mod compare;
pub mod ddl_log;
mod in_order;
pub use ferrite_engine::describe;
pub mod keys;
pub mod owner;
pub mod progress;
pub mod row;
pub mod salvage;
pub mod text;
mod tree;
mod work;
