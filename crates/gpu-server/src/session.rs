//! One client: its messages in order, and what they may do.

use std::{
    collections::{HashMap, HashSet},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use narrows::{ChannelReader, Code, Endpoint, Error};
use narrows_gpu_abi::Status;
use narrows_gpu_wire::{
    Frames, INLINE_LEN_MAX, Image, KernelInfo, PARAMS_LEN_MAX, Reply, Request, Span, ids,
};
use parking_lot::Mutex;

use crate::{
    Device, Failure,
    content::SessionContents,
    device::{Done, Gate, Until},
    ended,
    images::{Images, hash_of},
    lane::{Lanes, Outbox, Sink, Source, Turn},
};

/// Bounds on what one session may name.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// Streams.
    pub streams: usize,
    /// Events.
    pub events: usize,
    /// Modules.
    pub modules: usize,
    /// Bytes of an image.
    pub image_len: u64,
    /// Bytes of all images that are loaded.
    pub images_len: u64,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            streams: 1024,
            events: 1 << 16,
            modules: 4096,
            image_len: 1 << 30,
            images_len: 4 << 30,
        }
    }
}

/// What a session has and does.
pub struct Session<'a> {
    endpoint: &'a Endpoint,
    device: Arc<dyn Device>,
    outbox: Arc<Outbox>,
    lanes: &'a Lanes,
    images: &'a Images,
    contents: SessionContents,
    saved: u64,
    bounds: Bounds,
    state: State,
}

/// What a session is given: who is there, and what it works with.
pub struct Means<'a> {
    /// The connection.
    pub endpoint: &'a Endpoint,
    /// The session's part of the device.
    pub device: Arc<dyn Device>,
    /// Where answers go.
    pub outbox: Arc<Outbox>,
    /// Channels for the bytes of copies.
    pub lanes: &'a Lanes,
    /// Images of all programs.
    pub images: &'a Images,
    /// What it may have kept.
    pub contents: SessionContents,
}

#[derive(Default)]
struct State {
    streams: HashSet<u64>,
    events: HashSet<u64>,
    /// Bytes of each module's image.
    modules: HashMap<u64, u64>,
    callbacks: Arc<Mutex<Callbacks>>,
    /// Calls that wait for the device.
    waiting: Arc<AtomicU64>,
}

/// Streams that wait for a function of the client's.
#[derive(Default)]
struct Callbacks {
    gates: HashMap<u64, Gate>,
    /// No function will run any more.
    over: bool,
}

impl Callbacks {
    fn end(&mut self) {
        self.over = true;
        self.gates.drain().for_each(|(_, gate)| gate.raise());
    }
}

/// Calls that may wait at once: each holds a closure, and a program has one a thread.
const WAITING_MAX: u64 = 4096;

fn refuse(text: impl Into<String>) -> Failure {
    Failure::new(Status::INVALID_VALUE, text)
}

impl<'a> Session<'a> {
    /// A session that owns nothing yet.
    #[must_use]
    pub fn new(means: Means<'a>) -> Self {
        Self {
            endpoint: means.endpoint,
            device: means.device,
            outbox: means.outbox,
            lanes: means.lanes,
            images: means.images,
            contents: means.contents,
            saved: 0,
            bounds: Bounds::default(),
            state: State::default(),
        }
    }

    /// Does what the client says until it ends.
    ///
    /// # Errors
    /// [`Error`], where the client broke the protocol or vanished.
    pub fn run(&mut self, reader: &mut ChannelReader, frames: &mut Frames) -> Result<(), Error> {
        loop {
            while let Some(request) = next(frames)? {
                self.handle(request)?;
            }
            match reader.next_chunk() {
                Ok(Some(bytes)) => frames.push(bytes),
                Ok(None) | Err(Error::Closed(_)) => return Ok(()),
                Err(end) => return Err(end),
            }
        }
    }

    fn handle(&mut self, request: Request) -> Result<(), Error> {
        match request {
            Request::ModuleLoad { .. } | Request::ModuleImage { .. } => self.load(request),
            request => {
                let result = match call_of(&request) {
                    Some(call) => {
                        self.answer(call, request);
                        Ok(())
                    }
                    None => self.obey(request),
                };
                if let Err(failure) = result {
                    self.fault(failure);
                }
                Ok(())
            }
        }
    }

