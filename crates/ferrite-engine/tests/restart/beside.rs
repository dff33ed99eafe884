//! Snapshots that a second engine opens while the first one works.

use crate::common::*;
use ferrite_engine::snapshots::beside::{self, Beside};
use ferrite_engine::{Engine, Session, SilentCallbacks, Table};
use ferrite_io::sim::{FileDamage, SimStorage};
use ferrite_io::{RealStorage, Storage};
use ferrite_sync::random::Rng;
use ferrite_sync::Arc;
use ferrite_types::Error;
use std::path::PathBuf;

/// Rows get other texts, some vanish and come.
fn change(s: &mut Session, t: &Arc<Table>, rows: &mut Rows, rng: &mut Rng, times: usize) {
    many_of(4000, s, t, rows, rng, times);
}

fn on(disk: &SimStorage) -> Arc<dyn Storage> {
    Arc::new(disk.boot())
}

fn lay_out(of: &SimStorage, own: &SimStorage, name: &str) -> Result<Beside, Error> {
    beside::lay_out(&on(of), &on(own), name, None)
}

fn open_beside(of: &SimStorage, own: &SimStorage, name: &str) -> Arc<Engine> {
    let laid = lay_out(of, own, name).unwrap();
    Engine::open(config(), laid.storage, Arc::new(SilentCallbacks)).unwrap()
}

/// The second one reads the snapshot, whatever happens to the first one and to itself.
#[test]
fn it_stays_what_it_was() {
    for seed in 1..=3 {
        let (disk, engine, t, mut s) = database(seed);
        let (mut rows, mut rng) = (Rows::new(), Rng::new(seed));
        change(&mut s, &t, &mut rows, &mut rng, 60);
        // Long enough to be spilled, and not committed.
        let u = create(&engine, "d/u");
        let mut other = Session::new(&engine, 0, 2);
        for n in 0..6000 {
            insert(&mut other, &u, n, &[3; 600]).unwrap();
        }
        take(&engine, "s").unwrap();
        let then = rows.clone();
        other.commit(false).unwrap();
        drop((other, u));
        let own = SimStorage::new(seed + 100);
        let second = open_beside(&disk, &own, "s");
        assert_eq!(second.dict().table_names(), ["d/t", "d/u"]);
        for round in 0..4 {
            change(&mut s, &t, &mut rows, &mut rng, 60);
            engine.checkpoint().unwrap();
            assert_eq!(rows_of(&second, "d/t"), then, "round {round}");
            assert!(rows_of(&second, "d/u").is_empty());
        }
        // What it writes itself stays with it.
        second.checkpoint().unwrap();
        assert_eq!(rows_of(&second, "d/t"), then);
        second.abandon();
        drop(second);
        own.crash(&mut rng);
        let second = open_beside(&disk, &own, "s");
        assert_eq!(rows_of(&second, "d/t"), then, "opened again");
        // The first one is killed, not the machine, on which the second one reads on; then it gives
        // back what is free.
        drop((s, t));
        engine.abandon();
        drop(engine);
        let engine = open(&disk);
        engine.drop_table("d/u", &Default::default()).unwrap();
        let t = engine.dict().open_table("d/t").unwrap();
        let mut s = Session::new(&engine, 0, 1);
        change(&mut s, &t, &mut rows, &mut rng, 60);
        drop((s, t));
        assert_eq!(rows_of(&engine, "d/t"), rows);
        engine.close().unwrap();
        engine.check_space().unwrap();
        assert_eq!(rows_of(&second, "d/t"), then, "after a crash of the first");
        second.close().unwrap();
        second.check_space().unwrap();
        drop((engine, second));
        assert_eq!(rows_of(&open(&disk), "d/t"), rows);
    }
}

