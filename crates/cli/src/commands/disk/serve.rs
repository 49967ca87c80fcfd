//! `narrows disk serve`

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
};

use narrows_core::units::Size;
use narrows_disk::{ServedConfig, ServedDisks, Settings};
use serde_json::json;

use super::{ProfileName, control_path, of_disk, of_served, view};
use crate::{
    commands::{
        block::{self, Access},
        common,
    },
    output,
};

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
    pub backing: Option<OsString>,
    /// Name of its export; nameless if not given
    #[arg(long, default_value = "", value_name = "NAME", requires = "backing")]
    pub name: String,
    /// One more disk under a name of its own; may be repeated
    #[arg(long = "export", value_name = "NAME=BACKING", value_parser = export)]
    pub exports: Vec<(String, OsString)>,
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
    /// Socket that `narrows disk stat` asks
    #[arg(long, value_name = "PATH", env = "NARROWS_DISK_CONTROL")]
    pub control: Option<PathBuf>,
    #[command(flatten)]
    pub access: Access,
}

pub fn run(args: Args, quiet: bool) -> anyhow::Result<()> {
    // First, so that whoever stops us while we start is heard as well.
    let signals = common::stop_signals()?;
    let control = control_path(args.control.clone());
    let disks = ServedDisks::start(config(&args, control.clone())?).map_err(of_served)?;
    announce(&args, &disks, &control)?;
    block::until_stopped(signals, quiet, || view::line(&disks.report()))?;
    let last = disks.report();
    disks.stop().map_err(of_disk)?;
    crate::log::tell!("stopped: {}", view::line(&last));
    Ok(())
}

fn config(args: &Args, control: PathBuf) -> anyhow::Result<ServedConfig> {
    let access = &args.access;
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
        listen: access.listen(args.listen.as_deref())?,
        tls_certificates: access.tls_certificates.clone(),
        insecure: access.insecure,
        allow: access.allow.clone(),
        connections_max: access.connections_max.into(),
        control,
        metrics: access.metrics()?,
    })
}

/// Says how to reach it.
fn announce(args: &Args, disks: &ServedDisks, control: &Path) -> anyhow::Result<()> {
    let (uris, report) = (disks.uris(), disks.report());
    if args.access.json {
        let exports: Vec<_> = report.disks.iter().map(|disk| &disk.name).collect();
        let document = json!({
            "schema": "narrows.disk-serve/1", "uris": uris, "exports": exports, "control": control,
            "metrics": disks.metrics().map(ToString::to_string),
        });
        return output::print(&document.to_string());
    }
    for disk in &report.disks {
        let (size, backing) = (Size(disk.stat.size), Size(disk.stat.capacity));
        crate::log::tell!("serving {}: {size} on {backing}", disk.backing);
    }
    if let Some(address) = disks.metrics() {
        crate::log::tell!("metrics at http://{address}/metrics");
    }
    block::say_how_to_mount(&uris);
    let control = control.display();
    crate::log::tell!("to watch it: narrows disk stat --watch --control {control}");
    Ok(())
}

fn export(text: &str) -> Result<(String, OsString), String> {
    let (name, backing) = text.split_once('=').ok_or("write it as NAME=BACKING")?;
    Ok((name.into(), backing.into()))
}
