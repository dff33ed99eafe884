//! What outlives the machine: the disk, the model, the tally; and the server's side of the
//! engine's callbacks.
//!
//! Locking: `model` and `tally` are real mutexes, held for moments, never over a call of the
//! engine or of anything that may hand the baton to another task.

use crate::draw_shape::pick;
use crate::kept_state::Kept;
use crate::model::{Model, State, TableNo};
use crate::plan::{FaultMode, Plan};
use ferrite_engine::{Callbacks, Engine, LogLevel, Status, TierConfig};
use ferrite_io::encryption::Encrypted;
use ferrite_io::sim::{Fault, SimSnapshot, SimStorage};
use ferrite_io::Storage;
use ferrite_lock::Owner;
use ferrite_sync::atomic::{AtomicBool, AtomicU64, Ordering};
use ferrite_sync::random::Rng;
use ferrite_sync::{sim, stop, Arc, Event};
use ferrite_types::Error;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard};

/// How a life ended, if it ended by itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// Closed.
    Closed,
    /// The database could not be opened or read, or not be closed: a fault was injected.
    Failed(Error),
}

/// What a run did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Times the machine or the program died.
    pub crashes: u64,
    /// Of these, while it was recovering from another.
    pub nested: u64,
    /// Deepest chain of crashes without a completed recovery between.
    pub deepest: u64,
    /// Statements.
    pub operations: u64,
    /// Commits answered.
    pub commits: u64,
    /// Rows compared with the model.
    pub rows: u64,
    /// Statements that ended in an error (locks, duplicates, faults).
    pub errors: u64,
    /// Tables made, dropped, renamed, emptied.
    pub ddl: u64,
    /// Faults of the disk that happened.
    pub faults: u64,
    /// Statements killed.
    pub kills: u64,
}

impl Tally {
    /// Adds another run's.
    pub fn add(&mut self, other: &Tally) {
        self.crashes += other.crashes;
        self.nested += other.nested;
        self.deepest = self.deepest.max(other.deepest);
        self.operations += other.operations;
        self.commits += other.commits;
        self.rows += other.rows;
        self.errors += other.errors;
        self.ddl += other.ddl;
        self.faults += other.faults;
        self.kills += other.kills;
    }
}

/// The most clients that a run may have, readers included.
const CLIENTS: usize = 16;

/// An answer that the engine was asked to hold back.
#[derive(Clone, Copy, Default)]
struct Held {
    allowed: bool,
    taken: bool,
    serial: u64,
}

/// What a connection does, and whether somebody has killed it.
#[derive(Clone, Default)]
struct Connection {
    /// Number of its statement.
    statement: u64,
    /// The lock owner of the statement that runs.
    running: Option<Arc<Owner>>,
    killed: bool,
    /// Statements of it that were killed.
    kills: u64,
}

/// Index entries that a transaction takes away or brings.
#[derive(Default)]
struct Disturbance {
    entries: BTreeSet<(TableNo, Vec<u8>)>,
    /// It may have brought back one that it had taken away: then none of its entries is sure.
    revives: bool,
    /// Clock of the model when it was over.
    over: Option<u64>,
}

/// Longest time beyond its timeout that a wait for a lock may last, in microseconds: a task that
/// is out of time does not run at once.
const WAIT_SLACK_US: u64 = 500_000;

/// Of the streams that have to do with the second tier.
pub(crate) const TIER: u64 = 0x71a1_2e4d;

/// What the second tier's device may do.
const TIER_FAULTS: [Fault; 7] = [
    Fault::FlipBit,
    Fault::FailRead,
    Fault::FailWrite,
    Fault::FailSync,
    Fault::LostWrite,
    Fault::MisdirectedRead,
    Fault::MisdirectedWrite,
];

