//! Reading ahead: scans after a restart find their leaves in memory, and ask for none that they
//! will not come to.

use crate::common::{check, config, database, insert, key, metric, open, scan, update};
use ferrite_engine::{
    Config, Cursor, Engine, ReadMode, SeekMode, Session, SilentCallbacks, Table, WaitMode,
};
use ferrite_io::sim::{IoOp, SimStorage};
use ferrite_io::Storage;
use ferrite_sync::{thread, Arc};
use ferrite_tree::{ReadAhead, Way};
use ferrite_types::Error;

const ROWS: u64 = 3000;
/// Rows that fit a leaf, about.
const OF_A_LEAF: u64 = 20;

/// A database with a table of some 150 leaves, just started.
fn started() -> (SimStorage, Arc<Engine>, Arc<Table>, Session) {
    let (disk, engine, t, mut s) = database(11);
    for n in 0..ROWS {
        insert(&mut s, &t, n, &[b'x'; 700]).unwrap();
        if n % 100 == 0 {
            s.commit(false).unwrap();
        }
    }
    s.commit(false).unwrap();
    drop((s, t));
    // The tests count what is read after the next start.
    engine.set("warm_start", 0).unwrap();
    engine.close().unwrap();
    drop(engine);
    let engine = open(&disk);
    let t = engine.dict().open_table("d/t").unwrap();
    let s = Session::new(&engine, 0, 2);
    (disk, engine, t, s)
}

/// Each read of pages takes a while from now on, whoever reads: who reads them himself, one after the other, gives those
/// who read ahead the time that they need, on a busy machine, too.
fn read_slowly(disk: &SimStorage) {
    disk.set_hook(Some(Arc::new(|event| {
        if event.op == IoOp::Read && event.name.starts_with("store.") {
            thread::sleep_ms(1);
        }
        Ok(())
    })));
}

fn ahead(engine: &Engine) -> u64 {
    metric(engine, "buffer_pool_read_ahead")
}

/// Goes over `rows` rows, slowly enough for others to read meanwhile; the number of each.
fn go_over(s: &mut Session, cursor: &mut Cursor, up: bool, rows: u64) -> Vec<u64> {
    let mut seen = Vec::new();
    let mut more = if up { cursor.first(s) } else { cursor.last(s) }.map(drop);
    while more.is_ok() {
        let pk = cursor.current().unwrap().pk;
        seen.push(u64::from_be_bytes(pk.try_into().unwrap()));
        if seen.len() as u64 == rows {
            return seen;
        }
        if seen.len() as u64 % OF_A_LEAF == 0 {
            thread::sleep_ms(1);
        }
        more = if up { cursor.next(s) } else { cursor.prev(s) }.map(drop);
    }
    assert_eq!(more, Err(Error::NotFound));
    seen
}

#[test]
fn a_scan_reads_ahead_both_ways_and_with_locks() {
    for mode in [ReadMode::Snapshot, ReadMode::Shared] {
        for up in [true, false] {
            let (disk, engine, t, mut s) = started();
            read_slowly(&disk);
            let mut cursor = Cursor::new(&t, 0, mode, WaitMode::Wait);
            let mut seen = go_over(&mut s, &mut cursor, up, u64::MAX);
            if !up {
                seen.reverse();
            }
            assert!(seen.into_iter().eq(0..ROWS));
            let leaves = ROWS / OF_A_LEAF;
            let used = metric(&engine, "buffer_pool_read_ahead_used");
            assert!(
                used > leaves / 3,
                "{used} pages of {leaves}, up {up} {mode:?}"
            );
            s.commit(false).unwrap();
            check(&engine, &t);
            drop((cursor, s, t));
            engine.close().unwrap();
        }
    }
}