    fn fault(&self, failure: Failure) {
        self.outbox.say(&Reply::Fault {
            status: failure.status.0,
            text: failure.text,
        });
    }

    /// Requests that are not answered.
    fn obey(&mut self, request: Request) -> Result<(), Failure> {
        let device = self.device.clone();
        match request {
            Request::StreamCreate {
                id,
                flags,
                priority,
            } => {
                admit(&mut self.state.streams, id, self.bounds.streams, "streams")?;
                device.stream_create(id, flags, priority)
            }
            Request::StreamDestroy { id } => {
                leave(&mut self.state.streams, id)?;
                device.stream_destroy(id)
            }
            Request::EventCreate { id, flags } => {
                admit(&mut self.state.events, id, self.bounds.events, "events")?;
                device.event_create(id, flags)
            }
            Request::EventDestroy { id } => {
                leave(&mut self.state.events, id)?;
                device.event_destroy(id)
            }
            Request::EventRecord { event, stream } => {
                device.event_record(self.event(event)?, self.stream(stream)?)
            }
            Request::StreamWaitEvent { stream, event } => {
                device.stream_wait(self.stream(stream)?, self.event(event)?)
            }
            Request::Free { address } => device.free(address, None),
            Request::FreeAsync { address, stream } => {
                device.free(address, Some(self.stream(stream)?))
            }
            Request::ModuleUnload { id } => {
                self.state
                    .modules
                    .remove(&id)
                    .ok_or(Status::INVALID_HANDLE)?;
                device.unload(id)
            }
            Request::Launch(launch) => {
                self.stream(launch.stream)?;
                if launch.params.len() > PARAMS_LEN_MAX {
                    return Err(refuse("too many bytes of parameters"));
                }
                self.module(launch.kernel.module)?;
                device.launch(launch)
            }
            Request::HostCallback { stream, callback } => self.callback(stream, callback),
            Request::CallbackDone { callback } => {
                let gate = self.state.callbacks.lock().gates.remove(&callback);
                gate.ok_or(Status::INVALID_HANDLE)?.raise();
                Ok(())
            }
            Request::TextureDestroy { handle } => device.texture_destroy(handle),
            Request::KernelSetAttribute {
                kernel,
                attribute,
                value,
            } => {
                self.module(kernel.module)?;
                device.kernel_set_attribute(kernel, attribute, value)
            }
            request => self.transfer(request),
        }
    }

    /// Requests that move or set bytes.
    fn transfer(&mut self, request: Request) -> Result<(), Failure> {
        let device = self.device.clone();
        match request {
            Request::Memset {
                stream,
                dst,
                element,
                value,
            } => {
                let len = checked(&dst)?;
                if ![1, 2, 4].contains(&element) || dst.row % u64::from(element) != 0 {
                    return Err(refuse(format!("elements of {element} bytes")));
                }
                let stream = self.stream(stream)?;
                if len == 0 {
                    Ok(())
                } else {
                    device.memset(stream, dst, element, value)
                }
            }
            Request::CopyDevice { stream, dst, src } => {
                if checked(&dst)? != checked(&src)? {
                    return Err(refuse("a copy between spans of different lengths"));
                }
                device.copy(self.stream(stream)?, dst, src)
            }
            Request::WriteInline { stream, dst, bytes } => {
                if checked(&dst)? != bytes.len() as u64 || bytes.len() > INLINE_LEN_MAX {
                    return Err(refuse("a copy whose bytes are not as many as it says"));
                }
                device.write(self.stream(stream)?, dst, Source::Inline(bytes))
            }
            Request::Write { stream, lane, dst } => {
                let lane = self.lane(lane)?;
                // From here on the bytes are on their way, whatever is wrong with the rest.
                let len = checked(&dst);
                let stream = self.stream(stream)?;
                len?;
                device.write(stream, dst, Source::Lane(Turn::next(lane, false)))
            }
            Request::WriteKept { .. } | Request::WriteHeld { .. } => self.piece(request),
            Request::Read { stream, lane, src } => {
                checked(&src)?;
                let sink = Sink::Lane {
                    turn: Turn::next(self.lane(lane)?, true),
                    outbox: self.outbox.clone(),
                };
                device.read(self.stream(stream)?, src, sink)
            }
            Request::ReadInline { stream, call, src } => {
                let fine = checked(&src)? <= INLINE_LEN_MAX as u64;
                let sink = Sink::Inline {
                    call,
                    outbox: self.outbox.clone(),
                };
                match self.stream(stream) {
                    Ok(stream) if fine => device.read(stream, src, sink),
                    other => {
                        let bytes = Vec::new();
                        self.outbox.say(&Reply::Data { call, bytes });
                        other.and(Err(refuse("more bytes than an answer takes")))
                    }
                }
            }
            _ => Err(refuse("a message that does not belong here")),
        }
    }

