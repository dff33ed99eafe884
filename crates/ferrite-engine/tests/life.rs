//! The engine on the simulated disk: rows, versions, rollback, restart, crash.

use ferrite_engine::{
    Callbacks, Config, Cursor, DupInfo, Engine, Entry, IndexSpec, Isolation, LogLevel, ReadMode,
    SeekMode, Session, Table, TableSpec, WaitMode, Xid,
};
use ferrite_io::sim::SimStorage;
use ferrite_io::Storage;
use ferrite_sync::random::Rng;
use ferrite_sync::Arc;
use ferrite_types::{Error, IndexId, PageId, TableId};
use std::collections::BTreeMap;

/// A server whose machine may lose power: nothing is fatal to the test itself.
struct Quiet;

impl Callbacks for Quiet {
    fn log(&self, _level: LogLevel, _text: &str) {}
    fn fatal(&self, _text: &str) {}
}

fn config() -> Config {
    Config {
        buffer_pool_size_bytes: 4 << 20,
        log_budget_bytes: 4 << 20,
        log_segment_bytes: 1 << 20,
        log_ring_bytes: 4 << 20,
        history_ring_bytes: 1 << 20,
        direct_io: false,
        ..Config::default()
    }
}

fn open(disk: &SimStorage) -> Arc<Engine> {
    let storage: Arc<dyn Storage> = Arc::new(disk.boot());
    Engine::open(config(), storage, Arc::new(Quiet)).unwrap()
}

fn index(name: &str, unique: bool) -> IndexSpec {
    IndexSpec {
        name: name.into(),
        unique,
        key_parts: 1,
        id: IndexId(0),
        root: PageId::NONE,
    }
}

fn create(engine: &Engine, name: &str) -> Arc<Table> {
    let spec = TableSpec {
        id: TableId(0),
        name: name.into(),
        temporary: false,
        hidden_row_id: false,
        no_rollback: false,
        compression: 0,
        created_unix_s: 0,
        indexes: vec![index("PRIMARY", true), index("k", false), index("u", true)],
        definition: b"definition".to_vec(),
        rest: None,
    };
    engine.dict().create_table(spec, 1).unwrap()
}

fn key(n: u64) -> [u8; 8] {
    n.to_be_bytes()
}

/// A row: payload without overflow references, `k` = payload's length, `u` = the number.
fn insert(s: &mut Session, t: &Arc<Table>, n: u64, text: &[u8]) -> Result<(), Error> {
    let mut payload = vec![0u8];
    payload.extend_from_slice(text);
    let (k, u) = (key(text.len() as u64), key(n * 7));
    let entries = entries(&k, &u);
    s.insert_row(
        t,
        Some(&key(n)),
        &payload,
        &entries,
        false,
        &mut DupInfo::default(),
    )
    .map(|_| ())
}

fn entries<'a>(k: &'a [u8], u: &'a [u8]) -> [Entry<'a>; 2] {
    let entry = |index_no, check_unique, key| Entry {
        index_no,
        check_unique,
        key,
        payload: b"",
    };
    [entry(1, false, k), entry(2, true, u)]
}

fn update(s: &mut Session, t: &Arc<Table>, n: u64, old: &[u8], text: &[u8]) -> Result<(), Error> {
    let mut payload = vec![0u8];
    payload.extend_from_slice(text);
    let (k_old, k_new) = (key(old.len() as u64), key(text.len() as u64));
    let u = key(n * 7);
    let removed = entries(&k_old, &u);
    let added = entries(&k_new, &u);
    s.update_row(
        t,
        &key(n),
        &key(n),
        &payload,
        &removed[..1],
        &added[..1],
        &mut DupInfo::default(),
    )
}

fn delete(s: &mut Session, t: &Arc<Table>, n: u64, old: &[u8]) -> Result<(), Error> {
    let (k, u) = (key(old.len() as u64), key(n * 7));
    s.delete_row(t, &key(n), &entries(&k, &u))
}

fn scan(s: &mut Session, t: &Arc<Table>, index_no: usize) -> BTreeMap<u64, Vec<u8>> {
    let mut cursor = Cursor::new(t, index_no, ReadMode::Snapshot, WaitMode::Wait);
    let mut rows = BTreeMap::new();
    let mut more = cursor.first(s).map(|_| ());
    while more.is_ok() {
        let pk = u64::from_be_bytes(cursor.current().unwrap().pk.try_into().unwrap());
        let text = cursor.fetch_row(s).unwrap().payload[1..].to_vec();
        assert!(rows.insert(pk, text).is_none(), "row {pk} twice");
        more = cursor.next(s).map(|_| ());
    }
    assert_eq!(more, Err(Error::NotFound));
    rows
}

