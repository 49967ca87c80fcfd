//! What instructions compute, written apart from the interpreter: integers in wide arithmetic or
//! bit by bit, floating point by `rustc_apfloat`, LLVM's softfloat.

#![allow(unreachable_pub)]

use rustc_apfloat::ieee::{BFloat, Double, Float8E4M3FN, Float8E5M2, Half, Quad, Single};
use rustc_apfloat::{Float, FloatConvert, Round, Status};

/// The class of a register.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    R16,
    R32,
    R64,
    F32,
    F64,
    P,
}

use Class::{F32, F64, P, R16, R32, R64};

impl Class {
    pub fn bits(self) -> u32 {
        match self {
            R16 => 16,
            R32 | F32 => 32,
            R64 | F64 => 64,
            P => 1,
        }
    }
}

/// One form of an instruction.
pub struct Form {
    /// With `{d}`, `{a}`, `{b}`, `{c}` for operands.
    pub text: String,
    pub to: Class,
    pub from: Vec<Class>,
    #[allow(clippy::type_complexity)]
    pub eval: Box<dyn Fn(&[u64]) -> u64>,
}

fn mask(value: i128, bits: u32) -> u64 {
    (value as u128 & ((1u128 << bits) - 1)) as u64
}

fn read(value: u64, bits: u32, signed: bool) -> i128 {
    let value = i128::from(value) & ((1i128 << bits) - 1);
    if signed && value >> (bits - 1) & 1 != 0 {
        value - (1i128 << bits)
    } else {
        value
    }
}

fn clamp(value: i128, bits: u32, signed: bool) -> i128 {
    let (low, high) = if signed {
        (-(1i128 << (bits - 1)), (1i128 << (bits - 1)) - 1)
    } else {
        (0, (1i128 << bits) - 1)
    };
    value.max(low).min(high)
}

fn integer_class(bits: u32) -> Class {
    match bits {
        16 => R16,
        32 => R32,
        _ => R64,
    }
}

/// All forms.
pub fn forms() -> Vec<Form> {
    let mut forms = Vec::new();
    integers(&mut forms);
    packed(&mut forms);
    products(&mut forms);
    bits(&mut forms);
    floats(&mut forms);
    halves(&mut forms);
    conversions(&mut forms);
    small_formats(&mut forms);
    comparisons(&mut forms);
    forms
}

type Eval = fn(i128, i128, u32) -> i128;

fn add_form(
    forms: &mut Vec<Form>,
    text: String,
    (to, from): (Class, Vec<Class>),
    eval: impl Fn(&[u64]) -> u64 + 'static,
) {
    let eval = Box::new(eval);
    forms.push(Form {
        text,
        to,
        from,
        eval,
    });
}

