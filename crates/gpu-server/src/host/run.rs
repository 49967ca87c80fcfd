//! Launches: blocks of a grid on worker threads, memory as kernels see it.

use std::{
    collections::{HashMap, VecDeque},
    sync::{
        Arc,
        atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
    time::{SystemTime, UNIX_EPOCH},
};

use narrows_gpu_abi::Status;
use narrows_gpu_wire::Launch;
use narrows_ptx::{
    Atomic, Budget, KernelError, Memory, MemoryError, Scratch, Width, run_block, texture::Texture,
};
use parking_lot::{Condvar, Mutex};

use super::{
    attributes::THREADS_PER_BLOCK,
    memory::Block,
    module::{Code, Loaded},
};
use crate::Failure;

/// A launch that was checked.
#[derive(Clone)]
pub(super) struct Job {
    code: Code,
    launch: Launch,
    pub(super) budget: Arc<Budget>,
}

impl Job {
    pub(super) fn new(module: &Loaded, launch: Launch, budget: u64) -> Result<Self, Failure> {
        let code = module.code(launch.kernel.index)?.clone();
        let refuse = |text: String| {
            Failure::new(
                Status::INVALID_VALUE,
                format!("kernel {}: {text}", code.kernel.name),
            )
        };
        let (grid, block) = (launch.grid, launch.block);
        let threads = block
            .iter()
            .try_fold(1_u32, |product, len| product.checked_mul(*len));
        let most = code.kernel.max_threads.min(THREADS_PER_BLOCK as u32);
        if threads.is_none_or(|threads| threads == 0 || threads > most) {
            return Err(refuse(format!(
                "a block of {block:?} threads; it takes {most}"
            )));
        }
        if grid.contains(&0) || grid[0] > i32::MAX as u32 || grid[1].max(grid[2]) > 65_535 {
            return Err(refuse(format!("a grid of {grid:?} blocks")));
        }
        if launch.params.len() < code.kernel.param_bytes as usize {
            return Err(refuse(format!(
                "{} bytes of parameters; it takes {}",
                launch.params.len(),
                code.kernel.param_bytes
            )));
        }
        let dynamic_max = module.dynamic_max(launch.kernel.index);
        if i64::from(launch.shared) > i64::from(dynamic_max) {
            return Err(refuse(format!(
                "{} bytes of dynamic shared memory; it may have {dynamic_max}",
                launch.shared
            )));
        }
        if launch.cooperative {
            let text = refuse("a cooperative launch".into()).text;
            return Err(Failure::new(Status::NOT_SUPPORTED, text));
        }
        Ok(Self {
            code,
            launch,
            budget: Arc::new(Budget::new(budget)),
        })
    }

    fn blocks(&self) -> u64 {
        self.launch.grid.iter().map(|len| u64::from(*len)).product()
    }
}

/// Launches that run now, so that the end of a session ends them.
#[derive(Debug, Default)]
pub(super) struct Running(Mutex<(bool, Vec<Arc<Budget>>)>);

impl Running {
    pub(super) fn during<T>(&self, budget: &Arc<Budget>, run: impl FnOnce() -> T) -> T {
        let mut state = self.0.lock();
        if state.0 {
            budget.cancel();
        }
        state.1.push(budget.clone());
        drop(state);
        let result = run();
        self.0.lock().1.retain(|other| !Arc::ptr_eq(other, budget));
        result
    }

    pub(super) fn cancel(&self) {
        let mut state = self.0.lock();
        state.0 = true;
        state.1.iter().for_each(|budget| budget.cancel());
    }

    pub(super) fn renew(&self) {
        self.0.lock().0 = false;
    }
}

/// Threads that run blocks. The stream's own thread takes part, so that there is always one.
#[derive(Debug)]
pub(super) struct Workers {
    shared: Arc<Shared>,
    helpers: usize,
}

#[derive(Default)]
struct Shared {
    tasks: Mutex<(VecDeque<Arc<Grid>>, bool)>,
    wake: Condvar,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").finish_non_exhaustive()
    }
}

