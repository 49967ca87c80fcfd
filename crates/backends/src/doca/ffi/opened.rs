//! Which device: the one that packs, or at least unpacks.

use std::ptr;

use narrows_core::Unavailable;

use super::{DOCA_SUCCESS, Library, MaxLen, Object, Supported};

/// A device that packs or unpacks. It stays open as long as the process.
pub(in crate::doca) struct Opened {
    pub(super) library: &'static Library,
    pub(super) device: Object,
    /// Longest buffer to pack; `None` where the device does not pack.
    pub(in crate::doca) pack_max: Option<u64>,
    /// Longest buffer to unpack to or from.
    pub(in crate::doca) unpack_max: Option<u64>,
}

impl Opened {
    /// The first device that packs, else the first that unpacks.
    pub(in crate::doca) fn first(library: &'static Library) -> Result<Self, Unavailable> {
        let (mut list, mut len) = (ptr::null_mut(), 0);
        // SAFETY: writes an array and its length, both ours until the list is destroyed.
        let status = unsafe { (library.list)(&mut list, &mut len) };
        if status != DOCA_SUCCESS {
            return Err(Unavailable(format!(
                "DOCA lists no devices (status {status})"
            )));
        }
        let devices: Vec<Object> = if list.is_null() {
            Vec::new()
        } else {
            // SAFETY: the list holds `len` pointers.
            unsafe { std::slice::from_raw_parts(list, len as usize) }.to_vec()
        };
        let able = |supported: Supported, max: MaxLen, device: Object| {
            let mut bytes = 0;
            // SAFETY: the device is an element of the list, which is still there; `max` writes one number.
            let able = unsafe {
                supported(device) == DOCA_SUCCESS && max(device, &mut bytes) == DOCA_SUCCESS
            };
            able.then_some(bytes)
        };
        let (packs, unpacks) = (library.packs, library.unpacks);
        let info = devices
            .iter()
            .find(|device| able(packs, library.pack_max, **device).is_some())
            .or_else(|| {
                devices
                    .iter()
                    .find(|device| able(unpacks, library.unpack_max, **device).is_some())
            })
            .copied();
        let found = info.map(|info| {
            let mut device = ptr::null_mut();
            // SAFETY: `info` is an element of the list; writes one pointer.
            let status = unsafe { (library.dev_open)(info, &mut device) };
            let opened = Self {
                library,
                device,
                pack_max: able(packs, library.pack_max, info),
                unpack_max: able(unpacks, library.unpack_max, info),
            };
            (status, opened)
        });
        if !list.is_null() {
            // SAFETY: made by `list` and not used any more; an opened device does not need it.
            unsafe { (library.unlist)(list) };
        }
        match found {
            Some((DOCA_SUCCESS, opened)) => Ok(opened),
            Some((status, _)) => Err(Unavailable(format!(
                "the device cannot be opened (status {status})"
            ))),
            None => Err(Unavailable(format!(
                "of {} devices none packs or unpacks DEFLATE",
                devices.len()
            ))),
        }
    }
}

// SAFETY: a device may be used by any thread; contexts, which may not, are one a thread.
unsafe impl Send for Opened {}
// SAFETY: as above.
unsafe impl Sync for Opened {}
