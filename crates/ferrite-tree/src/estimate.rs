//! What the optimizer asks: how many records lie in a range, and a sample of the keys.
//!
//! Nothing here is exact, and nothing is latched for longer than one leaf is looked at; while the
//! structure changes a figure may be off.

use crate::leaf::LeafRef;
use crate::node;
use crate::tree::{Goal, Tree, Tries};
use ferrite_buffer::{Keep, Node};
use ferrite_types::Result;

/// Leaves walked before a range is estimated.
const COUNTED_LEAVES: usize = 8;

/// A place on one level: so many siblings to its left, of so many in all.
#[derive(Clone, Copy)]
struct Step {
    slot: f64,
    of: f64,
}

/// The places on the way down to a record, the root's first, the record's own in its leaf last.
type Way = Vec<Step>;

/// (records to the left of the place that `way` leads to, all records) below the node where it
/// begins, its siblings on each level taken for as large as the one on the way.
fn below(way: &[Step]) -> (f64, f64) {
    way.iter().rev().fold((0.0, 1.0), |(left, size), step| {
        (left + step.slot * size, step.of * size)
    })
}

/// Which part of the index lies to the left of the middle between two ways that part at `fork`.
fn middle(low: &[Step], high: &[Step], fork: usize) -> f64 {
    let at = ((low[fork].slot + high[fork].slot) / 2.0).floor() + 0.5;
    let within = at / low[fork].of;
    let above = low[..fork].iter().rev();
    above.fold(within, |part, step| (step.slot + part) / step.of)
}

fn median(mut of: [f64; 3]) -> f64 {
    of.sort_unstable_by(f64::total_cmp);
    of[1]
}

/// The leaves of a sample.
struct Spread {
    visited: u32,
    /// One after the other from the first.
    walked: bool,
    /// To the last: the index has not grown beyond the number that was asked for meanwhile.
    complete: bool,
}

/// Slots of records that are not delete-marked.
fn live<'l>(leaf: &'l LeafRef<'_>) -> impl Iterator<Item = usize> + 'l {
    (0..leaf.count()).filter(|&slot| !leaf.record(slot).header.deleted)
}

impl Tree {
    /// Estimated records in `[low, high)`: counted within a few leaves, from fan-outs otherwise.
    ///
    /// # Errors
    /// A page that cannot be read.
    pub fn records_in_range(&self, low: &[u8], high: Option<&[u8]>) -> Result<u64> {
        if let Some(exact) = self.count_near(low, high)? {
            return Ok(exact);
        }
        let mut tries = Tries::default();
        loop {
            let (from, to) = (self.way(Some(low))?, self.way(high)?);
            if let Some(records) = self.between(&from, &to)? {
                return Ok(records.max(1.0).round() as u64);
            }
            self.restart(&mut tries)?;
        }
    }

    /// Estimated records between two places; None when the structure changed meanwhile. The ways
    /// are compared where they part: what is left of the one child, what is taken of the other, and
    /// the children between, each as large as the median of three: the last node of a level is often
    /// nearly empty. (For the same reason two ranks in the whole tree, each told from one way, differ
    /// by anything.)
    fn between(&self, low: &[Step], high: &[Step]) -> Result<Option<f64>> {
        if low.len() != high.len() {
            return Ok(None);
        }
        let Some(fork) = (0..low.len()).find(|&i| low[i].slot != high[i].slot) else {
            return Ok(Some(0.0));
        };
        if low[fork].slot > high[fork].slot {
            return Ok(None);
        }
        let (left, low_size) = below(&low[fork + 1..]);
        let (taken, high_size) = below(&high[fork + 1..]);
        let children = high[fork].slot - low[fork].slot - 1.0;
        let mut size = low_size;
        if children >= 1.0 && fork + 1 < low.len() {
            let (key, _) = self.key_at(middle(low, high, fork))?;
            let way = self.way(Some(&key))?;
            if way.len() != low.len() {
                return Ok(None);
            }
            size = median([low_size, below(&way[fork + 1..]).1, high_size]);
        }
        let records = (low_size - left) + children * size + taken;
        debug_assert!(records >= 0.0 && records.is_finite(), "{records} records");
        Ok(Some(records))
    }

    /// The way to the first record at or above `key`; None: to the end.
    fn way(&self, key: Option<&[u8]>) -> Result<Way> {
        let goal = key.map_or(Goal::Below(None), Goal::Covers);
        let mut tries = Tries::default();
        loop {
            let pin = self.pool.pin();
            let mut way = Way::new();
            let found = self.path(goal, &pin, |inner| {
                way.push(Step {
                    slot: goal.slot(&inner) as f64,
                    of: node::count(&inner) as f64,
                });
            });
            drop(pin);
            if let Err(obstacle) = found {
                self.overcome(obstacle, &mut tries)?;
                continue;
            }
            let leaf = self.leaf_shared(goal, Keep::Yes)?;
            let at = match key {
                Some(key) => leaf.find(key).unwrap_or_else(|slot| slot),
                None => leaf.count(),
            };
            way.push(Step {
                slot: at as f64,
                of: leaf.count() as f64,
            });
            return Ok(way);
        }
    }

