//! `narrows disk serve`

use std::{
    path::{Path, PathBuf},
    sync::mpsc,
    time::Duration,
};

use anyhow::Context;
use narrows_core::units::Size;
use narrows_disk::{ServedConfig, ServedDisks, Settings};
use narrows_io::Address;
use narrows_nbd::PORT;
use serde_json::json;
use signal_hook::{
    consts::{SIGINT, SIGTERM},
    iterator::Signals,
};

use super::{ProfileName, control_path, of_disk, of_served, view};
use crate::{exit::Usage, output};

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Use it:   nbdinfo nbd://localhost          nbdcopy FILE nbd://localhost
Mount it: mkdir /tmp/nbd; nbdfuse /tmp/nbd nbd://localhost &
          losetup --find --show /tmp/nbd/nbd       then mkfs and mount what it prints
QEMU:     -drive driver=nbd,server.type=unix,server.path=SOCKET,discard=unmap"
)]
#[command(group = clap::ArgGroup::new("what").required(true).multiple(true).args(["backing", "exports"]))]
pub struct Args {
    /// Where a disk was made: file, block device, `rbd:POOL/IMAGE[:id=USER][:conf=FILE]`
    #[arg(long, value_name = "BACKING")]
    pub backing: Option<String>,
    /// Name of its export; nameless if not given
    #[arg(long, default_value = "", value_name = "NAME", requires = "backing")]
    pub name: String,
    /// One more disk under a name of its own; may be repeated
    #[arg(long = "export", value_name = "NAME=BACKING", value_parser = export)]
    pub exports: Vec<(String, String)>,
    /// TCP address to listen on: HOST[:PORT]
    #[arg(
        short,
        long,
        value_name = "ADDRESS",
        default_value = "127.0.0.1:10809",
        default_value_if("unix", clap::builder::ArgPredicate::IsPresent, None),
        env = "NARROWS_DISK_LISTEN"
    )]
    pub listen: Option<String>,
    /// Unix socket to listen on
    #[arg(long, value_name = "PATH")]
    pub unix: Option<PathBuf>,
    /// How hard to compress; as the disk was made if not given
    #[arg(long, value_enum)]
    pub profile: Option<ProfileName>,
    /// Take no writes, and write nothing to the backing
    #[arg(long)]
    pub read_only: bool,
    /// Leave idle data as it was written
    #[arg(long)]
    pub no_recompress: bool,
    /// Requests of a connection done side by side, at most
    #[arg(long, default_value_t = 32, value_name = "N")]
    pub workers: u16,
    /// Connections open at once, at most
    #[arg(long, default_value_t = 64, value_name = "N")]
    pub connections_max: u16,
    /// Socket that `narrows disk stat` asks
    #[arg(long, value_name = "PATH", env = "NARROWS_DISK_CONTROL")]
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
    /// Take only clients whose certificate carries this name; may be repeated
    #[arg(long, value_name = "NAME", requires = "tls_certificates")]
    pub allow: Vec<String>,
    /// Print where it listens as JSON
    #[arg(long)]
    pub json: bool,
}

pub fn run(args: Args, quiet: bool) -> anyhow::Result<()> {
    // First, so that whoever stops us while we start is heard as well.
    let mut signals = Signals::new([SIGINT, SIGTERM]).context("cannot catch signals")?;
    let control = control_path(args.control.clone());
    let disks = ServedDisks::start(config(&args, control.clone())?).map_err(of_served)?;
    announce(&args, &disks, &control)?;
    let (stop, stopped) = mpsc::channel::<()>();
    narrows_io::thread::spawn("signals", move || {
        signals.forever().next();
        drop(stop);
    })?;
    let bar = output::progress(quiet);
    while stopped.recv_timeout(Duration::from_secs(1)) == Err(mpsc::RecvTimeoutError::Timeout) {
        bar.set_message(view::line(&disks.report()));
    }
    bar.finish_and_clear();
    let last = disks.report();
    disks.stop().map_err(of_disk)?;
    eprintln!("stopped: {}", view::line(&last));
    Ok(())
}

fn config(args: &Args, control: PathBuf) -> anyhow::Result<ServedConfig> {
    let address = |text: &str| {
        Address::parse(text, PORT).map_err(|fault| anyhow::Error::from(Usage(fault.to_string())))
    };
    let tcp = args.listen.as_deref().map(address).transpose()?;
    let first = args
        .backing
        .clone()
        .map(|backing| (args.name.clone(), backing));
    let mut settings = Settings::default()
        .read_only(args.read_only)
        .recompress(!args.no_recompress)
        .workers(args.workers);
    if let Some(profile) = args.profile {
        settings = settings.profile(profile.into());
    }
    Ok(ServedConfig {
        exports: first
            .into_iter()
            .chain(args.exports.iter().cloned())
            .collect(),
        settings,
        listen: tcp
            .into_iter()
            .chain(args.unix.clone().map(Address::Unix))
            .collect(),
        tls_certificates: args.tls_certificates.clone(),
        insecure: args.insecure,
        allow: args.allow.clone(),
        connections_max: args.connections_max.into(),
        control,
        metrics: args.metrics.as_deref().map(address).transpose()?,
    })
}

/// Says how to reach it.
fn announce(args: &Args, disks: &ServedDisks, control: &Path) -> anyhow::Result<()> {
    let (uris, report) = (disks.uris(), disks.report());
    if args.json {
        let exports: Vec<_> = report.disks.iter().map(|disk| &disk.name).collect();
        let document = json!({
            "schema": "narrows.disk-serve/1", "uris": uris, "exports": exports, "control": control,
            "metrics": disks.metrics().map(ToString::to_string),
        });
        return output::print(&document.to_string());
    }
    for disk in &report.disks {
        let (size, backing) = (Size(disk.stat.size), Size(disk.stat.capacity));
        eprintln!("serving {}: {size} on {backing}", disk.backing);
    }
    for uri in &uris {
        eprintln!("  {uri}");
    }
    if let Some(address) = disks.metrics() {
        eprintln!("metrics at http://{address}/metrics");
    }
    if let Some(uri) = uris.first() {
        eprintln!("to mount it: mkdir -p /tmp/nbd && nbdfuse /tmp/nbd '{uri}' &");
        eprintln!(
            "             mount \"$(losetup --find --show /tmp/nbd/nbd)\" /mnt    (after mkfs)"
        );
    }
    let control = control.display();
    eprintln!("to watch it: narrows disk stat --watch --control {control}");
    Ok(())
}

fn export(text: &str) -> Result<(String, String), String> {
    let (name, backing) = text.split_once('=').ok_or("write it as NAME=BACKING")?;
    Ok((name.into(), backing.into()))
}
