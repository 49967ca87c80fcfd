//! Runs NVIDIA PTX without a GPU: lexer, parser, interpreter. No I/O, threads, clock or `unsafe`.
//!
//! A [`Module`] is parsed once and decoded to a flat list of instructions (`inst.rs`). Its loader
//! allocates its variables, gives their addresses to a [`Linked`], and runs the blocks of a
//! [`Launch`] with [`run_block`], on as many threads as it likes, each with a [`Scratch`] of its
//! own. Dispatch block indices in increasing order: a block may wait for earlier ones.
//!
//! A warp of 32 threads is one vector: every instruction is a loop over lanes, threads that diverge
//! are groups with a program counter each, and the group with the lowest runs first, so that
//! branches come together again (`run/`). Each access is checked and every loop is bounded by the
//! launch's [`Budget`]: text, parameters and addresses may come from anybody.
//!
//! ```
//! use std::sync::{Arc, Mutex};
//! use narrows_ptx::*;
//!
//! /// Eight bytes of device memory at address 0x1000.
//! struct Eight(Mutex<[u8; 8]>);
//!
//! impl Memory for Eight {
//!     fn load(&self, address: u64, out: &mut [u8]) -> Result<(), MemoryError> {
//!         let at = address.checked_sub(0x1000).ok_or(MemoryError::Range)? as usize;
//!         let bytes = self.0.lock().unwrap();
//!         let end = at.checked_add(out.len()).ok_or(MemoryError::Range)?;
//!         out.copy_from_slice(bytes.get(at..end).ok_or(MemoryError::Range)?);
//!         Ok(())
//!     }
//!     fn store(&self, address: u64, bytes: &[u8]) -> Result<(), MemoryError> {
//!         let at = address.checked_sub(0x1000).ok_or(MemoryError::Range)? as usize;
//!         let end = at.checked_add(bytes.len()).ok_or(MemoryError::Range)?;
//!         let mut all = self.0.lock().unwrap();
//!         all.get_mut(at..end).ok_or(MemoryError::Range)?.copy_from_slice(bytes);
//!         Ok(())
//!     }
//!     fn atomic(&self, _: u64, _: Atomic) -> Result<u64, MemoryError> {
//!         Err(MemoryError::Range)
//!     }
//! }
//!
//! let text = ".version 7.0 .target sm_80 .address_size 64
//!     .visible .entry twice(.param .u64 out) {
//!         .reg .u32 %r<3>; .reg .u64 %d<3>;
//!         mov.u32 %r1, %tid.x; add.u32 %r2, %r1, %r1;
//!         ld.param.u64 %d1, [out]; mad.wide.u32 %d2, %r1, 4, %d1;
//!         st.global.u32 [%d2], %r2; ret; }";
//! let module = Arc::new(Module::parse(text, &Limits::default())?);
//! let linked = Linked::new(module, &[], &[]);
//! let launch = Launch {
//!     linked: &linked,
//!     kernel: linked.module().kernel("twice").unwrap(),
//!     grid: [1, 1, 1],
//!     block: [2, 1, 1],
//!     dynamic_shared: 0,
//!     params: &0x1000u64.to_le_bytes(),
//!     budget: &Budget::new(1_000_000),
//!     start_ns: 0,
//! };
//! let memory = Eight(Mutex::new([9; 8]));
//! run_block(&launch, [0, 0, 0], &memory, &mut Scratch::default())?;
//! assert_eq!(*memory.0.lock().unwrap(), [0, 0, 0, 0, 2, 0, 0, 0]);
//!
//! // Three threads do not fit into the memory: the third one is named.
//! let wide = Launch { block: [3, 1, 1], ..launch };
//! let error = run_block(&wide, [0, 0, 0], &memory, &mut Scratch::default()).unwrap_err();
//! assert_eq!((error.thread, error.kind.cuda()), (Some([2, 0, 0]), 700));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! `docs/specs/ptx.md` lists the instructions and the rounding of each. Downstream: `gpu-server`.
#![forbid(unsafe_code)]
// An error is made once a launch; it carries what a user needs to find the fault.
#![allow(clippy::result_large_err)]

mod error;
mod inst;
mod launch;
mod lower;
mod memory;
mod module;
mod num;
mod run;
mod text;
pub mod texture;

pub use error::{ErrorKind, KernelError, ParseError};
pub use launch::{BlockStats, Budget, Launch};
pub use memory::{Atomic, AtomicOp, Memory, MemoryError, Width};
pub use module::{Global, Kernel, Linked, Module, Param, Relocation, Space, Texref, TexrefKind};
pub use run::{Scratch, run_block};

/// Bounds on what a module may ask for, checked before memory is allocated.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Text, in bytes.
    pub text_bytes: usize,
    /// Instructions of all functions together.
    pub instructions: usize,
    /// Registers of one function.
    pub registers: usize,
    /// Distinct constants of a module; each takes 256 bytes.
    pub constants: usize,
    /// Variables in global and constant memory together, in bytes.
    pub global_bytes: u64,
    /// Shared memory of one kernel, in bytes.
    pub shared_bytes: u32,
    /// Stack of one thread, in bytes.
    pub stack_bytes: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            text_bytes: 64 << 20,
            instructions: 4 << 20,
            registers: 1 << 15,
            constants: 1 << 18,
            global_bytes: 4 << 30,
            shared_bytes: 228 << 10,
            stack_bytes: 64 << 10,
        }
    }
}
