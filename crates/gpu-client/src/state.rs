//! What this process has of CUDA: the session, and what handles stand for.

use std::{
    cell::{Cell, RefCell},
    collections::{BTreeMap, HashMap},
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering::Relaxed},
    },
};

use narrows_gpu_abi::Status;
use narrows_gpu_wire::{KernelInfo, KernelRef, Request, ids::LEGACY_STREAM};
use parking_lot::{Mutex, RwLock};

use crate::{
    call::{FORKED, per_thread, say},
    ffi::{Answer, Handle, Kind},
    host::PinnedRanges,
    lane::Lane,
    remote::Remote,
};

/// `CU_STREAM_LEGACY` and `CU_STREAM_PER_THREAD`.
const STREAM_LEGACY: u64 = 1;
const STREAM_PER_THREAD: u64 = 2;
const NON_BLOCKING: u32 = 1;

/// A context. The server has one for the whole session; which of ours an object belongs to matters here only.
pub(crate) struct Context {
    pub(crate) id: u64,
    pub(crate) flags: AtomicU64,
    pub(crate) limits: Mutex<HashMap<u32, usize>>,
    pub(crate) destroyed: AtomicBool,
}

/// A stream.
pub(crate) struct Stream {
    pub(crate) id: u64,
    pub(crate) flags: u32,
    pub(crate) priority: i32,
    pub(crate) context: u64,
    lane: OnceLock<Arc<Lane>>,
    opening: Mutex<()>,
    /// How much of the legacy stream's synchronous copies it has waited for.
    fenced: AtomicU64,
    /// The graph that its work goes to, while it is captured.
    pub(crate) capture: Mutex<Option<crate::graph::Capture>>,
    pub(crate) capturing: AtomicBool,
}

impl Stream {
    pub(crate) fn new(id: u64, flags: u32, priority: i32, context: u64) -> Self {
        Self {
            id,
            flags,
            priority,
            context,
            lane: OnceLock::new(),
            opening: Mutex::new(()),
            fenced: AtomicU64::new(0),
            capture: Mutex::new(None),
            capturing: AtomicBool::new(false),
        }
    }

    /// Where its long copies travel.
    pub(crate) fn lane(&self, remote: &Arc<Remote>) -> Answer<&Arc<Lane>> {
        if let Some(lane) = self.lane.get() {
            return Ok(lane);
        }
        let _opening = self.opening.lock();
        if self.lane.get().is_none() {
            let _ = self.lane.set(remote.open_lane()?);
        }
        self.lane.get().ok_or(Status::UNKNOWN)
    }

    pub(crate) fn take_lane(&self) -> Option<Arc<Lane>> {
        self.lane.get().cloned()
    }
}

/// An event.
pub(crate) struct Event {
    pub(crate) id: u64,
    pub(crate) flags: u32,
    pub(crate) recorded: AtomicBool,
}

/// A module or library.
pub(crate) struct Module {
    pub(crate) id: u64,
    pub(crate) kernels: Vec<KernelInfo>,
    pub(crate) context: u64,
    functions: Mutex<HashMap<u32, u64>>,
    pub(crate) globals: Mutex<HashMap<String, (u64, u64)>>,
}

/// A kernel that a program has asked for.
pub(crate) struct Function {
    pub(crate) module: Arc<Module>,
    pub(crate) index: u32,
    /// Attributes that the program has set.
    pub(crate) set: Mutex<HashMap<u32, i32>>,
    /// Its name, for programs that keep the pointer.
    pub(crate) name: std::ffi::CString,
    /// What `cuFuncSetBlockShape` and its like have said, for `cuLaunchGrid`.
    pub(crate) old_style: Mutex<OldStyle>,
}

/// State of launches as the first drivers had them.
#[derive(Debug, Clone, Default)]
pub(crate) struct OldStyle {
    pub(crate) block: [u32; 3],
    pub(crate) shared: u32,
    pub(crate) params: Vec<u8>,
}

