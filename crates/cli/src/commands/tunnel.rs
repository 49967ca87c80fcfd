//! `narrows tunnel`

use std::sync::Arc;

use narrows::{Acceptor, Error, Settings};
use narrows_io::{
    Listener, Tuning,
    secure::{self, Auth},
};
use narrows_wire::tunnel;

use super::{
    common,
    options::{Packing, Security, Session},
};

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Near the program:  narrows tunnel --listen 127.0.0.1:5432 --peer HOST:4242
Near the server:   narrows tunnel --listen 0.0.0.0:4242 --to 127.0.0.1:5432"
)]
pub struct Args {
    /// Address to listen on: for programs (with --peer), or for the other end (with --to)
    #[arg(short, long)]
    pub listen: String,
    /// The other end of the tunnel; makes this the near end
    #[arg(long, conflicts_with = "to", required_unless_present = "to")]
    pub peer: Option<String>,
    /// The server that connections are for; makes this the far end
    #[arg(long)]
    pub to: Option<String>,
    /// Connections open at once, at most
    #[arg(long, default_value_t = 256)]
    pub connections_max: u16,
    #[command(flatten)]
    pub packing: Packing,
    #[command(flatten)]
    pub session: Session,
    #[command(flatten)]
    pub security: Security,
}

pub fn run(args: Args) -> anyhow::Result<()> {
    let engine = common::engine(&args.packing);
    let mut settings = common::settings(&engine, &args.packing, &args.session)?;
    tunnel::set_limits(&mut settings, args.connections_max);
    common::on_signal()?;
    match (&args.peer, &args.to) {
        (Some(peer), _) => near(&args, peer, engine, &settings),
        (None, Some(to)) => far(&args, to, engine, settings),
        (None, None) => unreachable!("the command line requires one of them"),
    }
}

fn near(
    args: &Args,
    peer: &str,
    engine: narrows::Engine,
    settings: &Settings,
) -> anyhow::Result<()> {
    let connector = common::connector(peer, &args.security)?;
    // Whoever reaches this address uses the tunnel in our name, so it is as private as the tunnel itself.
    let listen = common::address(&args.listen)?;
    secure::require_auth(&listen, &Auth::None, args.security.insecure)?;
    let listener = Listener::bind(&listen, &Tuning::default())?;
    tunnel::keep_near(
        &|| connector.connect(&engine, settings.clone()).map(Arc::new),
        &listener,
        &mut |endpoint, first| {
            common::current(endpoint);
            if first {
                crate::log::tell!("carrying {} to {}", listener.local(), connector.address());
                narrows_io::service::ready();
            }
            common::metered(&args.session, endpoint)
                .map_err(|fault| Error::Usage(fault.to_string()))
        },
    )?;
    Ok(())
}

fn far(args: &Args, to: &str, engine: narrows::Engine, settings: Settings) -> anyhow::Result<()> {
    let target = common::address(to)?;
    let acceptor = Acceptor::new(engine, settings);
    let listener = common::listen(&args.listen, &args.security, acceptor)?;
    crate::log::tell!("carrying {} to {target}", listener.local());
    narrows_io::service::ready();
    for endpoint in listener.sessions() {
        let endpoint = Arc::new(endpoint);
        common::metered(&args.session, &endpoint)?;
        let target = target.clone();
        let carried = narrows_io::thread::spawn("tunnel-session", move || {
            if let Err(fault) = tunnel::far(&endpoint, &target) {
                tracing::warn!("{fault}");
            }
        });
        if let Err(fault) = carried {
            tracing::warn!("a session is dropped: {fault}");
        }
    }
    Ok(())
}
