//! The simulated disk keeps what was synced, may keep the rest, and fails as told.

use super::*;
use crate::{AlignedBuf, BLOCK_BYTES};

fn file(s: &SimStorage, name: &str) -> Arc<dyn StorageFile> {
    s.open(name, OpenMode::CreateNew, false).unwrap()
}

fn reopen(s: &SimStorage, name: &str) -> Arc<dyn StorageFile> {
    s.open(name, OpenMode::ReadWrite, false).unwrap()
}

fn read(f: &dyn StorageFile, at: u64, n: usize) -> Vec<u8> {
    let mut b = vec![0xee; n];
    f.read_at(&mut b, at).unwrap();
    b
}

#[test]
fn synced_bytes_survive_and_others_may_not() {
    let s = SimStorage::new(1);
    let f = file(&s, "a");
    f.write_at(&[1; 4096], 0).unwrap();
    f.sync_data().unwrap();
    s.sync_dir().unwrap();
    f.write_at(&[2; 4096], 0).unwrap();
    assert_eq!(read(&*f, 0, 4096), [2; 4096]);
    s.crash_clean();
    assert!(
        matches!(f.len(), Err(Error::Io(_))),
        "handles of an earlier life are dead"
    );
    assert_eq!(read(&*reopen(&s, "a"), 0, 4096), [1; 4096]);
}

#[test]
fn crashes_tear_at_sectors_in_any_order() {
    let (mut torn, mut all, mut none, mut old_over_new) = (0, 0, 0, 0);
    for seed in 0..400 {
        let mut rng = Rng::new(seed);
        let s = SimStorage::new(seed);
        let f = file(&s, "a");
        f.write_at(&[1; 8192], 0).unwrap();
        f.sync_data().unwrap();
        s.sync_dir().unwrap();
        f.write_at(&[2; 8192], 0).unwrap();
        f.write_at(&[3; 512], 512).unwrap();
        s.crash(&mut rng);
        let b = read(&*reopen(&s, "a"), 0, 8192);
        for sector in b.chunks(512) {
            assert!(
                sector.iter().all(|x| *x == sector[0]),
                "torn within a sector"
            );
        }
        let twos = b.chunks(512).filter(|c| c[0] == 2).count();
        match twos {
            0 => none += 1,
            15 | 16 => all += 1,
            _ => torn += 1,
        }
        old_over_new += usize::from(b[512] == 2);
    }
    assert!(torn > 50 && all > 20 && none > 20 && old_over_new > 10);
}

#[test]
fn names_need_a_directory_sync() {
    let (mut kept, mut lost, mut renamed) = (0, 0, 0);
    for seed in 0..200 {
        let s = SimStorage::new(seed);
        file(&s, "old").sync_data().unwrap();
        s.sync_dir().unwrap();
        let f = file(&s, "new");
        f.write_at(b"x", 0).unwrap();
        f.sync_data().unwrap();
        s.rename("old", "older").unwrap();
        assert_eq!(s.list().unwrap(), ["new", "older"]);
        s.crash(&mut Rng::new(seed));
        if s.exists("new").unwrap() {
            kept += 1;
            assert_eq!(s.contents("new").unwrap(), b"x");
        } else {
            lost += 1;
        }
        let (a, b) = (s.exists("old").unwrap(), s.exists("older").unwrap());
        assert!(a != b, "a rename happens or not");
        renamed += usize::from(b);
    }
    assert!(kept > 20 && lost > 20 && renamed > 20);
    let s = SimStorage::new(0);
    file(&s, "gone");
    s.crash_clean();
    assert!(s.list().unwrap().is_empty());
}

#[test]
fn a_failed_sync_loses_for_ever() {
    let mut lost = 0;
    for seed in 0..100 {
        let s = SimStorage::new(seed);
        let f = file(&s, "a");
        s.sync_dir().unwrap();
        f.write_at(&[7; 4096], 0).unwrap();
        s.fail_sync(1);
        assert!(matches!(f.sync_data(), Err(Error::Io(_))));
        assert_eq!(read(&*f, 0, 4096), [7; 4096], "still in the cache");
        f.sync_data().unwrap();
        s.crash_clean();
        lost += usize::from(s.contents("a").unwrap() != [7; 4096]);
    }
    assert!(lost > 30);
    assert_eq!(SimStorage::new(0).faults_happened(), 0);
}

