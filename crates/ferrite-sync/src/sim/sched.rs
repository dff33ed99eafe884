//! The scheduler's state and its choices: who runs next, when time moves, when it is over.
//!
//! Locking: everything is behind `Shared::state`, a real mutex that is held for moments.
//! Each task waits for the baton on its own condition variable.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

use super::task::Kind;
use super::Report;
use crate::random::{splitmix, Rng};

/// Steps that a task may take while it unwinds from a crash before it is given up.
pub const UNWIND_STEPS: u64 = 20_000;

/// How the next task is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Schedule {
    /// At one step in so many, any task that can run; otherwise the same one goes on.
    Random {
        /// 1 = at every step.
        switch_one_in: u64,
    },
    /// The task of highest priority that can run; priorities are random, and about every
    /// so many steps the running task gets the lowest one. Finds orders of few switches at
    /// the wrong places.
    Priority {
        /// Mean distance of changes, in steps.
        change_every: u64,
    },
}

/// Threads that stand still at a named place, as if the machine had taken their processor away
/// there.
#[derive(Clone, Copy, Debug)]
pub struct Stall {
    /// The place: a kill point's name, any operation's as in the trace, or [`ANYWHERE`].
    pub place: &'static str,
    /// At one pass in so many.
    pub one_in: u64,
    /// For at most so long, in microseconds of virtual time.
    pub up_to_us: u64,
}

/// The place of a [`Stall`] that is at every step; those before it in the list go first.
pub const ANYWHERE: &str = "";

/// Why a run failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// All tasks wait and nothing will wake them; each task and its wait.
    #[error("deadlock:{0}")]
    Deadlock(String),
    /// A task panicked.
    #[error("task {task} panicked: {message}")]
    Panic {
        /// The task's name.
        task: String,
        /// What it said.
        message: String,
    },
    /// The limit of steps was reached; each task and what it does.
    #[error("too many steps:{0}")]
    TooManySteps(String),
    /// The main task was ended before it returned.
    #[error("the main task was ended")]
    Ended,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Doing {
    Ready,
    Waiting {
        what: &'static str,
        key: usize,
        mask: u32,
        deadline_us: Option<u64>,
    },
    Done,
}

pub struct Task {
    pub name: String,
    pub kind: Kind,
    pub doing: Doing,
    /// The last wait was ended by a wake, not by its deadline.
    pub woken: bool,
    /// To be ended at its next yield point.
    pub doomed: bool,
    pub unwind_steps: u64,
    /// Steps taken, the last kinds of step (newest at `steps - 1`), and the last fact noted: the
    /// task's place when a run does not end.
    pub steps: u64,
    pub last: [&'static str; LAST_STEPS],
    pub noted: String,
    pub priority: u64,
    pub baton: Arc<Condvar>,
    pub thread: Option<std::thread::JoinHandle<()>>,
}

/// Kinds of step that are remembered of each task.
const LAST_STEPS: usize = 8;
/// Letters of a fact that are remembered.
const NOTED_LETTERS: usize = 120;

impl Task {
    /// A line that tells where it is: what it waits for, its last steps and facts.
    fn place(&self) -> String {
        let doing = match self.doing {
            Doing::Done => "has ended".to_owned(),
            Doing::Ready => "can run".to_owned(),
            Doing::Waiting {
                what,
                deadline_us: None,
                ..
            } => format!("waits: {what}"),
            Doing::Waiting {
                what,
                deadline_us: Some(d),
                ..
            } => format!("waits: {what}, until {d} us"),
        };
        let known = self.steps.min(LAST_STEPS as u64);
        let last = (self.steps - known..self.steps).map(|n| self.last[n as usize % LAST_STEPS]);
        let last: Vec<&str> = last.collect();
        format!(
            "\n  {}: {doing}; {} steps, the last: {}; {}",
            self.name,
            self.steps,
            last.join(", "),
            self.noted
        )
    }
}

pub const NOBODY: usize = usize::MAX;

/// The key on which the operator waits for doomed tasks.
pub const REAP_KEY: usize = usize::MAX;

/// The key of tasks that stand still: nobody wakes it.
pub const STALL_KEY: usize = 1;

/// The key on which the end of a task is waited for; no address is so high.
pub fn join_key(id: usize) -> usize {
    usize::MAX - 1 - id
}

pub struct State {
    pub tasks: Vec<Task>,
    pub current: usize,
    pub clock_us: u64,
    pub program_rng: Rng,
    pub crash_at_step: Option<u64>,
    pub crash_at_point: Option<(String, u64)>,
    pub stalls: Vec<Stall>,
    pub crash_hook: Option<Arc<dyn Fn() + Send + Sync>>,
    pub crashes: u64,
    pub fatal: Vec<String>,
    pub ending: bool,
    failure: Option<Failure>,
    rng: Rng,
    schedule: Schedule,
    lowest: u64,
    max_steps: u64,
    steps: u64,
    hash: u64,
    leaked: usize,
    trace: Option<VecDeque<String>>,
}

pub struct Shared {
    state: Mutex<State>,
    over: Condvar,
}

/// Only the newest steps of a long run are kept as text.
const TRACE_LINES: usize = 200_000;

impl State {
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// A fact that a task states of itself.
    pub fn fact(&mut self, id: usize, what: &str) {
        let noted = &mut self.tasks[id].noted;
        noted.clear();
        noted.extend(what.chars().take(NOTED_LETTERS));
        self.note(id, what);
    }

