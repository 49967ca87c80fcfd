//! Decoded instructions: operands are slots, so that running one looks nothing up.
//!
//! All functions' instructions lie in one list; a program counter is an index into it. A register
//! is a vector of one 64-bit lane for each thread of the warp, holding the value's bits with zeros
//! above. A predicate is a 32-bit mask. Slots are relative to the window of the running function.

use std::fmt;

use crate::{Atomic, AtomicOp, Width};

/// Threads of a warp.
pub(crate) const WARP: usize = 32;

/// One value for each thread of a warp.
pub(crate) type Lanes = [u64; WARP];

/// Computes a vector from up to three vectors. Pure: lanes that are off are computed and dropped.
pub(crate) type Alu = Box<dyn Fn(&mut Lanes, [&Lanes; 3]) + Send + Sync>;

/// Compares two vectors; bit `n` of the result is lane `n`.
pub(crate) type Test = Box<dyn Fn([&Lanes; 2]) -> u32 + Send + Sync>;

/// Computes one lane with a carry in and a carry out.
pub(crate) type Carry = fn(u64, u64, u64, bool) -> (u64, bool);

/// A register slot to write.
pub(crate) type Reg = u32;

/// A predicate slot to write.
pub(crate) type Pred = u32;

/// The predicate slot that always holds false.
pub(crate) const FALSE: Pred = 0;
/// The predicate slot that holds the carry flag.
pub(crate) const CARRY: Pred = 1;
/// The predicate slot that takes results nobody reads.
pub(crate) const PRED_SINK: Pred = 2;
/// The first predicate slot of a function's own.
pub(crate) const PRED_FIRST: Pred = 3;
/// The register slot that takes results nobody reads.
pub(crate) const REG_SINK: Reg = 0;

/// Base of the generic window of shared memory. Its low 32 bits are 0, so that a generic address
/// cut to 32 bits is a shared address, which compilers rely on.
pub(crate) const SHARED_WINDOW: u64 = 0x0001_0000_0000_0000;
/// Base of the generic window of local memory.
pub(crate) const LOCAL_WINDOW: u64 = 0x0002_0000_0000_0000;
/// Base of the generic window of kernel parameters.
pub(crate) const PARAM_WINDOW: u64 = 0x0003_0000_0000_0000;
/// Function `n` has the address `FUNCTION_BASE + 16 n`.
pub(crate) const FUNCTION_BASE: u64 = 0x0004_0000_0000_0000;

/// A value to read: a register of the window, or a constant of the module.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Src(u32);

impl Src {
    const CONSTANT: u32 = 1 << 31;

    pub(crate) fn reg(slot: Reg) -> Src {
        Src(slot)
    }

    pub(crate) fn constant(index: u32) -> Src {
        Src(index | Self::CONSTANT)
    }

    /// The slot, and whether it is a constant.
    pub(crate) fn slot(self) -> (usize, bool) {
        (
            (self.0 & !Self::CONSTANT) as usize,
            self.0 & Self::CONSTANT != 0,
        )
    }
}

/// A predicate to read: its mask is flipped by `flip`, which is 0 or all ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PredSrc {
    pub(crate) slot: Pred,
    pub(crate) flip: u32,
}

impl PredSrc {
    pub(crate) const TRUE: PredSrc = PredSrc {
        slot: FALSE,
        flip: u32::MAX,
    };
}

/// One instruction.
#[derive(Debug)]
pub(crate) struct Inst {
    pub(crate) guard: PredSrc,
    pub(crate) line: u32,
    pub(crate) op: Op,
}

/// Combines two predicates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Logic {
    And,
    Or,
    Xor,
}

impl Logic {
    pub(crate) fn of(self, a: u32, b: u32) -> u32 {
        match self {
            Logic::And => a & b,
            Logic::Or => a | b,
            Logic::Xor => a ^ b,
        }
    }
}

/// Where an access goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    Generic,
    Global,
    Shared,
    Local,
    /// Kernel parameters.
    Param,
    /// The running function's frame: `.param` variables of calls.
    Frame,
}

