//! The header's structures and codes, in Rust. Order and types follow `ferrite.h`.
//!
//! Field documentation is in the header.

#![allow(missing_docs)]

use std::ffi::{c_char, c_int, c_void};

/// Version of this boundary.
pub const FE_ABI_VERSION: u32 = 15;
/// No such key.
pub const FE_NO_KEY: u32 = 4294967295;

/// A byte slice.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct fe_slice {
    /// First byte; may be NULL.
    pub ptr: *const u8,
    /// Length.
    pub len: usize,
}

impl fe_slice {
    pub(crate) fn of(bytes: &[u8]) -> fe_slice {
        fe_slice {
            ptr: bytes.as_ptr(),
            len: bytes.len(),
        }
    }

    /// The bytes; empty for NULL.
    ///
    /// # Safety
    /// The header's rule: a slice handed in is readable until the call returns.
    pub(crate) unsafe fn bytes<'a>(self) -> &'a [u8] {
        if self.ptr.is_null() || self.len == 0 {
            return &[];
        }
        // SAFETY: by the caller's promise.
        unsafe { std::slice::from_raw_parts(self.ptr, self.len) }
    }
}

/// Result code.
pub type fe_code = c_int;

pub const FE_OK: fe_code = 0;
pub const FE_END: fe_code = 1;
pub const FE_NOT_FOUND: fe_code = 2;
pub const FE_DUPLICATE: fe_code = 3;
pub const FE_LOCK_TIMEOUT: fe_code = 4;
pub const FE_DEADLOCK: fe_code = 5;
pub const FE_INTERRUPTED: fe_code = 6;
pub const FE_DISK_FULL: fe_code = 7;
pub const FE_CORRUPT: fe_code = 8;
pub const FE_IO: fe_code = 9;
pub const FE_ROW_TOO_BIG: fe_code = 10;
pub const FE_KEY_TOO_LONG: fe_code = 11;
pub const FE_EXISTS: fe_code = 12;
pub const FE_ROLLED_BACK: fe_code = 13;
pub const FE_RECORD_CHANGED: fe_code = 14;
pub const FE_SKIPPED: fe_code = 15;
pub const FE_SNAPSHOT_TOO_OLD: fe_code = 16;
pub const FE_UNSUPPORTED: fe_code = 17;
pub const FE_BAD_CONFIG: fe_code = 18;
pub const FE_FORMAT: fe_code = 19;
pub const FE_IN_USE: fe_code = 20;
pub const FE_SAME: fe_code = 21;
pub const FE_TABLE_CHANGED: fe_code = 22;
/// Of the plugin's own allocations: the core returns none such.
pub const FE_OUT_OF_MEMORY: fe_code = 23;
pub const FE_LOCK_TABLE_FULL: fe_code = 24;
pub const FE_BUG: fe_code = 25;
pub const FE_FOREIGN_KEY: fe_code = 26;
pub const FE_REFERENCED: fe_code = 27;

pub const FE_LOG_NOTE: c_int = 0;
pub const FE_LOG_WARNING: c_int = 1;
pub const FE_LOG_ERROR: c_int = 2;

pub const FE_READ_UNCOMMITTED: c_int = 0;
pub const FE_READ_COMMITTED: c_int = 1;
pub const FE_REPEATABLE_READ: c_int = 2;
pub const FE_SERIALIZABLE: c_int = 3;

pub const FE_READ_SNAPSHOT: c_int = 0;
pub const FE_READ_SHARED: c_int = 1;
pub const FE_READ_EXCLUSIVE: c_int = 2;

pub const FE_WAIT: c_int = 0;
pub const FE_NOWAIT: c_int = 1;
pub const FE_SKIP_LOCKED: c_int = 2;

pub const FE_SEEK_EXACT: c_int = 0;
pub const FE_SEEK_GE: c_int = 1;
pub const FE_SEEK_GT: c_int = 2;
pub const FE_SEEK_LE: c_int = 3;
pub const FE_SEEK_LT: c_int = 4;
pub const FE_SEEK_LAST_EXACT: c_int = 5;