#[allow(clippy::too_many_lines, reason = "a table of forms")]
fn integers(forms: &mut Vec<Form>) {
    let binary: [(&str, Eval); 6] = [
        ("add", |a, b, _| a + b),
        ("sub", |a, b, _| a - b),
        ("min", |a, b, _| if a < b { a } else { b }),
        ("max", |a, b, _| if a > b { a } else { b }),
        ("div", |a, b, _| if b == 0 { -1 } else { a / b }),
        ("rem", |a, b, _| if b == 0 { a } else { a % b }),
    ];
    for bits in [16, 32, 64] {
        for (letter, signed) in [('u', false), ('s', true)] {
            let class = integer_class(bits);
            for (name, of) in binary {
                let text = format!("{name}.{letter}{bits} {{d}}, {{a}}, {{b}};");
                add_form(forms, text, (class, vec![class; 2]), move |v| {
                    mask(
                        of(read(v[0], bits, signed), read(v[1], bits, signed), bits),
                        bits,
                    )
                });
            }
            let text = format!("sad.{letter}{bits} {{d}}, {{a}}, {{b}}, {{c}};");
            add_form(forms, text, (class, vec![class; 3]), move |v| {
                let (a, b) = (read(v[0], bits, signed), read(v[1], bits, signed));
                mask((a - b).abs() + i128::from(v[2]), bits)
            });
            let text = format!("shr.{letter}{bits} {{d}}, {{a}}, {{b}};");
            add_form(forms, text, (class, vec![class, R32]), move |v| {
                mask(read(v[0], bits, signed) >> v[1].min(100), bits)
            });
        }
        let class = integer_class(bits);
        let text = format!("abs.s{bits} {{d}}, {{a}};");
        add_form(forms, text, (class, vec![class]), move |v| {
            mask(read(v[0], bits, true).abs(), bits)
        });
        let text = format!("neg.s{bits} {{d}}, {{a}};");
        add_form(forms, text, (class, vec![class]), move |v| {
            mask(-read(v[0], bits, true), bits)
        });
        let text = format!("shl.b{bits} {{d}}, {{a}}, {{b}};");
        add_form(forms, text, (class, vec![class, R32]), move |v| {
            if v[1] >= 64 {
                0
            } else {
                mask(i128::from(v[0]) << v[1], bits)
            }
        });
        for (name, of) in [
            ("and", (|a, b| a & b) as fn(u64, u64) -> u64),
            ("or", |a, b| a | b),
            ("xor", |a, b| a ^ b),
        ] {
            let text = format!("{name}.b{bits} {{d}}, {{a}}, {{b}};");
            add_form(forms, text, (class, vec![class; 2]), move |v| {
                of(v[0], v[1])
            });
        }
        let text = format!("not.b{bits} {{d}}, {{a}};");
        add_form(forms, text, (class, vec![class]), move |v| {
            mask(i128::from(!v[0]), bits)
        });
        let text = format!("cnot.b{bits} {{d}}, {{a}};");
        add_form(forms, text, (class, vec![class]), |v| u64::from(v[0] == 0));
        let text = format!("selp.b{bits} {{d}}, {{a}}, {{b}}, {{c}};");
        add_form(forms, text, (class, vec![class, class, P]), |v| {
            if v[2] != 0 { v[0] } else { v[1] }
        });
    }
    for (name, sign) in [("add", 1), ("sub", -1)] {
        let text = format!("{name}.sat.s32 {{d}}, {{a}}, {{b}};");
        add_form(forms, text, (R32, vec![R32; 2]), move |v| {
            mask(
                clamp(read(v[0], 32, true) + sign * read(v[1], 32, true), 32, true),
                32,
            )
        });
    }
    for (low, high, sign) in [("add.cc", "addc", 1i128), ("sub.cc", "subc", -1)] {
        for bits in [32u32, 64] {
            let text =
                format!("{low}.u{bits} {{d}}, {{a}}, {{b}}; {high}.u{bits} {{d}}, {{c}}, {{b}};");
            let class = integer_class(bits);
            add_form(forms, text, (class, vec![class; 3]), move |v| {
                let sum = i128::from(v[0]) + sign * i128::from(v[1]);
                let carry = i128::from(sum < 0 || sum >> bits != 0);
                mask(
                    i128::from(v[2]) + sign * i128::from(v[1]) + sign * carry,
                    bits,
                )
            });
        }
    }
}

fn packed(forms: &mut Vec<Form>) {
    type Half = fn(i128, i128) -> i128;
    let cases: [(&str, bool, Half); 6] = [
        ("add.u16x2", false, |a, b| a + b),
        ("add.s16x2", true, |a, b| a + b),
        ("min.u16x2", false, |a, b| a.min(b)),
        ("max.u16x2", false, |a, b| a.max(b)),
        ("min.s16x2", true, |a, b| a.min(b)),
        ("max.s16x2", true, |a, b| a.max(b)),
    ];
    for (name, signed, of) in cases {
        let text = format!("{name} {{d}}, {{a}}, {{b}};");
        add_form(forms, text, (R32, vec![R32; 2]), move |v| {
            let part = |at: u32| {
                mask(
                    of(read(v[0] >> at, 16, signed), read(v[1] >> at, 16, signed)),
                    16,
                )
            };
            part(0) | part(16) << 16
        });
    }
    for (name, of) in [("min", (|a, b| a.min(b)) as Half), ("max", |a, b| a.max(b))] {
        let text = format!("{name}.relu.s32 {{d}}, {{a}}, {{b}};");
        add_form(forms, text, (R32, vec![R32; 2]), move |v| {
            mask(of(read(v[0], 32, true), read(v[1], 32, true)).max(0), 32)
        });
    }
    for (part, shift) in [("lo", 0), ("hi", 32)] {
        let text =
            format!("mad.{part}.cc.u32 {{d}}, {{a}}, {{b}}, {{c}}; addc.u32 {{d}}, {{c}}, {{c}};");
        add_form(forms, text, (R32, vec![R32; 3]), move |v| {
            let product = i128::from(v[0]) * i128::from(v[1]);
            let sum = i128::from(mask(product >> shift, 32)) + i128::from(v[2]);
            mask(2 * i128::from(v[2]) + (sum >> 32), 32)
        });
    }
}