/// Everything outside of the program under test.
pub struct Environment {
    /// The run's configuration.
    pub plan: Plan,
    /// The disk.
    pub disk: SimStorage,
    /// The device of the second tier, if the run has one.
    tier: SimStorage,
    model: Mutex<Model>,
    tally: Mutex<Tally>,
    held: Mutex<[Held; CLIENTS]>,
    connections: Mutex<[Connection; CLIENTS]>,
    released: Vec<Event>,
    /// What the disk is to be replaced with before the next life.
    replacement: Mutex<Option<SimSnapshot>>,
    /// In tables with foreign keys, by transaction.
    disturbances: Mutex<BTreeMap<u64, Disturbance>>,
    /// Snapshots that there must be.
    pub kept: Kept,
    /// Crashes since the last completed recovery.
    depth: AtomicU64,
    /// A file was damaged behind the program's back.
    damaged: AtomicBool,
    /// Log position up to which everything is known to be durable.
    durable: AtomicU64,
    /// The same before the last time that was told.
    durable_before: AtomicU64,
}

impl Environment {
    /// A new machine with an empty disk.
    pub fn new(plan: Plan) -> Environment {
        Environment {
            disk: SimStorage::new(plan.seed),
            tier: SimStorage::new(plan.seed ^ TIER),
            plan,
            model: Mutex::new(Model::default()),
            tally: Mutex::new(Tally::default()),
            held: Mutex::default(),
            connections: Mutex::default(),
            released: (0..CLIENTS).map(|_| Event::new()).collect(),
            replacement: Mutex::default(),
            disturbances: Mutex::default(),
            kept: Kept::default(),
            depth: AtomicU64::new(0),
            damaged: AtomicBool::new(false),
            durable: AtomicU64::new(0),
            durable_before: AtomicU64::new(0),
        }
    }

    /// A disk as the engine has it: encrypted if the run says so.
    pub fn view(&self, disk: SimStorage) -> Arc<dyn Storage> {
        let disk: Arc<dyn Storage> = Arc::new(disk);
        match self.plan.extra.encrypted {
            true => Arc::new(Encrypted::simulated(disk)),
            false => disk,
        }
    }

    /// The second tier of a life, which some lives do without. Its device had no power either, and in every second
    /// life has a fault: it is not told among those that were injected, since nobody may notice.
    pub fn second_tier(&self, life: u64) -> Option<TierConfig> {
        if !self.plan.extra.second_tier {
            return None;
        }
        let rng = &mut Rng::new(self.plan.seed ^ life << 40 ^ TIER);
        self.tier.clear_faults();
        self.tier.crash(rng);
        if rng.chance(1, 5) {
            return None;
        }
        if rng.chance(1, 2) {
            self.tier
                .inject(pick(rng, &TIER_FAULTS), rng.between(1, 60));
        }
        Some(TierConfig {
            storage: self.view(self.tier.boot()),
            name: "tier".into(),
            bytes: 4 << 20,
            direct: self.plan.config.direct_io,
        })
    }

    /// The model. Do not hold it over a call of the engine.
    pub fn model(&self) -> MutexGuard<'_, Model> {
        self.model.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// The tally.
    pub fn tally(&self) -> MutexGuard<'_, Tally> {
        self.tally.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// The next life finds that in place of the disk.
    pub fn replace_disk(&self, with: SimSnapshot) {
        let mut replacement = self.replacement.lock().unwrap_or_else(|e| e.into_inner());
        *replacement = Some(with);
    }

    /// Replaces the disk, if that was asked for. Between two lives.
    pub fn replaced_disk(&self) {
        let mut replacement = self.replacement.lock().unwrap_or_else(|e| e.into_inner());
        if let Some(with) = replacement.take() {
            self.disk.restore(&with);
            self.kept.forget();
        }
    }

    /// A restart is complete and proved.
    pub fn recovered(&self) {
        self.depth.store(0, Ordering::Relaxed);
    }

    /// The machine or the program has died; returns how often since the last recovery.
    pub fn crashed(&self) -> u64 {
        let depth = self.depth.fetch_add(1, Ordering::Relaxed) + 1;
        let mut tally = self.tally();
        tally.crashes += 1;
        tally.nested += u64::from(depth > 1);
        tally.deepest = tally.deepest.max(depth);
        depth
    }

