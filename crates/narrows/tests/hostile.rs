//! A peer that knows the protocol and means harm: refused in words, by rule, at a bounded price.

use std::{
    io::{Read, Write},
    net::TcpStream,
    sync::{Arc, Mutex, mpsc},
    thread,
    time::Duration,
};

use narrows::{Acceptor, Code, Endpoint, Engine, Error, Settings};
use narrows_core::{ChannelId, CodecId, Level, Limits, Seq, Workspace};
use narrows_format::{Header, chunk_check};
use narrows_io::{Address, Listener, Tuning, meter::Memory};
use narrows_session::{Hello, Message};

const CHANNEL: ChannelId = ChannelId(1);

/// The end that is attacked: takes one channel and reads it to its end, unless told to stall.
struct Victim {
    address: String,
    ended: mpsc::Receiver<Error>,
}

impl Victim {
    fn start(stall: bool) -> Self {
        let listener = Listener::bind(
            &Address::parse("127.0.0.1:0", 0).unwrap(),
            &Tuning::default(),
        )
        .unwrap();
        let address = listener.local().to_string();
        let limits = Limits {
            chunk_len_max: 1 << 20,
            window_len: 1 << 20,
            ..Limits::default()
        };
        let settings = Settings::builder()
            .limits(limits)
            .resume_within(Duration::from_millis(300))
            .build();
        let acceptor = Acceptor::new(Engine::new(1), settings);
        let (tell, ended) = mpsc::channel();
        thread::spawn(move || {
            while let Ok(Some(transport)) = listener.accept() {
                let endpoint: Endpoint = match acceptor.take(transport) {
                    Ok(Some(endpoint)) => endpoint,
                    Ok(None) => continue,
                    Err(end) => {
                        let _ = tell.send(end);
                        continue;
                    }
                };
                let incoming = endpoint.accept().ok().flatten();
                let held = Mutex::new(incoming);
                if !stall && let Some(incoming) = held.lock().unwrap().as_mut() {
                    let _ = incoming.reader.read_to_end(&mut Vec::new());
                }
                let end = loop {
                    if let Some(end) = endpoint.ended() {
                        break end;
                    }
                    thread::sleep(Duration::from_millis(5));
                };
                let _ = tell.send(end);
            }
        });
        Self { address, ended }
    }
}

/// The attacker: says Hello as it should and then whatever it likes.
struct Peer {
    stream: TcpStream,
    next_control: u64,
    next_seq: u64,
}

fn hello() -> Hello {
    Hello {
        versions: (1, 1),
        features: 0,
        session: [7; 16],
        resume: false,
        limits: Limits::default(),
        codecs: (0..=40).map(CodecId).collect(),
        host: 0,
        route: 0,
        agent: "harm".into(),
    }
}