fn products(forms: &mut Vec<Form>) {
    // A product of 64-bit numbers with a sign fits i128 if taken modulo 2^128.
    let product =
        |v: &[u64], bits, signed| read(v[0], bits, signed).wrapping_mul(read(v[1], bits, signed));
    for bits in [16, 32, 64] {
        for (letter, signed) in [('u', false), ('s', true)] {
            let class = integer_class(bits);
            let high = move |v: &[u64]| {
                if signed {
                    mask(product(v, bits, signed) >> bits, bits)
                } else {
                    let wide = u128::from(v[0]) * u128::from(v[1]);
                    mask((wide >> bits) as i128, bits)
                }
            };
            let name = format!("{letter}{bits}");
            add_form(
                forms,
                format!("mul.lo.{name} {{d}}, {{a}}, {{b}};"),
                (class, vec![class; 2]),
                move |v| mask(product(v, bits, signed), bits),
            );
            add_form(
                forms,
                format!("mul.hi.{name} {{d}}, {{a}}, {{b}};"),
                (class, vec![class; 2]),
                high,
            );
            add_form(
                forms,
                format!("mad.lo.{name} {{d}}, {{a}}, {{b}}, {{c}};"),
                (class, vec![class; 3]),
                move |v| {
                    mask(
                        product(v, bits, signed).wrapping_add(i128::from(v[2])),
                        bits,
                    )
                },
            );
            add_form(
                forms,
                format!("mad.hi.{name} {{d}}, {{a}}, {{b}}, {{c}};"),
                (class, vec![class; 3]),
                move |v| mask(i128::from(high(v)) + i128::from(v[2]), bits),
            );
            if bits < 64 {
                let wide = integer_class(2 * bits);
                add_form(
                    forms,
                    format!("mul.wide.{name} {{d}}, {{a}}, {{b}};"),
                    (wide, vec![class; 2]),
                    move |v| mask(product(v, bits, signed), 2 * bits),
                );
                add_form(
                    forms,
                    format!("mad.wide.{name} {{d}}, {{a}}, {{b}}, {{c}};"),
                    (wide, vec![class, class, wide]),
                    move |v| mask(product(v, bits, signed) + i128::from(v[2]), 2 * bits),
                );
            }
        }
    }
    for (letter, signed) in [('u', false), ('s', true)] {
        for (part, shift) in [("lo", 0), ("hi", 16)] {
            let text = format!("mul24.{part}.{letter}32 {{d}}, {{a}}, {{b}};");
            add_form(forms, text, (R32, vec![R32; 2]), move |v| {
                mask(
                    (read(v[0], 24, signed) * read(v[1], 24, signed)) >> shift,
                    32,
                )
            });
        }
        let text = format!("dp4a.{letter}32.s32 {{d}}, {{a}}, {{b}}, {{c}};");
        add_form(forms, text, (R32, vec![R32; 3]), move |v| {
            let part = |i: u32| read(v[0] >> (8 * i), 8, signed) * read(v[1] >> (8 * i), 8, true);
            mask((0..4).map(part).sum::<i128>() + i128::from(v[2]), 32)
        });
    }
}

fn bit(value: u64, at: i64) -> u64 {
    if (0..64).contains(&at) {
        value >> at & 1
    } else {
        0
    }
}

