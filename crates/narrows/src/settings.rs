//! What a user may set, and what follows from it.

use std::{ops::RangeInclusive, sync::Arc, time::Duration};

use narrows_core::{Candidate, CodecId, Level, Limits, Policy, Registry, registry::Entry};
use narrows_pipeline::Explain;
use narrows_policy::{Adaptive, Config, Fixed, NonePolicy, Offer, default_offers};

/// How chunks are to be packed.
///
/// ```
/// use narrows::{Engine, Plan, Settings, candidate};
///
/// let engine = Engine::new(1);
/// let plan = Plan::Fixed(candidate(&engine.registry, "zstd:3", 0)?);
/// let settings = Settings::builder().plan(plan).build();
/// assert!(matches!(settings.plan, Plan::Fixed(_)));
/// # Ok::<(), narrows::UnknownCodec>(())
/// ```
#[derive(Debug, Clone, Default, PartialEq)]
pub enum Plan {
    /// Raw.
    None,
    /// The whole message packed, then sent, then unpacked: scenario B of Peñaranda et al. 2024.
    Naive(Candidate),
    /// One codec and level for every chunk: scenario C.
    Fixed(Candidate),
    /// By link, processors and data.
    #[default]
    Adaptive,
}

/// What a user may set of an endpoint.
///
/// ```
/// use narrows::{Plan, Settings};
///
/// let settings = Settings::builder().chunk_len(64 << 10).history(false).build();
/// assert_eq!(settings.plan, Plan::Adaptive);
/// assert_eq!(settings.chunk_len, Some(65_536));
/// ```
#[derive(Clone)]
#[non_exhaustive]
pub struct Settings {
    /// How to pack.
    pub plan: Plan,
    /// Length of chunks in bytes; `None` lets the policy choose.
    pub chunk_len: Option<usize>,
    /// Chunks under way at once, per channel; [`Settings::depth`] where nobody says.
    pub depth: Option<usize>,
    /// Send raw what packing does not shrink: the paper's V2. Without it, what the codec made is sent.
    pub keep_if_smaller: bool,
    /// Round the lengths of frames up, by an eighth at most, so that they tell less of what is in them.
    pub pad: bool,
    /// What a second of processor time is worth at least to the adaptive plan, in seconds of the link's; 0 spends
    /// whatever saves time.
    pub cpu_price: f64,
    /// What an earlier session measured the link to carry, in bytes per second: the adaptive plan begins with it.
    pub link_bytes_per_s: Option<f64>,
    /// No level above this one for the adaptive plan.
    pub level_max: Option<Level>,
    /// Names of the codecs that the adaptive plan chooses among, beside raw; all where nobody says.
    pub among: Option<Vec<String>>,
    /// Names and levels that the adaptive plan chooses among as well. What they cost is taken from the nearest level
    /// that is known, until they were tried.
    pub also: Vec<(String, i16)>,
    /// Whether a chunk's codec may refer to chunks before it in its channel.
    pub history: bool,
    /// What this side is willing to hold when it receives.
    pub limits: Limits,
    /// Connections to stripe over; only the dialling side's counts.
    pub connections: usize,
    /// How long a session without a link waits for a new one.
    pub resume_within: Duration,
    /// Silence after which a link is given up; the peer is asked for a sign of life after a quarter of that.
    pub silence: Duration,
    /// Told of each decision and what became of it.
    pub explain: Option<Explain>,
    /// Services that this side takes, as [`crate::Endpoint::peer_takes`] tells the peer: for those that came after the
    /// first version, which no older peer knows. Words without spaces.
    pub services: Vec<String>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            plan: Plan::Adaptive,
            chunk_len: None,
            depth: None,
            keep_if_smaller: true,
            pad: false,
            cpu_price: 0.0,
            link_bytes_per_s: None,
            level_max: None,
            among: None,
            also: Vec::new(),
            history: true,
            limits: Limits::default(),
            connections: 1,
            resume_within: Duration::from_secs(10),
            silence: Duration::from_secs(20),
            explain: None,
            services: Vec::new(),
        }
    }
}

impl std::fmt::Debug for Settings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Settings")
            .field("plan", &self.plan)
            .field("chunk_len", &self.chunk_len)
            .finish_non_exhaustive()
    }
}

