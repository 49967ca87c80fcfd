//! What send, recv and tunnel share: flags to settings, addresses, keys, signals.

use std::{
    ffi::OsStr,
    fs::File,
    io,
    os::{fd::AsFd, unix::ffi::OsStrExt},
    path::{Path, PathBuf},
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
use signal_hook::{
    consts::{SIGHUP, SIGINT, SIGTERM, SIGXFSZ},
    iterator::Signals,
};

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
        .pad(packing.pad)
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
        super::lab::no_dash(path)?;
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
    if !security.allow.is_empty()
        && security.tls_certificates.is_none()
        && security.tls_psk.is_none()
    {
        let text =
            "--allow names those who prove who they are: give --tls-certificates or --tls-psk";
        return Err(Usage(text.into()).into());
    }
    if let Some(dir) = &security.tls_certificates {
        return Ok(Auth::Tls {
            dir: dir.clone(),
            server_name: security.tls_hostname.clone(),
        });
    }
    match &security.tls_psk {
        Some(path) => {
            let load = |user: Option<&str>| {
                Psk::load(path, user).map_err(|fault| Error::new(Code::AUTH, fault.to_string()))
            };
            // A server takes the keys of those it allows; without a list there is one key for all.
            let mut allowed = security.allow.iter().map(|name| load(Some(name)));
            match allowed.next() {
                Some(first) => Ok(Auth::Psk(
                    first?.with_others(allowed.collect::<Result<_, _>>()?),
                )),
                None => Ok(Auth::Psk(load(security.psk_user.as_deref())?)),
            }
        }
        None => Ok(Auth::None),
    }
}

/// How peers prove who they are, and whether they may go without.
pub fn access(security: &Security) -> anyhow::Result<Access> {
    Ok(Access {
        auth: auth(security)?,
        insecure: security.insecure,
        allow: security.allow.clone(),
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

/// The sessions that an interrupt ends.
static CURRENT: Mutex<Vec<std::sync::Weak<Endpoint>>> = Mutex::new(Vec::new());

/// From now on Ctrl-C and SIGTERM end `endpoint`'s session in words before the process goes.
pub fn interruptible(endpoint: &Arc<Endpoint>) -> anyhow::Result<()> {
    on_signal()?;
    current(endpoint);
    Ok(())
}

/// From now on the signals that [`on_signal`] catches end this session too.
pub fn current(endpoint: &Arc<Endpoint>) {
    let mut current = CURRENT.lock();
    current.retain(|one| one.strong_count() > 0);
    current.push(Arc::downgrade(endpoint));
}

/// What asks to stop: Ctrl-C, SIGTERM, and SIGHUP when the terminal or `ssh` is gone, unless `nohup` started us.
pub fn stop_kinds() -> impl Iterator<Item = i32> {
    let kinds = [SIGINT, SIGTERM].into_iter();
    kinds.chain(Some(SIGHUP).filter(|signal| !is_ignored(*signal)))
}

/// Those, caught.
pub fn stop_signals() -> anyhow::Result<Signals> {
    Signals::new(stop_kinds()).context("cannot catch signals")
}

/// Whether whoever started this process had it ignore `signal`.
fn is_ignored(signal: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .is_some_and(|mask| mask & 1 << (signal - 1) != 0)
}

/// From now on a file that becomes longer than `ulimit -f` allows is an error of the write, and not the end of us.
pub fn survive_file_limit() {
    let _ = signal_hook::flag::register(SIGXFSZ, Arc::default());
}

/// Installs the handler for Ctrl-C, SIGTERM and SIGHUP, once.
pub fn on_signal() -> anyhow::Result<()> {
    static INSTALLED: OnceLock<()> = OnceLock::new();
    if INSTALLED.set(()).is_err() {
        return Ok(());
    }
    let mut signals = stop_signals()?;
    narrows_io::thread::spawn("signals", move || {
        if let Some(signal) = signals.forever().next() {
            INTERRUPTED.store(true, Ordering::SeqCst);
            let current: Vec<_> = CURRENT
                .lock()
                .iter()
                .filter_map(|one| one.upgrade())
                .collect();
            // Side by side: each waits a moment for its peer to hear it.
            thread::scope(|scope| {
                for endpoint in &current {
                    let end = || endpoint.fail(Code::CANCELLED, "the peer was interrupted");
                    let _ = narrows_io::thread::spawn_scoped(scope, "last-words", end);
                }
            });
            crate::log::tell!("narrows: interrupted");
            for path in TO_REMOVE.lock().iter() {
                let _ = std::fs::remove_file(path);
            }
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

/// Files that are not whole, as far as they have no other name yet.
static TO_REMOVE: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// From now on the signals that [`on_signal`] catches remove this file, if it is still there.
pub fn remove_when_interrupted(path: &Path) {
    TO_REMOVE.lock().push(path.into());
}

/// So many threads, 0 being one for each processor.
pub fn processors(threads: usize) -> usize {
    match threads {
        0 => thread::available_parallelism().map_or(1, usize::from),
        _ => threads,
    }
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
    let words = std::env::args_os().skip(1).map(|word| typed(&word));
    std::iter::once("narrows".to_string())
        .chain(words)
        .collect::<Vec<_>>()
        .join(" ")
}

/// A word as a shell reads it.
fn typed(word: &OsStr) -> String {
    match word.to_str() {
        // An argument with a NUL cannot have come.
        Some(word) => shlex::try_quote(word).map_or_else(|_| word.into(), Into::into),
        // Bytes that are no text: as bash and zsh write them.
        None => {
            let bytes = word.as_bytes().iter();
            let escaped: String = bytes
                .map(|byte| match byte {
                    b'\'' | b'\\' => format!("\\{}", char::from(*byte)),
                    b' '..=b'~' => char::from(*byte).to_string(),
                    byte => format!("\\x{byte:02x}"),
                })
                .collect();
            format!("$'{escaped}'")
        }
    }
}

/// Ctrl-C reaches a program that we run by itself; we go when it has gone.
pub fn ignore_interrupts() -> anyhow::Result<()> {
    use signal_hook::{
        consts::{SIGINT, SIGQUIT},
        iterator::Signals,
    };
    let mut signals = Signals::new([SIGINT, SIGQUIT]).context("cannot catch signals")?;
    narrows_io::thread::spawn("signals", move || signals.forever().for_each(drop))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_line_can_be_typed_again() {
        let words: [(&[u8], &str); 4] = [
            (b"a-b", "a-b"),
            (b"it's", "\"it's\""),
            (b"", "''"),
            (b"n\xff'\n", r"$'n\xff\'\x0a'"),
        ];
        for (word, text) in words {
            assert_eq!(typed(OsStr::from_bytes(word)), text);
        }
    }

    #[test]
    fn a_pipe_is_widened_to_a_chunk_and_a_file_is_left_as_it_is() {
        let (reader, _writer) = io::pipe().unwrap();
        descriptor(&reader).unwrap();
        assert_eq!(pipe::fcntl_getpipe_size(&reader).unwrap(), PIPE_LEN);
        descriptor(&File::open("/dev/null").unwrap()).unwrap();
    }
}