#[allow(clippy::too_many_lines, reason = "a table of forms")]
fn bits(forms: &mut Vec<Form>) {
    for width in [32i64, 64] {
        let class = integer_class(width as u32);
        let msb = width - 1;
        add_form(
            forms,
            format!("popc.b{width} {{d}}, {{a}};"),
            (R32, vec![class]),
            move |v| (0..width).map(|i| bit(v[0], i)).sum(),
        );
        add_form(
            forms,
            format!("clz.b{width} {{d}}, {{a}};"),
            (R32, vec![class]),
            move |v| (0..width).rev().take_while(|&i| bit(v[0], i) == 0).count() as u64,
        );
        add_form(
            forms,
            format!("brev.b{width} {{d}}, {{a}};"),
            (class, vec![class]),
            move |v| (0..width).fold(0, |out, i| out | bit(v[0], i) << (msb - i)),
        );
        for signed in [false, true] {
            let letter = if signed { 's' } else { 'u' };
            let text = format!("bfe.{letter}{width} {{d}}, {{a}}, {{b}}, {{c}};");
            add_form(forms, text, (class, vec![class, R32, R32]), move |v| {
                let (pos, len) = ((v[1] & 255) as i64, (v[2] & 255) as i64);
                let fill = if !signed || len == 0 {
                    0
                } else {
                    bit(v[0], (pos + len - 1).min(msb))
                };
                (0..width).fold(0, |out, i| {
                    let from = if i < len && pos + i <= msb {
                        bit(v[0], pos + i)
                    } else {
                        fill
                    };
                    out | from << i
                })
            });
            let text = format!("bfind.{letter}{width} {{d}}, {{a}};");
            add_form(forms, text, (R32, vec![class]), move |v| {
                let skip = if signed { bit(v[0], msb) } else { 0 };
                let found = (0..width).rev().find(|&i| bit(v[0], i) != skip);
                found.map_or(0xffff_ffff, |i| i as u64)
            });
        }
        let text = format!("bfi.b{width} {{d}}, {{a}}, {{b}}, {{c}}, 7;");
        add_form(forms, text, (class, vec![class, class, R32]), move |v| {
            let pos = (v[2] & 255) as i64;
            (0..width).fold(0, |out, i| {
                let inside = i >= pos && i < pos + 7;
                out | if inside {
                    bit(v[0], i - pos)
                } else {
                    bit(v[1], i)
                } << i
            })
        });
    }
    for table in [0x1bu64, 0x80, 0x96, 0xca, 0xe8, 0xfe] {
        let text = format!("lop3.b32 {{d}}, {{a}}, {{b}}, {{c}}, {table};");
        add_form(forms, text, (R32, vec![R32; 3]), move |v| {
            (0..32).fold(0, |out, i| {
                let row = bit(v[0], i) << 2 | bit(v[1], i) << 1 | bit(v[2], i);
                out | (table >> row & 1) << i
            })
        });
    }
    for (direction, left) in [("l", true), ("r", false)] {
        for (mode, wrap) in [("wrap", true), ("clamp", false)] {
            let text = format!("shf.{direction}.{mode}.b32 {{d}}, {{a}}, {{b}}, {{c}};");
            add_form(forms, text, (R32, vec![R32; 3]), move |v| {
                let by = if wrap { v[2] & 31 } else { v[2].min(32) };
                let both = u128::from(v[1]) << 32 | u128::from(v[0]);
                (if left { both << by >> 32 } else { both >> by }) as u64 & 0xffff_ffff
            });
        }
    }
    add_form(
        forms,
        "prmt.b32 {d}, {a}, {b}, {c};".into(),
        (R32, vec![R32; 3]),
        |v| {
            let both = v[1] << 32 | v[0];
            (0..4).fold(0, |out, i| {
                let nibble = v[2] >> (4 * i) & 15;
                let byte = both >> (8 * (nibble & 7)) & 255;
                let byte = if nibble & 8 == 0 {
                    byte
                } else {
                    (byte >> 7) * 255
                };
                out | byte << (8 * i)
            })
        },
    );
    add_form(
        forms,
        "mov.b64 {d}, {{a}, {b}};".into(),
        (R64, vec![R32; 2]),
        |v| v[1] << 32 | v[0],
    );
    add_form(
        forms,
        "mov.b32 {d}, {{a}, {b}};".into(),
        (R32, vec![R16; 2]),
        |v| v[1] << 16 | v[0],
    );
    add_form(forms, "mov.b32 {d}, {a};".into(), (R32, vec![F32]), |v| {
        v[0]
    });
    add_form(forms, "mov.b32 {d}, {a};".into(), (F32, vec![R32]), |v| {
        v[0]
    });
    add_form(forms, "mov.b64 {d}, {a};".into(), (F64, vec![R64]), |v| {
        v[0]
    });
}

const ROUNDS: [(&str, Round); 4] = [
    ("rn", Round::NearestTiesToEven),
    ("rz", Round::TowardZero),
    ("rm", Round::TowardNegative),
    ("rp", Round::TowardPositive),
];

/// The device's NaN.
fn bits_of<F: Float>(value: F) -> u64 {
    if value.is_nan() {
        return match F::BITS {
            16 => 0x7fff,
            32 => 0x7fff_ffff,
            _ => 0xfff8_0000_0000_0000,
        };
    }
    value.to_bits() as u64
}

fn of<F: Float>(bits: u64) -> F {
    F::from_bits(u128::from(bits))
}

/// Subnormal numbers become zero.
fn flush<F: Float>(value: F, ftz: bool) -> F {
    if ftz && value.is_denormal() {
        F::ZERO.copy_sign(value)
    } else {
        value
    }
}

fn saturate<F: Float>(value: F, sat: bool) -> F {
    let one = F::from_u128(1).value;
    match value {
        value if !sat => value,
        value if value.is_nan() || value.is_negative() || value.is_zero() => F::ZERO,
        value if value > one => one,
        value => value,
    }
}

fn arithmetic<F: Float>(name: &str, v: &[u64], round: Round, (ftz, sat): (bool, bool)) -> u64 {
    let get = |i: usize| flush(of::<F>(v[i]), ftz);
    let value = match name {
        "add" => get(0).add_r(get(1), round).value,
        "sub" => get(0).sub_r(get(1), round).value,
        "mul" => get(0).mul_r(get(1), round).value,
        "div" => get(0).div_r(get(1), round).value,
        "rcp" => F::from_u128(1).value.div_r(get(0), round).value,
        _ => get(0).mul_add_r(get(1), get(2), round).value,
    };
    bits_of(saturate(flush(value, ftz), sat))
}

