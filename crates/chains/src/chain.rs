//! A list of up to seven steps, and a page packed by one.
//!
//! A packed page, of which nothing is aligned (`docs/specs/chain.md`):
//!
//! | bytes | |
//! |---|---|
//! | 1 | below 240: number of a built-in chain; `240 + n`: `n` step ids follow |
//! | n | step ids, first step first |
//! | 1 or 2 | length of the next two fields together, low 7 bits first; only if one of the steps has a side or the like |
//! | 2 each | packed length of each step but the last that does not keep its length, little-endian |
//! | | sides, the last step's first |
//! | | what the last step packed, up to the end |

use std::{fmt, sync::LazyLock};

use narrows_core::Workspace;

use crate::{
    PAGE,
    step::{BETWEEN_MAX, PageError, Side, SideReader, Step, StepId},
    steps,
};

/// Most steps of a chain.
pub const STEPS_MAX: usize = 7;

/// A transform of pages, made of one to seven steps.
#[derive(Clone, Copy)]
pub struct Chain {
    ids: [StepId; STEPS_MAX],
    len: u8,
    /// Its number, if it is built in.
    builtin: Option<u8>,
    /// What runs, first stage first: the steps, or one stage in place of several, with the same bytes.
    stages: [&'static dyn Step; STEPS_MAX],
    stages_len: u8,
}

/// Why a list of names is not a chain.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ChainError {
    /// No step has this name.
    #[error("no step is named {0:?}")]
    Unknown(String),
    /// A chain has one to seven steps.
    #[error("a chain of {0} steps; it may have 1 to {STEPS_MAX}")]
    Length(usize),
}

/// Buffers that one chain after another runs through.
#[derive(Debug)]
pub struct Scratch {
    buffers: [Box<[u8; BETWEEN_MAX]>; 2],
    sides: Side,
    /// Where the side of each stage ends.
    ends: [usize; STEPS_MAX],
    ws: Workspace,
}

impl Default for Scratch {
    fn default() -> Self {
        Self {
            buffers: std::array::from_fn(|_| Box::new([0; BETWEEN_MAX])),
            sides: Side::default(),
            ends: [0; STEPS_MAX],
            ws: Workspace::default(),
        }
    }
}

impl Scratch {
    /// For a packer that is to take no longer than zstd at level 1 does.
    pub(crate) fn hasty() -> Self {
        let mut scratch = Self::default();
        steps::block::hasten_zstd(&mut scratch.ws);
        scratch
    }
}

impl Chain {
    /// The chain whose steps' names `text` lists, with `-` between them: `"dk8-zz8-pk8"`.
    ///
    /// # Errors
    /// [`ChainError`] for an unknown name, or too many.
    pub fn parse(text: &str) -> Result<Self, ChainError> {
        let ids = text
            .split('-')
            .map(|name| {
                steps::by_name(name)
                    .map(Step::id)
                    .ok_or_else(|| ChainError::Unknown(name.to_owned()))
            })
            .collect::<Result<Vec<_>, _>>()?;
        Self::new(&ids, None).map_err(|_| ChainError::Length(ids.len()))
    }

