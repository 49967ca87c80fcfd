//! The C library's allocator, told to give memory back, in a program that is there to save memory.
//!
//! It has an arena for every few threads and keeps what is freed in each. What grows large is a [`crate::region`]; this
//! is for the rest.

/// From now on all threads share one arena, so that what one has freed another uses. For programs whose threads seldom
/// allocate.
pub fn share_one_arena() {
    #[cfg(target_env = "gnu")]
    // SAFETY: sets a number of the allocator, which takes its own lock.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, 1);
    }
}

/// Gives free memory back to the system. Takes as long as there are free pieces to look at.
pub fn give_back() {
    #[cfg(target_env = "gnu")]
    // SAFETY: releases pages that hold nothing, under the allocator's own lock.
    unsafe {
        libc::malloc_trim(0);
    }
}
