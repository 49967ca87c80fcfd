//! `im`: what words are beside a forecast from the left, above and the corner between: images, and fields with short
//! rows.
//!
//! The row and the pixel, in words, are found from each page, so that a page may begin anywhere in a row. Three
//! forecasts: the plane through the three; the mean of left and above; and the median of left, above and plane, which
//! follows edges and is that of JPEG-LS (Weinberger, Seroussi, Sapiro 2000), taken as distances from the corner so that
//! words need no sign. What is missed in one colour is missed in the next, so of a pixel's differences there may be
//! differences.
//!
//! Side: words of a row, two bytes; words of a pixel; the forecast, and 4 more, and 4 for each word before the first
//! whole pixel, if there are differences of differences.

use std::marker::PhantomData;

use narrows_core::Workspace;

use super::map::same_len;
use crate::{
    simd::twin,
    step::{BETWEEN_MAX, Info, PageError, Side, SideReader, Step},
    word::{Word, pack_whole, read, unpack_whole, write},
};

/// For words of one width.
#[derive(Debug)]
pub struct Image<W> {
    info: Info,
    width: PhantomData<W>,
}

steps_by_width!(
    Image, keeps_length: true, has_side: true,
    (u8, 52, "im1"), (u16, 53, "im2"), (u32, 54, "im4"), (u64, 55, "im8")
);

/// How the words of a page lie beside each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Grid {
    row: usize,
    pixel: usize,
    by: By,
    /// Words before the first whole pixel, if its colours are alike.
    phase: Option<usize>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum By {
    Plane = 0,
    Mean = 1,
    Median = 2,
}

impl By {
    const ALL: [Self; 3] = [Self::Plane, Self::Mean, Self::Median];
}

/// One of [`By`], as a type, so that the loops over words have no choice in them.
trait Forecast {
    fn of<W: Word>(left: W, above: W, corner: W) -> W;
}

struct Plane;
struct Mean;
struct Median;

impl Forecast for Plane {
    #[inline(always)]
    fn of<W: Word>(left: W, above: W, corner: W) -> W {
        left.plus(above.minus(corner))
    }
}

impl Forecast for Mean {
    #[inline(always)]
    fn of<W: Word>(left: W, above: W, _: W) -> W {
        left.plus(above.minus(left).halved())
    }
}

impl Forecast for Median {
    #[inline(always)]
    fn of<W: Word>(left: W, above: W, corner: W) -> W {
        let (right, down) = (above.minus(corner), left.minus(corner));
        // Beyond the corner on the same side of both, it is an edge, and the farther one lies across it.
        let farther = if above.minus(left).is_negative() == down.is_negative() {
            above
        } else {
            left
        };
        if right.is_negative() == down.is_negative() {
            farther
        } else {
            left.plus(right)
        }
    }
}

