//! The state machine of one session: links come and go, channels live across them.
//!
//! Flow. A link is attached with the peer's Hello ([`Session::attach`]); the caller then alternates
//! [`Session::on_control`] and [`Session::on_frame`] for what arrives with [`Session::poll_send`] for what may go out,
//! and drains [`Session::poll_event`]. A channel is opened by either side, lives across links, and ends when both
//! directions are finished and consumed, or at once by an abort.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

use narrows_core::{ChannelId, CodecId, Feedback, Limits, Seq};
use narrows_format::{Frame, Header};

use crate::{
    Code, Hello, LinkId, Message, PROTOCOL_VERSION, SessionError,
    channel::{Channel, Ended},
    link::Link,
    numbers::Numbers,
};

/// Which side made the first connection. It also makes new ones after a cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Connects, opens channels of odd number.
    Initiator,
    /// Is connected to, opens channels of even number.
    Acceptor,
}

/// What a side brings to a session.
#[derive(Debug, Clone)]
pub struct Config {
    /// Who connects.
    pub role: Role,
    /// What this side is willing to hold.
    pub limits: Limits,
    /// Codecs this side can unpack.
    pub codecs: Vec<CodecId>,
    /// What names this machine in this session, to tell whether the peer runs there too; 0 if unknown.
    pub host: u64,
    /// Program and version.
    pub agent: String,
    /// Name of the session; the acceptor takes the initiator's.
    pub session: [u8; 16],
}

/// What happened, for the caller to act on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// The peer opened a channel.
    Opened {
        /// Its number.
        channel: ChannelId,
        /// What the peer says it is for.
        service: String,
    },
    /// The peer's direction of a channel ends after this many chunks.
    Finished {
        /// Which channel.
        channel: ChannelId,
        /// How many chunks it carries in all.
        chunks: u64,
    },
    /// A channel ended at once.
    Aborted {
        /// Which channel.
        channel: ChannelId,
        /// Why.
        code: Code,
        /// Why, in the peer's words.
        text: String,
    },
    /// A channel is over on both sides; its number may serve again.
    Closed(ChannelId),
    /// The receiver told its state; `now_ns` is for the caller to fill.
    Feedback(Feedback),
    /// The peer ended the session.
    Bye {
        /// Why.
        code: Code,
        /// Why, in the peer's words.
        text: String,
    },
}

/// What to do with an arrived frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Accept {
    /// A new chunk.
    New,
    /// It had arrived before, or its channel was aborted: read past it.
    Drop,
}

/// Something to send on a link.
#[derive(Debug)]
pub enum Out<B> {
    /// A control frame's payload, and its number on this link.
    Control(Seq, Vec<u8>),
    /// A chunk's frame; the session keeps it until the peer has consumed it.
    Frame(Arc<Frame<B>>),
}

/// Two peers' relation; the module's head gives the flow.
#[derive(Debug)]
pub struct Session<B> {
    config: Config,
    peer: Option<Hello>,
    links: BTreeMap<LinkId, Link>,
    channels: BTreeMap<ChannelId, Channel<B>>,
    /// Of each number the last channel that ended.
    ended: BTreeMap<ChannelId, Ended>,
    turn: VecDeque<ChannelId>,
    events: VecDeque<Event>,
    numbers: Numbers,
}

impl<B> Session<B> {
    /// A session without links.
    #[must_use]
    pub fn new(config: Config) -> Self {
        Self {
            numbers: Numbers::new(config.role),
            config,
            peer: None,
            links: BTreeMap::new(),
            channels: BTreeMap::new(),
            ended: BTreeMap::new(),
            turn: VecDeque::new(),
            events: VecDeque::new(),
        }
    }

    /// The Hello that opens a link from this side; its route is for whoever knows the link to say.
    #[must_use]
    pub fn hello(&self) -> Hello {
        Hello {
            versions: (PROTOCOL_VERSION, PROTOCOL_VERSION),
            features: 0,
            session: self.config.session,
            resume: self.peer.is_some(),
            limits: self.config.limits,
            codecs: self.config.codecs.clone(),
            host: self.config.host,
            route: 0,
            agent: self.config.agent.clone(),
        }
    }

