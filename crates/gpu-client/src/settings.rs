//! What `narrows gpu run` tells the library, by environment variables.

use std::{collections::HashMap, env, path::PathBuf, sync::OnceLock, time::Duration};

use narrows::{Access, Auth, Connector, Engine, Plan, Psk, Settings, candidate};

/// The server: `HOST[:PORT]` or `unix:/PATH`.
pub const TO: &str = "NARROWS_GPU_TO";
/// Folder of certificates.
pub const TLS: &str = "NARROWS_TLS_CERTIFICATES";
/// Name that the server's certificate must carry.
pub const TLS_HOSTNAME: &str = "NARROWS_GPU_TLS_HOSTNAME";
/// File of pre-shared keys.
pub const PSK: &str = "NARROWS_TLS_PSK";
/// Whose key of it.
pub const PSK_USER: &str = "NARROWS_GPU_PSK_USER";
/// Set where a plain connection beyond this host is allowed.
pub const INSECURE: &str = "NARROWS_GPU_INSECURE";
/// `adaptive`, `none`, `fixed` or `naive`.
pub const POLICY: &str = "NARROWS_POLICY";
/// Codec and level of the latter two.
pub const CODEC: &str = "NARROWS_CODEC";
/// Length of chunks, in bytes.
pub const CHUNK: &str = "NARROWS_GPU_CHUNK";
/// Chunks under way at once.
pub const DEPTH: &str = "NARROWS_GPU_DEPTH";
/// Threads that pack and unpack.
pub const THREADS: &str = "NARROWS_THREADS";
/// Connections to stripe over.
pub const CONNECTIONS: &str = "NARROWS_GPU_CONNECTIONS";
/// Send what packing makes even where it is no smaller.
pub const KEEP_LARGER: &str = "NARROWS_GPU_KEEP_LARGER";
/// What a second of processor time is worth, in seconds of the link's.
pub const CPU_PRICE: &str = "NARROWS_GPU_CPU_PRICE";
/// No level above this one.
pub const LEVEL_MAX: &str = "NARROWS_GPU_LEVEL_MAX";
/// No chunk refers to those before it.
pub const NO_HISTORY: &str = "NARROWS_GPU_NO_HISTORY";
/// Send the same bytes again however often they are copied.
pub const NO_CONTENT_CACHE: &str = "NARROWS_GPU_NO_CONTENT_CACHE";
/// A file for each decision and its outcome, one JSON line each.
pub const EXPLAIN: &str = "NARROWS_GPU_EXPLAIN";
/// A file for what the session carried, written at its end as one JSON document.
pub const SUMMARY: &str = "NARROWS_GPU_SUMMARY";

/// Settings of this process itself, which come before its environment.
static OWN: OnceLock<HashMap<&'static str, String>> = OnceLock::new();

/// What `narrows gpu` was told, for this library in another program or in this one.
#[derive(Debug, Clone, Default)]
pub struct Variables(HashMap<&'static str, String>);

impl Variables {
    /// Sets one, if there is something to set.
    pub fn set(&mut self, name: &'static str, value: Option<impl ToString>) {
        if let Some(value) = value {
            self.0.insert(name, value.to_string());
        }
    }

    /// For a program that is about to be started: names and values.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, &str)> {
        self.0.iter().map(|(name, value)| (*name, value.as_str()))
    }

    /// For this process, which speaks to the server itself. The first call counts.
    pub fn apply(self) {
        let _ = OWN.set(self.0);
    }
}

fn var(name: &str) -> Option<String> {
    let own = OWN.get().and_then(|own| own.get(name).cloned());
    own.or_else(|| env::var(name).ok())
        .filter(|value| !value.is_empty())
}

fn number<T: std::str::FromStr>(name: &str) -> Result<Option<T>, String> {
    var(name)
        .map(|value| {
            value
                .parse()
                .map_err(|_| format!("{name}={value} is not a number"))
        })
        .transpose()
}

