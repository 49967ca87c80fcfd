//! Random kernels, straight-line and branching, against the evaluator in `reference`.
//!
//! Every thread starts from inputs of its own, with many special values among them; all registers
//! are stored at the end and compared bit for bit.

mod reference;
mod support;

use std::fmt::Write as _;

use reference::{Class, Form, forms};
use support::{Program, Random, Shape};

const CLASSES: [(Class, &str, &str); 6] = [
    (Class::R16, "%rs", "b16"),
    (Class::R32, "%r", "b32"),
    (Class::R64, "%rd", "b64"),
    (Class::F32, "%f", "f32"),
    (Class::F64, "%fd", "f64"),
    (Class::P, "%p", "pred"),
];
/// Registers of each class that a kernel computes with.
const COUNT: usize = 6;
/// Bytes that a thread's registers take in memory.
const STATE: usize = COUNT * 8 * 6;

/// A piece of a kernel.
enum Node {
    Op {
        form: usize,
        to: usize,
        from: Vec<Operand>,
    },
    If {
        p: usize,
        then: Vec<Node>,
        other: Vec<Node>,
    },
    /// Repeats `low bits of a register` times.
    Loop {
        r: usize,
        most: u64,
        body: Vec<Node>,
    },
}

enum Operand {
    Register(usize),
    Literal(u64),
}

type State = [[u64; COUNT]; 6];

fn class_index(class: Class) -> usize {
    CLASSES
        .iter()
        .position(|(known, ..)| *known == class)
        .expect("all are listed")
}

struct Generator<'f> {
    random: Random,
    forms: &'f [Form],
    used: &'f mut Vec<u32>,
}

impl Generator<'_> {
    fn nodes(&mut self, count: usize, depth: u32, branches: bool) -> Vec<Node> {
        (0..count)
            .map(|_| {
                let kind = self.random.below(10);
                match kind {
                    0 if branches && depth < 3 => Node::If {
                        p: self.random.below(COUNT as u64) as usize,
                        then: self.nodes(count / 3 + 1, depth + 1, true),
                        other: self.nodes(count / 4, depth + 1, true),
                    },
                    1 if branches && depth < 2 => Node::Loop {
                        r: self.random.below(COUNT as u64) as usize,
                        most: [1, 3, 7][self.random.below(3) as usize],
                        body: self.nodes(count / 3 + 1, depth + 1, true),
                    },
                    _ => self.op(),
                }
            })
            .collect()
    }

    fn op(&mut self) -> Node {
        // Forms that were used least come first, so that all are used.
        let least = *self.used.iter().min().expect("there are forms");
        let rare: Vec<usize> = (0..self.forms.len())
            .filter(|&i| self.used[i] == least)
            .collect();
        let form = rare[self.random.below(rare.len() as u64) as usize];
        self.used[form] += 1;
        let from = self.forms[form].from.iter().map(|class| {
            let is_number = !matches!(class, Class::P | Class::R16);
            if is_number && self.random.below(8) == 0 {
                Operand::Literal(special(&mut self.random, *class))
            } else {
                Operand::Register(self.random.below(COUNT as u64) as usize)
            }
        });
        let from = from.collect();
        Node::Op {
            form,
            to: self.random.below(COUNT as u64) as usize,
            from,
        }
    }
}

/// A value with a good chance to be at an edge.
fn special(random: &mut Random, class: Class) -> u64 {
    let any = random.next();
    let kind = random.below(6);
    let value = match (class, kind) {
        (Class::F32, 0) => [
            0,
            1 << 31,
            0x7f80_0000,
            0xff80_0000,
            0x7fc0_0000,
            1,
            0x7f_ffff,
            0x3f80_0000,
        ][any as usize % 8],
        (Class::F32, 1..4) => u64::from(((any >> 20 & 0xffff) as f32 / 256.0 - 99.5).to_bits()),
        (Class::F64, 0) => [
            0,
            1 << 63,
            0x7ff0 << 48,
            0xfff0 << 48,
            0x7ff8 << 48,
            1,
            0x3ff0 << 48,
            0x7fef << 48,
        ][any as usize % 8],
        (Class::F64, 1..4) => ((any >> 20 & 0xf_ffff) as f64 / 4096.0 - 99.5).to_bits(),
        (Class::R16, 1..3) => any & 0x3fff | any >> 20 & 0x8000,
        (_, 0) => [0, 1, u64::MAX, 1 << 31, 1 << 63, 0x7fff_ffff, 31, 32][any as usize % 8],
        (_, 1) => any & 63,
        (_, 2) => !(any & 63),
        _ => any,
    };
    match class.bits() {
        64 => value,
        bits => value & ((1 << bits) - 1),
    }
}

