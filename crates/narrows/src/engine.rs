//! What a process has once: codecs, worker threads, buffers, a clock.

use std::{sync::Arc, thread};

use narrows_core::{Clock, Registry};
use narrows_pipeline::{Buf, BufferPool, WorkerPool};

/// Unused buffers a process keeps, in bytes: enough for two chunks per worker and the frames between them.
const KEPT_BYTES_MAX: usize = 64 << 20;

/// Shared by all endpoints of a process. Clones are handles of the same engine.
///
/// ```
/// use narrows::Engine;
///
/// let engine = Engine::new(2);
/// assert_eq!(engine.workers(), 2);
/// assert!(engine.registry.by_name("zstd").is_some());
/// ```
#[derive(Debug, Clone)]
pub struct Engine {
    /// Codecs this process can run.
    pub registry: Arc<Registry>,
    pub(crate) pool: Arc<WorkerPool>,
    pub(crate) buffers: Arc<BufferPool>,
    pub(crate) clock: Arc<dyn Clock>,
    processors: usize,
}

impl Engine {
    /// Starts `workers` threads; 0 means one for each processor this process may use.
    #[must_use]
    pub fn new(workers: usize) -> Self {
        Self::with_registry(workers, default_registry())
    }

    /// The same with codecs of the caller's choice: [`default_registry`], and some more or fewer. Both ends of a session
    /// need a codec for it to be used.
    #[must_use]
    pub fn with_registry(workers: usize, registry: Registry) -> Self {
        let processors = thread::available_parallelism().map_or(1, usize::from);
        let workers = if workers == 0 { processors } else { workers };
        Self {
            registry: Arc::new(registry),
            pool: WorkerPool::new(workers),
            buffers: BufferPool::new(KEPT_BYTES_MAX),
            clock: Arc::new(RealClock(narrows_io::meter::Clock)),
            processors,
        }
    }

    /// A buffer of `len` bytes, for a chunk that is filled before there is a channel for it.
    ///
    /// # Panics
    /// When `len` is more than 32 MiB.
    #[must_use]
    pub fn buffer(&self, len: usize) -> Buf {
        self.buffers.take(len)
    }

    /// How many threads pack and unpack.
    #[must_use]
    pub fn workers(&self) -> usize {
        self.pool.workers()
    }

    /// How many of them can work at once: what more threads than processors pack is no more.
    pub(crate) fn workers_at_once(&self) -> u32 {
        self.workers().min(self.processors) as u32
    }
}

/// The codecs of every backend that is there.
///
/// # Panics
/// When two backends give one id different names: a build mistake that the first test finds.
#[must_use]
pub fn default_registry() -> Registry {
    let mut registry = Registry::default();
    registry
        .add(&narrows_codecs::Cpu)
        .and_then(|registry| registry.add(&narrows_backends::isal::IsaL))
        .and_then(|registry| registry.add(&narrows_backends::qat::Qat::default()))
        .and_then(|registry| registry.add(&narrows_backends::iaa::Iaa::default()))
        .and_then(|registry| registry.add(&narrows_backends::doca::Doca::default()))
        .expect("codec ids are unique");
    registry
}

#[derive(Debug)]
struct RealClock(narrows_io::meter::Clock);

impl Clock for RealClock {
    fn now_ns(&self) -> u64 {
        self.0.now_ns()
    }

    fn thread_cpu_ns(&self) -> u64 {
        narrows_io::meter::thread_cpu_ns()
    }

    fn thread_delayed_ns(&self) -> u64 {
        narrows_io::meter::thread_delayed_ns()
    }
}
