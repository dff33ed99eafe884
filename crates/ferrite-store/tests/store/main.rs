//! The page store on the simulated disk.
//! One program: to compile and link each of its modules by itself would take several times as long.

mod common;

mod backup;
mod crash;
mod damage;
mod deltas;
mod pages;
mod reserve;
mod tier;