fn check(engine: &Arc<Engine>, t: &Arc<Table>) {
    let mut s = Session::new(engine, 0, 0);
    s.check_table(t, false, &mut |line| panic!("{line}"))
        .unwrap();
}

#[test]
fn rows_survive_a_clean_restart() {
    let disk = SimStorage::new(1);
    let engine = open(&disk);
    let t = create(&engine, "d/t");
    let mut s = Session::new(&engine, 0, 1);
    s.begin_statement(Isolation::RepeatableRead);
    for n in 0..3000 {
        insert(&mut s, &t, n, format!("row {n}").as_bytes()).unwrap();
    }
    s.commit(false).unwrap();
    assert_eq!(insert(&mut s, &t, 5, b"again"), Err(Error::Duplicate));
    s.rollback().unwrap();
    let before = scan(&mut s, &t, 0);
    assert_eq!(before.len(), 3000);
    assert_eq!(scan(&mut s, &t, 1), before);
    assert_eq!(scan(&mut s, &t, 2), before);
    drop(s);
    check(&engine, &t);
    engine.close().unwrap();
    let engine = open(&disk);
    let t = engine.dict().open_table("d/t").unwrap();
    assert_eq!(t.spec.definition, b"definition");
    let mut s = Session::new(&engine, 0, 1);
    for index_no in 0..3 {
        assert_eq!(scan(&mut s, &t, index_no), before);
    }
    drop(s);
    check(&engine, &t);
    engine.close().unwrap();
}

#[test]
fn snapshots_read_what_they_saw() {
    let disk = SimStorage::new(2);
    let engine = open(&disk);
    let t = create(&engine, "d/t");
    let mut w = Session::new(&engine, 0, 1);
    let mut model: BTreeMap<u64, Vec<u8>> = BTreeMap::new();
    let mut rng = Rng::new(7);
    let mut old: Vec<(Session, BTreeMap<u64, Vec<u8>>)> = Vec::new();
    for round in 0..40 {
        for _ in 0..60 {
            let n = rng.below(200);
            let text = vec![b'x'; rng.below(300) as usize];
            match model.get(&n).cloned() {
                None => {
                    insert(&mut w, &t, n, &text).unwrap();
                    model.insert(n, text);
                }
                Some(was) if rng.chance(1, 3) => {
                    delete(&mut w, &t, n, &was).unwrap();
                    model.remove(&n);
                }
                Some(was) if was.len() != text.len() => {
                    update(&mut w, &t, n, &was, &text).unwrap();
                    model.insert(n, text);
                }
                Some(_) => {}
            }
            if rng.chance(1, 4) {
                w.commit(false).unwrap();
            }
        }
        w.commit(false).unwrap();
        let mut s = Session::new(&engine, 0, 100 + round);
        s.open_snapshot();
        old.push((s, model.clone()));
        if old.len() > 6 {
            let at = rng.below(old.len() as u64) as usize;
            let (mut s, seen) = old.swap_remove(at);
            for index_no in 0..3 {
                assert_eq!(
                    scan(&mut s, &t, index_no),
                    seen,
                    "round {round} index {index_no}"
                );
            }
        }
    }
    for (mut s, seen) in old {
        assert_eq!(scan(&mut s, &t, 1), seen);
    }
    drop(w);
    check(&engine, &t);
    engine.close().unwrap();
}

/// The row this transaction sees is its own although the snapshot is older than the entry.
#[test]
fn entries_belong_to_the_row_that_is_seen() {
    let disk = SimStorage::new(6);
    let engine = open(&disk);
    let t = create(&engine, "d/t");
    let mut other = Session::new(&engine, 0, 1);
    insert(&mut other, &t, 6, b"six").unwrap();
    insert(&mut other, &t, 7, b"sev").unwrap();
    other.commit(false).unwrap();
    let mut s = Session::new(&engine, 0, 2);
    s.open_snapshot();
    update(&mut other, &t, 6, b"six", b"longer").unwrap();
    other.commit(false).unwrap();
    let payload = b"\0LONGER";
    let mut dup = DupInfo::default();
    s.update_row(&t, &key(6), &key(6), payload, &[], &[], &mut dup)
        .unwrap();
    let expected = BTreeMap::from([(6, b"LONGER".to_vec()), (7, b"sev".to_vec())]);
    assert_eq!(scan(&mut s, &t, 1), expected);
    assert_eq!(scan(&mut s, &t, 0), expected);
    let mut c = Cursor::new(&t, 1, ReadMode::Snapshot, WaitMode::Wait);
    let row = c.seek(&mut s, &key(6), SeekMode::Exact, false).unwrap();
    assert_eq!(row.pk, key(6));
    s.rollback().unwrap();
    drop((s, other));
    engine.close().unwrap();
}

