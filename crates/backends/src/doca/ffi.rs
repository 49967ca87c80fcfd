//! DOCA's C interface, as far as we call it: core objects and the two DEFLATE tasks. Every object is opaque, so there is no
//! layout but that of `union doca_data`. Written from the public documentation; no header of DOCA was copied.
//!
//! Order of calls, as "DOCA Core" and "DOCA Compress" give it: device, progress engine, context with its tasks
//! configured, connected and started, memory mapped, inventory of buffers; for a chunk two buffers, a task, submit,
//! progress until a callback ran, free the task, give back the buffers; and down in the reverse order.

use std::{
    ffi::{CStr, c_char, c_int, c_void},
    path::Path,
    ptr,
};

use narrows_core::Unavailable;

use crate::{
    device::{Fault, Session, Unpacked, Wait},
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
    pub(super) fn open(path: Option<&Path>) -> Result<Self, Unavailable> {
        let handle = SOURCE.open(path)?;
        // SAFETY: the types are those of the documentation of 2.5 to 3.2; the version is checked before any is called.
        let library = unsafe { Self::load(handle) }.map_err(|error| SOURCE.missing(&error))?;
        // SAFETY: returns a string that lives as long as the library.
        let version = unsafe { CStr::from_ptr((library.version)()) }.to_string_lossy();
        let mut numbers = version.split('.').map_while(|part| part.parse::<u32>().ok());
        match (numbers.next(), numbers.next()) {
            (Some(2), Some(5..)) | (Some(3), _) => Ok(library),
            _ => Err(Unavailable(format!("DOCA {version}, of which only 2.5 to 3 are known here"))),
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

/// A device that packs or unpacks. It stays open as long as the process.
pub(super) struct Opened {
    library: &'static Library,
    device: Object,
    /// Longest buffer to pack; `None` where the device does not pack.
    pub(super) pack_max: Option<u64>,
    /// Longest buffer to unpack to or from.
    pub(super) unpack_max: Option<u64>,
}

impl Opened {
    /// The first device that packs, else the first that unpacks.
    pub(super) fn first(library: &'static Library) -> Result<Self, Unavailable> {
        let (mut list, mut len) = (ptr::null_mut(), 0);
        // SAFETY: writes an array and its length, both ours until the list is destroyed.
        let status = unsafe { (library.list)(&mut list, &mut len) };
        if status != DOCA_SUCCESS {
            return Err(Unavailable(format!("DOCA lists no devices (status {status})")));
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
            let able = unsafe { supported(device) == DOCA_SUCCESS && max(device, &mut bytes) == DOCA_SUCCESS };
            able.then_some(bytes)
        };
        let (packs, unpacks) = (library.packs, library.unpacks);
        let info = devices
            .iter()
            .find(|device| able(packs, library.pack_max, **device).is_some())
            .or_else(|| devices.iter().find(|device| able(unpacks, library.unpack_max, **device).is_some()))
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
            Some((status, _)) => Err(Unavailable(format!("the device cannot be opened (status {status})"))),
            None => Err(Unavailable(format!("of {} devices none packs or unpacks DEFLATE", devices.len()))),
        }
    }
}

// SAFETY: a device may be used by any thread; contexts, which may not, are one a thread.
unsafe impl Send for Opened {}
// SAFETY: as above.
unsafe impl Sync for Opened {}

/// One thread's context, with the memory that its tasks read and write.
pub(super) struct Context {
    library: &'static Library,
    engine: Object,
    compress: Object,
    started: bool,
    mapping: Object,
    inventory: Object,
    /// Source in the first half, destination in the second.
    memory: Box<[u8]>,
    half: usize,
}

/// Which task.
#[derive(Clone, Copy)]
enum Task {
    Pack,
    Unpack,
}

impl Context {
    /// A context for chunks of up to `chunk_max` bytes.
    pub(super) fn open(opened: &Opened, chunk_max: usize) -> Result<Self, Fault> {
        let half = chunk_max + chunk_max / 8 + 4096;
        let mut context = Self {
            library: opened.library,
            engine: ptr::null_mut(),
            compress: ptr::null_mut(),
            started: false,
            mapping: ptr::null_mut(),
            inventory: ptr::null_mut(),
            memory: vec![0; 2 * half].into_boxed_slice(),
            half,
        };
        // Whatever was made before a failure is taken down by `drop`.
        context.start(opened)?;
        Ok(context)
    }

    fn start(&mut self, opened: &Opened) -> Result<(), Fault> {
        let Self { library, .. } = *self;
        // SAFETY: each object is made before it is used, in the documented order; the device is open for ever, the memory
        // lives in a box and outlasts its mapping; callbacks have the documented type.
        unsafe {
            check((library.pe_create)(&mut self.engine))?;
            check((library.compress_create)(opened.device, &mut self.compress))?;
            if opened.pack_max.is_some() {
                check((library.pack_conf)(self.compress, completed, completed, 1))?;
            }
            if opened.unpack_max.is_some() {
                check((library.unpack_conf)(self.compress, completed, completed, 1))?;
            }
            let context = (library.compress_as_ctx)(self.compress);
            check((library.pe_connect)(self.engine, context))?;
            check((library.ctx_start)(context))?;
            self.started = true;
            check((library.mmap_create)(&mut self.mapping))?;
            check((library.mmap_add_dev)(self.mapping, opened.device))?;
            check((library.mmap_set_permissions)(self.mapping, ACCESS_LOCAL_READ_WRITE))?;
            let memory = self.memory.as_mut_ptr().cast();
            check((library.mmap_set_memrange)(self.mapping, memory, self.memory.len()))?;
            check((library.mmap_start)(self.mapping))?;
            check((library.inventory_create)(2, &mut self.inventory))?;
            check((library.inventory_start)(self.inventory))
        }
    }

    /// Runs a task on `input`, with `room` bytes for its output; returns how many it wrote.
    fn run(&mut self, task: Task, input: &[u8], room: usize) -> Result<usize, Fault> {
        if input.len() > self.half || room > self.half {
            return Err(Fault::Failed(0));
        }
        self.memory[..input.len()].copy_from_slice(input);
        let source = self.buffer(0, input.len(), input.len())?;
        let target = match self.buffer(self.half, room, 0) {
            Ok(target) => target,
            Err(fault) => {
                self.release(source);
                return Err(fault);
            }
        };
        let done = self.submit(task, source, target);
        if done == Err(Fault::Hung) {
            return Err(Fault::Hung);
        }
        let mut written = 0;
        // SAFETY: the buffer is live; writes one number.
        let told = done.and_then(|()| check(unsafe { (self.library.buf_data_len)(target, &mut written) }));
        self.release(source);
        self.release(target);
        told.map(|()| written)
    }

    /// Runs a task from `source` to `target` and waits for its end.
    fn submit(&mut self, kind: Task, source: Object, target: Object) -> Result<(), Fault> {
        let Self { library, engine, compress, .. } = *self;
        let (allocate, as_task) = match kind {
            Task::Pack => (library.pack_alloc, library.pack_as_task),
            Task::Unpack => (library.unpack_alloc, library.unpack_as_task),
        };
        // On the heap: after `Hung` the callback may still come, to an address that must stay.
        let ended: *mut bool = Box::into_raw(Box::new(false));
        let mut task = ptr::null_mut();
        // SAFETY: context and buffers are live; writes one pointer.
        let status = unsafe { allocate(compress, source, target, Data { pointer: ended.cast() }, &mut task) };
        if status != DOCA_SUCCESS {
            // SAFETY: made above, and no task knows of it.
            drop(unsafe { Box::from_raw(ended) });
            // Every task of the context is in use, or every buffer of the device.
            return Err(if status == DOCA_ERROR_NO_MEMORY { Fault::Busy } else { Fault::Failed(status.into()) });
        }
        // SAFETY: the task is live; once submitted it is DOCA's until its callback ran, within `pe_progress` on this thread.
        unsafe {
            let task = as_task(task);
            let mut outcome = check((library.task_submit)(task));
            if outcome.is_ok() {
                let wait = Wait::start();
                while !*ended {
                    if (library.pe_progress)(engine) == 0 && !wait.more() {
                        return Err(Fault::Hung);
                    }
                }
                outcome = check((library.task_status)(task));
            }
            (library.task_free)(task);
            drop(Box::from_raw(ended));
            outcome
        }
    }

    /// A buffer of `len` bytes at `start` of the memory, of which the first `data_len` are data.
    fn buffer(&mut self, start: usize, len: usize, data_len: usize) -> Result<Object, Fault> {
        let address = self.memory[start..start + len].as_mut_ptr().cast::<c_void>();
        let mut buffer = ptr::null_mut();
        // SAFETY: the range lies within the mapped memory; writes one pointer.
        check(unsafe {
            (self.library.buf_get)(self.inventory, self.mapping, address, len, address, data_len, &mut buffer)
        })?;
        Ok(buffer)
    }

    fn release(&self, buffer: Object) {
        // SAFETY: the buffer is live and this its only reference. A null pointer for the count is allowed.
        unsafe { (self.library.buf_release)(buffer, ptr::null_mut()) };
    }
}

/// Called by `doca_pe_progress` for a task that ended, well or not; its status tells.
extern "C" fn completed(_task: Object, task_data: Data, _context_data: Data) {
    // SAFETY: the task's data is the flag that `submit` made and reads on this thread once this has returned. After `Hung`
    // nobody reads or frees it.
    unsafe { *task_data.pointer.cast::<bool>() = true };
}

impl Session for Context {
    fn pack(&mut self, raw: &[u8], _: i16) -> Result<usize, Fault> {
        self.run(Task::Pack, raw, raw.len() + raw.len() / 8 + 4096)
    }

    fn unpack(&mut self, packed: &[u8], len: usize) -> Result<Unpacked, Fault> {
        let written = self.run(Task::Unpack, packed, len)?;
        Ok(Unpacked { written, read: None })
    }

    fn output(&self) -> &[u8] {
        &self.memory[self.half..]
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        let Self { library, engine, compress, .. } = *self;
        // SAFETY: only objects that were made are taken down, in the reverse order of use; no task is in flight, since
        // `Hung` leaves `self` behind.
        unsafe {
            if self.started {
                let context = (library.compress_as_ctx)(compress);
                let wait = Wait::start();
                let mut stopping = (library.ctx_stop)(context) == DOCA_ERROR_IN_PROGRESS;
                while stopping && wait.more() {
                    (library.pe_progress)(engine);
                    let mut state = CTX_STATE_IDLE;
                    stopping = (library.ctx_state)(context, &mut state) == DOCA_SUCCESS && state != CTX_STATE_IDLE;
                }
            }
            if !compress.is_null() {
                (library.compress_destroy)(compress);
            }
            if !engine.is_null() {
                (library.pe_destroy)(engine);
            }
            if !self.inventory.is_null() {
                (library.inventory_destroy)(self.inventory);
            }
            if !self.mapping.is_null() {
                (library.mmap_destroy)(self.mapping);
            }
        }
    }
}

// SAFETY: a context may move between threads while no task is in flight; `&mut` lends it to one at a time.
unsafe impl Send for Context {}
