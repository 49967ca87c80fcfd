//! A device where there is none: its memory is this host's, its kernels are interpreted.
//!
//! Slow, bounded and right, so that everything is tested without a GPU and users can run their tests where there is
//! none. Machine code cannot run here: kernels come as PTX, which most compilers make or can be asked for.

mod attributes;
mod memory;
mod module;
mod run;
mod stream;

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use narrows_core::Registry;
use narrows_gpu_abi::Status;
use narrows_gpu_wire::{DeviceInfo, KernelInfo, KernelRef, Launch, Span, Texture};
use parking_lot::Mutex;

use crate::{
    Device, Failure, Freed,
    device::{Done, Faults, Gate, Until},
    lane::{Sink, Source},
};
use memory::{Arena, Quota};
use module::Loaded;
use run::{Job, View, Workers};
use stream::{Streams, Work};

/// What the emulation is like.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Options {
    /// Bytes of device memory for all sessions together.
    pub memory: u64,
    /// Threads that run blocks of kernels.
    pub workers: usize,
    /// Instructions of all threads that one launch may take.
    pub budget: u64,
    /// Compute capability that programs are told.
    pub capability: (u32, u32),
}

impl Default for Options {
    fn default() -> Self {
        Self {
            memory: 4 << 30,
            workers: std::thread::available_parallelism().map_or(1, usize::from),
            budget: 20_000_000_000,
            capability: (8, 0),
        }
    }
}

/// The emulation: what all sessions share.
#[derive(Debug)]
pub struct Host {
    options: Options,
    quota: Arc<Quota>,
    workers: Workers,
    registry: Registry,
}

impl Host {
    /// Starts its threads.
    ///
    /// # Errors
    /// None can be had.
    pub fn start(options: Options) -> std::io::Result<Arc<Self>> {
        Ok(Arc::new(Self {
            quota: Quota::new(options.memory),
            workers: Workers::start(options.workers)?,
            registry: narrows::default_registry(),
            options,
        }))
    }

    /// A session's part of it.
    ///
    /// # Errors
    /// No addresses are left.
    pub fn open(self: &Arc<Self>, faults: Faults) -> Result<Arc<dyn Device>, Failure> {
        let arena = Arena::new(self.quota.clone())
            .map_err(|fault| Failure::new(Status::OUT_OF_MEMORY, fault.to_string()))?;
        Ok(Arc::new(HostDevice {
            host: self.clone(),
            arena: Arc::new(arena),
            streams: Streams::new(faults),
            modules: Mutex::default(),
            textures: Mutex::default(),
            next_texture: AtomicU64::new(1),
            running: Arc::default(),
        }))
    }
}

struct HostDevice {
    host: Arc<Host>,
    arena: Arc<Arena>,
    streams: Arc<Streams>,
    modules: Mutex<HashMap<u64, Arc<Loaded>>>,
    textures: Mutex<HashMap<u64, narrows_ptx::texture::Texture>>,
    next_texture: AtomicU64,
    running: Arc<run::Running>,
}

/// Long copies and fills are left to the stream's thread.
const QUICK_LEN: u64 = 16 << 10;

impl HostDevice {
    fn submit(
        &self,
        stream: u64,
        quick: bool,
        work: impl FnOnce(Option<&Failure>) -> Result<(), Failure> + Send + 'static,
    ) -> Result<(), Failure> {
        let work: Work = Box::new(work);
        self.streams.submit(stream, quick, work)
    }

    fn module(&self, id: u64) -> Result<Arc<Loaded>, Failure> {
        let modules = self.modules.lock();
        modules
            .get(&id)
            .cloned()
            .ok_or_else(|| Status::INVALID_HANDLE.into())
    }

    /// When all work so far is done. Nobody waits for it: the memory it guards stays until then.
    fn after_all(&self, run: impl FnOnce() + Send + 'static) {
        self.streams.wait(Until::All, Box::new(|_| run()));
    }
}

impl Device for HostDevice {
    fn info(&self) -> DeviceInfo {
        attributes::info(&self.host.options, self.arena.range())
    }

    fn alloc(&self, len: u64) -> Result<u64, Failure> {
        self.arena.alloc(len)
    }

    fn free(&self, address: u64, stream: Option<u64>) -> Result<(), Failure> {
        if !self.arena.has(address) {
            let text = format!("no allocation begins at {address:#x}");
            return Err(Failure::new(Status::INVALID_VALUE, text));
        }
        let arena = self.arena.clone();
        match stream {
            Some(stream) => self.submit(stream, true, move |_| arena.free(address)),
            None => {
                self.after_all(move || drop(arena.free(address)));
                Ok(())
            }
        }
    }

