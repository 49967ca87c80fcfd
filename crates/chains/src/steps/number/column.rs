//! The numbers of columns, each coded as what it is beside a forecast.

use super::{
    coder::{Bit, Coder},
    token::{COLUMNS, Shape},
};

/// Whom a column's numbers are like.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(u8)]
pub(super) enum Forecast {
    #[default]
    Nothing = 0,
    Above = 1,
    Left = 2,
    /// The one above, and by how much the one on the left is more than that above it.
    Both = 3,
}

impl Forecast {
    pub(super) const ALL: [Self; 4] = [Self::Nothing, Self::Above, Self::Left, Self::Both];
}

/// A number of a text.
#[derive(Debug, Clone, Copy)]
pub(super) struct Number {
    /// Without its point.
    pub(super) value: i64,
    /// How many numbers stand before it in its line.
    pub(super) column: usize,
    pub(super) shape: Shape,
}

/// The forecast of each column; columns from [`COLUMNS`] on have that of the last.
#[derive(Debug)]
pub(super) struct Forecasts {
    by: [Forecast; COLUMNS],
    /// Columns that there are.
    len: usize,
}

impl Forecasts {
    /// Those that leave fewest bits.
    pub(super) fn best(numbers: &[Number]) -> Self {
        let mut bits = [[0u32; 4]; COLUMNS];
        let mut len = 0;
        let mut lines = Lines::default();
        for number in numbers {
            let column = number.column.min(COLUMNS - 1);
            len = len.max(column + 1);
            for (by, bits) in Forecast::ALL.iter().zip(&mut bits[column]) {
                let beside = number.value.wrapping_sub(lines.forecast(number.column, number.shape.fraction, *by));
                *bits += 64 - fold(beside).leading_zeros();
            }
            lines.note(number);
        }
        let least = |bits: [u32; 4]| (0..4).min_by_key(|&n| bits[n]).expect("four of them");
        Self { by: bits.map(|bits| Forecast::ALL[least(bits)]), len }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    #[inline(always)]
    pub(super) fn of(&self, column: usize) -> Forecast {
        self.by[column.min(COLUMNS - 1)]
    }

    pub(super) fn put(&self, coder: &mut impl Coder) {
        for by in &self.by[..self.len] {
            coder.even(*by as u64, 2);
        }
    }

    /// Undoes [`Forecasts::put`] of `len`, at most [`COLUMNS`].
    pub(super) fn take(len: usize, coder: &mut impl Coder) -> Self {
        let mut by = [Forecast::default(); COLUMNS];
        by[..len].iter_mut().for_each(|by| *by = Forecast::ALL[coder.even(0, 2) as usize % 4]);
        Self { by, len }
    }
}

/// A number and the digits behind its point.
#[derive(Debug, Clone, Copy, Default)]
struct Decimal {
    value: i64,
    fraction: u8,
}

impl Decimal {
    /// The number with so many digits behind its point; cut, or zero if that is too large.
    #[inline(always)]
    fn with(self, fraction: u8) -> i64 {
        if fraction == self.fraction {
            return self.value;
        }
        let power = POWERS[usize::from(fraction.abs_diff(self.fraction)) % POWERS.len()];
        if fraction > self.fraction { self.value.checked_mul(power).unwrap_or(0) } else { self.value / power }
    }
}

/// Powers of ten.
const POWERS: [i64; 19] = {
    let mut powers = [1; 19];
    let mut n = 1;
    while n < powers.len() {
        powers[n] = 10 * powers[n - 1];
        n += 1;
    }
    powers
};

/// The numbers of the line above, and the last one.
#[derive(Debug)]
pub(super) struct Lines {
    above: [Decimal; LINE],
    left: Decimal,
    left_above: Decimal,
}

/// Longest line whose numbers are remembered; further ones are as the last.
const LINE: usize = 512;

impl Default for Lines {
    fn default() -> Self {
        Self { above: [Decimal::default(); LINE], left: Decimal::default(), left_above: Decimal::default() }
    }
}

impl Lines {
    #[inline(always)]
    /// What a number of this column with so many digits behind its point is expected to be.
    pub(super) fn forecast(&self, column: usize, fraction: u8, by: Forecast) -> i64 {
        let above = || self.above[column.min(LINE - 1)].with(fraction);
        let left = || self.left.with(fraction);
        match by {
            Forecast::Nothing => 0,
            Forecast::Above => above(),
            Forecast::Left => left(),
            Forecast::Both => above().wrapping_add(left()).wrapping_sub(self.left_above.with(fraction)),
        }
    }

