//! What runs codecs: a CPU library or a device.
//!
//! The codec says what the bytes are, the backend who makes them; so a sender may pack DEFLATE on a device and the
//! receiver unpack it with a library.

use std::{fmt::Debug, sync::Arc};

use crate::Codec;

/// Why a backend cannot be used here. The text goes to people: it says what is missing and how to get it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Unavailable(pub String);

/// A maker of codecs. Probed once at start, never at build.
pub trait Backend: Debug + Send + Sync {
    /// What users type and read: `cpu`, `isa-l`, `qat`.
    fn name(&self) -> &'static str;

    /// Which backend is preferred where several run one codec: the highest. The plain CPU libraries are 0.
    fn priority(&self) -> i32;

    /// Looks whether it works on this machine and returns the codecs it runs.
    ///
    /// # Errors
    /// [`Unavailable`], with the reason in words, where library or device is missing.
    fn probe(&self) -> Result<Vec<Arc<dyn Codec>>, Unavailable>;
}
