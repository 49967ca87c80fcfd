//! zBeWalgo as it was published: nine algorithms, chained, for zram (Warnke 2018; linux-kernel list, March 2018).
//!
//! It is here to be compared with: the published tables can be made again, on the data of today. Written from a
//! description of its format; where that leaves a choice to the packer (when a run is a run) this one's may differ, so
//! sizes agree with the published ones to a few per cent.
//!
//! A packed page: one byte, the number of steps less one; seven bytes of step ids; what the last step made. As in the
//! original every step carries its own length, and a prefix of a chain may win.

mod bwt;
mod huffman;
mod jbe;
mod rle;
mod words;

use crate::{
    PAGE,
    step::{BETWEEN_MAX, PageError},
};

/// One of its algorithms, by number in packed pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum Algorithm {
    Bewalgo,
    Bewalgo2,
    Bitshuffle,
    Bwt,
    Jbe,
    Jbe2,
    Mtf,
    Rle,
    Huffman,
}

const ALGORITHMS: [(Algorithm, &str); 9] = [
    (Algorithm::Bewalgo, "bewalgo"),
    (Algorithm::Bewalgo2, "bewalgo2"),
    (Algorithm::Bitshuffle, "bitshuffle"),
    (Algorithm::Bwt, "bwt"),
    (Algorithm::Jbe, "jbe"),
    (Algorithm::Jbe2, "jbe2"),
    (Algorithm::Mtf, "mtf"),
    (Algorithm::Rle, "rle"),
    (Algorithm::Huffman, "huffman"),
];

/// The ten chains of the late version.
pub const DEFAULT: [&str; 10] = [
    "bwt-mtf-huffman-jbe-rle",
    "bitshuffle-rle-bitshuffle-rle",
    "bewalgo2-bitshuffle-rle",
    "bitshuffle-jbe-mtf-huffman-jbe",
    "bitshuffle-bewalgo2-mtf-bewalgo-jbe2",
    "mtf-bewalgo-huffman-jbe-rle",
    "jbe-rle-bitshuffle-rle",
    "mtf-mtf-jbe-jbe-rle",
    "jbe2-bitshuffle-rle",
    "jbe-mtf-jbe-rle",
];

/// The four chains of the early version.
pub const EARLY: [&str; 4] = [
    "bewalgo2-bitshuffle-jbe-rle",
    "bwt-mtf-bewalgo-huffman",
    "bitshuffle-bewalgo2-mtf-bewalgo-jbe",
    "bitshuffle-rle-bitshuffle-rle",
];

/// What [`Settings::set`] takes for `*` besides [`DEFAULT`] and [`EARLY`]: each algorithm that can win alone, and each
/// after a transform that helps it.
pub const CURATED: [&str; 10] = [
    "bewalgo",
    "bewalgo2",
    "huffman",
    "rle",
    "jbe",
    "bitshuffle-huffman",
    "bwt-mtf-rle-huffman",
    "bitshuffle-bwt-mtf-huffman",
    "bewalgo2-huffman",
    "bitshuffle-mtf-rle-huffman",
];

/// What its files under `/sys/kernel/zbewalgo` set. Lengths in bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// Longer results are refused: 3264, less a handle of 8 and the header of 8. At most 4088.
    pub max_output_size: usize,
    /// Shorter results end the search. At most `max_output_size`.
    pub early_abort_size: usize,
    /// `bwt` refuses pages of more different bytes.
    pub bwt_max_alphabet: usize,
    chains: Vec<Vec<Algorithm>>,
}

impl Default for Settings {
    fn default() -> Self {
        let mut settings = Self {
            max_output_size: 3248,
            early_abort_size: 400,
            bwt_max_alphabet: 90,
            chains: vec![],
        };
        DEFAULT
            .iter()
            .for_each(|chain| settings.add(chain).expect("known names"));
        settings
    }
}

/// Why a chain was not taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SettingsError {
    /// Not one of the nine.
    #[error("no algorithm is named {0:?}")]
    Unknown(String),
    /// One to seven.
    #[error("a chain of {0} algorithms; it may have 1 to 7")]
    Length(usize),
    /// At most 256 chains.
    #[error("there are 256 chains already")]
    Full,
}

