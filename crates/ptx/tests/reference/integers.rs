//! Integers in wide arithmetic, bits bit by bit.

use super::{
    Class::{F32, F64, P, R16, R32, R64},
    Form, add_form, clamp, integer_class, mask, read,
};

type Eval = fn(i128, i128, u32) -> i128;

#[allow(clippy::too_many_lines, reason = "a table of forms")]
pub(super) fn integers(forms: &mut Vec<Form>) {
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

pub(super) fn packed(forms: &mut Vec<Form>) {
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

pub(super) fn products(forms: &mut Vec<Form>) {
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
pub(super) fn bits(forms: &mut Vec<Form>) {
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
