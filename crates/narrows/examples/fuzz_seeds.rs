//! Writes first inputs for the targets in `fuzz/`, from the golden frames: `fuzz_seeds COMPAT_DIR CORPUS_DIR`. It lives
//! here because built with the flags of fuzzing it would be a fuzz target itself.

use std::{env, fs, io, path::Path};

use narrows_core::{ChannelId, Limits, Seq, limits};
use narrows_format::Header;

#[allow(clippy::too_many_lines, reason = "a table of cases")]
fn main() -> io::Result<()> {
    let args: Vec<_> = env::args().collect();
    let [_, compat, corpus] = &args[..] else {
        return Err(io::Error::other("fuzz_seeds COMPAT_DIR CORPUS_DIR"));
    };
    let ids: Vec<_> = narrows::default_registry().ids().collect();
    let allowed = Limits {
        chunk_len_max: limits::CHUNK_LEN_MAX,
        history_len_max: limits::HISTORY_LEN_MAX,
        ..Default::default()
    };
    let put = |target: &str, name: &str, parts: &[&[u8]]| {
        let dir = Path::new(corpus).join(target);
        fs::create_dir_all(&dir)?;
        fs::write(dir.join(name), parts.concat())
    };
    for entry in fs::read_dir(compat)? {
        let path = entry?.path();
        let name = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        let bytes = fs::read(&path)?;
        if name.ends_with(".raw") {
            for index in 0..ids.len() as u8 {
                put(
                    "codecs",
                    &format!("{name}-{index}"),
                    &[&[index, 1, 1, 0], &bytes[..bytes.len().min(2000)]],
                )?;
            }
        } else if name.ends_with(".frame") {
            put(
                "header",
                &name,
                &[&70_001_u32.to_le_bytes(), &bytes[..bytes.len().min(64)]],
            )?;
            let seq = |channel| (channel == ChannelId(7)).then_some(Seq(70_001));
            let header = Header::parse(&bytes, &allowed, seq).map_err(io::Error::other)?;
            let index = ids.iter().position(|id| *id == header.codec).unwrap_or(0) as u8;
            let [low, high] = ((header.raw_len - 1).min(65_535) as u16).to_le_bytes();
            put(
                "codecs",
                &name,
                &[&[index, 0, low, high], &bytes[header.len()..]],
            )?;
        }
    }
    put("control", "ping", &[&[9, 10]])?;
    put("session", "attach", &[&[0, 0, 0, 0, 5, 0, 6, 0, 9, 0, 9]])?;
    put(
        "nbd",
        "requests",
        &[&[
            3, 200, 1, 0, 1, 0, 16, 0, 0, 32, 0, 0, 0, 0, 16, 0, 0, 32, 0, 0, 7, 0, 0, 0, 3, 0, 0,
        ]],
    )?;
    put(
        "nbd",
        "go",
        &[
            &[0, 99, 0],
            b"IHAVEOPT\0\0\0\x08\0\0\0\0IHAVEOPT\0\0\0\x07\0\0\0\x06\0\0\0\0\0\0",
        ],
    )?;
    put(
        "migrate",
        "rounds",
        &[&[
            1, 1, 5, 9, 0, 0, 0, 0, 1, 1, 5, 9, 0, 0, 0, 0, 1, 1, 6, 9, 0, 0, 0, 0, 1, 1, 7, 9,
        ]],
    )?;
    put(
        "offload",
        "request",
        &[
            b"\0",
            br#"{"op":"pack","method":"zstd","level":3,"block_len":65536}"#,
        ],
    )?;
    put(
        "offload",
        "refused",
        &[b"\0", br#"{"reply":"refused","text":"full"}"#],
    )?;
    // A member, a frame and a seek table, an LZ4 frame; each of nothing.
    let gzip = b"\x1f\x8b\x08\x04\0\0\0\0\0\xff\x0c\0QZ\x08\0\0\0\0\0\x05\0\0\0\x01\0\0\xff\xff\0\0\0\0\0\0\0\0";
    put("offload", "gzip", &[b"\x01", gzip])?;
    let frame = b"\x28\xb5\x2f\xfd\xa0\0\0\0\0\x01\0\0";
    let table = b"\x5e\x2a\x4d\x18\x15\0\0\0\x0c\0\0\0\0\0\0\0\x99\xe9\xd8\x51\x01\0\0\0\x80\xb1\xea\x92\x8f";
    put("offload", "zstd", &[b"\x01", frame, table])?;
    let lz4 = b"\x04\x22\x4d\x18\x6c\x40\0\0\0\0\0\0\0\0\x4b\0\0\0\0\x05\x5d\xcc\x02";
    put("offload", "lz4", &[b"\x01", lz4])?;
    for entry in fs::read_dir(Path::new(compat).with_file_name("file").join("v1"))? {
        let path = entry?.path();
        if path.extension().is_some_and(|ending| ending == "narrows") {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            put("file", &name, &[b"\x01", &fs::read(&path)?])?;
        }
    }
    put("tree", "end", &[&[0, 0, 0, 0, 0, 0, 0, 0, 0]])
}
