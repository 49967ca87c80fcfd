//! Whole buffers.

use std::io;

use narrows_rest::{FileError, SeekReader};
use pyo3::{
    prelude::*,
    types::{PyBytes, PyDict},
};

use crate::{buffer::Bytes, error::Error, options::options};

/// What content of this length cannot be, so that it is refused before memory is taken for it.
const LEN_MAX: u64 = isize::MAX as u64;

#[pyfunction]
#[pyo3(signature = (data, /, *, goal=None, level=None, dtype=None, threads=0, chunk=0))]
pub(crate) fn compress<'py>(
    data: &Bound<'py, PyAny>,
    goal: Option<&str>,
    level: Option<u8>,
    dtype: Option<&str>,
    threads: usize,
    chunk: usize,
) -> PyResult<Bound<'py, PyBytes>> {
    let (py, data) = (data.py(), Bytes::of(data)?);
    let options = options(goal, level, dtype, threads, chunk)?;
    let packed = py.detach(|| narrows_rest::pack(data.as_slice(), &options));
    Ok(PyBytes::new(py, &packed.map_err(Error::from)?))
}

#[pyfunction]
#[pyo3(signature = (data, out, /, *, goal=None, level=None, dtype=None, threads=0, chunk=0))]
#[allow(clippy::too_many_arguments, reason = "keyword arguments of Python")]
pub(crate) fn compress_into(
    data: &Bound<'_, PyAny>,
    out: &Bound<'_, PyAny>,
    goal: Option<&str>,
    level: Option<u8>,
    dtype: Option<&str>,
    threads: usize,
    chunk: usize,
) -> PyResult<usize> {
    let (py, data, mut out) = (data.py(), Bytes::of(data)?, Bytes::of_writable(out)?);
    let options = options(goal, level, dtype, threads, chunk)?;
    let limit = out.as_slice().len() as u64;
    let packed = py.detach(|| {
        let mut out = io::Cursor::new(out.as_mut_slice());
        let packed = narrows_rest::pack_to(&mut out, data.as_slice(), &options);
        packed.map(|_| out.position() as usize)
    });
    packed.map_err(|error| match error {
        FileError::Io(fault) if fault.kind() == io::ErrorKind::WriteZero => {
            Error::from(FileError::Limit {
                what: "packed bytes",
                asked: limit + 1,
                limit,
            })
            .into()
        }
        error => Error::from(error).into(),
    })
}

#[pyfunction]
#[pyo3(signature = (data, /, *, limit=None))]
pub(crate) fn decompress<'py>(
    data: &Bound<'py, PyAny>,
    limit: Option<u64>,
) -> PyResult<Bound<'py, PyBytes>> {
    let (py, data) = (data.py(), Bytes::of(data)?);
    let limit = limit.unwrap_or(LEN_MAX);
    let content = py.detach(|| narrows_rest::unpack(data.as_slice(), limit));
    Ok(PyBytes::new(py, &content.map_err(Error::from)?))
}

#[pyfunction]
#[pyo3(signature = (data, out, /))]
pub(crate) fn decompress_into(data: &Bound<'_, PyAny>, out: &Bound<'_, PyAny>) -> PyResult<usize> {
    let (py, data, mut out) = (data.py(), Bytes::of(data)?, Bytes::of_writable(out)?);
    let len = py.detach(|| narrows_rest::unpack_into(data.as_slice(), out.as_mut_slice()));
    Ok(len.map_err(Error::from)?)
}

#[pyfunction]
#[pyo3(signature = (size, /))]
pub(crate) fn compress_bound(size: u64) -> u64 {
    narrows_rest::packed_len_max(size)
}

#[pyfunction]
#[pyo3(signature = (data, /))]
pub(crate) fn content_size(data: &Bound<'_, PyAny>) -> PyResult<u64> {
    let (py, data) = (data.py(), Bytes::of(data)?);
    let reader = py.detach(|| SeekReader::new(io::Cursor::new(data.as_slice())));
    Ok(reader.map_err(Error::from)?.summary().content_len)
}

#[pyfunction]
#[pyo3(signature = (data, /))]
pub(crate) fn summary<'py>(data: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyDict>> {
    let (py, data) = (data.py(), Bytes::of(data)?);
    let reader = py.detach(|| SeekReader::new(io::Cursor::new(data.as_slice())));
    let summary = reader.map_err(Error::from)?.summary();
    let (result, codecs) = (PyDict::new(py), PyDict::new(py));
    result.set_item("files", summary.files)?;
    result.set_item("content_size", summary.content_len)?;
    result.set_item("packed_size", summary.packed_len)?;
    result.set_item("dtype", summary.element.map(|element| element.name()))?;
    for (name, share) in &summary.codecs {
        codecs.set_item(*name, (share.chunks, share.raw_len, share.packed_len))?;
    }
    result.set_item("codecs", codecs)?;
    Ok(result)
}
