use std::{ffi::CString, mem::size_of, ptr};

use narrows_core::{
    BlockError,
    block::{Execution, Shape},
};

use super::*;
use crate::error::narrows_get_error_code;

fn code(result: usize) -> i32 {
    narrows_get_error_code(result)
}

fn memory_options(size: u64) -> MemoryOptions {
    MemoryOptions {
        struct_size: size_of::<MemoryOptions>(),
        size,
        mem_limit: 0,
        backing: ptr::null(),
        backing_limit: 0,
        profile: 0,
        no_recompress: 0,
    }
}

/// A device with a bug.
#[derive(Debug)]
struct Buggy;

impl BlockDevice for Buggy {
    fn shape(&self) -> Shape {
        Shape {
            size: 4096,
            block_min: 1,
            block_preferred: 4096,
            read_only: false,
            rotational: false,
            shared: true,
            fast_zero: true,
            execution: Execution::Inline,
        }
    }

    fn read(&self, _: u64, _: &mut [u8]) -> Result<(), BlockError> {
        panic!("on purpose")
    }

    fn write(&self, _: u64, _: &[u8], _: bool) -> Result<(), BlockError> {
        Ok(())
    }

    fn trim(&self, _: u64, _: u64, _: bool) -> Result<(), BlockError> {
        Ok(())
    }

    fn write_zeroes(&self, _: u64, _: u64, _: Zeroing, _: bool) -> Result<(), BlockError> {
        Ok(())
    }

    fn flush(&self) -> Result<(), BlockError> {
        Ok(())
    }

    fn extents(&self, _: u64, _: u64, _: usize, _: &mut Vec<Extent>) -> Result<(), BlockError> {
        Ok(())
    }
}

// Goal: a bug ends a request, not the program, and nothing is trusted after it. Method: a device that panics.
#[test]
fn a_panic_is_told_and_the_device_takes_no_more() {
    let device = Box::into_raw(Box::new(Device::new(Kind::Planted(Box::new(Buggy)))));
    let mut byte = [0_u8];
    // SAFETY: the device lives until it is closed, and the buffer is ours.
    unsafe {
        assert_eq!(
            narrows_device_pwrite(device, byte.as_ptr().cast(), 1, 0, 0),
            0
        );
        let internal = ErrorCode::Internal as i32;
        assert_eq!(
            code(narrows_device_pread(device, byte.as_mut_ptr().cast(), 1, 0)),
            internal
        );
        assert_eq!(
            code(narrows_device_pwrite(device, byte.as_ptr().cast(), 1, 0, 0)),
            internal
        );
        assert_eq!(code(narrows_device_flush(device)), internal);
        assert_eq!(narrows_device_close(device), 0);
    }
}

// Goal: no call with null pointers or nonsense crashes. Method: each function, each pointer.
#[test]
#[allow(clippy::too_many_lines, reason = "a list of cases")]
fn null_pointers_and_nonsense_are_refused() {
    let null = ErrorCode::NullPointer as i32;
    let mut device = ptr::null_mut();
    let mut byte = [0_u8];
    let none = ptr::null();
    // SAFETY: pointers are null or ours.
    unsafe {
        assert_eq!(
            code(narrows_disk_create(none, ptr::null(), ptr::null_mut())),
            null
        );
        assert_eq!(
            code(narrows_disk_open(
                none,
                ptr::null(),
                &raw mut device,
                ptr::null_mut()
            )),
            null
        );
        assert_eq!(
            code(narrows_memory_open(
                ptr::null(),
                &raw mut device,
                ptr::null_mut()
            )),
            null
        );
        assert_eq!(
            code(narrows_device_pread(
                ptr::null(),
                byte.as_mut_ptr().cast(),
                1,
                0
            )),
            null
        );
        assert_eq!(
            code(narrows_device_pwrite(
                ptr::null(),
                byte.as_ptr().cast(),
                1,
                0,
                0
            )),
            null
        );
        assert_eq!(code(narrows_device_flush(ptr::null())), null);
        assert_eq!(code(narrows_device_trim(ptr::null(), 1, 0, 0)), null);
        assert_eq!(code(narrows_device_zero(ptr::null(), 1, 0, 0)), null);
        assert_eq!(
            code(narrows_device_size(ptr::null(), ptr::null_mut())),
            null
        );
        assert_eq!(code(narrows_device_is_read_only(ptr::null())), null);
        assert_eq!(
            code(narrows_device_extents(
                ptr::null(),
                1,
                0,
                ptr::null_mut(),
                1
            )),
            null
        );
        assert_eq!(narrows_device_close(ptr::null_mut()), 0);

        let options = memory_options(1 << 20);
        assert_eq!(
            code(narrows_memory_open(
                &raw const options,
                ptr::null_mut(),
                ptr::null_mut()
            )),
            null
        );
        assert_eq!(
            narrows_memory_open(&raw const options, &raw mut device, ptr::null_mut()),
            0
        );
        assert_eq!(
            code(narrows_device_pread(device, ptr::null_mut(), 1, 0)),
            null
        );
        assert_eq!(
            code(narrows_device_pwrite(device, ptr::null(), 1, 0, 0)),
            null
        );
        assert_eq!(code(narrows_device_size(device, ptr::null_mut())), null);
        assert_eq!(
            code(narrows_device_extents(device, 1, 0, ptr::null_mut(), 1)),
            null
        );
        let bounds = ErrorCode::ParameterOutOfBound as i32;
        assert_eq!(
            code(narrows_device_pwrite(device, byte.as_ptr().cast(), 1, 0, 8)),
            bounds
        );
        assert_eq!(
            code(narrows_device_trim(device, 1, 0, NARROWS_FAST_ONLY)),
            bounds
        );
        let invalid = ErrorCode::InvalidArgument as i32;
        assert_eq!(
            code(narrows_device_pread(
                device,
                byte.as_mut_ptr().cast(),
                1,
                1 << 20
            )),
            invalid
        );
        assert_eq!(
            code(narrows_device_pread(
                device,
                byte.as_mut_ptr().cast(),
                1,
                u64::MAX
            )),
            invalid
        );
        assert_eq!(code(narrows_device_zero(device, u64::MAX, 1, 0)), invalid);
        assert_eq!(narrows_device_close(device), 0);

        let mut reason = Reason { text: [0; 512] };
        for (size, profile) in [(0, 0), (1 << 20, 9)] {
            let options = MemoryOptions {
                profile,
                ..memory_options(size)
            };
            let result = narrows_memory_open(&raw const options, &raw mut device, &raw mut reason);
            assert!(code(result) != 0 && device.is_null() && reason.text[0] != 0);
        }
    }
}

