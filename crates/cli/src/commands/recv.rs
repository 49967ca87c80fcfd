//! `narrows recv`

use std::{
    ffi::{OsStr, OsString},
    io::{self, IsTerminal, Write},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    time::Duration,
};

use narrows::{Acceptor, Auth, Code, Endpoint, Error, Incoming, Pairing, Plan, SessionListener};
use narrows_io::transport;
use narrows_wire::{
    Received, SERVICE_TREE_2, SERVICE_TREE_3, TransferError,
    keep::Keep,
    recv::{self, Sink},
    send::Moment,
};
use parking_lot::Mutex;
use xxhash_rust::xxh3::Xxh3;

use super::{
    common,
    options::{Packing, Security, Session, seconds},
    remote::{self, Reach},
    seats::Seats,
    send::{Compare, Kept},
};
use crate::{
    exit::{LeftOut, Usage},
    output::{self, Watched},
};

/// Where it listens if nobody says.
const LISTEN: &str = "127.0.0.1:4242";

#[derive(Debug, clap::Args)]
#[command(override_usage = "narrows recv [OPTIONS] [INTO]
       narrows recv [OPTIONS] <HOST:PATH>... [INTO]")]
pub struct Args {
    /// Directory to receive into (made if absent), or `-` for a stream to standard output [default: .]. With
    /// HOST:PATH before it, these are fetched over ssh, and nothing is listened on
    #[arg(value_name = "INTO", num_args = 0..)]
    pub words: Vec<OsString>,
    /// Address to listen on: HOST[:PORT] or unix:/PATH
    #[arg(short, long, default_value = LISTEN, env = "NARROWS_LISTEN")]
    pub listen: String,
    /// Be the remote end of `narrows send … HOST:DIR`: the session is on standard input and output, and nothing is
    /// listened on
    // No conflict with `listen`: that may be the environment's, which the sender does not know.
    #[arg(long, hide = true, conflicts_with_all = ["json", "keep"])]
    pub stdio: bool,
    /// Receive a stream, check it and throw it away; the result says its XXH3-64. For measuring
    #[arg(long, conflicts_with_all = ["words", "stdio"])]
    pub discard: bool,
    /// Go on receiving until interrupted, from several senders side by side, instead of ending after one
    #[arg(long)]
    pub keep: bool,
    /// Senders served at once with --keep; one more is told that this end is busy
    #[arg(long, default_value_t = 64, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub senders_max: u16,
    /// Seconds after which a sender that sends nothing has to go when there are --senders-max of them and one more comes
    #[arg(long, default_value = "30", value_name = "SECONDS", value_parser = seconds)]
    pub idle_limit: Duration,
    /// Print a one-time code that the sender proves itself by (`narrows send --code`), instead of keys; for one sender,
    /// on all addresses of this host if --listen is not given
    #[arg(long, conflicts_with_all = ["keep", "stdio", "tls_certificates", "tls_psk", "insecure"])]
    pub code: bool,
    /// Print the result as JSON, a line for each transfer
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub compare: Compare,
    #[command(flatten)]
    pub kept: Kept,
    #[command(flatten)]
    pub reach: Reach,
    #[command(flatten)]
    pub packing: Packing,
    #[command(flatten)]
    pub session: Session,
    #[command(flatten)]
    pub security: Security,
}

/// Where what comes goes.
#[derive(Debug, Clone)]
enum Into {
    Dir(PathBuf),
    Stdout,
    Nowhere,
}

pub fn run(args: Args, quiet: bool) -> anyhow::Result<()> {
    let (from, into) = places(&args.words);
    let into = match into {
        _ if args.discard => Into::Nowhere,
        Some(into) if into == "-" => Into::Stdout,
        Some(into) => Into::Dir(into.into()),
        None => Into::Dir(".".into()),
    };
    check(&args, &into)?;
    let engine = common::engine(&args.packing);
    let mut settings = common::settings(&engine, &args.packing, &args.session)?;
    // What a sender may use is up to it; this side only says what it can hold.
    settings.limits.chunk_len_max =
        narrows_core::limits::CHUNK_LEN_MAX.min(settings.limits.chunk_len_max.max(16 << 20));
    // One that unpacks at the end only cannot answer before.
    if !matches!(settings.plan, Plan::Naive(_)) {
        settings.services = vec![SERVICE_TREE_2.into(), SERVICE_TREE_3.into()];
    }
    let acceptor = Acceptor::new(engine, settings);
    let receiver = Receiver {
        into,
        allowed: args.kept.keep(),
        json: args.json,
        quiet,
    };
    if args.stdio {
        receiver.make_ready()?;
        let endpoint = acceptor
            .take(transport::stdio()?)?
            .ok_or_else(|| anyhow::anyhow!("no session on standard input"))?;
        return receiver.all(&Arc::new(endpoint), &args.session);
    }
    if !from.is_empty() {
        return fetch(&args, &from, &acceptor, &receiver);
    }
    listen(args, acceptor, receiver)
}

