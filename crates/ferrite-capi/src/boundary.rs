//! Where errors become codes and panics stop.

use crate::abi::*;
use ferrite_engine::Xid;
use ferrite_types::format::Packing;
use ferrite_types::{Error, ForeignMisfit, Result};
use std::cell::RefCell;
use std::ffi::{c_char, CStr, CString};

thread_local! {
    static LAST_ERROR: RefCell<CString> = RefCell::new(CString::default());
    static LAST_MISFIT: RefCell<Option<ForeignMisfit>> = const { RefCell::new(None) };
}

fn code_of(error: &Error) -> fe_code {
    match error {
        Error::NotFound | Error::ValueGone(_) => FE_NOT_FOUND,
        Error::Exists => FE_EXISTS,
        Error::Duplicate => FE_DUPLICATE,
        Error::LockTimeout => FE_LOCK_TIMEOUT,
        Error::Deadlock => FE_DEADLOCK,
        Error::Interrupted => FE_INTERRUPTED,
        Error::Skipped => FE_SKIPPED,
        Error::RolledBack => FE_ROLLED_BACK,
        Error::RecordChanged => FE_RECORD_CHANGED,
        Error::SnapshotTooOld => FE_SNAPSHOT_TOO_OLD,
        Error::DiskFull(_) => FE_DISK_FULL,
        Error::Io(_) | Error::Shortage(_) => FE_IO,
        Error::Corrupt(_) => FE_CORRUPT,
        Error::Format(_) => FE_FORMAT,
        Error::InUse(_) => FE_IN_USE,
        Error::BadConfig(_) => FE_BAD_CONFIG,
        Error::RowTooBig => FE_ROW_TOO_BIG,
        Error::KeyTooLong => FE_KEY_TOO_LONG,
        Error::LockTableFull => FE_LOCK_TABLE_FULL,
        Error::TableChanged => FE_TABLE_CHANGED,
        Error::Unsupported(_) => FE_UNSUPPORTED,
        Error::Same => FE_SAME,
        Error::Bug(_) => FE_BUG,
        Error::ForeignKey(_) => FE_FOREIGN_KEY,
        Error::Referenced(_) => FE_REFERENCED,
    }
}

/// The code of a failure, its text kept for `fe_last_error`. The frequent answers that are no
/// failures (no row, duplicate) keep no text.
pub(crate) fn fail(error: &Error) -> fe_code {
    let code = code_of(error);
    if let Error::ForeignKey(misfit) = error {
        LAST_MISFIT.with(|slot| *slot.borrow_mut() = Some((**misfit).clone()));
    }
    let is_gone = matches!(error, Error::ValueGone(_));
    if is_gone || (code != FE_NOT_FOUND && code != FE_DUPLICATE) {
        remember(error);
    }
    code
}

/// Keeps the text of a failure for `fe_last_error`.
pub(crate) fn remember(error: &Error) {
    let text = c_text(&error.to_string());
    LAST_ERROR.with(|slot| *slot.borrow_mut() = text);
}

/// What was wrong with a foreign key, the last time in this thread.
pub(crate) fn last_misfit() -> Option<ForeignMisfit> {
    LAST_MISFIT.with(|slot| slot.borrow().clone())
}

/// The caller's value of an enum is none that the header has. Nothing is taken for it.
#[cold]
pub(crate) fn unknown<T>(of: &str, value: std::ffi::c_int) -> Result<T> {
    Err(Error::Bug(format!("{of} {value} is unknown")))
}

pub(crate) fn code(result: Result<()>) -> fe_code {
    match result {
        Ok(()) => FE_OK,
        Err(e) => fail(&e),
    }
}

/// Text as a C string; a zero byte in it becomes a space.
pub(crate) fn c_text(text: &str) -> CString {
    CString::new(text.replace('\0', " ")).unwrap_or_default()
}

/// A C string as text; lossy, empty for NULL.
///
/// # Safety
/// The header's rule: a string handed in is NUL-terminated and readable during the call.
pub(crate) unsafe fn text(ptr: *const c_char) -> String {
    if ptr.is_null() {
        return String::new();
    }
    // SAFETY: by the caller's promise.
    unsafe { CStr::from_ptr(ptr) }
        .to_string_lossy()
        .into_owned()
}

/// Text of the calling thread's last failure.
#[no_mangle]
pub extern "C" fn fe_last_error() -> *const c_char {
    LAST_ERROR.with(|slot| slot.borrow().as_ptr())
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn fe_damaged(what: *const c_char) -> fe_code {
    // SAFETY: the header's rule for strings handed in.
    fail(&Error::Corrupt(unsafe { text(what) }))
}

/// Version of the engine.
#[no_mangle]
pub extern "C" fn fe_version() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}

/// # Safety
/// A valid xid.
pub(crate) unsafe fn xid_of(xid: *const fe_xid) -> Xid {
    // SAFETY: by the caller's promise.
    let xid = unsafe { &*xid };
    let len = ((xid.gtrid_len + xid.bqual_len) as usize).min(128);
    Xid {
        format_id: xid.format_id,
        gtrid_len: xid.gtrid_len,
        data: xid.data[..len].to_vec(),
    }
}

/// A number of the header's: a codec, and a level in the bits above it.
pub(crate) fn packing_of(number: u32) -> Result<Packing> {
    let packing = u8::try_from(number).ok().and_then(Packing::from_u8);
    packing.ok_or_else(|| Error::BadConfig(format!("compression {number} of a table")))
}
