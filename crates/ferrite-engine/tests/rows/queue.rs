//! A queue: consumers take the first row that nobody has locked, and delete it. There is always
//! one whose transaction is open, so that the deleted rows at the head are locked all the time.

use crate::common::{check, database, delete, insert, metric, wait_until};
use ferrite_engine::{Cursor, Isolation, ReadMode, Session, Table, WaitMode};
use ferrite_sync::Arc;

const TEXT: &[u8] = b"job";

/// The first row that is free, taken out.
fn take(s: &mut Session, t: &Arc<Table>) -> u64 {
    s.begin_statement(Isolation::RepeatableRead);
    let mut cursor = Cursor::new(t, 0, ReadMode::Exclusive, WaitMode::SkipLocked);
    let row = cursor.first(s).unwrap();
    let n = u64::from_be_bytes(row.key.try_into().unwrap());
    delete(s, t, n, TEXT).unwrap();
    n
}

/// What consumers pass does not grow with what has gone through the queue: purge takes the
/// deleted rows out although some consumer has locked each of them whenever it looks.
#[test]
fn the_head_of_a_queue_does_not_grow() {
    const JOBS: u64 = 100;
    let (_disk, engine, t, mut s) = database(81);
    for n in 1..=JOBS {
        insert(&mut s, &t, n, TEXT).unwrap();
    }
    s.commit(false).unwrap();
    let mut consumers = [Session::new(&engine, 0, 2), Session::new(&engine, 0, 3)];
    take(&mut consumers[1], &t);
    let mut most = 0;
    for n in 2..=JOBS {
        // Purge comes to what one has left when the other holds it again.
        engine.set("purge_paused", 1).unwrap();
        let [a, b] = &mut consumers;
        assert_eq!(take(a, &t), n);
        b.commit(false).unwrap();
        consumers.swap(0, 1);
        // Its next look at the head locks what it has just left.
        let mut cursor = Cursor::new(&t, 0, ReadMode::Exclusive, WaitMode::SkipLocked);
        consumers[0].begin_statement(Isolation::RepeatableRead);
        let more = cursor.first(&mut consumers[0]).is_ok();
        assert_eq!(more, n < JOBS);
        engine.set("purge_paused", 0).unwrap();
        wait_until("the end of purge", || {
            metric(&engine, "history_list_length") == 0
        });
        let entries = engine.locks().stats().keys;
        most = most.max(entries);
    }
    assert!(most <= 16, "{most} keys are locked");
    for c in &mut consumers {
        c.commit(false).unwrap();
    }
    drop((consumers, s));
    check(&engine, &t);
    engine.close().unwrap();
}
