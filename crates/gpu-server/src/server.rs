//! Clients, and what they may have.

use std::{
    io,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
    thread,
    time::Duration,
};

use narrows::{Code, Endpoint, Error, Incoming, Limits, Plan, Settings, SettingsBuilder};
use narrows_core::limits::CHUNK_LEN_MAX;
use narrows_gpu_wire::{DeviceInfo, Frames, LANES_MAX, Reply, Request, SERVICE, lane_of};
use narrows_io::metrics::{Kind, Metric};

use crate::{
    Device, Failure, Freed,
    content::ContentMemory,
    cuda::Driver,
    device::Faults,
    ended,
    host::{self, Host},
    images::Images,
    lane::{Lanes, Outbox},
    session::{self, Means, Session},
};

/// What a server allows.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ServerOptions {
    /// Bytes of device memory for all clients together; `None` is 4 GiB on the host, and all there is on a GPU.
    pub memory_max: Option<u64>,
    /// Clients at once.
    pub clients_max: usize,
    /// Where images are kept between programs.
    pub image_dir: Option<PathBuf>,
    /// Bytes of images that are kept.
    pub image_bytes_max: u64,
    /// Bytes of copies that are kept for all clients together, so that they need not be sent again, in this session or in
    /// a later one of the same client; 0 for none.
    pub contents_max: u64,
    /// What the emulation is like.
    pub host: host::Options,
}

impl Default for ServerOptions {
    fn default() -> Self {
        Self {
            memory_max: None,
            clients_max: 16,
            image_dir: None,
            image_bytes_max: 2 << 30,
            contents_max: 1 << 30,
            host: host::Options::default(),
        }
    }
}

/// What runs the work.
#[derive(Debug, Clone)]
pub enum Backend {
    /// A GPU of this host, through its driver.
    Cuda(Arc<Driver>),
    /// This host's memory and processors.
    Host(Arc<Host>),
}

impl Backend {
    /// Its name in options and messages.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Cuda(_) => "cuda",
            Self::Host(_) => "host",
        }
    }

    fn open(&self, faults: Faults) -> Result<Arc<dyn Device>, Failure> {
        match self {
            Self::Cuda(driver) => driver.open(faults),
            Self::Host(host) => host.open(faults),
        }
    }
}

/// How a session of this service is set up at its server. No resuming: a program whose connection is cut has lost its
/// device, as one whose GPU falls off its bus.
#[must_use]
pub fn settings(mut base: Settings) -> Settings {
    // A channel has no end while its program runs, so "the whole message" is a copy: one chunk as long as there are any.
    if let Plan::Naive(codec) = base.plan {
        base.plan = Plan::Fixed(codec);
        base.chunk_len = Some(CHUNK_LEN_MAX);
        base.depth = Some(1);
    }
    let limits = Limits {
        chunk_len_max: base.chunk_len.unwrap_or(0).max(1 << 20),
        window_len: base.limits.window_len.min(WINDOW_LEN),
        channels_max: LANES_MAX as u16 + 1,
        ..base.limits
    };
    SettingsBuilder::from(base)
        .limits(limits)
        .resume_within(Duration::ZERO)
        .build()
}

/// Bytes that a side sends ahead of the other's consumption, on each channel: 1 Gbit/s over 60 ms.
const WINDOW_LEN: usize = 8 << 20;

/// What a server has done so far.
#[derive(Debug, Default)]
pub struct Counters {
    /// Sessions that have begun.
    pub sessions: AtomicU64,
    /// Sessions that go on.
    pub clients: AtomicUsize,
    /// Allocations that ended with their sessions.
    pub allocations_freed: AtomicU64,
    /// Bytes received from the links of sessions that have ended.
    pub received_wire: AtomicU64,
    /// Bytes sent to them.
    pub sent_wire: AtomicU64,
    /// Bytes of chunks received, unpacked.
    pub received_raw: AtomicU64,
    /// Bytes of chunks sent, before packing.
    pub sent_raw: AtomicU64,
    /// Bytes of copies that were kept here and so were not sent again.
    pub contents_saved: AtomicU64,
}

