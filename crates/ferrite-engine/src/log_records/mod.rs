//! Bodies of the log records that this crate writes: their encoding, and nothing else.
//!
//! `undo`: the undo entry, and the opening of a mini-transaction that carries it. `ends`: COMMIT,
//! PREPARE and ROLLBACK_END. `values`: lists of values out of line. `xid`. What a record means at a
//! restart is in `startup::recovery`; operations on pages are `ferrite_tree::op`.
//!
//! Locking: none.

pub(crate) mod ends;
pub(crate) mod undo;
pub(crate) mod values;
pub(crate) mod xid;
