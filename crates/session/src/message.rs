//! What peers say to each other on channel 0, and its bytes.
//!
//! A control frame's payload is one or more messages, each one byte of kind followed by its fields, little-endian;
//! texts are a u16 length and UTF-8. There is no length per message: an unknown kind ends the session, because a
//! message that was not understood may matter. New kinds come with a feature bit in [`Hello`].

use narrows_core::{ChannelId, CodecId, Feedback, Limits, limits};

use crate::{Code, SessionError};

/// The one protocol version spoken here.
pub const PROTOCOL_VERSION: u16 = 1;

const MAGIC: &[u8; 8] = b"narrows\n";
const TEXT_LEN_MAX: usize = 1024;

/// First message on every link, from both sides.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hello {
    /// Oldest and newest protocol version spoken.
    pub versions: (u16, u16),
    /// Feature bits a peer must know; none are defined yet, so a set bit refuses.
    pub features: u32,
    /// Names the session, so that a new link can join it. Chosen at random by the initiator.
    pub session: [u8; 16],
    /// The initiator had this session before and lost a link.
    pub resume: bool,
    /// What this side is willing to hold.
    pub limits: Limits,
    /// Codecs this side can unpack.
    pub codecs: Vec<CodecId>,
    /// Equal at both ends where they run on one machine; 0 where a side does not know.
    pub host: u64,
    /// Equal at both ends where nothing between them ends the connection, as a relay or a forwarder does; 0 where a
    /// side does not know.
    pub route: u64,
    /// Program and version, for people.
    pub agent: String,
}

/// One message.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs, reason = "fields are described with their variant")]
pub enum Message {
    /// Introduces a side.
    Hello(Hello),
    /// A new channel, and what it is for. Sent on every link before the channel's first frame. `serial` counts the
    /// channels its opener ever opened, from 1: numbers of channels come back, serials do not, so a repeat is never
    /// taken for a new channel. After a link was lost either side says it `again` of each channel it still has, and
    /// is answered with `Resume`, `Closed` or `Abort`.
    Open {
        channel: ChannelId,
        serial: u64,
        again: bool,
        service: String,
    },
    /// All chunks before `next_seq` are consumed, `bytes` of frames since the channel opened. Both only grow, so a
    /// lost or repeated one is harmless.
    Credit {
        channel: ChannelId,
        next_seq: u64,
        bytes: u64,
    },
    /// The sender's direction ends after `chunks` chunks.
    Finish { channel: ChannelId, chunks: u64 },
    /// The channel ends at once, both ways. Answered with the same kind.
    Abort {
        channel: ChannelId,
        code: Code,
        text: String,
    },
    /// State of the receiver. Its moment does not travel: that of arrival counts.
    Feedback(Feedback),
    /// After a link was lost: chunks before `next_seq` have arrived here and need not be sent again.
    Resume { channel: ChannelId, next_seq: u64 },
    /// The session ends.
    Bye { code: Code, text: String },
    /// Asks for a [`Message::Pong`].
    Ping,
    /// Answers a [`Message::Ping`].
    Pong,
    /// Answers an `Open` that was said again of a channel which is over here: both directions had ended and were
    /// consumed, and the last words about it were lost with a link.
    Closed { channel: ChannelId, serial: u64 },
}