    pub fn note(&mut self, id: usize, what: &str) {
        let mut word = self.hash ^ (id as u64) << 48 ^ self.clock_us;
        for chunk in what.as_bytes().chunks(8) {
            let mut bytes = [0; 8];
            bytes[..chunk.len()].copy_from_slice(chunk);
            word = splitmix(&mut word) ^ u64::from_le_bytes(bytes);
        }
        self.hash = splitmix(&mut word);
        if let Some(trace) = &mut self.trace {
            if trace.len() == TRACE_LINES {
                trace.pop_front();
            }
            let name = &self.tasks[id].name;
            trace.push_back(format!(
                "{} {}us {name}({id}) {what}",
                self.steps, self.clock_us
            ));
        }
    }

    /// Counts a step of a task. True when the program is to crash here.
    pub fn count_step(&mut self, id: usize, what: &'static str) -> bool {
        self.steps += 1;
        self.clock_us += 1;
        self.note(id, what);
        let task = &mut self.tasks[id];
        task.last[task.steps as usize % LAST_STEPS] = what;
        task.steps += 1;
        if self.steps > self.max_steps && self.failure.is_none() {
            let report = format!("\n  at work: {}{}", self.tasks[id].name, self.describe());
            self.fail(Failure::TooManySteps(report));
        }
        if let Schedule::Priority { change_every } = self.schedule {
            if what == "yield" || self.rng.chance(1, change_every) {
                self.lower(id);
            }
        }
        let mut crash = self.crash_at_step.is_some_and(|n| self.steps >= n);
        if let Some((name, left)) = &mut self.crash_at_point {
            if name == what {
                *left -= 1;
                crash |= *left == 0;
            }
        }
        if crash {
            self.crash_at_step = None;
            self.crash_at_point = None;
        }
        crash
    }

    /// Until when a task of the program that passes a place stands still there.
    pub fn stall(&mut self, id: usize, what: &'static str) -> Option<u64> {
        if self.stalls.is_empty() || self.tasks[id].kind != Kind::Inside {
            return None;
        }
        let here = |s: &&Stall| s.place == what || s.place == ANYWHERE;
        let stall = *self.stalls.iter().find(here)?;
        let stands = self.rng.chance(1, stall.one_in.max(1));
        stands.then(|| self.clock_us + self.rng.below(stall.up_to_us.max(1)) + 1)
    }