/// A server of one device.
#[derive(Debug)]
pub struct Server {
    backend: Backend,
    options: ServerOptions,
    images: Images,
    contents: Arc<ContentMemory>,
    counters: Counters,
}

impl Server {
    /// Serves `backend`.
    ///
    /// # Errors
    /// The folder for images cannot be made.
    pub fn new(backend: Backend, options: ServerOptions) -> io::Result<Arc<Self>> {
        let images = Images::open(options.image_dir.clone(), options.image_bytes_max)?;
        Ok(Arc::new(Self {
            backend,
            contents: ContentMemory::new(options.contents_max),
            options,
            images,
            counters: Counters::default(),
        }))
    }

    /// What clients are told of the device.
    ///
    /// # Errors
    /// [`Failure`] where the device does not open.
    pub fn describe(&self) -> Result<DeviceInfo, Failure> {
        Ok(self.backend.open(Arc::new(|_| {}))?.info())
    }

    /// What was done so far.
    #[must_use]
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// The same for Prometheus, of sessions that have ended where bytes are counted.
    #[must_use]
    pub fn metrics(&self) -> Vec<Metric> {
        let counters = &self.counters;
        let one = |name: &str, kind, help, value: u64| {
            Metric::one(format!("narrows_{name}"), kind, help, value as f64)
        };
        let count =
            |name, help, counter: &AtomicU64| one(name, Kind::Counter, help, counter.load(Relaxed));
        vec![
            count(
                "gpu_sessions",
                "Sessions that have begun",
                &counters.sessions,
            ),
            one(
                "gpu_clients",
                Kind::Gauge,
                "Sessions that go on",
                counters.clients.load(Relaxed) as u64,
            ),
            count(
                "gpu_allocations_freed",
                "Allocations that ended with their sessions",
                &counters.allocations_freed,
            ),
            count(
                "gpu_content_cache_bytes",
                "Bytes of copies that were not sent again",
                &counters.contents_saved,
            ),
            count(
                "received_raw_bytes",
                "Bytes received, after unpacking",
                &counters.received_raw,
            ),
            count(
                "received_wire_bytes",
                "Bytes read from links",
                &counters.received_wire,
            ),
            count(
                "sent_raw_bytes",
                "Bytes sent, before packing",
                &counters.sent_raw,
            ),
            count(
                "sent_wire_bytes",
                "Bytes written to links",
                &counters.sent_wire,
            ),
        ]
    }

    /// Serves one client until it ends. Everything it had is freed then.
    ///
    /// # Errors
    /// [`Error`], where the session ended other than well.
    pub fn attend(&self, endpoint: &Endpoint) -> Result<Freed, Error> {
        let clients = &self.counters.clients;
        let many = clients.fetch_add(1, Relaxed) >= self.options.clients_max;
        let result = if many {
            let text = format!(
                "{} clients are as many as it takes",
                self.options.clients_max
            );
            self.refuse(endpoint, &text)
        } else {
            self.counters.sessions.fetch_add(1, Relaxed);
            self.serve(endpoint)
        };
        clients.fetch_sub(1, Relaxed);
        let stats = endpoint.stats();
        let add = |counter: &AtomicU64, bytes| counter.fetch_add(bytes, Relaxed);
        add(&self.counters.received_wire, stats.received_wire);
        add(&self.counters.sent_wire, stats.sent_wire);
        add(&self.counters.received_raw, stats.received_raw);
        add(&self.counters.sent_raw, stats.sent_raw);
        match &result {
            Ok(_) => endpoint.close(),
            Err(end) => endpoint.fail(end.code(), end.text()),
        }
        result
    }

    fn refuse(&self, endpoint: &Endpoint, text: &str) -> Result<Freed, Error> {
        if let Some(incoming) = endpoint.accept()? {
            let outbox = Outbox::new(incoming.writer);
            outbox.say(&Reply::Refused { text: text.into() });
            // Told before the session ends under it.
            outbox.finish()?;
        }
        Err(ended(Code::LIMIT, text))
    }

