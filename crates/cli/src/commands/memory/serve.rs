//! `narrows memory serve`

use std::{
    path::{Path, PathBuf},
    sync::{Arc, mpsc},
    thread,
    time::{Duration, Instant},
};

use anyhow::Context;
use narrows::{
    core::units::Size,
    io::{
        Address, Listener, Tuning, allocator,
        crew::Crew,
        meter::{self, CpuTime},
        secure::{self, Auth, Side},
    },
};
use narrows_memory::{
    Backing, Budget, Chains, Keeper, KeeperConfig, Profile, Store, StoreConfig,
    control::{self, Control, Named, Report},
};
use narrows_nbd::{Config, Export, Exports, Server};
use serde_json::json;
use signal_hook::{
    consts::{SIGINT, SIGTERM},
    iterator::Signals,
};

use super::{control_path, metrics, view};
use crate::{
    commands::{common, options::seconds},
    exit::Usage,
    output,
};

/// The port registered for NBD.
const PORT: u16 = 10809;
/// Bytes that a Unix socket holds.
const SEND_BUFFER: usize = 1 << 20;
/// All pages are looked at once in that time. In less, a server that nobody uses would do nothing else.
const IDLE_AFTER_MIN: Duration = Duration::from_millis(100);
/// Most threads that help with one long request: one has at most 32 pages at a time.
const HANDS_MAX: usize = 7;

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Use it:   nbdinfo nbd://localhost          nbdcopy FILE nbd://localhost
Mount it: mkdir /tmp/nbd; nbdfuse /tmp/nbd nbd://localhost &
          losetup --find --show /tmp/nbd/nbd       then mkfs and mount what it prints"
)]
pub struct Args {
    /// Size of the device: 512M, 8G
    #[arg(long)]
    pub size: Size,
    /// Most memory for its pages; beyond it writes fail with ENOSPC, and nothing written before is lost
    #[arg(long, value_name = "SIZE")]
    pub mem_limit: Option<Size>,
    /// Name of its export; nameless if not given
    #[arg(long, default_value = "", value_name = "NAME")]
    pub name: String,
    /// One more device under a name of its own, within the same memory limit; may be repeated
    #[arg(long = "export", value_name = "NAME=SIZE", value_parser = export)]
    pub exports: Vec<(String, Size)>,
    /// TCP address to listen on: HOST[:PORT]
    #[arg(
        short,
        long,
        value_name = "ADDRESS",
        default_value = "127.0.0.1:10809",
        default_value_if("unix", clap::builder::ArgPredicate::IsPresent, None),
        env = "NARROWS_MEMORY_LISTEN"
    )]
    pub listen: Option<String>,
    /// Unix socket to listen on
    #[arg(long, value_name = "PATH")]
    pub unix: Option<PathBuf>,
    /// How hard to pack as pages are written
    #[arg(long, value_enum, default_value_t)]
    pub profile: ProfileName,
    /// File or block device for pages that do not pack, and for cold ones while memory is short; nothing of them is
    /// left when the server ends, and a file that was not there before is never seen
    #[arg(long, value_name = "FILE")]
    pub backing: Option<PathBuf>,
    /// Most bytes of the backing file
    #[arg(long, value_name = "SIZE", requires = "backing")]
    pub backing_size: Option<Size>,
    /// Seconds after which an untouched page is cold, and packed harder; 0.1 at least
    #[arg(long, default_value = "10", value_name = "SECONDS", value_parser = idle_after)]
    pub idle_after: Duration,
    /// Leave cold pages as they were written
    #[arg(long)]
    pub no_recompress: bool,
    /// Connections open at once, at most
    #[arg(long, default_value_t = 64, value_name = "N")]
    pub connections_max: u16,
    /// Socket that `narrows memory stat` asks
    #[arg(long, value_name = "PATH", env = "NARROWS_MEMORY_CONTROL")]
    pub control: Option<PathBuf>,
    /// Serve Prometheus metrics at this address
    #[arg(long, value_name = "ADDRESS", env = "NARROWS_METRICS")]
    pub metrics: Option<String>,
    /// Mutual TLS 1.3 with the certificates in this directory (ca-cert.pem, server-cert.pem, server-key.pem)
    #[arg(long, value_name = "DIR", env = "NARROWS_TLS_CERTIFICATES")]
    pub tls_certificates: Option<PathBuf>,
    /// Allow plain connections from beyond this host: anybody on the way can read and change the data
    #[arg(long)]
    pub insecure: bool,
    /// Print where it listens as JSON
    #[arg(long)]
    pub json: bool,
}

