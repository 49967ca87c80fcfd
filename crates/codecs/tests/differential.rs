//! Our packed bytes in the hands of the reference programs and libraries, and theirs in ours. What is missing on this
//! machine is skipped with a line that says so.

use std::{
    io::Write,
    process::{Command, Stdio},
    sync::Arc,
};

use narrows_codecs::cpu;
use narrows_core::{Backend, Codec, Level, Workspace};
use narrows_testkit::data::{KINDS, make};

fn codec(name: &str) -> Arc<dyn Codec> {
    let all = cpu().probe().expect("the CPU is there");
    all.into_iter()
        .find(|codec| codec.info().name == name)
        .unwrap_or_else(|| panic!("no codec {name}"))
}

fn pack(name: &str, level: i16, raw: &[u8]) -> Vec<u8> {
    let mut packed = vec![0; 2 * raw.len() + 1024];
    let mut ws = Workspace::default();
    let len = codec(name)
        .pack(raw, Level(level), &[], &mut packed, &mut ws)
        .expect("room enough");
    packed.truncate(len);
    packed
}

fn unpack(name: &str, packed: &[u8], len: usize) -> Vec<u8> {
    let mut out = vec![0; len];
    codec(name)
        .unpack(packed, &[], &mut out, &mut Workspace::default())
        .expect("a reference made it");
    out
}

/// Sends `input` through a program; `None`, with a line, where it is not there.
fn through(program: &str, args: &[&str], input: &[u8]) -> Option<Vec<u8>> {
    let child = Command::new(program)
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn();
    let Ok(mut child) = child else {
        println!("skipped: no {program}");
        return None;
    };
    let mut stdin = child.stdin.take().expect("piped");
    let input = input.to_vec();
    let feeder = std::thread::spawn(move || stdin.write_all(&input));
    let output = child.wait_with_output().expect("it ran");
    let _ = feeder.join().expect("no panic");
    assert!(
        output.status.success(),
        "{program} {args:?} refused the input"
    );
    Some(output.stdout)
}

fn samples() -> impl Iterator<Item = Vec<u8>> {
    KINDS
        .into_iter()
        .flat_map(|kind| [1, 77, 5000, 150_001].map(|len| make(kind, len, 30)))
}

#[test]
fn zstd_program_and_codec_read_each_other() {
    for raw in samples() {
        for level in [-200, -5, 1, 9] {
            let Some(back) = through("zstd", &["-dcq"], &pack("zstd", level, &raw)) else {
                return;
            };
            assert!(back == raw, "level {level}, {} bytes", raw.len());
        }
        let theirs = through("zstd", &["-cq", "-3"], &raw).expect("it was there a moment ago");
        assert!(unpack("zstd", &theirs, raw.len()) == raw);
    }
}

#[test]
fn gzip_program_and_codec_read_each_other() {
    for raw in samples() {
        let Some(back) = through("gzip", &["-dc"], &pack("gzip", 6, &raw)) else {
            return;
        };
        assert!(back == raw, "{} bytes", raw.len());
        let theirs = through("gzip", &["-c"], &raw).expect("it was there a moment ago");
        assert!(unpack("gzip", &theirs, raw.len()) == raw);
    }
}

#[test]
fn python_zlib_reads_deflate_and_zlib() {
    let script = "import sys, zlib; sys.stdout.buffer.write(zlib.decompress(sys.stdin.buffer.read(), int(sys.argv[1])))";
    for raw in samples() {
        for (name, window) in [("deflate", "-15"), ("zlib", "15")] {
            let Some(back) = through("python3", &["-c", script, window], &pack(name, 6, &raw))
            else {
                return;
            };
            assert!(back == raw, "{name}, {} bytes", raw.len());
        }
    }
}

// The program speaks frames, not blocks. A frame around one block is 7 bytes of header, a size and an end mark.
#[test]
fn lz4_program_and_codec_read_each_other() {
    for raw in samples() {
        for name in ["lz4", "lz4-hc"] {
            let block = pack(name, 0, &raw);
            // Version 1, independent blocks, no checksums; blocks of up to 4 MiB; the header's checksum.
            let mut frame = vec![0x04, 0x22, 0x4d, 0x18, 0x60, 0x70, 0x73];
            frame.extend((block.len() as u32).to_le_bytes());
            frame.extend(&block);
            frame.extend([0; 4]);
            let Some(back) = through("lz4", &["-dc"], &frame) else {
                return;
            };
            assert!(back == raw, "{name}, {} bytes", raw.len());
        }
        let theirs = through("lz4", &["-cq", "-1", "-B7", "--no-frame-crc"], &raw)
            .expect("it was there a moment ago");
        let size = u32::from_le_bytes(theirs[7..11].try_into().expect("four bytes"));
        let block = &theirs[11..theirs.len() - 4];
        if size as usize == block.len() {
            assert!(unpack("lz4", block, raw.len()) == raw);
        } // else the highest bit says: stored
    }
}

#[test]
fn lzokay_and_codec_read_each_other() {
    for raw in samples() {
        let mut back = vec![0; raw.len()];
        let len =
            lzokay::decompress::decompress(&pack("lzo1x", 0, &raw), &mut back).expect("our LZO1X");
        assert_eq!(len, raw.len());
        assert!(back == raw, "{} bytes", raw.len());
        let theirs = lzokay::compress::compress(&raw).expect("room enough");
        assert!(
            unpack("lzo1x", &theirs, raw.len()) == raw,
            "{} bytes",
            raw.len()
        );
    }
}

/// liblzo2's calls: source, its length, target, its length, work memory.
type Lzo = unsafe extern "C" fn(*const u8, usize, *mut u8, *mut usize, *mut u8) -> i32;

// Opened in this test only: the library is GPL, so nothing we ship may link it.
#[test]
fn liblzo2_and_codec_read_each_other() {
    // SAFETY: its initialisers do nothing.
    let Ok(library) = (unsafe { libloading::Library::new("liblzo2.so.2") }) else {
        return println!("skipped: no liblzo2.so.2");
    };
    let calls = [
        &b"lzo1x_decompress_safe\0"[..],
        b"lzo1x_1_compress\0",
        b"lzo1x_999_compress\0",
    ]
    .map(|name| {
        // SAFETY: the signatures of `lzo1x.h`, the same since version 2.
        unsafe { library.get::<Lzo>(name) }.expect("part of the library since version 1")
    });
    let mut work = vec![0u8; 1 << 20];
    for raw in samples() {
        let packed = pack("lzo1x", 0, &raw);
        let mut back = vec![0; raw.len()];
        let mut len = back.len();
        // SAFETY: the pointers hold the lengths given with them.
        let code = unsafe {
            calls[0](
                packed.as_ptr(),
                packed.len(),
                back.as_mut_ptr(),
                &mut len,
                work.as_mut_ptr(),
            )
        };
        assert_eq!((code, len), (0, raw.len()), "{} bytes", raw.len());
        assert!(back == raw);
        for compress in &calls[1..] {
            let mut theirs = vec![0; raw.len() + raw.len() / 16 + 67];
            let mut len = theirs.len();
            // SAFETY: as above; the target has the library's stated worst case, `work` more than it asks for.
            let code = unsafe {
                compress(
                    raw.as_ptr(),
                    raw.len(),
                    theirs.as_mut_ptr(),
                    &mut len,
                    work.as_mut_ptr(),
                )
            };
            assert_eq!(code, 0);
            assert!(
                unpack("lzo1x", &theirs[..len], raw.len()) == raw,
                "{} bytes",
                raw.len()
            );
        }
    }
}
