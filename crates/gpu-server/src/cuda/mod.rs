//! A GPU of this host, through its driver.
//!
//! The session's thread gives the driver everything in the client's order, so that the driver's own rules of streams
//! hold. It never waits for the device: what has to (synchronising calls, bytes on their way back) is done by threads of
//! its own, one for each stream that is read from. Bytes to the device go through a ring of pinned memory as they come
//! from the lane. Every session has a context of its own, and with it everything ends.

mod driver;
mod module;
pub mod nvcomp;
mod staging;

use std::{
    collections::{BTreeMap, HashMap},
    ffi::{CStr, c_char},
    sync::{Arc, mpsc},
};

use narrows_gpu_abi::{DEVICE_ATTRIBUTES, Status};
use narrows_gpu_wire::{Attribute, DeviceInfo, KernelInfo, KernelRef, Launch, Span, Texture};
use parking_lot::{Condvar, Mutex};

pub use driver::{Choice, Driver};

use crate::{
    Device, Failure, Freed,
    device::{Done, Faults, Gate, Until},
    lane::{Sink, Source},
};
use driver::{Functions, Ptr};
use module::Loaded;
use staging::{Download, Ring};

/// A driver's handle, used by whichever thread has the context current.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Raw(Ptr);

// SAFETY: the driver's handles may be used from any thread that makes their context current.
unsafe impl Send for Raw {}
// SAFETY: as above.
unsafe impl Sync for Raw {}

impl Raw {
    const NULL: Self = Self(std::ptr::null_mut());
}

/// Attributes that are not offered over a network, whatever the device can: mapped and managed memory, IPC, virtual
/// memory that is shared, clusters of blocks.
const HIDDEN: [u32; 10] = [19, 83, 88, 89, 100, 101, 102, 103, 104, 120];

fn check(what: &str, status: u32) -> Result<(), Failure> {
    Status(status)
        .ok()
        .map_err(|status| Failure::new(status, format!("{what}: {status}")))
}

impl Driver {
    /// A session's part of it.
    ///
    /// # Errors
    /// No context can be had.
    pub fn open(self: &Arc<Self>, faults: Faults) -> Result<Arc<dyn Device>, Failure> {
        let session = Session::new(self.clone(), faults)?;
        Ok(Arc::new(CudaDevice {
            state: Mutex::new(State::new(&session)?),
            session,
        }))
    }

    fn text(&self, fill: impl Fn(*mut c_char, i32) -> u32) -> String {
        let mut buffer = [0; 256];
        match fill(buffer.as_mut_ptr(), 255) {
            // SAFETY: the driver wrote a string within the buffer, whose last byte is still 0.
            0 => unsafe { CStr::from_ptr(buffer.as_ptr()) }
                .to_string_lossy()
                .into_owned(),
            _ => String::new(),
        }
    }

    fn info(&self) -> DeviceInfo {
        let (calls, device) = (&self.calls, self.device);
        let (mut uuid, mut memory, mut version) = ([0; 16], 0, 0);
        // SAFETY: each writes one value of its type to what it is given.
        unsafe {
            (calls.device_uuid)(&raw mut uuid, device);
            (calls.device_memory)(&raw mut memory, device);
            (calls.version)(&raw mut version);
        }
        let attribute = |id: u32| {
            let mut value = 0;
            // SAFETY: writes one number.
            let status = unsafe { (calls.device_attribute)(&raw mut value, id, device) };
            (status == 0).then_some(value)
        };
        let attributes = DEVICE_ATTRIBUTES.iter().filter_map(|(id, _)| {
            let value = if HIDDEN.contains(id) {
                0
            } else {
                attribute(*id)?
            };
            Some(Attribute { id: *id, value })
        });
        DeviceInfo {
            backend: "cuda".into(),
            // SAFETY: both write a string of at most the length that they are given.
            name: self.text(|to, len| unsafe { (calls.device_name)(to, len, device) }),
            // SAFETY: as above.
            pci_bus_id: self.text(|to, len| unsafe { (calls.device_pci)(to, len, device) }),
            uuid,
            memory: memory as u64,
            driver_version: u32::try_from(version).unwrap_or(0),
            attributes: attributes.collect(),
            arena_base: 0,
            arena_len: 0,
        }
    }
}

