//! Draws how a table looks.

use crate::rows::{Secondary, Shape};
use ferrite_sync::random::Rng;

/// One of these.
pub(crate) fn pick<T: Copy>(rng: &mut Rng, from: &[T]) -> T {
    from[rng.below(from.len() as u64) as usize]
}

/// Some table.
pub(crate) fn shape(rng: &mut Rng, overflow: bool) -> Shape {
    let keys = pick(rng, &[6, 30, 120, 400]);
    let mut secondary = Vec::new();
    if rng.chance(4, 5) {
        secondary.push(Secondary::Plain);
    }
    if rng.chance(2, 3) {
        secondary.push(Secondary::Unique);
    }
    if rng.chance(1, 2) {
        secondary.reverse();
    }
    let mut shape = Shape {
        key_prefix: pick(rng, &[0, 0, 12, 200, 700]),
        max_fill: pick(rng, &[0, 40, 400, 2000]),
        max_big: if overflow {
            pick(rng, &[100, 20_000, 70_000])
        } else {
            0
        },
        same_big: false,
        keys,
        k_values: pick(rng, &[1, 4, 50]),
        u_values: keys * pick(rng, &[1, 2, 10]),
        secondary,
        covering: rng.chance(1, 2),
        entry_fill: 0,
        kin: None,
    };
    // As long as a payload can be. Without the dice: the plans of other seeds stay what they were.
    if shape.max_fill == 2000 && shape.k_values == 50 {
        shape.max_fill = 7000;
    }
    shape
}
