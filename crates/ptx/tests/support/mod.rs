//! Device memory for tests: one arena with exact bounds, and a runner that uses two threads.
#![allow(dead_code, unreachable_pub, clippy::result_large_err)]

use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};

use narrows_ptx::texture::Texture;
use narrows_ptx::{
    Atomic, BlockStats, Budget, KernelError, Launch, Limits, Linked, Memory, MemoryError, Module,
    Scratch, run_block,
};

/// Where the arena begins.
pub const BASE: u64 = 0x7000_0000_0000;

/// Bytes that several workers may touch.
pub struct Arena {
    bytes: Vec<AtomicU8>,
    used: AtomicU64,
    atomics: Mutex<()>,
    pub textures: Vec<Texture>,
}

impl Arena {
    pub fn new(len: usize) -> Self {
        Arena {
            bytes: (0..len).map(|_| AtomicU8::new(0)).collect(),
            used: AtomicU64::new(0),
            atomics: Mutex::new(()),
            textures: Vec::new(),
        }
    }

    /// Allocates and returns the address.
    pub fn alloc(&self, len: usize) -> u64 {
        let at = self
            .used
            .fetch_add((len as u64).next_multiple_of(256), Relaxed);
        assert!(at as usize + len <= self.bytes.len(), "the arena is full");
        BASE + at
    }

    pub fn put<T: Plain>(&self, values: &[T]) -> u64 {
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.bytes()).collect();
        let address = self.alloc(bytes.len());
        self.store(address, &bytes).expect("just allocated");
        address
    }

    pub fn get<T: Plain>(&self, address: u64, count: usize) -> Vec<T> {
        let mut bytes = vec![0; count * size_of::<T>()];
        self.load(address, &mut bytes).expect("in range");
        bytes.chunks_exact(size_of::<T>()).map(T::of).collect()
    }

    fn range(&self, address: u64, len: usize) -> Result<&[AtomicU8], MemoryError> {
        let at = address.checked_sub(BASE).ok_or(MemoryError::Range)? as usize;
        let end = at.checked_add(len).ok_or(MemoryError::Range)?;
        if end > self.used.load(Relaxed) as usize {
            return Err(MemoryError::Range);
        }
        self.bytes.get(at..end).ok_or(MemoryError::Range)
    }
}

/// Numbers that tests put into memory.
pub trait Plain: Copy {
    fn bytes(self) -> Vec<u8>;
    fn of(bytes: &[u8]) -> Self;
}

macro_rules! plain {
    ($($t:ty),*) => {$(
        impl Plain for $t {
            fn bytes(self) -> Vec<u8> {
                self.to_le_bytes().to_vec()
            }
            fn of(bytes: &[u8]) -> Self {
                Self::from_le_bytes(bytes.try_into().expect("its size"))
            }
        }
    )*};
}
plain!(u8, i8, u16, i16, u32, i32, u64, i64, f32, f64);

impl Memory for Arena {
    fn load(&self, address: u64, out: &mut [u8]) -> Result<(), MemoryError> {
        let from = self.range(address, out.len())?;
        for (to, from) in out.iter_mut().zip(from) {
            *to = from.load(Relaxed);
        }
        Ok(())
    }

    fn store(&self, address: u64, bytes: &[u8]) -> Result<(), MemoryError> {
        for (to, from) in self.range(address, bytes.len())?.iter().zip(bytes) {
            to.store(*from, Relaxed);
        }
        Ok(())
    }

    fn atomic(&self, address: u64, request: Atomic) -> Result<u64, MemoryError> {
        let _guard = self.atomics.lock().expect("no panic holds it");
        let len = request.width.bytes() as usize;
        let mut bytes = [0; 8];
        self.load(address, &mut bytes[..len])?;
        let old = u64::from_le_bytes(bytes);
        self.store(address, &request.apply(old).to_le_bytes()[..len])?;
        Ok(old)
    }

    fn texture(&self, handle: u64) -> Option<Texture> {
        self.textures.get(handle.checked_sub(1)? as usize).copied()
    }
}

/// A module with its variables in an arena.
pub struct Program {
    pub arena: Arena,
    pub linked: Linked,
    pub addresses: Vec<u64>,
}

/// A launch's shape and parameters.
#[derive(Default, Clone)]
pub struct Shape {
    pub grid: [u32; 3],
    pub block: [u32; 3],
    pub shared: u32,
    pub params: Vec<u8>,
}

impl Shape {
    pub fn new(grid: u32, block: u32) -> Self {
        Shape {
            grid: [grid, 1, 1],
            block: [block, 1, 1],
            ..Shape::default()
        }
    }

    /// Appends a parameter at its natural alignment.
    pub fn arg<T: Plain>(mut self, value: T) -> Self {
        let len = self.params.len().next_multiple_of(size_of::<T>());
        self.params.resize(len, 0);
        self.params.extend(value.bytes());
        self
    }
}

impl Program {
    pub fn new(text: &str) -> Self {
        let module = Module::parse(text, &Limits::default()).unwrap_or_else(|e| panic!("{e}"));
        let arena = Arena::new(16 << 20);
        let addresses: Vec<u64> = module
            .globals()
            .iter()
            .map(|global| arena.alloc(global.size as usize))
            .collect();
        for (global, &address) in module.globals().iter().zip(&addresses) {
            let bytes = Linked::init_bytes(global, &addresses);
            arena.store(address, &bytes).expect("allocated");
        }
        let handles: Vec<u64> = (1..=module.textures().len() as u64).collect();
        let linked = Linked::new(Arc::new(module), &addresses, &handles);
        Program {
            arena,
            linked,
            addresses,
        }
    }

    /// Runs all blocks, in order, and returns what they did.
    pub fn run(&self, kernel: &str, shape: &Shape) -> Result<BlockStats, KernelError> {
        self.run_within(kernel, shape, 1 << 32)
    }

    pub fn run_within(
        &self,
        kernel: &str,
        shape: &Shape,
        budget: u64,
    ) -> Result<BlockStats, KernelError> {
        let budget = Budget::new(budget);
        let kernel = self
            .linked
            .module()
            .kernel(kernel)
            .expect("the kernel is there");
        let launch = Launch {
            linked: &self.linked,
            kernel,
            grid: shape.grid,
            block: shape.block,
            dynamic_shared: shape.shared,
            params: &shape.params,
            budget: &budget,
            start_ns: 1_000_000,
        };
        let mut scratch = Scratch::default();
        let mut all = BlockStats::default();
        for z in 0..shape.grid[2] {
            for y in 0..shape.grid[1] {
                for x in 0..shape.grid[0] {
                    let stats = run_block(&launch, [x, y, z], &self.arena, &mut scratch)?;
                    all.thread_instructions += stats.thread_instructions;
                    all.warp_instructions += stats.warp_instructions;
                }
            }
        }
        Ok(all)
    }

    #[track_caller]
    pub fn ok(&self, kernel: &str, shape: &Shape) -> BlockStats {
        self.run(kernel, shape)
            .unwrap_or_else(|error| panic!("{error}"))
    }
}

/// A sequence of numbers that looks random and is the same every time (splitmix64).
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    pub fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    /// In -1..1.
    pub fn unit(&mut self) -> f32 {
        (self.next() >> 40) as f32 / (1 << 23) as f32 - 1.0
    }
}
