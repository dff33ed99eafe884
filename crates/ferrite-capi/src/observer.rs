//! Who watches the core's threads, waits, files and memory: the server's Performance Schema, through
//! the plugin.
//!
//! Invariant: functions of the observer are called only between `fe_observe` and the process's end;
//! the plugin is never unloaded. Locking: none.

use crate::abi::{fe_observer, FE_FILE_READ, FE_FILE_SYNC, FE_FILE_WRITE};
use crate::boundary::c_text;
use ferrite_sync::observed::{self, FileCall, FileClass, Followed, Observer, Room};
use ferrite_sync::waits::Reason;
use ferrite_sync::OnceLock;
use std::ffi::{c_char, c_void, CString};
use std::path::Path;

static OBSERVER: OnceLock<fe_observer> = OnceLock::new();

/// Calls a function of the observer, from any thread as the header allows.
macro_rules! told {
    ($function:ident($($argument:expr),*)) => {
        match OBSERVER.get() {
            // SAFETY: the header's rule: none is NULL, any thread may call it, and pointers are valid for
            // the call, `room` until the event's end.
            Some(observer) => unsafe { (observer.$function)($($argument),*) },
            None => unreachable!("told before there is an observer"),
        }
    };
}

fn room_of(room: &mut Room) -> *mut c_void {
    std::ptr::from_mut(room).cast()
}

fn thread_begins(name: &str) {
    told!(thread_begins(c_text(name).as_ptr()));
}

fn thread_ends() {
    told!(thread_ends());
}

fn wait_begins(reason: u32, room: &mut Room) -> Followed {
    told!(wait_begins(reason, room_of(room))) as Followed
}

fn wait_ends(followed: Followed) {
    debug_assert!(followed != 0, "the end of nothing");
    told!(wait_ends(followed as *mut c_void));
}

fn file_opened(path: &Path) -> FileClass {
    told!(file_opened(c_text(&path.to_string_lossy()).as_ptr())) as FileClass
}

fn file_begins(class: FileClass, call: FileCall, bytes: usize, room: &mut Room) -> Followed {
    let call = match call {
        FileCall::Read => FE_FILE_READ,
        FileCall::Write => FE_FILE_WRITE,
        FileCall::Sync => FE_FILE_SYNC,
    };
    debug_assert!(class != 0, "a file that is not followed");
    told!(file_begins(
        class as *mut c_void,
        call,
        bytes,
        room_of(room)
    )) as Followed
}

fn file_ends(followed: Followed, bytes: usize) {
    debug_assert!(followed != 0, "the end of nothing");
    told!(file_ends(followed as *mut c_void, bytes));
}

fn memory(part: &str, bytes: u64) {
    told!(memory(c_text(part).as_ptr(), bytes));
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn fe_observe(observer: *const fe_observer) {
    assert!(!observer.is_null(), "no observer");
    // SAFETY: the header's rule: a valid structure during the call.
    if OBSERVER.set(unsafe { *observer }).is_ok() {
        observed::observe(Observer {
            thread_begins,
            thread_ends,
            wait_begins,
            wait_ends,
            file_opened,
            file_begins,
            file_ends,
            memory,
        });
    }
}

/// See the header.
#[no_mangle]
pub extern "C" fn fe_wait_reason(number: u32) -> *const c_char {
    static NAMES: OnceLock<Vec<CString>> = OnceLock::new();
    let names = NAMES.get_or_init(|| Reason::ALL.iter().map(|r| c_text(r.name())).collect());
    let name = names.get(number as usize);
    debug_assert!(name.is_some() || number as usize >= Reason::ALL.len());
    name.map_or(std::ptr::null(), |name| name.as_ptr())
}
