//! Operands of instructions. The grammar is general: what an instruction allows is the lowering's
//! business, so that unknown instructions still parse.

use super::ast::Operand;
use super::lex::{Lexer, Token};
use crate::ParseError;

/// Nesting of brackets that an operand may have; real ones have two.
const DEPTH_MAX: u32 = 8;

/// Operands up to and including the `;`.
pub(crate) fn operands<'t>(lexer: &mut Lexer<'t>) -> Result<Vec<Operand<'t>>, ParseError> {
    let mut operands = Vec::new();
    if lexer.take(b';')? {
        return Ok(operands);
    }
    loop {
        operands.push(operand(lexer, 0)?);
        if lexer.take(b';')? {
            return Ok(operands);
        }
        lexer.expect(b',')?;
    }
}

fn operand<'t>(lexer: &mut Lexer<'t>, depth: u32) -> Result<Operand<'t>, ParseError> {
    let first = simple(lexer, depth)?;
    if lexer.take(b'|')? {
        let second = simple(lexer, depth)?;
        return Ok(Operand::Pair(Box::new(first), Box::new(second)));
    }
    Ok(first)
}

fn simple<'t>(lexer: &mut Lexer<'t>, depth: u32) -> Result<Operand<'t>, ParseError> {
    let next = lexer.next()?;
    if depth > DEPTH_MAX {
        return Err(next.error("brackets nest too deep"));
    }
    match next.token {
        Token::Word("_") => Ok(Operand::Sink),
        Token::Word(name) => named(lexer, name),
        Token::Int(value) => {
            let value = sum(lexer, value as i64)?;
            Ok(Operand::Int(value as u64))
        }
        Token::F32(bits) => Ok(Operand::F32(bits)),
        Token::F64(bits) => Ok(Operand::F64(bits)),
        Token::Punct(b'-') => match simple(lexer, depth + 1)? {
            Operand::Int(value) => Ok(Operand::Int(value.wrapping_neg())),
            Operand::F32(bits) => Ok(Operand::F32(bits ^ 1 << 31)),
            Operand::F64(bits) => Ok(Operand::F64(bits ^ 1 << 63)),
            _ => Err(next.error("'-' before something that is no number")),
        },
        Token::Punct(b'~') => match simple(lexer, depth + 1)? {
            Operand::Int(value) => Ok(Operand::Int(!value)),
            _ => Err(next.error("'~' before something that is no number")),
        },
        Token::Punct(b'!') => Ok(Operand::Not(lexer.word()?)),
        Token::Punct(b'{') => Ok(Operand::Vector(list(lexer, b'}', depth)?)),
        Token::Punct(b'[') => Ok(Operand::Bracket(list(lexer, b']', depth)?)),
        Token::Punct(b'(') => Ok(Operand::List(list(lexer, b')', depth)?)),
        other => Err(next.error(format!("expected an operand, found {}", other.describe()))),
    }
}

fn named<'t>(lexer: &mut Lexer<'t>, name: &'t str) -> Result<Operand<'t>, ParseError> {
    if let Token::Dot(field) = lexer.peek()?.token {
        lexer.next()?;
        return Ok(Operand::Field(name, field));
    }
    if lexer.take(b'[')? {
        let index = lexer.int()?;
        lexer.expect(b']')?;
        return Ok(Operand::Element(name, index));
    }
    let offset = sum(lexer, 0)?;
    Ok(Operand::Name(name, offset))
}

/// `+ INT` and `- INT`, as often as they come.
fn sum(lexer: &mut Lexer<'_>, mut value: i64) -> Result<i64, ParseError> {
    loop {
        if lexer.take(b'+')? {
            let is_negative = lexer.take(b'-')?;
            let by = lexer.int()? as i64;
            value = value.wrapping_add(if is_negative { by.wrapping_neg() } else { by });
        } else if lexer.take(b'-')? {
            value = value.wrapping_sub(lexer.int()? as i64);
        } else {
            return Ok(value);
        }
    }
}

fn list<'t>(lexer: &mut Lexer<'t>, close: u8, depth: u32) -> Result<Vec<Operand<'t>>, ParseError> {
    let mut items = Vec::new();
    if lexer.take(close)? {
        return Ok(items);
    }
    loop {
        items.push(operand(lexer, depth + 1)?);
        if lexer.take(close)? {
            return Ok(items);
        }
        lexer.expect(b',')?;
    }
}
