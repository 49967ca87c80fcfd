//! How a link comes to be: dialled or accepted, Hellos exchanged, joined to its session.

use std::{
    collections::HashMap,
    fs, io,
    sync::{Arc, Weak},
    thread,
    time::Duration,
};

use narrows_core::CodecId;
use narrows_io::{Transport, transport::Identity};
use narrows_pipeline::{Counters, Packing, Unpacking};
use narrows_session::{Code, Config, Hello, Message, Role, Session};
use parking_lot::Mutex;
use xxhash_rust::xxh3::xxh3_64;

use crate::{
    Endpoint, Engine, Error, Settings,
    greeting::{HELLO_WITHIN, greet, lost, read_hello, refused, say_bye, within, write_hello},
    inner::{Inner, Receiving, Sending, Signals, WeakOutlet},
    link::{Link, ReadAhead},
    monitor,
    settings::Near,
    state::State,
    tallies::Tallies,
};

/// Makes one more connection to the same peer. An error ends the first connect; after a loss it is tried again.
pub type Dial = Box<dyn Fn() -> io::Result<Transport> + Send + Sync>;

impl Endpoint {
    /// Dials the peer and begins a session. Where the connection is cut before the peer has said anything, it is dialled
    /// again a few times.
    ///
    /// # Errors
    /// [`Error`] when the peer cannot be reached or does not suit, in words.
    pub fn connect(engine: &Engine, settings: Settings, dial: Dial) -> Result<Self, Error> {
        let mut machine = Session::new(config(engine, &settings, Role::Initiator, session_name()));
        let hello = machine.hello();
        let (transport, theirs, route, loopback) = persistently(|| {
            let transport = dial()?;
            let (route, loopback) = route(&hello.session, Role::Initiator, &transport);
            let hello = Hello {
                route,
                ..hello.clone()
            };
            let (transport, theirs) = greet(&hello, transport)?;
            Ok((transport, theirs, route, loopback))
        })?;
        let id = narrows_session::LinkId(0);
        machine.attach(id, theirs.clone()).map_err(refused)?;
        let transport = padding(&settings, &theirs, transport)?;
        let first = FirstLink {
            loopback: loopback && route == theirs.route,
            identity: None,
        };
        let inner = build(engine, settings, machine, &theirs, first);
        inner.add_link(id, transport)?;
        monitor::start(&inner, Some(dial))?;
        Ok(Self { inner })
    }
}

/// Tries again after a cut: a listener whose lobby is crowded with strangers cuts off some of them, and cannot know who
/// is one of its own. Where that does not help, the first fault is the one to tell.
fn persistently<T>(attempt: impl Fn() -> io::Result<T>) -> io::Result<T> {
    let mut waits = CUT_WAITS_MS.into_iter();
    let mut first = None;
    loop {
        let fault = match attempt() {
            Ok(done) => return Ok(done),
            Err(fault) => fault,
        };
        let is_cut = CUT.contains(&fault.kind());
        let told = first.take().unwrap_or(fault);
        match waits.next().filter(|_| is_cut) {
            Some(wait) => thread::sleep(Duration::from_millis(wait)),
            None => return Err(told),
        }
        first = Some(told);
    }
}

/// A connection that ended before its time.
const CUT: [io::ErrorKind; 4] = [
    io::ErrorKind::ConnectionReset,
    io::ErrorKind::ConnectionAborted,
    io::ErrorKind::BrokenPipe,
    io::ErrorKind::UnexpectedEof,
];
/// Waits before the further attempts, in milliseconds: a third of a second in all, so that a peer that will never answer
/// is reported soon.
const CUT_WAITS_MS: [u64; 5] = [10, 20, 50, 100, 150];

/// Where accepted connections become sessions, or join the one they belong to. [`crate::SessionListener`] takes one;
/// alone, it serves who accepts and authenticates connections in a way of his own.
///
/// ```
/// use narrows::{Acceptor, Auth, Engine, SessionListener, Settings};
///
/// let settings = Settings::builder().history(false).build();
/// let acceptor = Acceptor::new(Engine::new(1), settings);
/// let address = narrows::parse("127.0.0.1:0")?;
/// let listener = SessionListener::start(&address, Auth::None, acceptor)?;
/// let session = narrows::connect(&listener.local().to_string(), Auth::None)?;
/// # drop(session);
/// # Ok::<(), narrows::Error>(())
/// ```
#[derive(Debug)]
pub struct Acceptor {
    engine: Engine,
    settings: Settings,
    sessions: Mutex<HashMap<[u8; 16], Weak<Inner>>>,
}