#[test]
fn rollback_and_savepoints_leave_no_trace() {
    let disk = SimStorage::new(3);
    let engine = open(&disk);
    let t = create(&engine, "d/t");
    let mut s = Session::new(&engine, 0, 1);
    for n in 0..100 {
        insert(&mut s, &t, n, b"first").unwrap();
    }
    s.commit(false).unwrap();
    let before = scan(&mut s, &t, 0);
    s.commit(false).unwrap();
    for n in 0..100 {
        update(&mut s, &t, n, b"first", b"second!").unwrap();
    }
    let save = s.undo_position();
    let middle = scan(&mut s, &t, 0);
    for n in 0..50 {
        update(&mut s, &t, n, b"second!", b"and a third").unwrap();
    }
    for n in 50..100 {
        delete(&mut s, &t, n, b"second!").unwrap();
        insert(&mut s, &t, n, b"new").unwrap();
    }
    s.rollback_to(save).unwrap();
    assert_eq!(scan(&mut s, &t, 0), middle);
    assert_eq!(scan(&mut s, &t, 1), middle);
    s.rollback().unwrap();
    assert_eq!(scan(&mut s, &t, 0), before);
    assert_eq!(scan(&mut s, &t, 1), before);
    drop(s);
    check(&engine, &t);
    engine.close().unwrap();
}

#[test]
fn large_values_come_and_go() {
    let disk = SimStorage::new(4);
    let engine = open(&disk);
    let t = create(&engine, "d/t");
    let mut s = Session::new(&engine, 0, 1);
    let value: Vec<u8> = (0..200_000u32).map(|i| (i * 31) as u8).collect();
    let store = |s: &mut Session, value: &[u8]| {
        let r = s.write_overflow(&t, value).unwrap();
        let mut payload = vec![1u8];
        payload.extend_from_slice(&r);
        (payload, r)
    };
    let (payload, r) = store(&mut s, &value);
    s.insert_row(
        &t,
        Some(&key(1)),
        &payload,
        &[],
        false,
        &mut DupInfo::default(),
    )
    .unwrap();
    s.commit(false).unwrap();
    let mut out = vec![0; value.len()];
    engine.read_overflow(&r, &mut out).unwrap();
    assert_eq!(out, value);
    let pages = t.stats().data_bytes;
    let (_, _) = store(&mut s, &value);
    assert!(t.stats().data_bytes > pages);
    s.rollback().unwrap();
    assert_eq!(t.stats().data_bytes, pages);
    s.update_row(
        &t,
        &key(1),
        &key(1),
        &[0],
        &[],
        &[],
        &mut DupInfo::default(),
    )
    .unwrap();
    s.commit(false).unwrap();
    for _ in 0..200 {
        if t.stats().data_bytes <= 2 * 16384 {
            break;
        }
        ferrite_sync::thread::sleep_ms(10);
    }
    assert!(
        t.stats().data_bytes <= 2 * 16384,
        "the old value was not freed"
    );
    drop(s);
    check(&engine, &t);
    engine.close().unwrap();
}

#[test]
fn crashes_keep_what_was_acknowledged() {
    for seed in 0..12 {
        crash_life(seed);
    }
}

fn crash_life(seed: u64) {
    let disk = SimStorage::new(seed);
    let mut rng = Rng::new(seed);
    let engine = open(&disk);
    create(&engine, "d/t");
    let mut committed: BTreeMap<u64, Vec<u8>> = BTreeMap::new();
    let mut engine = Some(engine);
    for life in 0..4 {
        let e = engine.take().unwrap();
        let t = e.dict().open_table("d/t").unwrap();
        let mut s = Session::new(&e, 0, 1);
        assert_eq!(scan(&mut s, &t, 0), committed, "seed {seed} life {life}");
        assert_eq!(scan(&mut s, &t, 1), committed, "seed {seed} life {life}");
        s.commit(false).unwrap();
        check(&e, &t);
        for _ in 0..30 {
            let mut model = committed.clone();
            for _ in 0..rng.below(40) {
                change(&mut s, &t, &mut model, &mut rng);
            }
            match rng.below(10) {
                0 | 1 => s.rollback().unwrap(),
                2 => {
                    e.checkpoint().unwrap();
                    s.commit(false).unwrap();
                    committed = model;
                }
                _ => {
                    s.commit(false).unwrap();
                    committed = model;
                }
            }
        }
        // An open transaction at the crash must leave nothing.
        let mut lost = committed.clone();
        for _ in 0..100 {
            change(&mut s, &t, &mut lost, &mut rng);
        }
        if rng.chance(1, 2) {
            e.checkpoint().unwrap();
        }
        disk.crash(&mut rng);
        std::mem::forget(s);
        give_up(&e);
        drop(e);
        engine = Some(open(&disk));
    }
    let e = engine.unwrap();
    let t = e.dict().open_table("d/t").unwrap();
    let mut s = Session::new(&e, 0, 1);
    assert_eq!(scan(&mut s, &t, 0), committed, "seed {seed}");
    drop(s);
    e.close().unwrap();
}

