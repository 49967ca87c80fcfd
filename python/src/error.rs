//! Exceptions. Each variant of `FileError` has a class of its own in `narrows/_errors.py`; the system's errors are
//! `OSError`, and an exception of a file object in Python passes as it is.

use std::io;

use narrows_rest::FileError;
use pyo3::{prelude::*, types::PyDict};

/// Either an error of ours or one of Python's.
#[derive(Debug)]
pub(crate) enum Error {
    File(FileError),
    Python(PyErr),
}

impl From<FileError> for Error {
    fn from(error: FileError) -> Self {
        Self::File(error)
    }
}

impl From<io::Error> for Error {
    fn from(error: io::Error) -> Self {
        Self::File(FileError::from_io(error))
    }
}

impl From<PyErr> for Error {
    fn from(error: PyErr) -> Self {
        Self::Python(error)
    }
}

impl From<Error> for PyErr {
    fn from(error: Error) -> Self {
        match error {
            Error::Python(error) => error,
            // PyO3 gives an error of Python's that passed through `io::Error` back as it was.
            Error::File(FileError::Io(error)) => error.into(),
            Error::File(error) => {
                Python::attach(|py| exception(py, &error).unwrap_or_else(|it| it))
            }
        }
    }
}

fn exception(py: Python<'_>, error: &FileError) -> PyResult<PyErr> {
    let details = PyDict::new(py);
    let class = match error {
        FileError::NotNarrows => "NotNarrowsError",
        FileError::Version(version) => {
            details.set_item("version", version)?;
            "VersionError"
        }
        FileError::Codec { codec, at } => {
            details.set_item("codec", codec.0)?;
            details.set_item("at", at)?;
            "CodecError"
        }
        FileError::Damaged { at, what } => {
            details.set_item("at", at)?;
            details.set_item("what", what)?;
            "DamagedError"
        }
        FileError::Truncated { at } => {
            details.set_item("at", at)?;
            "TruncatedError"
        }
        FileError::Limit { what, asked, limit } => {
            details.set_item("what", what)?;
            details.set_item("asked", asked)?;
            details.set_item("limit", limit)?;
            "LimitError"
        }
        FileError::Setting(_) => "SettingError",
        _ => "NarrowsError",
    };
    let class = py.import("narrows._errors")?.getattr(class)?;
    let exception = class.call((error.to_string(),), Some(&details))?;
    Ok(PyErr::from_value(exception))
}
