//! The exported functions, and the table of them.

pub(crate) mod context;
pub(crate) mod copy;
pub(crate) mod device;
pub(crate) mod event;
pub(crate) mod graph;
pub(crate) mod launch;
pub(crate) mod link;
pub(crate) mod memory;
pub(crate) mod module;
pub(crate) mod pointer;
pub(crate) mod pool;
pub(crate) mod proc;
pub(crate) mod stream;
pub(crate) mod texture;

/// An exported function.
#[derive(Debug, Clone, Copy)]
pub struct Export {
    /// Its symbol.
    pub name: &'static str,
    /// Whether it does something, or returns `CUDA_ERROR_NOT_SUPPORTED`.
    pub implemented: bool,
    pub(crate) address: Address,
}

/// Where a function begins.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Address(pub(crate) *const ());

// SAFETY: functions are the same for all threads.
unsafe impl Sync for Address {}
// SAFETY: as above.
unsafe impl Send for Address {}

impl Export {
    const fn new(name: &'static str, address: *const (), implemented: bool) -> Self {
        Self {
            name,
            implemented,
            address: Address(address),
        }
    }
}

/// A symbol that programs look for and that does nothing yet. It takes no parameters: in the C ABI the caller removes
/// what it passed.
macro_rules! refused {
    ($name:ident) => {
        #[unsafe(no_mangle)]
        #[allow(non_snake_case, reason = "the names are those of cuda.h")]
        extern "C" fn $name() -> u32 {
            crate::call::refuse(stringify!($name))
        }
    };
}

include!(concat!(env!("OUT_DIR"), "/exports.rs"));

/// Every exported function of the driver API, sorted by name.
#[must_use]
pub fn exports() -> &'static [Export] {
    EXPORTS
}