// Goal: what was flushed is there again, and each mistake has its code. Method: a disk on a file, in its life's order.
#[test]
fn a_disk_is_made_opened_closed_and_opened_again() {
    let dir = tempfile::tempdir().unwrap();
    let path = CString::new(dir.path().join("disk").to_str().unwrap()).unwrap();
    let name = path.as_ptr();
    let creation = DiskCreation {
        struct_size: size_of::<DiskCreation>(),
        size: 32 << 20,
        physical: 0,
        profile: 0,
        guaranteed: 0,
        force: 0,
        reserved: 0,
    };
    let mut device = ptr::null_mut();
    let open = |device: &mut *mut Device, options: *const DiskOptions| {
        // SAFETY: the name ends with a zero; the pointers are ours.
        unsafe { narrows_disk_open(name, options, device, ptr::null_mut()) }
    };
    // SAFETY: pointers are ours, and the device is used until it is closed only.
    unsafe {
        assert_eq!(
            code(open(&mut device, ptr::null())),
            ErrorCode::NotFound as i32
        );
        assert_eq!(
            narrows_disk_create(name, &raw const creation, ptr::null_mut()),
            0
        );
        let again = narrows_disk_create(name, &raw const creation, ptr::null_mut());
        assert_eq!(code(again), ErrorCode::Occupied as i32);
        assert_eq!(open(&mut device, ptr::null()), 0);
        let mut other = ptr::null_mut();
        assert_eq!(code(open(&mut other, ptr::null())), ErrorCode::Busy as i32);
        let text = b"written by way of C";
        assert_eq!(
            narrows_device_pwrite(device, text.as_ptr().cast(), text.len(), 5000, NARROWS_FUA),
            0
        );
        assert_eq!(narrows_device_close(device), 0);

        let options = DiskOptions {
            struct_size: size_of::<DiskOptions>(),
            profile: 1,
            read_only: 1,
            no_recompress: 1,
            reserved: 0,
        };
        assert_eq!(open(&mut device, &raw const options), 0);
        assert_eq!(narrows_device_is_read_only(device), 1);
        let mut out = [0_u8; 19];
        assert_eq!(
            narrows_device_pread(device, out.as_mut_ptr().cast(), out.len(), 5000),
            0
        );
        assert_eq!(&out, text);
        let refused = narrows_device_pwrite(device, text.as_ptr().cast(), 1, 0, 0);
        assert_eq!(code(refused), ErrorCode::ReadOnly as i32);
        let mut extents = [Range {
            length: 0,
            hole: 9,
            zero: 9,
        }; 4];
        let found = narrows_device_extents(device, 32 << 20, 0, extents.as_mut_ptr(), 4);
        assert_eq!(found, 3);
        assert_eq!(
            [extents[0].hole, extents[1].hole, extents[2].hole],
            [1, 0, 1]
        );
        assert_eq!(
            extents[..3].iter().map(|extent| extent.length).sum::<u64>(),
            32 << 20
        );
        let mut size = 0;
        assert_eq!(narrows_device_size(device, &raw mut size), 0);
        assert_eq!(size, 32 << 20);
        assert_eq!(narrows_device_close(device), 0);
    }
}