    fn lower(&mut self, id: usize) {
        self.lowest -= 1;
        self.tasks[id].priority = self.lowest;
    }

    pub fn new_task(&mut self, name: &str, kind: Kind, parent: Option<usize>) -> usize {
        let doomed = self.ending || parent.is_some_and(|p| self.tasks[p].doomed);
        let priority = (1 << 40) + self.rng.below(1 << 40);
        self.tasks.push(Task {
            name: name.to_owned(),
            kind,
            doing: Doing::Ready,
            woken: false,
            doomed,
            unwind_steps: 0,
            steps: 0,
            last: [""; LAST_STEPS],
            noted: String::new(),
            priority,
            baton: Arc::new(Condvar::new()),
            thread: None,
        });
        self.tasks.len() - 1
    }

    /// Ends waits on a key; how many.
    pub fn wake(&mut self, key: usize, mask: u32, n: usize) -> usize {
        let mut waiting: Vec<usize> = (0..self.tasks.len())
            .filter(|i| match self.tasks[*i].doing {
                Doing::Waiting {
                    key: k, mask: m, ..
                } => k == key && m & mask != 0,
                _ => false,
            })
            .collect();
        if waiting.len() > n {
            self.rng.shuffle(&mut waiting);
            waiting.truncate(n);
        }
        for i in &waiting {
            self.make_ready(*i, true);
        }
        waiting.len()
    }

    fn make_ready(&mut self, id: usize, woken: bool) {
        self.tasks[id].doing = Doing::Ready;
        self.tasks[id].woken = woken;
    }

    /// Marks tasks to be ended and makes them able to run.
    pub fn doom(&mut self, whom: impl Fn(&Task) -> bool) {
        for i in 0..self.tasks.len() {
            if self.tasks[i].doing != Doing::Done && whom(&self.tasks[i]) {
                self.tasks[i].doomed = true;
                self.make_ready(i, true);
            }
        }
    }

    pub fn fail(&mut self, failure: Failure) {
        if self.failure.is_none() {
            self.failure = Some(failure);
        }
        self.ending = true;
        self.doom(|_| true);
    }

    /// The task is over (or given up).
    pub fn end_task(&mut self, id: usize, leaked: bool) {
        self.tasks[id].doing = Doing::Done;
        self.leaked += usize::from(leaked);
        self.wake(join_key(id), u32::MAX, usize::MAX);
        if self.tasks[id].doomed {
            self.wake(REAP_KEY, u32::MAX, usize::MAX);
        }
    }

    /// Every task that has not ended, and its place; the busiest first.
    fn describe(&self) -> String {
        let mut tasks: Vec<&Task> = self.tasks.iter().collect();
        tasks.retain(|t| t.doing != Doing::Done);
        tasks.sort_by_key(|t| std::cmp::Reverse(t.steps));
        tasks.into_iter().map(Task::place).collect()
    }

    fn ready(&self) -> Vec<usize> {
        (0..self.tasks.len())
            .filter(|i| self.tasks[*i].doing == Doing::Ready)
            .collect()
    }

    fn fire_deadlines(&mut self) {
        let now = self.clock_us;
        for i in 0..self.tasks.len() {
            if let Doing::Waiting {
                deadline_us: Some(d),
                ..
            } = self.tasks[i].doing
            {
                if d <= now {
                    self.make_ready(i, false);
                }
            }
        }
    }

    fn earliest_deadline(&self) -> Option<u64> {
        let deadline = |t: &Task| match t.doing {
            Doing::Waiting { deadline_us, .. } => deadline_us,
            _ => None,
        };
        self.tasks.iter().filter_map(deadline).min()
    }

