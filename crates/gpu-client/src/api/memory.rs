//! Memory of the device, and pinned memory of the program.

use narrows_gpu_abi::{Status, layout::CUdeviceptr};
use narrows_gpu_wire::{Request, Span};

use crate::{
    call::{api, say_once},
    ffi::{Answer, Handle, Out},
    state::client,
    task::{Task, span},
};

/// Rows of pitched memory begin at a multiple of this, as texture alignment asks.
const PITCH_ALIGN: usize = 512;
/// `CU_MEMHOSTALLOC_DEVICEMAP`, also `CU_MEMHOSTREGISTER_DEVICEMAP`.
const DEVICE_MAP: u32 = 2;

fn refuse_mapping() -> Status {
    say_once(
        "memory that both the program and the GPU see (zero-copy or managed) does not exist over a network; \
         the device's attributes say so; copy instead",
    );
    Status::NOT_SUPPORTED
}

fn host_alloc(to: Out<usize>, len: usize, flags: u32) -> Answer {
    let client = client()?;
    client.current()?;
    to.set(client.pinned.alloc(len, flags)?)
}

/// Fills elements in `(width, height)`; `pitch` is in bytes.
fn memset(
    dst: u64,
    pitch: usize,
    element: u32,
    value: u32,
    size: [usize; 2],
    stream: Handle,
) -> Answer {
    let client = client()?;
    let stream = client.stream(stream)?;
    let row = (size[0] as u64)
        .checked_mul(element.into())
        .ok_or(Status::INVALID_VALUE)?;
    let to = if size[1] == 1 {
        Span::linear(dst, row)
    } else {
        span(
            dst,
            [0; 3],
            pitch as u64,
            size[1] as u64,
            [row, size[1] as u64, 1],
        )?
    };
    if !dst.is_multiple_of(u64::from(element)) {
        return Err(Status::INVALID_VALUE);
    }
    client.check_span(&to)?;
    if row == 0 || size[1] == 0 {
        return Ok(());
    }
    client.submit(&stream, Task::Memset { to, element, value })
}