    fn serve(&self, endpoint: &Endpoint) -> Result<Freed, Error> {
        let Some(Incoming {
            service,
            writer,
            mut reader,
        }) = endpoint.accept()?
        else {
            return Ok(Freed::default());
        };
        if service != SERVICE {
            let text = format!("this is a server of GPUs ({SERVICE}), not of {service:?}");
            return Err(ended(Code::PROTOCOL, text));
        }
        let outbox = Arc::new(Outbox::new(writer));
        let mut frames = Frames::default();
        let program = hello(&mut reader, &mut frames)?;
        let device = match self.backend.open(faults(outbox.clone())) {
            Ok(device) => device,
            Err(failure) => {
                outbox.say(&Reply::Refused {
                    text: failure.text.clone(),
                });
                outbox.finish()?;
                return Err(ended(Code::FAILED, failure.text));
            }
        };
        tracing::info!(program, "a session begins");
        outbox.say(&Reply::Welcome(device.info()));
        let contents = self.contents.grant(endpoint.identity());
        if contents.granted() > 0 {
            outbox.say(&Reply::Contents {
                bytes_max: contents.granted(),
                pieces: contents.pieces(),
            });
        }
        let lanes = Lanes::default();
        let result = thread::scope(|scope| {
            scope.spawn(|| collect(endpoint, &lanes));
            let mut session = Session::new(Means {
                endpoint,
                device: device.clone(),
                outbox: outbox.clone(),
                lanes: &lanes,
                images: &self.images,
                contents,
            });
            let result = session.run(&mut reader, &mut frames);
            self.counters
                .contents_saved
                .fetch_add(session.saved(), Relaxed);
            drop(session);
            lanes.close();
            // Streams that wait for a lane's bytes give up with the endpoint.
            match &result {
                Ok(()) => endpoint.close(),
                Err(end) => endpoint.fail(end.code(), end.text()),
            }
            let freed = device.clear();
            lanes.clear();
            result.map(|()| freed).map_err(|end| (end, freed))
        });
        let freed = *result.as_ref().unwrap_or_else(|(_, freed)| freed);
        self.counters
            .allocations_freed
            .fetch_add(freed.allocations as u64, Relaxed);
        tracing::info!(
            program,
            allocations = freed.allocations,
            bytes = freed.bytes,
            streams = freed.streams,
            events = freed.events,
            modules = freed.modules,
            "a session has ended and everything of it is freed"
        );
        result.map_err(|(end, _)| end)
    }
}

/// Tells a client of each fault of its program.
fn faults(outbox: Arc<Outbox>) -> Faults {
    Arc::new(move |failure: Failure| {
        tracing::debug!("a fault of the program: {failure}");
        outbox.say(&Reply::Fault {
            status: failure.status.0,
            text: failure.text,
        });
    })
}

/// Lanes as they come, until the session ends.
fn collect(endpoint: &Endpoint, lanes: &Lanes) {
    while let Ok(Some(incoming)) = endpoint.accept() {
        match lane_of(&incoming.service) {
            Some(number) => lanes.add(number, incoming),
            None => incoming
                .reader
                .abort(Code::PROTOCOL, "a channel that is no lane"),
        }
    }
    lanes.close();
}

/// The first message: what the program is called.
fn hello(reader: &mut narrows::ChannelReader, frames: &mut Frames) -> Result<String, Error> {
    loop {
        match session::next(frames)? {
            Some(Request::Hello { program, .. }) => return Ok(printable(&program)),
            Some(_) => return Err(ended(Code::PROTOCOL, "the client did not say hello")),
            None => {}
        }
        match reader.next_chunk()? {
            Some(bytes) => frames.push(bytes),
            None => return Err(ended(Code::PROTOCOL, "the client said nothing")),
        }
    }
}

/// Short, and nothing that a terminal would obey.
fn printable(text: &str) -> String {
    text.chars()
        .take(100)
        .map(|c| if c.is_control() { '?' } else { c })
        .collect()
}
