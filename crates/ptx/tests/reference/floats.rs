//! Floating point by softfloat.

use rustc_apfloat::{
    Float, FloatConvert, Round,
    ieee::{BFloat, Double, Half, Quad, Single},
};

use super::{
    Class::{F32, F64, R16, R32},
    Form, add_form,
};

pub(super) const ROUNDS: [(&str, Round); 4] = [
    ("rn", Round::NearestTiesToEven),
    ("rz", Round::TowardZero),
    ("rm", Round::TowardNegative),
    ("rp", Round::TowardPositive),
];

/// The device's NaN.
pub(super) fn bits_of<F: Float>(value: F) -> u64 {
    if value.is_nan() {
        return match F::BITS {
            16 => 0x7fff,
            32 => 0x7fff_ffff,
            _ => 0xfff8_0000_0000_0000,
        };
    }
    value.to_bits() as u64
}

pub(super) fn of<F: Float>(bits: u64) -> F {
    F::from_bits(u128::from(bits))
}

/// Subnormal numbers become zero.
pub(super) fn flush<F: Float>(value: F, ftz: bool) -> F {
    if ftz && value.is_denormal() {
        F::ZERO.copy_sign(value)
    } else {
        value
    }
}

pub(super) fn saturate<F: Float>(value: F, sat: bool) -> F {
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

pub(super) fn floats(forms: &mut Vec<Form>) {
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

pub(super) fn halves(forms: &mut Vec<Form>) {
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