fn literal(value: u64, class: Class) -> String {
    match class {
        Class::F32 => format!("0f{value:08X}"),
        Class::F64 => format!("0d{value:016X}"),
        _ => format!("{value}"),
    }
}

fn emit(nodes: &[Node], forms: &[Form], label: &mut u32, out: &mut String) {
    for node in nodes {
        match node {
            Node::Op { form, to, from } => {
                let form = &forms[*form];
                let name = |class: Class, index: usize| {
                    format!("{}{index}", CLASSES[class_index(class)].1)
                };
                let mut text = form.text.replace("{d}", &name(form.to, *to));
                // The destination may be written before the last source is read.
                if text.matches(';').count() > 1 {
                    let temporary = format!("{}9", CLASSES[class_index(form.to)].1);
                    text = form.text.replace("{d}", &temporary);
                    write!(
                        text,
                        " mov.b{} {}, {temporary};",
                        form.to.bits(),
                        name(form.to, *to)
                    )
                    .expect("text");
                }
                for ((place, operand), class) in
                    ["{a}", "{b}", "{c}"].iter().zip(from).zip(&form.from)
                {
                    let operand = match operand {
                        Operand::Register(index) => name(*class, *index),
                        Operand::Literal(value) => literal(*value, *class),
                    };
                    text = text.replace(place, &operand);
                }
                writeln!(out, "  {text}").expect("text");
            }
            Node::If { p, then, other } => {
                let at = *label;
                *label += 1;
                writeln!(out, "  @!%p{p} bra $E{at};").expect("text");
                emit(then, forms, label, out);
                writeln!(out, "  bra.uni $J{at};\n$E{at}:").expect("text");
                emit(other, forms, label, out);
                writeln!(out, "$J{at}:").expect("text");
            }
            Node::Loop { r, most, body } => {
                let at = *label;
                *label += 1;
                writeln!(
                    out,
                    "  {{ .reg .b32 %n; .reg .pred %q;\n  and.b32 %n, %r{r}, {most};\n$L{at}:"
                )
                .expect("text");
                writeln!(out, "  setp.eq.u32 %q, %n, 0;\n  @%q bra $X{at};").expect("text");
                emit(body, forms, label, out);
                writeln!(out, "  sub.u32 %n, %n, 1;\n  bra.uni $L{at};\n$X{at}: }}").expect("text");
            }
        }
    }
}

fn evaluate(nodes: &[Node], forms: &[Form], state: &mut State) {
    for node in nodes {
        match node {
            Node::Op { form, to, from } => {
                let form = &forms[*form];
                let values: Vec<u64> = from
                    .iter()
                    .zip(&form.from)
                    .map(|(operand, class)| match operand {
                        Operand::Register(index) => state[class_index(*class)][*index],
                        Operand::Literal(value) => *value,
                    })
                    .collect();
                state[class_index(form.to)][*to] = (form.eval)(&values);
            }
            Node::If { p, then, other } => {
                let taken = state[5][*p] != 0;
                evaluate(if taken { then } else { other }, forms, state);
            }
            Node::Loop { r, most, body } => {
                for _ in 0..state[1][*r] & most {
                    evaluate(body, forms, state);
                }
            }
        }
    }
}

