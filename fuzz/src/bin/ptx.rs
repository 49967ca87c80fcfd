//! PTX from anybody: it parses or not, and its kernels end within their budget or with an error.
#![no_main]

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

use libfuzzer_sys::fuzz_target;
use narrows_ptx::texture::{AddressMode, Format, Texture};
use narrows_ptx::{
    Atomic, Budget, Launch, Limits, Linked, Memory, MemoryError, Module, Scratch, run_block,
};

const BASE: u64 = 0x7000_0000_0000;
const BUDGET: u64 = 50_000;

struct Arena(Vec<AtomicU8>);

impl Arena {
    fn range(&self, address: u64, len: usize) -> Result<&[AtomicU8], MemoryError> {
        let at = address.checked_sub(BASE).ok_or(MemoryError::Range)? as usize;
        let end = at.checked_add(len).ok_or(MemoryError::Range)?;
        self.0.get(at..end).ok_or(MemoryError::Range)
    }
}

impl Memory for Arena {
    fn load(&self, address: u64, out: &mut [u8]) -> Result<(), MemoryError> {
        let from = self.range(address, out.len())?;
        out.iter_mut()
            .zip(from)
            .for_each(|(to, from)| *to = from.load(Relaxed));
        Ok(())
    }

    fn store(&self, address: u64, bytes: &[u8]) -> Result<(), MemoryError> {
        let to = self.range(address, bytes.len())?;
        to.iter()
            .zip(bytes)
            .for_each(|(to, from)| to.store(*from, Relaxed));
        Ok(())
    }

    fn atomic(&self, address: u64, request: Atomic) -> Result<u64, MemoryError> {
        let len = request.width.bytes() as usize;
        let mut bytes = [0; 8];
        self.load(address, &mut bytes[..len])?;
        let old = u64::from_le_bytes(bytes);
        self.store(address, &request.apply(old).to_le_bytes()[..len])?;
        Ok(old)
    }

    fn texture(&self, handle: u64) -> Option<Texture> {
        (handle & 7 == 1).then_some(Texture {
            address: BASE,
            width: 16,
            height: 16,
            depth: 2,
            pitch: 64,
            slice: 1024,
            format: Format::U8,
            channels: 4,
            address_mode: [AddressMode::Wrap, AddressMode::Mirror, AddressMode::Clamp],
            linear: handle & 8 != 0,
            normalized: handle & 16 != 0,
            as_integer: handle & 32 != 0,
        })
    }
}

fuzz_target!(|data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    let limits = Limits {
        text_bytes: 1 << 16,
        instructions: 4096,
        registers: 2048,
        constants: 4096,
        global_bytes: 1 << 16,
        shared_bytes: 1 << 14,
        stack_bytes: 1 << 12,
    };
    let Ok(module) = Module::parse(text, &limits) else {
        return;
    };
    let arena = Arena((0..1 << 16).map(|_| AtomicU8::new(0)).collect());
    let addresses: Vec<u64> = (0..module.globals().len() as u64)
        .map(|i| BASE + 256 * i)
        .collect();
    for (global, &address) in module.globals().iter().zip(&addresses) {
        let _ = arena.store(address, &Linked::init_bytes(global, &addresses));
    }
    let textures: Vec<u64> = (0..module.textures().len() as u64)
        .map(|i| 8 * i + 1)
        .collect();
    let linked = Linked::new(Arc::new(module), &addresses, &textures);
    let mut scratch = Scratch::default();
    for kernel in linked.module().kernels().take(3) {
        let budget = Budget::new(BUDGET);
        let params: Vec<u8> = BASE
            .to_le_bytes()
            .repeat(kernel.param_bytes as usize / 8 + 1);
        let threads = 40.min(kernel.max_threads);
        let launch = Launch {
            linked: &linked,
            kernel,
            grid: [2, 1, 1],
            block: kernel.required_block.unwrap_or([threads, 1, 1]),
            dynamic_shared: 128,
            params: &params,
            budget: &budget,
            start_ns: 0,
        };
        if let Ok(stats) = run_block(&launch, [1, 0, 0], &arena, &mut scratch) {
            assert!(
                stats.thread_instructions <= BUDGET,
                "a block costs more than its budget"
            );
        }
    }
});