impl Place {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Place::Generic => "generic",
            Place::Global => "global",
            Place::Shared => "shared",
            Place::Local => "local",
            Place::Param | Place::Frame => "param",
        }
    }
}

/// An address operand.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Address {
    pub(crate) base: Src,
    pub(crate) offset: i64,
    pub(crate) place: Place,
    /// The base has 32 bits, and so has the sum.
    pub(crate) is_narrow: bool,
}

/// Shape of the elements of an access.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Element {
    /// Length in bytes: 1, 2, 4 or 8.
    pub(crate) bytes: u32,
    /// Sign-extend to so many bits; 0 extends with zeros.
    pub(crate) sign_to: u32,
}

/// A special register.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Special {
    Tid(u8),
    Ntid(u8),
    Ctaid(u8),
    Nctaid(u8),
    Laneid,
    Warpid,
    Nwarpid,
    Zero,
    One,
    LanemaskEq,
    LanemaskLe,
    LanemaskLt,
    LanemaskGe,
    LanemaskGt,
    Clock,
    Clock64,
    ClockHi,
    GlobalTimer,
    GlobalTimerLo,
    GlobalTimerHi,
    DynamicShared,
    TotalShared,
    /// Address of the dynamic shared array, in shared space.
    DynamicSharedBase,
    /// Address of the running function's frame, in local space.
    FrameBase,
}

/// Which way a shuffle takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shuffle {
    Up,
    Down,
    Butterfly,
    Index,
}

/// A vote.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Vote {
    All,
    Any,
    Uniform,
    Ballot,
}

/// What a barrier reduces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BarrierOp {
    Sync,
    Arrive,
    And { d: Pred, p: PredSrc },
    Or { d: Pred, p: PredSrc },
    Count { d: Reg, p: PredSrc },
}

/// What `redux` reduces with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reduce {
    Integer(AtomicOp),
    MinF32,
    MaxF32,
}

/// An argument or result of a call: bytes in the caller's frame, or a register.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Slot {
    Frame { offset: u32, size: u32 },
    Value { from: Src, to: Reg },
}

/// A call.
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) target: CallTarget,
    pub(crate) returns: Vec<Slot>,
    pub(crate) args: Vec<Slot>,
}

/// What is called.
#[derive(Debug, Clone, Copy)]
pub(crate) enum CallTarget {
    Function(u32),
    Indirect(Src),
}

/// Element types of matrices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MatrixType {
    F16,
    Bf16,
    Tf32,
    F32,
    F64,
    U8,
    S8,
    U4,
    S4,
    S32,
    E4m3,
    E5m2,
    B1,
}

/// `mma.sync`: D = A B + C.
#[derive(Debug)]
pub(crate) struct Mma {
    pub(crate) m: u32,
    pub(crate) n: u32,
    pub(crate) k: u32,
    pub(crate) a_type: MatrixType,
    pub(crate) b_type: MatrixType,
    /// Type of C and D.
    pub(crate) c_type: MatrixType,
    pub(crate) d_type: MatrixType,
    pub(crate) saturate: bool,
    /// One-bit matrices: multiply by AND instead of XOR.
    pub(crate) bit_and: bool,
    pub(crate) d: Vec<Reg>,
    pub(crate) a: Vec<Src>,
    pub(crate) b: Vec<Src>,
    pub(crate) c: Vec<Src>,
}

/// Fetches from a texture.
#[derive(Debug)]
pub(crate) struct Tex {
    pub(crate) dimensions: u32,
    /// The first coordinate is a layer.
    pub(crate) is_array: bool,
    pub(crate) float_coords: bool,
    pub(crate) result: crate::text::ast::Type,
    pub(crate) d: Vec<Reg>,
    pub(crate) handle: Src,
    pub(crate) coords: Vec<Src>,
    /// `tld4`: the component gathered from four texels.
    pub(crate) gather: Option<u32>,
}

