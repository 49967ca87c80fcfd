//! The bytes of any object that has the buffer protocol: `bytes`, `bytearray`, `memoryview`, `mmap`, arrays.

use std::slice;

use pyo3::{buffer::PyUntypedBuffer, exceptions::PyBufferError, prelude::*};

/// Bytes that Python keeps where they are for as long as this is held.
///
/// Another thread may change them while the interpreter's lock is released, as with every library that releases it: what
/// is packed then is some mixture, which its check covers.
#[derive(Debug)]
pub(crate) struct Bytes(PyUntypedBuffer);

impl Bytes {
    /// Those of `object`, in the order in which they lie in memory.
    pub(crate) fn of(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        let buffer = PyUntypedBuffer::get(object)?;
        if !buffer.is_c_contiguous() && !buffer.is_fortran_contiguous() {
            return Err(PyBufferError::new_err(
                "the bytes do not lie side by side; copy them first",
            ));
        }
        Ok(Self(buffer))
    }

    /// The same, to be written.
    pub(crate) fn of_writable(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        let bytes = Self::of(object)?;
        if bytes.0.readonly() {
            return Err(PyBufferError::new_err("the destination is read-only"));
        }
        Ok(bytes)
    }

    pub(crate) fn as_slice(&self) -> &[u8] {
        let len = self.0.len_bytes();
        if len == 0 {
            return &[];
        }
        // SAFETY: Python keeps `len` bytes there while the buffer is held, side by side (checked), and any byte is a
        // value of `u8`.
        unsafe { slice::from_raw_parts(self.0.buf_ptr().cast(), len) }
    }

    /// Of bytes made by [`Bytes::of_writable`].
    pub(crate) fn as_mut_slice(&mut self) -> &mut [u8] {
        let len = self.0.len_bytes();
        if len == 0 {
            return &mut [];
        }
        // SAFETY: as above, and Python lets them be written (checked).
        unsafe { slice::from_raw_parts_mut(self.0.buf_ptr().cast(), len) }
    }
}