/// The machine is off: the log's threads notice and die.
fn give_up(engine: &Arc<Engine>) {
    let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| engine.abandon()));
}

fn change(s: &mut Session, t: &Arc<Table>, model: &mut BTreeMap<u64, Vec<u8>>, rng: &mut Rng) {
    let n = rng.below(500);
    let text = vec![b'a' + rng.below(26) as u8; 1 + rng.below(600) as usize];
    match model.get(&n).cloned() {
        None => {
            insert(s, t, n, &text).unwrap();
            model.insert(n, text);
        }
        Some(was) if rng.chance(1, 3) => {
            delete(s, t, n, &was).unwrap();
            model.remove(&n);
        }
        Some(was) if was.len() != text.len() => {
            update(s, t, n, &was, &text).unwrap();
            model.insert(n, text);
        }
        Some(_) => {}
    }
}

#[test]
fn prepared_transactions_wait_for_word() {
    for commit in [false, true] {
        let disk = SimStorage::new(9);
        let mut rng = Rng::new(9);
        let engine = open(&disk);
        let t = create(&engine, "d/t");
        let mut s = Session::new(&engine, 0, 1);
        insert(&mut s, &t, 1, b"old").unwrap();
        s.commit(false).unwrap();
        update(&mut s, &t, 1, b"old", b"newer").unwrap();
        insert(&mut s, &t, 2, b"two").unwrap();
        let xid = Xid {
            format_id: 1,
            gtrid_len: 3,
            data: b"gtrbq".to_vec(),
        };
        s.prepare(&xid).unwrap();
        disk.crash(&mut rng);
        std::mem::forget(s);
        give_up(&engine);
        drop((t, engine));
        let engine = open(&disk);
        let t = engine.dict().open_table("d/t").unwrap();
        let mut s = Session::new(&engine, 0, 1);
        assert_eq!(scan(&mut s, &t, 0), BTreeMap::from([(1, b"old".to_vec())]));
        s.commit(false).unwrap();
        s.set_lock_wait_timeout_ms(10);
        assert_eq!(
            update(&mut s, &t, 1, b"old", b"xx"),
            Err(Error::LockTimeout)
        );
        s.rollback().unwrap();
        assert_eq!(engine.prepared_xids(), vec![xid.clone()]);
        let expected = if commit {
            engine.commit_by_xid(&xid).unwrap();
            BTreeMap::from([(1, b"newer".to_vec()), (2, b"two".to_vec())])
        } else {
            engine.rollback_by_xid(&xid).unwrap();
            BTreeMap::from([(1, b"old".to_vec())])
        };
        assert_eq!(engine.commit_by_xid(&xid), Err(Error::NotFound));
        assert_eq!(scan(&mut s, &t, 0), expected);
        drop(s);
        check(&engine, &t);
        engine.close().unwrap();
    }
}

