//! Bytes per second of each transport and each kind of authentication over loopback, with the CPU they cost.
//!
//! `cargo run --release -p narrows-io --example throughput [GIB]`

use std::{io::IoSlice, path::Path, thread, time::Duration, time::Instant};

use narrows_io::{
    Address, Listener, Transport, Tuning,
    meter::CpuTime,
    secure::{self, Auth, Psk, keys},
    transport,
};

const WRITE_LEN: usize = 256 * 1024;

fn main() {
    let gib: f64 = std::env::args()
        .nth(1)
        .map_or(2.0, |text| text.parse().expect("a number of GiB"));
    let dir = std::env::temp_dir().join(format!("narrows-throughput-{}", std::process::id()));
    keys::generate(&dir, &keys::Request::default()).expect("keys in a new directory");
    let tls = Auth::Tls {
        dir: dir.clone(),
        server_name: None,
    };
    let psk = Auth::Psk(Psk::load(&dir.join(keys::PSK_FILE), None).expect("a fresh key file"));
    let unix = format!("unix:{}", dir.join("sock").display());
    println!(
        "{:<22} {:>8} {:>10} {:>10}",
        "", "GB/s", "CPU s/GB", "duplex"
    );
    for (name, listen, auth) in [
        ("tcp", "127.0.0.1:0", &Auth::None),
        ("unix", unix.as_str(), &Auth::None),
        ("tcp + TLS 1.3", "127.0.0.1:0", &tls),
        ("tcp + pre-shared key", "127.0.0.1:0", &psk),
    ] {
        let bytes = (gib * f64::from(1 << 30)) as usize;
        let cpu = CpuTime::of_process();
        let one_way = run(listen, auth, bytes, false);
        let cpu_s = CpuTime::of_process().since(cpu).total_ns() as f64 / 1e9;
        let both = run(listen, auth, bytes, true);
        let gb = bytes as f64 / 1e9;
        println!(
            "{name:<22} {:>8.2} {:>10.2} {:>10.2}",
            gb / one_way.as_secs_f64(),
            cpu_s / gb,
            2.0 * gb / both.as_secs_f64()
        );
    }
    std::fs::remove_dir_all(Path::new(&dir)).expect("our own directory");
}

fn run(listen: &str, auth: &Auth, bytes: usize, duplex: bool) -> Duration {
    let tuning = Tuning::default();
    let listener = Listener::bind(&Address::parse(listen, 0).expect("an address"), &tuning)
        .expect("a free address");
    thread::scope(|scope| {
        let server = scope.spawn(|| {
            let plain = listener
                .accept()
                .expect("a connection")
                .expect("nobody stops us");
            exchange(
                secure::accept(plain, auth).expect("an authentic client"),
                0,
                bytes,
                duplex,
            )
        });
        let plain = transport::connect(listener.local(), &tuning).expect("a listener");
        exchange(
            secure::connect(plain, auth, "localhost").expect("an authentic server"),
            bytes,
            0,
            duplex,
        );
        server.join().expect("no panic")
    })
}

/// Sends and receives; returns how long receiving took.
fn exchange(link: Transport, mut send: usize, mut recv: usize, duplex: bool) -> Duration {
    if duplex {
        (send, recv) = (send.max(recv), send.max(recv));
    }
    let Transport {
        mut reader,
        mut writer,
        ..
    } = link;
    thread::scope(|scope| {
        scope.spawn(move || {
            let payload = vec![7_u8; WRITE_LEN - 16];
            for _ in 0..send / WRITE_LEN {
                writer
                    .write_slices(&mut [IoSlice::new(&[1; 16]), IoSlice::new(&payload)])
                    .expect("a reader");
            }
            writer.finish().expect("a reader");
        });
        let mut buf = vec![0; WRITE_LEN];
        let begin = Instant::now();
        let mut got = 0;
        while let Ok(len @ 1..) = reader.read(&mut buf) {
            got += len;
        }
        assert_eq!(got, recv / WRITE_LEN * WRITE_LEN);
        begin.elapsed()
    })
}