impl Acceptor {
    /// An acceptor without sessions.
    #[must_use]
    pub fn new(engine: Engine, settings: Settings) -> Self {
        Self {
            engine,
            settings,
            sessions: Mutex::default(),
        }
    }

    /// Takes an authenticated connection. `None` when it joined a session that is already there.
    ///
    /// # Errors
    /// [`Error`] when the peer does not suit; it was told.
    pub fn take(&self, transport: Transport) -> Result<Option<Endpoint>, Error> {
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
        let known = {
            let mut sessions = self.sessions.lock();
            sessions.retain(|_, inner| inner.strong_count() > 0);
            sessions.get(&theirs.session).and_then(Weak::upgrade)
        };
        match known {
            Some(inner) => self.join(&inner, transport, theirs).map(|()| None),
            None if theirs.resume => {
                let end = Error::new(
                    Code::PROTOCOL,
                    "this receiver does not know the session any more; start again",
                );
                Err(say_bye(transport, end))
            }
            None => self.begin(transport, theirs).map(Some),
        }
    }

    fn begin(&self, mut transport: Transport, theirs: Hello) -> Result<Endpoint, Error> {
        let mut machine = Session::new(config(
            &self.engine,
            &self.settings,
            Role::Acceptor,
            theirs.session,
        ));
        let id = narrows_session::LinkId(0);
        let hello = machine.hello();
        let (route, loopback) = route(&hello.session, Role::Acceptor, &transport);
        let loopback = loopback && route == theirs.route;
        if let Err(fault) = machine.attach(id, theirs.clone()) {
            return Err(say_bye(transport, refused(fault)));
        }
        write_hello(&mut transport, &Message::Hello(Hello { route, ..hello })).map_err(lost)?;
        let transport = padding(&self.settings, &theirs, transport)?;
        let first = FirstLink {
            loopback,
            identity: transport.identity.clone(),
        };
        let settings = self.settings.clone();
        let inner = build(&self.engine, settings, machine, &theirs, first);
        self.sessions
            .lock()
            .insert(theirs.session, Arc::downgrade(&inner));
        inner.add_link(id, transport)?;
        monitor::start(&inner, None)?;
        Ok(Endpoint { inner })
    }

    fn join(
        &self,
        inner: &Arc<Inner>,
        mut transport: Transport,
        theirs: Hello,
    ) -> Result<(), Error> {
        let hello = inner.state.lock().machine.hello();
        write_hello(&mut transport, &Message::Hello(hello)).map_err(lost)?;
        inner.attach(transport, theirs)
    }
}

impl Inner {
    /// Adds a link on which Hellos were exchanged.
    pub(crate) fn attach(
        self: &Arc<Self>,
        transport: Transport,
        theirs: Hello,
    ) -> Result<(), Error> {
        let mut state = self.state.lock();
        if let Some(end) = &state.ended {
            return Err(say_bye(transport, end.clone()));
        }
        state.next_link += 1;
        let id = narrows_session::LinkId(state.next_link);
        if let Err(fault) = state.machine.attach(id, theirs) {
            drop(state);
            return Err(say_bye(transport, refused(fault)));
        }
        drop(state);
        self.add_link(id, transport)
    }

    fn add_link(
        self: &Arc<Self>,
        id: narrows_session::LinkId,
        transport: Transport,
    ) -> Result<(), Error> {
        let mut state = self.state.lock();
        match Link::start(self, id, transport) {
            Ok(link) => state.links.insert(id, link),
            Err(end) => {
                state.machine.detach(id);
                return Err(end);
            }
        };
        state.linkless_since_ns = None;
        drop(state);
        self.signals.to_send.notify_all();
        Ok(())
    }
}

fn config(engine: &Engine, settings: &Settings, role: Role, session: [u8; 16]) -> Config {
    let mut agent = concat!("narrows ", env!("CARGO_PKG_VERSION")).to_string();
    for service in &settings.services {
        agent.push(' ');
        agent.push_str(service);
    }
    let mut limits = settings.limits;
    if !settings.history {
        limits.history_len_max = 0;
    }
    Config {
        role,
        limits,
        codecs: engine.registry.ids().chain([CodecId::PADDED]).collect(),
        host: host(&session),
        agent,
        session,
    }
}

