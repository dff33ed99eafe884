//! Many small jobs on all processors.
//!
//! Jobs are handed out in order through one counter; results come back in the order of jobs,
//! so that reports do not depend on timing. Locking: one mutex around the results.

use ferrite_sync::atomic::{AtomicUsize, Ordering};
use ferrite_sync::{thread, Arc, Mutex};

/// Threads beyond this gain nothing: the disk's cache is the limit.
const MOST_THREADS: usize = 8;

/// Runs `work` on every job. The results are in the order of the jobs.
pub(crate) fn in_parallel<J, R>(
    jobs: Vec<J>,
    work: impl Fn(&J) -> R + Send + Sync + 'static,
) -> Vec<R>
where
    J: Send + Sync + 'static,
    R: Send + 'static,
{
    struct Shared<J, R, W> {
        jobs: Vec<J>,
        next: AtomicUsize,
        results: Mutex<Vec<(usize, R)>>,
        work: W,
    }
    let threads = thread::processors().clamp(1, MOST_THREADS);
    let shared = Arc::new(Shared {
        jobs,
        next: AtomicUsize::new(0),
        results: Mutex::new(Vec::new()),
        work,
    });
    let handles: Vec<_> = (0..threads)
        .map(|_| {
            let shared = shared.clone();
            thread::spawn("ferrite-tool", move || loop {
                let at = shared.next.fetch_add(1, Ordering::Relaxed);
                let Some(job) = shared.jobs.get(at) else {
                    return;
                };
                let result = (shared.work)(job);
                shared.results.lock().push((at, result));
            })
        })
        .collect();
    for handle in handles {
        if let Err(panic) = handle.join() {
            std::panic::resume_unwind(panic);
        }
    }
    let mut results = std::mem::take(&mut *shared.results.lock());
    results.sort_unstable_by_key(|(at, _)| *at);
    results.into_iter().map(|(_, result)| result).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_in_the_order_of_jobs() {
        let doubled = in_parallel((0..1000).collect(), |n: &u32| n * 2);
        assert_eq!(doubled, (0..1000).map(|n| n * 2).collect::<Vec<_>>());
        assert!(in_parallel(Vec::<u32>::new(), |n| *n).is_empty());
    }
}