api! {
    fn cuMemAlloc_v2(to: Out<CUdeviceptr>, len: usize) {
        to.set(client()?.alloc(len as u64, 0)?)
    }

    fn cuMemAllocPitch_v2(
        to: Out<CUdeviceptr>, pitch: Out<usize>, width: usize, height: usize, element: u32,
    ) {
        let row = width.checked_next_multiple_of(PITCH_ALIGN).ok_or(Status::INVALID_VALUE)?;
        let len = row.checked_mul(height).ok_or(Status::INVALID_VALUE)?;
        to.set(client()?.alloc(len as u64, 0)?)?;
        pitch.set(row)
    }

    fn cuMemFree_v2(address: CUdeviceptr) {
        if address == 0 { Ok(()) } else { client()?.free(address, None) }
    }

    fn cuMemGetInfo_v2(free: Out<usize>, total: Out<usize>) {
        let client = client()?;
        client.current()?;
        let (left, all) = client.remote.ask(|call| Request::MemInfo { call })?;
        free.offer(left as usize);
        total.offer(all as usize);
        Ok(())
    }

    fn cuMemGetAddressRange_v2(base: Out<CUdeviceptr>, len: Out<usize>, address: CUdeviceptr) {
        let (found, allocation) = client()?.find(address).ok_or(Status::NOT_FOUND)?;
        base.offer(found);
        len.offer(allocation.len as usize);
        Ok(())
    }

    fn cuMemAllocHost_v2(to: Out<usize>, len: usize) {
        host_alloc(to, len, 0)
    }

    fn cuMemHostAlloc(to: Out<usize>, len: usize, flags: u32) {
        if flags & DEVICE_MAP != 0 {
            return Err(refuse_mapping());
        }
        host_alloc(to, len, flags)
    }

    fn cuMemFreeHost(address: Out<u8>) {
        client()?.pinned.free(address.address())
    }

    fn cuMemHostRegister_v2(address: Out<u8>, len: usize, flags: u32) {
        if flags & DEVICE_MAP != 0 {
            return Err(refuse_mapping());
        }
        client()?.pinned.register(address.address(), len, flags)
    }

    fn cuMemHostUnregister(address: Out<u8>) {
        client()?.pinned.unregister(address.address())
    }

    fn cuMemHostGetFlags(flags: Out<u32>, address: Out<u8>) {
        let found = client()?.pinned.find(address.address());
        flags.set(found.ok_or(Status::INVALID_VALUE)?.1.flags)
    }

    fn cuMemHostGetDevicePointer_v2(to: Out<CUdeviceptr>, address: Out<u8>, flags: u32) {
        client()?;
        Err(refuse_mapping())
    }

    fn cuMemAllocManaged(to: Out<CUdeviceptr>, len: usize, flags: u32) {
        client()?;
        Err(refuse_mapping())
    }

    fn cuMemsetD8_v2; cuMemsetD8_v2_ptds(dst: CUdeviceptr, value: u8, count: usize) {
        memset(dst, 0, 1, value.into(), [count, 1], Handle::NULL)
    }

    fn cuMemsetD16_v2; cuMemsetD16_v2_ptds(dst: CUdeviceptr, value: u16, count: usize) {
        memset(dst, 0, 2, value.into(), [count, 1], Handle::NULL)
    }

    fn cuMemsetD32_v2; cuMemsetD32_v2_ptds(dst: CUdeviceptr, value: u32, count: usize) {
        memset(dst, 0, 4, value, [count, 1], Handle::NULL)
    }

    fn cuMemsetD8Async; cuMemsetD8Async_ptsz(
        dst: CUdeviceptr, value: u8, count: usize, stream: Handle,
    ) {
        memset(dst, 0, 1, value.into(), [count, 1], stream)
    }

    fn cuMemsetD16Async; cuMemsetD16Async_ptsz(
        dst: CUdeviceptr, value: u16, count: usize, stream: Handle,
    ) {
        memset(dst, 0, 2, value.into(), [count, 1], stream)
    }

    fn cuMemsetD32Async; cuMemsetD32Async_ptsz(
        dst: CUdeviceptr, value: u32, count: usize, stream: Handle,
    ) {
        memset(dst, 0, 4, value, [count, 1], stream)
    }

    fn cuMemsetD2D8_v2; cuMemsetD2D8_v2_ptds(
        dst: CUdeviceptr, pitch: usize, value: u8, width: usize, height: usize,
    ) {
        memset(dst, pitch, 1, value.into(), [width, height], Handle::NULL)
    }

    fn cuMemsetD2D16_v2; cuMemsetD2D16_v2_ptds(
        dst: CUdeviceptr, pitch: usize, value: u16, width: usize, height: usize,
    ) {
        memset(dst, pitch, 2, value.into(), [width, height], Handle::NULL)
    }

    fn cuMemsetD2D32_v2; cuMemsetD2D32_v2_ptds(
        dst: CUdeviceptr, pitch: usize, value: u32, width: usize, height: usize,
    ) {
        memset(dst, pitch, 4, value, [width, height], Handle::NULL)
    }

    fn cuMemsetD2D8Async; cuMemsetD2D8Async_ptsz(
        dst: CUdeviceptr, pitch: usize, value: u8, width: usize, height: usize, stream: Handle,
    ) {
        memset(dst, pitch, 1, value.into(), [width, height], stream)
    }

    fn cuMemsetD2D16Async; cuMemsetD2D16Async_ptsz(
        dst: CUdeviceptr, pitch: usize, value: u16, width: usize, height: usize, stream: Handle,
    ) {
        memset(dst, pitch, 2, value.into(), [width, height], stream)
    }

    fn cuMemsetD2D32Async; cuMemsetD2D32Async_ptsz(
        dst: CUdeviceptr, pitch: usize, value: u32, width: usize, height: usize, stream: Handle,
    ) {
        memset(dst, pitch, 4, value, [width, height], stream)
    }
}
