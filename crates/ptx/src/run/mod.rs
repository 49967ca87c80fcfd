//! Runs blocks.
use crate::{BlockStats, ErrorKind, KernelError, Launch, Memory};
/// What a worker keeps from block to block: registers and shared memory.
#[derive(Debug, Default)]
pub struct Scratch {}
/// Runs one block of a launch to its end.
pub fn run_block(
    launch: &Launch<'_>,
    block: [u32; 3],
    _memory: &impl Memory,
    _scratch: &mut Scratch,
) -> Result<BlockStats, KernelError> {
    Err(KernelError {
        kernel: launch.kernel.name.clone(),
        kind: ErrorKind::Unsupported("not yet".into()),
        line: 0,
        source: None,
        block,
        thread: None,
        instruction: String::new(),
    })
}
