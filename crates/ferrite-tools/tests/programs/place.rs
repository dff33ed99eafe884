//! A data directory on the real disk, and the programs that are run on it.
//!
//! A program that is started has copies of all open files of this one, and so of the locks of other tests'
//! directories, until it is its own. So nobody has such a lock while one is started.
//!
//! Locking: [`STARTS`]: shared by who has a directory's lock, alone by who starts a program, one at a time and
//! never both by one thread.

use ferrite_engine::snapshots::ServerState;
use ferrite_engine::{Config, Engine, IndexSpec, SilentCallbacks, TableSpec};
use ferrite_io::{OpenMode, RealStorage, Storage};
use ferrite_sync::Arc;
use std::fs::OpenOptions;
use std::ops::Deref;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{PoisonError, RwLock, RwLockReadGuard};

static STARTS: RwLock<()> = RwLock::new(());

/// No program is started as long as it lives.
pub fn no_program_starts() -> RwLockReadGuard<'static, ()> {
    STARTS.read().unwrap_or_else(PoisonError::into_inner)
}

fn start(command: &mut Command) -> Child {
    let _alone = STARTS.write().unwrap_or_else(PoisonError::into_inner);
    command
        .stdin(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

/// A database that is open in this program, and has the directory's lock.
pub struct Opened {
    engine: Arc<Engine>,
    _locks: RwLockReadGuard<'static, ()>,
}

impl Opened {
    pub fn close(self) {
        self.engine.close().unwrap();
    }
}

impl Deref for Opened {
    type Target = Arc<Engine>;

    fn deref(&self) -> &Arc<Engine> {
        &self.engine
    }
}

/// A data directory that goes with its test.
pub struct Place(pub PathBuf);

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

impl Place {
    pub fn storage(&self) -> Arc<dyn Storage> {
        Arc::new(RealStorage::existing(&self.0.join("#ferrite")).unwrap())
    }

    pub fn open(&self) -> Opened {
        let locks = no_program_starts();
        let config = Config {
            log_segment_bytes: 1 << 20,
            log_budget_bytes: 4 << 20,
            direct_io: false,
            ..Config::default()
        };
        let engine = Engine::open(config, self.storage(), Arc::new(SilentCallbacks)).unwrap();
        Opened {
            engine,
            _locks: locks,
        }
    }

    /// Makes the directory. No other test has the name.
    pub fn new(name: &str) -> Place {
        let unique = format!("ferrite-tools-{}-{name}", std::process::id());
        let place = Place(std::env::temp_dir().join(unique));
        std::fs::create_dir_all(place.0.join("#ferrite")).unwrap();
        place
    }

    /// Exit code, and all that is said.
    fn run(&self, program: &str, words: &[&str]) -> (Option<i32>, String) {
        let mut command = Command::new(program);
        command.arg(&self.0).args(words).stdout(Stdio::piped());
        let done = start(&mut command).wait_with_output().unwrap();
        let said = [done.stdout, done.stderr].concat();
        (done.status.code(), String::from_utf8(said).unwrap())
    }

    pub fn check(&self, words: &[&str]) -> (Option<i32>, String) {
        self.run(env!("CARGO_BIN_EXE_ferrite-check"), words)
    }

    pub fn rewind(&self, words: &[&str]) -> (Option<i32>, String) {
        self.run(env!("CARGO_BIN_EXE_ferrite-rewind"), words)
    }

    /// As [`Place::rewind`], with its standard output on a disk that is full.
    pub fn rewind_mute(&self, words: &[&str]) -> (Option<i32>, String) {
        let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_ferrite-rewind"));
        command.arg(&self.0).args(words).stdout(full);
        let done = start(&mut command).wait_with_output().unwrap();
        (done.status.code(), String::from_utf8(done.stderr).unwrap())
    }

    pub fn tables(&self) -> Vec<String> {
        let engine = self.open();
        let mut names = engine.dict().table_names();
        engine.close();
        names.sort_unstable();
        names
    }

    pub fn snapshots(&self) -> Vec<String> {
        let (code, said) = self.rewind(&["--list"]);
        assert_eq!(code, Some(0), "{said}");
        said.lines().map(str::to_owned).collect()
    }

    /// Changes the last byte of a file.
    pub fn damage(&self, name: &str) {
        let file = self.storage().open(name, OpenMode::ReadWrite, false);
        let file = file.unwrap();
        let mut byte = [0];
        let at = file.len().unwrap() - 1;
        file.read_at(&mut byte, at).unwrap();
        byte[0] ^= 1;
        file.write_at(&byte, at).unwrap();
    }
}

pub fn create(engine: &Engine, name: &str) {
    let spec = TableSpec::new(name, vec![IndexSpec::new("PRIMARY", true, 1)]);
    engine.dict().create_table(spec, 1).unwrap();
}

pub fn take(engine: &Arc<Engine>, name: &str) {
    let mut job = engine.begin_snapshot(name).unwrap();
    job.fix();
    job.finish(&ServerState::default()).unwrap();
}
