//! The random configuration of a run, swarm style: each run has a random subset of the
//! features, so that rare combinations are not drowned by the common ones.

use crate::family::{Bond, Column};
use crate::rows::{Kin, Secondary, Shape};
use ferrite_engine::{Action, Config};
use ferrite_sync::random::Rng;
use ferrite_types::format::Codec;

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
    /// Hot backups, whose copies the next life finds.
    pub backup: bool,
    /// Snapshots that are kept, and rewound to.
    pub kept: bool,
    /// The files are encrypted.
    pub encrypted: bool,
    /// What the whole run is about, if it is about one thing.
    pub corner: Option<Corner>,
}

/// Nine seeds in 24 are about one thing that the others do too seldom, and of the rest two in five are
/// about foreign keys. In all of them threads stand still at named places.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
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
}

impl Corner {
    fn new(seed: u64) -> Option<Corner> {
        match Rng::new(seed ^ 0x71a1_0004).below(24) {
            0 => Some(Corner::Values),
            1 => Some(Corner::Restart),
            2 => Some(Corner::Log),
            3 => Some(Corner::Ids),
            4 => Some(Corner::Ends),
            5 => Some(Corner::Torn),
            6 => Some(Corner::Moves),
            7 | 8 => Some(Corner::Ranges),
            _ => Rng::new(seed ^ FAMILIES)
                .chance(2, 5)
                .then_some(Corner::Families),
        }
    }

    /// Makes a run of it.
    fn shape(self, plan: &mut Plan) {
        // What reads lie about nobody could tell from an orphan.
        let keeps = self == Corner::Families && plan.faults != FaultMode::BadReads;
        if !keeps {
            plan.faults = FaultMode::PowerOnly;
        }
        plan.extra.lost_writes = false;
        plan.extra.file_damage = self == Corner::Log;
        plan.extra.bulk = 0;
        plan.extra.corner = Some(self);
        match self {
            Corner::Values => {
                plan.extra.dirty = true;
                plan.isolation_mix = true;
                plan.clients = plan.clients.max(3);
                plan.operations = plan.operations.max(3);
                for shape in &mut plan.shapes {
                    shape.keys = shape.keys.min(30);
                    shape.max_big = [24, 900, 20_000][plan.seed as usize % 3];
                    shape.same_big = true;
                }
            }
            Corner::Restart => {
                plan.extra.bulk = 800;
                plan.clients = plan.clients.min(3);
                plan.transactions = plan.transactions.min(8);
                plan.lives = 2;
                plan.config.log_ring_bytes = 256 << 10;
                plan.config.log_segment_bytes = 64 << 10;
                // Checkpoints within a recovery, or few checkpoints and much to recover.
                plan.config.log_budget_bytes = [8, 64][plan.seed as usize % 2] * (64 << 10);
            }
            Corner::Log => {
                plan.clients = plan.clients.max(2);
                plan.transactions = plan.transactions.max(6);
                plan.operations = plan.operations.max(4);
                plan.config.log_segment_bytes = 64 << 10;
                plan.config.log_budget_bytes = 64 * (64 << 10);
                plan.config.flush_log_at_commit = 1;
                plan.lives = 4;
                for shape in &mut plan.shapes {
                    shape.max_big = 20_000;
                }
            }
            Corner::Ids => {
                plan.ddl = plan.seed % 2 == 0;
                plan.extra.copies = false;
                plan.extra.travels = false;
                plan.extra.travels = false;
                plan.prepare = true;
                plan.extra.comebacks = true;
                plan.extra.temporary = true;
                plan.clients = plan.clients.max(3);
                plan.transactions = plan.transactions.clamp(6, 14);
                plan.lives = 5;
                for shape in &mut plan.shapes {
                    shape.key_prefix = 0;
                    shape.keys = 6;
                    shape.u_values = 60;
                    shape.max_big = 0;
                    shape.secondary.clear();
                }
            }
            Corner::Ends => ends(plan),
            Corner::Torn => torn(plan),
            Corner::Moves => moves(plan),
            Corner::Ranges => ranges(plan),
            Corner::Families => families(plan),
        }
    }
}

