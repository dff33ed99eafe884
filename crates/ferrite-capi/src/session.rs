//! Sessions and transactions.
//!
//! A handle is used by its connection's thread, except for `fe_session_interrupt`, which
//! touches only the lock owner, kept beside the session.

use crate::abi::*;
use crate::boundary::{code, fail, xid_of};
use crate::engine::{engine_of, fe_engine};
use ferrite_engine::{Engine, Isolation, Session};
use ferrite_lock::Owner;
use ferrite_sync::{Arc, Mutex};
use ferrite_types::UndoPosition;
use std::cell::UnsafeCell;
use std::ffi::{c_int, c_void};

/// One connection.
pub struct fe_session {
    session: UnsafeCell<Session>,
    owner: Mutex<Arc<Owner>>,
    engine: Arc<Engine>,
}

/// The session behind a handle.
///
/// # Safety
/// The header's rule: a valid handle, used by one thread at a time; the reference does not
/// outlive the export that asked for it.
pub(crate) unsafe fn session_of<'a>(session: *const fe_session) -> &'a mut Session {
    // SAFETY: by the caller's promise.
    unsafe { &mut *(*session).session.get() }
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn fe_session_new(
    engine: *mut fe_engine,
    thd: *mut c_void,
    thread_id: u64,
) -> *mut fe_session {
    // SAFETY: a valid handle.
    let engine = unsafe { engine_of(engine) };
    let session = Session::new(engine, thd as usize, thread_id);
    let owner = Mutex::new(session.owner().clone());
    Box::into_raw(Box::new(fe_session {
        session: UnsafeCell::new(session),
        owner,
        engine: engine.clone(),
    }))
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn fe_session_free(session: *mut fe_session) {
    if !session.is_null() {
        // SAFETY: given back by its owner, once.
        drop(unsafe { Box::from_raw(session) });
    }
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn fe_session_interrupt(session: *mut fe_session) {
    // SAFETY: a valid handle; only the owner beside the session is touched.
    unsafe {
        let owner = (*session).owner.lock().clone();
        (*session).engine.locks().interrupt(&owner);
    }
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn fe_session_set_lock_wait_timeout(session: *mut fe_session, ms: u32) {
    // SAFETY: a valid handle.
    unsafe { session_of(session) }.set_lock_wait_timeout_ms(u64::from(ms));
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn fe_txn_close_snapshot(session: *mut fe_session) {
    // SAFETY: a valid handle.
    unsafe { session_of(session) }.close_snapshot();
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn fe_session_set_snapshot_isolation(session: *mut fe_session, on: c_int) {
    // SAFETY: a valid handle.
    unsafe { session_of(session) }.set_snapshot_isolation(on != 0);
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn fe_stmt_begin(session: *mut fe_session, isolation: c_int) {
    let isolation = match isolation {
        FE_READ_UNCOMMITTED => Isolation::ReadUncommitted,
        FE_READ_COMMITTED => Isolation::ReadCommitted,
        FE_REPEATABLE_READ => Isolation::RepeatableRead,
        FE_SERIALIZABLE => Isolation::Serializable,
        // There is nobody to tell, and no level that may be taken for it.
        _ => panic!("isolation level {isolation}"),
    };
    // SAFETY: a valid handle.
    unsafe { session_of(session) }.begin_statement(isolation);
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn fe_stmt_end(session: *mut fe_session) {
    // SAFETY: a valid handle.
    unsafe { session_of(session) }.end_statement();
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn fe_stmt_rollback(session: *mut fe_session) -> fe_code {
    // SAFETY: a valid handle.
    code(unsafe { session_of(session) }.rollback_statement())
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn fe_txn_open_snapshot(session: *mut fe_session) -> fe_code {
    // SAFETY: a valid handle.
    unsafe { session_of(session) }.open_snapshot();
    FE_OK
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn fe_txn_is_active(session: *const fe_session) -> c_int {
    // SAFETY: a valid handle.
    c_int::from(unsafe { session_of(session) }.is_active())
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn fe_txn_has_changes(session: *const fe_session) -> c_int {
    // SAFETY: a valid handle.
    c_int::from(unsafe { session_of(session) }.has_changes())
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn fe_txn_id(session: *const fe_session) -> u64 {
    // SAFETY: a valid handle.
    unsafe { session_of(session) }.txn_id().0
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn fe_txn_commit(session: *mut fe_session, allow_async: c_int) -> fe_code {
    // SAFETY: a valid handle.
    code(unsafe { session_of(session) }.commit(allow_async != 0))
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn fe_txn_rollback(session: *mut fe_session) -> fe_code {
    // SAFETY: a valid handle.
    code(unsafe { session_of(session) }.rollback())
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn fe_txn_prepare(session: *mut fe_session, xid: *const fe_xid) -> fe_code {
    // SAFETY: a valid handle and xid.
    code(unsafe { session_of(session).prepare(&xid_of(xid)) })
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn fe_txn_release_reads(session: *mut fe_session, is_replica: c_int) {
    // SAFETY: a valid handle.
    let session = unsafe { session_of(session) };
    match is_replica != 0 {
        true => session.release_all_but_changes(),
        false => session.release_reads(),
    }
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn fe_txn_commit_ordered(session: *mut fe_session) -> c_int {
    // SAFETY: a valid handle; the group's leader acts for the connection, which waits.
    c_int::from(unsafe { session_of(session) }.commit_ordered())
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn fe_txn_commit_finish(session: *mut fe_session, wait: c_int) -> fe_code {
    // SAFETY: a valid handle.
    code(unsafe { session_of(session) }.commit_finish(wait != 0))
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn fe_txn_detach_prepared(
    session: *mut fe_session,
    is_worker: c_int,
) -> fe_code {
    // SAFETY: a valid handle.
    unsafe {
        let inner = session_of(session);
        match is_worker != 0 {
            true => inner.detach_prepared_of_worker(),
            false => inner.detach_prepared(),
        }
        *(*session).owner.lock() = inner.owner().clone();
    }
    FE_OK
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn fe_txn_commit_prepared(
    session: *mut fe_session,
    xid: *const fe_xid,
) -> fe_code {
    // SAFETY: a valid handle and xid.
    code(unsafe { session_of(session).commit_prepared(&xid_of(xid)) })
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn fe_savepoint_set(
    session: *mut fe_session,
    savepoint: *mut u64,
) -> fe_code {
    // SAFETY: a valid handle and a place for the answer.
    unsafe {
        match session_of(session).savepoint() {
            Ok(position) => *savepoint = position.0,
            Err(e) => return fail(&e),
        }
    }
    FE_OK
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn fe_row_before(session: *const fe_session) -> u64 {
    // SAFETY: a valid handle.
    unsafe { session_of(session) }.before_row().0
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn fe_rows_changed(session: *const fe_session) -> u64 {
    // SAFETY: a valid handle.
    unsafe { session_of(session) }.rows_changed()
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn fe_row_undo(session: *mut fe_session, position: u64) -> fe_code {
    // SAFETY: a valid handle.
    match unsafe { session_of(session) }.undo_row(UndoPosition(position)) {
        Ok(()) => FE_OK,
        Err(e) => fail(&e),
    }
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn fe_savepoint_rollback(
    session: *mut fe_session,
    savepoint: u64,
) -> fe_code {
    // SAFETY: a valid handle.
    match unsafe { session_of(session) }.rollback_to(UndoPosition(savepoint)) {
        Ok(()) => FE_OK,
        Err(e) => fail(&e),
    }
}
