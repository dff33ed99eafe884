//! `ferrite-rewind` and `ferrite-check` as programs, on a directory of the real disk. One program: to compile and link each of its
//! modules by itself would take several times as long.

mod place;
mod prepared;
mod rewind;
mod salvage;