/// Makes [`Settings`]; what is not set is as in [`Settings::default`], or as in the settings it was made from.
///
/// ```
/// use narrows::{Settings, SettingsBuilder};
///
/// let base = Settings::builder().connections(4).build();
/// let settings = SettingsBuilder::from(base).depth(32).build();
/// assert_eq!((settings.connections, settings.depth), (4, Some(32)));
/// ```
#[derive(Debug, Clone, Default)]
pub struct SettingsBuilder(Settings);

/// One method for each setting.
macro_rules! setters {
    ($($(#[$doc:meta])* $name:ident: $type:ty $(=> $wrap:path)?;)*) => {
        impl SettingsBuilder {
            $($(#[$doc])*
            #[must_use]
            pub fn $name(mut self, $name: $type) -> Self {
                self.0.$name = $($wrap)?($name);
                self
            })*

            /// The settings.
            #[must_use]
            pub fn build(self) -> Settings {
                self.0
            }
        }
    };
}

setters! {
    /// See [`Settings::plan`].
    plan: Plan;
    /// See [`Settings::chunk_len`].
    chunk_len: usize => Some;
    /// See [`Settings::depth`].
    depth: usize => Some;
    /// See [`Settings::keep_if_smaller`].
    keep_if_smaller: bool;
    /// See [`Settings::pad`].
    pad: bool;
    /// See [`Settings::cpu_price`].
    cpu_price: f64;
    /// See [`Settings::link_bytes_per_s`].
    link_bytes_per_s: f64 => Some;
    /// See [`Settings::level_max`].
    level_max: Level => Some;
    /// See [`Settings::among`].
    among: Vec<String> => Some;
    /// See [`Settings::also`].
    also: Vec<(String, i16)>;
    /// See [`Settings::history`].
    history: bool;
    /// See [`Settings::services`].
    services: Vec<String>;
    /// See [`Settings::limits`].
    limits: Limits;
    /// See [`Settings::connections`].
    connections: usize;
    /// See [`Settings::resume_within`].
    resume_within: Duration;
    /// See [`Settings::silence`].
    silence: Duration;
    /// See [`Settings::explain`].
    explain: Explain => Some;
}

impl From<Settings> for SettingsBuilder {
    fn from(settings: Settings) -> Self {
        Self(settings)
    }
}

/// How near the peer is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Near {
    /// On this machine, so that its processors are ours.
    pub host: bool,
    /// Over loopback, with nothing in between.
    pub loopback: bool,
}

/// A codec or a level that no backend here has.
///
/// ```
/// use narrows::{Engine, UnknownCodec, candidate};
///
/// let engine = Engine::new(1);
/// let error = candidate(&engine.registry, "zstd:99", 0).unwrap_err();
/// assert!(matches!(error, UnknownCodec::Level { codec: "zstd", .. }));
/// ```
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UnknownCodec {
    /// Nobody registered the name.
    #[error("there is no codec `{0}` here; `narrows codecs` lists those there are")]
    Name(String),
    /// The codec has no such level.
    #[error("{codec} has {}; `{level}` is none", said(.levels))]
    Level {
        /// Which codec.
        codec: &'static str,
        /// What was asked for.
        level: String,
        /// Those there are.
        levels: RangeInclusive<i16>,
    },
}

fn said(levels: &RangeInclusive<i16>) -> String {
    match (levels.start(), levels.end()) {
        (0, 0) => "no levels".into(),
        (least, most) => format!("levels {least}..{most}"),
    }
}

/// Who packs as `text` says, and at which level: `zstd`, `zstd:3`, `lz4-hc:9`, a codec's name and, after a colon, its
/// level. That is the best backend that has the level; without one, the best backend at its default.
///
/// # Errors
/// [`UnknownCodec`].
pub fn packer<'a>(registry: &'a Registry, text: &str) -> Result<(&'a Entry, Level), UnknownCodec> {
    let (name, level) = text
        .split_once(':')
        .map_or((text, None), |(name, level)| (name, Some(level)));
    let info = registry
        .by_name(name)
        .ok_or_else(|| UnknownCodec::Name(name.into()))?
        .info();
    let asked = level
        .map_or(Ok(info.level_default), str::parse)
        .ok()
        .map(Level);
    asked
        .and_then(|level| Some((registry.packer(info.id, level)?, level)))
        .ok_or_else(|| UnknownCodec::Level {
            codec: info.name,
            level: level.unwrap_or_default().into(),
            levels: registry.levels(info.id).unwrap_or(0..=0),
        })
}

/// What `text` asks for (see [`packer`]), with the history that the codec can use of `history_len` bytes.
///
/// # Errors
/// [`UnknownCodec`].
pub fn candidate(
    registry: &Registry,
    text: &str,
    history_len: usize,
) -> Result<Candidate, UnknownCodec> {
    let (packer, level) = packer(registry, text)?;
    let info = packer.codec.info();
    Ok(Candidate {
        codec: info.id,
        level,
        history_len: if info.history { history_len as u32 } else { 0 },
    })
}

/// Chunks from this length on, in bytes, travel without history in a plan that packs all of them as `candidate` says.
/// Fast codecs gain a hundredth by it where chunks are long, and one thread would have to unpack them all, since each
/// waits for the one before it.
#[must_use]
pub fn history_below(registry: &Registry, candidate: Candidate) -> usize {
    let fast = registry
        .by_id(candidate.codec)
        .is_some_and(|codec| match codec.info().name {
            "lz4" => true,
            // History makes long chunks 2 to 13 % smaller from level 2 on; before that, 3 % larger to 8 % smaller.
            "zstd" => candidate.level < Level(2),
            _ => false,
        });
    if fast { 64 << 10 } else { usize::MAX }
}

impl Settings {
    /// Begins with [`Settings::default`].
    #[must_use]
    pub fn builder() -> SettingsBuilder {
        SettingsBuilder::default()
    }

    /// Chunk length of the plans that do not choose one.
    pub const CHUNK_LEN: usize = 256 << 10;

    /// Chunks under way at once, per channel, with so many threads. Each may be packing one, and as many more are packed
    /// and wait for one before them or for the link.
    #[must_use]
    pub fn depth(&self, workers: usize) -> usize {
        self.depth.unwrap_or((3 * workers).max(16))
    }

    /// The codec of this name, where the adaptive plan may choose it for a receiver with `codecs`.
    fn offered(&self, registry: &Registry, codecs: &[CodecId], name: &str) -> Option<CodecId> {
        if self
            .among
            .as_ref()
            .is_some_and(|among| among.iter().all(|one| one != name))
        {
            return None;
        }
        let id = registry.by_name(name)?.id();
        // What it is taken to cost is what ISA-L takes; the built-in library stores at level 0, and at 1 packs less and
        // half as fast as zstd.
        if name == "deflate"
            && registry
                .packer(id, Level(0))
                .is_none_or(|packer| packer.backend == "cpu")
        {
            return None;
        }
        codecs.contains(&id).then_some(id)
    }

    /// What the adaptive policy chooses among.
    fn offers(&self, registry: &Registry, codecs: &[CodecId], history_len_max: u32) -> Vec<Offer> {
        let mut offers =
            default_offers(|name| self.offered(registry, codecs, name), history_len_max);
        for &(ref name, level) in &self.also {
            let name = name.as_str();
            let Some(codec) = self.offered(registry, codecs, name) else {
                continue;
            };
            // Neighbours in price are neighbours in this list.
            let before = |offer: &Offer| offer.name == name && offer.candidate.level.0 < level;
            let at = offers
                .iter()
                .rposition(before)
                .map_or(offers.len(), |at| at + 1);
            let candidate = Candidate {
                codec,
                level: Level(level),
                history_len: 0,
            };
            offers.insert(at, Offer::new(candidate, name));
        }
        offers
    }

    pub(crate) fn is_naive(&self) -> bool {
        matches!(self.plan, Plan::Naive(_))
    }

    /// The policy of the plan, for a receiver with these bounds and codecs, so near, and the most history it asks for.
    /// No more is kept: chunks that are held for nothing keep their buffers from being used again while they are in the
    /// cache.
    pub(crate) fn policy(
        &self,
        registry: &Arc<Registry>,
        limits: &Limits,
        codecs: &[CodecId],
        near: Near,
    ) -> (Box<dyn Policy>, usize) {
        let chunk_len = self
            .chunk_len
            .unwrap_or(Self::CHUNK_LEN)
            .min(limits.chunk_len_max);
        let history_len_max = limits.history_len_max.min(self.limits.history_len_max) as u32;
        let allowed = |candidate: Candidate| {
            if codecs.contains(&candidate.codec)
                && registry.packer(candidate.codec, candidate.level).is_some()
            {
                Candidate {
                    history_len: candidate.history_len.min(history_len_max),
                    ..candidate
                }
            } else {
                Candidate::RAW
            }
        };
        let fixed = |candidate: Candidate, chunk_len| -> (Box<dyn Policy>, usize) {
            let candidate = allowed(candidate);
            let history_below = history_below(registry, candidate);
            (
                Box::new(Fixed {
                    candidate,
                    chunk_len,
                    history_below,
                }),
                candidate.history_len as usize,
            )
        };
        match self.plan {
            Plan::None => {
                let chunk_len = self
                    .chunk_len
                    .unwrap_or(NonePolicy::default().chunk_len)
                    .min(limits.chunk_len_max);
                (Box::new(NonePolicy { chunk_len }), 0)
            }
            Plan::Naive(candidate) => fixed(candidate, limits.chunk_len_max),
            Plan::Fixed(candidate) => fixed(candidate, chunk_len),
            Plan::Adaptive => {
                let offers = self.offers(registry, codecs, history_len_max);
                let history_len = offers
                    .iter()
                    .map(|offer| offer.candidate.history_len)
                    .max()
                    .unwrap_or(0);
                let mut config = Config {
                    chunk_len: self.chunk_len,
                    cpu_price: self.cpu_price,
                    rate_recalled_bytes_per_s: self.link_bytes_per_s,
                    level_max: self.level_max,
                    history_len_max,
                    shared_host: near.host,
                    ..Config::default()
                };
                if near.loopback {
                    config.rate_guess_bytes_per_s = LOOPBACK_GUESS;
                }
                (
                    Box::new(Adaptive::new(offers, config)),
                    history_len as usize,
                )
            }
        }
    }
}

/// What loopback is taken for until it is measured, in bytes per second: less than it carried on any machine that
/// it was measured on, and as fast as links are on which raw is compared with packing.
const LOOPBACK_GUESS: f64 = 1e9;

#[cfg(test)]
mod tests {
    use narrows_core::Gauges;

    use super::*;

    #[test]
    fn long_chunks_refer_back_where_it_pays() {
        let mut registry = Registry::default();
        registry.add(&narrows_codecs::Cpu).unwrap();
        let registry = Arc::new(registry);
        let ids: Vec<_> = registry.ids().collect();
        let near = Near {
            host: false,
            loopback: false,
        };
        for (text, long, short) in [
            ("zstd:3", 8192, 8192),
            ("zstd:1", 0, 8192),
            ("zstd:-5", 0, 8192),
            ("lz4", 0, 8192),
            ("snappy", 0, 0),
        ] {
            let plan = Plan::Fixed(candidate(&registry, text, 8192).unwrap());
            let settings = Settings {
                plan,
                ..Settings::default()
            };
            let mut policy = settings.policy(&registry, &Limits::default(), &ids, near).0;
            let mut history = |len| {
                policy
                    .decide(&vec![0; len], &Gauges::default())
                    .candidate
                    .history_len
            };
            assert_eq!(
                [history(256 << 10), history(4 << 10)],
                [long, short],
                "{text}"
            );
        }
    }

    #[test]
    fn deflate_is_offered_where_a_fast_library_packs_it() {
        let mut registry = Registry::default();
        registry.add(&narrows_codecs::Cpu).unwrap();
        let ids: Vec<_> = registry.ids().collect();
        let offered = |registry: &Registry, name| Settings::default().offered(registry, &ids, name);
        assert_eq!(offered(&registry, "deflate"), None);
        assert_eq!(offered(&registry, "zstd"), Some(CodecId(9)));
        registry.add(&narrows_backends::isal::IsaL).unwrap();
        let there = registry
            .probed()
            .iter()
            .any(|(name, found)| *name == "isa-l" && found.is_ok());
        assert_eq!(offered(&registry, "deflate").is_some(), there);
    }
}