    /// Pieces of copies that are kept. The list changes as the client's did, whatever is wrong with the rest.
    fn piece(&mut self, request: Request) -> Result<(), Failure> {
        match request {
            Request::WriteKept {
                stream,
                lane,
                dst,
                hash,
            } => {
                let keeping = self.contents.keep(hash, checked(&dst)?)?;
                let lane = self.lane(lane)?;
                let source = Source::Kept(Turn::next(lane, false), keeping);
                self.device.write(self.stream(stream)?, dst, source)
            }
            Request::WriteHeld { stream, dst, hash } => {
                let len = checked(&dst)?;
                let source = Source::Held(self.contents.held(&hash, len)?);
                self.device.write(self.stream(stream)?, dst, source)?;
                self.saved += len;
                Ok(())
            }
            _ => Err(refuse("a message that does not belong here")),
        }
    }

    /// Bytes of copies that were kept and so did not travel.
    #[must_use]
    pub fn saved(&self) -> u64 {
        self.saved
    }

    /// Requests that are answered: at once, or when the device has come so far.
    fn answer(&mut self, call: u64, request: Request) {
        let device = &self.device;
        let plain = |result: Result<(u64, u64), Failure>| self.outbox.say(&done(call, result));
        match request {
            Request::Alloc { len: 0, .. } => plain(Err(refuse("an allocation of nothing"))),
            Request::Alloc { len, .. } => match device.alloc(len) {
                // What was freed before goes when the device is done with it; then there may be room.
                Err(failure) if failure.status == Status::OUT_OF_MEMORY => {
                    self.later(call, move |device| {
                        device.alloc(len).map(|address| (address, 0))
                    });
                }
                result => plain(result.map(|address| (address, 0))),
            },
            Request::MemInfo { .. } => self.later(call, |device| Ok(device.memory())),
            Request::GetGlobal { module, name, .. } => plain(
                self.module(module)
                    .and_then(|()| device.global(module, &name)),
            ),
            Request::EventElapsed { start, end, .. } => plain(
                device
                    .event_elapsed(start, end)
                    .map(|ms| (u64::from(ms.to_bits()), 0)),
            ),
            Request::TextureCreate { texture, .. } => {
                plain(device.texture_create(texture).map(|handle| (handle, 0)))
            }
            Request::Occupancy {
                kernel,
                block,
                shared,
                ..
            } => plain(
                self.module(kernel.module)
                    .and_then(|()| device.occupancy(kernel, block, shared))
                    .map(|blocks| (u64::from(blocks), 0)),
            ),
            Request::Ping { .. } => plain(Ok((0, 0))),
            Request::Usage { .. } => {
                let stats = self.endpoint.stats();
                plain(Ok((stats.sent_wire, cpu_ns())));
            }
            Request::Reset { .. } => {
                self.state.callbacks.lock().end();
                let freed = device.clear();
                self.state = State::default();
                self.contents.clear();
                plain(Ok((freed.allocations as u64, freed.bytes)));
            }
            Request::StreamQuery { stream, .. } => self.query(call, Until::Stream(stream)),
            Request::EventQuery { event, .. } => self.query(call, Until::Event(event)),
            Request::StreamSync { stream, .. } => self.wait(call, Until::Stream(stream)),
            Request::EventSync { event, .. } => self.wait(call, Until::Event(event)),
            _ => self.wait(call, Until::All),
        }
    }

    /// Answers when all work so far is done, and with it what the client has freed.
    fn later(
        &self,
        call: u64,
        answer: impl FnOnce(&dyn Device) -> Result<(u64, u64), Failure> + Send + 'static,
    ) {
        let (device, outbox) = (self.device.clone(), self.outbox.clone());
        let told = move |_| outbox.say(&done(call, answer(&*device)));
        self.device.wait(Until::All, Box::new(told));
    }

