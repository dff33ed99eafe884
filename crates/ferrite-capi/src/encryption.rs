//! The key that the data key of a database is kept with: which it is, and another one.
//!
//! Locking: none of its own.

use crate::abi::*;
use crate::boundary::code;
use crate::engine::{fe_engine, handle_of};
use ferrite_types::Error;
use std::ffi::c_int;

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn fe_encryption_rotate(engine: *mut fe_engine, key_id: u32) -> fe_code {
    // SAFETY: a valid handle.
    let handle = unsafe { handle_of(engine) };
    let Some(kept) = handle.encryption.as_ref() else {
        let text = match handle.engine.is_encrypted() {
            true => "the snapshot that is open belongs to another server, which has its key",
            false => "the database is not encrypted",
        };
        return code(Err(Error::BadConfig(text.into())));
    };
    let id = match key_id {
        0 => kept.encryption.wrapped_by().id,
        id => id,
    };
    let rotated = kept.encryption.rotate(&*kept.beneath, &kept.keys, id);
    code(rotated.map(|_| ()))
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn fe_encryption_key(
    engine: *mut fe_engine,
    id: *mut u32,
    version: *mut u32,
) -> c_int {
    // SAFETY: a valid handle.
    let handle = unsafe { handle_of(engine) };
    let by = (handle.encryption.as_ref()).map(|kept| kept.encryption.wrapped_by());
    // SAFETY: two places for the answer.
    unsafe { (*id, *version) = by.map_or((0, 0), |by| (by.id, by.version)) };
    c_int::from(handle.engine.is_encrypted())
}
