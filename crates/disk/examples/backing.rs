//! How fast a backing is at what a log asks of it: `cargo run --release -p narrows-disk --example backing -- FILE MIB`.
//!
//! Prints, of the file by plain calls and of the same by io_uring: MB/s of batches of 1 MiB, first and over again, with a
//! flush at the end; flushed writes of 4 KiB a second; reads of 16 KiB a second, of one thread and of eight.

use std::{fs, path::Path, time::Instant};

use narrows_disk::backing::{Backing, DirectBacking, FileBacking};

const BATCH: usize = 1 << 20;
const SYNCED: u64 = 2000;
const READS: u64 = 20_000;

fn main() {
    let mut args = std::env::args().skip(1);
    let path = args.next().expect("a file that may be made");
    let mib: u64 = args
        .next()
        .map_or(1024, |text| text.parse().expect("a number of MiB"));
    for round in 0..3 {
        for direct in [false, true] {
            let plain = FileBacking::create(Path::new(&path), mib << 20).expect("a new file");
            let backing: Box<dyn Backing> = if direct {
                Box::new(
                    DirectBacking::open(plain)
                        .map_err(|(_, error)| error)
                        .expect("O_DIRECT"),
                )
            } else {
                Box::new(plain)
            };
            print!("{round} {} ", if direct { "direct" } else { "plain " });
            measure(&*backing, mib);
            std::fs::remove_file(&path).expect("it is ours");
        }
    }
}

fn measure(backing: &dyn Backing, mib: u64) {
    let batch: Vec<u8> = (0..BATCH as u32)
        .map(|i| (i.wrapping_mul(2_654_435_761) >> 23) as u8)
        .collect();
    let (head, rest) = batch.split_at(1000);
    for pass in ["first", "again"] {
        let (begun, busy) = (Instant::now(), busy_s());
        for number in 0..mib {
            backing.write(number << 20, &[head, rest]).expect("a write");
        }
        backing.flush().expect("a flush");
        let gb = (mib << 20) as f64 / 1e9;
        let (speed, busy) = (gb * 1e3 / begun.elapsed().as_secs_f64(), busy_s() - busy);
        print!("{pass} {speed:.0} MB/s {:.2} s/GB, ", busy / gb);
    }
    let begun = Instant::now();
    for number in 0..SYNCED {
        backing
            .write((number * 7919 % (mib << 8)) << 12, &[&batch[..4096]])
            .expect("a write");
        backing.flush().expect("a flush");
    }
    print!(
        "synced 4k {:.0}/s, ",
        SYNCED as f64 / begun.elapsed().as_secs_f64()
    );
    // What plain calls wrote is in the page cache: reads are of the disk only without it.
    let _ = fs::write("/proc/sys/vm/drop_caches", "1");
    let begun = Instant::now();
    let mut out = vec![0; 4 << 20];
    for number in 0..mib / 4 {
        backing.read(number << 22, &mut out).expect("a read");
    }
    print!(
        "4M reads {:.0} MB/s, ",
        (mib << 20) as f64 / 1e6 / begun.elapsed().as_secs_f64()
    );
    for threads in [1, 8] {
        let begun = Instant::now();
        std::thread::scope(|scope| {
            for thread in 0..threads {
                scope.spawn(move || {
                    let mut out = vec![0; 16384];
                    for number in 0..READS / threads {
                        let at = (number + thread * READS).wrapping_mul(2_654_435_761)
                            % ((mib << 20) - 16384);
                        backing.read(at, &mut out).expect("a read");
                    }
                });
            }
        });
        print!(
            "16k reads x{threads} {:.0}/s, ",
            READS as f64 / begun.elapsed().as_secs_f64()
        );
    }
    println!();
}

/// Processor time of the whole machine so far, in seconds: the kernel writes pages back in threads of its own.
fn busy_s() -> f64 {
    let stat = fs::read_to_string("/proc/stat").expect("Linux");
    let line = stat.lines().next().expect("a line of all processors");
    let ticks: Vec<f64> = line
        .split_whitespace()
        .skip(1)
        .map(|text| text.parse().expect("a number"))
        .collect();
    // user, nice, system, (idle, waiting), interrupts.
    (ticks[0] + ticks[1] + ticks[2] + ticks[5] + ticks[6]) / 100.0
}
