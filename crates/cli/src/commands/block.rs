//! What the servers of block devices have in common: `narrows memory` and `narrows disk`.

use std::{
    io::{self, IsTerminal},
    path::PathBuf,
    sync::mpsc::{self, RecvTimeoutError},
    thread,
    time::Duration,
};

use narrows_io::Address;
use narrows_nbd::PORT;
use serde::Serialize;
use signal_hook::iterator::Signals;

use crate::{exit::Usage, output};

/// How clients reach the devices.
#[derive(Debug, clap::Args)]
pub struct Access {
    /// Unix socket to listen on
    #[arg(long, value_name = "PATH")]
    pub unix: Option<PathBuf>,
    /// Connections open at once, at most
    #[arg(long, default_value_t = 64, value_name = "N")]
    pub connections_max: u16,
    /// Serve Prometheus metrics at this address
    #[arg(long, value_name = "ADDRESS", env = "NARROWS_METRICS")]
    pub metrics: Option<String>,
    /// Mutual TLS 1.3 with the certificates in this directory (ca-cert.pem, server-cert.pem, server-key.pem)
    #[arg(long, value_name = "DIR", env = "NARROWS_TLS_CERTIFICATES")]
    pub tls_certificates: Option<PathBuf>,
    /// Take only clients whose certificate carries this name; may be repeated
    #[arg(long, value_name = "NAME", requires = "tls_certificates")]
    pub allow: Vec<String>,
    /// Allow plain connections from beyond this host: anybody on the way can read and change the data
    #[arg(long)]
    pub insecure: bool,
    /// Print where it listens as JSON
    #[arg(long)]
    pub json: bool,
}

impl Access {
    /// Where to listen: at `tcp`, if given, and at the Unix socket.
    pub fn listen(&self, tcp: Option<&str>) -> anyhow::Result<Vec<Address>> {
        let tcp = tcp.map(address).transpose()?;
        let unix = self.unix.clone().map(Address::Unix);
        Ok(tcp.into_iter().chain(unix).collect())
    }

    pub fn metrics(&self) -> anyhow::Result<Option<Address>> {
        self.metrics.as_deref().map(address).transpose()
    }
}

fn address(text: &str) -> anyhow::Result<Address> {
    Address::parse(text, PORT).map_err(|fault| Usage(fault.to_string()).into())
}

/// Says where the devices are and how to mount the first.
pub fn say_how_to_mount(uris: &[String]) {
    for uri in uris {
        crate::log::tell!("  {uri}");
    }
    if let Some(uri) = uris.first() {
        crate::log::tell!("to mount it: mkdir -p /tmp/nbd && nbdfuse /tmp/nbd '{uri}' &");
        crate::log::tell!("             dev=$(losetup --find --show /tmp/nbd/nbd)");
        crate::log::tell!("             mkfs.ext4 -q \"$dev\"    # the first time only");
        crate::log::tell!("             mount -o discard \"$dev\" /mnt");
        crate::log::tell!("to stop it:  umount /mnt; losetup -d \"$dev\"; umount /tmp/nbd");
    }
}

/// Shows `line` once a second until a signal comes.
pub fn until_stopped(
    mut signals: Signals,
    quiet: bool,
    line: impl Fn() -> String,
) -> anyhow::Result<()> {
    let (stop, stopped) = mpsc::channel::<()>();
    narrows_io::thread::spawn("signals", move || {
        signals.forever().next();
        drop(stop);
    })?;
    let bar = output::progress(quiet);
    while stopped.recv_timeout(Duration::from_secs(1)) == Err(RecvTimeoutError::Timeout) {
        bar.set_message(line());
    }
    bar.finish_and_clear();
    Ok(())
}

/// How often a running server is asked, and how its answers are printed.
#[derive(Debug, clap::Args)]
pub struct Watch {
    /// Go on, once a second
    #[arg(short, long)]
    pub watch: bool,
    /// Print as JSON, a line each time
    #[arg(long)]
    pub json: bool,
}

impl Watch {
    /// Prints what `ask` answers, as `screen` draws it beside the answer before.
    pub fn run<R: Serialize>(
        &self,
        ask: impl Fn() -> anyhow::Result<R>,
        screen: impl Fn(&R, Option<&R>) -> String,
    ) -> anyhow::Result<()> {
        let redraw = self.watch && io::stdout().is_terminal();
        let mut before = None;
        loop {
            let report = ask()?;
            let text = match self.json {
                true => serde_json::to_string(&report)?,
                false => {
                    let head = if redraw { REDRAW } else { "" };
                    format!("{head}{}", screen(&report, before.as_ref()))
                }
            };
            output::print(&text)?;
            if !self.watch {
                return Ok(());
            }
            before = Some(report);
            thread::sleep(Duration::from_secs(1));
        }
    }
}

/// Home, and clear to the end: without the flicker of clearing everything first.
const REDRAW: &str = "\x1b[H\x1b[J";
