//! One request: its header, what can be refused before it is begun, and how it is answered.
//!
//! Shared by both ways of running requests: [`crate::transmission`] runs each where it arrives, `parallel` on
//! workers. Reads no socket. Source: <https://github.com/NetworkBlockDevice/nbd/blob/master/doc/proto.md>.

use narrows_core::{
    BlockDevice, BlockError,
    block::{Extent, Zeroing},
};

use crate::{
    handshake::Agreed,
    out::Out,
    proto::{
        BASE_ALLOCATION_ID, Fields, PIECE, REQUEST_LEN_MAX, REQUEST_MAGIC, chunk, cmd, cmd_flag,
        errno, state,
    },
};

/// Length of a request's header, in bytes.
pub(crate) const REQUEST_LEN: usize = 28;
/// Most extents in one answer to a block status request.
const EXTENTS_MAX: usize = 1024;
/// Reads from this length on look for holes, which then need not be sent.
pub(crate) const HOLES_FROM: usize = 64 << 10;
/// Shortest hole that is worth a reply of its own, in bytes.
const PAGE: u64 = 4096;

#[derive(Debug, Clone, Copy)]
pub(crate) struct Request {
    pub(crate) flags: u16,
    pub(crate) command: u16,
    pub(crate) cookie: u64,
    pub(crate) offset: u64,
    pub(crate) len: u32,
}

/// What a failed request's reply says.
#[derive(Debug)]
pub(crate) struct Fault {
    errno: u32,
    words: String,
}

impl From<BlockError> for Fault {
    fn from(error: BlockError) -> Self {
        let errno = match error {
            BlockError::NoSpace(_) => errno::NOSPC,
            BlockError::Invalid(_) => errno::INVAL,
            BlockError::ReadOnly => errno::PERM,
            BlockError::Unsupported(_) => errno::NOTSUP,
            BlockError::Shutdown => errno::SHUTDOWN,
            _ => errno::IO,
        };
        Self {
            errno,
            words: error.to_string(),
        }
    }
}

impl Fault {
    fn invalid(words: &str) -> Self {
        Self {
            errno: errno::INVAL,
            words: words.into(),
        }
    }
}

impl Request {
    pub(crate) fn parse(header: &[u8]) -> Option<Self> {
        let mut fields = Fields(header);
        if fields.u32()? != REQUEST_MAGIC {
            return None;
        }
        Some(Self {
            flags: fields.u16()?,
            command: fields.u16()?,
            cookie: fields.u64()?,
            offset: fields.u64()?,
            len: fields.u32()?,
        })
    }

    /// Whether its effect is to be durable before the reply.
    pub(crate) fn fua(&self) -> bool {
        self.flags & cmd_flag::FUA != 0
    }
}

/// What a connection may ask of its export.
#[derive(Debug, Clone)]
pub(crate) struct Terms {
    pub(crate) agreed: Agreed,
    size: u64,
    read_only: bool,
    block: u64,
}

impl Terms {
    pub(crate) fn new(agreed: Agreed) -> Self {
        let shape = agreed.export.shape();
        Self {
            size: shape.size,
            read_only: shape.read_only,
            block: shape.block_min.into(),
            agreed,
        }
    }

    pub(crate) fn device(&self) -> &dyn BlockDevice {
        &*self.agreed.export.device
    }

    /// What can be said of a request before it is begun.
    pub(crate) fn check(&self, request: &Request) -> Result<(), Fault> {
        let flags = match request.command {
            cmd::READ if self.agreed.structured => cmd_flag::DF,
            cmd::READ | cmd::WRITE | cmd::FLUSH | cmd::TRIM | cmd::CACHE => 0,
            cmd::WRITE_ZEROES => cmd_flag::NO_HOLE | cmd_flag::FAST_ZERO,
            cmd::BLOCK_STATUS if self.agreed.allocation => cmd_flag::REQ_ONE,
            cmd::BLOCK_STATUS => return Err(Fault::invalid("base:allocation was not negotiated")),
            _ => return Err(Fault::invalid("unknown command")),
        };
        // Known clients set FUA where it means nothing, so it is taken everywhere.
        if request.flags & !(flags | cmd_flag::FUA) != 0 {
            return Err(Fault::invalid("a flag that this command does not take"));
        }
        let writes = matches!(request.command, cmd::WRITE | cmd::TRIM | cmd::WRITE_ZEROES);
        if writes && self.read_only {
            return Err(BlockError::ReadOnly.into());
        }
        if request.command == cmd::FLUSH {
            return match (request.offset, request.len) {
                (0, 0) => Ok(()),
                _ => Err(Fault::invalid("a flush has neither offset nor length")),
            };
        }
        if request.command == cmd::BLOCK_STATUS && request.len == 0 {
            return Err(Fault::invalid("a block status of nothing"));
        }
        if matches!(request.command, cmd::READ | cmd::WRITE) && request.len > REQUEST_LEN_MAX {
            return Err(Fault::invalid("more than the maximum length of a request"));
        }
        if request.flags & cmd_flag::DF != 0 && request.len as usize > PIECE {
            return Err(Fault {
                errno: errno::OVERFLOW,
                words: "too long to be sent in one chunk".into(),
            });
        }
        if request
            .offset
            .checked_add(request.len.into())
            .is_none_or(|end| end > self.size)
        {
            let errno = match request.command {
                cmd::WRITE | cmd::WRITE_ZEROES => errno::NOSPC,
                _ => errno::INVAL,
            };
            return Err(Fault {
                errno,
                words: "beyond the end of the device".into(),
            });
        }
        if !(request.offset | u64::from(request.len)).is_multiple_of(self.block) {
            return Err(Fault::invalid("not aligned to the minimum block size"));
        }
        Ok(())
    }

