//! One migration: a session, its lanes, the law it keeps, its end.
//!
//! The watch thread samples the session twenty times a second, applies [`BacklogLimit`] to it, and when the session ends,
//! however that comes, aborts every local socket: a lane of which one direction is over has no thread left that would
//! notice.

use std::{
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    thread,
    time::Duration,
};

use narrows::{Code, Dial, Endpoint, Error, Stats};
use narrows_io::{Shutdown, transport::Probe};
use parking_lot::Mutex;

use crate::{
    aware::{Receiver, Sender},
    backlog::{BacklogLimit, Bounds, Pacer, Sample, intake_unbelieved},
    status::Status,
    thread::spawn,
};

/// How often the watch looks.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// For so long what QEMU said it had still to send is about right, in nanoseconds: it is asked ten times a second.
const REMAINING_NS: u64 = 300_000_000;

/// Pages kept where nobody says: 448 MiB on either side for as long as a migration lasts, or what the guest has in use
/// if that is less. Of programs and documents nine tenths of what can be copied comes from as many pages before, of a
/// database in memory as much. More cost fresh memory.
pub const KEEP_MAX: u32 = 112 << 10;

/// What a user may set of a migration, beside the session's settings.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// How long the guest may stand still: what QEMU was given, or its default of 300 ms.
    pub downtime_limit: Duration,
    /// Whether intake is paced, for a QEMU that takes no rate from us.
    pub pace: bool,
    /// Whether multifd packets are understood, or carried as any bytes.
    pub aware: bool,
    /// Pages kept to send differences against, at most: as many on either side.
    pub keep_max: u32,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            downtime_limit: Duration::from_millis(300),
            pace: false,
            aware: true,
            keep_max: KEEP_MAX,
        }
    }
}

/// One migration under way. Handles are `Arc`s; the session ends well by [`Migration::close`] or badly by
/// [`Migration::fail`].
#[derive(Debug)]
pub struct Migration {
    /// The session.
    pub endpoint: Arc<Endpoint>,
    pub(crate) options: Options,
    pub(crate) sender: Arc<Sender>,
    pub(crate) receiver: Arc<Receiver>,
    link: LinkProbe,
    pacing: AtomicBool,
    /// Bytes taken in from this side's QEMU.
    taken: AtomicU64,
    /// What QEMU had still to send, in bytes, and when it said so.
    remaining: Mutex<(u64, u64)>,
    pacer: Mutex<Pacer>,
    bounds: Mutex<Bounds>,
    sockets: Mutex<Vec<Shutdown>>,
    lanes: AtomicU64,
    lanes_over: AtomicU64,
}

impl Migration {
    /// Begins to watch over `endpoint`'s session. `link` is where the dial leaves what it knows of the connection.
    #[must_use]
    pub fn new(endpoint: Arc<Endpoint>, options: Options, link: LinkProbe) -> Arc<Self> {
        let mut law = BacklogLimit::new(options.downtime_limit);
        let bounds = law.see(Sample::default());
        endpoint.set_backlog_max(bounds.backlog_max);
        let sender = Arc::new(Sender::new(options.keep_max as usize));
        let migration = Arc::new(Self {
            endpoint,
            options,
            sender,
            receiver: Arc::new(Receiver::new(options.keep_max as usize)),
            link,
            pacing: options.pace.into(),
            taken: 0.into(),
            remaining: Mutex::default(),
            pacer: Mutex::default(),
            bounds: Mutex::new(bounds),
            sockets: Mutex::default(),
            lanes: AtomicU64::new(0),
            lanes_over: AtomicU64::new(0),
        });
        let watched = Arc::downgrade(&migration);
        spawn("migrate-watch", move || watch(&watched, law));
        migration
    }

    /// Ends the session well.
    pub fn close(&self) {
        self.endpoint.close();
    }

    /// Ends the session and every socket of it at once, and says why to both sides.
    pub fn fail(&self, code: Code, text: &str) {
        if self.endpoint.ended().is_none() {
            tracing::warn!("the migration ends here: {text}");
        }
        self.endpoint.fail(code, text);
    }

    /// A lane ended early: so does the rest, if it has not.
    pub(crate) fn lost(&self, end: &Error) {
        if self.endpoint.ended().is_none() {
            self.fail(end.code(), end.text());
        }
    }

    /// What to give QEMU as `avail-switchover-bandwidth`, bytes a second; 0 while the link's rate is unknown.
    #[must_use]
    pub fn promise(&self) -> u64 {
        self.bounds.lock().promise
    }

    /// Whether intake is paced from now on.
    pub fn set_pacing(&self, on: bool) {
        self.pacing.store(on, Relaxed);
    }

