//! The C boundary: the only crate the C++ side sees. `include/ferrite.h` is its contract; the
//! types in `abi` mirror it.
//!
//! Every export is a thin wrapper: check pointers, turn slices into `&[u8]`, call the engine,
//! turn the result into a code. A panic in the core is logged with its place and aborts the
//! process (the shipped profile aborts; see `boundary`).
//!
//! Unsafe: pointers from C. Each export's contract is the header's; `// SAFETY:` comments
//! name the rule they rely on.

#![allow(clippy::missing_safety_doc)]
#![allow(non_camel_case_types)]

pub mod abi;
mod alter;
mod backup;
mod boundary;
mod callbacks;
mod cursor;
mod encryption;
mod engine;
mod exported;
mod foreign;
mod introspection;
mod kept;
mod keys;
mod links;
mod observer;
mod rows;
mod second_tier;
mod session;
mod table;

/// What the core has of the heap is counted, for `FERRITE_MEMORY` and the memory budget.
#[global_allocator]
static ALLOCATOR: ferrite_sync::memory::Counted = ferrite_sync::memory::Counted;