    /// The built-in chains, by number.
    pub fn builtins() -> &'static [Chain] {
        static CHAINS: LazyLock<Vec<Chain>> = LazyLock::new(|| {
            let numbered = steps::BUILTINS.iter().zip(0u8..);
            numbered
                .map(|(names, number)| {
                    let chain = Chain::parse(names).expect("built-in chains are well formed");
                    Chain {
                        builtin: Some(number),
                        ..chain
                    }
                })
                .collect()
        });
        &CHAINS
    }

    fn new(ids: &[StepId], builtin: Option<u8>) -> Result<Self, PageError> {
        if ids.is_empty() || ids.len() > STEPS_MAX {
            return Err(PageError::Corrupt("a chain of no steps, or too many"));
        }
        let first = steps::by_id(ids[0])?;
        let mut chain = Self {
            ids: [StepId(0); STEPS_MAX],
            len: ids.len() as u8,
            builtin,
            stages: [first; STEPS_MAX],
            stages_len: 0,
        };
        chain.ids[..ids.len()].copy_from_slice(ids);
        let mut at = 0;
        while at < ids.len() {
            let (stage, count) =
                steps::fused(&ids[at..]).map_or_else(|| Ok((steps::by_id(ids[at])?, 1)), Ok)?;
            chain.stages[usize::from(chain.stages_len)] = stage;
            chain.stages_len += 1;
            at += count;
        }
        Ok(chain)
    }

    /// The same chain without fused stages: one step after another, as the specification tells it.
    #[cfg(test)]
    pub(crate) fn unfused(self) -> Self {
        let mut stages = self.stages;
        for (stage, id) in stages.iter_mut().zip(self.steps()) {
            *stage = steps::by_id(*id).expect("it was found before");
        }
        Self {
            stages,
            stages_len: self.len,
            ..self
        }
    }

    /// Its steps, first step first.
    #[must_use]
    pub fn steps(&self) -> &[StepId] {
        &self.ids[..usize::from(self.len)]
    }

    /// Its number, if it is built in.
    #[must_use]
    pub fn builtin(&self) -> Option<u8> {
        self.builtin
    }

    /// Whether its last step looks for repeats, which takes it longer the more there is to find.
    #[must_use]
    pub fn ends_in_matches(&self) -> bool {
        self.steps()
            .last()
            .is_some_and(|id| steps::block::finds_matches(*id))
    }

    /// Whether its last step packs words in blocks of as many bits as the longest of a block has: fast, and rarely the
    /// shortest.
    #[must_use]
    pub fn ends_in_blocks(&self) -> bool {
        self.steps()
            .last()
            .is_some_and(|id| steps::bitpack::packs_in_blocks(*id))
    }

    fn stages(&self) -> &[&'static dyn Step] {
        &self.stages[..usize::from(self.stages_len)]
    }

    /// Packs `page` into the front of `out` and returns the packed length, or `None` if it does not fit.
    pub fn pack(&self, page: &[u8; PAGE], out: &mut [u8], scratch: &mut Scratch) -> Option<usize> {
        let Scratch {
            buffers,
            sides,
            ends,
            ws,
        } = scratch;
        let [from, to] = buffers;
        let (mut from, mut to) = (&mut **from, &mut **to);
        sides.clear();
        let stages = self.stages();
        if let ([stage], false) = (stages, self.has_sides()) {
            // Nothing comes before what it packs but the head, so it is written where it stays.
            let mut writer = Writer { out, at: 0 };
            self.put_head(&mut writer)?;
            let at = writer.at;
            return stage
                .pack(page, &mut out[at..], sides, ws)
                .map(|len| at + len);
        }
        let mut resized = [0u16; STEPS_MAX];
        let mut resized_len = 0;
        let mut len = PAGE;
        for (n, stage) in stages.iter().enumerate() {
            let last = n + 1 == stages.len();
            let raw: &[u8] = if n == 0 { page } else { &from[..len] };
            // Nothing longer than `out` can be an answer, so the last step need not go on beyond.
            let room = if last {
                out.len().min(BETWEEN_MAX)
            } else {
                BETWEEN_MAX
            };
            len = stage.pack(raw, &mut to[..room], sides, ws)?;
            ends[n] = sides.bytes().len();
            if !last && !stage.keeps_length() {
                resized[resized_len] = len as u16;
                resized_len += 1;
            }
            std::mem::swap(&mut from, &mut to);
        }

        let mut writer = Writer { out, at: 0 };
        self.put_head(&mut writer)?;
        if self.has_sides() {
            let sides_len = 2 * resized_len + sides.bytes().len();
            match sides_len {
                0..0x80 => writer.put(&[sides_len as u8])?,
                0x80..0x4000 => writer.put(&[sides_len as u8 | 0x80, (sides_len >> 7) as u8])?,
                _ => return None,
            }
            for len in &resized[..resized_len] {
                writer.put(&len.to_le_bytes())?;
            }
            for n in (0..stages.len()).rev() {
                let start = if n == 0 { 0 } else { ends[n - 1] };
                writer.put(&sides.bytes()[start..ends[n]])?;
            }
        }
        writer.put(&from[..len])?;
        Some(writer.at)
    }

    /// Writes its number, or its steps.
    fn put_head(&self, writer: &mut Writer<'_>) -> Option<()> {
        match self.builtin {
            Some(number) => writer.put(&[number]),
            None => {
                writer.put(&[INLINE + self.len])?;
                self.steps().iter().try_for_each(|id| writer.put(&[id.0]))
            }
        }
    }

    fn has_sides(&self) -> bool {
        let (last, before) = self.stages().split_last().expect("one step or more");
        last.has_side()
            || before
                .iter()
                .any(|stage| stage.has_side() || !stage.keeps_length())
    }

    fn unpack(
        &self,
        mut packed: &[u8],
        page: &mut [u8; PAGE],
        scratch: &mut Scratch,
    ) -> Result<(), PageError> {
        let Scratch { buffers, ws, .. } = scratch;
        let [from, to] = buffers;
        let (mut from, mut to) = (&mut **from, &mut **to);
        let stages = self.stages();
        let mut sides = SideReader(&[]);
        // Raw length of each stage: as long as the page until a stage that does not keep its length.
        let mut lens = [PAGE; STEPS_MAX];
        if self.has_sides() {
            let mut all = SideReader(packed);
            let low = all.byte()?;
            let high = if low & 0x80 == 0 { 0 } else { all.byte()? };
            let sides_len = usize::from(low & 0x7f) | usize::from(high) << 7;
            sides = SideReader(all.take(sides_len)?);
            packed = all.0;
            for n in 1..stages.len() {
                lens[n] = lens[n - 1];
                if !stages[n - 1].keeps_length() {
                    lens[n] = usize::from(u16::from_le_bytes(sides.array()?));
                    if lens[n] > BETWEEN_MAX {
                        return Err(PageError::Corrupt(
                            "more bytes between two steps than there may be",
                        ));
                    }
                }
            }
        }
        let mut len = packed.len();
        for (n, stage) in stages.iter().enumerate().rev() {
            let input = if n + 1 == stages.len() {
                packed
            } else {
                &from[..len]
            };
            len = lens[n];
            if n == 0 {
                stage.unpack(input, &mut sides, page, ws)?;
            } else {
                stage.unpack(input, &mut sides, &mut to[..len], ws)?;
            }
            std::mem::swap(&mut from, &mut to);
        }
        if sides.0.is_empty() {
            Ok(())
        } else {
            Err(PageError::Corrupt("bytes left over in the sides"))
        }
    }
}

