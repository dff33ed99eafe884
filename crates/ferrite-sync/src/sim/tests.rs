//! The scheduler itself: same seed, same run; races, deadlocks and crashes are found.

use super::*;
use crate::atomic::{AtomicU64, AtomicUsize, Ordering};
use crate::epoch::Epochs;
use crate::{random, thread, time, Condvar, Event, Latch, Mutex, RwLock};

/// A little of everything; returns what the program saw.
fn mixed() -> u64 {
    let m = Arc::new((Mutex::new(0u64), Condvar::new()));
    let latch = Arc::new(Latch::new());
    let rw = Arc::new(RwLock::new(0u64));
    let event = Arc::new(Event::new());
    let epochs = Arc::new(Epochs::new());
    let hs: Vec<_> = (0..4u64)
        .map(|i| {
            let (m, latch, rw) = (m.clone(), latch.clone(), rw.clone());
            let (event, epochs) = (event.clone(), epochs.clone());
            thread::spawn("worker", move || {
                for n in 0..20 {
                    let _pin = epochs.pin();
                    latch.exclusive();
                    *m.0.lock() += i * n;
                    latch.unlock_exclusive();
                    m.1.notify_one();
                    thread::sleep_us(random::next_u64() % 50);
                    *rw.write() += 1;
                    event.set();
                }
                time::now_us()
            })
        })
        .collect();
    let mut g = m.0.lock();
    while *g < 500 {
        g = m.1.wait_timeout_ms(g, 1).0;
    }
    drop(g);
    event.wait();
    let times: u64 = hs.into_iter().map(|h| h.join().unwrap()).sum();
    assert_eq!((*m.0.lock(), *rw.read()), ((1 + 2 + 3) * 190, 80));
    times ^ random::next_u64()
}

#[test]
fn one_seed_one_history() {
    let mut hashes = std::collections::HashSet::new();
    for seed in 0..60 {
        let run = || Simulation::new(seed).keep_trace().run(mixed).unwrap();
        let (a, b) = (run(), run());
        assert_eq!(a.report.trace, b.report.trace);
        assert_eq!(
            (a.value, a.report.trace_hash),
            (b.value, b.report.trace_hash)
        );
        assert_eq!(a.report.leaked, 0);
        hashes.insert(a.report.trace_hash);
    }
    assert_eq!(hashes.len(), 60);
}

/// Many sleepers on one latch: a lost wake-up would be a deadlock.
#[test]
fn latches_lose_no_sleeper() {
    for seed in 0..3000 {
        let out = Simulation::new(seed).run(|| {
            let latch = Arc::new(Latch::new());
            let hs: Vec<_> = (0..6)
                .map(|i| {
                    let latch = latch.clone();
                    thread::spawn("user", move || {
                        for n in 0..2 {
                            if (n + i) % 4 == 0 {
                                latch.shared();
                                thread::yield_now();
                                latch.unlock_shared();
                                continue;
                            }
                            latch.exclusive();
                            thread::yield_now();
                            if n % 3 == 0 {
                                latch.downgrade();
                                latch.unlock_shared();
                            } else {
                                latch.unlock_exclusive();
                            }
                        }
                    })
                })
                .collect();
            hs.into_iter().for_each(|h| h.join().unwrap());
            assert!(!latch.is_held());
        });
        out.unwrap_or_else(|e| panic!("seed {seed}: {e}"));
    }
}

#[test]
fn deadlocks_are_described() {
    let mut found = 0;
    for seed in 0..200 {
        let r = Simulation::new(seed).run(|| {
            let (a, b) = (Arc::new(Mutex::new(())), Arc::new(Mutex::new(())));
            let (a2, b2) = (a.clone(), b.clone());
            let h = thread::spawn("other", move || {
                let _x = b2.lock();
                let _y = a2.lock();
            });
            let x = a.lock();
            let y = b.lock();
            drop((x, y));
            h.join().unwrap();
        });
        if let Err(failed) = r {
            let Failure::Deadlock(text) = &failed.failure else {
                panic!("{failed}")
            };
            assert!(text.contains("other: waits: mutex"), "{text}");
            found += 1;
        }
    }
    assert!(found > 4, "{found}");
}

#[test]
fn lost_updates_are_found() {
    let mut lost = 0;
    for seed in 0..60 {
        let r = Simulation::new(seed).run(|| {
            let n = Arc::new(AtomicU64::new(0));
            let hs: Vec<_> = (0..2)
                .map(|_| {
                    let n = n.clone();
                    thread::spawn("adder", move || {
                        let seen = n.load(Ordering::SeqCst);
                        crate::kill_point!("between");
                        n.store(seen + 1, Ordering::SeqCst);
                    })
                })
                .collect();
            hs.into_iter().for_each(|h| h.join().unwrap());
            n.load(Ordering::SeqCst)
        });
        lost += u64::from(r.unwrap().value == 1);
    }
    assert!(lost > 5, "{lost}");
}