/// The square root by search: the largest number whose square is not above `x`.
fn root<F: FloatConvert<Quad>>(x: F, round: Round) -> F {
    if x.is_nan() || x.is_negative() && !x.is_zero() {
        return F::NAN;
    }
    if x.is_zero() || x.is_infinite() {
        return x;
    }
    let wide = |value: F| -> Quad { value.convert(&mut false).value };
    let square = |value: F| (wide(value) * wide(value)).value;
    let (mut low, mut high) = (0u128, F::INFINITY.to_bits() - 1);
    while low < high {
        let middle = (low + high).div_ceil(2);
        if square(F::from_bits(middle)) <= wide(x) {
            low = middle
        } else {
            high = middle - 1
        }
    }
    let (below, above) = (F::from_bits(low), F::from_bits(low + 1));
    if square(below) == wide(x) {
        return below;
    }
    let middle = ((wide(below) + wide(above)).value / Quad::from_u128(2).value).value;
    match round {
        Round::TowardPositive => above,
        Round::NearestTiesToEven if (middle * middle).value < wide(x) => above,
        _ => below,
    }
}

fn floats(forms: &mut Vec<Form>) {
    for (name, count) in [
        ("add", 2),
        ("sub", 2),
        ("mul", 2),
        ("div", 2),
        ("fma", 3),
        ("rcp", 1),
    ] {
        let operands = &", {a}, {b}, {c}"[..5 * count];
        for (mode, round) in ROUNDS {
            for (suffix, ftz, sat) in [
                ("", false, false),
                (".ftz", true, false),
                (".sat", false, true),
            ] {
                if sat && matches!(name, "div" | "rcp") {
                    continue;
                }
                let text = format!("{name}.{mode}{suffix}.f32 {{d}}{operands};");
                add_form(forms, text, (F32, vec![F32; count]), move |v| {
                    arithmetic::<Single>(name, v, round, (ftz, sat))
                });
            }
            let text = format!("{name}.{mode}.f64 {{d}}{operands};");
            add_form(forms, text, (F64, vec![F64; count]), move |v| {
                arithmetic::<Double>(name, v, round, (false, false))
            });
        }
    }
    for (mode, round) in ROUNDS {
        add_form(
            forms,
            format!("sqrt.{mode}.f32 {{d}}, {{a}};"),
            (F32, vec![F32]),
            move |v| bits_of(root(of::<Single>(v[0]), round)),
        );
        // 53 bits squared and compared with half a unit more take 108 bits; Quad has 113.
        add_form(
            forms,
            format!("sqrt.{mode}.f64 {{d}}, {{a}};"),
            (F64, vec![F64]),
            move |v| bits_of(root(of::<Double>(v[0]), round)),
        );
    }
    for (ty, class, sign) in [("f32", F32, 1u64 << 31), ("f64", F64, 1 << 63)] {
        let one = vec![class];
        add_form(
            forms,
            format!("neg.{ty} {{d}}, {{a}};"),
            (class, one.clone()),
            move |v| v[0] ^ sign,
        );
        add_form(
            forms,
            format!("abs.{ty} {{d}}, {{a}};"),
            (class, one),
            move |v| v[0] & !sign,
        );
        let text = format!("copysign.{ty} {{d}}, {{a}}, {{b}};");
        add_form(forms, text, (class, vec![class; 2]), move |v| {
            v[1] & !sign | v[0] & sign
        });
    }
    for is_max in [false, true] {
        let name = if is_max { "max" } else { "min" };
        for (suffix, nan) in [("", false), (".NaN", true)] {
            let text = format!("{name}{suffix}.f32 {{d}}, {{a}}, {{b}};");
            add_form(forms, text, (F32, vec![F32; 2]), move |v| {
                extreme::<Single>(v, is_max, nan)
            });
            let text = format!("{name}{suffix}.f16 {{d}}, {{a}}, {{b}};");
            add_form(forms, text, (R16, vec![R16; 2]), move |v| {
                extreme::<Half>(v, is_max, nan)
            });
        }
        let text = format!("{name}.f64 {{d}}, {{a}}, {{b}};");
        add_form(forms, text, (F64, vec![F64; 2]), move |v| {
            extreme::<Double>(v, is_max, false)
        });
    }
}

fn extreme<F: Float>(v: &[u64], is_max: bool, nan: bool) -> u64 {
    let (a, b) = (of::<F>(v[0]), of::<F>(v[1]));
    bits_of(match (a.is_nan(), b.is_nan()) {
        (true, true) => F::NAN,
        (true, false) | (false, true) if nan => F::NAN,
        (true, false) => b,
        (false, true) => a,
        _ if a.is_zero() && b.is_zero() => {
            if a.is_negative() == is_max {
                b
            } else {
                a
            }
        }
        _ => {
            if (a < b) != is_max {
                a
            } else {
                b
            }
        }
    })
}

