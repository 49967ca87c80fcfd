//! narrows for Python: the module `narrows._narrows`, around which `narrows/` puts what Python code does better.
//!
//! | module | holds |
//! |---|---|
//! | `buffer` | any object's bytes, held while the interpreter's lock is released |
//! | `error` | the exception for each error |
//! | `options` | keyword arguments to options |
//! | `whole` | `compress`, `decompress`, `*_into` |
//! | `stream` | `Compressor`, `Decompressor` |
//! | `seek` | the reader behind `File` |
//!
//! `unsafe` is in `buffer` alone. Locks: each object has one, taken after the interpreter's is released and never
//! beside another, so that two threads may use one object in turn.
#![deny(unsafe_code)]

#[allow(unsafe_code, reason = "bytes of objects that Python keeps")]
mod buffer;
mod error;
mod options;
mod seek;
mod stream;
mod whole;

use pyo3::prelude::*;

/// Lossless compression that chooses a codec by the data.
#[pymodule]
mod _narrows {
    #[pymodule_export]
    use crate::{
        seek::SeekReader,
        stream::{Compressor, Decompressor},
        whole::{
            compress, compress_bound, compress_into, content_size, decompress, decompress_into,
            summary,
        },
    };

    use super::*;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}
