//! Rows and values out of line.

use crate::abi::*;
use crate::boundary::{code, fail};
use crate::session::{fe_session, session_of};
use crate::table::{fe_table, table_of};
use ferrite_engine::{DupInfo, Entry, OverflowRef, RowChange};
use ferrite_types::{Error, Result};
use std::mem::MaybeUninit;

/// As many indexes as the server allows a table.
const MAX_ENTRIES: usize = 64;

/// Room for the caller's entries as the engine wants them. It is not filled before it is used: three kilobytes for
/// each row would be more than the row.
pub(crate) struct Entries<'a>([MaybeUninit<Entry<'a>>; MAX_ENTRIES]);

impl<'a> Entries<'a> {
    /// Without entries.
    #[inline]
    pub(crate) fn room() -> Entries<'a> {
        Entries([const { MaybeUninit::uninit() }; MAX_ENTRIES])
    }

    /// # Safety
    /// The header's rule: `count` valid entries whose slices live during the call.
    ///
    /// # Errors
    /// `Bug` beyond [`MAX_ENTRIES`]: an entry left out would be an index that lacks a row.
    #[inline]
    pub(crate) unsafe fn take(
        &mut self,
        entries: *const fe_entry,
        count: u32,
    ) -> Result<&[Entry<'a>]> {
        let count = count as usize;
        if count > MAX_ENTRIES {
            return Err(Error::Bug(format!("{count} index entries of a row")));
        }
        for (i, place) in self.0.iter_mut().enumerate().take(count) {
            // SAFETY: by the caller's promise.
            unsafe {
                let e = &*entries.add(i);
                place.write(Entry {
                    index_no: e.index_no as usize,
                    check_unique: e.check_unique != 0,
                    key: e.key.bytes(),
                    payload: e.payload.bytes(),
                });
            }
        }
        // SAFETY: the first `count` places have just been written, and `MaybeUninit` has its content's layout.
        Ok(unsafe { std::slice::from_raw_parts(self.0.as_ptr().cast(), count) })
    }
}

/// # Safety
/// `out` is NULL or a place for the answer.
pub(crate) unsafe fn put_dup(result: &Result<()>, dup: &DupInfo, out: *mut fe_dup_info) {
    if !matches!(result, Err(Error::Duplicate)) || out.is_null() {
        return;
    }
    // SAFETY: by the caller's promise.
    unsafe {
        (*out).index_no = dup.index_no as u32;
        let n = dup.pk.len().min((*out).pk.len());
        (*out).pk_len = n as u32;
        (&mut (*out).pk)[..n].copy_from_slice(&dup.pk[..n]);
    }
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn fe_row_insert(
    session: *mut fe_session,
    table: *mut fe_table,
    pk: fe_slice,
    payload: fe_slice,
    entries: *const fe_entry,
    entry_count: u32,
    flags: u32,
    row_id_out: *mut u8,
    dup_out: *mut fe_dup_info,
) -> fe_code {
    // SAFETY: valid handles and slices by the header's rules.
    unsafe {
        let session = session_of(session);
        let table = &table_of(table).table;
        let mut room = Entries::room();
        let entries = match room.take(entries, entry_count) {
            Ok(entries) => entries,
            Err(e) => return fail(&e),
        };
        let key = (!pk.ptr.is_null()).then(|| pk.bytes());
        let replace = flags & FE_INSERT_REPLACE_HINT != 0;
        let mut dup = DupInfo::default();
        let result = session.insert_row(table, key, payload.bytes(), entries, replace, &mut dup);
        if let Ok(Some(id)) = &result {
            if !row_id_out.is_null() {
                std::ptr::copy_nonoverlapping(id.as_ptr(), row_id_out, 8);
            }
        }
        let result = result.map(|_| ());
        put_dup(&result, &dup, dup_out);
        code(result)
    }
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn fe_row_update(
    session: *mut fe_session,
    table: *mut fe_table,
    old_pk: fe_slice,
    new_pk: fe_slice,
    payload: fe_slice,
    removed: *const fe_entry,
    removed_count: u32,
    added: *const fe_entry,
    added_count: u32,
    dup_out: *mut fe_dup_info,
) -> fe_code {
    // SAFETY: valid handles and slices by the header's rules.
    unsafe {
        let session = session_of(session);
        let table = &table_of(table).table;
        let (mut old, mut new) = (Entries::room(), Entries::room());
        let removed = old.take(removed, removed_count);
        let (removed, added) = match (removed, new.take(added, added_count)) {
            (Ok(removed), Ok(added)) => (removed, added),
            (Err(e), _) | (_, Err(e)) => return fail(&e),
        };
        let mut dup = DupInfo::default();
        let result = session.update_row(
            table,
            &RowChange {
                old_pk: old_pk.bytes(),
                new_pk: new_pk.bytes(),
                payload: payload.bytes(),
                removed,
                added,
            },
            &mut dup,
        );
        put_dup(&result, &dup, dup_out);
        code(result)
    }
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn fe_row_delete(
    session: *mut fe_session,
    table: *mut fe_table,
    pk: fe_slice,
    entries: *const fe_entry,
    entry_count: u32,
) -> fe_code {
    // SAFETY: valid handles and slices by the header's rules.
    unsafe {
        let session = session_of(session);
        let table = &table_of(table).table;
        let mut room = Entries::room();
        let entries = match room.take(entries, entry_count) {
            Ok(entries) => entries,
            Err(e) => return fail(&e),
        };
        code(session.delete_row(table, pk.bytes(), entries))
    }
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn fe_table_begin_load(session: *mut fe_session, table: *mut fe_table) {
    // SAFETY: valid handles by the header's rules.
    unsafe { session_of(session).begin_load(&table_of(table).table) }
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn fe_table_end_load(
    session: *mut fe_session,
    table: *mut fe_table,
) -> fe_code {
    // SAFETY: valid handles by the header's rules.
    unsafe { code(session_of(session).end_load(&table_of(table).table)) }
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn fe_overflow_write(
    session: *mut fe_session,
    table: *mut fe_table,
    value: fe_slice,
    reference: *mut u8,
) -> fe_code {
    // SAFETY: valid handles; `reference` has 16 bytes.
    unsafe {
        let table = &table_of(table).table;
        match session_of(session).write_overflow(table, value.bytes()) {
            Ok(r) => {
                let bytes = r.bytes();
                std::ptr::copy_nonoverlapping(bytes.as_ptr(), reference, bytes.len());
                FE_OK
            }
            Err(e) => fail(&e),
        }
    }
}

/// # Safety
/// 16 readable bytes.
unsafe fn reference_of(reference: *const u8) -> OverflowRef {
    let mut r = [0; 16];
    // SAFETY: by the caller's promise.
    unsafe { std::ptr::copy_nonoverlapping(reference, r.as_mut_ptr(), 16) };
    OverflowRef::from_bytes(r)
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn fe_overflow_len(reference: *const u8) -> u64 {
    // SAFETY: 16 readable bytes.
    unsafe { reference_of(reference) }.length()
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn fe_overflow_read(
    session: *mut fe_session,
    _table: *mut fe_table,
    reference: *const u8,
    out: *mut u8,
) -> fe_code {
    // SAFETY: a valid handle; `out` has the value's length.
    unsafe {
        let reference = reference_of(reference);
        let len = reference.length() as usize;
        if len == 0 {
            return FE_OK;
        }
        let out = std::slice::from_raw_parts_mut(out, len);
        code(session_of(session).read_value(&reference, out))
    }
}