    /// Adds a link on which Hellos were exchanged (each as control frame 0). After a loss, both sides say what they
    /// have and the rest is sent again.
    ///
    /// # Errors
    /// [`SessionError::Version`] or [`SessionError::Protocol`] where the peer's Hello does not suit.
    pub fn attach(&mut self, link: LinkId, theirs: Hello) -> Result<(), SessionError> {
        theirs.check()?;
        if theirs.session != self.config.session {
            return Err(SessionError::Protocol(
                "the peer answers for another session",
            ));
        }
        if let Some(peer) = &self.peer
            && (peer.limits, &peer.codecs) != (theirs.limits, &theirs.codecs)
        {
            return Err(SessionError::Protocol(
                "the peer changed its limits within a session",
            ));
        }
        if self.links.len() >= LINKS_MAX {
            return Err(SessionError::Protocol("more links than a session may have"));
        }
        self.peer = Some(theirs);
        self.links.insert(link, Link::default());
        self.announce(link);
        Ok(())
    }

    /// Takes a link away. What it carried goes out again: at once where there is another link, else when
    /// [`Session::attach`] brings one and the peer says what it has.
    pub fn detach(&mut self, link: LinkId) {
        if self.links.remove(&link).is_none() {
            return;
        }
        self.channels
            .values_mut()
            .for_each(|state| state.tx.mark_lost(link));
        // The peer may have lost it earlier, and said what it has before we knew that we should ask.
        if let Some(&other) = self.links.keys().next() {
            for channel in self.channels.keys().copied().collect::<Vec<_>>() {
                self.rewind(other, channel, 0);
            }
            self.announce(other);
            let mut untold = Vec::new();
            for (&channel, ended) in self
                .ended
                .iter_mut()
                .filter(|(_, ended)| ended.told_on == Some(link))
            {
                ended.told_on = Some(other);
                untold.push(Message::Closed {
                    channel,
                    serial: ended.serial,
                });
            }
            untold.iter().for_each(|message| self.say(other, message));
        }
    }

    /// Says what this side has of every channel: whatever was said of it before may have been lost with a link.
    fn announce(&mut self, link: LinkId) {
        let mut again = Vec::new();
        for (&channel, state) in &mut self.channels {
            let (serial, service) = (state.serial, state.service.clone());
            let (next_seq, bytes) = state.rx.credit_now();
            state.told_on = Some(link);
            again.push((
                serial,
                Message::Open {
                    channel,
                    serial,
                    again: true,
                    service,
                },
            ));
            again.push((
                serial,
                Message::Resume {
                    channel,
                    next_seq: state.rx.next_seq,
                },
            ));
            again.push((
                serial,
                Message::Credit {
                    channel,
                    next_seq,
                    bytes,
                },
            ));
            again.extend(
                state
                    .tx
                    .finish
                    .map(|chunks| (serial, Message::Finish { channel, chunks })),
            );
        }
        // In the order of their opening, which the peer relies on to tell old from new.
        again.sort_by_key(|(serial, _)| *serial);
        again
            .iter()
            .for_each(|(_, message)| self.say(link, message));
    }

    /// Links that work.
    #[must_use]
    pub fn links(&self) -> usize {
        self.links.len()
    }

    /// What the peer is willing to hold; `None` before its Hello.
    #[must_use]
    pub fn peer(&self) -> Option<&Hello> {
        self.peer.as_ref()
    }

    /// Whether the peer runs on the same machine, as far as both know.
    #[must_use]
    pub fn shares_host(&self) -> bool {
        self.config.host != 0
            && self
                .peer
                .as_ref()
                .is_some_and(|peer| peer.host == self.config.host)
    }

    /// The bounds this side imposes.
    #[must_use]
    pub fn limits(&self) -> &Limits {
        &self.config.limits
    }