impl Function {
    pub(crate) fn kernel(&self) -> KernelRef {
        KernelRef {
            module: self.module.id,
            index: self.index,
        }
    }

    pub(crate) fn info(&self) -> &KernelInfo {
        &self.module.kernels[self.index as usize]
    }
}

/// Device memory.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Allocation {
    pub(crate) len: u64,
    pub(crate) context: u64,
    pub(crate) pool: u64,
    pub(crate) id: u64,
    /// A module's variable: freed with it.
    pub(crate) variable: bool,
}

/// Everything.
pub(crate) struct Client {
    pub(crate) remote: Arc<Remote>,
    pub(crate) contexts: RwLock<HashMap<u64, Arc<Context>>>,
    pub(crate) primary: Mutex<Primary>,
    pub(crate) streams: RwLock<HashMap<u64, Arc<Stream>>>,
    pub(crate) events: RwLock<HashMap<u64, Arc<Event>>>,
    pub(crate) modules: RwLock<HashMap<u64, Arc<Module>>>,
    pub(crate) functions: RwLock<HashMap<u64, Arc<Function>>>,
    pub(crate) memory: RwLock<BTreeMap<u64, Allocation>>,
    pub(crate) pinned: PinnedRanges,
    pub(crate) pools: Mutex<crate::api::pool::Pools>,
    pub(crate) graphs: crate::graph::Graphs,
    pub(crate) links: Mutex<HashMap<u64, crate::api::link::Link>>,
    pub(crate) textures: Mutex<HashMap<u64, crate::api::texture::Described>>,
    legacy: Arc<Stream>,
    /// Synchronous copies so far: what follows on any stream comes after them.
    fence: AtomicU64,
    fence_event: Mutex<Option<u64>>,
    pub(crate) live: AtomicI64,
}

/// The device's primary context.
#[derive(Default)]
pub(crate) struct Primary {
    pub(crate) retained: u32,
    pub(crate) flags: u32,
    pub(crate) context: Option<Arc<Context>>,
}

static CLIENT: OnceLock<Result<Client, Status>> = OnceLock::new();

thread_local! {
    static STACK: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) };
    static OWN_STREAM: OwnStream = const { OwnStream(Cell::new(0)) };
}

/// The thread's default stream, ended with the thread.
struct OwnStream(Cell<u64>);

impl Drop for OwnStream {
    fn drop(&mut self) {
        let id = self.0.get();
        if id != 0
            && let Some(Ok(client)) = CLIENT.get()
        {
            let _ = client.destroy_stream(id);
        }
    }
}

extern "C" fn in_child() {
    FORKED.store(true, Relaxed);
}

extern "C" fn at_exit() {
    if !FORKED.load(Relaxed)
        && let Some(Ok(client)) = CLIENT.get()
    {
        crate::summary::write(client);
        client.remote.leave();
    }
}

/// Connects, once.
pub(crate) fn init() -> Answer {
    let client = CLIENT.get_or_init(|| match Remote::connect() {
        Ok(remote) => {
            reserve(remote.info().arena_base, remote.info().arena_len);
            // SAFETY: both are given functions of this library, which is never unloaded (`-z nodelete`).
            unsafe {
                libc::pthread_atfork(None, None, Some(in_child));
                libc::atexit(at_exit);
            }
            Ok(Client::new(remote))
        }
        Err(text) => {
            say(&text);
            Err(Status::NO_DEVICE)
        }
    });
    client.as_ref().map(drop).map_err(|status| *status)
}

/// Keeps the addresses of device memory free here, so that no address of the program looks like one.
fn reserve(base: u64, len: u64) {
    if len == 0 {
        return;
    }
    // SAFETY: with MAP_FIXED_NOREPLACE nothing that exists is touched. Where it fails, nothing is reserved.
    unsafe {
        libc::mmap(
            base as *mut libc::c_void,
            len as usize,
            libc::PROT_NONE,
            libc::MAP_PRIVATE
                | libc::MAP_ANONYMOUS
                | libc::MAP_NORESERVE
                | libc::MAP_FIXED_NOREPLACE,
            -1,
            0,
        )
    };
}

