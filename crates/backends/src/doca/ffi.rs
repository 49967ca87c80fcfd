//! DOCA's C interface, as far as we call it: core objects and the two DEFLATE tasks. Every object is opaque, so there
//! is no layout but that of `union doca_data`. Written from the public documentation; no header of DOCA was copied.
//!
//! Order of calls, as "DOCA Core" and "DOCA Compress" give it: device, progress engine, context with its tasks
//! configured, connected and started, memory mapped, inventory of buffers; for a chunk two buffers, a task, submit,
//! progress until a callback ran, free the task, give back the buffers; and down in the reverse order.

mod context;
mod opened;

use std::{
    ffi::{CStr, c_char, c_int, c_void},
    path::Path,
};

use narrows_core::Unavailable;

pub(super) use self::{context::Context, opened::Opened};
use crate::{
    device::Fault,
    library::{Source, functions},
};

const SOURCE: Source = Source {
    variable: "NARROWS_DOCA_LIB",
    sonames: &["libdoca_compress.so.3", "libdoca_compress.so.2"],
    hint: "NVIDIA DOCA 2.5 or later, on a host with a BlueField in DPU mode or on the DPU",
};

/// Any of DOCA's objects.
type Object = *mut c_void;
/// `doca_error_t`.
type Status = c_int;

/// `union doca_data`: a pointer or 64 bits, passed by value.
#[repr(C)]
#[derive(Clone, Copy)]
union Data {
    pointer: *mut c_void,
    number: u64,
}

const _: () = assert!(size_of::<Data>() == 8);

type Callback = extern "C" fn(Object, Data, Data);
type Create = unsafe extern "C" fn(*mut Object) -> Status;
type Give = unsafe extern "C" fn(Object) -> Status;
type Cast = unsafe extern "C" fn(Object) -> Object;
type Supported = unsafe extern "C" fn(Object) -> Status;
type MaxLen = unsafe extern "C" fn(Object, *mut u64) -> Status;
type Configure = unsafe extern "C" fn(Object, Callback, Callback, u32) -> Status;
type Allocate = unsafe extern "C" fn(Object, Object, Object, Data, *mut Object) -> Status;

functions! {
    /// The functions of an opened library. `buf_get_by_args` is the one that the header's inline helpers call.
    Library {
        version: unsafe extern "C" fn() -> *const c_char = "doca_version_runtime",
        list: unsafe extern "C" fn(*mut *mut Object, *mut u32) -> Status = "doca_devinfo_create_list",
        unlist: unsafe extern "C" fn(*mut Object) -> Status = "doca_devinfo_destroy_list",
        dev_open: unsafe extern "C" fn(Object, *mut Object) -> Status = "doca_dev_open",
        packs: Supported = "doca_compress_cap_task_compress_deflate_is_supported",
        pack_max: MaxLen = "doca_compress_cap_task_compress_deflate_get_max_buf_size",
        unpacks: Supported = "doca_compress_cap_task_decompress_deflate_is_supported",
        unpack_max: MaxLen = "doca_compress_cap_task_decompress_deflate_get_max_buf_size",
        compress_create: unsafe extern "C" fn(Object, *mut Object) -> Status = "doca_compress_create",
        compress_destroy: Give = "doca_compress_destroy",
        compress_as_ctx: Cast = "doca_compress_as_ctx",
        pack_conf: Configure = "doca_compress_task_compress_deflate_set_conf",
        pack_alloc: Allocate = "doca_compress_task_compress_deflate_alloc_init",
        pack_as_task: Cast = "doca_compress_task_compress_deflate_as_task",
        unpack_conf: Configure = "doca_compress_task_decompress_deflate_set_conf",
        unpack_alloc: Allocate = "doca_compress_task_decompress_deflate_alloc_init",
        unpack_as_task: Cast = "doca_compress_task_decompress_deflate_as_task",
        pe_create: Create = "doca_pe_create",
        pe_destroy: Give = "doca_pe_destroy",
        pe_connect: unsafe extern "C" fn(Object, Object) -> Status = "doca_pe_connect_ctx",
        pe_progress: unsafe extern "C" fn(Object) -> u8 = "doca_pe_progress",
        ctx_start: Give = "doca_ctx_start",
        ctx_stop: Give = "doca_ctx_stop",
        ctx_state: unsafe extern "C" fn(Object, *mut c_int) -> Status = "doca_ctx_get_state",
        task_submit: unsafe extern "C" fn(Object) -> Status = "doca_task_submit",
        task_status: unsafe extern "C" fn(Object) -> Status = "doca_task_get_status",
        task_free: unsafe extern "C" fn(Object) = "doca_task_free",
        mmap_create: Create = "doca_mmap_create",
        mmap_add_dev: unsafe extern "C" fn(Object, Object) -> Status = "doca_mmap_add_dev",
        mmap_set_permissions: unsafe extern "C" fn(Object, u32) -> Status = "doca_mmap_set_permissions",
        mmap_set_memrange: unsafe extern "C" fn(Object, *mut c_void, usize) -> Status = "doca_mmap_set_memrange",
        mmap_start: Give = "doca_mmap_start",
        mmap_destroy: Give = "doca_mmap_destroy",
        inventory_create: unsafe extern "C" fn(usize, *mut Object) -> Status = "doca_buf_inventory_create",
        inventory_start: Give = "doca_buf_inventory_start",
        inventory_destroy: Give = "doca_buf_inventory_destroy",
        buf_get: unsafe extern "C" fn(Object, Object, *mut c_void, usize, *mut c_void, usize, *mut Object) -> Status
            = "doca_buf_inventory_buf_get_by_args",
        buf_data_len: unsafe extern "C" fn(Object, *mut usize) -> Status = "doca_buf_get_data_len",
        buf_release: unsafe extern "C" fn(Object, *mut u16) -> Status = "doca_buf_dec_refcount",
    }
}

impl Library {
    /// Opens DOCA Compress, and with it what it depends on.
    pub(super) fn open(path: Option<&Path>) -> Result<&'static Self, Unavailable> {
        let handle = SOURCE.open(path)?;
        // SAFETY: the types are those of the documentation of 2.5 to 3.2; the version is checked before any is called.
        let library = unsafe { Self::load(handle) }.map_err(|error| SOURCE.missing(&error))?;
        // SAFETY: returns a string that lives as long as the library.
        let version = unsafe { CStr::from_ptr((library.version)()) }.to_string_lossy();
        let mut numbers = version
            .split('.')
            .map_while(|part| part.parse::<u32>().ok());
        match (numbers.next(), numbers.next()) {
            (Some(2), Some(5..)) | (Some(3), _) => Ok(library),
            _ => Err(Unavailable(format!(
                "DOCA {version}, of which only 2.5 to 3 are known here"
            ))),
        }
    }
}

const DOCA_SUCCESS: Status = 0;
const DOCA_ERROR_AGAIN: Status = 5;
const DOCA_ERROR_NO_MEMORY: Status = 7;
const DOCA_ERROR_IN_PROGRESS: Status = 26;
const CTX_STATE_IDLE: c_int = 0;
const ACCESS_LOCAL_READ_WRITE: u32 = 1;

fn check(status: Status) -> Result<(), Fault> {
    match status {
        DOCA_SUCCESS => Ok(()),
        DOCA_ERROR_AGAIN => Err(Fault::Busy),
        status => Err(Fault::Failed(status.into())),
    }
}
