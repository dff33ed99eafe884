//! Rewinds that were cut off, and rewinds that are refused.
//!
//! The database has a table `d/old` in its snapshot `monday`, and `d/new` beside it since.

use crate::place::{create, no_program_starts, take, Place};
use ferrite_engine::snapshots::rewind;
use std::os::unix::fs::{chown, MetadataExt};

fn database(name: &str) -> Place {
    let place = Place::new(name);
    let engine = place.open();
    create(&engine, "d/old");
    take(&engine, "monday");
    create(&engine, "d/new");
    engine.close();
    place
}

/// A rewind to `monday` is decided; nothing of it is done.
fn decided(name: &str) -> Place {
    let place = database(name);
    let engine = place.open();
    take(&engine, "present");
    engine.close();
    {
        let _locks = no_program_starts();
        rewind::prepare(&place.storage(), "monday", "present", None).unwrap();
    }
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

/// The server's option `log_ddl_recovery` names its log of DDL, without saying how the name ends.
#[test]
fn a_ddl_statement_that_is_not_ended() {
    let place = database("ddl");
    let mut log = vec![0; 8192];
    log[..6].copy_from_slice(&[254, 254, 11, 2, 0, 16]);
    log[4096] = 1;
    std::fs::create_dir(place.0.join("sub.d")).unwrap();
    std::fs::write(place.0.join("long.log"), vec![254; 1 << 20]).unwrap();
    for (name, words) in [
        ("ddl_recovery.log", &["monday"][..]),
        ("ddl.log", &["monday"]),
        ("ddl.log", &["monday", "--ddl-log", "ddl"]),
        ("sub.d/ddl.log", &["monday", "--ddl-log=sub.d/ddl.rec.x"]),
    ] {
        let path = place.0.join(name);
        std::fs::write(&path, &log).unwrap();
        let (code, said) = place.rewind(words);
        assert_eq!(code, Some(2), "{name}: {said}");
        assert!(said.contains("middle of a DDL statement"), "{said}");
        assert!(said.contains(&path.display().to_string()), "{said}");
        std::fs::remove_file(path).unwrap();
    }
    assert_eq!(place.snapshots(), ["monday"]);
    // What a start has ended stays in its copy.
    std::fs::write(place.0.join("ddl_recovery-backup.log"), &log).unwrap();
    let (code, said) = place.rewind(&["monday"]);
    assert_eq!(code, Some(0), "{said}");
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

/// The program's answer goes to a disk that is full: what is done is done, and only who has asked for words gets an
/// error for want of them.
#[test]
fn an_answer_that_cannot_be_written() {
    let place = database("mute");
    for (words, code) in [(["--list"], 2), (["monday"], 0), (["--finish"], 0)] {
        let (done, said) = place.rewind_mute(&words);
        assert_eq!(done, Some(code), "{words:?}: {said}");
    }
    assert_eq!(place.tables(), ["d/old"]);
    assert_eq!(place.snapshots().len(), 2);
    let place = decided("mute-finish");
    let (done, said) = place.rewind_mute(&["--finish"]);
    assert_eq!(done, Some(0), "{said}");
    assert_eq!(place.tables(), ["d/old"]);
}

/// With the rights of another than the data's owner it would leave files that the server cannot write to. To see it
/// takes root.
#[test]
fn somebody_elses_database_is_left_alone() {
    let place = database("owner");
    let dir = place.0.join("#ferrite");
    if std::fs::metadata(&dir).unwrap().uid() != 0 {
        return;
    }
    chown(&dir, Some(65534), None).unwrap();
    for words in [&["monday"][..], &["--list"], &["--finish"]] {
        let (code, said) = place.rewind(words);
        assert_eq!(code, Some(2), "{said}");
        assert!(said.contains("run it as account"), "{said}");
        assert!(said.contains("65534") || said.contains("nobody"), "{said}");
    }
    let files = std::fs::read_dir(&dir).unwrap();
    let snapshots = files.filter(|f| {
        let name = f.as_ref().unwrap().file_name();
        name.to_str().unwrap().ends_with(".manifest")
    });
    assert_eq!(snapshots.count(), 1, "the present was kept");
    chown(&dir, Some(0), None).unwrap();
    let (code, said) = place.rewind(&["monday"]);
    assert_eq!(code, Some(0), "{said}");
}
