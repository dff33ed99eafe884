//! Parts of the engine's memory, against what the allocator has given out.

mod common;

use common::{database, delete, insert, metric, wait_until};
use ferrite_engine::{Engine, Session};
use ferrite_sync::memory::{heap_bytes, Counted};

#[global_allocator]
static COUNTED: Counted = Counted;

const ROWS: u64 = 20_000;
const TEXT: [u8; 10] = [b'x'; 10];

fn part(engine: &Engine, name: &str) -> u64 {
    let parts = engine.memory();
    let found = parts.iter().find(|p| p.name == name);
    found.unwrap_or_else(|| panic!("{name} in {parts:?}")).bytes
}

/// The heap's bytes once background threads have given back what they
/// worked with: a checkpoint and purge hold buffers of a mebibyte while at it.
fn settled() -> u64 {
    let mut last = heap_bytes();
    let mut same = 0;
    wait_until("a heap that stays as it is", || {
        std::thread::sleep(std::time::Duration::from_millis(50));
        let now = heap_bytes();
        same = if now == last { same + 1 } else { 0 };
        last = now;
        same == 4
    });
    last
}

#[test]
fn parts_add_up_and_tell_what_deleted_rows_take() {
    let (_disk, engine, t, mut s) = database(71);
    for n in 0..ROWS {
        insert(&mut s, &t, n, &TEXT).unwrap();
    }
    s.commit(false).unwrap();
    let mut old = Session::new(&engine, 0, 2);
    old.open_snapshot();
    let sum = engine.memory().iter().map(|p| p.bytes).sum::<u64>();
    let all = metric(&engine, "memory_bytes");
    assert!(sum.abs_diff(all) < all / 20, "{sum} of {all}");
    for n in 0..ROWS {
        delete(&mut s, &t, n, &TEXT).unwrap();
    }
    s.commit(false).unwrap();
    wait_until("the end of purge", || {
        metric(&engine, "history_list_length") == 0
            && metric(&engine, "delete_archive_entries") > ROWS * 2
    });
    let with = settled();
    let told = part(&engine, "deleted rows");
    drop(old);
    wait_until("an empty archive", || {
        metric(&engine, "delete_archive_entries") == 0
    });
    let taken = with.saturating_sub(settled());
    assert_eq!(part(&engine, "deleted rows"), 0);
    assert!(
        told.abs_diff(taken) < taken / 4,
        "{told} told, {taken} taken"
    );
    drop((s, t));
    engine.close().unwrap();
}
