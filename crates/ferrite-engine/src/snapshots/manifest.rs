//! The file `manifest` of a snapshot: what it is and which files belong to it. Written last; without
//! it there is no snapshot.
//!
//! Text, one fact a line:
//! ```text
//! ferrite-snapshot 1
//! name NAME
//! number N                            the later, the higher
//! database 32 hex digits              the database's uuid
//! position N                          its point in time
//! log-start N                         where its log begins
//! log-segment-bytes N                 length of the database's log files
//! taken N                             seconds since 1970
//! scheduled 0 | 1                     taken by the schedule
//! binlog-position N                   0 without a binary log
//! binlog-file NAME                    empty without a binary log
//! gtid GTIDS                          the binary log's GTID position
//! file NAME BYTES CRC32C              one line for each file
//! end CRC32C                          of all that stands before this line
//! ```
//!
//! Invariant: decoding takes nothing that encoding does not write. Locking: none.

use crate::backup::sealed;
use crate::state::snapshots::KeptInfo;
use ferrite_io::Storage;
use ferrite_store::CopiedFile;
use ferrite_types::{Error, Lsn, Result};

pub(crate) const NAME: &str = "manifest";
/// What the manifest of a damaged snapshot is renamed to.
pub(crate) const LOST: &str = "lost";
const ASIDE: &str = "manifest.new";
const VERSION: u32 = 1;

/// See the head of the file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Manifest {
    pub info: KeptInfo,
    pub uuid: [u8; 16],
    pub log_start: Lsn,
    pub log_segment_bytes: u64,
    pub files: Vec<CopiedFile>,
}

/// One line of text.
fn line(text: &str) -> String {
    text.replace(['\n', '\r'], " ")
}

impl Manifest {
    pub(crate) fn encode(&self) -> String {
        use std::fmt::Write;
        let mut s = String::new();
        let i = &self.info;
        assert!(
            self.log_start <= i.position,
            "a log that ends before it begins"
        );
        let uuid = sealed::uuid_text(&self.uuid);
        // Writing to a string does not fail.
        let _ = write!(
            s,
            "ferrite-snapshot {VERSION}\nname {}\nnumber {}\ndatabase {uuid}\nposition {}\n\
             log-start {}\nlog-segment-bytes {}\ntaken {}\nscheduled {}\nbinlog-position {}\n\
             binlog-file {}\ngtid {}\n",
            i.name,
            i.number,
            i.position.0,
            self.log_start.0,
            self.log_segment_bytes,
            i.taken_unix_s,
            u8::from(i.scheduled),
            i.binlog_position,
            line(&i.binlog_file),
            line(&i.gtid),
        );
        sealed::put_files(&self.files, &mut s);
        sealed::seal(&mut s);
        debug_assert!(Manifest::decode(&s).is_ok(), "{s}");
        s
    }

    /// # Errors
    /// `Format` for a later version; `Corrupt` saying what is wrong.
    pub(crate) fn decode(text: &str) -> Result<Manifest> {
        let bad = |what: &str| Error::Corrupt(format!("{NAME}: {what}"));
        let body = sealed::body(text).ok_or_else(|| bad("checksum differs, or cut off"))?;
        sealed::check_head(body, NAME, "snapshot", VERSION)?;
        decode_body(body).ok_or_else(|| bad("unreadable"))
    }

    /// Writes it, durable with its name and everything else in the directory.
    pub(crate) fn write(&self, to: &dyn Storage) -> Result<()> {
        sealed::write(to, ASIDE, NAME, &self.encode())
    }

    /// # Errors
    /// `Corrupt`, `Format`, `Io`; `NotFound`: there is no snapshot.
    pub(crate) fn read(from: &dyn Storage) -> Result<Manifest> {
        Manifest::decode(&sealed::read(from, NAME)?)
    }

    pub(crate) fn file(&self, name: &str) -> Result<&CopiedFile> {
        let found = self.files.iter().find(|f| f.name == name);
        found.ok_or_else(|| Error::Corrupt(format!("{NAME}: names no file {name}")))
    }

    pub(crate) fn file_starting(&self, prefix: &str) -> Result<&CopiedFile> {
        let found = self.files.iter().find(|f| f.name.starts_with(prefix));
        found.ok_or_else(|| Error::Corrupt(format!("{NAME}: names no file {prefix}")))
    }
}

fn decode_body(body: &str) -> Option<Manifest> {
    let mut lines = body.lines().skip(1);
    let mut rest = |key: &str| {
        let line = lines.next()?;
        line.strip_prefix(key)?.strip_prefix(' ')
    };
    let name = rest("name")?.to_owned();
    let number = rest("number")?.parse().ok()?;
    let uuid = sealed::uuid_of(rest("database")?)?;
    let position = Lsn(rest("position")?.parse().ok()?);
    let log_start = Lsn(rest("log-start")?.parse().ok()?);
    let log_segment_bytes = rest("log-segment-bytes")?.parse().ok()?;
    let taken_unix_s = rest("taken")?.parse().ok()?;
    let scheduled = rest("scheduled")? == "1";
    let binlog_position = rest("binlog-position")?.parse().ok()?;
    let binlog_file = rest("binlog-file")?.to_owned();
    let gtid = rest("gtid")?.to_owned();
    let files = sealed::files_of(lines)?;
    if log_start > position {
        return None;
    }
    let file_bytes = files.iter().map(|f| f.bytes).sum();
    Some(Manifest {
        info: KeptInfo {
            name,
            number,
            taken_unix_s,
            position,
            file_bytes,
            binlog_file,
            binlog_position,
            gtid,
            scheduled,
            ..KeptInfo::default()
        },
        uuid,
        log_start,
        log_segment_bytes,
        files,
    })
}

#[cfg(test)]
impl Manifest {
    /// One for tests.
    pub(crate) fn sample(name: &str) -> Manifest {
        Manifest {
            info: KeptInfo {
                name: name.into(),
                number: 3,
                position: Lsn(4096),
                taken_unix_s: 1_700_000_000,
                file_bytes: 8192,
                binlog_file: "bin log.000001".into(),
                binlog_position: 77,
                gtid: "0-1-5,1-1-9".into(),
                ..KeptInfo::default()
            },
            uuid: [0x1f; 16],
            log_start: Lsn(64),
            log_segment_bytes: 1 << 20,
            files: vec![CopiedFile {
                name: "held".into(),
                bytes: 8192,
                crc: 0xfeed,
            }],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_changed_byte_and_every_cut_is_noticed() {
        let manifest = Manifest::sample("before-the-upgrade");
        let text = manifest.encode();
        assert_eq!(Manifest::decode(&text), Ok(manifest));
        for i in 0..text.len() {
            let mut bytes = text.clone().into_bytes();
            bytes[i] ^= 1;
            let changed = String::from_utf8(bytes).unwrap();
            assert!(Manifest::decode(&changed).is_err(), "byte {i}: {changed}");
            assert!(Manifest::decode(&text[..i]).is_err(), "cut at {i}");
        }
    }
}
