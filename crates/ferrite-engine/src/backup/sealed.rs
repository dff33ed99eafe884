//! Texts that end in their own checksum: the manifests of backups and of snapshots, and what a
//! rewind is to do. One fact a line; files as `file NAME BYTES CRC32C`; the last line is `end
//! CRC32C`, of all that stands before it.
//!
//! Locking: none.

use ferrite_io::{OpenMode, Storage};
use ferrite_store::CopiedFile;
use ferrite_types::{Error, Result};

/// Each is far shorter.
const MOST_BYTES: u64 = 1 << 20;

/// Appends the last line.
pub(crate) fn seal(text: &mut String) {
    let crc = crc32c::crc32c(text.as_bytes());
    text.push_str(&format!("end {crc:08x}\n"));
    debug_assert!(split(text).is_some_and(|(_, is_whole)| is_whole));
}

/// What stands before the last line, and whether that has its checksum. None: there is no such line.
pub(crate) fn split(text: &str) -> Option<(&str, bool)> {
    let (body, end) = text.split_at(text.rfind("end ")?);
    let crc = end.strip_prefix("end ").and_then(|e| e.strip_suffix('\n'));
    let crc = crc.and_then(|c| u32::from_str_radix(c, 16).ok());
    Some((body, crc == Some(crc32c::crc32c(body.as_bytes()))))
}

/// What stands before the last line, if that has its checksum.
pub(crate) fn body(text: &str) -> Option<&str> {
    split(text).and_then(|(body, is_whole)| is_whole.then_some(body))
}

/// The first line is `ferrite-KIND VERSION`.
///
/// # Errors
/// `Format` for a later version; `Corrupt`: it is something else.
pub(crate) fn check_head(body: &str, name: &str, kind: &str, version: u32) -> Result<()> {
    let first = body.lines().next().unwrap_or("");
    let rest = first
        .strip_prefix("ferrite-")
        .and_then(|r| r.strip_prefix(kind));
    let found = rest
        .and_then(|r| r.strip_prefix(' '))
        .map(str::parse::<u32>);
    match found {
        Some(Ok(n)) if n == version => Ok(()),
        Some(Ok(n)) if n > version => {
            Err(Error::Format(format!("{name}: a {kind} of version {n}")))
        }
        _ => Err(Error::Corrupt(format!(
            "{name}: not the manifest of a {kind}"
        ))),
    }
}

/// 32 hex digits.
pub(crate) fn uuid_text(uuid: &[u8; 16]) -> String {
    uuid.iter().map(|b| format!("{b:02x}")).collect()
}

/// None: not what [`uuid_text`] makes.
pub(crate) fn uuid_of(text: &str) -> Option<[u8; 16]> {
    let byte = |i: usize| u8::from_str_radix(text.get(2 * i..2 * i + 2)?, 16).ok();
    let bytes: Option<Vec<u8>> = (0..16).map(byte).collect();
    let uuid = bytes?.try_into().ok()?;
    (uuid_text(&uuid) == text).then_some(uuid)
}

/// A line for each file.
pub(crate) fn put_files(files: &[CopiedFile], text: &mut String) {
    for file in files {
        let splits = |c: char| c.is_whitespace() || c == '/';
        assert!(!file.name.contains(splits), "'{}' in a line", file.name);
        text.push_str(&format!(
            "file {} {} {:08x}\n",
            file.name, file.bytes, file.crc
        ));
    }
}

/// None: a line is not one of [`put_files`].
pub(crate) fn files_of<'t>(lines: impl Iterator<Item = &'t str>) -> Option<Vec<CopiedFile>> {
    let file = |line: &str| {
        let mut words = line.strip_prefix("file ")?.split(' ');
        let name = words.next()?.to_owned();
        let bytes = words.next()?.parse().ok()?;
        let crc = u32::from_str_radix(words.next()?, 16).ok()?;
        let ends = words.next().is_none() && !name.contains('/');
        ends.then_some(CopiedFile { name, bytes, crc })
    };
    lines.map(file).collect()
}

/// Writes a sealed text aside and gives it its name when it is durable; then the name is durable, too, and
/// so is everything else in the directory.
pub(crate) fn write(to: &dyn Storage, aside: &str, name: &str, text: &str) -> Result<()> {
    assert!(body(text).is_some(), "{name} without its checksum");
    assert!(
        text.len() as u64 <= MOST_BYTES,
        "{name}: {} bytes",
        text.len()
    );
    if to.exists(aside)? {
        to.remove(aside)?;
    }
    let file = to.open(aside, OpenMode::CreateNew, false)?;
    file.write_at(text.as_bytes(), 0)?;
    file.sync_data()?;
    // The other files' names before this one's.
    to.sync_dir()?;
    to.rename(aside, name)?;
    to.sync_dir()
}

/// Reads what may be such a text.
///
/// # Errors
/// `Corrupt`: too long, or not a text. `NotFound`, `Io`.
pub(crate) fn read(from: &dyn Storage, name: &str) -> Result<String> {
    let file = from.open(name, OpenMode::ReadOnly, false)?;
    let len = file.len()?;
    if len > MOST_BYTES {
        return Err(Error::Corrupt(format!("{name}: {len} bytes")));
    }
    let mut bytes = vec![0; len as usize];
    file.read_at(&mut bytes, 0)?;
    String::from_utf8(bytes).map_err(|_| Error::Corrupt(format!("{name}: not text")))
}
