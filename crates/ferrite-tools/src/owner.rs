//! Whose rights a program has that writes to a data directory.
//!
//! Invariant: none of its own. Locking: none.

use ferrite_types::{Error, Result};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// What the kernel says of this process.
const STATUS: &str = "/proc/self/status";
const ACCOUNTS: &str = "/etc/passwd";

/// Files that another account makes in a directory of data, root's above all, the server could not write to.
///
/// # Errors
/// `BadConfig`: the directory is another account's. `Io`: it is not there, or cannot be looked at.
pub fn check(dir: &Path) -> Result<()> {
    let found = std::fs::metadata(dir);
    let owner = match found {
        Ok(found) => found.uid(),
        Err(e) => return Err(Error::Io(format!("look at {}: {e}", dir.display()))),
    };
    let status = std::fs::read_to_string(STATUS).unwrap_or_default();
    // Where there is no such file, nobody can say.
    let Some(own) = account_in(&status) else {
        return Ok(());
    };
    if owner == own {
        return Ok(());
    }
    let accounts = std::fs::read_to_string(ACCOUNTS).unwrap_or_default();
    let (owner, own) = (name_in(&accounts, owner), name_in(&accounts, own));
    Err(Error::BadConfig(format!(
        "{} is of account {owner}, and the files that account {own} makes there its server could not write: run it as \
         account {owner} (sudo -u '{owner}' ...)",
        dir.display()
    )))
}

/// Whose rights a process has: the second of its accounts (real, effective, saved, of file systems).
fn account_in(status: &str) -> Option<u32> {
    let line = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

/// The account's name, or its number where it has none.
fn name_in(accounts: &str, number: u32) -> String {
    let number = number.to_string();
    let is_it = |line: &&str| line.split(':').nth(2) == Some(&number);
    let name = accounts
        .lines()
        .find(is_it)
        .and_then(|l| l.split(':').next());
    name.map_or_else(|| format!("#{number}"), str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accounts_have_names_or_numbers() {
        let accounts =
            "root:x:0:0:root:/root:/bin/bash\nmysql:x:104:105::/nonexistent:/bin/false\nbroken\n";
        assert_eq!(name_in(accounts, 0), "root");
        assert_eq!(name_in(accounts, 104), "mysql");
        // As sudo takes it.
        assert_eq!(name_in(accounts, 105), "#105");
        assert_eq!(name_in("", 0), "#0");
    }

    #[test]
    fn the_effective_account_counts() {
        let status = "Name:\tx\nUid:\t1000\t104\t0\t104\nGid:\t7\t7\t7\t7\n";
        assert_eq!(account_in(status), Some(104));
        assert_eq!(account_in("Name:\tx\nUid:\t1000\n"), None);
        assert_eq!(account_in(""), None);
    }

    #[test]
    fn what_is_ones_own_is_fine() {
        let dir = std::env::temp_dir().join(format!("ferrite-owner-{}", std::process::id()));
        std::fs::create_dir(&dir).unwrap();
        assert_eq!(check(&dir), Ok(()));
        std::fs::remove_dir(&dir).unwrap();
        assert!(matches!(check(&dir), Err(Error::Io(_))));
    }
}
