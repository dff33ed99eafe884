//! ALTER TABLE in place: indexes that are built, and the change of the definition.

use crate::abi::*;
use crate::boundary::{code, fail, packing_of, text};
use crate::engine::{engine_of, fe_engine};
use crate::foreign::{new_foreign, pairs};
use crate::rows::{put_dup, Entries};
use crate::session::{fe_session, session_of};
use crate::table::{caller, fe_table, index_spec, table_of};
use ferrite_engine::{AlterForeign, DupInfo, IndexBuild, IndexSource, IndexesAfter};
use std::ffi::{c_char, c_void};

/// Indexes being built.
pub struct fe_index_build {
    build: IndexBuild,
}

/// # Safety
/// The header's rule: the handle came from `fe_index_build_begin` and was not closed.
unsafe fn build_of<'a>(build: *mut fe_index_build) -> &'a mut IndexBuild {
    // SAFETY: by the caller's promise.
    unsafe { &mut (*build).build }
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn fe_index_build_begin(
    session: *mut fe_session,
    table: *mut fe_table,
    defs: *const fe_index_def,
    count: u32,
    thd: *mut c_void,
    wait_ms: u32,
    out: *mut *mut fe_index_build,
) -> fe_code {
    // SAFETY: valid handles, so many definitions, a place for the answer.
    unsafe {
        *out = std::ptr::null_mut();
        let table = &table_of(table).table;
        let specs = (0..count as usize).map(|i| index_spec(&*defs.add(i)));
        let caller = caller(thd, wait_ms);
        match session_of(session).begin_index_build(table, specs.collect(), &caller) {
            Ok(build) => {
                *out = Box::into_raw(Box::new(fe_index_build { build }));
                FE_OK
            }
            Err(e) => fail(&e),
        }
    }
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn fe_index_build_add(
    build: *mut fe_index_build,
    pk: fe_slice,
    entries: *const fe_entry,
    count: u32,
) -> fe_code {
    // SAFETY: a valid handle and slices by the header's rules.
    unsafe {
        let mut room = Entries::room();
        match room.take(entries, count) {
            Ok(entries) => code(build_of(build).add(pk.bytes(), entries)),
            Err(e) => fail(&e),
        }
    }
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn fe_index_build_fill(
    session: *mut fe_session,
    build: *mut fe_index_build,
    dup_out: *mut fe_dup_info,
) -> fe_code {
    // SAFETY: valid handles, NULL or a place for the answer.
    unsafe {
        let mut dup = DupInfo::default();
        let result = session_of(session).fill_indexes(build_of(build), &mut dup);
        put_dup(&result, &dup, dup_out);
        code(result)
    }
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn fe_index_build_close(build: *mut fe_index_build) {
    if !build.is_null() {
        // SAFETY: given back by its owner, once.
        drop(unsafe { Box::from_raw(build) });
    }
}

/// # Safety
/// The header's rule: NULL, or so many numbers.
unsafe fn sources(change: &fe_table_change) -> Option<Vec<IndexSource>> {
    if change.index_sources.is_null() {
        return None;
    }
    // SAFETY: by the caller's promise.
    let number = |i: usize| unsafe { *change.index_sources.add(i) };
    let source = |number: i32| match usize::try_from(number) {
        Ok(kept) => IndexSource::Kept(kept),
        Err(_) => IndexSource::Built((-1 - number) as usize),
    };
    let numbers = (0..change.index_count as usize).map(number);
    Some(numbers.map(source).collect())
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn fe_table_alter(
    engine: *mut fe_engine,
    name: *const c_char,
    change: *const fe_table_change,
    thd: *mut c_void,
    wait_ms: u32,
) -> fe_code {
    // SAFETY: valid handle, string and structure.
    unsafe {
        let change = &*change;
        let add = match new_foreign(&change.add) {
            Ok(add) => add,
            Err(e) => return fail(&e),
        };
        let packing = match change.compression {
            FE_COMPRESSION_KEEP => None,
            number => match packing_of(number) {
                Ok(packing) => Some(packing),
                Err(e) => return fail(&e),
            },
        };
        let drop = (0..change.drop_count as usize).map(|i| text(*change.drop.add(i)));
        let names = (0..change.index_count as usize).map(|i| text(*change.index_names.add(i)));
        let alter = AlterForeign {
            drop: drop.collect(),
            add,
            renamed: pairs(change.renamed, change.renamed_count),
            index_names: names.collect(),
            packing,
            auto_increment: (change.auto_increment > 0).then_some(change.auto_increment),
        };
        let build: *mut fe_index_build = change.build.cast();
        let indexes = sources(change).map(|sources| IndexesAfter {
            sources,
            build: (!build.is_null()).then(|| build_of(build)),
        });
        let definition = change.definition.bytes();
        let caller = caller(thd, wait_ms);
        code(engine_of(engine).alter_table(&text(name), definition, &alter, indexes, &caller))
    }
}