/// What all threads of a session share.
struct Session {
    driver: Arc<Driver>,
    context: Raw,
    faults: Faults,
    /// Memory by its address.
    memory: Mutex<BTreeMap<u64, u64>>,
    /// Frees that wait for the device.
    frees: (Mutex<usize>, Condvar),
}

impl Session {
    fn new(driver: Arc<Driver>, faults: Faults) -> Result<Arc<Self>, Failure> {
        let mut context = Raw::NULL;
        // SAFETY: writes one handle; the device is one that the driver gave.
        let status = unsafe { (driver.calls.ctx_create)(&raw mut context.0, 0, driver.device) };
        check("a context", status)?;
        Ok(Arc::new(Self {
            driver,
            context,
            faults,
            memory: Mutex::default(),
            frees: Default::default(),
        }))
    }

    /// Calls the driver with this session's context current.
    fn call(&self, what: &str, run: impl FnOnce(&Functions) -> u32) -> Result<(), Failure> {
        let calls = &self.driver.calls;
        // SAFETY: the context lives as long as this session.
        check(what, unsafe { (calls.ctx_set_current)(self.context.0) })?;
        check(what, run(calls))
    }

    /// All of a span's bytes must be in one allocation of this session.
    fn check_span(&self, span: &Span) -> Result<(), Failure> {
        if span.checked_len() == Some(0) {
            return Ok(());
        }
        let memory = self.memory.lock();
        let found = memory.range(..=span.base).next_back();
        let inside = found
            .zip(span.end())
            .is_some_and(|((base, len), end)| end <= base + len);
        inside.then_some(()).ok_or_else(|| {
            let text = format!("bytes at {:#x} are in no allocation", span.base);
            Failure::new(Status::INVALID_VALUE, text)
        })
    }

    /// Runs `run` on a thread of its own, which may wait for the device.
    fn aside(self: &Arc<Self>, run: impl FnOnce(&Self) + Send + 'static) -> Result<(), Failure> {
        let session = self.clone();
        narrows_io::thread::spawn("gpu-wait", move || run(&session))
            .map(drop)
            .map_err(|fault| Failure::new(Status::OUT_OF_MEMORY, fault.to_string()))
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // SAFETY: nobody else has the session any more, so nobody uses its context.
        unsafe { (self.driver.calls.ctx_destroy)(self.context.0) };
    }
}

struct State {
    streams: HashMap<u64, Raw>,
    events: HashMap<u64, Raw>,
    modules: HashMap<u64, Loaded>,
    textures: Vec<u64>,
    ring: Ring,
    /// Threads that send what was read, by stream.
    readers: HashMap<u64, mpsc::Sender<Download>>,
}

impl State {
    fn new(session: &Arc<Session>) -> Result<Self, Failure> {
        Ok(Self {
            streams: HashMap::from([(0, Raw::NULL)]),
            events: HashMap::new(),
            modules: HashMap::new(),
            textures: Vec::new(),
            ring: Ring::new(session)?,
            readers: HashMap::new(),
        })
    }

    fn stream(&self, id: u64) -> Result<Raw, Failure> {
        self.streams
            .get(&id)
            .copied()
            .ok_or_else(|| Status::INVALID_HANDLE.into())
    }

    fn event(&self, id: u64) -> Result<Raw, Failure> {
        self.events
            .get(&id)
            .copied()
            .ok_or_else(|| Status::INVALID_HANDLE.into())
    }

    fn module(&self, id: u64) -> Result<&Loaded, Failure> {
        self.modules
            .get(&id)
            .ok_or_else(|| Status::INVALID_HANDLE.into())
    }

    fn function(&self, kernel: KernelRef) -> Result<Raw, Failure> {
        self.module(kernel.module)?.function(kernel.index)
    }
}

struct CudaDevice {
    session: Arc<Session>,
    state: Mutex<State>,
}

