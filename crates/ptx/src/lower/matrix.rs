//! Matrix instructions of a warp.

use super::access::space;
use super::function::Body;
use super::modifiers::Modifiers;
use crate::inst::{MatrixType, Mma, Op, Place, Reg};
use crate::text::ast::{Operand, Type};

impl<'t> Body<'_, 't> {
    pub(crate) fn matrix(
        &mut self,
        opcode: &str,
        operands: &[Operand<'t>],
        mods: &mut Modifiers<'_>,
    ) -> Result<Op, String> {
        mods.ignore(&["sync", "aligned"]);
        if opcode == "mma" {
            return self.mma(operands, mods);
        }
        if !mods.take("m8n8") {
            return Err("only matrices m8n8".into());
        }
        let transposed = mods.take("trans");
        if opcode == "movmatrix" {
            mods.take("b16");
            let [d, s] = operands else {
                return Err("two operands expected".into());
            };
            if !transposed {
                return Err("only transposed".into());
            }
            let s = self.src(s, Type::B(32))?;
            return Ok(Op::MoveMatrix {
                d: self.dst(d)?.0,
                s,
            });
        }
        self.matrices(opcode == "ldmatrix", transposed, operands, mods)
    }

    /// `ldmatrix` and `stmatrix`.
    fn matrices(
        &mut self,
        is_load: bool,
        transposed: bool,
        operands: &[Operand<'t>],
        mods: &mut Modifiers<'_>,
    ) -> Result<Op, String> {
        let count = mods
            .find(|word| match word {
                "x1" => Some(1),
                "x2" => Some(2),
                "x4" => Some(4),
                _ => None,
            })
            .ok_or("no number of matrices")?;
        mods.find(space);
        if !mods.take("b16") {
            return Err("only elements of 16 bits".into());
        }
        let [a, b] = operands else {
            return Err("two operands expected".into());
        };
        if is_load {
            let d = self.registers(a)?;
            let address = self.address(b, Place::Shared)?;
            return if d.len() == count {
                Ok(Op::LoadMatrix {
                    d,
                    address,
                    transposed,
                })
            } else {
                Err(format!("{count} registers expected"))
            };
        }
        let s = self.values(b, Type::B(32))?;
        let address = self.address(a, Place::Shared)?;
        if s.len() == count {
            Ok(Op::StoreMatrix {
                s,
                address,
                transposed,
            })
        } else {
            Err(format!("{count} values expected"))
        }
    }

    fn registers(&mut self, operand: &Operand<'t>) -> Result<Vec<Reg>, String> {
        match operand {
            Operand::Vector(list) => list.iter().map(|item| Ok(self.dst(item)?.0)).collect(),
            other => Ok(vec![self.dst(other)?.0]),
        }
    }

    fn mma(&mut self, operands: &[Operand<'t>], mods: &mut Modifiers<'_>) -> Result<Op, String> {
        let (m, n, k) = mods.find(extent).ok_or("no shape")?;
        let saturate = mods.take("satfinite");
        let bit_and = mods.take("and");
        mods.ignore(&["xor", "popc"]);
        mods.find(|word| word.starts_with("kind").then_some(()));
        if !mods.take("row") || !mods.take("col") {
            return Err("only .row.col".into());
        }
        let mut element = || mods.find(element).ok_or("a type is missing".to_owned());
        let (d_type, a_type, b_type, c_type) = (element()?, element()?, element()?, element()?);
        let [d, a, b, c] = operands else {
            return Err("four operands expected".into());
        };
        let register = |ty| {
            if ty == MatrixType::F64 {
                Type::F(64)
            } else {
                Type::B(32)
            }
        };
        let (a, b) = (
            self.values(a, register(a_type))?,
            self.values(b, register(b_type))?,
        );
        let c = self.values(c, register(c_type))?;
        let d = self.registers(d)?;
        let mma = Mma {
            m,
            n,
            k,
            a_type,
            b_type,
            c_type,
            d_type,
            saturate,
            bit_and,
            d,
            a,
            b,
            c,
        };
        let wanted = mma.registers()?;
        let found = [mma.d.len(), mma.a.len(), mma.b.len(), mma.c.len()];
        if wanted != found {
            return Err(format!("{wanted:?} registers expected, found {found:?}"));
        }
        Ok(Op::Mma(Box::new(mma)))
    }
}

/// `m16n8k8` and the like.
fn extent(word: &str) -> Option<(u32, u32, u32)> {
    let (m, rest) = word.strip_prefix('m')?.split_once('n')?;
    let (n, k) = rest.split_once('k')?;
    Some((m.parse().ok()?, n.parse().ok()?, k.parse().ok()?))
}

fn element(word: &str) -> Option<MatrixType> {
    Some(match word {
        "f16" => MatrixType::F16,
        "bf16" => MatrixType::Bf16,
        "tf32" => MatrixType::Tf32,
        "f32" => MatrixType::F32,
        "f64" => MatrixType::F64,
        "u8" => MatrixType::U8,
        "s8" => MatrixType::S8,
        "u4" => MatrixType::U4,
        "s4" => MatrixType::S4,
        "s32" => MatrixType::S32,
        "e4m3" => MatrixType::E4m3,
        "e5m2" => MatrixType::E5m2,
        "b1" => MatrixType::B1,
        _ => return None,
    })
}

impl Mma {
    /// Registers of D, A, B and C that a thread holds; fails for a shape that does not exist.
    fn registers(&self) -> Result<[usize; 4], String> {
        let size = |ty| match ty {
            MatrixType::F64 => 64,
            MatrixType::F32 | MatrixType::Tf32 | MatrixType::S32 => 32,
            MatrixType::F16 | MatrixType::Bf16 => 16,
            MatrixType::U8 | MatrixType::S8 | MatrixType::E4m3 | MatrixType::E5m2 => 8,
            MatrixType::U4 | MatrixType::S4 => 4,
            MatrixType::B1 => 1,
        };
        let (m, n, k) = (self.m, self.n, self.k);
        let bits = size(self.a_type);
        // A row of a quad of threads is 128 bits (256 for f64); one or two of them make K. Two
        // element types of one size may mix; f32 and f64 sums go with f32 and f64 only.
        let word = if bits == 64 { 64 } else { 32 };
        let quad = 4 * word / bits;
        let is_known = n == 8
            && matches!(m, 8 | 16)
            && size(self.b_type) == bits
            && matches!(k / quad, 1 | 2 | 4)
            && k % quad == 0
            && !(m == 8 && bits == 16)
            && (k / quad < 4 || bits == 64 && m == 16);
        if !is_known || (bits == 64) != (self.c_type == MatrixType::F64) {
            return Err("no such shape with these types".into());
        }
        let groups = (k / quad * (m / 8)) as usize;
        let of_c = |ty| (m / 8) as usize * 2 * size(ty) as usize / word.max(size(ty)) as usize;
        Ok([
            of_c(self.d_type),
            groups,
            (k / quad) as usize,
            of_c(self.c_type),
        ])
    }
}