#[test]
fn cursors_seek_and_turn() {
    let disk = SimStorage::new(5);
    let engine = open(&disk);
    let t = create(&engine, "d/t");
    let mut s = Session::new(&engine, 0, 1);
    for n in (0..2000).step_by(2) {
        insert(&mut s, &t, n, b"v").unwrap();
    }
    s.commit(false).unwrap();
    let number = |row: ferrite_engine::Row<'_>| u64::from_be_bytes(row.pk.try_into().unwrap());
    for mode in [ReadMode::Snapshot, ReadMode::Shared, ReadMode::Exclusive] {
        let mut c = Cursor::new(&t, 0, mode, WaitMode::Wait);
        let mut seek = |k: u64, m| c.seek(&mut s, &key(k), m, false).map(number);
        assert_eq!(seek(100, SeekMode::Exact), Ok(100));
        assert_eq!(seek(101, SeekMode::Exact), Err(Error::NotFound));
        assert_eq!(seek(101, SeekMode::AtOrAfter), Ok(102));
        assert_eq!(seek(100, SeekMode::After), Ok(102));
        assert_eq!(seek(101, SeekMode::AtOrBefore), Ok(100));
        assert_eq!(seek(100, SeekMode::AtOrBefore), Ok(100));
        assert_eq!(seek(100, SeekMode::Before), Ok(98));
        assert_eq!(seek(0, SeekMode::Before), Err(Error::NotFound));
        assert_eq!(seek(1998, SeekMode::After), Err(Error::NotFound));
        assert_eq!(seek(1000, SeekMode::LastExact), Ok(1000));
        assert_eq!(c.next(&mut s).map(number), Ok(1002));
        assert_eq!(c.next(&mut s).map(number), Ok(1004));
        assert_eq!(c.prev(&mut s).map(number), Ok(1002));
        assert_eq!(c.prev(&mut s).map(number), Ok(1000));
        assert_eq!(c.next(&mut s).map(number), Ok(1002));
        assert_eq!(c.last(&mut s).map(number), Ok(1998));
        let mut n = 1998;
        while let Ok(row) = c.prev(&mut s) {
            n -= 2;
            assert_eq!(number(row), n);
        }
        assert_eq!(n, 0);
        s.rollback().unwrap();
    }
    drop(s);
    engine.close().unwrap();
}

/// The log's age stays within its budget under a load larger than the pool.
#[test]
fn checkpoints_keep_up() {
    let disk = SimStorage::new(8);
    let engine = open(&disk);
    let t = create(&engine, "d/t");
    let mut s = Session::new(&engine, 0, 1);
    for n in 0..12_000u64 {
        insert(&mut s, &t, n, &[b'x'; 180]).unwrap();
        if n % 1000 == 0 {
            s.commit(false).unwrap();
        }
    }
    s.commit(false).unwrap();
    let figure = |name: &str| {
        let all = engine.metrics();
        all.iter().find(|m| m.name == name).unwrap().value
    };
    for _ in 0..100 {
        if figure("checkpoint_age") < config().log_budget_bytes / 2 {
            break;
        }
        ferrite_sync::thread::sleep_ms(50);
    }
    let age = figure("checkpoint_age");
    assert!(
        age < config().log_budget_bytes / 2,
        "the log's age stays at {age}"
    );
    drop(s);
    check(&engine, &t);
    engine.close().unwrap();
}

/// The log tells a change of a record as a difference to its bytes, so recovery must not give
/// records other bytes without logging it.
#[test]
fn a_decided_transaction_survives_the_next_crash() {
    for commit in [false, true] {
        let disk = SimStorage::new(9);
        let mut rng = Rng::new(9);
        let engine = open(&disk);
        let t = create(&engine, "d/t");
        let mut s = Session::new(&engine, 0, 1);
        for n in 0..40 {
            insert(&mut s, &t, n, b"x").unwrap();
        }
        s.commit(false).unwrap();
        let mut reader = Session::new(&engine, 0, 9);
        reader.open_snapshot();
        // Version addresses of this life grow past what the next life begins with.
        let (mut old, mut new) = (b"x".to_vec(), vec![b'y'; 300]);
        for _ in 0..100 {
            for n in 0..40 {
                update(&mut s, &t, n, &old, &new).unwrap();
            }
            s.commit(false).unwrap();
            std::mem::swap(&mut old, &mut new);
        }
        let before = scan(&mut s, &t, 0);
        s.commit(false).unwrap();
        for n in 0..40 {
            update(&mut s, &t, n, &old, &new).unwrap();
        }
        let after = scan(&mut s, &t, 0);
        let xid = Xid {
            format_id: 1,
            gtrid_len: 1,
            data: b"g".to_vec(),
        };
        s.prepare(&xid).unwrap();
        disk.crash(&mut rng);
        std::mem::forget((s, reader));
        give_up(&engine);
        drop((t, engine));

        let engine = open(&disk);
        if commit {
            engine.commit_by_xid(&xid).unwrap();
        } else {
            engine.rollback_by_xid(&xid).unwrap();
        }
        disk.crash(&mut rng);
        give_up(&engine);
        drop(engine);

        let engine = open(&disk);
        let t = engine.dict().open_table("d/t").unwrap();
        let mut s = Session::new(&engine, 0, 1);
        let expected = if commit { after } else { before };
        for index_no in 0..3 {
            assert_eq!(scan(&mut s, &t, index_no), expected, "index {index_no}");
        }
        drop(s);
        check(&engine, &t);
        engine.close().unwrap();
    }
}

