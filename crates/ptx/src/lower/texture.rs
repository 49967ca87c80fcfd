//! Texture fetches.

use super::function::Body;
use super::modifiers::Modifiers;
use crate::inst::{Op, Tex, TexQuery};
use crate::text::ast::{Operand, Type};

impl<'t> Body<'_, 't> {
    pub(crate) fn texture(
        &mut self,
        opcode: &str,
        operands: &[Operand<'t>],
        mods: &mut Modifiers<'_>,
    ) -> Result<Op, String> {
        if opcode == "txq" {
            return self.tex_query(operands, mods);
        }
        let (dimensions, is_array) = mods
            .find(|word| {
                Some(match word {
                    "1d" => (1, false),
                    "2d" => (2, false),
                    "3d" => (3, false),
                    "a1d" => (1, true),
                    "a2d" => (2, true),
                    _ => return None,
                })
            })
            .ok_or("only 1, 2 and 3 dimensions and arrays")?;
        let gather = (opcode == "tld4")
            .then(|| mods.find(|word| "rgba".find(word).filter(|_| word.len() == 1)))
            .flatten();
        if !mods.take("v4") {
            return Err("only four results".into());
        }
        let (result, by) = (mods.ty()?, mods.ty()?);
        if opcode == "tld4" && gather.is_none() {
            return Err("no component".into());
        }
        let [Operand::Vector(d), Operand::Bracket(place), rest @ ..] = operands else {
            return Err("a vector and a texture expected".into());
        };
        if !rest.is_empty() {
            return Err("offsets and comparison".into());
        }
        let (handle, coords) = place_of(place)?;
        let count = dimensions as usize + usize::from(is_array);
        if coords.len() < count || d.len() != 4 {
            return Err("too few coordinates or results".into());
        }
        let mut sources = Vec::new();
        for (index, coord) in coords[..count].iter().enumerate() {
            let ty = if is_array && index == 0 {
                Type::U(32)
            } else {
                by
            };
            sources.push(self.src(coord, ty)?);
        }
        let d = d
            .iter()
            .map(|d| Ok(self.dst(d)?.0))
            .collect::<Result<Vec<_>, String>>()?;
        Ok(Op::Tex(Box::new(Tex {
            dimensions,
            is_array,
            float_coords: by == Type::F(32),
            result,
            d,
            handle: self.src(handle, Type::U(64))?,
            coords: sources,
            gather: gather.map(|component| component as u32),
        })))
    }

    fn tex_query(
        &mut self,
        operands: &[Operand<'t>],
        mods: &mut Modifiers<'_>,
    ) -> Result<Op, String> {
        let what = mods
            .find(|word| {
                Some(match word {
                    "width" => TexQuery::Width,
                    "height" => TexQuery::Height,
                    "depth" => TexQuery::Depth,
                    "normalized_coords" => TexQuery::Normalized,
                    _ => return None,
                })
            })
            .ok_or("no such property")?;
        mods.take("b32");
        let [d, Operand::Bracket(place)] = operands else {
            return Err("a register and a texture expected".into());
        };
        let handle = self.src(place.first().ok_or("no texture")?, Type::U(64))?;
        Ok(Op::TexQuery {
            d: self.dst(d)?.0,
            handle,
            what,
        })
    }
}

/// The texture and the coordinates of an operand. With a sampler apart, the texture's own
/// description holds for both.
fn place_of<'o, 't>(
    place: &'o [Operand<'t>],
) -> Result<(&'o Operand<'t>, &'o [Operand<'t>]), String> {
    let (handle, coords) = match place {
        [handle, coords] | [handle, _, coords] => (handle, coords),
        _ => return Err("a texture and coordinates expected".into()),
    };
    Ok(match coords {
        Operand::Vector(list) => (handle, &list[..]),
        other => (handle, std::slice::from_ref(other)),
    })
}
