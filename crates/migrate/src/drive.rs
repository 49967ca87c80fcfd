//! A migration driven from the source's side: both QEMUs set up, the guest moved, and who runs it settled.
//!
//! ```text
//! run: Source::prepare ─▶ session ─▶ control channel: Prepare ─▶ Ready | Offer, Listen, Ready
//!      └▶ near::carry (lanes) ◀── QEMU migrates to our socket, or by itself ──▶ Done ─▶ Running, Summary
//! ```
//!
//! Whoever calls [`run`] shows its [`Event`]s and prints its [`Report`]; no decision is the caller's. Upstream: the
//! command line; downstream: [`crate::source`], [`crate::near`], [`crate::control`].

use std::{
    fmt, io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
        mpsc,
    },
    time::{Duration, Instant},
};

use narrows::{ChannelReader, ChannelWriter, Code, Connector, Endpoint, Engine, Error, Settings};
use narrows_core::units::Rate;
use narrows_io::{
    Address, Listener, Tuning,
    meter::CpuTime,
    secure::{self, Auth},
    transport,
};

use crate::{
    MigrateError, SERVICE_CONTROL,
    control::{self, Cost, Message},
    destination,
    direct::{self, Route},
    migration::{LinkProbe, Migration, Options},
    near,
    report::Report,
    source::{Ask, Finished, Progress, Source, Through, Whereabouts},
    status::Status,
};

/// Before the reason.
const NOT_BY_ITSELF: &str = "QEMU cannot connect by itself, and goes through the tunnel: ";
/// How long the destination's QEMU may take to be reached.
const REACHED_WITHIN: Duration = Duration::from_secs(3);
/// Of a guest that left and was not seen again.
const GONE: &str = "the guest has left, and is not known to run at the destination; ask QEMU there for its state (query-status): a guest that is \
                    paused runs after `cont`; only where that QEMU is gone, or has none, does `cont` here start it again";
/// Of a guest that may be on either side.
const UNKNOWN: &str = "QEMU here does not say that it still runs the guest; ask both QEMUs for their state (query-status, query-migrate) before \
                       either is told to run it";
/// How long lanes may take to close once QEMU says that it is done, and the destination to say what it cost.
const LAST_WORDS: Duration = Duration::from_secs(10);

/// The way to the destination's side.
#[derive(Debug)]
pub struct Way {
    engine: Engine,
    settings: Settings,
    connector: Connector,
    link: LinkProbe,
}

impl Way {
    /// A way that was not gone yet.
    #[must_use]
    pub fn new(engine: Engine, settings: Settings, connector: Connector) -> Self {
        Self {
            engine,
            settings,
            connector,
            link: LinkProbe::default(),
        }
    }

    /// Where the destination's side is.
    #[must_use]
    pub fn peer(&self) -> &Address {
        self.connector.address()
    }

    /// What is known of the connection.
    #[must_use]
    pub fn link(&self) -> &LinkProbe {
        &self.link
    }

    /// Begins a session.
    ///
    /// # Errors
    /// The peer cannot be reached, or does not suit.
    pub fn connect(&self) -> Result<Arc<Endpoint>, Error> {
        let dial = self.link.wrap(self.connector.dial());
        Endpoint::connect(&self.engine, self.settings.clone(), dial).map(Arc::new)
    }
}

/// Whether QEMU connects to the destination's by itself, where that side lets it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum When {
    /// If the link carries more than processors pack in the tunnel.
    #[default]
    Auto,
    /// Whatever the link carries.
    Always,
    /// Through the tunnel only.
    Never,
}

/// What is to be moved, and how.
#[derive(Debug, Clone)]
pub struct Order {
    /// QMP socket of the source's QEMU.
    pub qmp: Address,
    /// Where QEMU connects to here; a socket in a directory of its own where nobody says.
    pub listen: Option<Address>,
    /// What both QEMUs are set up for.
    pub ask: Ask,
    /// Whether QEMU connects by itself.
    pub direct: When,
    /// Allow plain connections beyond this host.
    pub insecure: bool,
    /// How it is carried. `downtime_limit` and `pace` are settled by what QEMU has.
    pub options: Options,
}

