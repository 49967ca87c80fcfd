//! Finds bytes of a page in the pages that are kept, wherever they are there.
//!
//! Each place of a page has a sum of its 16 bytes. Where that is one of four values, at one place in 64, a hash of the
//! 64 bytes that end there says where in a table the place is noted; so bytes that were moved are noted under the same
//! number. What the table says is looked up and compared, so it may be as old or as wrong as it likes, and only the
//! sender has one.
//!
//! Why sums of bytes and no rolling hash: a rolling hash waits for itself at each byte and looks its bytes up; these
//! are sixteen places an instruction, in half the time.
//!
//! Of a database of 823 MiB in memory copies took zstd 3 from 132 MiB to 89, in packets of 512 KiB; history of a
//! megabyte to 127, with as much processor time. Half a megabyte of the most similar pages as history saved 13 % of its
//! first 200 MiB, where a megabyte of the last ones saved 3.
//!
//! Memory: 32 places of 8 bytes for each page that may be kept, 32 MiB for 448. With 16, programs and documents pack to
//! a hundred-and-fiftieth more.

use super::{
    PAGE_LEN, Page,
    copies::{COPY_MIN, Copied},
    ring::Ring,
};

/// Bytes that decide whether a place is a sample.
const SUM_LEN: usize = 16;
/// It is one if the sum, from here on, is less than this: one place in 64. The sum of a run is 0, and so that of
/// anything that repeats every eight bytes: they are found without us.
const SUM_FROM: u8 = 77;
const SUM_LIMIT: u8 = 4;
/// Samples are at least so far apart: those closer tell nothing new.
const GAP_MIN: usize = 16;
/// So a page has not more.
const SAMPLES_MAX: usize = PAGE_LEN / GAP_MIN;
/// Bytes that a name depends on. Of fewer, more pages have the same that have nothing else in common.
const WINDOW: usize = 64;
/// Bits of the end of a window in its page, and of the hash beside those that say where it is noted.
const END_BITS: u32 = PAGE_LEN.trailing_zeros();
const TAG_BITS: u32 = 32 - END_BITS;

/// A place in a page that is found again.
#[derive(Debug, Clone, Copy)]
pub struct Sample {
    hash: u64,
    /// Where its window ends, from 1.
    end: u16,
}

/// Appends a page's samples.
pub fn samples(page: &Page, out: &mut Vec<Sample>) {
    let marks = marks(page);
    let mut next = WINDOW;
    for (at, eight) in (SUM_LEN..)
        .step_by(8)
        .zip(marks[..PAGE_LEN - SUM_LEN].as_chunks::<8>().0)
    {
        let mut eight = u64::from_le_bytes(*eight);
        while eight != 0 {
            let end = at + eight.trailing_zeros() as usize / 8;
            if end >= next {
                out.push(Sample {
                    hash: name(page[end - WINDOW..end].as_chunks().0),
                    end: end as u16,
                });
                next = end + GAP_MIN;
            }
            eight &= eight - 1;
        }
    }
}

/// 1 at each place whose sum makes it a sample.
fn marks(page: &Page) -> Page {
    let mut sums = [0; PAGE_LEN + SUM_LEN];
    sums[..PAGE_LEN].copy_from_slice(page);
    let sums = doubled::<1>(&sums);
    let sums = doubled::<2>(&sums);
    let sums = doubled::<4>(&sums);
    let mut marks = [0; PAGE_LEN];
    for ((mark, one), other) in marks
        .iter_mut()
        .zip(&sums[..PAGE_LEN])
        .zip(&sums[SUM_LEN / 2..])
    {
        *mark = u8::from(one.wrapping_sub(*other).wrapping_add(SUM_FROM) < SUM_LIMIT);
    }
    marks
}

/// Sums of twice as many bytes: three times the one `LEN` places on is added to each.
fn doubled<const LEN: usize>(sums: &[u8; PAGE_LEN + SUM_LEN]) -> [u8; PAGE_LEN + SUM_LEN] {
    let mut out = [0; PAGE_LEN + SUM_LEN];
    for ((out, one), other) in out.iter_mut().zip(&sums[..PAGE_LEN]).zip(&sums[LEN..]) {
        *out = one.wrapping_add(other.wrapping_mul(3));
    }
    out
}

/// What a window is noted as.
fn name(window: &[[u8; 8]]) -> u64 {
    window
        .iter()
        .zip(FACTORS)
        .fold(0, |sum: u64, (eight, factor)| {
            sum.wrapping_add(u64::from_le_bytes(*eight).wrapping_mul(factor))
        })
}

