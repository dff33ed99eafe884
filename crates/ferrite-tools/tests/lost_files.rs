//! Files of pages that are missing, cut off or cannot be read in places: what lies there is lost, and nothing else.

use ferrite_engine::offline::{MapFrom, Offline};
use ferrite_engine::{
    Config, DupInfo, Engine, IndexSpec, Isolation, Session, SilentCallbacks, TableSpec,
};
use ferrite_io::sim::{FileDamage, IoOp, SimStorage};
use ferrite_io::Storage;
use ferrite_sync::Arc;
use ferrite_tools::check::{check, Report};
use ferrite_tools::progress::Progress;
use ferrite_tools::salvage::{salvage, Output, Plan, Salvage};
use ferrite_types::{Error, PageId, Result};
use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;

const ROWS: u64 = 16_000;
const FILE_BYTES: u64 = 1 << 20;
/// The unit of places in files.
const GRANULE_BYTES: u64 = 1024;

fn config() -> Config {
    Config {
        // Nobody writes pages but checkpoints.
        buffer_pool_size_bytes: 64 << 20,
        log_budget_bytes: 4 << 20,
        log_segment_bytes: 1 << 20,
        log_ring_bytes: 1 << 20,
        history_ring_bytes: 1 << 20,
        direct_io: false,
        manual_background: true,
        store_file_bytes: FILE_BYTES,
        store_segment_bytes: 256 << 10,
        ..Config::default()
    }
}

fn open(disk: &SimStorage) -> Arc<Engine> {
    let storage: Arc<dyn Storage> = Arc::new(disk.boot());
    Engine::open(config(), storage, Arc::new(SilentCallbacks)).unwrap()
}

/// Row `n`.
fn payload(n: u64) -> Vec<u8> {
    let mut payload = vec![0];
    payload.extend((0..400).map(|i| (n + i) as u8));
    payload
}

fn insert(engine: &Arc<Engine>, numbers: impl Iterator<Item = u64>) {
    let t = engine.dict().open_table("d/t").unwrap();
    let mut s = Session::new(engine, 0, 1);
    for n in numbers {
        s.begin_statement(Isolation::RepeatableRead);
        let mut dup = DupInfo::default();
        s.insert_row(
            &t,
            Some(&n.to_be_bytes()),
            &payload(n),
            &[],
            false,
            &mut dup,
        )
        .unwrap();
        if n % 200 == 199 {
            s.commit(false).unwrap();
            engine.checkpoint().unwrap();
        }
    }
    s.commit(false).unwrap();
}

/// A table in some ten files.
fn database() -> SimStorage {
    let disk = SimStorage::new(1);
    let engine = open(&disk);
    let spec = TableSpec::new("d/t", vec![IndexSpec::new("PRIMARY", true, 1)]);
    engine.dict().create_table(spec, 1).unwrap();
    insert(&engine, 0..ROWS);
    engine.close().unwrap();
    assert!(disk.exists("store.0006").unwrap());
    disk
}

/// Keeps the files.
#[derive(Default)]
struct Memory(BTreeMap<String, Vec<u8>>);

impl Output for Memory {
    fn file(
        &mut self,
        name: &str,
        fill: &mut dyn FnMut(&mut dyn Write) -> std::io::Result<()>,
    ) -> Result<()> {
        let file = self.0.entry(name.to_owned()).or_default();
        fill(file).map_err(|e| Error::Io(e.to_string()))
    }
}

/// How many rows come out. Each is one that there was.
fn salvaged(disk: &SimStorage, scan: bool) -> (u64, Salvage) {
    let storage: Arc<dyn Storage> = Arc::new(disk.boot());
    let plan = Plan {
        scan,
        ..Plan::default()
    };
    let mut out = Memory::default();
    let result = salvage(&storage, plan, &mut out, &Progress::silent()).unwrap();
    let text = String::from_utf8(out.0.remove("d.t.txt").unwrap()).unwrap();
    let hex = |bytes: &[u8]| bytes.iter().map(|b| format!("{b:02x}")).collect::<String>();
    let mut seen = BTreeSet::new();
    for line in text.lines() {
        let (key, value) = line.split_once('\t').unwrap();
        let n = u64::from_str_radix(key, 16).unwrap();
        assert_eq!(value, hex(&payload(n)), "row {n}");
        assert!(seen.insert(n), "row {n} twice");
    }
    (seen.len() as u64, result)
}

fn checked(disk: &SimStorage) -> Report {
    let storage: Arc<dyn Storage> = Arc::new(disk.boot());
    check(&storage, &Arc::new(Progress::silent())).unwrap()
}