/// `cuLaunchHostFunc`'s side of a gate.
unsafe extern "C" fn reach(data: Ptr) {
    // SAFETY: `callback` made this box for this one call.
    let reached = unsafe { Box::from_raw(data.cast::<Box<dyn FnOnce() -> Gate + Send>>()) };
    reached().wait();
}

impl Device for CudaDevice {
    fn info(&self) -> DeviceInfo {
        self.session.driver.info()
    }

    fn alloc(&self, len: u64) -> Result<u64, Failure> {
        let session = &self.session;
        let (mut address, bytes) = (0, usize::try_from(len).unwrap_or(usize::MAX));
        // SAFETY: writes one address.
        session.call("cuMemAlloc", |calls| unsafe {
            (calls.mem_alloc)(&raw mut address, bytes)
        })?;
        session.memory.lock().insert(address, len);
        // Nobody sees what another session left.
        let ring = &self.state.lock().ring;
        // SAFETY: the allocation has just been made, and has as many bytes.
        session.call("cuMemsetD8", |calls| unsafe {
            (calls.set_8)(address, bytes, 0, bytes, 1, ring.stream().0)
        })?;
        // SAFETY: the ring's stream is this session's.
        session.call("cuStreamSynchronize", |calls| unsafe {
            (calls.stream_sync)(ring.stream().0)
        })?;
        Ok(address)
    }

    fn free(&self, address: u64, stream: Option<u64>) -> Result<(), Failure> {
        let known = self.session.memory.lock().remove(&address);
        known.ok_or_else(|| Failure::from(Status::INVALID_VALUE))?;
        match stream {
            Some(id) => {
                let stream = self.state.lock().stream(id)?;
                // SAFETY: the address was this session's allocation until now, and the stream is its own.
                self.session.call("cuMemFreeAsync", |calls| unsafe {
                    (calls.mem_free_async)(address, stream.0)
                })
            }
            // It waits for the device, and the device may wait for a function of the client.
            None => {
                *self.session.frees.0.lock() += 1;
                self.session.aside(move |session| {
                    // SAFETY: the address was this session's allocation until now.
                    let freed =
                        session.call("cuMemFree", |calls| unsafe { (calls.mem_free)(address) });
                    *session.frees.0.lock() -= 1;
                    session.frees.1.notify_all();
                    freed.unwrap_or_else(|failure| (session.faults)(failure));
                })
            }
        }
    }

    fn memory(&self) -> (u64, u64) {
        let (mut free, mut total) = (0, 0);
        // SAFETY: writes two numbers.
        let told = self.session.call("cuMemGetInfo", |calls| unsafe {
            (calls.mem_info)(&raw mut free, &raw mut total)
        });
        told.map_or((0, 0), |()| (free as u64, total as u64))
    }

    fn stream_create(&self, id: u64, flags: u32, priority: i32) -> Result<(), Failure> {
        let mut stream = Raw::NULL;
        // SAFETY: writes one handle.
        self.session.call("cuStreamCreate", |calls| unsafe {
            (calls.stream_create)(&raw mut stream.0, flags & 1, priority)
        })?;
        self.state.lock().streams.insert(id, stream);
        Ok(())
    }

    fn stream_destroy(&self, id: u64) -> Result<(), Failure> {
        let mut state = self.state.lock();
        state.readers.remove(&id);
        let stream = state.streams.remove(&id).ok_or(Status::INVALID_HANDLE)?;
        // SAFETY: the stream is this session's and leaves the table now; the driver finishes its work first.
        self.session.call("cuStreamDestroy", |calls| unsafe {
            (calls.stream_destroy)(stream.0)
        })
    }

    fn event_create(&self, id: u64, flags: u32) -> Result<(), Failure> {
        let mut event = Raw::NULL;
        // Without interprocess use, which the client cannot have.
        // SAFETY: writes one handle.
        self.session.call("cuEventCreate", |calls| unsafe {
            (calls.event_create)(&raw mut event.0, flags & 3)
        })?;
        self.state.lock().events.insert(id, event);
        Ok(())
    }