/// Where the samples of kept pages are.
#[derive(Debug)]
pub struct Similar {
    /// The page's position and one, more of the hash, and the end of the window: 32, 20 and 12 bits; 0 where nothing is
    /// noted. Empty until it is needed.
    places: Vec<u64>,
    len_bits: u32,
}

impl Similar {
    /// One for as many pages.
    #[must_use]
    pub fn new(keep_max: usize) -> Self {
        let len_bits = (keep_max.max(1) * 32)
            .next_power_of_two()
            .trailing_zeros()
            .min(32);
        Self {
            places: Vec::new(),
            len_bits,
        }
    }

    /// Where a sample is noted, and what must stand there for it: without that every place of a full table would be
    /// looked up in vain.
    fn place(&self, sample: Sample) -> (usize, u64) {
        let hash = sample.hash;
        (
            (hash >> (64 - self.len_bits)) as usize,
            hash << self.len_bits >> (64 - TAG_BITS),
        )
    }

    /// Notes the samples of a page that is kept at a position.
    pub fn learn(&mut self, position: u32, samples: &[Sample]) {
        if samples.is_empty() {
            return;
        }
        if self.places.is_empty() {
            self.places = vec![0; 1 << self.len_bits];
        }
        let name = (u64::from(position) + 1) << 32;
        for &sample in samples {
            let (place, tag) = self.place(sample);
            self.places[place] = name | tag << END_BITS | u64::from(sample.end - 1);
        }
    }

    /// Appends what of a page others from `oldest` on hold as well.
    pub fn find(
        &self,
        page: &Page,
        samples: &[Sample],
        ring: &Ring,
        oldest: u32,
        copies: &mut Vec<Copied>,
    ) {
        if self.places.is_empty() {
            return;
        }
        // All at once, for each is a miss of the cache.
        let mut names = [0; SAMPLES_MAX];
        names
            .iter_mut()
            .zip(samples)
            .for_each(|(name, sample)| *name = self.places[self.place(*sample).0]);
        // Behind the last copy, behind the one before it, and the last with its page.
        let (mut done, mut done_before, mut last) = (0, 0, None::<(Copied, &Page)>);
        for (&sample, name) in samples.iter().zip(names) {
            let end = usize::from(sample.end);
            if end <= done {
                continue;
            }
            let around = |done: usize, other: &Page, from: usize| {
                (
                    alike_before(&page[done..end], &other[..from]),
                    alike(&page[end..], &other[from..]),
                )
            };
            let noted = || {
                let (number, tag) = ((name >> 32) as u32, name << 32 >> (64 - TAG_BITS));
                let other = if number > oldest && tag == self.place(sample).1 {
                    ring.page(number - 1)
                } else {
                    None
                }?;
                let from = (name as usize & (PAGE_LEN - 1)) + 1;
                // What stands in many places was noted at the last of them; the next sample may know one where more is
                // alike, before it too.
                let (before, after) = around(done_before, other, from);
                let covers = last.is_some_and(|(copy, _)| end - before <= copy.at);
                let before = if covers {
                    before
                } else {
                    before.min(end - done)
                };
                (before + after >= COPY_MIN).then_some((
                    covers,
                    number - 1,
                    other,
                    from,
                    before,
                    after,
                ))
            };
            // Or more of the page copied from last, just as far on.
            let further = || {
                let (copy, other) = last?;
                let from = copy.from + end - copy.at;
                let (before, after) = if from <= PAGE_LEN {
                    around(done, other, from)
                } else {
                    return None;
                };
                (before + after >= COPY_MIN).then_some((
                    false,
                    copy.source,
                    other,
                    from,
                    before,
                    after,
                ))
            };
            let Some((covers, source, other, from, before, after)) = noted().or_else(further)
            else {
                continue;
            };
            if covers {
                copies.pop();
            } else {
                done_before = done;
            }
            let copy = Copied {
                at: end - before,
                len: before + after,
                source,
                from: from - before,
            };
            copies.push(copy);
            last = Some((copy, other));
            done = end + after;
        }
    }
}

/// How many bytes both begin with.
fn alike(one: &[u8], other: &[u8]) -> usize {
    let words = one.as_chunks::<8>().0.iter().zip(other.as_chunks::<8>().0);
    let same = 8 * words.take_while(|(one, other)| one == other).count();
    same + one[same..]
        .iter()
        .zip(&other[same..])
        .take_while(|(one, other)| one == other)
        .count()
}

