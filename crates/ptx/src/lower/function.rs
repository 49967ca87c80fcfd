//! Lowers one body: scopes, registers, operands, and the walk over its statements.

use std::collections::HashMap;

use super::modifiers::Modifiers;
use super::{Name, Unit, error};
use crate::ParseError;
use crate::inst::{
    Constant, FALSE, FUNCTION_BASE, Formal, Inst, Op, PRED_FIRST, PRED_SINK, Pred, PredSrc,
    REG_SINK, Reg, Special, Src,
};
use crate::text::ast::{Function, Instruction, Kind, Operand, Statement, Type, Var, VarSpace};

/// What a name in a body stands for.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Symbol {
    Reg {
        slot: Reg,
        bits: u32,
    },
    Pred(Pred),
    Shared(u32),
    DynamicShared,
    /// Offset in the function's frame.
    Frame(u32),
    /// Offset in the kernel's parameters.
    Param(u32),
    Global(u32),
    Texture(u32),
    Function(u32),
}

/// What a kernel declares for itself.
pub(crate) struct Own {
    pub(crate) shared_bytes: u32,
}

/// Names of one pair of braces.
#[derive(Default)]
struct Scope<'t> {
    parent: usize,
    names: HashMap<&'t str, Symbol>,
    /// Bytes of an element of each array.
    elements: HashMap<&'t str, u32>,
    /// `%r<9>`: prefix, type, count. Slots are given at first use.
    ranges: Vec<(&'t str, Type, u32)>,
    labels: HashMap<&'t str, u32>,
    targets: HashMap<&'t str, Vec<&'t str>>,
}

/// The lowering of one function.
pub(crate) struct Body<'u, 't> {
    pub(crate) unit: &'u mut Unit<'t>,
    pub(crate) index: u32,
    pub(crate) is_kernel: bool,
    scopes: Vec<Scope<'t>>,
    scope: usize,
    registers: u32,
    predicates: u32,
    frame_bytes: u32,
    shared_bytes: u32,
    /// Branches to labels: instruction, entry of its list, scope, label.
    fixups: Vec<(usize, usize, usize, &'t str)>,
    guard: PredSrc,
    line: u32,
    span: (u32, u32),
}

/// Lowers a function with a body.
pub(crate) fn lower<'t>(
    unit: &mut Unit<'t>,
    index: u32,
    function: &Function<'t>,
) -> Result<Own, ParseError> {
    let known = &unit.code.functions[index as usize];
    let (registers, frame_bytes) = (known.registers.max(REG_SINK + 1), known.frame_bytes);
    let entry = unit.code.insts.len() as u32;
    let shared_bytes = unit.common_shared;
    let mut body = Body {
        unit,
        index,
        is_kernel: function.is_kernel,
        scopes: vec![Scope::default()],
        scope: 0,
        registers,
        predicates: PRED_FIRST,
        frame_bytes,
        shared_bytes,
        fixups: Vec::new(),
        guard: PredSrc::TRUE,
        line: function.line,
        span: (0, 0),
    };
    body.formals(function);
    for statement in function.body.iter().flatten() {
        body.statement(statement)?;
    }
    body.guard = PredSrc::TRUE;
    body.emit(if function.is_kernel {
        Op::Exit
    } else {
        Op::Return
    });
    body.resolve_branches()?;
    let own = Own {
        shared_bytes: body.shared_bytes,
    };
    let (registers, predicates, frame_bytes) = (body.registers, body.predicates, body.frame_bytes);
    let known = &mut unit.code.functions[index as usize];
    known.entry = entry;
    known.registers = registers;
    known.predicates = predicates;
    known.frame_bytes = frame_bytes;
    Ok(own)
}

