//! What the engine shows: figures, sections, transactions, locks, snapshots, waits.

use crate::abi::*;
use crate::boundary::c_text;
use crate::engine::{engine_of, fe_engine};
use ferrite_types::TableId;
use std::collections::HashMap;
use std::ffi::{c_char, c_int, c_void, CString};

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn fe_status_each(
    engine: *mut fe_engine,
    each: unsafe extern "C" fn(
        *mut c_void,
        *const c_char,
        u64,
        *const c_char,
        *const c_char,
        c_int,
    ),
    arg: *mut c_void,
) {
    // SAFETY: a valid handle; the callback takes what the header says.
    unsafe {
        for m in engine_of(engine).metrics() {
            let (name, part, comment) = (c_text(m.name), c_text(m.subsystem), c_text(m.comment));
            let rises = c_int::from(m.is_counter);
            each(
                arg,
                name.as_ptr(),
                m.value,
                part.as_ptr(),
                comment.as_ptr(),
                rises,
            );
        }
    }
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn fe_status_sections(
    engine: *mut fe_engine,
    each: unsafe extern "C" fn(*mut c_void, *const c_char, *const c_char),
    arg: *mut c_void,
) {
    // SAFETY: a valid handle; the callback takes what the header says.
    unsafe {
        for (name, text) in engine_of(engine).sections() {
            each(arg, c_text(name).as_ptr(), c_text(&text).as_ptr());
        }
    }
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn fe_each_trx(
    engine: *mut fe_engine,
    each: unsafe extern "C" fn(*mut c_void, *const fe_trx_row),
    arg: *mut c_void,
) {
    // SAFETY: a valid handle; the callback takes what the header says.
    unsafe {
        for row in engine_of(engine).trx_rows() {
            let state = c_text(row.state);
            let isolation = c_text(row.isolation);
            let out = fe_trx_row {
                txn_id: row.txn_id,
                thread_id: row.thread_id,
                started_unix_s: row.started_unix_s,
                rows_changed: row.rows_changed,
                locks_held: row.locks_held,
                undo_bytes: row.undo_bytes,
                waiting_since_unix_s: row.waiting_since_unix_s,
                state: state.as_ptr(),
                isolation: isolation.as_ptr(),
            };
            each(arg, &out);
        }
    }
}

/// Table and index of a lock, by their numbers.
type LockedNames = HashMap<(u32, Option<TableId>), (CString, CString)>;

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn fe_each_lock(
    engine: *mut fe_engine,
    each: unsafe extern "C" fn(*mut c_void, *const fe_lock_row) -> c_int,
    arg: *mut c_void,
) {
    // SAFETY: a valid handle; the callback takes what the header says.
    unsafe {
        let engine = engine_of(engine);
        let shown = engine.dict().names();
        let mut names = LockedNames::new();
        engine.locks().each_lock_while(&mut |info| {
            let (table, index) = names.entry((info.index.0, info.table)).or_insert_with(|| {
                let found = match info.table {
                    Some(table) => (shown.table(table).known()).map(|name| (name, String::new())),
                    None => shown.index(info.index).known(),
                };
                let (t, i) = found.unwrap_or_default();
                (c_text(&t), c_text(&i))
            });
            let mode = c_text(info.mode);
            let out = fe_lock_row {
                lock_id: info.id,
                txn_id: info.txn.0,
                thread_id: info.thread_id,
                mode: mode.as_ptr(),
                table: table.as_ptr(),
                index: index.as_ptr(),
                key: fe_slice::of(&info.key),
                until: fe_slice::of(&info.until),
                records: info.records,
                granted: c_int::from(!info.waiting),
                of_table: c_int::from(info.table.is_some()),
            };
            each(arg, &out) == 0
        });
    }
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn fe_each_lock_wait(
    engine: *mut fe_engine,
    each: unsafe extern "C" fn(*mut c_void, *const fe_lock_wait_row),
    arg: *mut c_void,
) {
    // SAFETY: a valid handle; the callback takes what the header says.
    unsafe {
        let mut rows = Vec::new();
        engine_of(engine)
            .locks()
            .each_wait(&mut |edge| rows.push(edge.clone()));
        for edge in &rows {
            let wanted = &edge.wanted;
            let out = fe_lock_wait_row {
                requesting_txn_id: wanted.txn.0,
                requesting_thread_id: wanted.thread_id,
                requested_lock_id: wanted.id,
                blocking_txn_id: edge.blocker_txn.0,
                blocking_lock_id: edge.blocker_id,
            };
            each(arg, &out);
        }
    }
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn fe_each_snapshot(
    engine: *mut fe_engine,
    each: unsafe extern "C" fn(*mut c_void, *const fe_snapshot_row),
    arg: *mut c_void,
) {
    // SAFETY: a valid handle; the callback takes what the header says.
    unsafe {
        for row in engine_of(engine).snapshot_rows() {
            let out = fe_snapshot_row {
                thread_id: row.thread_id,
                age_ms: row.age_ms,
                csn: row.csn,
                held_bytes: row.held_bytes,
                held_rows: row.held_rows,
            };
            each(arg, &out);
        }
    }
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn fe_each_wait(
    engine: *mut fe_engine,
    each: unsafe extern "C" fn(*mut c_void, *const fe_wait_row),
    arg: *mut c_void,
) {
    // SAFETY: a valid handle; the callback takes what the header says.
    unsafe {
        for sum in engine_of(engine).wait_sums() {
            let (reason, meaning) = (c_text(sum.reason), c_text(sum.meaning));
            let out = fe_wait_row {
                reason: reason.as_ptr(),
                meaning: meaning.as_ptr(),
                count: sum.count,
                sum_us: sum.sum_us,
                max_us: sum.max_us,
                p50_us: sum.p50_us,
                p99_us: sum.p99_us,
            };
            each(arg, &out);
        }
    }
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn fe_each_memory(
    engine: *mut fe_engine,
    each: unsafe extern "C" fn(*mut c_void, *const fe_memory_row),
    arg: *mut c_void,
) {
    // SAFETY: a valid handle; the callback takes what the header says.
    unsafe {
        for part in engine_of(engine).memory() {
            let (name, meaning) = (c_text(part.name), c_text(part.meaning));
            let out = fe_memory_row {
                part: name.as_ptr(),
                meaning: meaning.as_ptr(),
                bytes: part.bytes,
                limit_bytes: part.limit_bytes,
            };
            each(arg, &out);
        }
    }
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn fe_each_deadlock(
    engine: *mut fe_engine,
    each: unsafe extern "C" fn(*mut c_void, *const fe_deadlock_row),
    arg: *mut c_void,
) {
    // SAFETY: a valid handle; the callback takes what the header says.
    unsafe {
        for row in engine_of(engine).deadlock_rows() {
            let m = &row.member;
            let (table, index) = (c_text(&row.table), c_text(&row.index));
            let (waits_for, holds) = (c_text(m.wanted), c_text(m.held));
            let out = fe_deadlock_row {
                number: row.number,
                at_unix_us: row.at_unix_us,
                position: row.position as u64,
                victim: c_int::from(m.victim),
                thread_id: m.thread_id,
                txn_id: m.txn.0,
                rows_changed: m.changes,
                table: table.as_ptr(),
                index: index.as_ptr(),
                key: fe_slice::of(&m.key),
                waits_for: waits_for.as_ptr(),
                holds: holds.as_ptr(),
                query: fe_slice::of(&m.query),
            };
            each(arg, &out);
        }
    }
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn fe_each_long_wait(
    engine: *mut fe_engine,
    each: unsafe extern "C" fn(*mut c_void, *const fe_long_wait_row),
    arg: *mut c_void,
) {
    // SAFETY: a valid handle; the callback takes what the header says.
    unsafe {
        for row in engine_of(engine).long_waits() {
            let (reason, thread) = (c_text(row.reason), c_text(&row.thread));
            let (table, index) = (c_text(&row.table), c_text(&row.index));
            let out = fe_long_wait_row {
                ended_unix_us: row.ended_unix_us,
                waited_us: row.us,
                reason: reason.as_ptr(),
                thread_id: row.thread_id,
                thread: thread.as_ptr(),
                table: table.as_ptr(),
                index: index.as_ptr(),
                page: u64::from(row.page),
                holder_thread_id: row.holder_thread_id,
                query: fe_slice::of(&row.query),
                txn_id: row.txn,
            };
            each(arg, &out);
        }
    }
}
