//! What the server keeps of tables in files of its own: definitions (`.frm`, `.par`), triggers (`.TRG`,
//! `.TRN`), options of databases (`db.opt`). They belong to a snapshot.
//!
//! File `server` (little-endian): magic "FERRSRVF", version u32, count u32; then each file: length of
//! the path u32, path (`DATABASE/FILE`), length u32, content. Its checksum is in the manifest.
//!
//! [`swap`] can be repeated: what it does depends on the two lists alone.
//!
//! Locking: none; DDL is kept out by the caller.

use super::trigger_table;
use crate::backup::files::{read_whole, Output};
use crate::catalog::foreign::whole_table;
use ferrite_io::{OpenMode, RealStorage, Storage};
use ferrite_store::CopiedFile;
use ferrite_types::{ByteReader, Error, Result};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

const MAGIC: u64 = 0x4656_5253_5252_4546;
const VERSION: u32 = 1;
/// Options of a database.
const OPTIONS: &str = "db.opt";
/// Databases of the server itself, and what a file system has at its mount point: no database is called that
/// (`+` is written another way in a database's directory).
const NOT_OF_USERS: [&str; 4] = ["lost+found", "mysql", "performance_schema", "sys"];
/// Files of a table, by what follows its name.
const OF_TABLE: [&str; 3] = [".frm", ".par", ".TRG"];
/// A trigger's file.
const TRIGGER: &str = ".TRN";

/// Paths, `DATABASE/FILE`, and contents.
pub type ServerFiles = Vec<(String, Vec<u8>)>;

/// The server's data directory: a directory for each database.
pub trait DataDirectory {
    /// Names of the users' databases, sorted. Directories that this process has no rights to list may
    /// be left out: so has the server none, and what the dictionary has in them is known anyway.
    ///
    /// # Errors
    /// `Io`.
    fn databases(&self) -> Result<Vec<String>>;

    /// Names of the files of a database; none if that is not there.
    ///
    /// # Errors
    /// `Io`.
    fn list(&self, database: &str) -> Result<Vec<String>>;

    /// # Errors
    /// `NotFound`, `Io`.
    fn read(&self, database: &str, file: &str) -> Result<Vec<u8>>;

    /// Makes or replaces files of a database, durable, each in one step; and the database if that is
    /// not there. What is as it should be stays.
    ///
    /// # Errors
    /// `DiskFull`, `Io`: some are there.
    fn write(&self, database: &str, files: &[(&str, &[u8])]) -> Result<()>;

    /// Removes files that are there, durable, and the database when it is empty then and `whole`.
    ///
    /// # Errors
    /// `Io`.
    fn remove(&self, database: &str, files: &[String], whole: bool) -> Result<()>;
}

/// One on the real disk.
pub struct RealDirectory {
    root: PathBuf,
}

impl RealDirectory {
    /// The data directory there.
    pub fn new(root: &Path) -> RealDirectory {
        RealDirectory {
            root: root.to_owned(),
        }
    }

    fn database(&self, name: &str) -> Result<PathBuf> {
        match name.is_empty() || name.contains('/') || name.starts_with('.') || name == "#ferrite" {
            true => Err(Error::Corrupt(format!("'{name}' is no database"))),
            false => Ok(self.root.join(name)),
        }
    }
}

impl DataDirectory for RealDirectory {
    fn databases(&self) -> Result<Vec<String>> {
        let mut names = RealStorage::directories(&self.root)?;
        names.retain(|n| {
            let is_named_so = !n.starts_with(['.', '#']) && !NOT_OF_USERS.contains(&n.as_str());
            is_named_so && RealStorage::may_list(&self.root.join(n))
        });
        Ok(names)
    }

    fn list(&self, database: &str) -> Result<Vec<String>> {
        let dir = self.database(database)?;
        match dir.is_dir() {
            true => RealStorage::existing(&dir)?.list(),
            false => Ok(Vec::new()),
        }
    }

    fn read(&self, database: &str, file: &str) -> Result<Vec<u8>> {
        let storage = RealStorage::existing(&self.database(database)?)?;
        let file = storage.open(file, OpenMode::ReadOnly, false)?;
        let mut bytes = vec![0; file.len()? as usize];
        file.read_at(&mut bytes, 0)?;
        Ok(bytes)
    }

