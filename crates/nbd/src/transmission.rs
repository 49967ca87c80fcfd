//! Requests in, replies out: the protocol after the handshake, as a state machine around a device.
//!
//! Requests are done at once, in the order in which they come, by the thread that received them: on a store in memory
//! a hand-off costs more than the work. The payload of a write goes to the device as it arrives and a long read leaves
//! piece by piece, so no length that a client names is ever allocated.
//!
//! Invariants: a reply in [`Out`] is whole, or the head of the one that `reading` goes on with; after an error in the
//! middle of a write its payload is still taken, so that the next request is found. Upstream: [`crate::handshake`].

use narrows_core::{
    BlockError,
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

/// Granule in which a payload is handed on while the rest of it is still on its way.
const GRANULE: usize = 4096;
/// Length of a request's header.
const REQUEST_LEN: usize = 28;
/// Reads from this length on look for holes, which then need not be sent.
const HOLES_FROM: usize = 64 << 10;
/// Most extents in one answer to a block status request.
const EXTENTS_MAX: usize = 1024;

/// What the server does next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// Receive more, after sending what is in `out`.
    Receive,
    /// Send what is in `out`, and call again with what is left of the input.
    Send,
    /// The client is done. Send what is in `out` and close.
    Close,
}

/// Why the connection must be closed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TransmissionError {
    /// What should be a request is none: client and server have lost each other.
    #[error("the client sent something that is no request")]
    Protocol,
    /// A read failed when part of its data was on its way already; closing is the only way left to say so.
    #[error("a read failed after its reply began: {0}")]
    CutShort(BlockError),
}

/// One connection after its handshake.
#[derive(Debug)]
pub struct Transmission {
    agreed: Agreed,
    size: u64,
    read_only: bool,
    block: u64,
    under_way: UnderWay,
    extents: Vec<Extent>,
    begun: u64,
}

/// The request whose bytes, in or out, are not all there yet.
#[derive(Debug)]
enum UnderWay {
    None,
    Writing {
        request: Request,
        done: u32,
        fault: Option<Fault>,
    },
    Reading {
        request: Request,
        done: u32,
    },
}

#[derive(Debug, Clone, Copy)]
struct Request {
    flags: u16,
    command: u16,
    cookie: u64,
    offset: u64,
    len: u32,
}

/// What a failed request's reply says.
#[derive(Debug)]
struct Fault {
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

impl Transmission {
    /// Begins with what the handshake came to.
    #[must_use]
    pub fn new(agreed: Agreed) -> Self {
        let shape = agreed.export.shape();
        Self {
            size: shape.size,
            read_only: shape.read_only,
            block: shape.block_min.into(),
            agreed,
            under_way: UnderWay::None,
            extents: Vec::new(),
            begun: 0,
        }
    }

    /// Requests of which at least the header came.
    #[must_use]
    pub fn begun(&self) -> u64 {
        self.begun
    }

    /// Does what `input` asks for, as far as it goes and `out` has room. Returns how many bytes it took.
    ///
    /// # Errors
    /// See [`TransmissionError`].
    pub fn advance(
        &mut self,
        input: &[u8],
        out: &mut Out,
    ) -> Result<(usize, Next), TransmissionError> {
        let mut rest = input;
        loop {
            let taken = input.len() - rest.len();
            if out.is_full() {
                return Ok((taken, Next::Send));
            }
            match self.under_way {
                UnderWay::Reading { .. } => self.read_on(out)?,
                UnderWay::Writing { .. } => {
                    let took = self.write_on(rest, out);
                    if took == 0 && matches!(self.under_way, UnderWay::Writing { .. }) {
                        return Ok((taken, Next::Receive));
                    }
                    rest = &rest[took..];
                }
                UnderWay::None => {
                    let Some((header, behind)) = rest.split_at_checked(REQUEST_LEN) else {
                        return Ok((taken, Next::Receive));
                    };
                    rest = behind;
                    let request = Request::parse(header).ok_or(TransmissionError::Protocol)?;
                    if request.command == cmd::DISC {
                        return Ok((input.len() - rest.len(), Next::Close));
                    }
                    self.begin(request, out);
                }
            }
        }
    }

    fn begin(&mut self, request: Request, out: &mut Out) {
        self.begun += 1;
        let fault = self.check(&request).err();
        match (request.command, fault) {
            (cmd::WRITE, fault) => {
                self.under_way = UnderWay::Writing {
                    request,
                    done: 0,
                    fault,
                }
            }
            (cmd::READ, None) if request.len > 0 => {
                self.under_way = UnderWay::Reading { request, done: 0 }
            }
            (cmd::BLOCK_STATUS, None) => match self.block_status(&request, out) {
                Ok(()) => {}
                Err(fault) => self.reply(&request, Err(fault), out),
            },
            (_, None) => {
                let result = self.perform(&request).map_err(Fault::from);
                self.reply(&request, result, out);
            }
            (_, Some(fault)) => self.reply(&request, Err(fault), out),
        }
    }

