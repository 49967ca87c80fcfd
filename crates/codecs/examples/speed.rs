//! Ratio and speed of codecs on files: `speed [--chunk BYTES] [--codecs a,b:level,...] [--max BYTES] FILE...`
//!
//! Speeds are thread CPU time, best of several passes, so that they hold on a busy machine. Every chunk is unpacked
//! and compared. A chunk that does not shrink counts as raw.

use std::{fs, sync::Arc, time::Duration};

use narrows_core::{Backend, Codec, Level, Workspace};

fn main() {
    let (mut chunk, mut max, mut names, mut files) =
        (65_536, 8_000_000, String::from("lz4,zstd"), Vec::new());
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        let mut value = || args.next().unwrap_or_else(|| panic!("{arg} needs a value"));
        match arg.as_str() {
            "--chunk" => chunk = value().parse().expect("bytes"),
            "--max" => max = value().parse().expect("bytes"),
            "--codecs" => names = value(),
            _ => files.push(arg),
        }
    }
    let all = narrows_codecs::cpu().probe().expect("the CPU is there");
    for file in files {
        let mut data = fs::read(&file).unwrap_or_else(|error| panic!("{file}: {error}"));
        data.truncate(max);
        let label = file.rsplit('/').next().unwrap_or_default();
        for name in names.split(',') {
            if let Some(width) = name.strip_prefix("=shuffle") {
                transform(label, width.parse().expect("2, 4 or 8"), &data, chunk);
                continue;
            }
            let (name, level) = name.split_once(':').unwrap_or((name, ""));
            let codec = all
                .iter()
                .find(|c| c.info().name == name)
                .unwrap_or_else(|| panic!("no codec {name}"));
            let level = level.parse().unwrap_or(codec.info().level_default);
            measure(label, codec, Level(level), &data, chunk);
        }
    }
}

fn measure(label: &str, codec: &Arc<dyn Codec>, level: Level, data: &[u8], chunk: usize) {
    let mut ws = Workspace::default();
    let (mut best_pack, mut best_unpack) = (Duration::MAX, Duration::MAX);
    let mut packed_len = 0;
    for _ in 0..3 {
        let (mut pack, mut unpack) = (Duration::ZERO, Duration::ZERO);
        let mut packed = vec![0; chunk];
        let mut back = vec![0; chunk];
        packed_len = 0;
        for raw in data.chunks(chunk) {
            let start = thread_time();
            let len = codec.pack(raw, level, &[], &mut packed[..raw.len()], &mut ws);
            let middle = thread_time();
            pack += middle - start;
            let Some(len) = len else {
                packed_len += raw.len();
                continue;
            };
            packed_len += len;
            let back = &mut back[..raw.len()];
            let middle = thread_time();
            codec
                .unpack(&packed[..len], &[], back, &mut ws)
                .expect("own packing");
            unpack += thread_time() - middle;
            assert_eq!(raw, back, "{} does not round-trip", codec.info().name);
        }
        best_pack = best_pack.min(pack);
        best_unpack = best_unpack.min(unpack);
    }
    let rate = |time: Duration| data.len() as f64 / time.as_secs_f64().max(1e-9) / 1e6;
    println!(
        "{label:24} {:14} {:4} {:6.3} {:7.0} {:7.0}",
        codec.info().name,
        level.0,
        data.len() as f64 / packed_len as f64,
        rate(best_pack),
        rate(best_unpack)
    );
}

/// The byte shuffle alone, named `=shuffle4`.
fn transform(label: &str, width: usize, data: &[u8], chunk: usize) {
    use narrows_codecs::typed::shuffle::{shuffle, unshuffle};
    let (mut planes, mut back) = (vec![0; chunk], vec![0; chunk]);
    let (mut split, mut join) = (Duration::MAX, Duration::MAX);
    for raw in data.chunks(chunk).cycle().take(2000) {
        let (planes, back) = (&mut planes[..raw.len()], &mut back[..raw.len()]);
        let start = thread_time();
        shuffle(width, raw, planes);
        let middle = thread_time();
        unshuffle(width, planes, back);
        let end = thread_time();
        assert_eq!(raw, back);
        if raw.len() == chunk {
            (split, join) = (split.min(middle - start), join.min(end - middle));
        }
    }
    let rate = |time: Duration| chunk as f64 / time.as_secs_f64().max(1e-9) / 1e6;
    println!(
        "{label:24} shuffle{width}                    {:7.0} {:7.0}",
        rate(split),
        rate(join)
    );
}

fn thread_time() -> Duration {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: writes one `timespec` to a live one.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
