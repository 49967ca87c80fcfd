//! From statements to instructions: names become slots, modifiers become functions.
//!
//! [`module`] lays out variables and functions; [`function`] lowers bodies, one statement at a
//! time, with a file for each family of instructions. What cannot be lowered becomes an
//! instruction that fails with a message when it runs.

mod access;
mod collective;
mod compare;
mod control;
mod convert;
mod float;
mod function;
mod integer;
mod lane;
mod layout;
mod matrix;
mod modifiers;
mod simple;
mod texture;

use std::collections::HashMap;

use crate::inst::{Code, Constant, Formal, FunctionCode};
use crate::text::ast::{Function, Text, Var};
use crate::{Global, Kernel, Limits, Module, Param, ParseError, Texref};

/// What names at module level stand for, and what all functions share.
pub(crate) struct Unit<'t> {
    pub(crate) limits: Limits,
    pub(crate) names: HashMap<&'t str, Name>,
    /// Bytes of an element of each array.
    pub(crate) elements: HashMap<&'t str, u32>,
    pub(crate) code: Code,
    pub(crate) constants: HashMap<Constant, u32>,
    /// Shared memory that functions other than kernels use.
    pub(crate) common_shared: u32,
    /// Calls by caller, for the depth of the stack; `u32::MAX` stands for an unknown callee.
    pub(crate) calls: Vec<Vec<u32>>,
}

/// A name at module level.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Name {
    Global(u32),
    Texture(u32),
    Function(u32),
    Shared(u32),
    DynamicShared,
    /// A shared variable that one kernel uses alone; it is placed there.
    KernelShared {
        size: u32,
        align: u32,
    },
}

/// Parses and decodes a module.
pub(crate) fn module(text: &str, limits: &Limits) -> Result<Module, ParseError> {
    if text.len() > limits.text_bytes.min(u32::MAX as usize) {
        return Err(error(1, "the text is longer than allowed"));
    }
    let parsed = crate::text::parse::parse(text, limits)?;
    let mut unit = Unit {
        limits: limits.clone(),
        names: HashMap::new(),
        elements: parsed
            .vars
            .iter()
            .map(|var| (var.name, var.ty.bytes()))
            .collect(),
        code: Code::default(),
        constants: HashMap::new(),
        common_shared: 0,
        calls: Vec::new(),
    };
    unit.code.text = text.to_owned();
    unit.code.files = parsed
        .files
        .iter()
        .map(|&(n, name)| (n, name.to_owned()))
        .collect();
    let globals = layout::globals(&parsed, &mut unit)?;
    let order: Vec<(u32, &Function<'_>)> = declare(&parsed, &mut unit)?;
    layout::shared(&parsed, &mut unit)?;
    let mut kernels = Vec::new();
    // Functions before kernels: their shared variables lie below those of every kernel.
    let (first, then): (Vec<_>, Vec<_>) = order.iter().partition(|(_, f)| !f.is_kernel);
    for (index, function) in first.into_iter().chain(then) {
        let own = function::lower(&mut unit, index, function)?;
        if function.is_kernel {
            kernels.push(kernel(&unit, index, function, own));
        }
    }
    let stacks = layout::stacks(&unit);
    for kernel in &mut kernels {
        kernel.local_bytes = stacks[kernel.function as usize];
    }
    Ok(Module {
        kernels,
        globals,
        textures: parsed
            .textures
            .iter()
            .map(|&(name, kind)| Texref {
                name: name.to_owned(),
                kind,
            })
            .collect(),
        code: unit.code,
        version: parsed.version,
        target: parsed.target.to_owned(),
    })
}

pub(crate) fn error(line: u32, what: impl Into<String>) -> ParseError {
    ParseError {
        line,
        column: 1,
        what: what.into(),
    }
}

/// Gives every function a number; returns those with bodies.
fn declare<'p, 't>(
    parsed: &'p Text<'t>,
    unit: &mut Unit<'t>,
) -> Result<Vec<(u32, &'p Function<'t>)>, ParseError> {
    let mut order = Vec::new();
    for function in &parsed.functions {
        let index = match unit.names.get(function.name) {
            Some(Name::Function(index)) => *index,
            Some(_) => {
                return Err(error(
                    function.line,
                    format!("{} is declared twice", function.name),
                ));
            }
            None => {
                let index = unit.code.functions.len() as u32;
                unit.names.insert(function.name, Name::Function(index));
                unit.code.functions.push(FunctionCode {
                    name: function.name.to_owned(),
                    ..FunctionCode::default()
                });
                unit.calls.push(Vec::new());
                index
            }
        };
        if function.body.is_some() {
            let known = &mut unit.code.functions[index as usize];
            if known.is_defined {
                return Err(error(
                    function.line,
                    format!("{} is defined twice", function.name),
                ));
            }
            known.is_defined = true;
            signature(known, function);
            order.push((index, function));
        } else if !unit.code.functions[index as usize].is_defined {
            signature(&mut unit.code.functions[index as usize], function);
        }
    }
    for &(name, of) in &parsed.aliases {
        if let Some(&target) = unit.names.get(of) {
            unit.names.insert(name, target);
        }
    }
    Ok(order)
}

/// Places results and parameters at the begin of the frame.
fn signature(code: &mut FunctionCode, function: &Function<'_>) {
    if function.is_kernel {
        return;
    }
    let mut at = 0u32;
    let mut registers = crate::inst::REG_SINK + 1;
    let mut place = |var: &Var<'_>| {
        let size = var.size.min(1 << 20) as u32;
        if var.space == crate::text::ast::VarSpace::Reg {
            let slot = registers;
            registers += var.ty.bits().div_ceil(64);
            return Formal::Reg {
                slot,
                size: var.ty.bytes(),
            };
        }
        let offset = at.next_multiple_of(var.align.clamp(1, 128) as u32);
        at = offset.saturating_add(size).min(1 << 24);
        Formal::Frame { offset, size }
    };
    code.returns = function.returns.iter().map(&mut place).collect();
    code.params = function.params.iter().map(&mut place).collect();
    code.frame_bytes = at;
    code.registers = registers;
}

