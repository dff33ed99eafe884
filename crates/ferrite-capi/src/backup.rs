//! Hot backups: begun, fixed, ended, looked at.
//!
//! Locking: none of its own.

use crate::abi::*;
use crate::boundary::{c_text, code, text};
use crate::engine::{engine_of, fe_engine};
use ferrite_engine::{BackupLimits, BackupPlace, Engine};
use ferrite_io::RealStorage;
use ferrite_sync::Arc;
use ferrite_types::{Error, Result};
use std::ffi::{c_char, c_int, c_void};
use std::path::Path;

/// What the caller plans, in our types.
struct Plan {
    dir: String,
    base: String,
    owner: u64,
    limits: BackupLimits,
}

fn begin(engine: &Arc<Engine>, plan: &Plan) -> Result<()> {
    for name in [&plan.dir, &plan.base] {
        if !name.is_empty() && !Path::new(name).is_absolute() {
            let text = format!("{name} is not an absolute path");
            return Err(Error::BadConfig(text));
        }
    }
    let base = match plan.base.is_empty() {
        true => None,
        false => Some(place(
            &plan.base,
            RealStorage::existing(Path::new(&plan.base))?,
        )),
    };
    let (storage, made) = RealStorage::empty(Path::new(&plan.dir))?;
    let to = place(&plan.dir, storage);
    let begun = engine.begin_backup(to, base, plan.limits, plan.owner);
    if begun.is_err() && made {
        // If something is in it after all, it is in nobody's way.
        let _ = RealStorage::remove_empty(Path::new(&plan.dir));
    }
    begun
}

fn place(name: &str, storage: RealStorage) -> BackupPlace {
    BackupPlace {
        storage: Arc::new(storage),
        name: name.to_owned(),
    }
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn fe_backup_begin(
    engine: *mut fe_engine,
    plan: *const fe_backup_plan,
) -> fe_code {
    // SAFETY: the header's rules: a valid handle, plan and strings.
    let (engine, plan) = unsafe {
        let plan = &*plan;
        let ours = Plan {
            dir: text(plan.dir),
            base: text(plan.base),
            owner: plan.owner,
            limits: BackupLimits {
                kept_bytes: plan.kept_bytes,
                bytes_per_s: plan.bytes_per_s,
            },
        };
        (engine_of(engine), ours)
    };
    code(begin(engine, &plan))
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn fe_backup_fix(engine: *mut fe_engine) -> fe_code {
    // SAFETY: a valid handle.
    code(unsafe { engine_of(engine) }.fix_backup().map(|_| ()))
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn fe_backup_waits(engine: *mut fe_engine) -> c_int {
    // SAFETY: a valid handle.
    c_int::from(unsafe { engine_of(engine) }.backup_waits())
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn fe_backup_end(
    engine: *mut fe_engine,
    owner: u64,
    why: *const c_char,
) -> c_int {
    // SAFETY: a valid handle and string.
    let (engine, why) = unsafe { (engine_of(engine), text(why)) };
    c_int::from(engine.end_backup((owner != 0).then_some(owner), &why))
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn fe_backup_info(
    engine: *mut fe_engine,
    each: unsafe extern "C" fn(*mut c_void, *const fe_backup_row),
    arg: *mut c_void,
) {
    // SAFETY: a valid handle.
    let info = unsafe { engine_of(engine) }.backup_info();
    let (state, dir) = (c_text(info.phase.name()), c_text(&info.dir));
    let (base, error) = (c_text(&info.base), c_text(&info.error));
    let row = fe_backup_row {
        state: state.as_ptr(),
        dir: dir.as_ptr(),
        base: base.as_ptr(),
        error: error.as_ptr(),
        id: info.id,
        owner: info.owner,
        started_unix_s: info.started_unix_s,
        position: info.position.0,
        page_bytes: info.page_bytes,
        copied_bytes: info.copied_bytes,
        kept_log_bytes: info.kept_log_bytes,
        withheld_bytes: info.withheld_bytes,
    };
    // SAFETY: the callback takes what the header says; the texts live until it returns.
    unsafe { each(arg, &row) }
}
