//! Makers of codecs that are opened at run time, never linked: where the library or device is missing, the reason is a
//! line in `narrows codecs` and everything else works.
//!
//! Floor: above `core`, beside `codecs`. One module a library or device API; `docs/backends.md` has them side by side.
//!
//! | module | library | what answers |
//! |---|---|---|
//! | [`isal`] | ISA-L | the CPU |
//! | [`qat`] | QATzip | Intel QuickAssist |
//! | [`iaa`] | QPL | Intel In-Memory Analytics Accelerator |
//! | [`doca`] | DOCA Compress | NVIDIA BlueField |
//! | [`rbd`] | librbd | a Ceph cluster: no codec, but a library of the same kind |
//!
//! Beside them: `device`, what the last three share; `cpu`, what they fall back to; `libdeflate`, which unpacks for
//! all; `format`, DEFLATE's wrappings; `library`, where libraries come from.

mod cpu;
mod device;
pub mod doca;
mod format;
pub mod iaa;
pub mod isal;
mod libdeflate;
mod library;
pub mod qat;
pub mod rbd;

pub use device::Usage;