    #[inline(always)]
    /// The next number that a forecast may look at.
    pub(super) fn note(&mut self, number: &Number) {
        let above = &mut self.above[number.column.min(LINE - 1)];
        self.left_above = *above;
        self.left = Decimal { value: number.value, fraction: number.shape.fraction };
        *above = self.left;
    }
}

/// What was learnt of the numbers beside their forecasts, by column, and by all where a column is new.
#[derive(Debug)]
pub(super) struct Model {
    of: Box<[Sizes; COLUMNS]>,
    all: Sizes,
}

/// How long such numbers are in bits, and the bits below the highest of the short ones.
#[derive(Debug, Clone, Copy)]
struct Sizes {
    classes: [Bit; 64],
    low: [[Bit; 1 << LOW_BITS]; LOW_CLASSES],
}

/// Numbers of up to so many bits have their first bits learnt, and so many of these.
const LOW_CLASSES: usize = 13;
const LOW_BITS: u32 = 3;

impl Default for Model {
    fn default() -> Self {
        Self { of: Box::new([Sizes::NONE; COLUMNS]), all: Sizes::NONE }
    }
}

impl Sizes {
    const NONE: Self = Self { classes: [Bit::EVEN; 64], low: [[Bit::EVEN; 1 << LOW_BITS]; LOW_CLASSES] };
}

impl Model {
    /// As if it had seen nothing.
    pub(super) fn forget(&mut self) {
        self.of.fill(Sizes::NONE);
        self.all = Sizes::NONE;
    }

    /// Codes what a number of `column` is beside its forecast; returns it.
    pub(super) fn code(&mut self, column: usize, beside: i64, coder: &mut impl Coder) -> i64 {
        let folded = fold(beside);
        let class = 64 - folded.leading_zeros();
        let Self { of, all } = self;
        let mine = &mut of[column.min(COLUMNS - 1)];
        let mut bit = |mine: &mut Bit, all: &mut Bit, bit: bool| {
            mine.or(*all);
            let bit = coder.bit(bit, *mine);
            mine.learn(bit);
            all.learn(bit);
            bit
        };
        // Node 0: whether there is anything; the others are a tree over the lengths from 1 on.
        if !bit(&mut mine.classes[0], &mut all.classes[0], class > 0) {
            return 0;
        }
        let mut node = 1usize;
        for n in (0..6).rev() {
            let class = class.wrapping_sub(1);
            node = node << 1
                | usize::from(bit(&mut mine.classes[node % 64], &mut all.classes[node % 64], class >> n & 1 == 1));
        }
        let class = (node & 63) as u32 + 1;
        let mut number = 1u64;
        let mut open = class - 1;
        if let (Some(mine), Some(all)) = (mine.low.get_mut(class as usize), all.low.get_mut(class as usize)) {
            while open > 0 && number < 1 << LOW_BITS {
                let at = number as usize;
                open -= 1;
                number = number << 1 | u64::from(bit(&mut mine[at], &mut all[at], folded >> open & 1 == 1));
            }
        }
        if open > 0 {
            number = number << open | coder.even(folded & ((1 << open) - 1), open);
        }
        unfold(number)
    }
}

/// Numbers near zero, of either sign, as small ones.
fn fold(number: i64) -> u64 {
    (number << 1 ^ number >> 63) as u64
}

fn unfold(folded: u64) -> i64 {
    (folded >> 1) as i64 ^ -((folded & 1) as i64)
}