impl Message {
    /// Appends the message's bytes to `out`.
    pub fn write(&self, out: &mut Vec<u8>) {
        match self {
            Self::Hello(hello) => hello.write(out),
            Self::Open {
                channel,
                serial,
                again,
                service,
            } => {
                out.push(2);
                out.extend_from_slice(&channel.0.to_le_bytes());
                out.extend_from_slice(&serial.to_le_bytes());
                out.push((*again).into());
                write_text(out, service);
            }
            Self::Credit {
                channel,
                next_seq,
                bytes,
            } => {
                out.push(3);
                out.extend_from_slice(&channel.0.to_le_bytes());
                out.extend_from_slice(&next_seq.to_le_bytes());
                out.extend_from_slice(&bytes.to_le_bytes());
            }
            Self::Finish { channel, chunks } => {
                out.push(4);
                out.extend_from_slice(&channel.0.to_le_bytes());
                out.extend_from_slice(&chunks.to_le_bytes());
            }
            Self::Abort {
                channel,
                code,
                text,
            } => {
                out.push(5);
                out.extend_from_slice(&channel.0.to_le_bytes());
                out.extend_from_slice(&code.0.to_le_bytes());
                write_text(out, text);
            }
            Self::Feedback(Feedback {
                now_ns: _,
                workers,
                raw_bytes,
                unpack_ns,
                io_ns,
                delayed_ns,
                waiting_bytes,
                sink_ns,
            }) => {
                out.push(6);
                out.extend_from_slice(&workers.to_le_bytes());
                for counter in [
                    raw_bytes,
                    unpack_ns,
                    io_ns,
                    delayed_ns,
                    waiting_bytes,
                    sink_ns,
                ] {
                    out.extend_from_slice(&counter.to_le_bytes());
                }
            }
            Self::Resume { channel, next_seq } => {
                out.push(7);
                out.extend_from_slice(&channel.0.to_le_bytes());
                out.extend_from_slice(&next_seq.to_le_bytes());
            }
            Self::Bye { code, text } => {
                out.push(8);
                out.extend_from_slice(&code.0.to_le_bytes());
                write_text(out, text);
            }
            Self::Ping => out.push(9),
            Self::Pong => out.push(10),
            Self::Closed { channel, serial } => {
                out.push(11);
                out.extend_from_slice(&channel.0.to_le_bytes());
                out.extend_from_slice(&serial.to_le_bytes());
            }
        }
    }

    /// Reads all messages of one control frame.
    ///
    /// # Errors
    /// [`SessionError::Protocol`] where the bytes are no sequence of known messages.
    pub fn parse_all(mut bytes: &[u8]) -> Result<Vec<Self>, SessionError> {
        let mut messages = Vec::new();
        while !bytes.is_empty() {
            messages.push(Self::parse(&mut bytes)?);
        }
        Ok(messages)
    }

    fn parse(bytes: &mut &[u8]) -> Result<Self, SessionError> {
        Ok(match u8::from_le_bytes(take(bytes)?) {
            1 => Self::Hello(Hello::parse(bytes)?),
            2 => Self::Open {
                channel: channel(bytes)?,
                serial: u64(bytes)?,
                again: flag(bytes)?,
                service: text(bytes)?,
            },
            3 => Self::Credit {
                channel: channel(bytes)?,
                next_seq: u64(bytes)?,
                bytes: u64(bytes)?,
            },
            4 => Self::Finish {
                channel: channel(bytes)?,
                chunks: u64(bytes)?,
            },
            5 => Self::Abort {
                channel: channel(bytes)?,
                code: Code(u16(bytes)?),
                text: text(bytes)?,
            },
            6 => Self::Feedback(Feedback {
                now_ns: 0,
                workers: u32::from_le_bytes(take(bytes)?),
                raw_bytes: u64(bytes)?,
                unpack_ns: u64(bytes)?,
                io_ns: u64(bytes)?,
                delayed_ns: u64(bytes)?,
                waiting_bytes: u64(bytes)?,
                sink_ns: u64(bytes)?,
            }),
            7 => Self::Resume {
                channel: channel(bytes)?,
                next_seq: u64(bytes)?,
            },
            8 => Self::Bye {
                code: Code(u16(bytes)?),
                text: text(bytes)?,
            },
            9 => Self::Ping,
            10 => Self::Pong,
            11 => Self::Closed {
                channel: channel(bytes)?,
                serial: u64(bytes)?,
            },
            _ => return Err(SessionError::Protocol("message of an unknown kind")),
        })
    }
}

