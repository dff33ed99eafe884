//! Models for loom: log reservation, in every order of two appenders and the writer.
//!
//! Run: `./ferrite test loom`.

use ferrite_sync::model::{check, thread};
use ferrite_sync::Arc;

use crate::format::envelope_words;
use crate::ring::Ring;

/// Body of 8 bytes, told by its kind.
fn body(kind: u8) -> [u8; 8] {
    [kind; 8]
}

fn append(ring: &Ring, kind: u8) {
    let start = ring.reserve(16);
    while start + 16 - ring.consumed() > ring.capacity() {
        thread::yield_now();
    }
    ring.fill(start, kind, 8, &[&body(kind)]);
}

/// Takes the next record if it is there: it must be whole.
fn take(ring: &Ring, at: &mut u64) -> Option<u8> {
    let word = ring.envelope_at(*at);
    if word == 0 {
        return None;
    }
    assert_eq!(envelope_words(word), 2);
    let mut out = [0; 16];
    ring.take(*at, &mut out);
    let kind = out[8];
    assert_eq!(out[8..], body(kind), "a record came out in parts");
    *at += 16;
    ring.release(*at);
    Some(kind)
}

/// `room`: bytes of the ring. Both records come out, whole, whoever was first.
fn two_appenders(room: usize) {
    let ring = Arc::new(Ring::new(room, 0));
    let appenders = [1u8, 2].map(|kind| {
        let ring = ring.clone();
        thread::spawn(move || append(&ring, kind))
    });
    let (mut at, mut seen) = (0, Vec::new());
    while seen.len() < 2 {
        match take(&ring, &mut at) {
            Some(kind) => seen.push(kind),
            None => thread::yield_now(),
        }
    }
    for a in appenders {
        a.join().unwrap();
    }
    seen.sort_unstable();
    assert_eq!(seen, [1, 2]);
    assert_eq!(ring.next(), 32);
}

#[test]
fn loom_records_come_out_whole() {
    check(3, || two_appenders(64));
}

#[test]
fn loom_a_full_ring_is_used_again() {
    check(3, || two_appenders(16));
}
