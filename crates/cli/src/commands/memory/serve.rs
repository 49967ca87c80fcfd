//! `narrows memory serve`

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use narrows_core::units::Size;
use narrows_memory::{Profile, RamDisk, RamDiskConfig, RamDiskError};
use narrows_nbd::ServeError;
use serde_json::json;

use super::{control_path, view};
use crate::{
    commands::{
        block::{self, Access},
        common,
        options::{seconds, size},
    },
    exit::Usage,
    output,
};

/// All pages are looked at once in that time. In less, a server that nobody uses would do nothing else.
const IDLE_AFTER_MIN: Duration = Duration::from_millis(100);
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Use it:   nbdinfo nbd://localhost          nbdcopy FILE nbd://localhost
Mount it: mkdir /tmp/nbd; nbdfuse /tmp/nbd nbd://localhost &
          losetup --find --show /tmp/nbd/nbd       then mkfs and mount what it prints"
)]
pub struct Args {
    /// Size of the device: 512M, 8G
    #[arg(long, value_parser = size)]
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
    /// Socket that `narrows memory stat` asks
    #[arg(long, value_name = "PATH", env = "NARROWS_MEMORY_CONTROL")]
    pub control: Option<PathBuf>,
    #[command(flatten)]
    pub access: Access,
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
    // First, so that whoever stops us while we start is heard as well.
    let signals = common::stop_signals()?;
    let control = control_path(args.control.clone());
    let disk = RamDisk::start(config(&args, control.clone())?).map_err(usage)?;
    announce(&args, &disk.uris(), &control)?;
    narrows_io::service::ready();
    block::until_stopped(signals, quiet, || view::line(&disk.report()))?;
    crate::log::tell!("stopped: {}", view::line(&disk.report()));
    Ok(())
}

fn config(args: &Args, control: PathBuf) -> anyhow::Result<RamDiskConfig> {
    let access = &args.access;
    let first = std::iter::once((args.name.clone(), args.size));
    let all = first.chain(args.exports.iter().cloned());
    Ok(RamDiskConfig {
        devices: all.map(|(name, size)| (name, size.0)).collect(),
        mem_limit: args.mem_limit.map(|limit| limit.0),
        profile: match args.profile {
            ProfileName::Fast => Profile::Fast,
            ProfileName::Dense => Profile::Dense,
            ProfileName::Balanced => Profile::Balanced,
            ProfileName::Ratio => Profile::Ratio,
        },
        backing: args
            .backing
            .clone()
            .map(|path| (path, args.backing_size.map(|size| size.0))),
        idle_after: args.idle_after,
        recompress: !args.no_recompress,
        listen: access.listen(args.listen.as_deref())?,
        tls_certificates: access.tls_certificates.clone(),
        insecure: access.insecure,
        allow: access.allow.clone(),
        connections_max: access.connections_max.into(),
        control,
        metrics: access.metrics()?,
    })
}

/// Which of the errors are the command line's.
fn usage(error: RamDiskError) -> anyhow::Error {
    match error {
        RamDiskError::Empty(_) | RamDiskError::Serve(ServeError::Export(_)) => {
            Usage(error.to_string()).into()
        }
        RamDiskError::Serve(ServeError::Refused(refused)) => refused.into(),
        RamDiskError::Serve(ServeError::Auth(error)) => narrows::unproven(&error).into(),
        error => error.into(),
    }
}

/// Says how to reach it.
fn announce(args: &Args, uris: &[String], control: &Path) -> anyhow::Result<()> {
    if args.access.json {
        let document =
            json!({ "schema": "narrows.memory-serve/1", "uris": uris, "control": control });
        return output::print(&document.to_string());
    }
    let limit = args.mem_limit.map_or_else(
        || "no memory limit".into(),
        |limit| format!("at most {limit} of memory"),
    );
    crate::log::tell!("serving {}, {limit}", Size(args.size.0));
    block::say_how_to_mount(uris);
    crate::log::tell!(
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
            .map_err(|fault: narrows_core::units::ParseUnitError| fault.to_string())?,
    ))
}
