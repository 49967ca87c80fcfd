//! Why a module did not parse, and why a kernel stopped.

use std::fmt;

use crate::MemoryError;

/// A module's text is not PTX, or exceeds the caller's [`Limits`](crate::Limits).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("PTX line {line}, column {column}: {what}")]
pub struct ParseError {
    /// Line in the text, from 1.
    pub line: u32,
    /// Column in the line, in bytes from 1.
    pub column: u32,
    /// What was expected, or which limit was exceeded.
    pub what: String,
}

/// A kernel was stopped. Every field that is known is filled in, so that a user finds the line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KernelError {
    /// Name of the kernel that was launched.
    pub kernel: String,
    /// What went wrong.
    pub kind: ErrorKind,
    /// Line in the PTX text, from 1; 0 if the fault has no instruction.
    pub line: u32,
    /// Source file and line from the nearest `.loc`, if the module has them.
    pub source: Option<(String, u32)>,
    /// Block index.
    pub block: [u32; 3],
    /// Index in the block of the first thread at fault, if one thread is at fault.
    pub thread: Option<[u32; 3]>,
    /// The instruction's text, shortened.
    pub instruction: String,
}

impl std::error::Error for KernelError {}

impl fmt::Display for KernelError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "kernel {}: {}", self.kernel, self.kind)?;
        let [x, y, z] = self.block;
        write!(f, ", block ({x},{y},{z})")?;
        if let Some([x, y, z]) = self.thread {
            write!(f, ", thread ({x},{y},{z})")?;
        }
        if self.line != 0 {
            write!(f, ", PTX line {}", self.line)?;
        }
        if let Some((file, line)) = &self.source {
            write!(f, " ({file}:{line})")?;
        }
        if !self.instruction.is_empty() {
            write!(f, ": {}", self.instruction)?;
        }
        Ok(())
    }
}

/// What stopped a kernel. Each has the CUDA error a device would report, see [`ErrorKind::cuda`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ErrorKind {
    /// An access outside every allocation, or to a place that may not be written.
    #[error("illegal address {address:#x}, {len} bytes of {space} memory")]
    Address {
        /// The address, in its space.
        address: u64,
        /// Length of the access in bytes.
        len: u32,
        /// `global`, `shared`, `local`, `param` or `generic`.
        space: &'static str,
    },
    /// An access at an address that is no multiple of its length.
    #[error("misaligned address {address:#x} for {len} bytes of {space} memory")]
    Misaligned {
        /// The address, in its space.
        address: u64,
        /// Length of the access in bytes.
        len: u32,
        /// `global`, `shared`, `local`, `param` or `generic`.
        space: &'static str,
    },
    /// The interpreter has no such instruction, or not in this form.
    #[error("{0}")]
    Unsupported(String),
    /// The launch's budget of thread-instructions is spent.
    #[error("the launch's budget of instructions is spent")]
    Budget,
    /// Every thread waits for another one.
    #[error("all threads wait at barriers that cannot complete")]
    Deadlock,
    /// Calls nest too deep, or their frames exceed the stack.
    #[error("the stack of calls is exhausted")]
    Stack,
    /// The kernel executed `trap`, or a device-side `assert` failed.
    #[error("the kernel trapped{0}")]
    Trap(String),
    /// An indirect call or branch to something that is no function or label of the list.
    #[error("indirect call or branch to {0:#x}")]
    Target(u64),
    /// A texture handle that the loader does not know.
    #[error("no texture has the handle {0:#x}")]
    Texture(u64),
    /// The launch does not fit the kernel: block too large, parameters missing, too much memory.
    #[error("launch: {0}")]
    Launch(String),
}

impl ErrorKind {
    /// The number of the CUDA error (`CUresult`) that a device reports in this case.
    pub fn cuda(&self) -> u32 {
        match self {
            ErrorKind::Address { .. } => 700,
            ErrorKind::Budget | ErrorKind::Deadlock => 702,
            ErrorKind::Misaligned { .. } => 716,
            ErrorKind::Unsupported(_) => 801,
            ErrorKind::Stack | ErrorKind::Trap(_) | ErrorKind::Texture(_) => 719,
            ErrorKind::Target(_) => 718,
            ErrorKind::Launch(_) => 1,
        }
    }

    pub(crate) fn of_memory(error: MemoryError, address: u64, len: u32) -> Self {
        match error {
            MemoryError::Range | MemoryError::ReadOnly => ErrorKind::Address {
                address,
                len,
                space: "global",
            },
            MemoryError::Misaligned => ErrorKind::Misaligned {
                address,
                len,
                space: "global",
            },
        }
    }
}
