//! `ferrite-rewind` and `ferrite-check` as programs, on a directory of the real disk: rewinds that were cut
//! off, and rewinds that are refused.
//!
//! The database has a table `d/old` in its snapshot `monday`, and `d/new` beside it since.

use ferrite_engine::snapshots::{rewind, ServerState};
use ferrite_engine::{Config, Engine, IndexSpec, SilentCallbacks, TableSpec};
use ferrite_io::{OpenMode, RealStorage, Storage};
use ferrite_sync::Arc;
use std::path::PathBuf;
use std::process::Command;

/// A data directory that goes with its test.
struct Place(PathBuf);

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

impl Place {
    fn storage(&self) -> Arc<dyn Storage> {
        Arc::new(RealStorage::existing(&self.0.join("#ferrite")).unwrap())
    }

    fn open(&self) -> Arc<Engine> {
        let config = Config {
            log_segment_bytes: 1 << 20,
            log_budget_bytes: 4 << 20,
            direct_io: false,
            ..Config::default()
        };
        Engine::open(config, self.storage(), Arc::new(SilentCallbacks)).unwrap()
    }

    /// Exit code, and all that is said.
    fn run(&self, program: &str, words: &[&str]) -> (Option<i32>, String) {
        let done = Command::new(program)
            .arg(&self.0)
            .args(words)
            .output()
            .unwrap();
        let said = [done.stdout, done.stderr].concat();
        (done.status.code(), String::from_utf8(said).unwrap())
    }

    fn check(&self, words: &[&str]) -> (Option<i32>, String) {
        self.run(env!("CARGO_BIN_EXE_ferrite-check"), words)
    }

    fn rewind(&self, words: &[&str]) -> (Option<i32>, String) {
        self.run(env!("CARGO_BIN_EXE_ferrite-rewind"), words)
    }

    fn tables(&self) -> Vec<String> {
        let engine = self.open();
        let mut names = engine.dict().table_names();
        engine.close().unwrap();
        names.sort_unstable();
        names
    }

    fn snapshots(&self) -> Vec<String> {
        let (code, said) = self.rewind(&["--list"]);
        assert_eq!(code, Some(0), "{said}");
        said.lines().map(str::to_owned).collect()
    }

    /// Changes the last byte of a file.
    fn damage(&self, name: &str) {
        let file = self.storage().open(name, OpenMode::ReadWrite, false);
        let file = file.unwrap();
        let mut byte = [0];
        let at = file.len().unwrap() - 1;
        file.read_at(&mut byte, at).unwrap();
        byte[0] ^= 1;
        file.write_at(&byte, at).unwrap();
    }
}

fn create(engine: &Engine, name: &str) {
    let spec = TableSpec::new(name, vec![IndexSpec::new("PRIMARY", true, 1)]);
    engine.dict().create_table(spec, 1).unwrap();
}

fn take(engine: &Arc<Engine>, name: &str) {
    let mut job = engine.begin_snapshot(name).unwrap();
    job.fix();
    job.finish(&ServerState::default()).unwrap();
}

fn database(name: &str) -> Place {
    let unique = format!("ferrite-rewind-{}-{name}", std::process::id());
    let place = Place(std::env::temp_dir().join(unique));
    std::fs::create_dir_all(place.0.join("#ferrite")).unwrap();
    let engine = place.open();
    create(&engine, "d/old");
    take(&engine, "monday");
    create(&engine, "d/new");
    engine.close().unwrap();
    place
}

/// A rewind to `monday` is decided; nothing of it is done.
fn decided(name: &str) -> Place {
    let place = database(name);
    let engine = place.open();
    take(&engine, "present");
    engine.close().unwrap();
    drop(engine);
    rewind::prepare(&place.storage(), "monday", "present", None).unwrap();
    place
}

/// What [`decided`] makes, with the files of the present gone.
fn half_done(name: &str) -> Place {
    let place = decided(name);
    let storage = place.storage();
    for name in storage.list().unwrap() {
        if ["redo.", "map.", "checkpoint."]
            .iter()
            .any(|p| name.starts_with(p))
        {
            storage.remove(&name).unwrap();
        }
    }
    place
}

