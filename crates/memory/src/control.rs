//! The socket that `narrows memory stat` reads: whoever connects gets one document and the end of the stream.
//!
//! A Unix socket for its owner alone, so there is nothing to authenticate and nothing to parse.

use std::{
    io::{self, Read, Write},
    os::unix::net::UnixStream,
    path::Path,
    sync::Arc,
    thread::{self, JoinHandle},
    time::Duration,
};

use narrows_io::{Address, Listener, Stop, Tuning, listener::ListenError};
use serde::{Deserialize, Serialize};

use crate::stat::Stat;

/// Name and version of the document.
pub const SCHEMA: &str = "narrows.memory/1";
/// Longest document that [`ask`] takes.
const DOCUMENT_LEN_MAX: u64 = 16 << 20;
const PATIENCE: Duration = Duration::from_secs(5);

/// A server's stores at one moment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// [`SCHEMA`].
    pub schema: String,
    /// The server's process.
    pub pid: u32,
    /// Seconds since it began.
    pub uptime_s: f64,
    /// Memory of the process that is resident, in bytes.
    pub resident_bytes: u64,
    /// Processor time of the process, in seconds.
    pub cpu_s: f64,
    /// Clients connected.
    pub connections: usize,
    /// Stores by name.
    pub stores: Vec<Named>,
}

/// A store under its export's name.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Named {
    /// The export's.
    pub name: String,
    /// Pages in memory over the memory they cost.
    pub ratio: f64,
    /// All counters.
    #[serde(flatten)]
    pub stat: Stat,
}

/// Answers until it is dropped.
#[derive(Debug)]
pub struct Control {
    stop: Stop,
    thread: Option<JoinHandle<()>>,
}

impl Control {
    /// Answers at `path` with what `report` gives at each call.
    ///
    /// # Errors
    /// The path is taken, or cannot be listened on.
    pub fn start(
        path: &Path,
        report: Arc<dyn Fn() -> Report + Send + Sync>,
    ) -> Result<Self, ListenError> {
        let address = Address::Unix(path.into());
        let listener = Listener::bind(&address, &Tuning::default())?;
        let stop = listener.stopper();
        let answer = move || {
            for mut transport in listener.incoming() {
                let document =
                    serde_json::to_vec(&report()).expect("a report holds nothing that JSON cannot");
                // A few kilobytes: the socket takes them whole, so a client that does not read holds nobody up.
                let _ = transport
                    .writer
                    .write_all(&document)
                    .and_then(|()| transport.writer.finish());
            }
        };
        let thread = thread::Builder::new().name("control".into()).spawn(answer);
        let thread = thread.map_err(|source| ListenError::Io { address, source })?;
        Ok(Self {
            stop,
            thread: Some(thread),
        })
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        self.stop.stop();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Asks the server at `path`.
///
/// # Errors
/// Nobody answers there, or not with a report.
pub fn ask(path: &Path) -> io::Result<Report> {
    let stream = UnixStream::connect(path)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut document = Vec::new();
    stream.take(DOCUMENT_LEN_MAX).read_to_end(&mut document)?;
    serde_json::from_slice(&document).map_err(io::Error::from)
}
