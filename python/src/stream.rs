//! Streams in the shape of PEP 784: `Compressor` and `Decompressor`.

use std::{
    io::{self, Write},
    mem,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use narrows_rest::{Decoder, FileOptions, Progress, Writer};
use pyo3::{
    exceptions::{PyEOFError, PyRuntimeError, PyValueError},
    prelude::*,
    types::PyBytes,
};

use crate::{buffer::Bytes, error::Error, options::options};

/// Bytes that a writer made and nobody took. Shared with the writer.
#[derive(Debug, Clone, Default)]
struct Made(Arc<Mutex<Vec<u8>>>);

impl Made {
    fn take(&self) -> Vec<u8> {
        mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Write for Made {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut made = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        made.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Compresses a stream, file after file.
#[pyclass(module = "narrows", frozen)]
#[derive(Debug)]
pub(crate) struct Compressor {
    options: FileOptions,
    made: Made,
    state: Mutex<Packing>,
}

#[derive(Debug, Default)]
struct Packing {
    writer: Option<Writer<Made>>,
    last_mode: Option<u8>,
}

const CONTINUE: u8 = 0;
const FLUSH_BLOCK: u8 = 1;
const FLUSH_FRAME: u8 = 2;

#[pymethods]
impl Compressor {
    #[classattr]
    const CONTINUE: u8 = CONTINUE;
    #[classattr]
    const FLUSH_BLOCK: u8 = FLUSH_BLOCK;
    #[classattr]
    const FLUSH_FRAME: u8 = FLUSH_FRAME;

    #[new]
    #[pyo3(signature = (*, goal=None, level=None, dtype=None, threads=0, chunk=0))]
    fn new(
        goal: Option<&str>,
        level: Option<u8>,
        dtype: Option<&str>,
        threads: usize,
        chunk: usize,
    ) -> PyResult<Self> {
        let options = options(goal, level, dtype, threads, chunk)?;
        // Options out of range are told here, not with the first byte.
        Writer::new(io::sink(), &options.threads(1)).map_err(Error::from)?;
        Ok(Self {
            options,
            made: Made::default(),
            state: Mutex::default(),
        })
    }

    #[pyo3(signature = (data, /, mode=CONTINUE), text_signature = "($self, data, /, mode=0)")]
    fn compress<'py>(&self, data: &Bound<'py, PyAny>, mode: u8) -> PyResult<Bound<'py, PyBytes>> {
        let (py, data) = (data.py(), Bytes::of(data)?);
        self.run(py, data.as_slice(), mode)
    }

    #[pyo3(signature = (mode=FLUSH_FRAME, /), text_signature = "($self, mode=2, /)")]
    fn flush<'py>(&self, py: Python<'py>, mode: u8) -> PyResult<Bound<'py, PyBytes>> {
        if mode == CONTINUE {
            return Err(PyValueError::new_err(
                "flush takes FLUSH_BLOCK or FLUSH_FRAME",
            ));
        }
        self.run(py, &[], mode)
    }

    #[getter]
    fn last_mode(&self, py: Python<'_>) -> u8 {
        let mode = py.detach(|| lock(&self.state).last_mode);
        mode.unwrap_or(FLUSH_FRAME)
    }
}

impl Compressor {
    fn run<'py>(&self, py: Python<'py>, data: &[u8], mode: u8) -> PyResult<Bound<'py, PyBytes>> {
        if mode > FLUSH_FRAME {
            return Err(PyValueError::new_err(
                "mode is CONTINUE, FLUSH_BLOCK or FLUSH_FRAME",
            ));
        }
        let made = py.detach(|| self.pack(data, mode));
        Ok(PyBytes::new(py, &made?))
    }

    fn pack(&self, data: &[u8], mode: u8) -> Result<Vec<u8>, Error> {
        let mut state = lock(&self.state);
        state.last_mode = Some(mode);
        if state.writer.is_none() {
            state.writer = Some(Writer::new(self.made.clone(), &self.options)?);
        }
        let writer = state.writer.as_mut().expect("it was just made");
        writer.write_all(data)?;
        match mode {
            FLUSH_FRAME => drop(state.writer.take().expect("it is there").finish()?),
            FLUSH_BLOCK => writer.flush()?,
            _ => {}
        }
        Ok(self.made.take())
    }
}

/// Unpacks one file from bytes as they come.
#[pyclass(module = "narrows", frozen)]
#[derive(Debug)]
pub(crate) struct Decompressor(Mutex<Unpacking>);

#[derive(Debug)]
enum Unpacking {
    /// `needs_input` says whether all that can be had was given out.
    Begun {
        decoder: Box<Decoder>,
        needs_input: bool,
    },
    Ended {
        unused: Vec<u8>,
    },
    Failed,
}

#[pymethods]
impl Decompressor {
    #[new]
    fn new() -> Self {
        let decoder = Box::default();
        Self(Mutex::new(Unpacking::Begun {
            decoder,
            needs_input: true,
        }))
    }

    #[pyo3(signature = (data, /, max_length=-1), text_signature = "($self, data, /, max_length=-1)")]
    fn decompress<'py>(
        &self,
        data: &Bound<'py, PyAny>,
        max_length: isize,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let (py, data) = (data.py(), Bytes::of(data)?);
        let content = py.detach(|| lock(&self.0).unpack(data.as_slice(), max_length));
        Ok(PyBytes::new(py, &content?))
    }

    #[getter]
    fn eof(&self, py: Python<'_>) -> bool {
        py.detach(|| matches!(*lock(&self.0), Unpacking::Ended { .. }))
    }

    #[getter]
    fn needs_input(&self, py: Python<'_>) -> bool {
        py.detach(|| {
            matches!(
                *lock(&self.0),
                Unpacking::Begun {
                    needs_input: true,
                    ..
                }
            )
        })
    }

    #[getter]
    fn unused_data<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        let unused = py.detach(|| match &*lock(&self.0) {
            Unpacking::Ended { unused } => unused.clone(),
            _ => Vec::new(),
        });
        PyBytes::new(py, &unused)
    }
}

impl Unpacking {
    fn unpack(&mut self, data: &[u8], max_length: isize) -> Result<Vec<u8>, Error> {
        // A negative one is none.
        let most = usize::try_from(max_length).unwrap_or(usize::MAX);
        let Self::Begun {
            decoder,
            needs_input,
        } = self
        else {
            return Err(match self {
                Self::Ended { .. } => PyEOFError::new_err("the end of the file was reached"),
                _ => PyRuntimeError::new_err("an error ended the file; use a new Decompressor"),
            }
            .into());
        };
        decoder.feed(data);
        let mut content = Vec::new();
        let ended = loop {
            match decoder.step() {
                Ok(Progress::Content(piece)) => {
                    let len = piece.len().min(most - content.len());
                    content.extend_from_slice(&piece[..len]);
                    decoder.consume(len);
                    if content.len() == most {
                        *needs_input = false;
                        break false;
                    }
                }
                Ok(Progress::NeedsInput) => {
                    *needs_input = true;
                    break false;
                }
                Ok(Progress::End) => break true,
                Err(error) => {
                    *self = Self::Failed;
                    return Err(error.into());
                }
            }
        };
        if ended && let Self::Begun { decoder, .. } = mem::replace(self, Self::Failed) {
            *self = Self::Ended {
                unused: decoder.into_unused(),
            };
        }
        Ok(content)
    }
}

/// A panic while it was held leaves it in a state from which nothing worse than an error comes.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
