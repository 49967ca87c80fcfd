//! Which codec a chunk gets.
//!
//! A look at the chunk (`narrows_policy::probe`, 2 KiB of it) says whether it holds numbers and how wide they are. What
//! is none goes to zstd at the level that was asked for, with no trial: text and programs pack as fast as zstd packs
//! them. Where there may be numbers, the codecs that suit them are tried on samples of the chunk, and those that come near
//! the best on all of it; the shortest wins. The choice depends on the chunk and the options alone, so a file is the same whatever the threads.
//!
//! Neighbours: `write` asks; [`crate::pages`] and [`crate::bits`] are codecs that only files have.

use std::sync::{Arc, LazyLock};

use narrows_core::{Backend, Codec, CodecId, Level, Registry, Unavailable, Workspace};
use narrows_policy::{
    prior::PriorKind,
    probe::{ChunkFeatures, ChunkProbe},
};

use crate::{
    Element, FileOptions,
    bits::{BITS, Bits, two_values},
    pages::{PAGES, Pages},
};

/// The codecs of files: those of the CPU, [`Pages`] and [`Bits`].
pub(crate) static CODECS: LazyLock<Registry> = LazyLock::new(|| {
    let mut registry = Registry::default();
    registry
        .add(&narrows_codecs::cpu())
        .and_then(|registry| registry.add(&Own))
        .expect("each codec has a number of its own");
    registry
});

/// Codecs that only files have.
#[derive(Debug)]
struct Own;

impl Backend for Own {
    fn name(&self) -> &'static str {
        "file"
    }

    fn priority(&self) -> i32 {
        0
    }

    fn probe(&self) -> Result<Vec<Arc<dyn Codec>>, Unavailable> {
        Ok(vec![Arc::new(Pages), Arc::new(Bits)])
    }
}

/// A codec, and as much work as zstd does at a level.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Choice {
    pub(crate) codec: CodecId,
    level: u8,
    /// What it makes of the chunk at the level of the contest, where that was tried.
    quick_len: Option<usize>,
}

impl Choice {
    /// zstd at this level.
    pub(crate) fn zstd(level: u8) -> Self {
        Self::new(ZSTD, level)
    }

    fn new(codec: CodecId, level: u8) -> Self {
        Self {
            codec,
            level,
            quick_len: None,
        }
    }

    fn at(self, level: u8) -> Self {
        Self { level, ..self }
    }

    /// Whether it stands no chance beside what another made.
    pub(crate) fn is_behind(self, len: usize) -> bool {
        self.quick_len
            .is_some_and(|quick| len + len / HIGH_GAIN < quick)
    }

    /// The codec's own level.
    fn codec_level(self) -> Level {
        let level = match (self.codec, self.level) {
            (PAGES, 1) => 1,
            (PAGES, 2..=9) => 2,
            (PAGES, _) => 3,
            // Of an eighth of the bytes: level 3 finds repeats that 1 does not, in less time than 1 takes for all.
            (BITS, level) => level.max(3),
            (_, level) => level,
        };
        Level(level.into())
    }

    /// Packs `raw` into the front of `out`; `None` where it does not fit.
    pub(crate) fn pack(self, raw: &[u8], out: &mut [u8], ws: &mut Workspace) -> Option<usize> {
        let codec = CODECS.by_id(self.codec).expect("we offer what there is");
        codec.pack(raw, self.codec_level(), &[], out, ws)
    }
}

/// By no more than this part do high levels shorten what a transform made of numbers, beyond the contest's.
const HIGH_GAIN: usize = 20;

const ZSTD: CodecId = CodecId(9);
const SHUFFLE2: CodecId = CodecId(19);
const SHUFFLE4: CodecId = CodecId(20);
const SHUFFLE8: CodecId = CodecId(21);
const DELTA2: CodecId = CodecId(25);
const DELTA4: CodecId = CodecId(26);
const DELTA8: CodecId = CodecId(27);
const DECIMAL4: CodecId = CodecId(28);
const DECIMAL8: CodecId = CodecId(29);

