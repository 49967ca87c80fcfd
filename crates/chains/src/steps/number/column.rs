//! The numbers of columns, each coded as what it is beside a forecast.

use super::{
    even,
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
                let beside = number.value.wrapping_sub(lines.forecast(
                    number.column,
                    number.shape.fraction,
                    *by,
                ));
                *bits += 64 - fold(beside).leading_zeros();
            }
            lines.note(number);
        }
        let least = |bits: [u32; 4]| (0..4).min_by_key(|&n| bits[n]).expect("four of them");
        Self {
            by: bits.map(|bits| Forecast::ALL[least(bits)]),
            len,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    #[inline(always)]
    pub(super) fn of(&self, column: usize) -> Forecast {
        self.by[column.min(COLUMNS - 1)]
    }

    pub(super) fn put(&self, even: &mut even::Writer) {
        for by in &self.by[..self.len] {
            even.put(*by as u64, 2);
        }
    }

    /// Undoes [`Forecasts::put`] of `len`, at most [`COLUMNS`].
    pub(super) fn take(len: usize, even: &mut even::Reader<'_>) -> Self {
        let mut by = [Forecast::default(); COLUMNS];
        by[..len]
            .iter_mut()
            .for_each(|by| *by = Forecast::ALL[even.take(2) as usize % 4]);
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
        if fraction > self.fraction {
            self.value.checked_mul(power).unwrap_or(0)
        } else {
            self.value / power
        }
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
        Self {
            above: [Decimal::default(); LINE],
            left: Decimal::default(),
            left_above: Decimal::default(),
        }
    }
}

impl Lines {
    #[inline(always)]
    /// What a number of this column with so many digits behind its point is expected to be.
    pub(super) fn forecast(&self, column: usize, fraction: u8, by: Forecast) -> i64 {
        let above = self.above[column.min(LINE - 1)].with(fraction);
        let left = self.left.with(fraction);
        let both = above
            .wrapping_add(left)
            .wrapping_sub(self.left_above.with(fraction));
        [0, above, left, both][by as usize]
    }

    #[inline(always)]
    /// The next number that a forecast may look at.
    pub(super) fn note(&mut self, number: &Number) {
        let above = &mut self.above[number.column.min(LINE - 1)];
        self.left_above = *above;
        self.left = Decimal {
            value: number.value,
            fraction: number.shape.fraction,
        };
        *above = self.left;
    }
}

/// Numbers near zero, of either sign, as small ones.
pub(super) fn fold(number: i64) -> u64 {
    (number << 1 ^ number >> 63) as u64
}

pub(super) fn unfold(folded: u64) -> i64 {
    (folded >> 1) as i64 ^ -((folded & 1) as i64)
}
