//! A task: an OS thread that runs only while it has the baton.
//!
//! Invariant: the thread-local context is set exactly while the thread is inside of the
//! task's closure; destructors of thread-locals run really.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::panic::{catch_unwind, resume_unwind, AssertUnwindSafe};
use std::rc::Rc;
use std::sync::{Arc, Mutex};

use super::sched::{
    join_key, Doing, Failure, Shared, State, Task, REAP_KEY, STALL_KEY, UNWIND_STEPS,
};

/// Whom a task belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// The operator's first task; the run ends with it.
    Main,
    /// The operator: survives crashes.
    Outside,
    /// The program under test.
    Inside,
}

/// What a task that a crash ended unwinds with.
pub struct Crashed;

pub struct Context {
    pub shared: Arc<Shared>,
    pub id: usize,
    /// The crash hook is running: nobody else gets the baton.
    in_hook: Cell<bool>,
}

thread_local! {
    static IS_TASK: Cell<bool> = const { Cell::new(false) };
    static CONTEXT: RefCell<Option<Rc<Context>>> = const { RefCell::new(None) };
}

#[inline]
pub fn is_task() -> bool {
    IS_TASK.with(Cell::get)
}

/// The running thread's task.
pub fn context() -> Option<Rc<Context>> {
    if !is_task() {
        return None;
    }
    CONTEXT.with(|c| c.borrow().clone())
}

fn set_context(c: Option<Context>) {
    IS_TASK.with(|t| t.set(c.is_some()));
    CONTEXT.with(|slot| *slot.borrow_mut() = c.map(Rc::new));
}

type Slot<T> = Arc<Mutex<Option<std::thread::Result<T>>>>;

/// A simulated thread's handle.
pub struct TaskHandle<T> {
    shared: Arc<Shared>,
    id: usize,
    result: Slot<T>,
}

impl<T> TaskHandle<T> {
    /// Waits for the end of the task.
    pub(crate) fn join(self) -> std::thread::Result<T> {
        let c = context().expect("a simulated thread is joined within its simulation");
        c.step("join", true);
        while !self.is_finished() {
            c.block("join", join_key(self.id), u32::MAX, None);
            if std::thread::panicking() {
                break;
            }
        }
        self.take_result().unwrap_or_else(|| Err(Box::new(Crashed)))
    }

    /// True once the task has ended.
    pub(crate) fn is_finished(&self) -> bool {
        self.shared.state().tasks[self.id].doing == Doing::Done
    }

    pub(crate) fn take_result(&self) -> Option<std::thread::Result<T>> {
        self.result.lock().unwrap_or_else(|e| e.into_inner()).take()
    }
}

fn message(payload: &(dyn Any + Send)) -> String {
    match (
        payload.downcast_ref::<&str>(),
        payload.downcast_ref::<String>(),
    ) {
        (Some(s), _) => (*s).to_owned(),
        (_, Some(s)) => s.clone(),
        _ => "(no text)".to_owned(),
    }
}

/// Makes a task; it runs when it is chosen.
pub fn start<T, F>(shared: &Arc<Shared>, name: &str, kind: Kind, f: F) -> TaskHandle<T>
where
    F: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
{
    let parent = context().map(|c| c.id);
    let id = shared.state().new_task(name, kind, parent);
    let result: Slot<T> = Arc::new(Mutex::new(None));
    let (inner, slot) = (shared.clone(), result.clone());
    let thread = std::thread::Builder::new()
        .name(format!("sim {name}"))
        .stack_size(crate::thread::STACK_BYTES)
        .spawn(move || body(inner, id, kind, slot, f))
        .unwrap_or_else(|e| panic!("cannot start task {name}: {e}"));
    shared.state().tasks[id].thread = Some(thread);
    TaskHandle {
        shared: shared.clone(),
        id,
        result,
    }
}

fn body<T, F>(shared: Arc<Shared>, id: usize, kind: Kind, slot: Slot<T>, f: F)
where
    F: FnOnce() -> T,
{
    let doomed = shared.await_baton(shared.state(), id).tasks[id].doomed;
    set_context(Some(Context {
        shared: shared.clone(),
        id,
        in_hook: Cell::new(false),
    }));
    let outcome = catch_unwind(AssertUnwindSafe(move || {
        if doomed {
            // What the closure holds is dropped as in any other unwinding.
            resume_unwind(Box::new(Crashed));
        }
        f()
    }));
    if let Err(payload) = &outcome {
        let mut state = shared.state();
        if !payload.is::<Crashed>() && !state.tasks[id].doomed {
            let task = state.tasks[id].name.clone();
            state.fail(Failure::Panic {
                task,
                message: message(&**payload),
            });
        }
    }
    *slot.lock().unwrap_or_else(|e| e.into_inner()) = Some(outcome);
    // If nobody will ask for the result it is dropped here, still as a task.
    let _ = catch_unwind(AssertUnwindSafe(move || drop(slot)));
    if let (Kind::Main, Some(c)) = (kind, context()) {
        c.call_crash_hook();
    }
    set_context(None);
    let mut state = shared.state();
    state.end_task(id, false);
    if kind == Kind::Main {
        // The run is over: whatever is left ends as in a crash.
        state.ending = true;
        state.doom(|_| true);
    }
    shared.hand_over(&mut state);
}