/// Names this machine until it starts again, in this session only; 0 where the system does not say. Containers and
/// namespaces of one machine have the same: they share its processors.
fn host(session: &[u8; 16]) -> u64 {
    let Ok(boot) = fs::read("/proc/sys/kernel/random/boot_id") else {
        return 0;
    };
    xxh3_64(&[&boot, session.as_slice()].concat())
}

/// Names the connection, in this session only, and says whether it stays in this machine's loopback as far as its
/// addresses tell. A relay or a forwarder on the way has two connections, with two names. 0 where the system does not
/// say.
fn route(session: &[u8; 16], role: Role, transport: &Transport) -> (u64, bool) {
    let Some(mut ends) = transport.probe.ends() else {
        return (0, false);
    };
    let loopback = ends[1].ip().is_loopback();
    if role == Role::Acceptor {
        ends.reverse();
    }
    (
        xxh3_64(format!("{} {} {session:?}", ends[0], ends[1]).as_bytes()),
        loopback,
    )
}

/// Whether the peer takes what this side sends.
fn padding(settings: &Settings, theirs: &Hello, transport: Transport) -> Result<Transport, Error> {
    if !settings.pad || theirs.codecs.contains(&CodecId::PADDED) {
        return Ok(transport);
    }
    let text =
        "the peer is of an older version that takes no padding; leave out --pad, or update it";
    Err(say_bye(transport, Error::new(Code::PROTOCOL, text)))
}

/// What a session's first link is.
struct FirstLink {
    /// It stays within this machine.
    loopback: bool,
    /// Who is at its other end.
    identity: Option<Identity>,
}

/// A session over a first link.
fn build(
    engine: &Engine,
    settings: Settings,
    machine: Session<narrows_pipeline::Bytes>,
    theirs: &Hello,
    first: FirstLink,
) -> Arc<Inner> {
    let limits = *machine.limits();
    // What the receiver there holds bounds what is sent; what is received is bounded by our own limits.
    let mut theirs_limits = theirs.limits;
    theirs_limits.chunk_len_max = theirs_limits
        .chunk_len_max
        .min(narrows_core::limits::CHUNK_LEN_MAX);
    if !settings.history {
        theirs_limits.history_len_max = 0;
    }
    let near = Near {
        host: machine.shares_host(),
        loopback: first.loopback,
    };
    let (policy, history_len_max) =
        settings.policy(&engine.registry, &theirs_limits, &theirs.codecs, near);
    let receiving = Receiving {
        unpacking: Unpacking {
            registry: engine.registry.clone(),
            pool: engine.pool.clone(),
            buffers: engine.buffers.clone(),
            clock: engine.clock.clone(),
            depth: limits.depth,
            history_len_max: limits.history_len_max,
            whole: settings.is_naive(),
            counters: Arc::new(Counters::default()),
        },
        limits,
    };
    Arc::new_cyclic(|weak| Inner {
        sending: Sending {
            packing: Packing {
                registry: engine.registry.clone(),
                pool: engine.pool.clone(),
                buffers: engine.buffers.clone(),
                clock: engine.clock.clone(),
                policy: Arc::new(Mutex::new(policy)),
                outlet: Arc::new(WeakOutlet(weak.clone())),
                keep_if_smaller: settings.keep_if_smaller,
                pad: settings.pad,
                chunk_len_max: theirs_limits.chunk_len_max,
                history_len_max,
                explain: settings.explain.clone(),
            },
            depth: settings.depth(engine.workers()) as u64,
            backlog_max: u64::MAX.into(),
        },
        receiving,
        state: Mutex::new(State::new(machine)),
        signals: Signals::default(),
        began_ns: engine.clock.now_ns(),
        tallies: Tallies::default(),
        engine: engine.clone(),
        identity: first.identity,
        settings,
    })
}

/// 128 bits nobody guesses: a stranger who could name a session could disturb it.
fn session_name() -> [u8; 16] {
    let mut name = [0; 16];
    getrandom::fill(&mut name).expect("the system has random numbers");
    name
}
