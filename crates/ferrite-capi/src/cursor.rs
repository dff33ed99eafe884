//! Cursors. A slice handed out lives in the cursor's buffers until its next call.

use crate::abi::*;
use crate::boundary::{fail, unknown};
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

fn read_mode(mode: c_int) -> Result<ReadMode> {
    match mode {
        FE_READ_SNAPSHOT => Ok(ReadMode::Snapshot),
        FE_READ_SHARED => Ok(ReadMode::Shared),
        FE_READ_EXCLUSIVE => Ok(ReadMode::Exclusive),
        _ => unknown("fe_lock_mode", mode),
    }
}

fn wait_mode(wait: c_int) -> Result<WaitMode> {
    match wait {
        FE_WAIT => Ok(WaitMode::Wait),
        FE_NOWAIT => Ok(WaitMode::NoWait),
        FE_SKIP_LOCKED => Ok(WaitMode::SkipLocked),
        _ => unknown("fe_wait_policy", wait),
    }
}

fn seek_mode(mode: c_int) -> Result<SeekMode> {
    match mode {
        FE_SEEK_EXACT => Ok(SeekMode::Exact),
        FE_SEEK_GE => Ok(SeekMode::AtOrAfter),
        FE_SEEK_GT => Ok(SeekMode::After),
        FE_SEEK_LE => Ok(SeekMode::AtOrBefore),
        FE_SEEK_LT => Ok(SeekMode::Before),
        FE_SEEK_LAST_EXACT => Ok(SeekMode::LastExact),
        _ => unknown("fe_seek_mode", mode),
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
        *out = std::ptr::null_mut();
        if index_no as usize >= table.index_count() {
            return fail(&Error::Bug(format!("no index {index_no}")));
        }
        let (mode, wait) = match (read_mode(mode), wait_mode(wait)) {
            (Ok(mode), Ok(wait)) => (mode, wait),
            (Err(e), _) | (_, Err(e)) => return fail(&e),
        };
        let cursor = Cursor::new(table, index_no as usize, mode, wait);
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
) -> fe_code {
    // SAFETY: a valid handle.
    let handle = unsafe { &mut *cursor };
    match (read_mode(mode), wait_mode(wait)) {
        (Ok(mode), Ok(wait)) => {
            handle.session = session;
            handle.cursor.reset(mode, wait);
            FE_OK
        }
        (Err(e), _) | (_, Err(e)) => fail(&e),
    }
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
    let mode = match seek_mode(mode) {
        Ok(mode) => mode,
        Err(e) => return fail(&e),
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
pub unsafe extern "C" fn fe_cursor_lock_rows_only(cursor: *mut fe_cursor) {
    // SAFETY: a valid handle.
    unsafe { (*cursor).cursor.lock_rows_only() };
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