impl Hello {
    /// Whether this side can answer it at all.
    pub(crate) fn check(&self) -> Result<(), SessionError> {
        let (theirs_min, theirs_max) = self.versions;
        if !(theirs_min..=theirs_max).contains(&PROTOCOL_VERSION) {
            return Err(SessionError::Version {
                theirs_min,
                theirs_max,
                ours: PROTOCOL_VERSION,
            });
        }
        if self.features != 0 {
            return Err(SessionError::Protocol(
                "the peer requires a feature that this version does not have",
            ));
        }
        if self.limits.chunk_len_max < limits::CHUNK_LEN_MIN || self.limits.depth == 0 {
            return Err(SessionError::Protocol(
                "the peer's limits leave no room for a chunk",
            ));
        }
        if !self.codecs.contains(&CodecId::RAW) {
            return Err(SessionError::Protocol("the peer cannot read raw chunks"));
        }
        Ok(())
    }

    fn write(&self, out: &mut Vec<u8>) {
        out.push(1);
        out.extend_from_slice(MAGIC);
        out.extend_from_slice(&self.versions.0.to_le_bytes());
        out.extend_from_slice(&self.versions.1.to_le_bytes());
        out.extend_from_slice(&self.features.to_le_bytes());
        out.extend_from_slice(&self.session);
        out.push(self.resume.into());
        let limits = &self.limits;
        for bound in [
            limits.chunk_len_max,
            limits.history_len_max,
            limits.window_len,
            limits.depth,
        ] {
            out.extend_from_slice(&u32::try_from(bound).unwrap_or(u32::MAX).to_le_bytes());
        }
        out.extend_from_slice(&limits.channels_max.to_le_bytes());
        let mut set = [0_u8; 32];
        for codec in &self.codecs {
            set[usize::from(codec.0 / 8)] |= 1 << (codec.0 % 8);
        }
        out.extend_from_slice(&set);
        out.extend_from_slice(&self.host.to_le_bytes());
        out.extend_from_slice(&self.route.to_le_bytes());
        write_text(out, &self.agent);
    }

    fn parse(bytes: &mut &[u8]) -> Result<Self, SessionError> {
        if &take::<8>(bytes)? != MAGIC {
            return Err(SessionError::Protocol("not a narrows handshake"));
        }
        let versions = (u16(bytes)?, u16(bytes)?);
        let features = u32::from_le_bytes(take(bytes)?);
        let session = take(bytes)?;
        let resume = flag(bytes)?;
        let mut bounds = [0_usize; 4];
        for bound in &mut bounds {
            *bound = u32::from_le_bytes(take(bytes)?) as usize;
        }
        let [chunk_len_max, history_len_max, window_len, depth] = bounds;
        let channels_max = u16(bytes)?;
        let set: [u8; 32] = take(bytes)?;
        let codecs = (0..=255)
            .filter(|id| set[usize::from(id / 8)] & 1 << (id % 8) != 0)
            .map(CodecId)
            .collect();
        let host = u64::from_le_bytes(take(bytes)?);
        let route = u64::from_le_bytes(take(bytes)?);
        let agent = text(bytes)?;
        let limits = Limits {
            chunk_len_max,
            history_len_max,
            window_len,
            channels_max,
            depth,
        };
        Ok(Self {
            versions,
            features,
            session,
            resume,
            limits,
            codecs,
            host,
            route,
            agent,
        })
    }
}

fn take<const N: usize>(bytes: &mut &[u8]) -> Result<[u8; N], SessionError> {
    let (head, tail) = bytes
        .split_first_chunk()
        .ok_or(SessionError::Protocol("message is cut short"))?;
    *bytes = tail;
    Ok(*head)
}

fn flag(bytes: &mut &[u8]) -> Result<bool, SessionError> {
    match take(bytes)? {
        [0] => Ok(false),
        [1] => Ok(true),
        _ => Err(SessionError::Protocol("a flag is neither yes nor no")),
    }
}

