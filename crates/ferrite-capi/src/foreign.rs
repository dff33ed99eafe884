//! Foreign keys: definitions in, a list of all out.

use crate::abi::*;
use crate::boundary::{c_text, last_misfit, text};
use crate::engine::{engine_of, fe_engine};
use ferrite_engine::{Action, ForeignKey, NewForeign};
use ferrite_types::{Error, Result};
use std::ffi::{c_char, c_void, CString};

fn put_name(name: &str, out: &mut [c_char; 256]) {
    *out = [0; 256];
    for (to, byte) in out[..255].iter_mut().zip(name.bytes()) {
        *to = byte as c_char;
    }
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn fe_last_misfit(out: *mut fe_fk_misfit) {
    // SAFETY: a place for the answer.
    let out = unsafe { &mut *out };
    let misfit = last_misfit();
    let misfit = misfit.as_ref();
    out.at = misfit.map_or(u32::MAX, |m| m.at);
    out.reason = misfit.map_or(0, |m| m.reason);
    put_name(misfit.map_or("", |m| &m.key), &mut out.key);
    put_name(misfit.map_or("", |m| &m.column), &mut out.column);
    put_name(misfit.map_or("", |m| &m.other), &mut out.other);
}

/// # Safety
/// The header's rule: so many valid pairs at `columns`.
pub(crate) unsafe fn pairs(columns: *const fe_fk_column, count: u32) -> Vec<(String, String)> {
    // SAFETY: by the caller's promise.
    let pair = |i: usize| unsafe {
        let pair = &*columns.add(i);
        (text(pair.own), text(pair.other))
    };
    (0..count as usize).map(pair).collect()
}

fn action(number: u32) -> Result<Action> {
    let action = u8::try_from(number).ok().and_then(Action::of);
    action.ok_or_else(|| Error::Bug(format!("FE_FK {number} is unknown")))
}

/// Foreign keys handed in.
///
/// # Safety
/// The header's rule: valid definitions during the call.
pub(crate) unsafe fn new_foreign(defs: &fe_fk_defs) -> Result<NewForeign> {
    let mut keys = Vec::new();
    for i in 0..defs.count as usize {
        // SAFETY: by the caller's promise.
        let (def, key) = unsafe {
            let def = &*defs.defs.add(i);
            let key = ForeignKey {
                name: text(def.name),
                parent: text(def.parent),
                columns: pairs(def.columns, def.column_count),
                on_delete: action(def.on_delete)?,
                on_update: action(def.on_update)?,
                stamp: 0,
            };
            (def, key)
        };
        keys.push((key, def.carried != 0));
    }
    // SAFETY: likewise.
    let original = unsafe { text(defs.original) };
    Ok(NewForeign {
        keys,
        original: (!original.is_empty()).then_some(original),
        checks: defs.checks & 1 != 0,
        strict: defs.checks & 2 != 0,
        follows: defs.checks & 4 != 0,
    })
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn fe_foreign_last_number(
    engine: *mut fe_engine,
    name: *const c_char,
    shown: *const c_char,
) -> u64 {
    // SAFETY: a valid handle and strings.
    let (engine, name, shown) = unsafe { (engine_of(engine), text(name), text(shown)) };
    let number = |key: &str| -> Option<u64> {
        let digits = key.strip_prefix(&*shown)?.strip_prefix("_ibfk_")?;
        digits
            .parse()
            .ok()
            .filter(|_| !digits.starts_with(['0', '+']))
    };
    let keys = engine.dict().foreign_keys_of(&name);
    keys.iter()
        .filter_map(|key| number(&key.name))
        .max()
        .unwrap_or(0)
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn fe_foreign_count(engine: *mut fe_engine, name: *const c_char) -> u64 {
    // SAFETY: a valid handle and string.
    let (engine, name) = unsafe { (engine_of(engine), text(name)) };
    engine.dict().foreign_keys_of(&name).len() as u64
}

/// A constraint's texts, and the arrays that point to them.
pub(crate) struct Texts {
    _kept: Vec<CString>,
    pub(crate) name: *const c_char,
    pub(crate) other: *const c_char,
    pub(crate) columns: Vec<fe_fk_column>,
}

impl Texts {
    pub(crate) fn new(key: &ForeignKey, other: &str) -> Texts {
        let mut kept = Vec::new();
        let mut keep = |text: &str| {
            kept.push(c_text(text));
            // The bytes stay where they are when the vector grows.
            kept.last().map_or(std::ptr::null(), |t| t.as_ptr())
        };
        let (name, other) = (keep(&key.name), keep(other));
        let columns = key.columns.iter().map(|(own, there)| fe_fk_column {
            own: keep(own),
            other: keep(there),
        });
        let columns = columns.collect();
        Texts {
            name,
            other,
            columns,
            _kept: kept,
        }
    }
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn fe_each_foreign_key(
    engine: *mut fe_engine,
    each: unsafe extern "C" fn(*mut c_void, *const fe_fk_row),
    arg: *mut c_void,
) {
    // SAFETY: a valid handle.
    let engine = unsafe { engine_of(engine) };
    for row in engine.dict().all_foreign() {
        let texts = Texts::new(&row.key, &row.key.parent);
        let child = CString::new(row.child.as_str()).unwrap_or_default();
        let row = fe_fk_row {
            child: child.as_ptr(),
            def: fe_fk_def {
                name: texts.name,
                parent: texts.other,
                columns: texts.columns.as_ptr(),
                column_count: texts.columns.len() as u32,
                on_delete: row.key.on_delete as u32,
                on_update: row.key.on_update as u32,
                carried: 0,
            },
        };
        // SAFETY: the row and its texts live during the call.
        unsafe { each(arg, &row) };
    }
}
