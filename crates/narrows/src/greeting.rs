//! The first words on a connection: Hello and Hello, or why not.

use std::{
    io::{self, IoSlice},
    time::Duration,
};

use narrows_core::{ChannelId, Limits, Seq};
use narrows_format::Header;
use narrows_io::{
    Shutdown, Transport,
    deadline::{Late, deadline},
};
use narrows_session::{Code, Hello, Message, SessionError};

use crate::{
    Error,
    link::{LinkFault, ReadAhead, check_control, control_header},
};

/// Says Hello and waits for the peer's.
pub(crate) fn greet(ours: &Hello, mut transport: Transport) -> Result<(Transport, Hello), Error> {
    write_hello(&mut transport, &Message::Hello(ours.clone())).map_err(lost)?;
    let Transport {
        reader,
        writer,
        peer,
        shutdown,
        probe,
        security,
        identity,
    } = transport;
    let mut ahead = ReadAhead::new(reader);
    let theirs = within(&shutdown, HELLO_WITHIN, || read_hello(&mut ahead))?;
    let transport = Transport {
        reader: ahead.into_half(),
        writer,
        peer,
        shutdown,
        probe,
        security,
        identity,
    };
    Ok((transport, theirs))
}

pub(crate) fn write_hello(transport: &mut Transport, hello: &Message) -> io::Result<()> {
    let mut payload = Vec::new();
    hello.write(&mut payload);
    let header = control_header(Seq(0), &payload);
    let bytes = header.to_bytes();
    transport
        .writer
        .write_slices(&mut [IoSlice::new(&bytes[..header.len()]), IoSlice::new(&payload)])
}

pub(crate) fn read_hello(ahead: &mut ReadAhead) -> Result<Hello, Error> {
    let next_seq = |channel| (channel == ChannelId::CONTROL).then_some(Seq(0));
    let parse = |bytes: &[u8]| Ok(Header::parse(bytes, &Limits::default(), next_seq)?);
    let header = match ahead.read_header(parse) {
        Ok(Some(header)) => header,
        Ok(None) => {
            return Err(Error::Io {
                kind: io::ErrorKind::UnexpectedEof,
                text: "the peer closed the connection before its handshake; its log says why, often other security flags".into(),
            });
        }
        Err(LinkFault::Io(fault)) => return Err(lost(fault)),
        Err(LinkFault::Session(_)) if ahead.come().starts_with(&TLS) => {
            let text = "expected no authentication, but the peer speaks TLS; give both sides the same security flags";
            return Err(Error::new(Code::AUTH, text));
        }
        Err(LinkFault::Session(fault)) => {
            return Err(Error::new(
                Code::PROTOCOL,
                format!("the peer does not speak narrows: {fault}"),
            ));
        }
    };
    let mut payload = vec![0; header.packed_len as usize];
    ahead.fill_payload(&mut payload).map_err(lost)?;
    check_control(&header, &payload).map_err(|fault| refused(fault.into()))?;
    // Exactly one message: with a second one beside it, it would be unclear which was meant.
    match <[Message; 1]>::try_from(Message::parse_all(&payload).map_err(refused)?) {
        Ok([Message::Hello(hello)]) => Ok(hello),
        Ok([Message::Bye { code, text }]) => Err(Error::new(code, text)),
        _ => Err(Error::new(
            Code::PROTOCOL,
            "the peer did not begin with a handshake",
        )),
    }
}

pub(crate) fn say_bye(mut transport: Transport, end: Error) -> Error {
    let _ = write_hello(
        &mut transport,
        &Message::Bye {
            code: end.code(),
            text: end.text().into(),
        },
    );
    let _ = transport.writer.finish();
    end
}

pub(crate) fn refused(fault: SessionError) -> Error {
    Error::new(fault.code(), fault.to_string())
}

pub(crate) fn lost(fault: io::Error) -> Error {
    Error::Io {
        kind: fault.kind(),
        text: format!("the connection broke during the handshake: {fault}"),
    }
}

/// Runs `work` and cuts the connection if it takes too long.
pub(crate) fn within<T>(
    shutdown: &Shutdown,
    limit: Duration,
    work: impl FnOnce() -> Result<T, Error>,
) -> Result<T, Error> {
    deadline(shutdown, limit, work).map_err(|late| match late {
        Late::Timeout(_) => Error::new(Code::FAILED, format!("the peer's handshake: {late}")),
        Late::NoThread(error) => Error::new(Code::FAILED, error.to_string()),
    })?
}

/// How long a peer may take for its Hello.
pub(crate) const HELLO_WITHIN: Duration = Duration::from_secs(10);
/// How an alert of TLS begins, which is what a peer that expects TLS answers.
const TLS: [u8; 2] = [0x15, 3];
