//! Where the numbers of a page of text are, and how each is written.

use super::even;
use crate::step::BETWEEN_MAX;

/// Most decimal digits of a number, both sides of the point together: it is below 2^63 then.
const DIGITS_MAX: usize = 18;
/// Longest number that a shape can give room to.
const ROOM_MAX: usize = 31;

/// How a number is written, but for its value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Shape {
    /// Digits behind the point; none, and no point, if 0. At most [`DIGITS_MAX`].
    pub(super) fraction: u8,
    pub(super) fill: Fill,
    /// What it is filled up to: digits before the point, or characters in all. 0 for [`Fill::None`].
    pub(super) room: u8,
}

/// What stands before the first digit that counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(u8)]
pub(super) enum Fill {
    #[default]
    None = 0,
    Zeros = 1,
    Spaces = 2,
}

/// A number in a page.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Token {
    /// First byte, that of the sign if it has one.
    pub(super) start: u16,
    /// Spaces before that.
    spaces: u8,
    len: u8,
    /// Digits before the point.
    digits: u8,
    fraction: u8,
    has_zeros: bool,
    pub(super) column: u16,
    /// Without its point.
    pub(super) value: i64,
}

/// The columns that are told apart; the last is all from there on.
pub(super) const COLUMNS: usize = 64;

/// Numbers of a page, at most one for every byte, and how those of a column are written.
#[derive(Debug)]
pub(super) struct Tokens {
    list: Box<[Token; BETWEEN_MAX]>,
    len: usize,
    habits: [Habit; COLUMNS],
}

/// How most numbers of a column are written.
#[derive(Debug, Clone, Copy, Default)]
struct Habit {
    /// Digits before the point of those that begin with a needless zero.
    zeros: u8,
    /// How often a number ended where the one above it did, and how often it began there.
    same_end: u16,
    same_start: u16,
    /// Of the last: spaces, and these and characters.
    spaces: u8,
    width: u8,
}

impl Default for Tokens {
    fn default() -> Self {
        Self {
            list: Box::new([Token::default(); BETWEEN_MAX]),
            len: 0,
            habits: [Habit::default(); COLUMNS],
        }
    }
}

impl Tokens {
    /// Finds the numbers of `text`, which is not longer than [`BETWEEN_MAX`], and returns the column of the first: a
    /// page begins anywhere in a line, so the numbers of its first line are taken for the last ones of a line like the
    /// second.
    pub(super) fn find(&mut self, text: &[u8]) -> u8 {
        self.len = 0;
        let (mut column, mut line) = (0, 0);
        let mut first_lines = [0u16; 2];
        let (mut at, mut end) = (0, 0);
        while at < text.len() {
            if !text[at].is_ascii_digit() {
                if text[at] == b'\n' {
                    (column, line) = (0, line + 1);
                }
                at += 1;
                continue;
            }
            // Digits in words are names.
            let in_word = at > 0 && text[at - 1].is_ascii_alphabetic();
            let Some(token) = token(text, at, end).filter(|_| !in_word) else {
                at += text[at..]
                    .iter()
                    .take_while(|byte| byte.is_ascii_digit())
                    .count();
                continue;
            };
            self.list[self.len] = Token { column, ..token };
            self.len += 1;
            column += 1;
            if let Some(numbers) = first_lines.get_mut(line) {
                *numbers = column;
            }
            end = token.end();
            at = end;
        }
        let skipped = u8::try_from(first_lines[1].saturating_sub(first_lines[0])).unwrap_or(0);
        self.list[..usize::from(first_lines[0])]
            .iter_mut()
            .for_each(|token| token.column += u16::from(skipped));
        self.habits = [Habit::default(); COLUMNS];
        for token in &self.list[..self.len] {
            self.habits[usize::from(token.column).min(COLUMNS - 1)].note(token);
        }
        skipped
    }

    /// In the order they stand.
    pub(super) fn found(&self) -> &[Token] {
        &self.list[..self.len]
    }

    /// How `token` is to be written, and where in the page this begins.
    pub(super) fn shape(&self, token: &Token) -> (Shape, usize) {
        let habit = &self.habits[usize::from(token.column).min(COLUMNS - 1)];
        let start = usize::from(token.start);
        let width = token.len + token.spaces;
        let fraction = token.fraction;
        if token.has_zeros || (habit.zeros > 1 && habit.zeros == token.digits) {
            (
                Shape {
                    fraction,
                    fill: Fill::Zeros,
                    room: token.digits,
                },
                start,
            )
        } else if habit.zeros == 0
            && habit.same_end > habit.same_start
            && usize::from(width) <= ROOM_MAX
        {
            (
                Shape {
                    fraction,
                    fill: Fill::Spaces,
                    room: width,
                },
                start - usize::from(token.spaces),
            )
        } else {
            (
                Shape {
                    fraction,
                    fill: Fill::None,
                    room: 0,
                },
                start,
            )
        }
    }
}

