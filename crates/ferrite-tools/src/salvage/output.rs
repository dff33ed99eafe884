//! Where rescued rows go.
//!
//! Invariants: a file is made, never overwritten; names hold no path.

use ferrite_types::{Error, Result};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

/// Takes files.
pub trait Output {
    /// Makes a file and has `fill` write it.
    ///
    /// # Errors
    /// It is there already, or cannot be written.
    fn file(
        &mut self,
        name: &str,
        fill: &mut dyn FnMut(&mut dyn Write) -> io::Result<()>,
    ) -> Result<()>;
}

/// A directory of the real file system.
pub struct DirOutput {
    dir: PathBuf,
}

impl DirOutput {
    /// The directory, made if it is not there.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn new(dir: &Path) -> Result<DirOutput> {
        std::fs::create_dir_all(dir)
            .map_err(|e| Error::Io(format!("create directory {}: {e}", dir.display())))?;
        Ok(DirOutput {
            dir: dir.to_owned(),
        })
    }
}

impl Output for DirOutput {
    fn file(
        &mut self,
        name: &str,
        fill: &mut dyn FnMut(&mut dyn Write) -> io::Result<()>,
    ) -> Result<()> {
        let path = self.dir.join(name);
        let write = || -> io::Result<()> {
            let file = std::fs::File::create_new(&path)?;
            let mut w = BufWriter::with_capacity(1 << 20, file);
            fill(&mut w)?;
            w.flush()
        };
        let mut write = write;
        write().map_err(|e| Error::Io(format!("write {}: {e}", path.display())))
    }
}

/// The name of a table's files without their ending: `db/table` becomes `db.table`.
pub(super) fn file_stem(table: &str) -> String {
    let plain = |c: char| match c {
        '/' => '.',
        c if c.is_control() || c == '\\' || c == '\'' => '_',
        c => c,
    };
    table.chars().map(plain).collect()
}