pub const FE_OVERFLOW_BYTES: usize = 16;
pub const FE_MANY_OVERFLOW_REFS: u8 = 255;
pub const FE_MAX_INLINE_PAYLOAD: usize = 8000;
pub const FE_MAX_RECORD_BYTES: usize = 8200;
pub const FE_MAX_KEY_BYTES: usize = 4000;

// What the header promises of sizes is what the core keeps to.
const _: () = assert!(FE_OVERFLOW_BYTES == ferrite_engine::OVERFLOW_REF_BYTES);
const _: () = assert!(FE_MANY_OVERFLOW_REFS == ferrite_engine::MANY_OVERFLOW_REFS);
const _: () = assert!(FE_MAX_RECORD_BYTES == ferrite_engine::MAX_RECORD_BYTES);
const _: () = assert!(FE_MAX_KEY_BYTES == ferrite_engine::MAX_KEY_BYTES);
const _: () = assert!(FE_MAX_INLINE_PAYLOAD < FE_MAX_RECORD_BYTES);

/// Callbacks of the server.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct fe_callbacks {
    pub log: Option<unsafe extern "C" fn(c_int, *const c_char)>,
    pub is_killed: Option<unsafe extern "C" fn(*mut c_void) -> c_int>,
    pub progress: Option<unsafe extern "C" fn(*mut c_void, u64, u64)>,
    pub lock_wait_begin: Option<unsafe extern "C" fn(*mut c_void)>,
    pub lock_wait_end: Option<unsafe extern "C" fn(*mut c_void, u64)>,
    pub wants_wait_reports: Option<unsafe extern "C" fn(*mut c_void) -> c_int>,
    pub report_wait_for: Option<unsafe extern "C" fn(*mut c_void, *mut c_void)>,
    pub async_begin: Option<unsafe extern "C" fn(*mut c_void) -> *mut c_void>,
    pub async_done: Option<unsafe extern "C" fn(*mut c_void)>,
    pub checkpoint_notify: Option<unsafe extern "C" fn(*mut c_void)>,
    pub fatal: Option<unsafe extern "C" fn(*const c_char)>,
    pub current_connection: Option<CurrentConnection>,
    pub query_of_waiter: Option<unsafe extern "C" fn(*mut c_void, *mut c_char, usize) -> usize>,
    pub prefer_victim: Option<unsafe extern "C" fn(*mut c_void, *mut c_void) -> c_int>,
    pub connection_of_token:
        Option<unsafe extern "C" fn(*mut c_void, *mut u64, *mut c_char, usize) -> i64>,
    pub newest_key_version: Option<unsafe extern "C" fn(u32) -> u32>,
    pub encryption_key: Option<unsafe extern "C" fn(u32, u32, *mut u8, usize) -> usize>,
    pub is_shutting_down: Option<unsafe extern "C" fn() -> c_int>,
}

pub const FE_ROOM_BYTES: usize = 128;
pub const FE_FILE_READ: c_int = 0;
pub const FE_FILE_WRITE: c_int = 1;
pub const FE_FILE_SYNC: c_int = 2;

const _: () = assert!(FE_ROOM_BYTES == ferrite_sync::observed::ROOM_BYTES);

/// Who watches the core.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct fe_observer {
    pub thread_begins: unsafe extern "C" fn(*const c_char),
    pub thread_ends: unsafe extern "C" fn(),
    pub wait_begins: unsafe extern "C" fn(u32, *mut c_void) -> *mut c_void,
    pub wait_ends: unsafe extern "C" fn(*mut c_void),
    pub file_opened: unsafe extern "C" fn(*const c_char) -> *mut c_void,
    pub file_begins: unsafe extern "C" fn(*mut c_void, c_int, usize, *mut c_void) -> *mut c_void,
    pub file_ends: unsafe extern "C" fn(*mut c_void, usize),
    pub memory: unsafe extern "C" fn(*const c_char, u64),
}

