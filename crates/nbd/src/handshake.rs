//! Fixed newstyle negotiation, as a state machine: the client's options in, an agreed export out.
//!
//! Hostile clients: an option of more than [`OPTION_LEN_MAX`] bytes or more than [`OPTIONS_MAX`] options end the
//! connection; a malformed option gets `NBD_REP_ERR_INVALID` and the client may go on. Time is the server's to bound.
//! Upstream: [`crate::server`]; downstream: [`crate::transmission`].

use std::sync::Arc;

use crate::{
    export::{Export, Exports},
    out::Out,
    proto::{
        BASE_ALLOCATION, BASE_ALLOCATION_ID, Fields, IHAVEOPT, NBDMAGIC, OPTION_REPLY_MAGIC,
        REQUEST_LEN_MAX, hello, info, opt, rep,
    },
};

/// Longest data of an option, in bytes.
pub const OPTION_LEN_MAX: usize = 64 << 10;
/// Most options of a connection.
pub const OPTIONS_MAX: u32 = 512;

/// Whether a connection is to be encrypted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tls {
    /// We have no certificates.
    Absent,
    /// The client may ask for it.
    Offered,
    /// Nothing but STARTTLS is answered before it.
    Required,
    /// It is.
    Done,
}

/// What the client chose.
#[derive(Debug, Clone)]
pub struct Agreed {
    /// What it will read and write.
    pub export: Arc<Export>,
    /// Replies to reads are structured.
    pub structured: bool,
    /// It may ask for block status.
    pub allocation: bool,
}

/// What is to be done next.
#[derive(Debug)]
pub enum Step {
    /// Receive more.
    More,
    /// Send what is in `out`, then negotiate TLS, and call [`Handshake::secured`]. The client waits for that, so bytes
    /// behind the option are an attempt to smuggle something past it.
    StartTls,
    /// The handshake is over.
    Transmit(Agreed),
    /// Send what is in `out` and close; the client asked for it.
    Close,
}

/// Why the connection cannot go on. The client's fault each time.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HandshakeError {
    /// It does not speak the fixed newstyle handshake.
    #[error("the client does not speak NBD's fixed newstyle handshake")]
    Protocol,
    /// An option is too long to look at.
    #[error("the client sent an option of {0} bytes; {OPTION_LEN_MAX} are taken")]
    OptionTooLong(u32),
    /// It goes on negotiating.
    #[error("the client sent more than {OPTIONS_MAX} options")]
    TooManyOptions,
    /// `NBD_OPT_EXPORT_NAME` has no other way to be told no.
    #[error("the client asked for an export that is not here, or before TLS")]
    NoExport,
}

/// One connection's negotiation.
#[derive(Debug)]
pub struct Handshake {
    exports: Exports,
    tls: Tls,
    flags: Option<u16>,
    structured: bool,
    /// The export for which `base:allocation` was selected.
    allocation_of: Option<String>,
    options: u32,
}

impl Handshake {
    /// Begins; the greeting is in `out`.
    #[must_use]
    pub fn new(exports: Exports, tls: Tls, out: &mut Out) -> Self {
        out.put(&NBDMAGIC.to_be_bytes());
        out.put(&IHAVEOPT.to_be_bytes());
        out.put(&(hello::FIXED_NEWSTYLE | hello::NO_ZEROES).to_be_bytes());
        Self {
            exports,
            tls,
            flags: None,
            structured: false,
            allocation_of: None,
            options: 0,
        }
    }

    /// TLS is done: what was agreed before it is void, as the protocol has it.
    pub fn secured(&mut self) {
        self.tls = Tls::Done;
        self.structured = false;
        self.allocation_of = None;
    }

