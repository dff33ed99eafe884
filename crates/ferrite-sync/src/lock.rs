//! Mutex and reader-writer lock without poisoning.
//!
//! Locking: the standard library's futex locks inside. A simulated thread only ever tries
//! the inner lock and waits in the scheduler; a guard's drop tells the scheduler.

use std::ops::{Deref, DerefMut};
use std::sync::{LockResult, TryLockError};

use crate::{hook, imp};

fn unpoison<G>(r: LockResult<G>) -> G {
    r.unwrap_or_else(|e| e.into_inner())
}

fn tried<G>(r: Result<G, TryLockError<G>>) -> Option<G> {
    match r {
        Ok(g) => Some(g),
        Err(TryLockError::Poisoned(e)) => Some(e.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

/// Takes an inner lock: really, or by turns with the scheduler.
#[inline]
fn take<G>(
    what: &'static str,
    key: usize,
    attempt: impl Fn() -> Option<G>,
    really: impl FnOnce() -> G,
) -> G {
    if !hook::simulated() {
        return really();
    }
    hook::yield_point(what);
    loop {
        if let Some(g) = attempt() {
            return g;
        }
        hook::block(what, key, u32::MAX, None);
    }
}

/// Tells the scheduler that a lock was released. Stands after the inner guard in its
/// struct, so that it is dropped after it.
pub(crate) struct Released(usize);

impl Drop for Released {
    #[inline(always)]
    fn drop(&mut self) {
        hook::wake(self.0, u32::MAX, usize::MAX);
        hook::yield_quiet("unlock");
    }
}

/// Mutual exclusion around a value. Not fair, not recursive, never poisoned.
#[derive(Default)]
pub struct Mutex<T: ?Sized> {
    inner: imp::Mutex<T>,
}

/// Holds a [`Mutex`] until dropped.
#[must_use]
pub struct MutexGuard<'a, T: ?Sized> {
    pub(crate) inner: imp::MutexGuard<'a, T>,
    pub(crate) released: Released,
    pub(crate) mutex: &'a Mutex<T>,
}

impl<T> Mutex<T> {
    const_unless_loom! {
        /// A free mutex around `value`.
        pub fn new(value: T) -> Mutex<T> {
            Mutex { inner: imp::Mutex::new(value) }
        }
    }

    /// The value, taken out.
    pub fn into_inner(self) -> T {
        unpoison(self.inner.into_inner())
    }
}

impl<T: ?Sized> Mutex<T> {
    pub(crate) fn key(&self) -> usize {
        (self as *const Mutex<T>).cast::<u8>() as usize
    }

    pub(crate) fn guard<'a>(&'a self, inner: imp::MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        MutexGuard {
            inner,
            released: Released(self.key()),
            mutex: self,
        }
    }

    /// Waits until the mutex is free and takes it.
    #[inline]
    pub fn lock(&self) -> MutexGuard<'_, T> {
        let inner = take(
            "mutex",
            self.key(),
            || tried(self.inner.try_lock()),
            || unpoison(self.inner.lock()),
        );
        self.guard(inner)
    }

    /// Takes the mutex if it is free right now.
    #[inline]
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        hook::yield_point("try mutex");
        tried(self.inner.try_lock()).map(|g| self.guard(g))
    }

    /// The value; nobody else can have it.
    pub fn get_mut(&mut self) -> &mut T {
        unpoison(self.inner.get_mut())
    }
}

impl<T: ?Sized> Deref for MutexGuard<'_, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        &self.inner
    }
}

impl<T: ?Sized> DerefMut for MutexGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.inner
    }
}

/// Many readers or one writer around a value. Never poisoned. A thread that reads must not
/// ask to read again (a waiting writer would stand between).
#[derive(Default)]
pub struct RwLock<T> {
    inner: imp::RwLock<T>,
}

/// Shares an [`RwLock`] until dropped.
#[must_use]
pub struct RwLockReadGuard<'a, T> {
    inner: imp::RwLockReadGuard<'a, T>,
    _released: Released,
}

