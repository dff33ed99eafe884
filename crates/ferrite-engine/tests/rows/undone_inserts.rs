//! The rollback of many inserts: the leaves they were on go as they get empty.

use crate::common::{check, database, insert};
use ferrite_engine::{Cursor, Isolation, ReadMode, WaitMode};
use ferrite_sync::thread;
use ferrite_types::Error;

/// With three indexes, on more leaves than the pool has frames.
const ROWS: u64 = 9_000;
const TEXT: [u8; 900] = [b'x'; 900];

/// The inserts split a gap that the transaction has locked, so each of their entries is locked. When
/// one goes, its locks move to the next key that is left: to look for that across all leaves that are
/// empty by now needs all of them in memory at once.
#[test]
fn locked_entries_on_more_leaves_than_there_are_frames_are_rolled_back() {
    let (_disk, engine, t, mut s) = database(61);
    s.begin_statement(Isolation::RepeatableRead);
    let mut all = Cursor::new(&t, 0, ReadMode::Exclusive, WaitMode::Wait);
    assert_eq!(all.first(&mut s).map(|_| ()), Err(Error::NotFound));
    for n in 0..ROWS {
        insert(&mut s, &t, n, &TEXT).unwrap();
    }
    let rolling = thread::spawn("rollback", move || s.rollback());
    for _ in 0..1200 {
        if rolling.is_finished() {
            break;
        }
        thread::sleep_ms(50);
    }
    assert!(rolling.is_finished(), "it goes round and round");
    rolling.join().unwrap().unwrap();
    check(&engine, &t);
    engine.close().unwrap();
}
