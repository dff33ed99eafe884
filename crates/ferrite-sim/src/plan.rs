//! The random configuration of a run: what there is to choose. `draw` chooses.

use crate::corner::Corner;
use crate::family::Bond;
use crate::rows::Shape;
use ferrite_engine::Config;

/// What kinds of faults the disk has in this run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FaultMode {
    /// Only power cuts.
    PowerOnly,
    /// A sync, once, fails and loses writes: the engine must stop and lose nothing.
    FailedSync,
    /// Reads lie or fail now and then: an error or the right answer, never a wrong row.
    BadReads,
    /// The disk fills up and empties again.
    Full,
}

/// One run's configuration.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The run.
    pub seed: u64,
    /// Settings of the engine; the same in every life but for those that may change.
    pub config: Config,
    /// Faults of the disk besides power cuts.
    pub faults: FaultMode,
    /// Writing clients.
    pub clients: u64,
    /// Transactions of each client in a life, at most.
    pub transactions: u64,
    /// Operations of a transaction, at most.
    pub operations: u64,
    /// Lives of the machine, at least 2.
    pub lives: u64,
    /// Shapes of the tables made at first.
    pub shapes: Vec<Shape>,
    /// Foreign keys between them.
    pub bonds: Vec<Bond>,
    /// Tables come and go.
    pub ddl: bool,
    /// Savepoints and rollback to them.
    pub savepoints: bool,
    /// Two-phase commits.
    pub prepare: bool,
    /// Scans with locks.
    pub locking_reads: bool,
    /// Now and then a transaction of many operations.
    pub big_transactions: bool,
    /// Readers whose snapshot stays open.
    pub long_readers: u64,
    /// Levels below and above REPEATABLE READ.
    pub isolation_mix: bool,
    /// Answers held back until the flusher releases them.
    pub held_answers: bool,
    /// Reads that lie may also give what was there before the last sync.
    pub stale_reads: bool,
    /// Some calls of the disk take their time.
    pub slow_disk: bool,
    /// What half of the runs do besides.
    pub extra: Extra,
}

/// Features that came later. All of them are drawn from a stream of their own, so that the other
/// choices of a seed stay what they were; half of the runs have none.
#[derive(Clone, Debug, Default)]
pub struct Extra {
    /// Clients prepare, disconnect and come back; others decide by XID, sometimes two at once.
    pub comebacks: bool,
    /// DDL meets tables that prepared transactions have changed.
    pub ddl_beside: bool,
    /// Tables are copied: a new one is made, filled and renamed into the old one's place.
    pub copies: bool,
    /// Tables go to a file and come back.
    pub travels: bool,
    /// Temporary tables beside the others.
    pub temporary: bool,
    /// Statements are killed.
    pub kills: bool,
    /// Many transactions at READ UNCOMMITTED, and what they read is compared.
    pub dirty: bool,
    /// Rows that meet a duplicate are left out and their statement goes on.
    pub ignore: bool,
    /// At the end of the run a file is lost, cut or zeroed.
    pub file_damage: bool,
    /// Even small transactions that a crash cut off are rolled back while clients work.
    pub background_undo: bool,
    /// Writes of pages, maps and checkpoints that report success and do nothing, or land elsewhere.
    pub lost_writes: bool,
    /// Values out of line of one client's transactions, about; 0: there is no such client.
    pub bulk: u64,
    /// At the end of a run that ends well the superblock is lost.
    pub superblock_lost: bool,
    /// In runs about foreign keys: few children of two parents, whose entries move from leaf to leaf
    /// while they are looked for.
    pub movers: bool,
    /// How tables are packed: drawn for each new table, and changed while pages are written.
    pub packings: bool,
    /// The buffer pool grows and shrinks.
    pub resizes: bool,
    /// Pages are read ahead that nobody asks for.
    pub ahead: bool,
    /// Leaves leave the buffer pool, and secondary indexes have several.
    pub cold: bool,
    /// With `cold`: the row cache is on, most of the time, and rows are read by their whole keys.
    pub row_cache: bool,
    /// Hot backups, whose copies the next life finds.
    pub backup: bool,
    /// Snapshots that are kept, and rewound to.
    pub kept: bool,
    /// The files are encrypted.
    pub encrypted: bool,
    /// Pages are also kept on a second device, which has faults of its own.
    pub second_tier: bool,
    /// What the whole run is about, if it is about one thing.
    pub corner: Option<Corner>,
}

impl Plan {
    /// Is the run about foreign keys?
    pub fn has_families(&self) -> bool {
        self.extra.corner == Some(Corner::Families)
    }
}
