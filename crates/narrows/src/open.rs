//! The short way to a session: [`connect`] on one side, [`listen`] on the other.
//!
//! Both do what every program would: read the address, refuse an open one without authentication, authenticate, and
//! begin a session. [`Connector`] and [`SessionListener`] are the same with an engine and settings of the caller's.

use std::{
    io,
    sync::{
        Arc,
        mpsc::{self, Receiver, SyncSender, TrySendError},
    },
};

use narrows_io::{
    Address, Listener, Lobby, Stop, Transport, Tuning,
    limits::strangers_max,
    secure::{self, Auth, SecureError, Side},
    transport,
};
use narrows_session::Code;
use parking_lot::Mutex;

use crate::{Acceptor, Dial, Endpoint, Engine, Error, Settings};

/// Port where an address names none.
pub const PORT: u16 = 4242;

/// How peers prove who they are.
///
/// Made of an [`Auth`]: `Access::from(Auth::None)` reaches loopback and Unix sockets only.
///
/// ```
/// use narrows::{Access, Auth, Error};
///
/// let refused = narrows::listen("0.0.0.0:0", Auth::None).unwrap_err();
/// assert!(matches!(refused, Error::Usage(_)));
/// let access = Access { insecure: true, ..Access::from(Auth::None) };
/// assert!(narrows::listen("0.0.0.0:0", access).is_ok());
/// ```
#[derive(Debug, Clone)]
pub struct Access {
    /// How.
    pub auth: Auth,
    /// Allow a plain connection beyond this host: anybody on the way can read and change the data.
    pub insecure: bool,
    /// Names of those who may connect, as their certificates carry them; all of the authority's where there are none.
    pub allow: Vec<String>,
}

impl From<Auth> for Access {
    fn from(auth: Auth) -> Self {
        Self {
            auth,
            insecure: false,
            allow: Vec::new(),
        }
    }
}

/// Connects to `address` (`HOST[:PORT]` or `unix:/PATH`) with an engine of its own and the settings that suit most.
///
/// ```
/// use std::io::{Read, Write};
/// use narrows::Auth;
///
/// let listener = narrows::listen("127.0.0.1:0", Auth::None)?;
/// let address = listener.local().to_string();
/// let receiver = std::thread::spawn(move || {
///     let session = listener.accept()?;
///     let mut text = String::new();
///     session.accept()?.expect("a channel").reader.read_to_string(&mut text)?;
///     std::io::Result::Ok(text)
/// });
///
/// let session = narrows::connect(&address, Auth::None)?;
/// let (mut writer, _) = session.open("text")?;
/// writer.write_all(b"the same water flows faster")?;
/// writer.finish()?;
/// assert_eq!(receiver.join().unwrap()?, "the same water flows faster");
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// # Errors
/// [`Error::Usage`] where the address is none, or is open and `access` proves nothing; [`Error::Auth`] where one side
/// does not trust the other; [`Error::Io`] where nobody answers.
pub fn connect(address: &str, access: impl Into<Access>) -> Result<Endpoint, Error> {
    Connector::new(address, access)?.connect(&Engine::new(0), Settings::default())
}

/// Listens on `address` (`HOST[:PORT]`, port 0 for any, or `unix:/PATH`); see [`connect`] for both ends of a session.
///
/// # Errors
/// [`Error::Usage`] where the address is none, or is open and `access` proves nothing; [`Error::Auth`] where our own
/// keys or certificates are at fault; [`Error::Io`] where the address cannot be had.
pub fn listen(address: &str, access: impl Into<Access>) -> Result<SessionListener, Error> {
    let acceptor = Acceptor::new(Engine::new(0), Settings::default());
    SessionListener::start(&parse(address)?, access, acceptor)
}

/// Reads an address; [`PORT`] where it names none.
///
/// # Errors
/// [`Error::Usage`].
pub fn parse(address: &str) -> Result<Address, Error> {
    Address::parse(address, PORT).map_err(|error| Error::Usage(error.to_string()))
}

/// Where to connect, and how to prove who one is.
///
/// ```
/// use narrows::{Auth, Connector, Engine, Settings};
///
/// let listener = narrows::listen("127.0.0.1:0", Auth::None)?;
/// let connector = Connector::new(&listener.local().to_string(), Auth::None)?;
/// let settings = Settings::builder().connections(2).build();
/// let session = connector.connect(&Engine::new(1), settings)?;
/// assert_eq!(session.stats().resumed, 0);
/// # Ok::<(), narrows::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Connector {
    address: Address,
    auth: Auth,
    bytes_per_s: Option<f64>,
}

impl Connector {
    /// Checks that `address` is one, and may be connected to so.
    ///
    /// # Errors
    /// [`Error::Usage`].
    pub fn new(address: &str, access: impl Into<Access>) -> Result<Self, Error> {
        let (address, access) = (parse(address)?, access.into());
        secure::require_auth_to(&address, &access.auth, access.insecure)
            .map_err(|refused| Error::Usage(refused.to_string()))?;
        Ok(Self {
            address,
            auth: access.auth,
            bytes_per_s: None,
        })
    }

    /// The same, sending at most so many bytes a second over each connection.
    #[must_use]
    pub fn throttled(self, bytes_per_s: Option<f64>) -> Self {
        Self {
            bytes_per_s,
            ..self
        }
    }

    /// Where it connects to.
    #[must_use]
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// How it proves who it is.
    #[must_use]
    pub fn auth(&self) -> &Auth {
        &self.auth
    }

