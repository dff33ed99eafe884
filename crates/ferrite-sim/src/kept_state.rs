//! Which snapshots there must be, and the model of each (`kept.rs`).
//!
//! Locking: a real mutex, held for moments, never over a call of the engine or the disk.

use crate::model::Model;
use std::sync::{Mutex, MutexGuard};

/// One that was taken, or may have been.
pub struct Snapshot {
    /// Its name.
    pub name: String,
    /// What it has.
    pub model: Model,
    /// It was answered, and is not being dropped.
    pub must_be_there: bool,
    /// The program died while it was taken or dropped, and it is there.
    pub was_in_doubt: bool,
}

/// A rewind.
#[derive(Clone)]
pub struct Plan {
    /// Where it goes.
    pub to: String,
    /// The snapshot of what was before.
    pub present: String,
    /// Its decision is on disk.
    pub decided: bool,
}

/// What is known of them.
#[derive(Default)]
pub struct State {
    /// The oldest first.
    pub snapshots: Vec<Snapshot>,
    /// The rewind that is planned or under way.
    pub rewinding: Option<Plan>,
    /// How many were taken.
    pub taken: u64,
    /// This life drops one, if there is one.
    pub must_drop: bool,
}

/// What there must be.
#[derive(Default)]
pub struct Kept {
    state: Mutex<State>,
}

impl Kept {
    /// For moments.
    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// The disk is another one.
    pub fn forget(&self) {
        *self.state() = State::default();
    }

    /// The model of one.
    pub fn find(&self, name: &str) -> Option<Model> {
        let state = self.state();
        let found = state.snapshots.iter().find(|s| s.name == name);
        found.map(|s| s.model.clone())
    }

    /// One that survived its cut-off beginning or end, and that nobody has rewound to since.
    pub fn take_in_doubt(&self) -> Option<String> {
        let mut state = self.state();
        let found = state.snapshots.iter_mut().find(|s| s.was_in_doubt)?;
        found.was_in_doubt = false;
        Some(found.name.clone())
    }

    /// Whether it must be there.
    pub fn mark(&self, name: &str, must_be_there: bool) {
        for s in &mut self.state().snapshots {
            if s.name == name {
                s.must_be_there = must_be_there;
            }
        }
    }
}
