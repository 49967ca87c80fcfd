//! What `narrows disk stat` reads from a server's control socket: one JSON document.

use std::{io, path::Path, sync::Arc};

use narrows_io::{
    Address,
    answer::{self, Answers, Speech},
    listener::ListenError,
};
use serde::{Deserialize, Serialize};

use crate::stat::Stat;

/// Name and version of the document.
pub const SCHEMA: &str = "narrows.disk/1";

/// A server's disks at one moment.
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
    /// Disks in the order of their exports.
    pub disks: Vec<Named>,
}

/// A disk under its export's name.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Named {
    /// The export's.
    pub name: String,
    /// Where its bytes are.
    pub backing: String,
    /// Bytes a second by which it fills, over the last ten minutes; absent until ten seconds were seen.
    pub growth_bytes_per_s: Option<f64>,
    /// Seconds until it is full if it goes on like that; absent where it does not grow.
    pub full_in_s: Option<f64>,
    /// All counters.
    #[serde(flatten)]
    pub stat: Stat,
}

/// Answers at the Unix socket `path` with what `report` gives at each call, until what is returned is dropped.
///
/// # Errors
/// The path is taken, or cannot be listened on.
pub fn serve(
    path: &Path,
    report: Arc<dyn Fn() -> Report + Send + Sync>,
) -> Result<Answers, ListenError> {
    let document = move || serde_json::to_vec(&report()).expect("a report is plain JSON");
    let address = Address::Unix(path.into());
    Answers::start(&address, Speech::Plain, Arc::new(document))
}

/// Asks the server at `path`.
///
/// # Errors
/// Nobody answers there, or not with a report.
pub fn ask(path: &Path) -> io::Result<Report> {
    let document = answer::ask(&Address::Unix(path.into()))?;
    serde_json::from_slice(&document).map_err(io::Error::from)
}