/// See the header.
pub type CurrentConnection = unsafe extern "C" fn(*mut u64, *mut c_char, usize) -> i64;

/// Settings at open.
#[repr(C)]
pub struct fe_config {
    pub abi_version: u32,
    pub data_dir: *const c_char,
    pub buffer_pool_size_bytes: u64,
    pub buffer_pool_size_max_bytes: u64,
    pub log_budget_bytes: u64,
    pub history_ring_bytes: u64,
    pub max_history_bytes: u64,
    pub flush_log_at_commit: u32,
    pub flush_interval_ms: u32,
    pub lock_wait_timeout_ms: u32,
    pub purge_threads: u32,
    pub write_threads: u32,
    pub deadlock_detect: u32,
    pub use_direct_io: u32,
    pub read_only: u32,
    pub compression: u32,
    pub simulate_crash_point: u32,
    pub next_log_start: u64,
    pub snapshot_of: *const c_char,
    pub snapshot: *const c_char,
    pub second_tier: *const c_char,
    pub encrypt: u32,
    pub encryption_key_id: u32,
}

/// A distributed transaction's name.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct fe_xid {
    pub format_id: i64,
    pub gtrid_len: u32,
    pub bqual_len: u32,
    pub data: [u8; 128],
}

#[repr(C)]
pub struct fe_index_def {
    pub name: *const c_char,
    pub flags: u32,
    pub key_parts: u32,
}

pub const FE_INDEX_UNIQUE: u32 = 1;
pub const FE_TABLE_TEMPORARY: u32 = 1;
pub const FE_TABLE_HIDDEN_ROWID: u32 = 2;
pub const FE_TABLE_NO_ROLLBACK: u32 = 4;
pub const FE_INSERT_REPLACE_HINT: u32 = 1;

#[repr(C)]
pub struct fe_table_def {
    pub name: *const c_char,
    pub flags: u32,
    pub compression: u32,
    pub indexes: *const fe_index_def,
    pub index_count: u32,
    pub definition: fe_slice,
    pub auto_increment: u64,
    pub foreign: fe_fk_defs,
}

pub const FE_FK_RESTRICT: u32 = 0;
pub const FE_FK_NO_ACTION: u32 = 1;
pub const FE_FK_CASCADE: u32 = 2;
pub const FE_FK_SET_NULL: u32 = 3;

// The header's numbers are the stored ones.
const _: () = assert!(FE_FK_NO_ACTION == ferrite_engine::Action::NoAction as u32);
const _: () = assert!(FE_FK_CASCADE == ferrite_engine::Action::Cascade as u32);
const _: () = assert!(FE_FK_SET_NULL == ferrite_engine::Action::SetNull as u32);

pub const FE_REFERENCES_ANY: c_int = 0;
pub const FE_REFERENCES_OTHER_DATABASES: c_int = 1;
pub const FE_REFERENCES_NONE: c_int = 2;
pub const FE_REFERENCES_UNLESS_REPLACED: c_int = 3;

pub const FE_NO_INDEX: u32 = 4294967295;