impl Token {
    pub(super) fn end(&self) -> usize {
        usize::from(self.start) + usize::from(self.len)
    }
}

impl Habit {
    fn note(&mut self, token: &Token) {
        let width = token.len + token.spaces;
        self.same_end += u16::from(width == self.width);
        self.same_start += u16::from(token.spaces == self.spaces);
        (self.spaces, self.width) = (token.spaces, width);
        if token.has_zeros {
            self.zeros = token.digits;
        }
    }
}

/// The number whose first digit is at `first`; no part of it, and none of its spaces, lies before `from`. `None` for
/// more digits than numbers may have.
fn token(text: &[u8], first: usize, from: usize) -> Option<Token> {
    let run = |at: usize| {
        text[at..]
            .iter()
            .take(DIGITS_MAX + 1)
            .take_while(|byte| byte.is_ascii_digit())
            .count()
    };
    let digits = run(first);
    if digits > DIGITS_MAX {
        return None;
    }
    let mut end = first + digits;
    let mut fraction = 0;
    if text.get(end) == Some(&b'.') {
        fraction = run(end + 1);
        if digits + fraction > DIGITS_MAX {
            fraction = 0;
        }
        end += if fraction > 0 { 1 + fraction } else { 0 };
    }
    let number = text[first..end].iter().filter(|byte| **byte != b'.');
    let mut value = number.fold(0, |value: i64, digit| 10 * value + i64::from(digit - b'0'));
    let mut start = first;
    // A sign, not what joins two words or the parts of a date. Nothing has a sign that is zero.
    let joins = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b')' | b'_' | b'.');
    if value != 0
        && first > from
        && text[first - 1] == b'-'
        && !(first >= 2 && joins(text[first - 2]))
    {
        start -= 1;
        value = -value;
    }
    let spaces = text[from..start]
        .iter()
        .rev()
        .take(ROOM_MAX)
        .take_while(|byte| **byte == b' ')
        .count();
    Some(Token {
        start: start as u16,
        spaces: spaces as u8,
        len: (end - start) as u8,
        digits: digits as u8,
        fraction: fraction as u8,
        has_zeros: digits > 1 && text[first] == b'0',
        column: 0,
        value,
    })
}

impl Shape {
    pub(super) fn put(self, even: &mut even::Writer) {
        even.put(u64::from(self.fraction), 5);
        even.put(self.fill as u64, 2);
        even.put(u64::from(self.room), 5);
    }

    /// Undoes [`Shape::put`]. `None` if numbers are not written so.
    pub(super) fn take(even: &mut even::Reader<'_>) -> Option<Self> {
        let fraction = even.take(5) as u8;
        let fill = match even.take(2) {
            0 => Fill::None,
            1 => Fill::Zeros,
            2 => Fill::Spaces,
            _ => return None,
        };
        let room = even.take(5) as u8;
        let digits = if fill == Fill::Zeros { room } else { 0 };
        (usize::from(fraction.max(digits)) <= DIGITS_MAX).then_some(Self {
            fraction,
            fill,
            room,
        })
    }

    /// Writes `value` to the front of `out` and returns how many bytes that took; `None` if there is no room.
    pub(super) fn write(self, value: i64, out: &mut [u8]) -> Option<usize> {
        // From the end: at most 20 digits, or as many as there is room for, a point and a sign.
        let mut text = [b' '; 2 * ROOM_MAX];
        let mut at = text.len();
        let mut put = |byte: u8| {
            at -= 1;
            text[at] = byte;
        };
        let mut left = value.unsigned_abs();
        for _ in 0..self.fraction {
            put(b'0' + (left % 10) as u8);
            left /= 10;
        }
        if self.fraction > 0 {
            put(b'.');
        }
        let zeros = if self.fill == Fill::Zeros {
            self.room
        } else {
            1
        };
        let mut digits = 0;
        while left > 0 || digits < zeros {
            put(b'0' + (left % 10) as u8);
            left /= 10;
            digits += 1;
        }
        if value < 0 {
            put(b'-');
        }
        if self.fill == Fill::Spaces {
            at = at.min(text.len() - usize::from(self.room));
        }
        let text = &text[at..];
        out.get_mut(..text.len())?.copy_from_slice(text);
        Some(text.len())
    }
}
