//! What `narrows memory run` and its preload library tell each other: settings by environment, counters by a shared
//! file.
//!
//! The library is loaded into the program and serves its page faults (`narrows-paged`); this is the parent's side.

use std::{
    env,
    ffi::OsString,
    fs::{self, File},
    io,
    os::{fd::AsRawFd, unix::fs::FileExt},
    path::{Path, PathBuf},
};

use narrows_io::metrics::{Kind, Metric};
use serde::Serialize;

/// The file that the build makes.
pub const LIBRARY: &str = "libnarrows_paged.so";
/// Names it, if it is elsewhere.
pub const LIBRARY_VARIABLE: &str = "NARROWS_PAGED_LIBRARY";
/// Bytes of memory that the program may have.
pub const LIMIT: &str = "NARROWS_PAGED_LIMIT";
/// Folder of the backing file.
pub const BACKING: &str = "NARROWS_PAGED_BACKING";
/// The shared file of counters.
pub const COUNTERS: &str = "NARROWS_PAGED_COUNTERS";
/// Process whose child is the program: no other process is managed.
pub const PARENT: &str = "NARROWS_PAGED_PARENT";
/// The program ends once the library has tried what it needs.
pub const CHECK: &str = "NARROWS_PAGED_CHECK";

/// Where the library may lie, from the folder of the program `narrows`.
const PLACES: [&str; 4] = [".", "../lib/narrows", "../lib", "deps"];

/// The library: what the variable names, beside this program, or where packages put it.
///
/// # Errors
/// In words, with what to do next.
pub fn find() -> Result<PathBuf, String> {
    let whole = |path: &Path| fs::canonicalize(path).ok().filter(|path| path.is_file());
    if let Some(path) = env::var_os(LIBRARY_VARIABLE) {
        let path = PathBuf::from(path);
        let missing = || {
            format!(
                "{LIBRARY_VARIABLE} names {}, which is not there",
                path.display()
            )
        };
        return whole(&path).ok_or_else(missing);
    }
    let exe = env::current_exe().map_err(|fault| format!("cannot tell where I am: {fault}"))?;
    let dir = exe.parent().unwrap_or(Path::new("/"));
    let found = PLACES
        .iter()
        .find_map(|place| whole(&dir.join(place).join(LIBRARY)));
    found.ok_or_else(|| {
        format!(
            "{LIBRARY} is not beside {}, nor in ../lib/narrows: build it (`cargo build -p narrows-paged`), or name it \
             in {LIBRARY_VARIABLE}",
            exe.display()
        )
    })
}

/// A counter that the library keeps: its place in the shared file, in words of eight bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(usize)]
pub enum Counter {
    /// 1 once memory is managed, 0 before.
    Started,
    /// Faults served that had to bring something.
    Faults,
    /// Faults of writes to pages whose packed copy was kept.
    Dirtied,
    /// Blocks brought before they were asked for.
    ReadAhead,
    /// Blocks that were unpacked.
    Unpacked,
    /// Blocks that were packed.
    Packed,
    /// Blocks dropped, since their packed copy was kept.
    Dropped,
    /// Blocks written to the backing file.
    Written,
    /// Blocks read from the backing file.
    Read,
    /// Nanoseconds that threads spent on faults.
    FaultNs,
    /// Nanoseconds that threads spent on packing and writing.
    EvictNs,
    /// Most bytes of the process that were resident.
    Peak,
    /// Bytes of blocks in the program's hands.
    Resident,
    /// Most bytes of blocks that were kept packed in memory, before packing.
    StoredRaw,
    /// Bytes that these cost.
    Stored,
    /// Bytes of large memory that the program has.
    Taken,
    /// Most of it so far.
    TakenPeak,
}

/// How many counters there are.
pub const COUNT: usize = Counter::TakenPeak as usize + 1;

/// What the library counted.
#[derive(Debug, Clone, Serialize)]
pub struct RunReport {
    /// Name and version of the document.
    pub schema: &'static str,
    /// Whether the program asked for large memory at all.
    pub started: bool,
    /// Most bytes of the process that were resident.
    pub peak_bytes: u64,
    /// Most large memory that the program had at a time, in bytes.
    pub taken_peak_bytes: u64,
    /// Most bytes that were kept packed, before packing.
    pub stored_raw_bytes: u64,
    /// What these cost then.
    pub stored_bytes: u64,
    /// Faults served.
    pub faults: u64,
    /// Faults of first writes to blocks with a packed copy.
    pub dirtied: u64,
    /// Blocks brought ahead.
    pub read_ahead: u64,
    /// Blocks packed.
    pub packed: u64,
    /// Blocks unpacked.
    pub unpacked: u64,
    /// Blocks dropped that had a copy.
    pub dropped: u64,
    /// Blocks written to the backing file.
    pub written: u64,
    /// Blocks read from it.
    pub read: u64,
    /// Seconds that faults took, of all threads.
    pub fault_s: f64,
    /// Seconds that packing and writing took, of all threads.
    pub evict_s: f64,
}

