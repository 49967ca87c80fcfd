//! How exactly the emulator keeps a rate, and what it costs.
//!
//! `cargo run --release -p narrows-io --example link [SECONDS]`

use std::{io::Read, net::TcpListener, thread, time::Duration, time::Instant};

use narrows_core::units::Rate;
use narrows_io::{
    Address, Tuning,
    emulator::{Emulator, Link},
    meter::CpuTime,
    transport,
};

fn main() {
    let seconds: f64 = std::env::args()
        .nth(1)
        .map_or(2.0, |text| text.parse().expect("a number of seconds"));
    println!(
        "{:>8} {:>8} {:>10} {:>8} {:>8}",
        "Mbit/s", "delay", "goodput", "error", "CPU"
    );
    for mbit in [1.0, 10.0, 100.0, 1000.0, 2500.0] {
        for delay_ms in [0, 20] {
            let link = Link {
                rate: Some(Rate::from_mbit(mbit)),
                delay: Duration::from_millis(delay_ms),
                ..Link::default()
            };
            let (got, cpu) = measure(link, Duration::from_secs_f64(seconds));
            let error = (got / mbit - 1.0) * 100.0;
            println!("{mbit:>8} {delay_ms:>5} ms {got:>10.3} {error:>7.2}% {cpu:>7.1}%");
        }
    }
}

/// Mbit/s that arrive, and CPU of the whole process (sender and receiver too) in percent of one core.
fn measure(link: Link, time: Duration) -> (f64, f64) {
    let target = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let listen = Address::parse("127.0.0.1:0", 0).expect("an address");
    let to = target.local_addr().expect("bound").into();
    let emulator = Emulator::start(&listen, &to, link, Link::default()).expect("a free port");
    let mut near = transport::connect(emulator.local(), &Tuning::default()).expect("the emulator");
    let mut far = target.accept().expect("the emulator connects on").0;
    thread::spawn(move || while near.writer.write_all(&[9; 64 * 1024]).is_ok() {});
    let mut buf = vec![0; 256 * 1024];
    let settle = Instant::now();
    while settle.elapsed() < Duration::from_millis(400) {
        assert_ne!(far.read(&mut buf).expect("the link stands"), 0);
    }
    let (begin, cpu, mut got) = (Instant::now(), CpuTime::of_process(), 0);
    while begin.elapsed() < time {
        got += far.read(&mut buf).expect("the link stands");
    }
    let wall = begin.elapsed().as_secs_f64();
    let cpu = CpuTime::of_process().since(cpu).total_ns() as f64 / 1e9;
    (got as f64 * 8.0 / 1e6 / wall, cpu / wall * 100.0)
}