fn metric(engine: &Engine, name: &str) -> u64 {
    let all = engine.metrics();
    all.iter().find(|m| m.name == name).expect(name).value
}

fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    for _ in 0..2000 {
        if done() {
            return;
        }
        ferrite_sync::thread::sleep_ms(5);
    }
    panic!("{what} does not come");
}

fn scan_back(s: &mut Session, t: &Arc<Table>, index_no: usize) -> BTreeMap<u64, Vec<u8>> {
    let mut cursor = Cursor::new(t, index_no, ReadMode::Snapshot, WaitMode::Wait);
    let mut rows = BTreeMap::new();
    let mut before: Option<Vec<u8>> = None;
    let mut more = cursor.last(s).map(|_| ());
    while more.is_ok() {
        let row = cursor.current().unwrap();
        let key = row.key.to_vec();
        assert!(before.is_none_or(|b| b > key), "out of order");
        before = Some(key);
        let pk = u64::from_be_bytes(row.pk.try_into().unwrap());
        let text = cursor.fetch_row(s).unwrap().payload[1..].to_vec();
        assert!(rows.insert(pk, text).is_none(), "row {pk} twice");
        more = cursor.prev(s).map(|_| ());
    }
    rows
}

/// What old snapshots alone need moves out of the tree, and they go on reading it.
#[test]
fn old_snapshots_read_the_graveyard() {
    let disk = SimStorage::new(13);
    let engine = open(&disk);
    let t = create(&engine, "d/t");
    let mut w = Session::new(&engine, 0, 1);
    let mut model: BTreeMap<u64, Vec<u8>> = BTreeMap::new();
    let mut rng = Rng::new(13);
    for n in 0..600 {
        let text = vec![b'a'; rng.below(60) as usize];
        insert(&mut w, &t, n, &text).unwrap();
        model.insert(n, text);
    }
    w.commit(false).unwrap();
    let mut old: Vec<(Session, BTreeMap<u64, Vec<u8>>)> = Vec::new();
    for round in 0..6 {
        let mut s = Session::new(&engine, 0, 10 + round);
        s.open_snapshot();
        old.push((s, model.clone()));
        for _ in 0..700 {
            let n = rng.below(600);
            match model.remove(&n) {
                Some(was) => delete(&mut w, &t, n, &was).unwrap(),
                None => {
                    let text = vec![b'b'; rng.below(60) as usize];
                    insert(&mut w, &t, n, &text).unwrap();
                    model.insert(n, text);
                }
            }
            if rng.chance(1, 5) {
                w.commit(false).unwrap();
            }
        }
        w.commit(false).unwrap();
        wait_until("the end of cleaning up", || {
            metric(&engine, "history_list_length") == 0
        });
        for (s, seen) in &mut old {
            for index_no in 0..3 {
                assert_eq!(
                    scan(s, &t, index_no),
                    *seen,
                    "round {round} index {index_no}"
                );
                assert_eq!(
                    scan_back(s, &t, index_no),
                    *seen,
                    "round {round} index {index_no}"
                );
            }
            let mut c = Cursor::new(&t, 0, ReadMode::Snapshot, WaitMode::Wait);
            for n in 0..600 {
                let row = c.get(s, &key(n)).map(|row| row.payload[1..].to_vec());
                assert_eq!(row.ok(), seen.get(&n).cloned(), "row {n}");
            }
        }
        let mut now = Session::new(&engine, 0, 99);
        assert_eq!(scan(&mut now, &t, 2), model);
    }
    let graves = metric(&engine, "graveyard_entries");
    assert!(graves > 100);
    let held: u64 = engine.snapshot_rows().iter().map(|row| row.held_rows).sum();
    assert!(held >= graves, "{held} of {graves} are said to be held");
    let leaves = t.index_pages(0);
    assert!(leaves < 12, "{leaves} pages for 600 rows");
    drop(old);
    wait_until("an empty graveyard", || {
        metric(&engine, "graveyard_entries") == 0
    });
    drop(w);
    check(&engine, &t);
    engine.close().unwrap();
}

