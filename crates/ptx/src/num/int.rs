//! Integer and bit-field operations. Source: PTX ISA, "Integer Arithmetic Instructions" and "Logic
//! and Shift Instructions"; names are those of the instructions.

/// `prmt` without a mode: four bytes of `a:b`, picked by four nibbles of `selector`.
pub(crate) fn prmt(a: u32, b: u32, selector: u32) -> u32 {
    let bytes = (u64::from(b) << 32 | u64::from(a)).to_le_bytes();
    let pick = |index: u32| {
        let nibble = selector >> (4 * index) & 15;
        let byte = bytes[(nibble & 7) as usize];
        // The high bit replicates the byte's sign.
        let value = if nibble & 8 == 0 {
            byte
        } else {
            (byte as i8 >> 7) as u8
        };
        u32::from(value) << (8 * index)
    };
    pick(0) | pick(1) | pick(2) | pick(3)
}

/// A mode of `prmt`.
#[derive(Debug, Clone, Copy)]
pub(crate) enum PrmtMode {
    F4e,
    B4e,
    Rc8,
    Ecl,
    Ecr,
    Rc16,
}

/// The selector that a mode and the low two bits of `c` stand for.
pub(crate) fn prmt_selector(mode: PrmtMode, c: u32) -> u32 {
    let at = (c & 3) as usize;
    match mode {
        PrmtMode::F4e => [0x3210, 0x4321, 0x5432, 0x6543][at],
        PrmtMode::B4e => [0x5670, 0x6701, 0x7012, 0x0123][at],
        PrmtMode::Rc8 => [0x0000, 0x1111, 0x2222, 0x3333][at],
        PrmtMode::Ecl => [0x3210, 0x3211, 0x3222, 0x3333][at],
        PrmtMode::Ecr => [0x0000, 0x1110, 0x2210, 0x3210][at],
        PrmtMode::Rc16 => [0x1010, 0x3232, 0x1010, 0x3232][at],
    }
}

/// Any function of three bits, bit by bit.
pub(crate) fn lop3(a: u32, b: u32, c: u32, table: u32) -> u32 {
    let mut out = 0;
    for row in 0..8 {
        if table >> row & 1 != 0 {
            let x = if row & 4 != 0 { a } else { !a };
            let y = if row & 2 != 0 { b } else { !b };
            let z = if row & 1 != 0 { c } else { !c };
            out |= x & y & z;
        }
    }
    out
}

/// Extracts a bit field of up to `bits` (32 or 64) wide operands.
pub(crate) fn bfe(a: u64, pos: u64, len: u64, bits: u32, signed: bool) -> u64 {
    let (pos, len) = ((pos & 0xff) as u32, (len & 0xff) as u32);
    let msb = bits - 1;
    let sign = if !signed || len == 0 {
        0
    } else {
        a >> (pos + len - 1).min(msb) & 1
    };
    let taken = if pos > msb { 0 } else { a >> pos };
    let width = len.min(if pos > msb { 0 } else { bits - pos });
    let mask = ones(width);
    let field = taken & mask;
    let fill = if sign != 0 { !mask } else { 0 };
    (field | fill) & ones(bits)
}

/// Inserts the low `len` bits of `a` into `b` at `pos`.
pub(crate) fn bfi(a: u64, b: u64, pos: u64, len: u64, bits: u32) -> u64 {
    let (pos, len) = ((pos & 0xff) as u32, (len & 0xff) as u32);
    if pos >= bits {
        return b;
    }
    let mask = ones(len.min(bits - pos)) << pos;
    (b & !mask | a << pos & mask) & ones(bits)
}

/// The lowest `count` bits set.
pub(crate) fn ones(count: u32) -> u64 {
    if count >= 64 {
        u64::MAX
    } else {
        (1 << count) - 1
    }
}

/// Position of the highest bit that differs from the sign; all ones if there is none.
pub(crate) fn bfind(a: u64, bits: u32, signed: bool, shift_amount: bool) -> u64 {
    let is_negative = signed && a >> (bits - 1) & 1 != 0;
    let a = if is_negative { !a & ones(bits) } else { a };
    if a == 0 {
        return 0xffff_ffff;
    }
    let at = 63 - a.leading_zeros();
    u64::from(if shift_amount { bits - 1 - at } else { at })
}

/// Position of the `n`-th set bit, counted from `base`; all ones if there is none.
pub(crate) fn fns(mask: u32, base: u32, offset: i32) -> u32 {
    let base = base & 31;
    if offset == 0 {
        return if mask >> base & 1 != 0 {
            base
        } else {
            u32::MAX
        };
    }
    let mut left = offset.unsigned_abs();
    let mut at = i64::from(base);
    let step = if offset > 0 { 1 } else { -1 };
    while (0..32).contains(&at) {
        if mask >> at & 1 != 0 {
            left -= 1;
            if left == 0 {
                return at as u32;
            }
        }
        at += step;
    }
    u32::MAX
}

/// A 64-bit value shifted, of which the upper or lower half is kept.
pub(crate) fn shf(low: u32, high: u32, by: u32, left: bool, wrap: bool) -> u32 {
    let by = if wrap { by & 31 } else { by.min(32) };
    let both = u64::from(high) << 32 | u64::from(low);
    if left {
        (both << by >> 32) as u32
    } else {
        (both >> by) as u32
    }
}

/// Four products of bytes, summed.
pub(crate) fn dp4a(a: u32, b: u32, c: u32, a_signed: bool, b_signed: bool) -> u32 {
    let of = |word: u32, index: usize, signed: bool| {
        let byte = word.to_le_bytes()[index];
        if signed {
            i32::from(byte as i8)
        } else {
            i32::from(byte)
        }
    };
    (0..4).fold(c, |sum, i| {
        sum.wrapping_add(of(a, i, a_signed).wrapping_mul(of(b, i, b_signed)) as u32)
    })
}

/// Two products of 16-bit halves of `a` with bytes of `b`, summed.
pub(crate) fn dp2a(a: u32, b: u32, c: u32, signed: (bool, bool), high: bool) -> u32 {
    let half = |index: u32| {
        let value = (a >> (16 * index)) as u16;
        if signed.0 {
            i32::from(value as i16)
        } else {
            i32::from(value)
        }
    };
    let byte = |index: u32| {
        let value = (b >> (8 * (index + if high { 2 } else { 0 }))) as u8;
        if signed.1 {
            i32::from(value as i8)
        } else {
            i32::from(value)
        }
    };
    (0..2).fold(c, |sum, i| {
        sum.wrapping_add(half(i).wrapping_mul(byte(i)) as u32)
    })
}

/// Sign-extends the low `bits` of a lane to 64 bits.
pub(crate) fn sign_extend(value: u64, bits: u32) -> i64 {
    let shift = 64 - bits;
    (value << shift) as i64 >> shift
}
