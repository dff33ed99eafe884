//! What the simulated tables hold: how a row's numbers become keys, entries and payload, and
//! back. Every byte of a row follows from its few numbers, so that a wrong byte anywhere is
//! seen.
//!
//! ```text
//! payload: references u8 | each 16 bytes | stamp u64 | k u64 | u u64 | filling
//! ```

use ferrite_engine::{OverflowRef, OVERFLOW_REF_BYTES};

/// A kind of secondary index.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Secondary {
    /// On `k`, many rows a value.
    Plain,
    /// On `u`, one row a value.
    Unique,
}

/// How the rows of a table look.
#[derive(Clone, Debug)]
pub struct Shape {
    /// Constant bytes before the number in each key.
    pub key_prefix: usize,
    /// Longest filling of a row.
    pub max_fill: u64,
    /// Longest value out of line; 0: none.
    pub max_big: u64,
    /// All of them have that length.
    pub same_big: bool,
    /// Row numbers are below.
    pub keys: u64,
    /// Values of `k` are below.
    pub k_values: u64,
    /// Values of `u` are below.
    pub u_values: u64,
    /// Secondary indexes, from index number 1 on.
    pub secondary: Vec<Secondary>,
    /// Secondary entries carry the row's stamp.
    pub covering: bool,
    /// Bytes that secondary entries carry besides.
    pub entry_fill: usize,
    /// It is one of the tables between which there are foreign keys.
    pub kin: Option<Kin>,
}

/// How tables between which there are foreign keys differ from others: their columns can be compared.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Kin {
    /// `k` may be NULL.
    pub nullable: bool,
    /// The index on `k` is in descending order.
    pub descending: bool,
    /// Bytes that secondary entries carry besides: few of them go on a leaf.
    pub entry_fill: usize,
}

/// `k` of a row where it is NULL.
pub const NULL: u64 = u64::MAX;

/// A value out of line.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Big {
    /// Its name in the engine.
    pub reference: OverflowRef,
    /// Its bytes follow from this.
    pub seed: u64,
    /// Its length.
    pub len: u32,
}

/// One state of one row.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Row {
    /// Different for every state ever written.
    pub stamp: u64,
    /// Column of the plain index.
    pub k: u64,
    /// Column of the unique index.
    pub u: u64,
    /// Length of the filling.
    pub fill: u32,
    /// Value out of line.
    pub big: Option<Big>,
}

/// Bytes that follow from a seed.
pub fn pattern(seed: u64, len: usize) -> Vec<u8> {
    let mut x = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut out = Vec::with_capacity(len + 8);
    while out.len() < len {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        // Half of it repeats, so that pages can be packed.
        out.extend_from_slice(&(x & 0x0f0f_0f0f_ffff_ffff).to_le_bytes());
    }
    out.truncate(len);
    out
}

fn number_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_be_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

impl Shape {
    fn key(&self, letter: u8, n: u64) -> Vec<u8> {
        let letter = self.kin.map_or(letter, |_| b'f');
        let mut key = vec![letter; self.key_prefix];
        key.extend_from_slice(&n.to_be_bytes());
        key
    }

    /// Clustered key of a row.
    pub fn pk(&self, n: u64) -> Vec<u8> {
        self.key(b'p', n)
    }

    /// The row number in a clustered key.
    pub fn number_of(&self, pk: &[u8]) -> Option<u64> {
        (pk.len() == self.key_prefix + 8)
            .then(|| number_at(pk, self.key_prefix))
            .flatten()
    }

    /// Declared part of the key in a secondary index.
    pub fn secondary_key(&self, index_no: usize, row: &Row) -> Vec<u8> {
        match self.secondary[index_no - 1] {
            Secondary::Plain => match self.kin {
                None => self.key(b'k', row.k),
                Some(kin) => self.part(row.k, kin.nullable, kin.descending),
            },
            Secondary::Unique => self.key(b'u', row.u),
        }
    }

    /// A column's value as a key part that may be NULL, or in descending order.
    pub fn part(&self, value: u64, nullable: bool, descending: bool) -> Vec<u8> {
        let mut part = Vec::new();
        if nullable {
            part.push(u8::from(value != NULL));
        }
        if value != NULL {
            part.extend(self.key(b'f', value));
        }
        if descending {
            part.iter_mut().for_each(|byte| *byte = !*byte);
        }
        part
    }

    /// The whole key of a row in an index.
    pub fn index_key(&self, index_no: usize, n: u64, row: &Row) -> Vec<u8> {
        if index_no == 0 {
            return self.pk(n);
        }
        let mut key = self.secondary_key(index_no, row);
        key.extend_from_slice(&self.pk(n));
        key
    }

    /// Payload of a secondary entry.
    pub fn entry_payload(&self, row: &Row) -> Vec<u8> {
        let mut payload = Vec::new();
        if self.covering {
            payload.extend_from_slice(&row.stamp.to_be_bytes());
        }
        if let Some(kin) = self.kin {
            payload.extend(pattern(row.k, kin.entry_fill));
        }
        payload.extend(pattern(row.k, self.entry_fill));
        payload
    }

    /// The row's payload.
    pub fn payload(&self, row: &Row) -> Vec<u8> {
        let mut out = vec![u8::from(row.big.is_some())];
        if let Some(big) = &row.big {
            out.extend_from_slice(big.reference.bytes());
        }
        for number in [row.stamp, row.k, row.u] {
            out.extend_from_slice(&number.to_be_bytes());
        }
        out.extend_from_slice(&pattern(row.stamp, row.fill as usize));
        out
    }

    /// Is this the payload of that row?
    pub fn is_payload_of(&self, payload: &[u8], row: &Row) -> bool {
        payload == self.payload(row)
    }
}

/// What a payload says of itself, for messages.
pub fn describe(payload: &[u8]) -> String {
    let at = 1 + payload.first().copied().unwrap_or(0) as usize * OVERFLOW_REF_BYTES;
    match (
        number_at(payload, at),
        number_at(payload, at + 8),
        number_at(payload, at + 16),
    ) {
        (Some(stamp), Some(k), Some(u)) => {
            format!("stamp {stamp} k {k} u {u}, {} bytes", payload.len())
        }
        _ => format!("{} bytes without a row", payload.len()),
    }
}

/// The stamp that a payload says it has.
pub fn stamp_of(payload: &[u8]) -> Option<u64> {
    number_at(
        payload,
        1 + usize::from(*payload.first()?) * OVERFLOW_REF_BYTES,
    )
}
