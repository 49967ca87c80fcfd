//! Served disks: backings opened, stores on them, an NBD server, a control socket, metrics.
//!
//! Everything that a face needs is in [`ServedConfig`] and [`ServedDisks`]; a face parses, prints and waits.

pub mod control;
mod metrics;
mod trend;

use std::{
    ffi::OsString,
    io,
    path::PathBuf,
    sync::{Arc, Weak, mpsc},
    thread::JoinHandle,
    time::{Duration, Instant},
};

use narrows_io::{
    Address, allocator,
    answer::Answers,
    listener::ListenError,
    meter::{self, CpuTime},
    metrics as prometheus, service,
};
use narrows_nbd::{Config, Export, Exports, ServeError, Server};
use parking_lot::Mutex;

use self::{
    control::{Named, Report},
    trend::Trend,
};
use crate::{
    Disk, DiskError, Settings,
    backing::{self, BackingError},
};

/// How often it is looked how full disks are.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// What is served, where, and how.
#[derive(Debug, Clone)]
pub struct ServedConfig {
    /// Name of each export, and of its backing; the first is what a client gets that names none.
    pub exports: Vec<(String, OsString)>,
    /// How the stores are run.
    pub settings: Settings,
    /// Where clients connect.
    pub listen: Vec<Address>,
    /// Directory of the server's certificates.
    pub tls_certificates: Option<PathBuf>,
    /// Allow plain connections from other hosts.
    pub insecure: bool,
    /// Names of certificates that may connect; all of the authority where none is named.
    pub allow: Vec<String>,
    /// Connections served at once, at most.
    pub connections_max: usize,
    /// The control socket.
    pub control: PathBuf,
    /// Where Prometheus scrapes.
    pub metrics: Option<Address>,
}

