//! What is in an image: PTX text, a fatbin of several, or a cubin.
//!
//! Fatbins and cubins are read for what `cuModuleLoadData` needs: PTX to run, or the names and parameters of kernels.
//! All of it comes from a client: every offset is checked.

use narrows_core::{Registry, Workspace};
use narrows_gpu_abi::Status;
use narrows_gpu_wire::Param;

use crate::Failure;

const FATBIN: u32 = 0xba55_ed50;
const ELF: &[u8] = b"\x7fELF";
/// What a link of several inputs looks like, see `docs/specs/gpu.md`.
pub const LINKED: &[u8; 8] = b"NRWLINK1";
/// An entry's kind that is PTX text.
const KIND_PTX: u16 = 1;
const KIND_ELF: u16 = 2;
const PACKED_LZ4: u64 = 0x2000;
const PACKED_ZSTD: u64 = 0x8000;
/// Longest text of a fatbin's entry, unpacked.
const ENTRY_LEN_MAX: u64 = 256 << 20;

/// What was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Content {
    /// Text to parse, of one module or of several that were linked.
    Ptx(Vec<String>),
    /// Machine code: names and parameters of its kernels.
    Cubin(Vec<CubinKernel>),
}

/// A kernel of a cubin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CubinKernel {
    /// As programs ask for it.
    pub name: String,
    /// Its parameters, in order.
    pub params: Vec<Param>,
}