/// A row that another deleted after the snapshot, and that this transaction has brought anew: it
/// sees its own, not the grave.
#[test]
fn a_row_brought_anew_hides_its_grave() {
    let disk = SimStorage::new(15);
    let engine = open(&disk);
    let t = create(&engine, "d/t");
    let mut other = Session::new(&engine, 0, 1);
    insert(&mut other, &t, 1, b"old").unwrap();
    insert(&mut other, &t, 2, b"stays").unwrap();
    other.commit(false).unwrap();
    let mut s = Session::new(&engine, 0, 2);
    s.open_snapshot();
    delete(&mut other, &t, 1, b"old").unwrap();
    other.commit(false).unwrap();
    wait_until("the burial", || metric(&engine, "graveyard_entries") == 3);
    let stays = (2, b"stays".to_vec());
    let seen_as = |s: &mut Session, first: Option<&[u8]>| {
        let mut expected = BTreeMap::from([stays.clone()]);
        expected.extend(first.map(|text| (1, text.to_vec())));
        for index_no in 0..3 {
            assert_eq!(scan(s, &t, index_no), expected, "index {index_no}");
            assert_eq!(scan_back(s, &t, index_no), expected, "index {index_no}");
        }
        let mut c = Cursor::new(&t, 0, ReadMode::Snapshot, WaitMode::Wait);
        let row = c.get(s, &key(1)).map(|row| row.payload[1..].to_vec());
        assert_eq!(row.ok().as_deref(), first);
    };
    seen_as(&mut s, Some(b"old"));
    let save = s.undo_position();
    insert(&mut s, &t, 1, b"anew!").unwrap();
    seen_as(&mut s, Some(b"anew!"));
    delete(&mut s, &t, 1, b"anew!").unwrap();
    seen_as(&mut s, None);
    s.rollback_to(save).unwrap();
    seen_as(&mut s, Some(b"old"));
    s.rollback().unwrap();
    drop((s, other));
    check(&engine, &t);
    engine.close().unwrap();
}

#[test]
fn a_filled_table_is_like_any_other() {
    let disk = SimStorage::new(12);
    let engine = open(&disk);
    let t = create(&engine, "d/t");
    let mut s = Session::new(&engine, 0, 1);
    let mut model = BTreeMap::new();
    s.begin_load(&t);
    for n in 0..4000u64 {
        let n = n * 7919 % 4001;
        let text = vec![b'r'; (n % 90) as usize];
        insert(&mut s, &t, n, &text).unwrap();
        model.insert(n, text);
    }
    let again = model.keys().next().copied().unwrap();
    assert_eq!(insert(&mut s, &t, again, b"twice"), Err(Error::Duplicate));
    assert!(!s.has_changes());
    s.end_load(&t).unwrap();
    check(&engine, &t);
    disk.crash(&mut Rng::new(3));
    std::mem::forget(s);
    give_up(&engine);
    drop((t, engine));
    let engine = open(&disk);
    let t = engine.dict().open_table("d/t").unwrap();
    let mut s = Session::new(&engine, 0, 1);
    for index_no in 0..3 {
        assert_eq!(scan(&mut s, &t, index_no), model, "index {index_no}");
    }
    drop(s);
    check(&engine, &t);
    engine.close().unwrap();
}

/// A transaction whose undo is spilled; the database opens before it is rolled back.
#[test]
fn a_large_transaction_is_rolled_back_after_the_restart() {
    const ROWS: u64 = 40_000;
    let disk = SimStorage::new(14);
    let engine = open(&disk);
    let (t, other) = (create(&engine, "d/t"), create(&engine, "d/other"));
    let mut s = Session::new(&engine, 0, 1);
    let (old, new) = (vec![b'a'; 400], vec![b'b'; 410]);
    s.begin_load(&t);
    for n in 0..ROWS {
        insert(&mut s, &t, n, &old).unwrap();
    }
    s.end_load(&t).unwrap();
    insert(&mut s, &t, ROWS, b"x").unwrap();
    s.commit(false).unwrap();
    for n in 0..ROWS {
        if n == ROWS / 2 {
            engine.checkpoint().unwrap();
        }
        update(&mut s, &t, n, &old, &new).unwrap();
    }
    assert!(metric(&engine, "undo_spilled_bytes") > 8 << 20);
    engine.flush_log();
    disk.crash(&mut Rng::new(14));
    std::mem::forget(s);
    give_up(&engine);
    drop((t, other, engine));

    let engine = open(&disk);
    let (t, other) = (
        engine.dict().open_table("d/t").unwrap(),
        engine.dict().open_table("d/other").unwrap(),
    );
    assert_eq!(engine.trx_rows().len(), 1, "it was rolled back before");
    let mut s = Session::new(&engine, 0, 1);
    insert(&mut s, &other, 1, b"served at once").unwrap();
    s.commit(false).unwrap();
    let rows = scan(&mut s, &t, 0);
    assert_eq!(rows.len() as u64, ROWS + 1);
    assert!(rows.iter().all(|(n, text)| *n == ROWS || *text == old));
    assert_eq!(scan(&mut s, &t, 1).len() as u64, ROWS + 1);
    s.commit(false).unwrap();
    wait_until("the end of the rollback", || engine.trx_rows().is_empty());
    update(&mut s, &t, 7, &old, b"free").unwrap();
    s.commit(false).unwrap();
    engine.checkpoint().unwrap();
    engine.checkpoint().unwrap();
    assert_eq!(metric(&engine, "undo_spilled_bytes"), 0);
    drop(s);
    check(&engine, &t);
    engine.close().unwrap();
}