    /// Chooses who goes on, moving time if nobody can; `NOBODY` when all have ended.
    fn choose(&mut self) -> usize {
        loop {
            self.fire_deadlines();
            let ready = self.ready();
            if !ready.is_empty() {
                return self.choose_from(&ready);
            }
            if self.tasks.iter().all(|t| t.doing == Doing::Done) {
                return NOBODY;
            }
            if self
                .tasks
                .iter()
                .any(|t| t.doomed && t.doing != Doing::Done)
            {
                // Destructors that wait for what will not come.
                self.doom(|t| t.doomed);
            } else if let Some(deadline) = self.earliest_deadline() {
                self.clock_us = self.clock_us.max(deadline);
            } else {
                let report = self.describe();
                self.fail(Failure::Deadlock(report));
            }
        }
    }

    fn choose_from(&mut self, ready: &[usize]) -> usize {
        match self.schedule {
            Schedule::Random { switch_one_in } => {
                if ready.contains(&self.current) && !self.rng.chance(1, switch_one_in) {
                    return self.current;
                }
                ready[self.rng.below(ready.len() as u64) as usize]
            }
            Schedule::Priority { .. } => {
                // Now and then anybody, so that nobody who polls keeps all others out.
                if self.rng.chance(1, 200) {
                    return ready[self.rng.below(ready.len() as u64) as usize];
                }
                *ready
                    .iter()
                    .max_by_key(|i| self.tasks[**i].priority)
                    .unwrap_or(&ready[0])
            }
        }
    }
}

impl Shared {
    pub fn new(seed: u64, schedule: Schedule, max_steps: u64, keep_trace: bool) -> Shared {
        let mut rng = Rng::new(seed);
        let program_rng = Rng::new(rng.next_u64());
        Shared {
            state: Mutex::new(State {
                tasks: Vec::new(),
                current: NOBODY,
                clock_us: 1_000_000,
                program_rng,
                crash_at_step: None,
                crash_at_point: None,
                stalls: Vec::new(),
                crash_hook: None,
                crashes: 0,
                fatal: Vec::new(),
                ending: false,
                failure: None,
                rng,
                schedule,
                lowest: 1 << 40,
                max_steps,
                steps: 0,
                hash: seed,
                leaked: 0,
                trace: keep_trace.then(VecDeque::new),
            }),
            over: Condvar::new(),
        }
    }

    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Hands the baton to whoever is chosen.
    pub fn hand_over(&self, state: &mut State) {
        let next = state.choose();
        state.current = next;
        match state.tasks.get(next) {
            Some(t) => t.baton.notify_one(),
            None => self.over.notify_all(),
        }
    }

    /// Waits until the baton is with that task.
    pub fn await_baton<'a>(
        &self,
        mut state: MutexGuard<'a, State>,
        id: usize,
    ) -> MutexGuard<'a, State> {
        while state.current != id {
            let baton = state.tasks[id].baton.clone();
            state = baton.wait(state).unwrap_or_else(|e| e.into_inner());
        }
        state
    }

    /// For the thread that asked for the run: starts it and waits until all tasks ended.
    pub fn run_to_end(&self) {
        let mut state = self.state();
        self.hand_over(&mut state);
        while state.current != NOBODY {
            state = self.over.wait(state).unwrap_or_else(|e| e.into_inner());
        }
    }

    /// Gives back what is left of a run that has ended.
    pub fn finish(&self) -> (Option<Failure>, Report) {
        let (threads, failure, report) = {
            let mut s = self.state();
            let threads: Vec<_> = s.tasks.iter_mut().filter_map(|t| t.thread.take()).collect();
            let report = Report {
                trace_hash: s.hash,
                steps: s.steps,
                virtual_us: s.clock_us,
                leaked: s.leaked,
                fatal: std::mem::take(&mut s.fatal),
                trace: s.trace.take().unwrap_or_default().into(),
            };
            (threads, s.failure.take(), report)
        };
        for t in threads {
            let _ = t.join();
        }
        (failure, report)
    }
}
