//! Structs of options. Each begins with its size as the caller's header has it, so that members can be added: what the
//! caller does not know is as if it were zero, and what this library does not know must be.

use std::{ffi::c_char, mem::size_of, ptr, slice};

use crate::error::{Error, ErrorCode};

/// What a new disk is to be.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct DiskCreation {
    /// sizeof(narrows_disk_creation).
    pub struct_size: usize,
    /// Size of the device in bytes.
    pub size: u64,
    /// Length of a file that is made for it, in bytes; 0 for one on which even data that does not pack fits.
    pub physical: u64,
    /// How hard to compress: 0 balanced, 1 fast, 2 balanced, 3 dense.
    pub profile: u32,
    /// 1: the device may not promise more than its backing holds.
    pub guaranteed: u32,
    /// 1: overwrite what is there.
    pub force: u32,
    /// 0.
    pub reserved: u32,
}

/// How a disk is run.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct DiskOptions {
    /// sizeof(narrows_disk_options).
    pub struct_size: usize,
    /// How hard to compress: 0 as the disk was made, 1 fast, 2 balanced, 3 dense.
    pub profile: u32,
    /// 1: take no writes and write nothing.
    pub read_only: u32,
    /// 1: do not pack data again while the device is idle.
    pub no_recompress: u32,
    /// 0.
    pub reserved: u32,
}

/// What a RAM disk is to be.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct MemoryOptions {
    /// sizeof(narrows_memory_options).
    pub struct_size: usize,
    /// Size of the device in bytes.
    pub size: u64,
    /// Most memory for its pages in bytes; 0 for no limit.
    pub mem_limit: u64,
    /// A file or block device for pages that do not pack; null for none. What it holds is lost.
    pub backing: *const c_char,
    /// Most bytes of it; 0 for no limit.
    pub backing_limit: u64,
    /// How hard to compress: 0 dense, 1 fast, 2 balanced, 3 dense, 4 ratio.
    pub profile: u32,
    /// 1: do not pack cold pages harder.
    pub no_recompress: u32,
}

/// A struct of options.
///
/// # Safety
/// `repr(C)`, begins with a `usize`, and any bytes are a value of it.
pub(crate) unsafe trait Options: Copy {}

// SAFETY: integers alone, the first a `usize`.
unsafe impl Options for DiskCreation {}
// SAFETY: integers alone, the first a `usize`.
unsafe impl Options for DiskOptions {}
// SAFETY: integers and a raw pointer, the first a `usize`.
unsafe impl Options for MemoryOptions {}

/// Reads options. What the caller's struct has not is zero.
///
/// # Safety
/// `at` is null or points at a struct of as many bytes as its first member says, which nobody changes during the call.
pub(crate) unsafe fn read<T: Options>(at: *const T) -> Result<T, Error> {
    if at.is_null() {
        return Err(ErrorCode::NullPointer.into());
    }
    // SAFETY: the first member is there, or the caller broke the promise.
    let size = unsafe { at.cast::<usize>().read() };
    if size < size_of::<usize>() || size > SIZE_MAX {
        let what = format!("struct_size of {size}: set it to the size of the struct");
        return Err(Error::new(ErrorCode::InvalidArgument, what));
    }
    // SAFETY: `size` bytes are the caller's promise.
    let given = unsafe { slice::from_raw_parts(at.cast::<u8>(), size) };
    let (known, unknown) = given.split_at(size.min(size_of::<T>()));
    if unknown.iter().any(|&byte| byte != 0) {
        let what = "an option that this version of the library does not know";
        return Err(Error::new(ErrorCode::ParameterUnsupported, what));
    }
    // SAFETY: zeroes are a value of `T`, and so are any bytes; `known` is not longer than it.
    unsafe {
        let mut options = std::mem::zeroed::<T>();
        ptr::copy_nonoverlapping(known.as_ptr(), (&raw mut options).cast(), known.len());
        Ok(options)
    }
}

/// Longer than any of these will ever be.
const SIZE_MAX: usize = 4096;

/// A member that is 0 or 1.
pub(crate) fn flag(name: &str, value: u32) -> Result<bool, Error> {
    match value {
        0 | 1 => Ok(value == 1),
        _ => Err(out_of_bounds(name, value.into())),
    }
}

/// A value that this version does not know.
pub(crate) fn out_of_bounds(name: &str, value: i64) -> Error {
    Error::new(
        ErrorCode::ParameterOutOfBound,
        format!("{name} of {value} is out of bounds"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[repr(C)]
    struct Newer {
        known: DiskOptions,
        more: u64,
    }

    fn options(struct_size: usize) -> DiskOptions {
        DiskOptions {
            struct_size,
            profile: 3,
            read_only: 1,
            no_recompress: 0,
            reserved: 0,
        }
    }

    // Goal: old programs run with new libraries and new ones with old, or are told. Method: shorter and longer structs.
    #[test]
    fn shorter_and_longer_structs_are_read_as_far_as_they_are_known() {
        // SAFETY: each points at as many bytes as it says, or says what is refused before more is read.
        unsafe {
            let shorter = options(size_of::<usize>() + 4);
            let read_back = read(&raw const shorter).unwrap();
            assert_eq!((read_back.profile, read_back.read_only), (3, 0));
            let mut longer = Newer {
                known: options(size_of::<Newer>()),
                more: 0,
            };
            let at = (&raw const longer).cast::<DiskOptions>();
            assert_eq!(read(at).unwrap().read_only, 1);
            longer.more = 1;
            let at = (&raw const longer).cast::<DiskOptions>();
            assert_eq!(read(at).unwrap_err().code, ErrorCode::ParameterUnsupported);
            for size in [0, 7, SIZE_MAX + 1, usize::MAX] {
                let broken = options(size);
                let code = read(&raw const broken).unwrap_err().code;
                assert_eq!(code, ErrorCode::InvalidArgument);
            }
            assert!(read(ptr::null::<DiskOptions>()).is_err());
        }
    }
}
