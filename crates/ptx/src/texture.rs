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

/// One component of a fetch.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Texel {
    Float(f32),
    Integer(i64),
}

/// Where a fetch looks.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Fetch {
    pub(crate) layer: Option<f64>,
    pub(crate) coords: [f64; 3],
    pub(crate) dimensions: u32,
    pub(crate) float_coords: bool,
    pub(crate) gather: Option<u32>,
}

/// Address and reason of a failed access.
type Failed = (u64, MemoryError);

/// Fetches a texel, filtered as the texture says.
pub(crate) fn fetch(
    memory: &impl Memory,
    texture: &Texture,
    at: &Fetch,
) -> Result<[Texel; 4], Failed> {
    let sizes = [texture.width, texture.height, texture.depth];
    let mut coords = at.coords;
    for axis in 0..3 {
        if axis >= at.dimensions as usize {
            coords[axis] = 0.0;
        } else if texture.normalized && at.float_coords {
            coords[axis] =
                normalised(coords[axis], texture.address_mode[axis]) * f64::from(sizes[axis]);
        }
    }
    let layer = at.layer.map(|layer| {
        let last = f64::from(texture.depth.max(1) - 1);
        layer.round_ties_even().clamp(0.0, last) as i64
    });
    if let Some(component) = at.gather {
        return gather(memory, texture, coords, component);
    }
    // Integer coordinates name texels; nothing is filtered.
    if !texture.linear || !at.float_coords || texture.is_integer() {
        let mut place = coords.map(|c| c.floor() as i64);
        if let Some(layer) = layer {
            place[2] = layer;
        }
        return texel(memory, texture, place, at.dimensions);
    }
    linear(memory, texture, coords, (at.dimensions, layer))
}

impl Texture {
    fn is_integer(&self) -> bool {
        let is_float = matches!(self.format, Format::F16 | Format::F32);
        let is_wide = matches!(self.format, Format::U32 | Format::S32);
        !is_float && (self.as_integer || is_wide)
    }
}

/// Wraps a normalised coordinate into 0..1 where the mode says so.
fn normalised(coord: f64, mode: AddressMode) -> f64 {
    match mode {
        AddressMode::Wrap => coord - coord.floor(),
        AddressMode::Mirror => {
            let whole = coord.floor();
            let fraction = coord - whole;
            if whole.rem_euclid(2.0) == 0.0 {
                fraction
            } else {
                1.0 - fraction
            }
        }
        _ => coord,
    }
}

/// Weighs 2, 4 or 8 texels around a place. Weights have 8 fractional bits, as on a device.
fn linear(
    memory: &impl Memory,
    texture: &Texture,
    coords: [f64; 3],
    (dimensions, layer): (u32, Option<i64>),
) -> Result<[Texel; 4], Failed> {
    let mut base = [0i64; 3];
    let mut weight = [0f64; 3];
    for axis in 0..dimensions as usize {
        let centred = coords[axis] - 0.5;
        base[axis] = centred.floor() as i64;
        weight[axis] = ((centred - centred.floor()) * 256.0).round_ties_even() / 256.0;
    }
    let mut sums = [0f64; 4];
    for corner in 0..1u32 << dimensions {
        let mut place = base;
        let mut share = 1.0;
        for axis in 0..dimensions as usize {
            let is_next = corner >> axis & 1 != 0;
            place[axis] = place[axis].saturating_add(i64::from(is_next));
            share *= if is_next {
                weight[axis]
            } else {
                1.0 - weight[axis]
            };
        }
        if share == 0.0 {
            continue;
        }
        if let Some(layer) = layer {
            place[2] = layer;
        }
        let texel = texel(memory, texture, place, dimensions)?;
        for (sum, value) in sums.iter_mut().zip(texel) {
            if let Texel::Float(value) = value {
                *sum += share * f64::from(value);
            }
        }
    }
    Ok(sums.map(|sum| Texel::Float(sum as f32)))
}

