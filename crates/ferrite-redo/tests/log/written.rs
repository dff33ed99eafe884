//! Who only wants records handed to the system does not wait for a sync.

use crate::common::*;
use ferrite_io::sim::SimStorage;
use ferrite_sync::stop::{self, Action};
use ferrite_sync::thread;
use ferrite_types::Lsn;

const SYNC: &str = "redo.before_sync";

#[test]
fn writing_goes_on_while_the_device_syncs() {
    let _turn = turn();
    let disk = SimStorage::new(1);
    let log = create(boot(&disk), Lsn(0), small()).expect("create");
    let first = put(&log, 0, 300).end;
    stop::arm(SYNC, Action::Block);
    let leader = {
        let log = log.clone();
        thread::spawn("leader", move || log.flush_to(first))
    };
    assert!(stop::wait_hits(SYNC, 1, 10_000), "nobody syncs");
    // More than a segment of it, so that the next file begins meanwhile, too.
    let writer = {
        let log = log.clone();
        thread::spawn("writer", move || {
            for n in 1..400 {
                log.write_to(put(&log, n, 300).end);
            }
        })
    };
    for _ in 0..1000 {
        if writer.is_finished() {
            break;
        }
        thread::sleep_ms(10);
    }
    let waited = !writer.is_finished();
    let durable = log.durable_lsn();
    stop::release(SYNC);
    stop::disarm_all();
    leader.join().expect("leader");
    writer.join().expect("writer");
    assert!(!waited, "the writer waited for a sync");
    assert_eq!(durable, Lsn(0), "durable before its sync");
    assert!(log.durable_lsn() >= first && log.durable_lsn() < log.current_lsn());
    log.flush_to(Lsn::MAX);
    assert_eq!(log.durable_lsn(), log.current_lsn());
    drop(log);
    let (_, found) = reopen(boot(&disk), Lsn(0), small()).expect("open");
    assert_eq!(found.len(), 400);
}
