//! Texture instructions.

use super::call::lanes_of;
use super::{Outcome, Runner, fault};
use crate::inst::{Reg, Src, Tex, TexQuery, WARP};
use crate::num::float;
use crate::num::soft::{F16, Round};
use crate::text::ast::Type;
use crate::texture::{self, Texel, Texture};
use crate::{ErrorKind, Memory};

impl<M: Memory> Runner<'_, M> {
    pub(crate) fn fetch(&mut self, mask: u32, tex: &Tex) -> Outcome<()> {
        let mut out = [[0; WARP]; 4];
        for lane in lanes_of(mask) {
            let texture = self.texture(tex.handle, lane)?;
            let mut coords = [0f64; 3];
            for (axis, &src) in tex.coords.iter().enumerate() {
                let bits = self.warp.lane(self.constants, src, lane) as u32;
                let is_float = tex.float_coords && !(tex.is_array && axis == 0);
                coords[axis] = if is_float {
                    f64::from(f32::from_bits(bits))
                } else {
                    f64::from(bits as i32)
                };
            }
            let at = texture::Fetch {
                layer: if tex.is_array { Some(coords[0]) } else { None },
                coords: if tex.is_array {
                    [coords[1], coords[2], 0.0]
                } else {
                    coords
                },
                dimensions: tex.dimensions,
                float_coords: tex.float_coords,
                gather: tex.gather,
            };
            match texture::fetch(self.memory, &texture, &at) {
                Ok(texel) => {
                    for (channel, value) in texel.into_iter().enumerate() {
                        out[channel][lane] = result_bits(value, tex.result);
                    }
                }
                Err((address, error)) => {
                    return fault(ErrorKind::of_memory(error, address, 4), Some(lane));
                }
            }
        }
        for (&d, value) in tex.d.iter().zip(&out) {
            self.warp.write(d, mask, value);
        }
        Ok(())
    }

    fn texture(&self, handle: Src, lane: usize) -> Outcome<Texture> {
        let handle = self.warp.lane(self.constants, handle, lane);
        match self.memory.texture(handle) {
            Some(texture) => Ok(texture),
            None => fault(ErrorKind::Texture(handle), Some(lane)),
        }
    }

    pub(crate) fn tex_query(
        &mut self,
        mask: u32,
        d: Reg,
        handle: Src,
        what: TexQuery,
    ) -> Outcome<()> {
        let texture = self.texture(handle, mask.trailing_zeros() as usize)?;
        let value = match what {
            TexQuery::Width => texture.width,
            TexQuery::Height => texture.height,
            TexQuery::Depth => texture.depth,
            TexQuery::Normalized => u32::from(texture.normalized),
        };
        self.warp.write(d, mask, &[u64::from(value); WARP]);
        Ok(())
    }
}

fn result_bits(value: Texel, ty: Type) -> u64 {
    match (value, ty) {
        (Texel::Float(value), Type::F(16)) => float::narrow(f64::from(value), F16, Round::Nearest),
        (Texel::Float(value), _) => u64::from(value.to_bits()),
        (Texel::Integer(value), Type::F(32)) => u64::from((value as f32).to_bits()),
        (Texel::Integer(value), _) => u64::from(value as u32),
    }
}
