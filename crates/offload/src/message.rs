//! The words of a job, on a channel of its own: one chunk each (`docs/specs/offload.md`).
//!
//! ```text
//! client                                    server
//!  Request {op, level, block_len}   ──▶      room for it?
//!                                   ◀──      Accepted {backend, workers, depth}, or Refused {text}
//!  Question (block 0)               ──▶
//!  Question (block 1)               ──▶      at most `depth` without an answer
//!                                   ◀──      Answer (block 1): out of order is fine
//!  end                              ──▶
//!                                   ◀──      … Answer, Summary, end
//! ```
//!
//! Documents are JSON; questions and answers begin with a short binary head, little-endian.

use narrows::{Bytes, ChannelReader, ChannelWriter, Code, Error};
use serde::{Deserialize, Serialize};

use crate::Method;

/// Longest document, in bytes.
pub const DOCUMENT_LEN_MAX: usize = 4096;

/// What a job does with each block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "op")]
pub enum Op {
    /// Packs it.
    Pack {
        /// With what.
        method: Method,
        /// How hard: the codec's own number.
        level: i16,
    },
    /// Unpacks it.
    Unpack {
        /// With what.
        method: Method,
    },
    /// Sends its beginning back as it is: what the link alone takes.
    Copy {
        /// How much of each block, in 1/65536.
        back: u32,
    },
}

/// What a client wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// What to do.
    #[serde(flatten)]
    pub op: Op,
    /// Longest block before packing, in bytes.
    pub block_len: u32,
}

/// What the server says to that.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "reply")]
pub enum Reply {
    /// It will.
    Accepted {
        /// Who does the work there: `cpu`, `isa-l`, `qat`.
        backend: String,
        /// Level in use; another than asked for where the codec has no such.
        level: i16,
        /// Blocks it works on at once, for all clients together.
        workers: u32,
        /// Blocks it takes without having answered.
        depth: u32,
    },
    /// It will not.
    Refused {
        /// Why.
        text: String,
    },
}

/// What a job took at the server.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Summary {
    /// Processor time of its workers for this job, in nanoseconds.
    pub work_cpu_ns: u64,
    /// Processor time of the whole server from the job's begin to its end, other jobs included, in nanoseconds.
    pub process_cpu_ns: u64,
}

/// A block on its way to the server: a head of [`Question::HEAD_LEN`] bytes, then its bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Question<'a> {
    /// Which block, counted from 0.
    pub index: u32,
    /// Its length before packing, in bytes.
    pub raw_len: u32,
    /// What there is of it: raw bytes to pack, packed ones to unpack.
    pub bytes: &'a [u8],
}

impl<'a> Question<'a> {
    /// Bytes before the block's.
    pub const HEAD_LEN: usize = 8;

    /// Writes the head into the space that was left for it.
    ///
    /// # Panics
    /// When `out` has no room for it.
    pub fn write_head(index: u32, raw_len: u32, out: &mut [u8]) {
        out[..4].copy_from_slice(&index.to_le_bytes());
        out[4..8].copy_from_slice(&raw_len.to_le_bytes());
    }

    /// Reads a chunk; `None` where it is too short.
    #[must_use]
    pub fn parse(chunk: &'a [u8]) -> Option<Self> {
        let (index, rest) = chunk.split_first_chunk()?;
        let (raw_len, bytes) = rest.split_first_chunk()?;
        Some(Self {
            index: u32::from_le_bytes(*index),
            raw_len: u32::from_le_bytes(*raw_len),
            bytes,
        })
    }
}

/// What became of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Outcome {
    /// Here it is.
    Done = 0,
    /// Packing does not make it smaller; nothing is sent back.
    NoSmaller = 1,
    /// It waited too long for a worker.
    Busy = 2,
    /// It cannot be done: what was to be unpacked is damaged, or the question makes no sense.
    Failed = 3,
    /// No block: the job's [`Summary`], after the last answer.
    Summary = 4,
}