    /// Takes what it can from the front of `input`; replies are in `out`. Returns how many bytes it took.
    ///
    /// # Errors
    /// See [`HandshakeError`]; close the connection.
    pub fn advance(
        &mut self,
        input: &[u8],
        out: &mut Out,
    ) -> Result<(usize, Step), HandshakeError> {
        let mut rest = Fields(input);
        loop {
            let taken = input.len() - rest.0.len();
            if out.is_full() {
                return Ok((taken, Step::More));
            }
            let Some(client_flags) = self.flags else {
                let Some(flags) = rest.u32() else {
                    return Ok((taken, Step::More));
                };
                if flags & !u32::from(hello::FIXED_NEWSTYLE | hello::NO_ZEROES) != 0 {
                    return Err(HandshakeError::Protocol);
                }
                self.flags = Some(flags as u16);
                continue;
            };
            let mut ahead = rest;
            let (Some(magic), Some(option), Some(len)) = (ahead.u64(), ahead.u32(), ahead.u32())
            else {
                return Ok((taken, Step::More));
            };
            if magic != IHAVEOPT {
                return Err(HandshakeError::Protocol);
            }
            let len_usize = usize::try_from(len).unwrap_or(usize::MAX);
            if len_usize > OPTION_LEN_MAX {
                return Err(HandshakeError::OptionTooLong(len));
            }
            let Some(data) = ahead.bytes(len_usize) else {
                return Ok((taken, Step::More));
            };
            rest = ahead;
            let taken = input.len() - rest.0.len();
            self.options += 1;
            if self.options > OPTIONS_MAX {
                return Err(HandshakeError::TooManyOptions);
            }
            match self.option(option, data, client_flags, out)? {
                Step::More => {}
                step => return Ok((taken, step)),
            }
        }
    }

    fn option(
        &mut self,
        option: u32,
        data: &[u8],
        client_flags: u16,
        out: &mut Out,
    ) -> Result<Step, HandshakeError> {
        let mut answer = Answer { option, out };
        match option {
            opt::ABORT => {
                answer.ack();
                return Ok(Step::Close);
            }
            opt::STARTTLS => return Ok(self.start_tls(data, &mut answer)),
            opt::EXPORT_NAME if self.tls == Tls::Required => return Err(HandshakeError::NoExport),
            _ if self.tls == Tls::Required => {
                answer.error(rep::ERR_TLS_REQD, "this server needs TLS")
            }
            opt::EXPORT_NAME => return self.export_name(data, client_flags, answer.out),
            opt::LIST if data.is_empty() => self.list(&mut answer),
            opt::STRUCTURED_REPLY if data.is_empty() => {
                self.structured = true;
                answer.ack();
            }
            opt::INFO | opt::GO => {
                if let Some(export) = self.info(data, &mut answer)
                    && option == opt::GO
                {
                    let allocation = self
                        .allocation_of
                        .as_ref()
                        .is_some_and(|name| *name == export.name);
                    return Ok(Step::Transmit(Agreed {
                        export,
                        structured: self.structured,
                        allocation,
                    }));
                }
            }
            opt::LIST_META_CONTEXT | opt::SET_META_CONTEXT => self.meta_context(data, &mut answer),
            opt::LIST | opt::STRUCTURED_REPLY => {
                answer.error(rep::ERR_INVALID, "this option carries no data")
            }
            _ => answer.error(rep::ERR_UNSUP, "this server does not know the option"),
        }
        Ok(Step::More)
    }

    fn start_tls(&self, data: &[u8], answer: &mut Answer<'_>) -> Step {
        match self.tls {
            _ if !data.is_empty() => answer.error(rep::ERR_INVALID, "STARTTLS carries no data"),
            Tls::Absent => answer.error(rep::ERR_POLICY, "this server has no certificates"),
            Tls::Done => answer.error(rep::ERR_INVALID, "TLS is there already"),
            Tls::Offered | Tls::Required => {
                answer.ack();
                return Step::StartTls;
            }
        }
        Step::More
    }

    fn export_name(
        &mut self,
        data: &[u8],
        client_flags: u16,
        out: &mut Out,
    ) -> Result<Step, HandshakeError> {
        let name = str::from_utf8(data).map_err(|_| HandshakeError::NoExport)?;
        let export = self
            .exports
            .find(name)
            .ok_or(HandshakeError::NoExport)?
            .clone();
        out.put(&export.shape().size.to_be_bytes());
        out.put(&export.flags(self.structured).to_be_bytes());
        if client_flags & hello::NO_ZEROES == 0 {
            out.room(124).fill(0);
        }
        let allocation = self
            .allocation_of
            .as_ref()
            .is_some_and(|name| *name == export.name);
        Ok(Step::Transmit(Agreed {
            export,
            structured: self.structured,
            allocation,
        }))
    }