#[test]
fn full_disks_recover() {
    let s = SimStorage::new(1);
    let f = file(&s, "a");
    s.set_capacity(Some(8 * 4096));
    f.allocate(0, 6 * 4096).unwrap();
    assert_eq!(
        (s.used_bytes(), s.free_bytes().unwrap()),
        (6 * 4096, 2 * 4096)
    );
    assert!(matches!(f.allocate(0, 9 * 4096), Err(Error::DiskFull(_))));
    assert_eq!(f.len().unwrap(), 6 * 4096);
    f.write_at(&[1; 4096], 0).unwrap();
    f.write_at(&[1; 8192], 6 * 4096).unwrap();
    assert!(matches!(
        f.write_at(&[1; 1], 8 * 4096),
        Err(Error::DiskFull(_))
    ));
    f.punch_hole(4096, 4096).unwrap();
    f.write_at(&[1; 1], 8 * 4096).unwrap();
    f.truncate(0).unwrap();
    assert_eq!(s.used_bytes(), 0);
    file(&s, "b").write_at(&[1; 1], 0).unwrap();
    assert_eq!(
        (s.used_bytes_of("a"), s.used_bytes_of("b")),
        (Ok(0), Ok(4096))
    );
    s.inject(Fault::Full, 1);
    assert!(matches!(f.write_at(&[1], 0), Err(Error::DiskFull(_))));
    f.write_at(&[1], 0).unwrap();
}

#[test]
fn reads_lie_on_demand() {
    let s = SimStorage::new(5);
    s.keep_stale(true);
    let f = file(&s, "a");
    for value in [1u8, 2] {
        (0..4).for_each(|i| f.write_at(&[value * 10 + i as u8; 4096], i * 4096).unwrap());
        f.sync_data().unwrap();
    }
    s.inject(Fault::StaleRead, 1);
    assert_eq!(read(&*f, 0, 4096), [10; 4096]);
    s.inject_in(Fault::MisdirectedRead, 1, "a");
    s.inject_in(Fault::FailRead, 1, "other");
    assert_ne!(read(&*f, 0, 4096), [20; 4096]);
    assert_eq!(read(&*f, 0, 4096), [20; 4096]);
    s.inject(Fault::FlipBit, 2);
    assert_eq!(read(&*f, 0, 4096), [20; 4096]);
    let flipped: u32 = read(&*f, 0, 4096)
        .iter()
        .map(|b| (b ^ 20).count_ones())
        .sum();
    assert_eq!(flipped, 1);
    s.corrupt("a", 1, 0xff).unwrap();
    assert_eq!(read(&*f, 0, 2), [20, 20 ^ 0xff]);
    s.inject(Fault::LostWrite, 1);
    f.write_at(&[9; 4096], 0).unwrap();
    assert_eq!(read(&*f, 0, 1), [20]);
    assert_eq!(s.faults_happened(), 4);
}

#[test]
fn lasting_faults_end_when_they_are_forgotten() {
    let s = SimStorage::new(6);
    let (f, other) = (file(&s, "a.1"), file(&s, "b"));
    s.inject_lasting(Fault::FailWrite, "a.");
    for _ in 0..3 {
        assert!(f.write_at(&[1; 4096], 0).is_err());
        other.write_at(&[1; 4096], 0).unwrap();
    }
    assert_eq!(s.faults_happened(), 3);
    s.clear_faults();
    f.write_at(&[1; 4096], 0).unwrap();
}