/// Many short transactions, half of them in two phases, and few rows.
fn ends(plan: &mut Plan) {
    plan.prepare = true;
    plan.clients = plan.clients.max(4);
    plan.transactions = plan.transactions.clamp(6, 14);
    plan.operations = plan.operations.clamp(2, 4);
    plan.lives = 4;
    plan.config.flush_log_at_commit = 1;
}

/// Each transaction writes some blocks of the log at once; no checkpoint comes between.
fn torn(plan: &mut Plan) {
    plan.clients = plan.clients.clamp(1, 2);
    plan.transactions = plan.transactions.clamp(6, 14);
    plan.operations = plan.operations.clamp(5, 9);
    plan.lives = 10;
    plan.config.flush_log_at_commit = 1;
    plan.config.log_segment_bytes = 256 << 10;
    plan.config.log_budget_bytes = 32 * (256 << 10);
    plan.config.log_ring_bytes = 512 << 10;
    for shape in &mut plan.shapes {
        shape.max_big = 60_000;
    }
}

/// More values than the pool has frames, written and freed; the log waits long for its disk.
fn moves(plan: &mut Plan) {
    plan.extra.bulk = 400;
    plan.clients = plan.clients.min(2);
    plan.transactions = plan.transactions.min(6);
    plan.lives = 3;
    plan.config.flush_log_at_commit = 0;
    plan.config.flush_interval_ms = 1000;
    plan.config.store_reuse_soon = true;
    plan.config.store_segment_bytes = 256 << 10;
}

/// One table of few rows under many numbers: half of the runs are about its gaps, half about a few
/// unique values.
fn ranges(plan: &mut Plan) {
    plan.clients = 5;
    plan.transactions = plan.transactions.max(8);
    plan.operations = plan.operations.max(6);
    plan.locking_reads = true;
    plan.isolation_mix = false;
    plan.extra.dirty = false;
    plan.ddl = false;
    plan.extra.ddl_beside = false;
    plan.extra.copies = false;
    plan.extra.travels = false;
    plan.config.lock_wait_timeout_ms = 100;
    // Not folded: gap by gap.
    plan.config.lock_fold_after = 64;
    plan.shapes.truncate(1);
    for shape in &mut plan.shapes {
        shape.keys = 400;
        shape.u_values = 12;
        shape.secondary = match plan.seed % 2 {
            0 => Vec::new(),
            _ => vec![Secondary::Unique],
        };
    }
}

/// Of the stream that says which seeds are about foreign keys; no seed of `regressions.txt` is.
const FAMILIES: u64 = 0x71a1_00ba;

/// Few rows, so that everybody meets everybody.
fn families(plan: &mut Plan) {
    let rng = &mut Rng::new(plan.seed ^ 0x71a1_0006);
    plan.clients = rng.between(3, 6);
    plan.transactions = rng.between(6, 16);
    plan.operations = rng.between(2, 6);
    plan.big_transactions = false;
    plan.savepoints = rng.chance(3, 4);
    plan.ddl = rng.chance(2, 3);
    plan.long_readers = plan.long_readers.min(1);
    plan.config.lock_wait_timeout_ms = pick(rng, &[1, 5, 20, 100]);
    plan.extra.copies = false;
    plan.extra.travels = false;
    // A key of nothing but 0xff has no successor, and a search for one opens no snapshot.
    let (keys, prefix) = (pick(rng, &[5, 9, 9, 24]), pick(rng, &[1, 1, 12, 200]));
    let overflow = rng.chance(1, 4);
    plan.shapes = (0..rng.between(2, 5))
        .map(|_| family_shape(rng, keys, prefix, overflow))
        .collect();
    plan.bonds = bonds(rng, &plan.shapes);
}

fn family_shape(rng: &mut Rng, keys: u64, key_prefix: usize, overflow: bool) -> Shape {
    let mut secondary = vec![Secondary::Plain];
    if rng.chance(1, 3) {
        secondary.push(Secondary::Unique);
    }
    Shape {
        key_prefix,
        keys,
        // Many children have the same parent.
        k_values: if rng.chance(1, 2) {
            keys
        } else {
            keys.div_ceil(3)
        },
        u_values: keys,
        secondary,
        kin: Some(Kin {
            nullable: rng.chance(1, 2),
            descending: rng.chance(1, 4),
            entry_fill: pick(rng, &[0, 0, 4000, 4000, 4000]),
        }),
        ..shape(rng, overflow)
    }
}

