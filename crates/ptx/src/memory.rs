//! Device memory as the interpreter sees it: a trait that the loader implements.
//!
//! Global and constant variables, and everything that a program allocates, live behind [`Memory`].
//! Shared, local and parameter memory belong to the interpreter. Several workers run blocks of one
//! launch at a time, so implementations take `&self` and must tolerate races between blocks as a
//! device does: bytes may be old or new, never out of range.

use crate::num::atomic;
use crate::texture::Texture;

/// Why an access to device memory failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum MemoryError {
    /// Not wholly inside one live allocation.
    #[error("out of range")]
    Range,
    /// A store to memory that may only be read.
    #[error("read only")]
    ReadOnly,
    /// An atomic at an address that is no multiple of its width.
    #[error("misaligned")]
    Misaligned,
}

/// Width of an atomic operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Width {
    /// 16 bits.
    B16,
    /// 32 bits.
    B32,
    /// 64 bits.
    B64,
}

impl Width {
    /// Length in bytes.
    pub fn bytes(self) -> u32 {
        match self {
            Width::B16 => 2,
            Width::B32 => 4,
            Width::B64 => 8,
        }
    }
}

/// What an atomic operation stores in place of the value it finds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum AtomicOp {
    /// The sum of integers, wrapping.
    Add,
    /// The smaller of unsigned integers.
    MinU,
    /// The larger of unsigned integers.
    MaxU,
    /// The smaller of signed integers.
    MinS,
    /// The larger of signed integers.
    MaxS,
    /// Bits in both.
    And,
    /// Bits in either.
    Or,
    /// Bits in one of both.
    Xor,
    /// The operand.
    Exchange,
    /// The operand if the value equals `compare`, otherwise the value.
    CompareSwap,
    /// `old >= operand ? 0 : old + 1`.
    Inc,
    /// `old == 0 || old > operand ? operand : old - 1`.
    Dec,
    /// The sum of `f32`.
    AddF32,
    /// The sum of `f64`.
    AddF64,
    /// The sum of `f16`.
    AddF16,
    /// The sums of two `f16`.
    AddF16x2,
    /// The sum of `bf16`.
    AddBf16,
    /// The sums of two `bf16`.
    AddBf16x2,
    /// The smaller of `f16` (in 16 bits) or of both halves (in 32).
    MinF16,
    /// The larger of `f16` (in 16 bits) or of both halves (in 32).
    MaxF16,
    /// The smaller of `bf16` (in 16 bits) or of both halves (in 32).
    MinBf16,
    /// The larger of `bf16` (in 16 bits) or of both halves (in 32).
    MaxBf16,
}

/// One atomic read-modify-write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Atomic {
    /// Width of the value in memory.
    pub width: Width,
    /// What is stored.
    pub op: AtomicOp,
    /// The operand, in the low bits.
    pub operand: u64,
    /// What [`AtomicOp::CompareSwap`] compares with.
    pub compare: u64,
}

impl Atomic {
    /// The value to store where `old` is found. Pure: a loader calls it in a compare-exchange loop.
    pub fn apply(&self, old: u64) -> u64 {
        atomic::apply(self, old)
    }
}

/// Device memory. Addresses are those that the program sees (`CUdeviceptr`); little endian.
pub trait Memory: Sync {
    /// Fills `out` from `address`.
    fn load(&self, address: u64, out: &mut [u8]) -> Result<(), MemoryError>;

    /// Writes `bytes` at `address`.
    fn store(&self, address: u64, bytes: &[u8]) -> Result<(), MemoryError>;

    /// Does `request` at `address` as one indivisible step; returns the value found.
    fn atomic(&self, address: u64, request: Atomic) -> Result<u64, MemoryError>;

    /// The texture of a handle (`CUtexObject`, or what the loader gave a `.texref`).
    fn texture(&self, handle: u64) -> Option<Texture> {
        let _ = handle;
        None
    }

    /// Loads one byte. Implementations may override the fixed widths with something faster.
    fn load_u8(&self, address: u64) -> Result<u8, MemoryError> {
        let mut bytes = [0; 1];
        self.load(address, &mut bytes)?;
        Ok(bytes[0])
    }

    /// Loads two bytes.
    fn load_u16(&self, address: u64) -> Result<u16, MemoryError> {
        let mut bytes = [0; 2];
        self.load(address, &mut bytes)?;
        Ok(u16::from_le_bytes(bytes))
    }

    /// Loads four bytes.
    fn load_u32(&self, address: u64) -> Result<u32, MemoryError> {
        let mut bytes = [0; 4];
        self.load(address, &mut bytes)?;
        Ok(u32::from_le_bytes(bytes))
    }

    /// Loads eight bytes.
    fn load_u64(&self, address: u64) -> Result<u64, MemoryError> {
        let mut bytes = [0; 8];
        self.load(address, &mut bytes)?;
        Ok(u64::from_le_bytes(bytes))
    }

    /// Stores one byte.
    fn store_u8(&self, address: u64, value: u8) -> Result<(), MemoryError> {
        self.store(address, &[value])
    }

    /// Stores two bytes.
    fn store_u16(&self, address: u64, value: u16) -> Result<(), MemoryError> {
        self.store(address, &value.to_le_bytes())
    }

    /// Stores four bytes.
    fn store_u32(&self, address: u64, value: u32) -> Result<(), MemoryError> {
        self.store(address, &value.to_le_bytes())
    }

    /// Stores eight bytes.
    fn store_u64(&self, address: u64, value: u64) -> Result<(), MemoryError> {
        self.store(address, &value.to_le_bytes())
    }
}