#[test]
fn time_is_virtual_and_panics_are_reported() {
    let began = std::time::Instant::now();
    let out = Simulation::new(1).run(|| {
        let (before, wall) = (time::now_us(), time::unix_us());
        thread::sleep_ms(3_600_000);
        assert!(!Event::new().wait_timeout_us(1_000_000));
        assert!(time::unix_us() > wall);
        time::now_us() - before
    });
    assert!(out.unwrap().value >= 3_601_000_000 && began.elapsed().as_secs() < 60);
    let failed = Simulation::new(1)
        .run(|| {
            let h = thread::spawn("bad", || std::panic::resume_unwind(Box::new("oh")));
            let _ = h.join();
            thread::sleep_ms(1);
        })
        .unwrap_err();
    let expected = Failure::Panic {
        task: "bad".to_owned(),
        message: "oh".to_owned(),
    };
    assert_eq!(failed.failure, expected);
    let endless = Simulation::new(2).max_steps(1000).run(|| {
        thread::spawn("spinner", || {
            note("looks for a leaf");
            loop {
                thread::yield_now();
            }
        });
        thread::sleep_ms(3_600_000);
    });
    let failure = endless.unwrap_err().failure;
    let Failure::TooManySteps(text) = &failure else {
        panic!("{failure}");
    };
    let place = text.lines().find(|l| l.contains("  spinner: can run"));
    let place = place.unwrap_or_else(|| panic!("{text}"));
    assert!(place.contains("yield, yield") && place.ends_with("looks for a leaf"));
}

/// Counts itself down when its task is unwound, and uses locks meanwhile.
struct Fragile(Arc<AtomicUsize>, Arc<Mutex<u64>>);

impl Drop for Fragile {
    fn drop(&mut self) {
        *self.1.lock() += 1;
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

fn program(alive: &Arc<AtomicUsize>) -> crate::thread::JoinHandle<()> {
    let alive = alive.clone();
    spawn("program", move || {
        let shared = Arc::new(Mutex::new(0));
        let stop = Arc::new(Event::new());
        let hs: Vec<_> = (0..3)
            .map(|_| {
                alive.fetch_add(1, Ordering::SeqCst);
                let mine = Fragile(alive.clone(), shared.clone());
                let stop = stop.clone();
                thread::spawn("background", move || {
                    while !stop.wait_timeout_us(10) {
                        let _g = mine.1.lock();
                        crate::kill_point!("holding");
                    }
                })
            })
            .collect();
        hs.into_iter().for_each(|h| h.join().unwrap());
    })
}

#[test]
fn crashes_end_the_program_and_the_run_goes_on() {
    for seed in 0..60 {
        let out = Simulation::new(seed).run(move || {
            let alive = Arc::new(AtomicUsize::new(0));
            let cuts = Arc::new(AtomicUsize::new(0));
            let c = cuts.clone();
            set_crash_hook(move || {
                c.fetch_add(1, Ordering::SeqCst);
                crash();
            });
            for round in 0..6u64 {
                let h = program(&alive);
                match round % 4 {
                    0 => crash_after_steps(Some(1 + random::next_u64() % 300)),
                    1 => crash_at_point(Some(("holding", 3))),
                    2 => {
                        thread::sleep_ms(1);
                        crash();
                    }
                    _ => drop(spawn("suicide", crash)),
                }
                let e = h.join().unwrap_err();
                assert!(is_crash(&*e));
                reap();
                assert_eq!(alive.load(Ordering::SeqCst), 0);
                assert_eq!(crashes(), round + 1);
            }
            let _still_running = program(&alive);
            thread::sleep_ms(1);
            (alive, cuts)
        });
        let out = out.unwrap_or_else(|e| panic!("seed {seed}: {e}"));
        assert_eq!(out.value.0.load(Ordering::SeqCst), 0);
        assert_eq!(
            (out.value.1.load(Ordering::SeqCst), out.report.leaked),
            (7, 0)
        );
    }
}

/// A task that stands still at a place lets all others pass it, by the clock and not by luck.
#[test]
fn tasks_stand_still_at_places() {
    for seed in 0..20 {
        let out = Simulation::new(seed).run(|| {
            let place = "tests.stall";
            let stalls = |one_in| Stall {
                place,
                one_in,
                up_to_us: 1000,
            };
            let passes = || {
                let since = crate::time::now_us();
                yield_point("tests.stall");
                crate::time::now_us() - since
            };
            let us = spawn("free", passes).join().unwrap();
            assert!(us < 20, "{us}");
            stall_at(vec![stalls(1)]);
            let took: u64 = (0..10)
                .map(|_| spawn("stalled", passes).join().unwrap())
                .sum();
            let free = passes();
            stall_at(Vec::new());
            let after = spawn("free again", passes).join().unwrap();
            (took, free, after)
        });
        let (took, free, after) = out.unwrap().value;
        assert!((500..11_000).contains(&took), "seed {seed}: {took}");
        assert!(free < 20 && after < 20, "seed {seed}: {free} {after}");
    }
}

#[test]
fn programs_that_stop_themselves_crash() {
    let out = Simulation::new(3).run(|| {
        let h = spawn("program", || crate::stop::fatal("sync failed"));
        assert!(is_crash(&*h.join().map(|_: ()| ()).unwrap_err()));
        fatal_messages()
    });
    assert_eq!(out.unwrap().value, ["sync failed"]);
}

#[test]
fn destructors_that_wait_for_ever_are_given_up() {
    struct Stubborn(Mutex<bool>, Condvar);
    impl Drop for Stubborn {
        fn drop(&mut self) {
            let mut g = self.0.lock();
            while !*g {
                g = self.1.wait(g);
            }
        }
    }
    let out = Simulation::new(3).run(|| {
        spawn("stubborn", || {
            let _s = Stubborn(Mutex::new(false), Condvar::new());
            thread::sleep_ms(1000);
        });
        thread::sleep_ms(1);
        crash();
        1
    });
    assert_eq!(out.unwrap().report.leaked, 1);
}
