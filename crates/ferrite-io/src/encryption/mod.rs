//! A directory whose files are encrypted: what is written through [`Encrypted`] is ciphertext beneath.
//!
//! One random key, the data key, encrypts all files of a database (`cipher`). It is kept in the
//! directory, in the file [`NAME`], itself encrypted with a key of the server's key management
//! (`envelope`). So a new key of the server's costs one small file, and a lost one the database.
//!
//! Not encrypted: what must be readable before there is a key, and has nothing of a row ([`PLAIN`]).
//!
//! Invariant: with the file there, everything else but the plain files is ciphertext.
//! Locking: [`Encryption`] has one mutex over the writing of its file; files see `file`.

mod cipher;
mod envelope;
mod file;
mod keys;

use ferrite_sync::{Arc, Mutex};
use ferrite_types::{Error, Result};

use crate::pass_on::pass_on_storage;
use crate::{OpenMode, Storage, StorageFile};
use cipher::{DataKey, SectorCipher};
use envelope::Envelope;

pub use envelope::NAME;
pub use keys::{KeyFile, KeyRef, KeySource, NoKeys};

/// Files that are never encrypted: what they are called begins so.
const PLAIN: [&str; 3] = ["superblock", NAME, "creating"];

/// The data key of a database, and how it is kept.
pub struct Encryption {
    key: DataKey,
    cipher: Arc<SectorCipher>,
    envelope: Mutex<Envelope>,
}

impl Encryption {
    /// That of the database in `storage`; None: it has none.
    ///
    /// # Errors
    /// `BadConfig`: the key that is needed is not there, or is another one, by its number. `Corrupt`: the file
    /// is damaged.
    pub fn of(storage: &dyn Storage, keys: &dyn KeySource) -> Result<Option<Encryption>> {
        let Some(envelope) = Envelope::read(storage)? else {
            return Ok(None);
        };
        let key = envelope.open(&keys.key(envelope.wrapped_by())?)?;
        Ok(Some(Encryption::with(key, envelope)))
    }

    /// A new data key, kept with the newest version of that key of the server's; nowhere yet ([`share_with`]).
    ///
    /// # Errors
    /// `BadConfig`: there is no such key. `Io`.
    ///
    /// [`share_with`]: Self::share_with
    pub fn new(keys: &dyn KeySource, id: u32) -> Result<Encryption> {
        let key = DataKey::generate()?;
        let by = keys.newest(id)?;
        let envelope = Envelope::seal(&key, by, &keys.key(by)?)?;
        Ok(Encryption::with(key, envelope))
    }

    fn with(key: DataKey, envelope: Envelope) -> Encryption {
        Encryption {
            cipher: Arc::new(SectorCipher::new(&key)),
            key,
            envelope: Mutex::new(envelope),
        }
    }

    /// The key of the server's with which the data key is kept.
    pub fn wrapped_by(&self) -> KeyRef {
        self.envelope.lock().wrapped_by()
    }

    /// Keeps the data key with the newest version of that key of the server's from now on; false: it is, or with a
    /// newer one.
    ///
    /// # Errors
    /// As [`new`](Self::new), and `DiskFull`; then it is kept as it was.
    pub fn rotate(&self, storage: &dyn Storage, keys: &dyn KeySource, id: u32) -> Result<bool> {
        let by = keys.newest(id)?;
        let mut envelope = self.envelope.lock();
        let now = envelope.wrapped_by();
        if now.id == by.id && now.version >= by.version {
            return Ok(false);
        }
        let new = Envelope::seal(&self.key, by, &keys.key(by)?)?;
        new.write(storage)?;
        *envelope = new;
        Ok(true)
    }

    /// Lets a directory, an empty one, have the data key: writes its file there, durable.
    ///
    /// # Errors
    /// `Io`, `DiskFull`: nothing is left there. `Exists`.
    pub fn share_with(&self, storage: &dyn Storage) -> Result<()> {
        if storage.exists(NAME)? {
            return Err(Error::Exists);
        }
        self.envelope.lock().write(storage)
    }

    /// A view of a directory whose files are encrypted with this key.
    pub fn view(&self, inner: Arc<dyn Storage>) -> Encrypted {
        Encrypted {
            inner,
            cipher: self.cipher.clone(),
        }
    }
}

/// A directory as it is, or decrypted if it has the file [`NAME`].
///
/// # Errors
/// As [`Encryption::of`].
pub fn decrypted(inner: Arc<dyn Storage>, keys: &dyn KeySource) -> Result<Arc<dyn Storage>> {
    Ok(match Encryption::of(&*inner, keys)? {
        Some(encryption) => Arc::new(encryption.view(inner)),
        None => inner,
    })
}

/// See the head of the file.
pub struct Encrypted {
    inner: Arc<dyn Storage>,
    cipher: Arc<SectorCipher>,
}

impl Encrypted {
    /// With a data key that is kept nowhere, for a simulator: everything else is what it is on a server.
    pub fn simulated(inner: Arc<dyn Storage>) -> Encrypted {
        let key = DataKey(std::array::from_fn(|i| i as u8));
        Encrypted {
            inner,
            cipher: Arc::new(SectorCipher::new(&key)),
        }
    }
}

/// Is a file of that name never encrypted?
pub fn is_plain(name: &str) -> bool {
    PLAIN.iter().any(|plain| name.starts_with(plain))
}

/// Kinds of files that have an identity of their own, in order; the numbers are written to disk.
const KINDS: [&str; 6] = ["redo.", "history.", "sort.", "undo.", "map.", "checkpoint."];
/// What a rewind prepares is called so before it takes its name.
const PREPARED: &str = "rewind.";

/// What else than its place tells a file's sectors from those of others: its number for the files of the store, whose
/// names stay; its kind for others, which are renamed.
fn identity(name: &str) -> u64 {
    if let Some(number) = name.strip_prefix("store.").and_then(|n| n.parse().ok()) {
        let number: u32 = number;
        return 1 << 32 | u64::from(number);
    }
    let name = name.strip_prefix(PREPARED).unwrap_or(name);
    let kind = KINDS.iter().position(|kind| name.starts_with(kind));
    kind.map_or(0, |kind| (kind as u64 + 2) << 32)
}

/// Removes what a rotation that was cut off has left in a directory.
///
/// # Errors
/// `Io`.
pub fn remove_remains(storage: &dyn Storage) -> Result<()> {
    Envelope::remove_aside(storage)
}

impl Storage for Encrypted {
    fn open(&self, name: &str, mode: OpenMode, direct: bool) -> Result<Arc<dyn StorageFile>> {
        let inner = self.inner.open(name, mode, direct)?;
        if is_plain(name) {
            return Ok(inner);
        }
        let file = file::EncryptedFile::new(inner, self.cipher.clone(), identity(name))?;
        Ok(Arc::new(file))
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        // Under the other name it would be read with another tweak, or as it is.
        if is_plain(from) != is_plain(to) || identity(from) != identity(to) {
            return Err(Error::Bug(format!("encrypted {from} is renamed to {to}")));
        }
        self.inner.rename(from, to)
    }

    /// Without the file of the key, which is of no concern to who sees decrypted files.
    fn list(&self) -> Result<Vec<String>> {
        let mut names = self.inner.list()?;
        names.retain(|name| !name.starts_with(NAME));
        Ok(names)
    }

    fn key_check(&self) -> Option<u64> {
        Some(self.cipher.key_check())
    }

    pass_on_storage!(
        exists,
        remove,
        sync_dir,
        lock_exclusive,
        lock_file,
        free_bytes,
        stats
    );
}

#[cfg(test)]
mod tests;
