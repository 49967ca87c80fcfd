//! Block devices: a disk on a file, and a RAM disk. Both are used alike.

use std::{
    ffi::{c_char, c_void},
    sync::atomic::{AtomicBool, Ordering},
};

use narrows_core::{
    BlockDevice,
    block::{Extent, Zeroing},
};
use narrows_disk::{Creation, Disk, Profile, Provision, Settings, backing, make};
use narrows_memory::{MemoryDisk, MemoryDiskConfig, Profile as PageProfile};

use crate::{
    boundary,
    error::{Error, ErrorCode, Reason},
    options::{self, DiskCreation, DiskOptions, MemoryOptions},
};

/// For pwrite, trim and zero: be durable before the call returns.
pub const NARROWS_FUA: u32 = 1;
/// For zero: keep the range provisioned.
pub const NARROWS_KEEP_ALLOCATED: u32 = 2;
/// For zero: fail rather than take as long as writing zeroes would.
pub const NARROWS_FAST_ONLY: u32 = 4;

/// A block device. Any number of threads may use it at once.
#[derive(Debug)]
pub struct Device {
    kind: Kind,
    /// A call panicked: what it left half done is not known.
    broken: AtomicBool,
}

#[derive(Debug)]
enum Kind {
    Disk(Disk),
    Memory(MemoryDisk),
    #[cfg(test)]
    Planted(Box<dyn BlockDevice>),
}

/// A run of bytes in one state.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Range {
    /// Length in bytes, at least 1.
    pub length: u64,
    /// 1: nothing is stored for it.
    pub hole: u32,
    /// 1: it reads as zeroes.
    pub zero: u32,
}

impl Device {
    fn new(kind: Kind) -> Self {
        let broken = AtomicBool::new(false);
        Self { kind, broken }
    }

    fn block_device(&self) -> &dyn BlockDevice {
        match &self.kind {
            Kind::Disk(disk) => disk,
            Kind::Memory(memory) => memory.device(),
            #[cfg(test)]
            Kind::Planted(device) => &**device,
        }
    }

    /// Runs one request. After a panic in one, none is run.
    fn request(
        &self,
        work: impl FnOnce(&dyn BlockDevice) -> Result<usize, Error>,
    ) -> Result<usize, Error> {
        /// Marks the device unless it is told that all went well.
        struct Mark<'a>(&'a AtomicBool);
        impl Drop for Mark<'_> {
            fn drop(&mut self) {
                if std::thread::panicking() {
                    self.0.store(true, Ordering::Release);
                }
            }
        }
        if self.broken.load(Ordering::Acquire) {
            return Err(ErrorCode::Internal.into());
        }
        let _mark = Mark(&self.broken);
        work(self.block_device())
    }
}

/// Makes a disk on a file, a block device or an image ("rbd:POOL/IMAGE"). A file that is not there is made. Fails with
/// NARROWS_ERROR_CODE_OCCUPIED if something is there. reason may be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn narrows_disk_create(
    name: *const c_char,
    creation: *const DiskCreation,
    reason: *mut Reason,
) -> usize {
    // SAFETY: the caller's promises, as the crate's head lists them.
    unsafe {
        boundary::call_with_reason(boundary::reason(reason), || {
            let creation = options::read(creation)?;
            let mut new = Creation::new(creation.size)
                .profile(disk_profile(creation.profile)?.unwrap_or_default())
                .force(options::flag("force", creation.force)?);
            if options::flag("guaranteed", creation.guaranteed)? {
                new = new.provision(Provision::Guaranteed);
            }
            let physical = (creation.physical > 0).then_some(creation.physical);
            make(boundary::text(name)?, physical, &new)?;
            Ok(0)
        })
    }
}

