//! Epochs by one thread and by many.

use super::*;
use crate::{thread, Arc};
use std::sync::atomic::AtomicBool;

#[test]
fn places_cover_all_numbers() {
    let mut expected = (0, 0);
    for n in 0..10_000 {
        assert_eq!(place(n), expected);
        expected.1 += 1;
        if expected.1 == chunk_len(expected.0) {
            expected = (expected.0 + 1, 0);
        }
    }
}

#[test]
fn a_pin_keeps_what_was_retired_after_it() {
    let e = Epochs::new();
    assert!(e.is_quiet(e.retired_now()));
    let outer = e.pin();
    let tag = e.retired_now();
    assert!(!e.is_quiet(tag));
    e.advance();
    let inner = e.pin();
    assert_eq!(e.oldest(), tag, "the outermost pin counts");
    drop(outer);
    assert!(!e.is_quiet(tag));
    drop(inner);
    assert!(e.is_quiet(tag));
    e.advance();
    let _late = e.pin();
    assert!(e.is_quiet(tag), "a later pin does not matter");
    assert_eq!(e.current(), tag + 2);
}

#[test]
fn many_threads_have_slots_at_once() {
    let e = Arc::new(Epochs::new());
    let (go, n) = (Arc::new(AtomicBool::new(false)), 70);
    let hs: Vec<_> = (0..n)
        .map(|_| {
            let (e, go) = (e.clone(), go.clone());
            thread::spawn("pin", move || {
                let _g = e.pin();
                while !go.load(Ordering::SeqCst) {
                    thread::sleep_ms(1);
                }
            })
        })
        .collect();
    while e.oldest() == u64::MAX {
        thread::yield_now();
    }
    let tag = e.retired_now();
    e.advance();
    assert!(!e.is_quiet(tag));
    go.store(true, Ordering::SeqCst);
    hs.into_iter().for_each(|h| h.join().unwrap());
    assert!(e.is_quiet(tag));
}

/// Readers follow a link to a value that says it is freed once it is.
#[test]
fn nothing_is_freed_under_a_reader() {
    let e = Arc::new(Epochs::new());
    let values: Arc<Vec<AtomicBool>> = Arc::new((0..400).map(|_| AtomicBool::new(false)).collect());
    let link = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let stop = Arc::new(AtomicBool::new(false));
    let hs: Vec<_> = (0..3)
        .map(|_| {
            let (e, values, link, stop) = (e.clone(), values.clone(), link.clone(), stop.clone());
            thread::spawn("reader", move || {
                while !stop.load(Ordering::Relaxed) {
                    let _g = e.pin();
                    let at = link.load(Ordering::Acquire);
                    for _ in 0..20 {
                        assert!(!values[at].load(Ordering::Relaxed), "{at} was freed");
                    }
                }
            })
        })
        .collect();
    let mut retired = Vec::new();
    let free = |retired: &mut Vec<(u64, usize)>| {
        e.advance();
        retired.retain(|(tag, at)| {
            let quiet = e.is_quiet(*tag);
            if quiet {
                values[*at].store(true, Ordering::Relaxed);
            }
            !quiet
        });
        thread::sleep_us(20);
    };
    for i in 1..400 {
        link.store(i, Ordering::Release);
        retired.push((e.retired_now(), i - 1));
        free(&mut retired);
    }
    // On a busy machine readers rest with a pin, but none for ever.
    let since_us = crate::time::now_us();
    while !retired.is_empty() {
        let took_us = crate::time::now_us() - since_us;
        assert!(took_us < 60_000_000, "{} are never free", retired.len());
        free(&mut retired);
    }
    stop.store(true, Ordering::Relaxed);
    hs.into_iter().for_each(|h| h.join().unwrap());
    let freed = values.iter().filter(|v| v.load(Ordering::Relaxed)).count();
    assert_eq!(freed, 399);
}