/// Whether the present's files are there or not: nothing is damaged, and nothing was verified.
#[test]
fn a_rewind_that_was_cut_off_is_no_damage() {
    for place in [decided("decided"), half_done("half-done")] {
        let to = place.0.join("salvaged");
        for words in [vec![], vec!["--salvage", to.to_str().unwrap()]] {
            let (code, said) = place.check(&words);
            assert_eq!(code, Some(2), "{said}");
            assert!(said.contains("rewind to monday was cut off"), "{said}");
            assert!(said.contains("or ferrite-rewind --finish"), "{said}");
            assert!(!said.contains("fault"), "{said}");
        }
        assert!(!to.exists(), "salvaged all the same");
        let (code, said) = place.rewind(&["--finish"]);
        assert_eq!(code, Some(0), "{said}");
        let (code, said) = place.check(&[]);
        assert_eq!(code, Some(0), "{said}");
        assert!(said.ends_with("sound\n"), "{said}");
        assert_eq!(place.tables(), ["d/old"]);
    }
}

/// What cannot be finished is damage, and names the file. A scan still salvages.
#[test]
fn a_rewind_that_cannot_be_finished_is_damage() {
    let place = half_done("unfinishable");
    let names = place.storage().list().unwrap();
    let map = names.iter().find(|n| n.starts_with("rewind.map.")).unwrap();
    place.storage().remove(map).unwrap();
    let (code, said) = place.check(&[]);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains(map) && said.contains("rewind"), "{said}");
    let to = place.0.join("salvaged");
    let (_, said) = place.check(&["--scan", "--salvage", to.to_str().unwrap()]);
    assert!(said.contains("rewind"), "{said}");
    assert!(to.join("load.sql").exists(), "{said}");
    let place = decided("unreadable");
    place.damage("rewind.intent");
    let (code, said) = place.check(&[]);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("rewind.intent"), "{said}");
}

/// A damaged file of the target is named, and no snapshot of the present is made for nothing.
#[test]
fn a_damaged_target_is_found_before_anything_changes() {
    let place = database("damaged");
    place.damage("snapshot.monday.log");
    for _ in 0..2 {
        let (code, said) = place.rewind(&["monday"]);
        assert_eq!(code, Some(1), "{said}");
        assert!(said.contains("snapshot.monday.log"), "{said}");
        assert_eq!(place.snapshots(), ["monday"]);
    }
    assert_eq!(place.tables(), ["d/new", "d/old"]);
}

/// What fails after the present became a snapshot leaves none either.
#[test]
fn a_rewind_that_fails_late_leaves_no_snapshot() {
    let place = database("late");
    // A directory cannot make way for the file of that name.
    let aside = place.0.join("#ferrite").join("rewind.intent.new");
    std::fs::create_dir(&aside).unwrap();
    let (code, said) = place.rewind(&["monday"]);
    assert_eq!(code, Some(2), "{said}");
    assert_eq!(place.snapshots(), ["monday"]);
    let left = place.storage().list().unwrap();
    let left: Vec<&String> = left.iter().filter(|n| n.starts_with("rewind.")).collect();
    assert!(left.is_empty(), "{left:?}");
    std::fs::remove_dir(&aside).unwrap();
    assert_eq!(place.tables(), ["d/new", "d/old"]);
    let (code, said) = place.rewind(&["monday"]);
    assert_eq!(code, Some(0), "{said}");
    assert_eq!(place.tables(), ["d/old"]);
    assert_eq!(place.snapshots().len(), 2);
}

#[test]
fn names_that_are_taken() {
    let place = database("names");
    for _ in 0..2 {
        let (code, said) = place.rewind(&["monday", "--keep-as", "monday"]);
        assert_eq!(code, Some(2), "{said}");
        assert!(
            said.contains("there is a snapshot monday already"),
            "{said}"
        );
        assert!(said.contains("--keep-as"), "{said}");
    }
    let before = place.snapshots();
    assert_eq!(before, ["monday"]);
    // In one second, some of them.
    for n in 2..6 {
        let (code, said) = place.rewind(&["monday"]);
        assert_eq!(code, Some(0), "{said}");
        assert_eq!(place.snapshots().len(), n);
    }
}