#[test]
fn a_short_scan_reads_nothing_ahead_and_a_range_nothing_beyond_it() {
    let (_disk, engine, t, mut s) = started();
    let mut cursor = Cursor::new(&t, 0, ReadMode::Snapshot, WaitMode::Wait);
    go_over(&mut s, &mut cursor, true, OF_A_LEAF);
    thread::sleep_ms(20);
    assert_eq!(ahead(&engine), 0);
    let range = 10 * OF_A_LEAF;
    cursor.set_bound(Some(&key(range)));
    cursor
        .seek(&mut s, &key(0), SeekMode::AtOrAfter, false)
        .unwrap();
    for _ in 0..range - 1 {
        cursor.next(&mut s).unwrap();
    }
    thread::sleep_ms(20);
    let read = ahead(&engine);
    assert!(read <= 12, "{read} pages for 10 leaves");
    s.commit(false).unwrap();
    engine.set("read_ahead", 0).unwrap();
    cursor.set_bound(None);
    go_over(&mut s, &mut cursor, true, u64::MAX);
    assert_eq!(ahead(&engine), read, "it is switched off");
    drop((cursor, s, t));
    engine.close().unwrap();
}

#[test]
fn rows_of_a_secondary_index_are_read_ahead() {
    let (disk, engine, t, mut s) = started();
    read_slowly(&disk);
    let mut cursor = Cursor::new(&t, 2, ReadMode::Snapshot, WaitMode::Wait);
    let mut more = cursor.first(&mut s).map(drop);
    let mut rows = 0;
    while more.is_ok() {
        let row = cursor.fetch_row(&mut s).unwrap();
        assert_eq!((row.pk, row.payload.len()), (&key(rows)[..], 701));
        rows += 1;
        if rows % OF_A_LEAF == 0 {
            thread::sleep_ms(1);
        }
        more = cursor.next(&mut s).map(drop);
    }
    assert_eq!(rows, ROWS);
    let used = metric(&engine, "buffer_pool_read_ahead_used");
    assert!(used > ROWS / OF_A_LEAF / 4, "{used} pages");
    s.commit(false).unwrap();
    drop((cursor, s, t));
    engine.close().unwrap();
}

/// Rows of a table larger than the pool, changed in an order that only the undo list knows.
#[test]
fn a_rollback_reads_ahead() {
    const ROWS: u64 = 9_000;
    let (disk, engine, t, mut s) = database(12);
    let (old, new) = ([b'x'; 900], [b'y'; 900]);
    for n in 0..ROWS {
        insert(&mut s, &t, n, &old).unwrap();
        if n % 100 == 0 {
            s.commit(false).unwrap();
        }
    }
    s.commit(false).unwrap();
    // A prime that does not divide the number of rows: each is changed once, far from the one before.
    for n in (0..ROWS).map(|n| n * 1009 % ROWS) {
        update(&mut s, &t, n, &old, &new).unwrap();
    }
    let before = metric(&engine, "buffer_pool_read_ahead_used");
    read_slowly(&disk);
    s.rollback().unwrap();
    disk.set_hook(None);
    let used = metric(&engine, "buffer_pool_read_ahead_used") - before;
    assert!(used > ROWS / 10, "{used} pages for {ROWS} rows");
    assert!(scan(&mut s, &t, 0).values().all(|text| **text == old));
    s.commit(false).unwrap();
    check(&engine, &t);
    engine.close().unwrap();
}

/// A pool of fewer frames has a smaller window than leaves are ahead already.
#[test]
fn the_pool_shrinks_under_a_scan() {
    let (disk, engine, t, s) = started();
    drop((s, t));
    engine.close().unwrap();
    drop(engine);
    let config = Config {
        buffer_pool_size_bytes: 64 << 20,
        ..config()
    };
    let storage: Arc<dyn Storage> = Arc::new(disk.boot());
    let engine = Engine::open(config, storage, Arc::new(SilentCallbacks)).unwrap();
    let t = engine.dict().open_table("d/t").unwrap();
    for shrunk_at in 1..ROWS / OF_A_LEAF {
        engine.set("buffer_pool_size", 64 << 20).unwrap();
        let mut ahead = ReadAhead::default();
        for leaf in 0..ROWS / OF_A_LEAF {
            if leaf == shrunk_at {
                engine.set("buffer_pool_size", 4 << 20).unwrap();
            }
            ahead.next_leaf(t.tree(0), &key(leaf * OF_A_LEAF), Way::Up, None);
        }
    }
    check(&engine, &t);
    drop(t);
    engine.close().unwrap();
}
