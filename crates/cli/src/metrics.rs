//! Prometheus metrics on request: the text format over the least HTTP that a scraper needs.

use std::{
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    sync::Arc,
    thread,
    time::Duration,
};

use narrows::{
    Stats,
    io::meter::{CpuTime, Memory},
};

/// Gives the text of a scrape.
pub type Source = Arc<dyn Fn() -> String + Send + Sync>;

/// Serves metrics at `address` for as long as the process lives.
///
/// # Errors
/// The address cannot be listened on.
pub fn serve(address: &str, source: Source) -> anyhow::Result<()> {
    let listener = TcpListener::bind(address).map_err(|fault| {
        anyhow::anyhow!("cannot serve metrics at {address}: {fault}; give HOST:PORT")
    })?;
    tracing::info!(address = %listener.local_addr()?, "metrics");
    narrows::io::thread::spawn("metrics", move || {
        for stream in listener.incoming() {
            match stream {
                // A scraper that breaks off is its own loss.
                Ok(stream) => drop(answer(stream, &source())),
                // Out of descriptors: asking again at once would be told the same.
                Err(fault) => {
                    tracing::warn!(%fault, "cannot accept a scraper");
                    thread::sleep(Duration::from_millis(100));
                }
            }
        }
    })?;
    Ok(())
}

fn answer(mut stream: TcpStream, body: &str) -> std::io::Result<()> {
    stream.set_read_timeout(Some(Duration::from_secs(2)))?;
    stream.set_write_timeout(Some(Duration::from_secs(2)))?;
    // The request line says nothing we need, but it must be read before the answer, else the close is a reset.
    let _ = stream.read(&mut [0; 4096])?;
    write!(
        stream,
        "HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    )
}

/// The counters of a session.
pub fn of_session(stats: &Stats) -> String {
    let mut text = String::new();
    let mut add = |name: &str, kind: &str, help: &str, value: f64| {
        text.push_str(&format!(
            "# HELP narrows_{name} {help}\n# TYPE narrows_{name} {kind}\nnarrows_{name} {value}\n"
        ));
    };
    add(
        "sent_raw_bytes_total",
        "counter",
        "Bytes taken for sending, before packing.",
        stats.sent_raw as f64,
    );
    add(
        "sent_wire_bytes_total",
        "counter",
        "Bytes written to links.",
        stats.sent_wire as f64,
    );
    add(
        "received_raw_bytes_total",
        "counter",
        "Bytes received, after unpacking.",
        stats.received_raw as f64,
    );
    add(
        "received_wire_bytes_total",
        "counter",
        "Bytes read from links.",
        stats.received_wire as f64,
    );
    add(
        "links_resumed_total",
        "counter",
        "Links lost and replaced.",
        stats.resumed as f64,
    );
    text.push_str(&of_process());
    text
}

/// What the process costs, and which it is.
pub fn of_process() -> String {
    let mut text = String::new();
    let mut add = |name: &str, kind: &str, help: &str, value: f64| {
        text.push_str(&format!(
            "# HELP narrows_{name} {help}\n# TYPE narrows_{name} {kind}\nnarrows_{name} {value}\n"
        ));
    };
    add(
        "cpu_seconds_total",
        "counter",
        "Processor time of the process.",
        CpuTime::of_process().total_ns() as f64 / 1e9,
    );
    if let Ok(memory) = Memory::of_process() {
        add(
            "resident_bytes",
            "gauge",
            "Memory resident now.",
            memory.resident as f64,
        );
    }
    text.push_str(&format!(
        "# HELP narrows_build_info Version.\n# TYPE narrows_build_info gauge\nnarrows_build_info{{version=\"{}\"}} 1\n",
        env!("CARGO_PKG_VERSION")
    ));
    text
}