/// Opens a disk, after a crash too, as its only user. options may be null, and so may reason. Starts a thread, so a
/// program that forks does so first.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn narrows_disk_open(
    name: *const c_char,
    options: *const DiskOptions,
    device: *mut *mut Device,
    reason: *mut Reason,
) -> usize {
    // SAFETY: the caller's promises, as the crate's head lists them.
    unsafe {
        boundary::call_with_reason(boundary::reason(reason), || {
            boundary::hand_out(device, || {
                let mut settings = Settings::default();
                if !options.is_null() {
                    let options = options::read(options)?;
                    settings.profile = disk_profile(options.profile)?;
                    settings.read_only = options::flag("read_only", options.read_only)?;
                    settings.recompress = !options::flag("no_recompress", options.no_recompress)?;
                }
                let backing = backing::open(boundary::text(name)?)?;
                Ok(Device::new(Kind::Disk(Disk::open(backing, settings)?)))
            })
        })
    }
}

/// Makes an empty RAM disk whose pages are kept packed. It ends when it is closed. reason may be null. Starts threads,
/// so a program that forks does so first.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn narrows_memory_open(
    options: *const MemoryOptions,
    device: *mut *mut Device,
    reason: *mut Reason,
) -> usize {
    // SAFETY: the caller's promises, as the crate's head lists them.
    unsafe {
        boundary::call_with_reason(boundary::reason(reason), || {
            boundary::hand_out(device, || {
                let options = options::read(options)?;
                let mut config = MemoryDiskConfig::new(options.size);
                config.mem_limit = (options.mem_limit > 0).then_some(options.mem_limit);
                config.profile = page_profile(options.profile)?;
                config.recompress = !options::flag("no_recompress", options.no_recompress)?;
                if !options.backing.is_null() {
                    let limit = (options.backing_limit > 0).then_some(options.backing_limit);
                    config.backing = Some((boundary::text(options.backing)?.into(), limit));
                }
                Ok(Device::new(Kind::Memory(MemoryDisk::open(config)?)))
            })
        })
    }
}

/// Fills buffer with the bytes at offset; 0, or an error.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn narrows_device_pread(
    device: *const Device,
    buffer: *mut c_void,
    length: usize,
    offset: u64,
) -> usize {
    // SAFETY: the caller's promises, as the crate's head lists them.
    unsafe {
        boundary::call(|| {
            let (device, buffer) = (
                boundary::shared(device)?,
                boundary::bytes_mut(buffer.cast(), length)?,
            );
            device.request(|device| Ok(device.read(offset, buffer).map(|()| 0)?))
        })
    }
}

/// Writes the bytes of buffer at offset; 0, or an error. Volatile until narrows_device_flush() returns, or with
/// NARROWS_FUA until this does.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn narrows_device_pwrite(
    device: *const Device,
    buffer: *const c_void,
    length: usize,
    offset: u64,
    flags: u32,
) -> usize {
    // SAFETY: the caller's promises, as the crate's head lists them.
    unsafe {
        boundary::call(|| {
            let (device, buffer) = (
                boundary::shared(device)?,
                boundary::bytes(buffer.cast(), length)?,
            );
            let fua = check_flags(flags, NARROWS_FUA)? & NARROWS_FUA != 0;
            device.request(|device| Ok(device.write(offset, buffer, fua).map(|()| 0)?))
        })
    }
}

/// Makes every write that returned before durable; 0, or an error.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn narrows_device_flush(device: *const Device) -> usize {
    // SAFETY: the caller's promises, as the crate's head lists them.
    unsafe {
        boundary::call(|| {
            boundary::shared(device)?.request(|device| Ok(device.flush().map(|()| 0)?))
        })
    }
}

/// The content of the range is no longer wanted; 0, or an error. What it reads as is not said, but stable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn narrows_device_trim(
    device: *const Device,
    length: u64,
    offset: u64,
    flags: u32,
) -> usize {
    // SAFETY: the caller's promises, as the crate's head lists them.
    unsafe {
        boundary::call(|| {
            let fua = check_flags(flags, NARROWS_FUA)? & NARROWS_FUA != 0;
            let trim =
                |device: &dyn BlockDevice| Ok(device.trim(offset, length, fua).map(|()| 0)?);
            boundary::shared(device)?.request(trim)
        })
    }
}