    fn list(&self, answer: &mut Answer<'_>) {
        for export in self.exports.iter() {
            let name = export.name.as_bytes();
            let len = u32::try_from(name.len()).expect("names are short");
            answer.reply(
                rep::SERVER,
                &[&len.to_be_bytes(), name, export.description.as_bytes()],
            );
        }
        answer.ack();
    }

    /// Answers `NBD_OPT_INFO` and `NBD_OPT_GO`; the export where there is one.
    fn info(&self, data: &[u8], answer: &mut Answer<'_>) -> Option<Arc<Export>> {
        let mut fields = Fields(data);
        let parsed = (|| {
            let name = fields.string()?;
            let wanted = usize::from(fields.u16()?);
            let wanted = fields.bytes(wanted * 2)?;
            fields.0.is_empty().then_some((name, wanted))
        })();
        let Some((name, wanted)) = parsed else {
            answer.error(rep::ERR_INVALID, "the option's lengths do not add up");
            return None;
        };
        let Some(export) = self.exports.find(name) else {
            answer.error(rep::ERR_UNKNOWN, "there is no such export here");
            return None;
        };
        let shape = export.shape();
        let put = |answer: &mut Answer<'_>, kind: u16, parts: [&[u8]; 3]| {
            answer.reply(
                rep::INFO,
                &[&kind.to_be_bytes(), parts[0], parts[1], parts[2]],
            );
        };
        put(
            answer,
            info::EXPORT,
            [
                &shape.size.to_be_bytes(),
                &export.flags(self.structured).to_be_bytes(),
                &[],
            ],
        );
        let sizes = [shape.block_min, shape.block_preferred, REQUEST_LEN_MAX].map(u32::to_be_bytes);
        put(answer, info::BLOCK_SIZE, [&sizes[0], &sizes[1], &sizes[2]]);
        let wants = |kind: u16| {
            wanted
                .chunks_exact(2)
                .any(|want| want == kind.to_be_bytes())
        };
        if wants(info::NAME) {
            put(answer, info::NAME, [export.name.as_bytes(), &[], &[]]);
        }
        if wants(info::DESCRIPTION) && !export.description.is_empty() {
            put(
                answer,
                info::DESCRIPTION,
                [export.description.as_bytes(), &[], &[]],
            );
        }
        answer.ack();
        Some(export.clone())
    }

    fn meta_context(&mut self, data: &[u8], answer: &mut Answer<'_>) {
        let set = answer.option == opt::SET_META_CONTEXT;
        if set {
            self.allocation_of = None;
        }
        if !self.structured {
            return answer.error(
                rep::ERR_INVALID,
                "structured replies must be agreed on first",
            );
        }
        let mut fields = Fields(data);
        let parsed = (|| {
            let name = fields.string()?;
            let count = fields.u32()?;
            let mut found = count == 0 && !set;
            for _ in 0..count {
                let query = fields.string()?;
                found |= query == BASE_ALLOCATION || !set && query == "base:";
            }
            fields.0.is_empty().then_some((name, found))
        })();
        let Some((name, found)) = parsed else {
            return answer.error(rep::ERR_INVALID, "the option's lengths do not add up");
        };
        let Some(export) = self.exports.find(name) else {
            return answer.error(rep::ERR_UNKNOWN, "there is no such export here");
        };
        if found {
            if set {
                self.allocation_of = Some(export.name.clone());
            }
            let id = if set { BASE_ALLOCATION_ID } else { 0 };
            answer.reply(
                rep::META_CONTEXT,
                &[&id.to_be_bytes(), BASE_ALLOCATION.as_bytes()],
            );
        }
        answer.ack();
    }
}

/// Replies to one option.
struct Answer<'a> {
    option: u32,
    out: &'a mut Out,
}

impl Answer<'_> {
    fn reply(&mut self, kind: u32, parts: &[&[u8]]) {
        let len: usize = parts.iter().map(|part| part.len()).sum();
        self.out.put(&OPTION_REPLY_MAGIC.to_be_bytes());
        self.out.put(&self.option.to_be_bytes());
        self.out.put(&kind.to_be_bytes());
        self.out
            .put(&u32::try_from(len).expect("replies are short").to_be_bytes());
        for part in parts {
            self.out.put(part);
        }
    }

    fn ack(&mut self) {
        self.reply(rep::ACK, &[]);
    }

    fn error(&mut self, kind: u32, why: &str) {
        self.reply(kind, &[why.as_bytes()]);
    }
}
