//! What send, recv and tunnel share: flags to settings, addresses, keys, signals.

use std::{
    fs::File,
    io::{self, Write},
    os::fd::AsFd,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};

use anyhow::Context;
use narrows::{
    Acceptor, Access, Code, Connector, Endpoint, Engine, Error, Plan, SessionListener, Settings,
    Stats, candidate,
};
use narrows_core::{Level, limits};
use narrows_io::{
    Address,
    secure::{Auth, Psk},
};
use narrows_wire::TransferError;
use parking_lot::Mutex;
use rustix::pipe;

use super::options::{Packing, PolicyName, Security, Session};
use crate::exit::Usage;

/// See [`descriptor`]: what a chunk of a stream holds.
const PIPE_LEN: usize = 256 << 10;

/// Worker threads and codecs, as the flags have it.
pub fn engine(packing: &Packing) -> Engine {
    Engine::new(packing.threads)
}

/// Settings from flags.
pub fn settings(engine: &Engine, packing: &Packing, session: &Session) -> anyhow::Result<Settings> {
    let mut settings = packing_settings(engine, packing)?;
    settings.connections = session.connections.into();
    settings.resume_within = session.resume_within;
    settings.limits.window_len = session.window.0 as usize;
    settings.limits.chunk_len_max = settings
        .limits
        .chunk_len_max
        .max(settings.chunk_len.unwrap_or(0));
    settings.limits.depth = settings.depth(engine.workers());
    if let Plan::Naive(_) = settings.plan {
        settings.limits.chunk_len_max = limits::CHUNK_LEN_MAX;
    }
    Ok(settings)
}

/// How to pack, from flags.
pub fn packing_settings(engine: &Engine, packing: &Packing) -> anyhow::Result<Settings> {
    let mut settings = Settings::builder()
        .keep_if_smaller(!packing.keep_larger)
        .cpu_price(packing.cpu_price.unwrap_or(0.0))
        .history(!packing.no_history)
        .build();
    settings.chunk_len = packing.chunk.map(|size| chunk_len(size.0)).transpose()?;
    settings.depth = packing.depth.map(usize::from);
    settings.level_max = packing.level_max.map(Level);
    // More than a chunk's own length costs more to index than it saves.
    let history_len = if settings.history {
        settings.chunk_len.unwrap_or(Settings::CHUNK_LEN)
    } else {
        0
    };
    let codec = packing
        .codec
        .as_deref()
        .map(|name| candidate(&engine.registry, name, history_len))
        .transpose();
    let codec = codec.map_err(|fault| Usage(fault.to_string()))?;
    let preset = ["NARROWS_POLICY", "NARROWS_CODEC"]
        .iter()
        .any(|name| std::env::var_os(name).is_some());
    settings.plan = match (packing.policy, codec) {
        (PolicyName::None, Some(_)) if !preset => {
            return Err(
                Usage("--policy none packs nothing; leave it out, or --codec".into()).into(),
            );
        }
        (PolicyName::None, _) => Plan::None,
        (PolicyName::Naive, Some(codec)) => Plan::Naive(codec),
        (PolicyName::Fixed | PolicyName::Adaptive, Some(codec)) => Plan::Fixed(codec),
        (PolicyName::Adaptive, None) => Plan::Adaptive,
        (PolicyName::Naive | PolicyName::Fixed, None) => {
            return Err(Usage(
                "this policy needs --codec NAME[:LEVEL]; `narrows codecs` lists them".into(),
            )
            .into());
        }
    };
    if let Some(path) = &packing.explain {
        let file =
            File::create(path).with_context(|| format!("cannot write {}", path.display()))?;
        settings.explain = Some(narrows::explain_to(file));
    }
    Ok(settings)
}

fn chunk_len(asked: u64) -> Result<usize, Usage> {
    let allowed = limits::CHUNK_LEN_MIN..=limits::CHUNK_LEN_MAX;
    usize::try_from(asked)
        .ok()
        .filter(|len| allowed.contains(len))
        .ok_or_else(|| Usage(format!("a chunk of {asked} bytes; it takes 512 to 16M")))
}

/// Reads an address.
pub fn address(text: &str) -> anyhow::Result<Address> {
    Ok(narrows::parse(text)?)
}

/// How the flags want peers to prove who they are.
pub fn auth(security: &Security) -> anyhow::Result<Auth> {
    if let Some(dir) = &security.tls_certificates {
        return Ok(Auth::Tls {
            dir: dir.clone(),
            server_name: security.tls_hostname.clone(),
        });
    }
    match &security.tls_psk {
        Some(path) => {
            let psk = Psk::load(path, security.psk_user.as_deref());
            Ok(Auth::Psk(psk.map_err(|fault| {
                Error::new(Code::AUTH, fault.to_string())
            })?))
        }
        None => Ok(Auth::None),
    }
}

/// How peers prove who they are, and whether they may go without.
pub fn access(security: &Security) -> anyhow::Result<Access> {
    Ok(Access {
        auth: auth(security)?,
        insecure: security.insecure,
    })
}

/// Listens for sessions, as the flags have it.
pub fn listen(
    at: &str,
    security: &Security,
    acceptor: Acceptor,
) -> anyhow::Result<SessionListener> {
    let address = narrows::parse(at)?;
    Ok(SessionListener::start(
        &address,
        access(security)?,
        acceptor,
    )?)
}

