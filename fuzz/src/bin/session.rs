//! A session whose peer says anything in any order, while this side does what a caller may do.
#![no_main]

use std::collections::{BTreeMap, BTreeSet};

use libfuzzer_sys::fuzz_target;
use narrows_core::{ChannelId, CodecId, Limits, Seq};
use narrows_format::{Frame, Header};
use narrows_session::{Accept, Code, Config, Event, Hello, LinkId, Message, Role, Session};

struct Input<'a>(&'a [u8]);

impl Input<'_> {
    fn byte(&mut self) -> Option<u8> {
        let (&first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(first)
    }

    /// Mostly small, so that numbers meet each other.
    fn number(&mut self) -> Option<u64> {
        Some(match self.byte()? {
            255 => u64::MAX,
            254 => 1 << 40,
            small => u64::from(small % 12),
        })
    }

    fn message(&mut self) -> Option<Message> {
        let channel = ChannelId(self.number()? as u16 % 9);
        Some(match self.byte()? % 8 {
            0 => Message::Open {
                channel,
                serial: self.number()?,
                again: self.byte()? % 2 == 1,
                service: "s".into(),
            },
            1 => Message::Credit {
                channel,
                next_seq: self.number()?,
                bytes: self.number()?.wrapping_mul(256),
            },
            2 => Message::Finish {
                channel,
                chunks: self.number()?,
            },
            3 => Message::Abort {
                channel,
                code: Code(self.number()? as u16),
                text: "t".into(),
            },
            4 => Message::Resume {
                channel,
                next_seq: self.number()?,
            },
            5 => Message::Closed {
                channel,
                serial: self.number()?,
            },
            6 => Message::Ping,
            _ => Message::Bye {
                code: Code::FAILED,
                text: String::new(),
            },
        })
    }
}

const LIMITS: Limits = Limits {
    chunk_len_max: 4096,
    history_len_max: 0,
    window_len: 4096,
    channels_max: 3,
    depth: 2,
};

fuzz_target!(|data: &[u8]| {
    let mut input = Input(data);
    run(&mut input);
});

fn run(input: &mut Input<'_>) -> Option<()> {
    let role = if input.byte()? % 2 == 0 {
        Role::Initiator
    } else {
        Role::Acceptor
    };
    let config = Config {
        role,
        limits: LIMITS,
        codecs: vec![CodecId::RAW],
        host: 0,
        agent: "fuzz".into(),
        session: [0; 16],
    };
    let mut session = Session::<u64>::new(config);
    let mut links = BTreeSet::new();
    // Chunks that arrived, by channel: the caller consumes them in order, and only those.
    let mut arrived: BTreeMap<ChannelId, (u64, BTreeMap<u64, usize>)> = BTreeMap::new();
    let mut open = BTreeMap::new();
    loop {
        let link = LinkId(u32::from(input.byte()? % 3));
        match input.byte()? % 10 {
            0 if !links.contains(&link) => {
                let hello = Hello {
                    versions: (1, 1),
                    features: 0,
                    session: [0; 16],
                    resume: false,
                    limits: LIMITS,
                    codecs: vec![CodecId::RAW],
                    host: 0,
                    route: 0,
                    agent: String::new(),
                };
                session.attach(link, hello).ok()?;
                links.insert(link);
            }
            1 => {
                session.detach(link);
                links.remove(&link);
            }
            2 | 3 if links.contains(&link) => {
                let mut payload = Vec::new();
                for _ in 0..input.byte()? % 4 {
                    input.message()?.write(&mut payload);
                }
                // After a refusal the caller ends the session.
                session.on_control(link, &payload).ok()?;
            }
            4 if links.contains(&link) => {
                let channel = ChannelId(input.number()? as u16 % 9 + 1);
                let len = u32::from(input.byte()?) * 8 + 1;
                let seq = Seq(input.number()? % 40);
                let header = Header {
                    codec: CodecId::RAW,
                    channel,
                    seq,
                    raw_len: len,
                    packed_len: len,
                    history_len: 0,
                    check: 0,
                };
                session.next_seq(link, channel)?;
                let checked = session.check_frame(&header).ok()?;
                let accepted = session.on_frame(&header).ok()?;
                assert_eq!(checked, accepted);
                if accepted == Accept::New {
                    let (_, chunks) = arrived.entry(channel).or_default();
                    assert!(
                        chunks.insert(seq.0, header.cost()).is_none(),
                        "accepted twice"
                    );
                }
            }
            5 => {
                if let Ok(channel) = session.open("s") {
                    open.insert(channel, 0_u64);
                    arrived.remove(&channel);
                }
            }
            6 => {
                let (&channel, next) = open.iter_mut().nth(usize::from(input.byte()? % 4))?;
                let len = u32::from(input.byte()?) * 8 + 1;
                let seq = Seq(*next);
                let header = Header {
                    codec: CodecId::RAW,
                    channel,
                    seq,
                    raw_len: len,
                    packed_len: len,
                    history_len: 0,
                    check: 0,
                };
                *next += 1;
                session.submit(Frame { header, payload: 0 });
            }
            7 => {
                let &channel = open.keys().nth(usize::from(input.byte()? % 4))?;
                if input.byte()? % 4 == 0 {
                    session.abort(channel, Code::FAILED, "no");
                    arrived.remove(&channel);
                } else {
                    session.finish(channel);
                }
                open.remove(&channel);
            }
            8 => {
                let (&channel, (next, chunks)) =
                    arrived.iter_mut().nth(usize::from(input.byte()? % 4))?;
                if let Some(cost) = chunks.remove(next) {
                    *next += 1;
                    session.consumed(channel, cost);
                }
            }
            _ => {
                session.poll_send(link);
            }
        }
        while let Some(event) = session.poll_event() {
            match event {
                Event::Opened { channel, .. } => {
                    open.insert(channel, 0);
                    arrived.remove(&channel);
                }
                Event::Closed(channel) | Event::Aborted { channel, .. } => {
                    open.remove(&channel);
                    arrived.remove(&channel);
                }
                Event::Bye { .. } => return None,
                Event::Finished { .. } | Event::Feedback(_) => {}
            }
        }
        // What is held for a peer stays within what was agreed.
        assert!(arrived.len() <= 9);
        for (_, chunks) in arrived.values() {
            let held: usize = chunks.values().sum();
            assert!(
                held <= LIMITS.window_len || chunks.len() == 1,
                "{held} bytes held"
            );
        }
    }
}