/// What a caller may show while a guest moves.
#[derive(Debug)]
#[non_exhaustive]
pub enum Event<'a> {
    /// The session is there.
    Begun(&'a Arc<Migration>),
    /// What QEMU says, ten times a second, and what the tunnel carried.
    Progress(&'a Progress, &'a Status),
}

/// Why no guest was moved, and where it is.
#[derive(Debug)]
pub struct RunError {
    /// On which side the guest is.
    pub whereabouts: Whereabouts,
    /// Why.
    pub reason: MigrateError,
}

impl fmt::Display for RunError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.whereabouts {
            Whereabouts::Here => "the guest goes on where it was",
            Whereabouts::Gone => GONE,
            Whereabouts::Unknown => UNKNOWN,
        })
    }
}

impl std::error::Error for RunError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.reason)
    }
}

impl From<MigrateError> for RunError {
    /// Before anything moved.
    fn from(reason: MigrateError) -> Self {
        Self {
            whereabouts: Whereabouts::Here,
            reason,
        }
    }
}

/// Moves the guest of the QEMU at `order.qmp` to the other end of `way`, until it is known who runs it. Setting `cancel`
/// makes it give up while that can still be done.
///
/// # Errors
/// [`RunError`], which says where the guest is.
pub fn run(
    way: &Way,
    order: &Order,
    cancel: &AtomicBool,
    show: &mut dyn FnMut(Event<'_>),
) -> Result<Report, RunError> {
    // A directory of its own where nobody was named: it is ours alone, and goes with the socket.
    let (_place, listen) = match &order.listen {
        Some(listen) => {
            secure::require_auth(listen, &Auth::None, order.insecure)
                .map_err(|refused| MigrateError::from(Error::Usage(refused.to_string())))?;
            (None, listen.clone())
        }
        None => {
            let place = tempfile::Builder::new()
                .prefix("narrows-migrate-")
                .tempdir();
            let place = place.map_err(|fault| MigrateError::Socket {
                what: "cannot make a directory for QEMU's socket; name one with --listen",
                fault,
            })?;
            let socket = place.path().join("qemu.sock");
            (Some(place), Address::Unix(socket))
        }
    };
    let mut source = Source::prepare(&order.qmp, &order.ask).map_err(MigrateError::from)?;
    let listener = Listener::bind(&listen, &Tuning::default())
        .map_err(|error| MigrateError::from(Error::from(io::Error::other(error))))?;
    let (local, stop) = (listener.local().clone(), listener.stopper());
    let options = Options {
        downtime_limit: source.downtime_limit,
        pace: !source.takes_rate(),
        ..order.options
    };
    let cpu_before = CpuTime::of_process();
    let endpoint = way.connect().map_err(MigrateError::from)?;
    let migration = Migration::new(endpoint, options, way.link.clone());
    show(Event::Begun(&migration));
    let mut moving = Moving {
        order,
        way,
        migration: &migration,
        cancel,
        show,
    };
    let result = moving.converse(&mut source, listener, &local);
    stop.stop();
    match result {
        Ok((mut report, recv)) => {
            migration.close();
            report.send.tunnel_cpu_s =
                CpuTime::of_process().since(cpu_before).total_ns() as f64 / 1e9;
            report.recv = recv;
            Ok(report)
        }
        Err(fault) => {
            // Why the session ended says more than what QEMU made of it; but where the user wanted it to end, sockets
            // that broke on the way are no news.
            let is_wanted = cancel.load(Relaxed);
            let ended = migration.endpoint.ended();
            let end = ended.filter(|end| end.code() != Code::DONE && !is_wanted);
            migration.fail(fault.code(), &fault.to_string());
            Err(RunError {
                whereabouts: source.whereabouts(),
                reason: end.map_or(fault, MigrateError::from),
            })
        }
    }
}

/// What is known before the guest moves.
struct Prepared {
    /// The link's rate in bytes a second, where it was measured.
    link: Option<f64>,
    /// Where QEMU had better connect than to our socket.
    to: Option<Address>,
    /// The destination's side drives its QEMU, and says when the guest runs.
    is_driven: bool,
}

/// What the destination's side says from now on, with when it was heard.
fn listen(mut hear: ChannelReader) -> io::Result<mpsc::Receiver<(Instant, Message)>> {
    let (heard_in, heard) = mpsc::sync_channel(control::WAITING_MAX);
    narrows_io::thread::spawn("migrate-talk", move || {
        while let Ok(Some(message)) = control::hear(&mut hear) {
            if heard_in.send((Instant::now(), message)).is_err() {
                return;
            }
        }
    })?;
    Ok(heard)
}

/// Waits for what the destination's side has to say at the end: that the guest runs there, unless `runs`, and what it
/// cost there. `stopped` is when the guest stopped here.
fn settle(
    heard: &mpsc::Receiver<(Instant, Message)>,
    stopped: Option<Instant>,
    report: &mut Report,
    mut runs: bool,
) -> Result<Option<Cost>, MigrateError> {
    let mut recv = None;
    let until = Instant::now() + destination::COME_WITHIN + LAST_WORDS;
    let left = || until.saturating_duration_since(Instant::now());
    while let Ok((at, message)) = heard.recv_timeout(left()) {
        match message {
            Message::Running => {
                runs = true;
                let seen = stopped
                    .map(|stopped| at.saturating_duration_since(stopped).as_secs_f64() * 1e3);
                report.down_seen_ms = report.down_seen_ms.or(seen);
            }
            Message::Summary(cost) => {
                recv = Some(cost);
                break;
            }
            Message::Failed { text } if runs => {
                tracing::warn!("the destination's side says: {text}");
                break;
            }
            Message::Failed { text } => {
                return Err(Error::new(Code::FAILED, text).into());
            }
            _ => {}
        }
    }
    if !runs {
        let text = "the destination's side does not say that the guest runs there";
        return Err(Error::new(Code::FAILED, text).into());
    }
    Ok(recv)
}

/// One `run` under way.
struct Moving<'a> {
    order: &'a Order,
    way: &'a Way,
    migration: &'a Arc<Migration>,
    cancel: &'a AtomicBool,
    show: &'a mut dyn FnMut(Event<'_>),
}

