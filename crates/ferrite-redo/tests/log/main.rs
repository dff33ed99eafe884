//! The log on the simulated disk, under the simulated scheduler and on a real disk.
//! One program: to compile and link each of its modules by itself would take several times as long.

mod common;

mod bench;
mod crash;
mod lost;
mod misread;
mod round_trip;
mod sim;
mod slow_file;
mod stops;
mod written;
