//! `numq` and `num`: the numbers of a text, by columns, apart from the text around them.
//!
//! Why: tables and logs are lines of numbers of one shape. As text a digit costs half a byte at best; beside the number
//! above it, a number has few digits left. So each becomes one byte of the text, which says how it is written, and the
//! next step finds those bytes to repeat as the text does. Its value goes to the side, as what it is beside a forecast.
//!
//! Side: how many shapes there are, the column of the first number, how many columns have a forecast, a byte each; the
//! length of what follows, two bytes; shapes, forecasts and numbers, by the coder of `symbol`. Pages of `num`, which
//! has that of `chance`, are only read.
//!
//! | module | holds |
//! |---|---|
//! | `token` | numbers and how they are written |
//! | `column` | forecasts |
//! | `class` | what is learnt of each column |
//! | `symbol` | symbols with a probability each |
//! | `even` | bits without |
//! | `chance` | `num`'s own |

mod chance;
mod class;
mod column;
mod even;
mod symbol;
mod token;

use narrows_core::Workspace;

use self::{
    column::{Forecasts, Lines, Number},
    symbol::Encoder,
    token::{COLUMNS, Shape, Tokens},
};
use crate::{
    PAGE,
    simd::twin,
    step::{Info, PageError, Side, SideReader, Step, StepId},
};

pub(super) const STEPS: &[&dyn Step] = &[&ByBits, &BySymbols];

/// `num`, which is read only.
#[derive(Debug)]
pub struct ByBits;

/// `numq`.
#[derive(Debug)]
pub struct BySymbols;

/// Bytes that stand for numbers: those that text has no use for.
const MARKS: [u8; 26] = [
    1, 2, 3, 4, 5, 6, 7, 8, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31,
];

/// The place of a byte in [`MARKS`], or as many as there are.
const PLACES: [u8; 256] = {
    let mut places = [MARKS.len() as u8; 256];
    let mut n = 0;
    while n < MARKS.len() {
        places[MARKS[n] as usize] = n as u8;
        n += 1;
    }
    places
};

/// A text with fewer digits than one in so many bytes is not worth a look.
const DIGITS_SHARE: usize = 10;

/// How the numbers of a page are written.
#[derive(Debug, Default)]
struct Shapes {
    list: [Shape; MARKS.len()],
    len: usize,
}

impl Shapes {
    /// The place of `shape`, which becomes the last if it was not there; `None` if there is no room.
    fn place(&mut self, shape: Shape) -> Option<usize> {
        let known = self.list[..self.len]
            .iter()
            .position(|known| *known == shape);
        known.or_else(|| {
            *self.list.get_mut(self.len)? = shape;
            self.len += 1;
            Some(self.len - 1)
        })
    }

    /// The one that a byte of the text stands for.
    #[inline(always)]
    fn marked(&self, byte: u8) -> Option<Shape> {
        self.list[..self.len]
            .get(usize::from(PLACES[usize::from(byte)]))
            .copied()
    }
}

/// Counts the numbers of each line.
#[derive(Debug)]
struct Counter {
    next: usize,
}

impl Counter {
    /// The column of the number that `byte` stands for if it `is_mark`.
    #[inline(always)]
    fn pass(&mut self, byte: u8, is_mark: bool) -> usize {
        let column = self.next;
        self.next = if byte == b'\n' {
            0
        } else {
            column + usize::from(is_mark)
        };
        column
    }
}

/// Scratch of one thread.
#[derive(Debug, Default)]
struct Room {
    tokens: Tokens,
    numbers: Vec<Number>,
    model: class::Model,
    encoder: Encoder,
}

impl Step for ByBits {
    fn info(&self) -> &Info {
        &Info {
            id: StepId(51),
            name: "num",
            keeps_length: false,
            has_side: true,
        }
    }

    fn pack(&self, _: &[u8], _: &mut [u8], _: &mut Side, _: &mut Workspace) -> Option<usize> {
        None
    }

    fn unpack(
        &self,
        packed: &[u8],
        side: &mut SideReader<'_>,
        out: &mut [u8],
        ws: &mut Workspace,
    ) -> Result<(), PageError> {
        let Head {
            header,
            coded,
            even,
        } = Head::take(side)?;
        fill(
            packed,
            &header,
            out,
            &mut chance::Values::new(coded, even, ws.get()),
        )
    }
}

impl Step for BySymbols {
    fn info(&self) -> &Info {
        &Info {
            id: StepId(57),
            name: "numq",
            keeps_length: false,
            has_side: true,
        }
    }

    fn pack(
        &self,
        raw: &[u8],
        out: &mut [u8],
        side: &mut Side,
        ws: &mut Workspace,
    ) -> Option<usize> {
        let digits = raw.iter().filter(|byte| byte.is_ascii_digit()).count();
        let is_mark = |byte: &u8| usize::from(PLACES[usize::from(*byte)]) < MARKS.len();
        if digits * DIGITS_SHARE < raw.len() || raw.iter().any(is_mark) {
            return None;
        }
        let Room {
            tokens,
            numbers,
            model,
            encoder,
        } = ws.get();
        let first = tokens.find(raw);
        let mut shapes = Shapes::default();
        let len = mark(raw, tokens, &mut shapes, numbers, out)?;
        // As the reader will count them: what has no mark is no number to it.
        let mut counter = Counter {
            next: usize::from(first),
        };
        let mut marks = out[..len].iter().map(|&byte| {
            let is_mark = shapes.marked(byte).is_some();
            (counter.pass(byte, is_mark), is_mark)
        });
        for number in numbers.iter_mut() {
            number.column = marks
                .find(|(_, is_mark)| *is_mark)
                .expect("a mark for each number")
                .0;
        }

        let forecasts = Forecasts::best(numbers);
        encoder.clear();
        shapes.list[..shapes.len]
            .iter()
            .for_each(|shape| shape.put(&mut encoder.even));
        forecasts.put(&mut encoder.even);
        let mut lines = Lines::default();
        model.forget();
        for number in numbers.iter() {
            let forecast = lines.forecast(
                number.column,
                number.shape.fraction,
                forecasts.of(number.column),
            );
            model.code(number.column, number.value.wrapping_sub(forecast), encoder);
            lines.note(number);
        }
        let mut coded = [0; PAGE];
        let coded_len = encoder.finish(&mut coded)?;
        side.put(&[shapes.len as u8, first, forecasts.len() as u8])?;
        side.put(&(coded_len as u16).to_le_bytes())?;
        side.put(&coded[..coded_len])?;
        Some(len)
    }