/// What an instruction does.
pub(crate) enum Op {
    Alu {
        f: Alu,
        d: Reg,
        s: [Src; 3],
    },
    Carry {
        f: Carry,
        d: Reg,
        s: [Src; 3],
        reads: bool,
        writes: bool,
        bits: u32,
    },
    Mov {
        d: Reg,
        s: Src,
    },
    /// Joins parts of `bits` each, lowest first; more than 64 bits fill further registers.
    Pack {
        d: Reg,
        parts: Vec<Src>,
        bits: u32,
    },
    /// Cuts a value into parts; a part per register, `None` is dropped.
    Unpack {
        d: Vec<Option<Reg>>,
        s: [Src; 2],
        bits: u32,
    },
    Special {
        d: Reg,
        what: Special,
        add: u64,
    },
    Test {
        f: Test,
        p: Pred,
        q: Pred,
        s: [Src; 2],
        with: Option<(Logic, PredSrc)>,
    },
    /// Two tests at once, of the halves of packed operands.
    TestPair {
        f: [Test; 2],
        p: Pred,
        q: Pred,
        s: [Src; 2],
        with: Option<(Logic, PredSrc)>,
    },
    Set {
        f: Test,
        d: Reg,
        s: [Src; 2],
        with: Option<(Logic, PredSrc)>,
        value: u64,
    },
    SetPair {
        f: [Test; 2],
        d: Reg,
        s: [Src; 2],
        with: Option<(Logic, PredSrc)>,
        value: u64,
    },
    Select {
        d: Reg,
        p: PredSrc,
        s: [Src; 2],
    },
    Predicate {
        op: Logic,
        d: Pred,
        a: PredSrc,
        b: PredSrc,
    },
    IsSpace {
        d: Pred,
        place: Place,
        s: Src,
    },
    Load {
        d: Vec<Reg>,
        address: Address,
        element: Element,
    },
    Store {
        s: Vec<Src>,
        address: Address,
        element: Element,
    },
    /// Copies `bytes` to shared memory from global memory, of which `source` are read.
    CopyAsync {
        to: Address,
        from: Address,
        bytes: u32,
        source: Option<Src>,
    },
    Atomic {
        d: Option<Reg>,
        address: Address,
        request: Atomic,
        s: [Src; 2],
    },
    Barrier {
        id: Src,
        count: Option<Src>,
        op: BarrierOp,
    },
    WarpBarrier {
        members: Src,
    },
    Shuffle {
        way: Shuffle,
        d: Reg,
        p: Pred,
        s: [Src; 3],
        members: Option<Src>,
    },
    VotePred {
        vote: Vote,
        d: Pred,
        p: PredSrc,
        members: Option<Src>,
    },
    Ballot {
        d: Reg,
        p: PredSrc,
        members: Option<Src>,
    },
    ActiveMask {
        d: Reg,
    },
    Match {
        all: bool,
        d: Reg,
        p: Pred,
        s: Src,
        bits: u32,
        members: Src,
    },
    Redux {
        op: Reduce,
        d: Reg,
        s: Src,
        members: Src,
    },
    Elect {
        d: Reg,
        p: Pred,
        members: Src,
    },
    Mma(Box<Mma>),
    LoadMatrix {
        d: Vec<Reg>,
        address: Address,
        transposed: bool,
    },
    StoreMatrix {
        s: Vec<Src>,
        address: Address,
        transposed: bool,
    },
    MoveMatrix {
        d: Reg,
        s: Src,
    },
    Tex(Box<Tex>),
    /// `txq`: something about a texture.
    TexQuery {
        d: Reg,
        handle: Src,
        what: TexQuery,
    },
    Branch {
        to: u32,
    },
    BranchIndexed {
        s: Src,
        to: Vec<u32>,
    },
    Call(Box<Call>),
    Return,
    Exit,
    Trap,
    /// Lets other threads go first.
    Yield,
    Nop,
    /// Index into the module's messages.
    Unsupported(u32),
    /// `__assertfail`, with the addresses of message, file and line's value.
    Assert {
        message: Src,
        file: Src,
        line: Src,
    },
}