    /// Credit of a channel, of either direction: the lesser of both sides' windows. A sender holds what is outstanding,
    /// so its window counts too; and the receiver must know of it, since it tells of what it consumed in steps of the
    /// sender's credit.
    fn window_len(&self) -> usize {
        let ours = self.config.limits.window_len;
        self.peer
            .as_ref()
            .map_or(ours, |peer| peer.limits.window_len.min(ours))
    }

    /// Opens a channel.
    ///
    /// # Errors
    /// [`SessionError::Protocol`] before the first link, or when all channels the peer allows are open.
    pub fn open(&mut self, service: &str) -> Result<ChannelId, SessionError> {
        let peer = self
            .peer
            .as_ref()
            .ok_or(SessionError::Protocol("no link is attached yet"))?;
        if self.channels.len() >= usize::from(peer.limits.channels_max) {
            return Err(SessionError::Protocol(
                "all channels that the peer allows are open",
            ));
        }
        let (channel, serial) = self
            .numbers
            .take(|channel| self.channels.contains_key(&channel));
        self.ended.remove(&channel);
        self.channels.insert(
            channel,
            Channel::new(service.into(), serial, self.window_len()),
        );
        self.say_on_all(&Message::Open {
            channel,
            serial,
            again: false,
            service: service.into(),
        });
        Ok(channel)
    }

    /// Queues a frame. Frames of a channel come in order of sequence; on an ended channel they are dropped.
    pub fn submit(&mut self, frame: Frame<B>) {
        let channel = frame.header.channel;
        let Some(state) = self.channels.get_mut(&channel) else {
            return;
        };
        state.tx.submit(frame);
        if !self.turn.contains(&channel) {
            self.turn.push_back(channel);
        }
    }

    /// Ends this side's direction after what was submitted.
    pub fn finish(&mut self, channel: ChannelId) {
        let Some(state) = self.channels.get_mut(&channel) else {
            return;
        };
        let chunks = state.tx.next_submit();
        if state.tx.finish.replace(chunks).is_none() {
            self.say_on_all(&Message::Finish { channel, chunks });
            self.reap(channel);
        }
    }

    /// Ends a channel at once, both ways, and tells the peer why.
    pub fn abort(&mut self, channel: ChannelId, code: Code, text: &str) {
        if self.end(channel, Some((code, text.into()))) {
            self.say_on_all(&Message::Abort {
                channel,
                code,
                text: text.into(),
            });
        }
    }

    /// Takes a channel out of use; `false` where it was.
    fn end(&mut self, channel: ChannelId, abort: Option<(Code, String)>) -> bool {
        let Some(state) = self.channels.remove(&channel) else {
            return false;
        };
        let Channel {
            serial,
            told_on,
            rx,
            ..
        } = state;
        let told_on = told_on.filter(|_| abort.is_none());
        self.ended.insert(
            channel,
            Ended {
                serial,
                next_seq: rx.next_seq,
                told_on,
                abort,
            },
        );
        true
    }

    /// Says that the session ends.
    pub fn bye(&mut self, code: Code, text: &str) {
        self.say_on_all(&Message::Bye {
            code,
            text: text.into(),
        });
    }

    /// Tells the peer this receiver's state.
    pub fn tell(&mut self, feedback: &Feedback) {
        self.say_on_all(&Message::Feedback(*feedback));
    }

    /// Asks every link for a sign of life.
    pub fn ping(&mut self) {
        self.say_on_all(&Message::Ping);
    }

    /// The number expected next on a channel of a link, for [`Header::parse`].
    #[must_use]
    pub fn next_seq(&self, link: LinkId, channel: ChannelId) -> Option<Seq> {
        if channel == ChannelId::CONTROL {
            return self.links.get(&link).map(Link::next_seq);
        }
        let open = self.channels.get(&channel).map(|state| state.rx.next_seq);
        open.or_else(|| self.ended.get(&channel).map(|ended| ended.next_seq))
            .map(Seq)
    }

