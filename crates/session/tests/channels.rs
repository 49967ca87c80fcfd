//! Many channels over links that come and go: each opens once, carries everything both ways, and ends on both sides.
//!
//! Unlike in `sessions.rs`, a side may learn of a lost link long after the other, numbers of channels come back, some
//! channels are aborted, and the last words about a channel may be what is lost.

use std::collections::{BTreeMap, VecDeque};

use narrows_core::{ChannelId, CodecId, Limits, Seq};
use narrows_format::{Frame, Header};
use narrows_session::{Accept, Code, Config, Event, LinkId, Out, Role, Session};

enum Carried {
    Control(Vec<u8>),
    Frame(Header),
}

/// What a side knows of a channel that is open there.
#[derive(Debug, Default)]
struct Talk {
    name: String,
    sent: u64,
    finished: bool,
    arrived: BTreeMap<u64, usize>,
    consumed: u64,
    chunks: Option<u64>,
}

struct Side {
    session: Session<()>,
    links: BTreeMap<LinkId, Link>,
    talks: BTreeMap<ChannelId, Talk>,
    opened: u64,
    /// Names of channels that ended here and how.
    ended: BTreeMap<String, &'static str>,
}

/// What came over a link and was not read; frames and messages.
#[derive(Default)]
struct Link {
    incoming: VecDeque<Carried>,
    /// The other side is gone: what was sent before it went may still be read, nothing arrives there any more.
    cut: bool,
}

struct Dice(u64);

impl Dice {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % n
    }
}

/// Chunks that each direction of the channel of this name carries.
fn chunks_of(name: &str) -> u64 {
    let number: u64 = name
        .trim_start_matches(|c: char| !c.is_ascii_digit())
        .parse()
        .unwrap();
    number * 7 % 5
}

fn is_aborted(name: &str) -> bool {
    name.ends_with('3')
}

impl Side {
    fn new(role: Role) -> Self {
        let limits = Limits {
            window_len: 3000,
            channels_max: 64,
            ..Limits::default()
        };
        let config = Config {
            role,
            limits,
            codecs: vec![CodecId::RAW],
            host: 0,
            agent: "test".into(),
            session: [1; 16],
        };
        Self {
            session: Session::new(config),
            links: BTreeMap::new(),
            talks: BTreeMap::new(),
            opened: 0,
            ended: BTreeMap::new(),
        }
    }

    fn open(&mut self, who: &str) {
        let name = format!("{who}{}", self.opened);
        if let Ok(channel) = self.session.open(&name) {
            self.opened += 1;
            self.talks.insert(
                channel,
                Talk {
                    name,
                    ..Talk::default()
                },
            );
        }
    }

    /// Sends the next chunk of some channel, or ends its direction.
    fn talk(&mut self, dice: &mut Dice) {
        let Some((&channel, talk)) = self.talks.iter_mut().nth(dice.below(8) as usize) else {
            return;
        };
        if talk.sent < chunks_of(&talk.name) {
            let len = 1 + dice.below(900) as u32;
            let (codec, seq) = (CodecId::RAW, Seq(talk.sent));
            let header = Header {
                codec,
                channel,
                seq,
                raw_len: len,
                packed_len: len,
                history_len: 0,
                check: 0,
            };
            talk.sent += 1;
            self.session.submit(Frame {
                header,
                payload: (),
            });
        } else if is_aborted(&talk.name) {
            self.session.abort(channel, Code::FAILED, "on purpose");
            let talk = self.talks.remove(&channel).unwrap();
            assert_eq!(self.ended.insert(talk.name, "aborted"), None);
        } else if !talk.finished {
            talk.finished = true;
            self.session.finish(channel);
        }
        self.events();
    }

    fn consume(&mut self, dice: &mut Dice) {
        let Some((&channel, talk)) = self.talks.iter_mut().nth(dice.below(8) as usize) else {
            return;
        };
        if let Some(cost) = talk.arrived.remove(&talk.consumed) {
            talk.consumed += 1;
            self.session.consumed(channel, cost);
            self.events();
        }
    }

    fn receive(&mut self, id: LinkId) {
        let Some(carried) = self
            .links
            .get_mut(&id)
            .and_then(|link| link.incoming.pop_front())
        else {
            return;
        };
        match carried {
            Carried::Control(payload) => self.session.on_control(id, &payload).unwrap(),
            Carried::Frame(header) => {
                assert!(
                    self.session.next_seq(id, header.channel).is_some(),
                    "a frame nobody knows the channel of"
                );
                if self.session.on_frame(&header).unwrap() == Accept::New {
                    let talk = self.talks.get_mut(&header.channel).expect("it is open");
                    assert!(
                        talk.arrived.insert(header.seq.0, header.cost()).is_none(),
                        "came twice"
                    );
                }
            }
        }
        self.events();
    }

