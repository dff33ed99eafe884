//! Damage: inputs that are nearly right.

use ferrite_sync::random::Rng;

/// Numbers at the edges of what fields can hold.
const EDGES: [u64; 14] = [
    0,
    1,
    2,
    7,
    8,
    0x7f,
    0x80,
    0xff,
    0x7fff,
    0x8000,
    0xffff,
    0x7fff_ffff,
    0xffff_ffff,
    u64::MAX,
];

/// One of the corpus, changed in one to eight ways; at most `most` bytes.
pub fn mutate(corpus: &[Vec<u8>], most: usize, rng: &mut Rng) -> Vec<u8> {
    let pick = |rng: &mut Rng| match corpus.len() {
        0 => Vec::new(),
        n => corpus[rng.below(n as u64) as usize].clone(),
    };
    let mut input = pick(rng);
    for _ in 0..1 + rng.below(8) {
        let other = pick(rng);
        change(&mut input, &other, rng);
    }
    input.truncate(most);
    input
}

/// A place in the input; more often near its start, where the headers are.
fn place(input: &[u8], rng: &mut Rng) -> usize {
    let end = if rng.chance(1, 2) {
        input.len().min(64)
    } else {
        input.len()
    };
    rng.below(end.max(1) as u64) as usize
}

fn change(input: &mut Vec<u8>, other: &[u8], rng: &mut Rng) {
    let at = place(input, rng);
    match rng.below(10) {
        0 | 1 => flip(input, at, rng),
        2 => put(input, at, &[rng.next_u64() as u8]),
        3 | 4 => {
            let edge = EDGES[rng.below(EDGES.len() as u64) as usize].to_le_bytes();
            let width = [1, 2, 4, 8][rng.below(4) as usize];
            put(input, at, &edge[..width]);
        }
        5 => add(input, at, rng),
        6 => input.truncate(at),
        7 => {
            let extra = rng.below(64) as usize;
            input.extend((0..extra).map(|_| rng.next_u64() as u8));
        }
        8 => {
            let from = place(other, rng).min(other.len());
            let len = rng.below(64) as usize;
            let piece = &other[from..(from + len).min(other.len())];
            put(input, at, piece);
        }
        _ => {
            let end = (at + rng.below(64) as usize).min(input.len());
            input.drain(at.min(end)..end);
        }
    }
}

fn flip(input: &mut [u8], at: usize, rng: &mut Rng) {
    if let Some(b) = input.get_mut(at) {
        *b ^= 1 << rng.below(8);
    }
}

fn put(input: &mut [u8], at: usize, bytes: &[u8]) {
    for (b, new) in input.iter_mut().skip(at).zip(bytes) {
        *b = *new;
    }
}

/// A little more or less in a number of two bytes.
fn add(input: &mut [u8], at: usize, rng: &mut Rng) {
    let Some(field) = input.get_mut(at..at + 2) else {
        return;
    };
    let n = u16::from_le_bytes([field[0], field[1]]);
    let n = n.wrapping_add(rng.below(17) as u16).wrapping_sub(8);
    field.copy_from_slice(&n.to_le_bytes());
}
