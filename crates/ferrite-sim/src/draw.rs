//! Draws the random configuration of a run, swarm style: each run has a random subset of the
//! features, so that rare combinations are not drowned by the common ones.

use crate::corner::Corner;
use crate::draw_corner::{about, cold, movers};
use crate::draw_shape::{pick, shape};
use crate::environment::TIER;
use crate::plan::{Extra, FaultMode, Plan};
use crate::rows::Shape;
use ferrite_engine::Config;
use ferrite_sync::random::Rng;
use ferrite_types::format::Codec;

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
            second_tier: Rng::new(seed ^ TIER).chance(1, 5),
            cold: false,
            row_cache: false,
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
        second_tier: None,
        manual_background: false,
        lock_fold_after: 64,
        lock_sets_after: 4096,
        store_reuse_soon: false,
        background_undo_bytes: 16 << 20,
        retry_rollback_ms: 60_000,
        checkpoint_undo_bytes: 64 << 20,
        purge_listed_marks: 8,
        scrub: false,
        page_delta_share: 4,
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
        // Pages here have few rows: mostly deltas that are as long as their page.
        let share = pick(&mut Rng::new(seed ^ 0x71a1_0de1), &[1, 1, 1, 1, 2, 4, 4, 0]);
        plan.config.page_delta_share = share;
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
            about(corner, &mut plan);
        }
        // Drawn apart, so that the other choices of a seed stay what they were.
        plan.extra.superblock_lost = Rng::new(seed ^ 0x71a1_5b10).chance(1, 8);
        if plan.has_families() && Rng::new(seed ^ 0x71a1_00c4).chance(1, 4) {
            movers(&mut plan);
        }
        let away = matches!(plan.extra.corner, Some(Corner::Away | Corner::Marks));
        if away || !plan.extra.movers && Rng::new(seed ^ 0x71a1_c01d).chance(1, 3) {
            cold(&mut plan, seed);
        }
        let files = &mut Rng::new(seed ^ 0x71a1_f11e);
        if files.chance(1, 2) {
            plan.config.store_file_bytes =
                plan.config.store_segment_bytes * pick(files, &[1, 1, 2, 4]);
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

    /// The shape of a table that is made later.
    pub fn new_shape(&self, rng: &mut Rng) -> Shape {
        if self.extra.corner == Some(Corner::Ids) {
            return self.shapes[0].clone();
        }
        let overflow = self.shapes.iter().any(|s| s.max_big > 0);
        shape(rng, overflow)
    }
}