/// Secondary indexes of several leaves, whose entries are short enough to be put off, and leaves that
/// leave memory.
fn cold(plan: &mut Plan, seed: u64) {
    let rng = &mut Rng::new(seed ^ 0x71a1_c01e);
    plan.extra.cold = true;
    for shape in &mut plan.shapes {
        shape.key_prefix = shape.key_prefix.min(200);
        shape.entry_fill = pick(rng, &[300, 500]);
        if let Some(kin) = &mut shape.kin {
            kin.entry_fill = 0;
        }
    }
}

/// One parent table of two rows and one table of their few children. A look for a child goes over leaves of
/// one entry or two, and seldom is another child there to be found instead of the one that moves.
fn movers(plan: &mut Plan) {
    plan.extra.movers = true;
    plan.clients = plan.clients.max(5);
    plan.transactions = 40;
    plan.operations = 2;
    plan.lives = 2;
    plan.ddl = false;
    plan.long_readers = 0;
    plan.shapes.truncate(2);
    for (shape, keys) in plan.shapes.iter_mut().zip([2, 12]) {
        shape.keys = keys;
        shape.u_values = keys;
        shape.k_values = 2;
        shape.secondary = vec![Secondary::Plain];
        if let Some(kin) = &mut shape.kin {
            kin.entry_fill = 7000;
        }
    }
    plan.bonds = vec![Bond {
        child: 1,
        parent: 0,
        columns: vec![(Column::K, Column::Id)],
        on_delete: Action::Restrict,
        on_update: Action::Restrict,
    }];
}

/// Each table but the first has a parent or two among those before it, or itself.
fn bonds(rng: &mut Rng, shapes: &[Shape]) -> Vec<Bond> {
    let mut all: Vec<Bond> = Vec::new();
    for child in 0..shapes.len() {
        for _ in 0..rng.between(u64::from(child > 0), 2) {
            let parent = match rng.below(4) {
                0 => rng.below(child as u64 + 1) as usize,
                1 => 0,
                // Chains.
                _ => child.saturating_sub(1),
            };
            let bond = bond(rng, shapes, child, parent);
            if child > 0 || rng.chance(1, 3) {
                all.push(bond);
            }
        }
    }
    all
}

/// Some foreign key between two of these tables.
pub fn bond(rng: &mut Rng, shapes: &[Shape], child: usize, parent: usize) -> Bond {
    let unique = |at: usize| shapes[at].secondary.contains(&Secondary::Unique);
    let columns = match rng.below(8) {
        0 => vec![(Column::K, Column::K), (Column::Id, Column::Id)],
        1 | 2 if child != parent => vec![(Column::K, Column::K)],
        3 if child != parent => vec![(Column::Id, Column::Id)],
        4 if unique(child) => vec![(Column::U, Column::Id)],
        5 if unique(parent) => vec![(Column::K, Column::U)],
        _ => vec![(Column::K, Column::Id)],
    };
    let null = shapes[child].kin.is_some_and(|kin| kin.nullable);
    let null = null && columns.iter().all(|(own, _)| *own == Column::K);
    let mut action = || match rng.below(6) {
        0 | 1 => Action::Cascade,
        2 if null => Action::SetNull,
        3 => Action::NoAction,
        _ => Action::Restrict,
    };
    let (on_delete, on_update) = (action(), action());
    Bond {
        child,
        parent,
        columns,
        on_delete,
        on_update,
    }
}

