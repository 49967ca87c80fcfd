//! Two sessions joined by links made of queues: whatever is cut, delayed or repeated, every chunk arrives once.

use std::collections::{BTreeMap, VecDeque};

use narrows_core::{ChannelId, CodecId, Limits, Seq};
use narrows_format::{Frame, Header};
use narrows_session::{Accept, Code, Config, Event, LinkId, Out, Role, Session, SessionError};

type Wire = VecDeque<Carried>;

enum Carried {
    Control(Vec<u8>),
    Frame(Frame<u64>),
}

struct Side {
    session: Session<u64>,
    /// Chunks that arrived and were not consumed, by channel.
    held: BTreeMap<ChannelId, BTreeMap<u64, usize>>,
    consumed: BTreeMap<ChannelId, u64>,
    events: Vec<Event>,
}

fn config(role: Role, window_len: usize) -> Config {
    let limits = Limits {
        window_len,
        channels_max: 4,
        ..Limits::default()
    };
    Config {
        role,
        limits,
        codecs: vec![CodecId::RAW],
        host: 0,
        agent: "test".into(),
        session: [1; 16],
    }
}

fn frame(channel: ChannelId, seq: u64, len: u32) -> Frame<u64> {
    let header = Header {
        codec: CodecId::RAW,
        channel,
        seq: Seq(seq),
        raw_len: len,
        packed_len: len,
        history_len: 0,
        check: 0,
    };
    Frame {
        header,
        payload: seq,
    }
}

impl Side {
    fn new(role: Role, window_len: usize) -> Self {
        let session = Session::new(config(role, window_len));
        Self {
            session,
            held: BTreeMap::new(),
            consumed: BTreeMap::new(),
            events: Vec::new(),
        }
    }

    fn send(&mut self, link: LinkId, wire: &mut Wire, most: usize) -> bool {
        for sent in 0..most {
            match self.session.poll_send(link) {
                Some(Out::Control(_, payload)) => wire.push_back(Carried::Control(payload)),
                Some(Out::Frame(frame)) => wire.push_back(Carried::Frame((*frame).clone())),
                None => return sent > 0,
            }
        }
        true
    }

    fn receive(&mut self, link: LinkId, carried: Carried) -> Result<(), SessionError> {
        match carried {
            Carried::Control(payload) => self.session.on_control(link, &payload)?,
            Carried::Frame(frame) => {
                assert_eq!(frame.payload, frame.header.seq.0);
                if self.session.on_frame(&frame.header)? == Accept::New {
                    let held = self.held.entry(frame.header.channel).or_default();
                    assert!(
                        held.insert(frame.header.seq.0, frame.header.cost())
                            .is_none(),
                        "came twice"
                    );
                }
            }
        }
        while let Some(event) = self.session.poll_event() {
            self.events.push(event);
        }
        Ok(())
    }

    fn consume_one(&mut self) -> bool {
        for (&channel, held) in &mut self.held {
            let next = self.consumed.entry(channel).or_default();
            if let Some(len) = held.remove(next) {
                *next += 1;
                self.session.consumed(channel, len);
                return true;
            }
        }
        false
    }
}

fn attach(a: &mut Side, b: &mut Side, link: LinkId) {
    let (from_a, from_b) = (a.session.hello(), b.session.hello());
    a.session.attach(link, from_b).unwrap();
    b.session.attach(link, from_a).unwrap();
}

/// A small generator, so that a failing run can be repeated from its printed seed.
struct Dice(u64);

impl Dice {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % n
    }
}

/// Sends `total` chunks with cuts at random moments over one or two links and returns how often a link was cut.
fn run(seed: u64, total: u64, links: u32) -> u32 {
    let dice = &mut Dice(seed * 2 + 1);
    let (mut a, mut b) = (
        Side::new(Role::Initiator, 5000),
        Side::new(Role::Acceptor, 5000),
    );
    let mut wires: BTreeMap<LinkId, [Wire; 2]> = BTreeMap::new();
    let mut next_link = 0;
    let (mut submitted, mut cuts, mut steps) = (0, 0, 0);
    let mut channel = None;
    while b.consumed.get(&ChannelId(1)) != Some(&total) || !a.session.is_drained(ChannelId(1)) {
        steps += 1;
        assert!(
            steps < 200_000,
            "seed {seed} hangs: {submitted} submitted, {:?} consumed",
            b.consumed
        );
        while wires.len() < links as usize {
            let link = LinkId(next_link);
            next_link += 1;
            attach(&mut a, &mut b, link);
            wires.insert(link, Default::default());
        }
        let channel = *channel.get_or_insert_with(|| a.session.open("test").unwrap());
        if submitted < total && dice.below(3) == 0 {
            // Some are longer than the window.
            let most = if dice.below(8) == 0 { 9000 } else { 900 };
            a.session
                .submit(frame(channel, submitted, 1 + dice.below(most) as u32));
            submitted += 1;
            if submitted == total {
                a.session.finish(channel);
            }
        }
        let (&link, wire) = wires
            .iter_mut()
            .nth(dice.below(links.into()) as usize)
            .unwrap();
        match dice.below(40) {
            0 if cuts < 50 => {
                wires.remove(&link);
                a.session.detach(link);
                b.session.detach(link);
                cuts += 1;
            }
            1..=10 => drop(a.send(link, &mut wire[0], 3)),
            11..=18 => drop(b.send(link, &mut wire[1], 3)),
            19..=28 => wire[0]
                .pop_front()
                .map_or(Ok(()), |carried| b.receive(link, carried))
                .unwrap(),
            29..=35 => wire[1]
                .pop_front()
                .map_or(Ok(()), |carried| a.receive(link, carried))
                .unwrap(),
            _ => drop(b.consume_one()),
        }
    }
    cuts
}