/// Fills `page` from `packed`, which names its own steps. Any bytes may come.
///
/// # Errors
/// [`PageError`] when `packed` is not a packed page, or one of a newer version.
pub fn unpack(
    packed: &[u8],
    page: &mut [u8; PAGE],
    scratch: &mut Scratch,
) -> Result<(), PageError> {
    let (&head, rest) = packed
        .split_first()
        .ok_or(PageError::Corrupt("no bytes at all"))?;
    if head < INLINE {
        let chain = Chain::builtins()
            .get(usize::from(head))
            .ok_or(PageError::UnknownChain(head))?;
        return chain.unpack(rest, page, scratch);
    }
    let (ids, rest) = rest
        .split_at_checked(usize::from(head - INLINE))
        .ok_or(PageError::Corrupt("a list of steps is cut short"))?;
    let mut list = [StepId(0); 15];
    for (to, id) in list.iter_mut().zip(ids) {
        *to = StepId(*id);
    }
    Chain::new(&list[..ids.len()], None)?.unpack(rest, page, scratch)
}

/// Whether `packed` is a page of text or the like: its last step looks for repeats. See [`Chain::ends_in_matches`].
#[must_use]
pub fn has_matches(packed: &[u8]) -> bool {
    match packed {
        [head @ ..INLINE, ..] => Chain::builtins()
            .get(usize::from(*head))
            .is_some_and(Chain::ends_in_matches),
        [head, ids @ ..] => {
            let last = usize::from(head - INLINE)
                .checked_sub(1)
                .and_then(|last| ids.get(last));
            last.is_some_and(|id| steps::block::finds_matches(StepId(*id)))
        }
        [] => false,
    }
}

/// Plus the number of steps: the first byte of a page that lists its steps.
const INLINE: u8 = 240;

struct Writer<'a> {
    out: &'a mut [u8],
    at: usize,
}

impl Writer<'_> {
    #[inline]
    fn put(&mut self, bytes: &[u8]) -> Option<()> {
        self.out
            .get_mut(self.at..self.at + bytes.len())?
            .copy_from_slice(bytes);
        self.at += bytes.len();
        Some(())
    }
}

impl fmt::Display for Chain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, id) in self.steps().iter().enumerate() {
            let name = steps::by_id(*id).map_or("?", Step::name);
            write!(f, "{}{name}", if n == 0 { "" } else { "-" })?;
        }
        Ok(())
    }
}

impl fmt::Debug for Chain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Chain({self})")
    }
}

impl PartialEq for Chain {
    fn eq(&self, other: &Self) -> bool {
        self.steps() == other.steps()
    }
}

impl Eq for Chain {}