impl Peer {
    fn connect(victim: &Victim, hello: Hello) -> Self {
        let stream = TcpStream::connect(&victim.address).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_secs(20)))
            .unwrap();
        stream
            .set_write_timeout(Some(Duration::from_secs(20)))
            .unwrap();
        let mut peer = Self {
            stream,
            next_control: 0,
            next_seq: 0,
        };
        peer.say(&[Message::Hello(hello)]);
        peer
    }

    fn with_channel(victim: &Victim) -> Self {
        let mut peer = Self::connect(victim, hello());
        peer.say(&[Message::Open {
            channel: CHANNEL,
            serial: 1,
            again: false,
            service: "x".into(),
        }]);
        peer
    }

    fn say(&mut self, messages: &[Message]) {
        let mut payload = Vec::new();
        messages
            .iter()
            .for_each(|message| message.write(&mut payload));
        self.control(&payload);
    }

    fn control(&mut self, payload: &[u8]) {
        let seq = Seq(self.next_control);
        self.next_control += 1;
        let len = payload.len() as u32;
        let check = chunk_check(ChannelId::CONTROL, seq, payload);
        let header = Header {
            codec: CodecId::RAW,
            channel: ChannelId::CONTROL,
            seq,
            raw_len: len,
            packed_len: len,
            history_len: 0,
            check,
        };
        self.frame(&header, payload);
    }

    /// A chunk's frame as a sender would make it, with one thing to change.
    fn chunk(&mut self, codec: u8, raw: &[u8], payload: &[u8], change: impl FnOnce(&mut Header)) {
        let seq = Seq(self.next_seq);
        self.next_seq += 1;
        let mut header = Header {
            codec: CodecId(codec),
            channel: CHANNEL,
            seq,
            raw_len: raw.len() as u32,
            packed_len: payload.len() as u32,
            history_len: 0,
            check: chunk_check(CHANNEL, seq, raw),
        };
        change(&mut header);
        self.frame(&header, payload);
    }

    fn frame(&mut self, header: &Header, payload: &[u8]) {
        let bytes = [&header.to_bytes()[..header.len()], payload].concat();
        // Refused before all of it is written: the answer says why.
        let _ = self.stream.write_all(&bytes);
    }

    /// Reads until the victim's goodbye.
    fn goodbye(mut self) -> Option<(Code, String)> {
        let mut bytes = Vec::new();
        let mut buf = [0; 4096];
        while let Ok(len @ 1..) = self.stream.read(&mut buf) {
            bytes.extend_from_slice(&buf[..len]);
        }
        let (mut at, mut seq, mut found) = (0, 0, None);
        while at < bytes.len() {
            let header =
                Header::parse(&bytes[at..], &Limits::default(), |_| Some(Seq(seq))).ok()?;
            seq += 1;
            let payload = bytes.get(at + header.len()..at + header.wire_len())?;
            for message in Message::parse_all(payload).unwrap() {
                if let Message::Bye { code, text } = message {
                    found = Some((code, text));
                }
            }
            at += header.wire_len();
        }
        found
    }
}

/// Runs one attack; the victim must end with `code` and words that hold `words`, and the attacker is told the same.
#[track_caller]
fn refused(what: &str, code: Code, words: &str, attack: impl FnOnce(&mut Peer)) {
    let victim = Victim::start(false);
    let mut peer = Peer::with_channel(&victim);
    attack(&mut peer);
    let end = victim
        .ended
        .recv_timeout(Duration::from_secs(20))
        .unwrap_or_else(|_| panic!("{what}: not refused"));
    assert!(
        end.code() == code && end.text().contains(words),
        "{what}: {end:?}"
    );
    if let Some((told, text)) = peer.goodbye() {
        assert_eq!((told, text.as_str()), (end.code(), end.text()), "{what}");
    }
}

fn packed(codec: &str, raw: &[u8]) -> (u8, Vec<u8>) {
    let registry = narrows::default_registry();
    let codec = registry.by_name(codec).unwrap();
    let mut out = vec![0; raw.len()];
    let len = codec
        .pack(
            raw,
            Level(codec.info().level_default),
            &[],
            &mut out,
            &mut Workspace::default(),
        )
        .unwrap();
    out.truncate(len);
    (codec.id().0, out)
}

#[test]
fn bombs_are_refused_before_they_go_off() {
    let before = Memory::of_process().unwrap().peak;
    for (codec, zeros) in [
        ("zstd", 8 << 20),
        ("lz4", 200_000),
        ("snappy", 16_000),
        ("deflate", 700_000),
        ("zlib", 700_000),
        ("gzip", 700_000),
        ("lzo1x", 100_000),
        ("gipfeli", 20_000),
        ("shuffle4-zstd", 4 << 20),
        ("delta8-lz4", 100_000),
    ] {
        let (id, bomb) = packed(codec, &vec![0; zeros]);
        refused(codec, Code::CORRUPT, "chunk 0", |peer| {
            // Says that it holds little more than itself.
            let raw_len = (bomb.len() as u32).max(1000);
            peer.chunk(id, &vec![0; raw_len as usize], &bomb, |header| {
                header.raw_len = raw_len
            });
        });
    }
    let grown = Memory::of_process().unwrap().peak - before;
    println!("10 bombs refused, {} MiB more at most", grown >> 20);
    assert!(grown < 100 << 20, "{grown} bytes for bombs");
}

