//! LZ-T beside lz4, zstd and deflate on the pages of files: `bench_lzt [--rounds N] FILE…`.
//!
//! Prints ratio (a page above 3264 B counts 4096, as zram would keep it) and MB/s to pack and unpack, one thread,
//! medians of rounds in which every codec has a turn. Pages of one repeated byte are left out; of a large file 1024
//! pages in runs of 16 are used. `--cluster` takes 16 KiB at a time, without the rule of 3264 B.

use std::{env, fs, hint::black_box, os::raw::c_int, path::Path, time::Instant};

use libdeflate_sys as deflate;
use narrows_chains::lzt;
use zstd_safe::{CCtx, CParameter, DCtx, FrameFormat};

/// Packs a page, or says no.
type Pack = Box<dyn FnMut(&[u8], &mut [u8]) -> Option<usize>>;
type Unpack = Box<dyn FnMut(&[u8], &mut [u8])>;

struct Codec {
    name: String,
    pack: Pack,
    unpack: Unpack,
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut rounds = 5;
    let mut len = 4096;
    let mut args = env::args().skip(1).peekable();
    while let Some(flag) = args.next_if(|arg| arg.starts_with("--")) {
        match flag.as_str() {
            "--rounds" => rounds = args.next().ok_or("--rounds N")?.parse()?,
            "--cluster" => len = 4 * 4096,
            _ => return Err("usage: bench_lzt [--rounds N] [--cluster] FILE…".into()),
        }
    }
    let mut codecs = codecs();
    print!("{:24}", "ratio pack/unpack MB/s");
    codecs.iter().for_each(|codec| print!("{:>18}", codec.name));
    println!();
    for path in args {
        let bytes = fs::read(&path)?;
        let pages = pages(&bytes, len);
        print!(
            "{:24}",
            Path::new(&path)
                .file_name()
                .unwrap_or_default()
                .to_string_lossy()
        );
        for (ratio, pack, unpack) in race(&mut codecs, &pages, rounds) {
            print!("{:>18}", format!("{ratio:.2} {pack:.0}/{unpack:.0}"));
        }
        println!();
    }
    Ok(())
}

fn pages(bytes: &[u8], len: usize) -> Vec<&[u8]> {
    let pages: Vec<&[u8]> = bytes
        .chunks_exact(len)
        .filter(|page| page.iter().any(|&byte| byte != page[0]))
        .collect();
    let runs: Vec<&[&[u8]]> = pages.chunks(16).collect();
    runs.iter()
        .step_by(runs.len().div_ceil(64).max(1))
        .flat_map(|run| run.iter().copied())
        .collect()
}

/// Ratio, MB/s to pack and to unpack, of each codec.
fn race(codecs: &mut [Codec], pages: &[&[u8]], rounds: usize) -> Vec<(f64, f64, f64)> {
    let raw_len: usize = pages.iter().map(|page| page.len()).sum();
    let mut times = vec![(Vec::new(), Vec::new()); codecs.len()];
    let mut stored = vec![0; codecs.len()];
    let mut packed = vec![Vec::new(); pages.len()];
    let mut out = vec![0; 2 * lzt::PAGE_MAX];
    let mut back = vec![0; lzt::PAGE_MAX];
    for _ in 0..rounds {
        for (i, codec) in codecs.iter_mut().enumerate() {
            let start = Instant::now();
            let lens: Vec<Option<usize>> = pages
                .iter()
                .map(|page| black_box((codec.pack)(page, &mut out[..page.len()])))
                .collect();
            times[i].0.push(start.elapsed().as_secs_f64());
            stored[i] = 0;
            for ((page, len), packed) in pages.iter().zip(lens).zip(&mut packed) {
                stored[i] += len
                    .filter(|&len| page.len() > 4096 || len <= 3264)
                    .unwrap_or(page.len());
                packed.clear();
                if len.is_some() {
                    let len = (codec.pack)(page, &mut out[..page.len()]).expect("it did fit");
                    packed.extend(&out[..len]);
                }
            }
            let start = Instant::now();
            for (page, packed) in pages.iter().zip(&packed) {
                if packed.is_empty() {
                    back[..page.len()].copy_from_slice(page);
                } else {
                    (codec.unpack)(packed, &mut back[..page.len()]);
                }
            }
            times[i].1.push(start.elapsed().as_secs_f64());
            for (page, packed) in pages
                .iter()
                .zip(&packed)
                .filter(|(_, packed)| !packed.is_empty())
            {
                (codec.unpack)(packed, &mut back[..page.len()]);
                assert!(
                    back[..page.len()] == **page,
                    "{} does not round trip",
                    codec.name
                );
            }
        }
    }
    let speed = |times: &mut Vec<f64>| {
        times.sort_by(f64::total_cmp);
        raw_len as f64 / times[times.len() / 2] / 1e6
    };
    times
        .iter_mut()
        .zip(stored)
        .map(|(times, stored)| {
            (
                raw_len as f64 / stored as f64,
                speed(&mut times.0),
                speed(&mut times.1),
            )
        })
        .collect()
}

