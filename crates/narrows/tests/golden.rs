//! Golden frames: what was written once must be read for ever, and no damage to it may go unnoticed.

use std::{
    fs,
    path::{Path, PathBuf},
};

use narrows_core::{
    ChannelId, Codec, DecodeError, Level, Limits, Registry, Seq, Workspace,
    limits::{CHUNK_LEN_MAX, HISTORY_LEN_MAX},
};
use narrows_format::{Header, chunk_check, packed_len_max};
use narrows_testkit::data::{Kind, make};

const CHANNEL: ChannelId = ChannelId(7);
/// Above 65,535, so that only part of it travels.
const SEQ: Seq = Seq(70_001);

/// Name, codec, level, raw bytes, history.
const FRAMES: [(&str, &str, i16, &str, &str); 32] = [
    ("raw", "raw", 0, "text", ""),
    ("lz4", "lz4", 0, "text", ""),
    ("lz4-hc", "lz4-hc", 9, "text", ""),
    ("snappy", "snappy", 0, "text", ""),
    ("gipfeli", "gipfeli", 0, "text", ""),
    ("lzo1x", "lzo1x", 0, "text", ""),
    ("deflate", "deflate", 6, "text", ""),
    ("zlib", "zlib", 6, "text", ""),
    ("gzip", "gzip", 6, "text", ""),
    ("zstd", "zstd", 3, "text", ""),
    ("zstd-negative", "zstd", -5, "text", ""),
    ("zstd-22", "zstd", 22, "text", ""),
    ("842", "842", 0, "text", ""),
    ("deflate-w4k", "deflate-w4k", 6, "text", ""),
    ("shuffle2-lz4", "shuffle2-lz4", 0, "counters", ""),
    ("shuffle4-lz4", "shuffle4-lz4", 0, "floats", ""),
    ("shuffle8-lz4", "shuffle8-lz4", 0, "doubles", ""),
    ("shuffle2-zstd", "shuffle2-zstd", 1, "counters", ""),
    ("shuffle4-zstd", "shuffle4-zstd", 1, "floats", ""),
    ("shuffle8-zstd", "shuffle8-zstd", 1, "doubles", ""),
    ("delta2-lz4", "delta2-lz4", 0, "counters", ""),
    ("delta4-lz4", "delta4-lz4", 0, "counters", ""),
    ("delta8-lz4", "delta8-lz4", 0, "doubles", ""),
    ("delta2-zstd", "delta2-zstd", 1, "counters", ""),
    ("delta4-zstd", "delta4-zstd", 1, "counters", ""),
    ("delta8-zstd", "delta8-zstd", 1, "doubles", ""),
    ("decimal4-zstd", "decimal4-zstd", 1, "decimals4", ""),
    ("decimal8-zstd", "decimal8-zstd", 1, "decimals8", ""),
    // The long header: by its raw length, by its history.
    ("lz4-long", "lz4", 0, "long", ""),
    ("zstd-long", "zstd", 1, "long", ""),
    ("lz4-history", "lz4", 0, "text", "history"),
    ("zstd-history", "zstd", 3, "text", "history"),
];

fn dir() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../compat/v1")
}

fn raw(name: &str) -> Vec<u8> {
    match name {
        "" => Vec::new(),
        "text" => make(Kind::Text, 1201, 1),
        "history" => [
            make(Kind::Text, 1500, 9),
            make(Kind::Text, 1201, 1)[200..900].to_vec(),
        ]
        .concat(),
        "counters" => make(Kind::Counters, 1203, 1),
        "floats" => make(Kind::Floats, 1203, 1),
        "doubles" => make(Kind::Doubles, 1205, 1),
        "decimals4" => (0..300_u16)
            .flat_map(|i| (f32::from(i * 37 % 900) / 100.0).to_le_bytes())
            .collect(),
        "decimals8" => (0..150_u16)
            .flat_map(|i| (f64::from(i * 37 % 900) / 100.0).to_le_bytes())
            .collect(),
        "long" => [make(Kind::Text, 300, 1), make(Kind::Zeros, 70_000, 1)].concat(),
        other => panic!("{other}"),
    }
}

fn codec(registry: &Registry, name: &str) -> std::sync::Arc<dyn Codec> {
    registry
        .by_name(name)
        .unwrap_or_else(|| panic!("no codec {name}"))
        .clone()
}

/// Makes the frame as a sender would.
fn pack(
    registry: &Registry,
    (_, name, level, raw_name, history): (&str, &str, i16, &str, &str),
) -> Vec<u8> {
    let (raw, history) = (raw(raw_name), raw(history));
    let codec = codec(registry, name);
    let mut out = vec![0; packed_len_max(raw.len() as u32) as usize];
    let len = codec
        .pack(
            &raw,
            Level(level),
            &history,
            &mut out,
            &mut Workspace::default(),
        )
        .expect("it fits");
    let header = Header {
        codec: codec.id(),
        channel: CHANNEL,
        seq: SEQ,
        raw_len: raw.len() as u32,
        packed_len: len as u32,
        history_len: history.len() as u32,
        check: chunk_check(CHANNEL, SEQ, &raw),
    };
    [&header.to_bytes()[..header.len()], &out[..len]].concat()
}

