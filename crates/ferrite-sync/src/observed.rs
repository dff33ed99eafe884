//! Somebody who watches this process's threads, waits, files and memory: the server's Performance
//! Schema, where it is on.
//!
//! Nothing is watched until [`observe`] was called; then each event costs what the observer takes.
//! Only who waits anyway is watched: a wait for a reason, a read, a write or a sync of a file.
//!
//! Invariants: what has begun ends, in the same thread, also when the work between panics. An
//! observer does not wait and does not call back in. Locking: none.

use std::mem::MaybeUninit;
use std::path::Path;
use std::sync::OnceLock;

/// Bytes that an observer may use for one event while that lasts.
pub const ROOM_BYTES: usize = 128;

/// Where an observer keeps what it knows of an event.
#[repr(C, align(16))]
pub struct Room(MaybeUninit<[u8; ROOM_BYTES]>);

/// What is done to a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileCall {
    /// Bytes are read.
    Read,
    /// Bytes are written.
    Write,
    /// What was written is made durable.
    Sync,
}

/// A class of files, as the observer knows it; never 0.
pub type FileClass = usize;
/// An event that the observer follows, as it knows it; never 0.
pub type Followed = usize;

/// What happens, in calls of any thread.
pub struct Observer {
    /// The calling thread begins, under that name.
    pub thread_begins: fn(&str),
    /// It ends.
    pub thread_ends: fn(),
    /// A wait begins, for the reason of that number (`waits::Reason`); 0: it is not followed.
    pub wait_begins: fn(u32, &mut Room) -> Followed,
    /// It ends.
    pub wait_ends: fn(Followed),
    /// The class of a file that was opened; 0: its calls are not followed.
    pub file_opened: fn(&Path) -> FileClass,
    /// A call for so many bytes begins; 0: it is not followed.
    pub file_begins: fn(FileClass, FileCall, usize, &mut Room) -> Followed,
    /// It ends, with so many bytes read or written.
    pub file_ends: fn(Followed, usize),
    /// What a part of the core has of memory now, in bytes. Told every few seconds.
    pub memory: fn(&str, u64),
}

static OBSERVER: OnceLock<Observer> = OnceLock::new();

/// From now on `observer` is told. The first call of a process counts.
pub fn observe(observer: Observer) {
    let _ = OBSERVER.set(observer);
}

/// Calls a function at its end, come what may.
struct AtEnd<F: FnMut()>(F);

impl<F: FnMut()> Drop for AtEnd<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

fn room() -> Room {
    Room(MaybeUninit::uninit())
}

/// Runs a thread of that name.
pub(crate) fn thread<T>(name: &str, run: impl FnOnce() -> T) -> T {
    let Some(observer) = OBSERVER.get() else {
        return run();
    };
    (observer.thread_begins)(name);
    let _end = AtEnd(|| (observer.thread_ends)());
    run()
}

/// Waits by calling `wait`, for the reason of that number.
#[inline]
pub fn wait<T>(reason: u32, wait: impl FnOnce() -> T) -> T {
    match OBSERVER.get() {
        None => wait(),
        Some(observer) => followed_wait(observer, reason, wait),
    }
}

#[cold]
fn followed_wait<T>(observer: &Observer, reason: u32, wait: impl FnOnce() -> T) -> T {
    let mut room = room();
    let followed = (observer.wait_begins)(reason, &mut room);
    let _end = AtEnd(|| {
        if followed != 0 {
            (observer.wait_ends)(followed);
        }
    });
    wait()
}

/// The class of a file that was opened at that path; None: nobody follows its calls.
pub fn file(path: &Path) -> Option<FileClass> {
    let class = (OBSERVER.get()?.file_opened)(path);
    (class != 0).then_some(class)
}

/// Reads, writes or syncs by calling `call`, for so many bytes; they were read or written if that
/// succeeds.
#[inline]
pub fn call<T, E>(
    class: Option<FileClass>,
    kind: FileCall,
    bytes: usize,
    call: impl FnOnce() -> Result<T, E>,
) -> Result<T, E> {
    let (Some(observer), Some(class)) = (OBSERVER.get(), class) else {
        return call();
    };
    let mut room = room();
    let followed = (observer.file_begins)(class, kind, bytes, &mut room);
    let mut done = 0;
    let result = {
        let done = std::cell::Cell::from_mut(&mut done);
        let _end = AtEnd(|| {
            if followed != 0 {
                (observer.file_ends)(followed, done.get());
            }
        });
        let result = call();
        done.set(if result.is_ok() { bytes } else { 0 });
        result
    };
    result
}

/// Does anybody want to know of memory?
pub fn wants_memory() -> bool {
    OBSERVER.get().is_some()
}

/// A part of the core has so many bytes now.
pub fn memory(part: &str, bytes: u64) {
    if let Some(observer) = OBSERVER.get() {
        (observer.memory)(part, bytes);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::sync::Mutex;

    // Not one that the other tests of this crate wait for.
    const REASON: u32 = 4321;
    static SEEN: Mutex<Vec<String>> = Mutex::new(Vec::new());

    fn note(text: String) {
        // Other tests of this crate wait, too, and have threads.
        SEEN.lock().unwrap().push(text);
    }

    fn seen(text: &str) -> usize {
        SEEN.lock().unwrap().iter().filter(|s| *s == text).count()
    }

    #[test]
    fn what_begins_ends() {
        observe(Observer {
            thread_begins: |name| note(format!("begins {name}")),
            thread_ends: || note(format!("ends {}", std::thread::current().name().unwrap())),
            wait_begins: |reason, _| {
                note(format!("waits {reason}"));
                reason as usize + 1
            },
            wait_ends: |followed| note(format!("waited {followed}")),
            file_opened: |path| usize::from(path.ends_with("followed")) * 7,
            file_begins: |class, kind, bytes, _| {
                note(format!("{kind:?} {class} {bytes}"));
                9
            },
            file_ends: |followed, bytes| note(format!("done {followed} {bytes}")),
            memory: |part, bytes| note(format!("{part} {bytes}")),
        });
        let builder = std::thread::Builder::new().name("watched".into());
        let run = || thread("watched", || wait(REASON, || panic!("in a wait")));
        let handle = builder.spawn(run).unwrap();
        assert!(handle.join().is_err());
        assert_eq!((seen("begins watched"), seen("ends watched")), (1, 1));
        assert_eq!((seen("waits 4321"), seen("waited 4322")), (1, 1));
        assert_eq!(file(Path::new("other")), None);
        let class = file(Path::new("a/followed"));
        assert_eq!(call(class, FileCall::Read, 30, || Ok::<_, ()>(5)), Ok(5));
        assert_eq!(call(class, FileCall::Write, 31, || Err::<(), _>(6)), Err(6));
        assert_eq!(call(None, FileCall::Sync, 32, || Ok::<_, ()>(())), Ok(()));
        assert_eq!((seen("Read 7 30"), seen("done 9 30")), (1, 1));
        assert_eq!((seen("Write 7 31"), seen("done 9 0")), (1, 1));
        assert_eq!((seen("Sync 7 32"), seen("done 9 31")), (0, 0));
        assert!(wants_memory());
        memory("ring", 8);
        assert_eq!(seen("ring 8"), 1);
    }
}
