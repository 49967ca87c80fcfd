//! `narrows offload serve`

use std::{thread, time::Duration};

use narrows::{Acceptor, Engine};
use narrows_core::units::Size;
use narrows_offload::{BLOCK_LEN_MIN, Method, Server, ServerOptions, server};
use serde_json::json;

use super::super::{
    common,
    options::{Security, seconds},
};
use crate::{exit::Usage, output};

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Address to listen on: HOST[:PORT] or unix:/PATH
    #[arg(short, long, default_value = "127.0.0.1:4242", env = "NARROWS_LISTEN")]
    pub listen: String,
    /// Blocks worked on at once; one for each processor if not given, more where a device does the work
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub workers: Option<u16>,
    /// Blocks that one client may have under way; twice the workers and four if not given
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    pub depth: Option<u16>,
    /// Most memory that all jobs together may come to hold, what zstd keeps in each worker included; a job beyond it is
    /// refused
    #[arg(long, default_value = "1G", value_name = "SIZE")]
    pub memory: Size,
    /// Clients connected at once, at most
    #[arg(long, default_value_t = 32, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub clients_max: u16,
    /// Seconds after which a block that waits for a worker goes back undone, for its client to pack
    #[arg(long, default_value = "1", value_name = "SECONDS", value_parser = seconds)]
    pub queue_max: Duration,
    /// Print where it listens and what it has as JSON
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub security: Security,
}

pub fn run(args: &Args) -> anyhow::Result<()> {
    let processors = thread::available_parallelism().map_or(1, usize::from);
    let mut options = ServerOptions::new(args.workers.map_or(processors, usize::from));
    options.depth = args.depth.map_or(options.depth, usize::from);
    options.memory_max = usize::try_from(args.memory.0).unwrap_or(usize::MAX);
    options.clients_max = args.clients_max.into();
    options.queue_max = args.queue_max;
    let least = options.job_bytes(BLOCK_LEN_MIN);
    if options.memory_max < least {
        let (memory, least) = (args.memory, Size(least as u64));
        return Err(Usage(format!(
            "{memory} of memory hold no job; the shortest blocks need {least}"
        ))
        .into());
    }
    let engine = Engine::new(1);
    // Before anybody can connect: strangers take threads, and without its workers it could not begin.
    let server = Server::start(engine.clone(), options)?;
    let acceptor = Acceptor::new(engine.clone(), server::settings());
    let listener = common::listen(&args.listen, &args.security, acceptor)?;
    common::on_signal()?;
    describe(args, &engine, &options, &listener.local().to_string())?;
    narrows_io::service::ready();
    for endpoint in listener.sessions() {
        let server = server.clone();
        let attended = narrows_io::thread::spawn("offload-session", move || {
            if let Err(end) = server.attend(&endpoint) {
                tracing::info!("a client's session ended: {end}");
            }
        });
        if let Err(fault) = attended {
            tracing::warn!("a client is dropped: {fault}");
        }
    }
    Ok(())
}

/// Says what it has: which backend does what at which levels, and what of the others is missing.
fn describe(
    args: &Args,
    engine: &Engine,
    options: &ServerOptions,
    listening: &str,
) -> anyhow::Result<()> {
    let registry = &engine.registry;
    let methods = [Method::Deflate, Method::Zstd, Method::Lz4];
    if args.json {
        let offers: Vec<_> = methods
            .iter()
            .filter_map(|method| {
                let packers = method.packers(registry);
                let packers: Vec<_> = packers
                    .iter()
                    .map(|(backend, levels)| json!({ "backend": backend, "level_min": levels.start(), "level_max": levels.end() }))
                    .collect();
                Some(json!({
                    "codec": method.name(), "pack": packers, "unpack": method.unpacker(registry)?.backend,
                }))
            })
            .collect();
        let missing: Vec<_> = registry
            .probed()
            .iter()
            .filter_map(|(name, found)| {
                Some(json!({ "backend": name, "reason": found.as_ref().err()?.to_string() }))
            })
            .collect();
        output::print(
            &json!({
                "schema": "narrows.offload-serve/1", "listening": listening, "workers": options.workers,
                "depth": options.depth, "memory_max_bytes": options.memory_max, "clients_max": options.clients_max,
                "offers": offers, "missing": missing,
            })
            .to_string(),
        )?;
    }
    for method in methods {
        let packers: Vec<_> = method
            .packers(registry)
            .iter()
            .map(|(backend, levels)| format!("{backend} {}..{}", levels.start(), levels.end()))
            .collect();
        let unpacker = method
            .unpacker(registry)
            .map_or("nobody", |worker| worker.backend);
        crate::log::tell!(
            "{}: packed by {}; unpacked by {unpacker}",
            method.name(),
            packers.join(", ")
        );
    }
    for (name, found) in registry.probed() {
        if let Err(reason) = found {
            crate::log::tell!("not here: {name}: {reason}");
        }
    }
    crate::log::tell!(
        "{} workers, {} blocks under way for a client, jobs within {}",
        options.workers,
        options.depth,
        Size(options.memory_max as u64)
    );
    crate::log::tell!("listening on {listening}");
    Ok(())
}
