//! `narrows migrate`

mod args;
mod run;

use std::{
    sync::{Arc, Weak, mpsc},
    thread,
    time::Duration,
};

use narrows::{
    Acceptor, Code, End, Endpoint, Engine, Settings,
    core::Level,
    io::{
        Address, Listener, Tuning,
        secure::{self, Auth},
    },
};
use narrows_migrate::{
    ALSO, CODECS, CPU_PRICE, LEVEL_MAX,
    destination::{self, Direct, Target},
    far, far_settings, limits,
    migration::{LinkProbe, Migration, Options},
    near,
    status::{self, Status},
};
use parking_lot::Mutex;

pub use self::args::Command;
use self::args::{Carrying, Reading, ServeArgs, StatusArgs, TunnelArgs};
use super::{
    common,
    door::Door,
    options::{Packing, PolicyName, Security},
};
use crate::{exit::Usage, output};

/// A channel for each of QEMU's sockets (main, up to 32 multifd, urgent pages) and for `run`.
const LANES_MAX: u16 = 36;

pub fn run(command: Command, quiet: bool) -> anyhow::Result<()> {
    match command {
        Command::Serve(args) => serve(&args),
        Command::Run(args) => run::run(&args, quiet),
        Command::Tunnel(args) => tunnel(&args),
        Command::Status(args) => ask_status(&args),
    }
}

/// Whose numbers `--status` shows: the latest migration's.
type Current = Arc<Mutex<Weak<Migration>>>;

fn serve_status(carrying: &Carrying, security: &Security) -> anyhow::Result<Current> {
    let current = Current::default();
    if let Some(at) = &carrying.status {
        let at = common::address(at)?;
        secure::require_auth(&at, &Auth::None, security.insecure)?;
        let shown = current.clone();
        let source = move || {
            shown
                .lock()
                .upgrade()
                .map_or_else(Status::idle, |migration| migration.status())
        };
        status::serve(&at, Arc::new(source))?;
    }
    Ok(current)
}

fn settings(
    engine: &Engine,
    packing: Option<(&Packing, Reading)>,
    carrying: &Carrying,
) -> anyhow::Result<Settings> {
    let mut settings = match packing {
        Some((packing, _)) if packing.policy == PolicyName::Naive => {
            return Err(Usage(
                "a migration does not end before it is answered; the naive policy cannot carry it"
                    .into(),
            )
            .into());
        }
        Some((packing, reading)) => {
            // Copies out of pages sent before find more than history, for less.
            let packing = Packing {
                no_history: packing.no_history || !reading.opaque,
                ..packing.clone()
            };
            Settings {
                cpu_price: packing.cpu_price.unwrap_or(CPU_PRICE),
                level_max: Some(packing.level_max.map_or(LEVEL_MAX, Level)),
                among: Some(CODECS),
                also: ALSO,
                ..common::packing_settings(engine, &packing)?
            }
        }
        None => far_settings(Settings::default()),
    };
    settings.resume_within = carrying.resume_within;
    settings.silence = carrying.silence;
    settings.limits = limits(LANES_MAX);
    Ok(settings)
}

fn serve(args: &ServeArgs) -> anyhow::Result<()> {
    let engine = Engine::new(0);
    let settings = settings(&engine, None, &args.carrying)?;
    let target = common::address(&args.to)?;
    let qmp = args.qmp.as_deref().map(common::address).transpose()?;
    let usage = |text: &str| Err(Usage(text.into()).into());
    let direct = match &args.security.tls_certificates {
        _ if !args.direct => Direct::No,
        _ if !matches!(target, Address::Tcp { .. }) => {
            return usage(
                "--direct needs --to HOST:PORT, where another host reaches this one's QEMU",
            );
        }
        Some(_) if qmp.is_none() => {
            return usage("--direct with --tls-certificates needs --qmp, to give them to QEMU");
        }
        Some(dir) => Direct::Tls(dir.clone()),
        None => {
            secure::require_auth(&target, &Auth::None, args.security.insecure)?;
            Direct::Plain
        }
    };
    let door = Door::open(&args.listen, &args.security)?;
    common::on_signal()?;
    let current = serve_status(&args.carrying, &args.security)?;
    eprintln!("taking migrations at {} for {target}", door.local());
    let options = args.carrying.options();
    let target = Target {
        qmp,
        at: target,
        direct,
    };
    for endpoint in door.sessions(Acceptor::new(engine, settings))? {
        let migration = Migration::new(Arc::new(endpoint), options, LinkProbe::default());
        *current.lock() = Arc::downgrade(&migration);
        let target = target.clone();
        narrows::io::thread::spawn("migrate-session", move || {
            let (talk, talks) = mpsc::channel();
            let (tunnel, talking) = (target.tunnel(), migration.clone());
            let spawned = narrows::io::thread::spawn("migrate-talk", move || {
                for incoming in talks {
                    if let Err(fault) = destination::attend(incoming, &target) {
                        talking.fail(fault.code(), &fault.to_string());
                    }
                }
            });
            match spawned {
                Ok(_) => match far::carry(&migration, &tunnel, Some(&talk)) {
                    Ok(()) => tracing::info!("{}", migration.status().line()),
                    Err(fault) => tracing::warn!("{fault}"),
                },
                Err(fault) => migration.fail(Code::FAILED, &fault.to_string()),
            }
        })?;
    }
    Ok(())
}

