//! The command line of `narrows migrate`.

use std::time::Duration;

use narrows_core::units::{Rate, Size};
use narrows_migrate::{aware::PAGE_LEN, migration::Options};

use super::super::options::{Packing, Security, milliseconds, seconds};

#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// Beside the destination: take migrations and hand them to its QEMU
    Serve(ServeArgs),
    /// Beside the source: move its guest now, and print what that took
    Run(RunArgs),
    /// Beside the source: a socket that QEMU, libvirt or a script migrates to
    Tunnel(TunnelArgs),
    /// Ask a `run`, `tunnel` or `serve` with --status how far it is
    Status(StatusArgs),
}

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Beside the destination:  qemu-system-x86_64 … -incoming defer -S -qmp unix:/run/d.qmp,server,nowait
                         narrows migrate serve --listen 0.0.0.0:4242 --to unix:/run/d.sock --qmp unix:/run/d.qmp
Beside the source:       narrows migrate run --qmp unix:/run/s.qmp --to HOST

A QEMU started with -S lets its guest run only when the source has let go of it: the guest never runs twice."
)]
pub struct ServeArgs {
    /// Address to listen on, for the source's side
    #[arg(short, long, default_value = "127.0.0.1:4242", env = "NARROWS_LISTEN")]
    pub listen: String,
    /// Where the destination's QEMU waits for a migration; with --qmp it is told to
    #[arg(long, value_name = "ADDRESS")]
    pub to: String,
    /// QMP socket of the destination's QEMU: it is set up as the source's is. Start it with `-incoming defer`
    #[arg(long, value_name = "ADDRESS")]
    pub qmp: Option<String>,
    /// Let the source's QEMU connect to --to by itself where the link carries more than processors pack in the tunnel:
    /// packing by its own zstd, if both QEMUs have that (needs --qmp), or on a link faster still as it is. --to is then
    /// HOST:PORT of this host. With --tls-certificates it does so under QEMU's own TLS, and both QEMUs must be able to
    /// read their directory (needs --qmp); else QEMU neither encrypts nor asks who comes, so beyond this machine this
    /// needs --insecure
    #[arg(long)]
    pub direct: bool,
    #[command(flatten)]
    pub carrying: Carrying,
    #[command(flatten)]
    pub security: Security,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum When {
    Auto,
    Always,
    Never,
}

#[derive(Debug, clap::Args)]
pub struct RunArgs {
    /// QMP socket of the source's QEMU
    #[arg(long, value_name = "ADDRESS")]
    pub qmp: String,
    /// The destination's `narrows migrate serve`: HOST[:PORT]
    #[arg(long, value_name = "ADDRESS")]
    pub to: String,
    /// Multifd channels; 0 sends everything over one
    #[arg(long, default_value_t = 2, value_name = "N", value_parser = clap::value_parser!(u8).range(0..=32))]
    pub channels: u8,
    /// How long the guest may stand still, in milliseconds; QEMU's setting if not given
    #[arg(long, value_name = "MS", value_parser = milliseconds)]
    pub downtime_ms: Option<Duration>,
    /// Most that QEMU may send, `800mbit`; no limit if not given
    #[arg(long, value_name = "RATE")]
    pub max_bandwidth: Option<Rate>,
    /// A capability to switch on at both sides: `auto-converge`, `zero-copy-send`, … May be given again
    #[arg(long = "capability", value_name = "NAME")]
    pub capabilities: Vec<String>,
    /// Whether QEMU connects to the destination's by itself, where `serve --direct` lets it: if the link carries more
    /// than processors pack in the tunnel, whatever it carries, or never. The faster the link, the less QEMU packs;
    /// without multifd nothing
    #[arg(long, value_enum, default_value = "auto", value_name = "WHEN")]
    pub direct: When,
    /// Address that QEMU connects to here; a Unix socket in a directory of its own if not given
    #[arg(short, long, value_name = "ADDRESS")]
    pub listen: Option<String>,
    /// Print the result as JSON
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub carrying: Carrying,
    #[command(flatten)]
    pub reading: Reading,
    #[command(flatten)]
    pub packing: Packing,
    #[command(flatten)]
    pub security: Security,
}

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Then, in the source's QEMU: migrate-set-capabilities return-path on, multifd as you like; and
migrate unix:/run/s.sock. Set avail-switchover-bandwidth (QEMU 8.2) to the number of bytes a second that
`narrows migrate status` shows, or give --pace."
)]
pub struct TunnelArgs {
    /// Address to listen on for the source's QEMU: one for each virtual machine
    #[arg(short, long)]
    pub listen: String,
    /// The destination's `narrows migrate serve`: HOST[:PORT]
    #[arg(long, value_name = "ADDRESS")]
    pub peer: String,
    /// Take in no more than what the link carries of it, for a QEMU that was not told the link's rate
    #[arg(long)]
    pub pace: bool,
    /// How long the guest may stand still, in milliseconds: what QEMU was given
    #[arg(long, value_name = "MS", default_value = "300", value_parser = milliseconds)]
    pub downtime_ms: Duration,
    #[command(flatten)]
    pub carrying: Carrying,
    #[command(flatten)]
    pub reading: Reading,
    #[command(flatten)]
    pub packing: Packing,
    #[command(flatten)]
    pub security: Security,
}

#[derive(Debug, clap::Args)]
pub struct StatusArgs {
    /// Address that was given to --status
    pub at: String,
    /// Print as JSON
    #[arg(long)]
    pub json: bool,
}

/// How a migration is carried.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Carrying")]
pub struct Carrying {
    /// Memory for pages to send differences against and copy from, on either side: the source's at most as much as the
    /// destination's
    #[arg(long, default_value = "448M", value_name = "SIZE")]
    pub keep: Size,
    /// Seconds a cut session waits for its peer before the migration is given up
    #[arg(long, default_value = "3", value_name = "SECONDS", value_parser = seconds)]
    pub resume_within: Duration,
    /// Seconds of silence after which a link counts as cut
    #[arg(long, default_value = "6", value_name = "SECONDS", value_parser = seconds)]
    pub silence: Duration,
    /// Answer `narrows migrate status` at this address
    #[arg(long, value_name = "ADDRESS")]
    pub status: Option<String>,
}

impl Carrying {
    /// What they say of a migration.
    pub fn options(&self) -> Options {
        let keep_max = (self.keep.0 / PAGE_LEN as u64)
            .try_into()
            .unwrap_or(u32::MAX);
        Options {
            keep_max,
            ..Options::default()
        }
    }
}

/// How what the source's QEMU sends is read.
#[derive(Debug, Clone, Copy, clap::Args)]
#[command(next_help_heading = "Carrying")]
pub struct Reading {
    /// Carry multifd packets as any bytes: leave no page out, send no differences
    #[arg(long)]
    pub opaque: bool,
}
