//! What unpacking and packing on the GPU takes, beside a processor that does it before or after the copy of raw bytes:
//! `nvcomp [--formats lz4,zstd] [--driver LIBRARY] [--nvcomp LIBRARY] [FILE…]`. One JSON line for each format and data.
//!
//! Chunks are as the pipeline has them. Both ways copy from and to memory that is not pinned, and one thread packs and
//! unpacks on the processor.

use std::{error::Error, fs, path::PathBuf, time::Instant};

use narrows::{Codec, Level, Workspace, default_registry};
use narrows_gpu_server::cuda::{
    Choice, Driver,
    nvcomp::{Area, Format, GpuPacker, Nvcomp, Packed, Refused, Unpacked},
};
use narrows_testkit::data::{Kind, make};

const LEN: usize = 32 << 20;
const CHUNK_LENS: [usize; 2] = [64 << 10, 256 << 10];
const REPEATS: usize = 7;

type Outcome<T> = Result<T, Box<dyn Error>>;

fn main() -> Outcome<()> {
    let (mut choice, mut nvcomp, mut files) = (Choice::default(), None, Vec::new());
    let mut formats = Format::ALL.to_vec();
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or(format!("{word} needs a value"));
        match word.as_str() {
            "--driver" => choice.library = Some(value()?.into()),
            "--nvcomp" => nvcomp = Some(PathBuf::from(value()?)),
            "--formats" => {
                let names = value()?;
                formats.retain(|format| names.split(',').any(|name| name == format.codec()));
            }
            _ => files.push(PathBuf::from(word)),
        }
    }
    let driver = Driver::open_library(&choice)?;
    let nvcomp = Nvcomp::open(nvcomp.as_deref())?;
    let version = nvcomp.version();
    let mut packer = GpuPacker::new(&driver, nvcomp)?;
    let mut data = vec![("text".to_owned(), make(Kind::Text, LEN, 1))];
    for path in files {
        let bytes = fs::read(&path)?;
        let name = path.file_stem().unwrap_or_default().to_string_lossy();
        let bytes = bytes.into_iter().cycle().take(LEN).collect();
        data.push((name.into_owned(), bytes));
    }
    let registry = default_registry();
    for format in formats {
        let codec = registry
            .by_name(format.codec())
            .ok_or("a codec is missing")?;
        for (name, raw) in &data {
            for chunk_len in CHUNK_LENS {
                let row = Case::new(&**codec, raw, chunk_len).measure(&mut packer, format)?;
                println!(
                    "{{\"schema\":\"narrows.gpu-nvcomp/1\",\"nvcomp\":{version},\"format\":\"{}\",\
                     \"data\":\"{name}\",\"chunk_bytes\":{chunk_len},\"bytes\":{LEN},{row}}}",
                    format.codec()
                );
            }
        }
    }
    Ok(())
}

/// Seconds of the middle of several runs.
fn median(mut run: impl FnMut() -> Outcome<()>) -> Outcome<f64> {
    let mut seconds = Vec::new();
    for _ in 0..REPEATS {
        let began = Instant::now();
        run()?;
        seconds.push(began.elapsed().as_secs_f64());
    }
    seconds.sort_by(f64::total_cmp);
    Ok(seconds[REPEATS / 2])
}

struct Case<'a> {
    codec: &'a dyn Codec,
    raw: &'a [u8],
    packed: Vec<Vec<u8>>,
    chunk_len: usize,
}

impl<'a> Case<'a> {
    fn new(codec: &'a dyn Codec, raw: &'a [u8], chunk_len: usize) -> Self {
        let mut case = Self {
            codec,
            raw,
            packed: Vec::new(),
            chunk_len,
        };
        let mut ws = Workspace::default();
        case.packed = raw
            .chunks(chunk_len)
            .map(|chunk| case.pack(chunk, &mut ws))
            .collect();
        case
    }