fn halves(forms: &mut Vec<Form>) {
    for (name, count) in [("add", 2), ("sub", 2), ("mul", 2), ("fma", 3)] {
        let operands = &", {a}, {b}, {c}"[..5 * count];
        let round = Round::NearestTiesToEven;
        let pair = |v: &[u64], one: &dyn Fn(&[u64]) -> u64| {
            let part = |shift: u32| v.iter().map(|x| x >> shift & 0xffff).collect::<Vec<_>>();
            one(&part(0)) | one(&part(16)) << 16
        };
        for (suffix, sat) in [("", false), (".sat", true)] {
            let text = format!("{name}.rn{suffix}.f16 {{d}}{operands};");
            add_form(forms, text, (R16, vec![R16; count]), move |v| {
                arithmetic::<Half>(name, v, round, (false, sat))
            });
            let text = format!("{name}.rn{suffix}.f16x2 {{d}}{operands};");
            add_form(forms, text, (R32, vec![R32; count]), move |v| {
                pair(v, &|v| arithmetic::<Half>(name, v, round, (false, sat)))
            });
        }
        add_form(
            forms,
            format!("{name}.rn.bf16 {{d}}{operands};"),
            (R16, vec![R16; count]),
            move |v| arithmetic::<BFloat>(name, v, round, (false, false)),
        );
        add_form(
            forms,
            format!("{name}.rn.bf16x2 {{d}}{operands};"),
            (R32, vec![R32; count]),
            move |v| pair(v, &|v| arithmetic::<BFloat>(name, v, round, (false, false))),
        );
    }
}

/// A floating-point value to an integer, as PTX defines it.
fn to_integer<F: Float>(value: F, bits: u32, signed: bool, round: Round) -> u64 {
    if value.is_nan() {
        return if F::BITS == 64 || bits == 64 {
            1 << (bits - 1)
        } else {
            0
        };
    }
    let mut exact = false;
    let wide = value.to_i128_r(100, round, &mut exact);
    let whole = if wide.status.contains(Status::INVALID_OP) {
        if value.is_negative() {
            i128::MIN / 4
        } else {
            i128::MAX / 4
        }
    } else {
        wide.value
    };
    mask(clamp(whole, bits, signed), bits)
}