/// The way to the destination's side.
struct Way {
    engine: Engine,
    settings: Settings,
    peer: Address,
    auth: Auth,
    link: LinkProbe,
}

impl Way {
    fn new(
        peer: &str,
        (packing, reading): (&Packing, Reading),
        carrying: &Carrying,
        security: &Security,
    ) -> anyhow::Result<Self> {
        let engine = common::engine(packing);
        let settings = settings(&engine, Some((packing, reading)), carrying)?;
        let (peer, auth) = (common::address(peer)?, common::auth(security)?);
        secure::require_auth_to(&peer, &auth, security.insecure)?;
        Ok(Self {
            engine,
            settings,
            peer,
            auth,
            link: LinkProbe::default(),
        })
    }

    fn connect(&self) -> Result<Arc<Endpoint>, End> {
        let dial = self
            .link
            .wrap(common::dial(self.peer.clone(), self.auth.clone()));
        Endpoint::connect(&self.engine, self.settings.clone(), dial).map(Arc::new)
    }
}

fn tunnel(args: &TunnelArgs) -> anyhow::Result<()> {
    let way = Way::new(
        &args.peer,
        (&args.packing, args.reading),
        &args.carrying,
        &args.security,
    )?;
    let listen = common::address(&args.listen)?;
    // Whoever reaches this address can send the destination a guest.
    secure::require_auth(&listen, &Auth::None, args.security.insecure)?;
    let listener = Listener::bind(&listen, &Tuning::default())?;
    let current = serve_status(&args.carrying, &args.security)?;
    common::on_signal()?;
    let options = Options {
        downtime_limit: args.downtime_ms,
        pace: args.pace,
        aware: !args.reading.opaque,
        ..args.carrying.options()
    };
    let local = listener.local().clone();
    let (events_in, events) = mpsc::channel();
    near::accept(listener, events_in.clone());
    let mut first = true;
    loop {
        let endpoint = match way.connect() {
            Ok(endpoint) => endpoint,
            // The first time, the user is there to mend it; later, the other end may be restarting.
            Err(end) if first => return Err(end.into()),
            Err(end) => {
                tracing::warn!("{end}; trying again");
                thread::sleep(Duration::from_millis(500));
                continue;
            }
        };
        if std::mem::replace(&mut first, false) {
            eprintln!("taking a guest at {local} to {}", way.peer);
        }
        let Some(socket) = near::wait_first(&endpoint, &events) else {
            continue;
        };
        common::interruptible(&endpoint)?;
        let migration = Migration::new(endpoint, options, way.link.clone());
        *current.lock() = Arc::downgrade(&migration);
        match near::carry(&migration, Some(socket), &events, &events_in) {
            Ok(()) => {
                migration.close();
                tracing::info!("{}", migration.status().line());
            }
            Err(fault) => {
                tracing::warn!("{fault}; the guest stays where it is, and the next try is welcome")
            }
        }
    }
}

fn ask_status(args: &StatusArgs) -> anyhow::Result<()> {
    let status = status::ask(&common::address(&args.at)?)?;
    output::print(&if args.json {
        serde_json::to_string(&status)?
    } else {
        status.line()
    })
}
