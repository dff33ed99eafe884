//! One seed, one run: the operator boots the machine again and again, kills it at random
//! moments, and looks at the end whether everything is as promised.
//!
//! The operator is the simulation's main task: it survives crashes. Everything that a run
//! does follows from its seed.

use crate::corner::Corner;
use crate::damage::{damage_a_file, has_long_log, judge, lose_superblock, names_a_place};
use crate::environment::{End, Environment, Tally};
use crate::lifecycle::life;
use crate::plan::{Extra, FaultMode, Plan};
use crate::travel::PLACES as TRAVELS;
use ferrite_io::sim::{Fault, Survival};
use ferrite_sync::random::Rng;
use ferrite_sync::sim::{self, Report, Simulation, Stall, ANYWHERE};
use ferrite_sync::{thread, Arc};
use ferrite_types::Error;

/// Deepest chain of crashes during recovery.
const NESTED: u64 = 3;

/// Steps after which a run counts as hung; each value out of line of a bulk client has some of
/// its own.
const MAX_STEPS: u64 = 6_000_000;
const STEPS_OF_VALUE: u64 = 6000;

/// A run that is over.
pub struct Finished {
    /// Its seed.
    pub seed: u64,
    /// Why it failed, if it did.
    pub failure: Option<String>,
    /// How it went.
    pub report: Report,
    /// What it did.
    pub tally: Tally,
}

/// Runs a seed.
pub fn run(seed: u64, keep_trace: bool) -> Finished {
    let plan = Plan::new(seed);
    let steps = MAX_STEPS + plan.extra.bulk * STEPS_OF_VALUE;
    let mut simulation = Simulation::new(seed).max_steps(steps);
    if keep_trace {
        simulation = simulation.keep_trace();
    }
    let tally = Arc::new(std::sync::Mutex::new(Tally::default()));
    let out = tally.clone();
    let result = simulation.run(move || {
        let environment = Arc::new(Environment::new(plan));
        operate(&environment);
        *out.lock().expect("nobody panics with it") = *environment.tally();
    });
    let (failure, report) = match result {
        Ok(outcome) => (None, outcome.report),
        Err(failed) => (Some(failed.to_string()), failed.report),
    };
    let tally = *tally.lock().expect("nobody panics with it");
    Finished {
        seed,
        failure,
        report,
        tally,
    }
}

