//! What only block devices are asked for.

use std::{fs::File, io, os::fd::AsRawFd};

/// `BLKDISCARD`: `_IO(0x12, 119)`.
const BLKDISCARD: libc::Ioctl = 0x1277;

/// Tells a block device that it need not keep a range. What the range reads as afterwards is the device's choice.
///
/// # Errors
/// The device cannot, or `file` is none, or the range is not of its blocks.
pub fn discard(file: &File, offset: u64, len: u64) -> io::Result<()> {
    let range = [offset, len];
    // SAFETY: the request reads two 64-bit numbers, which outlive the call; the descriptor is open.
    let code = unsafe { libc::ioctl(file.as_raw_fd(), BLKDISCARD, range.as_ptr()) };
    if code < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}