    /// Whether a frame with this header may come, to be asked before its payload is read: nothing is noted yet, because
    /// the link may be lost before the rest arrives.
    ///
    /// # Errors
    /// As [`Session::on_frame`].
    pub fn check_frame(&self, header: &Header) -> Result<Accept, SessionError> {
        match self.channels.get(&header.channel) {
            Some(state) => Ok(if state.rx.check(header.seq, header.cost())? {
                Accept::New
            } else {
                Accept::Drop
            }),
            None if self.ended.contains_key(&header.channel) => Ok(Accept::Drop),
            None => Err(SessionError::Protocol(
                "frame of a channel that is not open",
            )),
        }
    }

    /// Takes note of a data frame that has come whole. It is dropped where it came over another link meanwhile.
    ///
    /// # Errors
    /// [`SessionError::Protocol`] where it exceeds its credit or comes after its channel's end.
    pub fn on_frame(&mut self, header: &Header) -> Result<Accept, SessionError> {
        if let Some(state) = self.channels.get_mut(&header.channel) {
            return Ok(if state.rx.accept(header.seq, header.cost())? {
                Accept::New
            } else {
                Accept::Drop
            });
        }
        let ended = self.ended.get_mut(&header.channel);
        let ended = ended.ok_or(SessionError::Protocol(
            "frame of a channel that is not open",
        ))?;
        // Keeps the 16 bits of sequence numbers that follow unambiguous.
        ended.next_seq = ended.next_seq.max(header.seq.0 + 1);
        Ok(Accept::Drop)
    }

    /// Acts on a control frame's payload.
    ///
    /// # Errors
    /// [`SessionError::Protocol`] where the peer breaks the protocol.
    pub fn on_control(&mut self, link: LinkId, payload: &[u8]) -> Result<(), SessionError> {
        if let Some(link) = self.links.get_mut(&link) {
            link.heard()?;
        }
        for message in Message::parse_all(payload)? {
            self.on_message(link, message)?;
        }
        Ok(())
    }

    fn on_message(&mut self, link: LinkId, message: Message) -> Result<(), SessionError> {
        match message {
            Message::Hello(_) => return Err(SessionError::Protocol("a second Hello on one link")),
            Message::Open {
                channel,
                serial,
                again,
                service,
            } => self.on_open(link, channel, serial, again, service)?,
            Message::Credit {
                channel,
                next_seq,
                bytes,
            } => {
                if let Some(state) = self.channels.get_mut(&channel) {
                    state.tx.credit(next_seq, bytes)?;
                    self.reap(channel);
                }
            }
            Message::Finish { channel, chunks } => {
                if let Some(state) = self.channels.get_mut(&channel) {
                    match state.rx.finish {
                        Some(before) if before != chunks => {
                            return Err(SessionError::Protocol(
                                "a channel that ends twice, differently",
                            ));
                        }
                        Some(_) => {}
                        None if chunks < state.rx.next_seq => {
                            return Err(SessionError::Protocol(
                                "a channel that ends before its chunks",
                            ));
                        }
                        None => {
                            state.rx.finish = Some(chunks);
                            self.events.push_back(Event::Finished { channel, chunks });
                            self.acknowledge(channel);
                        }
                    }
                }
            }
            Message::Abort {
                channel,
                code,
                text,
            } => {
                if self.end(channel, Some((code, text.clone()))) {
                    self.say_on_all(&Message::Abort {
                        channel,
                        code,
                        text: String::new(),
                    });
                    self.events.push_back(Event::Aborted {
                        channel,
                        code,
                        text,
                    });
                }
            }
            Message::Closed { channel, serial } => self.on_closed(channel, serial)?,
            Message::Feedback(feedback) => self.events.push_back(Event::Feedback(feedback)),
            Message::Resume { channel, next_seq } => self.rewind(link, channel, next_seq),
            Message::Bye { code, text } => self.events.push_back(Event::Bye { code, text }),
            Message::Ping => self.say(link, &Message::Pong),
            Message::Pong => {}
        }
        Ok(())
    }