/// Reads a frame as a receiver does.
fn unpack(
    registry: &Registry,
    bytes: &[u8],
    history: &[u8],
    ws: &mut Workspace,
) -> Result<Vec<u8>, DecodeError> {
    let limits = Limits {
        chunk_len_max: CHUNK_LEN_MAX,
        history_len_max: HISTORY_LEN_MAX,
        ..Limits::default()
    };
    let header = Header::parse(bytes, &limits, |channel| {
        (channel == CHANNEL).then_some(SEQ)
    })?;
    let payload = &bytes[header.len()..];
    let needed = header.packed_len as usize;
    if payload.len() < needed {
        return Err(DecodeError::Incomplete {
            needed,
            have: payload.len(),
        });
    }
    let codec = registry
        .by_id(header.codec)
        .ok_or(DecodeError::Unsupported(header.codec))?;
    let history_len = header.history_len as usize;
    let from = history
        .len()
        .checked_sub(history_len)
        .ok_or(DecodeError::corrupt(14, "more history than carried"))?;
    let mut out = vec![0xa5; header.raw_len as usize];
    codec.unpack(&payload[..needed], &history[from..], &mut out, ws)?;
    if chunk_check(header.channel, header.seq, &out) != header.check {
        return Err(DecodeError::corrupt(header.len(), "chunk check differs"));
    }
    Ok(out)
}

struct Golden {
    name: String,
    frame: Vec<u8>,
    raw: Vec<u8>,
    history: Vec<u8>,
}

/// Every golden frame, all of it from the files.
fn golden() -> Vec<Golden> {
    let table = fs::read_to_string(dir().join("FRAMES.tsv")).expect("compat/v1 is complete");
    let file =
        |name: &str| fs::read(dir().join(name)).unwrap_or_else(|fault| panic!("{name}: {fault}"));
    let lines = table.lines().filter(|line| !line.starts_with('#'));
    lines
        .map(|line| {
            let [name, raw, history] = line.split('\t').collect::<Vec<_>>()[..] else {
                panic!("{line}")
            };
            let history = if history == "-" {
                Vec::new()
            } else {
                file(&format!("{history}.raw"))
            };
            let (frame, raw) = (file(&format!("{name}.frame")), file(&format!("{raw}.raw")));
            Golden {
                name: name.to_owned(),
                frame,
                raw,
                history,
            }
        })
        .collect()
}

/// Writes frames that are not there yet, when asked to; never touches those that are.
#[test]
fn every_shape_has_its_golden_frame() {
    let registry = narrows::default_registry();
    let table = dir().join("FRAMES.tsv");
    let mut listed = fs::read_to_string(&table).unwrap_or_else(|_| "#frame\traw\thistory\n".into());
    for entry in FRAMES {
        let (name, _, _, raw_name, history) = entry;
        let line = format!(
            "{name}\t{raw_name}\t{}\n",
            if history.is_empty() { "-" } else { history }
        );
        if listed.contains(&format!("\n{line}")) {
            continue;
        }
        assert!(
            std::env::var_os("NARROWS_MAKE_GOLDEN").is_some(),
            "no golden frame {name}; see compat/README.md"
        );
        for file in [raw_name, history]
            .into_iter()
            .filter(|file| !file.is_empty())
        {
            let path = dir().join(format!("{file}.raw"));
            if !path.exists() {
                fs::write(path, raw(file)).unwrap();
            }
        }
        let path = dir().join(format!("{name}.frame"));
        assert!(!path.exists(), "{name} is there and not listed");
        fs::write(path, pack(&registry, entry)).unwrap();
        listed.push_str(&line);
        fs::write(&table, &listed).unwrap();
    }
    let covered: Vec<_> = FRAMES.iter().map(|(_, codec, ..)| *codec).collect();
    for id in registry.ids() {
        let name = registry.by_id(id).unwrap().info().name;
        assert!(covered.contains(&name), "codec {name} has no golden frame");
    }
}

#[test]
fn golden_frames_read_as_they_were_written() {
    let registry = narrows::default_registry();
    let ws = &mut Workspace::default();
    for Golden {
        name,
        frame,
        raw,
        history,
    } in golden()
    {
        let got = unpack(&registry, &frame, &history, ws);
        assert!(
            got.as_deref() == Ok(&raw[..]),
            "{name}: {:?}",
            got.map(|bytes| bytes.len())
        );
    }
}

