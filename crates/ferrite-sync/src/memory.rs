//! The allocator, as far as one has to speak to it.
//!
//! The server's processes use the C library's allocator, for C++ and Rust alike. It keeps what
//! was freed in the middle of its heaps until it is asked.

/// Gives free memory back to the system. Takes each heap's lock in turn for as long as the walk
/// over its free pieces takes: for background threads, after much has been freed.
pub fn give_back() {
    #[cfg(all(target_os = "linux", target_env = "gnu", not(miri)))]
    // SAFETY: malloc_trim takes no pointers and may be called from any thread at any time.
    unsafe {
        libc::malloc_trim(0);
    }
}