/// How to reach the server.
///
/// # Errors
/// In words, with what to do next.
pub(crate) fn connector() -> Result<Connector, String> {
    let to = var(TO).ok_or_else(|| {
        format!("{TO} is not set: start the program with `narrows gpu run --to HOST -- PROGRAM`")
    })?;
    let access = Access {
        auth: auth()?,
        insecure: var(INSECURE).is_some(),
        ..Access::from(Auth::None)
    };
    Connector::new(&to, access).map_err(|fault| fault.to_string())
}

fn auth() -> Result<Auth, String> {
    if let Some(dir) = var(TLS) {
        return Ok(Auth::Tls {
            dir: PathBuf::from(dir),
            server_name: var(TLS_HOSTNAME),
        });
    }
    match var(PSK) {
        None => Ok(Auth::None),
        Some(path) => Psk::load(path.as_ref(), var(PSK_USER).as_deref())
            .map(Auth::Psk)
            .map_err(|fault| fault.to_string()),
    }
}

/// Threads and codecs.
pub(crate) fn engine() -> Result<Engine, String> {
    Ok(Engine::new(number(THREADS)?.unwrap_or(0)))
}

/// How to pack.
pub(crate) fn settings(engine: &Engine) -> Result<Settings, String> {
    let chunk_len = number(CHUNK)?;
    let mut settings = Settings::builder()
        .connections(number(CONNECTIONS)?.unwrap_or(1))
        .keep_if_smaller(var(KEEP_LARGER).is_none())
        .cpu_price(number(CPU_PRICE)?.unwrap_or(0.0))
        .history(var(NO_HISTORY).is_none())
        .resume_within(Duration::ZERO)
        .build();
    settings.chunk_len = chunk_len;
    settings.depth = number(DEPTH)?;
    settings.level_max = number(LEVEL_MAX)?.map(narrows::Level);
    let history_len = chunk_len.unwrap_or(Settings::CHUNK_LEN);
    let codec = var(CODEC)
        .map(|name| candidate(&engine.registry, &name, history_len))
        .transpose()
        .map_err(|fault| fault.to_string())?;
    settings.plan = match (var(POLICY).as_deref(), codec) {
        (Some("none"), _) => Plan::None,
        (Some("naive"), Some(codec)) => Plan::Naive(codec),
        (None | Some("fixed" | "adaptive"), Some(codec)) => Plan::Fixed(codec),
        (Some("naive" | "fixed"), None) => return Err(format!("{POLICY} needs {CODEC}")),
        (None | Some("adaptive"), None) => Plan::Adaptive,
        (Some(other), _) => return Err(format!("{POLICY}={other}: no such policy")),
    };
    // A channel has no end while its program runs, so "the whole message" is a copy: one chunk as long as there are any.
    if let Plan::Naive(codec) = settings.plan {
        settings.plan = Plan::Fixed(codec);
        settings.chunk_len = Some(narrows_core::limits::CHUNK_LEN_MAX);
        settings.depth = Some(1);
    }
    settings.limits.chunk_len_max = settings
        .limits
        .chunk_len_max
        .max(settings.chunk_len.unwrap_or(0));
    settings.limits.channels_max = narrows_gpu_wire::LANES_MAX as u16 + 1;
    Ok(settings)
}

/// Whether copies may be sent in pieces, which the server may keep. Not where that would make chunks shorter than they
/// are meant to be.
pub(crate) fn keeps_contents(settings: &Settings) -> bool {
    let short = settings
        .chunk_len
        .is_none_or(|len| len <= narrows_gpu_wire::CONTENT_LEN_MAX);
    short && var(NO_CONTENT_CACHE).is_none()
}

/// The file for decisions, if one is wanted.
pub(crate) fn explain() -> Option<PathBuf> {
    var(EXPLAIN).map(PathBuf::from)
}

/// The file for the summary, if one is wanted.
pub(crate) fn summary() -> Option<PathBuf> {
    var(SUMMARY).map(PathBuf::from)
}