/// What a thread needs to choose.
#[derive(Default)]
struct Scratch {
    probe: ChunkProbe,
    sample: Vec<u8>,
    packed: Vec<u8>,
}

/// The codecs for `chunk`, at least one: the shortest that one of them makes of all of it is the right one.
pub(crate) fn choose(chunk: &[u8], options: &FileOptions, ws: &mut Workspace) -> Vec<Choice> {
    let mut scratch = std::mem::take(ws.get::<Scratch>());
    let level = options.goal.level();
    let candidates = candidates(chunk, options.element, &mut scratch.probe, level);
    let chosen = match candidates.is_empty() {
        true => vec![Choice::zstd(level)],
        // What repeats in a mask lies too far apart for samples. zstd was shorter on none by more than 1 %.
        false if candidates[0].codec == BITS => candidates,
        false => {
            let quick = level.min(CONTEST_MAX);
            let mut chosen = contest(chunk, quick, &candidates, &mut scratch, ws);
            if level > quick {
                chosen = one_typed(chunk, chosen, &mut scratch.packed, ws);
            }
            chosen.iter().map(|choice| choice.at(level)).collect()
        }
    };
    *ws.get::<Scratch>() = scratch;
    chosen
}

/// Higher levels take up to fifty times as long: which transform suits a chunk is found out at this one.
const CONTEST_MAX: u8 = 6;

/// `chosen` with no more than one transform before zstd, the one that makes all of `chunk` shortest. Pages are packed
/// fast at any level, and zstd alone gains more by the high ones than the transforms do: both stay.
fn one_typed(
    chunk: &[u8],
    chosen: Vec<Choice>,
    packed: &mut [u8],
    ws: &mut Workspace,
) -> Vec<Choice> {
    let (mut typed, mut others): (Vec<_>, Vec<_>) = chosen
        .into_iter()
        .partition(|choice| ![ZSTD, PAGES, BITS].contains(&choice.codec));
    if typed.len() > 1 || others.contains(&Choice::zstd(CONTEST_MAX)) {
        for choice in &mut typed {
            let len = choice.pack(chunk, &mut packed[..chunk.len() - 1], ws);
            choice.quick_len = Some(len.unwrap_or(chunk.len()));
        }
        typed.sort_by_key(|choice| choice.quick_len);
        typed.truncate(1);
    }
    others.append(&mut typed);
    others
}

/// The candidates that come near the best on samples, zstd among them if it does on the whole chunk.
fn contest(
    chunk: &[u8],
    level: u8,
    candidates: &[Choice],
    scratch: &mut Scratch,
    ws: &mut Workspace,
) -> Vec<Choice> {
    take_sample(chunk, &mut scratch.sample);
    let Scratch { sample, packed, .. } = scratch;
    if packed.len() < chunk.len() {
        packed.resize(chunk.len(), 0);
    }
    let mut len_of = |choice: Choice, raw: &[u8]| {
        let room = raw.len() - 1;
        choice
            .pack(raw, &mut packed[..room], ws)
            .unwrap_or(raw.len())
    };
    let zstd = Choice::zstd(level);
    let plain = len_of(zstd, sample);
    let mut tried: Vec<_> = candidates
        .iter()
        .map(|choice| choice.at(level))
        .map(|choice| (len_of(choice, sample), choice))
        .collect();
    tried.sort_by_key(|(len, _)| *len);
    let best = tried[0].0;
    if plain <= best {
        return vec![zstd];
    }
    let near = tried
        .iter()
        .take_while(|(len, _)| *len <= best + best / NEAR);
    let mut chosen: Vec<_> = near.take(2).map(|(_, choice)| *choice).collect();
    let bar = (1.0 + ZSTD_NEAR) * best as f64 / sample.len() as f64;
    let share = plain as f64 / sample.len() as f64;
    let is_near = if sample.len() == chunk.len() {
        false
    } else if share < bar || level < QUICK_FROM {
        share < bar
    } else {
        // What repeats far apart shows on no sample, but to a quick level on all of the chunk. It says how much
        // shorter others get by it.
        let quick = Choice::zstd(1);
        let (part, whole) = (len_of(quick, sample), len_of(quick, chunk));
        plain as f64 / part as f64 * whole as f64 / (chunk.len() as f64) < bar
    };
    if is_near {
        // First, so that it wins a tie: it unpacks fastest.
        chosen.insert(0, zstd);
    }
    chosen
}