/// A prepared transaction whose rollback had begun when the machine died is rolled back by the
/// restart: nobody may commit what is left of it.
#[test]
fn a_rollback_of_a_prepared_transaction_is_finished() {
    for checkpoint in [false, true] {
        let disk = SimStorage::new(10);
        let engine = open(&disk);
        let t = create(&engine, "d/t");
        let mut s = Session::new(&engine, 0, 1);
        insert(&mut s, &t, 1, b"one").unwrap();
        let save = s.undo_position();
        insert(&mut s, &t, 2, b"two").unwrap();
        let xid = Xid {
            format_id: 1,
            gtrid_len: 3,
            data: b"gtr".to_vec(),
        };
        s.prepare(&xid).unwrap();
        s.rollback_to(save).unwrap();
        if checkpoint {
            engine.checkpoint().unwrap();
        }
        engine.flush_log();
        disk.crash(&mut Rng::new(1));
        std::mem::forget(s);
        give_up(&engine);
        drop((t, engine));
        let engine = open(&disk);
        let t = engine.dict().open_table("d/t").unwrap();
        assert_eq!(engine.prepared_xids(), vec![]);
        let mut s = Session::new(&engine, 0, 1);
        assert_eq!(scan(&mut s, &t, 0), BTreeMap::new());
        drop(s);
        engine.close().unwrap();
    }
}

/// A value was let go of, and its table dropped; its page went to another table. What a
/// checkpoint remembered of the old value frees nothing of the new one at the next start.
#[test]
fn a_stale_value_frees_no_page_of_another_table() {
    let disk = SimStorage::new(16);
    let engine = open(&disk);
    let old = create(&engine, "d/old");
    let mut s = Session::new(&engine, 0, 1);
    let mut reader = Session::new(&engine, 0, 2);
    let put = |s: &mut Session, t: &Arc<Table>, text: &[u8]| {
        let r = s.write_overflow(t, text).unwrap();
        let payload = [&[1u8][..], &r[..]].concat();
        let dup = &mut DupInfo::default();
        s.insert_row(t, Some(&key(1)), &payload, &[], false, dup)
            .unwrap();
        s.commit(false).unwrap();
        r
    };
    let first = put(&mut s, &old, b"an old value");
    // Somebody may still read it: the cleanup has to wait.
    reader.open_snapshot();
    s.delete_row(&old, &key(1), &[]).unwrap();
    s.commit(false).unwrap();
    engine.dict().drop_table("d/old").unwrap();
    let t = create(&engine, "d/t");
    let second = put(&mut s, &t, b"a new value, longer");
    assert_eq!(first[..4], second[..4], "the page is used again");
    // The log that the next start reads begins after the drop.
    engine.close().unwrap();
    drop((s, reader, old, t, engine));
    let engine = open(&disk);
    let mut out = vec![0; 19];
    engine.read_overflow(&second, &mut out).unwrap();
    assert_eq!(out, b"a new value, longer");
    engine.close().unwrap();
}

/// The machine dies at any call of the disk while the database is being made: the next start
/// makes it, or finds it.
#[test]
fn a_creation_that_dies_is_repeated() {
    let mut rng = Rng::new(11);
    for call in 1..200 {
        let disk = SimStorage::new(call);
        disk.power_off_after(call);
        let storage: Arc<dyn Storage> = Arc::new(disk.boot());
        // A log that cannot be written ends the program: here, by a panic.
        let opened = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            Engine::open(config(), storage, Arc::new(Quiet))
        }));
        if let Ok(Ok(engine)) = opened {
            disk.power_off_after(u64::MAX / 2);
            engine.close().unwrap();
            return;
        }
        disk.crash(&mut rng);
        let engine = open(&disk);
        create(&engine, "d/t");
        engine.close().unwrap();
    }
    panic!("a creation does not end");
}