impl Extra {
    fn new(seed: u64) -> Extra {
        let rng = &mut Rng::new(seed ^ 0x71a1_0003);
        if rng.chance(1, 2) {
            return Extra::default();
        }
        let comebacks = rng.chance(2, 3);
        Extra {
            comebacks,
            ddl_beside: comebacks && rng.chance(2, 3),
            copies: rng.chance(1, 3),
            travels: Rng::new(seed ^ 0x71a1_001b).chance(1, 4),
            temporary: rng.chance(1, 2),
            kills: rng.chance(1, 2),
            dirty: rng.chance(1, 3),
            ignore: rng.chance(1, 2),
            background_undo: rng.chance(1, 3),
            lost_writes: rng.chance(1, 12),
            file_damage: rng.chance(1, 8),
            superblock_lost: false,
            movers: false,
            packings: Rng::new(seed ^ 0x71a1_0018).chance(2, 3),
            resizes: Rng::new(seed ^ 0x71a1_0019).chance(1, 2),
            ahead: Rng::new(seed ^ 0x71a1_001a).chance(1, 2),
            encrypted: Rng::new(seed ^ 0x71a1_001b).chance(1, 4),
            cold: false,
            backup: false,
            kept: false,
            corner: None,
            // Of all seeds one in thirteen has thousands.
            bulk: match rng.below(40) {
                0..=5 => 3600,
                6..=8 => 400,
                _ => 0,
            },
        }
    }
}

fn pick<T: Copy>(rng: &mut Rng, from: &[T]) -> T {
    from[rng.below(from.len() as u64) as usize]
}

fn shape(rng: &mut Rng, overflow: bool) -> Shape {
    let keys = pick(rng, &[6, 30, 120, 400]);
    let mut secondary = Vec::new();
    if rng.chance(4, 5) {
        secondary.push(Secondary::Plain);
    }
    if rng.chance(2, 3) {
        secondary.push(Secondary::Unique);
    }
    if rng.chance(1, 2) {
        secondary.reverse();
    }
    let mut shape = Shape {
        key_prefix: pick(rng, &[0, 0, 12, 200, 700]),
        max_fill: pick(rng, &[0, 40, 400, 2000]),
        max_big: if overflow {
            pick(rng, &[100, 20_000, 70_000])
        } else {
            0
        },
        same_big: false,
        keys,
        k_values: pick(rng, &[1, 4, 50]),
        u_values: keys * pick(rng, &[1, 2, 10]),
        secondary,
        covering: rng.chance(1, 2),
        entry_fill: 0,
        kin: None,
    };
    // As long as a payload can be. Without the dice: the plans of other seeds stay what they were.
    if shape.max_fill == 2000 && shape.k_values == 50 {
        shape.max_fill = 7000;
    }
    shape
}

fn config(rng: &mut Rng) -> Config {
    let segment = pick(rng, &[64 << 10, 128 << 10, 256 << 10]);
    Config {
        buffer_pool_size_bytes: 4 << 20,
        buffer_pool_size_max_bytes: 12 << 20,
        log_budget_bytes: segment * rng.between(4, 8),
        log_segment_bytes: segment,
        log_ring_bytes: pick(rng, &[256 << 10, 512 << 10]),
        history_ring_bytes: pick(rng, &[0, 256 << 10, 1 << 20]),
        history_beyond_ring_bytes: 0,
        max_history_bytes: 0,
        flush_log_at_commit: pick(rng, &[1, 1, 1, 1, 1, 1, 2, 0]),
        flush_interval_ms: pick(rng, &[1, 20, 1000]),
        lock_wait_timeout_ms: pick(rng, &[0, 1, 5, 100]),
        write_threads: rng.between(1, 2) as u32,
        purge_threads: rng.between(1, 2) as u32,
        deadlock_detect: rng.chance(4, 5),
        direct_io: rng.chance(1, 2),
        codec: pick(rng, &[Codec::None, Codec::None, Codec::Lz4, Codec::Zstd]),
        store_file_bytes: 1 << 30,
        store_segment_bytes: pick(rng, &[256 << 10, 256 << 10, 1 << 20, 8 << 20]),
        // Smaller rings forget commit numbers before the model has asked for them.
        txn_ring_bits: pick(rng, &[10, 11, 12]),
        manual_background: false,
        lock_fold_after: 64,
        lock_sets_after: 4096,
        store_reuse_soon: false,
        background_undo_bytes: 16 << 20,
        scrub: false,
        recovery_threads: 0,
        recovery_memory_bytes: 0,
        recovery_puts_off: None,
    }
}