    fn known(&self, until: Until) -> Result<(), Failure> {
        match until {
            Until::Stream(stream) => self.stream(stream).map(drop),
            Until::Event(event) => self.event(event).map(drop),
            Until::All => Ok(()),
        }
    }

    fn query(&self, call: u64, until: Until) {
        let result = self.known(until).and_then(|()| self.device.query(until));
        self.outbox.say_synced(&done(call, result.map(|()| (0, 0))));
    }

    fn wait(&self, call: u64, until: Until) {
        let (outbox, waiting) = (self.outbox.clone(), self.state.waiting.clone());
        let many = waiting.fetch_add(1, Relaxed) >= WAITING_MAX;
        let told: Done = Box::new(move |result| {
            waiting.fetch_sub(1, Relaxed);
            outbox.say_synced(&done(call, result.map(|()| (0, 0))));
        });
        match self.known(until) {
            Ok(()) if many => told(Err(refuse("too many calls that wait"))),
            Ok(()) => self.device.wait(until, told),
            Err(failure) => told(Err(failure)),
        }
    }

    fn callback(&self, stream: u64, callback: u64) -> Result<(), Failure> {
        let stream = self.stream(stream)?;
        let (callbacks, outbox) = (self.state.callbacks.clone(), self.outbox.clone());
        let reached = move || {
            let gate = Gate::default();
            let mut callbacks = callbacks.lock();
            if callbacks.over {
                gate.raise();
                return gate;
            }
            callbacks.gates.insert(callback, gate.clone());
            drop(callbacks);
            outbox.say_synced(&Reply::Callback { callback });
            gate
        };
        self.device.callback(stream, Box::new(reached))
    }

    fn load(&mut self, request: Request) -> Result<(), Error> {
        let (call, id, result) = match request {
            Request::ModuleLoad { call, id, image } => {
                let found = if image.bytes.is_empty() && image.len > 0 {
                    self.images.get(&image.hash, image.len)
                } else {
                    Some(image.bytes)
                };
                match found {
                    None => {
                        self.outbox.say(&Reply::NeedImage { call });
                        return Ok(());
                    }
                    Some(bytes) => (call, id, self.load_bytes(id, &bytes)),
                }
            }
            Request::ModuleImage {
                call,
                id,
                image,
                lane,
            } => {
                let result = match self.receive(&image, lane)? {
                    Ok(bytes) => {
                        self.images.keep(&image.hash, &bytes);
                        self.load_bytes(id, &bytes)
                    }
                    Err(failure) => Err(failure),
                };
                (call, id, result)
            }
            _ => unreachable!("only those two are given"),
        };
        match result {
            Ok(kernels) => self.outbox.say(&Reply::Loaded { call, kernels }),
            Err(failure) => {
                self.state.modules.remove(&id);
                self.outbox.say(&Reply::Failed {
                    call,
                    status: failure.status.0,
                    text: failure.text,
                });
            }
        }
        Ok(())
    }

    /// An image's bytes from a lane. Too long a one ends the session: its bytes are already on the way.
    fn receive(&self, image: &Image, lane: u32) -> Result<Result<Vec<u8>, Failure>, Error> {
        if image.len > self.bounds.image_len {
            let text = format!(
                "an image of {} bytes; this server takes {}",
                image.len, self.bounds.image_len
            );
            return Err(ended(Code::LIMIT, text));
        }
        let lane = match self.lane(lane) {
            Ok(lane) => lane,
            Err(failure) => return Ok(Err(failure)),
        };
        let mut bytes = Vec::new();
        Source::Lane(Turn::next(lane, false)).take::<Error>(image.len, |piece| {
            bytes.extend_from_slice(piece);
            Ok(())
        })?;
        if hash_of(&bytes) != image.hash {
            return Ok(Err(refuse("an image that is not what its hash says")));
        }
        Ok(Ok(bytes))
    }

