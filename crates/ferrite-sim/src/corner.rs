//! What a whole run may be about, drawn from the seed.

use ferrite_sync::random::Rng;

/// Nine seeds in 24 are about one thing that the others do too seldom; of the rest one in five is about leaves that are
/// away, of those that are left one in twenty about writes that are lost, and of what is left then two in five about
/// foreign keys. In nearly all of them threads stand still at named places.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum Corner {
    /// Values of one length, written, freed and read at READ UNCOMMITTED: who follows a reference
    /// that has outlived its value meets another one that fits.
    Values,
    /// Recoveries that have more pages than the pool and many values to free, with a checkpoint
    /// in their middle and a crash behind it.
    Restart,
    /// A long log between two checkpoints, and a part of its middle is lost.
    Log,
    /// Prepared transactions that outlive the temporary tables that they have changed, and often
    /// the life, while new tables of the same shape come.
    Ids,
    /// Commits, prepares and rollbacks that stand still between their steps while others go
    /// through, and a crash just then.
    Ends,
    /// Log writes of many blocks, cut by one crash after the other at about the same place.
    Torn,
    /// Pages that move into places which have just become free, while the log that says so is
    /// not durable.
    Moves,
    /// Locked ranges with wide gaps, into which their owners and others insert; unique values that
    /// several want at once.
    Ranges,
    /// Tables with foreign keys: parents and children come and go at the same time.
    Families,
    /// Secondary entries whose leaves are not in memory: put, marked, taken back and locked, many times by
    /// the same transaction.
    Away,
    /// Writes of pages that the disk loses, to places where the same pages were before, and pages that are
    /// read ahead before anybody asks for them.
    Lost,
    /// Marks of prepared transactions and of ones that a crash cuts off, of which some have a version and
    /// some get theirs in the next life, at the addresses of the last one.
    Marks,
    /// Kept snapshots, cut off while they end, and rewound to.
    Kept,
    /// Restarts that read a bit wrong near the log's end, and crash soon.
    Tail,
}

/// Of the stream that says which seeds are about foreign keys; no seed of `regressions.txt` is.
const FAMILIES: u64 = 0x71a1_00ba;
/// The same of those that are about leaves that are away.
const AWAY: u64 = 0x71a1_a3b3;
/// The same of those that are about writes that are lost.
const LOST: u64 = 0x71a1_1057;
/// The same of those about marks, kept snapshots and the log's end.
const LATEST: u64 = 0x71a1_1a7e;

impl Corner {
    /// The corner of a seed, if it has one.
    pub fn new(seed: u64) -> Option<Corner> {
        match Rng::new(seed ^ 0x71a1_0004).below(24) {
            0 => Some(Corner::Values),
            1 => Some(Corner::Restart),
            2 => Some(Corner::Log),
            3 => Some(Corner::Ids),
            4 => Some(Corner::Ends),
            5 => Some(Corner::Torn),
            6 => Some(Corner::Moves),
            7 | 8 => Some(Corner::Ranges),
            _ if Rng::new(seed ^ AWAY).chance(1, 5) => Some(Corner::Away),
            _ if Rng::new(seed ^ LOST).chance(1, 20) => Some(Corner::Lost),
            _ => match Rng::new(seed ^ LATEST).below(60) {
                0 => Some(Corner::Marks),
                1 => Some(Corner::Kept),
                2 => Some(Corner::Tail),
                _ => Rng::new(seed ^ FAMILIES)
                    .chance(2, 5)
                    .then_some(Corner::Families),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A corner that came later would make their stories another's.
    #[test]
    fn regressions_are_about_nothing_that_came_after_them() {
        let seeds = include_str!("../regressions.txt").lines();
        let seeds = seeds.filter_map(|line| line.split_once(' ')?.0.parse().ok());
        let later = |seed: &u64| {
            let corner = Corner::new(*seed);
            use Corner::{Away, Families, Kept, Lost, Marks, Tail};
            matches!(corner, Some(Families | Away | Lost | Marks | Kept | Tail))
        };
        assert_eq!(seeds.filter(later).collect::<Vec<u64>>(), []);
    }
}