impl Plan {
    /// The configuration that belongs to a seed.
    pub fn new(seed: u64) -> Plan {
        let mut plan = Plan::plain(seed);
        let extra = Extra::new(seed);
        plan.prepare |= extra.comebacks;
        plan.ddl |= extra.ddl_beside || extra.copies || extra.travels;
        plan.isolation_mix |= extra.dirty;
        if extra.dirty || extra.ignore {
            // Both are about values out of line.
            for shape in &mut plan.shapes {
                shape.max_big = shape.max_big.max(20_000);
            }
        }
        // Batches of a few records up to the whole log.
        let rng = &mut Rng::new(seed ^ 0x71a1_0018);
        plan.config.recovery_threads = rng.between(1, 4) as u32;
        plan.config.recovery_memory_bytes = 1 << rng.between(12, 22);
        if extra.background_undo {
            plan.config.background_undo_bytes = 500;
        }
        if extra.bulk > 0 {
            // The largest log record is a quarter of the ring.
            plan.config.log_ring_bytes = 256 << 10;
        }
        plan.extra = extra;
        plan.extra.lost_writes &= plan.faults == FaultMode::PowerOnly;
        plan.extra.file_damage &= plan.faults == FaultMode::PowerOnly;
        // Drawn apart, like all of them.
        plan.extra.backup = Rng::new(seed ^ 0x71a1_0005).chance(1, 4);
        plan.extra.kept = Rng::new(seed ^ 0x71a1_0ee9).chance(1, 4);
        if let Some(corner) = Corner::new(seed) {
            corner.shape(&mut plan);
        }
        // Drawn apart, so that the other choices of a seed stay what they were.
        plan.extra.superblock_lost = Rng::new(seed ^ 0x71a1_5b10).chance(1, 8);
        if plan.has_families() && Rng::new(seed ^ 0x71a1_00c4).chance(1, 4) {
            movers(&mut plan);
        }
        if !plan.extra.movers && Rng::new(seed ^ 0x71a1_c01d).chance(1, 3) {
            cold(&mut plan, seed);
        }
        plan
    }

    /// The same without what came later.
    fn plain(seed: u64) -> Plan {
        let rng = &mut Rng::new(seed ^ 0x71a1_0001);
        let overflow = rng.chance(1, 3);
        let tables = rng.between(1, 3);
        let mut config = config(rng);
        // Drawn apart, so that the other choices of a seed stay what they were.
        let apart = &mut Rng::new(seed ^ 0x71a1_0002);
        config.lock_fold_after = pick(apart, &[0, 0, 1, 3, 64]);
        config.store_reuse_soon = apart.chance(1, 3);
        config.scrub = Rng::new(seed ^ 0x71a1_5c4b).chance(1, 4);
        config.lock_sets_after = pick(&mut Rng::new(seed ^ 0x71a1_5e75), &[0, 0, 2, 4096]);
        let stale_reads = apart.chance(1, 2);
        Plan {
            seed,
            config,
            faults: match rng.below(10) {
                0 => FaultMode::FailedSync,
                1 => FaultMode::BadReads,
                2 => FaultMode::Full,
                _ => FaultMode::PowerOnly,
            },
            clients: rng.between(1, 5),
            transactions: rng.between(2, 14) * pick(rng, &[1, 1, 1, 1, 1, 1, 1, 6]),
            operations: rng.between(1, 9),
            lives: rng.between(2, 5),
            shapes: (0..tables).map(|_| shape(rng, overflow)).collect(),
            bonds: Vec::new(),
            ddl: rng.chance(1, 3),
            savepoints: rng.chance(1, 2),
            prepare: rng.chance(1, 2),
            locking_reads: rng.chance(1, 2),
            big_transactions: rng.chance(1, 3),
            long_readers: rng.below(3),
            isolation_mix: rng.chance(1, 2),
            held_answers: rng.chance(1, 2),
            slow_disk: rng.chance(1, 3),
            stale_reads,
            extra: Extra::default(),
        }
    }

    /// Is the run about foreign keys?
    pub fn has_families(&self) -> bool {
        self.extra.corner == Some(Corner::Families)
    }

    /// The shape of a table that is made later.
    pub fn new_shape(&self, rng: &mut Rng) -> Shape {
        if self.extra.corner == Some(Corner::Ids) {
            return self.shapes[0].clone();
        }
        let overflow = self.shapes.iter().any(|s| s.max_big > 0);
        shape(rng, overflow)
    }
}