impl Context {
    /// A yield point: counts it, may switch, may crash the program, and ends this task if
    /// it is doomed and may unwind here.
    pub fn step(&self, what: &'static str, may_unwind: bool) {
        if self.in_hook.get() {
            return;
        }
        let mut state = self.counted(what);
        let stalls = may_unwind && !std::thread::panicking();
        let until_us = stalls.then(|| state.stall(self.id, what)).flatten();
        self.shared.hand_over(&mut state);
        drop(self.shared.await_baton(state, self.id));
        self.end_if_doomed(may_unwind);
        if until_us.is_some() {
            self.block("stall", STALL_KEY, 0, until_us);
        }
    }

    /// Waits for a wake on the key or for the deadline; true when woken.
    pub fn block(&self, what: &'static str, key: usize, mask: u32, deadline: Option<u64>) -> bool {
        assert!(!self.in_hook.get(), "a crash hook must not wait ({what})");
        let mut state = self.counted(what);
        let task = &mut state.tasks[self.id];
        if !task.doomed || std::thread::panicking() {
            task.doing = Doing::Waiting {
                what,
                key,
                mask,
                deadline_us: deadline,
            };
        }
        self.shared.hand_over(&mut state);
        let state = self.shared.await_baton(state, self.id);
        let woken = state.tasks[self.id].woken;
        drop(state);
        self.end_if_doomed(true);
        woken
    }

    /// The state, after one more step and the crash that may be due at it.
    fn counted(&self, what: &'static str) -> std::sync::MutexGuard<'_, State> {
        let mut state = self.shared.state();
        if state.count_step(self.id, what) {
            drop(state);
            self.doom_program();
            state = self.shared.state();
        }
        state
    }

    fn end_if_doomed(&self, may_unwind: bool) {
        let mut state = self.shared.state();
        let task = &mut state.tasks[self.id];
        if !task.doomed {
            return;
        }
        task.unwind_steps += 1;
        let give_up = task.unwind_steps > UNWIND_STEPS;
        if give_up || cfg!(panic = "abort") {
            drop(state);
            self.give_up();
        }
        drop(state);
        if may_unwind && !std::thread::panicking() {
            resume_unwind(Box::new(Crashed));
        }
    }

    /// Parks this task for ever: its thread is detached and nobody waits for it.
    fn give_up(&self) -> ! {
        let mut state = self.shared.state();
        state.tasks[self.id].thread = None;
        state.end_task(self.id, true);
        self.shared.hand_over(&mut state);
        drop(state);
        loop {
            std::thread::park();
        }
    }

    fn call_crash_hook(&self) {
        let hook = self.shared.state().crash_hook.clone();
        if let Some(hook) = hook {
            self.in_hook.set(true);
            hook();
            self.in_hook.set(false);
        }
    }

    /// Calls the crash hook and dooms the program under test.
    fn doom_program(&self) {
        self.call_crash_hook();
        let mut state = self.shared.state();
        state.crashes += 1;
        state.crash_at_step = None;
        state.crash_at_point = None;
        state.note(self.id, "crash");
        state.doom(|t| t.kind == Kind::Inside);
    }

    pub fn crash(&self) {
        if self.in_hook.get() || std::thread::panicking() {
            return;
        }
        self.doom_program();
        self.end_if_doomed(true);
        self.reap();
    }

    /// The program has found that it must not go on.
    pub fn fatal(&self, message: &str) -> ! {
        {
            let mut state = self.shared.state();
            state.note(self.id, message);
            state.fatal.push(message.to_owned());
        }
        if self.in_hook.get() {
            panic!("fatal in a crash hook: {message}");
        }
        if !std::thread::panicking() {
            self.doom_program();
        }
        // The operator's own call, or one in a destructor, cannot simply go on either.
        if std::thread::panicking() {
            self.give_up();
        }
        resume_unwind(Box::new(Crashed))
    }

    pub fn reap(&self) {
        loop {
            {
                let state = self.shared.state();
                let alive = |t: &Task| t.doomed && t.doing != Doing::Done;
                if !state.tasks.iter().any(alive) {
                    return;
                }
            }
            self.block("reap", REAP_KEY, u32::MAX, None);
        }
    }
}
