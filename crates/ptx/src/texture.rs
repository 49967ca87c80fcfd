//! Textures: what a handle stands for, and how a fetch reads and filters it.
//!
//! Source: CUDA C++ Programming Guide, "Texture Fetching": coordinates, address modes, and linear
//! filtering with weights of 8 fractional bits.

use crate::{Memory, MemoryError};

/// Type of one component in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// Unsigned 8 bits.
    U8,
    /// Unsigned 16 bits.
    U16,
    /// Unsigned 32 bits.
    U32,
    /// Signed 8 bits.
    S8,
    /// Signed 16 bits.
    S16,
    /// Signed 32 bits.
    S32,
    /// `f16`
    F16,
    /// `f32`
    F32,
}

/// What happens outside the texture.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AddressMode {
    /// Repeats; normalised coordinates only, otherwise as `Clamp`.
    Wrap,
    /// The nearest texel inside.
    Clamp,
    /// Repeats, every second time mirrored; normalised coordinates only.
    Mirror,
    /// Zero.
    Border,
}

/// Everything a fetch needs to know. `height` and `depth` are 1 for fewer dimensions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Texture {
    /// Address of the first texel in device memory.
    pub address: u64,
    /// Texels in a row.
    pub width: u32,
    /// Rows.
    pub height: u32,
    /// Slices, or layers of an array.
    pub depth: u32,
    /// Bytes from row to row.
    pub pitch: u64,
    /// Bytes from slice to slice.
    pub slice: u64,
    /// Type of a component.
    pub format: Format,
    /// Components of a texel: 1, 2 or 4.
    pub channels: u32,
    /// Per dimension.
    pub address_mode: [AddressMode; 3],
    /// Linear filtering instead of the nearest texel.
    pub linear: bool,
    /// Coordinates run from 0 to 1.
    pub normalized: bool,
    /// Integers are returned as they are (`CU_TRSF_READ_AS_INTEGER`); otherwise 8- and 16-bit
    /// integers are returned as floats in 0..1 or -1..1.
    pub as_integer: bool,
}
