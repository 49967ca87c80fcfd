//! `narrows recv`

use std::{
    io::{self, IsTerminal, Write},
    path::{Path, PathBuf},
    sync::Arc,
};

use narrows::{Acceptor, Endpoint};
use narrows_io::transport;
use narrows_wire::recv::{self, Sink};
use xxhash_rust::xxh3::Xxh3;

use super::{
    common,
    options::{Packing, Security, Session},
};
use crate::{exit::Usage, output};

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Directory to receive into (made if absent), or `-` for a stream to standard output
    #[arg(default_value = ".")]
    pub into: PathBuf,
    /// Address to listen on: HOST[:PORT] or unix:/PATH
    #[arg(short, long, default_value = "127.0.0.1:4242", env = "NARROWS_LISTEN")]
    pub listen: String,
    /// Be the remote end of `narrows send … HOST:DIR`: the session is on standard input and output, and nothing is
    /// listened on
    // No conflict with `listen`: that may be the environment's, which the sender does not know.
    #[arg(long, conflicts_with_all = ["json", "keep"])]
    pub stdio: bool,
    /// Receive a stream, check it and throw it away; the result says its XXH3-64. For measuring
    #[arg(long, conflicts_with_all = ["into", "stdio"])]
    pub discard: bool,
    /// Go on receiving until interrupted, instead of ending after one transfer
    #[arg(long)]
    pub keep: bool,
    #[command(flatten)]
    pub packing: Packing,
    #[command(flatten)]
    pub session: Session,
    #[command(flatten)]
    pub security: Security,
    /// Print the result as JSON, a line for each transfer
    #[arg(long)]
    pub json: bool,
}

pub fn run(args: Args, quiet: bool) -> anyhow::Result<()> {
    let to_stdout = !args.discard && args.into == Path::new("-");
    if to_stdout && !args.stdio && io::stdout().is_terminal() {
        return Err(Usage(
            "standard output is a terminal; redirect it, or name a directory".into(),
        )
        .into());
    }
    if to_stdout && args.stdio {
        return Err(Usage(
            "the stream and the session would both be on standard output; name a directory".into(),
        )
        .into());
    }
    if to_stdout && args.json {
        return Err(Usage("--json and the stream would both go to standard output".into()).into());
    }
    if !to_stdout && !args.discard && !args.stdio && args.into.exists() && !args.into.is_dir() {
        return Err(Usage(format!(
            "{} is a file; name a directory to receive into",
            args.into.display()
        ))
        .into());
    }
    let engine = common::engine(&args.packing);
    let mut settings = common::settings(&engine, &args.packing, &args.session)?;
    // What a sender may use is up to it; this side only says what it can hold.
    settings.limits.chunk_len_max =
        narrows_core::limits::CHUNK_LEN_MAX.min(settings.limits.chunk_len_max.max(16 << 20));
    let acceptor = Acceptor::new(engine, settings);
    if args.stdio {
        let endpoint = acceptor
            .take(transport::stdio()?)?
            .ok_or_else(|| anyhow::anyhow!("no session on standard input"))?;
        return receive(&Arc::new(endpoint), &args, quiet);
    }
    let listener = common::listen(&args.listen, &args.security, acceptor)?;
    common::on_signal()?;
    if !quiet {
        eprintln!("listening on {}", listener.local());
    }
    for endpoint in listener.sessions() {
        let endpoint = Arc::new(endpoint);
        common::interruptible(&endpoint)?;
        match (receive(&endpoint, &args, quiet), args.keep) {
            (result, false) => return result,
            (Ok(()), true) => {}
            (Err(fault), true) => tracing::error!("{fault:#}"),
        }
    }
    Ok(())
}

fn receive(endpoint: &Arc<Endpoint>, args: &Args, quiet: bool) -> anyhow::Result<()> {
    common::metered(&args.session, endpoint)?;
    let bar = output::progress(quiet);
    let mut progress = |bytes| bar.set_position(bytes);
    let mut transfers = 0;
    loop {
        let incoming = match endpoint.accept() {
            Ok(Some(incoming)) => incoming,
            Ok(None) => return Ok(()),
            Err(end) if transfers > 0 => {
                tracing::warn!("after {transfers} transfers that are in place: {end}");
                return Ok(());
            }
            Err(end) => return Err(end.into()),
        };
        let result = if args.discard {
            let mut nowhere = Nowhere::default();
            recv::incoming(incoming, Sink::Stream(&mut nowhere), &mut progress)
                .map(|received| (received, Some(format!("{:016x}", nowhere.0.digest()))))
        } else if args.into == Path::new("-") {
            let mut out = common::descriptor(&io::stdout())?;
            recv::incoming(incoming, Sink::Stream(&mut out), &mut progress).map(|done| (done, None))
        } else {
            recv::incoming(incoming, Sink::Dir(&args.into), &mut progress).map(|done| (done, None))
        };
        let (received, xxh3) = common::last_words(endpoint, result)?;
        bar.finish_and_clear();
        let mut transfer = output::Transfer::new("recv", received, &endpoint.stats());
        transfer.xxh3 = xxh3;
        if args.json {
            output::print(&serde_json::to_string(&transfer)?)?;
        } else if !quiet {
            eprintln!("{}", transfer.line());
        }
        transfers += 1;
    }
}

/// Takes bytes and keeps their hash only: the receiver of a measurement.
#[derive(Default)]
struct Nowhere(Xxh3);

impl Write for Nowhere {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