    /// What can be said of a request before it is begun.
    fn check(&self, request: &Request) -> Result<(), Fault> {
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
    fn perform(&self, request: &Request) -> Result<(), BlockError> {
        let device = &self.agreed.export.device;
        let (offset, len, fua) = (
            request.offset,
            u64::from(request.len),
            request.flags & cmd_flag::FUA != 0,
        );
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

    /// Takes what is there of a write's payload; 0 bytes where more must come first.
    fn write_on(&mut self, input: &[u8], out: &mut Out) -> usize {
        let UnderWay::Writing {
            request,
            done,
            fault,
        } = &mut self.under_way
        else {
            return 0;
        };
        let left = (request.len - *done) as usize;
        let mut len = left.min(input.len());
        if fault.is_none() {
            len = len.min(PIECE);
            if len < left {
                // Whole pages of the device: half of one would be packed twice.
                let end = request.offset + u64::from(*done) + len as u64;
                let beyond = (end % GRANULE as u64) as usize;
                len = len.saturating_sub(beyond);
            }
        }
        if len > 0 && fault.is_none() {
            let fua = request.flags & cmd_flag::FUA != 0;
            let offset = request.offset + u64::from(*done);
            *fault = self
                .agreed
                .export
                .device
                .write(offset, &input[..len], fua)
                .err()
                .map(Fault::from);
        }
        *done += len as u32;
        if *done == request.len {
            let (request, result) = (*request, fault.take().map_or(Ok(()), Err));
            self.under_way = UnderWay::None;
            self.reply(&request, result, out);
        }
        len
    }

    /// Sends the next piece of a read.
    fn read_on(&mut self, out: &mut Out) -> Result<(), TransmissionError> {
        let UnderWay::Reading { request, done } = &mut self.under_way else {
            return Ok(());
        };
        let offset = request.offset + u64::from(*done);
        let mut len = ((request.len - *done) as usize).min(PIECE);
        let first = *done == 0;
        let request = *request;
        let mut hole = false;
        let may_fragment = self.agreed.structured && request.flags & cmd_flag::DF == 0;
        if may_fragment && len >= HOLES_FROM {
            (len, hole) = self.run(offset, len);
        }
        let UnderWay::Reading { done, .. } = &mut self.under_way else {
            return Ok(());
        };
        *done += len as u32;
        let last = *done == request.len;
        if last {
            self.under_way = UnderWay::None;
        }
        if hole {
            out.chunk(request.cookie, chunk::OFFSET_HOLE, last, 12);
            out.put(&offset.to_be_bytes());
            out.put(&(len as u32).to_be_bytes());
            return Ok(());
        }
        let mark = out.mark();
        if self.agreed.structured {
            out.chunk(request.cookie, chunk::OFFSET_DATA, last, 8 + len);
            out.put(&offset.to_be_bytes());
        } else if first {
            out.simple(request.cookie, 0);
        }
        let Err(error) = self.agreed.export.device.read(offset, out.room(len)) else {
            return Ok(());
        };
        // What is in the room is no data, and must not be sent as if it were.
        out.rewind(mark);
        if !first && !self.agreed.structured {
            return Err(TransmissionError::CutShort(error));
        }
        self.under_way = UnderWay::None;
        self.reply(&request, Err(error.into()), out);
        Ok(())
    }

    /// How far the bytes at `offset` are all data or all a hole, up to `len`; a hole in whole granules.
    fn run(&mut self, offset: u64, len: usize) -> (usize, bool) {
        self.extents.clear();
        if self
            .agreed
            .export
            .device
            .extents(offset, len as u64, 64, &mut self.extents)
            .is_err()
        {
            return (len, false);
        }
        let worth = |extent: &&Extent| extent.zero && extent.len >= GRANULE as u64;
        match self.extents.iter().position(|extent| worth(&extent)) {
            Some(0) => (self.extents[0].len.min(len as u64) as usize, true),
            Some(n) => {
                let before: u64 = self.extents[..n].iter().map(|extent| extent.len).sum();
                (before.min(len as u64) as usize, false)
            }
            None => (len, false),
        }
    }

    fn block_status(&mut self, request: &Request, out: &mut Out) -> Result<(), Fault> {
        self.extents.clear();
        let max = if request.flags & cmd_flag::REQ_ONE != 0 {
            1
        } else {
            EXTENTS_MAX
        };
        let device = &self.agreed.export.device;
        device.extents(request.offset, request.len.into(), max, &mut self.extents)?;
        if self.extents.is_empty() {
            return Err(Fault {
                errno: errno::IO,
                words: "the device knows nothing of the range".into(),
            });
        }
        out.chunk(
            request.cookie,
            chunk::BLOCK_STATUS,
            true,
            4 + 8 * self.extents.len(),
        );
        out.put(&BASE_ALLOCATION_ID.to_be_bytes());
        for extent in &self.extents {
            let flags = if extent.hole { state::HOLE } else { 0 }
                | if extent.zero { state::ZERO } else { 0 };
            out.put(&(extent.len as u32).to_be_bytes());
            out.put(&flags.to_be_bytes());
        }
        Ok(())
    }

    /// Says how a request went that gives no data, or failed before it gave any.
    fn reply(&self, request: &Request, result: Result<(), Fault>, out: &mut Out) {
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

impl Request {
    fn parse(header: &[u8]) -> Option<Self> {
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
}
