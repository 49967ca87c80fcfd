//! Tokens of PTX text. Source: PTX ISA, chapter 4, "Syntax".

use crate::ParseError;

/// One token, borrowed from the text.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Token<'t> {
    /// An identifier; may begin with `%`, `$` or `_`.
    Word(&'t str),
    /// A `.` and what follows it, without the dot: `param`, `shared::cta`, `b32`.
    Dot(&'t str),
    /// An integer literal.
    Int(u64),
    /// `0f` and 8 hexadecimal digits.
    F32(u32),
    /// `0d` and 16 hexadecimal digits, or a decimal fraction.
    F64(u64),
    /// What stands between double quotes.
    Text(&'t str),
    /// Any other character.
    Punct(u8),
    /// The end of the text.
    End,
}

/// Reads tokens one by one, and looks two ahead.
#[derive(Debug, Clone)]
pub(crate) struct Lexer<'t> {
    text: &'t str,
    at: usize,
    line: u32,
    line_start: usize,
    ahead: [Option<Spanned<'t>>; 2],
}

/// A token and where it stands.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Spanned<'t> {
    pub(crate) token: Token<'t>,
    pub(crate) line: u32,
    pub(crate) column: u32,
    pub(crate) begin: usize,
    pub(crate) end: usize,
}

impl<'t> Lexer<'t> {
    pub(crate) fn new(text: &'t str) -> Self {
        Lexer {
            text,
            at: 0,
            line: 1,
            line_start: 0,
            ahead: [None, None],
        }
    }

    /// The next token, and leaves it.
    pub(crate) fn peek(&mut self) -> Result<Spanned<'t>, ParseError> {
        if self.ahead[0].is_none() {
            self.ahead[0] = Some(self.read()?);
        }
        Ok(self.ahead[0].expect("just filled"))
    }

    /// The token after the next one, and leaves both.
    pub(crate) fn peek_second(&mut self) -> Result<Spanned<'t>, ParseError> {
        self.peek()?;
        if self.ahead[1].is_none() {
            self.ahead[1] = Some(self.read()?);
        }
        Ok(self.ahead[1].expect("just filled"))
    }

    /// Takes the next token.
    pub(crate) fn next(&mut self) -> Result<Spanned<'t>, ParseError> {
        let token = self.peek()?;
        self.ahead = [self.ahead[1].take(), None];
        Ok(token)
    }

    /// Takes the next token if it is this character.
    pub(crate) fn take(&mut self, punct: u8) -> Result<bool, ParseError> {
        let is_it = self.peek()?.token == Token::Punct(punct);
        if is_it {
            self.next()?;
        }
        Ok(is_it)
    }

    /// Takes this character, or fails.
    pub(crate) fn expect(&mut self, punct: u8) -> Result<(), ParseError> {
        let next = self.next()?;
        if next.token == Token::Punct(punct) {
            return Ok(());
        }
        Err(next.error(format!(
            "expected '{}', found {}",
            punct as char,
            next.token.describe()
        )))
    }

    /// Takes a word, or fails.
    pub(crate) fn word(&mut self) -> Result<&'t str, ParseError> {
        let next = self.next()?;
        match next.token {
            Token::Word(word) => Ok(word),
            other => Err(next.error(format!("expected a name, found {}", other.describe()))),
        }
    }

    /// Takes an integer, or fails.
    pub(crate) fn int(&mut self) -> Result<u64, ParseError> {
        let next = self.next()?;
        match next.token {
            Token::Int(value) => Ok(value),
            other => Err(next.error(format!("expected a number, found {}", other.describe()))),
        }
    }

    /// Skips the rest of the current line.
    pub(crate) fn skip_line(&mut self) {
        self.at = self.ahead[0].take().map_or(self.at, |token| token.begin);
        self.ahead[1] = None;
        let rest = &self.text[self.at..];
        self.at += rest.find('\n').unwrap_or(rest.len());
    }

    fn error(&self, at: usize, what: impl Into<String>) -> ParseError {
        ParseError {
            line: self.line,
            column: (at.saturating_sub(self.line_start) + 1) as u32,
            what: what.into(),
        }
    }

    fn skip_blank(&mut self) -> Result<(), ParseError> {
        let bytes = self.text.as_bytes();
        loop {
            match bytes.get(self.at) {
                Some(b'\n') => {
                    self.at += 1;
                    self.line += 1;
                    self.line_start = self.at;
                }
                // A NUL ends the text for the driver; what follows is padding.
                Some(0) => {
                    self.at = bytes.len();
                    return Ok(());
                }
                Some(byte) if byte.is_ascii_whitespace() => self.at += 1,
                Some(b'/') if bytes.get(self.at + 1) == Some(&b'/') => {
                    let rest = &bytes[self.at..];
                    self.at += rest.iter().position(|&b| b == b'\n').unwrap_or(rest.len());
                }
                Some(b'/') if bytes.get(self.at + 1) == Some(&b'*') => {
                    let rest = &self.text[self.at + 2..];
                    let Some(end) = rest.find("*/") else {
                        return Err(self.error(self.at, "comment without end"));
                    };
                    for (index, _) in rest[..end].match_indices('\n') {
                        self.line += 1;
                        self.line_start = self.at + 2 + index + 1;
                    }
                    self.at += end + 4;
                }
                _ => return Ok(()),
            }
        }
    }

    fn read(&mut self) -> Result<Spanned<'t>, ParseError> {
        self.skip_blank()?;
        let begin = self.at;
        let bytes = self.text.as_bytes();
        let token = match bytes.get(begin).copied() {
            None => Token::End,
            Some(b'"') => {
                let rest = &self.text[begin + 1..];
                let Some(end) = rest
                    .find(['"', '\n'])
                    .filter(|&at| rest.as_bytes()[at] == b'"')
                else {
                    return Err(self.error(begin, "text without closing quote"));
                };
                self.at = begin + end + 2;
                Token::Text(&rest[..end])
            }
            Some(b'.') if bytes.get(begin + 1).is_some_and(|&b| is_word(b)) => {
                self.at = word_end(bytes, begin + 1, true);
                Token::Dot(&self.text[begin + 1..self.at])
            }
            Some(byte) if byte.is_ascii_digit() => self.number()?,
            Some(byte) if is_word(byte) || byte == b'%' => {
                self.at = word_end(bytes, begin + 1, false);
                Token::Word(&self.text[begin..self.at])
            }
            Some(byte) if byte.is_ascii() => {
                self.at += 1;
                Token::Punct(byte)
            }
            Some(_) => return Err(self.error(begin, "a character that is not ASCII")),
        };
        Ok(Spanned {
            token,
            line: self.line,
            column: (begin.saturating_sub(self.line_start) + 1) as u32,
            begin,
            end: self.at,
        })
    }

    fn number(&mut self) -> Result<Token<'t>, ParseError> {
        let begin = self.at;
        let bytes = self.text.as_bytes();
        let word = &self.text[begin..word_end(bytes, begin, false)];
        self.at = begin + word.len();
        let lower = word.as_bytes().get(1).map(u8::to_ascii_lowercase);
        let hex = |len: usize| {
            let digits = word.get(2..).filter(|digits| digits.len() == len)?;
            u64::from_str_radix(digits, 16).ok()
        };
        let is_zero = word.starts_with('0');
        if is_zero && lower == Some(b'f') {
            let bits = hex(8).ok_or_else(|| self.error(begin, "0f wants 8 digits"))?;
            return Ok(Token::F32(bits as u32));
        }
        if is_zero && lower == Some(b'd') {
            let bits = hex(16).ok_or_else(|| self.error(begin, "0d wants 16 digits"))?;
            return Ok(Token::F64(bits));
        }
        let is_decimal = word.bytes().all(|b| b.is_ascii_digit());
        if is_decimal && bytes.get(self.at) == Some(&b'.')
            || !is_zero && word.contains(['e', 'E'])
            || is_zero && matches!(lower, Some(b'e'))
        {
            return self.fraction(begin);
        }
        let digits = word.trim_end_matches(['U', 'u', 'L', 'l']);
        let parsed = match lower {
            Some(b'x') if is_zero => u64::from_str_radix(&digits[2..], 16),
            Some(b'b') if is_zero => u64::from_str_radix(&digits[2..], 2),
            Some(_) if is_zero && digits.len() > 1 => u64::from_str_radix(&digits[1..], 8),
            _ => digits.parse(),
        };
        parsed
            .map(Token::Int)
            .map_err(|_| self.error(begin, format!("{word} is no number")))
    }

    fn fraction(&mut self, begin: usize) -> Result<Token<'t>, ParseError> {
        let bytes = self.text.as_bytes();
        let mut end = begin;
        while let Some(&byte) = bytes.get(end) {
            let is_sign = matches!(byte, b'+' | b'-') && matches!(bytes[end - 1], b'e' | b'E');
            if !(byte.is_ascii_digit() || matches!(byte, b'.' | b'e' | b'E') || is_sign) {
                break;
            }
            end += 1;
        }
        self.at = end;
        let text = &self.text[begin..end];
        let value: f64 = text
            .parse()
            .map_err(|_| self.error(begin, format!("{text} is no number")))?;
        Ok(Token::F64(value.to_bits()))
    }
}

