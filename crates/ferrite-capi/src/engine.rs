//! Opening, closing and setting the engine.

use crate::abi::*;
use crate::boundary::{code, fail, text, xid_of};
use crate::callbacks::{tell_connections, Server};
use crate::keys::{self, Kept, ServerKeys, Wish};
use crate::second_tier::{self, DIRECTORY};
use ferrite_engine::snapshots::server_files::RealDirectory;
use ferrite_engine::snapshots::{
    beside::{self, Beside},
    rewind,
};
use ferrite_engine::{Callbacks, Config, Engine, LogLevel};
use ferrite_io::encryption::Encryption;
use ferrite_io::{LockGuard, RealStorage, Storage};
use ferrite_sync::{Arc, Mutex};
use ferrite_types::format::Codec;
use ferrite_types::{Error, Result};
use std::ffi::{c_char, c_int, c_void};
use std::path::Path;

/// An open engine.
pub struct fe_engine {
    pub(crate) engine: Arc<Engine>,
    /// None: the database is not encrypted.
    pub(crate) encryption: Option<Kept>,
    /// For backups of other times, which may be encrypted, too.
    pub(crate) callbacks: fe_callbacks,
    /// Held while a backup begins.
    pub(crate) backup_begins: Mutex<()>,
    /// Keeps the snapshot that is open.
    _keeps: Option<LockGuard>,
}

fn config_of(c: &fe_config) -> Result<Config> {
    if c.abi_version != FE_ABI_VERSION {
        return Err(Error::BadConfig(format!(
            "the plugin uses version {} of the C interface, the core version {FE_ABI_VERSION}",
            c.abi_version
        )));
    }
    if c.read_only != 0 {
        return Err(Error::Unsupported("read-only mode".into()));
    }
    let codec = Codec::from_u8(c.compression as u8)
        .ok_or_else(|| Error::BadConfig("compression must be none, lz4 or zstd".into()))?;
    Ok(Config {
        buffer_pool_size_bytes: c.buffer_pool_size_bytes,
        buffer_pool_size_max_bytes: c.buffer_pool_size_max_bytes,
        log_budget_bytes: c.log_budget_bytes,
        log_segment_bytes: (c.log_budget_bytes / 4).clamp(1 << 20, 64 << 20) & !0xffff,
        history_ring_bytes: c.history_ring_bytes,
        flush_log_at_commit: c.flush_log_at_commit,
        flush_interval_ms: c.flush_interval_ms,
        lock_wait_timeout_ms: u64::from(c.lock_wait_timeout_ms),
        max_history_bytes: c.max_history_bytes,
        write_threads: c.write_threads,
        purge_threads: c.purge_threads,
        deadlock_detect: c.deadlock_detect != 0,
        direct_io: c.use_direct_io != 0,
        codec,
        ..Config::default()
    })
}

/// A panic anywhere in the core is a bug: its place goes to the server's log, the process
/// aborts, recovery takes over.
fn install_panic_hook(server: &Arc<dyn Callbacks>) {
    let server = server.clone();
    std::panic::set_hook(Box::new(move |info| {
        server.log(LogLevel::Error, &format!("internal error: {info}"));
        std::process::abort();
    }));
}

/// A rewind that was decided comes before everything else: the server has opened no table yet.
fn finish_rewind(
    storage: &Arc<dyn Storage>,
    data_dir: &Path,
    server: &Arc<dyn Callbacks>,
) -> Result<()> {
    if !rewind::is_pending(&**storage)? {
        return Ok(());
    }
    let lock = storage.lock_exclusive()?;
    let went = rewind::finish(storage, Some(&RealDirectory::new(data_dir)))?;
    drop(lock);
    if let Some((to, from)) = went {
        let text = format!("the database went back to snapshot {to}; before, it was {from}");
        server.log(LogLevel::Note, &text);
    }
    Ok(())
}

/// A snapshot of another server's database.
struct Opened {
    of: String,
    name: String,
}