// `NARROWS_SEEDS` asks for more sessions than two for each of 300 seeds, `NARROWS_SEED` for others.
#[test]
fn every_chunk_arrives_once_whatever_is_cut() {
    let (first, count) = (number("NARROWS_SEED", 0), number("NARROWS_SEEDS", 300));
    let mut cuts = 0_u64;
    for seed in first..first + count {
        for links in 1..=2 {
            cuts += u64::from(run(seed, 40, links));
        }
    }
    let sessions = 2 * count;
    println!("{sessions} sessions, {cuts} cuts, every chunk arrived once");
}

fn number(name: &str, default: u64) -> u64 {
    let text = std::env::var(name).ok();
    text.and_then(|text| text.parse().ok()).unwrap_or(default)
}

#[test]
fn a_stalled_receiver_bounds_what_is_outstanding() {
    let (mut a, mut b) = (
        Side::new(Role::Initiator, 5000),
        Side::new(Role::Acceptor, 5000),
    );
    attach(&mut a, &mut b, LinkId(0));
    let channel = a.session.open("test").unwrap();
    (0..100).for_each(|seq| a.session.submit(frame(channel, seq, 484)));
    let mut wire = Wire::new();
    while a.send(LinkId(0), &mut wire, 8) {}
    let sent = wire
        .iter()
        .filter(|carried| matches!(carried, Carried::Frame(_)))
        .count();
    assert_eq!(sent, 10, "window of 5,000 bytes, frames of 500");
    assert!(a.session.is_starved());
    wire.drain(..)
        .for_each(|carried| b.receive(LinkId(0), carried).unwrap());
    b.receive(LinkId(0), Carried::Frame(frame(channel, 10, 484)))
        .expect_err("beyond its credit");
}

/// Carries all that may go, both ways and consumed at once, over `links` links in turn.
fn settle(a: &mut Side, b: &mut Side, links: u32) {
    let mut moved = true;
    while std::mem::take(&mut moved) {
        for link in (0..links).map(LinkId) {
            let (mut to_a, mut to_b) = (Wire::new(), Wire::new());
            moved |= a.send(link, &mut to_b, 1) | b.send(link, &mut to_a, 9);
            to_b.drain(..)
                .for_each(|carried| b.receive(link, carried).unwrap());
            to_a.drain(..)
                .for_each(|carried| a.receive(link, carried).unwrap());
        }
        while b.consume_one() {}
    }
}

// Goal: neither side holds more than its own window lets it, whichever of both is less, over one link and over several.
#[test]
fn what_is_outstanding_is_within_the_lesser_window() {
    for (of_a, of_b) in [(5000, 16 << 20), (16 << 20, 5000), (5000, 5000)] {
        for links in [1, 4] {
            let (mut a, mut b) = (
                Side::new(Role::Initiator, of_a),
                Side::new(Role::Acceptor, of_b),
            );
            (0..links).for_each(|link| attach(&mut a, &mut b, LinkId(link)));
            let channel = a.session.open("test").unwrap();
            let (mut wires, mut seq): (Vec<Wire>, _) =
                ((0..links).map(|_| Wire::new()).collect(), 0);
            let mut most = 0;
            while seq < 300 {
                // So that nothing waits in the queue, what is not consumed is what is outstanding.
                while seq < 300 && !a.session.is_starved() {
                    a.session.submit(frame(channel, seq, 484));
                    seq += 1;
                    (0..links)
                        .for_each(|link| _ = a.send(LinkId(link), &mut wires[link as usize], 1));
                }
                most = most.max(a.session.unconsumed_bytes(channel) - 500);
                for (link, wire) in (0..links).map(LinkId).zip(&mut wires) {
                    wire.drain(..)
                        .for_each(|carried| b.receive(link, carried).unwrap());
                }
                while b.consume_one() {}
                settle(&mut a, &mut b, links);
            }
            a.session.finish(channel);
            settle(&mut a, &mut b, links);
            assert!(
                a.session.is_drained(channel),
                "windows {of_a} and {of_b}, {links} links"
            );
            assert_eq!(most, 5000, "windows {of_a} and {of_b}, {links} links");
        }
    }
}

