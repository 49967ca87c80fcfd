//! Reads LZO1X. Format: the table in [`super`].

use narrows_core::DecodeError;

use super::M3_DISTANCE_MAX;
use crate::lz::{copy_literals, copy_match};

pub(super) fn unpack(packed: &[u8], out: &mut [u8]) -> Result<(), DecodeError> {
    let mut reader = Reader { packed, at: 0 };
    match run(&mut reader, out) {
        Some(len) if len == out.len() && reader.at == packed.len() => Ok(()),
        Some(_) => Err(DecodeError::corrupt(
            reader.at,
            "LZO1X chunk of another length",
        )),
        None => Err(DecodeError::corrupt(
            reader.at.min(packed.len()),
            "not an LZO1X chunk",
        )),
    }
}

/// Follows the instructions to the end mark and returns how many bytes they made; `None` at the first that is wrong.
fn run(reader: &mut Reader<'_>, out: &mut [u8]) -> Option<usize> {
    let mut written = 0;
    // Literals that went just before the instruction at hand: 0 to 3, or 4 for a run.
    let mut state = 0;
    if let first @ 18.. = *reader.packed.first()? {
        reader.at = 1;
        let len = usize::from(first) - 17;
        reader.literals(out, written, len)?;
        written += len;
        state = len.min(4);
    }
    loop {
        let op = usize::from(reader.byte()?);
        let (distance, len, trailing) = match op {
            64.. => {
                let distance = (usize::from(reader.byte()?) << 3) + ((op >> 2) & 7) + 1;
                (distance, (op >> 5) + 1, op & 3)
            }
            32..64 => {
                let len = reader.length(op & 31, 31)? + 2;
                let field = reader.le16()?;
                ((field >> 2) + 1, len, field & 3)
            }
            16..32 => {
                let len = reader.length(op & 7, 7)? + 2;
                let field = reader.le16()?;
                let distance = ((op & 8) << 11) + (field >> 2);
                if distance == 0 {
                    return (len == 3 && field == 0).then_some(written);
                }
                (distance + M3_DISTANCE_MAX, len, field & 3)
            }
            _ if state == 0 => {
                let len = reader.length(op, 15)? + 3;
                reader.literals(out, written, len)?;
                written += len;
                state = 4;
                continue;
            }
            _ => {
                let distance = (usize::from(reader.byte()?) << 2) + (op >> 2) + 1;
                if state == 4 {
                    (distance + 2048, 3, op & 3)
                } else {
                    (distance, 2, op & 3)
                }
            }
        };
        copy_match(out, written, distance, len)?;
        written += len;
        reader.literals(out, written, trailing)?;
        written += trailing;
        state = trailing;
    }
}

struct Reader<'a> {
    packed: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    #[inline]
    fn byte(&mut self) -> Option<u8> {
        let byte = *self.packed.get(self.at)?;
        self.at += 1;
        Some(byte)
    }

    #[inline]
    fn le16(&mut self) -> Option<usize> {
        let bytes = self.take(2)?;
        Some(usize::from(u16::from_le_bytes([bytes[0], bytes[1]])))
    }

    #[inline]
    fn literals(&mut self, out: &mut [u8], written: usize, len: usize) -> Option<()> {
        if len > self.packed.len() - self.at || len > out.len() - written {
            return None;
        }
        copy_literals(out, written, self.packed, self.at, len)?;
        self.at += len;
        Some(())
    }

    #[inline]
    fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let bytes = self.packed.get(self.at..)?.get(..len)?;
        self.at += len;
        Some(bytes)
    }

    /// A length of which the instruction held `field`, whose largest value is `field_max`.
    #[inline]
    fn length(&mut self, field: usize, field_max: usize) -> Option<usize> {
        if field != 0 {
            return Some(field);
        }
        let mut len = field_max;
        loop {
            match self.byte()? {
                0 => len += 255,
                last => return Some(len + usize::from(last)),
            }
        }
    }
}
