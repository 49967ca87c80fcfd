//! Who packs pages: a codec, zBeWalgo, a profile or one chain.

use narrows_chains::{
    Chain, Chains, Limit, PAGE, PagePacker, Profile,
    chain::{self, Scratch},
    zbewalgo::{self, Settings, Zbewalgo},
};
use narrows_codecs::{
    deflate::DEFLATE,
    lz4::{Lz4, Lz4Hc},
    lzo1x::Lzo1x,
    nx842::Nx842,
    zstd::Zstd,
};
use narrows_core::{Codec, Level, Workspace};

use super::{Page, PagesError};

/// One of them, with its scratch memory and what it learns from page to page.
#[derive(Debug)]
pub struct Contestant {
    name: String,
    way: Way,
}

#[derive(Debug)]
enum Way {
    Codec {
        codec: &'static dyn Codec,
        level: Level,
        ws: Workspace,
    },
    Zbewalgo(Box<Zbewalgo>, Settings),
    Profile(Box<PagePacker>),
    Chain(Chain, Box<Scratch>),
}

/// Page codecs that the kernel has or had.
const CODECS: [(&str, &dyn Codec, i16); 7] = [
    ("lz4", &Lz4, 0),
    ("lz4-hc", &Lz4Hc, 9),
    ("lzo", &Lzo1x, 0),
    ("zstd-1", &Zstd, 1),
    ("zstd-3", &Zstd, 3),
    ("deflate-6", &DEFLATE, 6),
    ("842", &Nx842, 0),
];

const PROFILES: [(&str, Profile); 4] = [
    ("fast", Profile::Fast),
    ("dense", Profile::Dense),
    ("balanced", Profile::Balanced),
    ("ratio", Profile::Ratio),
];

impl Contestant {
    /// Every codec, zBeWalgo with its ten chains, every profile.
    #[must_use]
    pub fn usual() -> Vec<Self> {
        // Six times as slow as all others together for a few percent: by name only.
        let often = CODECS.iter().filter(|(name, ..)| *name != "lz4-hc");
        let names = often.map(|(name, ..)| *name).chain(["zbewalgo"]);
        let names = names.chain(PROFILES.iter().map(|(name, _)| *name));
        names
            .map(|name| Self::named(name).expect("names of the tables above"))
            .collect()
    }

    /// Each of zBeWalgo's ten chains, and each built-in chain, alone.
    #[must_use]
    pub fn chains() -> Vec<Self> {
        let published = zbewalgo::DEFAULT
            .iter()
            .map(|chain| format!("zbewalgo:{chain}"));
        let ours = Chain::builtins()
            .iter()
            .map(|chain| format!("chain:{chain}"));
        published
            .chain(ours)
            .map(|name| Self::named(&name).expect("names of built-in chains"))
            .collect()
    }

    /// `lz4`, `lz4-hc`, `lzo`, `zstd-1`, `zstd-3`, `deflate-6`, `842`, `zbewalgo`, `zbewalgo:STEPS` (`*` for its curated list),
    /// `fast`, `dense`, `balanced`, `ratio`, `chain:STEPS`.
    ///
    /// # Errors
    /// [`PagesError::Unknown`].
    pub fn named(name: &str) -> Result<Self, PagesError> {
        let unknown =
            |fault: &dyn std::fmt::Display| PagesError::Unknown(format!("{name}: {fault}"));
        let way = if let Some((_, codec, level)) = CODECS.iter().find(|(known, ..)| *known == name)
        {
            Way::Codec {
                codec: *codec,
                level: Level(*level),
                ws: Workspace::default(),
            }
        } else if let Some((_, profile)) = PROFILES.iter().find(|(known, _)| *known == name) {
            Way::Profile(Box::new(PagePacker::new(*profile)))
        } else if let Some(steps) = name.strip_prefix("chain:") {
            Way::Chain(
                Chain::parse(steps).map_err(|fault| unknown(&fault))?,
                Box::default(),
            )
        } else if name == "zbewalgo" {
            Way::Zbewalgo(Box::default(), Settings::default())
        } else if let Some(steps) = name.strip_prefix("zbewalgo:") {
            let mut settings = Settings::default();
            settings.set(steps).map_err(|fault| unknown(&fault))?;
            Way::Zbewalgo(Box::new(Zbewalgo::new(settings.clone())), settings)
        } else {
            let known = CODECS
                .iter()
                .map(|(name, ..)| *name)
                .chain(PROFILES.iter().map(|(name, _)| *name));
            let known = known.collect::<Vec<_>>().join(", ");
            return Err(unknown(&format!(
                "no such codec; there are {known}, zbewalgo, zbewalgo:STEPS and chain:STEPS"
            )));
        };
        Ok(Self {
            name: name.into(),
            way,
        })
    }

    /// As [`Contestant::named`] takes it.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Packs `page` into the front of `out`; `None` if that takes more than `limit` bytes.
    pub(super) fn pack(&mut self, page: &Page, out: &mut Page, limit: usize) -> Option<usize> {
        match &mut self.way {
            Way::Codec { codec, level, ws } => codec.pack(page, *level, &[], &mut out[..limit], ws),
            Way::Zbewalgo(zbewalgo, _) => zbewalgo.pack(page, &mut out[..limit]),
            Way::Profile(packer) => packer.pack(page, out).filter(|len| *len <= limit),
            Way::Chain(chain, scratch) => chain.pack(page, &mut out[..limit], scratch),
        }
    }

    /// Whether `packed` unpacks into `page`.
    pub(super) fn unpack(&mut self, packed: &[u8], page: &mut [u8; PAGE]) -> bool {
        match &mut self.way {
            Way::Codec { codec, ws, .. } => codec.unpack(packed, &[], page, ws).is_ok(),
            Way::Zbewalgo(zbewalgo, _) => zbewalgo.unpack(packed, page).is_ok(),
            Way::Profile(packer) => packer.unpack(packed, page).is_ok(),
            Way::Chain(_, scratch) => chain::unpack(packed, page, scratch).is_ok(),
        }
    }

    /// Another of the same kind, which has learnt nothing yet and refuses what exceeds `limit` bytes.
    pub(super) fn anew(&self, limit: usize) -> Self {
        let way = match &self.way {
            Way::Codec { codec, level, .. } => Way::Codec {
                codec: *codec,
                level: *level,
                ws: Workspace::default(),
            },
            Way::Zbewalgo(_, settings) => {
                Way::Zbewalgo(Box::new(Zbewalgo::new(settings.clone())), settings.clone())
            }
            Way::Profile(packer) => {
                let shared = Limit::default();
                shared.set(limit);
                Way::Profile(Box::new(PagePacker::with(
                    packer.profile(),
                    shared,
                    Chains::default(),
                )))
            }
            Way::Chain(chain, _) => Way::Chain(*chain, Box::default()),
        };
        Self {
            name: self.name.clone(),
            way,
        }
    }
}
