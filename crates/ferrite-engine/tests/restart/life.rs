//! The engine on the simulated disk: rows, rollback, restart, crash.

use crate::common::{
    check, config, create, database, delete, give_up, insert, key, metric, open, scan, update,
    wait_until,
};

use ferrite_engine::{
    DdlCaller, DupInfo, Engine, Isolation, RowChange, Session, SilentCallbacks, Table, Xid,
};
use ferrite_io::sim::SimStorage;
use ferrite_io::Storage;
use ferrite_sync::random::Rng;
use ferrite_sync::Arc;
use ferrite_types::Error;
use std::collections::BTreeMap;

#[test]
fn rows_survive_a_clean_restart() {
    let (disk, engine, t, mut s) = database(1);
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
fn space_of_deleted_rows_goes_back_to_the_file_system() {
    let disk = SimStorage::new(2);
    let boot = || {
        let small = ferrite_engine::Config {
            store_segment_bytes: 4 << 20,
            ..config()
        };
        let storage: Arc<dyn Storage> = Arc::new(disk.boot());
        Engine::open(small, storage, Arc::new(SilentCallbacks)).unwrap()
    };
    let engine = boot();
    let t = create(&engine, "d/t");
    let mut s = Session::new(&engine, 0, 1);
    let text = [b'x'; 700];
    for n in 0..24_000 {
        insert(&mut s, &t, n, &text).unwrap();
        if n % 100 == 99 {
            s.commit(false).unwrap();
        }
    }
    drop(s);
    engine.close().unwrap();
    let store_bytes = || disk.used_bytes_of("store.0000").unwrap();
    let full = store_bytes();
    let engine = boot();
    let t = engine.dict().open_table("d/t").unwrap();
    let mut s = Session::new(&engine, 0, 1);
    for n in 2_400..24_000 {
        delete(&mut s, &t, n, &text).unwrap();
        if n % 100 == 99 {
            s.commit(false).unwrap();
        }
    }
    s.commit(false).unwrap();
    drop(s);
    // By the checkpointer, or, once half is free, by closing.
    wait_until("cleaned up", || {
        engine.store_free_bytes() * 3 > full * 2 || store_bytes() * 2 < full
    });
    engine.close().unwrap();
    let left = store_bytes();
    assert!(left * 4 < full * 3, "{left} of {full} bytes are left");
    let engine = boot();
    check(&engine, &engine.dict().open_table("d/t").unwrap());
    engine.close().unwrap();
}

#[test]
fn leaves_of_a_deleted_range_go() {
    let (_disk, engine, t, mut s) = database(7);
    let text = [b'x'; 700];
    let rows = 6_000;
    let ascending = (100..rows).collect::<Vec<u64>>();
    let descending: Vec<u64> = ascending.iter().rev().copied().collect();
    for order in [ascending, descending] {
        for n in (0..rows).filter(|&n| n >= 100 || t.stats().rows < 100) {
            insert(&mut s, &t, n, &text).unwrap();
        }
        s.commit(false).unwrap();
        let full = t.stats();
        for n in order {
            delete(&mut s, &t, n, &text).unwrap();
            s.commit(false).unwrap();
        }
        // 100 rows of 700 bytes, and what a merge may leave sparse.
        wait_until("few leaves", || {
            let left = t.stats();
            left.data_bytes * 20 < full.data_bytes && left.index_bytes * 4 < full.index_bytes
        });
        check(&engine, &t);
    }
    engine.close().unwrap();
}

#[test]
fn rollback_and_savepoints_leave_no_trace() {
    let (_disk, engine, t, mut s) = database(3);
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
    let (_disk, engine, t, mut s) = database(4);
    let value: Vec<u8> = (0..200_000u32).map(|i| (i * 31) as u8).collect();
    let store = |s: &mut Session, value: &[u8]| {
        let r = s.write_overflow(&t, value).unwrap();
        let mut payload = vec![1u8];
        payload.extend_from_slice(r.bytes());
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
        &RowChange {
            old_pk: &key(1),
            new_pk: &key(1),
            payload: &[0],
            removed: &[],
            added: &[],
        },
        &mut DupInfo::default(),
    )
    .unwrap();
    s.commit(false).unwrap();
    wait_until("the end of the old value", || {
        t.stats().data_bytes <= 2 * 16384
    });
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

/// The log's age stays within its budget under a load larger than the pool.
#[test]
fn checkpoints_keep_up() {
    let (_disk, engine, t, mut s) = database(8);
    for n in 0..12_000u64 {
        insert(&mut s, &t, n, &[b'x'; 180]).unwrap();
        if n % 1000 == 0 {
            s.commit(false).unwrap();
        }
    }
    s.commit(false).unwrap();
    wait_until("a short log", || {
        metric(&engine, "checkpoint_age") < config().log_budget_bytes / 2
    });
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

/// The undo of a large transaction that has committed before a crash leaves no long file.
#[test]
fn a_crash_does_not_keep_the_space_of_undo() {
    const ROWS: u64 = 20_000;
    let disk = SimStorage::new(16);
    let engine = open(&disk);
    let t = create(&engine, "d/t");
    let mut s = Session::new(&engine, 0, 1);
    let (old, new) = (vec![b'a'; 400], vec![b'b'; 400]);
    for n in 0..ROWS {
        insert(&mut s, &t, n, &old).unwrap();
    }
    s.commit(false).unwrap();
    for n in 0..ROWS {
        update(&mut s, &t, n, &old, &new).unwrap();
    }
    let spilled = metric(&engine, "undo_spilled_bytes");
    assert!(spilled > 4 << 20, "{spilled}");
    s.commit(false).unwrap();
    engine.flush_log();
    disk.crash(&mut Rng::new(16));
    std::mem::forget(s);
    give_up(&engine);
    drop((t, engine));
    let file_bytes = || disk.used_bytes_of("undo.spill").unwrap();
    assert!(file_bytes() > 4 << 20, "{}", file_bytes());
    let engine = open(&disk);
    engine.checkpoint().unwrap();
    engine.checkpoint().unwrap();
    assert_eq!(file_bytes(), 0);
    let t = engine.dict().open_table("d/t").unwrap();
    check(&engine, &t);
    engine.close().unwrap();
}

/// Transactions whose undo is in memory, each too short to be spilled, are more together than a checkpoint is to
/// copy: whole chunks leave memory before, and a restart finds all of it.
#[test]
fn the_undo_of_many_transactions_is_not_copied_by_each_checkpoint() {
    const LIMIT: u64 = 2 << 20;
    assert_eq!(spilled_with_limit(64 << 20), 0, "none is long enough");
    let spilled = spilled_with_limit(LIMIT);
    assert!(spilled >= 6 << 20, "{spilled} bytes");
}

/// Bytes of undo that are spilled by a checkpoint that is to copy so many.
fn spilled_with_limit(checkpoint_undo_bytes: u64) -> u64 {
    const SESSIONS: u64 = 8;
    const ROWS: u64 = 3_200;
    let disk = SimStorage::new(15);
    let boot = || {
        let few = ferrite_engine::Config {
            checkpoint_undo_bytes,
            log_budget_bytes: 64 << 20,
            ..config()
        };
        let storage: Arc<dyn Storage> = Arc::new(disk.boot());
        Engine::open(few, storage, Arc::new(SilentCallbacks)).unwrap()
    };
    let engine = boot();
    let t = create(&engine, "d/t");
    let (old, new) = (vec![b'a'; 400], vec![b'b'; 400]);
    let mut s = Session::new(&engine, 0, 1);
    for n in 0..SESSIONS * ROWS {
        insert(&mut s, &t, n, &old).unwrap();
    }
    s.commit(false).unwrap();
    engine.checkpoint().unwrap();
    let mut sessions = Vec::new();
    for number in 0..SESSIONS {
        let mut s = Session::new(&engine, 0, 1);
        for n in number * ROWS..(number + 1) * ROWS {
            update(&mut s, &t, n, &old, &new).unwrap();
        }
        sessions.push(s);
    }
    engine.checkpoint().unwrap();
    let spilled = metric(&engine, "undo_spilled_bytes");
    // The lists go on where they were, and one of them back.
    for (number, s) in (0..SESSIONS).zip(&mut sessions) {
        update(s, &t, number * ROWS, &new, &old).unwrap();
    }
    sessions.pop().unwrap().rollback().unwrap();
    engine.checkpoint().unwrap();
    engine.flush_log();
    disk.crash(&mut Rng::new(15));
    sessions.into_iter().for_each(std::mem::forget);
    give_up(&engine);
    std::mem::forget(s);
    drop((t, engine));

    let engine = boot();
    wait_until("the end of the rollback", || engine.trx_rows().is_empty());
    let t = engine.dict().open_table("d/t").unwrap();
    let mut s = Session::new(&engine, 0, 1);
    let rows = scan(&mut s, &t, 0);
    assert_eq!(rows.len() as u64, SESSIONS * ROWS);
    assert!(rows.values().all(|text| *text == old));
    s.commit(false).unwrap();
    drop(s);
    check(&engine, &t);
    engine.close().unwrap();
    spilled
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
        let payload = [&[1u8][..], r.bytes()].concat();
        let dup = &mut DupInfo::default();
        s.insert_row(t, Some(&key(1)), &payload, &[], false, dup)
            .unwrap();
        s.commit(false).unwrap();
        r
    };
    let first = put(&mut s, &old, b"an old value");
    // Somebody may still read it: purge has to wait.
    reader.open_snapshot();
    s.delete_row(&old, &key(1), &[]).unwrap();
    s.commit(false).unwrap();
    engine.drop_table("d/old", &DdlCaller::default()).unwrap();
    let t = create(&engine, "d/t");
    let second = put(&mut s, &t, b"a new value, longer");
    let pages = (first.first_page(), second.first_page());
    assert_eq!(pages.0, pages.1, "the page is used again");
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
            Engine::open(config(), storage, Arc::new(SilentCallbacks))
        }));
        if let Ok(Ok(engine)) = opened {
            disk.power_off_after(u64::MAX / 2);
            if engine.close().is_ok() {
                return;
            }
            // A thread in the background met the end of the power just behind the creation.
        }
        disk.crash(&mut rng);
        let engine = open(&disk);
        create(&engine, "d/t");
        engine.close().unwrap();
    }
    panic!("a creation does not end");
}