    fn rewind(&mut self, link: LinkId, channel: ChannelId, peer_has: u64) {
        if let Some(state) = self.channels.get_mut(&channel) {
            state.tx.rewind(peer_has, link);
            if !self.turn.contains(&channel) {
                self.turn.push_back(channel);
            }
        }
    }

    fn on_open(
        &mut self,
        link: LinkId,
        channel: ChannelId,
        serial: u64,
        again: bool,
        service: String,
    ) -> Result<(), SessionError> {
        let new = self.numbers.is_new(channel, serial, again)?;
        match self.channels.get(&channel) {
            Some(state) if state.serial == serial => {
                if again {
                    let next_seq = state.rx.next_seq;
                    self.say(link, &Message::Resume { channel, next_seq });
                }
                return Ok(());
            }
            // The peer would not use a number again whose last channel was not over there.
            Some(state) if new => {
                let before = state.serial;
                self.on_closed(channel, before)?;
            }
            _ => {}
        }
        if !new {
            self.on_open_after_end(link, channel, serial, again);
            return Ok(());
        }
        self.numbers.opened(serial);
        self.ended.remove(&channel);
        if self.channels.len() >= usize::from(self.config.limits.channels_max) {
            let (code, text) = (Code::LIMIT, "more channels than were agreed");
            self.ended.insert(
                channel,
                Ended {
                    serial,
                    next_seq: 0,
                    told_on: None,
                    abort: Some((code, text.into())),
                },
            );
            self.say_on_all(&Message::Abort {
                channel,
                code,
                text: text.into(),
            });
            return Ok(());
        }
        self.channels.insert(
            channel,
            Channel::new(service.clone(), serial, self.window_len()),
        );
        self.events.push_back(Event::Opened { channel, service });
        if again {
            self.say(
                link,
                &Message::Resume {
                    channel,
                    next_seq: 0,
                },
            );
        }
        Ok(())
    }

    /// The peer opens, or opens again, a channel that is over here.
    fn on_open_after_end(&mut self, link: LinkId, channel: ChannelId, serial: u64, again: bool) {
        if again {
            let abort = self
                .ended
                .get(&channel)
                .filter(|ended| ended.serial == serial);
            let answer = match abort.and_then(|ended| ended.abort.clone()) {
                Some((code, text)) => Message::Abort {
                    channel,
                    code,
                    text,
                },
                None => Message::Closed { channel, serial },
            };
            self.say(link, &answer);
        }
        // Aborted before this side heard of it; its frames may follow on this link.
        let unheard = Ended {
            serial,
            next_seq: 0,
            told_on: None,
            abort: None,
        };
        if !self.numbers.is_ours(channel)
            && self
                .ended
                .get(&channel)
                .is_none_or(|ended| ended.serial < serial)
        {
            self.ended.insert(channel, unheard);
        }
    }

    /// The peer is done with a channel: all that was sent is consumed there, all that came is all there was.
    fn on_closed(&mut self, channel: ChannelId, serial: u64) -> Result<(), SessionError> {
        let Some(state) = self
            .channels
            .get_mut(&channel)
            .filter(|state| state.serial == serial)
        else {
            return Ok(());
        };
        let told = state.rx.finish.is_some();
        if state.tx.finish.is_none() || !state.rx.close() {
            return Err(SessionError::Protocol(
                "a channel that is closed before it ends",
            ));
        }
        state.tx.clear();
        if !told {
            self.events.push_back(Event::Finished {
                channel,
                chunks: state.rx.consumed_seq,
            });
        }
        self.reap(channel);
        Ok(())
    }

    /// The next chunk in order left the receiver's hands; its frame had this cost.
    pub fn consumed(&mut self, channel: ChannelId, cost: usize) {
        if let Some(state) = self.channels.get_mut(&channel) {
            state.rx.consume(cost);
            self.acknowledge(channel);
        }
    }

