//! What sets predicates, and what they choose.

use rustc_apfloat::ieee::{Double, Half, Single};

use super::{
    Class::{F32, F64, P, R16, R32},
    Form, add_form,
    floats::of,
    integer_class, read,
};

#[allow(clippy::too_many_lines, reason = "a table of forms")]
pub(super) fn comparisons(forms: &mut Vec<Form>) {
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