    fn event_destroy(&self, id: u64) -> Result<(), Failure> {
        let event = self
            .state
            .lock()
            .events
            .remove(&id)
            .ok_or(Status::INVALID_HANDLE)?;
        // SAFETY: the event is this session's and leaves the table now.
        self.session.call("cuEventDestroy", |calls| unsafe {
            (calls.event_destroy)(event.0)
        })
    }

    fn event_record(&self, event: u64, stream: u64) -> Result<(), Failure> {
        let state = self.state.lock();
        let (event, stream) = (state.event(event)?, state.stream(stream)?);
        // SAFETY: both are this session's.
        self.session.call("cuEventRecord", |calls| unsafe {
            (calls.event_record)(event.0, stream.0)
        })
    }

    fn stream_wait(&self, stream: u64, event: u64) -> Result<(), Failure> {
        let state = self.state.lock();
        let (event, stream) = (state.event(event)?, state.stream(stream)?);
        // SAFETY: both are this session's.
        self.session.call("cuStreamWaitEvent", |calls| unsafe {
            (calls.stream_wait)(stream.0, event.0, 0)
        })
    }

    fn event_elapsed(&self, start: u64, end: u64) -> Result<f32, Failure> {
        let state = self.state.lock();
        let (start, end, mut ms) = (state.event(start)?, state.event(end)?, 0.0);
        // SAFETY: both are this session's; writes one number.
        self.session.call("cuEventElapsedTime", |calls| unsafe {
            (calls.event_elapsed)(&raw mut ms, start.0, end.0)
        })?;
        Ok(ms)
    }

    fn query(&self, until: Until) -> Result<(), Failure> {
        let state = self.state.lock();
        match until {
            Until::Stream(id) => {
                let stream = state.stream(id)?;
                // SAFETY: the stream is this session's.
                self.session.call("cuStreamQuery", |calls| unsafe {
                    (calls.stream_query)(stream.0)
                })
            }
            Until::Event(id) => {
                let event = state.event(id)?;
                // SAFETY: the event is this session's.
                self.session.call("cuEventQuery", |calls| unsafe {
                    (calls.event_query)(event.0)
                })
            }
            Until::All => Ok(()),
        }
    }

    fn wait(&self, until: Until, done: Done) {
        let state = self.state.lock();
        let handle = match until {
            Until::Stream(id) => state.stream(id),
            Until::Event(id) => state.event(id),
            Until::All => Ok(Raw::NULL),
        };
        // What was read before has to be sent before the answer.
        let (sent, all_sent) = mpsc::channel();
        let readers = state.readers.iter().filter(|(id, _)| match until {
            Until::Stream(only) => **id == only,
            Until::Event(_) | Until::All => true,
        });
        for (_, reader) in readers {
            let _ = reader.send(Download::Marker(sent.clone()));
        }
        drop((state, sent));
        let handle = match handle {
            Ok(handle) => handle,
            Err(failure) => return done(Err(failure)),
        };
        let done = Arc::new(Mutex::new(Some(done)));
        let told = done.clone();
        let started = self.session.aside(move |session| {
            let handle = handle;
            // SAFETY: the handle is this session's, or null for all of the context.
            let result = session.call("synchronising", |calls| unsafe {
                match until {
                    Until::Stream(_) => (calls.stream_sync)(handle.0),
                    Until::Event(_) => (calls.event_sync)(handle.0),
                    Until::All => (calls.ctx_sync)(),
                }
            });
            if until == Until::All {
                let mut frees = session.frees.0.lock();
                while *frees > 0 {
                    session.frees.1.wait(&mut frees);
                }
            }
            // Ends when the last marker is dropped.
            all_sent.iter().for_each(drop);
            if let Some(done) = told.lock().take() {
                done(result);
            }
        });
        if let Err(failure) = started
            && let Some(done) = done.lock().take()
        {
            done(Err(failure));
        }
    }

