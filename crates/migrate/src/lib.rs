//! Live migration of virtual machines over a narrows session, between two unmodified QEMUs.
//!
//! ```text
//! source QEMU ==sockets==> near ==one session, packed==> far ==sockets==> destination QEMU
//!      ^ QMP: `source`                 control channel                     QMP: `destination` ^
//! ```
//!
//! One migration is one session: a lane (a channel of the session) for each socket QEMU opens, opened and connected in
//! the order of their coming, and where `run` and `serve` drive QEMU, a channel on which they talk. Whatever fails ends
//! the session, and with it every socket on both sides at once: the source then goes on running its guest, the
//! destination never gets one that is not whole.
//!
//! | module | holds |
//! |---|---|
//! | [`near`], [`far`] | the two ends: accept and open, accept and connect |
//! | [`migration`] | one session's lanes, its buffer law, its end |
//! | [`lane`] | one socket joined to its channel |
//! | [`backlog`] | how much may be held: pure |
//! | [`direct`] | whether a tunnel has anything to give on this link |
//! | [`tls`], `zstd` | QEMU's own TLS and its own packing, where there is none |
//! | [`aware`] | what is known of QEMU's multifd packets: headers apart, pages sent before left out. Pure |
//! | [`qmp`], [`monitor`] | QEMU's control protocol, and a connection that speaks it |
//! | [`source`], [`destination`] | what `run` and `serve` ask of their QEMU |
//! | [`control`] | what `run` and `serve` say to each other |
//! | [`status`], [`report`] | what people and scripts read during and after |
//!
//! Locks: of a migration its bounds, pacer, what QEMU has left, and its sockets; of `aware` the sender's and the
//! receiver's state; the probe of the link. Each is locked alone, and no gauge of the session is read under one.
#![forbid(unsafe_code)]

pub mod aware;
pub mod backlog;
pub mod control;
pub mod cpu;
pub mod destination;
pub mod direct;
pub mod drive;
pub mod far;
pub mod lane;
pub mod migration;
pub mod monitor;
pub mod near;
pub mod qmp;
pub mod report;
pub mod serve;
pub mod source;
pub mod status;
mod thread;
pub mod tls;
mod zstd;

use narrows::{Code, Error, Plan, Settings, SettingsBuilder};
use narrows_core::{Level, Limits};

use crate::qmp::QmpError;

/// Service name of a channel that carries one of QEMU's sockets.
pub const SERVICE_LANE: &str = "migrate";
/// Service name of the channel between `run` and `serve`.
pub const SERVICE_CONTROL: &str = "migrate-control";

/// Why a migration failed. The text says what to do next; the code is the command's exit code.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MigrateError {
    /// The session ended, by the peer or the network.
    #[error(transparent)]
    Session(#[from] Error),
    /// QEMU's control socket broke or refused.
    #[error(transparent)]
    Qmp(#[from] QmpError),
    /// QEMU gave the migration up; its guest goes on where it was.
    #[error("QEMU says that the migration {state}{}", .reason.as_ref().map_or_else(String::new, |why| format!(": {why}")))]
    Qemu {
        /// QEMU's word: `failed`, `cancelled`.
        state: String,
        /// Its reason, where it gives one.
        reason: Option<String>,
        /// It had sent something: the destination waits no longer.
        begun: bool,
    },
    /// A socket here cannot be had.
    #[error("{what}: {fault}")]
    Socket {
        /// What was tried.
        what: &'static str,
        /// The system's word.
        fault: std::io::Error,
    },
}

impl MigrateError {
    /// The code the peer is told and the command exits with.
    #[must_use]
    pub fn code(&self) -> Code {
        match self {
            Self::Session(end) => end.code(),
            Self::Qmp(_) | Self::Socket { .. } => Code::FAILED,
            Self::Qemu { state, .. } if state == source::CANCELLED => Code::CANCELLED,
            Self::Qemu { .. } => Code::FAILED,
        }
    }
}

/// What a second of processor time is worth where nobody says, in seconds of the link's time.
///
/// The processors beside a guest that moves belong to the guests that stay, and what looks idle is somebody's: so ten
/// processor-seconds, of either host, must save a second of the migration.
pub const CPU_PRICE: f64 = 0.1;

/// The highest level where nobody says. At 100 Mbit/s, level 3 took programs and documents a seventh more processor
/// time at the source for a hundredth of the bytes, levels 6 and 9 twice the packing time for as little again, and a
/// price that keeps them away keeps packing away where it pays.
pub const LEVEL_MAX: Level = Level(2);

/// What the adaptive policy chooses among. Memory holds bytes of all kinds side by side, so what takes them for numbers
/// of a width gains nothing; and DEFLATE, which packs about as fast as zstd 1 and less, was what half of a guest
/// travelled as at 1 Gbit/s: 8 % more bytes, and a fifth more processor time at the destination, on processors that
/// were all busy.
pub const CODECS: &[&str] = &["zstd"];

/// And this level, which others do not choose among: packets are long enough for its tables. Of programs and documents
/// in packets of 512 KiB it makes 6 % fewer bytes than level 1 in the same time, and 4 % more than level 3 in two
/// thirds of the time.
pub const ALSO: &[(&str, i16)] = &[("zstd", 2)];

/// What a session that carries a migration may hold, on `base`.
///
/// Windows of eight packets a lane: a lane whose packets do not shrink must not wait for a round trip after each.
/// History of two packets: QEMU's own zstd keeps one stream a channel, which at level 3 saves a twentieth of the bytes.
/// Where multifd is understood nobody uses it: what a megabyte of it would find is copied out of any page sent before,
/// and the search of it took longer than packing what is left.
#[must_use]
pub fn limits(lanes_max: u16) -> Limits {
    Limits {
        chunk_len_max: 1 << 20,
        history_len_max: 1 << 20,
        window_len: 4 << 20,
        channels_max: lanes_max,
        ..Limits::default()
    }
}

/// The settings of the source's side: what shrinks memory at little processor time, since the processors are other
/// guests' too. What the user asked for stands.
#[must_use]
pub fn near_settings(
    settings: Settings,
    cpu_price: Option<f64>,
    level_max: Option<Level>,
) -> Settings {
    SettingsBuilder::from(settings)
        .cpu_price(cpu_price.unwrap_or(CPU_PRICE))
        .level_max(level_max.unwrap_or(LEVEL_MAX))
        .among(CODECS.iter().map(|name| (*name).into()).collect())
        .also(
            ALSO.iter()
                .map(|(name, level)| ((*name).into(), *level))
                .collect(),
        )
        .build()
}

/// The settings of the destination's side: what it sends is the return path, a few bytes that must not wait to be
/// packed.
#[must_use]
pub fn far_settings(settings: Settings) -> Settings {
    SettingsBuilder::from(settings).plan(Plan::None).build()
}
