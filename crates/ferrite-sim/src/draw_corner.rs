//! Makes a run of the one thing that it is about: settings, tables and foreign keys that bring it about.

use crate::corner::Corner;
use crate::draw_shape::{pick, shape};
use crate::family::{Bond, Column};
use crate::plan::{FaultMode, Plan};
use crate::rows::{Kin, Secondary, Shape};
use ferrite_engine::Action;
use ferrite_sync::random::Rng;

/// Statements of all clients in a life that is about values out of line.
const VALUE_STATEMENTS: u64 = 1500;

/// Makes the run one about that.
pub(crate) fn about(corner: Corner, plan: &mut Plan) {
    // What reads lie about nobody could tell from an orphan.
    let keeps = corner == Corner::Families && plan.faults != FaultMode::BadReads;
    if !keeps {
        plan.faults = FaultMode::PowerOnly;
    }
    plan.extra.lost_writes = corner == Corner::Lost;
    plan.extra.file_damage = corner == Corner::Log;
    plan.extra.bulk = 0;
    plan.extra.corner = Some(corner);
    match corner {
        Corner::Values => values(plan),
        Corner::Restart => restart(plan),
        Corner::Log => log(plan),
        Corner::Ids => ids(plan),
        Corner::Ends => ends(plan),
        Corner::Torn => torn(plan),
        Corner::Moves => moves(plan),
        Corner::Ranges => ranges(plan),
        Corner::Families => families(plan),
        Corner::Away => away(plan),
        Corner::Lost => lost(plan),
        Corner::Marks => marks(plan),
        Corner::Kept => kept(plan),
        Corner::Tail => tail(plan),
    }
}

fn without_ddl(plan: &mut Plan) {
    plan.ddl = false;
    plan.extra.ddl_beside = false;
    plan.extra.copies = false;
    plan.extra.travels = false;
}

/// Values of one length in few rows, and readers at READ UNCOMMITTED.
fn values(plan: &mut Plan) {
    plan.extra.dirty = true;
    plan.isolation_mix = true;
    plan.clients = plan.clients.max(3);
    plan.operations = plan.operations.max(3);
    // A value takes many steps; more statements than these would take more than a run may have.
    let most = VALUE_STATEMENTS / (plan.clients * plan.operations);
    plan.transactions = plan.transactions.min(most);
    for shape in &mut plan.shapes {
        shape.keys = shape.keys.min(30);
        shape.max_big = [24, 900, 20_000][plan.seed as usize % 3];
        shape.same_big = true;
    }
}

/// Much to recover, in more pages than the pool has.
fn restart(plan: &mut Plan) {
    plan.extra.bulk = 800;
    plan.clients = plan.clients.min(3);
    plan.transactions = plan.transactions.min(8);
    plan.lives = 2;
    plan.config.log_ring_bytes = 256 << 10;
    plan.config.log_segment_bytes = 64 << 10;
    // Checkpoints within a recovery, or few checkpoints and much to recover.
    plan.config.log_budget_bytes = [8, 64][plan.seed as usize % 2] * (64 << 10);
}

/// A log of many files.
fn log(plan: &mut Plan) {
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

/// Prepared transactions and temporary tables of one shape.
fn ids(plan: &mut Plan) {
    plan.ddl = plan.seed % 2 == 0;
    plan.extra.copies = false;
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

/// One table of few rows, which transactions change again and again, and whose entries are locked in
/// ranges; no leaf stays in memory for long.
fn away(plan: &mut Plan) {
    let rng = &mut Rng::new(plan.seed ^ 0x71a1_a3a7);
    plan.clients = rng.between(3, 5);
    plan.transactions = rng.between(8, 20);
    plan.operations = rng.between(4, 9);
    plan.lives = 3;
    plan.savepoints = true;
    plan.locking_reads = true;
    plan.isolation_mix = rng.chance(1, 4);
    plan.big_transactions = false;
    without_ddl(plan);
    plan.config.lock_wait_timeout_ms = pick(rng, &[5, 20, 100]);
    plan.config.lock_fold_after = 64;
    plan.shapes.truncate(1);
    for shape in &mut plan.shapes {
        shape.key_prefix = shape.key_prefix.min(12);
        shape.keys = pick(rng, &[12, 30, 60, 120, 400, 400]);
        shape.k_values = rng.between(2, 6);
        shape.max_fill = 40;
        shape.max_big = 0;
        shape.secondary = vec![Secondary::Plain];
        shape.covering = rng.chance(2, 3);
    }
}

/// One table of rows that are deleted by several long transactions at once.
fn marks(plan: &mut Plan) {
    away(plan);
    let rng = &mut Rng::new(plan.seed ^ 0x71a1_3a2c);
    plan.prepare = true;
    plan.clients = rng.between(2, 3);
    plan.transactions = rng.between(1, 4);
    plan.operations = rng.between(20, 60);
    plan.lives = 6;
    plan.savepoints = false;
    plan.config.history_ring_bytes = 256 << 10;
    plan.extra.background_undo = rng.chance(1, 2);
    if plan.extra.background_undo {
        plan.config.background_undo_bytes = 500;
    }
    plan.locking_reads = false;
    plan.isolation_mix = false;
    for shape in &mut plan.shapes {
        shape.keys = 400;
        // All versions of marks have the same length.
        shape.max_fill = 0;
    }
}

/// Few changes and many ends of snapshots.
fn kept(plan: &mut Plan) {
    plan.extra.kept = true;
    plan.extra.backup = false;
    plan.clients = plan.clients.min(2);
    plan.transactions = plan.transactions.min(4);
    plan.lives = 10;
    without_ddl(plan);
    plan.config.store_reuse_soon = true;
    plan.config.store_segment_bytes = 256 << 10;
}

/// A short log, so that few reads come before that of its end, and many restarts.
fn tail(plan: &mut Plan) {
    plan.faults = FaultMode::BadReads;
    plan.stale_reads = false;
    plan.clients = plan.clients.clamp(1, 2);
    plan.transactions = plan.transactions.min(4);
    plan.lives = 12;
    without_ddl(plan);
    plan.config.flush_log_at_commit = 1;
    plan.config.log_segment_bytes = 64 << 10;
    plan.config.log_budget_bytes = 16 * (64 << 10);
}

/// Few pages, which are written again and again to the same few places.
fn lost(plan: &mut Plan) {
    plan.clients = plan.clients.clamp(2, 3);
    plan.transactions = plan.transactions.max(12);
    plan.lives = 3;
    without_ddl(plan);
    plan.extra.ahead = true;
    plan.config.store_reuse_soon = true;
    plan.config.store_segment_bytes = 256 << 10;
    plan.config.log_budget_bytes = 4 * plan.config.log_segment_bytes;
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
    without_ddl(plan);
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
pub(crate) fn cold(plan: &mut Plan, seed: u64) {
    let rng = &mut Rng::new(seed ^ 0x71a1_c01e);
    plan.extra.cold = true;
    for shape in &mut plan.shapes {
        shape.key_prefix = shape.key_prefix.min(200);
        shape.entry_fill = pick(rng, &[300, 500]);
        if let Some(kin) = &mut shape.kin {
            kin.entry_fill = 0;
        }
    }
    plan.extra.row_cache = rng.chance(1, 2);
}

/// One parent table of two rows and one table of their few children. A look for a child goes over leaves of
/// one entry or two, and seldom is another child there to be found instead of the one that moves.
pub(crate) fn movers(plan: &mut Plan) {
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