/// The session that `cuInit` began.
pub(crate) fn client() -> Answer<&'static Client> {
    match CLIENT.get() {
        Some(Ok(client)) => Ok(client),
        Some(Err(status)) => Err(*status),
        None => Err(Status::NOT_INITIALIZED),
    }
}

impl Client {
    fn new(remote: Arc<Remote>) -> Self {
        Self {
            remote,
            contexts: RwLock::default(),
            primary: Mutex::default(),
            streams: RwLock::default(),
            events: RwLock::default(),
            modules: RwLock::default(),
            functions: RwLock::default(),
            memory: RwLock::default(),
            pinned: PinnedRanges::default(),
            pools: Mutex::default(),
            graphs: crate::graph::Graphs::default(),
            links: Mutex::default(),
            textures: Mutex::default(),
            legacy: Arc::new(Stream::new(LEGACY_STREAM, 0, 0, 0)),
            fence: AtomicU64::new(0),
            fence_event: Mutex::default(),
            live: AtomicI64::new(0),
        }
    }

    /// The device of this number: there is one.
    pub(crate) fn device(&self, device: i32) -> Answer {
        if device == 0 {
            Ok(())
        } else {
            Err(Status::INVALID_DEVICE)
        }
    }

    pub(crate) fn attribute(&self, id: u32) -> Option<i32> {
        let attributes = &self.remote.info().attributes;
        let found = attributes.iter().find(|attribute| attribute.id == id);
        found.map(|attribute| attribute.value)
    }

    // Contexts.

    pub(crate) fn context_new(&self, flags: u32) -> Arc<Context> {
        let context = Arc::new(Context {
            id: self.remote.id(),
            flags: AtomicU64::new(flags.into()),
            limits: Mutex::default(),
            destroyed: AtomicBool::new(false),
        });
        self.contexts.write().insert(context.id, context.clone());
        context
    }

    pub(crate) fn context_of(&self, handle: Handle) -> Answer<Arc<Context>> {
        let id = Kind::Context
            .id(handle)
            .map_err(|_| Status::INVALID_CONTEXT)?;
        let found = self.contexts.read().get(&id).cloned();
        found.ok_or(Status::INVALID_CONTEXT)
    }

    /// The context on top of the thread's stack.
    pub(crate) fn current(&self) -> Answer<Arc<Context>> {
        let id = STACK.with_borrow(|stack| stack.last().copied());
        let id = id.filter(|id| *id != 0).ok_or(Status::INVALID_CONTEXT)?;
        let found = self.contexts.read().get(&id).cloned();
        found.ok_or(Status::CONTEXT_IS_DESTROYED)
    }

    /// Frees what belongs to a context.
    pub(crate) fn context_end(&self, context: &Context) -> Answer {
        context.destroyed.store(true, Relaxed);
        self.contexts.write().remove(&context.id);
        if self.remote.check().is_err() && self.contexts.read().is_empty() {
            self.forget();
            self.remote.renew();
            return Ok(());
        }
        let of = |owner: u64| owner == context.id;
        let streams: Vec<u64> = self
            .streams
            .read()
            .values()
            .filter(|stream| of(stream.context))
            .map(|stream| stream.id)
            .collect();
        streams
            .into_iter()
            .try_for_each(|id| self.destroy_stream(id))?;
        let modules: Vec<u64> = self
            .modules
            .read()
            .values()
            .filter(|module| of(module.context))
            .map(|module| module.id)
            .collect();
        modules.into_iter().try_for_each(|id| self.unload(id))?;
        let memory: Vec<u64> = self
            .memory
            .read()
            .iter()
            .filter(|(_, memory)| of(memory.context) && !memory.variable)
            .map(|(base, _)| *base)
            .collect();
        memory
            .into_iter()
            .try_for_each(|base| self.free(base, None))
    }