#[allow(clippy::too_many_lines, reason = "a table of forms")]
fn conversions(forms: &mut Vec<Form>) {
    let types = [
        (16u32, false),
        (16, true),
        (32, false),
        (32, true),
        (64, false),
        (64, true),
    ];
    let name = |(bits, signed): (u32, bool)| format!("{}{bits}", if signed { 's' } else { 'u' });
    for to in types {
        for from in types {
            for (suffix, sat) in [("", false), (".sat", true)] {
                let text = format!("cvt{suffix}.{}.{} {{d}}, {{a}};", name(to), name(from));
                let classes = (integer_class(to.0), vec![integer_class(from.0)]);
                add_form(forms, text, classes, move |v| {
                    let value = read(v[0], from.0, from.1);
                    mask(if sat { clamp(value, to.0, to.1) } else { value }, to.0)
                });
            }
        }
    }
    // Narrow types in wider registers: cut, and extended to the register.
    for (bits, signed) in [(8, false), (8, true), (16, false), (16, true)] {
        let text = format!("cvt.{}.s32 {{d}}, {{a}};", name((bits, signed)));
        add_form(forms, text, (R32, vec![R32]), move |v| {
            mask(read(v[0], bits, signed), 32)
        });
        let text = format!("cvt.s64.{} {{d}}, {{a}};", name((bits, signed)));
        add_form(forms, text, (R64, vec![R32]), move |v| {
            mask(read(v[0], bits, signed), 64)
        });
    }
    let integral = [("rni", 0), ("rzi", 1), ("rmi", 2), ("rpi", 3)];
    for (mode, which) in integral {
        let round = ROUNDS[which].1;
        for to in types {
            let class = integer_class(to.0);
            add_form(
                forms,
                format!("cvt.{mode}.{}.f32 {{d}}, {{a}};", name(to)),
                (class, vec![F32]),
                move |v| to_integer(of::<Single>(v[0]), to.0, to.1, round),
            );
            add_form(
                forms,
                format!("cvt.{mode}.{}.f64 {{d}}, {{a}};", name(to)),
                (class, vec![F64]),
                move |v| to_integer(of::<Double>(v[0]), to.0, to.1, round),
            );
            add_form(
                forms,
                format!("cvt.{mode}.{}.f16 {{d}}, {{a}};", name(to)),
                (class, vec![R16]),
                move |v| to_integer(of::<Half>(v[0]), to.0, to.1, round),
            );
        }
        add_form(
            forms,
            format!("cvt.{mode}.f32.f32 {{d}}, {{a}};"),
            (F32, vec![F32]),
            move |v| bits_of(of::<Single>(v[0]).round_to_integral(round).value),
        );
        add_form(
            forms,
            format!("cvt.{mode}.f64.f64 {{d}}, {{a}};"),
            (F64, vec![F64]),
            move |v| bits_of(of::<Double>(v[0]).round_to_integral(round).value),
        );
    }
    for (mode, round) in ROUNDS {
        for from in types {
            let class = integer_class(from.0);
            let value = move |v: &[u64]| read(v[0], from.0, from.1);
            add_form(
                forms,
                format!("cvt.{mode}.f32.{} {{d}}, {{a}};", name(from)),
                (F32, vec![class]),
                move |v| bits_of(Single::from_i128_r(value(v), round).value),
            );
            add_form(
                forms,
                format!("cvt.{mode}.f64.{} {{d}}, {{a}};", name(from)),
                (F64, vec![class]),
                move |v| bits_of(Double::from_i128_r(value(v), round).value),
            );
            add_form(
                forms,
                format!("cvt.{mode}.f16.{} {{d}}, {{a}};", name(from)),
                (R16, vec![class]),
                move |v| bits_of(Half::from_i128_r(value(v), round).value),
            );
        }
        for (suffix, ftz, sat) in [
            ("", false, false),
            (".ftz", true, false),
            (".sat", false, true),
        ] {
            add_form(
                forms,
                format!("cvt.{mode}{suffix}.f32.f64 {{d}}, {{a}};"),
                (F32, vec![F64]),
                move |v| {
                    bits_of(saturate(
                        flush(convert::<Double, Single>(v[0], round), ftz),
                        sat,
                    ))
                },
            );
        }
        add_form(
            forms,
            format!("cvt.{mode}.f16.f32 {{d}}, {{a}};"),
            (R16, vec![F32]),
            move |v| bits_of(convert::<Single, Half>(v[0], round)),
        );
        add_form(
            forms,
            format!("cvt.{mode}.f16.f64 {{d}}, {{a}};"),
            (R16, vec![F64]),
            move |v| bits_of(convert::<Double, Half>(v[0], round)),
        );
    }
    let near = Round::NearestTiesToEven;
    add_form(
        forms,
        "cvt.f64.f32 {d}, {a};".into(),
        (F64, vec![F32]),
        move |v| bits_of(convert::<Single, Double>(v[0], near)),
    );
    add_form(
        forms,
        "cvt.f32.f16 {d}, {a};".into(),
        (F32, vec![R16]),
        move |v| bits_of(convert::<Half, Single>(v[0], near)),
    );
    add_form(
        forms,
        "cvt.f64.f16 {d}, {a};".into(),
        (F64, vec![R16]),
        move |v| bits_of(convert::<Half, Double>(v[0], near)),
    );
    add_form(
        forms,
        "cvt.f32.bf16 {d}, {a};".into(),
        (F32, vec![R16]),
        move |v| bits_of(convert::<BFloat, Single>(v[0], near)),
    );
    for (mode, round) in &ROUNDS[..2] {
        let round = *round;
        add_form(
            forms,
            format!("cvt.{mode}.bf16.f32 {{d}}, {{a}};"),
            (R16, vec![F32]),
            move |v| bits_of(convert::<Single, BFloat>(v[0], round)),
        );
        add_form(
            forms,
            format!("cvt.{mode}.f16x2.f32 {{d}}, {{a}}, {{b}};"),
            (R32, vec![F32; 2]),
            move |v| {
                let part = |bits| bits_of(convert::<Single, Half>(bits, round));
                part(v[0]) << 16 | part(v[1])
            },
        );
        add_form(
            forms,
            format!("cvt.{mode}.bf16x2.f32 {{d}}, {{a}}, {{b}};"),
            (R32, vec![F32; 2]),
            move |v| {
                let part = |bits| bits_of(convert::<Single, BFloat>(bits, round));
                part(v[0]) << 16 | part(v[1])
            },
        );
    }
}

fn convert<A: FloatConvert<B>, B: Float>(bits: u64, round: Round) -> B {
    of::<A>(bits).convert_r(round, &mut false).value
}

fn small_formats(forms: &mut Vec<Form>) {
    let near = Round::NearestTiesToEven;
    add_form(
        forms,
        "cvt.rn.satfinite.e4m3x2.f32 {d}, {a}, {b};".into(),
        (R16, vec![F32; 2]),
        move |v| {
            let part = |bits: u64| {
                let value = of::<Single>(bits);
                let small: Float8E4M3FN = convert::<Single, _>(bits, near);
                let limit = of::<Single>(0x43e0_0000); // 448
                if value.is_nan() {
                    0x7f
                } else if value.abs() > limit {
                    0x7e | u64::from(value.is_negative()) << 7
                } else {
                    small.to_bits() as u64
                }
            };
            part(v[0]) << 8 | part(v[1])
        },
    );
    add_form(
        forms,
        "cvt.rn.f16x2.e4m3x2 {d}, {a};".into(),
        (R32, vec![R16]),
        move |v| {
            let part = |bits: u64| bits_of(convert::<Float8E4M3FN, Half>(bits & 255, near));
            part(v[0] >> 8) << 16 | part(v[0])
        },
    );
    add_form(
        forms,
        "cvt.rn.f16x2.e5m2x2 {d}, {a};".into(),
        (R32, vec![R16]),
        move |v| {
            let part = |bits: u64| bits_of(convert::<Float8E5M2, Half>(bits & 255, near));
            part(v[0] >> 8) << 16 | part(v[0])
        },
    );
}

