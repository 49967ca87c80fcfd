//! What an address is: of the device, pinned, or of nobody that CUDA knows.

use narrows_gpu_abi::{
    Status,
    layout::{MEMORYTYPE_DEVICE, MEMORYTYPE_HOST},
};

use crate::{
    call::api,
    ffi::{Answer, In, Kind, Out},
    state::client,
};

/// Writes an attribute of an address to where its value goes.
fn attribute(id: u32, to: Out<u8>, address: u64) -> Answer {
    let client = client()?;
    let device = client.find(address);
    let pinned = client.pinned.find(address as usize);
    let word = |value: u32| to.cast::<u32>().set(value);
    let long = |value: u64| to.cast::<u64>().set(value);
    if device.is_none() && pinned.is_none() {
        return Err(Status::INVALID_VALUE);
    }
    match (id, device, pinned) {
        (1, Some((_, found)), _) => long(Kind::Context.handle(found.context).value()),
        (1, ..) => long(Kind::Context.handle(client.current()?.id).value()),
        (2, Some(_), _) => word(MEMORYTYPE_DEVICE),
        (2, ..) => word(MEMORYTYPE_HOST),
        (3, Some(_), _) | (4, None, _) => long(address),
        (3, ..) | (4, ..) => Err(Status::INVALID_VALUE),
        (6, ..) => word(0),
        (7, Some((_, found)), _) => long(found.id),
        (7, _, Some((base, _))) => long(base as u64),
        // Not managed, not for other processes or devices.
        (8, ..) | (10, ..) | (15, ..) | (21, ..) => to.set(0),
        (9, ..) => word(0),
        (11, Some((base, _)), _) => long(base),
        (11, _, Some((base, _))) => long(base as u64),
        (12, Some((_, found)), _) => long(found.len),
        (12, _, Some((_, found))) => long(found.len as u64),
        (13, ..) => to.set(1),
        (14, ..) => long(0),
        (16, ..) => word(3),
        (17, Some((_, found)), _) if found.pool != 0 => long(Kind::Pool.handle(found.pool).value()),
        (17, ..) => long(0),
        _ => Err(Status::NOT_SUPPORTED),
    }
}

/// As many bytes of zeros as the attribute has: what `cuPointerGetAttributes` gives of an address that nobody knows.
fn nothing(id: u32, to: Out<u8>) -> Answer {
    match id {
        2 | 6 | 16 => to.cast::<u32>().set(0),
        // CU_DEVICE_INVALID
        9 => to.cast::<i32>().set(-2),
        8 | 10 | 13 | 15 | 21 => to.set(0),
        _ => to.cast::<u64>().set(0),
    }
}

api! {
    fn cuPointerGetAttribute(to: Out<u8>, id: u32, address: u64) {
        attribute(id, to, address)
    }

    fn cuPointerGetAttributes(count: u32, ids: In<u32>, to: In<usize>, address: u64) {
        client()?;
        for at in 0..count as usize {
            let (id, to) = (ids.get_at(at)?, Out::at(to.get_at(at)?));
            attribute(id, to, address).or_else(|_| nothing(id, to))?;
        }
        Ok(())
    }

    fn cuPointerSetAttribute(value: In<u8>, id: u32, address: u64) {
        // CU_POINTER_ATTRIBUTE_SYNC_MEMOPS: copies here are as synchronous as it asks.
        client()?.find(address).map(drop).ok_or(Status::INVALID_VALUE)
    }
}