    /// Notes how many bytes of the guest QEMU has still to send: pacing is for the end.
    pub fn set_remaining(&self, bytes: u64) {
        let now_ns = self.endpoint.gauges().now_ns;
        *self.remaining.lock() = (bytes, now_ns);
    }

    /// What the session has carried so far.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.endpoint.stats()
    }

    /// Everything at a glance.
    #[must_use]
    pub fn status(&self) -> Status {
        let gauges = self.endpoint.gauges();
        let (lanes, over) = (self.lanes.load(Relaxed), self.lanes_over.load(Relaxed));
        let bounds = *self.bounds.lock();
        Status::new(
            &self.endpoint.stats(),
            &gauges,
            &bounds,
            &self.sender.counts(),
            lanes - over,
            lanes,
        )
    }

    /// Notes a lane, so that it ends with the session, until [`Self::left`]. `Err` where the session has ended.
    pub(crate) fn joined(&self, socket: &Shutdown) -> Result<(), Error> {
        self.sockets.lock().push(socket.clone());
        self.lanes.fetch_add(1, Relaxed);
        match self.endpoint.ended() {
            Some(end) => {
                socket.abort();
                Err(end)
            }
            None => Ok(()),
        }
    }

    pub(crate) fn left(&self) {
        self.lanes_over.fetch_add(1, Relaxed);
    }

    /// Waits as long as pacing wants after `len` bytes were taken in.
    pub(crate) fn pace(&self, len: usize) {
        self.taken.fetch_add(len as u64, Relaxed);
        if !self.pacing.load(Relaxed) {
            return;
        }
        let Some(rate) = self.bounds.lock().intake else {
            return;
        };
        let now_ns = self.endpoint.gauges().now_ns;
        let (remaining, said_ns) = *self.remaining.lock();
        let unbelieved = intake_unbelieved(remaining, self.options.downtime_limit);
        let rate = if now_ns < said_ns + REMAINING_NS {
            rate.max(unbelieved)
        } else {
            rate
        };
        let wait = self.pacer.lock().took(len, rate, now_ns);
        if !wait.is_zero() {
            thread::sleep(wait);
        }
    }

    fn look(&self, law: &mut BacklogLimit, send_buffer: &mut u64) {
        let gauges = self.endpoint.gauges();
        let sample = Sample::new(&gauges, self.taken.load(Relaxed));
        let bounds = law.see(sample);
        self.endpoint.set_backlog_max(bounds.backlog_max);
        *self.bounds.lock() = bounds;
        self.sender
            .set_link(bounds.goodput, self.endpoint.processors());
        if let Some(wanted) = self.link.send_buffer(bounds.goodput)
            && wanted.abs_diff(*send_buffer) > *send_buffer / 4
            && self.link.set_send_buffer(wanted)
        {
            *send_buffer = wanted;
        }
    }
}

/// Runs until the session has ended or nobody has the migration any more.
fn watch(watched: &Weak<Migration>, mut law: BacklogLimit) {
    let mut send_buffer = 0;
    loop {
        let Some(migration) = watched.upgrade() else {
            return;
        };
        if migration.endpoint.ended().is_some() {
            migration.sockets.lock().iter().for_each(Shutdown::abort);
            return;
        }
        migration.look(&mut law, &mut send_buffer);
        drop(migration);
        thread::sleep(LOOK_EVERY);
    }
}

/// Where a dial leaves a handle of the connection it made, for the law to bound what the kernel holds of it.
#[derive(Debug, Clone, Default)]
pub struct LinkProbe(Arc<Mutex<Probe>>);

impl LinkProbe {
    /// `dial`, which leaves its connections here.
    #[must_use]
    pub fn wrap(&self, dial: Dial) -> Dial {
        let held = self.0.clone();
        Box::new(move || {
            let transport = dial()?;
            *held.lock() = transport.probe.clone();
            Ok(transport)
        })
    }

    /// What the kernel may hold: enough to fill the path twice over and a scheduler's pause, and not the megabytes it
    /// would take otherwise. `None` before the rate is known.
    fn send_buffer(&self, goodput: u64) -> Option<u64> {
        const PAUSE_MS: u64 = 10;
        let rtt_ns = self.0.lock().tcp_info()?.rtt_min_ns;
        let path = u64::try_from(u128::from(goodput) * 2 * u128::from(rtt_ns) / 1_000_000_000)
            .unwrap_or(u64::MAX);
        let wanted = path.saturating_add(goodput / 1000 * PAUSE_MS);
        (goodput > 0).then_some(wanted.clamp(256 << 10, 64 << 20))
    }

    fn set_send_buffer(&self, bytes: u64) -> bool {
        self.0.lock().set_send_buffer(bytes as usize)
    }
}