// Goal: whatever the windows and lengths, a sender without credit is told of more. Method: frames of random lengths,
// some longer than the windows, over links that are read in turn, to a receiver that consumes all it gets.
#[test]
fn no_sender_waits_for_credit_that_nobody_tells() {
    for seed in 0..400 {
        let dice = &mut Dice(seed * 2 + 1);
        let [of_a, of_b] =
            [(); 2].map(|()| [600, 5000, 64 << 10, 16 << 20][dice.below(4) as usize]);
        let (mut a, mut b) = (
            Side::new(Role::Initiator, of_a),
            Side::new(Role::Acceptor, of_b),
        );
        let links = 1 + dice.below(4) as u32;
        (0..links).for_each(|link| attach(&mut a, &mut b, LinkId(link)));
        let channel = a.session.open("test").unwrap();
        let window = of_a.min(of_b);
        for seq in 0..40 {
            let most = [window / 20, window, 2 * window][dice.below(3) as usize];
            a.session
                .submit(frame(channel, seq, 1 + dice.below(most as u64) as u32));
        }
        settle(&mut a, &mut b, links);
        assert!(
            !a.session.is_starved(),
            "seed {seed}: windows {of_a} and {of_b}, {links} links, {:?}",
            b.consumed
        );
    }
}

#[test]
fn a_channel_ends_when_both_directions_do() {
    let (mut a, mut b) = (
        Side::new(Role::Initiator, 5000),
        Side::new(Role::Acceptor, 5000),
    );
    attach(&mut a, &mut b, LinkId(0));
    let channel = a.session.open("test").unwrap();
    a.session.submit(frame(channel, 0, 10));
    a.session.finish(channel);
    let (mut to_b, mut to_a) = (Wire::new(), Wire::new());
    let mut finished = false;
    for _ in 0..10 {
        a.send(LinkId(0), &mut to_b, 9);
        to_b.drain(..)
            .for_each(|carried| b.receive(LinkId(0), carried).unwrap());
        b.consume_one();
        if !std::mem::replace(&mut finished, true) {
            b.session.finish(channel);
        }
        b.send(LinkId(0), &mut to_a, 9);
        to_a.drain(..)
            .for_each(|carried| a.receive(LinkId(0), carried).unwrap());
    }
    assert!(a.events.contains(&Event::Closed(channel)), "{:?}", a.events);
    a.session.poll_event();
    b.receive(LinkId(0), Carried::Control(vec![9])).unwrap();
    assert!(b.events.contains(&Event::Closed(channel)), "{:?}", b.events);
    assert!(b.events.contains(&Event::Finished { channel, chunks: 1 }));
}

#[test]
fn an_abort_ends_both_sides_and_late_frames_are_dropped() {
    let (mut a, mut b) = (
        Side::new(Role::Initiator, 5000),
        Side::new(Role::Acceptor, 5000),
    );
    attach(&mut a, &mut b, LinkId(0));
    let channel = a.session.open("test").unwrap();
    let mut to_b = Wire::new();
    a.send(LinkId(0), &mut to_b, 9);
    to_b.drain(..)
        .for_each(|carried| b.receive(LinkId(0), carried).unwrap());
    (0..3).for_each(|seq| a.session.submit(frame(channel, seq, 10)));
    a.send(LinkId(0), &mut to_b, 9);
    b.session.abort(channel, Code::FAILED, "disk full");
    to_b.drain(..)
        .for_each(|carried| b.receive(LinkId(0), carried).unwrap());
    assert!(b.held.is_empty());
    let mut to_a = Wire::new();
    b.send(LinkId(0), &mut to_a, 9);
    to_a.drain(..)
        .for_each(|carried| a.receive(LinkId(0), carried).unwrap());
    let aborted = Event::Aborted {
        channel,
        code: Code::FAILED,
        text: "disk full".into(),
    };
    assert!(a.events.contains(&aborted), "{:?}", a.events);
}

#[test]
fn lies_about_credit_order_and_ends_are_refused() {
    let lies: [(&str, &[u8]); 4] = [
        (
            "credit for what was not sent",
            &[3, 1, 0, 9, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0],
        ),
        (
            "a channel of our numbers",
            &[2, 3, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
        ),
        (
            "the control channel",
            &[2, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
        ),
        ("unknown kind", &[77]),
    ];
    for (what, lie) in lies {
        let (mut a, mut b) = (
            Side::new(Role::Initiator, 5000),
            Side::new(Role::Acceptor, 5000),
        );
        attach(&mut a, &mut b, LinkId(0));
        a.session.open("test").unwrap();
        assert!(a.session.on_control(LinkId(0), lie).is_err(), "{what}");
    }
}

#[test]
fn another_version_is_refused_with_both_numbers() {
    let (mut a, b) = (
        Side::new(Role::Initiator, 5000),
        Side::new(Role::Acceptor, 5000),
    );
    let mut hello = b.session.hello();
    hello.versions = (2, 4);
    let err = a.session.attach(LinkId(0), hello).unwrap_err().to_string();
    assert!(err.contains("2 to 4") && err.contains("speaks 1"), "{err}");
}
