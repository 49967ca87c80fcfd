//! PTX text: tokens ([`lex`]), declarations and statements ([`ast`], [`parse`], [`operand`]).

pub(crate) mod ast;
pub(crate) mod lex;
pub(crate) mod operand;
pub(crate) mod parse;
