//! The real driver, opened at run time.

use std::sync::Arc;

use narrows_gpu_abi::Status;

use crate::{Device, Failure, device::Faults};

/// A driver that was found.
#[derive(Debug)]
pub struct Driver {}

impl Driver {
    /// Opens the driver's library and one of its devices.
    ///
    /// # Errors
    /// In words, where there is none.
    pub fn open_library(
        _path: Option<&std::path::Path>,
        _device: u32,
    ) -> Result<Arc<Self>, Failure> {
        Err(Failure::new(Status::NOT_SUPPORTED, "not yet"))
    }

    /// A session's part of it.
    ///
    /// # Errors
    /// No context can be had.
    pub fn open(self: &Arc<Self>, _faults: Faults) -> Result<Arc<dyn Device>, Failure> {
        Err(Status::NOT_SUPPORTED.into())
    }
}
