//! A stream being packed, between calls: what was read, what waits for room.

use std::{
    io::{self, Write},
    sync::{Arc, Mutex, PoisonError},
};

use narrows_rest::{FileError, FileOptions, Writer};

use crate::error::{Error, ErrorCode};

/// A stream being packed: what was packed waits here until there is room for it.
#[derive(Debug, Default)]
pub(crate) struct Packing {
    writer: Option<Writer<Packed>>,
    packed: Packed,
    /// How much of what waits was given out.
    given: usize,
    /// The file was ended; what is left of it waits.
    ended: bool,
}

/// Bytes that the writer made. Shared with it, and locked alone.
#[derive(Debug, Clone, Default)]
struct Packed(Arc<Mutex<Vec<u8>>>);

impl Write for Packed {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut packed = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        packed.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Input that is taken at once, at most: more of it would wait in memory.
pub(crate) const PIECE: usize = 256 << 10;

impl Packing {
    pub(crate) fn is_in_progress(&self) -> bool {
        self.writer.is_some() || self.ended
    }

    /// Reads input and writes output as far as there is both; how many bytes wait for room.
    pub(crate) fn step(
        &mut self,
        options: &FileOptions,
        mut out: Out<'_>,
        input: In<'_>,
        is_end: bool,
    ) -> Result<usize, Error> {
        if self.ended && (!is_end || !input.piece().is_empty()) {
            let what = "the file was ended: call with END until 0";
            return Err(Error::new(ErrorCode::StageWrong, what));
        }
        loop {
            let waiting = self.give(&mut out);
            if waiting > 0 {
                return Ok(waiting);
            }
            if self.ended {
                self.ended = false;
                return Ok(0);
            }
            match input.piece() {
                [] if is_end => {
                    self.writer(options)?;
                    let writer = self.writer.take().expect("it was just made");
                    writer.finish()?;
                    self.ended = true;
                }
                [] => return Ok(0),
                piece => {
                    let written = self.writer(options)?.write(piece);
                    *input.pos += written.map_err(FileError::from_io)?;
                }
            }
        }
    }

    fn writer(&mut self, options: &FileOptions) -> Result<&mut Writer<Packed>, Error> {
        if self.writer.is_none() {
            self.writer = Some(Writer::new(self.packed.clone(), options)?);
        }
        Ok(self.writer.as_mut().expect("it was just made"))
    }

    /// Gives out what waits, as far as there is room; how much still waits.
    fn give(&mut self, out: &mut Out<'_>) -> usize {
        let mut packed = self.packed.0.lock().unwrap_or_else(PoisonError::into_inner);
        self.given += out.put(&packed[self.given..]);
        if self.given == packed.len() {
            packed.clear();
            self.given = 0;
        }
        packed.len() - self.given
    }
}

/// Room for output.
pub(crate) struct Out<'a> {
    pub(crate) room: &'a mut [u8],
    pub(crate) pos: &'a mut usize,
}

impl Out<'_> {
    /// Puts as much as there is room for; how much.
    pub(crate) fn put(&mut self, bytes: &[u8]) -> usize {
        let room = &mut self.room[*self.pos..];
        let len = room.len().min(bytes.len());
        room[..len].copy_from_slice(&bytes[..len]);
        *self.pos += len;
        len
    }
}

/// Input, and how far it was read.
pub(crate) struct In<'a> {
    pub(crate) bytes: &'a [u8],
    pub(crate) pos: &'a mut usize,
}

impl<'a> In<'a> {
    /// The next piece; empty where there is none.
    pub(crate) fn piece(&self) -> &'a [u8] {
        let rest = &self.bytes[*self.pos..];
        &rest[..rest.len().min(PIECE)]
    }
}
