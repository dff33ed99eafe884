//! Foreign keys of an open table: what a change of a row has to look at.

use crate::abi::*;
use crate::boundary::{code, fail};
use crate::foreign::Texts;
use crate::session::{fe_session, session_of};
use crate::table::{fe_table, table_of};
use ferrite_engine::describe::PartKind;
use ferrite_engine::{Encoding, ForeignFault, Link, Links, Role};
use ferrite_sync::Arc;
use ferrite_types::Error;
use std::ffi::{c_int, c_void, CString};

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn fe_table_links_version(table: *const fe_table) -> u64 {
    // SAFETY: a valid handle.
    unsafe { table_of(table) }.table.links_version()
}

/// Links in the header's form, and what they point to.
struct Side {
    links: Vec<fe_link>,
    _texts: Vec<Texts>,
    _parts: Vec<Vec<fe_link_part>>,
    _names: Vec<CString>,
}

// SAFETY: nothing in it changes once it is made, and what it points to is its own.
unsafe impl Send for Side {}
// SAFETY: likewise.
unsafe impl Sync for Side {}

/// The links of a table at one moment.
pub struct fe_links {
    pub(crate) links: Arc<Links>,
    outgoing: Side,
    incoming: Side,
}

fn side_of(column: u16, encoding: Encoding) -> fe_link_side {
    let kind = match encoding.kind {
        PartKind::Unsigned => 0,
        PartKind::Signed => 1,
        PartKind::Bytes => 2,
        PartKind::Real => 3,
        PartKind::Binary => 5,
        PartKind::Text => 6,
    };
    let nullable = if encoding.nullable {
        FE_LINK_NULLABLE
    } else {
        0
    };
    let descending = if encoding.descending {
        FE_LINK_DESCENDING
    } else {
        0
    };
    fe_link_side {
        column,
        kind,
        flags: nullable | descending,
        width: encoding.width,
    }
}

impl Side {
    fn new(from: &[Link]) -> Side {
        let mut side = Side {
            links: Vec::with_capacity(from.len()),
            _texts: Vec::new(),
            _parts: Vec::new(),
            _names: Vec::new(),
        };
        for link in from {
            let texts = Texts::new(&link.key, &link.other);
            let part = |p: &ferrite_engine::LinkPart| fe_link_part {
                own: side_of(p.own_column, p.own),
                other: side_of(p.other_column, p.other),
            };
            let parts: Vec<fe_link_part> = link.parts.iter().map(part).collect();
            let peer = link.peer.as_ref();
            let index = link
                .parent_index
                .as_deref()
                .and_then(|n| CString::new(n).ok());
            side.links.push(fe_link {
                name: texts.name,
                other: texts.other,
                columns: texts.columns.as_ptr(),
                column_count: texts.columns.len() as u32,
                on_delete: link.key.on_delete as u32,
                on_update: link.key.on_update as u32,
                carried: u32::from(link.carried),
                index_no: link.own_index().map_or(FE_NO_INDEX, |index| index as u32),
                other_index_no: peer.map_or(FE_NO_INDEX, |p| p.index_no),
                parent_index: index.as_ref().map_or(std::ptr::null(), |n| n.as_ptr()),
                parts: parts.as_ptr(),
                part_count: parts.len() as u32,
            });
            side._texts.push(texts);
            side._parts.push(parts);
            side._names.extend(index);
        }
        side
    }
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn fe_links_open(table: *mut fe_table, out: *mut *mut fe_links) -> fe_code {
    // SAFETY: a valid handle and place for the answer.
    let (handle, out) = unsafe { (table_of(table), &mut *out) };
    *out = std::ptr::null_mut();
    match handle.engine.dict().links(&handle.table) {
        Ok(links) => {
            *out = Box::into_raw(Box::new(fe_links {
                outgoing: Side::new(&links.outgoing),
                incoming: Side::new(&links.incoming),
                links,
            }));
            FE_OK
        }
        Err(e) => fail(&e),
    }
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn fe_links_close(links: *mut fe_links) {
    if !links.is_null() {
        // SAFETY: given back by its owner, once.
        drop(unsafe { Box::from_raw(links) });
    }
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn fe_links_version(links: *const fe_links) -> u64 {
    // SAFETY: a valid handle.
    unsafe { &*links }.links.version
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn fe_links_outgoing(
    links: *const fe_links,
    count: *mut u32,
) -> *const fe_link {
    // SAFETY: a valid handle and place for the answer.
    let (side, count) = unsafe { (&(*links).outgoing, &mut *count) };
    *count = side.links.len() as u32;
    side.links.as_ptr()
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn fe_links_incoming(
    links: *const fe_links,
    count: *mut u32,
) -> *const fe_link {
    // SAFETY: a valid handle and place for the answer.
    let (side, count) = unsafe { (&(*links).incoming, &mut *count) };
    *count = side.links.len() as u32;
    side.links.as_ptr()
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn fe_links_probe(
    links: *const fe_links,
    incoming: c_int,
    link_no: u32,
    session: *mut fe_session,
    prefix: fe_slice,
    stay: std::ffi::c_int,
) -> fe_code {
    // SAFETY: valid handles and a slice.
    let (links, session, prefix) =
        unsafe { (&(*links).links, session_of(session), prefix.bytes()) };
    let (side, role) = match incoming {
        0 => (&links.outgoing, Role::Parent),
        _ => (&links.incoming, Role::Child),
    };
    let Some(link) = side.get(link_no as usize) else {
        return fail(&Error::Bug(format!("foreign key {link_no} is unknown")));
    };
    let Some(peer) = &link.peer else {
        return FE_NOT_FOUND;
    };
    let there = match stay {
        0 => session.is_there(peer, prefix, role),
        _ => session.is_there_to_stay(peer, prefix, role),
    };
    match there {
        Ok(true) => FE_OK,
        Ok(false) => FE_NOT_FOUND,
        Err(e) => fail(&e),
    }
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn fe_links_check(
    links: *const fe_links,
    session: *mut fe_session,
    table: *mut fe_table,
    report: unsafe extern "C" fn(*mut c_void, u32, u32, fe_slice) -> c_int,
    arg: *mut c_void,
) -> fe_code {
    // SAFETY: valid handles.
    let (links, session, handle) =
        unsafe { (&(*links).links, session_of(session), table_of(table)) };
    let result = session.check_foreign(&handle.table, links, &mut |number, fault| {
        let (kind, pk) = match fault {
            ForeignFault::Orphan(pk) => (FE_FAULT_ORPHAN, pk),
            ForeignFault::NoParent => (FE_FAULT_NO_PARENT, &[][..]),
            ForeignFault::ParentChanged => (FE_FAULT_PARENT_CHANGED, &[][..]),
            ForeignFault::Padding => (FE_FAULT_PADDING, &[][..]),
        };
        // SAFETY: the callback takes what the header says.
        unsafe { report(arg, number as u32, kind, fe_slice::of(pk)) != 0 }
    });
    code(result)
}
