//! `ferrite-sim`: runs seeds, or replays one.

use ferrite_sim::run::run;

fn main() {
    let seed = std::env::args()
        .nth(1)
        .and_then(|s| s.parse().ok())
        .unwrap_or(1);
    let n = std::env::args()
        .nth(2)
        .and_then(|s| s.parse().ok())
        .unwrap_or(1u64);
    for seed in seed..seed + n {
        let at = std::time::Instant::now();
        let done = run(seed, false);
        println!(
            "seed {seed}: {:?} steps {} hash {:x} leaked {} {:?} {:.2}s",
            done.failure,
            done.report.steps,
            done.report.trace_hash,
            done.report.leaked,
            done.tally,
            at.elapsed().as_secs_f64()
        );
    }
}
