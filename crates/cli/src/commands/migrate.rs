//! `narrows migrate`

mod args;
mod run;

use std::sync::{Arc, Weak};

use narrows::{Acceptor, Engine, Settings};
use narrows_core::Level;
use narrows_io::{
    Address, Listener, Tuning,
    secure::{self, Auth},
};
use narrows_migrate::{
    destination::{Direct, Target},
    drive::Way,
    far_settings, limits,
    migration::{Migration, Options},
    near_settings,
    serve::{self, TunnelEvent},
    status::{self, Status},
};
use parking_lot::Mutex;

pub use self::args::Command;
use self::args::{Carrying, Reading, ServeArgs, StatusArgs, TunnelArgs};
use super::{
    common,
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
        // For as long as the process lives.
        std::mem::forget(status::serve(&at, Arc::new(source))?);
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
            near_settings(
                common::packing_settings(engine, &packing)?,
                packing.cpu_price,
                packing.level_max.map(Level),
            )
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
    let acceptor = Acceptor::new(engine, settings);
    let listener = common::listen(&args.listen, &args.security, acceptor)?;
    common::on_signal()?;
    let current = serve_status(&args.carrying, &args.security)?;
    crate::log::tell!("taking migrations at {} for {target}", listener.local());
    narrows_io::service::ready();
    let target = Target {
        qmp,
        at: target,
        direct,
    };
    serve::serve(&listener, &target, args.carrying.options(), &|migration| {
        *current.lock() = Arc::downgrade(migration);
    })?;
    Ok(())
}

/// The way to the destination's side, as the flags have it.
fn way(
    peer: &str,
    packing: (&Packing, Reading),
    carrying: &Carrying,
    security: &Security,
) -> anyhow::Result<Way> {
    let engine = common::engine(packing.0);
    let settings = settings(&engine, Some(packing), carrying)?;
    Ok(Way::new(
        engine,
        settings,
        common::connector(peer, security)?,
    ))
}

fn tunnel(args: &TunnelArgs) -> anyhow::Result<()> {
    let way = way(
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
    serve::tunnel(&way, listener, options, &mut |event| match event {
        TunnelEvent::Ready(local) => {
            crate::log::tell!("taking a guest at {local} to {}", way.peer())
        }
        TunnelEvent::Begun(migration) => {
            common::current(&migration.endpoint);
            *current.lock() = Arc::downgrade(migration);
        }
        _ => {}
    })?;
    Ok(())
}

fn ask_status(args: &StatusArgs) -> anyhow::Result<()> {
    let status = status::ask(&common::address(&args.at)?)?;
    output::print(&if args.json {
        serde_json::to_string(&status)?
    } else {
        status.line()
    })
}
