//! The log on the simulated disk, under the simulated scheduler and on a real disk.
//! One program: to compile and link each of its modules by itself would take several times as long. Its tests run one
//! after the other, however many threads there are (`common::turn`).

mod common;

mod bench;
mod crash;
mod lost;
mod misread;
mod names;
mod round_trip;
mod sim;
mod slow_file;
mod stops;
mod written;