/// When the program is to die.
#[derive(Clone, Copy, Debug)]
enum Death {
    Never,
    /// After so many steps of the scheduler.
    Steps(u64),
    /// At this call of the disk.
    Call(u64),
    /// At the n-th pass of a named place.
    Place(&'static str, u64),
}

/// Places between two steps whose order matters.
const PLACES: [&str; 50] = [
    "write.value_checked",
    "cursor.leaf_left",
    "dict.rename.logged",
    "dict.rename.durable",
    "dict.drop.logged",
    "checkpoint.state_copied",
    "retire.needed_moved",
    "tree.after_merge_logged",
    "commit.logged",
    "commit.visible",
    "commit.durable",
    "prepare.logged",
    "prepare.durable",
    "rollback.one_undone",
    "tree.before_split_logged",
    "tree.after_split_logged",
    "tree.before_merge_logged",
    "buffer.after_blobs_synced",
    "buffer.after_delta_appended",
    "store.superblock_before_rename",
    "store.after_write_before_sync",
    "store.after_sync",
    "store.map_before_sync",
    "store.map_dumped",
    "store.checkpoint_before_sync",
    "store.checkpoint_written",
    "store.space_kept",
    "store.segment_grown",
    "store.tail_cut",
    "store.punched",
    "checkpoint.map_dumped",
    "checkpoint.written",
    "dict.create.trees_made",
    "dict.create.durable",
    "dict.drop.durable",
    "dict.truncate.durable",
    "redo.before_write",
    "redo.after_write_before_sync",
    "redo.before_sync",
    "redo.after_sync_before_ack",
    "redo.before_fence",
    "redo.fence_before_sync",
    "redo.next_segment",
    "redo.segment_built",
    "redo.segment_prepared",
    "redo.before_recycle",
    "redo.recycle",
    "redo.removed",
    "redo.before_queue",
    "redo.before_sleep",
];

/// Steps of making and removing a file of the store.
const FILES: [&str; 4] = [
    "store.file_made",
    "store.segment_grown",
    "store.file_emptied",
    "store.tail_cut",
];

/// Steps of snapshots that are kept.
const KEPT: [&str; 13] = [
    "snapshot.noted",
    "snapshot.checkpoint_pinned",
    "snapshot.fixed",
    "snapshot.files_written",
    "snapshot.manifest_written",
    "snapshot.drop_begun",
    "snapshot.drop_durable",
    "store.held_counted",
    "rewind.prepared",
    "rewind.decided",
    "rewind.old_removed",
    "rewind.in_place",
    "rewind.done",
];

/// Places of a recovery.
const RECOVERY: [&str; 4] = [
    "recovery.values_held",
    "recovery.values_queued",
    "checkpoint.written",
    "buffer.redo_found",
];

/// Steps of the end of a transaction.
const ENDS: [&str; 7] = [
    "commit.logged",
    "commit.visible",
    "commit.durable",
    "prepare.logged",
    "prepare.durable",
    "rollback.one_undone",
    "redo.after_sync_before_ack",
];

/// Steps of foreign keys: between two looks, and as they are written to the dictionary.
const FAMILIES: [&str; 6] = [
    "dict.foreign.chunks",
    "dict.foreign.child",
    "dict.foreign.followed",
    "dict.rename.logged",
    "dict.rename.durable",
    "dict.redefine.logged",
];

/// Steps of a page to its new place.
const MOVES: [&str; 4] = [
    "store.after_write_before_sync",
    "store.after_sync",
    "buffer.after_blobs_synced",
    "buffer.after_delta_appended",
];

/// Threads stand still at places of the corner's own, and at two others.
fn stalls(corner: Corner, extra: &Extra, rng: &mut Rng) -> Vec<Stall> {
    let stall = |place, one_in, up_to_us| Stall {
        place,
        one_in,
        up_to_us,
    };
    let mut all = match corner {
        Corner::Values => vec![stall("overflow.read_page", 3, 20_000)],
        Corner::Restart => vec![
            stall("buffer.redo_found", any_scale(rng, 5), 20_000),
            stall("recovery.values_held", 1, 1_000_000),
            stall(ANYWHERE, any_scale(rng, 6) + 200, 5_000),
        ],
        Corner::Ends => {
            let each = |place| stall(place, 4, 20_000);
            ENDS.iter().copied().map(each).collect()
        }
        Corner::Ranges => vec![stall("write.value_checked", 4, 20_000)],
        Corner::Families => vec![
            // Long enough for whole transactions, where these are about it.
            stall(
                "reference.leaf_left",
                1,
                if extra.movers { 60_000 } else { 20_000 },
            ),
            stall("rollback.one_undone", 4, 5_000),
            stall("commit.visible", 8, 5_000),
        ],
        Corner::Away => vec![
            stall("tree.leaf_is_away", 3, 20_000),
            stall("rollback.one_undone", 4, 5_000),
        ],
        Corner::Marks => vec![
            stall("prepare.durable", 1, 50_000),
            stall("rollback.one_undone", 4, 5_000),
        ],
        Corner::Log
        | Corner::Ids
        | Corner::Torn
        | Corner::Moves
        | Corner::Lost
        | Corner::Kept
        | Corner::Tail => Vec::new(),
    };
    for _ in 0..2 {
        let place = PLACES[rng.below(PLACES.len() as u64) as usize];
        all.push(stall(place, any_scale(rng, 4), 10_000));
    }
    all
}

/// As often small as large.
fn any_scale(rng: &mut Rng, bits: u64) -> u64 {
    let top = 1 << rng.below(bits + 1);
    rng.between(top / 2 + 1, top)
}

fn some_death(rng: &mut Rng, recovering: bool) -> Death {
    match rng.below(5) {
        0 | 1 if recovering => Death::Steps(any_scale(rng, 12)),
        0 | 1 => Death::Steps(any_scale(rng, 17)),
        2 if recovering => Death::Call(any_scale(rng, 6)),
        2 => Death::Call(any_scale(rng, 9)),
        3 => Death::Place(
            PLACES[rng.below(PLACES.len() as u64) as usize],
            any_scale(rng, 2),
        ),
        _ => Death::Place(
            PLACES[rng.below(PLACES.len() as u64) as usize],
            any_scale(rng, 6),
        ),
    }
}

/// A death that shows what the corner is about.
fn corner_death(corner: Corner, recovering: bool, rng: &mut Rng) -> Option<Death> {
    match corner {
        Corner::Values => None,
        Corner::Restart if recovering && rng.chance(2, 3) => {
            let place = RECOVERY[rng.below(RECOVERY.len() as u64) as usize];
            // A recovery passes its own places once.
            let once = place.starts_with("recovery.");
            let nth = if once { 1 } else { any_scale(rng, 7) };
            Some(Death::Place(place, nth))
        }
        Corner::Restart if recovering => None,
        // Late enough for something to recover.
        Corner::Restart => Some(Death::Steps(rng.between(40_000, 250_000))),
        // Some lives end well, and leave what is prepared to the next one.
        Corner::Ids if rng.chance(1, 2) => Some(Death::Never),
        Corner::Log | Corner::Ids => Some(Death::Steps(rng.between(4_000, 40_000))),
        Corner::Ends if rng.chance(3, 4) => Some(place_of(&ENDS, rng)),
        // While it writes where the life before had written.
        Corner::Torn if rng.chance(4, 5) => {
            Some(Death::Place("redo.blocks_written", any_scale(rng, 2)))
        }
        Corner::Moves if !recovering => Some(place_of(&MOVES, rng)),
        Corner::Families if rng.chance(1, 3) => {
            let place = FAMILIES[rng.below(FAMILIES.len() as u64) as usize];
            Some(Death::Place(place, any_scale(rng, 3)))
        }
        // Late enough for something to come about.
        Corner::Families if !recovering && rng.chance(1, 2) => {
            Some(Death::Steps(rng.between(10_000, 150_000)))
        }
        // While the first transactions of the life go on.
        Corner::Marks if recovering => None,
        Corner::Marks if rng.chance(1, 3) => Some(Death::Never),
        Corner::Marks => Some(Death::Steps(rng.between(2_000, 60_000))),
        Corner::Tail => Some(Death::Steps(any_scale(rng, 14))),
        // Late enough, as well.
        Corner::Away if !recovering => Some(Death::Steps(rng.between(10_000, 150_000))),
        Corner::Ends
        | Corner::Torn
        | Corner::Moves
        | Corner::Ranges
        | Corner::Families
        | Corner::Away
        | Corner::Lost
        | Corner::Kept => None,
    }
}

/// At one of these places, early or late.
fn place_of(places: &[&'static str], rng: &mut Rng) -> Death {
    let place = places[rng.below(places.len() as u64) as usize];
    Death::Place(place, any_scale(rng, 6))
}

fn arm(environment: &Environment, death: Death) {
    sim::note(&format!("{death:?}"));
    match death {
        Death::Never => {}
        Death::Steps(n) => sim::crash_after_steps(Some(n)),
        Death::Call(n) => environment.disk.power_off_after(n),
        Death::Place(name, nth) => sim::crash_at_point(Some((name, nth))),
    }
}

/// How lives end, and what the disk does meanwhile. What came later is drawn apart, so that the other
/// choices of a seed stay what they were.
struct Draws {
    rng: Rng,
    apart: Rng,
    kept: Rng,
    travels: Rng,
    files: Rng,
}

impl Draws {
    fn new(seed: u64) -> Draws {
        Draws {
            rng: Rng::new(seed ^ 0x09e7_a704),
            apart: Rng::new(seed ^ 0x0dab_a6e5),
            kept: Rng::new(seed ^ 0x0dab_0ee9),
            travels: Rng::new(seed ^ 0x0dab_0eea),
            files: Rng::new(seed ^ 0x0dab_f11e),
        }
    }

    /// How the next life ends. `calm`: well.
    fn death(&mut self, environment: &Environment, recovering: bool, calm: bool) -> Death {
        let extra = &environment.plan.extra;
        let Draws {
            rng,
            apart,
            kept,
            travels,
            files,
        } = self;
        let mut death = match calm {
            true => Death::Never,
            false if recovering && rng.chance(1, 2) => some_death(rng, true),
            false => some_death(rng, false),
        };
        if let Some(corner) = extra.corner {
            sim::stall_at(stalls(corner, extra, apart));
            let of_corner = corner_death(corner, recovering, apart);
            death = of_corner.filter(|_| !calm).unwrap_or(death);
        }
        let many_files = environment.plan.config.store_file_bytes < 1 << 30;
        if many_files && !calm && files.chance(1, 6) {
            death = Death::Place(
                FILES[files.below(FILES.len() as u64) as usize],
                any_scale(files, 2),
            );
        }
        if extra.travels && !calm && travels.chance(1, 3) {
            let place = TRAVELS[travels.below(TRAVELS.len() as u64) as usize];
            death = Death::Place(place, any_scale(travels, 2));
        }
        if extra.kept && !calm && kept.chance(1, 2) {
            // Half of the lives end well, so that something is taken and rewound to.
            death = match kept.chance(1, 2) {
                true => Death::Never,
                false => Death::Place(KEPT[kept.below(KEPT.len() as u64) as usize], 1),
            };
            if extra.corner == Some(Corner::Kept) && kept.chance(2, 3) {
                death = Death::Place("snapshot.drop_begun", 1);
            }
        }
        // A death at the end of a snapshot needs one that ends.
        let ends = matches!(death, Death::Place(place, _) if place.starts_with("snapshot.drop"));
        environment.kept.state().must_drop = ends;
        death
    }
}

fn operate(environment: &Arc<Environment>) {
    let mut draws = Draws::new(environment.plan.seed);
    let cut = environment.disk.clone();
    sim::set_crash_hook(move || cut.power_off());
    environment.disk.set_power_off_hook(sim::crash);
    set_io_hook(environment);
    let mut number = 0;
    let mut depth = 0;
    loop {
        let last =
            number >= environment.plan.lives && depth == 0 && environment.tally().crashes > 0;
        let calm = last || depth >= NESTED;
        arm(environment, draws.death(environment, depth > 0, calm));
        if !calm {
            plan_faults(environment, &mut draws.rng);
        }
        // A disk that is full at each try says nothing: at the end there is room.
        let end = boot(environment, number, depth <= NESTED);
        environment.tally().faults += environment.disk.faults_happened();
        environment.disk.clear_faults();
        depth = match &end {
            None | Some(End::Failed(_)) => environment.crashed(),
            Some(End::Closed) => 0,
        };
        environment.disk.set_capacity(None);
        environment.replaced_disk();
        let survives = match environment.plan.extra.corner {
            Some(Corner::Torn) => Survival::Anything,
            _ => survival(&mut draws.rng),
        };
        environment.disk.crash_with(survives, &mut draws.rng);
        let clean = end == Some(End::Closed);
        let ends = last && clean;
        if last_act(environment, &mut draws.apart, number, clean, ends) || ends {
            return;
        }
        if calm && depth > NESTED + 2 {
            // What a lying disk has lost is lost: the program may say so, and name the place.
            let told = |e: &Error| environment.plan.extra.lost_writes && names_a_place(e);
            let end = end.expect("it was not killed");
            assert!(
                matches!(&end, End::Failed(e) if told(e)),
                "the database does not open any more: {end:?}"
            );
            return;
        }
        number += 1;
    }
}

/// Some runs end with a damaged file; true: this one has.
fn last_act(
    environment: &Arc<Environment>,
    apart: &mut Rng,
    number: u64,
    clean: bool,
    ends: bool,
) -> bool {
    let extra = &environment.plan.extra;
    let breaks = extra.file_damage && number > 0 && apart.chance(1, 4);
    let breaks = breaks || (!clean && has_long_log(environment));
    if extra.file_damage && (ends || breaks) {
        if damage_a_file(environment, apart, clean) {
            arm(environment, Death::Never);
            judge(boot(environment, number + 1, false).as_ref());
        }
        return true;
    }
    if ends && extra.superblock_lost {
        lose_superblock(environment);
        arm(environment, Death::Never);
        let end = boot(environment, number + 1, false);
        let refused = matches!(end, Some(End::Failed(_)));
        assert!(refused, "without a superblock it opens: {end:?}");
        judge(end.as_ref());
        return true;
    }
    false
}

fn survival(rng: &mut Rng) -> Survival {
    match rng.below(6) {
        0 => Survival::Everything,
        1 => Survival::Nothing,
        _ => Survival::Anything,
    }
}

/// One life; None when it was killed.
fn boot(environment: &Arc<Environment>, number: u64, may_fill: bool) -> Option<End> {
    let w = environment.clone();
    let handle = sim::spawn("server", move || life(&w, number));
    let filler = may_fill.then(|| disk_filler(environment, number)).flatten();
    let end = handle.join();
    if end.is_err() {
        sim::reap();
    }
    sim::crash_after_steps(None);
    sim::crash_at_point(None);
    environment.disk.power_off_after(u64::MAX / 2);
    if let Some(filler) = filler {
        let _ = filler.join();
    }
    end.ok()
}

/// What the disk does wrong in this life.
fn plan_faults(environment: &Environment, rng: &mut Rng) {
    let disk = &environment.disk;
    if environment.plan.extra.lost_writes {
        let apart = &mut Rng::new(rng.clone().next_u64() ^ 0x105e);
        let about_them = environment.plan.extra.corner == Some(Corner::Lost);
        for _ in 0..apart.below(if about_them { 8 } else { 4 }) {
            let fault = [Fault::LostWrite, Fault::MisdirectedWrite][apart.below(2) as usize];
            let files = ["store.", "store.", "map.", "checkpoint."][apart.below(4) as usize];
            let (fault, files) = match about_them {
                true => (Fault::LostWrite, "store."),
                false => (fault, files),
            };
            disk.inject_in(fault, any_scale(apart, 8), files);
        }
    }
    match environment.plan.faults {
        FaultMode::PowerOnly | FaultMode::Full => {}
        FaultMode::FailedSync => {
            if rng.chance(2, 3) {
                disk.fail_sync(any_scale(rng, 6));
            }
            // Drawn apart: the other choices of a seed stay what they were.
            let apart = &mut Rng::new(rng.clone().next_u64() ^ 0xf011);
            if apart.chance(1, 2) {
                let files = ["store.", "undo.", "map.", "checkpoint."][apart.below(4) as usize];
                disk.inject_in(Fault::FullSync, any_scale(apart, 6), files);
            }
        }
        FaultMode::BadReads if environment.plan.extra.corner == Some(Corner::Tail) => {
            for _ in 0..rng.between(1, 2) {
                disk.inject_in(Fault::FlipBit, rng.between(1, 40), "redo.");
            }
        }
        FaultMode::BadReads => {
            for _ in 0..rng.below(6) {
                let faults = [Fault::FlipBit, Fault::FailRead, Fault::MisdirectedRead];
                let fault = faults[rng.below(3) as usize];
                disk.inject(fault, any_scale(rng, 7));
            }
            if environment.plan.stale_reads {
                disk.keep_stale(true);
                // Drawn apart: the other choices of a seed stay what they were.
                let apart = &mut Rng::new(rng.clone().next_u64() ^ 0x57a1);
                disk.inject(Fault::StaleRead, any_scale(apart, 8));
            }
            // The block with the log's end is read alone, among few reads of the log.
            let apart = &mut Rng::new(rng.clone().next_u64() ^ 0x7a11);
            if apart.chance(1, 2) {
                disk.inject_in(Fault::FlipBit, any_scale(apart, 5), "redo.");
            }
        }
    }
}

/// Each call of the disk stands in the trace; on a slow disk some take their time.
fn set_io_hook(environment: &Arc<Environment>) {
    let slow = environment.plan.slow_disk;
    environment.disk.set_hook(Some(Arc::new(move |event| {
        sim::note(&format!(
            "{:?} {} {}+{}",
            event.op, event.name, event.offset, event.len
        ));
        sim::yield_point("io");
        if slow && ferrite_sync::random::next_u64() % 16 == 0 {
            thread::sleep_us(ferrite_sync::random::next_u64() % 30_000);
        }
        Ok(())
    })));
}

/// The disk fills up and empties again while the program works.
fn disk_filler(environment: &Arc<Environment>, number: u64) -> Option<thread::JoinHandle<()>> {
    if environment.plan.faults != FaultMode::Full {
        return None;
    }
    let (environment, seed) = (environment.clone(), environment.plan.seed ^ number << 40);
    // Some lives begin on a disk that is full. Drawn apart: the other choices stay what they were.
    let apart = &mut Rng::new(seed ^ 0xf011);
    if number > 0 && apart.chance(1, 2) {
        let room = any_scale(apart, 16) & !4095;
        environment
            .disk
            .set_capacity(Some(environment.disk.used_bytes() + room));
    }
    Some(sim::spawn("filler", move || {
        let mut rng = Rng::new(seed);
        for _ in 0..6 {
            thread::sleep_us(rng.below(150_000));
            let room = any_scale(&mut rng, 22);
            environment
                .disk
                .set_capacity(Some(environment.disk.used_bytes() + room));
            thread::sleep_us(rng.below(150_000));
            environment.disk.set_capacity(None);
        }
    }))
}
