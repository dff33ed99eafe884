//! Deliberate faults for the mutation proof: is the simulator able to find a fault of this kind?
//!
//! Without the feature `mutations` each is the constant false and nothing of it is left. With
//! it, `select` switches one on by name for the whole process.

/// True where a deliberate fault is to happen; `mutant!("room.fault")`.
#[macro_export]
macro_rules! mutant {
    ($name:expr) => {
        $crate::mutation::is_on($name)
    };
}

/// Is the fault of that name switched on?
#[cfg(not(feature = "mutations"))]
#[inline(always)]
pub const fn is_on(_name: &str) -> bool {
    false
}

#[cfg(feature = "mutations")]
pub use selected::*;

#[cfg(feature = "mutations")]
mod selected {
    use std::sync::OnceLock;

    static SELECTED: OnceLock<String> = OnceLock::new();

    /// Switches the fault of that name on, for the rest of the process; several with `+` between.
    /// Once a process.
    pub fn select(name: &str) {
        SELECTED.set(name.to_owned()).expect("one choice a process");
    }

    /// Is the fault of that name switched on?
    pub fn is_on(name: &str) -> bool {
        SELECTED
            .get()
            .is_some_and(|on| on == name || on.split('+').any(|one| one == name))
    }
}