    /// Nothing that the server had for this program is there any more.
    fn forget(&self) {
        self.streams.write().clear();
        self.events.write().clear();
        self.modules.write().clear();
        self.functions.write().clear();
        self.memory.write().clear();
        self.textures.lock().clear();
        *self.fence_event.lock() = None;
        self.live.store(0, Relaxed);
    }

    // Streams.

    /// What a handle means as a stream, in the call that runs.
    pub(crate) fn stream(&self, handle: Handle) -> Answer<Arc<Stream>> {
        match handle.value() {
            0 if per_thread() => self.own_stream(),
            0 | STREAM_LEGACY => Ok(self.legacy.clone()),
            STREAM_PER_THREAD => self.own_stream(),
            _ => {
                let id = Kind::Stream.id(handle)?;
                let found = self.streams.read().get(&id).cloned();
                found.ok_or(Status::INVALID_HANDLE)
            }
        }
    }

    fn own_stream(&self) -> Answer<Arc<Stream>> {
        let id = OWN_STREAM.with(|own| own.0.get());
        if let Some(stream) = self.streams.read().get(&id) {
            return Ok(stream.clone());
        }
        let stream = self.create_stream(0, 0)?;
        OWN_STREAM.with(|own| own.0.set(stream.id));
        Ok(stream)
    }

    pub(crate) fn create_stream(&self, flags: u32, priority: i32) -> Answer<Arc<Stream>> {
        let context = self.current()?.id;
        let stream = Arc::new(Stream::new(self.remote.id(), flags, priority, context));
        self.remote.send(&Request::StreamCreate {
            id: stream.id,
            flags,
            priority,
        })?;
        self.streams.write().insert(stream.id, stream.clone());
        Ok(stream)
    }

    pub(crate) fn destroy_stream(&self, id: u64) -> Answer {
        let stream = self.streams.write().remove(&id);
        let stream = stream.ok_or(Status::INVALID_HANDLE)?;
        if let Some(lane) = stream.take_lane() {
            self.remote.lanes.give_back(lane);
        }
        self.remote.contents.forget_stream(id);
        self.remote.send(&Request::StreamDestroy { id })
    }

    /// Before work goes to a stream: it comes after the synchronous copies that the program has seen return, although
    /// a stream that does not block would not wait for the stream that they were made in.
    pub(crate) fn before(&self, stream: &Stream) -> Answer {
        let fence = self.fence.load(Relaxed);
        if stream.flags & NON_BLOCKING == 0 || stream.fenced.swap(fence, Relaxed) == fence {
            return Ok(());
        }
        let mut slot = self.fence_event.lock();
        let event = match *slot {
            Some(event) => event,
            None => {
                let id = self.remote.id();
                self.remote.send(&Request::EventCreate { id, flags: 2 })?;
                *slot.insert(id)
            }
        };
        let legacy = LEGACY_STREAM;
        self.remote.send(&Request::EventRecord {
            event,
            stream: legacy,
        })?;
        self.remote.send(&Request::StreamWaitEvent {
            stream: stream.id,
            event,
        })
    }

    /// A synchronous copy returns before its bytes have arrived.
    pub(crate) fn copied(&self) {
        self.fence.fetch_add(1, Relaxed);
    }

    // Modules.

    pub(crate) fn add_module(&self, id: u64, kernels: Vec<KernelInfo>) -> Answer<Arc<Module>> {
        let module = Arc::new(Module {
            id,
            kernels,
            context: self.current()?.id,
            functions: Mutex::default(),
            globals: Mutex::default(),
        });
        self.modules.write().insert(id, module.clone());
        Ok(module)
    }

    pub(crate) fn module(&self, handle: Handle) -> Answer<Arc<Module>> {
        let id = Kind::Module.id(handle)?;
        let found = self.modules.read().get(&id).cloned();
        found.ok_or(Status::INVALID_HANDLE)
    }

    pub(crate) fn unload(&self, id: u64) -> Answer {
        let module = self.modules.write().remove(&id);
        let module = module.ok_or(Status::INVALID_HANDLE)?;
        let mut functions = self.functions.write();
        for function in module.functions.lock().values() {
            functions.remove(function);
        }
        drop(functions);
        let globals = module.globals.lock();
        let mut memory = self.memory.write();
        for (base, _) in globals.values() {
            memory.remove(base);
        }
        drop(memory);
        self.remote.send(&Request::ModuleUnload { id })
    }