fn bad(text: impl Into<String>) -> Failure {
    Failure::new(Status::INVALID_IMAGE, text)
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    let field = bytes.get(at..at.checked_add(2)?)?;
    Some(u16::from_le_bytes(field.try_into().ok()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    let field = bytes.get(at..at.checked_add(4)?)?;
    Some(u32::from_le_bytes(field.try_into().ok()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    let field = bytes.get(at..at.checked_add(8)?)?;
    Some(u64::from_le_bytes(field.try_into().ok()?))
}

/// Looks into an image.
///
/// # Errors
/// [`Status::INVALID_IMAGE`] for anything that is none.
pub fn read(bytes: &[u8], registry: &Registry) -> Result<Content, Failure> {
    if bytes.starts_with(LINKED) {
        return read_linked(bytes, registry);
    }
    if u32_at(bytes, 0) == Some(FATBIN) {
        return read_fatbin(bytes, registry);
    }
    if bytes.starts_with(ELF) {
        return read_cubin(bytes)
            .ok_or_else(|| bad("a cubin that is cut short or damaged"))
            .map(Content::Cubin);
    }
    Ok(Content::Ptx(vec![read_text(bytes)?]))
}

fn read_text(bytes: &[u8]) -> Result<String, Failure> {
    let end = bytes
        .iter()
        .position(|byte| *byte == 0)
        .unwrap_or(bytes.len());
    let text = std::str::from_utf8(&bytes[..end]).ok();
    text.filter(|text| text.contains(".version"))
        .map(Into::into)
        .ok_or_else(|| bad("an image that is neither PTX, nor a fatbin, nor a cubin"))
}

/// Inputs of a link, each with its length before it.
fn read_linked(bytes: &[u8], registry: &Registry) -> Result<Content, Failure> {
    let mut texts = Vec::new();
    let mut rest = bytes.get(16..).unwrap_or_default();
    while let Some(len) = u64_at(rest, 0) {
        let part = usize::try_from(len)
            .ok()
            .and_then(|len| rest[8..].get(..len))
            .filter(|part| !part.starts_with(LINKED))
            .ok_or_else(|| bad("a link whose inputs are cut short"))?;
        match read(part, registry)? {
            Content::Ptx(more) => texts.extend(more),
            Content::Cubin(_) => {
                let text = "a link of machine code, which only a GPU runs; link PTX here";
                return Err(Failure::new(Status::NOT_SUPPORTED, text));
            }
        }
        rest = &rest[8 + part.len()..];
    }
    Ok(Content::Ptx(texts))
}

/// The newest PTX of a fatbin, or the kernels of its machine code.
fn read_fatbin(bytes: &[u8], registry: &Registry) -> Result<Content, Failure> {
    let short = || bad("a fatbin that is cut short");
    let header_len = usize::from(u16_at(bytes, 6).ok_or_else(short)?);
    let len = usize::try_from(u64_at(bytes, 8).ok_or_else(short)?).map_err(|_| short())?;
    let end = header_len.checked_add(len).ok_or_else(short)?;
    let mut rest = bytes.get(header_len..end).ok_or_else(short)?;
    let (mut ptx, mut cubin) = (None, None);
    while !rest.is_empty() {
        let entry = Entry::read(rest).ok_or_else(short)?;
        rest = &rest[entry.len..];
        match entry.kind {
            KIND_PTX if ptx.as_ref().is_none_or(|(arch, _)| *arch < entry.arch) => {
                ptx = Some((entry.arch, entry));
            }
            KIND_ELF => cubin = Some(entry),
            _ => {}
        }
    }
    if let Some((_, entry)) = ptx {
        return Ok(Content::Ptx(vec![read_text(&entry.unpack(registry)?)?]));
    }
    let entry = cubin.ok_or_else(|| {
        Failure::new(
            Status::NO_BINARY_FOR_GPU,
            "a fatbin without PTX or machine code",
        )
    })?;
    read_cubin(&entry.unpack(registry)?)
        .map(Content::Cubin)
        .ok_or_else(|| bad("a fatbin with damaged machine code"))
}

struct Entry<'a> {
    kind: u16,
    arch: u32,
    flags: u64,
    raw_len: u64,
    payload: &'a [u8],
    len: usize,
}

impl<'a> Entry<'a> {
    fn read(bytes: &'a [u8]) -> Option<Self> {
        let header_len = u32_at(bytes, 4)? as usize;
        let padded = usize::try_from(u64_at(bytes, 8)?).ok()?;
        let len = header_len.checked_add(padded)?;
        let flags = u64_at(bytes, 40)?;
        let packed = flags & (PACKED_LZ4 | PACKED_ZSTD) != 0;
        // Packed entries are padded; their own length is in a field that others leave 0.
        let payload_len = match u32_at(bytes, 16)? as usize {
            len if packed && len > 0 => len.min(padded),
            _ => padded,
        };
        Some(Self {
            kind: u16_at(bytes, 0)?,
            arch: u32_at(bytes, 28)?,
            flags,
            raw_len: u64_at(bytes, 56).unwrap_or(0),
            payload: bytes.get(header_len..header_len.checked_add(payload_len)?)?,
            len: (len > 0 && len <= bytes.len()).then_some(len)?,
        })
    }

    fn unpack(&self, registry: &Registry) -> Result<Vec<u8>, Failure> {
        let packed = self.flags & (PACKED_LZ4 | PACKED_ZSTD);
        if packed == 0 {
            return Ok(self.payload.to_vec());
        }
        // Neither format packs more than 255 times, so a length beyond that is a lie.
        if self.raw_len > ENTRY_LEN_MAX {
            return Err(bad(format!(
                "an entry of {} bytes in a fatbin",
                self.raw_len
            )));
        }
        let mut out = vec![0; self.raw_len as usize];
        let done = if packed & PACKED_ZSTD != 0 {
            zstd_safe::decompress(&mut out[..], self.payload).is_ok_and(|len| len == out.len())
        } else {
            let codec = registry.by_name("lz4").ok_or_else(|| bad("no LZ4 here"))?;
            let mut ws = Workspace::default();
            codec.unpack(self.payload, &[], &mut out, &mut ws).is_ok()
        };
        if done {
            Ok(out)
        } else {
            Err(bad("a packed entry of a fatbin is damaged"))
        }
    }
}

/// Kernels by their `.nv.info.NAME` sections: `EIATTR_KPARAM_INFO` (0x17) tells ordinal, offset and size.
fn read_cubin(bytes: &[u8]) -> Option<Vec<CubinKernel>> {
    let table = usize::try_from(u64_at(bytes, 40)?).ok()?;
    let (size, count) = (
        usize::from(u16_at(bytes, 58)?),
        usize::from(u16_at(bytes, 60)?),
    );
    let names = usize::from(u16_at(bytes, 62)?);
    let header = |at: usize| bytes.get(table.checked_add(at.checked_mul(size)?)?..);
    let body = |header: &[u8]| -> Option<&[u8]> {
        let at = usize::try_from(u64_at(header, 24)?).ok()?;
        let len = usize::try_from(u64_at(header, 32)?).ok()?;
        bytes.get(at..at.checked_add(len)?)
    };
    let strings = body(header(names)?)?;
    let mut kernels = Vec::new();
    for at in 0..count {
        let section = header(at)?;
        let name = strings.get(u32_at(section, 0)? as usize..)?;
        let name = &name[..name.iter().position(|byte| *byte == 0)?];
        let Some(kernel) = std::str::from_utf8(name).ok()?.strip_prefix(".nv.info.") else {
            continue;
        };
        kernels.push(CubinKernel {
            name: kernel.into(),
            params: read_params(body(section)?)?,
        });
    }
    Some(kernels)
}

fn read_params(mut info: &[u8]) -> Option<Vec<Param>> {
    let mut params = std::collections::BTreeMap::new();
    while info.len() >= 4 {
        let (format, attribute, len) = (info[0], info[1], usize::from(u16_at(info, 2)?));
        // Only format 4 has more than the two bytes in its head.
        let body = if format == 4 {
            info.get(4..4 + len)?
        } else {
            &[]
        };
        if attribute == 0x17 {
            let (ordinal, offset) = (u16_at(body, 4)?, u16_at(body, 6)?);
            let size = u32_at(body, 8)? >> 18;
            params.insert(
                ordinal,
                Param {
                    offset: offset.into(),
                    size,
                },
            );
        }
        info = &info[4 + body.len()..];
    }
    Some(params.into_values().collect())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn registry() -> Registry {
        narrows::default_registry()
    }

    fn entry(kind: u16, arch: u32, flags: u64, raw_len: usize, payload: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        bytes.extend_from_slice(&kind.to_le_bytes());
        bytes.extend_from_slice(&0x101_u16.to_le_bytes());
        bytes.extend_from_slice(&64_u32.to_le_bytes());
        let padded = payload.len().next_multiple_of(8);
        bytes.extend_from_slice(&(padded as u64).to_le_bytes());
        bytes.extend_from_slice(&(payload.len() as u32).to_le_bytes());
        bytes.extend_from_slice(&[0; 8]);
        bytes.extend_from_slice(&arch.to_le_bytes());
        bytes.extend_from_slice(&[0; 8]);
        bytes.extend_from_slice(&flags.to_le_bytes());
        bytes.extend_from_slice(&[0; 8]);
        bytes.extend_from_slice(&(raw_len as u64).to_le_bytes());
        bytes.extend_from_slice(payload);
        bytes.resize(64 + padded, 0);
        bytes
    }

    fn fatbin(entries: &[Vec<u8>]) -> Vec<u8> {
        let body = entries.concat();
        let mut bytes = FATBIN.to_le_bytes().to_vec();
        bytes.extend_from_slice(&[1, 0, 16, 0]);
        bytes.extend_from_slice(&(body.len() as u64).to_le_bytes());
        bytes.extend_from_slice(&body);
        bytes
    }

    // Goal: the newest PTX is found however it is packed. Method: a fatbin with a plain, an LZ4 and a zstd entry.
    #[test]
    fn fatbins_give_their_newest_ptx() {
        let text = |arch: u32| {
            format!(
                ".version 8.0\n.target sm_{arch}\n.address_size 64\n{}",
                " ".repeat(900)
            )
        };
        let registry = registry();
        let lz4 = registry.by_name("lz4").unwrap();
        let mut packed = vec![0; 2000];
        let raw = text(80).into_bytes();
        let len = lz4
            .pack(
                &raw,
                narrows_core::Level(1),
                &[],
                &mut packed,
                &mut Workspace::default(),
            )
            .unwrap();
        let plain = entry(KIND_PTX, 50, 0x11, 0, text(50).as_bytes());
        let fast = entry(KIND_PTX, 80, 0x11 | PACKED_LZ4, raw.len(), &packed[..len]);
        let found = read(&fatbin(&[plain.clone(), fast.clone()]), &registry).unwrap();
        assert_eq!(found, Content::Ptx(vec![text(80)]));
        let raw = text(90).into_bytes();
        let len = zstd_safe::compress(&mut packed[..], &raw, 3).unwrap();
        let dense = entry(KIND_PTX, 90, 0x11 | PACKED_ZSTD, raw.len(), &packed[..len]);
        let found = read(&fatbin(&[dense.clone(), plain]), &registry).unwrap();
        assert_eq!(found, Content::Ptx(vec![text(90)]));
        let whole = fatbin(&[dense, fast]);
        for cut in 0..whole.len() {
            assert!(read(&whole[..cut], &registry).is_err(), "cut at {cut}");
        }
    }

    #[test]
    fn links_give_all_their_texts() {
        let mut bytes = LINKED.to_vec();
        bytes.extend_from_slice(&0_u64.to_le_bytes());
        for text in [".version 1", ".version 2"] {
            bytes.extend_from_slice(&(text.len() as u64).to_le_bytes());
            bytes.extend_from_slice(text.as_bytes());
        }
        let Content::Ptx(texts) = read(&bytes, &registry()).unwrap() else {
            panic!()
        };
        assert_eq!(texts, [".version 1", ".version 2"]);
    }

    proptest! {
        #[test]
        fn garbage_is_refused_and_never_panics(
            head in 0..4_usize,
            tail in proptest::collection::vec(any::<u8>(), 0..400),
        ) {
            let heads: [&[u8]; 4] = [b"", b"\x7fELF", &FATBIN.to_le_bytes(), LINKED];
            let _ = read(&[heads[head], &tail].concat(), &registry());
        }
    }
}
