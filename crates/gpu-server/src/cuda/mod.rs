//! The real driver, opened at run time.

use std::sync::Arc;

use narrows_gpu_abi::Status;

use crate::{Device, Failure, device::Faults};

/// A driver that was found.
#[derive(Debug)]
pub struct Driver {}

impl Driver {
    /// A session's part of it.
    ///
    /// # Errors
    /// No context can be had.
    pub fn open(self: &Arc<Self>, _faults: Faults) -> Result<Arc<dyn Device>, Failure> {
        Err(Status::NOT_SUPPORTED.into())
    }
}
