//! The session with the server: requests in order, answers by their numbers.
//!
//! Requests that are not answered gather for a moment, since a program makes many in a row; one that waits for its
//! answer takes them along at once. Locks, outermost first: a lane's order, the list of contents, the control writer. The answers' table is
//! never held together with either.

use std::{
    collections::HashMap,
    io::Write,
    sync::{
        Arc,
        atomic::{AtomicU32, AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use narrows::{ChannelReader, ChannelWriter, Code, Endpoint, Engine, Error};
use narrows_gpu_abi::{HEADER_VERSION, Status};
use narrows_gpu_wire::{DeviceInfo, Frames, Reply, Request, SERVICE};
use parking_lot::{Condvar, Mutex};

use crate::{
    call::{say, say_once},
    contents::Contents,
    ffi::Answer,
    host::HostSpan,
    lane::{Lane, Lanes},
    settings,
};

/// Bytes of requests that leave without waiting for more.
const GATHER_LEN: usize = 32 << 10;
/// How long requests gather.
const GATHER_FOR: Duration = Duration::from_micros(40);

/// The session.
pub(crate) struct Remote {
    endpoint: Endpoint,
    /// Threads and codecs of the session.
    _engine: Engine,
    control: Mutex<Control>,
    gathered: Condvar,
    calls: Mutex<Calls>,
    next: AtomicU64,
    pub(crate) lanes: Lanes,
    pub(crate) contents: Contents,
    /// `CUresult` of what went wrong for good; 0 while nothing has.
    fault: AtomicU32,
    callbacks: Mutex<HashMap<u64, Box<dyn FnOnce() + Send>>>,
    pub(crate) counts: Counts,
    info: DeviceInfo,
}

struct Control {
    writer: ChannelWriter,
    pending: Vec<u8>,
}

#[derive(Default)]
struct Calls {
    waiting: HashMap<u64, Arc<Slot>>,
    /// Where the bytes of small reads go.
    reads: HashMap<u64, HostSpan>,
    over: bool,
}

#[derive(Default)]
struct Slot {
    reply: Mutex<Option<Option<Reply>>>,
    told: Condvar,
}

/// What was said, for tests and summaries.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    /// Requests without an answer.
    pub(crate) sent: AtomicU64,
    /// Requests that waited for their answer: round trips.
    pub(crate) calls: AtomicU64,
}

impl Remote {
    /// Connects, as the environment says.
    pub(crate) fn connect() -> Result<Arc<Self>, String> {
        // The program's signals are the program's: no thread of ours takes one.
        let _blocked = Blocked::new();
        let connector = settings::connector()?;
        let to = connector.address().to_string();
        let engine = settings::engine()?;
        let mut packing = settings::settings(&engine)?;
        if let Some(path) = settings::explain() {
            let file = std::fs::File::create(&path)
                .map_err(|fault| format!("cannot write {}: {fault}", path.display()))?;
            packing.explain = Some(narrows::explain_to(file));
        }
        let keeps = settings::keeps_contents(&packing);
        let unreached = |end: Error| format!("cannot use the GPU at {to}: {end}");
        let endpoint = connector.connect(&engine, packing).map_err(unreached)?;
        let (mut writer, mut reader) = endpoint.open(SERVICE).map_err(unreached)?;
        let mut bytes = Vec::new();
        Request::Hello {
            header_version: HEADER_VERSION,
            program: program(),
        }
        .put(&mut bytes);
        writer
            .write_all(&bytes)
            .and_then(|()| writer.flush())
            .map_err(|fault| format!("cannot use the GPU at {to}: {fault}"))?;
        let mut frames = Frames::default();
        let info = match next(&mut reader, &mut frames).map_err(unreached)? {
            Some(Reply::Welcome(info)) => info,
            Some(Reply::Refused { text }) => return Err(format!("{to} refused: {text}")),
            _ => return Err(format!("{to} did not answer as a server of GPUs")),
        };
        let remote = Arc::new(Self {
            endpoint,
            _engine: engine,
            control: Mutex::new(Control {
                writer,
                pending: Vec::new(),
            }),
            gathered: Condvar::new(),
            calls: Mutex::default(),
            next: AtomicU64::new(narrows_gpu_wire::ids::FIRST),
            lanes: Lanes::default(),
            contents: Contents::default(),
            fault: AtomicU32::new(0),
            callbacks: Mutex::default(),
            counts: Counts::default(),
            info,
        });
        if !keeps {
            remote.contents.turn_off();
        }
        let (hears, flushes) = (remote.clone(), remote.clone());
        let thread = |name: &str, run: Box<dyn FnOnce() + Send>| {
            narrows_io::thread::spawn(name, run).map_err(|fault| fault.to_string())
        };
        thread("gpu-replies", Box::new(move || hears.hear(reader, frames)))?;
        thread("gpu-flush", Box::new(move || flushes.flush_gathered()))?;
        Ok(remote)
    }

    /// What the server said of the device.
    pub(crate) fn info(&self) -> &DeviceInfo {
        &self.info
    }

    /// The session's counters.
    pub(crate) fn stats(&self) -> narrows::Stats {
        self.endpoint.stats()
    }

    /// What a link to another host takes for a byte before packing, in nanoseconds, as far as it has been full so far. 0
    /// on one host.
    pub(crate) fn link_ns_a_byte(&self) -> f64 {
        if self.endpoint.shares_host() {
            return 0.0;
        }
        let (gauges, stats) = (self.endpoint.gauges(), self.endpoint.stats());
        let packed = stats.sent_wire as f64 / stats.sent_raw.max(1) as f64;
        packed * gauges.link_ns as f64 / gauges.link_bytes.max(1) as f64
    }

    /// A number that nothing else has.
    pub(crate) fn id(&self) -> u64 {
        self.next.fetch_add(1, Relaxed)
    }

    /// An error that stays: what went wrong in work that nobody waited for, or the connection's end.
    pub(crate) fn check(&self) -> Answer {
        Status(self.fault.load(Relaxed)).ok()
    }

    /// Sends a request that is not answered.
    pub(crate) fn send(&self, request: &Request) -> Answer {
        self.check()?;
        self.counts.sent.fetch_add(1, Relaxed);
        let mut control = self.control.lock();
        let first = control.pending.is_empty();
        request.put(&mut control.pending);
        if control.pending.len() >= GATHER_LEN {
            return self.flush(&mut control);
        }
        drop(control);
        if first {
            self.gathered.notify_one();
        }
        Ok(())
    }

    /// Sends what has gathered.
    pub(crate) fn flush_now(&self) -> Answer {
        self.flush(&mut self.control.lock())
    }

    fn flush(&self, control: &mut Control) -> Answer {
        if control.pending.is_empty() {
            return Ok(());
        }
        let buf = control.writer.buffer_of(&control.pending);
        control.pending.clear();
        match control.writer.push(buf) {
            Ok(()) => Ok(()),
            Err(end) => {
                self.lost(&end);
                self.check()
            }
        }
    }

    fn flush_gathered(&self) {
        loop {
            let mut control = self.control.lock();
            while control.pending.is_empty() {
                if self.calls_are_over() {
                    return;
                }
                self.gathered.wait(&mut control);
            }
            drop(control);
            std::thread::sleep(GATHER_FOR);
            let _ = self.flush_now();
        }
    }

    fn calls_are_over(&self) -> bool {
        self.endpoint.ended().is_some()
    }

    /// Sends the request that `make` makes of a number, and waits for the answer of that number.
    pub(crate) fn call(&self, make: impl FnOnce(u64) -> Request) -> Answer<Reply> {
        self.check()?;
        let call = self.id();
        let slot = self.expect(call, None)?;
        self.request(make(call))?;
        self.wait(&slot)
    }

    /// As [`Remote::call`], of a request that is answered by numbers.
    pub(crate) fn ask(&self, make: impl FnOnce(u64) -> Request) -> Answer<(u64, u64)> {
        match self.call(make)? {
            Reply::Done {
                status,
                value,
                more,
                ..
            } => Status(status).ok().map(|()| (value, more)),
            Reply::Failed { status, text, .. } => {
                say(&text);
                Err(Status(status))
            }
            _ => Err(Status::UNKNOWN),
        }
    }

    /// As [`Remote::ask`], where "no" is an answer that programs expect.
    pub(crate) fn ask_quietly(&self, make: impl FnOnce(u64) -> Request) -> Answer<(u64, u64)> {
        match self.call(make)? {
            Reply::Done { value, more, .. } => Ok((value, more)),
            Reply::Failed { status, .. } => Err(Status(status)),
            _ => Err(Status::UNKNOWN),
        }
    }

    /// As [`Remote::call`], of a request whose bytes travel elsewhere: `send` is given what announces it.
    pub(crate) fn call_with(
        &self,
        make: impl FnOnce(u64) -> Request,
        send: impl FnOnce(&mut dyn FnMut() -> Answer) -> Answer,
    ) -> Answer<Reply> {
        self.check()?;
        let call = self.id();
        let slot = self.expect(call, None)?;
        let request = make(call);
        send(&mut || self.request(request.clone()))?;
        self.wait(&slot)
    }

    /// As [`Remote::ask`], of a request that synchronises: what was read by then has come.
    pub(crate) fn sync(&self, make: impl FnOnce(u64) -> Request) -> Answer {
        let result = match self.call(make)? {
            Reply::Done { status, .. } => Status(status).ok(),
            Reply::Failed { status, .. } => Err(Status(status)),
            _ => Err(Status::UNKNOWN),
        };
        self.lanes.settle();
        self.check()?;
        result
    }

    /// Reads a few bytes into the program's memory, and waits for them.
    pub(crate) fn read_inline(&self, to: HostSpan, make: impl FnOnce(u64) -> Request) -> Answer {
        self.check()?;
        let call = self.id();
        let slot = self.expect(call, Some(to))?;
        self.request(make(call))?;
        match self.wait(&slot)? {
            Reply::Data { bytes, .. } if bytes.len() as u64 == to.len() => Ok(()),
            _ => self.check().and(Err(Status::UNKNOWN)),
        }
    }

    /// As [`Remote::read_inline`], without waiting: the bytes come before the next call that synchronises answers.
    pub(crate) fn read_later(&self, to: HostSpan, make: impl FnOnce(u64) -> Request) -> Answer {
        let call = self.id();
        self.calls.lock().reads.insert(call, to);
        self.send(&make(call))
    }

    fn expect(&self, call: u64, read: Option<HostSpan>) -> Answer<Arc<Slot>> {
        let slot = Arc::<Slot>::default();
        let mut calls = self.calls.lock();
        if calls.over {
            drop(calls);
            return self.check().and(Err(Status::UNKNOWN));
        }
        calls.waiting.insert(call, slot.clone());
        if let Some(to) = read {
            calls.reads.insert(call, to);
        }
        Ok(slot)
    }

    fn request(&self, request: Request) -> Answer {
        self.counts.calls.fetch_add(1, Relaxed);
        let mut control = self.control.lock();
        request.put(&mut control.pending);
        self.flush(&mut control)
    }

    fn wait(&self, slot: &Slot) -> Answer<Reply> {
        let mut reply = slot.reply.lock();
        loop {
            match reply.take() {
                Some(Some(reply)) => return Ok(reply),
                Some(None) => return self.check().and(Err(Status::UNKNOWN)),
                None => slot.told.wait(&mut reply),
            }
        }
    }

    /// After work of this session has failed for good and the program has let go of everything: begins anew.
    pub(crate) fn renew(&self) {
        let fault = self.fault.swap(0, Relaxed);
        if fault == 0 {
            return;
        }
        // Until the server has forgotten its pieces, too, no copy may name one.
        let _forgotten = self.contents.forget();
        let renewed =
            !self.calls.lock().over && self.ask_quietly(|call| Request::Reset { call }).is_ok();
        if !renewed {
            self.fault.store(fault, Relaxed);
        }
    }

    /// Has `run` called when the stream has come to this point, on a thread of its own; the stream waits for it.
    pub(crate) fn callback(&self, stream: u64, run: Box<dyn FnOnce() + Send>) -> Answer {
        let callback = self.id();
        self.callbacks.lock().insert(callback, run);
        self.send(&Request::HostCallback { stream, callback })
    }

    /// Counts a round trip that was made on a lane.
    pub(crate) fn count_round_trip(&self) {
        self.counts.calls.fetch_add(1, Relaxed);
    }

    /// Opens a lane.
    pub(crate) fn open_lane(self: &Arc<Self>) -> Answer<Arc<Lane>> {
        let _blocked = Blocked::new();
        self.lanes.open(|number| {
            let service = format!("{}{number}", narrows_gpu_wire::LANE_SERVICE);
            let ends = self.endpoint.open(&service);
            ends.map_err(|end| {
                say(&format!("a lane for copies: {end}"));
                Status::UNKNOWN
            })
        })
    }

    fn hear(self: &Arc<Self>, mut reader: ChannelReader, mut frames: Frames) {
        let end = loop {
            match next(&mut reader, &mut frames) {
                Ok(Some(Reply::Contents { bytes_max, pieces })) => {
                    if !self.contents.open(bytes_max, &pieces) {
                        let text = "refused from the server: pieces that it cannot keep";
                        break Error::new(Code::PROTOCOL, text);
                    }
                }
                Ok(Some(reply)) => self.handle(reply),
                Ok(None) => {
                    break Error::new(Code::FAILED, "the server ended the session");
                }
                Err(end) => break end,
            }
        };
        self.lost(&end);
    }

    fn handle(self: &Arc<Self>, reply: Reply) {
        match reply {
            Reply::Done { call, .. }
            | Reply::Failed { call, .. }
            | Reply::Loaded { call, .. }
            | Reply::NeedImage { call } => self.tell(call, reply),
            Reply::Data { call, ref bytes } => {
                let to = self.calls.lock().reads.remove(&call);
                if let Some(to) = to.filter(|to| to.len() == bytes.len() as u64) {
                    to.cursor().write(bytes);
                }
                self.tell(call, reply);
            }
            Reply::Fault { status, text } => {
                let first = self
                    .fault
                    .compare_exchange(0, status.max(1), Relaxed, Relaxed);
                if first.is_ok() {
                    say(&text);
                }
            }
            Reply::Callback { callback } => {
                let run = self.callbacks.lock().remove(&callback);
                let remote = self.clone();
                let done = move || {
                    remote.lanes.settle();
                    run.into_iter().for_each(|run| run());
                    let _ = remote.send(&Request::CallbackDone { callback });
                    let _ = remote.flush_now();
                };
                if let Err(fault) = narrows_io::thread::spawn("gpu-callback", done) {
                    say(&format!("a callback cannot run: {fault}"));
                }
            }
            Reply::Delivered { lane, reads } => self.lanes.delivered(lane, reads),
            Reply::Contents { .. } | Reply::Welcome(_) | Reply::Refused { .. } => {}
        }
    }

    fn tell(&self, call: u64, reply: Reply) {
        let slot = self.calls.lock().waiting.remove(&call);
        if let Some(slot) = slot {
            *slot.reply.lock() = Some(Some(reply));
            slot.told.notify_one();
        }
    }

    /// Nothing more comes: whoever waits is told.
    fn lost(&self, end: &Error) {
        let leaving = end.code() == Code::DONE;
        let first = self
            .fault
            .compare_exchange(0, Status::UNKNOWN.0, Relaxed, Relaxed);
        if first.is_ok() && !leaving {
            say_once(&format!(
                "the connection to the GPU is lost: {}",
                end.text()
            ));
        }
        let mut calls = self.calls.lock();
        calls.over = true;
        let waiting = std::mem::take(&mut calls.waiting);
        drop(calls);
        for slot in waiting.into_values() {
            *slot.reply.lock() = Some(None);
            slot.told.notify_one();
        }
        self.lanes.close();
        self.gathered.notify_all();
    }

    /// The program ends.
    pub(crate) fn leave(&self) {
        let _ = self.flush_now();
        self.endpoint.close();
    }
}

fn next(reader: &mut ChannelReader, frames: &mut Frames) -> Result<Option<Reply>, Error> {
    let refused = |fault: narrows_gpu_wire::WireError| {
        Error::new(Code::PROTOCOL, format!("refused from the server: {fault}"))
    };
    loop {
        if let Some(body) = frames.next_frame().map_err(refused)? {
            return Reply::parse(&body).map(Some).map_err(refused);
        }
        match reader.next_chunk()? {
            Some(bytes) => frames.push(bytes),
            None => return Ok(None),
        }
    }
}

/// What the program is called, for the server's log.
fn program() -> String {
    let path = std::fs::read_link("/proc/self/exe").unwrap_or_default();
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    format!("{name} ({})", std::process::id())
}

/// While it lives, the calling thread takes no signals, nor do threads that it starts.
pub(crate) struct Blocked(libc::sigset_t);

impl Blocked {
    pub(crate) fn new() -> Self {
        // SAFETY: both sets are ours, and the calls fill them before they are read.
        unsafe {
            let mut all = std::mem::zeroed();
            let mut before = std::mem::zeroed();
            libc::sigfillset(&raw mut all);
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
            Self(before)
        }
    }
}

impl Drop for Blocked {
    fn drop(&mut self) {
        // SAFETY: the set is what this thread had.
        unsafe {
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.0, std::ptr::null_mut())
        };
    }
}
