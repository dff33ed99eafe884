//! A figure of the engine, with what it means.
//!
//! Locking: none.

/// One figure.
#[derive(Clone, Debug)]
pub struct Metric {
    /// Name without the prefix "Ferrite_".
    pub name: &'static str,
    /// Value now.
    pub value: u64,
    /// Part it belongs to.
    pub subsystem: &'static str,
    /// Meaning and unit.
    pub comment: &'static str,
    /// It only rises.
    pub is_counter: bool,
}

/// The part of the engine that figures belong to.
pub(crate) struct Subsystem(pub(crate) &'static str);

impl Subsystem {
    /// A figure that only rises.
    pub(crate) fn counter(&self, name: &'static str, value: u64, comment: &'static str) -> Metric {
        Metric {
            name,
            value,
            subsystem: self.0,
            comment,
            is_counter: true,
        }
    }

    /// A figure that goes up and down.
    pub(crate) fn gauge(&self, name: &'static str, value: u64, comment: &'static str) -> Metric {
        Metric {
            is_counter: false,
            ..self.counter(name, value, comment)
        }
    }
}