impl Moving<'_> {
    /// Prepares the destination, migrates, and settles who runs the guest.
    fn converse(
        &mut self,
        source: &mut Source,
        listener: Listener,
        local: &Address,
    ) -> Result<(Report, Option<Cost>), MigrateError> {
        let &mut Self {
            order, migration, ..
        } = self;
        let (mut say, mut hear) = migration.endpoint.open(SERVICE_CONTROL)?;
        // Before the channel is let go of, of which the other side says no more than that.
        let prepared = self.prepare(source, &mut say, &mut hear);
        let Prepared {
            link,
            to,
            is_driven,
        } = prepared.inspect_err(|fault| migration.fail(fault.code(), &fault.to_string()))?;
        let socket_fault = |fault: io::Error| MigrateError::Socket {
            what: "cannot carry",
            fault,
        };
        let heard = listen(hear).map_err(socket_fault)?;
        let (events_in, events) = mpsc::channel();
        near::accept(listener, events_in.clone());
        let (over_in, over) = mpsc::channel();
        let (carried, tell) = (migration.clone(), events_in.clone());
        let carrying = narrows_io::thread::spawn("migrate-carry", move || {
            let _ = over_in.send(near::carry(&carried, None, &events, &tell));
        });
        carrying.map_err(socket_fault)?;

        let moved = self
            .migrate(source, to.as_ref(), local, &mut say)
            .inspect_err(|fault| {
                let _ = control::say(
                    &mut say,
                    &Message::Failed {
                        text: fault.to_string(),
                    },
                );
                let _ = events_in.send(near::Event::Stop);
            });
        let (finished, was_direct) = moved?;
        if was_direct {
            let _ = events_in.send(near::Event::Stop);
        }
        // The source has closed its sockets; what they carried is with the destination when the lanes are over.
        let _ = over.recv_timeout(LAST_WORDS);
        control::say(
            &mut say,
            &Message::Done {
                resume: source.running,
            },
        )?;
        let mut report = Report::new(
            source.version(),
            order.ask.multifd_channels,
            source.downtime_limit.as_millis() as u64,
            &finished.progress,
            &migration.status(),
            own_cost(finished.qemu_cpu_s),
        );
        report.link_bytes_per_s = link;
        if was_direct {
            report.set_direct(source.has_tls(), source.zstd_level());
        }
        // Where nobody drives the QEMU there, nobody says so.
        let runs = !(source.running && is_driven);
        let recv = settle(&heard, finished.stopped, &mut report, runs)?;
        let _ = say.finish();
        Ok((report, recv))
    }

    /// Prepares the destination.
    fn prepare(
        &self,
        source: &mut Source,
        say: &mut ChannelWriter,
        hear: &mut ChannelReader,
    ) -> Result<Prepared, MigrateError> {
        let order = self.order;
        let (multifd_channels, capabilities) =
            (order.ask.multifd_channels, order.ask.capabilities.clone());
        // A port is one of a host that we know.
        let may = order.direct != When::Never && matches!(self.way.peer(), Address::Tcp { .. });
        let (tls, zstd) = (
            may && matches!(self.way.connector.auth(), Auth::Tls { .. }),
            may && source.takes_zstd(),
        );
        control::say(
            say,
            &Message::Prepare {
                multifd_channels,
                capabilities,
                tls,
                zstd,
            },
        )?;
        let gone = || Error::new(Code::FAILED, "the destination's side ended the talk");
        let mut answer = || control::hear(hear)?.ok_or_else(gone);
        let mut answered = answer()?;
        let mut around = None;
        if let Message::Offer { port, zstd } = answered {
            let port = port.map_err(|why| format!("at the destination: {why}"));
            let found = self.around(source, port, Some(zstd))?;
            let (direct, zstd_level) = (found.1.is_some(), source.zstd_level());
            control::say(say, &Message::Listen { direct, zstd_level })?;
            around = Some(found);
            answered = answer()?;
        }
        let (qemu, direct_port, refused) = match answered {
            Message::Ready {
                qemu,
                direct_port,
                refused,
            } => (qemu, direct_port, refused),
            Message::Failed { text } => {
                return Err(Error::new(Code::FAILED, text).into());
            }
            _ => {
                return Err(
                    Error::new(Code::PROTOCOL, "the destination's side is not ready").into(),
                );
            }
        };
        let (link, to) = match (around, refused, direct_port) {
            (Some((link, _)), Some(why), _) => {
                source.take_back();
                tracing::warn!("{NOT_BY_ITSELF}at the destination: {why}");
                (link, None)
            }
            (Some(around), None, _) => around,
            (None, _, Some(port)) if may => self.around(source, Ok(port), None)?,
            (None, ..) if order.direct == When::Always => {
                let text = "the destination's side does not let QEMU connect by itself; start it with `serve --direct --to HOST:PORT`";
                return Err(Error::new(Code::FAILED, text).into());
            }
            (None, ..) => (None, None),
        };
        Ok(Prepared {
            link,
            to,
            is_driven: qemu.is_some(),
        })
    }

    /// [`Self::prepare`], where the destination's QEMU may be reached at `port`. It listens there plain, unless that is
    /// an offer, which says whether it has zstd: then it will listen either there or for the tunnel, so whatever can be
    /// found out is found out before.
    fn around(
        &self,
        source: &mut Source,
        port: Result<u16, String>,
        offer: Option<bool>,
    ) -> Result<(Option<f64>, Option<Address>), MigrateError> {
        let Self { order, way, .. } = self;
        let Address::Tcp { host, .. } = way.peer() else {
            return Ok((None, None));
        };
        let at = |port| Address::Tcp {
            host: host.clone(),
            port,
        };
        let tls = match way.connector.auth() {
            Auth::Tls { dir, server_name } if offer.is_some() => {
                Some((dir, server_name.as_deref().unwrap_or(host)))
            }
            _ => None,
        };
        let is_allowed = match tls {
            Some(_) => Ok(()),
            None => secure::require_auth_to(&at(0), &Auth::None, order.insecure),
        };
        match (order.direct, is_allowed) {
            (_, Ok(())) => {}
            (When::Always, Err(refused)) => {
                return Err(Error::new(Code::FAILED, refused.to_string()).into());
            }
            (_, Err(refused)) => {
                tracing::info!("QEMU does not connect by itself: {refused}");
                return Ok((None, None));
            }
        }
        let tuning = Tuning {
            connect_timeout: REACHED_WITHIN,
            ..Tuning::default()
        };
        let reached = port.map(at).and_then(|to| match offer {
            Some(_) => transport::connect(&to, &tuning)
                .map(|_| to)
                .map_err(|fault| fault.to_string()),
            None => Ok(to),
        });
        let cannot = |why: &String| tracing::warn!("{NOT_BY_ITSELF}{why}");
        let Ok(to) = reached.inspect_err(cannot) else {
            return Ok((None, None));
        };
        let (link, chosen) =
            self.measure(tls.is_some(), offer == Some(true) && source.takes_zstd())?;
        let Route::Direct(zstd_level) = chosen else {
            return Ok((Some(link), None));
        };
        if let Some((dir, name)) = tls
            && let Err(why) = source.lend(dir, name)
        {
            cannot(&why.to_string());
            return Ok((Some(link), None));
        }
        if let Some(level) = zstd_level {
            source.pack(level)?;
        }
        Ok((Some(link), Some(to)))
    }

    /// The link's rate, and how QEMU's bytes had better go.
    fn measure(&self, is_tls: bool, zstd: bool) -> Result<(f64, Route), MigrateError> {
        let endpoint = &self.migration.endpoint;
        let link = direct::link_rate(endpoint)?;
        let processors = endpoint.processors();
        let chosen = match direct::choose(link, processors, is_tls, zstd) {
            Route::Tunnel if self.order.direct == When::Always => {
                Route::Direct(zstd.then_some(direct::ZSTD_LEVEL))
            }
            chosen => chosen,
        };
        let word = match chosen {
            Route::Tunnel => "through the tunnel".into(),
            Route::Direct(None) => "by itself".into(),
            Route::Direct(Some(level)) => format!("by itself, with zstd {level}"),
        };
        tracing::info!(
            "the link carries {}, {processors} processors for this end: QEMU connects {word}",
            Rate(link)
        );
        Ok((link, chosen))
    }

    /// Has QEMU connect `to` the destination's, if that is given and can be reached, else to our socket, `local`; and
    /// whether it was the former.
    fn migrate(
        &mut self,
        source: &mut Source,
        to: Option<&Address>,
        local: &Address,
        say: &mut ChannelWriter,
    ) -> Result<(Finished, bool), MigrateError> {
        let (show, migration, cancel) = (&mut *self.show, self.migration, self.cancel);
        let is_tls = source.has_tls();
        let mut waits = source.running;
        let mut run = |through| {
            source.migrate(migration, through, cancel, &mut |progress| {
                show(Event::Progress(progress, &migration.status()));
                if progress.is_postcopy() && std::mem::take(&mut waits) {
                    // A session that has ended is told at the end.
                    let _ = control::say(say, &Message::Postcopy);
                }
            })
        };
        let around = to.map(|to| run(Through::Direct(to)));
        let finished = match around {
            Some(Err(MigrateError::Qemu {
                state,
                reason: Some(why),
                begun: false,
            })) if state == "failed" && is_tls => {
                // The destination's waits for nothing else, and can be told for what only once.
                let text = format!(
                    "QEMU cannot connect by itself: {why}; start the destination's anew, and try `--direct never`"
                );
                (Err(Error::new(Code::FAILED, text).into()), true)
            }
            Some(Err(MigrateError::Qemu {
                state,
                reason,
                begun: false,
            })) if state == "failed" && !is_tls => {
                // Packed, if the destination's waits for that: the tunnel carries it as it is.
                let why = reason.unwrap_or_else(|| "it does not say why".into());
                tracing::warn!("{NOT_BY_ITSELF}{why}");
                (run(Through::Tunnel(local)), false)
            }
            Some(result) => (result, true),
            None => (run(Through::Tunnel(local)), false),
        };
        Ok((finished.0?, finished.1))
    }
}

/// This side's cost; the tunnel's part is filled in at the very end.
fn own_cost(qemu_cpu_s: Option<f64>) -> Cost {
    let tunnel_rss_bytes = narrows_io::meter::Memory::of_process()
        .ok()
        .map(|memory| memory.peak);
    Cost {
        qemu_cpu_s,
        tunnel_cpu_s: 0.0,
        tunnel_rss_bytes,
    }
}