    fn memset(&self, stream: u64, dst: Span, element: u32, value: u32) -> Result<(), Failure> {
        self.session.check_span(&dst)?;
        let stream = self.state.lock().stream(stream)?;
        let dst = dst.joined();
        for slice in 0..dst.slices {
            let base = dst.base + slice * dst.slice_pitch;
            let (width, rows) = ((dst.row / u64::from(element)) as usize, dst.rows as usize);
            let pitch = dst.pitch as usize;
            // SAFETY: the rows are within one allocation of this session (checked above).
            self.session.call("cuMemset", |calls| unsafe {
                match element {
                    1 => (calls.set_8)(base, pitch, value as u8, width, rows, stream.0),
                    2 => (calls.set_16)(base, pitch, value as u16, width, rows, stream.0),
                    _ => (calls.set_32)(base, pitch, value, width, rows, stream.0),
                }
            })?;
        }
        Ok(())
    }

    fn copy(&self, stream: u64, dst: Span, src: Span) -> Result<(), Failure> {
        self.session.check_span(&dst)?;
        self.session.check_span(&src)?;
        let stream = self.state.lock().stream(stream)?;
        let (mut to, mut from) = (dst.joined().iter_rows(), src.joined().iter_rows());
        let (mut left_to, mut left_from) = (to.next(), from.next());
        while let (Some(a), Some(b)) = (left_to, left_from) {
            let len = a.len.min(b.len);
            // SAFETY: both ranges are within allocations of this session (checked above).
            self.session.call("cuMemcpyDtoD", |calls| unsafe {
                (calls.copy_within)(a.base, b.base, len as usize, stream.0)
            })?;
            let rest = |row: narrows_gpu_wire::Row| narrows_gpu_wire::Row {
                base: row.base + len,
                len: row.len - len,
            };
            left_to = if a.len == len {
                to.next()
            } else {
                Some(rest(a))
            };
            left_from = if b.len == len {
                from.next()
            } else {
                Some(rest(b))
            };
        }
        Ok(())
    }

    fn write(&self, stream: u64, dst: Span, source: Source) -> Result<(), Failure> {
        let checked = self.session.check_span(&dst);
        let mut state = self.state.lock();
        let stream = state.stream(stream)?;
        state
            .ring
            .upload(&self.session, stream, dst, source, checked)
    }

    fn read(&self, stream: u64, src: Span, sink: Sink) -> Result<(), Failure> {
        let checked = self.session.check_span(&src);
        let mut state = self.state.lock();
        let handle = state.stream(stream)?;
        let reader = match state.readers.get(&stream) {
            Some(reader) => reader.clone(),
            None => {
                let reader = staging::reader(&self.session)?;
                state.readers.insert(stream, reader.clone());
                reader
            }
        };
        drop(state);
        staging::download(&self.session, handle, src, sink, checked, &reader)
    }

    fn load(&self, id: u64, image: &[u8]) -> Result<Vec<KernelInfo>, Failure> {
        let (loaded, kernels) = Loaded::load(&self.session, image)?;
        self.state.lock().modules.insert(id, loaded);
        Ok(kernels)
    }

    fn unload(&self, id: u64) -> Result<(), Failure> {
        let module = self
            .state
            .lock()
            .modules
            .remove(&id)
            .ok_or(Status::INVALID_HANDLE)?;
        for base in module.globals() {
            self.session.memory.lock().remove(&base);
        }
        // It waits for what runs of it.
        self.session.aside(move |session| {
            let unloaded = session.call("cuCtxSynchronize", |calls| {
                // SAFETY: waits for this session's work.
                unsafe { (calls.ctx_sync)() }
            });
            let unloaded = unloaded.and_then(|()| module.unload(session));
            unloaded.unwrap_or_else(|failure| (session.faults)(failure));
        })
    }

    fn global(&self, module: u64, name: &str) -> Result<(u64, u64), Failure> {
        let state = self.state.lock();
        let found = state.module(module)?.global(&self.session, name)?;
        self.session.memory.lock().insert(found.0, found.1);
        Ok(found)
    }

    fn launch(&self, launch: Launch) -> Result<(), Failure> {
        let state = self.state.lock();
        let module = state.module(launch.kernel.module)?;
        module.launch(&self.session, &launch, state.stream(launch.stream)?)
    }

