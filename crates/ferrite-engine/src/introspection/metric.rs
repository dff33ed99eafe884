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

/// A figure that only rises.
pub(crate) fn counter(
    name: &'static str,
    value: u64,
    subsystem: &'static str,
    comment: &'static str,
) -> Metric {
    Metric {
        name,
        value,
        subsystem,
        comment,
        is_counter: true,
    }
}

/// A figure that goes up and down.
pub(crate) fn gauge(
    name: &'static str,
    value: u64,
    subsystem: &'static str,
    comment: &'static str,
) -> Metric {
    Metric {
        is_counter: false,
        ..counter(name, value, subsystem, comment)
    }
}
