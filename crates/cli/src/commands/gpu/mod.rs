//! `narrows gpu`

mod bandwidth;
mod info;
mod run;
mod serve;

use std::{fs, path::Path};

use narrows_cuda::settings::{self, Variables};

use super::options::{Packing, PolicyName, Security, Session};
use crate::exit::Usage;

#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// On the host with the GPU, or with none: serve it to programs elsewhere
    Serve(serve::Args),
    /// Run a program here with its GPU there
    Run(run::Args),
    /// Say what GPU a server has
    Info(info::Args),
    /// Measure copies to and from a GPU there: sizes, kinds of data, bytes on the link, processor time
    Bandwidth(bandwidth::Args),
}

pub fn run(command: Command, quiet: bool) -> anyhow::Result<()> {
    match command {
        Command::Serve(args) => serve::run(&args, quiet),
        Command::Run(args) => run::run(args, quiet),
        Command::Info(args) => info::run(&args),
        Command::Bandwidth(args) => bandwidth::run(args),
    }
}

/// The server, and how to speak to it: what the driver library is told.
#[derive(Debug, Clone, clap::Args)]
pub struct Way {
    /// The server: `narrows gpu serve` at HOST[:PORT] or unix:/PATH
    #[arg(long, value_name = "ADDRESS", env = "NARROWS_GPU_TO")]
    pub to: String,
    /// TCP connections to stripe over: more of them fill links with long round trips
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=64))]
    pub connections: u16,
    #[command(flatten)]
    pub packing: Packing,
    #[command(flatten)]
    pub security: Security,
}

impl Way {
    /// As the library reads it.
    fn variables(&self) -> anyhow::Result<Variables> {
        // Whether they make sense is told here, where a person reads it, rather than by the program's first call.
        super::common::address(&self.to)?;
        let (packing, security) = (&self.packing, &self.security);
        if packing.pad {
            return Err(Usage("a program's calls are not padded; leave out --pad".into()).into());
        }
        super::common::packing_settings(
            &narrows::Engine::new(1),
            &Packing {
                explain: None,
                ..packing.clone()
            },
        )?;
        let mut variables = Variables::default();
        variables.set(settings::TO, Some(&self.to));
        variables.set(settings::CONNECTIONS, Some(self.connections));
        let policy = match (packing.policy, &packing.codec) {
            (PolicyName::Adaptive, None) => "adaptive",
            (PolicyName::None, _) => "none",
            (PolicyName::Naive, _) => "naive",
            (PolicyName::Adaptive | PolicyName::Fixed, _) => "fixed",
        };
        variables.set(settings::POLICY, Some(policy));
        variables.set(settings::CODEC, packing.codec.as_ref());
        variables.set(settings::THREADS, Some(packing.threads));
        variables.set(settings::CHUNK, packing.chunk.map(|size| size.0));
        variables.set(settings::DEPTH, packing.depth);
        variables.set(settings::KEEP_LARGER, packing.keep_larger.then_some(1));
        variables.set(settings::CPU_PRICE, packing.cpu_price);
        variables.set(settings::LEVEL_MAX, packing.level_max);
        variables.set(settings::NO_HISTORY, packing.no_history.then_some(1));
        variables.set(settings::EXPLAIN, path(packing.explain.as_deref(), false)?);
        variables.set(
            settings::TLS,
            path(security.tls_certificates.as_deref(), true)?,
        );
        variables.set(settings::TLS_HOSTNAME, security.tls_hostname.as_ref());
        variables.set(settings::PSK, path(security.tls_psk.as_deref(), true)?);
        variables.set(settings::PSK_USER, security.psk_user.as_ref());
        variables.set(settings::INSECURE, security.insecure.then_some(1));
        Ok(variables)
    }
}

/// From anywhere, since programs change their folder; of a file that has to be there, or its folder.
fn path(path: Option<&Path>, exists: bool) -> anyhow::Result<Option<String>> {
    let Some(path) = path else { return Ok(None) };
    let whole = if exists {
        fs::canonicalize(path)
    } else {
        std::path::absolute(path)
    };
    let whole = whole.map_err(|fault| Usage(format!("{}: {fault}", path.display())))?;
    Ok(Some(whole.display().to_string()))
}

/// A server's session that serves no longer, for sessions whose only flag is metrics.
#[derive(Debug, Clone, clap::Args)]
pub struct Watching {
    /// Serve Prometheus metrics at this address
    #[arg(long, value_name = "ADDRESS", env = "NARROWS_METRICS")]
    pub metrics: Option<String>,
}

/// Flags of sessions at their defaults: a device's session has none of its own.
fn session() -> Session {
    Session {
        connections: 1,
        window: narrows::Size(16 << 20),
        resume_within: std::time::Duration::ZERO,
        metrics: None,
    }
}
