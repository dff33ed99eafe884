//! `ferrite_second_tier`: which file, and how large.
//!
//! Locking: none.

use ferrite_engine::TierConfig;
use ferrite_io::encryption::{is_plain, Encryption};
use ferrite_io::{RealStorage, Storage};
use ferrite_sync::Arc;
use ferrite_types::{Error, Result};
use std::path::Path;

/// What the option says, "FILE,SIZE"; the empty one is none. A database that is encrypted encrypts it, too.
/// `database` is the directory of Ferrite's own files.
///
/// # Errors
/// `BadConfig`: it says something else, or there is no such directory.
pub(crate) fn config_of(
    option: &str,
    database: &Path,
    direct: bool,
    encryption: Option<&Encryption>,
) -> Result<Option<TierConfig>> {
    if option.is_empty() {
        return Ok(None);
    }
    let fault = |what: &str| {
        let usage = "FILE,SIZE, as in /fast/ferrite.tier,100G";
        Error::BadConfig(format!(
            "ferrite_second_tier={option}: {what}; it is {usage}"
        ))
    };
    let (path, size) = option.rsplit_once(',').ok_or_else(|| fault("no size"))?;
    let bytes = bytes_of(size.trim()).ok_or_else(|| fault("no size that can be read"))?;
    let path = Path::new(path.trim());
    let name = path.file_name().and_then(|name| name.to_str());
    let name = name.ok_or_else(|| fault("no file name"))?.to_string();
    let dir = path.parent().unwrap_or(Path::new(""));
    let beneath: Arc<dyn Storage> = match dir.as_os_str().is_empty() {
        true => return Err(fault("no directory")),
        false => Arc::new(RealStorage::existing(dir)?),
    };
    debug_assert!(!name.contains('/'), "{name} is no name");
    if dir.canonicalize().ok() == database.canonicalize().ok() {
        return Err(fault("the directory is that of the database's own files"));
    }
    let storage = match encryption {
        Some(_) if is_plain(&name) => {
            return Err(fault(
                "the database is encrypted, and files of that name are not",
            ))
        }
        Some(encryption) => Arc::new(encryption.view(beneath)),
        None => beneath,
    };
    Ok(Some(TierConfig {
        storage,
        name,
        bytes,
        direct,
    }))
}

/// A number with the suffix of a size, as the server's options have it.
fn bytes_of(size: &str) -> Option<u64> {
    let digits = size.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = match &size[digits.len()..] {
        "" => 0,
        "k" | "K" => 10,
        "m" | "M" => 20,
        "g" | "G" => 30,
        "t" | "T" => 40,
        _ => return None,
    };
    digits.parse::<u64>().ok()?.checked_mul(1 << unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_size() {
        assert_eq!(bytes_of("100G"), Some(100 << 30));
        assert_eq!(bytes_of("77"), Some(77));
        for wrong in ["", "G", "1 G", "1Gi", "-1", "1.5G", "99999999999T"] {
            assert_eq!(bytes_of(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn what_is_no_second_tier() {
        let refused = |option| {
            config_of(option, Path::new("/etc"), true, None)
                .err()
                .map(|e| e.to_string())
        };
        assert!(config_of("", Path::new("/etc"), true, None)
            .unwrap()
            .is_none());
        for wrong in [
            "/tmp/x",
            "/tmp/x,",
            "x,1G",
            "/tmp/..,1G",
            "/no/such/dir/x,1G",
        ] {
            let text = refused(wrong).expect(wrong);
            assert!(
                text.contains(wrong.split(',').next().unwrap()) || text.contains("/no/such/dir")
            );
        }
        let dir = std::env::temp_dir();
        let option = format!("{}, 1 , 20M", dir.join("tier").display());
        assert!(config_of(&option, Path::new("/etc"), true, None).is_ok());
    }
}
