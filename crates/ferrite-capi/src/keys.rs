//! Encryption at rest: keys of the server's key management, and the data key of the database.
//!
//! Locking: none of its own.

use crate::abi::*;
use ferrite_engine::LogLevel;
use ferrite_io::encryption::{self, Encryption, KeyRef, KeySource};
use ferrite_io::{RealStorage, Storage};
use ferrite_sync::Arc;
use ferrite_types::{Error, Result};
use std::path::Path;
use zeroize::Zeroizing;

/// Longer than any key.
const KEY_ROOM: usize = 256;
/// The key of a new database if none is named; ENCRYPTION_KEY_SYSTEM_DATA, as everywhere in the server.
const USUAL_KEY: u32 = 1;

/// Asks the server.
pub(crate) struct ServerKeys {
    newest: Option<unsafe extern "C" fn(u32) -> u32>,
    key: Option<unsafe extern "C" fn(u32, u32, *mut u8, usize) -> usize>,
}

impl ServerKeys {
    pub(crate) fn of(callbacks: &fe_callbacks) -> ServerKeys {
        ServerKeys {
            newest: callbacks.newest_key_version,
            key: callbacks.encryption_key,
        }
    }
}

impl KeySource for ServerKeys {
    fn newest(&self, id: u32) -> Result<KeyRef> {
        // SAFETY: the header allows any thread.
        let version = self.newest.map_or(FE_NO_KEY, |f| unsafe { f(id) });
        match version {
            FE_NO_KEY => Err(Error::BadConfig(format!(
                "the server has no encryption key {id}: is a key management plugin loaded, and does it have \
                 this key?"
            ))),
            version => Ok(KeyRef { id, version }),
        }
    }

    fn key(&self, key: KeyRef) -> Result<Zeroizing<Vec<u8>>> {
        let mut bytes = Zeroizing::new(vec![0; KEY_ROOM]);
        let len = self.key.map_or(0, |f| {
            // SAFETY: the header allows any thread; the place lives during the call.
            unsafe { f(key.id, key.version, bytes.as_mut_ptr(), bytes.len()) }
        });
        if len == 0 || len > KEY_ROOM {
            return Err(Error::BadConfig(format!(
                "the database is encrypted with key {} (version {}), which the server does not have: is its key \
                 management plugin loaded, with the key?",
                key.id, key.version
            )));
        }
        bytes.truncate(len);
        Ok(bytes)
    }
}

/// The data key of a database that is opened, and where it is kept.
pub(crate) struct Kept {
    pub(crate) encryption: Encryption,
    pub(crate) beneath: Arc<dyn Storage>,
    pub(crate) keys: ServerKeys,
}

/// What is to be known of encryption at open.
pub(crate) struct Wish {
    /// A new database is to be encrypted.
    pub(crate) encrypt: bool,
    /// Number of the server's key; 0: it stays which it is.
    pub(crate) key_id: u32,
}

/// The encryption of the database in a directory, made if it is wished for and the database is a new one. `tell` is
/// told what does not keep it from being opened.
///
/// # Errors
/// `BadConfig`: there is no such key, or the database is not encrypted. `Corrupt`, also of a database that has lost
/// its superblock. `Io`, `DiskFull`.
pub(crate) fn open(
    beneath: &Arc<dyn Storage>,
    keys: ServerKeys,
    wish: &Wish,
    tell: &dyn Fn(LogLevel, &str),
) -> Result<Option<Kept>> {
    // Two servers at the same new directory would each make a key.
    let _lock = beneath.lock_exclusive()?;
    let found = Encryption::of(&**beneath, &keys)?;
    let encryption = match found {
        Some(encryption) => {
            encryption::remove_remains(&**beneath)?;
            rotate_at_start(&encryption, &**beneath, &keys, wish, tell);
            encryption
        }
        None if !wish.encrypt => return Ok(None),
        None if ferrite_engine::may_create(&**beneath)? => {
            let id = if wish.key_id == 0 { USUAL_KEY } else { wish.key_id };
            let encryption = Encryption::new(&keys, id)?;
            encryption.share_with(&**beneath)?;
            encryption
        }
        None => {
            return Err(Error::BadConfig(
                "ferrite_encrypt is ON, and the database is not encrypted, which it only can be from its creation \
                 on: take a backup and restore it with --encrypt, or start without ferrite_encrypt"
                    .into(),
            ))
        }
    };
    Ok(Some(Kept {
        encryption,
        beneath: beneath.clone(),
        keys,
    }))
}

/// A newer version of its key, or another key, from now on; what does not work stays as it is.
fn rotate_at_start(
    encryption: &Encryption,
    beneath: &dyn Storage,
    keys: &ServerKeys,
    wish: &Wish,
    tell: &dyn Fn(LogLevel, &str),
) {
    let by = encryption.wrapped_by();
    let id = if wish.key_id == 0 { by.id } else { wish.key_id };
    let (number, version) = (by.id, by.version);
    match encryption.rotate(beneath, keys, id) {
        Ok(false) => {}
        Ok(true) => {
            let now = encryption.wrapped_by();
            let text = format!(
                "the data key is encrypted with key {} (version {}); before, it was with key {number} (version {version})",
                now.id, now.version
            );
            tell(LogLevel::Note, &text);
        }
        Err(e) => {
            let text =
                format!("the data key stays encrypted with key {number} (version {version}): {e}");
            tell(LogLevel::Warning, &text);
        }
    }
}

/// A directory of a backup as it is, or decrypted.
pub(crate) fn backup_in(dir: &str, keys: &ServerKeys) -> Result<Arc<dyn Storage>> {
    let real: Arc<dyn Storage> = Arc::new(RealStorage::existing(Path::new(dir))?);
    encryption::decrypted(real, keys)
}
