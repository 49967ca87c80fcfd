//! Takes the place of `uring` on architectures that the crate for io_uring does not build for: there are no rings, and callers go
//! on by plain calls, as where a system refuses them.

use std::{convert::Infallible, fs::File, io};

/// What a longer call would be cut into, in bytes.
pub const PIECE_LEN: usize = 256 << 10;

/// Rings, of which there are none.
#[derive(Debug)]
pub struct Rings(Infallible);

impl Rings {
    /// Makes none.
    ///
    /// # Errors
    /// Always.
    pub fn new() -> io::Result<Self> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Never called.
    ///
    /// # Errors
    /// None.
    pub fn write_all_at(&self, _: &File, _: u64, _: &[u8]) -> io::Result<()> {
        match self.0 {}
    }

    /// Never called.
    ///
    /// # Errors
    /// None.
    pub fn read_exact_at(&self, _: &File, _: u64, _: &mut [u8]) -> io::Result<()> {
        match self.0 {}
    }
}
