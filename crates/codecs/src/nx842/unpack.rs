//! Reads 842. Format: [`super`].

use narrows_core::DecodeError;

use super::{END, INDEX_8, PHRASE, REPEAT, RING_2, RING_4, RING_8, Ring, SHORT, ZEROS, crc32_be};

pub(super) fn unpack(packed: &[u8], out: &mut [u8]) -> Result<(), DecodeError> {
    let mut reader = Reader { packed, bit: 0 };
    let wrong = |reader: &Reader<'_>, what| {
        Err(DecodeError::corrupt(packed.len().min(reader.bit / 8), what))
    };
    match run(&mut reader, out) {
        Some(written) if written == out.len() => {}
        Some(_) => return wrong(&reader, "842 chunk of another length"),
        None => return wrong(&reader, "not an 842 chunk"),
    }
    let Some(crc) = reader.read(32) else {
        return wrong(&reader, "842 chunk without its CRC");
    };
    if crc != u64::from(crc32_be(out)) {
        return wrong(&reader, "842 CRC differs");
    }
    let padding = &packed[reader.bit.div_ceil(8)..];
    if padding.len() >= 8 || padding.iter().any(|&byte| byte != 0) {
        return wrong(&reader, "bytes after the 842 chunk");
    }
    Ok(())
}

/// Follows the templates to the end and returns how many bytes they made; `None` at the first that is wrong.
fn run(reader: &mut Reader<'_>, out: &mut [u8]) -> Option<usize> {
    let mut at = 0;
    loop {
        let template = reader.read(5)?;
        match template {
            END => return Some(at),
            SHORT => {
                let len = reader.read(3)? as usize;
                if len == 0 {
                    return None;
                }
                for byte in out.get_mut(at..)?.get_mut(..len)? {
                    *byte = reader.read(8)? as u8;
                }
                at += len;
                // Rings count whole phrases, so nothing can follow a part of one.
                return (reader.read(5)? == END).then_some(at);
            }
            ZEROS => {
                out.get_mut(at..at + PHRASE)?.fill(0);
                at += PHRASE;
            }
            REPEAT => {
                let phrase = at.checked_sub(PHRASE)?;
                for _ in 0..=reader.read(6)? {
                    out.get(at..at + PHRASE)?;
                    out.copy_within(phrase..at.min(phrase + PHRASE), at);
                    at += PHRASE;
                }
            }
            INDEX_8 => {
                out.get(at..at + PHRASE)?;
                index(reader, out, at, at, RING_8)?;
                at += PHRASE;
            }
            0..INDEX_8 => {
                out.get(at..at + PHRASE)?;
                half(reader, out, template / 5, at, at)?;
                half(reader, out, template % 5, at + 4, at)?;
                at += PHRASE;
            }
            _ => return None,
        }
    }
}

/// Fills `out[at..at + 4]`, in the phrase that began at `written`.
#[inline]
fn half(
    reader: &mut Reader<'_>,
    out: &mut [u8],
    form: u64,
    at: usize,
    written: usize,
) -> Option<()> {
    match form {
        0 => out[at..at + 4].copy_from_slice(&(reader.read(32)? as u32).to_be_bytes()),
        1 => {
            out[at..at + 2].copy_from_slice(&(reader.read(16)? as u16).to_be_bytes());
            index(reader, out, at + 2, written, RING_2)?;
        }
        2 => {
            index(reader, out, at, written, RING_2)?;
            out[at + 2..at + 4].copy_from_slice(&(reader.read(16)? as u16).to_be_bytes());
        }
        3 => {
            index(reader, out, at, written, RING_2)?;
            index(reader, out, at + 2, written, RING_2)?;
        }
        _ => index(reader, out, at, written, RING_4)?,
    }
    Some(())
}

/// Copies the unit an index names to `out[at..]`.
#[inline(always)]
fn index(
    reader: &mut Reader<'_>,
    out: &mut [u8],
    at: usize,
    written: usize,
    ring: Ring,
) -> Option<()> {
    let from = ring.position(reader.read(ring.bits)? as usize, written)?;
    let (earlier, later) = out.split_at_mut(at);
    // Each width by a move of its own: a call of memmove for two bytes takes longer than they do.
    match ring.unit {
        2 => later[..2].copy_from_slice(&earlier[from..from + 2]),
        4 => later[..4].copy_from_slice(&earlier[from..from + 4]),
        _ => later[..8].copy_from_slice(&earlier[from..from + 8]),
    }
    Some(())
}

/// Reads bits, highest first.
struct Reader<'a> {
    packed: &'a [u8],
    bit: usize,
}

impl Reader<'_> {
    /// The next `bits` bits, at most 32.
    #[inline]
    fn read(&mut self, bits: u32) -> Option<u64> {
        let at = self.bit / 8;
        let eight = match self.packed.get(at..at + 8) {
            Some(eight) => u64::from_be_bytes(eight.try_into().expect("eight bytes")),
            None => {
                if self.bit + bits as usize > 8 * self.packed.len() {
                    return None;
                }
                let rest = &self.packed[at..];
                let mut eight = [0; 8];
                eight[..rest.len()].copy_from_slice(rest);
                u64::from_be_bytes(eight)
            }
        };
        let value = (eight << (self.bit % 8)) >> (64 - bits);
        self.bit += bits as usize;
        Some(value)
    }
}