    fn memory(&self) -> (u64, u64) {
        self.host.quota.state()
    }

    fn stream_create(&self, id: u64, flags: u32, _priority: i32) -> Result<(), Failure> {
        self.streams.create(id, flags);
        Ok(())
    }

    fn stream_destroy(&self, id: u64) -> Result<(), Failure> {
        self.streams.destroy(id);
        Ok(())
    }

    fn event_create(&self, id: u64, _flags: u32) -> Result<(), Failure> {
        self.streams.event_create(id);
        Ok(())
    }

    fn event_destroy(&self, id: u64) -> Result<(), Failure> {
        self.streams.event_destroy(id);
        Ok(())
    }

    fn event_record(&self, event: u64, stream: u64) -> Result<(), Failure> {
        self.streams.record(event, stream)
    }

    fn stream_wait(&self, stream: u64, event: u64) -> Result<(), Failure> {
        self.streams.wait_event(stream, event)
    }

    fn event_elapsed(&self, start: u64, end: u64) -> Result<f32, Failure> {
        self.streams.elapsed(start, end)
    }

    fn query(&self, until: Until) -> Result<(), Failure> {
        self.streams.query(until)
    }

    fn wait(&self, until: Until, done: Done) {
        self.streams.wait(until, done);
    }

    fn memset(&self, stream: u64, dst: Span, element: u32, value: u32) -> Result<(), Failure> {
        let arena = self.arena.clone();
        let len = dst.row.saturating_mul(dst.rows).saturating_mul(dst.slices);
        self.submit(stream, len <= QUICK_LEN, move |poison| match poison {
            None => fill(&arena, dst.joined(), element, value),
            Some(_) => Ok(()),
        })
    }

    fn copy(&self, stream: u64, dst: Span, src: Span) -> Result<(), Failure> {
        let arena = self.arena.clone();
        let len = dst.row.saturating_mul(dst.rows).saturating_mul(dst.slices);
        self.submit(stream, len <= QUICK_LEN, move |poison| match poison {
            None => copy(&arena, dst, src),
            Some(_) => Ok(()),
        })
    }

    fn write(&self, stream: u64, dst: Span, source: Source) -> Result<(), Failure> {
        let arena = self.arena.clone();
        let quick = matches!(source, Source::Inline(_));
        self.submit(stream, quick, move |poison| {
            let len = dst.checked_len().unwrap_or(0);
            let mut rows = Cursor::new(&arena, dst);
            source.take(len, |bytes| match poison {
                None => rows.write(bytes),
                Some(_) => Ok(()),
            })
        })
    }

    fn read(&self, stream: u64, src: Span, sink: Sink) -> Result<(), Failure> {
        let arena = self.arena.clone();
        let quick = matches!(sink, Sink::Inline { .. });
        self.submit(stream, quick, move |poison| {
            let len = src.checked_len().unwrap_or(0);
            let mut rows = Cursor::new(&arena, src);
            let result = sink.fill(len, |out| match poison {
                None => rows.read(out),
                Some(failure) => Err(failure.clone()),
            });
            if poison.is_some() { Ok(()) } else { result }
        })
    }

    fn load(&self, id: u64, image: &[u8]) -> Result<Vec<KernelInfo>, Failure> {
        let loaded = Loaded::load(
            image,
            &self.arena,
            &self.host.registry,
            self.host.options.capability,
        )?;
        let kernels = loaded.infos();
        self.modules.lock().insert(id, Arc::new(loaded));
        Ok(kernels)
    }

    fn unload(&self, id: u64) -> Result<(), Failure> {
        let module = self.modules.lock().remove(&id);
        let (module, arena) = (module.ok_or(Status::INVALID_HANDLE)?, self.arena.clone());
        self.after_all(move || {
            module
                .blocks
                .iter()
                .for_each(|base| drop(arena.free(*base)))
        });
        Ok(())
    }

    fn global(&self, module: u64, name: &str) -> Result<(u64, u64), Failure> {
        let module = self.module(module)?;
        module
            .globals
            .get(name)
            .copied()
            .ok_or_else(|| Failure::new(Status::NOT_FOUND, format!("no variable {name:?}")))
    }

    fn launch(&self, launch: Launch) -> Result<(), Failure> {
        let module = self.module(launch.kernel.module)?;
        let stream = launch.stream;
        let job = Job::new(&module, launch, self.host.options.budget)?;
        let (arena, host, running) = (self.arena.clone(), self.host.clone(), self.running.clone());
        let textures = self.textures.lock().clone();
        self.submit(stream, false, move |poison| {
            if poison.is_some() {
                return Ok(());
            }
            let view = View::new(arena.all(), textures);
            running.during(&job.budget, || host.workers.run(job.clone(), view))
        })
    }

