//! `libcuda.so.1` and `libnvidia-ml.so.1` of a program whose GPU is elsewhere.
//!
//! ```text
//!  program ──▶ exported function ──▶ known here? ──▶ answer
//!                                    │ otherwise a message, or bytes on a lane
//!                                    ▼
//!                              Remote ══ one session ══ narrows gpu serve
//! ```
//!
//! Loaded into other people's programs: nothing unwinds into them, nothing is written to their standard output, its
//! threads take none of their signals, and it is never unloaded. Only NVIDIA's documented driver API is here; what of it
//! is not implemented is exported all the same, returns `CUDA_ERROR_NOT_SUPPORTED` and says its name once. The tables of
//! `docs/gpu.md` are made from these sources.
//!
//! | module | holds |
//! |---|---|
//! | [`settings`] | what `narrows gpu run` tells the library |
//! | [`bandwidth`] | what copies take
//! | [`launcher`] | where the library is, and how a program finds it |
//! | `remote` | the session: requests, answers, callbacks |
//! | `lane` | bytes of copies |
//! | `contents` | what the server keeps of them |
//! | `upload` | copies to the device, in one piece or in several |
//! | `state` | what handles stand for |
//! | `task` | work for a stream, run or captured |
//! | `graph` | graphs: tasks that are kept here and run in order |
//! | `api` | the exported functions |
//! | `nvml` | what programs ask of the management library |

mod api;
pub mod bandwidth;
mod call;
mod contents;
mod ffi;
mod graph;
mod host;
mod lane;
pub mod launcher;
mod nvml;
mod remote;
pub mod settings;
mod state;
mod summary;
mod task;
mod upload;

pub use api::{Export, exports};
pub use narrows_gpu_wire::DeviceInfo;

/// Asks the server that the settings name what its device is.
///
/// # Errors
/// In words, where it cannot be reached or refuses.
pub fn device() -> Result<DeviceInfo, String> {
    let remote = remote::Remote::connect()?;
    let info = remote.info().clone();
    remote.leave();
    Ok(info)
}

/// Exported so that a server that is about to load the real driver can tell that it has found this library instead.
#[unsafe(no_mangle)]
pub extern "C" fn narrows_gpu_client() -> u32 {
    1
}
