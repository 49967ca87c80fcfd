//! One thread's way to the device, and one chunk's way through it.

use std::{
    ffi::c_void,
    ptr,
    sync::atomic::{
        AtomicBool,
        Ordering::{Acquire, Release},
    },
};

use super::{
    ACCESS_LOCAL_READ_WRITE, CTX_STATE_IDLE, DOCA_ERROR_IN_PROGRESS, DOCA_ERROR_NO_MEMORY,
    DOCA_SUCCESS, Data, Library, Object, Opened, check,
};
use crate::device::{Fault, Session, Unpacked, Wait};

/// One thread's context, with the memory that its tasks read and write.
pub(in crate::doca) struct Context {
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
    pub(in crate::doca) fn open(opened: &Opened, chunk_max: usize) -> Result<Self, Fault> {
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
                check((library.unpack_conf)(
                    self.compress,
                    completed,
                    completed,
                    1,
                ))?;
            }
            let context = (library.compress_as_ctx)(self.compress);
            check((library.pe_connect)(self.engine, context))?;
            check((library.ctx_start)(context))?;
            self.started = true;
            check((library.mmap_create)(&mut self.mapping))?;
            check((library.mmap_add_dev)(self.mapping, opened.device))?;
            check((library.mmap_set_permissions)(
                self.mapping,
                ACCESS_LOCAL_READ_WRITE,
            ))?;
            let memory = self.memory.as_mut_ptr().cast();
            check((library.mmap_set_memrange)(
                self.mapping,
                memory,
                self.memory.len(),
            ))?;
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
        let told =
            done.and_then(|()| check(unsafe { (self.library.buf_data_len)(target, &mut written) }));
        self.release(source);
        self.release(target);
        told.map(|()| written)
    }

    /// Runs a task from `source` to `target` and waits for its end.
    fn submit(&mut self, kind: Task, source: Object, target: Object) -> Result<(), Fault> {
        let Self {
            library,
            engine,
            compress,
            ..
        } = *self;
        let (allocate, as_task) = match kind {
            Task::Pack => (library.pack_alloc, library.pack_as_task),
            Task::Unpack => (library.unpack_alloc, library.unpack_as_task),
        };
        // On the heap: after `Hung` the callback may still come, to an address that must stay.
        let ended = Box::into_raw(Box::new(AtomicBool::new(false)));
        let mut task = ptr::null_mut();
        // SAFETY: context and buffers are live; writes one pointer.
        let status = unsafe {
            allocate(
                compress,
                source,
                target,
                Data {
                    pointer: ended.cast(),
                },
                &mut task,
            )
        };
        if status != DOCA_SUCCESS {
            // SAFETY: made above, and no task knows of it.
            drop(unsafe { Box::from_raw(ended) });
            // Every task of the context is in use, or every buffer of the device.
            return Err(if status == DOCA_ERROR_NO_MEMORY {
                Fault::Busy
            } else {
                Fault::Failed(status.into())
            });
        }
        // SAFETY: the task is live; once submitted it is DOCA's until its callback ran, within `pe_progress` on this thread.
        unsafe {
            let task = as_task(task);
            let mut outcome = check((library.task_submit)(task));
            if outcome.is_ok() {
                let wait = Wait::start();
                while !(*ended).load(Acquire) {
                    if wait.is_over() {
                        return Err(Fault::Hung);
                    }
                    if (library.pe_progress)(engine) == 0 {
                        wait.pause();
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
        let address = self.memory[start..start + len]
            .as_mut_ptr()
            .cast::<c_void>();
        let mut buffer = ptr::null_mut();
        // SAFETY: the range lies within the mapped memory; writes one pointer.
        check(unsafe {
            (self.library.buf_get)(
                self.inventory,
                self.mapping,
                address,
                len,
                address,
                data_len,
                &mut buffer,
            )
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
    unsafe { (*task_data.pointer.cast::<AtomicBool>()).store(true, Release) };
}

impl Session for Context {
    fn pack(&mut self, raw: &[u8], _: i16) -> Result<usize, Fault> {
        self.run(Task::Pack, raw, raw.len() + raw.len() / 8 + 4096)
    }

    fn unpack(&mut self, packed: &[u8], len: usize) -> Result<Unpacked, Fault> {
        let written = self.run(Task::Unpack, packed, len)?;
        Ok(Unpacked {
            written,
            read: None,
        })
    }

    fn output(&self) -> &[u8] {
        &self.memory[self.half..]
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        let Self {
            library,
            engine,
            compress,
            ..
        } = *self;
        // SAFETY: only objects that were made are taken down, in the reverse order of use; no task is in flight, since
        // `Hung` leaves `self` behind.
        unsafe {
            if self.started {
                let context = (library.compress_as_ctx)(compress);
                let wait = Wait::start();
                let mut stopping = (library.ctx_stop)(context) == DOCA_ERROR_IN_PROGRESS;
                while stopping && !wait.is_over() {
                    if (library.pe_progress)(engine) == 0 {
                        wait.pause();
                    }
                    let mut state = CTX_STATE_IDLE;
                    stopping = (library.ctx_state)(context, &mut state) == DOCA_SUCCESS
                        && state != CTX_STATE_IDLE;
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
