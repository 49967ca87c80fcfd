//! `lag`: differences to the word some places before: the same field of the last record, the pixel above.
//!
//! The distance is chosen for each page, from 2 words to half the page. The first words, which have none before them,
//! stay. Side: the distance, two bytes, little-endian.

use std::marker::PhantomData;

use narrows_core::Workspace;

use super::map::same_len;
use crate::{
    simd::twin,
    step::{Info, PageError, Side, SideReader, Step},
    word::{Word, read, write},
};

/// For words of one width.
#[derive(Debug)]
pub struct Lag<W> {
    info: Info,
    width: PhantomData<W>,
}

steps_by_width!(
    Lag, keeps_length: true, has_side: true,
    (u8, 44, "lag1"), (u16, 45, "lag2"), (u32, 46, "lag4"), (u64, 47, "lag8")
);

impl<W: Word> Step for Lag<W> {
    fn info(&self) -> &Info {
        &self.info
    }

    fn pack(
        &self,
        raw: &[u8],
        out: &mut [u8],
        side: &mut Side,
        _: &mut Workspace,
    ) -> Option<usize> {
        let mut words = W::buffer();
        let words = words.as_mut();
        let count = read(raw, words);
        let words = &words[..count];
        let distance = best_distance(words)?;
        side.put(&(distance as u16).to_le_bytes())?;
        let out = out.get_mut(..raw.len())?;
        out.copy_from_slice(raw);
        for ((to, word), before) in out
            .chunks_exact_mut(W::LEN)
            .zip(words)
            .skip(distance)
            .zip(words)
        {
            word.minus(*before).store(to);
        }
        Some(raw.len())
    }

    fn unpack(
        &self,
        packed: &[u8],
        side: &mut SideReader<'_>,
        out: &mut [u8],
        _: &mut Workspace,
    ) -> Result<(), PageError> {
        same_len(packed, out)?;
        let distance = usize::from(u16::from_le_bytes(side.array()?));
        if distance == 0 {
            return Err(PageError::Corrupt("a distance of no words"));
        }
        let mut words = W::buffer();
        let words = words.as_mut();
        let count = read(packed, words);
        for n in distance..count {
            words[n] = words[n].plus(words[n - distance]);
        }
        out.copy_from_slice(packed);
        write(&words[..count], out);
        Ok(())
    }
}

twin! {
    /// The distance at which a sample of words differs least from those before.
    fn best_distance<W: Word>(words: &[W]) -> Option<usize> = best_distance_portable;
}

#[inline(always)]
fn best_distance_portable<W: Word>(words: &[W]) -> Option<usize> {
    const WINDOW: usize = 8;
    const WINDOWS: usize = 4;
    let half = words.len() / 2;
    let apart = half.checked_sub(WINDOW)? / (WINDOWS - 1);
    let cost = |distance: usize| -> u32 {
        let mut cost = 0;
        for window in 0..WINDOWS {
            let at = words.len() - WINDOW - window * apart;
            for n in at..at + WINDOW {
                cost += words[n].minus(words[n - distance]).zigzag().bit_len();
            }
        }
        cost
    };
    (2..half.min(words.len().saturating_sub(WINDOW + (WINDOWS - 1) * apart)))
        .min_by_key(|&distance| cost(distance))
}