/// What is fetched, and where it goes.
fn places(words: &[OsString]) -> (Vec<&OsStr>, Option<&OsStr>) {
    let is_remote = |word: &OsString| remote::split(word).is_some() && !Path::new(word).exists();
    match words.split_last() {
        None => (Vec::new(), None),
        Some((last, rest)) if is_remote(last) => {
            let all = rest.iter().chain([last]).map(OsString::as_os_str);
            (all.collect(), None)
        }
        Some((last, rest)) => (rest.iter().map(OsString::as_os_str).collect(), Some(last)),
    }
}

fn check(args: &Args, into: &Into) -> anyhow::Result<()> {
    let usage = |text: &str| Err(Usage(text.into()).into());
    match into {
        Into::Stdout if args.stdio => {
            usage("the stream and the session would both be on standard output; name a directory")
        }
        Into::Stdout if args.json => {
            usage("--json and the stream would both go to standard output")
        }
        Into::Stdout if io::stdout().is_terminal() => {
            usage("standard output is a terminal; redirect it, or name a directory")
        }
        Into::Dir(dir) if !args.stdio && dir.exists() && !dir.is_dir() => usage(&format!(
            "{} is a file; name a directory to receive into",
            dir.display()
        )),
        _ => Ok(()),
    }
}

/// Makes `dir`, and whether it can be received into: known at the start, and not when something has come.
fn writable(dir: &Path) -> anyhow::Result<()> {
    use rustix::fs::{Access, AtFlags, CWD, accessat};
    let cannot = |fault: io::Error| anyhow::anyhow!("cannot write to {}: {fault}", dir.display());
    std::fs::create_dir_all(dir).map_err(cannot)?;
    accessat(
        CWD,
        dir,
        Access::WRITE_OK | Access::EXEC_OK,
        AtFlags::EACCESS,
    )
    .map_err(|fault| cannot(fault.into()))
}

/// Fetches paths of one host.
fn fetch(
    args: &Args,
    from: &[&OsStr],
    acceptor: &Acceptor,
    receiver: &Receiver,
) -> anyhow::Result<()> {
    let mut host = None;
    let mut words: Vec<OsString> = ["send", "--quiet", "--stdio"].map(OsString::from).into();
    words.extend(args.compare.words());
    words.extend(args.kept.words());
    if matches!(receiver.into, Into::Stdout) {
        words.push("--content".into());
    }
    words.push("--".into());
    for word in from {
        let (named, path) = remote::split(word).ok_or_else(|| {
            Usage(format!(
                "{} is no HOST:PATH, and one directory is received into",
                word.display()
            ))
        })?;
        if host.is_some_and(|host| host != named) {
            return Err(Usage("paths of one host at a time".into()).into());
        }
        host = Some(named);
        words.push(remote::quote(path));
    }
    let host = host.unwrap_or_default();
    receiver.make_ready()?;
    let (transport, child) = args.reach.start(host, &words)?;
    let endpoint = acceptor
        .take(transport)
        .map_err(|error| args.reach.explain(error, host, &child))?
        .ok_or_else(|| anyhow::anyhow!("no session with {host}"))?;
    let endpoint = Arc::new(endpoint);
    common::interruptible(&endpoint)?;
    receiver.all(&endpoint, &args.session)
}

fn listen(args: Args, acceptor: Acceptor, receiver: Receiver) -> anyhow::Result<()> {
    let pairing = args.code.then(Pairing::random);
    let mut access = common::access(&args.security)?;
    let mut at = args.listen.as_str();
    if let Some(pairing) = &pairing {
        access.auth = Auth::Code(pairing.clone());
        if at == LISTEN {
            at = "0.0.0.0:4242";
        }
    }
    let listener = SessionListener::start(&narrows::parse(at)?, access, acceptor)?;
    // After it, so that a refusal leaves no directory.
    receiver.make_ready()?;
    common::on_signal()?;
    let (local, quiet) = (listener.local().clone(), receiver.quiet);
    let (done, ends) = mpsc::channel();
    let receiver = Arc::new(receiver);
    let chosen = Arc::new(AtomicBool::new(false));
    let keep = args.keep;
    // Senders are admitted on a thread of their own: without --keep, the first that has something ends all.
    narrows_io::thread::spawn("senders", move || {
        let seats = Seats::new(args.senders_max.into(), args.idle_limit);
        for endpoint in listener.sessions() {
            let endpoint = Arc::new(endpoint);
            let Some(seat) = seats.take(&endpoint) else {
                continue;
            };
            let (done, receiver) = (done.clone(), receiver.clone());
            let (session, chosen) = (args.session.clone(), chosen.clone());
            let serve = move || {
                let _seat = seat;
                common::current(&endpoint);
                if keep {
                    if let Err(fault) = receiver.all(&endpoint, &session) {
                        tracing::error!("{fault:#}");
                    }
                } else {
                    let _ = done.send(receiver.first(&endpoint, &session, &chosen));
                }
            };
            if let Err(fault) = narrows_io::thread::spawn("sender", serve) {
                tracing::warn!("a sender is dropped: {fault}");
            }
        }
    })?;
    // Only now: strangers take threads, and without its own it would end.
    narrows_io::service::ready();
    if !quiet {
        crate::log::tell!("listening on {local}");
    }
    if let Some(pairing) = &pairing {
        crate::log::tell!("code {}", pairing.code());
        crate::log::tell!(
            "at the other host: narrows send --code {} PATH… THIS-HOST",
            pairing.code()
        );
    }
    loop {
        match ends.recv_timeout(Duration::from_millis(200)) {
            Ok(Some(result)) => return result,
            Ok(None) => {}
            Err(mpsc::RecvTimeoutError::Timeout) => {
                // A moment later than it was: one whose code was right is paired by then.
                if pairing.as_ref().is_some_and(Pairing::is_spent) {
                    let text =
                        "somebody gave a wrong code, so it is used up; start again for a new one";
                    return Err(Error::new(Code::AUTH, text).into());
                }
            }
            Err(mpsc::RecvTimeoutError::Disconnected) => return Ok(()),
        }
    }
}

