//! Matrix instructions. Fragments: PTX ISA, "Matrix Fragments for mma".
//!
//! With group `g = lane / 4`, thread `t = lane % 4` and `e` elements in a register: register `i` of
//! A holds row `g + 8 (i % 2)` (`g` if M is 8), columns `4 e (i / 2) + t e ..`; register `i` of B
//! holds column `g`, rows `4 e i + t e ..`; C and D hold pairs of columns `2 t ..` in rows `g` and
//! `g + 8`. Products are exact in `f64`; their sum is rounded in `f64` and once more at the end,
//! where devices truncate in ways that differ from chip to chip.

use super::{Outcome, Runner};
use crate::Memory;
use crate::inst::{Address, Lanes, MatrixType, Mma, Place, Reg, Src, WARP};
use crate::num::float::{self, Mode};
use crate::num::soft::{BF16, E5M2, F16};

const ROWS: usize = 16;
const COLUMNS: usize = 8;

impl<M: Memory> Runner<'_, M> {
    /// All threads of a warp take part: a matrix with lanes missing is not defined.
    pub(crate) fn mma(&mut self, mask: u32, mma: &Mma) {
        let gather = |sources: &[Src]| -> Vec<Lanes> {
            sources
                .iter()
                .map(|&s| *self.warp.lanes(self.constants, s))
                .collect()
        };
        let (a, b, c) = (gather(&mma.a), gather(&mma.b), gather(&mma.c));
        let d = match mma.c_type {
            MatrixType::S32 => integers(mma, &a, &b, &c),
            _ => floats(mma, &a, &b, &c),
        };
        for (&register, value) in mma.d.iter().zip(&d) {
            self.warp.write(register, mask, value);
        }
    }

    pub(crate) fn load_matrix(
        &mut self,
        mask: u32,
        d: &[Reg],
        address: &Address,
        transposed: bool,
    ) -> Outcome<()> {
        for (index, &d) in d.iter().enumerate() {
            let mut rows = [[0u16; 8]; 8];
            for (row, values) in rows.iter_mut().enumerate() {
                let lane = 8 * index + row;
                let at = self.shared_address(address, lane)?;
                let mut bytes = [0; 16];
                self.read(Place::Shared, at, &mut bytes, lane)?;
                for (value, bytes) in values.iter_mut().zip(bytes.chunks_exact(2)) {
                    *value = u16::from_le_bytes([bytes[0], bytes[1]]);
                }
            }
            let out = std::array::from_fn(|lane| {
                let (row, column) = (lane / 4, lane % 4 * 2);
                let of = |c: usize| {
                    if transposed {
                        rows[c][row]
                    } else {
                        rows[row][c]
                    }
                };
                u64::from(of(column)) | u64::from(of(column + 1)) << 16
            });
            self.warp.write(d, mask, &out);
        }
        Ok(())
    }

    pub(crate) fn store_matrix(
        &mut self,
        _mask: u32,
        s: &[Src],
        address: &Address,
        transposed: bool,
    ) -> Outcome<()> {
        for (index, &s) in s.iter().enumerate() {
            let values = *self.warp.lanes(self.constants, s);
            let matrix = matrix_of(&values, transposed);
            for (row, values) in matrix.iter().enumerate() {
                let lane = 8 * index + row;
                let at = self.shared_address(address, lane)?;
                let mut bytes = [0; 16];
                for (bytes, value) in bytes.chunks_exact_mut(2).zip(values) {
                    bytes.copy_from_slice(&value.to_le_bytes());
                }
                self.write_bytes(Place::Shared, at, &bytes, lane)?;
            }
        }
        Ok(())
    }

    pub(crate) fn move_matrix(&mut self, mask: u32, d: Reg, s: Src) {
        let matrix = matrix_of(self.warp.lanes(self.constants, s), true);
        let out = std::array::from_fn(|lane| {
            let (row, column) = (lane / 4, lane % 4 * 2);
            u64::from(matrix[row][column]) | u64::from(matrix[row][column + 1]) << 16
        });
        self.warp.write(d, mask, &out);
    }
}

/// The matrix m8n8 of 16-bit elements that a fragment holds.
fn matrix_of(fragment: &Lanes, transposed: bool) -> [[u16; 8]; 8] {
    let mut matrix = [[0; 8]; 8];
    for (lane, value) in fragment.iter().enumerate() {
        for half in 0..2 {
            let (row, column) = (lane / 4, lane % 4 * 2 + half);
            let place = if transposed {
                &mut matrix[column][row]
            } else {
                &mut matrix[row][column]
            };
            *place = (value >> (16 * half)) as u16;
        }
    }
    matrix
}

/// Bits of an element, and of the register it lies in.
fn widths(ty: MatrixType) -> (u32, u32) {
    match ty {
        MatrixType::F64 => (64, 64),
        MatrixType::F32 | MatrixType::Tf32 | MatrixType::S32 => (32, 32),
        MatrixType::F16 | MatrixType::Bf16 => (16, 32),
        MatrixType::U8 | MatrixType::S8 | MatrixType::E4m3 | MatrixType::E5m2 => (8, 32),
        MatrixType::U4 | MatrixType::S4 => (4, 32),
        MatrixType::B1 => (1, 32),
    }
}