/// A launch that runs.
struct Grid {
    job: Job,
    view: View,
    next: AtomicU64,
    start_ns: u64,
    /// Threads at it, and the first error.
    state: Mutex<(usize, Option<KernelError>)>,
    left: Condvar,
}

impl Workers {
    pub(super) fn start(workers: usize) -> std::io::Result<Self> {
        let shared = Arc::<Shared>::default();
        let helpers = workers.saturating_sub(1);
        for _ in 0..helpers {
            let shared = shared.clone();
            narrows_io::thread::spawn("gpu-worker", move || help(&shared))?;
        }
        Ok(Self { shared, helpers })
    }

    pub(super) fn run(&self, job: Job, view: View) -> Result<(), Failure> {
        let blocks = job.blocks();
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let grid = Arc::new(Grid {
            job,
            view,
            next: AtomicU64::new(0),
            start_ns: now.map_or(0, |now| now.as_nanos() as u64),
            state: Mutex::default(),
            left: Condvar::new(),
        });
        let helpers = (self.helpers as u64).min(blocks.saturating_sub(1));
        if helpers > 0 {
            let mut tasks = self.shared.tasks.lock();
            for _ in 0..helpers {
                tasks.0.push_back(grid.clone());
            }
            drop(tasks);
            self.shared.wake.notify_all();
        }
        grid.work();
        if helpers > 0 {
            self.shared
                .tasks
                .lock()
                .0
                .retain(|other| !Arc::ptr_eq(other, &grid));
        }
        let mut state = grid.state.lock();
        while state.0 > 0 {
            grid.left.wait(&mut state);
        }
        match state.1.take() {
            None => Ok(()),
            Some(fault) => {
                let status = Status(fault.kind.cuda());
                Err(Failure::new(status, fault.to_string()))
            }
        }
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.shared.tasks.lock().1 = true;
        self.shared.wake.notify_all();
    }
}

fn help(shared: &Shared) {
    loop {
        let mut tasks = shared.tasks.lock();
        let grid = loop {
            match tasks.0.pop_front() {
                Some(grid) => break grid,
                None if tasks.1 => return,
                None => shared.wake.wait(&mut tasks),
            }
        };
        // Counted before it could be taken off the list, so that nobody stops waiting for it.
        grid.state.lock().0 += 1;
        drop(tasks);
        grid.work();
        grid.state.lock().0 -= 1;
        grid.left.notify_all();
    }
}

impl Grid {
    fn work(&self) {
        let Job {
            code,
            launch,
            budget,
        } = &self.job;
        let task = narrows_ptx::Launch {
            linked: &code.linked,
            kernel: &code.kernel,
            grid: launch.grid,
            block: launch.block,
            dynamic_shared: launch.shared,
            params: &launch.params,
            budget,
            start_ns: self.start_ns,
        };
        let (view, mut scratch) = (self.view.for_worker(), Scratch::default());
        let blocks = self.job.blocks();
        loop {
            let at = self.next.fetch_add(1, Relaxed);
            if at >= blocks {
                return;
            }
            let [x, y] = [launch.grid[0], launch.grid[1]].map(u64::from);
            let index = [at % x, at / x % y, at / (x * y)].map(|index| index as u32);
            if let Err(fault) = run_block(&task, index, &view, &mut scratch) {
                self.next.store(blocks, Relaxed);
                // The others stop too; what they say then is a consequence.
                self.state.lock().1.get_or_insert(fault);
                budget.cancel();
                return;
            }
        }
    }
}

/// Device memory as a kernel sees it: the allocations of the moment at which it began. They stay while it runs.
pub(super) struct View {
    blocks: Arc<[Arc<Block>]>,
    textures: Arc<HashMap<u64, Texture>>,
    /// Where the last accesses were found, by a few bits of their addresses. A worker has a view of its own.
    hints: [AtomicUsize; 16],
}

impl View {
    pub(super) fn new(blocks: Arc<[Arc<Block>]>, textures: HashMap<u64, Texture>) -> Self {
        Self {
            blocks,
            textures: Arc::new(textures),
            hints: Default::default(),
        }
    }