/// One component of the four texels around a place, in the order of `tld4`.
fn gather(
    memory: &impl Memory,
    texture: &Texture,
    coords: [f64; 3],
    component: u32,
) -> Result<[Texel; 4], Failed> {
    let base = coords.map(|c| (c - 0.5).floor() as i64);
    let mut out = [Texel::Float(0.0); 4];
    for (place, (dx, dy)) in out.iter_mut().zip([(0, 1), (1, 1), (1, 0), (0, 0)]) {
        let at = [base[0].saturating_add(dx), base[1].saturating_add(dy), 0];
        *place = texel(memory, texture, at, 2)?[(component & 3) as usize];
    }
    Ok(out)
}

/// Reads one texel; components that it lacks are 0.
fn texel(
    memory: &impl Memory,
    texture: &Texture,
    place: [i64; 3],
    dimensions: u32,
) -> Result<[Texel; 4], Failed> {
    let is_integer = texture.is_integer();
    let zero = if is_integer {
        Texel::Integer(0)
    } else {
        Texel::Float(0.0)
    };
    let sizes = [texture.width, texture.height, texture.depth];
    let mut inside = [0u64; 3];
    for axis in 0..3 {
        let last = i64::from(sizes[axis].max(1)) - 1;
        let is_outside = !(0..=last).contains(&place[axis]);
        if is_outside && axis < dimensions as usize {
            match texture.address_mode[axis] {
                AddressMode::Border => return Ok([zero; 4]),
                AddressMode::Wrap if texture.normalized => {
                    inside[axis] = place[axis].rem_euclid(last + 1) as u64;
                    continue;
                }
                AddressMode::Mirror if texture.normalized => {
                    let at = place[axis].rem_euclid(2 * (last + 1));
                    inside[axis] = at.min(2 * last + 1 - at) as u64;
                    continue;
                }
                _ => {}
            }
        }
        inside[axis] = place[axis].clamp(0, last) as u64;
    }
    let bytes = texture.format.bytes();
    let channels = texture.channels.clamp(1, 4) as usize;
    let address = texture
        .address
        .wrapping_add(inside[2].wrapping_mul(texture.slice))
        .wrapping_add(inside[1].wrapping_mul(texture.pitch))
        .wrapping_add(inside[0].wrapping_mul(bytes as u64 * channels as u64));
    let mut raw = [0; 16];
    let raw = &mut raw[..bytes * channels];
    memory
        .load(address, raw)
        .map_err(|error| (address, error))?;
    let mut out = [zero; 4];
    for (value, raw) in out.iter_mut().zip(raw.chunks_exact(bytes)) {
        *value = component(raw, texture.format, is_integer);
    }
    Ok(out)
}

impl Format {
    fn bytes(self) -> usize {
        match self {
            Format::U8 | Format::S8 => 1,
            Format::U16 | Format::S16 | Format::F16 => 2,
            Format::U32 | Format::S32 | Format::F32 => 4,
        }
    }
}

fn component(raw: &[u8], format: Format, as_integer: bool) -> Texel {
    let mut bytes = [0; 4];
    bytes[..raw.len()].copy_from_slice(raw);
    let bits = u32::from_le_bytes(bytes);
    let (value, most) = match format {
        Format::U8 => (i64::from(bits), 255.0),
        Format::U16 => (i64::from(bits), 65535.0),
        Format::U32 => (i64::from(bits), 1.0),
        Format::S8 => (i64::from(bits as i8), 127.0),
        Format::S16 => (i64::from(bits as i16), 32767.0),
        Format::S32 => (i64::from(bits as i32), 1.0),
        Format::F16 => {
            let value = crate::num::float::widen(u64::from(bits), crate::num::soft::F16);
            return Texel::Float(value as f32);
        }
        Format::F32 => return Texel::Float(f32::from_bits(bits)),
    };
    if as_integer {
        Texel::Integer(value)
    } else {
        Texel::Float((value as f64 / most).max(-1.0) as f32)
    }
}
