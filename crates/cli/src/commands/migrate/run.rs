//! `narrows migrate run`: both QEMUs driven, from the set-up to who runs the guest.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
        mpsc,
    },
    time::{Duration, Instant},
};

use anyhow::Context;
use narrows::{
    ChannelReader, ChannelWriter, Code, End,
    core::units::{Rate, Size},
    io::{
        Address, Listener, Tuning,
        meter::CpuTime,
        secure::{self, Auth},
        transport,
    },
};
use narrows_migrate::{
    MigrateError, SERVICE_CONTROL,
    control::{self, Cost, Message},
    destination,
    direct::{self, Route},
    migration::{Migration, Options},
    near,
    report::Report,
    source::{Ask, Finished, Progress, Source, Through, Whereabouts},
};

use super::{
    Way,
    args::{RunArgs, When},
    serve_status,
};
use crate::{commands::common, output};

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

pub(super) fn run(args: &RunArgs, quiet: bool) -> anyhow::Result<()> {
    let way = Way::new(
        &args.to,
        (&args.packing, args.reading),
        &args.carrying,
        &args.security,
    )?;
    let qmp = common::address(&args.qmp)?;
    let cancel = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register(signal, cancel.clone()).context("cannot catch signals")?;
    }
    let current = serve_status(&args.carrying, &args.security)?;
    // A directory of its own where nobody was named: it is ours alone, and goes with the socket.
    let (_place, listen) = match &args.listen {
        Some(listen) => {
            let listen = common::address(listen)?;
            secure::require_auth(&listen, &Auth::None, args.security.insecure)?;
            (None, listen)
        }
        None => {
            let place = tempfile::Builder::new()
                .prefix("narrows-migrate-")
                .tempdir();
            let place = place
                .context("cannot make a directory for QEMU's socket; name one with --listen")?;
            let socket = place.path().join("qemu.sock");
            (Some(place), Address::Unix(socket))
        }
    };
    let ask = Ask {
        multifd_channels: args.channels,
        downtime_limit: args.downtime_ms,
        max_bandwidth: args.max_bandwidth.map(|rate| rate.0 as u64),
        capabilities: args.capabilities.clone(),
    };
    let mut source = Source::prepare(&qmp, &ask).map_err(MigrateError::from)?;
    let listener = Listener::bind(&listen, &Tuning::default())?;
    let (local, stop) = (listener.local().clone(), listener.stopper());
    let options = Options {
        downtime_limit: source.downtime_limit,
        pace: !source.takes_rate(),
        aware: !args.reading.opaque,
        ..args.carrying.options()
    };
    let cpu_before = CpuTime::of_process();
    let migration = Migration::new(way.connect()?, options, way.link.clone());
    *current.lock() = Arc::downgrade(&migration);
    let moving = Moving {
        args,
        way: &way,
        migration: &migration,
        cancel: &cancel,
        quiet,
    };
    let result = moving.converse(&mut source, listener, &local);
    stop.stop();
    let report = match result {
        Ok((mut report, recv)) => {
            migration.close();
            report.send.tunnel_cpu_s =
                CpuTime::of_process().since(cpu_before).total_ns() as f64 / 1e9;
            report.recv = recv;
            report
        }
        Err(fault) => {
            // Why the session ended says more than what QEMU made of it; but where the user wanted it to end, sockets
            // that broke on the way are no news.
            let is_wanted = cancel.load(Relaxed);
            let end = migration
                .endpoint
                .ended()
                .filter(|end| end.code != Code::DONE && !is_wanted);
            migration.fail(fault.code(), &fault.to_string());
            let fault = anyhow::Error::new(fault);
            return Err(end.map_or(fault, anyhow::Error::new).context(
                match source.whereabouts() {
                    Whereabouts::Here => "the guest goes on where it was",
                    Whereabouts::Gone => GONE,
                    Whereabouts::Unknown => UNKNOWN,
                },
            ));
        }
    };
    if args.json {
        output::print(&serde_json::to_string(&report)?)
    } else {
        output::print(&report.table())
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

/// One `run` under way.
struct Moving<'a> {
    args: &'a RunArgs,
    way: &'a Way,
    migration: &'a Arc<Migration>,
    cancel: &'a AtomicBool,
    quiet: bool,
}

