//! How fast a store writes and reads, without a server in between: `throughput [--file PATH]
//! [--size MIB] [--threads N] [--profile fast|balanced|dense] [--data fio|FILE] [--seconds S]
//! [PHASE…]`
//!
//! Data `fio` is what fio writes with `buffer_compress_percentage=60`: 204 bytes of noise and 308
//! of zeroes in each 512. Every write has new noise, of a pool of 64 MiB. The phase `abort` ends
//! the program as a crash would; then `--open` with the same file measures the recovery. Prints one
//! line a phase: MB/s, thousands of requests a second, CPU seconds per GB.

use std::{
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use narrows_core::BlockDevice;
use narrows_disk::{Creation, Disk, Profile, Settings, backing::FileBacking};

fn main() {
    let mut options = Options {
        file: PathBuf::from("/dev/shm/narrows-disk-throughput"),
        size: 1 << 30,
        threads: 8,
        profile: Profile::Fast,
        data: "fio".into(),
        seconds: 2.0,
        phases: Vec::new(),
        open: false,
    };
    options.parse();
    if options.open {
        return open(&options);
    }
    let pool = pool(&options.data);
    let _ = std::fs::remove_file(&options.file);
    let backing = FileBacking::create(&options.file, options.size * 5 / 4).expect("a file");
    let creation = Creation::new(options.size).profile(options.profile);
    Disk::create(&backing, &creation).expect("a store");
    let disk = Disk::open(Arc::new(backing), Settings::default()).expect("a store");
    run("fill", &options, &disk, &pool);
    for phase in &options.phases {
        run(phase, &options, &disk, &pool);
    }
    disk.flush().expect("a flush");
    let stat = disk.stat();
    println!(
        "ratio {:.3}, occupied {:.0} MiB, write amplification {:.3}, {} checkpoints, {} collected, memory {:.1} MiB",
        stat.ratio,
        stat.occupied as f64 / (1 << 20) as f64,
        stat.write_amplification,
        stat.checkpoints,
        stat.collected,
        stat.memory as f64 / (1 << 20) as f64,
    );
    drop(disk);
    let _ = std::fs::remove_file(&options.file);
}

/// Opens what a run that ended with the phase `abort` left, and says how long that took.
fn open(options: &Options) {
    let start = Instant::now();
    let backing = FileBacking::open(&options.file).expect("a file");
    let disk = Disk::open(Arc::new(backing), Settings::default()).expect("a store");
    let stat = disk.stat();
    println!(
        "opened in {:.3} s: {:.0} MiB of data, {:.1} MiB of memory",
        start.elapsed().as_secs_f64(),
        stat.data as f64 / (1 << 20) as f64,
        stat.memory as f64 / (1 << 20) as f64,
    );
}

struct Options {
    file: PathBuf,
    size: u64,
    threads: usize,
    profile: Profile,
    data: String,
    seconds: f64,
    phases: Vec<String>,
    open: bool,
}

impl Options {
    fn parse(&mut self) {
        let mut arguments = std::env::args().skip(1);
        while let Some(argument) = arguments.next() {
            let mut value = || arguments.next().expect("a value");
            match argument.as_str() {
                "--file" => self.file = value().into(),
                "--size" => self.size = value().parse::<u64>().expect("MiB") << 20,
                "--threads" => self.threads = value().parse().expect("a number"),
                "--open" => self.open = true,
                "--data" => self.data = value(),
                "--seconds" => self.seconds = value().parse().expect("a number"),
                "--profile" => {
                    self.profile = match value().as_str() {
                        "fast" => Profile::Fast,
                        "balanced" => Profile::Balanced,
                        _ => Profile::Dense,
                    }
                }
                phase => self.phases.push(phase.to_owned()),
            }
        }
        if self.phases.is_empty() {
            let all = [
                "write128k",
                "read128k",
                "randread128k",
                "write4k",
                "read4k",
                "sync4k",
            ];
            self.phases = all.map(str::to_owned).to_vec();
        }
    }
}

/// 64 MiB of data to write from.
fn pool(data: &str) -> Vec<u8> {
    if data != "fio" {
        let mut bytes = std::fs::read(data).expect("a file");
        bytes.truncate(bytes.len() / (128 << 10) * (128 << 10));
        assert!(!bytes.is_empty(), "at least 128 KiB");
        return bytes;
    }
    let mut pool = vec![0; 64 << 20];
    let mut state = 1_u64;
    for chunk in pool.chunks_mut(512) {
        for word in chunk[..204].chunks_mut(8) {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            word.copy_from_slice(&state.to_le_bytes()[..word.len()]);
        }
    }
    pool
}

fn run(phase: &str, options: &Options, disk: &Disk, pool: &[u8]) {
    if phase == "abort" {
        std::process::abort();
    }
    let len = if phase.contains("4k") {
        4 << 10
    } else {
        128 << 10
    };
    let places = options.size / len;
    let next = AtomicU64::new(0);
    let done = AtomicU64::new(0);
    let (start, cpu) = (Instant::now(), cpu_seconds());
    let limit = Duration::from_secs_f64(options.seconds);
    std::thread::scope(|scope| {
        for _ in 0..options.threads {
            scope.spawn(|| {
                let mut out = vec![0; len as usize];
                loop {
                    let n = next.fetch_add(1, Ordering::Relaxed);
                    let over = if phase == "fill" {
                        n >= places
                    } else {
                        start.elapsed() >= limit
                    };
                    if over {
                        break;
                    }
                    let random = n.wrapping_add(77).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20;
                    let sequential = matches!(phase, "fill" | "write128k" | "read128k");
                    let place = if sequential { n } else { random } % places;
                    let from = (n * len) as usize % (pool.len() - len as usize + 1) / 512 * 512;
                    let data = &pool[from..from + len as usize];
                    let result = match phase {
                        "read128k" | "randread128k" | "read4k" => disk.read(place * len, &mut out),
                        "sync4k" => disk.write(place * len, data, true),
                        _ => disk.write(place * len, data, false),
                    };
                    result.expect("a request");
                    done.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
    });
    let seconds = start.elapsed().as_secs_f64();
    let cpu = cpu_seconds() - cpu;
    let done = done.load(Ordering::Relaxed) as f64;
    let gigabytes = done * len as f64 / 1e9;
    println!(
        "{phase:>13}: {:7.0} MB/s {:7.1} k/s {:6.2} CPU s/GB",
        gigabytes * 1e3 / seconds,
        done / seconds / 1e3,
        cpu / gigabytes,
    );
}

/// CPU time of this process so far.
fn cpu_seconds() -> f64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}