/// Its own files are encrypted with the key of the database that it belongs to.
fn lay_out(
    snapshot: &Opened,
    own: &Arc<dyn Storage>,
    dir: &Path,
    keys: &ServerKeys,
    wish: &Wish,
) -> Result<Beside> {
    let of = RealStorage::existing(&Path::new(&snapshot.of).join(DIRECTORY))?;
    let (mut of, mut own): (Arc<dyn Storage>, _) = (Arc::new(of), own.clone());
    match Encryption::of(&*of, keys)? {
        Some(encryption) => {
            (of, own) = (
                Arc::new(encryption.view(of)),
                Arc::new(encryption.view(own)),
            );
        }
        None if wish.encrypt => {
            let text =
                "ferrite_encrypt is ON, and the snapshot is of a database that is not encrypted";
            return Err(Error::BadConfig(text.into()));
        }
        None => {}
    }
    beside::lay_out(&of, &own, &snapshot.name, Some(&RealDirectory::new(dir)))
}

unsafe fn open(config: *const fe_config, callbacks: *const fe_callbacks) -> Result<fe_engine> {
    // SAFETY: the header's rule: both point to valid structures during the call.
    let (config, callbacks) = unsafe { (&*config, *callbacks) };
    let server: Arc<dyn Callbacks> = Arc::new(Server(callbacks));
    // SAFETY: a string of the caller, valid during the call.
    let dir = unsafe { text(config.data_dir) };
    // SAFETY: strings of the caller or NULL, valid during the call.
    let (of, name) = unsafe { (text(config.snapshot_of), text(config.snapshot)) };
    let opened = (!of.is_empty()).then_some(Opened { of, name });
    // SAFETY: a string of the caller or NULL, valid during the call.
    let tier = unsafe { text(config.second_tier) };
    let wish = Wish {
        encrypt: config.encrypt != 0,
        key_id: config.encryption_key_id,
    };
    let mut config = config_of(config)?;
    let dir = Path::new(&dir);
    let beneath: Arc<dyn Storage> = Arc::new(RealStorage::new(&dir.join(DIRECTORY))?);
    install_panic_hook(&server);
    tell_connections(callbacks.current_connection);
    let source = ServerKeys::of(&callbacks);
    let opened_as = |engine, encryption, keeps| fe_engine {
        engine,
        encryption,
        callbacks,
        backup_begins: Mutex::new(()),
        _keeps: keeps,
    };
    if let Some(opened) = opened {
        if !tier.is_empty() {
            let text = "ferrite_second_tier has no effect: the tables of a snapshot have none";
            server.log(LogLevel::Warning, text);
        }
        let beside = lay_out(&opened, &beneath, dir, &source, &wish)?;
        let engine = Engine::open(config, beside.storage, server)?;
        return Ok(opened_as(engine, None, Some(beside.guard)));
    }
    beside::check_none(&*beneath)?;
    let tell = |level, text: &str| server.log(level, text);
    let kept = keys::open(&beneath, source, &wish, &tell)?;
    let storage: Arc<dyn Storage> = match &kept {
        Some(kept) => Arc::new(kept.encryption.view(beneath)),
        None => beneath,
    };
    finish_rewind(&storage, dir, &server)?;
    let encryption = kept.as_ref().map(|kept| &kept.encryption);
    config.second_tier = second_tier::config_of(&tier, config.direct_io, encryption)
        .inspect_err(|e| server.log(LogLevel::Error, &format!("there is no second tier: {e}")))
        .unwrap_or(None);
    let engine = Engine::open(config, storage, server)?;
    Ok(opened_as(engine, kept, None))
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn fe_engine_open(
    config: *const fe_config,
    callbacks: *const fe_callbacks,
    out: *mut *mut fe_engine,
) -> fe_code {
    // SAFETY: the header's rules for this function.
    unsafe {
        *out = std::ptr::null_mut();
        match open(config, callbacks) {
            Ok(engine) => {
                *out = Box::into_raw(Box::new(engine));
                FE_OK
            }
            Err(e) => {
                let code = fail(&e);
                // Here "not found" is a failure like any other and deserves its text.
                crate::boundary::remember(&e);
                code
            }
        }
    }
}

/// What a handle is of.
///
/// # Safety
/// The header's rule: the handle came from `fe_engine_open` and was not closed.
pub(crate) unsafe fn handle_of<'a>(engine: *const fe_engine) -> &'a fe_engine {
    // SAFETY: by the caller's promise.
    unsafe { &*engine }
}

/// The engine behind a handle.
///
/// # Safety
/// As for `handle_of`.
pub(crate) unsafe fn engine_of<'a>(engine: *const fe_engine) -> &'a Arc<Engine> {
    // SAFETY: by the caller's promise.
    unsafe { &(*engine).engine }
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn fe_engine_close(engine: *mut fe_engine) -> fe_code {
    if engine.is_null() {
        return FE_OK;
    }
    // SAFETY: the handle is given back by its owner, once.
    let handle = unsafe { Box::from_raw(engine) };
    code(handle.engine.close())
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn fe_engine_set(
    engine: *mut fe_engine,
    name: *const c_char,
    value: u64,
) -> fe_code {
    // SAFETY: a valid handle and string.
    let (engine, name) = unsafe { (engine_of(engine), text(name)) };
    code(engine.set(&name, value))
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn fe_engine_flush_log(engine: *mut fe_engine) -> fe_code {
    // SAFETY: a valid handle.
    unsafe { engine_of(engine) }.flush_log();
    FE_OK
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn fe_engine_checkpoint(engine: *mut fe_engine) -> fe_code {
    // SAFETY: a valid handle.
    code(unsafe { engine_of(engine) }.checkpoint())
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn fe_checkpoint_request(engine: *mut fe_engine, cookie: *mut c_void) {
    // SAFETY: a valid handle.
    unsafe { engine_of(engine) }.checkpoint_request(cookie as usize);
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn fe_recovered_xids(
    engine: *mut fe_engine,
    each: unsafe extern "C" fn(*mut c_void, *const fe_xid),
    arg: *mut c_void,
) {
    // SAFETY: a valid handle; the callback takes what the header says.
    unsafe {
        for xid in engine_of(engine).prepared_xids() {
            let mut out = fe_xid {
                format_id: xid.format_id,
                gtrid_len: xid.gtrid_len,
                bqual_len: xid.data.len() as u32 - xid.gtrid_len,
                data: [0; 128],
            };
            let n = xid.data.len().min(128);
            out.data[..n].copy_from_slice(&xid.data[..n]);
            each(arg, &out);
        }
    }
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn fe_commit_by_xid(
    engine: *mut fe_engine,
    xid: *const fe_xid,
    thd: *mut c_void,
) -> fe_code {
    // SAFETY: a valid handle and xid; `thd` is the caller's own connection, or none.
    code(unsafe { engine_of(engine).commit_by_xid_of(&xid_of(xid), thd as usize) })
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn fe_is_prepared(engine: *const fe_engine, xid: *const fe_xid) -> c_int {
    // SAFETY: a valid handle and xid.
    c_int::from(unsafe { engine_of(engine.cast_mut()).is_prepared(&xid_of(xid)) })
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn fe_rollback_by_xid(engine: *mut fe_engine, xid: *const fe_xid) -> fe_code {
    // SAFETY: a valid handle and xid.
    code(unsafe { engine_of(engine).rollback_by_xid(&xid_of(xid)) })
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn fe_roll_back_forgotten(
    engine: *mut fe_engine,
    xid: *const fe_xid,
) -> fe_code {
    // SAFETY: a valid handle and xid.
    code(unsafe { engine_of(engine).roll_back_forgotten(&xid_of(xid)) })
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn fe_commit_recovered(
    engine: *mut fe_engine,
    xid: *const fe_xid,
) -> fe_code {
    // SAFETY: a valid handle and xid.
    code(unsafe { engine_of(engine).commit_recovered(&xid_of(xid)) })
}

/// See the header.
#[no_mangle]
pub unsafe extern "C" fn fe_roll_back_recovered(
    engine: *mut fe_engine,
    xid: *const fe_xid,
) -> fe_code {
    // SAFETY: a valid handle and xid.
    code(unsafe { engine_of(engine).roll_back_recovered(&xid_of(xid)) })
}