#[repr(C)]
#[derive(Clone, Copy)]
pub struct fe_fk_column {
    pub own: *const c_char,
    pub other: *const c_char,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct fe_fk_def {
    pub name: *const c_char,
    pub parent: *const c_char,
    pub columns: *const fe_fk_column,
    pub column_count: u32,
    pub on_delete: u32,
    pub on_update: u32,
    pub carried: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct fe_fk_defs {
    pub defs: *const fe_fk_def,
    pub count: u32,
    pub checks: u32,
    pub original: *const c_char,
}

pub const FE_MISFIT_CHILD_COLUMN: u32 = 1;
pub const FE_MISFIT_CHILD_INDEX: u32 = 2;
pub const FE_MISFIT_CHILD_PREFIX: u32 = 3;
pub const FE_MISFIT_PARENT: u32 = 4;
pub const FE_MISFIT_PARENT_COLUMN: u32 = 5;
pub const FE_MISFIT_PARENT_INDEX: u32 = 6;
pub const FE_MISFIT_PARENT_PREFIX: u32 = 7;
pub const FE_MISFIT_TYPES: u32 = 8;
pub const FE_MISFIT_NOT_NULL: u32 = 9;
pub const FE_MISFIT_NAME: u32 = 10;
pub const FE_MISFIT_NAME_TWICE: u32 = 11;
pub const FE_MISFIT_PARENT_OLD: u32 = 12;
pub const FE_MISFIT_NULL_FOLLOWS: u32 = 13;
pub const FE_MISFIT_NAME_OF_OWN: u32 = 14;

pub const FE_FAULT_ORPHAN: u32 = 1;
pub const FE_FAULT_NO_PARENT: u32 = 2;
pub const FE_FAULT_PARENT_CHANGED: u32 = 3;
pub const FE_FAULT_PADDING: u32 = 4;

#[repr(C)]
pub struct fe_fk_misfit {
    pub at: u32,
    pub reason: u32,
    pub key: [c_char; 256],
    pub column: [c_char; 256],
    pub other: [c_char; 256],
}

/// `fe_fk_alter::compression`: as it was.
pub const FE_COMPRESSION_KEEP: u32 = 4294967295;

#[repr(C)]
pub struct fe_table_change {
    pub definition: fe_slice,
    pub drop: *const *const c_char,
    pub drop_count: u32,
    pub renamed_count: u32,
    pub renamed: *const fe_fk_column,
    pub index_names: *const *const c_char,
    pub index_sources: *const i32,
    pub build: *mut c_void,
    pub index_count: u32,
    pub compression: u32,
    pub add: fe_fk_defs,
    pub auto_increment: u64,
}

pub const FE_LINK_NULLABLE: u8 = 1;
pub const FE_LINK_DESCENDING: u8 = 2;

#[repr(C)]
#[derive(Clone, Copy)]
pub struct fe_link_side {
    pub column: u16,
    pub kind: u8,
    pub flags: u8,
    pub width: u32,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct fe_link_part {
    pub own: fe_link_side,
    pub other: fe_link_side,
}

#[repr(C)]
pub struct fe_link {
    pub name: *const c_char,
    pub other: *const c_char,
    pub columns: *const fe_fk_column,
    pub column_count: u32,
    pub on_delete: u32,
    pub on_update: u32,
    pub carried: u32,
    pub index_no: u32,
    pub other_index_no: u32,
    pub parent_index: *const c_char,
    pub parts: *const fe_link_part,
    pub part_count: u32,
}

#[repr(C)]
pub struct fe_fk_row {
    pub child: *const c_char,
    pub def: fe_fk_def,
}

#[repr(C)]
#[derive(Default)]
pub struct fe_table_stats {
    pub rows: u64,
    pub data_bytes: u64,
    pub index_bytes: u64,
    pub free_bytes: u64,
    pub created_unix_s: u64,
    pub updated_unix_s: u64,
    pub changes_since_stats: u64,
    pub clustered_leaf_pages: u64,
    pub rows_doubtful: u64,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct fe_entry {
    pub index_no: u32,
    pub check_unique: u32,
    pub key: fe_slice,
    pub payload: fe_slice,
}

#[repr(C)]
pub struct fe_dup_info {
    pub index_no: u32,
    pub pk_len: u32,
    pub pk: [u8; 3512],
}

#[repr(C)]
pub struct fe_row {
    pub key: fe_slice,
    pub payload: fe_slice,
    pub pk: fe_slice,
}

#[repr(C)]
pub struct fe_trx_row {
    pub txn_id: u64,
    pub thread_id: u64,
    pub started_unix_s: u64,
    pub rows_changed: u64,
    pub locks_held: u64,
    pub undo_bytes: u64,
    pub waiting_since_unix_s: u64,
    pub state: *const c_char,
    pub isolation: *const c_char,
}

#[repr(C)]
pub struct fe_lock_row {
    pub lock_id: u64,
    pub txn_id: u64,
    pub thread_id: u64,
    pub mode: *const c_char,
    pub table: *const c_char,
    pub index: *const c_char,
    pub key: fe_slice,
    pub until: fe_slice,
    pub records: u64,
    pub granted: c_int,
    pub of_table: c_int,
}

#[repr(C)]
pub struct fe_lock_wait_row {
    pub requesting_txn_id: u64,
    pub requesting_thread_id: u64,
    pub requested_lock_id: u64,
    pub blocking_txn_id: u64,
    pub blocking_lock_id: u64,
}

#[repr(C)]
pub struct fe_exported_file {
    pub dir: *const c_char,
    pub file: *const c_char,
    pub layout: unsafe extern "C" fn(*const c_void, *const u32) -> u64,
    pub of: *const c_void,
    pub columns: fe_slice,
    pub unfit: unsafe extern "C" fn(*const c_void, *const c_char) -> *const c_char,
}

#[repr(C)]
pub struct fe_backup_plan {
    pub dir: *const c_char,
    pub base: *const c_char,
    pub owner: u64,
    pub kept_bytes: u64,
    pub bytes_per_s: u64,
}

#[repr(C)]
pub struct fe_backup_row {
    pub state: *const c_char,
    pub dir: *const c_char,
    pub base: *const c_char,
    pub error: *const c_char,
    pub id: u64,
    pub owner: u64,
    pub started_unix_s: u64,
    pub position: u64,
    pub page_bytes: u64,
    pub copied_bytes: u64,
    pub kept_log_bytes: u64,
    pub withheld_bytes: u64,
}

#[repr(C)]
pub struct fe_kept_point {
    pub binlog_file: *const c_char,
    pub binlog_position: u64,
    pub gtid: *const c_char,
    pub scheduled: c_int,
}

#[repr(C)]
pub struct fe_kept_row {
    pub name: *const c_char,
    pub lost: *const c_char,
    pub binlog_file: *const c_char,
    pub gtid: *const c_char,
    pub binlog_position: u64,
    pub taken_unix_s: u64,
    pub position: u64,
    pub file_bytes: u64,
    pub changed_bytes: u64,
    pub scheduled: c_int,
}

#[repr(C)]
pub struct fe_snapshot_row {
    pub thread_id: u64,
    pub age_ms: u64,
    pub csn: u64,
    pub held_bytes: u64,
    pub held_rows: u64,
}

#[repr(C)]
pub struct fe_wait_row {
    pub reason: *const c_char,
    pub meaning: *const c_char,
    pub count: u64,
    pub sum_us: u64,
    pub max_us: u64,
    pub p50_us: u64,
    pub p99_us: u64,
}

#[repr(C)]
pub struct fe_memory_row {
    pub part: *const c_char,
    pub meaning: *const c_char,
    pub bytes: u64,
    pub limit_bytes: u64,
}

#[repr(C)]
pub struct fe_deadlock_row {
    pub number: u64,
    pub at_unix_us: u64,
    pub position: u64,
    pub victim: c_int,
    pub thread_id: u64,
    pub txn_id: u64,
    pub rows_changed: u64,
    pub table: *const c_char,
    pub index: *const c_char,
    pub key: fe_slice,
    pub waits_for: *const c_char,
    pub holds: *const c_char,
    pub query: fe_slice,
}

#[repr(C)]
pub struct fe_long_wait_row {
    pub ended_unix_us: u64,
    pub waited_us: u64,
    pub reason: *const c_char,
    pub thread_id: u64,
    pub thread: *const c_char,
    pub table: *const c_char,
    pub index: *const c_char,
    pub page: u64,
    pub holder_thread_id: u64,
    pub query: fe_slice,
    pub txn_id: u64,
}
