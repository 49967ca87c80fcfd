//! Devices: everything is in the snapshot that came with the session.

use std::ffi::c_char;

use narrows_gpu_abi::{
    Status,
    layout::{CUdevprop, CUuuid},
};

use crate::{
    call::api,
    ffi::{Answer, Handle, In, Out, Text, put_bytes},
    state::{Primary, client, init},
};

/// Writes a string into a program's buffer, cut to its length.
fn put_text(to: Out<c_char>, len: i32, text: &str) -> Answer {
    let len = usize::try_from(len).map_err(|_| Status::INVALID_VALUE)?;
    let room = len.checked_sub(1).ok_or(Status::INVALID_VALUE)?;
    let mut bytes = text.as_bytes()[..text.len().min(room)].to_vec();
    bytes.push(0);
    put_bytes(to.cast(), &bytes)
}

fn attribute(id: u32) -> Answer<i32> {
    client()?.attribute(id).ok_or(Status::INVALID_VALUE)
}

const MAX_THREADS: u32 = 1;
const MAJOR: u32 = 75;
const MINOR: u32 = 76;

api! {
    fn cuInit(flags: u32) {
        if flags == 0 { init() } else { Err(Status::INVALID_VALUE) }
    }

    fn cuDriverGetVersion(version: Out<i32>) {
        // Asked before cuInit, too; then it connects.
        init()?;
        version.set(client()?.remote.info().driver_version as i32)
    }

    fn cuDeviceGetCount(count: Out<i32>) {
        client()?;
        count.set(1)
    }

    fn cuDeviceGet(device: Out<i32>, ordinal: i32) {
        client()?.device(ordinal)?;
        device.set(ordinal)
    }

    fn cuDeviceGetName(name: Out<c_char>, len: i32, device: i32) {
        client()?.device(device)?;
        put_text(name, len, &client()?.remote.info().name)
    }

    fn cuDeviceGetUuid, cuDeviceGetUuid_v2(uuid: Out<CUuuid>, device: i32) {
        client()?.device(device)?;
        let bytes = client()?.remote.info().uuid;
        uuid.set(CUuuid { bytes })
    }

    fn cuDeviceGetLuid(luid: Out<c_char>, mask: Out<u32>, device: i32) {
        // Windows only, as with the real driver.
        Err(Status::NOT_SUPPORTED)
    }

    fn cuDeviceTotalMem(bytes: Out<u32>, device: i32) {
        client()?.device(device)?;
        bytes.set(u32::try_from(client()?.remote.info().memory).unwrap_or(u32::MAX))
    }

    fn cuDeviceTotalMem_v2(bytes: Out<usize>, device: i32) {
        client()?.device(device)?;
        bytes.set(client()?.remote.info().memory as usize)
    }

    fn cuDeviceGetAttribute(value: Out<i32>, id: u32, device: i32) {
        client()?.device(device)?;
        value.set(attribute(id)?)
    }

    fn cuDeviceComputeCapability(major: Out<i32>, minor: Out<i32>, device: i32) {
        client()?.device(device)?;
        major.set(attribute(MAJOR)?)?;
        minor.set(attribute(MINOR)?)
    }

    fn cuDeviceGetProperties(properties: Out<CUdevprop>, device: i32) {
        client()?.device(device)?;
        properties.set(CUdevprop {
            maxThreadsPerBlock: attribute(MAX_THREADS)?,
            maxThreadsDim: [attribute(2)?, attribute(3)?, attribute(4)?],
            maxGridSize: [attribute(5)?, attribute(6)?, attribute(7)?],
            sharedMemPerBlock: attribute(8)?,
            totalConstantMemory: attribute(9)?,
            SIMDWidth: attribute(10)?,
            memPitch: attribute(11)?,
            regsPerBlock: attribute(12)?,
            clockRate: attribute(13)?,
            textureAlign: attribute(14)?,
        })
    }

    fn cuDeviceGetPCIBusId(name: Out<c_char>, len: i32, device: i32) {
        client()?.device(device)?;
        put_text(name, len, &client()?.remote.info().pci_bus_id)
    }

    fn cuDeviceGetByPCIBusId(device: Out<i32>, name: Text) {
        let ours = client()?.remote.info().pci_bus_id.to_ascii_lowercase();
        let asked = name.get()?.to_ascii_lowercase();
        if ours == asked || ours.trim_start_matches("0000:") == asked {
            device.set(0)
        } else {
            Err(Status::INVALID_DEVICE)
        }
    }

    fn cuDeviceCanAccessPeer(can: Out<i32>, device: i32, peer: i32) {
        client()?.device(device)?;
        client()?.device(peer)?;
        can.set(0)
    }

    fn cuDeviceGetP2PAttribute(value: Out<i32>, attribute: u32, from: i32, to: i32) {
        // There is one device, and no device is its own peer.
        Err(Status::INVALID_DEVICE)
    }

    fn cuDeviceGetExecAffinitySupport(value: Out<i32>, kind: u32, device: i32) {
        client()?.device(device)?;
        value.set(0)
    }

    fn cuDeviceGetTexture1DLinearMaxWidth(
        width: Out<usize>, format: u32, channels: u32, device: i32,
    ) {
        client()?.device(device)?;
        width.set(attribute(69)? as usize)
    }

    fn cuDevicePrimaryCtxRetain(context: Out<Handle>, device: i32) {
        let client = client()?;
        client.device(device)?;
        let mut primary = client.primary.lock();
        let flags = primary.flags;
        let held = primary.context.get_or_insert_with(|| client.context_new(flags));
        let handle = crate::ffi::Kind::Context.handle(held.id);
        primary.retained += 1;
        context.set(handle)
    }

    fn cuDevicePrimaryCtxRelease, cuDevicePrimaryCtxRelease_v2(device: i32) {
        let client = client()?;
        client.device(device)?;
        let mut primary = client.primary.lock();
        primary.retained = primary.retained.checked_sub(1).ok_or(Status::INVALID_CONTEXT)?;
        if primary.retained > 0 {
            return Ok(());
        }
        let ended = primary.context.take();
        drop(primary);
        ended.map_or(Ok(()), |context| client.context_end(&context))
    }

    fn cuDevicePrimaryCtxReset, cuDevicePrimaryCtxReset_v2(device: i32) {
        let client = client()?;
        client.device(device)?;
        let Primary { context, .. } = std::mem::take(&mut *client.primary.lock());
        context.map_or(Ok(()), |context| client.context_end(&context))
    }

    fn cuDevicePrimaryCtxSetFlags, cuDevicePrimaryCtxSetFlags_v2(device: i32, flags: u32) {
        let client = client()?;
        client.device(device)?;
        client.primary.lock().flags = flags;
        Ok(())
    }

    fn cuDevicePrimaryCtxGetState(device: i32, flags: Out<u32>, active: Out<i32>) {
        let client = client()?;
        client.device(device)?;
        let primary = client.primary.lock();
        flags.offer(primary.flags);
        active.set(i32::from(primary.context.is_some()))
    }

    fn cuProfilerStart, cuProfilerStop() {
        client().map(drop)
    }

    fn cuDeviceGetGraphMemAttribute(device: i32, attribute: u32, value: Out<u64>) {
        client()?.device(device)?;
        value.set(0)
    }

    fn cuDeviceGraphMemTrim(device: i32) {
        client()?.device(device)
    }

    fn cuFlushGPUDirectRDMAWrites(target: u32, scope: u32) {
        client().map(drop)
    }

    fn cuLogsRegisterCallback(callback: In<u8>, data: In<u8>, handle: Out<Handle>) {
        client()?;
        handle.offer(Handle::new(1));
        Ok(())
    }

    fn cuLogsUnregisterCallback(handle: Handle) {
        client().map(drop)
    }
}