fn codecs() -> Vec<Codec> {
    let mut codecs = vec![lz4()];
    codecs.extend([-1, 1, 3].map(zstd));
    codecs.push(deflate_6());
    let mut ws = lzt::Workspace::default();
    let unpack = |packed: &[u8], out: &mut [u8]| lzt::unpack(packed, out).expect("own bytes");
    let pack = Box::new(move |page: &[u8], out: &mut [u8]| lzt::pack(page, out, &mut ws));
    codecs.push(Codec {
        name: "lzt".into(),
        pack,
        unpack: Box::new(unpack),
    });
    let mut ws = lzt::Workspace::default();
    let pack = Box::new(move |page: &[u8], out: &mut [u8]| lzt::pack_strong(page, out, &mut ws));
    codecs.push(Codec {
        name: "lzt-strong".into(),
        pack,
        unpack: Box::new(unpack),
    });
    codecs
}

unsafe extern "C" {
    fn LZ4_compress_fast_extState(
        state: *mut u8,
        from: *const u8,
        to: *mut u8,
        from_len: c_int,
        to_len: c_int,
        acceleration: c_int,
    ) -> c_int;
    fn LZ4_decompress_safe(from: *const u8, to: *mut u8, from_len: c_int, to_len: c_int) -> c_int;
}

fn lz4() -> Codec {
    // The state's size and alignment, generously.
    let mut state = vec![0u64; 1 << 12];
    // Not named otherwise, and the linker needs it.
    // SAFETY: takes no arguments.
    black_box(unsafe { lz4_sys::LZ4_versionNumber() });
    Codec {
        name: "lz4".into(),
        // SAFETY: 32 KiB hold the state (16.4 KiB); slices with their lengths.
        pack: Box::new(move |page, out| unsafe {
            let (page_len, out_len) = (page.len() as c_int, out.len() as c_int);
            let state = state.as_mut_ptr().cast();
            let len = LZ4_compress_fast_extState(
                state,
                page.as_ptr(),
                out.as_mut_ptr(),
                page_len,
                out_len,
                1,
            );
            (len > 0).then_some(len as usize)
        }),
        unpack: Box::new(|packed, out| {
            // SAFETY: slices with their lengths.
            let len = unsafe {
                LZ4_decompress_safe(
                    packed.as_ptr(),
                    out.as_mut_ptr(),
                    packed.len() as c_int,
                    out.len() as c_int,
                )
            };
            assert_eq!(len, out.len() as c_int);
        }),
    }
}

fn zstd(level: i32) -> Codec {
    let mut pack = CCtx::create();
    let mut unpack = DCtx::create();
    let set = |cctx: &mut CCtx<'_>| -> Result<(), usize> {
        cctx.set_parameter(CParameter::CompressionLevel(level))?;
        cctx.set_parameter(CParameter::ContentSizeFlag(false))?;
        cctx.set_parameter(CParameter::Format(FrameFormat::Magicless))?;
        Ok(())
    };
    set(&mut pack).expect("known parameters");
    unpack
        .set_parameter(zstd_safe::DParameter::Format(FrameFormat::Magicless))
        .expect("a known parameter");
    Codec {
        name: format!("zstd {level}"),
        pack: Box::new(move |page, out| pack.compress2(out, page).ok()),
        unpack: Box::new(move |packed, out| {
            unpack.decompress(out, packed).expect("own bytes");
        }),
    }
}

fn deflate_6() -> Codec {
    // SAFETY: level 6 is one of its levels; both live as long as the program.
    let (pack, unpack) = unsafe {
        (
            deflate::libdeflate_alloc_compressor(6),
            deflate::libdeflate_alloc_decompressor(),
        )
    };
    Codec {
        name: "deflate 6".into(),
        // SAFETY: slices with their lengths.
        pack: Box::new(move |page, out| unsafe {
            let (from, to) = (page.as_ptr().cast(), out.as_mut_ptr().cast());
            let len = deflate::libdeflate_deflate_compress(pack, from, page.len(), to, out.len());
            (len > 0).then_some(len)
        }),
        // SAFETY: slices with their lengths; the page's length is exact, so no length comes back.
        unpack: Box::new(move |packed, out| unsafe {
            let (from, to) = (packed.as_ptr().cast(), out.as_mut_ptr().cast());
            let result = deflate::libdeflate_deflate_decompress(
                unpack,
                from,
                packed.len(),
                to,
                out.len(),
                std::ptr::null_mut(),
            );
            assert_eq!(result, deflate::libdeflate_result_LIBDEFLATE_SUCCESS);
        }),
    }
}
