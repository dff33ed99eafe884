//! Tables that travel in files of their own.
//!
//! Locking: none of its own.

use crate::abi::*;
use crate::boundary::{code, text};
use crate::session::{fe_session, session_of};
use crate::table::{caller, fe_table, table_of};
use ferrite_engine::{ExportAbout, ImportFrom};
use ferrite_io::RealStorage;
use ferrite_types::Result;
use std::ffi::{c_char, c_void, CString};
use std::path::Path;

/// A file of an exported table.
struct File<'a> {
    storage: RealStorage,
    name: String,
    about: &'a fe_exported_file,
    columns: &'a [u8],
}

impl File<'_> {
    fn layout_in(&self, order: &[u32]) -> u64 {
        // SAFETY: the callback takes what the header says.
        unsafe { (self.about.layout)(self.about.of, order.as_ptr()) }
    }

    fn unfit(&self, server: &str) -> Option<String> {
        let server = CString::new(server).ok()?;
        // SAFETY: likewise; what it gives is a text that stays.
        let why = unsafe { text((self.about.unfit)(self.about.of, server.as_ptr())) };
        (!why.is_empty()).then_some(why)
    }
}

/// # Safety
/// The header's rule: valid strings and bytes during the call.
unsafe fn file_of<'a>(file: *const fe_exported_file) -> Result<File<'a>> {
    // SAFETY: by the caller's promise.
    let (dir, name, file) = unsafe { (text((*file).dir), text((*file).file), &*file) };
    debug_assert!(!name.contains('/'), "{name} in {dir}");
    Ok(File {
        storage: RealStorage::existing(Path::new(&dir))?,
        name,
        about: file,
        // SAFETY: by the caller's promise.
        columns: unsafe { file.columns.bytes() },
    })
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn fe_table_export(
    session: *mut fe_session,
    table: *mut fe_table,
    to: *const fe_exported_file,
    name: *const c_char,
    server: *const c_char,
    bytes: *mut u64,
) -> fe_code {
    // SAFETY: the header's rules: valid handles, strings and a place for the answer.
    unsafe {
        *bytes = 0;
        let (table_name, server) = (text(name), text(server));
        let (session, table) = (session_of(session), &table_of(table).table);
        let written = file_of(to).and_then(|file| {
            let order: Vec<u32> = (0..table.index_count() as u32).collect();
            let about = ExportAbout {
                table: &table_name,
                layout: file.layout_in(&order),
                columns: file.columns,
                server: &server,
            };
            session.export_table(table, &file.storage, &file.name, &about)
        });
        code(written.map(|n| *bytes = n))
    }
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn fe_table_import(
    session: *mut fe_session,
    name: *const c_char,
    from: *const fe_exported_file,
    thd: *mut c_void,
    wait_ms: u32,
) -> fe_code {
    // SAFETY: the header's rules: a valid handle and strings.
    let (session, name, from) = unsafe { (session_of(session), text(name), file_of(from)) };
    let imported = from.and_then(|file| {
        let from = ImportFrom {
            storage: &file.storage,
            name: &file.name,
            layout: &|order| file.layout_in(order),
            columns: file.columns,
            unfit: &|server| file.unfit(server),
        };
        session.import_table(&name, &from, &caller(thd, wait_ms))
    });
    code(imported)
}