    fn write(&self, database: &str, files: &[(&str, &[u8])]) -> Result<()> {
        /// From so many files on the whole file system is synced, once.
        const MANY: usize = 64;
        let dir = self.database(database)?;
        assert!(files.iter().all(|f| !f.0.contains('/')), "in a directory");
        let storage = RealStorage::new(&dir)?;
        let there: BTreeSet<String> = storage.list()?.into_iter().collect();
        let mut new = Vec::new();
        for (file, content) in files {
            let is_as_it_should =
                there.contains(*file) && self.read(database, file)?.as_slice() == *content;
            if !is_as_it_should {
                new.push((*file, *content, aside(file)));
            }
        }
        for (_, content, aside) in &new {
            if there.contains(aside) {
                storage.remove(aside)?;
            }
            let out = storage.open(aside, OpenMode::CreateNew, false)?;
            out.write_at(content, 0)?;
            if new.len() < MANY {
                out.sync_data()?;
            }
        }
        if new.len() >= MANY {
            storage.sync_file_system()?;
        }
        for (file, _, aside) in &new {
            storage.rename(aside, file)?;
        }
        // Also for what an earlier call has renamed.
        storage.sync_dir()
    }

    fn remove(&self, database: &str, files: &[String], whole: bool) -> Result<()> {
        let dir = self.database(database)?;
        if !dir.is_dir() {
            return Ok(());
        }
        assert!(files.iter().all(|f| !f.contains('/')), "{files:?}");
        let storage = RealStorage::existing(&dir)?;
        for file in files {
            match storage.remove(file) {
                Ok(()) | Err(Error::NotFound) => {}
                Err(e) => return Err(e),
            }
        }
        storage.sync_dir()?;
        if whole {
            // Something of others may be in it; then it stays.
            let _ = RealStorage::remove_empty(&dir);
        }
        Ok(())
    }
}

/// A file that is to take the other's place.
fn aside(file: &str) -> String {
    format!("{file}.rewind~")
}

/// The tables of each database, by the names that their files have.
fn by_database(tables: &[String]) -> BTreeMap<&str, BTreeSet<&str>> {
    let mut all: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for name in tables {
        let Some((database, table)) = name.split_once('/') else {
            continue;
        };
        // A partition's table.
        let base = whole_table(table);
        if !base.starts_with("#sql") {
            all.entry(database).or_default().insert(base);
        }
    }
    debug_assert!(all.values().all(|tables| !tables.is_empty()));
    all
}

/// Names and contents of files, by database.
pub(super) fn databases_of(files: &ServerFiles) -> BTreeMap<&str, Vec<(&str, &[u8])>> {
    let mut all: BTreeMap<&str, Vec<(&str, &[u8])>> = BTreeMap::new();
    for (path, content) in files {
        if let Some((database, file)) = path.split_once('/') {
            all.entry(database).or_default().push((file, content));
        }
    }
    debug_assert!(all.values().map(Vec::len).sum::<usize>() == files.len());
    all
}

/// The files of these tables (`DATABASE/TABLE`, as the dictionary names them), and of their databases.
///
/// # Errors
/// `Io`.
pub fn collect(from: &dyn DataDirectory, tables: &[String]) -> Result<ServerFiles> {
    let mut files = ServerFiles::new();
    let all = by_database(tables);
    // That one without tables of ours was there is known by its options.
    let mut databases = from.databases()?;
    databases.extend(all.keys().map(|name| (*name).to_owned()));
    databases.sort_unstable();
    databases.dedup();
    for database in &databases {
        let tables = all.get(database.as_str()).cloned().unwrap_or_default();
        for file in from.list(database)? {
            let of_table = (OF_TABLE.iter())
                .any(|end| file.strip_suffix(end).is_some_and(|t| tables.contains(t)));
            let trigger = file.ends_with(TRIGGER);
            if !of_table && !trigger && file != OPTIONS {
                continue;
            }
            let content = match from.read(database, &file) {
                Err(Error::NotFound) => continue,
                other => other?,
            };
            if !trigger || trigger_table::is_on_one_of(&content, &tables) {
                files.push((format!("{database}/{file}"), content));
            }
        }
    }
    debug_assert!(files.is_sorted_by(|a, b| a.0 != b.0), "a file twice");
    Ok(files)
}

pub(super) fn write(
    to: &dyn Storage,
    name: &'static str,
    files: &[(String, Vec<u8>)],
) -> Result<CopiedFile> {
    let mut out = Output::create(to, name)?;
    out.put(&MAGIC.to_le_bytes())?;
    out.put(&VERSION.to_le_bytes())?;
    out.put(&(files.len() as u32).to_le_bytes())?;
    for (path, content) in files {
        assert!(path.contains('/'), "{path} is in no database");
        out.put(&(path.len() as u32).to_le_bytes())?;
        out.put(path.as_bytes())?;
        out.put(&(content.len() as u32).to_le_bytes())?;
        out.put(content)?;
    }
    out.finish()
}