/// Whatever is left of an opening that died, and of what the second one wrote: the next one begins anew.
#[test]
fn one_that_is_cut_off_begins_anew() {
    let (disk, engine, t, mut s) = database(5);
    let (mut rows, mut rng) = (Rows::new(), Rng::new(5));
    change(&mut s, &t, &mut rows, &mut rng, 10);
    take(&engine, "s").unwrap();
    let own = SimStorage::new(6);
    open_beside(&disk, &own, "s").close().unwrap();
    let names = on(&own).list().unwrap();
    assert!(names.len() >= 6, "{names:?}");
    for (number, name) in names.iter().enumerate() {
        for keep_bytes in [0, 100] {
            let storage = on(&own);
            assert!(beside::check_none(&*storage).is_err(), "not marked");
            if name != "opened-snapshot" {
                for later in names[number + 1..]
                    .iter()
                    .filter(|n| *n != "opened-snapshot")
                {
                    let _ = storage.remove(later);
                }
                let _ = own.damage_file(name, FileDamage::Cut { keep_bytes });
            }
            own.crash(&mut rng);
            let second = open_beside(&disk, &own, "s");
            assert_eq!(rows_of(&second, "d/t"), rows, "cut off at {name}");
            second.abandon();
        }
    }
    // Before anything is written it is known whether there is room.
    own.set_capacity(Some(own.used_bytes() + (1 << 20)));
    assert!(matches!(lay_out(&disk, &own, "s"), Err(Error::DiskFull(_))));
    own.set_capacity(None);
    assert_eq!(rows_of(&open_beside(&disk, &own, "s"), "d/t"), rows);
    drop((s, t));
    engine.close().unwrap();
}

/// A directory on the real disk, whose locks are the kernel's.
struct Dir(PathBuf);

impl Dir {
    fn new(name: &str) -> Dir {
        let path =
            std::env::temp_dir().join(format!("ferrite-beside-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        Dir(path)
    }

    fn storage(&self) -> Arc<dyn Storage> {
        Arc::new(RealStorage::new(&self.0).unwrap())
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn names(engine: &Engine) -> Vec<String> {
    engine
        .kept_snapshots()
        .into_iter()
        .map(|k| k.name)
        .collect()
}

#[test]
fn what_is_open_is_not_dropped() {
    let (of, own, two) = (Dir::new("of"), Dir::new("own"), Dir::new("two"));
    let engine = Engine::open(config(), of.storage(), Arc::new(SilentCallbacks)).unwrap();
    let t = create(&engine, "d/t");
    let mut s = Session::new(&engine, 0, 1);
    let (mut rows, mut rng) = (Rows::new(), Rng::new(7));
    change(&mut s, &t, &mut rows, &mut rng, 20);
    for name in ["a", "b", "c"] {
        take(&engine, name).unwrap();
    }
    let open = |own: &Dir, name| beside::lay_out(&of.storage(), &own.storage(), name, None);
    let bad = |r: Result<Beside, Error>| matches!(r, Err(Error::BadConfig(_)));
    assert!(bad(open(&own, "nobody")) && bad(open(&own, "a/b")));
    let first = open(&own, "b").unwrap();
    assert!(
        matches!(open(&own, "b"), Err(Error::InUse(_))),
        "one directory, twice"
    );
    let again = open(&two, "b").unwrap();
    drop(again.storage);
    assert!(bad(open(&two, "a")), "another snapshot's directory");
    assert!(bad(open(&of, "a")) || matches!(open(&of, "a"), Err(Error::InUse(_))));
    let second = Engine::open(config(), first.storage, Arc::new(SilentCallbacks)).unwrap();
    assert!(matches!(engine.drop_snapshot("b"), Err(Error::InUse(_))));
    drop(again.guard);
    // All that may go goes.
    engine.set("snapshot_max_bytes", 1).unwrap();
    wait_until("the end of the others", || names(&engine).len() == 1);
    assert_eq!(names(&engine), ["b"]);
    assert!(matches!(engine.drop_snapshot("b"), Err(Error::InUse(_))));
    let then = rows.clone();
    change(&mut s, &t, &mut rows, &mut rng, 100);
    assert_eq!(rows_of(&second, "d/t"), then);
    second.close().unwrap();
    drop((second, first.guard));
    // It goes when it is closed.
    wait_until("the end of the last", || names(&engine).is_empty());
    assert!(bad(open(&own, "b")));
    drop((s, t));
    engine.close().unwrap();
    engine.check_space().unwrap();
}
