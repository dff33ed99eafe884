//! The last act of some runs: a whole file is lost, cut or zeroed while the program is down.
//!
//! The program then says which file or page is damaged, at its start or when it comes to it; or
//! everything is there that was committed. It never opens with less and says nothing.
//!
//! After a power cut what the last flush has written cannot be told from a torn write, also where it
//! went on into another file: of the log only files are damaged that end before what was known to be
//! durable when that flush began.

use crate::corner::Corner;
use crate::environment::{End, Environment};
use ferrite_engine::Engine;
use ferrite_io::sim::FileDamage;
use ferrite_io::Storage;
use ferrite_sync::random::Rng;
use ferrite_sync::{sim, Arc};
use ferrite_types::Error;

/// Bytes of the log in each sector of a segment, and of the sector.
const SECTOR_PAYLOAD: u64 = 488;
const SECTOR: u64 = 512;
/// Files of a log that has a middle.
const LONG_LOG: usize = 4;

/// How far the log is durable, for [`damage_a_file`].
pub fn note_durable(environment: &Environment, engine: &Engine) {
    if environment.plan.extra.file_damage {
        let metrics = engine.metrics();
        let flushed = metrics.iter().find(|m| m.name == "lsn_flushed");
        environment.durable_up_to(flushed.expect("there is such a metric").value);
    }
}

/// Damages a file; false when there is none that may be.
pub fn damage_a_file(environment: &Arc<Environment>, rng: &mut Rng, clean: bool) -> bool {
    let names = environment.disk.list().unwrap_or_default();
    let mut names: Vec<String> = names
        .into_iter()
        .filter(|name| clean || may_be_missed(environment, name))
        .collect();
    let of_log: Vec<String> = names.iter().filter(|n| is_log(n)).cloned().collect();
    let about_log = environment.plan.extra.corner == Some(Corner::Log) && !of_log.is_empty();
    if about_log {
        names = of_log;
    }
    if names.is_empty() {
        return false;
    }
    let name = &names[rng.below(names.len() as u64) as usize];
    let bytes = environment
        .disk
        .contents(name)
        .map_or(0, |c| c.len() as u64);
    let somewhere = rng.below(bytes.max(1)) / SECTOR * SECTOR;
    let damage = match rng.below(5) {
        // Nothing tells of it but what is behind it.
        0..=2 if about_log => FileDamage::Zeroes {
            offset: [0, somewhere][rng.below(2) as usize],
            len: u64::MAX,
        },
        0 => FileDamage::Lost,
        1 => FileDamage::Cut { keep_bytes: 0 },
        2 => FileDamage::Cut {
            keep_bytes: somewhere,
        },
        3 => FileDamage::Zeroes {
            offset: 0,
            len: u64::MAX,
        },
        _ => FileDamage::Zeroes {
            offset: somewhere,
            len: 64 << 10,
        },
    };
    sim::note(&format!("damage: {name}: {damage:?}"));
    if let Err(e) = environment.disk.damage_file(name, damage) {
        panic!("damage of {name}: {e}");
    }
    environment.is_damaged();
    true
}

/// The superblock is lost: what is left must not be taken for the remains of a creation.
pub fn lose_superblock(environment: &Environment) {
    const NAME: &str = "superblock";
    sim::note("damage: the superblock is lost");
    if let Err(e) = environment.disk.damage_file(NAME, FileDamage::Lost) {
        panic!("loss of the superblock: {e}");
    }
    environment.is_damaged();
}

fn is_log(name: &str) -> bool {
    name.starts_with("redo.")
}

/// Is there so much of the log that its middle may be lost? In runs that are about it.
pub fn has_long_log(environment: &Environment) -> bool {
    let names = environment.disk.list().unwrap_or_default();
    let log = names
        .iter()
        .filter(|n| is_log(n) && may_be_missed(environment, n));
    environment.plan.extra.corner == Some(Corner::Log) && log.count() >= LONG_LOG
}

/// Is its damage noticed after a power cut, too?
fn may_be_missed(environment: &Environment, name: &str) -> bool {
    let Some(number) = name.strip_prefix("redo.") else {
        return true;
    };
    let Ok(number) = number.parse::<u64>() else {
        return true;
    };
    let bytes = environment.plan.config.log_segment_bytes / SECTOR * SECTOR_PAYLOAD;
    (number + 1) * bytes < environment.durable_before_last_flush()
}

/// A program that refused the damaged database, or broke off later, must have said where.
pub fn judge(end: Option<&End>) {
    if let Some(End::Failed(e)) = end {
        assert!(
            names_a_place(e),
            "a file is damaged and the error does not say where: {e}"
        );
    }
}

/// Does the error say which file or page is damaged?
pub fn names_a_place(e: &Error) -> bool {
    let text = e.to_string();
    let places = [
        "redo.",
        "store.",
        "map.",
        "checkpoint.",
        "superblock",
        "undo.",
        "page ",
    ];
    places.iter().any(|place| text.contains(place))
}