pub(super) fn read(from: &dyn Storage, file: &CopiedFile) -> Result<ServerFiles> {
    let bytes = read_whole(from, file)?;
    let bad = || Error::Corrupt(format!("{}: unreadable", file.name));
    decode(&bytes).ok_or_else(bad)
}

fn decode(bytes: &[u8]) -> Option<ServerFiles> {
    let mut r = ByteReader::new(bytes);
    if r.u64()? != MAGIC || r.u32()? != VERSION {
        return None;
    }
    let count = r.u32()?;
    let mut files = ServerFiles::new();
    for _ in 0..count {
        let path = String::from_utf8(r.bytes32()?.to_vec()).ok()?;
        let (database, file) = path.split_once('/')?;
        let sound = |name: &str| !name.is_empty() && !name.contains('/') && name != "..";
        if !sound(database) || !sound(file) {
            return None;
        }
        files.push((path, r.bytes32()?.to_vec()));
    }
    Some(files)
}

/// Paths of `to` that the present does not have as its own but that are there: of tables that are
/// another engine's by now.
///
/// # Errors
/// `Io`.
pub(super) fn clashes(
    there: &dyn DataDirectory,
    present: &ServerFiles,
    to: &ServerFiles,
) -> Result<Vec<String>> {
    let known: BTreeSet<&str> = present.iter().map(|(path, _)| path.as_str()).collect();
    debug_assert!(known.len() == present.len(), "a file twice");
    let mut found = Vec::new();
    let mut lists: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    for (path, _) in to.iter().filter(|(path, _)| !known.contains(path.as_str())) {
        let (database, file) = path.split_once('/').unwrap_or(("", path));
        if !lists.contains_key(database) {
            let list = there.list(database)?.into_iter().collect();
            lists.insert(database, list);
        }
        if file != OPTIONS && lists[database].contains(file) {
            found.push(path.clone());
        }
    }
    Ok(found)
}

/// The present's files go, those of `to` come.
///
/// # Errors
/// `DiskFull`, `Io`: some are swapped; the call can be repeated.
pub(super) fn swap(
    there: &dyn DataDirectory,
    present: &ServerFiles,
    to: &ServerFiles,
) -> Result<()> {
    let wanted: BTreeSet<&str> = to.iter().map(|(path, _)| path.as_str()).collect();
    debug_assert!(wanted.len() == to.len(), "a file twice");
    let mut gone: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for (path, _) in present.iter().filter(|(p, _)| !wanted.contains(p.as_str())) {
        if let Some((database, file)) = path.split_once('/') {
            gone.entry(database).or_default().push(file.to_owned());
        }
    }
    for (database, files) in &mut gone {
        // Its options stay as long as others have tables in it.
        let ours: BTreeSet<&String> = files.iter().collect();
        let others = there.list(database)?.iter().any(|f| !ours.contains(f));
        let whole = files.iter().any(|f| f == OPTIONS) && !others;
        files.retain(|f| whole || f != OPTIONS);
        debug_assert!(whole || files.iter().all(|f| f != OPTIONS));
        there.remove(database, files, whole)?;
    }
    for (database, files) in &databases_of(to) {
        // A database without tables of ours that is gone by now is not ours to bring back.
        let with_tables = files.iter().any(|(file, _)| *file != OPTIONS);
        if with_tables || !there.list(database)?.is_empty() {
            there.write(database, files)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A data directory that is a mount point, with a directory that is root's.
    #[test]
    fn what_is_no_database_is_not_listed() {
        let name = format!("ferrite-server-files-{}", std::process::id());
        let root = std::env::temp_dir().join(name);
        for name in ["d", "lost+found", "mysql", ".files", "#ferrite"] {
            std::fs::create_dir_all(root.join(name)).expect("made");
            std::fs::write(root.join(name).join("db.opt"), "x").expect("written");
        }
        let there = RealDirectory::new(&root);
        let databases = there.databases().expect("listed");
        let files = collect(&there, &["d/t".to_owned()]).expect("collected");
        std::fs::remove_dir_all(&root).expect("removed");
        assert_eq!(databases, ["d"]);
        assert_eq!(files, [("d/db.opt".to_owned(), b"x".to_vec())]);
    }

    #[test]
    fn tables_by_their_files() {
        let names = ["d/t", "d/p#P#p0", "d/p#P#p1#SP#s", "e/x", "d/#sql-1"].map(str::to_owned);
        let all = by_database(&names);
        assert_eq!(all["d"].iter().copied().collect::<Vec<_>>(), ["p", "t"]);
        assert_eq!(all["e"].len(), 1);
    }
}
