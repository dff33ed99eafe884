//! `ferrite_second_tier`: which file, and how large.
//!
//! Locking: none.

use ferrite_engine::TierConfig;
use ferrite_io::encryption::{is_plain, Encryption};
use ferrite_io::{RealStorage, Storage};
use ferrite_sync::Arc;
use ferrite_types::{Error, Result};
use std::path::Path;

/// Of a database's own files, below a server's data directory.
pub(crate) const DIRECTORY: &str = "#ferrite";

/// What the option says, "FILE,SIZE"; the empty one is none. A database that is encrypted encrypts it, too.
///
/// # Errors
/// `BadConfig`: it says something else, or there is no such directory.
pub(crate) fn config_of(
    option: &str,
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
    if dir.as_os_str().is_empty() {
        return Err(fault("no directory"));
    }
    let beneath: Arc<dyn Storage> = Arc::new(RealStorage::existing(dir)?);
    debug_assert!(!name.contains('/'), "{name} is no name");
    if dir.canonicalize().is_ok_and(|dir| dir.ends_with(DIRECTORY)) {
        return Err(fault("the directory is that of a database's own files"));
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
        assert!(config_of("", true, None).unwrap().is_none());
        let dir = std::env::temp_dir().join(format!("ferrite-tier-{}", std::process::id()));
        let own = dir.join(DIRECTORY);
        std::fs::create_dir_all(&own).unwrap();
        let (dir_text, own_text) = (dir.display(), own.display());
        for (wrong, why) in [
            (format!("{dir_text}/x"), "no size;"),
            (format!("{dir_text}/x,"), "no size that can be read"),
            ("x,1G".into(), "no directory"),
            (format!("{dir_text}/..,1G"), "no file name"),
            (format!("{own_text}/x,1G"), "a database's own files"),
            (format!("{dir_text}/none/x,1G"), "/none"),
        ] {
            let refused = config_of(&wrong, true, None).err().map(|e| e.to_string());
            assert!(
                refused.as_ref().is_some_and(|e| e.contains(why)),
                "{wrong}: {refused:?}"
            );
        }
        let found = config_of(&format!("{dir_text}/a, b , 20M"), true, None);
        let found = found.unwrap().expect("a second tier");
        assert_eq!((&*found.name, found.bytes), ("a, b", 20 << 20));
        std::fs::remove_dir_all(dir).unwrap();
    }
}
