//! Tables: definition, statistics, AUTO_INCREMENT, checks.

use crate::abi::*;
use crate::boundary::{c_text, code, fail, packing_of, text, unknown};
use crate::engine::{engine_of, fe_engine};
use crate::foreign::new_foreign;
use crate::session::{fe_session, session_of};
use ferrite_engine::{DdlCaller, Engine, IndexSpec, References, Renaming, Table, TableSpec};
use ferrite_lock::TableMode;
use ferrite_sync::{Arc, Mutex};
use ferrite_types::format::Packing;
use ferrite_types::Result;
use std::ffi::{c_char, c_int, c_void, CString};

/// An open table.
pub struct fe_table {
    pub(crate) table: Arc<Table>,
    pub(crate) engine: Arc<Engine>,
    /// Statistics handed out: they stay readable until the handle is closed.
    blobs: Mutex<Vec<Box<[u8]>>>,
}

/// The table behind a handle.
///
/// # Safety
/// The header's rule: the handle came from `fe_table_open` and was not closed.
pub(crate) unsafe fn table_of<'a>(table: *const fe_table) -> &'a fe_table {
    // SAFETY: by the caller's promise.
    unsafe { &*table }
}

/// An index that has no tree yet.
///
/// # Safety
/// The header's rule: a valid definition during the call.
pub(crate) unsafe fn index_spec(index: &fe_index_def) -> IndexSpec {
    // SAFETY: by the caller's promise.
    let name = unsafe { text(index.name) };
    IndexSpec::new(&name, index.flags & FE_INDEX_UNIQUE != 0, index.key_parts)
}