    fn for_worker(&self) -> Self {
        Self {
            blocks: self.blocks.clone(),
            textures: self.textures.clone(),
            hints: Default::default(),
        }
    }

    #[inline]
    fn find(&self, address: u64, len: u64) -> Result<&Block, MemoryError> {
        let hint = &self.hints[(address >> 16) as usize % 16];
        if let Some(block) = self.blocks.get(hint.load(Relaxed))
            && block.holds(address, len)
        {
            return Ok(block);
        }
        let at = self.blocks.partition_point(|block| block.base <= address);
        let at = at.checked_sub(1).ok_or(MemoryError::Range)?;
        let block = &self.blocks[at];
        if !block.holds(address, len) {
            return Err(MemoryError::Range);
        }
        hint.store(at, Relaxed);
        Ok(block)
    }
}

/// An access of one width: a single one where the address allows it, so that racing blocks see old or new values.
macro_rules! widths {
    ($($load:ident $store:ident $atomic:ident $int:ty;)*) => { $(
        #[inline]
        fn $load(&self, address: u64) -> Result<$int, MemoryError> {
            const LEN: usize = size_of::<$int>();
            let block = self.find(address, LEN as u64)?;
            if address % LEN as u64 != 0 {
                let mut bytes = [0; LEN];
                block.read(address, &mut bytes);
                return Ok(<$int>::from_le_bytes(bytes));
            }
            // SAFETY: `find` says that the block holds all of it; it is aligned (checked above); the pages stay mapped
            // while the view holds the block; and memory of kernels is reached through atomics or raw copies only.
            let place = unsafe { $atomic::from_ptr(address as *mut $int) };
            Ok(<$int>::from_le(place.load(Relaxed)))
        }

        #[inline]
        fn $store(&self, address: u64, value: $int) -> Result<(), MemoryError> {
            const LEN: usize = size_of::<$int>();
            let block = self.find(address, LEN as u64)?;
            if address % LEN as u64 != 0 {
                block.write(address, &value.to_le_bytes());
                return Ok(());
            }
            // SAFETY: as above.
            let place = unsafe { $atomic::from_ptr(address as *mut $int) };
            place.store(value.to_le(), Relaxed);
            Ok(())
        }
    )* };
}

macro_rules! update {
    ($atomic:ident, $int:ty, $address:expr, $request:expr) => {{
        // SAFETY: `atomic` has found the block that holds it and checked its alignment; see `widths`.
        let place = unsafe { $atomic::from_ptr($address as *mut $int) };
        let mut old = place.load(Relaxed);
        loop {
            let new = $request.apply(u64::from(old)) as $int;
            match place.compare_exchange_weak(old, new, Relaxed, Relaxed) {
                Ok(old) => break u64::from(old),
                Err(found) => old = found,
            }
        }
    }};
}

impl Memory for View {
    fn load(&self, address: u64, out: &mut [u8]) -> Result<(), MemoryError> {
        self.find(address, out.len() as u64)?.read(address, out);
        Ok(())
    }

    fn store(&self, address: u64, bytes: &[u8]) -> Result<(), MemoryError> {
        self.find(address, bytes.len() as u64)?
            .write(address, bytes);
        Ok(())
    }

    fn atomic(&self, address: u64, request: Atomic) -> Result<u64, MemoryError> {
        let len = u64::from(request.width.bytes());
        if !address.is_multiple_of(len) {
            return Err(MemoryError::Misaligned);
        }
        self.find(address, len)?;
        Ok(match request.width {
            Width::B16 => update!(AtomicU16, u16, address, request),
            Width::B32 => update!(AtomicU32, u32, address, request),
            Width::B64 => update!(AtomicU64, u64, address, request),
        })
    }

    fn texture(&self, handle: u64) -> Option<Texture> {
        self.textures.get(&handle).copied()
    }

    widths! {
        load_u8 store_u8 AtomicU8 u8;
        load_u16 store_u16 AtomicU16 u16;
        load_u32 store_u32 AtomicU32 u32;
        load_u64 store_u64 AtomicU64 u64;
    }
}
