//! Results of driver calls.

use std::fmt;

use crate::RESULTS;

/// A driver's answer: 0 is success.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Status(pub u32);

impl Status {
    /// It worked.
    pub const SUCCESS: Self = Self(0);
    /// A parameter makes no sense.
    pub const INVALID_VALUE: Self = Self(1);
    /// No memory of that size is left.
    pub const OUT_OF_MEMORY: Self = Self(2);
    /// `cuInit` was not called, or the process is a child that was forked after it.
    pub const NOT_INITIALIZED: Self = Self(3);
    /// There is no device to speak of: the server cannot be reached.
    pub const NO_DEVICE: Self = Self(100);
    /// No such device.
    pub const INVALID_DEVICE: Self = Self(101);
    /// The image is no module.
    pub const INVALID_IMAGE: Self = Self(200);
    /// No context is current, or it was destroyed.
    pub const INVALID_CONTEXT: Self = Self(201);
    /// The image has nothing for this device.
    pub const NO_BINARY_FOR_GPU: Self = Self(209);
    /// The image's PTX does not parse.
    pub const INVALID_PTX: Self = Self(218);
    /// A file could not be read.
    pub const FILE_NOT_FOUND: Self = Self(301);
    /// A handle that nobody was given.
    pub const INVALID_HANDLE: Self = Self(400);
    /// Asked for in a state that does not allow it.
    pub const ILLEGAL_STATE: Self = Self(401);
    /// No such function, global or symbol.
    pub const NOT_FOUND: Self = Self(500);
    /// Not an error: the work is not done yet.
    pub const NOT_READY: Self = Self(600);
    /// A kernel touched memory that it has not.
    pub const ILLEGAL_ADDRESS: Self = Self(700);
    /// A launch needs more than there is.
    pub const LAUNCH_OUT_OF_RESOURCES: Self = Self(701);
    /// A kernel ran too long.
    pub const LAUNCH_TIMEOUT: Self = Self(702);
    /// The primary context is in use.
    pub const PRIMARY_CONTEXT_ACTIVE: Self = Self(708);
    /// The context was destroyed.
    pub const CONTEXT_IS_DESTROYED: Self = Self(709);
    /// The kernel ran into a trap or an assertion.
    pub const ASSERT: Self = Self(710);
    /// Registered already.
    pub const HOST_MEMORY_ALREADY_REGISTERED: Self = Self(712);
    /// Not registered.
    pub const HOST_MEMORY_NOT_REGISTERED: Self = Self(713);
    /// A kernel did something that its device cannot.
    pub const ILLEGAL_INSTRUCTION: Self = Self(715);
    /// A kernel's access was not aligned.
    pub const MISALIGNED_ADDRESS: Self = Self(716);
    /// A kernel failed otherwise.
    pub const LAUNCH_FAILED: Self = Self(719);
    /// Forbidden here.
    pub const NOT_PERMITTED: Self = Self(800);
    /// Not implemented.
    pub const NOT_SUPPORTED: Self = Self(801);
    /// Something went wrong of which nothing is known.
    pub const UNKNOWN: Self = Self(999);

    /// Its name in `cuda.h`; `None` where it has none.
    #[must_use]
    pub fn name(self) -> Option<&'static str> {
        RESULTS
            .iter()
            .find(|(value, _)| *value == self.0)
            .map(|(_, name)| *name)
    }

    /// As an answer.
    ///
    /// # Errors
    /// Itself, unless it is [`Status::SUCCESS`].
    pub fn ok(self) -> Result<(), Self> {
        if self == Self::SUCCESS {
            Ok(())
        } else {
            Err(self)
        }
    }
}

impl fmt::Debug for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.name().unwrap_or("unknown"), self.0)
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

impl std::error::Error for Status {}