unsafe fn spec_of(def: *const fe_table_def) -> TableSpec {
    // SAFETY: the header's rule: a valid definition during the call.
    unsafe {
        let def = &*def;
        let indexes = (0..def.index_count as usize)
            .map(|i| index_spec(&*def.indexes.add(i)))
            .collect();
        TableSpec {
            name: text(def.name),
            temporary: def.flags & FE_TABLE_TEMPORARY != 0,
            hidden_row_id: def.flags & FE_TABLE_HIDDEN_ROWID != 0,
            no_rollback: def.flags & FE_TABLE_NO_ROLLBACK != 0,
            packing: packing_of(def.compression).unwrap_or(Packing::NONE),
            indexes,
            definition: def.definition.bytes().to_vec(),
            ..TableSpec::new("", Vec::new())
        }
    }
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn fe_table_create(
    engine: *mut fe_engine,
    def: *const fe_table_def,
    thd: *mut c_void,
) -> fe_code {
    // SAFETY: a valid handle and definition.
    let (engine, spec, first) = unsafe { (engine_of(engine), spec_of(def), (*def).auto_increment) };
    // SAFETY: likewise.
    if let Err(e) = packing_of(unsafe { (*def).compression }) {
        return fail(&e);
    }
    // SAFETY: likewise.
    let foreign = match unsafe { new_foreign(&(*def).foreign) } {
        Ok(foreign) => foreign,
        Err(e) => return fail(&e),
    };
    match engine.create_table(spec, first, foreign, &caller(thd, 0)) {
        Ok(table) => {
            if first > 1 {
                engine.set_auto_increment(&table, first);
            }
            FE_OK
        }
        Err(e) => fail(&e),
    }
}

pub(crate) fn caller(thd: *mut c_void, wait_ms: u32) -> DdlCaller {
    DdlCaller {
        thd: thd as usize,
        wait_ms: u64::from(wait_ms),
        references: References::None,
    }
}

fn references(number: c_int) -> Result<References> {
    match number {
        FE_REFERENCES_ANY => Ok(References::Any),
        FE_REFERENCES_OTHER_DATABASES => Ok(References::OtherDatabases),
        FE_REFERENCES_NONE => Ok(References::None),
        FE_REFERENCES_UNLESS_REPLACED => Ok(References::UnlessReplaced),
        _ => unknown("fe_references", number),
    }
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn fe_table_drop(
    engine: *mut fe_engine,
    name: *const c_char,
    keep_for: c_int,
    thd: *mut c_void,
    wait_ms: u32,
) -> fe_code {
    // SAFETY: a valid handle and string.
    let (engine, name) = unsafe { (engine_of(engine), text(name)) };
    let mut caller = caller(thd, wait_ms);
    let dropped = references(keep_for).and_then(|references| {
        caller.references = references;
        engine.drop_table(&name, &caller)
    });
    code(dropped)
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn fe_table_rename(
    engine: *mut fe_engine,
    from: *const c_char,
    to: *const c_char,
    shown_from: *const c_char,
    shown_to: *const c_char,
    foreign_checks: c_int,
    thd: *mut c_void,
    wait_ms: u32,
) -> fe_code {
    // SAFETY: a valid handle and strings.
    let (engine, from, to) = unsafe { (engine_of(engine), text(from), text(to)) };
    // SAFETY: likewise.
    let shown = unsafe { (text(shown_from), text(shown_to)) };
    let how = Renaming {
        shown: Some((&shown.0, &shown.1)),
        checks: foreign_checks != 0,
    };
    code(engine.rename_with_foreign(&from, &to, &how, &caller(thd, wait_ms)))
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn fe_table_redefine(
    engine: *mut fe_engine,
    name: *const c_char,
    definition: fe_slice,
    thd: *mut c_void,
) -> fe_code {
    // SAFETY: a valid handle, string and slice.
    let (engine, name, definition) = unsafe { (engine_of(engine), text(name), definition.bytes()) };
    code(engine.redefine_table(&name, definition, &caller(thd, 0)))
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn fe_table_definition_version(
    engine: *mut fe_engine,
    name: *const c_char,
) -> u64 {
    // SAFETY: a valid handle and string.
    unsafe { engine_of(engine).dict().definition_version(&text(name)) }
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn fe_table_truncate(
    engine: *mut fe_engine,
    name: *const c_char,
    auto_increment: u64,
    keep_for: c_int,
    thd: *mut c_void,
    wait_ms: u32,
) -> fe_code {
    // SAFETY: a valid handle and string.
    let (engine, name) = unsafe { (engine_of(engine), text(name)) };
    let mut caller = caller(thd, wait_ms);
    let emptied = references(keep_for).and_then(|references| {
        caller.references = references;
        engine.truncate_table(&name, auto_increment, &caller)
    });
    code(emptied)
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn fe_database_drop(
    engine: *mut fe_engine,
    db: *const c_char,
    thd: *mut c_void,
    wait_ms: u32,
) -> fe_code {
    // SAFETY: a valid handle and string.
    let (engine, db) = unsafe { (engine_of(engine), text(db)) };
    let mut result = FE_OK;
    for name in engine.dict().tables_of(&db) {
        // Who waits for one need not wait for all.
        let wait_ms = if result == FE_OK { wait_ms } else { 0 };
        match engine.drop_table(&name, &caller(thd, wait_ms)) {
            Err(e) if result == FE_OK => result = fail(&e),
            _ => {}
        }
    }
    result
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn fe_parts_drop(
    engine: *mut fe_engine,
    name: *const c_char,
    thd: *mut c_void,
    wait_ms: u32,
) -> fe_code {
    // SAFETY: a valid handle and string.
    let (engine, name) = unsafe { (engine_of(engine), text(name)) };
    code(engine.drop_parts(&name, &caller(thd, wait_ms)))
}

/// What the server answers to "db/table": a name with a zero byte cannot be asked for, and is known.
fn is_known(
    is_defined: unsafe extern "C" fn(*mut c_void, *const c_char) -> c_int,
    arg: *mut c_void,
) -> impl Fn(&str) -> bool {
    move |name: &str| {
        CString::new(name).map_or(true, |name| {
            // SAFETY: the callback takes what the header says.
            unsafe { is_defined(arg, name.as_ptr()) != 0 }
        })
    }
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn fe_each_unknown_table(
    engine: *mut fe_engine,
    is_defined: unsafe extern "C" fn(*mut c_void, *const c_char) -> c_int,
    each: unsafe extern "C" fn(*mut c_void, *const c_char, u64),
    arg: *mut c_void,
) {
    // SAFETY: a valid handle.
    let engine = unsafe { engine_of(engine) };
    for (name, parts) in engine.unknown_tables(&is_known(is_defined, arg)) {
        if let Ok(name) = CString::new(name) {
            // SAFETY: the callback takes what the header says.
            unsafe { each(arg, name.as_ptr(), parts as u64) };
        }
    }
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn fe_copies_drop(
    engine: *mut fe_engine,
    is_defined: unsafe extern "C" fn(*mut c_void, *const c_char) -> c_int,
    dropped: unsafe extern "C" fn(*mut c_void, *const c_char),
    arg: *mut c_void,
) -> fe_code {
    // SAFETY: a valid handle.
    let engine = unsafe { engine_of(engine) };
    let is_defined = is_known(is_defined, arg);
    let gone = engine.drop_abandoned_copies(&is_defined);
    let gone = gone.and_then(|copies| {
        let originals = engine.drop_replaced(&is_defined)?;
        Ok([copies, originals].concat())
    });
    match gone {
        Ok(names) => {
            for name in names.into_iter().filter_map(|n| CString::new(n).ok()) {
                // SAFETY: the callback takes what the header says.
                unsafe { dropped(arg, name.as_ptr()) };
            }
            FE_OK
        }
        Err(e) => fail(&e),
    }
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn fe_each_table_put_aside(
    engine: *mut fe_engine,
    each: unsafe extern "C" fn(*mut c_void, *const c_char),
    arg: *mut c_void,
) {
    // SAFETY: a valid handle.
    let engine = unsafe { engine_of(engine) };
    for name in engine.tables_put_aside() {
        if let Ok(name) = CString::new(name) {
            // SAFETY: the callback takes what the header says.
            unsafe { each(arg, name.as_ptr()) };
        }
    }
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn fe_table_open(
    engine: *mut fe_engine,
    name: *const c_char,
    out: *mut *mut fe_table,
) -> fe_code {
    // SAFETY: a valid handle, string and place for the answer.
    unsafe {
        *out = std::ptr::null_mut();
        let engine = engine_of(engine);
        match engine.dict().open_table(&text(name)) {
            Ok(table) => {
                *out = Box::into_raw(Box::new(fe_table {
                    table,
                    engine: engine.clone(),
                    blobs: Mutex::new(Vec::new()),
                }));
                FE_OK
            }
            Err(e) => fail(&e),
        }
    }
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn fe_table_close(table: *mut fe_table) {
    if !table.is_null() {
        // SAFETY: given back by its owner, once.
        drop(unsafe { Box::from_raw(table) });
    }
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn fe_table_definition(table: *const fe_table) -> fe_slice {
    // SAFETY: a valid handle.
    fe_slice::of(&unsafe { table_of(table) }.table.spec.definition)
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn fe_table_index_names(
    table: *const fe_table,
    each: unsafe extern "C" fn(*mut c_void, fe_slice),
    arg: *mut c_void,
) {
    // SAFETY: a valid handle.
    let handle = unsafe { table_of(table) };
    for name in handle.engine.dict().index_names(&handle.table) {
        // SAFETY: the slice lives during the call.
        unsafe { each(arg, fe_slice::of(name.as_bytes())) };
    }
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn fe_table_id(table: *const fe_table) -> u64 {
    // SAFETY: a valid handle.
    unsafe { table_of(table) }.table.id().0
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn fe_table_exists(engine: *mut fe_engine, name: *const c_char) -> c_int {
    // SAFETY: a valid handle and string.
    c_int::from(unsafe { engine_of(engine).dict().exists(&text(name)) })
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn fe_table_wait_for_prepared(
    engine: *mut fe_engine,
    name: *const c_char,
    thd: *mut c_void,
    wait_ms: u32,
) -> fe_code {
    // SAFETY: a valid handle and string.
    let (engine, name) = unsafe { (engine_of(engine), text(name)) };
    code(engine.wait_for_prepared(&name, &caller(thd, wait_ms)))
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn fe_table_decided_commits(
    engine: *mut fe_engine,
    name: *const c_char,
) -> u64 {
    // SAFETY: a valid handle and string.
    let (engine, name) = unsafe { (engine_of(engine), text(name)) };
    engine.decided_commits(&name).unwrap_or(u64::MAX)
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn fe_table_count(engine: *mut fe_engine) -> u64 {
    // SAFETY: a valid handle.
    unsafe { engine_of(engine).dict().permanent_count() as u64 }
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn fe_table_get_stats(table: *mut fe_table, out: *mut fe_table_stats) {
    // SAFETY: a valid handle and place for the answer.
    unsafe {
        let handle = table_of(table);
        *out = fe_table_stats {
            free_bytes: handle.engine.store_free_bytes(),
            ..figures(&handle.table.stats())
        };
    }
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn fe_table_get_estimate(table: *mut fe_table, out: *mut fe_table_stats) {
    // SAFETY: a valid handle and place for the answer.
    unsafe { *out = figures(&table_of(table).table.estimate()) };
}

fn figures(s: &ferrite_engine::TableStats) -> fe_table_stats {
    fe_table_stats {
        rows: s.rows,
        data_bytes: s.data_bytes,
        index_bytes: s.index_bytes,
        free_bytes: 0,
        created_unix_s: s.created_unix_s,
        updated_unix_s: s.updated_unix_s,
        changes_since_stats: s.changes_since_stats,
        rows_doubtful: u64::from(s.rows_doubtful),
        clustered_leaf_pages: s.clustered_leaf_pages,
    }
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn fe_index_leaf_pages(table: *mut fe_table, index_no: u32) -> u64 {
    // SAFETY: a valid handle.
    unsafe { table_of(table) }
        .table
        .index_pages(index_no as usize)
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn fe_table_set_stats(table: *mut fe_table, blob: fe_slice) -> fe_code {
    // SAFETY: a valid handle and slice.
    let (handle, blob) = unsafe { (table_of(table), blob.bytes()) };
    code(handle.engine.store_statistics(&handle.table, blob))
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn fe_table_check_rows(table: *mut fe_table, pages: u32) -> fe_code {
    // SAFETY: a valid handle.
    code(unsafe { table_of(table) }.table.check_rows(pages))
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn fe_table_stats_blob(table: *const fe_table) -> fe_slice {
    // SAFETY: a valid handle; the blob is kept until the handle is closed.
    let handle = unsafe { table_of(table) };
    let blob = handle.table.stats_blob();
    let mut blobs = handle.blobs.lock();
    if let Some(same) = blobs.iter().find(|b| ***b == *blob) {
        return fe_slice::of(same);
    }
    blobs.push(blob.into_boxed_slice());
    fe_slice::of(blobs.last().expect("just pushed"))
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn fe_index_sample(
    table: *mut fe_table,
    index_no: u32,
    pages: u32,
    each: unsafe extern "C" fn(*mut c_void, fe_slice, c_int),
    arg: *mut c_void,
) -> u32 {
    // SAFETY: a valid handle; the callback takes what the header says.
    let tree = unsafe { table_of(table) }.table.tree(index_no as usize);
    let visited = tree.sample(pages, &mut |key, first| {
        // SAFETY: the slice lives during the call.
        unsafe { each(arg, fe_slice::of(key), c_int::from(first)) }
    });
    visited.unwrap_or(0)
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn fe_records_in_range(
    table: *mut fe_table,
    index_no: u32,
    low: fe_slice,
    high: fe_slice,
) -> u64 {
    // SAFETY: a valid handle and slices.
    let (tree, low, bound) = unsafe {
        let tree = table_of(table).table.tree(index_no as usize);
        (tree, low.bytes(), high.bytes())
    };
    let bound = (!high.ptr.is_null()).then_some(bound);
    tree.records_in_range(low, bound).unwrap_or(10)
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn fe_autoinc_read(table: *mut fe_table) -> u64 {
    // SAFETY: a valid handle.
    unsafe { table_of(table) }.table.auto_increment()
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn fe_autoinc_lock(
    session: *mut fe_session,
    table: *mut fe_table,
) -> fe_code {
    // SAFETY: valid handles.
    let (session, handle) = unsafe { (session_of(session), table_of(table)) };
    code(session.auto_inc_lock(&handle.table))
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn fe_autoinc_unlock(session: *mut fe_session, table: *mut fe_table) {
    // SAFETY: valid handles.
    let (session, handle) = unsafe { (session_of(session), table_of(table)) };
    session.auto_inc_unlock(&handle.table);
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn fe_autoinc_admitted(session: *mut fe_session) -> fe_code {
    // SAFETY: a valid handle.
    code(unsafe { session_of(session) }.admitted(false))
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn fe_autoinc_update(table: *mut fe_table, next: u64) {
    // SAFETY: a valid handle.
    let handle = unsafe { table_of(table) };
    handle.engine.raise_auto_increment(&handle.table, next);
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn fe_table_check(
    session: *mut fe_session,
    table: *mut fe_table,
    quick: c_int,
    report: unsafe extern "C" fn(*mut c_void, *const c_char),
    arg: *mut c_void,
) -> fe_code {
    // SAFETY: valid handles; the callback takes what the header says.
    unsafe {
        let session = session_of(session);
        let handle = table_of(table);
        let result = session.check_table(&handle.table, quick != 0, &mut |line| {
            let line = c_text(line);
            report(arg, line.as_ptr());
        });
        code(result)
    }
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn fe_table_lock(
    session: *mut fe_session,
    table: *mut fe_table,
    exclusive: c_int,
) -> fe_code {
    // SAFETY: valid handles.
    let (session, handle) = unsafe { (session_of(session), table_of(table)) };
    let mode = if exclusive != 0 {
        TableMode::Exclusive
    } else {
        TableMode::Shared
    };
    code(session.lock_table(&handle.table, mode))
}