/// Takes transfers of sessions.
#[derive(Debug)]
struct Receiver {
    into: Into,
    /// What senders may have set.
    allowed: Keep,
    json: bool,
    quiet: bool,
}

/// One stream at a time goes to standard output.
static STDOUT: Mutex<()> = Mutex::new(());

impl Receiver {
    /// Makes the directory, where it is received into one.
    fn make_ready(&self) -> anyhow::Result<()> {
        match &self.into {
            Into::Dir(dir) => writable(dir),
            _ => Ok(()),
        }
    }

    /// All transfers of a session.
    fn all(&self, endpoint: &Arc<Endpoint>, session: &Session) -> anyhow::Result<()> {
        match endpoint.accept()? {
            Some(incoming) => self.from(endpoint, session, incoming),
            None => Ok(()),
        }
    }

    /// All transfers of the first session that has one; `None` for the others, and for a session that has none.
    fn first(
        &self,
        endpoint: &Arc<Endpoint>,
        session: &Session,
        chosen: &AtomicBool,
    ) -> Option<anyhow::Result<()>> {
        match endpoint.accept() {
            Ok(Some(incoming)) if !chosen.swap(true, Ordering::SeqCst) => {
                Some(self.from(endpoint, session, incoming))
            }
            Ok(Some(_)) => {
                endpoint.fail(Code::LIMIT, "busy: another sender came first");
                None
            }
            Ok(None) => None,
            Err(end) => {
                tracing::warn!("a sender went without sending: {end}");
                None
            }
        }
    }

    fn from(
        &self,
        endpoint: &Arc<Endpoint>,
        session: &Session,
        first: Incoming,
    ) -> anyhow::Result<()> {
        common::metered(session, endpoint)?;
        let (mut next, mut all) = (Some(first), Vec::new());
        while let Some(incoming) = next.take() {
            all.push(self.one(endpoint, incoming)?);
            match endpoint.accept() {
                Ok(incoming) => next = incoming,
                Err(end) => {
                    tracing::warn!("after {} transfers that are in place: {end}", all.len());
                }
            }
        }
        LeftOut::check(&all)
    }

    /// One transfer.
    fn one(&self, endpoint: &Arc<Endpoint>, incoming: Incoming) -> anyhow::Result<Received> {
        let watched = Watched::start(self.quiet, endpoint);
        let mut progress = |moment: &Moment<'_>| watched.show(moment);
        let result = self.take(incoming, &mut progress);
        let (received, xxh3) = common::last_words(endpoint, result)?;
        drop(watched);
        let mut transfer = output::Transfer::new("recv", received, &endpoint.stats());
        transfer.xxh3 = xxh3;
        if self.json {
            output::print(&serde_json::to_string(&transfer)?)?;
        } else if !self.quiet {
            crate::log::tell!("{}", transfer.line());
        }
        Ok(received)
    }

    fn take(
        &self,
        incoming: Incoming,
        progress: &mut dyn FnMut(&Moment<'_>),
    ) -> Result<(Received, Option<String>), TransferError> {
        match &self.into {
            Into::Nowhere => {
                let mut nowhere = Nowhere::default();
                let received = recv::incoming(incoming, Sink::Stream(&mut nowhere), progress)?;
                Ok((received, Some(format!("{:016x}", nowhere.0.digest()))))
            }
            Into::Stdout => {
                let _one = STDOUT.lock();
                let mut out = common::descriptor(&io::stdout()).map_err(narrows::Error::from)?;
                let received = recv::incoming(incoming, Sink::Stream(&mut out), progress)?;
                Ok((received, None))
            }
            Into::Dir(dir) => {
                let received = recv::incoming(incoming, Sink::Dir(dir, self.allowed), progress)?;
                Ok((received, None))
            }
        }
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