    /// The kernel at `index` of a module, with one handle for as long as the module is loaded.
    pub(crate) fn function_at(&self, module: &Arc<Module>, index: u32) -> Answer<Handle> {
        let info = module
            .kernels
            .get(index as usize)
            .ok_or(Status::NOT_FOUND)?;
        let mut functions = module.functions.lock();
        if let Some(id) = functions.get(&index) {
            return Ok(Kind::Function.handle(*id));
        }
        let id = self.remote.id();
        let function = Function {
            module: module.clone(),
            index,
            set: Mutex::default(),
            name: std::ffi::CString::new(info.name.as_str()).unwrap_or_default(),
            old_style: Mutex::default(),
        };
        self.functions.write().insert(id, Arc::new(function));
        functions.insert(index, id);
        Ok(Kind::Function.handle(id))
    }

    pub(crate) fn function(&self, handle: Handle) -> Answer<Arc<Function>> {
        let id = Kind::Function.id(handle)?;
        let found = self.functions.read().get(&id).cloned();
        found.ok_or(Status::INVALID_HANDLE)
    }

    // Events.

    pub(crate) fn event(&self, handle: Handle) -> Answer<Arc<Event>> {
        let id = Kind::Event.id(handle)?;
        let found = self.events.read().get(&id).cloned();
        found.ok_or(Status::INVALID_HANDLE)
    }

    // Memory.

    pub(crate) fn alloc(&self, len: u64, pool: u64) -> Answer<u64> {
        let context = self.current()?.id;
        if len == 0 {
            return Err(Status::INVALID_VALUE);
        }
        let (base, _) = self.remote.ask(|call| Request::Alloc { call, len })?;
        let allocation = Allocation {
            len,
            context,
            pool,
            id: self.remote.id(),
            variable: false,
        };
        self.memory.write().insert(base, allocation);
        self.live.fetch_add(1, Relaxed);
        Ok(base)
    }

    pub(crate) fn free(&self, address: u64, stream: Option<u64>) -> Answer {
        let mut memory = self.memory.write();
        match memory.get(&address) {
            Some(found) if !found.variable => memory.remove(&address),
            _ => return Err(Status::INVALID_VALUE),
        };
        drop(memory);
        self.live.fetch_sub(1, Relaxed);
        self.remote.send(&match stream {
            Some(stream) => Request::FreeAsync { address, stream },
            None => Request::Free { address },
        })
    }

    /// The allocation that holds an address.
    pub(crate) fn find(&self, address: u64) -> Option<(u64, Allocation)> {
        let memory = self.memory.read();
        let (base, found) = memory.range(..=address).next_back()?;
        (address - base < found.len).then_some((*base, *found))
    }

    /// Whether an address is the device's: in an allocation, or where those are.
    pub(crate) fn is_device(&self, address: u64) -> bool {
        let info = self.remote.info();
        self.find(address).is_some()
            || (address >= info.arena_base && address - info.arena_base < info.arena_len)
    }

    /// All of a span must be in one allocation: the error comes here, without a round trip.
    pub(crate) fn check_span(&self, span: &narrows_gpu_wire::Span) -> Answer {
        let len = span.checked_len().ok_or(Status::INVALID_VALUE)?;
        if len == 0 {
            return Ok(());
        }
        let (base, found) = self.find(span.base).ok_or(Status::INVALID_VALUE)?;
        let end = span.end().ok_or(Status::INVALID_VALUE)?;
        if span.is_sane() && end <= base + found.len {
            Ok(())
        } else {
            Err(Status::INVALID_VALUE)
        }
    }
}

/// The thread's context stack.
pub(crate) fn stack<T>(run: impl FnOnce(&mut Vec<u64>) -> T) -> T {
    STACK.with_borrow_mut(run)
}