/// Why nothing is served.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServedError {
    /// A backing cannot be opened.
    #[error("cannot open {name}: {source}")]
    Backing {
        /// The backing, as it was named.
        name: String,
        /// Why.
        source: BackingError,
    },
    /// There is no store on it, or none that can be used.
    #[error(transparent)]
    Disk(#[from] DiskError),
    /// The NBD server cannot start.
    #[error(transparent)]
    Serve(#[from] ServeError),
    /// The control socket cannot be had.
    #[error("cannot be asked by `narrows disk stat`: {0}; name another socket with --control")]
    Control(ListenError),
    /// The metrics' address cannot be had.
    #[error("cannot serve metrics: {0}")]
    Metrics(ListenError),
    /// The system gives no thread.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Disks that are served until they are stopped or dropped.
#[derive(Debug)]
pub struct ServedDisks {
    // In the order in which they end.
    metrics: Option<Answers>,
    control: Option<Answers>,
    watcher: Option<Watcher>,
    server: Option<Arc<Server>>,
    counters: Counters,
}

/// What a report is made of.
#[derive(Debug, Clone)]
struct Counters {
    begun: Instant,
    disks: Arc<[Served]>,
    server: Weak<Server>,
}

#[derive(Debug)]
struct Served {
    name: String,
    backing: String,
    disk: Arc<Disk>,
    trend: Mutex<Trend>,
}

impl ServedDisks {
    /// Opens the backings and serves the stores on them.
    ///
    /// # Errors
    /// See [`ServedError`].
    pub fn start(config: ServedConfig) -> Result<Self, ServedError> {
        let begun = Instant::now();
        allocator::share_one_arena();
        let disks: Arc<[Served]> = open_all(&config)?.into();
        let server = Arc::new(serve(&config, &disks)?);
        let counters = Counters {
            begun,
            disks,
            server: Arc::downgrade(&server),
        };
        let asked = counters.clone();
        let control = control::serve(&config.control, Arc::new(move || asked.report()))
            .map_err(ServedError::Control)?;
        let scraped = counters.clone();
        let scrape = move || metrics::of(&scraped.report());
        let metrics = config.metrics.map(|at| prometheus::serve(&at, scrape));
        let metrics = metrics.transpose().map_err(ServedError::Metrics)?;
        let watcher = Watcher::start(counters.clone())?;
        service::ready();
        Ok(Self {
            metrics,
            control: Some(control),
            watcher: Some(watcher),
            server: Some(server),
            counters,
        })
    }

    /// How clients name the first disk, one address each.
    #[must_use]
    pub fn uris(&self) -> Vec<String> {
        let first = self.counters.disks.first();
        let first = first.map_or("", |served| served.name.as_str());
        let server = self.server.as_ref();
        server.map_or_else(Vec::new, |server| server.uris(first))
    }

    /// Where Prometheus scrapes, with the port that the system chose.
    #[must_use]
    pub fn metrics(&self) -> Option<&Address> {
        self.metrics.as_ref().map(Answers::local)
    }

    /// Their counters at this moment.
    #[must_use]
    pub fn report(&self) -> Report {
        self.counters.report()
    }

    /// Ends connections, makes everything durable and closes the stores, so that the next start has nothing to replay.
    ///
    /// # Errors
    /// The last writes of a store failed: what was flushed before is safe all the same. All of them are closed.
    pub fn stop(mut self) -> Result<(), DiskError> {
        service::stopping();
        self.end();
        let mut first = Ok(());
        for served in self.counters.disks.iter() {
            let closed = served.disk.close();
            first = first.and(closed);
        }
        first
    }

    fn end(&mut self) {
        self.control = None;
        self.metrics = None;
        self.watcher = None;
        if let Some(server) = self.server.take().and_then(Arc::into_inner) {
            server.stop();
        }
    }
}

impl Drop for ServedDisks {
    fn drop(&mut self) {
        self.end();
    }
}

impl Counters {
    fn report(&self) -> Report {
        let server = self.server.upgrade();
        Report {
            schema: control::SCHEMA.into(),
            pid: std::process::id(),
            uptime_s: self.begun.elapsed().as_secs_f64(),
            resident_bytes: meter::Memory::of_process().map_or(0, |memory| memory.resident),
            cpu_s: CpuTime::of_process().total_ns() as f64 / 1e9,
            connections: server.map_or(0, |server| server.connections()),
            disks: self.disks.iter().map(Served::named).collect(),
        }
    }
}

impl Served {
    fn named(&self) -> Named {
        let stat = self.disk.stat();
        let trend = self.trend.lock();
        Named {
            name: self.name.clone(),
            backing: self.backing.clone(),
            growth_bytes_per_s: trend.bytes_per_s(),
            full_in_s: trend.full_in_s(stat.live_max),
            stat,
        }
    }
}

fn open_all(config: &ServedConfig) -> Result<Vec<Served>, ServedError> {
    let open = |(name, backing): &(String, OsString)| {
        let opened = backing::open(backing).map_err(|source| ServedError::Backing {
            name: backing.display().to_string(),
            source,
        })?;
        Ok(Served {
            name: name.clone(),
            backing: opened.name(),
            disk: Arc::new(Disk::open(opened, config.settings.clone())?),
            trend: Mutex::default(),
        })
    };
    config.exports.iter().map(open).collect()
}

fn serve(config: &ServedConfig, disks: &[Served]) -> Result<Server, ServedError> {
    let mut exports = Exports::default();
    for served in disks {
        let export = Export {
            name: served.name.clone(),
            description: format!("a compressed disk on {}", served.backing),
            device: served.disk.clone(),
            read_only: config.settings.read_only,
        };
        exports.add(export).map_err(ServeError::from)?;
    }
    let served = Config {
        exports,
        tls_certificates: config.tls_certificates.clone(),
        insecure: config.insecure,
        allow: config.allow.clone(),
        connections_max: config.connections_max,
    };
    Ok(Server::bind(&config.listen, served)?)
}

/// A thread that keeps the trends.
#[derive(Debug)]
struct Watcher {
    stop: Option<mpsc::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Watcher {
    fn start(counters: Counters) -> io::Result<Self> {
        let (stop, stopped) = mpsc::channel();
        let watch = move || {
            loop {
                let now_s = counters.begun.elapsed().as_secs_f64();
                for served in counters.disks.iter() {
                    let live = served.disk.stat().live;
                    served.trend.lock().push(now_s, live);
                }
                if stopped.recv_timeout(LOOK_EVERY) != Err(mpsc::RecvTimeoutError::Timeout) {
                    return;
                }
            }
        };
        Ok(Self {
            stop: Some(stop),
            thread: Some(narrows_io::thread::spawn("disk-watch", watch)?),
        })
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