fn kernel(nodes: &[Node], forms: &[Form]) -> String {
    let mut out = String::from(
        ".version 8.3\n.target sm_90\n.address_size 64\n.visible .entry k(.param .u64 state)\n{\n",
    );
    for (_, name, ty) in CLASSES {
        writeln!(out, "  .reg .{ty} {name}<10>;").expect("text");
    }
    out.push_str("  .reg .b64 %base; .reg .b32 %t, %u; .reg .b32 %m<3>;\n");
    out.push_str("  ld.param.u64 %base, [state];\n  cvta.to.global.u64 %base, %base;\n");
    out.push_str("  mov.u32 %m0, %ctaid.x; mov.u32 %m1, %ntid.x; mov.u32 %m2, %tid.x;\n");
    out.push_str("  mad.lo.s32 %t, %m0, %m1, %m2;\n");
    writeln!(out, "  mad.wide.u32 %base, %t, {STATE}, %base;").expect("text");
    for is_store in [false, true] {
        if is_store {
            emit(nodes, forms, &mut 0, &mut out);
        }
        for (class, (kind, name, ty)) in CLASSES.iter().enumerate() {
            for index in 0..COUNT {
                let at = (class * COUNT + index) * 8;
                let line = match (kind, is_store) {
                    (Class::P, false) => {
                        format!("ld.global.u32 %u, [%base+{at}]; setp.ne.u32 {name}{index}, %u, 0;")
                    }
                    (Class::P, true) => {
                        format!("selp.u32 %u, 1, 0, {name}{index}; st.global.u32 [%base+{at}], %u;")
                    }
                    (_, false) => format!("ld.global.{ty} {name}{index}, [%base+{at}];"),
                    (_, true) => format!("st.global.{ty} [%base+{at}], {name}{index};"),
                };
                writeln!(out, "  {line}").expect("text");
            }
        }
    }
    out.push_str("  ret;\n}\n");
    out
}

fn check(seed: u64, threads: u32, nodes: &[Node], forms: &[Form]) -> Result<(), String> {
    let text = kernel(nodes, forms);
    let mut random = Random(seed ^ 0x5eed);
    let states: Vec<State> = (0..threads)
        .map(|_| {
            std::array::from_fn(|class| {
                std::array::from_fn(|_| special(&mut random, CLASSES[class].0))
            })
        })
        .collect();
    let program = Program::new(&text);
    let missing: Vec<_> = program.linked.module().unsupported().collect();
    assert!(missing.is_empty(), "{missing:?}");
    let flat: Vec<u64> = states.iter().flatten().flatten().copied().collect();
    let address = program.arena.put(&flat);
    program.ok("k", &Shape::new(2, threads / 2).arg(address));
    let got = program.arena.get::<u64>(address, flat.len());
    for (thread, (state, got)) in states.iter().zip(got.chunks(STATE / 8)).enumerate() {
        let mut want = *state;
        evaluate(nodes, forms, &mut want);
        for (index, (want, got)) in want.iter().flatten().zip(got).enumerate() {
            if want != got {
                let name = format!("{}{}", CLASSES[index / COUNT].1, index % COUNT);
                return Err(format!(
                    "seed {seed}, thread {thread}, {name}: want {want:#x}, got {got:#x}, from {state:x?}\n{text}",
                ));
            }
        }
    }
    Ok(())
}

fn run(kernels: u64, branches: bool) -> usize {
    let forms = forms();
    let mut used = vec![0; forms.len()];
    for seed in 0..kernels {
        let mut generator = Generator {
            random: Random(seed * 77 + u64::from(branches)),
            forms: &forms,
            used: &mut used,
        };
        let count = if branches { 9 } else { 60 };
        let nodes = generator.nodes(count, 0, branches);
        check(seed, if branches { 90 } else { 64 }, &nodes, &forms)
            .unwrap_or_else(|e| panic!("{e}"));
    }
    let times = *used.iter().min().expect("there are forms");
    println!(
        "{kernels} kernels, {} forms, each at least {times} times",
        forms.len()
    );
    times as usize
}

// Goal: each form is right for any operands. Method: one instruction after another, all forms.
#[test]
fn straight_line_kernels_compute_what_the_reference_computes() {
    assert!(run(150, false) >= 10, "every form is used");
}

// Goal: branches and loops that threads take differently. Method: nested, with random conditions.
#[test]
fn branching_kernels_compute_what_the_reference_computes() {
    assert!(run(150, true) >= 3, "every form is used");
}

// Goal: each form by itself, so that a failure names it. Method: a kernel for each, 96 threads.
#[test]
fn every_form_alone() {
    let forms = forms();
    let mut wrong = Vec::new();
    for form in 0..forms.len() {
        let from = (0..forms[form].from.len()).map(Operand::Register).collect();
        let nodes = [Node::Op { form, to: 5, from }];
        if let Err(error) = check(form as u64, 96, &nodes, &forms) {
            let line = error.lines().next().unwrap_or_default();
            wrong.push(format!("{}: {line}", forms[form].text));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