impl Settings {
    /// Adds a chain: names with `-` between them; or `*`, which is all of [`DEFAULT`], [`EARLY`] and [`CURATED`].
    ///
    /// # Errors
    /// [`SettingsError`] for a list that is no chain, or when there are 256.
    pub fn add(&mut self, chain: &str) -> Result<(), SettingsError> {
        if chain == "*" {
            return DEFAULT
                .iter()
                .chain(&EARLY)
                .chain(&CURATED)
                .try_for_each(|chain| self.add(chain));
        }
        let named = |name: &str| {
            let found = ALGORITHMS.iter().find(|(_, known)| *known == name);
            found
                .map(|(algorithm, _)| *algorithm)
                .ok_or_else(|| SettingsError::Unknown(name.to_owned()))
        };
        let chain = chain.split('-').map(named).collect::<Result<Vec<_>, _>>()?;
        if chain.len() > STEPS_MAX {
            return Err(SettingsError::Length(chain.len()));
        }
        if self.chains.contains(&chain) {
            return Ok(());
        }
        if self.chains.len() == 256 {
            return Err(SettingsError::Full);
        }
        self.chains.push(chain);
        Ok(())
    }

    /// Makes this the only chain, or those of `*` the only ones.
    ///
    /// # Errors
    /// As [`Settings::add`]; the settings are then as they were.
    pub fn set(&mut self, chain: &str) -> Result<(), SettingsError> {
        let mut new = Self {
            chains: vec![],
            ..self.clone()
        };
        new.add(chain)?;
        *self = new;
        Ok(())
    }

    /// Back to the ten chains.
    pub fn reset(&mut self) {
        self.chains = Self::default().chains;
    }

    /// The chains in use.
    #[must_use]
    pub fn chains(&self) -> Vec<String> {
        let name = |algorithm: &Algorithm| ALGORITHMS[*algorithm as usize].1;
        self.chains
            .iter()
            .map(|chain| chain.iter().map(name).collect::<Vec<_>>().join("-"))
            .collect()
    }
}

/// Packs pages as zBeWalgo does; what it learns from a page it uses for the next, so one for each stream of pages.
#[derive(Debug, Default)]
pub struct Zbewalgo {
    settings: Settings,
    best_chain: usize,
    /// Wraps as the original's byte does: at 0 the best chain is challenged.
    searches: u8,
    accepted_size: usize,
    buffers: Buffers,
    best: Vec<u8>,
}

const STEPS_MAX: usize = 7;
const HEADER: usize = 8;

type Buffers = [Vec<u8>; 2];

impl Zbewalgo {
    /// A packer with these settings.
    #[must_use]
    pub fn new(settings: Settings) -> Self {
        Self {
            settings,
            ..Self::default()
        }
    }

    /// Packs `raw`, at most a page, into the front of `out` and returns the packed length, or `None` where it exceeds
    /// [`Settings::max_output_size`] or the room.
    pub fn pack(&mut self, raw: &[u8], out: &mut [u8]) -> Option<usize> {
        if raw.len() > PAGE || self.settings.chains.is_empty() {
            return None;
        }
        let Self {
            settings,
            best_chain,
            searches,
            accepted_size,
            buffers,
            best,
        } = self;
        let count = settings.chains.len();
        *best_chain %= count;
        let mut limit = settings.early_abort_size.max(*accepted_size);
        let first = if *searches == 0 {
            (*best_chain + 1) % count
        } else {
            *best_chain
        };
        *searches = searches.wrapping_add(1);
        let mut won: Option<(usize, usize)> = None;
        let mut best_len = usize::MAX;
        for number in (first..count).chain(0..first) {
            let chain = &settings.chains[number];
            buffers[0].clear();
            buffers[0].extend_from_slice(raw);
            for (n, algorithm) in chain.iter().enumerate() {
                let [from, to] = buffers;
                to.clear();
                if pack_step(*algorithm, from, to, settings).is_none()
                    || to.is_empty()
                    || to.len() > BETWEEN_MAX
                {
                    break;
                }
                if to.len() < best_len {
                    best_len = to.len();
                    won = Some((number, n + 1));
                    best.clone_from(to);
                }
                buffers.swap(0, 1);
            }
            if best_len < limit {
                break;
            }
            limit = settings.early_abort_size;
        }
        let (number, steps) = won?;
        if best_len > settings.max_output_size {
            return None;
        }
        *best_chain = number;
        let most = settings.max_output_size.max(settings.early_abort_size);
        *accepted_size = (best_len + best_len / 8).clamp(settings.early_abort_size, most);
        let out = out.get_mut(..HEADER + best_len)?;
        let (header, body) = out.split_at_mut(HEADER);
        header.fill(0);
        header[0] = steps as u8 - 1;
        for (to, algorithm) in header[1..]
            .iter_mut()
            .zip(&settings.chains[number][..steps])
        {
            *to = *algorithm as u8;
        }
        body.copy_from_slice(best);
        Some(out.len())
    }