/// Holds an [`RwLock`] alone until dropped.
#[must_use]
pub struct RwLockWriteGuard<'a, T> {
    inner: imp::RwLockWriteGuard<'a, T>,
    _released: Released,
}

impl<T> RwLock<T> {
    const_unless_loom! {
        /// A free lock around `value`.
        pub fn new(value: T) -> RwLock<T> {
            RwLock { inner: imp::RwLock::new(value) }
        }
    }

    /// The value, taken out.
    pub fn into_inner(self) -> T {
        unpoison(self.inner.into_inner())
    }
}

impl<T> RwLock<T> {
    fn key(&self) -> usize {
        (self as *const RwLock<T>).cast::<u8>() as usize
    }

    /// Waits until no writer holds the lock and shares it.
    #[inline]
    pub fn read(&self) -> RwLockReadGuard<'_, T> {
        let inner = take(
            "rwlock read",
            self.key(),
            || tried(self.inner.try_read()),
            || unpoison(self.inner.read()),
        );
        RwLockReadGuard {
            inner,
            _released: Released(self.key()),
        }
    }

    /// Waits until nobody holds the lock and takes it alone.
    #[inline]
    pub fn write(&self) -> RwLockWriteGuard<'_, T> {
        let inner = take(
            "rwlock write",
            self.key(),
            || tried(self.inner.try_write()),
            || unpoison(self.inner.write()),
        );
        RwLockWriteGuard {
            inner,
            _released: Released(self.key()),
        }
    }

    /// Shares the lock if that needs no waiting.
    #[inline]
    pub fn try_read(&self) -> Option<RwLockReadGuard<'_, T>> {
        hook::yield_point("try rwlock read");
        let inner = tried(self.inner.try_read())?;
        Some(RwLockReadGuard {
            inner,
            _released: Released(self.key()),
        })
    }

    /// Takes the lock alone if it is free right now.
    #[inline]
    pub fn try_write(&self) -> Option<RwLockWriteGuard<'_, T>> {
        hook::yield_point("try rwlock write");
        let inner = tried(self.inner.try_write())?;
        Some(RwLockWriteGuard {
            inner,
            _released: Released(self.key()),
        })
    }
}

#[cfg(not(loom))]
impl<T> RwLock<T> {
    /// The value; nobody else can have it.
    pub fn get_mut(&mut self) -> &mut T {
        unpoison(self.inner.get_mut())
    }
}

impl<T> Deref for RwLockReadGuard<'_, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        &self.inner
    }
}

impl<T> Deref for RwLockWriteGuard<'_, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        &self.inner
    }
}

impl<T> DerefMut for RwLockWriteGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.inner
    }
}

impl<T: ?Sized> std::fmt::Debug for Mutex<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Mutex")
    }
}

impl<T> std::fmt::Debug for RwLock<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("RwLock")
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::{thread, Arc};

    #[test]
    fn mutex_excludes_and_survives_a_panic() {
        let m = Arc::new(Mutex::new(0u64));
        let hs: Vec<_> = (0..4)
            .map(|_| {
                let m = m.clone();
                thread::spawn("adder", move || {
                    for _ in 0..1000 {
                        *m.lock() += 1;
                    }
                })
            })
            .collect();
        hs.into_iter().for_each(|h| h.join().unwrap());
        assert_eq!(*m.lock(), 4000);
        let m2 = m.clone();
        let r = thread::spawn("bad", move || {
            let _g = m2.lock();
            std::panic::resume_unwind(Box::new(()));
        })
        .join();
        assert!(r.is_err());
        assert_eq!(*m.try_lock().unwrap(), 4000);
    }

    #[test]
    fn rwlock_shares_and_excludes() {
        static L: RwLock<u32> = RwLock::new(7);
        let a = L.read();
        let b = L.try_read().unwrap();
        assert!(L.try_write().is_none());
        assert_eq!(*a + *b, 14);
        drop((a, b));
        *L.write() = 8;
        let w = L.try_write().unwrap();
        assert!(L.try_read().is_none());
        assert_eq!(*w, 8);
    }
}