#[test]
#[allow(clippy::too_many_lines, reason = "a table of cases")]
fn lies_in_headers_are_refused_by_rule() {
    let noise = vec![9; 2000];
    refused(
        "a chunk over the limit",
        Code::LIMIT,
        "chunk bytes",
        |peer| {
            peer.chunk(9, &[0; 100], &[0; 100], |header| {
                header.raw_len = (1 << 20) + 1
            });
        },
    );
    refused(
        "history over the limit",
        Code::LIMIT,
        "history bytes",
        |peer| {
            peer.chunk(9, &[0; 100], &[0; 100], |header| {
                header.history_len = u32::MAX
            });
        },
    );
    refused(
        "more history than the channel carried",
        Code::CORRUPT,
        "history",
        |peer| {
            let (id, bytes) = packed("zstd", &[0; 100]);
            peer.chunk(id, &[0; 100], &bytes, |header| header.history_len = 50);
        },
    );
    refused("a codec nobody knows", Code::CORRUPT, "codec 200", |peer| {
        peer.chunk(200, &[0; 100], &[0; 100], |_| {});
    });
    refused(
        "raw bytes of another length",
        Code::CORRUPT,
        "raw payload",
        |peer| {
            peer.chunk(0, &[0; 100], &[0; 90], |_| {});
        },
    );
    refused("another check", Code::CORRUPT, "check", |peer| {
        peer.chunk(0, &noise, &noise, |header| header.check ^= 1);
    });
    refused(
        "a channel that is not open",
        Code::CORRUPT,
        "not open",
        |peer| {
            peer.chunk(0, &noise, &noise, |header| header.channel = ChannelId(5));
        },
    );
    refused(
        "a chunk after the end",
        Code::PROTOCOL,
        "after the end",
        |peer| {
            peer.say(&[Message::Finish {
                channel: CHANNEL,
                chunks: 1,
            }]);
            peer.next_seq = 3;
            peer.chunk(0, &noise, &noise, |_| {});
        },
    );
    refused(
        "an end before its chunks",
        Code::PROTOCOL,
        "before its chunks",
        |peer| {
            peer.chunk(0, &noise, &noise, |_| {});
            peer.chunk(0, &noise, &noise, |_| {});
            peer.say(&[Message::Finish {
                channel: CHANNEL,
                chunks: 1,
            }]);
        },
    );
    refused("a long control frame", Code::LIMIT, "chunk bytes", |peer| {
        peer.control(&[9; 5000])
    });
    refused(
        "an unknown message",
        Code::PROTOCOL,
        "unknown kind",
        |peer| peer.control(&[200]),
    );
    refused("a second Hello", Code::PROTOCOL, "second Hello", |peer| {
        peer.say(&[Message::Hello(hello())])
    });
    refused(
        "credit for what was not sent",
        Code::PROTOCOL,
        "credit",
        |peer| {
            peer.say(&[Message::Credit {
                channel: CHANNEL,
                next_seq: 9,
                bytes: 9,
            }]);
        },
    );
    refused("another frame version", Code::CORRUPT, "version", |peer| {
        let _ = peer.stream.write_all(&[0x20; 64]);
    });
    refused("an unknown feature bit", Code::CORRUPT, "feature", |peer| {
        let _ = peer.stream.write_all(&[0x12; 64]);
    });
    refused(
        "a channel closed before its end",
        Code::PROTOCOL,
        "closed before",
        |peer| {
            peer.say(&[Message::Closed {
                channel: CHANNEL,
                serial: 1,
            }]);
        },
    );
}

