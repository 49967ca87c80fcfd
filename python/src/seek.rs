//! The reader behind `narrows.File`: any place of the content without what lies before it.

use std::{
    fs::File,
    io::{self, Read, Seek, SeekFrom},
    path::PathBuf,
    sync::{Mutex, MutexGuard, PoisonError},
};

use pyo3::{
    exceptions::{PyOSError, PyValueError},
    prelude::*,
    types::PyBytes,
};

use crate::{buffer::Bytes, error::Error};

/// Where the file's bytes are.
enum Source {
    /// Read without the interpreter.
    File(File),
    /// An object with `read` and `seek`.
    Object(Py<PyAny>),
}

impl Read for Source {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::File(file) => file.read(out),
            Self::Object(object) => Python::attach(|py| {
                let bytes = object.call_method1(py, "read", (out.len(),))?;
                let bytes = bytes
                    .cast_bound::<PyBytes>(py)
                    .map_err(PyErr::from)?
                    .as_bytes();
                let room = out.get_mut(..bytes.len());
                room.ok_or(io::ErrorKind::InvalidData)?
                    .copy_from_slice(bytes);
                Ok(bytes.len())
            }),
        }
    }
}

impl Seek for Source {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        match self {
            Self::File(file) => file.seek(to),
            Self::Object(object) => Python::attach(|py| {
                let (at, whence) = match to {
                    SeekFrom::Start(at) => (at as i64, 0),
                    SeekFrom::Current(by) => (by, 1),
                    SeekFrom::End(by) => (by, 2),
                };
                object.call_method1(py, "seek", (at, whence))?;
                Ok(object.call_method0(py, "tell")?.extract::<u64>(py)?)
            }),
        }
    }
}

/// Reads a file's content from any place.
#[pyclass(module = "narrows._narrows", frozen)]
pub(crate) struct SeekReader(Mutex<Option<narrows_rest::SeekReader<Source>>>);

#[pymethods]
impl SeekReader {
    /// A reader of a path, or of an object with `read`, `seek` and `tell`.
    #[new]
    #[pyo3(signature = (file, /))]
    fn new(file: &Bound<'_, PyAny>) -> PyResult<Self> {
        let py = file.py();
        let source = match file.extract::<PathBuf>() {
            Ok(path) => Source::File(py.detach(|| File::open(&path)).map_err(|error| {
                let code = error.raw_os_error();
                PyOSError::new_err((code, error.to_string(), path.display().to_string()))
            })?),
            Err(_) => Source::Object(file.clone().unbind()),
        };
        let reader = py.detach(|| narrows_rest::SeekReader::new(source));
        Ok(Self(Mutex::new(Some(reader.map_err(Error::from)?))))
    }

    /// Length of the content in bytes.
    #[getter]
    fn size(&self, py: Python<'_>) -> PyResult<u64> {
        self.with(py, |reader| Ok(reader.summary().content_len))
    }

    #[pyo3(signature = (out, /))]
    fn readinto(&self, out: &Bound<'_, PyAny>) -> PyResult<usize> {
        let mut bytes = Bytes::of_writable(out)?;
        self.with(out.py(), |reader| Ok(reader.read(bytes.as_mut_slice())?))
    }

    #[pyo3(signature = (offset, whence=0, /))]
    fn seek(&self, py: Python<'_>, offset: i64, whence: u8) -> PyResult<u64> {
        let to =
            match whence {
                0 => SeekFrom::Start(u64::try_from(offset).map_err(|_| {
                    PyValueError::new_err(format!("negative seek position {offset}"))
                })?),
                1 => SeekFrom::Current(offset),
                2 => SeekFrom::End(offset),
                _ => {
                    return Err(PyValueError::new_err(format!(
                        "whence is 0, 1 or 2, not {whence}"
                    )));
                }
            };
        self.with(py, |reader| Ok(reader.seek(to)?))
    }

    fn tell(&self, py: Python<'_>) -> PyResult<u64> {
        self.with(py, |reader| Ok(reader.stream_position()?))
    }

    fn close(&self, py: Python<'_>) {
        let reader = py.detach(|| lock(&self.0).take());
        drop(reader);
    }
}

impl SeekReader {
    fn with<T: Send>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&mut narrows_rest::SeekReader<Source>) -> Result<T, Error> + Send,
    ) -> PyResult<T> {
        let result = py.detach(|| lock(&self.0).as_mut().map(work));
        let closed = || PyValueError::new_err("I/O operation on closed file.");
        Ok(result.ok_or_else(closed)??)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
