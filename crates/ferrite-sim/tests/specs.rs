//! Races as small specs: story, order of stops, expected result. And the simulator's own
//! promises: a seed is a run, and a few seeds pass.

mod common;

use common::open;
use ferrite_engine::{
    Cursor, DdlCaller, DupInfo, IndexSpec, ReadMode, Session, Table, TableSpec, WaitMode, Xid,
};
use ferrite_io::sim::SimStorage;
use ferrite_sim::run::run;
use ferrite_sync::stop::{arm_nth, disarm, Action};
use ferrite_sync::Arc;
use ferrite_types::Error;

fn insert(s: &mut Session, t: &Arc<Table>, n: u64) -> Result<(), Error> {
    let mut dup = DupInfo::default();
    s.insert_row(t, Some(&n.to_be_bytes()), &[0; 2000], &[], false, &mut dup)
        .map(|_| ())
}

/// Story: XA ROLLBACK of a transaction whose client is gone undoes a change in that client's
/// temporary table, while the table is dropped behind the client.
/// Stops: rollback at `rollback.table_found`, until the table is out of the dictionary.
/// Expected: the rollback does all it has to; the drop waits with the pages until it has.
#[test]
fn a_table_goes_between_finding_it_and_undoing_a_change_in_it() {
    for change in 0..4 {
        let disk = SimStorage::new(2);
        let engine = open(&disk);
        let spec = TableSpec {
            temporary: true,
            ..TableSpec::new("d/t", vec![IndexSpec::new("PRIMARY", true, 1)])
        };
        let t = engine.dict().create_table(spec, 1).unwrap();
        let mut s = Session::new(&engine, 0, 1);
        (0..3).for_each(|n| insert(&mut s, &t, n).unwrap());
        s.commit(false).unwrap();
        let xid = Xid {
            format_id: 1,
            gtrid_len: 1,
            data: b"x".to_vec(),
        };
        match change {
            0 => insert(&mut s, &t, 7).unwrap(),
            1 => s.delete_row(&t, &1u64.to_be_bytes(), &[]).unwrap(),
            2 => drop(s.write_overflow(&t, &[7; 2000]).unwrap()),
            _ => (3..9).for_each(|n| insert(&mut s, &t, n).unwrap()),
        }
        s.prepare(&xid).unwrap();
        s.detach_prepared();
        let (dropper, mine) = (engine.clone(), std::thread::current().id());
        let drops = std::sync::Arc::new(std::sync::Mutex::new(None));
        let started = drops.clone();
        let drop_it = move || {
            // (Other tests come past this place, too.)
            if std::thread::current().id() != mine || dropper.dict().open_table("d/t").is_err() {
                return;
            }
            let e = dropper.clone();
            let thread = std::thread::spawn(move || e.drop_table("d/t", &DdlCaller::default()));
            *started.lock().unwrap() = Some(thread);
            while dropper.dict().open_table("d/t").is_ok() {
                std::thread::yield_now();
            }
        };
        arm_nth("rollback.table_found", 1, Action::callback(drop_it));
        let decided = engine.rollback_by_xid(&xid);
        disarm("rollback.table_found");
        assert_eq!(decided, Ok(()), "change {change}");
        assert_eq!(engine.prepared_xids(), []);
        let drops = drops.lock().unwrap().take();
        drops.expect("a drop").join().unwrap().unwrap();
        drop((s, t));
        engine.close().unwrap();
    }
}

fn metric(engine: &ferrite_engine::Engine, name: &str) -> u64 {
    let all = engine.metrics();
    all.iter().find(|m| m.name == name).expect(name).value
}

fn scan(s: &mut Session, t: &Arc<Table>, most: usize) -> usize {
    let mut cursor = Cursor::new(t, 0, ReadMode::Snapshot, WaitMode::Wait);
    let mut rows = 0;
    let mut more = cursor.first(s).map(drop);
    while more.is_ok() && rows < most {
        rows += 1;
        more = cursor.next(s).map(drop);
    }
    s.commit(false).unwrap();
    rows
}

/// Story: a scan reads ahead while the pages of the life before are read again.
/// Stops: the warm start at `buffer.warmed`, until the scan is over.
/// Expected: the warm start counts its own pages only.
#[test]
fn a_scan_beside_the_warm_start() {
    let disk = SimStorage::new(9);
    let engine = open(&disk);
    let spec = TableSpec::new("d/t", vec![IndexSpec::new("PRIMARY", true, 1)]);
    let t = engine.dict().create_table(spec, 1).unwrap();
    let mut s = Session::new(&engine, 0, 1);
    // So many that most of its pages are read ahead even where the scan is faster now and then.
    const ROWS: usize = 20_000;
    (0..ROWS as u64).for_each(|n| insert(&mut s, &t, n).unwrap());
    s.commit(false).unwrap();
    engine.set("warm_start", 0).unwrap();
    drop((s, t));
    engine.close().unwrap();
    let engine = open(&disk);
    // The list of this life is short: a few pages were read.
    engine.set("read_ahead", 0).unwrap();
    let t = engine.dict().open_table("d/t").unwrap();
    let mut s = Session::new(&engine, 0, 1);
    assert_eq!(scan(&mut s, &t, 10), 10);
    drop((s, t));
    engine.close().unwrap();
    let list = disk.contents("warm.pages").unwrap();
    let listed = u64::from(u32::from_le_bytes(list[12..16].try_into().unwrap()));
    assert!((1..60).contains(&listed), "{listed} pages");
    let scanned = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let is_over = scanned.clone();
    let wait = move || {
        for _ in 0..2000 {
            if is_over.load(std::sync::atomic::Ordering::SeqCst) {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
    };
    arm_nth("buffer.warmed", 1, Action::callback(wait));
    let engine = open(&disk);
    let t = engine.dict().open_table("d/t").unwrap();
    let mut s = Session::new(&engine, 0, 1);
    let rows = scan(&mut s, &t, usize::MAX);
    let ahead = metric(&engine, "buffer_pool_read_ahead");
    scanned.store(true, std::sync::atomic::Ordering::SeqCst);
    disarm("buffer.warmed");
    assert_eq!(rows, ROWS);
    assert!(ahead > listed, "{ahead} read ahead, {listed} listed");
    let warmed = metric(&engine, "warm_start_pages");
    assert!(warmed <= listed, "{warmed} of {listed}");
    drop((s, t));
    engine.close().unwrap();
}

#[test]
fn a_seed_is_a_run() {
    for seed in [3, 11, 42] {
        let (a, b) = (run(seed, false), run(seed, false));
        assert_eq!(a.report.trace_hash, b.report.trace_hash, "seed {seed}");
        assert_eq!(a.report.steps, b.report.steps);
        assert_eq!(
            (a.failure, a.tally.crashes > 0),
            (None, true),
            "seed {seed}"
        );
    }
}

#[test]
fn a_few_seeds_pass() {
    for seed in 100..112 {
        let done = run(seed, false);
        assert_eq!(
            done.failure, None,
            "replay: ./ferrite test sim --seed {seed}"
        );
        assert_eq!(done.report.leaked, 0);
    }
}