    /// A request without payload either way.
    pub(crate) fn perform(&self, request: &Request) -> Result<(), BlockError> {
        let device = self.device();
        let (offset, len, fua) = (request.offset, u64::from(request.len), request.fua());
        match request.command {
            cmd::FLUSH => device.flush(),
            cmd::TRIM => device.trim(offset, len, fua),
            cmd::CACHE => device.cache(offset, len),
            cmd::WRITE_ZEROES => {
                let how = Zeroing {
                    keep_allocated: request.flags & cmd_flag::NO_HOLE != 0,
                    fast_only: request.flags & cmd_flag::FAST_ZERO != 0,
                };
                device.write_zeroes(offset, len, how, fua)
            }
            // An empty read; `check` let nothing else through.
            _ => Ok(()),
        }
    }

    /// How far the bytes at `offset` are all data or all a hole, up to `len`; a hole in whole pages.
    pub(crate) fn run(&self, offset: u64, len: usize, extents: &mut Vec<Extent>) -> (usize, bool) {
        extents.clear();
        if self
            .device()
            .extents(offset, len as u64, 64, extents)
            .is_err()
        {
            return (len, false);
        }
        let worth = |extent: &&Extent| extent.zero && extent.len >= PAGE;
        match extents.iter().position(|extent| worth(&extent)) {
            Some(0) => (extents[0].len.min(len as u64) as usize, true),
            Some(n) => {
                let before: u64 = extents[..n].iter().map(|extent| extent.len).sum();
                (before.min(len as u64) as usize, false)
            }
            None => (len, false),
        }
    }

    /// Answers a block status request.
    pub(crate) fn block_status(&self, request: &Request, out: &mut Out) -> Result<(), Fault> {
        let mut extents: Vec<Extent> = Vec::new();
        let max = if request.flags & cmd_flag::REQ_ONE != 0 {
            1
        } else {
            EXTENTS_MAX
        };
        let device = self.device();
        device.extents(request.offset, request.len.into(), max, &mut extents)?;
        if extents.is_empty() {
            return Err(Fault {
                errno: errno::IO,
                words: "the device knows nothing of the range".into(),
            });
        }
        out.chunk(
            request.cookie,
            chunk::BLOCK_STATUS,
            true,
            4 + 8 * extents.len(),
        );
        out.put(&BASE_ALLOCATION_ID.to_be_bytes());
        for extent in &extents {
            let flags = if extent.hole { state::HOLE } else { 0 }
                | if extent.zero { state::ZERO } else { 0 };
            out.put(&(extent.len as u32).to_be_bytes());
            out.put(&flags.to_be_bytes());
        }
        Ok(())
    }

    /// Says how a request went that gives no data, or failed before it gave any.
    pub(crate) fn reply(&self, request: &Request, result: Result<(), Fault>, out: &mut Out) {
        let reads = matches!(request.command, cmd::READ | cmd::BLOCK_STATUS);
        match result {
            Ok(()) if reads && self.agreed.structured => {
                out.chunk(request.cookie, chunk::NONE, true, 0)
            }
            Ok(()) => out.simple(request.cookie, 0),
            Err(fault) if self.agreed.structured => {
                let words = &fault.words.as_bytes()[..fault.words.floor_char_boundary(1024)];
                out.chunk(request.cookie, chunk::ERROR, true, 6 + words.len());
                out.put(&fault.errno.to_be_bytes());
                out.put(&(words.len() as u16).to_be_bytes());
                out.put(words);
            }
            Err(fault) => out.simple(request.cookie, fault.errno),
        }
    }
}
