//! What a prune of a chain of versions did, and how rarely it looks at all of one.
//!
//! Locking: none.

/// Versions that stay after which every second update looks no further, while every fourth looks
/// no further than twice as many, and so on. With many snapshots open most of a row's versions are
/// needed by one each: an update looks at some `LOOK_AT + LOOK_AT / 2 * log2(n / LOOK_AT)` of n,
/// and version n is looked at by one update of `n / LOOK_AT`, so that of a chain's length only a
/// part can be waste.
pub(crate) const LOOK_AT: u32 = 4;
/// One update of so many looks behind versions where no snapshot has ended lately: some ended
/// when nobody updated the row.
pub(crate) const PAST_SETTLED_EVERY: u32 = 32;
// The choice takes bits of a random number.
const _: () = assert!(PAST_SETTLED_EVERY.is_power_of_two() && LOOK_AT > 0);

/// What a prune did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pruned {
    /// Versions taken out.
    pub dropped: u32,
    /// Versions left of those that were looked at.
    pub kept: u32,
    /// The end of the chain was not looked at.
    pub partly: bool,
    /// Where no snapshot had ended lately it went on.
    pub past_settled: bool,
}

impl Pruned {
    /// For how many updates that left chains of unknown length this one stands, as far as `longest`
    /// versions are told from more of them. Few look at the whole of a long chain.
    pub(crate) fn stands_for(&self, longest: u32) -> u32 {
        if !self.past_settled || (self.partly && self.kept < longest) {
            return 0;
        }
        let looks = self.kept.min(longest).div_ceil(LOOK_AT).max(1);
        PAST_SETTLED_EVERY * looks.next_power_of_two()
    }
}
