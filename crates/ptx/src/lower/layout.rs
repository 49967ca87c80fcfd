//! Where variables lie: global memory, shared memory, and the stack of a thread.

use std::collections::HashMap;

use super::{Name, Unit, error, initial};
use crate::text::ast::{Kind, Operand, Text, Var, VarSpace};
use crate::{Global, ParseError, Space};

/// The module's variables in global and constant memory.
pub(crate) fn globals<'t>(
    parsed: &Text<'t>,
    unit: &mut Unit<'t>,
) -> Result<Vec<Global>, ParseError> {
    let mut globals: Vec<Global> = Vec::new();
    let mut total = 0u64;
    let mut defined: Vec<(usize, &Var<'t>)> = Vec::new();
    for (index, &(name, _)) in parsed.textures.iter().enumerate() {
        unit.names.insert(name, Name::Texture(index as u32));
    }
    for var in &parsed.vars {
        let space = match var.space {
            VarSpace::Global => Space::Global,
            VarSpace::Const => Space::Const,
            VarSpace::Shared => continue,
            _ => {
                return Err(error(
                    var.line,
                    format!("{} cannot be declared here", var.name),
                ));
            }
        };
        total = total.saturating_add(var.size);
        if total > unit.limits.global_bytes {
            return Err(error(var.line, "variables take more memory than allowed"));
        }
        let global = Global {
            name: var.name.to_owned(),
            space,
            size: var.size,
            align: var.align,
            is_extern: var.is_extern,
            init: Vec::new(),
            relocations: Vec::new(),
        };
        // A declaration may come before the definition.
        let index = match unit.names.get(var.name) {
            Some(&Name::Global(index)) if globals[index as usize].is_extern => {
                globals[index as usize] = global;
                index as usize
            }
            Some(&Name::Global(index)) if var.is_extern => index as usize,
            Some(_) => return Err(error(var.line, format!("{} is declared twice", var.name))),
            None => {
                globals.push(global);
                globals.len() - 1
            }
        };
        unit.names.insert(var.name, Name::Global(index as u32));
        defined.push((index, var));
    }
    initialise(parsed, unit, &mut globals, &defined)?;
    Ok(globals)
}

/// Fills in initial values. Functions that tables of addresses name get their numbers when they are
/// declared, after this; so their names are known here for a while, with the numbers to come.
fn initialise<'t>(
    parsed: &Text<'t>,
    unit: &mut Unit<'t>,
    globals: &mut [Global],
    defined: &[(usize, &Var<'t>)],
) -> Result<(), ParseError> {
    let mut waiting = HashMap::new();
    for function in &parsed.functions {
        let next = waiting.len() as u32;
        waiting.entry(function.name).or_insert(next);
    }
    let hidden: Vec<&str> = waiting
        .iter()
        .filter(|(name, _)| !unit.names.contains_key(**name))
        .map(|(name, _)| *name)
        .collect();
    for name in &hidden {
        unit.names.insert(name, Name::Function(waiting[name]));
    }
    for &(index, var) in defined {
        initial(var, unit, &mut globals[index])?;
    }
    for name in hidden {
        unit.names.remove(name);
    }
    Ok(())
}

/// Places the module's shared variables. One that a single kernel uses is that kernel's own, so
/// that a module with many kernels does not charge each for all.
pub(crate) fn shared<'t>(parsed: &Text<'t>, unit: &mut Unit<'t>) -> Result<(), ParseError> {
    let vars: Vec<&Var<'t>> = parsed
        .vars
        .iter()
        .filter(|var| var.space == VarSpace::Shared)
        .collect();
    if vars.is_empty() {
        return Ok(());
    }
    let users = users(parsed, &vars);
    for var in vars {
        if var.is_extern || var.size == 0 {
            unit.names.insert(var.name, Name::DynamicShared);
            continue;
        }
        let size = u32::try_from(var.size)
            .ok()
            .filter(|size| *size <= unit.limits.shared_bytes)
            .ok_or_else(|| error(var.line, "shared variables take more memory than allowed"))?;
        let align = var.align.min(1 << 16) as u32;
        let name = match users.get(var.name) {
            None => continue,
            Some(Users::OneKernel(_)) => Name::KernelShared { size, align },
            Some(Users::Several) => {
                let offset = unit.common_shared.next_multiple_of(align);
                unit.common_shared = offset.saturating_add(size);
                if unit.common_shared > unit.limits.shared_bytes {
                    return Err(error(
                        var.line,
                        "shared variables take more memory than allowed",
                    ));
                }
                Name::Shared(offset)
            }
        };
        unit.names.insert(var.name, name);
    }
    Ok(())
}

enum Users {
    OneKernel(usize),
    Several,
}

fn users<'t>(parsed: &Text<'t>, vars: &[&Var<'t>]) -> HashMap<&'t str, Users> {
    let mut users: HashMap<&'t str, Users> = HashMap::new();
    let names: std::collections::HashSet<&str> = vars.iter().map(|var| var.name).collect();
    for (index, function) in parsed.functions.iter().enumerate() {
        let mut visit = |name: &'t str| {
            if names.contains(name) {
                let user = if function.is_kernel {
                    Users::OneKernel(index)
                } else {
                    Users::Several
                };
                users
                    .entry(name)
                    .and_modify(|known| {
                        if !matches!(known, Users::OneKernel(other) if *other == index) {
                            *known = Users::Several;
                        }
                    })
                    .or_insert(user);
            }
        };
        for statement in function.body.iter().flatten() {
            if let Kind::Instruction(instruction) = &statement.kind {
                instruction
                    .operands
                    .iter()
                    .for_each(|operand| names_in(operand, &mut visit));
            }
        }
    }
    users
}

fn names_in<'t>(operand: &Operand<'t>, visit: &mut impl FnMut(&'t str)) {
    match operand {
        Operand::Name(name, _) => visit(name),
        Operand::Vector(list) | Operand::Bracket(list) | Operand::List(list) => {
            list.iter().for_each(|operand| names_in(operand, visit));
        }
        _ => {}
    }
}

/// Bytes of stack that each function needs with all it calls. Recursion and indirect calls take
/// what the limits allow.
pub(crate) fn stacks(unit: &Unit<'_>) -> Vec<u32> {
    let count = unit.code.functions.len();
    let mut depth: Vec<Option<u32>> = vec![None; count];
    // 0 new, 1 being visited, 2 done: a post-order walk without recursion of our own.
    let mut state = vec![0u8; count];
    for root in 0..count {
        let mut path = vec![root];
        while let Some(&at) = path.last() {
            if state[at] == 2 {
                path.pop();
                continue;
            }
            let is_first = state[at] == 0;
            state[at] = 1;
            let callees = &unit.calls[at];
            if is_first {
                let new = callees
                    .iter()
                    .filter(|&&to| to != u32::MAX && state[to as usize] == 0);
                path.extend(new.map(|&to| to as usize));
                if path.last() != Some(&at) {
                    continue;
                }
            }
            let own = unit.code.functions[at]
                .frame_bytes
                .next_multiple_of(16)
                .max(16);
            let below = callees.iter().fold(0, |most, &to| {
                let known = depth.get(to as usize).copied().flatten();
                most.max(known.unwrap_or(unit.limits.stack_bytes))
            });
            depth[at] = Some(
                own.saturating_add(below)
                    .min(unit.limits.stack_bytes.max(own)),
            );
            state[at] = 2;
            path.pop();
        }
    }
    depth.into_iter().map(|depth| depth.unwrap_or(0)).collect()
}
