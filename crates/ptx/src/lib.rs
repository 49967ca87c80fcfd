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
