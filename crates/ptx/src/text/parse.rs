//! Declarations and bodies.

use super::ast::{Function, Init, Instruction, Kind, Statement, Text, Type, Var, VarSpace};
use super::lex::{Lexer, Spanned, Token};
use super::operand::operands;
use crate::{Limits, ParseError, TexrefKind};

/// Parses a whole text.
pub(crate) fn parse<'t>(text: &'t str, limits: &Limits) -> Result<Text<'t>, ParseError> {
    let mut parser = Parser {
        lexer: Lexer::new(text),
        statements: 0,
        statements_max: limits.instructions,
    };
    parser.module()
}

struct Parser<'t> {
    lexer: Lexer<'t>,
    statements: usize,
    statements_max: usize,
}

impl<'t> Parser<'t> {
    fn module(&mut self) -> Result<Text<'t>, ParseError> {
        let first = self.lexer.peek()?;
        if first.token != Token::Dot("version") {
            return Err(first.error("PTX begins with .version"));
        }
        let mut text = Text::default();
        loop {
            let next = self.lexer.next()?;
            match next.token {
                Token::End => return Ok(text),
                Token::Dot(word) => self.directive(&mut text, word, &next)?,
                Token::Punct(b'@') => self.lexer.skip_line(),
                Token::Punct(b';') => {}
                other => {
                    let found = other.describe();
                    return Err(next.error(format!("expected a directive, found {found}")));
                }
            }
        }
    }

    fn directive(
        &mut self,
        text: &mut Text<'t>,
        word: &'t str,
        at: &Spanned<'t>,
    ) -> Result<(), ParseError> {
        match word {
            "version" => text.version = self.version()?,
            "target" => {
                text.target = self.lexer.word()?;
                while self.lexer.take(b',')? {
                    self.lexer.word()?;
                }
            }
            "address_size" => {
                let size = self.lexer.next()?;
                if size.token != Token::Int(64) {
                    return Err(size.error("addresses have 64 bits"));
                }
            }
            "file" => {
                let number = self.lexer.int()?;
                if let Token::Text(name) = self.lexer.next()?.token {
                    text.files.push((number as u32, name));
                }
                while self.lexer.take(b',')? {
                    self.lexer.int()?;
                }
            }
            "section" => self.skip_section()?,
            "loc" => {
                self.location()?;
            }
            "pragma" | "blocksareclusters" => self.skip_to_semicolon()?,
            "alias" => {
                let name = self.lexer.word()?;
                self.lexer.expect(b',')?;
                text.aliases.push((name, self.lexer.word()?));
                self.lexer.expect(b';')?;
            }
            _ => self.linked(text, word, at)?,
        }
        Ok(())
    }

    fn version(&mut self) -> Result<(u32, u32), ParseError> {
        let next = self.lexer.next()?;
        let Token::F64(bits) = next.token else {
            return Err(next.error("expected a version such as 8.0"));
        };
        let tenths = (f64::from_bits(bits) * 10.0).round() as u32;
        Ok((tenths / 10, tenths % 10))
    }

    /// A function or variable, after its linkage.
    fn linked(
        &mut self,
        text: &mut Text<'t>,
        word: &'t str,
        at: &Spanned<'t>,
    ) -> Result<(), ParseError> {
        let (mut word, mut at, mut is_extern) = (word, *at, false);
        while matches!(word, "visible" | "weak" | "extern" | "common") {
            is_extern |= word == "extern";
            at = self.lexer.next()?;
            let Token::Dot(next) = at.token else {
                return Err(at.error("expected a declaration"));
            };
            word = next;
        }
        match word {
            "entry" | "func" => {
                let function = self.function(word == "entry", at.line)?;
                text.functions.push(function);
            }
            _ => {
                let Some(space) = space_of(word) else {
                    return Err(at.error(format!("unknown directive .{word}")));
                };
                let reference = match self.lexer.peek()?.token {
                    Token::Dot("texref") => Some(TexrefKind::Texture),
                    Token::Dot("samplerref") => Some(TexrefKind::Sampler),
                    Token::Dot("surfref") => Some(TexrefKind::Surface),
                    _ => None,
                };
                if let Some(kind) = reference {
                    self.lexer.next()?;
                    text.textures.push((self.lexer.word()?, kind));
                    self.skip_to_semicolon()?;
                } else {
                    self.variables(space, is_extern, &mut |var| text.vars.push(var))?;
                }
            }
        }
        Ok(())
    }

    /// The variables of one declaration, up to the `;`.
    fn variables(
        &mut self,
        space: VarSpace,
        is_extern: bool,
        out: &mut dyn FnMut(Var<'t>),
    ) -> Result<(), ParseError> {
        let (ty, align, lanes) = self.variable_type()?;
        loop {
            let mut var = self.declarator(space, (ty, align, lanes))?;
            var.is_extern = is_extern;
            out(var);
            if self.lexer.take(b';')? {
                return Ok(());
            }
            self.lexer.expect(b',')?;
        }
    }

    /// `.align N`, `.v4` and the type; also `.ptr .global .align N` of parameters.
    fn variable_type(&mut self) -> Result<(Type, Option<u64>, u64), ParseError> {
        let (mut ty, mut align, mut lanes) = (None, None, 1);
        let mut is_pointer = false;
        loop {
            let next = self.lexer.peek()?;
            let Token::Dot(word) = next.token else { break };
            self.lexer.next()?;
            match word {
                "align" => {
                    let value = self.lexer.int()?;
                    if !value.is_power_of_two() || value > 1 << 20 {
                        return Err(next.error("an alignment is a power of two"));
                    }
                    // Of a pointer it is the alignment of what it points to.
                    if !is_pointer {
                        align = Some(value);
                    }
                }
                "v2" => lanes = 2,
                "v4" => lanes = 4,
                "v8" => lanes = 8,
                "ptr" => is_pointer = true,
                "global" | "shared" | "local" | "const" | "generic" if is_pointer => {}
                "attribute" => {
                    while !self.lexer.take(b')')? {
                        let skipped = self.lexer.next()?;
                        if skipped.token == Token::End {
                            return Err(skipped.error("expected ')'"));
                        }
                    }
                }
                _ => match Type::parse(word) {
                    Some(found) => ty = Some(found),
                    None => return Err(next.error(format!("unknown type .{word}"))),
                },
            }
        }
        let Some(ty) = ty else {
            return Err(self.lexer.peek()?.error("expected a type"));
        };
        Ok((ty, align, lanes))
    }

    fn declarator(
        &mut self,
        space: VarSpace,
        (ty, align, lanes): (Type, Option<u64>, u64),
    ) -> Result<Var<'t>, ParseError> {
        let at = self.lexer.peek()?;
        let name = self.lexer.word()?;
        let mut range = None;
        if self.lexer.take(b'<')? {
            range = Some(u32::try_from(self.lexer.int()?).map_err(|_| at.error("too many"))?);
            self.lexer.expect(b'>')?;
        }
        let element = u64::from(ty.bytes());
        let mut size = element.saturating_mul(lanes);
        while self.lexer.take(b'[')? {
            if self.lexer.take(b']')? {
                size = 0;
                continue;
            }
            size = size.saturating_mul(self.lexer.int()?);
            self.lexer.expect(b']')?;
        }
        let mut init = Vec::new();
        if self.lexer.take(b'=')? {
            let mut offset = 0;
            self.initialiser(element as u32, &mut offset, &mut init, 0)?;
            size = size.max(offset);
        }
        Ok(Var {
            space,
            name,
            ty,
            range,
            size,
            align: align.unwrap_or(element * lanes.next_power_of_two()).max(1),
            is_extern: false,
            init,
            line: at.line,
        })
    }

    fn initialiser(
        &mut self,
        len: u32,
        offset: &mut u64,
        out: &mut Vec<(u64, Init<'t>)>,
        depth: u32,
    ) -> Result<(), ParseError> {
        let next = self.lexer.next()?;
        if depth > 8 {
            return Err(next.error("braces nest too deep"));
        }
        if next.token == Token::Punct(b'{') {
            while !self.lexer.take(b'}')? {
                self.initialiser(len, offset, out, depth + 1)?;
                if !self.lexer.take(b',')? {
                    self.lexer.expect(b'}')?;
                    break;
                }
            }
            return Ok(());
        }
        let item = self.initial_value(next, len)?;
        // Zeros are what a variable holds anyway; a long table of them should cost nothing.
        if !matches!(item, Init::Bits { value: 0, .. }) {
            out.push((*offset, item));
        }
        *offset += u64::from(len);
        Ok(())
    }

    fn initial_value(&mut self, next: Spanned<'t>, len: u32) -> Result<Init<'t>, ParseError> {
        let bits = |value| Init::Bits { value, len };
        Ok(match next.token {
            // A mask picks a byte of an address: 0xFF00(name).
            Token::Int(mask) if self.lexer.peek()?.token == Token::Punct(b'(') => {
                self.lexer.expect(b'(')?;
                let name = self.lexer.next()?;
                let item = self.address(name, len, mask.trailing_zeros().min(63))?;
                self.lexer.expect(b')')?;
                item
            }
            Token::Int(value) => bits(value),
            Token::F32(value) => bits(u64::from(value)),
            Token::F64(value) if len == 4 => {
                bits(u64::from((f64::from_bits(value) as f32).to_bits()))
            }
            Token::F64(value) => bits(value),
            Token::Punct(b'-') => {
                let next = self.lexer.next()?;
                match next.token {
                    Token::Int(value) => bits(value.wrapping_neg()),
                    Token::F64(value) if len == 4 => {
                        bits(u64::from((-f64::from_bits(value) as f32).to_bits()))
                    }
                    Token::F64(value) => bits(value ^ 1 << 63),
                    _ => return Err(next.error("expected a number")),
                }
            }
            Token::Word(_) => self.address(next, len, 0)?,
            other => {
                let found = other.describe();
                return Err(next.error(format!("expected an initial value, found {found}")));
            }
        })
    }

    /// `name`, `generic(name)`, `name+8`, `generic(name)+8`.
    fn address(&mut self, at: Spanned<'t>, len: u32, shift: u32) -> Result<Init<'t>, ParseError> {
        let Token::Word(mut name) = at.token else {
            return Err(at.error("expected a name"));
        };
        let mut addend = 0;
        if name == "generic" && self.lexer.take(b'(')? {
            name = self.lexer.word()?;
            addend += self.addend()?;
            self.lexer.expect(b')')?;
        }
        addend += self.addend()?;
        Ok(Init::Address {
            name,
            addend,
            len,
            shift,
        })
    }

    fn addend(&mut self) -> Result<i64, ParseError> {
        if self.lexer.take(b'+')? {
            return Ok(self.lexer.int()? as i64 & i64::MAX >> 1);
        }
        if self.lexer.take(b'-')? {
            return Ok(-(self.lexer.int()? as i64 & i64::MAX >> 1));
        }
        Ok(0)
    }

    fn function(&mut self, is_kernel: bool, line: u32) -> Result<Function<'t>, ParseError> {
        let mut returns = Vec::new();
        if !is_kernel && self.lexer.peek()?.token == Token::Punct(b'(') {
            returns = self.params()?;
        }
        let name = self.lexer.word()?;
        let mut params = Vec::new();
        if self.lexer.peek()?.token == Token::Punct(b'(') {
            params = self.params()?;
        }
        let mut function = Function {
            name,
            is_kernel,
            returns,
            params,
            body: None,
            max_threads: None,
            required_block: None,
            line,
        };
        loop {
            let next = self.lexer.next()?;
            match next.token {
                Token::Dot("maxntid") => function.max_threads = Some(self.extent()?),
                Token::Dot("reqntid") => function.required_block = Some(self.extent()?),
                Token::Dot("pragma") => self.skip_to_semicolon()?,
                Token::Dot("noreturn" | "explicitcluster" | "blocksareclusters") => {}
                Token::Dot(_) => {
                    self.extent()?;
                }
                Token::Punct(b';') => return Ok(function),
                Token::Punct(b'{') => {
                    function.body = Some(self.body()?);
                    return Ok(function);
                }
                other => {
                    let found = other.describe();
                    return Err(next.error(format!("expected a body or ';', found {found}")));
                }
            }
        }
    }

    fn params(&mut self) -> Result<Vec<Var<'t>>, ParseError> {
        let mut params = Vec::new();
        self.lexer.expect(b'(')?;
        if self.lexer.take(b')')? {
            return Ok(params);
        }
        loop {
            let next = self.lexer.next()?;
            let space = match next.token {
                Token::Dot("param") => VarSpace::Param,
                Token::Dot("reg") => VarSpace::Reg,
                _ => return Err(next.error("expected .param or .reg")),
            };
            let described = self.variable_type()?;
            params.push(self.declarator(space, described)?);
            if self.lexer.take(b')')? {
                return Ok(params);
            }
            self.lexer.expect(b',')?;
        }
    }

    /// One to three numbers; missing ones are 1. Directives with one number use it too.
    fn extent(&mut self) -> Result<[u32; 3], ParseError> {
        let mut extent = [1; 3];
        for place in &mut extent {
            if !matches!(self.lexer.peek()?.token, Token::Int(_)) {
                break;
            }
            *place = self.lexer.int()?.min(u64::from(u32::MAX)) as u32;
            if !self.lexer.take(b',')? {
                break;
            }
        }
        Ok(extent)
    }

    fn body(&mut self) -> Result<Vec<Statement<'t>>, ParseError> {
        let mut statements = Vec::new();
        let mut depth = 1;
        loop {
            self.statements += 1;
            let next = self.lexer.peek()?;
            if self.statements > self.statements_max {
                return Err(next.error("too many statements"));
            }
            let mut push = |kind| {
                statements.push(Statement {
                    line: next.line,
                    span: (next.begin, next.end),
                    kind,
                })
            };
            match next.token {
                Token::Punct(b'{') => {
                    self.lexer.next()?;
                    depth += 1;
                    push(Kind::Open);
                }
                Token::Punct(b'}') => {
                    self.lexer.next()?;
                    depth -= 1;
                    if depth == 0 {
                        return Ok(statements);
                    }
                    push(Kind::Close);
                }
                Token::Punct(b';') => {
                    self.lexer.next()?;
                }
                Token::Dot(word) => {
                    self.lexer.next()?;
                    self.body_directive(word, &next, &mut push)?;
                }
                Token::Word(name) if self.lexer.peek_second()?.token == Token::Punct(b':') => {
                    self.lexer.next()?;
                    self.lexer.next()?;
                    self.label(name, &mut push)?;
                }
                Token::Punct(b'@') if self.lexer.peek_second()?.token == Token::Punct(b'@') => {
                    self.lexer.skip_line();
                }
                Token::End => return Err(next.error("a body without end")),
                _ => {
                    let (kind, end) = self.instruction()?;
                    let line = next.line;
                    statements.push(Statement {
                        line,
                        span: (next.begin, end),
                        kind,
                    });
                }
            }
        }
    }

    fn label(&mut self, name: &'t str, push: &mut dyn FnMut(Kind<'t>)) -> Result<(), ParseError> {
        match self.lexer.peek()?.token {
            Token::Dot("branchtargets") => {
                self.lexer.next()?;
                let mut labels = vec![self.lexer.word()?];
                while self.lexer.take(b',')? {
                    labels.push(self.lexer.word()?);
                }
                self.lexer.expect(b';')?;
                push(Kind::Targets { name, labels });
            }
            // The shape of an indirect call's target; the call itself is checked when it runs.
            Token::Dot("callprototype" | "calltargets") => self.skip_to_semicolon()?,
            _ => push(Kind::Label(name)),
        }
        Ok(())
    }

    fn body_directive(
        &mut self,
        word: &'t str,
        at: &Spanned<'t>,
        push: &mut dyn FnMut(Kind<'t>),
    ) -> Result<(), ParseError> {
        match word {
            "loc" => {
                let (file, line) = self.location()?;
                push(Kind::Location { file, line });
            }
            "pragma" | "callprototype" => self.skip_to_semicolon()?,
            "section" => self.skip_section()?,
            "maxnreg" | "maxntid" | "reqntid" | "minnctapersm" | "maxnctapersm" => {
                self.extent()?;
                self.lexer.take(b';')?;
            }
            _ => {
                let (mut word, mut is_extern) = (word, false);
                while matches!(word, "extern" | "visible" | "weak") {
                    is_extern = word == "extern";
                    let next = self.lexer.next()?;
                    let Token::Dot(following) = next.token else {
                        return Err(next.error("expected a declaration"));
                    };
                    word = following;
                }
                let Some(space) = space_of(word) else {
                    return Err(at.error(format!("unknown directive .{word}")));
                };
                self.variables(space, is_extern, &mut |var| push(Kind::Var(Box::new(var))))?;
            }
        }
        Ok(())
    }

    fn instruction(&mut self) -> Result<(Kind<'t>, usize), ParseError> {
        let mut guard = None;
        if self.lexer.take(b'@')? {
            let is_negated = self.lexer.take(b'!')?;
            guard = Some((self.lexer.word()?, is_negated));
        }
        let opcode = self.lexer.word()?;
        let mut modifiers = Vec::new();
        while let Token::Dot(word) = self.lexer.peek()?.token {
            self.lexer.next()?;
            modifiers.push(word);
        }
        let before = self.lexer.clone();
        let kind = match operands(&mut self.lexer) {
            Ok(operands) => Kind::Instruction(Box::new(Instruction {
                guard,
                opcode,
                modifiers,
                operands,
            })),
            Err(error) => {
                self.lexer = before;
                self.recover(&error)?;
                let name = [&[opcode][..], &modifiers].concat().join(".");
                let name = super::lex::shorten(&name);
                let what = format!("instruction {name} is not supported: {}", error.what);
                Kind::Unknown { guard, what }
            }
        };
        Ok((kind, self.lexer.peek()?.begin))
    }

    /// Skips an instruction of unknown shape. A brace or the end before its `;` is an error.
    fn recover(&mut self, error: &ParseError) -> Result<(), ParseError> {
        let mut depth = 0u32;
        loop {
            let next = self.lexer.next()?;
            match next.token {
                Token::Punct(b';') => return Ok(()),
                Token::Punct(b'{') => depth += 1,
                Token::Punct(b'}') if depth > 0 => depth -= 1,
                Token::Punct(b'}') | Token::End => return Err(error.clone()),
                _ => {}
            }
        }
    }

    /// `.loc FILE LINE COLUMN [, function_name LABEL [+ N], inlined_at FILE LINE COLUMN] [;]`
    fn location(&mut self) -> Result<(u32, u32), ParseError> {
        let (file, line) = (self.lexer.int()?, self.lexer.int()?);
        self.lexer.int()?;
        while self.lexer.take(b',')? {
            match self.lexer.word()? {
                "inlined_at" => {
                    for _ in 0..3 {
                        self.lexer.int()?;
                    }
                }
                "function_name" => {
                    self.lexer.word()?;
                    if self.lexer.take(b'+')? {
                        self.lexer.int()?;
                    }
                }
                _ => {}
            }
        }
        self.lexer.take(b';')?;
        Ok((file as u32, line as u32))
    }

    fn skip_section(&mut self) -> Result<(), ParseError> {
        let mut depth = 0u32;
        loop {
            let next = self.lexer.next()?;
            match next.token {
                Token::Punct(b'{') => depth += 1,
                Token::Punct(b'}') => {
                    depth = depth.saturating_sub(1);
                    if depth == 0 {
                        return Ok(());
                    }
                }
                Token::End => return Err(next.error("a section without end")),
                _ => {}
            }
        }
    }

    fn skip_to_semicolon(&mut self) -> Result<(), ParseError> {
        loop {
            let next = self.lexer.next()?;
            match next.token {
                Token::Punct(b';') => return Ok(()),
                Token::End => return Err(next.error("expected ';'")),
                _ => {}
            }
        }
    }
}

fn space_of(word: &str) -> Option<VarSpace> {
    Some(match word {
        "reg" => VarSpace::Reg,
        "param" => VarSpace::Param,
        "shared" | "shared::cta" => VarSpace::Shared,
        "local" => VarSpace::Local,
        "global" | "tex" => VarSpace::Global,
        "const" => VarSpace::Const,
        _ => return None,
    })
}