#[test]
fn power_goes_at_a_chosen_call() {
    let mut happened = 0;
    for seed in 0..50 {
        let s = SimStorage::new(seed);
        let program = s.boot();
        let f = program.open("a", OpenMode::CreateNew, false).unwrap();
        f.sync_data().unwrap();
        program.sync_dir().unwrap();
        let lock = program.lock_exclusive().unwrap();
        assert!(matches!(program.lock_exclusive(), Err(Error::InUse(_))));
        s.power_off_after(2);
        f.write_at(&[1; 512], 0).unwrap();
        assert!(f.sync_data().is_err() && !s.powered());
        assert!(program.exists("a").is_err());
        s.crash_clean();
        assert!(
            program.remove("a").is_err(),
            "a program of an earlier life changes nothing"
        );
        happened += s.contents("a").unwrap().len() / 512;
        let _mine = s.boot().lock_exclusive().unwrap();
        drop(lock);
        assert!(s.lock_exclusive().is_err(), "an old guard frees nothing");
    }
    assert!(happened > 5 && happened < 45);
}

#[test]
fn snapshots_and_hooks() {
    let s = SimStorage::new(1);
    let f = file(&s, "a");
    f.write_at(b"one", 0).unwrap();
    let snapshot = s.snapshot();
    f.write_at(b"two", 0).unwrap();
    s.restore(&snapshot);
    assert_eq!(s.contents("a").unwrap(), b"one");
    let t = SimStorage::from_snapshot(&snapshot, 9);
    assert_eq!(t.contents("a").unwrap(), b"one");
    let f = reopen(&s, "a");
    s.set_hook(Some(Arc::new(|e: &IoEvent<'_>| match e.op {
        IoOp::Write => Err(Error::Io("slow".to_owned())),
        _ => Ok(()),
    })));
    assert_eq!(f.write_at(b"x", 0), Err(Error::Io("slow".to_owned())));
    s.set_hook(None);
    f.write_at(b"x", 0).unwrap();
    assert_eq!(s.contents("a").unwrap(), b"xne");
}

#[test]
fn direct_files_want_alignment() {
    let s = SimStorage::new(1);
    let f = s.open("a", OpenMode::CreateNew, true).unwrap();
    let buf = AlignedBuf::zeroed(2 * BLOCK_BYTES);
    f.write_at(&buf, 0).unwrap();
    assert!(matches!(f.write_at(&buf[..100], 0), Err(Error::Bug(_))));
    assert!(matches!(f.write_at(&buf, 512), Err(Error::Bug(_))));
    let r = s.open("a", OpenMode::ReadOnly, false).unwrap();
    assert!(matches!(r.write_at(&buf, 0), Err(Error::Io(_))));
    let mut past = [0; 10];
    assert!(matches!(r.read_at(&mut past, 8190), Err(Error::Corrupt(_))));
}

#[test]
fn whole_files_are_damaged_for_good() {
    for damage in [
        FileDamage::Lost,
        FileDamage::Cut { keep_bytes: 4096 },
        FileDamage::Zeroes {
            offset: 4096,
            len: u64::MAX,
        },
    ] {
        let s = SimStorage::new(1);
        let f = file(&s, "a");
        f.write_at(&[1; 8192], 0).unwrap();
        f.sync_data().unwrap();
        s.sync_dir().unwrap();
        f.write_at(&[2; 4096], 4096).unwrap();
        s.damage_file("a", damage).unwrap();
        assert_eq!(s.damage_file("b", damage), Err(Error::NotFound));
        // Nothing brings it back.
        s.crash(&mut Rng::new(3));
        match damage {
            FileDamage::Lost => assert!(!s.exists("a").unwrap()),
            FileDamage::Cut { .. } => assert_eq!(s.contents("a").unwrap(), [1; 4096]),
            FileDamage::Zeroes { .. } => {
                assert_eq!(read(&*reopen(&s, "a"), 0, 4096), [1; 4096]);
                assert_eq!(read(&*reopen(&s, "a"), 4096, 4096), [0; 4096]);
            }
        }
    }
}

#[test]
fn a_misdirected_write_leaves_its_place_alone() {
    let s = SimStorage::new(1);
    let f = file(&s, "a");
    f.write_at(&[1; 5 * 4096], 0).unwrap();
    s.inject_in(Fault::MisdirectedWrite, 1, "a");
    f.write_at(&[2; 4096], 4096).unwrap();
    assert_eq!(read(&*f, 4096, 4096), [1; 4096]);
    let all = s.contents("a").unwrap();
    assert_eq!(all.chunks(4096).filter(|c| c[0] == 2).count(), 1);
}
