//! Groups of flags that several commands have, and how their values are read.

use std::{path::PathBuf, time::Duration};

use narrows_core::{
    limits::{CHUNK_LEN_MAX, CHUNK_LEN_MIN},
    units::{ParseUnitError, Size},
};

/// How to pack.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Packing")]
pub struct Packing {
    /// How to choose codecs
    #[arg(long, value_enum, default_value_t, env = "NARROWS_POLICY")]
    pub policy: PolicyName,
    /// Codec of the fixed and naive policies, with its level: `zstd:3`, `lz4`. Alone it means --policy fixed
    #[arg(long, value_name = "NAME[:LEVEL]", env = "NARROWS_CODEC")]
    pub codec: Option<String>,
    /// Threads that pack and unpack; 0 means one for each processor
    #[arg(short = 'T', long, default_value_t = 0, env = "NARROWS_THREADS", value_parser = threads)]
    pub threads: usize,
    /// Length of chunks, 512 to 16M; the policy's choice if not given
    #[arg(long, value_name = "SIZE")]
    pub chunk: Option<Size>,
    /// Chunks under way at once. [default: 16, or three for each thread if that is more]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub depth: Option<u16>,
    /// Send what the codec made even where it is no smaller (the published pipeline's plain variant)
    #[arg(long)]
    pub keep_larger: bool,
    /// Round the lengths of what is sent up, by an eighth at most, so that who sees them can tell less
    #[arg(long)]
    pub pad: bool,
    /// What a second of processor time is worth, in seconds of the link's: 0 spends whatever saves time, 0.1 wants one
    /// second saved for ten spent. [default: 0; 0.1 for a migration, whose processors are other guests']
    #[arg(long, value_name = "SECONDS", value_parser = price, conflicts_with = "codec")]
    pub cpu_price: Option<f64>,
    /// Choose no level above this one. [default: any; 2 for a migration]
    #[arg(long, value_name = "LEVEL", conflicts_with = "codec")]
    pub level_max: Option<i16>,
    /// Pack every chunk on its own, without reference to those before it, as `lz4` and `zstd` below level 2 do anyway
    /// when named by --codec, unless in a tunnel or with chunks shorter than 64K
    #[arg(long)]
    pub no_history: bool,
    /// Write each decision, its estimate and its outcome to this file as JSON Lines
    #[arg(long, value_name = "FILE")]
    pub explain: Option<PathBuf>,
}

/// A policy by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum PolicyName {
    /// Follow link, processors and data, chunk by chunk
    #[default]
    Adaptive,
    /// Send raw
    None,
    /// The whole message packed, then sent, then unpacked
    Naive,
    /// One codec and level for all
    Fixed,
}

/// What the session may hold and how it recovers.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Session")]
pub struct Session {
    /// TCP connections to stripe over
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=64))]
    pub connections: u16,
    /// Packed bytes the sender may have outstanding, per channel, the lesser of both ends'; 64K to 1G
    #[arg(long, default_value = "16M", value_name = "SIZE", value_parser = window)]
    pub window: Size,
    /// Seconds a cut session waits for its peer
    #[arg(long, default_value = "10", value_name = "SECONDS", value_parser = seconds)]
    pub resume_within: Duration,
    /// Serve Prometheus metrics at this address
    #[arg(long, value_name = "ADDRESS", env = "NARROWS_METRICS")]
    pub metrics: Option<String>,
}

/// Who may talk to whom. Anything but loopback and Unix sockets needs one of these.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Security")]
pub struct Security {
    /// Mutual TLS 1.3 with the certificates in this directory (ca-cert.pem, server-cert.pem, …)
    #[arg(long, value_name = "DIR", env = "NARROWS_TLS_CERTIFICATES")]
    pub tls_certificates: Option<PathBuf>,
    /// Name the server's certificate must carry, if not the host connected to
    #[arg(long, value_name = "NAME", requires = "tls_certificates")]
    pub tls_hostname: Option<String>,
    /// Pre-shared key file, lines of `user:hex`
    #[arg(
        long,
        value_name = "FILE",
        conflicts_with = "tls_certificates",
        env = "NARROWS_TLS_PSK"
    )]
    pub tls_psk: Option<PathBuf>,
    /// Whose key of the file; the first if not given
    #[arg(long, value_name = "USER", requires = "tls_psk")]
    pub psk_user: Option<String>,
    /// Take only clients of this name, by their certificate or as a user of the key file; may be repeated
    #[arg(long, value_name = "NAME")]
    pub allow: Vec<String>,
    /// Allow a plain connection beyond this host: anybody on the way can read and change the data
    #[arg(long)]
    pub insecure: bool,
}

/// Reads a number of threads.
pub fn threads(text: &str) -> Result<usize, String> {
    text.parse()
        .ok()
        .filter(|threads| *threads <= 1024)
        .ok_or_else(|| "not a number from 0 to 1024".into())
}

/// Reads a length, one byte at least.
pub fn size(text: &str) -> Result<Size, String> {
    let size: Size = text
        .parse()
        .map_err(|fault: ParseUnitError| fault.to_string())?;
    (size.0 > 0)
        .then_some(size)
        .ok_or_else(|| "not a length of at least 1 byte".into())
}

/// Reads a length of chunks.
pub fn chunk_len(text: &str) -> Result<Size, String> {
    let size = size(text)?;
    (CHUNK_LEN_MIN as u64..=CHUNK_LEN_MAX as u64)
        .contains(&size.0)
        .then_some(size)
        .ok_or_else(|| "not from 512 to 16M".into())
}

/// Reads a span that is longer than nothing.
pub fn some_seconds(text: &str) -> Result<Duration, String> {
    let span = seconds(text)?;
    (!span.is_zero())
        .then_some(span)
        .ok_or_else(|| "not a number of seconds above 0".into())
}

fn window(text: &str) -> Result<Size, String> {
    let size: Size = text
        .parse()
        .map_err(|fault: ParseUnitError| fault.to_string())?;
    (64 << 10..=1 << 30)
        .contains(&size.0)
        .then_some(size)
        .ok_or_else(|| "not from 64K to 1G".into())
}

/// Reads a span.
pub fn seconds(text: &str) -> Result<Duration, String> {
    text.parse()
        .ok()
        .and_then(|s| Duration::try_from_secs_f64(s).ok())
        .ok_or_else(|| "not a number of seconds".into())
}

/// Reads a span.
pub fn milliseconds(text: &str) -> Result<Duration, String> {
    seconds(text)
        .map(|duration| duration / 1000)
        .map_err(|_| "not a number of milliseconds".into())
}

fn price(text: &str) -> Result<f64, String> {
    text.parse()
        .ok()
        .filter(|price| (0.0..=1e6).contains(price))
        .ok_or_else(|| "not a number of seconds".into())
}
