//! The file `manifest`: what a backup is and which files belong to it. It is written last; a
//! directory without it holds no backup.
//!
//! Text, one word or pair a line, for people and tools:
//! ```text
//! ferrite-backup 1
//! id 16 hex digits
//! database 32 hex digits              the database's uuid
//! base id | none                      the backup it is an increment of
//! base-position N                     0 without a base
//! position N                          its point in time
//! log-start N                         where its log begins
//! log-segment-bytes N                 length of the database's log files
//! generation OPENING NUMBER           see ferrite-store/src/backup.rs
//! taken N                             seconds since 1970
//! file NAME BYTES CRC32C              one line for each file
//! end CRC32C                          of all that stands before this line
//! ```
//!
//! Invariant: decoding takes nothing that encoding does not write. Locking: none.

use super::sealed;
use ferrite_io::Storage;
use ferrite_store::{CopiedFile, Generation};
use ferrite_types::{Error, Lsn, Result};

pub(crate) const NAME: &str = "manifest";
const ASIDE: &str = "manifest.new";
const VERSION: u32 = 1;

/// See the head of the file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Manifest {
    /// Of this backup.
    pub id: u64,
    /// Of the database.
    pub uuid: [u8; 16],
    /// The backup it is an increment of, and that one's position.
    pub base: Option<(u64, Lsn)>,
    /// Its point in time.
    pub position: Lsn,
    /// Where its log begins.
    pub log_start: Lsn,
    /// Length of the database's log files.
    pub log_segment_bytes: u64,
    /// When its pages were pinned.
    pub generation: Generation,
    /// When it was begun, seconds since 1970.
    pub taken_unix_s: u64,
    /// Its files.
    pub files: Vec<CopiedFile>,
}

impl Manifest {
    pub(crate) fn encode(&self) -> String {
        use std::fmt::Write;
        let mut s = String::new();
        let (base, base_position) = match self.base {
            Some((id, at)) => (format!("{id:016x}"), at),
            None => ("none".to_owned(), Lsn::ZERO),
        };
        let uuid = sealed::uuid_text(&self.uuid);
        // Writing to a string does not fail.
        let _ = write!(
            s,
            "ferrite-backup {VERSION}\nid {:016x}\ndatabase {uuid}\nbase {base}\n\
             base-position {}\nposition {}\nlog-start {}\nlog-segment-bytes {}\n\
             generation {:016x} {}\ntaken {}\n",
            self.id,
            base_position.0,
            self.position.0,
            self.log_start.0,
            self.log_segment_bytes,
            self.generation.opening,
            self.generation.number,
            self.taken_unix_s
        );
        sealed::put_files(&self.files, &mut s);
        sealed::seal(&mut s);
        debug_assert_eq!(Manifest::decode(&s).as_ref(), Ok(self));
        s
    }

    /// # Errors
    /// `Format` for a later version; `Corrupt` saying what is wrong.
    pub(crate) fn decode(text: &str) -> Result<Manifest> {
        let bad = |what: &str| Error::Corrupt(format!("{NAME}: {what}"));
        let (body, is_whole) = sealed::split(text).ok_or_else(|| bad("cut off"))?;
        sealed::check_head(body, NAME, "backup", VERSION)?;
        if !is_whole {
            return Err(bad("checksum differs"));
        }
        decode_body(body).ok_or_else(|| bad("unreadable"))
    }

    /// Writes it, durable with its name and everything else in the directory.
    pub(crate) fn write(&self, to: &dyn Storage) -> Result<()> {
        sealed::write(to, ASIDE, NAME, &self.encode())
    }

    /// The manifest of the backup in that directory.
    ///
    /// # Errors
    /// `Corrupt`: there is none, or it is damaged. `Format`. `Io`.
    pub fn read(from: &dyn Storage) -> Result<Manifest> {
        match sealed::read(from, NAME) {
            Err(Error::NotFound) => {
                let text = format!("{NAME} is missing: no backup, or one that was cut off");
                Err(Error::Corrupt(text))
            }
            other => Manifest::decode(&other?),
        }
    }

    /// The file of that name.
    pub(crate) fn file(&self, name: &str) -> Option<&CopiedFile> {
        self.files.iter().find(|f| f.name == name)
    }
}

fn decode_body(body: &str) -> Option<Manifest> {
    let mut lines = body.lines().skip(1);
    let mut word = |key: &str| {
        let rest = lines.next()?.strip_prefix(key)?;
        rest.strip_prefix(' ').map(str::to_owned)
    };
    let hex = |s: &str| u64::from_str_radix(s, 16).ok();
    let id = hex(&word("id")?)?;
    let uuid = sealed::uuid_of(&word("database")?)?;
    let base = word("base")?;
    let base_position = Lsn(word("base-position")?.parse().ok()?);
    let base = match &*base {
        "none" => None,
        id => Some((hex(id)?, base_position)),
    };
    let position = Lsn(word("position")?.parse().ok()?);
    let log_start = Lsn(word("log-start")?.parse().ok()?);
    let log_segment_bytes = word("log-segment-bytes")?.parse().ok()?;
    let generation = word("generation")?;
    let (opening, number) = generation.split_once(' ')?;
    let taken_unix_s = word("taken")?.parse().ok()?;
    let files = sealed::files_of(lines)?;
    Some(Manifest {
        id,
        uuid,
        base,
        position,
        log_start,
        log_segment_bytes,
        generation: Generation {
            opening: hex(opening)?,
            number: number.parse().ok()?,
        },
        taken_unix_s,
        files,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_changed_byte_and_every_cut_is_noticed() {
        let manifest = Manifest {
            id: 0xab,
            uuid: [0x1f; 16],
            base: Some((7, Lsn(80))),
            position: Lsn(4096),
            log_start: Lsn(64),
            log_segment_bytes: 1 << 20,
            generation: Generation {
                opening: 9,
                number: 2,
            },
            taken_unix_s: 1_700_000_000,
            files: vec![CopiedFile {
                name: "pages".into(),
                bytes: 8192,
                crc: 0xfeed,
            }],
        };
        let text = manifest.encode();
        assert_eq!(Manifest::decode(&text), Ok(manifest));
        for i in 0..text.len() {
            let mut bytes = text.clone().into_bytes();
            bytes[i] ^= 1;
            let changed = String::from_utf8(bytes).unwrap();
            assert!(Manifest::decode(&changed).is_err(), "byte {i}: {changed}");
            assert!(Manifest::decode(&text[..i]).is_err(), "cut at {i}");
        }
        let newer = text.replacen("ferrite-backup 1", "ferrite-backup 2", 1);
        assert!(matches!(Manifest::decode(&newer), Err(Error::Format(_))));
    }
}
