//! `mk`: one word that stands at many places is taken out, for missing values, zeros and repeats.
//!
//! Fields have one value for "nothing here", and it breaks every difference at its edge. Without it the rest is smooth.
//! Packed bytes: the other words, then the bytes behind the last whole word. Side: the word; then the places as runs
//! of other words and of that word in turns, each length in groups of 7 bits, low ones first, up to the last run, which
//! is left out; before them their length in bytes likewise. Where that would be longer than a bit a word, the length is
//! 0 and one bit a word follows, set for the word taken out, lowest first.

use std::marker::PhantomData;

use narrows_core::Workspace;

use crate::{
    step::{Info, PageError, Side, SideReader, Step},
    word::{Word, pack_whole, read, write},
};

/// For words of one width.
#[derive(Debug)]
pub struct Mask<W> {
    info: Info,
    width: PhantomData<W>,
}

steps_by_width!(
    Mask, keeps_length: false, has_side: true,
    (u8, 38, "mk1"), (u16, 39, "mk2"), (u32, 40, "mk4"), (u64, 41, "mk8")
);

impl<W: Word> Step for Mask<W> {
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
        pack_whole::<W>(raw, out, |words, out| {
            let masked = frequent(words)?;
            side.put(&masked.wide().to_le_bytes()[..W::LEN])?;
            put_places(words, masked, side)?;
            let mut kept = 0;
            for n in 0..words.len() {
                words[kept] = words[n];
                kept += usize::from(words[n] != masked);
            }
            let out = out.get_mut(..kept * W::LEN)?;
            write(&words[..kept], out);
            Some(out.len())
        })
    }

    fn unpack(
        &self,
        packed: &[u8],
        side: &mut SideReader<'_>,
        out: &mut [u8],
        _: &mut Workspace,
    ) -> Result<(), PageError> {
        const SHORT: PageError = PageError::Corrupt("words are missing");
        let masked = W::load(side.take(W::LEN)?);
        let count = out.len() / W::LEN;
        let mut kept = W::buffer();
        let kept_len = packed.len().checked_sub(out.len() % W::LEN).ok_or(SHORT)?;
        let (kept_bytes, tail) = packed.split_at(kept_len);
        let kept = kept.as_mut().get_mut(..kept_len / W::LEN).ok_or(SHORT)?;
        if !kept_len.is_multiple_of(W::LEN) {
            return Err(SHORT);
        }
        read(kept_bytes, kept);
        let (whole, to) = out.split_at_mut(count * W::LEN);
        to.copy_from_slice(tail);
        let mut kept = kept.iter();
        let mut places = whole.chunks_exact_mut(W::LEN);
        take_places(count, side, |run, is_masked| {
            for place in places.by_ref().take(run) {
                if is_masked {
                    masked
                } else {
                    *kept.next().ok_or(SHORT)?
                }
                .store(place);
            }
            Ok(())
        })?;
        if kept.next().is_none() {
            Ok(())
        } else {
            Err(PageError::Corrupt("more words than places"))
        }
    }
}

/// The word that is found most often at a few places, if it is at so many that leaving it out pays.
fn frequent<W: Word>(words: &[W]) -> Option<W> {
    const SAMPLES: usize = 64;
    let step = (words.len() / SAMPLES).max(1);
    let mut samples = [0u64; SAMPLES];
    let mut len = 0;
    for (to, word) in samples.iter_mut().zip(words.iter().step_by(step)) {
        *to = word.wide();
        len += 1;
    }
    let samples = &mut samples[..len];
    samples.sort_unstable();
    let most = samples
        .chunk_by(|a, b| a == b)
        .max_by_key(|run| run.len())?;
    let word = W::truncate(most[0]);
    if most.len() < 2 {
        return None;
    }
    let count = words.iter().filter(|other| **other == word).count();
    (count * 16 >= words.len()).then_some(word)
}

fn put_places<W: Word>(words: &[W], masked: W, side: &mut Side) -> Option<()> {
    let most = words.len().div_ceil(8);
    let mut runs = [0u8; crate::step::BETWEEN_MAX / 8 + 2];
    let mut len = 0;
    let mut from = 0;
    let mut is_masked = false;
    while len < most {
        let run = words[from..]
            .iter()
            .take_while(|word| (**word == masked) == is_masked)
            .count();
        from += run;
        if from == words.len() {
            break;
        }
        len += leb(run, &mut runs[len..]);
        is_masked = !is_masked;
    }
    // One run alone still has a length, lest it look like bits.
    if len < most && len > 0 {
        let mut len_bytes = [0; 2];
        let count = leb(len, &mut len_bytes);
        side.put(&len_bytes[..count])?;
        return side.put(&runs[..len]);
    }
    side.put(&[0])?;
    for words in words.chunks(8) {
        let bits = words
            .iter()
            .enumerate()
            .map(|(n, word)| u8::from(*word == masked) << n);
        side.put(&[bits.fold(0, |all, bit| all | bit)])?;
    }
    Some(())
}

/// Calls `run` with the length and kind of each run, which together are `count` words.
fn take_places(
    count: usize,
    side: &mut SideReader<'_>,
    mut run: impl FnMut(usize, bool) -> Result<(), PageError>,
) -> Result<(), PageError> {
    let len = unleb(side)?;
    if len == 0 {
        let bits = side.take(count.div_ceil(8))?;
        for n in 0..count {
            run(1, bits[n / 8] >> (n % 8) & 1 == 1)?;
        }
        return Ok(());
    }
    let mut runs = SideReader(side.take(len)?);
    let mut left = count;
    let mut is_masked = false;
    while !runs.0.is_empty() {
        let len = unleb(&mut runs)?;
        left = left
            .checked_sub(len)
            .ok_or(PageError::Corrupt("runs longer than the page"))?;
        run(len, is_masked)?;
        is_masked = !is_masked;
    }
    run(left, is_masked)
}

/// Writes `number`, below 2^14, in groups of 7 bits and returns how many.
fn leb(number: usize, out: &mut [u8]) -> usize {
    if number < 0x80 {
        out[0] = number as u8;
        1
    } else {
        out[0] = number as u8 | 0x80;
        out[1] = (number >> 7) as u8;
        2
    }
}

fn unleb(side: &mut SideReader<'_>) -> Result<usize, PageError> {
    let low = side.byte()?;
    let high = if low & 0x80 == 0 { 0 } else { side.byte()? };
    Ok(usize::from(low & 0x7f) | usize::from(high) << 7)
}
