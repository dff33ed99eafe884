//! Where the keys come from that data keys are kept with: the server's key management, or a file in
//! the format of its plugin `file_key_management`, for programs that run without a server.
//!
//! Locking: none.

use ferrite_types::{Error, Result};
use std::collections::BTreeMap;
use zeroize::Zeroizing;

/// A key of the server's key management.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KeyRef {
    /// Its number (ENCRYPTION_KEY_ID).
    pub id: u32,
    /// Which version of it.
    pub version: u32,
}

/// Gives keys.
pub trait KeySource {
    /// The newest version of a key.
    ///
    /// # Errors
    /// `BadConfig`: there is no such key.
    fn newest(&self, id: u32) -> Result<KeyRef>;

    /// Its bytes: 16, 24 or 32.
    ///
    /// # Errors
    /// `BadConfig`: there is no such key.
    fn key(&self, key: KeyRef) -> Result<Zeroizing<Vec<u8>>>;
}

/// For who has been given no keys.
pub struct NoKeys;

impl KeySource for NoKeys {
    fn newest(&self, id: u32) -> Result<KeyRef> {
        Err(Error::BadConfig(format!(
            "encryption key {id} is needed, and no keys were given"
        )))
    }

    fn key(&self, key: KeyRef) -> Result<Zeroizing<Vec<u8>>> {
        let text = "the database is encrypted with key";
        Err(Error::BadConfig(format!(
            "{text} {} (version {}), and no keys were given",
            key.id, key.version
        )))
    }
}

/// Keys of a file: lines `NUMBER;KEY`, the key in 32, 48 or 64 hex digits, empty lines, and comments after `#`.
/// For keys of a management that has versions also `NUMBER:VERSION;KEY`; without one it is taken for any version.
pub struct KeyFile {
    keys: BTreeMap<(u32, Option<u32>), Zeroizing<Vec<u8>>>,
}

impl KeyFile {
    /// Takes a file's text apart. An encrypted key file is decrypted first, by `openssl enc -d`.
    ///
    /// # Errors
    /// `BadConfig` with the number of the line.
    pub fn parse(text: &str) -> Result<KeyFile> {
        let mut keys = BTreeMap::new();
        if text.starts_with("Salted__") {
            let text = "the key file is encrypted: decrypt it first (openssl enc -d)";
            return Err(Error::BadConfig(text.into()));
        }
        for (n, line) in text.trim_start_matches('\u{feff}').lines().enumerate() {
            let line = line.split('#').next().unwrap_or("").trim();
            if line.is_empty() {
                continue;
            }
            let Some((id, key)) = key_of(line) else {
                return Err(Error::BadConfig(format!(
                    "line {} of the key file is not NUMBER;KEY or NUMBER:VERSION;KEY, with a key of 32, 48 or 64 hex digits",
                    n + 1
                )));
            };
            keys.insert(id, key);
        }
        Ok(KeyFile { keys })
    }
}

type Entry = ((u32, Option<u32>), Zeroizing<Vec<u8>>);

fn key_of(line: &str) -> Option<Entry> {
    let (id, hex) = line.split_once(';')?;
    let (id, version) = match id.split_once(':') {
        Some((id, version)) => (id, Some(version.trim().parse().ok()?)),
        None => (id, None),
    };
    let (id, hex) = (id.trim().parse().ok()?, hex.trim());
    if !hex.bytes().all(|b| b.is_ascii_hexdigit()) || !matches!(hex.len(), 32 | 48 | 64) {
        return None;
    }
    let byte = |i: usize| u8::from_str_radix(&hex[i..i + 2], 16).ok();
    let key: Option<Vec<u8>> = (0..hex.len()).step_by(2).map(byte).collect();
    Some(((id, version), Zeroizing::new(key?)))
}

impl KeySource for KeyFile {
    fn newest(&self, id: u32) -> Result<KeyRef> {
        let of = self.keys.keys().filter(|(number, _)| *number == id);
        match of.map(|(_, version)| version.unwrap_or(1)).max() {
            Some(version) => Ok(KeyRef { id, version }),
            None => Err(Error::BadConfig(format!("there is no encryption key {id}"))),
        }
    }

    fn key(&self, key: KeyRef) -> Result<Zeroizing<Vec<u8>>> {
        let exact = self.keys.get(&(key.id, Some(key.version)));
        let found = exact.or_else(|| self.keys.get(&(key.id, None)));
        found.cloned().ok_or_else(|| {
            Error::BadConfig(format!(
                "the database is encrypted with key {} (version {}), which is not among the keys that were given",
                key.id, key.version
            ))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_keys() {
        let hex = "00112233445566778899aabbccddeeff";
        let text = format!("# keys\n\n1;{hex}\n 42 ; {hex}{hex} # the second\n");
        let keys = KeyFile::parse(&text).unwrap();
        assert_eq!(keys.key(keys.newest(1).unwrap()).unwrap().len(), 16);
        assert_eq!(keys.key(keys.newest(42).unwrap()).unwrap()[1], 0x11);
        assert!(keys.newest(2).is_err());
        assert!(
            keys.key(KeyRef { id: 1, version: 2 }).is_ok(),
            "any version"
        );
        let versions = KeyFile::parse(&format!("3:1;{hex}\n3:4;{hex}{hex}")).unwrap();
        assert_eq!(versions.newest(3).unwrap(), KeyRef { id: 3, version: 4 });
        assert!(versions.key(KeyRef { id: 3, version: 2 }).is_err());
        assert_eq!(
            versions.key(KeyRef { id: 3, version: 4 }).unwrap().len(),
            32
        );
        assert!(KeyFile::parse("Salted__xyz").is_err());
        assert!(KeyFile::parse("\u{feff}1;00112233445566778899aabbccddeeff").is_ok());
        for wrong in [
            "1",
            "x;00",
            &format!("1;{hex}0"),
            "1;zz112233445566778899aabbccddeeff",
            "1;+0112233445566778899aabbccddeeff",
            "1:x;00112233445566778899aabbccddeeff",
        ] {
            let e = KeyFile::parse(&format!("\n{wrong}"))
                .err()
                .unwrap()
                .to_string();
            assert!(e.contains("line 2"), "{wrong}: {e}");
        }
    }
}
