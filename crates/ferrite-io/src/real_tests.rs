//! The real disk in a directory below the system's temporary one.

use super::*;
use crate::{AlignedBuf, BLOCK_BYTES};

/// Held by who starts a program, and by who has a file's lock: until the program is its own it has copies of all open
/// files of this one, and of their locks.
static STARTS: std::sync::Mutex<()> = std::sync::Mutex::new(());

fn alone_with_starts() -> std::sync::MutexGuard<'static, ()> {
    STARTS.lock().unwrap_or_else(|e| e.into_inner())
}

struct Dir(PathBuf);

impl Dir {
    fn new(name: &str) -> Dir {
        let unique = format!("ferrite-io-{}-{name}", std::process::id());
        let dir = std::env::temp_dir().join(unique);
        let _ = std::fs::remove_dir_all(&dir);
        Dir(dir)
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn reads_back_what_was_written() {
    let dir = Dir::new("rw");
    let s = RealStorage::new(&dir.0).unwrap();
    for direct in [false, true] {
        let name = if direct { "d" } else { "b" };
        assert_eq!(
            s.open(name, OpenMode::ReadWrite, direct).err(),
            Some(Error::NotFound)
        );
        let f = s.open(name, OpenMode::CreateNew, direct).unwrap();
        assert_eq!(
            s.open(name, OpenMode::CreateNew, direct).err(),
            Some(Error::Exists)
        );
        let mut buf = AlignedBuf::zeroed(2 * BLOCK_BYTES);
        buf.fill(7);
        f.allocate(0, 1 << 20).unwrap();
        f.write_at(&buf, 8192).unwrap();
        f.sync_data().unwrap();
        let mut back = AlignedBuf::zeroed(4 * BLOCK_BYTES);
        f.read_at(&mut back, 4096).unwrap();
        assert!(back[..4096].iter().all(|b| *b == 0) && back[4096..12288].iter().all(|b| *b == 7));
        assert_eq!(f.len().unwrap(), 1 << 20);
        f.punch_hole(8192, 4096).unwrap();
        f.truncate(12288).unwrap();
        match f.read_at(&mut back, 8192) {
            Err(Error::Corrupt(t)) => assert!(t.contains("offset 12288"), "{t}"),
            other => panic!("{other:?}"),
        }
        let r = s.open(name, OpenMode::ReadOnly, false).unwrap();
        assert!(matches!(r.write_at(&buf, 0), Err(Error::Io(_))));
    }
    assert_eq!(
        (s.stats().syncs.get(), s.stats().write_bytes.get()),
        (2, 4 * 4096)
    );
    s.rename("b", "c").unwrap();
    s.sync_dir().unwrap();
    assert_eq!(s.list().unwrap(), ["c", "d"]);
    s.remove("c").unwrap();
    assert_eq!(s.remove("c"), Err(Error::NotFound));
    assert!(s.exists("d").unwrap() && !s.exists("c").unwrap());
    assert!(matches!(s.exists("../d"), Err(Error::Bug(_))));
    assert!(s.free_bytes().unwrap() > 0);
}

#[test]
fn one_holder_at_a_time() {
    let _alone = alone_with_starts();
    let dir = Dir::new("lock");
    let s = RealStorage::new(&dir.0).unwrap();
    let held = s.lock_exclusive().unwrap();
    match RealStorage::new(&dir.0).unwrap().lock_exclusive() {
        Err(Error::InUse(t)) => assert!(t.contains(&std::process::id().to_string()), "{t}"),
        other => panic!("{other:?}"),
    }
    drop(held);
    let _again = s.lock_exclusive().unwrap();
    assert!(s.list().unwrap().is_empty());
}

/// Says to this program, started anew with few open files, that it is the one to use them up.
const SHORT: &str = "FERRITE_IO_TEST_SHORT_OF_FILES";

#[test]
fn who_is_short_of_open_files_can_still_sync() {
    let name = "real::tests::who_is_short_of_open_files_can_still_sync";
    if std::env::var_os(SHORT).is_some() {
        return sync_without_a_file_more();
    }
    // A limit of its own: other tests run beside this one.
    let program = std::env::current_exe().unwrap();
    let mut command = std::process::Command::new("sh");
    command
        .args([
            "-c",
            "ulimit -n 64 && exec \"$0\" --exact \"$1\" --nocapture",
        ])
        .arg(program)
        .arg(name)
        .env(SHORT, "1")
        .stdin(std::process::Stdio::null())
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped());
    let alone = alone_with_starts();
    let started = command.spawn().unwrap();
    drop(alone);
    let ended = started.wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&ended.stdout);
    assert!(
        ended.status.success() && text.contains("1 passed"),
        "{ended:?}"
    );
}

fn sync_without_a_file_more() {
    let dir = Dir::new("short");
    let s = RealStorage::new(&dir.0).unwrap();
    let file = s.open("a", OpenMode::CreateNew, false).unwrap();
    let mut taken = Vec::new();
    while let Ok(file) = File::open("/dev/null") {
        taken.push(file);
        assert!(taken.len() < 64, "no limit");
    }
    file.write_at(b"x", 0).unwrap();
    file.sync_data().unwrap();
    s.rename("a", "b").unwrap();
    s.sync_dir().unwrap();
    s.sync_file_system().unwrap();
    for mode in [OpenMode::ReadWrite, OpenMode::CreateNew] {
        let name = if mode == OpenMode::CreateNew {
            "c"
        } else {
            "b"
        };
        match s.open(name, mode, false).err() {
            Some(Error::Shortage(text)) => assert!(text.contains("open files"), "{text}"),
            other => panic!("{other:?}"),
        }
    }
    assert!(matches!(s.list(), Err(Error::Shortage(_))));
    let more = RealStorage::existing(&dir.0);
    assert!(matches!(more.err(), Some(Error::Shortage(_))));
    drop(taken);
    assert_eq!(s.list().unwrap(), ["b"]);
}

