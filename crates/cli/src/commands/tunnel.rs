//! `narrows tunnel`

use std::{sync::Arc, thread, time::Duration};

use narrows::{
    Acceptor, Endpoint, Settings,
    io::{
        Listener, Tuning,
        secure::{self, Auth},
    },
};
use narrows_wire::tunnel;

use super::{
    common,
    door::Door,
    options::{Packing, Security, Session},
};

/// A connection's share: many may be open, and each may have this much outstanding.
const WINDOW_LEN: usize = 1 << 20;
const HISTORY_LEN: usize = 256 << 10;
const CHUNK_LEN: usize = 256 << 10;

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
    settings.limits.channels_max = args.connections_max;
    settings.limits.window_len = settings.limits.window_len.min(WINDOW_LEN);
    settings.limits.history_len_max = HISTORY_LEN;
    settings.limits.chunk_len_max = CHUNK_LEN;
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
    let peer = common::address(peer)?;
    let auth = common::auth(&args.security)?;
    secure::require_auth_to(&peer, &auth, args.security.insecure)?;
    // Whoever reaches this address uses the tunnel in our name, so it is as private as the tunnel itself.
    let listen = common::address(&args.listen)?;
    secure::require_auth(&listen, &Auth::None, args.security.insecure)?;
    let listener = Listener::bind(&listen, &Tuning::default())?;
    let mut first = true;
    loop {
        match Endpoint::connect(
            &engine,
            settings.clone(),
            common::dial(peer.clone(), auth.clone()),
        ) {
            Ok(endpoint) => {
                let endpoint = Arc::new(endpoint);
                common::interruptible(&endpoint)?;
                common::metered(&args.session, &endpoint)?;
                if std::mem::replace(&mut first, false) {
                    eprintln!("carrying {} to {peer}", listener.local());
                }
                if let Err(fault) = tunnel::near(&endpoint, &listener) {
                    tracing::warn!("{fault}; connecting again");
                }
            }
            // The first time, the user is there to mend it; later, the other end may be restarting.
            Err(end) if first => return Err(end.into()),
            Err(end) => tracing::warn!("{end}; trying again"),
        }
        thread::sleep(Duration::from_millis(500));
    }
}

fn far(args: &Args, to: &str, engine: narrows::Engine, settings: Settings) -> anyhow::Result<()> {
    let target = common::address(to)?;
    let door = Door::open(&args.listen, &args.security)?;
    eprintln!("carrying {} to {target}", door.local());
    for endpoint in door.sessions(Acceptor::new(engine, settings))? {
        let endpoint = Arc::new(endpoint);
        common::metered(&args.session, &endpoint)?;
        let target = target.clone();
        narrows::io::thread::spawn("tunnel-session", move || {
            if let Err(fault) = tunnel::far(&endpoint, &target) {
                tracing::warn!("{fault}");
            }
        })?;
    }
    Ok(())
}