/// An answer: a head of [`Answer::HEAD_LEN`] bytes, then the block's. Times are in microseconds and end at 71 minutes.
#[derive(Debug, Clone)]
pub struct Answer {
    /// Which block.
    pub index: u32,
    /// What became of it.
    pub outcome: Outcome,
    /// How long it waited for a worker.
    pub queue_us: u32,
    /// How long the worker took.
    pub device_us: u32,
    /// The whole chunk.
    chunk: Bytes,
}

impl Answer {
    /// Bytes before the block's.
    pub const HEAD_LEN: usize = 16;

    /// Writes the head into the space that was left for it.
    ///
    /// # Panics
    /// When `out` has no room for it.
    pub fn write_head(index: u32, outcome: Outcome, queue_us: u32, device_us: u32, out: &mut [u8]) {
        out[..4].copy_from_slice(&index.to_le_bytes());
        out[4..8].copy_from_slice(&[outcome as u8, 0, 0, 0]);
        out[8..12].copy_from_slice(&queue_us.to_le_bytes());
        out[12..16].copy_from_slice(&device_us.to_le_bytes());
    }

    /// Reads a chunk; `None` where it is none.
    #[must_use]
    pub fn parse(chunk: Bytes) -> Option<Self> {
        let head: &[u8; Self::HEAD_LEN] = chunk.first_chunk()?;
        let word =
            |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        let outcome = match head[4] {
            0 => Outcome::Done,
            1 => Outcome::NoSmaller,
            2 => Outcome::Busy,
            3 => Outcome::Failed,
            4 => Outcome::Summary,
            _ => return None,
        };
        Some(Self {
            index: word(0),
            outcome,
            queue_us: word(8),
            device_us: word(12),
            chunk,
        })
    }

    /// What came back.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.chunk[Self::HEAD_LEN..]
    }

    /// The whole chunk, whose bytes from [`Answer::HEAD_LEN`] on are the block.
    #[must_use]
    pub fn into_chunk(self) -> Bytes {
        self.chunk
    }

    /// The document of a [`Outcome::Summary`].
    #[must_use]
    pub fn summary(&self) -> Option<Summary> {
        let text = Some(self.bytes()).filter(|bytes| bytes.len() <= DOCUMENT_LEN_MAX)?;
        serde_json::from_slice(text).ok()
    }
}

/// Sends a document.
///
/// # Errors
/// [`Error`] when the session has ended.
pub fn say(writer: &mut ChannelWriter, document: &impl Serialize) -> Result<(), Error> {
    let text = serde_json::to_vec(document).expect("the documents are plain data");
    let chunk = writer.buffer_of(&text);
    writer.push(chunk)
}

/// Waits for a document.
///
/// # Errors
/// [`Error`] when the session has ended, or what came is no such document.
pub fn hear<T: for<'a> Deserialize<'a>>(reader: &mut ChannelReader) -> Result<T, Error> {
    let refused =
        |text: String| Error::new(Code::PROTOCOL, format!("refused from the peer: {text}"));
    match reader.next_chunk()? {
        None => Err(refused("a job that ended before it began".into())),
        Some(chunk) => parse_document(chunk).map_err(refused),
    }
}

/// Reads a document.
///
/// # Errors
/// In words, where it is too long or none.
pub fn parse_document<T: for<'a> Deserialize<'a>>(chunk: &[u8]) -> Result<T, String> {
    if chunk.len() > DOCUMENT_LEN_MAX {
        return Err(format!("a document of {} bytes", chunk.len()));
    }
    serde_json::from_slice(chunk).map_err(|fault| fault.to_string())
}

/// What a peer calls something, for people: short, and nothing a terminal would obey.
#[must_use]
pub fn printable(text: &str) -> String {
    text.chars()
        .take(200)
        .map(|c| if c.is_control() { '?' } else { c })
        .collect()
}