    fn acknowledge(&mut self, channel: ChannelId) {
        let Some(state) = self.channels.get_mut(&channel) else {
            return;
        };
        if let Some((next_seq, bytes)) = state.rx.credit_due() {
            // Any one link will do; where it is lost, it is said again. The last goes on all, so that a Bye that
            // follows does not overtake it.
            let last = state.rx.is_consumed();
            state.told_on = self.links.keys().next().copied();
            let links = self
                .links
                .values_mut()
                .take(if last { usize::MAX } else { 1 });
            links.for_each(|link| link.credit(channel, next_seq, bytes));
        }
        self.reap(channel);
    }

    fn reap(&mut self, channel: ChannelId) {
        if self.channels.get(&channel).is_some_and(Channel::is_over) {
            self.end(channel, None);
            self.events.push_back(Event::Closed(channel));
        }
    }

    /// What to send next on `link`: the session's own messages first, then channels in turn, one frame each.
    pub fn poll_send(&mut self, link: LinkId) -> Option<Out<B>> {
        if let Some((seq, payload)) = self.links.get_mut(&link)?.pop() {
            return Some(Out::Control(seq, payload));
        }
        for _ in 0..self.turn.len() {
            let channel = self.turn.pop_front()?;
            let Some(state) = self.channels.get_mut(&channel) else {
                continue;
            };
            if state.tx.is_empty() {
                continue;
            }
            self.turn.push_back(channel);
            if let Some(frame) = state.tx.pop(link) {
                return Some(Out::Frame(frame));
            }
        }
        None
    }

    /// Whether [`Session::poll_send`] would return something.
    #[must_use]
    pub fn can_send(&self, link: LinkId) -> bool {
        let Some(link) = self.links.get(&link) else {
            return false;
        };
        link.has_messages() || self.channels.values().any(|state| state.tx.is_sendable())
    }

    /// Whether any link has messages of the session itself to send.
    #[must_use]
    pub fn has_messages(&self) -> bool {
        self.links.values().any(Link::has_messages)
    }

    /// What happened, oldest first.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Bytes submitted and not yet handed to a link.
    #[must_use]
    pub fn queued_bytes(&self) -> u64 {
        self.channels
            .values()
            .map(|state| state.tx.queued_bytes())
            .sum()
    }

    /// Whether something waits for credit and nothing could be sent instead.
    #[must_use]
    pub fn is_starved(&self) -> bool {
        let mut starved = false;
        for state in self.channels.values() {
            if state.tx.is_sendable() {
                return false;
            }
            starved |= state.tx.is_starved();
        }
        starved
    }

    /// Why the last channel of this number was aborted, by either side, if it was.
    #[must_use]
    pub fn aborted(&self, channel: ChannelId) -> Option<&(Code, String)> {
        self.ended.get(&channel)?.abort.as_ref()
    }

    /// Whether the peer has consumed all that was submitted on `channel`.
    #[must_use]
    pub fn is_drained(&self, channel: ChannelId) -> bool {
        self.channels
            .get(&channel)
            .is_none_or(|state| state.tx.is_drained())
    }

    /// Bytes of frames submitted on `channel` that are held here, since the peer has not said that it consumed them.
    #[must_use]
    pub fn unconsumed_bytes(&self, channel: ChannelId) -> u64 {
        self.channels
            .get(&channel)
            .map_or(0, |state| state.tx.unconsumed_cost())
    }

    /// Chunks submitted on `channel` that the peer has not said to have consumed.
    #[must_use]
    pub fn unconsumed_chunks(&self, channel: ChannelId) -> usize {
        self.channels
            .get(&channel)
            .map_or(0, |state| state.tx.unconsumed_chunks())
    }

    fn say(&mut self, link: LinkId, message: &Message) {
        if let Some(link) = self.links.get_mut(&link) {
            link.say(message);
        }
    }

    fn say_on_all(&mut self, message: &Message) {
        self.links.values_mut().for_each(|link| link.say(message));
    }
}

/// Links of one session; the command line offers up to 64, and as many may be lost and not yet known to be.
const LINKS_MAX: usize = 128;