impl Spanned<'_> {
    pub(crate) fn error(&self, what: impl Into<String>) -> ParseError {
        ParseError {
            line: self.line,
            column: self.column,
            what: what.into(),
        }
    }
}

impl Token<'_> {
    pub(crate) fn describe(&self) -> String {
        match self {
            Token::Word(word) => format!("'{}'", shorten(word)),
            Token::Dot(word) => format!("'.{}'", shorten(word)),
            Token::Int(value) => format!("{value}"),
            Token::F32(_) | Token::F64(_) => "a floating-point number".into(),
            Token::Text(_) => "a quoted text".into(),
            Token::Punct(byte) => format!("'{}'", *byte as char),
            Token::End => "the end".into(),
        }
    }
}

/// The first 80 characters, for messages.
pub(crate) fn shorten(text: &str) -> &str {
    text.char_indices()
        .nth(80)
        .map_or(text, |(end, _)| &text[..end])
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'$')
}

/// Where the word that begins at `at` ends. Modifiers hold double colons: `shared::cta`.
fn word_end(bytes: &[u8], mut at: usize, colons: bool) -> usize {
    loop {
        match bytes.get(at) {
            Some(&byte) if is_word(byte) => at += 1,
            Some(b':')
                if colons
                    && bytes.get(at + 1) == Some(&b':')
                    && bytes.get(at + 2).is_some_and(|&b| is_word(b)) =>
            {
                at += 2
            }
            _ => return at,
        }
    }
}