    /// Fills `raw` from `packed`. Any bytes may come.
    ///
    /// # Errors
    /// [`PageError::Corrupt`] when `packed` is not the packed form of exactly `raw.len()` bytes.
    pub fn unpack(&mut self, packed: &[u8], raw: &mut [u8]) -> Result<(), PageError> {
        let (header, body) = packed
            .split_at_checked(HEADER)
            .ok_or(PageError::Corrupt("no header"))?;
        let steps = usize::from(header[0]) + 1;
        let ids = header[1..]
            .get(..steps)
            .ok_or(PageError::Corrupt("more than seven steps"))?;
        self.buffers[0].clear();
        self.buffers[0].extend_from_slice(body);
        for &id in ids.iter().rev() {
            let (algorithm, _) = ALGORITHMS
                .get(usize::from(id))
                .ok_or(PageError::Corrupt("no such algorithm"))?;
            let [from, to] = &mut self.buffers;
            to.clear();
            unpack_step(*algorithm, from, to)?;
            self.buffers.swap(0, 1);
        }
        if self.buffers[0].len() != raw.len() {
            return Err(PageError::Corrupt("a page of another length"));
        }
        raw.copy_from_slice(&self.buffers[0]);
        Ok(())
    }
}

fn pack_step(
    algorithm: Algorithm,
    raw: &[u8],
    out: &mut Vec<u8>,
    settings: &Settings,
) -> Option<()> {
    match algorithm {
        Algorithm::Bewalgo => words::pack_matches(raw, out),
        Algorithm::Bewalgo2 => words::pack_dictionary(raw, out),
        Algorithm::Bitshuffle => {
            bitshuffle(raw, out);
            Some(())
        }
        Algorithm::Bwt => bwt::pack(raw, out, settings.bwt_max_alphabet),
        Algorithm::Jbe => jbe::pack(raw, out, |word| word),
        Algorithm::Jbe2 => jbe::pack(raw, out, jbe::swap_nibbles),
        Algorithm::Mtf => {
            bwt::to_front(raw, out);
            Some(())
        }
        Algorithm::Rle => {
            rle::pack(raw, out);
            Some(())
        }
        Algorithm::Huffman => huffman::pack(raw, out),
    }
}

/// Appends at most [`BETWEEN_MAX`] bytes to `out`, which is empty.
fn unpack_step(algorithm: Algorithm, packed: &[u8], out: &mut Vec<u8>) -> Result<(), PageError> {
    match algorithm {
        Algorithm::Bewalgo => words::unpack_matches(packed, out),
        Algorithm::Bewalgo2 => words::unpack_dictionary(packed, out),
        Algorithm::Bitshuffle => {
            unbitshuffle(packed, out);
            Ok(())
        }
        Algorithm::Bwt => bwt::unpack(packed, out),
        Algorithm::Jbe => jbe::unpack(packed, out, |word| word),
        Algorithm::Jbe2 => jbe::unpack(packed, out, jbe::swap_nibbles),
        Algorithm::Mtf => {
            bwt::from_front(packed, out);
            Ok(())
        }
        Algorithm::Rle => rle::unpack(packed, out),
        Algorithm::Huffman => huffman::unpack(packed, out),
    }
}

/// For all its name: bytes at places 0, 8, 16…, then at 1, 9, 17…; what is left of a group of 8 stays behind.
fn bitshuffle(raw: &[u8], out: &mut Vec<u8>) {
    let (groups, tail) = raw.as_chunks::<8>();
    for place in 0..8 {
        out.extend(groups.iter().map(|group| group[place]));
    }
    out.extend_from_slice(tail);
}

fn unbitshuffle(packed: &[u8], out: &mut Vec<u8>) {
    let count = packed.len() / 8;
    let (planes, tail) = packed.split_at(8 * count);
    for n in 0..count {
        out.extend((0..8).map(|place| planes[place * count + n]));
    }
    out.extend_from_slice(tail);
}

/// How often each byte occurs.
fn counts(bytes: &[u8]) -> [usize; 256] {
    let mut counts = [0; 256];
    bytes
        .iter()
        .for_each(|&byte| counts[usize::from(byte)] += 1);
    counts
}

#[cfg(test)]
mod tests;