    fn load_bytes(&mut self, id: u64, bytes: &[u8]) -> Result<Vec<KernelInfo>, Failure> {
        let modules = &mut self.state.modules;
        let held: u64 = modules.values().sum();
        if modules.len() >= self.bounds.modules
            || held + bytes.len() as u64 > self.bounds.images_len
        {
            let text = format!("{} modules of {held} bytes are loaded", modules.len());
            return Err(Failure::new(Status::OUT_OF_MEMORY, text));
        }
        if id < ids::FIRST || modules.contains_key(&id) {
            return Err(refuse("a module's id that is taken"));
        }
        let kernels = self.device.load(id, bytes)?;
        modules.insert(id, bytes.len() as u64);
        Ok(kernels)
    }

    fn stream(&self, id: u64) -> Result<u64, Failure> {
        let known = id == ids::LEGACY_STREAM || self.state.streams.contains(&id);
        known
            .then_some(id)
            .ok_or_else(|| Failure::new(Status::INVALID_HANDLE, format!("no stream {id}")))
    }

    fn event(&self, id: u64) -> Result<u64, Failure> {
        let known = self.state.events.contains(&id);
        known
            .then_some(id)
            .ok_or_else(|| Failure::new(Status::INVALID_HANDLE, format!("no event {id}")))
    }

    fn module(&self, id: u64) -> Result<(), Failure> {
        let known = self.state.modules.contains_key(&id);
        known
            .then_some(())
            .ok_or_else(|| Failure::new(Status::INVALID_HANDLE, format!("no module {id}")))
    }

    fn lane(&self, number: u32) -> Result<Arc<crate::lane::Lane>, Failure> {
        self.lanes
            .get(number)
            .ok_or_else(|| refuse(format!("lane {number} was never opened")))
    }
}

/// Whatever waits for the client's functions waits no longer.
impl Drop for Session<'_> {
    fn drop(&mut self) {
        self.state.callbacks.lock().end();
    }
}

/// Reads the next message that has come whole.
///
/// # Errors
/// [`Error`] for anything that is none.
pub fn next(frames: &mut Frames) -> Result<Option<Request>, Error> {
    let refused = |fault: narrows_gpu_wire::WireError| {
        ended(Code::PROTOCOL, format!("refused from the client: {fault}"))
    };
    let frame = frames.next_frame().map_err(refused)?;
    frame
        .map(|body| Request::parse(&body).map_err(refused))
        .transpose()
}

fn admit(held: &mut HashSet<u64>, id: u64, max: usize, what: &str) -> Result<(), Failure> {
    if held.len() >= max {
        let text = format!("{max} {what} are as many as a session has");
        return Err(Failure::new(Status::OUT_OF_MEMORY, text));
    }
    if id < ids::FIRST || !held.insert(id) {
        return Err(refuse("an id that is taken"));
    }
    Ok(())
}

fn leave(held: &mut HashSet<u64>, id: u64) -> Result<(), Failure> {
    if held.remove(&id) {
        Ok(())
    } else {
        Err(Failure::from(Status::INVALID_HANDLE))
    }
}

fn checked(span: &Span) -> Result<u64, Failure> {
    span.checked_len()
        .filter(|_| span.is_sane())
        .ok_or_else(|| refuse("a span beyond all addresses"))
}

fn done(call: u64, result: Result<(u64, u64), Failure>) -> Reply {
    match result {
        Ok((value, more)) => Reply::Done {
            call,
            status: 0,
            value,
            more,
        },
        Err(failure) if failure.status == Status::NOT_READY => Reply::Done {
            call,
            status: failure.status.0,
            value: 0,
            more: 0,
        },
        Err(failure) => Reply::Failed {
            call,
            status: failure.status.0,
            text: failure.text,
        },
    }
}

/// Processor time of this process so far, in nanoseconds.
fn cpu_ns() -> u64 {
    narrows_io::meter::CpuTime::of_process().total_ns()
}

/// The number of a request that is answered by a number.
fn call_of(request: &Request) -> Option<u64> {
    match request {
        Request::Alloc { call, .. }
        | Request::MemInfo { call }
        | Request::GetGlobal { call, .. }
        | Request::StreamSync { call, .. }
        | Request::ContextSync { call }
        | Request::EventSync { call, .. }
        | Request::StreamQuery { call, .. }
        | Request::EventQuery { call, .. }
        | Request::EventElapsed { call, .. }
        | Request::TextureCreate { call, .. }
        | Request::Occupancy { call, .. }
        | Request::Ping { call }
        | Request::Reset { call }
        | Request::Usage { call } => Some(*call),
        _ => None,
    }
}