/// The way to `to`, as the flags have it.
pub fn connector(to: &str, security: &Security) -> anyhow::Result<Connector> {
    Ok(Connector::new(to, access(security)?)?)
}

/// The session that an interrupt ends; set once, before the work begins.
static CURRENT: OnceLock<Mutex<std::sync::Weak<Endpoint>>> = OnceLock::new();

/// From now on Ctrl-C and SIGTERM end `endpoint`'s session in words before the process goes.
pub fn interruptible(endpoint: &Arc<Endpoint>) -> anyhow::Result<()> {
    on_signal()?;
    current(endpoint);
    Ok(())
}

/// From now on the signals that [`on_signal`] catches end this session.
pub fn current(endpoint: &Arc<Endpoint>) {
    *CURRENT.get_or_init(Mutex::default).lock() = Arc::downgrade(endpoint);
}

/// Installs the handler for Ctrl-C and SIGTERM, once.
pub fn on_signal() -> anyhow::Result<()> {
    use signal_hook::{
        consts::{SIGINT, SIGTERM},
        iterator::Signals,
    };
    static INSTALLED: OnceLock<()> = OnceLock::new();
    if INSTALLED.set(()).is_err() {
        return Ok(());
    }
    let mut signals = Signals::new([SIGINT, SIGTERM]).context("cannot catch signals")?;
    narrows_io::thread::spawn("signals", move || {
        if let Some(signal) = signals.forever().next() {
            INTERRUPTED.store(true, Ordering::SeqCst);
            let endpoint = CURRENT.get().and_then(|current| current.lock().upgrade());
            if let Some(endpoint) = endpoint {
                endpoint.fail(Code::CANCELLED, "the peer was interrupted");
            }
            // Whoever read it may be gone, and `eprintln` would then end this thread before it ends the process.
            let _ = writeln!(io::stderr(), "narrows: interrupted");
            cleanup();
            std::process::exit(128 + signal);
        }
    })?;
    Ok(())
}

/// For the main thread before it exits with a fault: where that came of an interrupt, the signal's thread has the last
/// word and the exit code.
pub fn yield_to_interrupt() {
    while INTERRUPTED.load(Ordering::SeqCst) {
        thread::park();
    }
}

/// Set by the first Ctrl-C or SIGTERM; the process ends a moment later.
pub static INTERRUPTED: AtomicBool = AtomicBool::new(false);

/// Tells the peer of `fault` before this process goes.
pub fn last_words<T>(
    endpoint: &Endpoint,
    result: Result<T, TransferError>,
) -> Result<T, TransferError> {
    result.inspect_err(|fault| endpoint.fail(fault.code(), &fault.to_string()))
}

/// Gives a receiver's thread a moment to remove what is not whole: its session has ended, so it is doing that now.
fn cleanup() {
    thread::sleep(std::time::Duration::from_millis(200));
}

/// Serves the counters of `endpoint`, from now on the current one, where `--metrics` asks for it.
pub fn metered(session: &Session, endpoint: &Arc<Endpoint>) -> anyhow::Result<()> {
    static METERED: Mutex<std::sync::Weak<Endpoint>> = Mutex::new(std::sync::Weak::new());
    let Some(address) = &session.metrics else {
        return Ok(());
    };
    let first = std::mem::replace(&mut *METERED.lock(), Arc::downgrade(endpoint))
        .ptr_eq(&std::sync::Weak::new());
    if first {
        let stats = || {
            METERED
                .lock()
                .upgrade()
                .map_or_else(Stats::default, |endpoint| endpoint.stats())
        };
        let address = Address::parse(address, 0).map_err(|fault| Usage(fault.to_string()))?;
        let served = narrows_io::metrics::serve(&address, move || stats().metrics())
            .with_context(|| format!("cannot serve metrics at {address}; give HOST:PORT"))?;
        tracing::info!(address = %served.local(), "metrics");
        // For as long as the process lives.
        std::mem::forget(served);
    }
    Ok(())
}

/// A standard stream's descriptor itself: std's own buffers cut what is read at 8 KiB and what is written at its last
/// line end. A pipe is widened to a chunk, since at the 64 KiB that it comes with both sides sleep more than they copy.
pub fn descriptor(stream: &impl AsFd) -> io::Result<File> {
    let file = File::from(stream.as_fd().try_clone_to_owned()?);
    if pipe::fcntl_getpipe_size(&file).is_ok_and(|len| len < PIPE_LEN) {
        // Whoever may have no wider one has that.
        let _ = pipe::fcntl_setpipe_size(&file, PIPE_LEN);
    }
    Ok(file)
}

/// As it could be typed again.
pub fn command_line() -> String {
    let words = std::env::args().map(|word| {
        // An argument with a NUL cannot have come.
        shlex::try_quote(&word).map_or_else(|_| word.clone(), Into::into)
    });
    std::iter::once("narrows".to_string())
        .chain(words.skip(1))
        .collect::<Vec<_>>()
        .join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pipe_is_widened_to_a_chunk_and_a_file_is_left_as_it_is() {
        let (reader, _writer) = io::pipe().unwrap();
        descriptor(&reader).unwrap();
        assert_eq!(pipe::fcntl_getpipe_size(&reader).unwrap(), PIPE_LEN);
        descriptor(&File::open("/dev/null").unwrap()).unwrap();
    }
}