    fn callback(
        &self,
        stream: u64,
        reached: Box<dyn FnOnce() -> Gate + Send>,
    ) -> Result<(), Failure> {
        let stream = self.state.lock().stream(stream)?;
        let data: Ptr = Box::into_raw(Box::new(reached)).cast();
        // SAFETY: `reach` takes the box back, once.
        let launched = self.session.call("cuLaunchHostFunc", |calls| unsafe {
            (calls.host_function)(stream.0, reach, data)
        });
        if launched.is_err() {
            // SAFETY: the driver did not take it, so nobody else has the box.
            drop(unsafe { Box::from_raw(data.cast::<Box<dyn FnOnce() -> Gate + Send>>()) });
        }
        launched
    }

    fn texture_create(&self, texture: Texture) -> Result<u64, Failure> {
        let handle = module::texture(&self.session, &texture)?;
        self.state.lock().textures.push(handle);
        Ok(handle)
    }

    fn texture_destroy(&self, handle: u64) -> Result<(), Failure> {
        let mut state = self.state.lock();
        let at = state.textures.iter().position(|known| *known == handle);
        state
            .textures
            .swap_remove(at.ok_or(Status::INVALID_HANDLE)?);
        // SAFETY: the texture is this session's and leaves the table now.
        self.session.call("cuTexObjectDestroy", |calls| unsafe {
            (calls.texture_destroy)(handle)
        })
    }

    fn kernel_set_attribute(
        &self,
        kernel: KernelRef,
        attribute: u32,
        value: i32,
    ) -> Result<(), Failure> {
        let function = self.state.lock().function(kernel)?;
        // SAFETY: the function is of a module of this session.
        self.session.call("cuFuncSetAttribute", |calls| unsafe {
            (calls.function_set)(function.0, attribute, value)
        })
    }

    fn occupancy(&self, kernel: KernelRef, block: u32, shared: u64) -> Result<u32, Failure> {
        let (function, mut blocks) = (self.state.lock().function(kernel)?, 0);
        let block = i32::try_from(block).map_err(|_| Failure::from(Status::INVALID_VALUE))?;
        let what = "cuOccupancyMaxActiveBlocksPerMultiprocessor";
        // SAFETY: the function is of a module of this session; writes one number.
        self.session.call(what, |calls| unsafe {
            (calls.occupancy)(&raw mut blocks, function.0, block, shared as usize)
        })?;
        Ok(u32::try_from(blocks).unwrap_or(0))
    }

    fn clear(&self) -> Freed {
        let session = &self.session;
        // Streams that wait for a function of the client have been let go by now.
        // SAFETY: waits for this session's work.
        let _ = session.call("cuCtxSynchronize", |calls| unsafe { (calls.ctx_sync)() });
        let mut state = self.state.lock();
        let memory = std::mem::take(&mut *session.memory.lock());
        let freed = Freed {
            allocations: memory.len(),
            bytes: memory.values().sum(),
            streams: state.streams.len() - 1,
            events: state.events.len(),
            modules: state.modules.len(),
            textures: state.textures.len(),
        };
        state.readers.clear();
        let (streams, events) = (
            std::mem::take(&mut state.streams),
            std::mem::take(&mut state.events),
        );
        let modules = std::mem::take(&mut state.modules);
        let textures = std::mem::take(&mut state.textures);
        state.streams.insert(0, Raw::NULL);
        // SAFETY: all of these are this session's and have left its tables.
        let _ = session.call("freeing", |calls| unsafe {
            textures.iter().for_each(|handle| {
                (calls.texture_destroy)(*handle);
            });
            events.values().for_each(|event| {
                (calls.event_destroy)(event.0);
            });
            streams
                .values()
                .filter(|stream| **stream != Raw::NULL)
                .for_each(|stream| {
                    (calls.stream_destroy)(stream.0);
                });
            memory.keys().for_each(|address| {
                (calls.mem_free)(*address);
            });
            0
        });
        modules
            .into_values()
            .for_each(|module| drop(module.unload(session)));
        freed
    }
}
