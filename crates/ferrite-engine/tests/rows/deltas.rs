//! Pages of which only the changes are written, where they meet snapshots, backups, DROP and
//! TRUNCATE, compression, crashes and the offline tools.

use crate::common::*;
use ferrite_engine::offline::{MapFrom, Offline};
use ferrite_engine::snapshots::{beside, rewind};
use ferrite_engine::{
    BackupLimits, BackupPhase, BackupPlace, Chain, DdlCaller, Engine, Session, SilentCallbacks,
    Table,
};
use ferrite_io::sim::SimStorage;
use ferrite_io::Storage;
use ferrite_sync::random::Rng;
use ferrite_sync::Arc;
use ferrite_types::format::{Codec, Packing};
use std::panic::{catch_unwind, AssertUnwindSafe};

const ROWS: u64 = 6000;
/// Rows between two that are touched: a page has about 60.
const STEP: u64 = 83;

struct Work {
    disk: SimStorage,
    engine: Arc<Engine>,
    t: Arc<Table>,
    s: Session,
    rows: Rows,
    rng: Rng,
}

fn text(rng: &mut Rng) -> Vec<u8> {
    let mut text = vec![0; 160];
    rng.fill(&mut text[..80]);
    text
}

impl Work {
    /// A table all of whose pages are written, and some of them with deltas.
    fn new(seed: u64, packing: Packing) -> Work {
        let disk = SimStorage::new(seed);
        let engine = open(&disk);
        let t = create_packed(&engine, "d/t", packing);
        let s = Session::new(&engine, 0, 1);
        let (rows, rng) = (Rows::new(), Rng::new(seed));
        let mut work = Work {
            disk,
            engine,
            t,
            s,
            rows,
            rng,
        };
        for n in 0..ROWS {
            let text = text(&mut work.rng);
            insert(&mut work.s, &work.t, n, &text).unwrap();
            work.rows.insert(n, text);
            if n % 500 == 499 {
                work.s.commit(false).unwrap();
            }
        }
        let mut work = work.again();
        work.touch(0);
        let work = work.again();
        assert!(work.deltas() > 40, "{} deltas", work.deltas());
        work
    }

    /// One row in each page.
    fn touch(&mut self, first: u64) {
        for n in (first..ROWS).step_by(STEP as usize) {
            self.change(n);
        }
        self.s.commit(false).unwrap();
    }

    fn change(&mut self, n: u64) {
        let (old, new) = (self.rows[&n].clone(), text(&mut self.rng));
        update(&mut self.s, &self.t, n, &old, &new).unwrap();
        self.rows.insert(n, new);
    }

    /// All rows change, and all pages are written as a whole; more than once, so that what is free is
    /// used again.
    fn churn(&mut self) {
        for _ in 0..3 {
            for n in 0..ROWS {
                self.change(n);
                if n % 500 == 499 {
                    self.s.commit(false).unwrap();
                    self.engine.checkpoint().unwrap();
                }
            }
        }
    }

    /// Closed, so that all is written, and opened.
    fn again(self) -> Work {
        drop((self.s, self.t));
        self.engine.close().unwrap();
        self.engine.check_space().unwrap();
        drop(self.engine);
        let engine = open(&self.disk);
        let t = engine.dict().open_table("d/t").unwrap();
        let s = Session::new(&engine, 0, 1);
        Work {
            engine,
            t,
            s,
            ..self
        }
    }

    fn deltas(&self) -> u64 {
        metric(&self.engine, "page_deltas")
    }
}

fn is_same(engine: &Arc<Engine>, rows: &Rows, what: &str) {
    assert!(rows_of(engine, "d/t") == *rows, "{what}");
}

#[test]
fn a_snapshot_has_the_deltas_of_its_moment() {
    let mut work = Work::new(1, Packing::NONE);
    take(&work.engine, "s").unwrap();
    let (then, deltas) = (work.rows.clone(), work.deltas());
    // Of each page the next delta: bases are what the snapshot holds, and the present has.
    work.touch(1);
    work = work.again();
    let changed = work.engine.kept_snapshots()[0].changed_bytes;
    assert!(
        changed > 0 && changed < deltas * (6 << 10),
        "{changed} bytes of {deltas} deltas"
    );
    work.churn();
    work = work.again();
    is_same(&work.engine, &work.rows, "the present");
    let own = SimStorage::new(100);
    let storage: Arc<dyn Storage> = Arc::new(work.disk.boot());
    let laid = beside::lay_out(&storage, &(Arc::new(own.boot()) as _), "s", None).unwrap();
    let second = Engine::open(config(), laid.storage, Arc::new(SilentCallbacks)).unwrap();
    is_same(&second, &then, "opened by a second one");
    assert_eq!(metric(&second, "page_deltas"), deltas);
    second.close().unwrap();
    drop(second);
    let now = work.rows.clone();
    let disk = rewound(work, "s", "present");
    let engine = open(&disk);
    assert_eq!(metric(&engine, "page_deltas"), deltas);
    is_same(&engine, &then, "rewound");
    engine.close().unwrap();
    engine.check_space().unwrap();
    drop(engine);
    go_to(&disk, "present", "then");
    is_same(&open(&disk), &now, "forth again");
}

