//! `narrows memory serve`

use std::{
    path::Path,
    sync::{Arc, mpsc},
    thread,
    time::{Duration, Instant},
};

use anyhow::Context;
use narrows::{
    core::units::Size,
    io::{
        Address, Listener, Tuning,
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
    args::{MemoryServe, ProfileName},
    commands::common,
    exit::Usage,
    output,
};

/// The port registered for NBD.
const PORT: u16 = 10809;
/// Bytes that a Unix socket holds.
const SEND_BUFFER: usize = 1 << 20;

pub fn run(args: MemoryServe, quiet: bool) -> anyhow::Result<()> {
    let begun = Instant::now();
    // First, so that whoever stops us while we start is heard as well.
    let mut signals = Signals::new([SIGINT, SIGTERM]).context("cannot catch signals")?;
    let listeners = listeners(&args)?;
    let chains = Chains::default();
    let stores = stores(&args, &chains)?;
    let mut exports = Exports::default();
    for (name, store) in &stores {
        let description = "a RAM disk of packed pages; its content ends with the server".into();
        let export = Export { name: name.clone(), description, device: store.clone(), read_only: false };
        exports.add(export).map_err(|fault| Usage(fault.to_string()))?;
    }
    let config = Config {
        exports,
        tls_certificates: args.tls_certificates.clone(),
        insecure: args.insecure,
        connections_max: args.connections_max.into(),
    };
    let server = Arc::new(Server::start(listeners, config)?);
    let keeper = KeeperConfig { idle_after: args.idle_after, recompress: !args.no_recompress, chains };
    let keeper = Keeper::start(stores.iter().map(|(_, store)| store.clone()).collect(), keeper)?;

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
                    Named { name: name.clone(), ratio: stat.ratio(), stat }
                })
                .collect(),
        })
    };
    let control_at = control_path(args.control.clone());
    let control = Control::start(&control_at, report.clone())
        .context("cannot be asked by `narrows memory stat`; name another socket with --control")?;
    if let Some(address) = &args.metrics {
        let report = report.clone();
        crate::metrics::serve(address, Arc::new(move || metrics::render(&report())))?;
    }
    announce(&args, &server, &control_at)?;

    let (stop, stopped) = mpsc::channel::<()>();
    thread::Builder::new().name("signals".into()).spawn(move || {
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
    Arc::into_inner(server).context("the server is held by reports in weak hands only")?.stop();
    Ok(())
}

fn listeners(args: &MemoryServe) -> anyhow::Result<Vec<Listener>> {
    let auth = match &args.tls_certificates {
        Some(dir) => Auth::Tls { dir: dir.clone(), server_name: None },
        None => Auth::None,
    };
    auth.check(Side::Server).map_err(|fault| common::failed_auth(&fault))?;
    let tcp = args.listen.as_deref().map(|text| Address::parse(text, PORT).map_err(|fault| Usage(fault.to_string())));
    let addresses = tcp.transpose()?.into_iter().chain(args.unix.clone().map(Address::Unix));
    addresses
        .map(|address| {
            // Replies are gathered already; a limit on unsent bytes would only cost wake-ups. And a Unix socket, which
            // the kernel does not tune, holds a few long replies, so that we go on while the client takes them.
            let send_buffer = matches!(address, Address::Unix(_)).then_some(SEND_BUFFER);
            let tuning = Tuning { notsent_lowat: None, send_buffer, ..Tuning::default() };
            secure::require_auth(&address, &auth, args.insecure)?;
            Ok(Listener::bind(&address, &tuning)?)
        })
        .collect()
}

fn stores(args: &MemoryServe, chains: &Chains) -> anyhow::Result<Vec<(String, Arc<Store>)>> {
    let budget = Arc::new(Budget::new(args.mem_limit.map(|limit| limit.0)));
    let open = |path: &Path| Backing::open(path, args.backing_size.map(|size| size.0)).map(Arc::new);
    let backing = args.backing.as_deref().map(open).transpose()?;
    let profile = match args.profile {
        ProfileName::Fast => Profile::Fast,
        ProfileName::Balanced => Profile::Balanced,
        ProfileName::Ratio => Profile::Ratio,
    };
    let first = std::iter::once((args.name.clone(), args.size));
    first
        .chain(args.exports.iter().cloned())
        .map(|(name, size)| {
            let (budget, backing, chains) = (budget.clone(), backing.clone(), chains.clone());
            let store = Store::new(StoreConfig { size: size.0, profile, chains, budget, backing });
            let store = store.with_context(|| format!("cannot make a device of {size}; choose a smaller --size"))?;
            Ok((name, Arc::new(store)))
        })
        .collect()
}

/// Says how to reach it.
fn announce(args: &MemoryServe, server: &Server, control: &Path) -> anyhow::Result<()> {
    let scheme = if args.tls_certificates.is_some() { "nbds" } else { "nbd" };
    let uri = |address: &Address| match address {
        Address::Unix(path) => format!("{scheme}+unix:///{}?socket={}", args.name, path.display()),
        address => format!("{scheme}://{address}/{}", args.name),
    };
    let uris: Vec<_> = server.addresses().iter().map(uri).collect();
    if args.json {
        let document = json!({ "schema": "narrows.memory-serve/1", "uris": uris, "control": control });
        return output::print(&document.to_string());
    }
    let limit = args.mem_limit.map_or_else(|| "no memory limit".into(), |limit| format!("at most {limit} of memory"));
    eprintln!("serving {}, {limit}", Size(args.size.0));
    for uri in &uris {
        eprintln!("  {uri}");
    }
    if let Some(uri) = uris.first() {
        eprintln!("to mount it: mkdir -p /tmp/nbd && nbdfuse /tmp/nbd '{uri}' &");
        eprintln!("             mount \"$(losetup --find --show /tmp/nbd/nbd)\" /mnt    (after mkfs)");
    }
    eprintln!("to watch it: narrows memory stat --watch --control {}", control.display());
    Ok(())
}