impl<W: Word> Step for Image<W> {
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
        if is_prose(raw) {
            return None;
        }
        pack_whole::<W>(raw, out, |words, out| {
            let out = out.get_mut(..words.len() * W::LEN)?;
            let mut beside = W::buffer();
            let beside = &mut beside.as_mut()[..words.len()];
            let grid = find(words, beside)?;
            differences(words, grid, beside);
            side.put(&(grid.row as u16).to_le_bytes())?;
            side.put(&[
                grid.pixel as u8,
                grid.by as u8 + 4 * grid.phase.map_or(0, |phase| phase as u8 + 1),
            ])?;
            write(beside, out);
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
        same_len(packed, out)?;
        let row = usize::from(u16::from_le_bytes(side.array()?));
        let [pixel, how] = side.array()?.map(usize::from);
        let by = *By::ALL
            .get(how % 4)
            .ok_or(PageError::Corrupt("no such forecast"))?;
        if pixel == 0 || row < pixel || how / 4 > pixel {
            return Err(PageError::Corrupt("no such row or pixel"));
        }
        let grid = Grid {
            row,
            pixel,
            by,
            phase: (how / 4).checked_sub(1),
        };
        unpack_whole::<W>(packed, out, |packed, words| {
            read(packed, words);
            sums(words, grid);
            Ok(())
        })
    }
}

/// Whether nearly all bytes are of text and many are spaces: it has no rows of words, and to look for them takes long.
fn is_prose(raw: &[u8]) -> bool {
    let count = |is: fn(u8) -> bool| raw.iter().filter(|byte| is(**byte)).count();
    count(|byte| byte == b' ') * 16 > raw.len()
        && count(|byte| byte.wrapping_sub(b' ') < 95) * 10 > raw.len() * 9
}

/// Fills `beside` with what `words` are beside their forecasts.
fn differences<W: Word>(words: &[W], grid: Grid, beside: &mut [W]) {
    match grid.by {
        By::Plane => fill::<W, Plane>(words, grid.row, grid.pixel, beside),
        By::Mean => fill::<W, Mean>(words, grid.row, grid.pixel, beside),
        By::Median => fill::<W, Median>(words, grid.row, grid.pixel, beside),
    }
    if let Some(phase) = grid.phase {
        for n in (1..beside.len()).rev().filter(|n| n % grid.pixel != phase) {
            beside[n] = beside[n].minus(beside[n - 1]);
        }
    }
}

/// Undoes [`differences`] in place.
fn sums<W: Word>(words: &mut [W], grid: Grid) {
    if let Some(phase) = grid.phase {
        for n in (1..words.len()).filter(|n| n % grid.pixel != phase) {
            words[n] = words[n].plus(words[n - 1]);
        }
    }
    match grid.by {
        By::Plane => add::<W, Plane>(words, grid.row, grid.pixel),
        By::Mean => add::<W, Mean>(words, grid.row, grid.pixel),
        By::Median => add::<W, Median>(words, grid.row, grid.pixel),
    }
}

twin! { fn fill<W: Word, F: Forecast>(words: &[W], row: usize, pixel: usize, beside: &mut [W]) = fill_portable; }
twin! { fn add<W: Word, F: Forecast>(words: &mut [W], row: usize, pixel: usize) = add_portable; }

#[inline(always)]
fn fill_portable<W: Word, F: Forecast>(words: &[W], row: usize, pixel: usize, beside: &mut [W]) {
    let first = (row + pixel).min(words.len());
    for n in 0..first {
        beside[n] = words[n].minus(edge(words, n, row, pixel));
    }
    let around = words[row.min(first)..]
        .iter()
        .zip(&words[pixel.min(first)..])
        .zip(words);
    for ((to, word), ((left, above), corner)) in
        beside[first..].iter_mut().zip(&words[first..]).zip(around)
    {
        *to = word.minus(F::of(*left, *above, *corner));
    }
}

#[inline(always)]
fn add_portable<W: Word, F: Forecast>(words: &mut [W], row: usize, pixel: usize) {
    let first = (row + pixel).min(words.len());
    for n in 0..first {
        words[n] = words[n].plus(edge(words, n, row, pixel));
    }
    for n in first..words.len() {
        words[n] = words[n].plus(F::of(
            words[n - pixel],
            words[n - row],
            words[n - row - pixel],
        ));
    }
}

/// The forecast of a word that has no corner.
#[inline(always)]
fn edge<W: Word>(words: &[W], n: usize, row: usize, pixel: usize) -> W {
    if n >= row {
        words[n - row]
    } else if n >= pixel {
        words[n - pixel]
    } else {
        W::default()
    }
}

/// The grid under which `words` are least beside their forecasts; `beside` is room for them. `None` where there are too
/// few.
fn find<W: Word>(words: &[W], beside: &mut [W]) -> Option<Grid> {
    /// Of pixels of one, three (colours), two and four words.
    const PIXELS: [usize; 4] = [1, 3, 2, 4];
    let pixels = &PIXELS[..if W::LEN == 1 {
        4
    } else if W::LEN == 2 {
        2
    } else {
        1
    }];
    let mut best = (u32::MAX, None);
    for row in rows(words)? {
        for &pixel in pixels.iter().filter(|pixel| row >= **pixel) {
            for by in By::ALL {
                let grid = Grid {
                    row,
                    pixel,
                    by,
                    phase: None,
                };
                differences(words, grid, beside);
                let cost = cost(&beside[row + pixel..]) * words.len() as u32
                    / (words.len() - row - pixel) as u32;
                if cost < best.0 {
                    best = (cost, Some(grid));
                }
            }
        }
    }
    let mut grid = best.1?;
    differences(words, grid, beside);
    let mut least = cost(beside);
    let plain = grid;
    for phase in (0..plain.pixel).filter(|_| plain.pixel > 1) {
        let alike = Grid {
            phase: Some(phase),
            ..plain
        };
        differences(words, alike, beside);
        let cost = cost(beside);
        if cost < least {
            (least, grid) = (cost, alike);
        }
    }
    Some(grid)
}

twin! { fn cost<W: Word>(beside: &[W]) -> u32 = cost_portable; }

/// Bits of `beside` without their leading zeros.
#[inline(always)]
fn cost_portable<W: Word>(beside: &[W]) -> u32 {
    beside.iter().map(|word| word.zigzag().bit_len()).sum()
}

/// Rows to be tried: distances at which samples differ less than at those beside, the best of short ones and of long
/// ones.
fn rows<W: Word>(words: &[W]) -> Option<Vec<usize>> {
    let mut costs = [0u32; BETWEEN_MAX / 2];
    let half = words.len() / 2;
    let costs = costs.get_mut(..half)?;
    above(words, costs);
    let is_dip = |&row: &usize| costs[row] < costs[row - 1] && costs[row] <= costs[row + 1];
    let mut rows = vec![];
    for range in [SHORTEST..half.min(LONG), LONG..half] {
        let mut dips: Vec<usize> = range.filter(|row| row + 1 < half).filter(is_dip).collect();
        dips.sort_by_key(|&row| costs[row]);
        rows.extend(dips.into_iter().take(3));
    }
    Some(rows)
}

/// Shortest row, and first one that is long, in words.
const SHORTEST: usize = 4;
const LONG: usize = 128;

twin! { fn above<W: Word>(words: &[W], costs: &mut [u32]) = above_portable; }

/// What samples of `words` are beside the words at each distance, in bits.
#[inline(always)]
fn above_portable<W: Word>(words: &[W], costs: &mut [u32]) {
    const WINDOW: usize = 16;
    const WINDOWS: usize = 4;
    let half = words.len() / 2;
    let Some(apart) = half.checked_sub(WINDOW).map(|room| room / WINDOWS) else {
        return;
    };
    for window in 0..WINDOWS {
        let at = half + window * apart;
        for (distance, cost) in costs.iter_mut().enumerate() {
            let pairs = words[at..at + WINDOW].iter().zip(&words[at - distance..]);
            *cost += pairs
                .map(|(word, before)| {
                    let beside = word.minus(*before).zigzag();
                    // Of bytes a sum is as good, and quicker.
                    if W::LEN == 1 {
                        beside.wide() as u32
                    } else {
                        beside.bit_len()
                    }
                })
                .sum::<u32>();
        }
    }
}