/// A profile of the packer by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum ProfileName {
    /// Least processor time; cold pages are packed harder later
    Fast,
    /// As fast on text; numbers packed shorter
    #[default]
    Dense,
    /// Less memory
    Balanced,
    /// Least memory
    Ratio,
}

pub fn run(args: Args, quiet: bool) -> anyhow::Result<()> {
    let begun = Instant::now();
    allocator::share_one_arena();
    // First, so that whoever stops us while we start is heard as well.
    let mut signals = Signals::new([SIGINT, SIGTERM]).context("cannot catch signals")?;
    let listeners = listeners(&args)?;
    let chains = Chains::default();
    let stores = stores(&args, &chains)?;
    let mut exports = Exports::default();
    for (name, store) in &stores {
        let description = "a RAM disk of packed pages; its content ends with the server".into();
        let export = Export {
            name: name.clone(),
            description,
            device: store.clone(),
            read_only: false,
        };
        exports
            .add(export)
            .map_err(|fault| Usage(fault.to_string()))?;
    }
    let config = Config {
        exports,
        tls_certificates: args.tls_certificates.clone(),
        insecure: args.insecure,
        connections_max: args.connections_max.into(),
    };
    let server = Arc::new(Server::start(listeners, config)?);
    let keeper = KeeperConfig {
        idle_after: args.idle_after,
        recompress: !args.no_recompress,
        chains,
    };
    let keeper = Keeper::start(
        stores.iter().map(|(_, store)| store.clone()).collect(),
        keeper,
    )?;

    let report = {
        let (server, stores) = (Arc::downgrade(&server), stores.clone());
        Arc::new(move || Report {
            schema: control::SCHEMA.into(),
            pid: std::process::id(),
            uptime_s: begun.elapsed().as_secs_f64(),
            resident_bytes: meter::Memory::of_process().map_or(0, |memory| memory.resident),
            cpu_s: CpuTime::of_process().total_ns() as f64 / 1e9,
            connections: server.upgrade().map_or(0, |server| server.connections()),
            stores: stores
                .iter()
                .map(|(name, store)| {
                    let stat = store.stat();
                    Named {
                        name: name.clone(),
                        ratio: stat.ratio(),
                        stat,
                    }
                })
                .collect(),
        })
    };
    let control_at = control_path(args.control.clone());
    let control = Control::start(&control_at, report.clone())
        .context("cannot be asked by `narrows memory stat`; name another socket with --control")?;
    if let Some(address) = &args.metrics {
        // The thread that answers outlives us; what the stores have must not.
        let report = Arc::downgrade(&report);
        let render = move || {
            report
                .upgrade()
                .map_or_else(String::new, |report| metrics::render(&report()))
        };
        crate::metrics::serve(address, Arc::new(render))?;
    }
    announce(&args, &server, &control_at)?;

    let (stop, stopped) = mpsc::channel::<()>();
    narrows::io::thread::spawn("signals", move || {
        signals.forever().next();
        drop(stop);
    })?;
    let bar = output::progress(quiet);
    while stopped.recv_timeout(Duration::from_secs(1)) == Err(mpsc::RecvTimeoutError::Timeout) {
        bar.set_message(view::line(&report()));
    }
    bar.finish_and_clear();
    eprintln!("stopped: {}", view::line(&report()));
    drop((control, keeper));
    Arc::into_inner(server)
        .context("the server is held by reports in weak hands only")?
        .stop();
    Ok(())
}

fn listeners(args: &Args) -> anyhow::Result<Vec<Listener>> {
    let auth = match &args.tls_certificates {
        Some(dir) => Auth::Tls {
            dir: dir.clone(),
            server_name: None,
        },
        None => Auth::None,
    };
    auth.check(Side::Server)
        .map_err(|fault| common::failed_auth(&fault))?;
    let tcp = args
        .listen
        .as_deref()
        .map(|text| Address::parse(text, PORT).map_err(|fault| Usage(fault.to_string())));
    let addresses = tcp
        .transpose()?
        .into_iter()
        .chain(args.unix.clone().map(Address::Unix));
    addresses
        .map(|address| {
            // Replies are gathered already; a limit on unsent bytes would only cost wake-ups. And a Unix socket, which
            // the kernel does not tune, holds a few long replies, so that we go on while the client takes them.
            let send_buffer = matches!(address, Address::Unix(_)).then_some(SEND_BUFFER);
            let tuning = Tuning {
                notsent_lowat: None,
                send_buffer,
                ..Tuning::default()
            };
            secure::require_auth(&address, &auth, args.insecure)?;
            Ok(Listener::bind(&address, &tuning)?)
        })
        .collect()
}