#[test]
fn what_exceeds_the_credit_is_refused_and_what_waits_is_bounded() {
    let before = Memory::of_process().unwrap().peak;
    for len in [1, 100_000] {
        let victim = Victim::start(true);
        let mut peer = Peer::with_channel(&victim);
        let noise = vec![9; len];
        for _ in 0..(3 << 20) / len.max(256) {
            peer.chunk(0, &noise, &noise, |_| {});
        }
        let end = victim
            .ended
            .recv_timeout(Duration::from_secs(20))
            .expect("refused");
        assert!(
            end.code() == Code::PROTOCOL && end.text().contains("credit"),
            "{end:?}"
        );
    }
    let grown = Memory::of_process().unwrap().peak - before;
    assert!(grown < 100 << 20, "{grown} bytes for a window of 1 MiB");
}

#[test]
fn questions_without_listening_to_answers_end() {
    let victim = Victim::start(true);
    let mut peer = Peer::with_channel(&victim);
    peer.stream.set_nonblocking(false).unwrap();
    let aborts: Vec<_> = (0..200_u64)
        .map(|serial| Message::Open {
            channel: ChannelId(3),
            serial: 2 + serial,
            again: true,
            service: "y".into(),
        })
        .collect();
    // Each is answered; nobody reads the answers.
    let end = loop {
        peer.say(&aborts[..150]);
        match victim.ended.try_recv() {
            Ok(end) => break end,
            Err(_) if peer.next_control < 2_000_000 => {}
            Err(_) => panic!("it answers for ever"),
        }
    };
    assert_ne!(end.code(), Code::DONE, "{end:?}");
}

#[test]
fn handshakes_that_do_not_suit_are_answered_in_words() {
    type Change = fn(&mut Hello);
    let cases: [(&str, Code, Change); 6] = [
        ("2 to 4", Code::PROTOCOL, |hello| hello.versions = (2, 4)),
        ("feature", Code::PROTOCOL, |hello| hello.features = 1),
        ("room for a chunk", Code::PROTOCOL, |hello| {
            hello.limits.depth = 0
        }),
        ("room for a chunk", Code::PROTOCOL, |hello| {
            hello.limits.chunk_len_max = 0
        }),
        ("raw chunks", Code::PROTOCOL, |hello| {
            hello.codecs = vec![CodecId(9)]
        }),
        ("does not know the session", Code::PROTOCOL, |hello| {
            hello.resume = true
        }),
    ];
    for (words, code, change) in cases {
        let victim = Victim::start(false);
        let mut hello = hello();
        change(&mut hello);
        let peer = Peer::connect(&victim, hello);
        let (told, text) = peer
            .goodbye()
            .unwrap_or_else(|| panic!("{words}: no answer"));
        assert!(told == code && text.contains(words), "{told} {text}");
        assert_eq!(
            victim
                .ended
                .recv_timeout(Duration::from_secs(20))
                .unwrap()
                .code(),
            code
        );
    }
}

#[test]
fn silence_before_the_handshake_holds_up_nobody_else() {
    let engine = Engine::new(1);
    let listener = Listener::bind(
        &Address::parse("127.0.0.1:0", 0).unwrap(),
        &Tuning::default(),
    )
    .unwrap();
    let address = listener.local().to_string();
    let acceptor = Arc::new(Acceptor::new(engine, Settings::default()));
    let (found, sessions) = mpsc::channel();
    thread::spawn(move || {
        while let Ok(Some(transport)) = listener.accept() {
            let (acceptor, found) = (acceptor.clone(), found.clone());
            thread::spawn(move || {
                found.send(acceptor.take(transport).map(|endpoint| endpoint.is_some()))
            });
        }
    });
    let silent: Vec<_> = (0..50)
        .map(|_| TcpStream::connect(&address).unwrap())
        .collect();
    let victim = Victim {
        address,
        ended: mpsc::channel().1,
    };
    let _peer = Peer::with_channel(&victim);
    assert_eq!(
        sessions.recv_timeout(Duration::from_secs(5)).unwrap(),
        Ok(true)
    );
    drop(silent);
}