    /// Records in `[low, high)` counted, if the range ends within a few leaves.
    fn count_near(&self, low: &[u8], high: Option<&[u8]>) -> Result<Option<u64>> {
        let mut from = low.to_vec();
        let mut count = 0;
        for _ in 0..COUNTED_LEAVES {
            let leaf = self.leaf(&from)?;
            let first = leaf.find(&from).unwrap_or_else(|slot| slot);
            let last = match high {
                Some(high) => leaf.find(high).unwrap_or_else(|slot| slot),
                None => leaf.count(),
            };
            count += last.saturating_sub(first) as u64;
            match node::high(&leaf) {
                Some(fence) if high.is_none_or(|h| h > fence) => from = fence.to_vec(),
                _ => return Ok(Some(count)),
            }
        }
        Ok(None)
    }

    /// Calls `each` with the live keys of about `leaves` leaves, in order: of all if there are not
    /// more, else of one leaf at random in each of as many equal parts of the index. Parts,
    /// because the duplicates of an index often lie together: leaves picked without regard to
    /// their place miss a quarter of the index in one sample out of ten. The flag is set on
    /// the first key of a leaf. Returns leaves visited.
    ///
    /// # Errors
    /// A page that cannot be read.
    pub fn sample(&self, leaves: u32, each: &mut dyn FnMut(&[u8], bool)) -> Result<u32> {
        let mut keys_of = |leaf: &LeafRef<'_>, _| {
            let key_of = |slot| {
                let mut key = Vec::new();
                node::key_into(leaf, slot, &mut key);
                key
            };
            live(leaf).map(key_of).collect::<Vec<_>>()
        };
        let mut tell = |keys: Vec<Vec<u8>>| {
            for (i, key) in keys.iter().enumerate() {
                each(key, i == 0);
            }
        };
        let spread = self.spread_leaves(leaves, &mut keys_of, &mut tell)?;
        Ok(spread.visited)
    }

    /// Live records of the index: all of them counted if it has no more than so many leaves (then the flag
    /// is set), else estimated from as many. A leaf is come to at random by a child of each node on
    /// the way, so it stands for as many leaves as there were children to choose from, multiplied; the mean of that
    /// many times its records is right on average however full the nodes are (Horvitz and Thompson 1952).
    ///
    /// # Errors
    /// A page that cannot be read.
    pub fn live_records(&self, leaves: u32) -> Result<(u64, bool)> {
        let mut records = 0.0;
        let mut count =
            |leaf: &LeafRef<'_>, stands_for: f64| stands_for * live(leaf).count() as f64;
        let spread = self.spread_leaves(leaves, &mut count, &mut |of| records += of)?;
        if spread.walked {
            return Ok((records as u64, spread.complete));
        }
        let mean = records / f64::from(spread.visited);
        debug_assert!(mean >= 0.0 && mean.is_finite(), "{mean} records");
        Ok((mean.round() as u64, false))
    }

    /// Looks at all leaves if there are no more than `leaves`, else at one at random in each of as many equal parts. `look`
    /// gets the leaf, latched, and how many it stands for; `then` what it made of it, without the latch.
    fn spread_leaves<T>(
        &self,
        leaves: u32,
        look: &mut dyn FnMut(&LeafRef<'_>, f64) -> T,
        then: &mut dyn FnMut(T),
    ) -> Result<Spread> {
        assert!(leaves > 0, "a sample of nothing");
        let walked = self.pool.store().page_count(self.index) <= u64::from(leaves);
        let mut complete = false;
        let mut rng = ferrite_sync::random::Rng::new(ferrite_sync::random::next_u64());
        let (mut at, mut stands_for) = (Vec::new(), 1.0);
        let mut visited = 0;
        while visited < leaves && !complete {
            if !walked {
                let within = rng.below(1 << 32) as f64 / (1u64 << 32) as f64;
                (at, stands_for) =
                    self.key_at((f64::from(visited) + within) / f64::from(leaves))?;
            }
            let leaf = self.leaf(&at)?;
            visited += 1;
            let made = look(&leaf, stands_for);
            let next = node::high(&leaf).map(<[u8]>::to_vec);
            drop(leaf);
            then(made);
            if walked {
                complete = next.is_none();
                at = next.unwrap_or_default();
            }
        }
        debug_assert!(visited > 0 && visited <= leaves, "{visited} of {leaves}");
        Ok(Spread {
            visited,
            walked,
            complete,
        })
    }

    /// The low end of the leaf that lies `part` (0 up to 1) of the way through the index, each
    /// child of a node taken for as large as its neighbours; and how many leaves there would be if
    /// all nodes had as many children as those on the way.
    fn key_at(&self, mut part: f64) -> Result<(Vec<u8>, f64)> {
        let mut key = Vec::new();
        let mut leaves = 1.0;
        let mut page = self.root;
        loop {
            let pin = self.pool.pin();
            let inner = match self.pool.node(page, &pin) {
                Node::Inner(inner) if node::index(&inner) == self.index => inner,
                Node::Away => {
                    drop(pin);
                    self.pool.read_in(page)?;
                    continue;
                }
                _ => return Ok((key, leaves)),
            };
            let children = node::count(&inner);
            leaves *= children as f64;
            debug_assert!(children > 0 && part >= 0.0, "{part} of {children}");
            part *= children as f64;
            let slot = (part as usize).min(children - 1);
            part -= slot as f64;
            key.clear();
            node::key_into(&inner, slot, &mut key);
            page = node::child(&inner, slot);
        }
    }
}