fn u16(bytes: &mut &[u8]) -> Result<u16, SessionError> {
    take(bytes).map(u16::from_le_bytes)
}

fn u64(bytes: &mut &[u8]) -> Result<u64, SessionError> {
    take(bytes).map(u64::from_le_bytes)
}

fn channel(bytes: &mut &[u8]) -> Result<ChannelId, SessionError> {
    u16(bytes).map(ChannelId)
}

fn text(bytes: &mut &[u8]) -> Result<String, SessionError> {
    let len = usize::from(u16(bytes)?);
    if len > TEXT_LEN_MAX {
        return Err(SessionError::Protocol("text of over 1,024 bytes"));
    }
    let (head, tail) = bytes
        .split_at_checked(len)
        .ok_or(SessionError::Protocol("message is cut short"))?;
    *bytes = tail;
    String::from_utf8(head.to_vec()).map_err(|_| SessionError::Protocol("text is not UTF-8"))
}

/// Longer texts are cut: they are for people, and the reader refuses them.
fn write_text(out: &mut Vec<u8>, text: &str) {
    let end = text.floor_char_boundary(TEXT_LEN_MAX);
    out.extend_from_slice(&(end as u16).to_le_bytes());
    out.extend_from_slice(&text.as_bytes()[..end]);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples() -> Vec<Message> {
        let hello = Hello {
            versions: (1, 3),
            features: 0,
            session: [7; 16],
            resume: true,
            limits: Limits::default(),
            codecs: vec![CodecId(0), CodecId(9), CodecId(255)],
            host: 11,
            route: 12,
            agent: "narrows 0.1.0".into(),
        };
        let channel = ChannelId(3);
        vec![
            Message::Hello(hello),
            Message::Open {
                channel,
                serial: 2,
                again: true,
                service: "files".into(),
            },
            Message::Credit {
                channel,
                next_seq: 1,
                bytes: u64::MAX,
            },
            Message::Finish { channel, chunks: 9 },
            Message::Abort {
                channel,
                code: Code::FAILED,
                text: "no space left".into(),
            },
            Message::Feedback(Feedback {
                now_ns: 0,
                workers: 2,
                raw_bytes: 3,
                unpack_ns: 4,
                io_ns: 7,
                delayed_ns: 8,
                waiting_bytes: 5,
                sink_ns: 6,
            }),
            Message::Resume {
                channel,
                next_seq: 70_000,
            },
            Message::Bye {
                code: Code::DONE,
                text: String::new(),
            },
            Message::Ping,
            Message::Pong,
            Message::Closed { channel, serial: 9 },
        ]
    }

    #[test]
    fn messages_survive_the_wire_together() {
        let mut bytes = Vec::new();
        samples()
            .iter()
            .for_each(|message| message.write(&mut bytes));
        assert_eq!(Message::parse_all(&bytes), Ok(samples()));
    }

    #[test]
    fn every_cut_and_every_first_byte_is_refused_or_read_without_panic() {
        for message in samples() {
            let mut bytes = Vec::new();
            message.write(&mut bytes);
            for cut in 1..bytes.len() {
                assert!(
                    Message::parse_all(&bytes[..cut]).is_err(),
                    "{message:?} cut at {cut}"
                );
            }
            for kind in 12..=255 {
                bytes[0] = kind;
                assert!(Message::parse_all(&bytes).is_err());
            }
        }
    }

    #[test]
    fn a_long_text_is_cut_between_characters() {
        let mut bytes = Vec::new();
        Message::Bye {
            code: Code::FAILED,
            text: "ä".repeat(1000),
        }
        .write(&mut bytes);
        let messages = Message::parse_all(&bytes).unwrap();
        let [Message::Bye { text, .. }] = &messages[..] else {
            panic!("{messages:?}")
        };
        assert_eq!(text.len(), 1024);
    }
}