fn kernel(unit: &Unit<'_>, index: u32, function: &Function<'_>, own: function::Own) -> Kernel {
    let extent = function.required_block.or(function.max_threads);
    let threads = extent.map_or(1024, |extent| {
        extent
            .iter()
            .fold(1u64, |all, &n| all.saturating_mul(u64::from(n)))
            .clamp(1, 1024)
    });
    let (params, param_bytes) = params(function);
    Kernel {
        name: function.name.to_owned(),
        params,
        param_bytes,
        static_shared_bytes: own.shared_bytes,
        local_bytes: 0,
        max_threads: threads as u32,
        required_block: function.required_block,
        registers: unit.code.functions[index as usize].registers.clamp(8, 255),
        function: index,
    }
}

/// The layout of a kernel's parameter buffer.
pub(crate) fn params(function: &Function<'_>) -> (Vec<Param>, u32) {
    let mut at = 0u32;
    let params = function
        .params
        .iter()
        .map(|var| {
            let (size, align) = (
                var.size.min(32 << 10) as u32,
                var.align.clamp(1, 128) as u32,
            );
            let offset = at.next_multiple_of(align);
            at = offset.saturating_add(size).min(1 << 24);
            Param {
                offset,
                size,
                align,
            }
        })
        .collect();
    (params, at)
}

impl Unit<'_> {
    /// The index of a constant in the pool.
    pub(crate) fn constant(&mut self, constant: Constant) -> Result<u32, String> {
        if let Some(&index) = self.constants.get(&constant) {
            return Ok(index);
        }
        if self.constants.len() >= self.limits.constants {
            return Err("too many different constants".into());
        }
        let index = self.code.constants.len() as u32;
        self.code.constants.push(constant);
        self.constants.insert(constant, index);
        Ok(index)
    }
}

/// Bytes of a global's initial value.
fn initial(var: &Var<'_>, unit: &Unit<'_>, global: &mut Global) -> Result<(), ParseError> {
    use crate::text::ast::Init;
    for &(offset, item) in &var.init {
        let (value, len) = match item {
            Init::Bits { value, len } => (value, len),
            Init::Address {
                name,
                addend,
                len,
                shift,
            } => match unit.names.get(name) {
                Some(&Name::Global(index)) => {
                    global.relocations.push(crate::Relocation {
                        offset,
                        len: len.min(8),
                        shift,
                        global: index as usize,
                        addend,
                    });
                    (0, len)
                }
                Some(&Name::Function(index)) => {
                    let address = crate::inst::FUNCTION_BASE + 16 * u64::from(index);
                    (address.wrapping_add_signed(addend) >> shift, len)
                }
                _ => return Err(error(var.line, format!("{name} has no address"))),
            },
        };
        let (at, len) = (offset as usize, len.min(8) as usize);
        let end = at + len;
        if end as u64 > global.size {
            return Err(error(
                var.line,
                "more initial values than the variable holds",
            ));
        }
        if global.init.len() < end {
            global.init.resize(end, 0);
        }
        global.init[at..end].copy_from_slice(&value.to_le_bytes()[..len]);
    }
    Ok(())
}