    fn events(&mut self) {
        while let Some(event) = self.session.poll_event() {
            match event {
                Event::Opened { channel, service } => {
                    assert!(!self.ended.contains_key(&service), "{service} opened again");
                    let talk = Talk {
                        name: service,
                        ..Talk::default()
                    };
                    assert!(self.talks.insert(channel, talk).is_none(), "opened twice");
                }
                Event::Finished { channel, chunks } => {
                    let talk = self.talks.get_mut(&channel).unwrap();
                    assert_eq!(
                        (talk.chunks, chunks),
                        (None, chunks_of(&talk.name)),
                        "{}",
                        talk.name
                    );
                    talk.chunks = Some(chunks);
                }
                Event::Closed(channel) => {
                    let talk = self.talks.remove(&channel).unwrap();
                    assert!(
                        talk.finished && talk.chunks == Some(talk.consumed),
                        "{} closed too early",
                        talk.name
                    );
                    assert_eq!(self.ended.insert(talk.name, "closed"), None);
                }
                Event::Aborted { channel, .. } => {
                    let talk = self.talks.remove(&channel).unwrap();
                    assert!(is_aborted(&talk.name));
                    assert_eq!(self.ended.insert(talk.name, "aborted"), None);
                }
                Event::Feedback(_) | Event::Bye { .. } => unreachable!(),
            }
        }
    }
}

fn send(from: &mut Side, to: &mut Side, id: LinkId) {
    let carried = match from.session.poll_send(id) {
        Some(Out::Control(_, payload)) => Carried::Control(payload),
        Some(Out::Frame(frame)) => Carried::Frame(frame.header),
        None => return,
    };
    if let Some(link) = to.links.get_mut(&id).filter(|_| !from.links[&id].cut) {
        link.incoming.push_back(carried);
    }
}

#[allow(clippy::too_many_lines, reason = "a scenario is told in one go")]
fn run(seed: u64, links: usize) -> (u64, u64) {
    let dice = &mut Dice(seed * 2 + 1);
    let (mut a, mut b) = (Side::new(Role::Initiator), Side::new(Role::Acceptor));
    let channels_each = 25;
    let (mut next_link, mut cuts, mut steps) = (0, 0, 0_u64);
    // Of a channel that was aborted before its opening got through, the other side never hears.
    let closed = |side: &Side| {
        side.ended
            .iter()
            .filter(|(_, how)| **how == "closed")
            .count()
    };
    let is_done = |side: &Side| side.opened == channels_each && side.talks.is_empty();
    while !(is_done(&a) && is_done(&b) && closed(&a) == closed(&b)) {
        steps += 1;
        assert!(
            steps < 400_000,
            "seed {seed}, {links} links hangs:\n{:?}\n{:?}",
            a.talks,
            b.talks
        );
        // The initiator dials as soon as it knows of a loss; the acceptor may still believe in the old link.
        if a.links.len() < links {
            let id = LinkId(next_link);
            next_link += 1;
            let (from_a, from_b) = (a.session.hello(), b.session.hello());
            a.session.attach(id, from_b).unwrap();
            b.session.attach(id, from_a).unwrap();
            a.links.insert(id, Link::default());
            b.links.insert(id, Link::default());
        }
        let side = dice.below(2) == 0;
        let (here, there, who) = if side {
            (&mut a, &mut b, "a")
        } else {
            (&mut b, &mut a, "b")
        };
        let id = *here
            .links
            .keys()
            .nth(dice.below(here.links.len() as u64) as usize)
            .unwrap();
        match dice.below(60) {
            0 if cuts < 60 => {
                cuts += 1;
                here.links.get_mut(&id).unwrap().cut = true;
                if let Some(link) = there.links.get_mut(&id) {
                    link.cut = true;
                }
            }
            // One side reads what is left, or some of it, and learns of the cut.
            1..=8 if here.links[&id].cut && (here.links.len() > 1 || side) => {
                here.links.remove(&id);
                here.session.detach(id);
                here.events();
            }
            9..=14 if here.opened < channels_each => here.open(who),
            15..=25 => here.talk(dice),
            26..=40 => send(here, there, id),
            41..=52 => here.receive(id),
            _ => here.consume(dice),
        }
        if b.links.is_empty() || a.links.is_empty() {
            a.links
                .keys()
                .copied()
                .collect::<Vec<_>>()
                .into_iter()
                .for_each(|id| a.session.detach(id));
            b.links
                .keys()
                .copied()
                .collect::<Vec<_>>()
                .into_iter()
                .for_each(|id| b.session.detach(id));
            a.links.clear();
            b.links.clear();
        }
    }
    let all: BTreeMap<_, _> = a.ended.iter().chain(&b.ended).collect();
    assert_eq!(all.len() as u64, 2 * channels_each, "seed {seed}");
    assert!(all.iter().all(|(name, how)| **how
        == if is_aborted(name) {
            "aborted"
        } else {
            "closed"
        }));
    (2 * channels_each, cuts)
}

#[test]
fn every_channel_opens_once_carries_all_and_ends_on_both_sides() {
    let (mut channels, mut cuts) = (0, 0);
    for seed in 0..300 {
        for links in 1..=3 {
            let (more_channels, more_cuts) = run(seed, links);
            channels += more_channels;
            cuts += more_cuts;
        }
    }
    println!("{channels} channels in 900 sessions, {cuts} links cut");
}
