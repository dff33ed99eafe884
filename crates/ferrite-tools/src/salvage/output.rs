//! Where rescued rows go.
//!
//! Invariants: a file is made, never overwritten; names hold no path.

use ferrite_types::{fnv1a, Error, Result, FNV_BASIS};
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

/// The name of a table's files without their ending: `db/table` becomes `db.table`. One that is longer than a
/// file's name can be ends with a hash instead.
pub(super) fn file_stem(table: &str) -> String {
    /// With the ending it is a name that every file system takes.
    const MOST_BYTES: usize = 240;
    let plain = |c: char| match c {
        '/' => '.',
        c if c.is_control() || c == '\\' || c == '\'' => '_',
        c => c,
    };
    let mut stem: String = table.chars().map(plain).collect();
    if stem.len() > MOST_BYTES {
        let end = format!("-{:016x}", fnv1a(FNV_BASIS, table.as_bytes()));
        let mut kept = MOST_BYTES - end.len();
        while !stem.is_char_boundary(kept) {
            kept -= 1;
        }
        stem.truncate(kept);
        stem += &end;
    }
    debug_assert!(!stem.contains('/') && stem.len() <= MOST_BYTES, "{stem}");
    stem
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_names_are_shortened_and_stay_apart() {
        assert_eq!(file_stem("d/t"), "d.t");
        let longest = format!("d/{}", "t".repeat(238));
        assert_eq!(file_stem(&longest), longest.replace('/', "."));
        // As the server encodes a name that is not of ASCII, and as it may be.
        for letter in ["@0436", "\u{436}", "\u{1f980}"] {
            let name = |end: &str| format!("d/{}{end}", letter.repeat(64));
            let (one, two) = (file_stem(&name("a")), file_stem(&name("b")));
            assert_ne!(one, two);
            for stem in [one, two] {
                assert!(stem.len() <= 240, "{} bytes", stem.len());
                assert!(stem.starts_with(&format!("d.{letter}")), "{stem}");
            }
        }
        let dir = std::env::temp_dir().join(format!("ferrite-stem-{}", std::process::id()));
        let mut out = DirOutput::new(&dir).unwrap();
        let name = format!("{}.sql", file_stem(&format!("d/{}", "@0436".repeat(64))));
        let written = out.file(&name, &mut |w| w.write_all(b"x"));
        let _ = std::fs::remove_dir_all(&dir);
        written.unwrap();
    }
}