    /// Makes authenticated connections, one at each call.
    #[must_use]
    pub fn dial(&self) -> Dial {
        let Self {
            address,
            auth,
            bytes_per_s,
        } = self.clone();
        Box::new(move || {
            let mut transport =
                transport::connect(&address, &Tuning::default()).map_err(io::Error::other)?;
            if let Some(rate) = bytes_per_s {
                transport = transport::throttled(transport, rate);
            }
            let secured = secure::connect(transport, &auth, address.host());
            secured.map_err(|error| {
                // The kind says whether it may be worth another try.
                let kind = match &error {
                    SecureError::Io(fault) => fault.kind(),
                    SecureError::Closed => io::ErrorKind::UnexpectedEof,
                    _ => io::ErrorKind::PermissionDenied,
                };
                io::Error::new(kind, unproven(&error))
            })
        })
    }

    /// Begins a session.
    ///
    /// # Errors
    /// See [`connect`].
    pub fn connect(&self, engine: &Engine, settings: Settings) -> Result<Endpoint, Error> {
        Endpoint::connect(engine, settings, self.dial())
    }
}

/// A dial that works once: a pipe or a child process cannot be had again, so such a session is not resumed.
#[must_use]
pub fn dial_once(transport: Transport) -> Dial {
    let once = Mutex::new(Some(transport));
    Box::new(move || {
        let lost = || io::Error::other("the connection was lost and cannot be made again");
        once.lock().take().ok_or_else(lost)
    })
}

/// An authentication error, as a session's.
#[must_use]
pub fn unproven(error: &SecureError) -> Error {
    Error::new(Code::AUTH, error.to_string())
}

/// Where peers come in: an address, who may, and a session of each who proves it. Stops listening on drop.
///
/// ```
/// use narrows::Auth;
///
/// let listener = narrows::listen("127.0.0.1:0", Auth::None)?;
/// let client = narrows::connect(&listener.local().to_string(), Auth::None)?;
/// let session = listener.accept()?;
/// client.close();
/// assert!(session.accept()?.is_none(), "the client has closed the session");
/// # Ok::<(), narrows::Error>(())
/// ```
#[derive(Debug)]
pub struct SessionListener {
    local: Address,
    sessions: Receiver<Endpoint>,
    stop: Stop,
}

impl SessionListener {
    /// Listens, if that may be done so, with keys and certificates that are there.
    ///
    /// Each connection is authenticated on a thread of its own, so that a slow or hostile one holds up nobody, and
    /// few of those that have not proved who they are may wait at once ([`Lobby`]).
    ///
    /// # Errors
    /// See [`listen`].
    pub fn start(
        address: &Address,
        access: impl Into<Access>,
        acceptor: Acceptor,
    ) -> Result<Self, Error> {
        let access = access.into();
        secure::require_auth(address, &access.auth, access.insecure)
            .map_err(|refused| Error::Usage(refused.to_string()))?;
        access
            .auth
            .check(Side::Server)
            .map_err(|error| unproven(&error))?;
        let listener = Listener::bind(address, &Tuning::default())
            .map_err(|error| Error::new(Code::FAILED, error.to_string()))?;
        let (local, stop) = (listener.local().clone(), listener.stopper());
        let (found, sessions) = mpsc::sync_channel(WAITING_MAX);
        let greeter = Greeter {
            auth: access.auth,
            allow: access.allow.into(),
            acceptor: Arc::new(acceptor),
            found,
        };
        crate::thread::spawn("accept", move || greeter.run(&listener))?;
        Ok(Self {
            local,
            sessions,
            stop,
        })
    }

    /// Where it listens, with the port that the system chose.
    #[must_use]
    pub fn local(&self) -> &Address {
        &self.local
    }

    /// The next session. Waits.
    ///
    /// # Errors
    /// [`Error::Closed`] once nothing listens any more.
    pub fn accept(&self) -> Result<Endpoint, Error> {
        let ended = || Error::new(Code::DONE, "nothing listens any more");
        self.sessions.recv().map_err(|_| ended())
    }

    /// All sessions to come. Waits for each.
    pub fn sessions(&self) -> impl Iterator<Item = Endpoint> + '_ {
        self.sessions.iter()
    }
}

impl Drop for SessionListener {
    fn drop(&mut self) {
        self.stop.stop();
    }
}

/// Sessions that wait to be accepted. One more is told that this end is busy.
const WAITING_MAX: usize = 32;

#[derive(Clone)]
struct Greeter {
    auth: Auth,
    allow: Arc<[String]>,
    acceptor: Arc<Acceptor>,
    found: SyncSender<Endpoint>,
}

impl Greeter {
    fn hand_over(&self, endpoint: Endpoint) {
        if let Err(TrySendError::Full(endpoint)) = self.found.try_send(endpoint) {
            let text = "busy: others wait here already; try again later";
            endpoint.fail(Code::LIMIT, text);
        }
    }

    fn run(&self, listener: &Listener) {
        let lobby = Lobby::new(strangers_max());
        for transport in listener.incoming() {
            let (this, stranger) = (self.clone(), lobby.enter(&transport));
            let lobby = lobby.clone();
            let greet = move || {
                let peer = transport.peer.clone();
                let admitted = secure::accept_named(transport, &this.auth, &this.allow)
                    .map_err(|error| unproven(&error))
                    .and_then(|transport| this.acceptor.take(transport));
                drop(stranger);
                match admitted {
                    Ok(Some(endpoint)) => this.hand_over(endpoint),
                    Ok(None) => {}
                    Err(error) => lobby.refused(&peer, &error),
                }
            };
            if let Err(error) = narrows_io::thread::spawn("greet", greet) {
                tracing::warn!("a connection is dropped: {error}");
            }
        }
    }
}