#[allow(clippy::too_many_lines, reason = "a table of forms")]
fn comparisons(forms: &mut Vec<Form>) {
    use std::cmp::Ordering::{self, Equal, Greater, Less};
    let ordered: [(&str, &[Ordering]); 6] = [
        ("eq", &[Equal]),
        ("ne", &[Less, Greater]),
        ("lt", &[Less]),
        ("le", &[Less, Equal]),
        ("gt", &[Greater]),
        ("ge", &[Greater, Equal]),
    ];
    for (name, holds) in ordered {
        for bits in [16, 32, 64] {
            for (letter, signed) in [('u', false), ('s', true)] {
                let class = integer_class(bits);
                let text = format!("setp.{name}.{letter}{bits} {{d}}, {{a}}, {{b}};");
                add_form(forms, text, (P, vec![class; 2]), move |v| {
                    let order = read(v[0], bits, signed).cmp(&read(v[1], bits, signed));
                    u64::from(holds.contains(&order))
                });
            }
        }
        for (suffix, unordered) in [("", false), ("u", true)] {
            let text = format!("setp.{name}{suffix}.f32 {{d}}, {{a}}, {{b}};");
            add_form(forms, text, (P, vec![F32; 2]), move |v| {
                let order = of::<Single>(v[0]).partial_cmp(&of::<Single>(v[1]));
                u64::from(order.map_or(unordered, |order| holds.contains(&order)))
            });
            let text = format!("setp.{name}{suffix}.f64 {{d}}, {{a}}, {{b}};");
            add_form(forms, text, (P, vec![F64; 2]), move |v| {
                let order = of::<Double>(v[0]).partial_cmp(&of::<Double>(v[1]));
                u64::from(order.map_or(unordered, |order| holds.contains(&order)))
            });
            let text = format!("setp.{name}{suffix}.f16 {{d}}, {{a}}, {{b}};");
            add_form(forms, text, (P, vec![R16; 2]), move |v| {
                let order = of::<Half>(v[0]).partial_cmp(&of::<Half>(v[1]));
                u64::from(order.map_or(unordered, |order| holds.contains(&order)))
            });
        }
        let text = format!("set.{name}.u32.s32 {{d}}, {{a}}, {{b}};");
        add_form(forms, text, (R32, vec![R32; 2]), move |v| {
            let order = read(v[0], 32, true).cmp(&read(v[1], 32, true));
            if holds.contains(&order) {
                0xffff_ffff
            } else {
                0
            }
        });
    }
    for (name, of) in [
        ("and", (|a, b| a & b) as fn(u64, u64) -> u64),
        ("or", |a, b| a | b),
        ("xor", |a, b| a ^ b),
    ] {
        let text = format!("{name}.pred {{d}}, {{a}}, {{b}};");
        add_form(forms, text, (P, vec![P; 2]), move |v| of(v[0], v[1]));
        let text = format!("setp.lt.{name}.s32 {{d}}, {{a}}, {{b}}, {{c}};");
        add_form(forms, text, (P, vec![R32, R32, P]), move |v| {
            of(u64::from(read(v[0], 32, true) < read(v[1], 32, true)), v[2])
        });
    }
    add_form(forms, "not.pred {d}, {a};".into(), (P, vec![P]), |v| {
        1 - v[0]
    });
    for (name, class) in [("nan", true), ("num", false)] {
        let text = format!("setp.{name}.f32 {{d}}, {{a}}, {{b}};");
        add_form(forms, text, (P, vec![F32; 2]), move |v| {
            let is_nan = of::<Single>(v[0]).is_nan() || of::<Single>(v[1]).is_nan();
            u64::from(is_nan == class)
        });
    }
    add_form(
        forms,
        "slct.b32.s32 {d}, {a}, {b}, {c};".into(),
        (R32, vec![R32; 3]),
        |v| {
            if read(v[2], 32, true) >= 0 {
                v[0]
            } else {
                v[1]
            }
        },
    );
    for (class, test) in [
        ("finite", (|x: Single| x.is_finite()) as fn(Single) -> bool),
        ("infinite", |x| x.is_infinite()),
        ("notanumber", |x| x.is_nan()),
        ("subnormal", |x| x.is_denormal()),
    ] {
        let text = format!("testp.{class}.f32 {{d}}, {{a}};");
        add_form(forms, text, (P, vec![F32]), move |v| {
            u64::from(test(of::<Single>(v[0])))
        });
    }
}