/// What `txq` asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TexQuery {
    Width,
    Height,
    Depth,
    Normalized,
}

impl fmt::Debug for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Op")
    }
}

/// A function after decoding.
#[derive(Debug, Clone, Default)]
pub(crate) struct FunctionCode {
    pub(crate) name: String,
    pub(crate) entry: u32,
    pub(crate) registers: u32,
    pub(crate) predicates: u32,
    pub(crate) frame_bytes: u32,
    /// Where results and parameters lie; results first.
    pub(crate) returns: Vec<Formal>,
    pub(crate) params: Vec<Formal>,
    /// False for a function that was only declared.
    pub(crate) is_defined: bool,
}

/// A formal parameter or result: in the frame, or in a register.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Formal {
    Frame { offset: u32, size: u32 },
    Reg { slot: Reg, size: u32 },
}

/// A constant that instructions read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Constant {
    Value(u64),
    /// Address of a variable, and bytes added.
    Global(u32, i64),
    /// Handle of a named texture.
    Texture(u32),
}

/// All functions' instructions.
#[derive(Debug, Default)]
pub(crate) struct Code {
    pub(crate) insts: Vec<Inst>,
    /// Begin and end of each instruction in `text`.
    pub(crate) spans: Vec<(u32, u32)>,
    /// (first instruction, file, line), in order of instructions.
    pub(crate) locations: Vec<(u32, u32, u32)>,
    pub(crate) files: Vec<(u32, String)>,
    pub(crate) functions: Vec<FunctionCode>,
    pub(crate) constants: Vec<Constant>,
    pub(crate) messages: Vec<String>,
    pub(crate) text: String,
}

impl Code {
    pub(crate) fn unsupported(&self) -> impl Iterator<Item = (u32, &str)> {
        self.insts.iter().filter_map(|inst| match inst.op {
            Op::Unsupported(message) => {
                let message = self.messages.get(message as usize)?;
                Some((inst.line, message.as_str()))
            }
            _ => None,
        })
    }

    /// The constants with addresses filled in.
    pub(crate) fn link(&self, addresses: &[u64], textures: &[u64]) -> Vec<Lanes> {
        let of = |list: &[u64], index: u32| list.get(index as usize).copied().unwrap_or(0);
        self.constants
            .iter()
            .map(|constant| match *constant {
                Constant::Value(value) => [value; WARP],
                Constant::Global(index, addend) => {
                    [of(addresses, index).wrapping_add_signed(addend); WARP]
                }
                Constant::Texture(index) => [of(textures, index); WARP],
            })
            .collect()
    }

    /// The text of an instruction in one line, shortened.
    pub(crate) fn instruction(&self, pc: u32) -> String {
        let (begin, end) = self.spans.get(pc as usize).copied().unwrap_or((0, 0));
        let text = self.text.get(begin as usize..end as usize).unwrap_or("");
        let end = text.find(';').unwrap_or(text.len());
        let words: Vec<&str> = text[..end].split_whitespace().collect();
        crate::text::lex::shorten(&words.join(" ")).to_owned()
    }

    /// Source file and line from the nearest `.loc` before the instruction, in its function.
    pub(crate) fn source(&self, pc: u32) -> Option<(String, u32)> {
        let after = self.locations.partition_point(|&(first, ..)| first <= pc);
        let &(first, file, line) = self.locations.get(after.checked_sub(1)?)?;
        let entry = self
            .functions
            .iter()
            .map(|f| f.entry)
            .filter(|&e| e <= pc)
            .max()?;
        if first < entry {
            return None;
        }
        let (_, name) = self.files.iter().find(|(number, _)| *number == file)?;
        Some((name.clone(), line))
    }
}

impl Atomic {
    /// A request without operands, to be filled in for each lane.
    pub(crate) fn shape(width: Width, op: AtomicOp) -> Atomic {
        Atomic {
            width,
            op,
            operand: 0,
            compare: 0,
        }
    }
}