    /// A file is damaged from here on.
    pub fn is_damaged(&self) {
        self.damaged.store(true, Ordering::Relaxed);
    }

    /// The log is durable that far.
    pub fn durable_up_to(&self, position: u64) {
        let before = self.durable.fetch_max(position, Ordering::Relaxed);
        if before < position {
            self.durable_before.fetch_max(before, Ordering::Relaxed);
        }
    }

    /// How far the log was durable before its last flush that is known of: what that flush wrote
    /// says so, of itself it cannot.
    pub fn durable_before_last_flush(&self) -> u64 {
        self.durable_before.load(Ordering::Relaxed)
    }

    /// Can things that are on the disk be damaged in this run? Then a page may be unreadable.
    pub fn may_be_damaged(&self) -> bool {
        self.plan.extra.lost_writes || self.damaged.load(Ordering::Relaxed)
    }

    /// May this error come from a fault that the run injects?
    pub fn is_injected(&self, e: &Error) -> bool {
        // The power has gone, and the task that saw it first has not stopped the others yet.
        if matches!(e, Error::Io(_)) && !self.disk.powered() {
            return true;
        }
        let of_damage = matches!(e, Error::Io(_) | Error::Corrupt(_) | Error::Format(_));
        if self.may_be_damaged() && of_damage {
            return true;
        }
        match self.plan.faults {
            FaultMode::PowerOnly => false,
            FaultMode::FailedSync => matches!(e, Error::Io(_) | Error::DiskFull(_)),
            FaultMode::BadReads => match e {
                // A superblock that reads as zeros is none.
                Error::Format(text) => text.ends_with("not a Ferrite database"),
                _ => matches!(e, Error::Io(_) | Error::Corrupt(_)),
            },
            FaultMode::Full => matches!(e, Error::DiskFull(_)),
        }
    }

    /// Asks the engine which transactions are committed by now, and publishes them in the
    /// model.
    pub fn resolve(&self, engine: &Engine) {
        let open = self.model().undecided();
        let mut found = Vec::new();
        for (serial, id) in open {
            if let Status::Committed(csn) = engine.txn_status(id) {
                found.push((csn.0, serial));
            }
        }
        found.sort_unstable();
        let mut model = self.model();
        for (csn, serial) in found {
            model.publish(serial, csn);
        }
    }

    // ---- statements and KILL -------------------------------------------------------------

    fn connection<T>(&self, thd: usize, f: impl FnOnce(&mut Connection) -> T) -> T {
        let mut all = self.connections.lock().unwrap_or_else(|e| e.into_inner());
        f(&mut all[thd])
    }

    /// A statement of that connection begins; a KILL that came late is forgotten.
    pub fn statement_begins(&self, thd: usize, owner: &Arc<Owner>) {
        self.connection(thd, |c| {
            c.statement += 1;
            c.running = Some(owner.clone());
            c.killed = false;
        });
    }

    /// It has come back to its client.
    pub fn statement_ends(&self, thd: usize) {
        self.connection(thd, |c| c.running = None);
    }

    /// Kills what the connection runs: number and owner of the statement.
    pub fn kill(&self, thd: usize) -> Option<(u64, Arc<Owner>)> {
        self.connection(thd, |c| {
            let owner = c.running.clone()?;
            c.killed = true;
            c.kills += 1;
            Some((c.statement, owner))
        })
    }

    /// Does the connection still run that statement?
    pub fn is_at(&self, thd: usize, statement: u64) -> bool {
        self.connection(thd, |c| c.running.is_some() && c.statement == statement)
    }

    /// Was a statement of that connection ever killed?
    pub fn was_killed(&self, thd: usize) -> bool {
        self.connection(thd, |c| c.kills > 0)
    }

    /// The program has ended: nothing runs.
    pub fn disconnect_all(&self) {
        let mut all = self.connections.lock().unwrap_or_else(|e| e.into_inner());
        *all = Default::default();
        self.disturbances().clear();
    }

    /// Has somebody killed its statement?
    pub fn is_killed(&self, thd: usize) -> bool {
        self.connection(thd, |c| c.killed)
    }