/// What the system refuses for want of rights is known, whatever was asked for.
#[test]
fn a_refusal_for_want_of_rights_is_known() {
    let error = |code| {
        let e = std::io::Error::from_raw_os_error(code);
        not_opened("open", Path::new("/srv/13"), &e)
    };
    for code in [libc::EACCES, libc::EPERM] {
        assert!(is_for_want_of_rights(&error(code)), "{code}");
    }
    for code in [libc::EIO, libc::ENOSPC, libc::EMFILE, libc::ESRCH] {
        assert!(!is_for_want_of_rights(&error(code)), "{code}");
    }
}

/// Names are looked up by the directory's own name: that is the one to sync.
#[test]
fn a_directory_put_in_the_place_of_another_is_synced() {
    let (dir, away) = (Dir::new("place"), Dir::new("away"));
    let s = RealStorage::new(&dir.0).unwrap();
    assert!(s.is_in_place());
    std::fs::rename(&dir.0, &away.0).unwrap();
    assert!(matches!(s.sync_dir(), Err(Error::Io(_))));
    std::fs::create_dir(&dir.0).unwrap();
    assert!(!s.is_in_place());
    s.open("a", OpenMode::CreateNew, false).unwrap();
    s.sync_dir().unwrap();
}

/// Is the file open in this process, and to write?
fn is_open_to_write(path: &Path) -> Option<bool> {
    let path = path.canonicalize().unwrap();
    let all = std::fs::read_dir("/proc/self/fd").unwrap();
    let its =
        |fd: &String| std::fs::read_link(format!("/proc/self/fd/{fd}")).is_ok_and(|p| p == path);
    let mut names = all.filter_map(|fd| fd.ok()?.file_name().into_string().ok());
    let fd = names.find(its)?;
    let info = std::fs::read_to_string(format!("/proc/self/fdinfo/{fd}")).unwrap();
    let flags = info.lines().find_map(|line| line.strip_prefix("flags:"));
    let flags = i32::from_str_radix(flags.unwrap().trim(), 8).unwrap();
    Some(flags & libc::O_ACCMODE == libc::O_RDWR)
}

#[test]
fn who_has_a_file_alone_has_opened_it_to_write() {
    let _alone = alone_with_starts();
    let dir = Dir::new("alone");
    let s = RealStorage::new(&dir.0).unwrap();
    drop(s.open("a", OpenMode::CreateNew, false).unwrap());
    for alone in [false, true] {
        let held = s.lock_file("a", alone).unwrap();
        assert!(held.is_some());
        assert_eq!(is_open_to_write(&dir.0.join("a")), Some(alone));
        drop(held);
        assert_eq!(is_open_to_write(&dir.0.join("a")), None);
    }
    assert_eq!(s.lock_file("b", true).err(), Some(Error::NotFound));
    assert!(!s.exists("b").unwrap(), "it was created");
    // Nobody may write to this one, not even root.
    let (dir, name) = (Path::new("/sys/kernel"), "uevent_seqnum");
    if dir.join(name).exists() {
        let system = RealStorage::existing(dir).unwrap();
        let held = system.lock_file(name, true).unwrap();
        assert!(held.is_some());
        assert_eq!(is_open_to_write(&dir.join(name)), Some(false));
    }
}

#[test]
fn a_full_device_is_disk_full() {
    let full = Path::new("/dev/full");
    if !full.exists() {
        return;
    }
    let file = OpenOptions::new().write(true).open(full).unwrap();
    let f = RealFile {
        file,
        name: "full".to_owned(),
        path: full.to_owned(),
        direct: false,
        stats: Arc::new(IoStats::new()),
        class: None,
    };
    assert!(matches!(f.write_at(b"x", 0), Err(Error::DiskFull(_))));
}

/// As another account, which this thread becomes for the kernel's checks of files: root may list everything.
#[test]
fn directories_of_others_may_not_be_listed() {
    use std::os::unix::fs::PermissionsExt;
    let dir = Dir::new("rights");
    std::fs::create_dir(&dir.0).unwrap();
    std::fs::set_permissions(&dir.0, PermissionsExt::from_mode(0o755)).unwrap();
    for (name, mode) in [("closed", 0o700), ("names-only", 0o744), ("open", 0o755)] {
        let path = dir.0.join(name);
        std::fs::create_dir(&path).unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
    }
    let seen = |name: &str| RealStorage::may_list(&dir.0.join(name));
    assert!(["closed", "names-only", "open"].into_iter().all(seen));
    // SAFETY: takes a number, and changes this thread's rights alone.
    unsafe { libc::setfsuid(65534) };
    // SAFETY: as above; a number that is none changes nothing and gives what is set.
    if unsafe { libc::setfsuid(u32::MAX) } == 65534 {
        assert!(seen("open") && !seen("closed") && !seen("names-only"));
        assert!(seen("absent"), "no matter of rights");
    }
    // SAFETY: as above.
    unsafe { libc::setfsuid(libc::geteuid()) };
}
