//! Snapshots that are kept: taken in steps, dropped, looked at.
//!
//! Locking: none of its own.

use crate::abi::*;
use crate::boundary::{c_text, code, text};
use crate::engine::{engine_of, fe_engine};
use ferrite_engine::snapshots::server_files::{self, RealDirectory};
use ferrite_engine::snapshots::{ServerState, SnapshotJob};
use ferrite_engine::Engine;
use ferrite_sync::Arc;
use ferrite_types::Result;
use std::ffi::{c_char, c_int, c_void};
use std::path::Path;

/// One that is being taken.
pub struct fe_kept_job {
    engine: Arc<Engine>,
    job: SnapshotJob,
    server: ServerState,
}

fn begin(engine: &Arc<Engine>, name: &str, thd: usize) -> Result<fe_kept_job> {
    Ok(fe_kept_job {
        engine: engine.clone(),
        job: engine.begin_snapshot_of(name, thd)?,
        server: ServerState::default(),
    })
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn fe_kept_begin(
    engine: *mut fe_engine,
    name: *const c_char,
    thd: *mut c_void,
    out: *mut *mut fe_kept_job,
) -> fe_code {
    // SAFETY: the header's rules: a valid handle, string and place for the result.
    unsafe {
        *out = std::ptr::null_mut();
        let begun = begin(engine_of(engine), &text(name), thd as usize);
        code(begun.map(|job| {
            *out = Box::into_raw(Box::new(job));
        }))
    }
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn fe_kept_files(job: *mut fe_kept_job, data_dir: *const c_char) -> fe_code {
    // SAFETY: a job of `fe_kept_begin` that was not ended, and a valid string.
    let (job, dir) = unsafe { (&mut *job, text(data_dir)) };
    let tables = job.engine.dict().table_names();
    let found = server_files::collect(&RealDirectory::new(Path::new(&dir)), &tables);
    code(found.map(|files| job.server.files = files))
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn fe_kept_fix(job: *mut fe_kept_job) {
    // SAFETY: a job of `fe_kept_begin` that was not ended.
    unsafe { &mut *job }.job.fix();
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn fe_kept_finish(
    job: *mut fe_kept_job,
    point: *const fe_kept_point,
) -> fe_code {
    // SAFETY: a job of `fe_kept_begin` is given back by its owner, once; a valid point.
    let (mut job, point) = unsafe { (Box::from_raw(job), &*point) };
    // SAFETY: the header's rule: strings or NULL.
    unsafe {
        job.server.binlog_file = text(point.binlog_file);
        job.server.gtid = text(point.gtid);
    }
    job.server.binlog_position = point.binlog_position;
    job.server.scheduled = point.scheduled != 0;
    let fe_kept_job { job, server, .. } = *job;
    code(job.finish(&server))
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn fe_kept_abandon(job: *mut fe_kept_job) {
    // SAFETY: a job of `fe_kept_begin` is given back by its owner, once.
    drop(unsafe { Box::from_raw(job) });
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn fe_kept_drop(
    engine: *mut fe_engine,
    name: *const c_char,
    thd: *mut c_void,
) -> fe_code {
    // SAFETY: a valid handle and string.
    let (engine, name) = unsafe { (engine_of(engine), text(name)) };
    code(engine.drop_snapshot_of(&name, thd as usize))
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn fe_kept_each(
    engine: *mut fe_engine,
    each: unsafe extern "C" fn(*mut c_void, *const fe_kept_row),
    arg: *mut c_void,
) {
    // SAFETY: a valid handle.
    for info in unsafe { engine_of(engine) }.kept_snapshots() {
        let (name, lost) = (c_text(&info.name), c_text(&info.lost));
        let (file, gtid) = (c_text(&info.binlog_file), c_text(&info.gtid));
        let row = fe_kept_row {
            name: name.as_ptr(),
            lost: lost.as_ptr(),
            binlog_file: file.as_ptr(),
            gtid: gtid.as_ptr(),
            binlog_position: info.binlog_position,
            taken_unix_s: info.taken_unix_s,
            position: info.position.0,
            file_bytes: info.file_bytes,
            changed_bytes: info.changed_bytes,
            scheduled: c_int::from(info.scheduled),
        };
        // SAFETY: the callback takes what the header says; the texts live until it returns.
        unsafe { each(arg, &row) }
    }
}
