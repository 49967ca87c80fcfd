//! What the parser hands to the lowering: declarations and statements, borrowed from the text.

/// A scalar type by its kind and width.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Type {
    /// Unsigned integer of so many bits.
    U(u8),
    /// Signed integer.
    S(u8),
    /// Bits without a type.
    B(u8),
    /// IEEE 754 binary of 16, 32 or 64 bits.
    F(u8),
    /// Two `f16`.
    F16x2,
    /// `bf16`
    Bf16,
    /// Two `bf16`.
    Bf16x2,
    /// `tf32`, kept in 32 bits.
    Tf32,
    /// Two `f32`, in 64 bits.
    F32x2,
    /// Two 16-bit integers.
    U16x2,
    /// Two signed 16-bit integers.
    S16x2,
    /// Two 8-bit floats, `e4m3`.
    E4m3x2,
    /// Two 8-bit floats, `e5m2`.
    E5m2x2,
    /// One bit.
    Pred,
}

impl Type {
    pub(crate) fn parse(name: &str) -> Option<Type> {
        Some(match name {
            "pred" => Type::Pred,
            "f16x2" => Type::F16x2,
            "bf16" => Type::Bf16,
            "bf16x2" => Type::Bf16x2,
            "tf32" => Type::Tf32,
            "f32x2" => Type::F32x2,
            "u16x2" => Type::U16x2,
            "s16x2" => Type::S16x2,
            "e4m3x2" => Type::E4m3x2,
            "e5m2x2" => Type::E5m2x2,
            "f16" => Type::F(16),
            "f32" => Type::F(32),
            "f64" => Type::F(64),
            "b128" => Type::B(128),
            _ => {
                let bits = match name.get(1..)? {
                    "8" => 8,
                    "16" => 16,
                    "32" => 32,
                    "64" => 64,
                    _ => return None,
                };
                match name.as_bytes()[0] {
                    b'u' => Type::U(bits),
                    b's' => Type::S(bits),
                    b'b' => Type::B(bits),
                    _ => return None,
                }
            }
        })
    }

    /// Width in bits.
    pub(crate) fn bits(self) -> u32 {
        match self {
            Type::U(bits) | Type::S(bits) | Type::B(bits) | Type::F(bits) => u32::from(bits),
            Type::F16x2 | Type::Bf16x2 | Type::Tf32 | Type::U16x2 | Type::S16x2 => 32,
            Type::F32x2 => 64,
            Type::Bf16 | Type::E4m3x2 | Type::E5m2x2 => 16,
            Type::Pred => 1,
        }
    }

    /// Width in bytes.
    pub(crate) fn bytes(self) -> u32 {
        self.bits().div_ceil(8)
    }

    pub(crate) fn is_float(self) -> bool {
        !matches!(
            self,
            Type::U(_) | Type::S(_) | Type::B(_) | Type::Pred | Type::U16x2 | Type::S16x2
        )
    }
}

/// A state space in which variables are declared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum VarSpace {
    Reg,
    Param,
    Shared,
    Local,
    Global,
    Const,
}

/// A declared variable.
#[derive(Debug, Clone)]
pub(crate) struct Var<'t> {
    pub(crate) space: VarSpace,
    pub(crate) name: &'t str,
    pub(crate) ty: Type,
    /// `%r<8>` declares eight registers.
    pub(crate) range: Option<u32>,
    /// Length in bytes; 0 for `[]`.
    pub(crate) size: u64,
    pub(crate) align: u64,
    pub(crate) is_extern: bool,
    pub(crate) init: Vec<(u64, Init<'t>)>,
    pub(crate) line: u32,
}

/// One initial value, at an offset in its variable.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Init<'t> {
    /// Bits of the element's width.
    Bits { value: u64, len: u32 },
    /// The address of a variable or function.
    Address {
        name: &'t str,
        addend: i64,
        len: u32,
        shift: u32,
    },
}

/// A `.entry` or `.func`.
#[derive(Debug, Clone)]
pub(crate) struct Function<'t> {
    pub(crate) name: &'t str,
    pub(crate) is_kernel: bool,
    pub(crate) returns: Vec<Var<'t>>,
    pub(crate) params: Vec<Var<'t>>,
    /// `None` for a declaration.
    pub(crate) body: Option<Vec<Statement<'t>>>,
    pub(crate) max_threads: Option<[u32; 3]>,
    pub(crate) required_block: Option<[u32; 3]>,
    pub(crate) line: u32,
}

/// A statement in a body.
#[derive(Debug, Clone)]
pub(crate) struct Statement<'t> {
    pub(crate) line: u32,
    /// Where its text stands.
    pub(crate) span: (usize, usize),
    pub(crate) kind: Kind<'t>,
}

/// What a statement is.
#[derive(Debug, Clone)]
pub(crate) enum Kind<'t> {
    Label(&'t str),
    Open,
    Close,
    Var(Box<Var<'t>>),
    /// `.loc FILE LINE`
    Location {
        file: u32,
        line: u32,
    },
    /// `NAME: .branchtargets A, B;`
    Targets {
        name: &'t str,
        labels: Vec<&'t str>,
    },
    Instruction(Box<Instruction<'t>>),
    /// An instruction whose operands have no known shape.
    Unknown {
        guard: Option<(&'t str, bool)>,
        what: String,
    },
}

/// An instruction as written.
#[derive(Debug, Clone)]
pub(crate) struct Instruction<'t> {
    /// Predicate and whether it is negated.
    pub(crate) guard: Option<(&'t str, bool)>,
    pub(crate) opcode: &'t str,
    pub(crate) modifiers: Vec<&'t str>,
    pub(crate) operands: Vec<Operand<'t>>,
}

/// An operand as written.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Operand<'t> {
    /// A name, and bytes added to it.
    Name(&'t str, i64),
    /// `%tid.x`
    Field(&'t str, &'t str),
    /// `!%p`
    Not(&'t str),
    Int(u64),
    F32(u32),
    F64(u64),
    /// `{a, b}`
    Vector(Vec<Operand<'t>>),
    /// `[a, b]`
    Bracket(Vec<Operand<'t>>),
    /// `(a, b)`
    List(Vec<Operand<'t>>),
    /// `a|b`
    Pair(Box<Operand<'t>>, Box<Operand<'t>>),
    /// `array[3]`
    Element(&'t str, u64),
    /// `_`
    Sink,
}

/// A parsed text.
#[derive(Debug, Default)]
pub(crate) struct Text<'t> {
    pub(crate) version: (u32, u32),
    pub(crate) target: &'t str,
    pub(crate) vars: Vec<Var<'t>>,
    pub(crate) functions: Vec<Function<'t>>,
    pub(crate) textures: Vec<(&'t str, crate::TexrefKind)>,
    pub(crate) files: Vec<(u32, &'t str)>,
    /// `.alias NAME, OF;`
    pub(crate) aliases: Vec<(&'t str, &'t str)>,
}
