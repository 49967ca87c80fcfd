//! What `narrows memory stat` reads from a server's control socket: one JSON document.

use std::{fs, io, os::unix::fs::MetadataExt, path::Path, sync::Arc};

use narrows_io::{
    Address,
    answer::{self, Answers, Speech},
    listener::ListenError,
};
use serde::{Deserialize, Serialize};

use crate::stat::Stat;

/// Name and version of the document.
pub const SCHEMA: &str = "narrows.memory/1";

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

/// Answers at the Unix socket `path` with what `report` gives at each call, until what is returned is dropped.
///
/// # Errors
/// The path is taken, or cannot be listened on.
pub fn serve(
    path: &Path,
    report: Arc<dyn Fn() -> Report + Send + Sync>,
) -> Result<Answers, ListenError> {
    let document = move || serde_json::to_vec(&report()).expect("a report is plain JSON");
    Answers::start(
        &Address::Unix(path.into()),
        Speech::Plain,
        Arc::new(document),
    )
}

/// Refuses a socket of another user than ourselves and root: anybody may put one where others look for a server's.
fn check_owner(path: &Path) -> io::Result<()> {
    let owner = fs::symlink_metadata(path)?.uid();
    if owner == 0 || owner == rustix::process::geteuid().as_raw() {
        return Ok(());
    }
    let text = format!(
        "it belongs to another user ({owner}), so what answers there is not to be believed"
    );
    Err(io::Error::new(io::ErrorKind::PermissionDenied, text))
}

/// Asks the server at `path`.
///
/// # Errors
/// Nobody answers there, or not with a report; or the socket is another user's.
pub fn ask(path: &Path) -> io::Result<Report> {
    check_owner(path)?;
    let document = answer::ask(&Address::Unix(path.into()))?;
    serde_json::from_slice(&document).map_err(io::Error::from)
}