impl RunReport {
    /// The same for Prometheus.
    #[must_use]
    pub fn metrics(&self) -> Vec<Metric> {
        let one = |name: &str, kind, help, value| {
            Metric::one(format!("narrows_memory_run_{name}"), kind, help, value)
        };
        let gauge = |name, help, bytes: u64| one(name, Kind::Gauge, help, bytes as f64);
        let count = |name, help, blocks: u64| one(name, Kind::Counter, help, blocks as f64);
        vec![
            gauge(
                "peak_bytes",
                "Most bytes of the program that were resident",
                self.peak_bytes,
            ),
            gauge(
                "taken_peak_bytes",
                "Most large memory that the program had",
                self.taken_peak_bytes,
            ),
            gauge(
                "stored_raw_bytes",
                "Most bytes that were kept packed, before packing",
                self.stored_raw_bytes,
            ),
            gauge("stored_bytes", "What these cost packed", self.stored_bytes),
            count("faults", "Faults that had to bring something", self.faults),
            count(
                "read_ahead_blocks",
                "Blocks brought before they were asked for",
                self.read_ahead,
            ),
            count("packed_blocks", "Blocks packed", self.packed),
            count("unpacked_blocks", "Blocks unpacked", self.unpacked),
            count(
                "written_blocks",
                "Blocks written to the backing file",
                self.written,
            ),
            one(
                "fault_seconds",
                Kind::Counter,
                "Time that faults took, of all threads",
                self.fault_s,
            ),
            one(
                "evict_seconds",
                Kind::Counter,
                "Time that packing took, of all threads",
                self.evict_s,
            ),
        ]
    }
}

/// The shared file of counters. It has no name, and ends with this value and the program.
#[derive(Debug)]
pub struct Counters(File);

impl Counters {
    /// Makes one.
    ///
    /// # Errors
    /// The system's.
    pub fn new() -> io::Result<Self> {
        let file = File::from(rustix::fs::memfd_create(
            "narrows",
            rustix::fs::MemfdFlags::CLOEXEC,
        )?);
        file.set_len((COUNT * 8) as u64)?;
        Ok(Self(file))
    }

    /// What they are now.
    ///
    /// # Errors
    /// The system's.
    pub fn report(&self) -> io::Result<RunReport> {
        let mut bytes = [0; COUNT * 8];
        self.0.read_exact_at(&mut bytes, 0)?;
        let (words, _) = bytes.as_chunks::<8>();
        let of = |counter: Counter| u64::from_ne_bytes(words[counter as usize]);
        Ok(RunReport {
            schema: "narrows.memory-run/1",
            started: of(Counter::Started) == 1,
            peak_bytes: of(Counter::Peak),
            taken_peak_bytes: of(Counter::TakenPeak),
            stored_raw_bytes: of(Counter::StoredRaw),
            stored_bytes: of(Counter::Stored),
            faults: of(Counter::Faults),
            dirtied: of(Counter::Dirtied),
            read_ahead: of(Counter::ReadAhead),
            packed: of(Counter::Packed),
            unpacked: of(Counter::Unpacked),
            dropped: of(Counter::Dropped),
            written: of(Counter::Written),
            read: of(Counter::Read),
            fault_s: of(Counter::FaultNs) as f64 * 1e-9,
            evict_s: of(Counter::EvictNs) as f64 * 1e-9,
        })
    }

    /// The environment of a program that is to run within `limit` bytes.
    #[must_use]
    pub fn environment(&self, library: &Path, limit: u64, backing: &Path) -> Vec<(&str, OsString)> {
        let mut preload = library.as_os_str().to_owned();
        if let Some(before) = env::var_os("LD_PRELOAD").filter(|before| !before.is_empty()) {
            preload.push(":");
            preload.push(before);
        }
        let pid = std::process::id();
        let counters = format!("/proc/{pid}/fd/{}", self.0.as_raw_fd());
        vec![
            ("LD_PRELOAD", preload),
            (LIMIT, limit.to_string().into()),
            (BACKING, backing.into()),
            (COUNTERS, counters.into()),
            (PARENT, pid.to_string().into()),
        ]
    }
}