/// The range reads as zeroes from now on; 0, or an error. flags: NARROWS_FUA, NARROWS_KEEP_ALLOCATED, NARROWS_FAST_ONLY.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn narrows_device_zero(
    device: *const Device,
    length: u64,
    offset: u64,
    flags: u32,
) -> usize {
    // SAFETY: the caller's promises, as the crate's head lists them.
    unsafe {
        boundary::call(|| {
            let all = NARROWS_FUA | NARROWS_KEEP_ALLOCATED | NARROWS_FAST_ONLY;
            let flags = check_flags(flags, all)?;
            let how = Zeroing {
                keep_allocated: flags & NARROWS_KEEP_ALLOCATED != 0,
                fast_only: flags & NARROWS_FAST_ONLY != 0,
            };
            let zero = |device: &dyn BlockDevice| {
                let fua = flags & NARROWS_FUA != 0;
                Ok(device.write_zeroes(offset, length, how, fua).map(|()| 0)?)
            };
            boundary::shared(device)?.request(zero)
        })
    }
}

/// Says in which state the range is, from its beginning: writes at most capacity extents and returns how many, at
/// least 1. They may end before the range does.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn narrows_device_extents(
    device: *const Device,
    length: u64,
    offset: u64,
    extents: *mut Range,
    capacity: usize,
) -> usize {
    // SAFETY: the caller's promises, as the crate's head lists them.
    unsafe {
        boundary::call(|| {
            let device = boundary::shared(device)?;
            if extents.is_null() {
                return Err(ErrorCode::NullPointer.into());
            }
            if capacity == 0 || length == 0 {
                return Err(ErrorCode::InvalidArgument.into());
            }
            device.request(|device| {
                let mut found = Vec::new();
                device.extents(offset, length, capacity.min(EXTENTS_MAX), &mut found)?;
                for (at, extent) in found.iter().enumerate() {
                    extents.add(at).write(range_of(extent));
                }
                Ok(found.len())
            })
        })
    }
}

/// Writes the size of the device in bytes; 0, or an error.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn narrows_device_size(device: *const Device, size: *mut u64) -> usize {
    // SAFETY: the caller's promises, as the crate's head lists them.
    unsafe {
        boundary::call(|| {
            let device = boundary::shared(device)?;
            if size.is_null() {
                return Err(ErrorCode::NullPointer.into());
            }
            size.write(device.block_device().shape().size);
            Ok(0)
        })
    }
}

/// 1 if the device takes no writes, 0 if it does, or an error.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn narrows_device_is_read_only(device: *const Device) -> usize {
    // SAFETY: the caller's promises, as the crate's head lists them.
    unsafe {
        boundary::call(|| {
            let shape = boundary::shared(device)?.block_device().shape();
            Ok(usize::from(shape.read_only))
        })
    }
}

/// Makes everything durable and frees the device, whatever is returned: 0, or the error of the last writes. What was
/// flushed before is safe all the same. A null pointer is no error.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn narrows_device_close(device: *mut Device) -> usize {
    // SAFETY: the caller's promises, as the crate's head lists them.
    unsafe {
        boundary::call(|| {
            let Some(device) = boundary::take_back(device) else {
                return Ok(0);
            };
            if let Kind::Disk(disk) = &device.kind {
                disk.close()?;
            }
            Ok(0)
        })
    }
}

/// More extents than a caller can use at once.
const EXTENTS_MAX: usize = 1 << 16;

fn range_of(extent: &Extent) -> Range {
    Range {
        length: extent.len,
        hole: extent.hole.into(),
        zero: extent.zero.into(),
    }
}

fn check_flags(flags: u32, allowed: u32) -> Result<u32, Error> {
    if flags & !allowed != 0 {
        return Err(options::out_of_bounds("flags", flags.into()));
    }
    Ok(flags)
}

fn disk_profile(number: u32) -> Result<Option<Profile>, Error> {
    Ok(match number {
        0 => None,
        1 => Some(Profile::Fast),
        2 => Some(Profile::Balanced),
        3 => Some(Profile::Dense),
        _ => return Err(options::out_of_bounds("profile", number.into())),
    })
}

fn page_profile(number: u32) -> Result<PageProfile, Error> {
    Ok(match number {
        1 => PageProfile::Fast,
        2 => PageProfile::Balanced,
        0 | 3 => PageProfile::Dense,
        4 => PageProfile::Ratio,
        _ => return Err(options::out_of_bounds("profile", number.into())),
    })
}

#[cfg(test)]
mod tests;