/// How many bytes both end with.
fn alike_before(one: &[u8], other: &[u8]) -> usize {
    let words = one
        .as_rchunks::<8>()
        .1
        .iter()
        .rev()
        .zip(other.as_rchunks::<8>().1.iter().rev());
    let same = 8 * words.take_while(|(one, other)| one == other).count();
    let ends = one[..one.len() - same]
        .iter()
        .rev()
        .zip(other[..other.len() - same].iter().rev());
    same + ends.take_while(|(one, other)| one == other).count()
}

/// Random odd numbers (splitmix64 from 0). No secret: who knows them can make pages that are not found, or are in vain.
const FACTORS: [u64; WINDOW / 8] = {
    let mut factors = [0; WINDOW / 8];
    let (mut state, mut at) = (0_u64, 0);
    while at < factors.len() {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        factors[at] = (word ^ (word >> 31)) | 1;
        at += 1;
    }
    factors
};

#[cfg(test)]
mod tests {
    use super::*;

    fn noise(seed: u64) -> Page {
        let mut state = seed;
        std::array::from_fn(|_| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 56) as u8
        })
    }

    fn of(page: &Page) -> Vec<Sample> {
        let mut out = Vec::new();
        samples(page, &mut out);
        out
    }

    #[test]
    fn what_was_moved_is_found() {
        let old = noise(1);
        let mut new = noise(2);
        new[1000..3000].copy_from_slice(&old[1500..3500]);
        let (mut similar, mut ring) = (Similar::new(2048), Ring::new(2048));
        let find = |similar: &Similar, ring: &Ring, oldest| {
            let mut copies = Vec::new();
            similar.find(&new, &of(&new), ring, oldest, &mut copies);
            copies
        };
        assert!(find(&similar, &ring, 0).is_empty(), "nothing is noted");
        ring.put(7, &old);
        similar.learn(7, &of(&old));
        assert_eq!(
            find(&similar, &ring, 0),
            [Copied {
                at: 1000,
                len: 2000,
                source: 7,
                from: 1500
            }]
        );
        assert_eq!(find(&similar, &ring, 7).len(), 1);
        assert!(find(&similar, &ring, 8).is_empty(), "too old");
        ring.put(7 + 2048, &noise(6));
        assert!(find(&similar, &ring, 0).is_empty(), "not kept any more");
    }

    // Goal: what nobody has noted, as something else with its name came later, is found behind what was.
    #[test]
    fn copies_go_on_in_the_page_that_they_began_in() {
        let (old, mut new) = (noise(1), noise(3));
        new[100..1500].copy_from_slice(&old[300..1700]);
        new[1530..3000].copy_from_slice(&old[1730..3200]);
        let (mut similar, mut ring) = (Similar::new(2048), Ring::new(2048));
        ring.put(0, &old);
        similar.learn(
            0,
            &of(&old)
                .into_iter()
                .take_while(|sample| sample.end < 1700)
                .collect::<Vec<_>>(),
        );
        let mut copies = Vec::new();
        similar.find(&new, &of(&new), &ring, 0, &mut copies);
        let copied = |at, len| Copied {
            at,
            len,
            source: 0,
            from: at + 200,
        };
        assert_eq!(copies, [copied(100, 1400), copied(1530, 1470)]);
    }

    #[test]
    fn what_repeats_every_eight_bytes_has_no_samples() {
        let noise = noise(4);
        for eight in (0..=255)
            .map(|byte| [byte; 8])
            .chain(noise.as_chunks().0.iter().copied())
        {
            assert!(of(&std::array::from_fn(|at| eight[at % 8])).is_empty());
        }
    }

    #[test]
    fn samples_are_those_of_sums_taken_byte_by_byte() {
        for seed in 0..20 {
            let (page, mut naive) = (noise(seed), vec![]);
            for end in WINDOW..PAGE_LEN {
                let bytes = page[end - SUM_LEN..end].iter().enumerate();
                let sum = bytes.fold(SUM_FROM, |sum: u8, (at, byte)| {
                    let times = byte.wrapping_mul(3_u8.pow((at as u32 % 8).count_ones()));
                    if at < 8 {
                        sum.wrapping_add(times)
                    } else {
                        sum.wrapping_sub(times)
                    }
                });
                if sum < SUM_LIMIT && naive.last().is_none_or(|last| end >= last + GAP_MIN) {
                    naive.push(end);
                }
            }
            assert!(
                (20..100).contains(&naive.len()),
                "one place in 64, less those too close"
            );
            let found: Vec<_> = of(&page)
                .iter()
                .map(|sample| usize::from(sample.end))
                .collect();
            assert_eq!(found, naive);
        }
    }
}