/// On a sample within this part of the best is near enough to be tried on the whole chunk.
const NEAR: usize = 10;
/// How much longer than the best zstd may be expected to get and be tried all the same. Its higher levels gain more by
/// far repeats than the fastest shows.
const ZSTD_NEAR: f64 = 0.3;
/// From this level on zstd takes longer than the quick look at the whole chunk costs.
const QUICK_FROM: u8 = 4;

/// What `chunk` may pack best by, beside zstd; nothing where it looks like no numbers.
fn candidates(
    chunk: &[u8],
    element: Option<Element>,
    probe: &mut ChunkProbe,
    level: u8,
) -> Vec<Choice> {
    let features = probe.look(chunk);
    let mut found = features.map_or(vec![], |features| looked(&features, level));
    let mut width = features.map_or(1, |features| features.stride().into());
    if let Some(element) = element {
        // Beside those for what it looks like: pairs of integers may repeat where one does not.
        let seen = std::mem::replace(&mut found, hinted(element, level));
        let new: Vec<_> = seen
            .into_iter()
            .filter(|one| !found.contains(one))
            .collect();
        found.extend(new);
        width = element.len();
    }
    if two_values(chunk).is_some() {
        if width == 1 {
            found.clear();
        }
        found.push(Choice::new(BITS, level));
    }
    found
}

/// What numbers of this type may pack best by.
fn hinted(element: Element, level: u8) -> Vec<Choice> {
    of_width(element.len(), element.may_be_decimal(), level)
}

/// What a chunk that looks so may pack best by, beside zstd; nothing where it looks like no numbers.
fn looked(features: &ChunkFeatures, level: u8) -> Vec<Choice> {
    let width = usize::from(features.stride());
    match features.kind() {
        PriorKind::Text | PriorKind::Log | PriorKind::Random if width == 1 => vec![],
        _ => of_width(width, features.decimals.is_some(), level),
    }
}

fn of_width(width: usize, decimals: bool, level: u8) -> Vec<Choice> {
    let pages = Choice::new(PAGES, level);
    let (shuffle, delta, decimal) = match width {
        2 => (SHUFFLE2, DELTA2, None),
        4 => (SHUFFLE4, DELTA4, Some(DECIMAL4)),
        8 => (SHUFFLE8, DELTA8, Some(DECIMAL8)),
        _ => return vec![pages],
    };
    let decimal = decimal.filter(|_| decimals);
    let typed = [Some(shuffle), Some(delta), decimal];
    let mut found: Vec<_> = typed
        .into_iter()
        .flatten()
        .map(|codec| Choice::new(codec, level))
        .collect();
    found.push(pages);
    found
}

/// Pieces from all over the chunk, a sixteenth of it together, each at a multiple of its own length.
fn take_sample(chunk: &[u8], sample: &mut Vec<u8>) {
    sample.clear();
    if chunk.len() <= PIECE_LEN * PIECES {
        sample.extend_from_slice(chunk);
        return;
    }
    let pieces = (chunk.len() / 16 / PIECE_LEN).clamp(PIECES, 32);
    let whole = chunk.len() / PIECE_LEN;
    for n in 0..pieces {
        let at = (2 * n + 1) * whole / (2 * pieces) * PIECE_LEN;
        sample.extend_from_slice(&chunk[at..at + PIECE_LEN]);
    }
}

/// Length of a piece: long enough that codes and rows of a field show.
const PIECE_LEN: usize = 16 << 10;
/// Fewest pieces.
const PIECES: usize = 4;
