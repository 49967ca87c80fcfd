//! Requests in, replies out: the protocol after the handshake, as a state machine around a device.
//!
//! Requests are done at once, in the order in which they come, by the thread that received them: on a store in memory
//! a hand-off costs more than the work. The payload of a write goes to the device as it arrives and a long read leaves
//! piece by piece, so no length that a client names is ever allocated.
//!
//! Invariants: a reply in [`Out`] is whole, or the head of the one that `reading` goes on with; after an error in the
//! middle of a write its payload is still taken, so that the next request is found. Upstream: [`crate::handshake`].

use narrows_core::{BlockError, block::Extent};

use crate::{
    handshake::Agreed,
    out::Out,
    proto::{PIECE, chunk, cmd, cmd_flag},
    request::{Fault, HOLES_FROM, REQUEST_LEN, Request, Terms},
};

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
    terms: Terms,
    /// Pieces of a write end at multiples of this many bytes, the device's preferred block.
    granule: usize,
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

impl Transmission {
    /// Begins with what the handshake came to.
    #[must_use]
    pub fn new(agreed: Agreed) -> Self {
        let shape = agreed.export.shape();
        Self {
            granule: (shape.block_preferred as usize).clamp(1, PIECE),
            terms: Terms::new(agreed),
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
        let fault = self.terms.check(&request).err();
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
            (cmd::BLOCK_STATUS, None) => match self.terms.block_status(&request, out) {
                Ok(()) => {}
                Err(fault) => self.terms.reply(&request, Err(fault), out),
            },
            (_, None) => {
                let result = self.terms.perform(&request).map_err(Fault::from);
                self.terms.reply(&request, result, out);
            }
            (_, Some(fault)) => self.terms.reply(&request, Err(fault), out),
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
                // Whole blocks of the device: half of one would be packed twice.
                let end = request.offset + u64::from(*done) + len as u64;
                let beyond = (end % self.granule as u64) as usize;
                len = len.saturating_sub(beyond);
            }
        }
        if len > 0 && fault.is_none() {
            // Only a write that the device sees whole carries FUA down; others are synced once, at their end.
            let fua = request.fua() && len == request.len as usize;
            let offset = request.offset + u64::from(*done);
            let result = self.terms.device().write(offset, &input[..len], fua);
            *fault = result.err().map(Fault::from);
        }
        let in_one = len == request.len as usize;
        *done += len as u32;
        if *done == request.len {
            if fault.is_none() && request.fua() && !in_one {
                *fault = self.terms.device().flush().err().map(Fault::from);
            }
            let (request, result) = (*request, fault.take().map_or(Ok(()), Err));
            self.under_way = UnderWay::None;
            self.terms.reply(&request, result, out);
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
        let may_fragment = self.terms.agreed.structured && request.flags & cmd_flag::DF == 0;
        if may_fragment && len >= HOLES_FROM {
            (len, hole) = self.terms.run(offset, len, &mut self.extents);
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
        if self.terms.agreed.structured {
            out.chunk(request.cookie, chunk::OFFSET_DATA, last, 8 + len);
            out.put(&offset.to_be_bytes());
        } else if first {
            out.simple(request.cookie, 0);
        }
        let Err(error) = self.terms.agreed.export.device.read(offset, out.room(len)) else {
            return Ok(());
        };
        // What is in the room is no data, and must not be sent as if it were.
        out.rewind(mark);
        if !first && !self.terms.agreed.structured {
            return Err(TransmissionError::CutShort(error));
        }
        self.under_way = UnderWay::None;
        self.terms.reply(&request, Err(error.into()), out);
        Ok(())
    }
}
