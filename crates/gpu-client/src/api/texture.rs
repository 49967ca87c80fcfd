//! Texture objects over linear memory.

use narrows_gpu_abi::{
    Status,
    layout::{CUDA_RESOURCE_DESC, CUDA_TEXTURE_DESC},
};
use narrows_gpu_wire::{Request, Texture};

use crate::{
    call::{api, say_once},
    ffi::{Answer, In, Out},
    state::client,
};

/// What a texture was made of.
#[derive(Clone, Copy)]
pub(crate) struct Described {
    resource: CUDA_RESOURCE_DESC,
    texture: CUDA_TEXTURE_DESC,
}

/// `CU_RESOURCE_TYPE_LINEAR` and `…_PITCH2D`
const LINEAR: u32 = 2;
const PITCH_2D: u32 = 3;

fn element_len(format: u32, channels: u32) -> Answer<u64> {
    let len = match format {
        0x01 | 0x08 => 1,
        0x02 | 0x09 | 0x10 => 2,
        0x03 | 0x0a | 0x20 => 4,
        _ => return Err(Status::NOT_SUPPORTED),
    };
    Ok(len * u64::from(channels))
}

fn texture(resource: &CUDA_RESOURCE_DESC, how: &CUDA_TEXTURE_DESC) -> Answer<Texture> {
    let words = &resource.res;
    let (format, channels) = (words[1] as u32, (words[1] >> 32) as u32);
    let (width, height, pitch) = match resource.resType {
        LINEAR => (
            words[2] / element_len(format, channels)?.max(1),
            0,
            words[2],
        ),
        PITCH_2D => (words[2], words[3], words[4]),
        _ => {
            say_once("textures of CUDA arrays are not implemented, only those of linear memory");
            return Err(Status::NOT_SUPPORTED);
        }
    };
    Ok(Texture {
        base: words[0],
        format,
        channels,
        width,
        height,
        pitch,
        address_mode: how.addressMode,
        filter: how.filterMode,
        flags: how.flags,
    })
}

fn described(handle: u64) -> Answer<Described> {
    client()?
        .textures
        .lock()
        .get(&handle)
        .copied()
        .ok_or(Status::INVALID_VALUE)
}

api! {
    fn cuTexObjectCreate(
        to: Out<u64>, resource: In<CUDA_RESOURCE_DESC>, how: In<CUDA_TEXTURE_DESC>, view: In<u8>,
    ) {
        let client = client()?;
        let made = Described { resource: resource.get()?, texture: how.get()? };
        let texture = texture(&made.resource, &made.texture)?;
        let (handle, _) = client.remote.ask(|call| Request::TextureCreate { call, texture })?;
        client.textures.lock().insert(handle, made);
        to.set(handle)
    }

    fn cuTexObjectDestroy(handle: u64) {
        let client = client()?;
        client.textures.lock().remove(&handle).ok_or(Status::INVALID_VALUE)?;
        client.remote.send(&Request::TextureDestroy { handle })
    }

    fn cuTexObjectGetResourceDesc(to: Out<CUDA_RESOURCE_DESC>, handle: u64) {
        to.set(described(handle)?.resource)
    }

    fn cuTexObjectGetTextureDesc(to: Out<CUDA_TEXTURE_DESC>, handle: u64) {
        to.set(described(handle)?.texture)
    }
}