fn stores(args: &Args, chains: &Chains) -> anyhow::Result<Vec<(String, Arc<Store>)>> {
    let budget = Arc::new(Budget::new(args.mem_limit.map(|limit| limit.0)));
    let open =
        |path: &Path| Backing::open(path, args.backing_size.map(|size| size.0)).map(Arc::new);
    let backing = args.backing.as_deref().map(open).transpose()?;
    let profile = match args.profile {
        ProfileName::Fast => Profile::Fast,
        ProfileName::Dense => Profile::Dense,
        ProfileName::Balanced => Profile::Balanced,
        ProfileName::Ratio => Profile::Ratio,
    };
    // A processor is the request's own, and more hands than there are pages to deal out find nothing to do.
    let hands = thread::available_parallelism()
        .map_or(1, usize::from)
        .min(HANDS_MAX + 1)
        - 1;
    let crew = Arc::new(Crew::new("memory-crew", hands).context("cannot start a thread")?);
    let first = std::iter::once((args.name.clone(), args.size));
    first
        .chain(args.exports.iter().cloned())
        .map(|(name, size)| {
            if size.0 == 0 {
                return Err(Usage(format!(
                    "the RAM disk `{name}` would hold nothing; choose a larger --size"
                ))
                .into());
            }
            let (budget, backing, chains, crew) = (
                budget.clone(),
                backing.clone(),
                chains.clone(),
                crew.clone(),
            );
            let store = Store::new(StoreConfig {
                size: size.0,
                profile,
                chains,
                budget,
                backing,
                crew,
            });
            let store = store.with_context(|| {
                format!("cannot make a device of {size}; choose a smaller --size")
            })?;
            Ok((name, Arc::new(store)))
        })
        .collect()
}

/// Says how to reach it.
fn announce(args: &Args, server: &Server, control: &Path) -> anyhow::Result<()> {
    let scheme = if args.tls_certificates.is_some() {
        "nbds"
    } else {
        "nbd"
    };
    let uri = |address: &Address| match address {
        Address::Unix(path) => format!("{scheme}+unix:///{}?socket={}", args.name, path.display()),
        address => format!("{scheme}://{address}/{}", args.name),
    };
    let uris: Vec<_> = server.addresses().iter().map(uri).collect();
    if args.json {
        let document =
            json!({ "schema": "narrows.memory-serve/1", "uris": uris, "control": control });
        return output::print(&document.to_string());
    }
    let limit = args.mem_limit.map_or_else(
        || "no memory limit".into(),
        |limit| format!("at most {limit} of memory"),
    );
    eprintln!("serving {}, {limit}", Size(args.size.0));
    for uri in &uris {
        eprintln!("  {uri}");
    }
    if let Some(uri) = uris.first() {
        eprintln!("to mount it: mkdir -p /tmp/nbd && nbdfuse /tmp/nbd '{uri}' &");
        eprintln!(
            "             mount \"$(losetup --find --show /tmp/nbd/nbd)\" /mnt    (after mkfs)"
        );
    }
    eprintln!(
        "to watch it: narrows memory stat --watch --control {}",
        control.display()
    );
    Ok(())
}

fn idle_after(text: &str) -> Result<Duration, String> {
    seconds(text).and_then(|time| {
        let words = "less than 0.1 seconds; use --no-recompress to leave cold pages as they are";
        if time < IDLE_AFTER_MIN {
            Err(words.into())
        } else {
            Ok(time)
        }
    })
}

fn export(text: &str) -> Result<(String, Size), String> {
    let (name, size) = text.rsplit_once('=').ok_or("write it as NAME=SIZE")?;
    Ok((
        name.into(),
        size.parse()
            .map_err(|fault: narrows::core::units::ParseUnitError| fault.to_string())?,
    ))
}