fn rewound(work: Work, name: &str, present: &str) -> SimStorage {
    take(&work.engine, present).unwrap();
    drop((work.s, work.t));
    work.engine.close().unwrap();
    drop(work.engine);
    go(&work.disk, name, present);
    work.disk
}

fn go_to(disk: &SimStorage, name: &str, present: &str) {
    let engine = open(disk);
    take(&engine, present).unwrap();
    engine.close().unwrap();
    drop(engine);
    go(disk, name, present);
}

fn go(disk: &SimStorage, name: &str, present: &str) {
    let storage: Arc<dyn Storage> = Arc::new(disk.boot());
    rewind::prepare(&storage, name, present, None).unwrap();
    let went = rewind::finish(&storage, None).unwrap();
    assert_eq!(went, Some((name.to_owned(), present.to_owned())));
}

#[test]
fn a_dropped_snapshot_gives_back_its_deltas() {
    let mut work = Work::new(2, Packing::NONE);
    for n in 1..4 {
        take(&work.engine, &format!("s{n}")).unwrap();
        work.touch(n);
        work = work.again();
    }
    for n in 1..4 {
        work.engine.drop_snapshot(&format!("s{n}")).unwrap();
    }
    assert_eq!(work.engine.snapshot_bytes(), 0);
    work = work.again();
    is_same(&work.engine, &work.rows, "the present");
}

fn place(disk: &SimStorage) -> BackupPlace {
    BackupPlace {
        storage: Arc::new(disk.clone()),
        name: "b".into(),
    }
}

/// Takes a backup, during which the rows of `touch` change.
fn back_up(work: &mut Work, to: &SimStorage, base: Option<&SimStorage>, touch: u64) -> Rows {
    let engine = work.engine.clone();
    let base = base.map(place);
    (engine.begin_backup(place(to), base, BackupLimits::default(), 1)).unwrap();
    engine.fix_backup().unwrap();
    let then = work.rows.clone();
    // Behind the point in time: the pin holds what these replace.
    work.touch(touch);
    engine.wait_for_backup();
    let info = engine.backup_info();
    assert_eq!(info.phase, BackupPhase::Complete, "{}", info.error);
    then
}

/// Dirty pages are written, because of what another table puts in the log.
fn written_in_place_of_log(work: &mut Work) {
    let name = "d/other";
    let other =
        (work.engine.dict().open_table(name)).unwrap_or_else(|_| create(&work.engine, name));
    let before = metric(&work.engine, "page_deltas_written");
    let mut s = Session::new(&work.engine, 0, 3);
    for n in 0..9000u64 {
        let key = work.rng.next_u64() >> 8;
        insert(&mut s, &other, key, &[n as u8; 900]).unwrap();
        if n % 100 == 99 {
            s.commit(false).unwrap();
        }
    }
    s.commit(false).unwrap();
    let written = metric(&work.engine, "page_deltas_written") - before;
    assert!(written > 30, "{written} deltas are written meanwhile");
}

/// A page whose blob is as it was has its delta in the increment, and not its blob.
#[test]
fn an_increment_has_deltas_without_their_pages() {
    let mut work = Work::new(3, Packing::NONE);
    let disks: Vec<SimStorage> = (0..4).map(|n| SimStorage::new(200 + n)).collect();
    let mut states = vec![back_up(&mut work, &disks[0], None, 1)];
    // In one opening, and, as for the last one, over a restart.
    work = work.again();
    let full = disks[0].contents("pages").unwrap().len();
    for n in 1..disks.len() {
        if n == 2 {
            written_in_place_of_log(&mut work);
        }
        let base = Some(&disks[n - 1]);
        states.push(back_up(&mut work, &disks[n], base, 1 + n as u64));
        if n == 2 {
            work = work.again();
        }
    }
    let increment = disks[1].contents("pages").unwrap().len();
    let most = work.deltas() as usize * (5 << 10);
    assert!(
        increment > 0 && increment < most && increment < full / 2,
        "{increment} bytes, and the full backup has {full}"
    );
    for n in 0..disks.len() {
        restore(&disks[..=n], &states[n]);
    }
}

fn restore(disks: &[SimStorage], rows: &Rows) {
    let dirs = disks.iter().enumerate().map(|(n, disk)| {
        let storage: Arc<dyn Storage> = Arc::new(disk.clone());
        (format!("b{n}"), storage)
    });
    let chain = Chain::open(dirs.collect()).unwrap();
    let verified = chain.verify(&mut |_| {}).unwrap();
    let disk = SimStorage::new(77);
    let storage: Arc<dyn Storage> = Arc::new(disk.clone());
    assert_eq!(chain.restore(&storage, &mut |_| {}).unwrap(), verified);
    disk.crash_clean();
    let engine = open(&disk);
    assert!(metric(&engine, "page_deltas") > 40);
    is_same(
        &engine,
        rows,
        &format!("after increment {}", disks.len() - 1),
    );
    engine.close().unwrap();
    engine.check_space().unwrap();
}