impl Moving<'_> {
    /// Prepares the destination, migrates, and settles who runs the guest.
    fn converse(
        &self,
        source: &mut Source,
        listener: Listener,
        local: &Address,
    ) -> Result<(Report, Option<Cost>), MigrateError> {
        let &Self {
            args, migration, ..
        } = self;
        let (mut say, mut hear) = migration.endpoint.open(SERVICE_CONTROL)?;
        // Before the channel is let go of, of which the other side says no more than that.
        let prepared = self.prepare(source, &mut say, &mut hear);
        let Prepared {
            link,
            to,
            is_driven,
        } = prepared.inspect_err(|fault| migration.fail(fault.code(), &fault.to_string()))?;
        let (heard_in, heard) = mpsc::sync_channel(control::WAITING_MAX);
        let listening = narrows::io::thread::spawn("migrate-talk", move || {
            while let Ok(Some(message)) = control::hear(&mut hear) {
                if heard_in.send((Instant::now(), message)).is_err() {
                    return;
                }
            }
        });
        let socket_fault = |fault: io::Error| MigrateError::Socket {
            what: "cannot carry",
            fault,
        };
        listening.map_err(socket_fault)?;

        let (events_in, events) = mpsc::channel();
        near::accept(listener, events_in.clone());
        let (over_in, over) = mpsc::channel();
        let (carried, tell) = (migration.clone(), events_in.clone());
        let carrying = narrows::io::thread::spawn("migrate-carry", move || {
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
            args.channels,
            source.downtime_limit.as_millis() as u64,
            &finished.progress,
            &migration.status(),
            own_cost(finished.qemu_cpu_s),
        );
        report.link_bytes_per_s = link;
        if was_direct {
            report.set_direct(source.has_tls(), source.zstd_level());
        }
        let mut recv = None;
        // Where nobody drives the QEMU there, nobody says so.
        let mut runs = !(source.running && is_driven);
        let until = Instant::now() + destination::COME_WITHIN + LAST_WORDS;
        while let Ok((at, message)) =
            heard.recv_timeout(until.saturating_duration_since(Instant::now()))
        {
            match message {
                Message::Running => {
                    runs = true;
                    let seen = finished
                        .stopped
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
                    return Err(End {
                        code: Code::FAILED,
                        text,
                    }
                    .into());
                }
                _ => {}
            }
        }
        if !runs {
            let text = "the destination's side does not say that the guest runs there".into();
            return Err(End {
                code: Code::FAILED,
                text,
            }
            .into());
        }
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
        let args = self.args;
        let (multifd_channels, capabilities) = (args.channels, args.capabilities.clone());
        // A port is one of a host that we know.
        let may = args.direct != When::Never && matches!(self.way.peer, Address::Tcp { .. });
        let (tls, zstd) = (
            may && matches!(self.way.auth, Auth::Tls { .. }),
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
        let gone = || End {
            code: Code::FAILED,
            text: "the destination's side ended the talk".into(),
        };
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
                return Err(End {
                    code: Code::FAILED,
                    text,
                }
                .into());
            }
            _ => {
                return Err(End {
                    code: Code::PROTOCOL,
                    text: "the destination's side is not ready".into(),
                }
                .into());
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
            (None, ..) if args.direct == When::Always => {
                let text = "the destination's side does not let QEMU connect by itself; start it with `serve --direct --to HOST:PORT`";
                return Err(End {
                    code: Code::FAILED,
                    text: text.into(),
                }
                .into());
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
        let Self { args, way, .. } = self;
        let Address::Tcp { host, .. } = &way.peer else {
            return Ok((None, None));
        };
        let at = |port| Address::Tcp {
            host: host.clone(),
            port,
        };
        let tls = match &way.auth {
            Auth::Tls { dir, server_name } if offer.is_some() => {
                Some((dir, server_name.as_deref().unwrap_or(host)))
            }
            _ => None,
        };
        let is_allowed = match tls {
            Some(_) => Ok(()),
            None => secure::require_auth_to(&at(0), &Auth::None, args.security.insecure),
        };
        match (args.direct, is_allowed) {
            (_, Ok(())) => {}
            (When::Always, Err(refused)) => {
                return Err(End {
                    code: Code::FAILED,
                    text: refused.to_string(),
                }
                .into());
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
            Route::Tunnel if self.args.direct == When::Always => {
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
        &self,
        source: &mut Source,
        to: Option<&Address>,
        local: &Address,
        say: &mut ChannelWriter,
    ) -> Result<(Finished, bool), MigrateError> {
        let bar = output::progress(self.quiet);
        let is_tls = source.has_tls();
        let mut waits = source.running;
        let mut run = |through| {
            source.migrate(self.migration, through, self.cancel, &mut |progress| {
                show(&bar, progress, self.migration);
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
                (
                    Err(End {
                        code: Code::FAILED,
                        text,
                    }
                    .into()),
                    true,
                )
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
        bar.finish_and_clear();
        Ok((finished.0?, finished.1))
    }
}

/// This side's cost; the tunnel's part is filled in at the very end.
fn own_cost(qemu_cpu_s: Option<f64>) -> Cost {
    let tunnel_rss_bytes = narrows::io::meter::Memory::of_process()
        .ok()
        .map(|memory| memory.peak);
    Cost {
        qemu_cpu_s,
        tunnel_cpu_s: 0.0,
        tunnel_rss_bytes,
    }
}

fn show(bar: &indicatif::ProgressBar, progress: &Progress, migration: &Migration) {
    bar.set_position(progress.transferred);
    let status = migration.status();
    bar.set_message(format!(
        "{}: {} left, round {}, {} on the wire, {} pages left out",
        progress.status,
        Size(progress.ram_remaining),
        progress.rounds,
        Size(status.sent_wire_bytes),
        status.pages_left_out,
    ));
}
