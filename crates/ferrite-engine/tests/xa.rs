//! Prepared transactions whose session is gone, on the simulated disk: DDL beside them, tables
//! that are gone when they are decided.

mod common;

use common::{create, database, give_up, insert, open, update};

use ferrite_engine::{DdlCaller, Engine, Xid};
use ferrite_io::sim::SimStorage;
use ferrite_sync::random::Rng;
use ferrite_sync::{thread, Arc};
use ferrite_types::Error;

const NOWAIT: DdlCaller = DdlCaller { thd: 0, wait_ms: 0 };

fn xid(name: &str) -> Xid {
    Xid {
        format_id: 1,
        gtrid_len: name.len() as u32,
        data: name.into(),
    }
}

fn decide(engine: &Engine, xid: &Xid, commit: bool) {
    match commit {
        true => engine.commit_by_xid(xid).unwrap(),
        false => engine.rollback_by_xid(xid).unwrap(),
    }
}

/// The machine dies, or the database is closed; it opens again.
fn again(disk: &SimStorage, engine: Arc<Engine>, crash: bool) -> Arc<Engine> {
    if crash {
        engine.flush_log();
        disk.crash(&mut Rng::new(1));
        give_up(&engine);
    } else {
        engine.close().unwrap();
    }
    drop(engine);
    open(disk)
}

fn refused(engine: &Engine, name: &str) {
    assert_eq!(engine.drop_table(name, &NOWAIT), Err(Error::LockTimeout));
    let truncated = engine.truncate_table(name, 1, &NOWAIT);
    assert_eq!(truncated, Err(Error::LockTimeout));
    let renamed = engine.rename_table(name, "d/else", &NOWAIT);
    assert_eq!(renamed, Err(Error::LockTimeout));
}

/// DDL waits for a prepared transaction that changed the table: in its session, without one,
/// and after a restart. It does not wait for others.
#[test]
fn ddl_waits_for_prepared_transactions() {
    for commit in [false, true] {
        let (disk, engine, t, mut s) = database(31);
        create(&engine, "d/other");
        insert(&mut s, &t, 1, b"one").unwrap();
        s.commit(false).unwrap();
        drop(t);
        let t = engine.dict().open_table("d/t").unwrap();
        update(&mut s, &t, 1, b"one", b"first").unwrap();
        s.prepare(&xid("x")).unwrap();
        refused(&engine, "d/t");
        drop((s, t));
        refused(&engine, "d/t");
        let engine = again(&disk, engine, true);
        refused(&engine, "d/t");
        engine.truncate_table("d/other", 1, &NOWAIT).unwrap();
        engine.rename_table("d/other", "d/o", &NOWAIT).unwrap();
        engine.drop_table("d/o", &NOWAIT).unwrap();
        assert_eq!(engine.drop_table("d/o", &NOWAIT), Err(Error::NotFound));

        let waiter = {
            let engine = engine.clone();
            let patient = DdlCaller {
                thd: 0,
                wait_ms: 60_000,
            };
            thread::spawn("ddl", move || engine.drop_table("d/t", &patient).unwrap())
        };
        thread::sleep_ms(30);
        assert!(engine.dict().exists("d/t"), "it did not wait");
        decide(&engine, &xid("x"), commit);
        waiter.join().unwrap();
        assert!(!engine.dict().exists("d/t"));
        engine.close().unwrap();
    }
}