/// Calls `put(row, column, bits)` for every element of A.
fn each_a(mma: &Mma, a: &[Lanes], mut put: impl FnMut(usize, usize, u64)) {
    let (bits, register) = widths(mma.a_type);
    let per = (register / bits) as usize;
    let halves = (mma.m / 8) as usize;
    for (index, lanes) in a.iter().enumerate() {
        for (lane, value) in lanes.iter().enumerate() {
            let row = lane / 4 + 8 * (index % halves);
            let column = 4 * per * (index / halves) + lane % 4 * per;
            for element in 0..per {
                let shifted = value >> (bits * element as u32);
                put(row, column + element, shifted & crate::num::int::ones(bits));
            }
        }
    }
}

/// Calls `put(column, row, bits)` for every element of B.
fn each_b(mma: &Mma, b: &[Lanes], mut put: impl FnMut(usize, usize, u64)) {
    let (bits, register) = widths(mma.b_type);
    let per = (register / bits) as usize;
    for (index, lanes) in b.iter().enumerate() {
        for (lane, value) in lanes.iter().enumerate() {
            let row = 4 * per * index + lane % 4 * per;
            for element in 0..per {
                let shifted = value >> (bits * element as u32);
                put(
                    lane / 4,
                    row + element,
                    shifted & crate::num::int::ones(bits),
                );
            }
        }
    }
}

/// Place of an element of C or D: register, lane and shift.
fn place_c(ty: MatrixType, row: usize, column: usize) -> (usize, usize, u32) {
    let lane = row % 8 * 4 + column / 2;
    if widths(ty).0 == 16 {
        (row / 8, lane, 16 * (column % 2) as u32)
    } else {
        (row / 8 * 2 + column % 2, lane, 0)
    }
}

fn value_of(ty: MatrixType, bits: u64) -> f64 {
    match ty {
        MatrixType::F16 => float::widen(bits, F16),
        MatrixType::Bf16 => float::widen(bits, BF16),
        // The low 13 bits of a tf32 operand are ignored.
        MatrixType::Tf32 => f64::from(f32::from_bits(bits as u32 & !0x1fff)),
        MatrixType::F32 => f64::from(f32::from_bits(bits as u32)),
        MatrixType::E4m3 => float::widen_e4m3(bits),
        MatrixType::E5m2 => float::widen(bits, E5M2),
        _ => f64::from_bits(bits),
    }
}

fn floats(mma: &Mma, a: &[Lanes], b: &[Lanes], c: &[Lanes]) -> Vec<Lanes> {
    let k = mma.k as usize;
    let mut left = vec![0f64; ROWS * k];
    let mut right = vec![0f64; COLUMNS * k];
    each_a(mma, a, |row, column, bits| {
        left[row * k + column] = value_of(mma.a_type, bits)
    });
    each_b(mma, b, |column, row, bits| {
        right[column * k + row] = value_of(mma.b_type, bits)
    });
    let mut d = vec![[0; WARP]; mma.d.len()];
    for row in 0..mma.m as usize {
        for column in 0..COLUMNS {
            let (register, lane, shift) = place_c(mma.c_type, row, column);
            let start = value_of(
                mma.c_type,
                c[register][lane] >> shift & narrow_mask(mma.c_type),
            );
            let (x, y) = (&left[row * k..][..k], &right[column * k..][..k]);
            let sum = if mma.c_type == MatrixType::F64 {
                x.iter()
                    .zip(y)
                    .fold(start, |sum, (x, y)| x.mul_add(*y, sum))
            } else {
                x.iter().zip(y).fold(start, |sum, (x, y)| sum + x * y)
            };
            let bits = match mma.d_type {
                MatrixType::F64 => sum.to_bits(),
                MatrixType::F16 => float::small_output(sum, F16, Mode::PLAIN),
                _ => u64::from(float::canonical(sum as f32).to_bits()),
            };
            let (register, lane, shift) = place_c(mma.d_type, row, column);
            d[register][lane] |= bits << shift;
        }
    }
    d
}

fn narrow_mask(ty: MatrixType) -> u64 {
    crate::num::int::ones(widths(ty).0)
}

fn integers(mma: &Mma, a: &[Lanes], b: &[Lanes], c: &[Lanes]) -> Vec<Lanes> {
    let k = mma.k as usize;
    let value = |ty, bits: u64| match ty {
        MatrixType::S8 => i64::from(bits as i8),
        MatrixType::S4 => crate::num::int::sign_extend(bits, 4),
        _ => bits as i64,
    };
    let mut left = vec![0i64; ROWS * k];
    let mut right = vec![0i64; COLUMNS * k];
    each_a(mma, a, |row, column, bits| {
        left[row * k + column] = value(mma.a_type, bits)
    });
    each_b(mma, b, |column, row, bits| {
        right[column * k + row] = value(mma.b_type, bits)
    });
    let is_xor = mma.a_type == MatrixType::B1 && !mma.bit_and;
    let mut d = vec![[0; WARP]; mma.d.len()];
    for row in 0..mma.m as usize {
        for column in 0..COLUMNS {
            let (register, lane, _) = place_c(MatrixType::S32, row, column);
            let start = i64::from(c[register][lane] as i32);
            let pairs = left[row * k..][..k].iter().zip(&right[column * k..][..k]);
            let sum = pairs.fold(start, |sum, (x, y)| {
                sum + if is_xor { x ^ y } else { x * y }
            });
            let sum = if mma.saturate {
                sum.clamp(i64::from(i32::MIN), i64::from(i32::MAX)) as i32
            } else {
                sum as i32
            };
            d[register][lane] = u64::from(sum as u32);
        }
    }
    d
}