/// File and offset of a page.
fn place(disk: &SimStorage, page: PageId) -> (String, u64) {
    let storage: Arc<dyn Storage> = Arc::new(disk.boot());
    let offline = Offline::open(&storage, MapFrom::Checkpoint).unwrap();
    let at = offline.location(page).unwrap().granule() * GRANULE_BYTES;
    (format!("store.{:04}", at / FILE_BYTES), at % FILE_BYTES)
}

/// The root of the table.
fn root(disk: &SimStorage) -> PageId {
    let storage: Arc<dyn Storage> = Arc::new(disk.boot());
    let offline = Offline::open(&storage, MapFrom::Checkpoint).unwrap();
    let tables = offline.tables(&mut |fault| panic!("{fault}"));
    tables[0].spec.indexes[0].root
}

/// Neither the dictionary nor the root of the table is in it.
fn of_leaves(disk: &SimStorage) -> String {
    let others = [PageId(1), root(disk)].map(|page| place(disk, page).0);
    let mut names = (2..6).map(|n| format!("store.{n:04}"));
    names.find(|name| !others.contains(name)).unwrap()
}

fn has(texts: &[String], text: &str) -> bool {
    texts.iter().any(|t| t.contains(text))
}

#[test]
fn a_missing_file_costs_its_pages() {
    let disk = database();
    assert!(checked(&disk).is_sound());
    assert_eq!(salvaged(&disk, false).0, ROWS);
    let name = of_leaves(&disk);
    let before = disk.snapshot();
    let cut = FileDamage::Cut { keep_bytes: 1000 };
    let whats = [(FileDamage::Lost, "is missing"), (cut, "is too short")];
    for (damage, what) in whats {
        disk.restore(&before);
        disk.damage_file(&name, damage).unwrap();
        let report = checked(&disk);
        assert!(has(report.faults.texts(), &format!("{name} {what}")));
        for scan in [false, true] {
            let (rows, result) = salvaged(&disk, scan);
            // As many as fit in a file, or a few more.
            let lost = ROWS - rows;
            assert!((1000..4000).contains(&lost), "{lost} rows lost");
            assert!(has(result.faults.texts(), &format!("{name} {what}")));
            assert!(!result.is_whole() && result.scanned == scan);
        }
    }
}

/// The last file's name tells nothing: the map names places beyond the files.
#[test]
fn the_last_file_costs_its_pages() {
    let disk = database();
    let files = disk.list().unwrap();
    let last = files.iter().rev().find(|n| n.starts_with("store."));
    let last = last.unwrap().clone();
    assert_ne!(place(&disk, PageId(1)).0, last);
    // Without the root leaves are looked for among all pages of the index.
    let (name, offset) = place(&disk, root(&disk));
    disk.corrupt(&name, offset + 100, 1).unwrap();
    let with_all = salvaged(&disk, false);
    assert_eq!(with_all.0, ROWS);
    assert!(with_all.1.tables[0].loose_leaves > 0);
    disk.damage_file(&last, FileDamage::Lost).unwrap();
    let faults = checked(&disk).faults;
    assert!(has(faults.texts(), &format!("at {last}")), "{faults:?}");
    assert!(has(faults.texts(), "beyond the files"), "{faults:?}");
    for scan in [false, true] {
        let (rows, result) = salvaged(&disk, scan);
        assert!(rows > ROWS / 2 && rows <= ROWS, "{rows} rows: {result:?}");
        assert!(!result.is_whole());
    }
}

/// A sector that cannot be read.
#[test]
fn a_read_error_costs_a_block() {
    let disk = database();
    let name = of_leaves(&disk);
    let bad = name.clone();
    disk.set_hook(Some(Arc::new(move |event| {
        let hits = (event.offset..event.offset + event.len).contains(&(FILE_BYTES / 2));
        match event.op == IoOp::Read && event.name == bad && hits {
            true => Err(Error::Io(format!("read {bad}: bad sector"))),
            false => Ok(()),
        }
    })));
    for scan in [false, true] {
        let (rows, result) = salvaged(&disk, scan);
        let lost = ROWS - rows;
        assert!((1..200).contains(&lost), "{lost} rows lost: {result:?}");
        let told = has(result.faults.texts(), "bad sector");
        assert!(told || has(&result.tables[0].faults, "bad sector"));
    }
    let storage: Arc<dyn Storage> = Arc::new(disk.boot());
    let offline = Offline::open(&storage, MapFrom::Scan).unwrap();
    let found = offline.report().scan.as_ref().unwrap();
    assert_eq!(found.damage.count(), 1, "{:?}", found.damage);
}