#[test]
fn dropped_and_truncated_tables_leave_no_delta() {
    for truncated in [true, false] {
        let work = Work::new(4, Packing::NONE);
        let caller = DdlCaller::default();
        let before = work.deltas();
        drop((work.s, work.t));
        let engine = work.engine;
        match truncated {
            true => engine.truncate_table("d/t", 1, &caller).unwrap(),
            false => engine.drop_table("d/t", &caller).unwrap(),
        }
        let left = metric(&engine, "page_deltas");
        assert!(left + 40 < before, "{left} of {before} deltas are left");
        engine.abandon();
        drop(engine);
        work.disk.crash_clean();
        let engine = open(&work.disk);
        assert!(metric(&engine, "page_deltas") <= left + 20);
        let t = match truncated {
            true => engine.dict().open_table("d/t").unwrap(),
            false => create(&engine, "d/t"),
        };
        // The page ids are used again.
        let mut s = Session::new(&engine, 0, 1);
        let mut rows = Rows::new();
        for n in 0..ROWS {
            insert(&mut s, &t, n, &[n as u8; 100]).unwrap();
            rows.insert(n, vec![n as u8; 100]);
        }
        s.commit(false).unwrap();
        drop((s, t));
        engine.close().unwrap();
        engine.check_space().unwrap();
        drop(engine);
        is_same(&open(&work.disk), &rows, "made anew");
    }
}

/// The pages of a compressed table are compressed, their deltas are not.
#[test]
fn compressed_pages_have_deltas() {
    for codec in [Codec::Lz4, Codec::Zstd] {
        let mut work = Work::new(5, Packing::of(codec));
        for n in 1..4 {
            work.touch(n);
            work = work.again();
            assert!(work.deltas() > 20, "{codec:?}: {} deltas", work.deltas());
            is_same(&work.engine, &work.rows, &format!("{codec:?}: round {n}"));
        }
        work.churn();
        work = work.again();
        is_same(&work.engine, &work.rows, &format!("{codec:?}: after churn"));
    }
}

/// Killed after deltas were written, and again and again while what came after them is redone.
#[test]
fn killed_and_killed_again_in_recovery() {
    for seed in 6..9 {
        let mut work = Work::new(seed, Packing::NONE);
        work.touch(7);
        written_in_place_of_log(&mut work);
        work.touch(8);
        drop((work.s, work.t));
        work.engine.abandon();
        drop(work.engine);
        work.disk.crash(&mut work.rng);
        for _ in 0..4 {
            let after = work.rng.between(1, 60);
            let storage: Arc<dyn Storage> = Arc::new(work.disk.boot());
            work.disk.power_off_after(after);
            let begin = || Engine::open(config(), storage, Arc::new(SilentCallbacks));
            let cut_off = catch_unwind(AssertUnwindSafe(begin));
            work.disk.power_off();
            if let Ok(Ok(engine)) = cut_off {
                give_up(&engine);
            }
            work.disk.crash(&mut work.rng);
        }
        let engine = open(&work.disk);
        let (now, rows) = (rows_of(&engine, "d/t"), &work.rows);
        let is_lost = |n: &u64| now.get(n) != rows.get(n);
        // The last transaction was not synced: all of it is there or nothing.
        let lost: Vec<u64> = (0..ROWS).filter(is_lost).collect();
        let last: Vec<u64> = (8..ROWS).step_by(STEP as usize).collect();
        assert!(lost.is_empty() || lost == last, "{lost:?}");
        engine.close().unwrap();
        engine.check_space().unwrap();
    }
}

/// The offline tools read pages with their deltas, with the map and without it.
#[test]
fn offline_pages_have_their_deltas() {
    let mut work = Work::new(9, Packing::NONE);
    work.touch(3);
    let work = work.again();
    let (deltas, rows) = (work.deltas(), work.rows.clone());
    drop((work.s, work.t));
    work.engine.close().unwrap();
    drop(work.engine);
    for from in [MapFrom::Checkpoint, MapFrom::Scan] {
        let storage: Arc<dyn Storage> = Arc::new(work.disk.boot());
        let offline = Offline::open(&storage, from).unwrap();
        let store = offline.store();
        let pages = (1..store.directory().end()).map(ferrite_types::PageId);
        let found = pages.filter(|p| !store.delta_of(*p).is_none()).count();
        assert!(found as u64 >= deltas, "{from:?}: {found} of {deltas}");
    }
    is_same(&open(&work.disk), &rows, "nothing was written");
}
