//! What programs ask of `libnvidia-ml.so.1`: which devices there are, and what they are called. It is the same library
//! under a second name, so both speak through one session.

use std::ffi::c_char;

use narrows_gpu_abi::Status;

use crate::{
    call::guard,
    ffi::{Answer, Handle, Out, Text, put_bytes},
    state::{client, init},
};

/// `NVML_ERROR_…`
const UNINITIALIZED: u32 = 1;
const INVALID_ARGUMENT: u32 = 2;
const NOT_SUPPORTED: u32 = 3;
const NOT_FOUND: u32 = 6;
const UNKNOWN: u32 = 999;
/// The device's handle.
const DEVICE: u64 = 0x6e76;

#[repr(C)]
#[derive(Clone, Copy)]
struct Memory {
    total: u64,
    free: u64,
    used: u64,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct Utilization {
    gpu: u32,
    memory: u32,
}

fn put_text(to: Out<c_char>, len: u32, text: &str) -> Answer {
    if (text.len() as u32) >= len {
        return Err(Status::INVALID_VALUE);
    }
    put_bytes(to.cast(), text.as_bytes())?;
    put_bytes(Out::at(to.address() + text.len()), &[0])
}

fn device(handle: Handle) -> Answer {
    if handle.value() == DEVICE {
        Ok(())
    } else {
        Err(Status::INVALID_VALUE)
    }
}

/// NVML has numbers of its own.
fn translate(status: u32) -> u32 {
    match Status(status) {
        Status::SUCCESS => 0,
        Status::NOT_INITIALIZED => UNINITIALIZED,
        Status::INVALID_VALUE | Status::INVALID_DEVICE => INVALID_ARGUMENT,
        Status::NOT_SUPPORTED => NOT_SUPPORTED,
        Status::NOT_FOUND | Status::NO_DEVICE => NOT_FOUND,
        _ => UNKNOWN,
    }
}

macro_rules! nvml {
    () => {};
    (@all [$($name:ident),*] $args:tt $body:block) => { $(nvml!(@one $name $args $body);)* };
    (@one $name:ident ($($arg:ident: $kind:ty),* $(,)?) $body:block) => {
        #[unsafe(no_mangle)]
        #[allow(non_snake_case, unused_variables, reason = "the names are those of nvml.h")]
        extern "C" fn $name($($arg: $kind),*) -> u32 {
            translate(guard(stringify!($name), false, || -> Answer { $body }))
        }
    };
    (fn $($name:ident),+ ($($args:tt)*) $body:block $($rest:tt)*) => {
        nvml!(@all [$($name),+] ($($args)*) $body);
        nvml!($($rest)*);
    };
}

fn info_text(handle: Handle, to: Out<c_char>, len: u32, text: &str) -> Answer {
    device(handle)?;
    put_text(to, len, text)
}

fn uuid() -> Answer<String> {
    let bytes = client()?.remote.info().uuid;
    let hex: Vec<_> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    let part = |range: std::ops::Range<usize>| hex[range].concat();
    Ok(format!(
        "GPU-{}-{}-{}-{}-{}",
        part(0..4),
        part(4..6),
        part(6..8),
        part(8..10),
        part(10..16)
    ))
}

nvml! {
    fn nvmlInit, nvmlInit_v2() {
        init()
    }

    fn nvmlInitWithFlags(flags: u32) {
        init()
    }

    fn nvmlShutdown() {
        client().map(drop)
    }

    fn nvmlSystemGetDriverVersion(to: Out<c_char>, len: u32) {
        // The series that brought this version of CUDA.
        let version = client()?.remote.info().driver_version;
        put_text(to, len, if version >= 13_000 { "580.00" } else { "550.00" })
    }

    fn nvmlSystemGetCudaDriverVersion, nvmlSystemGetCudaDriverVersion_v2(version: Out<i32>) {
        version.set(client()?.remote.info().driver_version as i32)
    }

    fn nvmlSystemGetNVMLVersion(to: Out<c_char>, len: u32) {
        put_text(to, len, "13.580.00")
    }

    fn nvmlDeviceGetCount, nvmlDeviceGetCount_v2(count: Out<u32>) {
        client()?;
        count.set(1)
    }

    fn nvmlDeviceGetHandleByIndex, nvmlDeviceGetHandleByIndex_v2(index: u32, to: Out<Handle>) {
        client()?.device(i32::try_from(index).unwrap_or(-1))?;
        to.set(Handle::new(DEVICE))
    }

    fn nvmlDeviceGetHandleByUUID(name: Text, to: Out<Handle>) {
        if name.get()? != uuid()? {
            return Err(Status::NOT_FOUND);
        }
        to.set(Handle::new(DEVICE))
    }

    fn nvmlDeviceGetHandleByPciBusId, nvmlDeviceGetHandleByPciBusId_v2(
        name: Text, to: Out<Handle>,
    ) {
        let ours = &client()?.remote.info().pci_bus_id;
        if !name.get()?.to_ascii_lowercase().ends_with(&ours.to_ascii_lowercase()) {
            return Err(Status::NOT_FOUND);
        }
        to.set(Handle::new(DEVICE))
    }

    fn nvmlDeviceGetIndex, nvmlDeviceGetMinorNumber(handle: Handle, index: Out<u32>) {
        device(handle)?;
        index.set(0)
    }

    fn nvmlDeviceGetName(handle: Handle, to: Out<c_char>, len: u32) {
        info_text(handle, to, len, &client()?.remote.info().name)
    }

    fn nvmlDeviceGetUUID(handle: Handle, to: Out<c_char>, len: u32) {
        info_text(handle, to, len, &uuid()?)
    }

    fn nvmlDeviceGetMemoryInfo(handle: Handle, to: Out<Memory>) {
        device(handle)?;
        let remote = &client()?.remote;
        let (free, total) = remote.ask(|call| narrows_gpu_wire::Request::MemInfo { call })?;
        to.set(Memory { total, free, used: total - free })
    }

    fn nvmlDeviceGetUtilizationRates(handle: Handle, to: Out<Utilization>) {
        device(handle)?;
        Err(Status::NOT_SUPPORTED)
    }

    fn nvmlDeviceGetCudaComputeCapability(handle: Handle, major: Out<i32>, minor: Out<i32>) {
        device(handle)?;
        let value = |id| client()?.attribute(id).ok_or(Status::NOT_SUPPORTED);
        major.set(value(75)?)?;
        minor.set(value(76)?)
    }

    fn nvmlDeviceGetComputeRunningProcesses, nvmlDeviceGetComputeRunningProcesses_v2,
        nvmlDeviceGetComputeRunningProcesses_v3(
        handle: Handle, count: Out<u32>, list: Out<u8>,
    ) {
        device(handle)?;
        count.set(0)
    }

    fn nvmlDeviceGetNvLinkState(handle: Handle, link: u32, state: Out<u32>) {
        device(handle)?;
        Err(Status::NOT_SUPPORTED)
    }
}

/// What an NVML number means.
#[unsafe(no_mangle)]
extern "C" fn nvmlErrorString(error: u32) -> *const c_char {
    let text = match error {
        0 => c"success",
        UNINITIALIZED => c"not initialized",
        INVALID_ARGUMENT => c"invalid argument",
        NOT_SUPPORTED => c"not supported",
        NOT_FOUND => c"not found",
        _ => c"unknown error",
    };
    text.as_ptr()
}
