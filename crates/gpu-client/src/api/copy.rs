//! Copies: 1-D, 2-D and 3-D, between any two places.

use narrows_gpu_abi::{
    Status,
    layout::{
        CUDA_MEMCPY2D, CUDA_MEMCPY3D, CUdeviceptr, MEMORYTYPE_DEVICE, MEMORYTYPE_HOST,
        MEMORYTYPE_UNIFIED,
    },
};
use narrows_gpu_wire::Span;

use crate::{
    call::{api, say_once},
    ffi::{Answer, Handle, In, Out},
    state::client,
    task::{Mode, Place, Task, span},
};

/// A range, on the side that its address says.
fn anywhere(address: u64, len: usize) -> Answer<Place> {
    let range = Span::linear(address, len as u64);
    Ok(if client()?.is_device(address) {
        Place::Device(range)
    } else {
        Place::Host(range)
    })
}

fn host(address: usize, len: usize) -> Place {
    Place::Host(Span::linear(address as u64, len as u64))
}

fn device(address: u64, len: usize) -> Place {
    Place::Device(Span::linear(address, len as u64))
}

fn copy(to: Place, from: Place, stream: Handle, mode: Mode) -> Answer {
    let client = client()?;
    let stream = client.stream(stream)?;
    match mode {
        Mode::Sync => client.copy(&stream, to, from, mode),
        Mode::Async => client.submit(&stream, Task::Copy { to, from }),
    }
}

/// One side of a 2-D or 3-D copy.
struct Side {
    kind: u32,
    host: usize,
    device: u64,
    origin: [usize; 3],
    pitch: usize,
    height: usize,
}

impl Side {
    fn place(&self, extent: [usize; 3]) -> Answer<Place> {
        let wide = |value: [usize; 3]| value.map(|value| value as u64);
        // A pitch or height of 0 means rows and slices without gaps.
        let pitch = if self.pitch == 0 {
            self.origin[0] + extent[0]
        } else {
            self.pitch
        };
        let height = if self.height == 0 {
            self.origin[1] + extent[1]
        } else {
            self.height
        };
        let at = |base| {
            span(
                base,
                wide(self.origin),
                pitch as u64,
                height as u64,
                wide(extent),
            )
        };
        Ok(match self.kind {
            MEMORYTYPE_HOST => Place::Host(at(self.host as u64)?),
            MEMORYTYPE_DEVICE => Place::Device(at(self.device)?),
            MEMORYTYPE_UNIFIED if client()?.is_device(self.device) => {
                Place::Device(at(self.device)?)
            }
            MEMORYTYPE_UNIFIED => Place::Host(at(self.device)?),
            _ => {
                say_once("copies from and to CUDA arrays are not implemented");
                return Err(Status::NOT_SUPPORTED);
            }
        })
    }
}

fn copy_2d(params: In<CUDA_MEMCPY2D>, stream: Handle, mode: Mode) -> Answer {
    let asked = params.get()?;
    let extent = [asked.WidthInBytes, asked.Height, 1];
    let from = Side {
        kind: asked.srcMemoryType,
        host: asked.srcHost as usize,
        device: asked.srcDevice,
        origin: [asked.srcXInBytes, asked.srcY, 0],
        pitch: asked.srcPitch,
        height: 0,
    };
    let to = Side {
        kind: asked.dstMemoryType,
        host: asked.dstHost as usize,
        device: asked.dstDevice,
        origin: [asked.dstXInBytes, asked.dstY, 0],
        pitch: asked.dstPitch,
        height: 0,
    };
    copy(to.place(extent)?, from.place(extent)?, stream, mode)
}

/// The two places of a 3-D copy.
pub(crate) fn places_3d(asked: &CUDA_MEMCPY3D) -> Answer<(Place, Place)> {
    let extent = [asked.WidthInBytes, asked.Height, asked.Depth];
    let from = Side {
        kind: asked.srcMemoryType,
        host: asked.srcHost as usize,
        device: asked.srcDevice,
        origin: [asked.srcXInBytes, asked.srcY, asked.srcZ],
        pitch: asked.srcPitch,
        height: asked.srcHeight,
    };
    let to = Side {
        kind: asked.dstMemoryType,
        host: asked.dstHost as usize,
        device: asked.dstDevice,
        origin: [asked.dstXInBytes, asked.dstY, asked.dstZ],
        pitch: asked.dstPitch,
        height: asked.dstHeight,
    };
    Ok((to.place(extent)?, from.place(extent)?))
}

