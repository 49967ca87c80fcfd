//! From one kind of number to another.

use rustc_apfloat::{
    Float, FloatConvert, Round, Status,
    ieee::{BFloat, Double, Float8E4M3FN, Float8E5M2, Half, Single},
};

use super::{
    Class::{F32, F64, R16, R32, R64},
    Form, add_form, clamp,
    floats::{ROUNDS, bits_of, flush, of, saturate},
    integer_class, mask, read,
};

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
pub(super) fn conversions(forms: &mut Vec<Form>) {
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

pub(super) fn convert<A: FloatConvert<B>, B: Float>(bits: u64, round: Round) -> B {
    of::<A>(bits).convert_r(round, &mut false).value
}

pub(super) fn small_formats(forms: &mut Vec<Form>) {
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