    fn pack(&self, chunk: &[u8], ws: &mut Workspace) -> Vec<u8> {
        let mut out = vec![0; 2 * chunk.len() + 1024];
        let level = Level(self.codec.info().level_default);
        let len = self.codec.pack(chunk, level, &[], &mut out, ws);
        out.truncate(len.expect("room enough"));
        out
    }

    fn measure(&self, packer: &mut GpuPacker, format: Format) -> Outcome<String> {
        let area = packer.area(LEN)?;
        let cpu_unpack_s = self.unpack_here(packer, &area)?;
        // What was there before is no answer.
        packer.write(&area, &vec![0; LEN])?;
        let gpu_unpack_s = median(|| self.unpack_there(packer, format, &area))?;
        let mut back = vec![0; LEN];
        packer.read(&area, &mut back)?;
        if back != self.raw {
            return Err("the GPU unpacked to other bytes".into());
        }
        let mut ws = Workspace::default();
        let cpu_pack_s = median(|| {
            packer.read(&area, &mut back)?;
            let chunks = back.chunks(self.chunk_len);
            chunks.for_each(|chunk| drop(self.pack(chunk, &mut ws)));
            Ok(())
        })?;
        let (gpu_pack_s, gpu_len) = self.pack_there(packer, format, &area)?;
        let cpu_len: usize = self.packed.iter().map(Vec::len).sum();
        Ok(format!(
            "\"cpu_packed_bytes\":{cpu_len},\"gpu_packed_bytes\":{gpu_len},\
             \"cpu_unpack_s\":{cpu_unpack_s:.6},\"gpu_unpack_s\":{gpu_unpack_s:.6},\
             \"cpu_pack_s\":{cpu_pack_s:.6},\"gpu_pack_s\":{gpu_pack_s:.6}"
        ))
    }

    /// On one thread here, then copied raw.
    fn unpack_here(&self, packer: &GpuPacker, area: &Area) -> Outcome<f64> {
        let (mut out, mut ws) = (vec![0; LEN], Workspace::default());
        median(|| {
            for (packed, out) in self.packed.iter().zip(out.chunks_mut(self.chunk_len)) {
                self.codec.unpack(packed, &[], out, &mut ws)?;
            }
            Ok(packer.write(area, &out)?)
        })
    }

    /// Copied packed, unpacked there.
    fn unpack_there(&self, packer: &mut GpuPacker, format: Format, area: &Area) -> Outcome<()> {
        let chunks: Vec<_> = (area.address()..)
            .step_by(self.chunk_len)
            .zip(&self.packed)
            .map(|(to, bytes)| Packed {
                bytes,
                to,
                len: self.chunk_len,
            })
            .collect();
        for result in packer.unpack(format, &chunks, area)? {
            result?;
        }
        Ok(())
    }

    /// Packed there, copied packed; a processor has to read it.
    fn pack_there(
        &self,
        packer: &mut GpuPacker,
        format: Format,
        area: &Area,
    ) -> Outcome<(f64, usize)> {
        let chunks: Vec<_> = (area.address()..)
            .step_by(self.chunk_len)
            .take(self.packed.len())
            .map(|at| Unpacked {
                at,
                len: self.chunk_len,
            })
            .collect();
        let mut made = Vec::new();
        let seconds = median(|| {
            made = packer.pack(format, &chunks, area)?;
            Ok(())
        })?;
        let (mut len, mut ws) = (0, Workspace::default());
        for (made, raw) in made.into_iter().zip(self.raw.chunks(self.chunk_len)) {
            let made = match made {
                Err(Refused::NotSmaller) => {
                    len += raw.len();
                    continue;
                }
                made => made?,
            };
            let mut back = vec![0; raw.len()];
            self.codec.unpack(&made, &[], &mut back, &mut ws)?;
            if back != raw {
                return Err("the GPU packed something else".into());
            }
            len += made.len();
        }
        Ok((seconds, len))
    }
}
