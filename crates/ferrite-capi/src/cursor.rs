//! Cursors. A slice handed out lives in the cursor's buffers until its next call.

use crate::abi::*;
use crate::boundary::fail;
use crate::session::{fe_session, session_of};
use crate::table::{fe_table, table_of};
use ferrite_engine::{Cursor, ReadMode, Row, SeekMode, WaitMode};
use ferrite_types::{Error, Result};
use std::ffi::c_int;

/// A position in one index, for one session.
pub struct fe_cursor {
    cursor: Cursor,
    session: *mut fe_session,
}

fn read_mode(mode: c_int) -> ReadMode {
    match mode {
        1 => ReadMode::Shared,
        2 => ReadMode::Exclusive,
        _ => ReadMode::Snapshot,
    }
}

fn wait_mode(wait: c_int) -> WaitMode {
    match wait {
        1 => WaitMode::NoWait,
        2 => WaitMode::SkipLocked,
        _ => WaitMode::Wait,
    }
}

/// # Safety
/// `out` is a place for the answer.
unsafe fn give(result: Result<Row<'_>>, out: *mut fe_row, none: fe_code) -> fe_code {
    match result {
        Ok(row) => {
            // SAFETY: by the caller's promise.
            unsafe {
                *out = fe_row {
                    key: fe_slice::of(row.key),
                    payload: fe_slice::of(row.payload),
                    pk: fe_slice::of(row.pk),
                };
            }
            FE_OK
        }
        Err(Error::NotFound) => none,
        Err(e) => fail(&e),
    }
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn fe_cursor_open(
    session: *mut fe_session,
    table: *mut fe_table,
    index_no: u32,
    mode: c_int,
    wait: c_int,
    out: *mut *mut fe_cursor,
) -> fe_code {
    // SAFETY: valid handles and a place for the answer.
    unsafe {
        let table = &table_of(table).table;
        if index_no as usize >= table.index_count() {
            *out = std::ptr::null_mut();
            return fail(&Error::Bug(format!("no index {index_no}")));
        }
        let cursor = Cursor::new(table, index_no as usize, read_mode(mode), wait_mode(wait));
        *out = Box::into_raw(Box::new(fe_cursor { cursor, session }));
    }
    FE_OK
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn fe_cursor_close(cursor: *mut fe_cursor) {
    if !cursor.is_null() {
        // SAFETY: given back by its owner, once.
        drop(unsafe { Box::from_raw(cursor) });
    }
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn fe_cursor_reset(
    cursor: *mut fe_cursor,
    session: *mut fe_session,
    mode: c_int,
    wait: c_int,
) {
    // SAFETY: a valid handle.
    let handle = unsafe { &mut *cursor };
    handle.session = session;
    handle.cursor.reset(read_mode(mode), wait_mode(wait));
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn fe_cursor_seek(
    cursor: *mut fe_cursor,
    key: fe_slice,
    mode: c_int,
    unique_exact: c_int,
    out: *mut fe_row,
) -> fe_code {
    let mode = match mode {
        0 => SeekMode::Exact,
        1 => SeekMode::AtOrAfter,
        2 => SeekMode::After,
        3 => SeekMode::AtOrBefore,
        4 => SeekMode::Before,
        _ => SeekMode::LastExact,
    };
    // SAFETY: valid handles and slice.
    unsafe {
        let handle = &mut *cursor;
        let session = session_of(handle.session);
        let row = handle
            .cursor
            .seek(session, key.bytes(), mode, unique_exact != 0);
        give(row, out, FE_NOT_FOUND)
    }
}

macro_rules! moves {
    ($($(#[$doc:meta])* $name:ident => $method:ident, $none:expr;)*) => {$(
        $(#[$doc])*
        #[no_mangle]
        pub unsafe extern "C" fn $name(cursor: *mut fe_cursor, out: *mut fe_row) -> fe_code {
            // SAFETY: valid handles and a place for the answer.
            unsafe {
                let handle = &mut *cursor;
                let session = session_of(handle.session);
                give(handle.cursor.$method(session), out, $none)
            }
        }
    )*};
}

moves! {
    /// See the header.
    fe_cursor_first => first, FE_END;
    /// See the header.
    fe_cursor_last => last, FE_END;
    /// See the header.
    fe_cursor_next => next, FE_END;
    /// See the header.
    fe_cursor_prev => prev, FE_END;
    /// See the header.
    fe_cursor_fetch_row => fetch_row, FE_NOT_FOUND;
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn fe_cursor_next_same(
    cursor: *mut fe_cursor,
    key: fe_slice,
    out: *mut fe_row,
) -> fe_code {
    // SAFETY: valid handles, slice and a place for the answer.
    unsafe {
        let handle = &mut *cursor;
        let session = session_of(handle.session);
        give(handle.cursor.next_same(session, key.bytes()), out, FE_END)
    }
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn fe_cursor_try_semi_consistent(cursor: *mut fe_cursor, yes: c_int) {
    // SAFETY: a valid handle.
    unsafe { (*cursor).cursor.try_semi_consistent(yes != 0) };
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn fe_cursor_was_semi_consistent(cursor: *const fe_cursor) -> c_int {
    // SAFETY: a valid handle.
    c_int::from(unsafe { (*cursor).cursor.was_semi_consistent() })
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn fe_cursor_set_bound(cursor: *mut fe_cursor, bound: fe_slice) {
    // SAFETY: a valid handle and slice.
    unsafe {
        let bytes = (!bound.ptr.is_null()).then(|| bound.bytes());
        (*cursor).cursor.set_bound(bytes);
    }
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn fe_cursor_unlock_row(cursor: *mut fe_cursor) {
    // SAFETY: valid handles.
    unsafe {
        let handle = &mut *cursor;
        handle.cursor.unlock_row(session_of(handle.session));
    }
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn fe_row_get(
    cursor: *mut fe_cursor,
    pk: fe_slice,
    out: *mut fe_row,
) -> fe_code {
    // SAFETY: valid handles and slice.
    unsafe {
        let handle = &mut *cursor;
        let session = session_of(handle.session);
        give(handle.cursor.get(session, pk.bytes()), out, FE_NOT_FOUND)
    }
}