// Goal: no damage passes. Method: every bit of every golden frame, every length it can be cut to, as the network would
// cut it and as a liar would, whose header agrees with the cut. What unpacks all the same must be the right bytes: some
// formats have bits that say nothing.
#[test]
fn every_flip_and_every_cut_of_every_golden_frame_is_noticed() {
    let registry = narrows::default_registry();
    let ws = &mut Workspace::default();
    let (mut flips, mut harmless, mut cuts, mut lies) = (0, 0, 0, 0);
    for Golden {
        name,
        frame,
        raw,
        history,
    } in golden()
    {
        for bit in 0..frame.len() * 8 {
            let mut bytes = frame.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            if let Ok(got) = unpack(&registry, &bytes, &history, ws) {
                assert!(got == raw, "{name}, bit {bit}: damage went unnoticed");
                harmless += 1;
            }
            flips += 1;
        }
        for cut in 0..frame.len() {
            let fault = unpack(&registry, &frame[..cut], &history, ws).unwrap_err();
            assert!(
                matches!(fault, DecodeError::Incomplete { .. }),
                "{name} cut at {cut}: {fault}"
            );
            cuts += 1;
        }
        let limits = Limits {
            chunk_len_max: CHUNK_LEN_MAX,
            history_len_max: HISTORY_LEN_MAX,
            ..Limits::default()
        };
        let header = Header::parse(&frame, &limits, |_| Some(SEQ)).unwrap();
        for packed_len in 1..header.packed_len {
            let lie = Header {
                packed_len,
                ..header
            };
            if registry.by_id(header.codec).unwrap().info().name == "raw" {
                continue;
            }
            let payload = &frame[header.len()..][..packed_len as usize];
            let bytes = [&lie.to_bytes()[..lie.len()], payload].concat();
            if let Ok(got) = unpack(&registry, &bytes, &history, ws) {
                assert!(
                    got == raw,
                    "{name} of {packed_len} bytes: damage went unnoticed"
                );
            }
            lies += 1;
        }
        // Right bytes, wrong place.
        for (channel, seq) in [(8, 70_001), (7, 70_002), (7, 4465)] {
            let moved = Header {
                channel: ChannelId(channel),
                seq: Seq(seq),
                ..header
            };
            let bytes = [&moved.to_bytes()[..moved.len()], &frame[header.len()..]].concat();
            assert!(
                unpack(&registry, &bytes, &history, ws).is_err(),
                "{name} moved to {channel}, {seq}"
            );
        }
        if !history.is_empty() {
            let mut other = history.clone();
            other.iter_mut().for_each(|byte| *byte ^= 1);
            assert!(
                unpack(&registry, &frame, &other, ws).is_err(),
                "{name} with another history"
            );
            assert!(
                unpack(&registry, &frame, &history[1..], ws).is_err(),
                "{name} with less history"
            );
        }
    }
    println!(
        "{flips} flips and {cuts} cuts noticed, {harmless} flips changed nothing; {lies} cuts with a header that agrees"
    );
}

/// A frame that is exactly 64 KiB long, of raw data or packed, or a few bytes longer where packed lengths jump.
fn frame_of_64_kib(registry: &Registry, name: &str) -> (Vec<u8>, Vec<u8>) {
    let codec = codec(registry, name);
    let pool = make(Kind::Text, 1 << 20, 1);
    let mut out = vec![0; 2 << 20];
    let mut ws = Workspace::default();
    let mut of = |len: usize| {
        let raw = &pool[..len];
        let level = Level(codec.info().level_default);
        let packed_len = codec
            .pack(raw, level, &[], &mut out, &mut ws)
            .expect("it fits");
        let header = Header {
            codec: codec.id(),
            channel: CHANNEL,
            seq: SEQ,
            raw_len: len as u32,
            packed_len: packed_len as u32,
            history_len: 0,
            check: chunk_check(CHANNEL, SEQ, raw),
        };
        [&header.to_bytes()[..header.len()], &out[..packed_len]].concat()
    };
    let (mut low, mut high) = (1, pool.len());
    while low < high {
        let middle = usize::midpoint(low, high);
        if of(middle).len() < 64 << 10 {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    (of(low), pool[..low].to_vec())
}

// Goal: no flipped bit of a large frame passes. Method: some of the 524,288 bits of a frame of 64 KiB that is raw and of one
// that is packed; all of them with `NARROWS_FLIPS=all`, of the codecs of `NARROWS_FLIP_CODECS`.
#[test]
fn no_flipped_bit_of_a_frame_of_64_kib_passes() {
    let registry = narrows::default_registry();
    let ws = &mut Workspace::default();
    let every = std::env::var("NARROWS_FLIPS").is_ok_and(|value| value == "all");
    let codecs = std::env::var("NARROWS_FLIP_CODECS").unwrap_or_else(|_| "raw,lz4".into());
    for name in codecs.split(',') {
        let (frame, raw) = frame_of_64_kib(&registry, name);
        let (mut tried, mut detected, mut harmless) = (0, 0, 0);
        for bit in (0..frame.len() * 8).step_by(if every { 1 } else { 257 }) {
            let mut bytes = frame.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            match unpack(&registry, &bytes, &[], ws) {
                Err(_) => detected += 1,
                Ok(got) => {
                    assert!(got == raw, "{name}, bit {bit}: damage went unnoticed");
                    harmless += 1;
                }
            }
            tried += 1;
        }
        println!(
            "{name}: {tried} bits of {} bytes flipped, {detected} detected, {harmless} made the same bytes, 0 silent",
            frame.len()
        );
    }
}