    // ---- who changes which keys ----------------------------------------------------------

    fn disturbances(&self) -> MutexGuard<'_, BTreeMap<u64, Disturbance>> {
        self.disturbances.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// A transaction is about to take away or bring these entries of a table.
    pub fn disturbs(&self, serial: u64, table: TableNo, entries: Vec<Vec<u8>>) {
        let mut all = self.disturbances();
        let of = all.entry(serial).or_default();
        for entry in entries {
            of.revives |= !of.entries.insert((table, entry));
        }
    }

    /// It is over.
    pub fn disturbs_no_more(&self, serial: u64) {
        let now = self.model().tick();
        if let Some(disturbance) = self.disturbances().get_mut(&serial) {
            disturbance.over = Some(now);
        }
    }

    /// Has another transaction, since then, had an entry of the table on its mind that begins so?
    pub fn is_disturbed(&self, serial: u64, table: TableNo, key: &[u8], since: u64) -> bool {
        let all = self.disturbances();
        let of_key = |d: &Disturbance| {
            let mut entries = d.entries.iter();
            d.revives || entries.any(|(no, entry)| *no == table && entry.starts_with(key))
        };
        all.iter().any(|(other, d)| {
            *other != serial && d.over.is_none_or(|over| over >= since) && of_key(d)
        })
    }

    // ---- answers held back ---------------------------------------------------------------

    /// Client `thd` would let the engine hold back the answer to this transaction.
    pub fn allow_hold(&self, thd: usize, serial: u64) {
        self.released[thd].reset();
        let held = &mut self.held.lock().unwrap_or_else(|e| e.into_inner())[thd];
        *held = Held {
            allowed: true,
            taken: false,
            serial,
        };
    }

    /// Did the engine take the answer over? Then the client waits for its release.
    pub fn wait_if_held(&self, thd: usize) -> bool {
        let taken = {
            let held = &mut self.held.lock().unwrap_or_else(|e| e.into_inner())[thd];
            held.allowed = false;
            held.taken
        };
        if taken {
            self.released[thd].wait();
        }
        taken
    }

    fn take_hold(&self, thd: usize) -> Option<usize> {
        let held = &mut self.held.lock().unwrap_or_else(|e| e.into_inner())[thd];
        if !held.allowed {
            return None;
        }
        held.taken = true;
        Some(thd)
    }

    fn release(&self, thd: usize) {
        let serial = self.held.lock().unwrap_or_else(|e| e.into_inner())[thd].serial;
        if let Some(t) = self.model().txns.get_mut(&serial) {
            // It may not have been seen as committed yet; answered it is.
            debug_assert!(matches!(t.state, State::Committing | State::Committed(_)));
            t.durable = true;
        }
        self.released[thd].set();
    }
}

/// The server, as the engine sees it.
pub struct Server(pub Arc<Environment>);

impl Callbacks for Server {
    fn log(&self, level: LogLevel, text: &str) {
        sim::note(&format!("{level:?}: {text}"));
    }

    fn fatal(&self, text: &str) {
        if self.0.disk.powered() {
            stop::fatal(text);
        }
        // Without power the machine is gone: its threads unwind as soon as the one that cut it
        // has said so, which may not have been its turn yet.
        for _ in 0..10_000 {
            if std::thread::panicking() {
                return;
            }
            sim::yield_point("no power");
        }
    }

    fn is_killed(&self, thd: usize) -> bool {
        self.0.is_killed(thd)
    }

    fn lock_wait_end(&self, thd: usize, waited_us: u64) {
        let longest_us = self.0.plan.config.lock_wait_timeout_ms * 1000 + WAIT_SLACK_US;
        assert!(
            waited_us <= longest_us || std::thread::panicking(),
            "connection {thd} has waited {waited_us} us for a lock"
        );
    }

    fn async_begin(&self, thd: usize) -> Option<usize> {
        self.0.take_hold(thd)
    }

    fn async_done(&self, token: usize) {
        if self.0.disk.powered() {
            self.0.release(token);
        }
    }
}
