//! Keys for programs that open an encrypted database without a server: a file as the server's plugin
//! file_key_management has it.
//!
//! Locking: none.

use clap::Args;
use ferrite_io::encryption::{decrypted, KeyFile, KeySource, NoKeys};
use ferrite_io::{RealStorage, Storage};
use ferrite_sync::Arc;
use ferrite_types::{Error, Result};
use std::ffi::OsString;
use std::io::Read;
use std::path::{Path, PathBuf};

/// Names the file where no option does: for programs that another one calls.
const VARIABLE: &str = "FERRITE_ENCRYPTION_KEYS";
/// Key files are far smaller.
const MOST_BYTES: u64 = 1 << 20;

/// Of each program that reads or writes a database.
#[derive(Args, Default, Debug)]
pub struct KeyOptions {
    /// The keys of an encrypted database: a file with lines NUMBER;KEY, as for the server's plugin
    /// file_key_management; -: standard input. Default: the environment variable FERRITE_ENCRYPTION_KEYS
    #[arg(long, value_name = "FILE", global = true)]
    pub encryption_keys: Option<PathBuf>,
}

impl KeyOptions {
    /// The keys; none if no file is named.
    ///
    /// # Errors
    /// `BadConfig` naming the file and the line. `Io`.
    pub fn read(&self) -> Result<Box<dyn KeySource>> {
        self.read_from(std::env::var_os(VARIABLE))
    }

    fn read_from(&self, usual: Option<OsString>) -> Result<Box<dyn KeySource>> {
        let usual = usual.filter(|name| !name.is_empty()).map(PathBuf::from);
        let Some(path) = self.encryption_keys.clone().or(usual) else {
            return Ok(Box::new(NoKeys));
        };
        let text =
            text_of(&path).map_err(|e| Error::Io(format!("read {}: {e}", path.display())))?;
        let keys = KeyFile::parse(&text).map_err(|e| match e {
            Error::BadConfig(why) => Error::BadConfig(format!("{}: {why}", path.display())),
            other => other,
        })?;
        Ok(Box::new(keys))
    }
}

fn text_of(path: &Path) -> std::io::Result<String> {
    let mut text = String::new();
    match path == Path::new("-") {
        true => std::io::stdin()
            .take(MOST_BYTES)
            .read_to_string(&mut text)?,
        false => std::fs::File::open(path)?
            .take(MOST_BYTES)
            .read_to_string(&mut text)?,
    };
    Ok(text)
}

/// The files of a directory, decrypted if they are encrypted.
///
/// # Errors
/// `BadConfig` naming the directory: the keys are missing, or others. `Corrupt`, `Io`.
pub fn open(real: RealStorage, keys: &dyn KeySource) -> Result<Arc<dyn Storage>> {
    let dir = real.dir().display().to_string();
    decrypted(Arc::new(real), keys).map_err(|e| match e {
        Error::BadConfig(why) => Error::BadConfig(format!("{dir}: {why}")),
        Error::Corrupt(why) => Error::Corrupt(format!("{dir}: {why}")),
        other => other,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use ferrite_io::encryption::KeyRef;

    #[test]
    fn files_and_their_faults() {
        let path = std::env::temp_dir().join(format!("ferrite-keys-{}", std::process::id()));
        let named = |path: &Path| KeyOptions {
            encryption_keys: Some(path.to_owned()),
        };
        let one = KeyRef { id: 1, version: 1 };
        std::fs::write(&path, "1;00112233445566778899aabbccddeeff\n").unwrap();
        assert!(named(&path).read_from(None).unwrap().key(one).is_ok());
        let usual = Some(path.clone().into_os_string());
        assert!(KeyOptions::default()
            .read_from(usual)
            .unwrap()
            .key(one)
            .is_ok());
        let none = KeyOptions::default()
            .read_from(Some(OsString::new()))
            .unwrap();
        assert!(none.key(one).is_err());
        std::fs::write(&path, "1;00\n").unwrap();
        let e = named(&path).read_from(None).err().unwrap().to_string();
        assert!(e.contains("line 1") && e.contains("ferrite-keys"), "{e}");
        std::fs::remove_file(&path).unwrap();
        assert!(named(&path).read_from(None).is_err());
    }
}