fn copy_3d(params: In<CUDA_MEMCPY3D>, stream: Handle, mode: Mode) -> Answer {
    let (to, from) = places_3d(&params.get()?)?;
    copy(to, from, stream, mode)
}

api! {
    fn cuMemcpy; cuMemcpy_ptds(to: CUdeviceptr, from: CUdeviceptr, len: usize) {
        copy(anywhere(to, len)?, anywhere(from, len)?, Handle::NULL, Mode::Sync)
    }

    fn cuMemcpyAsync; cuMemcpyAsync_ptsz(
        to: CUdeviceptr, from: CUdeviceptr, len: usize, stream: Handle,
    ) {
        copy(anywhere(to, len)?, anywhere(from, len)?, stream, Mode::Async)
    }

    fn cuMemcpyHtoD_v2; cuMemcpyHtoD_v2_ptds(to: CUdeviceptr, from: In<u8>, len: usize) {
        copy(device(to, len), host(from.address(), len), Handle::NULL, Mode::Sync)
    }

    fn cuMemcpyHtoDAsync_v2; cuMemcpyHtoDAsync_v2_ptsz(
        to: CUdeviceptr, from: In<u8>, len: usize, stream: Handle,
    ) {
        copy(device(to, len), host(from.address(), len), stream, Mode::Async)
    }

    fn cuMemcpyDtoH_v2; cuMemcpyDtoH_v2_ptds(to: Out<u8>, from: CUdeviceptr, len: usize) {
        copy(host(to.address(), len), device(from, len), Handle::NULL, Mode::Sync)
    }

    fn cuMemcpyDtoHAsync_v2; cuMemcpyDtoHAsync_v2_ptsz(
        to: Out<u8>, from: CUdeviceptr, len: usize, stream: Handle,
    ) {
        copy(host(to.address(), len), device(from, len), stream, Mode::Async)
    }

    fn cuMemcpyDtoD_v2; cuMemcpyDtoD_v2_ptds(to: CUdeviceptr, from: CUdeviceptr, len: usize) {
        copy(device(to, len), device(from, len), Handle::NULL, Mode::Sync)
    }

    fn cuMemcpyDtoDAsync_v2; cuMemcpyDtoDAsync_v2_ptsz(
        to: CUdeviceptr, from: CUdeviceptr, len: usize, stream: Handle,
    ) {
        copy(device(to, len), device(from, len), stream, Mode::Async)
    }

    fn cuMemcpyPeer; cuMemcpyPeer_ptds(
        to: CUdeviceptr, there: Handle, from: CUdeviceptr, here: Handle, len: usize,
    ) {
        copy(device(to, len), device(from, len), Handle::NULL, Mode::Sync)
    }

    fn cuMemcpyPeerAsync; cuMemcpyPeerAsync_ptsz(
        to: CUdeviceptr, there: Handle, from: CUdeviceptr, here: Handle, len: usize,
        stream: Handle,
    ) {
        copy(device(to, len), device(from, len), stream, Mode::Async)
    }

    fn cuMemcpy2D_v2, cuMemcpy2DUnaligned_v2; cuMemcpy2D_v2_ptds, cuMemcpy2DUnaligned_v2_ptds(
        params: In<CUDA_MEMCPY2D>,
    ) {
        copy_2d(params, Handle::NULL, Mode::Sync)
    }

    fn cuMemcpy2DAsync_v2; cuMemcpy2DAsync_v2_ptsz(params: In<CUDA_MEMCPY2D>, stream: Handle) {
        copy_2d(params, stream, Mode::Async)
    }

    fn cuMemcpy3D_v2; cuMemcpy3D_v2_ptds(params: In<CUDA_MEMCPY3D>) {
        copy_3d(params, Handle::NULL, Mode::Sync)
    }

    fn cuMemcpy3DAsync_v2; cuMemcpy3DAsync_v2_ptsz(params: In<CUDA_MEMCPY3D>, stream: Handle) {
        copy_3d(params, stream, Mode::Async)
    }
}
