//! Hot backups: begun, fixed, ended, looked at.
//!
//! Locking: `backup_begins` of the engine's handle, outermost, from the look whether the directory is empty until
//! the backup has begun: of two that begin in one directory the second finds it not empty, and what it removes
//! when it fails is its own.

use crate::abi::*;
use crate::boundary::{c_text, code, text};
use crate::engine::{engine_of, fe_engine, handle_of};
use crate::keys::{backup_in, ServerKeys};
use ferrite_engine::{BackupLimits, BackupPlace};
use ferrite_io::{encryption, RealStorage, Storage};
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

fn begin(handle: &fe_engine, plan: &Plan) -> Result<()> {
    for name in [&plan.dir, &plan.base] {
        if !name.is_empty() && !Path::new(name).is_absolute() {
            let text = format!("{name} is not an absolute path");
            return Err(Error::BadConfig(text));
        }
    }
    let base = match plan.base.is_empty() {
        true => None,
        false => Some(BackupPlace {
            storage: backup_in(&plan.base, &ServerKeys::of(&handle.callbacks))
                .map_err(|e| of_base(&plan.base, e))?,
            name: plan.base.clone(),
        }),
    };
    let _alone = handle.backup_begins.lock();
    let (storage, made) = RealStorage::empty(Path::new(&plan.dir))?;
    let beneath: Arc<dyn Storage> = Arc::new(storage);
    let begun = encrypted_as(handle, &beneath).and_then(|storage| {
        let name = plan.dir.clone();
        let to = BackupPlace { storage, name };
        handle
            .engine
            .begin_backup(to, base, plan.limits, plan.owner)
    });
    if begun.is_err() {
        let _ = beneath.remove(encryption::NAME);
        if made {
            // If something is in it after all, it is in nobody's way.
            let _ = RealStorage::remove_empty(Path::new(&plan.dir));
        }
    }
    begun
}

/// What is wrong with the base, not with the database that is backed up.
fn of_base(dir: &str, e: Error) -> Error {
    match e {
        Error::BadConfig(text) => Error::BadConfig(format!("the base {dir}: {text}")),
        Error::Corrupt(text) => Error::Corrupt(format!("the base {dir}: {text}")),
        other => other,
    }
}

/// A backup of an encrypted database is encrypted with the same data key.
fn encrypted_as(handle: &fe_engine, beneath: &Arc<dyn Storage>) -> Result<Arc<dyn Storage>> {
    let Some(kept) = &handle.encryption else {
        return Ok(beneath.clone());
    };
    kept.encryption.share_with(&**beneath)?;
    Ok(Arc::new(kept.encryption.view(beneath.clone())))
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn fe_backup_begin(
    engine: *mut fe_engine,
    plan: *const fe_backup_plan,
) -> fe_code {
    // SAFETY: the header's rules: a valid handle, plan and strings.
    let (handle, plan) = unsafe {
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
        (handle_of(engine), ours)
    };
    code(begin(handle, &plan))
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
