//! A served RAM disk: stores, the thread that looks after cold pages, an NBD server, a control socket, metrics.
//!
//! Everything that a face needs is in [`RamDiskConfig`] and [`RamDisk`]; a face parses, prints and waits.

use std::{
    io,
    path::PathBuf,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use narrows_io::{
    Address, allocator,
    answer::Answers,
    helper_pool::HelperPool,
    listener::ListenError,
    meter::{self, CpuTime},
    metrics,
};
use narrows_nbd::{Config, Export, Exports, ServeError, Server};

use crate::{
    Backing, Budget, Chains, Profile, Recompressor, RecompressorConfig, Store, StoreConfig,
    control::{self, Named, Report},
};

/// Most threads that help with one long request: one has at most 32 pages at a time.
const HELPERS_MAX: usize = 7;

/// What is served, where, and how.
#[derive(Debug, Clone)]
pub struct RamDiskConfig {
    /// Name and size in bytes of each device; the first is what a client gets that names none.
    pub devices: Vec<(String, u64)>,
    /// Most memory for the pages of all of them, in bytes.
    pub mem_limit: Option<u64>,
    /// How hard pages are packed as they are written.
    pub profile: Profile,
    /// A file or block device for pages that do not pack, and the most bytes of it.
    pub backing: Option<(PathBuf, Option<u64>)>,
    /// An untouched page is cold after this long.
    pub idle_after: Duration,
    /// Pack cold pages harder.
    pub recompress: bool,
    /// Where clients connect.
    pub listen: Vec<Address>,
    /// Directory of the server's certificates.
    pub tls_certificates: Option<PathBuf>,
    /// Allow plain connections from other hosts.
    pub insecure: bool,
    /// Connections served at once, at most.
    pub connections_max: usize,
    /// The control socket.
    pub control: PathBuf,
    /// Where Prometheus scrapes.
    pub metrics: Option<Address>,
}

/// Why there is no RAM disk.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RamDiskError {
    /// A device of no bytes.
    #[error("the RAM disk `{0}` would hold nothing; choose a larger --size")]
    Empty(String),
    /// The system does not give the address space.
    #[error("cannot make a device of {size} bytes: {reason}; choose a smaller --size")]
    TooLarge {
        /// What was asked for.
        size: u64,
        /// The system's word.
        reason: io::Error,
    },
    /// The backing file cannot be had.
    #[error(transparent)]
    Backing(io::Error),
    /// The NBD server cannot start.
    #[error(transparent)]
    Serve(#[from] ServeError),
    /// The control socket cannot be had.
    #[error("cannot be asked by `narrows memory stat`: {0}; name another socket with --control")]
    Control(ListenError),
    /// The metrics' address cannot be had.
    #[error("cannot serve metrics: {0}")]
    Metrics(ListenError),
    /// The system gives no thread.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// A RAM disk that is served until it is stopped or dropped.
#[derive(Debug)]
pub struct RamDisk {
    // In the order in which they end.
    _metrics: Option<Answers>,
    _control: Answers,
    _keeper: Recompressor,
    server: Arc<Server>,
    counters: Counters,
}

/// What a report is made of.
#[derive(Debug, Clone)]
struct Counters {
    begun: Instant,
    stores: Vec<(String, Arc<Store>)>,
    server: std::sync::Weak<Server>,
}

impl RamDisk {
    /// Makes the stores and serves them.
    ///
    /// # Errors
    /// See [`RamDiskError`].
    pub fn start(config: RamDiskConfig) -> Result<Self, RamDiskError> {
        let begun = Instant::now();
        allocator::share_one_arena();
        let chains = Chains::default();
        let stores = stores(&config, &chains)?;
        let mut exports = Exports::default();
        for (name, store) in &stores {
            let export = Export {
                name: name.clone(),
                description: "a RAM disk of packed pages; its content ends with the server".into(),
                device: store.clone(),
                read_only: false,
            };
            exports.add(export).map_err(ServeError::from)?;
        }
        let served = Config {
            exports,
            tls_certificates: config.tls_certificates,
            insecure: config.insecure,
            connections_max: config.connections_max,
        };
        let server = Arc::new(Server::bind(&config.listen, served)?);
        let keeper = RecompressorConfig {
            idle_after: config.idle_after,
            recompress: config.recompress,
            chains,
        };
        let kept = stores.iter().map(|(_, store)| store.clone()).collect();
        let keeper = Recompressor::start(kept, keeper)?;
        let counters = Counters {
            begun,
            stores,
            server: Arc::downgrade(&server),
        };
        let asked = counters.clone();
        let control = control::serve(&config.control, Arc::new(move || asked.report()))
            .map_err(RamDiskError::Control)?;
        let scraped = counters.clone();
        let scrape = move || crate::metrics::of(&scraped.report());
        let metrics = config.metrics.map(|at| metrics::serve(&at, scrape));
        Ok(Self {
            _metrics: metrics.transpose().map_err(RamDiskError::Metrics)?,
            _control: control,
            _keeper: keeper,
            server,
            counters,
        })
    }

    /// How clients name the first device, one address each.
    #[must_use]
    pub fn uris(&self) -> Vec<String> {
        let first = self
            .counters
            .stores
            .first()
            .map_or("", |(name, _)| name.as_str());
        self.server.uris(first)
    }

    /// Its counters at this moment.
    #[must_use]
    pub fn report(&self) -> Report {
        self.counters.report()
    }
}

impl Counters {
    fn report(&self) -> Report {
        let named = |(name, store): &(String, Arc<Store>)| {
            let stat = store.stat();
            Named {
                name: name.clone(),
                ratio: stat.ratio(),
                stat,
            }
        };
        Report {
            schema: control::SCHEMA.into(),
            pid: std::process::id(),
            uptime_s: self.begun.elapsed().as_secs_f64(),
            resident_bytes: meter::Memory::of_process().map_or(0, |memory| memory.resident),
            cpu_s: CpuTime::of_process().total_ns() as f64 / 1e9,
            connections: self
                .server
                .upgrade()
                .map_or(0, |server| server.connections()),
            stores: self.stores.iter().map(named).collect(),
        }
    }
}

fn stores(
    config: &RamDiskConfig,
    chains: &Chains,
) -> Result<Vec<(String, Arc<Store>)>, RamDiskError> {
    let budget = Arc::new(Budget::new(config.mem_limit));
    let open = |(path, size): &(PathBuf, Option<u64>)| Backing::open(path, *size).map(Arc::new);
    let backing = config.backing.as_ref().map(open).transpose();
    let backing = backing.map_err(|error| RamDiskError::Backing(io::Error::other(error)))?;
    // A processor is the request's own, and more helpers than there are pages to deal out find nothing to do.
    let processors = thread::available_parallelism().map_or(1, usize::from);
    let helpers = processors.min(HELPERS_MAX + 1) - 1;
    let helpers = Arc::new(HelperPool::new("memory-crew", helpers)?);
    let mut stores = Vec::with_capacity(config.devices.len());
    for (name, size) in &config.devices {
        if *size == 0 {
            return Err(RamDiskError::Empty(name.clone()));
        }
        let store = Store::new(StoreConfig {
            size: *size,
            profile: config.profile,
            chains: chains.clone(),
            budget: budget.clone(),
            backing: backing.clone(),
            helpers: helpers.clone(),
        });
        let too_large = |reason| RamDiskError::TooLarge {
            size: *size,
            reason,
        };
        stores.push((name.clone(), Arc::new(store.map_err(too_large)?)));
    }
    Ok(stores)
}