/// What a dropped table frees on a full disk is there for the very next insert.
#[test]
fn an_insert_right_after_a_drop_on_a_full_disk() {
    let disk = SimStorage::new(11);
    let small = ferrite_engine::Config {
        store_segment_bytes: 1 << 20,
        flush_interval_ms: 60_000,
        ..config()
    };
    let storage: Arc<dyn Storage> = Arc::new(disk.boot());
    let engine = Engine::open(small, storage, Arc::new(SilentCallbacks)).unwrap();
    let keep = create(&engine, "d/keep");
    let text = [b'x'; 900];
    for round in 0..3 {
        let big = create(&engine, "d/big");
        let mut s = Session::new(&engine, 0, 1);
        disk.set_capacity(Some(disk.used_bytes() + (12 << 20)));
        let full = (0..200_000u64).find_map(|n| {
            let result = insert(&mut s, &big, n, &text);
            if n % 50 == 49 || result.is_err() {
                let _ = s.commit(false);
            }
            result.err()
        });
        assert!(matches!(full, Some(Error::DiskFull(_))), "{full:?}");
        drop(s);
        drop(big);
        engine.drop_table("d/big", &DdlCaller::default()).unwrap();
        let mut s = Session::new(&engine, 0, 1);
        assert_eq!(insert(&mut s, &keep, round, &text), Ok(()), "round {round}");
        s.commit(false).unwrap();
        drop(s);
        disk.set_capacity(None);
        check(&engine, &keep);
    }
    engine.close().unwrap();
}
