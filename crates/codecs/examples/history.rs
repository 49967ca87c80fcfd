//! What history costs and gains: ratio and pack speed of zstd by level, chunk length and history, for given files.
//! `cargo run --release -p narrows-codecs --example history FILE…`

use std::{env, fs, time::Instant};

use narrows_core::{Backend, CodecId, Level, Workspace};

fn main() {
    let codecs = narrows_codecs::Cpu.probe().expect("the CPU is there");
    let zstd = codecs
        .iter()
        .find(|codec| codec.id() == CodecId(9))
        .expect("zstd is there");
    for path in env::args().skip(1) {
        let mut data = fs::read(&path).expect("a readable file");
        data.truncate(12 << 20);
        println!("{path}");
        for chunk_len in [256 << 10, 1 << 20] {
            for level in [1, 3, 6, 9, 12, 15, 19] {
                print!("{:5} KiB  level {level:2}", chunk_len >> 10);
                for history_len in [0, 256 << 10, 1 << 20, 4 << 20] {
                    let mut ws = Workspace::default();
                    let mut out = vec![0; chunk_len];
                    let (mut packed, began) = (0, Instant::now());
                    let mut done = 0;
                    // The first chunks have no full history; leave them out of the account.
                    for at in (history_len.max(chunk_len)..data.len())
                        .step_by(chunk_len)
                        .take(if level > 12 { 3 } else { 8 })
                    {
                        let raw = &data[at..data.len().min(at + chunk_len)];
                        let history = &data[at - history_len..at];
                        packed += zstd
                            .pack(raw, Level(level), history, &mut out, &mut ws)
                            .unwrap_or(raw.len());
                        done += raw.len();
                    }
                    let speed = done as f64 / began.elapsed().as_secs_f64() / 1e6;
                    print!(
                        "  | h {:4}K {:5.2} @{speed:6.1}",
                        history_len >> 10,
                        done as f64 / packed as f64
                    );
                }
                println!();
            }
        }
    }
}
