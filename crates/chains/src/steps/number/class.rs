//! What `numq` has of each number beside its forecast: its length in bits as a symbol, the bits below the highest of a
//! short one as another, the others as they are.

use super::{
    column::{fold, unfold},
    even,
    symbol::{Coder, Decoder, Odds, Rates, rates},
    token::COLUMNS,
};

/// What was learnt of the numbers, by column, and by all where a column is new.
#[derive(Debug)]
pub(super) struct Model {
    of: Box<[Sizes; COLUMNS]>,
    all: Sizes,
}

#[derive(Debug, Clone, Copy)]
struct Sizes {
    /// Lengths in bits; the last is any from there on.
    classes: Odds<CLASSES>,
    /// By length, from 2 bits on.
    low: [Odds<{ 1 << LOW_BITS }>; LOW_CLASSES - 2],
}

const CLASSES: usize = 32;
/// Numbers of fewer bits have their first bits learnt, and so many of these.
const LOW_CLASSES: usize = 13;
const LOW_BITS: u32 = 3;

/// A column learns faster than all together do, and fastest that its numbers are as forecast.
const OWN: Rates = rates(7);
const OWN_NONE: Rates = rates(3);
const ALL: Rates = rates(12);

impl Sizes {
    fn none() -> Self {
        let classes = std::array::from_fn(|class| match class {
            0 => 8,
            1..16 => 4,
            _ => 1,
        });
        let low = |class: usize| Odds::of(std::array::from_fn(|bits| u8::from(bits < 2 << class)));
        Self {
            classes: Odds::of(classes),
            low: std::array::from_fn(low),
        }
    }
}

impl Default for Model {
    fn default() -> Self {
        Self {
            of: Box::new([Sizes::none(); COLUMNS]),
            all: Sizes::none(),
        }
    }
}

impl Model {
    /// As if it had seen nothing.
    pub(super) fn forget(&mut self) {
        self.all = Sizes::none();
        self.of.fill(self.all);
    }

    /// Codes what a number of `column` is beside its forecast; returns it.
    #[inline(always)]
    pub(super) fn code(&mut self, column: usize, beside: i64, coder: &mut impl Coder) -> i64 {
        let folded = fold(beside);
        let mut class = (64 - folded.leading_zeros()) as usize;
        let Self { of, all } = self;
        let mine = &mut of[column.min(COLUMNS - 1)];
        let known = symbol(
            class.min(CLASSES - 1),
            &mut mine.classes,
            &mut all.classes,
            coder,
        );
        if known == CLASSES - 1 {
            class = known
                + (coder.even((class.wrapping_sub(known)) as u64 & 63, 6) as usize).min(64 - known);
        } else {
            class = known;
        }
        if class < 2 {
            return unfold(class as u64);
        }
        let mut open = class as u32 - 1;
        let mut number = 1;
        if let (Some(mine), Some(all)) = (mine.low.get_mut(class - 2), all.low.get_mut(class - 2)) {
            let learnt = open.min(LOW_BITS);
            open -= learnt;
            let mask = (1 << learnt) - 1;
            number = 1 << learnt
                | (symbol((folded >> open) as usize & mask, mine, all, coder) & mask) as u64;
        }
        if open > 0 {
            number = number << open | coder.even(folded & ((1 << open) - 1), open);
        }
        unfold(number)
    }
}

#[inline(always)]
fn symbol<const N: usize>(
    symbol: usize,
    mine: &mut Odds<N>,
    all: &mut Odds<N>,
    coder: &mut impl Coder,
) -> usize {
    mine.or(all);
    let symbol = coder.symbol(symbol, mine);
    mine.learn(
        symbol,
        if N == CLASSES && symbol == 0 {
            &OWN_NONE
        } else {
            &OWN
        },
    );
    all.learn(symbol, &ALL);
    symbol
}

/// The numbers of a page, as they are read.
pub(super) struct Values<'a> {
    model: &'a mut Model,
    coder: Decoder<'a>,
}

impl<'a> Values<'a> {
    pub(super) fn new(coded: &'a [u8], even: even::Reader<'a>, model: &'a mut Model) -> Self {
        model.forget();
        Self {
            model,
            coder: Decoder::new(coded, even),
        }
    }
}

impl super::Values for Values<'_> {
    #[inline(always)]
    fn next(&mut self, column: usize) -> i64 {
        self.model.code(column, 0, &mut self.coder)
    }
}
