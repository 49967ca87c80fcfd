//! The driver's library: opened by its path, its functions looked up by name.

use std::{
    ffi::{c_char, c_void},
    path::{Path, PathBuf},
    sync::Arc,
};

use libloading::{Library, Symbol};
use narrows_gpu_abi::Status;

use crate::Failure;

pub(super) type Ptr = *mut c_void;

/// The path that was asked for, then where systems have the driver. By absolute path first, since a library path may
/// hold this very project's client library.
const PLACES: [&str; 5] = [
    "/usr/lib/x86_64-linux-gnu/libcuda.so.1",
    "/usr/lib/aarch64-linux-gnu/libcuda.so.1",
    "/usr/lib64/libcuda.so.1",
    "/usr/lib/wsl/lib/libcuda.so.1",
    "libcuda.so.1",
];
/// What our own client library exports.
const MARKER: &[u8] = b"narrows_gpu_client";

macro_rules! functions {
    ($($(#[$meta:meta])* $field:ident $name:literal ($($kind:ty),*);)*) => {
        /// Functions of the driver that this back end calls.
        pub(super) struct Functions {
            $($(#[$meta])* pub(super) $field: unsafe extern "C" fn($($kind),*) -> u32,)*
        }

        impl Functions {
            fn load(library: &Library) -> Result<Self, Failure> {
                Ok(Self {
                    $($field: {
                        type Call = unsafe extern "C" fn($($kind),*) -> u32;
                        let name = concat!($name, "\0").as_bytes();
                        // SAFETY: names and parameters are those of NVIDIA's documented driver API.
                        let found: Result<Symbol<'_, Call>, _> = unsafe { library.get(name) };
                        *found.map_err(|_| missing($name))?
                    },)*
                })
            }
        }
    };
}

fn missing(name: &str) -> Failure {
    let text =
        format!("the driver has no {name}: it is older than CUDA 12.4, which this server needs");
    Failure::new(Status::NOT_SUPPORTED, text)
}

functions! {
    init "cuInit" (u32);
    version "cuDriverGetVersion" (*mut i32);
    device_get "cuDeviceGet" (*mut i32, i32);
    device_name "cuDeviceGetName" (*mut c_char, i32, i32);
    device_uuid "cuDeviceGetUuid_v2" (*mut [u8; 16], i32);
    device_memory "cuDeviceTotalMem_v2" (*mut usize, i32);
    device_attribute "cuDeviceGetAttribute" (*mut i32, u32, i32);
    device_pci "cuDeviceGetPCIBusId" (*mut c_char, i32, i32);
    ctx_create "cuCtxCreate_v2" (*mut Ptr, u32, i32);
    ctx_destroy "cuCtxDestroy_v2" (Ptr);
    ctx_set_current "cuCtxSetCurrent" (Ptr);
    ctx_sync "cuCtxSynchronize" ();
    mem_info "cuMemGetInfo_v2" (*mut usize, *mut usize);
    mem_alloc "cuMemAlloc_v2" (*mut u64, usize);
    mem_free "cuMemFree_v2" (u64);
    mem_free_async "cuMemFreeAsync" (u64, Ptr);
    host_alloc "cuMemHostAlloc" (*mut Ptr, usize, u32);
    host_free "cuMemFreeHost" (Ptr);
    copy_up "cuMemcpyHtoDAsync_v2" (u64, *const c_void, usize, Ptr);
    copy_down "cuMemcpyDtoHAsync_v2" (Ptr, u64, usize, Ptr);
    copy_within "cuMemcpyDtoDAsync_v2" (u64, u64, usize, Ptr);
    set_8 "cuMemsetD2D8Async" (u64, usize, u8, usize, usize, Ptr);
    set_16 "cuMemsetD2D16Async" (u64, usize, u16, usize, usize, Ptr);
    set_32 "cuMemsetD2D32Async" (u64, usize, u32, usize, usize, Ptr);
    stream_create "cuStreamCreateWithPriority" (*mut Ptr, u32, i32);
    stream_destroy "cuStreamDestroy_v2" (Ptr);
    stream_sync "cuStreamSynchronize" (Ptr);
    stream_query "cuStreamQuery" (Ptr);
    stream_wait "cuStreamWaitEvent" (Ptr, Ptr, u32);
    host_function "cuLaunchHostFunc" (Ptr, unsafe extern "C" fn(Ptr), Ptr);
    event_create "cuEventCreate" (*mut Ptr, u32);
    event_destroy "cuEventDestroy_v2" (Ptr);
    event_record "cuEventRecord" (Ptr, Ptr);
    event_sync "cuEventSynchronize" (Ptr);
    event_query "cuEventQuery" (Ptr);
    event_elapsed "cuEventElapsedTime" (*mut f32, Ptr, Ptr);
    module_load "cuModuleLoadDataEx" (*mut Ptr, *const c_void, u32, *const u32, *const Ptr);
    module_unload "cuModuleUnload" (Ptr);
    module_global "cuModuleGetGlobal_v2" (*mut u64, *mut usize, Ptr, *const c_char);
    module_count "cuModuleGetFunctionCount" (*mut u32, Ptr);
    module_functions "cuModuleEnumerateFunctions" (*mut Ptr, u32, Ptr);
    function_name "cuFuncGetName" (*mut *const c_char, Ptr);
    function_param "cuFuncGetParamInfo" (Ptr, usize, *mut usize, *mut usize);
    function_attribute "cuFuncGetAttribute" (*mut i32, u32, Ptr);
    function_set "cuFuncSetAttribute" (Ptr, u32, i32);
    occupancy "cuOccupancyMaxActiveBlocksPerMultiprocessor" (*mut i32, Ptr, i32, usize);
    launch "cuLaunchKernel"
        (Ptr, u32, u32, u32, u32, u32, u32, u32, Ptr, *mut Ptr, *mut Ptr);
    link_create "cuLinkCreate_v2" (u32, *const u32, *const Ptr, *mut Ptr);
    link_add "cuLinkAddData_v2"
        (Ptr, u32, *const c_void, usize, *const c_char, u32, *const u32, *const Ptr);
    link_complete "cuLinkComplete" (Ptr, *mut Ptr, *mut usize);
    link_destroy "cuLinkDestroy" (Ptr);
    texture_create "cuTexObjectCreate" (*mut u64, *const c_void, *const c_void, *const c_void);
    texture_destroy "cuTexObjectDestroy" (u64);
}

/// A driver, and the device of it that is served.
pub struct Driver {
    pub(super) calls: Functions,
    pub(super) device: i32,
    path: PathBuf,
    /// Holds the functions.
    _library: Library,
}

impl std::fmt::Debug for Driver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Driver")
            .field("path", &self.path)
            .finish_non_exhaustive()
    }
}

/// Which driver, and what of it.
#[derive(Debug, Clone, Default)]
pub struct Choice {
    /// The library; where systems have it, if not given.
    pub library: Option<PathBuf>,
    /// Which device, counted from 0.
    pub device: u32,
    /// Allow narrows' own client library: a GPU that is elsewhere is served again from here.
    pub relay: bool,
}

impl Driver {
    /// Opens the driver's library and one of its devices.
    ///
    /// # Errors
    /// In words, where there is none.
    pub fn open_library(choice: &Choice) -> Result<Arc<Self>, Failure> {
        let asked = choice.library.as_deref();
        let places =
            asked.map_or_else(|| PLACES.iter().map(Path::new).collect(), |path| vec![path]);
        let none = || {
            let text = match asked {
                Some(path) => format!("cannot open the driver at {}", path.display()),
                None => "no NVIDIA driver is installed (libcuda.so.1)".into(),
            };
            Failure::new(Status::NO_DEVICE, text)
        };
        let (path, library) = places
            .into_iter()
            // SAFETY: a driver's library starts nothing that this process could not bear when it is loaded.
            .find_map(|path| Some((path, unsafe { Library::new(path) }.ok()?)))
            .ok_or_else(none)?;
        // SAFETY: only whether it exists is asked.
        let own = unsafe { library.get::<unsafe extern "C" fn() -> u32>(MARKER) }.is_ok();
        if own && !choice.relay {
            let text = format!(
                "{} is narrows' own library for programs, which would ask this server again; unset LD_LIBRARY_PATH, \
                 or say --relay if it leads to another server",
                path.display()
            );
            return Err(Failure::new(Status::INVALID_VALUE, text));
        }
        let driver = Self {
            calls: Functions::load(&library)?,
            device: 0,
            path: path.into(),
            _library: library,
        };
        driver.start(choice.device)
    }

    fn start(mut self, ordinal: u32) -> Result<Arc<Self>, Failure> {
        let ordinal = i32::try_from(ordinal).unwrap_or(-1);
        // SAFETY: the API's own order: init, then a device; both write to what they are given.
        let status = unsafe {
            match (self.calls.init)(0) {
                0 => (self.calls.device_get)(&raw mut self.device, ordinal),
                status => status,
            }
        };
        Status(status).ok().map_err(|status| {
            let text = format!(
                "the driver at {} has no device {ordinal}: {status}",
                self.path.display()
            );
            Failure::new(status, text)
        })?;
        Ok(Arc::new(self))
    }
}