    fn unpack(
        &self,
        packed: &[u8],
        side: &mut SideReader<'_>,
        out: &mut [u8],
        ws: &mut Workspace,
    ) -> Result<(), PageError> {
        let head = Head::take(side)?;
        let Room { model, .. } = ws.get();
        read_symbols(packed, head, out, model)
    }
}

twin! {
    fn read_symbols(packed: &[u8], head: Head<'_>, out: &mut [u8], model: &mut class::Model) -> Result<(), PageError> = read_symbols_portable;
}

#[inline(always)]
fn read_symbols_portable(
    packed: &[u8],
    head: Head<'_>,
    out: &mut [u8],
    model: &mut class::Model,
) -> Result<(), PageError> {
    let Head {
        header,
        coded,
        even,
    } = head;
    fill(
        packed,
        &header,
        out,
        &mut class::Values::new(coded, even, model),
    )
}

/// What each number is beside its forecast, one after the other.
trait Values {
    /// Of the next one, of this column.
    fn next(&mut self, column: usize) -> i64;
}

/// What a side says before its numbers.
struct Head<'a> {
    header: Header,
    /// All of the two streams.
    coded: &'a [u8],
    /// Their even bits from here on.
    even: even::Reader<'a>,
}

struct Header {
    shapes: Shapes,
    first: usize,
    forecasts: Forecasts,
}

impl<'a> Head<'a> {
    fn take(side: &mut SideReader<'a>) -> Result<Self, PageError> {
        let [shapes_len, first, columns] = side.array()?.map(usize::from);
        let len = usize::from(u16::from_le_bytes(side.array()?));
        let coded = side.take(len)?;
        if shapes_len > MARKS.len() || columns > COLUMNS {
            return Err(PageError::Corrupt(
                "more shapes or columns than there may be",
            ));
        }
        let mut even = even::Reader::new(coded);
        let mut shapes = Shapes {
            len: shapes_len,
            ..Shapes::default()
        };
        for shape in &mut shapes.list[..shapes_len] {
            *shape =
                Shape::take(&mut even).ok_or(PageError::Corrupt("no such shape of a number"))?;
        }
        let forecasts = Forecasts::take(columns, &mut even);
        Ok(Self {
            header: Header {
                shapes,
                first,
                forecasts,
            },
            coded,
            even,
        })
    }
}

/// Fills `out` with the text `packed`, each mark a number again.
#[inline(always)]
fn fill(
    packed: &[u8],
    header: &Header,
    out: &mut [u8],
    values: &mut impl Values,
) -> Result<(), PageError> {
    const LONGER: PageError = PageError::Corrupt("a text and its numbers are longer than the page");
    let Header {
        shapes,
        first,
        forecasts,
    } = header;
    let mut lines = Lines::default();
    let mut counter = Counter { next: *first };
    let mut at = 0;
    for &byte in packed {
        let shape = shapes.marked(byte);
        let column = counter.pass(byte, shape.is_some());
        let Some(shape) = shape else {
            *out.get_mut(at).ok_or(LONGER)? = byte;
            at += 1;
            continue;
        };
        let forecast = lines.forecast(column, shape.fraction, forecasts.of(column));
        let value = forecast.wrapping_add(values.next(column));
        lines.note(&Number {
            value,
            column,
            shape,
        });
        at += shape.write(value, &mut out[at..]).ok_or(LONGER)?;
    }
    if at == out.len() {
        Ok(())
    } else {
        Err(PageError::Corrupt(
            "a text and its numbers are shorter than the page",
        ))
    }
}

/// Copies `raw` to the front of `out` with a mark for each number that gets one, and returns its length. Leaves these
/// `numbers`, without their columns, and their `shapes`.
fn mark(
    raw: &[u8],
    tokens: &Tokens,
    shapes: &mut Shapes,
    numbers: &mut Vec<Number>,
    out: &mut [u8],
) -> Option<usize> {
    numbers.clear();
    let (mut at, mut from) = (0, 0);
    let mut copy = |bytes: &[u8]| -> Option<()> {
        out.get_mut(at..at + bytes.len())?.copy_from_slice(bytes);
        at += bytes.len();
        Some(())
    };
    for token in tokens.found() {
        let (shape, start) = tokens.shape(token);
        let Some(place) = shapes.place(shape) else {
            continue;
        };
        copy(&raw[from..start])?;
        copy(&[MARKS[place]])?;
        numbers.push(Number {
            value: token.value,
            column: 0,
            shape,
        });
        from = token.end();
    }
    copy(&raw[from..])?;
    (!numbers.is_empty()).then_some(at)
}
