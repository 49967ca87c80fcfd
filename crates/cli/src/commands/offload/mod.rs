//! `narrows offload`

mod pack;
mod serve;
mod show;
mod table;

use std::{sync::Arc, thread, time::Duration};

use narrows::{Connector, Engine};
use narrows_core::units::Size;
use narrows_offload::{
    BLOCK_LEN_MAX, BLOCK_LEN_MIN, Method, Options, Spill, container::lz4::BLOCK_LENS, file::Job,
    server,
};

use super::{
    common,
    options::{Security, seconds, threads},
};
use crate::exit::Usage;

#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// On the host with the accelerators: pack and unpack for others
    Serve(serve::Args),
    /// Have a file packed there, check what comes back, and write a file that gzip, zstd or lz4 reads
    Pack(pack::PackArgs),
    /// Have such a file unpacked there
    Unpack(pack::UnpackArgs),
    /// Measure packing here, packing there, and the copying, side by side
    Table(table::Args),
}

/// How a job is done.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Job")]
pub struct JobOptions {
    /// The server: `narrows offload serve` at HOST[:PORT] or unix:/PATH
    #[arg(long, value_name = "ADDRESS", required_unless_present = "local")]
    pub to: Option<String>,
    /// Do everything here, in the same way
    #[arg(long, conflicts_with = "to")]
    pub local: bool,
    /// Threads that check what comes back, and pack what the server does not; 0 means one for each processor
    #[arg(short = 'T', long, default_value_t = 0, env = "NARROWS_THREADS", value_parser = threads)]
    pub threads: usize,
    /// Do not unpack and compare what comes back: a wrong block is found by whoever unpacks the file
    #[arg(long)]
    pub no_verify: bool,
    /// Seconds the server may owe a block before this side helps; if not given, four times what this side would take,
    /// and a quarter of a second at least
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub spill_after: Option<Duration>,
    /// Fail where the server cannot do a block, instead of doing it here
    #[arg(long, conflicts_with = "spill_after")]
    pub no_spill: bool,
    /// Seconds a cut session waits for the server
    #[arg(long, default_value = "3", value_name = "SECONDS", value_parser = seconds)]
    pub resume_within: Duration,
}

pub fn run(command: Command, quiet: bool) -> anyhow::Result<()> {
    match command {
        Command::Serve(args) => serve::run(&args),
        Command::Pack(args) => pack::pack(&args, quiet),
        Command::Unpack(args) => pack::unpack(&args, quiet),
        Command::Table(args) => table::run(&args, quiet),
    }
}

/// Codecs, and the way to the server.
struct Desk {
    engine: Engine,
    way: Option<Connector>,
    settings: narrows::Settings,
}

impl Desk {
    fn new(job: &JobOptions, security: &Security) -> anyhow::Result<Self> {
        let way = job
            .to
            .as_deref()
            .map(|to| common::connector(to, security))
            .transpose()?;
        common::on_signal()?;
        let settings = narrows::SettingsBuilder::from(server::settings())
            .resume_within(job.resume_within)
            .build();
        // Blocks are packed by the job's own threads; the engine's have nothing to unpack, since links carry them raw.
        Ok(Self {
            engine: Engine::new(1),
            way,
            settings,
        })
    }

    /// Runs one job, on a session of its own.
    fn run<T>(
        &self,
        options: &Options,
        work: impl FnOnce(&Job<'_>) -> Result<T, narrows_offload::OffloadError>,
    ) -> anyhow::Result<T> {
        let endpoint = match &self.way {
            None => None,
            Some(connector) => {
                let endpoint = connector.connect(&self.engine, self.settings.clone())?;
                let endpoint = Arc::new(endpoint);
                common::interruptible(&endpoint)?;
                Some(endpoint)
            }
        };
        let job = Job {
            engine: &self.engine,
            server: endpoint.as_ref(),
            options,
            stop: &common::INTERRUPTED,
        };
        Ok(work(&job)?)
    }
}

fn options(
    method: Method,
    level: Option<i16>,
    block: Option<Size>,
    job: &JobOptions,
) -> Result<Options, Usage> {
    let level = level.unwrap_or(method.level_default());
    method
        .packer(&narrows::default_registry(), level)
        .map_err(|fault| Usage(fault.to_string()))?;
    let block_len = match block {
        Some(Size(len)) => usize::try_from(len).unwrap_or(usize::MAX),
        None if method == Method::Lz4 => 1 << 20,
        None => 512 << 10,
    };
    if !(BLOCK_LEN_MIN..=BLOCK_LEN_MAX).contains(&block_len) {
        return Err(Usage(format!(
            "blocks of {block_len} bytes; they take 4K to 8M"
        )));
    }
    if method == Method::Lz4 && !BLOCK_LENS.contains(&block_len) {
        return Err(Usage(
            "an lz4 file has blocks of 64K, 256K, 1M or 4M".into(),
        ));
    }
    let processors = || thread::available_parallelism().map_or(1, usize::from);
    Ok(Options {
        method,
        level,
        block_len,
        threads: if job.threads == 0 {
            processors()
        } else {
            job.threads
        },
        verify: !job.no_verify,
        spill: match (job.no_spill, job.spill_after) {
            (true, _) => Spill::Never,
            (false, Some(after)) => Spill::After(after),
            (false, None) => Spill::Auto,
        },
    })
}
