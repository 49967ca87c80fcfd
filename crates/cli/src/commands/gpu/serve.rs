//! `narrows gpu serve`

use std::path::PathBuf;

use anyhow::Context;
use narrows::{Acceptor, Size};
use narrows_gpu_server::{
    Backend, Server, ServerOptions,
    cuda::{Choice, Driver},
    host::{self, Host},
    settings,
};
use serde_json::json;

use super::{
    super::{
        common,
        options::{Packing, Security},
    },
    Watching,
};
use crate::{exit::Usage, output};

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Address to listen on: HOST[:PORT] or unix:/PATH
    #[arg(short, long, default_value = "127.0.0.1:4242", env = "NARROWS_LISTEN")]
    pub listen: String,
    /// What runs the programs' work
    #[arg(long, value_enum, default_value_t)]
    pub backend: BackendName,
    /// The driver's library, if it is not where systems have it
    #[arg(long, value_name = "FILE")]
    pub cuda_library: Option<PathBuf>,
    /// Allow narrows' own library for programs as the driver: a GPU elsewhere is served again from here
    #[arg(long)]
    pub relay: bool,
    /// Which GPU, counted from 0
    #[arg(long, default_value_t = 0, value_name = "N")]
    pub device: u32,
    /// Device memory for all clients together. [default: 4G of the host's, all of a GPU's]
    #[arg(long, value_name = "SIZE")]
    pub memory: Option<Size>,
    /// Clients connected at once, at most
    #[arg(long, default_value_t = 16, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub clients_max: u16,
    /// Keep images of modules in this folder, so that no program sends again what another has sent
    #[arg(long, value_name = "DIR")]
    pub image_cache: Option<PathBuf>,
    /// Memory for bytes of copies, all clients together: what a client copies to the device again, in this program or its
    /// next, is not sent again; 0 for none
    #[arg(long, default_value = "1G", value_name = "SIZE")]
    pub content_cache: Size,
    /// Threads that run kernels of the host back end. [default: one for each processor]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub kernel_threads: Option<u16>,
    /// Instructions of all its threads that one launch on the host back end may take
    #[arg(long, default_value_t = 20_000_000_000, value_name = "N")]
    pub budget: u64,
    /// Compute capability that programs are told by the host back end
    #[arg(long, default_value = "8.0", value_name = "X.Y", value_parser = capability)]
    pub compute_capability: (u32, u32),
    /// Print where it listens and what it has as JSON
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub watching: Watching,
    #[command(flatten)]
    pub packing: Packing,
    #[command(flatten)]
    pub security: Security,
}

/// A back end by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum BackendName {
    /// A GPU of this host where there is one, the host's processors otherwise
    #[default]
    Auto,
    /// A GPU of this host, through its driver
    Cuda,
    /// This host's memory and processors: kernels in PTX are interpreted, slowly and exactly
    Host,
}

fn capability(text: &str) -> Result<(u32, u32), String> {
    text.split_once('.')
        .and_then(|(major, minor)| Some((major.parse().ok()?, minor.parse().ok()?)))
        .filter(|(major, minor)| (3..100).contains(major) && *minor < 10)
        .ok_or_else(|| "not a compute capability like 8.0".into())
}

fn backend(args: &Args) -> anyhow::Result<Backend> {
    let mut emulation = host::Options::default();
    emulation.memory = args.memory.map_or(emulation.memory, |size| size.0);
    emulation.workers = args.kernel_threads.map_or(emulation.workers, usize::from);
    emulation.budget = args.budget;
    emulation.capability = args.compute_capability;
    let choice = Choice {
        library: args.cuda_library.clone(),
        device: args.device,
        relay: args.relay,
    };
    let open = || Driver::open_library(&choice);
    Ok(match args.backend {
        BackendName::Cuda => Backend::Cuda(open().map_err(|fault| Usage(fault.to_string()))?),
        BackendName::Host => Backend::Host(Host::start(emulation)?),
        BackendName::Auto => match open() {
            Ok(driver) => Backend::Cuda(driver),
            Err(fault) => {
                tracing::info!("no GPU: {fault}");
                Backend::Host(Host::start(emulation)?)
            }
        },
    })
}

pub fn run(args: &Args, quiet: bool) -> anyhow::Result<()> {
    let engine = common::engine(&args.packing);
    let packing = common::settings(&engine, &args.packing, &super::session())?;
    let acceptor = Acceptor::new(engine, settings(packing));
    let listener = common::listen(&args.listen, &args.security, acceptor)?;
    common::on_signal()?;
    let mut options = ServerOptions::default();
    options.memory_max = args.memory.map(|size| size.0);
    options.clients_max = args.clients_max.into();
    options.image_dir.clone_from(&args.image_cache);
    options.contents_max = args.content_cache.0;
    let backend = backend(args)?;
    let server = Server::new(backend, options)?;
    if let Some(address) = &args.watching.metrics {
        let (address, server) = (common::address(address)?, server.clone());
        let served = narrows_io::metrics::serve(&address, move || server.metrics())
            .with_context(|| format!("cannot serve metrics at {address}; give HOST:PORT"))?;
        tracing::info!(address = %served.local(), "metrics");
        // For as long as the process lives.
        std::mem::forget(served);
    }
    describe(args, &server, &listener.local().to_string(), quiet)?;
    narrows_io::service::ready();
    for endpoint in listener.sessions() {
        let server = server.clone();
        narrows_io::thread::spawn("gpu-session", move || {
            if let Err(end) = server.attend(&endpoint) {
                tracing::info!("a client's session ended: {end}");
            }
        })?;
    }
    Ok(())
}

fn describe(args: &Args, server: &Server, listening: &str, quiet: bool) -> anyhow::Result<()> {
    let device = server.describe()?;
    let (memory, name) = (Size(device.memory), &device.name);
    if args.json {
        output::print(
            &json!({
                "schema": "narrows.gpu-serve/1", "listening": listening, "backend": device.backend, "device": name,
                "memory_bytes": device.memory, "driver_version": device.driver_version, "clients_max": args.clients_max,
            })
            .to_string(),
        )?;
    }
    if !quiet {
        crate::log::tell!("{name} ({}), {memory} of memory", device.backend);
        if device.backend == "host" {
            crate::log::tell!(
                "there is no GPU in use: kernels in PTX are interpreted, slowly and exactly"
            );
        }
    }
    crate::log::tell!("listening on {listening}");
    Ok(())
}