    fn callback(
        &self,
        stream: u64,
        reached: Box<dyn FnOnce() -> Gate + Send>,
    ) -> Result<(), Failure> {
        let streams = self.streams.clone();
        self.submit(stream, false, move |poison| {
            if poison.is_none() {
                streams.in_callback(true);
                reached().wait();
                streams.in_callback(false);
            }
            Ok(())
        })
    }

    fn texture_create(&self, texture: Texture) -> Result<u64, Failure> {
        let made = module::texture(&texture)?;
        let mut textures = self.textures.lock();
        if textures.len() >= 4096 {
            return Err(Failure::new(
                Status::OUT_OF_MEMORY,
                "4096 textures are as many as there are",
            ));
        }
        let handle = self.next_texture.fetch_add(1, Relaxed);
        textures.insert(handle, made);
        Ok(handle)
    }

    fn texture_destroy(&self, handle: u64) -> Result<(), Failure> {
        // Launches have a copy of what they were given.
        let found = self.textures.lock().remove(&handle);
        found.map(drop).ok_or_else(|| Status::INVALID_HANDLE.into())
    }

    fn kernel_set_attribute(
        &self,
        kernel: KernelRef,
        attribute: u32,
        value: i32,
    ) -> Result<(), Failure> {
        self.module(kernel.module)?
            .set_attribute(kernel.index, attribute, value)
    }

    fn occupancy(&self, kernel: KernelRef, block: u32, shared: u64) -> Result<u32, Failure> {
        self.module(kernel.module)?
            .occupancy(kernel.index, block, shared)
    }

    fn clear(&self) -> Freed {
        self.running.cancel();
        let (streams, events) = self.streams.clear();
        let modules = std::mem::take(&mut *self.modules.lock()).len();
        let textures = std::mem::take(&mut *self.textures.lock()).len();
        let (allocations, bytes) = self.arena.clear();
        self.running.renew();
        Freed {
            allocations,
            bytes,
            streams,
            events,
            modules,
            textures,
        }
    }
}

fn fill(arena: &Arena, dst: Span, element: u32, value: u32) -> Result<(), Failure> {
    let element = element as usize;
    let pattern: Vec<u8> = value.to_le_bytes()[..element].repeat(4096 / element);
    for row in dst.iter_rows() {
        let block = arena.find(row.base, row.len)?;
        let (mut at, mut left) = (row.base, row.len);
        while left > 0 {
            let len = left.min(pattern.len() as u64);
            block.write(at, &pattern[..len as usize]);
            at += len;
            left -= len;
        }
    }
    Ok(())
}

fn copy(arena: &Arena, dst: Span, src: Span) -> Result<(), Failure> {
    let (mut to, mut from) = (Cursor::new(arena, dst), Cursor::new(arena, src));
    let mut left = dst.checked_len().unwrap_or(0);
    let mut buf = vec![0; left.min(64 << 10) as usize];
    while left > 0 {
        let len = left.min(buf.len() as u64) as usize;
        from.read(&mut buf[..len])?;
        to.write(&buf[..len])?;
        left -= len as u64;
    }
    Ok(())
}

/// Reads or writes a span's bytes in order, in pieces of any length.
struct Cursor<'a> {
    arena: &'a Arena,
    rows: Box<dyn Iterator<Item = narrows_gpu_wire::Row> + Send>,
    at: u64,
    left: u64,
}

impl<'a> Cursor<'a> {
    fn new(arena: &'a Arena, span: Span) -> Self {
        Self {
            arena,
            rows: Box::new(span.joined().iter_rows()),
            at: 0,
            left: 0,
        }
    }

    /// Calls `piece` with where each run of up to `len` bytes in all lies.
    fn advance(
        &mut self,
        len: usize,
        mut piece: impl FnMut(&memory::Block, u64, std::ops::Range<usize>),
    ) -> Result<(), Failure> {
        let mut done = 0;
        while done < len {
            if self.left == 0 {
                let row = self.rows.next().ok_or(Status::INVALID_VALUE)?;
                (self.at, self.left) = (row.base, row.len);
            }
            let run = self.left.min((len - done) as u64) as usize;
            let block = self.arena.find(self.at, run as u64)?;
            piece(&block, self.at, done..done + run);
            self.at += run as u64;
            self.left -= run as u64;
            done += run;
        }
        Ok(())
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        self.advance(bytes.len(), |block, at, range| {
            block.write(at, &bytes[range])
        })
    }

    fn read(&mut self, out: &mut [u8]) -> Result<(), Failure> {
        self.advance(out.len(), |block, at, range| {
            block.read(at, &mut out[range])
        })
    }
}