impl<'t> Body<'_, 't> {
    fn formals(&mut self, function: &Function<'t>) {
        if function.is_kernel {
            let (params, _) = super::params(function);
            for (var, param) in function.params.iter().zip(params) {
                self.define(var.name, Symbol::Param(param.offset));
            }
            return;
        }
        let known = &self.unit.code.functions[self.index as usize];
        let formals: Vec<Formal> = known.returns.iter().chain(&known.params).copied().collect();
        let vars = function.returns.iter().chain(&function.params);
        for (var, formal) in vars.zip(formals) {
            let symbol = match formal {
                Formal::Frame { offset, .. } => Symbol::Frame(offset),
                Formal::Reg { slot, .. } => Symbol::Reg {
                    slot,
                    bits: var.ty.bits(),
                },
            };
            self.define(var.name, symbol);
        }
    }

    fn define(&mut self, name: &'t str, symbol: Symbol) {
        self.scopes[self.scope].names.insert(name, symbol);
    }

    fn statement(&mut self, statement: &Statement<'t>) -> Result<(), ParseError> {
        self.line = statement.line;
        self.span = (statement.span.0 as u32, statement.span.1 as u32);
        let here = self.unit.code.insts.len() as u32;
        match &statement.kind {
            Kind::Label(name) => {
                if self.scopes[self.scope].labels.insert(name, here).is_some() {
                    return Err(error(
                        statement.line,
                        format!("label {name} is defined twice"),
                    ));
                }
            }
            Kind::Open => {
                self.scopes.push(Scope {
                    parent: self.scope,
                    ..Scope::default()
                });
                self.scope = self.scopes.len() - 1;
            }
            Kind::Close => self.scope = self.scopes[self.scope].parent,
            Kind::Var(var) => self.variable(var)?,
            Kind::Location { file, line } => {
                let locations = &mut self.unit.code.locations;
                match locations.last_mut() {
                    Some(last) if last.0 == here => *last = (here, *file, *line),
                    _ => locations.push((here, *file, *line)),
                }
            }
            Kind::Targets { name, labels } => {
                self.scopes[self.scope].targets.insert(name, labels.clone());
            }
            Kind::Instruction(instruction) => self.instruction(instruction)?,
            Kind::Unknown { guard, what } => {
                self.take_guard(*guard)?;
                self.unsupported(what.clone());
            }
        }
        if self.unit.code.insts.len() > self.unit.limits.instructions {
            return Err(error(statement.line, "more instructions than allowed"));
        }
        Ok(())
    }

    fn variable(&mut self, var: &Var<'t>) -> Result<(), ParseError> {
        let bytes = var.ty.bytes();
        self.scopes[self.scope].elements.insert(var.name, bytes);
        let too_much =
            |what: &str| error(var.line, format!("{what} take more memory than allowed"));
        match (var.space, var.range) {
            (VarSpace::Reg, Some(count)) => {
                self.scopes[self.scope]
                    .ranges
                    .push((var.name, var.ty, count));
            }
            (VarSpace::Reg, None) => {
                let symbol = self
                    .register(var.ty)
                    .map_err(|what| error(var.line, what))?;
                self.define(var.name, symbol);
            }
            (VarSpace::Param | VarSpace::Local, _) => {
                let align = var.align.clamp(1, 1 << 12) as u32;
                let offset = self.frame_bytes.next_multiple_of(align);
                let end = u64::from(offset) + var.size;
                if end > u64::from(self.unit.limits.stack_bytes) {
                    return Err(too_much("local variables"));
                }
                self.frame_bytes = end as u32;
                self.define(var.name, Symbol::Frame(offset));
            }
            (VarSpace::Shared, _) if var.is_extern || var.size == 0 => {
                self.define(var.name, Symbol::DynamicShared);
            }
            (VarSpace::Shared, _) => {
                let size = u32::try_from(var.size).map_err(|_| too_much("shared variables"))?;
                let symbol = self
                    .place_shared(size, var.align.min(1 << 16) as u32)
                    .ok_or_else(|| too_much("shared variables"))?;
                self.define(var.name, symbol);
            }
            (VarSpace::Global | VarSpace::Const, _) => {
                return Err(error(var.line, "a global variable in a body"));
            }
        }
        Ok(())
    }

    /// A place in shared memory: of a kernel its own, of other functions one that all have.
    fn place_shared(&mut self, size: u32, align: u32) -> Option<Symbol> {
        let used = if self.is_kernel {
            &mut self.shared_bytes
        } else {
            &mut self.unit.common_shared
        };
        let offset = used.next_multiple_of(align.max(1));
        let end = offset.checked_add(size)?;
        if end > self.unit.limits.shared_bytes {
            return None;
        }
        *used = end;
        Some(Symbol::Shared(offset))
    }

    fn register(&mut self, ty: Type) -> Result<Symbol, String> {
        if self.registers as usize > self.unit.limits.registers
            || self.predicates as usize > self.unit.limits.registers
        {
            return Err("more registers than allowed".into());
        }
        if ty == Type::Pred {
            self.predicates += 1;
            return Ok(Symbol::Pred(self.predicates - 1));
        }
        let slot = self.registers;
        self.registers += ty.bits().div_ceil(64);
        Ok(Symbol::Reg {
            slot,
            bits: ty.bits(),
        })
    }

    /// A register for intermediate results.
    pub(crate) fn temporary(&mut self) -> Result<Reg, String> {
        match self.register(Type::B(64))? {
            Symbol::Reg { slot, .. } => Ok(slot),
            _ => Err("no register".into()),
        }
    }

    /// Finds a name: in the braces around, then at module level.
    pub(crate) fn symbol(&mut self, name: &'t str) -> Result<Symbol, String> {
        let mut at = self.scope;
        loop {
            if let Some(&symbol) = self.scopes[at].names.get(name) {
                return Ok(symbol);
            }
            let stem = name.trim_end_matches(|c: char| c.is_ascii_digit());
            let number = name[stem.len()..].parse::<u32>().ok();
            let range = number.and_then(|number| {
                self.scopes[at]
                    .ranges
                    .iter()
                    .find_map(|&(prefix, ty, count)| {
                        // A prefix may itself end in digits: `%r1<5>` declares `%r10`.
                        let rest = name.strip_prefix(prefix)?;
                        let is_it = rest.parse::<u32>().ok()? < count
                            && (prefix == stem || number < u32::MAX);
                        is_it.then_some(ty)
                    })
            });
            if let Some(ty) = range {
                let symbol = self.register(ty)?;
                self.scopes[at].names.insert(name, symbol);
                return Ok(symbol);
            }
            if at == 0 {
                break;
            }
            at = self.scopes[at].parent;
        }
        match self.unit.names.get(name) {
            Some(&Name::Global(index)) => Ok(Symbol::Global(index)),
            Some(&Name::Texture(index)) => Ok(Symbol::Texture(index)),
            Some(&Name::Function(index)) => Ok(Symbol::Function(index)),
            Some(&Name::Shared(offset)) => Ok(Symbol::Shared(offset)),
            Some(&Name::DynamicShared) => Ok(Symbol::DynamicShared),
            Some(&Name::KernelShared { size, align }) => {
                let symbol = self
                    .place_shared(size, align)
                    .ok_or("too much shared memory")?;
                self.scopes[0].names.insert(name, symbol);
                Ok(symbol)
            }
            None => Err(format!("{name} is not declared")),
        }
    }

    /// The name and byte offset that `array[index]` stands for.
    pub(crate) fn element(&self, name: &'t str, index: u64) -> Result<Operand<'t>, String> {
        let mut at = self.scope;
        let bytes = loop {
            match self.scopes[at].elements.get(name) {
                Some(&bytes) => break Some(bytes),
                None if at == 0 => break self.unit.elements.get(name).copied(),
                None => at = self.scopes[at].parent,
            }
        };
        let bytes = bytes.ok_or_else(|| format!("{name} is no array"))?;
        let offset = index.wrapping_mul(u64::from(bytes)) as i64;
        Ok(Operand::Name(name, offset))
    }

    pub(crate) fn emit(&mut self, op: Op) {
        let code = &mut self.unit.code;
        code.insts.push(Inst {
            guard: self.guard,
            line: self.line,
            op,
        });
        code.spans.push(self.span);
    }

    pub(crate) fn set_guard(&mut self, guard: PredSrc) -> PredSrc {
        std::mem::replace(&mut self.guard, guard)
    }

    fn unsupported(&mut self, message: String) {
        let index = self.unit.code.messages.len() as u32;
        self.unit.code.messages.push(message);
        self.emit(Op::Unsupported(index));
    }

    fn take_guard(&mut self, guard: Option<(&'t str, bool)>) -> Result<(), ParseError> {
        self.guard = match guard {
            None => PredSrc::TRUE,
            Some((name, is_negated)) => match self.symbol(name) {
                Ok(Symbol::Pred(slot)) => PredSrc {
                    slot,
                    flip: if is_negated { u32::MAX } else { 0 },
                },
                _ => return Err(error(self.line, format!("{name} is no predicate"))),
            },
        };
        Ok(())
    }

    fn instruction(&mut self, instruction: &Instruction<'t>) -> Result<(), ParseError> {
        self.take_guard(instruction.guard)?;
        let (insts, fixups) = (self.unit.code.insts.len(), self.fixups.len());
        let lowered = Modifiers::new(&instruction.modifiers).and_then(|mut mods| {
            let op = self.dispatch(instruction, &mut mods)?;
            mods.finish()?;
            Ok(op)
        });
        match lowered {
            Ok(Op::Nop) => {}
            Ok(op) => self.emit(op),
            Err(reason) => {
                self.unit.code.insts.truncate(insts);
                self.unit.code.spans.truncate(insts);
                self.fixups.truncate(fixups);
                let mut name = instruction.opcode.to_owned();
                for word in &instruction.modifiers {
                    name.push('.');
                    name.push_str(word);
                }
                let name = crate::text::lex::shorten(&name).to_owned();
                let reason = crate::text::lex::shorten(&reason).to_owned();
                self.unsupported(format!("instruction {name} is not supported: {reason}"));
            }
        }
        Ok(())
    }

    /// Remembers that the next instruction emitted branches to a label.
    pub(crate) fn branch_to(&mut self, entry: usize, label: &'t str) {
        let at = self.unit.code.insts.len();
        self.fixups.push((at, entry, self.scope, label));
    }

    /// The labels of a `.branchtargets` list.
    pub(crate) fn targets(&self, name: &str) -> Option<Vec<&'t str>> {
        let mut at = self.scope;
        loop {
            if let Some(labels) = self.scopes[at].targets.get(name) {
                return Some(labels.clone());
            }
            if at == 0 {
                return None;
            }
            at = self.scopes[at].parent;
        }
    }

    fn resolve_branches(&mut self) -> Result<(), ParseError> {
        for (at, entry, scope, label) in std::mem::take(&mut self.fixups) {
            let mut scope = scope;
            let target = loop {
                if let Some(&target) = self.scopes[scope].labels.get(label) {
                    break target;
                }
                if scope == 0 {
                    let line = self.unit.code.insts[at].line;
                    return Err(error(line, format!("label {label} is not defined")));
                }
                scope = self.scopes[scope].parent;
            };
            match &mut self.unit.code.insts[at].op {
                Op::Branch { to } => *to = target,
                Op::BranchIndexed { to, .. } => to[entry] = target,
                _ => {}
            }
        }
        Ok(())
    }

    /// A constant as an operand.
    pub(crate) fn value(&mut self, value: u64) -> Result<Src, String> {
        self.unit
            .constant(Constant::Value(value))
            .map(Src::constant)
    }

    /// An operand to read, as a value of a type.
    pub(crate) fn src(&mut self, operand: &Operand<'t>, ty: Type) -> Result<Src, String> {
        match operand {
            Operand::Int(value) => {
                let value = match ty {
                    // A plain integer where a float is wanted is a value, not bits.
                    Type::F(32) => u64::from((*value as i64 as f32).to_bits()),
                    Type::F(64) => (*value as i64 as f64).to_bits(),
                    _ => value & crate::num::int::ones(ty.bits().max(8)),
                };
                self.value(value)
            }
            Operand::F32(bits) if ty == Type::F(64) => {
                self.value(f64::from(f32::from_bits(*bits)).to_bits())
            }
            Operand::F32(bits) => self.value(u64::from(*bits)),
            Operand::F64(bits) if ty.bits() == 32 => {
                self.value(u64::from((f64::from_bits(*bits) as f32).to_bits()))
            }
            Operand::F64(bits) => self.value(*bits),
            Operand::Name(name, addend) => self.named_src(name, *addend),
            Operand::Field(..) => {
                let what = super::simple::special(operand).ok_or("no such register")?;
                let d = self.temporary()?;
                self.emit(Op::Special { d, what, add: 0 });
                Ok(Src::reg(d))
            }
            Operand::Sink => self.value(0),
            Operand::Element(name, index) => {
                let operand = self.element(name, *index)?;
                self.src(&operand, ty)
            }
            _ => Err("operand of another kind expected".into()),
        }
    }

    fn named_src(&mut self, name: &'t str, addend: i64) -> Result<Src, String> {
        if name.starts_with('%')
            && let Some(what) = super::simple::special(&Operand::Name(name, 0))
        {
            let d = self.temporary()?;
            self.emit(Op::Special { d, what, add: 0 });
            return Ok(Src::reg(d));
        }
        if name == "WARP_SZ" {
            return self.value(32);
        }
        match self.symbol(name)? {
            Symbol::Reg { slot, .. } if addend == 0 => Ok(Src::reg(slot)),
            Symbol::Global(index) => self
                .unit
                .constant(Constant::Global(index, addend))
                .map(Src::constant),
            Symbol::Texture(index) => self
                .unit
                .constant(Constant::Texture(index))
                .map(Src::constant),
            Symbol::Function(index) => self.value(FUNCTION_BASE + 16 * u64::from(index)),
            Symbol::Shared(offset) | Symbol::Param(offset) => {
                self.value(u64::from(offset).wrapping_add_signed(addend))
            }
            Symbol::DynamicShared => self.special(Special::DynamicSharedBase, addend as u64),
            Symbol::Frame(offset) => self.special(
                Special::FrameBase,
                u64::from(offset).wrapping_add_signed(addend),
            ),
            Symbol::Reg { .. } => Err("a register with an offset".into()),
            Symbol::Pred(_) => Err(format!("{name} is a predicate")),
        }
    }

    fn special(&mut self, what: Special, add: u64) -> Result<Src, String> {
        let d = self.temporary()?;
        // An address does not depend on the guard; computing it always costs nothing more.
        let guard = std::mem::replace(&mut self.guard, PredSrc::TRUE);
        self.emit(Op::Special { d, what, add });
        self.guard = guard;
        Ok(Src::reg(d))
    }

    /// A register to write, and its width in bits.
    pub(crate) fn dst(&mut self, operand: &Operand<'t>) -> Result<(Reg, u32), String> {
        match operand {
            Operand::Name(name, 0) => match self.symbol(name)? {
                Symbol::Reg { slot, bits } => Ok((slot, bits)),
                _ => Err(format!("{name} is no register")),
            },
            Operand::Sink => Ok((REG_SINK, 64)),
            _ => Err("a register expected".into()),
        }
    }

    /// A predicate to write.
    pub(crate) fn pred_dst(&mut self, operand: &Operand<'t>) -> Result<Pred, String> {
        match operand {
            Operand::Name(name, 0) => match self.symbol(name)? {
                Symbol::Pred(slot) => Ok(slot),
                _ => Err(format!("{name} is no predicate")),
            },
            Operand::Sink => Ok(PRED_SINK),
            _ => Err("a predicate expected".into()),
        }
    }

    /// A predicate to read.
    pub(crate) fn pred_src(&mut self, operand: &Operand<'t>) -> Result<PredSrc, String> {
        let (name, flip) = match operand {
            Operand::Name(name, 0) => (name, 0),
            Operand::Not(name) => (name, u32::MAX),
            Operand::Int(value) => {
                return Ok(PredSrc {
                    slot: FALSE,
                    flip: if *value != 0 { u32::MAX } else { 0 },
                });
            }
            _ => return Err("a predicate expected".into()),
        };
        match self.symbol(name)? {
            Symbol::Pred(slot) => Ok(PredSrc { slot, flip }),
            _ => Err(format!("{name} is no predicate")),
        }
    }

    /// Whether an operand names a predicate.
    pub(crate) fn is_pred(&mut self, operand: &Operand<'t>) -> bool {
        match operand {
            Operand::Name(name, 0) | Operand::Not(name) => {
                matches!(self.symbol(name), Ok(Symbol::Pred(_)))
            }
            _ => false,
        }
    }

    /// The three operands of an instruction that has fewer: the rest are zero.
    pub(crate) fn sources(
        &mut self,
        operands: &[Operand<'t>],
        types: &[Type],
    ) -> Result<[Src; 3], String> {
        let zero = self.value(0)?;
        if operands.len() != types.len() || types.len() > 3 {
            return Err(format!("{} operands expected", types.len() + 1));
        }
        let mut sources = [zero; 3];
        for (index, (operand, &ty)) in operands.iter().zip(types).enumerate() {
            sources[index] = self.src(operand, ty)?;
        }
        Ok(sources)
    }
}
